//! A trace of blktrace as fio's iolog, as `read_iolog` of fio takes one.
//!
//! Queued reads, writes, discards and flushes of every device, with their times; all other events are consequences of
//! these. A device is a file of the log.

use std::collections::BTreeMap;
use std::io::{self, Read};

use iowhy_fio::iolog::{Action, Entry, Iolog, Version};
use iowhy_stack::trace::Dev;
use iowhy_stack::units::SECTOR_BYTES;

use super::{Merge, bits};

/// The log; `name` yields the file that stands for a device.
pub fn iolog(bytes: Vec<u8>, name: &dyn Fn(Dev) -> String) -> Iolog {
    let source: Box<dyn Read + Send> = Box::new(io::Cursor::new(bytes));
    let mut merge = Merge::new(vec![("read_iolog".to_owned(), source)]);
    let mut log = Iolog { version: Version::Three, files: Vec::new(), entries: Vec::new() };
    let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
    let mut first_ns = None;
    while let Some((raw, _)) = merge.next_raw() {
        if raw.action & bits::NOTIFY != 0 || raw.action & bits::WHAT != bits::QUEUE {
            continue;
        }
        // Times begin at 1: 0 is no time.
        let at_us = 1 + raw.time_ns.saturating_sub(*first_ns.get_or_insert(raw.time_ns)) / 1000;
        let file = *numbers.entry(raw.device).or_insert_with(|| {
            log.files.push(name(Dev(raw.device)));
            let file = log.files.len() as u32 - 1;
            let of_file = |action| Entry { at_us, file, action, offset: 0, len_bytes: 0 };
            log.entries.extend([Action::Add, Action::Open].map(of_file));
            file
        });
        let has = |category: u32| raw.action & category != 0;
        let action = match raw.bytes {
            _ if has(bits::TC_DISCARD) => Action::Trim,
            _ if has(bits::TC_FLUSH) => Action::Sync,
            0 => continue,
            _ if has(bits::TC_WRITE) => Action::Write,
            _ => Action::Read,
        };
        let offset = raw.sector.saturating_mul(SECTOR_BYTES);
        log.entries.push(Entry { at_us, file, action, offset, len_bytes: raw.bytes });
    }
    log
}

#[cfg(test)]
mod tests {
    use super::super::Raw;
    use super::super::tests::{other_order, record};
    use super::*;

    #[test]
    fn queued_requests_become_calls() {
        let event = |time_ns, action, sector, bytes, device| {
            record(&Raw { time_ns, action, sector, bytes, device, ..Raw::default() }, &[])
        };
        let queue = bits::QUEUE | bits::TC_QUEUE;
        let trace = [
            event(5_000_000, queue | bits::TC_READ, 8, 4096, 8 << 20),
            event(5_000_500, bits::GET_REQUEST | bits::TC_READ, 8, 4096, 8 << 20),
            event(5_002_000, queue | bits::TC_WRITE, 16, 512, 8 << 20 | 16),
            event(5_003_000, queue | bits::TC_DISCARD | bits::TC_WRITE, 0, 1024, 8 << 20),
            event(5_004_000, queue | bits::TC_FLUSH | bits::TC_WRITE, 0, 0, 8 << 20),
            event(5_005_000, queue | bits::TC_WRITE, 0, 0, 8 << 20),
        ]
        .concat();
        for trace in [trace.clone(), other_order(&trace)] {
            let mut text = Vec::new();
            let log = iolog(trace, &|dev| format!("d{}", dev.minor()));
            log.write(&mut text).expect("names are short");
            let expected = "fio version 3 iolog\n1 d0 add\n1 d0 open\n1 d0 read 4096 4096\n3 d16 add\n3 d16 open\n\
                            3 d16 write 8192 512\n4 d0 trim 0 1024\n5 d0 sync 0 0\n";
            assert_eq!(String::from_utf8_lossy(&text), expected);
        }
    }
}

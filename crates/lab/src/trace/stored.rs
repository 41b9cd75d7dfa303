//! Times at the device from a stored trace, reading only the columns that are needed.
//!
//! A D begins, the next C of the same device and sector ends: requests are paired in the order of the records, so
//! sectors may be used any number of times, which a join of tables cannot tell apart. A D again (after a requeue)
//! replaces the first.
//!
//! Known limit: a request that is completed in parts counts its first part only; the phases of whole bios are in
//! [`phases`](super::phases).

use crate::format::trace_parquet::{self, Values};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::path::Path;

/// A hash of two small numbers: a multiplication. Keys come from a kernel's trace, and a trace that was made to collide
/// is slow, not wrong.
#[derive(Copy, Clone, Debug, Default)]
struct Multiply(u64);

impl Hasher for Multiply {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn write_i64(&mut self, word: i64) {
        self.write_u64(word as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

/// Times from issue to completion in a trace stored as Parquet, ns, in the order of the completions.
///
/// # Errors
/// If the file cannot be read, as a sentence.
pub fn d2c(path: &Path) -> Result<Vec<u64>, String> {
    let columns = trace_parquet::columns(path, &["kind", "t_ns", "dev", "sector"])?;
    let [Values::Words { codes, words }, Values::Full(times), devices, sectors] = columns.as_slice() else {
        return Err(format!("`{}` has other columns than a trace", path.display()));
    };
    let code = |name: &str| words.iter().position(|word| word == name).map_or(u32::MAX - 1, |place| place as u32);
    let (issue, complete) = (code("issue"), code("complete"));
    let value = |values: &Values, row: usize| match values {
        Values::Full(values) => values.get(row).copied(),
        Values::Numbers(values) => values.get(row).copied().flatten(),
        Values::Words { .. } => None,
    };
    let mut issued: HashMap<(i64, i64), i64, BuildHasherDefault<Multiply>> = HashMap::default();
    let mut found = Vec::with_capacity(codes.len() / 5);
    for (row, (kind, at)) in codes.iter().zip(times).enumerate() {
        if *kind != issue && *kind != complete {
            continue;
        }
        let (Some(dev), Some(sector)) = (value(devices, row), value(sectors, row)) else { continue };
        if *kind == issue {
            issued.insert((dev, sector), *at);
        } else if let Some(from) = issued.remove(&(dev, sector)) {
            found.push(u64::try_from(at - from).unwrap_or(0));
        }
    }
    Ok(found)
}

/// The value that a share of `percent` does not exceed (nearest rank).
pub fn percentile(mut values: Vec<u64>, percent: usize) -> Option<u64> {
    let rank = (values.len() * percent).div_ceil(100).max(1);
    if rank > values.len() {
        return None;
    }
    Some(*values.select_nth_unstable(rank - 1).1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iowhy_stack::trace::{Dev, Extent, Record, Rwbs, Seen, Trace};
    use iowhy_stack::units::{Nanos, Sector};

    #[test]
    fn requests_are_paired_in_order() {
        let extent = |dev, sector| Extent { dev: Dev(dev), sector: Sector(sector), bytes: 4096, rwbs: Rwbs::READ };
        let done = |dev, sector| Seen::Complete { extent: extent(dev, sector), error: 0 };
        let seen = [
            (10, Seen::Issue(extent(1, 8))),
            (11, Seen::Issue(extent(2, 8))),
            (12, Seen::Queue(extent(1, 8))),
            (15, done(1, 8)),
            (20, Seen::Issue(extent(1, 8))),
            (21, Seen::Issue(extent(1, 8))),
            (31, done(2, 8)),
            (32, done(1, 8)),
            (40, done(1, 8)),
        ];
        let record = |(at, seen)| Record { at: Nanos(at), cpu: 0, pid: 1, seen };
        let trace = Trace { records: seen.into_iter().map(record).collect(), ..Trace::default() };
        let path = std::env::temp_dir().join(format!("iowhy-stored-{}.parquet", std::process::id()));
        let mut file = std::fs::File::create(&path).expect("a file");
        trace_parquet::write(&trace, &mut file).expect("it is written");
        let times = d2c(&path).expect("it is read");
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(times, [5, 20, 11]);
        assert_eq!(
            (percentile(times.clone(), 50), percentile(times, 99), percentile(vec![], 5)),
            (Some(11), Some(20), None)
        );
    }
}

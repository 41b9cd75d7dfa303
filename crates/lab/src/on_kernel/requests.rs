//! Requests of a traced run in figures.

use iowhy_stack::event::{Content, Dir, Event, What};
use iowhy_stack::lifecycle::{Lifecycle, Step};
use iowhy_stack::units::{PAGE_SECTORS, SECTOR_BYTES};

/// Requests of a traced run, from its first call to the end of its last: files are laid out before.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    pub data_reads: u64,
    /// Of these, reads of a page at most.
    pub small_data_reads: u64,
    pub metadata_reads: u64,
    /// Bytes of the reads of data.
    pub data_bytes: u64,
    /// Time with a request at the device, ns.
    pub busy_ns: u64,
    /// All the time, ns.
    pub elapsed_ns: u64,
}

impl Requests {
    /// Of the joined events.
    pub fn of(events: &[Event]) -> Requests {
        let starts = |event: &Event| matches!(event.what, What::CallStart { .. });
        let ends = |event: &Event| matches!(event.what, What::CallEnd { .. });
        let first = events.iter().find(|event| starts(event)).map(|event| event.at);
        let last = events.iter().rfind(|event| ends(event)).map(|event| event.at);
        let Some((first, last)) = first.zip(last) else { return Requests::default() };
        let mut found = Requests { elapsed_ns: last.saturating_sub(first).0, ..Requests::default() };
        let (mut life, mut since) = (Lifecycle::<()>::default(), first);
        for event in events.iter().filter(|event| (first..=last).contains(&event.at)) {
            if life.depth > 0 {
                found.busy_ns += event.at.saturating_sub(since).0;
            }
            since = event.at;
            if let (Step::Issued(_), What::Issue { dir: Dir::Read, content, nr_sectors, .. }) =
                (life.event(event), event.what)
            {
                if content == Content::Data {
                    found.data_reads += 1;
                    found.small_data_reads += u64::from(u64::from(nr_sectors) <= PAGE_SECTORS);
                    found.data_bytes += u64::from(nr_sectors) * SECTOR_BYTES;
                } else {
                    found.metadata_reads += 1;
                }
            }
        }
        found
    }

    /// Percent of the reads of data that are of a page at most; nothing if there were none.
    pub fn small_pct(&self) -> Option<f64> {
        (self.data_reads > 0).then(|| 100.0 * self.small_data_reads as f64 / self.data_reads as f64)
    }

    /// Percent of the time without a request at the device.
    pub fn idle_pct(&self) -> Option<f64> {
        let idle = self.elapsed_ns.saturating_sub(self.busy_ns);
        (self.elapsed_ns > 0).then(|| 100.0 * idle as f64 / self.elapsed_ns as f64)
    }

    /// Mean size of the reads of data, KiB.
    pub fn mean_kib(&self) -> Option<f64> {
        (self.data_reads > 0).then(|| self.data_bytes as f64 / 1024.0 / self.data_reads as f64)
    }
}

//! From bios to requests: the sizes of those issued, against what the plug makes of the bios.
//!
//! ```text
//! a bio                cut where the request would be larger than the device takes; whether pages are neighbours in
//!                      memory is in no event, so a bio of more pages than a request may have pieces can end earlier,
//!                      but not before as many pages as pieces: where it did comes from the trace
//! the plug             holds requests of a task until what it submits in one go is over (`blk_finish_plug`)
//! a bio right after    joins the last request of the plug, if the two are not too much for one (`blk_attempt_plug_
//! or before it         merge`); where pieces of memory decide, the trace repeats it
//! ```
//! Nothing else unites requests without an elevator. With one, those of different tasks are united, so requests are not
//! compared there ([`super::Device::max_segments`]); nor where a file's bios become other bios below, on volumes.
//!
//! Several CPUs issue at once, so requests are compared as a multiset of places and sizes, not in their order.
//!
//! Memory of a program need not begin with a page, so a bio of a read past the page cache may have one piece more than
//! pages.
//!
//! Source: Linux 6.18, block/blk-merge.c, `bio_split_rw`, `blk_attempt_plug_merge`, `ll_back_merge_fn`.

use std::collections::BTreeMap;

use iowhy_stack::units::PAGE_BYTES;

use super::Count;
use iowhy_trace::recorded::{Recorded, What};

const SECTOR_BYTES: u64 = 512;

/// A part of the disk: first sector, bytes.
type Extent = (u64, u64);

/// A task's submissions that are not yet closed.
#[derive(Debug, Default)]
struct Task {
    /// Parts of the latest bio, if they have not become requests yet.
    parts: Vec<Extent>,
    /// The request at the end of its plug.
    last: Option<Extent>,
    /// Its reads go past the page cache.
    is_direct: bool,
    /// Where requests began that were issued for it since its call began.
    issued: Vec<u64>,
}

/// How many requests there are, by the kernel or by the model, whichever are more, and how many of them match.
pub(super) fn compare(recorded: &Recorded) -> Count {
    let mut issued: BTreeMap<Extent, i64> = BTreeMap::new();
    let mut nr_issued = 0;
    for line in &recorded.lines {
        if let What::Issue { sector, bytes } = line.what {
            *issued.entry((sector, u64::from(bytes))).or_default() += 1;
            nr_issued += 1;
        }
    }
    if nr_issued == 0 || recorded.max_segments == 0 {
        return Count::default();
    }
    let mut model = Model { recorded, issued: &issued, made: Vec::new() };
    let mut tasks: BTreeMap<u32, Task> = BTreeMap::new();
    for (at, line) in recorded.lines.iter().enumerate() {
        let task = tasks.entry(line.task).or_default();
        match line.what {
            What::Bio { sector, bytes } => {
                model.settle(task);
                task.parts.push((sector, u64::from(bytes)));
            }
            What::Split { rest, .. } => model.split(task, rest),
            // In whose time a request is issued says nothing.
            What::Issue { sector, .. } => task.issued.push(sector),
            What::End { result: ..0 } => model.fail(task),
            what => {
                model.close(task);
                task.issued.clear();
                task.is_direct = matches!(what, What::Read { .. }) && !recorded.looks_up(at, recorded.end_of_call(at));
            }
        }
    }
    tasks.values_mut().for_each(|task| model.close(task));
    let made = model.made;
    let nr_made = made.len() as u64;
    let mut left = issued;
    let (matched, strange): (Vec<Extent>, Vec<Extent>) = made.into_iter().partition(|extent| take(&mut left, extent));
    left.retain(|_, n| *n > 0);
    Count { of: nr_made.max(nr_issued), matched: matched.len() as u64, mismatches: named(&strange, left) }
}

/// Requests of the model that were not issued, each with those that were in their place; then unexpected ones.
fn named(strange: &[Extent], mut left: BTreeMap<Extent, i64>) -> Vec<String> {
    let end = |extent: &Extent| extent.0 + extent.1 / SECTOR_BYTES;
    let mut mismatches = Vec::new();
    for extent in strange {
        let meets = |other: &Extent| other.0 < end(extent) && extent.0 < end(other);
        let instead: Vec<Extent> = left.keys().copied().filter(meets).collect();
        left.retain(|other, _| !meets(other));
        let (sector, bytes) = extent;
        mismatches.push(format!("request of {bytes} bytes at sector {sector}: kernel {instead:?} there"));
    }
    let unknown = left.keys().map(|(sector, bytes)| format!("request of {bytes} bytes at sector {sector}: model none"));
    mismatches.extend(unknown);
    mismatches
}

/// Takes one of these out.
fn take(left: &mut BTreeMap<Extent, i64>, extent: &Extent) -> bool {
    match left.get_mut(extent) {
        Some(n) if *n > 0 => {
            *n -= 1;
            true
        }
        _ => false,
    }
}

/// The requests as the model has them.
struct Model<'a> {
    recorded: &'a Recorded,
    issued: &'a BTreeMap<Extent, i64>,
    made: Vec<Extent>,
}

impl Model<'_> {
    fn most_bytes(&self) -> u64 {
        self.recorded.io_pages * PAGE_BYTES
    }

    /// Whether the pages of this number of bytes may be more pieces of memory than a request has.
    fn may_be_too_many(&self, task: &Task, bytes: u64) -> bool {
        bytes.div_ceil(PAGE_BYTES) + u64::from(task.is_direct) > self.recorded.max_segments
    }

    /// The latest bio was cut: at the largest request, or after as many pages as pieces at least.
    fn split(&self, task: &mut Task, rest: u64) {
        let Some(&(sector, bytes)) = task.parts.last() else { return };
        let Some(before) = rest.checked_sub(sector).map(|sectors| sectors * SECTOR_BYTES) else { return };
        let is_due = bytes > self.most_bytes() || self.may_be_too_many(task, bytes);
        let by_size = before == self.most_bytes();
        let pieces = before.div_ceil(PAGE_BYTES) + u64::from(task.is_direct);
        let by_memory = before < self.most_bytes() && pieces >= self.recorded.max_segments;
        if before > 0 && before < bytes && is_due && (by_size || by_memory) {
            task.parts.pop();
            task.parts.extend([(sector, before), (rest, bytes - before)]);
        }
    }

    /// The latest bio becomes requests, or joins the last one.
    fn settle(&mut self, task: &mut Task) {
        for extent in std::mem::take(&mut task.parts) {
            let joined = task.last.and_then(|last| self.joined(task, last, extent));
            if joined.is_none()
                && let Some(last) = task.last
            {
                self.made.push(last);
            }
            task.last = Some(joined.unwrap_or(extent));
        }
    }

    /// Both as one request, if they can be.
    fn joined(&self, task: &Task, last: Extent, next: Extent) -> Option<Extent> {
        let end = |extent: Extent| extent.0 + extent.1 / SECTOR_BYTES;
        let bytes = last.1 + next.1;
        let first = match (end(last) == next.0, end(next) == last.0) {
            (true, _) => last.0,
            (_, true) => next.0,
            _ => return None,
        };
        let is_apart = || self.issued.keys().any(|(sector, _)| *sector == last.0.max(next.0));
        let fits = bytes <= self.most_bytes() && !(self.may_be_too_many(task, bytes) && is_apart());
        fits.then_some((first, bytes))
    }

    /// The call failed: bios of memory that is not where the device wants it, which no event shows, are not sent on.
    fn fail(&mut self, task: &mut Task) {
        let issued = std::mem::take(&mut task.issued);
        let is_issued = |(sector, _): &Extent| issued.contains(sector);
        task.parts.retain(is_issued);
        task.last = task.last.filter(is_issued);
        self.close(task);
    }

    /// The task's batch of submissions is over.
    fn close(&mut self, task: &mut Task) {
        self.settle(task);
        if let Some(last) = task.last.take() {
            self.made.push(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iowhy_trace::recorded::Line;

    const KIB: u64 = 1024;

    /// Requests of at most 64 KiB and 8 pieces, from lines of one task.
    fn compared(lines: &[What]) -> (u64, u64) {
        let lines = lines.iter().map(|what| Line { task: 0, what: *what }).collect();
        let count = compare(&Recorded { io_pages: 16, max_segments: 8, lines, ..Recorded::default() });
        assert_eq!(count.mismatches.is_empty(), count.of == count.matched, "{count:?}");
        (count.of, count.matched)
    }

    fn bio(sector: u64, kib: u64) -> What {
        What::Bio { sector, bytes: (kib * KIB) as u32 }
    }

    fn issue(sector: u64, kib: u64) -> What {
        What::Issue { sector, bytes: (kib * KIB) as u32 }
    }

    #[test]
    fn bios_become_the_requests_that_the_plug_makes() {
        let over = What::Get { index: 0, last: 0 };
        let split = |sector, rest| What::Split { sector, rest };
        let rows: &[(&str, &[What], (u64, u64))] = &[
            ("one for one", &[bio(0, 16), issue(0, 16)], (1, 1)),
            ("another size", &[bio(0, 16), issue(0, 12)], (1, 0)),
            ("neighbours join", &[bio(0, 8), bio(16, 8), over, issue(0, 16)], (1, 1)),
            ("and must", &[bio(0, 8), bio(16, 8), over, issue(0, 8), issue(16, 8)], (2, 0)),
            ("in front, too", &[bio(16, 8), bio(0, 8), over, issue(0, 16)], (1, 1)),
            ("not those of the next submission", &[bio(0, 8), over, bio(16, 8), issue(0, 8), issue(16, 8)], (2, 2)),
            ("nor strangers", &[bio(0, 8), bio(64, 8), issue(0, 8), issue(64, 8)], (2, 2)),
            ("nor too much", &[bio(0, 64), bio(128, 4), issue(0, 64), issue(128, 4)], (2, 2)),
            ("memory may keep apart", &[bio(0, 32), bio(64, 4), issue(0, 32), issue(64, 4)], (2, 2)),
            ("or not", &[bio(0, 32), bio(64, 4), issue(0, 36)], (1, 1)),
            ("cut at the largest", &[bio(0, 80), split(0, 128), issue(0, 64), issue(128, 16)], (2, 2)),
            ("cut for pieces", &[bio(0, 48), split(0, 64), issue(0, 32), issue(64, 16)], (2, 2)),
            ("not too early", &[bio(0, 48), split(0, 32), issue(0, 16), issue(32, 32)], (2, 0)),
            ("nor without need", &[bio(0, 32), split(0, 32), issue(0, 16), issue(32, 16)], (2, 0)),
            ("one that was not issued", &[bio(0, 8), over, bio(64, 8), issue(0, 8)], (2, 1)),
            ("one that nobody asked for", &[bio(0, 8), issue(0, 8), issue(64, 8)], (2, 1)),
            ("refused for its memory", &[bio(0, 8), issue(0, 8), over, bio(0, 8), What::End { result: -22 }], (1, 1)),
            ("failed on the disk", &[bio(0, 8), issue(0, 8), What::End { result: -5 }], (1, 1)),
            ("nothing known of requests", &[bio(0, 8)], (0, 0)),
        ];
        for (name, lines, expected) in rows {
            assert_eq!(compared(lines), *expected, "{name}");
        }
    }
}

//! Times at the device from a stored trace, reading only the columns that are needed.
//!
//! A D begins, the next C of the same device and sector ends: requests are paired in the order of the records, so
//! sectors may be used any number of times, which a join of tables cannot tell apart. A D again (after a requeue)
//! replaces the first.
//!
//! ```text
//! file          one group of rows (131,072 records) after the other; its hash is checked, then it is decoded
//! kind          dictionary codes become classes (D, C, anything else); no text is made
//! t_ns, ..      dense numbers; the places of D and C are gathered without a branch for each record
//! in flight     a table with open addressing, linear steps and no tombstones (Knuth, volume 3, section 6.4,
//!               algorithm R), whose memory is that of the requests in flight
//! ```
//! A table that another program has written anew has no hashes: it is read as whole columns, which takes several
//! times as long and gives the same times.
//!
//! Known limit: a request that is completed in parts counts its first part only; the phases of whole bios are in
//! [`phases`](super::phases).

use crate::format::trace_parquet::{self, Rows, Values};
use std::path::Path;

/// Classes of records.
const OTHER: u8 = 0;
const ISSUE: u8 = 1;
const COMPLETE: u8 = 2;

/// Slots at first: 32 KiB, which the first cache holds.
const FEWEST: usize = 1 << 10;

/// A request in flight.
#[derive(Copy, Clone, Debug, Default)]
struct Request {
    dev: i64,
    sector: i64,
    issued: i64,
    here: bool,
}

/// Requests in flight by device and sector.
#[derive(Clone, Debug)]
struct InFlight {
    /// A power of two, at most a quarter of them used: a request is then nearly always at its home, and the processor
    /// guesses every branch of the search.
    slots: Vec<Request>,
    used: usize,
}

impl InFlight {
    fn new() -> InFlight {
        InFlight { slots: vec![Request::default(); FEWEST], used: 0 }
    }

    /// Where a request is looked for first. Keys come from a kernel's trace, and a trace that was made to collide is
    /// slow, not wrong.
    #[inline]
    fn home(&self, dev: i64, sector: i64) -> usize {
        let word = ((dev as u64).rotate_left(44) ^ sector as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (word >> 32) as usize & (self.slots.len() - 1)
    }

    /// The slot of a request, or the free one where it belongs.
    #[inline]
    fn find(&self, dev: i64, sector: i64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = self.home(dev, sector);
        while self.slots[at].here && (self.slots[at].sector != sector || self.slots[at].dev != dev) {
            at = (at + 1) & mask;
        }
        at
    }

    #[inline]
    fn issue(&mut self, dev: i64, sector: i64, issued: i64) {
        let at = self.find(dev, sector);
        let is_new = !self.slots[at].here;
        self.slots[at] = Request { dev, sector, issued, here: true };
        self.used += usize::from(is_new);
        if self.used * 4 > self.slots.len() {
            let twice = vec![Request::default(); self.slots.len() * 2];
            for request in std::mem::replace(&mut self.slots, twice).into_iter().filter(|request| request.here) {
                let at = self.find(request.dev, request.sector);
                self.slots[at] = request;
            }
        }
    }

    /// Takes a request out; when it was issued.
    #[inline]
    fn complete(&mut self, dev: i64, sector: i64) -> Option<i64> {
        let mut free = self.find(dev, sector);
        if !self.slots[free].here {
            return None;
        }
        let issued = self.slots[free].issued;
        let mask = self.slots.len() - 1;
        let mut at = free;
        loop {
            at = (at + 1) & mask;
            let next = self.slots[at];
            if !next.here {
                break;
            }
            // A request may move to the free slot unless that is before its home.
            let home = self.home(next.dev, next.sector);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(free) & mask) {
                self.slots[free] = next;
                free = at;
            }
        }
        self.slots[free].here = false;
        self.used -= 1;
        Some(issued)
    }
}

/// Pairs D with C.
struct Pairs {
    in_flight: InFlight,
    found: Vec<u64>,
}

impl Pairs {
    fn new() -> Pairs {
        Pairs { in_flight: InFlight::new(), found: Vec::new() }
    }

    #[inline]
    fn add(&mut self, class: u8, at: i64, dev: i64, sector: i64) {
        if class == ISSUE {
            self.in_flight.issue(dev, sector, at);
        } else if let Some(from) = self.in_flight.complete(dev, sector) {
            self.found.push(u64::try_from(at.saturating_sub(from)).unwrap_or(0));
        }
    }
}

fn class_of(word: &[u8]) -> u8 {
    match word {
        b"issue" => ISSUE,
        b"complete" => COMPLETE,
        _ => OTHER,
    }
}

/// Times from issue to completion in a trace stored as Parquet, ns, in the order of the completions. The hash of
/// whatever is read is checked.
///
/// # Errors
/// If the file cannot be read or is damaged, as a sentence.
pub fn d2c(path: &Path) -> Result<Vec<u64>, String> {
    match d2c_of_groups(path)? {
        Some(found) => Ok(found),
        None => d2c_of_columns(path),
    }
}

/// From a file as this project writes it; nothing if it is another.
fn d2c_of_groups(path: &Path) -> Result<Option<Vec<u64>>, String> {
    let mut pairs = Pairs::new();
    let mut wanted: Vec<u32> = Vec::new();
    let is_ours = trace_parquet::scan(path, &class_of, &["t_ns", "dev", "sector"], &mut |rows| {
        let Rows { classes, numbers } = rows;
        let [times, devices, sectors] = numbers.as_slice() else { return };
        // The place is always written, and kept if the next one goes behind it.
        wanted.resize(classes.len() + 1, 0);
        let mut nr = 0;
        for (row, class) in classes.iter().enumerate() {
            wanted[nr] = row as u32;
            nr += usize::from(*class != OTHER);
        }
        // At most one of two is a C that has a D.
        pairs.found.reserve(nr / 2 + 1);
        for row in wanted[..nr].iter().map(|row| *row as usize) {
            if let (Some(at), Some(dev), Some(sector)) = (times.at(row), devices.at(row), sectors.at(row)) {
                pairs.add(classes[row], at, dev, sector);
            }
        }
    })?;
    Ok(is_ours.then_some(pairs.found))
}

/// The same from whole columns, as any program may have written them.
fn d2c_of_columns(path: &Path) -> Result<Vec<u64>, String> {
    let columns = trace_parquet::columns(path, &["kind", "t_ns", "dev", "sector"])?;
    let [Values::Words { codes, words }, times, devices, sectors] = columns.as_slice() else {
        return Err(format!("`{}` has other columns than a trace", path.display()));
    };
    let classes: Vec<u8> = words.iter().map(|word| class_of(word.as_bytes())).collect();
    let value = |values: &Values, row: usize| match values {
        Values::Full(values) => values.get(row).copied(),
        Values::Numbers(values) => values.get(row).copied().flatten(),
        Values::Words { .. } => None,
    };
    let mut pairs = Pairs::new();
    for (row, code) in codes.iter().enumerate() {
        let class = classes.get(*code as usize).copied().unwrap_or(OTHER);
        if class != OTHER
            && let (Some(at), Some(dev), Some(sector)) = (value(times, row), value(devices, row), value(sectors, row))
        {
            pairs.add(class, at, dev, sector);
        }
    }
    Ok(pairs.found)
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
mod tests;

//! Recorded evictions in a small control group (`<kernel>-reclaim.json`) replayed through the reclaim models.
//!
//! Compared is the exact order in which pages left the cache. Other charges to the group are not recorded, so the
//! cached pages at its first reclaim are taken from the record; every later reclaim is the model's own.

use std::path::Path;

use iowhy_stack::fault::{FAULTS, MapAdvice, Protection};
use iowhy_stack::origin;
use iowhy_stack::readahead::{Limits, READAHEADS};
use iowhy_stack::reclaim::two_list::TWO_LISTS;
use iowhy_stack::replay_reclaim::{Case, MemoryAdvice, Models, Op, replay};
use iowhy_stack::units::PAGE_BYTES;
use serde::Deserialize;
use serde_json::Value;

use super::{FileReport, GoldenError};

/// Suffix of these files' names, after the kernel's.
pub(super) const SUFFIX: &str = "-reclaim";

/// The recorded device: its read-ahead limit and largest request in pages, and the file system's largest folio.
const LIMITS: Limits = Limits { ra_pages: 32, io_pages: 256, max_folio_order: 9, max_sane: u64::MAX };

/// Compares the text of a file with the models of `kernel`.
pub(super) fn check(path: &Path, kernel: &str, text: &str) -> Result<FileReport, GoldenError> {
    let malformed = |message: String| GoldenError::Format { path: path.to_owned(), message };
    let models = (origin::find(TWO_LISTS, kernel), origin::find(FAULTS, kernel), origin::find(READAHEADS, kernel));
    let (Some(two_list), Some(fault), Some(readahead)) = models else {
        let known: Vec<String> = TWO_LISTS.iter().map(|entry| format!("{}{SUFFIX}", entry.name)).collect();
        let (name, known) = (format!("{kernel}{SUFFIX}"), known.join(", "));
        return Err(GoldenError::UnknownModel { path: path.to_owned(), name, known });
    };
    let vectors: Vectors = serde_json::from_str(text).map_err(|error| malformed(error.to_string()))?;
    if vectors.page_size != PAGE_BYTES {
        return Err(malformed(format!("pages of {} bytes are not modelled", vectors.page_size)));
    }
    let fault = (fault.build)(&fault.defaults());
    let mut report = FileReport::new(format!("{kernel}{SUFFIX}"), vectors.cases.len());
    for vector in &vectors.cases {
        let case = vector.case().map_err(|message| malformed(format!("case `{}`: {message}", vector.name)))?;
        let replayed = replay(&Models { two_list, fault: &fault, readahead }, &case);
        let recorded: Vec<u64> = vector.evicted.iter().flat_map(|&(first, nr)| first..first + nr).collect();
        let difference = difference(&recorded, &replayed.evicted);
        report.count(&vector.name, difference.map(|difference| difference + &vector.repeat.caveat()));
    }
    Ok(report)
}

/// Where two orders of eviction part.
fn difference(recorded: &[u64], ours: &[u64]) -> Option<String> {
    let at = (0..recorded.len().max(ours.len())).find(|&index| recorded.get(index) != ours.get(index))?;
    let show = |page: Option<&u64>| page.map_or("nothing".to_owned(), |page| format!("page {page}"));
    Some(format!(
        "eviction {at}: recorded {}, modelled {} ({} and {} evictions in all)",
        show(recorded.get(at)),
        show(ours.get(at)),
        recorded.len(),
        ours.len()
    ))
}

#[derive(Deserialize)]
struct Vectors {
    page_size: u64,
    cases: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    file_pages: u64,
    limit_bytes: u64,
    ops: Vec<GoldenOp>,
    evicted: Vec<(u64, u64)>,
    events: Vec<Vec<Value>>,
    #[serde(default)]
    repeat: Repeat,
}

/// How well the recording repeats itself.
#[derive(Default, Deserialize)]
struct Repeat {
    runs: u64,
    identical_eviction_order: u64,
    common_prefix: u64,
}

impl Repeat {
    /// The addition to a difference, if the kernel did not always do the same.
    fn caveat(&self) -> String {
        let Repeat { runs, identical_eviction_order: same, common_prefix } = self;
        if same >= runs {
            return String::new();
        }
        format!(
            "; only {same} of {runs} recordings agree on the order, all of them on the first {common_prefix} \
             evictions: the rest depends on when reclaim is called and statistics are folded"
        )
    }
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum GoldenOp {
    Open {
        fd: u64,
        advice: Vec<GoldenAdvice>,
    },
    Phase {},
    Read {
        fd: u64,
        offset: u64,
        len: u64,
        chunk: Option<u64>,
        #[serde(default)]
        dontcache: bool,
    },
    ReadRandom {
        fd: u64,
        seed: u64,
        pages: u64,
        count: u64,
    },
    Mmap {
        mapping: u64,
        fd: u64,
        prot: GoldenProtection,
    },
    Munmap {
        mapping: u64,
    },
    Touch {
        mapping: u64,
        offset: u64,
        len: u64,
        step: Option<u64>,
    },
    Touchlist {
        mapping: u64,
        pages: Vec<u64>,
    },
    Madvise {
        mapping: u64,
        offset: u64,
        len: u64,
        advice: GoldenMadvise,
    },
    ReadMemoryStat {},
    SleepMs {
        ms: u64,
    },
}

#[derive(Copy, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum GoldenAdvice {
    Normal,
    Random,
    Noreuse,
}

#[derive(Copy, Clone, Deserialize)]
#[serde(rename_all = "lowercase")]
enum GoldenProtection {
    R,
    Rx,
    Rw,
}

#[derive(Copy, Clone, Deserialize)]
#[serde(rename_all = "lowercase")]
enum GoldenMadvise {
    Normal,
    Random,
    Sequential,
    Dontneed,
    Cold,
    Pageout,
}

/// More accesses than this in one operation are a mistake.
const MOST_ACCESSES: u64 = 1 << 24;

impl GoldenOp {
    /// The operation, if there is one.
    fn op(&self) -> Result<Option<Op>, String> {
        let bounded = |nr: u64| match nr <= MOST_ACCESSES {
            true => Ok(()),
            false => Err(format!("an operation makes {nr} accesses, which is a mistake in the record")),
        };
        Ok(Some(match *self {
            GoldenOp::Phase {} => return Ok(None),
            GoldenOp::Open { fd, ref advice } => Op::Open {
                fd,
                random: advice.contains(&GoldenAdvice::Random),
                noreuse: advice.contains(&GoldenAdvice::Noreuse),
            },
            GoldenOp::Read { fd, offset, len, chunk, dontcache } => {
                let chunk_bytes = chunk.unwrap_or(len).max(1);
                bounded(len / chunk_bytes)?;
                Op::Read { fd, offset, len_bytes: len, chunk_bytes, dontcache }
            }
            GoldenOp::ReadRandom { fd, seed, pages, count } => {
                bounded(count)?;
                if pages == 0 {
                    return Err("`read_random` reads from no pages".to_owned());
                }
                let mut state = seed;
                let next = || {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 33) % pages
                };
                Op::ReadPages { fd, pages: std::iter::repeat_with(next).take(count as usize).collect() }
            }
            GoldenOp::Mmap { mapping, fd, prot } => Op::Mmap {
                mapping,
                fd,
                protection: Protection { exec: matches!(prot, GoldenProtection::Rx), shared: false },
            },
            GoldenOp::Munmap { mapping } => Op::Munmap { mapping },
            GoldenOp::Touch { mapping, offset, len, step } => {
                let step = step.unwrap_or(PAGE_BYTES).max(1);
                bounded(len / step)?;
                let pages = (0..len).step_by(step as usize).map(|ahead| (offset + ahead) / PAGE_BYTES).collect();
                Op::Touch { mapping, pages }
            }
            GoldenOp::Touchlist { mapping, ref pages } => Op::Touch { mapping, pages: pages.clone() },
            GoldenOp::Madvise { mapping, offset, len, advice } => {
                let advice = match advice {
                    GoldenMadvise::Normal => MemoryAdvice::Expect(MapAdvice::Normal),
                    GoldenMadvise::Random => MemoryAdvice::Expect(MapAdvice::Random),
                    GoldenMadvise::Sequential => MemoryAdvice::Expect(MapAdvice::Sequential),
                    GoldenMadvise::Dontneed => MemoryAdvice::DontNeed,
                    GoldenMadvise::Cold => MemoryAdvice::Cold,
                    GoldenMadvise::Pageout => MemoryAdvice::PageOut,
                };
                Op::Madvise { mapping, offset, len_bytes: len, advice }
            }
            GoldenOp::ReadMemoryStat {} => Op::ReadStatistics,
            GoldenOp::SleepMs { ms } => Op::Sleep { ms },
        }))
    }
}

impl Vector {
    /// The inputs, checked as far as the replayer relies on them.
    fn case(&self) -> Result<Case, String> {
        let (mut fds, mut maps): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
        for (number, op) in self.ops.iter().enumerate() {
            let (fd, map) = match op {
                GoldenOp::Read { fd, .. } | GoldenOp::ReadRandom { fd, .. } | GoldenOp::Mmap { fd, .. } => {
                    (Some(fd), None)
                }
                GoldenOp::Touch { mapping, .. } | GoldenOp::Touchlist { mapping, .. } => (None, Some(mapping)),
                GoldenOp::Madvise { mapping, .. } | GoldenOp::Munmap { mapping } => (None, Some(mapping)),
                _ => (None, None),
            };
            if let Some(fd) = fd.filter(|fd| !fds.contains(fd)) {
                return Err(format!("operation {number} is on fd {fd}, which is not open"));
            }
            if let Some(map) = map.filter(|map| !maps.contains(map)) {
                return Err(format!("operation {number} is on mapping {map}, which is not mapped"));
            }
            match op {
                GoldenOp::Open { fd, .. } => fds.push(*fd),
                GoldenOp::Mmap { mapping, .. } => maps.push(*mapping),
                GoldenOp::Munmap { mapping } => maps.retain(|map| map != mapping),
                _ => {}
            }
        }
        let ops = self.ops.iter().map(GoldenOp::op).collect::<Result<Vec<_>, _>>()?;
        Ok(Case {
            nr_file_pages: self.file_pages,
            nr_pages_at_limit: self.nr_pages_at_limit().unwrap_or(self.limit_bytes / PAGE_BYTES),
            limits: LIMITS,
            ops: ops.into_iter().flatten().collect(),
        })
    }

    /// Pages that were cached when the first list was scanned. Removals of a scan are recorded just before it.
    fn nr_pages_at_limit(&self) -> Option<u64> {
        let mut nr_cached = 0;
        for event in &self.events {
            let number = |field: usize| event.get(field).and_then(Value::as_u64).unwrap_or(0);
            match event.first().and_then(Value::as_str) {
                Some("add") => nr_cached += number(2),
                Some("del") => nr_cached -= number(2).min(nr_cached),
                Some("scan_inactive") => return Some(nr_cached + number(2)),
                Some("scan_active") => return Some(nr_cached),
                _ => {}
            }
        }
        None
    }
}

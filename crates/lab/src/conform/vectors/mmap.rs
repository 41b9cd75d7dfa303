//! Recorded accesses through mappings (`<kernel>-mmap.json`) replayed through the fault, advice and read-ahead models.
//!
//! Compared are all submissions, every field of every trace event, the calls' return values, the states of the open
//! files in the end, and the runs of cached and of mapped pages.

use std::collections::BTreeMap;
use std::path::Path;

use iowhy_stack::advice::FileAdvice;
use iowhy_stack::event::RaKind;
use iowhy_stack::fault::{FAULTS, MapAdvice, Protection};
use iowhy_stack::origin;
use iowhy_stack::readahead::READAHEADS;
use iowhy_stack::replay_mmap::{
    Case, FinalState, Map, MemoryAdvice, Op, Place, Replayed, Submission, TraceRow, replay,
};
use iowhy_stack::units::PAGE_BYTES;
use serde::Deserialize;
use serde_json::Value;

use super::{FileReport, GoldenError, first_difference};

/// Suffix of these files' names, after the kernel's.
pub(super) const SUFFIX: &str = "-mmap";

/// Compares the text of a file with the models of `kernel`.
pub(super) fn check(path: &Path, kernel: &str, text: &str) -> Result<FileReport, GoldenError> {
    let malformed = |message: String| GoldenError::Format { path: path.to_owned(), message };
    let models = super::kernel(kernel)
        .map(|known| (origin::find(FAULTS, known.fault), origin::find(READAHEADS, known.readahead)));
    let Some((Some(fault), Some(readahead))) = models else {
        let known: Vec<String> = FAULTS.iter().map(|entry| format!("{}{SUFFIX}", entry.name)).collect();
        let (name, known) = (format!("{kernel}{SUFFIX}"), known.join(", "));
        return Err(GoldenError::UnknownModel { path: path.to_owned(), name, known });
    };
    let vectors: Vectors = serde_json::from_str(text).map_err(|error| malformed(error.to_string()))?;
    if vectors.page_size != PAGE_BYTES {
        return Err(malformed(format!("pages of {} bytes are not modelled", vectors.page_size)));
    }
    let rules = (fault.build)(&fault.defaults());
    let advice_rules = rules.advice;
    let options = readahead.defaults();
    let mut report = FileReport::new(format!("{kernel}{SUFFIX}"), vectors.cases.len());
    for vector in &vectors.cases {
        let case = vector.case().map_err(|message| malformed(format!("case `{}`: {message}", vector.name)))?;
        let replayed = replay(&rules, &advice_rules, (readahead, &options), &case);
        let expected: Vec<Submission> = vector.submissions.iter().map(GoldenSubmission::submission).collect();
        report.submissions += expected.len();
        report.submissions_matched += expected.iter().zip(&replayed.submissions).filter(|(a, b)| a == b).count();
        report.count(&vector.name, vector.difference(&expected, &replayed));
    }
    Ok(report)
}

#[derive(Deserialize)]
struct Vectors {
    page_size: u64,
    cases: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    file_bytes: u64,
    ra_pages: u64,
    io_pages: u64,
    max_folio_order: u8,
    fault_around_pages: u64,
    #[serde(default)]
    cached_initially: Vec<(u64, u64)>,
    fds: Vec<u64>,
    mappings: Vec<GoldenMap>,
    ops: Vec<GoldenOp>,
    ret: Vec<i64>,
    submissions: Vec<GoldenSubmission>,
    trace: Vec<Vec<Value>>,
    final_ra: BTreeMap<u64, GoldenState>,
    final_cached_runs: Vec<(u64, u64)>,
    final_mapped_runs: BTreeMap<u64, Vec<(u64, u64)>>,
}

#[derive(Deserialize)]
struct GoldenMap {
    id: u64,
    fd: u64,
    file_page: u64,
    pages: u64,
    prot: GoldenProtection,
    vaddr_pages_mod_512: u64,
}

#[derive(Copy, Clone, Deserialize)]
#[serde(rename_all = "lowercase")]
enum GoldenProtection {
    R,
    Rx,
    Rw,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum GoldenOp {
    Touch {
        mapping: u64,
        offset: u64,
        len: u64,
        step: Option<u64>,
        #[serde(default)]
        write: u8,
    },
    Touchlist {
        mapping: u64,
        pages: Vec<u64>,
        #[serde(default)]
        write: u8,
    },
    Madvise {
        mapping: u64,
        offset: u64,
        len: u64,
        advice: GoldenMadvise,
    },
    Read {
        fd: u64,
        offset: u64,
        len: u64,
    },
    Fadvise {
        fd: u64,
        offset: u64,
        len: u64,
        advice: GoldenAdvice,
    },
    Readahead {
        fd: u64,
        offset: u64,
        len: u64,
    },
    Evict {
        offset: u64,
        len: u64,
    },
    Munmap {
        mapping: u64,
    },
    SetRa {
        ra_pages: u64,
    },
}

#[derive(Copy, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
enum GoldenMadvise {
    Normal,
    Random,
    Sequential,
    Hugepage,
    Nohugepage,
    Willneed,
    Dontneed,
    PopulateRead,
}

#[derive(Copy, Clone, Deserialize)]
#[serde(rename_all = "lowercase")]
enum GoldenAdvice {
    Normal,
    Random,
    Sequential,
    Willneed,
    Dontneed,
    Noreuse,
}

#[derive(Copy, Clone, Deserialize)]
#[serde(rename_all = "lowercase")]
enum GoldenKind {
    Sync,
    Async,
    Force,
    Single,
    Around,
    Exec,
    Huge,
}

#[derive(Deserialize)]
struct GoldenSubmission {
    op: usize,
    page: i64,
    call: u64,
    start: u64,
    nr: u64,
    kind: GoldenKind,
    async_size: Option<u64>,
    order: u8,
    #[serde(default)]
    folios: Vec<(u64, u8)>,
}

#[derive(Deserialize)]
struct GoldenState {
    order: i64,
    size: i64,
    #[serde(rename = "async")]
    async_size: i64,
    ra_pages: i64,
    mmap_miss: i64,
    prev_pos: i64,
}

/// More touches than this in one case are a mistake.
const MOST_TOUCHES: u64 = 1 << 24;

impl GoldenOp {
    fn op(&self) -> Result<Op, String> {
        Ok(match *self {
            GoldenOp::Touch { mapping, offset, len, step, write } => {
                let step = step.unwrap_or(PAGE_BYTES);
                if step == 0 || len / step > MOST_TOUCHES {
                    return Err(format!("a touch of {len} bytes in steps of {step} does not end"));
                }
                let pages = (0..len).step_by(step as usize).map(|ahead| (offset + ahead) / PAGE_BYTES).collect();
                Op::Touch { mapping, pages, write: write != 0 }
            }
            GoldenOp::Touchlist { mapping, ref pages, write } => {
                Op::Touch { mapping, pages: pages.clone(), write: write != 0 }
            }
            GoldenOp::Madvise { mapping, offset, len, advice } => {
                let advice = match advice {
                    GoldenMadvise::Normal => MemoryAdvice::Expect(MapAdvice::Normal),
                    GoldenMadvise::Random => MemoryAdvice::Expect(MapAdvice::Random),
                    GoldenMadvise::Sequential => MemoryAdvice::Expect(MapAdvice::Sequential),
                    GoldenMadvise::Hugepage => MemoryAdvice::Huge(true),
                    GoldenMadvise::Nohugepage => MemoryAdvice::Huge(false),
                    GoldenMadvise::Willneed => MemoryAdvice::WillNeed,
                    GoldenMadvise::Dontneed => MemoryAdvice::DontNeed,
                    GoldenMadvise::PopulateRead => MemoryAdvice::PopulateRead,
                };
                Op::Madvise { mapping, offset, len_bytes: len, advice }
            }
            GoldenOp::Read { fd, offset, len } => Op::Read { fd, offset, len_bytes: len },
            GoldenOp::Fadvise { fd, offset, len, advice } => {
                let advice = match advice {
                    GoldenAdvice::Normal => FileAdvice::Normal,
                    GoldenAdvice::Random => FileAdvice::Random,
                    GoldenAdvice::Sequential => FileAdvice::Sequential,
                    GoldenAdvice::Willneed => FileAdvice::WillNeed,
                    GoldenAdvice::Dontneed => FileAdvice::DontNeed,
                    GoldenAdvice::Noreuse => FileAdvice::NoReuse,
                };
                Op::Fadvise { fd, offset, len_bytes: len, advice }
            }
            GoldenOp::Readahead { fd, offset, len } => Op::Readahead { fd, offset, len_bytes: len },
            GoldenOp::Evict { offset, len } => Op::Evict { offset, len_bytes: len },
            GoldenOp::Munmap { mapping } => Op::Munmap { mapping },
            GoldenOp::SetRa { ra_pages } => Op::SetRa { ra_pages },
        })
    }
}

impl GoldenSubmission {
    fn submission(&self) -> Submission {
        Submission {
            place: Place { op: self.op, touch: usize::try_from(self.page).ok() },
            call: self.call,
            start: self.start,
            nr_pages: self.nr,
            kind: match self.kind {
                GoldenKind::Sync => RaKind::Sync,
                GoldenKind::Async => RaKind::Async,
                GoldenKind::Force => RaKind::Force,
                GoldenKind::Single => RaKind::Single,
                GoldenKind::Around => RaKind::Around,
                GoldenKind::Exec => RaKind::Exec,
                GoldenKind::Huge => RaKind::Huge,
            },
            async_size: self.async_size,
            order: self.order,
            folios: self.folios.clone(),
        }
    }
}

impl GoldenState {
    fn state(&self) -> FinalState {
        FinalState {
            order: self.order,
            size: self.size,
            async_size: self.async_size,
            max: self.ra_pages,
            mmap_miss: self.mmap_miss,
            prev_pos: self.prev_pos,
        }
    }
}

impl Vector {
    /// The inputs, checked as far as the replayer relies on them.
    fn case(&self) -> Result<Case, String> {
        if self.max_folio_order > 9 {
            return Err(format!("`max_folio_order` {} is larger than any folio", self.max_folio_order));
        }
        if !self.fault_around_pages.is_power_of_two() || self.fault_around_pages > 512 {
            return Err(format!("`fault_around_pages` {} is not a power of two up to 512", self.fault_around_pages));
        }
        let mut maps: Vec<u64> = Vec::new();
        for map in &self.mappings {
            if !self.fds.contains(&map.fd) {
                return Err(format!("mapping {} is of fd {}, which is not in `fds`", map.id, map.fd));
            }
            maps.push(map.id);
        }
        for (number, op) in self.ops.iter().enumerate() {
            let (map, fd) = match op {
                GoldenOp::Touch { mapping, .. } | GoldenOp::Touchlist { mapping, .. } => (Some(mapping), None),
                GoldenOp::Madvise { mapping, .. } | GoldenOp::Munmap { mapping } => (Some(mapping), None),
                GoldenOp::Read { fd, .. } | GoldenOp::Fadvise { fd, .. } | GoldenOp::Readahead { fd, .. } => {
                    (None, Some(fd))
                }
                GoldenOp::Evict { .. } | GoldenOp::SetRa { .. } => (None, None),
            };
            if let Some(map) = map.filter(|map| !maps.contains(map)) {
                return Err(format!("operation {number} is on mapping {map}, which is not mapped"));
            }
            if let Some(fd) = fd.filter(|fd| !self.fds.contains(fd)) {
                return Err(format!("operation {number} is on fd {fd}, which is not in `fds`"));
            }
            if let GoldenOp::Munmap { mapping } = op {
                maps.retain(|map| map != mapping);
            }
        }
        let map = |map: &GoldenMap| Map {
            id: map.id,
            fd: map.fd,
            file_page: map.file_page,
            nr_pages: map.pages,
            protection: Protection { exec: matches!(map.prot, GoldenProtection::Rx), shared: false },
            slot: map.vaddr_pages_mod_512,
        };
        Ok(Case {
            file_bytes: self.file_bytes,
            ra_pages: self.ra_pages,
            io_pages: self.io_pages,
            max_folio_order: self.max_folio_order,
            fault_around_pages: self.fault_around_pages,
            cached_initially: self.cached_initially.clone(),
            fds: self.fds.clone(),
            mappings: self.mappings.iter().map(map).collect(),
            ops: self.ops.iter().map(GoldenOp::op).collect::<Result<_, _>>()?,
        })
    }

    /// The first difference between the record and the replay.
    fn difference(&self, expected: &[Submission], replayed: &Replayed) -> Option<String> {
        let submissions = || first_difference("submission", expected, &replayed.submissions);
        let trace = || {
            let ours: Vec<Vec<Value>> = replayed.trace.iter().map(row).collect();
            first_difference("trace event", &self.trace, &ours)
        };
        let returned = || first_difference("return value", &self.ret, &replayed.returned);
        let last = || {
            let recorded: Vec<(u64, FinalState)> =
                self.final_ra.iter().map(|(fd, state)| (*fd, state.state())).collect();
            let ours: Vec<(u64, FinalState)> = replayed.final_state.iter().map(|(fd, state)| (*fd, *state)).collect();
            first_difference("final_ra entry", &recorded, &ours)
        };
        let cached = || first_difference("final_cached_runs entry", &self.final_cached_runs, &replayed.cached_runs);
        let mapped = || {
            let recorded: Vec<_> = self.final_mapped_runs.iter().collect();
            let ours: Vec<_> = replayed.mapped_runs.iter().collect();
            first_difference("final_mapped_runs entry", &recorded, &ours)
        };
        submissions().or_else(trace).or_else(returned).or_else(last).or_else(cached).or_else(mapped)
    }
}

/// A trace event as the record has it.
fn row(row: &TraceRow) -> Vec<Value> {
    let touch = row.place.touch.map_or(-1, |touch| touch as i64);
    let mut values = vec![Value::from(row.place.op), Value::from(touch), Value::from(row.event)];
    values.extend(row.fields.iter().map(|field| Value::from(*field)));
    values
}

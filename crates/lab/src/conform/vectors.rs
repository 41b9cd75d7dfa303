//! Conformance: recorded vectors of real kernels replayed through the models.
//!
//! A vector file is called `<model>.json`, or after a release. It holds cases: a file, its cache, reads and events as
//! input; submissions, the read-ahead state after every read, the state and the cache at the end as output. Every case
//! is replayed through the model of that name, or of that release, and everything is compared. All must be equal.

mod mmap;
mod reclaim;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

use iowhy_stack::event::RaKind;
use iowhy_stack::kernel::release::Release;
use iowhy_stack::kernel::{Kernel, find_kernel};
use iowhy_stack::origin::{self, Entry};
use iowhy_stack::readahead::{Advice, Build, READAHEADS};
use iowhy_stack::replay::{Case, Happening, IoModel, Read, Replayed, Submission, replay};
use serde::{Deserialize, Serialize};

/// Comparisons and their results, a line for every file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GoldenReport {
    /// The files in the order of their names.
    pub kernels: Vec<FileReport>,
}

impl GoldenReport {
    /// Whether every case of every file matched (and there was one).
    pub fn all_matched(&self) -> bool {
        !self.kernels.is_empty() && self.kernels.iter().all(FileReport::all_matched)
    }
}

/// How one file of vectors went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileReport {
    /// Stem of the file: the name of a model, or a release.
    pub name: String,
    /// The model; empty if its name is the file's.
    pub model: &'static str,
    /// Cases in the file.
    pub cases: usize,
    /// Cases of which everything matched.
    pub matched: usize,
    /// Recorded submissions.
    pub submissions: usize,
    /// Those that the model made too, at the same place in the same case.
    pub submissions_matched: usize,
    /// The first difference, or why nothing was compared.
    pub first_mismatch: Option<String>,
}

impl FileReport {
    /// A report of a file of which no case has been compared yet.
    pub(crate) fn new(name: String, cases: usize) -> FileReport {
        FileReport { name, model: "", cases, matched: 0, submissions: 0, submissions_matched: 0, first_mismatch: None }
    }

    /// Counts a case that has been compared.
    pub(crate) fn count(&mut self, case: &str, difference: Option<String>) {
        match difference {
            None => self.matched += 1,
            Some(difference) if self.first_mismatch.is_none() => {
                self.first_mismatch = Some(format!("case `{case}`: {difference}"));
            }
            Some(_) => {}
        }
    }

    /// Whether every case matched.
    pub fn all_matched(&self) -> bool {
        self.cases > 0 && self.matched == self.cases && self.first_mismatch.is_none()
    }
}

/// Why vectors could not be compared.
#[derive(Debug, thiserror::Error)]
pub enum GoldenError {
    /// A file or folder could not be read.
    #[error("cannot read `{}`: {source}; pass a folder with recorded vectors (<kernel>.json)", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A folder holds no vectors.
    #[error("no *.json file in `{}`; pass a folder with recorded vectors (<kernel>.json)", path.display())]
    Empty {
        /// The folder.
        path: PathBuf,
    },
    /// A file is not what a vector file should be.
    #[error(
        "`{}` is not a file of recorded vectors: {message}; compare it with one that works, or record it again",
        path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The mistake and its place.
        message: String,
    },
    /// No model has the file's name.
    #[error("`{}`: unknown read-ahead model `{name}`; rename the file to one of {known}", path.display())]
    UnknownModel {
        /// The file.
        path: PathBuf,
        /// Its stem.
        name: String,
        /// The names that would do.
        known: String,
    },
}

/// Compares every `*.json` file of a folder.
pub fn check_folder(folder: &Path) -> Result<GoldenReport, GoldenError> {
    let unreadable = |source| GoldenError::Read { path: folder.to_owned(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        return Err(GoldenError::Empty { path: folder.to_owned() });
    }
    paths.sort();
    Ok(GoldenReport { kernels: paths.iter().map(|path| check_file(path)).collect::<Result<_, _>>()? })
}

/// Compares one file; the model is found by the file's name.
pub fn check_file(path: &Path) -> Result<FileReport, GoldenError> {
    let text = iowhy_text::input::text(path, iowhy_text::input::TEXT)
        .map_err(|source| GoldenError::Read { path: path.to_owned(), source })?;
    check_text(path, &text)
}

/// Compares the text of a file; `path` gives the model's name and appears in messages.
pub fn check_text(path: &Path, text: &str) -> Result<FileReport, GoldenError> {
    let malformed = |message: String| GoldenError::Format { path: path.to_owned(), message };
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    if let Some(kernel) = name.strip_suffix(mmap::SUFFIX) {
        return mmap::check(path, kernel, text);
    }
    if let Some(kernel) = name.strip_suffix(reclaim::SUFFIX) {
        return reclaim::check(path, kernel, text);
    }
    let Some(entry) = model(&name) else {
        let known: Vec<&str> = READAHEADS.iter().map(|entry| entry.name).collect();
        return Err(GoldenError::UnknownModel { path: path.to_owned(), name, known: known.join(", ") });
    };
    let vectors: Vectors = serde_json::from_str(text).map_err(|error| malformed(error.to_string()))?;
    if vectors.page_size != iowhy_stack::units::PAGE_BYTES {
        return Err(malformed(format!("pages of {} bytes are not modelled", vectors.page_size)));
    }
    let Some(columns) = vectors.ra_trace_columns.strip_prefix(&["read".to_owned(), "fd".to_owned()]) else {
        return Err(malformed("`ra_trace_columns` must start with `read`, `fd`".to_owned()));
    };
    let mut report = FileReport { model: entry.name, ..FileReport::new(name, vectors.cases.len()) };
    for vector in &vectors.cases {
        let case = vector.case().map_err(|message| malformed(format!("case `{}`: {message}", vector.name)))?;
        let replayed = replay(entry, &entry.defaults(), &case);
        report.submissions += vector.submissions.len();
        let expected: Vec<Submission> = vector.submissions.iter().map(GoldenSubmission::submission).collect();
        report.submissions_matched += expected.iter().zip(&replayed.submissions).filter(|(a, b)| a == b).count();
        report.count(&vector.name, vector.difference(columns, &expected, &replayed));
    }
    Ok(report)
}

/// The policy of that name, or that of the release it names.
fn model(name: &str) -> Option<&'static Entry<Build>> {
    origin::find(READAHEADS, name).or_else(|| origin::find(READAHEADS, kernel(name)?.readahead))
}

/// The kernel of that name, or of the release it names (`linux-6.1.55`): its own, or the nearest.
fn kernel(name: &str) -> Option<&'static Kernel> {
    let release = || Release::parse(name.strip_prefix("linux-")?).filter(Release::exists);
    find_kernel(name).or_else(|| Some(release()?.nearest().kernel))
}

/// A vector file.
#[derive(Deserialize)]
struct Vectors {
    page_size: u64,
    ra_trace_columns: Vec<String>,
    cases: Vec<Vector>,
}

/// One recorded case.
#[derive(Deserialize)]
struct Vector {
    name: String,
    file_bytes: u64,
    ra_pages: u64,
    #[serde(default)]
    io_pages: u64,
    #[serde(default)]
    max_folio_order: u8,
    #[serde(default)]
    io_model: GoldenIoModel,
    reads: Vec<GoldenRead>,
    #[serde(default)]
    groups: Vec<Vec<usize>>,
    #[serde(default)]
    cached_initially: Vec<(u64, u64)>,
    #[serde(default)]
    events: Vec<GoldenEvent>,
    submissions: Vec<GoldenSubmission>,
    ra_trace: Vec<Vec<i64>>,
    final_ra: Vec<BTreeMap<String, i64>>,
    final_cached_runs: Vec<(u64, u64)>,
}

#[derive(Copy, Clone, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum GoldenIoModel {
    #[default]
    Instant,
    Fifo,
    Batch,
}

#[derive(Deserialize)]
struct GoldenRead {
    offset: u64,
    len: u64,
    fd: u64,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum GoldenEvent {
    Evict { before_read: usize, start: u64, nr: u64 },
    Fadvise { before_read: usize, fd: u64, advice: GoldenAdvice, offset: u64, len: u64 },
    SetReadCongested { before_read: usize, value: u8 },
}

#[derive(Copy, Clone, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum GoldenAdvice {
    Normal,
    Random,
    Sequential,
    WillNeed,
    DontNeed,
}

#[derive(Copy, Clone, Deserialize)]
#[serde(rename_all = "lowercase")]
enum GoldenKind {
    Sync,
    Async,
    Force,
    Single,
}

#[derive(Deserialize)]
struct GoldenSubmission {
    read: usize,
    call: u64,
    start: u64,
    nr: u64,
    kind: GoldenKind,
    async_size: Option<u64>,
    #[serde(default)]
    marker: Option<u64>,
    order: Option<u8>,
    #[serde(default)]
    folios: Vec<(u64, u8)>,
}

impl GoldenSubmission {
    fn submission(&self) -> Submission {
        Submission {
            read: self.read,
            call: self.call,
            start: self.start,
            nr_pages: self.nr,
            kind: match self.kind {
                GoldenKind::Sync => RaKind::Sync,
                GoldenKind::Async => RaKind::Async,
                GoldenKind::Force => RaKind::Force,
                GoldenKind::Single => RaKind::Single,
            },
            async_size: self.async_size,
            marker: self.marker,
            order: self.order,
            folios: self.folios.clone(),
        }
    }
}

impl GoldenEvent {
    /// The read before which it happens, and what it is; `file_bytes` gives advice to the end of the file a length.
    fn happening(&self, file_bytes: u64) -> (usize, Happening) {
        match *self {
            GoldenEvent::Evict { before_read, start, nr } => (before_read, Happening::Evict { start, nr_pages: nr }),
            GoldenEvent::SetReadCongested { before_read, value } => (before_read, Happening::Congested(value != 0)),
            GoldenEvent::Fadvise { before_read, fd, advice, offset, len } => {
                let advice = match advice {
                    GoldenAdvice::Normal => Advice::Normal,
                    GoldenAdvice::Random => Advice::Random,
                    GoldenAdvice::Sequential => Advice::Sequential,
                    GoldenAdvice::WillNeed => Advice::WillNeed { offset, len_bytes: len },
                    GoldenAdvice::DontNeed => return (before_read, dont_need(file_bytes, offset, len)),
                };
                (before_read, Happening::Advise { fd, advice })
            }
        }
    }
}

/// POSIX_FADV_DONTNEED drops the pages that lie entirely in the range; a range up to the end of the file includes its
/// last page.
fn dont_need(file_bytes: u64, offset: u64, len: u64) -> Happening {
    let page_bytes = iowhy_stack::units::PAGE_BYTES;
    let start = offset.div_ceil(page_bytes);
    let end = match offset.checked_add(len).filter(|_| len > 0) {
        Some(end) if end < file_bytes => end / page_bytes,
        Some(end) => end.div_ceil(page_bytes),
        None => u64::MAX,
    };
    Happening::Evict { start, nr_pages: end.saturating_sub(start) }
}

impl Vector {
    /// The inputs, checked as far as the replayer relies on them.
    fn case(&self) -> Result<Case, String> {
        let nr_reads = self.reads.len();
        if let Some(number) = self.groups.iter().flatten().find(|&&number| number >= nr_reads) {
            return Err(format!("`groups` names read {number} of {nr_reads}"));
        }
        if self.max_folio_order > 30 {
            return Err(format!("`max_folio_order` {} is larger than any folio", self.max_folio_order));
        }
        let io_model = match self.io_model {
            GoldenIoModel::Instant => IoModel::Instant,
            GoldenIoModel::Fifo => IoModel::Fifo,
            GoldenIoModel::Batch => IoModel::Batch,
        };
        let mut happenings: Vec<_> = self.events.iter().map(|event| event.happening(self.file_bytes)).collect();
        happenings.sort_by_key(|(before_read, _)| *before_read);
        Ok(Case {
            file_bytes: self.file_bytes,
            ra_pages: self.ra_pages,
            io_pages: self.io_pages,
            max_folio_order: self.max_folio_order,
            io_model,
            reads: self
                .reads
                .iter()
                .map(|read| Read { offset: read.offset, len_bytes: read.len, fd: read.fd })
                .collect(),
            groups: self.groups.clone(),
            cached_initially: self.cached_initially.clone(),
            happenings,
        })
    }

    /// The first difference between the record and the replay.
    fn difference(&self, columns: &[String], expected: &[Submission], replayed: &Replayed) -> Option<String> {
        let submissions = || first_difference("submission", expected, &replayed.submissions);
        let trace = || {
            let ours = replayed.trace.iter().zip(&self.reads).enumerate();
            let ours: Vec<Vec<i64>> = ours
                .map(|(number, (state, read))| {
                    [number as i64, read.fd as i64].into_iter().chain(state.clone()).collect()
                })
                .collect();
            let mut recorded = self.ra_trace.clone();
            recorded.sort_by_key(|row| row.first().copied());
            first_difference("ra_trace row", &recorded, &ours)
        };
        let last = || {
            let ours = replayed.final_state.iter().map(|(&fd, state)| {
                let named = columns.iter().cloned().zip(state.iter().copied());
                named.chain([("fd".to_owned(), fd as i64)]).collect()
            });
            let ours: Vec<BTreeMap<String, i64>> = ours.collect();
            let mut recorded = self.final_ra.clone();
            recorded.sort_by_key(|state| state.get("fd").copied());
            first_difference("final_ra entry", &recorded, &ours)
        };
        let cached = || first_difference("final_cached_runs entry", &self.final_cached_runs, &replayed.cached_runs);
        submissions().or_else(trace).or_else(last).or_else(cached)
    }
}

/// Where two lists differ first.
pub(crate) fn first_difference<T: PartialEq + Debug>(what: &str, recorded: &[T], ours: &[T]) -> Option<String> {
    (0..recorded.len().max(ours.len())).find(|&index| recorded.get(index) != ours.get(index)).map(|index| {
        let show = |item: Option<&T>| item.map_or("nothing".to_owned(), |item| format!("{item:?}"));
        format!("{what} {index}: recorded {}, modelled {}", show(recorded.get(index)), show(ours.get(index)))
    })
}

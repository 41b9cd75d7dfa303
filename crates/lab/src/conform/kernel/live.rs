//! Running the jobs on the running kernel while it is traced.
//!
//! ```text
//! ground     a file system of each kind that can be made (ext4, xfs) on a loop device over an image, so that
//!            read_ahead_kb can be set without touching anybody; or a folder that was named, as it is
//! files      laid out and dropped from the cache before the trace begins; fio's jobs lay out theirs in the trace
//! capture    one for each file system and read_ahead_kb, or for each job of fio's; of tasks started for it only
//! ```
//! All that is made goes through the ledger: the image, the loop device, the mount, the setting.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Barrier;

use iowhy_live::cache::{self, Advice};
use iowhy_live::capture::{Ask, Capture, CaptureError, Level, Via};
use iowhy_live::ledger::{Guard, Ledger, LedgerError, LoopOptions};
use iowhy_live::machine::{self, Disk, Machine};
use iowhy_stack::rng::Rng;
use iowhy_stack::trace::{Dev, Trace};

use super::jobs::{Builtin, Call, JOBS};
use super::{Checked, Device, DiskChecked, File as Known, Queue, Report, check, foreign, model_of, queue, records};
use crate::on_kernel::Live;
use crate::recording::{dev, files::Facts};
use crate::run::live::OnKernel;
use crate::run::{self, Request};
use iowhy_fio::World;
use iowhy_text::diagnose::{Problem, Problems};
use iowhy_trace::recorded::{Hint, Recorded};

/// Size of the image; most of it is never written.
const IMAGE_BYTES: u64 = 4 << 30;
/// Values of read_ahead_kb where it may be set.
const READ_AHEAD_KB: &[u64] = &[128, 0, 4, 16, 100, 512, 4096];
/// Ring buffer of each CPU: jobs add tens of thousands of pages in a second.
const BUFFER_KIB: u32 = 16 << 10;
/// Memory for a capture.
const MEMORY_MIB: u32 = 1 << 10;
/// Where the memory of a read begins.
const ALIGNED: usize = 512;
/// Bytes written at once.
const CHUNK: usize = 1 << 20;

/// Settings of a conformance run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConformRequest {
    /// Names of jobs of this module, or fio's job files; all of this module if there is none.
    pub jobs: Vec<String>,
    /// A folder to work in, rather than file systems made for it.
    pub dir: Option<PathBuf>,
    /// Values of read_ahead_kb to try, rather than the usual ones.
    pub read_ahead_kb: Vec<u64>,
    /// Where the events come from.
    pub via: Option<Via>,
}

/// Why nothing could be compared.
#[derive(Debug, thiserror::Error)]
pub enum ConformError {
    /// The kernel cannot be traced.
    #[error("{0}; `iowhy conform --live` needs root, and tracefs or BPF")]
    Capture(#[from] CaptureError),
    /// Something that is made for it could not be.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A file could not be worked on.
    #[error("cannot {attempt} {}: {error}", path.display())]
    Io {
        attempt: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// No file system can be made.
    #[error("cannot make a file system to try on: {0}; install e2fsprogs or xfsprogs, or name a folder with --dir")]
    NoFileSystem(String),
    /// The request has mistakes.
    #[error("{}", .0.render())]
    Wrong(Problems),
}

fn io_error(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ConformError {
    let path = path.to_owned();
    move |error| ConformError::Io { attempt, path, error }
}

/// A place to run on.
struct Site {
    dir: PathBuf,
    filesystem: String,
    /// The device number of its files, if pages can be recognised by it: it is ours alone.
    own: Option<Dev>,
    /// Where read_ahead_kb is set.
    setting: Option<PathBuf>,
    /// Where the events come from.
    via: Option<Via>,
    /// Undone in this order.
    guards: Vec<Guard>,
}

impl Drop for Site {
    fn drop(&mut self) {
        while let Some(guard) = self.guards.pop() {
            drop(guard);
        }
    }
}

/// A number of a queue; 0 if there is none.
fn setting(disk: &str, name: &str) -> u64 {
    let path = Path::new("/sys/block").join(disk).join("queue").join(name);
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// The comparison of the disk below a folder, if it has one.
fn disk_below(dir: &Path, trace: &Trace) -> Option<DiskChecked> {
    let disk = Disk::below(dir);
    let (name, (major, minor)) = (disk.name?, disk.number?);
    let queue = Queue {
        number: Dev::new(major, minor),
        scheduler: disk.queue.scheduler.unwrap_or_default(),
        max_sectors_kb: disk.queue.max_sectors_kb.unwrap_or(0),
        max_segments: setting(&name, "max_segments"),
        physical_block_bytes: disk.queue.physical_block_bytes.unwrap_or(0),
        nomerges: disk.queue.nomerges.unwrap_or(0),
        no_gaps: setting(&name, "virt_boundary_mask") > 0,
        name,
    };
    queue::compare(trace, &queue, &queue::workload(trace))
}

/// A file, and the job that it is of.
fn known(path: &Path, job: String) -> io::Result<Known> {
    let facts = Facts::of(&machine::current_mounts(), path).ok_or_else(|| io::Error::other("not a file"))?;
    let disk = facts.disk;
    let no_elevator = disk.queue.scheduler.as_deref() == Some("none");
    let max_segments = disk.name.map(|name| setting(&name, "max_segments"));
    let device = Device {
        filesystem: disk.filesystem.unwrap_or_default(),
        block_bytes: facts.block,
        read_ahead_kb: facts.ra_kb,
        max_sectors_kb: facts.io_kb,
        max_segments: max_segments.filter(|_| no_elevator).unwrap_or(0),
    };
    let Facts { inode, bytes, holes, tail, .. } = facts;
    Ok(Known { inode, device, cached: Vec::new(), bytes, holes, tail, job })
}

/// File systems that are made, and how.
const FILE_SYSTEMS: &[(&str, &str, &[&str])] =
    &[("ext4", "mkfs.ext4", &["-q", "-F", "-b", "4096", "-E", "nodiscard"]), ("xfs", "mkfs.xfs", &["-q", "-f", "-K"])];

impl Site {
    /// A loop device with a new file system.
    fn make(ledger: &Ledger, base: &Path, nr: usize, via: Option<Via>) -> Result<Result<Site, String>, ConformError> {
        let (filesystem, program, options) = FILE_SYSTEMS[nr];
        let root = base.join(format!("iowhy-conform-{}-{filesystem}", std::process::id()));
        let mut ground = Site {
            dir: root.join("mnt"),
            filesystem: filesystem.to_owned(),
            own: None,
            setting: None,
            via,
            guards: Vec::new(),
        };
        ground.guards.push(ledger.create_scratch_directory(&root)?);
        let image = root.join("image");
        let file = File::create(&image).map_err(io_error("make", &image))?;
        file.set_len(IMAGE_BYTES).map_err(io_error("make", &image))?;
        let (node, guard) = ledger.attach_loop(&image, LoopOptions::default())?;
        ground.guards.push(guard);
        let made = Command::new(program).args(options).arg(&node).stdin(Stdio::null()).output();
        match made {
            Err(error) => return Ok(Err(format!("{program}: {error}"))),
            Ok(output) if !output.status.success() => {
                return Ok(Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())));
            }
            Ok(_) => {}
        }
        fs::create_dir(&ground.dir).map_err(io_error("make", &ground.dir))?;
        match ledger.mount(&node, &ground.dir, filesystem, "") {
            Ok(guard) => ground.guards.push(guard),
            Err(error) => return Ok(Err(error.to_string())),
        }
        let name = node.file_name().unwrap_or_default();
        ground.setting = Some(Path::new("/sys/block").join(name).join("queue/read_ahead_kb"));
        let root = fs::metadata(&ground.dir).map_err(io_error("look at", &ground.dir))?;
        ground.own = Some(dev(root.dev()));
        Ok(Ok(ground))
    }

    /// A folder of our own in one that was named.
    fn found(ledger: &Ledger, dir: &Path, via: Option<Via>) -> Result<Site, ConformError> {
        let path = dir.join(format!("iowhy-conform-{}", std::process::id()));
        let guards = vec![ledger.create_scratch_directory(&path)?];
        let disk = Disk::below(dir);
        let setting = disk.name.map(|name| Path::new("/sys/block").join(name).join("queue/read_ahead_kb"));
        let filesystem = disk.filesystem.unwrap_or_default();
        Ok(Site { dir: path, filesystem, own: None, setting: setting.filter(|path| path.exists()), via, guards })
    }

    fn capture(&self, ledger: &Ledger) -> Result<Capture, CaptureError> {
        let ask = Ask {
            level: Level::Full,
            children: true,
            devices: self.own.into_iter().collect(),
            buffer_kib: BUFFER_KIB,
            memory_mib: MEMORY_MIB,
            via: self.via,
            ..Ask::default()
        };
        Capture::start_with(&ask, ledger)
    }
}

/// Result of the runs.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The comparison.
    pub report: Report,
    /// The records it was made from.
    pub records: Vec<Recorded>,
    /// Notes for the user.
    pub warnings: Problems,
}

impl Compared {
    /// The records as files: their names and texts.
    pub fn texts(&self) -> Vec<(String, String)> {
        let name = |recorded: &Recorded| {
            let plain = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '-' };
            let job: String = recorded.job.chars().map(plain).collect();
            format!("{}-{}-{job}.txt", recorded.filesystem, recorded.ra_pages * 4)
        };
        self.records.iter().map(|recorded| (name(recorded), recorded.to_text())).collect()
    }
}

/// Runs the jobs and compares. `progress` gets the next step.
///
/// # Errors
/// If the kernel cannot be traced, or the request has mistakes.
pub fn run(asked: &ConformRequest, world: &World<'_>, progress: &dyn Fn(&str)) -> Result<Compared, ConformError> {
    let (builtins, files) = sort_out(asked)?;
    let (ledger, _) = Ledger::open()?;
    // Whatever else is wrong: if the kernel cannot be traced, say so before anything is made.
    Capture::start_with(&Ask { children: true, via: asked.via, ..Ask::default() }, &ledger)?.stop()?;
    let machine = Machine::read();
    let release = machine.kernel_release.unwrap_or_default();
    let (entry, model) = model_of(&release, &machine.kernel_version.unwrap_or_default());
    let mut warnings = Problems::default();
    let mut skipped = Vec::new();
    let mut all: Vec<Recorded> = Vec::new();
    let (mut nr_grounds, mut lost, mut disks) = (0, 0, Vec::new());
    let kinds = if asked.dir.is_some() { 1 } else { FILE_SYSTEMS.len() };
    for nr in 0..kinds {
        let ground = match &asked.dir {
            Some(dir) => Site::found(&ledger, dir, asked.via)?,
            None => match Site::make(&ledger, &std::env::temp_dir(), nr, asked.via)? {
                Ok(ground) => ground,
                Err(why) => {
                    skipped.push(why);
                    continue;
                }
            },
        };
        nr_grounds += 1;
        let usual: &[u64] = if asked.dir.is_some() { &[] } else { READ_AHEAD_KB };
        let values = if asked.read_ahead_kb.is_empty() { usual } else { &asked.read_ahead_kb };
        let values: Vec<Option<u64>> =
            if values.is_empty() { vec![None] } else { values.iter().copied().map(Some).collect() };
        let prepared = prepare(&ground, &builtins)?;
        for value in values {
            let set = match (value, &ground.setting) {
                (Some(value), Some(path)) => ledger.set(path, &value.to_string())?,
                (Some(_), None) => {
                    let text = format!("{} is on no disk with a read_ahead_kb", ground.dir.display());
                    return Err(wrong(Problem::error(text).help("without --read-ahead-kb")));
                }
                (None, _) => None,
            };
            let read_ahead_kb = Disk::below(&ground.dir).queue.read_ahead_kb.unwrap_or(0);
            let here = format!("{}, read_ahead_kb {read_ahead_kb}", ground.filesystem);
            let mut add = |(records, disk): (Vec<Recorded>, Option<DiskChecked>)| {
                lost += records.first().map_or(0, |recorded| recorded.lost);
                all.extend(records);
                disks.extend(disk);
            };
            if !prepared.is_empty() {
                progress(&here);
                add(builtin_records(&ground, &ledger, &prepared)?);
            }
            for file in &files {
                progress(&format!("{file}: {here}"));
                add(file_records(&ground, &ledger, file, world, &mut warnings)?);
            }
            if let Some(set) = set {
                set.undo()?;
            }
        }
    }
    if nr_grounds == 0 {
        return Err(ConformError::NoFileSystem(skipped.join("; ")));
    }
    let jobs: Vec<Checked> = all.iter().map(|recorded| check(entry, recorded)).collect();
    let not_judged = foreign::left_out(&all);
    let report = Report { kernel: release, model, jobs, disks, skipped, not_judged, lost };
    Ok(Compared { report, records: all, warnings })
}

fn wrong(problem: Problem) -> ConformError {
    let mut problems = Problems::default();
    problems.push(problem);
    ConformError::Wrong(problems)
}

/// Jobs of this module, and those of files.
fn sort_out(asked: &ConformRequest) -> Result<(Vec<&'static Builtin>, Vec<String>), ConformError> {
    if let Some(dir) = asked.dir.as_ref().filter(|dir| !dir.is_dir()) {
        let text = format!("folder `{}` does not exist", dir.display());
        return Err(wrong(Problem::error(text).help("--dir takes a folder that exists")));
    }
    if asked.jobs.is_empty() {
        return Ok((JOBS.iter().collect(), Vec::new()));
    }
    let mut builtins = Vec::new();
    let mut files = Vec::new();
    for name in &asked.jobs {
        match JOBS.iter().find(|job| job.name == name) {
            Some(job) => builtins.push(job),
            None => files.push(name.clone()),
        }
    }
    Ok((builtins, files))
}

/// A file that is laid out, for a job.
struct Prepared {
    job: &'static Builtin,
    path: PathBuf,
}

fn prepare(ground: &Site, jobs: &[&'static Builtin]) -> Result<Vec<Prepared>, ConformError> {
    let mut rng = Rng::stream(1, "conform");
    let mut block = vec![0; CHUNK];
    block.iter_mut().for_each(|byte| *byte = rng.below(256) as u8);
    let mut prepared = Vec::new();
    for &job in jobs {
        let path = ground.dir.join(job.name);
        let write = || -> io::Result<()> {
            let mut file = File::create(&path)?;
            let mut left = job.file_bytes as usize;
            while left > 0 {
                let n = left.min(CHUNK);
                file.write_all(&block[..n])?;
                left -= n;
            }
            file.sync_all()
        };
        write().map_err(io_error("write", &path))?;
        prepared.push(Prepared { job, path });
    }
    Ok(prepared)
}

/// Runs the jobs of this module one after the other, all in one capture.
fn builtin_records(
    ground: &Site,
    ledger: &Ledger,
    prepared: &[Prepared],
) -> Result<(Vec<Recorded>, Option<DiskChecked>), ConformError> {
    let mut files = Vec::new();
    for Prepared { job, path } in prepared {
        let file = File::open(path).map_err(io_error("open", path))?;
        cache::make_cold(&file).map_err(io_error("drop the pages of", path))?;
        files.push(known(path, job.name.to_owned()).map_err(io_error("look at", path))?);
    }
    let capture = ground.capture(ledger)?;
    // The capture leaves out the thread that asked for it, and descriptors are recognised by their opening.
    let all = || {
        prepared.iter().try_for_each(|Prepared { job, path }| drive(job, path).map_err(io_error("run a job on", path)))
    };
    let ran = std::thread::scope(|scope| scope.spawn(all).join());
    let captured = capture.stop()?;
    ran.unwrap_or_else(|_| Err(wrong(Problem::error("a job did not run to its end"))))?;
    Ok((records(&captured.trace, &files), disk_below(&ground.dir, &captured.trace)))
}

/// Runs the calls of a job, each list in a thread of its own.
fn drive(job: &Builtin, path: &Path) -> io::Result<()> {
    let open = |nr| match nr < job.first_direct {
        true => File::open(path),
        false => cache::open_past(path),
    };
    // Each in a thread of its own: two opens of a file in one thread give one notification, and then their descriptors
    // are unknown.
    let open_apart = |nr| {
        std::thread::scope(|scope| scope.spawn(move || open(nr)).join())
            .unwrap_or_else(|_| Err(io::Error::other("panic")))
    };
    let descriptors = (0..job.descriptors).map(open_apart).collect::<io::Result<Vec<File>>>()?;
    let threads = job.calls();
    let barrier = Barrier::new(threads.len());
    let descriptors = &descriptors;
    std::thread::scope(|scope| {
        let started: Vec<_> = threads
            .iter()
            .map(|calls| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    calls.iter().try_for_each(|call| one(*call, descriptors))
                })
            })
            .collect();
        started.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("panic"))))
    })
}

fn one(call: Call, descriptors: &[File]) -> io::Result<()> {
    match call {
        Call::Read { fd, offset, len_bytes } => {
            // Reads past the page cache want memory that begins with a sector.
            let mut buffer = vec![0; len_bytes as usize + ALIGNED];
            let from = buffer.as_ptr().align_offset(ALIGNED).min(ALIGNED);
            descriptors[fd].read_at(&mut buffer[from..][..len_bytes as usize], offset).map(drop)
        }
        Call::Next { fd, len_bytes } => {
            let mut buffer = vec![0; len_bytes as usize];
            (&descriptors[fd]).read(&mut buffer).map(drop)
        }
        Call::Advise { fd, hint, offset, len_bytes } => {
            let advice = match hint {
                Hint::Normal => Advice::Normal,
                Hint::Random => Advice::Random,
                Hint::Sequential => Advice::Sequential,
                Hint::WillNeed => Advice::WillNeed,
                Hint::DontNeed => Advice::DontNeed,
                Hint::Other | Hint::Executable => Advice::NoReuse,
            };
            cache::advise(&descriptors[fd], offset, len_bytes, advice)
        }
    }
}

/// Runs one of fio's job files.
fn file_records(
    ground: &Site,
    ledger: &Ledger,
    job: &str,
    world: &World<'_>,
    warnings: &mut Problems,
) -> Result<(Vec<Recorded>, Option<DiskChecked>), ConformError> {
    let dir = ground.dir.join("job");
    fs::create_dir(&dir).map_err(io_error("make", &dir))?;
    let mut words: Vec<String> = match Path::new(job).exists() || job == "-" {
        true => vec![job.to_owned()],
        false => job.split_whitespace().map(str::to_owned).collect(),
    };
    words.extend(["--on=live".to_owned(), format!("--dir={}", dir.display())]);
    let mut problems = Problems::default();
    let resolved = run::resolve(&words, world, &mut problems);
    let failed = problems.any_error();
    let plan = match &resolved {
        Some(Request::Run(request)) if !failed => {
            request.variants.first().and_then(|first| first.backend::<OnKernel>())
        }
        _ => None,
    };
    let Some(mut plan) = plan.map(|on_kernel| on_kernel.plan.clone()) else {
        if !failed {
            problems.push(Problem::error(format!("`{job}` is not a job whose calls can be made here")));
        }
        return Err(ConformError::Wrong(problems));
    };
    for problem in problems.list {
        if !warnings.list.contains(&problem) {
            warnings.push(problem);
        }
    }
    let remove: Vec<PathBuf> = plan.files.iter().filter(|file| file.remove).map(|file| file.path.clone()).collect();
    plan.files.iter_mut().for_each(|file| file.remove = false);
    let paths: Vec<PathBuf> = plan.files.iter().map(|file| file.path.clone()).collect();
    let capture = ground.capture(ledger)?;
    // The capture leaves out the thread that asked for it.
    let made = std::thread::scope(|scope| scope.spawn(|| Live::make(plan, &|_| ())).join());
    let captured = capture.stop()?;
    match made {
        Ok(Ok(live)) => warnings.list.extend(live.complaints().list),
        Ok(Err(error)) => return Err(wrong(Problem::error(format!("`{job}` did not run: {error}")))),
        Err(_) => return Err(wrong(Problem::error(format!("`{job}` did not run to its end")))),
    }
    let mut files = Vec::new();
    for path in &paths {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let job = Path::new(job).file_name().map_or_else(|| job.to_owned(), |job| job.to_string_lossy().into_owned());
        files.extend(known(path, if paths.len() > 1 { format!("{job}:{name}") } else { job }));
    }
    let made = (records(&captured.trace, &files), disk_below(&ground.dir, &captured.trace));
    for path in remove {
        // The folder goes with its contents in any case.
        let _ = fs::remove_file(path);
    }
    fs::remove_dir_all(&dir).map_err(io_error("remove", &dir))?;
    Ok(made)
}

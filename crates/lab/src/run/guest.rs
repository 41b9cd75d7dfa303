//! Runs on a kernel that is booted for them: `--on kernel:KERNEL[,key=value..]`.
//!
//! ```text
//! here    the job is read, so that its mistakes are reported; its files and variables are noted
//! there   `iowhy run JOB --on live` in a guest, with those files, on a disk of its own; it keeps the run in a store
//! here    that store's run comes into ours, with the label, the place and the design of this command
//! ```
//! So there is one way in which a job is run, and a run in a guest has all that a live run has. Each run has a boot and
//! a disk of its own, with a file system just made: runs of several kernels can be interleaved, and none finds what
//! another left. The hash of the machine covers the disk and what executes the guest, and not the kernel.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use iowhy_live::capture::Level;
use iowhy_live::disk::{self, Front};
use iowhy_live::guest::{self, Accelerator, Backing, Brought, GuestError, Kernel, Spec};
use iowhy_live::ledger::{Guard, Ledger};
use iowhy_live::machine::Machine;
use iowhy_stack::job::Workload;
use iowhy_stack::units::Nanos;
use serde_json::{Map, Value, json};

use super::backend::{
    Audience, Backend, Files, JobWords, Kind, Making, Note, Place, Refusal, RunRecord, Shared, Typed,
};
use super::live::{Does, on_this_kernel};
use super::{Shape, record, replay};
use crate::store::{DataFile, Manifest, NewRun, Store, StoredRun};
use iowhy_fio::World;
use iowhy_text::diagnose::{Problem, Problems, Span};

/// How places of guests begin.
pub(super) const PREFIX: &str = "kernel:";

pub(super) const KIND: Kind = Kind { names: |on| on.starts_with(PREFIX), read, help };

/// Keys behind the kernel's name, each with what it does. Those without a text are files of the disk's queue.
const KEYS: &[(&str, &str)] = &[
    ("filesystem", "file system of the disk: ext4, ext3, ext2, xfs [ext4]"),
    ("size", "size of the disk, if it is not a modelled one [4g]"),
    ("memory_mib", "memory of the guest [1024]"),
    ("cpus", "its processors [2]"),
    ("accel", "kvm or tcg [kvm if a kernel boots under it here]"),
    ("elevator", "the disk's scheduler [the kernel's choice]; elevator.KEY=VALUE are its tunables"),
    ("rotational", ""),
    ("max_sectors_kb", ""),
    ("read_ahead_kb", ""),
    ("nr_requests", ""),
    ("nomerges", ""),
    ("rq_affinity", ""),
    ("wbt_lat_usec", ""),
    ("write_cache", ""),
];

/// A place as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The kernel: a name or a path.
    pub kernel: String,
    filesystem: String,
    size: u64,
    memory_mib: u64,
    cpus: u32,
    accelerator: Option<Accelerator>,
    /// Files of the queue and their values, in the order in which they are written.
    settings: Vec<(String, String)>,
    /// The modelled disk; without one it is a plain image.
    disk: Option<disk::Spec>,
}

/// The work of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestTask {
    wanted: Wanted,
    /// Words of the job and of what shapes it.
    words: Vec<String>,
    /// Files that the job reads.
    files: Vec<(PathBuf, Vec<u8>)>,
    /// Variables that it asked for.
    variables: Vec<(String, String)>,
    /// Its standard input.
    input: Option<PathBuf>,
    limit: Duration,
}

impl GuestTask {
    /// Files that the job reads.
    pub fn files(&self) -> &[(PathBuf, Vec<u8>)] {
        &self.files
    }
}

/// The folder that the job begins in.
const FOLDER: &str = "/job";
/// The file that is standard input here.
const INPUT: &str = "/job/standard-input";
/// The store of the guest.
const STORE: &str = "store";

/// Help of the keys, for `iowhy run --help`.
fn help() -> String {
    let mut out = String::from("\nKeys behind --on kernel:KERNEL, after commas:\n");
    KEYS.iter().filter(|(_, help)| !help.is_empty()).for_each(|(name, help)| {
        out.push_str(&iowhy_text::item(name, help, 18));
    });
    let others: Vec<&str> = KEYS.iter().filter(|(_, help)| help.is_empty()).map(|(name, _)| *name).collect();
    out.push_str(&iowhy_text::item("others", &format!("of the disk's queue: {}", others.join(", ")), 18));
    out.push_str("\nKERNEL by name, from its registry; its address is in a variable:\n");
    for (forms, variable) in guest::registries() {
        out.push_str(&iowhy_text::item(forms, variable, 30));
    }
    out.push_str(&iowhy_text::item("PATH", "a vmlinuz, a package (.deb, .rpm), or a folder of an unpacked one", 30));
    out
}

/// The place that `on` describes. All mistakes in it are reported.
/// With a disk: the name that it is created under, and its options.
pub fn parse(on: &str, disk: Option<(&str, &str)>, problems: &mut Problems) -> Option<Wanted> {
    let rest = on.strip_prefix(PREFIX)?;
    let mut found = Problems::default();
    let mut pieces = rest.split(',');
    let kernel = pieces.next().unwrap_or_default().to_owned();
    let mut at = PREFIX.len() + kernel.len() + 1;
    let mut wanted = Wanted {
        kernel,
        filesystem: "ext4".to_owned(),
        size: 4 << 30,
        memory_mib: 1024,
        cpus: 2,
        accelerator: None,
        settings: Vec::new(),
        disk: None,
    };
    if let Some((name, disk)) = disk
        && let Some(typed) = crate::modelled_disk::parse_disk(name, disk, &mut found)
    {
        wanted.put_on(typed.spec, &mut found);
    }
    if wanted.kernel.is_empty() {
        let text = "`kernel:` needs a kernel";
        found.push(Problem::error(text).at(Span::whole(on)).help("kernel:debian-6.1, or kernel:PATH"));
    } else if !guest::is_known(&wanted.kernel) {
        let text = format!("unknown kernel `{}`", wanted.kernel);
        let span = Span::bytes(on, PREFIX.len(), PREFIX.len() + wanted.kernel.len());
        let help = format!("{}, or a path to a vmlinuz, a package or the folder of an unpacked one", guest::forms());
        found.push(Problem::error(text).at(span).help(help));
    }
    for piece in pieces {
        let span = Span::bytes(on, at, at + piece.len());
        at += piece.len() + 1;
        if let Err(problem) = wanted.set(piece) {
            found.push(problem.at(span));
        }
    }
    // A scheduler's defaults would undo earlier settings; others derive from one another, too.
    let rank = |name: &str| {
        let order = ["scheduler", "rotational", "max_sectors_kb"];
        order.iter().position(|known| *known == name).unwrap_or(if name.contains('/') { 9 } else { 8 })
    };
    wanted.settings.sort_by_key(|(name, _)| rank(name));
    let failed = found.any_error();
    problems.list.append(&mut found.list);
    (!failed).then_some(wanted)
}

impl Wanted {
    /// Takes a modelled disk. Its queue is set as that of one that is made here, as far as nothing else is asked for.
    fn put_on(&mut self, mut spec: disk::Spec, problems: &mut Problems) {
        match spec.guest_queue() {
            Ok(queue) => queue.into_iter().for_each(|(name, value)| self.setting(name, &value)),
            Err(error) => problems.push(Problem::error(error.to_string())),
        }
        if spec.front == Some(Front::Ublk) {
            problems.push(Problem::error("the disk of a guest is a file for QEMU, which has front=loop alone"));
        }
        if spec.partitions > 0 || spec.backing.is_some() {
            problems.push(Problem::error("the disk of a guest has no `partitions`, and its data are in memory"));
        }
        // It is mounted in the guest, and nowhere else.
        if let Some(filesystem) = spec.filesystem.take() {
            self.filesystem = filesystem;
        }
        self.disk = Some(spec);
    }

    fn set(&mut self, piece: &str) -> Result<(), Problem> {
        let Some((key, value)) = piece.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty())
        else {
            return Err(Problem::error(format!("`{piece}` is not a setting")).help("key=value"));
        };
        let number = |(min, max): (u64, u64)| {
            let number = value.parse().ok().filter(|number| (min..=max).contains(number));
            number.ok_or_else(|| {
                Problem::error(format!("`{key}` takes a whole number from {min} to {max}, not `{value}`"))
            })
        };
        let one_of = |names: &[&str]| {
            let help = format!("one of {}", names.join(", "));
            let problem = || Problem::error(format!("`{key}` cannot be `{value}`")).near(value, names).help(help);
            names.iter().find(|name| **name == value).map(|name| (*name).to_owned()).ok_or_else(problem)
        };
        match key {
            "filesystem" => self.filesystem = one_of(&guest::filesystems().collect::<Vec<_>>())?,
            "accel" => {
                let kvm = one_of(&["kvm", "tcg"])? == "kvm";
                self.accelerator = Some(if kvm { Accelerator::Kvm } else { Accelerator::Tcg });
            }
            "memory_mib" => self.memory_mib = number((256, 1 << 20))?,
            "cpus" => self.cpus = number((1, 255))? as u32,
            "size" => {
                let bytes = iowhy_fio::value::integer(value, 1024, (64 << 20, 1 << 44)).map(i64::unsigned_abs);
                self.size = bytes.map_err(|_| {
                    Problem::error(format!("`size` takes a size of at least 64m, for example 4g, not `{value}`"))
                })?;
            }
            "elevator" | "scheduler" => self.setting("scheduler".to_owned(), value),
            key if KEYS.iter().any(|(known, help)| *known == key && help.is_empty()) => {
                self.setting(key.to_owned(), value);
            }
            key => match key.strip_prefix("elevator.").filter(|name| !name.contains('/')) {
                Some(name) => self.setting(format!("iosched/{name}"), value),
                None => {
                    let known = KEYS.iter().map(|(name, _)| *name);
                    let problem = Problem::error(format!("unknown key `{key}` of a guest")).near(key, known);
                    return Err(problem.help("`iowhy run --help` lists them"));
                }
            },
        }
        Ok(())
    }

    fn setting(&mut self, name: String, value: &str) {
        self.settings.retain(|(known, _)| *known != name);
        self.settings.push((name, value.to_owned()));
    }
}

fn read(typed: &Typed<'_>, problems: &mut Problems) -> Option<Box<dyn Place>> {
    let disk = typed.disk.map(|disk| (typed.name.as_str(), disk));
    Some(Box::new(parse(typed.on, disk, problems)?))
}

impl Place for Wanted {
    fn backend(&self, asked: &JobWords<'_>, problems: &mut Problems) -> Option<(Arc<dyn Backend>, Shape)> {
        let (task, shape) = task(self, asked, problems)?;
        Some((Arc::new(task), shape))
    }
}

/// The task of a job in a guest. It is read here as a live job, so that its mistakes are reported at once.
fn task(wanted: &Wanted, asked: &JobWords<'_>, problems: &mut Problems) -> Option<(GuestTask, Shape)> {
    let world = asked.world;
    let (loaded, variables) = (RefCell::new(BTreeMap::new()), RefCell::new(BTreeMap::new()));
    let load = |name: &str| {
        let text = (world.load)(name)?;
        loaded.borrow_mut().insert(name.to_owned(), text.clone().into_bytes());
        Ok(text)
    };
    let variable = |name: &str| {
        let value = (world.variable)(name)?;
        variables.borrow_mut().insert(name.to_owned(), value.clone());
        Some(value)
    };
    let noted = World { load: &load, variable: &variable, ..*world };
    let inside = JobWords { world: &noted, folder: Path::new(guest::DATA), allow: &[], ..*asked };
    let (does, shape) = on_this_kernel(&inside, problems)?;
    let Does::Calls(plan) = does else {
        let name = asked.words.first().map_or("", String::as_str);
        let text = format!("`{name}` is another program, and a guest has iowhy alone");
        problems.push(Problem::error(text).at(Span::whole(name)).help("--on live, or a fio job file"));
        return None;
    };
    if asked.replay.form.is_some() || replay::is_trace(asked.words) {
        for path in traces(&asked.words[0]) {
            match std::fs::read(&path) {
                Ok(bytes) => drop(loaded.borrow_mut().insert(path.to_string_lossy().into_owned(), bytes)),
                Err(error) => problems.push(Problem::error(format!("cannot read `{}`: {error}", path.display()))),
            }
        }
    }
    let (mut files, mut input) = (Vec::new(), None);
    for (name, bytes) in loaded.into_inner() {
        let path = if name == "-" {
            input = Some(PathBuf::from(INPUT));
            PathBuf::from(INPUT)
        } else {
            Path::new(FOLDER).join(&name)
        };
        if ["/dev", "/proc", "/sys"].iter().any(|folder| path.starts_with(folder)) {
            let text = format!("`{name}` cannot be handed to a guest");
            problems.push(Problem::error(text).at(Span::whole(&name)).help("- for standard input, or a file"));
        }
        files.push((path, bytes));
    }
    let words = asked.words.iter().chain(asked.shaping).cloned().collect();
    let task = GuestTask {
        wanted: wanted.clone(),
        words,
        files,
        variables: variables.into_inner().into_iter().collect(),
        input,
        limit: asked.timeout.unwrap_or_else(|| usual_limit(&plan)),
    };
    (!problems.any_error()).then_some((task, shape))
}

/// The files of a trace: itself, or the parts that blktrace makes for each CPU.
fn traces(name: &str) -> Vec<PathBuf> {
    let path = PathBuf::from(name);
    if path.is_file() {
        return vec![path];
    }
    let parts = (0..).map(|nr| PathBuf::from(format!("{name}.blktrace.{nr}")));
    parts.take_while(|path| path.is_file()).collect()
}

/// For the boot, and the making of files.
const USUAL: Duration = Duration::from_secs(180);
/// For a job that nothing but its end ends.
const ENDLESS: Duration = Duration::from_secs(420);

/// How long a boot with this job may take: twice the time that the job gives itself, and some.
fn usual_limit(plan: &iowhy_live::Plan) -> Duration {
    let times: Vec<(u32, Nanos)> = match &plan.job.workload {
        Workload::Threads { threads, .. } => {
            threads.iter().map(|thread| (thread.spec.group, thread.stream.max_time)).collect()
        }
        Workload::FileIo(fileio) => vec![(0, fileio.max_time)],
    };
    let groups = times.iter().map(|(group, _)| *group).max().map_or(0, |last| last + 1);
    let of_group = |group: u32| {
        let times = times.iter().filter(|(its, _)| *its == group).map(|(_, time)| *time);
        let longest = times.map(|time| if time == Nanos::ZERO { ENDLESS } else { Duration::from_nanos(time.0) }).max();
        longest.unwrap_or_default()
    };
    USUAL + 2 * (0..groups).map(of_group).sum::<Duration>()
}

/// A run that was made in a guest.
#[derive(Clone, Debug)]
pub struct InGuest {
    /// The guest's own row of it.
    pub row: StoredRun,
    /// The measurements, in the order of the report.
    pub metrics: Vec<(String, f64)>,
    /// The guest's report of a live run.
    pub live: Value,
    /// How the guest itself did.
    pub brought: Brought,
    pub kernel: Kernel,
    pub warnings: Vec<String>,
}

impl InGuest {
    /// Whether something went wrong with the run.
    pub fn failed(&self) -> bool {
        self.brought.status != 0
    }

    /// The release that was running.
    pub fn release(&self) -> &str {
        let machine = self.row.machine.as_ref().map(|machine| &machine["machine"]["kernel"]);
        machine.and_then(Value::as_str).unwrap_or("of unknown release")
    }

    /// Facts about the guest itself.
    pub fn json(&self) -> Value {
        json!({
            "image": self.kernel.image.file_name().map(|name| name.to_string_lossy().into_owned()),
            "version": self.kernel.version,
            "package": self.kernel.package,
            "release": self.release(),
            "accelerator": self.brought.accelerator.name(),
            "qemu": self.brought.qemu,
            "boot_s": self.brought.boot.as_secs_f64(),
            "took_s": self.brought.took.as_secs_f64(),
            "clock_ratio": self.brought.clock_ratio,
        })
    }
}

/// Makes guests: the folder of their files, and the kernels that were found.
struct Host {
    ledger: Ledger,
    scratch: PathBuf,
    kernels: Vec<(String, Kernel)>,
    _guard: Guard,
}

/// Largest difference between the guest's clock and ours without a warning, per cent.
const CLOCK_PCT: f64 = 2.0;

impl Host {
    fn new() -> Result<Host, Refusal> {
        let (ledger, _) = Ledger::open()?;
        let (scratch, guard) = guest::scratch(&ledger)?;
        Ok(Host { ledger, scratch, kernels: Vec::new(), _guard: guard })
    }

    fn kernel(&mut self, word: &str) -> Result<Kernel, GuestError> {
        if let Some((_, kernel)) = self.kernels.iter().find(|(known, _)| known == word) {
            return Ok(kernel.clone());
        }
        let kernel = guest::find(word, &self.scratch, &self.ledger)?;
        self.kernels.push((word.to_owned(), kernel.clone()));
        Ok(kernel)
    }

    /// Makes a run, and takes its data files into a store.
    fn make(
        &mut self,
        task: &GuestTask,
        seed: u64,
        store: Option<&Store>,
        trace: Option<Level>,
    ) -> Result<(InGuest, Files), Refusal> {
        let mut words = vec!["run".to_owned()];
        words.extend(task.words.iter().cloned());
        words.extend([
            "--on=live".to_owned(),
            format!("--dir={}", guest::DATA),
            format!("--seed={seed}"),
            format!("--store={}/{STORE}", guest::OUT),
            "--label=guest".to_owned(),
            "--json".to_owned(),
        ]);
        // Without a store there is nowhere to keep events.
        words.extend(trace.filter(|_| store.is_some()).map(|level| format!("--trace={}", level.name())));
        let results = self.scratch.join("out");
        let taken = self.boot(task, seed, words, &results);
        let taken = taken.and_then(|(brought, kernel)| take(&results, brought, kernel, store));
        let _ = std::fs::remove_dir_all(&results);
        taken
    }

    /// Boots a guest for a command, with a disk of its own; its results come below `results`.
    fn boot(
        &mut self,
        task: &GuestTask,
        seed: u64,
        words: Vec<String>,
        results: &Path,
    ) -> Result<(Brought, Kernel), Refusal> {
        let wanted = &task.wanted;
        let kernel = self.kernel(&wanted.kernel)?;
        let disk = Disk::make(wanted, seed, &self.scratch)?;
        let mut variables = task.variables.clone();
        variables.extend([("XDG_STATE_HOME", "/state"), ("HOME", "/")].map(|(k, v)| (k.to_owned(), v.to_owned())));
        let spec = Spec {
            kernel: kernel.clone(),
            backing: disk.backing.clone(),
            filesystem: Some(wanted.filesystem.clone()),
            settings: wanted.settings.clone(),
            modules: Vec::new(),
            memory_mib: wanted.memory_mib,
            cpus: wanted.cpus,
            accelerator: wanted.accelerator,
            words,
            variables,
            files: task.files.clone(),
            folder: PathBuf::from(FOLDER),
            input: task.input.clone(),
            limit: task.limit,
        };
        let laying_out = |begins: bool| {
            // A disk that does not answer any more is seen by the job itself.
            let _ = disk.modelled.as_ref().map(|held| held.hurry(begins));
        };
        let brought = guest::run(&spec, &self.scratch, results, &self.ledger, &laying_out);
        disk.end()?;
        Ok((brought?, kernel))
    }
}

/// Runs another command of this program in a guest, which gets these files: how it ended, and what it printed.
///
/// # Errors
/// If the guest cannot be made, or fails.
pub fn command(
    wanted: &Wanted,
    words: Vec<String>,
    files: Vec<(PathBuf, Vec<u8>)>,
    limit: Duration,
) -> Result<(Brought, String), Refusal> {
    // A signal ends the guest, too.
    let _signals = iowhy_live::signal::Guard::take();
    let mut host = Host::new()?;
    let task =
        GuestTask { wanted: wanted.clone(), words: Vec::new(), files, variables: Vec::new(), input: None, limit };
    let results = host.scratch.join("out");
    let (brought, _) = host.boot(&task, 1, words, &results)?;
    let printed = std::fs::read_to_string(results.join(guest::PRINTED)).unwrap_or_default();
    Ok((brought, printed))
}

/// A guest's results, as a run of ours.
fn take(results: &Path, brought: Brought, kernel: Kernel, store: Option<&Store>) -> Result<(InGuest, Files), Refusal> {
    // The command itself refused: what it said is all there is.
    let refused = |brought: &Brought, what: &str| {
        let said = brought.messages.join("; ");
        Refusal::from(GuestError::Job(format!("{what}{}", if said.is_empty() { said } else { format!(": {said}") })))
    };
    let kept = Store::open_existing(&results.join(STORE)).and_then(|kept| {
        let runs = kept.runs(&crate::store::Filter::default())?;
        Ok((kept, runs))
    });
    let Ok((kept, runs)) = kept else { return Err(refused(&brought, "no run was made")) };
    let Ok([row]) = <[StoredRun; 1]>::try_from(runs) else { return Err(refused(&brought, "no run was kept")) };
    let printed = std::fs::read_to_string(results.join(guest::PRINTED)).unwrap_or_default();
    let printed: Value = serde_json::from_str(&printed).unwrap_or_default();
    let shown = &printed["runs"][0];
    let metrics = shown["metrics"].as_object().into_iter().flatten();
    let metrics = metrics.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect();
    let mut warnings = row.warnings.clone();
    if brought.accelerator == Accelerator::Tcg {
        warnings.push(
            "QEMU translated the guest's code (TCG): times that the CPU needs tell nothing; those of a modelled disk do"
                .to_owned(),
        );
    }
    if let Some(ratio) = brought.clock_ratio
        && (ratio - 1.0).abs() * 100.0 > CLOCK_PCT
    {
        warnings.push(format!("the guest's clock went {:+.1} % faster than this machine's", (ratio - 1.0) * 100.0));
    }
    let files = store.map(|store| store.adopt(&kept, &row.files));
    let made = InGuest { live: shown["live"].clone(), row, metrics, brought, kernel, warnings };
    Ok((made, files))
}

/// The disk of one run, which goes with it.
struct Disk {
    backing: Backing,
    modelled: Option<disk::DiskHandle>,
}

impl Disk {
    /// Makes the disk of a task, with its file system: a modelled one, or a plain image.
    fn make(wanted: &Wanted, seed: u64, scratch: &Path) -> Result<Disk, Refusal> {
        let Some(spec) = &wanted.disk else {
            let path = scratch.join("data");
            guest::image(&path, wanted.size)?;
            let disk = Disk { backing: Backing { path, timed: false, depth: None }, modelled: None };
            guest::make_filesystem(&disk.backing.path, &wanted.filesystem)?;
            return Ok(disk);
        };
        // QEMU works on the file, without the block layer of this kernel.
        let held = disk::hold(disk::Spec { seed, front: Some(Front::Loop), ..spec.clone() })?;
        // The file system is made without waiting for the model.
        held.hurry(true)?;
        guest::make_filesystem(&held.state().node, &wanted.filesystem)?;
        held.hurry(false)?;
        let backing = Backing { path: spec.served(), timed: true, depth: Some(spec.depth) };
        Ok(Disk { backing, modelled: Some(held) })
    }

    /// Takes it away, and reports a failure.
    fn end(mut self) -> Result<(), Refusal> {
        self.modelled.take().map(disk::DiskHandle::remove).transpose()?;
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if !self.backing.timed {
            let _ = std::fs::remove_file(&self.backing.path);
        }
    }
}

impl Backend for GuestTask {
    fn make(&self, making: &Making<'_>, shared: &mut Shared) -> Result<RunRecord, Refusal> {
        let host = shared.get(Host::new)?;
        let (made, files) = host.make(self, making.seed, making.store, making.trace())?;
        let variant = making.variant;
        let told = |text: &String| Note { problem: Problem::warning(text.clone()), audience: Audience::Report };
        let on = variant.disk.as_ref().map_or_else(|| "an image".to_owned(), |disk| format!("disk {disk}"));
        let accelerator = made.brought.accelerator.name();
        Ok(RunRecord {
            metrics: made.metrics.clone(),
            place: variant.on.clone(),
            disk: variant.disk.clone(),
            made_on: format!("{}, Linux {} under QEMU ({accelerator}), {on}", variant.on, made.release()),
            detail: made.detail(making.seed),
            more: Map::from_iter([("live".to_owned(), made.live.clone()), ("guest".to_owned(), made.json())]),
            began: Some(Duration::from_nanos(making.started_ns)),
            notes: made.warnings.iter().map(told).collect(),
            failed: made.failed(),
            row: files.map(|files| Ok(Box::new(made.kept(making, files?)))),
            // A guest that was interrupted has brought nothing.
            ..RunRecord::default()
        })
    }
}

impl InGuest {
    /// The run as text.
    fn detail(&self, seed: u64) -> String {
        let (boot, took) = (self.brought.boot.as_secs_f64(), self.brought.took.as_secs_f64());
        let mut out = format!("seed {seed}; booted in {boot:.1} s, {took:.1} s in all\n\n");
        let width = self.metrics.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max(20);
        for (name, value) in self.metrics.iter().filter(|(_, value)| *value != 0.0) {
            out.push_str(&format!("{name:<width$} {value:>16.3}\n"));
        }
        out
    }

    /// The row for the store: that of the guest's own store, at this place.
    fn kept(&self, making: &Making<'_>, files: Vec<DataFile>) -> NewRun {
        let (kept, variant) = (&self.row, making.variant);
        let mut machine = kept.machine.clone().unwrap_or_default();
        machine["guest"] = self.json();
        // Neither the kernel nor its settings: those are compared.
        let lasting =
            json!([kept.machine_hash, self.brought.accelerator.name(), Machine::read().cpu_model, variant.disk]);
        let (asked, policies) = kept.asked();
        // It cannot be made again on the running kernel.
        let manifest = Manifest { again: None, modelled_disk: variant.disk.clone(), ..asked };
        NewRun {
            resolved: kept.resolved.clone(),
            place: Some(variant.on.clone()),
            machine_hash: record::hash(&lasting),
            machine: Some(machine),
            policies,
            manifest: Some(manifest),
            layers: kept.layers.clone(),
            files,
            ..NewRun::default()
        }
    }
}

impl From<GuestError> for Refusal {
    fn from(error: GuestError) -> Refusal {
        let (interrupted, inconclusive) = (matches!(error, GuestError::Interrupted), error.is_of_the_guest());
        let machine = matches!(error, GuestError::Registry { .. });
        Refusal { interrupted, inconclusive, machine, ..Refusal::new(error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(on: &str) -> Result<Wanted, String> {
        let mut problems = Problems::default();
        parse(on, None, &mut problems).ok_or_else(|| problems.render())
    }

    #[test]
    fn settings_are_written_in_an_order_that_keeps_them() {
        let on = "kernel:debian-6.1,read_ahead_kb=512,elevator.slice_idle=0,elevator=bfq,rotational=1,filesystem=xfs,\
                  size=64m,accel=tcg,cpus=1";
        let wanted = wanted(on).expect("a place");
        let settings: Vec<(&str, &str)> =
            wanted.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let expected =
            [("scheduler", "bfq"), ("rotational", "1"), ("read_ahead_kb", "512"), ("iosched/slice_idle", "0")];
        assert_eq!(settings, expected);
        assert_eq!((wanted.kernel.as_str(), wanted.filesystem.as_str()), ("debian-6.1", "xfs"));
        assert_eq!((wanted.size, wanted.cpus, wanted.accelerator), (64 << 20, 1, Some(Accelerator::Tcg)));
    }

    #[test]
    fn a_modelled_disk_brings_its_queue_and_what_is_asked_for_comes_first() {
        let mut problems = Problems::default();
        let disk = Some(("d", "ide-2004,fs=xfs,size=1g,read_ahead_kb=64"));
        let wanted = parse("kernel:debian-6.1,elevator=none", disk, &mut problems).expect("a place");
        let setting = |name: &str| wanted.settings.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..]);
        assert_eq!(["scheduler", "rotational", "read_ahead_kb"].map(setting), [Some("none"), Some("1"), Some("64")]);
        let spec = wanted.disk.expect("a modelled disk");
        assert_eq!((wanted.filesystem.as_str(), spec.filesystem, spec.bytes), ("xfs", None, 1 << 30));
        assert!(parse("kernel:debian-6.1", Some(("d", "floppy")), &mut problems).is_none());
    }

    #[test]
    fn mistakes_in_a_place_are_told_at_once() {
        let text = wanted("kernel:nowhere,cpus=0,filesystem=ext5,acel=tcg,x,elevator.a/b=1").expect_err("six mistakes");
        for told in [
            "unknown kernel `nowhere`",
            "whole number from 1",
            "`filesystem` cannot be `ext5`",
            "accel",
            "`x` is not a setting",
        ] {
            assert!(text.contains(told), "{told}: {text}");
        }
        assert_eq!(text.matches("error").count(), 6, "{text}");
        assert!(wanted("kernel:").expect_err("no name").contains("needs a kernel"));
    }

    #[test]
    fn a_guest_gets_the_files_and_variables_that_a_job_reads() {
        let load = |name: &str| match name {
            "../a.fio" | "-" => Ok("[a]\nsize=${SIZE}\nrw=read\nruntime=10\ntime_based=1\n".to_owned()),
            _ => Err("no such file".to_owned()),
        };
        let variable = |name: &str| (name == "SIZE").then(|| "1m".to_owned());
        let world = World { load: &load, variable: &variable, ..World::empty() };
        let mut problems = Problems::default();
        let words: Vec<String> = ["../a.fio", "--on", "kernel:debian-6.1", "--time-limit=5", "--on=live"]
            .iter()
            .map(|word| (*word).to_owned())
            .collect();
        let Some(super::super::Request::Run(request)) = super::super::resolve(&words, &world, &mut problems) else {
            panic!("{}", problems.render());
        };
        let [in_guest, live] = &request.variants[..] else { panic!("two places") };
        assert!(live.backend.uses_folder() && !in_guest.backend.uses_folder());
        let task: &GuestTask = in_guest.backend().expect("a guest");
        assert_eq!(task.words, ["../a.fio", "--for=5"]);
        assert_eq!(task.files.iter().map(|(path, _)| path.as_path()).collect::<Vec<_>>(), [Path::new("/job/../a.fio")]);
        assert_eq!(task.variables, [("SIZE".to_owned(), "1m".to_owned())]);
        // Twice the five seconds.
        assert_eq!((task.limit, &task.input), (USUAL + Duration::from_secs(10), &None));
        assert_eq!(in_guest.label, "kernel:debian-6.1");
    }

    #[test]
    fn other_programs_do_not_go_into_guests() {
        let words: Vec<String> = ["pgbench", "--on=kernel:debian-6.1"].iter().map(|word| (*word).to_owned()).collect();
        let mut problems = Problems::default();
        assert!(super::super::resolve(&words, &World::empty(), &mut problems).is_none());
        assert!(problems.render().contains("a guest has iowhy alone"), "{}", problems.render());
    }
}

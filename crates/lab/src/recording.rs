//! Records a trace of the running kernel: of a command, of processes, of a time, or of anything that is done here.
//!
//! ```text
//! files      calls and pages of these only; bios and requests of the devices below them
//! devices    bios and requests of these, of the disks they are parts of, and of their parts; their own pages
//! command    it and what it starts; until it has ended
//! tasks      by number, name, control group or unit (see `targets`), and what they start; until all have ended, or a
//!            time is over
//! else       everything on the machine but this program, for a time
//! ```
//! A signal ends the recording; events up to then are kept. Known limit: bios of a file on a loop device are also seen
//! on the device below it only if that is named, too.

pub mod armed;
mod circumstances;
pub(crate) mod files;
mod silent;
pub mod sum;
mod targets;
pub mod when;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use iowhy_live::capture::{Ask, Capture, CaptureError, Captured, Level, NO_BPF, STACKS, Via};
use iowhy_live::command::{Running, Usage};
use iowhy_live::signal;
use iowhy_stack::trace::{Dev, Inode, Seen, Trace};
use iowhy_stack::units::Nanos;
use iowhy_trace::join;
use iowhy_trace::settings::{Settings, silent_text};
use serde_json::{Value, json};

use circumstances::Watch;
use iowhy_text as text;
use iowhy_text::diagnose::{Problem, Problems};
use silent::Silence;
use targets::Targets;

/// Settings of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// How much of each layer.
    pub level: Level,
    /// Its longest duration.
    pub length: Option<Duration>,
    /// These processes, with their past and future children.
    pub pids: Vec<u32>,
    /// Processes of these names.
    pub comms: Vec<String>,
    /// Processes of these control groups: folders, or paths in a hierarchy.
    pub cgroups: Vec<String>,
    /// Processes of these units of systemd.
    pub units: Vec<String>,
    /// Calls and pages of these files only.
    pub files: Vec<PathBuf>,
    /// Block devices: nodes, or names in sysfs.
    pub devices: Vec<PathBuf>,
    /// A command and its arguments.
    pub command: Vec<String>,
    /// Ring buffer of each CPU, KiB; the usual size if it is 0.
    pub buffer_kib: u32,
    /// Where the events come from; tracefs by default, and BPF where the kernel denies it.
    pub via: Option<Via>,
    /// Also what has called tasks that begin to wait; only BPF programs record it.
    pub stacks: bool,
}

/// Why nothing was recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The kernel could not be traced.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A file or device that was named cannot be looked at.
    #[error("cannot look at {}: {error}", path.display())]
    Path {
        /// Which.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The named path is not a device.
    #[error("{} is not a block device; `--file` takes files", .0.display())]
    NoDevice(PathBuf),
    /// Tasks that were named are not there.
    #[error("{}", .0.list.iter().map(|it| it.message.as_str()).collect::<Vec<_>>().join("; "))]
    Targets(Problems),
    /// The kernel does not watch a pressure.
    #[error("`{when}` cannot be watched: {error}; it needs a kernel with PSI (5.2 or later, without psi=0)")]
    Pressure {
        /// Which trigger.
        when: String,
        /// The system's error.
        error: io::Error,
    },
    /// The command could not be started.
    #[error("cannot start `{program}`: {error}")]
    Command {
        program: String,
        /// The system's error.
        error: io::Error,
    },
}

#[derive(Debug)]
pub struct Recorded {
    /// The trace, and what it cost.
    pub captured: Captured,
    /// How the command ended.
    pub status: Option<ExitStatus>,
    /// Resource usage of the command, if it ended within the trace.
    pub usage: Option<Usage>,
    /// A signal ended it.
    pub interrupted: bool,
}

/// How often it looks whether it is over.
const PAUSE: Duration = Duration::from_millis(20);
/// When it looks which control groups the workload is in: soon, and then ever more seldom.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LAST_LOOK: Duration = Duration::from_millis(500);

/// A device number of `stat` as the kernel has it inside.
pub fn dev(number: u64) -> Dev {
    // The C library spreads both over 64 bits, in the same way on every Linux.
    let major = (number >> 8 & 0xfff) | (number >> 32 & 0xffff_f000);
    let minor = (number & 0xff) | (number >> 12 & 0xffff_ff00);
    Dev::new(major as u32, minor as u32)
}

/// The whole disk below a path, by its number.
pub fn device_of(path: &Path) -> Option<Dev> {
    let (major, minor) = iowhy_live::machine::Disk::below(path).number?;
    Some(Dev::new(major, minor))
}

fn look(path: &Path) -> Result<fs::Metadata, RecordError> {
    fs::metadata(path).map_err(|error| RecordError::Path { path: path.to_owned(), error })
}

/// The number of a device in sysfs, for example `259:1`.
fn number(folder: &Path) -> Option<Dev> {
    let text = fs::read_to_string(folder.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(Dev::new(major.parse().ok()?, minor.parse().ok()?))
}

/// A device, the disk that it is a part of, and the parts of it; nothing if it is not a block device.
fn family(device: Dev) -> Vec<Dev> {
    let Ok(folder) = fs::canonicalize(format!("/sys/dev/block/{}:{}", device.major(), device.minor())) else {
        return Vec::new();
    };
    let mut all = vec![device];
    if folder.join("partition").exists() {
        all.extend(folder.parent().and_then(number));
    } else {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.path().join("partition").exists() {
                all.extend(number(&entry.path()));
            }
        }
    }
    all
}

/// The devices below these paths, or below the nearest folders that exist; nothing if one has no block device, so that
/// nothing of it can be missed.
fn below(paths: &[PathBuf]) -> Vec<Dev> {
    let mut all = Vec::new();
    for path in paths {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let Some(metadata) = absolute.ancestors().find_map(|path| fs::metadata(path).ok()) else { return Vec::new() };
        let number = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
        let found = family(dev(number));
        if found.is_empty() {
            return Vec::new();
        }
        all.extend(found);
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Named files and devices of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Named {
    files: Vec<(Inode, String)>,
    devices: Vec<(Dev, String)>,
}

impl Named {
    /// Writes them into a trace. The pages of a device are those of an inode that has the device's number, in a file
    /// system without a device.
    fn write(&self, captured: &mut Captured) {
        let mut paths = self.files.clone();
        for record in &captured.trace.records {
            let Some(file) = record.seen.file().filter(|file| file.dev.major() == 0) else { continue };
            let of_device = self.devices.iter().find(|(dev, _)| u64::from(dev.0) == file.ino);
            if let Some((_, path)) = of_device
                && !paths.iter().any(|(known, _)| *known == file)
            {
                paths.push((file, path.clone()));
            }
        }
        captured.name_files(paths);
    }
}

/// The file of this name as a trace has it; the pages of a device are those of an inode that has the device's number.
pub(crate) fn inode_of(path: &Path) -> Option<Inode> {
    let metadata = fs::metadata(path).ok()?;
    if metadata.file_type().is_block_device() {
        return Some(Inode { dev: Dev::new(0, 0), ino: u64::from(dev(metadata.rdev()).0) });
    }
    Some(Inode { dev: dev(metadata.dev()), ino: metadata.ino() })
}

/// The node of a device, which may be called by its name in sysfs, too.
fn node(path: &Path) -> PathBuf {
    let named = path.components().count() == 1 && !path.exists();
    if named && Path::new("/sys/class/block").join(path).exists() {
        Path::new("/dev").join(path)
    } else {
        path.to_owned()
    }
}

/// The capture's settings, and the names of its subjects.
fn ask(request: &Request) -> Result<(Ask, Named), RecordError> {
    let children = !request.command.is_empty();
    let mut ask = Ask { level: request.level, children, via: request.via, stacks: request.stacks, ..Ask::default() };
    if request.buffer_kib > 0 {
        ask.buffer_kib = request.buffer_kib;
    }
    let mut named = Named::default();
    for path in request.devices.iter().map(|path| node(path)) {
        let metadata = look(&path)?;
        if !metadata.file_type().is_block_device() {
            return Err(RecordError::NoDevice(path.clone()));
        }
        let device = dev(metadata.rdev());
        named.devices.push((device, path.display().to_string()));
        ask.devices.push(device);
        ask.devices.extend(family(device));
    }
    for path in &request.files {
        let metadata = look(path)?;
        if metadata.file_type().is_block_device() {
            let device = dev(metadata.rdev());
            named.devices.push((device, path.display().to_string()));
            ask.devices.push(device);
            continue;
        }
        let inode = Inode { dev: dev(metadata.dev()), ino: metadata.ino() };
        named.files.push((inode, path.display().to_string()));
        ask.inodes.push(inode);
    }
    // Without files the pages are those of the tasks, or of the devices.
    if request.devices.is_empty() {
        ask.devices.extend(below(&request.files));
    }
    ask.devices.sort_unstable();
    ask.devices.dedup();
    Ok((ask, named))
}

fn spawn(command: &[String]) -> Result<Option<Running>, RecordError> {
    let Some((program, arguments)) = command.split_first() else { return Ok(None) };
    let running = Running::start(program, arguments);
    running.map(Some).map_err(|error| RecordError::Command { program: program.clone(), error })
}

/// Records. It ends with the command, with the last of the processes, after the time, or with a signal; then it waits
/// for the command without tracing it. `tell` gets messages while it goes on.
///
/// # Errors
/// If something that was named is not there, or the kernel cannot be traced.
pub fn record(request: &Request, tell: &mut dyn FnMut(&Problem)) -> Result<Recorded, RecordError> {
    record_started(request, || spawn(&request.command), tell)
}

/// The same with a command that is started by `start`.
///
/// # Errors
/// As for [`record`].
pub(crate) fn record_started(
    request: &Request,
    start: impl FnOnce() -> Result<Option<Running>, RecordError>,
    tell: &mut dyn FnMut(&Problem),
) -> Result<Recorded, RecordError> {
    let (mut ask, named) = ask(request)?;
    let targets = Targets::find(request).map_err(RecordError::Targets)?;
    let mut now = targets::processes();
    ask.pids = targets.members(&now);
    ask.named = !targets.all.is_empty();
    let mut known: BTreeSet<u32> = ask.pids.iter().copied().collect();
    let _signals = signal::Guard::take();
    let mut capture = Capture::start(&ask)?;
    let begun = Instant::now();
    let mut silence = Silence::new(&targets);
    // If it cannot be started, the capture is dropped and leaves nothing.
    let child = start()?;
    let mut watch = Watch::new(child.iter().map(|child| child.pid).collect());
    watch.add(&ask.pids);
    let mut ended = None;
    let (mut looked, mut pause) = (Instant::now(), FIRST_LOOK);
    let mut search: Option<Instant> = None;
    let mut glance = begun;
    while !signal::raised() {
        let left = request.length.map(|length| length.saturating_sub(begun.elapsed()));
        if left == Some(Duration::ZERO) {
            break;
        }
        // At once, too: of what was started before forks were followed.
        let start = Instant::now();
        let due = search.is_none_or(|at| at <= start) || silence.is_due();
        let entered = !due && glance <= start && targets.entered(&known);
        if ask.named && (due || entered) {
            now = targets::processes();
            let new: Vec<u32> = targets.members(&now).into_iter().filter(|pid| known.insert(*pid)).collect();
            // Children of those that are followed already are followed from their first event on.
            let strange = |pid: &u32| {
                let parent = now.iter().find(|it| it.pid == *pid).map_or(0, |it| it.parent);
                search.is_none() || !known.contains(&parent) || new.contains(&parent)
            };
            let others: Vec<u32> = new.iter().copied().filter(strange).collect();
            capture.follow(&others)?;
            watch.add(&others);
            silence.look(&targets, &now).iter().for_each(&mut *tell);
            search = Some(Instant::now() + targets::pause(start.elapsed()));
        }
        if glance <= start {
            glance = Instant::now() + targets::pause(start.elapsed());
        }
        if looked.elapsed() >= pause {
            watch.look();
            (looked, pause) = (Instant::now(), (2 * pause).min(LAST_LOOK));
        }
        let rest = left.unwrap_or(PAUSE).min(PAUSE).min(pause);
        match &child {
            Some(child) => {
                if let Ok(end) = child.ended_within(rest) {
                    ended = Some(end);
                    break;
                }
            }
            None if ask.named && !targets.live(&now) => break,
            None => std::thread::sleep(rest),
        }
    }
    let interrupted = signal::raised();
    let mut captured = capture.stop_and(|captured| {
        named.write(captured);
        files::write(captured);
    })?;
    // The kernel saves a name when a task is switched: of one that was quick, the name it had from us.
    let program = request.command.first().and_then(|program| Path::new(program).file_name());
    if let (Some(child), Some(program)) = (&child, program) {
        let name: String = program.to_string_lossy().chars().take(15).collect();
        let ours = captured.trace.names.iter_mut().find(|(pid, name)| *pid == child.pid && name.starts_with("iowhy"));
        ours.into_iter().for_each(|(_, known)| known.clone_from(&name));
    }
    let whole = ended.is_some();
    let ended = match (ended, child) {
        (None, Some(child)) => child.end(),
        (ended, _) => ended.flatten(),
    };
    let (status, usage) = ended.unzip();
    // What a command took after the trace ended is not in it.
    let usage = usage.filter(|_| whole);
    let exit = status.and_then(|status: ExitStatus| status.code());
    watch.write(&mut captured, &request.command, usage.as_ref().map(|usage| (usage, exit)));
    silence.write(&targets, &mut captured);
    if !request.files.is_empty() {
        of_files(&mut captured.trace, &named);
    }
    Ok(Recorded { captured, status, usage, interrupted })
}

/// Records the activity of threads and processes that `work` starts, and the devices below some paths. Activity of the
/// calling thread is not in the trace.
///
/// # Errors
/// If the kernel cannot be traced; then nothing is done. If the trace is lost afterwards, the result of the work is,
/// too.
pub fn during<T>(level: Level, paths: &[PathBuf], work: impl FnOnce() -> T) -> Result<(T, Captured), RecordError> {
    let named: Vec<PathBuf> = paths.iter().filter(|path| path.exists()).cloned().collect();
    let devices: Vec<PathBuf> = named.iter().filter(|path| is_device(path)).cloned().collect();
    let (mut ask, named) = ask(&Request { level, devices, ..Request::default() })?;
    ask.children = true;
    // Files may be made only now: their pages are found by who reads them. The pages of a device may be anybody's.
    if ask.devices.is_empty() {
        let capture = Capture::start(&ask)?;
        let done = work();
        let mut captured = capture.stop()?;
        of_devices(&mut captured.trace, &below(paths));
        return Ok((done, captured));
    }
    let capture = Capture::start(&ask)?;
    let done = work();
    let mut captured = capture.stop()?;
    named.write(&mut captured);
    Ok((done, captured))
}

/// Writes the settings of this process and of the disks in a trace into it, as they are now.
pub(crate) fn circumstances(captured: &mut Captured) {
    Watch::new(vec![std::process::id()]).write(captured, &[], None);
}

fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// Takes away bios and requests of other devices; none if no devices are known.
fn of_devices(trace: &mut Trace, devices: &[Dev]) {
    if devices.is_empty() {
        return;
    }
    let other = |dev: Dev| !devices.contains(&dev);
    trace.records.retain(|record| match &record.seen {
        Seen::Remap { extent, from, .. } => !other(extent.dev) || !other(*from),
        seen => seen.extent().is_none_or(|extent| !other(extent.dev)),
    });
}

/// Takes away calls on other files, and those on pipes and sockets. A call stays if its file was opened in the trace
/// and nothing says which it is.
fn of_files(trace: &mut Trace, named: &Named) {
    let joined = join::join(trace, &join::Who::default());
    let ours = |file: u32| {
        let inode = joined.files.get(file as usize).copied().unwrap_or_default();
        let of_device = |dev: Dev| inode.dev.major() == 0 && u64::from(dev.0) == inode.ino;
        named.files.iter().any(|(known, _)| *known == inode) || named.devices.iter().any(|(dev, _)| of_device(*dev))
    };
    let untold = |call: u32| joined.no_file.get(&call) == Some(&join::NoFile::Untold);
    let other = |call: &&join::CallRecord| !call.file.map_or_else(|| untold(call.call), ours);
    let others: BTreeSet<(u32, Nanos)> = joined.calls.iter().filter(other).map(|it| (it.pid, it.start)).collect();
    let mut within = BTreeSet::new();
    trace.records.retain(|record| match record.seen {
        Seen::CallStart { .. } if others.contains(&(record.pid, record.at)) => {
            within.insert(record.pid);
            false
        }
        Seen::CallEnd { .. } => !within.remove(&record.pid),
        _ => true,
    });
}

/// Events as messages for the user: lost ones, and those that the kernel does not offer, or not to this user.
pub fn complaints(captured: &Captured) -> Problems {
    let mut problems = Problems::default();
    let trace = &captured.trace;
    if trace.lost > 0 {
        let mut text = format!("{} lost", text::count(trace.lost, "event was", "events were"));
        let help = if captured.over_memory > 0 {
            text.push_str(&format!(", {} of them for want of memory", captured.over_memory));
            "a lower level, a shorter time, or only some files and processes"
        } else {
            "a larger --buffer, a lower level, or only some files and processes"
        };
        problems.push(Problem::warning(text).help(help));
    }
    for target in Settings::of(trace).silent {
        problems
            .push(Problem::warning(silent_text(&target)).help(
                "is it another process? `trace stat` lists who made calls: record without a target for a second",
            ));
    }
    if trace.inferred_windows {
        let text = "this kernel has no events of read-ahead: its windows can only be inferred from pages";
        problems.push(Problem::warning(text).help("they came to Linux with 6.18"));
    }
    let all = captured.missing.iter().map(String::as_str);
    let others = all.filter(|name| !name.starts_with("readahead:") && *name != STACKS && !name.starts_with(NO_BPF));
    let others: Vec<&str> = others.collect();
    if let Some(why) = captured.missing.iter().find_map(|name| name.strip_prefix(NO_BPF)) {
        let text = format!("no stacks were recorded: only BPF programs record them, but {why}");
        problems
            .push(Problem::warning(text).help("root, or CAP_BPF and CAP_PERFMON; `iowhy doctor` tries to load them"));
    } else if captured.missing.iter().any(|name| name == STACKS) {
        let text = "no stacks were recorded: only BPF programs record them, of named tasks, or of all at --level full";
        problems.push(Problem::warning(text).help(match captured.level {
            Level::Full => "record without --via tracefs",
            _ => "name a process or a command, or `trace record --level full`; not with --via tracefs",
        }));
    }
    if !others.is_empty() {
        let text = format!("not recorded: {}", others.join(", "));
        problems.push(Problem::warning(text).help("a newer kernel, or root, if these are wanted"));
    }
    if captured.undecoded > 0 {
        let text = format!("{} could not be decoded", text::count(captured.undecoded, "event", "events"));
        problems.push(Problem::warning(text));
    }
    problems
}

/// A capture's description of itself: the keys `level`, `length_s`, `records`, `lost`, `missing`, `inferred_windows`
/// and `cost`.
pub fn json(captured: &Captured) -> Value {
    let cost = &captured.cost;
    json!({
        "level": captured.level.name(),
        "length_s": captured.length.as_secs_f64(),
        "records": captured.trace.records.len(),
        "lost": captured.trace.lost,
        "missing": captured.missing,
        "inferred_windows": captured.trace.inferred_windows,
        "undecoded": captured.undecoded,
        "monotonic_ns": captured.monotonic_ns,
        "cost": {
            "events": cost.events,
            "bytes": cost.bytes,
            "reader_cpu_s": cost.reader_cpu.as_secs_f64(),
            "event_ns_estimate": cost.event_ps as f64 / 1000.0,
            "estimated_s": cost.estimated().as_secs_f64(),
        },
    })
}

/// The same in words: two lines.
pub fn summary(captured: &Captured) -> String {
    let cost = &captured.cost;
    format!(
        "{} in {:.3} s, level {}, {} lost\n\
         cost: about {:.3} ms of those traced ({:.0} ns an event, an estimate), {:.3} ms to read them\n",
        text::count(captured.trace.records.len() as u64, "record", "records"),
        captured.length.as_secs_f64(),
        captured.level.name(),
        captured.trace.lost,
        cost.estimated().as_secs_f64() * 1e3,
        cost.event_ps as f64 / 1e3,
        cost.reader_cpu.as_secs_f64() * 1e3,
    )
}

#[cfg(test)]
mod tests {
    use iowhy_stack::trace::{Extent, Record};

    use super::*;

    #[test]
    fn device_numbers_of_stat_become_those_of_the_kernel() {
        // 8:1 is sda1; the other has more than 8 bits of both.
        assert_eq!(dev(0x801), Dev::new(8, 1));
        let (major, minor) = (0x123_u64, 0x4_5678_u64);
        let number = (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12 | (major & !0xfff) << 32;
        assert_eq!(dev(number), Dev::new(0x123, 0x4_5678));
    }

    #[test]
    fn what_is_no_device_is_refused_before_anything_is_traced() {
        let request = Request { devices: vec![PathBuf::from("/dev/null")], ..Request::default() };
        assert!(matches!(record(&request, &mut |_| {}), Err(RecordError::NoDevice(_))));
        let request = Request { files: vec![PathBuf::from("/nowhere/at-all")], ..Request::default() };
        assert!(matches!(record(&request, &mut |_| {}), Err(RecordError::Path { .. })));
    }

    #[test]
    fn the_reason_for_missing_stacks_is_told() {
        let said = |level, missing: &[&str]| {
            let missing = missing.iter().map(|name| (*name).to_owned()).collect();
            complaints(&Captured { level, missing, ..Captured::default() }).render()
        };
        let refused = said(Level::Full, &[&format!("{NO_BPF}no room"), STACKS]);
        assert!(refused.contains("record them, but no room") && !refused.contains("--level"), "{refused}");
        assert!(!refused.contains("not recorded:"), "it is told once: {refused}");
        assert!(said(Level::Layers, &[STACKS]).contains("name a process or a command"));
        assert!(said(Level::Full, &[STACKS]).contains("without --via tracefs"));
        assert!(!said(Level::Full, &["jbd2:jbd2_end_commit"]).contains("stacks"));
    }

    #[test]
    fn pages_of_a_device_get_its_name() {
        let device = Dev::new(7, 3);
        let file = |dev, ino| Inode { dev, ino };
        let of_device = file(Dev::new(0, 3), u64::from(device.0));
        let of_a_file = file(Dev::new(8, 1), u64::from(device.0));
        let seen = |file| Record { seen: Seen::PageAdd { file, index: 0, order: 0 }, ..record_at(0) };
        let mut captured = Captured::default();
        captured.trace.records = vec![seen(of_a_file), seen(of_device), seen(of_device)];
        let named = Named { files: vec![(of_a_file, "a".into())], devices: vec![(device, "/dev/loop3".into())] };
        named.write(&mut captured);
        assert_eq!(captured.trace.paths, [(of_device, "/dev/loop3".to_owned()), (of_a_file, "a".to_owned())]);
    }

    fn record_at(ns: u64) -> Record {
        let at = iowhy_stack::units::Nanos(ns);
        Record { at, cpu: 0, pid: 1, seen: Seen::Plug { dev: None } }
    }

    #[test]
    fn requests_of_other_devices_are_left_out_and_nothing_else() {
        let on = |dev| Record { seen: Seen::Issue(Extent { dev, ..Extent::default() }), ..record_at(1) };
        let remapped = |to, from| Seen::Remap {
            extent: Extent { dev: to, ..Extent::default() },
            from,
            from_sector: iowhy_stack::units::Sector(0),
        };
        let (ours, other) = (Dev::new(8, 0), Dev::new(8, 16));
        let records = vec![
            record_at(0),
            on(ours),
            on(other),
            Record { seen: remapped(other, ours), ..record_at(2) },
            Record { seen: remapped(other, other), ..record_at(3) },
        ];
        let mut trace = Trace { records: records.clone(), ..Trace::default() };
        of_devices(&mut trace, &[ours]);
        assert_eq!(trace.records, [&records[..2], &records[3..4]].concat());
        let mut trace = Trace { records: records.clone(), ..Trace::default() };
        of_devices(&mut trace, &[]);
        assert_eq!(trace.records, records);
    }

    #[test]
    fn lost_events_and_missing_tracepoints_are_told() {
        let mut captured = Captured::default();
        assert!(complaints(&captured).list.is_empty());
        captured.trace.lost = 3;
        captured.over_memory = 2;
        captured.trace.inferred_windows = true;
        captured.missing = vec!["readahead:page_cache_sync_ra".into(), "block:block_split".into()];
        captured.undecoded = 1;
        let told = complaints(&captured).render();
        for text in ["3 events were lost, 2 of them", "no events of read-ahead", "block:block_split", "1 event could"] {
            assert!(told.contains(text), "{text}: {told}");
        }
        assert_eq!(told.matches("page_cache_sync_ra").count(), 0, "said once is enough: {told}");
    }
}

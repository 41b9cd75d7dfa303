//! The active fit: reads of several sizes, in several orders and depths, recorded as a trace and fitted like any other.
//!
//! Loads are jobs of fio behind one another, the most useful first; the list is as long as there is time for, once with
//! all layers recorded, and twice with requests alone, so that one half can be held back. Reads go to the whole disk
//! past the page cache; nothing is written but the scratch file that the user names. Calls on this program's own file,
//! which is in the page cache, show the cost of a call and a page. A signal ends it, and what was measured by then is
//! fitted.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use iowhy_fio::World;
use iowhy_fio::live::LiveJobs;
use iowhy_live::capture::Level;
use iowhy_live::machine::{Disk, Machine};
use iowhy_stack::histogram::Histogram;
use iowhy_stack::trace::Dev;
use iowhy_text::diagnose::Problems;

use iowhy_why::rules::cost::Paced;

use super::{Field, Profile};
use crate::recording::{self, RecordError};

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The path has no disk below it.
    #[error("{} has no disk below it; name a block device", .0.display())]
    NoDisk(PathBuf),
    /// The kernel could not be traced.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A job could not be run.
    #[error("cannot measure {}: {what}", path.display())]
    Run {
        /// Which device.
        path: PathBuf,
        what: String,
    },
    /// No command reached the device.
    #[error("no read reached {}", .0.display())]
    Nothing(PathBuf),
}

/// A load: order, size, calls in flight, and calls a second where it pauses between them (0: it does not).
type Load = (&'static str, &'static str, u32, u32);

/// Loads by usefulness; each is as long as the others.
const LOADS: &[Load] = &[
    ("read", "128k", 1, 0),
    ("randread", "128k", 1, 0),
    ("randread", "4k", 1, 0),
    ("randread", "1m", 1, 0),
    ("read", "1m", 1, 0),
    ("randread", "4k", 32, 0),
    ("randread", "128k", 8, 0),
    ("randread", "4k", 4, 0),
    ("read", "4k", 1, 0),
    ("randread", "512k", 1, 0),
    ("randread", "16k", 1, 0),
    ("randread", "4k", 8, 0),
    ("randread", "4k", 2, 0),
    ("read", "128k", 2, 0),
    ("randread", "4k", 16, 0),
    ("read", "512k", 1, 0),
    ("randread", "32k", 1, 0),
    ("randread", "4k", 1, 50),
    ("read", "128k", 1, 50),
    ("randread", "1m", 8, 0),
    ("randread", "32k", 16, 0),
    ("randread", "4k", 64, 0),
    ("read", "128k", 8, 0),
];

/// Loads on a scratch file.
const WRITES: &[Load] = &[
    ("randwrite", "4k", 1, 0),
    ("randwrite", "128k", 1, 0),
    ("write", "128k", 1, 0),
    ("write", "1m", 1, 0),
    ("randwrite", "4k", 32, 0),
    ("randwrite", "128k", 8, 0),
];
const SCRATCH: &str = "256m";

/// Pauses between the reads of [`paced`], calls with pauses, and the time of each load without.
const PAUSED_HZ: u32 = 40;
const PAUSED: u32 = 10;
const AT_ONCE: &str = "200ms";

/// A probe of this length has two passes, one with a recording of all layers and one of requests alone: the former
/// slows the calls, and the device where processors serve it.
const LONG: Duration = Duration::from_secs(5);

/// Least time of a load, and most calls of one.
const SHORTEST: Duration = Duration::from_millis(120);
const MOST_CALLS: u32 = 2_000;

impl Profile {
    /// Measures the disk below a path by reading from it, for about `length`; root may.
    ///
    /// # Errors
    /// Why nothing was measured.
    pub fn probe(device: &Path, length: Duration) -> Result<Profile, ProbeError> {
        Profile::probe_with(device, length, None)
    }

    /// The same with writes and flushes on a scratch file, which it makes or overwrites.
    ///
    /// # Errors
    /// Why nothing was measured.
    pub fn probe_with(device: &Path, length: Duration, scratch: Option<&Path>) -> Result<Profile, ProbeError> {
        let disk = Disk::below(device);
        let (Some(name), Some((major, minor))) = (disk.name.clone(), disk.number) else {
            return Err(ProbeError::NoDisk(device.to_owned()));
        };
        let node = Path::new("/dev").join(&name);
        let failed = |what: String| ProbeError::Run { path: node.clone(), what };
        let mib = size_of(&name).unwrap_or(0.0) as u64 / 2048;
        let device = Dev::new(major, minor);
        let paths: Vec<PathBuf> = std::iter::once(node.clone()).chain(scratch.map(Path::to_owned)).collect();
        let pass = |level, rounds, length| {
            let mut jobs = made(&jobs(&node, mib, rounds, length, scratch)).map_err(&failed)?;
            jobs.plan.allow.write.extend(scratch.map(Path::to_owned));
            let run = || iowhy_live::run::run(&jobs.plan, &|_| {});
            let (outcome, captured) = recording::during(level, &paths, run)?;
            let outcome = outcome.map_err(|error| failed(error.to_string()))?;
            let errors: u64 = outcome.threads.iter().map(|thread| thread.nr_errors).sum();
            if errors > 0 {
                return Err(failed(iowhy_text::count(errors, "call failed", "calls failed")));
            }
            let names = jobs.threads.iter().map(|thread| jobs.file.jobs[thread.job].name.clone());
            let reads = outcome.threads.into_iter().map(|thread| {
                let [reads, ..] = thread.latency;
                reads.total
            });
            let latencies: Vec<(String, Histogram)> = names.zip(reads).collect();
            Ok((captured.trace, latencies, outcome.interrupted))
        };
        let long = length >= LONG;
        let (layers, _, ended) = pass(Level::Layers, 1, if long { length / 3 } else { length })?;
        let light = if long && !ended { Some(pass(Level::Light, 2, length - length / 3)?) } else { None };
        // A signal leaves the first pass, which has had every load once.
        let mut profile = match light.filter(|(.., ended)| !ended) {
            None => Profile::of_trace(&layers, device),
            Some((requests, latencies, _)) => Profile::of_passes(&layers, &requests, device, &|load| {
                let mut latency = Histogram::default();
                latencies.iter().filter(|(name, _)| name.starts_with(load)).for_each(|(_, of)| latency.merge(of));
                latency.quantile(1, 2).map(|ns| ns as f64)
            }),
        };
        if profile.service.rows.iter().all(Vec::is_empty) {
            return Err(ProbeError::Nothing(node));
        }
        profile.name = name;
        profile.read_settings(&disk);
        Ok(profile)
    }

    /// Adds the facts that the kernel has of the disk and the machine.
    fn read_settings(&mut self, disk: &Disk) {
        let exact = |value: f64, unit| Field { value, low: value, high: value, unit, known: true };
        let folder = Path::new("/sys/block").join(disk.name.as_deref().unwrap_or_default());
        let rotational = disk.queue.rotational.map(|rotational| f64::from(u8::from(rotational)));
        let queues = std::fs::read_dir(folder.join("mq")).ok().map(|mq| mq.count() as f64).filter(|nr| *nr > 0.0);
        for (name, value, unit) in [
            ("capacity_sectors", disk.name.as_deref().and_then(size_of), "sectors"),
            ("rotational", rotational, ""),
            ("queues", queues, "queues"),
            ("cpus", Machine::read().cpus.map(f64::from), "CPUs"),
        ] {
            self.fields.extend(value.map(|value| (name.to_owned(), exact(value, unit))));
        }
    }
}

/// Sectors of a whole disk.
fn size_of(name: &str) -> Option<f64> {
    std::fs::read_to_string(Path::new("/sys/block").join(name).join("size")).ok()?.trim().parse().ok()
}

/// Jobs that are run here, and make no files.
fn made(text: &str) -> Result<LiveJobs, String> {
    let mut problems = Problems::default();
    let world = World { live: true, ..World::empty() };
    let file = iowhy_fio::parse("probe", text, &world, &mut problems);
    let jobs = file.and_then(|file| iowhy_fio::live::jobs(file, None, &world, &mut problems));
    let mut jobs = jobs.ok_or_else(|| problems.render().trim().to_owned())?;
    jobs.plan.allow.directory = None;
    Ok(jobs)
}

/// Most that the middle half of the reads of a load may be apart, as a part of their median: a cap has a pace, and a
/// drive its time to wake up; what varies more waits for a busy machine.
const APART: f64 = 0.25;

/// Times of small and large reads of a disk, with pauses between them and without; nothing if it cannot be read, if
/// they are not steady, or if a signal ends it. It takes a second.
pub(crate) fn paced(disk: &str) -> Option<Paced> {
    let mut text = format!("[global]\nfilename=/dev/{disk}\nrw=randread\nioengine=psync\ndirect=1\nrandrepeat=0\n");
    for (rate, more) in [(PAUSED_HZ, format!("number_ios={PAUSED}")), (0, format!("runtime={AT_ONCE}"))] {
        for sectors in [Paced::SMALL, Paced::LARGE] {
            let _ = writeln!(text, "[{rate}-{sectors}]\nstonewall\nbs={}k\n{more}", sectors / 2);
            let _ = writeln!(text, "{}", if rate > 0 { format!("rate_iops={rate}") } else { String::new() });
        }
    }
    let outcome = iowhy_live::run::run(&made(&text).ok()?.plan, &|_| {}).ok()?;
    let quartiles = |nr: usize| {
        let thread = outcome.threads.get(nr).filter(|thread| thread.nr_errors == 0)?;
        let quartile = |nr: u64| Some(thread.latency[0].completion.quantile(nr, 4)? as f64);
        Some([quartile(1)?, quartile(2)?, quartile(3)?])
    };
    let all = [quartiles(0)?, quartiles(1)?, quartiles(2)?, quartiles(3)?];
    let middle = all.map(|[_, middle, _]| middle);
    // Against the longer of the two that are compared: what is far below it may vary.
    let steady = |nr: usize| all[nr][2] - all[nr][0] <= APART * middle[nr].max(middle[(nr + 2) % 4]);
    let [paused, at_once] = [[middle[0], middle[1]], [middle[2], middle[3]]];
    (!outcome.interrupted && (0..4).all(steady)).then_some(Paced { paused, at_once })
}

/// The loads as jobs of fio, on a disk of `mib` MiB; all of them `rounds` times.
fn jobs(node: &Path, mib: u64, rounds: u32, length: Duration, scratch: Option<&Path>) -> String {
    let written = if scratch.is_some() { WRITES.len() + 1 } else { 0 };
    let least = SHORTEST.max(length / 60);
    let nr = (length.as_nanos() / least.as_nanos()) as usize / rounds as usize;
    let reads = &LOADS[..LOADS.len().min(nr.saturating_sub(written).max(4))];
    // Some time goes by between two loads.
    let each = (length / (rounds * (reads.len() + written) as u32)).mul_f64(0.9).as_millis().max(20);
    let mut text = format!("[global]\nruntime={each}ms\nnumber_ios={MOST_CALLS}\nrandrepeat=0\nstonewall\n");
    text.push_str("[warm]\nfilename=/proc/self/exe\nrw=read\nbs=64k\nsize=4m\ninvalidate=0\n");
    for bs in ["4k", "64k"] {
        let _ = writeln!(text, "[cached-{bs}]\nfilename=/proc/self/exe\nrw=read\nbs={bs}\nsize=4m\ninvalidate=0");
    }
    let mut add = |nr: usize, path: &Path, (rw, bs, depth, rate): &Load, more: &str| {
        let _ = writeln!(text, "[{rw}-{bs}-{depth}-{rate}-{nr}]\nfilename={}\nrw={rw}\nbs={bs}", path.display());
        let engine = if *depth > 1 { "libaio" } else { "psync" };
        let _ = writeln!(text, "direct=1\nioengine={engine}\niodepth={depth}\n{more}");
        if *rate > 0 {
            let _ = writeln!(text, "rate_iops={rate}");
        }
        if *rw == "read" {
            // Every stream somewhere else.
            let _ = writeln!(text, "offset={}m", mib * ((nr as u64 * 37 + 11) % 80) / 100);
        }
    };
    for round in 0..rounds as usize {
        for (nr, load) in reads.iter().enumerate() {
            add(round * LOADS.len() + nr, node, load, "");
        }
        if let Some(scratch) = scratch {
            let size = format!("size={SCRATCH}");
            WRITES.iter().enumerate().for_each(|(nr, load)| add(round * LOADS.len() + nr, scratch, load, &size));
            add(round, scratch, &("randwrite", "4k", 1, 0), &format!("{size}\nfsync=1"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_jobs_and_only_those_on_a_scratch_file_write() {
        for (seconds, scratch, most) in [(1, None, 16), (120, None, 49), (120, Some(Path::new("/tmp/scratch")), 63)] {
            let rounds = if seconds == 1 { 1 } else { 2 };
            let text = jobs(Path::new("/dev/null"), 4096, rounds, Duration::from_secs(seconds), scratch);
            let mut problems = Problems::default();
            let world = World { live: true, ..World::empty() };
            let file = iowhy_fio::parse("probe", &text, &world, &mut problems);
            assert!(problems.list.is_empty(), "{}", problems.render());
            let jobs = file.expect("jobs").jobs;
            assert!((8..=most).contains(&jobs.len()), "{}", jobs.len());
            for section in text.split("\n[").filter(|section| section.contains("write")) {
                assert!(section.contains("filename=/tmp/scratch\n"), "{section}");
            }
        }
    }
}

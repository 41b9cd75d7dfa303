//! Sums of calls and requests that the kernel makes, of a command, of processes or of the whole machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use iowhy_live::capture::sum::{Key, Layer, Op, Sum, Summed, Sums};
use iowhy_live::signal;
use iowhy_stack::trace::{Dev, Inode};
use iowhy_text as text;
use serde_json::{Value, json};

use super::targets::{self, Targets};
use super::{PAUSE, RecordError, Request, ask, spawn};

/// Sums, and how their end came.
#[derive(Debug)]
pub struct Done {
    pub summed: Summed,
    /// Names of the disks.
    pub disks: BTreeMap<Dev, String>,
    /// How the command ended.
    pub status: Option<ExitStatus>,
    /// A signal ended it.
    pub interrupted: bool,
}

/// Rows of a table, and characters of the longest bar.
const ROWS: usize = 20;
const BAR: u64 = 40;

/// Sums up until the command or the last of the processes ends, the time is over, or a signal comes. `memory` bytes are
/// for the sums.
///
/// # Errors
/// If something that was named is not there, or the kernel makes no sums.
pub fn sum(request: &Request, memory: u64) -> Result<Done, RecordError> {
    let (mut ask, named) = ask(request)?;
    let targets = Targets::find(request).map_err(RecordError::Targets)?;
    let mut members: BTreeSet<u32> = targets.members(&targets::processes()).into_iter().collect();
    ask.pids = members.iter().copied().collect();
    ask.named = !targets.all.is_empty();
    let _signals = signal::Guard::take();
    let mut sums = Sums::start(&ask, memory)?;
    let child = spawn(&request.command)?;
    let (begun, mut search) = (Instant::now(), Instant::now());
    let mut ended = None;
    while !signal::raised() {
        let left = request.length.map_or(Duration::MAX, |length| length.saturating_sub(begun.elapsed()));
        if let Some(child) = &child
            && let Ok(end) = child.ended_within(Duration::ZERO)
        {
            ended = Some(end);
            break;
        }
        if left.is_zero() {
            break;
        }
        if ask.named && search <= Instant::now() {
            let start = Instant::now();
            let now = targets::processes();
            let new: Vec<u32> = targets.members(&now).into_iter().filter(|pid| members.insert(*pid)).collect();
            sums.follow(&new)?;
            members.retain(|pid| now.iter().any(|it| it.pid == *pid));
            if members.is_empty() && !targets.live(&now) {
                break;
            }
            search = Instant::now() + targets::pause(start.elapsed());
        }
        sums.wait(left.min(PAUSE));
    }
    let interrupted = signal::raised();
    let mut summed = sums.stop()?;
    summed.paths.extend(named.files);
    let disks = summed.sums.keys().map(|key| key.disk).filter(|disk| *disk != Dev::default());
    let disks = disks.map(|disk| (disk, name(disk))).collect();
    let ended = match (ended, child) {
        (None, Some(child)) => child.end(),
        (ended, _) => ended.flatten(),
    };
    Ok(Done { summed, disks, status: ended.map(|(status, _)| status), interrupted })
}

/// A disk's name, or its number.
fn name(disk: Dev) -> String {
    let number = format!("{}:{}", disk.major(), disk.minor());
    let link = fs::read_link(format!("/sys/dev/block/{number}")).ok();
    link.and_then(|link| Some(link.file_name()?.to_string_lossy().into_owned())).unwrap_or(number)
}

fn file(done: &Done, file: Inode) -> String {
    let number = || format!("{}:{} inode {}", file.dev.major(), file.dev.minor(), file.ino);
    if file == Inode::default() { "-".to_owned() } else { done.summed.paths.get(&file).cloned().unwrap_or_else(number) }
}

/// As JSON, without `schema` (`iowhy.trace-sum/1`).
pub fn json(done: &Done) -> Value {
    let summed = &done.summed;
    let row = |(key, sum): (&Key, &Sum)| {
        json!({
            "layer": key.layer.name(),
            "op": key.op.name(),
            "pid": key.pid,
            "comm": summed.comms.get(&key.pid),
            "file": (key.file != Inode::default()).then(|| json!({
                "path": summed.paths.get(&key.file),
                "dev": format!("{}:{}", key.file.dev.major(), key.file.dev.minor()),
                "inode": key.file.ino,
            })),
            "disk": done.disks.get(&key.disk),
            "count": sum.count,
            "failed": sum.failed,
            "bytes": sum.bytes,
            "ns": sum.ns,
            "p50_ns": sum.quantile_ns(0.5),
            "p99_ns": sum.quantile_ns(0.99),
            "longest_ns": sum.longest_ns,
            "buckets": sum.buckets.iter().map(|((from, _), count)| [from, count]).collect::<Vec<_>>(),
        })
    };
    json!({
        "level": summed.level.name(),
        "length_s": summed.length.as_secs_f64(),
        "events": summed.events(),
        "lost": summed.lost,
        "interrupted": done.interrupted,
        "rows": summed.sums.iter().map(row).collect::<Vec<_>>(),
    })
}

fn time(ns: u64) -> String {
    text::quantity(ns as f64, "ns", 3)
}

/// As a table, the most time first, and a histogram for each layer and operation.
pub fn text(done: &Done) -> String {
    let summed = &done.summed;
    let mut out = format!(
        "{:.1} s, level {}, {}, {} lost\n\n",
        summed.length.as_secs_f64(),
        summed.level.name(),
        text::count(summed.events(), "event", "events"),
        text::grouped(summed.lost)
    );
    let mut rows: Vec<(&Key, &Sum)> = summed.sums.iter().collect();
    rows.sort_by_key(|(key, sum)| (std::cmp::Reverse((sum.ns, sum.count)), **key));
    out.push_str(&format!(
        "{:<6} {:<7} {:>7} {:<15} {:<8} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8}  file\n",
        "layer", "op", "pid", "process", "disk", "count", "bytes", "time", "p50", "p99", "longest"
    ));
    for (key, sum) in rows.iter().take(ROWS) {
        out.push_str(&format!(
            "{:<6} {:<7} {:>7} {:<15} {:<8} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8}  {}\n",
            key.layer.name(),
            key.op.name(),
            key.pid,
            summed.comms.get(&key.pid).map_or("-", String::as_str),
            done.disks.get(&key.disk).map_or("-", String::as_str),
            sum.count,
            text::size(sum.bytes),
            time(sum.ns),
            time(sum.quantile_ns(0.5)),
            time(sum.quantile_ns(0.99)),
            time(sum.longest_ns),
            file(done, key.file),
        ));
    }
    if rows.len() > ROWS {
        out.push_str(&format!("and {} with less time: --json has all\n", rows.len() - ROWS));
    }
    let mut all: BTreeMap<(Layer, Op), Sum> = BTreeMap::new();
    for (key, sum) in rows.iter().filter(|(key, _)| key.layer != Layer::Pages) {
        all.entry((key.layer, key.op)).or_default().add(sum);
    }
    for ((layer, op), sum) in all {
        out.push_str(&format!("\n{} {}: {}, {}\n", layer.name(), op.name(), text::grouped(sum.count), time(sum.ns)));
        let mut powers: BTreeMap<u32, u64> = BTreeMap::new();
        for ((from, _), count) in &sum.buckets {
            *powers.entry(from.max(&1).ilog2()).or_default() += count;
        }
        let most = powers.values().copied().max().unwrap_or(1);
        for (power, count) in powers {
            let bar = "#".repeat((count * BAR).div_ceil(most) as usize);
            let from = if power == 0 { 0 } else { 1 << power };
            out.push_str(&format!("  from {:>7}  {:>9}  {bar}\n", time(from), count));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_time_comes_first_and_buckets_are_drawn() {
        let key = |pid, layer| Key { pid, layer, op: Op::Read, file: Inode { dev: Dev(1), ino: 7 }, disk: Dev(0) };
        let sum = |count, from: u64| Sum {
            count,
            ns: count * from,
            longest_ns: from,
            buckets: BTreeMap::from([((from, 2 * from), count)]),
            ..Sum::default()
        };
        let mut summed = Summed::default();
        summed.sums.insert(key(1, Layer::Call), sum(40, 64));
        summed.sums.insert(key(2, Layer::Call), sum(20, 1024));
        summed.paths.insert(Inode { dev: Dev(1), ino: 7 }, "/x".to_owned());
        let done = Done { summed, disks: BTreeMap::new(), status: None, interrupted: false };
        let text = text(&done);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("120 events") && lines[3].ends_with("/x"), "{text}");
        assert_eq!(lines[3].split_whitespace().nth(2), Some("2"), "{text}");
        assert!(text.ends_with(&format!("       20  {}\n", "#".repeat(20))), "{text}");
        assert_eq!(json(&done)["rows"][0]["buckets"], json!([[64, 40]]));
    }
}

//! Statistics of a trace: phases, requests, queue, pages, and who did what.
//!
//! The parts are [`phases`](crate::phases), [`queue`] (the disk counters, and sizes,
//! batches, depth, seeks) and [`cache`] (windows, hits, processes); this file puts them together, as JSON
//! (`iowhy.trace/1`) and as text.
//!
//! The rows of `iostat` agree with an iostat that runs during the capture within rounding. The meaning of its times
//! depends on the kernel that the trace names: [`queue`] has the rules, `tests/counters_live.rs` holds them against
//! iostat.
//!
//! Pages are foreign if a process put them into a file that is not the workload's. The workload is the selected
//! processes; otherwise the processes with the name that made the most calls, or queued the most bios in a trace
//! without calls.

use crate::iostat::{self, Host, Sample};
use crate::join::Who;
use crate::join::beside::tree;
use crate::phases::{Phase, Phases, Table, Tables};
use crate::settings::{Command, Settings, silent_text};
use iowhy_stack::event::Event;
use iowhy_stack::histogram::Histogram;
use iowhy_stack::trace::{Dev, Inode, Seen, Trace};
use iowhy_stack::units::Nanos;
use iowhy_text::{count, grouped};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

pub mod cache;
pub mod queue;

#[cfg(test)]
mod tests;

use cache::{Cache, Share};
use queue::{Direction, Disk, Plugs, Sizes};

/// Most intervals of the report: shorter ones are refused with a warning rather than fill memory.
const MAX_INTERVALS: u64 = 1_000_000;
/// Rows of a table in the text.
const MAX_ROWS: usize = 12;

/// Settings.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// Rows of `iostat` for each interval of this length, besides the one over the whole trace.
    pub interval: Option<Nanos>,
    /// The workload's processes; empty if they are to be found from the calls in the trace.
    pub workload: Vec<u32>,
}

/// Why a figure may not be what it seems.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// Events that the kernel had no room for.
    Lost(u64),
    /// Windows were inferred from pages, because the kernel has no tracepoints for them.
    InferredWindows,
    /// Allocations of requests are not traced: times are from the issue on, and merges are unknown.
    NoAllocations,
    /// Bios are not traced: requests have D2C, and no other phase can be known.
    OnlyRequests,
    /// Completions without a request in the trace.
    Unmatched(u64),
    /// Requests that were not completed in the trace.
    Unfinished(u64),
    /// The workload was guessed.
    GuessedWorkload,
    /// Lookups are not traced: hits are calls less the pages they added.
    NoLookups,
    /// The interval is too short for a trace this long.
    TooManyIntervals,
}

impl Warning {
    /// A word for programs.
    pub fn code(self) -> &'static str {
        match self {
            Warning::Lost(_) => "lost-events",
            Warning::InferredWindows => "inferred-windows",
            Warning::NoAllocations => "no-allocations",
            Warning::OnlyRequests => "only-requests",
            Warning::Unmatched(_) => "unmatched-completions",
            Warning::Unfinished(_) => "unfinished-requests",
            Warning::GuessedWorkload => "guessed-workload",
            Warning::NoLookups => "no-lookups",
            Warning::TooManyIntervals => "too-many-intervals",
        }
    }

    /// A sentence for people.
    pub fn text(self) -> String {
        match self {
            Warning::Lost(n) => {
                format!(
                    "{} lost: every count is too small, and phases may pair wrongly",
                    count(n, "event was", "events were")
                )
            }
            Warning::InferredWindows => "windows are inferred from the pages that were added".to_owned(),
            Warning::NoAllocations => {
                "allocations are not traced: await is from the issue on, merges are not known".to_owned()
            }
            Warning::OnlyRequests => {
                "bios are not traced: of the phases only D2C is known, not Q2G, G2I, I2D or Q2C (--trace=layers)"
                    .to_owned()
            }
            Warning::Unmatched(n) => {
                format!("{} of requests begun before the trace", count(n, "completion is", "completions are"))
            }
            Warning::Unfinished(n) => {
                format!("{} not completed in the trace", count(n, "request was", "requests were"))
            }
            Warning::GuessedWorkload => "no process was named as the workload: the busiest name was taken".to_owned(),
            Warning::NoLookups => {
                "lookups are not traced: hits are the pages that calls read less those they added".to_owned()
            }
            Warning::TooManyIntervals => "the interval is too short for this trace and was ignored".to_owned(),
        }
    }
}

/// Statistics of a trace.
#[derive(Clone, Debug, Default)]
pub struct Stat {
    /// Phases of bios.
    pub phases: Tables,
    /// Devices with requests, in the order of their numbers.
    pub disks: Vec<(Dev, Disk)>,
    /// Requests held back and let go.
    pub plugs: Plugs,
    /// Pages.
    pub cache: Cache,
    /// Ends of the intervals, then of the trace, ns.
    pub ends: Vec<u64>,
    /// Length of the trace, ns.
    pub length_ns: u64,
    pub records: u64,
    /// Events that the kernel had no room for.
    pub lost: u64,
    /// Resource usage of the command, if it is a recording of one.
    pub command: Option<Command>,
    /// The workload's processes.
    pub workload: Vec<u32>,
    /// Names of processes.
    pub names: Vec<(u32, String)>,
    /// Names of devices, where known; others are `8:0`.
    pub device_names: Vec<(Dev, String)>,
    /// Paths of files.
    pub paths: Vec<(Inode, String)>,
    pub kernel: String,
    pub warnings: Vec<Warning>,
    /// Targets of the recording that made no call.
    pub silent: Vec<String>,
}

/// Counts the events of a trace.
pub fn stat(trace: &Trace, ask: &Ask) -> Stat {
    let records = &trace.records;
    let settings = Settings::of(trace);
    let mut phases = Phases::default();
    records.iter().for_each(|record| phases.add(record));
    let length_ns = records.last().map_or(0, |record| record.at.0);
    let mut warnings = Vec::new();
    let ends = ends(length_ns, ask.interval.map_or(0, |interval| interval.0), &mut warnings);
    let (disks, plugs) = queue::disks(records, &ends, &trace.kernel);
    let cache = cache::cache(records, trace.inferred_windows);
    if trace.lost > 0 {
        warnings.push(Warning::Lost(trace.lost));
    }
    if cache.windows.inferred {
        warnings.push(Warning::InferredWindows);
    }
    let has = |of: fn(&Seen) -> bool| records.iter().any(|record| of(&record.seen));
    if has(|seen| matches!(seen, Seen::Issue(_))) && !has(|seen| matches!(seen, Seen::GetRequest(_))) {
        warnings.push(Warning::NoAllocations);
    }
    let phases = phases.finish();
    if !phases.absent().is_empty() {
        warnings.push(Warning::OnlyRequests);
    }
    let sum = |of: fn(&Disk) -> u64| disks.iter().map(|(_, disk)| of(disk)).sum::<u64>();
    let told = [Warning::Unmatched(sum(|disk| disk.unmatched)), Warning::Unfinished(sum(|disk| disk.unfinished))];
    warnings
        .extend(told.into_iter().filter(|warning| !matches!(warning, Warning::Unmatched(0) | Warning::Unfinished(0))));
    // The recorder's own word comes before a guess.
    let named = tree(trace, &Who { pids: ask.workload.clone(), ..Who::default() });
    let workload = named.map_or_else(|| busiest(trace, &cache), |tree| tree.into_iter().collect());
    if ask.workload.is_empty()
        && settings.roots.is_empty()
        && cache.shares.keys().any(|(_, pid)| !workload.contains(pid))
    {
        warnings.push(Warning::GuessedWorkload);
    }
    if cache.lookups.calls > 0 && !cache.lookups.traced {
        warnings.push(Warning::NoLookups);
    }
    Stat {
        phases,
        device_names: settings.device_names(),
        disks,
        plugs,
        cache,
        ends,
        length_ns,
        records: records.len() as u64,
        lost: trace.lost,
        command: settings.command,
        silent: settings.silent,
        workload,
        names: trace.names.clone(),
        paths: trace.paths.clone(),
        kernel: trace.kernel.clone(),
        warnings,
    }
}

/// Statistics of a simulated run.
pub fn of_events(events: &[Event], ask: &Ask) -> Stat {
    stat(&super::bridge::trace_of_events(events), ask)
}

/// Ends of the intervals, and of the trace.
fn ends(length: u64, interval: u64, warnings: &mut Vec<Warning>) -> Vec<u64> {
    let mut ends = Vec::new();
    match length.checked_div(interval) {
        None => {}
        Some(whole) if whole >= MAX_INTERVALS => warnings.push(Warning::TooManyIntervals),
        Some(whole) => ends.extend((1..=whole).map(|nr| nr * interval).filter(|end| *end < length)),
    }
    ends.push(length);
    ends
}

/// Processes of the name that makes the most calls, or else bios; sorted.
fn busiest(trace: &Trace, cache: &Cache) -> Vec<u32> {
    let mut by_pid = cache.calls.clone();
    if by_pid.is_empty() {
        for record in trace.records.iter().filter(|record| matches!(record.seen, Seen::Queue(_))) {
            *by_pid.entry(record.pid).or_default() += 1;
        }
    }
    let name = |pid: u32| trace.name(pid).map_or_else(|| pid.to_string(), str::to_owned);
    let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
    for (pid, n) in &by_pid {
        *by_name.entry(name(*pid)).or_default() += n;
    }
    // The first of equals, so that the same trace has the same workload.
    let most = by_name.values().copied().max().unwrap_or(0);
    let busiest = by_name.into_iter().find(|(_, n)| *n == most).map(|(name, _)| name);
    let mut pids: Vec<u32> = by_pid.into_keys().filter(|pid| Some(name(*pid)) == busiest).collect();
    pids.sort_unstable();
    pids
}

/// A row of the table of processes.
struct Row<'a> {
    file: Inode,
    path: Option<&'a str>,
    name: String,
    pids: Vec<u32>,
    share: Share,
    foreign: bool,
}

impl Stat {
    fn name(&self, pid: u32) -> String {
        match self.names.binary_search_by_key(&pid, |(known, _)| *known) {
            Ok(found) => self.names[found].1.clone(),
            Err(_) => format!("pid {pid}"),
        }
    }

    fn device_name(&self, dev: Dev) -> String {
        let known = self.device_names.iter().find(|(known, _)| *known == dev);
        known.map_or_else(|| format!("{}:{}", dev.major(), dev.minor()), |(_, name)| name.clone())
    }

    /// Processes that added pages, by file: threads of one name together, the most pages first.
    fn rows(&self) -> Vec<Row<'_>> {
        let mut rows: BTreeMap<(Inode, String, bool), Row<'_>> = BTreeMap::new();
        for ((file, pid), share) in &self.cache.shares {
            let name = self.name(*pid);
            let foreign = !self.workload.contains(pid);
            let path = self.paths.iter().find(|(known, _)| known == file).map(|(_, path)| path.as_str());
            let row = rows.entry((*file, name.clone(), foreign)).or_insert_with(|| Row {
                file: *file,
                path,
                name,
                pids: Vec::new(),
                share: Share::default(),
                foreign,
            });
            row.pids.push(*pid);
            row.share.added += share.added;
            row.share.left += share.left;
        }
        let mut rows: Vec<Row<'_>> = rows.into_values().collect();
        rows.sort_by(|a, b| b.share.added.cmp(&a.share.added).then_with(|| a.name.cmp(&b.name)));
        rows
    }

    /// `iostat`'s rows over the whole trace, by device.
    pub fn iostat(&self) -> Vec<(String, Sample)> {
        let last = |disk: &Disk| disk.readings.last().copied().unwrap_or_default();
        let sample = |disk: &Disk| Sample { counted: last(disk), elapsed_ms: self.length_ns / 1_000_000 };
        self.disks.iter().map(|(dev, disk)| (self.device_name(*dev), sample(disk))).collect()
    }

    /// The same for each interval; nothing if none was asked for.
    pub fn intervals(&self) -> Vec<Vec<(String, Sample)>> {
        if self.ends.len() < 2 {
            return Vec::new();
        }
        let of = |(dev, disk): &(Dev, Disk)| {
            let readings = self.ends.iter().map(|end| end / 1_000_000).zip(disk.readings.iter().copied());
            (self.device_name(*dev), iostat::samples(&readings.collect::<Vec<_>>()))
        };
        let disks: Vec<(String, Vec<Sample>)> = self.disks.iter().map(of).collect();
        (0..self.ends.len())
            .map(|nr| disks.iter().map(|(name, samples)| (name.clone(), samples[nr])).collect())
            .collect()
    }

    /// `iowhy.trace/1`.
    pub fn json(&self) -> Value {
        let devices: Map<String, Value> =
            self.phases.devices.iter().map(|(dev, table)| (self.device_name(*dev), phases_json(table))).collect();
        let Cache { windows, lookups, .. } = &self.cache;
        let disks: Vec<Value> = self.disks.iter().map(|(dev, disk)| self.disk_json(*dev, disk)).collect();
        json!({
            "schema": "iowhy.trace/1",
            "kernel": self.kernel,
            "records": self.records,
            "length_ns": self.length_ns,
            "lost": self.lost,
            "command": self.command.map(|command| command.json()),
            "phases": phases_json(&self.phases.all),
            "devices": devices,
            "iostat": self.iostat_rows(),
            "requests": disks,
            "plug": {
                "plugs": self.plugs.plugs,
                "unplugs": self.plugs.unplugs,
                "timer_unplugs": self.plugs.timer_unplugs,
                "batch": histogram_json(&self.plugs.batches),
            },
            "windows": {
                "n": windows.n,
                "sync": windows.sync,
                "async": windows.ahead,
                "pages": windows.pages,
                "added": windows.added,
                "used": windows.used,
                "wasted": windows.wasted,
                "thrashed": windows.thrashed,
                "inferred": windows.inferred,
            },
            "cache": {
                "looked_up": lookups.looked_up,
                "missed": lookups.missed,
                "hit_ratio": lookups.hit_ratio(),
                "calls": lookups.calls,
                "direct_calls": lookups.direct_calls,
                "other_calls": lookups.other_calls,
                "lookups_traced": lookups.traced,
                "pages_removed": self.cache.removed,
            },
            "workload": {
                "pids": self.workload,
                "guessed": self.warnings.contains(&Warning::GuessedWorkload),
            },
            "processes": self.processes_json(),
            "warnings": self.messages().iter().map(|(code, text)| {
                json!({ "code": code, "text": text })
            }).collect::<Vec<_>>(),
        })
    }

    /// Warnings: a word for programs, and a sentence.
    fn messages(&self) -> Vec<(&'static str, String)> {
        let silent = self.silent.iter().map(|target| ("silent-target", silent_text(target)));
        silent.chain(self.warnings.iter().map(|warning| (warning.code(), warning.text()))).collect()
    }

    fn iostat_rows(&self) -> Vec<Value> {
        let host = Host { nodename: String::new(), release: String::new(), cpus: 0 };
        let row = |from: u64, to: u64, devices: &[(String, Sample)]| {
            let report = iostat::json(&host, &[borrowed(devices)]);
            json!({ "from_ns": from, "to_ns": to, "disk": report["sysstat"]["hosts"][0]["statistics"][0]["disk"] })
        };
        let mut rows = vec![row(0, self.length_ns, &self.iostat())];
        let mut from = 0;
        for (devices, end) in self.intervals().iter().zip(&self.ends) {
            rows.push(row(from, *end, devices));
            from = *end;
        }
        rows
    }

    fn disk_json(&self, dev: Dev, disk: &Disk) -> Value {
        let share = |ns: u64| if self.length_ns == 0 { 0.0 } else { 100.0 * ns as f64 / self.length_ns as f64 };
        json!({
            "device": self.device_name(dev),
            "read": direction_json(&disk.read),
            "write": direction_json(&disk.write),
            "discard": direction_json(&disk.discard),
            "issues": disk.issues,
            "requeues": disk.requeues,
            "splits": disk.splits,
            "depth": histogram_json(&disk.depth),
            "busy_pct": share(disk.busy_ns),
            "idle_waiting_ns": disk.idle_waiting_ns,
            "idle_waiting_pct": share(disk.idle_waiting_ns),
            "seeks": disk.seeks,
            "seek_sectors": disk.seek_sectors,
            "unmatched": disk.unmatched,
            "unfinished": disk.unfinished,
        })
    }

    fn processes_json(&self) -> Vec<Value> {
        let row = |row: &Row<'_>| {
            json!({
                "name": row.name,
                "pids": row.pids,
                "file": format!("{}:{} {}", row.file.dev.major(), row.file.dev.minor(), row.file.ino),
                "path": row.path,
                "pages_added": row.share.added,
                "pages_left": row.share.left,
                "foreign": row.foreign,
            })
        };
        self.rows().iter().map(row).collect()
    }

    /// For people, 80 columns.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_text(&mut out);
        out
    }

    fn write_text(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "{} in {}", count(self.records, "record", "records"), time(self.length_ns))?;
        if let Some(command) = self.command {
            let [user, system] = command.cpu_ns.map(time);
            writeln!(out, "command: {} by the clock, {user} user, {system} system", time(command.wall_ns()))?;
        }
        self.write_rows(out)?;
        self.write_phases(out)?;
        self.write_disks(out)?;
        self.write_caches(out)?;
        for (_, text) in self.messages() {
            for (nr, line) in iowhy_text::wrap(&format!("warning: {text}"), 78).iter().enumerate() {
                writeln!(out, "{}{line}", if nr == 0 { "\n" } else { "  " })?;
            }
        }
        Ok(())
    }

    fn write_phases(&self, out: &mut String) -> std::fmt::Result {
        let shown: Vec<Phase> = Phase::ALL.into_iter().filter(|it| self.phases.all.of(*it).count() > 0).collect();
        if shown.is_empty() {
            return Ok(());
        }
        write!(out, "\nPhase        n        min        avg        p50        p99        max\n")?;
        for phase in Phase::ALL {
            let times = self.phases.all.of(phase);
            let (Some(min), Some(max)) = (times.min(), times.max()) else { continue };
            let average = (times.sum() / u128::from(times.count())) as u64;
            let [p50, p99] = [50, 99].map(|percent| times.quantile(percent, 100).unwrap_or(0));
            write!(out, "{:<5} {:>8}", phase.name(), times.count())?;
            for ns in [min, average, p50, p99, max] {
                write!(out, " {:>10}", time(ns))?;
            }
            out.push('\n');
        }
        let meanings: Vec<String> = shown.iter().map(|it| format!("{} {}", it.name(), it.meaning())).collect();
        let only_requests = !self.phases.absent().is_empty();
        let counted = if only_requests { "requests" } else { "bios, each with the times of its request" };
        let mut text = format!("{}. They count {counted}, with both ends in the trace.", meanings.join("; "));
        if shown.iter().any(|it| matches!(it, Phase::Q2qDm | Phase::Q2aDm | Phase::Q2cDm)) {
            text.push_str(" dm: of devices numbered 9, 253 or 254, as btt has it (md, dm, some virtio disks).");
        }
        let requests: u64 =
            self.disks.iter().flat_map(|(_, it)| [&it.read, &it.write, &it.discard]).map(|it| it.requests.n()).sum();
        let done = self.phases.all.of(Phase::D2c).count();
        if done < requests {
            let (done, requests) = (grouped(done), count(requests, "request", "requests"));
            text.push_str(&format!(
                " D2C has {done}, of {requests} below: of the others the bio, the issue or the completion is not here."
            ));
        }
        iowhy_text::wrap(&text, 78).iter().try_for_each(|line| writeln!(out, "  {line}"))
    }

    fn write_disks(&self, out: &mut String) -> std::fmt::Result {
        for ((dev, disk), (_, sample)) in self.disks.iter().zip(self.iostat()) {
            writeln!(out, "\nDevice {}", self.device_name(*dev))?;
            for (name, direction) in [("read", &disk.read), ("write", &disk.write), ("discard", &disk.discard)] {
                if direction.bios.n() + direction.requests.n() > 0 {
                    let merges = direction.back_merges + direction.front_merges + direction.request_merges;
                    writeln!(
                        out,
                        "  {name:<8} {} ({}), {} ({}), {}",
                        count(direction.bios.n(), "bio", "bios"),
                        sizes(&direction.bios),
                        count(direction.requests.n(), "request", "requests"),
                        sizes(&direction.requests),
                        count(merges, "merge", "merges"),
                    )?;
                }
            }
            let depth = [50, 99].map(|percent| disk.depth.quantile(percent, 100).unwrap_or(0));
            let most = disk.depth.max().unwrap_or(0);
            writeln!(out, "  depth    p50 {}, p99 {}, at most {most}", depth[0], depth[1])?;
            writeln!(
                out,
                "  busy     {}, idle while requests wait {}",
                time(disk.busy_ns),
                time(disk.idle_waiting_ns)
            )?;
            writeln!(out, "  seeks    {} of {}", grouped(disk.seeks), count(disk.issues, "issue", "issues"))?;
            for (title, value) in sample.short() {
                write!(out, "{}{title} {value:.2}", if title == "tps" { "  iostat   " } else { ", " })?;
            }
            out.push('\n');
        }
        Ok(())
    }

    fn write_caches(&self, out: &mut String) -> std::fmt::Result {
        if self.plugs.unplugs > 0 {
            writeln!(
                out,
                "\nPlugs: {}, {} by the timer; requests a batch p50 {}, at most {}",
                count(self.plugs.unplugs, "unplug", "unplugs"),
                self.plugs.timer_unplugs,
                self.plugs.batches.quantile(1, 2).unwrap_or(0),
                self.plugs.batches.max().unwrap_or(0),
            )?;
        }
        let Cache { windows, lookups, .. } = &self.cache;
        if windows.n > 0 {
            writeln!(
                out,
                "\nRead-ahead: {}, {}: {} used, {} wasted, {} thrashed",
                count(windows.n, "window", "windows"),
                count(windows.added, "page added", "pages added"),
                grouped(windows.used),
                grouped(windows.wasted),
                grouped(windows.thrashed),
            )?;
        }
        if let Some(ratio) = lookups.hit_ratio() {
            writeln!(
                out,
                "\nPage cache: {:.1} % hits ({} looked up, {} missed; {} direct)",
                100.0 * ratio,
                count(lookups.looked_up, "page", "pages"),
                grouped(lookups.missed),
                count(lookups.direct_calls, "call was", "calls were"),
            )?;
            let (found, brought) = self.cache.found();
            if brought > 0 {
                writeln!(
                    out,
                    "  {} of the hits are pages that read-ahead had just brought from the device;\n  {} were there \
                     before, or read again.",
                    grouped(brought),
                    grouped(found - brought),
                )?;
            }
        }
        Ok(())
    }

    fn write_rows(&self, out: &mut String) -> std::fmt::Result {
        let rows = self.rows();
        if !rows.is_empty() {
            write!(out, "\nWho put pages into the cache, and how many were there at the end\n")?;
            writeln!(out, "   Pages   still  Process           File")?;
        }
        for row in rows.iter().take(MAX_ROWS) {
            let file = row
                .path
                .map_or_else(|| format!("inode {} of {}", row.file.ino, self.device_name(row.file.dev)), str::to_owned);
            let mark = if row.foreign { "  FOREIGN" } else { "" };
            let room = 80 - 36 - mark.len();
            writeln!(
                out,
                "{:>8} {:>7}  {:<17} {}{mark}",
                row.share.added,
                row.share.left,
                row.name,
                shortened(&file, room)
            )?;
        }
        if rows.len() > MAX_ROWS {
            writeln!(out, "  ... and {} more", rows.len() - MAX_ROWS)?;
        }
        if rows.iter().any(|row| row.foreign) {
            let mut names: Vec<String> = self.workload.iter().map(|pid| self.name(*pid)).collect();
            names.sort();
            names.dedup();
            let of = shortened(&names.join(", "), 40);
            let text =
                format!("FOREIGN: put there by a process outside the workload ({of}; --pid PID chooses another).");
            iowhy_text::wrap(&text, 78).iter().try_for_each(|line| writeln!(out, "  {line}"))?;
        }
        Ok(())
    }
}

/// The end of a path that fits.
fn shortened(path: &str, room: usize) -> String {
    let length = path.chars().count();
    if length <= room {
        return path.to_owned();
    }
    format!("...{}", path.chars().skip(length + 3 - room).collect::<String>())
}

fn borrowed(row: &[(String, Sample)]) -> Vec<(&str, Sample)> {
    row.iter().map(|(name, sample)| (name.as_str(), *sample)).collect()
}

/// A time in the unit that suits it.
fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.2} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

fn sizes(sizes: &Sizes) -> String {
    let kib = |bytes: f64| format!("{:.1} KiB", bytes / 1024.0);
    match sizes.n() {
        0 => "none".to_owned(),
        n => kib(sizes.bytes() as f64 / n as f64),
    }
}

fn sizes_json(sizes: &Sizes) -> Value {
    json!({
        "n": sizes.n(),
        "bytes": sizes.bytes(),
        "min_bytes": sizes.by_bytes.keys().next(),
        "p50_bytes": sizes.percentile(50),
        "p99_bytes": sizes.percentile(99),
        "max_bytes": sizes.by_bytes.keys().next_back(),
        "by_bytes": sizes.by_bytes.iter().map(|(bytes, n)| json!([bytes, n])).collect::<Vec<_>>(),
    })
}

fn direction_json(direction: &Direction) -> Value {
    json!({
        "bios": sizes_json(&direction.bios),
        "requests": sizes_json(&direction.requests),
        "back_merges": direction.back_merges,
        "front_merges": direction.front_merges,
        "request_merges": direction.request_merges,
        "completed_bytes": direction.completed_bytes,
    })
}

/// The figures of a histogram without a unit.
fn histogram_json(histogram: &Histogram) -> Value {
    let n = histogram.count();
    json!({
        "n": n,
        "min": histogram.min(),
        "avg": (n > 0).then(|| histogram.sum() as f64 / n as f64),
        "p50": histogram.quantile(50, 100),
        "p99": histogram.quantile(99, 100),
        "max": histogram.max(),
    })
}

/// The figures of each phase that happened, and of the common ones in any case.
fn phases_json(table: &Table) -> Value {
    let of = |phase: &Phase| {
        let times = table.of(*phase);
        let n = times.count();
        let value = json!({
            "n": n,
            "min_ns": times.min(),
            "avg_ns": (n > 0).then(|| times.sum() as f64 / n as f64),
            "p50_ns": times.quantile(50, 100),
            "p99_ns": times.quantile(99, 100),
            "max_ns": times.max(),
            "by_power_of_two": powers(times),
        });
        (n > 0 || phase.is_common()).then(|| (phase.name().to_owned(), value))
    };
    Value::Object(Phase::ALL.iter().filter_map(of).collect())
}

/// How many values there are from each power of two up to the next, as pairs; 0 is with 1.
fn powers(histogram: &Histogram) -> Value {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for (lowest, _, n) in histogram.buckets() {
        *counts.entry(1 << lowest.max(1).ilog2()).or_default() += n;
    }
    counts.into_iter().map(|(lowest, n)| json!([lowest, n])).collect()
}

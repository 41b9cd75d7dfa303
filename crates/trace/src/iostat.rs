//! `iostat -x` from the counters that the kernel keeps for each disk.
//!
//! A sample is the difference of two readings of [`DiskStats`] and the time between them. Every layout of sysstat is a
//! table of columns: title, width, and where the figure comes from.
//!
//! The meaning of the counters depends on the kernel:
//! - Up to 4.17 there are 11 fields; 4.18 adds four of discards, 5.5 two of flushes. Fields that a kernel does not have
//!   are zero here and are not printed by layouts that know which there are.
//! - Completed requests are counted after merging, sectors are of 512 bytes, times are in ms and summed over requests
//!   from their allocation to their completion, so they include the time in the elevator. From 6.9 on the start is that
//!   of the first request in the same plug.
//! - `weighted` is the integral of the requests in flight up to 4.20, and the sum of the times of completed requests,
//!   flushes among them, from 5.0 on. The latter knows nothing of a request before it is done.
//! - `io_ticks` is the time during which at least one request was in flight. From 5.0 on kernels sample it at the ticks
//!   of their clock, so `%util` (and `svctm`, which is made of it) should be compared within one kernel only.
//!
//! Rows made from a trace agree with a concurrent run of iostat within rounding: rates and sizes to the printed digits,
//! mean times within 0.01 ms, the 2 ms that are cut off two sums, and the time that the kernel takes to end bios after
//! C, `%util` within a tick of the clock and its luck. `tests/counters_live.rs` derives it and looks.
//!
//! Source: the columns, their definitions and the keys of the JSON are those of sysstat (the JSON keys as 12.6.1 writes
//! them; the same test holds its columns and the title of [`Version::V12`] against the iostat that is installed). Known
//! deviations: the widths of the columns of older layouts are as remembered from published reports; the JSON has no CPU
//! times and no date.

use iowhy_stack::layers::{Commands, Layers};
use serde_json::{Map, Value, json};

/// Counters of one direction.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct DirStats {
    /// Requests completed.
    pub ios: u64,
    /// Requests merged into another one.
    pub merges: u64,
    /// Sectors of 512 bytes.
    pub sectors: u64,
    /// Time in requests, ms, summed over them.
    pub ticks_ms: u64,
}

/// The fields of a line of `/proc/diskstats` after the name.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// Fields 1 to 4.
    pub read: DirStats,
    /// Fields 5 to 8.
    pub write: DirStats,
    /// Field 9: requests in flight now, the only one that is not a counter.
    pub in_flight: u64,
    /// Field 10: time with a request in flight, ms.
    pub io_ticks_ms: u64,
    /// Field 11: requests in flight integrated over time, ms.
    pub weighted_ms: u64,
    /// Fields 12 to 15.
    pub discard: DirStats,
    /// Field 16: flush requests completed.
    pub flush_ios: u64,
    /// Field 17: time in them, ms.
    pub flush_ticks_ms: u64,
}

impl DiskStats {
    /// Reads a line of `/proc/diskstats`: the device's name and its 11, 15 or 17 fields.
    pub fn parse(line: &str) -> Option<(&str, DiskStats)> {
        let mut words = line.split_whitespace();
        let name = words.nth(2)?;
        let fields: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        Some((name, DiskStats::from_fields(&fields)?))
    }

    /// Takes 11, 15 or 17 fields in the kernel's order.
    pub fn from_fields(fields: &[u64]) -> Option<DiskStats> {
        if ![11, 15, 17].contains(&fields.len()) {
            return None;
        }
        let field = |nr: usize| fields.get(nr - 1).copied().unwrap_or(0);
        let direction = |first: usize| DirStats {
            ios: field(first),
            merges: field(first + 1),
            sectors: field(first + 2),
            ticks_ms: field(first + 3),
        };
        Some(DiskStats {
            read: direction(1),
            write: direction(5),
            in_flight: field(9),
            io_ticks_ms: field(10),
            weighted_ms: field(11),
            discard: direction(12),
            flush_ios: field(16),
            flush_ticks_ms: field(17),
        })
    }

    /// The counters at the end of a simulated run, as its kernel would show them.
    pub fn of_layers(layers: &Layers) -> DiskStats {
        let ms = |ns: u64| ns / 1_000_000;
        let direction = |commands: &Commands| DirStats {
            ios: commands.completed,
            merges: commands.merges,
            sectors: commands.sectors,
            ticks_ms: ms(commands.ticks.0),
        };
        DiskStats {
            read: direction(&layers.reads),
            write: direction(&layers.writes),
            io_ticks_ms: ms(layers.queue_busy.0),
            weighted_ms: u64::try_from(layers.queue_time / 1_000_000).unwrap_or(u64::MAX),
            ..DiskStats::default()
        }
    }

    /// Counts since `earlier`. Counters wrap around, as the kernel's do.
    pub fn since(&self, earlier: &DiskStats) -> DiskStats {
        let direction = |now: &DirStats, then: &DirStats| DirStats {
            ios: now.ios.wrapping_sub(then.ios),
            merges: now.merges.wrapping_sub(then.merges),
            sectors: now.sectors.wrapping_sub(then.sectors),
            ticks_ms: now.ticks_ms.wrapping_sub(then.ticks_ms),
        };
        DiskStats {
            read: direction(&self.read, &earlier.read),
            write: direction(&self.write, &earlier.write),
            in_flight: self.in_flight,
            io_ticks_ms: self.io_ticks_ms.wrapping_sub(earlier.io_ticks_ms),
            weighted_ms: self.weighted_ms.wrapping_sub(earlier.weighted_ms),
            discard: direction(&self.discard, &earlier.discard),
            flush_ios: self.flush_ios.wrapping_sub(earlier.flush_ios),
            flush_ticks_ms: self.flush_ticks_ms.wrapping_sub(earlier.flush_ticks_ms),
        }
    }
}

/// Activity of a disk between two readings.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The counters' differences.
    pub counted: DiskStats,
    /// Time between the readings, ms.
    pub elapsed_ms: u64,
}

/// Samples from readings with their times, in order: the first one is since the machine started, like iostat's.
pub fn samples(readings: &[(u64, DiskStats)]) -> Vec<Sample> {
    let mut before = (0, DiskStats::default());
    readings
        .iter()
        .map(|(at_ms, stats)| {
            let sample = Sample { counted: stats.since(&before.1), elapsed_ms: at_ms.saturating_sub(before.0) };
            before = (*at_ms, *stats);
            sample
        })
        .collect()
}

/// `a / b`, 0 where nothing is divided.
fn div(a: f64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a / b as f64 }
}

impl Sample {
    fn per_s(&self, n: u64) -> f64 {
        div(1000.0 * n as f64, self.elapsed_ms)
    }

    /// Reads and writes completed: the old layouts know no other requests.
    fn ios(&self) -> u64 {
        self.counted.read.ios + self.counted.write.ios
    }

    fn ticks_ms(&self) -> u64 {
        self.counted.read.ticks_ms + self.counted.write.ticks_ms
    }

    /// Whether nothing was completed.
    pub fn is_idle(&self) -> bool {
        self.ios() == 0 && self.counted.discard.ios == 0 && self.counted.flush_ios == 0
    }

    /// Average size of a read or write, sectors.
    pub fn avgrq_sz(&self) -> f64 {
        div((self.counted.read.sectors + self.counted.write.sectors) as f64, self.ios())
    }

    /// Average number of requests in the queue and at the device (`avgqu-sz`, later `aqu-sz`).
    pub fn avgqu_sz(&self) -> f64 {
        div(self.counted.weighted_ms as f64, self.elapsed_ms)
    }

    /// Average time of a read or write, ms.
    pub fn await_ms(&self) -> f64 {
        div(self.ticks_ms() as f64, self.ios())
    }

    /// Busy time for each read or write, ms: sysstat's service time before it gave it up.
    pub fn svctm_ms(&self) -> f64 {
        div(self.counted.io_ticks_ms as f64, self.ios())
    }

    /// Share of the time with a request in flight, percent.
    pub fn util_pct(&self) -> f64 {
        div(100.0 * self.counted.io_ticks_ms as f64, self.elapsed_ms)
    }

    /// The columns of the short form (`-s`): tps, kB/s, rqm/s, await, areq-sz, aqu-sz, %util. All kinds of requests.
    pub fn short(&self) -> [(&'static str, f64); 7] {
        let directions = [self.counted.read, self.counted.write, self.counted.discard];
        let sum = |of: fn(&DirStats) -> u64| directions.iter().map(of).sum::<u64>();
        let (ios, sectors) = (sum(|dir| dir.ios), sum(|dir| dir.sectors));
        [
            ("tps", self.per_s(ios)),
            ("kB/s", self.per_s(sectors) / 2.0),
            ("rqm/s", self.per_s(sum(|dir| dir.merges))),
            ("await", div(sum(|dir| dir.ticks_ms) as f64, ios)),
            ("areq-sz", div(sectors as f64 / 2.0, ios)),
            ("aqu-sz", self.avgqu_sz()),
            ("%util", self.util_pct()),
        ]
    }
}

/// A generation of sysstat's extended report.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Version {
    /// Sectors, one `await`.
    Oldest,
    /// kB, `r_await` and `w_await` next to `await`: sysstat 9 and 10.
    Old,
    /// Sizes by direction, `svctm` still there: sysstat 11.
    V11,
    /// Reads, writes, discards and flushes apart: sysstat 12 and later.
    V12,
}

struct Column {
    title: &'static str,
    width: usize,
    of: Of,
}

const fn column(title: &'static str, width: usize, of: Of) -> Column {
    Column { title, width, of }
}

fn merged_pct(dir: &DirStats) -> f64 {
    div(100.0 * dir.merges as f64, dir.merges + dir.ios)
}

const RRQM: Column = column("rrqm/s", 8, |s| s.per_s(s.counted.read.merges));
const WRQM: Column = column("wrqm/s", 8, |s| s.per_s(s.counted.write.merges));
const R: Column = column("r/s", 7, |s| s.per_s(s.counted.read.ios));
const W: Column = column("w/s", 7, |s| s.per_s(s.counted.write.ios));
const RSEC: Column = column("rsec/s", 8, |s| s.per_s(s.counted.read.sectors));
const WSEC: Column = column("wsec/s", 8, |s| s.per_s(s.counted.write.sectors));
const RKB: Column = column("rkB/s", 9, |s| s.per_s(s.counted.read.sectors) / 2.0);
const WKB: Column = column("wkB/s", 9, |s| s.per_s(s.counted.write.sectors) / 2.0);
const AVGRQ: Column = column("avgrq-sz", 8, Sample::avgrq_sz);
const AVGQU: Column = column("avgqu-sz", 8, Sample::avgqu_sz);
const AWAIT: Column = column("await", 7, Sample::await_ms);
const R_AWAIT: Column = column("r_await", 7, |s| div(s.counted.read.ticks_ms as f64, s.counted.read.ios));
const W_AWAIT: Column = column("w_await", 7, |s| div(s.counted.write.ticks_ms as f64, s.counted.write.ios));
const SVCTM: Column = column("svctm", 6, Sample::svctm_ms);
const UTIL: Column = column("%util", 6, Sample::util_pct);
const RRQM_PCT: Column = column("%rrqm", 6, |s| merged_pct(&s.counted.read));
const WRQM_PCT: Column = column("%wrqm", 6, |s| merged_pct(&s.counted.write));
const RAREQ: Column = column("rareq-sz", 8, |s| div(s.counted.read.sectors as f64 / 2.0, s.counted.read.ios));
const WAREQ: Column = column("wareq-sz", 8, |s| div(s.counted.write.sectors as f64 / 2.0, s.counted.write.ios));
const D: Column = column("d/s", 7, |s| s.per_s(s.counted.discard.ios));
const DKB: Column = column("dkB/s", 9, |s| s.per_s(s.counted.discard.sectors) / 2.0);
const DRQM: Column = column("drqm/s", 8, |s| s.per_s(s.counted.discard.merges));
const DRQM_PCT: Column = column("%drqm", 6, |s| merged_pct(&s.counted.discard));
const D_AWAIT: Column = column("d_await", 7, |s| div(s.counted.discard.ticks_ms as f64, s.counted.discard.ios));
const DAREQ: Column = column("dareq-sz", 8, |s| div(s.counted.discard.sectors as f64 / 2.0, s.counted.discard.ios));
const F: Column = column("f/s", 7, |s| s.per_s(s.counted.flush_ios));
const F_AWAIT: Column = column("f_await", 7, |s| div(s.counted.flush_ticks_ms as f64, s.counted.flush_ios));

const fn narrow(column: Column, width: usize) -> Column {
    Column { width, ..column }
}

const OLDEST: &[Column] = &[RRQM, WRQM, R, W, RSEC, WSEC, AVGRQ, AVGQU, AWAIT, SVCTM, UTIL];
const OLD: &[Column] =
    &[RRQM, WRQM, R, W, narrow(RKB, 8), narrow(WKB, 8), AVGRQ, AVGQU, AWAIT, R_AWAIT, W_AWAIT, SVCTM, UTIL];
const V11: &[Column] = &[
    R,
    W,
    RKB,
    WKB,
    RRQM,
    WRQM,
    RRQM_PCT,
    WRQM_PCT,
    R_AWAIT,
    W_AWAIT,
    column("aqu-sz", 6, Sample::avgqu_sz),
    RAREQ,
    WAREQ,
    SVCTM,
    UTIL,
];
const V12: &[Column] = &[
    R,
    RKB,
    RRQM,
    RRQM_PCT,
    R_AWAIT,
    RAREQ,
    W,
    WKB,
    WRQM,
    WRQM_PCT,
    W_AWAIT,
    WAREQ,
    D,
    DKB,
    DRQM,
    DRQM_PCT,
    D_AWAIT,
    DAREQ,
    F,
    F_AWAIT,
    column("aqu-sz", 7, Sample::avgqu_sz),
    UTIL,
];

impl Version {
    fn columns(self) -> &'static [Column] {
        match self {
            Version::Oldest => OLDEST,
            Version::Old => OLD,
            Version::V11 => V11,
            Version::V12 => V12,
        }
    }
}

/// The extended report of some devices over one interval, ending in a newline.
pub fn text(version: Version, devices: &[(&str, Sample)]) -> String {
    let device = if matches!(version, Version::Oldest | Version::Old) { "Device:" } else { "Device" };
    let mut out = format!("{device:<13}");
    for column in version.columns() {
        out.push_str(&format!(" {:>width$}", column.title, width = column.width));
    }
    out.push('\n');
    for (name, sample) in devices {
        out.push_str(&format!("{name:<13}"));
        for column in version.columns() {
            out.push_str(&format!(" {:width$.2}", (column.of)(sample), width = column.width));
        }
        out.push('\n');
    }
    out
}

/// The host that a report is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub nodename: String,
    /// The kernel's version.
    pub release: String,
    pub cpus: u32,
}

/// The report as `iostat -x -o JSON`: one entry of `statistics` for each interval, each with its devices. CPU times are
/// unknown to a disk and are left out; a simulated run has no date.
pub fn json(host: &Host, intervals: &[Vec<(&str, Sample)>]) -> Value {
    let statistics: Vec<Value> = intervals
        .iter()
        .map(|devices| devices.iter().map(|(name, sample)| disk_json(name, sample)).collect::<Vec<_>>())
        .map(|disks| json!({ "disk": disks }))
        .collect();
    json!({
        "sysstat": {
            "hosts": [{
                "nodename": host.nodename,
                "sysname": "Linux",
                "release": host.release,
                "machine": "simulated",
                "number-of-cpus": host.cpus,
                "statistics": statistics,
            }],
        },
    })
}

/// One device of the JSON report: the columns of today, rounded to two digits as iostat does, percentages without
/// their sign.
fn disk_json(name: &str, sample: &Sample) -> Value {
    let mut object = Map::new();
    object.insert("disk_device".to_owned(), name.into());
    // iostat groups the keys by kind in JSON and by direction in text.
    const KEYS: &[&str] = &[
        "r/s", "w/s", "d/s", "f/s", "rkB/s", "wkB/s", "dkB/s", "rrqm/s", "wrqm/s", "drqm/s", "%rrqm", "%wrqm", "%drqm",
        "r_await", "w_await", "d_await", "f_await", "rareq-sz", "wareq-sz", "dareq-sz", "aqu-sz", "%util",
    ];
    for key in KEYS {
        if let Some(column) = V12.iter().find(|column| column.title == *key) {
            let value = ((column.of)(sample) * 100.0).round() / 100.0;
            object.insert(key.trim_start_matches('%').to_owned(), value.into());
        }
    }
    Value::Object(object)
}

/// A figure of a sample.
type Of = fn(&Sample) -> f64;

/// Names that mmtests gives the columns of its iostat monitor, and where they come from.
pub const MONITOR: &[(&str, Of)] = &[
    ("avgqusz", Sample::avgqu_sz),
    ("avgrqsz", Sample::avgrq_sz),
    ("await", Sample::await_ms),
    ("r_await", R_AWAIT.of),
    ("w_await", W_AWAIT.of),
    ("svctm", Sample::svctm_ms),
    ("rrqm", RRQM.of),
    ("wrqm", WRQM.of),
];

/// One figure of one sample by the monitor's name.
pub fn monitor_value(name: &str, sample: &Sample) -> Option<f64> {
    MONITOR.iter().find(|(known, _)| *known == name).map(|(_, of)| of(sample))
}

/// Rows `device-name` of mmtests' iostat monitor with their samples. The first sample, since the machine started, is
/// dropped, and so is a device that did nothing in the others; an idle sample of a device that worked counts.
pub fn monitor(device: &str, samples: &[Sample]) -> Vec<(String, Vec<f64>)> {
    let samples = samples.get(1..).unwrap_or_default();
    if samples.iter().all(Sample::is_idle) {
        return Vec::new();
    }
    MONITOR.iter().map(|(name, of)| (format!("{device}-{name}"), samples.iter().map(of).collect())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy() -> Sample {
        let fields = [100, 50, 25_600, 400, 20, 5, 640, 2000, 0, 300, 2400, 4, 0, 8192, 8, 10, 30];
        let counted = DiskStats::from_fields(&fields).expect("17 fields");
        Sample { counted, elapsed_ms: 2000 }
    }

    #[test]
    fn old_layouts() {
        let expected = "\
Device:         rrqm/s   wrqm/s     r/s     w/s   rsec/s   wsec/s avgrq-sz avgqu-sz   await  svctm  %util
sda              25.00     2.50   50.00   10.00 12800.00   320.00   218.67     1.20   20.00   2.50  15.00
";
        assert_eq!(text(Version::Oldest, &[("sda", busy())]), expected);
        let expected = "\
Device:         rrqm/s   wrqm/s     r/s     w/s    rkB/s    wkB/s avgrq-sz avgqu-sz   await r_await w_await  svctm  \
                        %util
sda              25.00     2.50   50.00   10.00  6400.00   160.00   218.67     1.20   20.00    4.00  100.00   2.50  \
                        15.00
";
        assert_eq!(text(Version::Old, &[("sda", busy())]), expected);
    }

    #[test]
    fn newer_layouts() {
        let expected = "\
Device            r/s     w/s     rkB/s     wkB/s   rrqm/s   wrqm/s  %rrqm  %wrqm r_await w_await aqu-sz rareq-sz \
                        wareq-sz  svctm  %util
sda             50.00   10.00   6400.00    160.00    25.00     2.50  33.33  20.00    4.00  100.00   1.20   128.00    \
                        16.00   2.50  15.00
";
        assert_eq!(text(Version::V11, &[("sda", busy())]), expected);
        let expected = "\
Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s   wrqm/s  %wrqm w_await wareq-sz \
                        \x20   d/s     dkB/s   drqm/s  %drqm d_await dareq-sz     f/s f_await  aqu-sz  %util
sda             50.00   6400.00    25.00  33.33    4.00   128.00   10.00    160.00     2.50  20.00  100.00    16.00    \
                        2.00   2048.00     0.00   0.00    2.00  1024.00    5.00    3.00    1.20  15.00
";
        assert_eq!(text(Version::V12, &[("sda", busy())]), expected);
    }

    #[test]
    fn nothing_divided_by_nothing_is_zero() {
        for version in [Version::Oldest, Version::Old, Version::V11, Version::V12] {
            for elapsed_ms in [0, 1000] {
                let report = text(version, &[("sda", Sample { elapsed_ms, ..Sample::default() })]);
                let row = report.lines().nth(1).expect("a row");
                assert!(row.split_whitespace().skip(1).all(|figure| figure == "0.00"), "{row}");
            }
        }
        assert!(Sample { elapsed_ms: 1000, ..Sample::default() }.short().iter().all(|(_, value)| *value == 0.0));
    }

    #[test]
    fn lines_of_every_kernel_are_read() {
        let table = [
            ("   8  0 sda 1 2 3 4 5 6 7 8 9 10 11", Some((0, 0))),
            ("   8  0 sda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15", Some((12, 0))),
            ("   8  0 sda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17", Some((12, 16))),
            ("   8  1 sda1 1 2 3 4", None),
            ("   8  0 sda 1 2 3 4 5 6 7 8 9 10 x", None),
            ("", None),
        ];
        for (line, expected) in table {
            let parsed = DiskStats::parse(line);
            let seen = parsed.map(|(_, stats)| (stats.discard.ios, stats.flush_ios));
            assert_eq!(seen, expected, "{line}");
            if let Some((name, stats)) = parsed {
                assert_eq!((name, stats.read.sectors, stats.write.ios, stats.weighted_ms), ("sda", 3, 5, 11));
            }
        }
    }

    #[test]
    fn json_has_the_keys_of_iostat() {
        let host = Host { nodename: "sim".to_owned(), release: "6.18".to_owned(), cpus: 8 };
        let report = json(&host, &[vec![("sda", busy())]]);
        let disk = &report["sysstat"]["hosts"][0]["statistics"][0]["disk"][0];
        let keys: Vec<&str> = disk.as_object().expect("an object").keys().map(String::as_str).collect();
        let expected = "disk_device r/s w/s d/s f/s rkB/s wkB/s dkB/s rrqm/s wrqm/s drqm/s rrqm wrqm drqm r_await \
                        w_await d_await f_await rareq-sz wareq-sz dareq-sz aqu-sz util";
        assert_eq!(keys.join(" "), expected);
        assert_eq!((disk["rrqm"].as_f64(), disk["util"].as_f64()), (Some(33.33), Some(15.0)));
    }

    #[test]
    fn the_monitor_drops_the_first_sample_and_devices_that_do_nothing() {
        let mut readings = vec![(1000, DiskStats::default())];
        let mut stats = DiskStats::default();
        for at in [2000, 3000] {
            stats.read.ios += 10;
            stats.read.sectors += 10 * at / 10;
            readings.push((at, stats));
        }
        let rows = monitor("sda", &samples(&readings));
        assert_eq!(rows.len(), 8);
        assert_eq!(rows[1], ("sda-avgrqsz".to_owned(), vec![200.0, 300.0]));
        assert_eq!(monitor("sdb", &samples(&readings[..2])[..1]), []);
        assert_eq!(monitor("sdb", &[busy(), Sample { elapsed_ms: 5, ..Sample::default() }]), []);
    }

    #[test]
    fn counters_wrap_around() {
        let then = DiskStats { io_ticks_ms: u64::MAX - 4, in_flight: 9, ..DiskStats::default() };
        let now = DiskStats { io_ticks_ms: 5, in_flight: 2, ..DiskStats::default() };
        let counted = now.since(&then);
        assert_eq!((counted.io_ticks_ms, counted.in_flight), (10, 2));
    }

    /// Requests with a start and an end, counted as a kernel does.
    fn count(requests: &[(u64, u64, bool)]) -> (DiskStats, u64) {
        let end = requests.iter().map(|request| request.1).max().unwrap_or(0);
        let mut stats = DiskStats::default();
        for (start, end, write) in requests {
            let dir = if *write { &mut stats.write } else { &mut stats.read };
            dir.ios += 1;
            dir.sectors += 8;
            dir.ticks_ms += end - start;
        }
        for at in 0..end {
            let in_flight = requests.iter().filter(|(start, end, _)| *start <= at && at < *end).count() as u64;
            stats.io_ticks_ms += u64::from(in_flight > 0);
            stats.weighted_ms += in_flight;
        }
        (stats, end)
    }

    #[test]
    fn identities_hold_for_any_requests() {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..300 {
            let requests: Vec<(u64, u64, bool)> = (0..random(30) + 1)
                .map(|_| {
                    let start = random(400);
                    (start, start + 1 + random(50), random(2) == 0)
                })
                .collect();
            let (counted, end) = count(&requests);
            // A pause after the last request changes every rate, and no identity.
            let sample = Sample { counted, elapsed_ms: end + random(100) };
            let near = |a: f64, b: f64| (a - b).abs() < 1e-9 * a.abs().max(1.0);
            let rate = (R.of)(&sample) + (W.of)(&sample);
            assert!(near(sample.svctm_ms() * rate / 10.0, sample.util_pct()), "svctm x rate = util");
            assert!(near(rate / 1000.0 * sample.await_ms(), sample.avgqu_sz()), "Little's law");
            let apart = (R.of)(&sample) * (R_AWAIT.of)(&sample) + (W.of)(&sample) * (W_AWAIT.of)(&sample);
            assert!(near(apart / 1000.0, sample.avgqu_sz()), "Little's law, reads and writes apart");
            assert!(near((RSEC.of)(&sample) + (WSEC.of)(&sample), rate * sample.avgrq_sz()), "sizes x rate = sectors");
            assert!(sample.util_pct() <= 100.0 && sample.avgqu_sz() * 100.0 >= sample.util_pct() - 1e-9);
        }
    }
}

//! What others would say about the same cases: thresholds as operators apply them to `iostat -x`, block latencies and
//! pressure, and a list of the metrics that changed most, which needs a fast side.
//!
//! Both point at mechanisms in our words, so that the same table scores them. Where a threshold stands for several
//! mechanisms, it names the one that most pages about it name first.

use iowhy_live::machine;

use super::site::Variables;

/// Counters of the device and of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    /// `/proc/diskstats`: reads, their sectors, ms; writes, theirs; ms busy; weighted ms.
    disk: [f64; 8],
    /// µs in which some task waited for processors, for I/O, for memory.
    pressure: [f64; 3],
    /// Processors' time and their idle time, in ticks.
    cpu: [f64; 2],
    at: f64,
}

impl Counters {
    /// Those of the ground's device now; zero where the kernel shows none.
    pub(super) fn now(variables: &Variables) -> Counters {
        let of = |name: &str| variables.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str());
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let device = of("DEV").trim_start_matches("/dev/");
        let disks = read("/proc/diskstats");
        let words = disks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = words.into_iter().find(|words| words.get(2) == Some(&device)).unwrap_or_default();
        let number = |nr: usize| line.get(nr).and_then(|word| word.parse().ok()).unwrap_or(0.0);
        let pressure = ["cpu", "io", "memory"].map(|what| {
            let text = read(&format!("/proc/pressure/{what}"));
            let total = text.lines().next().and_then(|line| line.rsplit_once("total="));
            total.and_then(|(_, number)| number.parse().ok()).unwrap_or(0.0)
        });
        let cpu = machine::cpu_time(&read("/proc/stat")).map_or([0.0; 2], |of| [of.total as f64, of.idle as f64]);
        let uptime = read("/proc/uptime");
        let at = uptime.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
        Counters { disk: [3, 5, 6, 7, 9, 10, 12, 13].map(number), pressure, cpu, at }
    }

    /// What `iostat -x` and its like would show of the time since `before`.
    pub(super) fn since(&self, before: &Counters) -> Seen {
        let seconds = (self.at - before.at).max(1e-3);
        let disk: Vec<f64> = self.disk.iter().zip(before.disk).map(|(now, then)| now - then).collect();
        let each = |all: f64, nr: f64| if nr > 0.0 { all / nr } else { 0.0 };
        let share = |us: f64| 100.0 * us / 1e6 / seconds;
        let [total, idle] = [0, 1].map(|nr| self.cpu[nr] - before.cpu[nr]);
        Seen([
            disk[0] / seconds,
            disk[3] / seconds,
            (disk[1] + disk[4]) / 2.0 / seconds,
            each(disk[1] / 2.0, disk[0]),
            each(disk[4] / 2.0, disk[3]),
            each(disk[2], disk[0]),
            each(disk[5], disk[3]),
            disk[7] / 1e3 / seconds,
            (disk[6] / 10.0 / seconds).min(100.0),
            share(self.pressure[0] - before.pressure[0]),
            share(self.pressure[1] - before.pressure[1]),
            share(self.pressure[2] - before.pressure[2]),
            100.0 * (1.0 - each(idle, total)),
        ])
    }
}

pub(crate) const METRICS: usize = 13;

/// The metrics of one side, in the order of [`POINTS`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen(pub(crate) [f64; METRICS]);

/// A metric, and the mechanism that its rise and its fall point at.
pub(crate) const POINTS: [(&str, &str, &str); METRICS] = [
    ("r/s", "readahead-off", "device-latency"),
    ("w/s", "synchronous-writes", "device-latency"),
    ("kB/s", "noisy-neighbour", "device-bandwidth"),
    ("rareq-sz", "window-too-large", "readahead-off"),
    ("wareq-sz", "writeback-throttling", "synchronous-writes"),
    ("r_await", "device-latency", "cold-cache"),
    ("w_await", "flush-cost", "synchronous-writes"),
    ("aqu-sz", "noisy-neighbour", "queue-depth-one"),
    ("%util", "device-bandwidth", "program-pauses"),
    ("psi cpu", "cpu-contention", "program-pauses"),
    ("psi io", "device-latency", "cold-cache"),
    ("psi memory", "memory-reclaim", "cold-cache"),
    ("cpu", "program-computes-more", "program-pauses"),
];

/// The mechanism that thresholds point at, of the slow side alone.
pub(crate) fn thresholds(seen: &Seen) -> Option<&'static str> {
    let [_, _, kbytes, reads_kib, writes_kib, r_await, w_await, queue, util, cpu, _, memory, busy] = seen.0;
    [
        (memory > 10.0, "memory-reclaim"),
        (cpu > 25.0, "cpu-contention"),
        (util > 80.0 && queue > 8.0, "noisy-neighbour"),
        (w_await > 20.0, "flush-cost"),
        (r_await > 20.0, "device-latency"),
        (util > 80.0 && reads_kib > 0.0 && reads_kib < 16.0, "readahead-off"),
        (util > 80.0 && writes_kib > 0.0 && writes_kib < 16.0, "synchronous-writes"),
        (util > 80.0 && kbytes > 100e3, "device-bandwidth"),
        (util > 80.0 && queue < 1.5, "queue-depth-one"),
        (util < 50.0 && busy < 50.0, "program-pauses"),
    ]
    .into_iter()
    .find_map(|(holds, rule)| holds.then_some(rule))
}

/// The mechanism of the metric that changed most from the fast side to the slow one.
pub(crate) fn changed(fast: &Seen, slow: &Seen) -> &'static str {
    // Metrics near zero have no ratio worth a word: a hundredth of their usual unit is added.
    let change = |nr: usize| ((slow.0[nr] + 1.0) / (fast.0[nr] + 1.0)).ln();
    let most = (0..METRICS).max_by(|a, b| change(*a).abs().total_cmp(&change(*b).abs())).unwrap_or(0);
    if change(most) > 0.0 { POINTS[most].1 } else { POINTS[most].2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_and_changes_point_at_mechanisms() {
        let mut slow = Seen([0.0; METRICS]);
        let mut fast = slow;
        (slow.0[8], slow.0[3], fast.0[3]) = (99.0, 4.0, 128.0);
        assert_eq!((thresholds(&slow), changed(&fast, &slow)), (Some("readahead-off"), "device-bandwidth"));
        slow.0[11] = 30.0;
        assert_eq!(thresholds(&slow), Some("memory-reclaim"));
        assert!(POINTS.iter().all(|(_, up, down)| {
            [up, down].iter().all(|rule| iowhy_why::rules::RULES.iter().any(|known| known.name == **rule))
        }));
    }

    #[test]
    fn counters_become_the_columns_of_iostat() {
        let after = Counters { disk: [100.0, 800.0, 50.0, 0.0, 0.0, 0.0, 900.0, 50.0], at: 1.0, ..Counters::default() };
        let seen = after.since(&Counters::default());
        assert_eq!((seen.0[0], seen.0[3], seen.0[5], seen.0[8]), (100.0, 4.0, 0.5, 90.0));
    }
}

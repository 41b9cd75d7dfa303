//! The elevator waits for a reader that has nothing to ask, because another one reads the same data ahead for it.

use super::{Figure, Match, Rule, Switch, grade, slice_idling};
use crate::delta::{Delta, Unit};
use iowhy_stack::units::PAGE_BYTES;

pub(super) const RULE: Rule = Rule {
    name: "idling-for-the-wrong-reader",
    layer: "elevator",
    needs: super::REQUESTS,
    owns: super::Owns::Io,
    single: super::Single::Counts,
    what: "Several tasks read the same data; the elevator waits for the one it served last, while the next window \
           comes from another.",
    why: "The task that meets the marker first reads the next window ahead for all. The elevator serves one task at a \
          time and waits for its next request, which is another task's to make; every reader stands still meanwhile. \
          With large windows the jumps of each task look like seeks, and the elevator does not wait.",
    events: "Calls of several tasks overlap on the same file and go on where others ended; windows and requests are \
             small; the device is idle while a request waits, once every few windows.",
    example: "Three dd of one file on CFQ of Linux 4.4 with 128 KB of read-ahead (2018): 512 KB or slice_idle=0 cure \
              it.",
    change: "read_ahead_kb=512 or more, slice_idle=0, or a scheduler that does not idle.",
    refute: "With slice_idle at 0 and the small window the difference remains.",
    since: "CFQ, since windows are shared between readers (2.6.23) to 4.20; BFQ merges such queues and suffers less.",
    consequences: &["slice-idling", "queue-depth-one", "window-too-small"],
    switches: &[
        Switch::Other("read_ahead_kb"),
        Switch::Key("elevator.slice_idle_ms", "0"),
        Switch::Queue("read_ahead_kb"),
        Switch::Queue("scheduler"),
    ],
    find,
    cost: None,
};

/// Share of calls that overlap another on their file: with fewer, most windows serve one reader.
const TOGETHER: f64 = 0.3;
/// Calls in progress: with one reader the elevator waits for the right one.
const READERS: f64 = 2.0;
/// Share of reads that continue an earlier one: random readers share no windows.
const SEQUENTIAL: f64 = 0.8;
/// Growth of the idle share of the time: 2 %, as single runs have to differ by that much.
const IDLE_MORE: f64 = 0.02;
/// Ratio of idle shares: an elevator that idles on both sides is not the difference.
const IDLE_TIMES: f64 = 1.5;
/// Ratio of median windows: half an octave, as read-ahead limits go in octaves.
const SMALLER: f64 = 1.4;
/// One plus the growth of the idle share, half sure and sure.
const GRADE: (f64, f64) = (1.01, 1.1);

fn find(delta: &Delta<'_>) -> Option<Match> {
    let share = slice_idling::idle_share(delta);
    let calls = |d: &crate::digest::Digest| (d.workload.calls[0] + d.workload.calls[1]).max(1) as f64;
    let shared = delta.of(|d| d.workload.overlapping as f64 / calls(d));
    let readers = delta.of(|d| f64::from(d.workload.concurrency));
    let files = delta.of(|d| f64::from(d.workload.files));
    let sequential = delta.of(|d| d.workload.sequential[0] as f64 / d.workload.calls[0].max(1) as f64);
    let window = delta.of(|d| d.windows.sizes.median() * PAGE_BYTES as f64);
    let readers = readers.slow > files.slow && readers.slow >= READERS;
    let together = shared.slow > TOGETHER && readers && sequential.slow > SEQUENTIAL;
    if !(together && share.rose_by(IDLE_MORE) && share.ratio() >= IDLE_TIMES && window.fell(SMALLER)) {
        return None;
    }
    let requests = delta.of(|d| d.commands.sizes[0].mean() * 512.0);
    Some(Match {
        confidence: grade(1.0 + share.difference(), GRADE.0, GRADE.1),
        share_ns: None,
        claim: format!(
            "with windows of {:.0} KB (not {:.0}) the elevator idles for {:.0} % of the time (not {:.0} %), waiting \
             for a reader whose data another one reads ahead",
            window.slow / 1024.0,
            window.fast / 1024.0,
            100.0 * share.slow,
            100.0 * share.fast
        ),
        evidence: vec![
            Figure::new("share of the time with an idle device and requests waiting", share, Unit::Share),
            Figure::new("read-ahead window (median)", window, Unit::Bytes),
            Figure::new("mean read request", requests, Unit::Bytes),
            Figure::new("share of calls that overlap others on their file", shared, Unit::Share),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold, spread};
    use super::RULE;

    /// Three readers of one file; windows of 200 pages shrink to 100, and the device idles for a twentieth of the time.
    fn readers() -> Pair {
        Pair::of(|p| {
            p.both(|d| {
                d.workload.calls[0] = 1000;
                d.workload.overlapping = 600;
                d.workload.sequential[0] = 1000;
                d.workload.concurrency = 3;
                d.workload.files = 1;
            });
            p.slow.commands.idle_waiting = 100_000;
            p.fast.windows.sizes = spread(1, 200.0);
            p.slow.windows.sizes = spread(1, 100.0);
        })
    }

    /// The device of both idles, for half of the time on the fast side.
    fn idle(p: &mut Pair, fast: f64) {
        p.fast.commands.idle_waiting = fast as u64;
        p.slow.commands.idle_waiting = 1_500_000;
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("TOGETHER", |p, x| p.slow.workload.overlapping = x as u64, 301.0, 300.0),
            ("a file for each reader", |p, x| p.slow.workload.files = x as u32, 2.0, 3.0),
            ("READERS", |p, x| (p.slow.workload.files, p.slow.workload.concurrency) = (0, x as u32), 2.0, 1.0),
            ("SEQUENTIAL", |p, x| p.slow.workload.sequential[0] = x as u64, 801.0, 800.0),
            ("IDLE_MORE", |p, x| p.slow.commands.idle_waiting = x as u64, 40_000.0, 39_999.0),
            ("IDLE_TIMES", idle, 500_000.0, 500_001.0),
            ("SMALLER", |p, x| p.fast.windows.sizes = spread(1, x), 141.0, 140.0),
        ];
        hold(&RULE, readers, 0.7275, edges);
    }
}

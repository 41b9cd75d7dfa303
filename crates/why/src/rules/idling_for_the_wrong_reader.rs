//! The elevator waits for a reader that has nothing to ask, because another one reads the same data ahead for it.

use super::{Figure, Match, Rule, Switch, grade, slice_idling};
use crate::delta::{Delta, Unit};

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
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    let share = slice_idling::idle_share(delta);
    let calls = |d: &crate::digest::Digest| (d.workload.calls[0] + d.workload.calls[1]).max(1) as f64;
    let shared = delta.of(|d| d.workload.overlapping as f64 / calls(d));
    let readers = delta.of(|d| f64::from(d.workload.concurrency));
    let files = delta.of(|d| f64::from(d.workload.files));
    let sequential = delta.of(|d| d.workload.sequential[0] as f64 / d.workload.calls[0].max(1) as f64);
    let window = delta.of(|d| d.windows.sizes.median() * 4096.0);
    let together = shared.slow > 0.3 && readers.slow > files.slow && readers.slow >= 2.0 && sequential.slow > 0.8;
    if !(together && share.rose_by(0.02) && share.ratio() >= 1.5 && window.fell(1.4)) {
        return None;
    }
    let requests = delta.of(|d| d.commands.sizes[0].mean() * 512.0);
    Some(Match {
        confidence: grade(1.0 + share.difference(), 1.01, 1.1),
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

//! Requests leave the order of their sectors: the arm travels farther for the same requests.

use super::{Figure, Match, Rule, Switch, grade, metadata_reads};
use crate::delta::{Delta, Unit};
use crate::digest::Digest;

pub(super) const RULE: Rule = Rule {
    name: "lost-locality",
    layer: "elevator",
    needs: super::ISSUED,
    owns: super::Owns::Io,
    single: super::Single::Counts,
    what: "Waiting requests leave the order of their sectors, or streams are mixed up on their way.",
    why: "Each jump of the arm takes milliseconds, in which a disk could transfer a megabyte; an order that jumps \
          between streams loses the look-ahead of the disk, too.",
    events: "As many requests of the same sizes as before, but more of them begin where the one before did not end, or \
             farther away from it; of those that wait, the next one up from the head is taken less often.",
    example: "noop or none on a disk with many random readers; slice_idle=0 with several sequential streams.",
    change: "A scheduler that sorts (deadline, mq-deadline, CFQ, BFQ), more requests in the queue, idling for streams.",
    refute: "With the other side's scheduler the distance between commands remains.",
    since: "Every kernel, since the elevator can be chosen (2.6.10); no sorting is the default of blk-mq with many \
            queues.",
    // Streams find the drive reading ahead; others do not, however equal the commands.
    consequences: &["device-latency", "device-bandwidth", "device-idle-exit"],
    switches: &[
        Switch::Other("elevator"),
        Switch::OtherKind("elevator."),
        Switch::Other("nr_requests"),
        Switch::Queue("scheduler"),
        Switch::Queue("nr_requests"),
    ],
    find,
};

/// Share of the commands that have to seek for the length of their way to matter.
const OFTEN: f64 = 0.1;

fn commands(d: &Digest) -> f64 {
    (d.commands.issued[0] + d.commands.issued[1]).max(1) as f64
}

fn find(delta: &Delta<'_>) -> Option<Match> {
    // Those seeks are none of the order's.
    if (metadata_reads::RULE.find)(delta).is_some() {
        return None;
    }
    let size = delta.of(|d| (d.commands.sectors[0] + d.commands.sectors[1]) as f64 / commands(d));
    let nr = delta.per_operation(commands);
    let equal = |contrast: f64| (0.8..1.25).contains(&contrast);
    if !equal(size.ratio()) || !equal(nr.ratio()) {
        return None;
    }
    let seeks = delta.of(|d| d.commands.seeks as f64 / commands(d));
    let root = delta.of(|d| d.commands.within.values().map(|w| w.root_distance).sum::<f64>() / commands(d));
    let distance = delta.of(|d| d.commands.distance / commands(d) * 512.0);
    let choices = delta.of(|d| d.commands.choices as f64 / commands(d));
    let next_up = delta.of(|d| d.commands.next_up as f64 / d.commands.choices.max(1) as f64);
    let disordered = choices.slow > 0.2 && choices.fast > 0.2 && next_up.fell_by(0.15) && root.rose(1.15);
    let mixed = seeks.rose(1.5) && seeks.rose_by(0.05) && root.rose(1.3);
    // A long way is nobody's concern if hardly a command goes it.
    let farther = seeks.slow > OFTEN
        && root.rose(1.4)
        && seeks.ratio() > 0.9
        && delta.of(|d| d.workload.regions as f64).ratio() < 1.1;
    // Where seeks cost nothing their number is nobody's concern: the device has to be slower for it.
    let took = delta.of(|d| d.commands.busy as f64 / commands(d));
    if !(disordered || mixed || farther) || !took.rose(1.02) {
        return None;
    }
    Some(Match {
        confidence: grade(root.ratio(), 1.1, 1.6),
        share_ns: None,
        claim: format!(
            "requests are taken in an order that jumps: {:.0} % of the commands seek (before {:.0} %), {:.1} MB apart \
             on average (before {:.1})",
            100.0 * seeks.slow,
            100.0 * seeks.fast,
            distance.slow / 1e6,
            distance.fast / 1e6
        ),
        evidence: vec![
            Figure::new("share of commands that begin elsewhere", seeks, Unit::Share),
            Figure::new("mean distance from the command before", distance, Unit::Bytes),
            Figure::new("share of choices that take the next one up", next_up, Unit::Share),
            Figure::new("time of the busy device for a command", took, Unit::Ns),
        ],
    })
}

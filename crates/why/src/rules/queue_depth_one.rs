//! The device gets requests one at a time where it had several.

use super::cost::{Cost, Facts, SEEN, TRIPS};
use super::instead::Saved;
use super::{Figure, Match, Rule, Switch, grade, reads_starved, writes_starved};
use crate::delta::{Delta, Unit};
use crate::digest::{Layer, Time};

pub(super) const RULE: Rule = Rule {
    name: "queue-depth-one",
    layer: "elevator",
    needs: super::ISSUED,
    owns: super::Owns::Io,
    single: super::Single::Counts,
    what: "The device is given one request (or few) at a time, while others wait.",
    why: "A device with several channels, or one that orders commands itself, works at a fraction of its speed with \
          one command; the rest stand in line above it.",
    events: "As many requests wait, or calls wait for room, as before, but the number at the device does not exceed \
             one (or a quarter of the earlier number).",
    example: "NCQ switched off (queue_depth=1 in sysfs); nr_requests=4; CFQ that serves one queue at a time on an \
              array.",
    change: "Raise the device's queue_depth, and nr_requests; a scheduler without slices (none, mq-deadline); \
             slice_idle=0 on CFQ.",
    refute: "With the other side's queue depth and scheduler the number at the device stays as low.",
    since: "Every kernel; queue_depth in sysfs since 2.6.",
    consequences: &["cpu-bound-submission", "reads-starved", "writes-starved"],
    switches: &[
        Switch::Other("elevator"),
        Switch::OtherDevice,
        Switch::Queue("scheduler"),
        Switch::Other("nr_requests"),
        Switch::Queue("nr_requests"),
    ],
    find,
    cost: Some(cost),
};

/// Share of the time with requests waiting, from which on they wait for the device.
const WAITING: f64 = 0.1;
/// By how much that share has grown at least.
const WAITING_MORE: f64 = 0.05;
/// Share of the calls that begin while another is in progress: callers then wait for a tag above the elevator.
const OVERLAPPING: f64 = 0.5;
/// The depth has fallen by this factor at least: halves of it are settings, less is chance.
const SHALLOWER: f64 = 2.0;
/// The same where nothing is seen to wait.
const SHALLOWER_UNSEEN: f64 = 4.0;
/// Factors by which the depth has fallen, half sure and sure.
const GRADE: (f64, f64) = (1.3, 3.0);

fn find(delta: &Delta<'_>) -> Option<Match> {
    let deepest = delta.of(|d| f64::from(d.commands.deepest));
    let waiting = delta.of(|d| d.commands.waiting() as f64 / d.elapsed.0.max(1) as f64);
    let overlapping =
        delta.of(|d| d.workload.overlapping as f64 / (d.workload.calls[0] + d.workload.calls[1]).max(1) as f64);
    let calls = delta.of(|d| f64::from(d.workload.concurrency));
    let limit = delta.of(|d| f64::from(d.commands.depth_limit()));
    let held = waiting.slow > WAITING && waiting.difference() > WAITING_MORE;
    // Callers that find no tag wait before they have a request; that time is the elevator's where bios are seen.
    let unseen = deepest.fast >= SHALLOWER_UNSEEN * deepest.slow;
    let [above, whole] = [delta.time(|time| time.of(Layer::Elevator)), delta.time(Time::total)];
    let for_tags = above.slow > WAITING * whole.slow && above.difference() > WAITING_MORE * whole.slow;
    let kept_out = overlapping.slow > OVERLAPPING && calls.slow > deepest.slow && (unseen || for_tags);
    let lower = deepest.fast >= SHALLOWER * deepest.slow.max(limit.slow) && deepest.sure();
    // Without requests the depth is unknown.
    if !(lower && (held || kept_out)) || deepest.slow < 1.0 {
        return None;
    }
    Some(Match {
        confidence: grade(deepest.fast / deepest.slow.max(1.0), GRADE.0, GRADE.1),
        share_ns: None,
        claim: format!(
            "the device has {:.0} requests at most where it had {:.0}, while others wait",
            deepest.slow, deepest.fast
        ),
        evidence: vec![
            Figure::new("most requests at the device", deepest, Unit::Count),
            Figure::new("requests at the device while others wait", limit, Unit::Count),
            Figure::new("share of the time with requests waiting", waiting, Unit::Share),
            Figure::new("most calls in progress", calls, Unit::Count),
        ],
    })
}

/// Requests of a queue: no default is below.
const FEW: f64 = 32.0;
/// Part of them that the device has while it is busy: then the queue is full.
const FULL: f64 = 0.6;
/// Tags of a device below which none is made for several callers, part of them that it has then, and of the time that
/// it is busy; part of the reads that get theirs late.
const FEW_TAGS: f64 = 16.0;
const FULL_OF_TAGS: f64 = 0.8;
const BUSY: f64 = 0.8;
const LATE: f64 = 0.2;
/// Calls at once for each tag, and part of the time that requests wait in the elevator, from which on tags are few.
const MANY: f64 = 2.0;
const HELD: f64 = 0.3;
/// Requests of a queue as a kernel makes it.
const USUAL: f64 = 64.0;

/// A queue of few requests that is full.
fn cost(facts: &Facts<'_>) -> Option<Cost> {
    // BFQ then gives the device the next request when the one before it is done.
    let strict = facts.of_disk("scheduler") == Some("bfq") && facts.of_disk("iosched/strict_guarantees") == Some("1");
    let commands = &facts.digest.commands;
    let [late, late_writes] = commands.late_shares();
    let below = |key: &str| facts.number_of_disk(key).filter(|limit| *limit < FEW);
    // mq-deadline keeps writes out beyond it, however many requests are free.
    let of_writes = below("iosched/async_depth").filter(|_| late_writes >= LATE && late < LATE);
    let key = if of_writes.is_some() { "async_depth" } else { "nr_requests" };
    let few = of_writes.or_else(|| below("nr_requests"));
    let at_once = commands.at_once();
    let tags = f64::from(commands.deepest);
    let full = tags < FEW_TAGS && at_once >= FULL_OF_TAGS * tags && commands.busy as f64 >= BUSY * facts.whole_ns;
    // With an elevator requests wait there, and get their tags at once; on an arm the order is worth the wait.
    let many = f64::from(facts.digest.workload.concurrency) >= MANY * tags && tags >= 1.0;
    let preferred = [writes_starved::RULE, reads_starved::RULE]
        .iter()
        .any(|rule| rule.cost.is_some_and(|cost| cost(facts).is_some()));
    let held = many
        && !preferred
        && facts.turns() == Some(false)
        && facts.in_layers(&[Layer::Elevator]) >= HELD * facts.whole_ns;
    // Without a scheduler more of them would be served in the order of their arrival.
    let unsorted = facts.turns() == Some(true) && facts.of_disk("scheduler") == Some("none");
    let few_tags = few.is_none() && full && !unsorted && (late >= LATE || held);
    let limit = match () {
        () if strict => 1.0,
        () if few_tags => tags,
        () => few?,
    };
    if at_once < FULL * limit {
        return None;
    }
    // Who finds no request waits for one in the call, or for the time of others.
    let trips = facts.in_layers(&TRIPS) + facts.in_layers(&[Layer::Lock]);
    let waits = if strict { facts.in_layers(&[Layer::Elevator]) } else { trips };
    // A device that serves them one after the other gives nothing, and one with room for all as much as there is.
    let most = waits * (1.0 - limit / USUAL);
    // Writes that were not kept out are those that come one by one.
    let late = if of_writes.is_some() { late_writes } else { 1.0 };
    let saved = Saved::of(late * waits * (1.0 - (limit / USUAL).sqrt()), 0.0, most);
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: SEEN,
        claim: match strict {
            true => format!(
                "bfq's strict_guarantees=1: the device has {at_once:.1} requests while it is busy, and others wait"
            ),
            false if few_tags => format!(
                "the device takes {tags:.0} requests at a time, {}",
                if late >= LATE {
                    format!("and {:.0} % of the reads wait for one to end", 100.0 * late)
                } else {
                    "and others wait in the elevator meanwhile".to_owned()
                }
            ),
            false => format!(
                "{key}={limit:.0}: the device has {at_once:.1} requests while it is busy, and no more may be made"
            ),
        },
        setting: match () {
            () if strict => "strict_guarantees=0".to_owned(),
            () if few_tags => "a deeper queue (queue_depth of the device)".to_owned(),
            () => format!("{key}={USUAL:.0}"),
        },
        evidence: vec![
            ("requests at the device while it is busy", at_once, Unit::Count),
            ("time that calls wait", waits, Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, spread};
    use super::RULE;
    use crate::digest::{Class, Layer};

    /// Two at the device on the fast side, one on the slow one, where others wait half of 2 ms.
    fn waiting() -> Pair {
        Pair::of(|p| {
            p.fast.commands.deepest = 2;
            p.slow.commands.deepest = 1;
            p.slow.commands.depth_when_waiting = vec![0, 1_000_000];
        })
    }

    /// Four at the device on the fast side, one on the slow one, where calls overlap and none is seen to wait.
    fn unseen() -> Pair {
        Pair::of(|p| {
            p.fast.commands.deepest = 4;
            p.slow.commands.deepest = 1;
            p.slow.workload.overlapping = 9;
            p.both(|d| d.workload.concurrency = 8);
        })
    }

    /// Two at the device on the fast side, one on the slow one, where calls wait for tags: this long of 1 ms, ns.
    fn for_tags(slow: f64, fast: f64) -> Pair {
        let mut pair = unseen();
        pair.fast.commands.deepest = 2;
        for (d, above) in [(&mut pair.fast, fast), (&mut pair.slow, slow)] {
            let ns = &mut d.time.ns[0];
            (ns[Layer::Elevator as usize], ns[Layer::Device as usize]) = (above, 1e6 - above);
        }
        pair
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("WAITING, tags", |p, x| *p = for_tags(x, 0.0), 100_001.0, 100_000.0),
            ("WAITING_MORE, tags", |p, x| *p = for_tags(5e5, x), 449_999.0, 450_000.0),
            ("SHALLOWER, tags", |p, x| p.fast.commands.deepest = x as u32, 2.0, 1.0),
        ];
        hold(&RULE, || for_tags(5e5, 0.0), 0.7576, edges);
        let edges: &[Edge] = &[
            ("WAITING", |p, x| p.slow.commands.depth_when_waiting[1] = x as u64, 200_001.0, 200_000.0),
            ("WAITING_MORE", |p, x| p.fast.commands.depth_when_waiting = vec![0, 0, x as u64], 449_999.0, 450_000.0),
            ("SHALLOWER", |p, x| p.fast.commands.deepest = x as u32, 2.0, 1.0),
            (
                "SHALLOWER, waiting at two",
                |p, x| p.slow.commands.depth_when_waiting = vec![0, 1_000_000 - x as u64, x as u64],
                10_000.0,
                10_001.0,
            ),
            ("no requests", |p, x| p.slow.commands.deepest = x as u32, 1.0, 0.0),
        ];
        hold(&RULE, waiting, 0.7576, edges);
        let edges: &[Edge] = &[
            ("OVERLAPPING", |p, x| p.slow.workload.overlapping = x as u64, 6.0, 5.0),
            ("SHALLOWER_UNSEEN", |p, x| p.fast.commands.deepest = x as u32, 4.0, 3.0),
            ("calls beyond the depth", |p, x| p.slow.workload.concurrency = x as u32, 2.0, 1.0),
        ];
        hold(&RULE, unseen, 1.0, edges);
    }

    #[test]
    fn costs() {
        fn full(a: &mut Alone, limit: f64, at_once: f64) {
            a.set("recording", "disk", "sda");
            a.set("sda", "nr_requests", &limit.to_string());
            a.requests(0, 100, 8, 8e5);
            a.digest.commands.busy = 100_000;
            a.digest.commands.classes = [(Class::default(), spread(100, 1000.0 * at_once))].into();
        }
        let edges: &[AloneEdge] = &[
            ("FEW", |a, x| full(a, x, x), 31.0, 32.0),
            ("USUAL", |a, x| a.digest.time.ns[0][Layer::Device as usize] = x, 133_334.0, 133_332.0),
            ("FULL", |a, x| full(a, 10.0, x), 6.1, 5.9),
        ];
        hold_cost(&RULE, || Alone::of(|a| full(a, 4.0, 4.0)), (60.0, 0.8), edges);
        let few_tags = || {
            Alone::of(|a| {
                full(a, 256.0, 4.0);
                (a.digest.commands.deepest, a.digest.commands.busy) = (4, 1_000_000);
                a.digest.commands.classes = [(Class::default(), spread(100, 40_000.0))].into();
                (a.digest.commands.issued[0], a.digest.commands.late_tags[0]) = (100, 50);
            })
        };
        let edges: &[AloneEdge] = &[
            ("FEW_TAGS", tags, 15.0, 16.0),
            ("FULL_OF_TAGS", |a, x| a.digest.commands.deepest = x as u32, 5.0, 6.0),
            ("BUSY", busy, 8e5, 7.9e5),
            ("LATE", |a, x| a.digest.commands.late_tags[0] = x as u64, 20.0, 19.0),
            ("nr_requests", |a, x| a.set("sda", "nr_requests", &x.to_string()), 32.0, 31.0),
            (
                "unsorted",
                |a, x| (a.set("sda", "scheduler", "none"), a.set("sda", "rotational", &x.to_string())).0,
                0.0,
                1.0,
            ),
        ];
        let held = || {
            Alone::of(|a| {
                *a = few_tags();
                a.set("sda", "rotational", "0");
                a.digest.commands.late_tags[0] = 0;
                a.digest.workload.concurrency = 32;
                a.digest.time.ns[0][Layer::Elevator as usize] = 5e5;
            })
        };
        let in_elevator: &[AloneEdge] = &[
            ("MANY", |a, x| a.digest.workload.concurrency = x as u32, 8.0, 7.0),
            ("HELD", |a, x| a.digest.time.ns[0][Layer::Elevator as usize] = x, 3e5, 2.9e5),
            ("an arm", |a, x| a.set("sda", "rotational", &x.to_string()), 0.0, 1.0),
            (
                "a preference",
                |a, x| {
                    a.set("sda", "iosched/writes_starved", &x.to_string());
                    a.digest.commands.i2d[1] = spread(10, 1e5);
                },
                2.0,
                40.0,
            ),
        ];
        hold_cost(&RULE, held, (97.5, 0.8), in_elevator);
        fn busy(a: &mut Alone, ns: f64) {
            a.digest.commands.busy = ns as u64;
            a.digest.commands.classes = [(Class::default(), spread(100, ns / 25.0))].into();
        }
        fn tags(a: &mut Alone, tags: f64) {
            a.digest.commands.deepest = tags as u32;
            a.digest.commands.classes = [(Class::default(), spread(100, 10_000.0 * tags))].into();
        }
        hold_cost(&RULE, few_tags, (60.0, 0.8), edges);
        let kept_out = || {
            Alone::of(|a| {
                full(a, 256.0, 1.0);
                a.set("sda", "iosched/async_depth", "1");
                (a.digest.commands.issued, a.digest.commands.late_tags) = ([0, 100], [0, 50]);
            })
        };
        let edges: &[AloneEdge] = &[
            ("async_depth", |a, x| a.set("sda", "iosched/async_depth", &x.to_string()), 1.0, 2.0),
            ("LATE, writes", |a, x| a.digest.commands.late_tags[1] = x as u64, 20.0, 19.0),
            (
                "LATE, reads",
                |a, x| (a.digest.commands.issued[0], a.digest.commands.late_tags[0]) = (100, x as u64),
                19.0,
                20.0,
            ),
        ];
        hold_cost(&RULE, kept_out, (35.0, 0.8), edges);
        let strict = || {
            Alone::of(|a| {
                full(a, 256.0, 1.0);
                a.set("sda", "scheduler", "bfq");
                a.set("sda", "iosched/strict_guarantees", "1");
                a.digest.time.ns[0][Layer::Elevator as usize] = 4e5;
            })
        };
        let edges: &[AloneEdge] =
            &[("strict", |a, x| a.set("sda", "iosched/strict_guarantees", &x.to_string()), 1.0, 0.0)];
        hold_cost(&RULE, strict, (35.0, 0.8), edges);
    }
}

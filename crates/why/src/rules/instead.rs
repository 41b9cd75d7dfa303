//! The same bytes otherwise: a small counterfactual of requests, for the costs of one side.
//!
//! ```text
//! parts      the whole by the clock: waits for I/O, waits for a CPU after them, code in calls, everything else
//! fewer      n' requests of W sectors instead of n of s, the same bytes
//!              device     its time x n'/n x (a request of W over one of s)
//!              code       calls and pages cost what they cost, trips go with their number
//!              CPU waits  one for each trip
//!            reads ahead of their reader: the longer of device and code, else their sum
//! quieter    others take a part of the device's time; the reader's own work meanwhile is not gained
//! bounds     of the price of size: a drive that takes as long for any request (1), and one whose time goes by bytes
//!            (W/s); of overlap: all of it, and none
//! ```
//! A measured price of size narrows its bounds to half way (of factors) towards both. Limits: the device keeps its
//! speed; tasks that share a CPU are not modelled.

use super::cost::{Bounds, Facts};
use crate::digest::{Class, KIND_OTHER, KIND_SYNC, Layer, Spread, WAITS};
use iowhy_stack::units::PAGE_BYTES;

/// ns of the whole that would not go, and parts of it at least and at most.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Saved {
    pub(super) ns: f64,
    pub(super) bounds: Bounds,
}

impl Saved {
    /// Of the likeliest, the least and the most, ns.
    pub(super) fn of(ns: f64, least: f64, most: f64) -> Saved {
        let (ns, least) = (ns.max(0.0), least.max(0.0));
        let part = |of: f64| if ns > 0.0 { of / ns } else { 0.0 };
        Saved { ns, bounds: [part(least.min(ns)), part(most.max(ns))] }
    }
}

/// Kinds of calls that wait for requests of a direction.
pub(super) fn kinds(way: usize) -> &'static [usize] {
    [&[0, KIND_OTHER][..], &[1, KIND_SYNC, KIND_OTHER]][way]
}

/// Factor beyond the largest measured size up to which its line holds.
const BEYOND: f64 = 4.0;

/// A measured time at a size: in proportion between two sizes, beyond them on the line through the next two, of a
/// single one by bytes; far beyond them nothing is known.
pub(super) fn measured(service: &[(u32, f64)], sectors: f64) -> Option<f64> {
    if service.last().is_some_and(|(largest, _)| sectors > BEYOND * f64::from(*largest)) {
        return None;
    }
    let above = service.partition_point(|(size, _)| f64::from(*size) < sectors);
    let [(x0, y0), (x1, y1)] = match service {
        [] => return None,
        [only] => [(0, 0.0), *only],
        _ => {
            let at = above.clamp(1, service.len() - 1);
            [service[at - 1], service[at]]
        }
    };
    let slope = ((y1 - y0) / (f64::from(x1) - f64::from(x0)).max(1.0)).max(0.0);
    Some((y0 + slope * (sectors - f64::from(x0))).max(0.0))
}

/// The same, in proportion beyond the largest measured size: at most as long.
pub(super) fn at_most(service: &[(u32, f64)], sectors: f64) -> Option<f64> {
    let (size, ns) = *service.last()?;
    let size = f64::from(size);
    if sectors > size { Some(ns * sectors / size) } else { measured(service, sectors) }
}

/// The measured price of a size: how often a request of `from` sectors fits into one of `to`.
pub(super) fn price(service: &[(u32, f64)], from: f64, to: f64) -> Option<f64> {
    price_of(measured(service, from), measured(service, to), to / from)
}

/// The same of two times, where the larger size is `growth` times the smaller one.
fn price_of(small: Option<f64>, large: Option<f64>, growth: f64) -> Option<f64> {
    let small = small.filter(|ns| *ns > 0.0)?;
    Some((large? / small).clamp(1.0, growth.max(1.0)))
}

/// Times at the device of the workload's own requests of one direction, ns, class by class.
pub(super) fn times<'a>(facts: &Facts<'a>, way: usize) -> impl Iterator<Item = &'a Spread> {
    let of_way = facts.digest.commands.own.iter().filter(move |(class, _)| class.write == (way == 1));
    of_way.map(|(_, [all, _])| all)
}

/// Mean number of the workload's own requests of a direction at the device while there is one.
pub(super) fn at_once(facts: &Facts<'_>, way: usize) -> f64 {
    times(facts, way).map(Spread::sum).sum::<f64>() / (facts.digest.commands.own_busy[way] as f64).max(1.0)
}

/// Times at the device of all reads of some classes, and of all classes, ns.
pub(super) fn reads_of(facts: &Facts<'_>, picks: impl Fn(&Class) -> bool) -> [f64; 2] {
    let reads = || facts.digest.commands.classes.iter().filter(|(class, _)| !class.write);
    let picked = reads().filter(|(class, _)| picks(class));
    [picked.map(|(_, all)| all.sum()).sum(), reads().map(|(_, all)| all.sum()).sum()]
}

/// Mean sectors of the workload's own requests of a direction, and how many.
pub(super) fn own(facts: &Facts<'_>, way: usize) -> (f64, f64) {
    let nr = times(facts, way).map(Spread::count).sum::<u64>() as f64;
    (facts.digest.commands.own_sectors[way] as f64 / nr.max(1.0), nr)
}

/// The same bytes in requests of `to` sectors, which reads ahead of their reader overlap with it.
pub(super) fn fewer(facts: &Facts<'_>, way: usize, to: f64, ahead: bool) -> Option<Saved> {
    fewer_of(facts, way, to, ahead, measured(facts.service, own(facts, way).0))
}

/// The same of reads at places that are not side by side, which then would be: what was measured is reads in order.
pub(super) fn in_order(facts: &Facts<'_>, to: f64) -> Option<Saved> {
    let (_, nr) = own(facts, 0);
    let each = (facts.digest.commands.own_busy[0] as f64).max(facts.of_kinds(kinds(0), &WAITS)) / nr.max(1.0);
    fewer_of(facts, 0, to, true, Some(each))
}

/// The same where a request takes `small` now, if that is known.
fn fewer_of(facts: &Facts<'_>, way: usize, to: f64, ahead: bool, small: Option<f64>) -> Option<Saved> {
    let d = facts.digest;
    let (from, nr) = own(facts, way);
    let growth = to / from.max(1.0);
    if nr < 1.0 || growth <= 1.0 {
        return None;
    }
    let [waits, ready, cpu] =
        [&WAITS[..], &[Layer::Ready], &[Layer::Cpu]].map(|layers| facts.of_kinds(kinds(way), layers));
    let rest = (facts.whole_ns - waits - ready - cpu).max(0.0);
    let busy = (d.commands.own_busy[way] as f64).max(waits);
    let (price, bounds) = match (small, price_of(small, measured(facts.service, to), growth)) {
        (Some(small), Some(price)) => {
            // One larger request in place of some side by side has not the device's parallelism; reads ahead keep it.
            let beside = if ahead { 1.0 } else { (small * nr / busy).max(1.0) };
            (price * beside, [price.sqrt(), (price * growth).sqrt() * beside])
        }
        _ => (growth.sqrt(), [1.0, growth]),
    };
    let device = |price: f64| busy / growth * price;
    // Code of calls and pages stays.
    let pages = d.cache.added.max(d.workload.bytes[way] / PAGE_BYTES) as f64;
    let stays = facts.code.map(|code| (code.call_ns * facts.operations() + code.page_ns * pages).min(cpu));
    let code = |stays: f64| rest + stays + (cpu - stays + ready) / growth;
    let [likely, least, most] = match stays {
        Some(stays) => [stays, stays, f64::midpoint(stays, cpu)],
        None => [f64::midpoint(0.0, cpu), 0.0, cpu],
    }
    .map(code);
    let both = |device: f64, code: f64| if ahead { device.max(code) } else { device + code };
    let whole = facts.whole_ns;
    Some(Saved::of(
        whole - both(device(price), likely),
        whole - device(bounds[1]) - most,
        whole - both(device(bounds[0]), least),
    ))
}

/// Share of the reads that go on where others ended: then they are one stream for the device.
const STREAMS: f64 = 0.8;
/// Own requests of a class that met nothing of others, from which on their mean says how long one takes: it varies by a
/// third of itself if they vary by as much as they are.
const ALONE: u64 = 9;
/// Part of the requests that such classes have to have.
const MOSTLY: f64 = 0.5;

/// Nothing of others on the device.
///
/// Seen: requests that met nothing of others there are what all would be. Else the device divides itself, by requests
/// or by bytes; and where half of the requests are much quicker than the mean though others are there, it is the others
/// that make a few so long, as flushes do. A device with channels for all gives nothing back, and so the least is half
/// way to that; a disk gives back its lost place, and who uses the device uses CPUs, and so the most is all waits for
/// either.
pub(super) fn quieter(facts: &Facts<'_>) -> Saved {
    let c = &facts.digest.commands;
    let [waits, ready] = [&WAITS[..], &[Layer::Ready]].map(|layers| facts.in_layers(layers));
    let (mut covered, mut nr, mut took, mut would) = (0, 0, 0.0, 0.0);
    let (mut all_took, mut long) = (0.0, 0.0);
    for [all, alone] in c.own.values() {
        nr += all.count();
        all_took += all.sum();
        long += (all.sum() - all.count() as f64 * all.median()).max(0.0);
        if alone.count() >= ALONE {
            covered += all.count();
            took += all.sum();
            would += all.count() as f64 * alone.mean().min(all.mean());
        }
    }
    let shared = [c.taken, c.taken_by_size].map(|ns| ns.min(waits));
    let divided = [shared[0].min(shared[1]), shared[0].max(shared[1])];
    if covered as f64 >= MOSTLY * nr as f64 && took > 0.0 {
        let held = facts.in_layers(&[Layer::Plug, Layer::Elevator]);
        let busy: f64 = c.own_busy.iter().map(|ns| *ns as f64).sum();
        let seen = ((busy.max(waits - held) + held) * (1.0 - would / took)).min(waits);
        return Saved::of(seen, seen.min(divided[0]), seen.max(divided[1]) + ready);
    }
    let long = (c.in_the_way as f64).min(waits) * long / all_took.max(1.0);
    // A stream on a disk that turns loses its place, too; it was measured without them, or with less of them.
    let (size, reads) = own(facts, 0);
    let turns = facts.turns() == Some(true);
    let loses_place = facts.streams >= STREAMS && turns;
    let alone = measured(facts.service, size).filter(|_| loses_place);
    let stream = alone.map_or(0.0, |ns| facts.of_kinds(kinds(0), &WAITS) - ns * reads);
    // An arm takes as long for a small request as for a large one.
    let between = if turns { shared[0] } else { f64::midpoint(divided[0], divided[1]) };
    Saved::of(between.max(long).max(stream), f64::midpoint(0.0, divided[0]), waits + ready)
}

#[cfg(test)]
mod tests {
    use super::super::cost::Code;
    use super::super::edges::{Alone, AloneEdge, hold_cost, spread};
    use super::super::{noisy_neighbour, window_too_small};
    use super::{at_most, measured};
    use crate::digest::{Class, Layer};

    #[test]
    fn times_between_and_beyond_sizes() {
        let two: &[(u32, f64)] = &[(8, 100.0), (24, 140.0)];
        for (service, sectors, ns) in [
            (&[][..], 8.0, None),
            (&[(8, 100.0)], 16.0, Some(200.0)),
            (two, 8.0, Some(100.0)),
            (two, 16.0, Some(120.0)),
            (two, 40.0, Some(180.0)),
            (two, 96.0, Some(320.0)),
            (two, 97.0, None),
        ] {
            assert_eq!(measured(service, sectors), ns, "{sectors} of {service:?} ({})", "BEYOND");
        }
        assert_eq!(
            [16.0, 96.0, 97.0].map(|sectors| at_most(two, sectors)),
            [120.0, 560.0, 140.0 * 97.0 / 24.0].map(Some)
        );
    }

    #[test]
    fn larger_requests_take_as_long_as_measured_and_code_stays() {
        // A hundred reads of a page; half of the time is code.
        let limited = |put: fn(&mut Alone)| {
            move || {
                Alone::of(|a| {
                    a.set("recording", "disk", "sda");
                    a.set("sda", "read_ahead_kb", "8");
                    a.streams = 1.0;
                    a.requests(0, 100, 8, 5e5);
                    a.digest.time.ns[0][Layer::Cpu as usize] = 5e5;
                    put(a);
                })
            }
        };
        type Case = (fn(&mut Alone), f64);
        let cases: [Case; 4] = [
            // A half of the code is the likeliest: (1/2 + 1/64) of 500 us.
            (|_| (), 74.2),
            // Ten calls of 1 us, and as many pages of 9 us: the rest of the code is a 32nd of what it was.
            (|a| a.code = Some(Code { call_ns: 1e3, page_ns: 9e3 }), 88.8),
            // Four times as long a request, and the device is the slower one.
            (
                |a| {
                    a.code = Some(Code { call_ns: 0.0, page_ns: 0.0 });
                    a.service = vec![(8, 5e3), (256, 2e4)];
                },
                93.75,
            ),
            // The same of two at once: larger ones are, too.
            (
                |a| {
                    a.code = Some(Code { call_ns: 0.0, page_ns: 0.0 });
                    a.service = vec![(8, 1e4), (256, 4e4)];
                },
                93.75,
            ),
        ];
        for (put, pct) in cases {
            hold_cost(&window_too_small::RULE, limited(put), (pct, 0.85), &[]);
        }
    }

    #[test]
    fn what_met_nothing_of_others_says_what_all_would_take() {
        fn alone(a: &mut Alone, nr: f64) {
            let own = &mut a.digest.commands.own;
            own.values_mut().for_each(|[_, alone]| *alone = spread(nr as u64, 1e4));
        }
        let beside = || {
            Alone::of(|a| {
                a.others = vec![("x".to_owned(), 9)];
                a.requests(0, 20, 8, 1e6);
                alone(a, 9.0);
            })
        };
        let more: fn(&mut Alone, f64) = |a, nr| {
            a.digest
                .commands
                .own
                .insert(Class { octave: 1, ..Class::default() }, [spread(nr as u64, 1.0), spread(0, 1.0)]);
        };
        let edges: &[AloneEdge] = &[("ALONE", alone, 9.0, 8.0), ("MOSTLY", more, 20.0, 21.0)];
        hold_cost(&noisy_neighbour::RULE, beside, (80.0, 0.85), edges);
        let stream = || {
            let mut stream = beside();
            alone(&mut stream, 0.0);
            (stream.streams, stream.service) = (1.0, vec![(8, 1e4)]);
            stream.set("recording", "disk", "sda");
            stream.set("sda", "rotational", "1");
            stream
        };
        let edges: &[AloneEdge] = &[
            ("STREAMS", |a, x| a.streams = x, 0.8, 0.79),
            ("rotational", |a, x| a.set("sda", "rotational", &format!("{x}")), 1.0, 0.0),
        ];
        hold_cost(&noisy_neighbour::RULE, stream, (80.0, 0.85), edges);
    }
}

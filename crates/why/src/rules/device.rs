//! The device on equal commands: shared parts of the rules of the device.
//!
//! Commands are compared class by class ([`Class`]): direction, size, place, load. A class counts if both sides have it
//! often, and if its commands have equally many others before them and equally far to go; so that depth and order,
//! which are the elevator's, do not make a device look slower. The means of the classes are weighed alike on both
//! sides, with the slow side's numbers.
//!
//! ```text
//! idle exit   commands that find the device rested are slower, others are not
//! cap         the time from one completion to the next has become constant: of bytes if sizes decide, of commands if
//!             they do not; but commands that follow on, one at a time, and take milliseconds each, wait for a turn of
//!             the medium and not for permission
//! bandwidth   the difference grows with the size; or, of one size, completions keep a constant pace and none is small
//! latency     whatever else: the difference is there at each size, or spreads with the seeks
//! ```
//! Known limits: with commands of one size, a cap on bytes and one on commands differ only in which of them is a round
//! number; a write that finds a full write cache is slower for what came before it, so writes are looked at only if the
//! sides write alike.

use std::collections::BTreeSet;

use super::{Figure, Match, grade};
use crate::delta::{Contrast, Delta, Unit};
use crate::digest::{Class, Digest, Layer, Load, Moments, Place, Spread, Within};

/// The device's slower part.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Latency,
    Bandwidth,
    Cap,
    IdleExit,
}

/// A device that is slower on equal commands.
pub(super) struct Slower {
    pub(super) kind: Kind,
    /// Time of a command, the classes weighed alike, ns.
    pub(super) took: Contrast,
    /// Evidence that speaks for the kind.
    pub(super) evidence: Vec<Figure>,
    /// Sizes do not determine the kind.
    pub(super) one_size: bool,
}

/// A class that both sides have.
struct Equal {
    class: Class,
    took: Contrast,
    /// Commands on the slow side, for an operation.
    weight: f64,
    sectors: f64,
    deviation: Contrast,
}

/// Least number of commands of a class in a run.
const ENOUGH: u64 = 8;
/// Slower than by this factor, the device may be the cause.
const SLOWER: f64 = 1.06;
/// Rate, bytes a second, below which no medium transfers: an operation is slower, not its bytes.
const SLOWEST_MEDIUM: f64 = 20e6;

/// Rate, bytes a second, that a difference may well be one of bytes at, even if commands are small.
const PLAIN_MEDIUM: f64 = 100e6;

/// The device's slower part in `delta`, if it is slower on the slow side.
pub(super) fn slower(delta: &Delta<'_>) -> Option<Slower> {
    let classes = equal_classes(delta);
    let all: f64 = delta.per_operation(|d| d.commands.classes.values().map(|s| s.count()).sum::<u64>() as f64).slow;
    let covered: f64 = classes.iter().map(|equal| equal.weight).sum();
    if classes.is_empty() || covered < 0.3 * all {
        return slower_with_less(delta).or_else(|| saturated(delta));
    }
    // A write that ends a commit comes after a flush, and goes to the medium: it is slow for that, not for the rest.
    let syncs = delta.slow.runs.iter().any(|run| run.workload.calls[2] > 0);
    let (rested, others): (Vec<&Equal>, Vec<&Equal>) = classes
        .iter()
        .filter(|equal| !(syncs && equal.class.write))
        .partition(|equal| equal.class.load == Load::Rested);
    let whole = weighed(delta, &classes.iter().collect::<Vec<&Equal>>());
    let slow = |contrast: &Contrast| contrast.rose(SLOWER);
    if !rested.is_empty() {
        let of_rested = weighed(delta, &rested);
        let exit = if others.is_empty() {
            // Nothing to compare with: only a wait of its own kind is this long.
            of_rested.difference() > 500_000.0 && of_rested.rose(3.0)
        } else {
            slow(&of_rested) && of_rested.ratio() - 1.0 > 3.0 * (weighed(delta, &others).ratio() - 1.0).max(0.0)
        };
        if exit && of_rested.difference() > 20_000.0 {
            let mut evidence = vec![Figure::new("time of commands after a rest", of_rested, Unit::Ns)];
            if !others.is_empty() {
                evidence.push(Figure::new("time of other equal commands", weighed(delta, &others), Unit::Ns));
            }
            return Some(Slower { kind: Kind::IdleExit, took: of_rested, evidence, one_size: others.is_empty() });
        }
    }
    if !slow(&whole) {
        return None;
    }
    let mut evidence = vec![Figure::new("time at the device of equal commands", whole, Unit::Ns)];
    let variation = delta.of(|d| variation(&d.commands.cycles));
    let of_sizes = slope(&classes);
    let bytes = classes.iter().map(|c| c.weight * c.sectors * 512.0).sum::<f64>() / covered;
    let cycle = delta.of(|d| total(&d.commands.cycles).mean());
    let one_size = of_sizes.is_none();
    // Lone commands that take longer in all their parts vary by more, too; a cap takes the variation in, or has a round
    // rate.
    let lone: f64 =
        classes.iter().filter(|c| matches!(c.class.load, Load::Alone | Load::Rested)).map(|c| c.weight).sum();
    let rate = 1e9 / cycle.slow.max(1.0);
    let steadier = lone < 0.5 * covered
        || variation.slow * cycle.slow < 1.3 * variation.fast * cycle.fast
        || off_round(rate).min(off_round(bytes * rate)) < TYPED;
    let capped = steadier && variation.slow < 0.6 * variation.fast && variation.slow < 0.3 && variation.fast > 0.03;
    if capped && cycle.rose(SLOWER) {
        evidence.push(Figure::new("variation of the time from one completion to the next", variation, Unit::Ratio));
        evidence.push(Figure::new("time from one completion to the next", cycle, Unit::Ns));
        let kind = match by_size_of_cycles(delta) {
            _ if mechanical(&classes, bytes, cycle.slow) => Kind::Latency,
            Some(kind) => kind,
            None => by_round_number(bytes, cycle.slow),
        };
        return Some(Slower { kind, took: whole, evidence, one_size });
    }
    let kind = match of_sizes {
        Some(share) => {
            let share = Contrast::of_means(0.0, share);
            evidence.push(Figure::new("share of the difference that grows with the size", share, Unit::Share));
            if share.slow > 0.5 { Kind::Bandwidth } else { Kind::Latency }
        }
        // Several at the device share its time: the pace tells the rate better then.
        None if bytes * 1e9 / whole.difference().min(cycle.difference().abs()).max(1.0) < SLOWEST_MEDIUM => {
            Kind::Latency
        }
        None => {
            let steady = variation.slow < 0.15 && cycle.rose(SLOWER);
            let spread = classes.iter().max_by(|x, y| x.weight.total_cmp(&y.weight))?;
            let scattered = scatters(&spread.deviation, whole.difference());
            // A disk that streams keeps its pace but for a few commands, and those do not speak for a longer way.
            let streaming =
                spread.class.place == Place::Next && !matches!(spread.class.load, Load::Alone | Load::Rested);
            let large = bytes >= 32_768.0 || bytes * 1e9 / whole.difference() >= PLAIN_MEDIUM;
            // The quickest commands wait for nothing but their bytes; a longer way does not make them slower.
            let quickest = delta.of(|d| quickest(&d.commands.spacing));
            let bytes_slower = quickest.rose(1.3) && quickest.ratio() > 0.6 * cycle.ratio();
            let paced = steady && streaming || !scattered || bytes_slower || without_seek(delta, &classes);
            if large && paced { Kind::Bandwidth } else { Kind::Latency }
        }
    };
    Some(Slower { kind, took: whole, evidence, one_size })
}

/// Times of a backend vary with their length; times of bytes do not.
fn scatters(deviation: &Contrast, slower_by: f64) -> bool {
    deviation.slow > 1.3 * deviation.fast && deviation.difference() > 0.008 * slower_by
}

/// No class is common to both sides, because they keep the device busy in different ways; but commands of one
/// direction, size and place take longer on the slow side though no more are before them. That is the device's doing.
fn slower_with_less(delta: &Delta<'_>) -> Option<Slower> {
    let merged = |d: &Digest, of: Class, figure: fn(&Within) -> f64| -> (f64, f64) {
        let same = |class: &Class| (class.write, class.octave, class.place) == (of.write, of.octave, of.place);
        let all = d.commands.within.iter().filter(|(class, _)| same(class));
        all.fold((0.0, 0.0), |(sum, n), (_, within)| (sum + figure(within), n + within.took.count as f64))
    };
    let mean = |of: Class, figure: fn(&Within) -> f64| {
        delta.of(|d| {
            let (sum, n) = merged(d, of, figure);
            sum / n.max(1.0)
        })
    };
    let runs = || delta.fast.runs.iter().chain(&delta.slow.runs);
    let kinds: BTreeSet<Class> =
        runs().flat_map(|run| run.commands.within.keys()).map(|class| Class { load: Load::Alone, ..*class }).collect();
    let commonest = kinds.into_iter().max_by(|x, y| {
        let n = |of: &Class| runs().map(|d| merged(d, *of, |_| 0.0).1).sum::<f64>();
        n(x).total_cmp(&n(y))
    })?;
    let enough = runs().all(|d| merged(d, commonest, |_| 0.0).1 >= ENOUGH as f64);
    let share = runs().map(|d| merged(d, commonest, |_| 0.0).1 / commands(d)).fold(1.0, f64::min);
    let took = mean(commonest, |within| within.took.sum);
    let ahead = mean(commonest, |within| within.ahead as f64);
    let way = mean(commonest, |within| within.root_distance);
    let sectors = mean(commonest, |within| within.sectors as f64);
    let same_way = commonest.place != Place::Far || (0.8..=1.25).contains(&way.ratio());
    let same_size = (0.9..=1.1).contains(&sectors.ratio());
    let writes = commonest.write && delta.slow.runs.iter().any(|run| run.workload.calls[2] > 0);
    if !enough || share < 0.5 || writes || !same_way || !same_size || ahead.slow > ahead.fast * 1.02 + 0.02 {
        return None;
    }
    if !took.rose(1.1) {
        return None;
    }
    let bytes = sectors.slow * 512.0;
    let slow_rate = bytes * 1e9 / took.difference() < SLOWEST_MEDIUM;
    let deviation = delta.of(|d| {
        let same = |class: &Class| (class.write, class.octave) == (commonest.write, commonest.octave);
        let all = d.commands.within.iter().filter(|(class, _)| same(class) && class.place == commonest.place);
        all.max_by_key(|(_, within)| within.took.count).map_or(0.0, |(_, within)| within.took.deviation())
    });
    let alone = commonest.place == Place::Far && ahead.slow < 0.1;
    let scattered = alone && scatters(&deviation, took.difference());
    let kind = if slow_rate || bytes < 32_768.0 || scattered { Kind::Latency } else { Kind::Bandwidth };
    let evidence = vec![
        Figure::new("time at the device of commands of one size and place", took, Unit::Ns),
        Figure::new("others at the device before them", ahead, Unit::Ratio),
    ];
    Some(Slower { kind, took, evidence, one_size: true })
}

/// The device is never without work on the slow side, has at least as much of it waiting as on the fast one, of the
/// same kind, and gets less done: it can do less.
fn saturated(delta: &Delta<'_>) -> Option<Slower> {
    let size = delta.of(|d| (d.commands.sizes[0].sum() + d.commands.sizes[1].sum()) / commands(d));
    let mix = delta.of(|d| d.commands.issued[1] as f64 / commands(d));
    let seeks = delta.of(|d| d.commands.seeks as f64 / commands(d));
    let way = delta.of(|d| d.commands.distance / d.commands.seeks.max(1) as f64);
    let ahead = delta.of(|d| d.commands.within.values().map(|w| w.ahead as f64).sum::<f64>() / commands(d));
    let busy = delta.of(|d| d.commands.busy as f64 / super::reads::in_calls(d).max(1.0));
    let like = |contrast: &Contrast, by: f64| (1.0 / by..=by).contains(&contrast.ratio());
    let alike = like(&size, 1.15) && mix.difference().abs() < 0.1;
    // Without an arm every place is as good as any other.
    let same_way = !has_arm(delta) || seeks.difference().abs() < 0.1 && (seeks.slow < 0.1 || like(&way, 1.5));
    if !alike || !same_way || busy.slow < 0.9 || ahead.slow < 0.9 * ahead.fast {
        return None;
    }
    let each = delta.of(|d| d.commands.busy as f64 / commands(d));
    if !each.rose(1.1) {
        return None;
    }
    // Others between them make commands no slower.
    let pace = delta.of(|d| commonest(&d.commands.cycles).map_or(0.0, Moments::mean));
    if !pace.rose(SLOWER) {
        return None;
    }
    let variation = delta.of(|d| variation(&d.commands.cycles));
    let bytes = size.slow * 512.0;
    let kind = match by_size_of_cycles(delta) {
        _ if bytes * 1e9 / each.slow < SLOWEST_MEDIUM && variation.slow > 0.3 => Kind::Latency,
        Some(kind) => kind,
        None if variation.slow < 0.3 => by_round_number(bytes, each.slow),
        None => Kind::Bandwidth,
    };
    let evidence = vec![
        Figure::new("time that the device is busy, for each command", each, Unit::Ns),
        Figure::new("share of the time that the device is busy", busy, Unit::Share),
        Figure::new("others at the device before a command", ahead, Unit::Ratio),
    ];
    Some(Slower { kind, took: each, evidence, one_size: true })
}

/// The classes that both sides have in every run, with commands that are alike.
fn equal_classes(delta: &Delta<'_>) -> Vec<Equal> {
    let runs = || delta.fast.runs.iter().chain(&delta.slow.runs);
    let known: BTreeSet<Class> = runs().flat_map(|run| run.commands.within.keys().copied()).collect();
    let size = delta.of(|d| (d.commands.sizes[0].sum() + d.commands.sizes[1].sum()) / commands(d));
    let far = |contrast: Contrast, by: f64| !(1.0 / by..=by).contains(&contrast.ratio());
    let mix = delta.of(|d| d.commands.issued[1] as f64 / commands(d));
    let seeks = delta.of(|d| d.commands.seeks as f64 / commands(d));
    let alike = !far(size, 1.15) && mix.difference().abs() < 0.1 && seeks.difference().abs() < 0.1;
    let per = delta.per_operation(commands);
    let writes_alike = alike && !far(per, 1.15);
    let mut classes = Vec::new();
    for class in known {
        let has = |run: &Digest| run.commands.within.get(&class).is_some_and(|w| w.took.count >= ENOUGH);
        if !runs().all(has) || class.write && !writes_alike {
            continue;
        }
        let of = |figure: fn(&Within) -> f64| {
            delta.of(|d| d.commands.within.get(&class).map_or(0.0, |w| figure(w) / w.took.count as f64))
        };
        let (ahead, root) = (of(|w| w.ahead as f64), of(|w| w.root_distance));
        let busy = !matches!(class.load, Load::Alone | Load::Rested);
        if busy && (far(ahead, 1.1) || !alike) || class.place == Place::Far && far(root, 1.2) {
            continue;
        }
        classes.push(Equal {
            class,
            took: of(|w| w.took.sum),
            weight: delta.per_operation(|d| d.commands.within.get(&class).map_or(0.0, |w| w.took.count as f64)).slow,
            sectors: of(|w| w.sectors as f64).slow,
            deviation: delta.of(|d| d.commands.within.get(&class).map_or(0.0, |w| w.took.deviation())),
        });
    }
    classes
}

fn commands(d: &Digest) -> f64 {
    (d.commands.issued[0] + d.commands.issued[1]).max(1) as f64
}

/// Mean time of a command with the classes weighed alike in every run.
fn weighed(delta: &Delta<'_>, classes: &[&Equal]) -> Contrast {
    let all: f64 = classes.iter().map(|equal| equal.weight).sum();
    delta.of(|d| {
        let of = |equal: &&Equal| {
            d.commands.within.get(&equal.class).map_or(0.0, |w| w.took.mean()) * equal.weight
                / all.max(f64::MIN_POSITIVE)
        };
        classes.iter().map(of).sum()
    })
}

fn total(cycles: &std::collections::BTreeMap<u8, Moments>) -> Moments {
    cycles.values().fold(Moments::default(), |sum, of| Moments {
        count: sum.count + of.count,
        sum: sum.sum + of.sum,
        squares: sum.squares + of.squares,
    })
}

fn commonest(cycles: &std::collections::BTreeMap<u8, Moments>) -> Option<&Moments> {
    cycles.values().max_by_key(|of| of.count)
}

/// Half a turn of the fastest disk, ns.
const LEAST_TURN: f64 = 2e6;

/// Commands follow on, one at a time, and each takes as long as a medium takes to come round again, and not for its
/// bytes.
fn mechanical(classes: &[Equal], bytes: f64, cycle: f64) -> bool {
    let all: f64 = classes.iter().map(|c| c.weight).sum();
    let one_by_one = |c: &&Equal| c.class.place == Place::Next && matches!(c.class.load, Load::Alone | Load::Rested);
    let next: f64 = classes.iter().filter(one_by_one).map(|c| c.weight).sum();
    cycle >= LEAST_TURN && bytes * 1e9 / cycle < SLOWEST_MEDIUM && next > 0.5 * all
}

/// Standard deviation over mean of the cycles of the commonest size; 1 if there are few.
fn variation(cycles: &std::collections::BTreeMap<u8, Moments>) -> f64 {
    match commonest(cycles) {
        Some(of) if of.count >= 20 && of.mean() > 0.0 => of.deviation() / of.mean(),
        _ => 1.0,
    }
}

/// Commands far away take milliseconds longer than those that follow on: the device has to move an arm.
fn has_arm(delta: &Delta<'_>) -> bool {
    let mean = |place: Place| {
        delta.of(|d| {
            let of_place = d.commands.within.iter().filter(|(class, _)| class.place == place);
            let (sum, n) = of_place.fold((0.0, 0), |(sum, n), (_, w)| (sum + w.took.sum, n + w.took.count));
            sum / n.max(1) as f64
        })
    };
    mean(Place::Far).fast - mean(Place::Next).fast > 2e6
}

/// On a device with an arm, large commands that follow on are slower, too: they wait for nothing but the medium.
fn without_seek(delta: &Delta<'_>, classes: &[Equal]) -> bool {
    let next: Vec<&Equal> = classes.iter().filter(|equal| equal.class.place == Place::Next).collect();
    has_arm(delta) && !next.is_empty() && weighed(delta, &next).rose(1.15)
}

/// A low quantile of the time from one completion to the next, of the commonest size, ns; 0 if there are few.
fn quickest(spacing: &std::collections::BTreeMap<u8, Spread>) -> f64 {
    spacing.values().max_by_key(|of| of.count()).filter(|of| of.count() >= 20).map_or(0.0, |of| of.quantile(0.1))
}

/// Share of the differences that a line through them puts down to the size; nothing if the sizes are nearly one.
fn slope(classes: &[Equal]) -> Option<f64> {
    let all: f64 = classes.iter().map(|c| c.weight).sum();
    let mean = |of: &dyn Fn(&Equal) -> f64| classes.iter().map(|c| c.weight * of(c)).sum::<f64>() / all;
    let (x, y) = (mean(&|c| c.sectors), mean(&|c| c.took.difference()));
    let xx = mean(&|c| (c.sectors - x).powi(2));
    let (least, most) = classes
        .iter()
        .filter(|c| c.weight > 0.05 * all)
        .fold((f64::MAX, 0f64), |(least, most), c| (least.min(c.sectors), most.max(c.sectors)));
    if most < 3.0 * least || xx <= 0.0 || y <= 0.0 {
        return None;
    }
    let xy = mean(&|c| (c.sectors - x) * (c.took.difference() - y));
    Some((xy / xx * x / y).clamp(0.0, 1.0))
}

/// Do cycles grow with the size of the command, or are they as constant for one size as for the other? Commands are
/// slower by themselves if neither. Nothing if the sizes are nearly one.
fn by_size_of_cycles(delta: &Delta<'_>) -> Option<Kind> {
    let mut sum = std::collections::BTreeMap::<u8, Moments>::new();
    for run in &delta.slow.runs {
        for (octave, of) in &run.commands.cycles {
            let sum = sum.entry(*octave).or_default();
            sum.count += of.count;
            sum.sum += of.sum;
            sum.squares += of.squares;
        }
    }
    let all: u64 = sum.values().map(|of| of.count).sum();
    sum.retain(|_, of| of.count * 20 > all);
    let (small, large) = (sum.first_key_value()?, sum.last_key_value()?);
    let constant = sum.values().all(|of| of.deviation() < 0.3 * of.mean());
    (large.0 - small.0 >= 2).then(|| match large.1.mean() / small.1.mean().max(1.0) {
        ratio if ratio > 1.5 => Kind::Bandwidth,
        ratio if ratio > 0.67 && constant => Kind::Cap,
        _ => Kind::Latency,
    })
}

/// How far a rate is from one of two digits, relative.
fn off_round(rate: f64) -> f64 {
    let unit = 10f64.powf(rate.log10().floor() - 1.0);
    ((rate / unit).round() * unit / rate - 1.0).abs()
}

/// Most distance of a cap's rate from a round one.
const TYPED: f64 = 0.003;

/// A cap that commands of one size meet: of commands or of bytes, by which of both rates is round.
fn by_round_number(bytes: f64, cycle: f64) -> Kind {
    let rate = 1e9 / cycle.max(1.0);
    if bytes * rate < SLOWEST_MEDIUM {
        return Kind::Cap;
    }
    // Few sell a hundred thousand operations a second in pieces so small; and large commands meet caps on bytes first.
    let favour = if bytes < 65_536.0 { 1.0 } else { 3.0 };
    if rate > 50_000.0 || off_round(bytes * rate) < favour * off_round(rate) { Kind::Bandwidth } else { Kind::Cap }
}

/// The match of a rule for one kind.
pub(super) fn found(delta: &Delta<'_>, kind: Kind, claim: &str) -> Option<Match> {
    let slower = slower(delta).filter(|slower| slower.kind == kind)?;
    let ratio = slower.took.ratio();
    // Calls wait at the device, and before it for requests that are there: both shrink as its times do.
    let waits = delta.time(|time| time.of(Layer::Device) + time.of(Layer::Elevator)).slow;
    let doubt = if slower.one_size {
        " (commands of one size: the figures prefer this reading, but do not prove it)"
    } else {
        ""
    };
    Some(Match {
        confidence: grade(ratio, 1.02, 1.2) - if slower.one_size { 0.1 } else { 0.0 },
        share_ns: Some(waits * (1.0 - 1.0 / ratio)),
        claim: format!(
            "{claim}: equal commands take {:.0} us instead of {:.0}{doubt}",
            slower.took.slow / 1e3,
            slower.took.fast / 1e3
        ),
        evidence: slower.evidence,
    })
}

//! The device on equal commands: shared parts of the rules of the device.
//!
//! Commands are compared class by class ([`Class`]): direction, size, place, load. A class counts if both sides have it
//! often, and if its commands have equally many others before them, as many that end while they wait, and equally far
//! to go; so that depth and order, which are the elevator's, do not make a device look slower. Under another scheduler,
//! commands of a disk with an arm count only if nothing else is at the disk. The means of the classes are weighed
//! alike on both sides, with the slow side's numbers.
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

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

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
/// The same of commands that are only roughly alike.
const SURELY_SLOWER: f64 = 1.1;
/// Part of the commands that have to be in classes of both sides.
const COVERED: f64 = 0.3;
/// Part of the commands that most of them are.
const MOSTLY: f64 = 0.5;
/// Growth, ns, of the time after a rest that is an exit from a state of low power where nothing else can be compared.
const LONG_EXIT: f64 = 500_000.0;
/// Factor of that growth: seeks and turns differ by less between disks.
const LONGER_EXIT: f64 = 3.0;
/// Growth of the time after a rest over that of other commands, which are slower for other reasons.
const EXIT_ALONE: f64 = 3.0;
/// Growth, ns, of the time after a rest: shallow states are left faster, and cost less than a command.
const LEAST_EXIT: f64 = 20_000.0;
/// Growth of the standard deviation, beyond which commands vary by more.
const WIDER: f64 = 1.3;
/// Growth of the standard deviation over that of the time: less is the rounding of times.
const SCATTERED: f64 = 0.008;
/// Fall of the variation of cycles under a cap.
const STEADIER: f64 = 0.6;
/// Deviation of lone commands' cycles over that of the commands, under a cap at most: without one they share what is
/// late.
const TAKEN_IN: f64 = 0.8;
/// Variation of cycles under a cap at most.
const STEADY: f64 = 0.3;
/// Variation of cycles without a cap at least: a device that is constant itself does not show one.
const VARIED: f64 = 0.03;
/// Variation of cycles of a medium that streams at most.
const STREAMING: f64 = 0.15;
/// Share of the difference that grows with the size, beyond which it is one of bytes.
const OF_BYTES: f64 = 0.5;
/// Bytes of a command, from which on they decide its time rather than its way does.
const LARGE: f64 = 32_768.0;
/// Growth of the quickest cycles, beyond which it is not noise.
const QUICKEST_SLOWER: f64 = 1.3;
/// Their growth over that of all cycles: if all bytes take longer, all cycles do.
const QUICKEST_TOO: f64 = 0.6;
/// Cycles of a size, from which on their spread is known.
const LEAST_CYCLES: u64 = 20;
/// Rate, bytes a second, below which no medium transfers: an operation is slower, not its bytes.
const SLOWEST_MEDIUM: f64 = 20e6;

/// Rate, bytes a second, that a difference may well be one of bytes at, even if commands are small.
const PLAIN_MEDIUM: f64 = 100e6;

/// The device's slower part in `delta`, if it is slower on the slow side.
pub(super) fn slower(delta: &Delta<'_>) -> Option<Slower> {
    let classes = equal_classes(delta);
    let all: f64 = delta.per_operation(|d| d.commands.classes.values().map(|s| s.count()).sum::<u64>() as f64).slow;
    let covered: f64 = classes.iter().map(|equal| equal.weight).sum();
    if classes.is_empty() || covered < COVERED * all {
        let by_scheduler = delta.other_scheduler() && has_arm(delta);
        return slower_with_less(delta).or_else(|| saturated(delta)).filter(|_| !by_scheduler);
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
            of_rested.difference() > LONG_EXIT && of_rested.rose(LONGER_EXIT)
        } else {
            slow(&of_rested) && of_rested.ratio() - 1.0 > EXIT_ALONE * (weighed(delta, &others).ratio() - 1.0).max(0.0)
        };
        if exit && of_rested.difference() > LEAST_EXIT {
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
    // Lone commands that take longer in all their parts vary by more, too. A cap takes the variation in: what a program
    // is late by, its next command is short by, so that commands vary by more than cycles do; or it has a round rate.
    let lone: f64 =
        classes.iter().filter(|c| matches!(c.class.load, Load::Alone | Load::Rested)).map(|c| c.weight).sum();
    let rate = 1e9 / cycle.slow.max(1.0);
    let by_weight = |x: &&Equal, y: &&Equal| x.weight.total_cmp(&y.weight);
    let deviation = classes.iter().max_by(by_weight).map_or(0.0, |equal| equal.deviation.slow);
    let cycles_vary = variation.slow * cycle.slow;
    let steadier = lone < MOSTLY * covered
        || cycles_vary < WIDER * variation.fast * cycle.fast && cycles_vary < TAKEN_IN * deviation
        || off_round(rate).min(off_round(bytes * rate)) < TYPED;
    let fell = variation.slow < STEADIER * variation.fast && variation.fast > VARIED;
    let capped = steadier && fell && variation.slow < STEADY;
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
            if share.slow > OF_BYTES { Kind::Bandwidth } else { Kind::Latency }
        }
        // Several at the device share its time: the pace tells the rate better then.
        None if bytes * 1e9 / whole.difference().min(cycle.difference().abs()).max(1.0) < SLOWEST_MEDIUM => {
            Kind::Latency
        }
        None => {
            let steady = variation.slow < STREAMING && cycle.rose(SLOWER);
            let spread = classes.iter().max_by(by_weight)?;
            let scattered = scatters(&spread.deviation, whole.difference());
            // A disk that streams keeps its pace but for a few commands, and those do not speak for a longer way.
            let streaming =
                spread.class.place == Place::Next && !matches!(spread.class.load, Load::Alone | Load::Rested);
            let large = bytes >= LARGE || bytes * 1e9 / whole.difference() >= PLAIN_MEDIUM;
            // The quickest commands wait for nothing but their bytes; a longer way does not make them slower.
            let quickest = delta.of(|d| quickest(&d.commands.spacing));
            let bytes_slower = quickest.rose(QUICKEST_SLOWER) && quickest.ratio() > QUICKEST_TOO * cycle.ratio();
            let paced = steady && streaming || !scattered || bytes_slower || without_seek(delta, &classes);
            if large && paced { Kind::Bandwidth } else { Kind::Latency }
        }
    };
    Some(Slower { kind, took: whole, evidence, one_size })
}

/// Times of a backend vary with their length; times of bytes do not.
fn scatters(deviation: &Contrast, slower_by: f64) -> bool {
    deviation.slow > WIDER * deviation.fast && deviation.difference() > SCATTERED * slower_by
}

/// Ways of the head, slow over fast, by their square roots, if seeks take as long.
const SAME_WAY: RangeInclusive<f64> = 0.8..=1.25;
/// Mean sizes of one octave, slow over fast, if they are equal.
const SAME_SIZE: RangeInclusive<f64> = 0.9..=1.1;
/// Growth of the commands ahead, and what comes to it where there were next to none: more of them explain more time.
const AHEAD: f64 = 1.02;
/// See [`AHEAD`].
const ONE_AHEAD: f64 = 0.02;
/// Commands ahead, below which a command is alone.
const ALONE: f64 = 0.1;

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
    let share = runs().map(|d| merged(d, commonest, |_| 0.0).1 / d.commands.number()).fold(1.0, f64::min);
    let took = mean(commonest, |within| within.took.sum);
    let ahead = mean(commonest, |within| within.ahead as f64);
    let passed = mean(commonest, |within| within.passed as f64);
    let way = mean(commonest, |within| within.root_distance);
    let sectors = mean(commonest, |within| within.sectors as f64);
    let same_way = commonest.place != Place::Far || SAME_WAY.contains(&way.ratio());
    let same_size = SAME_SIZE.contains(&sectors.ratio());
    let writes = commonest.write && delta.slow.runs.iter().any(|run| run.workload.calls[2] > 0);
    let more = |of: &Contrast| of.slow > of.fast * AHEAD + ONE_AHEAD;
    let others_ahead = more(&ahead) || more(&passed);
    if !enough || share < MOSTLY || writes || !same_way || !same_size || others_ahead || !took.rose(SURELY_SLOWER) {
        return None;
    }
    let bytes = sectors.slow * 512.0;
    let slow_rate = bytes * 1e9 / took.difference() < SLOWEST_MEDIUM;
    let deviation = delta.of(|d| {
        let same = |class: &Class| (class.write, class.octave) == (commonest.write, commonest.octave);
        let all = d.commands.within.iter().filter(|(class, _)| same(class) && class.place == commonest.place);
        all.max_by_key(|(_, within)| within.took.count).map_or(0.0, |(_, within)| within.took.deviation())
    });
    let alone = commonest.place == Place::Far && ahead.slow < ALONE;
    let scattered = alone && scatters(&deviation, took.difference());
    let kind = if slow_rate || bytes < LARGE || scattered { Kind::Latency } else { Kind::Bandwidth };
    let evidence = vec![
        Figure::new("time at the device of commands of one size and place", took, Unit::Ns),
        Figure::new("others at the device before them", ahead, Unit::Ratio),
    ];
    Some(Slower { kind, took, evidence, one_size: true })
}

/// Factor up to which mean sizes, and numbers of commands for an operation, are alike.
const ALIKE: f64 = 1.15;
/// Difference up to which shares of writes and of seeks are alike.
const SHARE: f64 = 0.1;
/// Share of seeks, below which their way does not matter.
const FEW_SEEKS: f64 = 0.1;
/// Factor up to which the mean way of the head is alike: seeks take about as long as its square root.
const LIKE_WAY: f64 = 1.5;
/// Share of the time that a device without rest is busy at least.
const BUSY: f64 = 0.9;
/// Commands ahead, slow over fast, at least: with less work there is less to do at once.
const AS_MUCH_WORK: f64 = 0.9;

fn like(contrast: &Contrast, by: f64) -> bool {
    (1.0 / by..=by).contains(&contrast.ratio())
}

/// The device is never without work on the slow side, has at least as much of it waiting as on the fast one, of the
/// same kind, and gets less done: it can do less.
fn saturated(delta: &Delta<'_>) -> Option<Slower> {
    let size = delta.of(|d| (d.commands.sizes[0].sum() + d.commands.sizes[1].sum()) / d.commands.number());
    let mix = delta.of(|d| d.commands.issued[1] as f64 / d.commands.number());
    let seeks = delta.of(|d| d.commands.seek_share());
    let way = delta.of(|d| d.commands.distance / d.commands.seeks.max(1) as f64);
    let ahead = delta.of(|d| d.commands.within.values().map(|w| w.ahead as f64).sum::<f64>() / d.commands.number());
    let busy = delta.of(|d| d.commands.busy as f64 / super::reads::in_calls(d).max(1.0));
    let alike = like(&size, ALIKE) && mix.difference().abs() < SHARE;
    // Without an arm every place is as good as any other. A drive that queues goes the ways that it finds best.
    let ended = delta.of(|d| d.commands.ended.elsewhere as f64 / d.commands.number());
    let as_often = seeks.difference().abs() < SHARE && ended.difference().abs() < SHARE;
    let same_way = !has_arm(delta) || as_often && (seeks.slow < FEW_SEEKS || like(&way, LIKE_WAY));
    if !alike || !same_way || busy.slow < BUSY || ahead.slow < AS_MUCH_WORK * ahead.fast {
        return None;
    }
    let each = delta.of(|d| d.commands.busy as f64 / d.commands.number());
    // Others between them make commands no slower.
    let pace = delta.of(|d| commonest(&d.commands.cycles).map_or(0.0, Moments::mean));
    if !each.rose(SURELY_SLOWER) || !pace.rose(SLOWER) {
        return None;
    }
    let variation = delta.of(|d| variation(&d.commands.cycles));
    let bytes = size.slow * 512.0;
    let kind = match by_size_of_cycles(delta) {
        _ if bytes * 1e9 / each.slow < SLOWEST_MEDIUM && variation.slow > STEADY => Kind::Latency,
        Some(kind) => kind,
        None if variation.slow < STEADY => by_round_number(bytes, each.slow),
        None => Kind::Bandwidth,
    };
    let evidence = vec![
        Figure::new("time that the device is busy, for each command", each, Unit::Ns),
        Figure::new("share of the time that the device is busy", busy, Unit::Share),
        Figure::new("others at the device before a command", ahead, Unit::Ratio),
    ];
    Some(Slower { kind, took: each, evidence, one_size: true })
}

/// Factor up to which equally many commands are ahead.
const LIKE_AHEAD: f64 = 1.1;
/// Factor up to which the ways of a class are alike, by their square roots.
const LIKE_ROOT: f64 = 1.2;

/// The classes that both sides have in every run, with commands that are alike.
fn equal_classes(delta: &Delta<'_>) -> Vec<Equal> {
    let runs = || delta.fast.runs.iter().chain(&delta.slow.runs);
    let known: BTreeSet<Class> = runs().flat_map(|run| run.commands.within.keys().copied()).collect();
    let size = delta.of(|d| (d.commands.sizes[0].sum() + d.commands.sizes[1].sum()) / d.commands.number());
    let mix = delta.of(|d| d.commands.issued[1] as f64 / d.commands.number());
    let seeks = delta.of(|d| d.commands.seek_share());
    let alike = like(&size, ALIKE) && mix.difference().abs() < SHARE && seeks.difference().abs() < SHARE;
    let per = delta.per_operation(|d| d.commands.number());
    let writes_alike = alike && like(&per, ALIKE);
    // Where an arm moves, the moments and the order in which a scheduler sends commands decide how far it goes.
    let timed = delta.other_scheduler() && has_arm(delta);
    let mut classes = Vec::new();
    for class in known {
        let has = |run: &Digest| run.commands.within.get(&class).is_some_and(|w| w.took.count >= ENOUGH);
        if !runs().all(has) || class.write && !writes_alike {
            continue;
        }
        let of = |figure: fn(&Within) -> f64| {
            delta.of(|d| d.commands.within.get(&class).map_or(0.0, |w| figure(w) / w.took.count as f64))
        };
        let (ahead, passed, root) = (of(|w| w.ahead as f64), of(|w| w.passed as f64), of(|w| w.root_distance));
        let busy = !matches!(class.load, Load::Alone | Load::Rested);
        // A drive takes those that come later first where they are nearer.
        let overtaken = passed.slow > passed.fast * LIKE_AHEAD + ONE_AHEAD;
        let equal = alike && !timed && !overtaken && like(&ahead, LIKE_AHEAD);
        if busy && !equal || class.place == Place::Far && !like(&root, LIKE_ROOT) {
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

fn total(cycles: &BTreeMap<u8, Moments>) -> Moments {
    cycles.values().fold(Moments::default(), |sum, of| Moments {
        count: sum.count + of.count,
        sum: sum.sum + of.sum,
        squares: sum.squares + of.squares,
    })
}

fn commonest(cycles: &BTreeMap<u8, Moments>) -> Option<&Moments> {
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
    cycle >= LEAST_TURN && bytes * 1e9 / cycle < SLOWEST_MEDIUM && next > MOSTLY * all
}

/// Standard deviation over mean of the cycles of the commonest size; 1 if there are few.
fn variation(cycles: &BTreeMap<u8, Moments>) -> f64 {
    match commonest(cycles) {
        Some(of) if of.count >= LEAST_CYCLES && of.mean() > 0.0 => of.deviation() / of.mean(),
        _ => 1.0,
    }
}

/// Commands far away take milliseconds longer than those that follow on: the device has to move an arm.
pub(super) fn has_arm(delta: &Delta<'_>) -> bool {
    let mean = |place: Place| {
        delta.of(|d| {
            let of_place = d.commands.within.iter().filter(|(class, _)| class.place == place);
            let (sum, n) = of_place.fold((0.0, 0), |(sum, n), (_, w)| (sum + w.took.sum, n + w.took.count));
            sum / n.max(1) as f64
        })
    };
    mean(Place::Far).fast - mean(Place::Next).fast > LEAST_TURN
}

/// Growth of the time of commands that follow on: more than the change from the outer tracks to their neighbours.
const NEXT_SLOWER: f64 = 1.15;

/// On a device with an arm, large commands that follow on are slower, too: they wait for nothing but the medium.
fn without_seek(delta: &Delta<'_>, classes: &[Equal]) -> bool {
    let next: Vec<&Equal> = classes.iter().filter(|equal| equal.class.place == Place::Next).collect();
    has_arm(delta) && !next.is_empty() && weighed(delta, &next).rose(NEXT_SLOWER)
}

/// The quantile that stands for the quickest: the very first may be early by chance.
const QUICKEST: f64 = 0.1;

/// A low quantile of the time from one completion to the next, of the commonest size, ns; 0 if there are few.
fn quickest(spacing: &BTreeMap<u8, Spread>) -> f64 {
    spacing
        .values()
        .max_by_key(|of| of.count())
        .filter(|of| of.count() >= LEAST_CYCLES)
        .map_or(0.0, |of| of.quantile(QUICKEST))
}

/// Part of the commands, up to which a class is too rare to hold one end of a line.
const RARE_CLASS: f64 = 0.05;
/// Factor between the sizes at both ends of a line at least.
const LONG_LINE: f64 = 3.0;

/// Share of the differences that a line through them puts down to the size; nothing if the sizes are nearly one.
fn slope(classes: &[Equal]) -> Option<f64> {
    let all: f64 = classes.iter().map(|c| c.weight).sum();
    let mean = |of: &dyn Fn(&Equal) -> f64| classes.iter().map(|c| c.weight * of(c)).sum::<f64>() / all;
    let (x, y) = (mean(&|c| c.sectors), mean(&|c| c.took.difference()));
    let xx = mean(&|c| (c.sectors - x) * (c.sectors - x));
    let (least, most) = classes
        .iter()
        .filter(|c| c.weight > RARE_CLASS * all)
        .fold((f64::MAX, 0.0_f64), |(least, most), c| (least.min(c.sectors), most.max(c.sectors)));
    if most < LONG_LINE * least || xx <= 0.0 || y <= 0.0 {
        return None;
    }
    let xy = mean(&|c| (c.sectors - x) * (c.took.difference() - y));
    Some((xy / xx * x / y).clamp(0.0, 1.0))
}

/// Of as many cycles one has to have a size for it to count.
const RARE_SIZE: u64 = 20;
/// Octaves between sizes whose cycles tell bytes from commands: those of four times the size take up to four times.
const OCTAVES: u8 = 2;
/// Growth of the cycles with the size, beyond which bytes are capped.
const GROWS: f64 = 1.5;
/// Cycles of the largest size over those of the smallest, down to which they do not depend on it.
const SHRINKS: f64 = 0.67;

/// Do cycles grow with the size of the command, or are they as constant for one size as for the other? Commands are
/// slower by themselves if neither. Nothing if the sizes are nearly one.
fn by_size_of_cycles(delta: &Delta<'_>) -> Option<Kind> {
    let mut sum = BTreeMap::<u8, Moments>::new();
    for run in &delta.slow.runs {
        for (octave, of) in &run.commands.cycles {
            let sum = sum.entry(*octave).or_default();
            sum.count += of.count;
            sum.sum += of.sum;
            sum.squares += of.squares;
        }
    }
    let all: u64 = sum.values().map(|of| of.count).sum();
    sum.retain(|_, of| of.count * RARE_SIZE > all);
    let (small, large) = (sum.first_key_value()?, sum.last_key_value()?);
    let constant = sum.values().all(|of| of.deviation() < STEADY * of.mean());
    (large.0 - small.0 >= OCTAVES).then(|| match large.1.mean() / small.1.mean().max(1.0) {
        ratio if ratio > GROWS => Kind::Bandwidth,
        ratio if ratio > SHRINKS && constant => Kind::Cap,
        _ => Kind::Latency,
    })
}

/// Rates are typed in digits of base ten.
const TEN: f64 = 10.0;

/// How far a rate is from one of two digits, relative.
fn off_round(rate: f64) -> f64 {
    let unit = TEN.powf(rate.log10().floor() - 1.0);
    ((rate / unit).round() * unit / rate - 1.0).abs()
}

/// Most distance of a cap's rate from a round one.
const TYPED: f64 = 0.003;

/// Bytes of a command, from which on it meets a cap on bytes first.
const CAPPED_BYTES: f64 = 65_536.0;
/// How much less round the rate of bytes may be for such commands.
const FAVOUR: f64 = 3.0;
/// Commands a second that no cap lets pass in pieces so small: few sell more.
const MOST_COMMANDS: f64 = 50_000.0;

/// A cap that commands of one size meet: of commands or of bytes, by which of both rates is round.
fn by_round_number(bytes: f64, cycle: f64) -> Kind {
    let rate = 1e9 / cycle.max(1.0);
    if bytes * rate < SLOWEST_MEDIUM {
        return Kind::Cap;
    }
    let favour = if bytes < CAPPED_BYTES { 1.0 } else { FAVOUR };
    if rate > MOST_COMMANDS || off_round(bytes * rate) < favour * off_round(rate) { Kind::Bandwidth } else { Kind::Cap }
}

/// Growth of the time of equal commands, half sure and sure.
const GRADE: (f64, f64) = (1.02, 1.2);
/// Loss of confidence if commands of one size do not tell the kind.
const DOUBT: f64 = 0.1;

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
        confidence: grade(ratio, GRADE.0, GRADE.1) - if slower.one_size { DOUBT } else { 0.0 },
        share_ns: Some(waits * (1.0 - 1.0 / ratio)),
        claim: format!(
            "{claim}: equal commands take {:.0} us instead of {:.0}{doubt}",
            slower.took.slow / 1e3,
            slower.took.fast / 1e3
        ),
        evidence: slower.evidence,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::edges::{Edge, Pair, hold, spread, sure};
    use super::super::{device_bandwidth, device_idle_exit, device_iops_cap, device_latency};
    use super::*;
    use iowhy_stack::units::Nanos;

    const LONE: Class = Class { write: false, octave: 0, place: Place::Next, load: Load::Alone };
    const WRITE: Class = Class { write: true, ..LONE };
    const REST: Class = Class { load: Load::Rested, ..WRITE };
    const BUSIED: Class = Class { load: Load::Few, ..LONE };
    const LARGER: Class = Class { octave: 5, ..LONE };
    const AWAY: Class = Class { place: Place::Far, ..LONE };

    fn moments(count: u64, mean: f64, deviation: f64) -> Moments {
        let n = count as f64;
        Moments { count, sum: n * mean, squares: n * (mean * mean + deviation * deviation) }
    }

    /// Commands of a class: their number, sectors of each, mean and deviation of their times.
    fn put(d: &mut Digest, class: Class, n: u64, sectors: u64, (mean, deviation): (f64, f64)) {
        let within = Within { sectors: n * sectors, took: moments(n, mean, deviation), ..Within::default() };
        d.commands.within.insert(class, within);
        d.commands.classes.insert(class, spread(n, mean));
        for way in [0, 1] {
            let of_way = || d.commands.within.iter().filter(|(class, _)| usize::from(class.write) == way);
            d.commands.issued[way] = of_way().map(|(_, w)| w.took.count).sum();
            d.commands.sizes[way] = spread(1, of_way().map(|(_, w)| w.sectors).sum::<u64>() as f64);
        }
    }

    fn of(d: &mut Digest, class: Class) -> &mut Within {
        d.commands.within.entry(class).or_default()
    }

    /// Three hundred commands of a class on each side: sectors, means and deviations.
    fn one(class: Class, sectors: u64, fast: (f64, f64), slow: (f64, f64)) -> Pair {
        Pair::of(|p| {
            put(&mut p.fast, class, 300, sectors, fast);
            put(&mut p.slow, class, 300, sectors, slow);
        })
    }

    /// A thousand cycles on each side: means and variations.
    fn paced(p: &mut Pair, fast: (f64, f64), slow: (f64, f64)) -> &mut Pair {
        for (d, (mean, variation)) in [(&mut p.fast, fast), (&mut p.slow, slow)] {
            d.commands.cycles = [(0, moments(1000, mean, mean * variation))].into();
        }
        p
    }

    /// Small commands, one at a time, a tenth slower.
    pub(in super::super) fn latency() -> Pair {
        one(LONE, 8, (1e6, 0.0), (1.1e6, 0.0))
    }

    fn busy() -> Pair {
        let mut pair = one(BUSIED, 8, (1e6, 0.0), (1.08e6, 0.0));
        pair.both(|d| of(d, BUSIED).ahead = 3000);
        pair
    }

    /// One of the commands is overtaken on the fast side, and this many on the slow one.
    fn overtaken(p: &mut Pair, slow: f64) {
        of(&mut p.fast, BUSIED).passed = 300;
        of(&mut p.slow, BUSIED).passed = slow as u64;
    }

    /// A disk with an arm: five commands go this long a way, ns; the scheduler is another one on the slow side, or not.
    fn scheduled(p: &mut Pair, other: usize, way: f64) {
        p.both(|d| put(d, AWAY, 5, 8, (way, 0.0)));
        for (nr, side) in p.sides.iter_mut().enumerate() {
            (side.live, side.scheduler) = (true, Some(["bfq", "mq-deadline"][nr * other].to_owned()));
        }
    }

    fn far() -> Pair {
        let mut pair = one(AWAY, 8, (1e6, 0.0), (1.08e6, 0.0));
        pair.both(|d| of(d, AWAY).root_distance = 3e5);
        pair
    }

    /// A thousand commands, of which these write on the slow side.
    fn mixed(p: &mut Pair, writes: f64) {
        (p.fast.commands.issued, p.slow.commands.issued) = ([1000, 0], [1000 - writes as u64, writes as u64]);
    }

    #[test]
    fn limits_of_classes() {
        let edges: &[Edge] = &[
            ("ENOUGH", |p, x| put(&mut p.fast, LONE, x as u64, 8, (1e6, 0.0)), 8.0, 7.0),
            ("SLOWER", |p, x| put(&mut p.slow, LONE, 300, 8, (x, 0.0)), 1_060_001.0, 1_060_000.0),
            ("COVERED", |p, x| put(&mut p.slow, LARGER, x as u64, 8, (1e6, 0.0)), 700.0, 701.0),
        ];
        hold(&device_latency::RULE, latency, 0.632, edges);
        let doubt: Edge = ("DOUBT", |p, x| put(&mut p.slow, LONE, 300, 8, (x, 0.0)), 1_300_000.0, 0.9);
        sure(&device_latency::RULE, latency, &[doubt]);
        let edges: &[Edge] = &[
            ("LIKE_AHEAD", |p, x| of(&mut p.slow, BUSIED).ahead = x as u64, 3300.0, 3301.0),
            ("LIKE_AHEAD, fewer", |p, x| of(&mut p.slow, BUSIED).ahead = x as u64, 2728.0, 2727.0),
            ("ALIKE, sizes", |p, x| p.slow.commands.sizes[0] = spread(1, x), 2760.0, 2761.0),
            ("ALIKE, smaller", |p, x| p.slow.commands.sizes[0] = spread(1, x), 2087.0, 2086.0),
            ("SHARE, writes", mixed, 99.0, 100.0),
            ("SHARE, seeks", |p, x| p.slow.commands.seeks = x as u64, 29.0, 30.0),
            ("ONE_AHEAD, overtaken", |p, x| of(&mut p.slow, BUSIED).passed = x as u64, 6.0, 7.0),
            ("LIKE_AHEAD, overtaken", |p, x| overtaken(p, x), 336.0, 337.0),
            ("LEAST_TURN, scheduler", |p, x| scheduled(p, 1, x), 3_000_000.0, 3_000_001.0),
            ("scheduler", |p, x| scheduled(p, x as usize, 4e6), 0.0, 1.0),
        ];
        hold(&device_latency::RULE, busy, 0.576, edges);
        let edges: &[Edge] = &[
            ("LIKE_ROOT", |p, x| of(&mut p.slow, AWAY).root_distance = x, 360_000.0, 360_001.0),
            ("LIKE_ROOT, nearer", |p, x| of(&mut p.slow, AWAY).root_distance = x, 250_000.0, 249_999.0),
        ];
        hold(&device_latency::RULE, far, 0.576, edges);
    }

    /// Commands after a rest, and nothing else.
    fn rested() -> Pair {
        one(REST, 8, (2e5, 0.0), (8e5, 0.0))
    }

    /// Writes after a rest are a tenth slower, others are as fast.
    pub(in super::super) fn idle() -> Pair {
        let mut pair = one(REST, 8, (3e5, 0.0), (3.3e5, 0.0));
        pair.both(|d| put(d, WRITE, 700, 8, (1e5, 0.0)));
        pair
    }

    /// Writes of the slow side, all of one size.
    fn writes(p: &mut Pair, n: f64) {
        (p.slow.commands.issued[1], p.slow.commands.sizes[1]) = (n as u64, spread(1, 8.0 * n));
    }

    #[test]
    fn limits_of_rests() {
        let edges: &[Edge] = &[
            ("LONG_EXIT", |p, x| put(&mut p.slow, REST, 300, 8, (x, 0.0)), 700_001.0, 700_000.0),
            ("LONGER_EXIT", |p, x| put(&mut p.fast, REST, 300, 8, (x, 0.0)), 266_666.0, 266_667.0),
        ];
        hold(&device_idle_exit::RULE, rested, 0.9, edges);
        let edges: &[Edge] = &[
            ("LEAST_EXIT", |p, x| put(&mut p.slow, REST, 300, 8, (x, 0.0)), 320_001.0, 320_000.0),
            ("SLOWER", |p, x| *p = slow_rest(x), 1_060_001.0, 1_060_000.0),
            ("EXIT_ALONE", |p, x| put(&mut p.slow, WRITE, 700, 8, (x, 0.0)), 103_333.0, 103_334.0),
            ("ALIKE, writes", writes, 1150.0, 1151.0),
            ("ALIKE, fewer writes", writes, 870.0, 869.0),
            ("syncs", |p, x| p.slow.workload.calls[2] = x as u64, 0.0, 1.0),
        ];
        hold(&device_idle_exit::RULE, idle, 0.732, edges);
    }

    fn slow_rest(slow: f64) -> Pair {
        let mut pair = one(REST, 8, (1e6, 0.0), (slow, 0.0));
        pair.both(|d| put(d, WRITE, 700, 8, (1e5, 0.0)));
        pair
    }

    /// Busy commands of some size complete at a pace that has become constant.
    fn capped(sectors: f64, cycle: f64) -> Pair {
        let mut pair = one(BUSIED, sectors as u64, (1e6, 0.0), (1.1e6, 0.0));
        paced(&mut pair, (0.9 * cycle, 0.5), (cycle, 0.1));
        pair
    }

    pub(in super::super) fn cap() -> Pair {
        capped(8.0, 1e6)
    }

    /// The same, of commands of which a part comes one at a time, at another pace and less constant.
    fn lone(part: f64, cycle: f64, variation: f64) -> Pair {
        let mut pair = cap();
        for (d, took) in [(&mut pair.fast, 1e6), (&mut pair.slow, 1.1e6)] {
            put(d, LONE, part as u64, 9, (took, COMMANDS_VARY));
            put(d, BUSIED, 1000 - part as u64, 9, (took, COMMANDS_VARY));
        }
        paced(&mut pair, (3e5, 0.5), (cycle, variation));
        pair
    }

    const COMMANDS_VARY: f64 = 5e5;

    /// 1045 commands a second.
    const NOT_TYPED: f64 = 956_938.0;

    /// Lone commands whose times have this deviation, ns, and cycles one of 143,541 ns.
    fn lone_of(deviation: f64) -> Pair {
        let mut pair = lone(1000.0, NOT_TYPED, 0.15);
        of(&mut pair.slow, LONE).took = moments(1000, 1.1e6, deviation);
        pair
    }

    /// A cap that meets larger commands, too: their octave, cycles and variation.
    fn larger(p: &mut Pair, octave: f64, n: u64, (mean, variation): (f64, f64)) {
        paced(p, (5e5, 0.5), (1e6, 0.1)).slow.commands.cycles.insert(octave as u8, moments(n, mean, mean * variation));
    }

    #[test]
    fn limits_of_caps() {
        let edges: &[Edge] = &[
            ("STEADIER", |p, x| _ = paced(p, (9e5, 0.4), (1e6, x)), 0.239, 0.241),
            ("STEADY", |p, x| _ = paced(p, (9e5, 0.6), (1e6, x)), 0.299, 0.301),
            ("VARIED", |p, x| _ = paced(p, (9e5, x), (1e6, 0.0)), 0.0301, 0.0299),
            ("SLOWER", |p, x| _ = paced(p, (1e6, 0.5), (x, 0.1)), 1_060_001.0, 1_060_000.0),
            ("LEAST_CYCLES", |p, x| p.slow.commands.cycles = [(0, moments(x as u64, 1e6, 0.0))].into(), 20.0, 19.0),
            ("SLOWEST_MEDIUM", |p, x| *p = capped(80.0, x), 2_048_001.0, 2_048_000.0),
            ("MOST_COMMANDS", |p, x| *p = capped(8.0, x), 20_000.0, 19_999.9),
            ("CAPPED_BYTES", |p, x| *p = capped(x, 1_320_000.0), 127.0, 128.0),
            ("FAVOUR and TEN", |p, x| *p = capped(128.0, x), 1_233_591.0, 1_233_590.0),
            ("TEN", |p, x| *p = capped(128.0, 1e9 / x), 1000.0, 1017.0),
            ("MOSTLY", |p, x| *p = lone(x, NOT_TYPED, 0.25), 499.0, 500.0),
            ("WIDER", |p, x| *p = lone(1000.0, NOT_TYPED, x), 0.203, 0.205),
            ("TAKEN_IN", |p, x| *p = lone_of(x), 179_427.0, 179_425.0),
            ("TYPED", |p, x| *p = lone(1000.0, 1e9 / x, 0.25), 1002.9, 1003.1),
            ("LEAST_TURN", |p, x| *p = lone(1000.0, x, 0.05), 1_999_999.0, 2e6),
            ("MOSTLY, in turns", |p, x| *p = lone(x, 2e6, 0.05), 500.0, 501.0),
            ("GROWS", |p, x| larger(p, 2.0, 500, (x, 0.1)), 1_500_000.0, 1_500_001.0),
            ("SHRINKS", |p, x| larger(p, 2.0, 500, (x, 0.1)), 670_001.0, 670_000.0),
            ("STEADY, large ones", |p, x| larger(p, 2.0, 500, (1e6, x)), 0.299, 0.301),
            ("OCTAVES", |p, x| larger(p, x, 500, (3e6, 0.1)), 1.0, 2.0),
            ("RARE_SIZE", |p, x| larger(p, 2.0, x as u64, (3e6, 0.1)), 52.0, 53.0),
        ];
        hold(&device_iops_cap::RULE, cap, 0.632, edges);
    }

    /// A thousand commands of two sizes: large ones among them, sectors, and times of the slow side.
    fn two(large: f64, sectors: (u64, f64), took: (f64, f64)) -> Pair {
        Pair::of(|p| {
            for (d, took) in [(&mut p.fast, (1e6, 1e6)), (&mut p.slow, took)] {
                put(d, LONE, 1000 - large as u64, sectors.0, (took.0, 0.0));
                put(d, LARGER, large as u64, sectors.1 as u64, (took.1, 0.0));
            }
        })
    }

    fn two_sizes() -> Pair {
        two(500.0, (8, 80.0), (1.1e6, 1.1e6))
    }

    /// Large commands of one size, a tenth slower.
    pub(in super::super) fn bandwidth() -> Pair {
        one(LONE, 64, (3e5, 0.0), (3.3e5, 0.0))
    }

    /// The same in larger commands: growth of their times, and of their cycles.
    fn slower_by(took: f64, cycle: f64) -> Pair {
        let mut pair = one(LONE, 80, (10e6, 0.0), (10e6 + took, 0.0));
        paced(&mut pair, (1e6, 0.1), (1e6 + cycle, 0.1));
        pair
    }

    /// Their times vary by more, but they follow on at a constant pace.
    fn streaming() -> Pair {
        let mut pair = one(BUSIED, 64, (3e5, 0.0), (3.3e5, 1e4));
        paced(&mut pair, (9e5, 0.2), (1e6, 0.14));
        pair
    }

    /// The quickest of commands whose times vary by more take twice as long.
    fn quick() -> Pair {
        let mut pair = one(LONE, 64, (3e5, 0.0), (3.3e5, 1e4));
        spaced(&mut pair.fast, 100, 0);
        spaced(&mut pair.slow, 0, 100);
        pair
    }

    /// Cycles of 10 us and of 20 us.
    fn spaced(d: &mut Digest, quick: u64, slow: u64) {
        let mut all = spread(quick, 1e4);
        all.merge(&spread(slow, 2e4));
        d.commands.spacing = [(0, all)].into();
    }

    /// Commands that move an arm vary by more, and those that follow on are slower, too.
    fn arm(fast: f64, slow: f64) -> Pair {
        let mut pair = one(AWAY, 64, (5e6, 0.0), (5.5e6, 1e5));
        put(&mut pair.fast, LONE, 200, 64, (fast, 0.0));
        put(&mut pair.slow, LONE, 200, 64, (slow, 0.0));
        pair
    }

    #[test]
    fn limits_of_bytes() {
        let edges: &[Edge] = &[
            ("OF_BYTES", |p, x| *p = two(500.0, (8, 80.0), (1.1e6, x)), 1_238_461.0, 1_238_462.0),
            ("LONG_LINE", |p, x| *p = two(500.0, (100, x), (1.1e6, 1.1e6)), 300.0, 299.0),
            ("RARE_CLASS", |p, x| *p = two(x, (100, 300.0), (1.1e6, 1.1e6)), 51.0, 50.0),
        ];
        hold(&device_latency::RULE, two_sizes, 0.732, edges);
        let edges: &[Edge] = &[
            ("LARGE", |p, x| *p = one(LONE, x as u64, (10e6, 0.0), (11e6, 0.0)), 64.0, 63.0),
            ("PLAIN_MEDIUM", |p, x| *p = one(LONE, 8, (5e5, 0.0), (x, 0.0)), 540_960.0, 540_961.0),
            ("WIDER", |p, x| *p = one(LONE, 64, (3e5, 1000.0), (3.3e5, x)), 1299.0, 1301.0),
            ("SCATTERED", |p, x| *p = one(LONE, 64, (3e5, 0.0), (3.3e5, x)), 239.0, 241.0),
            ("SLOWEST_MEDIUM", |p, x| *p = slower_by(x, 9e6), 2_048_000.0, 2_048_001.0),
            ("SLOWEST_MEDIUM, pace", |p, x| *p = slower_by(9e6, x), 2_048_000.0, 2_048_001.0),
            ("LEAST_TURN", |p, x| *p = arm(x, 4e6), 2_999_999.0, 3e6),
            ("NEXT_SLOWER", |p, x| *p = arm(1e6, x), 1_150_001.0, 1_150_000.0),
        ];
        hold(&device_bandwidth::RULE, bandwidth, 0.632, edges);
        let edges: &[Edge] = &[
            ("STREAMING", |p, x| _ = paced(p, (9e5, 0.2), (1e6, x)), 0.149, 0.151),
            ("SLOWER", |p, x| _ = paced(p, (1e6, 0.2), (x, 0.14)), 1_060_001.0, 1_060_000.0),
        ];
        hold(&device_bandwidth::RULE, streaming, 0.632, edges);
        let edges: &[Edge] = &[
            ("QUICKEST", |p, x| spaced(&mut p.slow, x as u64, 1000 - x as u64), 99.0, 100.0),
            ("QUICKEST_SLOWER", |p, x| p.slow.commands.spacing = [(0, spread(100, x))].into(), 13_001.0, 13_000.0),
            ("QUICKEST_TOO", |p, x| _ = paced(p, (x, 0.1), (1e6, 0.1)), 300_100.0, 299_900.0),
            ("LEAST_CYCLES", |p, x| spaced(&mut p.slow, 0, x as u64), 20.0, 19.0),
        ];
        hold(&device_bandwidth::RULE, quick, 0.632, edges);
    }

    /// A thousand commands that find few others on the fast side, and N that find some on the slow one: sectors, means
    /// and deviations.
    fn loads(place: Place, n: f64, sectors: f64, fast: (f64, f64), slow: (f64, f64)) -> Pair {
        let few = Class { place, ..BUSIED };
        Pair::of(|p| {
            put(&mut p.fast, few, 1000, sectors as u64, fast);
            put(&mut p.slow, Class { load: Load::Some, ..few }, n as u64, sectors as u64, slow);
        })
    }

    fn less() -> Pair {
        let mut pair = loads(Place::Far, 1e3, 10.0, (1e6, 0.0), (1.15e6, 0.0));
        pair.both(|d| d.commands.within.values_mut().for_each(|of| of.root_distance = 1000.0));
        pair
    }

    /// Commands ahead of all those of a side.
    fn ahead(p: &mut Pair, fast: f64, slow: f64) {
        for (d, ahead) in [(&mut p.fast, fast), (&mut p.slow, slow)] {
            d.commands.within.values_mut().for_each(|of| of.ahead = ahead as u64);
        }
    }

    fn slow_class(p: &mut Pair) -> &mut Within {
        p.slow.commands.within.values_mut().next().expect("there is one")
    }

    #[test]
    fn limits_of_other_loads() {
        let edges: &[Edge] = &[
            ("ENOUGH", |p, x| *p = loads(Place::Next, x, 8.0, (1e6, 0.0), (1.15e6, 0.0)), 8.0, 7.0),
            ("MOSTLY", |p, x| p.slow.commands.issued[0] = x as u64, 2000.0, 2001.0),
            ("SAME_WAY", |p, x| slow_class(p).root_distance = x, 1250.0, 1251.0),
            ("SAME_WAY, less", |p, x| slow_class(p).root_distance = x, 800.0, 799.0),
            ("SAME_SIZE", |p, x| slow_class(p).sectors = x as u64, 11_000.0, 11_001.0),
            ("SAME_SIZE, less", |p, x| slow_class(p).sectors = x as u64, 9000.0, 8999.0),
            ("AHEAD", |p, x| ahead(p, 1e5, x), 102_020.0, 102_021.0),
            ("ONE_AHEAD", |p, x| ahead(p, 0.0, x), 20.0, 21.0),
            ("SURELY_SLOWER", |p, x| slow_class(p).took.sum = x, 1_100_001_000.0, 1_100_000_000.0),
            ("LARGE", |p, x| *p = loads(Place::Next, 1e3, x, (5e6, 0.0), (6e6, 0.0)), 63.0, 64.0),
            (
                "SLOWEST_MEDIUM",
                |p, x| *p = loads(Place::Next, 1e3, 80.0, (10e6, 0.0), (10e6 + x, 0.0)),
                2_048_001.0,
                2_048_000.0,
            ),
        ];
        hold(&device_latency::RULE, less, 0.769, edges);
        let scattered = || loads(Place::Far, 1e3, 64.0, (1e6, 0.0), (1.15e6, 1e4));
        let edges: &[Edge] = &[
            ("ALONE", |p, x| ahead(p, x, x), 99.0, 100.0),
            (
                "far",
                |p, x| *p = loads([Place::Next, Place::Far][x as usize], 1e3, 64.0, (1e6, 0.0), (1.15e6, 1e4)),
                1.0,
                0.0,
            ),
            ("SCATTERED", |p, x| *p = loads(Place::Far, 1e3, 64.0, (1e6, 0.0), (1.15e6, x)), 1210.0, 1190.0),
        ];
        hold(&device_latency::RULE, scattered, 0.769, edges);
    }

    /// Commands in other loads that take as long; each of a thousand keeps the device busy for longer.
    fn saturated() -> Pair {
        let mut pair = loads(Place::Next, 1e3, 8.0, (1e6, 0.0), (1e6, 0.0));
        ahead(&mut pair, 1000.0, 1000.0);
        (pair.fast.commands.busy, pair.slow.commands.busy) = (1_000_000_000, 1_150_000_000);
        pair.slow.elapsed = Nanos(1_150_000_000);
        paced(&mut pair, (1e6, 0.1), (1.15e6, 0.1));
        pair
    }

    /// The same on a disk with an arm, which seeks for one of three commands.
    fn with_arm() -> Pair {
        let mut pair = saturated();
        put(&mut pair.fast, AWAY, 1, 8, (5e6, 0.0));
        pair.both(|d| (d.commands.issued[0], d.commands.seeks, d.commands.distance) = (1000, 300, 300_000.0));
        pair
    }

    /// The device's time on commands of the slow side, which is all of the run.
    fn always_busy(p: &mut Pair, ns: f64) {
        (p.slow.commands.busy, p.slow.elapsed) = (ns as u64, Nanos(ns as u64));
    }

    /// Commands of 40 KiB.
    fn of_80(p: &mut Pair, ns: f64, variation: f64) {
        p.both(|d| d.commands.sizes[0] = spread(1, 80_000.0));
        always_busy(paced(p, (1e6, 0.1), (2e6, variation)), ns);
    }

    #[test]
    fn limits_of_saturation() {
        let edges: &[Edge] = &[
            ("ALIKE", |p, x| p.slow.commands.sizes[0] = spread(1, x), 9200.0, 9201.0),
            ("ALIKE, smaller", |p, x| p.slow.commands.sizes[0] = spread(1, x), 6957.0, 6956.0),
            ("SHARE", mixed, 99.0, 100.0),
            ("BUSY", |p, x| p.slow.elapsed = Nanos(x as u64), 1_277_777_777.0, 1_277_777_778.0),
            ("AS_MUCH_WORK", |p, x| ahead(p, 1000.0, x), 900.0, 899.0),
            ("SURELY_SLOWER", always_busy, 1_100_001_000.0, 1_100_000_000.0),
            ("SLOWER", |p, x| _ = paced(p, (1e6, 0.1), (x, 0.1)), 1_060_001.0, 1_060_000.0),
            ("STEADY", |p, x| _ = paced(p, (1e6, 0.1), (2e6, x)), 0.299, 0.301),
            ("SLOWEST_MEDIUM", |p, x| of_80(p, x, 0.1), 2_048_001_000.0, 2_048_000_000.0),
        ];
        hold(&device_iops_cap::RULE, saturated, 0.769, edges);
        let edges: &[Edge] = &[
            ("SHARE, seeks", |p, x| p.slow.commands.seeks = x as u64, 399.0, 401.0),
            ("FEW_SEEKS", |p, x| no_seeks(p, x as u64), 99.0, 100.0),
            ("LIKE_WAY", |p, x| p.slow.commands.distance = x, 450_000.0, 450_001.0),
            ("LIKE_WAY, nearer", |p, x| p.slow.commands.distance = x, 200_001.0, 199_999.0),
            ("LEAST_TURN, an arm", |p, x| no_arm(p, x), 3e6, 3_000_001.0),
        ];
        hold(&device_iops_cap::RULE, with_arm, 0.769, edges);
        let unsteady = || {
            let mut pair = saturated();
            paced(&mut pair, (1e6, 0.1), (2e6, 0.5));
            pair
        };
        let edges: &[Edge] = &[
            ("STEADY", |p, x| _ = paced(p, (1e6, 0.1), (2e6, x)), 0.301, 0.299),
            ("SLOWEST_MEDIUM", |p, x| of_80(p, x, 0.5), 2_048_001_000.0, 2_048_000_000.0),
        ];
        hold(&device_latency::RULE, unsteady, 0.769, edges);
    }

    /// Hardly any seeks, far as they are.
    fn no_seeks(p: &mut Pair, seeks: u64) {
        (p.fast.commands.seeks, p.slow.commands.seeks, p.slow.commands.distance) = (90, seeks, 1e9);
    }

    /// Seeks that would count if commands far away took longer by half a turn.
    fn no_arm(p: &mut Pair, far: f64) {
        put(&mut p.fast, AWAY, 1, 8, (far, 0.0));
        p.both(|d| d.commands.issued[0] = 1000);
        p.slow.commands.distance = 1e9;
    }
}

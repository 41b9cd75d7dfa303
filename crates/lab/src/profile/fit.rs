//! A profile from samples of commands.
//!
//! The number of servers is the one with which a device of the fitted times, given the same commands by the same rules
//! (each as long after as many completions as it was), is most like the recording; ties go to the smaller. One server
//! that takes its commands in an order of its own is tried after that. The service of a command is the time from its
//! issue, or from the completion that left a server to it, to its own. Distributions are those of the commands with
//! the least company in each class of operation, place and size (powers of two). Everything else (shares by depth,
//! link, idle exit, the device's own reading ahead) is kept if it makes the device more like the recording by 3 %, and
//! shares by depth if by 10.
//!
//! Source: deconvolution of a queue with several servers in order of arrival; Worthington, Ganger, Patt and Wilkes 1995
//! for what is asked of a drive. Limits: a class with fewer than five commands has no row; a recording that never had
//! more than a few commands at the device says nothing of more (`parallel` is then unknown).

use std::collections::{BTreeMap, BTreeSet};

use iowhy_stack::device::measured::ENTRY;
use iowhy_stack::device::{Command, Device};
use iowhy_stack::event::Dir;
use iowhy_stack::rng::Rng;
use iowhy_stack::service::{ACCESSES, LEVELS, Row, Service, Times};
use iowhy_stack::units::{Nanos, SECTOR_BYTES, Sector};
use iowhy_stats::bootstrap::{quantile, quantile_interval};
use serde::{Deserialize, Serialize};

use super::samples::Sample;
use super::{Field, Profile};

/// How well a device fitted to one part of the commands predicts another: errors in percent, without sign.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeldBack {
    /// Of the median and the 99th percentile of the time at the device.
    pub p50_error_pct: f64,
    pub p99_error_pct: f64,
    pub throughput_error_pct: f64,
}

/// Commands of which at least one row is made, and a bound of a class of which all are used.
const LEAST: usize = 5;
const ENOUGH: usize = 40;
/// Numbers of servers that are tried.
const SERVERS: &[u32] = &[1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];
/// How often a command may be passed over, the numbers that are tried.
const PASSES: [u32; 6] = [16, 8, 4, 32, 64, 1_000_000];
/// Streams that are followed, as by the device.
const STREAMS: usize = 8;
/// Most commands that a number of servers is tried on, and that times are drawn from: tails need many.
const MOST_TRIED: usize = 20_000;
const MOST_DRAWN: usize = 100_000;
const LEVEL: f64 = 0.95;
/// Share of the unlikeness above which a change is not kept; one that has a figure for each depth fits chance, too.
const KEPT: f64 = 0.97;
const KEPT_BY_DEPTH: f64 = 0.9;

/// A sample in its company.
#[derive(Copy, Clone, Debug)]
struct Seen {
    sample: Sample,
    /// It begins where a command before it ended.
    next: bool,
    /// Commands in the device, with it.
    depth: u32,
    /// Distance from the end of the command before.
    distance: u64,
    /// Time since the device had nothing to do, and since its stream ended.
    idle: u64,
    /// Commands done before its issue, and the one of them that was done last.
    ended: usize,
    before: Option<usize>,
}

impl Seen {
    fn class(&self) -> (usize, u32) {
        // The nearest power of two: what the kernel splits off a large read is almost as large.
        let size = (u64::from(self.sample.sectors.max(1)) * 1448 / 1024).max(1).ilog2();
        (2 * usize::from(self.sample.write) + usize::from(self.next), size)
    }
}

fn in_company(samples: &[Sample]) -> Vec<Seen> {
    let (mut streams, mut end, mut flying): (Vec<u64>, u64, Vec<usize>) = (Vec::new(), 0, Vec::new());
    let (mut last, mut seen): (Option<usize>, Vec<Seen>) = (None, Vec::with_capacity(samples.len()));
    for (nr, sample) in samples.iter().enumerate() {
        flying.retain(|other| {
            let over = samples[*other].done <= sample.at;
            if over && last.is_none_or(|last| samples[last].done <= samples[*other].done) {
                last = Some(*other);
            }
            !over
        });
        let stream = streams.iter().rposition(|end| *end == sample.sector).filter(|_| sample.sectors > 0);
        let idle = match last {
            Some(last) if flying.is_empty() => sample.at - samples[last].done,
            _ => 0,
        };
        seen.push(Seen {
            sample: *sample,
            next: stream.is_some(),
            depth: flying.len() as u32 + 1,
            distance: sample.sector.abs_diff(end),
            idle,
            ended: nr - flying.len(),
            before: last,
        });
        flying.push(nr);
        if sample.sectors > 0 {
            end = sample.sector + u64::from(sample.sectors);
            stream.map(|at| streams.remove(at));
            if streams.len() == STREAMS {
                streams.remove(0);
            }
            streams.push(end);
        }
    }
    seen
}

/// Most commands in company of which a stretch is made of its own.
const LONG_RUN: usize = 64;
/// Least commands between two cuts of others.
const STRETCH: usize = 200;

/// About `most` of the commands: the first ones of stretches that begin where the device had nothing to do.
/// Every load of a probe has its share then, and each stretch follows the one before it after the pause that it had.
pub(super) fn thinned(samples: &[Sample], most: usize) -> Vec<Sample> {
    if samples.len() <= most {
        return samples.to_vec();
    }
    // Where the device had nothing to do, and since when.
    let (mut rests, mut done): (Vec<(usize, u64)>, u64) = (Vec::new(), samples[0].at);
    for (nr, of) in samples.iter().enumerate() {
        if of.at >= done {
            rests.push((nr, done));
        }
        done = done.max(of.done);
    }
    let ends = rests.iter().skip(1).map(|(nr, _)| *nr).chain([samples.len()]);
    let mut stretches: Vec<(usize, u64)> = Vec::new();
    let mut after_long = true;
    for ((nr, since), end) in rests.iter().copied().zip(ends) {
        let long = end - nr > LONG_RUN;
        if long || after_long || stretches.last().is_none_or(|(from, _)| nr - from >= STRETCH) {
            stretches.push((nr, since));
        }
        after_long = long;
    }
    let ends = stretches.iter().skip(1).map(|(nr, _)| *nr).chain([samples.len()]);
    let (mut kept, mut over): (Vec<Sample>, u64) = (Vec::with_capacity(most + stretches.len()), 0);
    for ((from, since), end) in stretches.iter().copied().zip(ends) {
        let base = over;
        for of in &samples[from..from + ((end - from) * most).div_ceil(samples.len())] {
            let [at, done] = [of.at, of.done].map(|time| time - since + base);
            kept.push(Sample { at, done, ..*of });
            over = over.max(done);
        }
    }
    kept
}

/// Service times with a number of servers in order of arrival; who is slower than `stall` keeps the others waiting.
fn services(samples: &[Sample], servers: u32, stall: u64) -> Vec<u64> {
    // Completions of earlier commands, latest first, as many as there are servers.
    let (mut done, mut stalled): (Vec<u64>, u64) = (Vec::new(), 0);
    let service = |sample: &Sample| {
        let free = if done.len() < servers as usize { 0 } else { done[done.len() - 1] };
        let at = done.partition_point(|other| *other > sample.done);
        done.insert(at, sample.done);
        done.truncate(servers as usize);
        let start = sample.at.max(free).max(if stalled < sample.done { stalled } else { 0 });
        let service = sample.done.saturating_sub(start).max(1);
        if stall > 0 && service > stall {
            stalled = sample.done;
        }
        service
    };
    samples.iter().map(service).collect()
}

fn times(sorted: &[f64]) -> Times {
    LEVELS.map(|level| quantile(sorted, f64::from(level) / 1000.0).round() as u64)
}

pub(super) fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The commands chosen of one class: size, sorted times, and the medians of the earlier and of the later half.
type Class = (u32, Vec<f64>, [f64; 2]);
/// Classes by access and size.
type Chosen = [Vec<Class>; ACCESSES.len()];

/// Service times of the commands of each class that had the least company.
fn chosen(
    seen: &[Seen],
    services: &[u64],
    counts: &dyn Fn(&Seen) -> bool,
    correct: &dyn Fn(&Seen, f64) -> f64,
) -> Chosen {
    let mut classes: BTreeMap<(usize, u32), Vec<usize>> = BTreeMap::new();
    for (nr, of) in seen.iter().enumerate().filter(|(_, of)| of.sample.sectors > 0 && counts(of)) {
        classes.entry(of.class()).or_default().push(nr);
    }
    let most = classes.values().map(Vec::len).max().unwrap_or(0);
    let mut rows: [Vec<(Class, u32)>; ACCESSES.len()] = Default::default();
    for ((access, _), mut members) in classes {
        if members.len() < LEAST.min(most) {
            continue;
        }
        members.sort_by_key(|nr| seen[*nr].depth);
        let alone = members.iter().filter(|nr| seen[**nr].depth == 1).count();
        let enough = if alone < 2 * LEAST { ENOUGH } else { alone.min(ENOUGH) };
        let depth = seen[members[members.len().min(enough) - 1]].depth;
        members.retain(|nr| seen[*nr].depth <= depth);
        let mut sizes: Vec<u32> = members.iter().map(|nr| seen[*nr].sample.sectors).collect();
        sizes.sort_unstable();
        members.sort_unstable();
        let values: Vec<f64> = members.iter().map(|nr| correct(&seen[*nr], services[*nr] as f64)).collect();
        let (early, late) = values.split_at(values.len() / 2);
        let halves = [early, late].map(|half| quantile(&sorted(half.iter().copied()), 0.5));
        rows[access].push(((sizes[sizes.len() / 2], sorted(values), halves), depth));
    }
    // What only ever came behind its like, as the end of a large read does, has no time of its own.
    rows.map(|rows| {
        let alone = rows.iter().any(|(_, depth)| *depth == 1);
        rows.into_iter().filter(|(_, depth)| *depth == 1 || !alone).map(|(class, _)| class).collect()
    })
}

fn service_of(chosen: &Chosen) -> Service {
    let rows = |rows: &Vec<Class>| -> Vec<Row> {
        rows.iter().map(|(sectors, values, _)| Row { sectors: *sectors, ns: times(values) }).collect()
    };
    Service { rows: [0, 1, 2, 3].map(|nr| rows(&chosen[nr])), ..Service::default() }
}

/// Most sectors of a command whose time is hardly that of its data.
const SMALL_SECTORS: u32 = 64;

/// Rounds in which shares by depth are corrected, and their bounds per mille.
const ROUNDS: u32 = 3;
const SHARES: [f64; 2] = [1000.0, 100_000.0];

/// Shares by depth with which small commands in company take as long as they did, where that is longer: what is left
/// when servers, link and order have had their part (batches, interrupts, processors that serve a device).
fn by_depth(seen: &[Seen], profile: &Profile) -> Vec<(u32, u32)> {
    let mut buckets: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    let small = |of: &Seen| (1..=SMALL_SECTORS).contains(&of.sample.sectors) && !of.next;
    for (nr, of) in seen.iter().enumerate().filter(|(_, of)| small(of)) {
        buckets.entry(of.depth.ilog2()).or_default().push(nr);
    }
    buckets.retain(|_, members| members.len() >= 2 * LEAST);
    let depth = |members: &Vec<usize>| members.iter().map(|nr| seen[*nr].depth).sum::<u32>() / members.len() as u32;
    let mut rows: Vec<(u32, u32)> = buckets.values().map(|members| (depth(members), 1000)).collect();
    let median = |members: &[usize], of: &dyn Fn(usize) -> Sample| {
        quantile(&sorted(members.iter().map(|nr| (of(*nr).done - of(*nr).at) as f64)), 0.5).max(1.0)
    };
    let mut profile = profile.clone();
    for _ in 0..ROUNDS {
        profile.service.depth.clone_from(&rows);
        let other = replayed(&profile, seen);
        for ((_, share), members) in rows.iter_mut().zip(buckets.values()).filter(|((depth, _), _)| *depth > 1) {
            let ratio = median(members, &|nr| seen[nr].sample) / median(members, &|nr| other[nr]);
            *share = (f64::from(*share) * ratio).clamp(SHARES[0], SHARES[1]) as u32;
        }
    }
    rows
}

/// Median times by distance, if they rise: the arm of a rotating disk.
fn by_distance(seen: &[Seen], services: &[u64], cached: bool) -> Vec<(u64, u64)> {
    let mut buckets: BTreeMap<u32, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for (of, ns) in seen.iter().zip(services) {
        let small = of.depth == 1 && !of.next && (1..=SMALL_SECTORS).contains(&of.sample.sectors);
        if small && of.distance > 0 && !(cached && of.sample.write) {
            let bucket = buckets.entry(of.distance.ilog2() / 2).or_default();
            bucket.0.push(of.distance as f64);
            bucket.1.push(*ns as f64);
        }
    }
    let mut rows: Vec<(u64, u64)> = Vec::new();
    for (distances, values) in buckets.into_values().filter(|(_, values)| values.len() >= 2 * LEAST) {
        let [distance, ns] = [distances, values].map(|values| quantile(&sorted(values), 0.5) as u64);
        // Times of an arm do not fall.
        rows.push((distance, ns.max(rows.last().map_or(0, |(_, ns)| *ns))));
    }
    let (near, far) = (rows.first().map_or(0, |row| row.1), rows.last().map_or(0, |row| row.1));
    if rows.len() > 1 && far * 4 > near * 5 { rows } else { Vec::new() }
}

/// Parts of a fit.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
struct Shape {
    servers: u32,
    by_depth: bool,
    /// How often a command is passed over for a quicker one; 0: in order of arrival.
    passes: u32,
    /// Most MB/s and least us between two commands.
    link: [Option<f64>; 2],
    /// Time in ns above which a command keeps the others waiting; 0: never.
    stall: u64,
    /// The drive caches writes: they have no distance.
    cached: bool,
    /// Pause in ns and what it adds.
    idle: Option<(u64, f64)>,
    /// Sectors read ahead, and the time of a hit in ns.
    ahead: Option<(u32, f64)>,
}

impl Shape {
    fn fields(&self) -> BTreeMap<String, Field> {
        let (idle, ahead) = (self.idle.unwrap_or_default(), self.ahead.unwrap_or_default());
        [
            ("parallel", "commands", f64::from(self.servers)),
            ("passes", "", f64::from(self.passes)),
            ("link_mb_s", "MB/s", self.link[0].unwrap_or(0.0)),
            ("link_gap_us", "us", self.link[1].unwrap_or(0.0)),
            ("stall_us", "us", self.stall as f64 / 1e3),
            ("writes_seek", "", f64::from(u8::from(!self.cached))),
            ("idle_after_ms", "ms", idle.0 as f64 / 1e6),
            ("idle_exit_us", "us", idle.1 / 1e3),
            ("read_ahead_kb", "KiB", f64::from(ahead.0) / 2.0),
            ("hit_us", "us", ahead.1 / 1e3),
        ]
        .map(|(name, unit, value)| (name.to_owned(), Field { value, low: value, high: value, unit, known: true }))
        .into()
    }
}

/// A device as fitted in a shape: its likeness, tables, and the commands of each row.
struct Fitted {
    score: f64,
    shape: Shape,
    service: Service,
    chosen: Chosen,
}

fn fitted(samples: &[Sample], seen: &[Seen], shape: Shape) -> Fitted {
    let services = services(samples, shape.servers, shape.stall);
    let distance = by_distance(seen, &services, shape.cached);
    let far = distance.last().map_or(0.0, |(_, ns)| *ns as f64);
    let correct = |of: &Seen, ns: f64| {
        let points = distance.iter().copied();
        let near = iowhy_stack::service::on_line(points, of.distance)
            .filter(|_| !(of.next || shape.cached && of.sample.write));
        let late = shape.idle.filter(|(after, _)| of.idle > *after).map_or(0.0, |(_, exit)| exit);
        (near.map_or(ns, |near| ns + far - near as f64) - late).max(1.0)
    };
    // A row of commands that the device had read ahead would count that twice.
    let counts = |of: &Seen| shape.ahead.is_none() || !of.next || of.idle < PAUSE;
    let chosen = chosen(seen, &services, &counts, &correct);
    let mut service = service_of(&chosen);
    service.distance = distance;
    let flushes = sorted(samples.iter().filter(|of| of.sectors == 0).map(|of| (of.done - of.at) as f64));
    service.flush = (!flushes.is_empty()).then(|| times(&flushes));
    let mut profile = Profile { service, fields: shape.fields(), ..Profile::default() };
    if shape.by_depth {
        profile.service.depth = by_depth(seen, &profile);
    }
    let score = unlike(seen, &replayed(&profile, seen));
    Fitted { score, shape, service: profile.service, chosen }
}

/// Least time for which a device may stand still: ns.
const STALL: u64 = 1_000_000;

/// A pause after which a device may have slept, or read ahead: ns.
const PAUSE: u64 = 500_000;

/// Commands alone at the device after a pause of at least `from` and less than `to`, of one class: their times.
fn after(seen: &[Seen], class: (usize, u32), from: u64, to: u64) -> Vec<f64> {
    let of_class = seen.iter().filter(|of| of.class() == class && of.depth == 1 && of.before.is_some());
    let paused = of_class.filter(|of| (from..to).contains(&of.idle));
    sorted(paused.map(|of| (of.sample.done - of.sample.at) as f64))
}

fn classes(seen: &[Seen]) -> BTreeSet<(usize, u32)> {
    seen.iter().filter(|of| of.sample.sectors > 0).map(Seen::class).collect()
}

/// The pause beyond which commands are later than others by the most, and by how much; whether any were seen.
fn idle_exit(seen: &[Seen]) -> (Option<(u64, f64)>, bool) {
    let (mut best, mut any): (Option<(u64, f64)>, bool) = (None, false);
    for class in classes(seen).into_iter().filter(|(access, _)| access % 2 == 0) {
        for pause in [1, 3, 10, 30, 100, 300, 1000].map(|ms| ms * 1_000_000) {
            let (short, long) = (after(seen, class, 0, pause), after(seen, class, pause, u64::MAX));
            if short.len() < 2 * LEAST || long.len() < 2 * LEAST {
                continue;
            }
            any = true;
            let (before, late) = (quantile(&short, 0.5), quantile(&long, 0.5) - quantile(&short, 0.5));
            if late > 20_000.0 && late > before / 10.0 && best.is_none_or(|(_, most)| late > most) {
                best = Some((pause, late));
            }
        }
    }
    (best, any)
}

/// The largest command that was quicker after a pause because the device had read ahead, and its least time; whether
/// any pause was seen.
fn read_ahead(seen: &[Seen]) -> (Option<(u32, f64)>, bool) {
    let (mut best, mut any): (Option<(u32, f64)>, bool) = (None, false);
    for class in classes(seen).into_iter().filter(|(access, _)| *access == 1) {
        let (at_once, paused) = (after(seen, class, 0, PAUSE / 5), after(seen, class, PAUSE, u64::MAX));
        if at_once.len() < 2 * LEAST || paused.len() < 2 * LEAST {
            continue;
        }
        any = true;
        let hit = quantile(&paused, 0.5);
        if hit < quantile(&at_once, 0.5) * 0.7 {
            best = Some((best.map_or(0, |best| best.0).max(4 << class.1), best.map_or(hit, |best| best.1.min(hit))));
        }
    }
    (best, any)
}

/// The times of the same commands on the device of a profile, each as long after as many completions as it was: the
/// device may order them otherwise.
fn replayed(profile: &Profile, seen: &[Seen]) -> Vec<Sample> {
    let mut options = profile.options();
    let most = seen.iter().map(|of| of.sample.sector + u64::from(of.sample.sectors)).max().unwrap_or(0);
    options.set("nr_sectors", (most as i64).max(options.get("nr_sectors")));
    options.set("queue_depth", 65_535);
    let mut device = (ENTRY.build)(&options, Rng::stream(1, "device"));
    let mut done: Vec<u64> = vec![0; seen.len()];
    let (mut at, mut ends): (Vec<u64>, Vec<u64>) = (Vec::with_capacity(seen.len()), Vec::with_capacity(seen.len()));
    let mut step = |device: &mut dyn Device, ends: &mut Vec<u64>| {
        let Some(now) = device.next() else { unreachable!("commands were given to the device") };
        if let Some(completion) = device.advance(now) {
            done[completion.tag as usize] = now.0;
            ends.push(now.0);
        }
    };
    for (nr, of) in seen.iter().enumerate() {
        while ends.len() < of.ended {
            step(&mut *device, &mut ends);
        }
        let due =
            of.before.map_or(of.sample.at, |before| ends[of.ended - 1] + (of.sample.at - seen[before].sample.done));
        let due = due.max(at.last().copied().unwrap_or(0));
        // A device that orders its commands goes on with those that it has by then.
        while device.next().is_some_and(|next| next.0 <= due) {
            step(&mut *device, &mut ends);
        }
        at.push(due);
        let dir = if of.sample.write { Dir::Write } else { Dir::Read };
        let (sector, nr_sectors) = (Sector(of.sample.sector), of.sample.sectors);
        let flush = nr_sectors == 0;
        let sector = if flush { Sector(0) } else { sector };
        device.submit(Nanos(due), Command { tag: nr as u32, sector, nr_sectors, dir, flush, fua: false });
    }
    while ends.len() < seen.len() {
        step(&mut *device, &mut ends);
    }
    let took = seen.iter().zip(at.iter().zip(&done));
    took.map(|(of, (at, done))| Sample { at: *at, done: *done, ..of.sample }).collect()
}

/// Sorted times of the same commands in two runs, by operation, size and company.
fn by_class(seen: &[Seen], other: &[Sample]) -> Vec<[Vec<f64>; 2]> {
    let mut classes: BTreeMap<(usize, u32, u32), [Vec<f64>; 2]> = BTreeMap::new();
    for (of, other) in seen.iter().zip(other).filter(|(of, _)| of.sample.sectors > 0) {
        let (access, size) = of.class();
        let both = classes.entry((access, size, of.depth.ilog2())).or_default();
        both[0].push((of.sample.done - of.sample.at) as f64);
        both[1].push((other.done - other.at) as f64);
    }
    classes.into_values().map(|both| both.map(sorted)).collect()
}

/// How unlike two runs of the same commands are: logarithms of ratios, weighted by the commands of each class.
fn unlike(seen: &[Seen], other: &[Sample]) -> f64 {
    let ratio = |a: f64, b: f64| (a.max(1.0) / b.max(1.0)).ln().abs();
    let mut sum = ratio(makespan(seen.iter().map(|of| of.sample)), makespan(other.iter().copied())) * seen.len() as f64;
    for [mine, theirs] in by_class(seen, other) {
        let at = |q: f64| ratio(quantile(&mine, q), quantile(&theirs, q));
        sum += mine.len() as f64 * (at(0.5) + at(0.9) / 2.0 + at(0.99) / 4.0);
    }
    sum / seen.len().max(1) as f64
}

fn makespan(samples: impl Iterator<Item = Sample>) -> f64 {
    let (first, last) = samples.fold((u64::MAX, 0), |(first, last), of| (first.min(of.at), last.max(of.done)));
    last.saturating_sub(first) as f64
}

/// The most bytes and the most commands a second that passed in 64 completions in a row, each with the bytes of a
/// command then.
fn peaks(samples: &[Sample]) -> [Option<[f64; 2]>; 2] {
    const STRETCH: usize = 64;
    let mut by_end: Vec<&Sample> = samples.iter().filter(|of| of.sectors > 0).collect();
    by_end.sort_by_key(|of| of.done);
    let rates = |of: &[&Sample]| {
        let a_second = 1e9 / (of[STRETCH].done - of[0].done).max(1) as f64;
        let bytes: f64 = of[1..].iter().map(|of| f64::from(of.sectors) * SECTOR_BYTES as f64).sum();
        ([bytes * a_second, STRETCH as f64 * a_second], bytes / STRETCH as f64)
    };
    let rates: Vec<([f64; 2], f64)> = by_end.windows(STRETCH + 1).map(rates).collect();
    [0, 1].map(|nr| {
        let mut of: Vec<[f64; 2]> = rates.iter().map(|(rates, bytes)| [rates[nr], *bytes]).collect();
        of.sort_by(|a, b| a[0].total_cmp(&b[0]));
        of.get(of.len() * 95 / 100).copied()
    })
}

/// Links that may be the bound: MB/s, and us between two commands. Where small commands are bound by their number and
/// large ones by their bytes, each has a share of both; simpler links come later, and must be better.
pub(super) fn links(peaks: [Option<[f64; 2]>; 2]) -> Vec<[Option<f64>; 2]> {
    let mut links = vec![[None, None]];
    if let [Some([most_bytes, large]), Some([most_commands, small])] = peaks {
        let ns_of_byte = (large / most_bytes - 1.0 / most_commands) / (large - small).max(1.0) * 1e9;
        let gap = 1e6 / most_commands - small * ns_of_byte / 1e3;
        if large > 2.0 * small && ns_of_byte > 0.0 && gap > 0.0 {
            links.push([Some(1e3 / ns_of_byte), Some(gap)]);
        }
    }
    let [most_bytes, most_commands] = peaks.map(|peak| peak.map(|[rate, _]| rate));
    links.extend([[most_bytes.map(|bytes| bytes / 1e6), None], [None, most_commands.map(|iops| 1e6 / iops)]]);
    links
}

/// The same with whatever else makes it more like the recording; pauses and reading ahead are those of `found`.
fn improved(mut best: Fitted, tried: &[Sample], seen: &[Seen], found: Shape) -> Fitted {
    let deepest = seen.iter().map(|of| of.depth).max().unwrap_or(1);
    let slow = 4 * quantile(&sorted(tried.iter().map(|of| (of.done - of.at) as f64)), 0.5) as u64;
    let mut attempt = |change: &dyn Fn(Shape) -> Shape| {
        let shape = change(best.shape);
        if shape != best.shape {
            let found = fitted(tried, seen, shape);
            let kept = if shape.by_depth && !best.shape.by_depth { KEPT_BY_DEPTH } else { KEPT };
            if found.score < best.score * kept {
                best = found;
            }
        }
        best.shape
    };
    attempt(&|shape| Shape { cached: true, ..shape });
    attempt(&|shape| Shape { stall: slow.max(STALL), ..shape });
    if deepest > 1 {
        // One arm that takes its commands in an order of its own, each passed over so often at most.
        let arm = Shape { servers: 1, passes: PASSES[0], ..Shape::default() };
        attempt(&|shape| Shape { cached: shape.cached, ..arm });
        let ordered = attempt(&|shape| Shape { cached: shape.cached, link: shape.link, ..arm }).passes > 0;
        for passes in PASSES[1..].iter().copied().filter(|_| ordered) {
            attempt(&|shape| Shape { passes, ..shape });
        }
        attempt(&|shape| Shape { by_depth: true, ..shape });
    }
    attempt(&|shape| Shape { idle: found.idle, ..shape });
    let shape = attempt(&|shape| Shape { ahead: found.ahead, ..shape });
    if shape.stall > 0 {
        // Who waited for a busy server looked like one of several.
        for servers in SERVERS.iter().copied().filter(|nr| *nr < 2 * deepest) {
            attempt(&|shape| Shape { servers, ..shape });
        }
    }
    best
}

/// Unlikeness up to which a profile foretells commands that it was not fitted to.
const FORETOLD: f64 = 0.25;
/// Share of the unlikeness above which the most bytes that passed do not count as a link: commands with little company
/// fit as well with one.
const LINKED: f64 = 0.6;

/// A profile that foretells these commands or is more like them than another, else the other: with the link that it
/// has, or with the most bytes that passed.
pub(super) fn trusted_or(trusted: Profile, other: Profile, samples: &[Sample]) -> Profile {
    let tried = in_company(&thinned(samples, MOST_TRIED));
    let score = |profile: &Profile| unlike(&tried, &replayed(profile, &tried));
    let mut linked = trusted.clone();
    let most = trusted.fields.get("seen_mb_s").map(|of| of.value);
    let refuted = |link: &&mut Field| !link.known || most.is_some_and(|most| link.value < most);
    if let (Some(link), Some(most)) = (linked.fields.get_mut("link_mb_s").filter(refuted), most) {
        *link = Field { value: most, low: most, high: most, known: true, ..*link };
    }
    let (alone, with) = (score(&trusted), score(&linked));
    let (best, profile) = if with < alone * LINKED { (with, linked) } else { (alone, trusted) };
    if best <= FORETOLD || best < score(&other) { profile } else { other }
}

/// A profile of these commands.
pub(super) fn fit(samples: &[Sample]) -> Profile {
    let tried = &thinned(samples, MOST_TRIED)[..];
    let seen = in_company(tried);
    let deepest = seen.iter().map(|of| of.depth).max().unwrap_or(1);
    let peaks = peaks(samples);
    let (mut best, mut scores): (Option<Fitted>, Vec<(Shape, f64)>) = (None, Vec::new());
    for link in links(peaks) {
        for servers in SERVERS.iter().copied().filter(|nr| *nr == 1 || *nr < 2 * deepest) {
            let found = fitted(tried, &seen, Shape { servers, link, ..Shape::default() });
            scores.push((found.shape, found.score));
            if best.as_ref().is_none_or(|best| found.score < best.score * KEPT) {
                best = Some(found);
            }
        }
    }
    let Some(mut best) = best.filter(|_| !samples.is_empty()) else { return Profile::default() };
    let (alone, link) = (best.score, best.shape.link);
    scores.retain(|(shape, _)| shape.link == link);
    let ((idle, paused), (ahead, paused_next)) = (idle_exit(&seen), read_ahead(&seen));
    best = improved(best, tried, &seen, Shape { idle, ahead, ..Shape::default() });
    if tried.len() < samples.len() {
        let drawn = thinned(samples, MOST_DRAWN);
        best = fitted(&drawn, &in_company(&drawn), best.shape);
    }
    let Fitted { shape, service, chosen, .. } = best;
    let mut fields = shape.fields();
    let servers = f64::from(shape.servers);
    let alike =
        || scores.iter().filter(|(_, other)| *other <= alone * 1.1 + 0.01).map(|(shape, _)| f64::from(shape.servers));
    let known = deepest > shape.servers;
    let low = if deepest == 1 { 1.0 } else { alike().fold(servers, f64::min) };
    let high = if known { alike().fold(servers, f64::max) } else { f64::INFINITY };
    fields.insert("parallel".to_owned(), Field { value: servers, low, high, unit: "commands", known });
    for (name, of, told) in [
        ("link_mb_s", shape.link[0], false),
        ("link_gap_us", shape.link[1], false),
        ("idle_after_ms", shape.idle.map(|idle| idle.1), paused),
        ("idle_exit_us", shape.idle.map(|idle| idle.1), paused),
        ("read_ahead_kb", shape.ahead.map(|ahead| ahead.1), paused_next),
        ("hit_us", shape.ahead.map(|ahead| ahead.1), paused_next),
    ] {
        // Nothing found, and perhaps nothing to find it by.
        if let (None, false, Some(field)) = (of, told, fields.get_mut(name)) {
            (field.known, field.high) = (false, f64::INFINITY);
        }
    }
    for (name, unit, peak, scale) in [("seen_mb_s", "MB/s", peaks[0], 1e6), ("seen_iops", "1/s", peaks[1], 1.0)] {
        if let Some(value) = peak.map(|[rate, _]| rate / scale) {
            fields.insert(name.to_owned(), Field { value, low: value, high: f64::INFINITY, unit, known: true });
        }
    }
    for (access, rows) in ACCESSES.iter().zip(&chosen) {
        for (sectors, values, halves) in rows {
            let interval = quantile_interval(values, 0.5, LEVEL);
            // A device that drifts has medians that no order statistic bounds.
            let (low, high) = halves
                .iter()
                .fold((interval.low.max(0.0), interval.high), |(low, high), half| (low.min(*half), high.max(*half)));
            let [value, low, high] = [interval.estimate, low, high].map(|ns| ns / 1000.0);
            let known = values.len() >= LEAST;
            fields.insert(format!("{access}_{}_us", size(*sectors)), Field { value, low, high, unit: "us", known });
        }
        beyond(&mut fields, access, rows);
    }
    if let Some(times) = &service.flush {
        let [low, value, high] = [times[2], times[6], times[12]].map(|ns| ns as f64 / 1000.0);
        fields.insert("flush_us".to_owned(), Field { value, low, high, unit: "us", known: true });
    }
    Profile { fields, service, ..Profile::default() }
}

/// The time of a KiB beyond the largest size.
fn beyond(fields: &mut BTreeMap<String, Field>, access: &str, rows: &[Class]) {
    let Some((largest, values, _)) = rows.last() else { return };
    let kib = f64::from(*largest) / 2.0;
    let most = quantile(values, 0.5) / kib;
    let name = format!("{access}_beyond_{}_ns_per_kib", size(*largest));
    let field = match rows {
        [.., (before, other, _), _] => {
            let value = (quantile(values, 0.5) - quantile(other, 0.5)).max(0.0) / (kib - f64::from(*before) / 2.0);
            Field::guess("ns/KiB", value, value / 2.0, most.max(value * 2.0))
        }
        _ => Field::guess("ns/KiB", most / 4.0, 0.0, most),
    };
    fields.insert(name, field);
}

/// A size for names: `512b`, `4k`, `1m`.
fn size(sectors: u32) -> String {
    match sectors {
        nr if nr % 2048 == 0 => format!("{}m", nr / 2048),
        nr if nr % 2 == 0 => format!("{}k", nr / 2),
        nr => format!("{}b", u64::from(nr) * 512),
    }
}

/// The same commands on the device of a profile.
pub(super) fn replay(profile: &Profile, samples: &[Sample]) -> Vec<Sample> {
    replayed(profile, &in_company(samples))
}

/// Fits the first half and predicts the second.
pub(super) fn held_back(samples: &[Sample]) -> Option<HeldBack> {
    let (first, second) = samples.split_at(samples.len() / 2);
    if first.len() < 10 * LEAST {
        return None;
    }
    Some(predicted(&fit(first), second))
}

/// How well a profile predicts these commands: errors of each class of operation, size and company, weighted by their
/// number.
pub(super) fn predicted(profile: &Profile, samples: &[Sample]) -> HeldBack {
    let seen = in_company(samples);
    let other = replayed(profile, &seen);
    let off = |seen: f64, predicted: f64| (predicted.max(1.0) / seen.max(1.0) - 1.0).abs() * 100.0;
    let mut sums = [0.0; 2];
    let classes = by_class(&seen, &other);
    let counted = classes.iter().map(|[mine, _]| mine.len()).filter(|nr| *nr >= 4 * LEAST).sum::<usize>().max(1) as f64;
    for [mine, theirs] in classes.into_iter().filter(|[mine, _]| mine.len() >= 4 * LEAST) {
        for (sum, q) in sums.iter_mut().zip([0.5, 0.99]) {
            *sum += mine.len() as f64 / counted * off(quantile(&mine, q), quantile(&theirs, q));
        }
    }
    HeldBack {
        p50_error_pct: sums[0],
        p99_error_pct: sums[1],
        throughput_error_pct: off(makespan(other.into_iter()), makespan(samples.iter().copied())),
    }
}

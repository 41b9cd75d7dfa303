//! The calls of a run from the first to the last: latencies by call number, the call at which a side becomes slow, and
//! the call that stands for a side.
//!
//! ```text
//! kind      calls of the operation and length that take most of the time of both sides together, and that both make
//! typical   of a side's calls of this kind, in order of their time: the one at which half of their time together is
//!           reached. It is in the mode in which the time is spent, and not in the one with most calls. Of those within
//!           a sixteenth of it, the one nearest to the middle of the run, or of its slow part
//! onset     a call is slow if it takes longer than the geometric mean of the fast side's median and the slow side's
//!           typical call, which have to be [`APART`] times apart. The run begins to be slow behind the call up to
//!           which fast calls outnumber slow ones most, if [`MOST`] of the calls before are fast and of those behind
//!           slow, and there are [`LEAST`] of each
//! points    begin and duration of each call, of runs of up to [`POINTS`] calls
//! heat      of others: columns of equally many calls, and the number of them in each quarter of an octave
//! ```

use std::collections::BTreeMap;

use iowhy_stack::event::Op;
use serde::Serialize;

use super::survey::{Call, NEVER, Survey};

/// Calls of which each is a point.
pub const POINTS: usize = 5_000;
/// Columns of calls.
const COLUMNS: usize = 240;
/// Bins of an octave.
const BINS: f64 = 4.0;
/// How far apart fast and slow calls are.
const APART: f64 = 1.5;
/// The share of calls on the right side of the limit.
const MOST: f64 = 0.8;
/// Fewest calls before and after.
const LEAST: i64 = 8;

/// Begin and duration of calls, by their number; -1 of those that did not end.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Points {
    /// When they began.
    pub start: Vec<i64>,
    /// How long they took.
    pub took: Vec<i64>,
}

/// How many calls took how long, by their number.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Heat {
    /// Number of the first call of each column.
    pub nr: Vec<u64>,
    /// When it began.
    pub start: Vec<i64>,
    /// Where bins begin, and the end of the last.
    pub edge_ns: Vec<u64>,
    /// Cells that are not empty: column, bin, calls.
    pub column: Vec<u32>,
    pub bin: Vec<u32>,
    pub count: Vec<u32>,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Marked {
    /// Its number in the run, from 1 on.
    pub nr: u64,
    /// Its row, if it is kept.
    pub row: Option<usize>,
    /// When it began.
    pub start_ns: i64,
    /// How long it took.
    pub took_ns: u64,
}

/// The call at which a run becomes slow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Onset {
    /// The call.
    pub at: Marked,
    /// Median of the calls before.
    pub before_ns: u64,
    /// Of those from there on.
    pub after_ns: u64,
}

/// The calls of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Course {
    /// How many.
    pub calls: usize,
    /// Each, of few.
    pub points: Points,
    /// Of many.
    pub heat: Option<Heat>,
    pub typical: Option<Marked>,
    pub onset: Option<Onset>,
}

/// Calls of a side that the first screen shows, by their places.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Landmarks {
    pub typical: Option<usize>,
    pub onset: Option<usize>,
}

impl Landmarks {
    /// As parts that are shown in detail.
    pub fn marks(self) -> Vec<(usize, &'static str)> {
        [(self.onset, "onset"), (self.typical, "typical")]
            .into_iter()
            .filter_map(|(at, why)| Some((at?, why)))
            .collect()
    }
}

type Kind = (u8, u32);

fn kind_of(call: &Call) -> Kind {
    // Syncs have no length.
    (call.op as u8, if matches!(call.op, Op::Fsync | Op::Fdatasync) { 0 } else { call.bytes })
}

/// Calls of a kind that ended: how long each took, and its place.
fn of_kind(survey: &Survey, kind: Kind) -> Vec<(u64, usize)> {
    let calls = survey.calls.iter().enumerate().filter(|(_, call)| call.end != NEVER && kind_of(call) == kind);
    calls.map(|(place, call)| (call.took(), place)).collect()
}

/// The kind of call that takes most of the time, of kinds that both sides have if there are such.
fn most_time(surveys: &[Survey; 2]) -> Option<Kind> {
    let mut times: BTreeMap<Kind, [u128; 2]> = BTreeMap::new();
    for (side, survey) in surveys.iter().enumerate() {
        for call in survey.calls.iter().filter(|call| call.end != NEVER) {
            times.entry(kind_of(call)).or_default()[side] += u128::from(call.took());
        }
    }
    let common = |[a, b]: &[u128; 2]| *a > 0 && *b > 0;
    times.into_iter().max_by_key(|(_, time)| (common(time), time[0] + time[1])).map(|(kind, _)| kind)
}

/// The time up to which half of the time is spent.
fn half_of_the_time(sorted: &[(u64, usize)]) -> Option<u64> {
    let whole: u128 = sorted.iter().map(|(took, _)| u128::from(*took)).sum();
    let mut upto = 0;
    let reached = |(took, _): &&(u64, usize)| {
        upto += u128::from(*took);
        2 * upto >= whole
    };
    sorted.iter().find(reached).map(|(took, _)| *took)
}

fn median(sorted: &[(u64, usize)]) -> Option<u64> {
    sorted.get(sorted.len() / 2).map(|(took, _)| *took)
}

fn sorted(mut calls: Vec<(u64, usize)>) -> Vec<(u64, usize)> {
    calls.sort_unstable();
    calls
}

/// The call from which on calls in order are slow.
fn onset(calls: &[(u64, usize)], limit: f64) -> Option<usize> {
    let step = |(took, _): &(u64, usize)| if *took as f64 > limit { 1 } else { -1 };
    let (mut sum, mut least, mut at) = (0i64, 0i64, 0);
    for (nr, call) in calls.iter().enumerate() {
        sum += step(call);
        if sum < least {
            (least, at) = (sum, nr + 1);
        }
    }
    let (before, after) = (at as i64, (calls.len() - at) as i64);
    // The sum of n calls of which a share s is on the right side is n (2 s - 1).
    let clear = |sum: i64, calls: i64| calls >= LEAST && sum as f64 >= (2.0 * MOST - 1.0) * calls as f64;
    (clear(-least, before) && clear(sum - least, after)).then(|| calls[at].1)
}

/// The calls to look at, of both sides.
pub fn landmarks(surveys: &[Survey; 2]) -> [Landmarks; 2] {
    let Some(kind) = most_time(surveys) else { return [Landmarks::default(); 2] };
    let calls = [0, 1].map(|side: usize| of_kind(&surveys[side], kind));
    let by_time = calls.each_ref().map(|calls| sorted(calls.clone()));
    let halves = by_time.each_ref().map(|calls| half_of_the_time(calls));
    let mut out = [Landmarks::default(); 2];
    let slow = usize::from(halves[1] >= halves[0]);
    if let (Some(fast), Some(typical)) = (median(&by_time[1 - slow]), halves[slow])
        && typical as f64 > APART * fast as f64
    {
        out[slow].onset = onset(&calls[slow], (typical as f64 * fast.max(1) as f64).sqrt());
    }
    for (side, landmarks) in out.iter_mut().enumerate() {
        let from = landmarks.onset.unwrap_or(0);
        let part = sorted(calls[side].iter().filter(|(_, place)| *place >= from).copied().collect());
        let Some(half) = half_of_the_time(&part) else { continue };
        let middle = usize::midpoint(from, surveys[side].calls.len());
        let alike = part.iter().filter(|(took, _)| took.abs_diff(half).saturating_mul(16) <= half);
        landmarks.typical = alike.min_by_key(|(_, place)| place.abs_diff(middle)).map(|(_, place)| *place);
    }
    out
}

/// The calls of a run; `kept` are the numbers of those that have rows.
pub fn of(survey: &Survey, landmarks: Landmarks, kept: &[u64]) -> Course {
    let begin = survey.begins();
    let clock = |time: u64| time.saturating_sub(begin) as i64;
    let marked = |place: usize| {
        let call = &survey.calls[place];
        let nr = place as u64 + 1;
        Marked { nr, row: kept.binary_search(&nr).ok(), start_ns: clock(call.start), took_ns: call.took() }
    };
    let mut course = Course { calls: survey.calls.len(), typical: landmarks.typical.map(marked), ..Course::default() };
    if let Some(place) = landmarks.onset {
        let kind = kind_of(&survey.calls[place]);
        let (before, after): (Vec<_>, Vec<_>) = of_kind(survey, kind).into_iter().partition(|(_, of)| *of < place);
        let [before_ns, after_ns] = [before, after].map(|calls| median(&sorted(calls)).unwrap_or(0));
        course.onset = Some(Onset { at: marked(place), before_ns, after_ns });
    }
    if survey.calls.len() <= POINTS {
        for call in &survey.calls {
            course.points.start.push(clock(call.start));
            course.points.took.push(if call.end == NEVER { -1 } else { call.took() as i64 });
        }
    } else {
        course.heat = Some(heat(survey, begin));
    }
    course
}

fn heat(survey: &Survey, begin: u64) -> Heat {
    let bin = |call: &Call| ((call.took().max(1) as f64).log2() * BINS).floor() as u32;
    let ended = || survey.calls.iter().filter(|call| call.end != NEVER);
    let (low, high) = ended().map(bin).fold((u32::MAX, 0), |(low, high), bin| (low.min(bin), high.max(bin)));
    let mut heat = Heat::default();
    if low > high {
        return heat;
    }
    heat.edge_ns = (low..=high + 1).map(|bin| (f64::from(bin) / BINS).exp2().round() as u64).collect();
    let each = survey.calls.len().div_ceil(COLUMNS);
    for (column, calls) in survey.calls.chunks(each).enumerate() {
        heat.nr.push((column * each) as u64 + 1);
        heat.start.push(calls[0].start.saturating_sub(begin) as i64);
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        calls.iter().filter(|call| call.end != NEVER).for_each(|call| *counts.entry(bin(call) - low).or_default() += 1);
        for (bin, count) in counts {
            heat.column.push(column as u32);
            heat.bin.push(bin);
            heat.count.push(count);
        }
    }
    heat
}

#[cfg(test)]
mod tests {
    use iowhy_stack::event::{CallId, Event, EventSink, FileId, What};
    use iowhy_stack::units::Nanos;

    use super::*;

    /// Reads one after the other, each as long as said.
    fn run(took: &[u64]) -> Survey {
        let mut survey = Survey::default();
        let mut now = 1_000;
        for (nr, took) in took.iter().enumerate() {
            let call = CallId(nr as u32 + 1);
            let (file, offset) = (FileId(0), nr as u64 * 4096);
            let start = What::CallStart { op: Op::Read, file, offset, len_bytes: 4096 };
            survey.event(&Event { at: Nanos(now), call, what: start });
            now += took;
            survey.event(&Event { at: Nanos(now), call, what: What::CallEnd { op: Op::Read, file, len_bytes: 4096 } });
            now += 10;
        }
        survey
    }

    fn joined(parts: &[(u64, usize)]) -> Vec<u64> {
        parts.iter().flat_map(|(took, times)| std::iter::repeat_n(*took, *times)).collect()
    }

    #[test]
    fn a_run_becomes_slow_at_one_call_or_at_none() {
        let mixed: Vec<u64> = (0..400).map(|nr| if nr % 2 == 0 { 4_000 } else { 30_000 }).collect();
        let table = [
            (joined(&[(4_000, 64), (29_000, 300)]), Some(64)),
            (joined(&[(4_000, 64), (29_000, 1), (4_000, 20), (29_000, 300)]), Some(85)),
            (joined(&[(29_000, 300)]), None),
            (joined(&[(4_000, 5), (29_000, 300)]), None),
            (joined(&[(4_400, 300)]), None),
            (mixed, None),
        ];
        for (slow, expected) in table {
            let surveys = [run(&joined(&[(4_000, 364)])), run(&slow)];
            let [a, b] = landmarks(&surveys);
            assert_eq!((a.onset, b.onset), (None, expected), "{slow:?}");
            // Whichever side is the slow one.
            let [b, a] = surveys;
            let [b, _] = landmarks(&[a, b]);
            assert_eq!(b.onset, expected, "{slow:?}");
        }
    }

    #[test]
    fn the_typical_call_is_where_the_time_goes_and_not_where_the_calls_are() {
        // Nine of ten calls are found in the cache, and the others take nearly all of the time.
        let cached: Vec<u64> = (0..1_000).map(|nr| if nr % 10 == 3 { 5_000_000 } else { 2_000 }).collect();
        let surveys = [run(&joined(&[(4_000, 200)])), run(&cached)];
        let [a, b] = landmarks(&surveys);
        assert_eq!(a.typical, Some(100));
        let place = b.typical.expect("a call");
        assert!(surveys[1].calls[place].took() == 5_000_000 && place.abs_diff(500) <= 10, "{place}");
        let course = of(&surveys[1], b, &[1, place as u64 + 1]);
        let typical = course.typical.expect("a call");
        assert_eq!((typical.nr, typical.row, typical.took_ns), (place as u64 + 1, Some(1), 5_000_000));
        assert_eq!((course.points.took.len(), course.points.took[3]), (1_000, 5_000_000));
        // Never the start-up.
        let [_, b] = landmarks(&[run(&joined(&[(4_000, 364)])), run(&joined(&[(4_000, 64), (29_000, 300)]))]);
        assert_eq!(b.typical, Some(214));
    }

    #[test]
    fn heat_counts_every_call_once() {
        let took: Vec<u64> = (0..POINTS as u64 + 777).map(|nr| 1_000 + (nr * 7_919) % 1_000_000).collect();
        let survey = run(&took);
        let course = of(&survey, Landmarks::default(), &[]);
        let heat = course.heat.expect("too many for points");
        assert!(course.points.took.is_empty() && heat.nr.len() <= COLUMNS);
        assert_eq!(heat.count.iter().map(|count| *count as usize).sum::<usize>(), took.len());
        let each = heat.nr[1] - 1;
        for ((column, bin), count) in heat.column.iter().zip(&heat.bin).zip(&heat.count) {
            let edges = heat.edge_ns[*bin as usize]..heat.edge_ns[*bin as usize + 1];
            let first = heat.nr[*column as usize] - 1;
            let calls = took.iter().skip(first as usize).take(each as usize);
            // Both edges are rounded numbers.
            let inside = calls.filter(|took| edges.contains(took)).count() as u32;
            assert!(inside.abs_diff(*count) <= 2, "{column} {bin}: {inside} for {count}");
        }
    }
}

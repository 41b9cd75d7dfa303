//! A terminal's view of two sides: latencies on common bins, and a short timeline on a common clock.
//!
//! ```text
//! latency    reads or writes, whichever are more (syncs, without others), of all runs of a side: the
//!            digests' buckets of a quarter of an octave, as many in a bin as it takes to have [`BINS`] bins at most
//! moment     one run of each side, that of the report; its clock begins with the first call that was served
//!            differently, and goes on until the slower side has done what this call asked for, and a quarter more;
//!            where all calls are served alike, with the first call and until the first [`CALLS`] are served
//! column     calls begun, windows decided, how many requests a plug, the elevator and the device held on average, and
//!            for which part of the time the device had nothing to do while others held requests
//! ```
//! Runs, first difference and rows are those of the report ([`survey`](super::survey), [`detail`](super::detail)).
//! A request is in a plug from its allocation until it is given to the elevator, and with the elevator until it is
//! issued; if it was not seen to be given to the elevator, it is there all the time, as it is in the report.
//!
//! Known limit: of a run only its opening is kept for an explanation. A difference that comes later is not found here;
//! the report looks at all of a run.

use super::{Requests, Timeline, chosen, detail, facts, surveyed};
use crate::explain::gathered::{EventSource, Gathered};
use crate::explain::tally::OPS;
use crate::store::events::WINDOWS;
use iowhy_stack::event::RaKind;
use iowhy_stack::units::PAGE_BYTES;
use iowhy_why::digest::{Digest, Spread};

/// Most bins of latencies.
pub const BINS: usize = 44;
/// Columns of time.
pub const COLUMNS: usize = 64;
/// Calls that are shown of runs that serve them alike.
const CALLS: usize = 8;
/// Requests that are shown of runs without calls.
const REQUESTS: usize = 32;
/// Rows of a part of a run: more than an opening has.
const EVENTS: u64 = 1 << 40;

/// The pictures of an explanation.
#[derive(Clone, Debug, PartialEq)]
pub struct Glance {
    /// Latencies, if there are calls.
    pub latency: Option<Latency>,
    /// The timeline, or why there is none.
    pub moment: Result<Moment, String>,
}

/// Latencies of both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency {
    /// read, write or sync.
    pub op: &'static str,
    /// Calls of A and B.
    pub calls: [u64; 2],
    /// Share of the calls of A and of B in each bin.
    pub share: [Vec<f64>; 2],
    /// Where each bin begins, ns.
    pub from_ns: Vec<u64>,
    /// Medians, to an eighth, ns.
    pub p50_ns: [f64; 2],
    /// The latencies that one in a hundred exceeds, to an eighth, ns.
    pub p99_ns: [f64; 2],
}

impl Latency {
    /// The bin of a latency.
    pub fn bin(&self, ns: f64) -> usize {
        self.from_ns.partition_point(|from| *from as f64 <= ns).saturating_sub(1)
    }
}

/// A view of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// The call at which the clock begins; nothing of runs without calls.
    pub call: Option<CallShape>,
    /// It is the first that was served differently; else the number of calls served alike, and whether these are all.
    pub differs: Result<(), (usize, bool)>,
    /// Time that a column stands for.
    pub column_ns: f64,
    /// Both sides.
    pub sides: [Lanes; 2],
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallShape {
    /// How many have begun with it.
    pub number: usize,
    /// read, write or sync.
    pub op: &'static str,
    /// Where.
    pub offset: u64,
    /// How much.
    pub bytes: u64,
    /// Name of the file, from outside.
    pub file: Option<String>,
}

/// Sizes in bytes one after the other, and how many of each.
pub type Sizes = Vec<(u64, usize)>;

/// One side.
#[derive(Clone, Debug, PartialEq)]
pub struct Lanes {
    /// Duration of the call, ns, if its end was seen.
    pub took_ns: Option<u64>,
    /// Windows that it decided on.
    pub windows: Sizes,
    /// Requests that were made for it.
    pub requests: Sizes,
    /// Events, column by column.
    pub columns: Vec<Column>,
}

/// Events of a column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Column {
    /// Calls that begin.
    pub begun: u32,
    /// Operation of the first of them: read, write or sync.
    pub op: Option<&'static str>,
    /// Calls in progress, on average.
    pub open: f64,
    /// Windows that are decided on.
    pub windows: u32,
    /// Why the first of them is.
    pub window: Option<RaKind>,
    /// Pages that were asked for are found.
    pub found: bool,
    /// Requests in a plug, on average.
    pub plug: f64,
    pub elevator: f64,
    /// At the device.
    pub device: f64,
    /// Share of the time in which the device has nothing to do and requests are held elsewhere.
    pub stalled: f64,
}

/// The pictures of two sides.
pub fn of(sides: &[Gathered; 2]) -> Glance {
    let digests = |side: usize| sides[side].side.runs.as_slice();
    Glance { latency: latency([digests(0), digests(1)]), moment: moment(sides) }
}

fn latency(sides: [&[Digest]; 2]) -> Option<Latency> {
    let sums = sides.map(|runs| {
        let mut sums: [Spread; 3] = Default::default();
        runs.iter().for_each(|run| sums.iter_mut().zip(&run.latency).for_each(|(sum, of)| sum.merge(of)));
        sums
    });
    let calls = |kind: usize| sums[0][kind].count() + sums[1][kind].count();
    let kind = if calls(0) + calls(1) == 0 { 2 } else { usize::from(calls(1) > calls(0)) };
    if calls(kind) == 0 {
        return None;
    }
    let of = [&sums[0][kind], &sums[1][kind]];
    let mut both = of[0].clone();
    both.merge(of[1]);
    let begins: Vec<u64> = both.buckets().map(|(from, _)| from).collect();
    let in_bin = begins.len().div_ceil(BINS);
    let share = of.map(|spread| {
        let mut bins = vec![0.0; begins.len().div_ceil(in_bin)];
        for (from, count) in spread.buckets() {
            let bucket = begins.partition_point(|begin| *begin <= from) - 1;
            bins[bucket / in_bin] += f64::from(count) / spread.count().max(1) as f64;
        }
        bins
    });
    Some(Latency {
        op: OPS[kind],
        calls: of.map(Spread::count),
        share,
        from_ns: begins.into_iter().step_by(in_bin).collect(),
        p50_ns: of.map(|spread| spread.quantile(0.5)),
        p99_ns: of.map(|spread| spread.quantile(0.99)),
    })
}

/// read, write or sync, of a call's row.
fn op_of(op: u8) -> &'static str {
    OPS[usize::from(op.min(2))]
}

fn moment(sides: &[Gathered; 2]) -> Result<Moment, String> {
    if sides.iter().any(|side| side.seen.is_empty()) {
        return Err("no events of one side were kept".to_owned());
    }
    let runs = chosen(sides);
    let (surveys, differs) = surveyed(sides, runs)
        .map_err(|problems| problems.list.into_iter().map(|problem| problem.message).collect::<Vec<_>>().join("; "))?;
    let mut timelines = Vec::new();
    for side in 0..2 {
        let mut builder =
            detail::Builder::new(&surveys[side], detail::parts(&surveys[side], differs[side], &[], EVENTS));
        super::replay(&sides[side], runs[side], &mut builder).map_err(|problem| problem.message)?;
        timelines.push(builder.finish(differs[side]));
    }
    let [a, b] = [&timelines[0], &timelines[1]];
    if a.nr_events == 0 || b.nr_events == 0 {
        return Err("one side has no events".to_owned());
    }
    let whole = [0, 1].map(|side: usize| {
        !matches!(
            sides[side].seen.get(runs[side]).map(|seen| &seen.again),
            Some(EventSource::Opening { whole: false, .. })
        )
    });
    let shown = [0, 1].map(|side| Shown::of(&timelines[side], whole[side]));
    // Missing events are not shown as nothing.
    let heard = shown.iter().map(|of| of.heard).fold(i64::MAX, i64::min);
    let reach = shown.iter().map(|of| of.reach).fold(1, i64::max);
    let reach = (reach + reach / 4).min(heard).max(1);
    let row = shown[0].call.filter(|_| shown[1].call.is_some());
    let call = row.map(|row| CallShape {
        number: differs[0].unwrap_or(0) + 1,
        op: op_of(a.calls.op[row]),
        offset: a.calls.offset[row],
        bytes: u64::from(a.calls.bytes[row]),
        file: facts::files(&sides[0], runs[0]).get(a.calls.file[row] as usize).map(|file| file.name.clone()),
    });
    let alike = surveys.iter().map(|survey| survey.calls.len()).min().unwrap_or(0);
    let column_ns = reach as f64 / COLUMNS as f64;
    Ok(Moment {
        call,
        differs: if differs[0].is_some() { Ok(()) } else { Err((alike, whole == [true, true])) },
        column_ns,
        sides: [0, 1].map(|side: usize| lanes(&timelines[side], &shown[side], column_ns)),
    })
}

/// Parts of a timeline.
struct Shown {
    /// Row of the call at which the clock begins.
    call: Option<usize>,
    /// When that is.
    from: i64,
    /// Delay of the end of the part.
    reach: i64,
    /// How long from there on everything is known.
    heard: i64,
}

impl Shown {
    fn of(timeline: &Timeline, whole: bool) -> Shown {
        let (calls, requests) = (&timeline.calls, &timeline.requests);
        let first = timeline.first_difference;
        let call = first.or((!calls.start.is_empty()).then_some(0));
        let from = call.map_or(0, |row| calls.start[row]);
        let last = call.map(|row| if first.is_some() { row } else { (row + CALLS).min(calls.start.len()) - 1 });
        let mut reach = 0;
        match (call, last) {
            (Some(call), Some(last)) => {
                reach = calls.end[call..=last].iter().fold(reach, |reach, end| reach.max(end - from));
                for (row, done) in requests.call.iter().zip(&requests.c) {
                    if usize::try_from(*row).is_ok_and(|row| (call..=last).contains(&row)) {
                        reach = reach.max(done - from);
                    }
                }
            }
            _ => reach = requests.c.iter().take(REQUESTS).fold(reach, |reach, done| reach.max(done - from)),
        }
        let heard = if whole { i64::MAX } else { timeline.elapsed_ns as i64 - from };
        Shown { call, from, reach, heard }
    }
}

/// Times in which requests wait to be issued, and none is at the device.
fn stalls(requests: &Requests) -> Vec<(i64, i64)> {
    // What changes at which time: how many wait, how many are at the device.
    let mut changes: Vec<(i64, i32, i32)> = Vec::new();
    for (row, from) in requests.g.iter().enumerate() {
        changes.push((*from, 1, 0));
        if requests.d[row] >= 0 {
            changes.push((requests.d[row], -1, 1));
        }
        if requests.d[row] >= 0 && requests.c[row] >= 0 {
            changes.push((requests.c[row], 0, -1));
        }
    }
    changes.sort_unstable();
    let (mut stalls, mut waiting, mut busy) = (Vec::new(), 0, 0);
    for (nr, (at, wait, device)) in changes.iter().enumerate() {
        waiting += wait;
        busy += device;
        let next = changes.get(nr + 1).map_or(i64::MAX, |next| next.0);
        if waiting > 0 && busy == 0 && next > *at {
            stalls.push((*at, next));
        }
    }
    stalls
}

/// Numbers that follow on each other, counted.
fn sizes(values: impl Iterator<Item = u64>) -> Sizes {
    let mut sizes = Sizes::new();
    for value in values {
        match sizes.last_mut() {
            Some((known, count)) if *known == value => *count += 1,
            _ => sizes.push((value, 1)),
        }
    }
    sizes
}

fn lanes(timeline: &Timeline, shown: &Shown, column_ns: f64) -> Lanes {
    let (calls, windows, pages, requests) = (&timeline.calls, &timeline.windows, &timeline.pages, &timeline.requests);
    let mut columns = vec![Column::default(); COLUMNS];
    let place = |at: i64| {
        let place = (at - shown.from) as f64 / column_ns;
        (place >= 0.0 && place < COLUMNS as f64).then_some(place as usize)
    };
    for (row, start) in calls.start.iter().enumerate() {
        if let Some(column) = place(*start) {
            columns[column].begun += 1;
            columns[column].op.get_or_insert(op_of(calls.op[row]));
        }
    }
    for (row, at) in windows.at.iter().enumerate() {
        if let Some(column) = place(*at) {
            columns[column].windows += 1;
            if columns[column].window.is_none() {
                columns[column].window =
                    usize::try_from(windows.kind[row]).ok().and_then(|kind| WINDOWS.get(kind)).copied();
            }
        }
    }
    for (row, at) in pages.at.iter().enumerate().filter(|(row, _)| pages.kind[*row] == 1) {
        if let Some(column) = place(*at) {
            columns[column].found |= pages.nr[row] > 0;
        }
    }
    // A time that is not known is not over.
    let end = |at: i64| if at < 0 { i64::MAX } else { at };
    let mut spread = |from: i64, to: i64, of: fn(&mut Column) -> &mut f64| {
        let (from, to) =
            ((from.saturating_sub(shown.from)) as f64 / column_ns, to.saturating_sub(shown.from) as f64 / column_ns);
        let (from, to) = (from.max(0.0), to.min(COLUMNS as f64));
        let mut at = from;
        while at < to {
            let next = (at.floor() + 1.0).min(to);
            *of(&mut columns[at as usize]) += next - at;
            at = next;
        }
    };
    for (start, stop) in calls.start.iter().zip(&calls.end) {
        spread(*start, *stop, |column| &mut column.open);
    }
    for row in 0..requests.g.len() {
        let inserted = if requests.i[row] < 0 { requests.g[row] } else { requests.i[row] };
        spread(requests.g[row], inserted, |column| &mut column.plug);
        spread(inserted, end(requests.d[row]), |column| &mut column.elevator);
        if requests.d[row] >= 0 {
            spread(requests.d[row], end(requests.c[row]), |column| &mut column.device);
        }
    }
    for (from, to) in stalls(requests) {
        spread(from, to, |column| &mut column.stalled);
    }
    let mine = |call: &i64| shown.call.is_some() && usize::try_from(*call).ok() == shown.call;
    let of_windows = windows.nr.iter().zip(&windows.call).filter(|(_, call)| mine(call));
    let of_requests = requests.sectors.iter().zip(&requests.call).filter(|(_, call)| mine(call));
    let took = shown.call.map(|row| calls.end[row] - calls.start[row]);
    Lanes {
        took_ns: took.filter(|took| *took < shown.heard).and_then(|took| u64::try_from(took).ok()),
        windows: sizes(of_windows.map(|(nr, _)| nr * PAGE_BYTES)),
        requests: sizes(of_requests.map(|(sectors, _)| u64::from(*sectors) * 512)),
        columns,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use iowhy_stack::event::{CallId, Content, Dir, Event, FileId, Op, RqId, What};
    use iowhy_stack::rng::Rng;
    use iowhy_stack::units::{Nanos, Sector};

    use super::*;
    use crate::explain::gathered::PicturedRun;
    use crate::explain::tally::Tally;
    use crate::report::{Calls, Pages, Windows};
    use iowhy_why::Side;

    /// Columns against a recount of every nanosecond.
    #[test]
    fn columns_count_what_every_nanosecond_has() {
        let mut rng = Rng::stream(1, "glance");
        for _ in 0..40 {
            let mut timeline = Timeline::default();
            let some = |rng: &mut Rng, from: i64, most: u64| from + rng.below(most) as i64;
            for _ in 0..rng.below(12) {
                let g = some(&mut rng, 0, 900);
                let i = some(&mut rng, g, 60);
                let d = some(&mut rng, i, 200);
                let c = some(&mut rng, d, 300);
                // Some are not over, some were not seen to be given to the elevator.
                let known = rng.below(6);
                timeline.requests.g.push(g);
                timeline.requests.i.push(if known == 1 { -1 } else { i });
                timeline.requests.d.push(if known == 2 { -1 } else { d });
                timeline.requests.c.push(if (2..4).contains(&known) { -1 } else { c });
                timeline.requests.call.push(-1);
                timeline.requests.sectors.push(8);
            }
            for _ in 0..rng.below(9) {
                let start = some(&mut rng, 0, 900);
                timeline.calls.start.push(start);
                timeline.calls.end.push(some(&mut rng, start, 400));
                timeline.calls.op.push(rng.below(4) as u8);
            }
            let width = 1 + rng.below(15) as i64;
            let from = some(&mut rng, 0, 200);
            let shown = Shown { call: None, from, reach: 0, heard: i64::MAX };
            let found = lanes(&timeline, &shown, width as f64);
            let requests = &timeline.requests;
            for (nr, column) in found.columns.iter().enumerate() {
                let times = from + nr as i64 * width..from + (nr as i64 + 1) * width;
                let mut sums = [0u32; 5];
                for at in times.clone() {
                    let mut now = [0u32; 4];
                    for row in 0..requests.g.len() {
                        let (g, i, d, c) = (requests.g[row], requests.i[row], requests.d[row], requests.c[row]);
                        let i = if i < 0 { g } else { i };
                        let issued = d >= 0 && at >= d;
                        now[0] += u32::from(g <= at && at < i);
                        now[1] += u32::from(i <= at && !issued);
                        now[2] += u32::from(issued && (c < 0 || at < c));
                        now[3] += u32::from(g <= at && !issued);
                    }
                    let stalled = now[3] > 0 && now[2] == 0;
                    let calls = timeline.calls.start.iter().zip(&timeline.calls.end);
                    let open = calls.filter(|(start, end)| **start <= at && at < **end).count() as u32;
                    for (sum, now) in sums.iter_mut().zip([now[0], now[1], now[2], u32::from(stalled), open]) {
                        *sum += now;
                    }
                }
                let means = [column.plug, column.elevator, column.device, column.stalled, column.open];
                for (mean, sum) in means.iter().zip(sums) {
                    assert!((mean * width as f64 - f64::from(sum)).abs() < 1e-6, "{nr}: {column:?} is not {sums:?}");
                }
                let begun = timeline.calls.start.iter().filter(|start| times.contains(start)).count();
                assert_eq!(column.begun as usize, begun);
            }
        }
    }

    #[test]
    fn the_clock_begins_with_the_call_and_shows_what_it_asked_for() {
        let timeline = Timeline {
            elapsed_ns: 10_000,
            first_difference: Some(1),
            calls: Calls {
                start: vec![0, 1_000, 2_000],
                end: vec![900, 1_500, 9_000],
                op: vec![0, 1, 0],
                ..Calls::default()
            },
            windows: Windows {
                at: vec![1_000, 1_010, 1_020, 2_000],
                call: vec![1, 1, 1, 2],
                kind: vec![0, 1, 1, 3],
                nr: vec![4, 8, 8, 1],
                ..Windows::default()
            },
            pages: Pages { at: vec![1_400], kind: vec![1], nr: vec![1], ..Pages::default() },
            requests: Requests {
                g: vec![1_000, 1_000],
                i: vec![-1, -1],
                d: vec![1_000, 1_100],
                c: vec![1_100, 4_200],
                call: vec![1, 1],
                sectors: vec![32, 128],
                ..Requests::default()
            },
            ..Timeline::default()
        };
        let shown = Shown::of(&timeline, false);
        assert_eq!((shown.call, shown.from, shown.reach, shown.heard), (Some(1), 1_000, 3_200, 9_000));
        let of = lanes(&timeline, &shown, 50.0);
        assert_eq!(
            (of.took_ns, &of.windows, &of.requests),
            (Some(500), &vec![(16384, 1), (32768, 2)], &vec![(16384, 1), (65536, 1)])
        );
        let first = &of.columns[0];
        assert_eq!((first.begun, first.op, first.windows, first.window), (1, Some("write"), 3, Some(RaKind::Sync)));
        assert!(of.columns[8].found && !of.columns[7].found && of.columns[20].window == Some(RaKind::Single));
        // Without a difference the first calls are shown; without calls, the first requests.
        let alike = Shown::of(&Timeline { first_difference: None, ..timeline.clone() }, true);
        assert_eq!((alike.call, alike.from, alike.reach, alike.heard), (Some(0), 0, 9_000, i64::MAX));
        let traced = Shown::of(&Timeline { first_difference: None, calls: Calls::default(), ..timeline }, true);
        assert_eq!((traced.call, traced.from, traced.reach), (None, 0, 4_200));
    }

    #[test]
    fn bins_are_common_and_count_every_call() {
        let run = |values: &[(usize, u64)]| {
            let mut run = Digest::default();
            values.iter().for_each(|(kind, ns)| run.latency[*kind].add(*ns));
            run
        };
        let a = [run(&[(0, 1_000), (0, 1_100), (1, 7)]), run(&[(0, 900_000_000)])];
        let b = [run(&[(0, 50_000_000_000), (2, 1), (2, 1), (2, 1), (2, 1), (2, 1)])];
        let of = latency([&a, &b]).expect("calls");
        assert_eq!((of.op, of.calls), ("read", [3, 1]));
        assert!(
            of.from_ns.len() <= BINS
                && of.from_ns.is_sorted()
                && of.share.iter().all(|side| side.len() == of.from_ns.len())
        );
        assert!((of.share[0][of.bin(1_000.0)] - 2.0 / 3.0).abs() < 1e-9 && of.share[1].last() == Some(&1.0));
        assert!(of.share.iter().all(|side| (side.iter().sum::<f64>() - 1.0).abs() < 1e-9));
        assert_eq!((of.bin(0.0), of.bin(1e18)), (0, of.from_ns.len() - 1));
        // Equal latencies are one bin; syncs are shown without others; without calls there are none.
        let of = latency([&[run(&[(1, 64)])], &[run(&[])]]).expect("calls");
        assert_eq!((of.op, of.share.clone(), of.p50_ns), ("write", [vec![1.0], vec![0.0]], [64.0, 0.0]));
        assert_eq!(latency([&[run(&[(2, 5)])], &[run(&[])]]).map(|of| of.op), Some("sync"));
        assert_eq!(latency([&[], &[run(&[])]]), None);
    }

    fn side(label: &str, events: Vec<Event>) -> Gathered {
        let again = EventSource::Opening { events: Arc::new(events), whole: true };
        let seen = vec![PicturedRun { seed: 1, again, tally: Tally::default(), files: Vec::new() }];
        let side = Side { label: label.to_owned(), runs: vec![Digest::default()], ..Side::default() };
        Gathered { side, seen, ..Gathered::default() }
    }

    #[test]
    fn what_cannot_be_shown_is_said() {
        let event = |at, call, what| Event { at: Nanos(at), call: CallId(call), what };
        let begin = What::CallStart { op: Op::Read, file: FileId(0), offset: 0, len_bytes: 4096 };
        let one =
            || vec![event(5, 1, begin), event(9, 1, What::CallEnd { op: Op::Read, file: FileId(0), len_bytes: 4096 })];
        let without = Gathered { seen: Vec::new(), ..side("a", Vec::new()) };
        assert_eq!(of(&[side("a", one()), without]).moment, Err("no events of one side were kept".to_owned()));
        assert_eq!(of(&[side("a", one()), side("b", Vec::new())]).moment, Err("one side has no events".to_owned()));
        let moment = of(&[side("a", one()), side("b", one())]).moment.expect("a timeline");
        assert_eq!((moment.differs, moment.call.map(|call| call.number)), (Err((1, true)), Some(1)));
        // Requests alone, as blktrace has them.
        let rq = RqId(0);
        let issue =
            What::Issue { rq, dir: Dir::Read, content: Content::Data, sector: Sector(0), nr_sectors: 8, in_flight: 1 };
        let requests = || vec![event(5, 0, issue), event(69, 0, What::Complete { rq, dir: Dir::Read, nr_sectors: 8 })];
        let moment = of(&[side("a", requests()), side("b", requests())]).moment.expect("a timeline");
        assert_eq!((moment.call, moment.column_ns), (None, 80.0 / COLUMNS as f64));
        let device: f64 = moment.sides[1].columns.iter().map(|column| column.device).sum();
        assert!((device * moment.column_ns - 64.0).abs() < 1e-6, "{device}");
    }
}

//! Timelines against a recount of the raw events, over jobs drawn at random; reports as wholes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use iowhy_stack::event::{CallId, Dir, Event, FileId, Op, What};
use iowhy_stack::layers::LayerObserver;
use iowhy_stack::lifecycle::Lifecycle;
use iowhy_stack::rng::Rng;
use iowhy_stack::sim;
use iowhy_stack::trace::{Extent, Record, Rwbs, Seen, Trace};
use iowhy_stack::units::{Nanos, PAGE_BYTES, Sector};
use iowhy_trace::join::{Who, join};

use super::detail::{Builder, Span, parts};
use super::pyramid::MOST_BINS;
use super::survey::{NEVER, SLICES, Survey, first_difference};
use super::*;
use crate::explain::source::{ExplainRequest, gather};
use crate::incident::command::plan_of_command;
use crate::store::StoreError;
use iowhy_why as explain;

fn events_of(command: &str) -> Vec<Event> {
    let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    let plan = plan_of_command(&words).unwrap_or_else(|problems| panic!("{command}: {}", problems.render()));
    let mut events = Vec::new();
    sim::run_with(&plan, &mut events).unwrap_or_else(|error| panic!("{command}: {error}"));
    events
}

/// A job, a kernel, a disk.
fn drawn(rng: &mut Rng) -> String {
    fn pick<'a>(rng: &mut Rng, all: &[&'a str]) -> &'a str {
        all[rng.below(all.len() as u64) as usize]
    }
    let seed = rng.below(1000);
    let kernel =
        pick(rng, &["linux-2.4.25", "linux-2.6.6-rc3", "linux-2.6.38", "linux-2.6.39", "linux-4.4", "linux-6.18"]);
    let disk = pick(rng, &["sata-2010", "ssd-sata-2011", "nvme", "ide-2004"]);
    let job = match rng.below(4) {
        0 => format!("run dd if=/dev/sda bs={}k count={} --seed {seed}", 4 << rng.below(7), 20 + rng.below(60)),
        1 => format!("run dd of=/dev/sda bs=64k count={} --seed {seed}", 20 + rng.below(60)),
        2 => format!(
            "sysbench fileio --file-num=2 --file-total-size=4M --file-test-mode={} --threads={} --events={} \
             --seed={seed} run",
            pick(rng, &["rndrd", "rndrw", "seqrd"]),
            1 + rng.below(4),
            20 + rng.below(150)
        ),
        _ => format!("run aio-stress size=1m threads=2 files=2 direct={} --seed {seed}", rng.below(2)),
    };
    format!("{job} --on sim:{kernel} --disk {disk}")
}

fn surveyed(events: &[Event]) -> Survey {
    let mut survey = Survey::default();
    events.iter().for_each(|event| survey.event(event));
    survey
}

fn built(events: &[Event], survey: &Survey, spans: Vec<Span>) -> Timeline {
    let mut builder = Builder::new(survey, spans);
    events.iter().for_each(|event| builder.event(event));
    builder.finish(None)
}

fn whole() -> Vec<Span> {
    vec![Span { from: 0, to: NEVER, why: "start" }; 1]
}

/// Number of requests at the device after each event.
fn depths(events: &[Event]) -> Vec<u32> {
    let mut at_device: Vec<u32> = Vec::new();
    let step = |event: &Event| {
        match event.what {
            What::Issue { rq, .. } if !at_device.contains(&rq.0) => at_device.push(rq.0),
            What::Complete { rq, .. } => at_device.retain(|known| *known != rq.0),
            _ => {}
        }
        at_device.len() as u32
    };
    events.iter().map(step).collect()
}

/// Requests that are allocated and not yet at the device, after each event.
fn queued(events: &[Event]) -> Vec<usize> {
    let mut waiting: Vec<u32> = Vec::new();
    let step = |event: &Event| {
        match event.what {
            What::GetRequest { rq } if !waiting.contains(&rq.0) => waiting.push(rq.0),
            What::MergeRequests { gone: rq, .. } | What::Issue { rq, .. } => waiting.retain(|known| *known != rq.0),
            _ => {}
        }
        waiting.len()
    };
    events.iter().map(step).collect()
}

fn check_overview(events: &[Event], survey: &Survey, what: &str) {
    let view = survey.overview();
    let first = events.iter().position(|event| matches!(event.what, What::CallStart { .. })).expect("a call");
    let begin = events[first].at.0;
    let (depths, queued) = (depths(events), queued(events));
    let nr = view.calls.len();
    assert!(nr <= SLICES && nr as u64 * view.slice_ns > survey.ends() - begin, "{what}: {nr} slices");
    let slice_of = |event: &Event| ((event.at.0 - begin) / view.slice_ns) as usize;
    let (mut calls, mut bytes) = (vec![0; nr], [vec![0; nr], vec![0; nr]]);
    let mut depth: Vec<(u32, u32)> = vec![(u32::MAX, 0); nr];
    let mut starved = vec![0u64; nr];
    let (mut done, mut stalls, mut was) = (vec![(0u64, 0u64); nr], Stalls::default(), false);
    let lengths: HashMap<CallId, u64> = (events.iter())
        .filter_map(|event| match event.what {
            What::CallStart { len_bytes, .. } => Some((event.call, u64::from(len_bytes))),
            _ => None,
        })
        .collect();
    let mut widen = |slice: usize, value: u32| {
        if let Some((least, most)) = depth.get_mut(slice) {
            (*least, *most) = ((*least).min(value), (*most).max(value));
        }
    };
    for (nr_event, event) in events.iter().enumerate().skip(first) {
        let slice = slice_of(event);
        // The state before the event lasts from the event before it.
        let before = events[nr_event.saturating_sub(1)].at.0.max(begin);
        let state = if nr_event == 0 { (0, 0) } else { (depths[nr_event - 1], queued[nr_event - 1]) };
        let starving = nr_event > first && state.0 == 0 && state.1 > 0;
        if starving && event.at.0 > before {
            stalls.count += u64::from(!was);
            stalls.ns += event.at.0 - before;
            was = true;
        }
        was &= starving;
        let reached = ((before - begin) / view.slice_ns) as usize..(slice + 1).min(nr);
        for (nth, starved) in starved.iter_mut().enumerate().skip(reached.start).take(reached.len()) {
            let from = begin + nth as u64 * view.slice_ns;
            if from > before || nr_event == first {
                widen(nth, state.0);
            }
            if state.0 == 0 && state.1 > 0 {
                let (from, to) = (from.max(before), (from + view.slice_ns).min(event.at.0));
                *starved += to.saturating_sub(from);
            }
        }
        widen(slice, depths[nr_event]);
        if slice >= nr {
            continue;
        }
        match event.what {
            What::CallStart { .. } => calls[slice] += 1,
            What::CallEnd { .. } => {
                done[slice].0 += 1;
                done[slice].1 += lengths[&event.call];
            }
            What::Complete { dir, nr_sectors, .. } => bytes[dir as usize][slice] += u64::from(nr_sectors) * 512,
            _ => {}
        }
    }
    assert_eq!(view.calls, calls, "{what}");
    let sums = done.iter().scan((0, 0), |sum, of| {
        *sum = (sum.0 + of.0, sum.1 + of.1);
        Some(*sum)
    });
    let shown: Vec<(u64, u64)> = view.done_calls.iter().copied().zip(view.done_bytes.iter().copied()).collect();
    assert_eq!(shown, sums.collect::<Vec<_>>(), "{what}");
    assert_eq!(survey.stalls(), stalls, "{what}");
    assert_eq!([&view.read_bytes, &view.write_bytes], [&bytes[0], &bytes[1]], "{what}");
    // A slice is also widened by events that leave the depth as it is.
    let shown: Vec<(u32, u32)> = view.depth_min.iter().copied().zip(view.depth_max.iter().copied()).collect();
    assert_eq!(shown, depth, "{what}");
    for (shown, ns) in view.starved.iter().zip(&starved) {
        assert!((shown - *ns as f64 / view.slice_ns as f64).abs() < 1e-4, "{what}: {shown} of {ns}");
    }
}

/// A request from the raw events, by looking forwards and backwards from its completion.
fn check_requests(events: &[Event], timeline: &Timeline, begin: u64, what: &str) {
    #[derive(Clone, Copy)]
    struct Raw {
        q: u64,
        g: u64,
        i: Option<u64>,
        d: Option<u64>,
        bios: u32,
        sectors: u32,
    }
    let mut open: BTreeMap<u32, Raw> = BTreeMap::new();
    let mut done = Vec::new();
    for (nr, event) in events.iter().enumerate() {
        let at = event.at.0;
        match event.what {
            What::GetRequest { rq } => {
                let bio = events[..nr].iter().rev().find_map(|known| match known.what {
                    What::BioQueue { nr_sectors, .. } if known.call == event.call => Some((known.at.0, nr_sectors)),
                    _ => None,
                });
                let (q, sectors) = bio.expect("a bio");
                open.insert(rq.0, Raw { q, g: at, i: None, d: None, bios: 1, sectors });
            }
            What::Merge { rq, .. } => open.get_mut(&rq.0).expect("it is there").bios += 1,
            What::MergeRequests { rq, gone } => {
                let gone = open.remove(&gone.0).expect("it was there");
                let raw = open.get_mut(&rq.0).expect("it is there");
                (raw.q, raw.g) = (raw.q.min(gone.q), raw.g.min(gone.g));
                raw.bios += gone.bios;
            }
            What::Insert { rq } => {
                open.entry(rq.0).and_modify(|raw| raw.i = raw.i.or(Some(at)));
            }
            What::Issue { rq, nr_sectors, .. } => {
                let raw = open.entry(rq.0).or_insert(Raw { q: at, g: at, i: None, d: None, bios: 1, sectors: 0 });
                if raw.d.is_none() {
                    (raw.d, raw.sectors) = (Some(at), nr_sectors);
                }
            }
            What::Complete { rq, .. } => {
                if let Some(raw) = open.remove(&rq.0) {
                    done.push((raw, Some(at)));
                }
            }
            _ => {}
        }
    }
    done.extend(open.into_values().map(|raw| (raw, None)));
    let clock = |time: Option<u64>| time.map_or(-1, |time| time.saturating_sub(begin) as i64);
    let mut expected: Vec<[i64; 7]> = done
        .iter()
        .map(|(raw, c)| {
            let [q, g, i, d, c] = [Some(raw.q), Some(raw.g), raw.i, raw.d, *c].map(clock);
            [q, g, i, d, c, i64::from(raw.bios), i64::from(if raw.d.is_some() { raw.sectors } else { 0 })]
        })
        .collect();
    let rows = &timeline.requests;
    let mut found: Vec<[i64; 7]> = (0..rows.q.len())
        .map(|nr| {
            let sectors = if rows.d[nr] < 0 { 0 } else { i64::from(rows.sectors[nr]) };
            [rows.q[nr], rows.g[nr], rows.i[nr], rows.d[nr], rows.c[nr], i64::from(rows.bios[nr]), sectors]
        })
        .collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected, "{what}");
}

/// The fate of every page that a window has brought, page by page.
fn check_windows(events: &[Event], timeline: &Timeline, what: &str) {
    let mut calls: HashMap<CallId, (Op, FileId, u64, u64)> = HashMap::new();
    let mut deciding: HashMap<CallId, usize> = HashMap::new();
    let mut came_with: HashMap<(u32, u64), usize> = HashMap::new();
    let mut fate: Vec<[u64; 3]> = Vec::new();
    let mut bounds: Vec<(u32, u64, u64)> = Vec::new();
    for event in events {
        let mut asked: Vec<(u32, u64)> = Vec::new();
        match event.what {
            What::CallStart { op, file, offset, len_bytes } => {
                let end = (offset + u64::from(len_bytes.max(1))).div_ceil(PAGE_BYTES);
                calls.insert(event.call, (op, file, offset / PAGE_BYTES, end));
                if op == Op::Read {
                    asked.extend((offset / PAGE_BYTES..end).map(|page| (file.0, page)));
                }
            }
            What::CallEnd { .. } => {
                deciding.remove(&event.call);
            }
            What::Hit { file, page, nr_pages } => {
                asked.extend((page.0..page.0 + u64::from(nr_pages)).map(|page| (file.0, page)));
            }
            What::Fault { file, page, .. } => asked.push((file.0, page.0)),
            What::RaWindow { file, start, nr_pages, .. } => {
                deciding.insert(event.call, fate.len());
                bounds.push((file.0, start.0, start.0 + u64::from(nr_pages)));
                fate.push([0; 3]);
            }
            What::PageAdd { file, page, nr_pages } if calls.contains_key(&event.call) => {
                let Some(window) = deciding.get(&event.call) else { continue };
                let (of, first, end) = bounds[*window];
                let (_, own, from, to) = calls[&event.call];
                for page in page.0..page.0 + u64::from(nr_pages) {
                    if file.0 == of && (first..end).contains(&page) {
                        fate[*window][1] += 1;
                        came_with.insert((of, page), *window);
                        if own.0 == of && (from..to).contains(&page) {
                            asked.push((of, page));
                        }
                    }
                }
            }
            What::PageRemove { file, page, nr_pages, .. } => {
                for page in page.0..page.0 + u64::from(nr_pages) {
                    if let Some(window) = came_with.remove(&(file.0, page)) {
                        fate[window][1] -= 1;
                        fate[window][2] += 1;
                    }
                }
            }
            _ => {}
        }
        for place in asked {
            if let Some(window) = came_with.remove(&place) {
                fate[window][1] -= 1;
                fate[window][0] += 1;
            }
        }
    }
    let rows = &timeline.windows;
    let found: Vec<[u64; 3]> =
        (0..rows.at.len()).map(|nr| [rows.used[nr], rows.unused[nr], rows.thrashed[nr]]).collect();
    assert_eq!(found, fate, "{what}");
}

fn check_map(events: &[Event], survey: &Survey, what: &str) {
    // Of each page: found first, missed first, read ahead, brought by others.
    let mut pages: BTreeMap<(u32, u64), [bool; 4]> = BTreeMap::new();
    let mut gone: BTreeSet<(u32, u64)> = BTreeSet::new();
    let mut calls: HashMap<CallId, (Op, FileId, u64, u64)> = HashMap::new();
    for event in events {
        let call = calls.get(&event.call).copied();
        match event.what {
            What::CallStart { op, file, offset, len_bytes } => {
                let end = (offset + u64::from(len_bytes.max(1))).div_ceil(PAGE_BYTES);
                calls.insert(event.call, (op, file, offset / PAGE_BYTES, end));
                // What was read ahead and is still there is used.
                for page in (offset / PAGE_BYTES..end).filter(|page| op == Op::Read && !gone.contains(&(file.0, *page)))
                {
                    if let Some(state) = pages.get_mut(&(file.0, page)) {
                        state[0] |= state[2];
                    }
                }
            }
            What::PageRemove { file, page, nr_pages, .. } => {
                gone.extend((page.0..page.0 + u64::from(nr_pages)).map(|page| (file.0, page)));
            }
            What::Hit { file, page, nr_pages } if call.is_some() => {
                for page in page.0..page.0 + u64::from(nr_pages) {
                    pages.entry((file.0, page)).or_default()[0] = true;
                }
            }
            What::Miss { file, page } if call.is_some() => {
                let state = pages.entry((file.0, page.0)).or_default();
                state[1] |= !state[0];
            }
            What::PageAdd { file, page, nr_pages } => {
                for page in page.0..page.0 + u64::from(nr_pages) {
                    let state = pages.entry((file.0, page)).or_default();
                    match call {
                        None => state[3] = true,
                        Some((op, own, from, to)) => {
                            let ahead = op == Op::Read && own == file && !(from..to).contains(&page);
                            state[2] |= ahead;
                            if ahead {
                                gone.remove(&(file.0, page));
                            }
                        }
                    }
                }
            }
            _ => {}
        }
    }
    for file in survey.files() {
        let nr_pages = survey.pages_of(file);
        let state = |page: u64| match pages.get(&(file, page)) {
            Some([_, _, _, true]) => 4,
            Some([_, true, ..]) => 2,
            Some([true, ..]) => 1,
            Some([_, _, true, _]) => 3,
            _ => 0,
        };
        let strips = survey.strips(file, nr_pages, u64::MAX, "others");
        assert_eq!(strips.state, (0..nr_pages).map(state).collect::<Vec<u8>>(), "{what}, file {file}");
        let by: Vec<bool> = strips.by.iter().map(Option::is_some).collect();
        assert_eq!(by, (0..nr_pages).map(|page| state(page) == 4).collect::<Vec<_>>(), "{what}");
        // Few strips have the state of most touched pages.
        let few = survey.strips(file, nr_pages, 7, "others");
        assert!(few.state.len() <= 7);
        for (nr, shown) in few.state.iter().enumerate() {
            let inside = (nr as u64 * few.strip_pages)..((nr as u64 + 1) * few.strip_pages).min(nr_pages);
            let count = |wanted: u8| inside.clone().filter(|page| state(*page) == wanted).count();
            assert!((1..5).all(|other| count(other) <= count(*shown) || *shown == 0 && count(other) == 0), "{what}");
        }
    }
}

fn check_calls(timeline: &Timeline, what: &str) {
    let calls = &timeline.calls;
    let mut ends: HashMap<u16, i64> = HashMap::new();
    for nr in 0..calls.start.len() {
        let lane = ends.entry(calls.thread[nr]).or_insert(i64::MIN);
        assert!(calls.start[nr] >= *lane && calls.start[nr] <= calls.end[nr], "{what}: calls of a lane overlap");
        *lane = calls.end[nr];
    }
    let rows = timeline.pages.call.iter().chain(&timeline.windows.call).chain(&timeline.plugs.call);
    assert!(rows.chain(&timeline.requests.call).all(|call| *call < calls.start.len() as i64), "{what}");
    let nr_pages = |nr: usize| timeline.requests.nr[nr] * 8;
    for nr in 0..timeline.requests.q.len() {
        assert!(nr_pages(nr) <= i64::from(timeline.requests.sectors[nr]) + 7, "{what}: more pages than sectors");
    }
}

#[test]
fn timelines_count_what_the_events_say() {
    let mut rng = Rng::stream(3, "jobs of reports");
    let (mut windows, mut united, mut plugged) = (0, 0, 0);
    for _ in 0..24 {
        let command = drawn(&mut rng);
        let events = events_of(&command);
        let survey = surveyed(&events);
        let timeline = built(&events, &survey, whole());
        check_overview(&events, &survey, &command);
        check_requests(&events, &timeline, survey.begins(), &command);
        check_windows(&events, &timeline, &command);
        check_map(&events, &survey, &command);
        check_calls(&timeline, &command);
        windows += timeline.windows.at.len();
        united += timeline.requests.bios.iter().filter(|bios| **bios > 1).count();
        plugged += timeline.plugs.start.len();
        let unplugs = events.iter().filter(|event| matches!(event.what, What::Unplug { .. })).count();
        assert!(timeline.plugs.start.len() >= unplugs, "{command}");
        assert_eq!(first_difference(&survey, &survey), None, "{command}");
    }
    // Otherwise nothing was tested.
    assert!(windows > 100 && united > 10 && plugged > 100, "{windows} {united} {plugged}");
}

/// Traces of running kernels have no hits: a page that was read ahead is used when a call asks for it.
#[test]
fn pages_that_were_read_ahead_and_asked_for_are_used() {
    let mut events = events_of("run dd if=/dev/sda bs=64k count=64 --on sim:linux-4.4 --disk sata-2010");
    events.retain(|event| !matches!(event.what, What::Hit { .. }));
    let survey = surveyed(&events);
    let nr_pages = survey.pages_of(0);
    let state = survey.strips(0, nr_pages, u64::MAX, "others").state;
    assert!(state.iter().filter(|state| **state == 1).count() > 900, "{state:?}");
    assert!(!state[..1024].contains(&3), "read, and called never used: {state:?}");
}

/// A set of runs with one mode is one side; two sets with a common label are not.
#[test]
fn one_set_of_runs_is_one_side() {
    let sides = sides("sim:linux-4.4", "sim:linux-4.4", "dd if=/dev/sda bs=64k count=40", 3);
    let explanation = explain::explain(&sides[0].side, &sides[1].side, None);
    let data = make(&sides, &explanation, &Around::default()).expect("a report").data;
    assert_eq!(data["sides"].as_array().map(Vec::len), Some(1));
    assert_eq!((&data["headline"]["verdict"], &data["explanation"]), (&json!("none"), &Value::Null));
    assert_eq!(
        data["headline"]["first"]["title"].as_str().map(|title| &title[..26]),
        Some("Reading 2.5 MiB with dd ta")
    );
}

/// Two groups of runs are two modes, whatever they are compared with.
#[test]
fn modes_of_runs_are_told() {
    let two: Vec<f64> = (0..20).map(|nr| if nr % 3 == 0 { 40.0 } else { 10.0 } + f64::from(nr) * 0.01).collect();
    let found = run_modes(&two);
    assert_eq!(found.iter().map(|mode| mode.runs).collect::<Vec<_>>(), [13, 7]);
    assert!(found[0].centre_ns < 11.0 && found[1].centre_ns > 39.0, "{found:?}");
    assert!(run_modes(&two[..1]).is_empty() && run_modes(&[5.0; 12]).is_empty());
}

/// A part shows the same as the whole run for that time.
#[test]
fn parts_are_cut_from_the_whole() {
    let mut rng = Rng::stream(4, "jobs of reports");
    let mut cut = 0;
    for _ in 0..12 {
        let command = drawn(&mut rng);
        let events = events_of(&command);
        let survey = surveyed(&events);
        let all = built(&events, &survey, whole());
        let place = rng.below(survey.calls.len() as u64) as usize;
        let spans = parts(&survey, Some(place), &[(survey.calls.len() / 2, "typical")], 32);
        assert!(spans.windows(2).all(|two| two[0].to <= two[1].from), "{command}: {spans:?}");
        assert!(spans.iter().all(|span| span.from < span.to) && spans[0].from == survey.begins());
        let some = built(&events, &survey, spans.clone());
        let begin = survey.begins();
        let span = |span: &Span| ((span.from - begin) as i64, (span.to - begin) as i64);
        let inside = |from: i64, to: i64| spans.iter().map(span).any(|(a, b)| from < b && to >= a);
        let rows = |of: &Timeline, all: bool| {
            let end = |nr: usize| if of.requests.c[nr] < 0 { i64::MAX } else { of.requests.c[nr] };
            let shown = |nr: &usize| !all || inside(of.requests.q[*nr], end(*nr));
            let row = |nr: usize| (of.requests.q[nr], of.requests.c[nr], of.requests.sector[nr], of.requests.depth[nr]);
            (0..of.requests.q.len()).filter(shown).map(row).collect::<Vec<_>>()
        };
        assert_eq!(rows(&some, false), rows(&all, true), "{command}: {spans:?}");
        let windows = |of: &Timeline, all: bool| {
            let of = &of.windows;
            let shown = |nr: &usize| !all || inside(of.at[*nr], of.at[*nr]);
            let row = |nr: usize| (of.at[nr], of.first[nr], of.nr[nr], of.used[nr], of.unused[nr], of.thrashed[nr]);
            (0..of.at.len()).filter(shown).map(row).collect::<Vec<_>>()
        };
        assert_eq!(windows(&some, false), windows(&all, true), "{command}");
        assert_eq!(some.overview, all.overview);
        check_calls(&some, &command);
        cut += usize::from(some.requests.q.len() + some.pages.at.len() < all.requests.q.len() + all.pages.at.len());
    }
    assert!(cut > 6, "{cut} runs were cut");
}

/// Calls before the first difference had the same windows, bios and requests on both sides, and that one had not.
#[test]
fn the_first_difference_is_the_first() {
    let done = |events: &[Event], id: u32| {
        let mut owners: HashMap<u32, CallId> = HashMap::new();
        let mut all: Vec<(u8, u64)> = Vec::new();
        for event in events {
            let mine = event.call.0 == id;
            match event.what {
                What::RaWindow { kind, nr_pages, .. } if mine => all.push((1 + kind as u8, u64::from(nr_pages))),
                What::BioQueue { dir, nr_sectors, .. } if mine => all.push((10 + dir as u8, u64::from(nr_sectors))),
                What::GetRequest { rq } => {
                    owners.insert(rq.0, event.call);
                }
                What::Issue { rq, dir, nr_sectors, .. } if owners.get(&rq.0).is_some_and(|owner| owner.0 == id) => {
                    all.push((20 + (dir == Dir::Write) as u8, u64::from(nr_sectors)));
                }
                _ => {}
            }
        }
        all.sort_unstable();
        all
    };
    for (a, b, there) in [
        (
            "dd if=/dev/sda bs=256k count=40 --on sim:linux-4.4",
            "dd if=/dev/sda bs=256k count=40 --on sim:linux-4.4,read_ahead_kb=512",
            true,
        ),
        (
            "dd if=/dev/sda bs=4k count=100 --on sim:linux-2.6.38",
            "dd if=/dev/sda bs=4k count=100 --on sim:linux-6.18",
            true,
        ),
        (
            "dd if=/dev/sda bs=4k count=100 --on sim:linux-4.4",
            "dd if=/dev/sda bs=4k count=100 --on sim:linux-4.4 --disk nvme",
            false,
        ),
        ("dd if=/dev/sda bs=4k count=3 --on sim:linux-4.4", "dd of=/dev/sda bs=8k count=3 --on sim:linux-4.4", false),
    ] {
        let [a_events, b_events] = [a, b].map(|job| events_of(&format!("run {job}")));
        let (mine, theirs) = (surveyed(&a_events), surveyed(&b_events));
        let found = first_difference(&mine, &theirs);
        assert_eq!(found.is_some(), there, "{a} | {b}");
        let Some((x, y)) = found else { continue };
        assert_ne!(done(&a_events, mine.calls[x].id), done(&b_events, theirs.calls[y].id), "{a} | {b}");
        for (mine, theirs) in mine.calls[..x].iter().zip(&theirs.calls[..y]) {
            assert_eq!(done(&a_events, mine.id), done(&b_events, theirs.id), "{a} | {b}: call {}", mine.id);
        }
    }
}

/// However much of a run was kept, it does not differ from itself; and differences between the kept parts of two runs
/// do not come before the first difference of both as wholes.
#[test]
fn a_cut_is_no_difference() {
    let mut rng = Rng::stream(4, "cuts");
    for _ in 0..12 {
        let job = drawn(&mut rng);
        let events = events_of(&job);
        let other = events_of(&job.replace(" --disk ", ",read_ahead_kb=32 --disk "));
        let whole = first_difference(&surveyed(&events), &surveyed(&other));
        for _ in 0..12 {
            let mut part = |events: &[Event]| surveyed(&events[..rng.below(events.len() as u64 + 1) as usize]);
            let [a, b, c] = [part(&events), part(&events), part(&other)];
            assert_eq!(first_difference(&a, &b), None, "{job}: {} and {} events", a.nr_events, b.nr_events);
            if let Some(cut) = first_difference(&a, &c) {
                assert!(whole.is_some_and(|whole| whole <= cut), "{job}: {cut:?} comes before {whole:?}");
            }
        }
    }
}

fn sides(a: &str, b: &str, job: &str, runs: u32) -> [Gathered; 2] {
    let job = job.split_whitespace().map(str::to_owned).collect();
    let names = vec![a.to_owned(), b.to_owned()];
    let asked = ExplainRequest { names, job, runs: Some(runs), report: true, ..ExplainRequest::default() };
    gather(&asked, &|| Err(StoreError::NoPlace), &|_, _| {}).unwrap_or_else(|problems| panic!("{}", problems.render()))
}

#[test]
fn a_report_is_the_same_every_time_and_as_small_as_asked() {
    let sides = sides("sim:linux-2.6.38", "sim:linux-2.6.39", "dd if=/dev/sda bs=1M count=60", 2);
    let explanation = explain::explain(&sides[0].side, &sides[1].side, None);
    let report = make(&sides, &explanation, &Around::default()).expect("a report");
    assert_eq!(html::unpack(&report.html).as_ref(), Some(&report.data));
    let again = make(&sides, &explanation, &Around::default()).expect("a report");
    assert!(again.html == report.html, "other bytes from the same input");
    let seeds = report.data["sides"].as_array().expect("sides").iter().map(|side| &side["timeline"]["seed"]);
    assert_eq!(seeds.clone().next(), seeds.clone().next_back(), "both sides show the same seed");
    // What an incident adds counts as well, and is packed with the rest.
    let mut rng = Rng::stream(9, "words");
    let words: String = (0..20_000).map(|_| char::from(b'a' + rng.below(26) as u8)).collect();
    let around = Around { history: None, incident: Some(json!({ "unexplained": words })) };
    let most = html::empty().len() + (report.html.len() - html::empty().len()) * 2 / 3;
    let smaller = make_within(&sides, &explanation, &around, most).expect("a report");
    assert!(smaller.html.len() <= most, "{} bytes are not {most}", smaller.html.len());
    let rows = |report: &Report| report.data["sides"][0]["timeline"]["requests"]["q"].as_array().map(Vec::len);
    assert!(rows(&smaller) < rows(&report) && rows(&smaller) > Some(0));
}

/// The base of the pyramid against a recount of the events.
#[test]
fn a_pyramid_has_all_of_the_run() {
    let mut rng = Rng::stream(5, "pyramid");
    for _ in 0..24 {
        let job = drawn(&mut rng);
        let events = events_of(&job);
        let survey = surveyed(&events);
        let mut base = Base::new(&survey, MOST_BINS);
        events.iter().for_each(|event| base.event(event));
        let of = base.finish();
        let bins = of.starved.len();
        for level in [&of.calls, &of.plug, &of.queue, &of.device] {
            assert_eq!([level.least.len(), level.most.len(), level.share.len()], [bins; 3], "{job}");
            assert!(level.least.iter().zip(&level.most).all(|(least, most)| least <= most), "{job}");
        }
        let run = survey.begins()..survey.ends() + 1;
        let inside = || events.iter().zip(depths(&events)).filter(|(event, _)| run.contains(&event.at.0));
        let sum = |of: &dyn Fn(&What) -> u32| inside().map(|(event, _)| of(&event.what)).sum::<u32>();
        let added = sum(&|what| if let What::PageAdd { nr_pages, .. } = what { *nr_pages } else { 0 });
        let windows = sum(&|what| u32::from(matches!(what, What::RaWindow { .. })));
        assert_eq!([of.pages.added.iter().sum::<u32>(), of.windows.nr.iter().sum()], [added, windows], "{job}");
        let deepest = inside().map(|(_, depth)| depth).max();
        assert_eq!(of.device.most.iter().max().copied(), deepest, "{job}");
        // Every depth is within its bin.
        for (event, depth) in inside() {
            let bin = ((event.at.0 - run.start) / of.bin_ns) as usize;
            assert!(depth <= of.device.most[bin], "{job}: {depth} at {}", event.at.0);
        }
        // Shares are rounded up to thousandths of a bin.
        let stalled: u64 = of.starved.iter().map(|share| u64::from(*share) * of.bin_ns).sum::<u64>() / 1000;
        let mut life = Lifecycle::<()>::default();
        let (mut known, mut last) = (0, run.start);
        for event in &events {
            let at = event.at.0.clamp(run.start, run.end);
            known += if life.queued > 0 && life.depth == 0 { at - last } else { 0 };
            last = at;
            life.event(event);
        }
        assert!(
            (known..=known + bins as u64 * (of.bin_ns / 1000 + 1)).contains(&stalled),
            "{job}: {stalled} for {known}"
        );
    }
}

/// Residency against a set of pages.
#[test]
fn pages_in_the_cache_are_those_that_were_added_or_found() {
    let mut rng = Rng::stream(6, "residency");
    for _ in 0..24 {
        let job = drawn(&mut rng);
        let events = events_of(&job);
        let survey = surveyed(&events);
        let mut residency = Residency::new(&survey);
        events.iter().for_each(|event| residency.event(event));
        let middle = u64::midpoint(survey.begins(), survey.ends());
        // Backwards: what is found or removed without an addition before has been there.
        let mut now: BTreeSet<(u32, u64)> = BTreeSet::new();
        let mut known: BTreeSet<(u32, u64)> = BTreeSet::new();
        let (mut begin, mut half) = (BTreeSet::new(), None);
        for event in &events {
            if half.is_none() && event.at.0 > middle {
                half = Some(now.clone());
            }
            let (file, first, nr, kind) = match event.what {
                What::PageAdd { file, page, nr_pages } => (file.0, page.0, nr_pages, 0),
                What::PageRemove { file, page, nr_pages, .. } => (file.0, page.0, nr_pages, 1),
                What::Hit { file, page, nr_pages } => (file.0, page.0, nr_pages, 2),
                What::Miss { file, page } => (file.0, page.0, 1, 3),
                _ => continue,
            };
            for page in (first..first + u64::from(nr)).map(|page| (file, page)) {
                let old = known.insert(page) && (kind == 1 || kind == 2);
                if old {
                    begin.insert(page);
                    now.insert(page);
                    half.iter_mut().for_each(|half| {
                        half.insert(page);
                    });
                }
                match kind {
                    0 => drop(now.insert(page)),
                    1 => drop(now.remove(&page)),
                    _ => {}
                }
            }
        }
        let half = half.unwrap_or_else(|| now.clone());
        let files: BTreeSet<u32> = known.iter().map(|(file, _)| *file).collect();
        for file in files {
            let pages = survey.pages_of(file) as usize;
            let found = residency.strips(file, 1, pages);
            for (found, expected) in found.iter().zip([&begin, &half, &now]) {
                let expected: Vec<u32> =
                    (0..pages as u64).map(|page| 1000 * u32::from(expected.contains(&(file, page)))).collect();
                assert_eq!(*found, expected, "{job}: file {file}");
            }
        }
    }
}

/// A part that nothing is kept of is had when it is asked for, and the others stay.
#[test]
fn any_moment_can_be_had() {
    let sides = sides("sim:linux-2.6.38", "sim:linux-2.6.39", "dd if=/dev/sda bs=1M count=2500", 1);
    let shown = Shown::of(&sides).expect("a run");
    let part = |value: &Value| (value["from_ns"].as_u64().expect("a time"), value["to_ns"].as_u64().expect("a time"));
    for side in 0..2 {
        let kept =
            json!(shown.timeline(&sides[side], side, Detail { events: EVENTS, bins: 1, asked: None }).expect("it"));
        let parts: Vec<(u64, u64)> = kept["detail"].as_array().expect("parts").iter().map(part).collect();
        let (from, to) =
            parts.windows(2).map(|two| (two[0].1, two[1].0)).max_by_key(|(from, to)| to - from).expect("a gap");
        let middle = u64::midpoint(from, to);
        let asked = shown.slice(&sides, side, middle, middle + 20_000_000).expect("a slice");
        let all = asked["detail"].as_array().expect("parts");
        assert!(all.iter().map(part).any(|(from, to)| from <= middle && middle + 20_000_000 <= to), "{all:?}");
        let begun = |value: &Value| {
            let starts = value["calls"]["start"].as_array().expect("calls").iter().filter_map(Value::as_u64);
            starts.filter(|at| (middle..middle + 20_000_000).contains(at)).count()
        };
        let whole = shown.surveys[side].calls.iter().map(|call| call.start - shown.surveys[side].begins());
        let whole = whole.filter(|at| (middle..middle + 20_000_000).contains(at)).count();
        assert_eq!((begun(&kept), begun(&asked)), (0, whole));
        assert!(whole > 0);
    }
}

#[test]
fn the_run_that_is_shown_is_one_that_both_sides_have() {
    let mut sides = sides(
        "sim:linux-4.4",
        "sim:linux-6.18",
        "sysbench fileio --file-test-mode=rndrd --file-num=1 \
        --file-total-size=4M --events=50 run",
        5,
    );
    let [a, b] = chosen(&sides);
    assert_eq!(sides[0].seen[a].seed, sides[1].seen[b].seed);
    // No seed in common: the median of each.
    sides[1].seen.iter_mut().for_each(|seen| seen.seed += 1000);
    for (side, run) in sides.iter().zip(chosen(&sides)) {
        let mut times: Vec<f64> = side.side.runs.iter().map(time_per_operation).collect();
        let shown = times[run];
        times.sort_by(f64::total_cmp);
        assert_eq!(shown, times[2]);
    }
}

/// A driver gives a read back at 60 and has it again at 100; then comes an ordinary one. The first time the kernel puts
/// it straight back in line, the second time through the elevator. Every listener sees the same.
#[test]
fn a_request_that_is_issued_again_is_one_command_for_everybody() {
    for reinserted in [false, true] {
        let read = |sector| Extent { sector: Sector(sector), bytes: 4096, rwbs: Rwbs::READ, ..Extent::default() };
        let call = || Seen::CallStart { op: Op::Read, fd: 3, offset: Some(0), len_bytes: 4096 };
        let (end, error) = (Seen::CallEnd { op: Op::Read, result: 4096 }, 0);
        let [a, b] = [800, 1600].map(read);
        let mut records = vec![(0, call()), (10, Seen::Queue(a)), (20, Seen::GetRequest(a)), (30, Seen::Insert(a))];
        records.extend([(50, Seen::Issue(a)), (60, Seen::Requeue(a))]);
        records.extend(reinserted.then_some((70, Seen::Insert(a))));
        records.extend([(100, Seen::Issue(a)), (180, Seen::Complete { extent: a, error }), (200, end.clone())]);
        records.extend([(210, call()), (215, Seen::Queue(b)), (215, Seen::GetRequest(b)), (215, Seen::Insert(b))]);
        records.extend([(220, Seen::Issue(b)), (260, Seen::Complete { extent: b, error }), (270, end)]);
        let record = |(at, seen)| Record { at: Nanos(at), cpu: 0, pid: 5, seen };
        let joined =
            join(&Trace { records: records.into_iter().map(record).collect(), ..Trace::default() }, &Who::default());
        let events = &joined.events;
        let issues = events.iter().filter(|event| matches!(event.what, What::Issue { .. })).count();
        assert_eq!((issues, joined.requests[0].issued), (3, Some(Nanos(100))));

        // Commands, at the device (80 + 40), with the elevator (20 + 5), device in use (130 + 40), most at once.
        let expected = (2, 120, 25, 170, 1);
        let mut layers = LayerObserver::default();
        let mut tally = Tally::default();
        events.iter().for_each(|event| {
            layers.event(event);
            tally.event(event);
        });
        let of = layers.finish(Nanos(270));
        let waits = (of.phases.d2c.sum(), of.phases.i2d.sum(), u128::from(of.device_busy.0));
        assert_eq!((of.reads.issued, waits.0, waits.1, waits.2, of.depth.max()), (2, 120, 25, 170, Some(1)));
        assert_eq!((of.reads.completed, of.reads.by_pages[1], of.phases.g2i.count(), of.seeks), (2, 2, 2, 2));

        let digest = explain::digest::Digest::of(events);
        let of = &digest.commands;
        let at_device = of.classes.values().map(|took| took.sum() as u64).sum::<u64>();
        assert_eq!((of.issued[0], at_device, of.i2d[0].sum() as u64, of.busy, of.deepest), expected);
        let time = |layer| digest.time.of(layer) as u64;
        use explain::digest::Layer;
        // The bio waits 10 for its request, and that is no plug.
        assert_eq!([Layer::Plug, Layer::Elevator, Layer::Device].map(time), [10, 35, 170]);

        let survey = surveyed(events);
        let rows = built(events, &survey, whole()).requests;
        let took: i64 = rows.c.iter().zip(&rows.d).map(|(c, d)| c - d).sum();
        assert_eq!((rows.q.len(), took, &rows.d, &rows.i), (2, 120, &vec![100, 220], &vec![30, 215]));
        assert_eq!(rows.depth, [1, 1]);
        let view = survey.overview();
        assert_eq!((view.read_bytes.iter().sum::<u64>(), view.depth_max.iter().max()), (8192, Some(&1)));
        assert_eq!(survey.calls[0].done, survey.calls[1].done, "both had one bio and one command");

        assert_eq!(tally.sectors[0], BTreeMap::from([(8, 2)]));
        let of = crate::on_kernel::requests::Requests::of(events);
        assert_eq!((of.data_reads, of.data_bytes, of.busy_ns), (2, 8192, 170));
    }
}

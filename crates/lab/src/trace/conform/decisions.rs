//! Decision by decision: the state that the kernel had when it was asked, into the model; what the model makes of it,
//! against what the kernel did next.
//!
//! The kernel shows all of the state but where the window starts, and whether the program said that reads are random.
//! The first is where the last window with this size and tail started, of this descriptor if there is one. The cache is
//! as the trace says. So nothing is carried over from one decision to the next, and any number of tasks may read.
//!
//! Tasks that read the same file at the same time may add pages between another task's question and its answer. A
//! decision that does not match the cache as it was when the question was asked may match the cache as it was a little
//! later, or may have been made before and carried out after; any of these is right, because the trace does not tell
//! when between the two the kernel looked. What tasks with one descriptor do to its state under each other's hands
//! remains.

use std::collections::BTreeMap;

use iowhy_stack::origin::Entry;
use iowhy_stack::readahead::{Advice, Build, Readahead, Token};
use iowhy_stack::trace::RaInput;
use iowhy_stack::units::PageIndex;

use super::Tally;
use super::model::{Pages, Told, same_bios};
use super::recorded::{Hint, Line, Recorded, What};

/// Windows remembered for each descriptor: tasks that share one overtake each other.
const REMEMBERED: usize = 16;

/// The state of an open file as far as it must be remembered.
struct Open {
    ra: Box<dyn Readahead>,
    /// The last windows: start, size, tail. The latest is the last.
    windows: Vec<(u64, u32, u32)>,
}

/// Compares every decision.
pub(super) fn compare(entry: &'static Entry<Build>, recorded: &Recorded) -> Tally {
    let mut pages = Pages::new(recorded);
    let limits = iowhy_stack::readahead::Mapping::limits(&pages);
    let build = || Open { ra: (entry.build)(&entry.defaults(), &limits), windows: Vec::new() };
    let mut open: BTreeMap<i32, Open> = BTreeMap::new();
    let mut calls: BTreeMap<u32, i32> = BTreeMap::new();
    let mut all_windows: Vec<(u64, u32, u32)> = Vec::new();
    let mut tally = Tally::default();
    let mut advised = None;
    let single_threaded = recorded.single_threaded();
    for (at, line) in recorded.lines.iter().enumerate() {
        // io_uring's reads are no calls: they are taken for those of the descriptor that was advised about last.
        let nobody = advised.unwrap_or(-1);
        let fd = calls.get(&line.task).copied().unwrap_or(nobody);
        match line.what {
            What::Read { fd, .. } | What::Write { fd } => drop(calls.insert(line.task, fd)),
            What::End { .. } => drop(calls.remove(&line.task)),
            What::Add { .. } | What::Remove { .. } => pages.apply(line.what),
            What::Order { index, size, async_size, .. } => {
                let state = open.entry(fd).or_insert_with(build);
                for windows in [&mut state.windows, &mut all_windows] {
                    if windows.len() == REMEMBERED {
                        windows.remove(0);
                    }
                    windows.push((index, size, async_size));
                }
            }
            What::Advise { fd, hint, offset, len_bytes } => {
                calls.insert(line.task, fd);
                advised = Some(fd);
                let state = open.entry(fd).or_insert_with(build);
                let advice = match hint {
                    Hint::Normal => Advice::Normal,
                    Hint::Random => Advice::Random,
                    Hint::Sequential => Advice::Sequential,
                    Hint::WillNeed => Advice::WillNeed { offset, len_bytes },
                    Hint::DontNeed | Hint::Other => continue,
                };
                let own = answer(recorded, at);
                let Open { ra, .. } = state;
                let mut ask = |pages: &mut Pages| {
                    ra.advise(pages, advice);
                    pages.take()
                };
                if hint == Hint::WillNeed {
                    judge(&mut tally, recorded, at, &own, &mut pages, &mut ask);
                } else {
                    ask(&mut pages);
                }
            }
            What::Sync(input) | What::Async(input) => {
                let state = open.entry(fd).or_insert_with(build);
                let same = |window: &&(u64, u32, u32)| (window.1, window.2) == (input.size, input.async_size);
                let start = state.windows.iter().rfind(same).or_else(|| all_windows.iter().rfind(same));
                let start = start.map_or(0, |window| window.0);
                let miss = matches!(line.what, What::Sync(_));
                let own = answer(recorded, at);
                // Another task with the same descriptor may have moved the window without a trace of it until later.
                let mut starts = vec![start];
                if !single_threaded && !miss {
                    starts.extend(state.windows.iter().rev().map(|window| window.0));
                    starts.extend(own.others.iter().filter_map(|what| match *what {
                        What::Order { index, .. } => Some(index),
                        _ => None,
                    }));
                }
                let ra = &mut state.ra;
                let mut best: Option<Tally> = None;
                for start in starts {
                    let mut ask = |pages: &mut Pages| {
                        if !ra.restore(Some(PageIndex(start)), &input) {
                            return Told::default();
                        }
                        decide(ra.as_mut(), pages, miss, &input)
                    };
                    let mut trial = Tally::default();
                    judge(&mut trial, recorded, at, &own, &mut pages, &mut ask);
                    let fits = trial.all_matched();
                    if fits || best.is_none() {
                        best = Some(trial);
                    }
                    if fits {
                        break;
                    }
                }
                best.into_iter().for_each(|trial| tally.merge(trial));
            }
            What::Unbounded { .. } | What::Bio { .. } | What::Get { .. } => {}
        }
    }
    tally
}

fn decide(ra: &mut dyn Readahead, pages: &mut Pages, miss: bool, input: &RaInput) -> Told {
    let (page, nr) = (PageIndex(input.index), input.req_count);
    if miss {
        ra.on_miss(Token::default(), pages, page, nr);
    } else {
        ra.on_marker(Token::default(), pages, page, nr);
    }
    pages.take()
}

/// Lines of other tasks after an answer that may have happened before its end: a folio is in the cache a moment before
/// the trace says so.
const LATE: usize = 32;

/// Lines of the same task after line `at` that belong to the decision made there, and what others did until a little
/// later.
struct Answer {
    lines: Vec<Line>,
    others: Vec<What>,
}

fn answer(recorded: &Recorded, at: usize) -> Answer {
    let task = recorded.lines[at].task;
    let mut lines = Vec::new();
    let mut end = at + 1;
    for (nr, line) in recorded.lines.iter().enumerate().skip(at + 1).filter(|(_, line)| line.task == task) {
        match line.what {
            What::Order { .. } | What::Unbounded { .. } | What::Add { .. } | What::Bio { .. } => lines.push(*line),
            What::Remove { .. } => {}
            _ => break,
        }
        end = nr + 1;
    }
    let until = (end + LATE).min(recorded.lines.len());
    let others = recorded.lines[at + 1..until].iter().filter(|line| line.task != task).map(|line| line.what);
    let shown = |what: &What| matches!(what, What::Add { .. } | What::Remove { .. } | What::Order { .. });
    Answer { lines, others: others.filter(shown).collect() }
}

/// Asks the model, and counts what matches.
fn judge(
    tally: &mut Tally,
    recorded: &Recorded,
    at: usize,
    own: &Answer,
    pages: &mut Pages,
    ask: &mut dyn FnMut(&mut Pages) -> Told,
) {
    let told = ask(pages);
    pages.undo(&told);
    let mut trial = Tally::default();
    trial.decision(&recorded.lines[at], &told.lines, &own.lines);
    let mut bios = same_bios(&told, &own.lines);
    if !trial.all_matched() {
        // Others may have been at work on the cache meanwhile.
        let changes = |what: &&What| matches!(what, What::Add { .. } | What::Remove { .. });
        let others: Vec<What> = own.others.iter().filter(changes).copied().collect();
        let attempts = (1..=others.len()).flat_map(|n| [(n, false), (n, true)]);
        for (n, meanwhile) in attempts {
            let changed = &others[..n];
            if meanwhile {
                pages.others_meanwhile(changed);
            } else {
                changed.iter().for_each(|what| pages.apply(*what));
            }
            let told = ask(pages);
            pages.undo(&told);
            if !meanwhile {
                changed.iter().rev().for_each(|what| pages.apply(opposite(*what)));
            }
            let mut second = Tally::default();
            second.decision(&recorded.lines[at], &told.lines, &own.lines);
            if second.all_matched() {
                (trial, bios) = (second, same_bios(&told, &own.lines));
                break;
            }
        }
    }
    (trial.bios, trial.bios_matched) = bios;
    tally.merge(trial);
}

/// What takes a change of the cache back.
fn opposite(what: What) -> What {
    match what {
        What::Add { index, order } => What::Remove { index, order },
        What::Remove { index, order } => What::Add { index, order },
        what => what,
    }
}

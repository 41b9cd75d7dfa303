//! Decision by decision: the state that the kernel had when it was asked, into the model; the model's answer, against
//! the kernel's next step.
//!
//! The kernel shows all of the state but the start of the window, and whether the program has advised random reads. The
//! first is where the last window with this size and tail started, of this descriptor if there is one. The cache has
//! the trace's contents. So nothing is carried over from one decision to the next, and any number of tasks may read.
//!
//! Reads of io_uring are not calls, so their descriptors are unknown. If the program has advised any task's reads as
//! random, that of a task follows from the first decision that only this explains.
//!
//! A fault that finds no page is a question without a state ([`faults`] has the possible answers).
//!
//! Tasks that read the same file at the same time change the cache, and with one descriptor its state, between another
//! task's question and its answer. Their effect is in the trace; the exact moment when the kernel looked is not. So a
//! decision that does not match the cache at the moment of the question is asked again:
//!
//! ```text
//! cache     with the first n of the folios that others added or removed until shortly after the answer; those
//!           of the rest that the answer does not overlap may have come after the decision, before its pages
//! state     with fields of the state that another task with the same descriptor wrote meanwhile: those of windows
//!           that the trace shows, and the previous position where a read ended. The rest of a window whose
//!           folios ended early is computed from the state as it is by then, so that may be the other's, too
//! ```
//! No value goes into the model that the trace does not show. How many matched only with another task's state is
//! counted apart ([`Tally::raced`]). The remainder are values that were read half-way between two writes.

use std::collections::BTreeMap;
use std::ops::Range;

use iowhy_stack::event::RaKind;
use iowhy_stack::origin::Entry;
use iowhy_stack::readahead::{Advice, Build, FaultWindow, Readahead, Token};
use iowhy_stack::trace::RaInput;
use iowhy_stack::units::PageIndex;

use super::Tally;
use super::faults::{self, Faults};
use super::model::{Decisions, Pages, same_bios};
use iowhy_trace::recorded::{Hint, Line, Recorded, What};

/// Windows remembered for each descriptor: tasks that share one overtake each other.
const REMEMBERED: usize = 16;

/// The state of an open file as far as it must be remembered.
struct Open {
    ra: Box<dyn Readahead>,
    /// The last windows: start, size, tail. The latest is the last.
    windows: Vec<(u64, u32, u32)>,
}

/// Whose open file a line is about.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// That of a call.
    Descriptor(i32),
    /// A task's activity outside of calls, for its mapping or by io_uring. It has an open file of its own as far as is
    /// known.
    Task(u32),
}

/// Compares every decision.
pub(super) fn compare(entry: &'static Entry<Build>, recorded: &Recorded) -> Tally {
    let mut pages = Pages::new(recorded);
    let limits = iowhy_stack::readahead::Mapping::limits(&pages);
    let build = || Open { ra: (entry.build)(&entry.defaults(), &limits), windows: Vec::new() };
    let mut open: BTreeMap<Owner, Open> = BTreeMap::new();
    let mut faults = Faults::new(entry, recorded);
    // Whether a task without calls in the events has advised random reads.
    let mut said_random: BTreeMap<u32, bool> = BTreeMap::new();
    let mut anything_random = false;
    let mut all_windows: Vec<(u64, u32, u32)> = Vec::new();
    let mut tally = Tally::default();
    let single_threaded = recorded.single_threaded();
    let decisions_shown = recorded.shows_decisions();
    let owners = owners(recorded);
    for (at, line) in recorded.lines.iter().enumerate() {
        let owner = owners[at];
        match line.what {
            What::Add { .. } | What::Remove { .. } => pages.apply(line.what),
            What::Order { index, size, async_size, .. } => {
                let state = open.entry(owner).or_insert_with(build);
                remember(&mut state.windows, (index, size, async_size));
                remember(&mut all_windows, (index, size, async_size));
            }
            What::Advise { hint, offset, len_bytes, .. } => {
                let state = open.entry(owner).or_insert_with(build);
                let advice = match hint {
                    Hint::Normal => Advice::Normal,
                    Hint::Random => Advice::Random,
                    Hint::Sequential => Advice::Sequential,
                    Hint::WillNeed => Advice::WillNeed { offset, len_bytes },
                    Hint::DontNeed | Hint::Other | Hint::Executable => continue,
                };
                anything_random |= hint == Hint::Random;
                let Open { ra, .. } = state;
                let mut ask = |pages: &mut Pages, _: &State| {
                    ra.advise(pages, advice);
                    pages.take()
                };
                if hint == Hint::WillNeed && decisions_shown {
                    let question =
                        Question { recorded, at, own: answer(recorded, at, false), states: vec![State::default()] };
                    tally.merge(question.judge(&mut pages, &mut ask));
                } else {
                    ask(&mut pages, &State::default());
                }
            }
            What::Fault { index } => {
                let own = answer(recorded, at, false);
                let Some(mut asked) = faults.asked(line.task, index, &own.lines, &pages) else { continue };
                let question = Question { recorded, at, own, states: vec![State::default()] };
                tally.merge(question.judge(&mut pages, &mut |pages, _| asked.ask(pages)));
            }
            What::MapAdvice { first, last, hint } => faults.said(line.task, first..last.saturating_add(1), hint),
            What::Sync(input) | What::Async(input) => {
                faults.shown(line.task, input.mmap_miss);
                let state = open.entry(owner).or_insert_with(build);
                let same = |window: &&(u64, u32, u32)| (window.1, window.2) == (input.size, input.async_size);
                let start = state.windows.iter().rfind(same).or_else(|| all_windows.iter().rfind(same));
                let start = start.map_or(0, |window| window.0);
                let miss = matches!(line.what, What::Sync(_));
                let loose = matches!(owner, Owner::Task(_));
                let own = answer(recorded, at, loose);
                let random = loose && said_random.get(&line.task).copied().unwrap_or(false);
                let mut states = vec![State { start, input, random, ..State::default() }];
                if loose && anything_random && !said_random.contains_key(&line.task) {
                    states.push(State { random: true, ..states[0] });
                }
                let asked = states[0];
                if !single_threaded {
                    // The window may be one that is not the latest of its size: tasks overtake each other.
                    if !miss {
                        let windows = state.windows.iter().rev().chain(all_windows.iter().rev());
                        states.extend(windows.map(|window| State { start: window.0, ..asked }));
                    }
                    states.extend(raced(recorded, &owners, at, &own, asked));
                }
                let ra = &mut state.ra;
                let mut ask = |pages: &mut Pages, state: &State| decide_from(ra.as_mut(), pages, state, miss, loose);
                let question = Question { recorded, at, own, states };
                let (judged, by) = question.judged(&mut pages, &mut ask);
                if let (true, Some(by)) = (loose, by)
                    && by.random
                {
                    said_random.insert(line.task, true);
                }
                tally.merge(judged);
            }
            What::Read { .. }
            | What::Write { .. }
            | What::End { .. }
            | What::Unbounded { .. }
            | What::Bio { .. }
            | What::Split { .. }
            | What::Issue { .. }
            | What::Get { .. } => {}
        }
    }
    tally
}

/// Decisions of a policy from this state; with the window shown where it differs in nothing known.
fn decide_from(ra: &mut dyn Readahead, pages: &mut Pages, state: &State, miss: bool, loose: bool) -> Decisions {
    if !ra.restore(Some(PageIndex(state.start)), &state.input) {
        return Decisions::default();
    }
    if loose {
        ra.advise(pages, if state.random { Advice::Random } else { Advice::Normal });
        ra.restore(Some(PageIndex(state.start)), &state.input);
    }
    pages.rest_is(state.rest);
    let told = decide(ra, pages, miss, &state.input);
    match (state.window, told.lines.first().copied()) {
        (Some(shown), Some(What::Order { index, order, size, async_size, .. }))
            if shown.iter().zip([order, size, async_size]).all(|((is, may), own)| *may || *is == own) =>
        {
            pages.undo(&told);
            let [shown, size, async_size] = shown.map(|(is, _)| is);
            let order = if state.own_order { order } else { shown };
            ra.fault_window(
                pages,
                &FaultWindow {
                    kind: RaKind::Sync,
                    start: PageIndex(index),
                    size: u64::from(size),
                    async_size: u64::from(async_size),
                    order: order as u8,
                    keeps_start: false,
                },
            );
            let mut told = pages.take();
            if let Some(What::Order { order, .. }) = told.lines.first_mut() {
                *order = shown;
            }
            told
        }
        _ => told,
    }
}

/// Adds a window to those that are remembered, and forgets the oldest.
fn remember(windows: &mut Vec<(u64, u32, u32)>, window: (u64, u32, u32)) {
    if windows.len() == REMEMBERED {
        windows.remove(0);
    }
    windows.push(window);
}

/// Whose open file each line is about.
fn owners(recorded: &Recorded) -> Vec<Owner> {
    let mut calls: BTreeMap<u32, i32> = BTreeMap::new();
    let mut owners = Vec::with_capacity(recorded.lines.len());
    for line in &recorded.lines {
        match line.what {
            What::Read { fd, .. } | What::Write { fd } => drop(calls.insert(line.task, fd)),
            What::Advise { fd, .. } => drop(calls.insert(line.task, fd)),
            _ => {}
        }
        let of_call = calls.get(&line.task).copied();
        owners.push(of_call.map_or(Owner::Task(line.task), Owner::Descriptor));
        if matches!(line.what, What::End { .. }) {
            calls.remove(&line.task);
        }
    }
    owners
}

fn decide(ra: &mut dyn Readahead, pages: &mut Pages, miss: bool, input: &RaInput) -> Decisions {
    let (page, nr) = (PageIndex(input.index), input.req_count);
    if miss {
        ra.on_miss(Token::default(), pages, page, nr);
    } else {
        ra.on_marker(Token::default(), pages, page, nr);
    }
    pages.take()
}

/// Lines of other tasks after an answer that may have happened before its end: a folio is in the cache a moment before
/// its line in the trace.
const LATE: usize = 32;

/// Lines of the same task after line `at` that belong to the decision made there, and what others did until a little
/// later.
struct Answer {
    lines: Vec<Line>,
    /// The task went on with something else.
    is_over: bool,
    others: Vec<What>,
    /// Where what others did ends.
    until: usize,
}

fn answer(recorded: &Recorded, at: usize, loose: bool) -> Answer {
    let task = recorded.lines[at].task;
    // Writes of io_uring are not calls either. What they add lies in no window.
    let mut windows: Vec<Range<u64>> = Vec::new();
    let mut lines = Vec::new();
    let (mut end, mut is_over) = (at + 1, false);
    for (nr, line) in recorded.lines.iter().enumerate().skip(at + 1).filter(|(_, line)| line.task == task) {
        // Up to the task's next line nothing says that the answer is over.
        end = nr + 1;
        match line.what {
            What::Order { index, size, .. } => windows.push(index..index + u64::from(size)),
            What::Unbounded { index, nr_pages, .. } => windows.push(index..index + nr_pages),
            _ => {}
        }
        match line.what {
            What::Add { index, .. } if loose && !windows.iter().any(|window| window.contains(&index)) => {}
            What::Order { .. } | What::Unbounded { .. } | What::Add { .. } | What::Bio { .. } => lines.push(*line),
            What::Remove { .. } | What::Split { .. } | What::Issue { .. } => {}
            // What a fault asks the policy is its answer, and a question of its own.
            What::Sync(_) if matches!(recorded.lines[at].what, What::Fault { .. }) && lines.is_empty() => {
                let what = faults::question(&line.what).unwrap_or(line.what);
                lines.push(Line { what, ..*line });
                is_over = true;
                break;
            }
            _ => {
                is_over = true;
                break;
            }
        }
    }
    let until = (end + LATE).min(recorded.lines.len());
    let others = recorded.lines[at + 1..until].iter().filter(|line| line.task != task).map(|line| line.what);
    let changes = |what: &What| matches!(what, What::Add { .. } | What::Remove { .. });
    Answer { lines, is_over, others: others.filter(changes).collect(), until }
}

/// A state to ask with.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
struct State {
    start: u64,
    input: RaInput,
    /// Size and tail for the rest of a window that ended early, if another task wrote them.
    rest: Option<(u64, u64)>,
    /// Order, size and tail of the window as the kernel shows it, and which of them another task wrote.
    window: Option<[(u32, bool); 3]>,
    /// The program has advised random reads.
    random: bool,
    /// The window is cut by the model's own order: the kernel reads it once to cut and once to show.
    own_order: bool,
}

/// Up to this number of states, each is tried with every prefix of other tasks' changes to the cache.
const FEW_STATES: usize = 100;

/// Prefixes of what others did that are tried.
const MOST_PREFIXES: usize = 96;

/// Lines before a question in which another task may have shown a window that it had not yet limited the order of.
const BEFORE: usize = 8;

/// Windows of others that are tried.
const MOST_RACED: usize = 6;

/// States that the kernel may have had by what other tasks with the same open file wrote after the question was asked.
fn raced(recorded: &Recorded, owners: &[Owner], at: usize, own: &Answer, asked: State) -> Vec<State> {
    let task = recorded.lines[at].task;
    let mut windows = Vec::new();
    let mut positions = vec![asked.input.prev_pos];
    for nr in at + 1..own.until {
        let line = recorded.lines[nr];
        if line.task == task || owners[nr] != owners[at] {
            continue;
        }
        match line.what {
            What::Order { index, order, size, async_size, .. } if windows.len() < MOST_RACED => {
                windows.push((index, order, size, async_size));
            }
            What::End { result } if positions.len() < MOST_RACED => {
                let read = recorded.lines[..nr].iter().rev().filter(|other| other.task == line.task);
                let begun = read.map(|other| other.what).find_map(|what| match what {
                    What::Read { offset, .. } => Some(offset),
                    _ => None,
                });
                positions.extend(begun.filter(|_| result > 0).map(|offset| offset as i64 + result));
            }
            _ => {}
        }
    }
    let mut states = Vec::new();
    // A window's order is limited by its size after it was shown.
    let limited = |order: u32, size: u32| order.min(size.max(1).ilog2());
    for nr in at.saturating_sub(BEFORE)..own.until {
        if let What::Order { order, size, .. } = recorded.lines[nr].what
            && recorded.lines[nr].task != task
            && owners[nr] == owners[at]
            && states.len() < MOST_RACED
        {
            states.push(State { input: RaInput { order: limited(order, size), ..asked.input }, ..asked });
        }
    }
    for prev_pos in positions {
        let input = RaInput { prev_pos, ..asked.input };
        states.push(State { input, ..asked });
        for &(index, order, size, async_size) in &windows {
            // The fields are written one by one: any of them may be the other's already.
            for mask in 0..16 {
                let of = |bit: u32, own: u32, other: u32| if mask >> bit & 1 == 1 { other } else { own };
                let start = if mask & 1 == 1 { index } else { asked.start };
                let input = RaInput {
                    size: of(1, input.size, size),
                    async_size: of(2, input.async_size, async_size),
                    order: of(3, input.order, order),
                    ..input
                };
                states.push(State { start, input, ..asked });
            }
        }
    }
    let rests: Vec<(u64, u64)> = windows.iter().map(|window| (u64::from(window.2), u64::from(window.3))).collect();
    let with_rest = |rest: &(u64, u64)| {
        let rest = Some(*rest);
        states.iter().map(move |state| State { rest, ..*state }).collect::<Vec<_>>()
    };
    let later: Vec<State> = rests.iter().flat_map(with_rest).collect();
    states.extend(later);
    // The window itself is in the state when the kernel reads it again to show it and to cut it into folios. Its own
    // reads are visible; but each read must be its own or another's.
    let shown = own.lines.first().map(|line| line.what);
    if let (Some(What::Order { order, size, async_size, .. }), false) = (shown, windows.is_empty()) {
        let others = |of: fn(&(u64, u32, u32, u32)) -> u32| -> Vec<u32> { windows.iter().map(of).collect() };
        // A miss writes 0 first; what does not fit into the window is taken off the order.
        let mut orders = others(|window| window.1);
        orders.extend(windows.iter().map(|window| limited(window.1, window.2)));
        orders.push(0);
        let window = [
            (order, orders.contains(&order)),
            (size, others(|window| window.2).contains(&size)),
            (async_size, others(|window| window.3).contains(&async_size)),
        ];
        states.extend([false, true].map(|own_order| State { window: Some(window), own_order, ..asked }));
    }
    states
}

/// A question with all that may have been when it was decided on.
struct Question<'a> {
    recorded: &'a Recorded,
    at: usize,
    own: Answer,
    /// The state as the trace shows it first, then what others may have made of it.
    states: Vec<State>,
}

impl Question<'_> {
    /// Asks the model, and counts what matches.
    fn judge(&self, pages: &mut Pages, ask: &mut dyn FnMut(&mut Pages, &State) -> Decisions) -> Tally {
        self.judged(pages, ask).0
    }

    /// The same, and the state with which it matched.
    fn judged(
        &self,
        pages: &mut Pages,
        ask: &mut dyn FnMut(&mut Pages, &State) -> Decisions,
    ) -> (Tally, Option<&State>) {
        let first = self.attempt(pages, ask, &self.states[0], 0, &[]);
        if first.all_matched() {
            return (first, Some(&self.states[0]));
        }
        let others = &self.own.others;
        let apart: Vec<What> = others.iter().copied().filter(|what| self.apart(what)).collect();
        for (nr, state) in self.states.iter().enumerate() {
            // The prefixes of what others did are tried with what the trace shows; with states that others wrote, the
            // ends of that range are.
            let most = if nr == 0 || self.states.len() < FEW_STATES { MOST_PREFIXES } else { 2 };
            let prefixes = (0..=others.len()).filter(|n| *n <= most || *n == others.len());
            for n in prefixes {
                for meanwhile in [&[][..], &apart, &others[n..]] {
                    let mut trial = self.attempt(pages, ask, state, n, meanwhile);
                    if trial.all_matched() {
                        // What a program said, or which of its windows it is, nobody wrote meanwhile.
                        let asked = self.states[0];
                        trial.raced = u64::from(State { start: asked.start, random: asked.random, ..*state } != asked);
                        return (trial, Some(state));
                    }
                }
            }
        }
        (first, None)
    }

    /// Whether a folio that another task added is none that the answer added, too.
    fn apart(&self, what: &What) -> bool {
        let What::Add { index, order } = *what else { return false };
        !self.own.lines.iter().any(|line| match line.what {
            What::Add { index: own, order: of } => own < index + (1 << order) && index < own + (1 << of),
            _ => false,
        })
    }

    /// Asks with the first `n` changes of others made before, and `meanwhile` after the decision.
    fn attempt(
        &self,
        pages: &mut Pages,
        ask: &mut dyn FnMut(&mut Pages, &State) -> Decisions,
        state: &State,
        n: usize,
        meanwhile: &[What],
    ) -> Tally {
        let changed = &self.own.others[..n];
        let undone: Vec<What> = changed.iter().filter_map(|what| pages.change(*what)).collect();
        pages.others_meanwhile(meanwhile);
        let told = ask(pages, state);
        pages.undo(&told);
        undone.iter().rev().for_each(|what| pages.apply(*what));
        let mut trial = Tally::default();
        trial.decision(&self.recorded.lines[self.at], &told.lines, &self.own.lines);
        (trial.bios, trial.bios_matched) = same_bios(&told, &self.own.lines, self.recorded, self.own.is_over);
        trial
    }
}

//! The whole history: from the calls alone, every question that the read loop asks, every decision, every page.
//!
//! Only what comes from outside goes in: the calls in their order, and what left the cache or was put there by others.
//! Read-ahead state, markers and cached pages are the model's own. With several tasks that read at the same time the
//! calls do not say who came first, so this is for files that one task reads.

use std::collections::BTreeMap;

use iowhy_stack::origin::Entry;
use iowhy_stack::read_loop::{ReadLoop, Step};
use iowhy_stack::readahead::{Advice, Build, Mapping, ReadRequest, Readahead, Token};
use iowhy_stack::units::PAGE_BYTES;

use super::Tally;
use super::model::{Pages, Traced, same_bios};
use iowhy_trace::recorded::{Hint, Line, Recorded, What};

/// Compares the whole history.
pub(super) fn compare(entry: &'static Entry<Build>, recorded: &Recorded) -> Tally {
    let mut model = Pages::new(recorded);
    let mut actual = Pages::new(recorded);
    let limits = model.limits();
    let build = || (entry.build)(&entry.defaults(), &limits);
    let mut open: BTreeMap<i32, Box<dyn Readahead>> = BTreeMap::new();
    let decisions_shown = recorded.shows_decisions();
    let mut tally = Tally::default();
    let mut at = 0;
    while let Some(line) = recorded.lines.get(at) {
        at += 1;
        match line.what {
            What::Add { .. } | What::Remove { .. } => {
                model.apply(line.what);
                actual.apply(line.what);
            }
            What::Read { .. } | What::Advise { .. } => {
                let end = recorded.end_of_call(at - 1);
                let lines = &recorded.lines[at..end];
                let (fd, request) = match line.what {
                    What::Read { fd, offset, len_bytes } => (fd, Ok(ReadRequest { offset, len_bytes })),
                    What::Advise { fd, hint, offset, len_bytes } => (fd, Err((hint, offset, len_bytes))),
                    _ => continue,
                };
                let ra = open.entry(fd).or_insert_with(build);
                let copied = match request {
                    Ok(ReadRequest { offset, len_bytes }) => {
                        offset / PAGE_BYTES..offset.saturating_add(len_bytes).div_ceil(PAGE_BYTES)
                    }
                    Err(_) => 0..0,
                };
                let mut own = Vec::new();
                // Others' changes by the number of this task's lines before them.
                let mut others: Vec<(usize, What)> = Vec::new();
                for other in lines {
                    let is_own = other.task == line.task && !matches!(other.what, What::Remove { .. });
                    match other.what {
                        What::Sync(_)
                        | What::Async(_)
                        | What::Order { .. }
                        | What::Unbounded { .. }
                        | What::Add { .. }
                            if is_own =>
                        {
                            own.push(*other)
                        }
                        // A read that keeps nothing (RWF_DONTCACHE) drops what it has copied.
                        What::Remove { index, .. } if other.task == line.task && copied.contains(&index) => {
                            others.push((usize::MAX, other.what));
                        }
                        What::Add { .. } | What::Remove { .. } => others.push((own.len(), other.what)),
                        _ => {}
                    }
                    actual.apply(other.what);
                }
                others.sort_by_key(|(after, _)| *after);
                if matches!(line.what, What::Read { .. }) && !recorded.looks_up(at - 1, end) {
                    // It went past the page cache.
                    others.iter().for_each(|(_, what)| model.apply(*what));
                    model.is_to_be(&actual);
                    at = end;
                    continue;
                }
                let result = lines.iter().rev().find_map(|other| match other.what {
                    What::End { result } if other.task == line.task => Some(result),
                    _ => None,
                });
                match request {
                    Ok(request) => {
                        read(ra.as_mut(), &mut model, (request, piece(request, lines)), &others, result);
                    }
                    Err((hint, offset, len_bytes)) => {
                        others.iter().for_each(|(_, what)| model.apply(*what));
                        match hint {
                            Hint::Normal => ra.advise(&mut model, Advice::Normal),
                            Hint::Random => ra.advise(&mut model, Advice::Random),
                            Hint::Sequential => ra.advise(&mut model, Advice::Sequential),
                            Hint::WillNeed => ra.advise(&mut model, Advice::WillNeed { offset, len_bytes }),
                            Hint::DontNeed | Hint::Other | Hint::Executable => {}
                        }
                    }
                }
                let mut told = model.take();
                if !decisions_shown {
                    told.lines.retain(|what| matches!(what, What::Add { .. }));
                }
                let mut trial = Tally::default();
                trial.call(line, &told.lines, &own);
                (trial.bios, trial.bios_matched) = same_bios(&told, lines, recorded, result.is_some());
                if !trial.all_matched() {
                    model.is_to_be(&actual);
                }
                tally.merge(trial);
                at = end;
            }
            _ => {}
        }
    }
    tally
}

/// Bytes that the kernel looks up at once: calls that copy through a pipe (`sendfile`, `copy_file_range`) read what the
/// pipe has room for, each time as a read of its own.
fn piece(request: ReadRequest, lines: &[Line]) -> u64 {
    let page = request.offset / PAGE_BYTES;
    let looked_up = lines.iter().find_map(|line| match line.what {
        What::Get { index, last } => Some((index, last)),
        _ => None,
    });
    // Of a look-up that is not in the trace, its question tells as much.
    let asked_about = lines.iter().find_map(|line| match line.what {
        What::Sync(input) => Some((input.index, (input.index + input.req_count).saturating_sub(1))),
        _ => None,
    });
    let first = [looked_up, asked_about].into_iter().flatten().find(|(index, _)| *index == page);
    let asked = request.offset.saturating_add(request.len_bytes).div_ceil(PAGE_BYTES);
    match first {
        Some((index, last)) if last + 1 < asked && last >= index => (last + 1) * PAGE_BYTES - request.offset,
        _ => request.len_bytes,
    }
}

/// A read call of the model. Other tasks' changes happen when the model has come as far as the kernel had.
fn read(
    ra: &mut dyn Readahead,
    model: &mut Pages,
    (request, piece): (ReadRequest, u64),
    others: &[(usize, What)],
    result: Option<i64>,
) {
    let mut others = others.iter().peekable();
    let mut steps = 0_u64;
    let end = request.offset.saturating_add(request.len_bytes).min(model.size_bytes());
    let mut from = request.offset;
    // A read that begins behind the end asks its question, too.
    loop {
        let len_bytes = piece.min(request.offset.saturating_add(request.len_bytes) - from);
        let mut read = ReadLoop::new(ra, ReadRequest { offset: from, len_bytes }, false);
        loop {
            while let Some((_, what)) = others.next_if(|(after, _)| *after <= model.told.lines.len()) {
                model.apply(*what);
            }
            match read.step(&mut Traced(ra), model) {
                Step::Done { .. } => break,
                // Nothing is ever in flight here, so a loop that does not end would be the model's fault.
                _ if steps > request.len_bytes.saturating_add(1_000_000) => break,
                _ => steps += 1,
            }
        }
        from = from.saturating_add(piece.max(1));
        if from >= end {
            break;
        }
        ra.copied(Token::default(), from);
    }
    others.for_each(|(_, what)| model.apply(*what));
    if let Some(result) = result.and_then(|result| u64::try_from(result).ok()).filter(|result| *result > 0) {
        ra.copied(Token::default(), request.offset + result);
    }
}

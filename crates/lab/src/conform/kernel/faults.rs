//! Faults of mappings that find no page (`do_sync_mmap_readahead`).
//!
//! ```text
//! MADV_NORMAL      the limit's worth of pages around the page, the last quarter behind a marker; nothing but the
//!                  page if more than 100 misses were counted
//! MADV_SEQUENTIAL  the policy is asked as by a read of as many pages as the limit has
//! MADV_RANDOM      the page alone
//! executable       from the page to the end of the mapping, at most the limit
//! ```
//! The window comes out of [`iowhy_stack::fault`], the kernel's own fault model. A program's advice on its mapping
//! comes from its calls: those of the task itself, or those of the only task that mapped the page. Where there are none
//! (the mapping is older than the trace, or several tasks have one) a task's first fault of a file shows it, and all
//! later ones are held to that. Mappings of the program itself are made by `execve`, which no event shows: the end of
//! an executable one comes from the first fault in it.
//!
//! Faults that the pages around them settled (`do_fault_around`) are in no event either, and each page that they map
//! takes one off the misses. So only the most that there can be is known: misses since the kernel last showed their
//! number. Up to 100 of them every miss must read around; beyond that a page alone is right, too.

use std::collections::BTreeMap;
use std::ops::Range;

use iowhy_stack::fault::{
    Access, FAULTS, Fault, FaultCache, FaultContext, MapAdvice, MappedFile, MmapMiss, Protection, Rules,
};
use iowhy_stack::origin::Entry;
use iowhy_stack::readahead::{Build, Limits, Mapping, Readahead};
use iowhy_stack::trace::RaInput;
use iowhy_stack::units::{PAGE_BYTES, PageIndex};

use super::model::{Decisions, Pages, Traced};
use iowhy_trace::recorded::{Hint, Line, Recorded, What};

/// State of a task's mapping.
#[derive(Copy, Clone, Debug)]
struct MappingState {
    advice: MapAdvice,
    /// Misses at most.
    misses: u32,
}

/// The faults of a file.
pub(super) struct Faults {
    rules: Option<Rules>,
    entry: &'static Entry<Build>,
    file_pages: u64,
    tasks: BTreeMap<u32, MappingState>,
    /// Advice for pages, by task; later advice counts.
    said: Vec<(u32, Range<u64>, MapAdvice)>,
    /// Pages of executable mappings.
    executable: Vec<Range<u64>>,
}

/// A fault to be asked about.
pub(super) struct PendingFault {
    rules: Rules,
    ra: Box<dyn Readahead>,
    page: PageIndex,
    file_pages: u64,
    advice: MapAdvice,
    /// Page after the last of an executable mapping.
    executable: Option<u64>,
}

impl Faults {
    pub(super) fn new(entry: &'static Entry<Build>, recorded: &Recorded) -> Faults {
        let model = FAULTS.iter().find(|model| model.name == entry.name);
        Faults {
            rules: model.map(|model| (model.build)(&model.defaults())),
            entry,
            file_pages: recorded.file_bytes.div_ceil(PAGE_BYTES),
            tasks: BTreeMap::new(),
            said: Vec::new(),
            executable: Vec::new(),
        }
    }

    /// A program's advice on a part of its mapping.
    pub(super) fn said(&mut self, task: u32, pages: Range<u64>, hint: Hint) {
        let advice = match hint {
            Hint::Normal => MapAdvice::Normal,
            Hint::Random => MapAdvice::Random,
            Hint::Sequential => MapAdvice::Sequential,
            Hint::Executable => return self.executable.push(pages),
            _ => return,
        };
        self.said.retain(|(by, old, _)| *by != task || old.start < pages.start || pages.end < old.end);
        self.said.push((task, pages, advice));
    }

    /// The advice for a page that a task touches, from its own calls or those of the only task with a mapping.
    fn advice(&self, task: u32, page: u64) -> Option<MapAdvice> {
        let of_page = || self.said.iter().rev().filter(|(_, pages, _)| pages.contains(&page));
        let own = of_page().find(|(by, ..)| *by == task);
        let latest = || of_page().next().filter(|(only, ..)| of_page().all(|(by, ..)| by == only));
        own.or_else(latest).map(|(_, _, advice)| *advice)
    }

    /// The kernel shows how many misses the task's mapping has.
    pub(super) fn shown(&mut self, task: u32, misses: u32) {
        if let Some(known) = self.tasks.get_mut(&task) {
            known.misses = misses;
        }
    }

    /// The end of the executable mapping that a fault is in, if it is in one. Segments may share a page, and be mapped
    /// with others before; then the window says which it is.
    fn executable(&mut self, page: u64, limit: u64, window: Option<(u64, u32, u32)>) -> Option<u64> {
        let looks_so = window.filter(|(index, _, async_size)| (*index, *async_size) == (page, 0));
        let known = self.executable.iter().rev().find(|pages| pages.contains(&page)).cloned();
        match (known, looks_so) {
            (Some(pages), Some(_)) => Some(pages.end),
            (Some(pages), None) => Some(pages.end).filter(|end| page > pages.start && page + 1 < *end),
            (None, Some((index, size, _))) => {
                // Of the program itself.
                let end = index + u64::from(size);
                let above = self.executable.iter().filter(|pages| pages.start > page).map(|pages| pages.end).min();
                // One that the limit ends says nothing of the mapping.
                if above.is_none() && u64::from(size) < limit {
                    self.executable.push(page..end);
                }
                Some(above.unwrap_or(end))
            }
            (None, None) => None,
        }
    }

    /// The question that a fault asks, if it is one: the page is absent, and the kernel's fault is modelled.
    pub(super) fn asked(&mut self, task: u32, index: u64, own: &[Line], pages: &Pages) -> Option<PendingFault> {
        let rules = self.rules?;
        let page = PageIndex(index);
        if pages.present(page) || index >= self.file_pages {
            return None;
        }
        let did = |is: fn(&What) -> bool| own.iter().any(|line| is(&line.what));
        let around = did(|what| matches!(what, What::Order { .. } | What::Unbounded { .. }));
        let advised = did(|what| matches!(what, What::Sync(_)));
        let alone = did(|what| matches!(what, What::Add { .. })) && !around && !advised;
        if !(around || alone || advised) {
            // Another task's page came first: it asked nothing.
            return None;
        }
        // The limit of the open file is the device's, or twice that if the program said that reads come in sequence.
        let device = pages.limits().ra_pages;
        let shown = own.iter().find_map(|line| match line.what {
            What::Order { ra_pages, .. } => Some(u64::from(ra_pages)),
            What::Sync(input) => Some(input.req_count),
            _ => None,
        });
        let limit = shown.filter(|limit| *limit == 2 * device).unwrap_or(device);
        let seen = match (advised, around) {
            (true, _) => MapAdvice::Sequential,
            (_, true) => MapAdvice::Normal,
            // Without a limit every miss reads the page alone.
            _ if limit == 0 => MapAdvice::Normal,
            _ => MapAdvice::Random,
        };
        let window = own.iter().find_map(|line| match line.what {
            What::Order { index, size, async_size, .. } => Some((index, size, async_size)),
            _ => None,
        });
        let mut executable = if rules.exec_windows { self.executable(index, limit, window) } else { None };
        let told = self.advice(task, index);
        let known = self.tasks.entry(task).or_insert(MappingState { advice: seen, misses: 0 });
        let mut advice = told.unwrap_or(known.advice);
        if advice == MapAdvice::Normal && limit > 0 {
            known.misses = known.misses.saturating_add(1).min(rules.most_misses);
            if alone && known.misses > rules.lots_of_misses {
                (advice, executable) = (MapAdvice::Random, None);
            }
        }
        let ra = (self.entry.build)(&self.entry.defaults(), &Limits { ra_pages: limit, ..pages.limits() });
        Some(PendingFault { rules, ra, page, file_pages: self.file_pages, advice, executable })
    }
}

impl PendingFault {
    /// The model's result. Of the policy's questions only the question itself counts here: the consequences are judged
    /// as its answer.
    pub(super) fn ask(&mut self, pages: &mut Pages) -> Decisions {
        let protection = Protection { exec: self.executable.is_some(), ..Protection::default() };
        let nr_pages = self.executable.unwrap_or(self.file_pages);
        let mut mapped = MappedFile::new(PageIndex(0), nr_pages, 0, protection);
        mapped.advise(PageIndex(0), PageIndex(nr_pages), self.advice);
        let misses = MmapMiss::default();
        // The kernel's event shows that the fault got past mapping the pages around.
        let rules = Rules { fault_around_pages: 1, ..self.rules };
        let mut policy = Traced(self.ra.as_mut());
        if let Some(mut fault) = Fault::of_touch(&mut mapped, self.page, Access::Read) {
            let cache: &mut dyn FaultCache = pages;
            let mut context = FaultContext { ra: &mut policy, misses: &misses, mapped: &mut mapped, cache };
            // The window, then the page if that is still missing.
            let _ = fault.step(&rules, &mut context);
            if !pages.told.lines.iter().any(|what| matches!(what, What::Sync(_))) {
                let cache: &mut dyn FaultCache = pages;
                let mut context = FaultContext { ra: &mut policy, misses: &misses, mapped: &mut mapped, cache };
                let _ = fault.step(&rules, &mut context);
            }
        }
        let told = pages.take();
        match told.lines.iter().find_map(question) {
            Some(question) => {
                pages.undo(&told);
                Decisions { lines: vec![question], ..Decisions::default() }
            }
            None => told,
        }
    }
}

/// A question of a fault, without the state: that is shown with the question itself.
pub(super) fn question(what: &What) -> Option<What> {
    match *what {
        What::Sync(RaInput { index, req_count, .. }) => {
            Some(What::Sync(RaInput { index, req_count, ..RaInput::default() }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{check, model_of};
    use super::*;

    /// Decisions and page adds of a file of 1 MiB, and those that match.
    fn compared(lines: &str) -> [u64; 4] {
        let facts = "job x\nkernel 6.18.1\nfile_bytes 1048576\nra_pages 32\nio_pages 320\nmax_folio_order 9\n";
        let lines = lines.replace("; ", "\n");
        let recorded = Recorded::from_text(&format!("iowhy-readahead 1\n{facts}\n{lines}\n")).expect("a record");
        let checked = check(model_of("6.18", "").0, &recorded);
        assert!(checked.history.is_none(), "touches are no calls");
        let tally = checked.decisions;
        [tally.decisions, tally.matched, tally.page_adds, tally.page_adds_matched]
    }

    #[test]
    fn a_fault_reads_what_its_mapping_was_advised() {
        const AROUND: &str = "p 0 100; d 0 84 0 32 8 32; + 0 84 0 x32";
        const ALONE: &str = "p 0 200; + 0 200 0";
        const IN_SEQUENCE: &str = "p 0 140; s 0 140 32 0 32 8 32 0 -1; u 0 140 32 0; + 0 140 0 x32";
        let random = "m 0 random 0 255; ";
        let normal = "m 0 normal 0 255; ";
        let rows: &[(&str, String, [u64; 4])] = &[
            ("around", AROUND.to_owned(), [1, 1, 32, 32]),
            ("a window too far", AROUND.replace("84", "85"), [1, 0, 32, 31]),
            ("a window too small", "p 0 100; d 0 84 0 31 8 32; + 0 84 0 x32".to_owned(), [1, 0, 32, 32]),
            ("a page too few", AROUND.replace("x32", "x31"), [1, 1, 32, 31]),
            ("the first fault says it", format!("{ALONE}; {}", ALONE.replace("200", "20")), [2, 2, 2, 2]),
            ("and is held to", format!("{ALONE}; {AROUND}"), [2, 1, 33, 2]),
            ("the other way round", format!("{AROUND}; {ALONE}"), [2, 1, 64, 33]),
            ("in sequence", IN_SEQUENCE.to_owned(), [2, 2, 32, 32]),
            ("a window for sequence", format!("{IN_SEQUENCE}; {AROUND}"), [3, 2, 64, 32]),
            ("the program said it", format!("{random}{ALONE}"), [1, 1, 1, 1]),
            ("another thing", format!("{random}{AROUND}"), [1, 0, 32, 1]),
            ("normal is no page alone", format!("{normal}{ALONE}"), [1, 0, 32, 1]),
            ("it changes", format!("{random}{ALONE}; {normal}{AROUND}"), [2, 2, 33, 33]),
            ("of other pages", format!("{normal}m 0 random 150 255; {ALONE}; {AROUND}"), [2, 2, 33, 33]),
            ("by the only task that did", format!("m 1 random 0 255; {ALONE}; {AROUND}"), [2, 1, 33, 2]),
            ("two tasks: nobody knows", format!("m 1 random 0 255; m 2 random 0 255; {AROUND}"), [1, 1, 32, 32]),
            ("its own comes first", format!("{normal}m 1 random 0 255; {AROUND}"), [1, 1, 32, 32]),
            ("another's page came first", "p 0 100; + 1 100 0".to_owned(), [0, 0, 0, 0]),
            ("past the end", "p 0 300; + 0 300 0".to_owned(), [0, 0, 0, 0]),
        ];
        for (name, lines, expected) in rows {
            assert_eq!(compared(lines), *expected, "{name}");
        }
    }

    #[test]
    fn after_a_hundred_misses_a_page_alone_is_right_too() {
        let alone = |page: u64| format!("p 0 {page}; + 0 {page} 0; - 0 {page} 0; ");
        let around = "p 0 100; d 0 84 0 32 8 32; + 0 84 0 x32; - 0 84 0 x32; ";
        let shown = "s 0 0 1 0 0 0 32 0 -1; d 0 0 0 4 3 32; + 0 0 0 x4; - 0 0 0 x4; ";
        for (misses, between, matched) in [(99, "", 0), (100, "", 1), (100, shown, 0)] {
            let text = format!("{}{between}{}", around.repeat(misses), alone(200));
            let [decisions, all, ..] = compared(text.trim_end_matches("; "));
            assert_eq!(decisions - all, 1 - matched, "{misses} misses, then {between:?}");
        }
    }
}

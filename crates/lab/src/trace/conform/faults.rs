//! Faults of mappings that find no page (`do_sync_mmap_readahead`).
//!
//! ```text
//! MADV_NORMAL      the limit's worth of pages around the page, the last quarter behind a marker; nothing but the
//!                  page if more than 100 misses were counted
//! MADV_SEQUENTIAL  the policy is asked as by a read of as many pages as the limit has
//! MADV_RANDOM      the page alone
//! ```
//! The window comes out of [`iowhy_stack::fault`], the kernel's own fault model. What the program said about its
//! mapping is in no event, so a task's first fault of a file says it, and all later ones are held to that.
//!
//! Faults that the pages around them settled (`do_fault_around`) are in no event either, and each page that they map
//! takes one off the misses. So only the most that there can be is known: misses since the kernel last showed their
//! number. Up to 100 of them every miss must read around; beyond that a page alone is right, too.

use std::collections::BTreeMap;

use iowhy_stack::fault::{
    Access, FAULTS, Fault, FaultCache, FaultContext, MapAdvice, MappedFile, MmapMiss, Protection, Rules,
};
use iowhy_stack::origin::Entry;
use iowhy_stack::readahead::{Build, Limits, Mapping, Readahead};
use iowhy_stack::trace::RaInput;
use iowhy_stack::units::{PAGE_BYTES, PageIndex};

use super::model::{Pages, Told, Traced};
use super::recorded::{Line, Recorded, What};

/// What is known of a task's mapping.
#[derive(Copy, Clone, Debug)]
struct Known {
    advice: MapAdvice,
    /// Misses at most.
    misses: u32,
}

/// The faults of a file.
pub(super) struct Faults {
    rules: Option<Rules>,
    entry: &'static Entry<Build>,
    file_pages: u64,
    tasks: BTreeMap<u32, Known>,
}

/// A fault to be asked about.
pub(super) struct Asked {
    rules: Rules,
    ra: Box<dyn Readahead>,
    page: PageIndex,
    file_pages: u64,
    advice: MapAdvice,
}

impl Faults {
    pub(super) fn new(entry: &'static Entry<Build>, recorded: &Recorded) -> Faults {
        let model = FAULTS.iter().find(|model| model.name == entry.name);
        Faults {
            rules: model.map(|model| (model.build)(&model.defaults())),
            entry,
            file_pages: recorded.file_bytes.div_ceil(PAGE_BYTES),
            tasks: BTreeMap::new(),
        }
    }

    /// The kernel shows how many misses the task's mapping has.
    pub(super) fn shown(&mut self, task: u32, misses: u32) {
        if let Some(known) = self.tasks.get_mut(&task) {
            known.misses = misses;
        }
    }

    /// The question that a fault asks, if it is one: the page is absent, and the kernel's fault is modelled.
    pub(super) fn asked(&mut self, task: u32, index: u64, own: &[Line], pages: &Pages) -> Option<Asked> {
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
        let known = self.tasks.entry(task).or_insert(Known { advice: seen, misses: 0 });
        let mut advice = known.advice;
        if advice == MapAdvice::Normal && limit > 0 {
            known.misses = known.misses.saturating_add(1).min(rules.most_misses);
            if alone && known.misses > rules.lots_of_misses {
                advice = MapAdvice::Random;
            }
        }
        let ra = (self.entry.build)(&self.entry.defaults(), &Limits { ra_pages: limit, ..pages.limits() });
        Some(Asked { rules, ra, page, file_pages: self.file_pages, advice })
    }
}

impl Asked {
    /// What the model does. Of what the policy is asked only the question counts here: what follows is judged as the
    /// question's answer.
    pub(super) fn ask(&mut self, pages: &mut Pages) -> Told {
        let mut mapped = MappedFile::new(PageIndex(0), self.file_pages, 0, Protection::default());
        mapped.advise(PageIndex(0), PageIndex(self.file_pages), self.advice);
        let misses = MmapMiss::default();
        // The kernel's event says that the fault got past mapping what is around the page.
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
                Told { lines: vec![question], ..Told::default() }
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

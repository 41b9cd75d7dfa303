//! The page cache's two lists: which folios a control group at its limit gives up, and in which order.
//!
//! A new folio goes to the head of the inactive list, by way of a small batch of its processor. `read(2)` marks it: the
//! first time as referenced, the second time it is to be activated, also by way of a batch. References through mappings
//! set bits in page tables, which only reclaim looks at (and clears). A call of reclaim drains the batches and scans
//! the tails at priority 12 (a 4096th of each list), then 11, and so on until 32 pages are free. It takes folios of the
//! inactive list that no page table has used; used ones go round once more, and to the active list when used again,
//! used by two mappings, or executable. The active list's tail is moved to the inactive head, but only if the inactive
//! list is low or evicted folios came back early. A folio that is evicted leaves its age; if it returns before as many
//! evictions and activations as there are active pages, it becomes active at once. Activations by a scan count after
//! the evictions by the same scan.
//! Statistics that a worker folds every two seconds decide about moving and returning: see [`TwoList::fold`].
//!
//! Source: Linux 6.18, mm/vmscan.c (`shrink_lruvec`, `shrink_folio_list`, `folio_check_references`,
//! `shrink_active_list`), mm/swap.c (`folio_mark_accessed`, the batches), mm/workingset.c (`workingset_refault`).
//!
//! Known deviations: one processor, one group, no anonymous pages, no swap, no locked memory, no shadow shrinker, no
//! writeback (reclaim activates what is dirty or being written; here it counts as locked). Statistics are folded when
//! the driver says so; 5.10 folds each by itself once it is off by more than 32, and a call of reclaim of 6.1 folds
//! them if the machine has seen enough updates.

mod old;

use super::chain::{Batch, Chain, Node};
use super::{FIRST_PRIORITY, Lists, OPTIONS, ORACLE};
use crate::origin::{Entry, Options, Origin};

pub use super::chain::FolioId;
pub use old::{ENTRY_2_4, ENTRY_2_6_6};

/// 6.18 and 6.12.
pub const ENTRY_6_18: Entry<Build> = Entry {
    name: "linux-6.18",
    summary: "two lists with second chance, refault distance and stale statistics; advised mappings do not count",
    origin: &[Origin {
        kernels: "6.3 .. 6.18",
        file: "mm/vmscan.c, mm/swap.c, mm/workingset.c",
        function: "shrink_lruvec, folio_check_references, folio_mark_accessed, workingset_refault",
        notes: "order of eviction compared with a running 6.18 in a control group without swap, LRU_GEN off; the \
                second walk is not in 6.1",
    }],
    options: OPTIONS,
    conformance: "golden vectors linux-6.18-reclaim: exact order of eviction; differences depend on the 2 s fold; \
                  `cargo xtask oracle` with 6.12 and 7.2: the kernel's own code on random input",
    build: |options| TwoList::new(options, RULES_6_18),
};

/// 6.1.
pub const ENTRY_6_1: Entry<Build> = Entry {
    name: "linux-6.1",
    summary: "two lists as in 6.18; random mappings count as references, sequential ones do not",
    origin: &[Origin {
        kernels: "6.1",
        file: "mm/vmscan.c, mm/swap.c, mm/rmap.c, mm/workingset.c",
        function: "shrink_lruvec, folio_referenced_one, folio_mark_accessed, workingset_refault",
        notes: "from the source only",
    }],
    options: OPTIONS,
    conformance: ORACLE,
    build: |options| TwoList::new(options, RULES_6_1),
};

/// 5.10.
pub const ENTRY_5_10: Entry<Build> = Entry {
    name: "linux-5.10",
    summary: "two lists as in 6.1; the age of an evicted page counts its own eviction",
    origin: &[Origin {
        kernels: "5.10",
        file: "mm/vmscan.c, mm/swap.c, mm/rmap.c, mm/workingset.c",
        function: "shrink_lruvec, page_referenced_one, mark_page_accessed, workingset_refault",
        notes: "from the source only",
    }],
    options: OPTIONS,
    conformance: ORACLE,
    build: |options| TwoList::new(options, Rules { counts_itself: true, ..RULES_6_1 }),
};

/// 4.4.
pub const ENTRY_4_4: Entry<Build> = Entry {
    name: "linux-4.4",
    summary: "two lists by exact counts: the active one shrinks while it is longer than the inactive one",
    origin: &[Origin {
        kernels: "4.4",
        file: "mm/vmscan.c, mm/swap.c, mm/workingset.c",
        function: "shrink_lruvec, inactive_file_is_low, page_check_references, mark_page_accessed",
        notes: "from the source only; refault distance and batches partly from memory",
    }],
    options: OPTIONS,
    conformance: "none: read in the source, no recorded vectors",
    build: |options| TwoList::new(options, RULES_4_4),
};

/// Makes the lists of one control group and node.
pub type Build = fn(&Options) -> TwoList;

/// Every kernel's two lists, by age.
pub const TWO_LISTS: &[&Entry<Build>] = &[&ENTRY_2_4, &ENTRY_2_6_6, &ENTRY_4_4, &ENTRY_5_10, &ENTRY_6_1, &ENTRY_6_18];

/// Where the kernels differ.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How lists are scanned.
    pub style: Style,
    /// Entries of a processor's batch.
    pub batch: usize,
    /// Which mappings count.
    pub recency: Recency,
    /// The inactive list may be the smaller, the more memory there is.
    pub scaled_ratio: bool,
    /// Folios that return early make the active list shrink.
    pub refaults_deactivate: bool,
    /// Decisions use statistics as last folded.
    pub stale: bool,
    /// A folio's own eviction is over when its age is taken.
    pub counts_itself: bool,
    /// A call that freed nothing begins again before it resorts to the active list.
    pub walks_twice: bool,
}

/// How the lists are scanned, and how pages are marked.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Style {
    /// By priorities, with the refault distance (since 3.15).
    Priorities,
    /// By counters of due pages (2.6.6).
    Counters,
    /// By the ratio of the lists (2.4).
    Ratio,
}

const RULES_6_18: Rules = Rules {
    style: Style::Priorities,
    batch: 31,
    recency: Recency::NotAdvised,
    scaled_ratio: true,
    refaults_deactivate: true,
    stale: true,
    counts_itself: false,
    walks_twice: true,
};

const RULES_6_1: Rules = Rules { batch: 15, recency: Recency::NotSequential, walks_twice: false, ..RULES_6_18 };

const RULES_4_4: Rules = Rules {
    style: Style::Priorities,
    batch: 14,
    recency: Recency::NotSequential,
    scaled_ratio: false,
    refaults_deactivate: false,
    stale: false,
    counts_itself: false,
    walks_twice: false,
};

/// Whose references reclaim believes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Recency {
    /// Not those through mappings with random or sequential advice, or of open files with `NOREUSE`; their accessed
    /// bits are not even looked at.
    NotAdvised,
    /// Not those through sequential mappings, although their accessed bits are cleared.
    NotSequential,
}

/// Most pages isolated at a time.
const ISOLATE: u64 = 32;
const GIB_PAGES: u64 = 1 << 18;
/// The lists by number.
const INACTIVE: u8 = 0;
const ACTIVE: u8 = 1;

/// The shadow of an evicted folio.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Shadow {
    pub age: u64,
    pub workingset: bool,
}

/// The page tables' state of a folio.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// Mappings that count in which one of its pages was used since the last look.
    pub nr_mappings: u32,
    /// One of these is executable.
    pub exec: bool,
}

/// Whether a folio can go.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Clean and free to go.
    Clean,
    /// Locked: it stays on its list. So does here what is dirty or being written.
    Busy,
}

/// The folios behind the lists: their page tables, and the cache they are evicted from. The driver implements it.
pub trait Folios {
    /// Looks at the page tables of a folio, and clears the bits it looks at.
    fn references(&mut self, folio: FolioId) -> References;

    /// Whether the folio can go.
    fn condition(&self, folio: FolioId) -> Condition;

    /// Whether any page of the folio is mapped (asked before 2.6.8).
    fn is_mapped(&self, _folio: FolioId) -> bool {
        false
    }

    /// Whether any page of the folio's file is, or could be: the file has a mapping (asked before 2.6.8).
    fn file_is_mapped(&self, folio: FolioId) -> bool {
        self.is_mapped(folio)
    }

    /// Unmaps the folio and removes it from the cache; its name may be used again from now on.
    fn evict(&mut self, folio: FolioId, shadow: Shadow);
}

/// Flags of a folio.
#[derive(Copy, Clone, Debug, Default)]
struct Marks {
    referenced: bool,
    /// It is on the active list, or is to enter it.
    active: bool,
    workingset: bool,
}

/// Statistics as decisions see them.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Statistics {
    active: u64,
    inactive: u64,
    /// Pages that became active as they returned.
    activated: u64,
}

/// The two lists of one control group and node.
#[derive(Clone, Debug)]
pub struct TwoList {
    rules: Rules,
    target: u64,
    chain: Chain<Marks, 2>,
    new: Batch,
    to_deactivate: Batch,
    to_activate: Batch,
    nonresident_age: u64,
    nr_activated: u64,
    folded: Statistics,
    /// Activations seen by the previous call of reclaim.
    activated_before: u64,
    counters: old::Counters,
}

impl TwoList {
    fn new(options: &Options, rules: Rules) -> TwoList {
        TwoList {
            rules,
            target: options.unsigned("min_reclaim_pages"),
            chain: Chain::new(rules.batch),
            new: Batch::new(),
            to_deactivate: Batch::new(),
            to_activate: Batch::new(),
            nonresident_age: 0,
            nr_activated: 0,
            folded: Statistics::default(),
            activated_before: 0,
            counters: old::Counters::default(),
        }
    }

    /// The rules these lists follow.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// Pages on the inactive list.
    pub fn nr_inactive(&self) -> u64 {
        self.chain.nr_pages(INACTIVE)
    }

    /// Pages on the active list.
    pub fn nr_active(&self) -> u64 {
        self.chain.nr_pages(ACTIVE)
    }

    /// Whether the folio was on the active list when it was evicted the last time, or was deactivated since.
    pub fn is_workingset(&self, folio: FolioId) -> bool {
        self.chain[folio].marks.workingset
    }

    /// An ordinary look-up found the folio: it will not be dropped behind any more.
    pub fn keep_behind(&mut self, folio: FolioId) {
        self.chain[folio].dropbehind = false;
    }

    /// `MADV_COLD`: the folio is not referenced any more, and moves to the inactive head if it is active.
    pub fn cool(&mut self, folio: FolioId) {
        let marks = &mut self.chain[folio].marks;
        marks.referenced = false;
        if marks.active && self.chain.is_listed(folio) && self.chain.enter(&mut self.to_deactivate, folio) {
            self.drain_to_deactivate();
        }
    }

    /// The folio leaves the cache for another reason than reclaim, and leaves no shadow.
    pub fn remove(&mut self, folio: FolioId) {
        for batch in [&mut self.new, &mut self.to_deactivate, &mut self.to_activate] {
            batch.retain(|other| *other != folio);
        }
        self.chain.release(folio);
    }

    /// Empties the processor's batches, as reclaim and some advice do first.
    pub fn drain(&mut self) {
        self.drain_new();
        self.drain_to_deactivate();
        self.drain_to_activate();
    }

    /// `MADV_PAGEOUT`: evicts these folios in this order, as far as they can go. Returns the pages freed.
    pub fn page_out(&mut self, list: &[FolioId], folios: &mut dyn Folios) -> u64 {
        self.drain();
        let mut nr_freed = 0;
        for &folio in list {
            if folios.condition(folio) == Condition::Clean {
                nr_freed += self.evict(folio, folios);
            }
        }
        nr_freed
    }

    fn exact(&self) -> Statistics {
        Statistics { active: self.nr_active(), inactive: self.nr_inactive(), activated: self.nr_activated }
    }

    fn statistics(&self) -> Statistics {
        if self.rules.stale { self.folded } else { self.exact() }
    }

    fn may_deactivate(&self) -> bool {
        let Statistics { active, inactive, activated } = self.statistics();
        let gib = (active + inactive) / GIB_PAGES;
        let ratio = if self.rules.scaled_ratio && gib > 0 { (10 * gib).isqrt() } else { 1 };
        let returned = self.rules.refaults_deactivate && activated != self.activated_before;
        returned || inactive * ratio < active
    }

    /// One priority's worth of both lists; the pages freed.
    fn scan(
        &mut self,
        priority: u32,
        target: u64,
        deactivate: bool,
        skipped: &mut bool,
        folios: &mut dyn Folios,
    ) -> u64 {
        let mut nr_inactive = self.nr_inactive() >> priority;
        let mut nr_active = self.nr_active() >> priority;
        let mut nr_freed = 0;
        while nr_inactive > 0 || nr_active > 0 {
            if nr_inactive > 0 {
                let nr_pages = nr_inactive.min(ISOLATE);
                nr_inactive -= nr_pages;
                nr_freed += self.scan_inactive(nr_pages, folios);
            }
            if nr_active > 0 {
                let nr_pages = nr_active.min(ISOLATE);
                nr_active -= nr_pages;
                if deactivate {
                    self.scan_active(nr_pages, folios);
                } else {
                    *skipped = true;
                }
            }
            if nr_freed >= target {
                break;
            }
        }
        nr_freed
    }

    fn scan_inactive(&mut self, nr_pages: u64, folios: &mut dyn Folios) -> u64 {
        let mut nr_freed = 0;
        let mut isolated = self.isolate(INACTIVE, nr_pages);
        isolated.retain(|&folio| {
            if folios.condition(folio) == Condition::Busy {
                return true;
            }
            let References { nr_mappings, exec } = folios.references(folio);
            let marks = &mut self.chain[folio].marks;
            let was_referenced = std::mem::replace(&mut marks.referenced, nr_mappings > 0);
            if nr_mappings == 0 {
                nr_freed += self.evict(folio, folios);
                return false;
            }
            marks.active = was_referenced || nr_mappings > 1 || exec;
            true
        });
        // Activations do not age what goes with the same look at the tail.
        isolated.into_iter().for_each(|folio| self.put_back(folio));
        nr_freed
    }

    fn scan_active(&mut self, nr_pages: u64, folios: &mut dyn Folios) {
        for folio in self.isolate(ACTIVE, nr_pages) {
            let References { nr_mappings, exec } = folios.references(folio);
            if nr_mappings == 0 || !exec {
                let marks = &mut self.chain[folio].marks;
                (marks.active, marks.workingset) = (false, true);
            }
            self.put_back(folio);
        }
    }

    /// Takes folios of `nr_pages` pages (or a little more) off the tail of a list, oldest first.
    fn isolate(&mut self, list: u8, nr_pages: u64) -> Vec<FolioId> {
        let (mut isolated, mut nr_taken) = (Vec::new(), 0);
        while nr_taken < nr_pages
            && let Some(folio) = self.chain.oldest(list)
        {
            nr_taken += self.chain[folio].nr_pages;
            self.chain.take_off(folio);
            isolated.push(folio);
        }
        isolated
    }

    /// Puts an isolated folio at the head of its list.
    fn put_back(&mut self, folio: FolioId) {
        let Node { nr_pages, marks: Marks { active, .. }, .. } = self.chain[folio];
        self.place(folio, active);
        if active {
            self.nonresident_age += nr_pages;
        }
    }

    /// Puts a folio at the head of a list, wherever it was.
    fn place(&mut self, folio: FolioId, active: bool) {
        self.chain[folio].marks.active = active;
        self.chain.put_newest(folio, if active { ACTIVE } else { INACTIVE });
    }

    /// Evicts a folio. Returns its pages.
    fn evict(&mut self, folio: FolioId, folios: &mut dyn Folios) -> u64 {
        let Node { nr_pages, marks: Marks { workingset, .. }, .. } = self.chain[folio];
        let before = self.nonresident_age;
        self.nonresident_age += nr_pages;
        let shadow = Shadow { age: if self.rules.counts_itself { self.nonresident_age } else { before }, workingset };
        self.chain.release(folio);
        folios.evict(folio, shadow);
        nr_pages
    }

    fn drain_new(&mut self) {
        while let Some(folio) = self.new.pop_front() {
            self.place(folio, self.chain[folio].marks.active);
        }
    }

    fn drain_to_deactivate(&mut self) {
        while let Some(folio) = self.to_deactivate.pop_front() {
            let marks = &mut self.chain[folio].marks;
            if marks.active {
                marks.referenced = false;
                self.place(folio, false);
            }
        }
    }

    fn drain_to_activate(&mut self) {
        while let Some(folio) = self.to_activate.pop_front() {
            if !self.chain[folio].marks.active {
                self.place(folio, true);
            }
        }
    }
}

impl Lists for TwoList {
    fn add(&mut self, nr_pages: u64, shadow: Option<Shadow>, dropbehind: bool) -> FolioId {
        let mut marks = Marks::default();
        if let Some(shadow) = shadow
            && self.rules.style == Style::Priorities
            && self.nonresident_age.wrapping_sub(shadow.age) <= self.statistics().active
        {
            (marks.active, marks.workingset) = (true, shadow.workingset);
            self.nonresident_age += nr_pages;
            self.nr_activated += nr_pages;
        }
        let folio = self.chain.add(nr_pages, dropbehind, marks);
        if self.chain.enter(&mut self.new, folio) {
            self.drain_new();
        }
        folio
    }

    fn mark_accessed(&mut self, folio: FolioId) {
        if self.rules.style != Style::Priorities {
            return self.mark_accessed_at_once(folio);
        }
        let is_new = !self.chain.is_listed(folio);
        let Node { nr_pages, dropbehind, ref mut marks, .. } = self.chain[folio];
        if dropbehind {
            return;
        }
        if !marks.referenced {
            marks.referenced = true;
            return;
        }
        if marks.active {
            return;
        }
        marks.referenced = false;
        self.nonresident_age += nr_pages;
        if is_new {
            marks.active = true;
        } else if self.chain.enter(&mut self.to_activate, folio) {
            self.drain_to_activate();
        }
    }

    fn fold(&mut self) {
        self.folded = self.exact();
    }

    fn reclaim(&mut self, nr_needed: u64, folios: &mut dyn Folios) -> u64 {
        self.drain();
        let target = nr_needed.max(self.target);
        match self.rules.style {
            Style::Priorities => {}
            Style::Counters => return self.reclaim_by_counters(target, folios),
            Style::Ratio => return self.reclaim_by_ratio(target, folios),
        }
        let (mut nr_freed, mut skipped) = (0, false);
        let first = if self.rules.walks_twice { 0 } else { 1 };
        for forced in &[false, false, true][first..] {
            if nr_freed > 0 || (*forced && !skipped) {
                break;
            }
            for priority in (0..=FIRST_PRIORITY).rev() {
                let deactivate = *forced || self.may_deactivate();
                nr_freed += self.scan(priority, target, deactivate, &mut skipped, folios);
                if nr_freed >= target {
                    break;
                }
            }
            self.activated_before = self.statistics().activated;
        }
        nr_freed
    }
}

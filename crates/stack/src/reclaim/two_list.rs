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

use super::Lists;
use crate::origin::{Entry, OptionSpec, Options, Origin};

pub use old::{ENTRY_2_4, ENTRY_2_6_6};

const ORACLE: &str = "`cargo xtask oracle`: the kernel's own code on random input";

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
    build: build_6_18,
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
    build: build_6_1,
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
    build: build_5_10,
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
    build: build_4_4,
};

/// Makes the lists of one control group and node.
pub type Build = fn(&Options) -> TwoList;

/// Every kernel's two lists, by age.
pub const TWO_LISTS: &[&Entry<Build>] = &[&ENTRY_2_4, &ENTRY_2_6_6, &ENTRY_4_4, &ENTRY_5_10, &ENTRY_6_1, &ENTRY_6_18];

const OPTIONS: &[OptionSpec] = &[OptionSpec::number(
    "min_reclaim_pages",
    32,
    (1, 4096),
    "pages that one call of reclaim frees at least (SWAP_CLUSTER_MAX)",
)];

fn build_6_18(options: &Options) -> TwoList {
    TwoList::new(options, RULES_6_18)
}

fn build_6_1(options: &Options) -> TwoList {
    TwoList::new(options, RULES_6_1)
}

fn build_5_10(options: &Options) -> TwoList {
    TwoList::new(options, Rules { counts_itself: true, ..RULES_6_1 })
}

fn build_4_4(options: &Options) -> TwoList {
    TwoList::new(options, RULES_4_4)
}

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

/// The priority that reclaim starts with: a 4096th of each list.
const FIRST_PRIORITY: u32 = 12;
/// Most pages isolated at a time.
const ISOLATE: u64 = 32;
const GIB_PAGES: u64 = 1 << 18;
/// End of a list.
const NONE: u32 = u32::MAX;

/// Names a folio on the lists.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FolioId(pub u32);

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

/// Where a folio is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Home {
    /// Nowhere: the name is free.
    Free,
    /// In the batch of new folios.
    New,
    /// On the inactive list.
    Inactive,
    /// On the active list.
    Active,
    /// Taken off by a scan.
    Isolated,
}

#[derive(Copy, Clone, Debug)]
struct Node {
    home: Home,
    /// The neighbour nearer to the head.
    newer: u32,
    /// The neighbour nearer to the tail.
    older: u32,
    nr_pages: u64,
    referenced: bool,
    active: bool,
    workingset: bool,
    dropbehind: bool,
}

/// A list of folios, and how many pages they have.
#[derive(Copy, Clone, Debug)]
struct List {
    newest: u32,
    oldest: u32,
    nr_pages: u64,
}

const EMPTY: List = List { newest: NONE, oldest: NONE, nr_pages: 0 };

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
    nodes: Vec<Node>,
    free: Vec<u32>,
    inactive: List,
    active: List,
    new: Vec<FolioId>,
    to_deactivate: Vec<FolioId>,
    to_activate: Vec<FolioId>,
    nonresident_age: u64,
    nr_activated: u64,
    folded: Statistics,
    /// Activations seen by the previous call of reclaim.
    activated_before: u64,
    isolated: Vec<FolioId>,
    counters: old::Counters,
}

impl TwoList {
    fn new(options: &Options, rules: Rules) -> TwoList {
        TwoList {
            rules,
            target: options.unsigned("min_reclaim_pages"),
            nodes: Vec::new(),
            free: Vec::new(),
            inactive: EMPTY,
            active: EMPTY,
            new: Vec::new(),
            to_deactivate: Vec::new(),
            to_activate: Vec::new(),
            nonresident_age: 0,
            nr_activated: 0,
            folded: Statistics::default(),
            activated_before: 0,
            isolated: Vec::new(),
            counters: old::Counters::default(),
        }
    }

    /// The rules these lists follow.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// Pages on the inactive list.
    pub fn nr_inactive(&self) -> u64 {
        self.inactive.nr_pages
    }

    /// Pages on the active list.
    pub fn nr_active(&self) -> u64 {
        self.active.nr_pages
    }

    /// Whether the folio was on the active list when it was evicted the last time, or was deactivated since.
    pub fn is_workingset(&self, folio: FolioId) -> bool {
        self.node(folio).workingset
    }

    /// Adds a folio to the cache. `shadow` is what its predecessor left; a `dropbehind` folio is never marked.
    pub fn add(&mut self, nr_pages: u64, shadow: Option<Shadow>, dropbehind: bool) -> FolioId {
        assert!(nr_pages > 0, "a folio has pages");
        let mut node = Node {
            home: Home::New,
            newer: NONE,
            older: NONE,
            nr_pages,
            referenced: false,
            active: false,
            workingset: false,
            dropbehind,
        };
        if let Some(shadow) = shadow
            && self.rules.style == Style::Priorities
            && self.nonresident_age.wrapping_sub(shadow.age) <= self.statistics().active
        {
            node.active = true;
            node.workingset = shadow.workingset;
            self.nonresident_age += nr_pages;
            self.nr_activated += nr_pages;
        }
        let folio = match self.free.pop() {
            Some(index) => {
                self.nodes[index as usize] = node;
                FolioId(index)
            }
            None => {
                self.nodes.push(node);
                FolioId(self.nodes.len() as u32 - 1)
            }
        };
        self.new.push(folio);
        if self.new.len() >= self.rules.batch || nr_pages > 1 {
            self.drain_new();
        }
        folio
    }

    /// A read (or the end of a mapping that used it) marks the folio.
    pub fn mark_accessed(&mut self, folio: FolioId) {
        if self.rules.style != Style::Priorities {
            return self.mark_accessed_at_once(folio);
        }
        let node = &mut self.nodes[folio.0 as usize];
        if node.dropbehind {
            return;
        }
        if !node.referenced {
            node.referenced = true;
            return;
        }
        if node.active {
            return;
        }
        node.referenced = false;
        if node.home == Home::New {
            node.active = true;
        } else {
            self.to_activate.push(folio);
        }
        self.nonresident_age += self.node(folio).nr_pages;
        if self.to_activate.len() >= self.rules.batch || self.node(folio).nr_pages > 1 {
            self.drain_to_activate();
        }
    }

    /// An ordinary look-up found the folio: it will not be dropped behind any more.
    pub fn keep_behind(&mut self, folio: FolioId) {
        self.nodes[folio.0 as usize].dropbehind = false;
    }

    /// `MADV_COLD`: the folio is not referenced any more, and moves to the inactive head if it is active.
    pub fn cool(&mut self, folio: FolioId) {
        let node = &mut self.nodes[folio.0 as usize];
        node.referenced = false;
        if node.active && node.home != Home::New {
            self.to_deactivate.push(folio);
            if self.to_deactivate.len() >= self.rules.batch || self.node(folio).nr_pages > 1 {
                self.drain_to_deactivate();
            }
        }
    }

    /// The folio leaves the cache for another reason than reclaim, and leaves no shadow.
    pub fn remove(&mut self, folio: FolioId) {
        for batch in [&mut self.new, &mut self.to_deactivate, &mut self.to_activate] {
            batch.retain(|other| *other != folio);
        }
        self.unlink(folio);
        self.release(folio);
    }

    /// Empties the processor's batches, as reclaim and some advice do first.
    pub fn drain(&mut self) {
        self.drain_new();
        self.drain_to_deactivate();
        self.drain_to_activate();
    }

    /// The worker folds the statistics (every two seconds), or a reader of them does.
    pub fn fold(&mut self) {
        self.folded = self.exact();
    }

    /// One call of reclaim for `nr_needed` pages. Returns how many it freed.
    pub fn reclaim(&mut self, nr_needed: u64, folios: &mut dyn Folios) -> u64 {
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

    /// `MADV_PAGEOUT`: evicts these folios in this order, as far as they can go. Returns the pages freed.
    pub fn page_out(&mut self, list: &[FolioId], folios: &mut dyn Folios) -> u64 {
        self.drain();
        let mut nr_freed = 0;
        for &folio in list {
            if folios.condition(folio) == Condition::Clean {
                nr_freed += self.node(folio).nr_pages;
                self.unlink(folio);
                self.evict(folio, folios);
            }
        }
        nr_freed
    }

    fn node(&self, folio: FolioId) -> &Node {
        &self.nodes[folio.0 as usize]
    }

    fn exact(&self) -> Statistics {
        Statistics { active: self.active.nr_pages, inactive: self.inactive.nr_pages, activated: self.nr_activated }
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
        let mut nr_inactive = self.inactive.nr_pages >> priority;
        let mut nr_active = self.active.nr_pages >> priority;
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
        let isolated = self.isolate(Home::Inactive, nr_pages);
        let mut nr_freed = 0;
        for &folio in &isolated {
            let condition = folios.condition(folio);
            if condition == Condition::Clean {
                let References { nr_mappings, exec } = folios.references(folio);
                let node = &mut self.nodes[folio.0 as usize];
                let was_referenced = std::mem::replace(&mut node.referenced, nr_mappings > 0);
                if nr_mappings == 0 {
                    nr_freed += node.nr_pages;
                    self.evict(folio, folios);
                    continue;
                }
                node.active = was_referenced || nr_mappings > 1 || exec;
            }
        }
        // Activations do not age what goes with the same look at the tail.
        for &folio in &isolated {
            if self.node(folio).home == Home::Isolated {
                self.put_back(folio);
            }
        }
        self.isolated = isolated;
        nr_freed
    }

    fn scan_active(&mut self, nr_pages: u64, folios: &mut dyn Folios) {
        let isolated = self.isolate(Home::Active, nr_pages);
        for &folio in &isolated {
            let References { nr_mappings, exec } = folios.references(folio);
            let node = &mut self.nodes[folio.0 as usize];
            if nr_mappings == 0 || !exec {
                (node.active, node.workingset) = (false, true);
            }
            self.put_back(folio);
        }
        self.isolated = isolated;
    }

    /// Takes folios of `nr_pages` pages (or a little more) off the tail of a list, oldest first.
    fn isolate(&mut self, home: Home, nr_pages: u64) -> Vec<FolioId> {
        let mut isolated = std::mem::take(&mut self.isolated);
        isolated.clear();
        let mut nr_taken = 0;
        while nr_taken < nr_pages {
            let oldest = if home == Home::Active { self.active.oldest } else { self.inactive.oldest };
            if oldest == NONE {
                break;
            }
            nr_taken += self.nodes[oldest as usize].nr_pages;
            self.unlink(FolioId(oldest));
            isolated.push(FolioId(oldest));
        }
        isolated
    }

    /// Puts an isolated folio at the head of its list.
    fn put_back(&mut self, folio: FolioId) {
        let Node { active, nr_pages, .. } = *self.node(folio);
        self.link(folio, if active { Home::Active } else { Home::Inactive });
        if active {
            self.nonresident_age += nr_pages;
        }
    }

    fn evict(&mut self, folio: FolioId, folios: &mut dyn Folios) {
        let Node { nr_pages, workingset, .. } = *self.node(folio);
        let before = self.nonresident_age;
        self.nonresident_age += nr_pages;
        let shadow = Shadow { age: if self.rules.counts_itself { self.nonresident_age } else { before }, workingset };
        self.release(folio);
        folios.evict(folio, shadow);
    }

    fn release(&mut self, folio: FolioId) {
        self.nodes[folio.0 as usize].home = Home::Free;
        self.free.push(folio.0);
    }

    fn drain_new(&mut self) {
        let mut batch = std::mem::take(&mut self.new);
        for folio in batch.drain(..) {
            let home = if self.node(folio).active { Home::Active } else { Home::Inactive };
            self.link(folio, home);
        }
        self.new = batch;
    }

    fn drain_to_deactivate(&mut self) {
        let mut batch = std::mem::take(&mut self.to_deactivate);
        for folio in batch.drain(..) {
            if self.node(folio).active {
                self.unlink(folio);
                let node = &mut self.nodes[folio.0 as usize];
                (node.active, node.referenced) = (false, false);
                self.link(folio, Home::Inactive);
            }
        }
        self.to_deactivate = batch;
    }

    fn drain_to_activate(&mut self) {
        let mut batch = std::mem::take(&mut self.to_activate);
        for folio in batch.drain(..) {
            if !self.node(folio).active {
                self.unlink(folio);
                self.nodes[folio.0 as usize].active = true;
                self.link(folio, Home::Active);
            }
        }
        self.to_activate = batch;
    }

    /// Puts a folio that is on no list at the head of one.
    fn link(&mut self, folio: FolioId, home: Home) {
        let list = if home == Home::Active { &mut self.active } else { &mut self.inactive };
        let node = &mut self.nodes[folio.0 as usize];
        debug_assert!(matches!(node.home, Home::New | Home::Isolated), "{folio:?} is on a list already");
        (node.home, node.newer, node.older) = (home, NONE, list.newest);
        list.nr_pages += node.nr_pages;
        let next = std::mem::replace(&mut list.newest, folio.0);
        match next {
            NONE => list.oldest = folio.0,
            next => self.nodes[next as usize].newer = folio.0,
        }
    }

    /// Takes a folio off its list, if it is on one.
    fn unlink(&mut self, folio: FolioId) {
        let Node { home, newer, older, nr_pages, .. } = *self.node(folio);
        let list = match home {
            Home::Active => &mut self.active,
            Home::Inactive => &mut self.inactive,
            Home::Free | Home::New | Home::Isolated => return,
        };
        list.nr_pages -= nr_pages;
        match newer {
            NONE => list.newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => list.oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
        self.nodes[folio.0 as usize].home = Home::Isolated;
    }
}

impl Lists for TwoList {
    fn add(&mut self, nr_pages: u64, shadow: Option<Shadow>, dropbehind: bool) -> FolioId {
        self.add(nr_pages, shadow, dropbehind)
    }

    fn mark_accessed(&mut self, folio: FolioId) {
        self.mark_accessed(folio);
    }

    fn fold(&mut self) {
        self.fold();
    }

    fn reclaim(&mut self, nr_needed: u64, folios: &mut dyn Folios) -> u64 {
        self.reclaim(nr_needed, folios)
    }
}

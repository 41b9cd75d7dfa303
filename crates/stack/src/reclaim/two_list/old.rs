//! The two lists of 2.4.25 and 2.6.6, before refault distances and control groups.
//!
//! 2.6.6: priorities 12 to 0 until 32 pages are free. At each, a counter grows by the active pages due,
//! `32 * active / ((inactive | 1) * 2) + 1`, and one by the inactive list shifted by the priority; a counter that has
//! reached 32 is worked off and starts at 0. Active pages go to the inactive head, used or not, unless they are mapped:
//! mapped ones stay while reclaim is at ease (half the mapped percentage, 100 shifted by the priority reached last time
//! and swappiness 60 make less than 100), and after that if used. An inactive page that was used goes to the active
//! list if it, or any page of its file, is mapped; all others go.
//!
//! 2.4.25: up to 60 passes until 32 pages are free. Each moves `n * active / (2 * inactive + 1)` pages from the active
//! tail, where `n` is the number still wanted; a referenced one goes to the active head instead, a moved one is marked
//! referenced, so that one touch brings it back. Then at most a sixth of both lists is looked at from the inactive
//! tail: busy or mapped pages are passed over, the rest goes, referenced or not. After `100 * n` mapped pages, those
//! that no page table has used go too.
//!
//! Source: Linux 2.6.6 and 2.4.25, mm/vmscan.c (`shrink_zone`, `refill_inactive_zone`, `shrink_list`;
//! `shrink_caches`, `refill_inactive`, `shrink_cache`), mm/swap.c (`mark_page_accessed`).
//!
//! Known deviations: one zone; a driver marks pages as it likes, while these kernels mark a page only when its first
//! byte is copied; the walk over page tables of 2.4 (`swap_out`) unmaps nothing ahead; busy pages are not examined for
//! use.

use super::{ACTIVE, Build, Condition, FolioId, Folios, INACTIVE, ISOLATE, Node, RULES_4_4, Rules, Style, TwoList};
use crate::origin::{Entry, Origin};
use crate::reclaim::{FIRST_PRIORITY, OPTIONS};

const FROM_SOURCE: &str = "none: read in the source, no recorded vectors; examples worked by hand";

/// 2.6.6.
pub const ENTRY_2_6_6: Entry<Build> = Entry {
    name: "linux-2.6.6",
    summary: "two lists by counters; unmapped active pages age whether used or not",
    origin: &[Origin {
        kernels: "2.6.5 .. 2.6.7",
        file: "mm/vmscan.c, mm/swap.c",
        function: "shrink_zone, refill_inactive_zone, shrink_list, mark_page_accessed",
        notes: "from the source only; the batch of 16 from memory",
    }],
    options: OPTIONS,
    conformance: FROM_SOURCE,
    build: |options| TwoList::new(options, Rules { batch: 16, style: Style::Counters, ..RULES_4_4 }),
};

/// 2.4.25.
pub const ENTRY_2_4: Entry<Build> = Entry {
    name: "linux-2.4.25",
    summary: "two global lists by ratio; a sixth of them looked at in each of up to 60 passes",
    origin: &[Origin {
        kernels: "2.4.23 .. 2.4.27",
        file: "mm/vmscan.c, mm/swap.c",
        function: "shrink_caches, refill_inactive, shrink_cache, mark_page_accessed",
        notes: "from the source only; the 60 passes from memory",
    }],
    options: OPTIONS,
    conformance: FROM_SOURCE,
    build: |options| TwoList::new(options, Rules { batch: 1, style: Style::Ratio, ..RULES_4_4 }),
};

/// State that 2.6.6 keeps between calls of reclaim.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Counters {
    active: u64,
    inactive: u64,
    /// How far the priority went down the last time, from 12.
    urgency: u32,
}

/// `vm_swappiness`.
const SWAPPINESS: u64 = 60;
/// `vm_passes`, `vm_cache_scan_ratio`, `vm_lru_balance_ratio` and `vm_mapped_ratio`.
const PASSES: u32 = 60;
const SCAN_RATIO: u64 = 6;
const BALANCE_RATIO: u64 = 2;
const MAPPED_RATIO: u64 = 100;

impl TwoList {
    /// `mark_page_accessed` before there were batches of pages to activate.
    pub(super) fn mark_accessed_at_once(&mut self, folio: FolioId) {
        let listed = self.chain.is_listed(folio);
        let marks = &mut self.chain[folio].marks;
        if marks.referenced && !marks.active && listed {
            marks.referenced = false;
            self.place(folio, true);
        } else {
            marks.referenced = true;
        }
    }

    /// `try_to_free_pages` of 2.6.6.
    pub(super) fn reclaim_by_counters(&mut self, target: u64, folios: &mut dyn Folios) -> u64 {
        let ease = self.mapped_pct(folios) / 2 + (100 >> (FIRST_PRIORITY - self.counters.urgency)) + SWAPPINESS;
        let mut nr_freed = 0;
        for priority in (0..=FIRST_PRIORITY).rev() {
            self.counters.urgency = FIRST_PRIORITY - priority;
            let (active, inactive) = (self.nr_active(), self.nr_inactive());
            self.counters.active += ISOLATE * active / ((inactive | 1) * 2) + 1;
            if self.counters.active >= ISOLATE {
                let nr_pages = std::mem::take(&mut self.counters.active);
                self.age_active(nr_pages, ease >= 100, folios);
            }
            self.counters.inactive += inactive >> priority;
            if self.counters.inactive >= ISOLATE {
                let nr_pages = std::mem::take(&mut self.counters.inactive);
                nr_freed += self.shrink_inactive(nr_pages, folios);
            }
            if nr_freed >= target {
                break;
            }
        }
        nr_freed
    }

    fn mapped_pct(&self, folios: &dyn Folios) -> u64 {
        let listed = self.chain.oldest_first(ACTIVE).chain(self.chain.oldest_first(INACTIVE));
        let mapped: u64 = listed.filter(|folio| folios.is_mapped(*folio)).map(|folio| self.chain[folio].nr_pages).sum();
        100 * mapped / (self.nr_active() + self.nr_inactive()).max(1)
    }

    fn age_active(&mut self, nr_pages: u64, take_mapped: bool, folios: &mut dyn Folios) {
        for folio in self.isolate(ACTIVE, nr_pages) {
            let stays = folios.is_mapped(folio) && (!take_mapped || self.take_referenced(folio, folios));
            self.place(folio, stays);
        }
    }

    /// Whether the page was used, by its flag or through a mapping; both are cleared.
    fn take_referenced(&mut self, folio: FolioId, folios: &mut dyn Folios) -> bool {
        let used = folios.references(folio).nr_mappings > 0;
        std::mem::take(&mut self.chain[folio].marks.referenced) || used
    }

    fn shrink_inactive(&mut self, nr_pages: u64, folios: &mut dyn Folios) -> u64 {
        let (mut left, mut nr_freed) = (nr_pages, 0);
        while left > 0 && self.nr_inactive() > 0 {
            let nr_pages = left.min(ISOLATE);
            left -= nr_pages;
            for folio in self.isolate(INACTIVE, nr_pages) {
                let busy = folios.condition(folio) == Condition::Busy;
                let used = !busy && self.take_referenced(folio, folios);
                if busy || (used && folios.file_is_mapped(folio)) {
                    self.place(folio, used);
                } else {
                    nr_freed += self.evict(folio, folios);
                }
            }
        }
        nr_freed
    }

    /// `try_to_free_pages_zone` of 2.4.25.
    pub(super) fn reclaim_by_ratio(&mut self, target: u64, folios: &mut dyn Folios) -> u64 {
        let mut wanted = target;
        let mut nr_freed = 0;
        for _ in 0..PASSES {
            self.refill_by_ratio(wanted);
            let freed = self.shrink_a_sixth(wanted, folios);
            nr_freed += freed;
            wanted = wanted.saturating_sub(freed);
            if wanted == 0 {
                break;
            }
        }
        nr_freed
    }

    fn refill_by_ratio(&mut self, wanted: u64) {
        let mut to_move = wanted * self.nr_active() / (self.nr_inactive() * BALANCE_RATIO + 1);
        while to_move > 0
            && let Some(folio) = self.chain.oldest(ACTIVE)
        {
            let Node { nr_pages, ref mut marks, .. } = self.chain[folio];
            if std::mem::take(&mut marks.referenced) {
                self.place(folio, true);
                let alone = nr_pages == self.nr_active();
                if alone {
                    break;
                }
                continue;
            }
            marks.referenced = true;
            self.place(folio, false);
            to_move -= 1;
        }
    }

    fn shrink_a_sixth(&mut self, wanted: u64, folios: &mut dyn Folios) -> u64 {
        let mut to_scan = (self.nr_inactive() + self.nr_active()) / SCAN_RATIO;
        let mut mapped_left = MAPPED_RATIO * wanted;
        let mut nr_freed = 0;
        while to_scan > 0
            && nr_freed < wanted
            && let Some(folio) = self.chain.oldest(INACTIVE)
        {
            to_scan -= 1;
            let mut goes = folios.condition(folio) == Condition::Clean;
            if goes && folios.is_mapped(folio) {
                goes = mapped_left == 0 && folios.references(folio).nr_mappings == 0;
                mapped_left = mapped_left.saturating_sub(1);
            }
            if goes {
                nr_freed += self.evict(folio, folios);
            } else {
                self.place(folio, false);
            }
        }
        nr_freed
    }
}

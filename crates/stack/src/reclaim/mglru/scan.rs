//! How reclaim scans the generations at one priority: ageing, sorting, eviction, return.

use super::{
    FEWEST_GENERATIONS, FIRST_PRIORITY, LEAST_BATCH, MOST_BATCH, Mglru, Node, Pass, REFS_BITS, Reads, count_read,
    index_of,
};
use crate::reclaim::two_list::{Condition, FolioId, Folios, References, Shadow};

impl Mglru {
    /// One priority's worth of the generations.
    pub(super) fn scan(&mut self, priority: u32, target: u64, nr_freed: &mut u64, folios: &mut dyn Folios) {
        match self.rules.pass {
            Pass::Share => self.scan_share(priority, nr_freed, folios),
            Pass::UntilAged => self.scan_until_aged(priority, target, nr_freed, folios),
            Pass::Batches => self.scan_in_batches(priority, target, nr_freed, folios),
        }
    }

    fn scan_share(&mut self, priority: u32, nr_freed: &mut u64, folios: &mut dyn Folios) {
        let (first, mut scanned) = (self.youngest, 0);
        loop {
            let share = self.all_pages() >> priority;
            if self.is_unbalanced() {
                if priority != FIRST_PRIORITY {
                    self.age();
                } else if self.nr_generations() <= FEWEST_GENERATIONS {
                    return;
                }
            }
            if share == 0 {
                return;
            }
            let seen = self.evict(MOST_BATCH, nr_freed, folios);
            scanned += seen;
            if seen == 0 || scanned >= share || self.youngest - first > 1 {
                return;
            }
        }
    }

    fn scan_until_aged(&mut self, priority: u32, target: u64, nr_freed: &mut u64, folios: &mut dyn Folios) {
        let mut scanned = 0;
        loop {
            if self.is_unbalanced() {
                if priority != FIRST_PRIORITY {
                    self.age();
                    return;
                }
                if self.nr_generations() <= FEWEST_GENERATIONS {
                    return;
                }
            }
            let share = self.all_pages() >> priority;
            if share == 0 {
                return;
            }
            let seen = self.evict(MOST_BATCH, nr_freed, folios);
            scanned += seen;
            if seen == 0 || scanned >= share || *nr_freed >= target {
                return;
            }
        }
    }

    fn scan_in_batches(&mut self, priority: u32, target: u64, nr_freed: &mut u64, folios: &mut dyn Folios) {
        let mut share = self.all_pages() >> priority;
        while share > 0 {
            let nr = self.nr_generations();
            if nr <= FEWEST_GENERATIONS || (priority != FIRST_PRIORITY && nr == FEWEST_GENERATIONS + 1) {
                self.age();
            }
            let seen = self.evict(share.min(LEAST_BATCH), nr_freed, folios);
            if seen == 0 || *nr_freed >= target {
                return;
            }
            share = share.saturating_sub(seen);
        }
    }

    fn all_pages(&self) -> u64 {
        self.seqs().map(|seq| self.nr_pages(seq)).sum()
    }

    /// Whether a new generation is due: there are too few, or of three the youngest has more than half of all pages or
    /// the oldest less than a quarter.
    fn is_unbalanced(&self) -> bool {
        let nr = self.nr_generations();
        if nr != FEWEST_GENERATIONS + 1 {
            return nr <= FEWEST_GENERATIONS;
        }
        let all = self.all_pages();
        self.nr_pages(self.youngest) * FEWEST_GENERATIONS > all
            || self.nr_pages(self.youngest - FEWEST_GENERATIONS) * (FEWEST_GENERATIONS + 2) < all
    }

    /// Evicts up to 64 pages of the oldest generation. Returns the pages looked at, or 0 if there is nothing left to do
    /// at this priority.
    fn evict(&mut self, most: u64, nr_freed: &mut u64, folios: &mut dyn Folios) -> u64 {
        let all = self.rules.reads == Reads::All;
        if all {
            self.end_empty_generations();
        }
        let (isolated, mut seen) = self.isolate(most, folios);
        let ended = (!all || seen > 0) && self.end_empty_generations();
        if !all {
            seen = if self.nr_generations() == FEWEST_GENERATIONS { 0 } else { seen + u64::from(ended) };
        }
        let kept = self.shrink(isolated, nr_freed, folios);
        // What is kept for no reason of its own is tried again.
        let is_tried_again =
            |lists: &Mglru, folio: FolioId| all && !lists.marks(folio).active && !folios.is_mapped(folio);
        let (again, kept): (Vec<_>, Vec<_>) = kept.into_iter().partition(|folio| is_tried_again(self, *folio));
        self.put_back(&kept);
        let kept = self.shrink(again, nr_freed, folios);
        self.put_back(&kept);
        seen
    }

    /// Takes folios off the tail of the oldest generation, oldest first, and sorts those that do not go. Also returns
    /// the pages looked at.
    fn isolate(&mut self, most: u64, folios: &mut dyn Folios) -> (Vec<FolioId>, u64) {
        let (mut isolated, mut nr_isolated, mut seen) = (Vec::new(), 0, 0);
        if self.nr_generations() == FEWEST_GENERATIONS {
            return (isolated, 0);
        }
        let (oldest, last_tier) = (index_of(self.oldest), self.last_tier());
        let mut left = most;
        while let Some(folio) = self.chain.oldest(oldest) {
            let nr_pages = self.chain[folio].nr_pages;
            seen += nr_pages;
            if !self.sort(folio, last_tier, folios) {
                self.unlink(folio);
                let marks = &mut self.chain[folio].marks;
                match self.rules.reads {
                    Reads::BeyondFirst if !marks.referenced => (marks.refs, marks.workingset) = (0, false),
                    Reads::BeyondFirst => marks.referenced = false,
                    Reads::All if !marks.referenced => marks.refs = 0,
                    Reads::All => {}
                }
                isolated.push(folio);
                nr_isolated += nr_pages;
            }
            left -= 1;
            if left == 0 || nr_isolated >= LEAST_BATCH {
                break;
            }
        }
        let in_vain = self.rules.reads == Reads::BeyondFirst && nr_isolated == 0 && left > 0;
        (isolated, if in_vain { 0 } else { seen })
    }

    /// Moves a folio that is not to be evicted to another generation; whether it was one.
    fn sort(&mut self, folio: FolioId, last_tier: usize, folios: &mut dyn Folios) -> bool {
        let Node { nr_pages, marks, .. } = self.chain[folio];
        let (_, tier) = self.reads(marks);
        let all = self.rules.reads == Reads::All;
        if let Some(generation) = marks.generation
            && generation != index_of(self.oldest)
        {
            self.chain.put_newest(folio, generation);
        } else if tier > last_tier || self.is_full(marks) {
            let generation = self.move_on(folio);
            if all {
                self.chain.put_newest(folio, generation)
            } else {
                self.chain.put_oldest(folio, generation)
            }
            if !all || !self.is_full(marks) {
                self.tiers[tier].protected += nr_pages;
            }
        } else if self.rules.sorts_busy && folios.condition(folio) == Condition::Busy {
            let generation = self.move_on(folio);
            self.chain.put_newest(folio, generation);
        } else {
            return false;
        }
        true
    }

    /// Evicts isolated folios as far as they can go. Returns the others.
    fn shrink(&mut self, isolated: Vec<FolioId>, nr_freed: &mut u64, folios: &mut dyn Folios) -> Vec<FolioId> {
        let mut kept = Vec::new();
        for folio in isolated {
            if folios.condition(folio) == Condition::Busy {
                kept.push(folio);
                continue;
            }
            let References { nr_mappings, exec } = folios.references(folio);
            if nr_mappings == 0 {
                *nr_freed += self.chain[folio].nr_pages;
                self.release(folio, folios);
                continue;
            }
            let marks = &mut self.chain[folio].marks;
            match self.rules.reads {
                Reads::BeyondFirst => (marks.referenced, marks.active) = (true, nr_mappings > 1 || exec),
                Reads::All if !marks.referenced && !marks.workingset => (marks.refs, marks.referenced) = (0, true),
                Reads::All => {
                    if marks.referenced && marks.refs > 0 {
                        (marks.refs, marks.referenced, marks.workingset) = (0, false, true);
                    } else {
                        count_read(marks);
                    }
                    marks.active = true;
                }
            }
            kept.push(folio);
        }
        kept
    }

    fn release(&mut self, folio: FolioId, folios: &mut dyn Folios) {
        let Node { nr_pages, marks, .. } = self.chain[folio];
        let (refs, tier) = self.reads(marks);
        let workingset = if self.rules.reads == Reads::All { marks.workingset } else { refs > 0 };
        self.tiers[tier].evicted += nr_pages;
        self.chain.release(folio);
        let age = self.oldest << REFS_BITS | u64::from(refs.saturating_sub(1));
        folios.evict(folio, Shadow { age, workingset });
    }

    /// Isolated folios return, but not to the oldest generation.
    fn put_back(&mut self, kept: &[FolioId]) {
        for &folio in kept {
            let is_oldest = self.seq_for(self.marks(folio)) == self.oldest;
            let marks = &mut self.chain[folio].marks;
            match self.rules.reads {
                Reads::BeyondFirst => {
                    (marks.refs, marks.referenced, marks.workingset, marks.active) = (0, false, false, true);
                }
                Reads::All if is_oldest => (marks.refs, marks.referenced, marks.active) = (0, false, true),
                Reads::All => {}
            }
            self.link(folio);
        }
    }
}

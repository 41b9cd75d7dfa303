//! Generations (MGLRU, `CONFIG_LRU_GEN`): which folios a control group at its limit gives up, and in which order.
//!
//! There are two to four generations. A new folio goes to an old one, a folio that a fault brought in to a young one.
//! `read(2)` only counts on the folio itself; its tier grows with the logarithm of the reads. Reclaim walks the oldest
//! generation from its tail: a folio that was promoted meanwhile goes to its own generation; one whose tier is above
//! the last tier in use goes to the next generation and loses its reads; the others are evicted, unless page tables
//! used them. That last tier is found by feedback: of each tier it is known how many pages were evicted or moved on,
//! and how many of those evicted returned soon; a tier that returns more often, in proportion, than the first is kept.
//! Half of these counts stays when a generation ends. An oldest generation that is empty ends as long as there are
//! three; when there are too few, or their sizes are out of balance, reclaim begins a new one (ageing).
//! A call of reclaim scans at priority 12 (a 4096th of all pages), then 11, and so on until 32 pages are free.
//!
//! Source: Linux 6.1, 6.12 and 7.2, mm/vmscan.c (`lru_gen_shrink_lruvec`, `evict_folios`, `sort_folio`, `get_tier_idx`,
//! `inc_max_seq`), mm/swap.c (`folio_inc_refs`, `lru_gen_inc_refs`), mm/workingset.c (`lru_gen_refault`),
//! include/linux/mm_inline.h (`lru_gen_add_folio`).
//!
//! Known deviations: one processor, one group at its own limit, no anonymous pages, no swap, no writeback (what is
//! dirty or being written counts as locked), no least time to live. Page tables are not walked, and the neighbours of
//! a page found used are not looked at: a driver promotes folios. Statistics of past generations
//! (`CONFIG_LRU_GEN_STATS`) are off.

mod scan;

use std::ops::RangeInclusive;

use super::chain::{Batch, Chain, FolioId, Node};
use super::two_list::{Folios, Shadow};
use super::{FIRST_PRIORITY, Lists, OPTIONS, ORACLE};
use crate::origin::{Entry, Options, Origin};

/// 7.2.
pub const ENTRY_7_2: Entry<Build> = Entry {
    name: "mglru-7.2",
    summary: "generations; every read counts, five make the workingset; marks select the generation of a new folio",
    origin: &[Origin {
        kernels: "7.2",
        file: "mm/vmscan.c, mm/swap.c, mm/workingset.c, include/linux/mm_inline.h",
        function: "lru_gen_shrink_lruvec, lru_gen_inc_refs, lru_gen_refault, lru_gen_folio_seq",
        notes: "from the source only; these rules are younger than 6.12",
    }],
    options: OPTIONS,
    conformance: ORACLE,
    build: |options| Mglru::new(options, RULES_7_2),
};

/// 6.12.
pub const ENTRY_6_12: Entry<Build> = Entry {
    name: "mglru-6.12",
    summary: "generations; reads beyond the first count; a scan ends when it begins a generation",
    origin: &[Origin {
        kernels: "6.12",
        file: "mm/vmscan.c, mm/swap.c, mm/workingset.c, include/linux/mm_inline.h",
        function: "lru_gen_shrink_lruvec, folio_inc_refs, lru_gen_refault, lru_gen_add_folio",
        notes: "from the source only",
    }],
    options: OPTIONS,
    conformance: ORACLE,
    build: |options| Mglru::new(options, RULES_6_12),
};

/// 6.1.
pub const ENTRY_6_1: Entry<Build> = Entry {
    name: "mglru-6.1",
    summary: "generations as in 6.12; a scan goes on after it began one, up to its share",
    origin: &[Origin {
        kernels: "6.1",
        file: "mm/vmscan.c, mm/swap.c, mm/workingset.c, include/linux/mm_inline.h",
        function: "lru_gen_shrink_lruvec, folio_inc_refs, lru_gen_refault, lru_gen_add_folio",
        notes: "from the source only",
    }],
    options: OPTIONS,
    conformance: ORACLE,
    build: |options| Mglru::new(options, RULES_6_1),
};

/// Makes the generations of one control group and node.
pub type Build = fn(&Options) -> Mglru;

/// Every kernel's generations, by age.
pub const MGLRUS: &[&Entry<Build>] = &[&ENTRY_6_1, &ENTRY_6_12, &ENTRY_7_2];

/// Where the kernels differ.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Entries of a processor's batch.
    pub batch: usize,
    /// Which reads count.
    pub reads: Reads,
    /// How far a scan goes.
    pub pass: Pass,
    /// A locked folio moves on to the next generation, and is not tried.
    pub sorts_busy: bool,
    /// A folio that enters the youngest generation loses its reads.
    pub young_forgets: bool,
    /// A call that freed nothing begins again.
    pub walks_twice: bool,
}

/// Which reads count, and what they do.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Those beyond the first; the second one makes a folio part of the workingset, which only counts as one more.
    BeyondFirst,
    /// All; the fifth one makes a folio part of the workingset, which is the last tier. The marks of a folio select its
    /// generation, and an eviction is recent for four of these.
    All,
}

/// How far a scan at one priority goes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Until it has seen its share, which follows the size; it begins at most two generations.
    Share,
    /// Until it has seen its share, has freed enough, or has begun a generation.
    UntilAged,
    /// Until its first share is seen or enough is free, in batches of 64 folios; sizes do not matter to ageing.
    Batches,
}

const RULES_6_1: Rules = Rules {
    batch: 15,
    reads: Reads::BeyondFirst,
    pass: Pass::Share,
    sorts_busy: true,
    young_forgets: false,
    walks_twice: false,
};

const RULES_6_12: Rules = Rules {
    batch: 31,
    reads: Reads::BeyondFirst,
    pass: Pass::UntilAged,
    sorts_busy: false,
    young_forgets: true,
    walks_twice: true,
};

const RULES_7_2: Rules = Rules { reads: Reads::All, pass: Pass::Batches, young_forgets: false, ..RULES_6_12 };

/// Generations: most of them, and fewest.
const MOST_GENERATIONS: u64 = 4;
const FEWEST_GENERATIONS: u64 = 2;
const NR_TIERS: usize = 4;
/// Pages isolated at a time, and returns from which on a tier is judged.
const LEAST_BATCH: u64 = 64;
/// Most folios looked at in one go.
const MOST_BATCH: u64 = 4096;
/// The counter of reads has two bits.
const REFS_BITS: u32 = 2;
const MOST_REFS: u8 = (1 << REFS_BITS) - 1;
/// Flags and counter of a folio.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The index of its generation (the number modulo 4), which may be another than that of its list.
    pub generation: Option<u8>,
    /// Reads counted beyond the flags.
    pub refs: u8,
    pub referenced: bool,
    pub workingset: bool,
    /// It is to enter a young generation.
    pub active: bool,
}

/// Counts of pages of a tier.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Tier {
    /// Of past generations, each weighing half as much as the next.
    pub average_refaulted: u64,
    pub average_total: u64,
    /// Evicted pages that came back soon.
    pub refaulted: u64,
    pub evicted: u64,
    /// Moved to the next generation instead.
    pub protected: u64,
}

impl Tier {
    fn all_refaulted(self) -> u64 {
        self.average_refaulted + self.refaulted
    }

    fn all(self) -> u64 {
        self.average_total + self.evicted + self.protected
    }
}

/// The generations of one control group and node.
#[derive(Clone, Debug)]
pub struct Mglru {
    rules: Rules,
    target: u64,
    /// The numbers of the oldest and the youngest generation.
    oldest: u64,
    youngest: u64,
    /// By the generation's number modulo 4: the folios on its list, and the pages of those that belong to it.
    chain: Chain<Marks, { MOST_GENERATIONS as usize }>,
    sizes: [u64; MOST_GENERATIONS as usize],
    tiers: [Tier; NR_TIERS],
    new: Batch,
    to_deactivate: Batch,
}

fn index_of(seq: u64) -> u8 {
    (seq % MOST_GENERATIONS) as u8
}

/// The power of two that is not below `n`, as an exponent.
fn log2_up(n: u32) -> usize {
    n.next_power_of_two().trailing_zeros() as usize
}

impl Mglru {
    fn new(options: &Options, rules: Rules) -> Mglru {
        Mglru {
            rules,
            target: options.unsigned("min_reclaim_pages"),
            oldest: 0,
            youngest: FEWEST_GENERATIONS + 1,
            chain: Chain::new(rules.batch),
            sizes: [0; MOST_GENERATIONS as usize],
            tiers: [Tier::default(); NR_TIERS],
            new: Batch::new(),
            to_deactivate: Batch::new(),
        }
    }

    /// The numbers of the generations, oldest first.
    pub fn seqs(&self) -> RangeInclusive<u64> {
        self.oldest..=self.youngest
    }

    /// Pages that belong to a generation.
    pub fn nr_pages(&self, seq: u64) -> u64 {
        self.sizes[usize::from(index_of(seq))]
    }

    /// The folios on the list of a generation.
    pub fn oldest_first(&self, seq: u64) -> impl Iterator<Item = FolioId> + '_ {
        self.chain.oldest_first(index_of(seq))
    }

    pub fn marks(&self, folio: FolioId) -> Marks {
        self.chain[folio].marks
    }

    /// Counts of the tiers since the oldest generation is the oldest.
    pub fn tiers(&self) -> &[Tier; NR_TIERS] {
        &self.tiers
    }

    /// Adds a folio that a fault brought in, and of which `shadow` is left.
    pub fn fault_in(&mut self, nr_pages: u64, shadow: Option<Shadow>) -> FolioId {
        self.insert(nr_pages, shadow, false, true)
    }

    /// `MADV_COLD`: the folio forgets its mark, and moves to an old generation.
    pub fn cool(&mut self, folio: FolioId) {
        let oldest = index_of(self.oldest);
        let marks = &mut self.chain[folio].marks;
        marks.referenced = false;
        let Some(generation) = marks.generation else { return };
        if self.rules.reads == Reads::All {
            (marks.refs, marks.workingset) = (0, false);
            if generation == oldest {
                return;
            }
        }
        if self.chain.enter(&mut self.to_deactivate, folio) {
            self.drain_to_deactivate();
        }
    }

    /// A walk over page tables found the folio used: it belongs to the youngest generation from now on, and goes to its
    /// list when reclaim meets it.
    pub fn promote(&mut self, folio: FolioId) {
        let youngest = index_of(self.youngest);
        let Node { nr_pages, ref mut marks, .. } = self.chain[folio];
        match (self.rules.reads, marks.generation) {
            (Reads::All, _) if !marks.referenced && !marks.workingset => {
                (marks.refs, marks.referenced) = (0, true);
            }
            (Reads::All, None) => {}
            (Reads::BeyondFirst, None) => marks.referenced = true,
            (reads, Some(generation)) => {
                (marks.refs, marks.referenced, marks.workingset) = (0, false, reads == Reads::All);
                marks.generation = Some(youngest);
                self.sizes[usize::from(generation)] -= nr_pages;
                self.sizes[usize::from(youngest)] += nr_pages;
            }
        }
    }

    /// Begins a new generation. If there are four, the folios of the oldest join the next.
    pub fn age(&mut self) {
        if self.nr_generations() == MOST_GENERATIONS {
            self.merge_oldest();
        }
        self.youngest += 1;
    }

    fn nr_generations(&self) -> u64 {
        self.youngest - self.oldest + 1
    }

    fn insert(&mut self, nr_pages: u64, shadow: Option<Shadow>, dropbehind: bool, by_fault: bool) -> FolioId {
        let mut marks = Marks::default();
        if let Some(shadow) = shadow {
            self.refault(&mut marks, nr_pages, shadow, by_fault);
        }
        if by_fault {
            match self.rules.reads {
                Reads::BeyondFirst => marks.active = true,
                Reads::All if marks.workingset => marks.active = true,
                Reads::All => (marks.refs, marks.referenced) = (0, true),
            }
        }
        let folio = self.chain.add(nr_pages, dropbehind, marks);
        if self.chain.enter(&mut self.new, folio) {
            self.drain_new();
        }
        folio
    }

    /// A page comes back: its tier learns of it if that is soon, and its reads are remembered.
    fn refault(&mut self, marks: &mut Marks, nr_pages: u64, shadow: Shadow, by_fault: bool) {
        let generation = shadow.age >> REFS_BITS;
        let refs = (shadow.age & u64::from(MOST_REFS)) as u8;
        match self.rules.reads {
            Reads::BeyondFirst => {
                if generation != self.oldest {
                    return;
                }
                let refs = refs + u8::from(shadow.workingset);
                self.tiers[log2_up(u32::from(refs) + 1)].refaulted += nr_pages;
                if by_fault || refs >= MOST_REFS {
                    (marks.refs, marks.workingset) = (MOST_REFS, true);
                }
            }
            Reads::All => {
                if self.youngest.abs_diff(generation) >= MOST_GENERATIONS {
                    return;
                }
                let tier = if shadow.workingset { NR_TIERS - 1 } else { log2_up(u32::from(refs) + 1) };
                self.tiers[tier].refaulted += nr_pages;
                match shadow.workingset {
                    true => marks.workingset = true,
                    false => marks.refs = refs,
                }
            }
        }
    }

    /// Reads of a folio that count, and its tier.
    fn reads(&self, marks: Marks) -> (u8, usize) {
        match self.rules.reads {
            Reads::BeyondFirst => {
                let refs = marks.refs + u8::from(marks.workingset);
                (refs, log2_up(u32::from(refs) + 1))
            }
            Reads::All => {
                let refs = if marks.referenced { marks.refs + 1 } else { 0 };
                (refs, if marks.workingset { NR_TIERS - 1 } else { log2_up(u32::from(refs)) })
            }
        }
    }

    /// Whether the counter of reads is at its end: such a folio is never evicted straight away.
    fn is_full(&self, marks: Marks) -> bool {
        match self.rules.reads {
            Reads::BeyondFirst => marks.refs == MOST_REFS && marks.workingset,
            Reads::All => marks.refs == MOST_REFS && marks.referenced && marks.workingset,
        }
    }

    /// The last tier whose folios are evicted: those before the first that returns too often.
    fn last_tier(&self) -> usize {
        let (gain, other_gain) = if self.rules.reads == Reads::All { (2, 3) } else { (1, 2) };
        let first = self.tiers[0];
        let returns_seldom = |tier: &&Tier| {
            tier.all_refaulted() < LEAST_BATCH
                || tier.all_refaulted() * (first.all() + LEAST_BATCH) * gain
                    <= (first.all_refaulted() + 1) * tier.all() * other_gain
        };
        self.tiers[1..].iter().take_while(returns_seldom).count()
    }

    /// The oldest generation ends: half of what is known of it stays.
    fn carry_over(&mut self) {
        for tier in &mut self.tiers {
            *tier =
                Tier { average_refaulted: tier.all_refaulted() / 2, average_total: tier.all() / 2, ..Tier::default() };
        }
    }

    fn merge_oldest(&mut self) {
        while let Some(folio) = self.chain.oldest(index_of(self.oldest)) {
            let before = self.marks(folio);
            let generation = self.move_on(folio);
            self.chain.put_oldest(folio, generation);
            if self.rules.reads == Reads::All && !self.is_full(before) {
                let tier = self.reads(before).1;
                self.tiers[tier].protected += self.chain[folio].nr_pages;
            }
        }
        self.carry_over();
        self.oldest += 1;
    }

    /// Whether the oldest generation was empty and has ended (or several of them).
    fn end_empty_generations(&mut self) -> bool {
        let mut oldest = self.oldest;
        while oldest + FEWEST_GENERATIONS <= self.youngest && self.chain.oldest(index_of(oldest)).is_none() {
            oldest += 1;
        }
        let ended = oldest != self.oldest;
        if ended {
            self.carry_over();
            self.oldest = oldest;
        }
        ended
    }

    /// Makes a folio of the oldest generation one of the next, without its reads; a promoted one stays what it is.
    fn move_on(&mut self, folio: FolioId) -> u8 {
        let (oldest, next) = (index_of(self.oldest), index_of(self.oldest + 1));
        let Node { nr_pages, ref mut marks, .. } = self.chain[folio];
        match marks.generation {
            Some(generation) if generation != oldest => return generation,
            _ => {}
        }
        (marks.generation, marks.refs, marks.referenced) = (Some(next), 0, false);
        if self.rules.reads == Reads::BeyondFirst {
            marks.workingset = false;
        }
        self.sizes[usize::from(oldest)] -= nr_pages;
        self.sizes[usize::from(next)] += nr_pages;
        next
    }

    /// The generation that a folio on no list goes to.
    fn seq_for(&self, marks: Marks) -> u64 {
        match self.rules.reads {
            Reads::BeyondFirst if marks.active => self.youngest,
            Reads::BeyondFirst if self.nr_generations() <= FEWEST_GENERATIONS + 1 => self.oldest,
            Reads::BeyondFirst => self.oldest + 1,
            Reads::All => {
                let steps = if marks.active {
                    FEWEST_GENERATIONS - u64::from(marks.workingset)
                } else {
                    MOST_GENERATIONS - u64::from(marks.workingset || marks.referenced)
                };
                (self.youngest + 1 - steps).max(self.oldest)
            }
        }
    }

    /// Puts a folio that is on no list at the head of its generation.
    fn link(&mut self, folio: FolioId) {
        let generation = index_of(self.seq_for(self.marks(folio)));
        let young_forgets = self.rules.young_forgets;
        let Node { nr_pages, ref mut marks, .. } = self.chain[folio];
        if marks.active && young_forgets {
            (marks.refs, marks.referenced) = (0, false);
        }
        (marks.generation, marks.active) = (Some(generation), false);
        self.sizes[usize::from(generation)] += nr_pages;
        self.chain.put_newest(folio, generation);
    }

    /// Takes a folio off its list and out of its generation.
    fn unlink(&mut self, folio: FolioId) {
        self.chain.take_off(folio);
        let Node { nr_pages, ref mut marks, .. } = self.chain[folio];
        let generation = marks.generation.take().expect("a folio on a list has a generation");
        self.sizes[usize::from(generation)] -= nr_pages;
    }

    fn drain(&mut self) {
        self.drain_new();
        self.drain_to_deactivate();
    }

    fn drain_new(&mut self) {
        while let Some(folio) = self.new.pop_front() {
            self.link(folio);
        }
    }

    fn drain_to_deactivate(&mut self) {
        while let Some(folio) = self.to_deactivate.pop_front() {
            self.unlink(folio);
            let marks = &mut self.chain[folio].marks;
            (marks.active, marks.referenced) = (false, false);
            self.link(folio);
        }
    }
}

/// Counts a read where all of them count.
fn count_read(marks: &mut Marks) {
    if !marks.referenced {
        (marks.refs, marks.referenced) = (0, true);
    } else if marks.refs < MOST_REFS {
        marks.refs += 1;
    } else {
        marks.workingset = true;
    }
}

impl Lists for Mglru {
    fn add(&mut self, nr_pages: u64, shadow: Option<Shadow>, dropbehind: bool) -> FolioId {
        self.insert(nr_pages, shadow, dropbehind, false)
    }

    fn mark_accessed(&mut self, folio: FolioId) {
        let reads = self.rules.reads;
        let Node { ref mut marks, dropbehind, .. } = self.chain[folio];
        match reads {
            _ if dropbehind => {}
            Reads::All => count_read(marks),
            Reads::BeyondFirst if !marks.referenced => marks.referenced = true,
            Reads::BeyondFirst if !marks.workingset => marks.workingset = true,
            Reads::BeyondFirst => marks.refs = (marks.refs + 1).min(MOST_REFS),
        }
    }

    fn reclaim(&mut self, nr_needed: u64, folios: &mut dyn Folios) -> u64 {
        let target = nr_needed.max(self.target);
        let mut nr_freed = 0;
        self.drain();
        for _ in 0..if self.rules.walks_twice { 2 } else { 1 } {
            for priority in (0..=FIRST_PRIORITY).rev() {
                self.scan(priority, target, &mut nr_freed, folios);
                if nr_freed >= target {
                    break;
                }
            }
            if nr_freed > 0 {
                break;
            }
        }
        nr_freed
    }
}

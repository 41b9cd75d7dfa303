//! Reclaim by generations: who is evicted, in which order, and where everybody else is then

use std::fmt::Write as _;

use iowhy_stack::kernel::Stack;
use iowhy_stack::reclaim::Lists;
use iowhy_stack::reclaim::mglru::{self, Mglru};
use iowhy_stack::reclaim::two_list::{Condition, FolioId, Folios, References, Shadow};
use iowhy_stack::rng::Rng;

use super::reclaim::{BATCHES, LISTS, SCANS, SHADOWS};
use super::{Case, Policy, Step};

pub(super) const MGLRU: Policy = Policy {
    name: "mglru",
    program: "mglru.c",
    files: &[],
    headers: super::reclaim::HEADERS,
    cuts: &[
        ("include/linux/vmstat.h", &["struct reclaim_stat"]),
        ("include/linux/swap.h", &["struct reclaim_state", "folio_may_be_lru_cached"]),
        ("include/linux/mmzone.h", SIZES),
        ("include/linux/mm_inline.h", LISTS),
        ("include/linux/mm_inline.h", GENERATIONS),
        ("mm/swap.c", BATCHES),
        ("mm/swap.c", READS),
        ("mm/workingset.c", SHADOWS),
        ("mm/workingset.c", REFAULTS),
        ("mm/vmscan.c", SCANS),
        ("mm/vmscan.c", EVICTIONS),
    ],
    draw,
    valid: |case| !case.settings.is_empty(),
    model,
    legend: &[
        ('#', "pages of the file"),
        ('a', "absent pages are read: first, how many, folio order. Answers show the first: generation, reads, flags"),
        ('A', "absent pages are faulted in: first, how many, folio order"),
        ('m', "pages are marked as accessed: first, how many"),
        ('p', "a walk over page tables found them used: first, how many"),
        ('r', "page tables used them: first, how many, by how many mappings, executable"),
        ('b', "they begin or cease to be locked: first, how many"),
        ('c', "they are cold: first, how many"),
        ('g', "a new generation on demand"),
        ('q', "reclaim of so many pages. Answer: evicted pages @age, w of the workingset; pages freed"),
        ('s', "show the generations"),
        ('=', "the youngest generation; pages of each, oldest first; # digest of orders, flags and tiers"),
    ],
    not_decisions: &["a", "A", "m", "p", "r", "b", "c", "g", "q", "s"],
};

const SIZES: &[&str] = &[
    "MIN_NR_GENS",
    "MAX_NR_GENS",
    "MAX_NR_TIERS",
    "LRU_GEN_MASK",
    "LRU_REFS_MASK",
    "LRU_REFS_FLAGS",
    "MIN_LRU_BATCH",
    "MAX_LRU_BATCH",
];

const GENERATIONS: &[&str] = &[
    "lru_gen_from_seq",
    "lru_hist_from_seq",
    "lru_tier_from_refs",
    "folio_lru_refs",
    "folio_clear_lru_refs",
    "folio_lru_gen",
    "lru_gen_is_active",
    "lru_gen_update_size",
    "lru_gen_folio_seq",
    "lru_gen_add_folio",
    "lru_gen_del_folio",
];

const READS: &[&str] = &["folio_inc_refs", "lru_gen_inc_refs", "lru_gen_clear_refs"];

const REFAULTS: &[&str] = &["lru_gen_eviction", "lru_gen_test_recent", "lru_gen_refault"];

const EVICTIONS: &[&str] = &[
    "LRU_REFS_FLAGS",
    "DEFINE_MAX_SEQ",
    "DEFINE_MIN_SEQ",
    "min_type",
    "max_type",
    "evictable_min_seq",
    "for_each_gen_type_zone",
    "for_each_evictable_type",
    "struct ctrl_pos",
    "get_swappiness",
    "get_nr_gens",
    "seq_is_valid",
    "read_ctrl_pos",
    "reset_ctrl_pos",
    "positive_ctrl_err",
    "folio_update_gen",
    "folio_inc_gen",
    "inc_min_seq",
    "try_to_inc_min_seq",
    "inc_max_seq",
    "iterate_mm_list_nowalk",
    "try_to_inc_max_seq",
    "should_run_aging",
    "lruvec_evictable_size",
    "lru_gen_set_refs",
    "lru_gen_init_lruvec",
    "sort_folio",
    "isolate_folio",
    "scan_folios",
    "get_tier_idx",
    "get_type_to_scan",
    "isolate_folios",
    "evict_folios",
    "get_nr_to_scan",
    "should_abort_scan",
    "try_to_shrink_lruvec",
    "lru_gen_shrink_lruvec",
];

/// Pages are read more or less often, so that their folios spread over the tiers, and come back after their eviction.
fn draw(rng: &mut Rng, _: &Stack) -> Case {
    let mut between = |low: i64, high: i64| low + rng.below((high - low + 1) as u64) as i64;
    let pages = [between(1, 60), between(60, 400), between(400, 3000), between(3000, 20_000)][between(0, 3) as usize];
    let order = [0, 0, 0, between(0, 4), 9][between(0, 4) as usize];
    let (most, hot, nr_steps) = ([40, 300, pages][between(0, 2) as usize], between(1, pages), between(5, 200));
    let mut steps = Vec::new();
    while (steps.len() as i64) < nr_steps {
        let first = if between(0, 1) == 0 { between(0, pages - 1) } else { between(0, hot - 1) };
        let some = between(1, most);
        match between(0, 24) {
            0..=5 => {
                let add = if between(0, 7) == 0 { 'A' } else { 'a' };
                steps.push(Step::new(add, &[first, some, if between(0, 3) == 0 { 0 } else { order }]));
                let reads = [0, 1, 1, 1, between(2, 7)][between(0, 4) as usize];
                steps.extend((0..reads).map(|_| Step::new('m', &[first, some])));
            }
            6..=10 => {
                let reads = [1, 1, between(2, 7)][between(0, 2) as usize];
                steps.extend((0..reads).map(|_| Step::new('m', &[first, some])));
            }
            11 => steps.push(Step::new('r', &[first, some, between(0, 2), i64::from(between(0, 3) == 0)])),
            12 => steps.push(Step::new('b', &[first, between(1, 40)])),
            13 => steps.push(Step::new('c', &[first, some])),
            14 => steps.push(Step::new('p', &[first, some])),
            15 if between(0, 2) == 0 => steps.push(Step::new('g', &[])),
            16 => {
                // Folios come back to their tier while their generation is the oldest.
                let (reads, wanted) = (between(1, 5), between(1, 128));
                for _ in 0..between(2, 8) {
                    steps.push(Step::new('a', &[first, some, 0]));
                    steps.extend((0..reads).map(|_| Step::new('m', &[first, some])));
                    steps.push(Step::new('q', &[wanted]));
                }
            }
            _ => {
                let wanted = [1, between(1, 64), between(1, most), between(1, pages)][between(0, 3) as usize];
                steps.push(Step::new('q', &[wanted]));
            }
        }
    }
    Case { settings: vec![Step::new('#', &[pages])], steps }
}

/// A folio's place in the file, or what is left of one there.
#[derive(Copy, Clone, Debug, Default)]
struct Page {
    folio: Option<FolioId>,
    shadow: Option<Shadow>,
    references: References,
    mapped: bool,
    busy: bool,
}

/// A file of folios, each at a page of its own.
struct File {
    pages: Vec<Page>,
    /// The page of a folio.
    places: Vec<usize>,
    evicted: String,
}

impl File {
    fn page(&mut self, folio: FolioId) -> &mut Page {
        &mut self.pages[self.places[folio.0 as usize]]
    }
}

impl Folios for File {
    fn references(&mut self, folio: FolioId) -> References {
        std::mem::take(&mut self.page(folio).references)
    }

    fn condition(&self, folio: FolioId) -> Condition {
        let busy = self.pages[self.places[folio.0 as usize]].busy;
        if busy { Condition::Busy } else { Condition::Clean }
    }

    fn is_mapped(&self, folio: FolioId) -> bool {
        self.pages[self.places[folio.0 as usize]].mapped
    }

    fn evict(&mut self, folio: FolioId, shadow: Shadow) {
        *self.page(folio) = Page { shadow: Some(shadow), ..Page::default() };
        let workingset = if shadow.workingset { "w" } else { "" };
        // Writing to a string does not fail.
        let _ = write!(self.evicted, " {}@{}{workingset}", self.places[folio.0 as usize], shadow.age);
    }
}

fn model(stack: &Stack, case: &Case) -> Vec<String> {
    let entry = match stack.kernel.name {
        "linux-6.1" => &mglru::ENTRY_6_1,
        "linux-6.12" => &mglru::ENTRY_6_12,
        _ => &mglru::ENTRY_7_2,
    };
    let mut lists = (entry.build)(&entry.defaults());
    let pages = vec![Page::default(); case.settings[0].unsigned(0) as usize];
    let mut file = File { pages, places: Vec::new(), evicted: String::new() };
    let mut answer = |step: &Step| {
        let done = act(&mut lists, &mut file, step);
        let evicted = std::mem::take(&mut file.evicted);
        format!("{}{evicted}{done}{}", step.op, summary(&lists, &file))
    };
    case.steps.iter().map(&mut answer).collect()
}

fn act(lists: &mut Mglru, file: &mut File, step: &Step) -> String {
    match step.op {
        'q' => return format!(" {}", lists.reclaim(step.unsigned(0), file)),
        'g' => lists.age(),
        's' => return shown(lists, file),
        _ => {}
    }
    let first = step.unsigned(0) as usize;
    for at in first..first.saturating_add(step.unsigned(1) as usize).min(file.pages.len()) {
        let page = &mut file.pages[at];
        match (step.op, page.folio) {
            ('a' | 'A', None) => {
                let (nr_pages, shadow) = (1 << step.unsigned(2), page.shadow.take());
                let folio = match step.op {
                    'A' => lists.fault_in(nr_pages, shadow),
                    _ => lists.add(nr_pages, shadow, false),
                };
                page.folio = Some(folio);
                file.places.resize(file.places.len().max(folio.0 as usize + 1), 0);
                file.places[folio.0 as usize] = at;
            }
            ('m', Some(folio)) => lists.mark_accessed(folio),
            ('p', Some(folio)) => lists.promote(folio),
            ('c', Some(folio)) => lists.cool(folio),
            ('r', Some(_)) => {
                let nr_mappings = step.unsigned(2) as u32;
                page.references = References { nr_mappings, exec: step.get(3) != 0 };
                page.mapped = nr_mappings > 0;
            }
            ('b', Some(_)) => page.busy = !page.busy,
            _ => {}
        }
    }
    let touched = file.pages.get(first).and_then(|page| page.folio).filter(|_| step.arguments.len() > 1);
    touched.map_or_else(String::new, |folio| format!(" {}", word(lists, file, folio)))
}

/// A folio: its page, the index of its generation, reads beyond the mark, flags.
fn word(lists: &Mglru, file: &File, folio: FolioId) -> String {
    let marks = lists.marks(folio);
    let index = marks.generation.map_or(-1, i64::from);
    format!("{}:{index}.{}.{:x}", file.places[folio.0 as usize], marks.refs, flags(marks))
}

fn flags(marks: mglru::Marks) -> u64 {
    u64::from(marks.referenced)
        | u64::from(marks.workingset) << 1
        | u64::from(marks.active) << 2
        | u64::from(marks.generation.is_some()) << 3
}

fn shown(lists: &Mglru, file: &File) -> String {
    let mut text = String::new();
    for seq in lists.seqs() {
        text += &format!(" |{seq}");
        for folio in lists.oldest_first(seq) {
            text += &format!(" {}", word(lists, file, folio));
        }
    }
    text
}

/// The youngest generation, the pages of each, and a digest of everything that decides later.
fn summary(lists: &Mglru, file: &File) -> String {
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    let mut note = |value: u64| digest = (digest ^ value).wrapping_mul(0x100_0000_01b3);
    let mut text = format!(" ={}", lists.seqs().end());
    for seq in lists.seqs() {
        text += &format!(",{}", lists.nr_pages(seq));
        note(!seq);
        for folio in lists.oldest_first(seq) {
            let marks = lists.marks(folio);
            note(file.places[folio.0 as usize] as u64);
            note(marks.generation.map_or(u64::MAX, u64::from));
            note(u64::from(marks.refs) << 4 | flags(marks));
        }
    }
    for tier in lists.tiers() {
        let counts = [tier.average_refaulted, tier.average_total, tier.refaulted, tier.evicted, tier.protected];
        counts.into_iter().for_each(&mut note);
    }
    format!("{text} #{:08x}", digest >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iowhy_stack::kernel::find_kernel;

    #[test]
    fn models_answer_as_the_kernels_did() {
        // Steps, and below each the answers of 6.1.192, 6.12.118 and 7.2.13 in programs that this command made.
        let text = include_str!("golden/mglru.txt");
        let (answers, steps): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with(' '));
        let parsed = steps.iter().map(|line| {
            let mut words = line.split(' ');
            let op = words.next().and_then(|word| word.chars().next()).expect("a letter");
            Step { op, arguments: words.map(|word| word.parse().expect("a number")).collect() }
        });
        let (settings, steps): (Vec<Step>, Vec<Step>) = parsed.partition(|step| step.op == '#');
        let case = Case { settings, steps };
        for name in ["linux-6.1", "linux-6.12", "linux-7.2"] {
            let kernel = find_kernel(name).expect("a kernel");
            let found = model(&Stack::new(kernel), &case);
            let begin = format!("  {name}: ");
            let expected: Vec<&str> = answers.iter().filter_map(|line| line.strip_prefix(&begin)).collect();
            assert_eq!(expected.len(), 70);
            for (step, (found, expected)) in case.steps.iter().zip(found.iter().zip(expected)) {
                assert_eq!(found, expected, "{name}, {step}");
            }
        }
    }
}

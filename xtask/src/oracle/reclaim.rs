//! Reclaim from the two lists of one control group: who is evicted, in which order, and how long the lists are then

use std::fmt::Write as _;

use iowhy_stack::kernel::Stack;
use iowhy_stack::reclaim::Lists as _;
use iowhy_stack::reclaim::two_list::{self, Condition, FolioId, Folios, References, Shadow, TwoList};
use iowhy_stack::rng::Rng;

use super::{Case, Policy, Step};

pub(super) const RECLAIM: Policy = Policy {
    name: "reclaim",
    program: "reclaim.c",
    files: &[],
    headers: HEADERS,
    cuts: &[
        ("include/linux/vmstat.h", &["struct reclaim_stat"]),
        ("include/linux/swap.h", &["struct reclaim_state", "folio_may_be_lru_cached"]),
        ("include/linux/mm_inline.h", LISTS),
        ("mm/swap.c", BATCHES),
        ("mm/workingset.c", SHADOWS),
        ("mm/vmscan.c", SCANS),
    ],
    draw,
    valid: |case| !case.settings.is_empty(),
    model,
    legend: &[
        ('#', "pages of the file"),
        ('a', "absent pages are read: first, how many, folio order. Answer: pages active, inactive"),
        ('m', "pages are marked as accessed: first, how many"),
        ('r', "page tables used them: first, how many, by how many mappings, executable"),
        ('b', "they begin or cease to be locked: first, how many"),
        ('c', "they are cold: first, how many"),
        ('f', "the statistics are folded"),
        ('q', "reclaim of so many pages. Answer: evicted pages @age, w of the workingset; pages freed"),
    ],
    not_decisions: &["a", "m", "r", "b", "c", "f", "q"],
};

pub(super) const HEADERS: &[&str] =
    &["linux/list.h", "linux/pagevec.h", "linux/folio_batch.h", "linux/vm_event_item.h"];

pub(super) const LISTS: &[&str] = &[
    "page_is_file_lru",
    "folio_is_file_lru",
    "page_lru_base_type",
    "page_lru",
    "__folio_clear_lru_flags",
    "folio_lru_list",
    "add_page_to_lru_list",
    "add_page_to_lru_list_tail",
    "del_page_from_lru_list",
    "lruvec_add_folio",
    "lruvec_add_folio_tail",
    "lruvec_del_folio",
];

pub(super) const BATCHES: &[&str] = &[
    "__pagevec_lru_add_fn",
    "__pagevec_lru_add",
    "pagevec_lru_move_fn",
    "pagevec_move_tail_fn",
    "pagevec_move_tail",
    "lru_cache_add",
    "activate_page",
    "__activate_page",
    "activate_page_drain",
    "__lru_cache_activate_page",
    "mark_page_accessed",
    "deactivate_page",
    "lru_deactivate_fn",
    "lru_deactivate_file_fn",
    "lru_lazyfree_fn",
    "lru_add_drain_cpu",
    "lru_add_drain",
    "folio_batch_move_lru",
    "folio_batch_add_and_move",
    "__folio_batch_add_and_move",
    "lru_add_fn",
    "lru_add",
    "lru_move_tail_fn",
    "lru_move_tail",
    "folio_activate_fn",
    "lru_activate",
    "folio_activate",
    "folio_activate_drain",
    "__lru_cache_activate_folio",
    "folio_mark_accessed",
    "folio_add_lru",
    "lru_deactivate",
    "lru_deactivate_file",
    "lru_lazyfree",
    "folio_deactivate",
];

pub(super) const SHADOWS: &[&str] = &[
    "EVICTION_SHIFT",
    "EVICTION_MASK",
    "EVICTION_SHIFT_ANON",
    "EVICTION_MASK_ANON",
    "WORKINGSET_SHIFT",
    "pack_shadow",
    "unpack_shadow",
    "workingset_age_nonresident",
    "workingset_eviction",
    "workingset_test_recent",
    "workingset_refault",
    "workingset_activation",
];

pub(super) const SCANS: &[&str] = &[
    "struct scan_control",
    "enum page_references",
    "enum folio_references",
    "enum scan_balance",
    "DEACTIVATE_ANON",
    "DEACTIVATE_FILE",
    "cgroup_reclaim",
    "writeback_throttling_sane",
    "lruvec_lru_size",
    "__remove_mapping",
    "page_check_references",
    "folio_check_references",
    "shrink_page_list",
    "shrink_folio_list",
    "__isolate_lru_page",
    "update_lru_sizes",
    "isolate_lru_pages",
    "isolate_lru_folios",
    "move_pages_to_lru",
    "move_folios_to_lru",
    "shrink_inactive_list",
    "shrink_active_list",
    "shrink_list",
    "inactive_is_low",
    "prepare_scan_count",
    "prepare_scan_control",
    "apply_proportional_protection",
    "get_scan_count",
    "can_age_anon_pages",
    "shrink_lruvec",
    "shrink_node_memcgs",
    "shrink_node",
    "snapshot_refaults",
    "do_try_to_free_pages",
];

fn draw(rng: &mut Rng, stack: &Stack) -> Case {
    let has_folios = !matches!(stack.readahead.entry.name, "linux-5.4" | "linux-5.10" | "linux-5.15");
    let mut between = |low: i64, high: i64| low + rng.below((high - low + 1) as u64) as i64;
    let pages = [between(1, 60), between(60, 400), between(400, 3000), between(3000, 20_000)][between(0, 3) as usize];
    // Of the largest folios 512 make a gibibyte, from which on the ratio of the lists depends on the size.
    let order = if has_folios { [0, 0, 0, between(0, 4), 9][between(0, 4) as usize] } else { 0 };
    let (most, hot, nr_steps) = ([40, 300, pages][between(0, 2) as usize], between(1, pages), between(5, 150));
    let steps = (0..nr_steps).map(|_| {
        let first = if between(0, 1) == 0 { between(0, pages - 1) } else { between(0, hot - 1) };
        let some = between(1, most);
        match between(0, 19) {
            0..=5 => Step::new('a', &[first, some, if between(0, 3) == 0 { 0 } else { order }]),
            6..=10 => Step::new('m', &[first, some]),
            11 | 12 => Step::new('r', &[first, some, between(1, 2), i64::from(between(0, 3) == 0)]),
            13 => Step::new('b', &[first, between(1, 40)]),
            14 => Step::new('c', &[first, some]),
            15 => Step::new('f', &[]),
            _ => Step::new('q', &[[1, between(1, 64), between(1, most), between(1, pages)][between(0, 3) as usize]]),
        }
    });
    let steps = steps.collect();
    Case { settings: vec![Step::new('#', &[pages])], steps }
}

/// A folio's place in the file, or what is left of one there.
#[derive(Copy, Clone, Debug, Default)]
struct Page {
    folio: Option<FolioId>,
    shadow: Option<Shadow>,
    references: References,
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

    fn evict(&mut self, folio: FolioId, shadow: Shadow) {
        *self.page(folio) = Page { shadow: Some(shadow), ..Page::default() };
        let workingset = if shadow.workingset { "w" } else { "" };
        // Writing to a string does not fail.
        let _ = write!(self.evicted, " {}@{}{workingset}", self.places[folio.0 as usize], shadow.age);
    }
}

fn model(stack: &Stack, case: &Case) -> Vec<String> {
    let entry = match stack.kernel.name {
        "linux-5.10" => &two_list::ENTRY_5_10,
        "linux-6.1" => &two_list::ENTRY_6_1,
        _ => &two_list::ENTRY_6_18,
    };
    let mut lists = (entry.build)(&entry.defaults());
    let pages = vec![Page::default(); case.settings[0].unsigned(0) as usize];
    let mut file = File { pages, places: Vec::new(), evicted: String::new() };
    let mut answer = |step: &Step| {
        let freed = act(&mut lists, &mut file, step);
        let evicted = std::mem::take(&mut file.evicted);
        format!("{}{evicted}{freed} ={},{}", step.op, lists.nr_active(), lists.nr_inactive())
    };
    case.steps.iter().map(&mut answer).collect()
}

fn act(lists: &mut TwoList, file: &mut File, step: &Step) -> String {
    match step.op {
        'q' => return format!(" {}", lists.reclaim(step.unsigned(0), file)),
        'f' => lists.fold(),
        _ => {}
    }
    let first = step.unsigned(0) as usize;
    for at in first..first.saturating_add(step.unsigned(1) as usize).min(file.pages.len()) {
        let page = &mut file.pages[at];
        match (step.op, page.folio) {
            ('a', None) => {
                let folio = lists.add(1 << step.unsigned(2), page.shadow.take(), false);
                page.folio = Some(folio);
                file.places.resize(file.places.len().max(folio.0 as usize + 1), 0);
                file.places[folio.0 as usize] = at;
            }
            ('m', Some(folio)) => lists.mark_accessed(folio),
            ('c', Some(folio)) => lists.cool(folio),
            ('r', Some(_)) => {
                page.references = References { nr_mappings: step.unsigned(2) as u32, exec: step.get(3) != 0 }
            }
            ('b', Some(_)) => page.busy = !page.busy,
            _ => {}
        }
    }
    String::new()
}

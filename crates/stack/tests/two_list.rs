//! The two-list reclaim: what survives, and the lists against a slow oracle made of plain vectors.

use std::collections::BTreeMap;

use iowhy_stack::fault::{FAULTS, MapAdvice, Protection};
use iowhy_stack::origin;
use iowhy_stack::readahead::{Limits, READAHEADS};
use iowhy_stack::reclaim::Lists as _;
use iowhy_stack::reclaim::two_list::{Condition, ENTRY_6_18, FolioId, Folios, References, Shadow, TWO_LISTS, TwoList};
use iowhy_stack::replay_reclaim::{Case, MemoryAdvice, Models, Op, Replayed, replay};
use iowhy_stack::units::PAGE_BYTES;
use proptest::prelude::*;

fn run(kernel: &str, ops: Vec<Op>) -> Replayed {
    let fault = origin::find(FAULTS, kernel).expect("a kernel");
    let models = Models {
        two_list: origin::find(TWO_LISTS, kernel).expect("a kernel"),
        fault: &(fault.build)(&fault.defaults()),
        readahead: origin::find(READAHEADS, kernel).expect("a kernel"),
    };
    let limits = Limits { ra_pages: 32, io_pages: 256, max_folio_order: 0, max_sane: u64::MAX };
    replay(&models, &Case { nr_file_pages: 16_384, nr_pages_at_limit: 1000, limits, ops })
}

fn read(first: u64, nr_pages: u64) -> Op {
    Op::Read {
        fd: 0,
        offset: first * PAGE_BYTES,
        len_bytes: nr_pages * PAGE_BYTES,
        chunk_bytes: PAGE_BYTES,
        dontcache: false,
    }
}

/// How many of the 100 hot pages are left after a stream, given what happened to them before it.
fn survivors(kernel: &str, exec: bool, noreuse: bool, hot: &[Op]) -> usize {
    let mut ops = vec![
        Op::Open { fd: 0, random: true, noreuse: false },
        Op::Open { fd: 1, random: false, noreuse },
        Op::Mmap { mapping: 0, fd: 1, protection: Protection { exec, shared: false } },
        read(0, 100),
    ];
    ops.extend_from_slice(hot);
    ops.push(read(4000, 1500));
    run(kernel, ops).cached.iter().filter(|page| **page < 100).count()
}

#[test]
fn which_hot_pages_survive_a_stream() {
    let touch = || Op::Touch { mapping: 0, pages: (0..100).collect() };
    let advise = |advice| Op::Madvise { mapping: 0, offset: 0, len_bytes: 1 << 26, advice };
    let random = || advise(MemoryAdvice::Expect(MapAdvice::Random));
    let sequential = || advise(MemoryAdvice::Expect(MapAdvice::Sequential));
    let unmap = || Op::Munmap { mapping: 0 };
    let rows: [(&str, bool, bool, Vec<Op>, usize); 11] = [
        ("linux-6.18", false, false, vec![], 0),
        ("linux-6.18", false, false, vec![read(0, 100)], 100),
        ("linux-6.18", false, false, vec![touch()], 100),
        ("linux-6.18", false, false, vec![random(), touch()], 0),
        ("linux-6.18", false, false, vec![sequential(), touch()], 0),
        ("linux-6.18", false, true, vec![touch()], 0),
        ("linux-6.18", true, false, vec![touch()], 100),
        ("linux-6.18", false, false, vec![touch(), unmap()], 100),
        ("linux-6.18", false, false, vec![random(), touch(), unmap()], 0),
        // Before 6.3 random advice did not take the second chance away.
        ("linux-6.1", false, false, vec![random(), touch()], 100),
        ("linux-6.1", false, false, vec![sequential(), touch()], 0),
    ];
    for (kernel, exec, noreuse, hot, expected) in rows {
        assert_eq!(survivors(kernel, exec, noreuse, &hot), expected, "{kernel} exec {exec} noreuse {noreuse} {hot:?}");
    }
}

#[test]
fn a_loop_larger_than_the_cache_misses_every_time() {
    let ops = vec![Op::Open { fd: 0, random: true, noreuse: false }, read(0, 1200), read(0, 1200), read(0, 1200)];
    let replayed = run("linux-6.18", ops);
    assert!(replayed.evicted.iter().enumerate().all(|(index, page)| index as u64 % 1200 == *page));
    assert!(replayed.evicted.len() > 2500, "{}", replayed.evicted.len());
}

#[test]
fn statistics_decide_as_they_were_folded() {
    // 700 active pages of 1000: unknown to a young group, so none is deactivated; exact counts see it at once.
    let hot = [read(0, 700), read(0, 700)];
    let stream = |kernel: &str, fold: &[Op]| {
        let mut ops = vec![Op::Open { fd: 0, random: true, noreuse: false }];
        ops.extend(hot.iter().chain(fold).cloned());
        ops.push(read(4000, 2000));
        run(kernel, ops).cached.iter().filter(|page| **page < 700).count()
    };
    assert_eq!(stream("linux-6.18", &[]), 700);
    assert!(stream("linux-6.18", &[Op::ReadStatistics]) < 700);
    assert!(stream("linux-6.18", &[Op::Sleep { ms: 2500 }]) < 700);
    assert!(stream("linux-4.4", &[]) < 700);
}

#[test]
fn a_page_that_returns_soon_enough_is_active_at_once() {
    let mut lists = (ENTRY_6_18.build)(&ENTRY_6_18.defaults());
    let mut pages = Pages::default();
    let hot: Vec<FolioId> = (0..40).map(|_| lists.add(1, None, false)).collect();
    for _ in 0..2 {
        hot.iter().for_each(|&folio| lists.mark_accessed(folio));
    }
    for _ in 0..64 {
        lists.add(1, None, false);
    }
    lists.drain();
    lists.fold();
    assert_eq!((lists.nr_active(), lists.nr_inactive()), (40, 64));
    lists.reclaim(1, &mut pages);
    let nr_gone = pages.gone.len() as u64;
    assert!(nr_gone >= 32);
    // The last one out has a distance of 1; the first one out has all evictions between, still within 40 active pages.
    let last = pages.gone[pages.gone.len() - 1].1;
    lists.add(1, Some(last), false);
    lists.drain();
    assert_eq!(lists.nr_active() + lists.nr_inactive(), 104 - nr_gone + 1);
    assert_eq!(lists.nr_active(), 41);
}

#[test]
fn ages_and_second_walks_are_those_of_the_kernels_own_code() {
    // Cases that `cargo xtask oracle` found. Of 29 pages the first is activated alone, the next two by a look at the
    // tail that evicts the fourth: its age does not know of them.
    let with = |kernel: &str, nr: usize, marks: usize, nr_used: usize, exec: bool| {
        let mut lists = lists_of(kernel);
        let folios = add(&mut lists, nr);
        (0..marks).for_each(|_| folios.iter().for_each(|&folio| lists.mark_accessed(folio)));
        lists.drain();
        lists.fold();
        let used = folios[..nr_used].iter().map(|&folio| (folio, References { nr_mappings: 1, exec })).collect();
        let mut pages = Pages { used, ..Pages::default() };
        lists.reclaim(1, &mut pages);
        pages.gone.iter().map(|(_, shadow)| shadow.age).collect::<Vec<u64>>()
    };
    assert_eq!(with("linux-5.10", 29, 1, 3, false)[..2], [2, 5]);
    assert_eq!(with("linux-6.1", 29, 1, 3, false)[..2], [1, 4]);
    // Three executable active pages in use: the first walk only takes note that they are.
    let nr_gone = |kernel| with(kernel, 3, 2, 3, true).len();
    assert_eq!(["linux-6.1", "linux-6.18"].map(nr_gone), [0, 2]);
}

/// Folios whose page tables say what a test put there.
#[derive(Default)]
struct Pages {
    used: BTreeMap<FolioId, References>,
    busy: Vec<FolioId>,
    mapped: Vec<FolioId>,
    file_mapped: bool,
    gone: Vec<(FolioId, Shadow)>,
}

impl Folios for Pages {
    fn references(&mut self, folio: FolioId) -> References {
        self.used.remove(&folio).unwrap_or_default()
    }

    fn condition(&self, folio: FolioId) -> Condition {
        if self.busy.contains(&folio) { Condition::Busy } else { Condition::Clean }
    }

    fn is_mapped(&self, folio: FolioId) -> bool {
        self.mapped.contains(&folio)
    }

    fn file_is_mapped(&self, folio: FolioId) -> bool {
        self.file_mapped || self.is_mapped(folio)
    }

    fn evict(&mut self, folio: FolioId, shadow: Shadow) {
        self.gone.push((folio, shadow));
    }
}

/// The same rules on vectors, newest first, by names that are never used again; without stale statistics or refaults.
#[derive(Default)]
struct Oracle {
    inactive: Vec<u32>,
    active: Vec<u32>,
    referenced: BTreeMap<u32, bool>,
}

impl Oracle {
    fn mark(&mut self, name: u32) {
        if !self.referenced[&name] {
            self.referenced.insert(name, true);
        } else if let Some(at) = self.inactive.iter().position(|&other| other == name) {
            self.inactive.remove(at);
            self.active.insert(0, name);
            self.referenced.insert(name, false);
        }
    }

    fn reclaim(&mut self, mut used: BTreeMap<u32, References>) -> Vec<u32> {
        let mut gone = Vec::new();
        for forced in [false, true] {
            let mut skipped = false;
            for priority in (0..=12).rev() {
                let deactivate = forced || self.inactive.len() < self.active.len();
                let (mut inactive, mut active) = (self.inactive.len() >> priority, self.active.len() >> priority);
                let before = gone.len();
                while (inactive > 0 || active > 0) && gone.len() - before < 32 {
                    let nr = inactive.min(32);
                    inactive -= nr;
                    let kept = self.inactive.len().saturating_sub(nr);
                    for name in self.inactive.split_off(kept).into_iter().rev() {
                        let References { nr_mappings, exec } = used.remove(&name).unwrap_or_default();
                        let was = self.referenced.insert(name, nr_mappings > 0).unwrap_or(false);
                        match nr_mappings {
                            0 => gone.push(name),
                            nr if was || nr > 1 || exec => self.active.insert(0, name),
                            _ => self.inactive.insert(0, name),
                        }
                    }
                    let nr = active.min(32);
                    active -= nr;
                    if nr > 0 && !deactivate {
                        skipped = true;
                        continue;
                    }
                    let kept = self.active.len().saturating_sub(nr);
                    for name in self.active.split_off(kept).into_iter().rev() {
                        let References { nr_mappings, exec } = used.remove(&name).unwrap_or_default();
                        let list = if nr_mappings > 0 && exec { &mut self.active } else { &mut self.inactive };
                        list.insert(0, name);
                    }
                }
                if gone.len() >= 32 {
                    break;
                }
            }
            if !gone.is_empty() || !skipped {
                break;
            }
        }
        gone
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(u32),
    Mark(u32),
    Use(u32, u32, bool),
    Reclaim,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1u32..40).prop_map(Step::Add),
        6 => any::<u32>().prop_map(Step::Mark),
        6 => (any::<u32>(), 1u32..3, any::<bool>()).prop_map(|(which, nr, exec)| Step::Use(which, nr, exec)),
        1 => Just(Step::Reclaim),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_lists_do_what_vectors_would(steps in prop::collection::vec(step(), 1..150)) {
        let entry = origin::find(TWO_LISTS, "linux-4.4").expect("a kernel");
        let mut lists: TwoList = (entry.build)(&entry.defaults());
        let mut oracle = Oracle::default();
        // Names in the order of adding; the lists' own names are used again after an eviction.
        let mut cached: Vec<(u32, FolioId)> = Vec::new();
        let mut used: BTreeMap<u32, References> = BTreeMap::new();
        let mut next = 0;
        for step in steps.into_iter().chain([Step::Reclaim]) {
            match step {
                Step::Add(nr) => for _ in 0..nr {
                    cached.push((next, lists.add(1, None, false)));
                    oracle.inactive.insert(0, next);
                    oracle.referenced.insert(next, false);
                    next += 1;
                },
                Step::Mark(which) if !cached.is_empty() => {
                    let (name, folio) = cached[which as usize % cached.len()];
                    // The order within batches is the processor's business: compare drained lists.
                    lists.drain();
                    lists.mark_accessed(folio);
                    lists.drain();
                    oracle.mark(name);
                }
                Step::Use(which, nr_mappings, exec) if !cached.is_empty() => {
                    let (name, _) = cached[which as usize % cached.len()];
                    used.insert(name, References { nr_mappings, exec });
                }
                Step::Reclaim => {
                    let name_of: BTreeMap<FolioId, u32> = cached.iter().map(|&(name, folio)| (folio, name)).collect();
                    let tables = cached.iter().filter_map(|(name, folio)| Some((*folio, *used.get(name)?)));
                    let mut pages = Pages { used: tables.collect(), ..Pages::default() };
                    let nr_freed = lists.reclaim(1, &mut pages);
                    let gone: Vec<u32> = pages.gone.iter().map(|(folio, _)| name_of[folio]).collect();
                    prop_assert_eq!(nr_freed, gone.len() as u64);
                    prop_assert_eq!(&gone, &oracle.reclaim(std::mem::take(&mut used)));
                    used = pages.used.iter().map(|(folio, references)| (name_of[folio], *references)).collect();
                    cached.retain(|(name, _)| !gone.contains(name));
                }
                _ => {}
            }
            lists.drain();
            prop_assert_eq!(lists.nr_inactive(), oracle.inactive.len() as u64);
            prop_assert_eq!(lists.nr_active(), oracle.active.len() as u64);
            prop_assert_eq!(lists.nr_inactive() + lists.nr_active(), cached.len() as u64);
        }
    }
}

fn lists_of(kernel: &str) -> TwoList {
    let entry = origin::find(TWO_LISTS, kernel).expect("a kernel");
    (entry.build)(&entry.defaults())
}

/// Adds folios of one page and puts them on their list.
fn add(lists: &mut TwoList, nr: usize) -> Vec<FolioId> {
    let folios = (0..nr).map(|_| lists.add(1, None, false)).collect();
    lists.drain();
    folios
}

fn mark_twice(lists: &mut TwoList, folios: &[FolioId]) {
    for _ in 0..2 {
        folios.iter().for_each(|&folio| lists.mark_accessed(folio));
    }
}

fn gone(pages: &Pages) -> Vec<FolioId> {
    pages.gone.iter().map(|(folio, _)| *folio).collect()
}

#[test]
fn counters_of_2_6_6_worked_by_hand() {
    // 100 inactive pages: 1, 3, 6, 12, 25 are due at priorities 6 to 2, which makes 47 at priority 2.
    let mut lists = lists_of("linux-2.6.6");
    let folios = add(&mut lists, 100);
    let mut pages = Pages::default();
    assert_eq!(lists.reclaim(1, &mut pages), 47);
    assert_eq!(gone(&pages), folios[..47]);
    // 53 are left: 1, 3, 6, 13, 26 are due at priorities 5 to 1.
    assert_eq!(lists.reclaim(1, &mut pages), 49);
    assert_eq!((lists.nr_inactive(), lists.nr_active()), (4, 0));

    // 64 active and 32 inactive: 32 * 64 / 66 + 1 = 32 are due at once and move; 32 * 32 / 130 + 1 = 8 at each priority
    // from 11 on move the rest at 8; of then 96 inactive pages 1, 3, 6, 12, 24 make 46 at priority 2.
    let mut lists = lists_of("linux-2.6.6");
    let hot = add(&mut lists, 64);
    mark_twice(&mut lists, &hot);
    let cold = add(&mut lists, 32);
    assert_eq!((lists.nr_inactive(), lists.nr_active()), (32, 64));
    let mut pages = Pages::default();
    assert_eq!(lists.reclaim(1, &mut pages), 46);
    assert_eq!(gone(&pages), [&cold[..], &hot[..14]].concat());
    assert_eq!((lists.nr_inactive(), lists.nr_active()), (50, 0));
}

#[test]
fn what_2_6_6_does_with_used_pages_depends_on_mappings() {
    for file_mapped in [false, true] {
        let mut lists = lists_of("linux-2.6.6");
        let folios = add(&mut lists, 100);
        folios[..10].iter().for_each(|&folio| lists.mark_accessed(folio));
        let mut pages = Pages { file_mapped, ..Pages::default() };
        let nr_kept = if file_mapped { 10 } else { 0 };
        assert_eq!(lists.reclaim(1, &mut pages), 47 - nr_kept);
        assert_eq!(lists.nr_active(), nr_kept);
    }
    // A page in the processor's batch is not activated, however often it is marked.
    let mut lists = lists_of("linux-2.6.6");
    let folio = lists.add(1, None, false);
    mark_twice(&mut lists, &[folio]);
    lists.drain();
    assert_eq!((lists.nr_inactive(), lists.nr_active()), (1, 0));
    lists.mark_accessed(folio);
    assert_eq!((lists.nr_inactive(), lists.nr_active()), (0, 1));
}

#[test]
fn mapped_active_pages_of_2_6_6_stay_while_reclaim_is_at_ease() {
    // 64 active pages, all mapped, and 200 others: 24 % are mapped, 12 + 0 + 60 is less than 100.
    let mut lists = lists_of("linux-2.6.6");
    let hot = add(&mut lists, 64);
    mark_twice(&mut lists, &hot);
    add(&mut lists, 200);
    let mut pages = Pages { mapped: hot.clone(), ..Pages::default() };
    for _ in 0..2 {
        lists.reclaim(1, &mut pages);
        assert_eq!(lists.nr_active(), 64);
    }
    // Once most of what is left is mapped, those not used go too.
    while lists.nr_inactive() > 40 {
        lists.reclaim(1, &mut pages);
    }
    for _ in 0..3 {
        lists.reclaim(1, &mut pages);
    }
    assert!(lists.nr_active() < 64, "{}", lists.nr_active());
}

#[test]
fn passes_of_2_4_worked_by_hand() {
    // A sixth of 90, 75 and 63 pages is looked at: 15 + 12 + 5 go, in order.
    let mut lists = lists_of("linux-2.4.25");
    let folios = add(&mut lists, 90);
    let mut pages = Pages::default();
    assert_eq!(lists.reclaim(1, &mut pages), 32);
    assert_eq!(gone(&pages), folios[..32]);

    // 60 active, 30 inactive. First pass: 32 * 60 / 61 = 31 move, 15 go; second: 17 * 29 / 93 = 5 move, 12 go; third:
    // 5 * 24 / 79 = 1 moves, 5 go.
    let mut lists = lists_of("linux-2.4.25");
    let hot = add(&mut lists, 60);
    mark_twice(&mut lists, &hot);
    let cold = add(&mut lists, 30);
    let mut pages = Pages::default();
    assert_eq!(lists.reclaim(1, &mut pages), 32);
    assert_eq!(gone(&pages), [&cold[..], &hot[..2]].concat());
    assert_eq!((lists.nr_inactive(), lists.nr_active()), (35, 23));
    // What was moved is marked: one touch brings it back.
    lists.mark_accessed(hot[2]);
    assert_eq!((lists.nr_inactive(), lists.nr_active()), (34, 24));
}

#[test]
fn pages_that_2_4_passes_over() {
    // A referenced active page goes round once; the other two move.
    let mut lists = lists_of("linux-2.4.25");
    let hot = add(&mut lists, 3);
    mark_twice(&mut lists, &hot);
    lists.mark_accessed(hot[0]);
    let cold = add(&mut lists, 20);
    let mut pages = Pages { mapped: cold[..4].to_vec(), busy: cold[4..6].to_vec(), ..Pages::default() };
    // Passes go on until a sixth of what is left is nothing.
    lists.reclaim(1, &mut pages);
    assert!(pages.gone.iter().all(|(folio, _)| !cold[..6].contains(folio)), "{:?}", gone(&pages));
    assert!(pages.gone.len() >= 10, "{:?}", gone(&pages));
    assert_eq!(lists.reclaim(1, &mut pages), 0);

    // Where all are mapped, 100 * 32 are passed over; those behind them go unless they have been used.
    let mut lists = lists_of("linux-2.4.25");
    let folios = add(&mut lists, 20_000);
    let used = References { nr_mappings: 1, exec: false };
    let used = BTreeMap::from([(folios[3200], used)]);
    let mut pages = Pages { mapped: folios.clone(), used, ..Pages::default() };
    assert_eq!(lists.reclaim(1, &mut pages), 32);
    assert_eq!(gone(&pages), folios[3201..3233]);
}

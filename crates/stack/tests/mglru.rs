//! Reclaim by generations: what survives a stream, and what a loop misses. That the rules are the kernels' own is held
//! by `cargo xtask oracle` and its golden answers.

use iowhy_stack::origin;
use iowhy_stack::reclaim::Lists as _;
use iowhy_stack::reclaim::mglru::{MGLRUS, Mglru};
use iowhy_stack::reclaim::two_list::{Condition, FolioId, Folios, References, Shadow};

/// A control group of 1000 pages that reads one file.
struct Group {
    lists: Mglru,
    pages: Pages,
    misses: u64,
}

/// Pages of the file.
#[derive(Default)]
struct Pages {
    folios: Vec<Option<FolioId>>,
    shadows: Vec<Option<Shadow>>,
    /// The page of each folio.
    pages: Vec<usize>,
    busy: Vec<usize>,
    used: Vec<usize>,
    nr_cached: u64,
}

impl Folios for Pages {
    fn references(&mut self, folio: FolioId) -> References {
        let page = self.pages[folio.0 as usize];
        References { nr_mappings: u32::from(self.used.contains(&page)), exec: false }
    }

    fn condition(&self, folio: FolioId) -> Condition {
        if self.busy.contains(&self.pages[folio.0 as usize]) { Condition::Busy } else { Condition::Clean }
    }

    fn is_mapped(&self, folio: FolioId) -> bool {
        self.used.contains(&self.pages[folio.0 as usize])
    }

    fn evict(&mut self, folio: FolioId, shadow: Shadow) {
        let page = self.pages[folio.0 as usize];
        (self.folios[page], self.shadows[page]) = (None, Some(shadow));
        self.nr_cached -= 1;
    }
}

impl Group {
    fn new(kernel: &str) -> Group {
        let entry = origin::find(MGLRUS, kernel).expect("a kernel");
        let pages = Pages { folios: vec![None; 16_384], shadows: vec![None; 16_384], ..Pages::default() };
        Group { lists: (entry.build)(&entry.defaults()), pages, misses: 0 }
    }

    fn read(&mut self, pages: std::ops::Range<usize>) {
        for page in pages {
            let folio = match self.pages.folios[page] {
                Some(folio) => folio,
                None => self.miss(page),
            };
            self.lists.mark_accessed(folio);
        }
    }

    fn miss(&mut self, page: usize) -> FolioId {
        self.misses += 1;
        for _ in 0..16 {
            if self.pages.nr_cached < 1000 {
                break;
            }
            self.lists.reclaim(1, &mut self.pages);
        }
        let folio = self.lists.add(1, self.pages.shadows[page].take(), false);
        self.pages.pages.resize(self.pages.pages.len().max(folio.0 as usize + 1), 0);
        self.pages.pages[folio.0 as usize] = page;
        self.pages.folios[page] = Some(folio);
        self.pages.nr_cached += 1;
        folio
    }

    /// How many of the first 100 pages are cached.
    fn survivors(&self) -> usize {
        self.pages.folios[..100].iter().flatten().count()
    }
}

#[test]
fn which_hot_pages_survive_a_stream() {
    type Before = fn(&mut Group);
    let rows: [(&str, Before); 6] = [
        ("read once", |group| group.read(0..100)),
        ("read twice", |group| (0..2).for_each(|_| group.read(0..100))),
        ("read seven times", |group| (0..7).for_each(|_| group.read(0..100))),
        ("promoted", promote),
        ("locked", |group| {
            group.read(0..100);
            group.pages.busy = (0..100).collect();
        }),
        ("used through a mapping", |group| {
            group.read(0..100);
            group.pages.used = (0..100).collect();
        }),
    ];
    let survivors = |before: Before| {
        MGLRUS.iter().map(move |entry| {
            let mut group = Group::new(entry.name);
            before(&mut group);
            group.read(4000..5500);
            group.survivors()
        })
    };
    let found = rows.map(|(name, before)| (name, survivors(before).collect::<Vec<_>>()));
    assert_eq!(found, SURVIVORS.map(|(name, survivors)| (name, survivors.to_vec())));
}

/// Of 100 hot pages: 6.1, 6.12, 7.2.
const SURVIVORS: [(&str, [usize; 3]); 6] = [
    ("read once", [0; 3]),
    ("read twice", [0; 3]),
    ("read seven times", [100; 3]),
    // The last ones were in the batch of new folios yet, and are marked only.
    ("promoted", [90, 93, 93]),
    ("locked", [100; 3]),
    ("used through a mapping", [100; 3]),
];

fn promote(group: &mut Group) {
    group.read(0..100);
    for page in 0..100 {
        let folio = group.pages.folios[page].expect("it was read");
        group.lists.promote(folio);
    }
}

#[test]
fn loops_and_streams_next_to_hot_pages() {
    let found = MGLRUS.iter().map(|entry| {
        let mut cyclic = Group::new(entry.name);
        (0..10).for_each(|_| cyclic.read(0..1200));
        let mut mixed = Group::new(entry.name);
        for pass in 0..40 {
            mixed.read(0..600);
            mixed.read(2000 + 300 * pass..2300 + 300 * pass);
        }
        (entry.name, cyclic.misses, mixed.misses)
    });
    assert_eq!(found.collect::<Vec<_>>(), MISSES);
}

/// Of a loop of 12,000 reads over 1200 pages, and of 24,000 reads of 600 hot pages in turn with 12,000 others.
const MISSES: [(&str, u64, u64); 3] =
    [("mglru-6.1", 12_000, 12_920), ("mglru-6.12", 12_000, 12_920), ("mglru-7.2", 12_000, 20_530)];

#[test]
fn a_fifth_generation_merges_the_first_two() {
    for entry in MGLRUS {
        let mut group = Group::new(entry.name);
        group.read(0..200);
        (0..10).for_each(|_| group.lists.age());
        let sizes: Vec<u64> = group.lists.seqs().map(|seq| group.lists.nr_pages(seq)).collect();
        assert_eq!((sizes.len(), sizes[0] > 0, sizes[1..].iter().sum::<u64>()), (4, true, 0), "{}", entry.name);
    }
}

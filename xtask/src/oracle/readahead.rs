//! Read-ahead of an open file, on a page cache that has a page as soon as it is asked for

use std::collections::BTreeMap;

use iowhy_stack::kernel::Stack;
use iowhy_stack::readahead::{Advice, Folio, Limits, Mapping, ReadRequest, Readahead, Window};
use iowhy_stack::rng::Rng;
use iowhy_stack::units::{PAGE_BYTES, PageIndex};

use super::{Case, Policy, Step};

pub(super) const READAHEAD: Policy = Policy {
    name: "readahead",
    program: "read_ahead.c",
    files: &["mm/readahead.c", "lib/xarray.c"],
    headers: &["linux/list.h", "linux/xarray.h"],
    cuts: &[("mm/filemap.c", &["page_cache_next_miss", "page_cache_prev_miss"])],
    draw,
    valid: |_| true,
    model,
    legend: &[
        ('#', "bytes of the file, pages of the limit, of the largest request, largest folio order"),
        (
            'r',
            "read: first page, pages, unread bytes of the last. Answer: m miss, a marker, start+pages, !marker, /order",
        ),
        ('m', "a miss at this page of a request for that many; if it is absent"),
        ('a', "this page of a request for that many; if it carries the marker"),
        ('e', "pages leave the cache: first, how many"),
        ('w', "a page begins or ceases to be written"),
        ('g', "the queue is congested, or not"),
        ('f', "advice: 0 normal, 1 random, 2 sequential"),
        ('n', "these pages will be needed: first, how many"),
    ],
    not_decisions: &["r", "m", "a", "e", "w", "g", "f", "n"],
};

fn draw(rng: &mut Rng, stack: &Stack) -> Case {
    let has_folios = !matches!(stack.readahead.entry.name, "linux-5.4" | "linux-5.10" | "linux-5.15");
    let mut between = |low: i64, high: i64| low + rng.below((high - low + 1) as u64) as i64;
    let pages = [between(1, 20), between(20, 200), 1000, 5000, 100_000][between(0, 4) as usize];
    let bytes = pages * PAGE_BYTES as i64 - [0, between(0, 4095)][between(0, 1) as usize];
    let limit = [0, 1, between(2, 40), 8, 32, 32, 32, 128, 1024][between(0, 8) as usize];
    let largest = [0, limit, 64, between(1, 400), 1024][between(0, 4) as usize];
    let order = if has_folios { [0, 0, 2, 4, 9][between(0, 4) as usize] } else { 0 };
    let settings = vec![Step::new('#', &[bytes, limit, largest, order])];
    let mut places = [0; 3].map(|_| between(0, pages - 1));
    places[0] = 0;
    let usual = [0; 3].map(|_| [1, between(1, 5), between(1, 40), between(1, 300)][between(0, 3) as usize]);
    let nr_steps = between(5, 120);
    let steps = (0..nr_steps).map(|_| {
        let (first, some) =
            (between(0, pages - 1), [between(1, 4), between(1, 64), between(1, 600)][between(0, 2) as usize]);
        match between(0, 99) {
            0..=3 => Step::new('e', &[first, some]),
            4..=6 => Step::new('m', &[first, some]),
            7..=9 => Step::new('a', &[first, some]),
            10 => Step::new('w', &[first]),
            11 => Step::new('g', &[between(0, 1)]),
            12 => Step::new('f', &[[0, 0, 1, 2][between(0, 3) as usize]]),
            13 => Step::new('n', &[first, some]),
            kind => {
                let stream = (kind % 3) as usize;
                if between(0, 9) == 0 || places[stream] >= pages {
                    places[stream] = first;
                }
                let first = places[stream];
                let nr_pages = if between(0, 9) == 0 { some } else { usual[stream] }.min(pages - first);
                let rest = [0, 0, 0, between(0, 4095)][between(0, 3) as usize];
                // A read that ended within a page goes on there.
                places[stream] = first + nr_pages - i64::from(rest > 0 && nr_pages > 1);
                Step::new('r', &[first, nr_pages, rest])
            }
        }
    });
    let steps = steps.collect();
    Case { settings, steps }
}

#[derive(Copy, Clone, Debug, Default)]
struct Cached {
    order: u8,
    marked: bool,
    written: bool,
}

/// A file whose pages are valid as soon as they are read.
struct Cache {
    bytes: u64,
    limits: Limits,
    congested: bool,
    /// Folios by their first page.
    folios: BTreeMap<u64, Cached>,
    submitted: String,
}

impl Cache {
    fn find(&self, page: PageIndex) -> Option<(u64, Cached)> {
        let (first, cached) = self.folios.range(..=page.0).next_back()?;
        (page.0 < first + (1 << cached.order)).then_some((*first, *cached))
    }

    /// Adds folios that follow each other, as one submission.
    fn add(&mut self, folios: impl Iterator<Item = (u64, u8)>, marker: Option<PageIndex>) {
        let (mut text, mut start, mut end) = (String::new(), None, 0);
        for (first, order) in folios {
            let marked = marker == Some(PageIndex(first));
            self.folios.insert(first, Cached { order, marked, written: false });
            start.get_or_insert(first);
            end = first + (1 << order);
            if marked {
                text += &format!("!{first}");
            }
            if order > 0 {
                text += &format!("/{order}");
            }
        }
        if let Some(start) = start {
            self.submitted += &format!(" {start}+{}{text}", end - start);
        }
    }
}

impl Mapping for Cache {
    fn size_bytes(&self) -> u64 {
        self.bytes
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn congested(&self) -> bool {
        self.congested
    }

    fn present(&self, page: PageIndex) -> bool {
        self.find(page).is_some()
    }

    fn uptodate(&self, page: PageIndex) -> bool {
        self.present(page)
    }

    fn locked(&self, _page: PageIndex) -> bool {
        false
    }

    fn under_writeback(&self, page: PageIndex) -> bool {
        self.find(page).is_some_and(|(_, cached)| cached.written)
    }

    fn marked(&self, page: PageIndex) -> bool {
        self.find(page).is_some_and(|(_, cached)| cached.marked)
    }

    fn folio(&self, page: PageIndex) -> Option<Folio> {
        self.find(page).map(|(first, cached)| Folio { first: PageIndex(first), order: cached.order })
    }

    fn clean_run(&self, _page: PageIndex, _nr_pages: u64) -> u64 {
        0
    }

    fn clear_marker(&mut self, page: PageIndex) {
        if let Some((first, cached)) = self.find(page) {
            self.folios.insert(first, Cached { marked: false, ..cached });
        }
    }

    fn read_pages(&mut self, window: &Window) -> u64 {
        let pages = window.start.0..window.start.0 + window.nr_pages;
        let absent: Vec<(u64, u8)> =
            pages.filter(|page| !self.present(PageIndex(*page))).map(|page| (page, 0)).collect();
        let new = absent.len() as u64;
        self.add(absent.into_iter(), window.marker);
        new
    }

    fn read_folios(&mut self, window: &Window, folios: &[Folio]) {
        self.add(folios.iter().map(|folio| (folio.first.0, folio.order)), window.marker);
    }
}

fn model(stack: &Stack, case: &Case) -> Vec<String> {
    let setup = &case.settings[0];
    let limits = Limits {
        ra_pages: setup.unsigned(1),
        io_pages: setup.unsigned(2),
        max_folio_order: setup.get(3) as u8,
        max_sane: u64::MAX,
    };
    let bytes = setup.unsigned(0);
    let mut cache = Cache { bytes, limits, congested: false, folios: BTreeMap::new(), submitted: String::new() };
    let mut ra = (stack.readahead.entry.build)(&stack.readahead.options, &limits);
    let mut answers = Vec::with_capacity(case.steps.len());
    for step in &case.steps {
        act(ra.as_mut(), &mut cache, step);
        let state: Vec<String> = ra.trace().iter().map(ToString::to_string).collect();
        answers.push(format!("{}{} ={}", step.op, std::mem::take(&mut cache.submitted), state.join(",")));
    }
    answers
}

fn act(ra: &mut dyn Readahead, cache: &mut Cache, step: &Step) {
    let (first, nr_pages) = (step.unsigned(0), step.unsigned(1));
    let page = PageIndex(first);
    match step.op {
        'r' => {
            let len_bytes = nr_pages * PAGE_BYTES - step.unsigned(2);
            let request = ReadRequest { offset: first * PAGE_BYTES, len_bytes };
            let call = ra.begin(cache, &request);
            let (mut at, end) = (first, first + nr_pages);
            while at < end {
                let page = PageIndex(at);
                if !cache.present(page) {
                    cache.submitted += " m";
                    ra.on_miss(call, cache, page, end - at);
                }
                let (first, cached) = cache.find(page).unwrap_or_else(|| {
                    cache.folios.insert(at, Cached::default());
                    (at, Cached::default())
                });
                if cached.marked {
                    cache.submitted += " a";
                    ra.on_marker(call, cache, PageIndex(first), end - first);
                }
                at = first + (1 << cached.order);
            }
            ra.copied(call, request.offset + len_bytes);
            ra.end(call, request.offset + len_bytes);
        }
        'm' if !cache.present(page) => {
            cache.submitted += " m";
            ra.on_miss(Default::default(), cache, page, nr_pages);
        }
        'a' if cache.marked(page) => {
            let page = cache.folio(page).map_or(page, |folio| folio.first);
            cache.submitted += " a";
            ra.on_marker(Default::default(), cache, page, nr_pages);
        }
        'e' => cache
            .folios
            .retain(|at, cached| *at < first || at + (1 << cached.order) > first + nr_pages || cached.written),
        'w' => {
            if let Some((first, cached)) = cache.find(page) {
                cache.folios.insert(first, Cached { written: !cached.written, ..cached });
            }
        }
        'g' => cache.congested = first == 1,
        'f' => ra.advise(cache, [Advice::Normal, Advice::Random, Advice::Sequential][first as usize % 3]),
        'n' => {
            cache.submitted += " f";
            let (offset, len_bytes) = (first * PAGE_BYTES, nr_pages * PAGE_BYTES);
            ra.advise(cache, Advice::WillNeed { offset, len_bytes });
        }
        _ => {}
    }
}

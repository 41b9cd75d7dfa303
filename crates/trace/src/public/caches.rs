//! Misses of caches of given sizes on a public trace.
//!
//! ```text
//! object   a request is for one object, its key or first byte, as large as at its last insertion; one that is larger
//!          than the cache is never kept; room is made before a miss is put in. libCacheSim counts so
//! page     a request is for its pages of 4 KiB, one after the other, and the cache has frames
//! ```
//! Policies are those of `iowhy models reclaim`: the kernels' two lists and generations (pages alone) are driven as a
//! control group of that many pages which reads: each use marks its page, a charge over the limit reclaims, and the
//! statistics are folded every two seconds of the trace. Every request counts, deletions among them; those without
//! bytes do not.
//!
//! Source: libCacheSim 0.3.5, `cache.c`: equal counts, frozen in `tests.rs`. Limits: 2^32
//! different keys or pages; the kernels' lists know neither dirty pages nor mappings here.

use iowhy_stack::origin::{Entry, find};
use iowhy_stack::reclaim::mglru::{self, MGLRUS};
use iowhy_stack::reclaim::two_list::{self, Condition, FolioId, Folios, References, Shadow, TWO_LISTS};
use iowhy_stack::reclaim::{self, Frame, Lists, RECLAIMS};
use iowhy_stack::units::PAGE_BYTES;

/// A policy to count the misses of.
#[derive(Copy, Clone, Debug)]
pub enum Policy {
    Plain(&'static Entry<reclaim::Build>),
    Kernel(&'static Entry<two_list::Build>),
    Generations(&'static Entry<mglru::Build>),
}

impl Policy {
    /// The policy of this name.
    pub fn named(name: &str) -> Option<Policy> {
        let kernel = || find(TWO_LISTS, name).map(Policy::Kernel);
        let generations = || find(MGLRUS, name).map(Policy::Generations);
        find(RECLAIMS, name).map(Policy::Plain).or_else(kernel).or_else(generations)
    }

    pub fn name(self) -> &'static str {
        match self {
            Policy::Plain(entry) => entry.name,
            Policy::Kernel(entry) => entry.name,
            Policy::Generations(entry) => entry.name,
        }
    }

    /// Every name.
    pub fn names() -> Vec<&'static str> {
        let kernels = TWO_LISTS.iter().map(|entry| entry.name).chain(MGLRUS.iter().map(|entry| entry.name));
        RECLAIMS.iter().map(|entry| entry.name).chain(kernels).collect()
    }
}

/// The uses of a trace: what is used, by a number from 0, one after the other.
#[derive(Clone, Debug, Default)]
pub struct Uses {
    /// Numbers of what is used.
    pub ids: Vec<u32>,
    /// Bytes of each use; of pages, nothing.
    pub bytes: Vec<u32>,
    /// Different ones.
    pub nr_ids: u32,
    /// Uses before which two seconds of the trace have passed.
    pub folds: Vec<usize>,
}

/// Misses of a cache.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    pub uses: u64,
    pub misses: u64,
    pub bytes: u64,
    pub miss_bytes: u64,
}

impl Uses {
    /// The misses of a cache of `cache_bytes`; nothing for a policy that knows pages alone, on objects.
    pub fn misses(&self, policy: Policy, cache_bytes: u64) -> Option<Misses> {
        if !self.bytes.is_empty() || self.ids.is_empty() {
            let Policy::Plain(entry) = policy else { return None };
            return Some(self.objects(entry, cache_bytes));
        }
        let frames = u32::try_from(cache_bytes / PAGE_BYTES).unwrap_or(u32::MAX).min(self.nr_ids.max(1));
        let uses = self.ids.len() as u64;
        let misses = match policy {
            _ if frames == 0 => uses,
            Policy::Plain(entry) => (entry.build.replay_pages)(frames, &entry.defaults(), &self.ids),
            Policy::Kernel(entry) => self.pages(&mut (entry.build)(&entry.defaults()), u64::from(frames)),
            Policy::Generations(entry) => self.pages(&mut (entry.build)(&entry.defaults()), u64::from(frames)),
        };
        Some(Misses { uses, misses, bytes: uses * PAGE_BYTES, miss_bytes: misses * PAGE_BYTES })
    }

    fn objects(&self, entry: &Entry<reclaim::Build>, cache_bytes: u64) -> Misses {
        let mut policy = (entry.build.policy)(self.nr_ids.max(1), &entry.defaults());
        // Bytes of what is in the cache, plus one.
        let mut held = vec![0_u64; self.nr_ids as usize];
        let (mut used, mut found) = (0, Misses { uses: self.ids.len() as u64, ..Misses::default() });
        for (id, bytes) in self.ids.iter().zip(&self.bytes) {
            let bytes = u64::from(*bytes);
            found.bytes += bytes;
            if held[*id as usize] > 0 {
                policy.touched(Frame(*id));
                continue;
            }
            found.misses += 1;
            found.miss_bytes += bytes;
            if bytes > cache_bytes {
                continue;
            }
            while used + bytes > cache_bytes
                && let Some(Frame(victim)) = policy.victim()
            {
                used -= std::mem::take(&mut held[victim as usize]) - 1;
            }
            held[*id as usize] = bytes + 1;
            used += bytes;
            policy.inserted(Frame(*id));
        }
        found
    }

    fn pages(&self, lists: &mut dyn Lists, frames: u64) -> u64 {
        let mut cached = Cached { folio: vec![None; self.nr_ids as usize], ..Cached::default() };
        let (mut misses, mut folds) = (0, self.folds.iter().peekable());
        for (nr, id) in self.ids.iter().enumerate() {
            while folds.next_if(|fold| **fold <= nr).is_some() {
                lists.fold();
            }
            let folio = match cached.folio[*id as usize] {
                Some(folio) => folio,
                None => {
                    misses += 1;
                    // The kernel tries a few times before it kills; the page is charged after that anyway.
                    for _ in 0..MOST_RETRIES {
                        if cached.nr_pages < frames {
                            break;
                        }
                        lists.reclaim(1, &mut cached);
                    }
                    let shadow = cached.shadow.get_mut(*id as usize).and_then(Option::take);
                    let folio = lists.add(1, shadow, false);
                    cached.put(*id, folio);
                    folio
                }
            };
            lists.mark_accessed(folio);
        }
        misses
    }
}

/// Fruitless calls of reclaim before a charge exceeds the limit.
const MOST_RETRIES: u32 = 16;

/// Pages in the cache and their folios.
#[derive(Default)]
struct Cached {
    /// Of each page.
    folio: Vec<Option<FolioId>>,
    /// Left by each page.
    shadow: Vec<Option<Shadow>>,
    /// In each folio.
    page: Vec<u32>,
    nr_pages: u64,
}

impl Cached {
    fn put(&mut self, page: u32, folio: FolioId) {
        let index = folio.0 as usize;
        self.page.resize(self.page.len().max(index + 1), 0);
        self.page[index] = page;
        self.folio[page as usize] = Some(folio);
        self.nr_pages += 1;
    }
}

impl Folios for Cached {
    fn references(&mut self, _: FolioId) -> References {
        References::default()
    }

    fn condition(&self, _: FolioId) -> Condition {
        Condition::Clean
    }

    fn evict(&mut self, folio: FolioId, shadow: Shadow) {
        let page = self.page[folio.0 as usize] as usize;
        self.folio[page] = None;
        self.shadow.resize(self.folio.len(), None);
        self.shadow[page] = Some(shadow);
        self.nr_pages -= 1;
    }
}

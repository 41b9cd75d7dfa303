//! Least recently used: the page that has not been used for the longest time goes.
//!
//! A doubly linked list through two numbers a frame, newest at the head. Using a page moves it to the head; the victim
//! is the tail. Eight bytes a frame, nothing else.
//!
//! Source: textbook; libCacheSim `LRU.c` counts the same misses. No Linux kernel keeps one exact list, so this is the
//! yardstick for the kernels' policies rather than a model of one.

use super::{Build, Frame, NONE, Reclaim, replay_ids, replay_pages};
use crate::origin::{Entry, Origin};

/// The policy as listed.
pub const ENTRY: Entry<Build> = Entry {
    name: "lru",
    summary: "exact least recently used, one list",
    origin: &[Origin {
        kernels: "none",
        file: "libCacheSim 0.3.5, cache/eviction/LRU.c",
        function: "LRU_find, LRU_evict",
        notes: "Equal miss counts. Kernels approximate it with two lists and a referenced bit.",
    }],
    options: &[],
    conformance: "Frozen miss counts of libCacheSim and a naive oracle, in reclaim.rs.",
    build: Build {
        policy: |frames, _| Box::new(Lru::new(frames)),
        replay_pages: |capacity, _, trace| replay_pages(Lru::new(capacity), capacity, trace),
        replay_ids: |capacity, _, trace| replay_ids(Lru::new(capacity), capacity, trace),
    },
};

/// Neighbours of a frame in the list.
#[derive(Copy, Clone, Debug)]
struct Links {
    newer: u32,
    older: u32,
}

/// Exact LRU.
#[derive(Clone, Debug)]
pub struct Lru {
    /// One pair a frame, and a last one that closes the ring: its `older` is the head, its `newer` the tail.
    links: Vec<Links>,
}

impl Lru {
    /// The policy for a cache of `frames` frames.
    pub fn new(frames: u32) -> Lru {
        let mut links = vec![Links { newer: NONE, older: NONE }; frames as usize];
        links.push(Links { newer: frames, older: frames });
        Lru { links }
    }

    fn end(&self) -> u32 {
        (self.links.len() - 1) as u32
    }

    #[inline]
    fn unlink(&mut self, frame: u32) {
        let Links { newer, older } = self.links[frame as usize];
        self.links[newer as usize].older = older;
        self.links[older as usize].newer = newer;
    }

    #[inline]
    fn link_newest(&mut self, frame: u32) {
        let end = self.end();
        let head = self.links[end as usize].older;
        self.links[frame as usize] = Links { newer: end, older: head };
        self.links[end as usize].older = frame;
        self.links[head as usize].newer = frame;
    }
}

impl Reclaim for Lru {
    #[inline]
    fn touched(&mut self, frame: Frame) {
        self.unlink(frame.0);
        self.link_newest(frame.0);
    }

    #[inline]
    fn inserted(&mut self, frame: Frame) {
        self.link_newest(frame.0);
    }

    #[inline]
    fn victim(&mut self) -> Option<Frame> {
        let end = self.end();
        let tail = self.links[end as usize].newer;
        if tail == end {
            return None;
        }
        self.unlink(tail);
        Some(Frame(tail))
    }

    #[inline]
    fn peek(&self, frame: Frame) -> u32 {
        let Links { newer, older } = self.links[frame.0 as usize];
        let of = |neighbour: u32| self.links.get(neighbour as usize).map_or(0, |links| links.newer);
        of(newer) ^ of(older)
    }
}

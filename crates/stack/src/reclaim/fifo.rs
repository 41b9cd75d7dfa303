//! First in, first out: the page that was read in first goes, however often it was used since.
//!
//! A ring of frames in the order of insertion. The cheapest policy there is, and what a single list without a
//! referenced bit comes to.
//!
//! Source: textbook; libCacheSim `FIFO.c` counts the same misses.

use super::{Build, Frame, Reclaim, Ring, replay_ids, replay_pages};
use crate::origin::{Entry, Origin};

/// The policy as listed.
pub const ENTRY: Entry<Build> = Entry {
    name: "fifo",
    summary: "first in, first out",
    origin: &[Origin {
        kernels: "none",
        file: "libCacheSim 0.3.5, cache/eviction/FIFO.c",
        function: "FIFO_find, FIFO_evict",
        notes: "Equal miss counts.",
    }],
    options: &[],
    conformance: "Frozen miss counts of libCacheSim and a naive oracle, in reclaim.rs.",
    build: Build {
        policy: |frames, _| Box::new(Fifo::new(frames)),
        replay_pages: |capacity, _, trace| replay_pages(Fifo::new(capacity), capacity, trace),
        replay_ids: |capacity, _, trace| replay_ids(Fifo::new(capacity), capacity, trace),
    },
};

#[derive(Clone, Debug)]
pub struct Fifo {
    ring: Ring,
}

impl Fifo {
    /// The policy for a cache of `frames` frames.
    pub fn new(frames: u32) -> Fifo {
        Fifo { ring: Ring::new(frames) }
    }
}

impl Reclaim for Fifo {
    #[inline]
    fn touched(&mut self, _: Frame) {}

    #[inline]
    fn inserted(&mut self, frame: Frame) {
        self.ring.push(frame);
    }

    #[inline]
    fn victim(&mut self) -> Option<Frame> {
        self.ring.pop()
    }
}

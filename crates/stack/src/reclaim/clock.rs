//! CLOCK, or second chance: first in, first out, but a page used since it was last looked at goes round again.
//!
//! A ring of frames in the order of insertion and a small counter a frame. Using a page counts up to the largest value
//! of `counter_bits` bits; a page comes in with 0. The victim is the first frame of the ring whose counter is 0; those
//! passed over lose one and go to the end of the ring.
//!
//! Source: Corbato's Multics experiment (1968) with the counter of libCacheSim's `Clock.c`, which counts the same
//! misses.

use super::{Build, Frame, Reclaim, Ring, replay_ids, replay_pages};
use crate::origin::{Entry, OptionSpec, Options, Origin};

/// The policy as listed.
pub const ENTRY: Entry<Build> = Entry {
    name: "clock",
    summary: "second chance: first in, first out, with a counter of uses",
    origin: &[Origin {
        kernels: "none",
        file: "libCacheSim 0.3.5, cache/eviction/Clock.c",
        function: "Clock_find, Clock_evict",
        notes: "Equal miss counts, also with a counter of two bits.",
    }],
    options: &[OptionSpec::number(
        "counter_bits",
        1,
        (1, 8),
        "bits of the counter of uses; 1 is the classic referenced bit (libCacheSim's default)",
    )],
    conformance: "Frozen miss counts of libCacheSim and a naive oracle, in reclaim.rs.",
    build: Build {
        policy: |frames, options| Box::new(Clock::new(frames, options)),
        replay_pages: |capacity, options, trace| replay_pages(Clock::new(capacity, options), capacity, trace),
        replay_ids: |capacity, options, trace| replay_ids(Clock::new(capacity, options), capacity, trace),
    },
};

#[derive(Clone, Debug)]
pub struct Clock {
    ring: Ring,
    /// Uses of each frame, up to `max_count`.
    counts: Vec<u8>,
    max_count: u8,
}

impl Clock {
    /// The policy for a cache of `frames` frames.
    pub fn new(frames: u32, options: &Options) -> Clock {
        let max_count = u8::MAX >> (8 - options.unsigned("counter_bits"));
        Clock { ring: Ring::new(frames), counts: vec![0; frames as usize], max_count }
    }
}

impl Reclaim for Clock {
    #[inline]
    fn touched(&mut self, frame: Frame) {
        let count = &mut self.counts[frame.0 as usize];
        *count = count.saturating_add(1).min(self.max_count);
    }

    #[inline]
    fn inserted(&mut self, frame: Frame) {
        self.counts[frame.0 as usize] = 0;
        self.ring.push(frame);
    }

    #[inline]
    fn victim(&mut self) -> Option<Frame> {
        loop {
            let frame = self.ring.pop()?;
            let count = &mut self.counts[frame.0 as usize];
            if *count == 0 {
                return Some(frame);
            }
            *count -= 1;
            self.ring.push(frame);
        }
    }

    #[inline]
    fn peek(&self, frame: Frame) -> u32 {
        u32::from(self.counts[frame.0 as usize])
    }
}

//! Tags of blk-mq: permission for requests, and the business of the driver.
//!
//! ```text
//! with a scheduler   a request needs a scheduler tag: nr_requests of them, by default twice the driver's (at most
//!                    256); asynchronous ones may be limited to fewer (`async_depth`)
//! without            a request holds a tag of its hardware queue from allocation to completion
//! budget             SCSI: the elevator is not asked while the device is full, so that requests stay where they merge
//! waiters            are woken when a batch of tags has come free, as many as that: an eighth of the tags that an
//!                    allocation is sure to see in each word of the map, 1 to 8
//! dispatch_busy      an average over the driver's refusals; while it is not 0 software queues are emptied one by one
//! ```
//! Source: Linux 6.1, `block/blk-mq.c` (`blk_mq_get_tag`, `blk_mq_update_dispatch_busy`), `block/blk-mq-sched.c`. Known
//! deviations: a task's software and hardware queue follow from its number; there is one software queue for all;
//! without a scheduler waiters are woken one by one; the eight lines of waiters are one. Source of batches:
//! `lib/sbitmap.c` of 5.10 and 6.1, `sbq_calc_wake_batch`.

use crate::tag_map::{Limit, TagMap};

/// Weight of the average of refusals.
const BUSY_WEIGHT: u32 = 8;
/// Weight of one refusal.
const BUSY_ONE: u32 = 16;

/// Tags of a queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Tags {
    /// Requests allocated, by hardware queue.
    used: Vec<u32>,
    /// Which tags they have.
    maps: Vec<TagMap>,
    /// The tag of the request that is allocated next.
    next: Option<u32>,
    /// Most of them.
    limit: u32,
    busy: u32,
    /// Tags that have to come free before waiters are woken, and those that have.
    batch: u32,
    freed: u32,
}

/// Lines of waiters of a map, and the largest batch (`SBQ_WAIT_QUEUES`, `SBQ_WAKE_BATCH`).
const LINES: u32 = 8;
const LARGEST_BATCH: u32 = 8;

/// Tags that have to come free before waiters are woken, of a map of `depth` tags of which an allocation sees `shallow`
/// in each word.
fn wake_batch(depth: u32, shallow: u32) -> u32 {
    let mut shift = u64::BITS.ilog2();
    while depth >= 4 && 4 << shift > depth {
        shift -= 1;
    }
    let word = 1 << shift;
    let shallow = shallow.min(word);
    let seen = (depth >> shift) * shallow + (depth & (word - 1)).min(shallow);
    (seen / LINES).clamp(1, LARGEST_BATCH)
}

impl Tags {
    /// `shallow_pct` of the tags are seen by every allocation, if a scheduler hands them out.
    pub(super) fn new(nr_hw_queues: u32, limit: u32, shallow_pct: Option<u32>) -> Tags {
        let nr = nr_hw_queues.max(1) as usize;
        let batch = shallow_pct.map_or(1, |pct| wake_batch(limit, (limit * pct / 100).max(1)));
        Tags { used: vec![0; nr], maps: vec![TagMap::new(limit); nr], next: None, limit, busy: 0, batch, freed: 0 }
    }

    /// Tags of each hardware queue.
    #[inline]
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// The hardware queue of a task.
    #[inline]
    pub(super) fn queue_of(&self, task: u32) -> u32 {
        let nr = self.used.len() as u32;
        // The first tasks have a queue each: no division for them.
        if task < nr { task } else { task % nr }
    }

    #[inline]
    pub(super) fn used(&self, queue: u32) -> u32 {
        self.used[queue as usize]
    }

    /// Whether a request with this limit (0: none) can have a tag, which is kept for it.
    #[inline]
    pub(super) fn reserve(&mut self, queue: u32, limit: Limit) -> bool {
        if self.next.is_none() {
            let limit = if matches!(limit, Limit::OfWord(0) | Limit::OfMap(0)) { Limit::None } else { limit };
            self.next = self.maps[queue as usize].get(limit);
        }
        self.next.is_some()
    }

    /// The tag that was kept.
    #[inline]
    pub(super) fn take(&mut self, queue: u32) -> u32 {
        self.used[queue as usize] += 1;
        match self.next.take() {
            Some(tag) => tag,
            None => unreachable!("a request is allocated only after a tag was kept for it"),
        }
    }

    #[inline]
    /// Gives a tag back; returns how many waiters are to be woken.
    pub(super) fn give(&mut self, queue: u32, tag: u32) -> u32 {
        self.used[queue as usize] -= 1;
        self.maps[queue as usize].free(tag);
        self.freed += 1;
        // The last one of all wakes whoever is left.
        if self.freed < self.batch && self.used[queue as usize] > 0 {
            return 0;
        }
        std::mem::take(&mut self.freed)
    }

    /// Whether any hardware queue has a free tag.
    pub(super) fn any_free(&self) -> bool {
        self.used.iter().any(|used| *used < self.limit)
    }

    pub(super) fn nr_hw_queues(&self) -> usize {
        self.used.len()
    }

    /// The driver has been refusing commands lately.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.busy > 0
    }

    /// The driver took what it was given, or refused some.
    #[inline]
    pub(super) fn driver_was(&mut self, busy: bool) {
        if self.busy > 0 || busy {
            self.busy = (self.busy * (BUSY_WEIGHT - 1) + if busy { BUSY_ONE } else { 0 }) / BUSY_WEIGHT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_of_refusals_rises_at_once_and_decays_to_nothing() {
        let mut tags = Tags::new(1, 8, None);
        let mut seen = Vec::new();
        for busy in [false, true, true, true, false, false, false, false, false] {
            tags.driver_was(busy);
            seen.push(tags.busy);
        }
        assert_eq!(seen, [0, 2, 3, 4, 3, 2, 1, 0, 0]);
    }

    #[test]
    fn a_map_whose_allocations_may_see_one_tag_wakes_one_by_one() {
        // Tags, of which seen, batch: what sbq_calc_wake_batch of 6.1 returns for them.
        for (depth, shallow, batch) in
            [(64, 48, 8), (64, 1, 1), (256, 192, 8), (256, 1, 1), (32, 24, 4), (8, 8, 1), (1024, 1, 2), (31, 31, 3)]
        {
            assert_eq!(wake_batch(depth, shallow), batch, "{depth} {shallow}");
        }
    }

    #[test]
    fn waiters_are_woken_when_a_batch_is_free_and_at_the_end() {
        let mut tags = Tags::new(1, 32, Some(75));
        let mut take = || tags.reserve(0, Limit::None).then(|| tags.take(0)).expect("a tag is free");
        let taken: Vec<u32> = (0..10).map(|_| take()).collect();
        let woken: Vec<u32> = taken.into_iter().map(|tag| tags.give(0, tag)).collect();
        assert_eq!(woken, [0, 0, 0, 4, 0, 0, 0, 4, 0, 2]);
    }
}

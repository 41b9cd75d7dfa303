//! A driver that takes more requests, or fewer, than its device: the tags of blk-mq are the driver's.
//!
//! ```text
//! more     what the device has no place for waits in the driver in order of arrival, where no elevator sees it
//! fewer    the device never has more than the driver's tags
//! ```
//! The loop device under a modelled disk is such a driver: its tags cannot be fewer than four, and an IDE drive takes
//! one command at a time. Source: Linux 6.18, `drivers/block/loop.c` (`loop_queue_rq` never refuses). Known deviations:
//! a waiting command reaches the device the moment that a place is free.

use std::collections::VecDeque;

use crate::device::{Command, Completion, Device, DeviceStats};
use crate::units::Nanos;

/// A device behind a driver with tags of its own.
pub(super) struct Driver {
    device: Box<dyn Device>,
    tags: u32,
    /// Commands the device takes.
    room: u32,
    /// Commands in the device.
    inside: u32,
    waiting: VecDeque<Command>,
}

impl Driver {
    /// Each hardware queue has `tags` tags.
    pub(super) fn new(device: Box<dyn Device>, tags: u32) -> Driver {
        assert!(tags > 0, "a driver takes something");
        let room = device.queue_depth().saturating_mul(device.nr_hw_queues());
        Driver { device, tags, room, inside: 0, waiting: VecDeque::new() }
    }
}

impl Device for Driver {
    fn queue_depth(&self) -> u32 {
        self.tags
    }

    fn nr_hw_queues(&self) -> u32 {
        self.device.nr_hw_queues()
    }

    fn bio_based(&self) -> bool {
        self.device.bio_based()
    }

    fn nr_sectors(&self) -> u64 {
        self.device.nr_sectors()
    }

    fn submit(&mut self, now: Nanos, command: Command) {
        if self.inside < self.room {
            self.inside += 1;
            self.device.submit(now, command);
        } else {
            self.waiting.push_back(command);
        }
    }

    fn next(&self) -> Option<Nanos> {
        self.device.next()
    }

    fn advance(&mut self, now: Nanos) -> Option<Completion> {
        let completion = self.device.advance(now)?;
        match self.waiting.pop_front() {
            Some(command) => self.device.submit(now, command),
            None => self.inside -= 1,
        }
        Some(completion)
    }

    fn stats(&self) -> DeviceStats {
        self.device.stats()
    }

    fn rotational(&self) -> bool {
        self.device.rotational()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fixed;
    use crate::device::testing::{build, done, read};

    #[test]
    fn what_the_device_has_no_place_for_waits_in_order() {
        for (depth, tags, servers, expected) in [
            // One at a time, 1 ms each, whatever the number of tags.
            (1, 4, 1, [1, 2, 3, 4]),
            // Two places and two servers: the third begins when the first is done.
            (2, 4, 2, [1, 1, 2, 2]),
            // All are in the device.
            (32, 4, 4, [1, 1, 1, 1]),
        ] {
            let options = [("queue_depth", depth), ("servers", servers)];
            let mut driver = Driver::new(build(&fixed::ENTRY, &options), tags);
            assert_eq!(driver.queue_depth(), tags);
            (0..4).for_each(|tag| driver.submit(Nanos::ZERO, read(tag, 0, 8)));
            let seen: Vec<(u64, u32)> =
                (0..4).map(|_| done(&mut driver)).map(|(at, completion)| (at.0 / 1_000_000, completion.tag)).collect();
            assert_eq!(seen, expected.into_iter().zip(0..4).collect::<Vec<(u64, u32)>>(), "{depth} {tags} {servers}");
            assert_eq!(driver.next(), None);
        }
    }
}

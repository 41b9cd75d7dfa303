//! Fronts: the ways in which the kernel gets a block device whose requests the server answers.
//!
//! All of them hand the same [`Request`](super::pace::Request)s to the same server and take its answers; faults, data,
//! times and counters are not theirs. Which one a disk has is asked for, or the first of the table that this kernel
//! has.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::DiskError;
use crate::ublk;

#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Front {
    /// A block device of the driver ublk.
    Ublk,
    /// A loop device on a file of a FUSE file system.
    Loop,
}

/// A front's properties.
struct Entry {
    front: Front,
    name: &'static str,
    /// The reason why this kernel cannot have it.
    lacks: fn() -> Option<String>,
    /// Advice if it is lacking.
    advice: &'static str,
    /// Most requests that the kernel can have in flight.
    depths: RangeInclusive<u32>,
}

/// Every front; those that leave more to the disk come first. The last one is not tried out before it is created: it
/// reports its lack then.
const FRONTS: &[Entry] = &[
    Entry {
        front: Front::Ublk,
        name: "ublk",
        lacks: ublk::lacks,
        advice: "as root: `modprobe ublk_drv` (Linux 6.5 or later, and io_uring); or front=loop",
        depths: 1..=128,
    },
    Entry { front: Front::Loop, name: "loop", lacks: || None, advice: "", depths: 4..=128 },
];

impl Front {
    fn entry(self) -> &'static Entry {
        let entry = FRONTS.iter().find(|entry| entry.front == self);
        entry.unwrap_or_else(|| unreachable!("every front is in the table"))
    }

    pub fn name(self) -> &'static str {
        self.entry().name
    }

    pub fn find(name: &str) -> Option<Front> {
        FRONTS.iter().find(|entry| entry.name == name).map(|entry| entry.front)
    }

    /// Names of all fronts.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FRONTS.iter().map(|entry| entry.name)
    }

    /// Most requests that the kernel can have in flight: of a front, or of the one that will be chosen.
    pub(super) fn depths(asked: Option<Front>) -> RangeInclusive<u32> {
        asked.unwrap_or(Front::Loop).entry().depths.clone()
    }

    /// The front that was asked for, or the best that this kernel has.
    pub(super) fn choose(asked: Option<Front>) -> Result<Front, DiskError> {
        choose(asked, |entry| (entry.lacks)())
    }
}

fn choose(asked: Option<Front>, lacks: impl Fn(&Entry) -> Option<String>) -> Result<Front, DiskError> {
    let Some(asked) = asked else {
        let found = FRONTS.iter().find(|entry| lacks(entry).is_none());
        return Ok(found.map_or(Front::Loop, |entry| entry.front));
    };
    let entry = asked.entry();
    match lacks(entry) {
        None => Ok(asked),
        Some(why) => Err(DiskError::Front { name: entry.name, reason: why, advice: entry.advice }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_the_kernel_has_is_chosen_and_what_is_asked_for_is_not_replaced() {
        let without_ublk = |entry: &Entry| (entry.front == Front::Ublk).then(|| "no node".to_owned());
        let all = |_: &Entry| None;
        for (asked, expected) in
            [(None, Front::Ublk), (Some(Front::Loop), Front::Loop), (Some(Front::Ublk), Front::Ublk)]
        {
            assert_eq!(choose(asked, all).expect("all are there"), expected, "{asked:?}");
        }
        assert_eq!(choose(None, without_ublk).expect("one is there"), Front::Loop);
        assert_eq!(choose(Some(Front::Loop), without_ublk).expect("it is there"), Front::Loop);
        let message = choose(Some(Front::Ublk), without_ublk).expect_err("it is not there").to_string();
        for part in ["`ublk`", "no node", "modprobe ublk_drv", "front=loop"] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }

    #[test]
    fn every_front_is_known_by_its_name() {
        for name in Front::names() {
            let front = Front::find(name).expect(name);
            assert_eq!(front.name(), name);
            assert_eq!(serde_json::to_string(&front).expect("JSON"), format!("{name:?}"));
        }
        assert_eq!(Front::find("fuse"), None);
        assert_eq!((Front::depths(None), Front::depths(Some(Front::Ublk))), (4..=128, 1..=128));
    }
}

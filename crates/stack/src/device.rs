//! Devices: how long a command takes.
//!
//! A device is a state machine with a clock of its own: it is given commands, says when something will next happen
//! inside it, and is woken then. It orders the commands it has accepted as it likes; between flushes no order is
//! promised, as with real drives.

use crate::event::Dir;
use crate::origin::{Entry, Options};
use crate::rng::Rng;
use crate::units::{Nanos, Sector};

/// A command for a device.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Returned in the completion; unique among the commands outstanding.
    pub tag: u32,
    /// First sector.
    pub sector: Sector,
    /// Length in sectors; 0 for a pure flush.
    pub nr_sectors: u32,
    /// Direction.
    pub dir: Dir,
    /// Empty the volatile cache before this command is carried out.
    pub flush: bool,
    /// The data must be on stable media at completion (force unit access).
    pub fua: bool,
}

/// A command done, and what it cost inside.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The command's tag.
    pub tag: u32,
    /// Whether the mechanism (or flash) was needed; false if the drive's cache answered.
    pub media: bool,
    /// Time the arm moved for it.
    pub seek: Nanos,
    /// Time spent waiting for its sector to come round.
    pub rotation: Nanos,
}

/// Counters of a device since the start of the run.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Accesses to the medium on behalf of commands.
    pub media_accesses: u64,
    /// Accesses to the medium to empty the write cache.
    pub destages: u64,
    /// Read commands answered from data read ahead or cached.
    pub cache_hits: u64,
    /// Total time the arm moved.
    pub seek: Nanos,
    /// Total time waiting for sectors.
    pub rotation: Nanos,
    /// Total time the mechanism (or the busiest flash channel) worked.
    pub busy: Nanos,
}

/// The rules of one device.
pub trait Device {
    /// Commands it takes at once; the driver never exceeds this.
    fn queue_depth(&self) -> u32;

    /// Capacity in sectors. Commands beyond it are never sent.
    fn nr_sectors(&self) -> u64;

    /// Takes a command at `now`.
    fn submit(&mut self, now: Nanos, command: Command);

    /// When something next happens inside, if anything will. Asked after every `submit` and `advance`.
    fn next(&self) -> Option<Nanos>;

    /// Time is now `now`: the next command that is done, if any. Called again until it returns `None`.
    fn advance(&mut self, now: Nanos) -> Option<Completion>;

    /// Counters so far.
    fn stats(&self) -> DeviceStats;

    /// Whether seeks cost time (`rotational` in sysfs).
    fn rotational(&self) -> bool;
}

/// Makes a device; `rng` is the device's own stream.
pub type Build = fn(&Options, Rng) -> Box<dyn Device>;

/// Every device.
pub const DEVICES: &[&Entry<Build>] = &[];

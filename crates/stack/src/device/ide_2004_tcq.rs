//! The drive of `ide_2004.rs` with tagged queueing: 32 commands, the quickest to reach first.
//!
//! The algorithm is that of `disk.rs`. Source: as `ide_2004.rs`; the tags are those of ATA-5. Known deviations: as
//! `ide_2004.rs`; how the firmware ordered commands is not published.

use super::disk::{Disk, disk_options};
use super::ide_2004;
use crate::device::Build;
use crate::origin::{Entry, OptionSpec, replaced};

/// The table entry.
pub const ENTRY: Entry<Build> = Entry {
    name: "ide-2004-tcq",
    summary: "the same IDE drive with tagged queueing, 32 commands",
    origin: ide_2004::ENTRY.origin,
    options: OPTIONS,
    conformance: "the tests of disk.rs; published runs with tagged queueing are unknown to us",
    build: |options, rng| Box::new(Disk::new(options, rng)),
};

/// All but the depth are those of the drive without tags.
const OPTIONS: &[OptionSpec] =
    &replaced(*ide_2004::OPTIONS, disk_options! { queue_depth: 32, "ATA tagged queueing, 5-bit tags"; });

//! Free memory that a hypervisor takes back.
//!
//! ```text
//! reported   a balloon with free page reporting (Linux 5.7, `mm/page_reporting.c`) hands blocks that have been free
//!            for two seconds back to the host; who touches one next waits until the host has made it again
//! touched    so that runs which are compared do not differ by what has been free, memory is touched just before each
//!            and freed at once: the page cache takes the blocks that were freed last
//! ```
//! Seen with blocks of 2 MiB: a cached read of 192 MiB takes 0.05 s after another one and 0.5 s after a pause of 2.5 s.
//! Limits: a run longer than two seconds meets blocks that were given back meanwhile; without huge pages small blocks
//! are touched, which a host does not take.

use std::fs;
use std::path::Path;

use rustix::mm::{Advice, MapFlags};

use crate::memory::Mapping;
use crate::{machine, signal};

/// Bit of free page reporting among the features of a balloon (virtio 1.2, 5.5.3).
const REPORTING: usize = 5;
/// Memory that a command whose needs nobody knows finds ready, and the most that is touched for anything: bytes.
pub const OF_A_COMMAND: u64 = 256 << 20;
const MOST: u64 = 2 << 30;
/// Bytes touched between two looks for a signal, and the least that is worth it: two blocks.
const PART: u64 = 64 << 20;
const LEAST: u64 = 4 << 20;

/// Whether a hypervisor takes free memory back.
pub fn is_taken_back() -> bool {
    let devices = fs::read_dir("/sys/bus/virtio/devices").into_iter().flatten().flatten();
    devices.map(|device| device.path()).any(|device| {
        let is_balloon = fs::read_link(device.join("driver")).is_ok_and(|driver| driver.ends_with("virtio_balloon"));
        is_balloon && reports(&device)
    })
}

/// Whether a balloon and its driver have agreed on it; features are written as digits, bit 0 first.
fn reports(device: &Path) -> bool {
    fs::read_to_string(device.join("features")).is_ok_and(|bits| bits.as_bytes().get(REPORTING) == Some(&b'1'))
}

/// Touches free memory where a hypervisor takes it back, half of what is free at most; ends early at a signal.
pub fn touch(bytes: u64) {
    if bytes < LEAST || !is_taken_back() {
        return;
    }
    let system = rustix::system::sysinfo();
    let free = (system.freeram as u64).saturating_mul(u64::from(system.mem_unit));
    // What a control group may have is shared with the page cache.
    let most = machine::memory_limit().map_or(free / 2, |limit| (free / 2).min(limit / 4)).min(MOST);
    let bytes = bytes.min(most);
    let parts = (0..bytes.div_ceil(PART)).map(|nr| (bytes - nr * PART).min(PART));
    let touched = parts.take_while(|_| !signal::raised()).map_while(|part| {
        let part = Mapping::anonymous(part as usize, MapFlags::PRIVATE).ok()?;
        part.advise(Advice::LinuxHugepage);
        part.advise(Advice::LinuxPopulateWrite);
        Some(part)
    });
    // All of them at once, or the same block would be touched again and again.
    drop(touched.collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn only_a_balloon_that_reports_free_pages_takes_them() {
        let folder = Scratch::new();
        for (bits, taken) in [("0110010110", true), ("0110000110", false), ("01", false), ("", false)] {
            fs::write(folder.path("features"), bits).expect("written");
            assert_eq!(reports(&folder.path("")), taken, "{bits}");
        }
        assert!(!reports(&folder.path("none")));
    }

    #[test]
    fn touched_memory_is_free_again() {
        let free = || rustix::system::sysinfo().freeram as u64;
        let before = free();
        touch(2 * PART);
        touch(0);
        assert!(free() + (1 << 30) > before);
    }
}

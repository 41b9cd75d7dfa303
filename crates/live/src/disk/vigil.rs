//! Processors stay awake while a disk is in use.
//!
//! A halted processor wakes 0.1 to 0.2 ms late. A program that waits 8 ms for this disk then waits 2 % longer in the
//! median and a fifth longer in one case of a hundred, and neither has anything to do with the disk. A process that has
//! the file `/dev/cpu_dma_latency` open sets the latency that the kernel allows (admin-guide/pm/cpuidle.rst, "Power
//! Management Quality of Service for CPUs"); with none, idle processors poll, and give way to everything. The wish goes
//! with the file, in whatever way the process ends.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

/// Where the wish is kept.
const PATH: &str = "/dev/cpu_dma_latency";
/// The latency that is allowed, us.
const LATENCY: i32 = 0;

/// The wish that processors stay awake.
pub(super) struct Vigil {
    wanted: bool,
    file: Option<File>,
}

impl Vigil {
    /// It is kept this time after the last request: requests that follow each other find it.
    pub(super) const AFTER: Duration = Duration::from_millis(50);

    /// None is kept yet, and none ever if it is not `wanted`.
    pub(super) fn new(wanted: bool) -> Vigil {
        Vigil { wanted, file: None }
    }

    /// Keeps it, if it is wanted and may be had.
    pub(super) fn keep(&mut self) {
        if self.wanted && self.file.is_none() {
            let opened = File::options().write(true).open(PATH);
            self.file = opened.and_then(|mut file| file.write_all(&LATENCY.to_ne_bytes()).map(|()| file)).ok();
            self.wanted = self.file.is_some();
        }
    }

    pub(super) fn is_kept(&self) -> bool {
        self.file.is_some()
    }

    /// Ends it, until it is kept again.
    pub(super) fn end(&mut self) {
        self.file = None;
    }
}

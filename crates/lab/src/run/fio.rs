//! Jobs of fio as jobs of the simulator.

use iowhy_fio::map::{Ground, Mapped, map};
use iowhy_fio::{FioFile, World};
use iowhy_stack::job::Job;
use iowhy_stack::kernel::Stack;
use iowhy_text::diagnose::Problems;

use super::{Shape, device_bytes};

/// A simulated stack: names under /dev/ are its one device, and every file is made.
struct Simulated<'a> {
    device_bytes: u64,
    load: &'a dyn Fn(&str) -> Result<String, String>,
}

impl Ground for Simulated<'_> {
    fn is_device(&self, name: &str) -> bool {
        super::dd::is_device(name)
    }

    fn bytes(&self, name: &str) -> Option<u64> {
        self.is_device(name).then_some(self.device_bytes)
    }

    fn loader(&self) -> &dyn Fn(&str) -> Result<String, String> {
        self.load
    }

    fn simulated(&self) -> bool {
        true
    }
}

/// The simulated job that the jobs of a file are. `ioscheduler` changes the stack's elevator; recorded lists of calls
/// are read through `world`.
pub(super) fn build(
    file: &FioFile,
    world: &World<'_>,
    stack: &mut Stack,
    problems: &mut Problems,
) -> Option<(Job, Shape)> {
    let ground = Simulated { device_bytes: device_bytes(stack), load: world.load };
    let Mapped { job, lines, seeds, .. } = map(file, &ground, Some(stack), problems)?;
    let mut shape = Shape::of(lines);
    shape.fixed_seeds = seeds;
    Some((job, shape))
}

//! The modelled disk that is made for a run, and goes with it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use iowhy_live::disk::{DiskError, DiskHandle, Spec, State};
use iowhy_live::machine;
use iowhy_live::run::Progress;

use crate::on_kernel::Live;

/// Makes the disk for a run.
pub(super) fn hold(spec: Option<&Spec>, seed: u64) -> Result<Option<DiskHandle>, DiskError> {
    let Some(spec) = spec else { return Ok(None) };
    iowhy_live::disk::hold(Spec { seed, ..spec.clone() }).map(Some)
}

/// Makes a live run on a disk of its own, if it has one, whose files are at `paths`.
pub(crate) fn on_disk<E: From<DiskError>>(
    spec: Option<&Spec>,
    seed: u64,
    paths: &[PathBuf],
    make: impl FnOnce(&dyn Fn(Progress)) -> Result<Live, E>,
) -> Result<Live, E> {
    let disk = hold(spec, seed)?;
    let laid_out = Cell::new(false);
    // Files are laid out without waiting for the model.
    let progress = |progress: Progress| {
        if disk.is_none() && !iowhy_live::guest::is_inside() {
            return;
        }
        let hurry = |on: bool| {
            iowhy_live::guest::tell_laying_out(on);
            // A disk that does not answer any more is seen by the job itself.
            let _ = disk.as_ref().map(|disk| disk.hurry(on));
        };
        match progress {
            Progress::SetUp { .. } if !laid_out.get() => {
                laid_out.set(true);
                hurry(true);
            }
            Progress::Ready if laid_out.get() => {
                // Pending writes of them are not the job's.
                paths.iter().filter_map(|path| std::fs::File::open(path).ok()).for_each(|file| {
                    let _ = file.sync_all();
                });
                hurry(false);
                if iowhy_live::guest::is_inside() {
                    // The kernel that has seen it is this one.
                    let disks = paths.iter().filter_map(|path| machine::Disk::below(path).name);
                    for disk in disks.collect::<BTreeSet<_>>() {
                        let _ = iowhy_live::disk::renew_scheduler(&Path::new("/dev").join(disk));
                    }
                }
            }
            _ => {}
        }
    };
    let mut live = make(&progress)?;
    live.modelled = end(disk)?;
    Ok(live)
}

/// Takes the disk of a run away; how it was at the end.
pub(super) fn end(modelled: Option<DiskHandle>) -> Result<Option<Box<State>>, DiskError> {
    let Some(held) = modelled else { return Ok(None) };
    let state = held.stat()?;
    held.remove()?;
    Ok(Some(Box::new(state)))
}

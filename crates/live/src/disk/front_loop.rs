//! The loop device on top of the file: the kernel's view of a modelled disk.
//!
//! The device has a number of its own and is removed as a whole afterwards, so that no setting outlives it. The limit
//! of requests in flight (the tags) is set below the 128 of loop devices: with 128 tags the scheduler never has
//! anything to choose from. The kernel resizes tags only without a scheduler, takes at least four, and afterwards shows
//! `nr_requests` of the scheduler, which is another number; so the depth is [found out](set_depth): twice as many
//! direct reads are sent as the wanted tags, the server holds them, and counts.
//!
//! Known limits: fewer than four tags cannot be had (a drive that takes one command at a time has up to three more
//! waiting in front of it, in order of arrival, where no scheduler sees them). Loop devices have no forced unit access:
//! the kernel sends a flush instead.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iowhy_stack::units::{Nanos, PAGE_BYTES};
use rustix::ioctl::{Opcode, Setter, ioctl};

use super::control::{Counters, Mode, Order, Wire};
use super::pace::usual;
use super::queue::{queue, set};
use super::{DEPTHS, DiskError, Lead, Spec};
use crate::machine;
use crate::memory::Aligned;
use crate::system::{Request, control};

const PAGE: usize = PAGE_BYTES as usize;

fn open_direct(node: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(node)
}

fn read(file: &File, offset: u64) -> io::Result<()> {
    file.read_exact_at(Aligned::new(PAGE).bytes(), offset)
}

/// Gives an order to the server.
pub(super) fn order(wire: &mut Wire, order: &Order) -> Result<Counters, DiskError> {
    wire.say(order).map_err(DiskError::Server)?;
    match wire.hear() {
        Ok(Some(counters)) => Ok(counters),
        Ok(None) => Err(DiskError::Server(io::ErrorKind::UnexpectedEof.into())),
        Err(error) => Err(DiskError::Server(error)),
    }
}

/// Silence after which the requests are taken to be all.
const QUIET: Duration = Duration::from_millis(40);

/// Sets the limit of requests in flight, and finds out its actual value. Tags are counted without a scheduler, which
/// may have reasons of its own not to use them all. Fewer than the kernel takes are those that a front has made: then
/// nothing is set.
pub(super) fn set_depth(node: &Path, wire: &mut Wire, spec: &Spec, mode: Mode) -> Result<u32, DiskError> {
    let scheduler = fs::read_to_string(queue(node).join("scheduler")).unwrap_or_default();
    set(node, "scheduler", "none")?;
    // With the scheduler the kernel forgets how many tags there are: it says those of the birth again, and writing that
    // number would change nothing. One less comes before it.
    for depth in [spec.depth.saturating_sub(1), spec.depth].into_iter().filter(|depth| DEPTHS.contains(depth)) {
        set(node, "nr_requests", &depth.to_string())?;
    }
    let found = depth(node, wire, spec, mode);
    set(node, "scheduler", machine::chosen(&scheduler))?;
    found
}

fn depth(node: &Path, wire: &mut Wire, spec: &Spec, mode: Mode) -> Result<u32, DiskError> {
    let nr_reads = u64::from(2 * spec.depth);
    let stride = spec.bytes / nr_reads / 4096 * 4096;
    let file = open_direct(node).map_err(|error| DiskError::Device { node: node.to_owned(), error })?;
    order(wire, &Order::Mode(Mode::Hold))?;
    let found = std::thread::scope(|scope| {
        for nr in 0..nr_reads {
            let file = &file;
            let spawned = std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, move || {
                // A read that fails shows as a depth that is too small.
                let _ = read(file, nr * stride);
            });
            if spawned.is_err() {
                break;
            }
        }
        let (mut most, mut since, begun) = (0, Instant::now(), Instant::now());
        let counted = loop {
            let counters = match order(wire, &Order::Count) {
                Ok(counters) => counters,
                Err(error) => break Err(error),
            };
            if counters.most > most {
                (most, since) = (counters.most, Instant::now());
            }
            if (most > 0 && since.elapsed() > QUIET) || begun.elapsed() > Duration::from_secs(2) {
                break Ok(());
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        // Whatever has come of it: nobody is left waiting.
        let counters = order(wire, &Order::Mode(Mode::Instant))?;
        counted.map(|()| most.max(counters.outstanding))
    });
    order(wire, &Order::Mode(mode))?;
    found.map(|most| most as u32)
}

/// Service that the time of the layers above is measured with, at least and at most: a processor that has slept for
/// long needs longer for them.
const SERVICE: RangeInclusive<Nanos> = Nanos::from_us(200)..=Nanos::from_ms(10);
/// Time of the measurement, and its least and most reads.
const MEASURED: Nanos = Nanos::from_ms(200);
const NR_READS: RangeInclusive<u64> = 24..=120;
/// A large read, for the time of its bytes, which are copied twice on their way; every disk is larger.
const LARGE: usize = 512 << 10;
/// More than this is a disturbance, and not the way through the kernel.
const MOST: Lead = Lead { ns: 300_000, ns_per_mib: 1_000_000 };

/// Finds out how long reads take on their way through the kernel and back, a page and large ones in turn: the median of
/// how much longer a program waits than the server did, which waits as long as the model usually does.
pub(super) fn lead(node: &Path, wire: &mut Wire, spec: &Spec) -> Result<Lead, DiskError> {
    let failed = |error| DiskError::Device { node: node.to_owned(), error };
    let file = open_direct(node).map_err(failed)?;
    let model = spec.device(0).map_err(|error| failed(io::Error::other(error)))?;
    let service = usual(model, spec.bytes).clamp(*SERVICE.start(), *SERVICE.end());
    let reads = (MEASURED.0 / service.0).clamp(*NR_READS.start(), *NR_READS.end());
    order(wire, &Order::Mode(Mode::After(service.0)))?;
    let (mut buffer, mut times) = (Aligned::new(LARGE), [Vec::new(), Vec::new()]);
    let result = (0..reads).try_for_each(|nr| {
        let (offset, which) = (nr * PAGE_BYTES % (spec.bytes - LARGE as u64), nr as usize % 2);
        let begun = Instant::now();
        let result = file.read_exact_at(&mut buffer.bytes()[..[PAGE, LARGE][which]], offset);
        times[which].push(begun.elapsed().saturating_sub(Duration::from_nanos(service.0)).as_nanos() as u64);
        result
    });
    order(wire, &Order::Mode(Mode::Instant))?;
    result.map_err(failed)?;
    let [small, large] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    let ns_per_mib = (large.saturating_sub(small) << 20) / (LARGE - PAGE) as u64;
    Ok(Lead { ns: small.min(MOST.ns), ns_per_mib: ns_per_mib.min(MOST.ns_per_mib) })
}

const BLKPG: Opcode = 0x1269;
/// Operations of it.
const ADD: libc::c_int = 1;
const REMOVE: libc::c_int = 2;

/// `linux/blkpg.h`.
#[repr(C)]
struct PartitionArgument {
    operation: libc::c_int,
    flags: libc::c_int,
    bytes: libc::c_int,
    data: *const Partition,
}

/// `linux/blkpg.h`.
#[repr(C)]
struct Partition {
    start: i64,
    length: i64,
    number: libc::c_int,
    device_name: [u8; 64],
    volume_name: [u8; 64],
}

/// Where partitions begin.
const ALIGN: u64 = 1 << 20;

/// Places of equal partitions.
pub(super) fn places(bytes: u64, nr: u32) -> Vec<(u64, u64)> {
    let length = (bytes - ALIGN) / u64::from(nr.max(1)) / ALIGN * ALIGN;
    (0..u64::from(nr)).map(|i| (ALIGN + i * length, length)).collect()
}

/// Makes equal partitions: the kernel gets their places, nothing is written to the disk.
pub(super) fn add_partitions(node: &Path, bytes: u64, nr: u32) -> Result<(), DiskError> {
    let failed = |error| DiskError::Device { node: node.to_owned(), error };
    let device = File::open(node).map_err(failed)?;
    for (place, number) in places(bytes, nr).into_iter().zip(1..) {
        partition(&device, ADD, number, place).map_err(failed)?;
    }
    Ok(())
}

/// Adds or removes a partition.
fn partition(device: &File, operation: libc::c_int, number: libc::c_int, place: (u64, u64)) -> io::Result<()> {
    let (start, length) = (place.0 as i64, place.1 as i64);
    let data = Partition { start, length, number, device_name: [0; 64], volume_name: [0; 64] };
    let bytes = size_of::<Partition>() as libc::c_int;
    let argument = PartitionArgument { operation, flags: 0, bytes, data: &raw const data };
    // SAFETY: the request reads the two structures, which live until the call is over.
    Ok(unsafe { ioctl(device, Setter::<BLKPG, PartitionArgument>::new(argument)) }?)
}

/// Takes away the partitions that the kernel has found on the medium by itself: a loop device is not looked through.
pub(super) fn remove_partitions(node: &Path) -> Result<(), DiskError> {
    let name = node.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let entries = fs::read_dir(Path::new("/sys/block").join(&name)).into_iter().flatten().flatten();
    for entry in entries {
        let found = entry.file_name().to_string_lossy().into_owned();
        let number = found.strip_prefix(&name).and_then(|rest| rest.strip_prefix('p')?.parse().ok());
        if let Some(number) = number {
            let failed = |error| DiskError::Device { node: node.to_owned(), error };
            partition(&File::open(node).map_err(failed)?, REMOVE, number, (0, 0)).map_err(failed)?;
        }
    }
    Ok(())
}

/// Forgets what the kernel has cached of the device (and tries to write what it has not written).
pub(super) fn forget(node: &Path) -> io::Result<()> {
    control(&File::open(node)?, Request::FlushBuffers, 0).map(drop)
}

/// Nodes of the device and its partitions.
pub(super) fn nodes(node: &Path, partitions: u32) -> Vec<PathBuf> {
    let mut all = vec![node.to_owned()];
    all.extend((1..=partitions).map(|nr| PathBuf::from(format!("{}p{nr}", node.display()))));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_equal_aligned_and_inside() {
        for (bytes, nr) in [(4 << 30, 2), (64 << 20, 3), (3 << 20, 2), (1 << 40, 16)] {
            let places = places(bytes, nr);
            assert_eq!(places.len(), nr as usize);
            let mut end = ALIGN;
            for (start, length) in places {
                assert!(start == end && length > 0 && length % ALIGN == 0, "{bytes} {nr}");
                end = start + length;
            }
            assert!(end <= bytes);
        }
        assert_eq!(size_of::<Partition>(), 152);
    }
}

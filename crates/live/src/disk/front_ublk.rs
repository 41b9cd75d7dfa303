//! The server's side of a block device of the driver ublk: requests are fetched from `/dev/ublkcN`, and answered there.
//!
//! ```text
//! receiver   FETCH_REQ for every tag ── descriptor, data of a write ──▶ server
//!            COMMIT_AND_FETCH_REQ ◀── tag and result, a wake ── the answering thread, after the data of a read
//! ```
//! Every tag has one command in the ring: it ends when the tag has a request, and the next one brings the answer of
//! that and fetches again. The driver takes commands from the thread alone that has fetched first, so who answers
//! leaves the result to it and wakes it; data go to and from the image by read and write on the character device, from
//! any thread. When the device is stopped all commands end with ENODEV, and so does the server. Reference:
//! Documentation/block/ublk.rst and `include/uapi/linux/ublk_cmd.h`; `ublk` has their numbers.
//!
//! Known limits: one queue. Its tags are those of the device's birth: later on there can only be fewer, four at
//! least. As on the loop device, discard and forced unit access are missing. Unlike there, a request may have more than
//! 128 pieces.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::ThreadId;

use io_uring::types::Fd;
use io_uring::{IoUring, opcode, squeue};
use iowhy_stack::units::SECTOR_BYTES;

use super::fuse::MAX_BYTES;
use super::pace::{Kind, Request};
use super::store::Image;
use super::{DiskError, Spec};
use crate::ublk::{self, COMMIT_AND_FETCH_REQ, Descriptor, FETCH_REQ};

pub(super) fn device(spec: &Spec) -> Result<ublk::Device, DiskError> {
    let depth = u16::try_from(spec.depth).unwrap_or(u16::MAX);
    let (rotational, volatile_cache) = (spec.rotational()?, spec.cache_bytes().is_some());
    Ok(ublk::Device { bytes: spec.bytes, depth, max_bytes: MAX_BYTES, rotational, volatile_cache })
}

/// A descriptor's request to a disk of `disk_bytes` bytes, or the error with which it is refused: requests stay within
/// the features of the device, so nothing is done by halves.
fn translate(tag: u16, descriptor: &Descriptor, disk_bytes: u64) -> Result<Request, i32> {
    let kind = match descriptor.op_flags.to_le_bytes()[0] {
        ublk::OP_READ => Kind::Read,
        ublk::OP_WRITE if descriptor.op_flags & ublk::F_FUA != 0 => return Err(libc::EOPNOTSUPP),
        ublk::OP_WRITE => Kind::Write,
        ublk::OP_FLUSH => return Ok(Request { ticket: tag.into(), kind: Kind::Flush, offset: 0, bytes: 0, layer: 0 }),
        _ => return Err(libc::EOPNOTSUPP),
    };
    let bytes = u64::from(descriptor.nr_sectors) * SECTOR_BYTES;
    let offset = descriptor.start_sector.checked_mul(SECTOR_BYTES).ok_or(libc::EIO)?;
    let end = offset.checked_add(bytes).ok_or(libc::EIO)?;
    if bytes == 0 || bytes > u64::from(MAX_BYTES) || end > disk_bytes {
        return Err(libc::EIO);
    }
    Ok(Request { ticket: tag.into(), kind, offset, bytes: bytes as u32, layer: 0 })
}

/// The result committed for a completed request: bytes, or an error.
fn result(request: &Request, error: i32) -> i32 {
    if error == 0 { request.bytes as i32 } else { -error }
}

/// The mark of a wake among the tags.
const WAKE: u64 = u64::MAX;

/// The device as its server has it.
pub(super) struct Queue {
    device: RawFd,
    depth: u16,
    disk_bytes: u64,
    descriptors: Descriptors,
    /// Answers that the receiver has still to commit: tag and result.
    answers: Mutex<Vec<(u16, i32)>>,
    /// Written to when there is one.
    wake: File,
    receiver: OnceLock<ThreadId>,
}

/// The request of each tag: memory that the driver writes.
struct Descriptors {
    base: *const Descriptor,
    bytes: usize,
}

// SAFETY: the mapping belongs to the value and lives as long; it is only read, and by volatile reads.
unsafe impl Send for Descriptors {}
// SAFETY: as above.
unsafe impl Sync for Descriptors {}

impl Descriptors {
    fn map(device: RawFd, depth: u16) -> io::Result<Descriptors> {
        // SAFETY: the call takes a number and touches no memory.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let bytes = (usize::from(depth) * size_of::<Descriptor>()).next_multiple_of(page);
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: the kernel chooses the place, so nothing of ours is replaced.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, flags, device, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Descriptors { base: base.cast(), bytes })
    }

    fn get(&self, tag: u16) -> Descriptor {
        assert!((usize::from(tag) + 1) * size_of::<Descriptor>() <= self.bytes, "the tag is one of the device");
        // SAFETY: the place lies in the mapping, as was just looked at, and is aligned; any bytes are a descriptor.
        unsafe { self.base.add(usize::from(tag)).read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `map` with this length, and nothing refers to it any more.
        unsafe { libc::munmap(self.base.cast_mut().cast(), self.bytes) };
    }
}

impl Queue {
    /// The device of an open character device.
    pub(super) fn new(device: RawFd, spec: &Spec) -> io::Result<Queue> {
        let depth = u16::try_from(spec.depth).map_err(io::Error::other)?;
        // SAFETY: the call takes numbers alone.
        let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if wake < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was made just now, and nobody else has it.
        let wake = unsafe { File::from_raw_fd(wake) };
        Ok(Queue {
            device,
            depth,
            disk_bytes: spec.bytes,
            descriptors: Descriptors::map(device, depth)?,
            answers: Mutex::new(Vec::new()),
            wake,
            receiver: OnceLock::new(),
        })
    }

    /// Takes requests until the device is stopped, with the data of writes.
    pub(super) fn receive(&self, take: &mut dyn FnMut(Request, &[u8])) -> io::Result<()> {
        assert!(self.receiver.set(std::thread::current().id()).is_ok(), "one thread receives");
        let mut ring = IoUring::new((u32::from(self.depth) + 1).next_power_of_two())?;
        let mut buffer = vec![0; MAX_BYTES as usize];
        for tag in 0..self.depth {
            push(&mut ring, &self.io_command(FETCH_REQ, tag, 0))?;
        }
        push(&mut ring, &self.listen())?;
        loop {
            match ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) => {}
                Err(error) => return Err(error),
            }
            let ended: Vec<(u64, i32)> =
                ring.completion().map(|completion| (completion.user_data(), completion.result())).collect();
            for (data, result) in ended {
                if data == WAKE {
                    // What it counts does not matter; it must not be left standing.
                    let _ = io::Read::read(&mut &self.wake, &mut [0; 8]);
                    push(&mut ring, &self.listen())?;
                    continue;
                }
                match result {
                    0 => self.hand_on(u16::try_from(data).map_err(io::Error::other)?, &mut buffer, take),
                    error if error == -libc::ENODEV => return Ok(()),
                    error => return Err(io::Error::from_raw_os_error(-error)),
                }
            }
            for (tag, result) in std::mem::take(&mut *self.answers()) {
                push(&mut ring, &self.io_command(COMMIT_AND_FETCH_REQ, tag, result))?;
            }
        }
    }

    /// A tag has a request.
    fn hand_on(&self, tag: u16, buffer: &mut [u8], take: &mut dyn FnMut(Request, &[u8])) {
        let request = match translate(tag, &self.descriptors.get(tag), self.disk_bytes) {
            Ok(request) => request,
            Err(error) => return self.answers().push((tag, -error)),
        };
        let data = match request.kind {
            Kind::Write => &mut buffer[..request.bytes as usize],
            Kind::Read | Kind::Flush => &mut [][..],
        };
        let part = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
        match self.copy(tag, part, true) {
            Ok(()) => take(request, data),
            Err(_) => self.answers().push((tag, -libc::EIO)),
        }
    }

    /// Answers a request.
    pub(super) fn reply(&self, image: &Image, request: &Request, error: i32) {
        // The tag is all that a ticket says here.
        let tag = request.ticket as u16;
        let mut result = result(request, error);
        if request.kind == Kind::Read
            && error == 0
            && self.copy(tag, image.slice(request.offset, request.bytes), false).is_err()
        {
            result = -libc::EIO;
        }
        self.answers().push((tag, result));
        if self.receiver.get() != Some(&std::thread::current().id()) {
            // It can only fail if it was written to very often, and then the receiver is awake.
            let _ = io::Write::write(&mut &self.wake, &1_u64.to_ne_bytes());
        }
    }

    /// Copies the data of a tag into memory, or from it.
    fn copy(&self, tag: u16, memory: libc::iovec, into: bool) -> io::Result<()> {
        let mut done = 0;
        while done < memory.iov_len {
            let (left, at) = (memory.iov_len - done, ublk::data_offset(tag) + done as u64);
            // SAFETY: the place is within the memory, whose owner lends it for this call.
            let place = unsafe { memory.iov_base.cast::<u8>().add(done) };
            let at = at as libc::off_t;
            let n = if into {
                // SAFETY: the kernel writes at most as many bytes as are left of the memory.
                unsafe { libc::pread(self.device, place.cast(), left, at) }
            } else {
                // SAFETY: the kernel reads at most as many bytes as are left of the memory.
                unsafe { libc::pwrite(self.device, place.cast(), left, at) }
            };
            match usize::try_from(n) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => done += n,
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    fn answers(&self) -> std::sync::MutexGuard<'_, Vec<(u16, i32)>> {
        // A thread that panics takes the process along, so that nothing half done is seen.
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn io_command(&self, number: u32, tag: u16, result: i32) -> squeue::Entry {
        let command = ublk::io_command(tag, result);
        opcode::UringCmd16::new(Fd(self.device), number).cmd(command).build().user_data(tag.into())
    }

    /// The command that ends with the next answer.
    fn listen(&self) -> squeue::Entry {
        opcode::PollAdd::new(Fd(self.wake.as_raw_fd()), libc::POLLIN as u32).build().user_data(WAKE)
    }
}

/// Puts a command into the ring, which has a place for each tag and the wake.
fn push(ring: &mut IoUring, entry: &squeue::Entry) -> io::Result<()> {
    // SAFETY: the commands name no memory, and descriptors that are open as long as the ring is.
    unsafe { ring.submission().push(entry) }.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 64 << 20;

    fn asked(op: u8, flags: u32, start_sector: u64, nr_sectors: u32) -> Result<Request, i32> {
        translate(3, &Descriptor { op_flags: u32::from(op) | flags, nr_sectors, start_sector, address: 0 }, BYTES)
    }

    fn request(kind: Kind, offset: u64, bytes: u32) -> Request {
        Request { ticket: 3, kind, offset, bytes, layer: 0 }
    }

    #[test]
    fn descriptors_become_requests_or_errors() {
        // Kinds of the driver that are not offered: 3 discard, 4 write same, 5 write zeroes.
        let last = BYTES / 512 - 8;
        for (op, flags, sector, nr, expected) in [
            (ublk::OP_READ, 0, 8, 16, Ok(request(Kind::Read, 4096, 8192))),
            (ublk::OP_READ, 1 << 8, last, 8, Ok(request(Kind::Read, BYTES - 4096, 4096))),
            (ublk::OP_WRITE, 1 << 15, 1, 2048, Ok(request(Kind::Write, 512, 1 << 20))),
            (ublk::OP_FLUSH, 0, 0, 0, Ok(request(Kind::Flush, 0, 0))),
            (ublk::OP_WRITE, ublk::F_FUA, 0, 8, Err(libc::EOPNOTSUPP)),
            (3, 0, 0, 8, Err(libc::EOPNOTSUPP)),
            (4, 0, 0, 8, Err(libc::EOPNOTSUPP)),
            (5, 0, 0, 8, Err(libc::EOPNOTSUPP)),
            (200, 0, 0, 8, Err(libc::EOPNOTSUPP)),
            (ublk::OP_READ, 0, last, 9, Err(libc::EIO)),
            (ublk::OP_WRITE, 0, 0, 2049, Err(libc::EIO)),
            (ublk::OP_READ, 0, 0, 0, Err(libc::EIO)),
            (ublk::OP_READ, 0, u64::MAX / 512, 8, Err(libc::EIO)),
            (ublk::OP_READ, 0, u64::MAX, 8, Err(libc::EIO)),
        ] {
            assert_eq!(asked(op, flags, sector, nr), expected, "{op} {flags:#x} {sector} {nr}");
        }
    }

    #[test]
    fn results_are_bytes_or_errors() {
        assert_eq!(result(&request(Kind::Read, 0, 8192), 0), 8192);
        assert_eq!(result(&request(Kind::Write, 0, 1 << 20), 0), 1 << 20);
        assert_eq!(result(&request(Kind::Flush, 0, 0), 0), 0);
        assert_eq!(result(&request(Kind::Write, 0, 4096), libc::EIO), -5);
    }

    #[test]
    fn the_device_is_that_of_the_disk() {
        let mut spec = Spec::new("x", "ide-2004").expect("a model");
        (spec.bytes, spec.depth) = (BYTES, 1);
        let device = device(&spec).expect("it can be made");
        let expected =
            ublk::Device { bytes: BYTES, depth: 1, max_bytes: 1 << 20, rotational: true, volatile_cache: true };
        assert_eq!(device, expected);
        spec.options.push(("write_cache".to_owned(), 0));
        assert!(!super::device(&spec).expect("it can be made").volatile_cache);
    }

    #[test]
    fn data_and_answers_go_where_a_tag_says() {
        use std::os::unix::fs::FileExt;
        // A sparse file in the place of the character device: data read and written there lies as in the driver's.
        let scratch = crate::testing::Scratch::new();
        std::fs::create_dir_all(scratch.path("")).expect("a folder");
        let path = scratch.path("device");
        let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
        file.set_len(ublk::data_offset(4)).expect("it is sparse");
        let sector =
            |at: u64| Descriptor { op_flags: ublk::OP_WRITE.into(), nr_sectors: 1, start_sector: at, address: 0 };
        for tag in 0..4_u16 {
            let d = sector(u64::from(tag));
            let bytes = [d.op_flags.to_ne_bytes(), d.nr_sectors.to_ne_bytes()].concat();
            let bytes = [bytes, d.start_sector.to_ne_bytes().to_vec(), vec![0; 8]].concat();
            file.write_all_at(&bytes, u64::from(tag) * 24).expect("written");
            file.write_all_at(&[tag as u8 + 1; 512], ublk::data_offset(tag)).expect("written");
        }
        let mut spec = Spec::new("x", "fixed").expect("a model");
        (spec.bytes, spec.depth) = (BYTES, 4);
        let queue = Queue::new(file.as_raw_fd(), &spec).expect("a queue");
        let (mut buffer, mut got) = (vec![0; MAX_BYTES as usize], Vec::new());
        for tag in [2, 0] {
            queue.hand_on(tag, &mut buffer, &mut |request, data| got.push((request, data.to_vec())));
        }
        let write = |tag: u16| Request { ticket: tag.into(), ..request(Kind::Write, u64::from(tag) * 512, 512) };
        assert_eq!(got, [(write(2), vec![3; 512]), (write(0), vec![1; 512])]);
        // A read takes what the image has to the place of its tag, and wakes who commits.
        let image = Image::new(BYTES, None).expect("memory");
        let read = Request { ticket: 1, ..request(Kind::Read, 4096, 1024) };
        queue.reply(&image, &read, 0);
        queue.reply(&image, &write(2), libc::EIO);
        let mut data = [9; 1024];
        file.read_exact_at(&mut data, ublk::data_offset(1)).expect("read");
        assert_eq!(data, [0; 1024]);
        assert_eq!(*queue.answers(), [(1, 1024), (2, -libc::EIO)]);
        let mut count = [0; 8];
        io::Read::read_exact(&mut &queue.wake, &mut count).expect("it was written to");
        assert_eq!(u64::from_ne_bytes(count), 2);
    }
}

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
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::ThreadId;

use io_uring::types::Fd;
use io_uring::{IoUring, opcode, squeue};
use iowhy_stack::units::SECTOR_BYTES;
use rustix::event::{EventfdFlags, eventfd};
use rustix::mm::{MapFlags, ProtFlags};

use super::fuse::MAX_BYTES;
use super::pace::{Kind, Request};
use super::store::Image;
use super::{DiskError, Spec};
use crate::memory::Mapping;
use crate::ublk::{self, COMMIT_AND_FETCH_REQ, DESCRIPTOR_BYTES, Descriptor, FETCH_REQ};

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
pub(super) struct Queue<'a> {
    device: BorrowedFd<'a>,
    depth: u16,
    disk_bytes: u64,
    /// The request of each tag: memory that the driver writes.
    descriptors: Mapping,
    /// Answers that the receiver has still to commit: tag and result.
    answers: Mutex<Vec<(u16, i32)>>,
    /// Written to when there is one.
    wake: File,
    receiver: OnceLock<ThreadId>,
}

impl Queue<'_> {
    /// The device of an open character device.
    pub(super) fn new<'a>(device: BorrowedFd<'a>, spec: &Spec) -> io::Result<Queue<'a>> {
        let depth = u16::try_from(spec.depth).map_err(io::Error::other)?;
        let range = (0, usize::from(depth) * DESCRIPTOR_BYTES);
        Ok(Queue {
            device,
            depth,
            disk_bytes: spec.bytes,
            descriptors: Mapping::shared(device, range, ProtFlags::READ, MapFlags::POPULATE)?,
            answers: Mutex::new(Vec::new()),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?.into(),
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
        let mut descriptor = [0; DESCRIPTOR_BYTES];
        self.descriptors.read(usize::from(tag) * DESCRIPTOR_BYTES, &mut descriptor);
        let request = match translate(tag, &Descriptor::of(&descriptor), self.disk_bytes) {
            Ok(request) => request,
            Err(error) => return self.answers().push((tag, -error)),
        };
        let data = match request.kind {
            Kind::Write => &mut buffer[..request.bytes as usize],
            Kind::Read | Kind::Flush => &mut [][..],
        };
        let (at, data_bytes) = (ublk::data_offset(tag), data.len());
        let fetch = |done: usize| Ok(rustix::io::pread(self.device, &mut data[done..], at + done as u64)?);
        match whole(data_bytes, fetch) {
            Ok(()) => take(request, data),
            Err(_) => self.answers().push((tag, -libc::EIO)),
        }
    }

    /// Answers a request.
    pub(super) fn reply(&self, image: &Image, request: &Request, error: i32) {
        // The tag is all that a ticket says here.
        let tag = request.ticket as u16;
        let mut result = result(request, error);
        let (at, bytes) = (ublk::data_offset(tag), request.bytes as usize);
        let hand_over = |done: usize| {
            image.write_to(self.device, Some(at + done as u64), &[], (request.offset + done as u64, bytes - done))
        };
        if request.kind == Kind::Read && error == 0 && whole(bytes, hand_over).is_err() {
            result = -libc::EIO;
        }
        self.answers().push((tag, result));
        if self.receiver.get() != Some(&std::thread::current().id()) {
            // It can only fail if it was written to very often, and then the receiver is awake.
            let _ = io::Write::write(&mut &self.wake, &1_u64.to_ne_bytes());
        }
    }

    fn answers(&self) -> std::sync::MutexGuard<'_, Vec<(u16, i32)>> {
        // A thread that panics takes the process along, so that nothing half done is seen.
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn io_command(&self, number: u32, tag: u16, result: i32) -> squeue::Entry {
        let command = ublk::io_command(tag, result);
        opcode::UringCmd16::new(Fd(self.device.as_raw_fd()), number).cmd(command).build().user_data(tag.into())
    }

    /// The command that ends with the next answer.
    fn listen(&self) -> squeue::Entry {
        opcode::PollAdd::new(Fd(self.wake.as_raw_fd()), libc::POLLIN as u32).build().user_data(WAKE)
    }
}

/// Repeats a call, which learns how many bytes have been moved, until all have.
fn whole(bytes: usize, mut call: impl FnMut(usize) -> io::Result<usize>) -> io::Result<()> {
    let mut done = 0;
    while done < bytes {
        match call(done) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
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
        translate(3, &Descriptor { op_flags: u32::from(op) | flags, nr_sectors, start_sector }, BYTES)
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
        use std::os::fd::AsFd;
        use std::os::unix::fs::FileExt;
        // A sparse file in the place of the character device: data read and written there lies as in the driver's.
        let scratch = crate::testing::Scratch::new();
        std::fs::create_dir_all(scratch.path("")).expect("a folder");
        let path = scratch.path("device");
        let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
        file.set_len(ublk::data_offset(4)).expect("it is sparse");
        for tag in 0..4_u16 {
            let head = [u32::from(ublk::OP_WRITE), 1].map(u32::to_ne_bytes).concat();
            let bytes = [head, u64::from(tag).to_ne_bytes().to_vec(), vec![0; 8]].concat();
            file.write_all_at(&bytes, u64::from(tag) * 24).expect("written");
            file.write_all_at(&[tag as u8 + 1; 512], ublk::data_offset(tag)).expect("written");
        }
        let mut spec = Spec::new("x", "fixed").expect("a model");
        (spec.bytes, spec.depth) = (BYTES, 4);
        let queue = Queue::new(file.as_fd(), &spec).expect("a queue");
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

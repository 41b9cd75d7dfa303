//! A file system with one file, `disk`: FUSE's own protocol as far as a loop device on top of that file uses it.
//!
//! Reads, writes and syncs of the file become [`Request`]s; everything else is answered at once. The kernel keeps sizes
//! and names for good, so it hardly asks. Asynchronous direct I/O is what lets more than one request through at a time;
//! requests of up to 1 MiB need `max_pages`. Data of a read are handed to the kernel from where they lie. Reference:
//! `include/uapi/linux/fuse.h`, protocol 7.36; older kernels (from 7.23) are answered in their own terms. Known limits:
//! the file cannot be renamed, made longer or punched; interrupted programs wait for their request nonetheless.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use super::pace::Kind;
use super::store::Image;

/// Largest read and write: as many pages as the kernel puts into a request.
pub(super) const MAX_BYTES: u32 = 1 << 20;
const MAX_PAGES: u16 = 256;

/// Most background requests in flight; as many as a loop device has tags.
const MAX_BACKGROUND: u16 = 1024;

/// The name of the file.
pub(super) const FILE: &str = "disk";

const ROOT: u64 = 1;
const DISK: u64 = 2;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;

const ASYNC_READ: u32 = 1;
const BIG_WRITES: u32 = 1 << 5;
const ASYNC_DIO: u32 = 1 << 15;
const MAX_PAGES_FLAG: u32 = 1 << 22;

const HEADER_IN: usize = 40;
const HEADER_OUT: usize = 16;
const WRITE_IN: usize = 40;

/// Validity of names and sizes: for good.
const FOR_GOOD: u64 = 1 << 31;

/// Size of the buffer for requests: a write of the largest size with all that goes before it.
pub(super) const BUFFER_BYTES: usize = MAX_BYTES as usize + 4096 + HEADER_IN + WRITE_IN;

/// A message of the kernel.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming<'a> {
    /// A request for the disk, and the data of a write.
    Disk {
        /// By which the answer is known.
        ticket: u64,
        kind: Kind,
        /// First byte.
        offset: u64,
        /// How many.
        bytes: u32,
        /// The data to write.
        data: &'a [u8],
    },
    /// Something that is answered with this at once.
    Answer(Vec<u8>),
    /// Something that has no answer.
    Nothing,
}

/// An answer without data, or an error.
fn answer(ticket: u64, error: i32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_OUT + body.len());
    out.extend(((HEADER_OUT + body.len()) as u32).to_ne_bytes());
    out.extend((-error).to_ne_bytes());
    out.extend(ticket.to_ne_bytes());
    out.extend(body);
    out
}

/// Numbers one after the other, as in the structures of C.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn long(mut self, value: u64) -> Fields {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn int(mut self, value: u32) -> Fields {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn short(mut self, value: u16) -> Fields {
        self.0.extend(value.to_ne_bytes());
        self
    }

    /// Zeroes up to a length.
    fn upto(mut self, length: usize) -> Vec<u8> {
        assert!(self.0.len() <= length, "the structure is longer than it is");
        self.0.resize(length, 0);
        self.0
    }
}

fn attributes(fields: Fields, node: u64, disk_bytes: u64) -> Fields {
    let (bytes, mode) = if node == ROOT { (0, libc::S_IFDIR | 0o700) } else { (disk_bytes, libc::S_IFREG | 0o600) };
    // Inode, size, blocks; three times and their fractions; mode, links, user, group, device, block size, flags.
    let fields = fields.long(node).long(bytes).long(bytes / 512).long(0).long(0).long(0).int(0).int(0).int(0);
    fields.int(mode).int(if node == ROOT { 2 } else { 1 }).int(0).int(0).int(0).int(4096).int(0)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Reads a request for a disk of `disk_bytes` bytes. A truncated request has no answer: the kernel never sends one.
pub(super) fn parse(message: &[u8], disk_bytes: u64) -> Incoming<'_> {
    parts(message, disk_bytes).unwrap_or(Incoming::Nothing)
}

fn parts(message: &[u8], disk_bytes: u64) -> Option<Incoming<'_>> {
    let message = message.get(..number(message, 0)? as usize)?;
    let (code, ticket, node) = (number(message, 4)?, long(message, 8)?, long(message, 16)?);
    let body = message.get(HEADER_IN..)?;
    let fine = |body: Vec<u8>| Some(Incoming::Answer(answer(ticket, 0, &body)));
    let refuse = |error: i32| Some(Incoming::Answer(answer(ticket, error, &[])));
    match code {
        INIT => {
            let (major, minor, flags) = (number(body, 0)?, number(body, 4)?, number(body, 12)?);
            if major != 7 || minor < 23 {
                return refuse(libc::EPROTO);
            }
            let wanted = ASYNC_READ | BIG_WRITES | ASYNC_DIO | MAX_PAGES_FLAG;
            let fields = Fields::default().int(7).int(minor.min(36)).int(number(body, 8)?).int(flags & wanted);
            let fields = fields.short(MAX_BACKGROUND).short(MAX_BACKGROUND / 4 * 3).int(MAX_BYTES).int(1);
            fine(fields.short(MAX_PAGES).upto(64))
        }
        LOOKUP if node == ROOT && body.strip_suffix(&[0]) == Some(FILE.as_bytes()) => {
            let fields = Fields::default().long(DISK).long(0).long(FOR_GOOD).long(FOR_GOOD).int(0).int(0);
            fine(attributes(fields, DISK, disk_bytes).upto(128))
        }
        LOOKUP => refuse(libc::ENOENT),
        GETATTR => fine(attributes(Fields::default().long(FOR_GOOD).int(0).int(0), node, disk_bytes).upto(104)),
        OPEN => fine(Fields::default().long(0).int(0).upto(16)),
        READ | WRITE => {
            let (offset, bytes) = (long(body, 8)?, number(body, 16)?);
            if node != DISK || bytes > MAX_BYTES || offset.checked_add(u64::from(bytes))? > disk_bytes {
                // Nobody asks for this: the loop device knows the size.
                return refuse(libc::EIO);
            }
            let data = if code == WRITE { body.get(WRITE_IN..WRITE_IN + bytes as usize)? } else { &[] };
            let kind = if code == WRITE { Kind::Write } else { Kind::Read };
            Some(Incoming::Disk { ticket, kind, offset, bytes, data })
        }
        FSYNC => Some(Incoming::Disk { ticket, kind: Kind::Flush, offset: 0, bytes: 0, data: &[] }),
        STATFS => {
            // Blocks, of which none is free; files; block size, longest name, fragment size.
            let fields = Fields::default().long(disk_bytes / 4096).long(0).long(0).long(1).long(0);
            fine(fields.int(4096).int(255).int(4096).upto(80))
        }
        RELEASE | FLUSH => fine(Vec::new()),
        FORGET | BATCH_FORGET | INTERRUPT | DESTROY => Some(Incoming::Nothing),
        _ => refuse(libc::ENOSYS),
    }
}

/// Where the kernel's requests come from and the answers go: `/dev/fuse`.
#[derive(Copy, Clone, Debug)]
pub(super) struct Channel<'a>(pub(super) BorrowedFd<'a>);

impl Channel<'_> {
    /// Waits for a request and reads it; `None` when the file system is gone.
    pub(super) fn receive(self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(self.0, &mut *buffer) {
                Ok(n) => return Ok(Some(n)),
                // Interrupted before it was read, or by a signal.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends an answer that is complete. A request that was given up, or a file system that is gone, wants none: that
    /// is not a failure.
    pub(super) fn send(self, answer: &[u8]) {
        let _ = rustix::io::write(self.0, answer);
    }

    /// Answers a request for the disk.
    pub(super) fn reply(self, image: &Image, ticket: u64, kind: Kind, offset: u64, bytes: u32, error: i32) {
        let body = match kind {
            Kind::Write if error == 0 => Fields::default().int(bytes).upto(8),
            _ => Vec::new(),
        };
        let mut head = answer(ticket, error, &body);
        if kind != Kind::Read || error != 0 {
            return self.send(&head);
        }
        head[..4].copy_from_slice(&(HEADER_OUT as u32 + bytes).to_ne_bytes());
        // As for `send`.
        let _ = image.write_to(self.0, None, &head, (offset, bytes as usize));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES: u64 = 1 << 30;

    fn message(code: u32, node: u64, body: &[u8]) -> Vec<u8> {
        let fields = Fields::default().int((HEADER_IN + body.len()) as u32).int(code).long(77).long(node);
        let mut out = fields.upto(HEADER_IN);
        out.extend(body);
        out
    }

    fn answered(code: u32, node: u64, body: &[u8]) -> (i32, Vec<u8>) {
        let message = message(code, node, body);
        let Incoming::Answer(answer) = parse(&message, BYTES) else { panic!("it has an answer") };
        assert_eq!((number(&answer, 0), long(&answer, 8)), (Some(answer.len() as u32), Some(77)));
        (number(&answer, 4).expect("an error") as i32, answer[HEADER_OUT..].to_vec())
    }

    #[test]
    fn what_is_no_data_is_answered_at_once_in_structures_of_the_right_size() {
        let init = Fields::default().int(7).int(45).int(1 << 17).int(u32::MAX).upto(64);
        let (error, body) = answered(INIT, 0, &init);
        let flags = number(&body, 12).expect("flags");
        assert_eq!((error, body.len(), number(&body, 4)), (0, 64, Some(36)));
        assert_eq!((flags, number(&body, 20)), (ASYNC_READ | BIG_WRITES | ASYNC_DIO | MAX_PAGES_FLAG, Some(1 << 20)));
        assert_eq!(answered(INIT, 0, &Fields::default().int(7).int(12).upto(16)).0, -libc::EPROTO);
        let (error, body) = answered(LOOKUP, ROOT, b"disk\0");
        assert_eq!((error, body.len(), long(&body, 0), long(&body, 48)), (0, 128, Some(DISK), Some(BYTES)));
        assert_eq!(answered(LOOKUP, ROOT, b"disks\0").0, -libc::ENOENT);
        let (error, body) = answered(GETATTR, ROOT, &[0; 16]);
        assert_eq!((error, body.len(), number(&body, 16 + 60)), (0, 104, Some(libc::S_IFDIR | 0o700)));
        for (code, length) in [(OPEN, 16), (STATFS, 80), (RELEASE, 0), (FLUSH, 0)] {
            assert_eq!((answered(code, DISK, &[0; 64]).0, answered(code, DISK, &[0; 64]).1.len()), (0, length));
        }
        assert_eq!(answered(9999, DISK, &[]).0, -libc::ENOSYS);
        assert_eq!(parse(&message(FORGET, DISK, &[0; 8]), BYTES), Incoming::Nothing);
    }

    #[test]
    fn reads_writes_and_syncs_are_for_the_disk() {
        let io = |offset, bytes| Fields::default().long(0).long(offset).int(bytes).upto(WRITE_IN);
        let read = message(READ, DISK, &io(4096, 8192));
        let expected = Incoming::Disk { ticket: 77, kind: Kind::Read, offset: 4096, bytes: 8192, data: &[] };
        assert_eq!(parse(&read, BYTES), expected);
        let write = message(WRITE, DISK, &[io(512, 3), b"abc".to_vec()].concat());
        let expected = Incoming::Disk { ticket: 77, kind: Kind::Write, offset: 512, bytes: 3, data: b"abc" };
        assert_eq!(parse(&write, BYTES), expected);
        let sync = Incoming::Disk { ticket: 77, kind: Kind::Flush, offset: 0, bytes: 0, data: &[] };
        assert_eq!(parse(&message(FSYNC, DISK, &[0; 16]), BYTES), sync);
        for (offset, bytes) in [(BYTES - 4096, 8192), (u64::MAX - 10, 4096), (0, MAX_BYTES + 1)] {
            let message = message(READ, DISK, &io(offset, bytes));
            assert_ne!(std::mem::discriminant(&parse(&message, BYTES)), std::mem::discriminant(&expected), "{offset}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(code in 0u32..60, node in 0u64..4, cut in 0usize..200,
                                          body in prop::collection::vec(any::<u8>(), 0..160)) {
            let whole = message(code, node, &body);
            let _ = parse(&whole[..cut.min(whole.len())], BYTES);
            let _ = parse(&body, BYTES);
        }
    }
}

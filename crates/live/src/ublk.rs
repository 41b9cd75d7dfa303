//! Block devices that a process serves (ublk): the driver's numbers, and the commands that make and remove a device.
//!
//! ```text
//! /dev/ublk-control   ADD_DEV, SET_PARAMS, START_DEV, STOP_DEV, DEL_DEV, GET_DEV_INFO, GET_FEATURES: here
//! /dev/ublkcN         FETCH_REQ, COMMIT_AND_FETCH_REQ, descriptors, data: the server (`disk/front_ublk`)
//! /dev/ublkbN         the block device
//! ```
//! A command is a passthrough command of io_uring: its number is encoded as that of an ioctl, and its 32 bytes lie in
//! the second half of a double entry of the ring. A device carries a token of ours in a field that the driver keeps for
//! its server (`ublksrv_flags`), by which it is recognised later. Reference: `include/uapi/linux/ublk_cmd.h` and
//! Documentation/block/ublk.rst. Known limit: drivers before Linux 6.5, which cannot copy data by read and write, are
//! not used.

use std::array;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

/// Where devices are made.
pub(crate) const CONTROL: &str = "/dev/ublk-control";

/// `_IOR('u', number, ..)` and `_IOWR('u', number, ..)` of a structure of `bytes` bytes.
const fn encoded(write: bool, number: u32, bytes: usize) -> u32 {
    let direction = if write { 3 } else { 2 };
    direction << 30 | (bytes as u32) << 16 | (b'u' as u32) << 8 | number
}

const GET_DEV_INFO: u32 = encoded(false, 0x02, COMMAND_BYTES);
const ADD_DEV: u32 = encoded(true, 0x04, COMMAND_BYTES);
const DEL_DEV: u32 = encoded(true, 0x05, COMMAND_BYTES);
const START_DEV: u32 = encoded(true, 0x06, COMMAND_BYTES);
const STOP_DEV: u32 = encoded(true, 0x07, COMMAND_BYTES);
const SET_PARAMS: u32 = encoded(true, 0x08, COMMAND_BYTES);
const GET_FEATURES: u32 = encoded(false, 0x13, COMMAND_BYTES);

/// Fetches the first request of a tag.
pub(crate) const FETCH_REQ: u32 = encoded(true, 0x20, IO_COMMAND_BYTES);
/// Answers a request, and fetches the next one of its tag.
pub(crate) const COMMIT_AND_FETCH_REQ: u32 = encoded(true, 0x21, IO_COMMAND_BYTES);

/// Commands are encoded like those of ioctl.
const F_CMD_IOCTL_ENCODE: u64 = 1 << 6;
/// Data are copied by read and write on the character device.
const F_USER_COPY: u64 = 1 << 7;
/// Features that a driver must have.
pub(crate) const NEEDED: u64 = F_CMD_IOCTL_ENCODE | F_USER_COPY;

/// Queue number of a command without a queue.
const NO_QUEUE: u16 = u16::MAX;

const COMMAND_BYTES: usize = 32;
const INFO_BYTES: usize = 64;
const PARAMS_BYTES: usize = 40;
const FEATURES_BYTES: usize = 8;
/// Bytes of a command of the server.
pub(crate) const IO_COMMAND_BYTES: usize = 16;

const PARAM_TYPE_BASIC: u32 = 1;
const ATTR_ROTATIONAL: u32 = 1 << 1;
const ATTR_VOLATILE_CACHE: u32 = 1 << 2;
const LOGICAL_BLOCK_SHIFT: u8 = 9;
const SECTOR_SHIFT: u32 = 9;

/// Kinds of requests.
pub(crate) const OP_READ: u8 = 0;
/// See [`OP_READ`].
pub(crate) const OP_WRITE: u8 = 1;
/// See [`OP_READ`].
pub(crate) const OP_FLUSH: u8 = 2;
/// The write is to be on the medium when it is answered; in [`Descriptor::op_flags`].
pub(crate) const F_FUA: u32 = 1 << 13;

/// Where data begin in the character device.
const BUFFER_OFFSET: u64 = 0x8000_0000;
const TAG_SHIFT: u32 = 25;

/// Request in a descriptor.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// Its kind in the lowest byte, flags above.
    pub(crate) op_flags: u32,
    /// How many sectors.
    pub(crate) nr_sectors: u32,
    /// The first one.
    pub(crate) start_sector: u64,
}

/// Bytes of a descriptor, as the driver writes it (`struct ublksrv_io_desc`).
pub(crate) const DESCRIPTOR_BYTES: usize = 24;

impl Descriptor {
    /// The last eight bytes are for servers that do not copy by read and write.
    pub(crate) fn of(bytes: &[u8; DESCRIPTOR_BYTES]) -> Descriptor {
        let int = |at: usize| u32::from_ne_bytes(array::from_fn(|nr| bytes[at + nr]));
        let start_sector = u64::from_ne_bytes(array::from_fn(|nr| bytes[8 + nr]));
        Descriptor { op_flags: int(0), nr_sectors: int(4), start_sector }
    }
}

/// Where the data of a tag of the first queue are in the character device.
pub(crate) fn data_offset(tag: u16) -> u64 {
    BUFFER_OFFSET + (u64::from(tag) << TAG_SHIFT)
}

/// A command of the server for a tag of the first queue (`struct ublksrv_io_cmd`). Without an address: data are copied
/// by read and write.
pub(crate) fn io_command(tag: u16, result: i32) -> [u8; IO_COMMAND_BYTES] {
    let mut out = [0; IO_COMMAND_BYTES];
    out[2..4].copy_from_slice(&tag.to_ne_bytes());
    out[4..8].copy_from_slice(&result.to_ne_bytes());
    out
}

/// Settings of a device.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    /// Its size, bytes; whole sectors.
    pub(crate) bytes: u64,
    /// Most requests in flight: tags of its one queue.
    pub(crate) depth: u16,
    /// The largest request, bytes.
    pub(crate) max_bytes: u32,
    /// It turns.
    pub(crate) rotational: bool,
    /// It has a volatile write cache, and wants flushes.
    pub(crate) volatile_cache: bool,
}

/// State of a device.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Info {
    /// Tags of each queue.
    pub(crate) depth: u16,
    /// Its maker's token.
    pub(crate) token: u64,
}

/// The character device of a number, for its server.
pub(crate) fn channel(index: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkc{index}"))
}

/// The block device of a number.
pub(crate) fn node(index: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{index}"))
}

/// The head of a command (`struct ublksrv_ctrl_cmd`), in the place that the ring has for it.
fn command(index: u32, bytes: u16, address: u64, data: u64) -> [u8; 80] {
    let mut out = [0; 80];
    out[..4].copy_from_slice(&index.to_ne_bytes());
    out[4..6].copy_from_slice(&NO_QUEUE.to_ne_bytes());
    out[6..8].copy_from_slice(&bytes.to_ne_bytes());
    out[8..16].copy_from_slice(&address.to_ne_bytes());
    out[16..24].copy_from_slice(&data.to_ne_bytes());
    out
}

/// `struct ublksrv_ctrl_dev_info` of a device that is to be made.
fn info_bytes(index: u32, device: &Device, token: u64) -> [u8; INFO_BYTES] {
    let mut out = [0; INFO_BYTES];
    out[..2].copy_from_slice(&1_u16.to_ne_bytes());
    out[2..4].copy_from_slice(&device.depth.to_ne_bytes());
    out[8..12].copy_from_slice(&device.max_bytes.to_ne_bytes());
    out[12..16].copy_from_slice(&index.to_ne_bytes());
    out[24..32].copy_from_slice(&NEEDED.to_ne_bytes());
    out[32..40].copy_from_slice(&token.to_ne_bytes());
    out
}

/// Parses such a structure.
fn info_of(bytes: &[u8]) -> Option<Info> {
    let depth = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
    let token = u64::from_ne_bytes(bytes.get(32..40)?.try_into().ok()?);
    Some(Info { depth, token })
}

/// `struct ublk_params` as far as the basic ones. Discard and forced unit access are missing, as on the loop device:
/// the kernel sends a flush after a write instead.
fn params_bytes(device: &Device) -> [u8; PARAMS_BYTES] {
    let attributes = if device.rotational { ATTR_ROTATIONAL } else { 0 }
        | if device.volatile_cache { ATTR_VOLATILE_CACHE } else { 0 };
    let mut out = [0; PARAMS_BYTES];
    out[..4].copy_from_slice(&(PARAMS_BYTES as u32).to_ne_bytes());
    out[4..8].copy_from_slice(&PARAM_TYPE_BASIC.to_ne_bytes());
    out[8..12].copy_from_slice(&attributes.to_ne_bytes());
    // Logical and physical block, best and least request.
    out[12..16].copy_from_slice(&[LOGICAL_BLOCK_SHIFT; 4]);
    out[16..20].copy_from_slice(&(device.max_bytes >> SECTOR_SHIFT).to_ne_bytes());
    out[24..32].copy_from_slice(&(device.bytes >> SECTOR_SHIFT).to_ne_bytes());
    out
}

/// How long a command may take.
const PATIENCE: Duration = Duration::from_secs(6);
/// How long a removed device may still be open elsewhere.
const DELETE_PATIENCE: Duration = Duration::from_secs(2);

/// The way to the driver.
pub(crate) struct Control {
    file: File,
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
}

impl Control {
    pub(crate) fn open() -> io::Result<Control> {
        let file = OpenOptions::new().read(true).write(true).open(CONTROL)?;
        let ring = IoUring::<squeue::Entry128, cqueue::Entry>::builder().build(2)?;
        Ok(Control { file, ring })
    }

    /// Sends a command with what it reads or writes; yields that.
    fn send(&mut self, number: u32, index: u32, data: u64, buffer: &[u8]) -> io::Result<Vec<u8>> {
        let mut buffer = buffer.to_vec().into_boxed_slice();
        let address = if buffer.is_empty() { 0 } else { buffer.as_mut_ptr() as u64 };
        let bytes = u16::try_from(buffer.len()).map_err(io::Error::other)?;
        let fd = Fd(self.file.as_raw_fd());
        let entry = opcode::UringCmd80::new(fd, number).cmd(command(index, bytes, address, data)).build();
        // SAFETY: the buffer and the descriptor live until the command has ended: it is waited for, and if that takes
        // too long the buffer is given up for good.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        let patience = if number == DEL_DEV { DELETE_PATIENCE } else { PATIENCE };
        let begun = Instant::now();
        let result = loop {
            if let Some(completion) = self.ring.completion().next() {
                break completion.result();
            }
            let left = patience.saturating_sub(begun.elapsed());
            if left.is_zero() {
                Box::leak(buffer);
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the driver does not answer"));
            }
            let time = Timespec::from(left);
            match self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time)) {
                Ok(_) => {}
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME)) => {}
                Err(error) => {
                    Box::leak(buffer);
                    return Err(error);
                }
            }
        };
        if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(buffer.into_vec()) }
    }

    /// Features of the driver.
    pub(crate) fn features(&mut self) -> io::Result<u64> {
        let bytes = self.send(GET_FEATURES, u32::MAX, 0, &[0; FEATURES_BYTES])?;
        Ok(u64::from_ne_bytes(bytes.try_into().map_err(|_| io::Error::other("eight bytes came as fewer"))?))
    }

    /// The device of a number; `None` if there is none.
    pub(crate) fn info(&mut self, index: u32) -> io::Result<Option<Info>> {
        match self.send(GET_DEV_INFO, index, 0, &[0; INFO_BYTES]) {
            Ok(bytes) => Ok(info_of(&bytes)),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes the device of a number, with a token of ours. It is not a block device before it is started.
    pub(crate) fn add(&mut self, index: u32, device: &Device, token: u64) -> io::Result<()> {
        self.send(ADD_DEV, index, 0, &info_bytes(index, device, token)).map(drop)
    }

    /// Says what the block device is to be.
    pub(crate) fn set_params(&mut self, index: u32, device: &Device) -> io::Result<()> {
        self.send(SET_PARAMS, index, 0, &params_bytes(device)).map(drop)
    }

    /// Makes the block device, once its server has fetched on every tag.
    pub(crate) fn start(&mut self, index: u32, server: u32) -> io::Result<()> {
        self.send(START_DEV, index, u64::from(server), &[]).map(drop)
    }

    /// Takes the block device away. The end of its fetches notifies its server.
    pub(crate) fn stop(&mut self, index: u32) -> io::Result<()> {
        self.send(STOP_DEV, index, 0, &[]).map(drop)
    }

    /// Removes the device, and waits a while until it is closed everywhere; otherwise it goes with the last close.
    pub(crate) fn delete(&mut self, index: u32) -> io::Result<()> {
        match self.send(DEL_DEV, index, 0, &[]) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                Err(io::Error::other("it is still open elsewhere; it goes when that is over"))
            }
            Err(error) => Err(error),
        }
    }
}

/// The reason why this kernel cannot have such devices.
pub(crate) fn lacks() -> Option<String> {
    match Control::open().and_then(|mut control| control.features()) {
        Ok(features) if features & NEEDED == NEEDED => None,
        Ok(features) => Some(format!("its driver is too old (features {features:#x})")),
        Err(error) => Some(format!("{CONTROL}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: Device =
        Device { bytes: 64 << 20, depth: 3, max_bytes: 1 << 20, rotational: true, volatile_cache: true };

    #[test]
    fn numbers_are_those_of_the_driver() {
        // As a C compiler makes them of `linux/ublk_cmd.h`.
        let numbers = [
            (GET_DEV_INFO, 0x8020_7502),
            (ADD_DEV, 0xc020_7504),
            (DEL_DEV, 0xc020_7505),
            (START_DEV, 0xc020_7506),
            (STOP_DEV, 0xc020_7507),
            (SET_PARAMS, 0xc020_7508),
            (GET_FEATURES, 0x8020_7513),
            (FETCH_REQ, 0xc010_7520),
            (COMMIT_AND_FETCH_REQ, 0xc010_7521),
        ];
        for (ours, expected) in numbers {
            assert_eq!(ours, expected, "{ours:#x}");
        }
        assert_eq!((NEEDED, data_offset(0), data_offset(5)), (0xc0, 0x8000_0000, 0x8a00_0000));
    }

    #[test]
    fn structures_lie_as_the_driver_reads_them() {
        let bytes = array::from_fn(|nr| nr as u8 / 4);
        let start_sector = u64::from_ne_bytes([2, 2, 2, 2, 3, 3, 3, 3]);
        let expected = Descriptor { op_flags: 0, nr_sectors: 0x0101_0101, start_sector };
        assert_eq!(Descriptor::of(&bytes), expected);
        assert_eq!((COMMAND_BYTES, INFO_BYTES, IO_COMMAND_BYTES), (32, 64, 16));
        let bytes = command(0x0102_0304, 64, 0x0708_090a_0b0c_0d0e, 77);
        assert_eq!(bytes[..4], 0x0102_0304_u32.to_ne_bytes());
        assert_eq!(bytes[4..8], [0xff, 0xff, 64_u16.to_ne_bytes()[0], 64_u16.to_ne_bytes()[1]]);
        assert_eq!(bytes[8..16], 0x0708_090a_0b0c_0d0e_u64.to_ne_bytes());
        assert_eq!(bytes[16..24], 77_u64.to_ne_bytes());
        assert!(bytes[24..].iter().all(|byte| *byte == 0));
        let bytes = io_command(0x0102, -5);
        assert_eq!(bytes[..4], [0, 0, 0x0102_u16.to_ne_bytes()[0], 0x0102_u16.to_ne_bytes()[1]]);
        assert_eq!((&bytes[4..8], &bytes[8..]), (&(-5_i32).to_ne_bytes()[..], &[0; 8][..]));
    }

    #[test]
    fn a_device_is_told_and_known_again() {
        let bytes = info_bytes(640, &DEVICE, 0x0123_4567_89ab_cdef);
        assert_eq!(info_of(&bytes), Some(Info { depth: 3, token: 0x0123_4567_89ab_cdef }));
        assert_eq!(info_of(&bytes[..39]), None);
        let number = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four"));
        // One queue of three tags, the largest request, the number, the flags.
        assert_eq!((number(0), number(8), number(12), number(24)), (1 | 3 << 16, 1 << 20, 640, 0xc0));
    }

    #[test]
    fn the_block_device_gets_its_parameters() {
        let params = |device: &Device| {
            let bytes = params_bytes(device);
            let number = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four"));
            (number(0), number(4), number(8), bytes[12], number(16), number(24), number(28))
        };
        assert_eq!(params(&DEVICE), (40, 1, 0b110, 9, 2048, 131_072, 0));
        let device = Device { rotational: false, bytes: 1 << 44, ..DEVICE };
        assert_eq!(params(&device), (40, 1, 0b100, 9, 2048, 0, 8));
        assert_eq!(params(&Device { volatile_cache: false, rotational: false, ..DEVICE }).2, 0);
    }

    #[test]
    fn what_is_missing_is_named() {
        // Here either is right; it must be one that says where it looked.
        if let Some(why) = lacks() {
            assert!(why.contains(CONTROL) || why.contains("too old"), "{why}");
        }
    }
}

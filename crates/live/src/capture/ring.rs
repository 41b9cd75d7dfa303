//! Sub-buffers of the kernel's ring buffer, as `trace_pipe_raw` hands them out.
//!
//! ```text
//! header    u64 time stamp; u64 commit: bytes of data, bit 31 events were lost before it, bit 30 and behind the data
//!           stands how many; then the data
//! event     u32: 5 bits type, 27 bits time since the one before; then
//! 1..=28      type * 4 bytes
//! 0           u32 length (with itself), then the bytes, filled up to four
//! 29          padding: up to the end if no time has passed, else u32 length of something discarded
//! 30          time: u32 with 2^27 times the addend
//! 31          the same, but the time itself, of which the highest five bits are those of the time before
//! ```
//! Source: `include/linux/ring_buffer.h`, `kernel/trace/ring_buffer.c`. Numbers have the byte order of the machine.

/// The head of a sub-buffer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Time that the first event's counts from.
    pub(super) time: u64,
    /// Bytes of data.
    pub(super) len: usize,
    /// Events that were lost before this one; `Some(0)` if the kernel does not say how many.
    pub(super) missed: Option<u64>,
}

/// Bytes of the header.
pub(super) const HEAD: usize = 16;

const MISSED: u64 = 1 << 31;
const STORED: u64 = 1 << 30;

fn bytes<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn word(from: &[u8], at: usize) -> Option<u32> {
    bytes(from, at).map(u32::from_ne_bytes)
}

/// Reads the header. `None` if it is cut, or its length exceeds the bytes.
pub(super) fn head(page: &[u8]) -> Option<Head> {
    let time = u64::from_ne_bytes(bytes(page, 0)?);
    let commit = u64::from_ne_bytes(bytes(page, 8)?);
    let len = (commit & (STORED - 1)) as usize;
    if len > page.len() - HEAD {
        return None;
    }
    let missed = (commit & MISSED != 0).then(|| {
        let stored = if commit & STORED != 0 { bytes(page, HEAD + len).map(u64::from_ne_bytes) } else { None };
        stored.unwrap_or(0)
    });
    Some(Head { time, len, missed })
}

/// The header, and the bytes of a sub-buffer that mean something: where it says how many events were lost, that stands
/// behind the data.
pub(super) fn used(page: &[u8]) -> Option<(Head, &[u8])> {
    let head = head(page)?;
    let stored = if head.missed.is_some() { 8 } else { 0 };
    Some((head, &page[..(HEAD + head.len + stored).min(page.len())]))
}

/// The events of a sub-buffer: time and bytes. It ends at the first thing that makes no sense.
#[derive(Clone, Debug)]
pub(super) struct Events<'a> {
    data: &'a [u8],
    at: usize,
    time: u64,
    /// Something made no sense.
    pub(super) broken: bool,
}

impl<'a> Events<'a> {
    /// Of the data behind a header.
    pub(super) fn new(data: &'a [u8], time: u64) -> Events<'a> {
        Events { data, at: 0, time, broken: false }
    }

    fn step(&mut self) -> Option<Option<(u64, &'a [u8])>> {
        let head = word(self.data, self.at)?;
        // Where the compiler puts the first bits depends on the byte order.
        let (kind, delta) = if cfg!(target_endian = "big") {
            (head >> 27, u64::from(head & 0x7ff_ffff))
        } else {
            (head & 0x1f, u64::from(head >> 5))
        };
        match kind {
            29 => {
                self.time = self.time.wrapping_add(delta);
                if delta == 0 {
                    self.at = self.data.len();
                    return Some(None);
                }
                let skip = word(self.data, self.at + 4)? as usize;
                self.at = self.at.checked_add(4)?.checked_add(skip)?;
                (skip >= 4 && self.at <= self.data.len()).then_some(None)
            }
            30 | 31 => {
                let more = u64::from(word(self.data, self.at + 4)?) << 27;
                self.time = match kind {
                    30 => self.time.wrapping_add(delta | more),
                    _ => {
                        const TOP: u64 = 0x1f << 59;
                        let absolute = (delta | more) & !TOP | self.time & TOP;
                        // The five highest bits are not in it: one of them may have changed since.
                        if absolute < self.time && self.time - absolute > 1 << 58 {
                            absolute.wrapping_add(1 << 59)
                        } else {
                            absolute
                        }
                    }
                };
                self.at += 8;
                Some(None)
            }
            _ => {
                self.time = self.time.wrapping_add(delta);
                let (start, len) = match kind {
                    0 => (self.at + 8, (word(self.data, self.at + 4)? as usize).checked_sub(4)?),
                    words => (self.at + 4, words as usize * 4),
                };
                let end = start.checked_add(len)?;
                let event = self.data.get(start..end)?;
                self.at = end.next_multiple_of(4);
                Some(Some((self.time, event)))
            }
        }
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<(u64, &'a [u8])> {
        while self.at < self.data.len() && !self.broken {
            match self.step() {
                Some(Some(event)) => return Some(event),
                Some(None) => {}
                None => self.broken = true,
            }
        }
        None
    }
}

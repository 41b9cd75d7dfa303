//! The thread that empties the rings while they fill.
//!
//! It sleeps until a ring is half full or a pause is over, takes all of it, and keeps the bytes; they are decoded
//! later. Of tracefs these are sub-buffers, taken as long as they are nearly full, of BPF single events. Beyond the
//! limit it goes on taking, but only counts. Notifications of opens are taken at once: the sooner, the more surely
//! they match their open.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use aya::maps::{MapData, RingBuf};
use rustix::time::{ClockId, clock_gettime};

use super::opened::{Opened, Opens};
use super::ring::{self, Events, HEAD};
use super::stacks::{Mappings, RENAMING, STACKED};
use super::{CaptureError, thread_id};
use crate::system::readable;

/// How nice the thread is to others.
const NICE: i32 = -20;

/// The rings of a source.
pub(super) trait Rings: Send {
    /// Those that become readable when they should be emptied before the pause is over.
    fn files(&self) -> Vec<BorrowedFd<'_>>;
    /// How long the thread sleeps at most.
    fn pause(&self) -> Duration;
    /// Takes what they hold.
    fn take(&mut self, taken: &mut Taken, limit: u64);
}

/// Those of tracefs, by the numbers of their CPUs, and room for a sub-buffer.
#[derive(Debug)]
pub(super) struct Pipes {
    pub(super) rings: Vec<(u32, File)>,
    pub(super) page: Vec<u8>,
}

impl Rings for Pipes {
    fn files(&self) -> Vec<BorrowedFd<'_>> {
        self.rings.iter().map(|(_, ring)| ring.as_fd()).collect()
    }

    fn pause(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn take(&mut self, taken: &mut Taken, limit: u64) {
        drain(&mut self.rings, &mut self.page, &mut |_, cpu, page| taken.take(cpu, page, limit));
    }
}

/// Bytes before an event of a program: its time, which is kept with it, its CPU, and four unused ones.
const BEFORE: usize = 16;
pub(super) const TIME: usize = 8;

/// That of the programs. Events do not wake anybody, so nothing is waited for: the fuller it was, the sooner comes the
/// next look.
pub(super) struct Ring {
    ring: RingBuf<MapData>,
    bytes: u64,
    last: u64,
    /// There are stacks in it.
    stacks: bool,
}

impl Ring {
    /// One of this size, with stacks or without.
    pub(super) fn new(ring: RingBuf<MapData>, bytes: u64, stacks: bool) -> Ring {
        Ring { ring, bytes, last: 0, stacks }
    }
}

impl Rings for Ring {
    fn files(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn pause(&self) -> Duration {
        Duration::from_millis(if self.last > self.bytes / 8 { 1 } else { 20 })
    }

    fn take(&mut self, taken: &mut Taken, limit: u64) {
        let before = taken.bytes;
        while let Some(event) = self.ring.next() {
            taken.take_event(&event, limit);
            if self.stacks {
                taken.look(&event);
            }
        }
        self.last = taken.bytes - before;
    }
}

/// The thread. It yields the rings with what it took from them.
#[derive(Debug)]
pub(super) struct Reader {
    /// Its number.
    pub(super) thread: u32,
    over: Arc<AtomicBool>,
    handle: Option<JoinHandle<(Taken, Box<dyn Rings>)>>,
}

/// The collected events.
#[derive(Debug, Default)]
pub(super) struct Taken {
    bytes_kept: Vec<u8>,
    /// CPU and length of each page or event in `bytes_kept`, in its order.
    pages: Vec<(u32, u32)>,
    /// Bytes taken, kept or not.
    pub(super) bytes: u64,
    /// Events that memory had no room for.
    pub(super) over_memory: u64,
    /// Opened files, with the tasks that opened them.
    pub(super) opened: Vec<Opened>,
    /// Mappings of the processes that have stacks.
    pub(super) mappings: Mappings,
    /// Processor time of the thread.
    pub(super) cpu: Duration,
}

/// A sub-buffer, or an event of a program.
#[derive(Copy, Clone, Debug)]
pub(super) struct Page<'a> {
    pub(super) cpu: u32,
    /// Header and data.
    pub(super) bytes: &'a [u8],
}

impl Taken {
    /// Keeps or counts a sub-buffer; yields how full it was, in bytes.
    fn take(&mut self, cpu: u32, page: &[u8], limit: u64) -> usize {
        let Some((head, used)) = ring::used(page) else { return 0 };
        self.bytes += used.len() as u64;
        if (self.bytes_kept.len() + used.len()) as u64 > limit {
            self.over_memory += Events::new(&page[HEAD..HEAD + head.len], head.time).count() as u64;
        } else if head.len > 0 || head.missed.is_some() {
            self.bytes_kept.extend_from_slice(used);
            self.pages.push((cpu, used.len() as u32));
        }
        head.len
    }

    /// Keeps or counts an event of a program.
    fn take_event(&mut self, event: &[u8], limit: u64) {
        self.bytes += event.len() as u64;
        let kept = self.bytes_kept.len() + size_of_val(self.pages.as_slice());
        if (kept + event.len()) as u64 > limit {
            self.over_memory += 1;
        } else if let Some((before, event)) = event.split_at_checked(BEFORE)
            && let Some(cpu) = before.get(8..12).and_then(|cpu| cpu.try_into().ok())
        {
            self.bytes_kept.extend_from_slice(&before[..TIME]);
            self.bytes_kept.extend_from_slice(event);
            self.pages.push((u32::from_ne_bytes(cpu), (TIME + event.len()) as u32));
        }
    }

    /// Looks at the process of a stack, and for processes that run another program.
    fn look(&mut self, event: &[u8]) {
        let number = |at: usize| Some(u32::from_ne_bytes(event.get(at..at + 4)?.try_into().ok()?));
        let long = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        let (Some(kind), Some(pid)) = (number(BEFORE), number(BEFORE + 8)) else { return };
        match kind as u16 {
            RENAMING => self.mappings.renamed(pid),
            STACKED => {
                let calls = event.get(BEFORE + 16..).unwrap_or_default().chunks_exact(8).map(long);
                let count = number(BEFORE + 12).unwrap_or(0) as usize;
                self.mappings.stack(long(&event[..TIME]), pid, calls.take(count));
            }
            _ => {}
        }
    }

    /// Takes from rings that hardly anything is written to any more, until nothing is left.
    pub(super) fn all(&mut self, rings: &mut dyn Rings, limit: u64) {
        loop {
            let before = self.bytes;
            rings.take(self, limit);
            if self.bytes == before {
                break;
            }
        }
    }

    /// The pages kept.
    pub(super) fn pages(&self) -> impl Iterator<Item = Page<'_>> {
        let mut at = 0;
        self.pages.iter().map(move |(cpu, len)| {
            let bytes = &self.bytes_kept[at..at + *len as usize];
            at += *len as usize;
            Page { cpu: *cpu, bytes }
        })
    }
}

/// Processor time of the calling thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Takes what the rings hold, until one is not even half full; `take` gets the ring's place, its CPU and the bytes, and
/// yields how full that was.
pub(super) fn drain(rings: &mut [(u32, File)], page: &mut [u8], take: &mut dyn FnMut(usize, u32, &[u8]) -> usize) {
    for (place, (cpu, ring)) in rings.iter_mut().enumerate() {
        loop {
            match ring.read(page) {
                Ok(n) if n >= HEAD => {
                    // One that is not full is the one being written to: there is nothing behind it yet.
                    if take(place, *cpu, &page[..n]) < page.len() / 2 {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => break,
            }
        }
    }
}

/// Waits for rings and opens, until `until` at most; yields whether a ring is ready.
fn wait(rings: &dyn Rings, opens: Option<&Opens>, until: Instant) -> bool {
    let mut files = rings.files();
    let nr = files.len();
    files.extend(opens.map(Opens::as_fd));
    readable(&files, until.saturating_duration_since(Instant::now()))[..nr].contains(&true)
}

impl Reader {
    /// Starts to read these.
    pub(super) fn start(
        mut rings: Box<dyn Rings>,
        limit: u64,
        mut opens: Option<Opens>,
    ) -> Result<Reader, CaptureError> {
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let (tell, told) = mpsc::channel();
        let work = move || {
            // The sooner it runs, the less is lost or merged; where that is not allowed, it goes on as it is.
            let _ = rustix::process::setpriority_process(None, NICE);
            // If nobody listens any more, the flag says so, too.
            let _ = tell.send(thread_id());
            let mut taken = Taken::default();
            let mut until = Instant::now() + rings.pause();
            while !seen.load(Ordering::Acquire) {
                let ready = wait(&*rings, opens.as_ref(), until);
                if let Some(opens) = &mut opens {
                    opens.take();
                }
                if ready || Instant::now() >= until {
                    rings.take(&mut taken, limit);
                    until = Instant::now() + rings.pause();
                }
            }
            taken.opened = opens.map_or(Vec::new(), Opens::finish);
            taken.all(&mut *rings, limit);
            taken.cpu = cpu_time();
            (taken, rings)
        };
        let name = "iowhy-trace".to_owned();
        let handle = std::thread::Builder::new().name(name).spawn(work).map_err(|error| CaptureError::Io {
            attempt: "start a thread to read",
            path: "per_cpu".into(),
            error,
        })?;
        let thread = told.recv().unwrap_or(0);
        Ok(Reader { thread, over, handle: Some(handle) })
    }

    /// Ends it, and yields what it took with the rings; nothing if it has panicked.
    pub(super) fn stop(mut self) -> Option<(Taken, Box<dyn Rings>)> {
        self.end()
    }

    fn end(&mut self) -> Option<(Taken, Box<dyn Rings>)> {
        self.over.store(true, Ordering::Release);
        self.handle.take()?.join().ok()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.end();
    }
}

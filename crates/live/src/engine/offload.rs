//! offload: calls are made by threads of their own, one for each call in flight (fio's `io_submit_mode=offload`), with
//! whichever engine.
//!
//! ```text
//! submit    puts a call into the queue, and the first thread that is free takes it
//! thread    has an engine of its own with a depth of 1, and makes one call after the other
//! reap      waits for calls of any thread
//! ```
//! Source: fio's manual. Known deviations: threads are there from the start, where fio begins them as it needs them;
//! their processor time is not reported; nothing is registered with io_uring.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use iowhy_stack::origin::find;

use super::{Completion, ENGINES, Engine, Io, Open, Setup, Submit};
use crate::memory::Pool;
use crate::run::Worker;

/// Runs a thread whose calls others make.
pub(crate) const DRIVE: fn(&mut Worker<'_>) = crate::run::drive::<Offload>;

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// A call has come, or the end.
    work: Condvar,
    /// A call has ended.
    ended: Condvar,
}

#[derive(Default)]
struct Queue {
    calls: VecDeque<Io>,
    done: Vec<Completion>,
    /// An engine has failed.
    error: Option<io::Error>,
    over: bool,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes calls until the end.
    fn make(&self, engine: &mut dyn Engine) {
        let mut queue = self.queue();
        while !queue.over {
            let Some(io) = queue.calls.pop_front() else {
                queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(queue);
            let done = one(engine, io);
            queue = self.queue();
            match done {
                Ok(done) => queue.done.push(done),
                Err(error) => queue.error = Some(error),
            }
            self.ended.notify_one();
        }
    }
}

/// One call, from begin to end. An engine with a depth of 1 has the slot 0 alone.
fn one(engine: &mut dyn Engine, io: Io) -> io::Result<Completion> {
    let slot = io.slot;
    let back = |Completion { io, result }: Completion| Completion { io: Io { slot, ..io }, result };
    match engine.submit(Io { slot: 0, ..io }) {
        Submit::Done(completion) => return Ok(back(completion)),
        Submit::Full(io) => return Ok(back(io.done(-libc::EAGAIN))),
        Submit::Queued => {}
    }
    engine.commit()?;
    let mut done = Vec::with_capacity(1);
    loop {
        engine.reap(1, 1, None, &mut done)?;
        if let Some(completion) = done.pop() {
            return Ok(back(completion));
        }
    }
}

pub(crate) struct Offload {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    in_flight: u32,
    queued: u32,
}

impl Open for Offload {
    fn open(setup: &Setup<'_>) -> io::Result<Offload> {
        let entry = find(ENGINES, setup.engine).ok_or(io::ErrorKind::NotFound)?;
        let mut offload = Offload { shared: Arc::default(), threads: Vec::new(), in_flight: 0, queued: 0 };
        for number in 0..setup.depth.max(1) {
            let (files, advice, poll) = (setup.files.to_vec(), setup.advice, setup.poll);
            let (shared, (opened, result)) = (Arc::clone(&offload.shared), mpsc::channel());
            let engine = setup.engine;
            let work = move || {
                let engine = Pool::new(0, 0, 4096, |_| {}).map_err(io::Error::from).and_then(|buffers| {
                    (entry.build.open)(&Setup {
                        engine,
                        depth: 1,
                        files: &files,
                        buffers: &buffers,
                        fixed_buffers: false,
                        registered_files: false,
                        poll,
                        kernel_thread: None,
                        advice,
                    })
                });
                match engine {
                    Ok(mut engine) => {
                        let _ = opened.send(Ok(()));
                        shared.make(engine.as_mut());
                    }
                    Err(error) => {
                        let _ = opened.send(Err(error));
                    }
                }
            };
            let thread = std::thread::Builder::new().name(format!("iowhy-off-{number}"));
            offload.threads.push(thread.spawn(work)?);
            result.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
        }
        Ok(offload)
    }
}

impl Engine for Offload {
    fn submit(&mut self, io: Io) -> Submit {
        if self.in_flight as usize == self.threads.len() {
            return Submit::Full(io);
        }
        self.shared.queue().calls.push_back(io);
        self.shared.work.notify_one();
        self.in_flight += 1;
        self.queued += 1;
        Submit::Queued
    }

    fn commit(&mut self) -> io::Result<u32> {
        Ok(std::mem::take(&mut self.queued))
    }

    fn reap(&mut self, min: u32, max: u32, timeout: Option<Duration>, done: &mut Vec<Completion>) -> io::Result<()> {
        let (min, until) = (min.min(self.in_flight) as usize, timeout.map(|time| Instant::now() + time));
        let mut queue = self.shared.queue();
        while queue.done.len() < min && queue.error.is_none() {
            queue = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => self.shared.ended.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => break,
                Some(left) => self.shared.ended.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        if let Some(error) = queue.error.take() {
            return Err(error);
        }
        let taken = queue.done.len().min(max as usize);
        done.extend(queue.done.drain(..taken));
        self.in_flight -= taken as u32;
        Ok(())
    }
}

impl Drop for Offload {
    fn drop(&mut self) {
        self.shared.queue().over = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

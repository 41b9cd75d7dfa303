//! Calls of which one thread keeps many in flight (`io_submit` and `io_getevents`, or a ring).
//!
//! A thread fills a batch, hands it in with one system call, and waits for completions only when its depth is reached
//! or nothing is left to hand in. Direct reads and writes are in flight; other calls are carried out while they are
//! handed in, as the kernel does with buffered calls, or by [workers](super::workers) of a ring. With a ring, what is
//! done stays in flight until completions are fetched, as fio counts: when the depth is reached, and without a system
//! call if there are enough.

use std::collections::VecDeque;

use super::World;
use super::tasks::TaskId;
use crate::event::{CallId, FileId, What};
use crate::job::{Engine, is_data};
use crate::units::Nanos;
use crate::workload::{Call, Next, Path, WOKEN};

/// A call in flight.
#[derive(Copy, Clone, Debug)]
struct InFlight {
    thread: u32,
    task: TaskId,
    id: CallId,
    call: Call,
    len_bytes: u64,
    intended: Nanos,
}

/// Calls in flight, and completed calls that are not yet fetched.
#[derive(Debug, Default)]
pub(super) struct Aio {
    calls: Vec<Option<InFlight>>,
    free: Vec<u32>,
    /// Done, by thread.
    done: Vec<VecDeque<u32>>,
    /// Completions that a sleeping thread waits for.
    wanted: Vec<usize>,
}

impl Aio {
    pub(super) fn new(nr_threads: usize) -> Aio {
        Aio { done: vec![VecDeque::new(); nr_threads], wanted: vec![0; nr_threads], ..Aio::default() }
    }

    /// A call in flight, with its number.
    pub(super) fn call(&self, slot: u32) -> (CallId, Call) {
        let Some(call) = self.calls[slot as usize] else { unreachable!("a call in flight has a slot") };
        (call.id, call.call)
    }

    /// Notes the number of bytes that a call has moved.
    pub(super) fn moved(&mut self, slot: u32, len_bytes: u64) {
        if let Some(call) = &mut self.calls[slot as usize] {
            call.len_bytes = len_bytes;
        }
    }

    fn insert(&mut self, call: InFlight) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.calls[slot as usize] = Some(call);
                slot
            }
            None => {
                self.calls.push(Some(call));
                (self.calls.len() - 1) as u32
            }
        }
    }
}

impl World<'_, '_> {
    /// A thread that keeps up to `depth` calls in flight.
    pub(super) async fn many_in_flight(&self, thread: u32, depth: u32, batch_submit: u32, batch_complete: u32) {
        let ring = self.has_ring(thread);
        let spec = &self.threads[thread as usize];
        let tool = spec.tool.unwrap_or(self.machine.tool);
        let mut in_flight = 0;
        loop {
            let (mut batch, mut pause, mut done) = (0, None, false);
            // What a batch has room for stands for its calls, which the program knows before it hands them in.
            let room = (depth.max(1) - in_flight).min(batch_submit.max(1));
            let plug = self.direct.plug && room > self.direct.plug_above;
            if plug {
                self.start_plug();
            }
            while batch < room {
                let next = self.report.borrow_mut().generator.next(thread, self.now.get());
                match next {
                    Next::Do { call, intended } => {
                        if batch == 0 {
                            self.charge(self.machine.syscall);
                        }
                        self.charge(Nanos(tool.0.max(1)));
                        in_flight += u32::from(self.hand_in(thread, call, intended).await);
                        batch += 1;
                    }
                    Next::At(WOKEN) => self.follow().await,
                    Next::At(time) => {
                        pause = Some(time);
                        break;
                    }
                    Next::Compute(time) => {
                        self.charge(time);
                        self.settle().await;
                    }
                    Next::Drop(target) => self.drop_target(target).await,
                    Next::Done => {
                        done = true;
                        break;
                    }
                }
            }
            if plug {
                self.finish_plug();
            }
            if batch > 0 && self.direct.batch {
                self.kick_io();
            }
            if in_flight == 0 {
                match pause {
                    Some(time) if batch == 0 => self.sleep_until(time).await,
                    _ if done => return,
                    _ => {}
                }
                continue;
            }
            let full = in_flight >= depth.max(1);
            if full || done || pause.is_some() {
                let wanted = if full || done { batch_complete.clamp(1, in_flight) } else { 1 };
                in_flight -= self.fetch(thread, wanted, pause.filter(|_| !full && !done)).await;
            } else if !ring {
                in_flight -= self.fetch(thread, 0, None).await;
            }
        }
    }

    fn has_ring(&self, thread: u32) -> bool {
        matches!(self.threads[thread as usize].engine, Engine::Ring { .. })
    }

    /// Hands one call in; returns whether it is in flight.
    async fn hand_in(&self, thread: u32, call: Call, intended: Nanos) -> bool {
        let spec = &self.threads[thread as usize];
        let path = self.path_of(spec, &call);
        let waits = self.fs.direct_waits && !self.vfs.borrow().is_device(FileId(call.file));
        let alone = path != Path::Direct || !is_data(call.op) || call.then.is_some() || waits;
        let ring = self.has_ring(thread) && is_data(call.op);
        if alone && !ring {
            let len_bytes = self.call(thread, &call).await;
            self.completed((thread, spec.job), &call, len_bytes, intended);
            return false;
        }
        let id = self.start_call(&call);
        let task = self.current.get();
        let in_flight = InFlight { thread, task, id, call, len_bytes: 0, intended };
        let slot = self.aio.borrow_mut().insert(in_flight);
        if ring && self.needs_worker(&call, path) {
            self.hand_over(thread, slot).await;
            return true;
        }
        if alone {
            let moved = self.carry_out_call(thread, &call).await;
            self.begin_call(CallId::NONE);
            self.aio.borrow_mut().moved(slot, moved);
            self.aio_done(slot);
            return true;
        }
        let counter = self.sched.borrow_mut().counter_for(task, Some(slot));
        // One more than the bios, so that the call cannot end while it is being handed in.
        self.sched.borrow_mut().count_up(counter);
        let (file, locks) = (FileId(call.file), self.direct_locks(FileId(call.file)));
        if locks {
            self.lock_inode(file).await;
        }
        let moved = self.direct_submit(call.op, file, call.offset, call.len_bytes, counter, true).await;
        if locks {
            self.unlock_inode(file);
        }
        self.aio.borrow_mut().moved(slot, moved);
        self.begin_call(CallId::NONE);
        self.count_down(counter);
        true
    }

    /// All bios of an asynchronous call have ended.
    pub(super) fn aio_done(&self, slot: u32) {
        let (wake, now) = {
            let mut aio = self.aio.borrow_mut();
            let Some(call) = aio.calls[slot as usize] else { unreachable!("a call in flight has a slot") };
            let thread = call.thread as usize;
            aio.done[thread].push_back(slot);
            let wake = aio.wanted[thread] > 0 && aio.done[thread].len() >= aio.wanted[thread];
            (wake.then_some(call.task), self.now.get())
        };
        let call = self.aio.borrow().calls[slot as usize];
        if let Some(call) = call {
            let what =
                What::CallEnd { op: call.call.op, file: FileId(call.call.file), len_bytes: call.len_bytes as u32 };
            self.rec.borrow_mut().event(now, call.id, what);
        }
        if let Some(task) = wake {
            self.wake(task);
        }
    }

    /// Fetches completed calls, waiting for `wanted` completions, or until `until`. Returns how many there were.
    async fn fetch(&self, thread: u32, wanted: u32, until: Option<Nanos>) -> u32 {
        let slot = thread as usize;
        if wanted > 0 {
            let there = self.has_ring(thread) && self.aio.borrow().done[slot].len() >= wanted as usize;
            if !there {
                self.charge(self.machine.syscall);
            }
            self.settle().await;
            while self.aio.borrow().done[slot].len() < wanted as usize {
                self.aio.borrow_mut().wanted[slot] = wanted as usize;
                self.kick_io();
                match until {
                    Some(time) if time <= self.now.get() => break,
                    Some(time) => self.sleep_until(time).await,
                    None => self.block_task().await,
                }
            }
            self.aio.borrow_mut().wanted[slot] = 0;
        }
        let job = self.threads[slot].job;
        let mut fetched = 0;
        loop {
            let call = {
                let mut aio = self.aio.borrow_mut();
                let Some(done) = aio.done[slot].pop_front() else { break };
                aio.free.push(done);
                aio.calls[done as usize].take()
            };
            let Some(call) = call else { unreachable!("a call that is done has a slot") };
            self.charge(self.machine.fetch);
            fetched += 1;
            self.completed((thread, job), &call.call, call.len_bytes, call.intended);
        }
        fetched
    }
}

//! Tasks and CPUs: running and waiting tasks, and the cost of time.
//!
//! Known deviation: an interrupt takes its time from all CPUs alike, and the waking of a task none from its waker.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Due, World};
use crate::block::PlugList;
use crate::event::{CallId, Dir};
use crate::machine::RARE;
use crate::units::Nanos;

/// A task: a thread of the program or a daemon, numbered from 0.
pub(super) type TaskId = u32;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    /// Has a CPU.
    Running,
    /// Waits for one.
    Ready,
    /// Waits for something else.
    Blocked,
}

/// The kernel's state of a task.
#[derive(Clone, Debug)]
pub(super) struct TaskInfo {
    state: State,
    /// Counts sleeps, so that a timeout that comes too late is recognised.
    sleep: u32,
    /// CPU time since it last got a CPU.
    ran: Nanos,
    pub(super) call: CallId,
    /// Its writes are synchronous (`PF_SYNCWRITE`).
    pub(super) sync_write: bool,
    /// It is among those that wait for a free request.
    waits_for_request: bool,
    /// Nested plugs.
    pub(super) plug_depth: u32,
    /// Requests it holds back.
    pub(super) plug: PlugList,
}

/// A number of bios that a task waits for.
#[derive(Copy, Clone, Debug)]
struct Counter {
    left: u32,
    task: TaskId,
    /// The asynchronous call that it belongs to; the task is not asleep for it.
    call: Option<u32>,
}

/// The meaning of the end of a counter's last bio.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// This task goes on.
    Task(TaskId),
    /// This asynchronous call is done.
    Call(u32),
}

/// Run queue and wait queues.
pub(super) struct Sched {
    tasks: Vec<TaskInfo>,
    ready: VecDeque<TaskId>,
    idle_cpus: u32,
    nr_cpus: u32,
    counters: Vec<Counter>,
    free_counters: Vec<u32>,
    /// Tasks that wait for a free request, by class.
    request_waiters: [VecDeque<TaskId>; 2],
    /// How often one did, by class.
    request_waits: [u64; 2],
    /// How often a CPU went to a task.
    pub(super) switches: u64,
}

impl Sched {
    pub(super) fn new(nr_cpus: u32) -> Sched {
        Sched {
            tasks: Vec::new(),
            ready: VecDeque::new(),
            idle_cpus: nr_cpus,
            nr_cpus,
            counters: Vec::new(),
            free_counters: Vec::new(),
            request_waiters: [VecDeque::new(), VecDeque::new()],
            request_waits: [0; 2],
            switches: 0,
        }
    }

    pub(super) fn task(&self, id: TaskId) -> &TaskInfo {
        &self.tasks[id as usize]
    }

    pub(super) fn task_mut(&mut self, id: TaskId) -> &mut TaskInfo {
        &mut self.tasks[id as usize]
    }

    /// A task joins those that wait for a free request of this class.
    pub(super) fn wait_for_request(&mut self, task: TaskId, class: Dir) {
        self.task_mut(task).waits_for_request = true;
        self.request_waiters[class as usize].push_back(task);
        self.request_waits[class as usize] += 1;
    }

    pub(super) fn request_waits(&self) -> [u64; 2] {
        self.request_waits
    }

    pub(super) fn is_asleep(&self, task: TaskId) -> bool {
        self.task(task).state == State::Blocked
    }

    /// Whether it is still among them.
    pub(super) fn waits_for_request(&self, task: TaskId) -> bool {
        self.task(task).waits_for_request
    }

    /// Takes the one that has waited longest.
    pub(super) fn next_request_waiter(&mut self, class: Dir) -> Option<TaskId> {
        let task = self.request_waiters[class as usize].pop_front()?;
        self.task_mut(task).waits_for_request = false;
        Some(task)
    }

    pub(super) fn nobody_waits_for_request(&self, class: Dir) -> bool {
        self.request_waiters[class as usize].is_empty()
    }

    /// A counter of bios on behalf of `task`, at zero.
    pub(super) fn new_counter(&mut self, task: TaskId) -> u32 {
        self.counter_for(task, None)
    }

    /// A counter of bios of an asynchronous call.
    pub(super) fn counter_for(&mut self, task: TaskId, call: Option<u32>) -> u32 {
        let counter = Counter { left: 0, task, call };
        match self.free_counters.pop() {
            Some(slot) => {
                self.counters[slot as usize] = counter;
                slot
            }
            None => {
                self.counters.push(counter);
                (self.counters.len() - 1) as u32
            }
        }
    }

    /// One more bio to wait for.
    pub(super) fn count_up(&mut self, slot: u32) {
        self.counters[slot as usize].left += 1;
    }

    /// A bio has ended; returns the consequence if it was the last.
    pub(super) fn count_down(&mut self, slot: u32) -> Option<Counted> {
        let counter = &mut self.counters[slot as usize];
        counter.left -= 1;
        if counter.left > 0 {
            return None;
        }
        match counter.call {
            Some(call) => {
                self.free_counters.push(slot);
                Some(Counted::Call(call))
            }
            None => Some(Counted::Task(counter.task)),
        }
    }

    fn counter_done(&mut self, slot: u32) -> bool {
        if self.counters[slot as usize].left > 0 {
            return false;
        }
        self.free_counters.push(slot);
        true
    }
}

/// Gives control back to the simulator once.
struct Suspend {
    suspended: bool,
}

impl Future for Suspend {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.suspended {
            return Poll::Ready(());
        }
        self.suspended = true;
        Poll::Pending
    }
}

fn suspend() -> Suspend {
    Suspend { suspended: false }
}

impl World<'_, '_> {
    /// Makes the first `nr_awake` of the tasks runnable, in order; those of the program one after another.
    pub(super) fn start_tasks(&self, nr_tasks: u32, nr_awake: u32) {
        let info = TaskInfo {
            state: State::Blocked,
            sleep: 0,
            ran: Nanos::ZERO,
            call: CallId::NONE,
            sync_write: false,
            waits_for_request: false,
            plug_depth: 0,
            plug: PlugList::new(),
        };
        self.sched.borrow_mut().tasks = vec![info; nr_tasks as usize];
        let mut start = self.now.get() + self.between((Nanos::ZERO, self.machine.start));
        self.begun.set(start);
        for task in 0..nr_awake {
            if task < self.nr_threads_tasks() && start > self.now.get() {
                self.push_due(start, Due::Timeout(task, 0));
            } else {
                self.wake(task);
            }
            start += self.between(self.machine.start_gap);
        }
    }

    /// A task goes on.
    pub(super) fn switch_to(&self, id: TaskId) {
        self.current.set(id);
        let sched = self.sched.borrow();
        let task = sched.task(id);
        self.current_call.set(task.call);
        self.ran.set(task.ran);
    }

    #[inline]
    pub(super) fn call_id(&self) -> CallId {
        self.current_call.get()
    }

    #[inline]
    pub(super) fn begin_call(&self, call: CallId) {
        self.current_call.set(call);
    }

    /// Gives control back to the simulator; the caller must have arranged for the task to go on.
    async fn leave(&self) {
        {
            let mut sched = self.sched.borrow_mut();
            let task = sched.task_mut(self.current.get());
            task.call = self.current_call.get();
            task.ran = self.ran.get();
        }
        suspend().await;
    }

    /// Adds to the CPU time that the current task owes.
    #[inline]
    pub(super) fn charge(&self, cost: Nanos) {
        self.debt.set(self.debt.get() + self.noisy(cost).0);
    }

    /// An interrupt takes time from the running task, unless a CPU is idle.
    pub(super) fn steal(&self, cost: Nanos) {
        self.cpu_busy.set(self.cpu_busy.get() + cost.0);
        if self.sched.borrow().idle_cpus == 0 {
            self.stolen.set(self.stolen.get() + cost.0 / u64::from(self.machine.nr_cpus));
        }
    }

    /// Lets the time pass that the current task owes. Afterwards anything may have changed.
    #[inline(always)]
    pub(super) async fn settle(&self) {
        if !self.go_ahead() {
            self.settle_with_others().await;
        }
    }

    /// Puts an entry on the list of due work.
    #[inline]
    pub(super) fn push_due(&self, at: Nanos, due: Due) {
        if self.next_due.get().is_some_and(|next| at < next) {
            self.next_due.set(Some(at));
        }
        self.due.borrow_mut().push(at, due);
    }

    /// When the next event is due; the end of time if none is.
    #[inline(always)]
    fn next_due(&self) -> Nanos {
        match self.next_due.get() {
            Some(next) => next,
            None => {
                let next = self.due.borrow().next_at().unwrap_or(Nanos(u64::MAX));
                self.next_due.set(Some(next));
                next
            }
        }
    }

    /// Time that work takes while the other CPUs do theirs.
    #[inline(always)]
    fn among_others(&self, work: u64) -> u64 {
        if self.machine.smt_pct == 100 { work } else { self.on_shared_cores(work) }
    }

    /// The same if cores have two threads. A task goes to a core of its own while there is one, so that only those
    /// above half of the CPUs share; each gets the mean of those that share and those that do not. A CPU that is busy
    /// as the work begins is taken to be busy until it ends.
    fn on_shared_cores(&self, work: u64) -> u64 {
        let sched = self.sched.borrow();
        let busy = sched.nr_cpus - sched.idle_cpus;
        let sharing = u64::from(2 * busy.saturating_sub(sched.nr_cpus.div_ceil(2)));
        let lost = 100 - self.machine.smt_pct;
        work + work * sharing * lost / (self.machine.smt_pct * u64::from(busy.max(1)))
    }

    /// Lets the time pass if nothing else is due before it has; returns whether nothing is owed any more.
    #[inline(always)]
    fn go_ahead(&self) -> bool {
        let debt = self.among_others(self.debt.get() + self.stolen.get());
        if debt == 0 {
            return true;
        }
        let end = self.now.get() + Nanos(debt);
        if self.next_due() <= end || self.ran.get() >= self.machine.timeslice {
            return false;
        }
        self.debt.set(0);
        self.stolen.set(0);
        self.now.set(end);
        self.ran.set(self.ran.get() + Nanos(debt));
        self.cpu_busy.set(self.cpu_busy.get() + debt);
        self.happenings.set(self.happenings.get() + 1);
        true
    }

    /// The same while other things happen.
    async fn settle_with_others(&self) {
        while self.debt.get() + self.stolen.get() > 0 {
            let debt = Nanos(self.among_others(self.debt.replace(0) + self.stolen.replace(0)));
            self.cpu_busy.set(self.cpu_busy.get() + debt.0);
            self.ran.set(self.ran.get() + debt);
            self.push_due(self.now.get() + debt, Due::Resume(self.current.get()));
            self.leave().await;
            if self.ran.get() >= self.machine.timeslice {
                self.yield_cpu().await;
            }
        }
    }

    /// Lets others run first; returns at once if no task waits for a CPU.
    pub(super) async fn yield_cpu(&self) {
        let task = self.current.get();
        {
            let mut sched = self.sched.borrow_mut();
            if sched.ready.is_empty() {
                self.ran.set(Nanos::ZERO);
                return;
            }
            sched.task_mut(task).state = State::Ready;
            sched.ready.push_back(task);
        }
        self.release_cpu();
        self.leave().await;
    }

    /// Sleeps until the current task is woken. The caller has put it where it will be found, and checks again whatever
    /// it waits for.
    pub(super) async fn block_task(&self) {
        debug_assert_eq!(self.debt.get(), 0, "time must have passed before a task sleeps");
        let task = self.current.get();
        // Whatever it sleeps for, a task must not take its plugged requests to sleep (schedule() flushes them).
        // Tasks that wait for I/O have flushed them before; this is any other sleep.
        self.flush_plug_asleep();
        let worker = self.worker_sleeps();
        self.sched.borrow_mut().task_mut(task).state = State::Blocked;
        self.release_cpu();
        self.leave().await;
        if let Some(thread) = worker {
            self.worker_runs(thread);
        }
    }

    /// Sleeps until `time` or until woken.
    pub(super) async fn sleep_until(&self, time: Nanos) {
        self.settle().await;
        let task = self.current.get();
        let sleep = {
            let mut sched = self.sched.borrow_mut();
            let task = sched.task_mut(task);
            task.sleep = task.sleep.wrapping_add(1);
            task.sleep
        };
        self.push_due(time.max(self.now.get()), Due::Timeout(task, sleep));
        self.block_task().await;
    }

    /// A timeout is due.
    pub(super) fn timeout(&self, task: TaskId, sleep: u32) {
        if self.sched.borrow().task(task).sleep == sleep {
            self.wake(task);
        }
    }

    /// Wakes a task if it is asleep.
    pub(super) fn wake(&self, task: TaskId) {
        let mut sched = self.sched.borrow_mut();
        if sched.task(task).state != State::Blocked {
            return;
        }
        let info = sched.task_mut(task);
        info.sleep = info.sleep.wrapping_add(1);
        info.state = State::Ready;
        if sched.idle_cpus > 0 {
            sched.idle_cpus -= 1;
            drop(sched);
            self.give_cpu(task, self.idle_exit());
        } else {
            sched.ready.push_back(task);
        }
    }

    /// Gives a task a CPU that needs `idle_exit` to wake up.
    fn give_cpu(&self, task: TaskId, idle_exit: Nanos) {
        {
            let mut sched = self.sched.borrow_mut();
            sched.switches += 1;
            let task = sched.task_mut(task);
            task.state = State::Running;
            task.ran = Nanos::ZERO;
        }
        let cost = Nanos(self.among_others(self.noisy(self.machine.switch).0));
        self.cpu_busy.set(self.cpu_busy.get() + cost.0);
        self.push_due(self.now.get() + cost + idle_exit, Due::Resume(task));
    }

    /// How long an idle CPU takes to wake up.
    fn idle_exit(&self) -> Nanos {
        let (least, most) = self.machine.wake;
        let rare = self.machine.wake_tail > most && self.host_rng.borrow_mut().below(RARE) == 0;
        self.between((least, if rare { self.machine.wake_tail } else { most }))
    }

    /// A time between the two; the first, if the other is 0.
    fn between(&self, (least, most): (Nanos, Nanos)) -> Nanos {
        if most == Nanos::ZERO {
            return least;
        }
        least + Nanos(self.host_rng.borrow_mut().below(most.0.saturating_sub(least.0) + 1))
    }

    /// A cost, off by as much as this machine's times vary.
    #[inline(always)]
    fn noisy(&self, cost: Nanos) -> Nanos {
        if self.machine.noise_pct == 0 { cost } else { self.with_noise(cost) }
    }

    fn with_noise(&self, cost: Nanos) -> Nanos {
        let noise = self.machine.noise_pct;
        let factor = 1000 - 10 * noise + self.host_rng.borrow_mut().below(20 * noise + 1);
        Nanos(cost.0 * factor / 1000)
    }

    /// The current task gives its CPU up: to the next that waits for one, if any.
    pub(super) fn release_cpu(&self) {
        let next = self.sched.borrow_mut().ready.pop_front();
        match next {
            Some(task) => self.give_cpu(task, Nanos::ZERO),
            None => {
                let mut sched = self.sched.borrow_mut();
                sched.idle_cpus += 1;
                debug_assert!(sched.idle_cpus <= sched.nr_cpus);
            }
        }
    }

    /// A counted bio has ended.
    pub(super) fn count_down(&self, slot: u32) {
        let counted = self.sched.borrow_mut().count_down(slot);
        match counted {
            Some(Counted::Task(task)) => self.wake(task),
            Some(Counted::Call(call)) => self.aio_done(call),
            None => {}
        }
    }

    /// Sleeps until all bios counted by `slot` have ended, and gives the counter back.
    pub(super) async fn wait_counter(&self, slot: u32) {
        self.settle().await;
        while !self.sched.borrow_mut().counter_done(slot) {
            self.kick_io();
            self.block_task().await;
        }
    }
}

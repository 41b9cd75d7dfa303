//! Opening a device: several threads race for it, and a device manager looks at it whenever a descriptor that could
//! have written is closed.
//!
//! ```text
//! start    the program opens and closes the device to learn its size; its threads start a while later, one by one
//! thread   looks the file's name up in the program's table; opens the device; if the name was absent: adds it, unless
//!          another thread has added it meanwhile, then closes and begins again
//! close    the device manager is notified; after a delay its probe opens the device, reads pages at both ends through
//!          the page cache, and closes it
//! pages    go when the last descriptor is closed, or when they are dropped (`BLKFLSBUF`)
//! ```
//! Source: the report of 2012 and fio of that time (`filesetup.c`, `generic_open_file`), 3.2.7 `fs/block_dev.c`
//! (`__blkdev_put`). Known deviations: one device, file 0 of the job; the program's lock is held for the time an open
//! takes and nothing else.

use super::World;
use super::tasks::TaskId;
use crate::event::{FileId, What};
use crate::job::{Job, OpenFix, Opening};
use crate::outcome::OpeningTotals;
use crate::page_cache::Flag;
use crate::rng::Rng;
use crate::units::{Nanos, PAGE_BYTES, PageIndex};

/// The device that is raced for.
const DEVICE: FileId = FileId(0);

/// The program's table of open files, and the device manager.
pub(super) struct OpeningState {
    rng: Rng,
    /// The name is in the program's table.
    known: bool,
    /// Whether the table's lock is held, in kernels with one, and its waiters.
    locked: bool,
    lock_waiters: Vec<TaskId>,
    raced: bool,
    /// When each probe is due that has been asked for and not begun, in order of request.
    due: Vec<Nanos>,
    asked: u32,
    finished: u32,
    finish_waiters: Vec<TaskId>,
    /// When each thread starts.
    starts: Vec<Nanos>,
}

impl OpeningState {
    pub(super) fn new(job: &Job) -> OpeningState {
        let mut rng = Rng::stream(job.seed, "opening");
        let mut starts = Vec::new();
        if let Some(opening) = &job.opening {
            let mut at = opening.settle;
            for _ in 0..job.workload.threads().len() {
                starts.push(at);
                at += Nanos(rng.below(opening.stagger.0 + 1));
            }
        }
        OpeningState {
            rng,
            known: false,
            locked: false,
            lock_waiters: Vec::new(),
            raced: false,
            due: Vec::new(),
            asked: 0,
            finished: 0,
            finish_waiters: Vec::new(),
            starts,
        }
    }
}

impl World<'_, '_> {
    /// Tasks to keep ready for probes: one for the look at the size, one for each thread that loses the race.
    pub(super) fn nr_probes(&self) -> u32 {
        match &self.plan.job.opening {
            Some(Opening { probe: Some(_), .. }) => 1 + self.threads.len() as u32,
            _ => 0,
        }
    }

    fn probe_task(&self, number: u32) -> TaskId {
        self.threads.len() as u32 + 2 + number
    }

    /// A thread opens the device as its program does.
    pub(super) async fn open_device(&self, thread: u32) {
        let Some(opening) = &self.plan.job.opening else { return };
        if thread == 0 && opening.size_probe {
            self.descriptor_opened();
            self.charge(opening.open);
            self.settle().await;
            self.descriptor_closed(true);
        }
        let mut start = self.opening.borrow().starts[thread as usize];
        if opening.fix == OpenFix::WaitForProbe {
            while self.opening.borrow().finished < u32::from(opening.size_probe && opening.probe.is_some()) {
                self.opening.borrow_mut().finish_waiters.push(self.current.get());
                self.block_task().await;
            }
            // The program starts its threads later then, as far apart as ever.
            start = start.max(self.now.get() + start.saturating_sub(opening.settle));
        }
        self.sleep_until(start).await;
        loop {
            if opening.fix == OpenFix::Serialise {
                self.lock_table().await;
            }
            let found = self.opening.borrow().known;
            self.charge(opening.open);
            self.settle().await;
            self.descriptor_opened();
            let lost = !found && std::mem::replace(&mut self.opening.borrow_mut().known, true);
            if opening.fix == OpenFix::Serialise {
                self.unlock_table();
            }
            if lost {
                self.opening.borrow_mut().raced = true;
                self.descriptor_closed(true);
                continue;
            }
            let again = found && opening.fix == OpenFix::InvalidateWhenFound;
            if again {
                self.sleep_until(self.now.get() + opening.found_delay).await;
            }
            if opening.invalidate && (!found || again) {
                self.drop_pages(DEVICE, PageIndex(0), PageIndex(u64::MAX));
            }
            return;
        }
    }

    /// A thread closes the device at its end.
    pub(super) fn close_device(&self, _thread: u32) {
        if self.plan.job.opening.is_some() {
            if self.vfs.borrow().files[DEVICE.0 as usize].openers == 1 {
                // The last to close takes the pages along: they are counted before.
                let stale = self.vfs.borrow().cache.file_pages(DEVICE);
                self.stale_pages.set(stale);
            }
            self.descriptor_closed(false);
        }
    }

    async fn lock_table(&self) {
        loop {
            {
                let mut opening = self.opening.borrow_mut();
                if !opening.locked {
                    opening.locked = true;
                    return;
                }
                opening.lock_waiters.push(self.current.get());
            }
            self.block_task().await;
        }
    }

    fn unlock_table(&self) {
        let woken = {
            let mut opening = self.opening.borrow_mut();
            opening.locked = false;
            std::mem::take(&mut opening.lock_waiters)
        };
        woken.into_iter().for_each(|task| self.wake(task));
    }

    fn descriptor_opened(&self) {
        self.vfs.borrow_mut().files[DEVICE.0 as usize].openers += 1;
    }

    /// A descriptor is closed; the device manager hears of it if it `could_write`.
    fn descriptor_closed(&self, could_write: bool) {
        let last = {
            let mut vfs = self.vfs.borrow_mut();
            let file = &mut vfs.files[DEVICE.0 as usize];
            file.openers -= 1;
            file.openers == 0
        };
        if last {
            self.drop_pages(DEVICE, PageIndex(0), PageIndex(u64::MAX));
        }
        if !could_write {
            return;
        }
        let Some(probe) = self.plan.job.opening.as_ref().and_then(|opening| opening.probe) else { return };
        let number = {
            let mut opening = self.opening.borrow_mut();
            let (least, most) = probe.delay;
            let delay = least + Nanos(opening.rng.below(most.0.saturating_sub(least.0) + 1));
            opening.due.push(self.now.get() + delay);
            opening.asked += 1;
            opening.asked - 1
        };
        if number < self.nr_probes() {
            self.wake(self.probe_task(number));
        }
    }

    /// The device manager's probe number `number`: sleeps until it is asked for, then reads.
    pub(super) async fn probe(&self, number: u32) {
        let Some(probe) = self.plan.job.opening.as_ref().and_then(|opening| opening.probe) else { return };
        while self.opening.borrow().asked <= number {
            self.block_task().await;
        }
        let due = self.opening.borrow().due[number as usize];
        while self.now.get() < due {
            self.sleep_until(due).await;
        }
        self.descriptor_opened();
        let end = self.vfs.borrow().file_bytes(DEVICE).div_ceil(PAGE_BYTES);
        let first = 0..u64::from(probe.first_pages).min(end);
        let last = end.saturating_sub(u64::from(probe.last_pages))..end;
        for page in first.chain(last) {
            self.probe_page(PageIndex(page)).await;
        }
        self.settle().await;
        self.descriptor_closed(false);
        let woken = {
            let mut opening = self.opening.borrow_mut();
            opening.finished += 1;
            std::mem::take(&mut opening.finish_waiters)
        };
        woken.into_iter().for_each(|task| self.wake(task));
    }

    /// Reads one page of the device through the page cache, without read-ahead (a probe seeks about).
    async fn probe_page(&self, page: PageIndex) {
        self.charge(self.machine.syscall + self.machine.page_lookup);
        self.settle().await;
        if !self.vfs.borrow().cache.is(DEVICE, page, Flag::Uptodate) {
            self.fill_page(DEVICE, page).await;
        }
        self.event(What::Hit { file: DEVICE, page, nr_pages: 1 });
    }

    pub(super) fn opening_totals(&self) -> OpeningTotals {
        let opening = self.opening.borrow();
        OpeningTotals { raced: opening.raced, probes: opening.finished, stale_pages: self.stale_pages.get() }
    }
}

//! Buffered reads: the read loop's crank, and carrying out what read-ahead decided.
//!
//! Known deviation: only file systems with [`add_as_mapped`](crate::filesystem::Rules::add_as_mapped) look up blocks
//! page by page while a window is added; with the others all its pages are there before the first block is looked up.

use super::{Done, World};
use crate::event::{Content, Dir, FileId, UnplugCause, What};
use crate::filesystem::Atime;
use crate::plug::Plugging;
use crate::read_loop::Step;
use crate::readahead::ReadRequest;
use crate::units::{PAGE_SECTORS, PageIndex};

impl World<'_, '_> {
    /// A buffered `pread`. Returns the bytes read.
    pub(super) async fn read(&self, descriptor: usize, file: FileId, offset: u64, len_bytes: u32) -> u64 {
        let request = ReadRequest { offset, len_bytes: u64::from(len_bytes) };
        let cached = {
            let at = (self.now.get(), self.call_id());
            self.vfs.borrow_mut().read_cached(descriptor, file, &request, at, &mut self.rec.borrow_mut())
        };
        if let Some((page, nr_pages)) = cached {
            self.charge((self.machine.page_lookup + self.machine.page_copy) * nr_pages);
            self.event(What::Hit { file, page, nr_pages: nr_pages as u32 });
        } else {
            self.walk(descriptor, file, request).await;
        }
        if self.fs.atime == Atime::EverySecond {
            self.touch_atime(file).await;
        }
        let end = (offset + u64::from(len_bytes)).min(self.vfs.borrow().file_bytes(file));
        end.saturating_sub(offset)
    }

    /// Walks the kernel's read loop.
    async fn walk(&self, descriptor: usize, file: FileId, request: ReadRequest) {
        let mut read = self.vfs.borrow_mut().begin_read(descriptor, &self.plan.stack.readahead, request);
        let whole_call = matches!(self.plugging, Plugging::Task { whole_call: true, .. });
        if whole_call {
            self.start_plug();
        }
        let (mut missed, mut held) = (None, None);
        loop {
            let step = {
                let congested = self.block.borrow().congested(Dir::Read);
                let at = (self.now.get(), self.call_id());
                let mut vfs = self.vfs.borrow_mut();
                let step = vfs.step(&mut read, descriptor, file, congested, at, &mut self.rec.borrow_mut());
                if let Some(page) = held.take() {
                    vfs.cache.release(file, page);
                }
                step
            };
            match step {
                Step::SchedulingPoint => {}
                Step::Submitted => self.carry_out().await,
                Step::Wait(page) => {
                    if missed != Some(page) {
                        missed = Some(page);
                        self.event(What::Miss { file, page });
                    }
                    self.vfs.borrow_mut().cache.hold(file, page);
                    held = Some(page);
                    self.wait_page(file, page).await;
                }
                Step::Copy { page, nr_pages, .. } => {
                    self.vfs.borrow_mut().cache.touch(file, page, nr_pages);
                    self.charge((self.machine.page_lookup + self.machine.page_copy) * nr_pages);
                    let hits = nr_pages - u64::from(missed == Some(page));
                    if hits > 0 {
                        let first = page.plus(nr_pages - hits);
                        self.event(What::Hit { file, page: first, nr_pages: hits as u32 });
                    }
                }
                Step::Done { .. } => break,
            }
        }
        if whole_call {
            // The rest of the call is done before its plug is flushed.
            self.settle().await;
            self.finish_plug();
        }
    }

    /// Pulls the plug of a queue that plugs itself.
    fn kick_queue(&self) {
        if matches!(self.plugging, Plugging::Queue { .. }) {
            self.block.borrow_mut().unplug(self.now.get(), UnplugCause::Waiter, &mut self.rec.borrow_mut());
            self.after_block();
        }
    }

    /// Submits what read-ahead has put into the page cache.
    pub(super) async fn carry_out(&self) {
        let mut pending = std::mem::take(&mut self.vfs.borrow_mut().pending);
        for submission in pending.drain(..) {
            let nr_pages: u64 = submission.runs.iter().map(|(_, nr_pages)| nr_pages).sum();
            if !submission.planned {
                self.charge(self.machine.page_add * nr_pages);
            }
            self.start_plug();
            for (first, nr_pages) in submission.runs {
                if submission.planned {
                    self.read_planned(submission.file, first, nr_pages, submission.marker).await;
                } else {
                    self.read_run(submission.file, first, nr_pages).await;
                }
            }
            self.finish_plug();
            if submission.ahead && self.vfs.borrow().kicks_queue {
                self.kick_queue();
            }
        }
        if std::mem::take(&mut self.vfs.borrow_mut().reclaim_met_dirty) {
            self.kick_writeback();
        }
    }

    /// Adds pages as their blocks are looked up, and submits those that no other task has added meanwhile.
    async fn read_planned(&self, file: FileId, first: PageIndex, nr_pages: u64, marker: Option<PageIndex>) {
        let (mut at, end) = (first, first.plus(nr_pages));
        while at < end {
            let (same_block, known) = {
                let vfs = self.vfs.borrow();
                (vfs.pages_to_boundary(&self.fs, file, at), vfs.mapping_is_cached(&self.fs, file, at))
            };
            // Up to the first page whose block must be waited for: that one is added, the others are not yet.
            let next = if known { at.plus(same_block.min(end.0 - at.0)) } else { at.plus(1) };
            let mut runs = self.add_planned(file, (at, next), marker);
            at = next;
            if let (false, Some((page, nr_pages))) = (known, runs.first_mut()) {
                self.map(file, *page).await;
                // What follows joins it, if it is still absent.
                let stop = at.plus((same_block - 1).min(end.0 - at.0));
                let rest = self.add_planned(file, (at, stop), marker);
                at = stop;
                let joins = rest.first().is_some_and(|(first, _)| *first == page.plus(1));
                *nr_pages += rest.first().filter(|_| joins).map_or(0, |(_, nr_pages)| *nr_pages);
                runs.extend(rest.into_iter().skip(usize::from(joins)));
            }
            for (first, nr_pages) in runs {
                self.read_run(file, first, nr_pages).await;
            }
        }
    }

    fn add_planned(
        &self,
        file: FileId,
        range: (PageIndex, PageIndex),
        marker: Option<PageIndex>,
    ) -> Vec<(PageIndex, u64)> {
        let at = (self.now.get(), self.call_id());
        let runs = self.vfs.borrow_mut().add_planned(file, range, marker, at, &mut self.rec.borrow_mut());
        self.charge(self.machine.page_add * runs.iter().map(|(_, nr_pages)| nr_pages).sum::<u64>());
        runs
    }

    /// Submits a run of pages that are locked in the cache: a bio ends where its mapping block does, and in 2.4 with
    /// every page.
    pub(super) async fn read_run(&self, file: FileId, first: PageIndex, nr_pages: u64) {
        let max_pages = if self.fs.page_by_page {
            1
        } else {
            self.bio_max_pages().min(u64::from(self.block.borrow().max_sectors()) / PAGE_SECTORS).max(1)
        };
        let (mut at, end) = (first, first.plus(nr_pages));
        while at < end {
            self.map(file, at).await;
            let nr = (end.0 - at.0).min(max_pages).min(self.vfs.borrow().pages_to_boundary(&self.fs, file, at));
            let sector = self.vfs.borrow().sector_of(&self.fs, file, at);
            let done = Done::Read { file, page: at };
            self.submit(Dir::Read, Content::Data, sector, (nr * PAGE_SECTORS) as u32, false, done).await;
            at = at.plus(nr);
        }
    }
}

//! Direct I/O, in its plain form: the cached pages of the range are written and dropped, then the device is used.

use super::{BIO_MAX_PAGES, Done, World};
use crate::event::{Content, Dir, Eviction, FileId, Op, What};
use crate::page_cache::Flag;
use crate::units::{PAGE_BYTES, PAGE_SECTORS, PageIndex};

impl World<'_, '_> {
    /// A read or write past the page cache. Returns the bytes moved.
    pub(super) async fn direct_io(&self, op: Op, file: FileId, offset: u64, len_bytes: u32) -> u64 {
        let dir = if op == Op::Read { Dir::Read } else { Dir::Write };
        let end_offset = (offset + u64::from(len_bytes)).min(self.vfs.borrow().file_bytes());
        let (first, end) = (PageIndex::of(offset), PageIndex(end_offset.div_ceil(PAGE_BYTES)));
        self.settle().await;
        if dir == Dir::Write {
            self.touch_mtime(file).await;
        }
        for page in first.0..end.0 {
            let page = PageIndex(page);
            if self.vfs.borrow().cache.is(file, page, Flag::Dirty) {
                self.write_run(file, page, 1).await;
            }
            self.wait_page_written(file, page).await;
        }
        if dir == Dir::Write {
            self.invalidate(file, first, end);
        }
        let counter = self.sched.borrow_mut().new_counter(self.current.get());
        let file_blocks = self.vfs.borrow().file_blocks();
        let max_pages = BIO_MAX_PAGES.min(u64::from(self.block.borrow().max_sectors()) / PAGE_SECTORS).max(1);
        self.start_plug();
        let mut at = first;
        while at < end {
            self.map(file, at).await;
            let nr = (end.0 - at.0).min(max_pages).min(self.fs.pages_to_boundary(at));
            let sector = self.fs.sector_of(file.0, file_blocks, at);
            self.sched.borrow_mut().count_up(counter);
            self.submit(dir, Content::Data, sector, (nr * PAGE_SECTORS) as u32, false, Done::Counted(counter)).await;
            at = at.plus(nr);
        }
        self.finish_plug();
        self.wait_counter(counter).await;
        if dir == Dir::Write {
            self.invalidate(file, first, end);
        }
        end_offset.saturating_sub(offset)
    }

    /// Drops the cached pages of a range that nobody is using.
    fn invalidate(&self, file: FileId, first: PageIndex, end: PageIndex) {
        let mut at = first;
        loop {
            let next = self.vfs.borrow().cache.next_with(file, at, Flag::Present);
            let Some(page) = next.filter(|page| *page < end) else { return };
            at = page.plus(1);
            let gone = {
                let mut vfs = self.vfs.borrow_mut();
                let busy = [Flag::Locked, Flag::Writeback, Flag::Dirty].iter().any(|f| vfs.cache.is(file, page, *f));
                if busy { None } else { vfs.cache.remove(file, page) }
            };
            if let Some((page, nr_pages)) = gone {
                let cause = Eviction::Dropped;
                self.event(What::PageRemove { file, page, nr_pages: nr_pages as u32, cause });
            }
        }
    }
}

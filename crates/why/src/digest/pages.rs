//! Pages on their way into the cache: windows, what they bring, and what calls ask for.

use iowhy_stack::event::{Op, RaKind};
use iowhy_stack::units::PAGE_SECTORS;

use super::{Call, Observer};

/// Pages between two that a stream of reads adds, up to which they are a hole: they were there already. A stream that
/// leaves out more reads elsewhere.
const LONGEST_HOLE: u64 = 64;

/// Pages that lie one behind the other: file, the first, how many.
type Pages = (u32, u64, u32);

impl Call {
    /// Whether a page at a sector is one of a map: they are a device's own, which lie in it where their numbers say.
    pub(super) fn is_map(&self, file: u32, page: u64, sector: u64) -> bool {
        file != self.file && page == sector / PAGE_SECTORS
    }

    /// Takes the pages that a read carries off those that wait for one; whether the call asks for any of them.
    pub(super) fn carried(&mut self, sector: u64, nr_sectors: u32) -> (bool, Option<Pages>) {
        // A page of a map is read as soon as it is added, before the data that wait for it.
        if self.pending.back().is_some_and(|(file, page, _)| self.is_map(*file, *page, sector)) {
            return (true, self.pending.pop_back());
        }
        let mut left = u64::from(nr_sectors).div_ceil(PAGE_SECTORS);
        let (mut wanted, mut pages) = (self.pending.is_empty(), None);
        while left > 0
            && let Some((file, page, nr)) = self.pending.pop_front()
        {
            let taken = u64::from(nr).min(left) as u32;
            left -= u64::from(taken);
            if taken < nr {
                self.pending.push_front((file, page + u64::from(taken), nr - taken));
            }
            wanted |= self.wants(file, page, taken);
            pages = match pages {
                Some((file, first, so_far)) => Some((file, first, so_far + taken)),
                None => Some((file, page, taken)),
            };
        }
        (wanted, pages)
    }
}

impl Observer {
    /// These pages were requested.
    pub(super) fn use_pages(&mut self, file: u32, first: u64, nr: u64) {
        self.out.windows.used += self.ahead.remove(file, first, nr);
    }

    pub(super) fn window(&mut self, call: Option<usize>, kind: RaKind, nr_pages: u32) {
        let windows = &mut self.out.windows;
        windows.count[kind as usize] += 1;
        windows.pages[kind as usize] += u64::from(nr_pages);
        if matches!(kind, RaKind::Sync | RaKind::Async) {
            windows.sizes.add(u64::from(nr_pages));
        }
        let Some(call) = call.map(|call| &mut self.calls[call]) else { return };
        if kind != RaKind::Async {
            call.missed = true;
        }
        call.touched_cache = true;
        call.singles += u32::from(kind == RaKind::Single);
        if call.sequential && kind == RaKind::Sync {
            windows.sequential_sizes.add(u64::from(nr_pages));
        }
        if u64::from(nr_pages) < call.last - call.first + 1 && kind == RaKind::Force {
            windows.in_pieces += 1;
        }
    }

    pub(super) fn page_add(&mut self, call: Option<usize>, file: u32, page: u64, nr_pages: u32) {
        let nr = u64::from(nr_pages);
        self.out.cache.added += nr;
        let again = self.ever.insert(file, page, nr);
        self.out.cache.again += again;
        self.cached.insert(file, page, nr);
        let state = self.files.entry(file).or_default();
        state.cached[usize::from(call.is_none())] += nr;
        self.out.cache.most = self
            .out
            .cache
            .most
            .max(self.out.cache.added.saturating_sub(self.out.cache.reclaimed + self.out.cache.dropped));
        let Some(call) = call else {
            if self.stranger {
                self.others.insert(file, page, nr);
                self.out.foreign.pages += nr;
            }
            return;
        };
        let call = &mut self.calls[call];
        call.cut = None;
        // A direct write may have to read blocks of a map: it has touched no page of its file.
        call.touched_cache |= file == call.file || call.op == Op::Read;
        if call.op != Op::Read {
            return;
        }
        self.out.cache.again_by_reads += again;
        call.pending.push_back((file, page, nr_pages));
        if file == call.file {
            let gap = page.saturating_sub(std::mem::replace(&mut state.added_to, page + nr));
            if call.sequential && (1..=LONGEST_HOLE).contains(&gap) {
                self.out.windows.holes[0] += 1;
                self.out.windows.holes[1] += gap;
            }
        }
        // Only what the call does not ask for itself is read ahead.
        if file == call.file {
            let end = page + nr;
            for (from, to) in [(page, end.min(call.first)), (page.max(call.last + 1), end)] {
                if from < to {
                    self.ahead.insert(file, from, to - from);
                    self.out.windows.ahead += to - from;
                }
            }
        } else {
            // What is copied without a write call is dirty at its goal. Pages of a map are read: see `bio`.
            self.dirtied += nr;
        }
    }
}

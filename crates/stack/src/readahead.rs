//! Read-ahead: the pages that a buffered read asks the file system for.
//!
//! Two pure state machines share the work. A [`Readahead`] is the state of one open file (`struct file`) as one kernel
//! keeps it. A [`ReadLoop`](crate::read_loop::ReadLoop) is one `read(2)` call in progress: it walks the pages in the
//! kernel's order, asks the policy at the kernel's places, and returns the next action to its driver. The simulator
//! drives it in time; the replayer drives it with instant I/O against recorded vectors.
//!
//! Windows are decided by the policy and carried out at once through [`Mapping`], because the kernels' next decision
//! may look at the pages just added.

pub mod folios_6_1;
pub mod folios_6_12;
pub mod folios_6_18;
pub mod lazy_2_6_5;
pub mod lazy_2_6_7;
pub mod linux_2_4;
pub mod off;
pub mod ondemand_2_6_23;
pub mod ondemand_4_19;
pub mod ondemand_4_4;
pub mod ondemand_5;
pub mod private_copy;
pub mod read_populate;
pub mod simplified_2_6_10;
pub mod stream_table;

mod parts;

use serde::Serialize;

use crate::event::{RaClose, RaKind};
use crate::origin::{Entry, Options};
use crate::read_loop::LoopStyle;
use crate::trace::RaInput;
use crate::units::PageIndex;

/// Limits of the device and the mapping that a policy may ask for, in pages.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Read-ahead limit of the device (`read_ahead_kb / 4`); an open file copies it.
    pub ra_pages: u64,
    /// Largest request the device takes (`max_sectors_kb / 4`), used from 4.10 on.
    pub io_pages: u64,
    /// Largest folio order of the mapping; 0 without large folios.
    pub max_folio_order: u8,
    /// Most pages that may be read ahead at once for lack of memory (`max_sane_readahead`), until 3.14.
    pub max_sane: u64,
}

/// A folio: `1 << order` pages from `first` on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Folio {
    /// First page; a multiple of the folio's size.
    pub first: PageIndex,
    /// Log2 of its pages.
    pub order: u8,
}

/// A run of pages that a policy wants in the cache.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Why.
    pub kind: RaKind,
    /// First page.
    pub start: PageIndex,
    /// Pages; cached ones among them are left alone, pages after the file's last are not clipped by the mapping.
    pub nr_pages: u64,
    /// The lookahead argument of the call, where the kernel has one: shown in traces, not acted upon.
    pub async_size: Option<u64>,
    /// Page to carry the read-ahead marker if it is added by this window. Among folios: the first page of the folio
    /// that carries it.
    pub marker: Option<PageIndex>,
}

/// A window that a page fault decides on, not the state's own rules.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FaultWindow {
    /// Why.
    pub kind: RaKind,
    /// First page.
    pub start: PageIndex,
    /// Pages.
    pub size: u64,
    /// Those of its asynchronous tail.
    pub async_size: u64,
    /// Folio order to try.
    pub order: u8,
    /// The state goes on to say that its window starts where the one before did (6.x, huge folios).
    pub keeps_start: bool,
}

/// A call of one of the kernel's functions that decide on windows or submit them, as their trace events show it (6.x).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// `page_cache_ra_order`: a window to be cut into folios.
    Ordered {
        /// First page.
        start: PageIndex,
        /// Preferred order, before the limits.
        order: u8,
        /// Pages.
        size: u64,
        /// Asynchronous tail.
        async_size: u64,
        /// Limit of the open file.
        max: u64,
    },
    /// `page_cache_sync_ra`: a miss. Told by those who know the whole state of the open file.
    Sync {
        /// The columns of its trace event.
        fields: [i64; 8],
    },
    /// `page_cache_async_ra`: a marker. Told by those who know the whole state of the open file.
    Async {
        /// The columns of its trace event.
        fields: [i64; 8],
    },
    /// `page_cache_ra_unbounded`: pages of order 0.
    Unbounded {
        /// First page.
        start: PageIndex,
        /// Pages, clipped to the file.
        nr_pages: u64,
        /// Asynchronous tail.
        lookahead: u64,
    },
}

/// The page cache of one file as read-ahead sees and fills it. The driver implements it.
pub trait Mapping {
    /// File size in bytes.
    fn size_bytes(&self) -> u64;

    /// Device and mapping limits.
    fn limits(&self) -> Limits;

    /// Whether the read side of the device's queue is congested (until 5.x).
    fn congested(&self) -> bool;

    /// Whether the page is in the cache, up to date or not.
    fn present(&self, page: PageIndex) -> bool;

    /// Whether the page is present and its data valid.
    fn uptodate(&self, page: PageIndex) -> bool;

    /// Whether the page is present and locked for I/O (2.4 asks).
    fn locked(&self, page: PageIndex) -> bool;

    /// Whether the page is being written to the device.
    fn under_writeback(&self, page: PageIndex) -> bool;

    /// Whether the page (its folio) carries the read-ahead marker.
    fn marked(&self, page: PageIndex) -> bool;

    /// The folio that holds the page, if it is present. Without large folios every page is a folio of order 0.
    fn folio(&self, page: PageIndex) -> Option<Folio>;

    /// Pages from `page` on, at most `nr_pages`, that are present, up to date and unmarked: a run that a loop which
    /// need not ask its policy about hits may copy in one go.
    fn clean_run(&self, page: PageIndex, nr_pages: u64) -> u64;

    /// Takes the marker off the folio of `page`.
    fn clear_marker(&mut self, page: PageIndex);

    /// Adds every absent page of the window as an order-0 folio and submits all that were new as one submission (one
    /// call of the file system's readpages, holes and all). Returns how many were new.
    fn read_pages(&mut self, window: &Window) -> u64;

    /// Adds the given folios (all absent) and submits them as one submission. `window` describes the decision.
    fn read_folios(&mut self, window: &Window, folios: &[Folio]);

    /// A window is about to be read; for those who compare with trace events.
    fn decided(&mut self, _decision: Decision) {}

    /// The state of the policy changed in a way people want counted: read-ahead turned itself off.
    fn closed(&mut self, _cause: RaClose) {}

    /// Read-ahead turned itself on again.
    fn reopened(&mut self) {}
}

/// One call of `read(2)` on an open file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// First byte.
    pub offset: u64,
    /// Bytes asked for, at least 1.
    pub len_bytes: u64,
}

impl ReadRequest {
    /// Page of the first byte.
    pub fn first_page(&self) -> PageIndex {
        PageIndex::of(self.offset)
    }

    /// Page after the last byte asked for; not clipped to the file.
    pub fn end_page(&self) -> PageIndex {
        PageIndex((self.offset + self.len_bytes).div_ceil(crate::units::PAGE_BYTES))
    }
}

/// Advice on an open file (`posix_fadvise`), and `readahead(2)`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Advice {
    /// The default.
    Normal,
    /// Reads will come in random order.
    Random,
    /// Reads will come in sequence.
    Sequential,
    /// These bytes will be wanted: read them now.
    WillNeed {
        /// First byte.
        offset: u64,
        /// Bytes; 0 means to the end of the file.
        len_bytes: u64,
    },
}

/// Names the state that one call holds in a policy between [`Readahead::begin`] and [`Readahead::end`].
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Token(pub u32);

/// The read-ahead state of one open file, and the rules by which one kernel changes it. The [`Token`] distinguishes
/// pages that may be touched in several calls at once.
pub trait Readahead {
    /// How this kernel's read loop walks the pages.
    fn style(&self) -> LoopStyle;

    /// A read call begins: kernels that work on a private copy take it here, and those that read the whole request
    /// ahead do so.
    fn begin(&mut self, mapping: &mut dyn Mapping, request: &ReadRequest) -> Token;

    /// Page-by-page kernels: the loop has come to `page`, which may or may not be present. `remaining_bytes` counts the
    /// bytes still to be copied. Returns the only page of this call at which the policy wants to be asked next.
    fn on_page(
        &mut self,
        _call: Token,
        _mapping: &mut dyn Mapping,
        page: PageIndex,
        _remaining_bytes: u64,
    ) -> PageIndex {
        page.plus(1)
    }

    /// `page` is absent. `nr_requested` counts pages from it to the end of the request, as this kernel counts them.
    /// After it the loop looks again, and reads the page alone if it is still absent.
    fn on_miss(&mut self, _call: Token, _mapping: &mut dyn Mapping, _page: PageIndex, _nr_requested: u64) {}

    /// `page`'s folio carries the marker.
    fn on_marker(&mut self, _call: Token, _mapping: &mut dyn Mapping, _page: PageIndex, _nr_requested: u64) {}

    /// Bytes before `pos` have been copied; called where this kernel moves its `prev_pos`: after every batch in some
    /// styles of the loop, otherwise once at the end of a call that copied anything.
    fn copied(&mut self, _call: Token, _pos: u64) {}

    /// The read call ends, having copied up to byte `pos` (not called for reads that never began).
    fn end(&mut self, call: Token, pos: u64);

    /// The limit of the open file in pages, which page faults ask about (0 where the policy has none).
    fn max_pages(&self) -> u64 {
        0
    }

    /// The page where the previous read ended as this kernel counts it; all ones if there was none.
    fn prev_page(&self) -> u64 {
        u64::MAX
    }

    /// Makes a page fault's window the state's own, and reads it. Policies without limits of their own read nothing.
    fn fault_window(&mut self, _mapping: &mut dyn Mapping, _window: &FaultWindow) {}

    /// Whether this kernel pulls the queue's plug after submitting a window ahead of the reader (2.6.31 .. 2.6.38).
    fn kicks_queue(&self) -> bool {
        false
    }

    /// Whether a read of existing bytes whose pages are all cached, up to date and unmarked goes by without a
    /// question to the policy, so that its loop need not be walked.
    fn asks_nothing_of_hits(&self) -> bool {
        match self.style() {
            LoopStyle::OnDemand => true,
            // The page behind the request may carry the marker.
            LoopStyle::Batch(rules) => !rules.past_request,
            _ => false,
        }
    }

    /// Such a read has happened: the state moves as if the loop had been walked.
    fn hit(&mut self, mapping: &mut dyn Mapping, request: &ReadRequest) {
        let end = request.offset + request.len_bytes;
        let call = self.begin(mapping, request);
        self.copied(call, end);
        self.end(call, end);
    }

    /// Takes the state that a kernel's trace shows for its own; the trace does not show where the window starts, which
    /// stays if `start` is none. Whether the policy keeps such a state.
    fn restore(&mut self, _start: Option<PageIndex>, _input: &RaInput) -> bool {
        false
    }

    /// Advice from the program.
    fn advise(&mut self, mapping: &mut dyn Mapping, advice: Advice);

    /// The state in the order and with the values of the golden vectors' `ra_trace` (without read and fd).
    fn trace(&self) -> Vec<i64>;

    /// Its steps where the kernels of its family differ.
    fn steps(&self) -> Vec<StepText> {
        Vec::new()
    }
}

/// A step in which kernels differ, and what one of them does there, in words.
pub type StepText = (&'static str, &'static str);

/// Steps of a policy and of its kernel's read loop.
pub fn steps(ra: &dyn Readahead) -> Vec<StepText> {
    let mut steps = ra.style().steps();
    steps.extend(ra.steps());
    steps
}

/// Makes the state of a newly opened file.
pub type Build = fn(&Options, &Limits) -> Box<dyn Readahead>;

/// Every read-ahead policy, by age.
pub const READAHEADS: &[&Entry<Build>] = &[
    &linux_2_4::ENTRY,
    &lazy_2_6_5::ENTRY,
    &read_populate::ENTRY_AS_POSTED,
    &read_populate::ENTRY_AS_MEANT,
    &private_copy::ENTRY,
    &lazy_2_6_7::ENTRY,
    &simplified_2_6_10::ENTRY,
    &ondemand_2_6_23::ENTRY,
    &ondemand_4_4::ENTRY,
    &ondemand_4_19::ENTRY,
    &ondemand_5::ENTRY_5_4,
    &ondemand_5::ENTRY_5_10,
    &ondemand_5::ENTRY_5_15_85,
    &ondemand_5::ENTRY_5_15,
    &folios_6_1::ENTRY_6_1_12,
    &folios_6_1::ENTRY_6_1_123,
    &folios_6_1::ENTRY,
    &folios_6_1::ENTRY_6_6_57,
    &folios_6_1::ENTRY_6_6_69,
    &folios_6_1::ENTRY_6_6,
    &folios_6_1::ENTRY_6_10,
    &folios_6_12::ENTRY_6_11,
    &folios_6_12::ENTRY_6_12_4,
    &folios_6_12::ENTRY_6_12_8,
    &folios_6_12::ENTRY_6_12_43,
    &folios_6_12::ENTRY,
    &folios_6_12::ENTRY_6_14,
    &folios_6_18::ENTRY,
    &folios_6_18::ENTRY_7_2,
    &off::ENTRY,
    &stream_table::ENTRY,
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Helpers that several policies share; no policy themselves.
    const NOT_A_POLICY: &[&str] = &["parts"];

    #[test]
    fn every_file_of_the_folder_is_listed_and_every_entry_names_its_source() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/readahead");
        let table = include_str!("readahead.rs");
        let mut files = 0;
        for file in std::fs::read_dir(folder).expect("the sources are there when tests run") {
            let path = file.expect("readable").path();
            let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
            if path.extension().is_none_or(|extension| extension != "rs") || NOT_A_POLICY.contains(&stem) {
                continue;
            }
            files += 1;
            assert!(table.contains(&format!("    &{stem}::ENTRY")), "{stem}.rs is not in READAHEADS");
            let text = std::fs::read_to_string(&path).expect("readable");
            assert!(text.starts_with("//!"), "{stem}.rs does not explain its algorithm");
        }
        assert!(files >= 14 && READAHEADS.len() > files, "{files} files, {} entries", READAHEADS.len());
        for entry in READAHEADS {
            assert!(!entry.origin.is_empty(), "{} has no origin", entry.name);
            for origin in entry.origin {
                assert!(!origin.function.is_empty() && !origin.file.is_empty(), "{}: {origin:?}", entry.name);
            }
            assert!(!entry.conformance.is_empty(), "{} says nothing about conformance", entry.name);
        }
    }

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<&str> = READAHEADS.iter().map(|entry| entry.name).collect();
        assert_eq!(names.len(), READAHEADS.len());
    }
}

//! 6.18 and 7.2: the rules of 6.12, with the folio order kept in the open file's state.
//!
//! A miss resets the order to 0. Every marker adds 2 to it, and the window is cut back so that it ends where a folio of
//! that order (or of the largest power of two that divides the limit) would end. The rest of the order after the
//! window's size and the mapping have limited it is kept. If a page of the window is cached already, the folios stop
//! there and the rest is read as single pages. 7.2 gives no marker to a window that ends with the file, and counts a
//! whole limit of cached pages before a miss whole.
//!
//! Source: Linux 6.18, 7.2, mm/readahead.c, `page_cache_sync_ra`, `page_cache_async_ra`, `page_cache_ra_order`.
//!
//! Known deviations: memory never fails, and block cgroups are never congested.

use super::folios_6_12::{Folios, V6_18, V7_2};
use super::{Build, Limits, Readahead};
use crate::origin::{Entry, Options, Origin};

/// 6.18.
pub const ENTRY: Entry<Build> = Entry {
    name: "linux-6.18",
    summary: "on-demand read-ahead with markers on large folios whose order grows with the stream",
    origin: &[Origin {
        kernels: "6.18",
        file: "mm/readahead.c",
        function: "page_cache_sync_ra, page_cache_async_ra, page_cache_ra_order",
        notes: "decisions compared case by case with the kernel's own functions and with a running 6.18",
    }],
    options: &[],
    conformance: "golden vectors linux-6.18: 113 cases, every submission, folio, marker and state",
    build,
};

/// 7.2.
pub const ENTRY_7_2: Entry<Build> = Entry {
    name: "linux-7.2",
    summary: "as 6.18; a window that ends with the file carries no marker",
    origin: &[Origin {
        kernels: "7.2",
        file: "mm/readahead.c, mm/filemap.c",
        function: "do_page_cache_ra, page_cache_ra_order, page_cache_prev_miss",
        notes: "decisions compared with the functions of 7.2.13; since when is not known",
    }],
    options: &[],
    conformance: "`cargo xtask oracle`: the kernel's own code on random input",
    build: |_, limits| Folios::boxed(limits, V7_2),
};

fn build(_options: &Options, limits: &Limits) -> Box<dyn Readahead> {
    Folios::boxed(limits, V6_18)
}

//! 2.6.6-rc3 with the patch "read-populate" of 3 May 2004: every call first reads its whole pages by force.
//!
//! Before its loop a read call submits all absent pages of the request (its length in whole pages, rounded down) as
//! one forced read, cached or not, congested or not. After that the rules of 2.6.6-rc3 follow, with a place
//! ahead of the request instead of the page. As posted the place is wrong: the bytes still to copy are added to a page
//! number, so accesses look far apart and read-ahead turns off for good. As meant (never posted) the bytes are turned
//! into pages, and sequential reads get read-ahead on top of the forced read.
//!
//! Source: linux-kernel, 2004-05-03, "read-populate.patch" on 2.6.6-rc3, mm/filemap.c, `do_generic_mapping_read`.
//!
//! Known deviations: none known.

use super::lazy_2_6_5::{Lazy, Position, Variant};
use super::{Build, Limits, Readahead};
use crate::origin::{Entry, Options, Origin};

/// The patch as it was posted.
pub const ENTRY_AS_POSTED: Entry<Build> = Entry {
    name: "linux-2.6.6-rc3+read-populate",
    summary: "each call first reads its own pages by force; the unit bug of the posted patch kept",
    origin: &[Origin {
        kernels: "2.6.6-rc3 with read-populate.patch",
        file: "mm/filemap.c",
        function: "do_generic_mapping_read",
        notes: "a byte count added to a page index, as posted",
    }],
    options: &[],
    conformance: "golden vectors linux-2.6.6-rc3+read-populate: 135 cases, every submission and state",
    build: build_as_posted,
};

/// The patch as it was meant.
pub const ENTRY_AS_MEANT: Entry<Build> = Entry {
    name: "linux-2.6.6-rc3+read-populate-pages",
    summary: "each call first reads its own pages by force; the unit bug of the posted patch corrected",
    origin: &[Origin {
        kernels: "2.6.6-rc3 with read-populate.patch",
        file: "mm/filemap.c",
        function: "do_generic_mapping_read",
        notes: "a what-if: the byte count shifted to pages; never posted",
    }],
    options: &[],
    conformance: "golden vectors linux-2.6.6-rc3+read-populate-pages: 135 cases, every submission and state",
    build: build_as_meant,
};

fn build_as_posted(_options: &Options, limits: &Limits) -> Box<dyn Readahead> {
    Lazy::boxed(limits, Variant { told: Position::PagePlusBytes, populate: true, ..Variant::LINUX_2_6_6 })
}

fn build_as_meant(_options: &Options, limits: &Limits) -> Box<dyn Readahead> {
    Lazy::boxed(limits, Variant { told: Position::PagePlusPages, populate: true, ..Variant::LINUX_2_6_6 })
}

//! 2.6.6 with "readahead: keep file->f_ra sane" of 10 May 2004: every call works on its own copy of the state.
//!
//! The call copies the open file's state when it begins and stores its copy back when it ends; between the two it runs
//! the rules of 2.6.6 on the copy. Nothing is locked: of concurrent calls the last to end wins, and what the others
//! learnt is lost. A call therefore always sees its own consecutive pages, and calls cannot turn each other's
//! read-ahead off.
//!
//! Source: Linux 2.6.7-rc1, mm/filemap.c, `do_generic_mapping_read`.
//!
//! Known deviations: none known.

use super::lazy_2_6_5::{Lazy, Variant};
use super::{Build, Limits, Readahead};
use crate::origin::{Entry, Options, Origin};

/// 2.6.6 with the fix that was merged.
pub const ENTRY: Entry<Build> = Entry {
    name: "linux-2.6.6+private-copy",
    summary: "2.6.6 with a private copy of the read-ahead state for every call",
    origin: &[Origin {
        kernels: "2.6.6 with the first change of 2.6.7-rc1",
        file: "mm/filemap.c",
        function: "do_generic_mapping_read",
        notes: "decisions compared case by case with the kernel's own functions",
    }],
    options: &[],
    conformance: "golden vectors linux-2.6.6+private-copy: 135 cases, every submission and state",
    build,
};

fn build(_options: &Options, limits: &Limits) -> Box<dyn Readahead> {
    Lazy::boxed(limits, Variant { private_copy: true, willneed_touched: true, ..Variant::LINUX_2_6_6 })
}

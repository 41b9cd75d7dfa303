//! 2.6.6: windows around a page that leave the open file's state alone; no fault-around.
//!
//! Until 2.6.30 a miss reads the device's limit of pages around the page, in any state of the open file, in one
//! submission without a marker. Misses and hits are counted; a file with 100 more misses than hits is read page by
//! page, and so are random mappings. In a sequential mapping the open file's policy sees every fault as it would a read
//! of one page; a page that it does not bring is read alone. Every page takes a fault of its own.
//!
//! Source: Linux 2.6.6, mm/filemap.c, `filemap_nopage`.
//!
//! Known deviations: partly from memory, not compared with a running kernel. Hits are taken off the misses at once, so
//! none are saved up. Stands for 2.4 too, which reads aligned clusters of 8 pages, and for 2.6.18 and 2.6.22.

use super::{Build, Rules, linux_2_6_38};
use crate::origin::{Entry, Options, Origin};

/// 2.6.6.
pub const ENTRY: Entry<Build> = Entry {
    name: "linux-2.6.6",
    summary: "read around by the device's limit; the nearest there is for 2.4.25 to 2.6.22",
    origin: &[Origin {
        kernels: "2.6.5 .. 2.6.22",
        file: "mm/filemap.c",
        function: "filemap_nopage",
        notes: "partly from memory",
    }],
    options: &[],
    conformance: "none: partly from memory, no recorded vectors",
    build,
};

fn build(_options: &Options) -> Rules {
    Rules { ignores_state: true, tracks_position: false, ..linux_2_6_38::RULES }
}

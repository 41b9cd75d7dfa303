//! Buffered reads: what a page costs to simulate when it is cached, when it is not, and in a sequential read.
//!
//! No peer models the page cache, read-ahead, block layer and device together, so these are absolute limits. They hold
//! for the machine in docs/BENCH.md only.

use super::block_request::{plan, simulate};
use super::{Aim, Figure, Sample, Setting, compare};
use iowhy_stack::outcome::CacheStart;
use iowhy_stack::workload::Mode;

/// A figure: name, mode, bytes a call, threads, calls, whether the file is cached at the start, limit in ns a page.
type Case = (&'static str, Mode, u32, u32, u64, bool, Option<f64>);

const CASES: &[Case] = &[
    ("buffered random 4k, cached", Mode::RandomRead, 4096, 4, 2_000_000, true, Some(40.0)),
    ("buffered random 4k, cold", Mode::RandomRead, 4096, 4, 200_000, false, None),
    ("buffered sequential 128k, cached", Mode::SeqRead, 128 << 10, 1, 8_192, true, Some(2.0)),
    ("buffered sequential 128k, cold", Mode::SeqRead, 128 << 10, 1, 8_192, false, None),
];

pub(super) fn run(setting: &Setting) -> Result<Vec<Figure>, String> {
    let mut figures = Vec::new();
    for (name, mode, block_bytes, threads, calls, cached, limit) in CASES {
        let calls = calls / setting.divisor as u64;
        let mut plan = plan(*mode, *block_bytes, *threads, calls)?;
        if *cached {
            plan.job.cache = CacheStart::Tail { bytes: plan.job.fileio.total_bytes };
        }
        let mut hash = None;
        let mut ours = || {
            let ns = simulate(&plan, calls, u64::from(block_bytes / 4096), &mut hash)?;
            Ok(Sample { ns, answer: calls })
        };
        let aim = Aim { unit: "ns/page", peer_name: "none", goal: None, limit: *limit };
        let none = Err("no peer models all of this: an absolute limit".to_owned());
        figures.push(compare(setting, (*name).to_owned(), aim, &mut ours, none)?);
    }
    Ok(figures)
}

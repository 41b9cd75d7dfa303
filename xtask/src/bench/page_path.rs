//! Buffered reads: the cost of simulating a page when it is cached, when it is not, and in a sequential read.
//!
//! No peer models the page cache, read-ahead, block layer and device together, so these are absolute limits. They hold
//! for the machine in docs/BENCH.md only.

use super::block_request::{plan, simulate};
use super::{Aim, Figure, Sample, Setting, compare};
use iowhy_stack::event::FileId;
use iowhy_stack::job::CacheStart;
use iowhy_stack::page_cache::PageCache;
use iowhy_stack::readahead::Folio;
use iowhy_stack::units::PageIndex;
use iowhy_stack::workload::Mode;

/// A figure: name, mode, bytes a call, threads, calls, whether the file is cached at the start, limit in ns a page.
type Case = (&'static str, Mode, u32, u32, u64, bool, Option<f64>);

const CASES: &[Case] = &[
    ("buffered random 4k, cached, 1 thread", Mode::RandomRead, 4096, 1, 4_000_000, true, Some(40.0)),
    ("buffered random 4k, cached, 4 threads", Mode::RandomRead, 4096, 4, 4_000_000, true, Some(40.0)),
    ("buffered random 4k, cold", Mode::RandomRead, 4096, 4, 200_000, false, None),
    // Twenty passes over the file, so that filling the cache beforehand hardly counts.
    ("buffered sequential 128k, cached", Mode::SeqRead, 128 << 10, 1, 20 * 8_192, true, Some(2.0)),
    ("buffered sequential 128k, cold", Mode::SeqRead, 128 << 10, 1, 8_192, false, None),
];

pub(super) fn run(setting: &Setting) -> Result<Vec<Figure>, String> {
    let mut figures = Vec::new();
    for (name, mode, block_bytes, threads, calls, cached, limit) in CASES {
        let calls = calls / setting.divisor as u64;
        let mut plan = plan(*mode, *block_bytes, *threads, calls)?;
        if *cached {
            let bytes = plan.job.fileio().map_or(0, |fileio| fileio.total_bytes);
            plan.job.cache = CacheStart::Tail { bytes };
        }
        let mut short = plan.clone();
        if let Some(fileio) = short.job.fileio_mut() {
            fileio.max_events = calls / 10;
        }
        let (mut hash, mut short_hash) = (None, None);
        // Set-up (filling the cache beforehand) is taken out by the difference of two lengths of the same job.
        let mut ours = || {
            let whole = simulate(&plan, calls, 1, &mut hash)? * calls as f64;
            let part = simulate(&short, calls / 10, 1, &mut short_hash)? * (calls / 10) as f64;
            let nr_pages = (calls - calls / 10) * u64::from(block_bytes / 4096);
            Ok(Sample { ns: (whole - part) / nr_pages as f64, answer: calls })
        };
        let aim = Aim { unit: "ns/page", peer_name: "none", goal: None, limit: *limit };
        let none = Err("no peer models all of this: an absolute limit".to_owned());
        figures.push(compare(setting, (*name).to_owned(), aim, &mut ours, none)?);
    }
    figures.push(page_state(setting)?);
    Ok(figures)
}

/// Memory for the state of a file of 64 GiB of which one page in a thousand is cached.
fn page_state(setting: &Setting) -> Result<Figure, String> {
    const PAGES: u64 = (64 << 30) / 4096;
    let mut ours = || {
        let mut cache = PageCache::new(1, PAGES);
        for page in (0..PAGES).step_by(1000) {
            cache.add(FileId(0), Folio { first: PageIndex(page), order: 0 }, true);
        }
        Ok(Sample { ns: cache.state_bytes() as f64 / f64::from(1 << 20), answer: cache.nr_pages() })
    };
    let aim = Aim { unit: "MiB", peer_name: "none", goal: None, limit: Some(64.0) };
    let none = Err("no peer: an absolute limit".to_owned());
    compare(setting, "page state of a 64 GiB file, 0.1 % cached".to_owned(), aim, &mut ours, none)
}

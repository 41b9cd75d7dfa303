//! The longest D2C of a stored trace, as `iowhy trace stat` reads it, against DuckDB and Polars on the same file, the
//! size of the file, and the phases of the same events from memory. The peers use one thread and read three columns.
//!
//! The trace has 400,000 requests of five records each; sectors hardly repeat, or the peers' joins would be wrong.

use super::peer::Peer;
use super::{Aim, Figure, Measure, Sample, Setting, compare, timed};
use iowhy_stack::rng::Rng;
use iowhy_stack::trace::{Dev, Extent, Record, Rwbs, Seen, Trace};
use iowhy_stack::units::{Nanos, Sector};
use iowhy_text::diagnose::Problems;
use iowhy_trace::format::trace_parquet;
use iowhy_trace::phases::{Phase, Phases};
use serde_json::json;

const REQUESTS: usize = 400_000;
/// Records of a request.
const STEPS: usize = 5;
/// `timed` divides by this to have milliseconds.
const MS: usize = 1_000_000;

pub(super) fn run(setting: &Setting) -> Result<Vec<Figure>, String> {
    let requests = REQUESTS / setting.divisor;
    let trace = trace(requests);
    let path = setting.folder.join(format!("stored-events-{requests}.parquet"));
    let mut bytes = Vec::new();
    trace_parquet::write(&trace, &mut bytes).map_err(|error| error.to_string())?;
    std::fs::write(&path, &bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    let script = include_str!("peers/stored_events_peer.py");
    let mut figures = Vec::new();
    for (name, package, mode, goal) in
        [("DuckDB", "duckdb==2.0.0", "duckdb", 4.0), ("Polars", "polars==2.1.0", "polars", 3.0)]
    {
        let mut peer = Peer::start(setting, package, script);
        let request = json!({ "mode": mode, "path": path, "divide": MS });
        let mut theirs = peer.as_mut().map_err(|reason| reason.clone()).map(|peer| || peer.measure(&request));
        let theirs = theirs.as_mut().map(|measure| measure as Measure<'_>).map_err(|reason| reason.clone());
        let mut failed = None;
        let mut ours = || {
            Ok(timed(MS, || {
                let mut problems = Problems::default();
                let Some(trace) = iowhy_trace::load(&path, &mut problems) else {
                    failed = Some(problems.render());
                    return 0;
                };
                longest(&trace)
            }))
        };
        let aim = Aim { unit: "ms", peer_name: name, goal: Some(goal), limit: None };
        figures.push(compare(
            setting,
            format!("stored events, longest D2C, {}", requests * STEPS),
            aim,
            &mut ours,
            theirs,
        )?);
        if let Some(error) = failed {
            return Err(error);
        }
    }

    let mut peer = Peer::start(setting, "duckdb==2.0.0", script);
    let request = json!({ "mode": "bytes", "path": path, "divide": requests * STEPS });
    let mut theirs = peer.as_mut().map_err(|reason| reason.clone()).map(|peer| || peer.measure(&request));
    let theirs = theirs.as_mut().map(|measure| measure as Measure<'_>).map_err(|reason| reason.clone());
    let mut ours = || Ok(Sample { ns: bytes.len() as f64 / (requests * STEPS) as f64, answer: 0 });
    let aim = Aim { unit: "B/event", peer_name: "Parquet with zstd", goal: Some(1.0), limit: Some(5.1) };
    let few = Setting { pairs: 1, folder: setting.folder.clone(), no_crates: setting.no_crates.clone(), ..*setting };
    figures.push(compare(&few, "stored events, size".to_owned(), aim, &mut ours, theirs)?);

    let mut ours = || Ok(timed(requests * STEPS, || longest(&trace)));
    let aim = Aim { unit: "ns/event", peer_name: "none", goal: None, limit: Some(45.0) };
    let none = Err("blkparse and btt are measured with their files".to_owned());
    figures.push(compare(setting, "phases from memory".to_owned(), aim, &mut ours, none)?);
    Ok(figures)
}

/// The longest D2C.
fn longest(trace: &Trace) -> u64 {
    let mut phases = Phases::default();
    trace.records.iter().for_each(|record| phases.add(record));
    phases.finish().all.of(Phase::D2c).max().unwrap_or(0)
}

/// Requests of one bio each, up to 32 in flight, each from Q to C.
fn trace(requests: usize) -> Trace {
    let mut rng = Rng::stream(1, "bench.stored-events");
    let mut records = Vec::with_capacity(requests * STEPS);
    for nr in 0..requests {
        let extent = Extent {
            dev: Dev::new(8, 0),
            // Each request has a place of its own.
            sector: Sector((nr as u64).wrapping_mul(2_654_435_761) % (1 << 32) * 8),
            bytes: 4096,
            rwbs: if rng.below(3) == 0 { Rwbs::WRITE } else { Rwbs::READ },
        };
        let cpu = rng.below(2) as u32;
        let pid = 1000 + rng.below(8) as u32;
        let mut at = nr as u64 * 5_000 + rng.below(2_000);
        let mut record = |seen: Seen, pid: u32, after: u64| {
            at += after;
            records.push(Record { at: Nanos(at), cpu, pid, seen });
        };
        record(Seen::Queue(extent), pid, 0);
        record(Seen::GetRequest(extent), pid, 200 + rng.below(300));
        record(Seen::Insert(extent), pid, 100 + rng.below(200));
        record(Seen::Issue(extent), pid, 500 + rng.below(4_000));
        record(Seen::Complete { extent, error: 0 }, 0, 20_000 + rng.below(130_000));
    }
    records.sort_by_key(|record| record.at);
    Trace { records, ..Trace::default() }
}

//! Limits of a control group, from the bios that the kernel held back.
//!
//! A bio that its limit lets pass reaches the queue in the task that made it; one that is held is queued later by a
//! worker of the kernel. The limit grants a slice of time at once: held bios come in bursts, one
//! a slice, and what passes from the first of a burst to that of the next, over that time, is the limit. It is one on
//! bytes or on operations, whichever is steadier over loads of all sizes.
//!
//! Source: `blk-throttle`: limits on reads, one a control group and device; writes are not judged, since workers of the
//! kernel write back. Limits: a load below its limit is never held, and says nothing of it.

use std::collections::BTreeMap;

use iowhy_stack::trace::{Dev, Rwbs, Seen, Trace};
use iowhy_stats::bootstrap::{quantile, quantile_interval};

use super::Field;
use super::fit::sorted;

/// Bursts that a limit is read from, and the most that half of them may be off their median.
const LEAST: usize = 10;
const STEADY: f64 = 0.1;
/// Threads of the kernel that queue what was held.
const WORKERS: [&str; 2] = ["kworker", "kthrotld"];
/// A pause after which a burst begins: ns.
const PAUSE: u64 = 2_000_000;

/// The limits that a trace shows, with the time that they grant at once.
pub(super) fn caps(trace: &Trace, device: Dev) -> BTreeMap<String, Field> {
    let (mut bursts, mut last): (Vec<(u64, [f64; 2])>, Option<u64>) = (Vec::new(), None);
    let mut passed = 0;
    for record in &trace.records {
        let Seen::Queue(extent) = &record.seen else { continue };
        if extent.dev != device || extent.bytes == 0 || extent.rwbs.has(Rwbs::WRITE) {
            continue;
        }
        if trace.name(record.pid).is_some_and(|name| WORKERS.iter().any(|worker| name.starts_with(worker))) {
            if last.is_none_or(|last| record.at.0 > last + PAUSE) {
                bursts.push((record.at.0, [0.0; 2]));
            }
            last = Some(record.at.0);
        } else {
            passed += 1;
        }
        if let Some((_, [bytes, ops])) = bursts.last_mut() {
            (*bytes, *ops) = (*bytes + f64::from(extent.bytes), *ops + 1.0);
        }
    }
    // A loop device's or a volume's own workers queue everything.
    if bursts.len() <= LEAST || passed < bursts.len() {
        return BTreeMap::new();
    }
    let mut fields = BTreeMap::new();
    let mut add = |name: &str, unit, values: &[f64], scale: f64, known: bool| {
        let of = quantile_interval(values, 0.5, 0.95);
        let [value, low, high] = [of.estimate, of.low, of.high].map(|value| value / scale);
        fields.insert(name.to_owned(), Field { value, low, high, unit, known });
    };
    let pairs = || bursts.windows(2).map(|pair| ((pair[1].0 - pair[0].0) as f64, pair[0].1));
    let found = [("bw_limit_mb_s", "MB/s", 1e6), ("iops_limit", "1/s", 1.0)].into_iter().enumerate();
    let found = found.map(|(nr, of)| {
        let rates = sorted(pairs().map(|(ns, units)| units[nr] * 1e9 / ns));
        let middle = quantile(&rates, 0.5);
        let off = sorted(rates.iter().map(|rate| (rate / middle - 1.0).abs()));
        (quantile(&off, 0.5), rates, of)
    });
    let mut found: Vec<_> = found.collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Loads of one size do not tell bytes from operations.
    let known = found[1].0 >= STEADY;
    if let Some((_, rates, (name, unit, scale))) = found.first().filter(|(off, ..)| *off < STEADY) {
        add(name, unit, rates, *scale, known);
        add("slice_ms", "ms", &sorted(pairs().map(|(ns, _)| ns)), 1e6, true);
    }
    fields
}

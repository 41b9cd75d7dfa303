//! Figures of a public trace: counts, rates, sizes, the share of reads, the working set and its reuse.
//!
//! ```text
//! unit          a page of 4 KiB on a volume; of a cache, a key
//! working set   different units, and their bytes (of a key, those of its largest object)
//! reuse         share of uses of a unit that was used before, and the time since then
//! peak          most requests in one second of the trace
//! ```
//! Memory grows with the working set: 24 bytes a unit, and 4 to 8 a use if caches are asked for. Sizes and times are
//! within 1/128 (see `Histogram`). Known limit: of a request beyond 1 GiB, the first GiB is looked at.

use std::collections::HashMap;

use iowhy_stack::histogram::Histogram;
use iowhy_stack::units::{Nanos, PAGE_BYTES};
use serde_json::{Value, json};

use super::caches::{Misses, Policy, Uses};
use super::{Access, Mixed, Provenance};

/// The unit in which a cache keeps data.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    Page,
    Object,
}

/// The size of a cache.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum CacheSize {
    Bytes(u64),
    /// Percent of the working set.
    Percent(f64),
}

/// A part of the requests.
#[derive(Copy, Clone, Debug, Default)]
struct Part {
    requests: u64,
    bytes: u64,
}

impl Part {
    fn add(&mut self, bytes: u32) {
        self.requests += 1;
        self.bytes += u64::from(bytes);
    }
}

/// Figures of a unit.
struct Known {
    id: u32,
    last: Nanos,
}

/// Figures in the making.
pub struct Figures {
    unit: Unit,
    parts: [Part; 3],
    last: Nanos,
    second: (u64, u64),
    peak: u64,
    sizes: Histogram,
    took: Histogram,
    volumes: HashMap<u32, usize, Mixed>,
    by_volume: Vec<(u32, Part)>,
    known: HashMap<u64, Known, Mixed>,
    largest: Vec<u32>,
    uses: u64,
    again: u64,
    since: Histogram,
    kept: Option<Uses>,
    empty: u64,
}

/// Volumes that are listed.
const LISTED: usize = 10;
/// Pages of a request that are looked at.
const MOST_PAGES: u64 = 1 << 18;
/// The kernel's statistics of its lists are folded as often.
const FOLD_NS: u64 = 2_000_000_000;

impl Figures {
    /// Of a trace with units of this kind; for caches, its uses are kept.
    pub fn new(unit: Unit, caches: bool) -> Figures {
        Figures {
            unit,
            parts: [Part::default(); 3],
            last: Nanos::ZERO,
            second: (0, 0),
            peak: 0,
            sizes: Histogram::default(),
            took: Histogram::default(),
            volumes: HashMap::default(),
            by_volume: Vec::new(),
            known: HashMap::default(),
            largest: Vec::new(),
            uses: 0,
            again: 0,
            since: Histogram::default(),
            kept: caches.then(Uses::default),
            empty: 0,
        }
    }

    /// One more request.
    pub fn add(&mut self, access: &Access) {
        self.parts[access.purpose as usize].add(access.bytes);
        self.empty += u64::from(access.bytes == 0);
        self.sizes.record(u64::from(access.bytes));
        if access.took > Nanos::ZERO {
            self.took.record(access.took.0);
        }
        let second = access.at.0 / 1_000_000_000;
        if second != self.second.0 {
            self.second = (second, 0);
        }
        self.second.1 += 1;
        self.peak = self.peak.max(self.second.1);
        let volume = *self.volumes.entry(access.volume).or_insert_with(|| {
            self.by_volume.push((access.volume, Part::default()));
            self.by_volume.len() - 1
        });
        self.by_volume[volume].1.add(access.bytes);
        if let Some(uses) = &mut self.kept
            && access.at.0 / FOLD_NS > self.last.0 / FOLD_NS
        {
            uses.folds.push(uses.ids.len());
        }
        self.last = self.last.max(access.at);
        if access.bytes == 0 {
            return;
        }
        let place = (volume as u64) << 52;
        match self.unit {
            Unit::Object => self.used(access.key ^ place, access.at, access.bytes),
            Unit::Page => {
                let first = access.key / PAGE_BYTES;
                let end = access.key.saturating_add(u64::from(access.bytes)).div_ceil(PAGE_BYTES);
                (first..end.min(first + MOST_PAGES)).for_each(|page| self.used(page ^ place, access.at, 0));
            }
        }
    }

    #[inline]
    fn used(&mut self, unit: u64, at: Nanos, bytes: u32) {
        self.uses += 1;
        let next = self.known.len() as u32;
        let known = self.known.entry(unit).or_insert(Known { id: u32::MAX, last: at });
        if known.id == u32::MAX {
            known.id = next;
            if bytes > 0 {
                self.largest.push(bytes);
            }
        } else {
            self.again += 1;
            self.since.record(at.saturating_sub(known.last).0);
            if bytes > 0 {
                let largest = &mut self.largest[known.id as usize];
                *largest = bytes.max(*largest);
            }
        }
        known.last = at;
        if let Some(uses) = &mut self.kept {
            uses.ids.push(known.id);
            if bytes > 0 {
                uses.bytes.push(bytes);
            }
        }
    }

    /// Bytes of the working set.
    pub fn working_set_bytes(&self) -> u64 {
        match self.unit {
            Unit::Page => self.known.len() as u64 * PAGE_BYTES,
            Unit::Object => self.largest.iter().map(|bytes| u64::from(*bytes)).sum(),
        }
    }

    /// Misses of caches; one that has no answer is left out (see [`Uses::misses`]).
    pub fn caches(&mut self, policies: &[Policy], sizes: &[CacheSize]) -> Vec<(Policy, u64, Misses)> {
        let working_set = self.working_set_bytes();
        let Some(uses) = &mut self.kept else { return Vec::new() };
        uses.nr_ids = self.known.len() as u32;
        let bytes = |size: &CacheSize| match size {
            CacheSize::Bytes(bytes) => *bytes,
            CacheSize::Percent(share) => (working_set as f64 * share / 100.0) as u64,
        };
        let sizes: Vec<u64> = sizes.iter().map(bytes).collect();
        let row = |policy: &Policy, size: &u64| uses.misses(*policy, *size).map(|misses| (*policy, *size, misses));
        policies.iter().flat_map(|policy| sizes.iter().filter_map(|size| row(policy, size))).collect()
    }

    /// As JSON: `iowhy.trace-public/1`.
    pub fn json(&self, from: &Provenance, caches: &[(Policy, u64, Misses)]) -> Value {
        let quantiles = |of: &Histogram| {
            let at = |numerator, denominator| of.quantile(numerator, denominator);
            json!({ "count": of.count(), "p50": at(50, 100), "p90": at(90, 100), "p99": at(99, 100), "max": of.max() })
        };
        let part = |part: &Part| json!({ "requests": part.requests, "bytes": part.bytes });
        let mut volumes = self.by_volume.clone();
        volumes.sort_by_key(|(volume, part)| (std::cmp::Reverse(part.bytes), *volume));
        let seconds = self.last.as_secs_f64();
        let rate = |count: u64| if seconds > 0.0 { Some(count as f64 / seconds) } else { None };
        let all = self.all();
        let [reads, writes, deletes] = &self.parts;
        json!({
            "schema": "iowhy.trace-public/1",
            "format": from.format,
            "provenance": {
                "packed": from.packed,
                "file_bytes": from.file_bytes,
                "blake3": from.blake3,
                "started_ns": from.started_ns,
                "skipped_lines": from.skipped,
                "early_requests": from.early,
            },
            "requests": all.requests,
            "bytes": all.bytes,
            "seconds": seconds,
            "reads": part(reads),
            "writes": part(writes),
            "deletes": part(deletes),
            "empty_requests": self.empty,
            "read_share": share(reads.requests, all.requests),
            "requests_per_s": { "mean": rate(all.requests), "peak": self.peak },
            "bytes_per_s": rate(all.bytes),
            "size_bytes": quantiles(&self.sizes),
            "response_ns": quantiles(&self.took),
            "unit": self.unit_name(),
            "working_set": { "units": self.known.len(), "bytes": self.working_set_bytes() },
            "reuse": { "uses": self.uses, "again": self.again, "share": share(self.again, self.uses),
                "since_ns": quantiles(&self.since) },
            "volumes": volumes.len(),
            "busiest_volumes": volumes.iter().take(LISTED).map(|(volume, part)| json!({
                "volume": volume, "requests": part.requests, "bytes": part.bytes,
            })).collect::<Vec<_>>(),
            "caches": caches.iter().map(|(policy, size, misses)| json!({
                "policy": policy.name(), "cache_bytes": size, "uses": misses.uses, "misses": misses.misses,
                "miss_ratio": share(misses.misses, misses.uses),
                "bytes": misses.bytes, "miss_bytes": misses.miss_bytes,
                "byte_miss_ratio": share(misses.miss_bytes, misses.bytes),
            })).collect::<Vec<_>>(),
        })
    }

    fn all(&self) -> Part {
        let add =
            |sum: Part, part: &Part| Part { requests: sum.requests + part.requests, bytes: sum.bytes + part.bytes };
        self.parts.iter().fold(Part::default(), add)
    }

    fn unit_name(&self) -> &'static str {
        match self.unit {
            Unit::Page => "page",
            Unit::Object => "object",
        }
    }

    /// As text.
    pub fn text(&self, from: &Provenance, caches: &[(Policy, u64, Misses)]) -> String {
        use iowhy_text::{grouped, size};
        let seconds = self.last.as_secs_f64();
        let all = self.all();
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let percent = |part: u64, of: u64| share(part, of).unwrap_or(0.0) * 100.0;
        let quantiles = |of: &Histogram, show: &dyn Fn(u64) -> String| {
            let at = |numerator| of.quantile(numerator, 100).map_or_else(String::new, show);
            format!("p50 {}, p90 {}, p99 {}, max {}", at(50), at(90), at(99), of.max().map_or_else(String::new, show))
        };
        let time = |ns: u64| iowhy_text::quantity(ns as f64 / 1e9, "s", 3);
        let mut lines = vec![
            format!("{} requests in {}, {} ({})", grouped(all.requests), time(self.last.0), from.format, from.packed),
            format!("file         {} bytes, BLAKE3 {}", grouped(from.file_bytes), from.blake3),
            format!(
                "rate         {:.1} requests/s, at most {} in a second; {}/s",
                per_second(all.requests),
                grouped(self.peak),
                size(per_second(all.bytes) as u64)
            ),
        ];
        let names = ["reads", "writes", "deletions"];
        for (name, part) in names.iter().zip(&self.parts).filter(|(_, part)| part.requests > 0) {
            let (share, bytes) = (percent(part.requests, all.requests), size(part.bytes));
            lines.push(format!("{name:<12} {} ({share:.1} %), {bytes}", grouped(part.requests)));
        }
        lines.push(format!("sizes        {}", quantiles(&self.sizes, &size)));
        if self.took.count() > 0 {
            lines.push(format!("responses    {}", quantiles(&self.took, &time)));
        }
        let unit = if self.unit == Unit::Page { "pages" } else { "objects" };
        let (units, bytes) = (grouped(self.known.len() as u64), size(self.working_set_bytes()));
        lines.push(format!("working set  {units} {unit}, {bytes}"));
        let again = percent(self.again, self.uses);
        let since = if self.again > 0 { quantiles(&self.since, &time) } else { "never".to_owned() };
        lines.push(format!("reuse        {again:.1} % of {} uses; again after {since}", grouped(self.uses)));
        if self.by_volume.len() > 1 {
            lines.push(format!("volumes      {}", grouped(self.by_volume.len() as u64)));
        }
        if from.early > 0 {
            lines.push(format!("early        {} requests before the first one of the file", grouped(from.early)));
        }
        if !caches.is_empty() {
            lines.push(String::new());
            lines.push(format!("{:<12} {:>14} {:>12} {:>10} {:>10}", "cache", "size", "misses", "ratio", "of bytes"));
            lines.extend(caches.iter().map(|(policy, size, misses)| {
                let ratio = |part, of| share(part, of).unwrap_or(0.0);
                let (uses, bytes) = (ratio(misses.misses, misses.uses), ratio(misses.miss_bytes, misses.bytes));
                let (name, size) = (policy.name(), grouped(*size));
                format!("{name:<12} {size:>14} {:>12} {uses:>10.6} {bytes:>10.6}", grouped(misses.misses))
            }));
        }
        lines.join("\n") + "\n"
    }
}

fn share(part: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| part as f64 / of as f64)
}

//! Replay of a page trace against LRU, FIFO and CLOCK, ours and libCacheSim's. The answer is the number of misses.
//!
//! Both start from the same bytes, records of 24 bytes of which 8 are the name of the page: libCacheSim maps them into
//! memory, we decode them from memory within the time measured. `pages` are numbers that index an array; `ids` are 64
//! random-looking bits that must be hashed. libCacheSim hashes both.

use super::peer::Peer;
use super::{Aim, Figure, Measure, Setting, compare, timed};
use iowhy_stack::origin::Entry;
use iowhy_stack::reclaim::{Build, RECLAIMS};
use iowhy_stack::rng::Rng;
use serde_json::json;
use std::cell::RefCell;

const PAGES: usize = 1_000_000;
const REQUESTS: usize = 8_000_000;
const CAPACITY: u32 = 100_000;
/// libCacheSim twice: as it comes, with 2^24 hash buckets to start with, and told to start with as many as this cache
/// needs, which spares it most of its waits for memory. The goals are against the former.
const PEERS: &[(&str, u32)] = &[("libcachesim", 24), ("libcachesim, tuned", 18)];
const RECORD: usize = 24;

/// Policies that libCacheSim counts alike, and the ratios aimed at with page numbers and with ids.
const POLICIES: &[(&str, f64, f64)] = &[("lru", 10.0, 4.0), ("fifo", 10.0, 4.0), ("clock", 10.0, 4.0)];

pub(super) fn run(setting: &Setting) -> Result<Vec<Figure>, String> {
    let requests = REQUESTS / setting.divisor;
    let peer = Peer::start(setting, "libcachesim==0.3.5", include_str!("peers/libcachesim_peer.py")).map(RefCell::new);
    let trace = zipf(requests);
    let mut figures = Vec::new();
    for form in ["pages", "ids"] {
        let records = records(&trace, |page| if form == "pages" { u64::from(page) } else { scatter(page) });
        let path = setting.folder.join(format!("zipf-{form}-{requests}.oracleGeneral"));
        std::fs::write(&path, &records).map_err(|error| format!("{}: {error}", path.display()))?;
        for (policy, with_pages, with_ids) in POLICIES {
            let entry = iowhy_stack::origin::find(RECLAIMS, policy).ok_or("a policy is not listed")?;
            for (peer_name, hashpower) in PEERS {
                let goal = if form == "pages" { *with_pages } else { *with_ids };
                let goal = (*peer_name == "libcachesim").then_some(goal);
                let aim = Aim { unit: "ns/request", peer_name, goal, limit: None };
                let mut ours = || Ok(timed(requests, || replay(entry, &records, form)));
                let mut theirs = peer.as_ref().map_err(Clone::clone).map(|peer| {
                    let request = json!({
                        "trace": path, "policy": policy, "capacity": CAPACITY, "count": requests,
                        "hashpower": hashpower,
                    });
                    move || peer.borrow_mut().measure(&request)
                });
                let theirs = theirs.as_mut().map(|measure| measure as Measure<'_>).map_err(|reason| reason.clone());
                figures.push(compare(setting, format!("cache replay {policy}, {form}"), aim, &mut ours, theirs)?);
            }
        }
    }
    Ok(figures)
}

/// Decodes the trace and replays it.
fn replay(entry: &Entry<Build>, records: &[u8], form: &str) -> u64 {
    let names = records
        .chunks_exact(RECORD)
        .map(|record| u64::from_le_bytes(record[4..12].try_into().expect("eight bytes of a record")));
    if form == "pages" {
        let pages: Vec<u32> = names.map(|name| name as u32).collect();
        (entry.build.replay_pages)(CAPACITY, &entry.defaults(), &pages)
    } else {
        let ids: Vec<u64> = names.collect();
        (entry.build.replay_ids)(CAPACITY, &entry.defaults(), &ids)
    }
}

/// libCacheSim's `oracleGeneral` records: time, name, size, next access (unknown).
fn records(trace: &[u32], name: impl Fn(u32) -> u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(trace.len() * RECORD);
    for (time, page) in (0u32..).zip(trace) {
        bytes.extend(time.to_le_bytes());
        bytes.extend(name(*page).to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        bytes.extend((-1i64).to_le_bytes());
    }
    bytes
}

/// A name that keeps pages apart and has no order.
fn scatter(page: u32) -> u64 {
    let z = (u64::from(page) + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ (z >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// Zipf with exponent 1 over a million pages, numbered from 1, whose numbers say nothing about how popular they are.
fn zipf(requests: usize) -> Vec<u32> {
    let mut rng = Rng::stream(1, "bench.zipf");
    let mut pages: Vec<u32> = (1..=PAGES as u32).collect();
    for place in (1..pages.len()).rev() {
        pages.swap(place, rng.below(place as u64 + 1) as usize);
    }
    let mut total = 0.0;
    let cumulated: Vec<f64> = (1..=PAGES)
        .map(|rank| {
            total += 1.0 / rank as f64;
            total
        })
        .collect();
    (0..requests)
        .map(|_| {
            let point = rng.below(1 << 53) as f64 / (1u64 << 53) as f64 * total;
            pages[cumulated.partition_point(|sum| *sum <= point).min(PAGES - 1)]
        })
        .collect()
}

//! More blocks that say where data lies, or what a file is, have to be read for the same calls.

use super::cost::{Cost, Facts, MARKED, SEEN, TRIPS};
use super::instead::{self, Saved};
use super::{Figure, Match, Rule, Switch, device_latency, grade};
use crate::delta::{Delta, Unit};
use crate::digest::Layer;
use iowhy_stack::units::SECTOR_BYTES;

pub(super) const RULE: Rule = Rule {
    name: "metadata-reads",
    layer: "device",
    needs: super::REQUESTS,
    owns: super::Owns::Io,
    single: super::Single::Counts,
    what: "More metadata is read for an operation: blocks that map a file, inodes, directories.",
    why: "Before data can be read its place has to be known. A file system with indirect blocks reads one for every 4 \
          MiB of a file (one with extents hardly any), in between the data, which costs two seeks on a disk.",
    events: "Reads of metadata at the device, more of them for each operation, at equal calls.",
    example: "Reading a large file on ext3 in place of ext4 or xfs; metadata that did not stay in memory.",
    change: "A file system with extents, or keep the metadata in memory (vfs_cache_pressure, a first pass over it).",
    refute: "On the other side's file system as much metadata is read.",
    since: "Every kernel; ext4 and xfs have extents, ext2 and ext3 indirect blocks.",
    consequences: &[],
    switches: &[Switch::Other("filesystem"), Switch::OtherKind("filesystem.")],
    find,
    cost: Some(cost),
};

/// Reads of metadata in a run that may be a few at the beginning.
const FEW: f64 = 4.0;
/// Ratio of metadata reads per operation: less may come from the cache's state at the start.
const MORE: f64 = 1.2;
/// Part of the difference: a smaller one is not worth a finding.
const LEAST_PART: f64 = 0.1;
/// Ratios of metadata reads per operation, half sure and sure.
const GRADE: (f64, f64) = (1.1, 2.0);

fn find(delta: &Delta<'_>) -> Option<Match> {
    let nr = delta.of(|d| d.commands.meta[0] as f64);
    let reads = delta.per_operation(|d| d.commands.meta[0] as f64);
    let time = delta.per_operation(|d| d.commands.meta_reads as f64 / f64::from(d.time.slots.max(1)));
    let waits = delta.time(|time| time.of(Layer::Plug) + time.of(Layer::Elevator) + time.of(Layer::Device));
    let owned = time.difference().min(waits.difference());
    if nr.slow <= FEW || !reads.rose(MORE) || owned < LEAST_PART * delta.slower_by() {
        return None;
    }
    let each = delta.of(|d| d.commands.meta_reads as f64 / d.commands.meta[0].max(1) as f64);
    Some(Match {
        confidence: grade(reads.ratio(), GRADE.0, GRADE.1),
        share_ns: Some(owned),
        claim: format!(
            "{:.1} reads of metadata for 1000 operations (before {:.1}), {:.1} ms each",
            1e3 * reads.slow,
            1e3 * reads.fast,
            each.slow / 1e6
        ),
        evidence: vec![
            Figure::new("reads of metadata for an operation", reads, Unit::Ratio),
            Figure::new("time of a read of metadata", each, Unit::Ns),
        ],
    })
}

/// Blocks that ext4 reads of its inodes at once by default, and the sectors of a block, as a rule.
const USUAL_BLOCKS: f64 = 32.0;
const BLOCK_SECTORS: f64 = 8.0;

fn cost(facts: &Facts<'_>) -> Option<Cost> {
    inodes(facts).or_else(|| mapping(facts)).or_else(|| cold(facts))
}

/// Reads of metadata that a device of any kind makes felt, if they bring little each, bytes.
const MANY: u64 = 500;
const LITTLE: f64 = 8192.0;

/// Inodes and folders that come one by one, many or from a slow device: what is kept of them needs no device.
fn cold(facts: &Facts<'_>) -> Option<Cost> {
    let (meta, reads) = (facts.digest.commands.meta[0], facts.digest.commands.issued[0]);
    let little = || instead::own(facts, 0).0 * SECTOR_BYTES as f64 <= LITTLE;
    let felt = meta >= LOOKUPS && device_latency::far(facts).is_some() || meta >= MANY && little();
    if !felt || (meta as f64) < MOSTLY * reads as f64 {
        return None;
    }
    let waits = facts.of_kinds(instead::kinds(0), &TRIPS);
    let saved = Saved::of(waits * super::reads::share(meta, reads).min(1.0), f64::midpoint(0.0, waits), waits);
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: SEEN,
        claim: format!("{meta} of {reads} reads are of inodes, folders and maps that are not in memory, one by one"),
        setting: "metadata in memory (a run before, vfs_cache_pressure), or several tasks that look at once".to_owned(),
        evidence: vec![("reads of metadata", meta as f64, Unit::Count), ("time that reads wait", waits, Unit::Ns)],
    })
}

/// Inodes that are read in fewer blocks at a time than usual.
fn inodes(facts: &Facts<'_>) -> Option<Cost> {
    let of_system = |((_, key), value): (&(String, String), &String)| {
        (key == "inode_readahead_blks").then(|| value.parse::<f64>().ok()).flatten()
    };
    let blocks = facts.settings.values.iter().filter_map(of_system).reduce(f64::min)?;
    let commands = &facts.digest.commands;
    let meta = commands.meta[0];
    if blocks >= USUAL_BLOCKS || meta < LOOKUPS || (meta as f64) < MOSTLY * commands.issued[0] as f64 {
        return None;
    }
    let saved = instead::fewer(facts, 0, USUAL_BLOCKS * BLOCK_SECTORS, false)?;
    // What is done with the inodes stays.
    let waits = facts.of_kinds(instead::kinds(0), &TRIPS);
    Some(Cost {
        ns: saved.ns.min(waits),
        bounds: saved.bounds,
        confidence: MARKED,
        claim: format!(
            "inode_readahead_blks={blocks:.0}: {meta} reads of metadata; {USUAL_BLOCKS:.0} blocks of inodes a read are \
             usual"
        ),
        setting: format!("inode_readahead_blks={USUAL_BLOCKS:.0}"),
        evidence: vec![
            ("reads of metadata", meta as f64, Unit::Count),
            ("mean size of a read", instead::own(facts, 0).0 * SECTOR_BYTES as f64, Unit::Bytes),
        ],
    })
}

/// Reads that wait for metadata first: a few are the beginning of a file.
const LOOKUPS: u64 = 16;
/// Part of the requests of reads that they have to be, and that those of inodes have to be.
const OFTEN: f64 = 0.2;
const MOSTLY: f64 = 0.5;

/// Reads of data that first have to find out where their data are.
fn mapping(facts: &Facts<'_>) -> Option<Cost> {
    let (commands, lookups) = (&facts.digest.commands, facts.digest.bios.lookups);
    if lookups < LOOKUPS || (lookups as f64) < OFTEN * commands.issued[0] as f64 {
        return None;
    }
    let waits = facts.reads_wait();
    let owned = waits * super::reads::share(lookups, commands.issued[0]).min(1.0);
    let saved = Saved::of(owned, 0.0, waits);
    let each = owned / lookups as f64;
    Some(Cost {
        ns: saved.ns,
        bounds: saved.bounds,
        confidence: SEEN,
        claim: format!(
            "{lookups} reads of data wait for metadata first, {:.2} ms each: where the file lies is not in memory",
            each / 1e6
        ),
        setting: "a file with extents and in few pieces (mkfs -O extent, e4defrag)".to_owned(),
        evidence: vec![
            ("reads of metadata within reads of data", lookups as f64, Unit::Count),
            ("time of a read of metadata", each, Unit::Ns),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost};
    use super::{RULE, device_latency};
    use crate::digest::Layer;

    /// A thousand reads of metadata, then half as many more, which are what all calls wait for.
    fn reads() -> Pair {
        Pair::of(|p| {
            (p.fast.commands.meta[0], p.slow.commands.meta[0]) = (1000, 1500);
            p.slow.commands.meta_reads = 1_000_000;
            p.slow.time.ns[0][Layer::Device as usize] = 1e6;
        })
    }

    /// Calls wait in this layer only.
    fn waits(p: &mut Pair, layer: Layer, ns: f64) {
        p.slow.time.ns[0][Layer::Device as usize] = 0.0;
        p.slow.time.ns[0][layer as usize] = ns;
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("FEW", |p, x| (p.fast.commands.meta[0], p.slow.commands.meta[0]) = (0, x as u64), 5.0, 4.0),
            ("MORE", |p, x| p.slow.commands.meta[0] = x as u64, 1201.0, 1200.0),
            ("LEAST_PART", |p, x| p.slow.commands.meta_reads = x as u64, 100_000.0, 99_999.0),
            ("LEAST_PART, of the plug", |p, x| waits(p, Layer::Plug, x), 100_000.0, 99_999.0),
            ("LEAST_PART, of the elevator", |p, x| waits(p, Layer::Elevator, x), 100_000.0, 99_999.0),
            ("LEAST_PART, of the device", |p, x| waits(p, Layer::Device, x), 100_000.0, 99_999.0),
        ];
        hold(&RULE, reads, 0.7594, edges);
    }

    #[test]
    fn costs() {
        let mapped = || {
            Alone::of(|a| {
                a.requests(0, 100, 8, 6e5);
                a.digest.bios.lookups = 50;
            })
        };
        fn few(a: &mut Alone, lookups: f64) {
            a.requests(0, 40, 8, 6e5);
            a.digest.bios.lookups = lookups as u64;
        }
        let edges: &[AloneEdge] =
            &[("LOOKUPS", few, 16.0, 15.0), ("OFTEN", |a, x| a.digest.bios.lookups = x as u64, 20.0, 19.0)];
        hold_cost(&RULE, mapped, (30.0, 0.8), edges);
        // A hundred reads of a block; one of 32 takes as long as the root of 32.
        let inodes = || {
            Alone::of(|a| {
                a.set("/mnt", "inode_readahead_blks", "1");
                a.requests(0, 100, 8, 6e5);
                a.digest.commands.meta[0] = 100;
            })
        };
        let edges: &[AloneEdge] = &[
            ("USUAL_BLOCKS", |a, x| a.set("/mnt", "inode_readahead_blks", &x.to_string()), 31.0, 32.0),
            ("LOOKUPS", |a, x| (a.digest.commands.meta[0], a.digest.commands.issued[0]) = (x as u64, 20), 16.0, 15.0),
            ("MOSTLY", |a, x| a.digest.commands.meta[0] = x as u64, 50.0, 49.0),
            ("BLOCK_SECTORS", |a, x| a.requests(0, 100, x as u64, 6e5), 8.0, 256.0),
        ];
        hold_cost(&RULE, inodes, (49.0, 0.85), edges);
        let cold = || {
            Alone::of(|a| {
                *a = device_latency::tests::remote();
                a.digest.commands.meta[0] = 90;
            })
        };
        let edges: &[AloneEdge] = &[
            ("MOSTLY, cold", |a, x| a.digest.commands.meta[0] = x as u64, 50.0, 49.0),
            ("a slow device", |a, x| a.requests(0, 100, 8, x), 5e8, 1.9e8),
        ];
        hold_cost(&RULE, cold, (75.0, 0.8), edges);
        let many = || {
            Alone::of(|a| {
                a.requests(0, 1000, 8, 6e5);
                a.digest.commands.meta[0] = 1000;
            })
        };
        let edges: &[AloneEdge] = &[
            ("MANY", |a, x| a.digest.commands.meta[0] = x as u64, 500.0, 499.0),
            ("LITTLE", |a, x| a.requests(0, 1000, x as u64, 6e5), 16.0, 17.0),
        ];
        hold_cost(&RULE, many, (60.0, 0.8), edges);
    }
}

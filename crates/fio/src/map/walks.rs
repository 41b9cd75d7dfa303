//! Jobs whose calls follow from fio's own numbers.

use super::*;

impl Mapping<'_> {
    /// The job's walk as fio makes it.
    pub(super) fn walk(&mut self, job: &FioJob, spans: Vec<Span>) -> Walk {
        let sizes = |blocks: &Blocks, align: u64, random_pct: u32| {
            let mut split: Vec<_> = blocks.split.iter().map(|share| (share.bytes, share.basis_points / 100)).collect();
            // As fio, which looks at small shares first.
            split.sort_by_key(|(_, percent)| *percent);
            let align = if job.mode.random { align } else { blocks.min };
            Sizes { least: blocks.min, most: blocks.max, split, align, random_pct }
        };
        let (blocks, pct) = (&job.blocks, &job.percentage_random);
        let sizes = [
            sizes(&blocks.read, job.align.read, pct.read),
            sizes(&blocks.write, job.align.write, pct.write),
            sizes(&blocks.trim, job.align.trim, pct.trim),
        ];
        let (step, every) = match job.mode.suffix {
            ModeSuffix::None => (0, 1),
            ModeSuffix::Hole(hole) => (hole, 1),
            ModeSuffix::PerOffset(calls) => (0, calls),
        };
        let zone_size = job.number("zonesize");
        let range = job.number("zonerange");
        let zones = (strided(job) && spans.len() == 1).then(|| Zones {
            size: zone_size,
            range: if range == 0 { zone_size } else { range },
            skip: match job.given("zoneskip") {
                Some(Value::Amount(skip)) => skip.of(zone_size).unwrap_or(0),
                _ => 0,
            },
        });
        let part = |len: u64| match job.io_size {
            Some(part @ Amount::Percent(_)) => part.of(len).unwrap_or(len),
            _ => len,
        };
        let whole = spans.iter().map(|span| part(span.len)).sum();
        let every_service = u32::try_from(job.service.every).unwrap_or(u32::MAX);
        let distribution = if job.mode.read { &job.distribution.read } else { &job.distribution.write };
        Walk {
            number: self.threads.len() as u64 + 1,
            seed: job.rand_seed,
            same_places: job.rand_repeat,
            repeat: job.rand_repeat && job.given("randseed").is_none(),
            fresh: !job.rand_repeat && job.given("randseed").is_none(),
            numbers: match job.word("random_generator") {
                "lfsr" => Numbers::Lfsr,
                "tausworthe64" => Numbers::Tausworthe64,
                _ => Numbers::Tausworthe,
            },
            directions: match (job.mode.read, job.mode.write, job.mode.trim) {
                (true, true, _) => Directions::Mixed(job.rwmix_read),
                (_, true, true) => Directions::TrimWrite,
                (_, true, _) => Directions::Only(WRITE),
                (_, _, true) => Directions::Only(TRIM),
                _ => Directions::Only(READ),
            },
            random: job.mode.random,
            map: job.random_map && sizes.iter().all(|sizes| sizes.align == sizes.least),
            distribution: self.distribution(distribution),
            sizes,
            unaligned: job.unaligned,
            sizes_by_order: job.on("bs_is_seq_rand"),
            verified: job.word("verify") != "0",
            checked: job.word("verify") != "0"
                && job.mode.write
                && job.given("do_verify") != Some(Value::Switch(false)),
            queued: job.asynchronous(),
            step,
            every,
            identical: job.word("rw_sequencer") == "identical",
            zones,
            spans,
            turns: match job.service.kind {
                ServiceKind::RoundRobin => Turns::RoundRobin(every_service),
                ServiceKind::Sequential => Turns::Sequential,
                _ => Turns::Random(every_service),
            },
            size: match job.size {
                Some(Amount::Bytes(size)) => size.min(whole),
                _ => whole,
            },
            io_size: match job.io_size {
                Some(Amount::Bytes(bytes)) => bytes,
                _ => 0,
            },
            loops: job.loops,
            calls: job.number_ios,
            time_based: job.time_based,
        }
    }
}

/// Whether calls depend on fio's own numbers, or on its way from place to place: all others have the same calls in any
/// order, which ours is cheaper at.
pub(super) fn walks(job: &FioJob) -> bool {
    let used =
        [(job.mode.read, &job.blocks.read), (job.mode.write, &job.blocks.write), (job.mode.trim, &job.blocks.trim)];
    let mut used = used.iter().filter(|(used, _)| *used).map(|(_, blocks)| blocks);
    let first = used.clone().next().map_or(0, |blocks| blocks.min);
    let aligned = job.align.read == job.blocks.read.min && job.align.write == job.blocks.write.min;
    // Without a map calls go on until they have moved the size, remainders of the files and all.
    let nr_files = u64::from(job.nr_files);
    let uneven = |size: u64| !size.is_multiple_of(nr_files) || !(size / nr_files).is_multiple_of(first.max(1));
    let given = ["random_generator", "rw_sequencer", "bs_is_seq_rand"];
    job.mode.trim
        || job.mode.read && job.mode.write
        || job.mode.suffix != ModeSuffix::None
        || strided(job)
        || job.unaligned
        || job.mode.random && [&job.percentage_random.read, &job.percentage_random.write].iter().any(|pct| **pct < 100)
        || job.word("verify") != "0"
        || used.any(|blocks| blocks.min != blocks.max || blocks.min != first)
        || job.mode.random && !aligned
        || job.io_size.is_some()
        || job.mode.random && !job.random_map && matches!(job.size, Some(Amount::Bytes(size)) if uneven(size))
        || given.iter().any(|name| job.given(name).is_some())
}

/// Reads of written data (`verify`).
pub(super) fn checks(job: &FioJob) -> Option<Checks> {
    if !job.verifies() {
        return None;
    }
    let both = |first, second| (job.number(first), job.number(second));
    let trims = job.number("trim_backlog") > 0 && job.number("trim_percentage") > 0;
    Some(Checks {
        after_writes: job.mode.write && job.given("do_verify") != Some(Value::Switch(false)),
        reads: job.mode.read && !job.mode.write,
        backlog: if job.mode.write { both("verify_backlog", "verify_backlog_batch") } else { (0, 0) },
        trims: (job.mode.write && trims).then(|| Trims {
            percent: u32::try_from(job.number("trim_percentage")).unwrap_or(100),
            backlog: both("trim_backlog", "trim_backlog_batch"),
            zero: job.given("trim_verify_zero") != Some(Value::Switch(false)),
        }),
        dry: job.mode.write && job.on("verify_only"),
        as_written: job.mode.random && job.random_map,
        drops: invalidates(job),
        state: None,
    })
}

pub(super) fn strided(job: &FioJob) -> bool {
    job.number("zonesize") > 0 && job.word("zonemode") != "zbd"
}

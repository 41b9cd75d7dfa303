//! Direct I/O over pages that processes outside the workload left in the page cache.
//!
//! It may be a matter of chance whether such pages are there, and so runs are sorted by what they had: runs with direct
//! calls over others' pages against runs without, of both sides together. The price is the CPU time of an operation by
//! which these differ; the share is that price times how much more often the slow side pays it. Known limit: another
//! reason for slower code of the slow side is in the price if all its runs and none of the fast side's have such pages.

use super::cost::{Cost, Facts};
use super::{Figure, Match, Rule, grade, mixed_direct_and_buffered as mixed};
use crate::delta::{Contrast, Delta, Unit, mean, variance};
use crate::digest::{Digest, Layer};

pub(super) const RULE: Rule = Rule {
    name: "stale-pages-under-direct-io",
    layer: "page cache",
    needs: super::CALLS_AND_PAGES,
    owns: super::Owns::Code,
    single: super::Single::Counts,
    what: "A process outside the workload has put a few pages of the file or device of direct calls into the page \
           cache.",
    why: "A direct write first looks for cached pages in its range, to drop them, and once more afterwards. If nothing \
          is cached both are skipped. A single page anywhere makes every write pay; before 3.4 the look-up walks slot \
          by slot until it meets some page, which is far if the page lies at the end of a huge device.",
    events: "Pages are added by no call of the workload (a probe like blkid, a backup, a shell that read a header) and \
             stay; from then on every direct call on the file takes more CPU time, though its bios are the same.",
    example: "2012: two fio jobs that open a device at once set off udev's blkid after its pages had been dropped; 25 \
              pages took 20 percent of the rate of direct writes in half of the runs.",
    change: "Drop the pages before the run (close the last descriptor, `blockdev --flushbufs`, POSIX_FADV_DONTNEED), \
             keep udev from probing the device while it is opened for writing, or use 3.4 and later.",
    refute: "With the pages dropped before the calls begin, calls take as long as before.",
    since: "Every kernel with direct I/O; far walks until 3.3, cheap ones until 4.19, next to nothing since.",
    consequences: &["cpu-bound-submission", "invalidation-cost", "calls-wait-in-submission"],
    switches: &[super::Switch::DropPages, super::Switch::Word("--iowhy_open_fix=serialise")],
    find,
    cost: Some(cost),
};

/// Share of the calls that has to be over others' pages for a run to count as one that pays.
const PAYS: f64 = 0.1;
/// Factor by which an operation takes more CPU time: look-ups in the page cache cost a few percent of a direct call.
const DEARER: f64 = 1.02;
/// Factors by which it does, half sure and sure.
const GRADE: (f64, f64) = (1.01, 1.1);

fn over_foreign(digest: &Digest) -> f64 {
    digest.cache.direct_over_foreign as f64 / digest.operations().max(1) as f64
}

/// CPU time of an operation, ns, as part of the time for an operation.
fn code(digest: &Digest) -> f64 {
    let ns = digest.time.of(Layer::Cpu) + digest.time.of(Layer::Lock);
    ns / f64::from(digest.time.slots.max(1)) / digest.operations().max(1) as f64
}

/// Someone without a name.
const OUTSIDE: &str = "a process outside the workload";

/// Others write into the file, or read it, through the page cache, again and again: direct calls find pages to clear.
/// A recording of some tasks does not have the pages of others: those that are cleared and not its own are theirs.
fn cost(facts: &Facts<'_>) -> Option<Cost> {
    let part = mixed::clearing(facts)?;
    if mixed::is_own(facts, part) {
        return None;
    }
    let who = facts.others.first().map_or(OUTSIDE, |(name, _)| name.as_str());
    let does = format!("write back or drop pages that {who} has put into the page cache");
    Some(mixed::cleared(facts, part, &does, &format!("{who} elsewhere, with O_DIRECT, or at another time")))
}

fn find(delta: &Delta<'_>) -> Option<Match> {
    let share = delta.of(over_foreign);
    let rate = delta.of(|digest| f64::from(u8::from(over_foreign(digest) >= PAYS)));
    if share.difference() < PAYS || rate.difference() <= 0.0 {
        return None;
    }
    let runs = || delta.fast.runs.iter().chain(&delta.slow.runs);
    let (paying, free): (Vec<&Digest>, Vec<&Digest>) = runs().partition(|digest| over_foreign(digest) >= PAYS);
    let codes = |runs: &[&Digest]| runs.iter().map(|digest| code(digest)).collect::<Vec<f64>>();
    let (paying, free) = (codes(&paying), codes(&free));
    let error = |values: &[f64]| variance(values) / values.len() as f64;
    let error = (paying.len() > 1 && free.len() > 1).then(|| (error(&paying) + error(&free)).sqrt());
    let price = Contrast { fast: mean(&free), slow: mean(&paying), error, apart: false };
    if !price.rose(DEARER) {
        return None;
    }
    let mut names = std::collections::BTreeMap::<&str, u64>::new();
    for (name, n) in delta.slow.runs.iter().flat_map(|digest| &digest.foreign.names) {
        *names.entry(name.as_str()).or_default() += n;
    }
    let who = names.iter().max_by_key(|(_, n)| **n).map_or(OUTSIDE, |(name, _)| *name);
    let pages = delta.of(|digest| digest.foreign.pages as f64);
    let claim = format!(
        "{who} has put pages of the file into the page cache, and {:.0} % of the calls go round the cache over them: \
         each takes {:.0} ns longer on the CPU",
        100.0 * share.slow,
        price.difference() / share.slow,
    );
    let evidence = vec![
        Figure::new("share of calls that are direct over others' pages", share, Unit::Share),
        Figure::new("share of runs with such calls", rate, Unit::Share),
        Figure::new("pages that others put into the cache", pages, Unit::Pages),
        Figure::new("CPU time of an operation, in runs without and with such calls", price, Unit::Ns),
    ];
    let share_ns = Some(price.difference() * rate.difference());
    Some(Match { confidence: grade(price.ratio(), GRADE.0, GRADE.1), share_ns, claim, evidence })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Alone, AloneEdge, Edge, Pair, hold, hold_cost, spread};
    use super::{Layer, RULE};

    #[test]
    fn costs() {
        let alone = || {
            Alone::of(|a| {
                (a.digest.workload.direct[0], a.digest.cache.direct_cleared[0]) = (100, 50);
                a.digest.cache.direct_latency[0] = spread(50, 12_000.0);
                a.digest.time.ns[0][Layer::Device as usize] = 8e5;
            })
        };
        let edges: &[AloneEdge] = &[("its own", |a, x| a.digest.cache.direct_over_own = x as u64, 25.0, 26.0)];
        hold_cost(&RULE, alone, (60.0, 0.85), edges);
    }

    /// 1000 operations, half of them over others' pages on the slow side, where each takes 5 % more CPU time.
    fn stale() -> Pair {
        Pair::of(|p| {
            p.both(|d| (10..1000).for_each(|_| d.latency[0].add(100)));
            p.slow.cache.direct_over_foreign = 500;
            p.fast.time.ns[0][Layer::Cpu as usize] = 1_000_000.0;
            p.slow.time.ns[0][Layer::Cpu as usize] = 1_050_000.0;
        })
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("PAYS", |p, x| p.slow.cache.direct_over_foreign = x as u64, 100.0, 99.0),
            ("PAYS, fast side", |p, x| p.fast.cache.direct_over_foreign = x as u64, 99.0, 100.0),
            (
                "PAYS, difference",
                |p, x| (p.fast.cache.direct_over_foreign, p.slow.cache.direct_over_foreign) = (50, x as u64),
                151.0,
                149.0,
            ),
            ("DEARER", |p, x| p.slow.time.ns[0][Layer::Cpu as usize] = x, 1_020_001.0, 1_020_000.0),
            (
                "DEARER, locks",
                |p, x| {
                    let ns = &mut p.slow.time.ns[0];
                    (ns[Layer::Cpu as usize], ns[Layer::Lock as usize]) = (1_000_000.0, x);
                },
                20_001.0,
                20_000.0,
            ),
        ];
        hold(&RULE, stale, 0.7275, edges);
    }

    #[test]
    fn quiet_calls_are_direct_only_on_files_that_are_used_so() {
        use crate::digest::Digest;
        use iowhy_stack::event::{CallId, Content, Dir, Event, FileId, Op, What};
        use iowhy_stack::units::{Nanos, PageIndex, Sector};
        // A foreign page, then a read with a bio of its own if `direct`, then reads without events.
        let run = |direct: bool| {
            let page = What::PageAdd { file: FileId(0), page: PageIndex(0), nr_pages: 1 };
            let mut events = vec![Event { at: Nanos(1), call: CallId::NONE, what: page }];
            for nr in 1..=10u32 {
                let (at, call, file, offset) = (Nanos(u64::from(nr) * 10), CallId(nr), FileId(0), 4096 * u64::from(nr));
                let mut event = |what| events.push(Event { at, call, what });
                event(What::CallStart { op: Op::Read, file, offset, len_bytes: 4096 });
                if direct && nr == 1 {
                    event(What::BioQueue { dir: Dir::Read, content: Content::Data, sector: Sector(8), nr_sectors: 8 });
                }
                event(What::CallEnd { op: Op::Read, file, len_bytes: 4096 });
            }
            Digest::of(&events).cache.direct_over_foreign
        };
        assert_eq!((run(true), run(false)), (10, 0));
    }
}

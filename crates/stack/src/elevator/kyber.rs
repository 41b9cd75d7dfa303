//! Kyber: tokens for reads and writes, as many as the latencies of late allow.
//!
//! ```text
//! domains    reads (256 tokens, 16 at a time), writes (128, 8), discards (64, 1), others (16, 1); each first in, first
//!            out
//! dispatch   goes on with its domain until its turn is used up or it has nothing or no token; then the next domain
//! merging    with the newest eight requests of the bio's domain, but not with those that were there when one was given
//!            out and nothing was left of the time before; nothing is sorted
//! feedback   each 100 ms, per domain, once 500 samples or a second have come together: latencies in eight buckets of a
//!            quarter of the target. If the 90th percentile of the time at the device is beyond the target in any
//!            domain, or the 99th of the whole time in this one: tokens = tokens * (bucket of the 99th + 1) / 4
//! ```
//! Source: Linux 5.10 .. 7.2, `block/kyber-iosched.c`, `kyber_dispatch_request`, `kyber_timer_fn`. Deviations: one
//! software and one hardware queue, which is run at every completion; no request is a discard. On a queue whose flushes
//! are ordered everything behind a flush waits until it has left.

use super::{Barrier, Build, Ctx, Elevator, Quirks};
use crate::event::{Dir, MergeKind, RqId};
use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::request::{Bio, Request};
use crate::sorted::{Line, joins, slot};
use crate::tag_map::{Limit, Shape, TagMap};
use crate::units::{Hz, Nanos};
use std::collections::VecDeque;

/// Requests a bio is compared with.
const CHECKED: usize = 8;
const DOMAINS: usize = 4;
const READ: usize = 0;
const WRITE: usize = 1;
const OTHER: usize = 3;
/// Requests of a domain in a row.
const BATCH: [u32; DOMAINS] = [16, 8, 1, 1];
/// Tokens at most.
const DEPTH: [u32; DOMAINS] = [256, 128, 64, 16];
/// Share of the scheduler's tags that asynchronous requests may have, percent.
const ASYNC_PERCENT: u32 = 75;
/// A flush that went without a token.
const NO_TOKEN: u32 = u32::MAX;
const BUCKETS: usize = 8;
/// Buckets within the target.
const GOOD: usize = 4;
/// Samples with which a percentile is taken at once.
const SAMPLES: u32 = 500;
/// Looks at the latencies a second.
const LOOKS: u64 = 10;
const PATIENCE: Nanos = Nanos::from_secs(1);

/// The table line.
pub const ENTRY: Entry<Build> = Entry {
    name: "kyber",
    summary: "tokens for reads and writes, adjusted to latency targets (blk-mq)",
    origin: &[Origin {
        kernels: "6.12 .. 6.18",
        file: "block/kyber-iosched.c",
        function: "kyber_dispatch_request, kyber_timer_fn",
        notes: "one software queue instead of one for each processor",
    }],
    options: &[
        OptionSpec::number("read_lat_us", 2_000, (1, 100_000_000), "latency aimed at for reads"),
        OptionSpec::number("write_lat_us", 10_000, (1, 100_000_000), "latency aimed at for synchronous writes"),
    ],
    conformance: "order and depth tables; `cargo xtask oracle`: the kernel's own code on random input",
    build: |options, hz| build(options, hz, Rules { of_words: false, limits_sync_writes: false }),
};

/// Until 6.11.
pub const ENTRY_6_1: Entry<Build> = Entry {
    name: "kyber-6.1",
    summary: "as kyber; asynchronous requests have three quarters of each word of the scheduler's tags",
    origin: &[Origin {
        kernels: "4.12 .. 6.11",
        file: "block/kyber-iosched.c",
        function: "kyber_limit_depth",
        notes: "as in 5.10.262 and 6.1.192; which level of 6.12 changed it is not known",
    }],
    build: |options, hz| build(options, hz, Rules { of_words: true, limits_sync_writes: false }),
    ..ENTRY
};

/// 7.2.
pub const ENTRY_7_2: Entry<Build> = Entry {
    name: "kyber-7.2",
    summary: "as kyber; synchronous writes have no more of the scheduler's tags than others",
    origin: &[Origin {
        kernels: "7.2",
        file: "block/kyber-iosched.c",
        function: "kyber_limit_depth",
        notes: "since when is not known",
    }],
    build: |options, hz| build(options, hz, Rules { of_words: false, limits_sync_writes: true }),
    ..ENTRY
};

/// The limit on scheduler tags, which all but reads and synchronous writes have.
#[derive(Copy, Clone, Debug)]
struct Rules {
    /// It is one on each word of the map.
    of_words: bool,
    /// Synchronous writes have it, too.
    limits_sync_writes: bool,
}

fn build(options: &Options, hz: Hz, rules: Rules) -> Box<dyn Elevator> {
    let targets = ["read_lat_us", "write_lat_us"].map(|name| Nanos::from_us(options.unsigned(name)));
    Box::new(Kyber::new(targets, hz, rules))
}

#[derive(Clone, Debug)]
struct Kyber {
    targets: [Nanos; 2],
    hz: Hz,
    rules: Rules,
    /// Requests that bios can join.
    lists: [Line<()>; DOMAINS],
    /// Requests that go before those, and that no bio joins.
    flushed: [VecDeque<RqId>; DOMAINS],
    barrier: Barrier,
    /// Requests in the lists.
    waiting: usize,
    tokens: [TagMap; DOMAINS],
    /// The token of each request.
    token: Vec<u32>,
    domain: usize,
    batching: u32,
    /// Latencies of reads and writes since allocation, and at the device, by bucket.
    total: [[u32; BUCKETS]; 2],
    device: [[u32; BUCKETS]; 2],
    /// When a percentile is taken even of few samples.
    patience: [Option<Nanos>; 2],
    /// The last 99th percentile, for a time when the device is congested.
    remembered: [Option<usize>; 2],
    /// When the latencies are looked at.
    look_at: Option<Nanos>,
}

fn domain(request: &Request) -> usize {
    match request.dir {
        _ if request.flush => OTHER,
        Dir::Read => READ,
        Dir::Write => WRITE,
    }
}

fn bucket(took: Nanos, target: Nanos) -> usize {
    let width = (target.0 / GOOD as u64).max(1);
    (took.0.saturating_sub(1) / width).min(BUCKETS as u64 - 1) as usize
}

impl Kyber {
    fn new(targets: [Nanos; 2], hz: Hz, rules: Rules) -> Kyber {
        Kyber {
            targets,
            hz,
            rules,
            lists: Default::default(),
            flushed: Default::default(),
            barrier: Barrier::default(),
            waiting: 0,
            tokens: DEPTH.map(TagMap::new),
            token: Vec::new(),
            domain: READ,
            batching: 0,
            total: [[0; BUCKETS]; 2],
            device: [[0; BUCKETS]; 2],
            patience: [None; 2],
            remembered: [None; 2],
            look_at: None,
        }
    }

    fn queue(&mut self, ctx: &Ctx<'_>, rq: RqId) {
        self.lists[domain(&ctx.requests[rq])].push_back(ctx.requests, rq, ());
        self.waiting += 1;
    }

    fn next_of_domain(&mut self) -> Option<RqId> {
        let domain = self.domain;
        if self.flushed[domain].is_empty() && self.lists[domain].entries().is_empty() {
            return None;
        }
        let token = self.tokens[domain].get(Limit::None)?;
        if self.flushed[domain].is_empty() {
            while let Some(rq) = self.lists[domain].pop_front() {
                self.flushed[domain].push_back(rq);
            }
        }
        let rq = self.flushed[domain].pop_front()?;
        *slot(&mut self.token, rq) = token;
        self.batching += 1;
        self.waiting -= 1;
        Some(rq)
    }

    /// The bucket that the percentile falls into, and the samples are used up; nothing while they are too few.
    fn percentile(&mut self, domain: usize, at_device: bool, percent: u32, now: Nanos) -> Option<usize> {
        let buckets = if at_device { &mut self.device[domain] } else { &mut self.total[domain] };
        let samples: u32 = buckets.iter().sum();
        if samples == 0 {
            return None;
        }
        let until = *self.patience[domain].get_or_insert(now + PATIENCE);
        if samples < SAMPLES && now < until {
            return None;
        }
        self.patience[domain] = None;
        let mut left = (samples * percent).div_ceil(100);
        let mut found = BUCKETS - 1;
        for (index, count) in buckets[..BUCKETS - 1].iter().enumerate() {
            if *count >= left {
                found = index;
                break;
            }
            left -= count;
        }
        *buckets = [0; BUCKETS];
        Some(found)
    }

    fn adjust(&mut self, now: Nanos) {
        let mut congested = false;
        for domain in [READ, WRITE] {
            congested |= self.percentile(domain, true, 90, now).is_some_and(|bucket| bucket >= GOOD);
        }
        for domain in [READ, WRITE] {
            let mut slow = self.percentile(domain, false, 99, now);
            if congested {
                slow = slow.or(self.remembered[domain]);
                self.remembered[domain] = None;
            } else if slow.is_some() {
                self.remembered[domain] = slow;
            }
            if let Some(slow) = slow.filter(|slow| congested || *slow >= GOOD) {
                let tokens = self.tokens[domain].depth() * (slow as u32 + 1) / GOOD as u32;
                self.tokens[domain].resize(tokens.clamp(1, DEPTH[domain]));
            }
        }
    }
}

impl Elevator for Kyber {
    fn quirks(&self) -> Quirks {
        // Its list is short, and `nomerges=1` does not keep it from being looked through.
        Quirks { has_one_hit_cache: false, merges_on_insert: false, ..Quirks::WAITING }
    }

    fn merge(&mut self, ctx: &mut Ctx<'_>, bio: &Bio) -> Option<(RqId, MergeKind)> {
        let mut newest = self.lists[bio.dir as usize].entries().iter().rev().take(CHECKED);
        newest.find_map(|entry| joins(&ctx.requests[entry.rq], bio).map(|kind| (entry.rq, kind)))
    }

    fn merged(&mut self, ctx: &mut Ctx<'_>, rq: RqId, _kind: MergeKind) {
        let list = &mut self.lists[domain(&ctx.requests[rq])];
        if let Some(index) = list.position(rq) {
            list.grown(index, ctx.requests);
        }
    }

    fn neighbour(&self, _ctx: &Ctx<'_>, _rq: RqId, _side: MergeKind) -> Option<RqId> {
        None
    }

    fn merged_requests(&mut self, ctx: &mut Ctx<'_>, kept: RqId, gone: RqId) {
        let list = &mut self.lists[domain(&ctx.requests[gone])];
        if let Some(index) = list.position(gone) {
            list.remove(index);
            self.waiting -= 1;
        }
        self.merged(ctx, kept, MergeKind::Back);
    }

    fn add(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        if !self.barrier.holds(ctx, rq) {
            self.queue(ctx, rq);
        }
    }

    fn next(&mut self, ctx: &mut Ctx<'_>) -> Option<RqId> {
        if self.waiting == 0
            && let Some(flush) = self.barrier.pop()
        {
            while let Some(rq) = self.barrier.release(ctx) {
                self.queue(ctx, rq);
            }
            *slot(&mut self.token, flush) = self.tokens[OTHER].get(Limit::None).unwrap_or(NO_TOKEN);
            return Some(flush);
        }
        if self.batching < BATCH[self.domain]
            && let Some(rq) = self.next_of_domain()
        {
            return Some(rq);
        }
        self.batching = 0;
        for _ in 0..DOMAINS {
            self.domain = (self.domain + 1) % DOMAINS;
            if let Some(rq) = self.next_of_domain() {
                return Some(rq);
            }
        }
        None
    }

    fn completed(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        let request = &ctx.requests[rq];
        let domain = domain(request);
        if self.token[rq.0 as usize] != NO_TOKEN {
            self.tokens[domain].free(self.token[rq.0 as usize]);
        }
        if domain == OTHER {
            return;
        }
        let (now, target) = (ctx.now, self.targets[domain]);
        self.total[domain][bucket(now.saturating_sub(request.allocated), target)] += 1;
        self.device[domain][bucket(now.saturating_sub(request.issued), target)] += 1;
        self.look_at.get_or_insert(self.hz.timer(now, u64::from(self.hz.0) / LOOKS));
    }

    fn timer(&self) -> Option<Nanos> {
        self.look_at
    }

    fn on_timer(&mut self, ctx: &mut Ctx<'_>) {
        if self.look_at.take_if(|at| *at <= ctx.now).is_some() {
            self.adjust(ctx.now);
        }
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        self.waiting + self.barrier.len()
    }

    fn tag_limit(&mut self, _ctx: &mut Ctx<'_>, bio: &Bio, nr_tags: u32) -> Limit {
        if bio.dir == Dir::Read || (bio.sync && !self.rules.limits_sync_writes) {
            Limit::None
        } else if self.rules.of_words {
            Limit::OfWord(Shape::new(nr_tags).of_word() * ASYNC_PERCENT / 100)
        } else {
            Limit::OfMap(nr_tags * ASYNC_PERCENT / 100)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Driver;
    use super::*;

    #[test]
    fn sixteen_reads_then_eight_writes_each_in_the_order_they_came() {
        let mut driver = Driver::new("kyber", 250);
        for i in 0..40u64 {
            driver.submit(Dir::Read, 10_000 - i * 100, 8, 0);
            driver.submit(Dir::Write, 90_000 - i * 100, 8, 0);
        }
        let order = driver.drain();
        let runs: Vec<usize> = order.chunk_by(|a, b| (*a > 50_000) == (*b > 50_000)).map(<[u64]>::len).collect();
        assert_eq!(runs, [16, 8, 16, 8, 8, 24]);
        let reads: Vec<u64> = order.into_iter().filter(|sector| *sector < 50_000).collect();
        assert!(reads.windows(2).all(|pair| pair[0] > pair[1]), "nothing is sorted");
    }

    /// A thousand reads of this time at the device, or writes; the remaining tokens.
    fn tokens(reads: Nanos, writes: Nanos) -> [u32; 2] {
        let options = ENTRY.defaults();
        let targets = ["read_lat_us", "write_lat_us"].map(|name| Nanos::from_us(options.unsigned(name)));
        let mut kyber = Kyber::new(targets, Hz(250), Rules { of_words: false, limits_sync_writes: false });
        for (domain, took) in [reads, writes].into_iter().enumerate() {
            let bucket = bucket(took, kyber.targets[domain]);
            kyber.total[domain][bucket] = 1000;
            kyber.device[domain][bucket] = 1000;
        }
        kyber.adjust(Nanos::from_secs(1));
        [kyber.tokens[READ].depth(), kyber.tokens[WRITE].depth()]
    }

    #[test]
    fn a_slow_domain_takes_tokens_from_the_others() {
        let us = Nanos::from_us;
        assert_eq!(tokens(us(1_000), us(5_000)), [256, 128], "everybody is fast enough");
        // Reads beyond 2 ms: writes at a fifth of their target (bucket 0) keep a quarter of their tokens.
        assert_eq!(tokens(us(2_001), us(2_000)), [256, 32]);
        assert_eq!(tokens(us(400), us(20_000)), [64, 128]);
        assert_eq!(tokens(us(2_000), us(9_000)), [256, 128], "at the target is good");
    }
}

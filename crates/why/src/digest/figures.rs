//! The figures of a run, by what they are about.

use std::collections::BTreeMap;

use super::piped::Piped;
use super::scattered::Scattered;
use super::tally::Spread;

/// Requests by kind of call: reads, writes, syncs.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// Calls begun.
    pub calls: [u64; 3],
    /// Bytes asked for.
    pub bytes: [u64; 3],
    /// Calls of each size.
    pub sizes: [BTreeMap<u32, u64>; 2],
    /// Calls that go on where one of the last calls on the file ended.
    pub sequential: [u64; 2],
    /// Calls that went round the page cache: they had bios and touched no page.
    pub direct: [u64; 2],
    /// Writes that had bios of their own within the call.
    pub written_through: u64,
    /// Calls on pipes and sockets. Only recordings have it.
    pub piped: Piped,
    /// The way of an arm over its reads. Only recordings have it.
    pub scattered: Scattered,
    /// Writes on files that were opened with O_DSYNC, and their time, ns. Only recordings have it.
    pub synchronous: (u64, f64),
    /// Writes of parts of pages that wait until these are read, and the time of that, ns.
    pub read_first: [u64; 2],
    /// Calls without any event: direct ones on a device that takes bios as they are, or those that need no I/O.
    pub quiet: [u64; 2],
    /// Calls that began while another one on the same file was in progress.
    pub overlapping: u64,
    /// The same among those that go on where another one ended: several streams in one file.
    pub interleaved_streams: u64,
    /// Touches of mappings.
    pub mapped: u64,
    /// Calls that a worker thread carried out for their submitter.
    pub handed_over: u64,
    /// Most calls in progress at once.
    pub concurrency: u32,
    /// Files that calls were made on, without those that had hardly any.
    pub files: u32,
    /// Regions of 1 MiB that calls were made in.
    pub regions: u64,
    /// Share of the calls in the tenth of those regions that has most of them, 0 to 1.
    pub top_tenth: f64,
}

/// Pages and the cache.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    /// Pages found.
    pub hits: u64,
    /// Pages not found.
    pub misses: u64,
    /// Pages put in.
    pub added: u64,
    /// Of these, pages that had been in before during the run, and those of them that reads put in.
    pub again: u64,
    pub again_by_reads: u64,
    /// Pages taken out because memory was needed.
    pub reclaimed: u64,
    /// Pages taken out by advice, truncation or invalidation.
    pub dropped: u64,
    /// Most pages in it at once, of those that were put in during the run.
    pub most: u64,
    /// Page faults that ended without a read, and with one.
    pub faults: [u64; 2],
    /// Direct (or quiet) calls on files that had pages in the cache.
    pub direct_over_cached: u64,
    /// Direct calls on files with pages that processes outside the workload had put there.
    pub direct_over_foreign: u64,
    /// Direct calls on files of which the workload's own buffered calls had.
    pub direct_over_own: u64,
    /// Direct calls, reads and writes, that first wrote back what buffered calls had left in their range (more was
    /// written than they asked for), or dropped pages of it.
    pub direct_cleared: [u64; 2],
    /// Latencies of these, and of all other calls that went round the page cache, ns.
    pub direct_latency: [Spread; 2],
}

impl Cache {
    /// Pages that the tasks took out themselves and read again: those of a file that is overwritten come back without
    /// a read.
    pub fn dropped_and_read(&self) -> u64 {
        self.dropped.min(self.again_by_reads)
    }
}

/// Calls on one file, one after the other. Events do not show a lock; but a task that waits for one is silent until the
/// call that has it ends.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    /// Reads and writes that began while another call on their file was in progress, and of which nothing was seen
    /// until such a one had ended.
    pub waited: [u64; 2],
    /// For how long, ns.
    pub wait: [Spread; 2],
    /// Calls whose first bio came while no other call on their file had bios, though some were in progress; and while
    /// one had.
    pub first_bios: [u64; 2],
    /// How often a reader of a file wakes another one that sleeps outside of any call, and how many are woken so. Only
    /// recordings have it.
    pub handed: (u64, u32),
}

/// Read-ahead.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    /// Decisions by kind, in the order of [`RaKind`].
    pub count: [u64; 7],
    /// Pages by kind.
    pub pages: [u64; 7],
    /// Sizes, pages, of the windows of reads (sync and async).
    pub sizes: Spread,
    /// Sizes of the sync ones that came from calls which go on where others ended.
    pub sequential_sizes: Spread,
    /// Read calls that missed.
    pub calls_missed: u64,
    /// Of these, calls that read more than one page alone, one after the other.
    pub calls_split: u64,
    /// Of the calls of more than a page that overlap others on their file: how many missed, and were split.
    pub overlapping_split: [u64; 2],
    /// Pages read ahead of the requested ones.
    pub ahead: u64,
    /// Of these, pages that were requested later.
    pub used: u64,
    /// Of these, pages that were taken out before a request.
    pub thrashed: u64,
    /// Closed, by cause: interleaved misses, misses, hits, congestion. Only simulated runs have it.
    pub closes: [u64; 4],
    /// Windows of whole calls that had more pages than the largest window seen: read in pieces.
    pub in_pieces: u64,
    /// Calls that ask for pages to be read ahead: POSIX_FADV_WILLNEED, readahead. Only recordings have it.
    pub asked: u64,
    /// Stretches of pages that were there already between two that a stream added, and their pages.
    pub holes: [u64; 2],
}

/// Bios on their way into requests.
#[derive(Clone, Debug, Default)]
pub struct Bios {
    /// Reads and writes.
    pub count: [u64; 2],
    /// Sizes, sectors.
    pub sizes: [Spread; 2],
    /// Bios that begin where the one before them, of the same direction, ends, while that one's request has not been
    /// issued.
    pub could_join: [u64; 2],
    /// Of these, bios that joined it.
    pub joined: [u64; 2],
    /// Of these, bios that did not, though the request had been as large before, or larger, in this run.
    pub refused: [u64; 2],
    /// Reads of metadata that a read of data has to wait for.
    pub lookups: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Plugs {
    /// Pulled, by cause in the order of [`UnplugCause`].
    pub unplugs: [u64; 7],
    /// Requests let go at once.
    pub batch: Spread,
    /// Time that read requests are held, ns.
    pub held: Spread,
    /// The same of those that carry only unrequested pages.
    pub held_ahead: Spread,
    /// Time during which the device had nothing to do, nothing was with the elevator, and reads were held in a plug,
    /// ns.
    pub device_starved: u64,
}

/// Journal, flushes, throttling.
#[derive(Clone, Debug, Default)]
pub struct Sync {
    /// Buffered writes that wrote back the pages just in front of their own.
    pub in_front: u64,
    /// Files that were synced.
    pub files: u64,
    /// Calls of fsync after writes in place, for which fdatasync would do.
    pub in_place: u64,
    /// Calls of fdatasync after writes to new places of a file. Only recordings have it.
    pub grown: u64,
    /// Syncs whose task wrote no data in them.
    pub empty: u64,
    pub commits: u64,
    /// Blocks written to the journal.
    pub blocks: u64,
    /// Time from the locking of a transaction to its end, ns.
    pub commit: Spread,
    /// Commands without data: flushes of the drive's cache, and their times at the device, ns.
    pub flush: Spread,
    /// Time of the syncs during which a flush was at the device, or held requests back from an idle one, ns: never more
    /// than the syncs take.
    pub flushing: f64,
    /// Writers stopped because too much was dirty.
    pub throttles: u64,
}

/// I/O that the workload did not request. Writing back what the workload has dirtied is not counted.
#[derive(Clone, Debug, Default)]
pub struct Foreign {
    /// Bios read, metadata included.
    pub reads: u64,
    /// Data that was written, and that no call of the workload had dirtied: bios.
    pub writes: u64,
    /// Pages put into the cache.
    pub pages: u64,
    /// Pages that other processes have taken out of the cache, by advice or by dropping caches.
    pub dropped: u64,
    /// Time the device was busy with such reads, or with writes that no file of the workload had dirtied, ns.
    pub device: u64,
    /// Of that, with requests of the workload waiting or at the device, ns; never more than the run takes.
    pub in_the_way: u64,
    /// Discards by anybody, and the time with one at the device while requests of the workload wait, ns.
    pub discards: u64,
    pub discarding: u64,
    /// Bytes that other processes, not the kernel for them, have submitted to be written.
    pub processes_wrote: u64,
    /// Names of the processes and what they did (pages put in, requests), where the source knows.
    pub names: Vec<(String, u64)>,
}

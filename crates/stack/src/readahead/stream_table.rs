//! The proposal of May 2004: a small table of recent sequential streams for every open file.
//!
//! An entry remembers the last page of a stream's previous read and its window. A read that starts on the page after
//! that (or on the same page, if the previous read ended inside it) belongs to the stream. Its first miss opens a
//! window of 2 or 4 times the request; the first page of the window's tail carries a marker, and reaching it, or
//! missing after it, reads the next window, twice or four times as large, up to the limit. A read that belongs to no
//! stream is read exactly, in one submission, and takes over the entry used least recently. So 100, 200, 101, 201, ...
//! are two streams, not noise. With `lookup=linear` the table is searched; with `lookup=hashed` a stream's bin follows
//! from the upper and middle bits of its page number, the search takes constant time, and two streams in one bin
//! displace each other.
//!
//! Source: two readers' comments of 5 May 2004 on the report about 2.6.6's read-ahead; no kernel has this. The
//! place it would take is mm/readahead.c, `page_cache_readahead`.
//!
//! Known deviations: the comments describe buffers; here the page cache holds the data and the table only streams.
//! Window sizes, which the comments leave open, are those of 2.6.22.

use super::parts::{force_chunks, init_size, max_sane, next_size, pages_touched, read_at_once, word};
use super::{Advice, Build, Limits, Mapping, ReadRequest, Readahead, Token};
use crate::event::RaKind;
use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::read_loop::LoopStyle;
use crate::units::{PAGE_BYTES, PageIndex};

/// The table of recent streams.
pub const ENTRY: Entry<Build> = Entry {
    name: "stream-table",
    summary: "a table of recent sequential streams for every open file; other reads are read exactly",
    origin: &[Origin {
        kernels: "none (proposed for 2.6.6)",
        file: "mm/readahead.c",
        function: "page_cache_readahead (would replace it)",
        notes: "from comments on the report of May 2004: a searched table of 8 to 1024 entries, or 8 hashed bins",
    }],
    options: &[
        OptionSpec::choice("lookup", &["linear", "hashed"], 0, "search the whole table, or one bin found by hashing"),
        OptionSpec::number("streams", 8, (1, 1024), "entries of the table (the comment's guess for a desktop: 8)"),
    ],
    conformance: "table tests with drawn expectations; no kernel to record exists",
    build,
};

/// Log2 of the neighbouring pages that share a bin.
const BIN_SHIFT: u32 = 6;
/// Values of the option `lookup`.
const HASHED: i64 = 1;

fn build(options: &Options, limits: &Limits) -> Box<dyn Readahead> {
    let streams = usize::try_from(options.unsigned("streams")).expect("at most 1024");
    Box::new(StreamTable {
        entries: vec![Stream::default(); streams],
        hashed: options.get("lookup") == HASHED,
        clock: 0,
        max: limits.ra_pages,
        random: false,
    })
}

/// One stream.
#[derive(Copy, Clone, Debug, Default)]
struct Stream {
    /// When it was last used; 0 = never.
    used: u64,
    /// Counts the streams that have had this entry, so that a call notices when it has lost it.
    generation: u16,
    /// More than one read has belonged to it.
    established: bool,
    /// Last page of the previous read.
    last: u64,
    /// The previous read ended inside that page.
    inside: bool,
    /// The window read last.
    start: u64,
    size: u64,
    async_size: u64,
}

struct StreamTable {
    entries: Vec<Stream>,
    hashed: bool,
    clock: u64,
    max: u64,
    random: bool,
}

impl StreamTable {
    fn bin(&self, page: u64) -> usize {
        let block = page >> BIN_SHIFT;
        ((block ^ (block >> 6) ^ (block >> 12)) % self.entries.len() as u64) as usize
    }

    /// The entry whose stream goes on at `page`.
    fn find(&self, page: u64) -> Option<usize> {
        let goes_on =
            |entry: &Stream| entry.used > 0 && (entry.last + 1 == page || (entry.inside && entry.last == page));
        if self.hashed {
            [page.saturating_sub(1), page]
                .map(|page| self.bin(page))
                .into_iter()
                .find(|&bin| goes_on(&self.entries[bin]))
        } else {
            self.entries.iter().position(goes_on)
        }
    }

    /// The entry that a new stream takes over.
    fn victim(&self, last: u64) -> usize {
        if self.hashed {
            return self.bin(last);
        }
        let oldest = self.entries.iter().enumerate().min_by_key(|(_, entry)| entry.used);
        oldest.expect("a table has at least one entry").0
    }

    /// The stream that a call works for, unless another has taken its entry.
    fn stream(&mut self, call: Token) -> Option<&mut Stream> {
        let entry = &mut self.entries[(call.0 & 0xffff) as usize];
        let mine = entry.used > 0 && entry.established && u32::from(entry.generation) == call.0 >> 16;
        mine.then_some(entry)
    }

    fn read_window(mapping: &mut dyn Mapping, kind: RaKind, stream: &Stream) {
        read_at_once(mapping, kind, PageIndex(stream.start), stream.size, Some(stream.async_size));
    }
}

impl Readahead for StreamTable {
    fn style(&self) -> LoopStyle {
        LoopStyle::OnDemand
    }

    fn begin(&mut self, _mapping: &mut dyn Mapping, request: &ReadRequest) -> Token {
        self.clock += 1;
        let end_byte = request.offset.saturating_add(request.len_bytes);
        let (page, last) = (request.first_page().0, (end_byte - 1) / PAGE_BYTES);
        let found = self.find(page);
        let mut stream = match found {
            Some(index) => Stream { established: true, ..self.entries[index] },
            None => Stream::default(),
        };
        let index = match found {
            Some(index) if !self.hashed => index,
            // A hashed stream that moves on may have to move to another bin.
            _ => self.victim(last),
        };
        if found != Some(index) {
            stream.generation = self.entries[index].generation.wrapping_add(1);
            if let Some(left) = found {
                self.entries[left].used = 0;
            }
        }
        (stream.used, stream.last, stream.inside) = (self.clock, last, !end_byte.is_multiple_of(PAGE_BYTES));
        self.entries[index] = stream;
        Token(u32::from(stream.generation) << 16 | index as u32)
    }

    fn on_miss(&mut self, call: Token, mapping: &mut dyn Mapping, page: PageIndex, nr_requested: u64) {
        let (max, random) = (self.max, self.random);
        if max == 0 {
            return;
        }
        let Some(stream) = self.stream(call).filter(|_| !random) else {
            read_at_once(mapping, RaKind::Sync, page, nr_requested, Some(0));
            return;
        };
        stream.size = if stream.size == 0 { init_size(nr_requested, max) } else { next_size(stream.size, max) };
        stream.size = stream.size.max(nr_requested.min(max));
        stream.start = page.0;
        // All of the window is tail if the request needs it all: the marker is then on the page asked for.
        stream.async_size = if stream.size > nr_requested { stream.size - nr_requested } else { stream.size };
        StreamTable::read_window(mapping, RaKind::Sync, stream);
    }

    fn on_marker(&mut self, call: Token, mapping: &mut dyn Mapping, page: PageIndex, _nr_requested: u64) {
        let max = self.max;
        // A read that belongs to no stream leaves the marker for the stream that it belongs to.
        let Some(stream) = self.stream(call) else { return };
        if max == 0 || mapping.under_writeback(page) {
            return;
        }
        mapping.clear_marker(page);
        if !mapping.congested() && stream.start + stream.size - stream.async_size == page.0 {
            stream.start += stream.size;
            stream.size = next_size(stream.size, max);
            stream.async_size = stream.size;
            StreamTable::read_window(mapping, RaKind::Async, stream);
        }
    }

    fn end(&mut self, _call: Token, _pos: u64) {}

    fn advise(&mut self, mapping: &mut dyn Mapping, advice: Advice) {
        let limits = mapping.limits();
        match advice {
            Advice::Normal => (self.max, self.random) = (limits.ra_pages, false),
            Advice::Random => self.random = true,
            Advice::Sequential => (self.max, self.random) = (2 * limits.ra_pages, false),
            Advice::WillNeed { offset, len_bytes } => {
                let (first, nr_pages) = pages_touched(offset, len_bytes);
                force_chunks(mapping, first, max_sane(limits, nr_pages), |mapping, start, nr_pages| {
                    read_at_once(mapping, RaKind::Force, start, nr_pages, Some(0));
                });
            }
        }
    }

    /// Last page and window of every entry in use.
    fn trace(&self) -> Vec<i64> {
        let used = self.entries.iter().filter(|entry| entry.used > 0);
        used.flat_map(|entry| [entry.last, entry.start, entry.size, entry.async_size].map(word)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{Case, Read, replay};

    /// Pages read as `first+count`, one word a submission, for reads of `len` pages at the given pages.
    fn submissions(settings: &[(&str, i64)], len: u64, pages: &[u64]) -> String {
        let mut options = ENTRY.defaults();
        for &(key, value) in settings {
            options.set(key, value);
        }
        let reads = pages.iter().map(|page| Read { offset: page * PAGE_BYTES, len_bytes: len * PAGE_BYTES, fd: 0 });
        let case = Case { file_bytes: 4096 * PAGE_BYTES, ra_pages: 32, reads: reads.collect(), ..Case::default() };
        let submissions = replay(&ENTRY, &options, &case).submissions;
        let words: Vec<String> = submissions.iter().map(|s| format!("{}+{}", s.start, s.nr_pages)).collect();
        words.join(" ")
    }

    const LINEAR: (&str, i64) = ("lookup", 0);
    const HASH: (&str, i64) = ("lookup", 1);

    #[test]
    fn interleaved_streams_both_get_windows() {
        let pages: Vec<u64> = (0..8).flat_map(|page| [100 + page, 200 + page]).collect();
        for lookup in [LINEAR, HASH] {
            // Read alone; second read of each opens a window of 4 with its marker on the page after it; then 8, 16.
            let expected = "100+1 200+1 101+4 201+4 105+8 205+8 113+16 213+16";
            assert_eq!(submissions(&[lookup], 1, &pages), expected, "{lookup:?}");
        }
    }

    #[test]
    fn random_reads_are_read_exactly() {
        for lookup in [LINEAR, HASH] {
            assert_eq!(
                submissions(&[lookup], 4, &[500, 40, 3000, 0, 900]),
                "500+4 40+4 3000+4 0+4 900+4",
                "{lookup:?}"
            );
        }
    }

    #[test]
    fn the_least_recently_used_entry_is_taken_over() {
        // Two entries: the third stream displaces the first, whose next read then looks random.
        let pages = [100, 200, 300, 101, 301];
        assert_eq!(submissions(&[LINEAR, ("streams", 2)], 1, &pages), "100+1 200+1 300+1 101+1 301+4");
        assert_eq!(submissions(&[LINEAR, ("streams", 3)], 1, &pages), "100+1 200+1 300+1 101+4 301+4");
    }

    #[test]
    fn one_bin_holds_one_stream() {
        // 100 and 110 share the bin of pages 64 to 127.
        let pages = [100, 110, 101, 111];
        assert_eq!(submissions(&[HASH], 1, &pages), "100+1 110+1 101+1 111+1");
        assert_eq!(submissions(&[LINEAR], 1, &pages), "100+1 110+1 101+4 111+4");
    }

    #[test]
    fn a_stream_keeps_its_window_across_bins() {
        let pages: Vec<u64> = (56..72).map(|page| page * 4).collect();
        // The last read touches the marker of the window before the last.
        let expected = "224+4 228+8 236+16 252+32 284+32 316+32";
        assert_eq!(submissions(&[HASH], 4, &pages), expected);
        assert_eq!(submissions(&[LINEAR], 4, &pages), expected);
    }

    #[test]
    fn a_read_larger_than_the_limit_is_still_one_submission() {
        assert_eq!(submissions(&[LINEAR], 64, &[1000]), "1000+64");
    }
}

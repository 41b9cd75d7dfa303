//! A kernel's behaviour on one file, as text: the calls, and their consequences.
//!
//! ```text
//! iowhy-readahead 1            the first line
//! job seq-4k                   facts, one a line, until an empty line:
//! kernel 6.18.44               kernel, file system, bytes of the file, read_ahead_kb/4, max_sectors_kb/4,
//! ...                          largest folio order, events that were lost; pieces of memory of a request at most,
//!                              bytes of a block of the file system if it is not a page; bytes of the end that are
//!                              kept with the metadata; `holes 1` if parts of the file are not on the disk
//!
//! r 0 3 8192 4096              task 0 reads 4096 bytes from byte 8192 of descriptor 3       w: it writes, anywhere
//! f 0 3 random 0 0             advises
//! m 0 random I J               advises it for pages I to J of its mapping; `normal` or `executable` if it has just
//!                              made it
//! s 0 I N o s a m p            page_cache_sync_ra: index, pages asked for, order, size, async size, limit, previous
//! a ...                        page_cache_async_ra                        position, all as they were before it
//! d 0 I o s a m                page_cache_ra_order: index, order, size, async size, limit
//! u 0 I n a                    page_cache_ra_unbounded: index, pages, lookahead
//! + 0 I o [xN]                 a folio was added; N of them side by side  -: it left
//! b 0 S n                      a bio of n bytes to read from sector S
//! x 0 S R                      a bio that begins at sector S was split, the rest begins at sector R
//! i 0 S n                      a request of n bytes from sector S on was issued, for a bio of the task
//! g 0 I J                      pages I to J were looked up
//! p 0 I                        page I of a mapping was touched, and was not mapped with others (a fault)
//! e 0 4096                     the call ended with this
//! ```
//! Tasks are numbered as they appear, and so are descriptors: one that is opened again has another number. Nothing but
//! calls, pages that left the cache and pages that others added to it goes into the model; the rest is its result.

use std::collections::BTreeSet;
use std::fmt::Write;

use iowhy_stack::trace::RaInput;
use iowhy_stack::units::PAGE_BYTES;

/// The first kernel whose trace shows that pages are looked up (`mm_filemap_get_pages`).
const SHOWS_LOOK_UPS: (u32, u32) = (6, 12);
/// The first kernel that shows read-ahead decisions (`events/readahead`); 6.12 does not.
const SHOWS_DECISIONS: (u32, u32) = (6, 18);

/// Folios side by side that one line stands for at most.
const MOST_FOLIOS: u64 = 1 << 16;
/// Pages that a file may have.
const MOST_PAGES: u64 = 1 << 52;

/// First line of the text.
const HEAD: &str = "iowhy-readahead 1";

/// Advice as it is written.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// POSIX_FADV_NORMAL.
    Normal,
    /// POSIX_FADV_RANDOM.
    Random,
    /// POSIX_FADV_SEQUENTIAL.
    Sequential,
    /// POSIX_FADV_WILLNEED, or readahead(2).
    WillNeed,
    /// POSIX_FADV_DONTNEED.
    DontNeed,
    /// POSIX_FADV_NOREUSE, or one that is not known.
    Other,
    /// No advice: the mapping has just been made, and is executable.
    Executable,
}

/// The words of the text for advice.
const HINTS: &[(Hint, &str)] = &[
    (Hint::Normal, "normal"),
    (Hint::Random, "random"),
    (Hint::Sequential, "sequential"),
    (Hint::WillNeed, "willneed"),
    (Hint::DontNeed, "dontneed"),
    (Hint::Other, "other"),
    (Hint::Executable, "executable"),
];

/// Something that happened to the file.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum What {
    /// A read began.
    Read {
        /// The descriptor.
        fd: i32,
        /// First byte.
        offset: u64,
        /// Bytes asked for.
        len_bytes: u64,
    },
    /// A write began: pages that it adds to the cache are not read-ahead.
    Write {
        /// The descriptor.
        fd: i32,
    },
    /// The program advised.
    Advise {
        /// The descriptor.
        fd: i32,
        hint: Hint,
        /// First byte.
        offset: u64,
        /// Bytes; 0 to the end.
        len_bytes: u64,
    },
    /// The program's advice on a part of its mapping.
    MapAdvice {
        /// First page.
        first: u64,
        /// Last page.
        last: u64,
        hint: Hint,
    },
    /// The call ended.
    End { result: i64 },
    /// A miss, with the state before.
    Sync(RaInput),
    /// A marker, with the state before.
    Async(RaInput),
    /// A window to be cut into folios.
    Order {
        /// First page.
        index: u64,
        /// Preferred order.
        order: u32,
        /// Pages.
        size: u32,
        /// Those after the marker.
        async_size: u32,
        /// Limit of the open file.
        ra_pages: u32,
    },
    /// A window of single pages.
    Unbounded {
        /// First page.
        index: u64,
        nr_pages: u64,
        /// Those after the marker.
        lookahead: u64,
    },
    /// A folio was added.
    Add {
        /// First page.
        index: u64,
        /// Log2 of its pages.
        order: u8,
    },
    /// A folio left.
    Remove {
        /// First page.
        index: u64,
        /// Log2 of its pages.
        order: u8,
    },
    /// A bio that reads.
    Bio {
        /// Its first sector.
        sector: u64,
        bytes: u32,
    },
    /// A bio was cut in two because it is too much for a request.
    Split {
        /// First sector of it.
        sector: u64,
        /// First sector of the rest.
        rest: u64,
    },
    /// A request with bios of the task was given to the driver.
    Issue {
        /// Its first sector.
        sector: u64,
        bytes: u32,
    },
    /// A page of a mapping was touched, and was not mapped together with others.
    Fault {
        /// The page.
        index: u64,
    },
    /// Pages were looked up.
    Get {
        /// First page.
        index: u64,
        /// Last page asked for.
        last: u64,
    },
}

impl What {
    /// First sector and bytes, if it is a bio.
    pub fn bio(self) -> Option<(u64, u64)> {
        match self {
            What::Bio { sector, bytes } => Some((sector, u64::from(bytes))),
            _ => None,
        }
    }
}

/// A line of the record.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Line {
    /// Number of the task.
    pub task: u32,
    pub what: What,
}

/// A kernel's behaviour on one file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// Name of the job.
    pub job: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Type of the file system.
    pub filesystem: String,
    /// Size of the file.
    pub file_bytes: u64,
    /// Read-ahead limit of the device in pages.
    pub ra_pages: u64,
    /// Largest request of the device in pages.
    pub io_pages: u64,
    /// Largest folio order of the mapping.
    pub max_folio_order: u8,
    /// Most pieces of memory that a request may have; 0 if requests are not to be compared: an elevator unites those of
    /// different tasks.
    pub max_segments: u64,
    /// Bytes of a block of the file system, if that is not a page; 0 otherwise.
    pub block_bytes: u64,
    /// Bytes at the end of the file that are kept with its metadata: no bio is for them.
    pub tail_bytes: u64,
    /// Parts of the file are not on the disk.
    pub holes: bool,
    /// Events that the kernel had no room for.
    pub lost: u64,
    /// Events, in order.
    pub lines: Vec<Line>,
}

impl Hint {
    /// Of the number that the call takes.
    pub fn of(advice: u64) -> Hint {
        let known = [Hint::Normal, Hint::Random, Hint::Sequential, Hint::WillNeed, Hint::DontNeed];
        usize::try_from(advice).ok().and_then(|nr| known.get(nr).copied()).unwrap_or(Hint::Other)
    }

    /// As it is written.
    fn word(self) -> &'static str {
        HINTS.iter().find(|(known, _)| *known == self).map_or("other", |(_, word)| word)
    }
}

impl Recorded {
    /// Whether the calls are known that led to every question.
    pub fn calls_known(&self) -> bool {
        let mut at_work = BTreeSet::new();
        self.lines.iter().all(|line| match line.what {
            What::Read { .. } | What::Write { .. } | What::Advise { .. } => {
                at_work.insert(line.task);
                true
            }
            What::End { .. } => {
                at_work.remove(&line.task);
                true
            }
            What::Sync(_) | What::Async(_) | What::Order { .. } | What::Unbounded { .. } => {
                at_work.contains(&line.task)
            }
            // Touches that do not fault are in no event.
            What::Fault { .. } => false,
            _ => true,
        })
    }

    /// Bytes of a block of the file system.
    pub fn block(&self) -> u64 {
        if self.block_bytes == 0 { PAGE_BYTES } else { self.block_bytes }
    }

    /// Where the file's last block on the disk ends.
    pub fn disk_end(&self) -> u64 {
        self.file_bytes.saturating_sub(self.tail_bytes).next_multiple_of(self.block())
    }

    /// The line after the end of the call that begins at line `at`.
    pub fn end_of_call(&self, at: usize) -> usize {
        let task = self.lines[at].task;
        let mut end = at + 1;
        for line in &self.lines[at + 1..] {
            if line.task == task {
                match line.what {
                    What::End { .. } => return end + 1,
                    What::Read { .. } | What::Write { .. } | What::Advise { .. } => return end,
                    _ => {}
                }
            }
            end += 1;
        }
        end
    }

    /// Whether the kernel shows what read-ahead decides. Where it does not, the pages are all that can be compared.
    pub fn shows_decisions(&self) -> bool {
        let decides =
            |what: &What| matches!(what, What::Sync(_) | What::Async(_) | What::Order { .. } | What::Unbounded { .. });
        version(&self.kernel).is_some_and(|version| version >= SHOWS_DECISIONS)
            || self.lines.iter().any(|line| decides(&line.what))
    }

    /// Whether the read at line `at`, over before line `end`, looked into the page cache: one with `O_DIRECT` does not.
    /// Older kernels do not show it; there, calls with bios of their own and without added pages did not.
    pub fn looks_up(&self, at: usize, end: usize) -> bool {
        let lines = &self.lines[at..end];
        let task = lines[0].task;
        let own = || lines.iter().filter(|line| line.task == task).map(|line| line.what);
        let What::Read { offset, .. } = lines[0].what else { return true };
        let nothing_read = own().any(|what| matches!(what, What::End { result: 0 }));
        let looked = || match version(&self.kernel).is_some_and(|version| version >= SHOWS_LOOK_UPS) {
            true => own().any(|what| matches!(what, What::Get { .. } | What::Sync(_) | What::Async(_))),
            false => {
                let adds = own().any(|what| matches!(what, What::Add { .. } | What::Sync(_) | What::Async(_)));
                adds || !own().any(|what| matches!(what, What::Bio { .. }))
            }
        };
        nothing_read || offset >= self.file_bytes || looked()
    }

    /// Whether only one task ever read, or touched a mapping.
    pub fn single_threaded(&self) -> bool {
        let reads = |what: &What| {
            matches!(what, What::Read { .. } | What::Fault { .. } | What::Sync(_) | What::Async(_) | What::Order { .. })
        };
        let mut readers = self.lines.iter().filter(|line| reads(&line.what));
        readers.next().is_none_or(|first| readers.all(|line| line.task == first.task))
    }

    pub fn to_text(&self) -> String {
        let mut out = format!("{HEAD}\n");
        let facts = [
            ("job", self.job.clone()),
            ("kernel", self.kernel.clone()),
            ("filesystem", self.filesystem.clone()),
            ("file_bytes", self.file_bytes.to_string()),
            ("ra_pages", self.ra_pages.to_string()),
            ("io_pages", self.io_pages.to_string()),
            ("max_folio_order", self.max_folio_order.to_string()),
            ("lost", self.lost.to_string()),
        ];
        for (name, value) in facts {
            let _ = writeln!(out, "{name} {value}");
        }
        if self.max_segments > 0 {
            let _ = writeln!(out, "max_segments {}", self.max_segments);
        }
        if ![0, PAGE_BYTES].contains(&self.block_bytes) {
            let _ = writeln!(out, "block_bytes {}", self.block_bytes);
        }
        if self.tail_bytes > 0 {
            let _ = writeln!(out, "tail_bytes {}", self.tail_bytes);
        }
        if self.holes {
            out.push_str("holes 1\n");
        }
        out.push('\n');
        let mut rest = &self.lines[..];
        while let Some(line) = rest.first() {
            let n = run(rest);
            line.write(n, &mut out);
            rest = &rest[n..];
        }
        out
    }

    /// From text.
    ///
    /// # Errors
    /// Number of the line that is wrong, counted from 1, and how.
    pub fn from_text(text: &str) -> Result<Recorded, (usize, String)> {
        let mut lines = text.lines().enumerate().map(|(nr, line)| (nr + 1, line));
        if lines.next().map(|(_, line)| line) != Some(HEAD) {
            return Err((1, format!("a record of read-ahead begins with `{HEAD}`")));
        }
        let mut recorded = Recorded::default();
        for (nr, line) in lines.by_ref() {
            if line.is_empty() {
                break;
            }
            recorded.fact(line).map_err(|message| (nr, message))?;
        }
        for (nr, line) in lines {
            let (line, n) = Line::parse(line).ok_or_else(|| (nr, format!("`{line}` is not a line of a record")))?;
            recorded.lines.extend((0..n).map(|ahead| line.moved(ahead)));
        }
        Ok(recorded)
    }

    fn fact(&mut self, line: &str) -> Result<(), String> {
        let Some((name, value)) = line.split_once(' ') else { return Err(format!("`{line}` has no value")) };
        let number = || value.parse::<u64>().map_err(|_| format!("`{value}` is not a number"));
        match name {
            "job" => self.job = value.to_owned(),
            "kernel" => self.kernel = value.to_owned(),
            "filesystem" => self.filesystem = value.to_owned(),
            "file_bytes" => self.file_bytes = number()?,
            "ra_pages" => self.ra_pages = number()?,
            "io_pages" => self.io_pages = number()?,
            "max_folio_order" => {
                self.max_folio_order =
                    number()?.try_into().ok().filter(|order| *order < 20).ok_or("no folio is that large")?;
            }
            "max_segments" => self.max_segments = number()?,
            "block_bytes" => {
                self.block_bytes = number()?;
                if !(self.block_bytes.is_power_of_two() && (512..=1 << 16).contains(&self.block_bytes)) {
                    return Err(format!("no block has {value} bytes"));
                }
            }
            "tail_bytes" => self.tail_bytes = number()?,
            "holes" => self.holes = number()? > 0,
            "lost" => self.lost = number()?,
            _ => return Err(format!("no fact `{name}`")),
        }
        Ok(())
    }
}

/// How many of the first lines are folios side by side, added or removed by the same task.
fn run(lines: &[Line]) -> usize {
    let first = lines[0];
    let side_by_side = |(ahead, line): &(usize, &Line)| **line == first.moved(*ahead as u64);
    match first.what {
        What::Add { .. } | What::Remove { .. } => {
            lines.iter().enumerate().take(MOST_FOLIOS as usize).take_while(side_by_side).count()
        }
        _ => 1,
    }
}

impl Line {
    /// The same folio `ahead` folios further on.
    fn moved(self, ahead: u64) -> Line {
        let what = match self.what {
            What::Add { index, order } => What::Add { index: index + (ahead << order), order },
            What::Remove { index, order } => What::Remove { index: index + (ahead << order), order },
            what => what,
        };
        Line { what, ..self }
    }

    fn write(&self, n: usize, out: &mut String) {
        let (letter, rest) = match self.what {
            What::Read { fd, offset, len_bytes } => ('r', format!("{fd} {offset} {len_bytes}")),
            What::Write { fd } => ('w', format!("{fd}")),
            What::Advise { fd, hint, offset, len_bytes } => ('f', format!("{fd} {} {offset} {len_bytes}", hint.word())),
            What::MapAdvice { first, last, hint } => ('m', format!("{} {first} {last}", hint.word())),
            What::End { result } => ('e', format!("{result}")),
            What::Sync(input) => ('s', state(&input)),
            What::Async(input) => ('a', state(&input)),
            What::Order { index, order, size, async_size, ra_pages } => {
                ('d', format!("{index} {order} {size} {async_size} {ra_pages}"))
            }
            What::Unbounded { index, nr_pages, lookahead } => ('u', format!("{index} {nr_pages} {lookahead}")),
            What::Add { index, order } => ('+', format!("{index} {order}")),
            What::Remove { index, order } => ('-', format!("{index} {order}")),
            What::Bio { sector, bytes } => ('b', format!("{sector} {bytes}")),
            What::Split { sector, rest } => ('x', format!("{sector} {rest}")),
            What::Issue { sector, bytes } => ('i', format!("{sector} {bytes}")),
            What::Fault { index } => ('p', format!("{index}")),
            What::Get { index, last } => ('g', format!("{index} {last}")),
        };
        let times = if n > 1 { format!(" x{n}") } else { String::new() };
        let _ = writeln!(out, "{letter} {} {rest}{times}", self.task);
    }

    /// A line, and how many it stands for.
    fn parse(text: &str) -> Option<(Line, u64)> {
        let mut words = text.split(' ');
        let (letter, task) = (words.next()?, words.next()?.parse().ok()?);
        let mut words: Vec<&str> = words.collect();
        let mut times = 1;
        if let Some(n) = words.last().and_then(|word| word.strip_prefix('x')) {
            times = n.parse().ok().filter(|n| (1..=MOST_FOLIOS).contains(n))?;
            words.pop();
        }
        let mut hint = Hint::Other;
        let of_hint = match letter {
            "f" => Some(1),
            "m" => Some(0),
            _ => None,
        };
        if let Some(at) = of_hint.filter(|at| *at < words.len()) {
            let word = words.remove(at);
            hint = HINTS.iter().find(|(_, known)| *known == word)?.0;
        }
        // Offsets may have 64 bits, and only the position before a read may be negative.
        let numbers: Vec<i128> = words.iter().map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let word = |nr: usize| u64::try_from(numbers[nr]).ok();
        let half = |nr: usize| u32::try_from(numbers[nr]).ok();
        let page = |nr: usize| word(nr).filter(|page| *page < MOST_PAGES);
        let order = |nr: usize| u8::try_from(numbers[nr]).ok().filter(|order| *order < 20);
        let fd = numbers.first().and_then(|fd| i32::try_from(*fd).ok());
        let what = match (letter, numbers.len()) {
            ("r", 3) => What::Read { fd: fd?, offset: word(1)?, len_bytes: word(2)? },
            ("w", 1) => What::Write { fd: fd? },
            ("f", 3) => What::Advise { fd: fd?, hint, offset: word(1)?, len_bytes: word(2)? },
            ("m", 2) => What::MapAdvice { first: word(0)?, last: word(1)?, hint },
            ("e", 1) => What::End { result: i64::try_from(numbers[0]).ok()? },
            ("s" | "a", 8) => {
                let input = RaInput {
                    index: word(0)?,
                    req_count: word(1)?,
                    order: half(2)?,
                    size: half(3)?,
                    async_size: half(4)?,
                    ra_pages: half(5)?,
                    mmap_miss: half(6)?,
                    prev_pos: i64::try_from(numbers[7]).ok()?,
                };
                if letter == "s" { What::Sync(input) } else { What::Async(input) }
            }
            ("d", 5) => What::Order {
                index: word(0)?,
                order: half(1)?,
                size: half(2)?,
                async_size: half(3)?,
                ra_pages: half(4)?,
            },
            ("u", 3) => What::Unbounded { index: word(0)?, nr_pages: word(1)?, lookahead: word(2)? },
            ("+", 2) => What::Add { index: page(0)?, order: order(1)? },
            ("-", 2) => What::Remove { index: page(0)?, order: order(1)? },
            ("b", 2) => What::Bio { sector: word(0)?, bytes: half(1)? },
            ("x", 2) => What::Split { sector: word(0)?, rest: word(1)? },
            ("i", 2) => What::Issue { sector: word(0)?, bytes: half(1)? },
            ("p", 1) => What::Fault { index: word(0)? },
            ("g", 2) => What::Get { index: word(0)?, last: word(1)? },
            _ => return None,
        };
        let line = Line { task, what };
        (times == 1 || matches!(what, What::Add { .. } | What::Remove { .. })).then_some((line, times))
    }
}

fn state(input: &RaInput) -> String {
    let RaInput { index, req_count, order, size, async_size, ra_pages, mmap_miss, prev_pos } = input;
    format!("{index} {req_count} {order} {size} {async_size} {ra_pages} {mmap_miss} {prev_pos}")
}

/// The first two numbers of a release.
pub fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

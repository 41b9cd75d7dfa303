//! Stacks of tasks that begin to wait: which functions have called one another until then.
//!
//! ```text
//! recorded   a program on the scheduler's switches records return addresses, by frame pointers, the innermost
//!            [`DEEP`], and the words on top of the stack
//! mapped     the reading thread looks at /proc/PID/maps at the first stack of a process, after an exec, and where an
//!            address is in no known mapping, at most every 100 ms: nobody knows them once the process has ended
//! named      when the capture is over: a place in a file becomes an address of its program headers, and that a
//!            function of `.symtab` or `.dynsym`; what has no name is FILE+0xOFFSET, Rust's names are demangled
//! record     `iowhy:stack`, before the switch: frames=OUTERMOST;..;INNERMOST, without spaces
//! ```
//! A library's stub of a system call has no frame of its own, so that frame pointers leave out who has called it: where
//! the next frame is of another file, the first word on top of the stack that stands behind a call instruction is that
//! caller. An address outside of all code ends a stack.
//!
//! Source: `Documentation/bpf`, proc_pid_maps(5), elf(5). Known limits: code without frame pointers (most libraries of
//! distributions, C and C++ with -O2) has short stacks, in which callers are missing; a word that an earlier call has
//! left on top of the stack may be taken for the caller of a stub; separate debug information and maps that compilers
//! at run time write (`/tmp/perf-PID.map`) are not read; names of C++ stay mangled; a process that ends before its
//! mappings are read (within 20 ms) has `[unknown]` alone, and a file that was replaced meanwhile lacks names; the
//! estimate of a recording's cost leaves out that a stack takes longer than other events.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use iowhy_stack::trace::{Record, Seen};
use object::read::ReadCache;
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

use super::format::Values;

/// The name of the records of stacks.
pub(super) const STACK_NAME: &str = "iowhy:stack";
/// Numbers of the program's records of renamed tasks and of stacks.
pub(super) const RENAMING: u16 = 26;
pub(super) const STACKED: u16 = 27;

/// The most frames of a stack, as in the program.
const DEEP: usize = 24;
/// The frame outside of a stack that has more than that.
const DEEPER: &str = "[deeper]";
/// The frame of a process of which nothing is known any more.
const UNKNOWN: &str = "[unknown]";
/// How long an unknown address lets a process's mappings be read again, ns.
const AGAIN: u64 = 100_000_000;
/// The most looks at one process that are kept, and processes that are looked at.
const LOOKS: usize = 64;
const PROCESSES: usize = 4096;
/// The longest name of a frame, characters.
const LONGEST: usize = 160;
/// Bytes before a return address that tell a call, at most.
const CALL: usize = 6;

/// Code of a file in the memory of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    /// Its first address, and the one behind its last.
    from: u64,
    to: u64,
    /// Where it begins in the file, bytes.
    offset: u64,
    ino: u64,
    path: String,
}

/// The code that a process had mapped from a time on.
#[derive(Clone, Debug)]
struct Look {
    /// CLOCK_MONOTONIC, ns.
    since: u64,
    parts: Vec<Part>,
}

impl Look {
    fn part(&self, address: u64) -> Option<&Part> {
        let after = self.parts.partition_point(|part| part.to <= address);
        self.parts.get(after).filter(|part| part.from <= address)
    }
}

/// A process with stacks.
#[derive(Clone, Debug, Default)]
struct Process {
    looks: Vec<Look>,
    /// When its mappings were read last.
    asked: u64,
    /// It may be another program since.
    renamed: bool,
}

/// Mappings of processes, read while they live.
#[derive(Clone, Debug, Default)]
pub(super) struct Mappings {
    processes: HashMap<u32, Process>,
}

/// The parts of a text of `/proc/PID/maps` that hold code, in the order of their addresses.
fn parse(text: &str) -> Vec<Part> {
    let part = |line: &str| {
        let mut words = line.splitn(6, ' ');
        let (from, to) = words.next()?.split_once('-')?;
        let number = |word: &str| u64::from_str_radix(word, 16).ok();
        words.next().filter(|rights| rights.as_bytes().get(2) == Some(&b'x'))?;
        let offset = number(words.next()?)?;
        let ino = words.nth(1)?.parse().ok()?;
        let path = words.next().unwrap_or_default().trim().to_owned();
        Some(Part { from: number(from)?, to: number(to)?, offset, ino, path })
    };
    text.lines().filter_map(part).collect()
}

impl Mappings {
    /// Notes that a process may run another program from now on.
    pub(super) fn renamed(&mut self, pid: u32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.renamed = true;
        }
    }

    /// Looks at the process of a stack recorded at `time`, CLOCK_MONOTONIC, ns, if its addresses are not known.
    pub(super) fn stack(&mut self, time: u64, pid: u32, mut calls: impl Iterator<Item = u64>) {
        if self.processes.len() >= PROCESSES && !self.processes.contains_key(&pid) {
            return;
        }
        let process = self.processes.entry(pid).or_default();
        let due = match process.looks.last() {
            None => process.asked == 0 || time.saturating_sub(process.asked) >= AGAIN,
            Some(_) if process.renamed => true,
            Some(last) => {
                time.saturating_sub(process.asked) >= AGAIN && calls.any(|address| last.part(address).is_none())
            }
        };
        if !due || process.looks.len() >= LOOKS {
            return;
        }
        (process.asked, process.renamed) = (time.max(1), false);
        let Ok(text) = fs::read_to_string(format!("/proc/{pid}/maps")) else { return };
        let parts = parse(&text);
        if !parts.is_empty() && process.looks.last().is_none_or(|last| last.parts != parts) {
            process.looks.push(Look { since: time, parts });
        }
    }

    /// A process's code at a time, CLOCK_MONOTONIC, ns. Events of two CPUs may come in another order than that
    /// of their times, so the first look is also that of what was a little earlier.
    fn at(&self, pid: u32, time: u64) -> Option<&Look> {
        let looks = &self.processes.get(&pid)?.looks;
        looks.get(looks.partition_point(|look| look.since <= time).saturating_sub(1))
    }
}

/// The stack of an event of the program, with addresses: its process, its calls, the innermost first, and the words on
/// top of it.
pub(super) fn raw(values: &Values<'_>) -> Option<Seen> {
    let words = |nr: usize| {
        let bytes = values.fields.get(nr)?.as_ref()?.bytes(values.event)?;
        Some(bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default())))
    };
    let mut fields = format!("pid={} calls=", values.get(0)?);
    for address in words(2)?.take(values.or_zero(1) as usize) {
        // Writing to a string does not fail.
        let _ = write!(fields, "{address:x};");
    }
    fields.push_str(" top=");
    for word in words(3)? {
        let _ = write!(fields, "{word:x};");
    }
    Some(Seen::Other { name: STACK_NAME.to_owned(), fields })
}

/// A stack with addresses.
#[derive(Debug, Default)]
struct Addresses {
    pid: u32,
    calls: Vec<u64>,
    top: Vec<u64>,
}

impl Addresses {
    /// Reads what [`raw`] wrote.
    fn read(fields: &str) -> Addresses {
        let mut all = Addresses::default();
        let list = |text: &str| text.split(';').filter_map(|word| u64::from_str_radix(word, 16).ok()).collect();
        for (key, value) in fields.split(' ').filter_map(|field| field.split_once('=')) {
            match key {
                "pid" => all.pid = value.parse().unwrap_or(0),
                "calls" => all.calls = list(value),
                _ => all.top = list(value),
            }
        }
        all
    }
}

/// A file that code is mapped of: its path and inode, as the mapping of a process has them.
type Mapped<'a> = (&'a str, u64);

/// Opens a mapped file; nothing if there is another one in its place. It never waits: that may be a pipe.
fn open((path, ino): Mapped<'_>, pid: u32) -> Option<File> {
    let there = format!("/proc/{pid}/root{path}");
    [there.as_str(), path].into_iter().filter(|path| path.starts_with('/')).find_map(|path| {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
        let found = file.metadata().ok()?;
        (found.is_file() && found.ino() == ino).then_some(file)
    })
}

/// Whether the bytes in front of an address are an instruction that calls.
fn is_call(before: &[u8]) -> bool {
    if cfg!(target_arch = "aarch64") {
        let Some(word) = before.last_chunk().map(|word| u32::from_le_bytes(*word)) else { return false };
        return word >> 26 == 0x25 || word & 0xffff_fc1f == 0xd63f_0000;
    }
    let byte = |back: usize| before.len().checked_sub(back).map_or(0, |at| before[at]);
    // A call to a place of the file, or FF with 2 in the middle of the next byte: through a register or memory.
    byte(5) == 0xe8 || [6, 3, 2].iter().any(|back| byte(*back) == 0xff && byte(back - 1) & 0x38 == 0x10)
}

/// A function's name as it is shown: without what separates frames and fields.
fn shown(name: &str) -> String {
    let name = format!("{:#}", rustc_demangle::demangle(name));
    let clean = |c: char| if c == ';' || c.is_whitespace() || c.is_control() { '_' } else { c };
    name.chars().map(clean).take(LONGEST).collect()
}

/// The better of two names for one place: `read` rather than `__libc_read`.
fn better<'a>(a: &'a str, b: &'a str) -> &'a str {
    let rank = |name: &'a str| (name.len() - name.trim_start_matches('_').len(), name.len(), name);
    if rank(b) < rank(a) { b } else { a }
}

/// Names of the functions at these places of an ELF file, bytes from its begin.
fn functions(file: File, places: &[u64]) -> BTreeMap<u64, String> {
    let cache = ReadCache::new(file);
    let Ok(elf) = object::File::parse(&cache) else { return BTreeMap::new() };
    let address = |place: u64| {
        elf.segments().find_map(|segment| {
            let (offset, bytes) = segment.file_range();
            let within = place.checked_sub(offset).filter(|within| *within < bytes)?;
            Some(segment.address().wrapping_add(within))
        })
    };
    let mut wanted: Vec<(u64, u64)> = places.iter().filter_map(|place| Some((address(*place)?, *place))).collect();
    wanted.sort_unstable();
    let mut found: BTreeMap<u64, String> = BTreeMap::new();
    for symbol in elf.symbols().chain(elf.dynamic_symbols()) {
        if symbol.kind() != SymbolKind::Text || !symbol.is_definition() || symbol.size() == 0 {
            continue;
        }
        let (begin, end) = (symbol.address(), symbol.address().saturating_add(symbol.size()));
        let first = wanted.partition_point(|(address, _)| *address < begin);
        for (_, place) in wanted[first..].iter().take_while(|(address, _)| *address < end) {
            let Ok(name) = symbol.name() else { continue };
            let known = found.entry(*place).or_insert_with(|| name.to_owned());
            if better(known, name) != known {
                name.clone_into(known);
            }
        }
    }
    found.values_mut().for_each(|name| *name = shown(name));
    found
}

/// Names of places in files.
#[derive(Debug, Default)]
struct Names<'a> {
    /// Open files, of which a process has code.
    files: HashMap<Mapped<'a>, Option<File>>,
    /// Places of which names are wanted, and then their names.
    places: HashMap<Mapped<'a>, BTreeMap<u64, String>>,
}

impl<'a> Names<'a> {
    /// Whether the word is an address behind a call.
    fn is_return(&mut self, look: &'a Look, pid: u32, address: u64) -> bool {
        let Some(part) = look.part(address) else { return false };
        let place = address - part.from + part.offset;
        let file = self.files.entry((&part.path, part.ino)).or_insert_with(|| open((&part.path, part.ino), pid));
        let mut before = [0; CALL];
        let begin = place.checked_sub(CALL as u64);
        let read = file.as_ref().zip(begin).and_then(|(file, begin)| file.read_exact_at(&mut before, begin).ok());
        read.is_some() && is_call(&before)
    }

    /// The frames of a stack as parts and places in their files, innermost first.
    fn frames(&mut self, look: &'a Look, stack: &Addresses) -> Vec<(&'a Part, u64)> {
        let file = |address: Option<&u64>| look.part(*address?).map(|part| part.path.as_str());
        let mut calls = stack.calls.clone();
        // Whoever is called by another file and calls into the kernel has no frame, or is alone.
        if file(calls.first()) != file(calls.get(1)) {
            let first = stack.top.iter().copied().find(|word| self.is_return(look, stack.pid, *word));
            calls.splice(1..1, first.filter(|word| calls.get(1) != Some(word)));
        }
        let mut frames = Vec::new();
        for (nr, address) in calls.iter().enumerate() {
            // A return address may be behind the end of a function that calls last.
            let address = address.saturating_sub(u64::from(nr > 0));
            let Some(part) = look.part(address) else { break };
            let place = address - part.from + part.offset;
            self.files.entry((&part.path, part.ino)).or_insert_with(|| open((&part.path, part.ino), stack.pid));
            self.places.entry((&part.path, part.ino)).or_default().insert(place, String::new());
            frames.push((part, place));
        }
        frames
    }

    /// Looks all places up.
    fn find(&mut self) {
        for (of, places) in &mut self.places {
            let Some(file) = self.files.get_mut(of).and_then(Option::take) else { continue };
            let wanted: Vec<u64> = places.keys().copied().collect();
            places.extend(functions(file, &wanted));
        }
    }

    /// The name of a place.
    fn of(&self, part: &Part, place: u64) -> String {
        let known = self.places.get(&(part.path.as_str(), part.ino)).and_then(|places| places.get(&place));
        let file = Path::new(&part.path).file_name().map_or("[anon]".into(), |name| name.to_string_lossy());
        match known.filter(|name| !name.is_empty()) {
            Some(name) => name.clone(),
            None if part.ino == 0 => shown(&file),
            None => format!("{}+{place:#x}", shown(file.trim_end_matches(" (deleted)"))),
        }
    }
}

/// Puts names in place of the addresses of stacks; the trace begins at `start_ns`, CLOCK_MONOTONIC.
pub(super) fn name(records: &mut [Record], mappings: &Mappings, start_ns: u64) {
    let mut names = Names::default();
    let mut stacks = Vec::new();
    for (nr, record) in records.iter().enumerate() {
        let Seen::Other { name, fields } = &record.seen else { continue };
        if name == STACK_NAME {
            let stack = Addresses::read(fields);
            let look = mappings.at(stack.pid, record.at.0.saturating_add(start_ns));
            let frames = look.map_or(Vec::new(), |look| names.frames(look, &stack));
            stacks.push((nr, stack.calls.len() >= DEEP, frames));
        }
    }
    names.find();
    for (nr, deeper, frames) in stacks {
        let mut text: Vec<String> = frames.iter().rev().map(|(part, place)| names.of(part, *place)).collect();
        if text.is_empty() {
            text.push(UNKNOWN.to_owned());
        } else if deeper {
            text.insert(0, DEEPER.to_owned());
        }
        records[nr].seen = Seen::Other { name: STACK_NAME.to_owned(), fields: format!("frames={}", text.join(";")) };
    }
}

#[cfg(test)]
mod tests;

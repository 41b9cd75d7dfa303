//! DiskSim's parameter files: `.parv` or `.diskspecs`, with the `.model` and `.seek` files that they name.
//!
//! A file has blocks, `KIND NAME { key = value, .. }`, whose values are numbers, words, lists, blocks, or `source FILE`
//! for the block in another file. The first disk that is instantiated counts, and the bus that it hangs on.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use iowhy_stack::device::drive::ENTRY;
use iowhy_stack::origin::Options;
use iowhy_stack::surfaces::{Surfaces, Zone};
use iowhy_text::diagnose::{Problem, Problems};

use super::{MOST_BYTES, Text, complete, spec};

/// A place in one of the files.
#[derive(Clone)]
struct At {
    file: Rc<Text>,
    start: usize,
    end: usize,
}

impl At {
    fn put(&self, problem: Problem) -> Problem {
        self.file.at(problem, self.start, self.end)
    }
}

#[derive(Clone)]
enum Value {
    Number(f64),
    Word(String),
    List(Vec<(Value, At)>),
    Block(Block),
}

#[derive(Clone)]
struct Block {
    kind: String,
    name: String,
    at: At,
    fields: Vec<(String, Value, At)>,
}

/// Contents of the files.
#[derive(Default)]
struct Said {
    blocks: Vec<Block>,
    /// Instance and specification.
    instances: Vec<(String, String)>,
    /// The bus that the first disk of the topology hangs on.
    bus_of_disk: Option<(String, String)>,
}

/// Files within files within ...
const DEEPEST: usize = 16;

struct Token<'a> {
    text: &'a str,
    start: usize,
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut at, marks) = (0, "{}[],=;:?");
    while let Some(next) = text[at..].chars().next() {
        let rest = &text[at..];
        let long = match next {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            _ if next.is_whitespace() => next.len_utf8(),
            _ => {
                let word = rest.find(|c: char| c.is_whitespace() || marks.contains(c)).unwrap_or(rest.len());
                let long = word.max(if marks.contains(next) { 1 } else { 0 });
                tokens.push(Token { text: &rest[..long], start: at });
                long
            }
        };
        at += long.max(1);
    }
    tokens
}

struct Parser<'a> {
    file: Rc<Text>,
    folder: PathBuf,
    depth: usize,
    tokens: Vec<Token<'a>>,
    next: usize,
    problems: &'a mut Problems,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.next).map(|token| token.text)
    }

    fn take(&mut self) -> Option<&'a str> {
        let text = self.peek();
        self.next += usize::from(text.is_some());
        text
    }

    fn skip(&mut self, mark: &str) -> bool {
        let there = self.peek() == Some(mark);
        self.next += usize::from(there);
        there
    }

    /// The token that comes next, or the end of the file.
    fn here(&self) -> At {
        let (start, end) = match self.tokens.get(self.next) {
            Some(token) => (token.start, token.start + token.text.len()),
            None => (self.file.text.len(), self.file.text.len()),
        };
        At { file: self.file.clone(), start, end }
    }

    fn wrong(&mut self, message: impl Into<String>) {
        let problem = self.here().put(Problem::error(message));
        self.problems.push(problem);
    }

    /// Words up to a mark, joined as they are written.
    fn words(&mut self) -> String {
        let mut words = Vec::new();
        while let Some(word) = self.peek().filter(|word| !"{}[],=;?".contains(word)) {
            words.push(word);
            self.next += 1;
        }
        words.join(" ")
    }

    fn file_named(&mut self, said: &mut Said) {
        let at = self.here();
        let name = self.take().unwrap_or_default();
        let path = self.folder.join(name);
        if self.depth == DEEPEST {
            self.problems.push(at.put(Problem::error(format!("`{name}`: more than {DEEPEST} files within files"))));
            return;
        }
        match iowhy_text::input::text(&path, MOST_BYTES) {
            Ok(text) => {
                let file = Text { name: path.display().to_string(), text };
                parse(file, &path, self.depth + 1, said, self.problems);
            }
            Err(error) => self.problems.push(at.put(Problem::error(format!("cannot read `{name}`: {error}")))),
        }
    }

    /// `KIND [NAME] {` has been read up to the brace.
    fn block(&mut self, kind: String, name: String, at: At) -> Block {
        let mut fields = Vec::new();
        self.skip("{");
        loop {
            while self.skip(",") || self.skip(";") {}
            if self.skip("}") {
                break;
            }
            let at = self.here();
            let key = self.words();
            if key.is_empty() || !self.skip("=") {
                match self.peek() {
                    None => self.wrong(format!("the block `{kind} {name}` does not end: `}}` is missing")),
                    Some(found) => self.wrong(format!("`{found}` is not a key: `key = value` is expected")),
                }
                if self.take().is_none() {
                    break;
                }
                continue;
            }
            let value_at = self.here();
            match self.value() {
                Some(value) => fields.push((key, value, value_at)),
                None => self.problems.push(at.put(Problem::error(format!("`{key}` has no value")))),
            }
        }
        Block { kind, name, at, fields }
    }

    fn value(&mut self) -> Option<Value> {
        if self.skip("[") {
            let mut values = Vec::new();
            while !self.skip("]") {
                if self.skip(",") {
                    continue;
                }
                let at = self.here();
                match self.value() {
                    Some(value) => values.push((value, at)),
                    None => {
                        self.wrong("the list does not end: `]` is missing");
                        break;
                    }
                }
            }
            return Some(Value::List(values));
        }
        if self.peek() == Some("source") {
            self.next += 1;
            let mut said = Said::default();
            self.file_named(&mut said);
            return Some(said.blocks.pop().map_or(Value::Word(String::new()), Value::Block));
        }
        let at = self.here();
        let word = self.words();
        if self.peek() == Some("{") {
            return Some(Value::Block(self.block(word, String::new(), at)));
        }
        match word.parse() {
            _ if word.is_empty() => None,
            Ok(number) => Some(Value::Number(number)),
            Err(_) => Some(Value::Word(word)),
        }
    }

    fn list_of_words(&mut self) -> Vec<String> {
        let mut words = Vec::new();
        if self.skip("[") {
            while !self.skip("]") && self.peek().is_some() {
                if !self.skip(",") {
                    let word = self.words();
                    if word.is_empty() {
                        self.next += 1;
                    }
                    words.push(word);
                }
            }
        }
        words
    }

    /// `KIND NAME [ KIND NAME [..] .. ]`, after the word topology; what hangs on `bus`.
    fn topology(&mut self, bus: &Option<(String, String)>, said: &mut Said) {
        let kind = self.take().unwrap_or_default().to_owned();
        let name = self.take().unwrap_or_default().to_owned();
        if kind == "disksim_disk" && said.bus_of_disk.is_none() {
            said.bus_of_disk = bus.as_ref().map(|(bus, _)| (bus.clone(), name.clone()));
        }
        let below = if kind == "disksim_bus" { Some((name, kind)) } else { bus.clone() };
        if self.skip("[") {
            while !self.skip("]") && self.peek().is_some() {
                if !self.skip(",") {
                    self.topology(&below, said);
                }
            }
        }
    }
}

fn parse(text: Text, path: &Path, depth: usize, said: &mut Said, problems: &mut Problems) {
    let file = Rc::new(text);
    let folder = path.parent().unwrap_or(Path::new(".")).to_path_buf();
    let mut parser = Parser { file: file.clone(), folder, depth, tokens: tokens(&file.text), next: 0, problems };
    while let Some(word) = parser.peek() {
        let at = parser.here();
        parser.next += 1;
        match word {
            "source" => parser.file_named(said),
            "instantiate" => {
                let instances = parser.list_of_words();
                parser.skip("as");
                let name = parser.take().unwrap_or_default();
                said.instances.extend(instances.into_iter().map(|instance| (instance, name.to_owned())));
            }
            "topology" => parser.topology(&None, said),
            _ => {
                let name = parser.take().unwrap_or_default().to_owned();
                if parser.peek() == Some("{") {
                    let block = parser.block(word.to_owned(), name, at);
                    said.blocks.push(block);
                } else {
                    parser.problems.push(at.put(Problem::error(format!("`{word}` does not begin a block"))));
                    return;
                }
            }
        }
    }
}

/// How a number of DiskSim becomes one of ours.
#[derive(Copy, Clone, PartialEq)]
enum As {
    /// Unchanged.
    Itself,
    /// More than 0: on.
    Switch,
    /// Milliseconds.
    Ms,
    /// Milliseconds of firmware, scaled.
    Overhead,
    /// A share of 1.
    Share,
}

use As::{Itself, Ms, Overhead, Share, Switch};

const DISK: &[(&str, &str, As)] = &[
    ("Max queue length", "queue_depth", Itself),
    ("Per-request overhead time", "request_overhead_ns", Overhead),
    ("Number of buffer segments", "segments", Itself),
    ("Segment size (in blks)", "segment_sectors", Itself),
    ("Use separate write segment", "write_segment", Switch),
    ("Enable caching in buffer", "cache", Switch),
    ("Allow read hits on write data", "hits_on_writes", Switch),
    ("Allow almost read hits", "almost_hits", Switch),
    ("Immed transfer partial hit", "partial_hit_at_once", Switch),
    ("High (read) water mark", "read_water_permille", Share),
    ("Low (write) water mark", "write_water_permille", Share),
    ("Set watermark by reqsize", "water_of_request", Switch),
    ("Buffer continuous read", "read_ahead", Itself),
    ("Maximum read-ahead (blks)", "read_ahead_sectors", Itself),
    ("Minimum read-ahead (blks)", "read_ahead_least_sectors", Itself),
    ("Read-ahead on idle hit", "read_ahead_on_hit", Switch),
    ("Read any free blocks", "free_reads", Switch),
    ("Stop prefetch in sector", "stop_in_sector", Switch),
    ("Fast write level", "fast_writes", Switch),
    ("Combine seq writes", "combine_writes", Switch),
    ("Immediate buffer read", "zero_latency_reads", Switch),
    ("Immediate buffer write", "zero_latency_writes", Switch),
    ("Hold bus entire read xfer", "hold_bus_read", Switch),
    ("Never disconnect", "never_disconnect", Switch),
    ("Read hit over. after read", "read_hit_after_read_ns", Overhead),
    ("Read hit over. after write", "read_hit_after_write_ns", Overhead),
    ("Read miss over. after read", "read_miss_after_read_ns", Overhead),
    ("Read miss over. after write", "read_miss_after_write_ns", Overhead),
    ("Write hit over. after read", "write_hit_after_read_ns", Overhead),
    ("Write hit over. after write", "write_hit_after_write_ns", Overhead),
    ("Write miss over. after read", "write_miss_after_read_ns", Overhead),
    ("Write miss over. after write", "write_miss_after_write_ns", Overhead),
    ("Read completion overhead", "read_completion_ns", Overhead),
    ("Write completion overhead", "write_completion_ns", Overhead),
    ("Data preparation overhead", "data_preparation_ns", Overhead),
    ("Minimum seek delay", "write_seek_least_ns", Ms),
];

/// Keys that the model does not follow where they are not 0.
const DISK_LEFT_OUT: &[&str] = &[
    "Allow sneaky full read hits",
    "Allow sneaky partial read hits",
    "Allow sneaky intermediate read hits",
    "Allow write prebuffering",
    "Preseeking level",
    "Disconnect write if seek",
    "First reselect overhead",
    "Other reselect overhead",
    "Read disconnect afterread",
    "Read disconnect afterwrite",
    "Write disconnect overhead",
    "Extra write disconnect",
];

const MODEL: &[(&str, &str, As)] = &[("Number of data surfaces", "heads", Itself)];

const MECHANICS: &[(&str, &str, As)] = &[
    ("Rotation speed (in rpms)", "rpm", Itself),
    ("Head switch time", "head_switch_ns", Ms),
    ("Add. write settling delay", "write_settle_ns", Ms),
];

const LAYOUT: &[(&str, &str, As)] = &[
    ("LBN-to-PBN mapping scheme", "head_order", Itself),
    ("Sparing scheme used", "spares_per", Itself),
    ("Rangesize for sparing", "range_cylinders", Itself),
];

/// Keys of a zone in the order of `Zone::numbers`.
const ZONE: [&str; 8] = [
    "First cylinder number",
    "Last cylinder number",
    "Blocks per track",
    "Offset of first block",
    "Empty space at zone front",
    "Skew for track switch",
    "Skew for cylinder switch",
    "Number of spares",
];

/// Reads a drive.
pub(super) fn read(file: &Text, path: &Path, problems: &mut Problems) -> Option<Options> {
    let mut said = Said::default();
    let (name, text) = (file.name.clone(), file.text.clone());
    parse(Text { name, text }, path, 0, &mut said, problems);
    let of = |instance: &str| said.instances.iter().find(|(known, _)| known == instance).map(|(_, name)| name);
    let used = |block: &&Block| said.instances.iter().any(|(_, name)| *name == block.name);
    let is_disk = |block: &&Block| block.kind == "disksim_disk";
    let disk = said.blocks.iter().filter(is_disk).find(used).or_else(|| said.blocks.iter().find(is_disk));
    let Some(disk) = disk else {
        problems.push(file.at(Problem::error("it has no `disksim_disk`"), 0, 0));
        return None;
    };
    let bus = said.bus_of_disk.as_ref().and_then(|(bus, _)| of(bus));
    let bus = bus.and_then(|name| said.blocks.iter().find(|block| block.kind == "disksim_bus" && block.name == *name));
    let before = problems.list.len();
    let mut drive = Drive { options: ENTRY.defaults(), scale: 1.0, folder: path.parent()?, problems };
    drive.scale = drive.number(disk, "Time scale for overheads").unwrap_or(1.0);
    drive.fields(disk, DISK);
    drive.bus(disk, bus);
    drive.scheduler(disk);
    drive.left_out(disk);
    let model = drive.block(disk, "Model")?;
    drive.fields(model, MODEL);
    let mechanics = drive.block(model, "Mechanical Model");
    let layout = drive.block(model, "Layout Model");
    let (mechanics, layout) = (mechanics?, layout?);
    drive.fields(mechanics, MECHANICS);
    drive.fields(layout, LAYOUT);
    let seek = drive.seek(mechanics);
    let (zones, places) = drive.zones(layout);
    if drive.problems.any_error_since(before) {
        return None;
    }
    let at = |problem: Problem, zone: Option<usize>| zone.map_or(&layout.at, |zone| &places[zone]).put(problem);
    let Drive { options, problems, .. } = drive;
    complete(options, Surfaces { seek, zones }, false, &at, problems)
}

struct Drive<'a> {
    options: Options,
    scale: f64,
    folder: &'a Path,
    problems: &'a mut Problems,
}

fn field<'b>(block: &'b Block, key: &str) -> Option<(&'b Value, &'b At)> {
    block.fields.iter().rev().find(|(known, ..)| known == key).map(|(_, value, at)| (value, at))
}

impl Drive<'_> {
    fn wrong(&mut self, at: &At, message: String) {
        self.problems.push(at.put(Problem::error(message)));
    }

    fn field<'b>(&mut self, block: &'b Block, key: &str) -> Option<(&'b Value, &'b At)> {
        let found = field(block, key);
        if found.is_none() {
            let name = format!("{} {}", block.kind, block.name);
            let problem = Problem::error(format!("`{}` has no `{key}`", name.trim_end()));
            let known = block.fields.iter().map(|(known, ..)| known.as_str());
            self.problems.push(block.at.put(problem.near(key, known)));
        }
        found
    }

    fn number(&mut self, block: &Block, key: &str) -> Option<f64> {
        let (value, at) = self.field(block, key)?;
        match value {
            Value::Number(number) => Some(*number),
            _ => {
                self.wrong(at, format!("`{key}` is a number"));
                None
            }
        }
    }

    fn block<'b>(&mut self, block: &'b Block, key: &str) -> Option<&'b Block> {
        let (value, at) = self.field(block, key)?;
        match value {
            Value::Block(inner) => Some(inner),
            _ => {
                self.wrong(at, format!("`{key}` is a block, or `source` and the file that has it"));
                None
            }
        }
    }

    fn fields(&mut self, block: &Block, fields: &[(&str, &'static str, As)]) {
        for (key, ours, kind) in fields {
            let (Some(number), Some((_, at))) = (self.number(block, key), field(block, key)) else { continue };
            let number = match kind {
                Itself => number,
                Switch => f64::from(u8::from(number > 0.0)),
                Ms => number * 1e6,
                Overhead => number * 1e6 * self.scale,
                Share => number * 1e3,
            };
            self.set(ours, number, key, at);
        }
    }

    fn set(&mut self, ours: &'static str, number: f64, key: &str, at: &At) {
        let Some(spec) = spec(ours) else { return };
        let rounded = number.round() as i64;
        if rounded < spec.min || rounded > spec.max {
            self.wrong(at, format!("`{key}`: `{ours}` lies between {} and {}, not {rounded}", spec.min, spec.max));
        } else {
            self.options.set(ours, rounded);
        }
    }

    /// A sector takes as long as the slower of bus and drive needs for it.
    fn bus(&mut self, disk: &Block, bus: Option<&Block>) {
        let Some(bulk) = self.number(disk, "Bulk sector transfer time") else { return };
        for (ours, key) in [("bus_read_ns", "Read block transfer time"), ("bus_write_ns", "Write block transfer time")]
        {
            let of_bus = bus.and_then(|bus| self.number(bus, key)).unwrap_or(0.0);
            self.set(ours, bulk.max(of_bus) * 1e6, key, &disk.at);
        }
    }

    fn scheduler(&mut self, disk: &Block) {
        let key = "Scheduling policy";
        let Some(scheduler) = self.block(disk, "Scheduler") else { return };
        let (Some(number), Some((_, at))) = (self.number(scheduler, key), field(scheduler, key)) else { return };
        match number as i64 {
            1 => self.set("scheduling", 0.0, key, at),
            4 | 7 => self.set("scheduling", 1.0, key, at),
            8..=11 => self.set("scheduling", 2.0, key, at),
            other => {
                self.wrong(at, format!("`{key}` {other}: 1 (FCFS), 4 or 7 (SSTF) or 8 to 11 (SPTF) can be followed"))
            }
        }
    }

    fn left_out(&mut self, disk: &Block) {
        for key in DISK_LEFT_OUT {
            if let Some((Value::Number(number), at)) = field(disk, key)
                && *number != 0.0
            {
                self.problems.push(at.put(Problem::warning(format!("`{key}` is not followed"))));
            }
        }
    }

    fn seek(&mut self, mechanics: &Block) -> Vec<(u32, u64)> {
        if let Some((Value::Word(kind), at)) = field(mechanics, "Access time type")
            && kind != "trackSwitchPlusRotation"
        {
            self.wrong(at, format!("`Access time type` {kind}: only trackSwitchPlusRotation can be followed"));
        }
        let Some((Value::Word(kind), at)) = self.field(mechanics, "Seek type") else { return Vec::new() };
        match kind.as_str() {
            "extracted" => self.seek_file(mechanics),
            "hpl" | "hplplus10" => self.seek_formula(mechanics, kind == "hplplus10"),
            other => {
                self.wrong(at, format!("`Seek type` {other}: extracted, hpl or hplplus10 can be followed"));
                Vec::new()
            }
        }
    }

    /// Lines of distance and milliseconds; the first may say how many follow.
    fn seek_file(&mut self, mechanics: &Block) -> Vec<(u32, u64)> {
        let Some((Value::Word(name), at)) = self.field(mechanics, "Full seek curve") else { return Vec::new() };
        let path = self.folder.join(name);
        let text = match iowhy_text::input::text(&path, MOST_BYTES) {
            Ok(text) => text,
            Err(error) => {
                self.wrong(at, format!("cannot read `{name}`: {error}"));
                return Vec::new();
            }
        };
        let file = Text { name: path.display().to_string(), text };
        let (mut rows, mut start) = (Vec::new(), 0);
        for line in file.text.split_inclusive('\n') {
            let from = start;
            start += line.len();
            let mut columns = line.split(',').map(str::trim);
            let (distance, ms) = (columns.next().map(str::parse::<u32>), columns.next().map(str::parse::<f64>));
            match (distance, ms) {
                (Some(Ok(distance)), Some(Ok(ms))) if (0.0..1e6).contains(&ms) => {
                    rows.push((distance, (ms * 1e6).round() as u64));
                }
                _ if line.trim().is_empty() || from == 0 && line.starts_with("Seek distances") => {}
                _ => {
                    let problem = Problem::error("a line has a distance in cylinders, a comma and milliseconds");
                    self.problems.push(file.at(problem, from, start));
                }
            }
        }
        rows
    }

    fn list(&mut self, block: &Block, key: &str, least: usize) -> Vec<f64> {
        let Some((value, at)) = self.field(block, key) else { return Vec::new() };
        let Value::List(values) = value else {
            self.wrong(at, format!("`{key}` is a list"));
            return Vec::new();
        };
        let numbers = values.iter().filter_map(|(value, at)| match value {
            Value::Number(number) => Some(*number),
            _ => {
                self.problems.push(at.put(Problem::error(format!("`{key}` has numbers"))));
                None
            }
        });
        let numbers: Vec<f64> = numbers.collect();
        if numbers.len() < least {
            self.wrong(at, format!("`{key}` has {} numbers: {least} are needed", numbers.len()));
            return Vec::new();
        }
        numbers
    }

    /// Six numbers: a distance, the square root law below it, the linear law from it on, and the time of one cylinder,
    /// or -1; the first ten distances may be listed.
    fn seek_formula(&mut self, mechanics: &Block, first_ten: bool) -> Vec<(u32, u64)> {
        let formula = self.list(mechanics, "HPL seek equation values", 6);
        let ten = if first_ten { self.list(mechanics, "First ten seek times", 10) } else { Vec::new() };
        let [far, base, root, from, slope, one] = formula[..] else { return Vec::new() };
        let ms = |distance: u32| match distance {
            1..=10 if first_ten => ten.get(distance as usize - 1).copied().unwrap_or(0.0),
            1 if one >= 0.0 => one,
            _ if f64::from(distance) < far => base + root * f64::from(distance).sqrt(),
            _ => from + slope * f64::from(distance),
        };
        let last = far.clamp(11.0, 100_000.0) as u32 + 1;
        (1..=last).map(|distance| (distance, (ms(distance) * 1e6).round() as u64)).collect()
    }

    fn zones(&mut self, layout: &Block) -> (Vec<Zone>, Vec<At>) {
        let (mut zones, mut places) = (Vec::new(), Vec::new());
        if let Some((Value::Word(units), at)) = field(layout, "Skew units")
            && units != "sectors"
        {
            self.wrong(at, format!("`Skew units` {units}: only sectors can be followed"));
        }
        let Some((value, at)) = self.field(layout, "Zones") else { return (zones, places) };
        let Value::List(values) = value else {
            self.wrong(at, "`Zones` is a list".to_owned());
            return (zones, places);
        };
        for (value, at) in values {
            let Value::Block(zone) = value else {
                self.wrong(at, "a zone is a block".to_owned());
                continue;
            };
            let numbers = ZONE.map(|key| self.number(zone, key));
            let mut slips: Vec<u64> = self.list(zone, "slips", 0).into_iter().map(|slip| slip as u64).collect();
            slips.sort_unstable();
            slips.dedup();
            if numbers.iter().any(Option::is_none) {
                continue;
            }
            match Zone::of_numbers(numbers.map(|number| number.unwrap_or(0.0) as u64), slips) {
                Some(zone) => zones.push(zone),
                None => self.wrong(at, format!("the numbers of a zone are at most {}", u32::MAX)),
            }
            places.push(at.clone());
        }
        (zones, places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of files of one test.
    fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("iowhy-disksim-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        for (name, text) in files {
            std::fs::write(folder.join(name), text).expect("a file");
        }
        folder
    }

    /// `KEY = VALUE,` for all keys of a disk, some changed.
    fn disk(changes: &[(&str, &str)]) -> String {
        let extra = [("Time scale for overheads", "2.0"), ("Bulk sector transfer time", "0.1")];
        let keys =
            DISK.iter().map(|(key, ..)| (*key, "1")).chain(extra).chain([("Scheduler", "q { Scheduling policy = 8 }")]);
        let text = keys.map(|(key, value)| {
            let value = changes.iter().find(|(known, _)| *known == key).map_or(value, |(_, value)| value);
            format!("   {key} = {value},\n")
        });
        text.collect()
    }

    const MODEL: &str = "dm_disk model { # a comment\n Number of data surfaces = 2,\n Layout Model = dm_layout_g1 {\n\
        LBN-to-PBN mapping scheme = 1, Sparing scheme used = 9, Rangesize for sparing = 1,\n\
        Zones = [ dm_layout_g1_zone {\n\
        First cylinder number = 0, Last cylinder number = 9, Blocks per track = 10, Offset of first block = 0.0,\n\
        Empty space at zone front = 4, Skew for track switch = 3.0, Skew for cylinder switch = 5,\n\
        Number of spares = 2, slips = [ 9, 7 ], defects = [] } ] },\n\
        Mechanical Model = dm_mech_g1 { Access time type = trackSwitchPlusRotation, Seek type = extracted,\n\
        Full seek curve = d.seek, Head switch time = 0.5, Add. write settling delay = -0.25,\n\
        Rotation speed (in rpms) = 6000 } }\n";

    const SEEK: &str = "Seek distances measured: 2\n1,\t1.5\n9, 3.0, 0.1\n";

    fn load(name: &str, files: &[(&str, &str)]) -> (PathBuf, Option<Options>, Vec<String>) {
        let folder = folder(name, files);
        let mut problems = Problems::default();
        let found = super::super::load(&folder.join(files[0].0), &mut problems);
        let shown = |problem: Problem| problem.message.replace(&format!("{}/", folder.display()), "");
        (folder.clone(), found, problems.list.into_iter().map(shown).collect())
    }

    #[test]
    fn a_drive_is_read_with_the_files_and_the_bus_that_belong_to_it() {
        let bus = |name, time| {
            format!("disksim_bus {name} {{ Read block transfer time = {time}, Write block transfer time = 0.0 }}\n")
        };
        let parv = format!(
            "{}{}disksim_disk OTHER {{ }}\nsource d.diskspecs\ninstantiate [ bus0 ] as B\n\
             instantiate [disk0, disk1] as D\n\
             instantiate [ bus1 ] as C\ntopology disksim_iodriver driver0 [ disksim_bus bus0 [ disksim_ctlr c [\n\
             disksim_bus bus1 [ disksim_disk disk0 [], disksim_disk disk1 [] ] ] ] ]\n",
            bus("B", "9.0"),
            bus("C", "0.2")
        );
        let changes = [("High (read) water mark", "0.5"), ("Fast write level", "2"), ("Buffer continuous read", "4")];
        let specs = format!("disksim_disk D {{ Model = source d.model,\n{} Preseeking level = 1 }}\n", disk(&changes));
        let files = [("d.parv", &*parv), ("d.diskspecs", &*specs), ("d.model", MODEL), ("d.seek", SEEK)];
        let (folder, found, problems) = load("whole", &files);
        std::fs::remove_dir_all(folder).expect("removed");
        assert_eq!(problems, ["d.diskspecs:41:21: `Preseeking level` is not followed"]);
        let options = found.expect("a drive");
        for (name, value) in [
            ("rpm", 6_000),
            ("heads", 2),
            ("head_order", 1),
            ("spares_per", 9),
            ("head_switch_ns", 500_000),
            ("write_settle_ns", -250_000),
            ("bus_read_ns", 200_000),
            ("bus_write_ns", 100_000),
            ("read_hit_after_read_ns", 2_000_000),
            ("write_seek_least_ns", 1_000_000),
            ("read_water_permille", 500),
            ("fast_writes", 1),
            ("read_ahead", 4),
            ("scheduling", 2),
            ("nr_sectors", 200 - 4 - 2),
        ] {
            assert_eq!(options.get(name), value, "{name}");
        }
        let zone = Zone {
            last_cylinder: 9,
            sectors_per_track: 10,
            reserved_sectors: 4,
            track_skew_sectors: 3,
            cylinder_skew_sectors: 5,
            spares: 2,
            slips: vec![7, 9],
            ..Zone::default()
        };
        let surfaces = options.surfaces().expect("tables");
        assert_eq!((&surfaces.seek[..], &surfaces.zones[..]), (&[(1, 1_500_000), (9, 3_000_000)][..], &[zone][..]));
    }

    #[test]
    fn formulas_of_seek_times_become_a_table() {
        let ten = (1..=10).map(|ms| format!("{ms}.0")).collect::<Vec<_>>().join(", ");
        let formula = format!(
            "Seek type = hplplus10, HPL seek equation values = [ 13, 2.0, 1.0, 5.0, 0.5, -1.0 ], \
             First ten seek times = [{ten}]"
        );
        let model = MODEL.replace("Seek type = extracted", &formula);
        let specs = format!("disksim_disk D {{ Model = source d.model,\n{} }}\n", disk(&[]));
        let (folder, found, problems) = load("formula", &[("d.diskspecs", &*specs), ("d.model", &*model)]);
        std::fs::remove_dir_all(folder).expect("removed");
        assert_eq!(problems, [""; 0]);
        let options = found.expect("a drive");
        let seek = &options.surfaces().expect("tables").seek;
        assert_eq!(seek[9..], [(10, 10_000_000), (11, 5_316_625), (12, 5_464_102), (13, 11_500_000), (14, 12_000_000)]);
    }

    #[test]
    fn mistakes_are_reported_all_at_once_with_file_line_and_column() {
        let changes = [
            ("Never disconnect", "often"),
            ("Segment size (in blks)", "-1"),
            ("Scheduler", "q { Scheduling policy = 2 }"),
        ];
        let specs = format!("disksim_disk D {{ Model = source d.model,\n{} }}\n", disk(&changes));
        let model = MODEL.replace("Rotation speed (in rpms)", "Rotation speed").replace("Blocks per track = 10,", "");
        let files = [("d.diskspecs", &*specs), ("d.model", &*model), ("d.seek", "1, 2.0\nx, 3\n")];
        let (folder, found, problems) = load("mistakes", &files);
        std::fs::remove_dir_all(folder).expect("removed");
        assert_eq!(found, None);
        assert_eq!(
            problems,
            [
                "d.diskspecs:5:29: `Segment size (in blks)`: `segment_sectors` lies between 1 and 16777216, not -1",
                "d.diskspecs:25:23: `Never disconnect` is a number",
                "d.diskspecs:40:40: `Scheduling policy` 2: 1 (FCFS), 4 or 7 (SSTF) or 8 to 11 (SPTF) can be followed",
                "d.model:9:20: `dm_mech_g1` has no `Rotation speed (in rpms)`",
                "d.seek:2:1: a line has a distance in cylinders, a comma and milliseconds",
                "d.model:5:11: `dm_layout_g1_zone` has no `Blocks per track`",
            ]
        );
        for (text, expected) in [
            ("disksim_disk D { a = 1\n", "d.parv:2:1: the block `disksim_disk D` does not end: `}` is missing"),
            ("disksim_disk D { = 1 }\n", "d.parv:1:18: `=` is not a key: `key = value` is expected"),
            (
                "source gone.diskspecs\n",
                "d.parv:1:8: cannot read `gone.diskspecs`: No such file or directory (os error 2)",
            ),
            ("source d.parv\n", "d.parv:1:8: `d.parv`: more than 16 files within files"),
            ("x\n", "d.parv:1:1: `x` does not begin a block"),
            ("\n", "d.parv:1:1: it has no `disksim_disk`"),
        ] {
            let (folder, found, problems) = load("syntax", &[("d.parv", text)]);
            std::fs::remove_dir_all(folder).expect("removed");
            assert_eq!((found, problems.first().map(String::as_str)), (None, Some(expected)), "{text}");
        }
    }
}

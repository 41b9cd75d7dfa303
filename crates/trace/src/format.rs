//! Forms in which traces are kept.
//!
//! [`FORMATS`] is the table of files that a trace is read from and written to; [`read`] and [`load`] find out which one
//! a file has.

use std::io::{self, Read, Write};
use std::path::Path;

use iowhy_stack::trace::Trace;
use iowhy_stack::units::Nanos;
use iowhy_text::diagnose::{Problem, Problems, Span};

use crate::public::{self, Source};

pub mod alibaba;
pub mod blkparse;
pub mod blktrace;
pub mod disksim;
pub mod enterprise;
pub mod fiu;
pub mod iolog;
pub mod msr;
pub mod oracle_general;
pub mod perfetto;
pub mod tencent;
pub mod trace_csv;
pub mod trace_parquet;
pub mod tracefs_text;
pub mod twitter;
pub mod vscsi;

/// Reads a trace from the bytes of a file of this name. Mistakes go into the problems; the readable rest is the result.
pub type Reader = fn(&str, &[u8], &mut Problems) -> Option<Trace>;

pub type Writer = fn(&Trace, &mut dyn Write) -> io::Result<()>;

/// One file of several that a trace is in.
#[derive(Copy, Clone, Debug)]
pub struct Part<'a> {
    pub name: &'a str,
    /// Contents.
    pub bytes: &'a [u8],
}

/// Reads a trace from several files (blktrace's, one for each CPU).
pub type PartsReader = fn(&[Part<'_>], &mut Problems) -> Option<Trace>;

/// Creates a file with these contents; the caller decides what may be replaced.
pub type Create<'a> = &'a mut dyn FnMut(&Path, &[u8]) -> io::Result<()>;

/// Writes a trace as several files.
pub type FilesWriter = fn(&Trace, &Path, Create<'_>) -> io::Result<u64>;

/// A form in which traces are kept.
#[derive(Debug)]
pub struct Format {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// How names of such files end, without the dot; the first is the usual one.
    pub extensions: &'static [&'static str],
    /// Whether a file of this name that begins with these bytes has this form.
    pub detect: fn(&str, &[u8]) -> bool,
    /// How it is read.
    pub read: Reading,
    /// How it is written.
    pub write: Writing,
}

/// How a form is read.
#[derive(Copy, Clone, Debug)]
pub enum Reading {
    /// Not at all.
    Never,
    /// From one file.
    One(Reader),
    /// From one file or several.
    Parts(PartsReader),
    /// From one file, record by record: a public trace.
    Stream(&'static Source),
}

/// How a form is written.
#[derive(Copy, Clone, Debug)]
pub enum Writing {
    /// Not at all.
    Never,
    /// As one file.
    One(Writer),
    /// As one file to standard output, and else as the several files it usually is in, below a common name. Those yield
    /// the number of records that have no form there.
    Parts(Writer, FilesWriter),
}

impl Format {
    /// The form of a public trace, which is read record by record.
    const fn public(source: &'static Source, summary: &'static str, detect: fn(&str, &[u8]) -> bool) -> Format {
        let (read, write) = (Reading::Stream(source), Writing::Never);
        Format { name: source.name, summary, extensions: &[], detect, read, write }
    }

    /// Whether such files can be read.
    pub fn is_read(&self) -> bool {
        !matches!(self.read, Reading::Never)
    }

    /// Reads one file.
    pub fn read_one(&self, name: &str, bytes: &[u8], problems: &mut Problems) -> Option<Trace> {
        match self.read {
            Reading::One(read) => read(name, bytes, problems),
            Reading::Parts(read) => read(&[Part { name, bytes }], problems),
            Reading::Stream(_) => {
                let text = format!("`{name}` is a public trace ({}), which is read from a file", self.name);
                problems.push(Problem::error(text).at(Span::whole(name)));
                None
            }
            Reading::Never => None,
        }
    }

    /// Whether such files can be written.
    pub fn is_written(&self) -> bool {
        !matches!(self.write, Writing::Never)
    }

    /// Writes a trace as one file.
    pub fn write_one(&self, trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
        match self.write {
            Writing::One(write) | Writing::Parts(write, _) => write(trace, out),
            Writing::Never => Err(io::Error::other(format!("{} is not written", self.name))),
        }
    }
}

/// Every form. The first that recognises a file reads it.
pub const FORMATS: &[&Format] = &[
    &trace_parquet::FORMAT,
    &perfetto::FORMAT,
    &trace_csv::FORMAT,
    &iolog::FORMAT,
    &iolog::FORMAT_2,
    &blktrace::FORMAT,
    &blkparse::FORMAT,
    &disksim::FORMAT,
    &msr::FORMAT,
    &enterprise::FORMAT,
    &fiu::FORMAT,
    &alibaba::FORMAT,
    &tencent::FORMAT,
    &twitter::FORMAT,
    &vscsi::FORMAT,
    &oracle_general::FORMAT,
    &tracefs_text::FORMAT,
];

/// The form of this name.
pub fn format(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name == name).copied()
}

/// The form that the name of a file to write asks for by its end.
pub fn format_of_name(file: &str) -> Option<&'static Format> {
    let end = |end: &&str| file.len() > end.len() + 1 && file.ends_with(&format!(".{end}"));
    FORMATS.iter().find(|format| format.extensions.iter().any(end)).copied()
}

/// The form of a file that there is.
pub fn detect(name: &str, bytes: &[u8]) -> Option<&'static Format> {
    let fits = |format: &&&Format| format.is_read() && (format.detect)(name, bytes);
    FORMATS.iter().find(fits).copied()
}

/// Reads the trace that is in these bytes, in whatever form.
pub fn read(name: &str, bytes: &[u8], problems: &mut Problems) -> Option<Trace> {
    let Some(format) = detect(name, bytes) else {
        problems.push(unknown(name));
        return None;
    };
    let found = format.read_one(name, bytes, problems);
    found.map(|trace| plausible(name, trace, problems))
}

/// Times beyond this, 146 years, are damage: nothing adds up with them.
const LATEST: Nanos = Nanos(1 << 62);

/// Leaves out records that cannot be true, with a warning.
fn plausible(name: &str, mut trace: Trace, problems: &mut Problems) -> Trace {
    let all = trace.records.len();
    let first = trace.records.iter().position(|record| record.at > LATEST);
    if let Some(first) = first {
        let at = trace.records[first].at.0;
        trace.records.retain(|record| record.at <= LATEST);
        let left_out = iowhy_text::count((all - trace.records.len()) as u64, "record", "records");
        let text = format!("record {} of {all} has the time {at} ns, beyond 146 years; {left_out} left out", first + 1);
        problems.push(Problem::error(text).at(Span::whole(name)));
    }
    let beyond = trace.records.iter_mut().filter_map(|record| record.seen.bound().then_some(())).count();
    if beyond > 0 {
        let many = iowhy_text::count(beyond as u64, "record has", "records have");
        let text = format!("{many} a place or a length beyond 2^62 bytes, which counts as 2^62");
        problems.push(Problem::warning(text).at(Span::whole(name)));
    }
    trace
}

/// The longest file of a trace that is read; it is held in memory.
const MOST_BYTES: u64 = 16 << 30;

/// Reads the trace in a file. If the form has a file for each CPU, and the name ends in a number, its siblings with
/// other numbers are read as well; if that file does not exist, but some with numbers behind the name do
/// (`NAME.blktrace.0`), those are.
pub fn load(path: &Path, problems: &mut Problems) -> Option<Trace> {
    load_as(path, None, problems)
}

/// The public trace that a file is, of this form or of the one that it looks like.
pub fn public_of(path: &Path, form: Option<&Format>) -> Option<&'static Source> {
    let mut head = Vec::new();
    let read = |head: &mut Vec<u8>| std::fs::File::open(path)?.take(public::HEAD as u64).read_to_end(head);
    let found = match form {
        Some(format) => Some(format.read),
        None if !path.is_file() || read(&mut head).is_err() => None,
        None => detect(&path.to_string_lossy(), &head).map(|format| format.read),
    };
    match found {
        Some(Reading::Stream(source)) => Some(source),
        _ => None,
    }
}

/// [`load`] of a file in this form, whatever it looks like.
pub fn load_as(path: &Path, form: Option<&'static Format>, problems: &mut Problems) -> Option<Trace> {
    let name = path.display().to_string();
    if let Some(source) = public_of(path, form) {
        return public::places::trace(path, source, problems).map(|trace| plausible(&name, trace, problems));
    }
    let parts = if path.exists() { siblings(path) } else { numbered(path) };
    let mut files = Vec::new();
    for part in if parts.is_empty() { vec![path.to_path_buf()] } else { parts } {
        match iowhy_text::input::bytes(&part, MOST_BYTES) {
            Ok(bytes) => files.push((part.display().to_string(), bytes)),
            Err(error) => {
                let text = format!("cannot read the trace `{}`: {error}", part.display());
                problems.push(Problem::error(text).at(Span::whole(&name)));
                return None;
            }
        }
    }
    let (first, bytes) = files.first()?;
    let Some(format) = form.or_else(|| detect(first, bytes)) else {
        problems.push(unknown(&name));
        return None;
    };
    let found = if let Reading::Parts(read) = format.read {
        let parts: Vec<Part<'_>> = files.iter().map(|(name, bytes)| Part { name, bytes }).collect();
        read(&parts, problems)
    } else {
        let (name, bytes) = files.iter().find(|(known, _)| *known == name).unwrap_or(&files[0]);
        format.read_one(name, bytes, problems)
    };
    found.map(|trace| plausible(&name, trace, problems))
}

/// Siblings of this file, whose names differ in the number at the end, this one among them; nothing for a name without
/// number.
fn siblings(path: &Path) -> Vec<std::path::PathBuf> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match name.rsplit_once('.') {
        Some((stem, number)) if stem.ends_with(".blktrace") && number.parse::<u32>().is_ok() => {
            numbered(&path.with_file_name(stem))
        }
        _ => Vec::new(),
    }
}

/// The files `PATH.N` or `PATH.blktrace.N`, by number.
fn numbered(path: &Path) -> Vec<std::path::PathBuf> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found: Vec<(u32, std::path::PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let other = entry.file_name();
        let Some(rest) = other.to_str().and_then(|other| other.strip_prefix(name.as_str())) else { continue };
        let rest = rest.strip_prefix(".blktrace").unwrap_or(rest);
        if let Some(number) = rest.strip_prefix('.').and_then(|number| number.parse().ok()) {
            found.push((number, path.with_file_name(other)));
        }
    }
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

fn unknown(name: &str) -> Problem {
    let names: Vec<&str> =
        FORMATS.iter().filter(|format| !matches!(format.read, Reading::Never)).map(|format| format.name).collect();
    Problem::error(format!("`{name}` is not a trace in a known format"))
        .at(Span::whole(name))
        .help(format!("one of {}", names.join(", ")))
}

/// The text that a file of this name begins with. Bytes that are not UTF-8 and all that follow are reported and left
/// out.
fn text_of<'a>(name: &str, bytes: &'a [u8], problems: &mut Problems) -> &'a str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let at = error.valid_up_to();
            let text = format!("{name}: byte {at} and the rest are not text: the part before it was read");
            problems.push(Problem::warning(text));
            std::str::from_utf8(&bytes[..at]).unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_near_the_end_of_time_are_left_out() {
        let at = |at: u64| format!("{at},0,7,issue,8388608,,64,4096,R,,,,,,,,,,,,,,,,,\n");
        let names = "t_ns,cpu,pid,kind,dev,ino,sector,bytes,rwbs,op,fd,offset,len,result,index,count,order,size,\
                     async_size,ra_pages,mmap_miss,prev_pos,from_dev,from_sector,text,fields\n";
        let text = format!("#iowhy-trace,1\n{names}{}{}{}", at(5), at(1 << 62), at(u64::MAX));
        let mut problems = Problems::default();
        let trace = read("t.csv", text.as_bytes(), &mut problems).expect("a trace");
        assert_eq!(trace.records.len(), 2, "{}", problems.render());
        assert!(problems.any_error() && problems.render().contains("record 3 of 3"), "{}", problems.render());
    }

    #[test]
    fn places_near_the_end_of_numbers_are_bounded() {
        let text = format!("fio version 2 iolog\n/x add\n/x open\n/x read {} 4096\n/x read 4096 4096\n", u64::MAX);
        let mut problems = Problems::default();
        let trace = read("t.log", text.as_bytes(), &mut problems).expect("a trace");
        assert!(!problems.any_error() && problems.render().contains("2 records have a place"), "{}", problems.render());
        // Debug builds panic where a sum does not fit.
        assert_eq!(crate::join::join(&trace, &crate::join::Who::default()).calls.len(), 2);
    }
}

//! A trace as CSV: a line for each record, with the columns of [`crate::row`].
//!
//! Properties of the whole trace are in lines before the header, `#name,value,value`: kernel, started, lost, inferred,
//! names of processes, paths of files. Fields with commas, quotes or line ends are in quotes, which are doubled inside
//! (RFC 4180); numbers are decimal; missing fields are empty. Columns are found by their names, so their order is free
//! and others may be among them. Known limit: other programs do not know the lines with `#` (`comment="#"` in pandas,
//! `comment_prefix` in Polars).

use std::io::{self, Write};

use iowhy_stack::trace::{Dev, Inode, Trace};

use super::{Format, Reading, Writing};
use crate::row::{self, KINDS, NR_NUMBERS, NUMBERS, OP, RWBS, Row, TEXTS, rwbs_letters, rwbs_of};
use iowhy_text::diagnose::{Problem, Problems, Span};

/// The form.
pub const FORMAT: Format = Format {
    name: "csv",
    summary: "a line for each record; nothing is lost",
    extensions: &["csv"],
    detect,
    read: Reading::One(read),
    write: Writing::One(|trace, mut out| write(trace, &mut out)),
};

/// Most mistakes that are reported one by one.
const MAX_TOLD: usize = 10;
/// The columns that every record has.
const FIRST: [&str; 4] = ["t_ns", "cpu", "pid", "kind"];

/// Whether a file of this name that begins with these bytes is one.
pub fn detect(_name: &str, bytes: &[u8]) -> bool {
    bytes.starts_with(b"#iowhy-trace,") || bytes.starts_with(b"t_ns,cpu,pid,kind")
}

/// Writes one.
///
/// # Errors
/// The error of `out`.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    let mut out = io::BufWriter::new(out);
    writeln!(out, "#iowhy-trace,1")?;
    writeln!(out, "#kernel,{}", quoted(&trace.kernel))?;
    writeln!(out, "#started_ns,{}", trace.started_ns)?;
    writeln!(out, "#lost,{}", trace.lost)?;
    writeln!(out, "#inferred_windows,{}", trace.inferred_windows)?;
    for (pid, name) in &trace.names {
        writeln!(out, "#name,{pid},{}", quoted(name))?;
    }
    for (file, path) in &trace.paths {
        writeln!(out, "#path,{},{},{}", file.dev.0, file.ino, quoted(path))?;
    }
    let header: Vec<&str> = FIRST.iter().chain(&NUMBERS).chain(&TEXTS).copied().collect();
    writeln!(out, "{}", header.join(","))?;
    for record in &trace.records {
        let row = Row::of(record);
        write!(out, "{},{},{},{}", row.at, row.cpu, row.pid, KINDS[usize::from(row.kind)])?;
        for (column, number) in row.numbers.iter().enumerate() {
            out.write_all(b",")?;
            match (column, number) {
                (_, None) => {}
                (RWBS, Some(bits)) => {
                    out.write_all(rwbs_letters(iowhy_stack::trace::Rwbs(*bits as u16)).as_bytes())?;
                }
                (OP, Some(op)) => {
                    out.write_all(row::op_numbered(*op).map_or("", row::op_word).as_bytes())?;
                }
                (_, Some(number)) => write!(out, "{number}")?,
            }
        }
        for text in &row.texts {
            out.write_all(b",")?;
            if let Some(text) = text {
                out.write_all(quoted(text).as_bytes())?;
            }
        }
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// A text as a field. An empty one is quoted, as nothing is not.
fn quoted(text: &str) -> String {
    let plain = !text.is_empty() && !text.starts_with('#') && !text.contains([',', '"', '\n', '\r']);
    if plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}

/// A field of a line.
struct Field {
    text: String,
    /// An empty text in quotes is a text; without them it is nothing.
    quoted: bool,
    column: usize,
}

/// Lines of fields.
struct Lines<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Lines<'a> {
    /// The fields of the next line with its number and its text; nothing at the end.
    fn next(&mut self) -> Option<(usize, &'a str, Vec<Field>)> {
        if self.at >= self.text.len() {
            return None;
        }
        let (start, number) = (self.at, self.line);
        let bytes = self.text.as_bytes();
        let mut fields = Vec::new();
        loop {
            let begin = self.at;
            let quoted = bytes.get(self.at) == Some(&b'"');
            let mut text = String::new();
            if quoted {
                self.at += 1;
                loop {
                    let rest = &self.text[self.at..];
                    let Some(end) = rest.find('"') else {
                        text.push_str(rest);
                        self.at = bytes.len();
                        break;
                    };
                    text.push_str(&rest[..end]);
                    self.at += end + 1;
                    if bytes.get(self.at) != Some(&b'"') {
                        break;
                    }
                    text.push('"');
                    self.at += 1;
                }
            }
            let rest = &self.text[self.at..];
            let end = rest.find([',', '\n']).unwrap_or(rest.len());
            text.push_str(rest[..end].trim_end_matches('\r'));
            self.at += end;
            fields.push(Field { text, quoted, column: begin - start });
            let next = bytes.get(self.at).copied();
            self.at = (self.at + 1).min(bytes.len());
            if next != Some(b',') {
                break;
            }
        }
        let raw = self.text[start..self.at].trim_end_matches('\n');
        self.line += self.text[start..self.at].matches('\n').count().max(1);
        Some((number, raw, fields))
    }
}

/// Reads one. Meaningless lines are reported and skipped.
pub fn read(name: &str, bytes: &[u8], problems: &mut Problems) -> Option<Trace> {
    let (text, cut) = match std::str::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let at = error.valid_up_to();
            (std::str::from_utf8(&bytes[..at]).unwrap_or_default(), Some(at))
        }
    };
    let mut told = Mistakes { name, nr: 0, problems };
    let mut trace = Trace::default();
    let mut header: Option<Vec<Option<Column>>> = None;
    let mut lines = Lines { text, at: 0, line: 1 };
    while let Some((number, raw, fields)) = lines.next() {
        match &header {
            None if raw.starts_with('#') => {
                if about(&mut trace, &fields).is_none() {
                    told.tell(number, raw, 0, "this says nothing that is known about a trace");
                }
            }
            None => {
                let columns: Vec<Option<Column>> = fields.iter().map(|field| Column::named(&field.text)).collect();
                let missing = FIRST.iter().find(|first| !fields.iter().any(|field| field.text == **first));
                if let Some(missing) = missing {
                    let text = format!("{name}:{number}: a trace has the column `{missing}`, and this header has not");
                    told.problems.push(Problem::error(text).at(clipped(raw, 0)));
                    return None;
                }
                header = Some(columns);
            }
            Some(columns) => match record(columns, &fields) {
                Ok(record) => trace.records.push(record),
                Err((column, text)) => told.tell(number, raw, column, &text),
            },
        }
    }
    told.end();
    if let Some(at) = cut {
        let text = format!("{name}: byte {at} and the rest are not text: the part before it was read");
        problems.push(Problem::warning(text));
    }
    if header.is_none() {
        problems.push(Problem::error(format!("{name}: the header of a trace is missing (`t_ns,cpu,pid,kind,..`)")));
        return None;
    }
    trace.records.sort_by_key(|record| record.at);
    trace.names.sort();
    Some(trace)
}

/// Mistakes, reported up to a number.
struct Mistakes<'a, 'b> {
    name: &'a str,
    nr: usize,
    problems: &'b mut Problems,
}

impl Mistakes<'_, '_> {
    fn tell(&mut self, line: usize, raw: &str, column: usize, text: &str) {
        self.nr += 1;
        if self.nr <= MAX_TOLD {
            let message = format!("{}:{line}:{}: {text}: the line is left out", self.name, column + 1);
            self.problems.push(Problem::warning(message).at(clipped(raw, column)));
        }
    }

    fn end(&mut self) {
        if self.nr > MAX_TOLD {
            let more = self.nr - MAX_TOLD;
            self.problems.push(Problem::warning(format!("{}: {more} more lines have such problems", self.name)));
        }
    }
}

/// The place of a mistake; only a part of a long line is shown.
fn clipped(raw: &str, column: usize) -> Span {
    let shown: String = raw.lines().next().unwrap_or_default().chars().take(160).collect();
    let column = column.min(shown.len());
    let end = shown[column.min(shown.len())..].find(',').map_or(shown.len(), |end| column + end);
    if shown.is_char_boundary(column) { Span::bytes(&shown, column, end) } else { Span::whole(&shown) }
}

/// Meaning of a column.
#[derive(Copy, Clone)]
enum Column {
    At,
    Cpu,
    Pid,
    Kind,
    Number(usize),
    Text(usize),
}

impl Column {
    fn named(name: &str) -> Option<Column> {
        let place = |list: &[&str]| list.iter().position(|known| *known == name);
        match name {
            "t_ns" => Some(Column::At),
            "cpu" => Some(Column::Cpu),
            "pid" => Some(Column::Pid),
            "kind" => Some(Column::Kind),
            _ => place(&NUMBERS).map(Column::Number).or(place(&TEXTS).map(Column::Text)),
        }
    }
}

/// The record of a line, or the byte of its mistake.
fn record(columns: &[Option<Column>], fields: &[Field]) -> Result<iowhy_stack::trace::Record, (usize, String)> {
    let mut row = Row { numbers: [None; NR_NUMBERS], ..Row::default() };
    if fields.len() != columns.len() {
        let text = format!("the header has {} columns, this line {}", columns.len(), fields.len());
        return Err((0, text));
    }
    for (column, field) in columns.iter().zip(fields) {
        let Some(column) = column else { continue };
        let wrong = |what: &str| (field.column, format!("`{}` is {what}", field.text));
        let no_number = || wrong("not a whole number, or too large");
        match column {
            Column::At => row.at = field.text.parse().map_err(|_| no_number())?,
            Column::Cpu => row.cpu = field.text.parse().map_err(|_| no_number())?,
            Column::Pid => row.pid = field.text.parse().map_err(|_| no_number())?,
            Column::Kind => {
                let found = KINDS.iter().position(|kind| *kind == field.text);
                row.kind = found.ok_or_else(|| wrong("not a kind of record"))? as u8;
            }
            Column::Number(_) if field.text.is_empty() => {}
            Column::Number(RWBS) => {
                let rwbs = rwbs_of(&field.text).ok_or_else(|| wrong("none of blkparse's letters"))?;
                row.numbers[RWBS] = Some(i64::from(rwbs.0));
            }
            Column::Number(OP) => {
                let op = row::op_of(&field.text).ok_or_else(|| wrong("not an operation"))?;
                row.numbers[OP] = Some(row::op_number(op));
            }
            Column::Number(number) => {
                row.numbers[*number] = Some(field.text.parse().map_err(|_| no_number())?);
            }
            Column::Text(number) => {
                row.texts[*number] = (field.quoted || !field.text.is_empty()).then(|| field.text.clone());
            }
        }
    }
    row.record().map_err(|column| {
        let kind = KINDS[usize::from(row.kind)];
        (0, format!("a record of the kind `{kind}` needs the column `{column}`, and here it has no value it may have"))
    })
}

/// Takes in a line about the whole trace.
fn about(trace: &mut Trace, fields: &[Field]) -> Option<()> {
    let value = |nr: usize| fields.get(nr).map(|field| field.text.as_str());
    match fields.first()?.text.as_str() {
        "#iowhy-trace" => {}
        "#kernel" => trace.kernel = value(1)?.to_owned(),
        "#started_ns" => trace.started_ns = value(1)?.parse().ok()?,
        "#lost" => trace.lost = value(1)?.parse().ok()?,
        "#inferred_windows" => trace.inferred_windows = value(1)?.parse().ok()?,
        "#name" => trace.names.push((value(1)?.parse().ok()?, value(2)?.to_owned())),
        "#path" => {
            let file = Inode { dev: Dev(value(1)?.parse().ok()?), ino: value(2)?.parse().ok()? };
            trace.paths.push((file, value(3)?.to_owned()));
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::row::drawn;

    fn text(trace: &Trace) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(trace, &mut bytes).expect("memory takes everything");
        bytes
    }

    #[test]
    fn what_is_written_is_read_back() {
        for seed in 0..4 {
            let trace = drawn::trace(seed, 300);
            let mut problems = Problems::default();
            let bytes = text(&trace);
            assert!(detect("x", &bytes));
            assert_eq!(read("x.csv", &bytes, &mut problems).as_ref(), Some(&trace));
            assert_eq!(problems.render(), "");
        }
    }

    #[test]
    fn mistakes_are_told_with_line_and_column_and_the_rest_is_kept() {
        let file = "t_ns,cpu,pid,kind,dev,count,extra\n1,0,5,plug,,,x\n2,0,5,unplug,,nine,x\n3,0,5,unplgu,,1,x\n\
                    4,0,5,unplug,,,x\n5,0,5,unplug,7,2,x\n6,0\n";
        let mut problems = Problems::default();
        let trace = read("t.csv", file.as_bytes(), &mut problems).expect("there is something in it");
        assert_eq!(trace.records.len(), 2);
        let told: Vec<&str> = problems.list.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told[0].starts_with("t.csv:3:15: `nine`"), "{}", told[0]);
        assert!(told[1].starts_with("t.csv:4:7: `unplgu`"), "{}", told[1]);
        assert!(told[2].contains("`count`"), "{}", told[2]);
        assert!(told[3].starts_with("t.csv:7:1: the header has 7 columns"), "{}", told[3]);
    }

    proptest! {
        #[test]
        fn damaged_files_are_no_trouble(
            seed in 0_u64..4,
            cut in 0_usize..9000,
            flips in prop::collection::vec((0_usize..9000, any::<u8>()), 0..6),
        ) {
            let mut bytes = text(&drawn::trace(seed, 60));
            for (at, value) in flips {
                let len = bytes.len();
                bytes[at % len] = value;
            }
            bytes.truncate(cut.max(1));
            let mut problems = Problems::default();
            let read = read("x.csv", &bytes, &mut problems);
            prop_assert!(read.is_some() || problems.any_error());
        }
    }
}

//! A trace as Parquet: a row for each record, with the columns of [`crate::row`].
//!
//! ```text
//! t_ns                  deltas, bit-packed (DELTA_BINARY_PACKED); with zstd only if that takes an eighth off
//! sector, index, ..     deltas; missing values are in levels, which cost nothing without any
//! kind, rwbs, op, ..    dictionaries, as are devices, inodes, processes, sizes
//! pages                 zstd, level 3 (6 for sectors); one for each column of a group of 131,072 rows, where they fit
//! metadata              iowhy.trace = 1, kernel, started_ns, lost, inferred_windows, names, paths (JSON), and hashes
//! ```
//! Any program that knows Parquet reads the file; [`columns`] reads some columns only. The hash of everything that is
//! decoded is checked first. Hashes of the groups of rows and of the table of contents reveal damage before anything is
//! decoded: intact groups are kept. A file that another program has rewritten has no hashes, and is taken as it is.
//! Known limit: the table of contents is at the end, so of a file that was cut nothing can be read.
//!
//! The format: <https://parquet.apache.org/docs/file-format/>.

use std::cell::Cell;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use iowhy_stack::trace::{Dev, Inode, Rwbs, Trace};
use parquet::basic::{Compression, Encoding, Type as Physical, ZstdLevel};
use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use prost::bytes::Bytes;

use super::{Format, Reading, Writing};
use crate::row::{KINDS, NR_NUMBERS, NUMBERS, OP, RWBS, Row, TEXTS, op_number, op_numbered, op_of, op_word};
use crate::row::{rwbs_letters, rwbs_of};
use iowhy_text::diagnose::{Problem, Problems};

/// The form.
pub const FORMAT: Format = Format {
    name: "parquet",
    summary: "columns, compressed; nothing is lost",
    extensions: &["parquet"],
    detect,
    read: Reading::One(read),
    write: Writing::One(|trace, mut out| write(trace, &mut out)),
};

const GROUP_ROWS: usize = 1 << 17;
/// Times that decide whether compression is worth it.
const SAMPLE: usize = 1 << 14;
/// The key in front of the hash of the table of contents in it.
const MARK: &str = "iowhy-sum:";
/// Characters of a hash.
const HASH: usize = 32;
/// Columns whose neighbours are close to one another.
const DELTAS: [&str; 6] = ["t_ns", "sector", "offset", "index", "prev_pos", "from_sector"];
/// The numbers that every record has.
const FIRST: [&str; 3] = ["t_ns", "cpu", "pid"];

/// Whether a file of this name that begins with these bytes is one.
pub fn detect(_name: &str, bytes: &[u8]) -> bool {
    bytes.starts_with(b"PAR1")
}

fn schema() -> String {
    let mut text = String::from("message trace {");
    for name in FIRST {
        text.push_str(&format!(" required int64 {name};"));
    }
    text.push_str(" required binary kind (UTF8);");
    for (number, name) in NUMBERS.iter().enumerate() {
        let of = if matches!(number, RWBS | OP) { format!("binary {name} (UTF8)") } else { format!("int64 {name}") };
        text.push_str(&format!(" optional {of};"));
    }
    for name in TEXTS {
        text.push_str(&format!(" optional binary {name} (UTF8);"));
    }
    text + " }"
}

fn failed(error: ParquetError) -> io::Error {
    io::Error::other(error)
}

fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..HASH].to_owned()
}

/// Writes one.
///
/// # Errors
/// The error of `out`.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    write_in_groups(trace, GROUP_ROWS, out)
}

/// Writes one with groups of `group_rows` rows.
pub(crate) fn write_in_groups(trace: &Trace, group_rows: usize, out: &mut impl Write) -> io::Result<()> {
    let schema = Arc::new(parse_message_type(&schema()).map_err(failed)?);
    let level = ZstdLevel::try_new(3).map_err(failed)?;
    let sector_level = ZstdLevel::try_new(6).map_err(failed)?;
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_created_by(format!("iowhy {}", env!("CARGO_PKG_VERSION")))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_data_page_row_count_limit(GROUP_ROWS)
        .set_max_row_group_row_count(Some(group_rows))
        .set_column_compression(ColumnPath::from("sector"), Compression::ZSTD(sector_level))
        .set_column_compression(ColumnPath::from("t_ns"), times_compression(trace, level).map_err(failed)?);
    for name in DELTAS {
        let path = ColumnPath::from(name);
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build())).map_err(failed)?;
    let mut ends = Vec::new();
    for records in trace.records.chunks(group_rows) {
        let rows: Vec<Row> = records.iter().map(Row::of).collect();
        group(&mut writer, &rows).map_err(failed)?;
        ends.push((writer.bytes_written(), records.len()));
    }
    let names = serde_json::to_string(&trace.names)?;
    let paths: Vec<(u32, u64, &str)> =
        trace.paths.iter().map(|(file, path)| (file.dev.0, file.ino, path.as_str())).collect();
    let about = [
        ("iowhy.trace", "1".to_owned()),
        ("kernel", trace.kernel.clone()),
        ("started_ns", trace.started_ns.to_string()),
        ("lost", trace.lost.to_string()),
        ("inferred_windows", trace.inferred_windows.to_string()),
        ("names", names),
        ("paths", serde_json::to_string(&paths)?),
    ];
    for (key, value) in about {
        writer.append_key_value_metadata(KeyValue { key: key.to_owned(), value: Some(value) });
    }
    writer.flush()?;
    let written = writer.inner();
    let mut groups = Vec::new();
    let mut begin = 0;
    for (end, _) in &ends {
        groups.push(format!("{begin}-{end}:{}", hash(&written[begin..*end])));
        begin = *end;
    }
    let sums =
        [("iowhy.groups", format!("[{}]", groups.join(","))), ("iowhy.sum", format!("{MARK}{}", "0".repeat(HASH)))];
    for (key, value) in sums {
        writer.append_key_value_metadata(KeyValue { key: key.to_owned(), value: Some(value) });
    }
    let mut bytes = writer.into_inner().map_err(failed)?;
    let tail = begin..bytes.len();
    if let Some(at) = mark(&bytes[tail.clone()]) {
        let sum = hash(&bytes[tail]);
        bytes[begin + at..begin + at + HASH].copy_from_slice(sum.as_bytes());
    }
    out.write_all(&bytes)
}

/// Whether times are worth being compressed: the differences of a real trace are noise, which takes time to decompress
/// and gets hardly smaller; those of a simulated one may repeat.
fn times_compression(trace: &Trace, level: ZstdLevel) -> Result<Compression, ParquetError> {
    let times: Vec<i64> = trace.records.iter().take(SAMPLE).map(|record| record.at.0 as i64).collect();
    let size = |compression: Compression| -> Result<usize, ParquetError> {
        let schema = Arc::new(parse_message_type("message times { required int64 t_ns; }")?);
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_dictionary_enabled(false)
            .set_encoding(Encoding::DELTA_BINARY_PACKED);
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build()))?;
        let mut group = writer.next_row_group()?;
        if let Some(mut column) = group.next_column()? {
            column.typed::<Int64Type>().write_batch(&times, None, None)?;
            column.close()?;
        }
        group.close()?;
        Ok(writer.bytes_written())
    };
    let zstd = Compression::ZSTD(level);
    let (plain, compressed) = (size(Compression::UNCOMPRESSED)?, size(zstd)?);
    Ok(if compressed * 8 <= plain * 7 { zstd } else { Compression::UNCOMPRESSED })
}

/// Where the hash is in the end of a file.
fn mark(tail: &[u8]) -> Option<usize> {
    let at = tail.windows(MARK.len()).rposition(|window| window == MARK.as_bytes())? + MARK.len();
    (at + HASH <= tail.len()).then_some(at)
}

fn group(writer: &mut SerializedFileWriter<Vec<u8>>, rows: &[Row]) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    let mut first = |of: &dyn Fn(&Row) -> i64| -> Result<(), ParquetError> {
        let Some(mut column) = group.next_column()? else { return Ok(()) };
        let values: Vec<i64> = rows.iter().map(of).collect();
        column.typed::<Int64Type>().write_batch(&values, None, None)?;
        column.close()
    };
    first(&|row| row.at as i64)?;
    first(&|row| i64::from(row.cpu))?;
    first(&|row| i64::from(row.pid))?;
    if let Some(mut column) = group.next_column()? {
        let words = KINDS.map(ByteArray::from);
        let values: Vec<ByteArray> = rows.iter().map(|row| words[usize::from(row.kind)].clone()).collect();
        column.typed::<ByteArrayType>().write_batch(&values, None, None)?;
        column.close()?;
    }
    for number in 0..NR_NUMBERS {
        let Some(mut column) = group.next_column()? else { break };
        let levels: Vec<i16> = rows.iter().map(|row| i16::from(row.numbers[number].is_some())).collect();
        let values = rows.iter().filter_map(|row| row.numbers[number]);
        if matches!(number, RWBS | OP) {
            let mut known: HashMap<i64, ByteArray> = HashMap::new();
            let word = |value: i64| match number {
                RWBS => ByteArray::from(rwbs_letters(Rwbs(value as u16)).as_str()),
                _ => ByteArray::from(op_numbered(value).map_or("", op_word)),
            };
            let words: Vec<ByteArray> =
                values.map(|value| known.entry(value).or_insert_with(|| word(value)).clone()).collect();
            column.typed::<ByteArrayType>().write_batch(&words, Some(&levels), None)?;
        } else {
            let values: Vec<i64> = values.collect();
            column.typed::<Int64Type>().write_batch(&values, Some(&levels), None)?;
        }
        column.close()?;
    }
    for text in 0..TEXTS.len() {
        let Some(mut column) = group.next_column()? else { break };
        let levels: Vec<i16> = rows.iter().map(|row| i16::from(row.texts[text].is_some())).collect();
        let values: Vec<ByteArray> =
            rows.iter().filter_map(|row| row.texts[text].as_deref()).map(ByteArray::from).collect();
        column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)?;
        column.close()?;
    }
    group.close()?;
    Ok(())
}

/// Bytes in memory as Parquet's reader wants them.
#[derive(Clone)]
struct Memory(Bytes);

impl Length for Memory {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

impl ChunkReader for Memory {
    type T = io::Cursor<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(io::Cursor::new(self.get_bytes(start, self.0.len().saturating_sub(start as usize))?))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let end = usize::try_from(start).ok().and_then(|start| start.checked_add(length));
        match end {
            Some(end) if end <= self.0.len() => Ok(self.0.slice(start as usize..end)),
            _ => Err(ParquetError::EOF(format!("bytes {start} + {length} are behind the end"))),
        }
    }
}

/// Values of a column; where there is nothing, there is nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    Numbers(Vec<Option<i64>>),
    /// Numbers, one in each row.
    Full(Vec<i64>),
    /// Words: for each row the place of its word in the list, [`NONE`] for nothing.
    Words {
        /// Places.
        codes: Vec<u32>,
        words: Vec<String>,
    },
}

/// No word.
pub const NONE: u32 = u32::MAX;

/// Reads some columns of a trace in a file: as many results as names, in their order.
///
/// # Errors
/// Why not, as a sentence.
pub fn columns(path: &Path, names: &[&str]) -> Result<Vec<Values>, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
    let (groups, damage) = whole_groups(&bytes)?;
    if let Some(damage) = damage.first() {
        return Err(format!("`{}`: {damage}", path.display()));
    }
    let reader = SerializedFileReader::new(Memory(Bytes::from(bytes))).map_err(|error| error.to_string())?;
    let groups = groups.unwrap_or_else(|| (0..reader.num_row_groups()).collect());
    guarded(|| names.iter().map(|name| column(&reader, &groups, name)).collect())
}

thread_local! {
    static DECODES: Cell<bool> = const { Cell::new(false) };
}

/// Why a file cannot be read.
pub const DAMAGED: &str = "it is damaged: its pages cannot be decoded";

/// Whether this thread decodes pages: a panic is then about the file, and a hook can say so where it cannot be caught.
pub fn decodes() -> bool {
    DECODES.get()
}

/// Parquet's reader panics on some files that are damaged; ours have hashes, others do not.
fn guarded<T>(read: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let before = DECODES.replace(true);
    let result = catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err(DAMAGED.to_owned()));
    DECODES.set(before);
    result
}

/// Which groups of rows are whole; nothing if the file has no hashes. And the damage.
type Whole = (Option<Vec<usize>>, Vec<String>);

fn whole_groups(bytes: &[u8]) -> Result<Whole, String> {
    let Some(groups) = contents(bytes, 0)? else { return Ok((None, Vec::new())) };
    let mut whole = Vec::new();
    let mut damaged = Vec::new();
    for (number, Range { start, end, sum }) in groups.iter().enumerate() {
        if hash(&bytes[*start..*end]) == *sum {
            whole.push(number);
        } else {
            damaged.push(damage(*start, *end));
        }
    }
    Ok((Some(whole), damaged))
}

fn damage(start: usize, end: usize) -> String {
    format!("bytes {start} to {end} are damaged: a group of up to {GROUP_ROWS} records")
}

/// Where a group of rows is in a file, and the hash of those bytes.
struct Range {
    start: usize,
    end: usize,
    sum: String,
}

/// Where the table of contents begins in a file whose end this is, if there is room for it.
fn footer(end: &[u8], size: usize) -> Result<usize, String> {
    if !end.ends_with(b"PAR1") || end.len() < 8 {
        let text = format!("byte {size}: the file ends too early: its table of contents, which is last, is missing");
        return Err(text);
    }
    let word: [u8; 4] = end[end.len() - 8..end.len() - 4].try_into().unwrap_or_default();
    let length = u32::from_le_bytes(word) as usize;
    size.checked_sub(8 + length)
        .filter(|begin| *begin >= 4)
        .ok_or_else(|| format!("byte {}: the table of contents has a length of {length}: it is damaged", size - 8))
}

/// The text behind a key: a byte for its field, its length in groups of seven bits, the lowest first, and its bytes
/// (the compact protocol of Thrift). A length may look like any byte of the text.
fn value(behind: &[u8]) -> Option<&str> {
    let (mut len, mut at) = (0_usize, 1);
    loop {
        let byte = *behind.get(at)?;
        len |= usize::from(byte & 0x7f) << (7 * (at - 1)).min(28);
        at += 1;
        if byte & 0x80 == 0 {
            return std::str::from_utf8(behind.get(at..at.checked_add(len)?)?).ok();
        }
        if at > 5 {
            return None;
        }
    }
}

/// The groups of rows by the table of contents, which is checked; nothing if the file has no hashes. `bytes` is the
/// file from byte `skipped` on: all of it, or from where the last group ends.
fn contents(bytes: &[u8], skipped: usize) -> Result<Option<Vec<Range>>, String> {
    let size = skipped + bytes.len();
    if skipped == 0 && (size < 12 || !bytes.starts_with(b"PAR1")) {
        return Err("byte 0: not a Parquet file".to_owned());
    }
    let begin = footer(bytes, size)?;
    // The list of hashes is found without decoding anything: it is text, and so is the rest behind it.
    let key = b"iowhy.groups";
    let table = bytes.get(begin.wrapping_sub(skipped)..).unwrap_or_default();
    let Some(at) = table.windows(key.len()).position(|window| window == key) else {
        return match mark(table) {
            None => Ok(None),
            Some(_) => Err(format!("byte {begin}: the table of contents is damaged")),
        };
    };
    let from = begin + at + key.len();
    let text = &table[at + key.len()..];
    let text: &[u8] = &text[..text.len().min(1 << 20)];
    let list = value(text).and_then(|list| list.strip_prefix('[')?.strip_suffix(']'));
    let Some(list) = list else { return Err(format!("byte {from}: the table of contents is damaged")) };
    let mut groups: Vec<Range> = Vec::new();
    for group in list.split(',').filter(|group| !group.is_empty()) {
        let parsed = group.split_once(':').and_then(|(range, sum)| {
            let (start, end) = range.split_once('-')?;
            Some(Range { start: start.parse().ok()?, end: end.parse().ok()?, sum: sum.get(..HASH)?.to_owned() })
        });
        let Some(group) = parsed.filter(|group| group.start <= group.end && group.end <= begin) else {
            return Err(format!("byte {from}: the table of contents is damaged: `{group}` is not a group of rows"));
        };
        groups.push(group);
    }
    let tail = groups.last().map_or(0, |group| group.end);
    let damaged = || format!("byte {tail}: the table of contents, from here on, is damaged");
    let mut copy = tail.checked_sub(skipped).and_then(|tail| bytes.get(tail..)).ok_or_else(damaged)?.to_vec();
    let Some(at) = mark(&copy) else { return Err(format!("byte {begin}: the table of contents is damaged")) };
    let told = String::from_utf8_lossy(&copy[at..at + HASH]).into_owned();
    copy[at..at + HASH].fill(b'0');
    if hash(&copy) != told {
        return Err(damaged());
    }
    Ok(Some(groups))
}

/// A column of some groups of rows.
fn column(reader: &SerializedFileReader<Memory>, groups: &[usize], name: &str) -> Result<Values, String> {
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let Some(place) = schema.columns().iter().position(|column| column.name() == name) else {
        return Err(format!("no column `{name}`"));
    };
    let descriptor = schema.column(place);
    let full = descriptor.max_def_level() == 0;
    let mut all: Vec<Option<i64>> = Vec::new();
    let mut plain: Vec<i64> = Vec::new();
    let (mut codes, mut words): (Vec<u32>, Vec<String>) = (Vec::new(), Vec::new());
    let mut known: HashMap<Vec<u8>, u32> = HashMap::new();
    for group in groups {
        let text = |error: ParquetError| format!("column `{name}`, group {group}: {error}");
        let group = reader.get_row_group(*group).map_err(text)?;
        let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        let mut levels: Vec<i16> = Vec::new();
        // Reads a batch after the other: a damaged header may ask for any number of rows.
        macro_rules! values {
            ($reader:expr, $of:ty) => {{
                let mut values: Vec<$of> = Vec::new();
                let mut left = rows;
                while left > 0 {
                    let levels = (!full).then_some(&mut levels);
                    let (records, ..) =
                        $reader.read_records(left.min(GROUP_ROWS), levels, None, &mut values).map_err(text)?;
                    if records == 0 {
                        return Err(format!("column `{name}` has fewer rows than others"));
                    }
                    left -= records.min(left);
                }
                values
            }};
        }
        match group.get_column_reader(place).map_err(text)? {
            ColumnReader::Int64ColumnReader(mut column) => {
                let values = values!(column, i64);
                if full {
                    plain.extend(values);
                } else {
                    let mut values = values.into_iter();
                    all.extend(levels.iter().map(|level| if *level > 0 { values.next() } else { None }));
                }
            }
            ColumnReader::Int32ColumnReader(mut column) => {
                let values = values!(column, i32);
                if full {
                    plain.extend(values.into_iter().map(i64::from));
                } else {
                    let mut values = values.into_iter().map(i64::from);
                    all.extend(levels.iter().map(|level| if *level > 0 { values.next() } else { None }));
                }
            }
            ColumnReader::ByteArrayColumnReader(mut column) => {
                let values = values!(column, ByteArray);
                let mut code = |value: &ByteArray| {
                    if let Some(code) = known.get(value.data()) {
                        return *code;
                    }
                    let code = words.len() as u32;
                    words.push(String::from_utf8_lossy(value.data()).into_owned());
                    known.insert(value.data().to_vec(), code);
                    code
                };
                if full {
                    codes.extend(values.iter().map(&mut code));
                } else {
                    let mut values = values.iter();
                    codes.extend(levels.iter().map(|level| match level {
                        0 => NONE,
                        _ => values.next().map_or(NONE, &mut code),
                    }));
                }
            }
            _ => return Err(format!("column `{name}` has neither whole numbers nor text")),
        }
    }
    Ok(match (descriptor.physical_type(), full) {
        (Physical::BYTE_ARRAY, _) => Values::Words { codes, words },
        (_, true) => Values::Full(plain),
        (_, false) => Values::Numbers(all),
    })
}

/// Reads one.
pub fn read(name: &str, bytes: &[u8], problems: &mut Problems) -> Option<Trace> {
    let result = guarded(|| all(name, bytes, problems));
    result.map_err(|text| problems.push(Problem::error(format!("{name}: {text}")))).ok()
}

fn all(name: &str, bytes: &[u8], problems: &mut Problems) -> Result<Trace, String> {
    let (groups, damaged) = whole_groups(bytes)?;
    for text in damaged {
        problems.push(Problem::warning(format!("{name}: {text}: they are left out")));
    }
    let reader = SerializedFileReader::new(Memory(Bytes::copy_from_slice(bytes))).map_err(|error| error.to_string())?;
    let groups = groups.unwrap_or_else(|| (0..reader.num_row_groups()).collect());
    let mut trace = Trace::default();
    let about = reader.metadata().file_metadata().key_value_metadata();
    let value = |key: &str| about.and_then(|list| list.iter().find(|pair| pair.key == key)?.value.as_deref());
    trace.kernel = value("kernel").unwrap_or_default().to_owned();
    trace.started_ns = value("started_ns").and_then(|text| text.parse().ok()).unwrap_or(0);
    trace.lost = value("lost").and_then(|text| text.parse().ok()).unwrap_or(0);
    trace.inferred_windows = value("inferred_windows") == Some("true");
    trace.names = value("names").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    trace.names.sort();
    let paths: Vec<(u32, u64, String)> =
        value("paths").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    trace.paths = paths.into_iter().map(|(dev, ino, path)| (Inode { dev: Dev(dev), ino }, path)).collect();
    let mut nr_bad = 0;
    // One group after the other, so that memory holds the rows of one only.
    for group in groups {
        let group = [group];
        let numbers = |name: &str| match column(&reader, &group, name) {
            Ok(Values::Full(values)) => Ok(values),
            // Other programs write every column as one that may miss values.
            Ok(Values::Numbers(values)) => {
                values.into_iter().collect::<Option<Vec<i64>>>().ok_or(format!("column `{name}` lacks values"))
            }
            Ok(Values::Words { .. }) => Err(format!("column `{name}` is text")),
            Err(text) => Err(text),
        };
        let [times, cpus, pids] = [numbers("t_ns")?, numbers("cpu")?, numbers("pid")?];
        let Values::Words { codes, words } = column(&reader, &group, "kind")? else {
            return Err("column `kind` is not text".to_owned());
        };
        let kinds: Vec<Option<u8>> =
            words.iter().map(|word| KINDS.iter().position(|kind| kind == word).map(|kind| kind as u8)).collect();
        let mut rows: Vec<Option<Row>> = Vec::with_capacity(times.len().min(GROUP_ROWS));
        for (nr, at) in times.iter().enumerate() {
            let number = |list: &[i64]| list.get(nr).and_then(|number| u32::try_from(*number).ok());
            let kind = codes.get(nr).and_then(|code| *kinds.get(*code as usize)?);
            let row = |((cpu, pid), kind)| Row { at: *at as u64, cpu, pid, kind, ..Row::default() };
            rows.push(number(&cpus).zip(number(&pids)).zip(kind).map(row));
        }
        let schema = reader.metadata().file_metadata().schema_descr_ptr();
        let there = |name: &str| schema.columns().iter().any(|column| column.name() == name);
        for (number, name) in NUMBERS.iter().enumerate().filter(|(_, name)| there(name)) {
            let mut put = |nr: usize, value: Option<i64>| {
                if let Some(Some(row)) = rows.get_mut(nr) {
                    row.numbers[number] = value;
                }
            };
            match column(&reader, &group, name)? {
                Values::Full(values) => values.into_iter().enumerate().for_each(|(nr, value)| put(nr, Some(value))),
                Values::Numbers(values) => values.into_iter().enumerate().for_each(|(nr, value)| put(nr, value)),
                Values::Words { codes, words } => {
                    let of = |word: &String| match number {
                        RWBS => rwbs_of(word).map(|rwbs| i64::from(rwbs.0)),
                        OP => op_of(word).map(op_number),
                        _ => None,
                    };
                    let values: Vec<Option<i64>> = words.iter().map(of).collect();
                    for (nr, code) in codes.iter().enumerate() {
                        put(nr, values.get(*code as usize).copied().flatten());
                    }
                }
            }
        }
        for (text, name) in TEXTS.iter().enumerate().filter(|(_, name)| there(name)) {
            let Values::Words { codes, words } = column(&reader, &group, name)? else { continue };
            for (nr, code) in codes.iter().enumerate() {
                if let Some(Some(row)) = rows.get_mut(nr) {
                    row.texts[text] = words.get(*code as usize).cloned();
                }
            }
        }
        for row in rows {
            match row.and_then(|mut row| row.record().ok()) {
                Some(record) => trace.records.push(record),
                None => nr_bad += 1,
            }
        }
    }
    if nr_bad > 0 {
        let text = format!("{name}: {nr_bad} rows are not records of a trace, and are left out");
        problems.push(Problem::warning(text));
    }
    trace.records.sort_by_key(|record| record.at);
    Ok(trace)
}

/// Whether a file is one of ours, without reading all of it.
///
/// # Errors
/// If it cannot be read.
pub fn is_trace(path: &Path) -> io::Result<bool> {
    let mut magic = [0; 4];
    std::fs::File::open(path)?.read_exact(&mut magic)?;
    if magic != *b"PAR1" {
        return Ok(false);
    }
    let reader = SerializedFileReader::new(std::fs::File::open(path)?).map_err(failed)?;
    let about = reader.metadata().file_metadata().key_value_metadata();
    Ok(about.is_some_and(|list| list.iter().any(|pair| pair.key == "iowhy.trace")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::row::drawn;

    #[test]
    fn a_length_that_looks_like_a_bracket_is_a_length() {
        for len in [1, 90, 91, 92, 93, 127, 128, 91 + 128 * 91] {
            let text = "[".to_owned() + &"x".repeat(len - 1);
            let mut bytes = vec![0x18];
            let mut left = len;
            while left >= 0x80 {
                bytes.push((left & 0x7f) as u8 | 0x80);
                left >>= 7;
            }
            bytes.push(left as u8);
            bytes.extend(text.bytes());
            bytes.extend(b"]]]");
            assert_eq!(value(&bytes), Some(text.as_str()), "{len}");
        }
        assert_eq!(value(&[0x18, 9, b'[']), None);
        assert_eq!(value(&[]), None);
    }

    fn bytes_of(trace: &Trace) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(trace, &mut bytes).expect("memory takes everything");
        bytes
    }

    #[test]
    fn what_is_written_is_read_back() {
        for (seed, nr) in [(0, 28), (1, 900), (2, 0)] {
            let trace = drawn::trace(seed, nr);
            let bytes = bytes_of(&trace);
            let mut problems = Problems::default();
            assert!(detect("x", &bytes));
            assert_eq!(read("x.parquet", &bytes, &mut problems).as_ref(), Some(&trace));
            assert_eq!(problems.render(), "");
        }
    }

    #[test]
    fn some_columns_are_read_alone() {
        let trace = drawn::trace(5, 200);
        let path = std::env::temp_dir().join(format!("iowhy-columns-{}.parquet", std::process::id()));
        std::fs::write(&path, bytes_of(&trace)).expect("the directory can be written");
        let read = columns(&path, &["kind", "t_ns", "sector"]);
        let ours = is_trace(&path).expect("it is there");
        let missing = columns(&path, &["sectr"]);
        std::fs::remove_file(&path).expect("it is there");
        let rows: Vec<Row> = trace.records.iter().map(Row::of).collect();
        let [Values::Words { codes, words }, Values::Full(times), Values::Numbers(sectors)] =
            &read.expect("all is there")[..]
        else {
            panic!("columns of other types")
        };
        assert!(ours);
        assert_eq!(missing.expect_err("there is none"), "no column `sectr`");
        assert!(rows.iter().zip(codes).all(|(row, code)| words[*code as usize] == KINDS[usize::from(row.kind)]));
        assert!(rows.iter().zip(times).all(|(row, time)| row.at == *time as u64));
        assert!(rows.iter().zip(sectors).all(|(row, sector)| row.numbers[crate::row::SECTOR] == *sector));
    }

    #[test]
    fn a_damaged_group_is_left_out_and_the_table_of_contents_is_not_trusted() {
        let trace = drawn::trace(1, 300);
        let whole = bytes_of(&trace);
        let mut bytes = whole.clone();
        bytes[100] ^= 1;
        let mut problems = Problems::default();
        let read_back = read("x.parquet", &bytes, &mut problems).expect("the rest is there");
        assert!(read_back.records.is_empty());
        assert_eq!(read_back.kernel, trace.kernel);
        assert!(problems.render().contains("x.parquet: bytes 0 to "), "{}", problems.render());
        let mut bytes = whole.clone();
        let at = bytes.len() - 20;
        bytes[at] ^= 4;
        let mut problems = Problems::default();
        assert_eq!(read("x.parquet", &bytes, &mut problems), None);
        assert!(problems.render().contains("table of contents"), "{}", problems.render());
        let mut problems = Problems::default();
        assert_eq!(read("x.parquet", &whole[..whole.len() - 9], &mut problems), None);
        assert!(problems.render().contains("the file ends too early"), "{}", problems.render());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn damaged_files_are_no_trouble(
            cut in 0_usize..1 << 20,
            flips in prop::collection::vec((0_usize..1 << 20, 1_u8..), 0..4),
        ) {
            let whole = bytes_of(&drawn::trace(3, 60));
            let mut bytes = whole.clone();
            for (at, value) in flips {
                bytes[at % whole.len()] ^= value;
            }
            if cut % 3 == 0 {
                bytes.truncate(cut % whole.len());
            }
            let mut problems = Problems::default();
            let read = read("x.parquet", &bytes, &mut problems);
            prop_assert!(bytes == whole || !problems.list.is_empty());
            prop_assert!(read.is_some() || problems.any_error());
        }
    }
}

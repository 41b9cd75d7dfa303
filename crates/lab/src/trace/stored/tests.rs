//! The two ways to read a stored trace against a list of requests that is searched from end to end, and against the
//! phases.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use iowhy_stack::histogram::Histogram;
use iowhy_stack::rng::Rng;
use iowhy_stack::trace::{Dev, Extent, Record, Rwbs, Seen, Trace};
use iowhy_stack::units::{Nanos, Sector};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::*;
use crate::trace::phases::{Phase, Phases};
use crate::trace::row::{self, KINDS, Row, drawn};

/// A file that is taken away again.
struct Stored(PathBuf);

impl Stored {
    fn of(bytes: &[u8]) -> Stored {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("iowhy-stored-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).expect("the directory can be written");
        Stored(path)
    }

    fn trace(trace: &Trace, group_rows: usize) -> Stored {
        let mut bytes = Vec::new();
        trace_parquet::write_in_groups(trace, group_rows, &mut bytes).expect("memory takes everything");
        Stored::of(&bytes)
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).expect("it is there");
    }
}

fn extent(dev: u32, sector: u64) -> Extent {
    Extent { dev: Dev(dev), sector: Sector(sector), bytes: 4096, rwbs: Rwbs::READ }
}

fn done(dev: u32, sector: u64) -> Seen {
    Seen::Complete { extent: extent(dev, sector), error: 0 }
}

fn trace_of(seen: impl IntoIterator<Item = (u64, Seen)>) -> Trace {
    let record = |(at, seen)| Record { at: Nanos(at), cpu: 0, pid: 1, seen };
    Trace { records: seen.into_iter().map(record).collect(), ..Trace::default() }
}

/// The same by a list that is searched from end to end.
fn searched(trace: &Trace) -> Vec<u64> {
    let mut list: Vec<(i64, i64, u64)> = Vec::new();
    let mut found = Vec::new();
    for row in trace.records.iter().map(Row::of) {
        let kind = KINDS[usize::from(row.kind)];
        let (Some(dev), Some(sector)) = (row.numbers[row::DEV], row.numbers[row::SECTOR]) else { continue };
        let place = list.iter().position(|known| (known.0, known.1) == (dev, sector));
        if kind == "issue" {
            place.map(|place| list.swap_remove(place));
            list.push((dev, sector, row.at));
        } else if kind == "complete"
            && let Some(place) = place
        {
            found.push(row.at - list.swap_remove(place).2);
        }
    }
    found
}

#[test]
fn requests_are_paired_in_order() {
    let trace = trace_of([
        (10, Seen::Issue(extent(1, 8))),
        (11, Seen::Issue(extent(2, 8))),
        (12, Seen::Queue(extent(1, 8))),
        (15, done(1, 8)),
        (20, Seen::Issue(extent(1, 8))),
        (21, Seen::Issue(extent(1, 8))),
        (31, done(2, 8)),
        (32, done(1, 8)),
        (40, done(1, 8)),
    ]);
    let times = d2c(&Stored::trace(&trace, 4).0).expect("it is read");
    assert_eq!(times, [5, 20, 11]);
    assert_eq!(
        (percentile(times.clone(), 50), percentile(times, 99), percentile(vec![], 5)),
        (Some(11), Some(20), None)
    );
}

/// Requests that begin and end at random: `reuse` sectors on three devices.
fn requests(seed: u64, nr: usize, reuse: u64) -> Trace {
    let mut rng = Rng::stream(seed, "stored");
    let mut at = 0;
    trace_of((0..nr).map(move |_| {
        at += rng.below(900);
        let (dev, sector) = (rng.below(3) as u32, rng.below(reuse) * 8);
        let seen = match rng.below(5) {
            0 => Seen::Queue(extent(dev, sector)),
            1 => Seen::Unplug { dev: None, nr_requests: 3, timer: false },
            2 => Seen::Issue(extent(dev, sector)),
            _ => done(dev, sector),
        };
        (at, seen)
    }))
}

#[test]
fn every_way_gives_the_same_times() {
    let mut traces: Vec<(Trace, usize)> = Vec::new();
    for (seed, nr, reuse) in [(1, 3000, 5), (2, 3000, 1 << 40), (3, 3000, 900), (4, 1, 1), (5, 0, 1)] {
        traces.push((requests(seed, nr, reuse), 700));
    }
    traces.extend((0..4).map(|seed| (drawn::trace(seed, 900), 333)));
    for (number, (trace, group_rows)) in traces.iter().enumerate() {
        let stored = Stored::trace(trace, *group_rows);
        let searched = searched(trace);
        // A trace without records has no groups, and is left to the other way.
        let expected = (!trace.records.is_empty()).then(|| searched.clone());
        assert_eq!(d2c_of_groups(&stored.0), Ok(expected), "trace {number}");
        assert_eq!(d2c_of_columns(&stored.0), Ok(searched), "trace {number}");
    }
}

#[test]
fn times_are_those_of_the_phases() {
    let mut rng = Rng::stream(7, "stored");
    let mut seen = Vec::new();
    for nr in 0..4000 {
        let mut at = nr * 5000 + rng.below(2000);
        let (dev, sector) = (rng.below(2) as u32, nr * 8);
        for (step, after) in [(0, 0), (1, 600), (2, 4000), (3, 150_000)] {
            at += 1 + rng.below(after + 1);
            seen.push((
                at,
                match step {
                    0 => Seen::Queue(extent(dev, sector)),
                    1 => Seen::Insert(extent(dev, sector)),
                    2 => Seen::Issue(extent(dev, sector)),
                    _ => done(dev, sector),
                },
            ));
        }
    }
    seen.sort_by_key(|(at, _)| *at);
    let trace = trace_of(seen);
    let mut phases = Phases::default();
    trace.records.iter().for_each(|record| phases.add(record));
    let mut times = Histogram::default();
    let stored = Stored::trace(&trace, 3000);
    d2c_of_groups(&stored.0).expect("it is read").expect("it is ours").into_iter().for_each(|time| times.record(time));
    assert_eq!(times.count(), 4000);
    assert_eq!(&times, phases.finish().all.of(Phase::D2c));
}

#[test]
fn damage_is_told_and_never_counted() {
    let trace = requests(1, 2000, 50);
    let mut whole = Vec::new();
    trace_parquet::write_in_groups(&trace, 500, &mut whole).expect("memory takes everything");
    for at in (0..whole.len()).step_by(whole.len() / 60) {
        let mut bytes = whole.clone();
        bytes[at] ^= 16;
        let stored = Stored::of(&bytes);
        let (groups, columns) = (d2c_of_groups(&stored.0), d2c_of_columns(&stored.0));
        assert!(columns.is_err(), "byte {at}");
        // Either it is told, or the reader of whole columns is asked.
        assert!(matches!(groups, Err(_) | Ok(None)), "byte {at}");
        assert!(d2c(&stored.0).is_err(), "byte {at}");
    }
    for size in [0, 5, 11, whole.len() / 2, whole.len() - 1] {
        assert!(d2c(&Stored::of(&whole[..size]).0).is_err(), "{size} bytes");
    }
}

#[test]
fn a_table_of_another_program_is_read() {
    let schema = "message trace { optional int64 t_ns; optional binary kind (UTF8); optional int64 sector; \
                  optional int64 dev; }";
    let schema = Arc::new(parse_message_type(schema).expect("a schema"));
    let mut writer =
        SerializedFileWriter::new(Vec::new(), schema, Arc::new(WriterProperties::new())).expect("a writer");
    let mut group = writer.next_row_group().expect("a group");
    let kinds = ["issue", "queue", "complete", "issue", "complete"];
    let columns: [(&[i16], Vec<i64>); 4] = [
        (&[1; 5], vec![5, 6, 9, 10, 12]),
        (&[1; 5], vec![]),
        (&[1, 0, 1, 1, 0], vec![8, 8, 16]),
        (&[1; 5], vec![3; 5]),
    ];
    for (levels, values) in columns {
        let mut column = group.next_column().expect("a column").expect("there is one");
        if values.is_empty() {
            column.typed::<ByteArrayType>().write_batch(&kinds.map(ByteArray::from), Some(levels), None)
        } else {
            column.typed::<Int64Type>().write_batch(&values, Some(levels), None)
        }
        .expect("it is written");
        column.close().expect("it is closed");
    }
    group.close().expect("it is closed");
    let stored = Stored::of(&writer.into_inner().expect("it is written"));
    assert_eq!(d2c_of_groups(&stored.0), Ok(None));
    assert_eq!(d2c(&stored.0), Ok(vec![4]));
}

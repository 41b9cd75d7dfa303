//! Results of a task as a Parquet file: a row for each point, in their order.
//!
//! ```text
//! point       its number in the plan       on, disk, seed    as in the grid
//! opt_NAME    the value of an option       event_hash, events
//! error       why it has no result         METRIC            one column each
//! ```
//! Keys of the file: `iowhy.plan` (hash of the plan), `iowhy.task`, `iowhy.failed` (points without a result).

use std::sync::Arc;

use iowhy_stats::figure;
use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{ChunkReader, FileReader};
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::file::writer::SerializedFileWriter;
use parquet::record::Field;
use parquet::schema::types::Type;
use prost::bytes::Bytes;

use super::{Plan, Point, Row};

/// A key of the hash of the plan.
const PLAN: &str = "iowhy.plan";
/// A key of the number of points without a result.
const FAILED: &str = "iowhy.failed";

enum Values {
    Numbers(Vec<Option<i64>>),
    Floats(Vec<Option<f64>>),
    Words(Vec<Option<String>>),
}

fn columns(plan: &Plan, rows: &[Row]) -> Vec<(String, Values)> {
    let numbers = |of: &dyn Fn(&Row) -> Option<i64>| Values::Numbers(rows.iter().map(of).collect());
    let words = |of: &dyn Fn(&Row) -> Option<String>| Values::Words(rows.iter().map(of).collect());
    let mut columns = vec![
        ("point".to_owned(), numbers(&|row| Some(row.nr as i64))),
        ("on".to_owned(), words(&|row| Some(row.point.on.clone()))),
        ("disk".to_owned(), words(&|row| row.point.disk.clone())),
        ("seed".to_owned(), numbers(&|row| Some(row.point.seed as i64))),
        ("event_hash".to_owned(), words(&|row| row.events.map(|(hash, _)| figure::hash(hash)))),
        ("events".to_owned(), numbers(&|row| row.events.map(|(_, nr)| nr as i64))),
        ("error".to_owned(), words(&|row| row.error.clone())),
    ];
    for name in plan.option_names() {
        columns.push((format!("opt_{name}"), words(&|row| row.point.options.get(&name).cloned())));
    }
    for (nr, name) in plan.metrics.iter().enumerate() {
        columns.push((name.clone(), Values::Floats(rows.iter().map(|row| row.values[nr]).collect())));
    }
    columns
}

/// The file of a task.
///
/// # Errors
/// The writer's error: two columns of one name.
pub fn bytes(plan: &Plan, task: usize, rows: &[Row]) -> Result<Vec<u8>, ParquetError> {
    let columns = columns(plan, rows);
    let field = |(name, values): &(String, Values)| {
        let physical = match values {
            Values::Numbers(_) => Physical::INT64,
            Values::Floats(_) => Physical::DOUBLE,
            Values::Words(_) => Physical::BYTE_ARRAY,
        };
        let mut builder = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
        if physical == Physical::BYTE_ARRAY {
            builder = builder.with_converted_type(ConvertedType::UTF8);
        }
        builder.build().map(Arc::new)
    };
    let fields = columns.iter().map(field).collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("iowhy").with_fields(fields).build()?;
    let failed = rows.iter().filter(|row| row.error.is_some()).count();
    let notes = [(PLAN, plan.hash()), ("iowhy.task", task.to_string()), (FAILED, failed.to_string())];
    let notes = notes.into_iter().map(|(key, value)| KeyValue::new(key.to_owned(), value)).collect();
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_created_by(format!("iowhy {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(notes));
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties.build()))?;
    let mut group = writer.next_row_group()?;
    fn split<T>(values: Vec<Option<T>>) -> (Vec<T>, Vec<i16>) {
        let levels = values.iter().map(|value| i16::from(value.is_some())).collect();
        (values.into_iter().flatten().collect(), levels)
    }
    for (_, values) in columns {
        let Some(mut column) = group.next_column()? else { break };
        match values {
            Values::Numbers(values) => {
                let (values, levels) = split(values);
                column.typed::<Int64Type>().write_batch(&values, Some(&levels), None)?;
            }
            Values::Floats(values) => {
                let (values, levels) = split(values);
                column.typed::<DoubleType>().write_batch(&values, Some(&levels), None)?;
            }
            Values::Words(values) => {
                let (values, levels) = split(values);
                let values: Vec<ByteArray> = values.iter().map(|word| ByteArray::from(word.as_str())).collect();
                column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)?;
            }
        }
        column.close()?;
    }
    group.close()?;
    writer.into_inner()
}

fn note(metadata: &parquet::file::metadata::FileMetaData, key: &str) -> Option<String> {
    metadata.key_value_metadata()?.iter().find(|note| note.key == key)?.value.clone()
}

/// The plan that a file is of, and how many of its points have no result.
pub fn state<R: ChunkReader + 'static>(file: R) -> Option<(String, usize)> {
    let reader = SerializedFileReader::new(file).ok()?;
    let metadata = reader.metadata().file_metadata();
    Some((note(metadata, PLAN)?, note(metadata, FAILED)?.parse().ok()?))
}

/// The rows of a file of this plan.
///
/// # Errors
/// If the file is damaged, or of another plan.
pub fn read(plan: &Plan, bytes: Vec<u8>) -> Result<Vec<Row>, ParquetError> {
    let reader = SerializedFileReader::new(Bytes::from(bytes))?;
    if note(reader.metadata().file_metadata(), PLAN) != Some(plan.hash()) {
        return Err(ParquetError::General("it is of another plan".to_owned()));
    }
    let names = plan.option_names();
    let mut rows = Vec::new();
    for row in reader.get_row_iter(None)? {
        let row = row?;
        let fields: Vec<&Field> = row.get_column_iter().map(|(_, field)| field).collect();
        let number = |nr: usize| match fields.get(nr) {
            Some(Field::Long(value)) => Some(*value),
            _ => None,
        };
        let word = |nr: usize| match fields.get(nr) {
            Some(Field::Str(value)) => Some(value.clone()),
            _ => None,
        };
        let options = names.iter().enumerate().filter_map(|(nr, name)| Some((name.clone(), word(7 + nr)?)));
        let value = |nr: usize| match fields.get(7 + names.len() + nr) {
            Some(Field::Double(value)) => Some(*value),
            _ => None,
        };
        let hash = word(4).and_then(|hash| u64::from_str_radix(&hash, 16).ok());
        rows.push(Row {
            nr: number(0).unwrap_or(0) as usize,
            point: Point {
                on: word(1).unwrap_or_default(),
                disk: word(2),
                options: options.collect(),
                seed: number(3).unwrap_or(0) as u64,
            },
            events: hash.zip(number(5).map(|nr| nr as u64)),
            values: (0..plan.metrics.len()).map(value).collect(),
            error: word(6),
        });
    }
    Ok(rows)
}

//! Columns as Parquet's own writer makes them, with every encoding, read back; and bytes that mean nothing.

use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use prost::bytes::Bytes;

use super::*;

#[derive(Copy, Clone, Debug)]
enum Layout {
    Deltas,
    Plain,
    Dictionary,
}

fn written(schema: &str, layout: Layout, page_rows: usize, write: impl FnOnce(&mut Column<'_>)) -> Bytes {
    let schema = Arc::new(parse_message_type(schema).expect("a schema"));
    let mut properties = WriterProperties::builder()
        .set_dictionary_enabled(matches!(layout, Layout::Dictionary))
        .set_write_batch_size(page_rows)
        .set_data_page_row_count_limit(page_rows);
    if let Layout::Deltas = layout {
        properties = properties.set_encoding(Encoding::DELTA_BINARY_PACKED);
    }
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build())).expect("a writer");
    let mut group = writer.next_row_group().expect("a group");
    let mut column = group.next_column().expect("a column").expect("there is one");
    write(&mut column);
    column.close().expect("it is closed");
    group.close().expect("it is closed");
    Bytes::from(writer.into_inner().expect("it is written"))
}

type Column<'a> = parquet::file::writer::SerializedColumnWriter<'a>;

fn read<T>(bytes: Bytes, of: impl FnOnce(&mut dyn PageReader, &ColumnDescriptor) -> T) -> T {
    let reader = SerializedFileReader::new(bytes).expect("it is one");
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let group = reader.get_row_group(0).expect("there is one");
    let mut pages = group.get_column_page_reader(0).expect("there is one");
    of(&mut *pages, &schema.column(0))
}

fn numbers_of(rows: &[Option<i64>], optional: bool, layout: Layout, page_rows: usize) -> Option<Dense> {
    let schema = format!("message m {{ {} int64 x; }}", if optional { "optional" } else { "required" });
    let levels: Vec<i16> = rows.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<i64> = rows.iter().copied().flatten().collect();
    let bytes = written(&schema, layout, page_rows, |column| {
        let levels = optional.then_some(&levels[..]);
        column.typed::<Int64Type>().write_batch(&values, levels, None).expect("it is written");
    });
    read(bytes, |pages, column| {
        numbers(pages, column, rows.len(), Some(Dense::Each { values: vec![3; 50], there: None }))
    })
}

#[test]
fn differences_of_every_width_are_added_up() {
    for width in 0..=64 {
        let mut word = 0x0123_4567_89ab_cdef_u64;
        let mut next = || {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            Some((word.rotate_right(31) & mask(width)) as i64)
        };
        for nr in [1, 2, 8, 9, 64, 65, 257, 700] {
            let rows: Vec<Option<i64>> = (0..nr).map(|_| next()).collect();
            let dense = numbers_of(&rows, false, Layout::Deltas, 1 << 17).expect("it is known");
            assert!((0..nr).all(|row| dense.at(row) == rows[row]), "{nr} of {width} bits");
            assert_eq!(dense.at(nr), None);
        }
    }
}

#[test]
fn one_number_in_all_rows_takes_no_memory() {
    let rows = vec![Some(8 << 20); 500];
    for optional in [false, true] {
        assert_eq!(numbers_of(&rows, optional, Layout::Dictionary, 100), Some(Dense::Same(8 << 20)));
    }
    let mut rows = rows;
    rows[321] = None;
    let dense = numbers_of(&rows, true, Layout::Dictionary, 100).expect("it is known");
    assert!((0..500).all(|row| dense.at(row) == rows[row]));
}

#[test]
fn words_become_classes() {
    let class_of = |word: &[u8]| word.last().copied().unwrap_or(0);
    for nr_words in [1, 2, 3, 28, 129, 256, 257] {
        let words: Vec<ByteArray> =
            (0..2000_usize).map(|row| ByteArray::from(format!("w{}", row * row % 7919 % nr_words).as_str())).collect();
        let bytes = written("message m { required binary x (UTF8); }", Layout::Dictionary, 300, |column| {
            column.typed::<ByteArrayType>().write_batch(&words, None, None).expect("it is written");
        });
        let found = read(bytes, |pages, column| classes(pages, column, 2000, &class_of));
        let expected: Vec<u8> = words.iter().map(|word| class_of(word.data())).collect();
        let met: std::collections::HashSet<&[u8]> = words.iter().map(ByteArray::data).collect();
        // More words than a table of a byte has are left to the other reader.
        assert_eq!(found, (met.len() <= 256).then_some(expected), "{nr_words} words");
    }
    let bytes = written("message m { required binary x (UTF8); }", Layout::Plain, 300, |column| {
        column.typed::<ByteArrayType>().write_batch(&[ByteArray::from("x")], None, None).expect("it is written");
    });
    assert_eq!(read(bytes, |pages, column| classes(pages, column, 1, &class_of)), None);
}

#[test]
fn other_numbers_of_rows_are_not_believed() {
    let bytes = written("message m { required int64 x; }", Layout::Deltas, 100, |column| {
        column.typed::<Int64Type>().write_batch(&[1, 2, 3], None, None).expect("it is written");
    });
    for (rows, known) in [(2, false), (3, true), (4, false), (MOST + 1, false)] {
        let found = read(bytes.clone(), |pages, column| numbers(pages, column, rows, None));
        assert_eq!(found.is_some(), known, "{rows} rows");
    }
}

fn any_rows() -> impl Strategy<Value = Vec<Option<i64>>> {
    let number = (0_u32..64, any::<i64>()).prop_map(|(shift, value)| value >> shift);
    let few = (0_i64..40).prop_map(|value| value * 512);
    let kind = prop_oneof![Just(0_u8), Just(1), Just(2)];
    (kind, 0_u8..3).prop_flat_map(move |(absent, which)| {
        let value = if which == 0 { number.clone().boxed() } else { few.clone().boxed() };
        let row = (0_u8..10, value).prop_map(move |(chance, value)| {
            // None absent, some, or long runs of both.
            (absent == 0 || chance > 3 * (absent - 1) + 1).then_some(value)
        });
        prop::collection::vec(row, 1..700)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn numbers_come_back(rows in any_rows(), page_rows in 1_usize..300, layout in 0_u8..3) {
        let layout = [Layout::Deltas, Layout::Plain, Layout::Dictionary][usize::from(layout)];
        let dense = numbers_of(&rows, true, layout, page_rows).expect("it is known");
        for (row, value) in rows.iter().enumerate() {
            prop_assert_eq!(dense.at(row), *value, "row {} of {}", row, rows.len());
        }
        if rows.iter().all(Option::is_some) {
            let required = numbers_of(&rows, false, layout, page_rows).expect("it is known");
            prop_assert!((0..rows.len()).all(|row| required.at(row) == rows[row]));
        }
    }

    #[test]
    fn bytes_that_mean_nothing_are_no_trouble(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        count in 0_usize..3000,
        width in 0_usize..=32,
    ) {
        let mut out = vec![7_i64];
        if deltas(&bytes, count, &mut out).is_some() {
            prop_assert_eq!(out.len(), count + 1);
        }
        let mut out = vec![7_u32];
        if runs(&bytes, width, count, &mut out, |code| (code % 5 > 0).then_some(code)).is_some() {
            prop_assert_eq!(out.len(), count + 1);
            prop_assert!(out.iter().all(|code| code % 5 > 0));
        }
        if let Some(Some(levels)) = which(&bytes, count) {
            prop_assert_eq!(levels.len(), count);
            prop_assert!(levels.iter().all(|level| *level <= 1));
        }
    }
}

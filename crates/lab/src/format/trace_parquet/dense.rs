//! Pages of Parquet as dense numbers, without a text or an option for each row.
//!
//! ```text
//! levels                one run of "there is a value" costs nothing; others are a byte for each row
//! dictionary codes      eight are taken out of one word; a code of a word becomes its class by a table
//! DELTA_BINARY_PACKED   eight differences lie in as many bytes as one has bits: a function for each number of bits,
//!                       in which every shift is known when it is compiled
//! ```
//! The encodings: <https://parquet.apache.org/docs/file-format/data-pages/encodings/>.
//!
//! Known limit: only what this project's writer makes is known here (first version of data pages, 64-bit numbers, no
//! nesting). Anything else, and anything that makes no sense, is `None`: the reader of whole columns has the say then.

use parquet::basic::{Encoding, Type as Physical};
use parquet::column::page::{Page, PageReader};
use parquet::schema::types::ColumnDescriptor;

/// Bytes that eight numbers of up to 64 bits lie in, and as many as the last load may reach beyond.
const ROOM: usize = 80;
/// Rows of a group at most; a header that says more is not believed.
const MOST: usize = 1 << 22;

/// A column of numbers of some rows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Dense {
    /// Every row has this number.
    Same(i64),
    /// A number for each row; what a row that has none holds means nothing.
    Each {
        /// The numbers.
        values: Vec<i64>,
        /// 1 for each row that has a number, 0 for others; nothing if every row has one.
        there: Option<Vec<u8>>,
    },
}

impl Dense {
    /// The number of a row.
    #[inline]
    pub(crate) fn at(&self, row: usize) -> Option<i64> {
        match self {
            Dense::Same(value) => Some(*value),
            Dense::Each { values, there: None } => values.get(row).copied(),
            Dense::Each { values, there: Some(there) } => {
                values.get(row).copied().filter(|_| there.get(row) == Some(&1))
            }
        }
    }
}

/// A class for each of `rows` words: those that the words of the dictionary have by `class_of`.
pub(crate) fn classes(
    pages: &mut dyn PageReader,
    column: &ColumnDescriptor,
    rows: usize,
    class_of: &dyn Fn(&[u8]) -> u8,
) -> Option<Vec<u8>> {
    let wanted = column.physical_type() == Physical::BYTE_ARRAY && column.max_def_level() == 0;
    if !wanted || column.max_rep_level() > 0 || rows > MOST {
        return None;
    }
    let mut of_code = [0; 256];
    let mut nr_words = 0;
    let mut classes = Vec::with_capacity(rows);
    while let Some(page) = pages.get_next_page().ok()? {
        match page {
            Page::DictionaryPage { buf, num_values, .. } => {
                nr_words = num_values as usize;
                let mut rest = &buf[..];
                for class in of_code.get_mut(..nr_words)? {
                    let (size, behind) = rest.split_first_chunk()?;
                    let (word, behind) = behind.split_at_checked(u32::from_le_bytes(*size) as usize)?;
                    *class = class_of(word);
                    rest = behind;
                }
            }
            Page::DataPage { buf, num_values, encoding, .. } if is_dictionary(encoding) => {
                let count = num_values as usize;
                let (width, packed) = buf.split_first()?;
                if *width > 8 || count > rows - classes.len() {
                    return None;
                }
                runs(packed, usize::from(*width), count, &mut classes, |code| {
                    ((code as usize) < nr_words).then(|| of_code[code as usize & 255])
                })?;
            }
            _ => return None,
        }
    }
    (classes.len() == rows).then_some(classes)
}

/// The numbers of `rows` rows. The memory of `spare` is used again.
pub(crate) fn numbers(
    pages: &mut dyn PageReader,
    column: &ColumnDescriptor,
    rows: usize,
    spare: Option<Dense>,
) -> Option<Dense> {
    if column.physical_type() != Physical::INT64 || column.max_rep_level() > 0 || column.max_def_level() > 1 {
        return None;
    }
    if rows > MOST {
        return None;
    }
    let mut known: Vec<i64> = Vec::new();
    let mut values = match spare {
        Some(Dense::Each { values, .. }) => values,
        _ => Vec::new(),
    };
    values.clear();
    let mut there: Option<Vec<u8>> = None;
    // As long as each page has nothing but the only number of the dictionary, rows are only counted.
    let mut same = 0;
    let mut done = 0;
    while let Some(page) = pages.get_next_page().ok()? {
        let (buf, count, encoding) = match page {
            Page::DictionaryPage { buf, .. } if done == 0 => {
                known = buf.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
                continue;
            }
            Page::DataPage { buf, num_values, encoding, .. } => (buf, num_values as usize, encoding),
            _ => return None,
        };
        if count > rows - done {
            return None;
        }
        let mut body = &buf[..];
        let mut levels = None;
        if column.max_def_level() == 1 {
            let (size, behind) = body.split_first_chunk()?;
            let (packed, behind) = behind.split_at_checked(u32::from_le_bytes(*size) as usize)?;
            levels = which(packed, count)?;
            body = behind;
        }
        let nr = levels.as_ref().map_or(count, |levels| levels.iter().map(|level| usize::from(*level)).sum());
        let only_one = is_dictionary(encoding) && known.len() == 1 && levels.is_none();
        if only_one && same == done && body.first() == Some(&0) {
            same += count;
            done += count;
            continue;
        }
        if values.len() < done {
            values.resize(done, *known.first()?);
        }
        let from = done;
        values.reserve(rows - from);
        if is_dictionary(encoding) {
            let (width, packed) = body.split_first().unwrap_or((&0, &[]));
            if *width > 32 {
                return None;
            }
            runs(packed, usize::from(*width), nr, &mut values, |code| known.get(code as usize).copied())?;
        } else if encoding == Encoding::DELTA_BINARY_PACKED {
            deltas(body, nr, &mut values)?;
        } else if encoding == Encoding::PLAIN {
            values.extend(body.as_chunks().0.get(..nr)?.iter().map(|bytes| i64::from_le_bytes(*bytes)));
        } else {
            return None;
        }
        if levels.is_some() || there.is_some() {
            let there = there.get_or_insert_with(|| vec![1; done]);
            match levels {
                Some(levels) => {
                    spread(&mut values, from, &levels);
                    there.extend(levels);
                }
                None => there.resize(done + count, 1),
            }
        }
        done += count;
    }
    if done != rows {
        return None;
    }
    Some(if same == rows && rows > 0 { Dense::Same(*known.first()?) } else { Dense::Each { values, there } })
}

fn is_dictionary(encoding: Encoding) -> bool {
    encoding == Encoding::RLE_DICTIONARY || encoding == Encoding::PLAIN_DICTIONARY
}

/// Moves the numbers behind `from` to the rows that have one, from the last to the first.
fn spread(values: &mut Vec<i64>, from: usize, levels: &[u8]) {
    let mut next = values.len();
    values.resize(from + levels.len(), 0);
    for (row, level) in levels.iter().enumerate().rev() {
        let is_there = *level == 1 && next > from;
        next -= usize::from(is_there);
        values[from + row] = if is_there { values[next] } else { 0 };
    }
}

/// Which of `count` rows have a value; `Some(None)` if all have.
fn which(packed: &[u8], count: usize) -> Option<Option<Vec<u8>>> {
    if let Some((run, behind)) = number(packed)
        && run & 1 == 0
        && run >> 1 >= count as u64
        && behind.first() == Some(&1)
    {
        return Some(None);
    }
    let mut levels = Vec::with_capacity(count);
    runs(packed, 1, count, &mut levels, |level| (level <= 1).then_some(level as u8))?;
    Some(levels.contains(&0).then_some(levels))
}

/// A number without a sign, seven bits in each byte, and what is behind it.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (place, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 127) << (7 * place);
        if byte & 128 == 0 {
            return Some((value, &bytes[place + 1..]));
        }
    }
    None
}

/// A number with a sign: 0, -1, 1, -2, ..
fn signed(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (value, behind) = number(bytes)?;
    Some(((value >> 1) as i64 ^ -((value & 1) as i64), behind))
}

/// Adds what `of` makes of `count` codes of `width` bits to `out`: runs of one code, and codes eight by eight.
fn runs<T: Copy>(
    mut packed: &[u8],
    width: usize,
    count: usize,
    out: &mut Vec<T>,
    of: impl Fn(u32) -> Option<T>,
) -> Option<()> {
    let end = out.len() + count;
    let mask = mask(width);
    while out.len() < end {
        let left = end - out.len();
        let (head, behind) = number(packed)?;
        let nr = usize::try_from(head >> 1).ok()?;
        if nr == 0 {
            return None;
        }
        if head & 1 == 0 {
            let (code, behind) = behind.split_at_checked(width.div_ceil(8))?;
            let mut bytes = [0; 4];
            bytes[..code.len()].copy_from_slice(code);
            out.resize(out.len() + nr.min(left), of(u32::from_le_bytes(bytes))?);
            packed = behind;
            continue;
        }
        // The last of them may be cut short, as only `count` codes are meant.
        let eights = nr.min(left.div_ceil(8));
        let (mine, behind) = behind.split_at_checked((eights * width).min(behind.len()))?;
        for eight in 0..eights {
            let rest = mine.get(eight * width..)?;
            let mut bytes = [0; 40];
            match rest.first_chunk::<40>() {
                Some(whole) => bytes = *whole,
                None => bytes[..rest.len()].copy_from_slice(rest),
            }
            let load = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            let wanted = (end - out.len()).min(8);
            if rest.len() * 8 < wanted * width {
                return None;
            }
            // Eight of up to eight bits are in the first word.
            let mut codes = [0; 8];
            if width <= 8 {
                let word = load(0);
                codes = std::array::from_fn(|place| (word >> (place * width) & mask) as u32);
            } else {
                for (place, code) in codes.iter_mut().enumerate() {
                    let bit = place * width;
                    *code = (load(bit / 8) >> (bit % 8) & mask) as u32;
                }
            }
            if wanted == 8 {
                let mut found = [of(codes[0])?; 8];
                for (found, code) in found[1..].iter_mut().zip(&codes[1..]) {
                    *found = of(*code)?;
                }
                out.extend_from_slice(&found);
            } else {
                for code in &codes[..wanted] {
                    out.push(of(*code)?);
                }
            }
        }
        packed = behind;
    }
    Some(())
}

/// Adds `count` numbers of a page of differences to `out`.
fn deltas(bytes: &[u8], count: usize, out: &mut Vec<i64>) -> Option<()> {
    let (block, rest) = number(bytes)?;
    let (parts, rest) = number(rest)?;
    let (total, rest) = number(rest)?;
    let (first, mut rest) = signed(rest)?;
    if total != count as u64 {
        return None;
    }
    if count == 0 {
        return Some(());
    }
    let (block, parts) = (usize::try_from(block).ok()?, usize::try_from(parts).ok()?);
    if parts == 0 || block > MOST || block % parts != 0 || (block / parts) % 32 != 0 || block == 0 {
        return None;
    }
    let part = block / parts;
    let mut at = out.len() + 1;
    out.resize(out.len() + count, first);
    let mut last = first;
    while at < out.len() {
        let (low, behind) = signed(rest)?;
        let (widths, behind) = behind.split_at_checked(parts)?;
        rest = behind;
        for width in widths {
            if at == out.len() {
                break;
            }
            let nr = part.min(out.len() - at);
            let size = part / 8 * usize::from(*width);
            let unpack = UNPACK.get(usize::from(*width))?;
            // Some writers cut the last part where its last number ends.
            if rest.len() < size && rest.len() * 8 < nr * usize::from(*width) {
                return None;
            }
            last = unpack(rest, low, last, &mut out[at..at + nr]);
            at += nr;
            rest = &rest[size.min(rest.len())..];
        }
    }
    Some(())
}

/// As many ones.
const fn mask(width: usize) -> u64 {
    if width == 0 { 0 } else { u64::MAX >> (64 - width) }
}

/// Adds up differences of `W` bits above `low`; `packed` begins with them, and may go on. Returns the last sum.
fn unpack<const W: usize>(packed: &[u8], low: i64, mut last: i64, out: &mut [i64]) -> i64 {
    let (whole, rest) = out.as_chunks_mut();
    let nr_whole = whole.len();
    for (nr, sums) in whole.iter_mut().enumerate() {
        *sums = eight::<W>(packed.get(nr * W..).unwrap_or_default(), low, last);
        last = sums[7];
    }
    if let Some(place) = rest.len().checked_sub(1) {
        let sums = eight::<W>(packed.get(nr_whole * W..).unwrap_or_default(), low, last);
        rest.copy_from_slice(&sums[..=place]);
        last = sums[place];
    }
    last
}

/// Eight sums.
#[inline(always)]
fn eight<const W: usize>(packed: &[u8], low: i64, mut last: i64) -> [i64; 8] {
    let mut end = [0; ROOM];
    let bytes: &[u8; ROOM] = match packed.first_chunk() {
        Some(whole) => whole,
        None => {
            end[..packed.len()].copy_from_slice(packed);
            &end
        }
    };
    std::array::from_fn(|place| {
        let (byte, bit) = (place * W / 8, place * W % 8);
        let value = if W + bit <= 64 {
            bytes[byte..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word) >> bit)
        } else {
            bytes[byte..].first_chunk().map_or(0, |word| (u128::from_le_bytes(*word) >> bit) as u64)
        };
        last = last.wrapping_add(low.wrapping_add((value & mask(W)) as i64));
        last
    })
}

/// A function that adds up differences.
type Unpack = fn(&[u8], i64, i64, &mut [i64]) -> i64;

macro_rules! of_widths {
    ($($width:literal)*) => {
        [$(unpack::<$width>),*]
    };
}

/// By the number of bits.
const UNPACK: [Unpack; 65] = of_widths!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41
    42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64
);

#[cfg(test)]
mod tests;

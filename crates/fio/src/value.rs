//! Values as fio understands them: sizes, times, ranges, lists for reads, writes and trims, splits, distributions.
//!
//! Every function takes the text of one value and gives the value or a [`Fault`], which has the mistake and its part of
//! the text.

use super::expr::{self, Worth};
use iowhy_stack::workload::MAX_ZONES;
use iowhy_text::diagnose::nearest;

/// A mistake in a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// One sentence without a full stop.
    pub message: String,
    /// Bytes of the value that are meant; nothing for all of it.
    pub part: Option<(usize, usize)>,
    /// Words that were perhaps meant, nearest first.
    pub nearest: Vec<String>,
    /// Advice.
    pub help: Option<String>,
}

impl Fault {
    fn new(message: impl Into<String>) -> Fault {
        Fault { message: message.into(), part: None, nearest: Vec::new(), help: None }
    }

    fn help(mut self, help: impl Into<String>) -> Fault {
        self.help = Some(help.into());
        self
    }

    fn at(mut self, start: usize, end: usize) -> Fault {
        self.part = Some((start, end));
        self
    }

    /// The same for a part of a longer value that begins at byte `start`.
    fn inside(mut self, start: usize, length: usize) -> Fault {
        let (from, to) = self.part.unwrap_or((0, length));
        self.part = Some((start + from, start + to));
        self
    }
}

/// A value, or the mistake in it.
pub type Parsed<T> = Result<T, Fault>;

/// One thing for each direction.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct PerDirection<T> {
    pub read: T,
    /// For writes.
    pub write: T,
    pub trim: T,
}

impl<T> PerDirection<T> {
    /// The same for all three.
    pub fn all(value: T) -> PerDirection<T>
    where
        T: Clone,
    {
        PerDirection { read: value.clone(), write: value.clone(), trim: value }
    }

    /// Each of them changed.
    pub fn map<U>(self, mut change: impl FnMut(T) -> U) -> PerDirection<U> {
        PerDirection { read: change(self.read), write: change(self.write), trim: change(self.trim) }
    }
}

/// A triple of which some places were left empty.
pub type Partial<T> = PerDirection<Option<T>>;

impl<T: Clone> Partial<T> {
    /// The places that are empty filled from `below`.
    pub fn over(self, below: &Partial<T>) -> Partial<T> {
        PerDirection {
            read: self.read.or_else(|| below.read.clone()),
            write: self.write.or_else(|| below.write.clone()),
            trim: self.trim.or_else(|| below.trim.clone()),
        }
    }
}

/// An amount of data.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Amount {
    Bytes(u64),
    /// Hundredths of the file or device.
    Percent(u32),
    /// Zones of a zoned device.
    Zones(u64),
}

impl Amount {
    /// The bytes it means of a whole of this many bytes. Zones have no meaning there.
    pub fn of(self, whole: u64) -> Option<u64> {
        match self {
            Amount::Bytes(bytes) => Some(bytes),
            Amount::Percent(percent) => u64::try_from(u128::from(whole) * u128::from(percent) / 100).ok(),
            Amount::Zones(_) => None,
        }
    }
}

/// Unit of a number without one in a time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    Seconds,
    Millis,
    Micros,
}

impl TimeUnit {
    /// Microseconds in one.
    pub const fn micros(self) -> u64 {
        match self {
            TimeUnit::Seconds => 1_000_000,
            TimeUnit::Millis => 1000,
            TimeUnit::Micros => 1,
        }
    }
}

/// Bytes in a unit of data. The full forms (`kib`) are powers of the *other* base: with the usual base of 1024, `1kib`
/// is 1000 bytes.
pub fn data_unit(suffix: &str, kb_base: u64) -> Option<i128> {
    let suffix = suffix.to_ascii_lowercase();
    let (letter, rest) = match suffix.as_bytes() {
        [] => return Some(1),
        b"b" => return Some(1),
        [letter, rest @ ..] => (letter, rest),
    };
    let power = match letter {
        b'k' => 1,
        b'm' => 2,
        b'g' => 3,
        b't' => 4,
        b'p' => 5,
        _ => return None,
    };
    let (base, other): (i128, i128) = if kb_base == 1000 { (1000, 1024) } else { (1024, 1000) };
    match rest {
        b"" | b"b" | b"i" => Some(base.pow(power)),
        b"ib" => Some(other.pow(power)),
        _ => None,
    }
}

/// Microseconds in a unit of time.
pub fn time_unit(suffix: &str) -> Option<i128> {
    match suffix.to_ascii_lowercase().as_str() {
        "d" => Some(86_400_000_000),
        "h" => Some(3_600_000_000),
        "m" => Some(60_000_000),
        "s" => Some(1_000_000),
        "ms" | "msec" => Some(1000),
        "us" | "usec" => Some(1),
        _ => None,
    }
}

/// A number with a suffix, or an expression in parentheses.
fn number(text: &str, unit: expr::Unit<'_>, what: &str) -> Parsed<Worth> {
    if text.is_empty() {
        return Err(Fault::new("the value is missing").help(format!("a {what}")));
    }
    if text.starts_with('(') {
        return expr::evaluate(text, unit).map_err(|failure| {
            let end = text[failure.at..].chars().next().map_or(text.len(), |c| failure.at + c.len_utf8());
            Fault::new(format!("`{text}` cannot be computed: {}", failure.message)).at(failure.at, end)
        });
    }
    // As fio: a parenthesis that nothing opens is passed over.
    let text = text.trim_end_matches(')');
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let negative = text.starts_with('-');
    let wrong = || Fault::new(format!("`{text}` is not a {what}"));
    let (digits, radix) = match unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (unsigned, 10),
    };
    let nr_digits = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let (digits, suffix) = digits.split_at(nr_digits);
    if digits.is_empty() {
        return Err(wrong());
    }
    let value = i128::from_str_radix(digits, radix).ok().filter(|value| *value <= i128::from(u64::MAX));
    let value = value.ok_or_else(|| Fault::new(format!("`{text}` is too large")))?;
    if suffix.starts_with('.') {
        // fio reads the digits before the point and drops the rest, unit and all.
        return Err(wrong().help("a whole number: fio reads only the part before the point"));
    }
    let factor = unit(suffix.trim_start()).ok_or_else(|| {
        let at = text.len() - suffix.len();
        Fault::new(format!("`{}` is not a unit of a {what}", suffix.trim())).at(at, text.len())
    })?;
    // Both factors are below 2^64, so that the product is below 2^127 for every unit there is.
    let value = value.checked_mul(factor).ok_or_else(|| Fault::new(format!("`{text}` is too large")))?;
    Ok(Worth { value: if negative { -value } else { value }, any_unit: !suffix.is_empty() })
}

/// Checks limits and narrows.
fn limited(worth: i128, text: &str, (min, max): (i64, i64)) -> Parsed<i64> {
    let shown = |limit: i64| if limit == i64::MAX { "2^63-1".to_owned() } else { limit.to_string() };
    match i64::try_from(worth) {
        Ok(value) if value < min => Err(Fault::new(format!("`{text}` is below the least value, {}", shown(min)))),
        Ok(value) if value <= max => Ok(value),
        Err(_) if worth < 0 => Err(Fault::new(format!("`{text}` is below the least value, {}", shown(min)))),
        _ => Err(Fault::new(format!("`{text}` is above the greatest value, {}", shown(max)))),
    }
}

/// A whole number or a number of bytes: fio reads both alike, with a suffix.
pub fn integer(text: &str, kb_base: u64, limits: (i64, i64)) -> Parsed<i64> {
    let worth = number(text, &|suffix| data_unit(suffix, kb_base), "number")?;
    limited(worth.value, text, limits)
}

/// An amount of data: bytes, a percentage, or zones.
pub fn amount(text: &str, kb_base: u64, min: i64) -> Parsed<Amount> {
    if let Some(percent) = text.strip_suffix('%') {
        let fault = || {
            Fault::new(format!("`{text}` is not a percentage"))
                .help("a whole number of hundredths from 0 to 100, for example 50%")
        };
        let percent = percent.trim_end().parse::<u32>().map_err(|_| fault())?;
        return if percent <= 100 { Ok(Amount::Percent(percent)) } else { Err(fault()) };
    }
    if let Some(zones) = text.strip_suffix(['z', 'Z'])
        && let Ok(zones) = zones.parse::<u64>()
    {
        return Ok(Amount::Zones(zones));
    }
    let worth = number(text, &|suffix| data_unit(suffix, kb_base), "size")?;
    let bytes = limited(worth.value, text, (min, i64::MAX))?;
    u64::try_from(bytes).map(Amount::Bytes).map_err(|_| Fault::new(format!("`{text}` is negative")))
}

/// A time in microseconds.
pub fn time(text: &str, default: TimeUnit, (min, max): (i64, i64)) -> Parsed<u64> {
    let unit = |suffix: &str| if suffix.is_empty() { Some(1) } else { time_unit(suffix) };
    let worth = number(text, &unit, "time")?;
    let factor = if worth.any_unit { 1 } else { i128::from(default.micros()) };
    let value = worth.value.checked_mul(factor).ok_or_else(|| Fault::new(format!("`{text}` is too large")))?;
    limited(value, text, (min, max)).map(i64::unsigned_abs)
}

/// The mistake of a missing value.
pub(super) fn missing() -> Fault {
    Fault::new("the value is missing")
}

/// Whether a word means yes.
pub fn switch(text: &str) -> Parsed<bool> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(Fault::new(format!("`{text}` is neither 0 nor 1")).help("0 or 1")),
    }
}

/// One of several words.
pub fn choice(text: &str, words: &'static [&'static str]) -> Parsed<&'static str> {
    words.iter().find(|word| **word == text).copied().ok_or_else(|| {
        let mut fault = Fault::new(if text.is_empty() {
            "the value is missing".to_owned()
        } else {
            format!("`{text}` is not one of its values")
        });
        fault.nearest = nearest(text, words);
        if words.len() <= 24 { fault.help(format!("one of {}", words.join(", "))) } else { fault }
    })
}

/// The pieces of a list with where each begins.
fn pieces<'a>(text: &'a str, separators: &'static [char]) -> impl Iterator<Item = (usize, &'a str)> {
    text.split(separators).map(move |piece| (piece.as_ptr() as usize - text.as_ptr() as usize, piece)).map(
        |(start, piece)| {
            let trimmed = piece.trim();
            (start + piece.len() - piece.trim_start().len(), trimmed)
        },
    )
}

/// One value for all directions, or one each for reads, writes and trims with commas between. Two: the second is also
/// for trims. An empty place keeps the earlier value.
pub fn triple<T: Clone>(text: &str, mut one: impl FnMut(&str) -> Parsed<T>) -> Parsed<Partial<T>> {
    let mut values: Vec<Option<T>> = Vec::new();
    for (start, piece) in pieces(text, &[',']) {
        if values.len() == 3 {
            return Err(Fault::new("more than three values: there are reads, writes and trims").at(start, text.len()));
        }
        let value =
            if piece.is_empty() { None } else { Some(one(piece).map_err(|fault| fault.inside(start, piece.len()))?) };
        values.push(value);
    }
    if values.iter().all(Option::is_none) {
        return Err(Fault::new("the value is missing").help("one for all, or READ,WRITE,TRIM"));
    }
    let read = values.first().cloned().flatten();
    Ok(match values.len() {
        1 => PerDirection::all(read),
        2 => PerDirection { read, write: values[1].clone(), trim: values[1].clone() },
        _ => PerDirection { read, write: values[1].clone(), trim: values[2].clone() },
    })
}

/// A range of sizes; the ends may be in either order. As fio: the first `-` is between them, or else the first `:`, and
/// what follows a size behind a `/`, `:` or `-` is passed over.
pub fn range(text: &str, kb_base: u64) -> Parsed<(u64, u64)> {
    let Some(at) = text.find('-').or_else(|| text.find(':')) else {
        return Err(Fault::new(format!("`{text}` is not a range")).help("MIN-MAX, for example 4k-64k"));
    };
    let end = |part: &str, start: usize| {
        let part = part.split(['/', ':', '-']).next().unwrap_or_default();
        let bytes = integer(part.trim(), kb_base, (1, i64::MAX)).map_err(|fault| fault.inside(start, part.len()))?;
        Ok(bytes.unsigned_abs())
    };
    let (first, second) = (end(&text[..at], 0)?, end(&text[at + 1..], at + 1)?);
    Ok((first.min(second), first.max(second)))
}

/// Ranges for reads, writes and trims, with a comma between.
pub fn ranges(text: &str, kb_base: u64) -> Parsed<Partial<(u64, u64)>> {
    triple(text, |piece| range(piece, kb_base))
}

/// A part of a split: block size in bytes, and its share.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Block size, bytes.
    pub bytes: u64,
    /// Share of the I/Os, in hundredths of a percent.
    pub basis_points: u32,
}

/// `size/percent` pairs with a colon between. Sizes without a percentage share the rest.
fn split_one(text: &str, kb_base: u64) -> Parsed<Vec<Share>> {
    const MAX_PARTS: usize = 256;
    let mut given: Vec<(u64, Option<u32>)> = Vec::new();
    for (start, piece) in pieces(text, &[':']) {
        if piece.is_empty() {
            continue;
        }
        let (size, percent) = match piece.split_once('/') {
            Some((size, percent)) => (size, Some(percent.trim())),
            None => (piece, None),
        };
        let bytes = integer(size.trim(), kb_base, (1, i64::MAX)).map_err(|fault| fault.inside(start, size.len()))?;
        let percent = match percent {
            None | Some("") => None,
            Some(percent) => {
                let from = start + piece.len() - percent.len();
                Some(percent.trim_end_matches('%').parse::<u32>().ok().filter(|value| *value <= 100).ok_or_else(
                    || Fault::new(format!("`{percent}` is not a percentage")).at(from, start + piece.len()),
                )?)
            }
        };
        given.push((bytes.unsigned_abs(), percent));
        if given.len() > MAX_PARTS {
            return Err(Fault::new(format!("more than {MAX_PARTS} block sizes")).at(start, text.len()));
        }
    }
    let sum: u32 = given.iter().filter_map(|(_, percent)| *percent).sum();
    let nr_open = given.iter().filter(|(_, percent)| percent.is_none()).count() as u32;
    if sum > 100 {
        return Err(Fault::new(format!("the percentages add up to {sum}, not to 100")));
    }
    let left = (100 - sum) * 100;
    let mut rest = left;
    let mut still_open = nr_open;
    let mut shares = Vec::new();
    for (bytes, percent) in given {
        let basis_points = match percent {
            Some(percent) => percent * 100,
            None => {
                // The last takes the remainder of the division, so that the shares are exactly the whole.
                let share = if still_open == 1 { rest } else { left / nr_open };
                still_open -= 1;
                rest -= share;
                share
            }
        };
        shares.push(Share { bytes, basis_points });
    }
    // As fio draws them, the last size stands for whatever the others leave.
    if nr_open == 0
        && let Some(last) = shares.last_mut()
    {
        last.basis_points += left;
    }
    Ok(shares)
}

/// A split of block sizes for reads, writes and trims: a comma begins the list for writes.
pub fn split(text: &str, kb_base: u64) -> Parsed<Partial<Vec<Share>>> {
    let parsed = triple(text, |piece| split_one(piece, kb_base))?;
    // A list of colons alone says nothing.
    Ok(parsed.map(|shares| shares.filter(|shares| !shares.is_empty())))
}

/// A decimal number in millionths, from `min` to `max` millionths.
pub fn millionths(text: &str, (min, max): (u64, u64)) -> Parsed<u64> {
    let wrong = || Fault::new(format!("`{text}` is not a decimal number"));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
        return Err(wrong());
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().map_err(|_| wrong())? };
    let kept = &fraction[..fraction.len().min(6)];
    let part = format!("{kept:0<6}").parse::<u64>().map_err(|_| wrong())?;
    let value = whole.checked_mul(1_000_000).and_then(|value| value.checked_add(part)).ok_or_else(wrong)?;
    let shown = |limit: u64| {
        let text = format!("{}.{:06}", limit / 1_000_000, limit % 1_000_000);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    if (min..=max).contains(&value) {
        Ok(value)
    } else {
        Err(Fault::new(format!("`{text}` is not between {} and {}", shown(min), shown(max))))
    }
}

/// Decimal numbers with a colon between, at most 20 of them.
pub fn decimals(text: &str, limits: (u64, u64)) -> Parsed<Vec<u64>> {
    const MAX_LIST: usize = 20;
    let mut list = Vec::new();
    for (start, piece) in pieces(text, &[':']) {
        if list.len() == MAX_LIST {
            return Err(Fault::new(format!("more than {MAX_LIST} numbers in the list")).at(start, text.len()));
        }
        list.push(millionths(piece, limits).map_err(|fault| fault.inside(start, piece.len()))?);
    }
    Ok(list)
}

/// Kinds of I/O of a job, and whether positions are random.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Whether it reads.
    pub read: bool,
    /// Whether it writes.
    pub write: bool,
    /// Whether it trims.
    pub trim: bool,
    /// Random rather than sequential.
    pub random: bool,
    /// The suffix `:n`.
    pub suffix: ModeSuffix,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ModeSuffix {
    /// Nothing.
    None,
    /// Random: a new position after this many I/Os.
    PerOffset(u32),
    /// Sequential: bytes to add to the position after each I/O; may be negative.
    Hole(i64),
}

/// Names of the modes with reads, writes, trims, random.
const MODES: &[(&str, [bool; 4])] = &[
    ("read", [true, false, false, false]),
    ("write", [false, true, false, false]),
    ("trim", [false, false, true, false]),
    ("randread", [true, false, false, true]),
    ("randwrite", [false, true, false, true]),
    ("randtrim", [false, false, true, true]),
    ("rw", [true, true, false, false]),
    ("readwrite", [true, true, false, false]),
    ("randrw", [true, true, false, true]),
    ("trimwrite", [false, true, true, false]),
    ("randtrimwrite", [false, true, true, true]),
];

impl Mode {
    /// The mode without its suffix, as fio writes it.
    pub fn name(&self) -> &'static str {
        let flags = [self.read, self.write, self.trim, self.random];
        MODES.iter().find(|(_, known)| *known == flags).map_or("rw", |(name, _)| name)
    }
}

/// A mode: `randread`, `randrw:8`, `write:4k`.
pub fn mode(text: &str, kb_base: u64) -> Parsed<Mode> {
    let (name, suffix) = match text.split_once(':') {
        Some((name, suffix)) => (name.trim(), Some(suffix)),
        None => (text, None),
    };
    let Some((_, [read, write, trim, random])) = MODES.iter().find(|(known, _)| *known == name) else {
        let mut fault = Fault::new(if name.is_empty() {
            "the value is missing".to_owned()
        } else {
            format!("`{name}` is not one of its values")
        })
        .at(0, name.len())
        .help("one of read, write, trim, randread, randwrite, randtrim, rw, randrw, trimwrite, randtrimwrite");
        fault.nearest = nearest(name, MODES.iter().map(|(name, _)| *name));
        return Err(fault);
    };
    let suffix = match suffix {
        None => ModeSuffix::None,
        Some(suffix) => {
            let limits = if *random { (1, 1 << 30) } else { (-(1 << 50), 1 << 50) };
            let start = text.len() - suffix.len();
            let value = integer(suffix.trim(), kb_base, limits).map_err(|fault| fault.inside(start, suffix.len()))?;
            if *random {
                ModeSuffix::PerOffset(u32::try_from(value).unwrap_or(u32::MAX))
            } else {
                ModeSuffix::Hole(value)
            }
        }
    };
    Ok(Mode { read: *read, write: *write, trim: *trim, random: *random, suffix })
}

/// How positions are drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// All equally likely.
    Uniform,
    /// Zipf's law with this theta in millionths.
    Zipf {
        /// The exponent.
        theta: u64,
        /// Where the most likely position is, in millionths of the file; nothing for anywhere.
        center: Option<u64>,
    },
    /// Pareto's law with this h in millionths.
    Pareto {
        /// The power.
        h: u64,
        /// Where the most likely position is, in millionths of the file; nothing for anywhere.
        center: Option<u64>,
    },
    /// Gaussian around the middle with this deviation in millionths of a percent of the file.
    Normal {
        deviation: u64,
        /// Where the most likely position is, in millionths of the file; nothing for the middle.
        center: Option<u64>,
    },
    /// Zones one behind the other: share of the calls, and of the file, percent.
    Zones(Vec<[u8; 2]>),
    /// Zones with sizes, or with shares that are left open, as written behind the name.
    Zoned(String),
}

const PERCENT: u64 = 100_000_000;

/// A distribution: `random`, `zipf:1.2`, `pareto:0.9`, `normal:20`, `zoned:60/10:40/90`.
pub fn distribution(text: &str) -> Parsed<Distribution> {
    const NAMES: &[&str] = &["random", "zipf", "pareto", "normal", "gauss", "zoned", "zoned_abs"];
    let (name, rest) = match text.split_once(':') {
        Some((name, rest)) => (name, Some(rest)),
        None => (text, None),
    };
    let known = choice(name, NAMES).map_err(|fault| fault.at(0, name.len()))?;
    if matches!(known, "zoned" | "zoned_abs") {
        return match rest {
            Some(rest) if !rest.is_empty() => Ok(match zones(rest).filter(|_| known == "zoned") {
                Some(zones) => Distribution::Zones(zones),
                None => Distribution::Zoned(rest.to_owned()),
            }),
            _ => {
                Err(Fault::new(format!("`{known}` needs zones"))
                    .help("zoned:60/10:40/90 (percent of I/Os / of the file)"))
            }
        };
    }
    if known == "random" {
        return match rest {
            None => Ok(Distribution::Uniform),
            Some(_) => Err(Fault::new("`random` has no parameter").at(name.len(), text.len())),
        };
    }
    let (parameter, center) = match rest.map(|rest| rest.split_once('/').map_or((rest, None), |(a, b)| (a, Some(b)))) {
        Some((parameter, center)) => (Some(parameter), center),
        None => (None, None),
    };
    let start = name.len() + 1;
    let given = |limits, default| match parameter {
        Some(parameter) => millionths(parameter, limits).map_err(|fault| fault.inside(start, parameter.len())),
        None => Ok(default),
    };
    let center = match center {
        Some(center) => Some(
            millionths(center, (0, 1_000_000))
                .map_err(|fault| fault.inside(text.len() - center.len(), center.len()))?,
        ),
        None => None,
    };
    match known {
        "zipf" => {
            let theta = given((1, PERCENT), 1_100_000)?;
            if theta == 1_000_000 {
                return Err(Fault::new("the theta of zipf must differ from 1").at(start, text.len()));
            }
            Ok(Distribution::Zipf { theta, center })
        }
        "pareto" => Ok(Distribution::Pareto { h: given((1, 999_999), 200_000)?, center }),
        _ => Ok(Distribution::Normal { deviation: given((0, PERCENT), 0)?, center }),
    }
}

/// Zones with both shares, if they add up.
fn zones(text: &str) -> Option<Vec<[u8; 2]>> {
    let zone = |part: &str| {
        let (calls, file) = part.split_once('/')?;
        Some([calls.trim().parse().ok()?, file.trim().parse().ok()?])
    };
    let zones: Vec<[u8; 2]> = text.split(':').map(zone).collect::<Option<_>>()?;
    let sum = |side: usize| zones.iter().map(|zone| u32::from(zone[side])).sum::<u32>();
    (sum(0) == 100 && sum(1) <= 100 && zones.len() <= MAX_ZONES).then_some(zones)
}

/// How the next file is picked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The rule.
    pub kind: ServiceKind,
    /// I/Os to a file before the next is picked.
    pub every: u64,
}

/// The rule by which the next file is picked.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ServiceKind {
    /// One after the other.
    RoundRobin,
    /// Any.
    Random,
    /// The first until it is done.
    Sequential,
    /// Zipf's law, theta in millionths.
    Zipf(u64),
    /// Pareto's law, h in millionths.
    Pareto(u64),
    /// Gaussian, deviation in millionths of a percent.
    Normal(u64),
}

/// A service type: `roundrobin`, `random:8`, `zipf:1.2`.
pub fn service(text: &str) -> Parsed<Service> {
    const NAMES: &[&str] = &["roundrobin", "random", "sequential", "zipf", "pareto", "normal", "gauss"];
    let (name, rest) = match text.split_once(':') {
        Some((name, rest)) => (name, Some(rest)),
        None => (text, None),
    };
    let known = choice(name, NAMES).map_err(|fault| fault.at(0, name.len()))?;
    let start = text.len() - rest.map_or(0, str::len);
    let inside = |fault: Fault| fault.inside(start, text.len() - start);
    let parameter = |limits, default| match rest {
        Some(rest) => millionths(rest, limits).map_err(inside),
        None => Ok(default),
    };
    let kind = match known {
        "roundrobin" => ServiceKind::RoundRobin,
        "random" => ServiceKind::Random,
        "sequential" => ServiceKind::Sequential,
        "zipf" => ServiceKind::Zipf(parameter((1, PERCENT), 1_100_000)?),
        "pareto" => ServiceKind::Pareto(parameter((1, 999_999), 200_000)?),
        _ => ServiceKind::Normal(parameter((0, PERCENT), 0)?),
    };
    let plain = matches!(kind, ServiceKind::RoundRobin | ServiceKind::Random | ServiceKind::Sequential);
    let every = match rest {
        Some(rest) if plain => integer(rest, 1024, (1, 1 << 40)).map_err(inside)?.unsigned_abs(),
        _ => 1,
    };
    Ok(Service { kind, every })
}

/// Page cache when a job starts (`iowhy_cache`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum CacheState {
    /// Empty.
    Cold,
    /// All of the job's files.
    Warm,
    /// The last bytes of the files.
    Tail(u64),
}

/// A state of the cache: `cold`, `warm`, `tail:64m`.
pub fn cache(text: &str, kb_base: u64) -> Parsed<CacheState> {
    match text.split_once(':') {
        None if text == "cold" => Ok(CacheState::Cold),
        None if text == "warm" => Ok(CacheState::Warm),
        Some(("tail", size)) => {
            let bytes = integer(size, kb_base, (1, 1 << 60)).map_err(|fault| fault.inside(5, size.len()))?;
            Ok(CacheState::Tail(bytes.unsigned_abs()))
        }
        _ => {
            let mut fault = Fault::new(format!("`{text}` is not one of its values")).help("cold, warm or tail:SIZE");
            fault.nearest = nearest(text.split(':').next().unwrap_or(text), ["cold", "warm", "tail"]);
            Err(fault)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Result<i64, String> {
        integer(text, 1024, (i64::MIN, i64::MAX)).map_err(|fault| fault.message)
    }

    #[test]
    fn sizes_have_the_units_of_fio() {
        for (text, expected) in [
            ("0", 0),
            ("4096", 4096),
            ("512b", 512),
            ("1k", 1024),
            ("1K", 1024),
            ("1kb", 1024),
            ("1ki", 1024),
            ("1kib", 1000),
            ("1m", 1_048_576),
            ("1mi", 1_048_576),
            ("1mb", 1_048_576),
            ("1mib", 1_000_000),
            ("1MiB", 1_000_000),
            ("2g", 2 << 30),
            ("1gib", 1_000_000_000),
            ("3T", 3 << 40),
            ("1pib", 1_000_000_000_000_000),
            ("0x10", 16),
            ("0x10k", 16_384),
            ("-4k", -4096),
            ("+7", 7),
            ("65536)", 65_536),
            ("(1m+4k)", 1_048_576 + 4096),
            ("((2+2)*4k)", 16_384),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        assert_eq!(integer("1k", 1000, (0, i64::MAX)), Ok(1000));
        assert_eq!(integer("1kib", 1000, (0, i64::MAX)), Ok(1024));
    }

    #[test]
    fn what_is_no_size_says_why() {
        for (text, expected) in [
            ("", "the value is missing"),
            ("k", "`k` is not a number"),
            ("4q", "`q` is not a unit of a number"),
            ("1.5m", "`1.5m` is not a number"),
            ("4 k k", "`k k` is not a unit of a number"),
            ("99999999999999999999", "`99999999999999999999` is too large"),
            ("9000p", "`9000p` is above the greatest value, 2^63-1"),
            ("(1", "`(1` cannot be computed: a closing parenthesis is missing"),
            ("--1", "`--1` is not a number"),
            ("ü", "`ü` is not a number"),
        ] {
            assert_eq!(bytes(text), Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn amounts_may_be_shares() {
        assert_eq!(amount("50%", 1024, 0), Ok(Amount::Percent(50)));
        assert_eq!(amount("4z", 1024, 0), Ok(Amount::Zones(4)));
        assert_eq!(amount("1g", 1024, 0), Ok(Amount::Bytes(1 << 30)));
        assert_eq!(Amount::Percent(50).of(102_400), Some(51_200));
        for wrong in ["101%", "-1%", "%", "1.5%", "-1", "z"] {
            assert!(amount(wrong, 1024, 0).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_have_a_unit_of_their_option() {
        for (text, unit, expected) in [
            ("10", TimeUnit::Seconds, 10_000_000),
            ("1m", TimeUnit::Seconds, 60_000_000),
            ("500ms", TimeUnit::Seconds, 500_000),
            ("500", TimeUnit::Micros, 500),
            ("500", TimeUnit::Millis, 500_000),
            ("2H", TimeUnit::Micros, 7_200_000_000),
            ("1d", TimeUnit::Seconds, 86_400_000_000),
            ("20usec", TimeUnit::Seconds, 20),
            ("3MSEC", TimeUnit::Seconds, 3000),
            ("(2*3)", TimeUnit::Seconds, 6_000_000),
            ("(1m+30s)", TimeUnit::Micros, 90_000_000),
        ] {
            assert_eq!(time(text, unit, (0, i64::MAX)), Ok(expected), "{text}");
        }
        for wrong in ["", "1k", "s", "-1", "1.5s", "99999999999d"] {
            assert!(time(wrong, TimeUnit::Seconds, (0, i64::MAX)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn triples_serve_reads_writes_and_trims() {
        let parse = |text: &str| {
            triple(text, |piece| integer(piece, 1024, (1, i64::MAX)))
                .map(|triple| [triple.read, triple.write, triple.trim])
                .map_err(|fault| (fault.message, fault.part))
        };
        assert_eq!(parse("4k"), Ok([Some(4096); 3]));
        assert_eq!(parse("4k,8k"), Ok([Some(4096), Some(8192), Some(8192)]));
        assert_eq!(parse(",16k"), Ok([None, Some(16_384), Some(16_384)]));
        assert_eq!(parse("4k,,512"), Ok([Some(4096), None, Some(512)]));
        assert_eq!(parse(" 4k , 8k "), Ok([Some(4096), Some(8192), Some(8192)]));
        assert_eq!(parse("1,2,3,4").map_err(|(_, part)| part), Err(Some((6, 7))));
        assert_eq!(parse("4k,8q"), Err(("`q` is not a unit of a number".to_owned(), Some((4, 5)))));
        assert!(parse(",").is_err() && parse("").is_err());
    }

    #[test]
    fn ranges_are_put_in_order() {
        assert_eq!(range("1k-4k", 1024), Ok((1024, 4096)));
        assert_eq!(range("4k:1k", 1024), Ok((1024, 4096)));
        let parsed = ranges("1k-4k,8k-2k", 1024).expect("two ranges");
        assert_eq!(
            (parsed.read, parsed.write, parsed.trim),
            (Some((1024, 4096)), Some((2048, 8192)), Some((2048, 8192)))
        );
        assert!(range("4k", 1024).is_err() && range("0-4k", 1024).is_err() && range("-", 1024).is_err());
    }

    #[test]
    fn splits_are_shares_of_the_whole() {
        let shares = |text: &str| {
            let list = |shares: Option<Vec<Share>>| -> Vec<(u64, u32)> {
                shares.unwrap_or_default().iter().map(|share| (share.bytes, share.basis_points)).collect()
            };
            split(text, 1024).map(|split| (list(split.read), list(split.write))).map_err(|fault| fault.message)
        };
        let even = vec![(4096, 5000), (8192, 5000)];
        assert_eq!(shares("4k/50:8k/50,16k/100"), Ok((even.clone(), vec![(16_384, 10_000)])));
        assert_eq!(shares("4k/50:8k/50"), Ok((even.clone(), even)));
        let thirds = vec![(4096, 3333), (8192, 3333), (16_384, 3334)];
        assert_eq!(shares("4k:8k:16k"), Ok((thirds.clone(), thirds)));
        let rest = vec![(4096, 9000), (65_536, 1000)];
        assert_eq!(shares("4k/90:64k/"), Ok((rest.clone(), rest)));
        assert_eq!(shares("4k/90:64k/20"), Err("the percentages add up to 110, not to 100".to_owned()));
        assert_eq!(shares("4k/90:64k/5"), shares("4k/90:64k/10"));
        assert_eq!(shares("4k/x"), Err("`x` is not a percentage".to_owned()));
    }

    #[test]
    fn modes_have_a_suffix() {
        let parsed = mode("randread:8", 1024).expect("a mode");
        assert!(parsed.read && !parsed.write && parsed.random);
        assert_eq!(parsed.suffix, ModeSuffix::PerOffset(8));
        assert_eq!(mode("read:4k", 1024).expect("a mode").suffix, ModeSuffix::Hole(4096));
        assert_eq!(mode("write:-8k", 1024).expect("a mode").suffix, ModeSuffix::Hole(-8192));
        assert_eq!(mode("readwrite", 1024), mode("rw", 1024));
        assert_eq!(mode("readwrite", 1024).expect("a mode").name(), "rw");
        assert_eq!(mode("randraed", 1024).expect_err("a slip").nearest[0], "randread");
        assert!(mode("randread:0", 1024).is_err() && mode("", 1024).is_err());
    }

    #[test]
    fn distributions_and_services_have_parameters() {
        assert_eq!(distribution("random"), Ok(Distribution::Uniform));
        assert_eq!(distribution("zipf"), Ok(Distribution::Zipf { theta: 1_100_000, center: None }));
        assert_eq!(distribution("zipf:1.2/0.5"), Ok(Distribution::Zipf { theta: 1_200_000, center: Some(500_000) }));
        assert_eq!(distribution("pareto:0.9"), Ok(Distribution::Pareto { h: 900_000, center: None }));
        assert_eq!(distribution("normal:20"), Ok(Distribution::Normal { deviation: 20_000_000, center: None }));
        assert_eq!(distribution("zoned:60/10:40/90"), Ok(Distribution::Zones(vec![[60, 10], [40, 90]])));
        for other in ["zoned:60/10:30/90", "zoned:60/10:40/", "zoned_abs:60/10:40/90"] {
            assert!(matches!(distribution(other), Ok(Distribution::Zoned(_))), "{other}");
        }
        for wrong in ["", "zipf:1", "zipf:1.0", "zipf:0", "pareto:1", "random:3", "zoned", "zipf:x", "normal:101"] {
            assert!(distribution(wrong).is_err(), "{wrong}");
        }
        assert_eq!(service("random:8"), Ok(Service { kind: ServiceKind::Random, every: 8 }));
        assert_eq!(service("zipf:1.5"), Ok(Service { kind: ServiceKind::Zipf(1_500_000), every: 1 }));
        assert!(service("random:0").is_err() && service("robin").is_err());
    }

    #[test]
    fn decimals_are_exact() {
        assert_eq!(decimals("1:99.5:99.99", (0, PERCENT)), Ok(vec![1_000_000, 99_500_000, 99_990_000]));
        assert_eq!(millionths(".5", (0, PERCENT)), Ok(500_000));
        for wrong in ["", ".", "1.2.3", "-1", "1e3", "101", "99999999999999999999"] {
            assert!(millionths(wrong, (0, PERCENT)).is_err(), "{wrong}");
        }
        assert!(decimals(&["1"; 21].join(":"), (0, PERCENT)).is_err());
    }
}

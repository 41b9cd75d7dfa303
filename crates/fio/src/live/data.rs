//! Data of writes: patterns, and what can be compressed or repeats other data.

use iowhy_live::plan::{Content, Pattern};
use iowhy_text::diagnose::Problem;

use super::Mapping;
use crate::FioJob;
use crate::options::Value;
use crate::value::Amount;

impl Mapping<'_> {
    /// Data that can be compressed or repeat others, or a pattern. Each of these options excludes other data.
    pub(super) fn content(&mut self, job: &FioJob) -> Option<Content> {
        let percent = |name: &str| job.number(name).min(100) as u8;
        let or = |name: &str, usual| job.given(name).map_or(usual, |_| job.number(name));
        let (repeats, compressed) = (percent("dedupe_percentage"), percent("buffer_compress_percentage"));
        let pattern = match job.given("buffer_pattern") {
            Some(Value::Text(text)) => Some(self.pattern("buffer_pattern", &text)?.bytes),
            _ => None,
        };
        let least = job.blocks.write.min.max(1);
        let (mut chunk, mut pattern_percent) = (least, compressed);
        match (repeats, compressed, &pattern) {
            (0, 0, None) => return None,
            // The pattern alone.
            (0, 0, Some(_)) => (chunk, pattern_percent) = (job.blocks.write.max, 100),
            (_, 0, _) => {}
            _ => chunk = Some(or("buffer_compress_chunk", 512)).filter(|bytes| *bytes > 0).unwrap_or(least).min(least),
        }
        let size = if let Some(Amount::Bytes(size)) = job.size { size } else { 0 };
        let pages = size / least * or("dedupe_working_set_percentage", 5) / 100;
        Some(Content {
            chunk_bytes: u32::try_from(chunk).unwrap_or(u32::MAX),
            repeats,
            drawn_from: if job.word("dedupe_mode") == "working_set" { pages.max(1) } else { 0 },
            shared: job.on("dedupe_global"),
            pattern_percent,
            pattern,
        })
    }

    pub(super) fn pattern(&mut self, option: &str, text: &str) -> Option<Pattern> {
        let what = match pattern(text) {
            Ok(pattern) => return Some(pattern),
            Err(what) => what,
        };
        let help = format!("{option}=0xdeadbeef, 66, \"text\" or %o, one behind the other");
        self.problems.push(Problem::error(format!("option `{option}`: {what}")).help(help));
        None
    }
}

/// A pattern: bytes in hexadecimal, decimal numbers, text in quotes, and `%o` for the offset, one behind the other.
pub(super) fn pattern(text: &str) -> Result<Pattern, String> {
    let (mut bytes, mut offsets) = (Vec::new(), Vec::new());
    let mut rest = text;
    while !rest.is_empty() {
        let run = |rest: &str, is: fn(&char) -> bool| rest.chars().take_while(is).count();
        if let Some(quoted) = rest.strip_prefix('"') {
            let end = quoted.find('"').ok_or("a quotation mark is missing")?;
            bytes.extend(quoted[..end].bytes());
            rest = &quoted[end + 1..];
        } else if let Some(behind) = rest.strip_prefix("%o") {
            offsets.push(bytes.len());
            bytes.extend([0; 8]);
            rest = behind;
        } else if let Some(digits) = rest.strip_prefix("0x").or(rest.strip_prefix("0X")) {
            let mut len = run(digits, char::is_ascii_hexdigit);
            // The 0 belongs to the next number.
            if len > 0 && digits[len..].starts_with(['x', 'X']) && digits[..len].ends_with('0') {
                len -= 1;
            }
            let even = format!("{}{}", if len % 2 == 1 { "0" } else { "" }, &digits[..len]);
            let byte = |at: usize| u8::from_str_radix(&even[at..at + 2], 16).map_err(|error| error.to_string());
            for at in (0..even.len()).step_by(2) {
                bytes.push(byte(at)?);
            }
            if len == 0 {
                return Err(format!("`{rest}` has no digits"));
            }
            rest = &digits[len..];
        } else {
            let sign = usize::from(rest.starts_with('-'));
            let upto = rest[sign..].find("0x").map_or(rest.len(), |at| at + sign);
            let len = sign + run(&rest[sign..upto], char::is_ascii_digit);
            let number: i32 = rest[..len].parse().map_err(|_| format!("`{rest}` is not a part of a pattern"))?;
            let used = if number == 0 { 1 } else { 4 - number.cast_unsigned().leading_zeros() as usize / 8 };
            bytes.extend(&number.to_le_bytes()[..used]);
            rest = &rest[len..];
        }
    }
    if bytes.is_empty() {
        return Err("it is empty".to_owned());
    }
    Ok(Pattern { bytes: bytes.into(), offsets: offsets.into() })
}

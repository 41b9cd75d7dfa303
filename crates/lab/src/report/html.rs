//! One HTML file: the built page, with the data in it.
//!
//! The data are JSON, gzip, base64, in an element that browsers neither run nor show. Nothing of them is in the file in
//! any other form, so that no label can become markup; only the title is, with its special characters written out.
//! [`unpack`] reads such a file back.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;

/// The page, built from `web/src`.
const PAGE: &str = include_str!("../../report.html");
/// Where the data go: between these and the end of the element.
const PLACE: &str = "<script type=\"application/octet-stream\" id=\"iowhy-data\" data-encoding=\"gzip+base64\">";
const END: &str = "</script>";
/// A file of data that would unpack to more than this is none of ours.
const MOST: u64 = 1 << 30;

/// Digits of base64 (RFC 4648, section 4).
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |nr: usize| u32::from(three.get(nr).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for nr in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * nr) & 63) as usize];
            // Digits beyond the number of bytes plus one mean nothing.
            text.push(if nr <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut word, mut bits) = (0u32, 0);
    for digit in text.trim_end().trim_end_matches('=').bytes() {
        let value = DIGITS.iter().position(|known| *known == digit)? as u32;
        word = word << 6 | value;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits) as u8);
        }
    }
    Some(bytes)
}

/// Text without markup.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// The text between two others, and its start.
fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<(usize, &'a str)> {
    let start = text.find(from)? + from.len();
    Some((start, &text[start..start + text[start..].find(to)?]))
}

/// The page with this title and these data.
///
/// # Panics
/// If the page that comes with the program has no place for data, which a test excludes.
pub fn pack(title: &str, data: &Value) -> String {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    let written = serde_json::to_writer(&mut gzip, data).map_err(std::io::Error::from).and_then(|()| gzip.flush());
    let packed = written.and_then(|()| gzip.finish()).expect("memory can be written");
    let (at, inside) = between(PAGE, PLACE, END).expect("the page has a place for data");
    let mut html = String::with_capacity(PAGE.len() + packed.len() * 4 / 3 + 100);
    html.push_str(&PAGE[..at]);
    html.push_str(&base64(&packed));
    html.push_str(&PAGE[at + inside.len()..]);
    let Some((at, known)) = between(&html, "<title>", "</title>") else { return html };
    let end = at + known.len();
    html.replace_range(at..end, &escaped(title));
    html
}

/// The page without data, which asks its server for them.
pub fn empty() -> &'static str {
    PAGE
}

/// A server's changes to the page: it may ask the server it came from, and knows that there is one.
const SERVED: [[&str; 2]; 2] =
    [["connect-src 'none'", "connect-src 'self'"], ["</head>", "<meta name=\"iowhy-serve\" content=\"1\"></head>"]];

/// The page without data as a server gives it, and the policy in it (Content-Security-Policy).
///
/// # Panics
/// If the page that comes with the program has not each of these places once, which a test excludes.
pub fn served() -> (String, String) {
    let page = SERVED.iter().fold(PAGE.to_owned(), |page, [from, to]| {
        assert_eq!(page.matches(from).count(), 1, "places for `{to}` in the page");
        page.replace(from, to)
    });
    let policy = between(&page, "<meta http-equiv=\"Content-Security-Policy\" content=\"", "\">");
    let policy = policy.expect("the page has a policy").1.to_owned();
    (page, policy)
}

/// The data of a file that [`pack`] made; nothing of any other.
pub fn unpack(html: &str) -> Option<Value> {
    let (_, text) = between(html, PLACE, END)?;
    let mut json = Vec::new();
    GzDecoder::new(from_base64(text)?.as_slice()).take(MOST).read_to_end(&mut json).ok()?;
    serde_json::from_slice(&json).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        // RFC 4648, section 10.
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
            assert_eq!(from_base64(text).expect("base64"), bytes.as_bytes());
        }
        assert_eq!(from_base64("a<b"), None);
    }

    #[test]
    fn the_page_has_one_place_for_data_and_a_title() {
        assert_eq!(PAGE.matches(PLACE).count(), 1, "web/dist/report.html");
        assert_eq!(PAGE.matches("<title>").count(), 1, "web/dist/report.html");
        assert_eq!(between(PAGE, PLACE, END).map(|(_, inside)| inside.trim()), Some(""));
        assert_eq!(unpack(PAGE), None);
    }

    #[test]
    fn the_served_page_may_ask_its_server_and_nobody_else() {
        let (page, policy) = served();
        assert!(policy.starts_with("default-src 'none'; ") && policy.contains("; connect-src 'self'; "), "{policy}");
        assert_eq!(page.matches("connect-src").count(), 1);
        assert!(page.contains("<meta name=\"iowhy-serve\" content=\"1\"></head>"));
        // Nothing else differs.
        let added = SERVED.iter().map(|[from, to]| to.len() - from.len()).sum::<usize>();
        assert_eq!(page.len(), PAGE.len() + added);
        assert_eq!(SERVED.iter().fold(page, |page, [from, to]| page.replace(to, from)), PAGE);
    }

    /// No label gets into the file but in the packed block, and the title is text.
    #[test]
    fn hostile_labels_are_data() {
        let long = "x".repeat(10_000);
        for label in ["<script>alert(1)</script>", "</script><b>", "</title>\"'&", "\u{202e}evil\u{0}", &long] {
            let data = json!({ "label": label });
            let html = pack(label, &data);
            assert_eq!(unpack(&html), Some(data));
            let plain = pack("", &json!({}));
            assert_eq!(html.matches('<').count(), plain.matches('<').count(), "{label}");
            assert_eq!(html.matches(">").count(), plain.matches(">").count(), "{label}");
        }
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(
            words in prop::collection::vec(".*", 0..20),
            numbers in prop::collection::vec(any::<i64>(), 0..50),
        ) {
            let data = json!({ "words": words, "numbers": numbers });
            prop_assert_eq!(unpack(&pack("a", &data)), Some(data));
        }
    }
}

//! A ledger's lines. Fields are separated by blanks; special characters in them are written as `%XX`.
//!
//! ```text
//! iowhy-ledger 1 BOOT PID START     who wrote it
//! + ID KIND FIELD...                this is about to be made
//! = ID FIELD...                     so it is to be recognised
//! - ID                              it is gone, or is to stay
//! ```

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::{Identity, Item, Owner};

/// Open entries by number.
pub(super) type Open = BTreeMap<u64, (Item, Option<Identity>)>;

#[derive(Debug)]
pub(super) enum Line<'a> {
    /// The writer of the ledger.
    Head(&'a Owner),
    /// This is about to be made.
    Intent(u64, &'a Item),
    /// So it is to be recognised.
    Identified(u64, Identity),
    /// Nothing is to be done about it any more.
    Settled(u64),
}

impl Line<'_> {
    /// The line, with its end.
    pub(super) fn to_text(&self) -> String {
        let fields = match self {
            Line::Head(owner) => {
                let boot = escaped(owner.boot.as_bytes());
                vec!["iowhy-ledger".into(), "1".into(), boot, owner.pid.to_string(), owner.start.to_string()]
            }
            Line::Intent(id, item) => {
                let mut fields = vec!["+".into(), id.to_string()];
                fields.extend(item_fields(item));
                fields
            }
            Line::Identified(id, Identity::File { device, inode, born_ns }) => {
                vec!["=".into(), id.to_string(), device.to_string(), inode.to_string(), born_ns.to_string()]
            }
            Line::Identified(id, Identity::Value(value)) => {
                vec!["=".into(), id.to_string(), escaped(value.as_bytes())]
            }
            Line::Settled(id) => vec!["-".into(), id.to_string()],
        };
        fields.join(" ") + "\n"
    }
}

fn item_fields(item: &Item) -> Vec<String> {
    let path = |path: &Path| escaped(path.as_os_str().as_bytes());
    match item {
        Item::File { path: at, temporary } => vec!["file".into(), path(at), path(temporary)],
        Item::Directory { path: at, temporary, scratch } => {
            vec![if *scratch { "scratch" } else { "directory" }.into(), path(at), path(temporary)]
        }
        Item::Mount { source, target, filesystem } => {
            vec!["mount".into(), path(source), path(target), escaped(filesystem.as_bytes())]
        }
        Item::Loop { index, device, inode } => {
            vec!["loop".into(), index.to_string(), device.to_string(), inode.to_string()]
        }
        Item::Zram { index, sequence } => vec!["zram".into(), index.to_string(), sequence.to_string()],
        Item::Ublk { index, token } => vec!["ublk".into(), index.to_string(), token.to_string()],
        Item::Setting { path: at, old, new } => {
            vec!["setting".into(), path(at), escaped(old.as_bytes()), escaped(new.as_bytes())]
        }
        Item::TraceInstance { path: at } => vec!["trace".into(), path(at)],
        Item::Process { pid, start } => vec!["process".into(), pid.to_string(), start.to_string()],
    }
}

/// The open entries of a ledger, and its writer. A last line without an end was not written to its end: its subject has
/// not been made yet.
///
/// # Errors
/// The number of the first line that is none.
pub(super) fn parse(bytes: &[u8]) -> Result<(Option<Owner>, Open), usize> {
    let mut open = Open::new();
    let mut head = None;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    for (nr, line) in bytes[..whole].split(|byte| *byte == b'\n').enumerate() {
        let line = std::str::from_utf8(line).map_err(|_| nr + 1)?;
        let fields: Vec<&str> = line.split(' ').collect();
        if line.is_empty() {
            continue;
        }
        apply(&fields, &mut head, &mut open).ok_or(nr + 1)?;
    }
    Ok((head, open))
}

fn apply(fields: &[&str], head: &mut Option<Owner>, open: &mut Open) -> Option<()> {
    match fields {
        ["iowhy-ledger", "1", boot, pid, start] => {
            let boot = text(boot)?;
            *head = Some(Owner { boot, pid: pid.parse().ok()?, start: start.parse().ok()? });
        }
        ["+", id, kind, fields @ ..] => {
            open.insert(id.parse().ok()?, (item(kind, fields)?, None));
        }
        ["=", id, device, inode, born] => {
            let (device, inode) = (device.parse().ok()?, inode.parse().ok()?);
            let born_ns = born.parse().ok()?;
            open.get_mut(&id.parse().ok()?)?.1 = Some(Identity::File { device, inode, born_ns });
        }
        ["=", id, value] => open.get_mut(&id.parse().ok()?)?.1 = Some(Identity::Value(text(value)?)),
        ["-", id] => drop(open.remove(&id.parse().ok()?)),
        _ => return None,
    }
    Some(())
}

fn item(kind: &str, fields: &[&str]) -> Option<Item> {
    Some(match (kind, fields) {
        ("file", [at, temporary]) => Item::File { path: path(at)?, temporary: path(temporary)? },
        ("directory" | "scratch", [at, temporary]) => {
            Item::Directory { path: path(at)?, temporary: path(temporary)?, scratch: kind == "scratch" }
        }
        ("mount", [source, target, filesystem]) => {
            Item::Mount { source: word(source)?, target: path(target)?, filesystem: text(filesystem)? }
        }
        ("loop", [index, device, inode]) => {
            Item::Loop { index: index.parse().ok()?, device: device.parse().ok()?, inode: inode.parse().ok()? }
        }
        ("setting", [at, old, new]) => Item::Setting { path: path(at)?, old: text(old)?, new: text(new)? },
        ("trace", [at]) => Item::TraceInstance { path: path(at)? },
        ("zram", [index, sequence]) => Item::Zram { index: index.parse().ok()?, sequence: sequence.parse().ok()? },
        ("ublk", [index, token]) => Item::Ublk { index: index.parse().ok()?, token: token.parse().ok()? },
        ("process", [pid, start]) => Item::Process { pid: pid.parse().ok()?, start: start.parse().ok()? },
        _ => return None,
    })
}

fn escaped(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'%' | b' ' | 0..=31 | 127..=255 => out.push_str(&format!("%{byte:02X}")),
            plain => out.push(char::from(*plain)),
        }
    }
    // An empty field would look like a missing one.
    if out.is_empty() { "%".to_owned() } else { out }
}

fn unescaped(field: &str) -> Option<Vec<u8>> {
    if field == "%" {
        return Some(Vec::new());
    }
    let mut bytes = field.bytes();
    let mut out = Vec::with_capacity(field.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            plain => plain,
        });
    }
    (!out.is_empty()).then_some(out)
}

fn text(field: &str) -> Option<String> {
    String::from_utf8(unescaped(field)?).ok()
}

/// The source of a mount: a device or any word.
fn word(field: &str) -> Option<PathBuf> {
    unescaped(field).map(|bytes| PathBuf::from(OsString::from_vec(bytes)))
}

/// A path; relative ones are refused, for their base is unknown.
fn path(field: &str) -> Option<PathBuf> {
    word(field).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn owner() -> Owner {
        Owner { boot: "a-b".into(), pid: 12, start: 345 }
    }

    fn items() -> Vec<Item> {
        let odd = PathBuf::from(OsString::from_vec(b"/tmp/a b%\n\xff/f".to_vec()));
        vec![
            Item::File { path: odd.clone(), temporary: "/tmp/.iowhy-1".into() },
            Item::Directory { path: odd.clone(), temporary: "/tmp/.iowhy-2".into(), scratch: false },
            Item::Directory { path: odd.clone(), temporary: "/tmp/.iowhy-3".into(), scratch: true },
            Item::Mount { source: "iowhy".into(), target: odd.clone(), filesystem: "tmpfs".into() },
            Item::Loop { index: 640, device: 64512, inode: 77 },
            Item::Setting { path: odd.clone(), old: String::new(), new: "12 [x]".into() },
            Item::TraceInstance { path: odd },
            Item::Process { pid: 12, start: 345 },
            Item::Zram { index: 3, sequence: 77 },
            Item::Ublk { index: 641, token: u64::MAX },
        ]
    }

    #[test]
    fn every_kind_of_entry_is_read_as_it_was_written() {
        let mut text = Line::Head(&owner()).to_text();
        for (item, id) in items().iter().zip(1..) {
            text.push_str(&Line::Intent(id, item).to_text());
        }
        text.push_str(&Line::Identified(1, Identity::File { device: 1, inode: 2, born_ns: -3 }).to_text());
        text.push_str(&Line::Identified(6, Identity::Value("8 ".into())).to_text());
        text.push_str(&Line::Settled(4).to_text());
        let (head, open) = parse(text.as_bytes()).expect("a ledger");
        assert_eq!(head, Some(owner()));
        assert_eq!(open.keys().copied().collect::<Vec<u64>>(), [1, 2, 3, 5, 6, 7, 8, 9, 10]);
        assert_eq!(open[&1].1, Some(Identity::File { device: 1, inode: 2, born_ns: -3 }));
        assert_eq!(open[&6].1, Some(Identity::Value("8 ".into())));
        for (id, (item, _)) in &open {
            assert_eq!(*item, items()[*id as usize - 1]);
        }
    }

    #[test]
    fn a_ledger_may_end_anywhere() {
        let item = Item::TraceInstance { path: "/t/x".into() };
        let text = Line::Head(&owner()).to_text() + &Line::Intent(1, &item).to_text() + &Line::Settled(1).to_text();
        let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
        for length in 0..=text.len() {
            let (head, open) = parse(&text.as_bytes()[..length]).expect("a ledger");
            assert_eq!(head.is_some(), length >= ends[0], "{length}");
            assert_eq!(open.len(), usize::from((ends[1]..ends[2]).contains(&length)), "{length}");
        }
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        let cases = [
            ("iowhy-ledger 1 a 1 1\n+ 1 file /a\n", 2),
            ("iowhy-ledger 2 a 1 1\n", 1),
            ("iowhy-ledger 1 a 1 1\n\n= 7 1 2 3\n", 3),
            ("+ 1 trace /a%2\n", 1),
            ("+ 1 trace %\n", 1),
            ("+ x trace /a\n", 1),
            ("rm -rf\n", 1),
        ];
        for (text, line) in cases {
            assert_eq!(parse(text.as_bytes()), Err(line), "{text:?}");
        }
        assert_eq!(parse(b"\xff\n"), Err(1));
    }

    proptest! {
        #[test]
        fn fields_survive_escaping(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let field = escaped(&bytes);
            prop_assert!(field.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert_eq!(unescaped(&field), Some(bytes));
        }

        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}

//! Input and output of a guest: lists of named pieces, as bytes.
//!
//! ```text
//! pieces   for each: length of the name (4 bytes), name, length of the bytes (8 bytes), bytes; the lowest byte first
//! drive    at 0: "iowhy-guest-out1", length of what follows at 4096 (8 bytes), its CRC-32 (4 bytes)
//! ```
//! The head of a drive is written last, so that a guest that died while it wrote has sent nothing. A guest's output is
//! outside input: lengths and sum are checked, and names cannot lead out of the folder that they are put in.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Component, Path, PathBuf};

/// Beginning of a drive.
const MAGIC: &[u8; 16] = b"iowhy-guest-out1";
/// Where pieces begin on it.
const START: u64 = 4096;

/// A name, and the bytes that belong to it.
pub(super) type Piece = (String, Vec<u8>);

/// Bytes that are counted and summed on their way.
struct Counted<W> {
    out: W,
    bytes: u64,
    sum: crc32fast::Hasher,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.sum.update(&bytes[..n]);
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn put_head(out: &mut impl Write, name: &str, length: u64) -> io::Result<()> {
    let size = u32::try_from(name.len()).map_err(io::Error::other)?;
    out.write_all(&size.to_le_bytes())?;
    out.write_all(name.as_bytes())?;
    out.write_all(&length.to_le_bytes())
}

/// Writes a piece.
pub(super) fn put(out: &mut impl Write, name: &str, bytes: &[u8]) -> io::Result<()> {
    put_head(out, name, bytes.len() as u64)?;
    out.write_all(bytes)
}

/// The pieces in these bytes; `None` if they are not such a list.
pub(super) fn pieces(mut bytes: &[u8]) -> Option<Vec<Piece>> {
    fn take<'a>(bytes: &mut &'a [u8], n: u64) -> Option<&'a [u8]> {
        let (head, rest) = bytes.split_at_checked(usize::try_from(n).ok()?)?;
        *bytes = rest;
        Some(head)
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let length = u32::from_le_bytes(take(&mut bytes, 4)?.try_into().ok()?);
        let name = String::from_utf8(take(&mut bytes, length.into())?.to_vec()).ok()?;
        let length = u64::from_le_bytes(take(&mut bytes, 8)?.try_into().ok()?);
        found.push((name, take(&mut bytes, length)?.to_vec()));
    }
    Some(found)
}

/// Files below a folder, in the order of their names.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    entries.sort();
    let mut found = Vec::new();
    for path in entries {
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}

/// Writes all files below a folder; how many bytes that are, and their sum.
fn send_pieces(folder: &Path, drive: &File) -> io::Result<(u64, u32)> {
    let out = BufWriter::with_capacity(1 << 20, drive);
    let mut out = Counted { out, bytes: 0, sum: crc32fast::Hasher::new() };
    for path in files(folder)? {
        let name = path.strip_prefix(folder).map_err(io::Error::other)?;
        let name = name.to_str().ok_or_else(|| io::Error::other("a name is not UTF-8"))?;
        let mut file = File::open(&path)?;
        let length = file.metadata()?.len();
        put_head(&mut out, name, length)?;
        let copied = io::copy(&mut (&mut file).take(length), &mut out)?;
        if copied != length {
            return Err(io::Error::other(format!("{} has become shorter", path.display())));
        }
    }
    out.flush()?;
    Ok((out.bytes, out.sum.finalize()))
}

/// Writes all files below a folder to a drive; how many bytes that are.
pub(super) fn send(folder: &Path, drive: &mut File) -> io::Result<u64> {
    drive.seek(SeekFrom::Start(START))?;
    let (bytes, sum) = send_pieces(folder, drive)?;
    drive.sync_data()?;
    let mut head = MAGIC.to_vec();
    head.extend(bytes.to_le_bytes());
    head.extend(sum.to_le_bytes());
    head.resize(512, 0);
    drive.seek(SeekFrom::Start(0))?;
    drive.write_all(&head)?;
    drive.sync_data()?;
    Ok(bytes)
}

/// A guest's writes to a drive.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// Nothing, or not to its end.
    Nothing,
    /// Something that is not what it sent.
    Damaged,
    /// These files.
    Files(Vec<Piece>),
}

/// Reads a drive.
pub(super) fn receive(drive: &mut File) -> io::Result<Received> {
    let mut head = [0; 28];
    drive.seek(SeekFrom::Start(0))?;
    let size = drive.metadata()?.len();
    if size < START || drive.read_exact(&mut head).is_err() || !head.starts_with(MAGIC) {
        return Ok(Received::Nothing);
    }
    let mut long = [0; 8];
    long.copy_from_slice(&head[16..24]);
    let mut sum = [0; 4];
    sum.copy_from_slice(&head[24..28]);
    let length = u64::from_le_bytes(long);
    if length > size - START {
        return Ok(Received::Damaged);
    }
    let mut bytes = Vec::new();
    drive.seek(SeekFrom::Start(START))?;
    Read::take(drive, length).read_to_end(&mut bytes)?;
    if crc32fast::hash(&bytes) != u32::from_le_bytes(sum) {
        return Ok(Received::Damaged);
    }
    Ok(pieces(&bytes)
        .filter(|pieces| pieces.iter().all(|(name, _)| is_inside(name)))
        .map_or(Received::Damaged, Received::Files))
}

/// Whether a name stays within the folder that it is put in.
fn is_inside(name: &str) -> bool {
    let mut parts = Path::new(name).components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn files_come_back_as_they_were_sent() {
        let scratch = Scratch::new();
        let folder = scratch.path("out");
        fs::create_dir_all(folder.join("store/data")).expect("a folder");
        let big: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        fs::write(folder.join("report.json"), "{}").expect("a file");
        fs::write(folder.join("store/data/x.parquet"), &big).expect("a file");
        fs::write(folder.join("store/empty"), "").expect("a file");
        let path = scratch.path("drive");
        let mut drive = File::options().read(true).write(true).create(true).truncate(true).open(path).expect("a file");
        drive.set_len(8 << 20).expect("a sparse file");
        assert_eq!(receive(&mut drive).expect("it can be read"), Received::Nothing);
        let bytes = send(&folder, &mut drive).expect("it fits");
        assert!(bytes > 3_000_000);
        let expected = vec![
            ("report.json".to_owned(), b"{}".to_vec()),
            ("store/data/x.parquet".to_owned(), big),
            ("store/empty".to_owned(), Vec::new()),
        ];
        assert_eq!(receive(&mut drive).expect("it can be read"), Received::Files(expected));
        // A byte that is another one, a length that leads too far, a head without an end.
        for (at, expected) in [(5000, Received::Damaged), (23, Received::Damaged), (3, Received::Nothing)] {
            drive.seek(SeekFrom::Start(at)).expect("within");
            drive.write_all(&[0x55]).expect("within");
            assert_eq!(receive(&mut drive).expect("it can be read"), expected, "{at}");
            send(&folder, &mut drive).expect("it fits");
        }
    }

    #[test]
    fn names_stay_inside() {
        for (name, inside) in
            [("a/b", true), ("a", true), ("", false), ("../a", false), ("a/../b", false), ("/a", false)]
        {
            assert_eq!(is_inside(name), inside, "{name}");
        }
    }

    proptest! {
        #[test]
        fn pieces_are_read_as_they_were_written(list in proptest::collection::vec((".{0,9}", any::<Vec<u8>>()), 0..5)) {
            let mut bytes = Vec::new();
            list.iter().for_each(|(name, piece)| put(&mut bytes, name, piece).expect("in memory"));
            prop_assert_eq!(pieces(&bytes), Some(list));
            if !bytes.is_empty() {
                bytes.pop();
                prop_assert_eq!(pieces(&bytes), None);
            }
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in any::<Vec<u8>>()) {
            let _ = pieces(&bytes);
        }
    }
}

//! fio's files of verify states: how far the writes of a thread had come, so that a later run checks no more than that.
//!
//! ```text
//! name    local-JOB-NUMBER-verify.state, here or in the folder of --aux-path: a slash in the name of the job is a dot,
//!         threads are counted from 0
//! file    version 3, bytes of the rest, their crc32c: 8 bytes each, little endian, as everything
//! rest    entries 8, depth 4, files 4, writes 8, number of the thread 8, state of a generator 56, name 64; then the
//!         entries: number of the file in the job 8, offset 8
//! entries of each file as many as the depth, or as all writes if they are fewer, newest first; others are 0
//! ```
//! Source: fio 3.33, by the files that it leaves, and `fio-verify-state`.
//! Known deviations: the state of the generator, which fio 3.33 does not read, is zeroes.

use iowhy_stack::workload::WriteState;

const VERSION: u64 = 3;
/// Bytes before the rest, and before the entries in it.
const HEAD_BYTES: usize = 24;
const FIXED_BYTES: usize = 152;
const NAME_BYTES: usize = 64;
const ENTRY_BYTES: usize = 16;

/// Name of the file of a thread.
pub fn name(folder: Option<&str>, job: &str, thread: usize) -> String {
    let folder = folder.map(|folder| format!("{folder}/")).unwrap_or_default();
    format!("{folder}local-{}-{thread}-verify.state", job.replace('/', "."))
}

/// The file of a thread with that depth; `files` has the run's numbers of the job's files.
pub fn write(state: &WriteState, depth: u32, files: &[u32], job: &str, thread: usize) -> Vec<u8> {
    let entries = state.writes.min(u64::from(depth)) as usize;
    let mut places = Vec::new();
    for (number, file) in (0u64..).zip(files) {
        let last = state.last.get(file).into_iter().flatten().rev().copied();
        places.extend(last.chain(std::iter::repeat(0)).take(entries).map(|offset| [number, offset]));
    }
    let mut rest = vec![0; FIXED_BYTES + depth as usize * files.len() * ENTRY_BYTES];
    let mut put = |at: usize, bytes: &[u8]| rest[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &(places.len() as u64).to_le_bytes());
    put(8, &depth.to_le_bytes());
    put(12, &(files.len() as u32).to_le_bytes());
    put(16, &state.writes.to_le_bytes());
    put(24, &(thread as u64).to_le_bytes());
    put(FIXED_BYTES - NAME_BYTES, &job.as_bytes()[..job.len().min(NAME_BYTES - 1)]);
    for (index, word) in places.iter().flatten().enumerate() {
        put(FIXED_BYTES + 8 * index, &word.to_le_bytes());
    }
    let head = [VERSION, rest.len() as u64, sum(&rest)];
    head.iter().flat_map(|word| word.to_le_bytes()).chain(rest).collect()
}

/// The state in a file.
///
/// # Errors
/// Why it is none, in words.
pub fn read(bytes: &[u8], files: &[u32]) -> Result<WriteState, String> {
    let part = |at: usize| bytes.get(at..at + 8).and_then(|part| part.try_into().ok()).map(u64::from_le_bytes);
    let word = |at: usize| part(at).ok_or("it is too short");
    if word(0)? != VERSION {
        return Err(format!("it has version {}, and {VERSION} is known", word(0)?));
    }
    let rest = &bytes[HEAD_BYTES.min(bytes.len())..];
    if word(8)? != rest.len() as u64 || word(16)? != sum(rest) {
        return Err("it is damaged".to_owned());
    }
    let mut state =
        WriteState { depth: word(HEAD_BYTES + 8)? as u32, writes: word(HEAD_BYTES + 16)?, ..WriteState::default() };
    for index in 0..word(HEAD_BYTES)?.min(rest.len() as u64) as usize {
        let at = HEAD_BYTES + FIXED_BYTES + index * ENTRY_BYTES;
        let (number, offset) = (word(at)?, word(at + 8)?);
        if let Some(file) = usize::try_from(number).ok().and_then(|number| files.get(number)) {
            state.last.entry(*file).or_default().push_front(offset);
        }
    }
    Ok(state)
}

fn sum(rest: &[u8]) -> u64 {
    u64::from(!crc32c::crc32c(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_of_fio_is_read_and_written() {
        // fio 3.33: --name=a --size=64k --nrfiles=2 --rw=write --verify=crc32c
        let mut fios = [3u64, 184, 0xa800_26e2, 2, 1 | 2 << 32, 16].map(u64::to_le_bytes).concat();
        fios.resize(HEAD_BYTES + FIXED_BYTES - NAME_BYTES, 0);
        fios.push(b'a');
        fios.resize(HEAD_BYTES + FIXED_BYTES, 0);
        fios.extend([0u64, 0x7000, 1, 0x7000].map(u64::to_le_bytes).concat());
        let state = read(&fios, &[5, 3]).expect("it is whole");
        assert_eq!((state.depth, state.writes), (1, 16));
        assert_eq!(
            state.last.iter().map(|(file, last)| (*file, last[0])).collect::<Vec<_>>(),
            [(3, 0x7000), (5, 0x7000)]
        );
        assert_eq!(write(&state, 1, &[5, 3], "a", 0), fios);
        for (at, what) in [(0, "version"), (100, "damaged"), (16, "damaged")] {
            let mut other = fios.clone();
            other[at] ^= 1;
            assert!(read(&other, &[]).is_err_and(|error| error.contains(what)), "{at}");
        }
        assert!(read(&fios[..20], &[]).is_err() && read(&fios[..100], &[]).is_err());
    }

    #[test]
    fn the_newest_are_first_and_missing_ones_are_zero() {
        let mut state = WriteState { depth: 4, writes: 9, ..WriteState::default() };
        state.last.insert(7, [4096, 0, 8192].into());
        let written = write(&state, 4, &[7, 8], "a/b", 3);
        let words: Vec<u64> = written[HEAD_BYTES + FIXED_BYTES..]
            .chunks(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("eight")))
            .collect();
        assert_eq!(words, [0, 8192, 0, 0, 0, 4096, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0]);
        assert_eq!(name(Some("x"), "a/b", 3), "x/local-a.b-3-verify.state");
    }
}

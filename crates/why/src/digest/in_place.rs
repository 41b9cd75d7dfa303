//! Calls of fsync that only find data written in place: fdatasync would do, and leaves the journal alone. Calls of
//! fdatasync after writes to new places: the file's new length, or its new blocks, are in the journal.

use std::collections::BTreeMap;

use iowhy_stack::event::Op;
use iowhy_trace::join::Joined;

/// How many of both. In place are writes into a part of the file that a call was made on before. Where a file ended is
/// not known before that, and so the others may make it longer; those that go on across the end of that part, or from
/// it, do, or fill a hole.
pub fn of(joined: &Joined) -> [u64; 2] {
    // By file: where the known part ends; since the last sync, whether all was written in place, and any at the end.
    let mut files: BTreeMap<u32, (u64, Option<bool>, bool)> = BTreeMap::new();
    let mut syncs = [0, 0];
    for call in &joined.calls {
        let Some(file) = call.file else { continue };
        let (known, written, grown) = files.entry(file).or_default();
        match (call.op, call.offset) {
            (Op::Read | Op::Write, Some(offset)) => {
                let end = offset.saturating_add(call.len);
                if call.op == Op::Write {
                    *written = Some(end <= *known && written.unwrap_or(true));
                    *grown |= offset <= *known && end > *known;
                }
                *known = end.max(*known);
            }
            (Op::Write, None) => *written = Some(false),
            (Op::Fsync | Op::Fdatasync, _) => {
                let fdatasync = call.op == Op::Fdatasync;
                syncs[0] += u64::from(written.take() == Some(true) && !fdatasync);
                syncs[1] += u64::from(std::mem::take(grown) && fdatasync);
            }
            _ => {}
        }
    }
    syncs
}

#[cfg(test)]
pub(super) mod tests {
    use super::of;
    use iowhy_stack::event::Op;
    use iowhy_stack::units::Nanos;
    use iowhy_trace::join::{CallRecord, Joined};

    /// A call of a file.
    pub(in crate::digest) fn call(file: u32, op: Op, offset: Option<u64>, len: u64) -> CallRecord {
        CallRecord { file: Some(file), offset, len, ..CallRecord::begun(1, 1, op, Nanos(0)) }
    }

    #[test]
    fn syncs_are_told_apart_by_what_was_written_before_them() {
        let (fsync, fdatasync) = (call(1, Op::Fsync, None, 0), call(1, Op::Fdatasync, None, 0));
        let write = |offset| call(1, Op::Write, Some(offset), 10);
        for (calls, counts) in [
            (vec![write(0), fdatasync.clone(), write(10), fdatasync.clone()], [0, 2]),
            (vec![write(0), fdatasync.clone(), write(5), fdatasync.clone()], [0, 2]),
            (vec![write(0), fsync.clone(), write(0), fsync.clone(), write(10), fsync.clone()], [1, 0]),
            (vec![write(0), fdatasync.clone(), write(0), fdatasync.clone(), write(50), fdatasync.clone()], [0, 1]),
            (vec![fsync.clone(), fdatasync.clone(), call(1, Op::Write, None, 10), fsync.clone()], [0, 0]),
        ] {
            assert_eq!(of(&Joined { calls: calls.clone(), ..Joined::default() }), counts, "{calls:?}");
        }
    }
}

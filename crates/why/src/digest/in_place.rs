//! Calls of fsync that only find data written in place: fdatasync would do, and leaves the journal alone.

use std::collections::BTreeMap;

use iowhy_stack::event::Op;
use iowhy_trace::join::Joined;

/// Such calls: those after writes into a part of the file that a call was made on before. Where a file ended is not
/// known before that, and so the others may make it longer.
pub fn of(joined: &Joined) -> u64 {
    // By file: where the known part ends, and what was written since the last sync, in place or not.
    let mut files: BTreeMap<u32, (u64, Option<bool>)> = BTreeMap::new();
    let mut syncs = 0;
    for call in &joined.calls {
        let Some(file) = call.file else { continue };
        let (known, written) = files.entry(file).or_default();
        match (call.op, call.offset) {
            (Op::Read | Op::Write, Some(offset)) => {
                let end = offset.saturating_add(call.len);
                if call.op == Op::Write {
                    *written = Some(end <= *known && written.unwrap_or(true));
                }
                *known = end.max(*known);
            }
            (Op::Write, None) => *written = Some(false),
            (Op::Fsync | Op::Fdatasync, _) => {
                syncs += u64::from(written.take() == Some(true) && call.op == Op::Fsync);
            }
            _ => {}
        }
    }
    syncs
}

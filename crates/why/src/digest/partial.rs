//! Writes of parts of pages that are not in the cache: the page is read first, and the write waits for it.

use iowhy_stack::event::Op;
use iowhy_stack::trace::Rwbs;
use iowhy_stack::units::PAGE_BYTES;
use iowhy_trace::join::Joined;

/// Such writes, and the time that they wait for their reads, ns: those of data alone, metadata are read for others,
/// too.
pub fn of(joined: &Joined) -> [u64; 2] {
    let (mut writes, mut waited) = (0, 0);
    for call in joined.calls.iter().filter(|call| call.op == Op::Write) {
        let (Some(offset), Some(end)) = (call.offset, call.end) else { continue };
        if offset % PAGE_BYTES == 0 && offset.saturating_add(call.len) % PAGE_BYTES == 0 {
            continue;
        }
        let reads = call.bios.iter().map(|bio| &joined.bios[*bio as usize]);
        let reads = reads.filter(|bio| bio.extent.rwbs.has(Rwbs::READ) && !bio.extent.rwbs.has(Rwbs::META));
        let request = |of: u32| joined.requests[of as usize].completed;
        let last = reads.filter_map(|bio| Some((bio.at, bio.request.and_then(request).or(bio.completed)?)));
        let span = last.reduce(|(from, to), (at, done)| (from.min(at), to.max(done)));
        if let Some((from, to)) = span {
            writes += 1;
            waited += to.min(end).saturating_sub(from).0;
        }
    }
    [writes, waited]
}

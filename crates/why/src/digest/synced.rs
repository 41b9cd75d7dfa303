//! Writes on files that were opened with O_DSYNC or O_SYNC: each of them is a sync.

use iowhy_stack::event::Op;
use iowhy_trace::join::Joined;

/// Their number and time, ns. Files that were open before the recording began are not among them.
pub fn of(joined: &Joined) -> (u64, f64) {
    let writes = joined.calls.iter().filter(|call| call.op == Op::Write && call.synchronous);
    let took = writes.filter_map(|call| Some(call.end?.saturating_sub(call.start).0 as f64));
    took.fold((0, 0.0), |(nr, ns), of| (nr + 1, ns + of))
}

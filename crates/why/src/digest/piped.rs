//! Reads and writes that are of no file: of pipes, sockets, terminals.

use iowhy_stack::event::Op;
use iowhy_trace::join::Joined;

/// Those of the direction with more of them.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Piped {
    pub calls: u64,
    pub bytes: u64,
    /// Time of them all if none waits: that of the median one for each, ns.
    pub ns: f64,
}

pub fn of(joined: &Joined) -> Piped {
    let each = |op: Op| {
        let calls = joined.calls.iter().filter(move |call| call.op == op && call.file.is_none());
        let (mut bytes, mut took) = (0, Vec::new());
        for call in calls {
            let Some(end) = call.end else { continue };
            bytes += call.moved();
            took.push(end.saturating_sub(call.start).0);
        }
        took.sort_unstable();
        let median = took.get(took.len() / 2).copied().unwrap_or(0);
        Piped { calls: took.len() as u64, bytes, ns: median as f64 * took.len() as f64 }
    };
    let [reads, writes] = [Op::Read, Op::Write].map(each);
    if writes.calls > reads.calls { writes } else { reads }
}

#[cfg(test)]
mod tests {
    use super::{Piped, of};
    use iowhy_stack::event::Op;
    use iowhy_stack::units::Nanos;
    use iowhy_trace::join::{CallRecord, Joined};

    #[test]
    fn calls_without_a_file_are_of_the_direction_with_most() {
        let call = |op, file, took| CallRecord {
            file,
            end: Some(Nanos(took)),
            result: Some(3),
            ..CallRecord::begun(1, 1, op, Nanos(0))
        };
        let reads = [10, 20, 900].map(|took| call(Op::Read, None, took));
        let others = [call(Op::Write, None, 5), call(Op::Read, Some(1), 5)];
        let calls = [&reads[..], &others].concat();
        assert_eq!(of(&Joined { calls, ..Joined::default() }), Piped { calls: 3, bytes: 9, ns: 60.0 });
        assert_eq!(of(&Joined::default()), Piped::default());
    }
}

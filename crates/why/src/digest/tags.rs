//! Requests that wait for a free tag: a device that takes few commands at a time keeps them out before they have a
//! request.

use iowhy_stack::trace::Rwbs;
use iowhy_trace::join::Joined;

/// Time from a bio to its request, ns, above which somebody else had to be done first.
const LONG: u64 = 20_000;

/// How many reads and writes got their request late. Limits: a control group that throttles bios holds them there, too.
pub fn of(joined: &Joined) -> [u64; 2] {
    let late = joined.requests.iter().filter(|request| {
        let waited = request.queued.zip(request.allocated).map_or(0, |(from, to)| to.saturating_sub(from).0);
        waited > LONG
    });
    let (reads, writes): (Vec<_>, Vec<_>) = late.partition(|request| request.extent.rwbs.has(Rwbs::READ));
    [reads, writes].map(|of| of.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::{LONG, of};
    use iowhy_stack::trace::{Extent, Rwbs};
    use iowhy_stack::units::Nanos;
    use iowhy_trace::join::{Joined, RequestRecord};

    #[test]
    fn requests_that_are_got_late_are_counted() {
        let request = |rwbs, ns| RequestRecord {
            extent: Extent { rwbs, ..Extent::default() },
            queued: Some(Nanos(1)),
            allocated: Some(Nanos(1 + ns)),
            ..RequestRecord::default()
        };
        let requests = vec![
            request(Rwbs::READ, LONG + 1),
            request(Rwbs::READ, LONG),
            request(Rwbs::WRITE, LONG + 1),
            RequestRecord { queued: None, ..request(Rwbs::READ, LONG + 1) },
        ];
        assert_eq!(of(&Joined { requests, ..Joined::default() }), [1, 1]);
    }
}

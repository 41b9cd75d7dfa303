//! Meaning of events for calls, bios and requests: when each began, its end, its content.
//!
//! ```text
//! bio       the last one queued by a call is taken by the call's next request or merge; the kernel's own are one line
//! request   held (allocated) -> waiting (inserted) -> issued -> completed; united with another one it is gone, and the
//!           one that remains has the earlier times and all bios
//! unseen    without its bio a request is counted, but has no times or sizes until it is issued
//! ```
//! A driver can give a request back (requeue). Events do not show that, but the request is inserted or issued again
//! without a completion. Every listener follows one rule, that of the block layer's own accounting:
//!
//! * a command is counted once, when it is first issued, with the sizes of that moment;
//! * the first issue ends the wait in the elevator, and later insertions are not looked at;
//! * time at the device runs from the last issue to the completion;
//! * in between the request is with the driver, and so it stays at the device for depths, busy times and waits.
//!
//! Source: Linux 6.18, block/blk-mq.c: `__blk_mq_requeue_request` counts nothing and leaves the request in flight,
//! `blk_mq_start_request` takes the time again, `blk_account_io_done` counts an I/O when it ends; blktrace's actions D
//! and R, of which btt takes the last D for D2C.

use crate::event::{CallId, Content, Dir, Event, RqId, What};
use crate::units::Nanos;

/// Where a request is.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Allocated, on its way to the elevator.
    #[default]
    Held,
    /// With the elevator.
    Waiting,
    /// At the device.
    Issued,
}

/// A bio that no request has taken yet. `own` is the listener's.
#[derive(Copy, Clone, Debug, Default)]
pub struct Bio<T> {
    /// When it was queued.
    pub at: Nanos,
    /// Direction.
    pub dir: Dir,
    pub content: Content,
    /// First sector.
    pub sector: u64,
    /// Length.
    pub nr_sectors: u32,
    /// The listener's state of it.
    pub own: T,
}

/// A request. `own` begins as that of its first bio.
#[derive(Copy, Clone, Debug, Default)]
pub struct Request<T> {
    /// Where it is.
    pub stage: Stage,
    /// The call that it was allocated for.
    pub call: CallId,
    /// When the first of its bios was queued.
    pub queued: Nanos,
    /// When it was allocated.
    pub allocated: Nanos,
    /// When it came to the elevator.
    pub inserted: Option<Nanos>,
    /// When it was issued for the last time.
    pub issued: Option<Nanos>,
    /// When it was done.
    pub completed: Option<Nanos>,
    /// Direction.
    pub dir: Dir,
    /// Content of its first bio.
    pub content: Content,
    /// First sector.
    pub sector: u64,
    /// Length.
    pub nr_sectors: u32,
    /// Bios in it; 0 if none was seen before it is issued.
    pub bios: u32,
    /// Requests at the device when it was issued first, this one included.
    pub depth: u32,
    /// The listener's state of it.
    pub own: T,
}

/// Meaning of an event.
#[derive(Copy, Clone, Debug)]
pub enum Step<T> {
    /// Nothing new about calls that end, or requests.
    Other,
    /// A call ended that began then.
    Ended(Nanos),
    /// This request was made of a bio.
    Allocated(Request<T>),
    /// A bio joined a request, if it was seen being queued.
    Joined(Option<Bio<T>>),
    /// This request is part of another one now.
    United(Request<T>),
    /// A request came to the elevator.
    Inserted,
    /// A request was issued first; it was there before, or never seen.
    Issued(Option<Stage>),
    /// A request was issued again.
    Again,
    /// This request is done, whether it was issued or not.
    Completed(Request<T>),
}

/// Follows calls, bios and requests.
#[derive(Clone, Debug, Default)]
pub struct Lifecycle<T> {
    calls: Vec<(CallId, Nanos)>,
    bios: Vec<(CallId, Bio<T>)>,
    requests: Vec<Option<Request<T>>>,
    /// Requests on their way to the device.
    pub queued: u32,
    /// Requests at the device.
    pub depth: u32,
}

/// By which name a bio's request is found: I/O of the workload outside of its calls has no call either.
pub fn submitter(call: CallId) -> CallId {
    if call == CallId::OWN { CallId::NONE } else { call }
}

impl<T: Copy + Default> Lifecycle<T> {
    /// The bio that was queued last for a call and belongs to no request yet.
    pub fn bio(&mut self, call: CallId) -> Option<&mut Bio<T>> {
        let call = submitter(call);
        self.bios.iter_mut().rev().find(|(of, _)| *of == call).map(|(_, bio)| bio)
    }

    /// A request of which something is known.
    pub fn get(&self, rq: RqId) -> Option<&Request<T>> {
        self.requests.get(rq.0 as usize)?.as_ref().filter(|request| request.bios > 0)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, rq: RqId) -> Option<&mut Request<T>> {
        self.requests.get_mut(rq.0 as usize)?.as_mut().filter(|request| request.bios > 0)
    }

    /// All requests that are open, by their numbers.
    pub fn open(&self) -> impl DoubleEndedIterator<Item = (RqId, &Request<T>)> {
        self.requests.iter().enumerate().filter_map(|(nr, request)| Some((RqId(nr as u32), request.as_ref()?)))
    }

    fn slot(&mut self, rq: RqId) -> &mut Option<Request<T>> {
        let index = rq.0 as usize;
        if index >= self.requests.len() {
            self.requests.resize(index + 1, None);
        }
        &mut self.requests[index]
    }

    /// Takes a call's last bio.
    fn take(&mut self, call: CallId) -> Option<Bio<T>> {
        let call = submitter(call);
        let place = self.bios.iter().rposition(|(of, _)| *of == call)?;
        Some(self.bios.swap_remove(place).1)
    }

    /// A request leaves its place.
    fn leave(&mut self, rq: RqId) -> Option<Request<T>> {
        let request = self.requests.get_mut(rq.0 as usize)?.take()?;
        let left = if request.stage == Stage::Issued { &mut self.depth } else { &mut self.queued };
        *left -= 1;
        Some(request)
    }

    /// Takes one event.
    pub fn event(&mut self, event: &Event) -> Step<T> {
        let (at, call) = (event.at, event.call);
        match event.what {
            What::CallStart { .. } => self.calls.push((call, at)),
            What::CallEnd { .. } => {
                self.take(call);
                if let Some(place) = self.calls.iter().rposition(|(of, _)| *of == call) {
                    return Step::Ended(self.calls.swap_remove(place).1);
                }
            }
            What::BioQueue { dir, content, sector, nr_sectors } => {
                let bio = Bio { at, dir, content, sector: sector.0, nr_sectors, own: T::default() };
                match self.bio(call) {
                    Some(known) => *known = bio,
                    None => self.bios.push((submitter(call), bio)),
                }
            }
            What::GetRequest { rq } => {
                self.leave(rq);
                self.queued += 1;
                let blank = Request { call, queued: at, allocated: at, ..Request::default() };
                let Some(bio) = self.take(call) else {
                    *self.slot(rq) = Some(blank);
                    return Step::Other;
                };
                let Bio { at: queued, dir, content, sector, nr_sectors, own } = bio;
                let request = Request { queued, dir, content, sector, nr_sectors, own, bios: 1, ..blank };
                *self.slot(rq) = Some(request);
                return Step::Allocated(request);
            }
            What::Merge { rq, nr_sectors, .. } => {
                let bio = self.take(call);
                if let Some(request) = self.get_mut(rq) {
                    request.bios += 1;
                    if let Some(bio) = bio {
                        request.nr_sectors = request.nr_sectors.saturating_add(nr_sectors);
                        request.sector = request.sector.min(bio.sector);
                    }
                }
                return Step::Joined(bio);
            }
            What::MergeRequests { rq, gone } => {
                let Some(gone) = self.leave(gone).filter(|gone| gone.bios > 0) else { return Step::Other };
                if let Some(request) = self.get_mut(rq) {
                    request.queued = request.queued.min(gone.queued);
                    request.allocated = request.allocated.min(gone.allocated);
                    request.bios += gone.bios;
                    request.nr_sectors = request.nr_sectors.saturating_add(gone.nr_sectors);
                    request.sector = request.sector.min(gone.sector);
                }
                return Step::United(gone);
            }
            What::Insert { rq } => {
                if let Some(request) = self.get_mut(rq)
                    && request.stage == Stage::Held
                {
                    (request.stage, request.inserted) = (Stage::Waiting, Some(at));
                    return Step::Inserted;
                }
            }
            What::Issue { rq, dir, content, sector, nr_sectors, .. } => {
                let depth = self.depth + 1;
                let slot = self.slot(rq);
                if let Some(request) = slot
                    && request.stage == Stage::Issued
                {
                    request.issued = Some(at);
                    return Step::Again;
                }
                let left = u32::from(slot.is_some());
                let before = slot.as_ref().filter(|request| request.bios > 0).map(|request| request.stage);
                if before.is_none() {
                    let call = slot.as_ref().map_or(call, |request| request.call);
                    *slot = Some(Request { call, queued: at, allocated: at, bios: 1, ..Request::default() });
                }
                if let Some(request) = slot {
                    (request.stage, request.issued, request.depth) = (Stage::Issued, Some(at), depth);
                    (request.dir, request.content) = (dir, content);
                    (request.sector, request.nr_sectors) = (sector.0, nr_sectors);
                }
                (self.depth, self.queued) = (depth, self.queued - left);
                return Step::Issued(before);
            }
            What::Complete { rq, .. } => {
                if let Some(request) = self.leave(rq).filter(|request| request.bios > 0) {
                    return Step::Completed(Request { completed: Some(at), ..request });
                }
            }
            _ => {}
        }
        Step::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{FileId, MergeKind, Op};
    use crate::units::Sector;

    fn steps(life: &mut Lifecycle<()>, all: &[(u64, u32, What)]) -> Vec<Step<()>> {
        all.iter()
            .map(|(at, call, what)| life.event(&Event { at: Nanos(*at), call: CallId(*call), what: *what }))
            .collect()
    }

    fn queue(sector: u64) -> What {
        What::BioQueue { dir: Dir::Write, content: Content::Data, sector: Sector(sector), nr_sectors: 8 }
    }

    fn issue(rq: u32, nr_sectors: u32) -> What {
        let (dir, content, sector) = (Dir::Write, Content::Data, Sector(0));
        What::Issue { rq: RqId(rq), dir, content, sector, nr_sectors, in_flight: 1 }
    }

    #[test]
    fn bios_are_taken_by_their_own_call_and_requests_grow() {
        let (rq, gone, kind) = (RqId(0), RqId(1), MergeKind::Front);
        let (op, file) = (Op::Write, FileId(0));
        let mut life = Lifecycle::default();
        let all = [
            (0, 1, What::CallStart { op, file, offset: 0, len_bytes: 0 }),
            (1, 1, queue(8)),
            (2, CallId::OWN.0, queue(16)),
            (3, 1, What::GetRequest { rq }),
            (4, 0, What::GetRequest { rq: gone }),
            (5, 1, queue(0)),
            (6, 1, What::Merge { rq, kind, nr_sectors: 8 }),
            (7, 1, What::MergeRequests { rq, gone }),
            (8, 1, queue(64)),
            (9, 1, What::CallEnd { op, file, len_bytes: 0 }),
        ];
        let found = steps(&mut life, &all);
        let request = *life.get(rq).expect("it is open");
        assert_eq!((request.queued, request.allocated, request.call), (Nanos(1), Nanos(3), CallId(1)));
        assert_eq!((request.sector, request.nr_sectors, request.bios), (0, 24, 3));
        assert!(matches!(found[9], Step::Ended(Nanos(0))) && life.get(gone).is_none() && life.queued == 1);
        assert!(life.bio(CallId(1)).is_none(), "nobody will take what a call left that has ended");
    }

    #[test]
    fn a_request_that_comes_back_is_issued_once_and_one_without_a_bio_when_it_is_issued() {
        let (rq, done) = (RqId(3), What::Complete { rq: RqId(3), dir: Dir::Write, nr_sectors: 8 });
        let (get, insert) = (What::GetRequest { rq }, What::Insert { rq });
        for seen in [true, false] {
            let mut life = Lifecycle::default();
            let first = if seen { queue(0) } else { What::Plug };
            let all = [(1, 1, first), (2, 1, get), (3, 1, insert), (5, 1, issue(3, 8))];
            let found = steps(&mut life, &all);
            assert!(matches!(found[3], Step::Issued(before) if before == seen.then_some(Stage::Waiting)));
            let found = steps(&mut life, &[(6, 1, insert), (9, 1, issue(3, 16))]);
            assert!(matches!(found[..], [Step::Other, Step::Again]) && (life.depth, life.queued) == (1, 0));
            let [Step::Completed(request)] = steps(&mut life, &[(20, 1, done)])[..] else { panic!("it was open") };
            let times = (request.queued.0, request.inserted, request.issued, request.completed);
            let (queued, inserted) = if seen { (1, Some(Nanos(3))) } else { (5, None) };
            assert_eq!(times, (queued, inserted, Some(Nanos(9)), Some(Nanos(20))));
            assert_eq!((request.nr_sectors, request.depth, life.depth, life.open().count()), (8, 1, 0, 0));
        }
    }
}

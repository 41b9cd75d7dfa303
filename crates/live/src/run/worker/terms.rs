//! Ends of a thread besides that of its calls, its turns among others, and calls that take too long.

use super::*;

/// Time between two looks at threads that have to end before.
const LOOK: Duration = Duration::from_millis(1);

impl Loop<'_> {
    /// Whether something else ends the thread.
    #[inline(always)]
    pub(super) fn over(&self) -> bool {
        signal::raised() || self.stop.load(Ordering::Relaxed)
    }

    /// Waits until these threads have ended; says when they had.
    #[cold]
    pub(super) fn wait_for(&self, control: &Control<'_>, after: &[u32]) -> Nanos {
        while !control.have_ended(after) && !self.over() {
            std::thread::sleep(LOOK);
        }
        self.clock.now()
    }

    /// Waits for the thread's turn in its flow; none if it is over before. One that has calls in flight (`waits` is
    /// false) is to come again.
    #[cold]
    pub(super) fn turn(&mut self, now: &mut Nanos, waits: bool) -> Option<bool> {
        let mut turns = self.turns.take()?;
        let went = loop {
            turns.has = turns.has || turns.flow.take(&mut turns.own, turns.terms.weight);
            if turns.has || self.over() || *now >= turns.until || !waits {
                break turns.has;
            }
            match turns.terms.sleep {
                Nanos::ZERO => std::thread::yield_now(),
                sleep => std::thread::sleep(Duration::from_nanos(sleep.min(NAP).0)),
            }
            *now = self.clock.now();
        };
        let late = !went && (self.over() || *now >= turns.until);
        self.turns = Some(turns);
        if late { None } else { Some(went) }
    }

    /// A call took this long: whether that is too long, and the depth that is looked for.
    #[cold]
    pub(super) fn judge(&mut self, call: &Call, took: Nanos, now: Nanos) {
        if let Some(search) = &mut self.search {
            let target = search.of.target;
            match search.call(took, now) {
                Verdict::GoOn => {}
                Verdict::Restart => self.meter.restart(now),
                Verdict::Found => self.found = true,
                Verdict::Hopeless => self.too_long(call, took, target, now),
            }
        }
        if self.thread.max_latency > Nanos::ZERO && took > self.thread.max_latency {
            self.too_long(call, took, self.thread.max_latency, now);
        }
    }

    pub(super) fn too_long(&mut self, call: &Call, took: Nanos, most: Nanos, now: Nanos) {
        let message = format!("a latency of {} ns exceeds the limit of {} ns", took.0, most.0);
        self.meter.error(call, now, libc::ETIMEDOUT, message);
        self.failed = true;
    }
}

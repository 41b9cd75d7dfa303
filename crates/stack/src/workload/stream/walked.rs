//! Calls of a walk, as calls of a stream.

use super::*;

impl State {
    /// The next call of a walk; none at its end, and where pages are dropped before it.
    pub(super) fn walked(&mut self, stream: &Stream, walk: &Walk, now: Nanos) -> Option<Call> {
        let walker = self.walker.as_mut()?;
        let pick = |drawn| stream.rate.as_ref().map_or(drawn, |rate| self.pace.pick(rate, drawn, now));
        let step = loop {
            match walker.step(walk, pick) {
                Some(step) => break step,
                None if walker.goes_on(walk) && !stream.drop_between_passes => {}
                None => {
                    self.to_drop = 0;
                    return None;
                }
            }
        };
        self.calls += 1;
        self.bytes += step.len_bytes;
        if let Some(log) = stream.log
            && self.calls.is_multiple_of(u64::from(log.calls.max(1)))
        {
            self.log_owed = Some(false);
        }
        let (file, len_bytes) = (stream.targets[step.target].file, step.len_bytes as u32);
        Some(match step.direction {
            walk::WRITE => self.write(stream, file, step.offset, len_bytes),
            direction => {
                let op = if direction == walk::TRIM { Op::Trim } else { Op::Read };
                Call { op, file, offset: step.offset, len_bytes, then: None, counted: true, how: None }
            }
        })
    }
}

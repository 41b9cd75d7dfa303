//! Data that are written and read again.

use std::fmt::Display;

use super::*;

impl Loop<'_> {
    /// Written data is remembered, or read data checked.
    pub(super) fn looks(&self) -> bool {
        self.thread.verify.is_some() || self.thread.fill == plan::Fill::Summed
    }

    /// Remembers written blocks, or checks read ones.
    #[cold]
    pub(super) fn look_at<S: Source>(
        &mut self,
        source: &mut S,
        call: &Call,
        buffer: &Buffer,
        (moved, generation): (u32, u64),
        now: Nanos,
    ) {
        if (call.op, &self.thread.fill) == (Op::Read, &plan::Fill::Summed)
            && let Err(wrong) = validate::check(&buffer.data()[..moved as usize], call.offset)
        {
            self.is_wrong(call, now, &wrong);
            self.failed = true;
        }
        let Some(verify) = &self.thread.verify else { return };
        if call.op == Op::Write {
            self.meter.out.state.add(self.thread.depth.max(1), call.file, call.offset);
            source.wrote(call, moved, generation);
        }
        let asked = if call.op == Op::Read { source.asked(call) } else { None };
        let Some(expected) = asked else { return };
        let data = &buffer.data()[..moved as usize];
        let wrong = if expected == Some(TRIMMED) {
            let at = data.iter().position(|byte| *byte != 0);
            at.map(|at| format!("byte {} was trimmed and is not zero", call.offset + at as u64))
        } else {
            match verify::check(data, verify, call.offset) {
                Ok(found) => {
                    let block = if verify.interval_bytes == 0 { moved } else { verify.interval_bytes };
                    self.meter.out.verified += u64::from(moved.div_ceil(block.max(1)));
                    let lost = expected.zip(found).is_some_and(|(expected, found)| Buffers::is_older(found, expected));
                    lost.then(|| {
                        format!("the last write of {moved} bytes at {} is lost: an earlier one is there", call.offset)
                    })
                }
                Err(mismatch) => Some(mismatch.to_string()),
            }
        };
        if let Some(wrong) = wrong {
            self.is_wrong(call, now, &wrong);
            self.failed |= verify.fatal;
        }
    }

    /// Notes data that are not what they should be.
    fn is_wrong(&mut self, call: &Call, now: Nanos, what: &dyn Display) {
        let path = self.paths.get(call.file as usize).map(|file| file.path.display().to_string());
        self.meter.error(call, now, 0, format!("{}: {what}", path.unwrap_or_default()));
    }
}

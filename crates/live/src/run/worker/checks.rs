//! Data that are written and read again.

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
        if (call.op, self.thread.fill) == (Op::Read, plan::Fill::Summed)
            && let Err(wrong) = validate::check(&buffer.data()[..moved as usize], call.offset)
        {
            let path = self.paths.get(call.file as usize).map(|file| file.path.display().to_string());
            self.meter.error(call, now, 0, format!("{}: {wrong}", path.unwrap_or_default()));
            self.failed = true;
        }
        let Some(verify) = &self.thread.verify else { return };
        if call.op == Op::Write {
            source.wrote(call, moved, generation);
        }
        let asked = if call.op == Op::Read { source.asked(call).or(verify.reads.then_some(None)) } else { None };
        let Some(expected) = asked else { return };
        if expected == Some(TRIMMED) {
            let at = buffer.data()[..moved as usize].iter().position(|byte| *byte != 0);
            if let Some(at) = at {
                let path = self.paths.get(call.file as usize).map(|file| file.path.display().to_string());
                let place = call.offset + at as u64;
                let text = format!("{}: byte {place} was trimmed and is not zero", path.unwrap_or_default());
                self.meter.error(call, now, 0, text);
                self.failed |= verify.fatal;
            }
            return;
        }
        let wrong = match verify::check(&buffer.data()[..moved as usize], verify, call.offset) {
            Ok(found) => {
                let block = if verify.interval_bytes == 0 { moved } else { verify.interval_bytes };
                self.meter.out.verified += u64::from(moved.div_ceil(block.max(1)));
                let lost = expected.zip(found).is_some_and(|(expected, found)| Buffers::is_older(found, expected));
                lost.then(|| {
                    format!("the last write of {moved} bytes at {} is lost: an earlier one is there", call.offset)
                })
            }
            Err(mismatch) => Some(mismatch.to_string()),
        };
        if let Some(wrong) = wrong {
            let path = self.paths.get(call.file as usize).map(|file| file.path.display().to_string());
            self.meter.error(call, now, 0, format!("{}: {wrong}", path.unwrap_or_default()));
            self.failed |= verify.fatal;
        }
    }
}

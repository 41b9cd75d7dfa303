//! Files of other programs, read and written as those programs do.
//!
//! `iolog`: fio's recorded lists of I/Os (`write_iolog`, `read_iolog`). `fio_logs`: fio's logs of bandwidth, IOPS and
//! latencies (`write_bw_log` and its like). `trace_parquet`, `trace_csv`, `tracefs_text`, `perfetto`: traces (see
//! [`crate::trace::FORMATS`]).

use crate::diagnose::{Problem, Problems};

pub mod blkparse;
pub mod blktrace;
pub mod fio_logs;
pub mod iolog;
pub mod perfetto;
pub mod samples;
pub mod trace_csv;
pub mod trace_parquet;
pub mod tracefs_text;

/// The text that a file of this name begins with. What is no UTF-8 and all that follows is told and left out.
fn text_of<'a>(name: &str, bytes: &'a [u8], problems: &mut Problems) -> &'a str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let at = error.valid_up_to();
            let text = format!("{name}: byte {at} and what follows is no text: what comes before it was read");
            problems.push(Problem::warning(text));
            std::str::from_utf8(&bytes[..at]).unwrap_or_default()
        }
    }
}

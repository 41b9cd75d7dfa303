//! Files of other programs, read and written as those programs do.
//!
//! `iolog`: fio's recorded lists of I/Os (`write_iolog`, `read_iolog`). `fio_logs`: fio's logs of bandwidth, IOPS and
//! latencies (`write_bw_log` and its like). `trace_parquet`, `trace_csv`, `tracefs_text`, `perfetto`: traces (see
//! [`crate::trace::FORMATS`]).

pub mod blkparse;
pub mod blktrace;
pub mod fio_logs;
pub mod iolog;
pub mod perfetto;
pub mod samples;
pub mod trace_csv;
pub mod trace_parquet;
pub mod tracefs_text;

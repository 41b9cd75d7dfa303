//! Files of other programs, read and written as those programs do.
//!
//! `iolog`: fio's recorded lists of I/Os (`write_iolog`, `read_iolog`). `fio_logs`: fio's logs of bandwidth, IOPS and
//! latencies (`write_bw_log` and its like).

pub mod fio_logs;
pub mod iolog;
pub mod samples;

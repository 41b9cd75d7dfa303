//! Pure, deterministic models of the Linux I/O path.
//!
//! Nothing here opens a file, reads a clock, spawns a thread, iterates over a hash map or uses floating point for
//! simulated time. Same seed, same bytes.

pub mod device;
pub mod elevator;
pub mod event;
pub mod origin;
pub mod queue;
pub mod read_loop;
pub mod readahead;
pub mod request;
pub mod rng;
pub mod units;

//! Pure, deterministic models of the Linux I/O path.
//!
//! Nothing here opens a file, reads a clock, spawns a thread, iterates over a hash map or uses floating point for
//! simulated time. Same seed, same bytes.
//!
//! Models: see [`sim`], and the tables of [`kernel`], [`readahead`], [`plug`], [`elevator`], [`filesystem`],
//! [`writeback`], [`machine`] and [`device`]; each entry has its source and the evidence that it follows that source.

pub mod advice;
pub mod block;
pub mod device;
pub mod direct_io;
pub mod elevator;
pub mod event;
pub mod fault;
pub mod filesystem;
pub mod histogram;
pub mod job;
pub mod kernel;
pub mod layers;
pub mod lifecycle;
pub mod machine;
pub mod origin;
pub mod outcome;
pub mod page_cache;
pub mod plug;
pub mod queue;
pub mod rb_tree;
pub mod read_loop;
pub mod readahead;
pub mod reclaim;
pub mod record;
pub mod replay;
pub mod replay_mmap;
pub mod replay_reclaim;
pub mod request;
pub mod rng;
pub mod service;
pub mod sim;
pub mod sorted;
pub mod surfaces;
pub mod tag_map;
pub mod trace;
pub mod units;
pub mod workload;
pub mod writeback;

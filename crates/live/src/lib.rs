//! Jobs on the running kernel.
//!
//! A [`Plan`] has the files and the work of each thread, in the terms of the simulator's jobs: the same generators hand
//! out the calls. [`run`](run::run) makes the run and yields an [`Outcome`] in the simulator's terms, too, with the
//! facts that only a real machine has. Nothing here interprets anything.
//!
//! This is the one crate with unsafe code. Each unsafe block states why it is sound.

pub mod cache;
pub mod capture;
pub mod clock;
pub mod command;
pub mod content;
pub mod disk;
pub mod doctor;
pub mod engine;
mod files;
pub mod free_memory;
pub mod guard;
pub mod guest;
pub mod ledger;
pub mod machine;
mod mark;
pub mod memory;
pub mod outcome;
pub mod plan;
pub mod run;
pub mod signal;
mod state;
mod sums;
mod system;
#[cfg(test)]
mod testing;
mod ublk;
pub mod validate;
pub mod verify;

pub use outcome::Outcome;
pub use plan::Plan;

//! Traces recorded here, and kernels held against the models by them.

mod circumstances;
pub mod conform;
pub mod record;

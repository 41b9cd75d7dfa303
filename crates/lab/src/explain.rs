//! Both sides of an explanation found, and the experiments that confirm or refute it ([`iowhy_why`] explains).

pub mod advice;
pub mod gathered;
pub mod modes;
pub mod prove;
pub mod prove_live;
pub mod recipe;
pub mod source;
pub mod tally;

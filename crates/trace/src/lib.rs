//! Recorded traces: what they are kept in ([`format`]), calls joined to requests ([`join`]), counters and phases.

pub mod advice;
pub mod bridge;
pub mod fields;
pub mod format;
pub mod iostat;
pub mod join;
pub mod phases;
pub mod public;
pub mod recorded;
pub mod row;
pub mod settings;
pub mod stat;

pub use format::{FORMATS, Format, Part, detect, format_of_name, load, read};

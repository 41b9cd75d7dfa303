//! What stands between the simulator and whoever asks: command lines as plans, incidents, conformance, and the reports
//! of all of them as values, text or JSON. Nothing here prints, exits or reads the command line of the process.

pub mod backend;
pub mod conform;
pub mod diagnose;
pub mod doctor;
pub mod fio;
pub mod format;
pub mod golden;
pub mod golden_mmap;
pub mod golden_reclaim;
pub mod incident;
pub mod iostat;
pub mod measure;
pub mod mmtests;
pub mod models;
pub mod modes;
pub mod place;
pub mod run;
pub mod stats;
pub mod sysbench;
pub mod text;

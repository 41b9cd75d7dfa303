//! What stands between the simulator and whoever asks: command lines as plans, incidents, conformance, and the reports
//! of all of them as values, text or JSON. Nothing here prints, exits or reads the command line of the process.

pub mod backend;
pub mod bisect;
pub mod conform;
pub mod disk;
pub mod doctor;
pub mod explain;
pub mod golden;
pub mod golden_mmap;
pub mod golden_reclaim;
pub mod incident;
pub mod measure;
pub mod models;
pub mod place;
pub mod plant;
pub mod report;
pub mod run;
pub mod store;
pub mod sysbench;
pub mod trace;

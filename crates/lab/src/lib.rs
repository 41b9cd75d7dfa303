//! What stands between the simulator and whoever asks: command lines as plans, incidents, conformance, and the reports
//! of all of them as values, text or JSON. Nothing here prints, exits or reads the command line of the process.

pub mod conform;
pub mod diagnose;
pub mod fio;
pub mod golden;
pub mod incident;
pub mod measure;
pub mod models;
pub mod place;
pub mod sysbench;
pub mod text;

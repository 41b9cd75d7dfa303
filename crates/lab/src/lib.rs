//! Everything between the simulator and its users: command lines as plans, incidents, conformance, and the reports of
//! all of them as values, text or JSON. Nothing here prints, exits or reads the command line of the process.

pub mod armed;
pub mod bisect;
pub mod complete;
pub mod conform;
pub mod doctor;
pub mod drive_file;
pub mod explain;
pub mod incident;
pub mod modelled_disk;
pub mod models;
pub mod on_kernel;
pub mod place;
pub mod plant;
pub mod price;
pub mod profile;
pub mod recording;
pub mod report;
pub mod run;
pub mod simulated_json;
pub mod store;
pub mod sweep;
pub mod sysbench;
pub mod tune;
pub mod twin;
pub mod why;

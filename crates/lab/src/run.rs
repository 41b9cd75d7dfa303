//! `iowhy run`: jobs of fio and built-in jobs, simulated, on the running kernel, and on kernels that are booted.
//!
//! The words behind `run` ([`words`]) become a [`RunRequest`] with every mistake reported at once ([`resolve`]): which
//! job, at which places, how often. Each place has a [`Variant`] with the [`Backend`] that makes its runs, of whichever
//! kind it is. [`execute`] makes them, those of several variants in blocks of random order ([`design`]), and records
//! each as soon as it has ended ([`record`]); [`report`] shows their [`RunRecord`]s. Files of live runs are in one
//! directory ([`Folder`]); nothing is touched before the first run.

mod aio_stress;
pub mod backend;
mod bonnie;
mod dd;
pub mod design;
mod execute;
pub(crate) mod fio;
pub mod guest;
mod knobs;
mod limit;
mod lines;
pub mod live;
pub mod metrics;
pub mod options;
mod own;
pub(crate) mod own_disk;
pub mod own_report;
mod paralleldd;
mod pgbench;
pub mod program;
pub mod record;
pub mod replay;
pub mod report;
mod resolve;
pub mod simulator;
pub mod traced;
mod words;

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iowhy_live::capture::Level;
use iowhy_stack::job::{Job, Workload};
use iowhy_stack::kernel::Stack;
use iowhy_stack::machine::Machine;
use iowhy_stack::outcome::{JobTotals, Plan};
use iowhy_stack::rng::Rng;
use iowhy_stack::units::SECTOR_BYTES;

use crate::store::{RunId, StoreError};
use backend::Kind;
pub use backend::{Backend, Refusal, RunRecord};
pub use design::{Experiment, Slot, Until};
pub(crate) use execute::hold;
pub use execute::{execute, execute_into};
use iowhy_text::diagnose::{Problem, Problems};
use options::{Opt, Values};
pub use own::OwnCommand;
use own_report::Export;
use program::Program;
pub use resolve::{asked, files_for_guest, here, load, plan, resolve};
pub use words::{command, help};

/// Every kind of places; a word behind `--on` is of the first that knows it.
const KINDS: &[Kind] = &[live::KIND, guest::KIND, simulator::KIND];

/// Makes the command line of a program from the options of a job and the directory.
type Tell = fn(&Values<'_>, &Path, &mut Problems) -> Option<Program>;

/// A built-in job.
#[derive(Debug)]
pub struct Builtin {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Notes for its users.
    pub notes: &'static str,
    pub options: &'static [Opt],
    /// Makes the job.
    build: fn(&Values<'_>, &mut Stack, &mut Problems) -> Option<(Job, Shape)>,
    /// The program that is run on the running kernel, if the job only imitates one.
    program: Option<Tell>,
}

/// Every built-in job.
pub const BUILTINS: &[&Builtin] =
    &[&dd::ENTRY, &paralleldd::ENTRY, &aio_stress::ENTRY, &bonnie::ENTRY, &pgbench::ENTRY];

/// A metric that one job has and others have not.
#[derive(Clone, Debug)]
pub struct Figure {
    pub name: String,
    /// Which line of the report it is taken from.
    pub line: usize,
    /// How.
    pub of: fn(&JobTotals) -> f64,
}

/// A report's facts about a job.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// Names of the lines of the report.
    pub lines: Vec<String>,
    /// Metrics of its own.
    pub figures: Vec<Figure>,
    /// Seeds of streams that are the same in every run (fio's `randrepeat`), by thread; the others change.
    pub fixed_seeds: Vec<Option<u64>>,
    /// Names of the files of the job, as the job has them.
    pub files: Vec<String>,
}

impl Shape {
    /// A report with these lines. A name that comes twice gets a number.
    pub fn of<S: AsRef<str>>(lines: impl IntoIterator<Item = S>) -> Shape {
        let mut shape = Shape::default();
        for line in lines {
            let name = line.as_ref();
            let same = |other: &String| other == name;
            let nr = (2..).find(|nr| !shape.lines.contains(&format!("{name}-{nr}")));
            let name = match (shape.lines.iter().any(same), nr) {
                (true, Some(nr)) => format!("{name}-{nr}"),
                _ => name.to_owned(),
            };
            shape.lines.push(name);
        }
        shape
    }

    /// The job with another seed.
    pub(crate) fn seed(&self, job: &mut Job, seed: u64) {
        job.seed = seed;
        if let Workload::Threads { threads, .. } = &mut job.workload {
            for (thread, fixed) in threads.iter_mut().zip(&self.fixed_seeds) {
                if let Some(fixed) = fixed {
                    // The generator mixes the seed of the run in like this; here it must cancel out.
                    thread.stream.seed = fixed ^ seed.rotate_left(32);
                }
            }
        }
    }

    /// The plan with another seed.
    pub fn seeded(&self, plan: &Plan, seed: u64) -> Plan {
        let mut plan = plan.clone();
        self.seed(&mut plan.job, seed);
        plan
    }
}

/// One place to run the job on.
#[derive(Clone, Debug)]
pub struct Variant {
    /// `--on`, as typed.
    pub on: String,
    /// `--disk`, as typed.
    pub disk: Option<String>,
    /// Label of its runs.
    pub label: String,
    /// The maker of its runs.
    pub backend: Arc<dyn Backend>,
    /// Facts for the report.
    pub shape: Shape,
}

impl Variant {
    /// The maker of its runs, if it is one of this kind.
    pub fn backend<B: Backend>(&self) -> Option<&B> {
        (&*self.backend as &dyn Any).downcast_ref()
    }
}

/// The directory of live runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Where it is.
    pub path: PathBuf,
    /// It is made for these runs, and removed after them.
    pub temporary: bool,
}

/// A command line that means something.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// The job, as typed.
    pub job: Vec<String>,
    /// Where.
    pub variants: Vec<Variant>,
    /// Runs on each.
    pub repeat: u32,
    /// Seed of the first run.
    pub seed: u64,
    /// Print JSON.
    pub json: bool,
    /// Where the files of live runs are.
    pub folder: Folder,
    /// Blocks that only warm up.
    pub warm_up: u32,
    /// The stopping rule; without one there are `repeat` runs.
    pub until: Option<Until>,
    /// Where the runs are kept, if they are.
    pub keep: Option<Keep>,
    /// Warnings from the command line.
    pub warnings: Vec<String>,
    /// Words of the same job on the running kernel, from any current directory.
    pub again: Vec<String>,
    /// They are commands of the user, and no job.
    pub own: Option<Own>,
}

/// Commands of the user.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// That of each variant.
    pub commands: Vec<OwnCommand>,
    /// Files for the results.
    pub exports: Vec<(PathBuf, Export)>,
}

/// How runs are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The directory of the store.
    pub directory: PathBuf,
    /// Keeping them was requested explicitly; otherwise it follows from the label, and runs are made even if they
    /// cannot be kept.
    pub asked: bool,
    /// With everything that happened: all of it in simulated ones, at this level in live ones.
    pub trace: Option<Level>,
    /// Without a word of what they were made on.
    pub blind: bool,
}

/// A parsed command line.
#[derive(Clone, Debug)]
pub enum Request {
    /// This text.
    Help(String),
    Run(Box<RunRequest>),
}

/// The word that makes the words behind it those of fio's command line.
const FIO: &str = "fio";

/// The word for the running kernel.
const LIVE: &str = "live";

/// The word for the disk that is there, where others are modelled.
const HERE: &str = "here";

fn checked(job: &Job, problems: &mut Problems) -> bool {
    match job.check() {
        Ok(()) => true,
        Err(text) => {
            problems.push(Problem::error(text));
            false
        }
    }
}

fn machine(stack: &Stack) -> Machine {
    (stack.machine.entry.build)(&stack.machine.options)
}

/// Bytes of the device of a stack.
fn device_bytes(stack: &Stack) -> u64 {
    (stack.device.entry.build)(&stack.device.options, Rng::stream(0, "size")).nr_sectors() * SECTOR_BYTES
}

/// A run that was made.
#[derive(Debug)]
pub struct Finished {
    /// Its place among the others, and its seed.
    pub slot: Slot,
    /// When it began, ns since 1970.
    pub started_ns: u64,
    /// When it ended.
    pub finished_ns: u64,
    pub record: RunRecord,
    /// Its id in the store, if it was recorded.
    pub id: Option<RunId>,
}

/// The runs of a request.
#[derive(Debug, Default)]
pub struct Executed {
    /// Runs that were made.
    pub runs: Vec<Finished>,
    /// Places at which a run could not be made, and why; each is reported once.
    pub refused: Vec<(String, Refusal)>,
    /// A signal ended it early.
    pub interrupted: bool,
    /// Why a run could not be recorded. It was made anyway, and is the last.
    pub unrecorded: Option<StoreError>,
}

#[cfg(test)]
mod tests;

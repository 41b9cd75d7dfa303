//! A side of an explanation with everything that experiments and pictures want of it.

use std::path::PathBuf;
use std::sync::Arc;

use iowhy_stack::event::{Event, EventSink};
use iowhy_stack::outcome::Plan;
use iowhy_stack::sim;
use iowhy_stats::metric::Group;
use iowhy_text::diagnose::Problem;
use iowhy_why::Side;

use super::recipe::Recipe;
use super::tally::Tally;
use crate::store::{Store, StoredRun};

/// Where the events of a run can be had once more.
#[derive(Clone, Debug)]
pub enum EventSource {
    /// From the simulator.
    Plan(Box<Plan>),
    /// From a data file of the store in a directory.
    Stored {
        /// The store's directory.
        directory: PathBuf,
        /// The name of the file.
        hash: String,
    },
    /// They were kept, since a trace is read and joined more slowly than they are listened to.
    Events(Arc<Vec<Event>>),
    /// The first ones were kept, for an explanation has no time to make a run again.
    Opening {
        /// These.
        events: Arc<Vec<Event>>,
        /// They are all.
        whole: bool,
    },
}

impl EventSource {
    /// Hands the events to a listener, in their order.
    ///
    /// # Errors
    /// The simulator's or the store's error.
    pub fn replay(&self, sink: &mut dyn EventSink) -> Result<(), Problem> {
        match self {
            EventSource::Plan(plan) => {
                sim::run_with(plan, sink).map(|_| ()).map_err(|error| Problem::error(error.to_string()))
            }
            EventSource::Stored { directory, hash } => {
                let replayed = Store::open_existing(directory).and_then(|store| store.replay(hash, sink));
                replayed.map(|_| ()).map_err(|error| Problem::error(error.to_string()))
            }
            EventSource::Events(events) | EventSource::Opening { events, .. } => {
                events.iter().for_each(|event| sink.event(event));
                Ok(())
            }
        }
    }
}

/// A run of a side of which pictures are made.
#[derive(Clone, Debug)]
pub struct PicturedRun {
    /// Its seed; of a trace its place among the others.
    pub seed: u64,
    /// Its events.
    pub again: EventSource,
    /// Its latencies and requests, for a report.
    pub tally: Tally,
    /// Names of its files by number, if its trace is all that is known of it.
    pub files: Vec<String>,
}

/// A side with its known circumstances.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    /// Its runs.
    pub side: Side,
    /// Words after `iowhy` that make such a run in the simulator; nothing of live and blind runs.
    pub command: Option<String>,
    /// How such a run is made again on the running kernel; nothing of simulated and blind runs.
    pub recipe: Option<Recipe>,
    /// Its metrics, if it comes from the store.
    pub group: Option<Group>,
    /// Pages of the files that were in the page cache before the first call, of each live run.
    pub resident: Vec<u64>,
    /// Data for the pictures of each run of the side, in their order.
    pub seen: Vec<PicturedRun>,
    /// The store's row of the first run.
    pub row: Option<Box<StoredRun>>,
    /// Assumptions of the scenario of an incident.
    pub assumed: Vec<String>,
}

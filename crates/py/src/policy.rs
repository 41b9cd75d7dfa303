//! Policies written in Python, for teaching, in place of the kernel's.
//!
//! Every question takes the interpreter, so that a run is slower by a microsecond or more for each. An exception ends
//! nothing at once: from then on nothing is read ahead, requests leave as they came, and it is raised when the run is
//! over.

mod elevator;
mod readahead;

use std::cell::RefCell;
use std::sync::Arc;

use iowhy_lab::run::RunRequest;
use iowhy_lab::run::simulator::Simulator;
use iowhy_stack::kernel::Chosen;
use iowhy_text::diagnose::Problem;
use pyo3::prelude::*;

pub(crate) use elevator::Waiting;

/// Makers of a run's policies.
#[derive(Default)]
pub(crate) struct Makers {
    pub(crate) readahead: Option<Py<PyAny>>,
    pub(crate) elevator: Option<Py<PyAny>>,
}

impl Makers {
    pub(crate) fn copied(&self, py: Python<'_>) -> Makers {
        let copied = |maker: &Option<Py<PyAny>>| maker.as_ref().map(|maker| maker.clone_ref(py));
        Makers { readahead: copied(&self.readahead), elevator: copied(&self.elevator) }
    }

    /// The same places with these policies.
    pub(crate) fn mixed_in(&self, request: &mut RunRequest) -> Result<(), Problem> {
        if self.readahead.is_none() && self.elevator.is_none() {
            return Ok(());
        }
        for variant in &mut request.variants {
            let Some(simulator) = variant.backend::<Simulator>() else {
                let text = format!("`{}` has its own policies: those of Python are simulated", variant.on);
                return Err(Problem::error(text).help("on=\"sim:linux-4.4\""));
            };
            let mut simulator = simulator.clone();
            if self.readahead.is_some() {
                simulator.plan.stack.readahead = Chosen::new(&readahead::ENTRY);
            }
            if self.elevator.is_some() {
                simulator.plan.stack.elevator = Chosen::new(&elevator::ENTRY);
            }
            variant.backend = Arc::new(simulator);
        }
        Ok(())
    }

    /// Simulates on this thread with these policies; or the first exception of one.
    pub(crate) fn with<T>(self, simulate: impl FnOnce() -> T) -> Result<T, PyErr> {
        MAKERS.set((self, None));
        let made = simulate();
        match MAKERS.take().1 {
            Some(error) => Err(error),
            None => Ok(made),
        }
    }
}

thread_local! {
    /// Makers for the simulation of this thread, and the first exception of a policy.
    static MAKERS: RefCell<(Makers, Option<PyErr>)> = RefCell::default();
}

fn failed(error: PyErr) {
    MAKERS.with_borrow_mut(|(_, first)| {
        first.get_or_insert(error);
    });
}

/// The policy that one of the makers makes; nothing after an exception.
fn made(which: fn(&Makers) -> &Option<Py<PyAny>>, limit: Option<u64>) -> Option<Py<PyAny>> {
    let made = Python::attach(|py| {
        let maker = MAKERS.with_borrow(|(makers, _)| which(makers).as_ref().map(|maker| maker.clone_ref(py)));
        maker.map(|maker| match limit {
            Some(limit) => maker.call1(py, (limit,)),
            None => maker.call0(py),
        })
    });
    made.transpose().unwrap_or_else(|error| {
        failed(error);
        None
    })
}

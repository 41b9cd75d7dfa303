//! Read-ahead written in Python, for teaching: an object for each open file, asked at misses and at markers.
//!
//! Every question takes the interpreter, so that a run is slower by a microsecond or more for each. The loop is that of
//! the kernels from 2.6.23 to 5.x. An exception ends nothing at once: from then on nothing is read ahead, and it is
//! raised when the run is over.

use std::cell::RefCell;

use iowhy_lab::run::RunRequest;
use iowhy_lab::run::simulator::Simulator;
use iowhy_stack::event::RaKind;
use iowhy_stack::kernel::Chosen;
use iowhy_stack::origin::{Entry, Options};
use iowhy_stack::read_loop::LoopStyle;
use iowhy_stack::readahead::{Advice, Build, Limits, Mapping, ReadRequest, Readahead, Token, Window};
use iowhy_stack::units::{PAGE_BYTES, PageIndex};
use iowhy_text::diagnose::Problem;
use pyo3::prelude::*;
use std::sync::Arc;

const ENTRY: Entry<Build> =
    Entry { name: "python", summary: "written by the user", origin: &[], options: &[], conformance: "none", build };

thread_local! {
    /// The maker of policies for the simulation of this thread, and the first exception of one.
    static MAKER: RefCell<(Option<Py<PyAny>>, Option<PyErr>)> = const { RefCell::new((None, None)) };
}

fn failed(error: PyErr) {
    MAKER.with_borrow_mut(|(_, first)| {
        first.get_or_insert(error);
    });
}

fn build(_: &Options, limits: &Limits) -> Box<dyn Readahead> {
    let limit = limits.ra_pages;
    let made = Python::attach(|py| {
        let maker = MAKER.with_borrow(|(maker, _)| maker.as_ref().map(|maker| maker.clone_ref(py)));
        maker.map(|maker| maker.call1(py, (limit,)))
    });
    let policy = made.transpose().unwrap_or_else(|error| {
        failed(error);
        None
    });
    Box::new(Asked { policy })
}

/// The state of an open file.
struct Asked {
    policy: Option<Py<PyAny>>,
}

impl Asked {
    fn ask(&mut self, question: &str, kind: RaKind, mapping: &mut dyn Mapping, page: PageIndex, nr: u64) {
        let Some(policy) = &self.policy else { return };
        let pages = mapping.size_bytes().div_ceil(PAGE_BYTES);
        let answer = Python::attach(|py| -> PyResult<Option<(u64, u64, Option<u64>)>> {
            let answer = policy.bind(py).call_method1(question, (page.0, nr, pages))?;
            if answer.is_none() {
                return Ok(None);
            }
            if let Ok((start, count)) = answer.extract::<(u64, u64)>() {
                return Ok(Some((start, count, None)));
            }
            answer.extract().map(Some)
        });
        match answer {
            Ok(Some((start, count, marker))) if start < pages && count > 0 => {
                mapping.read_pages(&Window {
                    kind,
                    start: PageIndex(start),
                    nr_pages: count.min(pages - start),
                    async_size: None,
                    marker: marker.map(PageIndex),
                });
            }
            Ok(_) => {}
            Err(error) => {
                failed(error);
                self.policy = None;
            }
        }
    }
}

impl Readahead for Asked {
    fn style(&self) -> LoopStyle {
        LoopStyle::OnDemand
    }

    fn begin(&mut self, _: &mut dyn Mapping, _: &ReadRequest) -> Token {
        Token::default()
    }

    fn on_miss(&mut self, _: Token, mapping: &mut dyn Mapping, page: PageIndex, nr_requested: u64) {
        self.ask("miss", RaKind::Sync, mapping, page, nr_requested);
    }

    fn on_marker(&mut self, _: Token, mapping: &mut dyn Mapping, page: PageIndex, nr_requested: u64) {
        mapping.clear_marker(page);
        self.ask("marker", RaKind::Async, mapping, page, nr_requested);
    }

    fn end(&mut self, _: Token, _: u64) {}

    fn advise(&mut self, _: &mut dyn Mapping, _: Advice) {}

    fn trace(&self) -> Vec<i64> {
        Vec::new()
    }
}

/// The same places with the policy of the user.
pub(crate) fn mixed_in(request: &mut RunRequest) -> Result<(), Problem> {
    for variant in &mut request.variants {
        let Some(simulator) = variant.backend::<Simulator>() else {
            let text = format!("`{}` has its own read-ahead: policies of Python are simulated", variant.on);
            return Err(Problem::error(text).help("on=\"sim:linux-4.4\""));
        };
        let mut simulator = simulator.clone();
        simulator.plan.stack.readahead = Chosen::new(&ENTRY);
        variant.backend = Arc::new(simulator);
    }
    Ok(())
}

/// Simulates on this thread with policies of a maker; or the first exception of one.
pub(crate) fn with<T>(maker: Option<Py<PyAny>>, simulate: impl FnOnce() -> T) -> Result<T, PyErr> {
    MAKER.set((maker, None));
    let made = simulate();
    match MAKER.take().1 {
        Some(error) => Err(error),
        None => Ok(made),
    }
}

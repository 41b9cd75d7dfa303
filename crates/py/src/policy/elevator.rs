//! Elevators: an object for the queue of a run, asked which waiting request goes next.
//!
//! Bios join waiting requests at both ends, the newest request first. A flush waits for all that came before it, and
//! later requests wait for the flush: they are not offered.

use iowhy_stack::elevator::{Build, Ctx, Elevator, Quirks};
use iowhy_stack::event::{Dir, MergeKind, RqId};
use iowhy_stack::origin::{Entry, Options};
use iowhy_stack::request::Bio;
use iowhy_stack::sorted::{Line, joins};
use iowhy_stack::units::{Hz, Nanos};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

use super::{failed, made};

pub(super) const ENTRY: Entry<Build> =
    Entry { name: "python", summary: "written by the user", origin: &[], options: &[], conformance: "none", build };

/// A policy that lets the device wait is asked again after this, if nothing else happens before.
const AGAIN: Nanos = Nanos(1_000_000);

fn build(_: &Options, _: Hz) -> Box<dyn Elevator> {
    Box::new(Asked { policy: made(|makers| &makers.elevator, None), line: Line::default(), head: 0, again: None })
}

/// A waiting request.
#[pyclass(module = "iowhy", frozen, get_all)]
pub(crate) struct Waiting {
    /// First sector of 512 bytes.
    sector: u64,
    /// Length in sectors.
    sectors: u32,
    write: bool,
    /// Somebody waits for it.
    sync: bool,
    /// The task it is for.
    task: u32,
    /// When it came, ns.
    arrived: u64,
}

struct Asked {
    policy: Option<Py<PyAny>>,
    /// In the order in which they came.
    line: Line<()>,
    /// The sector behind the last request that left.
    head: u64,
    again: Option<Nanos>,
}

impl Asked {
    /// The place of the next request in the line, of which the first `nr` may go.
    fn choice(&self, ctx: &Ctx<'_>, nr: usize) -> PyResult<Option<usize>> {
        let Some(policy) = &self.policy else { return Ok(Some(0)) };
        let waiting: Vec<Waiting> = self.line.entries()[..nr]
            .iter()
            .map(|entry| {
                let of = &ctx.requests[entry.rq];
                let (sector, sectors, arrived) = (of.sector.0, of.nr_sectors, of.inserted.0);
                Waiting { sector, sectors, write: of.dir == Dir::Write, sync: of.sync, task: of.context.task, arrived }
            })
            .collect();
        let place = Python::attach(|py| -> PyResult<Option<usize>> {
            policy.bind(py).call_method1("next", (waiting, self.head, ctx.now.0))?.extract()
        })?;
        match place {
            Some(place) if place >= nr => Err(PyIndexError::new_err(format!("next: {place}, but {nr} requests wait"))),
            place => Ok(place),
        }
    }
}

impl Elevator for Asked {
    fn quirks(&self) -> Quirks {
        Quirks { has_timer: true, ..Quirks::SORTING }
    }

    fn merge(&mut self, ctx: &mut Ctx<'_>, bio: &Bio) -> Option<(RqId, MergeKind)> {
        let newest = self.line.entries().iter().rev().take_while(|entry| !entry.flush);
        newest.map(|entry| entry.rq).find_map(|rq| joins(&ctx.requests[rq], bio).map(|kind| (rq, kind)))
    }

    fn merged(&mut self, ctx: &mut Ctx<'_>, rq: RqId, _kind: MergeKind) {
        if let Some(index) = self.line.position(rq) {
            self.line.grown(index, ctx.requests);
        }
    }

    fn neighbour(&self, _ctx: &Ctx<'_>, _rq: RqId, _side: MergeKind) -> Option<RqId> {
        None
    }

    fn merged_requests(&mut self, ctx: &mut Ctx<'_>, kept: RqId, gone: RqId) {
        if let Some(index) = self.line.position(gone) {
            self.line.remove(index);
        }
        self.merged(ctx, kept, MergeKind::Back);
    }

    fn add(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        self.line.push_back(ctx.requests, rq, ());
        self.again = None;
    }

    fn next(&mut self, ctx: &mut Ctx<'_>) -> Option<RqId> {
        let flush = self.line.entries().iter().position(|entry| entry.flush);
        let place = match flush.unwrap_or(self.line.entries().len()) {
            0 => flush?,
            nr => match self.choice(ctx, nr) {
                Ok(Some(place)) => place,
                Ok(None) => {
                    self.again = Some(ctx.now + AGAIN);
                    return None;
                }
                Err(error) => {
                    failed(error);
                    self.policy = None;
                    0
                }
            },
        };
        let rq = self.line.entries()[place].rq;
        self.line.remove(place);
        self.head = ctx.requests[rq].end().0;
        self.again = None;
        Some(rq)
    }

    fn is_empty(&self) -> bool {
        self.line.entries().is_empty()
    }

    fn len(&self) -> usize {
        self.line.entries().len()
    }

    fn timer(&self) -> Option<Nanos> {
        self.again
    }

    fn on_timer(&mut self, ctx: &mut Ctx<'_>) {
        self.again = None;
        ctx.kick = true;
    }
}

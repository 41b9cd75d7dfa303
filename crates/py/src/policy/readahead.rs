//! Read-ahead: an object for each open file, asked at misses and at markers. The loop is that of the kernels from
//! 2.6.23 to 5.x.

use iowhy_stack::event::RaKind;
use iowhy_stack::origin::{Entry, Options};
use iowhy_stack::read_loop::LoopStyle;
use iowhy_stack::readahead::{Advice, Build, Limits, Mapping, ReadRequest, Readahead, Token, Window};
use iowhy_stack::units::{PAGE_BYTES, PageIndex};
use pyo3::prelude::*;

use super::{failed, made};

pub(super) const ENTRY: Entry<Build> =
    Entry { name: "python", summary: "written by the user", origin: &[], options: &[], conformance: "none", build };

fn build(_: &Options, limits: &Limits) -> Box<dyn Readahead> {
    Box::new(Asked { policy: made(|makers| &makers.readahead, Some(limits.ra_pages)) })
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

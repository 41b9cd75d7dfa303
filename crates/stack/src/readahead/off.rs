//! No read-ahead: every absent page of a request is read alone and waited for.
//!
//! This is what a limit of 0 does from 2.6.23 to 5.x. The loop is that of those kernels; the policy never asks for
//! anything, so each miss ends as a single page. It is the lower bound that every other policy is measured against.
//!
//! Source: Linux 2.6.38, mm/readahead.c, `page_cache_sync_readahead` with `ra_pages` 0.
//!
//! Known deviations: 6.x reads the single page through its forced path instead; the I/O is the same. Advice is ignored.

use super::{Advice, Build, Limits, Mapping, ReadRequest, Readahead, Token};
use crate::origin::{Entry, Options, Origin};
use crate::read_loop::LoopStyle;

/// No read-ahead at all.
pub const ENTRY: Entry<Build> = Entry {
    name: "off",
    summary: "no read-ahead: every absent page is read alone",
    origin: &[Origin {
        kernels: "2.6.23 .. 5.x",
        file: "mm/readahead.c",
        function: "page_cache_sync_readahead",
        notes: "as with a read-ahead limit of 0",
    }],
    options: &[],
    conformance: "agrees with linux-2.6.38 at a limit of 0 (test `off_is_a_limit_of_zero`)",
    build,
};

fn build(_options: &Options, _limits: &Limits) -> Box<dyn Readahead> {
    Box::new(Off)
}

struct Off;

impl Readahead for Off {
    fn style(&self) -> LoopStyle {
        LoopStyle::OnDemand
    }

    fn begin(&mut self, _mapping: &mut dyn Mapping, _request: &ReadRequest) -> Token {
        Token::default()
    }

    fn end(&mut self, _call: Token, _pos: u64) {}

    fn advise(&mut self, _mapping: &mut dyn Mapping, _advice: Advice) {}

    fn trace(&self) -> Vec<i64> {
        Vec::new()
    }
}

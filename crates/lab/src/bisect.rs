//! Which change made it slow: among the differences of two simulated kernels ([`policy`]), or among commits, as a
//! driver for `git bisect run` ([`commit`]).
//!
//! Both repeat a measurement until they are sure, state the largest error, and report if they cannot tell.

pub mod commit;
pub mod policy;

/// Result of a test.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Like the good side.
    Good,
    /// Like the bad side.
    Bad,
    /// Undecided with the allowed number of runs.
    Unsure,
}

impl Verdict {
    /// The word in text and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Good => "good",
            Verdict::Bad => "bad",
            Verdict::Unsure => "unsure",
        }
    }
}

//! Statistics: one file for each method, with its reference at its head.
//!
//! The caller states the known properties of the data; they select the method, and the result names it. Every method is
//! a function over slices of finite `f64`; readers of files take the others out. Values that do not exist for some
//! samples are NaN or `None`, never a made-up number. Random draws come from a generator that the caller seeds, so the
//! same samples always give the same figures.
//!
//! Answers of SciPy, diptest and Apache Otava stand in `tests/vectors`; `xtask/oracles` regenerates them.

pub mod anderson_darling;
pub mod autocorrelation;
pub mod blocks;
pub mod bootstrap;
pub mod change_points;
pub mod dip;
pub mod drift;
pub mod effect;
pub mod equivalence;
pub mod figure;
pub mod fisher;
pub mod harrell_davis;
pub mod hodges_lehmann;
pub mod kolmogorov_smirnov;
pub mod mann_whitney;
pub mod metric;
pub mod mmtests;
pub mod modes;
pub mod multiple;
pub mod permutation;
pub mod power;
pub mod rank;
pub mod share;
pub mod signed_rank;
pub mod welch;

/// Description of a method, for lists and for the figures it made.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Method {
    pub name: &'static str,
    /// Its result, in a line.
    pub summary: &'static str,
    /// Authors and year.
    pub reference: &'static str,
    /// Evidence that it follows the reference.
    pub checked: &'static str,
}

/// Every method.
pub const METHODS: &[&Method] = &[
    &anderson_darling::METHOD,
    &autocorrelation::METHOD,
    &blocks::METHOD,
    &bootstrap::METHOD,
    &change_points::METHOD,
    &dip::METHOD,
    &drift::METHOD,
    &effect::METHOD,
    &equivalence::METHOD,
    &fisher::METHOD,
    &harrell_davis::METHOD,
    &hodges_lehmann::METHOD,
    &kolmogorov_smirnov::METHOD,
    &mann_whitney::METHOD,
    &modes::METHOD,
    &multiple::METHOD,
    &permutation::METHOD,
    &power::METHOD,
    &share::METHOD,
    &signed_rank::METHOD,
    &welch::METHOD,
];

/// Which direction is better.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Better {
    /// Less is better: times.
    Lower,
    /// More is better: rates.
    Higher,
}

impl Better {
    /// `lower` or `higher`, as data files say it.
    pub fn parse(word: &str) -> Option<Better> {
        match word {
            "lower" => Some(Better::Lower),
            "higher" => Some(Better::Higher),
            _ => None,
        }
    }

    /// The word data files use.
    pub fn word(self) -> &'static str {
        match self {
            Better::Lower => "lower",
            Better::Higher => "higher",
        }
    }

    /// Whether `a` is strictly better than `b`.
    pub fn prefers(self, a: f64, b: f64) -> bool {
        match self {
            Better::Lower => a < b,
            Better::Higher => a > b,
        }
    }
}

/// The middle of sorted samples: of an even number, the mean of the two middle ones. NaN of none.
pub fn median_sorted(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// The samples in ascending order.
pub fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

//! In which order runs are made, and when there are enough of them.
//!
//! One run of each arm (a place, a kind of run) is a block, and each block has its own random order: slow drift (a disk
//! that fills, a machine that warms up) affects all arms alike, and order effects favour none. Warm-up blocks come
//! first and have their own order, so that the blocks that count keep their order and seeds with and without them.
//!
//! The stopping rule looks only at the width of an interval, never at its position: the interval of the median with one
//! place, of the shift from the first place with several. Sampling until a difference is significant finds one between
//! equal things sooner or later (Armitage, McPherson & Rowe 1969); sampling until an interval is narrow is harmless.
//!
//! References: Fisher, The Design of Experiments, 1935 (blocks); Kelley, Maxwell & Rausch 2003 (precision).

use std::ops::ControlFlow;

use iowhy_stack::rng::Rng;

use super::{Finished, RunRequest};
use iowhy_stats::{self, bootstrap, hodges_lehmann};

/// The stopping rule: go on until the interval is narrow, or the budget is spent.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Until {
    /// Half the width of the interval, percent.
    pub pct: f64,
    /// Most runs at each place.
    pub budget: u32,
}

/// Level of the intervals.
pub const LEVEL: f64 = 0.99;

/// Metrics for the stopping rule, best first. Rates come first: the time of a job that runs for a given time is
/// constant.
const TELLING: &[&str] = &["iops", "elapsed_s"];

/// A run that is to be made.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Of which arm: which variant of a command.
    pub variant: usize,
    /// With which seed.
    pub seed: u64,
    /// In which block, from 0; blocks to warm up are counted, too.
    pub block: u64,
    /// Its place in the block.
    pub position: u32,
    /// It only warms up.
    pub warm_up: bool,
}

/// Runs of several arms in blocks of random order: of everything that is compared by runs of its own.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Names the stream of random numbers that the order of the blocks is drawn from.
    pub name: &'static str,
    /// Seed of the order, and of the runs of the first block that counts.
    pub seed: u64,
    /// Number of places compared.
    pub arms: usize,
    /// Blocks that only warm up.
    pub warm_up: u64,
    /// Blocks at most, those included.
    pub blocks: u64,
}

impl Experiment {
    /// The blocks, one after the other.
    fn in_order(&self) -> impl Iterator<Item = Vec<Slot>> + use<> {
        let Experiment { name, seed: first, arms, warm_up, blocks } = *self;
        let mut warming = Rng::stream(first, &format!("{name} to warm up"));
        let mut counting = Rng::stream(first, name);
        (0..blocks).map(move |block| {
            let warms = block < warm_up;
            let rng = if warms { &mut warming } else { &mut counting };
            let mut variants: Vec<usize> = (0..arms).collect();
            for last in (1..arms).rev() {
                variants.swap(last, rng.below(last as u64 + 1) as usize);
            }
            let seed = first + if warms { block } else { block - warm_up };
            let slot = |(position, variant)| Slot { variant, seed, block, position, warm_up: warms };
            (0..).zip(variants).map(slot).collect()
        })
    }

    /// Makes the runs until `enough` accepts those of the blocks so far, or a run ends the whole.
    pub fn run<S, E>(
        &self,
        made: &mut S,
        enough: impl Fn(&S, u64) -> bool,
        mut make: impl FnMut(&mut S, Slot) -> ControlFlow<E>,
    ) -> ControlFlow<E> {
        for (nr, block) in (0..).zip(self.in_order()) {
            if enough(made, nr) {
                break;
            }
            block.into_iter().try_for_each(|slot| make(made, slot))?;
        }
        ControlFlow::Continue(())
    }

    /// The runs in the order in which they are made, if there are never enough.
    pub fn schedule(&self) -> Vec<Slot> {
        self.in_order().flatten().collect()
    }
}

impl RunRequest {
    /// Blocks that are made at most, those to warm up included.
    pub fn blocks(&self) -> u64 {
        let counted = self.until.map_or(self.repeat, |until| until.budget.max(self.repeat));
        u64::from(self.warm_up) + u64::from(counted)
    }

    /// Its runs.
    pub fn experiment(&self) -> Experiment {
        let (arms, warm_up) = (self.variants.len(), u64::from(self.warm_up));
        Experiment { name: "order of runs", seed: self.seed, arms, warm_up, blocks: self.blocks() }
    }
}

/// How well a place is known.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacePrecision {
    /// Label of the place.
    pub label: String,
    /// Runs that count.
    pub runs: usize,
    /// Half the width of the interval, percent; infinite while there are too few runs to bound anything.
    pub half_width_pct: f64,
    /// Further runs of each place that it takes; 0 if there are enough, `None` if unknown.
    pub more: Option<u64>,
}

/// How well the places are known.
#[derive(Clone, Debug, PartialEq)]
pub struct Precision {
    /// By which metric.
    pub metric: String,
    /// The wanted one, percent.
    pub pct: f64,
    /// Of each place but the first, the interval of the shift from the first; of a single one, that of the median.
    pub places: Vec<PlacePrecision>,
}

impl Precision {
    /// All are known well enough.
    pub fn reached(&self) -> bool {
        !self.places.is_empty() && self.places.iter().all(|known| known.half_width_pct <= self.pct)
    }

    /// The most runs that a place takes.
    pub fn more(&self) -> Option<u64> {
        self.places.iter().map(|known| known.more).max_by_key(|more| more.unwrap_or(u64::MAX)).flatten()
    }
}

/// Values of a metric in the runs of a place that count.
fn values(runs: &[Finished], variant: usize, metric: &str) -> Vec<f64> {
    let own = runs.iter().filter(|run| run.slot.variant == variant && !run.slot.warm_up);
    own.filter_map(|run| run.record.metrics.iter().find(|(name, _)| name == metric).map(|(_, value)| *value)).collect()
}

/// How well the runs so far separate the places, `pct` being wanted. Places without runs do not count.
pub fn precision(request: &RunRequest, runs: &[Finished], pct: f64) -> Option<Precision> {
    let table = |metric: &str| -> Vec<(usize, Vec<f64>)> {
        let of = |variant| (variant, values(runs, variant, metric));
        (0..request.variants.len()).map(of).filter(|(_, values)| !values.is_empty()).collect()
    };
    let told =
        |table: &Vec<(usize, Vec<f64>)>| table.iter().all(|(_, values)| values.iter().any(|value| *value != 0.0));
    let (metric, table) =
        TELLING.iter().map(|metric| (*metric, table(metric))).find(|(_, table)| !table.is_empty() && told(table))?;
    let known = |variant: usize, runs: usize, (low, high): (f64, f64), middle: f64| {
        let half_width_pct = if middle == 0.0 { f64::INFINITY } else { 50.0 * (high - low) / middle.abs() };
        PlacePrecision {
            label: request.variants[variant].label.clone(),
            runs,
            half_width_pct,
            more: more(runs, half_width_pct, pct),
        }
    };
    let (first, rest) = table.split_first()?;
    let sorted = iowhy_stats::sorted(&first.1);
    let middle = iowhy_stats::median_sorted(&sorted);
    let mut places = Vec::new();
    if rest.is_empty() {
        let interval = bootstrap::quantile_interval(&sorted, 0.5, LEVEL);
        places.push(known(first.0, sorted.len(), (interval.low, interval.high), middle));
    }
    for (variant, values) in rest {
        let shift = hodges_lehmann::shift(&first.1, values, LEVEL)?;
        places.push(known(*variant, values.len().min(first.1.len()), (shift.low, shift.high), middle));
    }
    Some(Precision { metric: metric.to_owned(), pct, places })
}

/// Further runs until the interval is as narrow as wanted: its width goes with one over the root of the runs.
fn more(runs: usize, half_width_pct: f64, pct: f64) -> Option<u64> {
    if half_width_pct <= pct {
        return Some(0);
    }
    let ratio = half_width_pct / pct;
    let wanted = (runs as f64 * ratio * ratio).ceil();
    (wanted.is_finite() && wanted < 1e9).then(|| (wanted as u64).saturating_sub(runs as u64).max(1))
}

#[cfg(test)]
mod tests {
    use super::more;

    #[test]
    fn runs_grow_with_the_square_of_the_precision() {
        for (runs, half_width_pct, pct, expected) in [
            (10, 2.0, 2.0, Some(0)),
            (10, 2.01, 2.0, Some(1)),
            (10, 4.0, 2.0, Some(30)),
            (5, 6.0, 2.0, Some(40)),
            (5, 1e5, 1.0, None),
            (5, f64::INFINITY, 2.0, None),
        ] {
            assert_eq!(more(runs, half_width_pct, pct), expected, "{runs} {half_width_pct} {pct}");
        }
    }
}

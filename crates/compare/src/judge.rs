//! One row of a comparison: the method that suits the samples, its result, and the verdict.
//!
//! 1. The design decides first. Runs made in randomised blocks, enough of them, are paired: the signs of the
//!    differences within the blocks are random whatever drifts from block to block. All else is two samples.
//! 2. Positive values are compared as logarithms: a shift of logarithms is a change in percent, and its interval is one
//!    of that change. Where a value is zero or negative, the shift is taken as it is, in percent of A's median.
//! 3. Unless runs were made in random order, neighbours that resemble each other widen the test's variance by what that
//!    costs; if too little is left, nothing is concluded.
//! 4. If the pooled samples fall into two modes, the sides' shares are tested too: a fifth of the runs in a slow mode
//!    moves the centre little. Both tests then share the level, and the change is that of the mean.
//! 5. A change counts if it survives the correction for all rows, its interval does not hold zero, and the interval is
//!    not within the margin. An interval within the margin is "same". All else is inconclusive.

use iowhy_stack::rng::Rng;

use super::warning::Warning;
use super::{Effect, Row, Settings, Summary, TailShift, Verdict};
use iowhy_stats::autocorrelation::Order;
use iowhy_stats::bootstrap::Interval;
use iowhy_stats::metric::{Column, Group};
use iowhy_stats::{
    Better, Method, anderson_darling, autocorrelation, bootstrap, drift, effect, equivalence, fisher, harrell_davis,
    hodges_lehmann, kolmogorov_smirnov, mann_whitney, median_sorted, mmtests, modes, permutation, power, signed_rank,
    sorted,
};

/// Fewer values than this on a side: shares of modes are not tested.
const LEAST_FOR_SHARES: usize = 8;
/// Values of each side from which quantiles other than the median are looked at.
const LEAST_FOR_TAILS: usize = 100;
/// Values beyond a quantile that it takes to say anything of it.
const LEAST_BEYOND: f64 = 10.0;
/// More values than this: quantiles by the closed form, without smoothing.
const SMOOTHED: usize = 2_000;
/// More values than this on both sides together: the mean is not tested by relabelling, the ranks say it all.
const PERMUTED: usize = 50_000;
/// More dependent values than this are not drawn in blocks, which costs a sort each time: the closed form is widened.
const DEPENDENT: usize = 500;
/// Draws of dependent values.
const DEPENDENT_DRAWS: u32 = 999;
/// Values kept for plots.
const SHOWN: usize = 400;
/// Power that is asked of sizes of samples.
pub(super) const POWER: f64 = 0.8;
/// Ratio of deviations from which a remark is due.
const UNEQUAL: f64 = 4.0;
/// Quantiles that are looked at, percent.
const TAILS: &[f64] = &[50.0, 90.0, 99.0, 99.9];

/// The result of a test of the two sides.
struct Finding {
    p: f64,
    /// Change in percent of A and its interval.
    change_pct: f64,
    ci_pct: (f64, f64),
    /// Widens the variance: 1 for independent values.
    inflation: f64,
    /// Nothing may be concluded.
    mute: bool,
}

impl Finding {
    fn nothing(change_pct: f64) -> Finding {
        let ci_pct = (f64::NEG_INFINITY, f64::INFINITY);
        Finding { p: 1.0, change_pct, ci_pct, inflation: 1.0, mute: true }
    }
}

/// The samples of a metric as the tests take them.
struct Samples<'a> {
    a: &'a [f64],
    b: &'a [f64],
    a_sorted: Vec<f64>,
    b_sorted: Vec<f64>,
    /// All are positive: compared as logarithms.
    positive: bool,
}

impl Samples<'_> {
    /// The values on the scale on which they are compared.
    fn scaled(&self) -> (Vec<f64>, Vec<f64>) {
        let scale = |values: &[f64]| values.iter().map(|x| if self.positive { x.ln() } else { *x }).collect();
        (scale(self.a), scale(self.b))
    }

    /// The border between the modes of both sides together, if there are modes and enough values to count.
    fn border(&self, alpha: f64) -> Option<f64> {
        let enough = self.a.len().min(self.b.len()) >= LEAST_FOR_SHARES;
        enough.then(|| modes::split(self.a, self.b, alpha)).flatten()
    }

    /// A shift on that scale as percent of A.
    fn percent(&self, shift: f64) -> f64 {
        if self.positive {
            return 100.0 * shift.exp_m1();
        }
        // An infinite end stays one; zero to zero is no change; other changes from zero have no percentage.
        let base = median_sorted(&self.a_sorted).abs();
        if shift == 0.0 { 0.0 } else { 100.0 * shift / base }
    }
}

/// The row of a metric, its verdict still without the correction for the other rows.
pub(super) fn row(a: (&Group, &Column), b: (&Group, &Column), settings: &Settings) -> Row {
    let mut rng = Rng::stream(settings.seed, &a.1.metric.name);
    let level = 1.0 - settings.alpha;
    let samples = Samples {
        a: &a.1.values,
        b: &b.1.values,
        a_sorted: sorted(&a.1.values),
        b_sorted: sorted(&b.1.values),
        positive: a.1.values.iter().chain(&b.1.values).all(|value| *value > 0.0),
    };
    let mut row = Row {
        metric: a.1.metric.clone(),
        a: summary(samples.a, &samples.a_sorted, level, settings.alpha),
        b: summary(samples.b, &samples.b_sorted, level, settings.alpha),
        change_pct: f64::NAN,
        ci_pct: (f64::NEG_INFINITY, f64::INFINITY),
        p: 1.0,
        p_adjusted: 1.0,
        verdict: Verdict::Inconclusive,
        runs_needed: None,
        detectable_pct: f64::NAN,
        tails: Vec::new(),
        effects: Vec::new(),
        methods: Vec::new(),
        because: String::new(),
        warnings: Vec::new(),
    };
    let left_out = a.1.left_out + b.1.left_out;
    if left_out > 0 {
        row.warnings.push(Warning::LeftOut { values: left_out });
    }
    if samples.a.is_empty() || samples.b.is_empty() {
        row.warnings.push(Warning::NoSamples);
        return row;
    }
    let border = samples.border(settings.alpha);
    // Two questions share the level.
    let alpha = if border.is_some() { settings.alpha / 2.0 } else { settings.alpha };
    let pairs = pairs(a, b, alpha);
    let mut finding = match &pairs {
        Some(pairs) => paired(&samples, pairs, 1.0 - alpha, &mut row),
        None => {
            let finding = independent(&samples, alpha, order(a.0, b.0, settings), &mut row);
            if simulated(a.0) && simulated(b.0) {
                // Simulated runs cannot influence one another.
                row.warnings.retain(|it| !matches!(it, Warning::Allowed { .. } | Warning::FewUnordered));
            }
            finding
        }
    };
    if let Some(border) = border {
        finding = shares(&samples, finding, border, settings, &mut rng, &mut row);
    }
    (row.p, row.change_pct, row.ci_pct) = (finding.p, finding.change_pct, finding.ci_pct);
    needs(&samples, pairs.as_deref(), finding.inflation, settings, &mut row);
    if settings.detail && !finding.mute {
        describe(&samples, settings, finding.inflation, &mut rng, &mut row);
    }
    for (group, column) in [a, b] {
        conditions(group, column, pairs.is_some(), settings.margin_pct, &mut row.warnings);
    }
    row
}

fn summary(values: &[f64], sorted: &[f64], level: f64, alpha: f64) -> Summary {
    let (mean, deviation) = (mmtests::amean(values), mmtests::stddev(values));
    let interval = bootstrap::quantile_interval(sorted, 0.5, level);
    let shown = match values.len() {
        n if n <= SHOWN => values.to_vec(),
        n => (0..SHOWN).map(|k| values[(2 * k + 1) * n / (2 * SHOWN)]).collect(),
    };
    Summary {
        n: values.len(),
        median: median_sorted(sorted),
        median_ci: (interval.low, interval.high),
        mean,
        cv_pct: 100.0 * deviation / mean.abs(),
        range: (sorted.first().copied().unwrap_or(f64::NAN), sorted.last().copied().unwrap_or(f64::NAN)),
        modes: modes::find(values, alpha),
        shown,
    }
}

/// For each block of the design that has a run of either side, the places of their values: if all runs are in such
/// blocks, and there are enough of them for the test to be certain.
fn pairs(a: (&Group, &Column), b: (&Group, &Column), alpha: f64) -> Option<Vec<(usize, usize)>> {
    let blocks = |(group, column): (&Group, &Column)| -> Option<Vec<(u64, usize)>> {
        let block = |(place, run): (usize, &usize)| Some((group.runs.get(*run)?.block?, place));
        let mut blocks: Vec<_> = column.runs.iter().enumerate().map(block).collect::<Option<_>>()?;
        blocks.sort_unstable();
        let twice = blocks.windows(2).any(|two| two[0].0 == two[1].0);
        (!twice && blocks.len() == column.values.len()).then_some(blocks)
    };
    let (a, b) = (blocks(a)?, blocks(b)?);
    let same = a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.0 == b.0);
    (same && signed_rank::least_p(a.len()) <= alpha).then(|| a.iter().zip(&b).map(|(a, b)| (a.1, b.1)).collect())
}

fn paired(samples: &Samples<'_>, pairs: &[(usize, usize)], level: f64, row: &mut Row) -> Finding {
    let (a, b) = samples.scaled();
    let differences: Vec<f64> = pairs.iter().map(|(in_a, in_b)| b[*in_b] - a[*in_a]).collect();
    row.methods.push(&signed_rank::METHOD);
    let Some(found) = signed_rank::test(&differences, level) else { return Finding::nothing(f64::NAN) };
    Finding {
        p: found.p,
        change_pct: samples.percent(found.centre),
        ci_pct: (samples.percent(found.low), samples.percent(found.high)),
        inflation: 1.0,
        mute: false,
    }
}

fn simulated(group: &Group) -> bool {
    !group.runs.is_empty() && group.runs.iter().all(|run| run.simulated)
}

/// The known order of the runs: runs in blocks are in random order, in any request; otherwise the caller states it.
fn order(a: &Group, b: &Group, settings: &Settings) -> Order {
    let in_blocks = |group: &Group| !group.runs.is_empty() && group.runs.iter().all(|run| run.block.is_some());
    let shared = || a.runs.iter().all(|run| b.runs.iter().any(|other| other.block == run.block));
    if in_blocks(a) && in_blocks(b) && shared() { Order::Random } else { settings.order }
}

/// Fewer values of a side do not show whether they depend on one another.
const SHOWS_DEPENDENCE: usize = 12;

fn independent(samples: &Samples<'_>, alpha: f64, order: Order, row: &mut Row) -> Finding {
    let (a, b) = samples.scaled();
    let level = 1.0 - alpha;
    let (n, m) = (a.len(), b.len());
    row.methods.extend([&mann_whitney::METHOD, &hodges_lehmann::METHOD]);
    // With this few, one pair of independent samples in forty looks dependent: a warning, which costs no power.
    let few = order == Order::Unknown && (2..SHOWS_DEPENDENCE).contains(&n.min(m));
    let seen = autocorrelation::assess(&a, &b, order);
    let dependence = if few { autocorrelation::assess(&a, &b, Order::Random) } else { seen };
    let plain = dependence.inflation <= 1.0;
    let (test, shift) = if plain {
        (mann_whitney::test(&a, &b), hodges_lehmann::shift(&a, &b, level))
    } else {
        row.methods.push(&autocorrelation::METHOD);
        let (inflation, df) = (dependence.inflation, dependence.df);
        (mann_whitney::inflated(&a, &b, inflation, df), hodges_lehmann::shift_inflated(&a, &b, level, inflation, df))
    };
    let (Some(test), Some(shift)) = (test, shift) else { return Finding::nothing(f64::NAN) };
    let mut finding = Finding {
        p: test.p,
        change_pct: samples.percent(shift.estimate),
        ci_pct: (samples.percent(shift.low), samples.percent(shift.high)),
        inflation: dependence.inflation,
        mute: false,
    };
    if n.min(m) == 1 {
        row.warnings.push(Warning::OneSample);
    }
    if mann_whitney::least_p(n, m) > alpha {
        let least = (1..).find(|n| mann_whitney::least_p(*n, *n) <= alpha).unwrap_or(usize::MAX);
        row.warnings.push(Warning::TooFew { least });
        finding.ci_pct = (f64::NEG_INFINITY, f64::INFINITY);
    }
    if dependence.too_dependent {
        row.warnings.push(Warning::TooDependent { lag1: dependence.lag1 });
        finding = Finding { inflation: dependence.inflation, ..Finding::nothing(finding.change_pct) };
    } else if dependence.evident {
        let effective = n.min(m) as f64 / seen.inflation;
        row.warnings.push(Warning::Autocorrelated { lag1: dependence.lag1, effective });
    } else if order == Order::Unknown && !plain {
        row.warnings.push(Warning::Allowed { inflation: dependence.inflation });
    }
    if few {
        row.warnings.push(Warning::FewUnordered);
    }
    finding
}

/// The samples have modes on either side of `border`: the finding is the difference between their shares, if that is
/// clearer. Its p counts for two questions.
fn shares(
    samples: &Samples<'_>,
    finding: Finding,
    border: f64,
    settings: &Settings,
    rng: &mut Rng,
    row: &mut Row,
) -> Finding {
    let twice = |p: f64| (2.0 * p).min(1.0);
    let below = |values: &[f64]| values.iter().filter(|value| **value < border).count() as u64;
    let (a, b) = (below(samples.a), below(samples.b));
    let p = fisher::fisher_exact(a, samples.a.len() as u64 - a, b, samples.b.len() as u64 - b);
    row.methods.extend([&modes::METHOD, &fisher::METHOD]);
    // Shares of values that depend on one another differ more than Fisher's test allows for.
    if finding.p <= p || finding.mute || finding.inflation > 1.0 {
        return Finding { p: twice(finding.p), ..finding };
    }
    row.methods.insert(0, &bootstrap::METHOD);
    // The p-values carry the price of two questions; the interval only has to show where the mean went.
    let level = 1.0 - settings.alpha;
    let mean = bootstrap::mean_ratio(samples.a, samples.b, settings.draws, level, rng);
    Finding { p: twice(p), change_pct: mean.estimate, ci_pct: (mean.low, mean.high), ..finding }
}

/// How many runs it would take, and what these would show.
fn needs(samples: &Samples<'_>, pairs: Option<&[(usize, usize)]>, inflation: f64, settings: &Settings, row: &mut Row) {
    let (mut a, mut b) = (samples.a.to_vec(), samples.b.to_vec());
    if let Some(pairs) = pairs {
        // Variation that blocks share is not noise: half of the rest of each difference stands for either side.
        let (scaled_a, scaled_b) = samples.scaled();
        let halves: Vec<f64> = pairs
            .iter()
            .map(|(in_a, in_b)| (scaled_b[*in_b] - scaled_a[*in_a]) * std::f64::consts::FRAC_1_SQRT_2)
            .collect();
        let centre = median_sorted(&sorted(&halves));
        let base = median_sorted(&samples.a_sorted);
        let value = |x: f64| if samples.positive { base * x.exp() } else { base + x };
        a = halves.iter().map(|half| value(half - centre)).collect();
        b = halves.iter().map(|half| value(centre - half)).collect();
    }
    let change = settings.margin_pct / 100.0;
    row.runs_needed = power::runs_needed(&a, &b, change, settings.alpha, POWER, inflation)
        .map(|total| total.saturating_sub(a.len().min(b.len()) as u64));
    row.detectable_pct = 100.0 * power::detectable(&a, &b, settings.alpha, POWER, inflation);
}

/// Further remarks on the difference. Nothing of this decides.
fn describe(samples: &Samples<'_>, settings: &Settings, inflation: f64, rng: &mut Rng, row: &mut Row) {
    let (a, b) = (samples.a, samples.b);
    let mut put = |name: &'static str, value: f64, method: &'static Method| {
        row.effects.push(Effect { name, value });
        if !row.methods.contains(&method) {
            row.methods.push(method);
        }
    };
    put("cliffs_delta", effect::cliffs_delta(a, b), &effect::METHOD);
    put("hedges_g", effect::hedges_g(a, b), &effect::METHOD);
    if let Some(found) = kolmogorov_smirnov::two_sample(a, b) {
        put("ks_d", found.d, &kolmogorov_smirnov::METHOD);
        put("ks_p", found.p, &kolmogorov_smirnov::METHOD);
    }
    if let Some(found) = anderson_darling::k_sample(&[a, b]) {
        put("anderson_darling_p", found.p, &anderson_darling::METHOD);
    }
    if a.len() + b.len() <= PERMUTED
        && let Some(found) = permutation::means(a, b, settings.draws, rng)
    {
        put("permutation_of_means_p", found.p, &permutation::METHOD);
    }
    let n = a.len().min(b.len());
    if n < LEAST_FOR_TAILS {
        return;
    }
    let level = 1.0 - settings.alpha;
    for quantile_pct in TAILS.iter().filter(|pct| n as f64 * (1.0 - *pct / 100.0) >= LEAST_BEYOND) {
        let q = quantile_pct / 100.0;
        let (a, b) = (&samples.a_sorted, &samples.b_sorted);
        let (method, at_a, at_b, change) = if inflation > 1.0 && n <= DEPENDENT {
            // Values that depend on one another are drawn in blocks, in the order in which they came.
            let block = bootstrap::block_length(samples.a).max(bootstrap::block_length(samples.b));
            let quantile = |values: &[f64]| bootstrap::quantile(&sorted(values), q);
            let (sides, draws) = ([samples.a, samples.b], settings.draws.min(DEPENDENT_DRAWS));
            let (of_a, of_b) = (&sides[..1], &sides[1..]);
            let units = bootstrap::runs_then_blocks_difference(of_a, of_b, block, &quantile, draws, level, rng);
            let base = bootstrap::quantile(a, q);
            let percent = |x: f64| 100.0 * x / base.abs();
            let change = widened(units, percent, 1.0);
            (&bootstrap::METHOD, base, bootstrap::quantile(b, q), change)
        } else if n <= SMOOTHED {
            let shift = harrell_davis::shift(a, b, q, settings.draws, level, rng);
            (&harrell_davis::METHOD, harrell_davis::quantile(a, q), harrell_davis::quantile(b, q), shift.pct)
        } else {
            let ratio = bootstrap::quantile_ratio(a, b, q, settings.draws, level, rng);
            // Dependence widens as it widens the variance of a mean.
            let ratio = widened(ratio, |pct| pct, inflation.sqrt());
            (&bootstrap::METHOD, bootstrap::quantile(a, q), bootstrap::quantile(b, q), ratio)
        };
        if !row.methods.contains(&method) {
            row.methods.push(method);
        }
        row.tails.push(TailShift {
            quantile_pct: *quantile_pct,
            a: at_a,
            b: at_b,
            change_pct: change.estimate,
            ci_pct: (change.low, change.high),
        });
    }
}

/// See [`super::latencies`].
pub(super) fn latencies(a: &[Vec<f64>], b: &[Vec<f64>], settings: &Settings) -> Vec<TailShift> {
    let mut rng = Rng::stream(settings.seed, "latencies of calls");
    let (a, b): (Vec<&[f64]>, Vec<&[f64]>) =
        (a.iter().map(Vec::as_slice).collect(), b.iter().map(Vec::as_slice).collect());
    if a.len().min(b.len()) < 2 {
        return Vec::new();
    }
    let calls = |runs: &[&[f64]]| runs.iter().map(|run| run.len()).sum::<usize>();
    let n = calls(&a).min(calls(&b));
    let block = a.iter().chain(&b).map(|run| bootstrap::block_length(run)).max().unwrap_or(1);
    let level = 1.0 - settings.alpha;
    let shift = |quantile_pct: &f64| {
        let quantile = |values: &[f64]| selected(values, quantile_pct / 100.0);
        let draws = settings.draws.min(DEPENDENT_DRAWS);
        let units = bootstrap::runs_then_blocks_difference(&a, &b, block, &quantile, draws, level, &mut rng);
        let base = quantile(&a.concat());
        let change = widened(units, |x| 100.0 * x / base.abs(), 1.0);
        TailShift {
            quantile_pct: *quantile_pct,
            a: base,
            b: base + units.estimate,
            change_pct: change.estimate,
            ci_pct: (change.low, change.high),
        }
    };
    TAILS.iter().filter(|pct| n as f64 * (1.0 - *pct / 100.0) >= LEAST_BEYOND).map(shift).collect()
}

/// The order statistic at a quantile, found without sorting all of them.
fn selected(values: &[f64], q: f64) -> f64 {
    let mut values = values.to_vec();
    if values.is_empty() {
        return f64::NAN;
    }
    let place = ((values.len() - 1) as f64 * q).round() as usize;
    *values.select_nth_unstable_by(place, f64::total_cmp).1
}

/// The interval on another scale, its ends moved away from the estimate by the factor of the widening.
fn widened(interval: Interval, scale: impl Fn(f64) -> f64, by: f64) -> Interval {
    let [estimate, low, high] = [interval.estimate, interval.low, interval.high].map(scale);
    Interval { estimate, low: estimate - by * (estimate - low), high: estimate + by * (high - estimate) }
}

/// Oddities of one side.
fn conditions(group: &Group, column: &Column, paired: bool, margin_pct: f64, warnings: &mut Vec<Warning>) {
    let values = &column.values;
    let side = || group.label.clone();
    let middle = median_sorted(&sorted(values)).abs();
    if let Some(found) = drift::test(values)
        && !paired
        && found.p < 0.01
        && 100.0 * found.change.abs() > margin_pct * middle
    {
        warnings.push(Warning::Drift { side: side(), change_pct: 100.0 * found.change / middle });
    }
    let first = drift::warm_up(values);
    if first > 0 {
        warnings.push(Warning::WarmUp { side: side(), values: first });
    }
}

/// Properties that the values of both sides share and a reader should know.
pub(super) fn shape(row: &mut Row, a: &Group, b: &Group) {
    let columns = [a, b].map(|group| group.column(&row.metric.name).map_or(&[][..], |column| &column.values[..]));
    let all = sorted(&columns.concat());
    let n = all.len();
    for (group, modes) in [(a, &row.a.modes), (b, &row.b.modes)] {
        if modes.len() > 1 {
            row.warnings.push(Warning::Modes { side: group.label.clone(), modes: modes.len() });
        }
    }
    let (Some(first), true) = (all.first(), n > 2) else { return };
    if *first <= 0.0 {
        row.warnings.push(Warning::NotPositive);
    }
    let distinct = 1 + all.windows(2).filter(|two| two[0] != two[1]).count();
    let constant = |(low, high): (f64, f64)| low == high;
    if constant(row.a.range) && constant(row.b.range) {
        // A simulator with equal results for every seed is not a broken instrument.
        let both = simulated(a) && simulated(b);
        row.warnings.push(if both { Warning::SameEvents } else { Warning::Constant });
    } else if n >= 10 && 2 * distinct <= n {
        row.warnings.push(Warning::Quantised { distinct });
    }
    let deviations = columns.map(mmtests::stddev);
    let ratio = deviations[0].max(deviations[1]) / deviations[0].min(deviations[1]);
    if ratio.is_finite() && ratio > UNEQUAL && columns.iter().all(|values| values.len() >= 5) {
        row.warnings.push(Warning::UnequalSpread { ratio });
    }
}

/// The verdict on a row whose p is adjusted, and the reason.
pub(super) fn decide(row: &mut Row, settings: &Settings) {
    let (low, high) = row.ci_pct;
    let excludes = low > 0.0 || high < 0.0;
    let certain = row.p_adjusted < settings.alpha && excludes;
    let level = 100.0 * (1.0 - settings.alpha);
    let margin = settings.margin_pct;
    if equivalence::within(row.ci_pct, margin) {
        row.verdict = Verdict::Same;
        row.methods.push(&equivalence::METHOD);
        row.because = format!("the {level} % interval lies within +-{margin} %");
    } else if certain {
        let worse = match row.metric.better {
            Better::Lower => low > 0.0,
            Better::Higher => high < 0.0,
        };
        row.verdict = if worse { Verdict::Regression } else { Verdict::Improvement };
        row.because =
            format!("the {level} % interval excludes no change, and the adjusted p is below {}", settings.alpha);
    } else {
        row.verdict = Verdict::Inconclusive;
        row.because = if row.a.n == 0 || row.b.n == 0 {
            "no samples to compare".to_owned()
        } else if low.is_infinite() || high.is_infinite() {
            "too few or too dependent samples to bound anything".to_owned()
        } else if excludes {
            format!(
                "among this number of rows one looks like this by chance (adjusted p is not below {})",
                settings.alpha
            )
        } else {
            format!("the {level} % interval holds no change, and reaches beyond +-{margin} %")
        };
    }
}

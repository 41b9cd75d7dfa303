//! Claims: the publication against the simulation, and the events' evidence for the cause.
//!
//! A claim is checked by the function that its incident's table ([`Checks`]) names for it, or else by its kind: an
//! order of rows, and ratios and bounds of one or more pairs of rows. The pairs are the claim's `of` and `to`, or those
//! of the scenario's `[[compare]]` entry for the claim. A claim that nothing checks is not held.

pub(super) mod cfq_direct_writers;
pub(super) mod flush_before_zeroing;
pub(super) mod fsyncs_share_less;
pub(super) mod fuse_ring_poll;
pub(super) mod insertion_lists;
pub(super) mod plug_merge_end;
pub(super) mod plug_per_bio;
pub(super) mod plugged_readahead;
pub(super) mod random_read_split;
pub(super) mod readahead_window;
pub(super) mod stale_cache;
pub(super) mod uring_nowait;
pub(super) mod wbt_write_cache;

use super::file::Claim;
use super::{IncidentResult, RowResult, extremes, mean};
use iowhy_stats::figure::share;
use iowhy_stats::mmtests::gain_pct;

/// Checks one claim: fills in the evidence.
pub(super) type Check = fn(&IncidentResult, &Claim, &mut ClaimResult);

/// Checks of the claims of an incident, by their names.
pub(super) type Checks = &'static [(&'static str, Check)];

/// Tells the cause of an incident from its events.
pub(super) type Why = fn(&IncidentResult) -> String;

/// A claim that was checked.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimResult {
    /// Its name.
    pub id: String,
    /// `order`, `ratio`, `bound` or `mechanism`.
    pub kind: String,
    /// In words.
    pub text: String,
    /// Whether the incident fails without it.
    pub required: bool,
    /// The published number, if the claim is about one.
    pub published: Option<f64>,
    /// The simulated number.
    pub simulated: Option<f64>,
    /// Smallest and largest of the sequences.
    pub spread: Option<(f64, f64)>,
    /// Least value that counts as shown.
    pub lower: Option<f64>,
    /// Largest value that counts as shown.
    pub upper: Option<f64>,
    /// Whether it is shown.
    pub held: bool,
    /// Why it does not count: it cannot fail by itself.
    pub follows: Option<String>,
    /// Evidence, row by row where the claim is about several.
    pub evidence: Vec<String>,
}

impl ClaimResult {
    /// Holds a figure against the bounds; without bounds nothing is shown.
    pub(super) fn judge(&mut self, simulated: f64) {
        self.simulated = Some(simulated);
        self.held = self.is_within(simulated);
    }

    pub(super) fn is_within(&self, value: f64) -> bool {
        (self.lower.is_some() || self.upper.is_some())
            && self.lower.is_none_or(|lower| value >= lower)
            && self.upper.is_none_or(|upper| value <= upper)
    }
}

/// Checks every claim of the incident.
pub(super) fn check(result: &IncidentResult, checks: Checks) -> Vec<ClaimResult> {
    let mut seen = Vec::new();
    let mut checked = Vec::new();
    for claim in &result.incident.claims {
        let mut one = check_one(result, claim, checks);
        one.follows = follows(result, claim, &mut seen).or(one.follows);
        checked.push(one);
    }
    checked
}

/// The events and the metric of the pairs that a claim is about, with its name and those of its rows.
type Seen<'a> = (Vec<([Vec<u64>; 2], &'static str)>, &'a str, Vec<(&'a str, &'a str)>);

/// Why a claim cannot fail by itself: its two sides make the same events or figures, or other rows make the events of
/// an earlier claim.
fn follows<'a>(result: &'a IncidentResult, claim: &'a Claim, seen: &mut Vec<Seen<'a>>) -> Option<String> {
    let events = |row: &RowResult| row.samples().map(|sample| sample.outcome.event_hash).collect::<Vec<u64>>();
    let names = names(result, claim);
    let pair = |(of, to): &(&str, &str)| {
        let (of, to) = (result.row(of)?, result.row(to)?);
        Some(([events(of), events(to)], of.metric.name)).filter(|([of, to], _)| !of.is_empty() && !to.is_empty())
    };
    let pairs = names.iter().map(pair).collect::<Option<Vec<_>>>().filter(|pairs| !pairs.is_empty())?;
    if pairs.iter().all(|([of, to], _)| of == to) {
        return Some("both sides make the same events".to_owned());
    }
    let values = |id: &str| result.row(id).map(|row| &row.values);
    if names.iter().all(|(of, to)| values(of) == values(to)) {
        return Some("both sides have the same figure in every run".to_owned());
    }
    if let Some((_, id, _)) = seen.iter().find(|(other, _, rows)| *other == pairs && *rows != names) {
        return Some(format!("repeats {id}, event by event"));
    }
    seen.push((pairs, &claim.id, names));
    None
}

fn check_one(result: &IncidentResult, claim: &Claim, checks: Checks) -> ClaimResult {
    let mut checked = ClaimResult {
        id: claim.id.clone(),
        kind: claim.kind.clone(),
        text: claim.text.clone().unwrap_or_default(),
        required: claim.required,
        published: claim.published.map(super::file::Published::value),
        simulated: None,
        spread: None,
        lower: claim.min,
        upper: claim.max,
        held: false,
        follows: None,
        evidence: Vec::new(),
    };
    let own = checks.iter().find(|(id, _)| *id == claim.id);
    let general = GENERAL.iter().find(|(kind, is_meant, _)| *kind == claim.kind && is_meant(claim));
    match (own, general) {
        (Some((_, check)), _) | (None, Some((_, _, check))) => check(result, claim, &mut checked),
        (None, None) => checked.evidence.push("nothing checks this yet".to_owned()),
    }
    checked.evidence.extend(claim.reason.iter().map(|reason| format!("bounds: {reason}")));
    checked
}

/// Whether a general check is the one for a claim of its kind.
type IsMeant = fn(&Claim) -> bool;

/// Checks of a claim by its kind and its demand.
const GENERAL: &[(&str, IsMeant, Check)] = &[
    ("order", |_| true, order),
    ("ratio", |claim| claim.published.is_some() && claim.tolerance_pct.is_some(), ratio),
    ("bound", |claim| claim.min_gain_pct.is_some(), least_gain),
    ("bound", |claim| claim.max_change_pct.is_some(), largest_change),
    ("bound", |claim| claim.min.is_some() || claim.max.is_some(), bound),
];

/// Rows are strictly better from one to the next.
fn order(result: &IncidentResult, claim: &Claim, checked: &mut ClaimResult) {
    let rows: Vec<&RowResult> = claim.rows.iter().filter_map(|id| result.row(id)).collect();
    let Some(first) = rows.first().filter(|_| rows.len() == claim.rows.len()) else {
        checked.evidence.push("a row it names does not exist".to_owned());
        return;
    };
    let metric = first.metric;
    if checked.text.is_empty() {
        let words = if metric.unit == "s" { "take less time" } else { "are better" };
        checked.text = format!("{} {words} in this order", claim.rows.join(", "));
    }
    let improving = |values: Vec<f64>| values.windows(2).all(|pair| metric.better.prefers(pair[1], pair[0]));
    checked.held = improving(rows.iter().map(|row| row.simulated()).collect());
    let in_order = (0..result.sequences as usize)
        .filter(|nr| improving(rows.iter().filter_map(|row| row.values.get(*nr)).copied().collect()))
        .count();
    let means: Vec<String> =
        rows.iter().map(|row| format!("{} {:.1} {}", row.id, row.simulated(), metric.unit)).collect();
    let sign = if metric.better == iowhy_stats::Better::Lower { " > " } else { " < " };
    checked.evidence.push(means.join(sign));
    checked.evidence.push(format!("in this order in {in_order} of {} sequences", result.sequences));
}

/// Names of the pairs of rows that a claim is about.
fn names<'a>(result: &'a IncidentResult, claim: &'a Claim) -> Vec<(&'a str, &'a str)> {
    match (&claim.of, &claim.to) {
        (Some(of), Some(to)) => vec![(of.as_str(), to.as_str())],
        _ => {
            let compares = result.scenario.compares.iter().filter(|compare| compare.claim == claim.id);
            compares.flat_map(|c| c.of.iter().map(String::as_str).zip(c.to.iter().map(String::as_str))).collect()
        }
    }
}

/// Pairs of rows that a claim is about: the changed one, and the one it is compared with. If there are none, the
/// evidence has the reason.
pub(super) fn pairs<'a>(
    result: &'a IncidentResult,
    claim: &Claim,
    checked: &mut ClaimResult,
) -> Vec<(&'a RowResult, &'a RowResult)> {
    let named = names(result, claim);
    if named.is_empty() {
        checked.evidence.push("the claim names no rows".to_owned());
    }
    let mut pairs = Vec::new();
    for (of, to) in named {
        match (result.row(of), result.row(to)) {
            (Some(of), Some(to)) => pairs.push((of, to)),
            _ => {
                checked.evidence.push("a row it names does not exist".to_owned());
                return Vec::new();
            }
        }
    }
    if checked.text.is_empty()
        && let [(of, to)] = pairs.as_slice()
    {
        let what = if of.metric.unit == "s" { "time" } else { of.metric.summary };
        checked.text = format!("{what} of {} as a multiple of {}", of.id, to.id);
    }
    pairs
}

/// The ratio of each pair. With several, the evidence lists them; the spread is over all.
pub(super) fn ratios(result: &IncidentResult, claim: &Claim, checked: &mut ClaimResult) -> Vec<f64> {
    let pairs = pairs(result, claim, checked);
    let ratios: Vec<_> = pairs.iter().map(|(of, to)| result.ratio(of, to)).collect();
    if ratios.is_empty() {
        return Vec::new();
    }
    checked.spread = Some(extremes(ratios.iter().flat_map(|ratio| [ratio.spread.0, ratio.spread.1])));
    if pairs.len() > 1 {
        let seen =
            pairs.iter().zip(&ratios).map(|((of, to), ratio)| format!("{} / {} {:.3}", of.id, to.id, ratio.value));
        checked.evidence.push(seen.collect::<Vec<String>>().join(", "));
    }
    ratios.into_iter().map(|ratio| ratio.value).collect()
}

/// The mean ratio of the pairs is near the published one.
fn ratio(result: &IncidentResult, claim: &Claim, checked: &mut ClaimResult) {
    if let (Some(published), Some(tolerance)) = (checked.published, claim.tolerance_pct) {
        checked.lower = Some(published * (1.0 - tolerance / 100.0));
        checked.upper = Some(published * (1.0 + tolerance / 100.0));
    }
    let ratios = ratios(result, claim, checked);
    if !ratios.is_empty() {
        checked.judge(mean(ratios.into_iter()));
    }
}

/// The ratio of every pair is within bounds; the one that is nearest to breaking them is shown.
fn bound(result: &IncidentResult, claim: &Claim, checked: &mut ClaimResult) {
    let ratios = ratios(result, claim, checked);
    let room = |value: f64| {
        let above = checked.lower.map_or(f64::INFINITY, |lower| value - lower);
        above.min(checked.upper.map_or(f64::INFINITY, |upper| upper - value))
    };
    if let Some(tightest) = ratios.into_iter().min_by(|a, b| room(*a).total_cmp(&room(*b))) {
        checked.judge(tightest);
    }
}

/// How much better the changed row of each pair is, percent; positive is better whatever the direction.
pub(super) fn gains(result: &IncidentResult, claim: &Claim, checked: &mut ClaimResult) -> Vec<f64> {
    let pairs = pairs(result, claim, checked);
    let gain = |of: &RowResult, to: &RowResult| gain_pct(1.0, result.ratio(of, to).value, of.metric.better);
    let gains: Vec<f64> = pairs.iter().map(|(of, to)| gain(of, to)).collect();
    if pairs.len() > 1 {
        let seen = pairs.iter().zip(&gains).map(|((of, to), gain)| format!("{} against {} {gain:+.1}%", of.id, to.id));
        checked.evidence.push(seen.collect::<Vec<String>>().join(", "));
    }
    gains
}

/// Every pair gains at least this.
fn least_gain(result: &IncidentResult, claim: &Claim, checked: &mut ClaimResult) {
    checked.lower = claim.min_gain_pct;
    if let Some(least) = gains(result, claim, checked).into_iter().min_by(f64::total_cmp) {
        checked.judge(least);
    }
}

/// No pair changes by more, either way.
fn largest_change(result: &IncidentResult, claim: &Claim, checked: &mut ClaimResult) {
    checked.upper = claim.max_change_pct;
    if let Some(largest) = gains(result, claim, checked).into_iter().map(f64::abs).max_by(f64::total_cmp) {
        checked.judge(largest);
    }
}

/// Read calls of all repetitions.
fn reads(row: &RowResult) -> u64 {
    row.samples().map(|sample| sample.outcome.counts.reads).sum()
}

/// The part of the reads that was given to worker threads.
fn handed_over(row: &RowResult) -> f64 {
    share(row.sum(|layers| layers.handed_over), reads(row))
}

/// A share as people read it.
pub(super) fn percent(share: f64) -> String {
    match share * 100.0 {
        small if small > 0.0 && small < 0.05 => "under 0.1%".to_owned(),
        small if small > 0.0 && small < 10.0 => format!("{small:.1}%"),
        percent => format!("{percent:.0}%"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::incident::metric;
    use crate::incident::scenario::{self, Average};
    use crate::incident::{Source, file};
    use iowhy_stats::mmtests::Statistic;

    /// A result without runs: rows of seconds or MB/s, and compared pairs.
    pub(in crate::incident) fn result(metric: &str, rows: &[(&str, &[f64])]) -> IncidentResult {
        let incident = file::parse("a", "id='a'\ntitle='t'\ndate='d'").expect("an incident");
        let text = "incident='a'\nrule='r'\nunexplained=''\nassumption=[]\n[variants]\n";
        let metric = metric::find(metric).expect("a metric");
        let row = |(id, values): &(&str, &[f64])| RowResult {
            id: (*id).to_owned(),
            variant: String::new(),
            scheduler: None,
            report: String::new(),
            group: String::new(),
            role: "prediction".to_owned(),
            published: None,
            note: None,
            metric,
            statistic: Statistic::Amean,
            source: Source::Runs(Vec::new()),
            runs: Vec::new(),
            values: values.to_vec(),
        };
        IncidentResult {
            incident,
            scenario: scenario::parse("a", text).expect("a scenario"),
            sequences: rows.first().map_or(0, |(_, values)| values.len() as u32),
            runs: Vec::new(),
            rows: rows.iter().map(row).collect(),
            extra: Vec::new(),
            context: Vec::new(),
            claims: Vec::new(),
            why: String::new(),
        }
    }

    /// The pairs of claim `c`.
    pub(in crate::incident) fn compare(result: &mut IncidentResult, pairs: &[(&str, &str)]) {
        result.scenario.compares = vec![scenario::Compare {
            claim: "c".to_owned(),
            of: pairs.iter().map(|pair| pair.0.to_owned()).collect(),
            to: pairs.iter().map(|pair| pair.1.to_owned()).collect(),
        }];
    }

    pub(in crate::incident) fn checked(result: &IncidentResult, claim: &str, checks: Checks) -> ClaimResult {
        let claim: Claim = toml::from_str(&format!("id='c'\n{claim}")).expect("a claim");
        check_one(result, &claim, checks)
    }

    #[test]
    fn without_its_rows_nothing_is_shown() {
        type Why = fn(&IncidentResult) -> String;
        let table: [(Checks, Why); 8] = [
            (flush_before_zeroing::CHECKS, flush_before_zeroing::why),
            (fsyncs_share_less::CHECKS, fsyncs_share_less::why),
            (fuse_ring_poll::CHECKS, fuse_ring_poll::why),
            (insertion_lists::CHECKS, insertion_lists::why),
            (plug_merge_end::CHECKS, plug_merge_end::why),
            (plug_per_bio::CHECKS, plug_per_bio::why),
            (uring_nowait::CHECKS, uring_nowait::why),
            (wbt_write_cache::CHECKS, wbt_write_cache::why),
        ];
        let result = result("write_mb_s", &[("a", &[1.0])]);
        for (checks, why) in table {
            let [(id, _)] = checks else { panic!("one check") };
            let claim = toml::from_str(&format!("id='{id}'\nkind='mechanism'")).expect("a claim");
            let checked = check_one(&result, &claim, checks);
            assert!(!checked.held, "{id}");
            // The check itself has looked.
            assert_eq!(checked.evidence, ["a row is missing"], "{id}");
            assert_eq!(why(&result), "", "{id}");
        }
    }

    #[test]
    fn claims_of_every_kind_are_held_or_not() {
        let mut times = result("elapsed_s", &[("a", &[10.0, 12.0]), ("b", &[5.0, 6.0]), ("c", &[11.0, 11.0])]);
        compare(&mut times, &[("b", "a"), ("c", "a")]);
        let pair = "of='b'\nto='a'";
        let table = [
            ("kind='order'\nrows=['a','b']".to_owned(), true, None),
            ("kind='order'\nrows=['b','a']".to_owned(), false, None),
            ("kind='order'\nrows=['a','x']".to_owned(), false, None),
            (format!("kind='ratio'\npublished=0.55\ntolerance_pct=10\n{pair}"), true, Some(0.5)),
            (format!("kind='ratio'\npublished=0.6\ntolerance_pct=10\n{pair}"), false, Some(0.5)),
            (format!("kind='bound'\nmin=0.4\nmax=0.5\n{pair}"), true, Some(0.5)),
            (format!("kind='bound'\nmin=0.51\n{pair}"), false, Some(0.5)),
            // Without rows of their own they are about the compared pairs; the worst of them counts.
            ("kind='bound'\nmax=0.9".to_owned(), false, Some((11.0 / 10.0 + 11.0 / 12.0) / 2.0)),
            (format!("kind='bound'\nmin_gain_pct=50\n{pair}"), true, Some(50.0)),
            ("kind='bound'\nmin_gain_pct=10".to_owned(), false, Some(100.0 - 100.0 * (1.1 + 11.0 / 12.0) / 2.0)),
            ("kind='bound'\nmax_change_pct=50".to_owned(), true, Some(50.0)),
            (format!("kind='bound'\nmax_change_pct=49\n{pair}"), false, Some(50.0)),
            ("kind='bound'\nmin=0.1\nof='b'\nto='x'".to_owned(), false, None),
            ("kind='bound'".to_owned(), false, None),
            ("kind='mechanism'".to_owned(), false, None),
        ];
        for (claim, held, simulated) in table {
            let checked = checked(&times, &claim, &[]);
            assert_eq!(checked.held, held, "{claim}: {checked:?}");
            let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
            assert_eq!(checked.simulated.is_some(), simulated.is_some(), "{claim}");
            assert!(checked.simulated.zip(simulated).is_none_or(|(a, b)| near(a, b)), "{claim}: {checked:?}");
            assert!(checked.simulated.is_some() || !checked.evidence.is_empty(), "{claim}");
        }
    }

    #[test]
    fn rates_are_better_when_higher() {
        let rates = result("write_mb_s", &[("a", &[10.0]), ("b", &[12.0])]);
        assert!(checked(&rates, "kind='order'\nrows=['a','b']", &[]).held);
        let gain = checked(&rates, "kind='bound'\nmin_gain_pct=10\nof='b'\nto='a'", &[]);
        assert!(gain.held && (gain.simulated.unwrap_or(0.0) - 20.0).abs() < 1e-9, "{gain:?}");
    }

    #[test]
    fn a_check_of_the_incident_goes_first() {
        let rows = result("elapsed_s", &[("a", &[1.0])]);
        let checks: Checks = &[("c", |_, _, checked| checked.judge(7.0))];
        assert_eq!(checked(&rows, "kind='bound'\nmin=5", checks).simulated, Some(7.0));
        assert_eq!(checked(&rows, "kind='mechanism'", &[]).evidence, ["nothing checks this yet"]);
    }

    #[test]
    fn near_a_threshold_the_means_are_compared() {
        let mut rows = result("elapsed_s", &[("a", &[1.0, 3.0]), ("b", &[3.0, 1.0])]);
        let ratio = |rows: &IncidentResult| rows.ratio(&rows.rows[0], &rows.rows[1]).value;
        assert!((ratio(&rows) - (1.0 / 3.0 + 3.0) / 2.0).abs() < 1e-12);
        rows.scenario.average = Average::RatioOfMeans;
        assert_eq!(ratio(&rows), 1.0);
    }
}

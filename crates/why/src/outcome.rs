//! The result of an experiment for the finding that it was made for.
//!
//! ```text
//! not reproduced made again, the sides do not differ, or by less than a fifth of the original difference
//! refuted         nothing measurable of the difference is gone, or it grew; half of it would have been seen
//! undecided       nothing measurable is gone, and half of the difference may be: the runs spread too much
//! confirmed       what remains may be nothing, or 80 % are gone and the slow side is not the faster one now
//! partly          something measurable is gone, but no more than that
//! ```
//! Differences are those of mean times for an operation, with intervals by Welch at 95 %. Single runs have none; a
//! least difference between single runs stands in for it. An overshoot that the sides of an explanation would be called
//! the same for is none.
//!
//! A knob may help for another reason than the one given. Where the switched runs have events, the rule looks at them,
//! too: its own figures have to move at least half the way to the fast side, or it is partly confirmed at best. So it
//! is if all of the device was switched because none of the finding's settings differs.

use super::delta::{Delta, SURE_SINGLE};
use super::matrix::Split;
use super::{Explanation, Finding, MATERIAL_PCT, Side};
use crate::rules::Rule;
use iowhy_stats::welch;

/// The fate of a finding.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With the one thing switched the difference is gone.
    Confirmed,
    /// A part of it is, or it is, but not in the finding's way.
    Partly,
    /// It is still there.
    Refuted,
    /// It was not there without anything switched.
    NotReproduced,
    /// Runs spread too much to see whether it is.
    Undecided,
}

impl Outcome {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Confirmed => "confirmed",
            Outcome::Partly => "partly",
            Outcome::Refuted => "refuted",
            Outcome::NotReproduced => "not-reproduced",
            Outcome::Undecided => "undecided",
        }
    }

    /// The words that begin a sentence about it.
    pub fn title(self) -> &'static str {
        match self {
            Outcome::Confirmed => "Confirmed",
            Outcome::Partly => "Partly confirmed",
            Outcome::Refuted => "Refuted",
            Outcome::NotReproduced => "Not reproduced",
            Outcome::Undecided => "Undecided",
        }
    }

    /// How sure a finding is after it, from how sure its rule was.
    fn confidence(self, of_rule: f64) -> f64 {
        match self {
            Outcome::Confirmed => of_rule.clamp(0.9, 0.99),
            Outcome::Partly => of_rule.min(0.75),
            Outcome::Refuted => of_rule.min(0.3),
            Outcome::NotReproduced | Outcome::Undecided => of_rule.min(0.5),
        }
    }
}

/// The effect of switching one thing off.
#[derive(Clone, Debug, PartialEq)]
pub struct Counterfactual {
    /// The changed setting, as typed.
    pub setting: String,
    /// On which side.
    pub side: String,
    /// Change from A to B, in percent of A's time for an operation, before.
    pub change_pct_before: f64,
    /// Interval of it at 95 %.
    pub ci_before_pct: (f64, f64),
    pub change_pct_after: f64,
    /// Interval of the latter at 95 %.
    pub ci_pct: (f64, f64),
    /// Part of the difference in time that is gone, percent.
    pub gone_pct: f64,
    /// Runs of each kind that it is made of.
    pub runs: u32,
    /// Whether the finding's own figures moved with the time; nothing where the switched runs have no events.
    pub figures_moved: Option<bool>,
    /// All of the device was switched, since none of the finding's settings differs: it shows where the cause is, and
    /// not which it is.
    pub device_only: bool,
    /// The time that is gone, by layers; nothing where the switched runs have no events.
    pub layers: Option<Split>,
    /// The result for the finding.
    pub outcome: Outcome,
}

/// Times for an operation, ns, of each run of an experiment.
#[derive(Copy, Clone, Debug)]
pub struct Times<'a> {
    /// Of the fast side.
    pub fast: &'a [f64],
    /// Of the slow one.
    pub slow: &'a [f64],
    /// Of the slow one with one thing switched.
    pub switched: &'a [f64],
}

/// A difference of two means with its interval.
#[derive(Copy, Clone, Debug)]
struct Difference {
    value: f64,
    low: f64,
    high: f64,
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

impl Difference {
    fn between(from: &[f64], to: &[f64]) -> Difference {
        let value = mean(to) - mean(from);
        let (low, high) = welch::interval(from, to, 0.95);
        if low.is_finite() && high.is_finite() {
            return Difference { value, low, high };
        }
        let chance = SURE_SINGLE * mean(from).max(mean(to));
        Difference { value, low: value - chance, high: value + chance }
    }

    fn may_be_none(&self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }
}

/// Part of a difference that has to be gone.
const MOST: f64 = 0.8;

/// Part of a difference that a refuting experiment would have seen go, and part of the way to the fast side that a
/// finding's figures have to go.
const HALF: f64 = 0.5;

/// A difference of this many times the material one (1 % of the fast side's time) is a large one.
const LARGE: f64 = 400.0;

/// The differences of an experiment, ns.
#[derive(Copy, Clone, Debug)]
struct Seen {
    /// Slow from fast.
    before: Difference,
    /// Switched from fast.
    left: Difference,
    /// Slow from switched.
    gone: Difference,
    /// Beyond the fast side by this much is no longer the same.
    material: f64,
    /// The difference to explain, if both sides were made again.
    explained: Option<f64>,
}

impl Seen {
    fn outcome(&self) -> Outcome {
        let Seen { before, left, gone, material, explained } = *self;
        if explained.is_some_and(|explained| {
            // A large difference that comes back as a smaller one, but still a large one, is the same difference.
            before.low <= 0.0 || before.value < ((1.0 - MOST) * explained).min(LARGE * material)
        }) {
            return Outcome::NotReproduced;
        }
        if gone.low <= 0.0 {
            return if gone.high < HALF * before.value { Outcome::Refuted } else { Outcome::Undecided };
        }
        let overshoots = left.high < 0.0 && left.value < -material;
        match left.may_be_none() || gone.value >= MOST * before.value && !overshoots {
            true => Outcome::Confirmed,
            false => Outcome::Partly,
        }
    }
}

impl Counterfactual {
    /// From the times. `explained` is the slow side's time over the fast one's as it was, if both were made again.
    pub fn of(
        (setting, side): (String, &str),
        times: Times<'_>,
        a_is_slow: bool,
        explained: Option<f64>,
    ) -> Counterfactual {
        let Times { fast, slow, switched } = times;
        let quick = mean(fast);
        // From base to candidate, whichever of them is slow.
        let change = |slow: f64| match a_is_slow {
            true if slow > 0.0 => 100.0 * (quick - slow) / slow,
            false if quick > 0.0 => 100.0 * (slow - quick) / quick,
            _ => 0.0,
        };
        let ends = |other: &[f64]| {
            let (low, high) = welch::interval(fast, other, 0.95);
            let ends = [change(quick + low), change(quick + high)];
            (ends[0].min(ends[1]), ends[0].max(ends[1]))
        };
        let seen = Seen {
            before: Difference::between(fast, slow),
            left: Difference::between(fast, switched),
            gone: Difference::between(switched, slow),
            material: quick * MATERIAL_PCT / 100.0,
            explained: explained.map(|ratio| quick * (ratio - 1.0)),
        };
        let gone_pct = if seen.before.value > 0.0 { 100.0 * seen.gone.value / seen.before.value } else { 0.0 };
        Counterfactual {
            setting,
            side: side.to_owned(),
            change_pct_before: change(mean(slow)),
            ci_before_pct: ends(slow),
            change_pct_after: change(mean(switched)),
            ci_pct: ends(switched),
            gone_pct,
            runs: switched.len() as u32,
            figures_moved: None,
            device_only: false,
            layers: None,
            outcome: seen.outcome(),
        }
    }

    /// More of the difference is gone than there was: the setting does something else as well.
    pub fn overshoots(&self) -> bool {
        let elsewhere = self.device_only || self.figures_moved == Some(false);
        self.outcome == Outcome::Partly && self.gone_pct > 100.0 && !elsewhere
    }

    /// The words that begin a sentence about it.
    pub fn title(&self) -> &'static str {
        if self.overshoots() { "Overshoots" } else { self.outcome.title() }
    }

    /// With whether it bears on the story, and not only on the time.
    pub fn with_story(self, figures_moved: Option<bool>, device_only: bool) -> Counterfactual {
        let outcome = match self.outcome {
            Outcome::Confirmed if figures_moved == Some(false) || device_only => Outcome::Partly,
            outcome => outcome,
        };
        Counterfactual { figures_moved, device_only, outcome, ..self }
    }
}

/// Whether what a rule goes by moved to the fast side when one thing was switched: of the fast side, the slow one, and
/// the slow one with it. Nothing without a figure to go by.
pub fn figures_moved(rule: &Rule, [fast, slow, switched]: [&Side; 3], time_gone: bool) -> Option<bool> {
    // The sides keep the rule's order, whichever of them has the shorter time now.
    let found = |fast, slow| {
        let delta = Delta::of_roles(fast, slow, false);
        let found = (rule.find)(&delta)?;
        let figures: Vec<_> = found.evidence.iter().map(|figure| figure.oriented(&delta)).collect();
        Some((found.share_ns, figures))
    };
    let (share, figures) = found(fast, slow)?;
    let (still, removed) = (found(fast, switched), found(switched, slow));
    if let (true, Some(share), Some((Some(still), _))) = (time_gone, share, &still)
        && *still > HALF * share
    {
        return Some(false);
    }
    let (mut way, mut weight) = (0.0, 0.0);
    for of in &figures {
        let in_still = still.iter().flat_map(|(_, of)| of).find(|other| other.what == of.what).map(|other| other.b);
        let in_removed =
            || removed.iter().flat_map(|(_, of)| of).find(|other| other.what == of.what).map(|other| other.a);
        let Some(now) = in_still.or_else(in_removed) else { continue };
        // A figure speaks as loudly as it differs.
        let loud = (of.b - of.a).abs() / of.a.abs().max(of.b.abs()).max(f64::MIN_POSITIVE);
        if loud > SURE_SINGLE {
            way += loud * ((of.b - now) / (of.b - of.a)).clamp(0.0, 1.0);
            weight += loud;
        }
    }
    if weight > 0.0 {
        return Some(way >= HALF * weight);
    }
    // What it found between the sides it finds on neither side of the switched runs: the time went without it.
    (time_gone && still.is_none() && removed.is_none()).then_some(false)
}

impl Finding {
    /// Its experiment refuted it.
    pub fn is_refuted(&self) -> bool {
        self.counterfactual.as_ref().is_some_and(|of| of.outcome == Outcome::Refuted)
    }

    /// Makes experiments, best first, until one neither refutes it nor leaves it undecided. Of those that do, the first
    /// is kept that could not decide.
    pub fn try_each(&mut self, experiments: impl Iterator<Item = Counterfactual>) {
        for of in experiments {
            let goes_on = matches!(of.outcome, Outcome::Refuted | Outcome::Undecided);
            if !goes_on || self.counterfactual.is_none() || self.is_refuted() && of.outcome == Outcome::Undecided {
                self.counterfactual = Some(of);
            }
            if !goes_on {
                return;
            }
        }
    }
}

/// Findings as sure as their experiments leave them, best first; refuted ones explain nothing.
pub fn recalibrate(explanation: &mut Explanation) {
    if explanation.findings.iter().all(|finding| finding.counterfactual.is_none()) {
        return;
    }
    for finding in &mut explanation.findings {
        let Some(of) = &finding.counterfactual else { continue };
        finding.confidence = of.outcome.confidence(finding.confidence);
        if of.outcome == Outcome::Refuted {
            finding.share_pct = 0.0;
        }
    }
    let weight = |finding: &Finding| finding.share_pct * finding.confidence;
    explanation.findings.sort_by(|x, y| x.is_refuted().cmp(&y.is_refuted()).then(weight(y).total_cmp(&weight(x))));
    let explained: f64 = explanation.findings.iter().map(|finding| finding.share_pct).sum();
    explanation.unexplained_pct = (100.0 - explained).max(0.0);
}

#[cfg(test)]
mod tests {
    use iowhy_stack::units::Nanos;

    use super::*;
    use crate::digest::Digest;
    use crate::explain;
    use crate::rules::{self, Figure, Match};

    fn about(value: f64, half: f64) -> Difference {
        Difference { value, low: value - half, high: value + half }
    }

    #[test]
    fn each_outcome_has_its_limits() {
        use Outcome::{Confirmed, NotReproduced, Partly, Refuted, Undecided};
        let of = |[before, left, gone]: [(f64, f64); 3], explained| {
            let [before, left, gone] = [before, left, gone].map(|(value, half)| about(value, half));
            Seen { before, left, gone, material: 1.0, explained }.outcome()
        };
        for (left, gone, expected) in [
            // What remains may be nothing, or surely is something.
            ((30.0, 30.0), (70.0, 5.0), Confirmed),
            ((30.0, 29.9), (70.0, 5.0), Partly),
            // Most of it is gone.
            ((20.0, 5.0), (80.0, 5.0), Confirmed),
            ((20.1, 5.0), (79.9, 5.0), Partly),
            // The slow side is the faster one, by chance, by nothing to speak of, and surely.
            ((-30.0, 30.0), (130.0, 5.0), Confirmed),
            ((-30.0, 29.9), (130.0, 5.0), Partly),
            ((-1.0, 0.5), (101.0, 5.0), Confirmed),
            ((-1.1, 0.5), (101.1, 5.0), Partly),
            // Nothing measurable is gone, or less than nothing.
            ((95.0, 5.0), (5.0, 4.9), Partly),
            ((95.0, 5.0), (5.0, 5.0), Refuted),
            ((130.0, 5.0), (-30.0, 5.0), Refuted),
            // Half of it may be gone, most of it, or the runs show nothing at all.
            ((75.0, 25.0), (25.0, 24.9), Partly),
            ((75.0, 25.0), (25.0, 25.0), Undecided),
            ((50.0, 60.0), (50.0, 60.0), Undecided),
            ((100.0, 50.0), (0.0, 50.0), Undecided),
            ((100.0, 49.9), (0.0, 49.9), Refuted),
            // Whatever the fast side's spread is.
            ((95.0, 99.0), (5.0, 5.0), Refuted),
        ] {
            assert_eq!(of([(100.0, 5.0), left, gone], None), expected, "{left:?} {gone:?}");
        }
        let gone = [(0.0, 1.0), (100.0, 5.0)];
        for (before, explained, expected) in [
            ((100.0, 99.9), Some(100.0), Confirmed),
            ((100.0, 100.0), Some(100.0), NotReproduced),
            ((100.0, 5.0), Some(500.0), Confirmed),
            ((100.0, 5.0), Some(501.0), NotReproduced),
            // Five times the fast side's time are there again, whatever there was before.
            ((399.0, 5.0), Some(4000.0), NotReproduced),
            ((400.0, 5.0), Some(4000.0), Confirmed),
            ((-100.0, 5.0), Some(100.0), NotReproduced),
            // Simulated sides are not made again.
            ((100.0, 100.0), None, Confirmed),
        ] {
            assert_eq!(of([before, gone[0], gone[1]], explained), expected, "{before:?} {explained:?}");
        }
    }

    fn of(switched: &[f64], a_is_slow: bool, explained: Option<f64>) -> Counterfactual {
        let times = Times { fast: &[100.0, 102.0, 98.0], slow: &[400.0, 402.0, 398.0], switched };
        Counterfactual::of(("key=1".to_owned(), "slow"), times, a_is_slow, explained)
    }

    #[test]
    fn an_outcome_from_times() {
        for (switched, expected, gone_pct) in [
            (&[99.0, 103.0, 101.0][..], Outcome::Confirmed, 99.7),
            (&[251.0, 253.0, 249.0], Outcome::Partly, 49.7),
            (&[400.0, 402.0, 398.0], Outcome::Refuted, 0.0),
            (&[500.0, 502.0, 498.0], Outcome::Refuted, -33.3),
            (&[50.0, 52.0, 48.0], Outcome::Partly, 116.7),
            // A single run has no interval, and is judged by what chance does to single runs.
            (&[160.0], Outcome::Confirmed, 80.0),
            (&[393.0], Outcome::Refuted, 2.3),
            (&[391.0], Outcome::Partly, 3.0),
        ] {
            for a_is_slow in [false, true] {
                let found = of(switched, a_is_slow, None);
                assert_eq!(found.outcome, expected, "{found:?}");
                assert_eq!(found.title() == "Overshoots", gone_pct > 100.0, "{found:?}");
                assert!((found.gone_pct - gone_pct).abs() < 0.1, "{found:?}");
                assert_eq!(found.change_pct_before < 0.0, a_is_slow);
                assert!(found.ci_before_pct.0 < found.change_pct_before);
                assert!(found.change_pct_before < found.ci_before_pct.1);
            }
        }
        assert_eq!(of(&[100.0, 101.0, 99.0], false, Some(20.0)).outcome, Outcome::NotReproduced);
        assert_eq!(of(&[100.0, 101.0, 99.0], false, Some(4.0)).outcome, Outcome::Confirmed);
    }

    #[test]
    fn figures_that_stay_leave_a_finding_partly_confirmed() {
        let gone = || of(&[100.0, 101.0, 99.0], false, None);
        for (moved, expected) in
            [(None, Outcome::Confirmed), (Some(true), Outcome::Confirmed), (Some(false), Outcome::Partly)]
        {
            let found = gone().with_story(moved, false);
            assert_eq!((found.outcome, found.figures_moved), (expected, moved));
            assert_eq!(gone().with_story(moved, true).outcome, Outcome::Partly);
        }
        assert_eq!(of(&[400.0; 3], false, None).with_story(Some(true), false).outcome, Outcome::Refuted);
    }

    /// Finds pages of others, four times as many.
    fn pages(delta: &Delta<'_>) -> Option<Match> {
        let contrast = delta.of(|run| run.foreign.pages as f64);
        let evidence = vec![Figure::new("pages", contrast, crate::Unit::Pages)];
        contrast.rose(4.0).then(|| Match { confidence: 0.8, share_ns: None, claim: String::new(), evidence })
    }

    #[test]
    fn a_rules_figures_have_to_go_half_the_way() {
        let rule = Rule { find: pages, ..*rules::RULES[0] };
        let side = |pages: u64| {
            let mut run = Digest { elapsed: Nanos(100), ..Digest::default() };
            run.foreign.pages = pages;
            Side { runs: vec![run; 3], ..Side::default() }
        };
        for (switched, expected) in [
            (10, Some(true)),
            (55, Some(true)),
            (56, Some(false)),
            (100, Some(false)),
            (20, Some(true)),
            (30, Some(false)),
        ] {
            let found = figures_moved(&rule, [&side(10), &side(100), &side(switched)], true);
            assert_eq!(found, expected, "{switched}");
        }
        assert_eq!(figures_moved(&rule, [&side(10), &side(100), &side(30)], false), None);
        assert_eq!(figures_moved(&rule, [&side(10), &side(30), &side(10)], true), None);
    }

    fn explanation(experiments: &[Option<Counterfactual>]) -> Explanation {
        let side = |label: &str, elapsed| {
            let mut run = Digest { elapsed: Nanos(elapsed), ..Digest::default() };
            run.latency[0].add(1);
            Side { label: label.to_owned(), runs: vec![run; 3], ..Side::default() }
        };
        let mut explanation = explain(&side("fast", 100), &side("slow", 400), None);
        let share_pct = 90.0 / experiments.len() as f64;
        let finding = |(nr, of): (usize, &Option<Counterfactual>)| Finding {
            rule: rules::RULES[nr],
            claim: String::new(),
            confidence: 0.8,
            evidence: Vec::new(),
            share_pct,
            counterfactual: of.clone(),
            advice: None,
        };
        explanation.findings = experiments.iter().enumerate().map(finding).collect();
        explanation.unexplained_pct = 10.0;
        explanation
    }

    fn four() -> [Counterfactual; 4] {
        [
            of(&[400.0, 401.0, 399.0], false, None),
            of(&[251.0, 253.0, 249.0], false, None),
            of(&[100.0, 101.0, 99.0], false, Some(20.0)),
            of(&[100.0, 101.0, 99.0], false, None),
        ]
    }

    #[test]
    fn experiments_make_findings_surer_or_less_sure() {
        let mut found = explanation(&four().map(Some));
        for _ in 0..2 {
            recalibrate(&mut found);
            let seen: Vec<_> = found.findings.iter().map(|f| (f.rule.name, f.confidence, f.share_pct)).collect();
            let name = |nr: usize| rules::RULES[nr].name;
            let expected = [(name(3), 0.9, 22.5), (name(1), 0.75, 22.5), (name(2), 0.5, 22.5), (name(0), 0.3, 0.0)];
            assert_eq!(seen, expected);
            assert!((found.unexplained_pct - 32.5).abs() < 1e-9);
        }
        for (outcome, of_rule, expected) in [
            (Outcome::Confirmed, 1.0, 0.99),
            (Outcome::Confirmed, 0.95, 0.95),
            (Outcome::Confirmed, 0.2, 0.9),
            (Outcome::Partly, 0.74, 0.74),
            (Outcome::NotReproduced, 0.49, 0.49),
            (Outcome::Refuted, 0.29, 0.29),
        ] {
            assert_eq!(outcome.confidence(of_rule).to_bits(), f64::to_bits(expected), "{outcome:?}");
        }
        // Without experiments nothing changes.
        let mut untested = explanation(&[None, None]);
        untested.findings[0].confidence = 0.1;
        recalibrate(&mut untested);
        assert_eq!(untested.findings[0].confidence.to_bits(), 0.1f64.to_bits());
    }

    #[test]
    fn the_next_experiment_is_made_after_one_that_refutes() {
        let [refuted, partly, _, confirmed] = four();
        let worse = of(&[500.0, 501.0, 499.0], false, None);
        for (made, expected, left) in [
            (vec![refuted.clone(), partly.clone(), confirmed], &partly, 1),
            (vec![refuted.clone(), worse], &refuted, 0),
        ] {
            let mut finding = explanation(&[None]).findings.remove(0);
            let mut made = made.into_iter();
            finding.try_each(&mut made);
            assert_eq!((finding.counterfactual.as_ref(), made.len()), (Some(expected), left));
        }
    }
}

//! Settings to change after an explanation of live runs, as commands, and notes in spite of equal results.
//!
//! A rule gives general advice; of two real sides the differing setting is known, with its place and the fast side's
//! value. The gain is predicted from the cause's share of the difference, and measured if the experiment was made
//! ([`prove_live`](super::prove_live)); both in percent of the slow side's time for an operation.
//!
//! A note is not a finding: it names pages that another process keeps in the cache under direct calls, where the times
//! of the runs cannot show their cost. The price depends on the kernel and the device, the pages do not.

use super::gathered::Gathered;
use super::prove_live::{Change, change};
use iowhy_text::count;
use iowhy_why::delta::Delta;
use iowhy_why::{Advice, Explanation, Finding};

/// Pages that others put into the cache, by name, most first.
fn putters(side: &Gathered) -> Vec<(String, u64)> {
    let mut names = std::collections::BTreeMap::<&str, u64>::new();
    for (name, nr_pages) in side.side.runs.iter().flat_map(|run| &run.foreign.names) {
        *names.entry(name).or_default() += nr_pages;
    }
    let mut names: Vec<(String, u64)> = names.into_iter().map(|(name, nr)| (name.to_owned(), nr)).collect();
    names.sort_by_key(|(_, nr)| std::cmp::Reverse(*nr));
    names
}

fn words(change: &Change, slow: &Gathered, fast: &Gathered) -> String {
    match change {
        Change::Queue { path, value, .. } => format!("`echo {value} > {}`", path.display()),
        Change::Disk { what, .. } => format!("{what} (of the modelled disk)"),
        Change::DropPages => {
            let who = putters(slow).into_iter().next().map(|(name, _)| name).filter(|name| !name.is_empty());
            let end = who.map_or(String::new(), |name| format!("end {name}, or let it read with O_DIRECT; then "));
            format!("{end}`dd if=FILE iflag=nocache count=0` on each file of the job")
        }
        Change::OwnDescriptors => {
            "open the file once for each thread (in jobs of iowhy: iowhy_descriptors=own)".to_owned()
        }
        Change::NoAdvice => "leave out posix_fadvise and madvise (in fio: fadvise_hint=0)".to_owned(),
        Change::OtherJob => {
            let job = fast.recipe.as_ref().map_or(String::new(), |recipe| recipe.words.join(" "));
            format!("run the same job on both sides: `iowhy run {job} --on live`")
        }
    }
}

/// The slow side's time over the fast side's, from the change of A to B.
fn ratio(change_pct: f64, a_is_slow: bool) -> f64 {
    let ratio = 1.0 + change_pct / 100.0;
    if a_is_slow { 1.0 / ratio } else { ratio }
}

fn measured(finding: &Finding, a_is_slow: bool) -> Option<f64> {
    let of = finding.counterfactual.as_ref()?;
    let [before, after] = [of.change_pct_before, of.change_pct_after].map(|pct| ratio(pct, a_is_slow));
    Some(100.0 * (after / before - 1.0)).filter(|pct| pct.is_finite())
}

/// Says what to set for the findings of two live sides.
pub fn advise(explanation: &mut Explanation, sides: &[Gathered; 2]) {
    let [a, b] = sides;
    let a_is_slow = Delta::new(&a.side, &b.side).a_is_slow;
    let (slow, fast) = if a_is_slow { (a, b) } else { (b, a) };
    let (Some(slow_recipe), Some(fast_recipe)) = (&slow.recipe, &fast.recipe) else { return };
    let whole = 100.0 * (1.0 - 1.0 / ratio(explanation.change_pct, a_is_slow));
    // Refuted findings give no advice; of several possible switches, the tested one counts.
    for finding in explanation.findings.iter_mut().filter(|finding| !finding.is_refuted()) {
        let changes = || finding.rule.switches.iter().filter_map(|of| change(&[*of], slow_recipe, fast_recipe));
        let made = finding.counterfactual.as_ref().map(|of| of.setting.as_str());
        let tried = changes().find(|change| made == Some(&*change.words()));
        let Some(change) = tried.or_else(|| changes().next()) else { continue };
        finding.advice = Some(Advice {
            set: words(&change, slow, fast),
            predicted_pct: -whole * finding.share_pct / 100.0,
            measured_pct: measured(finding, a_is_slow),
        });
    }
}

/// The rule of the note below, if the times showed its cost.
const STALE: &str = "stale-pages-under-direct-io";
/// Share of the calls from which on it is worth a note.
const NOTED: f64 = 0.05;

/// Adds facts about live sides that belong to no finding.
pub fn notes(explanation: &mut Explanation, sides: &[Gathered; 2]) {
    if explanation.findings.iter().any(|finding| finding.rule.name == STALE) {
        return;
    }
    for side in sides.iter().filter(|side| side.side.live) {
        let sum = |of: &dyn Fn(&iowhy_why::digest::Digest) -> u64| side.side.runs.iter().map(of).sum::<u64>();
        let calls = sum(&|run| run.workload.calls[0] + run.workload.calls[1]).max(1) as f64;
        let over = sum(&|run| run.cache.direct_over_foreign) as f64 / calls;
        let around = sum(&|run| run.workload.direct.iter().sum()) as f64 / calls;
        let before: u64 = side.resident.iter().sum();
        let label = &side.side.label;
        if over > NOTED {
            let names = putters(side);
            let who: Vec<String> = names.iter().take(3).map(|(name, nr)| format!("{name} ({nr})")).collect();
            let who = if who.is_empty() { "a process outside the workload".to_owned() } else { who.join(", ") };
            explanation.warnings.push(format!(
                "{label}: {:.0} % of the calls go round the page cache over pages that others keep in it ({STALE}): {} \
                 by {who}. These runs do not show their cost",
                100.0 * over,
                count(sum(&|run| run.foreign.pages), "page", "pages")
            ));
        } else if around > 0.5 && before > 0 {
            explanation.warnings.push(format!(
                "{label}: {:.0} % of the calls go round the page cache, and {} of the files were in it before they \
                 began ({STALE}): the process that put them there is not in the trace, and these runs do not show \
                 their cost",
                100.0 * around,
                count(before, "page", "pages")
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::recipe::Recipe;
    use iowhy_compare::Verdict;
    use iowhy_why::digest::Digest;
    use iowhy_why::rules;
    use iowhy_why::{Counterfactual, Outcome, Side, explain};

    fn recipe(read_ahead_kb: &str) -> Recipe {
        Recipe {
            words: vec!["dd".to_owned()],
            folder: "/".into(),
            disk: Some("sdx".to_owned()),
            modelled: None,
            queue: vec![("read_ahead_kb".to_owned(), read_ahead_kb.to_owned())],
        }
    }

    fn side(label: &str, elapsed: u64, read_ahead_kb: &str) -> Gathered {
        let mut run = Digest { elapsed: iowhy_stack::units::Nanos(elapsed), ..Digest::default() };
        run.latency[0].add(1);
        let side = Side { label: label.to_owned(), runs: vec![run; 2], live: true, ..Side::default() };
        Gathered { side, recipe: Some(recipe(read_ahead_kb)), ..Gathered::default() }
    }

    #[test]
    fn the_line_to_type_and_what_it_gains() {
        for a_is_slow in [false, true] {
            let mut sides = [side("fast", 100, "128"), side("slow", 400, "4096")];
            let change_pct = if a_is_slow { -75.0 } else { 300.0 };
            if a_is_slow {
                sides.reverse();
            }
            let mut explanation = explain(&sides[0].side, &sides[1].side, None);
            assert_eq!(explanation.change_pct, change_pct);
            let rule = rules::RULES.iter().find(|rule| rule.name == "window-too-large").expect("it is there");
            explanation.findings = vec![Finding {
                rule,
                claim: String::new(),
                confidence: 1.0,
                evidence: Vec::new(),
                share_pct: 80.0,
                counterfactual: Some(Counterfactual {
                    setting: String::new(),
                    side: "slow".to_owned(),
                    change_pct_before: change_pct,
                    ci_before_pct: (0.0, 0.0),
                    change_pct_after: if a_is_slow { -50.0 } else { 100.0 },
                    ci_pct: (0.0, 0.0),
                    gone_pct: 66.7,
                    runs: 2,
                    figures_moved: None,
                    device_only: false,
                    layers: None,
                    outcome: Outcome::Partly,
                }),
                advice: None,
            }];
            advise(&mut explanation, &sides);
            let advice = explanation.findings[0].advice.clone().expect("advice");
            assert_eq!(advice.set, "`echo 128 > /sys/block/sdx/queue/read_ahead_kb`");
            // Three quarters of the time are the difference, and 80 percent of that this cause's.
            assert!((advice.predicted_pct + 60.0).abs() < 1e-9, "{advice:?}");
            assert!((advice.measured_pct.expect("measured") + 50.0).abs() < 1e-9, "{advice:?}");
        }
    }

    #[test]
    fn pages_of_others_are_noted_even_if_nothing_differs() {
        let mut sides = [side("a", 100, "128"), side("b", 100, "128")];
        for run in &mut sides[1].side.runs {
            run.workload.calls[1] = 10;
            run.cache.direct_over_foreign = 8;
            run.foreign.pages = 3;
            run.foreign.names = vec![("blkid".to_owned(), 3)];
        }
        let mut explanation = explain(&sides[0].side, &sides[1].side, None);
        assert_eq!((explanation.verdict, explanation.findings.len()), (Verdict::Same, 0));
        let before = explanation.warnings.len();
        notes(&mut explanation, &sides);
        let added = &explanation.warnings[before..];
        assert!(matches!(added, [note] if note.contains(STALE) && note.contains("blkid (6)")), "{added:?}");
    }
}

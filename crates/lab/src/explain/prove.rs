//! The experiment that could refute a finding: one thing is switched on the slow side, and the difference is looked at
//! again.
//!
//! In the simulator the slow side's runs are made again with the same seeds and with nothing else different. A rule
//! says
//! what to switch ([`Switch`]), best first; the first that applies to the stack is made. Of two sides whose stacks are
//! both known, "as on the fast side" is one of the things to switch. The time for an operation is compared with the
//! fast
//! side's before and after; the interval of the change afterwards is Student's, of the difference of the means (Welch)
//! over the fast side's mean.

use iowhy_stack::kernel::{PATCHES, Stack};
use iowhy_stack::outcome::Plan;

use super::delta::{Delta, time_per_operation};
use super::source::{Gathered, simulate};
use super::{Counterfactual, Explanation, Side};
use crate::incident::command::plan_of_command;
use crate::rules::Switch;

/// Findings that are tried, best first.
const TRIED: usize = 3;

/// What is switched, in words, and the plan with it.
struct Switched {
    setting: String,
    plan: Plan,
}

fn plan_of(command: &str) -> Option<Plan> {
    let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    plan_of_command(&words).ok()
}

/// The slow plan with one thing switched, if that can be done and changes anything.
fn switched(switch: &Switch, slow: &Gathered, fast: Option<&Plan>) -> Option<Switched> {
    let command = slow.command.as_deref()?;
    let mut plan = plan_of(command)?;
    let take = |plan: &mut Plan, picks: &dyn Fn(&str) -> bool| {
        let other = &fast?.stack;
        let differs: Vec<String> = Stack::differences(&plan.stack, other)
            .into_iter()
            .filter(|change| picks(&change.key))
            .map(|change| format!("{}={}", change.key, change.to))
            .collect();
        if differs.is_empty() {
            return None;
        }
        plan.stack = plan.stack.with_changes(other, picks);
        Some(differs.join(","))
    };
    let setting = match *switch {
        Switch::Patch(name) => {
            let patch = PATCHES.iter().find(|patch| patch.name == name)?;
            let applied = plan.stack.patches.iter().any(|known| known.name == name);
            if applied || plan.stack.patch(patch).is_err() {
                return None;
            }
            format!("+{name}")
        }
        Switch::Key(key, value) => {
            let before = plan.stack.describe();
            plan.stack.set(key, value).ok()?;
            if plan.stack.describe() == before {
                return None;
            }
            format!("{key}={value}")
        }
        Switch::Other(key) => take(&mut plan, &|known| known == key)?,
        Switch::OtherKind(kind) => {
            let kind = kind.trim_end_matches('.');
            take(&mut plan, &|known| known == kind || known.strip_prefix(kind).is_some_and(|k| k.starts_with('.')))?
        }
        Switch::OtherDevice => take(&mut plan, &|known| known == "disk" || known.starts_with("disk."))?,
        Switch::Word(word) => {
            let (job, place) = command.split_once(" --on ")?;
            // An option that is there already is replaced.
            let name = word.split('=').next().unwrap_or(word);
            let kept: Vec<&str> = job.split(' ').filter(|known| known.split('=').next() != Some(name)).collect();
            let run = if job.ends_with(" run") { (&kept[..kept.len() - 1], " run") } else { (&kept[..], "") };
            let changed = format!("{} {word}{} --on {place}", run.0.join(" "), run.1);
            if changed == command {
                return None;
            }
            plan = plan_of(&changed)?;
            word.to_owned()
        }
        Switch::OtherJob => {
            let other = fast?;
            if format!("{:?}", other.job) == format!("{:?}", plan.job) {
                return None;
            }
            plan.job = other.job.clone();
            "the other side's job".to_owned()
        }
        Switch::Queue(_) | Switch::QueueTo(..) | Switch::DropPages | Switch::OwnDescriptors | Switch::NoAdvice => {
            return None;
        }
    };
    Some(Switched { setting, plan })
}

/// Makes the experiments of the best findings of two simulated sides. Findings of sides that cannot be made again (live
/// ones, blind ones) stay without.
pub fn prove(explanation: &mut Explanation, sides: &[Gathered; 2], done: &(dyn Fn() + Sync)) {
    let [a, b] = sides;
    let delta = Delta::new(&a.side, &b.side);
    let (slow, fast) = if delta.a_is_slow { (a, b) } else { (b, a) };
    let a_is_slow = delta.a_is_slow;
    let fast_plan = fast.command.as_deref().and_then(plan_of);
    let runs = slow.side.runs.len().max(1) as u32;
    for finding in explanation.findings.iter_mut().take(TRIED) {
        let tried = finding.rule.switches.iter().find_map(|switch| switched(switch, slow, fast_plan.as_ref()));
        let Some(tried) = tried else { continue };
        // A run that cannot be made proves nothing.
        let Ok(side) = simulate(&slow.side.label, &tried.plan, (0, runs), done) else { continue };
        let times = [&fast.side, &slow.side, &side].map(times);
        let times = [&times[0][..], &times[1], &times[2]];
        finding.counterfactual = Some(Counterfactual::of(tried.setting, &slow.side.label, times, a_is_slow));
    }
}

fn times(side: &Side) -> Vec<f64> {
    side.runs.iter().map(time_per_operation).collect()
}

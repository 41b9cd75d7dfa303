//! The experiment that could refute a finding: one thing is switched on the slow side, and the difference is looked at
//! again.
//!
//! In the simulator the slow side's runs are made again with the same seeds and with nothing else different. A rule
//! lists its switches ([`Switch`]), best first; those that apply to the stack are made, until something of the
//! difference is gone. Of two sides whose stacks are both known, "as on the fast side" is one of the things to switch.
//! The time for an operation is compared with the fast side's before and after ([`outcome`](iowhy_why::outcome)).

use iowhy_stack::kernel::{PATCHES, Stack};
use iowhy_stack::outcome::Plan;

use super::gathered::Gathered;
use super::source::simulate;
use crate::incident::command::plan_of_command;
use iowhy_why::delta::Delta;
use iowhy_why::matrix;
use iowhy_why::outcome::{Counterfactual, Outcome, Times, figures_moved, recalibrate};
use iowhy_why::rules::{Rule, Switch};
use iowhy_why::{Explanation, Side};

/// Findings that stand after their experiments, or have none, until no others are tried.
const TRIED: usize = 3;

/// The switched setting, in words, and the plan with it.
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

/// Whether the rule names settings of a device.
fn names_settings(rule: &Rule) -> bool {
    rule.switches.iter().any(|switch| matches!(switch, Switch::Other(key) if key.starts_with("disk.")))
}

/// Makes the experiments of the best findings of two simulated sides; one that is refuted lets the next one have its
/// turn. Findings of sides that cannot be made again (live ones, blind ones) stay without.
pub fn prove(explanation: &mut Explanation, sides: &[Gathered; 2], done: &(dyn Fn() + Sync)) {
    let [a, b] = sides;
    let delta = Delta::new(&a.side, &b.side);
    let (slow, fast) = if delta.a_is_slow { (a, b) } else { (b, a) };
    let fast_plan = fast.command.as_deref().and_then(plan_of);
    let runs = slow.side.runs.len().max(1) as u32;
    let times_of = |side: &Side| side.runs.iter().map(|run| delta.time_of(run)).collect::<Vec<f64>>();
    let (times_fast, times_slow) = (times_of(&fast.side), times_of(&slow.side));
    let mut stand = 0;
    for finding in &mut explanation.findings {
        let rule = finding.rule;
        finding.try_each(rule.switches.iter().filter_map(|switch| {
            let tried = switched(switch, slow, fast_plan.as_ref())?;
            // A run that cannot be made proves nothing.
            let side = simulate(&slow.side.label, &tried.plan, (0, runs), done).ok()?;
            let times = Times { fast: &times_fast, slow: &times_slow, switched: &times_of(&side) };
            let of = Counterfactual::of((tried.setting, &slow.side.label), times, delta.a_is_slow, None);
            let moved = figures_moved(rule, [&fast.side, &slow.side, &side], of.outcome == Outcome::Confirmed);
            let layers = matrix::measured(&side, &slow.side, &fast.side, delta.a_is_slow);
            let of = Counterfactual { layers, ..of };
            Some(of.with_story(moved, *switch == Switch::OtherDevice && names_settings(rule)))
        }));
        stand += usize::from(!finding.is_refuted());
        if stand == TRIED {
            break;
        }
    }
    recalibrate(explanation);
}

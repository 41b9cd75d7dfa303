//! The twin of a recording: its calls on its disk, under the model of its kernel, and what would be if one thing were
//! different.
//!
//! ```text
//! build        the recorded calls with their think times and dependencies are a job (`calls`), kernel and settings a
//!              stack (`place`), the disk and the costs of code a profile
//! agreement    the job is simulated as it is, and compared with the recording (`agree`); a twin that does not
//!              reproduce it predicts nothing
//! what if      one thing at a time (`change`), on the same seeds: each draws other times of the device
//! predictions  the changes that save time, the least step of each; both runs go through the rules, which name it
//! ```
//! Source: counterfactual simulation; the rules' own switches. Known limits: those of its parts; a long recording is
//! cut to the stretch that is most like the whole; savings are of that stretch; a change that needs another one is not
//! found.

mod agree;
mod calls;
mod change;
mod combined;
mod costs;
mod place;
mod regions;

use iowhy_stack::kernel::Stack;
use iowhy_stack::outcome::Plan;
use iowhy_stack::trace::{Dev, Record, Seen, Trace};
use iowhy_trace::join::{Who, join};
use iowhy_trace::settings::Settings;
use iowhy_why::{Evidence, Side, explain};
use rayon::prelude::*;

use crate::explain::source::of_the_workload;
use crate::profile::Profile;
pub use agree::runs;
use agree::{Run, Traits};
use calls::Recorded;
use change::Change;
pub use combined::Combination;
pub(crate) use combined::{ALIKE, as_good};

/// How well a twin reproduces its recording, percent; nothing where there was nothing to compare.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Agreement {
    /// It may predict.
    pub usable: bool,
    /// The part that fell short.
    pub why_not: Option<String>,
    pub windows_pct: Option<f64>,
    pub pages_pct: Option<f64>,
    pub requests_pct: Option<f64>,
    pub time_pct: Option<f64>,
    /// The kernel lacks a model of its own: the one that stands in, and the known differences.
    pub nearest: Option<String>,
}

/// The saving of one thing that is different.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// The mechanism.
    pub rule: &'static str,
    pub layer: &'static str,
    /// In a sentence.
    pub claim: String,
    /// How sure, 0 to 1.
    pub confidence: f64,
    /// Time that it costs, for each call of the workload.
    pub cost_ns_per_call: f64,
    /// Share of the time, and the 5th and the 95th percentile of it; of requests larger than all that were measured
    /// the least is nothing.
    pub saves_pct: f64,
    pub saves_ci_pct: [f64; 2],
    /// There are such requests.
    pub unmeasured: bool,
    /// `KEY=VALUE`, or what to do.
    pub setting: String,
    /// Figures with it and without, `a` and `b`.
    pub evidence: Vec<Evidence>,
    /// The experiment that would refute it.
    pub refute: String,
    /// The price that others on the disk pay.
    pub costs_others: Option<String>,
    /// A setting that the ledger can set on the running machine.
    pub safe: bool,
}

/// Savings from which on a change is looked at again, and is a prediction; of changes of a program, percent.
const PROMISING: f64 = 2.0;
const LEAST: f64 = 3.0;
const LEAST_OF_JOB: f64 = 10.0;
/// Part of a saving by the program that a setting has to have to be enough.
const INSTEAD: f64 = 0.6;
/// Part of a family's best saving that its smallest step has to have.
const ENOUGH: f64 = 0.9;
/// Runs of the twin with different draws, at most and at least.
const SEEDS: u64 = 8;
const LEAST_SEEDS: u64 = 3;
/// Simulated events of all runs together, about.
const EVENTS: u64 = 15_000_000;
/// Sizes of commands up to this many times the largest measured one are on its line.
const BEYOND: u64 = 2;
/// Change of others' times that is told, percent.
const OTHERS: f64 = 5.0;

/// The twin.
pub struct Twin {
    plan: Plan,
    recorded: Recorded,
    /// Sectors of the largest command whose time was measured.
    measured: u64,
    memory_mb: Option<u64>,
    runs: Vec<Run>,
    agreement: Agreement,
}

fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = share * (values.len().saturating_sub(1)) as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    match values.get(high) {
        Some(above) => values[low] + (above - values[low]) * (at - at.floor()),
        None => 0.0,
    }
}

/// Sectors of the largest command that a profile has times of.
fn largest(profile: &Profile) -> u64 {
    profile.service.rows.iter().flatten().map(|row| u64::from(row.sectors)).max().unwrap_or(0)
}

fn side(label: &str, runs: &[Run]) -> Side {
    Side { label: label.to_owned(), runs: runs.iter().map(|run| run.digest.clone()).collect(), ..Side::default() }
}

impl Twin {
    /// The twin of a recording of `who`, on the disk and the machine of a profile.
    ///
    /// # Errors
    /// In words, if the recording has nothing that can be made again, or the simulator refuses it.
    pub fn build(trace: &Trace, settings: &Settings, who: &Who, profile: &Profile) -> Result<Twin, String> {
        Twin::build_on(trace, settings, who, &|stack, _, _| {
            profile.apply(stack);
            largest(profile)
        })
    }

    /// The same on the disk that the recording itself shows, which corrects the one of a probe if there was one.
    ///
    /// # Errors
    /// As [`Twin::build`].
    pub fn of(trace: &Trace, settings: &Settings, who: &Who, probed: Option<&Profile>) -> Result<Twin, String> {
        Twin::build_on(trace, settings, who, &|stack, trace, device| {
            let profile = Profile::seen(trace, device, probed);
            profile.apply(stack);
            largest(&profile)
        })
    }

    /// The twin on whatever `apply` puts into a stack, for the records of the workload and its disk; it yields the
    /// sectors of the largest command that was measured.
    fn build_on(
        trace: &Trace,
        settings: &Settings,
        who: &Who,
        apply: &dyn Fn(&mut Stack, &Trace, Dev) -> u64,
    ) -> Result<Twin, String> {
        let mut trace = trace.clone();
        of_the_workload(&mut trace, who);
        let joined = join(&trace, who);
        let mut recorded = calls::of(&trace, &joined)?;
        let mut said = ["stable", "kernel"].into_iter().filter_map(|key| settings.get("machine", key));
        let release = said.find(|release| !release.is_empty()).unwrap_or(&trace.kernel);
        let is_large = |record: &Record| matches!(record.seen, Seen::PageAdd { order: 1.., .. });
        let mut stack = place::stack(release, settings, recorded.device, trace.records.iter().any(is_large));
        let elevator = stack.elevator.clone();
        let measured = apply(&mut stack, &trace, recorded.device);
        costs::set(&mut stack, &recorded.costs);
        if settings.values.keys().any(|(_, key)| key == "scheduler") {
            stack.elevator = elevator;
        }
        let specs = stack.device.options.specs();
        if specs.iter().any(|spec| spec.name == "nr_sectors") {
            // Room for what the recording used, and behind it for files whose places nobody saw.
            let files: u64 = recorded.job.workload.files().iter().map(|file| file.bytes.div_ceil(512) + 16).sum();
            let least = (recorded.nr_sectors + files + (4 << 21)).min(1 << 40);
            let nr_sectors = stack.device.options.unsigned("nr_sectors").max(least);
            stack.device.options.set("nr_sectors", nr_sectors as i64);
        }
        recorded.job.throttle = place::throttle(settings, recorded.device);
        let plan = Plan { stack, job: recorded.job.clone() };
        let seen = Traits::of(&trace, &joined, &recorded);
        let first = agree::run(&plan, &recorded, 1).map_err(|error| error.to_string())?;
        let seeds = (EVENTS / 12 / first.digest.nr_events.max(1)).clamp(LEAST_SEEDS, SEEDS);
        let more = (2..=seeds).into_par_iter().map(|seed| agree::run(&plan, &recorded, seed));
        let more: Vec<Run> = more.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        let runs: Vec<Run> = [first].into_iter().chain(more).collect();
        let agreement = Agreement { nearest: place::nearest(release), ..agree::agreement(&seen, &runs) };
        Ok(Twin { plan, recorded, measured, memory_mb: place::memory_mb(settings), runs, agreement })
    }

    /// How well it reproduces the recording.
    pub fn agreement(&self) -> &Agreement {
        &self.agreement
    }

    /// Share of the recorded calls that it makes again: less than 1 if the recording was cut.
    pub fn part(&self) -> f64 {
        self.recorded.part
    }

    /// Changes that would save time, best first; none of a twin that does not agree.
    pub fn what_if(&self) -> Vec<Prediction> {
        if !self.agreement.usable {
            return Vec::new();
        }
        self.ranked()
    }

    fn ranked(&self) -> Vec<Prediction> {
        let mut found: Vec<(Prediction, bool)> = Vec::new();
        for (changed, runs) in self.promising() {
            found.extend(self.prediction(&changed, &runs).map(|prediction| (prediction, changed.of_program)));
        }
        // What a setting saves, the program need not be changed for.
        let of_setting =
            found.iter().filter(|(_, of_program)| !of_program).map(|(it, _)| it.saves_pct).fold(0.0, f64::max);
        found.retain(|(it, of_program)| !of_program || it.saves_pct * INSTEAD > of_setting);
        // A setting comes before a change of the program that saves hardly more.
        let worth = |(prediction, of_program): &(Prediction, bool)| {
            prediction.saves_pct - if *of_program { LEAST } else { 0.0 }
        };
        found.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
        let mut out: Vec<Prediction> = Vec::new();
        for (prediction, _) in found {
            if out.iter().all(|known| known.rule != prediction.rule) {
                out.push(prediction);
            }
        }
        out
    }

    /// Share of the time that a run with a change saves against the twin's own with the same draws, percent.
    fn saved(&self, nr: usize, run: &Run) -> f64 {
        let saved = 100.0 * (1.0 - run.traits.time / self.runs[nr].traits.time.max(1.0));
        // Nobody knows how long commands take that are far larger than all that were measured.
        saved * (1.0 - run.traits.share_beyond(BEYOND.saturating_mul(self.measured)))
    }

    /// The change of each family that is worth it, with all its runs.
    fn promising(&self) -> Vec<(Change, Vec<Run>)> {
        let others = self.recorded.others.join(", ");
        let changes = change::all(&self.plan, self.recorded.own, self.memory_mb, &others);
        let tried: Vec<(Change, Run)> = changes
            .into_par_iter()
            .filter_map(|change| {
                let run = agree::run(&change.plan, &self.recorded, 1).ok()?;
                (self.saved(0, &run) >= PROMISING).then_some((change, run))
            })
            .collect();
        let mut best: Vec<(Change, Run)> = Vec::new();
        for (change, run) in tried {
            let saved = self.saved(0, &run);
            match best.iter_mut().find(|(known, _)| known.family == change.family) {
                None => best.push((change, run)),
                Some(known) => {
                    let was = self.saved(0, &known.1);
                    // The smaller step if it has nearly all of the other one's.
                    let (nearly, smaller) = (saved >= ENOUGH * was, change.step < known.0.step);
                    if if smaller { nearly } else { was < ENOUGH * saved } {
                        *known = (change, run);
                    }
                }
            }
        }
        let finish = |(change, first): (Change, Run)| {
            let more = (2..=self.runs.len() as u64).map(|seed| agree::run(&change.plan, &self.recorded, seed));
            let runs: Result<Vec<Run>, _> = [Ok(first)].into_iter().chain(more).collect();
            Some((change, runs.ok()?))
        };
        best.into_par_iter().filter_map(finish).collect()
    }

    fn prediction(&self, change: &Change, runs: &[Run]) -> Option<Prediction> {
        let mut saved: Vec<f64> = runs.iter().enumerate().map(|(nr, run)| self.saved(nr, run)).collect();
        let [low, saves, high] = [0.05, 0.5, 0.95].map(|share| percentile(&mut saved, share));
        let least = if change.of_program { LEAST_OF_JOB } else { LEAST };
        if saves < least || low <= 0.0 {
            return None;
        }
        // A disk may take as long for a byte of larger commands as of those seen: they save nothing then.
        let beyond = runs.iter().map(|run| run.traits.share_beyond(self.measured)).fold(0.0, f64::max);
        let low = low * (1.0 - beyond);
        let explained = explain(&side("as it is", &self.runs), &side(&change.setting, runs), None);
        let named = explained.findings.iter().find(|finding| change.rules.contains(&finding.rule.name));
        let rule = named.map(|finding| finding.rule).or_else(|| change::rule(change.rule))?;
        let finding = explained.findings.iter().find(|finding| finding.rule.name == rule.name);
        let mut times: Vec<f64> = self.runs.iter().map(|run| run.traits.time).collect();
        let ns = percentile(&mut times, 0.5) * saves / 100.0;
        let shares = [
            self.agreement.windows_pct,
            self.agreement.pages_pct,
            self.agreement.requests_pct,
            self.agreement.time_pct,
        ];
        let agrees = shares.into_iter().flatten().fold(100.0, f64::min) / 100.0;
        let sure = 0.5 + 0.5 * (low / saves).clamp(0.0, 1.0);
        Some(Prediction {
            rule: rule.name,
            layer: rule.layer,
            claim: finding.filter(|_| !change.of_program).map_or_else(
                || format!("the recorded calls take {saves:.0} % less time on the twin with this change alone"),
                |finding| finding.claim.clone(),
            ),
            confidence: agrees * sure * if change.of_program { 0.7 } else { 1.0 },
            cost_ns_per_call: ns / self.recorded.calls.len().max(1) as f64,
            saves_pct: saves,
            saves_ci_pct: [low, high],
            unmeasured: beyond > 0.0,
            setting: change.setting.clone(),
            evidence: finding.map(|finding| finding.evidence.clone()).unwrap_or_default(),
            refute: match finding {
                Some(_) => rule.refute.to_owned(),
                None => "With this change the calls take as long as without it.".to_owned(),
            },
            costs_others: self.costs_others(runs),
            safe: change.safe,
        })
    }

    /// How much slower others' requests become.
    fn costs_others(&self, runs: &[Run]) -> Option<String> {
        let mut costs = Vec::new();
        for (nr, name) in self.recorded.others.iter().enumerate() {
            let mean = |runs: &[Run]| {
                let all = runs.iter().filter_map(|run| run.others.get(nr));
                all.clone().sum::<f64>() / all.count().max(1) as f64
            };
            let (before, after) = (mean(&self.runs), mean(runs));
            if before > 0.0 && 100.0 * (after / before - 1.0) > OTHERS {
                costs.push(format!("{name}: {:.2} instead of {:.2} ms a request", after / 1e6, before / 1e6));
            }
        }
        (!costs.is_empty()).then(|| costs.join("; "))
    }
}

#[cfg(test)]
mod tests;

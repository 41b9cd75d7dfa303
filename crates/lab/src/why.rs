//! Why it is slow, from one recording: facts, what mechanisms cost, and what the twin predicts.
//!
//! ```text
//! target     a command, processes, a device, a file, the whole machine, or a recording    (`recording`)
//! facts      where the time goes, without any model                                       (`facts`)
//! costs      rules that leave a mark on one side alone                                    (`iowhy_why::rules::cost`)
//! twin       the recorded calls on a model of this kernel and disk, one thing different   (`twin`)
//! findings   one a rule, the largest saving first: a prediction's figures where the twin has one, a cost's otherwise;
//!            of predictions only those that take back something unusual: a setting below the kernel's default, a
//!            limit, a neighbour, wrong advice
//! options    the other predictions: nothing is wrong, but the twin is faster with it
//! trial      the safe ones on the running target                                          (`trial`)
//! ```

mod below;
pub mod facts;
pub mod flame;
pub mod json;
pub mod text;
pub mod trial;
mod twin;

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use iowhy_live::capture::Captured;
use iowhy_live::command::Running;
use iowhy_stack::service::{self, Row};
use iowhy_stack::trace::Trace;
use iowhy_stack::units::SECTOR_BYTES;
use iowhy_text::diagnose::{Problem, Problems};
use iowhy_trace::join::Who;
use iowhy_trace::settings::Settings;
use iowhy_why::rules::cost::{self, Paced};
use iowhy_why::rules::{self, Need};

use crate::profile::{self, Profile};
use crate::recording::{self, RecordError, Recorded, Request};
use crate::twin::Prediction;
use facts::{Facts, Server};
use trial::Tried;
pub use twin::Agreement;

/// Savings below this are not worth a change, percent.
const LEAST_PCT: f64 = 3.0;
/// Predicted savings that are surely this large, percent, are findings.
const BLAMED_PCT: f64 = 10.0;

/// Something that costs time.
#[derive(Clone, Debug)]
pub struct Finding {
    pub rule: &'static str,
    pub layer: &'static str,
    pub claim: String,
    /// 0 to 1.
    pub confidence: f64,
    pub cost_ns_per_call: f64,
    /// Part of the time that goes without it, percent, with its interval.
    pub saves_pct: f64,
    pub saves_ci_pct: [f64; 2],
    /// `KEY=VALUE`, or what to change.
    pub setting: String,
    /// What, the figure, its unit.
    pub evidence: Vec<(String, f64, &'static str)>,
    pub refute: String,
    /// Its price for others.
    pub costs_others: Option<String>,
    /// `--try` may set it.
    pub safe: bool,
    /// The twin predicts it; else it is read off the recording.
    pub predicted: bool,
    pub tried: Option<Tried>,
}

/// Price of the recording.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Price {
    /// Part of the target's time that the events took, percent.
    pub throughput_pct: f64,
    pub ns_per_event: f64,
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub target: String,
    pub events: u64,
    pub lost: u64,
    /// Nothing of a recording that does not say it.
    pub price: Option<Price>,
    pub facts: Facts,
    pub agreement: Agreement,
    pub findings: Vec<Finding>,
    /// Changes of what is usual, or of the program itself, with which the twin is faster.
    pub options: Vec<Finding>,
    /// Settings that are not the kernel's defaults: what, value, usual.
    pub only_difference: Vec<(String, String, &'static str)>,
    pub cannot_ask: Vec<(&'static str, Vec<Need>)>,
}

/// Length of a recording of anything but a command, unless another is asked for.
pub const LENGTH: Duration = Duration::from_secs(10);

/// Records the target; standard output of a command goes to standard error if `aside`.
///
/// # Errors
/// As [`recording::record`].
pub fn record(request: &Request, aside: bool, tell: &mut dyn FnMut(&Problem)) -> Result<Recorded, RecordError> {
    if !aside {
        return recording::record(request, tell);
    }
    let start = || {
        let Some((program, arguments)) = request.command.split_first() else { return Ok(None) };
        let mut command = Command::new(program);
        command.args(arguments);
        let started = io::stderr().as_fd().try_clone_to_owned().and_then(|errors| {
            command.stdout(Stdio::from(errors));
            Running::spawn(command)
        });
        started.map(Some).map_err(|error| RecordError::Command { program: program.clone(), error })
    };
    recording::record_started(request, start, tell)
}

/// Part of the time at the device, from which on it is asked whether it dozes or has a cap, unless something other than
/// a long way explains half of it.
const BY_DEVICE_PCT: f64 = 33.0;

/// Length of the probe of a disk.
const PROBE: Duration = Duration::from_millis(1500);

/// How a disk may be measured for the twin.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Not at all: the recording was made elsewhere.
    Elsewhere,
    /// By an earlier `disk fit`, if there was one: others work on it.
    Fitted,
    /// By reading from it for a moment, too, if a finding depends on sizes that the recording does not have.
    Read,
}

/// Times of reads that go on where others ended, by size, that the quickest quarter does not exceed: in a probe of a
/// moment the others are more often late because of a busy machine than because of their size; and the times of code.
fn for_costs(profile: &Profile) -> (Vec<(u32, f64)>, Option<cost::Code>) {
    let rows = profile.service.rows_of(false, true);
    let quick = |row: &Row| (row.sectors, service::at(&row.ns, service::QUARTER) as f64);
    let known = |name: &str| profile.fields.get(name).filter(|field| field.known).map(|field| field.value);
    let code = known("syscall_ns")
        .zip(known("page_copy_ns"))
        .map(|(call_ns, copy_ns)| cost::Code { call_ns, page_ns: copy_ns + known("page_add_ns").unwrap_or(0.0) });
    (rows.iter().map(quick).collect(), code)
}

/// The disk of a recording as an earlier fit, or a probe, measured it.
pub(crate) fn measured(disk: &str, probe: Probe) -> Option<Profile> {
    let earlier = || profile::place(disk).and_then(|path| Profile::load(&path, &mut Problems::default()));
    match probe {
        Probe::Elsewhere => None,
        _ if disk.is_empty() => None,
        Probe::Fitted => earlier(),
        Probe::Read => earlier().or_else(|| Profile::probe(&Path::new("/dev").join(disk), PROBE).ok()),
    }
}

/// Why, of a trace.
pub fn of_trace(target: String, trace: Trace, probe: Probe) -> Answer {
    let paced = |disk: &str| (probe == Probe::Read && !disk.is_empty()).then(|| profile::paced(disk)).flatten();
    of_trace_on(target, trace, &|disk| measured(disk, probe), &paced)
}

/// The same with a disk that is measured by `measured` if a finding depends on it, and by `paced` if much of the
/// time is the device's and nothing else explains it.
pub fn of_trace_on(
    target: String,
    mut trace: Trace,
    measured: &dyn Fn(&str) -> Option<Profile>,
    paced: &dyn Fn(&str) -> Option<Paced>,
) -> Answer {
    let (events, lost) = (trace.records.len() as u64, trace.lost);
    // The twin wants the disk's other requests, too.
    let whole = trace.clone();
    let settings = Settings::of(&trace);
    let both = rayon::join(|| Facts::of(&mut trace, &Who::default()), || twin::ask(&whole, &settings, None));
    let (facts, (mut agreement, mut predictions)) = both;
    let mut costs = cost::found(&facts.for_rules());
    let only_difference = facts.unusual();
    let disk = facts.settings.get("recording", "disk").unwrap_or_default().to_owned();
    let back = |of: &Prediction| takes_back(&of.setting, of.rule, &disk, &only_difference);
    let split = |costs: &[cost::Found], predictions: Vec<Prediction>| -> (Vec<Finding>, Vec<Finding>) {
        let (blamed, further): (Vec<Prediction>, Vec<Prediction>) =
            predictions.into_iter().partition(|of| of.saves_ci_pct[0] >= BLAMED_PCT && back(of));
        let findings = joined(costs, blamed, facts.calls);
        let named = |of: &Prediction| findings.iter().any(|finding| finding.rule == of.rule);
        // What may save nothing is none.
        let sure = |of: &Prediction| of.saves_pct >= LEAST_PCT && of.saves_ci_pct[0] >= LEAST_PCT;
        let options = further.into_iter().filter(|of| sure(of) && !named(of));
        let options = options.map(Finding::from).collect();
        (findings, options)
    };
    let (mut findings, mut options) = split(&costs, predictions.clone());
    // Larger requests, or more of them at a time, than the recording has: their times have to be measured.
    let unmeasured = predictions.iter().any(|of| of.unmeasured && of.saves_pct >= BLAMED_PCT && back(of));
    let (mut service, mut code) = (Vec::new(), None);
    if (unmeasured || findings.iter().any(|of| SIZED.contains(&of.rule)))
        && let Some(profile) = measured(&disk)
    {
        (service, code) = for_costs(&profile);
        // Larger reads were cut when they were measured.
        let limit = facts.for_rules().number_of_disk("max_sectors_kb").unwrap_or(f64::INFINITY);
        service.retain(|(sectors, _)| f64::from(*sectors) * SECTOR_BYTES as f64 <= limit * 1024.0);
        costs = cost::found(&facts.with_disk(&service, code));
        (findings, options) = split(&costs, predictions.clone());
        let (again, measured) = twin::ask(&whole, &facts.settings, Some(&profile));
        if again.usable {
            (agreement, predictions) = (again, measured);
            (findings, options) = split(&costs, predictions.clone());
        }
    }
    let by_device = facts.layers.iter().find(|part| part.layer == "device").map_or(0.0, |part| part.pct);
    // A slow device may have a cap.
    let explains = |of: &Finding| of.saves_pct >= by_device / 2.0 && of.rule != "device-latency";
    if by_device >= BY_DEVICE_PCT
        && !findings.iter().any(explains)
        && let Some(paced) = paced(&disk)
    {
        costs = cost::found(&cost::Facts { paced: Some(paced), ..facts.with_disk(&service, code) });
        (findings, options) = split(&costs, predictions);
    }
    if findings.is_empty() && events <= MOST_ASKED_AGAIN {
        findings = of_a_program(&facts, &whole);
    }
    let price = facts.settings.price();
    let price = price.map(|[throughput_pct, ns_per_event]| Price { throughput_pct, ns_per_event });
    Answer {
        target,
        events,
        lost,
        price,
        findings,
        options,
        only_difference,
        cannot_ask: cost::unasked(&facts.for_rules()),
        agreement,
        facts,
    }
}

/// Most records of a recording of which a program is asked for itself.
const MOST_ASKED_AGAIN: u64 = 2_000_000;

/// Part of its time that the others of a command take from a program, percent, from which on they are to blame.
const CROWDED_PCT: f64 = 66.0;

/// Findings of one program of several that a command runs, if that is the one that takes the time.
fn of_a_program(facts: &Facts, whole: &Trace) -> Vec<Finding> {
    let Some((name, pids)) = facts.diluted.clone() else { return Vec::new() };
    let alone = Facts::of(&mut whole.clone(), &Who { pids, ..Who::default() });
    let mut costs = cost::found(&alone.for_rules());
    // The others of the command are its neighbours: that is how it was made, unless they leave it next to nothing.
    let crowded = costs.len() == 1 && costs.iter().all(|of| of.saves_pct >= CROWDED_PCT);
    costs.retain(|of| crowded || of.rule.name != "noisy-neighbour");
    costs.iter_mut().for_each(|of| of.cost.claim = format!("for {name}, {}", of.cost.claim));
    joined(&costs, Vec::new(), facts.calls)
}

/// Mechanisms whose price depends on times that the recording does not have: of larger requests, of more of them at a
/// time, of a device without its neighbour.
const SIZED: [&str; 11] = [
    "early-writeback",
    "lost-locality",
    "metadata-reads",
    "noisy-neighbour",
    "readahead-off",
    "window-too-small",
    "random-advice",
    "mmap-read-around",
    "requests-cut",
    "merging-off",
    "fragmented-file",
];

/// Why, of what was captured here.
pub fn of_capture(target: String, captured: Captured, probe: Probe) -> Answer {
    of_trace(target, captured.trace, probe)
}

impl Answer {
    /// There is an answer: something to change, or that nothing here makes it faster.
    pub fn is_told(&self) -> bool {
        self.facts.calls > 0 && (!self.findings.is_empty() || self.healthy().is_some())
    }

    /// Why nothing here makes it faster; nothing if that is not known.
    pub fn healthy(&self) -> Option<String> {
        let most = self.facts.layers.iter().max_by(|a, b| a.pct.total_cmp(&b.pct))?;
        // The whole machine has no CPU states; who waits for the device most of the time is not short of CPUs.
        let blind = self.facts.lacks.iter().any(|need| *need != Need::States || most.layer != "device");
        // Nobody has seen what a limit costs that is set: the twin would have.
        // Disks that only others use have slowed nothing.
        let own = !self.facts.digest.commands.own.is_empty();
        let met = |what: &str| own || !what.contains(' ') || what.starts_with("cgroup ");
        let unjudged = !self.agreement.usable && self.only_difference.iter().any(|of| restricts(of) && met(&of.0));
        if !self.findings.is_empty() || self.facts.calls == 0 || blind || unjudged {
            return None;
        }
        if let Some(option) = self.options.iter().find(|option| option.saves_ci_pct[0] >= BLAMED_PCT) {
            let (setting, pct) = (&option.setting, option.saves_pct);
            return Some(format!("nothing is wrong here; `{setting}` is an option that saves {pct:.0} %"));
        }
        Some(match most.layer {
            "device" => "the device is at its limit for these requests".to_owned(),
            "application" => "the program computes".to_owned(),
            "CPU" => "the kernel's code for these calls takes most of the time".to_owned(),
            "pauses" => match &self.facts.server {
                Some(Server { name, pct }) => format!(
                    "the target waits for `{name}` for {pct:.0} % of the time: ask `iowhy why --comm {name}` meanwhile"
                ),
                None => "the target waits for something other than storage".to_owned(),
            },
            layer => format!("most of the time is in the layer `{layer}`, and none of the rules has a mark of it"),
        })
    }
}

/// Mechanisms that are unusual by themselves: a limit, a neighbour, advice, a drive that dozes.
const UNUSUAL: [&str; 6] =
    ["cgroup-io-throttle", "noisy-neighbour", "memory-reclaim", "cache-too-small", "random-advice", "device-idle-exit"];

/// The number that a value begins with.
fn number(text: &str) -> Option<f64> {
    text.split(' ').next()?.parse().ok()
}

/// A setting that is below what is usual, or a limit; tunables of a scheduler are a choice.
fn restricts((what, value, usual): &(String, String, &'static str)) -> bool {
    let chosen = what.contains(" iosched/");
    what.starts_with("cgroup ")
        || !chosen && number(value).zip(number(usual)).is_some_and(|(value, usual)| value < usual)
}

/// Whether a change takes back something that is unusual: a setting of the disk or the machine, towards its default.
fn takes_back(setting: &str, rule: &str, disk: &str, unusual: &[(String, String, &'static str)]) -> bool {
    let Some((key, to)) = setting.split_once('=').filter(|(key, _)| !key.contains(' ')) else {
        return UNUSUAL.contains(&rule);
    };
    let is = |what: &str| what == key || what.strip_prefix("vm.") == Some(key) || what == format!("{disk} {key}");
    UNUSUAL.contains(&rule)
        || unusual.iter().any(|(what, from, usual)| {
            is(what)
                && match (number(from), number(to), number(usual)) {
                    // Less than usual is not the way back from more.
                    (Some(from), Some(to), Some(usual)) if from > usual => (usual..from).contains(&to),
                    // A goal of 0 is none.
                    (Some(from), Some(to), Some(usual)) => {
                        from < usual && (to > from || key == "wbt_lat_usec" && to == 0.0)
                    }
                    _ => usual.split(" or ").any(|usual| usual == to),
                }
        })
}

/// Both lists as one: an entry for each rule, without those that follow from others, the largest saving first.
///
/// Of a rule with both, the cost's figures stand: they are of the usual value, where the twin takes the smallest step
/// that helps; its saving is evidence.
fn joined(costs: &[cost::Found], predictions: Vec<Prediction>, calls: u64) -> Vec<Finding> {
    let mut all: Vec<Finding> = predictions.into_iter().map(Finding::from).collect();
    for found in costs {
        let rule = found.rule;
        let evidence = found.cost.evidence.iter().map(|(what, value, unit)| ((*what).to_owned(), *value, unit.word()));
        let twin = all.iter().position(|finding| finding.rule == rule.name).map(|at| all.remove(at));
        let by_twin = twin.iter().map(|of| (format!("saving on the twin with {}", of.setting), of.saves_pct, "%"));
        let evidence = evidence.chain(by_twin);
        all.push(Finding {
            rule: rule.name,
            layer: rule.layer,
            confidence: twin.as_ref().map_or(0.0, |of| of.confidence).max(found.cost.confidence),
            cost_ns_per_call: found.cost.ns / calls.max(1) as f64,
            saves_pct: found.saves_pct,
            saves_ci_pct: found.bounds_pct,
            evidence: evidence.collect(),
            refute: match found.bounds_pct[0] {
                least if least >= 0.5 => {
                    format!("with {}, less than {least:.0} % of the time goes", found.cost.setting)
                }
                _ => format!("with {}, the time does not get shorter", found.cost.setting),
            },
            costs_others: twin.and_then(|of| of.costs_others),
            safe: facts::is_of_queue(&found.cost.setting).is_some(),
            predicted: false,
            tried: None,
            claim: found.cost.claim.clone(),
            setting: found.cost.setting.clone(),
        });
    }
    let follows: Vec<&str> = all
        .iter()
        .filter_map(|finding| rules::find(finding.rule))
        .flat_map(|rule| rule.consequences.iter().copied())
        .collect();
    all.retain(|finding| finding.saves_pct >= LEAST_PCT && !follows.contains(&finding.rule));
    all.sort_by(|a, b| b.saves_pct.total_cmp(&a.saves_pct));
    all
}

#[cfg(test)]
mod tests;

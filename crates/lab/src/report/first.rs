//! The first screen of a report: a sentence with the workload, the unit that people think in, and a factor; then a line
//! each for the cause, what speaks for it, what the answer stands on, what else differs, and what to do.
//!
//! Sides that did the same work (operations and bytes within 1 %) are compared by how long it takes; others by calls a
//! second; and where the headline is about requests, by the time of one.

use serde::Serialize;

use super::words::{experiment, figure};
use super::{Difference, facts};
use crate::explain::gathered::Gathered;
use iowhy_compare::{Comparison, Verdict};
use iowhy_text::{count, shown};
use iowhy_why::digest::Spread;
use iowhy_why::{Basis, Explanation, Finding, Outcome, Unit, certainty};

/// Longest difference or assumption, and about the longest line of several.
const VALUE: usize = 160;
/// Keys that say where a side comes from, and not what is different about it.
const ORIGINS: &[&str] = &["where", "machine_hash", "made by", "job"];
/// Keys of the machine's other work: they differ always.
const PASSING: &[&str] = &["machine.load", "machine.running", "machine.pressure."];
/// Differences and assumptions in a line.
const LISTED: usize = 3;
/// Calls in progress at once from which on the time of an operation is not the latency of a call.
const DEEP: f64 = 1.5;
/// Sides differ by less in the same work.
const SAME_WORK: f64 = 0.01;

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Its subject.
    pub name: &'static str,
    /// In a sentence.
    pub text: String,
}

/// The first screen.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct First {
    /// The sentence; empty if nothing is known but the headline's.
    pub title: String,
    /// The headline's time in B, in times that of A.
    pub factor: Option<f64>,
    pub lines: Vec<Line>,
}

/// Work of a side's runs, as means over them.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
struct Work {
    elapsed_ns: f64,
    operations: f64,
    /// Read and written.
    bytes: [f64; 2],
    syncs: f64,
    /// Mean latency of a call.
    latency_ns: f64,
}

impl Work {
    fn of(side: &Gathered) -> Work {
        let n = side.side.runs.len().max(1) as f64;
        let mean = |of: &dyn Fn(&iowhy_why::digest::Digest) -> f64| side.side.runs.iter().map(of).sum::<f64>() / n;
        Work {
            elapsed_ns: mean(&|run| run.elapsed.0 as f64),
            operations: mean(&|run| run.operations() as f64),
            bytes: [0, 1].map(|dir: usize| mean(&|run| run.workload.bytes[dir] as f64)),
            syncs: mean(&|run| run.workload.calls[2] as f64),
            latency_ns: mean(&|run| {
                let of = |part: &dyn Fn(&Spread) -> f64| run.latency.iter().map(part).sum::<f64>();
                of(&Spread::sum) / of(&|spread| spread.count() as f64).max(1.0)
            }),
        }
    }

    fn rate(&self) -> f64 {
        if self.elapsed_ns > 0.0 { self.operations / (self.elapsed_ns / 1e9) } else { 0.0 }
    }
}

/// The two times of calls of which several are in progress at once; nothing where one follows the other.
fn at_depth(work: &[Work]) -> Option<Line> {
    let elapsed = |of: &Work| of.elapsed_ns / of.operations.max(1.0);
    let depth = |of: &Work| if elapsed(of) > 0.0 { of.latency_ns / elapsed(of) } else { 0.0 };
    if work.iter().all(|of| depth(of) < DEEP) {
        return None;
    }
    let one = |(letter, of): (&str, &Work)| {
        let [elapsed, latency] = [elapsed(of), of.latency_ns].map(|ns| figure(ns, Unit::Ns));
        format!("{letter} {elapsed} elapsed per operation, {latency} latency of a call ({:.0} in flight)", depth(of))
    };
    let all: Vec<String> = ["A", "B"].into_iter().zip(work).map(one).collect();
    Some(line("At depth", all.join("; ")))
}

fn alike(a: f64, b: f64) -> bool {
    (a - b).abs() <= SAME_WORK * a.max(b)
}

fn bytes(of: f64) -> String {
    let units = [(f64::from(1 << 30), "GiB"), (f64::from(1 << 20), "MiB"), (f64::from(1 << 10), "KiB")];
    let (unit, name) = units.into_iter().find(|(unit, _)| of >= *unit).unwrap_or((1.0, "B"));
    let value = of / unit;
    let whole = (value - value.round()).abs() < 0.005 * value;
    if whole { format!("{value:.0} {name}") } else { format!("{value:.1} {name}") }
}

/// The program of a side's job, if it is known.
fn program(side: &Gathered) -> Option<String> {
    let words = match (&side.command, &side.recipe, &side.row) {
        (Some(command), _, _) => facts::job_of(command)?.to_owned(),
        (None, Some(recipe), _) => recipe.words.join(" "),
        (None, None, Some(row)) => row.job.clone(),
        _ => return None,
    };
    let first = words.split_whitespace().find(|word| *word != "run")?;
    let name = first.rsplit('/').next().unwrap_or(first);
    // A job file is a job of fio.
    let name = if name.ends_with(".fio") || name.ends_with(".job") { "fio" } else { name };
    (!name.contains('=') && !name.starts_with('-')).then(|| shown(name, 30))
}

/// The work in words: "Reading 2 GiB with dd".
fn subject(sides: &[Gathered; 2], work: &[Work; 2]) -> String {
    let [a, b] = work;
    let verb = match (b.bytes[0] > 0.0, b.bytes[1] > 0.0, b.syncs > 0.0) {
        (true, true, _) => "Reading and writing",
        (true, false, _) => "Reading",
        (false, true, _) => "Writing",
        (false, false, true) => "Syncing",
        _ => "The I/O",
    };
    let total = |of: &Work| of.bytes[0] + of.bytes[1];
    let same = alike(total(a), total(b)) && alike(a.operations, b.operations) && total(b) > 0.0;
    let much = if same { format!(" {}", bytes(total(b))) } else { String::new() };
    let program =
        [&sides[1], &sides[0]].into_iter().find_map(program).map_or(String::new(), |name| format!(" with {name}"));
    format!("{verb}{much}{program}")
}

fn times(factor: f64) -> String {
    if factor < 10.0 { format!("{factor:.1}×") } else { format!("{factor:.0}×") }
}

fn sentence(sides: &[Gathered; 2], explanation: &Explanation, work: &[Work; 2]) -> String {
    let subject = subject(sides, work);
    let [a, b] = explanation.time_ns;
    let one = |ns: f64| figure(ns, Unit::Ns);
    let same_work = alike(work[0].operations, work[1].operations)
        && (0..2).all(|dir| alike(work[0].bytes[dir], work[1].bytes[dir]));
    let (before, after) = match explanation.basis {
        Basis::Call | Basis::Run if same_work => (one(work[0].elapsed_ns), one(work[1].elapsed_ns)),
        _ => (one(a), one(b)),
    };
    match explanation.verdict {
        Verdict::Inconclusive => return format!("{subject}: cannot tell, {before} in A and {after} in B."),
        Verdict::Same => return format!("{subject} takes as long as before: {after} and {before}."),
        _ => {}
    }
    if a <= 0.0 || b <= 0.0 {
        return String::new();
    }
    let factor = b / a;
    let longer = |what: &str| match factor {
        _ if (1.0..1.1).contains(&factor) => format!("{what} takes {:.1} % longer", 100.0 * (factor - 1.0)),
        _ if factor >= 1.0 => format!("{what} takes {} as long", times(factor)),
        _ if factor > 0.9 => format!("{what} takes {:.1} % less time", 100.0 * (1.0 - factor)),
        _ => format!("{what} is {} as fast", times(1.0 / factor)),
    };
    let (of_a, of_b) = (work[0].rate(), work[1].rate());
    match explanation.basis {
        Basis::Request => format!("{subject}: {}: {after}, not {before}.", longer("a request")),
        Basis::Bytes => format!("{subject}: {}: {after}, not {before}.", longer("a page of 4 KiB")),
        Basis::Call if !same_work && of_a > 0.0 && of_b > 0.0 => {
            let rate = |rate: f64| count(rate.round() as u64, "call", "calls");
            let (word, by) = if factor >= 1.0 { ("fewer", factor) } else { ("as many", 1.0 / factor) };
            format!("{subject} makes {} {word} calls a second: {}, not {}.", times(by), rate(of_b), rate(of_a))
        }
        _ => format!("{}: {after}, not {before}.", longer(&subject)),
    }
}

fn line(name: &'static str, text: String) -> Line {
    Line { name, text: shown(&text, 600) }
}

/// As many as fit into a line, one at least.
fn listed(all: &[String]) -> String {
    let mut list: Vec<String> = Vec::new();
    for one in all.iter().take(LISTED).map(|one| shown(one, VALUE)) {
        let used: usize = list.iter().map(|known| known.chars().count() + 2).sum();
        if used > 0 && used + one.chars().count() > VALUE {
            break;
        }
        list.push(one);
    }
    let more = all.len() - list.len();
    let rest = if more > 0 { format!("; and {more} more below") } else { String::new() };
    format!("{}{rest}", list.join("; "))
}

fn cause(explanation: &Explanation, first: Option<&Finding>) -> String {
    if let Some(first) = first {
        let share = format!("{:.0} % of the difference", first.share_pct);
        let what = first.rule.what.trim_end_matches('.');
        return format!("{what} ({}: {share}, {})", first.rule.name, certainty::of(first.confidence).word);
    }
    match explanation.verdict {
        Verdict::Same => "Nothing to explain.".to_owned(),
        Verdict::Inconclusive => format!("Unknown: {}.", explanation.because),
        _ => {
            let largest = explanation.layers.iter().max_by(|x, y| x.delta().abs().total_cmp(&y.delta().abs()));
            let place = largest.map_or(String::new(), |layer| format!(" Most of it is in the layer {}.", layer.layer));
            format!("None of the rules explains this.{place}")
        }
    }
}

/// Premises of the answer.
fn assumed(sides: &[Gathered; 2]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    // What was fitted to the answer comes first.
    let (fitted, given): (Vec<&String>, Vec<&String>) =
        sides[1].assumed.iter().partition(|text| text.contains("calibrated"));
    all.extend(fitted.into_iter().cloned());
    if sides.iter().all(|side| !side.side.live) {
        all.push("kernel and disk are models: no run was measured".to_owned());
    } else if sides.iter().any(|side| !side.side.live) {
        all.push("one side is simulated, the other measured".to_owned());
    }
    for (side, letter) in sides.iter().zip(["A", "B"]) {
        if side.side.lost > 0 {
            all.push(format!("{} of {letter} were lost", count(side.side.lost, "event", "events")));
        }
        if side.side.inferred_windows {
            all.push(format!("windows of {letter} are inferred from pages, since its kernel does not trace them"));
        }
        if side.side.runs.len() == 1 {
            all.push(format!("{letter} is a single run: its spread is unknown"));
        }
    }
    all.extend(given.into_iter().cloned());
    all
}

fn differing(explanation: &Explanation, differences: &[Difference]) -> Vec<String> {
    if !explanation.only_difference.is_empty() {
        let one = |(what, [a, b]): &(String, [String; 2])| format!("{what}: {a} in A, {b} in B");
        return explanation.only_difference.iter().map(one).collect();
    }
    // The more a key says of what is different, the earlier.
    let rank = |of: &Difference| match of.key.as_str() {
        key if PASSING.iter().any(|passing| key.starts_with(passing)) => 2,
        key if ORIGINS.contains(&key) => 1,
        _ => 0,
    };
    let best = differences.iter().map(rank).min();
    differences.iter().filter(|of| Some(rank(of)) == best).map(in_words).collect()
}

fn in_words(of: &Difference) -> String {
    let word = |value: &str| if value.is_empty() { "absent".to_owned() } else { shown(value, 60) };
    format!("{}: {} in A, {} in B", of.key, word(&of.a), word(&of.b))
}

/// The line of what differs.
fn of_differing(all: &[String]) -> Line {
    let name = if all.len() == 1 { "Only difference" } else { "Differences" };
    line(name, if all.is_empty() { "none is known".to_owned() } else { listed(all) })
}

/// Of two sides; `alone` if they are one.
pub fn of(sides: &[Gathered; 2], explanation: &Explanation, differences: &[Difference], alone: bool) -> First {
    let work = [Work::of(&sides[0]), Work::of(&sides[1])];
    if alone {
        let time = figure(work[0].elapsed_ns, Unit::Ns);
        let rate = count(work[0].rate().round() as u64, "call", "calls");
        let title = format!("{} takes {time}: {rate} a second.", subject(sides, &work));
        let lines = at_depth(&work[..1]).into_iter().chain([line("Assumed", listed(&assumed(sides)))]).collect();
        return First { title, factor: None, lines };
    }
    let first = explanation.findings.iter().find(|finding| !finding.is_refuted());
    let mut lines = vec![line("Cause", cause(explanation, first))];
    if let Some(first) = first {
        match &first.counterfactual {
            Some(made) => {
                let proves = matches!(made.outcome, Outcome::Confirmed | Outcome::Partly);
                let name = if proves { "Proof" } else { "Experiment" };
                lines.push(line(name, experiment(made, explanation.change_pct)));
            }
            None => lines.push(line("Evidence", format!("{}. No experiment was made.", first.claim))),
        }
    }
    let refuted: Vec<&str> =
        explanation.findings.iter().filter(|of| of.is_refuted()).map(|finding| finding.rule.name).collect();
    if !refuted.is_empty() {
        lines.push(line("Refuted", format!("by experiment: {}", refuted.join(", "))));
    }
    let stands_on = assumed(sides);
    let stands_on =
        if stands_on.is_empty() { "nothing beyond the recorded events".to_owned() } else { listed(&stands_on) };
    lines.push(line("Assumed", stands_on));
    let differing = differing(explanation, differences);
    lines.push(of_differing(&differing));
    lines.extend(at_depth(&work));
    if let Some(first) = first {
        let set = first.advice.as_ref().map(|advice| format!(" Set {}.", advice.set)).unwrap_or_default();
        lines.push(line("What to do", format!("{}{set}", first.rule.change)));
    } else if differing.len() == 1 && explanation.verdict == Verdict::Regression {
        lines.push(line("What to do", "Undo the only difference, and measure again.".to_owned()));
    }
    let [a, b] = explanation.time_ns;
    let factor = (a > 0.0 && b > 0.0).then_some(b / a);
    First { title: sentence(sides, explanation, &work), factor, lines }
}

/// Of files with samples, which have no events.
pub fn of_samples(comparison: Option<&Comparison>, differences: &[Difference]) -> First {
    if comparison.is_none() {
        return First::default();
    }
    let differing: Vec<String> = differences.iter().map(in_words).collect();
    let assumed = "files of samples have no events: the cause is not looked for".to_owned();
    First { lines: vec![line("Assumed", assumed), of_differing(&differing)], ..First::default() }
}

#[cfg(test)]
mod tests {
    use iowhy_stack::units::Nanos;
    use iowhy_why::digest::Digest;
    use iowhy_why::{Side, explain};

    use super::*;

    /// Two runs of a command: its calls, their bytes, its time.
    fn side(label: &str, command: &str, calls: u64, each: u64, seconds: f64) -> Gathered {
        let mut run = Digest { elapsed: Nanos((seconds * 1e9) as u64), ..Digest::default() };
        (0..calls).for_each(|_| run.latency[0].add((seconds * 1e9) as u64 / calls));
        run.workload.calls[0] = calls;
        run.workload.bytes[0] = calls * each;
        run.workload.sizes[0].insert(each as u32, calls);
        let side = Side { label: label.to_owned(), runs: vec![run; 2], ..Side::default() };
        Gathered { side, command: Some(command.to_owned()), ..Gathered::default() }
    }

    fn of_two(a: Gathered, b: Gathered, differences: &[Difference]) -> First {
        let explanation = explain(&a.side, &b.side, None);
        of(&[a, b], &explanation, differences, false)
    }

    fn text<'a>(first: &'a First, name: &str) -> &'a str {
        first.lines.iter().find(|line| line.name == name).map_or("", |line| &line.text)
    }

    #[test]
    fn the_sentence_has_workload_unit_and_factor() {
        let dd = "run dd if=/dev/sda bs=1M count=2048 --on sim:linux-2.6.38";
        let (calls, each) = (2048, 1 << 20);
        for (a, b, expected) in [
            (8.72, 58.5, "Reading 2 GiB with dd takes 6.7× as long: 58.5 s, not 8.72 s."),
            (58.5, 8.72, "Reading 2 GiB with dd is 6.7× as fast: 8.72 s, not 58.5 s."),
            (8.0, 8.4, "Reading 2 GiB with dd takes 5.0 % longer: 8.40 s, not 8.00 s."),
            (8.0, 8.001, "Reading 2 GiB with dd takes as long as before: 8.00 s and 8.00 s."),
        ] {
            let first = of_two(side("a", dd, calls, each, a), side("b", dd, calls, each, b), &[]);
            assert_eq!(first.title, expected);
            assert!((first.factor.expect("times") - b / a).abs() < 1e-6);
        }
        // As long, and fewer calls.
        let job = "run /tmp/x/db.fio --on sim:linux-4.4";
        let first = of_two(side("a", job, 8_000, 4096, 2.0), side("b", job, 2_000, 4096, 2.0), &[]);
        assert_eq!(first.title, "Reading with fio makes 4.0× fewer calls a second: 1,000 calls, not 4,000 calls.");
    }

    #[test]
    fn at_depth_there_are_two_times() {
        let job = "run fio --on sim:linux-4.4";
        let deep = |seconds| {
            let mut side = side("a", job, 1_000, 4096, seconds);
            for run in &mut side.side.runs {
                run.latency[0] = Spread::default();
                (0..1_000).for_each(|_| run.latency[0].add(106_000));
            }
            side
        };
        let first = of_two(side("a", job, 1_000, 4096, 0.106), deep(0.0037), &[]);
        let expected = "A 106 µs elapsed per operation, 106 µs latency of a call (1 in flight); B 3.70 µs elapsed per \
                        operation, 106 µs latency of a call (29 in flight)";
        assert_eq!(text(&first, "At depth"), expected);
        let first = of_two(side("a", job, 1_000, 4096, 1.0), side("b", job, 1_000, 4096, 2.0), &[]);
        assert_eq!(text(&first, "At depth"), "");
    }

    #[test]
    fn lines_say_what_is_assumed_and_what_differs() {
        let difference = |key: &str| Difference { key: key.to_owned(), a: "128".to_owned(), b: String::new() };
        let mut b = side("b", "run dd --on sim:x", 100, 4096, 4.0);
        b.assumed = vec!["the disk is new".to_owned(), "waking costs 6 ms: calibrated on this row".to_owned()];
        let one = [difference("where"), difference("read_ahead_kb")];
        let first = of_two(side("a", "run dd --on sim:x", 100, 4096, 1.0), b.clone(), &one);
        assert_eq!(text(&first, "Only difference"), "read_ahead_kb: 128 in A, absent in B");
        assert!(text(&first, "Assumed").starts_with("waking costs 6 ms"), "{first:?}");
        assert!(text(&first, "Cause").starts_with("None of the rules explains this."));
        assert_eq!(text(&first, "What to do"), "Undo the only difference, and measure again.");
        let two = [difference("machine.pressure.io.some_avg10_pct"), difference("job")];
        let first = of_two(side("a", "run dd --on sim:x", 100, 4096, 1.0), b.clone(), &two);
        assert_eq!(text(&first, "Only difference"), "job: 128 in A, absent in B");
        let first = of_two(side("a", "run dd --on sim:x", 100, 4096, 1.0), b.clone(), &two[..1]);
        assert!(text(&first, "Only difference").starts_with("machine.pressure."), "{first:?}");
        // Without an experiment nothing is proved.
        assert_eq!((text(&first, "Proof"), text(&first, "Experiment")), ("", ""));
        b.side.lost = 7;
        let many: Vec<Difference> = ["a", "b", "c", "d", "e"].map(difference).into();
        let first = of_two(side("a", "run dd --on sim:x", 100, 4096, 1.0), b, &many);
        assert!(text(&first, "Differences").ends_with("; and 2 more below"), "{first:?}");
        assert!(text(&first, "Assumed").contains("7 events of B were lost"), "{first:?}");
    }
}

//! `bench`: every speed figure as a ratio against its peer, taken in one run.
//!
//! Each bench is one file and one line of [`BENCHES`]. Ours and the peer do the same work alternately (A B A B ...),
//! CPU time is counted, not wall time, and the figure is the median of the pairwise ratios. Both also return an
//! answer; if the answers differ the bench fails, however fast it was.

mod blktrace;
mod block_request;
mod cache_replay;
mod change_points;
mod event_core;
mod explain;
mod histogram_record;
mod live;
mod page_path;
mod peer;
mod recorder;
mod statistics;
mod stored_events;
mod table;

use crate::{Outcome, cargo, target_folder};
use serde_json::{Value, json};
use std::path::PathBuf;

/// A speed figure's name, its peer, and the function that measures it.
struct Bench {
    name: &'static str,
    run: fn(&Setting) -> Result<Vec<Figure>, String>,
}

/// Every bench.
const BENCHES: &[Bench] = &[
    Bench { name: "event-core", run: event_core::run },
    Bench { name: "cache-replay", run: cache_replay::run },
    Bench { name: "histogram", run: histogram_record::run },
    Bench { name: "block-request", run: block_request::run },
    Bench { name: "page-path", run: page_path::run },
    Bench { name: "change-points", run: change_points::run },
    Bench { name: "table", run: table::run },
    Bench { name: "statistics", run: statistics::run },
    Bench { name: "live", run: live::run },
    Bench { name: "stored-events", run: stored_events::run },
    Bench { name: "blktrace", run: blktrace::run },
    Bench { name: "explain", run: explain::run },
];

/// How much to measure.
struct Setting {
    /// Pairs of measurements.
    pairs: usize,
    /// Divides the work of each measurement.
    divisor: usize,
    /// Where peers and traces are kept.
    folder: PathBuf,
    /// Why the peers that are Rust crates are missing, if they are.
    no_crates: Option<String>,
}

/// One measurement: CPU time an operation took, and a digest of what came out.
#[derive(Copy, Clone)]
struct Sample {
    ns: f64,
    answer: u64,
}

/// One result.
struct Figure {
    name: String,
    unit: &'static str,
    peer_name: &'static str,
    ours: f64,
    /// Peer's cost and the pairwise ratios, or why there are none.
    peer: Result<(f64, Vec<f64>), String>,
    pairs: usize,
    /// Smallest ratio aimed at.
    goal: Option<f64>,
    /// Largest cost aimed at, in `unit`.
    limit: Option<f64>,
}

/// The peer, the unit, and the goal.
#[derive(Copy, Clone)]
struct Aim {
    unit: &'static str,
    peer_name: &'static str,
    goal: Option<f64>,
    limit: Option<f64>,
}

/// A measurement that can be repeated.
type Measure<'a> = &'a mut dyn FnMut() -> Result<Sample, String>;

/// The middle of `values`, which must not be empty.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    (low + high) / 2.0
}

/// Measures ours and the peer alternately. A peer that is not there is a figure without a ratio; a wrong answer is an
/// error.
fn compare(
    setting: &Setting,
    name: String,
    aim: Aim,
    ours: Measure<'_>,
    peer: Result<Measure<'_>, String>,
) -> Result<Figure, String> {
    eprintln!("bench: {name} against {}", aim.peer_name);
    let expected = ours()?.answer;
    let check = |who: &str, sample: Sample| {
        if sample.answer == expected {
            Ok(sample.ns)
        } else {
            Err(format!("{name}: WRONG ANSWER: {who} has {}, expected {expected}", sample.answer))
        }
    };
    let mut our_costs = Vec::new();
    let mut peer_costs = Vec::new();
    let peer_result = match peer {
        Ok(peer) => {
            check(aim.peer_name, peer()?)?;
            for _ in 0..setting.pairs {
                our_costs.push(check("ours", ours()?)?);
                peer_costs.push(check(aim.peer_name, peer()?)?);
            }
            let ratios = our_costs.iter().zip(&peer_costs).map(|(ours, peer)| peer / ours).collect();
            Ok((median(&peer_costs), ratios))
        }
        Err(reason) => {
            for _ in 0..setting.pairs {
                our_costs.push(check("ours", ours()?)?);
            }
            Err(reason)
        }
    };
    Ok(Figure {
        name,
        unit: aim.unit,
        peer_name: aim.peer_name,
        ours: median(&our_costs),
        peer: peer_result,
        pairs: setting.pairs,
        goal: aim.goal,
        limit: aim.limit,
    })
}

impl Figure {
    fn json(&self) -> Value {
        let (peer, ratios, reason) = match &self.peer {
            Ok((cost, ratios)) => (Some(*cost), ratios.as_slice(), None),
            Err(reason) => (None, [].as_slice(), Some(reason)),
        };
        let spread = |pick: fn(f64, f64) -> f64| ratios.iter().copied().reduce(pick).map(rounded);
        json!({
            "name": self.name,
            "ours": rounded(self.ours),
            "peer": peer.map(rounded),
            "peer_name": self.peer_name,
            "unit": self.unit,
            "ratio_median": (!ratios.is_empty()).then(|| rounded(median(ratios))),
            "ratio_min": spread(f64::min),
            "ratio_max": spread(f64::max),
            "pairs": if ratios.is_empty() { 0 } else { self.pairs },
            "goal": self.goal,
            "limit": self.limit,
            "reason": reason,
        })
    }

    fn line(&self) -> String {
        let mut line = format!("{:<34} {:>9.2} {:<12}", self.name, self.ours, self.unit);
        match &self.peer {
            Ok((cost, ratios)) => {
                let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
                let high = ratios.iter().copied().fold(0.0, f64::max);
                line +=
                    &format!(" {:<18} {cost:>9.2}  {:>7.1}x [{low:.1} .. {high:.1}]", self.peer_name, median(ratios));
                if let Some(goal) = self.goal {
                    let verdict = if median(ratios) >= goal { "reached" } else { "MISSED" };
                    line += &format!("  goal {goal}x {verdict}");
                }
            }
            Err(reason) => line += &format!(" {:<18} -  ({reason})", self.peer_name),
        }
        if let Some(limit) = self.limit {
            let verdict = if self.ours <= limit { "reached" } else { "MISSED" };
            line += &format!("  limit {limit} {verdict}");
        }
        line
    }
}

/// Three decimals are more than the noise allows.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// `bench [--json] [--quick] [NAME...]`, or `bench recorder [--quick] [--page]`, which is not one of all benches.
///
/// The first call is in whatever profile xtask was built with; it calls itself again, optimised and with the peers.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let mut names = Vec::new();
    let (mut json, mut quick, mut measure, mut no_crates) = (false, false, false, None);
    let (mut recorder, mut page) = (false, false);
    for argument in arguments {
        match argument.as_str() {
            "--json" => json = true,
            "--quick" => quick = true,
            "recorder" => recorder = true,
            "--page" => page = true,
            // Internal: this is the optimised call.
            "--measure" => measure = true,
            "--without-crates" => no_crates = Some("the crates of the peers could not be built".to_owned()),
            name if BENCHES.iter().any(|bench| bench.name == name) => names.push(name),
            other => {
                let known: Vec<&str> = BENCHES.iter().map(|bench| bench.name).collect();
                return Err(format!("no bench `{other}`; there are {}, recorder", known.join(", ")));
            }
        }
    }
    if !measure {
        return again(arguments);
    }
    let folder = target_folder().join("bench");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    if recorder {
        return recorder::run(&folder, quick, page);
    }
    let setting = if quick {
        Setting { pairs: 3, divisor: 8, folder, no_crates }
    } else {
        Setting { pairs: 9, divisor: 1, folder, no_crates }
    };
    let mut figures = Vec::new();
    for bench in BENCHES.iter().filter(|bench| names.is_empty() || names.contains(&bench.name)) {
        figures.extend((bench.run)(&setting)?);
    }
    if json {
        let ratios: Vec<Value> = figures.iter().map(Figure::json).collect();
        println!("{:#}", json!({ "schema": 1, "quick": quick, "ratios": ratios }));
    } else {
        figures.iter().for_each(|figure| println!("{}", figure.line()));
    }
    Ok(())
}

/// Calls this program again, built for speed, with the peers if their crates can be had.
fn again(arguments: &[String]) -> Outcome {
    let build = ["--quiet", "--release", "--package", "xtask"];
    let with_peers =
        cargo().arg("build").args(build).args(["--features", "peers"]).status().is_ok_and(|status| status.success());
    let mut command = cargo();
    command.arg("run").args(build);
    if with_peers {
        command.args(["--features", "peers"]);
    }
    command.args(["--", "bench", "--measure"]).args(arguments);
    if !with_peers {
        eprintln!("bench: the crates of the peers could not be built; going on without them");
        command.arg("--without-crates");
    }
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("bench: FAILED".to_owned()),
        Err(error) => Err(format!("bench: cargo could not be started: {error}")),
    }
}

/// CPU time of this process so far, ns.
fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time that `work` takes, divided by `operations`, with its answer.
fn timed(operations: usize, work: impl FnOnce() -> u64) -> Sample {
    let start = cpu_ns();
    let answer = work();
    Sample { ns: (cpu_ns() - start) as f64 / operations as f64, answer }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting() -> Setting {
        Setting { pairs: 3, divisor: 1, folder: PathBuf::new(), no_crates: None }
    }

    const AIM: Aim = Aim { unit: "ns/event", peer_name: "peer", goal: Some(2.0), limit: Some(5.0) };

    #[test]
    fn a_ratio_is_the_median_of_pairs() {
        let mut costs = [9.0, 1.0, 2.0, 4.0].into_iter();
        let mut ours = || Ok(Sample { ns: costs.next().unwrap_or(1.0), answer: 7 });
        let mut peer = || Ok(Sample { ns: 8.0, answer: 7 });
        let figure = compare(&setting(), "x".to_owned(), AIM, &mut ours, Ok(&mut peer)).expect("answers agree");
        let json = figure.json();
        assert_eq!((json["ratio_min"].as_f64(), json["ratio_max"].as_f64()), (Some(2.0), Some(8.0)));
        assert_eq!((json["ratio_median"].as_f64(), json["ours"].as_f64()), (Some(4.0), Some(2.0)));
        assert_eq!(json["pairs"], 3);
    }

    #[test]
    fn a_fast_wrong_answer_fails() {
        let mut ours = || Ok(Sample { ns: 0.1, answer: 1 });
        let mut peer = || Ok(Sample { ns: 100.0, answer: 2 });
        let error =
            compare(&setting(), "x".to_owned(), AIM, &mut ours, Ok(&mut peer)).err().expect("the answers differ");
        assert!(error.contains("WRONG ANSWER"), "{error}");
    }

    #[test]
    fn a_missing_peer_is_null_with_the_reason() {
        let mut ours = || Ok(Sample { ns: 3.0, answer: 1 });
        let figure = compare(&setting(), "x".to_owned(), AIM, &mut ours, Err("not installed".to_owned()));
        let json = figure.expect("no peer is no failure").json();
        assert!(json["peer"].is_null() && json["ratio_median"].is_null());
        assert_eq!((json["reason"].as_str(), json["ours"].as_f64()), (Some("not installed"), Some(3.0)));
    }
}

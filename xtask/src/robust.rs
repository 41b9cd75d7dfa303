//! `cargo xtask robust`: the claims of an incident with each constant of its models moved by 10 and by 20 percent.
//!
//! One constant moves at a time, in all runs of the incident: numbers of the disk, of the machine and of the cost of
//! direct I/O that are other than 0. A small number moves by one at least. Constants without an effect on the first
//! repetition of any run are counted and not run further; those that cannot move (a disk too small for the files) are
//! left out.

use std::collections::BTreeMap;
use std::time::Instant;

use iowhy_lab::incident::{self, Constant, How, IncidentResult};
use iowhy_lab::models::ROBUST;

use crate::{Outcome, renew};

/// The incidents of the mission.
const INCIDENTS: &[&str] = &[
    "2004-random-read-split",
    "2010-cfq-direct-writers",
    "2012-direct-io-stale-cache",
    "2012-plugged-readahead",
    "2018-readahead-window",
];
/// Percent.
const MOVES: [[i32; 2]; 2] = [[-10, 10], [-20, 20]];

/// Moves that are named; of a claim that fails with more of them, the margin is the reason.
const NAMED: usize = 6;

/// A move that a required claim does not survive.
struct Broken {
    constant: Constant,
    percent: i32,
    claims: Vec<String>,
}

struct Row {
    id: &'static str,
    /// Repetitions of each run.
    sequences: u32,
    constants: usize,
    effective: usize,
    /// For each size of moves.
    runs: [usize; 2],
    broken: [Vec<Broken>; 2],
}

impl Row {
    fn line(&self) -> String {
        let cells = [0, 1].map(|nr| {
            let mut moves: BTreeMap<&str, Vec<String>> = BTreeMap::new();
            for Broken { constant: Constant { kind, name }, percent, claims } in &self.broken[nr] {
                for claim in claims {
                    moves.entry(claim).or_default().push(format!("`{kind}.{name}` {percent:+} %"));
                }
            }
            let words = moves.iter().map(|(claim, moves)| match moves.len() {
                ..=NAMED => format!("{claim} with {}", moves.join(", ")),
                many => format!("{claim} with {many}"),
            });
            let list = words.collect::<Vec<_>>().join("; ");
            let list = if list.is_empty() { String::new() } else { format!(": {list}") };
            format!("{} of {}{list}", self.broken[nr].len(), self.runs[nr])
        });
        let Row { id, sequences, constants, effective, .. } = self;
        format!("| {id} | {sequences} | {constants} | {effective} | {} | {} |", cells[0], cells[1])
    }
}

/// Runs what is asked for and prints the table.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let (mut only, mut sequences, mut page) = (INCIDENTS.to_vec(), None, false);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--page" => page = true,
            "--sequences" => {
                let number = words.next().and_then(|word| word.parse().ok());
                sequences = Some(number.filter(|number| *number > 0).ok_or("--sequences needs a number from 1 on")?);
            }
            "--only" => {
                let names: Vec<&str> = words.next().ok_or("--only needs incidents")?.split(',').collect();
                only.retain(|id| names.contains(id));
            }
            other => return Err(format!("unknown word `{other}`: --only ID,.., --sequences N, --page")),
        }
    }
    let mut lines = vec![
        "| incident | repetitions | constants | with an effect | 10 % | 20 % |".to_owned(),
        "| --- | ---: | ---: | ---: | --- | --- |".to_owned(),
    ];
    for id in only {
        lines.push(of(id, sequences)?.line());
    }
    println!("{}", lines.join("\n"));
    if page { renew("MODELS.md", ROBUST, &lines.join("\n")) } else { Ok(()) }
}

fn result(id: &str, sequences: Option<u32>, moved: Option<(Constant, i32)>) -> Result<IncidentResult, String> {
    let how = How { sequences, moved, ..How::default() };
    incident::run(id, how, &|_, _| {}).map_err(|error| format!("{id}: {error}"))
}

fn of(id: &'static str, sequences: Option<u32>) -> Result<Row, String> {
    let constants = incident::constants(id).map_err(|error| format!("{id}: {error}"))?;
    let whole = result(id, sequences, None)?;
    let mut row = Row {
        id,
        sequences: whole.sequences,
        constants: constants.len(),
        effective: 0,
        runs: [0; 2],
        broken: [Vec::new(), Vec::new()],
    };
    let held = failed(&whole);
    if !held.is_empty() {
        return Err(format!("{id}: claims that do not hold as it is: {}", held.join(", ")));
    }
    let usual = result(id, Some(1), None)?.event_hash();
    for (nr, &constant) in constants.iter().enumerate() {
        let begun = Instant::now();
        let Constant { kind, name } = constant;
        let tried: Result<Vec<IncidentResult>, String> =
            MOVES[1].iter().map(|&percent| result(id, Some(1), Some((constant, percent)))).collect();
        let changes = match tried {
            Ok(moved) => moved.iter().any(|moved| moved.event_hash() != usual),
            Err(message) => {
                eprintln!("{id}: {kind}.{name} cannot move: {message}");
                row.constants -= 1;
                continue;
            }
        };
        if changes {
            row.effective += 1;
            for (size, percents) in MOVES.iter().enumerate() {
                for &percent in percents {
                    row.runs[size] += 1;
                    let claims = failed(&result(id, sequences, Some((constant, percent)))?);
                    if !claims.is_empty() {
                        row.broken[size].push(Broken { constant, percent, claims });
                    }
                }
            }
        }
        let found = if changes { "runs" } else { "has no effect" };
        eprintln!("{id}: {kind}.{name} {found} ({} of {}, {:.0?})", nr + 1, constants.len(), begun.elapsed());
    }
    Ok(row)
}

/// Required claims that do not hold.
fn failed(result: &IncidentResult) -> Vec<String> {
    result.counted().filter(|claim| claim.required && !claim.held).map(|claim| claim.id.clone()).collect()
}

//! An explanation from stored events: Parquet files decoded, digests made, layers split, every rule asked. No peer does
//! this, so the limit is absolute: a second for a million events, both sides together.
//!
//! Each side is one run: direct random reads at depth 32 next to a reader of a whole file, with events of calls, pages,
//! windows, bios and requests. The candidate's read-ahead is cut, so that there is something to explain. The answer is
//! the number of events with what was found.

use super::{Aim, Figure, Setting, compare, timed};
use iowhy_lab::incident::command::plan_of_command;
use iowhy_lab::store::{EventWriter, Store};
use iowhy_stack::sim;
use iowhy_why::digest::Observer;
use iowhy_why::{Side, explain};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The random reader's calls, and those of the other one; about half a million events.
const CALLS: [usize; 2] = [45_000, 32_000];

pub(super) fn run(setting: &Setting) -> Result<Vec<Figure>, String> {
    let store = Store::open(&setting.folder.join("explain")).map_err(|error| error.to_string())?;
    let mut files = Vec::new();
    for place in ["sim:linux-6.18", "sim:linux-6.18,read_ahead_kb=16"] {
        files.push(stored(&store, setting, place)?);
    }
    let events: u64 = files.iter().map(|(_, rows)| rows).sum();
    let mut failed = None;
    let mut ours = || {
        Ok(timed(events as usize, || {
            let mut side = |label: &str, hash: &str| {
                let mut observer = Observer::default();
                if let Err(error) = store.replay(hash, &mut observer) {
                    failed = Some(error.to_string());
                }
                Side { label: label.to_owned(), runs: vec![observer.finish()], ..Side::default() }
            };
            let (a, b) = (side("a", &files[0].0), side("b", &files[1].0));
            let explanation = explain(&a, &b, None);
            let mut hasher = DefaultHasher::new();
            explanation.findings.iter().for_each(|found| found.rule.name.hash(&mut hasher));
            a.runs.iter().chain(&b.runs).for_each(|run| run.nr_events.hash(&mut hasher));
            hasher.finish()
        }))
    };
    let aim = Aim { unit: "ns/event", peer_name: "none", goal: None, limit: Some(1000.0) };
    let none = Err("no peer explains: an absolute limit".to_owned());
    let figure = compare(setting, format!("explain {events} stored events"), aim, &mut ours, none)?;
    match failed {
        Some(error) => Err(error),
        None => Ok(vec![figure]),
    }
}

/// Simulates a side and keeps its events; yields the file's hash and its rows.
fn stored(store: &Store, setting: &Setting, place: &str) -> Result<(String, u64), String> {
    let [random, sequential] = CALLS.map(|calls| calls / setting.divisor);
    let line = format!(
        "run fio --name=random --rw=randread --bs=4k --size=4g --direct=1 --ioengine=libaio --iodepth=32 \
         --number_ios={random} --name=whole --rw=read --bs=16k --size={} --on {place} --disk nvme",
        sequential << 14
    );
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let plan = plan_of_command(&words).map_err(|problems| problems.render())?;
    let mut writer = EventWriter::new(store).map_err(|error| error.to_string())?;
    sim::run_with(&plan, &mut writer).map_err(|error| error.to_string())?;
    let file = writer.finish_events().map_err(|error| error.to_string())?;
    Ok((file.hash().to_owned(), file.rows()))
}

//! Where the two sides of an explanation come from: simulated runs are made again and watched, stored ones are read.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use iowhy_stack::outcome::{Plan, RunError};
use iowhy_stack::sim;

use super::Side;
use super::digest::Observer;
use crate::incident::command::repetition;

/// Makes `runs` repetitions of a plan, from the repetition `first` on, and watches them; on as many threads as there
/// are CPUs, which changes nothing.
///
/// # Errors
/// What the simulator says.
pub fn simulate(label: &str, plan: &Plan, (first, runs): (u32, u32), done: &(dyn Fn() + Sync)) -> Result<Side, RunError> {
    let next = AtomicU32::new(0);
    let results = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(runs.max(1) as usize);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let nr = next.fetch_add(1, Ordering::Relaxed);
                    if nr >= runs {
                        return;
                    }
                    let mut observer = Observer::default();
                    let result = sim::run_with(&repetition(plan, first + nr), &mut observer);
                    let digest = result.map(|_| observer.finish());
                    results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((nr, digest));
                    done();
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_by_key(|(nr, _)| *nr);
    let runs = results.into_iter().map(|(_, digest)| digest).collect::<Result<Vec<_>, RunError>>()?;
    Ok(Side { label: label.to_owned(), runs, ..Side::default() })
}

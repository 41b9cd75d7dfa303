//! 2004: random reads through shared descriptors. Evidence: the closes of read-ahead windows and the sizes of commands.

use iowhy_stack::layers::Layers;

use super::{Checks, ClaimResult, percent};
use crate::incident::file::Claim;
use crate::incident::{IncidentResult, RowResult, Sample};
use iowhy_stats::figure::share;
use iowhy_text as text;

/// Share of single-page data reads above which "most" commands are.
const MOST: f64 = 0.5;
/// Share of single-page data reads below which there are "none". It is not zero, because whole requests can be a page
/// long where their neighbours are cached or on their way.
const NONE: f64 = 0.02;
/// Share of the window closes that may remain with one descriptor per thread.
const ALL_BUT_VANISHED: f64 = 0.025;

/// Statements about events and what checks them.
pub(in crate::incident) const CHECKS: Checks = &[("split", split), ("instruments", instruments)];

fn is_2_4(row: &RowResult) -> bool {
    row.run().is_some_and(|run| run.plan.stack.kernel.name.starts_with("linux-2.4"))
}

/// A 2.6 kernel as it was, with shared descriptors.
fn is_broken(row: &RowResult) -> bool {
    let unpatched = row.run().is_some_and(|run| run.plan.stack.patches.is_empty());
    !is_2_4(row) && unpatched && !has_own_descriptors(row)
}

fn has_own_descriptors(row: &RowResult) -> bool {
    row.run().is_some_and(|run| run.has_word("--own-descriptors"))
}

/// Single-page data reads among the read commands of all sequences.
fn small_share(row: &RowResult) -> f64 {
    share(row.sum(|layers| layers.reads.small_data), row.sum(|layers| layers.reads.issued))
}

fn split(result: &IncidentResult, _: &Claim, checked: &mut ClaimResult) {
    let mut held = true;
    let mut seen: [Vec<String>; 2] = [Vec::new(), Vec::new()];
    for row in result.rows.iter().chain(&result.extra).filter(|row| !has_own_descriptors(row)) {
        let small = small_share(row);
        let broken = is_broken(row);
        held &= if broken { small > MOST } else { small < NONE };
        seen[usize::from(broken)].push(format!("{} {}", row.id, percent(small)));
    }
    let [whole, broken] = seen;
    checked.held = held && !whole.is_empty() && !broken.is_empty();
    checked.evidence = vec![
        format!("4 KiB of data among the read commands, more than {} expected: {}", percent(MOST), broken.join(", ")),
        format!("the same, less than {} expected: {}", percent(NONE), whole.join(", ")),
    ];
}

fn instruments(result: &IncidentResult, _: &Claim, checked: &mut ClaimResult) {
    let mut held = true;
    let mut seen = Vec::new();
    for row in result.rows.iter().filter(|row| is_broken(row)) {
        let closes = row.sum(Layers::closes_total);
        let part = share(row.sum(|layers| layers.closes[0]), closes);
        held &= closes > 0 && part > MOST;
        seen.push(format!("{} {} ({})", row.id, closes / u64::from(result.sequences.max(1)), percent(part)));
    }
    held &= !seen.is_empty();
    checked.evidence.push(format!("closes a run, and how many by interleaved misses: {}", seen.join(", ")));
    let (broken, own) = (result.part("broken"), result.part("own_descriptors"));
    let vanished = match (broken, own) {
        (Some(shared), Some(own)) => {
            let left = share(own.sum(Layers::closes_total), shared.sum(Layers::closes_total));
            checked.evidence.push(format!("{}: {} of the closes of {} remain", own.id, percent(left), shared.id));
            shared.sum(Layers::closes_total) > 0 && left < ALL_BUT_VANISHED
        }
        _ => false,
    };
    checked.held = held && vanished;
}

/// The cause in words, every number from this run's own layers. The first sequence speaks: the one the program saw.
pub(in crate::incident) fn why(result: &IncidentResult) -> String {
    let first = |part: &str| {
        let row = result.part(part)?;
        row.samples().next().map(|sample| (row.id.clone(), sample))
    };
    let (Some((broken_id, broken)), Some((before_id, before))) = (first("broken"), first("before")) else {
        return String::new();
    };
    let layers = broken.layers();
    let mut words = format!(
        "Row {broken_id} sends {} to the disk where {before_id} sends {}. {} of them are single 4 KiB pages of file \
         data ({before_id}: {}): {} of the read calls that missed the cache were cut into pages that were waited for \
         one by one. ",
        text::count(layers.reads.issued, "read command", "read commands"),
        text::grouped(before.layers().reads.issued),
        percent(layers.small_read_share()),
        percent(before.layers().small_read_share()),
        percent(layers.split_share()),
    );
    words.push_str(&format!(
        "Read-ahead had turned itself off: its window was closed {} ({}) and opened again {}. ",
        text::count(layers.closes_total(), "time", "times"),
        causes(layers),
        text::count(layers.reopens, "time", "times"),
    ));
    if let Some((_, own)) = first("own_descriptors") {
        words.push_str(&format!(
            "With one descriptor per thread it closes {}, and the run takes {:.1} s instead of {:.1} s. ",
            text::count(own.layers().closes_total(), "time", "times"),
            own.elapsed_s,
            broken.elapsed_s,
        ));
    }
    if let Some((_, fixed)) = first("fixed") {
        words.push_str(&format!(
            "With a private copy of the state for each call it closes {}, {} of the read commands are single pages of \
             data, and the run takes {:.1} s. ",
            text::count(fixed.layers().closes_total(), "time", "times"),
            percent(fixed.layers().small_read_share()),
            fixed.elapsed_s,
        ));
    }
    let per_access_ms = |sample: &Sample| 1e3 * sample.elapsed_s / (sample.layers().media_accesses.max(1) as f64);
    words.push_str(&format!(
        "The time goes into disk accesses, written blocks included: {} instead of {}, at {:.1} ms of the run each \
         ({before_id}: {:.1} ms).",
        text::grouped(layers.media_accesses),
        text::grouped(before.layers().media_accesses),
        per_access_ms(broken),
        per_access_ms(before),
    ));
    words
}

/// Causes of closed windows: those that closed some, with their numbers, and then those that never did.
fn causes(layers: &Layers) -> String {
    const CAUSES: [&str; 4] = [
        "while another read was in progress on the same descriptor",
        "by one reader's own misses",
        "by cache hits",
        "by congestion",
    ];
    let (some, none): (Vec<_>, Vec<_>) = CAUSES.iter().zip(layers.closes).partition(|(_, n)| *n > 0);
    let mut words: Vec<String> = some.iter().map(|(cause, n)| format!("{} {cause}", text::grouped(*n))).collect();
    if !none.is_empty() {
        let never: Vec<&str> = none.iter().map(|(cause, _)| **cause).collect();
        words.push(format!("none {}", never.join(" or ")));
    }
    words.join(", ")
}

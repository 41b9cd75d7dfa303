//! 2012: direct writes that pay for pages left in the cache by another process.
//!
//! Evidence: the opening of the device, with the racing threads, the runs of blkid and the pages it left; they are
//! blkid's, since the program itself read nothing.

use iowhy_stack::outcome::{Outcome, ThreadTotals};

use super::{Checks, ClaimResult, gains, pairs, ratios};
use crate::incident::file::Claim;
use crate::incident::{IncidentResult, RowResult, Sample, mean};
use iowhy_stats::modes::{self, Mode};
use iowhy_text as text;

/// Checks of the claims that compare more than two rows.
pub(in crate::incident) const CHECKS: Checks = &[
    ("large-blocks", large_blocks),
    ("no-race-no-loss", no_race_no_loss),
    ("where-the-pages-are", where_the_pages_are),
    ("two-modes", two_modes),
];

/// Least and largest loss with large blocks, percent.
const LOSS_PCT: (f64, f64) = (0.5, 4.0);
/// Largest loss, percent, that counts as none: the noise of the costs.
const NO_LOSS_PCT: f64 = 0.25;
/// Largest loss where the look-up does not walk, percent.
const SMALL_LOSS_PCT: f64 = 5.0;

/// The compared pair, stale against clean, loses a little.
fn large_blocks(result: &IncidentResult, claim: &Claim, checked: &mut ClaimResult) {
    (checked.lower, checked.upper) = (Some(LOSS_PCT.0), Some(LOSS_PCT.1));
    if let [ratio] = ratios(result, claim, checked).as_slice() {
        checked.judge(100.0 * (1.0 - ratio));
        checked.spread = checked.spread.map(|(low, high)| (100.0 * (1.0 - high), 100.0 * (1.0 - low)));
    }
}

/// Pages that were in the device's cache while it was written to.
fn stale_pages(outcome: &Outcome) -> u64 {
    outcome.opening.stale_pages
}

/// Whether nothing but the probe can have brought pages in: the program read nothing, and blkid ran.
fn read_by_blkid(outcome: &Outcome) -> bool {
    outcome.layers.calls[0] == 0 && outcome.opening.probes > 0
}

/// How many repetitions of a row are so.
fn share_of(row: &RowResult, is_so: impl Fn(&Outcome) -> bool) -> (usize, usize) {
    let so = row.samples().filter(|sample| is_so(&sample.outcome)).count();
    (so, row.samples().count())
}

fn every(row: &RowResult, is_so: impl Fn(&Outcome) -> bool) -> bool {
    let (so, all) = share_of(row, is_so);
    so == all && all > 0
}

/// No row that prevents it has pages in the cache, or loses anything against the clean row. blkid ran in each, so it
/// was not merely absent.
fn no_race_no_loss(result: &IncidentResult, claim: &Claim, checked: &mut ClaimResult) {
    let changes = gains(result, claim, checked);
    let rows = pairs(result, claim, checked);
    let mut clean = !rows.is_empty();
    for (of, to) in &rows {
        for row in [of, to] {
            clean &= every(row, |outcome| stale_pages(outcome) == 0 && outcome.opening.probes > 0);
        }
        let (raced, all) = share_of(of, |outcome| outcome.opening.raced);
        let (with_pages, _) = share_of(of, |outcome| stale_pages(outcome) > 0);
        checked.evidence.push(format!("{}: {raced} of {all} runs raced, {with_pages} had pages at the end", of.id));
    }
    if let Some((row, clean)) = result.part("at_once").zip(result.part("clean")) {
        checked.evidence.push(format!(
            "dropping pages before blkid has read them does not help: {} {:+.1}%",
            row.id,
            100.0 * (result.ratio(row, clean).value - 1.0)
        ));
    }
    let largest_loss = changes.into_iter().map(|gain| -gain).fold(f64::NEG_INFINITY, f64::max);
    checked.upper = Some(NO_LOSS_PCT);
    checked.held = clean && largest_loss.is_finite() && largest_loss <= NO_LOSS_PCT;
}

/// Rows whose look-ups do not walk lose little although they have pages in the cache, where the row with pages at both
/// ends in the old kernel loses much.
fn where_the_pages_are(result: &IncidentResult, claim: &Claim, checked: &mut ClaimResult) {
    let changes = gains(result, claim, checked);
    let rows = pairs(result, claim, checked);
    let stale = rows.iter().all(|(of, to)| {
        every(of, |outcome| stale_pages(outcome) > 0 && read_by_blkid(outcome))
            && every(to, |outcome| stale_pages(outcome) == 0)
    });
    for (of, _) in &rows {
        let pages = of.samples().map(|sample| stale_pages(&sample.outcome)).min().unwrap_or(0);
        checked.evidence.push(format!("{}: at least {} in the cache", of.id, text::count(pages, "page", "pages")));
    }
    let walked = result.part("broken").zip(result.part("clean")).is_some_and(|(broken, clean)| {
        let loss = 100.0 * (1.0 - result.ratio(broken, clean).value);
        checked.evidence.push(format!("pages at both ends in the old kernel: {} loses {loss:.1}%", broken.id));
        loss > SMALL_LOSS_PCT
    });
    let largest_loss = changes.into_iter().map(|gain| -gain).fold(f64::NEG_INFINITY, f64::max);
    checked.upper = Some(SMALL_LOSS_PCT);
    checked.held = walked && stale && largest_loss.is_finite() && largest_loss < SMALL_LOSS_PCT;
}

/// Each row that leaves the race to chance has two modes, and a run is in the slow one if and only if two threads raced
/// and pages that blkid had read were in the cache. The fast mode is the row without a race.
fn two_modes(result: &IncidentResult, claim: &Claim, checked: &mut ClaimResult) {
    let rows = pairs(result, claim, checked);
    let mut held = !rows.is_empty();
    for (row, clean) in rows {
        let Some([slow, fast]) = modes::two(&row.values) else {
            checked.evidence.push(format!("{}: one mode only in {} runs", row.id, row.values.len()));
            held = false;
            continue;
        };
        let samples: Vec<&Sample> = row.samples().collect();
        let all = |mode: &Mode, is_so: &dyn Fn(&Outcome) -> bool| {
            mode.members.iter().all(|nr| samples.get(*nr).is_some_and(|sample| is_so(&sample.outcome)))
        };
        let tied = all(&slow, &|outcome| outcome.opening.raced && stale_pages(outcome) > 0 && read_by_blkid(outcome))
            && all(&fast, &|outcome| !outcome.opening.raced && stale_pages(outcome) == 0);
        let is_clean = (fast.mean / clean.simulated() - 1.0).abs() < NO_LOSS_PCT / 100.0;
        held &= tied && is_clean && slow.members.len() < fast.members.len();
        checked.evidence.push(format!("{}: {}", row.id, mode_words(&slow, &fast, row.metric.unit)));
        checked.evidence.push(format!(
            "{}: a run is slow if and only if two threads raced and pages that blkid had read were in the cache: {}",
            row.id,
            if tied { "so in every run" } else { "not so" }
        ));
    }
    checked.held = held;
}

/// `6 runs at 2387.0 (2386.1 .. 2387.9), 34 at 3800.2 (..) MB/s`.
fn mode_words(slow: &Mode, fast: &Mode, unit: &str) -> String {
    let words = |mode: &Mode| format!("{:.1} ({:.1} .. {:.1})", mode.mean, mode.min, mode.max);
    let runs = text::count(slow.members.len() as u64, "run", "runs");
    format!("{runs} at {}, {} at {} {unit}", words(slow), fast.members.len(), words(fast))
}

/// The cause in words, every number from this run.
pub(in crate::incident) fn why(result: &IncidentResult) -> String {
    let first = |part: &str| {
        let row = result.part(part)?;
        row.samples().next().map(|sample| (row, &sample.outcome))
    };
    let (Some((broken_row, broken)), Some((clean_row, clean))) = (first("broken"), first("clean")) else {
        return String::new();
    };
    // What the warm-up left out is left out here.
    let per_write = |outcome: &Outcome| {
        let one = |thread: &ThreadTotals| {
            let time = thread.end.saturating_sub(thread.start.max(outcome.counted_from));
            time.as_secs_f64() * 1e6 / thread.counts.writes.max(1) as f64
        };
        mean(outcome.threads.iter().map(one))
    };
    let mut words = format!(
        "In row {} both threads open the device at once; one finds that the other has entered it meanwhile, closes its \
         descriptor, which could have written, and opens again. The close makes the device manager run blkid, which \
         reads the device through the page cache: {} are there during the writes, because a descriptor is open all the \
         time. Every direct write looks for cached pages in its range, twice, and from a random place the old look-up \
         walks through empty slots up to the pages at the end of the device. A write takes a thread {:.2} us instead \
         of {:.2} us ({}: no race, {}). ",
        broken_row.id,
        text::count(stale_pages(broken), "page", "pages"),
        per_write(broken),
        per_write(clean),
        clean_row.id,
        text::count(stale_pages(clean), "page", "pages"),
    );
    if let Some(row) = result.part("chance")
        && let Some([slow, fast]) = modes::two(&row.values)
    {
        words.push_str(&format!(
            "With the race left to chance there are two modes: {}. ",
            mode_words(&slow, &fast, row.metric.unit)
        ));
    }
    if let Some((row, outcome)) = first("fixed") {
        words.push_str(&format!(
            "With opens in turn nobody loses a race, {} in the cache, and the rate is {:.0} {}. ",
            if stale_pages(outcome) == 0 { "no page is" } else { "pages are" },
            row.simulated(),
            row.metric.unit,
        ));
    }
    if let Some((row, outcome)) = first("start_only") {
        words.push_str(&format!(
            "If blkid reads as many pages at the start only ({}: {}), the look-up ends at once, and the rate is {:.0} \
             {}. ",
            row.id,
            text::count(stale_pages(outcome), "page", "pages"),
            row.simulated(),
            row.metric.unit,
        ));
    }
    words.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use iowhy_stack::outcome::OpeningTotals;
    use iowhy_stack::sim;

    use super::*;
    use crate::incident::claims::tests::{checked, compare, result};
    use crate::incident::{RunResult, command, metric};

    /// A repetition: its rate, whether threads raced, how often blkid ran, pages it left, and whether the program read.
    type Repetition = (f64, bool, u32, u64, bool);

    const FAST: Repetition = (100.0, false, 1, 0, false);
    const SLOW: Repetition = (60.0, true, 2, 25, false);

    /// Rows of repetitions with such a history.
    fn told(rows: &[(&str, &[Repetition])]) -> IncidentResult {
        let values: Vec<(&str, Vec<f64>)> =
            rows.iter().map(|(id, told)| (*id, told.iter().map(|one| one.0).collect())).collect();
        let borrowed: Vec<(&str, &[f64])> = values.iter().map(|(id, values)| (*id, values.as_slice())).collect();
        let mut result = result("write_mb_s", &borrowed);
        let command = "run fio --name=a --filename=/dev/a --rw=randwrite --bs=4k --size=1m --number_ios=4 --direct=1 \
                       --on sim:linux-3.2.0 --disk zero";
        let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        let plan = command::plan_of_command(&words).expect("a plan");
        let written = sim::run(&plan).expect("a run");
        for (row, (_, told)) in result.rows.iter_mut().zip(rows) {
            let sample = |(_, raced, probes, stale_pages, reads): &Repetition| {
                let mut outcome = written.clone();
                outcome.opening = OpeningTotals { raced: *raced, probes: *probes, stale_pages: *stale_pages };
                outcome.layers.calls[0] = u64::from(*reads);
                Sample { elapsed_s: 1.0, outcome }
            };
            row.runs = vec![Arc::new(RunResult {
                id: row.id.clone(),
                variant: String::new(),
                scheduler: None,
                report: String::new(),
                group: String::new(),
                command: command.to_owned(),
                note: None,
                metric: metric::find("write_mb_s").expect("a metric"),
                least_sequences: 0,
                most_sequences: u32::MAX,
                plan: plan.clone(),
                samples: told.iter().map(sample).collect(),
            })];
        }
        compare(&mut result, &[(rows[0].0, rows[1].0)]);
        let parts = [("broken", "slow"), ("clean", "clean"), ("at_once", "slow"), ("chance", "row")];
        result.scenario.why = parts.map(|(part, row)| (part.to_owned(), row.to_owned())).into();
        result
    }

    #[test]
    fn a_little_is_lost_not_nothing_and_not_much() {
        for (stale, held) in [(98.0, true), (100.0, false), (95.0, false)] {
            let mut result = result("write_mb_s", &[("clean", &[100.0]), ("stale", &[stale])]);
            compare(&mut result, &[("stale", "clean")]);
            assert_eq!(checked(&result, "kind='bound'", &[("c", large_blocks)]).held, held, "{stale}");
        }
    }

    #[test]
    fn what_prevents_it_leaves_no_page_and_loses_nothing() {
        for (name, row, held) in [
            ("no race", FAST, true),
            ("a race, and the pages dropped", (99.8, true, 2, 0, false), true),
            ("slow without pages", (98.0, false, 1, 0, false), false),
            ("pages that cost nothing", (100.0, true, 2, 25, false), false),
            ("blkid was not there", (100.0, false, 0, 0, false), false),
            ("slow", SLOW, false),
        ] {
            let result = told(&[("row", &[FAST, row]), ("clean", &[FAST, FAST]), ("slow", &[SLOW, SLOW])]);
            let checked = checked(&result, "kind='mechanism'", &[("c", no_race_no_loss)]);
            assert_eq!(checked.held, held, "{name}: {checked:?}");
        }
        let none = result("write_mb_s", &[("a", &[1.0])]);
        assert!(!checked(&none, "kind='mechanism'", &[("c", no_race_no_loss)]).held, "no rows");
    }

    #[test]
    fn pages_that_no_look_up_walks_to_cost_little() {
        for (name, row, slow, held) in [
            ("a little lost", (97.0, true, 2, 25, false), SLOW, true),
            ("too much lost", (94.0, true, 2, 25, false), SLOW, false),
            ("no pages there", (97.0, true, 2, 0, false), SLOW, false),
            ("the program read", (97.0, true, 2, 25, true), SLOW, false),
            ("nothing lost anywhere", (97.0, true, 2, 25, false), (97.0, true, 2, 25, false), false),
        ] {
            let result = told(&[("row", &[row, row]), ("clean", &[FAST, FAST]), ("slow", &[slow, slow])]);
            let checked = checked(&result, "kind='mechanism'", &[("c", where_the_pages_are)]);
            assert_eq!(checked.held, held, "{name}: {checked:?}");
        }
    }

    #[test]
    fn modes_are_told_apart_and_tied_to_the_pages() {
        let near = |rate: f64, one: Repetition| (rate, one.1, one.2, one.3, one.4);
        let with = |slow: [Repetition; 2], fast: Repetition| {
            [fast, near(100.1, FAST), slow[0], FAST, near(99.9, FAST), slow[1], FAST, FAST]
        };
        for (name, row, held) in [
            ("two modes", with([SLOW, near(60.2, SLOW)], FAST), true),
            ("one mode", with([FAST, FAST], FAST), false),
            ("one slow run", with([SLOW, FAST], FAST), false),
            ("a slow run without pages", with([SLOW, (60.0, true, 2, 0, false)], FAST), false),
            ("a slow run without a race", with([SLOW, (60.0, false, 1, 25, false)], FAST), false),
            ("a slow run that read by itself", with([SLOW, (60.0, true, 2, 25, true)], FAST), false),
            ("a fast run with pages", with([SLOW, SLOW], (100.0, true, 2, 25, false)), false),
            ("both modes slower than the clean row", with([SLOW, SLOW], FAST).map(|one| near(one.0 * 0.9, one)), false),
        ] {
            let result = told(&[("row", &row), ("clean", &[FAST; 8]), ("slow", &[SLOW; 8])]);
            let checked = checked(&result, "kind='mechanism'", &[("c", two_modes)]);
            assert_eq!(checked.held, held, "{name}: {checked:?}");
        }
    }

    #[test]
    fn the_cause_is_told_with_the_numbers_of_the_runs() {
        let row = [FAST, FAST, SLOW, FAST, FAST, SLOW, FAST, FAST];
        let result = told(&[("row", &row), ("clean", &[FAST; 8]), ("slow", &[SLOW; 8])]);
        let words = why(&result);
        for part in ["In row slow", "25 pages are there", "2 runs at 60.0 (60.0 .. 60.0), 6 at 100.0"] {
            assert!(words.contains(part), "no `{part}` in {words}");
        }
        assert_eq!(why(&crate::incident::claims::tests::result("write_mb_s", &[])), "");
    }
}

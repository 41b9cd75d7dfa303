//! Claims: what was published against what was simulated, and what the events say about the cause.

use iowhy_stack::layers::Layers;

use super::file::Claim;
use super::{IncidentResult, RowResult, Sample, extremes, mean};
use crate::measure::share;
use crate::text;

/// A claim that was checked.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimResult {
    /// Its name.
    pub id: String,
    /// `order`, `ratio`, `bound` or `mechanism`.
    pub kind: String,
    /// In words.
    pub text: String,
    /// Whether the incident fails without it.
    pub required: bool,
    /// The published number, if the claim is about one.
    pub published: Option<f64>,
    /// The simulated number.
    pub simulated: Option<f64>,
    /// Smallest and largest of the sequences.
    pub spread: Option<(f64, f64)>,
    /// Least value that counts as shown.
    pub lower: Option<f64>,
    /// Largest value that counts as shown.
    pub upper: Option<f64>,
    /// Whether it is shown.
    pub held: bool,
    /// What was seen, row by row where the claim is about several.
    pub evidence: Vec<String>,
}

/// Share of single-page data reads above which "most" commands are.
const MOST: f64 = 0.5;
/// Share of single-page data reads below which there are "none". It is not zero, because whole requests can be a page
/// long where their neighbours are cached or on their way.
const NONE: f64 = 0.02;
/// Share of the window closes that may remain with one descriptor per thread.
const ALL_BUT_VANISHED: f64 = 0.05;

/// Checks every claim of the incident.
pub fn check(result: &IncidentResult) -> Vec<ClaimResult> {
    result.incident.claims.iter().map(|claim| check_one(result, claim)).collect()
}

fn check_one(result: &IncidentResult, claim: &Claim) -> ClaimResult {
    let mut checked = ClaimResult {
        id: claim.id.clone(),
        kind: claim.kind.clone(),
        text: claim.text.clone().unwrap_or_default(),
        required: claim.required,
        published: claim.published.map(super::file::Published::value),
        simulated: None,
        spread: None,
        lower: claim.min,
        upper: claim.max,
        held: false,
        evidence: Vec::new(),
    };
    match claim.kind.as_str() {
        "order" => order(result, claim, &mut checked),
        "ratio" | "bound" => ratio(result, claim, &mut checked),
        "mechanism" => match MECHANISMS.iter().find(|(id, _)| *id == claim.id) {
            Some((_, check)) => check(result, &mut checked),
            None => checked.evidence.push("nothing checks this yet".to_owned()),
        },
        other => checked.evidence.push(format!("claims of kind `{other}` are not checked yet")),
    }
    checked
}

fn order(result: &IncidentResult, claim: &Claim, checked: &mut ClaimResult) {
    let rows: Vec<&RowResult> = claim.rows.iter().filter_map(|id| result.row(id)).collect();
    if checked.text.is_empty() {
        checked.text = format!("{} take less time in this order", claim.rows.join(", "));
    }
    let decreasing = |values: Vec<f64>| values.windows(2).all(|pair| pair[0] > pair[1]);
    checked.held = rows.len() == claim.rows.len() && decreasing(rows.iter().map(|row| row.mean_s()).collect());
    let in_order = (0..result.sequences as usize)
        .filter(|nr| decreasing(rows.iter().filter_map(|row| row.samples.get(*nr)).map(|s| s.elapsed_s).collect()))
        .count();
    let means: Vec<String> = rows.iter().map(|row| format!("{} {:.1} s", row.id, row.mean_s())).collect();
    checked.evidence.push(means.join(" > "));
    checked.evidence.push(format!("in this order in {in_order} of {} sequences", result.sequences));
}

fn ratio(result: &IncidentResult, claim: &Claim, checked: &mut ClaimResult) {
    let (Some(of), Some(to)) = (&claim.of, &claim.to) else {
        checked.evidence.push("the claim names no rows".to_owned());
        return;
    };
    if checked.text.is_empty() {
        checked.text = format!("time of {of} as a multiple of {to}");
    }
    let (Some(of), Some(to)) = (result.row(of), result.row(to)) else {
        checked.evidence.push("a row it names does not exist".to_owned());
        return;
    };
    if let (Some(published), Some(tolerance)) = (checked.published, claim.tolerance_pct) {
        checked.lower = Some(published * (1.0 - tolerance / 100.0));
        checked.upper = Some(published * (1.0 + tolerance / 100.0));
    }
    let ratios = of.ratios(to);
    let simulated = mean(ratios.iter().copied());
    checked.simulated = Some(simulated);
    checked.spread = Some(extremes(ratios.into_iter()));
    let bounded = checked.lower.is_some() || checked.upper.is_some();
    checked.held = bounded
        && checked.lower.is_none_or(|lower| simulated >= lower)
        && checked.upper.is_none_or(|upper| simulated <= upper);
}

type Check = fn(&IncidentResult, &mut ClaimResult);

/// Statements about events and what checks them.
const MECHANISMS: &[(&str, Check)] = &[("split", split), ("instruments", instruments)];

fn is_2_4(row: &RowResult) -> bool {
    row.plan.stack.kernel.name.starts_with("linux-2.4")
}

/// A 2.6 kernel as it was, with shared descriptors.
fn is_broken(row: &RowResult) -> bool {
    !is_2_4(row) && row.plan.stack.patches.is_empty() && !row.plan.job.fileio().is_some_and(|fileio| fileio.own_descriptors)
}

/// Single-page data reads among the read commands of all sequences.
fn small_share(row: &RowResult) -> f64 {
    share(row.sum(|layers| layers.reads.small_data), row.sum(|layers| layers.reads.issued))
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        small if small > 0.0 && small < 0.05 => "under 0.1%".to_owned(),
        small if small > 0.0 && small < 10.0 => format!("{small:.1}%"),
        percent => format!("{percent:.0}%"),
    }
}

fn split(result: &IncidentResult, checked: &mut ClaimResult) {
    let mut held = true;
    let mut seen: [Vec<String>; 2] = [Vec::new(), Vec::new()];
    for row in result.rows.iter().chain(&result.extra).filter(|row| !row.plan.job.fileio().is_some_and(|fileio| fileio.own_descriptors)) {
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

fn instruments(result: &IncidentResult, checked: &mut ClaimResult) {
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
    let why = &result.scenario.why;
    let pair = (result.row(&why.broken), result.row(&why.own_descriptors));
    let vanished = match pair {
        (Some(shared), Some(own)) => {
            let (shared, own) = (shared.sum(Layers::closes_total), own.sum(Layers::closes_total));
            let left = share(own, shared);
            checked.evidence.push(format!(
                "{}: {} of the closes of {} remain",
                why.own_descriptors,
                percent(left),
                why.broken
            ));
            shared > 0 && left < ALL_BUT_VANISHED
        }
        _ => false,
    };
    checked.held = held && vanished;
}

/// The cause in words, every number from this run's own layers. The first sequence speaks: the one the program saw.
pub fn why(result: &IncidentResult) -> String {
    let why = &result.scenario.why;
    let first = |id: &str| result.row(id).and_then(|row| row.samples.first()).map(|sample| (id.to_owned(), sample));
    let (Some((broken_id, broken)), Some((before_id, before))) = (first(&why.broken), first(&why.before)) else {
        return String::new();
    };
    let layers = &broken.layers;
    let mut words = format!(
        "Row {broken_id} sends {} to the disk where {before_id} sends {}. {} of them are single 4 KiB pages of file \
         data ({before_id}: {}): {} of the read calls that missed the cache were cut into pages that were waited for \
         one by one. ",
        text::count(layers.reads.issued, "read command", "read commands"),
        text::grouped(before.layers.reads.issued),
        percent(layers.small_read_share()),
        percent(before.layers.small_read_share()),
        percent(layers.split_share()),
    );
    words.push_str(&format!(
        "Read-ahead had turned itself off: its window was closed {} ({}) and opened again {}. ",
        text::count(layers.closes_total(), "time", "times"),
        causes(layers),
        text::count(layers.reopens, "time", "times"),
    ));
    if let Some((_, own)) = first(&why.own_descriptors) {
        words.push_str(&format!(
            "With one descriptor per thread it closes {}, and the run takes {:.1} s instead of {:.1} s. ",
            text::count(own.layers.closes_total(), "time", "times"),
            own.elapsed_s,
            broken.elapsed_s,
        ));
    }
    if let Some((_, fixed)) = first(&why.fixed) {
        words.push_str(&format!(
            "With a private copy of the state for each call it closes {}, {} of the read commands are single pages of \
             data, and the run takes {:.1} s. ",
            text::count(fixed.layers.closes_total(), "time", "times"),
            percent(fixed.layers.small_read_share()),
            fixed.elapsed_s,
        ));
    }
    let per_access_ms = |sample: &Sample| 1e3 * sample.elapsed_s / (sample.layers.media_accesses.max(1) as f64);
    words.push_str(&format!(
        "The time goes into disk accesses, written blocks included: {} instead of {}, at {:.1} ms of the run each \
         ({before_id}: {:.1} ms).",
        text::grouped(layers.media_accesses),
        text::grouped(before.layers.media_accesses),
        per_access_ms(broken),
        per_access_ms(before),
    ));
    words
}

/// What closed the windows: the causes that did, with their numbers, and then those that never did.
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

//! Every percent of the tables of 2018 comes out again from the figures beside it, within what rounding may do.

use iowhy_stats::Better;
use iowhy_stats::mmtests::gain_pct;

const TABLES: &str = include_str!("data/2018-readahead-window.txt");
/// Half of the last digit of figures and percents.
const HALF: f64 = 0.005;

/// Value and percent of each column of a row: `81079.98 (  0.11%)`.
fn cells(row: &str) -> Vec<(f64, f64)> {
    let number = |word: &str| word.trim().parse::<f64>().expect("a figure");
    let cell = |part: &str| {
        let (before, percent) = part.rsplit_once('(').expect("a percent");
        (number(before.split_whitespace().next_back().expect("a value")), number(percent))
    };
    row.split_terminator("%)").map(cell).collect()
}

#[test]
fn every_percent_follows_from_the_figures_beside_it() {
    let mut nr_percents = 0;
    for row in TABLES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        // mmtests chooses the mean by the direction: rates have the harmonic one.
        let better = if row.starts_with("Hmean") { Better::Higher } else { Better::Lower };
        let cells = cells(row);
        assert_eq!(cells.len(), 2, "{row}");
        let (base, percent) = cells[0];
        assert_eq!(percent, 0.0, "the base against itself: {row}");
        assert_eq!(gain_pct(base, base, better), 0.0);
        let (new, percent) = cells[1];
        // The report had more digits: any of these may have been the figures.
        let ends = [base - HALF, base + HALF].into_iter().flat_map(|base| {
            let ends = [new - HALF, new + HALF];
            ends.map(|new| gain_pct(base, new, better))
        });
        let (low, high) = ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
        let ours = gain_pct(base, new, better);
        assert!(low <= ours && ours <= high || base == 0.0, "{row}");
        let within = low - HALF <= percent && percent <= high + HALF;
        // Of nothing there is no percent but the one that says no change.
        assert!(within || base == 0.0 && new == 0.0 && percent == 0.0, "{row}: {ours}, {low} .. {high}");
        nr_percents += cells.len();
    }
    assert_eq!(nr_percents, 100, "the tables are complete");
}

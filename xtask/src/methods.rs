//! `methods`: how often comparisons are wrong, as a table in docs/METHODS.md.

use crate::{Outcome, renew};
use iowhy_compare::trials::{SOURCES, Share, Trial, false_modes, second_mode, trial};
use iowhy_compare::{Adjust, Settings};
use iowhy_stats::autocorrelation::Order;
use iowhy_text::part::Part;
use std::fmt::Write;

/// The place of the tables.
const TABLES: Part = Part { command: "cargo xtask methods" };
/// Comparisons of each row.
const TIMES: u64 = 2_000;
/// Runs on each side.
const SIZES: &[usize] = &[5, 10, 20, 40];

/// Runs the trials and writes the table.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    if !arguments.is_empty() {
        return Err("methods takes no arguments".to_owned());
    }
    renew("METHODS.md", TABLES, &tables())
}

fn settings(alpha: f64) -> Settings {
    Settings { alpha, adjust: Adjust::Discoveries, detail: false, draws: 999, ..Settings::default() }
}

/// A share with its interval at 95 %.
fn shown(share: Share) -> String {
    let (low, high) = share.ci_pct();
    format!("{:.2} % [{low:.2} .. {high:.2}]", share.pct())
}

fn tables() -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_tables(&mut out);
    out
}

fn write_tables(out: &mut String) -> std::fmt::Result {
    writeln!(out, "Each row: {TIMES} comparisons; in brackets the exact interval at 95 %.\n")?;
    writeln!(out, "**Nothing differs.** An alarm is any regression or improvement.\n")?;
    writeln!(out, "| samples | runs | alpha | false alarms | intervals that hold zero | bounded |")?;
    writeln!(out, "| --- | --- | --- | --- | --- | --- |")?;
    for source in SOURCES {
        for n in SIZES {
            for alpha in [0.01, 0.05] {
                eprintln!("methods: {} {n} {alpha}", source.name);
                let Trial { found, covered, bounded, .. } = trial(source, *n, 0.0, &settings(alpha), TIMES);
                writeln!(
                    out,
                    "| {} ({}) | {n} + {n} | {alpha} | {} | {} | {:.1} % |",
                    source.name,
                    source.summary,
                    shown(found),
                    shown(covered),
                    bounded.pct()
                )?;
            }
        }
    }
    for source in SOURCES.iter().filter(|source| source.name == "autocorrelated") {
        let known = Settings { order: Order::Serial, ..settings(0.01) };
        let Trial { found, covered, bounded, .. } = trial(source, 10, 0.0, &known, TIMES);
        writeln!(
            out,
            "| {}, and `--order serial` says so | 10 + 10 | 0.01 | {} | {} | {:.1} % |",
            source.name,
            shown(found),
            shown(covered),
            bounded.pct()
        )?;
    }
    writeln!(out, "\n**B is larger.** `found`: the verdict names the direction. alpha is 0.01, the margin 1 %.\n")?;
    writeln!(out, "| samples | runs | change | found | the other direction | intervals that hold it |")?;
    writeln!(out, "| --- | --- | --- | --- | --- | --- |")?;
    for (source, n, change) in
        [(0, 10, 5.0), (0, 10, 2.0), (0, 40, 2.0), (1, 40, 20.0), (2, 20, 5.0), (4, 40, 5.0), (5, 10, 5.0)]
    {
        let source = &SOURCES[source];
        eprintln!("methods: {} {n} {change}", source.name);
        let Trial { found, wrong, covered, .. } = trial(source, n, change, &settings(0.01), TIMES);
        writeln!(
            out,
            "| {} | {n} + {n} | {change} % | {} | {} | {} |",
            source.name,
            shown(found),
            shown(wrong),
            shown(covered)
        )?;
    }
    writeln!(out, "\n**Modes.** One mode that is taken for more, and a second mode that is found.\n")?;
    writeln!(out, "| samples | runs | more than one mode |\n| --- | --- | --- |")?;
    for source in SOURCES.iter().filter(|source| source.name != "two modes") {
        for n in [20, 40, 200] {
            writeln!(out, "| {} | {n} | {} |", source.name, shown(false_modes(source, n, 0.01, TIMES)))?;
        }
    }
    for (n, second, level) in [(20, 0.3, 0.63), (40, 0.2, 0.63), (40, 0.2, 0.9), (40, 0.3, 0.8)] {
        let share = second_mode(n, second, level, 0.01, TIMES);
        let name = format!("{:.0} % of the runs at {level} of the others, CV 2 %", 100.0 * second);
        writeln!(out, "| {name} | {n} | {} |", shown(share))?;
    }
    Ok(())
}

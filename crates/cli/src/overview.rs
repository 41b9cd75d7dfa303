//! The first screen: what fits this machine, and all verbs in groups.

use std::fmt::Write;

use clap::{Command, CommandFactory};
use iowhy_live::doctor::{self, Has};
use iowhy_text as text;

use crate::Arguments;

/// Verbs by what people want; a test holds each verb to one group.
const GROUPS: &[(&str, &[&str])] = &[
    ("Diagnose", &["doctor", "why", "tune", "trace", "explain", "report", "bisect"]),
    ("Compare", &["run", "compare", "check", "history", "calibrate"]),
    ("Simulate", &["incident", "sweep", "models", "disk", "conform"]),
    ("Drop-ins", &["fio", "sysbench"]),
    ("Housekeeping", &["store", "mcp"]),
];

/// Options of every verb, with a line for each.
const GLOBAL: &[(&str, &str)] = &[
    ("--json", "one JSON object on standard output, errors too"),
    ("--color WHEN", "auto, always or never; NO_COLOR is heeded"),
    ("--quiet", "neither progress nor warnings"),
    ("--brief", "the answer without its details"),
    ("--allow-write PATH", "overwrite files that iowhy did not create"),
];

/// Two examples of each verb whose help has no others; the test `every_verb_has_two_examples_that_run` runs them.
const EXAMPLES: &[(&str, [&str; 2])] = &[
    ("doctor", ["iowhy doctor", "iowhy doctor --brief /tmp"]),
    (
        "trace",
        ["iowhy trace record -o copy.parquet -- dd if=big of=/dev/null bs=1M", "iowhy trace stat before.parquet"],
    ),
    ("compare", ["iowhy compare base new", "iowhy compare --samples old.txt new.txt"]),
    ("check", ["iowhy check --baseline base --max-regression 5%", "iowhy check --samples old.txt new.txt --github"]),
    ("history", ["iowhy history --metric elapsed_s", "iowhy history --samples new.txt"]),
    ("incident", ["iowhy incident list", "iowhy incident 2012-plugged-readahead --report plug.html"]),
    ("models", ["iowhy models device", "iowhy models elevator bfq"]),
    ("sweep", ["iowhy sweep grid.toml -o swept", "iowhy sweep grid.toml -o swept --shard 1/8 --json"]),
    ("disk", ["iowhy disk create --model ide-2004 --size 1G --name example", "iowhy disk remove example"]),
    ("conform", ["iowhy conform --live --job jobs/seq-read.fio", "iowhy conform --live -- wc before.parquet"]),
    ("store", ["iowhy store list", "iowhy store show base"]),
    ("mcp", ["iowhy mcp", "iowhy mcp --allow-changes"]),
];

/// The command line, with the examples in the help of its verbs.
pub(crate) fn command() -> Command {
    EXAMPLES.iter().fold(Arguments::command(), |command, (verb, examples)| {
        command.mut_subcommand(verb, |verb| {
            let more = verb.get_after_help().map_or(String::new(), |more| format!("\n\n{more}"));
            verb.after_help(format!("Examples:\n  {}{more}", examples.join("\n  ")))
        })
    })
}

/// Where the second column begins.
const COLUMN: usize = 20;

/// The screen, with what this machine allows.
pub(crate) fn screen(bold: fn(&str) -> String) -> String {
    let mut out = String::from("iowhy explains why storage I/O got slower.\n\n");
    let _ = writeln!(out, "{}", bold("On this machine"));
    for purpose in doctor::purposes() {
        let words =
            if purpose.has == Has::Yes { purpose.command.to_owned() } else { format!("no: {}", purpose.advice) };
        out.push_str(&text::item(purpose.name, &words, COLUMN));
    }
    out.push_str(&text::item("", "`iowhy doctor` has the details", COLUMN));
    out + &groups(&command(), bold)
}

/// The verbs in groups, and what holds for all of them.
pub(crate) fn groups(command: &Command, bold: fn(&str) -> String) -> String {
    let mut out = String::new();
    for (title, verbs) in GROUPS {
        let _ = writeln!(out, "\n{}", bold(title));
        for verb in *verbs {
            let about = command.find_subcommand(verb).and_then(Command::get_about).map(ToString::to_string);
            out.push_str(&text::item(verb, &about.unwrap_or_default(), COLUMN));
        }
    }
    let _ = writeln!(out, "\n{}", bold("Options of every verb"));
    for (option, help) in GLOBAL {
        out.push_str(&text::item(option, help, COLUMN));
    }
    out.push_str("\n`iowhy VERB --help` has options and examples of a verb.\n\n");
    for line in text::wrap(EXIT_CODES, text::width()) {
        let _ = writeln!(out, "{line}");
    }
    out
}

pub(crate) const EXIT_CODES: &str = "Exit codes: 0 fine, 1 a regression or a failed check, 2 a usage or input error, \
    3 not enough evidence, 4 done but not cleaned up, 5 a machine failure (disk full, I/O error), 129, 130 or 143 \
    ended by a signal.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_is_in_one_group() {
        let command = Arguments::command();
        let mut verbs: Vec<&str> =
            command.get_subcommands().filter(|it| !it.is_hide_set()).map(Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter().copied()).collect();
        verbs.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(verbs, grouped);
    }
}

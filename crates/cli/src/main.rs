//! The `iowhy` command: reads the command line, shows progress, prints what the laboratory returns.

mod bisect;
mod calibrate;
mod check;
mod compare;
mod conform;
mod disk;
mod doctor;
mod explain;
mod fio;
mod generate;
mod history;
mod incident;
mod models;
mod output;
mod report;
mod run;
mod store;
mod sysbench;
mod trace;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use output::Exit;

/// Explain why storage I/O got slower.
#[derive(Parser)]
#[command(name = "iowhy", version, arg_required_else_help = true)]
#[command(about = "Explain why storage I/O got slower: run a workload through models of the Linux\n\
    I/O path, kernels 2.4 to 6.18, and count the work of every layer.")]
#[command(after_help = "Exit codes: 0 fine, 1 a regression or a failed check, 2 a usage or input\n    \
    error, 3 not enough evidence, 4 done but not cleaned up, 5 a machine failure\n    \
    (disk full, I/O error), 129, 130 or 143 ended by a signal.\n\
    --allow-write PATH lets any verb overwrite files that iowhy did not create.\n\
    Start with: iowhy incident 2004-random-read-split")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    /// Exit as `git bisect run` wants it: 1 bad, 125 cannot tell, 128 a mistake
    #[arg(long, global = true, hide = true)]
    bisect_exit: bool,
    /// Write to PATH, or in it, whatever it holds
    #[arg(long, global = true, hide = true, value_name = "PATH")]
    allow_write: Vec<std::path::PathBuf>,
}

#[derive(Subcommand)]
enum Verb {
    /// Run published incidents in the simulator and check their claims
    Incident(incident::Arguments),
    /// List kernels, patches, policies and devices; sources and tunables
    Models(models::Arguments),
    /// Run sysbench's file test; its help: `iowhy sysbench fileio help`
    #[command(disable_help_flag = true)]
    Sysbench {
        /// Options and commands as sysbench takes them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Run fio job files or built-in jobs; their help: `iowhy run --help`
    #[command(disable_help_flag = true)]
    Run {
        /// Jobs and options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Run fio's jobs on the running kernel; help: `iowhy fio --help`
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Fio {
        /// Job files and options as fio takes them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Compare two sets of runs: regression, improvement, or the same
    Compare(compare::Arguments),
    /// Explain why one set of runs is slower than another
    Explain(explain::Arguments),
    /// Write the explanation as one HTML page
    Report(report::Arguments),
    /// Find the change that made it slow: between two kernels, or commits
    Bisect(bisect::Arguments),
    /// Fail if runs are worse than a baseline: the gate for CI
    Check(check::Arguments),
    /// Find changes of metrics over the runs in the store
    History(history::Arguments),
    /// Measure this machine's false-alarm rate with equal runs
    Calibrate(calibrate::Arguments),
    /// List, show, tag, merge and export stored runs
    Store(store::Arguments),
    /// Create, change, crash and remove modelled disks
    Disk(disk::Arguments),
    /// Check capabilities, noise and leftovers
    Doctor(doctor::Arguments),
    /// Trace every layer of the running kernel: record, convert, count
    Trace(trace::Arguments),
    /// Check the models against recorded vectors, or the running kernel
    Conform(conform::Arguments),
    /// Write man pages and completions; complete a command line
    #[command(hide = true)]
    Generate(generate::Arguments),
}

fn main() -> ExitCode {
    if iowhy_live::guest::is_init() {
        iowhy_live::guest::init();
    }
    // A mistake must not look like a bad commit; where the words cannot be read it is only seen that they are there.
    let words: Vec<OsString> = std::env::args_os().skip(1).take_while(|word| word != "--").collect();
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    let bisection = has("--bisect-exit") || words.first().is_some_and(|verb| verb == "bisect") && has("--git");
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if bisection && error.use_stderr() => {
            output::complain(&error.render().to_string());
            return Exit::Abort.code();
        }
        Err(error) => error.exit(),
    };
    let bisection = arguments.bisect_exit || bisection;
    if bisection {
        // The exit code of a panic, 101, would be one.
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            report(panic);
            std::process::exit(128);
        }));
    }
    if !arguments.allow_write.is_empty() {
        iowhy_live::guard::allow_everywhere(arguments.allow_write);
    }
    let exit = match arguments.verb {
        Verb::Incident(arguments) => incident::run(&arguments),
        Verb::Models(arguments) => models::run(&arguments),
        Verb::Sysbench { arguments } => sysbench::run(&arguments),
        Verb::Run { arguments } => run::run(&arguments),
        Verb::Fio { arguments } => fio::run(&arguments),
        Verb::Compare(arguments) => compare::run(&arguments),
        Verb::Explain(arguments) => explain::run(&arguments),
        Verb::Report(arguments) => report::run(&arguments),
        Verb::Bisect(arguments) => bisect::run(&arguments),
        Verb::Check(arguments) => check::run(&arguments),
        Verb::History(arguments) => history::run(&arguments),
        Verb::Calibrate(arguments) => calibrate::run(&arguments),
        Verb::Store(arguments) => store::run(&arguments),
        Verb::Disk(arguments) => disk::run(&arguments),
        Verb::Doctor(arguments) => doctor::run(&arguments),
        Verb::Trace(arguments) => trace::run(&arguments),
        Verb::Conform(arguments) => conform::run(&arguments),
        Verb::Generate(arguments) => generate::run(&arguments),
    };
    let exit = exit.unwrap_or_else(|error| {
        let mut message = String::new();
        for cause in error.chain().map(ToString::to_string) {
            // Some errors quote their cause themselves.
            if !message.contains(&cause) {
                message.push_str(if message.is_empty() { "" } else { ": " });
                message.push_str(&cause);
            }
        }
        output::complain(&format!("error: {message}\n"));
        Exit::of_error(&error)
    });
    iowhy_live::guard::note_devices();
    let stuck = iowhy_live::ledger::stuck();
    for words in &stuck {
        output::complain(&format!("warning: {words}\n"));
    }
    let exit = exit.with(iowhy_live::signal::exit_code(), !stuck.is_empty());
    if bisection { exit.for_bisection().code() } else { exit.code() }
}

//! The `iowhy` command: reads the command line, shows progress, prints what the laboratory returns.

mod conform;
mod incident;
mod models;
mod output;
mod sysbench;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use output::Exit;

/// Tells why storage I/O got slower: runs a workload through models of the Linux I/O path of many kernels and says what
/// every layer did.
#[derive(Parser)]
#[command(name = "iowhy", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 fine, 1 a check failed, 2 a mistake in what was asked for.\n\
    Start with: iowhy incident 2004-random-read-split")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run published incidents in the simulator and check what must be shown
    Incident(incident::Arguments),
    /// List kernels, patches, policies and devices with their sources and tunables
    Models(models::Arguments),
    /// sysbench's file test, with its own options: `iowhy sysbench fileio help`
    #[command(disable_help_flag = true)]
    Sysbench {
        /// Options and commands as sysbench takes them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Check the models against vectors recorded from kernels
    Conform {
        /// Folder with <kernel>.json files
        #[arg(long, value_name = "DIR")]
        golden: PathBuf,
        /// One JSON object instead of a table
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    let exit = match Arguments::parse().verb {
        Verb::Incident(arguments) => incident::run(&arguments),
        Verb::Models(arguments) => models::run(&arguments),
        Verb::Sysbench { arguments } => sysbench::run(&arguments),
        Verb::Conform { golden, json } => conform::run(&golden, json),
    };
    exit.unwrap_or_else(|error| {
        let mut message = error.to_string();
        for cause in error.chain().skip(1).map(ToString::to_string) {
            // Some errors quote their cause themselves.
            if !message.contains(&cause) {
                message.push_str(&format!(": {cause}"));
            }
        }
        output::complain(&format!("error: {message}\n"));
        Exit::Usage
    })
    .code()
}

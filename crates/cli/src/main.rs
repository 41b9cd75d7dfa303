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
mod mcp;
mod models;
mod output;
mod overview;
mod report;
mod run;
mod store;
mod sweep;
mod sysbench;
mod trace;
mod tune;
mod why;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ColorChoice, FromArgMatches, Parser, Subcommand};
use iowhy_text::diagnose::Problem;

use output::{Exit, Look};

/// Explain why storage I/O got slower.
#[derive(Parser)]
#[command(name = "iowhy", version)]
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
    /// Explain one side alone: where its time goes, and what would help
    Why(why::Arguments),
    /// Find the best safe settings for a job that can be repeated
    Tune(tune::Arguments),
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
    /// Simulate a job at every combination of places, options and seeds
    Sweep(sweep::Arguments),
    /// Serve the verbs as tools for programs and agents (MCP)
    Mcp(mcp::Arguments),
    /// Write man pages and completions; complete a command line
    #[command(hide = true)]
    Generate(generate::Arguments),
}

/// Verbs that are other programs' command lines, with those programs' options.
const DROP_INS: [&str; 2] = ["fio", "sysbench"];

/// Takes the options of every verb out of the words, wherever they stand; not from behind `--`, nor from the command
/// lines of other programs. Yields the look of the output, or the mistake.
fn look(words: &mut Vec<OsString>) -> Result<Look, Problem> {
    let mut look = Look::default();
    own_last_word(words);
    let is_drop_in = |word: &OsString| DROP_INS.iter().any(|name| word == name);
    let mut end = words.iter().position(|word| word == "--" || is_drop_in(word)).unwrap_or(words.len());
    look.json = words[..end].iter().any(|word| word == "--json");
    let mut at = 0;
    while at < end {
        let word = words[at].to_string_lossy().into_owned();
        let mut taken = 1;
        match word.as_str() {
            "--quiet" => look.quiet = true,
            "--brief" => look.brief = true,
            "--color" | "--colour" => {
                let value = words.get(at + 1).map(|value| value.to_string_lossy().into_owned());
                look.colour = colour(value.as_deref().unwrap_or_default())?;
                taken = 2.min(words.len() - at);
            }
            word if word.starts_with("--color=") || word.starts_with("--colour=") => {
                look.colour = colour(word.split_once('=').map_or("", |(_, value)| value))?;
            }
            _ => taken = 0,
        }
        words.drain(at..at + taken);
        end = end.saturating_sub(taken);
        at += usize::from(taken == 0);
    }
    Ok(look)
}

/// A `--json` at the very end of `why -- COMMAND` is ours: programs that add it to any verb add it there.
fn own_last_word(words: &mut Vec<OsString>) {
    let verb = words.iter().position(|word| !word.to_string_lossy().starts_with('-'));
    let command = words.iter().position(|word| word == "--");
    if let (Some(verb), Some(command)) = (verb, command)
        && words[verb] == "why"
        && verb < command
        && words.len() > command + 2
        && words.last().is_some_and(|word| word == "--json")
    {
        words.pop();
        words.insert(verb + 1, "--json".into());
    }
}

fn colour(word: &str) -> Result<Option<bool>, Problem> {
    match word {
        "auto" => Ok(None),
        "always" => Ok(Some(true)),
        "never" => Ok(Some(false)),
        _ => Err(Problem::error(format!("`--color` takes auto, always or never, not `{word}`"))),
    }
}

/// `help VERB` is `VERB --help`; the other words stay.
fn help_of_verb(words: &mut Vec<OsString>) {
    if words.first().is_some_and(|word| word == "help") && words.len() > 1 {
        words.remove(0);
        words.push("--help".into());
    }
}

/// The command line; or how it ends here: help and versions are printed, mistakes reported.
fn parse(words: &[OsString], bisection: bool) -> Result<Arguments, Exit> {
    let colours = if output::bold()("").is_empty() { ColorChoice::Never } else { ColorChoice::Always };
    let command = overview::command().term_width(iowhy_text::width()).color(colours);
    let screen = overview::groups(&command, output::bold());
    let about = "Explain why storage I/O got slower: run a workload on the running kernel or\nin a model of its I/O \
                 path, compare two sides, name the mechanism, and prove it.\n";
    let command = command.override_help(format!("{about}{screen}"));
    let named = std::iter::once(OsString::from("iowhy")).chain(compare::sides(words));
    let error = match command.try_get_matches_from(named).and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => return Ok(arguments),
        Err(error) => error,
    };
    if !error.use_stderr() {
        let text = error.render();
        let text = if output::bold()("").is_empty() { text.to_string() } else { text.ansi().to_string() };
        // A reader that has gone away has seen enough.
        let _ = output::print(&text);
        return Err(Exit::Fine);
    }
    let text = error.render().to_string();
    let mut problem = Problem::error(text.trim_start_matches("error: ").trim_end().to_owned());
    let verb = words.first().map(|verb| verb.to_string_lossy().into_owned()).unwrap_or_default();
    // The first words of a job look like one name too many, or like an option of the verb.
    let misread =
        matches!(error.kind(), ErrorKind::TooManyValues | ErrorKind::UnknownArgument | ErrorKind::InvalidValue);
    let takes_job = matches!(verb.as_str(), "explain" | "report");
    if misread && takes_job && words.len() > 3 && !words.iter().any(|word| word == "--") {
        let at = words.iter().skip(1).position(|word| word == "dd" || word.to_string_lossy().contains(".fio"));
        let at = at.map_or(3, |at| at + 1).min(words.len());
        let join = |words: &[OsString]| words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        problem = problem.help(format!("`--` before the job: iowhy {} -- {}", join(&words[..at]), join(&words[at..])));
    }
    if error.kind() == ErrorKind::MissingRequiredArgument {
        problem = match verb.as_str() {
            "explain" => Problem::error("nothing to explain: two sides, or an incident, are missing")
                .help("iowhy explain before.parquet after.parquet"),
            "report" => Problem::error("nothing to report on: two sides, an incident, files or --serve are missing")
                .help("iowhy report A B -o why.html, or iowhy report --serve"),
            _ => problem,
        };
    }
    output::report(problem);
    Err(if bisection { Exit::Abort } else { Exit::Usage })
}

/// Ends the process at a panic, instead of unwinding: changes of this process are undone, and a page of a foreign
/// file that cannot be decoded is a mistake of that file. A twin that fails leaves an answer without it.
fn end_at_a_panic(exit: i32) {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let damaged = iowhy_trace::format::trace_parquet::decodes();
        if damaged && cfg!(panic = "unwind") {
            return;
        }
        if iowhy_lab::twin::runs() && cfg!(panic = "unwind") {
            return report(panic);
        }
        if damaged {
            output::report(Problem::error(iowhy_trace::format::trace_parquet::DAMAGED));
            output::print_errors(Exit::Usage);
        } else {
            report(panic);
        }
        iowhy_live::ledger::undo_own(&iowhy_live::ledger::state_directory());
        std::process::exit(if damaged { Exit::Usage.number().into() } else { exit });
    }));
}

fn main() -> ExitCode {
    if iowhy_live::guest::is_init() {
        iowhy_live::guest::init();
    }
    if let Some((terminal_size::Width(columns), _)) = terminal_size::terminal_size_of(std::io::stdout()) {
        iowhy_text::set_width(columns.into());
    }
    let mut all: Vec<OsString> = std::env::args_os().skip(1).collect();
    match look(&mut all) {
        Ok(look) => output::set_look(look),
        Err(problem) => {
            output::report(problem);
            return Exit::Usage.code();
        }
    }
    help_of_verb(&mut all);
    if all.is_empty() {
        return output::print(&overview::screen(output::bold())).map_or(Exit::Machine, |()| Exit::Fine).code();
    }
    // A mistake must not look like a bad commit; where the words cannot be read it is only seen that they are there.
    let words: Vec<&OsString> = all.iter().take_while(|word| *word != "--").collect();
    let has = |wanted: &str| words.iter().any(|word| *word == wanted);
    let bisection = has("--bisect-exit") || words.first().is_some_and(|verb| *verb == "bisect") && has("--git");
    let arguments = match parse(&all, bisection) {
        Ok(arguments) => arguments,
        Err(exit) => {
            output::print_errors(exit);
            return exit.code();
        }
    };
    let bisection = arguments.bisect_exit || bisection;
    // To `git bisect run` the exit code of a panic, 101, is a bad commit. The shipped program does not unwind: 3 MB.
    if bisection {
        end_at_a_panic(128);
    } else if cfg!(panic = "abort") {
        end_at_a_panic(101);
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
        Verb::Why(arguments) => why::run(&arguments),
        Verb::Tune(arguments) => tune::run(&arguments),
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
        Verb::Sweep(arguments) => sweep::run(&arguments),
        Verb::Mcp(arguments) => mcp::run(&arguments),
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
        output::report(Problem::error(message));
        Exit::of_error(&error)
    });
    iowhy_live::guard::note_devices();
    let stuck = iowhy_live::ledger::stuck();
    for words in &stuck {
        output::report(Problem::warning(words.as_str()));
    }
    let exit = exit.with(iowhy_live::signal::exit_code(), !stuck.is_empty());
    output::print_errors(exit);
    if bisection { exit.for_bisection().code() } else { exit.code() }
}

//! `iowhy generate`: man pages and completions of this very command, for packages and for shells.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, complete};
use clap_mangen::Man;
use iowhy_lab::{complete as known, run, sysbench};

use crate::output::{self, Exit};

/// Files of shells, under the names by which packages install them.
const SHELLS: &[(&str, &str)] = &[
    ("iowhy.bash", include_str!("generate/iowhy.bash")),
    ("_iowhy", include_str!("generate/iowhy.zsh")),
    ("iowhy.fish", include_str!("generate/iowhy.fish")),
];

/// Options and places whose values complete.
const KNOWN: &[&str] = &["on", "disk", "label", "baseline", "candidate", "metric", "what"];

/// Options of `iowhy generate`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Write a man page for each verb
    Man {
        /// Directory, made if it is not there
        directory: PathBuf,
    },
    /// Write completions for bash, zsh and fish
    Completions {
        /// Directory, made if it is not there
        directory: PathBuf,
    },
    /// Print candidates for the last word, each with a tab and a line on it
    Complete {
        /// Words behind `iowhy`
        #[arg(last = true)]
        words: Vec<OsString>,
    },
}

/// The whole command. Verbs that read their own words get their options here.
fn command() -> Command {
    let root = crate::overview::command().after_help(crate::overview::EXIT_CODES);
    let options = run::command();
    root.mut_subcommand("run", |verb| {
        let about = verb.get_about().cloned().unwrap_or_default();
        options.name("run").about(about).long_about(None).after_help(run::help())
    })
    .mut_subcommand("sysbench", |verb| verb.after_help(sysbench::options::help()))
    .mut_subcommand("fio", |verb| verb.after_help(crate::fio::HELP))
    .mut_subcommands(complete_values)
}

/// Lets values of known options be completed, in a verb and below it.
fn complete_values(verb: Command) -> Command {
    let verb = verb.mut_args(|arg| {
        let name = arg.get_id().to_string();
        if !KNOWN.contains(&name.as_str()) {
            return arg;
        }
        arg.add(ArgValueCompleter::new(move |word: &OsStr| {
            let values = known::values(&name, &word.to_string_lossy());
            values.into_iter().map(|(value, about)| CompletionCandidate::new(value).help(Some(about.into()))).collect()
        }))
    });
    verb.mut_subcommands(complete_values)
}

/// Man pages of a verb and of those below it, as name and text.
fn pages(verb: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> std::io::Result<()> {
    let mut text = Vec::new();
    let man = Man::new(verb.clone());
    let name = man.get_filename();
    man.render(&mut text)?;
    pages.push((name, text));
    let below = verb.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
    below.into_iter().try_for_each(|verb| self::pages(verb, pages))
}

/// Writes files into a directory.
fn write<'a>(directory: &Path, files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> anyhow::Result<Exit> {
    std::fs::create_dir_all(directory)?;
    for (name, text) in files {
        iowhy_live::guard::Output::write(&directory.join(name), text, false)?;
    }
    Ok(Exit::Fine)
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let mut command = command();
    match &arguments.what {
        What::Man { directory } => {
            command.build();
            let mut all = Vec::new();
            pages(&command, &mut all)?;
            write(directory, all.iter().map(|(name, text)| (name.as_str(), text.as_slice())))
        }
        What::Completions { directory } => write(directory, SHELLS.iter().map(|(name, text)| (*name, text.as_bytes()))),
        What::Complete { words } => {
            let words: Vec<OsString> = std::iter::once("iowhy".into()).chain(words.iter().cloned()).collect();
            let last = words.len() - 1;
            for candidate in complete(&mut command, words, last, std::env::current_dir().ok().as_deref())? {
                let about = candidate.get_help().map(ToString::to_string).unwrap_or_default();
                let about = about.lines().next().unwrap_or_default();
                output::print(&format!("{}\t{about}\n", candidate.get_value().to_string_lossy()))?;
            }
            Ok(Exit::Fine)
        }
    }
}

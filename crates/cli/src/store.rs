//! `iowhy store`.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Subcommand, ValueEnum};
use iowhy_lab::store::{self, Filter, Format, Store, StoreError};
use serde_json::Value;

use crate::output::{self, Exit};

#[derive(clap::Args)]
#[command(about = "List, show, tag, merge, remove, check and export stored runs")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
    /// Store [default: IOWHY_STORE, or the data directory]
    #[arg(long, global = true, value_name = "DIR")]
    store: Option<PathBuf>,
    /// One JSON object instead of text
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Action {
    /// List runs by label and command, the oldest first
    List {
        /// Label, tag or id of the runs; several with commas
        what: Option<String>,
        /// Number of the latest runs
        #[arg(long, value_name = "N")]
        last: Option<u64>,
    },
    /// Show runs in full
    Show {
        /// Label, tag, id or its beginning; several with commas
        what: String,
    },
    /// Tag runs with a name that stands for them from then on
    Tag {
        /// Label, tag, id or its beginning; several with commas
        what: String,
        /// Tag
        tag: String,
        /// Remove the tag instead
        #[arg(long)]
        remove: bool,
    },
    /// Merge the runs of other stores; repeating it changes nothing
    Merge {
        /// Directories of the other stores
        #[arg(required = true, value_name = "DIR")]
        from: Vec<PathBuf>,
    },
    /// Remove runs with their files; lists them, asks nothing
    Rm {
        /// Labels, tags, ids or their beginnings
        #[arg(required = true, value_name = "RUN|LABEL")]
        what: Vec<String>,
        /// Only list them
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove old runs with their files; those with a tag stay
    Prune {
        /// Runs that began longer ago: 30d, 12h, 2w
        #[arg(long, value_name = "AGE", value_parser = age, required_unless_present = "keep")]
        older_than: Option<Duration>,
        /// All but the latest N runs of each label
        #[arg(long, value_name = "N")]
        keep: Option<usize>,
        /// Only list them
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove files without a run; never removes runs
    Gc {
        /// Only list them
        #[arg(long)]
        dry_run: bool,
    },
    /// Check every row and file for damage
    Check {
        /// Put damaged parts aside, and keep the rest
        #[arg(long)]
        repair: bool,
    },
    /// Write runs, metrics and samples as CSV or JSON files
    Export {
        /// Label, tag, id or its beginning; several with commas [default: all]
        what: Option<String>,
        /// Target directory
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
        /// Format
        #[arg(long, value_enum, default_value_t = Kind::Csv)]
        format: Kind,
    },
}

/// Formats of files.
#[derive(Copy, Clone, ValueEnum)]
enum Kind {
    /// Comma-separated values
    Csv,
    /// JSON
    Json,
}

/// An age: a number with a unit.
fn age(word: &str) -> Result<Duration, String> {
    const UNITS: &[(char, u64)] = &[('m', 60), ('h', 3_600), ('d', 86_400), ('w', 604_800)];
    let parts = word.char_indices().next_back().map(|(at, unit)| (&word[..at], unit));
    let seconds = parts.and_then(|(number, unit)| {
        let (_, seconds) = UNITS.iter().find(|(known, _)| *known == unit)?;
        number.parse::<u64>().ok()?.checked_mul(*seconds)
    });
    seconds.map(Duration::from_secs).ok_or_else(|| "it takes a number with m, h, d or w, for example 30d".to_owned())
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let variable = |name: &str| std::env::var(name).ok();
    let directory = store::directory(arguments.store.as_deref(), &variable).ok_or(StoreError::NoPlace)?;
    if let Action::Check { repair } = arguments.action {
        let store = Store::open_unchecked(&directory)?;
        let checked = if repair { store.repair()? } else { store.check()? };
        if arguments.json {
            output::print_json(&store::checked_json(&directory, &checked))?;
        } else {
            output::print(&store::checked_text(&checked))?;
        }
        return Ok(if checked.damage.is_empty() || checked.repaired { Exit::Fine } else { Exit::Failed });
    }
    let store = match &arguments.action {
        // Runs of others can be brought to a place that has none yet.
        Action::Merge { .. } => Store::open(&directory)?,
        _ => Store::open_existing(&directory)?,
    };
    act(&store, &arguments.action, arguments.json)?;
    Ok(Exit::Fine)
}

/// Does it, and reports the result, as JSON or as text: only one of them is made, a store may hold very many runs.
fn act(store: &Store, action: &Action, as_json: bool) -> anyhow::Result<()> {
    let say = |json: &dyn Fn() -> Value, text: &dyn Fn() -> String| {
        if as_json { output::print_json(&json()) } else { output::print(&text()) }
    };
    match action {
        Action::List { what: None, last } => {
            let runs = store.runs(&Filter { last: *last, ..Filter::default() })?;
            say(&|| store::runs_json(store, "list", &runs), &|| store::list_text(store, &runs, output::bold()))?;
        }
        Action::List { what: Some(what), last } => {
            let mut runs = store.find(what)?;
            let left_out = last.map_or(0, |last| runs.len().saturating_sub(last as usize));
            runs.drain(..left_out);
            say(&|| store::runs_json(store, "list", &runs), &|| store::list_text(store, &runs, output::bold()))?;
        }
        Action::Show { what } => {
            let runs = store.find(what)?;
            say(&|| store::runs_json(store, "show", &runs), &|| store::show_text(&runs, output::bold()))?;
        }
        Action::Tag { what, tag, remove } => {
            let changed = store.tag(what, tag, *remove)?;
            say(&|| store::tagged_json(store, tag, *remove, changed), &|| store::tagged_text(tag, *remove, changed))?;
        }
        Action::Merge { from } => {
            let mut all = store::Merged::default();
            for directory in from {
                all.add(&store.merge(directory)?);
            }
            say(&|| store::merged_json(store, &all), &|| store::merged_text(store, &all))?;
        }
        Action::Check { .. } => anyhow::bail!("the store is looked at before it is opened"),
        Action::Gc { dry_run } => {
            let swept = store.gc(*dry_run)?;
            say(&|| store::swept_json(store, &swept), &|| store::swept_text(&swept))?;
        }
        Action::Rm { what, dry_run } => {
            let removed = store.remove(store.find_all(what)?, *dry_run)?;
            say(&|| store::removed_json(store, "rm", &removed), &|| {
                store::removed_text(store, &removed, output::bold())
            })?;
        }
        Action::Prune { older_than, keep, dry_run } => {
            let now = store::nanoseconds(SystemTime::now());
            let before = older_than.map(|age| now.saturating_sub(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)));
            let removed = store.remove(store.outdated(before, *keep)?, *dry_run)?;
            say(&|| store::removed_json(store, "prune", &removed), &|| {
                store::removed_text(store, &removed, output::bold())
            })?;
        }
        Action::Export { what, to, format } => {
            let runs = match what {
                Some(what) => store.find(what)?,
                None => store.runs(&Filter::default())?,
            };
            let format = match format {
                Kind::Csv => Format::Csv,
                Kind::Json => Format::Json,
            };
            let exported = store.export(&runs, format, to)?;
            say(&|| store::exported_json(store, &exported), &|| store::exported_text(&exported, to))?;
        }
    }
    Ok(())
}

//! `iowhy disk`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Subcommand;
use iowhy_lab::modelled_disk::{self as lab, Shown};
use iowhy_lab::profile::{self, Profile};
use iowhy_lab::recording::device_of;
use iowhy_live::disk::{self, State};
use iowhy_text::diagnose::{Problem, Problems, Span};

use crate::output::{self, Exit};

#[derive(clap::Args)]
#[command(about = "Turn a drive of the simulator into a block device of the running kernel (root)")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
    /// One JSON object instead of text
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Action {
    /// Create a disk; it stays until it is removed, or the machine stops
    #[command(after_help = create_help())]
    Create {
        /// Drive (`iowhy models device` lists them)
        #[arg(long, value_name = "NAME")]
        model: String,
        /// Name [default: the first free of disk0, disk1, ..]
        #[arg(long)]
        name: Option<String>,
        /// Size, for example 4G, or `whole` for that of the model
        #[arg(long)]
        size: Option<String>,
        /// Front: ublk or loop; see below
        #[arg(long)]
        front: Option<String>,
        /// Most requests that the kernel has in flight
        #[arg(long, value_name = "N")]
        depth: Option<String>,
        /// Number of equal partitions
        #[arg(long, value_name = "N")]
        partitions: Option<String>,
        /// File that holds the data, instead of memory
        #[arg(long, value_name = "FILE")]
        backing: Option<PathBuf>,
        /// File system to create and mount
        #[arg(long, value_name = "TYPE")]
        fs: Option<String>,
        /// Seed of the model
        #[arg(long, value_name = "S")]
        seed: Option<String>,
        /// Keys of the disk, its queue and its model
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// List all disks
    List,
    /// Show one disk, or all, with their counters
    Stat {
        /// Name
        name: Option<String>,
    },
    /// Change a disk in use
    #[command(after_help = "Settings: fault=slow:factor=8:for=10s[:after=2s], fault=stuck:for=5s[:count=1],\n\
        fault=eio:from=1m:to=2m[:on=read|write], fault=none, power=on|off, depth=N,\n\
        scheduler=.., read_ahead_kb=.., max_sectors_kb=.., nomerges=.., wbt_lat_usec=..")]
    Set {
        /// Name
        name: String,
        /// Setting and its new value
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Measure a disk, and the machine in front of it: a profile for --disk
    #[command(after_help = "Reads from the whole disk, past the page cache, as root. The profile lies next to the\n\
        store, and --disk NAME takes it; --disk here is that of the disk below the current\n\
        folder. docs/PROFILE.md has every field.")]
    Fit {
        /// Device, file or folder
        #[arg(value_name = "TARGET", default_value = ".")]
        target: PathBuf,
        /// Time to measure
        #[arg(long = "for", value_name = "TIME", default_value = "2m", value_parser = crate::trace::duration)]
        length: Duration,
        /// Fit to the commands of a recording, without measuring
        #[arg(long, value_name = "FILE")]
        trace: Option<PathBuf>,
        /// Name, or file that ends in .toml [default: name of the disk]
        #[arg(short, long, value_name = "NAME")]
        output: Option<String>,
        /// Scratch file to write, for writes and flushes
        #[arg(long, value_name = "FILE")]
        allow_write: Option<PathBuf>,
    },
    /// Cut its power: unflushed writes are lost, torn or kept
    Crash {
        /// Name
        name: String,
        /// Seed of the loss
        #[arg(long, default_value_t = 1, value_name = "S")]
        seed: u64,
    },
    /// Remove a disk, with its file system
    Remove {
        /// Names
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// The process that keeps a disk
    #[command(hide = true)]
    Keep,
    /// The process that serves a disk
    #[command(hide = true)]
    Serve,
}

fn create_help() -> String {
    let mut out = String::from("Keys, besides the tunables of the model:\n");
    for (key, help) in lab::KEYS {
        out.push_str(&iowhy_text::item(key, help, 18));
    }
    out
}

/// Does it.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let one = |state: State| Shown { disks: vec![state], ..Shown::default() };
    let mut problems = Problems::default();
    let shown = match &arguments.action {
        Action::Keep => return Ok(if disk::keep() { Exit::Fine } else { Exit::Failed }),
        Action::Serve => {
            disk::serve()?;
            return Ok(Exit::Fine);
        }
        Action::Fit { target, length, trace, output, allow_write } => {
            let profile = match trace {
                Some(file) => of_recording(file, target, &mut problems),
                None => {
                    crate::doctor::tidy();
                    Some(Profile::probe_with(target, *length, allow_write.as_deref())?)
                }
            };
            return fitted(profile, output.as_deref(), arguments.json, &problems);
        }
        Action::Create { model, name, size, front, depth, partitions, backing, fs, seed, settings } => {
            let backing = backing.as_ref().map(|path| path.to_string_lossy().into_owned());
            let flags = [
                ("size", size),
                ("front", front),
                ("depth", depth),
                ("partitions", partitions),
                ("backing", &backing),
                ("fs", fs),
                ("seed", seed),
            ];
            let mut words: Vec<String> = settings.clone();
            words.extend(flags.iter().filter_map(|(key, value)| value.as_ref().map(|value| format!("{key}={value}"))));
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            crate::doctor::tidy();
            let name = name.clone().unwrap_or_else(disk::free_name);
            let wanted = lab::parse(&name, model, &words, &mut problems);
            output::report_all(&problems);
            let Some(wanted) = wanted else { return Ok(Exit::Usage) };
            one(disk::create(wanted.spec)?)
        }
        Action::List | Action::Stat { name: None } => Shown::all()?,
        Action::Stat { name: Some(name) } => one(disk::stat(name)?),
        Action::Set { name, settings } => {
            let changes = lab::changes(settings, &mut problems);
            output::report_all(&problems);
            if problems.any_error() {
                return Ok(Exit::Usage);
            }
            one(disk::set(name, changes)?)
        }
        Action::Crash { name, seed } => one(disk::crash(name, *seed)?),
        Action::Remove { names } => {
            let mut shown = Shown::default();
            for name in names {
                disk::remove(name)?;
                shown.removed.push(name.clone());
            }
            shown
        }
    };
    if arguments.json {
        output::print_json(&shown.json())?;
    } else {
        output::print(&shown.text(output::bold()))?;
    }
    Ok(if shown.dead.is_empty() { Exit::Fine } else { Exit::Failed })
}

/// The profile of the busiest disk of a recording, or of the named one.
fn of_recording(file: &Path, target: &Path, problems: &mut Problems) -> Option<Profile> {
    let trace = iowhy_trace::format::load(file, problems)?;
    let named = (target != Path::new(".")).then(|| device_of(target)).flatten();
    let Some(device) = named.or_else(|| profile::busiest(&trace)) else {
        let name = file.display().to_string();
        let problem = Problem::error(format!("`{name}` has no request that was issued and completed"));
        problems.push(problem.at(Span::whole(&name)).help("iowhy trace record -o FILE -- COMMAND"));
        return None;
    };
    let mut profile = Profile::of_trace(&trace, device);
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    profile.name = stem;
    Some(profile)
}

/// Keeps a profile and shows it.
fn fitted(profile: Option<Profile>, output: Option<&str>, json: bool, problems: &Problems) -> anyhow::Result<Exit> {
    output::report_all(problems);
    let Some(mut profile) = profile.filter(|_| !problems.any_error()) else { return Ok(Exit::Usage) };
    let kept = profile::place(output.unwrap_or(&profile.name)).context("the profile has no place: -o FILE.toml")?;
    if let Some(stem) = kept.file_stem() {
        profile.name = stem.to_string_lossy().into_owned();
    }
    profile.save(&kept)?;
    if json {
        output::print_json(&profile.json())?;
    } else {
        output::print(&profile.text(output::bold()))?;
        let word = if output.is_some_and(|name| name.ends_with(".toml")) {
            kept.display().to_string()
        } else {
            profile.name.clone()
        };
        output::print(&format!("kept in {}; use it with --disk {word}\n", kept.display()))?;
    }
    Ok(Exit::Fine)
}

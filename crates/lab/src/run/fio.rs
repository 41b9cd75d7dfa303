//! Jobs of fio as jobs of the simulator.

use iowhy_fio::map::{Ground, Mapped, map};
use iowhy_fio::{FioFile, World};
use iowhy_stack::job::Job;
use iowhy_stack::kernel::Stack;
use iowhy_text::diagnose::{Problem, Problems, Span};

use super::{BUILTINS, FIO, Shape, device_bytes};

/// A simulated stack: names under /dev/ are its one device, and every file is made.
struct Simulated<'a> {
    device_bytes: u64,
    load: &'a dyn Fn(&str) -> Result<String, String>,
}

impl Ground for Simulated<'_> {
    fn is_device(&self, name: &str) -> bool {
        super::dd::is_device(name)
    }

    fn bytes(&self, name: &str) -> Option<u64> {
        self.is_device(name).then_some(self.device_bytes)
    }

    fn loader(&self) -> &dyn Fn(&str) -> Result<String, String> {
        self.load
    }

    fn simulated(&self) -> bool {
        true
    }
}

/// The simulated job that the jobs of a file are. `ioscheduler` changes the stack's elevator; recorded lists of calls
/// are read through `world`.
pub(super) fn build(
    file: &FioFile,
    world: &World<'_>,
    stack: &mut Stack,
    problems: &mut Problems,
) -> Option<(Job, Shape)> {
    let ground = Simulated { device_bytes: device_bytes(stack), load: world.load };
    let Mapped { job, lines, seeds, .. } = map(file, &ground, Some(stack), problems)?;
    let mut shape = Shape::of(lines);
    shape.fixed_seeds = seeds;
    Some((job, shape))
}

/// The jobs of fio job files, or of words of fio's command line.
pub(super) fn file(words: &[String], world: &World<'_>, problems: &mut Problems) -> Option<FioFile> {
    match words.split_first() {
        Some((first, rest)) if first == FIO => of_words(rest, world, problems),
        _ => of_files(words, world, problems),
    }
}

/// The jobs of fio job files.
fn of_files(names: &[String], world: &World<'_>, problems: &mut Problems) -> Option<FioFile> {
    let mut found = Problems::default();
    for name in names {
        let known = BUILTINS.iter().map(|builtin| builtin.name);
        if BUILTINS.iter().any(|builtin| builtin.name == name) {
            let text = format!("`{name}` is a built-in job, and comes first");
            found.push(Problem::error(text).at(Span::whole(name)).help(format!("iowhy run {name} key=value ..")));
        } else if name.ends_with(".toml") {
            let text = format!("`{name}` is a TOML job, which this release does not take yet");
            found.push(Problem::error(text).at(Span::whole(name)).help("a fio job file (.fio)"));
        } else if let Err(error) = (world.load)(name)
            && name != "-"
        {
            let text = format!("`{name}` is neither a built-in job nor a readable file: {error}");
            found.push(
                Problem::error(text)
                    .at(Span::whole(name))
                    .near(name, known)
                    .help("`iowhy run --help` lists the built-in jobs"),
            );
        }
    }
    let file = if found.any_error() { None } else { iowhy_fio::parse_files(names, world, &mut found) };
    problems.list.append(&mut found.list);
    file
}

/// The jobs of words of fio's command line.
fn of_words(words: &[String], world: &World<'_>, problems: &mut Problems) -> Option<FioFile> {
    let invocation = iowhy_fio::command_line(words, world, problems)?;
    if invocation.settings.action != iowhy_fio::Action::Run {
        problems.push(Problem::error("these words of fio describe no run").help("--name=.. --rw=.. --size=.."));
        return None;
    }
    Some(invocation.file)
}

//! Where a run happens: `--on sim:KERNEL[+PATCH...][,key=value...]` and `--disk NAME|FILE[,key=value...]`.
//!
//! Everything that is wrong is found in one go. The order of keys does not matter: keys that pick a policy
//! (`elevator=deadline`) are applied before keys of that policy (`elevator.fifo_batch=4`).

use std::path::Path;

use iowhy_stack::device::{DEVICES, drive};
use iowhy_stack::kernel::release::{Nearest, Release};
use iowhy_stack::kernel::{KERNELS, Kernel, KeyError, PATCHES, Stack, find_kernel, policies};
use iowhy_stack::origin::find;

use iowhy_text::diagnose::{Problem, Problems, Span};

use crate::drive_file;
use crate::profile::{self, Profile};

/// A piece of an argument with where it starts.
#[derive(Copy, Clone, Debug)]
struct Piece<'a> {
    text: &'a str,
    start: usize,
}

impl<'a> Piece<'a> {
    fn of(whole: &'a str, start: usize, end: usize) -> Piece<'a> {
        Piece { text: &whole[start..end], start }
    }

    fn span(&self, whole: &str) -> Span {
        Span::bytes(whole, self.start, self.start + self.text.len())
    }
}

#[derive(Copy, Clone, Debug)]
struct Setting<'a> {
    all: Piece<'a>,
    key: Piece<'a>,
    value: Piece<'a>,
}

/// The stack that `on` and `disk` describe. Without a usable kernel there is none, and `problems` has the reason.
pub fn parse(on: &str, disk: Option<&str>, problems: &mut Problems) -> Option<Stack> {
    let before = problems.list.len();
    let mut of_disk = Problems::default();
    let stack = parse_on(on, disk, problems, &mut of_disk);
    problems.list.append(&mut of_disk.list);
    let clean = problems.list[before..].iter().all(|p| p.severity != iowhy_text::diagnose::Severity::Error);
    if clean { stack } else { None }
}

/// Checks a `--disk` without a kernel: its mistakes are still worth reporting.
pub fn check_disk(disk: &str, problems: &mut Problems) {
    set_disk(&mut Stack::new(&KERNELS[0]), disk, problems);
}

/// The disk comes before the settings, because the default elevator goes with it. Without a kernel it is still checked,
/// on any kernel, so that its problems are reported too.
fn parse_on(on: &str, disk: Option<&str>, problems: &mut Problems, of_disk: &mut Problems) -> Option<Stack> {
    let Some(rest) = on.strip_prefix("sim:") else {
        problems.push(not_simulated(on));
        disk.iter().for_each(|disk| check_disk(disk, of_disk));
        return None;
    };
    let offset = on.len() - rest.len();
    let head_end = rest.find(',').map_or(on.len(), |comma| offset + comma);
    let mut names = split(on, offset, head_end, '+').into_iter();
    let name = names.next()?;
    let kernel = match named(name.text) {
        Ok((kernel, warning)) => {
            problems.list.extend(warning.map(|problem| problem.at(name.span(on))));
            Some(kernel)
        }
        Err(problem) => {
            problems.push(problem.at(name.span(on)));
            None
        }
    };
    // Behind an unknown kernel the rest is still checked, on the kernel that was probably meant.
    let meant =
        kernel.or_else(|| problems.list.last().and_then(|p| p.nearest.first()).and_then(|name| find_kernel(name)));
    let mut stack = Stack::new(meant.unwrap_or(&KERNELS[KERNELS.len() - 1]));
    disk.iter().for_each(|disk| set_disk(&mut stack, disk, of_disk));
    let mut seen: Vec<&str> = Vec::new();
    for name in names {
        match PATCHES.iter().find(|patch| patch.name == name.text) {
            None => problems.push(
                Problem::error(format!("unknown patch `+{}`", name.text))
                    .at(name.span(on))
                    .near(name.text, PATCHES.iter().map(|patch| patch.name))
                    .help("`iowhy models patch` lists them"),
            ),
            Some(_) if seen.contains(&name.text) => {
                problems.push(Problem::error(format!("patch `+{}` is given twice", name.text)).at(name.span(on)));
            }
            Some(patch) => {
                seen.push(patch.name);
                // Only with a known kernel can its fit be checked.
                if kernel.is_some()
                    && let Err(error) = stack.patch(patch)
                {
                    problems.push(of_key_error(error).at(name.span(on)));
                }
            }
        }
    }
    let settings = settings(on, head_end, problems);
    let (choices, tunables): (Vec<&Setting>, Vec<&Setting>) =
        settings.iter().partition(|setting| policies().any(|kind| kind.key == setting.key.text));
    for setting in choices.into_iter().chain(tunables) {
        if let Err(error) = stack.set(setting.key.text, setting.value.text) {
            problems.push(at_setting(error, setting, on, "iowhy models"));
        }
    }
    kernel.map(|_| stack)
}

/// The kernel called `name`; if no model has that name but a release has, the nearest, and a warning.
///
/// # Errors
/// If nothing like it exists.
pub fn named(name: &str) -> Result<(&'static Kernel, Option<Problem>), Problem> {
    if let Some(kernel) = find_kernel(name) {
        return Ok((kernel, None));
    }
    if let Some(release) =
        Release::parse(name).filter(|it| name.starts_with("linux-") && it.series.0 > 2 && it.is_covered())
    {
        let Nearest { kernel, differs, .. } = release.nearest();
        let text = format!("`{name}` has no model; {} is the nearest: {differs}", kernel.name);
        let help = "`iowhy models kernel NAME --against NAME` lists what differs between two models";
        return Ok((kernel, Some(Problem::warning(text).help(help))));
    }
    let accepted = KERNELS.iter().flat_map(|kernel| std::iter::once(kernel.name).chain(kernel.aliases.iter().copied()));
    let message = match name {
        "" => "`sim:` needs the name of a kernel".to_owned(),
        text => format!("unknown kernel `{text}`"),
    };
    // A version without its prefix (`2.6.6`) is the commonest slip.
    let word = if name.starts_with("linux-") { name.to_owned() } else { format!("linux-{name}") };
    Err(Problem::error(message).near(&word, accepted).help("`iowhy models kernel` lists them"))
}

fn set_disk(stack: &mut Stack, disk: &str, problems: &mut Problems) {
    let head_end = disk.find(',').unwrap_or(disk.len());
    let name = Piece::of(disk, 0, head_end);
    let measured = profile::path(name.text);
    let of_file = measured.is_some() || drive_file::is_file(name.text);
    let known = if let Some(path) = measured {
        let profile = match path {
            Ok(path) => Profile::load(&path, problems),
            Err(problem) => {
                problems.push(problem.at(name.span(disk)));
                None
            }
        };
        profile.map(|profile| profile.apply(stack)).is_some()
    } else if of_file {
        let drive = drive_file::load(Path::new(name.text), problems);
        drive.map(|drive| stack.set_drive(&drive::ENTRY, drive)).is_some()
    } else {
        find(DEVICES, name.text).is_some() || stack.set_device(name.text).is_ok()
    };
    if !known && !of_file {
        problems.push(
            Problem::error(format!("unknown disk `{}`", name.text))
                .at(name.span(disk))
                .near(name.text, DEVICES.iter().map(|entry| entry.name))
                .help("`iowhy models device` lists them"),
        );
    }
    let settings = settings(disk, head_end, problems);
    if !known {
        return;
    }
    if !of_file && let Err(error) = stack.set_device(name.text) {
        problems.push(of_key_error(error).at(name.span(disk)));
        return;
    }
    for setting in &settings {
        if let Err(error) = stack.set_device_option(setting.key.text, setting.value.text) {
            problems.push(at_setting(error, setting, disk, "iowhy models device"));
        }
    }
    for mistake in drive_file::mistakes(&stack.device.options) {
        problems.push(Problem::error(mistake).at(Span::whole(disk)));
    }
}

/// Names and values of the `,key=value` settings behind the first comma.
pub(crate) fn keys<'a>(on: &'a str, problems: &mut Problems) -> Vec<(&'a str, &'a str)> {
    let head_end = on.find(',').unwrap_or(on.len());
    settings(on, head_end, problems).iter().map(|setting| (setting.key.text, setting.value.text)).collect()
}

fn not_simulated(on: &str) -> Problem {
    if on == "live" || on.starts_with("live,") || on.starts_with("kernel:") {
        return Problem::error(format!("`{on}` is a real kernel, and this needs a simulated one"))
            .at(Span::whole(on))
            .help(format!("--on sim:linux-6.18 (`iowhy models kernel` lists them), or iowhy run JOB --on {on}"));
    }
    let problem = Problem::error(format!("`{on}` does not say where to run")).at(Span::whole(on));
    let kernel = on.split(['+', ',']).next().unwrap_or(on);
    match find_kernel(kernel) {
        Some(_) => problem.help(format!("sim:{on}")),
        None => problem.help("sim:KERNEL[+PATCH...][,key=value...], for example sim:linux-2.6.6-rc3,elevator=deadline"),
    }
}

/// The pieces of `whole[start..end]` between separators.
fn split(whole: &str, start: usize, end: usize, separator: char) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut from = start;
    for (at, _) in whole[start..end].match_indices(separator) {
        pieces.push(Piece::of(whole, from, start + at));
        from = start + at + separator.len_utf8();
    }
    pieces.push(Piece::of(whole, from, end));
    pieces
}

/// The `,key=value` settings of `whole` from `start` (a comma, or the end) on.
fn settings<'a>(whole: &'a str, start: usize, problems: &mut Problems) -> Vec<Setting<'a>> {
    if start == whole.len() {
        return Vec::new();
    }
    let mut settings: Vec<Setting<'a>> = Vec::new();
    for piece in split(whole, start + 1, whole.len(), ',') {
        let Some((key, value)) = piece.text.split_once('=') else {
            let message = match piece.text {
                "" => "there is nothing between the commas".to_owned(),
                text => format!("`{text}` has no value"),
            };
            problems.push(Problem::error(message).at(piece.span(whole)).help("key=value"));
            continue;
        };
        let key = Piece { text: key, start: piece.start };
        let value = Piece { text: value, start: piece.start + key.text.len() + 1 };
        if key.text.is_empty() || value.text.is_empty() {
            problems.push(Problem::error("a setting needs a key and a value").at(piece.span(whole)).help("key=value"));
            continue;
        }
        match settings.iter().find(|known| known.key.text == key.text) {
            Some(known) if known.value.text == value.text => {}
            Some(known) => problems.push(
                Problem::error(format!("`{}` is set to `{}` and to `{}`", key.text, known.value.text, value.text))
                    .at(piece.span(whole))
                    .help("keep one of them"),
            ),
            None => settings.push(Setting { all: piece, key, value }),
        }
    }
    settings
}

fn of_key_error(error: KeyError) -> Problem {
    let problem = Problem::error(error.message.clone()).near(&error.word, &error.accepted);
    if problem.nearest.is_empty() && !error.accepted.is_empty() && error.accepted.len() <= 12 {
        return problem.help(format!("one of {}", error.accepted.join(", ")));
    }
    problem
}

fn at_setting(error: KeyError, setting: &Setting<'_>, whole: &str, list: &str) -> Problem {
    let span = if error.word == setting.value.text {
        setting.value.span(whole)
    } else if error.word == setting.key.text || setting.key.text.ends_with(&error.word) {
        setting.key.span(whole)
    } else {
        setting.all.span(whole)
    };
    let problem = of_key_error(error).at(span);
    if problem.nearest.is_empty() && problem.help.is_none() {
        return problem.help(format!("`{list}` lists the keys"));
    }
    problem
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::command::plan_of_command;
    use iowhy_stack::kernel::{KINDS, Kind, Patch};
    use iowhy_stack::origin::{OptionSpec, Options};
    use iowhy_stack::rng::Rng;
    use iowhy_stack::sim;

    fn check(on: &str, disk: Option<&str>) -> Result<String, Vec<String>> {
        let mut problems = Problems::default();
        match parse(on, disk, &mut problems) {
            Some(stack) => Ok(format!("{} on {}", stack.describe(), stack.device.entry.name)),
            None => Err(problems.list.into_iter().map(|problem| problem.message).collect()),
        }
    }

    #[test]
    fn kernels_patches_and_policies_compose() {
        for (on, disk, expected) in [
            ("sim:linux-2.4.25", None, "linux-2.4.25 on ide-2004"),
            ("sim:linux-2.6.6-rc3+private-copy", None, "linux-2.6.6-rc3+private-copy on ide-2004"),
            ("sim:linux-2.6.6-rc3-mm1,elevator=noop", None, "linux-2.6.6-rc3,elevator=noop on ide-2004"),
            ("sim:linux-2.6.6-rc3,read_ahead_kb=512", Some("zero"), "linux-2.6.6-rc3,read_ahead_kb=512 on zero"),
            (
                "sim:linux-2.6.6,elevator.writes_starved=3,elevator=deadline",
                None,
                "linux-2.6.6,elevator=deadline,elevator.writes_starved=3 on ide-2004",
            ),
        ] {
            assert_eq!(check(on, disk).as_deref(), Ok(expected), "{on}");
        }
    }

    #[test]
    fn a_release_is_its_model_or_the_nearest_with_a_warning() {
        for (on, kernel, warning) in [
            ("sim:linux-5.15.85", "linux-5.15.85", ""),
            ("sim:linux-5.15.135", "linux-5.15", ""),
            ("sim:linux-6.1.55,read_ahead_kb=64", "linux-6.1.123,read_ahead_kb=64", ""),
            ("sim:linux-5.15.0-91-generic", "linux-5.15", "5.15.0 to .94 are linux-5.15.85"),
            ("sim:linux-6.7", "linux-6.8", "linux-6.8 is the nearest: its source was not read"),
        ] {
            let mut problems = Problems::default();
            let stack = parse(on, None, &mut problems).unwrap_or_else(|| panic!("{on}: {}", problems.render()));
            assert_eq!(stack.describe(), kernel, "{on}");
            let said = problems.render();
            assert!(said.contains(warning) && said.is_empty() == warning.is_empty(), "{on}: {said}");
        }
        for on in ["sim:linux-6.81", "sim:linux-4.5", "sim:linux-2.6.6-rc4", "sim:6.1.55"] {
            assert!(check(on, None).is_err(), "{on}");
        }
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let problems = check("sim:linux-2.6.6+nosuch,elevator=cfk,read_ahead_kb=-1,elevator", Some("floppy,x"));
        let problems = problems.expect_err("six mistakes");
        assert_eq!(problems.len(), 6, "{problems:#?}");
        assert!(problems[0].contains("unknown patch `+nosuch`"), "{problems:#?}");
    }

    #[test]
    fn a_key_set_twice_must_agree_with_itself() {
        assert!(check("sim:linux-2.6.6,elevator=noop,elevator=noop", None).is_ok());
        let problems = check("sim:linux-2.6.6,elevator=noop,elevator=deadline", None).expect_err("two elevators");
        assert_eq!(problems, ["`elevator` is set to `noop` and to `deadline`"]);
    }

    #[test]
    fn real_kernels_are_not_simulated() {
        for on in ["live", "live,read_ahead_kb=4", "kernel:debian-6.1"] {
            let problems = check(on, None).expect_err("not simulated");
            assert!(problems[0].contains("needs a simulated one"), "{problems:?}");
        }
        let mut problems = Problems::default();
        assert!(parse("linux-4.4,elevator=noop", None, &mut problems).is_none());
        assert_eq!(problems.list[0].help.as_deref(), Some("sim:linux-4.4,elevator=noop"));
        for odd in ["", "sim:", "sim:,", "sim:+", "sim:linux-4.4,,", "sim:linux-4.4,=", "sim:ü,ö=ä"] {
            assert!(check(odd, Some(odd)).is_err(), "{odd}");
        }
    }

    fn stack(on: &str, disk: &str) -> Stack {
        let mut problems = Problems::default();
        parse(on, Some(disk), &mut problems).unwrap_or_else(|| panic!("{on} on {disk}: {}", problems.render()))
    }

    /// `,KEY=VALUE` for one in `one_in` of `specs`. Values that are `near` the default can be simulated.
    fn tunables(rng: &mut Rng, one_in: u64, near: bool, prefix: &str, specs: &[OptionSpec]) -> String {
        let mut text = String::new();
        for spec in specs.iter().filter(|_| rng.below(one_in) == 0).collect::<Vec<_>>() {
            let any = spec.min + rng.below((spec.max - spec.min) as u64 + 1) as i64;
            let near = near && spec.choices.is_empty();
            let value = if near { (spec.default + rng.below(3) as i64).min(spec.max) } else { any };
            text.push_str(&format!(",{prefix}{}={}", spec.name, spec.show(value)));
        }
        text
    }

    /// A place and a disk: any kernel and device, patches made for it, policies by their own names and by those of
    /// kernels, and tunables of what there then is.
    fn drawn(rng: &mut Rng, near: bool) -> (String, String) {
        let kernel = &KERNELS[rng.below(KERNELS.len() as u64) as usize];
        let mut on = format!("sim:{}", kernel.name);
        for patch in PATCHES {
            if (patch.kernels.is_empty() || patch.kernels.contains(&kernel.name)) && rng.below(3) == 0 {
                on.insert_str(4 + kernel.name.len(), &format!("+{}", patch.name));
            }
        }
        for kind in policies().filter(|_| rng.below(3) == 0).collect::<Vec<&Kind>>() {
            let mut names: Vec<&str> = (kind.entries)().iter().map(|entry| entry.name).collect();
            names.push(KERNELS[rng.below(KERNELS.len() as u64) as usize].name);
            on.push_str(&format!(",{}={}", kind.key, names[rng.below(names.len() as u64) as usize]));
        }
        let device = DEVICES[rng.below(DEVICES.len() as u64) as usize];
        let disk = format!("{}{}", device.name, tunables(rng, 16, near, "", device.options));
        let chosen = stack(&on, &disk);
        let one_in = [4, 1000][rng.below(2) as usize];
        on.push_str(&tunables(rng, one_in, near, "", chosen.options.specs()));
        for kind in policies() {
            let (specs, prefix) = ((kind.options)(&chosen).specs(), format!("{}.", kind.key));
            on.push_str(&tunables(rng, one_in, near, &prefix, specs));
        }
        (on, disk)
    }

    /// Everything a stack is composed of, as it would be typed.
    fn composed(stack: &Stack) -> Vec<String> {
        let patches = stack.patches.iter().map(|patch| format!("+{}", patch.name));
        let mut all: Vec<String> = [stack.kernel.name.to_owned()].into_iter().chain(patches).collect();
        let mut add = |prefix: &str, options: &Options| {
            all.extend(options.iter().map(|(spec, value)| format!("{prefix}{}={}", spec.name, spec.show(value))));
        };
        add("", &stack.options);
        KINDS.iter().for_each(|kind| add(&format!("{}.", kind.key), (kind.options)(stack)));
        all.extend(KINDS.iter().map(|kind| format!("{}={}", kind.key, (kind.chosen)(stack))));
        all
    }

    /// Asserts that the description of a place, typed for the same disk, is this place, and yields it.
    fn typed_again(on: &str, disk: &str) -> String {
        let first = stack(on, disk);
        let text = format!("sim:{}", first.describe());
        let again = stack(&text, disk);
        let (parts, new) = (composed(&first), composed(&again));
        let lost: Vec<&String> = parts.iter().filter(|part| !new.contains(part)).collect();
        assert!(parts == new, "{on} on {disk} was described as {text}, which loses {lost:?}");
        assert_eq!(text, format!("sim:{}", again.describe()), "{on} on {disk}");
        text
    }

    #[test]
    fn what_is_described_can_be_typed() {
        for (on, disk, expected) in [
            ("linux-4.4+readahead-512k,readahead=off", "nvme", ",readahead=off,read_ahead_kb=512"),
            ("linux-4.4+readahead-512k", "nvme", ",read_ahead_kb=512"),
            ("linux-4.4+readahead-512k,read_ahead_kb=128", "nvme", ",read_ahead_kb=128"),
            ("linux-4.4+stream-table", "nvme", ""),
            ("linux-4.4+stream-table,readahead=linux-4.4", "nvme", ",readahead=linux-4.4"),
            ("linux-3.2.0+no-outer-plug", "nvme", ",plug=task-3.3"),
            ("linux-3.2.0+no-outer-plug,plug=linux-3.2.0", "nvme", ",plug=task-3.1"),
            ("linux-6.18", "sata-2014", ",elevator=mq-deadline"),
            ("linux-6.18,elevator=none", "sata-2014", ",elevator=none"),
            ("linux-6.18,elevator=none", "nvme", ""),
        ] {
            let head = on.split(',').next().unwrap_or(on);
            assert_eq!(typed_again(&format!("sim:{on}"), disk), format!("sim:{head}{expected}"));
        }
        // Every policy on every kernel, with each of its patches.
        for kernel in KERNELS {
            let made_for = |patch: &&Patch| patch.kernels.is_empty() || patch.kernels.contains(&kernel.name);
            let patches = PATCHES.iter().filter(made_for).map(|patch| format!("+{}", patch.name));
            for patch in patches.chain([String::new()]) {
                for kind in policies() {
                    for entry in (kind.entries)() {
                        let on = format!("sim:{}{patch},{}={}", kernel.name, kind.key, entry.name);
                        typed_again(&on, "sata-2014");
                    }
                }
            }
        }
        let mut rng = Rng::stream(1, "places");
        for _ in 0..3000 {
            let (on, disk) = drawn(&mut rng, false);
            typed_again(&on, &disk);
        }
    }

    #[test]
    fn what_is_described_runs_the_same() {
        const JOB: &str = "run fio --name=j --rw=randrw --bsrange=4k-64k --size=1m --number_ios=60 --fsync=16";
        let hash = |on: &str, disk: &str| {
            let words: Vec<String> = format!("{JOB} --on {on} --disk {disk}").split(' ').map(str::to_owned).collect();
            let plan = plan_of_command(&words).unwrap_or_else(|problems| panic!("{on}: {}", problems.render()));
            sim::run(&plan).map(|outcome| outcome.event_hash).map_err(|error| error.to_string())
        };
        let mut rng = Rng::stream(2, "places");
        let mut hashes = Vec::new();
        for _ in 0..60 {
            let (on, disk) = drawn(&mut rng, true);
            let first = hash(&on, &disk);
            assert_eq!(first, hash(&typed_again(&on, &disk), &disk), "{on} on {disk}");
            hashes.extend(first);
        }
        assert!(hashes.len() > 50, "{} of 60 ran", hashes.len());
        hashes.sort_unstable();
        hashes.dedup();
        assert!(hashes.len() > 40, "{} differ", hashes.len());
    }
}

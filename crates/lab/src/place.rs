//! Where a run happens: `--on sim:KERNEL[+PATCH...][,key=value...]` and `--disk NAME[,key=value...]`.
//!
//! Everything that is wrong is found in one go. The order of keys does not matter: keys that pick a policy
//! (`elevator=deadline`) are applied before keys of that policy (`elevator.fifo_batch=4`).

use iowhy_stack::device::DEVICES;
use iowhy_stack::kernel::{KERNELS, KeyError, PATCHES, Stack, find_kernel, policies};
use iowhy_stack::origin::find;

use crate::diagnose::{Problem, Problems, Span};

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

/// The stack that `on` and `disk` describe. Without a usable kernel there is none, and `problems` says why.
pub fn parse(on: &str, disk: Option<&str>, problems: &mut Problems) -> Option<Stack> {
    let before = problems.list.len();
    let mut of_disk = Problems::default();
    let stack = parse_on(on, disk, problems, &mut of_disk);
    problems.list.append(&mut of_disk.list);
    let clean = problems.list[before..].iter().all(|p| p.severity != crate::diagnose::Severity::Error);
    if clean { stack } else { None }
}

/// Checks a `--disk` where no kernel is given: its mistakes are worth telling all the same.
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
    let kernel = find_kernel(name.text);
    if kernel.is_none() {
        let accepted =
            KERNELS.iter().flat_map(|kernel| std::iter::once(kernel.name).chain(kernel.aliases.iter().copied()));
        let message = match name.text {
            "" => "no kernel is named after `sim:`".to_owned(),
            text => format!("unknown kernel `{text}`"),
        };
        // A version without its prefix (`2.6.6`) is the commonest slip.
        let word = if name.text.starts_with("linux-") { name.text.to_owned() } else { format!("linux-{}", name.text) };
        problems.push(
            Problem::error(message).at(name.span(on)).near(&word, accepted).help("`iowhy models kernel` lists them"),
        );
    }
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
                // Whether it fits the kernel can only be said of a known one.
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

fn set_disk(stack: &mut Stack, disk: &str, problems: &mut Problems) {
    let head_end = disk.find(',').unwrap_or(disk.len());
    let name = Piece::of(disk, 0, head_end);
    let known = find(DEVICES, name.text).is_some() || stack.set_device(name.text).is_ok();
    if !known {
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
    if let Err(error) = stack.set_device(name.text) {
        problems.push(of_key_error(error).at(name.span(disk)));
        return;
    }
    for setting in &settings {
        if let Err(error) = stack.set_device_option(setting.key.text, setting.value.text) {
            problems.push(at_setting(error, setting, disk, "iowhy models device"));
        }
    }
}

fn not_simulated(on: &str) -> Problem {
    let later = |what: &str| {
        Problem::error(format!("{what} is not part of this release: runs are simulated"))
            .at(Span::whole(on))
            .help("--on sim:linux-6.18 (`iowhy models kernel` lists the kernels)")
    };
    if on == "live" || on.starts_with("live,") {
        return later("`--on live`, running on this machine's kernel,");
    }
    if on.starts_with("kernel:") {
        return later("`--on kernel:`, booting a kernel under QEMU,");
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
    fn what_comes_later_says_so() {
        for on in ["live", "kernel:debian-6.1"] {
            let problems = check(on, None).expect_err("not simulated");
            assert!(problems[0].contains("not part of this release"), "{problems:?}");
        }
        let mut problems = Problems::default();
        assert!(parse("linux-4.4,elevator=noop", None, &mut problems).is_none());
        assert_eq!(problems.list[0].help.as_deref(), Some("sim:linux-4.4,elevator=noop"));
        for odd in ["", "sim:", "sim:,", "sim:+", "sim:linux-4.4,,", "sim:linux-4.4,=", "sim:ü,ö=ä"] {
            assert!(check(odd, Some(odd)).is_err(), "{odd}");
        }
    }
}

//! Helper commands, run as `cargo xtask COMMAND`.

mod actions;
mod archive;
mod bench;
mod disksim;
mod dist;
mod fit;
mod fuzz;
mod guide;
mod map;
mod methods;
mod oracle;
mod peers;
mod plant;
mod plant_live;
mod programs;
mod python;
mod robust;
mod spell;
mod steps;
mod tidy;
mod tune;
mod twins;
mod verify;
mod web;

use std::process::ExitCode;

/// One command: name, arguments for the usage text, effect, and its function.
struct Command {
    name: &'static str,
    arguments: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Outcome,
}

/// An error, as a message for a person.
type Outcome = Result<(), String>;

const COMMANDS: &[Command] = &[
    Command {
        name: "test",
        arguments: "",
        about: "everything that CI runs: all tests, formatting, clippy, tidy",
        run: verify::test,
    },
    Command {
        name: "check",
        arguments: "",
        about: "formatting, clippy without warnings, tidy, spelling; no tests",
        run: verify::check,
    },
    Command {
        name: "web",
        arguments: "",
        about: "the page of `iowhy report`: types, lint, unit tests, Chromium",
        run: web::run,
    },
    Command {
        name: "dist",
        arguments: "[--binary=PATH] [--check] [--twice] [--trial] [--wheel]",
        about: "what is shipped: static binary, packages, image; --trial, as root: in a fresh Debian",
        run: dist::run,
    },
    Command {
        name: "python",
        arguments: "",
        about: "the module for Python: built, its types and its tests (`dist --wheel` builds it for pip)",
        run: python::run,
    },
    Command {
        name: "actions",
        arguments: "",
        about: "workflows and the action: actionlint, shellcheck, its steps against a local GitHub",
        run: actions::run,
    },
    Command { name: "tidy", arguments: "", about: "the house rules that a program can check", run: tidy::run },
    Command {
        name: "bench",
        arguments: "[--json] [--quick] [NAME...]",
        about: "every speed figure as a ratio against its peer (docs/BENCH.md)",
        run: bench::run,
    },
    Command {
        name: "bench",
        arguments: "recorder [--quick] [--page]",
        about: "price of the recorders, triggers, kills, neighbours, as root (docs/BENCH.md)",
        run: bench::run,
    },
    Command {
        name: "map",
        arguments: "[--check]",
        about: "crates, rooms and arrows into docs/MAP.md; fails on an upward arrow or a circle",
        run: map::run,
    },
    Command {
        name: "methods",
        arguments: "",
        about: "how often comparisons are wrong: thousands of trials into docs/METHODS.md",
        run: methods::run,
    },
    Command {
        name: "plant",
        arguments: "[--seed 1] [--count 200] [--cases] [--show NR] [--invariants COUNT] [--page] [--json]",
        about: "causes hidden in simulated runs: how often `explain` finds them",
        run: plant::run,
    },
    Command {
        name: "plant",
        arguments: "--live [--seed 1] [--only NAME,..] [--recordings 3] [--binary PATH] [--page] [--json]",
        about: "causes made for real programs on this machine, as root: how often `explain` finds them",
        run: plant::run,
    },
    Command {
        name: "archive",
        arguments: "FOLDER --seal FILE [--simulated 240] [--guest KERNEL,..] [--no-live] [--seed 1] [--score ANSWERS]",
        about: "a benchmark of root causes: recordings with labels, and how tools do on them (docs/archive.json)",
        run: archive::run,
    },
    Command {
        name: "peers",
        arguments: "[--whole] [--only NAME,..] [--page] [--binary | --fio-source | --mmtests | --phoronix PATH]",
        about: "tests, job files and tools of fio, and sysbench, on the peer and on iowhy (docs/COMPATIBILITY.md)",
        run: peers::run,
    },
    Command {
        name: "oracle",
        arguments: "KERNEL,.. [--count 1000000] [--seed 1] [--only POLICY,..]",
        about: "policies of models against the kernels' own code, out of Debian's packages",
        run: oracle::run,
    },
    Command {
        name: "programs",
        arguments: "[--binary PATH] [--only NAME,..] [--rows] [--keep FOLDER]",
        about: "45 programs on seven file systems under `conform --live`, as root: what the models do not predict",
        run: programs::run,
    },
    Command {
        name: "guide",
        arguments: "[--binary PATH] [--only NAME,..] [--json] [--verbose]",
        about: "what users come with, typed as they would, with the package of `dist`, as root: is it answered",
        run: guide::run,
    },
    Command {
        name: "twins",
        arguments: "[--only JOB,..] [--schedulers NAME,..] [--disk NAME] [--idle | --busy] [--runs 3] [--page]",
        about: "jobs on a modelled disk, live and simulated, as root: do they agree (docs/MODELS.md)",
        run: twins::run,
    },
    Command {
        name: "robust",
        arguments: "[--only INCIDENT,..] [--sequences N] [--page]",
        about: "claims of the five incidents with one constant of the models moved (docs/MODELS.md)",
        run: robust::run,
    },
    Command {
        name: "disksim",
        arguments: "FOLDER [--page] [--toml FOLDER] [--requests NAME]",
        about: "DiskSim's validations (its folder `valid`) on our model of a drive; --page: into docs/BENCH.md",
        run: disksim::run,
    },
    Command {
        name: "fit",
        arguments: "[--only DISK,..] [--for 40s] [--disksim FOLDER] [--binary PATH] [--page]",
        about: "disks with hidden parameters, fitted, as root: what they do next is predicted (docs/BENCH.md)",
        run: fit::run,
    },
    Command {
        name: "tune",
        arguments: "[--jobs N] [--only NAME] [--seed 1] [--binary PATH] [--page]",
        about: "`iowhy tune` against exhaustive sweeps of twenty jobs, as root (docs/BENCH.md)",
        run: tune::run,
    },
    Command {
        name: "fuzz",
        arguments: "smoke [--seconds 60] [--seed 1]",
        about: "changed job files and command lines against their parsers",
        run: fuzz::run,
    },
];

fn usage() -> String {
    let mut text = "usage: cargo xtask COMMAND\n".to_owned();
    for command in COMMANDS {
        let call = format!("{} {}", command.name, command.arguments);
        text += &format!("\n  {call:<34} {}", command.about);
    }
    text
}

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    arguments.next();
    let arguments: Vec<String> = arguments.collect();
    let outcome = match arguments.split_first() {
        None => Err(usage()),
        Some((name, rest)) => match COMMANDS.iter().find(|command| command.name == name) {
            Some(command) => (command.run)(rest),
            None => Err(format!("no command `{name}`\n{}", usage())),
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the workspace.
fn root() -> &'static std::path::Path {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// The cargo that runs us.
fn cargo() -> std::process::Command {
    let mut command = std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// The release build of iowhy, made anew.
fn release_binary() -> Result<std::path::PathBuf, String> {
    let built = cargo().args(["build", "--quiet", "--release", "--bin", "iowhy"]).status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("iowhy could not be built".to_owned());
    }
    let path = target_folder().join("release/iowhy");
    std::path::absolute(&path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a measured part of a page in `docs`.
fn renew(page: &str, part: iowhy_text::part::Part, text: &str) -> Outcome {
    let path = root().join("docs").join(page);
    let failed = |error| format!("{}: {error}", path.display());
    let before = std::fs::read_to_string(&path).map_err(failed)?;
    if part.of(&before).is_none() {
        return Err(format!("{} has no place for the table of `{}`", path.display(), part.command));
    }
    std::fs::write(&path, part.put(&before, text)).map_err(failed)
}

/// Cargo's target folder.
fn target_folder() -> std::path::PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), std::path::PathBuf::from)
}

//! `test` and `check`.
//!
//! Tests run in the dev profile, where `iowhy-stack` is optimised and assertions are on. A tool that is missing is
//! named with what to install, and its step is skipped; under `CI=true` a skipped step is a failure.

use crate::steps::{Steps, in_ci, is_installed, none};
use crate::{Outcome, actions, cargo, peers, python, spell, target_folder, tidy, web};
use std::process::Command;

/// Programs and files that tests hold iowhy against or need, and the Debian packages that have them.
const PROGRAMS: &[(&str, &str)] = &[
    ("fio", "fio"),
    ("sysbench", "sysbench"),
    ("strace", "strace"),
    ("python3", "python3"),
    ("/usr/share/doc/python3-venv/copyright", "python3-venv"),
    ("dpkg-source", "dpkg-dev"),
    ("bonnie++", "bonnie++"),
    ("blkparse", "blktrace"),
    ("iostat", "sysstat"),
    ("mkfs.ext4", "e2fsprogs"),
    ("losetup", "util-linux"),
    ("mkfs.xfs", "xfsprogs"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("chromium", "chromium"),
    ("shellcheck", "shellcheck"),
    ("jq", "jq"),
    ("curl", "curl"),
    ("fish", "fish"),
    ("zsh", "zsh"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("/usr/lib/python3/dist-packages/prometheus_client/openmetrics/parser.py", "python3-prometheus-client"),
    (spell::DICTIONARY, "hunspell-en-gb"),
    ("gpg", "gnupg"),
    ("gpgv", "gpgv"),
    ("clang", "clang"),
    ("llvm-strip", "llvm"),
    ("/usr/include/bpf/bpf_helpers.h", "libbpf-dev"),
];

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Installs what is missing in CI as root; says elsewhere how to. Tests that lack a program skip loudly, and fail in
/// CI.
pub(crate) fn install_programs(programs: &[(&str, &'static str)]) {
    let missing: Vec<&str> =
        programs.iter().filter(|(program, _)| !is_installed(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return;
    }
    if !in_ci() || !is_root() {
        eprintln!("xtask: some tests will be SKIPPED; to run them: sudo apt-get install -y {}", missing.join(" "));
        return;
    }
    // A stale list of packages is the usual reason why an installation fails.
    for update in [false, true] {
        let apt = |arguments: &[&str]| {
            let mut command = Command::new("apt-get");
            command.env("DEBIAN_FRONTEND", "noninteractive").arg("-qq").args(arguments);
            command.status().is_ok_and(|status| status.success())
        };
        if update && !apt(&["update"]) {
            eprintln!("xtask: apt-get update failed");
        }
        let install = ["install", "-y", "--no-install-recommends"];
        if apt(&[&install[..], &missing[..]].concat()) {
            return;
        }
    }
    eprintln!("xtask: could not install {}: their tests will fail", missing.join(" "));
}

/// Everything. `tidy` is one of xtask's own tests, so that plain `cargo test --workspace` has it too.
pub(crate) fn test(arguments: &[String]) -> Outcome {
    none(arguments)?;
    install_programs(PROGRAMS);
    // Those of an earlier run tell nothing about this one.
    if let Err(error) = std::fs::remove_dir_all(web::kept())
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(format!("xtask: cannot remove {}: {error}", web::kept().display()));
    }
    // A note for each test that could not be decided, which is no failure: this machine has too much else to do.
    let notes = target_folder().join("tmp/not-decided");
    let _ = std::fs::remove_file(&notes);
    let mut steps = Steps::default();
    Steps::build("tests: build", cargo().args(["test", "--workspace", "--locked", "--no-run"]));
    if in_ci() {
        // 2 GiB for those who change something and build again, which nobody does here.
        let _ = std::fs::remove_dir_all(target_folder().join("debug/incremental"));
    }
    let tests = ["test", "--workspace", "--locked", "--no-fail-fast"];
    steps.run("tests", cargo().args(tests));
    let undecided = std::fs::read_to_string(&notes).unwrap_or_default();
    eprintln!("xtask: {} tests not decided\n{undecided}", undecided.lines().count());
    peers::steps(&mut steps);
    python::steps(&mut steps);
    // Clippy leaves a processor free, and the page needs less than one.
    let page = std::thread::spawn(|| {
        let mut steps = Steps::default();
        web::steps(&mut steps, true);
        actions::steps(&mut steps, true);
        steps
    });
    steps.lint();
    match page.join() {
        Ok(page) => steps.absorb(page),
        Err(_) => steps.fail("page", "its steps ended in a panic"),
    }
    steps.end()
}

/// Everything but the tests.
pub(crate) fn check(arguments: &[String]) -> Outcome {
    none(arguments)?;
    let mut steps = Steps::default();
    steps.lint();
    actions::steps(&mut steps, false);
    for (name, result) in [("tidy", tidy::run(&[])), ("map", crate::map::run(&["--check".to_owned()]))] {
        if let Err(message) = result {
            steps.fail(name, &message);
        }
    }
    spell::check(&mut steps);
    steps.end()
}

//! `python`: the module for Python. The tests in `crates/py/tests`, which also hold the types, the examples and the
//! notebooks, use the library of the workspace's own build, next to the Python sources and with packages in a virtual
//! environment.
//!
//! Wheels of `dist` are built with maturin and zig from PyPI, for glibc 2.17 and later (manylinux2014) and for musl 1.2
//! (musllinux).

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::steps::{Steps, is_installed, none};
use crate::{Outcome, cargo, root, target_folder};

/// Packages of the tests.
const TESTS: &[&str] = &["pytest", "pyarrow", "polars", "mypy", "nbclient", "ipykernel", "distributed"];
/// Packages that make a wheel.
const WHEEL: &[&str] = &["maturin>=1.9,<2", "ziglang"];

fn folder() -> PathBuf {
    target_folder().join("python")
}

/// A program of the virtual environment, in the folder of the crate.
fn here(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(folder().join("bin").join(program));
    command.current_dir(root().join("crates/py")).args(arguments);
    command.env("VIRTUAL_ENV", folder()).env("CARGO_TARGET_DIR", target_folder());
    // The zig of the environment is found by its Python.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder().join("bin")).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(folders).unwrap_or(path));
    // Whole: notebooks and workers of a cluster run elsewhere.
    command.env("PYTHONPATH", root().join("crates/py/python"));
    command
}

/// The environment, with these packages.
fn environment(steps: &mut Steps, packages: &[&str]) -> bool {
    if !is_installed("python3") {
        steps.skip("python", "not installed: python3 python3-venv");
        return false;
    }
    if !folder().join("bin/pip").is_file() {
        let mut venv = Command::new("python3");
        venv.args(["-m", "venv"]).arg(folder());
        if !venv.status().is_ok_and(|status| status.success()) {
            steps.skip("python", "python3-venv is not installed");
            return false;
        }
    }
    let install = ["install", "--quiet", "--disable-pip-version-check"];
    steps.run("python: packages", &mut here("pip", &[&install[..], packages].concat()));
    true
}

/// The module's place among the Python sources.
const MODULE: &str = "crates/py/python/iowhy/_native.abi3.so";

/// All steps of the tests.
pub(crate) fn steps(steps: &mut Steps) {
    if environment(steps, TESTS) {
        // Of all packages: the libraries are then those of the other tests.
        steps.run("python: module", cargo().args(["build", "--workspace", "--locked"]));
        let (library, module) = (target_folder().join("debug/libiowhy_native.so"), root().join(MODULE));
        let _ = std::fs::remove_file(&module);
        if let Err(error) = std::os::unix::fs::symlink(&library, &module) {
            return steps.fail("python: module", &format!("{}: {error}", module.display()));
        }
        let types = ["--strict", "--no-error-summary", "python/iowhy", "examples"];
        steps.run("python: types", &mut here("mypy", &types));
        steps.run("python: tests", &mut here("python", &["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]));
    }
}

/// A program that a new wheel has to run.
const TRIAL: &str = "import iowhy; print(iowhy.__version__, iowhy.run('dd if=big bs=64k count=9', 'sim:linux-6.18'))";

/// Targets of wheels, and tags of theirs. The first one is that of this machine.
const TARGETS: [(&str, &str); 2] =
    [("x86_64-unknown-linux-gnu", "manylinux2014"), ("x86_64-unknown-linux-musl", "musllinux_1_2")];

/// Wheels in the folder `out`; that for this machine is installed in a new environment that sees no Rust.
pub(crate) fn wheel(out: &Path) -> Outcome {
    let mut steps = Steps::default();
    if environment(&mut steps, WHEEL) {
        make_wheels(&mut steps, out);
    }
    steps.end()
}

fn make_wheels(steps: &mut Steps, out: &Path) {
    let clean = folder().join("clean");
    // What is not there need not go. The module of the tests would go into the wheel.
    let _ = std::fs::remove_file(root().join(MODULE));
    for old in [out, &clean] {
        let _ = std::fs::remove_dir_all(old);
    }
    for (target, tag) in TARGETS {
        let name = format!("wheel: {tag}");
        steps.run(&name, Command::new("rustup").args(["target", "add", target]));
        let mut build = here("maturin", &["build", "--quiet", "--locked", "--release", "--zig", "--target", target]);
        steps.run(&name, build.args(["--compatibility", tag, "--out"]).arg(out));
    }
    let built: Vec<PathBuf> =
        std::fs::read_dir(out).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    let of_here = built.iter().find(|path| path.to_string_lossy().contains("manylinux"));
    let Some(wheel) = of_here.filter(|_| built.len() == TARGETS.len()) else {
        return steps.fail("wheel", &format!("built: {built:?}"));
    };
    steps.run("wheel: a new environment", Command::new("python3").args(["-m", "venv"]).arg(&clean));
    let inside = |program: &str| {
        let mut command = Command::new(clean.join("bin").join(program));
        command.env_clear().env("PATH", "/usr/bin:/bin").current_dir(&clean);
        command
    };
    steps.run("wheel: pip install", inside("pip").args(["install", "--quiet", "--no-index"]).arg(wheel));
    steps.run("wheel: used", inside("python").args(["-c", TRIAL]));
}

/// The command.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    none(arguments)?;
    let mut all = Steps::default();
    steps(&mut all);
    all.end()
}

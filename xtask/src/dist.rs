//! `dist`: everything that is shipped, in `dist` of the target folder: one static binary, packages for Debian and
//! Fedora, a tarball, an image for containers, licences and bill of materials of all dependencies, checksums.
//!
//! Two builds of one commit are equal: times are those of the commit, paths are replaced, archives are sorted.
//! `--binary=PATH` packs a binary that exists. `--wheel` builds only the wheel for Python. `--twice` builds again
//! elsewhere and compares; `--trial` installs the package in a fresh Debian and removes it; `--check` asks cargo
//! whether the crates could be published, and installs the command from its folder.

mod image;
mod materials;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::steps::{Steps, is_installed};
use crate::verify::install_programs;
use crate::{Outcome, cargo, root, target_folder};

/// Where it runs: any Linux of this kind of processor, because nothing is taken from the system.
const TARGET: &str = "x86_64-unknown-linux-musl";
/// Without symbols, and at a fixed address: relocations alone are half a megabyte.
const LINKING: &str = " -Cstrip=symbols -Crelocation-model=static";
/// The script of the linker.
const SCRIPT: &str = "packaging/static.ld";
/// The unit of systemd.
const UNIT: &str = "iowhy-arm.service";
/// Most bytes of the binary.
const MOST_BYTES: u64 = 12_000_000;
/// Cargo's commands that make packages, with the versions that are known to.
const TOOLS: &[(&str, &str)] = &[("cargo-deb", "=3.8.0"), ("cargo-generate-rpm", "=0.21.1")];
/// Programs of the system, and their Debian packages.
const PROGRAMS: &[(&str, &str)] =
    &[("musl-gcc", "musl-tools"), ("xz", "xz-utils"), ("tar", "tar"), ("debootstrap", "debootstrap")];

/// The folder of everything that is shipped.
pub(crate) fn folder() -> PathBuf {
    target_folder().join("dist")
}

/// What the steps share.
struct Dist {
    version: String,
    /// Time of the commit, s since 1970.
    epoch: String,
    /// The tree that packages install.
    tree: PathBuf,
}

/// Runs a command to its end; its output, or what went wrong.
fn done(command: &mut Command) -> Result<Vec<u8>, String> {
    let words = format!("{command:?}");
    let output = command.stderr(std::process::Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot start {words}: {error}"))?;
    if output.status.success() { Ok(output.stdout) } else { Err(format!("{words}: {}", output.status)) }
}

/// An error with the path that it is about.
fn at<T>(path: &Path, result: std::io::Result<T>) -> Result<T, String> {
    result.map_err(|error| format!("{}: {error}", path.display()))
}

fn sha256(path: &Path) -> Result<String, String> {
    Ok(sha256_of(&at(path, fs::read(path))?))
}

fn sha256_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The binary, built in a target folder.
fn binary(target: &Path, epoch: &str) -> Result<PathBuf, String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo"))).ok_or("no home directory")?;
    let places = [(root(), "/iowhy"), (target, "/target"), (&home, "/cargo")];
    let flags = |option: &str| places.map(|(from, to)| format!("{option}={}={to}", from.display())).join(" ");
    let mut build = cargo();
    build
        .args(["rustc", "--locked", "--profile", "dist", "--package", "iowhy", "--target", TARGET, "--target-dir"])
        .arg(target)
        .arg("--")
        .arg(format!("-Clink-arg=-Wl,-T,{}", root().join(SCRIPT).display()))
        .env("SOURCE_DATE_EPOCH", epoch)
        .env("CFLAGS", flags("-ffile-prefix-map"))
        .env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS", flags("--remap-path-prefix") + LINKING);
    done(&mut build)?;
    Ok(target.join(TARGET).join("dist/iowhy"))
}

/// A command of cargo that is installed here, and not for the user.
fn tool(name: &str, version: &str) -> Result<Command, String> {
    let tools = target_folder().join("tools");
    let path = tools.join("bin").join(name);
    if !path.is_file() {
        done(cargo().args(["install", "--locked", name, "--version", version, "--root"]).arg(&tools))?;
    }
    let mut command = Command::new(path);
    command.current_dir(root()).arg(name.trim_start_matches("cargo-"));
    Ok(command)
}

impl Dist {
    /// Needs, version and time.
    fn begin() -> Result<Dist, String> {
        install_programs(PROGRAMS);
        if let Some((program, package)) = PROGRAMS.iter().find(|(program, _)| !is_installed(program)) {
            return Err(format!("dist needs {program}: sudo apt-get install -y {package}"));
        }
        done(Command::new("rustup").args(["target", "add", TARGET]))?;
        let time = done(Command::new("git").current_dir(root()).args(["log", "-1", "--format=%ct"]))?;
        let epoch =
            std::env::var("SOURCE_DATE_EPOCH").unwrap_or_else(|_| String::from_utf8_lossy(&time).trim().to_owned());
        at(&folder(), fs::create_dir_all(folder()))?;
        let tree = folder().join("tree");
        if tree.exists() {
            at(&tree, fs::remove_dir_all(&tree))?;
        }
        Ok(Dist { version: env!("CARGO_PKG_VERSION").to_owned(), epoch, tree })
    }

    /// Copies a file into the tree.
    fn put(&self, from: &Path, to: &str) -> Outcome {
        let to = self.tree.join(to);
        let parent = to.parent().expect("files lie in folders of the tree");
        at(parent, fs::create_dir_all(parent))?;
        at(from, fs::copy(from, &to)).map(drop)
    }

    /// The tree of an installed iowhy.
    fn fill(&self, binary: &Path) -> Outcome {
        self.put(binary, "usr/bin/iowhy")?;
        let iowhy = self.tree.join("usr/bin/iowhy");
        let man = self.tree.join("usr/share/man/man1");
        done(Command::new(&iowhy).args(["generate", "man"]).arg(&man))?;
        let shells = folder().join("completions");
        if shells.exists() {
            at(&shells, fs::remove_dir_all(&shells))?;
        }
        done(Command::new(&iowhy).args(["generate", "completions"]).arg(&shells))?;
        for (from, to) in [
            ("iowhy.bash", "bash-completion/completions/iowhy"),
            ("_iowhy", "zsh/vendor-completions/_iowhy"),
            ("iowhy.fish", "fish/vendor_completions.d/iowhy.fish"),
        ] {
            self.put(&shells.join(from), &format!("usr/share/{to}"))?;
        }
        for name in ["README.md", "LICENSE", "LICENSE-APACHE", "LICENSE-MIT"] {
            self.put(&root().join(name), &format!("usr/share/doc/iowhy/{name}"))?;
        }
        self.put(&root().join("packaging").join(UNIT), &format!("usr/lib/systemd/system/{UNIT}"))?;
        materials::write(&self.tree.join("usr/share/doc/iowhy"), &self.version, &self.epoch)
    }

    /// A tar of a folder, the same whoever makes it, and whenever.
    fn tar(&self, from: &Path, name: &str, to: &Path, options: &[&str]) -> Outcome {
        let mut tar = Command::new("tar");
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX", "--format=ustar"]);
        tar.arg(format!("--mtime=@{}", self.epoch)).args(options).arg("-cf").arg(to).arg("-C").arg(from).arg(name);
        done(&mut tar).map(drop)
    }

    /// Packages, tarball, image; their names.
    fn pack(&self) -> Result<Vec<String>, String> {
        let (version, out) = (&self.version, folder());
        let names = [
            format!("iowhy_{version}_amd64.deb"),
            format!("iowhy-{version}.x86_64.rpm"),
            format!("iowhy-{version}-x86_64-linux.tar.xz"),
            format!("iowhy-{version}-x86_64-linux.oci.tar"),
        ];
        let [deb, rpm, tarball, image] = [0, 1, 2, 3].map(|nr: usize| out.join(&names[nr]));
        let mut make = tool(TOOLS[0].0, TOOLS[0].1)?;
        make.env("SOURCE_DATE_EPOCH", &self.epoch).args([
            "--package",
            "iowhy",
            "--target",
            TARGET,
            "--profile",
            "dist",
        ]);
        done(make.args(["--no-build", "--no-strip", "--deb-revision", "", "--output"]).arg(&deb))?;
        let mut make = tool(TOOLS[1].0, TOOLS[1].1)?;
        make.env("SOURCE_DATE_EPOCH", &self.epoch).args(["--package", "crates/cli", "--arch", "x86_64"]);
        done(make.args(["--auto-req", "disabled", "--output"]).arg(&rpm))?;
        let rename = format!("--transform=s,^usr,iowhy-{version},");
        self.tar(&self.tree, "usr", &tarball, &["--xz", &rename])?;
        image::write(self, &image)?;
        let mut sums = String::new();
        for name in &names {
            sums += &format!("{}  {name}\n", sha256(&out.join(name))?);
        }
        at(&out, fs::write(out.join("SHA256SUMS"), &sums))?;
        eprint!("{sums}");
        Ok(names.to_vec())
    }
}

/// Everything that is shipped, from a binary that exists, or is built in a target folder.
fn ship(target: &Path, existing: Option<&Path>) -> Result<Vec<String>, String> {
    let dist = Dist::begin()?;
    let binary = existing.map_or_else(|| binary(target, &dist.epoch), |existing| Ok(existing.to_owned()))?;
    let bytes = at(&binary, fs::metadata(&binary))?.len();
    eprintln!("xtask: the binary has {bytes} bytes");
    if bytes >= MOST_BYTES {
        return Err(format!("{}: {bytes} bytes, and fewer than {MOST_BYTES} are allowed", binary.display()));
    }
    dist.fill(&binary)?;
    dist.pack()
}

/// Whether a second build, in a new folder, is the same.
fn twice() -> Outcome {
    let sums = folder().join("SHA256SUMS");
    let first = at(&sums, fs::read_to_string(&sums))?;
    let again = target_folder().join("again");
    ship(&again, None)?;
    let second = at(&sums, fs::read_to_string(&sums))?;
    let differ: Vec<&str> = second.lines().filter(|line| !first.contains(line)).collect();
    at(&again, fs::remove_dir_all(&again))?;
    if differ.is_empty() { Ok(()) } else { Err(format!("a second build differs:\n{}", differ.join("\n"))) }
}

/// Whether the crates could be published, and the command installed from its folder.
fn check() -> Outcome {
    let mut steps = Steps::default();
    let packages = [
        "publish",
        "--dry-run",
        "--workspace",
        "--exclude",
        "xtask",
        "--exclude",
        "iowhy-py",
        "--allow-dirty",
        "--locked",
    ];
    steps.run("publish, without doing it", cargo().args(packages));
    let place = target_folder().join("installed");
    let mut install = cargo();
    install.args(["install", "--locked", "--debug", "--path", "crates/cli", "--target-dir"]).arg(target_folder());
    steps.run("cargo install --path crates/cli", install.arg("--root").arg(&place));
    steps.run("the installed command", Command::new(place.join("bin/iowhy")).arg("--version"));
    steps.end()
}

/// The command.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let known = ["--check", "--twice", "--trial", "--wheel"];
    let (existing, words): (Vec<_>, Vec<_>) = arguments.iter().partition(|word| word.starts_with("--binary="));
    if let Some(wrong) = words.iter().find(|word| !known.contains(&word.as_str())) {
        return Err(format!("dist has no option `{wrong}`; it takes --binary=PATH, {}", known.join(", ")));
    }
    let wants = |option: &str| words.iter().any(|word| *word == option);
    if wants("--check") {
        check()?;
    }
    if wants("--wheel") {
        return crate::python::wheel(&folder().join("wheel"));
    }
    let existing = existing.last().and_then(|word| word.strip_prefix("--binary=")).map(Path::new);
    let names = ship(&target_folder(), existing)?;
    if wants("--twice") {
        twice()?;
    }
    if wants("--trial") { trial::run(&folder().join(&names[0])) } else { Ok(()) }
}

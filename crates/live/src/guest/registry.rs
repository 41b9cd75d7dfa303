//! Registries of packages that kernels are got from by name: one file each, and one line of [`REGISTRIES`].
//!
//! ```text
//! index      fetched with curl; where a registry signs it, gpgv holds it against the keyring of that registry, and
//!            only what gpgv says was signed is read
//! package    its SHA-256 must be that of the index; another one is refused, and nothing of it is unpacked
//! base       the address of each registry is in a variable of the environment: a mirror, or file:///FOLDER
//! ```
//! Nothing is installed. Known limit: an index without a signature (Fedora's repomd.xml, mainline builds) is as
//! trustworthy as its https connection.

mod archive;
mod debian;
mod fedora;
mod mainline;
mod ubuntu;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::GuestError;
use super::package::run;

/// Where kernels of one maker are.
#[derive(Debug)]
pub(super) struct Registry {
    /// The word before the version.
    pub(super) name: &'static str,
    /// Forms of its names, for help.
    pub(super) forms: &'static str,
    /// Its address, without a slash at the end.
    base: &'static str,
    /// The variable that has another address.
    variable: &'static str,
    /// The keys that sign its index, if any do.
    keyring: Option<Keyring>,
    /// Whether a version may be asked for.
    accepts: fn(&str) -> bool,
    /// Packages with the kernel of a version.
    find: fn(&Session<'_>, &str) -> Result<Vec<Package>, GuestError>,
}

/// All of them.
pub(super) const REGISTRIES: [&Registry; 4] =
    [&debian::REGISTRY, &ubuntu::REGISTRY, &fedora::REGISTRY, &mainline::REGISTRY];

/// A package in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Package {
    /// Name and version.
    pub(super) name: String,
    /// Below the base.
    path: String,
    sha256: String,
}

/// Requests to a registry while one kernel is got.
pub(super) struct Session<'a> {
    registry: &'a Registry,
    base: String,
    /// The file with the keys.
    ring: PathBuf,
    /// For files of this command alone.
    scratch: &'a Path,
}

/// The registry that a word names, and the version.
pub(super) fn of(word: &str) -> Option<(&'static Registry, &str)> {
    REGISTRIES.into_iter().find_map(|registry| {
        let version = word.strip_prefix(registry.name)?.strip_prefix('-')?;
        (registry.accepts)(version).then_some((registry, version))
    })
}

/// The forms of all names.
pub fn forms() -> String {
    REGISTRIES.map(|registry| registry.forms).join(", ")
}

/// The forms of the names of each, and the variable that has another address.
pub fn registries() -> [(&'static str, &'static str); REGISTRIES.len()] {
    REGISTRIES.map(|registry| (registry.forms, registry.variable))
}

/// Whether it is numbers with points between, at least so many.
fn is_version(text: &str, least: usize) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split('.').count() >= least && text.split('.').all(digits)
}

impl Registry {
    /// Gets the packages with the kernel of this version into a folder; each with its file.
    ///
    /// # Errors
    /// If it cannot be reached, has none, or is not what it should be.
    pub(super) fn get(&self, version: &str, scratch: &Path) -> Result<Vec<(Package, PathBuf)>, GuestError> {
        let base = std::env::var(self.variable).unwrap_or_else(|_| self.base.to_owned());
        let ring = self.keyring.as_ref().map(|ring| std::env::var(ring.variable).unwrap_or(ring.path.to_owned()));
        self.get_from((base.trim_end_matches('/'), ring.unwrap_or_default().as_ref()), version, scratch)
    }

    fn get_from(
        &self,
        (base, ring): (&str, &Path),
        version: &str,
        scratch: &Path,
    ) -> Result<Vec<(Package, PathBuf)>, GuestError> {
        let session = Session { registry: self, base: base.to_owned(), ring: ring.to_owned(), scratch };
        let packages = (self.find)(&session, version)?;
        packages.into_iter().map(|package| session.package(package)).collect()
    }
}

impl Session<'_> {
    /// An error of the registry; `kind` makes it one of the machine.
    fn error(&self, what: &str, reason: &str) -> GuestError {
        let (name, variable) = (self.registry.name, self.registry.variable);
        let text = format!("{what}: {reason}; another address: {variable}, a kernel of your own: kernel:DIR");
        let error = io::Error::new(io::ErrorKind::ResourceBusy, text);
        GuestError::Registry { name, error }
    }

    /// It is reached, and has no such thing.
    fn none(&self, what: &str, known: &str) -> GuestError {
        GuestError::Kernel(format!("{} has {what} ({}); {known}, or kernel:DIR", self.registry.name, self.base))
    }

    /// Fetches a file below the base. Nothing if the registry says that it has none.
    fn fetch(&self, path: &str) -> Result<Option<PathBuf>, GuestError> {
        let url = format!("{}/{path}", self.base);
        let name: String = path.chars().map(|letter| if letter == '/' { '_' } else { letter }).collect();
        let file = self.scratch.join(name);
        let output = Command::new("curl")
            .args(["-sSL", "--fail", "--connect-timeout", "20", "-o"])
            .arg(&file)
            .arg(&url)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| self.error(&format!("cannot run curl for {url}"), &error.to_string()))?;
        match output.status.code() {
            Some(0) => Ok(Some(file)),
            // An answer of 400 and above; of file:, that there is none.
            Some(22 | 37) => Ok(None),
            _ => {
                let said = String::from_utf8_lossy(&output.stderr);
                Err(self.error(&format!("cannot reach {url}"), said.trim()))
            }
        }
    }

    /// A file of an index, which has to have this SHA-256, unpacked by the end of its name.
    fn index(&self, path: &str, sha256: &str) -> Result<String, GuestError> {
        let file = self.fetch(path)?.ok_or_else(|| self.error(path, "the index names it, and it is not there"))?;
        self.check(&file, path, sha256)?;
        let bytes = super::package::unpacked(&file)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn package(&self, package: Package) -> Result<(Package, PathBuf), GuestError> {
        let missing = || self.error(&package.path, "the index names it, and it is not there");
        let file = self.fetch(&package.path)?.ok_or_else(missing)?;
        self.check(&file, &package.path, &package.sha256)?;
        Ok((package, file))
    }

    fn check(&self, file: &Path, path: &str, expected: &str) -> Result<(), GuestError> {
        let shown = run("sha256sum", &["-b".as_ref(), file.as_os_str()], None)?;
        // A name with a backslash is escaped by one before the sum.
        let found = shown.trim_start_matches('\\').split(' ').next().unwrap_or_default().to_owned();
        if found == expected && found.len() == 64 {
            return Ok(());
        }
        let _ = fs::remove_file(file);
        let reason = format!("its SHA-256 is {found}, the index has {expected}: refused");
        Err(self.error(&format!("{}/{path}", self.base), &reason))
    }

    /// The part of a clear-signed file that was signed, by a key of the keyring.
    fn signed(&self, path: &str) -> Result<Option<String>, GuestError> {
        let Some(file) = self.fetch(path)? else { return Ok(None) };
        let url = format!("{}/{path}", self.base);
        if !self.ring.is_file() {
            let package = self.registry.keyring.as_ref().map_or("", |ring| ring.package);
            let reason = format!("no keyring {}: `apt-get install {package}`", self.ring.display());
            return Err(self.error(&format!("cannot check {url}"), &reason));
        }
        let out = file.with_extension("signed");
        let output = Command::new("gpgv")
            .args(["--status-fd", "1", "--keyring"])
            .args([self.ring.as_os_str(), "--output".as_ref(), out.as_os_str(), file.as_os_str()])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| {
                let reason = format!("gpgv does not start ({error}): `apt-get install gpgv`");
                self.error(&format!("cannot check {url}"), &reason)
            })?;
        if !is_good(&String::from_utf8_lossy(&output.stdout)) {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.lines().last().unwrap_or_default();
            return Err(self.error(&url, &format!("its signature does not hold: refused ({said})")));
        }
        let read = fs::read_to_string(&out).map(Some);
        read.map_err(|error| GuestError::Io { what: format!("read {}", out.display()), error })
    }
}

/// Whether gpgv found a good signature and no bad one. One by a key that the keyring lacks says nothing: a release is
/// signed by the keys of its predecessor and its successor, too. Of expired and revoked keys none is good.
fn is_good(status: &str) -> bool {
    let has = |word: &str| status.lines().any(|line| line.split(' ').nth(1) == Some(word));
    has("GOODSIG") && has("VALIDSIG") && !has("BADSIG")
}

/// Keys that sign the index of a registry.
#[derive(Debug)]
struct Keyring {
    path: &'static str,
    /// The variable that has another path.
    variable: &'static str,
    /// The package that it comes with.
    package: &'static str,
}

#[cfg(test)]
mod tests;

//! Kernels as they were released, built by Ubuntu: `vX.Y/amd64` with `CHECKSUMS`, an image and its modules.
//!
//! Known limit: `CHECKSUMS.gpg` is not checked, because no package has its key.

use super::super::GuestError;
use super::{Package, Registry, Session, is_version};

pub(super) const REGISTRY: Registry = Registry {
    name: "mainline",
    forms: "mainline-6.8, mainline-6.8.12",
    base: "https://kernel.ubuntu.com/mainline",
    variable: "IOWHY_MAINLINE_URL",
    keyring: None,
    accepts: |version| is_version(version, 2),
    find,
};

/// Beginnings of the packages that a guest needs; the first one has the kernel.
const PACKAGES: [&str; 2] = ["linux-image-unsigned-", "linux-modules-"];

/// The packages that a list of sums names, and their SHA-256: lines of a sum and a name, after lines of other sums.
pub(super) fn packages(sums: &str, folder: &str) -> Vec<Package> {
    let of = |prefix: &str| {
        sums.lines().find_map(|line| {
            let (sha256, name) = line.split_once(char::is_whitespace)?;
            let name = name.trim_start_matches([' ', '*']);
            let whole = sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
            let fits = name.starts_with(prefix) && name.contains("-generic_") && name.ends_with("_amd64.deb");
            let (path, sha256) = (format!("{folder}/{name}"), sha256.to_owned());
            (whole && fits).then(|| Package { name: name.trim_end_matches(".deb").to_owned(), path, sha256 })
        })
    };
    PACKAGES.into_iter().filter_map(of).collect()
}

fn find(session: &Session<'_>, version: &str) -> Result<Vec<Package>, GuestError> {
    let folder = format!("v{version}/amd64");
    let none =
        || session.none(&format!("no build of {version}"), "mainline-X.Y or mainline-X.Y.Z as kernel.org has it");
    let file = session.fetch(&format!("{folder}/CHECKSUMS"))?.ok_or_else(none)?;
    let what = || format!("read {}", file.display());
    let sums = std::fs::read_to_string(&file).map_err(|error| GuestError::Io { what: what(), error })?;
    let found = packages(&sums, &folder);
    if found.first().is_some_and(|it| it.name.starts_with(PACKAGES[0])) { Ok(found) } else { Err(none()) }
}

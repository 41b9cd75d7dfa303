//! Debian: `linux-image-X.Y.*-cloud-amd64`, which has what a virtual machine needs and no more.
//!
//! ```text
//! 13 trixie 6.12, 12 bookworm 6.1, 11 bullseye 5.10; newer ones in sid and in backports
//! ```
//! The suite of a version's release comes first, so that only one index is fetched for those.

use super::super::GuestError;
use super::{Keyring, Package, Registry, Session, archive, is_version};

pub(super) const REGISTRY: Registry = Registry {
    name: "debian",
    forms: "debian-6.1",
    base: "http://deb.debian.org/debian",
    variable: "IOWHY_DEBIAN_URL",
    keyring: Some(Keyring {
        path: "/usr/share/keyrings/debian-archive-keyring.gpg",
        variable: "IOWHY_DEBIAN_KEYRING",
        package: "debian-archive-keyring",
    }),
    accepts: |version| is_version(version, 2),
    find,
};

/// Suites, and the kernel of each release.
const SUITES: [(&str, &str); 7] = [
    ("trixie", "6.12"),
    ("bookworm", "6.1"),
    ("bullseye", "5.10"),
    ("trixie-backports", ""),
    ("bookworm-backports", ""),
    ("bullseye-backports", ""),
    ("sid", ""),
];

fn find(session: &Session<'_>, version: &str) -> Result<Vec<Package>, GuestError> {
    let of_release = |kernel: &str| !kernel.is_empty() && format!("{version}.").starts_with(&format!("{kernel}."));
    let mut suites = SUITES.to_vec();
    suites.sort_by_key(|(_, kernel)| !of_release(kernel));
    let suites: Vec<String> = suites.into_iter().map(|(suite, _)| suite.to_owned()).collect();
    let prefix = format!("linux-image-{version}.");
    let found = archive::newest(session, &suites, (&prefix, "-cloud-amd64"), &[])?;
    found.ok_or_else(|| {
        session.none(&format!("no package {prefix}*-cloud-amd64"), "debian-6.1 and debian-6.12 are there")
    })
}

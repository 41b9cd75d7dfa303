//! Ubuntu: `linux-image-X.Y.0-N-generic` and its modules, by the release or by the kernel.
//!
//! ```text
//! ubuntu-24.04   the kernel that the release came with, newest build
//! ubuntu-6.8     the newest build of this kernel in any release, those of hardware enablement included
//! ```
//! Known limit: releases after their end are elsewhere (old-releases.ubuntu.com: IOWHY_UBUNTU_URL).

use super::super::GuestError;
use super::{Keyring, Package, Registry, Session, archive, is_version};

pub(super) const REGISTRY: Registry = Registry {
    name: "ubuntu",
    forms: "ubuntu-24.04, ubuntu-6.8",
    base: "http://archive.ubuntu.com/ubuntu",
    variable: "IOWHY_UBUNTU_URL",
    keyring: Some(Keyring {
        path: "/usr/share/keyrings/ubuntu-archive-keyring.gpg",
        variable: "IOWHY_UBUNTU_KEYRING",
        package: "ubuntu-archive-keyring",
    }),
    accepts: |version| is_version(version, 2),
    find,
};

/// Releases: number, name, kernel.
const RELEASES: [(&str, &str, &str); 5] = [
    ("25.10", "questing", "6.17"),
    ("25.04", "plucky", "6.14"),
    ("24.04", "noble", "6.8"),
    ("22.04", "jammy", "5.15"),
    ("20.04", "focal", "5.4"),
];

fn find(session: &Session<'_>, version: &str) -> Result<Vec<Package>, GuestError> {
    let of_release = RELEASES.iter().find(|(number, ..)| *number == version);
    let kernel = of_release.map_or(version, |(.., kernel)| kernel);
    let mut releases: Vec<_> = RELEASES.iter().filter(|it| of_release.is_none_or(|one| one == *it)).collect();
    // The one that came with it first.
    releases.sort_by_key(|(.., own)| *own != kernel);
    let suites = releases.iter().flat_map(|(_, name, _)| [format!("{name}-updates"), (*name).to_owned()]);
    let prefix = format!("linux-image-{kernel}.");
    let beside = ["linux-modules-", "linux-modules-extra-"];
    let suites: Vec<String> = suites.collect();
    let found = archive::newest(session, &suites, (&prefix, "-generic"), &beside)?;
    let known: Vec<&str> = RELEASES.iter().map(|(number, ..)| *number).collect();
    found.ok_or_else(|| {
        session.none(&format!("no package {prefix}*-generic"), &format!("releases {}", known.join(", ")))
    })
}

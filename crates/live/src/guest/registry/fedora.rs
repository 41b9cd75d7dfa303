//! Fedora: `kernel-core` and `kernel-modules-core` of a release, or of the newest release that has the kernel.
//!
//! ```text
//! repodata/repomd.xml   names the index of packages (type primary) with its SHA-256
//! primary.xml           for each package name, version, SHA-256 and place
//! ```
//! Updates come before what the release began with. Reference: the metadata that createrepo_c writes.

use super::super::GuestError;
use super::super::package::natural;
use super::{Package, Registry, Session, is_version};

pub(super) const REGISTRY: Registry = Registry {
    name: "fedora",
    forms: "fedora-43, fedora-6.17",
    base: "https://dl.fedoraproject.org/pub/fedora/linux",
    variable: "IOWHY_FEDORA_URL",
    keyring: None,
    accepts: |version| is_version(version, 1),
    find,
};

/// Releases that are looked through for a kernel, the newest first.
const RELEASES: [&str; 4] = ["43", "42", "41", "40"];

/// Packages that a guest needs; the first one has the kernel.
const PACKAGES: [&str; 2] = ["kernel-core", "kernel-modules-core"];

/// The text between two others.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found)
}

/// The place and SHA-256 of the index of packages.
pub(super) fn primary(repomd: &str) -> Option<(&str, &str)> {
    let data = repomd.split("<data ").find(|data| data.starts_with("type=\"primary\""))?;
    Some((between(data, "<location href=\"", "\"")?, between(data, "<checksum type=\"sha256\">", "<")?))
}

/// Packages of these names: each with its version.
pub(super) fn packages<'a>(index: &'a str, folder: &'a str) -> impl Iterator<Item = (&'static str, &'a str, Package)> {
    index.split("<package ").filter_map(move |package| {
        let name = PACKAGES.into_iter().find(|name| package.contains(&format!("<name>{name}</name>")))?;
        between(package, "<arch>", "<").filter(|arch| *arch == "x86_64")?;
        let head = between(package, "<version ", "/>")?;
        let (version, release) = (between(head, "ver=\"", "\"")?, between(head, "rel=\"", "\"")?);
        let sha256 = between(package, "<checksum type=\"sha256\" pkgid=\"YES\">", "<")?.to_owned();
        let path = format!("{folder}/{}", between(package, "<location href=\"", "\"")?);
        Some((name, version, Package { name: format!("{name} {version}-{release}"), path, sha256 }))
    })
}

fn find(session: &Session<'_>, version: &str) -> Result<Vec<Package>, GuestError> {
    let of_kernel = version.contains('.');
    let releases = if of_kernel { RELEASES.to_vec() } else { vec![version] };
    let mut reached = false;
    for release in releases {
        for folder in
            [format!("updates/{release}/Everything/x86_64"), format!("releases/{release}/Everything/x86_64/os")]
        {
            let Some(file) = session.fetch(&format!("{folder}/repodata/repomd.xml"))? else { continue };
            reached = true;
            let what = || format!("read {}", file.display());
            let repomd = std::fs::read_to_string(&file).map_err(|error| GuestError::Io { what: what(), error })?;
            let broken = || session.error(&format!("{folder}/repodata/repomd.xml"), "it names no index of packages");
            let (place, sum) = primary(&repomd).ok_or_else(broken)?;
            let index = session.index(&format!("{folder}/{place}"), sum)?;
            let wanted = |found: &str| !of_kernel || format!("{found}.").starts_with(&format!("{version}."));
            let all: Vec<_> = packages(&index, &folder).filter(|(_, found, _)| wanted(found)).collect();
            let newest = |name| {
                let of_name = all.iter().filter(move |(of, ..)| *of == name);
                of_name.max_by_key(|(.., it)| natural(&it.name)).map(|(.., it)| it.clone())
            };
            let found: Vec<Package> = PACKAGES.into_iter().filter_map(newest).collect();
            if found.first().is_some_and(|it| it.name.starts_with(PACKAGES[0])) {
                return Ok(found);
            }
        }
    }
    if !reached && of_kernel {
        return Err(session.error(&session.base, "none of its releases is there"));
    }
    Err(session.none(&format!("no kernel-core for {version}"), &format!("releases {}", RELEASES.join(", "))))
}

//! Archives of Debian and those like it: `dists/SUITE/InRelease`, `Packages`, `pool`.
//!
//! ```text
//! InRelease   signed; has the SHA-256 of every index
//! Packages    paragraphs of `Field: value`: Package, Version, Filename, SHA256; compressed
//! ```
//! Reference: the repository format of Debian (wiki.debian.org/DebianRepository/Format).

use super::super::GuestError;
use super::super::package::natural;
use super::{Package, Session};

/// Compressed forms of an index, the smallest first.
const ENDINGS: [&str; 3] = [".xz", ".gz", ""];

/// The SHA-256 of a file that a release names.
pub(super) fn sum_of<'a>(release: &'a str, path: &str) -> Option<&'a str> {
    let sums = release.split_once("\nSHA256:")?.1;
    // Until the next field.
    let lines = sums.lines().skip(1).take_while(|line| line.starts_with(' '));
    lines.into_iter().find_map(|line| {
        let mut words = line.split_whitespace();
        let (sum, _, name) = (words.next()?, words.next()?, words.next()?);
        (name == path).then_some(sum)
    })
}

/// The paragraphs of an index whose package satisfies a condition: name, version, and the package.
pub(super) fn packages<'a>(
    index: &'a str,
    wanted: impl Fn(&str) -> bool + 'a,
) -> impl Iterator<Item = (&'a str, Package)> + 'a {
    index.split("\n\n").filter_map(move |paragraph| {
        let field = |name: &str| paragraph.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let name = field("Package").filter(|name| wanted(name))?;
        let (version, path, sha256) = (field("Version")?, field("Filename")?, field("SHA256")?);
        Some((name, Package { name: format!("{name} {version}"), path: path.to_owned(), sha256: sha256.to_owned() }))
    })
}

/// The index of a suite, checked against its signature; nothing without such a suite.
fn index(session: &Session<'_>, suite: &str) -> Result<Option<String>, GuestError> {
    let Some(release) = session.signed(&format!("dists/{suite}/InRelease"))? else { return Ok(None) };
    for ending in ENDINGS {
        let path = format!("main/binary-amd64/Packages{ending}");
        if let Some(sum) = sum_of(&release, &path) {
            return session.index(&format!("dists/{suite}/{path}"), sum).map(Some);
        }
    }
    Err(session.error(&format!("dists/{suite}/InRelease"), "it names no main/binary-amd64/Packages"))
}

/// The newest kernel of these suites: the one whose name begins and ends so, with the packages that `beside` names for
/// what is between. The first suite that has one counts.
pub(super) fn newest(
    session: &Session<'_>,
    suites: &[String],
    (prefix, suffix): (&str, &str),
    beside: &[&str],
) -> Result<Option<Vec<Package>>, GuestError> {
    let mut reached = false;
    for suite in suites {
        let Some(index) = index(session, suite)? else { continue };
        reached = true;
        let wanted = |name: &str| name.starts_with(prefix) && name.ends_with(suffix);
        let Some((name, kernel)) = packages(&index, wanted).max_by_key(|(name, it)| (natural(name), natural(&it.name)))
        else {
            continue;
        };
        // `linux-image-6.8.0-31-generic`: what comes behind the first words names the others, too.
        let release = name.trim_start_matches("linux-image-").to_owned();
        let others: Vec<String> = beside.iter().map(|word| format!("{word}{release}")).collect();
        let mut all = vec![kernel];
        for other in others {
            let found = packages(&index, |name| name == other).max_by_key(|(_, it)| natural(&it.name));
            all.extend(found.map(|(_, package)| package));
        }
        return Ok(Some(all));
    }
    if reached { Ok(None) } else { Err(session.error(&session.base, "none of its suites is there")) }
}

//! `map`: permitted uses between crates, actual ones between rooms, and the picture of both in docs/MAP.md.
//!
//! A *room* is a module with everything below it. Rooms are compared with their siblings only, so that a table and the
//! files of its entries, parent and children, are one room to the outside. An arrow is drawn from a room to the sibling
//! whose items it names, through re-exports of modules too; tests are left out. A set of siblings that reach one
//! another is a circle. A public function that nothing but tests names is reported, too.

mod source;

use crate::{Outcome, cargo, root};
use source::Crate;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Crates from the bottom to the top, and what belongs there. A crate may use those above it in this list.
const ORDER: &[(&str, &str)] = &[
    ("iowhy-stack", "models of kernels and devices; the simulator; no files, clocks, threads"),
    ("iowhy-stats", "statistical methods; metrics with units and directions"),
    ("iowhy-text", "what people read: mistakes with their place, wrapped text, pictures of characters"),
    ("iowhy-live", "the running kernel: engines, files, devices, tracefs; all unsafe code"),
    ("iowhy-fio", "fio's language: job files, iologs, reports, logs"),
    ("iowhy-trace", "recorded traces: formats, calls joined to requests, counters"),
    ("iowhy-compare", "two groups of samples, a verdict for each metric; histories; others' formats"),
    ("iowhy-why", "digests, layers, rules, certainty: why two sides differ"),
    ("iowhy-lab", "runs, store, experiments, incidents, conformance, reports"),
    ("iowhy", "the binary: arguments, progress, output; the server of pages"),
    ("iowhy-py", "the Python module: verbs as functions, tables as Arrow, sweeps"),
    ("xtask", "tests, checks, benches, live plants"),
];

/// Circles that are right, each with its reason.
const RIGHT: &[(&str, &[&str], &str)] = &[
    (
        "iowhy-stack",
        &["read_loop", "readahead"],
        "the loop asks the policy, and policies say which loop their kernel has: both change together",
    ),
    (
        "iowhy-live",
        &["engine", "run"],
        "a thread's loop is compiled for each engine, so that a call costs nothing: the entry of an engine names \
         the loop",
    ),
];

const PAGE: &str = "docs/MAP.md";
const BEGIN: &str = "<!-- cargo xtask map: begin -->\n";
const END: &str = "<!-- cargo xtask map: end -->\n";

/// Writes the picture, or with `--check` compares it.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let check = match arguments {
        [] => false,
        [word] if word == "--check" => true,
        _ => return Err("map takes --check, or nothing".to_owned()),
    };
    let crates = crates()?;
    let mut wrong = upward(&crates);
    for one in &crates {
        wrong.extend(circles_in(one, &[]));
    }
    wrong.extend(unused(&crates));
    let path = root().join(PAGE);
    let page = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let fresh = with_picture(&page, &crates)?;
    if check && fresh != page {
        wrong.push(format!("{PAGE} is stale: cargo xtask map"));
    } else if !check {
        std::fs::write(&path, fresh).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("map:\n  {}", wrong.join("\n  "))) }
}

/// All crates of the workspace, from the bottom to the top.
fn crates() -> Result<Vec<Crate>, String> {
    let output = cargo()
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata has no packages")?;
    let known: BTreeSet<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let listed: BTreeSet<&str> = ORDER.iter().map(|(name, _)| *name).collect();
    if known != listed {
        return Err(format!("ORDER in xtask/src/map.rs lists {listed:?}, the workspace has {known:?}"));
    }
    ORDER
        .iter()
        .map(|(name, _)| {
            let package = packages.iter().find(|package| package["name"] == *name).ok_or("no such package")?;
            let uses = package["dependencies"].as_array().into_iter().flatten();
            let uses = uses
                .filter(|dependency| dependency["kind"].is_null())
                .filter_map(|dependency| ORDER.iter().find(|(name, _)| dependency["name"] == *name))
                .map(|(name, _)| *name)
                .collect();
            let manifest = package["manifest_path"].as_str().ok_or("a package without a manifest")?;
            let folder = std::path::Path::new(manifest).with_file_name("src");
            Crate::read(name, &folder, uses)
        })
        .collect()
}

/// Arrows against the order of the crates.
fn upward(crates: &[Crate]) -> Vec<String> {
    let rank = |name: &str| ORDER.iter().position(|(listed, _)| *listed == name);
    let mut wrong = Vec::new();
    for one in crates {
        for used in one.uses.iter().filter(|used| rank(used) >= rank(&one.name)) {
            wrong.push(format!("{} uses {used}, which stands above it", one.name));
        }
    }
    wrong
}

/// Functions that nothing but tests calls. Words are counted, so a function may hide behind another of its name.
fn unused(crates: &[Crate]) -> Vec<String> {
    let named = |name: &str| crates.iter().map(|one| one.count(name)).sum::<usize>();
    let public = crates.iter().flat_map(Crate::public);
    let unused = public.filter(|(name, ..)| named(name) < 2 && *name != "main");
    unused.map(|(name, file, line)| format!("{file}:{line}: only tests call `{name}`, or nobody")).collect()
}

/// Circles among the children of `parent` and, below them, of each child.
fn circles_in(one: &Crate, parent: &[String]) -> Vec<String> {
    let arrows = one.arrows(parent);
    let mut wrong = Vec::new();
    for circle in circles(&arrows) {
        let names: Vec<&str> = circle.iter().map(String::as_str).collect();
        let place = [std::slice::from_ref(&one.name), parent].concat().join("::");
        if !RIGHT.iter().any(|(at, rooms, _)| *at == place && *rooms == names) {
            wrong.push(format!("{place}: a circle of {}", names.join(", ")));
            for (from, to, site) in arrows.iter().flat_map(|(from, to)| to.iter().map(move |(to, at)| (from, to, at))) {
                if circle.contains(from) && circle.contains(to) {
                    wrong.push(format!("    {from} -> {to}: {}", site.iter().cloned().collect::<Vec<_>>().join(", ")));
                }
            }
        }
    }
    for child in one.children(parent) {
        wrong.extend(circles_in(one, &[parent, &[child]].concat()));
    }
    wrong
}

/// Strongly connected sets of more than one room.
fn circles(arrows: &Arrows) -> Vec<BTreeSet<String>> {
    let reach = |from: &String| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from];
        while let Some(room) = open.pop() {
            for next in arrows.get(room).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = arrows.keys().map(|room| (room, reach(room))).collect();
    let mut found = BTreeSet::new();
    for (room, seen) in &reached {
        if seen.contains(*room) {
            let with = seen.iter().filter(|other| reached.get(other).is_some_and(|back| back.contains(*room)));
            found.insert(with.cloned().collect::<BTreeSet<String>>());
        }
    }
    found.into_iter().collect()
}

/// From a room to the siblings that it uses, and at which files and lines.
type Arrows = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn with_picture(page: &str, crates: &[Crate]) -> Result<String, String> {
    let (before, rest) = page.split_once(BEGIN).ok_or_else(|| format!("{PAGE} has no place for the picture"))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| format!("{PAGE} has no end of the picture"))?;
    let mut picture = String::new();
    // Writing to a string cannot fail.
    let _ = write_picture(&mut picture, crates);
    Ok(format!("{before}{BEGIN}{picture}{END}{after}"))
}

fn write_picture(out: &mut String, crates: &[Crate]) -> std::fmt::Result {
    writeln!(out, "```mermaid\nflowchart BT")?;
    for (one, (_, about)) in crates.iter().zip(ORDER) {
        writeln!(out, "  {}[\"<b>{}</b><br/>{about}\"]", one.name, one.name)?;
    }
    for one in crates {
        for used in essential(one, crates) {
            writeln!(out, "  {} --> {used}", one.name)?;
        }
    }
    writeln!(out, "```\n")?;
    writeln!(out, "An arrow points at what is used; arrows that follow from others are left out.\n")?;
    for one in crates.iter().rev() {
        writeln!(out, "## {}\n\n| room | what |\n| --- | --- |", one.name)?;
        for (name, about) in one.rooms() {
            writeln!(out, "| `{name}` | {about} |")?;
        }
        writeln!(out)?;
    }
    for (place, rooms, why) in RIGHT {
        writeln!(out, "A circle that is right: `{place}`, {}: {why}.", rooms.join(" and "))?;
    }
    Ok(())
}

/// Crates that `one` uses and that nothing else it uses would bring.
fn essential<'a>(one: &'a Crate, crates: &[Crate]) -> Vec<&'a str> {
    let through = |name: &str, other: &str| -> bool {
        fn reaches(crates: &[Crate], from: &str, to: &str) -> bool {
            crates
                .iter()
                .filter(|one| one.name == from)
                .flat_map(|one| &one.uses)
                .any(|used| *used == to || reaches(crates, used, to))
        }
        reaches(crates, other, name)
    };
    one.uses
        .iter()
        .filter(|name| !one.uses.iter().any(|other| other != *name && through(name, other)))
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_and_rooms_use_only_what_is_below_them_and_the_page_says_so() {
        assert_eq!(run(&["--check".to_owned()]), Ok(()));
    }

    #[test]
    fn a_circle_is_found_and_a_chain_is_none() {
        let arrows = |pairs: &[(&str, &str)]| {
            let mut all = Arrows::new();
            for (from, to) in pairs {
                all.entry((*from).to_owned()).or_default().entry((*to).to_owned()).or_default();
            }
            all
        };
        assert!(circles(&arrows(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
        let found = circles(&arrows(&[("a", "b"), ("b", "c"), ("c", "b"), ("d", "a")]));
        assert_eq!(found, [BTreeSet::from(["b".to_owned(), "c".to_owned()])]);
    }
}

//! The house rules that a program can check. Also a test, so that no one can forget to run it.

mod prose;

use crate::{Outcome, root};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::fs;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use twox_hash::XxHash64;

/// Longest line, in characters.
const MAX_WIDTH: usize = 120;

/// Text that must not be in the sources, and why. Written in two halves so that this file passes its own check.
const FORBIDDEN: &[(&str, &str, &str)] = &[
    ("todo", "!(", "finish it or leave it out"),
    ("unimple", "mented!(", "finish it or leave it out"),
    ("dbg", "!(", "a leftover of debugging"),
    ("#[ign", "ore", "a test that does not run is no test"),
    ("/ho", "me/", "a path of somebody's machine"),
    ("/ro", "ot/", "a path of somebody's machine"),
    ("/wo", "rk/", "a path of somebody's machine"),
    ("/mn", "t/", "a path of somebody's machine"),
];

/// Longest function, and file without its tests, in lines.
const MAX_FUNCTION: usize = 100;
const MAX_FILE: usize = 800;

/// Longer files: models that follow one algorithm of a kernel or a drive from end to end, and tables.
const LONG_FILES: &[&str] = &[
    "crates/fio/src/options/table.rs",
    "crates/lab/src/plant/table.rs",
    "crates/stack/src/block.rs",
    "crates/stack/src/device/disk.rs",
    "crates/stack/src/elevator/cfq_2_6_18.rs",
    "crates/stack/src/elevator/cfq_2_6_33/core.rs",
    "crates/stack/src/kernel.rs",
    "crates/stack/src/sim.rs",
];

/// Checks everything.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    if !arguments.is_empty() {
        return Err("tidy takes no arguments".to_owned());
    }
    let complaints = complaints();
    if complaints.is_empty() { Ok(()) } else { Err(format!("tidy:\n  {}", complaints.join("\n  "))) }
}

fn complaints() -> Vec<String> {
    let mut found = Vec::new();
    let sources: Vec<(PathBuf, String)> = ["crates", "xtask"]
        .iter()
        .flat_map(|folder| files(&root().join(folder), "rs"))
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (path, text)
        })
        .collect();
    assert!(sources.len() > 20, "tidy looks in the wrong place: {} sources", sources.len());
    let figures = published_figures();
    for (path, text) in &sources {
        let name = path.strip_prefix(root()).unwrap_or(path).display().to_string();
        found.extend(in_source(&name, text, &figures));
        found.extend(unnamed_study(&name, text));
        if name.starts_with("crates") && name.contains("/src/") && !name.ends_with("tests.rs") {
            found.extend(prose::in_source(&name, text));
        }
        if !name.contains("tests") {
            found.extend(too_long(&name, text));
        }
    }
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        found.extend(prose::in_page(&name, &text));
    }
    found.extend(unlisted_models(&root().join("crates/stack/src")));
    let page = fs::read_to_string(root().join("docs/RULES.md")).unwrap_or_default();
    let current = format!("--page`, rules `{}`", rules_stamp());
    if !page.lines().any(|line| line.starts_with("`cargo xtask plant --seed") && line.contains(&current)) {
        found.push("docs/RULES.md: the table of plants is of other rules: cargo xtask plant --page".to_owned());
    }
    if unmarked_live_table(&page, &rules_stamp()).is_some() {
        let what = "docs/RULES.md: the table of live plants is of other rules, and does not say that";
        found.push(format!("{what}: cargo xtask plant --page"));
    }
    found
}

/// In the line above a table of live plants that nobody has counted again since the rules changed: that takes hours.
pub(crate) const EARLIER: &str = "of earlier rules";

/// The line above the table of live plants, if it is of other rules and does not say that.
pub(crate) fn unmarked_live_table<'a>(page: &'a str, stamp: &str) -> Option<&'a str> {
    let line = page.lines().find(|line| line.starts_with("`cargo xtask plant --live"))?;
    (!line.contains(&format!("rules `{stamp}`")) && !line.contains(EARLIER)).then_some(line)
}

/// A short hash of the rules and of the digests that they read: the tokens of their sources without comments, strings
/// and tests. Findings change with it only.
pub(crate) fn rules_stamp() -> String {
    let mut hash = XxHash64::with_seed(0);
    for path in files(&root().join("crates/why/src"), "rs") {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let tokens: TokenStream = code_of(&text).parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        stamp(tokens, &mut hash);
    }
    format!("{:08x}", hash.finish() >> 32)
}

fn stamp(tokens: TokenStream, hash: &mut XxHash64) {
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        match token {
            // An attribute: comments are these, too.
            TokenTree::Punct(sign) if sign.as_char() == '#' => drop(tokens.next()),
            TokenTree::Group(group) => {
                hash.write_u8(group.delimiter() as u8);
                stamp(group.stream(), hash);
            }
            TokenTree::Literal(text) if text.to_string().starts_with('"') => {}
            other => hash.write(other.to_string().as_bytes()),
        }
    }
}

/// The mistakes in one source file.
fn in_source(name: &str, text: &str, figures: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut complain = |why: &str| found.push(format!("{name}:{number}: {why}"));
        if line.chars().count() > MAX_WIDTH {
            complain("the line is longer than 120 characters");
        }
        if line.ends_with([' ', '\t']) {
            complain("the line ends in a space");
        }
        for (first, second, why) in FORBIDDEN {
            if line.contains(&format!("{first}{second}")) {
                complain(&format!("`{first}{second}`: {why}"));
            }
        }
        for word in line.split(|c: char| !c.is_ascii_digit() && c != '.' && c != '_') {
            if figures.contains(&word.replace('_', "")) {
                complain(&format!(
                    "{word} is a published figure: it belongs in the incident's file, which judges alone read"
                ));
            }
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        found.push(format!("{name}: the last line does not end"));
    }
    found
}

/// Pages and the web page's sources. The studies quote others, and the changes are history.
fn documents() -> Vec<PathBuf> {
    let mut found = vec![root().join("README.md")];
    for (folder, extension) in [("docs", "md"), ("scenarios", "md"), ("web/src", "ts"), ("web/src", "tsx")] {
        found.extend(files(&root().join(folder), extension));
    }
    found.retain(|path| !path.starts_with(root().join("docs/studies")));
    assert!(found.len() > 20, "tidy looks in the wrong place: {} documents", found.len());
    found
}

/// A file that cites a study and does not say which.
fn unnamed_study(name: &str, text: &str) -> Option<String> {
    const FOLDER: &str = "docs/studies/";
    let cites = |line: &str| ["the stu", "a stu", "our stu"].iter().any(|start| line.contains(&format!("{start}dy ")));
    let comment = |line: &&str| line.trim_start().starts_with("//") || line.contains('"');
    if !text.lines().filter(comment).any(cites) {
        return None;
    }
    let named = text.match_indices(FOLDER).any(|(at, _)| {
        let end = text[at..].find(".md").map_or(at, |end| at + end + 3);
        root().join(&text[at..end]).is_file()
    });
    (!named).then(|| format!("{name}: cites a study, and no file of {FOLDER}"))
}

/// Published results with four digits or more after the point or in all: enough of them that an equal number in the
/// sources is no coincidence.
/// A source text without its module of tests.
pub(crate) fn code_of(text: &str) -> &str {
    let tests = ["mod tests {", "pub(super) mod tests {"].map(|head| format!("#[cfg(test)]\n{head}"));
    tests.iter().find_map(|head| text.split_once(head.as_str())).map_or(text, |(code, _)| code)
}

/// A file or functions that nobody reads in one go.
fn too_long(name: &str, text: &str) -> Vec<String> {
    let lines: Vec<&str> = code_of(text).lines().collect();
    let mut found = Vec::new();
    if lines.len() > MAX_FILE && !LONG_FILES.contains(&name) {
        found.push(format!("{name}: {} lines without tests, more than {MAX_FILE}: cut it in two", lines.len()));
    }
    for (at, line) in lines.iter().enumerate() {
        let begins = line.trim_start();
        let indent = &line[..line.len() - begins.len()];
        let is_word = |word: &str| ["", "pub", "const", "async", "unsafe"].contains(&word) || word.starts_with("pub(");
        if begins.split_once("fn ").is_some_and(|(before, _)| before.split(' ').all(is_word)) {
            let end = lines[at..].iter().position(|line| line.strip_prefix(indent) == Some("}")).unwrap_or(0);
            if end >= MAX_FUNCTION {
                found.push(format!("{name}:{}: the function has {} lines: cut it in parts", at + 1, end + 1));
            }
        }
    }
    found
}

fn published_figures() -> BTreeSet<String> {
    let mut figures = BTreeSet::new();
    for path in files(&root().join("crates/lab/incidents"), "toml") {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        figures.extend(figures_in(&text));
    }
    figures
}

fn figures_in(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines().filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        let value = value.split('#').next().unwrap_or_default().trim();
        let is_figure = matches!(key.trim(), "published" | "value")
            && value.contains('.')
            && value.chars().all(|c| c.is_ascii_digit() || c == '.')
            && value.chars().filter(char::is_ascii_digit).collect::<String>().trim_matches('0').len() >= 4;
        is_figure.then(|| value.to_owned())
    })
}

/// Models that no table lists, and models whose file does not say what it is. A model is a file with a constant `ENTRY`
/// in a folder next to a file of the same name, where the table is.
fn unlisted_models(source: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut nr_models = 0;
    for table in files(source, "rs") {
        let Ok(table_text) = fs::read_to_string(&table) else { continue };
        for model in files(&table.with_extension(""), "rs") {
            let text = fs::read_to_string(&model).unwrap_or_default();
            if model.parent() != Some(&table.with_extension("")) || !text.contains("pub const ENTRY:") {
                continue;
            }
            nr_models += 1;
            let stem = model.file_stem().unwrap_or_default().to_string_lossy();
            let name = model.strip_prefix(root()).unwrap_or(&model).display();
            if !table_text.contains(&format!("&{stem}::ENTRY")) {
                found.push(format!("{name}: no table lists it"));
            }
            if !text.starts_with("//! ") {
                found.push(format!("{name}: the head that explains the model is missing"));
            }
        }
    }
    assert!(nr_models > 5, "tidy looks in the wrong place: {nr_models} models");
    found
}

/// Files below `folder` whose names end in `extension`, sorted. Empty if there is no such folder.
pub(crate) fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return found };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|end| end == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_tidy() {
        assert_eq!(complaints(), Vec::<String>::new());
    }

    #[test]
    fn a_table_of_live_plants_is_of_these_rules_or_says_that_it_is_not() {
        let line = |more: &str| format!("`cargo xtask plant --live --page`{more}: real programs");
        for (line, is_marked) in [
            (line(", rules `12345678`"), true),
            (line(", of earlier rules"), true),
            (line(""), false),
            (line(", rules `87654321`"), false),
        ] {
            let page = format!("first\n{line}\nlast");
            assert_eq!(unmarked_live_table(&page, "12345678").is_none(), is_marked, "{line}");
        }
        assert_eq!(unmarked_live_table("no table", "12345678"), None);
    }

    #[test]
    fn each_rule_finds_its_offender() {
        let figures = BTreeSet::from(["9.8765".to_owned(), "1234.5".to_owned()]);
        let offenders = [
            format!("let x = {}{});", "todo", "!("),
            "x".repeat(MAX_WIDTH + 1),
            "let x = 1; ".to_owned(),
            "let ratio = 9.8765;".to_owned(),
            "let ratio = 1_234.5;".to_owned(),
        ];
        for line in offenders {
            assert_eq!(in_source("a.rs", &format!("{line}\n"), &figures).len(), 1, "{line}");
        }
        assert_eq!(in_source("a.rs", "fn fine() {} // 19.8765 and 2.12\n", &figures), Vec::<String>::new());
        assert_eq!(in_source("a.rs", "fn no_end() {}", &figures).len(), 1);
    }

    #[test]
    fn long_functions_and_files_are_found() {
        let function =
            |lines: usize| format!("    pub(crate) fn f<T>(a: T) {{\n{}    }}\n", "        g();\n".repeat(lines));
        assert_eq!(too_long("a.rs", &function(98)), Vec::<String>::new());
        assert_eq!(too_long("a.rs", &function(99)), ["a.rs:1: the function has 101 lines: cut it in parts"]);
        assert_eq!(too_long("a.rs", &"\n".repeat(800)), Vec::<String>::new());
        assert_eq!(too_long("a.rs", &"\n".repeat(801)).len(), 1);
        assert_eq!(too_long("crates/stack/src/sim.rs", &"\n".repeat(801)).len(), 0);
    }

    #[test]
    fn a_study_has_a_file() {
        let cited = format!("// {} found it.\n", "the study");
        assert!(unnamed_study("a.rs", &cited).is_some());
        assert!(unnamed_study("a.rs", &format!("//! docs/studies/nothing.md\n{cited}")).is_some());
        assert_eq!(unnamed_study("a.rs", &format!("//! docs/studies/incident-2004.md\n{cited}")), None);
        assert_eq!(unnamed_study("a.rs", "fn study() {}\n"), None);
    }

    #[test]
    fn figures_are_read_from_incident_files() {
        let text = "published = 9.8765 # a ratio\nvalue = 3.54\nvalue = 12.75\nyear = 2004.25\nvalue = 0.9876\n";
        assert_eq!(figures_in(text).collect::<Vec<_>>(), ["9.8765", "12.75", "0.9876"]);
    }
}

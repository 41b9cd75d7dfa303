//! README and guide: what they show is run, and what they name is there.
//!
//! ```text
//! ```sh run     run from top to bottom in one folder for each page; every command must succeed
//! ```text       right behind it: what it prints; a line `...` stands for any lines, `...` in a line for any words
//! ```sh         verbs and options must be in the help
//! ```
//!
//! Only what a simulation prints can be shown in full: figures of live runs are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Folder, iowhy, is_fresh, json, root, text};

/// README and the pages of the guide.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    let folder = fs::read_dir(root().join("docs/guide/src")).expect("the guide is there");
    let names = folder.map(|entry| entry.expect("an entry").path());
    pages.extend(names.filter(|path| path.extension().is_some_and(|end| end == "md")));
    pages.sort();
    assert!(pages.len() > 6, "{pages:?}");
    pages
}

/// A fenced block: its first line, the words behind the fence, and its contents.
struct Block {
    line: usize,
    words: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (line, row) in (1..).zip(page.lines()) {
        match row.strip_prefix("```") {
            Some(_) if is_open => is_open = false,
            Some(words) => {
                is_open = true;
                found.push(Block { line, words: words.to_owned(), text: String::new() });
            }
            None if is_open => found.last_mut().expect("it is open").text.extend([row, "\n"]),
            None => {}
        }
    }
    assert!(!is_open, "the last block does not end");
    found
}

/// Whether `printed` is what `shown` stands for.
fn is_like(shown: &[&str], printed: &[&str]) -> bool {
    let Some((first, rest)) = shown.split_first() else { return printed.is_empty() };
    if first.trim() == "..." {
        return (0..=printed.len()).any(|skipped| is_like(rest, &printed[skipped..]));
    }
    printed.split_first().is_some_and(|(line, others)| line_is_like(first, line) && is_like(rest, others))
}

fn line_is_like(shown: &str, printed: &str) -> bool {
    let Some((head, tail)) = shown.split_once("...") else { return shown.trim_end() == printed.trim_end() };
    let Some(rest) = printed.strip_prefix(head) else { return false };
    rest.char_indices().any(|(at, _)| line_is_like(tail, &rest[at..])) || tail.is_empty()
}

#[test]
fn elided_output_is_compared() {
    let lines = |text: &'static str| text.lines().collect::<Vec<_>>();
    for (shown, printed, wanted) in [
        ("a\n...\nd\n", "a\nb\nc\nd\n", true),
        ("a\n...\n", "a\n", true),
        ("a\nd\n", "a\nb\nd\n", false),
        ("a ... c\n", "a 12 c\n", true),
        ("a ... c\n", "a 12 d\n", false),
        ("a\n...\nd\n", "a\nb\n", false),
    ] {
        assert_eq!(is_like(&lines(shown), &lines(printed)), wanted, "{shown} {printed}");
    }
}

#[test]
fn the_commands_of_readme_and_guide_print_what_they_show() {
    let binary = Path::new(env!("CARGO_BIN_EXE_iowhy")).parent().expect("a folder");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    let (mut wrong, mut nr_run) = (Vec::new(), 0);
    for page in pages() {
        let name = page.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let folder = Folder::new(&format!("guide-{name}"));
        let page = fs::read_to_string(&page).expect("a page");
        let blocks = blocks(&page);
        for (at, block) in blocks.iter().enumerate().filter(|(_, block)| block.words == "sh run") {
            let mut shell = Command::new("sh");
            shell.args(["-eu", "-c", &block.text]).current_dir(&folder.0);
            shell.env("PATH", &path).env("NO_COLOR", "1").env("IOWHY_STORE", folder.0.join("store"));
            let output = shell.output().expect("a shell");
            let printed = text(&output.stdout);
            nr_run += 1;
            if !output.status.success() {
                wrong.push(format!("{name}.md:{}: {}\n{}", block.line, output.status, text(&output.stderr)));
            }
            let next = blocks.get(at + 1).filter(|next| next.words == "text");
            let follows = |next: &&Block| next.line == block.line + block.text.lines().count() + 3;
            if let Some(shown) = next.filter(follows) {
                let lines = |text| str::lines(text).collect::<Vec<_>>();
                if !is_like(&lines(&shown.text), &lines(&printed)) {
                    wrong.push(format!("{name}.md:{}: prints\n{printed}", block.line));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(nr_run >= 8, "{nr_run} blocks are run");
}

/// The commands of a block that are iowhy's, as words; continued lines are joined, quoted words are empty.
fn commands(block: &str) -> Vec<Vec<String>> {
    let mut plain = String::new();
    let mut quote = None;
    for c in block.replace("\\\n", " ").chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                plain.push('_');
            }
            None => plain.push(c),
        }
    }
    let lines = plain.lines().map(|line| line.split(" #").next().unwrap_or_default());
    let parts = lines.flat_map(|line| line.split(['|', ';', '&', '(', ')']));
    let words = parts.map(|part| part.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    words
        .filter_map(|words| {
            let at = words.iter().position(|word| word == "iowhy")?;
            let before = &words[..at];
            let begins = before.iter().all(|word| word == "sudo" || word.contains('='));
            // `git bisect run iowhy ..`
            (begins || before.first().is_some_and(|word| word == "git")).then(|| words[at + 1..].to_vec())
        })
        .collect()
}

/// Verbs and options that the pages describe and that land with other changes of these days.
const LANDING: &[&str] = &["run --runs", "trace record --comm"];

/// Verbs with verbs below them.
const GROUPS: &[&str] = &["disk", "store", "trace"];

/// The help of a verb, if there is one.
fn help(verb: &str) -> Option<String> {
    let output = iowhy(&format!("{verb} --help"));
    output.status.success().then(|| text(&output.stdout))
}

#[test]
fn the_verbs_and_options_of_readme_and_guide_exist() {
    let mut helps: BTreeMap<String, Option<String>> = BTreeMap::new();
    let every_verb = text(&iowhy("--help").stdout);
    let (mut wrong, mut nr_commands) = (BTreeSet::new(), 0);
    for path in pages() {
        let page = fs::read_to_string(&path).expect("a page");
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for block in blocks(&page).iter().filter(|block| block.words.starts_with("sh")) {
            for words in commands(&block.text) {
                nr_commands += 1;
                let Some(first) = words.first().filter(|word| !word.starts_with('-')) else { continue };
                let below = words.get(1).filter(|_| GROUPS.contains(&first.as_str()));
                let verb = below.map_or(first.clone(), |below| format!("{first} {below}"));
                let help = helps.entry(verb.clone()).or_insert_with(|| help(&verb));
                let Some(help) = help.as_ref().map(|help| format!("{help}{every_verb}")) else {
                    if LANDING.contains(&verb.as_str()) {
                        continue;
                    }
                    wrong.insert(format!("{name}:{}: no verb `{verb}`", block.line));
                    continue;
                };
                // The drop-ins have other programs' options.
                if ["fio", "sysbench"].contains(&verb.as_str()) || words.iter().any(|word| word == "fio") {
                    continue;
                }
                for word in words.iter().take_while(|word| *word != "--").filter(|word| word.starts_with("--")) {
                    let option = word.split(['=', '[']).next().unwrap_or_default();
                    let is_end = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
                    let is_there = help.match_indices(option).any(|(at, _)| is_end(&help[at + option.len()..]));
                    if !is_there && !LANDING.contains(&format!("{verb} {option}").as_str()) {
                        wrong.insert(format!("{name}:{}: `iowhy {verb}` has no {option}", block.line));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.into_iter().collect::<Vec<_>>().join("\n"));
    assert!(nr_commands > 60, "{nr_commands} commands are looked at");
}

#[test]
fn links_lead_to_files_and_every_page_is_in_the_summary() {
    let guide = root().join("docs/guide/src");
    let summary = fs::read_to_string(guide.join("SUMMARY.md")).expect("the summary");
    let mut wrong = Vec::new();
    for path in pages() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let page = fs::read_to_string(&path).expect("a page");
        let is_in_guide = path.parent().is_some_and(|folder| folder.ends_with("guide/src"));
        if is_in_guide && name != "SUMMARY.md" && !summary.contains(&format!("({name})")) {
            wrong.push(format!("{name}: not in SUMMARY.md"));
        }
        for (at, _) in page.match_indices("](") {
            let target = page[at + 2..].split([')', '\n']).next().unwrap_or_default();
            let own = target.strip_prefix("https://github.com/iowhy/iowhy/").and_then(|rest| {
                rest.strip_prefix("blob/main/").or(rest.strip_prefix("tree/main/")).map(|rest| root().join(rest))
            });
            let is_elsewhere = own.is_none() && target.contains("://");
            // The page is built with the book.
            if is_elsewhere || target == "sample-report.html" {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = own.unwrap_or_else(|| path.parent().expect("a folder").join(file));
            let file = if target.starts_with('#') { path.clone() } else { file };
            if !file.exists() {
                wrong.push(format!("{name}: {target} leads nowhere"));
            } else if !anchor.is_empty() && !anchors(&file).contains(anchor) {
                wrong.push(format!("{name}: {target}: no such heading"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let readme = fs::read_to_string(root().join("README.md")).expect("the README");
    assert!(readme.lines().count() <= 150, "the README is longer than a page");
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(path: &Path) -> BTreeSet<String> {
    let page = fs::read_to_string(path).unwrap_or_default();
    let headings =
        page.lines().filter_map(|line| line.strip_prefix('#').map(|rest| rest.trim_start_matches('#').trim()));
    let keep = |c: char| c.is_alphanumeric() || c == '-' || c == '_' || c == ' ';
    headings
        .map(|text| text.to_lowercase().chars().filter(|c| keep(*c)).collect::<String>().replace(' ', "-"))
        .collect()
}

/// Words that begin a line of two spaces, in a help: candidates for verbs.
fn listed(help: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in help.lines() {
        let Some(word) = line.strip_prefix("  ").and_then(|rest| rest.split(' ').next()) else { continue };
        let is_word = word.len() > 1 && word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        if is_word && line.trim().contains("  ") && word != "help" && !found.iter().any(|known| known == word) {
            found.push(word.to_owned());
        }
    }
    found
}

/// The reference: help of all verbs, and the names of the tables.
fn reference() -> String {
    let top = text(&iowhy("--help").stdout);
    let mut page =
        "# Reference\n\nGenerated from the tables of the command; do not edit. A test fails when it is stale, \
                    and\n`IOWHY_REWRITE=1 cargo test -p iowhy --test command fresh` rewrites it.\n"
            .to_owned();
    page += "\n## Exit codes\n\n```text\n";
    let from = top.find("Exit codes:").expect("the exit codes");
    page += top[from..].split("\n\n").next().unwrap_or_default().trim_end();
    page += "\n```\n\n## Verbs\n";
    for verb in listed(&top) {
        let Some(text) = help(&verb) else { continue };
        page += &format!("\n### iowhy {verb}\n\n```text\n{}\n```\n", text.trim_end());
        for below in listed(&text).into_iter().filter(|_| GROUPS.contains(&verb.as_str())) {
            let verb = format!("{verb} {below}");
            if let Some(text) = help(&verb) {
                page += &format!("\n#### iowhy {verb}\n\n```text\n{}\n```\n", text.trim_end());
            }
        }
    }
    let models = json("models --json");
    let models = models["models"].as_array().expect("a list");
    let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let full = "https://github.com/iowhy/iowhy/blob/main/docs";
    for (kind, heading, more) in [
        ("kernel", "Kernels: `--on sim:NAME`", "MODELS.md"),
        ("patch", "Patches: `--on sim:KERNEL+NAME`", "MODELS.md"),
        ("device", "Disks: `--disk NAME`", "MODELS.md"),
        ("rule", "Causes that `explain` can name", "RULES.md"),
    ] {
        page += &format!("\n## {heading}\n\nDetails: [{more}]({full}/{more})\n\n| name | |\n| --- | --- |\n");
        for model in models.iter().filter(|model| model["kind"] == kind) {
            page += &format!("| `{}` | {} |\n", word(&model["name"]), word(&model["summary"]).replace('|', "\\|"));
        }
    }
    let mut keys: BTreeMap<String, String> = BTreeMap::new();
    for option in models.iter().filter(|model| model["kind"] == "kernel").flat_map(|model| model["options"].as_array())
    {
        for option in option {
            keys.entry(word(&option["key"])).or_insert_with(|| word(&option["help"]));
        }
    }
    page += "\n## Keys of every kernel: `--on sim:KERNEL,KEY=VALUE`\n\nPolicies have keys of their own \
             (`elevator.KEY=VALUE`): ";
    page += &format!("[MODELS.md]({full}/MODELS.md)\n\n| key | |\n| --- | --- |\n");
    for (key, help) in keys {
        page += &format!("| `{key}` | {} |\n", help.replace('|', "\\|"));
    }
    page += "\n## JSON\n\nEvery verb has `--json`. Its first key, `schema`, names one of these.\n";
    page += "\n| schema | |\n| --- | --- |\n";
    let mut schemas: Vec<PathBuf> =
        fs::read_dir(root().join("schema")).expect("schemas").map(|entry| entry.expect("an entry").path()).collect();
    schemas.sort();
    for path in schemas {
        let schema: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&path).expect("a schema")).expect("a schema is JSON");
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let url = format!("https://github.com/iowhy/iowhy/blob/main/schema/{name}");
        page += &format!("| [{name}]({url}) | {} |\n", word(&schema["title"]).replace('|', "\\|"));
    }
    page
}

#[test]
fn the_reference_is_fresh() {
    is_fresh(&root().join("docs/guide/src/reference.md"), &reference());
}

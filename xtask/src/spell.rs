//! Spelling of everything that users read: README, pages, changes, and the help of all verbs.
//!
//! The dictionary is Debian's hunspell-en-gb; docs/words.txt has the words of the field, sorted. The help is that of
//! docs/guide/src/reference.md. Code, links, names with digits, points or capitals inside, and abbreviations are not
//! looked at. `IOWHY_REWRITE=1 cargo test -p xtask spell` adds the unknown words to the list: read them before
//! they are committed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use spellbook::Dictionary;

use crate::root;
use crate::steps::Steps;
use crate::tidy::files;

/// The dictionary of Debian's package hunspell-en-gb.
pub(crate) const DICTIONARY: &str = "/usr/share/hunspell/en_GB.dic";
const WORDS: &str = "docs/words.txt";
/// The page whose blocks are help texts.
const REFERENCE: &str = "docs/guide/src/reference.md";

/// The step of `check`.
pub(crate) fn check(steps: &mut Steps) {
    match complaints() {
        None => steps.skip("spelling", "no dictionary: sudo apt-get install hunspell-en-gb"),
        Some(found) if found.is_empty() => {}
        Some(found) => {
            steps.fail("spelling", &format!("correct it, or add it to {WORDS}:\n    {}", found.join("\n    ")))
        }
    }
}

/// Pages for users. The studies quote others.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md"), root().join("CHANGELOG.md")];
    pages.extend(files(&root().join("docs"), "md"));
    pages.extend(files(&root().join("scenarios"), "md"));
    pages.retain(|path| !path.starts_with(root().join("docs/studies")));
    pages
}

fn own_words() -> Vec<String> {
    let text = fs::read_to_string(root().join(WORDS)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Unknown words with their first place; nothing without the dictionary.
fn unknown() -> Option<BTreeMap<String, String>> {
    // Both begin with a byte order mark.
    let read = |path: &Path| fs::read_to_string(path).ok().map(|text| text.trim_start_matches('\u{feff}').to_owned());
    let dictionary = read(Path::new(DICTIONARY))?;
    let affixes = read(&Path::new(DICTIONARY).with_extension("aff"))?;
    let dictionary = Dictionary::new(&affixes, &dictionary).ok()?;
    let own: BTreeSet<String> = own_words().into_iter().collect();
    let mut found = BTreeMap::new();
    for path in pages() {
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        let text = fs::read_to_string(&path).unwrap_or_default();
        for (line, word) in words(&text, name == REFERENCE) {
            let is_known = |word: &str| dictionary.check(word) || own.contains(word);
            if !is_known(&word) && !is_known(&word.to_lowercase()) && !found.contains_key(&word) {
                found.insert(word, format!("{name}:{line}"));
            }
        }
    }
    Some(found)
}

fn complaints() -> Option<Vec<String>> {
    let mut found: Vec<String> = unknown()?.into_iter().map(|(word, place)| format!("{place}: `{word}`")).collect();
    if !own_words().is_sorted() {
        found.push(format!("{WORDS}: not sorted"));
    }
    Some(found)
}

/// The words of a page with their lines; those of its blocks, too, `with_blocks`.
fn words(page: &str, with_blocks: bool) -> Vec<(usize, String)> {
    let (mut found, mut is_block) = (Vec::new(), false);
    for (line, text) in (1..).zip(page.lines()) {
        if text.trim_start().starts_with("```") {
            is_block = !is_block;
            continue;
        }
        if is_block && !with_blocks {
            continue;
        }
        // Every second part is code.
        for prose in text.split('`').step_by(2) {
            let prose = prose.replace("](", " ](");
            for word in prose.split([' ', '|', '/', '—', '–', '…', '-', '*', '[', '{', '}', '<', '>']) {
                let word = word.trim_matches(|c: char| !c.is_alphanumeric() && c != ']');
                let word = word
                    .trim_end_matches("'s")
                    .trim_end_matches(']')
                    .trim_end_matches(|c: char| c.is_ascii_punctuation());
                let is_name = word.contains(|c: char| !c.is_alphabetic() && c != '\'');
                let has_capitals = word.chars().skip(1).any(char::is_uppercase);
                if word.chars().count() > 2 && !is_name && !has_capitals {
                    found.push((line, word.to_owned()));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_prose_is_spelled_correctly() {
        if std::env::var_os("IOWHY_REWRITE").is_some() {
            let words: BTreeSet<String> =
                own_words().into_iter().chain(unknown().unwrap_or_default().into_keys()).collect();
            let text: String = words.into_iter().map(|word| word + "\n").collect();
            fs::write(root().join(WORDS), text).expect("the list can be written");
        }
        match complaints() {
            Some(found) => assert_eq!(found, Vec::<String>::new()),
            None => {
                assert!(!crate::steps::in_ci(), "CI needs hunspell-en-gb");
                println!("skipped: no {DICTIONARY}");
            }
        }
    }

    #[test]
    fn words_of_prose_are_found_and_code_is_not() {
        let page = "A `kwod`, the kernel's read-ahead.\n```\nnoword\n```\nSee [this pagee](a/pathh.md) 4k NVMe's.\n";
        let found = |blocks| words(page, blocks).into_iter().map(|(_, word)| word).collect::<Vec<_>>();
        assert_eq!(found(false), ["the", "kernel", "read", "ahead", "See", "this", "pagee"]);
        assert!(found(true).contains(&"noword".to_owned()));
    }
}

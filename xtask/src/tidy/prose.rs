//! Phrases that a native reader stumbles over, in doc comments, messages and pages.

/// Phrases that a reader stumbles over, and what to write. `be` stands for is, are, was, were, be and been.
const PHRASES: &[(&str, &str)] = &[
    ("so many", "the number, or its name"),
    ("so long", "the time, or its name"),
    ("such as", "like, for example"),
    ("be told", "report, print, get"),
    ("be said", "report, state"),
    ("be heard", "be seen"),
    ("be known to", "the fact itself"),
    ("be no", "is not a, without, lacks"),
    ("anew", "again"),
    ("under way", "in flight, in progress"),
    ("all the same", "anyway, nevertheless"),
    ("beside", "next to, besides"),
    ("whoever", "the task, the caller, the user"),
];

/// Phrases that pages for users do without: padding, and promises that the reader has to judge.
const PADDING: &[(&str, &str)] = &[
    ("simply", "leave it out"),
    ("just", "leave it out, or only"),
    ("easily", "leave it out, or the number of steps"),
    ("obviously", "leave it out"),
    ("of course", "leave it out"),
    ("basically", "leave it out"),
    ("very unique", "unique"),
    ("in order to", "to"),
    ("due to the fact that", "because"),
    ("a number of", "some, or the number"),
    ("be able to", "can"),
    ("be performed by", "the one who does it as the subject"),
    ("be carried out by", "the one who does it as the subject"),
    ("utilise", "use"),
    ("utilize", "use"),
    ("please note", "leave it out"),
    ("it should be noted", "leave it out"),
];

/// Longest sentence of a page for users, in words.
const MAX_SENTENCE: usize = 55;

/// `is no longer` and its like are idiomatic.
const COMPARED: &[&str] = &["earlier", "faster", "larger", "less", "longer", "more", "shorter", "slower", "smaller"];

/// The offending phrases of a source file.
pub(super) fn in_source(name: &str, text: &str) -> Vec<String> {
    phrases(name, &rust_prose(text), &[])
}

/// The offending phrases of a page.
pub(super) fn in_page(name: &str, text: &str) -> Vec<String> {
    phrases(name, &paragraphs(text), &[])
}

/// The same of a page for users: no padding, no word twice, no sentence without end.
pub(super) fn in_guide(name: &str, text: &str) -> Vec<String> {
    let prose = paragraphs(text);
    let mut found = phrases(name, &prose, PADDING);
    for piece in prose {
        let lines = (piece.line..).zip(piece.text.lines()).filter(|(_, text)| !text.starts_with(['|', '#']));
        let words: Vec<(usize, &str)> =
            lines.flat_map(|(line, text)| text.split_whitespace().map(move |word| (line, word))).collect();
        for pair in words.windows(2) {
            let is_word = pair[0].1.chars().all(char::is_alphabetic);
            if is_word && pair[0].1.eq_ignore_ascii_case(pair[1].1) {
                found.push(format!("{name}:{}: `{}` twice", pair[1].0, pair[1].1));
            }
        }
        let ends = |(_, word): &(usize, &str)| word.trim_end_matches([')', '*', '"']).ends_with(['.', ':', '?', '!']);
        let is_item = |(_, word): &(usize, &str)| *word == "-";
        for sentence in words.split_inclusive(|word| ends(word) || is_item(word)) {
            if sentence.len() > MAX_SENTENCE {
                found.push(format!("{name}:{}: a sentence of {} words: cut it", sentence[0].0, sentence.len()));
            }
        }
    }
    found
}

/// A piece of prose, with its first line.
struct Prose {
    line: usize,
    is_doc: bool,
    text: String,
}

/// Paragraphs outside of code blocks.
fn paragraphs(text: &str) -> Vec<Prose> {
    let mut found: Vec<Prose> = Vec::new();
    let (mut is_code, mut is_open) = (false, false);
    for (line, text) in (1..).zip(text.lines()) {
        is_code ^= text.starts_with("```");
        if is_code || text.trim().is_empty() {
            is_open = false;
        } else if let Some(last) = found.last_mut().filter(|_| is_open) {
            last.text.extend(["\n", text]);
        } else {
            found.push(Prose { line, is_doc: false, text: text.to_owned() });
            is_open = true;
        }
    }
    found
}

/// Doc comments and string literals of a source file, up to its tests.
fn rust_prose(text: &str) -> Vec<Prose> {
    let tests = text
        .match_indices("#[cfg(test)]\nmod ")
        .find(|(at, _)| text[at + 13..].lines().next().is_some_and(|line| line.ends_with('{')));
    let mut rest = &text[..tests.map_or(text.len(), |(at, _)| at)];
    let (mut found, mut line): (Vec<Prose>, usize) = (Vec::new(), 1);
    let mut doc_goes_on_at = 0;
    while let Some(first) = rest.chars().next() {
        let raw = rest.strip_prefix('r').map(|rest| rest.trim_start_matches('#')).filter(|rest| rest.starts_with('"'));
        let len = if rest.starts_with("//") {
            let comment = rest.lines().next().unwrap_or_default();
            if let Some(doc) = comment.strip_prefix("///").or(comment.strip_prefix("//!")) {
                match found.last_mut().filter(|last| last.is_doc && doc_goes_on_at == line) {
                    Some(last) => last.text.extend(["\n", doc]),
                    None => found.push(Prose { line, is_doc: true, text: doc.to_owned() }),
                }
                doc_goes_on_at = line + 1;
            }
            comment.len()
        } else if let Some(raw) = raw {
            let begin = rest.len() - raw.len();
            let end = format!("\"{}", "#".repeat(begin - 1));
            let text = &raw[1..][..raw[1..].find(&end).unwrap_or(raw.len() - 1)];
            found.push(Prose { line, is_doc: false, text: text.to_owned() });
            begin + 1 + text.len() + end.len()
        } else if first == '"' {
            let mut is_escaped = false;
            let end = rest[1..].find(|c| {
                let was_escaped = is_escaped;
                is_escaped = c == '\\' && !was_escaped;
                c == '"' && !was_escaped
            });
            let text = &rest[1..][..end.unwrap_or(rest.len() - 1)];
            found.push(Prose { line, is_doc: false, text: text.replace("\\n", " ").replace("\\\n", "\n") });
            text.len() + 2
        } else if let Some(quoted) = rest.strip_prefix('\'') {
            let mut chars = quoted.char_indices().skip(if quoted.starts_with('\\') { 2 } else { 1 });
            match chars.next() {
                Some((at, '\'')) => at + 2,
                _ => 1,
            }
        } else {
            first.len_utf8()
        };
        let (taken, behind) = rest.split_at(len.min(rest.len()));
        line += taken.matches('\n').count();
        rest = behind;
    }
    found
}

/// Phrases of the table, and doc comments with a clause as their subject.
fn phrases(name: &str, prose: &[Prose], more: &[(&str, &str)]) -> Vec<String> {
    const BE: &[&str] = &["is", "are", "was", "were", "be", "been"];
    let mut found = Vec::new();
    for piece in prose {
        let lines = (piece.line..).zip(piece.text.lines());
        let words: Vec<(usize, &str)> =
            lines.flat_map(|(line, text)| text.split_whitespace().map(move |word| (line, word))).collect();
        for (at, (line, _)) in words.iter().enumerate() {
            for (phrase, instead) in PHRASES.iter().chain(more) {
                let wanted: Vec<&str> = phrase.split(' ').collect();
                let Some(found_words) = words.get(at..at + wanted.len()) else { continue };
                let is_equal = wanted.iter().zip(found_words).enumerate().all(|(nr, (wanted, (_, word)))| {
                    let word = word.trim_start_matches(['(', '*', '"']).to_lowercase();
                    let is_last = nr + 1 == wanted.len();
                    let word =
                        if is_last { word.trim_end_matches(['.', ',', ';', ':', ')', '*', '"', '?']) } else { &word };
                    *wanted == word || *wanted == "be" && BE.contains(&word)
                });
                let next =
                    words.get(at + wanted.len()).map_or("", |(_, word)| word.trim_end_matches(['.', ',', ';', ':']));
                if is_equal && !(*phrase == "be no" && COMPARED.contains(&next)) {
                    found.push(format!("{name}:{line}: `{phrase}`: {instead}"));
                }
            }
        }
        if !piece.is_doc {
            continue;
        }
        let mut begins = true;
        for (at, (line, word)) in words.iter().enumerate() {
            let ends = |word: &str| word.ends_with(['.', '?']);
            let end = words[at..].iter().find(|(_, word)| ends(word));
            if begins && ["What", "Who", "Whoever"].contains(word) && !end.is_some_and(|(_, word)| word.ends_with('?'))
            {
                found.push(format!("{name}:{line}: a sentence begins with `{word}`: begin with the noun"));
            }
            begins = ends(word);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_are_found_in_docs_strings_and_pages() {
        let found = |text: &str| in_source("a.rs", text);
        let offenders = [
            "/// Values of so\n/// many runs.\n",
            "//! What it is.\n",
            "/// A run. Who\n/// waits goes first.\n",
            "let text = \"`{word}` is no \\\n    number\";\n",
            "let c = '\"'; let text = r#\"a \"file\" beside it\"#;\n",
        ];
        for text in offenders {
            assert_eq!(found(text).len(), 1, "{text}");
        }
        assert_eq!(found(offenders[0]), ["a.rs:1: `so many`: the number, or its name"]);
        let fine = [
            "/// What for? It is no longer so.\n",
            "// Plain comments are read by few: so many.\n",
            "fn f<'a>(beside: &'a str) {}\n",
            "#[cfg(test)]\nmod tests {\n    const TEXT: &str = \"is no number\";\n}\n",
        ];
        for text in fine {
            assert_eq!(found(text), Vec::<String>::new(), "{text}");
        }
        let page = "A word.\n\n```\nis no word\n```\nIt is no\nword.\n";
        assert_eq!(in_page("a.md", page), ["a.md:6: `be no`: is not a, without, lacks"]);
    }

    #[test]
    fn pages_for_users_have_neither_padding_nor_doubled_words_nor_endless_sentences() {
        let endless = "word ".repeat(MAX_SENTENCE) + "word.\n";
        let endless = endless.replace("word word", "a word");
        for page in ["It simply works.\n", "Read the\nthe page.\n", "You are able to\nsee.\n", &endless] {
            assert_eq!(in_guide("a.md", page).len(), 1, "{page}");
        }
        assert_eq!(in_guide("a.md", "A page. A word: a word.\n\n```\nsimply the the\n```\n"), Vec::<String>::new());
    }
}

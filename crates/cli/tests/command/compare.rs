//! `iowhy compare` from outside: exit codes of every verdict, what odd samples do, every form of output.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::{check_schema, root, text};

/// A folder of files with samples, which goes when it is no longer needed.
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("iowhy-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder can be made");
        Folder { path }
    }

    /// A file; yields its name.
    pub(crate) fn file(&self, name: &str, content: &str) -> String {
        let path = self.path.join(name);
        fs::write(&path, content).expect("the file can be written");
        path.display().to_string()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is the temporary folder's business.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Runs the command with words that may hold blanks, in a place without a store.
pub(crate) fn command(folder: &Folder, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_iowhy"))
        .args(words)
        .env("NO_COLOR", "1")
        .env("IOWHY_STORE", folder.path().join("store"))
        .output()
        .expect("the command starts")
}

/// Values around `centre`, a line each: an even spread of 1 % in an order that has no trend.
pub(crate) fn values(n: u32, centre: f64) -> String {
    let mut text = String::new();
    let mut state = 12_345_u32;
    for _ in 0..n {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let part = f64::from(state >> 8) / f64::from(1 << 24);
        let _ = writeln!(text, "{}", centre * (0.99 + 0.02 * part));
    }
    text
}

fn compare(folder: &Folder, a: &str, b: &str, more: &[&str]) -> (Option<i32>, Value) {
    let mut words = vec!["compare", "--samples", a, b, "--json"];
    words.extend(more);
    let output = command(folder, &words);
    let value: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{words:?}: {error}\n{}", text(&output.stderr)));
    check_schema("compare", &value);
    (output.status.code(), value)
}

#[test]
fn each_verdict_has_its_exit_code() {
    let folder = Folder::new("verdicts");
    let base = folder.file("base", &values(40, 100.0));
    for (name, centre, more, code, verdict) in [
        ("slower", 110.0, &[][..], 1, "regression"),
        ("faster", 90.0, &[], 0, "improvement"),
        ("equal", 100.0, &["--margin", "5%"], 0, "same"),
        ("rate", 110.0, &["--better", "higher"], 0, "improvement"),
        ("lower-rate", 90.0, &["--better", "higher"], 1, "regression"),
    ] {
        let other = folder.file(name, &values(40, centre));
        let (found, value) = compare(&folder, &base, &other, more);
        assert_eq!((found, value["verdict"].as_str()), (Some(code), Some(verdict)), "{name}: {value:#}");
        assert_eq!(value["metrics"][0]["verdict"], verdict, "{name}");
    }
    let few = folder.file("few", &values(3, 110.0));
    let (found, value) = compare(&folder, &base, &few, &["--margin", "0.1%"]);
    assert!(found == Some(3) || value["metrics"][0]["p"].as_f64() < Some(0.01), "{value:#}");
}

#[test]
fn odd_samples_get_a_clear_answer_and_never_a_false_verdict() {
    let folder = Folder::new("odd");
    let good = folder.file("good", &values(20, 100.0));
    for (name, content) in [
        ("nothing", String::new()),
        ("comments", "# no run ended\n\n".to_owned()),
        ("one", "170\n".to_owned()),
        ("nan", "NaN\n".repeat(20)),
        ("infinite", "inf\n-inf\n".repeat(10)),
        ("one-beside-nan", "NaN\n".repeat(19) + "170\n"),
    ] {
        let odd = folder.file(name, &content);
        for (a, b) in [(&good, &odd), (&odd, &good), (&odd, &odd)] {
            let (code, value) = compare(&folder, a, b, &[]);
            assert_eq!((code, value["verdict"].as_str()), (Some(3), Some("inconclusive")), "{name}: {value:#}");
            let warnings = value["metrics"][0]["warnings"].as_array().expect("a list");
            assert!(!warnings.is_empty(), "{name}: {value:#}");
        }
    }
    // Whatever they are, equal files are no regression and no improvement.
    for (name, content) in [
        ("zeros", "0\n".repeat(20)),
        ("constant", "5\n".repeat(20)),
        ("negative", values(20, -100.0)),
        ("both-signs", values(20, 0.0) + &values(20, -1.0) + &values(20, 1.0)),
        ("huge", values(20, 1e300)),
        ("tiny", values(20, 1e-300)),
        ("with-nan", values(20, 5.0) + "NaN\ninf\n"),
    ] {
        let (a, b) = (folder.file(name, &content), folder.file("again", &content));
        let (code, value) = compare(&folder, &a, &b, &[]);
        assert!(matches!(code, Some(0 | 3)), "{name}: {value:#}");
        assert!(matches!(value["verdict"].as_str(), Some("same" | "inconclusive")), "{name}: {value:#}");
        let output = command(&folder, &["compare", "--samples", &a, &b]);
        assert_eq!(output.status.code(), code, "{name}: text and JSON say the same");
    }
}

#[test]
fn a_hundred_thousand_samples_are_compared() {
    let folder = Folder::new("many");
    let (a, b) = (folder.file("a", &values(100_000, 100.0)), folder.file("b", &values(100_000, 110.0)));
    let (code, value) = compare(&folder, &a, &b, &["--draws", "99"]);
    assert_eq!(value["metrics"][0]["a"]["n"], 100_000);
    assert_eq!(code, Some(1), "{value:#}");
}

#[test]
fn mistakes_are_told_with_their_place() {
    let folder = Folder::new("mistakes");
    let good = folder.file("good", &values(20, 100.0));
    let bad = folder.file("bad", "1\ntwo\n3\n4 5\n");
    let binary = folder.path().join("binary");
    fs::write(&binary, [0xff, 0xfe, 0x00]).expect("written");
    let binary = binary.display().to_string();
    for (words, expected) in [
        (vec!["--samples", &good, &bad], "bad:2:1: not a number"),
        (vec!["--samples", &good, &bad], "bad:4:1: not a number"),
        (vec!["--samples", &good, "nowhere"], "`nowhere` cannot be read"),
        (vec!["--samples", &good, &binary], "UTF-8"),
        (vec!["--samples", &good], "a base and a candidate, not 1"),
        (vec!["--samples", &good, &good, &good], "a base and a candidate, not 3"),
        (vec!["--samples", &good, &good, "--samples-format", "cvs"], "nearest: csv"),
        (vec!["--samples", &good, &bad, "--format", "numbers"], "bad:2:1: not a number"),
        (vec!["--samples", &good, &good, "--metric", "valeu"], "nearest: value"),
        (vec!["--samples", &good, &good, "--alpha", "2"], "from 0.000001 to 0.5"),
        (vec!["--samples", &good, &good, "--margin=-1%"], "a percentage from 0"),
        (vec![good.as_str(), "new"], "is a file: iowhy compare --samples A B"),
    ] {
        let mut line = vec!["compare"];
        line.extend(words);
        let output = command(&folder, &line);
        let message = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{line:?}\n{message}");
        assert!(message.contains(expected) && !message.contains("panicked"), "no {expected:?} in\n{message}");
    }
}

#[test]
fn every_form_says_the_same_and_ends_with_the_same_code() {
    let folder = Folder::new("forms");
    let (a, b) = (folder.file("a", &values(30, 100.0)), folder.file("b", &values(30, 120.0)));
    for (form, expected) in [
        ("text", "Regression: value of "),
        ("junit", "<failure type=\"regression\""),
        ("github", "::error title=regression%3A value::"),
        ("json", "\"verdict\": \"regression\""),
    ] {
        let output = command(&folder, &["compare", "--samples", &a, &b, "--format", form]);
        let printed = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{form}");
        assert!(printed.contains(expected), "no {expected:?} in\n{printed}");
        assert_eq!(text(&output.stderr), "", "{form}");
        if form == "text" {
            assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
        }
        let again = command(&folder, &["compare", "--samples", &a, &b, "--format", form]);
        assert_eq!(again.stdout, output.stdout, "{form} is the same each time");
    }
    for (form, expected) in [("mmtests", "Amean     value "), ("benchstat", "value   ")] {
        let output = command(&folder, &["compare", "--samples", &a, &b, &b, "--format", form]);
        let printed = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{form}");
        assert!(printed.contains(expected), "no {expected:?} in\n{printed}");
    }
}

#[test]
fn hostile_names_reach_no_terminal() {
    let folder = Folder::new("hostile");
    let (a, b) = (folder.file("a\u{1b}[31m", &values(30, 100.0)), folder.file("\u{202e}b", &values(30, 100.0)));
    let csv = folder.file("c", "label,ms\n\u{1b}]0;x\u{7}\u{202e},1\n");
    for words in [vec![&a, &b], vec![&csv, &csv]] {
        for form in ["text", "mmtests", "benchstat", "junit", "github"] {
            let mut line = vec!["compare", "--samples", "--format", form];
            line.extend(words.iter().map(|word| word.as_str()));
            let printed = text(&command(&folder, &line).stdout);
            let unfit = printed.chars().any(|c| c.is_control() && c != '\n');
            assert!(!unfit, "{form}: {printed:?}");
            assert!(form == "junit" || !printed.contains('\u{202e}'), "{form}: {printed:?}");
        }
    }
}

#[test]
fn tables_of_benchstat_come_out_as_it_prints_them() {
    let vectors = fs::read_to_string(root().join("crates/compare/tests/vectors/benchstat.json")).expect("vectors");
    let vectors: Value = serde_json::from_str(&vectors).expect("JSON");
    let case = vectors["cases"].as_array().expect("cases").iter().find(|case| case["name"] == "three files");
    let case = case.expect("the case is there");
    let folder = Folder::new("benchstat");
    let mut line = vec!["compare".to_owned(), "--samples".to_owned(), "--as=benchstat".to_owned()];
    for file in case["files"].as_array().expect("files") {
        let label = file["label"].as_str().expect("a label");
        folder.file(label, file["text"].as_str().expect("a text"));
        line.push(label.to_owned());
    }
    let output = Command::new(env!("CARGO_BIN_EXE_iowhy"))
        .args(line)
        .current_dir(folder.path())
        .output()
        .expect("the command starts");
    assert_eq!(text(&output.stdout), case["table"].as_str().expect("a table"));
}

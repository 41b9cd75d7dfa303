//! `iowhy generate` from outside: man pages, and completion as shells ask for it.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Folder, iowhy, text};

/// Candidates for a line whose last word is being typed.
fn candidates(words: &[&str], store: &Path) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iowhy"));
    let output = command.args(["generate", "complete", "--"]).args(words).env("IOWHY_STORE", store).output();
    let lines = text(&output.expect("the command starts").stdout);
    lines.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn every_verb_has_a_man_page() {
    let folder = Folder::new("man");
    let output = iowhy(&format!("generate man {}", folder.0.display()));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let page = |name: &str| fs::read_to_string(folder.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let help = text(&iowhy("--help").stdout);
    let verbs = help.split("Commands:\n").nth(1).expect("a list of verbs").lines().take_while(|line| !line.is_empty());
    let verbs: Vec<&str> = verbs.filter_map(|line| line.split_whitespace().next()).filter(|it| *it != "help").collect();
    assert!(verbs.len() > 10, "{verbs:?}");
    for verb in verbs {
        assert!(page(&format!("iowhy-{verb}.1")).contains(".SH SYNOPSIS"), "{verb}");
    }
    // Verbs that read their own words have their options there, too; and verbs of verbs have pages.
    for (name, wanted) in [
        ("iowhy.1", "EXIT CODES"),
        ("iowhy-run.1", "\\-\\-on"),
        ("iowhy-sysbench.1", "file\\-test\\-mode"),
        ("iowhy-fio.1", "\\-\\-output\\-format"),
        ("iowhy-store-list.1", "\\-\\-last"),
    ] {
        let page = page(name);
        assert!(page.to_uppercase().contains(&wanted.to_uppercase()), "{name} lacks {wanted}:\n{page}");
    }
}

#[test]
fn words_complete_from_the_tables_and_the_store() {
    let folder = Folder::new("complete");
    let store = folder.0.join("store");
    let job = "run fio --name=j --rw=read --bs=4k --size=64k --on sim:linux-6.18 --label before-2 --store";
    assert_eq!(iowhy(&format!("{job} {}", store.display())).status.code(), Some(0));
    for (words, wanted) in [
        (&["comp"][..], "compare"),
        (&["store", "li"], "list"),
        (&["run", "--o"], "--on"),
        (&["run", "--on", "sim:linux-6.1"], "sim:linux-6.18"),
        (&["run", "--on=sim:linux-6.1"], "--on=sim:linux-6.18"),
        (&["run", "--on", "sim:linux-6.18,elevator=m"], "sim:linux-6.18,elevator=mq-deadline"),
        (&["run", "--on", "sim:linux-6.18,read_ahead"], "sim:linux-6.18,read_ahead_kb="),
        (&["run", "--disk", "ide-2"], "ide-2004"),
        (&["compare", "--metric", "p99"], "p99_ns"),
        (&["compare", "bef"], "before-2"),
        (&["check", "--baseline", ""], "before-2"),
        (&["explain", "--disk", "ide-2"], "ide-2004"),
    ] {
        let found = candidates(words, &store);
        assert!(found.contains(&wanted.to_owned()), "{words:?}: {found:?}");
        let last = words.last().expect("a word");
        assert!(found.iter().all(|word| word.starts_with(last)), "{words:?}: {found:?}");
    }
    assert!(!candidates(&["check", "--baseline", ""], &folder.0).contains(&"before-2".to_owned()));
}

/// Whether a shell is there; CI must have it.
fn has(shell: &str) -> bool {
    let found = Command::new(shell).arg("--version").output().is_ok_and(|output| output.status.success());
    assert!(found || std::env::var("CI").as_deref() != Ok("true"), "CI must have {shell}");
    if !found {
        println!("skipped: {shell} is not installed");
    }
    found
}

#[test]
fn shells_offer_what_is_left_of_a_word() {
    let folder = Folder::new("shells");
    assert_eq!(iowhy(&format!("generate completions {}", folder.0.display())).status.code(), Some(0));
    let path = Path::new(env!("CARGO_BIN_EXE_iowhy")).parent().expect("a folder").display().to_string();
    let path = format!("{path}:{}", std::env::var("PATH").unwrap_or_default());
    let file = |name: &str| folder.0.join(name).display().to_string();
    let (bash, zsh, fish) = (file("iowhy.bash"), file("_iowhy"), file("iowhy.fish"));
    // The separators of bash are `=` and `:`, unless a person changed them: it wants the part behind the last one.
    let bash = |separators: &str, line: &str| {
        format!(
            "source {bash}; COMP_WORDBREAKS='{separators}'; COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; \
             _iowhy iowhy; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        )
    };
    // The functions that only zsh's editor has are replaced by ones that print.
    let zsh = |words: &str, current: usize| {
        format!(
            "compdef() {{ }}; compadd() {{ print -l -- ${{(P)@[-1]}} }}; source {zsh}; words=({words}); \
             CURRENT={current}; _iowhy"
        )
    };
    let fish = |line: &str| format!("source {fish}; complete --do-complete '{line}' | string split -f1 \\t");
    for (shell, script, wanted) in [
        ("bash", bash(" =:", "iowhy run --on sim:linux-6.1"), "linux-6.18"),
        ("bash", bash(" =:", "iowhy run --on=sim:linux-6.18,elevator=mq"), "mq-deadline"),
        ("bash", bash(" =:,", "iowhy run --on sim:linux-6.18,read_ah"), "read_ahead_kb="),
        ("bash", bash(" ", "iowhy run --on=sim:linux-6.1"), "--on=sim:linux-6.18"),
        ("bash", bash(" =:", "iowhy run --disk "), "ide-2004"),
        ("zsh", zsh("iowhy run --on sim:linux-6.1", 4), "sim:linux-6.18"),
        ("zsh", zsh("iowhy compare --metric p99", 4), "p99_ns"),
        ("fish", fish("iowhy run --on sim:linux-6.1"), "sim:linux-6.18"),
        ("fish", fish("iowhy compa"), "compare"),
    ] {
        if !has(shell) {
            continue;
        }
        let mut command = Command::new(shell);
        let output = command.args(["-c", &script]).env("PATH", &path).output().expect("the shell starts");
        let found = text(&output.stdout);
        let found: Vec<&str> = found.lines().collect();
        assert!(found.contains(&wanted), "{shell}: {script}\n{found:?}\n{}", text(&output.stderr));
    }
}

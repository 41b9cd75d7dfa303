//! The options of `sysbench fileio`: one table, from which come the parser, the help and the documents.
//!
//! The grammar is sysbench's own: options and the words `fileio`, `prepare`, `run`, `cleanup` in any order,
//! `--name=value` or `--name value`, sizes with a suffix K, M, G or T (powers of 1024, either case; letters behind it
//! say nothing: `16KB`). `--config-file` has options without their dashes, one a line, and takes general ones only, as
//! sysbench 1.0 does: of these and of the command line's the last counts.

use iowhy_text::diagnose::{Problem, Problems, Span};

/// Kind of an option's value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number between these two.
    Number(u64, u64),
    /// A number of bytes between these two, with a suffix.
    Size(u64, u64),
    /// A decimal number above zero, kept in thousandths.
    Milli,
    /// `on` or `off`; alone it means `on`.
    Switch,
    /// One of these words.
    Choice(&'static [&'static str]),
    Text,
}

/// Where an option comes from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Group {
    /// Where the run happens, and what only we have.
    Ours,
    /// sysbench's general options.
    General,
    /// sysbench's fileio options.
    FileIo,
    /// Accepted because scripts have them; they change nothing here.
    Ignored,
}

/// One option.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Opt {
    /// Name without the dashes.
    pub name: &'static str,
    /// Spelling of 2004 to 2015.
    pub old: Option<&'static str>,
    /// Where it comes from.
    pub group: Group,
    /// Kind of its value.
    pub kind: Kind,
    /// Placeholder of the value in the help.
    pub value: &'static str,
    /// Default as it would be typed; empty for none.
    pub default: &'static str,
    /// Default of the 0.4 series where it differs.
    pub default_0_4: Option<&'static str>,
    /// One line.
    pub help: &'static str,
}

/// Threads that a run may have: each is simulated, and more than this is a slip.
pub const MAX_THREADS: u64 = 65_536;
/// Files that a run may have.
pub const MAX_FILES: u64 = 1 << 20;
/// Longest time, seconds: about eleven days.
pub const MAX_SECONDS: u64 = 1_000_000;
const MAX_BYTES: u64 = 1 << 60;

const fn opt(
    group: Group,
    name: &'static str,
    kind: Kind,
    value: &'static str,
    default: &'static str,
    help: &'static str,
) -> Opt {
    Opt { name, old: None, group, kind, value, default, default_0_4: None, help }
}

const fn old(mut option: Opt, name: &'static str, default_0_4: Option<&'static str>) -> Opt {
    option.old = Some(name);
    option.default_0_4 = default_0_4;
    option
}

/// Names of the file tests.
pub const MODES: &[&str] = &["seqwr", "seqrewr", "seqrd", "rndrd", "rndwr", "rndrw"];

use Group::{FileIo, General, Ignored, Ours};
use Kind::{Choice, Milli, Number, Size, Switch, Text};

/// Every option.
pub const OPTIONS: &[Opt] = &[
    opt(Ours, "on", Text, "WHERE", "live", "live: on real files here; or sim:KERNEL[+PATCH...][,key=value...]"),
    opt(Ours, "disk", Text, "NAME", "", "device, with ,key=value parameters; default: the one of the kernel's time"),
    opt(Ours, "seed", Number(0, u64::MAX), "N", "1", "seed of every random stream"),
    opt(Ours, "json", Switch, "", "off", "one JSON object instead of the report"),
    opt(Ours, "report-style", Choice(&["1.0", "1.1"]), "STYLE", "1.0", "shape of the text report"),
    opt(
        Ours,
        "dialect",
        Choice(&["0.4", "1.0"]),
        "VERSION",
        "1.0",
        "version whose request rules and defaults apply; old spellings mean 0.4",
    ),
    opt(
        Ours,
        "cache",
        Text,
        "STATE",
        "",
        "page cache at the start. live: as-found, cold or warm [as-found]; sim: cold, or tail:SIZE for the last SIZE \
         bytes prepared [cold]",
    ),
    opt(Ours, "mapping-cached", Switch, "", "off", "the blocks that map files to the disk are cached at the start"),
    opt(
        Ours,
        "own-descriptors",
        Switch,
        "",
        "off",
        "each thread opens the files itself (default: one descriptor per file)",
    ),
    opt(Ours, "linux-threads", Switch, "", "off", "each thread is a thread group of its own (LinuxThreads)"),
    old(opt(General, "threads", Number(1, MAX_THREADS), "N", "1", "threads"), "num-threads", None),
    old(
        opt(General, "events", Number(0, 1 << 40), "N", "0", "requests in all, 0 for no limit"),
        "max-requests",
        Some("10000"),
    ),
    old(
        opt(General, "time", Number(0, MAX_SECONDS), "SECONDS", "10", "seconds, 0 for no limit"),
        "max-time",
        Some("0"),
    ),
    opt(General, "warmup-time", Number(0, MAX_SECONDS), "SECONDS", "0", "seconds before the report begins"),
    old(
        opt(
            General,
            "rate",
            Number(0, 1_000_000_000),
            "N",
            "0",
            "events a second to aim at, 0 for as fast as possible",
        ),
        "tx-rate",
        None,
    ),
    opt(
        General,
        "report-interval",
        Number(0, MAX_SECONDS),
        "SECONDS",
        "0",
        "seconds between progress lines, 0 for \
        none",
    ),
    opt(
        General,
        "report-checkpoints",
        Text,
        "LIST",
        "",
        "seconds, comma between, at which all statistics are printed and begin again (live only)",
    ),
    opt(General, "validate", Switch, "", "off", "checksums in all data, and checks of what is read (live only)"),
    opt(General, "verbosity", Number(0, 5), "N", "3", "below 3, print errors only"),
    opt(General, "config-file", Text, "FILE", "", "take general options from a file, one a line, without dashes"),
    opt(General, "percentile", Number(0, 100), "N", "95", "percentile of the latency to report, 0 for none"),
    opt(General, "histogram", Switch, "", "off", "print the histogram of latencies"),
    opt(
        General,
        "rand-seed",
        Number(0, u64::MAX),
        "N",
        "0",
        "the same as --seed; 0 leaves that at its default, never the time",
    ),
    opt(FileIo, "file-num", Number(1, MAX_FILES), "N", "128", "files"),
    opt(FileIo, "file-block-size", Size(1, 1 << 30), "SIZE", "16384", "bytes per request"),
    opt(FileIo, "file-total-size", Size(1, MAX_BYTES), "SIZE", "2G", "bytes in all files together"),
    opt(
        FileIo,
        "file-test-mode",
        Choice(MODES),
        "MODE",
        "",
        "seqwr, seqrewr, seqrd, rndrd, rndwr or rndrw; needed to run",
    ),
    opt(FileIo, "file-io-mode", Choice(&["sync", "async", "mmap"]), "MODE", "sync", "sync, async, or (live only) mmap"),
    opt(
        FileIo,
        "file-async-backlog",
        Number(1, 65_536),
        "N",
        "128",
        "requests in flight per thread with async I/O (sim: if direct)",
    ),
    opt(FileIo, "file-extra-flags", Text, "LIST", "", "flags to open with: sync, dsync, direct, comma between"),
    opt(FileIo, "file-fsync-freq", Number(0, 1 << 40), "N", "100", "requests between two passes of fsync, 0 for none"),
    opt(
        FileIo,
        "file-fsync-all",
        Switch,
        "",
        "off",
        "fsync after each write, and then neither every so often nor at the end",
    ),
    opt(FileIo, "file-fsync-end", Switch, "", "on", "fsync at the end"),
    opt(FileIo, "file-fsync-mode", Choice(&["fsync", "fdatasync"]), "MODE", "fsync", "fsync or fdatasync"),
    opt(FileIo, "file-merged-requests", Number(0, 65_536), "N", "0", "sequential requests made as one, 0 for none"),
    opt(FileIo, "file-rw-ratio", Milli, "N", "1.5", "reads per write in rndrw"),
    opt(Ignored, "init-rng", Switch, "", "off", "0.4: seed the generator from the clock; here: from --seed"),
    opt(Ignored, "rand-init", Switch, "", "off", "an old name of init-rng"),
    opt(Ignored, "rand-type", Text, "NAME", "", "positions of fileio are uniform in any case"),
    opt(Ignored, "rand-spec-iter", Text, "N", "12", "positions of fileio are uniform in any case"),
    opt(Ignored, "rand-spec-pct", Text, "N", "1", "positions of fileio are uniform in any case"),
    opt(Ignored, "rand-spec-res", Text, "N", "75", "positions of fileio are uniform in any case"),
    opt(Ignored, "rand-pareto-h", Text, "N", "0.2", "positions of fileio are uniform in any case"),
    opt(Ignored, "thread-stack-size", Text, "SIZE", "", "threads need little of it"),
    opt(Ignored, "thread-init-timeout", Text, "SECONDS", "", "threads start at once"),
    opt(Ignored, "forced-shutdown", Text, "SECONDS", "", "a signal ends a run, and it is reported"),
    opt(Ignored, "debug", Switch, "", "off", "the report is always complete"),
];

/// How sysbench's general options for other tests begin.
const DATABASES: &[&str] = &["db-", "mysql-", "pgsql-"];

/// The option called `name`, by either spelling; the flag is set for the old one.
pub fn find(name: &str) -> Option<(&'static Opt, bool)> {
    OPTIONS.iter().find_map(|option| match option.old {
        _ if option.name == name => Some((option, false)),
        Some(old) if old == name => Some((option, true)),
        _ => None,
    })
}

/// A command of sysbench.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Make the files.
    Prepare,
    /// Run the test.
    Run,
    /// Remove the files.
    Cleanup,
    /// Print the help.
    Help,
    /// Print the version.
    Version,
}

/// An option as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionUse {
    /// Its entry in the table.
    pub option: &'static Opt,
    /// Whether the old spelling was used.
    pub old: bool,
    /// The value as typed; `on` for a switch that stands alone.
    pub value: String,
    /// Where the value stands.
    pub span: Span,
    /// Whether it came from `--config-file`: one on the command line may follow.
    pub of_file: bool,
}

/// A command line taken apart, values not yet looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// Options in the order given, each once.
    pub given: Vec<OptionUse>,
    /// The command, if there is one.
    pub command: Option<Command>,
    /// `--test=fileio` was used instead of the word.
    pub old_test: bool,
    /// Whether the test is named.
    pub fileio: bool,
}

impl CommandLine {
    /// The option called `name`, if it was given.
    pub fn get(&self, name: &str) -> Option<&OptionUse> {
        self.given.iter().find(|given| given.option.name == name)
    }

    /// Whether a spelling of the 0.4 series was used.
    pub fn any_old(&self) -> Option<&str> {
        if self.old_test {
            return Some("--test");
        }
        self.given.iter().find_map(|given| {
            // --tx-rate came after 0.4.
            let old = given.old && given.option.name != "rate";
            (old || given.option.name == "init-rng").then(|| given.option.old.unwrap_or(given.option.name))
        })
    }

    /// Whether a spelling that only 1.0 has was used.
    pub fn any_new(&self) -> bool {
        const NEW: &[&str] = &["rate", "warmup-time", "rand-seed", "histogram"];
        self.given.iter().any(|given| {
            let renamed = given.option.old.is_some() && !given.old;
            renamed || NEW.contains(&given.option.name)
        })
    }
}

/// Takes a command line apart.
pub fn parse(arguments: &[String], problems: &mut Problems) -> CommandLine {
    let mut line = CommandLine::default();
    let mut rest = arguments.iter().peekable();
    while let Some(argument) = rest.next() {
        let Some(body) = argument.strip_prefix("--").filter(|body| !body.is_empty()) else {
            word(argument, &mut line, problems);
            continue;
        };
        let (name, inline) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (body, None),
        };
        if name == "help" || name == "version" {
            line.command = Some(if name == "help" { Command::Help } else { Command::Version });
            continue;
        }
        let name_span = Span::bytes(argument, 0, 2 + name.len());
        if DATABASES.iter().any(|prefix| name.starts_with(prefix)) {
            if inline.is_none() {
                rest.next_if(|next| !next.starts_with("--"));
            }
            problems.push(Problem::note(format!("`--{name}` has no effect here: it is for tests of databases")));
            continue;
        }
        let known = if name == "test" { None } else { find(name) };
        if known.is_none() && name != "test" {
            let names = OPTIONS.iter().flat_map(|option| std::iter::once(option.name).chain(option.old));
            problems.push(
                Problem::error(format!("unknown option `--{name}`"))
                    .at(name_span)
                    .near(name, names.map(|name| format!("--{name}")))
                    .help("`iowhy sysbench fileio help` lists the options"),
            );
            continue;
        }
        let switch = known.is_some_and(|(option, _)| option.kind == Switch);
        let (value, span) = match inline {
            Some(value) => (value, Span::bytes(argument, 3 + name.len(), argument.len())),
            None if switch => match rest.next_if(|next| matches!(next.as_str(), "on" | "off")) {
                Some(next) => (next.clone(), Span::whole(next)),
                None => ("on".to_owned(), Span::whole(argument)),
            },
            // A value may begin with one dash: `--threads -1` is a wrong number, not a missing one.
            None => match rest.next_if(|next| !next.starts_with("--")) {
                Some(next) => (next.clone(), Span::whole(next)),
                None => {
                    problems.push(Problem::error(format!("`--{name}` needs a value")).at(name_span));
                    continue;
                }
            },
        };
        match known {
            None => {
                line.old_test = true;
                test_name(&value, span, &mut line, problems);
            }
            Some((option, old)) => {
                let file = (option.name == "config-file").then(|| value.clone());
                give(OptionUse { option, old, value, span, of_file: false }, &mut line, problems);
                file.iter().for_each(|file| config(file, &mut line, problems));
            }
        }
    }
    line
}

/// The general options of a file.
fn config(file: &str, line: &mut CommandLine, problems: &mut Problems) {
    let text = match iowhy_text::input::text(std::path::Path::new(file), iowhy_text::input::TEXT) {
        Ok(text) => text,
        Err(error) => return problems.push(Problem::error(format!("{file}: {error}"))),
    };
    for words in text.lines().map(|words| words.split('#').next().unwrap_or_default().trim()) {
        let (name, value) = words.split_once('=').unwrap_or((words, "on"));
        match find(name.trim().trim_start_matches('-')) {
            Some((option, old)) if matches!(option.group, General | Ignored) => {
                line.given.retain(|given| given.option.name != option.name);
                let value = value.trim().to_owned();
                line.given.push(OptionUse { option, old, span: Span::whole(words), value, of_file: true });
            }
            Some((option, _)) => problems.push(Problem::warning(format!(
                "{file}: `{}` has no effect: sysbench takes general options from a file, and no others",
                option.name
            ))),
            // sysbench passes over other lines, too.
            None => {}
        }
    }
}

fn give(given: OptionUse, line: &mut CommandLine, problems: &mut Problems) {
    let spelled = |given: &OptionUse| match given.option.old {
        Some(old) if given.old => old,
        _ => given.option.name,
    };
    // As in sysbench, the last of a repeated option of its own counts; of two spellings nobody can say which was meant.
    let repeated = |known: &OptionUse| known.old == given.old && known.option.group != Group::Ours;
    line.given.retain(|known| known.option.name != given.option.name || !known.of_file && !repeated(known));
    match line.get(given.option.name) {
        Some(known) if known.value == given.value => {}
        Some(known) => problems.push(
            Problem::error(format!(
                "`--{}` is {} and `--{}` is {}",
                spelled(known),
                known.value,
                spelled(&given),
                given.value
            ))
            .at(given.span)
            .help("keep one of them"),
        ),
        None => line.given.push(given),
    }
}

fn test_name(name: &str, span: Span, line: &mut CommandLine, problems: &mut Problems) {
    if name == "fileio" {
        line.fileio = true;
    } else {
        problems.push(
            Problem::error(format!("only the test `fileio` is modelled, not `{name}`")).at(span).near(name, ["fileio"]),
        );
    }
}

fn word(argument: &str, line: &mut CommandLine, problems: &mut Problems) {
    let command = match argument {
        "fileio" => {
            line.fileio = true;
            return;
        }
        "prepare" => Command::Prepare,
        "run" => Command::Run,
        "cleanup" => Command::Cleanup,
        "help" | "-h" => Command::Help,
        _ => {
            const TESTS: &[&str] = &["cpu", "memory", "threads", "mutex", "oltp"];
            if TESTS.contains(&argument) || argument.ends_with(".lua") {
                test_name(argument, Span::whole(argument), line, problems);
                line.fileio = true;
                return;
            }
            problems.push(
                Problem::error(format!("`{argument}` is neither an option nor a command"))
                    .at(Span::whole(argument))
                    .near(argument, ["prepare", "run", "cleanup", "help", "fileio"])
                    .help("options begin with two dashes; the commands are prepare, run and cleanup"),
            );
            return;
        }
    };
    match line.command {
        Some(Command::Help | Command::Version) => {}
        Some(known) if known != command && command != Command::Help => {
            problems.push(Problem::error("one command at a time: prepare, run or cleanup").at(Span::whole(argument)));
        }
        _ => line.command = Some(command),
    }
}

/// The help, from the table.
pub fn help() -> String {
    let mut text = String::from(
        "Run sysbench's file test, on the files in the current directory or, with\n--on sim:.., in the simulator.\n\n\
         Usage: iowhy sysbench fileio OPTIONS prepare|run|cleanup\n       \
         iowhy sysbench --test=fileio OPTIONS prepare|run|cleanup   (as in 2004)\n\n\
         Options and commands may come in any order. Sizes take K, M, G or T.\n\
         Old spellings alone (--test, --num-threads, --max-requests, --max-time,\n\
         --init-rng) mean sysbench 0.4: its defaults, rules and unseeded generator.\n\
         Files named test_file.N are written whatever they hold, as sysbench does.\n",
    );
    for (group, title) in [
        (Ours, "Where and how"),
        (General, "General"),
        (FileIo, "Files"),
        (Ignored, "Accepted from existing scripts, without effect"),
    ] {
        text.push_str(&format!("\n{title}:\n"));
        for option in OPTIONS.iter().filter(|option| option.group == group) {
            let value = if option.value.is_empty() { "[=on|off]".to_owned() } else { format!("={}", option.value) };
            let mut notes = String::new();
            if !option.default.is_empty() && group != Ignored {
                notes.push_str(&format!(" [{}", option.default));
                if let Some(default) = option.default_0_4 {
                    notes.push_str(&format!("; 0.4: {default}"));
                }
                notes.push(']');
            }
            if let Some(old) = option.old {
                notes.push_str(&format!(" (was --{old})"));
            }
            let flag = format!("--{}{value}", option.name);
            text.push_str(&iowhy_text::item(&flag, &format!("{}{notes}", option.help), 31));
        }
    }
    text.push_str(
        "\nExamples:\n  iowhy sysbench fileio --file-total-size=1G prepare\n  \
         iowhy sysbench fileio --file-total-size=1G --file-test-mode=rndrd --time=5 run\n  \
         iowhy sysbench fileio --threads=4 --file-total-size=1G --time=5 \\\n    \
         --file-test-mode=rndrd --on sim:linux-4.4,elevator=noop --disk sata-2014 run\n",
    );
    text
}

/// A whole number.
pub fn number(text: &str, (min, max): (u64, u64), name: &str) -> Result<u64, String> {
    let range = match (min, max) {
        (0, u64::MAX) => "a whole number, 0 or more".to_owned(),
        _ => format!("a whole number between {min} and {max}"),
    };
    match text.parse::<u64>() {
        Ok(value) if (min..=max).contains(&value) => Ok(value),
        _ => Err(format!("`--{name}` takes {range}, not `{text}`")),
    }
}

/// A size: digits and perhaps one of K, M, G, T in either case, as sysbench takes them; it looks at one letter only.
pub fn size(text: &str, (min, max): (u64, u64), name: &str) -> Result<u64, String> {
    let wrong = || format!("`--{name}` takes a size, for example 16384, 16K, 512M or 3G, not `{text}`");
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(split);
    let shift = match suffix.to_ascii_uppercase().as_str() {
        "" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err(wrong()),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|value| value.checked_mul(1 << shift)).ok_or_else(wrong)?;
    if bytes < min {
        return Err(format!("`--{name}` must be at least {min} byte, not `{text}`"));
    }
    if bytes > max {
        return Err(format!("`--{name}` may be at most {}, not `{text}`", iowhy_text::size(max)));
    }
    Ok(bytes)
}

/// A decimal number above zero in thousandths; further digits are cut off.
pub fn milli(text: &str, name: &str) -> Result<u64, String> {
    let wrong = || format!("`--{name}` takes a number above 0 and up to 1000000, for example 1.5, not `{text}`");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| part.chars().all(|c| c.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
        return Err(wrong());
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| wrong())? };
    let thousandths: String = fraction.chars().chain("000".chars()).take(3).collect();
    let thousandths: u64 = thousandths.parse().map_err(|_| wrong())?;
    match whole.checked_mul(1000).map(|value| value + thousandths) {
        Some(value) if value > 0 && value <= 1_000_000_000 => Ok(value),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_the_suffixes_of_sysbench() {
        for (text, expected) in [
            ("16384", 16384),
            ("16K", 16384),
            ("16k", 16384),
            ("3G", 3 << 30),
            ("1T", 1 << 40),
            ("16KB", 16384),
            ("1gib", 1 << 30),
        ] {
            assert_eq!(size(text, (1, MAX_BYTES), "x"), Ok(expected), "{text}");
        }
        for text in ["", "K", "-1", "1.5G", "16KX", "16 K", "99999999999999999999", "18446744073709551615T", "0", "ü"]
        {
            assert!(size(text, (1, MAX_BYTES), "x").is_err(), "{text}");
        }
    }

    #[test]
    fn ratios_are_kept_in_thousandths() {
        for (text, expected) in [("1.5", 1500), ("2", 2000), (".5", 500), ("0.001", 1), ("1.99999", 1999)] {
            assert_eq!(milli(text, "x"), Ok(expected), "{text}");
        }
        for text in ["", ".", "0", "0.0", "-1", "1e3", "nan", "inf", "1.2.3", "9999999999999999999999"] {
            assert!(milli(text, "x").is_err(), "{text}");
        }
    }

    fn names(arguments: &[&str]) -> (CommandLine, Vec<String>) {
        let mut problems = Problems::default();
        let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
        let line = parse(&arguments, &mut problems);
        (line, problems.list.into_iter().map(|problem| problem.message).collect())
    }

    #[test]
    fn options_and_commands_come_in_any_order() {
        let (line, problems) = names(&["--threads", "4", "run", "--json", "fileio", "--file-fsync-end", "off"]);
        assert_eq!(problems, Vec::<String>::new());
        assert!(line.fileio && line.command == Some(Command::Run) && line.any_old().is_none());
        let values: Vec<&str> = line.given.iter().map(|given| given.value.as_str()).collect();
        assert_eq!(values, ["4", "on", "off"]);
    }

    #[test]
    fn old_spellings_are_recognised() {
        let (line, problems) = names(&["--num-threads=16", "--test=fileio", "run"]);
        assert_eq!(problems, Vec::<String>::new());
        assert!(line.fileio && line.old_test);
        assert_eq!(line.get("threads").map(|given| given.value.as_str()), Some("16"));
    }

    #[test]
    fn the_last_of_a_repeated_option_counts_and_those_of_databases_do_not() {
        let (line, problems) = names(&["--time=5", "--mysql-host", "x", "--db-driver=pgsql", "--time=6", "run"]);
        assert_eq!(line.given.iter().map(|given| given.value.as_str()).collect::<Vec<_>>(), ["6"]);
        let unheard = |name: &str| format!("`--{name}` has no effect here: it is for tests of databases");
        assert_eq!(problems, ["mysql-host", "db-driver"].map(unheard));
    }

    #[test]
    fn every_mistake_is_named() {
        let (_, problems) = names(&[
            "--thread=4",
            "--events",
            "--json",
            "rum",
            "--time=5",
            "--max-time=6",
            "--test=cpu",
            "run",
            "prepare",
        ]);
        assert_eq!(
            problems,
            [
                "unknown option `--thread`",
                "`--events` needs a value",
                "`rum` is neither an option nor a command",
                "`--time` is 5 and `--max-time` is 6",
                "only the test `fileio` is modelled, not `cpu`",
                "one command at a time: prepare, run or cleanup",
            ]
        );
    }

    #[test]
    fn names_are_unique_and_defaults_are_valid() {
        let mut names: Vec<&str> = OPTIONS.iter().flat_map(|o| std::iter::once(o.name).chain(o.old)).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        for option in OPTIONS {
            for default in std::iter::once(option.default).chain(option.default_0_4).filter(|text| !text.is_empty()) {
                let valid = match option.kind {
                    Number(min, max) => number(default, (min, max), option.name).is_ok(),
                    Size(min, max) => size(default, (min, max), option.name).is_ok(),
                    Milli => milli(default, option.name).is_ok(),
                    Switch => matches!(default, "on" | "off"),
                    Choice(choices) => choices.contains(&default),
                    Text => true,
                };
                assert!(valid, "--{} = {default}", option.name);
            }
        }
    }

    #[test]
    fn the_help_fits_a_terminal() {
        let long: Vec<String> = help().lines().filter(|line| line.chars().count() > 90).map(str::to_owned).collect();
        assert_eq!(long, Vec::<String>::new());
    }
}

//! The words behind `iowhy run`: options and job, and the help.

use std::path::PathBuf;
use std::time::Duration;

use iowhy_fio::World;
use iowhy_live::capture::Level;
use iowhy_live::plan::Cache;
use iowhy_text as text;
use iowhy_text::diagnose::{Problem, Problems, Span};

use super::limit::Limit;
use super::{BUILTINS, Builtin, FIO, KINDS, Keep, LIVE, Until, guest, options, replay};
use crate::on_kernel;
use crate::store::{self, StoreError};

/// Options of the verb: name, whether it takes a value, help.
const OPTIONS: &[(&str, bool, &str)] = &[
    ("on", true, "live, sim:KERNEL[+PATCH..][,key=value..] or kernel:KERNEL[,key=value..]; several times to compare"),
    (
        "disk",
        true,
        "NAME[,key=value..]: the modelled device; live and kernel, as root: one made for each run, with file system \
         (fs=ext4) and queue (`iowhy disk create --help`); `here` for none; once, or once for each --on",
    ),
    ("repeat", true, "runs on each, with seeds S, S+1, .. [1]"),
    ("seed", true, "seed of the first run [1]"),
    ("warm-up", true, "blocks of runs that only warm up, and are in no comparison [0]"),
    ("until", true, "go on until the median, or the shift between places, is known to so many percent (level 99 %)"),
    ("budget", true, "with --until: most runs on each"),
    ("label", true, "name of the runs, which are kept; once, or once for each --on"),
    ("store", true, "keep the runs in this directory [IOWHY_STORE; with --label, else the user's data directory]"),
    ("trace", false, "keep all events, too; live (as root): --trace=light, layers or full [layers]"),
    ("blind", false, "keep runs without a word of kernel, policies, tunables, disk and place"),
    ("dir", true, "live: where the files are [a new directory here, removed afterwards]"),
    ("cache", true, "live: cold, warm or as-found: the files' pages at the start [as the job says]"),
    ("allow-write", true, "live: a device or file that may be written whatever it holds; may be repeated"),
    ("size-limit", true, "bytes that each job works on at most, such as 4m"),
    ("time-limit", true, "seconds that each job works at most"),
    ("timeout", true, "kernel: seconds that a boot with its run may take [by the job, at least 180]"),
    ("replay", true, "of a trace: closed (each call when the last has ended) or open (at the recorded times) [closed]"),
    ("json", false, "one JSON object (iowhy.run/1)"),
    ("help", false, "this text; with a built-in job, its options"),
];

/// Options that shape a job wherever it is run.
const SHAPING: &[&str] = &["cache", "size-limit", "time-limit", "replay"];

/// Options and job of a command line.
#[derive(Default)]
pub(super) struct Line {
    pub(super) job: Vec<String>,
    pub(super) given: Vec<(&'static str, String, Span)>,
    pub(super) json: bool,
    pub(super) help: bool,
    pub(super) trace: Option<Level>,
    pub(super) blind: bool,
}

impl Line {
    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        self.given.iter().filter(|(known, ..)| *known == name).map(|(_, value, _)| value.as_str()).collect()
    }

    pub(super) fn number(&self, name: &str, (min, max): (u64, u64), default: u64, problems: &mut Problems) -> u64 {
        let mut given = self.given.iter().filter(|(known, ..)| *known == name);
        let Some((_, value, span)) = given.next() else { return default };
        if let Some((_, other, span)) = given.find(|(_, other, _)| other != value) {
            let text = format!("`--{name}` is {value} and {other}");
            problems.push(Problem::error(text).at(span.clone()).help("keep one of them"));
        }
        match value.parse() {
            Ok(number) if (min..=max).contains(&number) => number,
            _ => {
                let text = format!("`--{name}` takes a whole number of at least {min}, not `{value}`");
                problems.push(Problem::error(text).at(span.clone()));
                default
            }
        }
    }
}

impl Line {
    /// The job and what else shapes a live run, with whole paths; each run says of its own what disk it was made on.
    pub(super) fn again(&self) -> Vec<String> {
        let mut words = self.job.clone();
        for (name, value, _) in &self.given {
            let whole = || std::path::absolute(value).map_or_else(|_| value.clone(), |path| path.display().to_string());
            let value = match *name {
                "dir" | "allow-write" => whole(),
                name if SHAPING.contains(&name) => value.clone(),
                _ => continue,
            };
            words.push(format!("--{name}={value}"));
        }
        words
    }

    /// What the page cache holds at the start of live runs. Warns of options that no place takes.
    pub(super) fn cache(&self, problems: &mut Problems) -> Option<Cache> {
        let cache = self.given.iter().find(|(known, ..)| *known == "cache").and_then(|(_, value, span)| {
            let known = [Cache::AsFound, Cache::Cold, Cache::Warm];
            let found = known.into_iter().find(|cache| on_kernel::cache_name(*cache) == value);
            if found.is_none() {
                let text = format!("`--cache` takes cold, warm or as-found, not `{value}`");
                problems.push(Problem::error(text).at(span.clone()));
            }
            found
        });
        if !self.all("on").contains(&LIVE) {
            let in_guest = self.all("on").iter().any(|on| on.starts_with(guest::PREFIX));
            let unused = ["dir", "cache", "allow-write"].iter().filter(|name| !(in_guest && **name == "cache"));
            for name in unused.filter(|name| !self.all(name).is_empty()) {
                let text = format!("`--{name}` is for live runs, and there is none");
                problems.push(Problem::warning(text).help("--on live"));
            }
        }
        cache
    }

    /// Options that shape the job wherever it is run.
    pub(super) fn shaping(&self) -> Vec<String> {
        let wanted = self.given.iter().filter(|(name, ..)| SHAPING.contains(name));
        wanted.map(|(name, value, _)| format!("--{name}={value}")).collect()
    }

    /// The time for a guest.
    pub(super) fn timeout(&self, problems: &mut Problems) -> Option<Duration> {
        let seconds = self.number("timeout", (1, 1_000_000), 0, problems);
        if seconds > 0 && !self.all("on").iter().any(|on| on.starts_with(guest::PREFIX)) {
            let text = "`--timeout` is for kernels that are booted, and there is none";
            problems.push(Problem::warning(text).help("--on kernel:debian-6.1"));
        }
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }

    /// The stopping rule.
    pub(super) fn until(&self, problems: &mut Problems) -> Option<Until> {
        let given = |name: &str| self.given.iter().find(|(known, ..)| *known == name);
        let budget = given("budget").map(|_| self.number("budget", (2, 10_000), 2, problems) as u32);
        let Some((_, value, span)) = given("until") else {
            if budget.is_some() {
                problems.push(Problem::error("`--budget` is for `--until`, which is missing").help("--repeat N"));
            }
            return None;
        };
        let pct = value.trim_end_matches('%').parse().ok().filter(|pct: &f64| *pct > 0.0 && *pct <= 1000.0);
        if pct.is_none() {
            let text = format!("`--until` takes percent above 0, such as 2, not `{value}`");
            problems.push(Problem::error(text).at(span.clone()));
        }
        if budget.is_none() {
            let help = "--budget 40: it ends there even if the interval is still wide";
            problems.push(Problem::error("`--until` needs `--budget`").at(span.clone()).help(help));
        }
        Some(Until { pct: pct?, budget: budget? })
    }

    /// Where runs are kept: if a store is named, or if what is asked for makes sense of kept runs only.
    pub(super) fn keep(&self, world: &World<'_>, problems: &mut Problems) -> Option<Keep> {
        let named = self.all("store").first().map(PathBuf::from);
        let variable = (world.variable)(store::VARIABLE).is_some_and(|value| !value.is_empty());
        let asked = named.is_some() || variable || self.trace.is_some() || self.blind;
        if !asked && self.all("label").is_empty() {
            return None;
        }
        let Some(directory) = store::directory(named.as_deref(), world.variable) else {
            let text = StoreError::NoPlace.to_string();
            problems.push(if asked { Problem::error(text) } else { Problem::warning(text) });
            return None;
        };
        Some(Keep { directory, asked, trace: self.trace, blind: self.blind })
    }

    /// How times of a trace are kept.
    pub(super) fn replay(&self, problems: &mut Problems) -> replay::Mode {
        let Some((_, value, span)) = self.given.iter().find(|(known, ..)| *known == "replay") else {
            return replay::Mode::default();
        };
        if !replay::is_trace(&self.job) {
            problems.push(Problem::warning("`--replay` is for traces, and this job is none").at(span.clone()));
        }
        replay::Mode::parse(value).unwrap_or_else(|| {
            let text = format!("`--replay` takes closed or open, not `{value}`");
            problems.push(Problem::error(text).at(span.clone()));
            replay::Mode::default()
        })
    }

    /// The limits of jobs.
    pub(super) fn limit(&self, problems: &mut Problems) -> Limit {
        let bytes = self.given.iter().find(|(known, ..)| *known == "size-limit").and_then(|(_, value, span)| {
            let bytes = iowhy_fio::value::integer(value, 1024, (4096, 1 << 60)).map(i64::unsigned_abs);
            if bytes.is_err() {
                let text = format!("`--size-limit` takes a size of at least 4k, such as 4m, not `{value}`");
                problems.push(Problem::error(text).at(span.clone()));
            }
            bytes.ok()
        });
        let seconds = self.number("time-limit", (1, 1_000_000), 0, problems);
        Limit { bytes, time: (seconds > 0).then(|| Duration::from_secs(seconds)) }
    }
}

/// Takes a command line apart.
pub(super) fn take_apart(words: &[String], problems: &mut Problems) -> Line {
    let mut line = Line::default();
    let mut rest = words.iter().peekable();
    while let Some(word) = rest.next() {
        let Some(body) = word.strip_prefix("--").filter(|body| !body.is_empty()) else {
            if word.starts_with('-') && word.len() > 1 && word != "--" && word != "-h" {
                problems.push(Problem::error(format!("unknown option `{word}`")).at(Span::whole(word)));
            } else if word == "-h" {
                line.help = true;
            } else if word != "--" {
                line.job.push(word.clone());
            }
            continue;
        };
        let (name, inline) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (body, None),
        };
        let is_fio = line.job.first().is_some_and(|job| job == FIO);
        if is_fio && OPTIONS.iter().all(|(known, ..)| *known != name) {
            line.job.push(word.clone());
            continue;
        }
        let Some((name, takes_value, _)) = OPTIONS.iter().find(|(known, ..)| *known == name) else {
            let names = OPTIONS.iter().map(|(name, ..)| format!("--{name}"));
            problems.push(
                Problem::error(format!("unknown option `--{name}`"))
                    .at(Span::bytes(word, 0, name.len() + 2))
                    .near(&format!("--{name}"), names)
                    .help("`iowhy run --help` lists the options"),
            );
            continue;
        };
        if !takes_value {
            if *name == "trace" {
                let named = inline.as_deref().unwrap_or(Level::default().name());
                line.trace = Level::ALL.into_iter().find(|level| level.name() == named);
                if line.trace.is_none() {
                    let text = format!("`--trace` takes light, layers or full, not `{named}`");
                    problems.push(Problem::error(text).at(Span::whole(word)));
                }
                continue;
            }
            if let Some(value) = inline {
                let text = format!("`--{name}` takes no value, and has `{value}`");
                problems.push(Problem::error(text).at(Span::whole(word)));
            }
            line.json |= *name == "json";
            line.help |= *name == "help";
            line.blind |= *name == "blind";
            continue;
        }
        let separate = inline.is_none();
        let value = inline.or_else(|| rest.next_if(|next| !next.starts_with("--")).cloned());
        match value.filter(|value| !value.is_empty()) {
            Some(value) => {
                let shown = if separate { value.clone() } else { word.clone() };
                line.given.push((name, value, Span::whole(&shown)));
            }
            None => problems.push(Problem::error(format!("`--{name}` needs a value")).at(Span::whole(word))),
        }
    }
    line
}

/// The help of the verb.
pub(super) fn help() -> String {
    let mut out = String::from(
        "iowhy run JOB.. --on WHERE [--on WHERE2 ..] [OPTIONS]\n\nRuns a job on the running kernel (--on live), in the \
         simulator\n(--on sim:KERNEL), or on a kernel that QEMU boots (--on kernel:KERNEL). JOB is\none or more fio \
         job files (- is standard input), `fio` with words of fio's\ncommand line, a trace that was recorded, or a \
         built-in job with key=value words:\n\n",
    );
    for builtin in BUILTINS {
        out.push_str(&text::item(builtin.name, builtin.summary, 14));
    }
    out.push_str("\n`iowhy run NAME --help` lists the options of a built-in job.\n\n");
    for (name, takes_value, help) in OPTIONS {
        let value = if *takes_value { "=VALUE" } else { "" };
        out.push_str(&text::item(&format!("--{name}{value}"), help, 18));
    }
    KINDS.iter().for_each(|kind| out.push_str(&(kind.help)()));
    out.push_str(
        "\nExamples:\n  iowhy run jobs/randread-qd32.fio --on live --on sim:linux-6.18 --disk ide-2004\n  \
         iowhy run paralleldd size=64m readers=3 --on live --cache cold --repeat 5\n  \
         iowhy run dd of=/dev/sda bs=4k oflag=direct count=4096 writers=2 \\\n    \
         --on sim:linux-2.6.18-164.el5 --on sim:linux-2.6.18-186.el5 --repeat 5\n",
    );
    out
}

/// The help of a built-in job.
pub(super) fn help_of(builtin: &Builtin) -> String {
    let mut out = format!("iowhy run {} [KEY=VALUE ..] --on WHERE [OPTIONS]\n\n", builtin.name);
    for line in text::wrap(&format!("{}. {}", capital(builtin.summary), builtin.notes), 78) {
        out.push_str(&line);
        out.push('\n');
    }
    out.push('\n');
    out.push_str(&options::help(builtin.options));
    out
}

fn capital(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

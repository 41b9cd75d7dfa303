//! `cargo xtask oracle`: policies of the models held against the kernels' own code
//!
//! The source that Debian packages is fetched into `target/oracle`, and a policy's own files are compiled there,
//! unchanged, behind the shim in `oracle/shim`, as a program that reads steps and answers each. Random cases go to that
//! program and to the model; the first case whose answers differ is made as small as it gets and printed. Nothing of a
//! kernel is committed, and this is not a step of `cargo xtask test`: it needs Debian's archive and gcc.

mod direct;
mod elevators;
mod io_latency;
mod io_max;
mod mglru;
mod readahead;
mod reclaim;
mod source;
mod tags;
mod throttle;

use std::fmt::{self, Write as _};
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use iowhy_stack::kernel::Stack;
use iowhy_stack::kernel::release::Release;
use iowhy_stack::rng::Rng;

use crate::Outcome;

/// A kernel that Debian packages.
struct Packaged {
    /// The word that names it here.
    name: &'static str,
    /// The binary package with its source; of several that begin so, the newest is taken.
    package: &'static str,
    /// The suite that has it.
    suite: &'static str,
}

const KERNELS: &[Packaged] = &[
    Packaged { name: "5.10", package: "linux-source-5.10", suite: "bullseye-security" },
    Packaged { name: "6.1", package: "linux-source-6.1", suite: "bookworm-security" },
    Packaged { name: "6.12", package: "linux-source-6.12", suite: "trixie-security" },
    Packaged { name: "7", package: "linux-source-7.", suite: "sid" },
];

/// A policy that can be held against its kernel.
struct Policy {
    name: &'static str,
    /// Its program in `oracle/shim`.
    program: &'static str,
    /// Files of the kernel that the program includes whole, and headers that it takes from there.
    files: &'static [&'static str],
    headers: &'static [&'static str],
    /// Functions (and macros) that it includes out of larger files.
    cuts: &'static [(&'static str, &'static [&'static str])],
    /// A random case for a kernel of this version.
    draw: fn(&mut Rng, &Stack) -> Case,
    /// Whether a case that was made smaller is still one.
    valid: fn(&Case) -> bool,
    /// The model's answer to each step.
    model: fn(&Stack, &Case) -> Vec<String>,
    /// What the letters of steps mean, and the words of an answer that are not decisions.
    legend: &'static [(char, &'static str)],
    not_decisions: &'static [&'static str],
}

const POLICIES: &[&Policy] = &[
    &elevators::MQ_DEADLINE,
    &readahead::READAHEAD,
    &tags::TAGS,
    &elevators::KYBER,
    &elevators::BFQ,
    &reclaim::RECLAIM,
    &mglru::MGLRU,
    &throttle::THROTTLE,
    &direct::DIRECT,
    &io_max::IO_MAX,
    &io_latency::IO_LATENCY,
];

/// A letter and numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    op: char,
    arguments: Vec<i64>,
}

impl Step {
    fn new(op: char, arguments: &[i64]) -> Step {
        Step { op, arguments: arguments.to_vec() }
    }

    fn get(&self, index: usize) -> i64 {
        self.arguments.get(index).copied().unwrap_or(0)
    }

    fn unsigned(&self, index: usize) -> u64 {
        self.get(index).unsigned_abs()
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.op)?;
        self.arguments.iter().try_for_each(|number| write!(f, " {number}"))
    }
}

/// Settings, which have no answers, and steps.
#[derive(Clone, Debug)]
struct Case {
    settings: Vec<Step>,
    steps: Vec<Step>,
}

/// The kernel's own code at work.
struct Oracle {
    program: PathBuf,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Oracle {
    fn start(program: &Path) -> Result<Oracle, String> {
        let failed = |error| format!("{}: {error}", program.display());
        let mut command = Command::new(program);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("{}: no pipes", program.display()));
        };
        Ok(Oracle { program: program.to_owned(), child, input, output: BufReader::new(output) })
    }

    /// Its answers. A kernel that stops (`BUG_ON`) leaves fewer of them.
    fn ask(&mut self, case: &Case) -> Result<Vec<String>, String> {
        let mut text = String::new();
        for step in case.settings.iter().chain(&case.steps) {
            writeln!(text, "{step}").map_err(|error| error.to_string())?;
        }
        text.push_str(".\n");
        let mut answers = Vec::with_capacity(case.steps.len());
        let sent = self.input.write_all(text.as_bytes()).and_then(|()| self.input.flush());
        while sent.is_ok() && answers.len() < case.steps.len() {
            let mut line = String::new();
            match self.output.read_line(&mut line) {
                Ok(1..) => answers.push(line.trim_end().to_owned()),
                _ => break,
            }
        }
        if answers.len() < case.steps.len() {
            self.stop();
            *self = Oracle::start(&self.program)?;
            answers.push("stopped".to_owned());
        }
        Ok(answers)
    }

    fn stop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first step at which answers differ.
fn differs(kernel: &[String], model: &[String]) -> Option<usize> {
    let shorter = kernel.len().min(model.len());
    let at = kernel.iter().zip(model).position(|(kernel, model)| kernel != model);
    at.or((kernel.len() != model.len()).then_some(shorter))
}

/// The smallest case found whose answers differ: steps and tunables left out, then numbers of steps made smaller.
fn shrink(oracle: &mut Oracle, mut case: Case, fails: &dyn Fn(&mut Oracle, &Case) -> Option<usize>) -> Case {
    let mut size = case.steps.len();
    while size > 0 {
        let mut from = 0;
        while from < case.steps.len() {
            let mut fewer = case.clone();
            fewer.steps.drain(from..(from + size).min(case.steps.len()));
            match fails(oracle, &fewer) {
                Some(last) => {
                    fewer.steps.truncate(last + 1);
                    case = fewer;
                }
                None => from += size,
            }
        }
        size /= 2;
    }
    for index in (1..case.settings.len()).rev() {
        let mut fewer = case.clone();
        fewer.settings.remove(index);
        if fails(oracle, &fewer).is_some() {
            case = fewer;
        }
    }
    for step in 0..case.steps.len() {
        for argument in 0..case.steps[step].arguments.len() {
            let before = case.steps[step].get(argument);
            for smaller in [0, 8, before / 2, before / 16 * 8].into_iter().filter(|smaller| *smaller < before) {
                let mut other = case.clone();
                other.steps[step].arguments[argument] = smaller;
                if fails(oracle, &other).is_some() {
                    case = other;
                    break;
                }
            }
        }
    }
    case
}

/// Runs one policy of one kernel: decisions, cases that differ, and the smallest found of these.
fn hold(
    policy: &Policy,
    stack: &Stack,
    program: &Path,
    count: u64,
    seed: u64,
) -> Result<(u64, u64, Option<Case>), String> {
    let mut oracle = Oracle::start(program)?;
    let mut rng = Rng::stream(seed, policy.name);
    let fails = |oracle: &mut Oracle, case: &Case| {
        if !(policy.valid)(case) {
            return None;
        }
        let kernel = oracle.ask(case).ok()?;
        differs(&kernel, &(policy.model)(stack, case))
    };
    let (mut decisions, mut cases, mut smallest) = (0, 0, None);
    while decisions < count {
        let case = (policy.draw)(&mut rng, stack);
        let answers = oracle.ask(&case)?;
        let words = answers.iter().flat_map(|answer| answer.split_whitespace());
        decisions += words.filter(|word| !policy.not_decisions.contains(word)).count() as u64;
        if differs(&answers, &(policy.model)(stack, &case)).is_some() {
            cases += 1;
            if smallest.is_none() {
                smallest = Some(shrink(&mut oracle, case, &fails));
            }
        }
    }
    oracle.stop();
    Ok((decisions, cases, smallest))
}

/// A case with both sides' answers, as a table.
fn shown(policy: &Policy, case: &Case, kernel: &[String], model: &[String]) -> String {
    let mut text = String::new();
    for (letter, meaning) in policy.legend {
        text += &format!("      {letter}: {meaning}\n");
    }
    for setting in &case.settings {
        text += &format!("    {setting}\n");
    }
    for (at, step) in case.steps.iter().enumerate() {
        let side = |answers: &[String]| answers.get(at).cloned().unwrap_or_default();
        let (kernel, model) = (side(kernel), side(model));
        let mark = if kernel == model { "" } else { "  <- differs" };
        text += &format!("    {:<24} kernel: {kernel:<36} model: {model}{mark}\n", step.to_string());
    }
    text
}

struct Settings {
    count: u64,
    seed: u64,
    only: Vec<String>,
    /// A file with one case, for one policy.
    case: Option<PathBuf>,
}

/// A case as it is printed; what follows a step's numbers is left out.
fn read_case(file: &Path) -> Result<Case, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let steps = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let op = words.next()?.chars().next()?;
        Some(Step { op, arguments: words.map_while(|word| word.parse().ok()).collect() })
    });
    let (settings, steps) = steps.partition(|step| matches!(step.op, '#' | '='));
    Ok(Case { settings, steps })
}

/// All policies of one kernel. Whether every one of them agrees.
fn kernel(packaged: &Packaged, settings: &Settings) -> Result<bool, String> {
    let source = source::unpacked(packaged)?;
    let release = Release::parse(&format!("linux-{}", source.version));
    let release = release.ok_or_else(|| format!("{}: `{}` is not a version", packaged.package, source.version))?;
    let nearest = release.nearest();
    let stack = Stack::new(nearest.kernel);
    println!("{} {} under the models of {}", packaged.package, source.version, nearest.kernel.name);
    let mut agrees = true;
    for policy in POLICIES {
        if !settings.only.is_empty() && !settings.only.iter().any(|name| name == policy.name) {
            continue;
        }
        let program = source::program(&source, policy)?;
        if let Some(file) = &settings.case {
            let case = read_case(file)?;
            let answers = Oracle::start(&program)?.ask(&case)?;
            print!("{}", shown(policy, &case, &answers, &(policy.model)(&stack, &case)));
            continue;
        }
        let (decisions, cases, smallest) = hold(policy, &stack, &program, settings.count, settings.seed)?;
        println!("  {:<14} {decisions:>9} decisions, {cases} cases differ", policy.name);
        if let Some(case) = smallest {
            agrees = false;
            let answers = Oracle::start(&program)?.ask(&case)?;
            print!("{}", shown(policy, &case, &answers, &(policy.model)(&stack, &case)));
        }
    }
    Ok(agrees)
}

/// `cargo xtask oracle KERNEL,.. [--count N] [--seed N] [--only POLICY,..] [--case FILE]`.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let known = || KERNELS.iter().map(|kernel| kernel.name).collect::<Vec<_>>().join(", ");
    let (mut names, mut settings) = (Vec::new(), Settings { count: 1_000_000, seed: 1, only: Vec::new(), case: None });
    let mut left = arguments.iter();
    while let Some(word) = left.next() {
        let mut number = || left.next().and_then(|value| value.parse().ok()).ok_or(format!("{word} takes a number"));
        match word.as_str() {
            "--count" => settings.count = number()?,
            "--seed" => settings.seed = number()?,
            "--case" => settings.case = left.next().map(PathBuf::from),
            "--only" => {
                settings.only.extend(left.next().into_iter().flat_map(|list| list.split(',')).map(str::to_owned))
            }
            list => names.extend(list.split(',').map(|name| name.trim_start_matches("linux-").to_owned())),
        }
    }
    if let Some(name) = settings.only.iter().find(|name| !POLICIES.iter().any(|policy| policy.name == **name)) {
        let all: Vec<&str> = POLICIES.iter().map(|policy| policy.name).collect();
        return Err(format!("no policy `{name}`; there are {}", all.join(", ")));
    }
    if names.iter().any(|name| name == "all") {
        names = KERNELS.iter().map(|kernel| kernel.name.to_owned()).collect();
    }
    let mut differ = Vec::new();
    for name in &names {
        let Some(packaged) = KERNELS.iter().find(|kernel| kernel.name == name) else {
            return Err(format!("no kernel `{name}`; there are {}, or all of them: all", known()));
        };
        if !kernel(packaged, &settings)? {
            differ.push(name.as_str());
        }
    }
    match (names.is_empty(), differ.is_empty()) {
        (true, _) => Err(format!("which kernel? {}, or all of them: all", known())),
        (_, true) => Ok(()),
        _ => Err(format!("models differ from their kernel: {}", differ.join(", "))),
    }
}

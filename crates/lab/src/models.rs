//! The tables of models as one catalogue: the source of `iowhy models` and `docs/MODELS.md`.

use std::fmt::Write;

use iowhy_stack::device::drive;
use iowhy_stack::job::ENGINES;
use iowhy_stack::kernel::release::{Levels, Near};
use iowhy_stack::kernel::{self, Change, KERNELS, Kernel, PATCHES, Stack};
use iowhy_stack::origin::{Entry, OptionSpec, Origin, listed};
use iowhy_stack::readahead::{self, Limits, StepText};
use iowhy_stack::reclaim::RECLAIMS;
use iowhy_stack::reclaim::mglru::MGLRUS;
use iowhy_stack::reclaim::two_list::TWO_LISTS;
use iowhy_stack::surfaces::Column;
use serde_json::{Map, Value, json};

use iowhy_stats::METHODS;
use iowhy_stats::mmtests::STATISTICS;
use iowhy_text as text;
use iowhy_text::diagnose::{Problem, Span};
use iowhy_text::part::Part;
use iowhy_why::rules::RULES;

const WHOLE: &[(&str, &str)] = &[
    ("kernel", "named compositions of the policies below; `--on sim:NAME`"),
    ("patch", "changes to a kernel; `--on sim:KERNEL+NAME`"),
];
const ASIDE: &[(&str, &str)] = &[
    ("reclaim", "which pages leave the cache when memory is short"),
    ("engine", "how a thread of a program makes its calls"),
    ("rule", "mechanisms that `iowhy explain` looks for; docs/RULES.md has all of them"),
    ("statistic", "statistics of samples in tables, and the methods by which comparisons decide"),
];

/// Kinds in the order of the lists, with a line on each: kernels, what they are composed of, and what stands aside.
pub const KINDS: &[(&str, &str)] = &{
    let mut all = [("", ""); WHOLE.len() + kernel::KINDS.len() + ASIDE.len()];
    let mut nr = 0;
    while nr < all.len() {
        let policy = nr.wrapping_sub(WHOLE.len());
        all[nr] = if nr < WHOLE.len() {
            WHOLE[nr]
        } else if policy < kernel::KINDS.len() {
            (kernel::KINDS[policy].name, kernel::KINDS[policy].title)
        } else {
            ASIDE[policy - kernel::KINDS.len()]
        };
        nr += 1;
    }
    all
};

/// A tunable as it is typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunable {
    /// The whole key (`elevator.slice_idle_ms`).
    pub key: String,
    /// The option in the table.
    pub spec: OptionSpec,
}

/// One entry of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Kind, one of [`KINDS`].
    pub kind: &'static str,
    /// Stable name.
    pub name: &'static str,
    /// Other names for the same.
    pub aliases: Vec<&'static str>,
    /// One line.
    pub summary: &'static str,
    /// Sources.
    pub origin: &'static [Origin],
    pub options: Vec<Tunable>,
    /// The evidence that it follows its source.
    pub conformance: String,
    /// Of a kernel: its policies. Of a patch: the keys it sets.
    pub parts: Vec<(&'static str, &'static str)>,
    /// Columns of the tables that it takes from a file, and what each has.
    pub columns: Vec<(String, &'static str)>,
}

/// Every model of one kind, or of all.
///
/// # Errors
/// If the kind is unknown.
pub fn catalogue(kind: Option<&str>) -> Result<Vec<Model>, Problem> {
    if let Some(wanted) = kind
        && !KINDS.iter().any(|(name, _)| *name == wanted)
    {
        let names: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
        return Err(Problem::error(format!("unknown kind `{wanted}`"))
            .at(Span::whole(wanted))
            .near(wanted, &names)
            .help(format!("one of {}", names.join(", "))));
    }
    let mut models = Vec::new();
    for (name, _) in KINDS.iter().filter(|(name, _)| kind.is_none_or(|wanted| wanted == *name)) {
        match *name {
            "kernel" => kernels(&mut models),
            "patch" => patches(&mut models),
            "reclaim" => {
                entries(&mut models, name, listed(RECLAIMS));
                entries(&mut models, name, listed(TWO_LISTS));
                entries(&mut models, name, listed(MGLRUS));
            }
            "engine" => {
                entries(&mut models, name, listed(iowhy_live::engine::ENGINES));
                entries(&mut models, name, listed(ENGINES));
            }
            "rule" => rules(&mut models),
            "statistic" => statistics(&mut models),
            policy => match kernel::KINDS.iter().find(|kind| kind.name == policy) {
                Some(kind) => entries(&mut models, name, (kind.entries)()),
                None => unreachable!("`{policy}` is listed but has no table"),
            },
        }
    }
    Ok(models)
}

/// The entry of that name, or alias, alone.
///
/// # Errors
/// If there is none.
pub fn named(models: Vec<Model>, name: &str) -> Result<Vec<Model>, Problem> {
    let names: Vec<&str> = models.iter().map(|model| model.name).collect();
    let problem =
        Problem::error(format!("nothing of this kind is called `{name}`")).at(Span::whole(name)).near(name, names);
    let release = kernel::find_kernel(name).map_or("", |kernel| kernel.name);
    let is_meant = |model: &Model| {
        model.name == name || model.aliases.contains(&name) || (model.kind == "kernel" && model.name == release)
    };
    let found: Vec<Model> = models.into_iter().filter(is_meant).collect();
    if found.is_empty() { Err(problem) } else { Ok(found) }
}

/// A difference between two kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// A kind of policy, or a key.
    pub key: String,
    /// The first kernel's value, and the second's.
    pub values: [String; 2],
    /// Meaning of the values.
    pub words: [String; 2],
    /// Single steps that differ: the step, what the first kernel does there, and the second.
    pub steps: Vec<[String; 3]>,
}

/// Differences of two kernels on the same disk, in words: policies in the order of the path, then tunables.
pub fn against(one: &'static Kernel, other: &'static Kernel) -> Vec<Difference> {
    let stacks = [one, other].map(Stack::new);
    let changes = Stack::differences(&stacks[0], &stacks[1]);
    let of_kernels = changes.into_iter().filter(|change| change.kind() != kernel::DISK);
    let difference = |change: Change| {
        let kind = kernel::KINDS.iter().find(|kind| kind.key == change.key);
        let words = [&change.from, &change.to].map(|value| match kind {
            Some(kind) => {
                let entry = (kind.entries)().into_iter().find(|entry| entry.name == value.as_str());
                entry.map_or_else(String::new, |entry| entry.summary.to_owned())
            }
            None => help(&stacks[0], &change.key),
        });
        let steps = match change.key.as_str() {
            "readahead" => differing(stacks.each_ref().map(|stack| {
                let chosen = &stack.readahead;
                readahead::steps((chosen.entry.build)(&chosen.options, &Limits::default()).as_ref())
            })),
            "fault" => differing(stacks.each_ref().map(|stack| {
                let chosen = &stack.fault;
                (chosen.entry.build)(&chosen.options).steps()
            })),
            _ => Vec::new(),
        };
        Difference { key: change.key, values: [change.from, change.to], words, steps }
    };
    of_kernels.map(difference).collect()
}

/// The steps that are not alike, in the order of the first side.
fn differing([one, other]: [Vec<StepText>; 2]) -> Vec<[String; 3]> {
    fn find(steps: &[StepText], name: &str) -> &'static str {
        steps.iter().find(|(step, _)| *step == name).map_or("-", |(_, text)| *text)
    }
    let added = other.iter().filter(|(name, _)| find(&one, name) == "-");
    let names = one.iter().chain(added).map(|(name, _)| *name);
    let rows = names.map(|name| [name, find(&one, name), find(&other, name)]);
    rows.filter(|[_, from, to]| from != to).map(|row| row.map(str::to_owned)).collect()
}

/// The help of a key.
fn help(stack: &Stack, key: &str) -> String {
    let (kind, name) = key.split_once('.').unwrap_or(("", key));
    let specs = match kernel::KINDS.iter().find(|known| known.key == kind) {
        Some(kind) => (kind.options)(stack).specs(),
        None => stack.options.specs(),
    };
    specs.iter().find(|spec| spec.name == name).map_or_else(String::new, |spec| spec.help.to_owned())
}

/// Those differences for people.
pub fn against_text(names: [&str; 2], differences: &[Difference], bold: fn(&str) -> String) -> String {
    let mut out = format!("{}\n", bold(&format!("{} against {}", names[0], names[1])));
    for Difference { key, values: [from, to], words, steps } in differences {
        let _ = writeln!(out, "\n{}: {from} against {to}", bold(key));
        if words[0] == words[1] {
            paragraph(&mut out, &words[0]);
        } else if steps.is_empty() {
            for (name, words) in names.iter().zip(words) {
                out.push_str(&text::item(&format!("  {name}"), words, AGAINST));
            }
        }
        for [step, from, to] in steps {
            paragraph(&mut out, step);
            for (name, words) in names.iter().zip([from, to]) {
                out.push_str(&text::item(&format!("    {name}"), words, AGAINST));
            }
        }
    }
    if differences.is_empty() {
        out.push_str("\nnothing differs in what is modelled\n");
    }
    out
}

/// Column of the answers in a list of differences.
const AGAINST: usize = 24;

/// The same as JSON (`iowhy.models-against/1`).
pub fn against_json(names: [&str; 2], differences: &[Difference]) -> Value {
    let step = |[step, from, to]: &[String; 3]| json!({ "step": step, "from": from, "to": to });
    let all = differences.iter().map(|it| {
        json!({
            "key": it.key,
            "from": it.values[0],
            "to": it.values[1],
            "from_summary": it.words[0],
            "to_summary": it.words[1],
            "steps": it.steps.iter().map(step).collect::<Vec<_>>(),
        })
    });
    json!({
        "schema": "iowhy.models-against/1",
        "from": names[0],
        "to": names[1],
        "differences": all.collect::<Vec<_>>(),
    })
}

fn tunables(prefix: &str, specs: &'static [OptionSpec]) -> Vec<Tunable> {
    specs.iter().map(|spec| Tunable { key: format!("{prefix}{}", spec.name), spec: *spec }).collect()
}

fn kernels(models: &mut Vec<Model>) {
    for kernel in KERNELS {
        models.push(Model {
            kind: "kernel",
            name: kernel.name,
            aliases: kernel.aliases.to_vec(),
            summary: kernel.summary,
            origin: kernel.origin,
            options: tunables("", kernel.options),
            conformance: stands_for(kernel),
            parts: kernel::parts().map(|kind| (kind.name, (kind.of_kernel)(kernel))).collect(),
            columns: Vec::new(),
        });
    }
}

/// The releases that a kernel is the model of, and those that it stands in for.
fn stands_for(kernel: &Kernel) -> String {
    let mut text = "that of its policies".to_owned();
    for Levels { series: (major, minor), from, to } in kernel.levels {
        let levels = match (from, to) {
            (0, &u32::MAX) => "of any level".to_owned(),
            (from, &u32::MAX) => format!("from level {from} on"),
            (from, to) if from == to => format!("level {from}"),
            (from, to) => format!("levels {from} to {to}"),
        };
        let _ = write!(text, "; the model of {major}.{minor}, {levels}");
    }
    for Near { from, to, differs } in kernel.near {
        let name = |(major, minor): (u32, u32)| match minor {
            u32::MAX => format!("{major}.x"),
            minor => format!("{major}.{minor}"),
        };
        let last = if from == to { String::new() } else { format!(" to {}", name(*to)) };
        let _ = write!(text, "; the nearest to {}{last} ({differs})", name(*from));
    }
    text
}

fn patches(models: &mut Vec<Model>) {
    for patch in PATCHES {
        models.push(Model {
            kind: "patch",
            name: patch.name,
            aliases: Vec::new(),
            summary: patch.summary,
            origin: patch.origin,
            options: Vec::new(),
            conformance: match patch.kernels {
                [] => "that of its settings; applies to every kernel".to_owned(),
                kernels => format!("that of its settings; applies to {}", kernels.join(", ")),
            },
            parts: patch.sets.to_vec(),
            columns: Vec::new(),
        });
    }
}

fn rules(models: &mut Vec<Model>) {
    const ORIGIN: &[Origin] = &[Origin {
        kernels: "as the rule says",
        file: "docs/RULES.md",
        function: "-",
        notes: "evidence, remedy and refutation of each",
    }];
    for rule in RULES {
        models.push(Model {
            kind: "rule",
            name: rule.name,
            aliases: Vec::new(),
            summary: rule.what,
            origin: ORIGIN,
            options: Vec::new(),
            conformance: "causes planted at random (`cargo xtask plant`), and pairs of runs in its tests".to_owned(),
            parts: Vec::new(),
            columns: Vec::new(),
        });
    }
}

fn statistics(models: &mut Vec<Model>) {
    const ORIGIN: &[Origin] = &[Origin {
        kernels: "-",
        file: "lib/MMTests/Stat.pm",
        function: "the calculation of each",
        notes: "mmtests, as its tables are published",
    }];
    const PUBLISHED: &[Origin] = &[Origin {
        kernels: "-",
        file: "-",
        function: "-",
        notes: "as published; the publications are under conformance",
    }];
    for &(name, summary) in STATISTICS {
        models.push(Model {
            kind: "statistic",
            name,
            aliases: Vec::new(),
            summary,
            origin: ORIGIN,
            options: Vec::new(),
            conformance: "the definitions were checked by running mmtests' own module on constructed data".to_owned(),
            parts: Vec::new(),
            columns: Vec::new(),
        });
    }
    for method in METHODS {
        models.push(Model {
            kind: "statistic",
            name: method.name,
            aliases: Vec::new(),
            summary: method.summary,
            origin: PUBLISHED,
            options: Vec::new(),
            conformance: format!("{}; held against {}", method.reference, method.checked),
            parts: Vec::new(),
            columns: Vec::new(),
        });
    }
}

fn entries(models: &mut Vec<Model>, kind: &'static str, table: Vec<Entry<()>>) {
    let prefix = if kind == "device" { String::new() } else { format!("{kind}.") };
    for entry in table {
        models.push(Model {
            kind,
            name: entry.name,
            aliases: Vec::new(),
            summary: entry.summary,
            origin: entry.origin,
            options: tunables(&prefix, entry.options),
            conformance: entry.conformance.to_owned(),
            parts: Vec::new(),
            columns: if entry.name == drive::ENTRY.name && kind == "device" { columns() } else { Vec::new() },
        });
    }
}

/// The tables of a drive's file.
fn columns() -> Vec<(String, &'static str)> {
    let named = |(table, columns): &(&str, &'static [Column])| {
        let all = columns.iter().map(|(name, about)| (format!("{table}.{name}"), *about));
        all.collect::<Vec<_>>()
    };
    drive::TABLES.iter().flat_map(named).collect()
}

/// The catalogue as JSON (`iowhy.models/1`).
pub fn json(models: &[Model]) -> Value {
    json!({ "schema": "iowhy.models/1", "models": models.iter().map(model_json).collect::<Vec<_>>() })
}

fn model_json(model: &Model) -> Value {
    let origin: Vec<Value> = model
        .origin
        .iter()
        .map(|origin| {
            json!({
                "kernels": origin.kernels,
                "file": origin.file,
                "function": origin.function,
                "notes": origin.notes,
            })
        })
        .collect();
    let options: Vec<Value> = model
        .options
        .iter()
        .map(|tunable| {
            let spec = &tunable.spec;
            let mut option = Map::new();
            option.insert("key".to_owned(), tunable.key.clone().into());
            if spec.choices.is_empty() {
                option.insert("default".to_owned(), spec.default.into());
                option.insert("min".to_owned(), spec.min.into());
                option.insert("max".to_owned(), spec.max.into());
            } else {
                option.insert("default".to_owned(), spec.show(spec.default).into());
                option.insert("choices".to_owned(), spec.choices.into());
            }
            option.insert("help".to_owned(), spec.help.into());
            Value::Object(option)
        })
        .collect();
    let mut value = json!({
        "name": model.name,
        "summary": model.summary,
        "kind": model.kind,
        "origin": origin,
        "options": options,
        "conformance": model.conformance,
    });
    if let Value::Object(object) = &mut value {
        if !model.aliases.is_empty() {
            object.insert("aliases".to_owned(), model.aliases.clone().into());
        }
        if !model.parts.is_empty() {
            let parts: Map<String, Value> =
                model.parts.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
            object.insert("sets".to_owned(), parts.into());
        }
        if !model.columns.is_empty() {
            let columns: Map<String, Value> =
                model.columns.iter().map(|(key, about)| (key.clone(), (*about).into())).collect();
            object.insert("columns".to_owned(), columns.into());
        }
    }
    value
}

/// The values of a tunable.
fn accepts(spec: &OptionSpec) -> String {
    if spec.choices.is_empty() { format!("{} to {}", spec.min, spec.max) } else { spec.choices.join(" or ") }
}

fn title(kind: &str) -> &'static str {
    KINDS.iter().find(|(name, _)| *name == kind).map_or("", |(_, title)| title)
}

/// The catalogue for people, in 80 columns. `details` shows sources and tunables too. `bold` marks names.
pub fn text(models: &[Model], details: bool, bold: fn(&str) -> String) -> String {
    let mut out = String::new();
    let mut kind = "";
    for model in models {
        if model.kind != kind {
            kind = model.kind;
            if !out.is_empty() {
                out.push('\n');
            }
            let _ = writeln!(out, "{}: {}", bold(kind), title(kind));
        }
        if !details {
            out.push_str(&text::item(model.name, model.summary, 31));
            continue;
        }
        let _ = writeln!(out, "\n  {}", bold(model.name));
        paragraph(&mut out, model.summary);
        if !model.aliases.is_empty() {
            paragraph(&mut out, &format!("also called {}", model.aliases.join(", ")));
        }
        if !model.parts.is_empty() {
            let parts: Vec<String> = model.parts.iter().map(|(key, value)| format!("{key}={value}")).collect();
            paragraph(&mut out, &format!("sets {}", parts.join(" ")));
        }
        for origin in model.origin {
            let notes = if origin.notes.is_empty() { String::new() } else { format!(": {}", origin.notes) };
            paragraph(&mut out, &format!("from {} {} {}{notes}", origin.kernels, origin.file, origin.function));
        }
        paragraph(&mut out, &format!("held to it by: {}", model.conformance));
        for tunable in &model.options {
            let spec = &tunable.spec;
            let flag = format!("  {}={}", tunable.key, spec.show(spec.default));
            out.push_str(&text::item(&flag, &format!("{} ({})", spec.help, accepts(spec)), 37));
        }
        for (key, about) in &model.columns {
            out.push_str(&text::item(&format!("  {key}"), about, 37));
        }
    }
    out
}

fn paragraph(out: &mut String, words: &str) {
    for line in text::wrap(words, text::width() - 4) {
        let _ = writeln!(out, "    {line}");
    }
}

/// How well the running kernel and its twin agree.
pub const TWINS: Part = Part { command: "cargo xtask twins" };
/// Claims of incidents that hang on one constant.
pub const ROBUST: Part = Part { command: "cargo xtask robust" };

/// The catalogue as `docs/MODELS.md`, without what was measured.
pub fn markdown(models: &[Model]) -> String {
    let mut out = String::from(
        "# Models\n\nGenerated by `iowhy models --markdown`; do not edit. A test fails when it is stale, and\n\
         `IOWHY_REWRITE=1 cargo test -p iowhy models` rewrites it.\n\n\
         A key is typed after `--on sim:KERNEL,` (kinds other than device) or after `--disk NAME,` (devices).\n",
    );
    let mut kind = "";
    for model in models {
        if model.kind != kind {
            kind = model.kind;
            let _ = write!(out, "\n## {kind}\n\n{}\n", title(kind));
        }
        let _ = write!(out, "\n### {}\n\n{}\n", model.name, escape(model.summary));
        if !model.aliases.is_empty() {
            let _ = write!(out, "\nAlso called {}.\n", model.aliases.join(", "));
        }
        if !model.parts.is_empty() {
            let parts: Vec<String> = model.parts.iter().map(|(key, value)| format!("`{key}={value}`")).collect();
            let _ = write!(out, "\nSets {}.\n", parts.join(", "));
        }
        out.push('\n');
        for origin in model.origin {
            let notes = if origin.notes.is_empty() { String::new() } else { format!(": {}", escape(origin.notes)) };
            let _ =
                writeln!(out, "- source: {}, `{}`, `{}`{notes}", escape(origin.kernels), origin.file, origin.function);
        }
        let _ = writeln!(out, "- held to it by: {}", escape(&model.conformance));
        if !model.options.is_empty() {
            out.push_str("\n| key | default | accepts | |\n| --- | --- | --- | --- |\n");
            for tunable in &model.options {
                let spec = &tunable.spec;
                let _ = writeln!(
                    out,
                    "| `{}` | {} | {} | {} |",
                    tunable.key,
                    spec.show(spec.default),
                    accepts(spec),
                    escape(spec.help)
                );
            }
        }
        if !model.columns.is_empty() {
            out.push_str("\n| column of a table in the file | |\n| --- | --- |\n");
            for (key, about) in &model.columns {
                let _ = writeln!(out, "| `{key}` | {} |", escape(about));
            }
        }
    }
    let _ =
        write!(out, "\n## Twins\n\nThe running kernel and the simulator on one modelled disk.\n\n{}", TWINS.place());
    let _ = write!(
        out,
        "\n## Constants\n\nRequired claims of an incident that fail when one constant of its models is moved by 10 and \
         by 20 percent, a\nsmall number by one at least. Each claim stands with the moves that break it, or with their \
         number from 7 on: then\nits margin is smaller than such a move, whichever constant it is (rc3-noop/2.4.25 \
         holds by 0.1 percent).\n\n{}",
        ROBUST.place()
    );
    out
}

/// Text that neither ends a table cell nor opens a tag.
fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "\\<")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_entries_and_every_entry_says_where_it_comes_from() -> Result<(), Problem> {
        for (kind, _) in KINDS {
            let models = catalogue(Some(kind))?;
            assert!(!models.is_empty(), "no {kind}");
            for model in models {
                let Model { name, origin, conformance, summary, .. } = &model;
                assert!(!origin.is_empty() && !conformance.is_empty() && !summary.is_empty(), "{kind} {name}");
            }
        }
        Ok(())
    }

    #[test]
    fn names_are_unique_within_a_kind() -> Result<(), Problem> {
        let models = catalogue(None)?;
        for model in &models {
            let same = models.iter().filter(|other| (other.kind, other.name) == (model.kind, model.name)).count();
            assert_eq!(same, 1, "{} {}", model.kind, model.name);
        }
        Ok(())
    }

    #[test]
    fn an_unknown_kind_gets_the_nearest() {
        assert_eq!(catalogue(Some("elevators")).expect_err("plural").nearest, ["elevator"]);
        let names = |kind| catalogue(Some(kind)).expect("a kind").iter().map(|model| model.name).collect::<Vec<_>>();
        let engines = names("engine");
        for (first, last) in [("null", "skeleton"), ("simulated-sync", "simulated-mmap")] {
            assert!(engines.contains(&first) && engines.contains(&last), "{engines:?}");
        }
        assert!(names("reclaim").contains(&"clock") && names("reclaim").contains(&"linux-2.6.6"));
        assert!(names("rule").contains(&"changed-job"));
    }
}

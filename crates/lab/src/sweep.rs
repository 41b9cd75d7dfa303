//! `iowhy sweep`: one job at many simulated places, with many settings and seeds.
//!
//! A [`Grid`] (TOML) is the product of its lists. A [`Plan`] is a grid with the text of its job file, so that another
//! machine needs nothing else, or a list of points; its hash names it. Points are cut into tasks of a thousand or more.
//! A task is made by one thread, and becomes one Parquet file (`shard`) with the hash of the plan; `pool` makes the
//! missing ones in a folder. A point that cannot be simulated is a row with its error; the next call makes it again.
//!
//! `${NAME}` in the job, a place or a disk is the value of an option, and in a job file, too.

pub mod pool;
pub mod shard;

use std::collections::BTreeMap;
use std::ops::Range;

use iowhy_fio::World;
use iowhy_text::diagnose::{Problem, Problems, Span};
use serde::{Deserialize, Serialize};

use crate::run::backend::{Making, Shared};
use crate::run::{self, RunRequest, metrics};

/// Points of a task, at most, unless the grid has another number.
const TASK: usize = 1000;
/// Tasks that even a small sweep has, so that processors share it.
const LEAST_TASKS: usize = 8;
/// The name of a job that is given as the text of its file.
const TEXT: &str = "job.fio";
/// Points of a plan, at most.
const MOST: usize = 100_000_000;

/// A word of TOML: numbers are as good as text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Word {
    Whole(i64),
    Number(f64),
    Truth(bool),
    Text(String),
}

impl Word {
    fn text(&self) -> String {
        match self {
            Word::Whole(value) => value.to_string(),
            Word::Number(value) => value.to_string(),
            Word::Truth(value) => value.to_string(),
            Word::Text(text) => text.clone(),
        }
    }
}

/// One value or several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Words {
    One(Word),
    Several(Vec<Word>),
}

impl Default for Words {
    fn default() -> Words {
        Words::Several(Vec::new())
    }
}

impl Words {
    fn list(&self) -> Vec<String> {
        match self {
            Words::One(word) => vec![word.text()],
            Words::Several(words) => words.iter().map(Word::text).collect(),
        }
    }
}

/// A file of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Grid {
    /// A job file, its text, a line of words behind `iowhy run`, or a list of them.
    job: Words,
    /// Simulated places.
    on: Words,
    #[serde(default)]
    disk: Words,
    #[serde(default)]
    options: BTreeMap<String, Words>,
    /// How many seeds, or which.
    #[serde(default)]
    seeds: Words,
    /// Metrics of the table; those of every job by default.
    #[serde(default)]
    metrics: Vec<String>,
    /// Points of a task.
    per_task: Option<usize>,
}

/// A point of a sweep: one simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    pub on: String,
    pub disk: Option<String>,
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    #[serde(default = "first_seed")]
    pub seed: u64,
}

fn first_seed() -> u64 {
    1
}

/// Everything that a sweep makes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Words of the job.
    job: Vec<String>,
    /// Text of the job file that they name.
    text: Option<String>,
    on: Vec<String>,
    disk: Vec<Option<String>>,
    options: BTreeMap<String, Vec<String>>,
    seeds: Vec<u64>,
    /// Points that are not the product of lists.
    points: Vec<Point>,
    /// Columns of the result.
    pub metrics: Vec<String>,
    /// Points of a task.
    per_task: usize,
    /// Results of another version may differ.
    version: String,
}

/// The result of a point.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its number.
    pub nr: usize,
    pub point: Point,
    /// Hash and number of its events; equal on all machines.
    pub events: Option<(u64, u64)>,
    /// Of [`Plan::metrics`].
    pub values: Vec<Option<f64>>,
    /// Why it could not be simulated.
    pub error: Option<String>,
}

/// `text` with values in place of `${NAME}`.
fn filled(text: &str, options: &BTreeMap<String, String>) -> String {
    options.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
}

impl Plan {
    /// The plan of a grid in TOML. `folder` is where its job file is looked for.
    pub fn parse(name: &str, text: &str, problems: &mut Problems) -> Option<Plan> {
        match toml::from_str::<Grid>(text) {
            Ok(grid) => Plan::of(grid, Vec::new(), problems),
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start.min(text.len()));
                let before = text.get(..at).unwrap_or_default();
                let line = before.matches('\n').count();
                let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
                let shown = Span::whole(text.lines().nth(line).unwrap_or_default());
                let words = format!("{name}:{}:{}: {}", line + 1, column + 1, error.message().trim_end());
                let help = "job, on, disk, options, seeds, metrics and per_task: `iowhy sweep --help`";
                problems.push(Problem::error(words).at(Span { start: column, ..shown }).help(help));
                None
            }
        }
    }

    /// The plan of a grid in JSON, or of points of their own, of which `job` and `metrics` are known.
    pub fn of_json(grid: &str, points: Option<&str>, problems: &mut Problems) -> Option<Plan> {
        let read = |error: serde_json::Error| Problem::error(format!("the grid: {error}"));
        let points = points.map_or(Ok(Vec::new()), |points| serde_json::from_str(points).map_err(read));
        match (serde_json::from_str::<Grid>(grid).map_err(read), points) {
            (Ok(grid), Ok(points)) => Plan::of(grid, points, problems),
            (grid, points) => {
                problems.list.extend(grid.err().into_iter().chain(points.err()));
                None
            }
        }
    }

    fn of(grid: Grid, points: Vec<Point>, problems: &mut Problems) -> Option<Plan> {
        let before = problems.list.len();
        let (job, text) = match &grid.job {
            Words::One(Word::Text(text)) if text.contains('\n') => (vec![TEXT.to_owned()], Some(text.clone())),
            Words::One(word) => (word.text().split_whitespace().map(str::to_owned).collect(), None),
            several => (several.list(), None),
        };
        let number = |word: &String| word.parse::<u64>().ok();
        let seeds: Option<Vec<u64>> = match &grid.seeds {
            Words::One(word) => number(&word.text()).filter(|nr| *nr <= MOST as u64).map(|nr| (1..=nr).collect()),
            several => several.list().iter().map(number).collect(),
        };
        let seeds = seeds.unwrap_or_else(|| {
            problems.push(Problem::error("`seeds` is a number of seeds, or a list of seeds").help("seeds = 5"));
            Vec::new()
        });
        let named = |list: Vec<String>| list.into_iter().map(Some).collect::<Vec<_>>();
        let disk = if grid.disk.list().is_empty() { vec![None] } else { named(grid.disk.list()) };
        let options: BTreeMap<String, Vec<String>> =
            grid.options.iter().map(|(name, values)| (name.clone(), values.list())).collect();
        for (name, values) in &options {
            if values.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                let text = format!("option `{name}` needs a name of letters, digits and _, and a value");
                problems.push(Problem::error(text).help("[options] bs = [\"4k\", \"64k\"], and ${bs} in the job"));
            }
        }
        let known = metrics::names();
        let metrics = if grid.metrics.is_empty() { known } else { grid.metrics.clone() };
        let seeds = if seeds.is_empty() { vec![1] } else { seeds };
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let per_task = grid.per_task.unwrap_or(TASK).max(1);
        let mut plan = Plan { job, text, on: grid.on.list(), disk, options, seeds, points, metrics, per_task, version };
        for (what, empty) in [("job", plan.job.is_empty()), ("on", plan.on.is_empty() && plan.points.is_empty())] {
            if empty {
                problems.push(Problem::error(format!("`{what}` is empty")));
            }
        }
        if plan.product().is_none_or(|nr| nr > MOST) {
            problems.push(Problem::error(format!("more than {MOST} points")));
        }
        if problems.any_error_since(before) {
            return None;
        }
        if grid.per_task.is_none() {
            plan.per_task = TASK.min(plan.points().div_ceil(LEAST_TASKS)).max(1);
        }
        plan.take_file(problems);
        plan.check(problems);
        if problems.any_error_since(before) { None } else { Some(plan) }
    }

    /// Reads the job file, so that the plan is whole.
    fn take_file(&mut self, problems: &mut Problems) {
        let [name] = self.job.as_slice() else { return };
        if self.text.is_none() && run::BUILTINS.iter().all(|builtin| builtin.name != name) {
            match run::load(name) {
                Ok(text) => self.text = Some(text),
                Err(error) => {
                    let text = format!("`{name}` is neither a built-in job nor a readable file: {error}");
                    problems.push(Problem::error(text).at(Span::whole(name)).help("job = \"dd if=big bs=64k\""));
                }
            }
        }
    }

    /// Every word is tried once, with the first of the others: mistakes are all reported before the first simulation.
    fn check(&self, problems: &mut Problems) {
        let mut try_one = |point: &Point| {
            if let Err(found) = self.resolved(point) {
                for problem in found.list {
                    if !problems.list.contains(&problem) {
                        problems.push(problem);
                    }
                }
            }
        };
        let Some(first) = (self.points() > 0).then(|| self.point(0)) else { return };
        try_one(&first);
        if !self.points.is_empty() {
            return;
        }
        for on in &self.on[1..] {
            try_one(&Point { on: on.clone(), ..first.clone() });
        }
        for disk in &self.disk[1..] {
            try_one(&Point { disk: disk.clone(), ..first.clone() });
        }
        for (name, values) in &self.options {
            for value in &values[1..] {
                let mut point = first.clone();
                point.options.insert(name.clone(), value.clone());
                try_one(&point);
            }
        }
    }

    fn product(&self) -> Option<usize> {
        let lists = [self.on.len(), self.disk.len(), self.seeds.len()];
        lists.into_iter().chain(self.options.values().map(Vec::len)).try_fold(1usize, usize::checked_mul)
    }

    /// How many points.
    pub fn points(&self) -> usize {
        if self.points.is_empty() { self.product().unwrap_or(0) } else { self.points.len() }
    }

    /// How many tasks.
    pub fn tasks(&self) -> usize {
        self.points().div_ceil(self.per_task)
    }

    /// Names of the options, in the order of their columns.
    pub fn option_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.options.keys().cloned().collect();
        for name in self.points.iter().flat_map(|point| point.options.keys()) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names.sort();
        names
    }

    /// Sixteen digits that name it.
    pub fn hash(&self) -> String {
        let text = serde_json::to_string(self).unwrap_or_default();
        blake3::hash(text.as_bytes()).to_hex().as_str()[..16].to_owned()
    }

    /// As JSON, for another process.
    pub fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// A plan that [`Plan::json`] wrote.
    ///
    /// # Errors
    /// If the text is of something else.
    pub fn again(json: &str) -> Result<Plan, Problem> {
        let plan: Plan = serde_json::from_str(json).map_err(|error| Problem::error(format!("no plan: {error}")))?;
        let ours = env!("CARGO_PKG_VERSION");
        let lists = plan.per_task > 0 && plan.product().is_some();
        match plan.version == ours && lists {
            true => Ok(plan),
            false => Err(Problem::error(format!("the plan is of iowhy {}, and this is {ours}", plan.version))),
        }
    }

    /// The point of a number; seeds change first, places last.
    pub fn point(&self, nr: usize) -> Point {
        if let Some(point) = self.points.get(nr) {
            return point.clone();
        }
        let mut rest = nr;
        let mut digit = |of: usize| {
            let digit = rest % of.max(1);
            rest /= of.max(1);
            digit
        };
        let seed = self.seeds[digit(self.seeds.len())];
        let mut options = BTreeMap::new();
        for (name, values) in self.options.iter().rev() {
            options.insert(name.clone(), values[digit(values.len())].clone());
        }
        let disk = self.disk[digit(self.disk.len())].clone();
        Point { on: self.on[digit(self.on.len())].clone(), disk, options, seed }
    }

    /// The request of a point.
    fn resolved(&self, point: &Point) -> Result<Box<RunRequest>, Problems> {
        let load = |name: &str| match &self.text {
            Some(text) if self.job[0] == name => Ok(text.clone()),
            _ => run::load(name),
        };
        let variable = |name: &str| point.options.get(name).cloned().or_else(|| std::env::var(name).ok());
        let world = World { load: &load, variable: &variable, ..World::empty() };
        let mut words: Vec<String> = self.job.iter().map(|word| filled(word, &point.options)).collect();
        words.push(format!("--on={}", filled(&point.on, &point.options)));
        words.extend(point.disk.iter().map(|disk| format!("--disk={}", filled(disk, &point.options))));
        let request = run::asked(&words, &world)?;
        let variant = request.variants.first().filter(|variant| !variant.backend.is_real());
        if variant.is_none() {
            let text = format!("`{}` is not simulated, and a sweep simulates", point.on);
            return Err(Problems { list: vec![Problem::error(text).help("on = [\"sim:linux-6.18\"]")] });
        }
        Ok(request)
    }

    /// The numbers of a task's points.
    fn points_of(&self, task: usize) -> Range<usize> {
        let first = task * self.per_task;
        first..(first + self.per_task).min(self.points())
    }

    /// Makes the points of a task, one after the other. `step` is called after each.
    pub fn make(&self, task: usize, step: &dyn Fn()) -> Vec<Row> {
        let mut known: Option<(Point, Result<Box<RunRequest>, Problems>)> = None;
        let mut rows = Vec::new();
        for nr in self.points_of(task) {
            let point = self.point(nr);
            let same = |known: &Point| Point { seed: point.seed, ..known.clone() } == point;
            let request = match &mut known {
                Some((of, request)) if same(of) => &*request,
                known => &known.insert((point.clone(), self.resolved(&point))).1,
            };
            rows.push(self.row(nr, point, request));
            step();
        }
        rows
    }

    /// The points of a task that no worker has survived: rows with that error, which a later call makes again.
    pub fn lost(&self, task: usize, why: &str) -> Vec<Row> {
        let lost = Err(Problems { list: vec![Problem::error(why)] });
        self.points_of(task).map(|nr| self.row(nr, self.point(nr), &lost)).collect()
    }

    fn row(&self, nr: usize, point: Point, request: &Result<Box<RunRequest>, Problems>) -> Row {
        let seed = point.seed;
        let made = match request {
            Ok(request) => {
                let variant = &request.variants[0];
                let making = Making { request, variant, seed, started_ns: 0, store: None };
                variant.backend.make(&making, &mut Shared::default()).map_err(|refusal| refusal.to_string())
            }
            Err(problems) => Err(problems.render().trim_end().to_owned()),
        };
        match made {
            Ok(record) => {
                let value = |name: &String| {
                    let found = record.metrics.iter().find(|(known, _)| known == name);
                    found.map(|(_, value)| *value).filter(|value| value.is_finite())
                };
                let values = self.metrics.iter().map(value).collect();
                Row { nr, point, events: record.events, values, error: None }
            }
            Err(error) => Row { nr, point, events: None, values: vec![None; self.metrics.len()], error: Some(error) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: &str = "job = \"fio --name=j --rw=randread --bs=${bs} --size=256k --number_ios=8\"\n\
        on = [\"sim:linux-6.18\", \"sim:linux-4.4,read_ahead_kb=${ra}\"]\ndisk = [\"sata-2014\", \"nvme\"]\nseeds = 3\n\
        metrics = [\"elapsed_s\", \"none_such\"]\nper_task = 7\n[options]\nbs = [\"4k\", \"8k\"]\nra = [0, 128]\n";

    fn plan(text: &str) -> Result<Plan, String> {
        let mut problems = Problems::default();
        Plan::parse("sweep.toml", text, &mut problems).ok_or_else(|| problems.render())
    }

    #[test]
    fn a_grid_is_every_combination_once() {
        let plan = plan(GRID).unwrap_or_else(|text| panic!("{text}"));
        assert_eq!((plan.points(), plan.tasks()), (48, 7));
        let mut all: Vec<String> = (0..48).map(|nr| format!("{:?}", plan.point(nr))).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 48);
        assert_eq!(plan.hash(), Plan::again(&plan.json()).expect("it is ours").hash());
    }

    #[test]
    fn a_job_may_be_the_text_of_its_file() {
        let (line, text) = (
            "job = \"fio --name=j --rw=randread --bs=${bs} --size=256k --number_ios=8\"",
            "job = \"[j]\\nrw=randread\\nbs=${bs}\\nsize=256k\\nnumber_ios=8\"",
        );
        assert!(GRID.contains(line));
        let hashes = |grid: &str| {
            let plan = plan(grid).unwrap_or_else(|text| panic!("{text}"));
            plan.make(0, &|| {}).into_iter().map(|row| row.events).collect::<Vec<_>>()
        };
        assert_eq!(hashes(GRID), hashes(&GRID.replacen(line, text, 1)));
    }

    #[test]
    fn a_task_is_the_same_wherever_it_is_made() {
        let plan = plan(GRID).unwrap_or_else(|text| panic!("{text}"));
        let rows: Vec<Row> = (0..plan.tasks()).flat_map(|task| plan.make(task, &|| {})).collect();
        assert_eq!(rows.iter().map(|row| row.nr).collect::<Vec<_>>(), (0..48).collect::<Vec<_>>());
        assert!(rows.iter().all(|row| row.error.is_none() && row.values[0].is_some() && row.values[1].is_none()));
        let other = Plan { per_task: 48, ..plan };
        assert_eq!(other.make(0, &|| {}), rows);
        let bytes = shard::bytes(&other, 0, &rows).expect("it is written");
        assert_eq!(shard::read(&other, bytes).expect("it is read"), rows);
    }

    #[test]
    fn mistakes_are_all_found_before_the_first_run() {
        for (from, to, expected) in [
            ("linux-6.18", "linux-6.81", "unknown kernel"),
            ("nvme", "nvmee", "nearest: nvme"),
            ("\"8k\"", "\"8q\"", "8q"),
            ("sim:linux-6.18", "live", "is not simulated"),
            ("seeds = 3", "seeds = \"x\"", "`seeds` is a number"),
            ("seeds = 3", "sedes = 3", "sweep.toml:4:1"),
        ] {
            let text = plan(&GRID.replacen(from, to, 1)).err().unwrap_or_else(|| panic!("{to} is accepted"));
            assert!(text.contains(expected), "{to}: {text}");
        }
    }

    #[test]
    fn a_second_call_makes_what_is_missing() {
        let folder = std::env::temp_dir().join(format!("iowhy-sweep-{}", std::process::id()));
        let plan = plan(GRID).unwrap_or_else(|text| panic!("{text}"));
        let swept = |shard| pool::run(&plan, &folder, shard, 2, &|_, _| {}).unwrap_or_else(|error| panic!("{error}"));
        let (first, second) = (swept((1, 2)), swept((1, 1)));
        assert_eq!((first.tasks, first.made, second.tasks, second.made), (4, 4, 7, 3));
        let rows = pool::rows(&plan, &folder).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(rows.iter().map(|row| row.nr).collect::<Vec<_>>(), (0..48).collect::<Vec<_>>());
        assert_eq!(swept((1, 1)).made, 0);
        let other = Plan { seeds: vec![9], ..plan.clone() };
        assert!(pool::run(&other, &folder, (1, 1), 2, &|_, _| {}).is_err(), "another plan's folder");
        std::fs::remove_dir_all(&folder).expect("it goes");
    }
}

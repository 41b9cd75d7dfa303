//! Tables of models: the description of every policy, device, elevator and kernel.
//!
//! A model is one file with one constant `ENTRY`, listed once in the table next to its trait. Help, completion, the
//! documents, the schema and the checks of command-line keys are all derived from these entries.

use std::fmt;
use std::sync::Arc;

use crate::service::Service;
use crate::surfaces::Surfaces;

/// Where a model comes from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// First to last kernel (or document) it holds for, for example `2.6.5 .. 2.6.6`.
    pub kernels: &'static str,
    /// The source file, for example `mm/readahead.c`.
    pub file: &'static str,
    /// The function or structure in it.
    pub function: &'static str,
    /// The checks against it, and known differences.
    pub notes: &'static str,
}

/// One tunable of a model. Values are integers in the unit that the name ends in (`_ms`, `_kb`, `_sectors`, ...), or
/// the index of a choice.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct OptionSpec {
    /// Key on the command line, with its unit as suffix.
    pub name: &'static str,
    /// Value where none is given. For a choice: its index.
    pub default: i64,
    /// Smallest value accepted.
    pub min: i64,
    /// Largest value accepted.
    pub max: i64,
    /// Names of the values if this is a choice (`off`, `on`); empty for a number.
    pub choices: &'static [&'static str],
    /// One line: its effect and the source of the default.
    pub help: &'static str,
}

/// The choice names of a switch.
pub const OFF_ON: &[&str] = &["off", "on"];

impl OptionSpec {
    /// A number with its default and accepted range.
    pub const fn number(name: &'static str, default: i64, range: (i64, i64), help: &'static str) -> OptionSpec {
        OptionSpec { name, default, min: range.0, max: range.1, choices: &[], help }
    }

    /// A switch, `off` or `on`.
    pub const fn switch(name: &'static str, default: bool, help: &'static str) -> OptionSpec {
        OptionSpec { name, default: default as i64, min: 0, max: 1, choices: OFF_ON, help }
    }

    /// One of several named values; `default` is the index of one.
    pub const fn choice(
        name: &'static str,
        choices: &'static [&'static str],
        default: usize,
        help: &'static str,
    ) -> OptionSpec {
        OptionSpec { name, default: default as i64, min: 0, max: choices.len() as i64 - 1, choices, help }
    }

    /// Reads a value as typed. Errors name what would have been accepted.
    pub fn parse(&self, text: &str) -> Result<i64, String> {
        if !self.choices.is_empty() {
            if let Some(index) = self.choices.iter().position(|choice| *choice == text) {
                return Ok(index as i64);
            }
            if self.choices == OFF_ON {
                match text {
                    "1" | "true" | "yes" => return Ok(1),
                    "0" | "false" | "no" => return Ok(0),
                    _ => {}
                }
            }
            return Err(format!("`{}` takes one of {}, not `{text}`", self.name, self.choices.join(", ")));
        }
        let value: i64 = text.parse().map_err(|_| format!("`{}` takes a whole number, not `{text}`", self.name))?;
        if value < self.min || value > self.max {
            return Err(format!("`{}` must lie between {} and {}, not {value}", self.name, self.min, self.max));
        }
        Ok(value)
    }

    /// The value as it would be typed.
    pub fn show(&self, value: i64) -> String {
        match self.choices.get(value as usize) {
            Some(choice) => (*choice).to_owned(),
            None => value.to_string(),
        }
    }
}

/// `options` with those of `others` in place of their namesakes.
///
/// # Panics
/// If the name is unknown: where constants are made, that is an error of the compiler.
pub const fn replaced<const N: usize>(mut options: [OptionSpec; N], mut others: &[OptionSpec]) -> [OptionSpec; N] {
    while let [first, rest @ ..] = others {
        let mut nr = 0;
        while !same(options[nr].name, first.name) {
            nr += 1;
        }
        options[nr] = *first;
        others = rest;
    }
    options
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut nr = 0;
    while nr < a.len() && nr < b.len() && a[nr] == b[nr] {
        nr += 1;
    }
    nr == a.len() && nr == b.len()
}

/// Values of a model's tunables: the defaults of its table, some of them overridden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    specs: &'static [OptionSpec],
    values: Vec<i64>,
    surfaces: Option<Arc<Surfaces>>,
    service: Option<Arc<Service>>,
}

impl Options {
    /// Every tunable at its default.
    pub fn defaults(specs: &'static [OptionSpec]) -> Options {
        let values = specs.iter().map(|spec| spec.default).collect();
        Options { specs, values, surfaces: None, service: None }
    }

    /// The table these values belong to.
    pub fn specs(&self) -> &'static [OptionSpec] {
        self.specs
    }

    /// Sets `name` to `value`.
    ///
    /// # Panics
    /// If the table has no such name or the value is out of its range: both are checked where text is parsed.
    pub fn set(&mut self, name: &str, value: i64) {
        let index = self.index(name);
        let spec = &self.specs[index];
        assert!(value >= spec.min && value <= spec.max, "{name} = {value} is out of range");
        self.values[index] = value;
    }

    /// The value of `name`.
    ///
    /// # Panics
    /// If the table has no such name, which is a mistake in the model that asks.
    pub fn get(&self, name: &str) -> i64 {
        self.values[self.index(name)]
    }

    /// The value of `name` as an unsigned number (for tunables whose smallest value is not negative).
    pub fn unsigned(&self, name: &str) -> u64 {
        u64::try_from(self.get(name)).expect("an unsigned tunable has a minimum of at least 0")
    }

    /// Whether the switch `name` is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.get(name) != 0
    }

    /// Gives the model the tables of a file.
    pub fn set_surfaces(&mut self, surfaces: Arc<Surfaces>) {
        self.surfaces = Some(surfaces);
    }

    /// The tables of a file, if the model has been given any.
    pub fn surfaces(&self) -> Option<&Arc<Surfaces>> {
        self.surfaces.as_ref()
    }

    /// Gives the model measured times.
    pub fn set_service(&mut self, service: Arc<Service>) {
        self.service = Some(service);
    }

    /// Measured times, if the model has been given any.
    pub fn service(&self) -> Option<&Arc<Service>> {
        self.service.as_ref()
    }

    /// Names and values in table order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static OptionSpec, i64)> + '_ {
        self.specs.iter().zip(self.values.iter().copied())
    }

    fn index(&self, name: &str) -> usize {
        match self.specs.iter().position(|spec| spec.name == name) {
            Some(index) => index,
            None => panic!("no tunable `{name}`"),
        }
    }
}

/// A model's description of itself, and its constructor.
#[derive(Copy, Clone)]
pub struct Entry<B: Copy + 'static> {
    /// Stable name, used on the command line and in results.
    pub name: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// Sources of the algorithm.
    pub origin: &'static [Origin],
    /// Tunables and their defaults.
    pub options: &'static [OptionSpec],
    /// Which recorded vectors or tests hold it to its source, or why there are none.
    pub conformance: &'static str,
    /// Constructor; its type is given by the table.
    pub build: B,
}

impl<B: Copy> Entry<B> {
    /// The tunables at their defaults.
    pub fn defaults(&self) -> Options {
        Options::defaults(self.options)
    }
}

impl<B: Copy> fmt::Debug for Entry<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The entry called `name`, if the table has one.
pub fn find<B: Copy>(table: &'static [&'static Entry<B>], name: &str) -> Option<&'static Entry<B>> {
    table.iter().find(|entry| entry.name == name).copied()
}

/// The descriptions of a table's entries.
pub fn listed<B: Copy>(table: &[&Entry<B>]) -> Vec<Entry<()>> {
    let said = |&&Entry { name, summary, origin, options, conformance, .. }: &&Entry<B>| Entry {
        name,
        summary,
        origin,
        options,
        conformance,
        build: (),
    };
    table.iter().map(said).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECS: &[OptionSpec] = &[
        OptionSpec::number("slice_idle_ms", 8, (0, 1000), "idle time"),
        OptionSpec::switch("front_merges", true, "merge at the front"),
        OptionSpec::choice("cache", &["discard", "keep"], 0, "what happens to data"),
    ];

    #[test]
    fn values_are_parsed_with_the_accepted_range_in_the_message() {
        assert_eq!(SPECS[0].parse("12"), Ok(12));
        assert_eq!(SPECS[1].parse("off"), Ok(0));
        assert_eq!(SPECS[2].parse("keep"), Ok(1));
        assert_eq!(SPECS[0].parse("4096").unwrap_err(), "`slice_idle_ms` must lie between 0 and 1000, not 4096");
        assert_eq!(SPECS[2].parse("x").unwrap_err(), "`cache` takes one of discard, keep, not `x`");
    }

    #[test]
    fn options_start_at_their_defaults() {
        let mut options = Options::defaults(SPECS);
        options.set("slice_idle_ms", 0);
        assert_eq!((options.get("slice_idle_ms"), options.is_on("front_merges")), (0, true));
    }
}

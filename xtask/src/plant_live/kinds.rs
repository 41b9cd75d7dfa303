//! The table of causes and of healthy pairs, as TOML: preparations, commands of either side, right answers.

use serde::Deserialize;

/// The table next to this file.
const BUILT_IN: &str = include_str!("kinds.toml");

/// A cause, or a pair without one. Every text is a snippet of bash; an empty one does nothing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kind {
    /// Its name, as `--only` takes it.
    pub(super) name: String,
    /// The cause, in a few words.
    #[serde(default)]
    pub(super) about: String,
    /// Where both sides work; see `ground` in lib.sh.
    pub(super) ground: String,
    /// Where the slow side works, if it is another place.
    pub(super) ground_b: Option<String>,
    /// Programs without which it is skipped.
    #[serde(default)]
    pub(super) needs: Vec<String>,
    /// Once, on each ground.
    #[serde(default)]
    pub(super) setup: String,
    /// Before each recording of either side.
    #[serde(default = "cold")]
    pub(super) before: String,
    /// And before those of the healthy side.
    #[serde(default)]
    pub(super) before_a: String,
    /// And before those of the slow side.
    #[serde(default)]
    pub(super) before_b: String,
    /// A program that runs during the recordings of both sides, until they end.
    #[serde(default)]
    pub(super) beside: String,
    /// And during the slow side's.
    #[serde(default)]
    pub(super) beside_b: String,
    /// The recorded command.
    pub(super) run: String,
    /// The slow side's, if it is another.
    pub(super) run_b: Option<String>,
    /// After everything, whatever happened.
    #[serde(default)]
    pub(super) teardown: String,
    /// Rules that name the cause.
    #[serde(default)]
    pub(super) right: Vec<String>,
    /// Rules that name the layer, or what came of it.
    #[serde(default)]
    pub(super) half: Vec<String>,
    /// Rules that name the cause if the slow side is all there is. Without any, one side does not show it.
    #[serde(default)]
    pub(super) alone: Vec<String>,
    /// The same of rules that name the layer.
    #[serde(default)]
    pub(super) alone_half: Vec<String>,
    /// So many pairs of it.
    #[serde(default = "once")]
    pub(super) times: u32,
}

fn cold() -> String {
    "drop \"$DIR\"".to_owned()
}

fn once() -> u32 {
    1
}

impl Kind {
    /// Whether nothing is planted.
    pub(super) fn is_healthy(&self) -> bool {
        self.right.is_empty()
    }

    /// Whether one side is enough: the cause shows in it, or nothing disturbs it.
    pub(super) fn is_for_one_side(&self) -> bool {
        if self.is_healthy() { self.beside.is_empty() } else { !self.alone.is_empty() }
    }

    /// The first program that is missing.
    pub(super) fn missing(&self) -> Option<&str> {
        self.needs.iter().find(|name| !crate::steps::is_installed(name)).map(String::as_str)
    }
}

/// The whole table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    /// Causes.
    #[serde(default)]
    pub(super) kind: Vec<Kind>,
    /// Pairs without one.
    #[serde(default)]
    pub(super) healthy: Vec<Kind>,
}

impl Table {
    /// The one in `path`, or the built-in one; all mistakes at once.
    pub(super) fn read(path: Option<&str>) -> Result<Table, String> {
        let text = match path {
            Some(path) => std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?,
            None => BUILT_IN.to_owned(),
        };
        let table: Table =
            toml::from_str(&text).map_err(|error| format!("{}: {error}", path.unwrap_or("kinds.toml")))?;
        let mut wrong = Vec::new();
        for kind in &table.kind {
            if kind.is_healthy() {
                wrong.push(format!("{}: no rule is right", kind.name));
            }
            let same = kind.run_b.is_none() && kind.ground_b.is_none();
            if !kind.alone_half.is_empty() && kind.alone.is_empty() {
                wrong.push(format!("{}: `alone_half` without `alone`", kind.name));
            }
            if same && kind.before_a.is_empty() && kind.before_b.is_empty() && kind.beside_b.is_empty() {
                wrong.push(format!("{}: nothing differs", kind.name));
            }
        }
        for kind in &table.healthy {
            if !kind.is_healthy() || kind.run_b.is_some() || kind.ground_b.is_some() || !kind.beside_b.is_empty() {
                wrong.push(format!("{}: a healthy pair has nothing that differs", kind.name));
            }
        }
        let mut names: Vec<&str> = table.all().map(|kind| kind.name.as_str()).collect();
        names.sort_unstable();
        wrong.extend(names.windows(2).filter(|two| two[0] == two[1]).map(|two| format!("{}: twice", two[0])));
        if wrong.is_empty() { Ok(table) } else { Err(wrong.join("\n")) }
    }

    /// Causes first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Kind> {
        self.kind.iter().chain(&self.healthy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_table_is_large_enough() {
        let table = Table::read(None).unwrap();
        assert!(table.kind.len() >= 28, "{} kinds", table.kind.len());
        let pairs: u32 = table.healthy.iter().map(|kind| kind.times).sum();
        assert!(pairs >= 40, "{pairs} healthy pairs");
        let (healthy, causes): (Vec<&Kind>, Vec<&Kind>) =
            table.all().filter(|kind| kind.is_for_one_side()).partition(|kind| kind.is_healthy());
        let sides: u32 = healthy.iter().map(|kind| kind.times).sum();
        assert!(causes.len() >= 24 && sides >= 40, "{} causes, {sides} healthy sides", causes.len());
    }

    #[test]
    fn a_plant_without_a_difference_is_a_mistake() {
        let table: Table = toml::from_str("[[kind]]\nname = 'x'\nground = 'plain'\nrun = ':'\nright = ['y']").unwrap();
        assert_eq!(table.kind[0].before, cold());
        let path = std::env::temp_dir().join(format!("plant-live-{}.toml", std::process::id()));
        std::fs::write(&path, "[[kind]]\nname = 'x'\nground = 'plain'\nrun = ':'\n").unwrap();
        let error = Table::read(path.to_str()).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(error, "x: no rule is right\nx: nothing differs");
    }
}

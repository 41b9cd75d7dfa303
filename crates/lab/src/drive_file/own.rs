//! Our own form: TOML with the options of the device `drive` as keys, `seek` and `[[zones]]`.

use std::fmt::Write;
use std::ops::Range;

use iowhy_stack::device::drive::ENTRY;
use iowhy_stack::origin::{OFF_ON, Options};
use iowhy_stack::surfaces::{SEEK_COLUMNS, Surfaces, ZONE_COLUMNS, Zone};
use iowhy_text::diagnose::{Problem, Problems};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Text, complete, spec};

type Value<'a> = Spanned<DeValue<'a>>;

/// Reads a drive.
pub(super) fn read(file: &Text, problems: &mut Problems) -> Option<Options> {
    let (table, errors) = DeTable::parse_recoverable(&file.text);
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        problems.push(file.at(Problem::error(error.message().to_owned()), span.start, span.end));
    }
    let mut reader = Reader { file, problems };
    let mut options = ENTRY.defaults();
    let (mut surfaces, mut says_capacity, mut places) = (Surfaces::default(), false, Vec::new());
    let mut in_order: Vec<_> = table.get_ref().iter().collect();
    in_order.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in in_order {
        let name: &str = key.get_ref();
        match name {
            "seek" => surfaces.seek = reader.seek(value),
            "zones" => {
                for zone in reader.list(value, "zones") {
                    places.push(zone.span());
                    surfaces.zones.extend(reader.zone(zone));
                }
            }
            _ => {
                says_capacity |= name == "nr_sectors";
                reader.option(&mut options, name, key.span(), value);
            }
        }
    }
    for (name, missing) in [("seek", surfaces.seek.is_empty()), ("zones", surfaces.zones.is_empty())] {
        if missing && !table.get_ref().contains_key(name) {
            reader.wrong(0..0, format!("`{name}` is missing"));
        }
    }
    if problems.any_error() {
        return None;
    }
    let at = |problem: Problem, zone: Option<usize>| {
        let span = zone.and_then(|zone| places.get(zone).cloned()).unwrap_or(0..0);
        file.at(problem, span.start, span.end)
    };
    complete(options, surfaces, says_capacity, &at, problems)
}

struct Reader<'a> {
    file: &'a Text,
    problems: &'a mut Problems,
}

impl Reader<'_> {
    fn push(&mut self, span: Range<usize>, problem: Problem) {
        self.problems.push(self.file.at(problem, span.start, span.end));
    }

    fn wrong(&mut self, span: Range<usize>, message: String) {
        self.push(span, Problem::error(message));
    }

    fn option(&mut self, options: &mut Options, name: &str, key: Range<usize>, value: &Value<'_>) {
        let Some(spec) = spec(name) else {
            let known = ENTRY.options.iter().map(|spec| spec.name).chain(["seek", "zones"]);
            let problem = Problem::error(format!("unknown key `{name}`")).near(name, known);
            return self.push(key, problem.help("`iowhy models device` lists the keys of `drive`"));
        };
        let text = match value.get_ref() {
            DeValue::Boolean(value) if spec.choices == OFF_ON => value.to_string(),
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) if spec.choices.is_empty() => number.to_string().replace('_', ""),
            _ => self.file.text[value.span()].to_owned(),
        };
        match spec.parse(&text) {
            Ok(number) => options.set(name, number),
            Err(message) => self.wrong(value.span(), message),
        }
    }

    fn list<'v, 'i>(&mut self, value: &'v Value<'i>, what: &str) -> Vec<&'v Value<'i>> {
        match value.get_ref() {
            DeValue::Array(values) => values.iter().collect(),
            _ => {
                self.wrong(value.span(), format!("`{what}` is a list"));
                Vec::new()
            }
        }
    }

    fn number(&mut self, value: &Value<'_>, what: &str) -> u64 {
        let number = match value.get_ref() {
            DeValue::Integer(number) => number.to_string().replace('_', "").parse().ok(),
            _ => None,
        };
        number.unwrap_or_else(|| {
            self.wrong(value.span(), format!("`{what}` is a whole number from 0 on"));
            0
        })
    }

    fn seek(&mut self, value: &Value<'_>) -> Vec<(u32, u64)> {
        let mut rows = Vec::new();
        for row in self.list(value, "seek") {
            let columns: Vec<u64> = self.list(row, "a row of seek").iter().map(|v| self.number(v, "seek")).collect();
            match columns[..] {
                [distance, ns] if u32::try_from(distance).is_ok() => rows.push((distance as u32, ns)),
                _ => {
                    let columns: Vec<&str> = SEEK_COLUMNS.iter().map(|(name, _)| *name).collect();
                    self.wrong(row.span(), format!("a row of `seek` is [{}]", columns.join(", ")));
                }
            }
        }
        rows
    }

    fn zone(&mut self, value: &Value<'_>) -> Option<Zone> {
        let DeValue::Table(table) = value.get_ref() else {
            self.wrong(value.span(), "a zone is a table: `[[zones]]`".to_owned());
            return None;
        };
        let (mut numbers, mut slips) = ([0; 8], Vec::new());
        for (key, value) in table {
            let name: &str = key.get_ref();
            match ZONE_COLUMNS.iter().position(|(known, _)| *known == name) {
                Some(8) => slips = self.list(value, name).iter().map(|slip| self.number(slip, name)).collect(),
                Some(nr) => numbers[nr] = self.number(value, name),
                None => {
                    let known = ZONE_COLUMNS.iter().map(|(known, _)| *known);
                    let problem = Problem::error(format!("unknown key `{name}` of a zone")).near(name, known);
                    self.push(key.span(), problem);
                }
            }
        }
        for (name, _) in &ZONE_COLUMNS[..3] {
            if !table.contains_key(*name) {
                self.wrong(value.span(), format!("`{name}` is missing"));
            }
        }
        let zone = Zone::of_numbers(numbers, slips);
        if zone.is_none() {
            self.wrong(value.span(), format!("the numbers of a zone are at most {}", u32::MAX));
        }
        zone
    }
}

/// The drive as such a file.
pub fn write(options: &Options) -> String {
    let mut text = String::new();
    for (spec, value) in options.iter() {
        let shown = match spec.choices {
            [] => value.to_string(),
            OFF_ON => (value != 0).to_string(),
            choices => format!("{:?}", choices[value as usize]),
        };
        let _ = writeln!(text, "{} = {shown}", spec.name);
    }
    let Some(surfaces) = options.surfaces() else { return text };
    text.push_str("seek = [\n");
    for (distance, ns) in &surfaces.seek {
        let _ = writeln!(text, "    [{distance}, {ns}],");
    }
    text.push_str("]\n");
    for zone in &surfaces.zones {
        text.push_str("\n[[zones]]\n");
        for ((name, _), number) in ZONE_COLUMNS.iter().zip(zone.numbers()) {
            let _ = writeln!(text, "{name} = {number}");
        }
        if !zone.slips.is_empty() {
            let _ = writeln!(text, "slips = {:?}", zone.slips);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "rpm = 6_000\nscheduling = \"sptf\"\ncache = false\nheads = 2\n\
        seek = [[1, 1000000], [9, 3000000]]\n\
        [[zones]]\nfirst_cylinder = 0\nlast_cylinder = 9\nsectors_per_track = 10\nspares = 0\nslips = []\n";

    fn parse(text: &str) -> Result<Options, Vec<String>> {
        let (mut problems, file) = (Problems::default(), Text { name: "d.toml".to_owned(), text: text.to_owned() });
        let found = read(&file, &mut problems);
        found.ok_or_else(|| problems.list.into_iter().map(|problem| problem.message).collect())
    }

    #[test]
    fn a_drive_that_is_written_is_read_again() {
        let mut drive = parse(SMALL).expect("a drive");
        let shown = |name| drive.get(name);
        assert_eq!(["rpm", "scheduling", "cache", "nr_sectors"].map(shown), [6000, 2, 0, 200]);
        assert_eq!(parse(&write(&drive)).as_ref(), Ok(&drive));
        // Every option off its default, and slips.
        for spec in ENTRY.options.iter().filter(|spec| !["nr_sectors", "heads", "spares_per"].contains(&spec.name)) {
            drive.set(spec.name, if spec.default == spec.max { spec.min } else { spec.max });
        }
        let mut surfaces = (**drive.surfaces().expect("tables")).clone();
        surfaces.zones[0] = Zone { spares: 3, slips: vec![1, 7], ..surfaces.zones[0].clone() };
        drive.set("spares_per", 9);
        drive.set("nr_sectors", 190);
        drive.set_surfaces(std::sync::Arc::new(surfaces));
        assert_eq!(parse(&write(&drive)).as_ref(), Ok(&drive));
    }

    #[test]
    fn mistakes_are_reported_all_at_once_with_line_and_column() {
        for (text, expected) in [
            (
                "rpm = 3\nrmp = 7200\nseek = [[1, 2, 3]]\nzones = [{ first_cylinder = -1, last = 4 }]\n",
                vec![
                    "d.toml:1:7: `rpm` must lie between 60 and 100000, not 3",
                    "d.toml:2:1: unknown key `rmp`",
                    "d.toml:3:9: a row of `seek` is [distance, ns]",
                    "d.toml:4:29: `first_cylinder` is a whole number from 0 on",
                    "d.toml:4:33: unknown key `last` of a zone",
                    "d.toml:4:10: `last_cylinder` is missing",
                    "d.toml:4:10: `sectors_per_track` is missing",
                ],
            ),
            ("", vec!["d.toml:1:1: `seek` is missing", "d.toml:1:1: `zones` is missing"]),
        ] {
            assert_eq!(parse(text).expect_err("mistakes"), expected, "{text}");
        }
        let odd = SMALL.replace("spares = 0", "spares = 300").replace("heads = 2", "heads = 2\nspares_per = \"zone\"");
        assert_eq!(parse(&odd).expect_err("spares"), ["d.toml:7:1: spares and reserved sectors leave none"]);
        assert!(parse("rpm = = 3\nfoo\n").expect_err("syntax").len() >= 2);
    }
}

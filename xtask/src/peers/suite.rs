//! fio's own tests: `t/run-fio-tests.py` and the scripts next to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Ground, Row, SIDES, Side};
use crate::target_folder;

/// Tests of the suite that are left out: fio's own programs that have to be built from its source, and zoned devices.
/// 10 and 13 do not end under fio 3.33 on a machine with few processors.
const LEFT_OUT: &[&str] = &["10", "13", "1000", "1001", "1002", "1005", "1007", "1008", "1009"];

/// Tests that take more than five seconds on each side, and those that are scripts of [`SCRIPTS`].
const SLOW: &[&str] =
    &["2", "3", "5", "6", "9", "11", "12", "14", "1003", "1004", "1006", "26", "1010", "1011", "1012"];

/// Scripts with cells of their own: name, and whether they end soon.
const SCRIPTS: &[(&str, bool)] = &[
    ("readonly", true),
    ("log_compression", true),
    ("jsonplus2csv_test", true),
    ("strided", false),
    ("latency_percentiles", false),
    ("steadystate_tests", false),
    ("random_seed", false),
    ("verify_state_save", false),
    ("verify", false),
];

/// Debian's source of the installed version, unpacked once: `$1` is the folder.
const FETCH: &str = r#"
set -eu
mkdir -p "$1/lists/partial" "$1/parts"
cd "$1"
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ ! -e "$file" ] || sed -n 's/^deb /deb-src /p' "$file"
done >parts/source.list
for file in /etc/apt/sources.list.d/*.sources; do
    [ ! -e "$file" ] || sed 's/^Types:.*/Types: deb-src/' "$file" >"parts/$(basename "$file")"
done
version=$(dpkg-query -W -f '${source:Version}' fio)
set -- -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$1/parts" -o Dir::State::Lists="$1/lists"
apt-get "$@" -q update
apt-get "$@" -q source --download-only "fio=$version"
dpkg-source --no-check -x fio_*.dsc unpacked
rm -rf lists parts
mv unpacked source
"#;

/// Where fio's source is.
pub(super) fn source() -> Result<PathBuf, String> {
    let folder = std::path::absolute(target_folder().join("peers")).map_err(|error| error.to_string())?;
    let source = folder.join("source");
    if !source.is_dir() {
        let output = Command::new("sh").args(["-c", FETCH, "sh"]).arg(&folder).output();
        let output = output.map_err(|error| format!("sh: {error}"))?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            let last = error.trim().lines().last().unwrap_or_default().to_owned();
            return Err(format!("fio's source cannot be had ({last}); --fio-source PATH takes a checkout"));
        }
    }
    Ok(source)
}

/// A checkout's version as the end of a row's name.
pub(super) fn version(checkout: &Path) -> Result<String, String> {
    let path = checkout.join("FIO-VERSION-GEN");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let version = text.lines().find_map(|line| line.strip_prefix("DEF_VER="));
    version.map(|version| format!(" of {version}")).ok_or(format!("{}: no DEF_VER", path.display()))
}

pub(super) fn run(ground: &Ground) -> Result<Vec<Row>, String> {
    let suite = ground.source.join("t/run-fio-tests.py");
    let skipped: Vec<&str> = LEFT_OUT.iter().chain(SLOW.iter().filter(|_| !ground.whole)).copied().collect();
    let more = |words: &mut Command, artifacts: &Path| {
        words.arg("--artifact-root").arg(artifacts).arg("--skip").args(&skipped);
    };
    let mut rows = vec![judged(ground, "t/run-fio-tests.py", &suite, 100, &more)?];
    for (name, soon) in SCRIPTS {
        let script = ground.source.join("t").join(format!("{name}.py"));
        if (*soon || ground.whole) && script.is_file() {
            rows.push(judged(ground, &format!("t/{name}.py"), &script, 95, &|_, _| ())?);
        }
    }
    Ok(rows)
}

/// Both sides of a script. Newer ones take fio's path behind `-f`, older ones alone.
fn judged(
    ground: &Ground,
    name: &str,
    script: &Path,
    least: usize,
    more: &dyn Fn(&mut Command, &Path),
) -> Result<Row, String> {
    let text = std::fs::read_to_string(script).map_err(|error| format!("{}: {error}", script.display()))?;
    let mut found = Vec::new();
    for side in SIDES {
        let folder = ground.cell(side)?;
        let mut command = ground.command(side, "python3", &folder);
        command.env("PYTHONDONTWRITEBYTECODE", "1").arg(script);
        if text.contains("'--fio'") {
            command.arg("--fio");
        }
        command.arg(ground.program(side, "fio"));
        more(&mut command, &folder.join("artifacts"));
        let text = ground.run(&mut command, if ground.whole { 2400 } else { 120 })?.text;
        let cells = cells(&text);
        if cells.is_empty() {
            // A module of Python that is missing, for example.
            eprintln!("  {name}: no test ran: {}", text.trim_end().lines().last().unwrap_or("no output"));
        }
        found.push(cells);
    }
    let ours = &found[Side::Iowhy as usize];
    let passed = found[Side::Peer as usize].iter().filter(|(_, passed)| **passed);
    Ok(Row::new(
        format!("{name}{}", ground.version),
        least,
        passed.map(|(cell, _)| (cell.clone(), ours.get(cell) == Some(&true))),
    ))
}

/// Cells of a script's output, and whether they passed: by number, or by their order. A script that complains of a
/// place and calls it passed is not believed.
fn cells(text: &str) -> BTreeMap<String, bool> {
    let mut found = BTreeMap::new();
    let mut complained = false;
    let mut heading = 0;
    for line in text.lines() {
        complained |=
            ["outside of zone", "already touched", "blocks in zone but only saw"].iter().any(|it| line.contains(it));
        let Some(word) = line.split(|c: char| !c.is_alphabetic()).find(|word| ["PASSED", "FAILED"].contains(word))
        else {
            continue;
        };
        if line.contains("test(s)") {
            continue;
        }
        let number = line.split_once("Test ").map(|(_, rest)| rest.split(' ').next().unwrap_or_default());
        let number = number.filter(|number| number.parse::<u32>().is_ok());
        let name = number.map_or_else(|| format!("{:03}", found.len() + 1), |number| format!("{number:0>4}"));
        // Numbers begin again under each heading.
        if found.contains_key(&under(heading, &name)) {
            heading += 1;
        }
        found.insert(under(heading, &name), word == "PASSED" && !complained);
        complained = false;
    }
    found
}

fn under(heading: usize, name: &str) -> String {
    let name = name.trim_start_matches('0');
    if heading == 0 { name.to_owned() } else { format!("{}:{name}", heading + 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_all_scripts_are_found() {
        let found = |text: &str| cells(text).into_iter().map(|(cell, ok)| format!("{cell}{ok}")).collect::<Vec<_>>();
        for (text, expected) in [
            (
                "Test 1 PASSED a.fio\nTest 2 FAILED: PASSED, b\nTest 9 SKIPPED (c)\n1 test(s) passed\n",
                &["1true", "2false"][..],
            ),
            ("**********Test 3 PASSED**********\n3 tests passed, 0 failed\n", &["3true"]),
            ("PASSED 'a' found\nFAILED 'b' found\n1 test(s) PASSED, 1 test(s) FAILED\n", &["1true", "2false"]),
            ("Test with x=False PASSED\nTest with x=True PASSED\n", &["1true", "2true"]),
            ("Offset 4096 outside of zone starting at 0\nTest 1 PASSED\nTest 2 PASSED\n", &["1false", "2true"]),
            ("csum: a\nTest 1 PASSED \ncsum: b\nTest 1 FAILED:  \nTest 2 PASSED\n", &["1true", "2:1false", "2:2true"]),
        ] {
            assert_eq!(found(text), expected, "{text}");
        }
    }
}

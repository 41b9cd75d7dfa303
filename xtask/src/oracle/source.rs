//! A kernel's source as Debian packages it, and programs made of its policies

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Packaged, Policy};
use crate::{root, target_folder};

/// Fetches the package `$2` of the suite `$3` into `$1` and unpacks what policies are made of. The archive is that of
/// this machine's own sources.
const FETCH: &str = r#"
set -eu
mkdir -p "$1/lists/partial" "$1/cache/archives/partial" "$1/parts"
cd "$1"
case $3 in *-security) kind='-security$' ;; *) kind='^[a-z]*$' ;; esac
place=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(RELEASE)' 'Created-By: Packages' |
    awk -v kind="$kind" '$2 == "Debian" && $3 ~ kind { print $1; exit }')
[ -n "$place" ] || { echo "no archive of Debian among this machine's sources (after apt-get update)" >&2; exit 1; }
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $place $3 main" >parts/oracle.list
set -- "$1" "$2" -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$1/parts" \
    -o Dir::State::Lists="$1/lists" -o Dir::Cache="$1/cache" -o Acquire::Languages=none -o APT::Sandbox::User=root
folder=$1 wanted=$2
shift 2
apt-get "$@" -q update >&2
# Of linux-source-6.1 and linux-source-6.12 the exact one; of linux-source-7 the newest.
names=$(apt-cache "$@" pkgnames "$wanted" | sort -V)
name=$(echo "$names" | grep -Fx "$wanted") || name=$(echo "$names" | tail -n 1)
[ -n "$name" ] || { echo "the suite has no package $wanted" >&2; exit 1; }
apt-get "$@" -q download "$name" >&2
mkdir -p unpacked
dpkg-deb --fsys-tarfile "$name"_*.deb | tar -xO "./usr/src/$name.tar.xz" |
    tar -xJ -C unpacked --strip-components=1 --wildcards --no-wildcards-match-slash \
    "$name/block" "$name/include/linux" "$name/lib" "$name/mm" "$name/fs/iomap" "$name/fs/*.c"
dpkg-deb -f "$name"_*.deb Version >version
rm -rf lists cache parts "$name"_*.deb
mv unpacked source
"#;

/// An unpacked source and its version in Debian.
pub(super) struct Source {
    folder: PathBuf,
    pub(super) version: String,
}

/// The source of a kernel, fetched the first time.
pub(super) fn unpacked(kernel: &Packaged) -> Result<Source, String> {
    let folder = target_folder().join("oracle").join(kernel.name);
    let folder = std::path::absolute(folder).map_err(|error| error.to_string())?;
    // One of an earlier time may not have all that policies are made of by now.
    if !folder.join("source/fs").is_dir() {
        let _ = std::fs::remove_dir_all(&folder);
        eprintln!("fetching {} of {}", kernel.package, kernel.suite);
        let command =
            Command::new("sh").args(["-c", FETCH, "sh"]).arg(&folder).args([kernel.package, kernel.suite]).output();
        let output = command.map_err(|error| format!("sh: {error}"))?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            let last = error.trim().lines().last().unwrap_or_default();
            return Err(format!("NOT COMPARED: {} of {} cannot be had ({last})", kernel.package, kernel.suite));
        }
    }
    let version = read(&folder.join("version"))?.trim().to_owned();
    Ok(Source { folder, version })
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    made.and_then(|()| std::fs::write(path, text)).map_err(|error| format!("{}: {error}", path.display()))
}

/// A number that grows with the kernel: 612 for 6.12.
fn number(version: &str) -> u32 {
    let mut parts = version.split(|letter: char| !letter.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    parts.next().unwrap_or(0) * 100 + parts.next().unwrap_or(0)
}

/// The program of a policy, compiled anew.
pub(super) fn program(source: &Source, policy: &Policy) -> Result<PathBuf, String> {
    let (from, folder) = (source.folder.join("source"), source.folder.join(policy.name));
    // A folder of an earlier run may have more headers.
    let _ = std::fs::remove_dir_all(&folder);
    let mut texts = Vec::new();
    for file in policy.files {
        let text = read(&from.join(file))?;
        write(&folder.join(file.rsplit('/').next().unwrap_or(file)), &text)?;
        texts.push(text);
    }
    let mut headers = BTreeSet::new();
    for header in policy.headers {
        // Some came later than others.
        if let Ok(text) = read(&from.join("include").join(header)) {
            write(&folder.join("include").join(header), &text)?;
            headers.insert((*header).to_owned());
            texts.push(text);
        }
    }
    // All other headers are empty: what they would declare is in the shim.
    for header in texts.iter().flat_map(|text| text.lines()).filter_map(included) {
        if headers.insert(header.to_owned()) {
            write(&folder.join("include").join(header), "")?;
        }
    }
    write(&folder.join("cut.c"), &cuts(&from, policy)?)?;
    let shim = root().join("xtask/src/oracle/shim");
    let program = folder.join("program");
    let mut command = Command::new("gcc");
    command.args(["-std=gnu11", "-O1", "-w", "-fno-strict-aliasing", "-fno-strict-overflow"]);
    command.arg(format!("-DSHIM_VERSION={}", number(&source.version)));
    for folder in [&folder, &folder.join("include"), &shim] {
        command.arg("-I").arg(folder);
    }
    let output = command.arg("-o").arg(&program).arg(shim.join(policy.program)).output();
    let output = output.map_err(|error| format!("NOT COMPARED: gcc: {error}"))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        let first: Vec<&str> =
            error.lines().filter(|line| line.contains("error") || line.contains("undefined")).collect();
        let first = first[..first.len().min(8)].join("\n");
        return Err(format!("NOT COMPARED: {} of {} does not compile:\n{first}", policy.name, source.version));
    }
    Ok(program)
}

/// The header that a line includes.
fn included(line: &str) -> Option<&str> {
    let line = line.strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start();
    line.strip_prefix(['<', '"'])?.split(['>', '"']).next()
}

/// Functions out of larger files: macros and types, then declarations of all functions, then the functions. Those that
/// this kernel does not have are left out.
fn cuts(from: &Path, policy: &Policy) -> Result<String, String> {
    let (mut macros, mut declared, mut defined) = (String::new(), String::new(), String::new());
    for (file, names) in policy.cuts {
        // Some came later than others.
        let Ok(text) = read(&from.join(file)) else { continue };
        let lines: Vec<&str> = text.lines().collect();
        for part in names.iter().filter_map(|name| cut(&lines, name)) {
            let text = part.join("\n") + "\n";
            if text.starts_with('#') || text.ends_with("};\n") {
                macros += &text;
            } else {
                declared += text.split('{').next().unwrap_or_default().trim_end();
                declared += ";\n";
                defined += &text;
            }
        }
    }
    Ok([macros, declared, defined].concat())
}

/// The lines of a macro, of a type (`struct name`), or of a function's definition, which ends with a brace of its own
/// at the start of a line.
fn cut<'a>(lines: &'a [&'a str], name: &str) -> Option<&'a [&'a str]> {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let names = |line: &str| {
        line.match_indices(name)
            .any(|(at, _)| !line[..at].ends_with(is_word) && line[at + name.len()..].starts_with('('))
    };
    for (at, line) in lines.iter().enumerate() {
        let type_begins = *line == name && lines.get(at + 1) == Some(&"{");
        if line.strip_suffix(" {") == Some(name) || type_begins {
            let rows = lines[at..].iter().position(|line| *line == "};")?;
            return lines.get(at..=at + rows);
        }
        let macro_name =
            line.strip_prefix("#define ").and_then(|rest| rest.split(|letter: char| !is_word(letter)).next());
        if macro_name == Some(name) {
            let rows = lines[at..].iter().take_while(|line| line.ends_with('\\')).count();
            return lines.get(at..=at + rows);
        }
        let begins = line.starts_with(is_word);
        if !begins || line.starts_with("EXPORT_") || !names(line) {
            continue;
        }
        let ends = lines[at..].iter().find_map(|line| line.chars().find(|letter| matches!(letter, ';' | '{')));
        if ends == Some('{') {
            let rows = lines[at..].iter().position(|line| *line == "}")?;
            // The type may stand on a line of its own.
            let first = if line.starts_with(name) { at.saturating_sub(1) } else { at };
            return lines.get(first..=at + rows);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_and_macros_are_cut_out_whole() {
        let text = "#define half(x) \\\n\t((x) / 2)\nint twice(int x);\nstatic int\ntwice(int x)\n{\n\t\
                    return 2 * x;\n}\nint use(void)\n{\n\treturn twice(half(2));\n}";
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(cut(&lines, "half"), Some(&lines[..2]));
        assert_eq!(cut(&lines, "twice"), Some(&lines[3..8]));
        assert_eq!(cut(&lines, "use"), Some(&lines[8..]));
        assert_eq!(cut(&lines, "wice"), None);
        let kind = ["struct kind", "{", "\tint x;", "};"];
        assert_eq!(cut(&kind, "struct kind"), Some(&kind[..]));
        assert_eq!(included("# include \"blk.h\""), Some("blk.h"));
        assert_eq!([number("6.12.118-1"), number("7.2.13-1")], [612, 702]);
    }
}

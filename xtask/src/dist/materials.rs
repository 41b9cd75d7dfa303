//! Licences and bill of materials (SPDX 2.3) of everything that is in the binary.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{TARGET, at, done};
use crate::{Outcome, cargo};

/// Names of files that hold licences begin so.
const TEXTS: &[&str] = &["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
/// Parts that no crate stands for.
const BESIDE: &[(&str, &str, &str)] = &[("musl", "1.2", "MIT"), ("rust-std", "1", "MIT OR Apache-2.0")];

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Crates that the command is linked from, by id; procedural macros are left out, they run at build time.
fn linked() -> Result<BTreeMap<String, Value>, String> {
    let metadata = cargo().args(["metadata", "--locked", "--format-version=1", "--filter-platform", TARGET]).output();
    let metadata = metadata.map_err(|error| format!("cargo metadata: {error}"))?;
    let metadata: Value =
        serde_json::from_slice(&metadata.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|package| (text(&package, "id").to_owned(), package)).collect();
    let is_macro = |package: &Value| package["targets"][0]["kind"][0] == "proc-macro";
    let nodes = list(&metadata["resolve"]["nodes"]);
    let first = packages.iter().find(|(_, package)| text(package, "name") == "iowhy").map(|(id, _)| id.clone());
    let mut open = vec![first.ok_or("cargo metadata has no package iowhy")?];
    let mut found = BTreeMap::new();
    while let Some(id) = open.pop() {
        let Some(package) = packages.get(&id).filter(|package| !is_macro(package)) else { continue };
        if found.insert(id.clone(), package.clone()).is_some() {
            continue;
        }
        let node = nodes.iter().find(|node| text(node, "id") == id);
        for dependency in node.map(|node| list(&node["deps"])).unwrap_or_default() {
            if list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null()) {
                open.push(text(&dependency, "pkg").to_owned());
            }
        }
    }
    Ok(found)
}

/// Licence files of a crate: name and text.
fn licences(package: &Value) -> Result<Vec<(String, String)>, String> {
    let folder = Path::new(text(package, "manifest_path")).parent().unwrap_or(Path::new(""));
    let mut found = Vec::new();
    for entry in at(folder, fs::read_dir(folder))? {
        let entry = at(folder, entry)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if TEXTS.iter().any(|known| name.to_ascii_uppercase().starts_with(known)) && entry.path().is_file() {
            let bytes = at(&entry.path(), fs::read(entry.path()))?;
            found.push((name, String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    found.sort();
    Ok(found)
}

/// A part of the bill. Identifiers of SPDX have letters, digits, points and dashes only.
fn material(name: &str, number: &str, licence: &str, download: &str) -> Value {
    let id = format!("SPDXRef-{name}-{number}").replace(|char: char| !char.is_ascii_alphanumeric() && char != '.', "-");
    json!({
        "SPDXID": id, "name": name, "versionInfo": number, "downloadLocation": download, "filesAnalyzed": false,
        "licenseConcluded": licence, "licenseDeclared": licence, "copyrightText": "NOASSERTION",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
            "referenceLocator": format!("pkg:cargo/{name}@{number}")}],
    })
}

/// The bill of the parts; the first is what the others are contained in.
fn bill(parts: &[Value], version: &str, epoch: &str) -> Result<Value, String> {
    let mut date = std::process::Command::new("date");
    let time = done(date.args(["-u", "+%Y-%m-%dT%H:%M:%SZ", "-d"]).arg(format!("@{epoch}")))?;
    let own = &parts[0]["SPDXID"];
    let relation = |from: &Value, kind: &str, to: &Value| {
        let words = json!(kind);
        json!({"spdxElementId": from, "relationshipType": words, "relatedSpdxElement": to})
    };
    let mut relations = vec![relation(&json!("SPDXRef-DOCUMENT"), "DESCRIBES", own)];
    relations.extend(parts[1..].iter().map(|part| relation(own, "CONTAINS", &part["SPDXID"])));
    Ok(json!({
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": format!("iowhy-{version}"),
        "documentNamespace": format!("https://github.com/iowhy/iowhy/spdx/{version}-{epoch}"),
        "creationInfo": {"created": String::from_utf8_lossy(&time).trim(), "creators": ["Tool: cargo-xtask-dist"]},
        "packages": parts, "relationships": relations,
    }))
}

/// Writes both into the folder of documents.
pub(super) fn write(folder: &Path, version: &str, epoch: &str) -> Outcome {
    let mut packages: Vec<Value> = linked()?.into_values().collect();
    packages.sort_by_key(|package| (text(package, "name") != "iowhy", text(package, "name").to_owned()));
    let mut texts = String::from("Licences of everything that the command is linked from.\n");
    let mut parts = Vec::new();
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for package in &packages {
        let (name, number) = (text(package, "name"), text(package, "version"));
        let licence = text(package, "license").replace('/', " OR ");
        if licence.is_empty() {
            return Err(format!("the crate {name} {number} has no licence"));
        }
        let download = match package["source"].as_str() {
            Some(_) => format!("https://crates.io/api/v1/crates/{name}/{number}/download"),
            None => "NOASSERTION".to_owned(),
        };
        parts.push(material(name, number, &licence, &download));
        texts += &format!("\n=== {name} {number}: {licence}\n");
        for (file, text) in licences(package)? {
            // Many crates have the same text: it is given once.
            match seen.get(&text) {
                Some(first) => texts += &format!("--- {file}: as that of {first}\n"),
                None => {
                    texts += &format!("--- {file}\n{text}\n");
                    seen.insert(text, format!("{name} {number}"));
                }
            }
        }
    }
    for (name, number, licence) in BESIDE {
        texts += &format!("\n=== {name} {number}: {licence}\n");
        let mut part = material(name, number, licence, "NOASSERTION");
        part["externalRefs"] = json!([]);
        parts.push(part);
    }
    at(folder, fs::write(folder.join("THIRD-PARTY-LICENSES.txt"), texts))?;
    at(folder, fs::write(folder.join("iowhy.spdx.json"), format!("{:#}\n", bill(&parts, version, epoch)?)))
}

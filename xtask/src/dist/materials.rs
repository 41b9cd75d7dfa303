//! Licences and bill of materials (SPDX 2.3) of everything that is in the binary.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{TARGET, at, done};
use crate::{Outcome, cargo};

/// Names of files that hold licences begin so.
const TEXTS: &[&str] = &["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
/// Parts that no crate stands for.
const BESIDE: &[(&str, &str)] = &[("musl", "MIT"), ("rust-std", "MIT OR Apache-2.0")];

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

/// Writes both into the folder of documents.
pub(super) fn write(folder: &Path, version: &str, epoch: &str) -> Outcome {
    let packages = linked()?;
    let mut texts = String::from("Licences of everything that the command is linked from.\n");
    let mut materials = Vec::new();
    let mut without = BTreeSet::new();
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for package in packages.values() {
        let (name, number, licence) = (text(package, "name"), text(package, "version"), text(package, "license"));
        if licence.is_empty() {
            without.insert(name.to_owned());
        }
        materials.push(json!({
            "SPDXID": format!("SPDXRef-{name}-{number}"), "name": name, "versionInfo": number,
            "downloadLocation": package["source"].as_str().map_or_else(|| "NOASSERTION".to_owned(),
                |_| format!("https://crates.io/api/v1/crates/{name}/{number}/download")),
            "licenseConcluded": licence.replace('/', " OR "), "licenseDeclared": licence.replace('/', " OR "),
            "copyrightText": "NOASSERTION", "filesAnalyzed": false,
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                "referenceLocator": format!("pkg:cargo/{name}@{number}")}],
        }));
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
    for (name, licence) in BESIDE {
        texts += &format!("\n=== {name}: {licence}\n");
        materials.push(json!({"SPDXID": format!("SPDXRef-{name}"), "name": name, "filesAnalyzed": false,
            "downloadLocation": "NOASSERTION", "licenseConcluded": licence, "licenseDeclared": licence,
            "copyrightText": "NOASSERTION"}));
    }
    if !without.is_empty() {
        return Err(format!("crates without a licence: {}", without.into_iter().collect::<Vec<_>>().join(", ")));
    }
    let time =
        done(std::process::Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ", "-d"]).arg(format!("@{epoch}")))?;
    let own = format!("SPDXRef-iowhy-{version}");
    let contained = materials.iter().filter(|package| package["SPDXID"] != own.as_str());
    let relations: Vec<Value> = contained
        .map(|package| json!({"spdxElementId": own, "relationshipType": "CONTAINS", "relatedSpdxElement": package["SPDXID"]}))
        .chain([json!({"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": own})])
        .collect();
    let bill = json!({
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": format!("iowhy-{version}"),
        "documentNamespace": format!("https://github.com/iowhy/iowhy/spdx/{version}-{epoch}"),
        "creationInfo": {"created": String::from_utf8_lossy(&time).trim(), "creators": ["Tool: cargo xtask dist"]},
        "packages": materials, "relationships": relations,
    });
    at(folder, fs::write(folder.join("THIRD-PARTY-LICENSES.txt"), texts))?;
    at(folder, fs::write(folder.join("iowhy.spdx.json"), format!("{bill:#}\n")))
}

//! `iowhy incident --live`: what the running kernel shows, beside what was published and simulated. Whether the figures
//! are good is not asked here, only that they are there, and that nothing is left.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::{Folder, can_make_disks, check_schema, text};

#[test]
fn the_running_kernel_answers_beside_published_and_simulated_figures() {
    let folder = Folder::new("incident-live");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(&folder.0, private).expect("it is ours");
    let iowhy = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iowhy"));
        command.args(line.split_whitespace()).env("NO_COLOR", "1").env("XDG_STATE_HOME", &folder.0);
        command.current_dir(&folder.0).output().expect("the command starts")
    };
    let output = iowhy("incident 2010-cfq-direct-writers --live --quick --json");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    check_schema("incident", &value);
    let incident = &value["incidents"][0];
    let row = &incident["live"]["rows"][0];
    assert_eq!(row["id"], "idling");
    for name in ["published", "simulated"] {
        assert!(row[name].as_f64().is_some_and(|ratio| ratio > 0.7 && ratio < 0.9), "{name}: {row:#}");
    }
    let rows = incident["rows"].as_array().expect("rows");
    let of = |id: &str| &rows.iter().find(|row| row["id"] == id).expect("the row")["live"];
    if can_make_disks() {
        assert!(incident["live"]["sides"][0]["refused"].is_null(), "{:#}", incident["live"]["sides"]);
        assert!(incident["live"]["sides"][0]["runs"].as_array().is_some_and(|runs| runs.len() >= 2));
        assert!(row["live"].as_f64().is_some_and(|ratio| ratio > 0.0) && of("186r-2").as_f64().is_some(), "{row:#}");
    } else {
        println!("not run: modelled disks need root, FUSE and loop devices");
        assert_eq!(row["verdict"], "cannot tell");
        assert!(incident["live"]["sides"][0]["refused"].is_string());
    }
    assert!(of("164-4").is_null(), "nobody asks about four writers");
    assert_eq!(iowhy("doctor").status.code(), Some(0), "nothing is left");
    assert_eq!(iowhy("incident list --quick").status.code(), Some(2), "--quick is of --live");
}

//! `iowhy sweep`: parts, a second call, points without a result, mistakes.

use super::trace::Scratch;
use super::{check_schema, text};
use serde_json::Value;

const GRID: &str = "job = \"fio --name=j --rw=randread --bs=${bs} --size=256k --number_ios=8\"\n\
    on = [\"sim:linux-6.18\", \"sim:linux-4.4\"]\ndisk = [\"sata-2014\", \"nvme\"]\nseeds = 3\nper_task = 5\n\
    [options]\nbs = [\"4k\", \"8k\"]\n";

fn swept(scratch: &Scratch, line: &str) -> Value {
    let output = scratch.command(line).output().expect("the command starts");
    let value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    check_schema("sweep", &value);
    value
}

#[test]
fn parts_of_a_sweep_add_up_and_are_made_once() {
    let scratch = Scratch::new("sweep");
    scratch.write("grid.toml", GRID.as_bytes());
    let made = |line: &str| swept(&scratch, &format!("sweep grid.toml -o out --json {line}"))["made"].as_u64();
    assert_eq!([made("--shard 2/2"), made("--shard 2/2"), made(""), made("")], [Some(2), Some(0), Some(3), Some(0)]);
    for wrong in ["sweep grid.toml", "sweep none.toml -o out2", "sweep grid.toml -o out --shard 3/2"] {
        scratch.ends(wrong, 2);
    }
    // Another plan, and a folder with files of the user.
    scratch.write("other.toml", GRID.replace("seeds = 3", "seeds = 4").as_bytes());
    scratch.ends("sweep other.toml -o out", 2);
    scratch.ends("sweep other.toml -o .", 2);
}

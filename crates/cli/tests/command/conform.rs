//! `iowhy conform --live`. Tracing needs root; without it these tests say so and pass, but fail in CI.

use super::*;

/// Whether the kernel can be traced here.
fn can_trace(test: &str) -> bool {
    let output = iowhy("conform --live --job tiny-1 --read-ahead-kb 128");
    if output.status.code() != Some(3) {
        return true;
    }
    let message = text(&output.stderr);
    assert!(message.contains("needs root and tracefs") || message.contains("--dir"), "{message}");
    eprintln!("SKIPPED {test}: {message}");
    assert!(std::env::var("CI").as_deref() != Ok("true"), "CI must run the tests of tracing as root");
    false
}

#[test]
fn what_makes_no_sense_is_refused() {
    refused("conform");
    refused("conform --live --golden here");
    refused("conform --golden here --job x");
    refused("conform --live --job x -- true");
    refused("conform recording.parquet -- true");
    refused("conform there/is/no.parquet");
    assert!(refused("conform --live --dir /there/is/nothing").contains("does not exist"));
}

#[test]
fn every_decision_of_the_running_kernel_is_the_models() {
    if !can_trace("every_decision_of_the_running_kernel_is_the_models") {
        return;
    }
    let jobs = "--job seq-16k --job stride-8k-12k --job anything-2 --job advise-changing --job half-cached-seq";
    let report = json(&format!("conform --live --json --read-ahead-kb 128 --read-ahead-kb 20 {jobs}"));
    check_schema("conform-live", &report);
    assert_eq!(report["lost_events"], 0);
    if report["exact_model"] == true {
        assert_eq!(report["matched"], report["decisions"], "{}", report["first_mismatch"]);
        assert_eq!(report["page_adds_matched"], report["page_adds"], "{}", report["first_mismatch"]);
    }
    assert!(report["decisions"].as_u64().is_some_and(|n| n > 1000), "{}", report["decisions"]);
    assert!(report["jobs"].as_array().is_some_and(|jobs| jobs.len() >= 10));
}

#[test]
fn requests_and_reads_past_the_cache_are_the_models() {
    if !can_trace("requests_and_reads_past_the_cache_are_the_models") {
        return;
    }
    let jobs = "--job seq-1m --job anything-3 --job direct-5m --job direct-end-of-file --job direct-and-cached";
    let report = json(&format!("conform --live --json --read-ahead-kb 4096 {jobs}"));
    check_schema("conform-live", &report);
    let jobs = report["jobs"].as_array().expect("jobs");
    for job in jobs {
        let name = job["job"].as_str().expect("a name");
        let count = |key: &str| [&job[key]["of"], &job[key]["matched"]].map(|n| n.as_u64().expect("a number"));
        let [direct, direct_matched] = count("past_the_cache");
        assert_eq!(direct > 0, name.starts_with("direct"), "{name}: {direct} bios past the cache");
        let [requests, requests_matched] = count("each_request");
        // With an elevator those of a disk are compared, not those of a file.
        assert!(requests == 0 || requests >= 16, "{name}: {requests} requests");
        if report["exact_model"] == true {
            assert_eq!(direct_matched, direct, "{name}: {}", job["past_the_cache"]["mismatches"]);
            assert_eq!(requests_matched, requests, "{name}: {}", job["each_request"]["mismatches"]);
            assert_eq!(job["bios_matched"], job["bios"], "{name}");
        }
    }
}

#[test]
fn faults_of_mappings_are_the_models() {
    if !can_trace("faults_of_mappings_are_the_models") {
        return;
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("conform-mmap-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a folder");
    let job = dir.join("mapped.fio");
    let head = "[global]\nioengine=mmap\nsize=4m\nbs=4k\n";
    let parts = "[a]\nrw=read\n[b]\nstonewall\nrw=randread\n[c]\nstonewall\nrw=randread\nfadvise_hint=0\n";
    fs::write(&job, format!("{head}{parts}")).expect("written");
    let report = json(&format!("conform --live --json --read-ahead-kb 128 --job {}", job.display()));
    fs::remove_dir_all(&dir).expect("removed");
    check_schema("conform-live", &report);
    let jobs = report["jobs"].as_array().expect("jobs");
    assert!(jobs.len() >= 3, "{} files", jobs.len());
    for job in jobs {
        // Touches are no calls, so there is no history.
        assert!(job["whole_history"].is_null(), "{job}");
        assert!(job["decisions"].as_u64().is_some_and(|n| n >= 10), "{job}");
        if report["exact_model"] == true {
            assert_eq!(job["matched"], job["decisions"], "{}", job["first_mismatch"]);
            assert_eq!(job["page_adds_matched"], job["page_adds"], "{}", job["first_mismatch"]);
            assert_eq!(job["requests_matched"], job["requests"], "{}", job["each_request"]);
        }
    }
}

#[test]
fn jobs_of_fio_are_compared_in_any_folder_and_nothing_is_left_there() {
    if !can_trace("jobs_of_fio_are_compared_in_any_folder_and_nothing_is_left_there") {
        return;
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("conform-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a folder");
    let job = dir.join("job.fio");
    let lines = "[a]\nrw=read\nbs=20k\nsize=4m\n[b]\nstonewall\nrw=randread\nbs=7k\nsize=4m\nfadvise_hint=0\n";
    fs::write(&job, lines).expect("written");
    let output = iowhy(&format!("conform --live --json --dir {} --job {}", dir.display(), job.display()));
    let message = text(&output.stderr);
    // A file system without read-ahead (tmpfs) has nothing to compare.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{message}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    check_schema("conform-live", &report);
    assert_eq!(report["jobs"].as_array().map(Vec::len), Some(2));
    let left: Vec<_> = fs::read_dir(&dir).expect("readable").map(|entry| entry.expect("readable").path()).collect();
    assert_eq!(left, [job]);
    fs::remove_dir_all(&dir).expect("removed");
}

#[test]
fn a_program_of_others_is_judged_and_so_is_its_recording() {
    if !can_trace("a_program_of_others_is_judged_and_so_is_its_recording") {
        return;
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("conform-program-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a folder");
    let (data, recording) = (dir.join("data"), dir.join("recording.parquet"));
    fs::write(&data, vec![7; 3_000_000]).expect("written");
    let cold = || {
        let file = fs::File::open(&data).expect("there");
        iowhy_live::cache::make_cold(&file).expect("dropped");
    };
    cold();
    let recorded = iowhy(&format!("trace record --level full -o {} -- wc {}", recording.display(), data.display()));
    assert_eq!(recorded.status.code(), Some(0), "{}", text(&recorded.stderr));
    let of_file = |report: &Value| {
        let jobs = report["jobs"].as_array().expect("jobs").iter();
        jobs.filter(|job| job["job"].as_str().is_some_and(|name| name.ends_with("/data"))).cloned().collect::<Vec<_>>()
    };
    let report = json(&format!("conform --json {}", recording.display()));
    check_schema("conform-live", &report);
    let jobs = of_file(&report);
    // A file system without read-ahead (tmpfs) has nothing to compare, and says so.
    let not_judged = report["not_judged"].as_array().expect("a list");
    assert!(!not_judged.is_empty() && not_judged.iter().all(|it| it["why"] != ""), "{not_judged:?}");
    if let [job] = &jobs[..] {
        assert_eq!(job["page_adds"].as_u64().map(|n| n > 10), Some(true), "{job}");
        if report["exact_model"] == true {
            assert_eq!(job["matched"], job["decisions"], "{job}");
            assert_eq!(job["page_adds_matched"], job["page_adds"], "{job}");
            assert_eq!(job["bios_matched"], job["bios"], "{job}");
        }
        let disks = report["disks"].as_array().expect("a list");
        assert!(disks.iter().all(|disk| disk["requests"].as_u64() > Some(0)), "{disks:?}");
    }
    cold();
    let live = iowhy(&format!("conform --live -- wc {}", data.display()));
    let shown = text(&live.stdout);
    assert!(shown.contains("data") && shown.contains("not judged: "), "{shown}");
    fs::remove_dir_all(&dir).expect("removed");
}

use super::*;
use std::path::{Path, PathBuf};

/// Recordings of a running 6.18.
fn recorded() -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/linux-6.18");
    let files = std::fs::read_dir(&folder).expect("the records are there when tests run");
    let mut paths: Vec<PathBuf> = files.map(|file| file.expect("readable").path()).collect();
    paths.sort();
    let text = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a text");
        (path, text)
    };
    paths.into_iter().map(text).collect()
}

fn entry() -> &'static Entry<Build> {
    let (entry, model) = model_of("6.18.44-anything", "");
    assert!(model.exact && entry.name == "linux-6.18");
    entry
}

#[test]
fn every_decision_and_page_of_the_records_is_the_models() {
    let records = recorded();
    assert!(records.len() >= 8, "{} records", records.len());
    let (mut decisions, mut raced, mut direct, mut requests, mut faults) = (0, 0, 0, 0, 0);
    for (path, text) in records {
        let recorded = Recorded::from_text(&text).expect("a record");
        let checked = check(entry(), &recorded);
        assert!(checked.as_expected() && checked.decisions.all_matched(), "{}: {checked:?}", path.display());
        let touched = recorded.lines.iter().filter(|line| matches!(line.what, What::Fault { .. })).count();
        let expected = checked.single_threaded && touched == 0;
        assert_eq!(checked.history.is_some(), expected, "{}: the calls of one task", path.display());
        assert_eq!(checked.requests.mismatches, [""; 0], "{}", path.display());
        assert_eq!(checked.bios().0, checked.bios().1, "{}", path.display());
        decisions += checked.counted().decisions;
        raced += checked.decisions.raced;
        direct += checked.direct.of;
        requests += checked.requests.of;
        faults += touched;
    }
    assert!(decisions > 300, "only {decisions} decisions");
    assert!(raced > 0 && direct >= 10 && requests >= 40 && faults > 10, "{raced} {direct} {requests} {faults}");
}

/// A record of two tasks that read one descriptor: one of its decisions is right only with what the other task wrote
/// meanwhile.
fn of_two_tasks() -> Recorded {
    let (_, text) =
        recorded().into_iter().find(|(path, _)| path.ends_with("xfs-128-threads-2-shared.txt")).expect("there");
    Recorded::from_text(&text).expect("a record")
}

#[test]
fn a_match_by_another_tasks_state_needs_that_task_and_is_counted() {
    let recorded = of_two_tasks();
    let tally = check(entry(), &recorded).decisions;
    assert!(tally.all_matched() && tally.raced == 1, "{tally:?}");
    // The same if what the second task does is on a descriptor of its own: nothing of it can be in the state.
    let mut apart = recorded.clone();
    for line in apart.lines.iter_mut().filter(|line| line.task == 1) {
        if let What::Read { fd, .. } = &mut line.what {
            *fd += 100;
        }
    }
    let tally = check(entry(), &apart).decisions;
    assert!(tally.raced == 0 && tally.matched < tally.decisions, "{tally:?}");
}

#[test]
fn no_state_is_found_for_a_window_that_nobody_has() {
    let recorded = of_two_tasks();
    let windows = recorded.lines.iter().filter(|line| matches!(line.what, What::Order { .. })).count();
    assert!(windows > 5, "{windows} windows");
    for nr in 0..windows {
        let mut other = recorded.clone();
        let mut lines = other.lines.iter_mut().filter(|line| matches!(line.what, What::Order { .. }));
        if let Some(What::Order { size, .. }) = lines.nth(nr).map(|line| &mut line.what) {
            *size += 1001;
        }
        let tally = check(entry(), &other).decisions;
        assert!(tally.matched < tally.decisions, "window {nr}: {tally:?}");
    }
}

#[test]
fn a_read_past_the_cache_that_says_something_else_does_not_match() {
    let (_, text) =
        recorded().into_iter().find(|(path, _)| path.ends_with("ext4-128-direct-and-cached.txt")).expect("there");
    let recorded = Recorded::from_text(&text).expect("a record");
    let direct = check(entry(), &recorded).direct;
    assert_eq!((direct.of, direct.mismatches), (direct.matched, Vec::new()));
    // The first bio belongs to the first read past the cache.
    let mut other = recorded;
    let bio = other.lines.iter_mut().find_map(|line| match &mut line.what {
        What::Bio { bytes, .. } => Some(bytes),
        _ => None,
    });
    *bio.expect("a bio") += 512;
    let checked = check(entry(), &other);
    assert!(checked.direct.matched < checked.direct.of && !checked.as_expected(), "{checked:?}");
    assert!(checked.requests.matched < checked.requests.of, "{checked:?}");
}

#[test]
fn records_are_read_as_they_are_written() {
    for (path, text) in recorded() {
        let recorded = Recorded::from_text(&text).expect("a record");
        assert_eq!(recorded.to_text(), text, "{}", path.display());
    }
}

#[test]
fn a_record_that_says_something_else_does_not_match() {
    let change = |from: char, field: usize| {
        let (_, text) =
            recorded().into_iter().find(|(path, _)| path.ends_with("ext4-128-seq-100000.txt")).expect("there");
        let mut recorded = Recorded::from_text(&text).expect("a record");
        let mut line = recorded.lines.iter_mut().filter(|line| match line.what {
            What::Order { .. } => from == 'd',
            What::Add { .. } => from == '+',
            What::Async(_) => from == 'a',
            _ => false,
        });
        let line = line.nth(3).expect("enough lines");
        match &mut line.what {
            What::Order { index, order, size, async_size, .. } => match field {
                0 => *index += 1,
                1 => *order += 1,
                2 => *size += 1,
                _ => *async_size += 1,
            },
            What::Add { index, order } if field == 0 => (*index, *order) = (*index + (1 << *order), *order),
            What::Add { order, .. } => *order += 1,
            What::Async(input) => input.size += 4,
            _ => {}
        }
        check(entry(), &recorded)
    };
    for (letter, field) in [('d', 0), ('d', 1), ('d', 2), ('d', 3), ('+', 0), ('+', 1), ('a', 0)] {
        let checked = change(letter, field);
        assert!(!checked.as_expected() && checked.first_mismatch().is_some(), "{letter} {field}: {checked:?}");
    }
}

#[test]
fn another_kernels_model_does_not_match_these_records() {
    let other = origin::find(READAHEADS, "linux-6.12").expect("a model");
    let (_, text) = recorded().into_iter().find(|(path, _)| path.ends_with("ext4-128-seq-100000.txt")).expect("there");
    let checked = check(other, &Recorded::from_text(&text).expect("a record"));
    assert!(!checked.as_expected(), "{checked:?}");
}

#[test]
fn what_is_no_record_is_told_with_its_line() {
    for (text, line) in [
        ("", 1),
        ("something else\n", 1),
        ("iowhy-readahead 1\njob x\nsize 3\n", 3),
        ("iowhy-readahead 1\nfile_bytes many\n", 2),
        ("iowhy-readahead 1\nmax_folio_order 77\n", 2),
        ("iowhy-readahead 1\njob x\n\nr 0 0 1\n", 4),
        ("iowhy-readahead 1\njob x\n\nr 0 0 1 1\n+ 0 1 77\n", 5),
        ("iowhy-readahead 1\njob x\n\nr 0 0 1 1 x3\n", 4),
        ("iowhy-readahead 1\njob x\n\nf 0 0 perhaps 1 1\n", 4),
        ("iowhy-readahead 1\njob x\n\nm 0 perhaps 1 1\n", 4),
        ("iowhy-readahead 1\njob x\n\n+ 0 1 0 x65537\n", 4),
        ("iowhy-readahead 1\njob x\n\n+ 0 4503599627370496 0\n", 4),
    ] {
        assert_eq!(Recorded::from_text(text).expect_err(text).0, line, "{text:?}");
    }
}

#[test]
fn the_model_of_a_release_is_the_nearest() {
    for (release, name, exact) in [
        ("6.18.44", "linux-6.18", true),
        ("6.12.9-amd64", "linux-6.12.43", true),
        ("6.1.0-37-amd64", "linux-6.1", false),
        ("6.1.0-37-amd64 Debian 6.1.140-1", "linux-6.1", true),
        ("6.8.0-45-generic", "linux-6.6.57", true),
        ("6.19.1", "linux-6.18", false),
        ("6.10.2", "linux-6.10", false),
        ("7.2.0", "linux-7.2", true),
        ("nonsense", "linux-7.2", false),
    ] {
        let (release, build) = release.split_once(' ').unwrap_or((release, ""));
        let (entry, model) = model_of(release, build);
        assert_eq!((entry.name, model.exact), (name, exact), "{release}");
        assert_eq!(model.differs.is_empty(), exact, "{release}: {}", model.differs);
    }
}

#[test]
fn offsets_have_64_bits_and_none_is_below_zero() {
    let text = |offset: &str| {
        let facts =
            "job a\nkernel 6.18\nfilesystem ext4\nfile_bytes 1\nra_pages 1\nio_pages 1\nmax_folio_order 0\nlost 0\n";
        format!("iowhy-readahead 1\n{facts}\nr 0 0 {offset} 512\n")
    };
    let long = Recorded::from_text(&text("18446744073709551615")).expect("a record");
    assert_eq!(Recorded::from_text(&long.to_text()), Ok(long));
    assert_eq!(Recorded::from_text(&text("-512")).expect_err("it is below zero").0, 11);
}

use crate::{explain_pair, names};

#[test]
fn more_commits_for_as_many_syncs_are_named() {
    let job = |on: &str, disk: &str| {
        format!(
            "run fio --name=j --rw=randwrite --bs=4k --size=16m --overwrite=1 --number_ios=60 --numjobs=4 \
             --fsync=1 --on sim:{on} --disk {disk}"
        )
    };
    let base = "linux-2.6.22";
    let found =
        explain_pair(8, &job(base, "sata-2010"), &job(&format!("{base},filesystem.fsync=always-commit"), "sata-2010"));
    assert_eq!(names(&found).first(), Some(&"journal-commit-per-fsync"), "{found:#?}");
    for disk in ["sata-2010", "sata-2010,rpm=5400"] {
        let found = explain_pair(3, &job(base, "sata-2010"), &job(base, disk));
        assert!(!names(&found).contains(&"journal-commit-per-fsync"), "{disk}: {found:#?}");
    }
}

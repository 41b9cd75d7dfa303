use std::os::unix::fs::symlink;

use super::*;
use std::os::unix::fs::PermissionsExt;

/// A folder that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("iowhy-ledger-{name}-{:016x}", random()));
        fs::create_dir(&path).expect("a folder can be made");
        Scratch(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn ledger(&self) -> Ledger {
        let (ledger, left) = Ledger::open_in(&self.path("state")).expect("a ledger");
        assert_eq!(left, []);
        ledger
    }

    /// Names of everything but the ledgers.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
        names.retain(|name| name != "state");
        names.sort();
        names
    }

    /// Makes open entries look like those of a process that has died, and sweeps.
    fn die_and_sweep(&self, ledger: Ledger, guards: Vec<Guard>) -> Vec<Left> {
        // Forgotten values are not dropped, as if the process had been killed. The file is closed: so is its lock.
        let (file, path) = locked(&ledger.book).file.take().expect("a ledger that has entries");
        drop(file);
        guards.into_iter().for_each(std::mem::forget);
        // No process has number 0.
        fs::rename(&path, path.with_file_name("0-1-0.ledger")).expect("a ledger can be renamed");
        let seen = left_behind(&self.path("state")).expect("a list");
        let swept = sweep(&self.path("state")).expect("a sweep");
        assert_eq!(seen.len(), swept.len());
        assert!(seen.iter().all(|left| left.state != State::Undone), "looking does not undo: {seen:?}");
        let names = |left: &[Left]| left.iter().map(|left| left.what.clone()).collect::<Vec<String>>();
        let stuck: Vec<Left> = swept.iter().filter(|left| matches!(left.state, State::Stuck(_))).cloned().collect();
        assert_eq!(names(&left_behind(&self.path("state")).expect("a list")), names(&stuck));
        swept
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_process_that_cannot_drop_its_guards_undoes_them() {
    let scratch = Scratch::new("own");
    let ledger = scratch.ledger();
    let (files, guard) = ledger.create_files(&[scratch.path("file")]).expect("a file");
    std::mem::forget((files, guard, ledger.create_directory(&scratch.path("folder")).expect("a folder")));
    assert_eq!(scratch.names(), ["file", "folder"]);
    undo_own(&scratch.path("state"));
    assert_eq!(scratch.names(), Vec::<String>::new());
    assert_eq!(ledgers(&scratch.path("state")).expect("a list"), Vec::<PathBuf>::new());
}

#[test]
fn what_is_made_is_gone_after_the_guard_and_so_is_the_ledger() {
    let scratch = Scratch::new("guard");
    let ledger = scratch.ledger();
    assert!(!scratch.path("state").exists(), "nothing is written before there is something to write");
    let paths = [scratch.path("a"), scratch.path("b c")];
    let (files, guard) = ledger.create_files(&paths).expect("files");
    let folder = ledger.create_directory(&scratch.path("d")).expect("a folder");
    assert_eq!((files.len(), scratch.names()), (2, vec!["a".to_owned(), "b c".to_owned(), "d".to_owned()]));
    let ledgers = ledgers(&scratch.path("state")).expect("a list");
    assert_eq!(ledgers.len(), 1);
    drop(guard);
    assert_eq!(scratch.names(), ["d"]);
    folder.undo().expect("an empty folder can be removed");
    assert_eq!(scratch.names(), [""; 0]);
    assert!(!ledgers[0].exists());
}

#[test]
fn what_is_kept_stays_and_is_known_as_ours() {
    let scratch = Scratch::new("keep");
    let ledger = scratch.ledger();
    let (_, guard) = ledger.create_files(&[scratch.path("a")]).expect("a file");
    guard.keep().expect("it can be kept");
    assert_eq!(scratch.names(), ["a"]);
    assert_eq!(ledgers(&scratch.path("state")).expect("a list"), [] as [PathBuf; 0]);
    fs::write(scratch.path("foreign"), "x").expect("a file");
    fs::copy(scratch.path("a"), scratch.path("copy")).expect("a copy");
    let open = |name: &str| File::open(scratch.path(name)).expect("it is there");
    assert_eq!(["a", "foreign", "copy"].map(|name| mark::is_marked(&open(name))), [true, false, false]);
}

#[test]
fn nothing_is_made_over_what_exists() {
    let scratch = Scratch::new("exists");
    fs::write(scratch.path("b"), "precious").expect("a file");
    let ledger = scratch.ledger();
    let error = ledger.create_files(&[scratch.path("a"), scratch.path("b")]).expect_err("b exists");
    let message = error.to_string();
    assert!(message.starts_with("cannot make the file ") && message.contains("/b: "), "{message}");
    assert_eq!(scratch.names(), ["b"]);
    assert_eq!(fs::read(scratch.path("b")).expect("the file"), b"precious");
    assert!(ledger.create_directory(&scratch.path("b")).is_err());
    assert_eq!(ledgers(&scratch.path("state")).expect("a list"), [] as [PathBuf; 0]);
}

#[test]
fn what_a_dead_process_left_is_undone_the_latest_first() {
    let scratch = Scratch::new("dead");
    let ledger = scratch.ledger();
    let folder = ledger.create_directory(&scratch.path("d")).expect("a folder");
    let (_, file) = ledger.create_files(&[scratch.path("d/f")]).expect("a file");
    fs::write(scratch.path("v"), "old\n").expect("a setting");
    let value = ledger.set(&scratch.path("v"), "new").expect("it can be set").expect("it was another");
    assert!(ledger.set(&scratch.path("v"), "new").expect("it can be read").is_none(), "it is that already");
    let left = scratch.die_and_sweep(ledger, vec![folder, file, value]);
    assert_eq!(left.iter().map(|left| &left.state).collect::<Vec<_>>(), [&State::Undone; 3]);
    assert!(left[0].what.starts_with("the setting") && left[2].what.starts_with("the folder"), "{left:?}");
    assert_eq!(scratch.names(), ["v"]);
    assert_eq!(fs::read(scratch.path("v")).expect("the setting"), b"old\n");
}

#[test]
fn a_lock_that_outlives_its_owner_for_a_moment_is_waited_for() {
    let scratch = Scratch::new("forked");
    let ledger = scratch.ledger();
    let folder = ledger.create_directory(&scratch.path("d")).expect("a folder");
    let (child, path) = locked(&ledger.book).file.take().expect("a ledger that has entries");
    std::mem::forget(folder);
    fs::rename(&path, path.with_file_name("0-1-0.ledger")).expect("a ledger can be renamed");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            drop(child);
        });
        let left = sweep(&scratch.path("state")).expect("a sweep");
        assert_eq!(left.iter().map(|left| &left.state).collect::<Vec<_>>(), [&State::Undone]);
    });
    assert_eq!(scratch.names(), [] as [String; 0]);
}

#[test]
fn what_is_not_ours_any_more_is_left_alone() {
    let scratch = Scratch::new("foreign");
    let ledger = scratch.ledger();
    let (_, guard) =
        ledger.create_files(&["replaced", "linked", "gone"].map(|name| scratch.path(name))).expect("files");
    for name in ["replaced", "linked", "gone"] {
        fs::remove_file(scratch.path(name)).expect("it is there");
    }
    fs::write(scratch.path("replaced"), "precious").expect("a file");
    symlink(scratch.path("replaced"), scratch.path("linked")).expect("a link");
    fs::write(scratch.path("v"), "1\n").expect("a setting");
    let value = ledger.set(&scratch.path("v"), "2").expect("it can be set").expect("it was another");
    fs::write(scratch.path("v"), "3\n").expect("a setting");
    let left = scratch.die_and_sweep(ledger, vec![guard, value]);
    assert!(left.iter().all(|left| matches!(left.state, State::NotOurs(_))), "{left:?}");
    assert_eq!(left.len(), 3, "of the third file nothing was left: {left:?}");
    assert_eq!(scratch.names(), ["linked", "replaced", "v"]);
    assert_eq!(fs::read(scratch.path("v")).expect("the setting"), b"3\n");
}

#[test]
fn what_cannot_be_undone_stays_in_the_ledger() {
    let scratch = Scratch::new("stuck");
    let ledger = scratch.ledger();
    let folder = ledger.create_directory(&scratch.path("d")).expect("a folder");
    fs::write(scratch.path("d/foreign"), "x").expect("a file");
    let left = scratch.die_and_sweep(ledger, vec![folder]);
    assert!(matches!(&left[..], [Left { state: State::Stuck(_), .. }]), "{left:?}");
    fs::remove_file(scratch.path("d/foreign")).expect("it is there");
    let left = sweep(&scratch.path("state")).expect("a sweep");
    assert!(matches!(&left[..], [Left { state: State::Undone, .. }]), "{left:?}");
    assert_eq!(scratch.names(), [""; 0]);
}

#[test]
fn a_folder_for_one_run_goes_with_all_that_is_in_it() {
    let scratch = Scratch::new("scratch");
    let ledger = scratch.ledger();
    fs::write(scratch.path("precious"), "x").expect("a file");
    for dies in [false, true] {
        let folder = ledger.create_scratch_directory(&scratch.path("d")).expect("a folder");
        fs::create_dir(scratch.path("d/e")).expect("a folder");
        fs::write(scratch.path("d/e/f"), "x").expect("a file");
        symlink(scratch.path("precious"), scratch.path("d/link")).expect("a link");
        if dies {
            let left = scratch.die_and_sweep(ledger.clone(), vec![folder]);
            assert!(matches!(&left[..], [Left { state: State::Undone, .. }]), "{left:?}");
        } else {
            folder.undo().expect("it can be removed");
        }
        assert_eq!(scratch.names(), ["precious"]);
    }
}

/// The moments between two steps of making a file: the state on the disk, and the expected end.
#[test]
fn at_every_moment_it_is_known_what_is_ours() {
    let file = |scratch: &Scratch| Item::File { path: scratch.path("f"), temporary: scratch.path(".iowhy-1") };
    // (temporary name, own name made by us, own name by another process, identity known) and the names that stay.
    let cases: [(bool, bool, bool, bool, &[&str]); 7] = [
        (false, false, false, false, &[]),
        (true, false, false, false, &[]),
        (true, false, true, false, &["f"]),
        (true, false, true, true, &["f"]),
        (true, false, false, true, &[]),
        (false, true, false, true, &[]),
        (false, false, true, true, &["f"]),
    ];
    for (temporary, own, foreign, identified, stay) in cases {
        let scratch = Scratch::new("moments");
        let made = File::create_new(scratch.path(".iowhy-1")).expect("a file");
        let identity = identified.then(|| Identity::of_file(&made).expect("its identity"));
        if foreign {
            fs::write(scratch.path("f"), "precious").expect("a file");
        }
        match (temporary, own) {
            (false, true) => fs::rename(scratch.path(".iowhy-1"), scratch.path("f")).expect("a rename"),
            (false, false) => fs::remove_file(scratch.path(".iowhy-1")).expect("a removal"),
            _ => {}
        }
        let item = file(&scratch);
        let state = item.undo(identity.as_ref(), false);
        assert!(!matches!(state, State::Stuck(_) | State::There), "{state:?}");
        assert_eq!(scratch.names(), stay, "{temporary} {own} {foreign} {identified}: {state:?}");
        assert!(!matches!(item.undo(identity.as_ref(), false), State::Undone), "the second time there is nothing left");
    }
}

#[test]
fn a_folder_that_others_can_write_to_is_not_trusted() {
    let scratch = Scratch::new("trust");
    fs::create_dir(scratch.path("state")).expect("a folder");
    fs::write(scratch.path("state/0-1-0.ledger"), "iowhy-ledger 1 x 0 1\n").expect("a file");
    fs::set_permissions(scratch.path("state"), fs::Permissions::from_mode(0o777)).expect("permissions");
    for result in [left_behind(&scratch.path("state")), sweep(&scratch.path("state"))] {
        assert!(matches!(result, Err(LedgerError::Untrusted(_))), "{result:?}");
    }
    assert!(scratch.path("state/0-1-0.ledger").exists());
    fs::rename(scratch.path("state"), scratch.path("real")).expect("a rename");
    fs::set_permissions(scratch.path("real"), fs::Permissions::from_mode(0o700)).expect("permissions");
    symlink(scratch.path("real"), scratch.path("state")).expect("a link");
    assert!(matches!(sweep(&scratch.path("state")), Err(LedgerError::Untrusted(_))));
}

#[test]
fn a_file_that_is_no_ledger_is_reported_and_kept() {
    let scratch = Scratch::new("garbage");
    fs::create_dir(scratch.path("state")).expect("a folder");
    let permissions = fs::Permissions::from_mode(0o700);
    fs::set_permissions(scratch.path("state"), permissions).expect("permissions");
    for (name, text) in [("0-1-0.ledger", "rm -rf /\n"), ("notes.ledger", "x\n"), ("other", "x\n")] {
        fs::write(scratch.path("state").join(name), text).expect("a file");
    }
    let left = sweep(&scratch.path("state")).expect("a sweep");
    assert!(left.len() == 2 && left.iter().all(|left| matches!(left.state, State::Stuck(_))), "{left:?}");
    assert!(left.iter().any(|left| left.to_string().contains("line 1 is not one of a ledger")), "{left:?}");
    assert_eq!(fs::read_dir(scratch.path("state")).expect("a folder").count(), 3);
}

#[test]
fn the_entries_of_the_living_are_left_alone() {
    let scratch = Scratch::new("living");
    let (_, guard) = scratch.ledger().create_files(&[scratch.path("a")]).expect("a file");
    let (second, left) = Ledger::open_in(&scratch.path("state")).expect("a second ledger");
    assert_eq!((left, scratch.names()), (vec![], vec!["a".to_owned()]));
    let (_, other) = second.create_files(&[scratch.path("b")]).expect("a file");
    drop(other);
    assert_eq!(scratch.names(), ["a"], "each ledger has a file of its own");
    drop(guard);
    assert_eq!(scratch.names(), [""; 0]);
}

#[test]
fn a_process_is_ended_if_it_is_the_one_that_was_started() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("it is everywhere");
    let start = started(child.id()).expect("it runs");
    end_process(child.id(), start + 1).expect("another one is left alone");
    assert_eq!(child.try_wait().expect("ours"), None);
    end_process(child.id(), start).expect("it dies");
    assert!(child.try_wait().expect("ours").is_some_and(|status| !status.success()), "it is waited for");
}

#[test]
fn a_process_is_known_by_its_start() {
    let me = std::process::id();
    assert!(started(me).is_some());
    assert_eq!(start_in_stat("7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 2735 31 4"), Some(2735));
    assert_eq!(start_in_stat("7 (a) Z 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 2735 31 4"), None);
    assert_eq!(start_in_stat("7 (a"), None);
    assert_eq!(writer(Path::new("/x/12-345-00ff.ledger")), Some((12, 345)));
    assert_eq!(writer(Path::new("/x/12.ledger")), None);
}

#[test]
fn of_other_users_only_instances_of_tracefs_are_undone() {
    let cases = [
        ("/sys/kernel/tracing/instances/iowhy-1", true),
        ("/sys/kernel/debug/tracing/instances/iowhy-1", true),
        ("/sys/kernel/tracing/instances/theirs", false),
        ("/sys/kernel/tracing/instances/../../iowhy-1", false),
        ("/srv/iowhy-1", false),
    ];
    for (path, expected) in cases {
        assert_eq!(is_instance(&Item::TraceInstance { path: path.into() }), expected, "{path}");
    }
    let scratch = Scratch::new("others");
    let ledger = scratch.ledger();
    let (_, guard) = ledger.create_files(&[scratch.path("file")]).expect("a file");
    let (file, path) = locked(&ledger.book).file.take().expect("it has an entry");
    drop(file);
    std::mem::forget(guard);
    let dead = path.with_file_name("0-1-0.ledger");
    fs::rename(&path, &dead).expect("a ledger can be renamed");
    let mut left = Vec::new();
    look_into(vec![dead.clone()], (user(), false), true, &mut left);
    assert_eq!((left, scratch.names()), (vec![], vec!["file".to_owned()]));
    look_into(vec![dead.clone()], (user(), true), true, &mut Vec::new());
    assert_eq!((dead.exists(), scratch.names()), (false, vec![]));
}

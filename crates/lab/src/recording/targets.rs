//! Tasks that a recording is about: those named by number, by name or by control group, and all that descend from them.
//!
//! ```text
//! --pid P        the process, its threads, its children now and later; it ends with the last of those named
//! --comm NAME    every process of this name (its first 15 letters), also one that is started later
//! --cgroup PATH  processes of the group and of the groups below it, also those that enter later; PATH is a folder, or
//!                the group's path below any mounted hierarchy, version 1 or 2
//! --unit NAME    the group that is called after the unit, `.service` if it has no ending; without one, those of its
//!                instances (NAME@..)
//! ```
//! Several are a union. Known limit: a process that takes a name or enters a group is seen at the next look (after
//! [`LOOK`], and [`PART`] times as long as a look takes); the kernel itself follows children of followed tasks, from
//! their first event on.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use iowhy_live::machine;
use iowhy_text::diagnose::{Problem, Problems, nearest};

use super::Request;

/// How often it is looked for processes that came otherwise than as children.
const LOOK: Duration = Duration::from_millis(100);

/// A look may take one part of the time in so many: these.
const PART: u32 = 20;

/// The pause after a look that took so long.
pub(super) fn pause(took: Duration) -> Duration {
    LOOK.max(took * PART)
}

/// Endings of systemd's units that have a control group.
const UNITS: [&str; 3] = ["service", "scope", "slice"];

/// Groups are nested no deeper than this.
const DEEPEST: usize = 32;

/// A process as `/proc` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) parent: u32,
    pub(super) comm: String,
    /// It has ended, and only its status is left.
    pub(super) ended: bool,
    /// Processor time, hundredths of a second.
    pub(super) ticks: u64,
}

/// A line of `/proc/PID/stat`: the name is in brackets, and may hold any letter.
fn process(stat: &str) -> Option<Process> {
    let (head, rest) = stat.rsplit_once(')')?;
    let (pid, comm) = head.split_once('(')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |nr: usize| fields.get(nr).and_then(|field| field.parse::<u64>().ok());
    Some(Process {
        pid: pid.trim().parse().ok()?,
        parent: number(1)? as u32,
        comm: comm.to_owned(),
        ended: matches!(fields.first(), Some(&("Z" | "X"))),
        ticks: number(11).unwrap_or(0) + number(12).unwrap_or(0),
    })
}

/// All processes that have not ended, but for this one.
pub(super) fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let of = |entry: fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        process(&fs::read_to_string(entry.path().join("stat")).ok()?).filter(|it| it.pid == pid && !it.ended)
    };
    entries.filter_map(of).filter(|it| it.pid != std::process::id()).collect()
}

/// These processes and all that descend from them, the first ones first.
pub(super) fn with_descendants(pids: &[u32], all: &[Process]) -> Vec<u32> {
    let mut found = pids.to_vec();
    let mut place = 0;
    while let Some(pid) = found.get(place).copied() {
        let children: Vec<u32> = all.iter().filter(|it| it.parent == pid).map(|it| it.pid).collect();
        found.extend(children.into_iter().filter(|child| !pids.contains(child)));
        place += 1;
    }
    found.dedup();
    found
}

/// The hierarchies of control groups that are mounted.
fn hierarchies() -> Vec<PathBuf> {
    let mounts = machine::current_mounts();
    let of_groups = mounts.into_iter().filter(|mount| matches!(mount.filesystem.as_str(), "cgroup" | "cgroup2"));
    of_groups.map(|mount| mount.point).collect()
}

fn is_group(folder: &Path) -> bool {
    folder.join("cgroup.procs").is_file()
}

/// The groups below a folder, itself included.
fn groups_below(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    if !is_group(folder) || depth > DEEPEST {
        return;
    }
    found.push(folder.to_owned());
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            groups_below(&entry.path(), depth + 1, found);
        }
    }
}

/// All groups of these hierarchies but the uppermost, each with its path there.
fn all_groups(roots: &[PathBuf]) -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    for root in roots {
        let mut found = Vec::new();
        groups_below(root, 0, &mut found);
        let named = |folder: PathBuf| {
            let path = folder.strip_prefix(root).ok()?.to_string_lossy().into_owned();
            (!path.is_empty()).then_some((folder, path))
        };
        all.extend(found.into_iter().filter_map(named));
    }
    all
}

/// The folders of a control group: one in each hierarchy that has it.
fn group(word: &str, roots: &[PathBuf]) -> Result<Vec<PathBuf>, Problem> {
    let inside = word.trim_matches('/');
    let own = Path::new(word);
    if own.is_absolute() && is_group(own) {
        return Ok(vec![own.to_owned()]);
    }
    let found: Vec<PathBuf> = roots.iter().map(|root| root.join(inside)).filter(|folder| is_group(folder)).collect();
    if !found.is_empty() && !inside.is_empty() {
        return Ok(found);
    }
    let paths: BTreeSet<String> = all_groups(roots).into_iter().map(|(_, path)| path).collect();
    let problem = Problem::error(format!("`{word}` is not a control group")).near(inside, paths);
    Err(problem.help("a folder with cgroup.procs, or a path as /proc/PID/cgroup has it; --unit for a systemd unit"))
}

/// The folders of the control groups that are called after a unit of systemd.
fn unit(word: &str, roots: &[PathBuf]) -> Result<Vec<PathBuf>, Problem> {
    let is_unit = |name: &str| name.rsplit_once('.').is_some_and(|(_, ending)| UNITS.contains(&ending));
    let full = if is_unit(word) { word.to_owned() } else { format!("{word}.service") };
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let all = all_groups(roots);
    let of = |is: &dyn Fn(&str) -> bool| -> Vec<PathBuf> {
        all.iter().filter(|(_, path)| is(&last(path))).map(|(at, _)| at.clone()).collect()
    };
    // A unit that only starts instances of another has no group (postgresql.service of Debian).
    let instance = |name: &str| {
        let ((own, ending), (of, kind)) = (full.rsplit_once('.')?, name.rsplit_once('.')?);
        Some(of.strip_prefix(own)?.starts_with('@') && ending == kind)
    };
    for found in [of(&|name| name == full), of(&|name| instance(name) == Some(true))] {
        if !found.is_empty() {
            return Ok(found);
        }
    }
    let known: BTreeSet<String> = all.iter().map(|(_, path)| last(path)).filter(|name| is_unit(name)).collect();
    let help = if known.is_empty() {
        "no unit has a control group here; --cgroup PATH, --comm NAME or --pid PID"
    } else {
        "a unit that runs (`systemctl list-units`); --cgroup PATH, --comm NAME"
    };
    Err(Problem::error(format!("no control group of a unit `{full}`")).near(&full, known).help(help))
}

/// One target as it was named.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Pid(u32),
    Comm(String),
    /// Folders of one group, or of one unit.
    Groups(Vec<PathBuf>),
}

/// One target of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    kind: Kind,
    /// Its name in messages.
    pub(super) label: String,
}

impl Target {
    /// The processes that it names now, without their descendants.
    pub(super) fn roots(&self, all: &[Process]) -> Vec<u32> {
        match &self.kind {
            Kind::Pid(pid) => vec![*pid],
            Kind::Comm(name) => all.iter().filter(|it| it.comm == *name).map(|it| it.pid).collect(),
            Kind::Groups(folders) => {
                let mut pids = BTreeSet::new();
                for folder in folders {
                    let mut groups = Vec::new();
                    groups_below(folder, 0, &mut groups);
                    for group in groups {
                        // Of a threaded group the file cannot be read; its processes are those of the group above.
                        let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
                        pids.extend(text.lines().filter_map(|line| line.trim().parse::<u32>().ok()));
                    }
                }
                pids.into_iter().filter(|pid| *pid != 0 && *pid != std::process::id()).collect()
            }
        }
    }

    /// Whether something of it may still come.
    fn lives(&self, all: &[Process]) -> bool {
        match &self.kind {
            Kind::Pid(pid) => all.iter().any(|it| it.pid == *pid),
            Kind::Comm(_) => true,
            Kind::Groups(folders) => folders.iter().any(|folder| is_group(folder)),
        }
    }
}

/// All targets; none if the recording is about a command, or about everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Targets {
    pub(super) all: Vec<Target>,
}

impl Targets {
    /// Finds what was named.
    ///
    /// # Errors
    /// All that is not there, each with the nearest names.
    pub(super) fn find(request: &Request) -> Result<Targets, Problems> {
        Targets::find_in(request, &processes(), &hierarchies())
    }

    fn find_in(request: &Request, now: &[Process], roots: &[PathBuf]) -> Result<Targets, Problems> {
        let mut problems = Problems::default();
        let mut all = Vec::new();
        for pid in &request.pids {
            match now.iter().find(|it| it.pid == *pid) {
                Some(found) => {
                    all.push(Target { kind: Kind::Pid(*pid), label: format!("pid {pid} ({})", found.comm) });
                }
                None => {
                    let problem = Problem::error(format!("no process {pid}"));
                    problems.push(problem.help("--comm NAME finds a process by its name; `ps -e` lists both"));
                }
            }
        }
        for name in &request.comms {
            let short: String = name.chars().take(15).collect();
            if now.iter().any(|it| it.comm == short) {
                all.push(Target { kind: Kind::Comm(short), label: format!("comm {name}") });
                continue;
            }
            let names: BTreeSet<&str> = now.iter().map(|it| it.comm.as_str()).collect();
            let help = if nearest(name, &names).is_empty() {
                "the name in /proc/PID/comm (`ps -e`), 15 letters at most"
            } else {
                "one of these, or --pid PID"
            };
            problems.push(Problem::error(format!("no process is called `{name}`")).near(name, names).help(help));
        }
        let mut grouped = |label: String, found: Result<Vec<PathBuf>, Problem>| match found {
            Ok(folders) => all.push(Target { kind: Kind::Groups(folders), label }),
            Err(problem) => problems.push(problem),
        };
        for word in &request.cgroups {
            grouped(format!("cgroup {word}"), group(word, roots));
        }
        for word in &request.units {
            grouped(format!("unit {word}"), unit(word, roots));
        }
        if problems.any_error() { Err(problems) } else { Ok(Targets { all }) }
    }

    /// The processes named now, and all that descend from them.
    pub(super) fn members(&self, now: &[Process]) -> Vec<u32> {
        let mut roots: Vec<u32> = self.all.iter().flat_map(|target| target.roots(now)).collect();
        roots.sort_unstable();
        roots.dedup();
        with_descendants(&roots, now)
    }

    /// Whether a process is in a group that was not known: a quick look at groups alone.
    pub(super) fn entered(&self, known: &BTreeSet<u32>) -> bool {
        let groups = self.all.iter().filter(|target| matches!(target.kind, Kind::Groups(_)));
        groups.flat_map(|target| target.roots(&[])).any(|pid| !known.contains(&pid))
    }

    /// Whether something of them may still come.
    pub(super) fn live(&self, now: &[Process]) -> bool {
        self.all.iter().any(|target| target.lives(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(pid: u32, parent: u32, comm: &str) -> Process {
        Process { pid, parent, comm: comm.to_owned(), ended: false, ticks: 0 }
    }

    fn some() -> Vec<Process> {
        vec![at(1, 0, "init"), at(7, 1, "postgres"), at(8, 7, "postgres"), at(9, 8, "sh"), at(20, 1, "a name) of (15")]
    }

    #[test]
    fn lines_of_proc_are_read_whatever_the_name() {
        let line = "20 (a name) of (15) S 1 20 20 0 -1 4194560 1 0 0 0 12 30 0 0 20 0 1 0 5 6 7";
        assert_eq!(process(line), Some(Process { ticks: 42, ..at(20, 1, "a name) of (15") }));
        assert!(process("9 (sh) Z 1 0").is_some_and(|it| it.ended));
        for line in ["", "9", "9 (sh)", "x (sh) S 1"] {
            assert_eq!(process(line), None, "{line}");
        }
    }

    #[test]
    fn descendants_are_found_at_any_depth() {
        assert_eq!(with_descendants(&[7], &some()), [7, 8, 9]);
        assert_eq!(with_descendants(&[8, 20], &some()), [8, 20, 9]);
        assert_eq!(with_descendants(&[7, 8], &some()), [7, 8, 9], "each once");
    }

    /// A tree of groups in the target folder: two hierarchies, one with a unit.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Tree {
            let tree = Tree(std::env::temp_dir().join(format!("iowhy-groups-{name}-{}", std::process::id())));
            for (folder, pids) in [
                ("one", ""),
                ("one/system.slice", "1\n"),
                ("one/system.slice/system-postgresql.slice", ""),
                ("one/system.slice/system-postgresql.slice/postgresql@15-main.service", "7\n8\n"),
                ("one/system.slice/system-postgresql.slice/postgresql@15-main.service/inner", "9\n"),
                ("two", ""),
                ("two/docker", ""),
                ("two/docker/abc", "20\n"),
                ("two/system.slice", "8\n"),
            ] {
                let folder = tree.0.join(folder);
                fs::create_dir_all(&folder).expect("a folder");
                fs::write(folder.join("cgroup.procs"), pids).expect("a file");
            }
            tree
        }

        fn roots(&self) -> Vec<PathBuf> {
            vec![self.0.join("one"), self.0.join("two")]
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn groups_and_units_are_found_with_the_groups_below_them() {
        let tree = Tree::new("found");
        let folder = tree.0.join("two/docker/abc").to_string_lossy().into_owned();
        for (cgroups, units, expected) in [
            (vec!["/docker/abc"], vec![], vec![20]),
            (vec![folder.as_str()], vec![], vec![20]),
            (vec!["docker/"], vec![], vec![20]),
            (vec!["system.slice"], vec![], vec![1, 7, 8, 9]),
            (vec![], vec!["postgresql@15-main"], vec![7, 8, 9]),
            (vec!["docker"], vec!["postgresql@15-main.service"], vec![7, 8, 9, 20]),
            (vec![], vec!["system-postgresql.slice"], vec![7, 8, 9]),
            (vec![], vec!["postgresql"], vec![7, 8, 9]),
            (vec![], vec!["postgresql.service"], vec![7, 8, 9]),
        ] {
            let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
            let request = Request { cgroups: own(&cgroups), units: own(&units), ..Request::default() };
            let found = Targets::find_in(&request, &[], &tree.roots()).expect("they are there");
            assert_eq!(found.members(&[]), expected, "{cgroups:?} {units:?}");
            assert!(found.live(&[]));
        }
        // A process that enters later is found at the next look; a group that goes ends it.
        let request = Request { cgroups: vec!["docker".into()], ..Request::default() };
        let found = Targets::find_in(&request, &[], &tree.roots()).expect("it is there");
        fs::write(tree.0.join("two/docker/cgroup.procs"), "31\n").expect("a file");
        assert_eq!(found.members(&[at(32, 31, "new")]), [20, 31, 32]);
        assert!(found.entered(&BTreeSet::from([20])) && !found.entered(&BTreeSet::from([20, 31])));
        fs::remove_dir_all(tree.0.join("two/docker")).expect("it goes");
        assert!(found.members(&[]).is_empty() && !found.live(&[]));
    }

    #[test]
    fn all_that_is_not_there_is_said_at_once_with_near_names() {
        let tree = Tree::new("missing");
        let request = Request {
            pids: vec![7, 4711],
            comms: vec!["postgrs".into(), "sh".into()],
            cgroups: vec!["docker/abd".into(), "/".into()],
            units: vec!["postgresql@15-man".into()],
            ..Request::default()
        };
        let problems = Targets::find_in(&request, &some(), &tree.roots()).expect_err("most of it is not there");
        let text = problems.render();
        assert_eq!(problems.list.len(), 5, "{text}");
        for expected in ["no process 4711", "nearest: postgres\n", "docker/abc", "postgresql@15-main.service", "`/` is"]
        {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let request = Request { pids: vec![7, 8], comms: vec!["sh".into()], ..Request::default() };
        let found = Targets::find_in(&request, &some(), &[]).expect("they are there");
        assert_eq!(found.members(&some()), [7, 8, 9]);
        assert_eq!(found.all[0].label, "pid 7 (postgres)");
    }
}

//! `cargo xtask programs`: programs that nobody here wrote, each under `iowhy conform --live -- PROGRAM`, on every file
//! system that a model says something of, and under every scheduler in turn. Prints a table; the goal is no difference
//! that is not explained.
//!
//! Files are made once, below a folder of its own in TMPDIR, and copied to a loop device with each file system, which
//! is mounted anew before each program. Programs write to a scratch folder there, or beside it where nothing can be
//! written. `--rows` prints every program on every file system, `--only` takes names of programs or file systems,
//! `--keep FOLDER` keeps the reports in which something differs. Programs that are not installed are listed.
//!
//! Needs root. All that is made goes through the ledger, so it is undone after an error and a kill, too.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use iowhy_live::ledger::{Guard, Ledger, LoopOptions};
use iowhy_live::signal;
use serde_json::Value;

use crate::{Outcome, root};

/// A program: its name, and its command line. `{d}` is the folder with the files, `{s}` one to write to.
const PROGRAMS: &[(&str, &str)] = &[
    ("dd", "dd if={d}/big of=/dev/null bs=1M"),
    ("dd direct", "dd if={d}/big of=/dev/null bs=64k iflag=direct"),
    ("cat", "cat {d}/big {d}/text"),
    ("cp", "cp {d}/big {s}/copy"),
    ("md5sum", "md5sum {d}/big {d}/text"),
    ("sha256sum", "sha256sum {d}/big"),
    ("b2sum", "b2sum {d}/text"),
    ("cmp", "cmp {d}/big {d}/same"),
    ("diff", "diff -r {d}/tree {d}/twin"),
    ("sort", "sort {d}/text -o {s}/sorted"),
    ("wc", "wc {d}/text"),
    ("tac", "tac {d}/text"),
    ("shuf", "shuf -n 1000 {d}/text"),
    ("tail", "tail -n 2000 {d}/text"),
    ("split", "split -b 1M {d}/text {s}/part"),
    ("od", "od -A d -j 1000000 -N 3000000 {d}/big"),
    ("grep", "grep -rc needle {d}"),
    ("file", "find {d}/tree -type f -exec file {} +"),
    ("find", "find {d} -type f -size +4k -exec head -c 1 {} ;"),
    ("strings", "strings {d}/big"),
    ("tar", "tar cf - {d}/tree {d}/big | cat"),
    ("gzip", "gzip -1 -c {d}/text"),
    ("bzip2", "bzip2 -1 -c {d}/small"),
    ("xz", "xz -0 -T1 -c {d}/text"),
    ("zstd", "zstd -q -c {d}/text"),
    ("zip", "zip -q -r {s}/all.zip {d}/tree"),
    ("sqlite3", "sqlite3 {d}/base.db 'select count(*), sum(length(b)) from t where a % 7 = 3'"),
    ("sqlite3 mmap", "sqlite3 {d}/base.db 'pragma mmap_size=100000000' 'select sum(length(b)) from t'"),
    ("git", "git -c safe.directory=* -C {d}/repo log -p"),
    ("git fsck", "git -c safe.directory=* -C {d}/repo fsck --full"),
    ("rsync", "rsync -a {d}/tree {s}/"),
    (
        "python3 mmap",
        "python3 -c 'import mmap, random; random.seed(1); f = open(\"{d}/big\", \"rb\"); m = mmap.mmap(f.fileno(), 0, \
         prot=mmap.PROT_READ); print(sum(m[random.randrange(len(m))] for _ in range(3000)), m.find(b\"needle\"))'",
    ),
    (
        "python3",
        "python3 -c 'import random; random.seed(2); f = open(\"{d}/big\", \"rb\", 0); print(sum(len(f.read(5000)) \
         for _ in range(800) if f.seek(random.randrange(16000000)) >= 0))'",
    ),
    (
        "RWF_DONTCACHE",
        "python3 -c 'import os; f = os.open(\"{d}/big\", os.O_RDONLY); b = bytearray(20000); print(sum(os.preadv(f, \
         [b], 20000 * n, 128) for n in range(500)))'",
    ),
    ("perl", "perl -ne 'END { print $n } $n += length' {d}/text"),
    ("awk", "awk '{ n += NF } END { print n }' {d}/text"),
    ("fio", "fio --name=a --readonly --filename={d}/big --rw=randread --bs=12k --io_size=8m"),
    (
        "fio threads",
        "fio --name=a --readonly --filename={d}/big --rw=read --bs=16k --numjobs=3 --thread --offset_increment=4m",
    ),
    (
        "fio libaio",
        "fio --name=a --readonly --filename={d}/big --rw=read --bs=16k --direct=1 --ioengine=libaio --iodepth=32 \
         --iodepth_batch=8",
    ),
    (
        "fio io_uring",
        "fio --name=a --readonly --filename={d}/big --rw=randread --bs=8k --ioengine=io_uring --iodepth=16 \
         --io_size=8m",
    ),
    ("fio mmap", "fio --name=a --readonly --filename={d}/big --rw=randread --bs=4k --ioengine=mmap --io_size=4m"),
    (
        "fio write",
        "fio --name=a --directory={s} --rw=randwrite --bs=8k --size=8m --numjobs=2 --end_fsync=1 --ioengine=libaio \
         --iodepth=16 --direct=1",
    ),
    (
        "sysbench",
        "cp -r {d}/sysbench/. {s} && sysbench fileio --file-num=4 --file-total-size=8M --file-test-mode=rndrd --time=1 \
         --file-extra-flags= run",
    ),
    ("sst_dump", "sst_dump --file={d}/rocks --command=scan"),
    (
        "db_bench",
        "cp -r {d}/rocks {s}/rocks && db_bench --use_existing_db=1 --db={s}/rocks --benchmarks=readrandom,readseq \
         --num=40000 --reads=4000 --threads=2",
    ),
];

/// Makes the files, once: `$1` is the folder.
const FILES: &str = r#"
set -eu
cd "$1"
head -c 16M /dev/urandom >big
cp big same
base64 -w 71 big | awk '{ print NR, $0, (NR % 97 ? "hay" : "needle") }' | head -c 14M >text
head -c 300000 text >small
mkdir tree sysbench
for n in $(seq 1 120); do
    mkdir -p "tree/$((n % 7))"
    head -c "$((n * n * 13 % 90000 + n))" text >"tree/$((n % 7))/file$n"
done
cp -r tree twin
sqlite3 base.db "create table t(a integer primary key, b text); with recursive c(n) as (select 1 union all select n + 1
    from c where n < 60000) insert into t select n, printf('%.*c', n % 90 + 10, 'x') from c"
git init -q repo
cp -r tree repo/tree
git -C repo add .
git -C repo -c user.name=n -c user.email=e commit -q -m one
for n in 3 5; do
    find repo/tree/$n -type f -exec sed -i 's/hay/straw/' {} +
    git -C repo -c user.name=n -c user.email=e commit -q -a -m "$n"
done
git -C repo repack -q -a -d
(cd sysbench && sysbench fileio --file-num=4 --file-total-size=8M prepare >&2)
db_bench --db=rocks --benchmarks=fillrandom,compact --num=40000 --compression_type=none >&2
"#;

/// A file system: its name, the type that is mounted, and how it is made: `$1` is the device or file, `$2` the files.
struct Kind {
    name: &'static str,
    filesystem: &'static str,
    make: &'static str,
    writable: bool,
}

const KINDS: &[Kind] = &[
    Kind { name: "ext4", filesystem: "ext4", make: "mkfs.ext4 -q -F -b 4096 $1", writable: true },
    Kind { name: "ext4 1k", filesystem: "ext4", make: "mkfs.ext4 -q -F -b 1024 $1", writable: true },
    Kind { name: "xfs", filesystem: "xfs", make: "mkfs.xfs -q -f $1", writable: true },
    Kind { name: "btrfs", filesystem: "btrfs", make: "mkfs.btrfs -q -f $1", writable: true },
    Kind { name: "erofs", filesystem: "erofs", make: "mkfs.erofs --quiet $1 $2", writable: false },
    Kind { name: "overlay", filesystem: "overlay", make: "mkfs.ext4 -q -F -b 4096 $1", writable: true },
    Kind { name: "tmpfs", filesystem: "tmpfs", make: "", writable: true },
];

const SCHEDULERS: &[&str] = &["none", "mq-deadline", "kyber", "bfq"];
/// Size of a file system, most of which is never written.
const IMAGE_BYTES: u64 = 1 << 30;

struct Settings {
    binary: String,
    only: Vec<String>,
    rows: bool,
    keep: Option<PathBuf>,
}

/// What was judged of one program on one file system: of how many, and how many matched.
struct Row {
    program: &'static str,
    filesystem: &'static str,
    scheduler: &'static str,
    decisions: [u64; 2],
    adds: [u64; 2],
    bios: [u64; 2],
    requests: [u64; 2],
    lost: u64,
}

impl Row {
    fn parts(&self) -> [[u64; 2]; 4] {
        [self.decisions, self.adds, self.bios, self.requests]
    }

    fn unexplained(&self) -> u64 {
        self.parts().iter().map(|[of, matched]| of - matched).sum()
    }
}

pub(crate) fn run(arguments: &[String]) -> Outcome {
    let settings = settings(arguments)?;
    let _signals = signal::Guard::take();
    let (ledger, _) = Ledger::open().map_err(|error| error.to_string())?;
    let base = std::env::temp_dir().join(format!("iowhy-programs-{}", std::process::id()));
    let text = |error: iowhy_live::ledger::LedgerError| error.to_string();
    let _base = ledger.create_scratch_directory(&base).map_err(text)?;
    let files = base.join("files");
    fs::create_dir(&files).map_err(|error| error.to_string())?;
    shell(FILES, &[&files])?;
    let wanted = |name: &str, other: &str| {
        let named = |list: &[&str]| settings.only.iter().any(|word| list.contains(&word.as_str()));
        let kinds: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        let programs: Vec<&str> = PROGRAMS.iter().map(|program| program.0).collect();
        (!named(&kinds) || settings.only.iter().any(|word| word == other))
            && (!named(&programs) || settings.only.iter().any(|word| word == name))
    };
    let mut rows = Vec::new();
    let mut missing = Vec::new();
    for (nr, kind) in KINDS.iter().enumerate() {
        if !PROGRAMS.iter().any(|(name, _)| wanted(name, kind.name)) {
            continue;
        }
        let site = Site::new(&ledger, &base, &files, kind)?;
        for (n, &(name, line)) in PROGRAMS.iter().enumerate().filter(|(_, (name, _))| wanted(name, kind.name)) {
            let program = line.split(' ').next().filter(|word| *word != "cp").unwrap_or(name);
            if !Command::new("which").arg(program).stdout(Stdio::null()).status().is_ok_and(|it| it.success()) {
                missing.push(name);
                continue;
            }
            let scheduler = SCHEDULERS[(n + nr) % SCHEDULERS.len()];
            let row = site.judge(&settings, name, line, scheduler)?;
            if settings.rows || row.unexplained() > 0 || row.lost > 0 {
                println!("{}", one(&row));
            }
            rows.push(row);
            if signal::raised() {
                return Err("stopped".to_owned());
            }
        }
    }
    missing.sort_unstable();
    missing.dedup();
    print!("{}", table(&rows));
    if !missing.is_empty() {
        println!("not installed: {}", missing.join(", "));
    }
    let unexplained: u64 = rows.iter().map(Row::unexplained).sum();
    match unexplained {
        0 => Ok(()),
        n => Err(format!("{n} unexplained differences")),
    }
}

fn settings(arguments: &[String]) -> Result<Settings, String> {
    let binary = root().join("target/release/iowhy").display().to_string();
    let mut settings = Settings { binary, only: Vec::new(), rows: false, keep: None };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut next = |what: &str| words.next().cloned().ok_or(format!("{word} needs {what}"));
        match word.as_str() {
            "--binary" => settings.binary = next("a path")?,
            "--only" => settings.only = next("names")?.split(',').map(str::to_owned).collect(),
            "--rows" => settings.rows = true,
            "--keep" => settings.keep = Some(next("a folder")?.into()),
            other => {
                return Err(format!("unknown word `{other}`: --binary PATH, --only NAME,.., --rows, --keep FOLDER"));
            }
        }
    }
    Ok(settings)
}

fn shell(script: &str, arguments: &[&Path]) -> Outcome {
    let done = Command::new("sh").arg("-c").arg(script).arg("sh").args(arguments).stdin(Stdio::null()).output();
    let done = done.map_err(|error| format!("sh: {error}"))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
    }
}

/// A file system with the files.
struct Site<'a> {
    ledger: &'a Ledger,
    kind: &'static Kind,
    /// The device, if it has one.
    node: Option<PathBuf>,
    mount: PathBuf,
    /// Layers of overlayfs, and where to write if nothing can be written here.
    beside: PathBuf,
    _guards: Vec<Guard>,
}

impl Site<'_> {
    fn new<'a>(ledger: &'a Ledger, base: &Path, files: &Path, kind: &'static Kind) -> Result<Site<'a>, String> {
        let name = kind.name.replace(' ', "-");
        let (mount, beside, image) =
            (base.join(&name), base.join(format!("{name}-beside")), base.join(format!("{name}.img")));
        for folder in [&mount, &beside] {
            fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        }
        let mut site = Site { ledger, kind, node: None, mount, beside, _guards: Vec::new() };
        if kind.make.is_empty() {
            let guard =
                ledger.mount(Path::new("none"), &site.mount, kind.filesystem, "").map_err(|it| it.to_string())?;
            site._guards.push(guard);
        } else {
            let file = fs::File::create(&image).map_err(|error| error.to_string())?;
            if kind.writable {
                file.set_len(IMAGE_BYTES).map_err(|error| error.to_string())?;
            } else {
                shell(kind.make, &[&image, files])?;
            }
            let (node, guard) = ledger.attach_loop(&image, LoopOptions::default()).map_err(|it| it.to_string())?;
            site._guards.push(guard);
            if kind.writable {
                shell(kind.make, &[&node, files])?;
            }
            site.node = Some(node);
        }
        if kind.writable {
            let _mounted = site.mounted()?;
            let at = if kind.filesystem == "overlay" { site.below().join("files") } else { site.below() };
            shell("mkdir -p $2 && cp -a $1/. $2/", &[files, &at])?;
        }
        Ok(site)
    }

    /// The folder of the file system itself: overlayfs has one above it.
    fn below(&self) -> PathBuf {
        if self.kind.filesystem == "overlay" { self.beside.join("lower") } else { self.mount.clone() }
    }

    /// Mounts it, so that nothing of it is cached.
    fn mounted(&self) -> Result<Vec<Guard>, String> {
        let text = |error: iowhy_live::ledger::LedgerError| error.to_string();
        let Some(node) = &self.node else { return Ok(Vec::new()) };
        if self.kind.filesystem != "overlay" {
            return Ok(vec![self.ledger.mount(node, &self.mount, self.kind.filesystem, "").map_err(text)?]);
        }
        let lower = self.below();
        fs::create_dir_all(&lower).map_err(|error| error.to_string())?;
        let below = self.ledger.mount(node, &lower, "ext4", "").map_err(text)?;
        let [upper, work] = ["upper", "work"].map(|name| lower.join(name));
        for folder in [&upper, &work] {
            fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        }
        let files = lower.join("files");
        fs::create_dir_all(&files).map_err(|error| error.to_string())?;
        let [files, upper, work] = [&files, &upper, &work].map(|path| path.display());
        let options = format!("lowerdir={files},upperdir={upper},workdir={work}");
        let above = self.ledger.mount(Path::new("overlay"), &self.mount, "overlay", &options).map_err(text)?;
        // Undone from the last to the first.
        Ok(vec![above, below])
    }

    fn judge(
        &self,
        settings: &Settings,
        program: &'static str,
        line: &str,
        scheduler: &'static str,
    ) -> Result<Row, String> {
        let _mounted = self.mounted()?;
        if let Some(node) = &self.node {
            let name = node.file_name().unwrap_or_default();
            let path = Path::new("/sys/block").join(name).join("queue/scheduler");
            fs::write(&path, scheduler).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let scratch = if self.kind.writable { self.mount.join("scratch") } else { self.beside.join("scratch") };
        fs::create_dir_all(&scratch).map_err(|error| error.to_string())?;
        let line = line.replace("{d}", &self.mount.display().to_string());
        let line = line.replace("{s}", &scratch.display().to_string()).replace("{} ;", "{} \\;");
        let script = format!("cd {} && {line} >/dev/null 2>&1", scratch.display());
        let done = Command::new(&settings.binary)
            .args(["conform", "--live", "--json", "--", "sh", "-c", &script])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("{}: {error}", settings.binary))?;
        let report: Value = serde_json::from_slice(&done.stdout)
            .map_err(|error| format!("{program}: {error}: {}", String::from_utf8_lossy(&done.stderr)))?;
        if String::from_utf8_lossy(&done.stderr).contains("the command failed") {
            eprintln!("{program} on {}: the command failed", self.kind.name);
        }
        fs::remove_dir_all(&scratch).map_err(|error| error.to_string())?;
        let pair =
            |name: &str| [name.to_owned(), format!("{name}_matched")].map(|key| report[key].as_u64().unwrap_or(0));
        let row = Row {
            program,
            filesystem: self.kind.name,
            scheduler,
            decisions: [report["decisions"].as_u64().unwrap_or(0), report["matched"].as_u64().unwrap_or(0)],
            adds: pair("page_adds"),
            bios: pair("bios"),
            requests: pair("requests"),
            lost: report["lost_events"].as_u64().unwrap_or(0),
        };
        if let Some(folder) = settings.keep.as_ref().filter(|_| row.unexplained() > 0) {
            let name = format!("{program}-{}.json", self.kind.name).replace(' ', "-");
            fs::create_dir_all(folder).map_err(|error| error.to_string())?;
            fs::write(folder.join(name), format!("{report:#}")).map_err(|error| error.to_string())?;
        }
        Ok(row)
    }
}

fn cell([of, matched]: [u64; 2]) -> String {
    format!("{matched}/{of}")
}

fn one(row: &Row) -> String {
    let [decisions, adds, bios, requests] = row.parts().map(cell);
    let lost = if row.lost > 0 { format!(", {} lost", row.lost) } else { String::new() };
    format!(
        "{:<14}{:<9}{:<12}{decisions:>12}{adds:>14}{bios:>12}{requests:>14}{:>5}{lost}",
        row.program,
        row.filesystem,
        row.scheduler,
        row.unexplained()
    )
}

/// The sums by program, as a table of Markdown.
fn table(rows: &[Row]) -> String {
    let mut out = String::from("| program | file systems | decisions | page adds | bios | requests | unexplained |\n");
    out += "| --- | --- | ---: | ---: | ---: | ---: | ---: |\n";
    let mut line = |name: &str, some: &[&Row]| {
        let sum = |nr: usize| {
            let [of, matched] = [0, 1].map(|side| some.iter().map(|row| row.parts()[nr][side]).sum::<u64>());
            cell([of, matched])
        };
        let unexplained: u64 = some.iter().map(|row| row.unexplained()).sum();
        let [decisions, adds, bios, requests] = [0, 1, 2, 3].map(sum);
        let n = some.len();
        out += &format!("| {name} | {n} | {decisions} | {adds} | {bios} | {requests} | {unexplained} |\n");
    };
    for (program, _) in PROGRAMS {
        let some: Vec<&Row> = rows.iter().filter(|row| row.program == *program).collect();
        if !some.is_empty() {
            line(program, &some);
        }
    }
    for kind in KINDS {
        let some: Vec<&Row> = rows.iter().filter(|row| row.filesystem == kind.name).collect();
        if !some.is_empty() {
            line(&format!("all on {}", kind.name), &some);
        }
    }
    line("all", &rows.iter().collect::<Vec<_>>());
    out
}

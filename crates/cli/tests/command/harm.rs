//! Somebody's data, offered to everything that writes: none of it may change. Each attempt is a line of a table: what
//! lies there, and the command that is to write it. It must fail without a panic, and the thing must be as it was:
//! the same inode, the same bytes, the same target of a link.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use iowhy_live::ledger::{Guard, Ledger, LoopOptions};

use super::{Folder, can_make_disks, text};

/// Where somebody's data are, and what the attempts have come to.
struct Ground {
    folder: Folder,
    ledger: Ledger,
    tried: usize,
    harmed: Vec<String>,
}

/// What there is under a name.
#[derive(PartialEq)]
struct Seen {
    inode: u64,
    link: Option<PathBuf>,
    bytes: Vec<u8>,
}

impl Seen {
    fn at(path: &Path) -> Option<Seen> {
        let inode = fs::symlink_metadata(path).ok()?.ino();
        Some(Seen { inode, link: fs::read_link(path).ok(), bytes: fs::read(path).unwrap_or_default() })
    }
}

const MIB: u64 = 1 << 20;
/// Size of the devices.
const DEVICE: u64 = 16 * MIB;
const DIARY: &[u8] = b"dear diary, today nobody wrote over me\n";

impl Ground {
    fn new(name: &str) -> Ground {
        // On a disk, and not where other tests tidy.
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        let folder = Folder(fs::canonicalize(path).expect("it is there"));
        let (ledger, _) = Ledger::open_in(&folder.0.join("ledgers")).expect("a ledger");
        Ground { folder, ledger, tried: 0, harmed: Vec::new() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.0.join(name)
    }

    fn run(&self, line: &str) -> std::process::Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iowhy"));
        command.args(line.split_whitespace()).current_dir(&self.folder.0).env("NO_COLOR", "1");
        command.env("IOWHY_STORE", self.at("store")).env("XDG_STATE_HOME", self.at("state"));
        command.output().expect("the command starts")
    }

    /// A file of somebody's.
    fn diary(&self, name: &str) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, DIARY.repeat(1000)).expect("a file");
        path
    }

    /// Runs a command line that must leave `victim` as it is.
    fn attempt(&mut self, what: &str, victim: &Path, line: &str) {
        self.tried += 1;
        let before = Seen::at(victim);
        assert!(before.is_some(), "{what}: nothing is there");
        let output = self.run(line);
        if Seen::at(victim) != before {
            self.harmed.push(format!("{what}: {line}"));
        }
        let said = text(&output.stderr);
        assert!(!matches!(output.status.code(), Some(0 | 101) | None), "{what}: {line}\n{said}");
    }

    fn device(&self, name: &str) -> (PathBuf, Guard) {
        File::create(self.at(name)).and_then(|file| file.set_len(DEVICE)).expect("an image");
        self.ledger.attach_loop(&self.at(name), LoopOptions::default()).expect("a loop device")
    }

    fn ends(self, at_least: usize) {
        assert_eq!(self.harmed, [] as [String; 0], "{} of {} attempts", self.harmed.len(), self.tried);
        assert!(self.tried >= at_least, "{} attempts", self.tried);
        println!("{} attempts, 0 overwritten", self.tried);
    }
}

/// What can be on a device: where (from the end, if negative) and which bytes.
const CONTENTS: &[(&str, i64, &[u8])] = &[
    ("ext4", 0x438, b"\x53\xef"),
    ("xfs", 0, b"XFSB"),
    ("btrfs", 0x10040, b"_BHRfS_M"),
    ("jfs", 0x8000, b"JFS1"),
    ("nilfs2", 0x406, b"\x34\x34"),
    ("ocfs2", 0x800, b"OCFSV2"),
    ("gfs2", 0x10000, b"\x01\x16\x19\x70"),
    ("minix", 0x410, b"\x7f\x13"),
    ("hfs", 0x400, b"BD"),
    ("hfs+", 0x400, b"H+\x00\x04"),
    ("cramfs", 0, b"\x45\x3d\xcd\x28"),
    ("sgi label", 0, b"\x0b\xe5\xa9\x41"),
    ("sun label", 508, b"\xda\xbe"),
    ("md 0.90", -0x10000, b"\xfc\x4e\x2b\xa9"),
    ("md 1.0", -0x2000, b"\xfc\x4e\x2b\xa9"),
    ("md 1.1", 0, b"\xfc\x4e\x2b\xa9"),
    ("md 1.2", 0x1000, b"\xfc\x4e\x2b\xa9"),
    ("zfs", 0x20000, b"\x0c\xb1\xba\x00\x00\x00\x00\x00"),
    ("zfs, last label", -0x20000, b"\x0c\xb1\xba\x00\x00\x00\x00\x00"),
    ("bcachefs", 0x1018, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9"),
    ("bcache", 0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca"),
    ("apfs", 32, b"NXSB"),
    ("bitlocker", 3, b"-FVE-FS-"),
    ("lvm", 0x200, b"LABELONE"),
    ("lvm, sector 2", 0x400, b"LABELONE"),
    ("swap", 0xff6, b"SWAPSPACE2"),
    ("luks", 0, b"LUKS\xba\xbe"),
    ("luks, second header", 0x4000, b"SKUL\xba\xbe"),
    ("squashfs", 0, b"hsqs"),
    ("ntfs", 3, b"NTFS    "),
    ("exfat", 3, b"EXFAT   "),
    ("vfat", 0x52, b"FAT32   "),
    ("iso9660", 0x8001, b"CD001"),
    ("udf", 0x8001, b"BEA01"),
    ("reiserfs", 0x10034, b"ReIsErFs"),
    ("f2fs", 0x400, b"\x10\x20\xf5\xf2"),
    ("erofs", 0x400, b"\xe2\xe1\xf5\xe0"),
    ("gpt", 0x200, b"EFI PART"),
    ("gpt, second header", -0x200, b"EFI PART"),
    ("boot sector", 0x1fe, b"\x55\xaa"),
    ("vmfs", 0x10_0000, b"\x0d\xd0\x01\xc0"),
    ("drbd", -0x1000, b"\x83\x74\x02\x6b"),
    ("database", 0, b"SQLite format 3\0"),
    ("tar", 257, b"ustar  \0"),
    ("one byte at the start", 0, b"x"),
    ("one byte at the end", -1, b"x"),
];

#[test]
fn devices_with_contents_are_not_written() {
    if !can_make_disks() {
        return;
    }
    let mut ground = Ground::new("harm-devices");
    let (node, guard) = ground.device("image");
    let put = |at: i64, bytes: &[u8]| {
        let device = File::options().write(true).open(&node).expect("it opens");
        let at = if at < 0 { DEVICE.saturating_add_signed(at) } else { at as u64 };
        device.write_all_at(bytes, at).and_then(|()| device.sync_all()).expect("it is written");
    };
    let name = node.display().to_string();
    let write = format!("fio --name=w --rw=write --bs=4k --size=64k --filename={name}");
    for (what, at, bytes) in CONTENTS {
        put(*at, bytes);
        ground.attempt(what, &node, &write);
        put(*at, &vec![0; bytes.len()]);
    }
    // Data of a mebibyte somewhere: no signature, and neither at the start nor at the end.
    for at in [3 * MIB, 7 * MIB + 4096, 12 * MIB] {
        let noise: Vec<u8> = (0..MIB).map(|nr| (nr * 7 + nr / 251) as u8).collect();
        put(at as i64, &noise);
        ground.attempt("encrypted", &node, &write);
        ground.attempt("encrypted, read and written", &node, &write.replace("rw=write", "rw=randrw"));
        ground.attempt("encrypted, by its link", &node, &{
            let link = ground.at("disk");
            let _ = fs::remove_file(&link);
            symlink(&node, &link).expect("a link");
            write.replace(&name, &link.display().to_string())
        });
        put(at as i64, &vec![0; noise.len()]);
    }
    // What is empty may be written, and what we have left there may be written again; what came later may not.
    for _ in 0..2 {
        let output = ground.run(&write);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    put(0, b"theirs");
    ground.attempt("theirs over ours", &node, &write);
    guard.undo().expect("the device goes");
    ground.ends(CONTENTS.len() + 10);
}

#[test]
fn devices_in_use_are_not_written() {
    if !can_make_disks() {
        return;
    }
    let mut ground = Ground::new("harm-used");
    let (node, guard) = ground.device("image");
    let line = |node: &Path| format!("fio --name=w --rw=write --bs=4k --size=64k --filename={}", node.display());
    // The kernel is not to write on the device itself while we look: it would initialise tables after the mount.
    let now = ["-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
    let mounted = Command::new("mke2fs").args(now).arg(&node).status().expect("mke2fs");
    assert!(mounted.success());
    let point = ground.at("mounted");
    fs::create_dir(&point).expect("a folder");
    let mount = ground.ledger.mount(&node, &point, "ext4", "").expect("it is mounted");
    ground.attempt("mounted", &node, &line(&node));
    ground.attempt("mounted, allowed by its folder", &node, &format!("{} --allow-write=/dev", line(&node)));
    // Behind it, and beside it: other devices on the same bytes.
    let (stacked, above) = ground.ledger.attach_loop(&node, LoopOptions::default()).expect("a loop device");
    ground.attempt("a loop over it", &node, &line(&stacked));
    ground.attempt("held by a loop", &node, &line(&node));
    above.undo().expect("it goes");
    let image = ground.at("image");
    let (beside, other) = ground.ledger.attach_loop(&image, LoopOptions::default()).expect("a loop device");
    ground.attempt("another loop on its file", &node, &line(&beside));
    ground.attempt("the file below it", &image, &line(&image));
    other.undo().expect("it goes");
    for output in ["fio --name=n --ioengine=null --size=64k --output=", "check --samples s s --junit "] {
        fs::write(ground.at("s"), "1\n2\n3\n").expect("samples");
        ground.attempt("an output on a mounted device", &node, &format!("{output}{}", node.display()));
    }
    ground.attempt("a backing file that is mounted", &image, &disk(&image));
    mount.undo().expect("it is unmounted");
    ground.attempt("a file system", &node, &line(&node));
    ground.attempt("a backing file that is attached", &image, &disk(&image));
    let held = File::options().write(true).open(&node).expect("it opens");
    held.write_all_at(&vec![0; DEVICE as usize], 0).and_then(|()| held.sync_all()).expect("it is emptied");
    ground.attempt("open for writing", &node, &line(&node));
    drop(held);
    guard.undo().expect("the device goes");
    ground.ends(12);
}

/// A disk that is to be made on a file, and formatted.
fn disk(backing: &Path) -> String {
    let name = format!("harm-{}", std::process::id());
    format!("disk create --model nvme --name {name} --size 64M --backing {} --fs ext4", backing.display())
}

#[test]
fn files_of_others_are_not_written() {
    let mut ground = Ground::new("harm-files");
    let fio = "fio --bs=4k --size=256k --name=w";
    let diary = ground.diary("w.0.0");
    for how in ["write", "randwrite", "rw", "randrw", "read", "randread", "readwrite"] {
        ground.attempt("a name made from the job's", &diary, &format!("{fio} --rw={how}"));
    }
    let named = ground.diary("named/diary");
    for (what, options) in [
        ("its name", format!("--rw=write --filename={}", named.display())),
        ("its name from here", "--rw=write --filename=named/diary".to_owned()),
        ("two names", "--rw=write --filename=new:named/diary".to_owned()),
        ("mapped", "--rw=write --ioengine=mmap --filename=named/diary".to_owned()),
        ("asynchronous", "--rw=write --ioengine=io_uring --iodepth=4 --filename=named/diary".to_owned()),
        ("two jobs", "--rw=read --name=x --rw=write --filename=named/diary".to_owned()),
        ("verified", "--rw=write --verify=crc32c --filename=named/diary".to_owned()),
        ("removed afterwards", "--rw=write --unlink=1 --filename=named/diary".to_owned()),
        ("without a file being made", "--rw=write --size=4k --allow_file_create=0 --filename=named/diary".to_owned()),
    ] {
        ground.attempt(what, &named, &format!("{fio} {options}"));
    }
    let victim = ground.diary("victim");
    let linked = ground.at("links");
    fs::create_dir(&linked).expect("a folder");
    fs::hard_link(&victim, linked.join("w.0.0")).expect("a link");
    ground.attempt("a hard link", &victim, &format!("{fio} --rw=write --directory=links"));
    fs::remove_file(linked.join("w.0.0")).expect("ours");
    symlink(&victim, linked.join("w.0.0")).expect("a link");
    ground.attempt("a link", &victim, &format!("{fio} --rw=write --directory=links"));
    let theirs = ground.diary("theirs/w.0.0");
    symlink(ground.at("theirs"), ground.at("folder")).expect("a link");
    ground.attempt("a linked folder", &theirs, &format!("{fio} --rw=write --directory=folder"));
    symlink(ground.at("folder"), ground.at("twice")).expect("a link");
    ground.attempt("a folder linked twice", &theirs, &format!("{fio} --rw=write --directory=twice"));
    fs::write(ground.at("job.fio"), "[w]\nrw=write\nbs=4k\nsize=256k\ndirectory=theirs\n").expect("a job");
    ground.attempt("a job file", &theirs, "fio job.fio");
    ground.attempt("a job file, run", &theirs, "run job.fio --on live --dir .");
    let dd = ground.diary("out");
    ground.attempt("dd", &dd, "run dd of=out bs=4k count=64 --on live --dir .");
    // What is ours is known by more than its name.
    assert_eq!(ground.run(&format!("{fio} --rw=write --directory=links --filename=ours")).status.code(), Some(0));
    let ours = linked.join("ours");
    let copied = Command::new("cp").arg("-a").arg(&ours).arg(linked.join("copy")).status().expect("cp");
    assert!(copied.success());
    ground.attempt("a copy of ours", &linked.join("copy"), &format!("{fio} --rw=write --filename=links/copy"));
    for theirs in [DIARY.to_vec(), DIARY.repeat(10_000)] {
        File::create(&ours).and_then(|mut file| file.write_all(&theirs)).expect("theirs now");
        ground.attempt("written over ours", &ours, &format!("{fio} --rw=write --filename=links/ours"));
    }
    let comm = Path::new("/proc/self/comm");
    ground.attempt("a file of the kernel", comm, &format!("{fio} --rw=write --filename=/proc/self/comm"));
    let setting = Path::new("/proc/sys/kernel/hostname");
    let allowed = format!("{fio} --rw=write --filename=/proc/sys/kernel/hostname --allow-write=/proc");
    ground.attempt("one that is allowed", setting, &allowed);
    if can_make_disks() {
        for (what, make) in [("text", false), ("a file system", true)] {
            let image = ground.diary("image");
            if make {
                File::options().write(true).open(&image).and_then(|it| it.set_len(DEVICE)).expect("an image");
                let made = Command::new("mke2fs").args(["-q", "-F"]).arg(&image).status().expect("mke2fs");
                assert!(made.success());
            }
            ground.attempt(what, &image, &disk(&image));
            let link = ground.at("image-link");
            let _ = fs::remove_file(&link);
            symlink(&image, &link).expect("a link");
            ground.attempt(what, &image, &disk(&link));
            ground.attempt(what, &image, &disk(&image).replace(" --fs ext4", ""));
        }
    }
    ground.ends(33);
}

/// A read, as blkparse prints it.
const TRACE: &str = "\
  8,0    0        1     0.000000000   100  Q   R 2048 + 8 [dd]
  8,0    0        2     0.000001000   100  G   R 2048 + 8 [dd]
  8,0    0        3     0.000002000   100  I   R 2048 + 8 [dd]
  8,0    0        4     0.000003000   100  D   R 2048 + 8 [dd]
  8,0    0        5     0.000100000     0  C   R 2048 + 8 [0]
";

#[test]
fn outputs_do_not_take_the_place_of_others() {
    let mut ground = Ground::new("harm-outputs");
    let null = "fio --name=n --ioengine=null --bs=4k --size=64k";
    fs::write(ground.at("a"), "10\n11\n10\n12\n11\n").expect("samples");
    fs::write(ground.at("t.txt"), TRACE).expect("a trace");
    let run = ground.run("run dd if=x bs=64k count=16 --on sim:linux-6.18 --on sim:linux-4.4 --trace --label l");
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    // The file that is written, and the line that would; `OUT` is the name that is given.
    let lines: Vec<(&str, &str, String)> = vec![
        ("o.txt", "o.txt", format!("{null} --output=OUT")),
        ("o.json", "o.json", format!("{null} --output-format=json --output=OUT")),
        ("p_bw.1.log", "p", format!("{null} --write_bw_log=OUT")),
        ("p_iops.1.log", "p", format!("{null} --write_iops_log=OUT")),
        ("p_lat.1.log", "p", format!("{null} --write_lat_log=OUT")),
        ("p_clat.1.log", "p", format!("{null} --write_lat_log=OUT")),
        ("p_clat_hist.1.log", "p", format!("{null} --log_hist_msec=100 --write_hist_log=OUT")),
        ("io.log", "io.log", "fio --name=q --size=64k --rw=read --write_iolog=OUT".to_owned()),
        ("j.xml", "j.xml", "check --samples a a --junit OUT".to_owned()),
        ("t.parquet", "t.parquet", "trace record -o OUT -- true".to_owned()),
        ("r.csv", "r.csv", "trace record -o OUT -- true".to_owned()),
        ("t.parquet", "", "trace import t.txt".to_owned()),
        ("i.parquet", "i.parquet", "trace import t.txt -o OUT".to_owned()),
        ("e.csv", "e.csv", "trace export t.txt -o OUT".to_owned()),
        ("e.txt", "e.txt", "trace export t.txt --to blkparse -o OUT".to_owned()),
        ("e.json", "e.json", "trace export t.txt --to perfetto -o OUT".to_owned()),
        ("e.iolog", "e.iolog", "trace export t.txt --to iolog -o OUT".to_owned()),
        ("e.blktrace.0", "e", "trace export t.txt --to blktrace -o OUT".to_owned()),
        ("why.html", "why.html", "report l/sim:linux-6.18 l/sim:linux-4.4 -o OUT".to_owned()),
        ("in.html", "in.html", "incident 2012-plugged-readahead --report OUT".to_owned()),
        ("w.svg", "w.svg", "why t.txt --flame OUT".to_owned()),
        ("to/runs.csv", "to", "store export --to OUT".to_owned()),
        ("to/metrics.csv", "to", "store export --to OUT".to_owned()),
        ("to/runs.json", "to", "store export --to OUT --format json".to_owned()),
    ];
    for (file, name, line) in &lines {
        let line = line.replace("OUT", name);
        // As it is, behind a link, and behind a link that leads nowhere: nothing is made there.
        let path = ground.diary(file);
        ground.attempt("a diary", &path, &line);
        let elsewhere = ground.at("elsewhere");
        fs::rename(&path, &elsewhere).and_then(|()| symlink(&elsewhere, &path)).expect("a link");
        ground.attempt("a link to it", &elsewhere, &line);
        fs::remove_file(&elsewhere).expect("ours");
        ground.attempt("a link to nothing", &path, &line);
        assert!(!elsewhere.exists(), "{line}");
        fs::remove_file(&path).expect("ours");
    }
    for device in ["null", "zero"] {
        let node = ground.at(device);
        let number = if device == "null" { "3" } else { "5" };
        if Command::new("mknod").arg(&node).args(["c", "1", number]).status().is_ok_and(|status| status.success()) {
            // A device takes it, and stays one.
            ground.tried += 1;
            let inode = fs::symlink_metadata(&node).expect("a node").ino();
            ground.run(&format!("report l/sim:linux-6.18 l/sim:linux-4.4 --force -o {device}"));
            assert_eq!(fs::symlink_metadata(&node).expect("a node").ino(), inode, "{device}");
        }
    }
    ground.ends(3 * lines.len());
}

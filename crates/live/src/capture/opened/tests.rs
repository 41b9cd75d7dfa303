//! Matching, and the parsers of bytes and texts.

use iowhy_stack::trace::Extent;
use iowhy_stack::units::Sector;

use super::*;

#[test]
fn notifications_are_matched_only_where_there_is_one_way() {
    let any = |_, _| true;
    assert_eq!(matched(3, 3, any), [Some(0), Some(1), Some(2)]);
    // One open has no notification: it may be any of them.
    assert_eq!(matched(2, 3, any), [None, None]);
    // Unless they do not fit: the second is of the third.
    let fits = |nr, open| (nr, open) == (0, 0) || (nr, open) == (1, 2);
    assert_eq!(matched(2, 3, fits), [Some(0), Some(2)]);
    // The first is certain by its time, the second is not.
    assert_eq!(matched(2, 3, |nr, open| (nr == 0) == (open == 0)), [Some(0), None]);
    // More than the opens, or one that fits nowhere: that thread stays unknown.
    assert_eq!(matched(4, 3, any), [None; 4]);
    assert_eq!(matched(2, 3, |nr, _| nr == 0), [None, None]);
    assert_eq!(matched(0, 3, any), []);
}

/// All ways, one by one.
fn slow(count: usize, nr_opens: usize, fits: &dyn Fn(usize, usize) -> bool) -> Vec<Option<usize>> {
    fn ways(at: usize, from: usize, count: usize, n: usize, fits: &dyn Fn(usize, usize) -> bool) -> Vec<Vec<usize>> {
        if at == count {
            return vec![Vec::new()];
        }
        let mut all = Vec::new();
        for open in (from..n).filter(|open| fits(at, *open)) {
            for mut rest in ways(at + 1, open + 1, count, n, fits) {
                rest.insert(0, open);
                all.push(rest);
            }
        }
        all
    }
    let all = ways(0, 0, count, nr_opens, fits);
    let only = |nr: usize| {
        let first = all.first()?[nr];
        all.iter().all(|way| way[nr] == first).then_some(first)
    };
    (0..count).map(only).collect()
}

#[test]
fn matching_says_what_trying_all_ways_says() {
    let mut rng = iowhy_stack::rng::Rng::stream(3, "opened");
    let mut certain = 0;
    for _ in 0..2000 {
        let (count, opens) = (rng.below(5) as usize, rng.below(7) as usize);
        let table: Vec<bool> = (0..35).map(|_| rng.below(3) > 0).collect();
        let fits = |nr: usize, open: usize| table[nr * 7 + open];
        let found = matched(count, opens, fits);
        assert_eq!(found, slow(count, opens, &fits));
        certain += found.iter().flatten().count();
    }
    assert!(certain > 500, "{certain}");
}

fn notification(mask: u64, thread: u32, handle: &[u8]) -> Vec<u8> {
    let mut info = vec![1, 0];
    info.extend((12 + 8 + handle.len() as u16).to_ne_bytes());
    info.extend([7; 8]);
    info.extend((handle.len() as u32).to_ne_bytes());
    info.extend(1_u32.to_ne_bytes());
    info.extend(handle);
    let mut all = (24 + info.len() as u32).to_ne_bytes().to_vec();
    all.extend([3, 0]);
    all.extend(24_u16.to_ne_bytes());
    all.extend(mask.to_ne_bytes());
    all.extend((-1_i32).to_ne_bytes());
    all.extend(thread.to_ne_bytes());
    all.extend(info);
    all
}

#[test]
fn notifications_are_read_and_nothing_makes_it_panic() {
    let handle = [1, 2, 3, 4, 5, 6, 7, 8];
    let bytes = [
        notification(libc::FAN_OPEN, 5, &handle),
        notification(libc::FAN_OPEN | libc::FAN_OPEN_EXEC, 5, &handle),
        notification(libc::FAN_OPEN | libc::FAN_ONDIR, 6, &handle),
    ]
    .concat();
    let found = parse(&bytes);
    let handle = [&8_u32.to_ne_bytes()[..], &1_u32.to_ne_bytes(), &handle].concat();
    assert_eq!(
        found,
        [
            Notification { thread: 5, fsid: [7; 8], handle: Some(handle.clone()), to_execute: false },
            Notification { thread: 5, fsid: [7; 8], handle: Some(handle), to_execute: true },
            Notification { thread: 6, fsid: [7; 8], handle: None, to_execute: false }
        ]
    );
    for cut in 0..bytes.len() {
        assert!(parse(&bytes[..cut]).len() <= 3);
        let mut flipped = bytes.clone();
        flipped[cut] ^= 0x55;
        parse(&flipped);
    }
}

#[test]
fn positions_and_flags_of_fdinfo() {
    assert_eq!(fdinfo("pos:\t4096\nflags:\t02100000\nmnt_id:\t29\n"), (4096, true));
    assert_eq!(fdinfo("pos:\t0\nflags:\t0100002\n"), (0, false));
    assert_eq!(fdinfo("nonsense"), (0, false));
}

fn other(at: u64, pid: u32, name: &str, fields: &str) -> Record {
    Record { at: Nanos(at), cpu: 1, pid, seen: Seen::Other { name: name.to_owned(), fields: fields.to_owned() } }
}

fn file(ino: u64) -> Target {
    Target { kind: "file", inode: Inode { dev: Dev::new(8, 1), ino }, path: Some(format!("/file{ino}")) }
}

/// Opens of a thread, the third of which fails, with what came of them.
#[test]
fn what_was_opened_stands_behind_its_open() {
    let open = |at, fd: i32| {
        [
            other(at, 5, "syscalls:sys_enter_openat", "__syscall_nr=257 dfd=4294967196 filename=0x7f flags=0 mode=0"),
            other(at + 5, 5, "syscalls:sys_exit_openat", &format!("__syscall_nr=257 ret={fd}")),
        ]
    };
    let start = 1000;
    let opened = |ino, after, before| Opened {
        thread: 5,
        after: start + after,
        before: start + before,
        target: file(ino),
        to_execute: false,
    };
    let before = [open(10, 3), open(20, 4), open(30, -2)].concat();
    let mut records = before.clone();
    let held = [
        OpenDescriptor { pid: 5, fd: 0, at: start + 12, target: file(99), pos: 512, cloexec: false },
        OpenDescriptor { pid: 77, fd: 0, at: start, target: file(98), pos: 0, cloexec: false },
    ];
    let paths = add(&mut records, &held, vec![opened(11, 0, 40), opened(12, 0, 40)], start);
    let mut expected = before.clone();
    expected.insert(4, other(25, 5, "iowhy:opened", "fd=4 kind=file dev=8,1 ino=12"));
    expected.insert(2, other(15, 5, "iowhy:opened", "fd=3 kind=file dev=8,1 ino=11"));
    let mut descriptor = other(12, 5, "iowhy:descriptor", "fd=0 kind=file dev=8,1 ino=99 pos=512 cloexec=0");
    descriptor.cpu = 0;
    expected.insert(1, descriptor);
    assert_eq!(records, expected);
    let mut names: Vec<String> = paths.into_iter().map(|(_, path)| path).collect();
    names.sort();
    assert_eq!(names, ["/file11", "/file12", "/file99"], "of a process without records nothing is said");
    // One notification for two opens, at a time when both were possible: of which it is, nobody knows.
    let mut records = before.clone();
    add(&mut records, &[], vec![opened(11, 0, 40)], start);
    assert_eq!(records, before);
    // It was read before the second began.
    add(&mut records, &[], vec![opened(11, 0, 18)], start);
    assert_eq!(records.len(), before.len() + 1);
    // Pages tell, too: the first is another file.
    let call = |at, seen| Record { at: Nanos(at), cpu: 1, pid: 5, seen };
    let mut records = before;
    let op = iowhy_stack::event::Op::Read;
    records.push(call(40, Seen::CallStart { op, fd: 3, offset: None, len_bytes: 9 }));
    records.push(call(41, Seen::PageAdd { file: file(50).inode, index: 0, order: 0 }));
    add(&mut records, &[], vec![opened(11, 0, 50)], start);
    let found: Vec<&Record> = records
        .iter()
        .filter(|record| matches!(&record.seen, Seen::Other { name, .. } if name == "iowhy:opened"))
        .collect();
    assert_eq!(found, [&other(25, 5, "iowhy:opened", "fd=4 kind=file dev=8,1 ino=11")]);
    // And so do bios for data, if the notification is of a file on that disk: the first open was of something silent.
    for (dev, expected) in [(Dev::new(8, 1), 1), (Dev::new(8, 2), 0)] {
        let mut records = [open(10, 3), open(20, 4)].concat();
        let op = iowhy_stack::event::Op::Read;
        let extent = Extent { dev, sector: Sector(8), bytes: 4096, rwbs: Rwbs::READ };
        records.push(call(40, Seen::CallStart { op, fd: 4, offset: None, len_bytes: 9 }));
        records.push(call(41, Seen::Queue(extent)));
        let before = records.len();
        add(&mut records, &[], vec![opened(11, 0, 50)], start);
        assert_eq!(records.len() - before, expected, "{dev:?}");
        assert!(expected == 0 || records[4] == other(25, 5, "iowhy:opened", "fd=4 kind=file dev=8,1 ino=11"));
    }
    // A name needs pages of the file, and no descriptor.
    let mut records = vec![call(41, Seen::PageAdd { file: file(50).inode, index: 0, order: 0 })];
    let named = add(&mut records, &[], vec![opened(50, 0, 40), opened(51, 0, 40)], start);
    assert_eq!(named, [(file(50).inode, "/file50".to_owned())]);
}

use std::hint::black_box;

use iowhy_stack::units::Nanos;

use super::super::format;
use super::*;

const MAPS: &str = "\
55d0c0a00000-55d0c0a01000 r--p 00000000 fe:01 77                         /opt/a b/server
55d0c0a01000-55d0c0a03000 r-xp 00001000 fe:01 77                         /opt/a b/server
7f0000000000-7f0000001000 rwxp 00000000 00:00 0
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]
";

#[test]
fn code_is_what_may_be_executed() {
    let look = Look { since: 0, parts: parse(MAPS) };
    assert_eq!(look.parts.iter().map(|part| part.path.as_str()).collect::<Vec<_>>(), ["/opt/a b/server", "", "[vdso]"]);
    let part = look.part(0x55d0_c0a0_2fff).expect("code");
    assert_eq!((part.offset, part.ino), (0x1000, 77));
    for outside in [0x55d0_c0a0_0fff, 0x55d0_c0a0_3000, 0, u64::MAX] {
        assert_eq!(look.part(outside), None, "{outside:#x}");
    }
}

#[test]
fn a_call_is_told_by_its_bytes() {
    let table: [(&[u8], bool); 7] = [
        (&[0, 0xe8, 1, 2, 3, 4], true),
        (&[0xff, 0x15, 1, 2, 3, 4], true),
        (&[0, 0, 0, 0, 0xff, 0xd0], true),
        (&[0, 0, 0, 0x41, 0xff, 0xd3], true),
        (&[0, 0, 0, 0xff, 0x50, 8], true),
        // A jump through a register, and nothing of the kind.
        (&[0, 0, 0, 0, 0xff, 0xe0], false),
        (&[0x90; 6], false),
    ];
    for (bytes, expected) in table.into_iter().filter(|_| cfg!(target_arch = "x86_64")) {
        assert_eq!(is_call(bytes), expected, "{bytes:x?}");
    }
}

#[test]
fn frames_hold_nothing_that_separates() {
    assert_eq!(shown("a b;c\n"), "a_b_c_");
    assert_eq!(shown("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"), "core::fmt::Write::write_fmt");
    assert_eq!(shown(&"x".repeat(500)).len(), LONGEST);
    assert_eq!(["__libc_read", "read", "__read"].into_iter().reduce(better), Some("read"));
}

#[inline(never)]
fn looked_up(n: u64) -> u64 {
    black_box(n).wrapping_mul(7)
}

/// Addresses of this process, named in a record of each kind.
#[test]
fn addresses_of_this_process_have_its_names() {
    assert_eq!(looked_up(3), 21);
    let (own, here) = (std::process::id(), looked_up as fn(u64) -> u64 as usize as u64);
    let mut mappings = Mappings::default();
    mappings.stack(500, own, [here].into_iter());
    let record = |pid: u32, calls: &str| Record {
        at: Nanos(100),
        cpu: 0,
        pid: 1,
        seen: Seen::Other { name: STACK_NAME.to_owned(), fields: format!("pid={pid} calls={calls} top=") },
    };
    let deep = format!("{here:x};").repeat(DEEP);
    // What is behind an address without code is none of the stack.
    let twice = format!("{here:x};{:x};10;{here:x};", here + 1);
    let mut records = [record(own, &twice), record(own, &deep), record(u32::MAX, &twice), record(own, "10;")];
    name(&mut records, &mappings, 450);
    let frames = |record: &Record| match &record.seen {
        Seen::Other { fields, .. } => fields.strip_prefix("frames=").expect("frames").to_owned(),
        other => panic!("{other:?}"),
    };
    let named = "iowhy_live::capture::stacks::tests::looked_up";
    assert_eq!(frames(&records[0]), format!("{named};{named}"));
    assert!(frames(&records[1]).starts_with("[deeper];"), "{:?}", records[1]);
    assert_eq!((frames(&records[2]).as_str(), frames(&records[3]).as_str()), (UNKNOWN, UNKNOWN));
}

/// It is looked at once, again for an unknown address after a while, and again after an exec.
#[test]
fn mappings_are_read_when_something_is_unknown() {
    let (own, here) = (std::process::id(), looked_up as fn(u64) -> u64 as usize as u64);
    let mut mappings = Mappings::default();
    let mut asked = |time, address: u64| {
        mappings.stack(time, own, [address].into_iter());
        mappings.processes[&own].asked
    };
    assert_eq!(asked(10, here), 10);
    assert_eq!(asked(20, 16), 10);
    assert_eq!(asked(10 + AGAIN, here), 10);
    assert_eq!(asked(20 + AGAIN, 16), 20 + AGAIN);
    mappings.renamed(own);
    mappings.stack(30 + AGAIN, own, [here].into_iter());
    assert_eq!(mappings.processes[&own].asked, 30 + AGAIN);
}

#[test]
fn events_of_the_program_are_read_back() {
    let text = "name: stack\nID: 27\nformat:\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
        \tfield:unsigned int tgid;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned int count;\toffset:12;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned long calls;\toffset:16;\tsize:24;\tsigned:0;\n\
        \tfield:unsigned long top;\toffset:40;\tsize:16;\tsigned:0;\n";
    let format = format::parse(text).expect("a description");
    let words = [0, u64::from(9_u32) | 2 << 32, 0xa, 0xb, 0xc, 0xd, 0xe];
    let event: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    let fields: Vec<_> = format.fields.into_iter().map(Some).collect();
    let Some(Seen::Other { fields, .. }) = raw(&Values { event: &event, fields: &fields }) else { panic!("a record") };
    let stack = Addresses::read(&fields);
    assert_eq!((stack.pid, stack.calls, stack.top), (9, vec![0xa, 0xb], vec![0xd, 0xe]));
}

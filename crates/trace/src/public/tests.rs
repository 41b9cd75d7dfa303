//! Samples in each format, made here, and how mistakes in them are told.

use std::io::Write;
use std::path::PathBuf;

use proptest::prelude::*;

use super::caches::{Policy, Uses};
use super::figures::{CacheSize, Figures, Unit};
use super::*;
use crate::format::{self, FORMATS, Reading as Form};

/// A file for one test.
struct Sample(PathBuf);

impl Sample {
    fn of(name: &str, bytes: &[u8]) -> Sample {
        let path = std::env::temp_dir().join(format!("iowhy-public-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).expect("a file in the temporary directory");
        Sample(path)
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn source(name: &str) -> &'static Source {
    match format::format(name).expect("a format").read {
        Form::Stream(source) => source,
        _ => panic!("{name} is no public trace"),
    }
}

fn read(sample: &Sample, name: &str) -> (Vec<Access>, Option<Provenance>, Problems) {
    let (mut found, mut problems) = (Vec::new(), Problems::default());
    let from = stream(&sample.0, source(name), &mut problems, &mut |access| found.push(*access));
    (found, from, problems)
}

fn record(time: u32, key: u64, bytes: u32, next: i64) -> Vec<u8> {
    [&time.to_le_bytes()[..], &key.to_le_bytes(), &bytes.to_le_bytes(), &next.to_le_bytes()].concat()
}

/// Version 1: sector, bytes, microseconds and command.
fn scsi(block: u64, bytes: u32, time: u64, command: u16) -> Vec<u8> {
    let head = [7_u32, bytes, 1].map(u32::to_le_bytes).concat();
    [&head[..], &command.to_le_bytes(), &0x0100_u16.to_le_bytes(), &block.to_le_bytes(), &time.to_le_bytes()].concat()
}

/// A format, a sample of two or three requests, and what they are: time, response, key, bytes, volume, purpose. The key
/// 0 of a cache stands for any.
type Case = (&'static str, Vec<u8>, &'static [(u64, u64, u64, u32, u32, Purpose)]);

fn cases() -> Vec<Case> {
    use Purpose::{Delete, Read, Write};
    vec![
        (
            "msr",
            b"128166372003061629,web,1,Read,8192,4096,58000\r\n128166372013061629,web,0,Write,512,1024,71\r\n".to_vec(),
            &[(0, 5_800_000, 8192, 4096, 0, Read), (1_000_000_000, 7100, 512, 1024, 1, Write)],
        ),
        (
            "enterprise",
            b"BeginHeader\n   DiskRead,  TimeStamp,     Process Name ( PID),   ThreadID\nEndHeader\n\
              OS Version: 6.0.6001, Trace Size: 1KB\n\
              DiskReadInit,  10,  System (   4),  88, 0xfffffa80\n\
              DiskRead,  1500, System (   4),  88, 0xfffffa80, 0x0000002000, 0x00001000, 1490, 3, 0x060043, 1490, \
              Normal, , 0xfffff880, \"C:\\a, b\"\n\
              DiskWrite, 1700, sqlservr.exe (2052), 99, 0xfffffa81, 0x200, 0x400, 100, 0, 0x0, 90, Normal, , 0x0\n"
                .to_vec(),
            &[(10_000, 1_490_000, 8192, 4096, 3, Read), (1_600_000, 100_000, 512, 1024, 0, Write)],
        ),
        (
            "fiu",
            b"500 11 gzip 16 8 R 6 0 00112233445566778899aabbccddeeff\n\
              900 12 Web Content 1 2 W 6 1 ffeeddccbbaa99887766554433221100\n950 13 nfsd 1 2 W 6 1\n"
                .to_vec(),
            &[
                (0, 0, 8192, 4096, 6 << 20, Read),
                (400, 0, 512, 1024, 6 << 20 | 1, Write),
                (450, 0, 512, 1024, 6 << 20 | 1, Write),
            ],
        ),
        (
            "alibaba",
            b"device_id,opcode,offset,length,timestamp\n3,R,8192,4096,1577808000000626\n0,W,512,1024,1577808000000700"
                .to_vec(),
            &[(0, 0, 8192, 4096, 3, Read), (74_000, 0, 512, 1024, 0, Write)],
        ),
        (
            "tencent",
            b"1538323200,16,8,0,1063\n1538323202,1,2,1,9\n".to_vec(),
            &[(0, 0, 8192, 4096, 1063, Read), (2_000_000_000, 0, 512, 1024, 9, Write)],
        ),
        (
            "twitter",
            b"0,nz:u:eeW,8,213,4,get,0\n3,nz:u:eeX,8,100,5,set,600\n3,nz:u:eeW,8,0,4,delete,0\n".to_vec(),
            &[(0, 0, 0, 221, 0, Read), (3_000_000_000, 0, 0, 108, 0, Write), (3_000_000_000, 0, 0, 8, 0, Delete)],
        ),
        (
            "vscsi",
            [scsi(16, 4096, 1000, 0x28), scsi(1, 1024, 1500, 0x2a)].concat(),
            &[(0, 0, 8192, 4096, 0, Read), (500_000, 0, 512, 1024, 0, Write)],
        ),
        (
            "oracleGeneral",
            [record(5, 77, 100, 2), record(6, 78, 200, -1), record(6, 77, 100, -1)].concat(),
            &[(0, 0, 77, 100, 0, Read), (1_000_000_000, 0, 78, 200, 0, Read), (1_000_000_000, 0, 77, 100, 0, Read)],
        ),
    ]
}

/// A tar archive of one file.
fn tar(bytes: &[u8]) -> Vec<u8> {
    let mut head = [0; TAR];
    head[..4].copy_from_slice(b"a.cs");
    head[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
    head[156] = b'0';
    head[257..262].copy_from_slice(b"ustar");
    let padding = bytes.len().next_multiple_of(TAR) - bytes.len();
    [&head[..], bytes, &vec![0; padding + 2 * TAR]].concat()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).expect("memory");
    out.finish().expect("memory")
}

#[test]
fn every_public_format_has_a_sample() {
    let streams = FORMATS.iter().filter(|format| matches!(format.read, Form::Stream(_))).map(|format| format.name);
    let sampled: Vec<&str> = cases().iter().map(|case| case.0).collect();
    assert_eq!(streams.collect::<Vec<_>>(), sampled);
}

#[test]
fn samples_are_recognised_and_read_in_every_packing() {
    for (name, bytes, expected) in cases() {
        let halves = bytes.split_at(bytes.len() / 2);
        let packed = [
            ("plain", bytes.clone()),
            ("gzip", [gzip(halves.0), gzip(halves.1)].concat()),
            ("zstd", zstd::encode_all(&bytes[..], 3).expect("memory")),
            ("plain+tar", tar(&bytes)),
            ("gzip+tar", gzip(&tar(&bytes))),
        ];
        for (how, file) in packed {
            let sample = Sample::of(&format!("{name}-{how}"), &file);
            let path = sample.0.display().to_string();
            assert_eq!(format::detect(&path, &file).map(|format| format.name), Some(name), "{name}, {how}");
            let (found, from, problems) = read(&sample, name);
            let from = from.unwrap_or_else(|| panic!("{name}, {how}: {}", problems.render()));
            let told = |access: &Access| {
                let key = if name == "twitter" { 0 } else { access.key };
                (access.at.0, access.took.0, key, access.bytes, access.volume, access.purpose)
            };
            assert_eq!(found.iter().map(told).collect::<Vec<_>>(), expected, "{name}, {how}");
            assert_eq!((from.packed.as_str(), from.file_bytes), (how, file.len() as u64), "{name}");
            assert_eq!(from.blake3, blake3::hash(&file).to_hex().to_string(), "{name}, {how}");
        }
    }
}

#[test]
fn wrong_lines_have_line_and_column_all_at_once() {
    let cases: &[(&str, &str, &[&str])] = &[
        (
            "msr",
            "1,web,0,Read,1,2,3\n1,web,x,Read,1,2,3\n1,web,0,Trim,1,2,3\n1,web,0,Read,1\n",
            &[":2:7:", ":3:9:", ":4:15:"],
        ),
        ("msr", "1,a,0,Read,1,2,3,4\n", &[":1:18:"]),
        ("enterprise", "DiskRead, 1, a ( 4), 1, 0x1, 16, 0x1, 1, 0\nDiskRead, 1, a, 1\n", &[":1:30:", ":2:14:"]),
        ("fiu", "1 2 a 3 4 X 6 0 ff\n1 2 a b 4 R 6 0 ff\n1 2 a 3 4 R 6\n", &[":1:11:", ":2:7:", ":3:14:"]),
        ("alibaba", "0,R,1,2,3\n0,X,1,2,3\n0,R,-1,2,3\n0,R,1,99999999999,3\n", &[":2:3:", ":3:5:", ":4:7:"]),
        ("tencent", "1,2,3,2,5\n1,2,3,0\n99999999999999,2,3,0,5\n", &[":1:7:", ":2:8:", ":3:1:"]),
        ("twitter", "1,k,1,1,1,gat,0\n1,k,1,1,1,get,\n", &[":1:11:", ":2:15:"]),
    ];
    for (name, text, places) in cases {
        let sample = Sample::of(&format!("wrong-{name}-{}", text.len()), text.as_bytes());
        let (_, from, problems) = read(&sample, name);
        let told = problems.render();
        assert!(from.is_none() && problems.any_error(), "{name}: {told}");
        assert!(places.iter().all(|place| told.contains(place)), "{name}: {told}");
        assert_eq!(told.matches("error").count(), places.len(), "{name}: {told}");
    }
    let sample = Sample::of("wrong-many", "x\n".repeat(500).as_bytes());
    let told = read(&sample, "msr").2.render();
    assert!(told.contains(":10:1:") && !told.contains(":11:1:") && told.contains("490 more lines"), "{told}");
}

#[test]
fn what_is_cut_is_named() {
    for (name, bytes, _) in cases().into_iter().filter(|case| matches!(source(case.0).layout, Layout::Records(..))) {
        let sample = Sample::of(&format!("cut-{name}"), &bytes[..bytes.len() - 3]);
        let (_, from, problems) = read(&sample, name);
        assert!(from.is_none() && problems.render().contains("is cut"), "{name}: {}", problems.render());
    }
    let text = "1,R,8192,4096,1577808000000626\n".repeat(5000);
    for (how, file) in [("gz", gzip(text.as_bytes())), ("zst", zstd::encode_all(text.as_bytes(), 3).expect("memory"))] {
        let sample = Sample::of(&format!("cut.{how}"), &file[..file.len() - 9]);
        let (_, from, problems) = read(&sample, "alibaba");
        assert!(from.is_none() && problems.render().contains("is cut"), "{how}: {}", problems.render());
    }
}

#[test]
fn keys_have_places_of_their_own() {
    let lines =
        "0,a,1,9000,1,get,0\n1,b,1,1,1,set,0\n2,a,1,1,1,delete,0\n3,a,1,10,1,get,0\n3,c,0,0,1,get,0\n3,b,1,1,1,get,0\n";
    let sample = Sample::of("places", lines.as_bytes());
    let mut problems = Problems::default();
    let (found, _, left_out) = places::settled(&sample.0, source("twitter"), &mut problems).expect("a trace");
    assert_eq!(found.iter().map(|access| access.key).collect::<Vec<_>>(), [0, 12_288, 0, 12_288]);
    assert_eq!(left_out, 2);
    let trace = crate::load(&sample.0, &mut problems).expect("a trace");
    assert_eq!(trace.records.len(), 8, "{}", problems.render());
}

#[test]
fn figures_are_those_of_a_trace_made_by_hand() {
    let lines = "0,R,0,8192,1000000\n0,W,4096,4096,1500000\n1,R,0,4096,3000000\n0,R,0,4096,5000000\n";
    let sample = Sample::of("figures", lines.as_bytes());
    let mut figures = Figures::new(Unit::Page, true);
    let from = stream(&sample.0, source("alibaba"), &mut Problems::default(), &mut |access| figures.add(access));
    let lru = Policy::named("lru").expect("a policy");
    let rows = figures.caches(&[lru], &[CacheSize::Bytes(8192), CacheSize::Percent(100.0), CacheSize::Bytes(1)]);
    let misses: Vec<u64> = rows.iter().map(|row| row.2.misses).collect();
    // Pages a b b c a: two frames forget a for c.
    assert_eq!(misses, [4, 3, 5]);
    let json = figures.json(&from.expect("a trace"), &rows);
    assert_eq!((json["requests"].as_u64(), json["read_share"].as_f64()), (Some(4), Some(0.75)));
    assert_eq!((json["seconds"].as_f64(), json["requests_per_s"]["peak"].as_u64()), (Some(4.0), Some(2)));
    assert_eq!((json["working_set"]["units"].as_u64(), json["reuse"]["again"].as_u64()), (Some(3), Some(2)));
}

/// The caches of libCacheSim as its documentation explains them.
fn naive(lru: bool, cache: u64, uses: &Uses) -> u64 {
    let mut kept: Vec<(u32, u64)> = Vec::new();
    let mut misses = 0;
    for (id, bytes) in uses.ids.iter().zip(&uses.bytes) {
        if let Some(at) = kept.iter().position(|held| held.0 == *id) {
            if lru {
                let held = kept.remove(at);
                kept.push(held);
            }
            continue;
        }
        misses += 1;
        if u64::from(*bytes) <= cache {
            while kept.iter().map(|held| held.1).sum::<u64>() + u64::from(*bytes) > cache {
                kept.remove(0);
            }
            kept.push((*id, u64::from(*bytes)));
        }
    }
    misses
}

/// 20,000 requests of 3000 keys, the lower ones more often; an eighth of them with another size than the key's.
fn synthetic() -> Uses {
    let mut state = 25_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u32
    };
    let mut uses = Uses { nr_ids: 3000, ..Uses::default() };
    for _ in 0..20_000 {
        let key = (next() % 3000).min(next() % 3000);
        uses.ids.push(key);
        uses.bytes.push(if next() % 8 > 0 { 1 + key * key % 5003 } else { 1 + next() % 9000 });
    }
    uses
}

#[test]
fn objects_miss_as_in_libcachesim() {
    // Frozen from libCacheSim 0.3.5 (the Python wheel), fed this very trace: bytes of the cache, misses, their bytes.
    let frozen = [
        ("lru", 20_000, 19_932, 54_626_220),
        ("lru", 400_000, 18_724, 51_279_799),
        ("lru", 3_000_000, 10_920, 29_994_956),
        ("fifo", 20_000, 19_932, 54_626_220),
        ("fifo", 400_000, 18_738, 51_357_701),
        ("fifo", 3_000_000, 11_169, 30_644_563),
        ("clock", 20_000, 19_932, 54_626_220),
        ("clock", 400_000, 18_706, 51_223_611),
        ("clock", 3_000_000, 10_802, 29_749_147),
    ];
    let uses = synthetic();
    for (name, cache, misses, miss_bytes) in frozen {
        let found = uses.misses(Policy::named(name).expect("a policy"), cache);
        let expected = caches::Misses { uses: 20_000, misses, bytes: 54_778_365, miss_bytes };
        assert_eq!(found, Some(expected), "{name}, {cache} bytes");
    }
}

proptest! {
    #[test]
    fn objects_of_any_size_miss_as_in_the_naive_cache(
        uses in prop::collection::vec((0..20_u32, 1..50_u32), 1..300), cache in 1..200_u64,
    ) {
        let (ids, bytes) = uses.into_iter().unzip();
        let uses = Uses { ids, bytes, nr_ids: 20, folds: Vec::new() };
        for name in ["lru", "fifo"] {
            let policy = Policy::named(name).expect("a policy");
            let found = uses.misses(policy, cache).map(|found| found.misses);
            prop_assert_eq!(found, Some(naive(name == "lru", cache, &uses)), "{}", name);
        }
    }

    #[test]
    fn kernels_hold_no_more_pages_than_they_may(
        ids in prop::collection::vec(0..64_u32, 1..600), frames in 1..80_u64,
    ) {
        let folds = (0..ids.len()).step_by(50).collect();
        let different = ids.iter().collect::<std::collections::BTreeSet<_>>().len() as u64;
        let uses = Uses { ids, bytes: Vec::new(), nr_ids: 64, folds };
        for name in ["linux-2.6.6", "linux-4.4", "linux-6.18", "mglru-6.1", "mglru-6.12", "mglru-7.2"] {
            let Some(policy) = Policy::named(name) else { continue };
            let found = uses.misses(policy, frames * 4096).expect("pages");
            prop_assert!(found.misses >= different && found.misses <= found.uses);
            if frames >= 64 {
                prop_assert_eq!(found.misses, different, "{}", name);
            }
        }
    }

    #[test]
    fn no_bytes_stop_a_reader(bytes in prop::collection::vec(any::<u8>(), 0..400), ascii in any::<bool>()) {
        let text = b"0123456789,, \nRWx()";
        let letter = |byte: &u8| if ascii { text[usize::from(*byte) % text.len()] } else { *byte };
        let bytes: Vec<u8> = bytes.iter().map(letter).collect();
        let sample = Sample::of("any", &bytes);
        for (name, ..) in cases() {
            let (found, from, problems) = read(&sample, name);
            prop_assert_eq!(from.is_none(), problems.any_error(), "{}", name);
            prop_assert!(from.is_none_or(|from| from.records == found.len() as u64));
        }
    }
}

//! Tables with drawn expectations, a slow oracle, and btt itself.

use super::*;
use iowhy_stack::rng::Rng;
use std::process::Command;

/// A record without the words around it.
#[derive(Copy, Clone, Debug)]
struct Line {
    at: u64,
    /// blktrace's letter.
    letter: char,
    sector: u64,
    bytes: u32,
    dev: Dev,
    /// Of a remap: where it comes from.
    from: (Dev, u64),
}

fn play(lines: &[Line]) -> Tables {
    let mut phases = Phases::default();
    for line in lines {
        let step = match line.letter {
            'Q' => Step::Queue,
            'S' => Step::Sleep,
            'G' => Step::GetRequest,
            'M' | 'F' => Step::Merge,
            'I' => Step::Insert,
            'D' => Step::Issue,
            'C' => Step::Complete,
            'A' => {
                phases.remap(line.at, line.from.0, line.from.1);
                continue;
            }
            _ => continue,
        };
        phases.step(step, line.at, line.dev, line.sector, line.bytes);
    }
    phases.finish()
}

/// `time letter sector sectors`, on 8:0.
fn lines(text: &str) -> Vec<Line> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |nr: usize| words[nr].parse::<u64>().expect("a number");
        Line {
            at: number(0),
            letter: words[1].chars().next().expect("a letter"),
            sector: number(2),
            bytes: number(3) as u32 * 512,
            dev: Dev::new(8, 0),
            from: (Dev::default(), 0),
        }
    };
    text.split(';').map(line).collect()
}

/// Phases as `NAME min/max xN`.
fn summary(table: &Table) -> String {
    let of = |phase: &Phase| {
        let times = table.of(*phase);
        Some(format!("{} {}/{}x{}", phase.name(), times.min()?, times.max()?, times.count()))
    };
    Phase::ALL.iter().filter_map(of).collect::<Vec<_>>().join(" ")
}

/// Drawn: each line is the output of btt 1.2.0 for the same records.
#[test]
fn what_btt_says_of_drawn_traces() {
    let table = [
        (
            "1000 Q 100 8;1010 G 100 8;1020 I 100 8;1030 Q 108 8;1035 M 108 8;1100 D 100 16;1500 C 100 16",
            "Q2Q 30/30x1 Q2G 10/10x1 G2I 10/10x1 Q2M 5/5x1 I2D 80/80x1 M2D 65/65x1 D2C 400/400x2 Q2C 470/500x2",
        ),
        // The same sectors again: the first bio is forgotten.
        (
            "1000 Q 100 8;1100 Q 100 8;1200 G 100 8;2000 C 100 8;2300 C 100 8",
            "Q2Q 100/100x1 Q2G 100/100x1 Q2C 900/900x1",
        ),
        // Issued again after a requeue.
        (
            "1000 Q 100 8;1200 G 100 8;1300 I 100 8;1600 D 100 8;1700 R 100 8;1900 D 100 8;2300 C 100 8",
            "Q2G 200/200x1 G2I 100/100x1 I2D 300/600x2 D2C 400/400x1 Q2C 1300/1300x1",
        ),
        ("1000 Q 100 8;1200 G 100 8;2300 C 100 8;2400 D 100 8;2700 C 100 8", "Q2G 200/200x1 Q2C 1300/1300x1"),
        // Done in two parts, neither of which holds the bio.
        ("1000 Q 100 16;1200 D 100 16;1500 C 100 8;1700 C 108 8", ""),
        (
            "1000 Q 100 16;1200 M 100 16;1250 M 104 4;1300 D 100 16;1500 C 100 16",
            "Q2M 200/250x2 M2D 50/50x1 D2C 200/200x1 Q2C 500/500x1",
        ),
        ("1000 Q 100 8;1000 D 100 8;900 C 100 8", "D2C 1/1x1 Q2C 1/1x1"),
        ("1000 Q 100 0;1100 D 100 0;1200 C 100 0", ""),
        ("1000 Q 100 8;1010 S 100 8;1060 G 100 8", "Q2G 60/60x1 S2G 50/50x1"),
        // Bios that overlap: which is found depends on who came first.
        (
            "1000 Q 100 32;1100 Q 108 8;1200 G 108 8;1205 G 100 8;1310 I 100 8;2600 D 100 32;2800 C 100 32",
            "Q2Q 100/100x1 Q2G 200/205x2 G2I 105/105x1 I2D 1290/1290x1 D2C 200/200x1 Q2C 1800/1800x1",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(summary(&play(&lines(text)).all), expected, "{text}");
    }
}

/// Drawn: without a bio there are requests, and nothing but the time at the device.
#[test]
fn requests_alone_have_their_time_at_the_device() {
    let table = [
        ("1000 D 100 8;1200 D 200 16;1500 C 100 8;2500 C 200 16", "D2C 500/1300x2", true),
        // Issued again after a requeue; done without an issue; never done; without bytes.
        ("1000 D 100 8;1100 R 100 8;1300 D 100 8;1500 C 100 8;1600 C 300 8;1700 D 400 8", "D2C 200/200x1", true),
        ("1000 D 0 0;1100 C 0 0", "", false),
        ("1000 D 100 8;900 C 100 8", "D2C 1/1x1", true),
        ("1500 C 100 8", "", false),
        // With a bio btt's rules hold, also for what came before it.
        ("1000 D 100 8;1500 C 100 8;1600 Q 100 8;1700 D 300 8;1800 C 300 8", "", false),
        ("1000 D 100 8;1100 Q 200 8;1200 D 200 8;1500 C 100 8;1600 C 200 8", "D2C 400/400x1 Q2C 500/500x1", false),
    ];
    for (text, expected, only_requests) in table {
        let tables = play(&lines(text));
        assert_eq!((summary(&tables.all).as_str(), tables.only_requests), (expected, only_requests), "{text}");
        assert_eq!(tables.devices.first().map_or(String::new(), |(_, table)| summary(table)), expected, "{text}");
        let absent: Vec<&str> = tables.absent().iter().map(|phase| phase.name()).collect();
        let expected: &[&str] = if only_requests { &["Q2Q", "Q2G", "G2I", "Q2M", "I2D", "M2D", "Q2C"] } else { &[] };
        assert_eq!(absent, expected, "{text}");
    }
}

/// Where requests are bios, one each, D2C is the same whether the bios were traced or not.
#[test]
fn a_light_trace_has_the_same_time_at_the_device_as_a_full_one() {
    let mut rng = Rng::stream(13, "light");
    for _ in 0..20 {
        let mut full = Vec::new();
        let mut at = 1000;
        let mut open: Vec<u64> = Vec::new();
        for _ in 0..400 {
            at += rng.below(300);
            let line = |letter, sector| Line {
                at,
                letter,
                sector,
                bytes: 4096,
                dev: Dev::new(8, 16 * (sector % 16 / 8) as u32),
                from: (Dev::default(), 0),
            };
            let sector = rng.below(64) * 8;
            if open.len() < 16 && !open.contains(&sector) {
                full.extend([line('Q', sector), line('G', sector), line('D', sector)]);
                open.push(sector);
            } else if !open.is_empty() {
                full.push(line('C', open.swap_remove(rng.below(open.len() as u64) as usize)));
            }
        }
        let light: Vec<Line> = full.iter().filter(|line| matches!(line.letter, 'D' | 'C')).copied().collect();
        let (full, light) = (play(&full), play(&light));
        assert!(full.all.of(Phase::D2c).count() > 100);
        assert_eq!(light.all.of(Phase::D2c), full.all.of(Phase::D2c));
        assert!(light.only_requests && !full.only_requests);
        assert_eq!(light.devices.len(), full.devices.len());
        for ((dev, light), (of, full)) in light.devices.iter().zip(&full.devices) {
            assert_eq!((dev, light.of(Phase::D2c)), (of, full.of(Phase::D2c)));
        }
    }
}

/// How drawn traces differ.
#[derive(Copy, Clone, Debug)]
struct Draw {
    /// Bios begin at multiples of this and are that long, so that none overlap in part; 0: they overlap.
    grid: u64,
    /// Different places.
    places: u64,
    records: u64,
}

/// Records in no particular order, so that everything happens: requests that are never done, done without an issue,
/// requeues, merges, remaps, several devices.
fn draw(rng: &mut Rng, how: Draw) -> Vec<Line> {
    let devices = [Dev::new(8, 0), Dev::new(8, 16), Dev::new(259, 1), Dev::new(253, 0), Dev::new(9, 1)];
    let mut at = 1000;
    let mut bios: Vec<(Dev, u64, u32)> = Vec::new();
    (0..how.records)
        .map(|_| {
            at += rng.below(500);
            let place = |rng: &mut Rng| match how.grid {
                0 => (rng.below(how.places), (1 + rng.below(24)) as u32 * 512),
                grid => (rng.below(how.places) * grid, grid as u32 * 512),
            };
            let (mut sector, mut bytes) = place(rng);
            let mut dev = devices[rng.below(5) as usize];
            let letter = b"QQQQQGGIIMFDDCCCRAS"[rng.below(19) as usize] as char;
            let mut from = (Dev::default(), 0);
            if letter == 'Q' {
                bios.push((dev, sector, bytes));
            } else if !bios.is_empty() && rng.below(8) > 0 {
                // Nearly always of a bio there is, and issues and completions may cover the ones behind it.
                let index = rng.below(bios.len() as u64) as usize;
                (dev, sector, bytes) = bios[index];
                if matches!(letter, 'D' | 'C') && rng.below(3) == 0 {
                    bytes *= 1 + rng.below(4) as u32;
                }
                if letter == 'C' && rng.below(4) > 0 {
                    bios.swap_remove(index);
                }
                from = (dev, sector);
                if letter == 'A' {
                    dev = devices[0];
                }
            }
            if rng.below(40) == 0 {
                bytes = 0;
            }
            Line { at, letter, sector, bytes, dev, from }
        })
        .filter(|line| line.letter != 'A' || line.bytes > 0)
        .collect()
}

/// btt's rules on a plain list, where bios never overlap in part.
fn slow(lines: &[Line]) -> Vec<(Phase, Vec<u64>)> {
    let mut times: Vec<(Phase, Vec<u64>)> = Phase::ALL.iter().map(|phase| (*phase, Vec::new())).collect();
    let mut push = |phase: Phase, from: Option<u64>, to: u64| {
        if let Some(from) = from {
            times[phase as usize].1.push(to.saturating_sub(from).max(1));
        }
    };
    type Stamps = [Option<u64>; 6];
    let mut bios: Vec<(Dev, u64, u64, Stamps)> = Vec::new();
    let mut last = None;
    for line in lines.iter().filter(|line| line.bytes > 0) {
        let dm = |dev: Dev| [9, 253, 254].contains(&dev.major());
        let end = line.sector + u64::from(line.bytes / 512);
        let at = line.at;
        let (dev, sector) = if line.letter == 'A' { line.from } else { (line.dev, line.sector) };
        let holds = bios.iter_mut().find(|bio| bio.0 == dev && bio.1 <= sector && sector < bio.2);
        match (line.letter, holds) {
            ('Q', _) => {
                push(if dm(dev) { Phase::Q2qDm } else { Phase::Q2q }, last, at);
                last = Some(at);
                bios.retain(|bio| (bio.0, bio.1) != (dev, sector));
                bios.push((dev, sector, end, [Some(at), None, None, None, None, None]));
            }
            ('D' | 'C', _) => {
                for bio in bios.iter_mut().filter(|bio| bio.0 == dev && sector <= bio.1 && bio.2 <= end) {
                    let stamps = &mut bio.3;
                    if line.letter == 'C' {
                        push(if dm(dev) { Phase::Q2cDm } else { Phase::Q2c }, stamps[0], at);
                        push(Phase::D2c, stamps[5], at);
                        bio.1 = u64::MAX;
                    } else {
                        stamps[5] = Some(at);
                        push(if stamps[4].is_some() { Phase::I2d } else { Phase::M2d }, stamps[4].or(stamps[3]), at);
                    }
                }
                bios.retain(|bio| bio.1 != u64::MAX);
            }
            ('A', Some(bio)) => push(if dm(dev) { Phase::Q2aDm } else { Phase::Q2a }, bio.3[0], at),
            ('S', Some(bio)) => bio.3[1] = Some(at),
            ('G', Some(bio)) => {
                push(Phase::Q2g, bio.3[0], at);
                push(Phase::S2g, bio.3[1], at);
                bio.3[2] = Some(at);
            }
            ('M' | 'F', Some(bio)) => {
                push(Phase::Q2m, bio.3[0], at);
                bio.3[3] = Some(at);
            }
            ('I', Some(bio)) => {
                push(Phase::G2i, bio.3[2], at);
                bio.3[4] = Some(at);
            }
            _ => {}
        }
    }
    times
}

#[test]
fn a_slow_list_gives_the_same_numbers() {
    let mut rng = Rng::stream(7, "phases");
    for nr in 0..60 {
        let records = 20 + rng.below(600);
        let lines = draw(&mut rng, Draw { grid: 8, places: 4 + nr, records });
        let tables = play(&lines);
        for (phase, times) in slow(&lines) {
            let histogram = tables.all.of(phase);
            let sum: u128 = times.iter().map(|time| u128::from(*time)).sum();
            let seen = (histogram.count(), histogram.min(), histogram.max(), histogram.sum());
            let expected = (times.len() as u64, times.iter().min().copied(), times.iter().max().copied(), sum);
            assert_eq!(seen, expected, "trace {nr}, {}", phase.name());
        }
    }
}

/// The records as blktrace writes them.
fn blktrace(lines: &[Line]) -> Vec<u8> {
    let mut out = Vec::new();
    for (nr, line) in lines.iter().enumerate() {
        let (action, category): (u32, u32) = match line.letter {
            'Q' => (1, 16),
            'M' => (2, 16),
            'F' => (3, 16),
            'G' => (4, 16),
            'S' => (5, 16),
            'R' => (6, 32),
            'D' => (7, 64),
            'C' => (8, 128),
            'I' => (12, 16),
            _ => (15, 16),
        };
        let word = action | (category | 2 | 256) << 16;
        for field in [0x6561_7407, nr as u32 + 1] {
            out.extend(field.to_le_bytes());
        }
        for field in [line.at, line.sector] {
            out.extend(field.to_le_bytes());
        }
        for field in [line.bytes, word, 1, line.dev.0, 0] {
            out.extend(field.to_le_bytes());
        }
        let payload = if line.letter == 'A' { 16u16 } else { 0 };
        out.extend([0, 0]);
        out.extend(payload.to_le_bytes());
        if payload > 0 {
            out.extend(line.from.0.0.to_be_bytes());
            out.extend(line.dev.0.to_be_bytes());
            out.extend(line.from.1.to_be_bytes());
        }
    }
    out
}

/// The text of a section of btt's report, in its lines.
fn section<'a>(report: &'a str, name: &str) -> Vec<&'a str> {
    let start = report.find(&format!("==================== {name} ====")).expect("btt has this section");
    let end = report[start + 20..].find("\n====").map_or(report.len(), |end| start + 20 + end);
    report[start..end].lines().collect()
}

/// min, avg, max and N at the end of a line of btt, ns.
fn figures(line: &str) -> Option<[u64; 4]> {
    let words: Vec<&str> = line.split_whitespace().rev().take(4).collect();
    let number = |nr: usize| words.get(nr)?.replace('.', "").parse::<u64>().ok();
    Some([number(3)?, number(2)?, number(1)?, number(0)?])
}

/// The figures of a table as btt prints them: the average in double precision, to the nanosecond.
fn our_figures(times: &Histogram) -> Option<[u64; 4]> {
    let (n, min) = (times.count(), times.min()?);
    let average = format!("{:.9}", times.sum() as f64 / 1e9 / n as f64).replace('.', "").parse().expect("digits");
    Some([min, average, times.max()?, n])
}

/// btt's table over all and those of each device equal ours on drawn traces, overlapping bios and all.
#[test]
fn btt_says_the_same() {
    if Command::new("btt").arg("-V").current_dir(std::env::temp_dir()).output().is_err() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "btt is not installed (package blktrace)");
        eprintln!("SKIPPED: btt is not installed (package blktrace)");
        return;
    }
    let folder = std::env::temp_dir().join(format!("iowhy-phases-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the traces");
    let mut rng = Rng::stream(11, "btt");
    for nr in 0..30u64 {
        let records = 10 + rng.below(800);
        let how = Draw { grid: [0, 8][nr as usize % 2], places: 10 + rng.below(400), records };
        let lines = draw(&mut rng, how);
        let file = folder.join("trace");
        std::fs::write(&file, blktrace(&lines)).expect("the trace can be written");
        let output = Command::new("btt").args(["-A", "-i", "trace"]).current_dir(&folder).output().expect("btt runs");
        // btt leaves files of its own where it runs.
        let report = String::from_utf8_lossy(&output.stdout).into_owned();
        let tables = play(&lines);
        for phase in Phase::ALL {
            let name = phase.name();
            let all = section(&report, "All Devices");
            let theirs = all.iter().find(|line| line.split_whitespace().next() == Some(name));
            let ours = our_figures(tables.all.of(phase));
            assert_eq!(ours, theirs.and_then(|line| figures(line)), "trace {nr} {how:?}: {name}");
            let lines = section(&report, "Per Device");
            let start = lines.iter().position(|line| line.trim_start().starts_with(&format!("{name} ")));
            for line in lines.iter().skip(start.map_or(lines.len(), |start| start + 2)) {
                let Some((major, rest)) = line.strip_prefix('(').and_then(|rest| rest.split_once(',')) else { break };
                let minor = rest.split(')').next().expect("a bracket");
                let dev = Dev::new(major.trim().parse().expect("digits"), minor.trim().parse().expect("digits"));
                let table = tables.devices.iter().find(|(known, _)| *known == dev);
                let ours = table.and_then(|(_, table)| our_figures(table.of(phase)));
                assert_eq!(ours, figures(line), "trace {nr} {how:?}: {name} of {dev:?}");
            }
        }
    }
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
}

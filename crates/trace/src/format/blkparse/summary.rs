//! The sums behind blkparse's lines.

use std::fmt::Write;

use crate::format::blktrace::{Raw, bits};

/// Events of a kind and their bytes. KiB and the bytes that are left are kept apart, as blkparse does: whole KiB of
/// each event first.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Sum {
    events: u64,
    kib: u64,
    rest: u64,
}

impl Sum {
    fn add(&mut self, bytes: u32) {
        self.events += 1;
        self.kib = self.kib.wrapping_add(u64::from(bytes >> 10));
        self.rest = self.rest.wrapping_add(u64::from(bytes & 1023));
    }

    /// Adds completed bytes; blkparse has a signed number there.
    fn add_done(&mut self, bytes: u32) {
        self.events += 1;
        self.kib = self.kib.wrapping_add_signed(i64::from(bytes as i32 >> 10));
        self.rest = self.rest.wrapping_add(u64::from(bytes & 1023));
    }

    fn take_back(&mut self, bytes: u32) {
        self.kib = self.kib.wrapping_sub(u64::from(bytes >> 10));
        self.rest = self.rest.wrapping_sub(u64::from(bytes & 1023));
    }

    fn merge(&mut self, other: &Sum) {
        self.events += other.events;
        self.kib = self.kib.wrapping_add(other.kib);
        self.rest = self.rest.wrapping_add(other.rest);
    }

    /// KiB, the rests included.
    fn total(&self) -> u64 {
        self.kib.wrapping_add(self.rest >> 10)
    }
}

/// Requests of file systems, or other commands. Of each, reads and writes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Requests {
    queued: [Sum; 2],
    issued: [Sum; 2],
    requeued: [u64; 2],
    completed: [Sum; 2],
    merged: [Sum; 2],
}

impl Requests {
    fn merge(&mut self, other: &Requests) {
        for write in [0, 1] {
            self.queued[write].merge(&other.queued[write]);
            self.issued[write].merge(&other.issued[write]);
            self.requeued[write] += other.requeued[write];
            self.completed[write].merge(&other.completed[write]);
            self.merged[write].merge(&other.merged[write]);
        }
    }

    fn any(&self) -> bool {
        [0, 1].iter().any(|write| {
            let sums = [self.queued[*write], self.issued[*write], self.completed[*write]];
            sums.iter().any(|sum| sum.events > 0) || self.requeued[*write] > 0
        })
    }
}

/// Sums of a CPU.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Cpu {
    fs: Requests,
    pc: Requests,
    /// By I/O, and by the timer.
    unplugs: [u64; 2],
}

/// Sums of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events that have categories.
    pub events: u64,
    /// Time of the first of these, and of the last event, ns of the kernel's clock.
    times: (u64, u64),
    /// By number, the one seen last in front.
    cpus: Vec<(u32, Cpu)>,
    /// Reads and writes that the device has, and the most it had.
    depth: [u64; 2],
    deepest: [u64; 2],
}

impl Summary {
    /// Takes an event.
    #[inline]
    pub(super) fn add(&mut self, raw: &Raw) {
        if self.cpus.first().is_none_or(|(cpu, _)| *cpu != raw.cpu) {
            match self.cpus.iter().position(|(cpu, _)| *cpu == raw.cpu) {
                Some(place) => self.cpus.swap(0, place),
                None => self.cpus.insert(0, (raw.cpu, Cpu::default())),
            }
        }
        self.times.1 = raw.time_ns;
        if raw.action & !bits::WHAT == 0 {
            return;
        }
        if self.events == 0 {
            self.times.0 = raw.time_ns;
        }
        self.events += 1;
        if raw.action & bits::NOTIFY != 0 {
            return;
        }
        let other = raw.action & bits::TC_PC != 0;
        let write = usize::from(raw.action & bits::TC_WRITE != 0);
        let Cpu { fs, pc, unplugs } = &mut self.cpus[0].1;
        let (depth, deepest) = (&mut self.depth[write], &mut self.deepest[write]);
        let what = raw.action & bits::WHAT;
        match what {
            bits::QUEUE if other && write == 0 => {
                // blkparse adds these KiB to those of the others.
                pc.queued[0].events += 1;
                pc.queued[0].rest += u64::from(raw.bytes & 1023);
                fs.queued[0].kib = fs.queued[0].kib.wrapping_add(u64::from(raw.bytes >> 10));
            }
            bits::QUEUE => if other { pc } else { fs }.queued[write].add(raw.bytes),
            bits::BACK_MERGE | bits::FRONT_MERGE if !other => fs.merged[write].add(raw.bytes),
            bits::REQUEUE => {
                let requests = if other { pc } else { fs };
                requests.requeued[write] += 1;
                requests.issued[write].take_back(raw.bytes);
                *depth = depth.saturating_sub(1);
            }
            bits::ISSUE => {
                if other { pc } else { fs }.issued[write].add(raw.bytes);
                *depth += 1;
                *deepest = (*deepest).max(*depth);
            }
            bits::COMPLETE => {
                if other { pc } else { fs }.completed[write].add_done(raw.bytes);
                *depth = depth.saturating_sub(1);
            }
            bits::UNPLUG | bits::UNPLUG_TIMER if !other => unplugs[usize::from(what == bits::UNPLUG_TIMER)] += 1,
            _ => {}
        }
    }

    /// The sums as text.
    pub(super) fn text(&self, name: &str, grouped: bool) -> String {
        let page = Page { grouped };
        let mut text = String::new();
        let mut cpus = self.cpus.clone();
        cpus.sort_by_key(|(cpu, _)| *cpu);
        let mut total = Cpu::default();
        let name = cut(name, 31);
        for (cpu, sums) in &cpus {
            let _ = writeln!(text, "{}", cut(&format!("CPU{cpu} ({name}):"), 46));
            page.sums(&mut text, sums, Some(self.deepest));
            total.fs.merge(&sums.fs);
            total.pc.merge(&sums.pc);
            total.unplugs = [0, 1].map(|timer| total.unplugs[timer] + sums.unplugs[timer]);
        }
        if cpus.len() > 1 {
            let _ = writeln!(text, "\n{}", cut(&format!("Total ({name}):"), 46));
            page.sums(&mut text, &total, None);
        }
        let ms = self.times.1.wrapping_sub(self.times.0) / 1_000_000;
        let rate = |sum: &Sum| sum.kib.wrapping_mul(1000).wrapping_add(sum.rest).checked_div(ms).unwrap_or(0);
        let [read, write] = [0, 1].map(|write| page.number(rate(&total.fs.completed[write]), 0));
        let _ = writeln!(text, "\nThroughput (R/W): {read}KiB/s / {write}KiB/s");
        let _ = writeln!(text, "Events ({name}): {} entries", page.number(self.events, 0));
        // Of files for each CPU, blkparse does not look for gaps.
        let _ = writeln!(text, "Skips: 0 forward (0 -   0.0%)");
        text
    }
}

/// The beginning of a text, at most `bytes` bytes.
fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// How numbers are written.
#[derive(Copy, Clone)]
struct Page {
    grouped: bool,
}

impl Page {
    fn number(self, number: u64, width: usize) -> String {
        let digits = number.to_string();
        let mut text = String::new();
        for (nr, digit) in digits.chars().enumerate() {
            if self.grouped && nr > 0 && (digits.len() - nr).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        format!("{text:>width$}")
    }

    /// More than a million becomes thousands of the next unit (from G on to P).
    fn size(self, mut number: u64, in_kib: bool) -> String {
        let mut unit = usize::from(in_kib);
        while number > 1_000_000 && unit < 4 {
            unit += 1;
            number /= 1000;
        }
        format!("{}{}", self.number(number, 8), ["", "K", "M", "G", "P"][unit])
    }

    fn sums(self, text: &mut String, cpu: &Cpu, deepest: Option<[u64; 2]>) {
        let both = |sums: &[Sum; 2]| {
            sums.map(|sum| format!("{}, {}iB", self.size(sum.events, false), self.size(sum.total(), true)))
        };
        let events = |sums: &[Sum; 2]| sums.map(|sum| self.size(sum.events, false));
        let counts = |counts: &[u64; 2]| counts.map(|count| self.size(count, false));
        let wide = |[read, write]: [u64; 2]| [format!("{}{:8}", self.number(read, 8), ""), self.number(write, 8)];
        let mut line = |[left, right]: [&str; 2], tabs: &str, [read, write]: [String; 2]| {
            let _ = writeln!(text, " {left:<16} {read}{tabs} {right:<17} {write}");
        };
        let (fs, pc) = (&cpu.fs, &cpu.pc);
        line(["Reads Queued:", "Writes Queued:"], "\t", both(&fs.queued));
        line(["Read Dispatches:", "Write Dispatches:"], "\t", both(&fs.issued));
        line(["Reads Requeued:", "Writes Requeued:"], "\t\t", counts(&fs.requeued));
        line(["Reads Completed:", "Writes Completed:"], "\t", both(&fs.completed));
        line(["Read Merges:", "Write Merges:"], "\t", both(&fs.merged));
        if let Some(deepest) = deepest {
            line(["Read depth:", "Write depth:"], "\t", wide(deepest));
        }
        if pc.any() {
            line(["PC Reads Queued:", "PC Writes Queued:"], "\t", both(&pc.queued));
            line(["PC Read Disp.:", "PC Write Disp.:"], "\t", both(&pc.issued));
            line(["PC Reads Req.:", "PC Writes Req.:"], "\t\t", counts(&pc.requeued));
            line(["PC Reads Compl.:", "PC Writes Compl.:"], "\t\t", events(&pc.completed));
        }
        line(["IO unplugs:", "Timer unplugs:"], "\t", wide(cpu.unplugs));
    }
}

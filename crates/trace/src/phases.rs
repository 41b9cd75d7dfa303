//! Phases of block I/O, as btt defines and computes them, in one pass.
//!
//! A bio is in flight from its Q to a C that covers it. G, I, M, F and S find the bio that holds their first sector and
//! stamp it; D and C apply to every bio that lies within their sectors as a whole, so that a merged request counts once
//! for each of its bios. Q2G, Q2M, G2I, I2D, M2D count at each G, M, I, D, also at a second one after a requeue; D2C is
//! from the last D. I2D is from an I if there was one, else M2D from a merge if there was one. A Q that begins where a
//! bio in flight does replaces it. Records without bytes (flushes) and passthrough commands are ignored. Q2Q is
//! from one Q to the next of any device in the table over all, and of the same device in a device's table. On devices
//! that pass bios on (majors 9, 253, 254: md and dm) Q2Q, Q2A and Q2C are phases of their own. No time is below 1 ns.
//!
//! A trace without a single Q (level light: issues and completions alone) has no bios, and btt does not mention it.
//! Here it has D2C, once for each request, from the last D of its sectors to the C that covers them; [`Tables::absent`]
//! names
//! the phases that such a trace cannot have. With the first Q that is forgotten, and btt's rules hold for the whole
//! trace.
//!
//! Reference: the observed behaviour of btt 1.2.0 (manual page and runs on drawn traces); no code of it was used. Known
//! limits: percentiles are those of [`Histogram`], within 1/128; btt has none. Memory is that of the bios in flight,
//! which includes those whose completion was lost, as long as their sectors are not used again.

use iowhy_stack::histogram::Histogram;
use iowhy_stack::trace::{Dev, Extent, Record, Rwbs, Seen};

mod tree;

use tree::{Bio, NEVER, Tree};

/// A way between two stages of a bio.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// From a bio to one of a device that passes bios on.
    Q2qDm,
    /// Bio queued at such a device to passed on.
    Q2aDm,
    /// Bio queued at such a device to done.
    Q2cDm,
    /// From a bio to the next one.
    Q2q,
    /// Bio queued to passed on.
    Q2a,
    /// Bio queued to request allocated.
    Q2g,
    /// Waiting for a free request to request allocated.
    S2g,
    /// Request allocated to given to the elevator.
    G2i,
    /// Bio queued to merged into a request.
    Q2m,
    /// Given to the elevator to given to the driver.
    I2d,
    /// Merged to given to the driver.
    M2d,
    /// Given to the driver to done.
    D2c,
    /// Queued to done.
    Q2c,
}

/// How many phases there are.
const PHASES: usize = 13;

impl Phase {
    /// All of them, in btt's order.
    pub const ALL: [Phase; PHASES] = [
        Phase::Q2qDm,
        Phase::Q2aDm,
        Phase::Q2cDm,
        Phase::Q2q,
        Phase::Q2a,
        Phase::Q2g,
        Phase::S2g,
        Phase::G2i,
        Phase::Q2m,
        Phase::I2d,
        Phase::M2d,
        Phase::D2c,
        Phase::Q2c,
    ];

    /// As btt writes it.
    pub fn name(self) -> &'static str {
        const NAMES: [&str; PHASES] =
            ["Q2Qdm", "Q2Adm", "Q2Cdm", "Q2Q", "Q2A", "Q2G", "S2G", "G2I", "Q2M", "I2D", "M2D", "D2C", "Q2C"];
        NAMES[self as usize]
    }

    /// From where to where, in a few words.
    pub fn meaning(self) -> &'static str {
        match self {
            Phase::Q2qDm | Phase::Q2q => "one bio to the next",
            Phase::Q2aDm | Phase::Q2a => "queued to passed on",
            Phase::Q2cDm | Phase::Q2c => "queued to done",
            Phase::Q2g => "queued to a request",
            Phase::S2g => "waiting for a free request",
            Phase::G2i => "request to the scheduler",
            Phase::Q2m => "queued to merged into a request",
            Phase::I2d => "in the scheduler",
            Phase::M2d => "merged to issued",
            Phase::D2c => "at the device",
        }
    }

    /// Whether it is named even if it never happened; the others are rare.
    pub fn is_common(self) -> bool {
        !matches!(self, Phase::Q2qDm | Phase::Q2aDm | Phase::Q2cDm | Phase::Q2a | Phase::S2g)
    }
}

/// The block layer's event for a bio or request, without the record around it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Queued [Q].
    Queue,
    /// Waiting for a free request [S].
    Sleep,
    /// Request allocated [G].
    GetRequest,
    /// Merged [M, F].
    Merge,
    /// Given to the elevator [I].
    Insert,
    /// Given to the driver [D].
    Issue,
    /// Done [C].
    Complete,
}

impl Step {
    /// The step of a record, and its sectors. `None` for those that no phase is made of, for records
    /// without bytes and for passthrough commands.
    #[inline]
    pub fn of(seen: &Seen) -> Option<(Step, &Extent)> {
        let (step, extent) = match seen {
            Seen::Queue(extent) => (Step::Queue, extent),
            Seen::Sleep(extent) => (Step::Sleep, extent),
            Seen::GetRequest(extent) => (Step::GetRequest, extent),
            // blktrace has one letter for a merge of a bio and one of a request.
            Seen::BackMerge(extent) | Seen::FrontMerge(extent) | Seen::MergeRequests(extent) => (Step::Merge, extent),
            Seen::Insert(extent) => (Step::Insert, extent),
            Seen::Issue(extent) => (Step::Issue, extent),
            Seen::Complete { extent, .. } => (Step::Complete, extent),
            _ => return None,
        };
        (extent.bytes > 0 && !extent.rwbs.has(Rwbs::PASSTHROUGH)).then_some((step, extent))
    }
}

/// Phases of one device, or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Times by phase, in the order of [`Phase::ALL`], ns.
    times: [Histogram; PHASES],
}

impl Table {
    /// The times of a phase, ns.
    pub fn of(&self, phase: Phase) -> &Histogram {
        &self.times[phase as usize]
    }

    /// Records the time from `from` to `to`.
    #[inline]
    fn record(&mut self, phase: Phase, from: u64, to: u64) {
        self.times[phase as usize].record(between(from, to));
    }
}

/// Time from `from` to `to`, at least 1 ns.
#[inline]
fn between(from: u64, to: u64) -> u64 {
    to.saturating_sub(from).max(1)
}

/// Phases of all devices and of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Over all devices.
    pub all: Table,
    /// By device, in the order of their numbers.
    pub devices: Vec<(Dev, Table)>,
    /// No bio was seen: D2C is that of requests, and nothing else is known.
    pub only_requests: bool,
}

impl Tables {
    /// The common phases that the trace does not have, without records of bios.
    pub fn absent(&self) -> Vec<Phase> {
        let absent = |phase: &Phase| self.only_requests && phase.is_common() && *phase != Phase::D2c;
        Phase::ALL.into_iter().filter(absent).collect()
    }
}

/// Known properties of a device.
#[derive(Clone, Debug)]
struct Device {
    dev: Dev,
    passes_on: bool,
    /// When its last bio was queued.
    last_queue: u64,
    bios: Tree,
    table: Table,
    /// Requests at the device, as long as no bio was seen anywhere.
    requests: Tree,
    /// D2C of those.
    alone: Histogram,
}

/// Follows bios from queue to completion.
#[derive(Clone, Debug)]
pub struct Phases {
    devices: Vec<Device>,
    /// The device of the record before.
    last: usize,
    /// When the last bio of any device was queued.
    last_queue: u64,
    /// Q2Q over all devices, by whether the second bio's device passes bios on.
    q2q: [Histogram; 2],
    /// Bios that a request covers; kept for its memory.
    found: Vec<u32>,
}

impl Default for Phases {
    fn default() -> Phases {
        Phases {
            devices: Vec::new(),
            last: 0,
            last_queue: NEVER,
            q2q: [Histogram::default(), Histogram::default()],
            found: Vec::new(),
        }
    }
}

impl Phases {
    /// Takes one record.
    #[inline]
    pub fn add(&mut self, record: &Record) {
        if let Some((step, extent)) = Step::of(&record.seen) {
            self.step(step, record.at.0, extent.dev, extent.sector.0, extent.bytes);
        } else if let Seen::Remap { extent, from, from_sector } = &record.seen
            && extent.bytes > 0
        {
            self.remap(record.at.0, *from, from_sector.0);
        }
    }

    /// Takes the fields of one record: when (ns), on which device, which sectors. Passthrough commands must not be
    /// given.
    #[inline]
    pub fn step(&mut self, step: Step, at: u64, dev: Dev, sector: u64, bytes: u32) {
        if bytes == 0 {
            return;
        }
        let end = sector.saturating_add(u64::from(bytes / 512));
        let index = self.device(dev);
        let no_bios = self.last_queue == NEVER;
        if no_bios && step == Step::Queue {
            for device in &mut self.devices {
                (device.requests, device.alone) = (Tree::default(), Histogram::default());
            }
        }
        let Device { passes_on, last_queue, bios, table, requests, alone, .. } = &mut self.devices[index];
        let passes_on = *passes_on;
        match step {
            Step::Issue if no_bios => requests.insert(Bio { issued: at, ..Bio::new(sector, end, NEVER) }),
            Step::Complete if no_bios => {
                self.found.clear();
                requests.within(sector, end, &mut self.found);
                for index in &self.found {
                    alone.record(between(requests.bio(*index).issued, at));
                    requests.remove(*index);
                }
            }
            Step::Queue => {
                if !no_bios {
                    self.q2q[usize::from(passes_on)].record(between(self.last_queue, at));
                }
                if *last_queue != NEVER {
                    table.record(if passes_on { Phase::Q2qDm } else { Phase::Q2q }, *last_queue, at);
                }
                self.last_queue = at;
                *last_queue = at;
                bios.insert(Bio::new(sector, end, at));
            }
            Step::Issue => {
                self.found.clear();
                bios.within(sector, end, &mut self.found);
                for index in &self.found {
                    let bio = bios.bio(*index);
                    bio.issued = at;
                    if bio.inserted != NEVER {
                        table.record(Phase::I2d, bio.inserted, at);
                    } else if bio.merged != NEVER {
                        table.record(Phase::M2d, bio.merged, at);
                    }
                }
            }
            Step::Complete => {
                self.found.clear();
                bios.within(sector, end, &mut self.found);
                for index in &self.found {
                    let bio = *bios.bio(*index);
                    table.record(if passes_on { Phase::Q2cDm } else { Phase::Q2c }, bio.queued, at);
                    if bio.issued != NEVER {
                        table.record(Phase::D2c, bio.issued, at);
                    }
                    bios.remove(*index);
                }
            }
            Step::Sleep | Step::GetRequest | Step::Merge | Step::Insert => {
                let Some(index) = bios.find(sector) else { return };
                let bio = bios.bio(index);
                match step {
                    Step::GetRequest => {
                        bio.allocated = at;
                        table.record(Phase::Q2g, bio.queued, at);
                        if bio.slept != NEVER {
                            table.record(Phase::S2g, bio.slept, at);
                        }
                    }
                    Step::Merge => {
                        bio.merged = at;
                        table.record(Phase::Q2m, bio.queued, at);
                    }
                    Step::Insert => {
                        bio.inserted = at;
                        if bio.allocated != NEVER {
                            table.record(Phase::G2i, bio.allocated, at);
                        }
                    }
                    _ => bio.slept = at,
                }
            }
        }
    }

    /// Takes a remap [A]: when (ns), and the device and sector the bio comes from.
    pub fn remap(&mut self, at: u64, from: Dev, from_sector: u64) {
        let index = self.device(from);
        let Device { passes_on, bios, table, .. } = &mut self.devices[index];
        if let Some(index) = bios.find(from_sector) {
            table.record(if *passes_on { Phase::Q2aDm } else { Phase::Q2a }, bios.bio(index).queued, at);
        }
    }

    /// Bios that are in flight; requests, as long as no bio was seen.
    pub fn in_flight(&self) -> usize {
        self.devices.iter().map(|device| device.bios.len() + device.requests.len()).sum()
    }

    /// Results. Devices of which nothing was measured are left out.
    pub fn finish(self) -> Tables {
        let mut all = Table::default();
        let only_requests = self.last_queue == NEVER && self.devices.iter().any(|device| device.alone.max().is_some());
        let table = |mut device: Device| {
            // Empty where there were bios.
            device.table.times[Phase::D2c as usize].merge(&device.alone);
            (device.dev, device.table)
        };
        let mut devices: Vec<(Dev, Table)> = self.devices.into_iter().map(table).collect();
        devices.retain(|(_, table)| table.times.iter().any(|times| times.max().is_some()));
        devices.sort_by_key(|(dev, _)| *dev);
        for (_, table) in &devices {
            for phase in Phase::ALL {
                if !matches!(phase, Phase::Q2q | Phase::Q2qDm) {
                    all.times[phase as usize].merge(table.of(phase));
                }
            }
        }
        let [q2q, q2q_dm] = self.q2q;
        all.times[Phase::Q2q as usize] = q2q;
        all.times[Phase::Q2qDm as usize] = q2q_dm;
        Tables { all, devices, only_requests }
    }

    /// The number of a device here.
    #[inline]
    fn device(&mut self, dev: Dev) -> usize {
        if self.devices.get(self.last).is_none_or(|device| device.dev != dev) {
            self.last = self.change_device(dev);
        }
        self.last
    }

    fn change_device(&mut self, dev: Dev) -> usize {
        if let Some(index) = self.devices.iter().position(|device| device.dev == dev) {
            return index;
        }
        self.devices.push(Device {
            dev,
            passes_on: matches!(dev.major(), 9 | 253 | 254),
            last_queue: NEVER,
            bios: Tree::default(),
            table: Table::default(),
            requests: Tree::default(),
            alone: Histogram::default(),
        });
        self.devices.len() - 1
    }
}

#[cfg(test)]
mod tests;

//! A disk, and the machine in front of it, as data: fitted to a recording, or by a probe; docs/PROFILE.md has every
//! field.
//!
//! ```text
//! samples    when each command reached the device, when it was done, and what it asked for
//! fit        samples -> distributions by operation, size and place; servers, link, depth, distance, idle exit
//! caps       limits of control groups, from the bios that they held back
//! costs      CPU time of calls, pages, bios and interrupts, from the gaps between the records of a trace
//! probe      reads of several sizes, in several orders and depths, recorded as a trace
//! ```
//! A field that was not measured is `known: false` with wide bounds, and predictions that need it are as wide.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iowhy_live::guard::{Output, OutputError};
use iowhy_live::machine::Disk;
use iowhy_stack::device::DEVICES;
use iowhy_stack::device::measured::ENTRY;
use iowhy_stack::kernel::Stack;
use iowhy_stack::origin::{Options, find};
use iowhy_stack::service::{ACCESSES, Row, Service, Times};
use iowhy_stack::trace::{Dev, Trace};
use iowhy_text::diagnose::{Problem, Problems, Span};
use serde::{Deserialize, Deserializer, Serialize};

use crate::store;

mod caps;
mod costs;
mod fit;
mod probe;
mod samples;
mod text;

pub use fit::HeldBack;
pub use probe::ProbeError;
pub(crate) use probe::paced;
pub use samples::{Sample, busiest, samples};

/// Value of the key `kind` of a profile, which tells it apart from a drive.
pub const KIND: &str = "measured";

/// A unit; through this name serde does not take it for a part of the file.
type Unit = &'static str;

/// A number with its bounds at 95 %.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Field {
    pub value: f64,
    pub low: f64,
    pub high: f64,
    #[serde(deserialize_with = "unit")]
    pub unit: Unit,
    /// Whether it was measured; otherwise the value is a guess, and the bounds say how wild.
    pub known: bool,
}

impl Field {
    /// Nothing is known of it but a guess.
    fn guess(unit: &'static str, value: f64, low: f64, high: f64) -> Field {
        Field { value, low, high, unit, known: false }
    }
}

/// Where a field goes.
#[derive(Copy, Clone, Debug, PartialEq)]
enum To {
    /// An option of the device `measured`, and its units in one of the field.
    Device(&'static str, f64),
    /// A key of the machine.
    Machine(&'static str),
}

/// Every field that is a single number: name, unit, what it becomes, meaning.
const FIELDS: &[(&str, &str, To, &str)] = &[
    ("parallel", "commands", To::Device("servers", 1.0), "Commands served side by side: the knee of throughput"),
    ("link_mb_s", "MB/s", To::Device("link_rate_kb_s", 1000.0), "Most bytes that cross the link"),
    ("passes", "", To::Device("passes", 1.0), "How often a command may be passed over for a quicker one"),
    ("link_gap_us", "us", To::Device("link_gap_ns", 1000.0), "Least time between two commands"),
    ("read_ahead_kb", "KiB", To::Device("ahead_sectors", 2.0), "The device's own reading ahead of a stream"),
    ("hit_us", "us", To::Device("hit_ns", 1000.0), "A read of sectors that the device has read ahead"),
    ("stall_us", "us", To::Device("stall_us", 1.0), "A command slower than this keeps all others waiting"),
    (
        "writes_seek",
        "",
        To::Device("writes_seek", 1.0),
        "1 if writes take longer from farther away; 0: they are cached",
    ),
    ("idle_after_ms", "ms", To::Device("idle_us", 1000.0), "Pause after which the next command is late"),
    ("idle_exit_us", "us", To::Device("idle_exit_ns", 1000.0), "By how much it is"),
    ("cache_kb", "KiB", To::Device("cache_kb", 1.0), "Volatile write cache"),
    ("destage_mb_s", "MB/s", To::Device("destage_rate_kb_s", 1000.0), "Rate at which it is emptied"),
    ("iops_limit", "1/s", To::Device("iops_limit", 1.0), "Cap on operations"),
    ("burst_iops", "1/s", To::Device("burst_iops", 1.0), "Operations from a full bucket"),
    ("bw_limit_mb_s", "MB/s", To::Device("bw_limit_kb", 1000.0), "Cap on bytes"),
    ("burst_bw_mb_s", "MB/s", To::Device("burst_bw_kb", 1000.0), "Bytes from a full bucket"),
    ("burst_s", "s", To::Device("burst_s", 1.0), "Time that a full bucket lasts"),
    ("slice_ms", "ms", To::Device("slice_us", 1000.0), "Time whose share of the caps is granted at once"),
    ("queue_depth", "commands", To::Device("queue_depth", 1.0), "Commands that a queue takes"),
    ("queues", "queues", To::Device("nr_queues", 1.0), "Hardware queues"),
    ("capacity_sectors", "sectors", To::Device("nr_sectors", 1.0), "Capacity in units of 512 bytes"),
    ("rotational", "", To::Device("rotational", 1.0), "1 for a rotating disk"),
    ("cpus", "CPUs", To::Machine("cpus"), "Processors of the machine"),
    ("syscall_ns", "ns", To::Machine("syscall_ns"), "A call that finds its page, without the copy"),
    ("page_copy_ns", "ns", To::Machine("page_copy_ns"), "Looking a page up and copying it"),
    ("page_add_ns", "ns", To::Machine("page_add_ns"), "Adding a page to the cache"),
    ("bio_ns", "ns", To::Machine("bio_ns"), "Building and submitting a bio"),
    ("command_ns", "ns", To::Machine("command_ns"), "Starting a command"),
    ("interrupt_ns", "ns", To::Machine("interrupt_ns"), "From the end of a command to waking its task up"),
    ("switch_ns", "ns", To::Machine("switch_ns"), "From there until the task runs"),
    ("wake_min_us", "us", To::Machine("wake_min_us"), "Least time that an idle processor adds to it"),
    ("wake_max_us", "us", To::Machine("wake_max_us"), "Most time"),
];

fn of_field(name: &str) -> Option<&'static (&'static str, &'static str, To, &'static str)> {
    FIELDS.iter().find(|(known, ..)| *known == name)
}

/// Units of fields that are not in [`FIELDS`]: medians of rows, and slopes beyond them.
const UNITS: &[&str] = &["us", "ns/KiB", "ms"];

fn unit<'de, D: Deserializer<'de>>(from: D) -> Result<&'static str, D::Error> {
    let text = String::deserialize(from)?;
    let known = FIELDS.iter().map(|(_, unit, ..)| *unit).chain(UNITS.iter().copied()).find(|unit| *unit == text);
    known.ok_or_else(|| serde::de::Error::custom(format!("unknown unit `{text}`")))
}

/// A disk and a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    pub name: String,
    pub fields: BTreeMap<String, Field>,
    /// Distributions of service times.
    pub service: Service,
    /// How well a part of the commands predicts the others.
    pub held_back: Option<HeldBack>,
}

/// A profile as TOML has it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    kind: String,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    held_back: Option<HeldBack>,
    #[serde(default)]
    fields: BTreeMap<String, Field>,
    #[serde(default)]
    tables: Tables,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flush: Option<Times>,
    #[serde(default)]
    distance: Vec<(u64, u64)>,
    #[serde(default)]
    depth: Vec<(u32, u32)>,
    #[serde(default)]
    read: Vec<(u32, Times)>,
    #[serde(default)]
    read_next: Vec<(u32, Times)>,
    #[serde(default)]
    write: Vec<(u32, Times)>,
    #[serde(default)]
    write_next: Vec<(u32, Times)>,
}

impl Profile {
    /// Fits a profile to the commands of `device` in a recording, and the machine to its calls; with its errors on a
    /// half of the commands that is held back.
    pub fn of_trace(trace: &Trace, device: Dev) -> Profile {
        let samples = samples(trace, device);
        let mut profile = Profile { held_back: fit::held_back(&samples), ..Profile::fitted(&samples, trace, device) };
        profile.fields.extend(caps::caps(trace, device));
        profile
    }

    /// The same of two recordings of the same loads: one of all layers, for the machine and its limits, and one of
    /// requests alone, for the device. `median` is the time of calls of a load in the latter, in ns: what the recorder
    /// added to the costs of the machine is taken off.
    fn of_passes(layers: &Trace, requests: &Trace, device: Dev, median: &dyn Fn(&str) -> Option<f64>) -> Profile {
        let samples = samples(requests, device);
        let mut profile = Profile { held_back: fit::held_back(&samples), ..fit::fit(&samples) };
        let mut machine = costs::costs(layers, device);
        costs::unrecorded(&mut machine, &profile.service, median);
        profile.fields.extend(machine);
        profile.fields.extend(caps::caps(layers, device));
        profile
    }

    /// Fits a profile to commands alone: a device without a machine.
    pub fn of_samples(samples: &[Sample]) -> Profile {
        fit::fit(samples)
    }

    /// The times of these commands on the device of this profile, each as long after the completion before it as it
    /// was.
    pub fn predicted(&self, samples: &[Sample]) -> Vec<Sample> {
        fit::replay(self, samples)
    }

    /// The same without the errors, which take as long again, and without limits of control groups: the twin is held to
    /// its own recording, and has the limits that were read. It corrects a profile that was probed.
    pub(crate) fn seen(trace: &Trace, device: Dev, probed: Option<&Profile>) -> Profile {
        let samples = samples(trace, device);
        let seen = Profile::fitted(&samples, trace, device);
        match probed {
            Some(probed) => probed.corrected(&seen, &samples),
            None => seen,
        }
    }

    fn fitted(samples: &[Sample], trace: &Trace, device: Dev) -> Profile {
        let mut profile = fit::fit(samples);
        profile.fields.extend(costs::costs(trace, device));
        profile
    }

    /// This profile as corrected by the commands of a recording, fitted to `seen`. One that foretells their times keeps
    /// its own, and takes the most bytes that passed for the rate of the link if it is more like them then: its times
    /// of other sizes are of the same device. Else it is joined with `seen`.
    fn corrected(&self, seen: &Profile, samples: &[Sample]) -> Profile {
        let of_device = |name: &str| of_field(name).is_some_and(|of| matches!(of.2, To::Device(..)));
        let trusted = self.clone().with(seen, &|name| !of_device(name));
        fit::trusted_or(trusted, self.clone().joined(seen), samples)
    }

    /// This profile, with fields and sizes that only `seen` has, and with the times of `seen` where both have a size.
    fn joined(self, seen: &Profile) -> Profile {
        // The probe has loaded the device on purpose: what a recording did not show is no correction.
        let bounded = |name: &str| matches!(name, "parallel" | "link_mb_s" | "link_gap_us");
        let mut joined = self.with(seen, &|name| !bounded(name));
        for (own, rows) in joined.service.rows.iter_mut().zip(&seen.service.rows) {
            own.retain(|row| rows.iter().all(|seen| seen.sectors.abs_diff(row.sectors) > row.sectors / 16));
            own.extend(rows.iter().cloned());
            own.sort_by_key(|row| row.sectors);
        }
        joined
    }

    /// The same with fields that `seen` knows, those of its own that `corrected` does not name excepted, and accesses
    /// that only `seen` has times of.
    fn with(mut self, seen: &Profile, corrected: &dyn Fn(&str) -> bool) -> Profile {
        if self.fields.contains_key("slice_ms") {
            // A limit of the control group that the probe ran in is none of the disk.
            self.fields.retain(|name, _| !["slice_ms", "iops_limit", "bw_limit_mb_s"].contains(&name.as_str()));
        }
        for (name, field) in &seen.fields {
            let own = self.fields.get(name);
            if own.is_none_or(|own| field.known && (corrected(name) || !own.known)) {
                self.fields.insert(name.clone(), *field);
            }
        }
        let seen = &seen.service;
        for (own, rows) in self.service.rows.iter_mut().zip(&seen.rows).filter(|(own, _)| own.is_empty()) {
            own.clone_from(rows);
        }
        self.service.flush = seen.flush.or(self.service.flush);
        if self.service.distance.is_empty() {
            self.service.distance.clone_from(&seen.distance);
        }
        if self.service.depth.is_empty() {
            self.service.depth.clone_from(&seen.depth);
        }
        self
    }

    /// The options of the device `measured`.
    pub fn options(&self) -> Options {
        let mut options = ENTRY.defaults();
        for (name, field) in &self.fields {
            if let Some((.., To::Device(option, factor), _)) = of_field(name) {
                set(&mut options, option, field.value * factor);
            }
        }
        options.set_service(Arc::new(self.service.clone()));
        options
    }

    /// Puts the device into a stack, and the costs of the machine that are known.
    pub fn apply(&self, stack: &mut Stack) {
        stack.set_drive(&ENTRY, self.options());
        for (name, field) in self.fields.iter().filter(|(_, field)| field.known) {
            if let Some((.., To::Machine(option), _)) = of_field(name) {
                set(&mut stack.machine.options, option, field.value);
                if *option == "page_copy_ns" {
                    // It was measured with the lookup.
                    set(&mut stack.machine.options, "page_lookup_ns", 0.0);
                }
            }
        }
    }

    /// Reads a profile, all mistakes at once.
    pub fn load(path: &Path, problems: &mut Problems) -> Option<Profile> {
        let name = path.display().to_string();
        let wrong = |text: String| Problem::error(text).at(Span::whole(&name));
        match iowhy_text::input::text(path, MOST_BYTES) {
            Ok(text) => match Profile::of_toml(&text) {
                Ok(profile) => return Some(profile),
                Err(mistakes) => mistakes.into_iter().for_each(|text| problems.push(wrong(format!("{name}: {text}")))),
            },
            Err(error) => problems.push(wrong(format!("cannot read the profile `{name}`: {error}"))),
        }
        None
    }

    /// Whether a text is a profile rather than a drive.
    pub fn is_one(text: &str) -> bool {
        text.lines().take(100).any(|line| line.split_whitespace().eq(["kind", "=", "\"measured\""]))
    }

    /// A profile as TOML.
    ///
    /// # Errors
    /// All mistakes: of the text, or of its tables.
    pub fn of_toml(text: &str) -> Result<Profile, Vec<String>> {
        let kept: Kept = toml::from_str(text).map_err(|error| vec![error.to_string().trim_end().to_owned()])?;
        let Tables { flush, distance, depth, read, read_next, write, write_next } = kept.tables;
        let rows = [read, read_next, write, write_next]
            .map(|rows| rows.into_iter().map(|(sectors, ns)| Row { sectors, ns }).collect());
        let service = Service { rows, flush, distance, depth };
        let mut mistakes = service.mistakes();
        if kept.kind != KIND {
            mistakes.push(format!("`kind` is \"{KIND}\", not \"{}\"", kept.kind));
        }
        if service.rows[0].is_empty() && service.rows[1].is_empty() && service.rows[2].is_empty() {
            mistakes.push(format!("`tables` has no times: it needs one of {}", ACCESSES[..3].join(", ")));
        }
        let Kept { name, fields, held_back, .. } = kept;
        if mistakes.is_empty() { Ok(Profile { name, fields, service, held_back }) } else { Err(mistakes) }
    }

    /// As [`Profile::of_toml`] reads it.
    pub fn toml(&self) -> String {
        let Service { rows, flush, distance, depth } = self.service.clone();
        let [read, read_next, write, write_next] =
            rows.map(|rows| rows.into_iter().map(|row| (row.sectors, row.ns)).collect());
        let tables = Tables { flush, distance, depth, read, read_next, write, write_next };
        let kept = Kept {
            kind: KIND.to_owned(),
            name: self.name.clone(),
            held_back: self.held_back,
            fields: self.fields.clone(),
            tables,
        };
        toml::to_string(&kept).expect("numbers and names have a form in TOML")
    }

    /// Writes it, with the folder of the profiles if need be. Only an older profile is overwritten.
    ///
    /// # Errors
    /// If the file cannot be written, or is something else.
    pub fn save(&self, path: &Path) -> Result<(), OutputError> {
        if let Some(folder) = path.parent().filter(|folder| folder.ends_with(FOLDER)) {
            // If that fails, so does the file.
            let _ = std::fs::create_dir_all(folder);
        }
        let older = iowhy_text::input::text(path, MOST_BYTES).is_ok_and(|text| Profile::is_one(&text));
        Output::write(path, self.toml().as_bytes(), older)
    }
}

/// Folder of profiles, next to the store.
const FOLDER: &str = "profiles";

/// The profile of the disk below the current folder.
const HERE: &str = "here";

/// Where a profile of this name is kept: a path as it is, other names next to the store. `None` without a place for it.
pub fn place(name: &str) -> Option<PathBuf> {
    if name.ends_with(".toml") || name.contains('/') {
        return Some(PathBuf::from(name));
    }
    let store = store::directory(None, &|name| std::env::var(name).ok())?;
    Some(store.join(FOLDER).join(format!("{name}.toml")))
}

/// The file of the profile that a `--disk` of this name means; nothing if it is not a profile.
///
/// # Errors
/// If the disk below the current folder has not been fitted, with the command for it.
pub fn path(name: &str) -> Option<Result<PathBuf, Problem>> {
    if name == HERE {
        let disk = Disk::below(Path::new(".")).name;
        let known = disk.as_deref().and_then(place).filter(|path| path.is_file());
        return Some(known.ok_or_else(|| {
            let of = disk.map_or_else(String::new, |disk| format!(", {disk},"));
            let message = format!("the disk below this folder{of} has not been fitted");
            Problem::error(message).help("sudo iowhy disk fit . --for 2m")
        }));
    }
    let file = place(name).filter(|path| path.is_file())?;
    let ours = !name.ends_with(".toml") && !name.contains('/') && find(DEVICES, name).is_none();
    let is_one = || iowhy_text::input::text(&file, MOST_BYTES).is_ok_and(|text| Profile::is_one(&text));
    (ours || is_one()).then_some(Ok(file))
}

/// Names of the profiles next to the store.
pub fn names() -> Vec<String> {
    let folder = place("x").and_then(|path| path.parent().map(Path::to_owned));
    let entries = folder.into_iter().flat_map(std::fs::read_dir).flatten().flatten();
    let name = |entry: std::fs::DirEntry| entry.file_name().to_str()?.strip_suffix(".toml").map(str::to_owned);
    let mut names: Vec<String> = entries.filter_map(name).collect();
    names.sort();
    names
}

/// The longest file that is read, in bytes.
const MOST_BYTES: u64 = 16 << 20;

/// Sets an option to the nearest value that it takes.
fn set(options: &mut Options, name: &str, value: f64) {
    if let Some(spec) = options.specs().iter().find(|spec| spec.name == name)
        && value.is_finite()
    {
        options.set(name, (value.round() as i64).clamp(spec.min, spec.max));
    }
}

#[cfg(test)]
mod tests;

//! `disksim`: DiskSim's own validations on our model of a drive.
//!
//! A folder has DiskSim's parameters (`NAME.parv` and the files named there), measured traces of real drives
//! (`NAME.trace`), the list of validations with the error of DiskSim itself (`runvalid`) and the distributions that
//! they compare (`statdefs`). Each trace is replayed as DiskSim does, a request a pause after the end of the one before
//! it; the error is that of its program `rms`: the root mean square of the differences between two distributions of
//! response times, at 10,000 levels, each a histogram with the buckets of `statdefs` and linear in between. Nothing is
//! fitted.

use std::path::Path;

use iowhy_lab::drive_file;
use iowhy_stack::device::drive::ENTRY;
use iowhy_stack::device::{Command, Device};
use iowhy_stack::event::Dir;
use iowhy_stack::rng::Rng;
use iowhy_stack::trace::{Rwbs, Seen};
use iowhy_stack::units::{Nanos, SECTOR_BYTES};
use iowhy_text::diagnose::Problems;
use iowhy_text::part::Part;

use crate::{Outcome, renew};

const TABLE: Part = Part { command: "cargo xtask disksim" };

/// Levels at which distributions are compared.
const LEVELS: u32 = 10_000;

/// One validation.
pub(crate) struct Validation {
    pub(crate) name: String,
    pub(crate) drive: String,
    pub(crate) disksims: f64,
}

/// A request that was measured.
struct Measured {
    write: bool,
    sector: u64,
    nr_sectors: u32,
    took: Nanos,
    pause: Nanos,
}

/// Replays the validations of a folder and prints the table.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let (mut folder, mut page, mut toml, mut requests) = (None, false, None, None);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--page" => page = true,
            "--toml" => toml = Some(words.next().ok_or("--toml needs a folder")?),
            "--requests" => requests = Some(words.next().ok_or("--requests needs the name of a validation")?),
            word if !word.starts_with('-') && folder.is_none() => folder = Some(word),
            other => return Err(format!("unknown word `{other}`: FOLDER, --page, --toml FOLDER, --requests NAME")),
        }
    }
    let folder = Path::new(folder.ok_or("disksim needs the folder `valid` of DiskSim")?);
    let buckets = Buckets::read(&text(&folder.join("statdefs"))?)?;
    let mut lines = vec![
        "| drive | parameters | requests | ours (ms) | DiskSim's (ms) | ratio |".to_owned(),
        "| --- | --- | --- | --- | --- | --- |".to_owned(),
    ];
    for Validation { name, drive, disksims } in validations(&text(&folder.join("runvalid"))?) {
        if requests.is_some_and(|wanted| *wanted != name) {
            continue;
        }
        let mut problems = Problems::default();
        let options = drive_file::load(&folder.join(format!("{name}.parv")), &mut problems);
        let left_out = problems.list.len();
        let options = options.ok_or_else(|| problems.render())?;
        if let Some(folder) = toml {
            let path = Path::new(folder).join(format!("{name}.toml"));
            std::fs::write(&path, drive_file::write(&options))
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let trace = measured(&folder.join(format!("{name}.trace")))?;
        let mut device = (ENTRY.build)(&options, Rng::stream(1, "device"));
        let modelled = replay(&mut *device, &trace);
        if requests.is_some() {
            for (request, took) in trace.iter().zip(&modelled) {
                let dir = if request.write { 'W' } else { 'R' };
                println!("{dir} {} {} {} {}", request.sector, request.nr_sectors, request.took.0, took.0);
            }
            continue;
        }
        let real: Vec<Nanos> = trace.iter().map(|request| request.took).collect();
        let ours = rms(&buckets.distribution(&modelled), &buckets.distribution(&real));
        let parameters = if left_out == 0 { "all".to_owned() } else { format!("{left_out} not followed") };
        lines.push(format!(
            "| {drive} (`{name}`) | {parameters} | {} | {ours:.3} | {disksims:.3} | {:.2} |",
            trace.len(),
            ours / disksims
        ));
    }
    if requests.is_some() {
        return Ok(());
    }
    let table = lines.join("\n");
    println!("{table}");
    if page {
        renew("BENCH.md", TABLE, &table)?;
    }
    Ok(())
}

fn text(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The validations in DiskSim's script: a line that prints `DRIVE (rms should be about N)`, then the command.
pub(crate) fn validations(script: &str) -> Vec<Validation> {
    let mut found = Vec::new();
    let mut said = None;
    for line in script.lines() {
        if let Some((drive, rms)) = line.split_once(" (rms should be about ") {
            let drive = drive.trim_start_matches("echo").trim().trim_matches('"').to_owned();
            said = rms.split(')').next().and_then(|number| number.parse().ok()).map(|rms: f64| (drive, rms));
        } else if let Some((name, _)) = line.split_once(".parv ").filter(|(_, rest)| rest.contains(" validate ")) {
            let name = name.rsplit(' ').next().unwrap_or(name).to_owned();
            found.extend(said.take().map(|(drive, disksims)| Validation { name, drive, disksims }));
        }
    }
    found
}

fn measured(path: &Path) -> Result<Vec<Measured>, String> {
    let mut problems = Problems::default();
    let trace = iowhy_trace::load(path, &mut problems).filter(|_| !problems.any_error());
    let trace = trace.ok_or_else(|| problems.render())?;
    let (mut found, mut issued, mut done): (Vec<Measured>, Nanos, Nanos) = (Vec::new(), Nanos::ZERO, Nanos::ZERO);
    for record in &trace.records {
        match &record.seen {
            Seen::Issue(_) => {
                issued = record.at;
                if let Some(before) = found.last_mut() {
                    before.pause = issued - done;
                }
            }
            Seen::Complete { extent, .. } => {
                done = record.at;
                found.push(Measured {
                    write: extent.rwbs.has(Rwbs::WRITE),
                    sector: extent.sector.0,
                    nr_sectors: (u64::from(extent.bytes) / SECTOR_BYTES) as u32,
                    took: done - issued,
                    pause: Nanos::ZERO,
                });
            }
            _ => {}
        }
    }
    Ok(found)
}

/// How long each request takes in the model.
fn replay(device: &mut dyn Device, trace: &[Measured]) -> Vec<Nanos> {
    let mut now = Nanos::ZERO;
    let mut took = Vec::with_capacity(trace.len());
    for (tag, request) in (0..).zip(trace) {
        let dir = if request.write { Dir::Write } else { Dir::Read };
        let (sector, nr_sectors) = (iowhy_stack::units::Sector(request.sector), request.nr_sectors);
        device.submit(now, Command { tag, sector, nr_sectors, dir, flush: false, fua: false });
        let arrival = now;
        while let Some(next) = device.next() {
            now = next;
            if device.advance(now).is_some() {
                break;
            }
        }
        took.push(now - arrival);
        now += request.pause;
    }
    took
}

/// The bounds of a histogram in thousandths (or another part) of a millisecond.
pub(crate) struct Buckets {
    starts: Vec<i64>,
    scale: f64,
}

impl Buckets {
    /// Those that `statdefs` has for the time of a physical access.
    pub(crate) fn read(text: &str) -> Result<Buckets, String> {
        let mut lines = text.lines().skip_while(|line| line.trim() != "Physical access time").skip(1);
        let mut numbers = || -> Vec<i64> {
            let line = lines.next().unwrap_or_default();
            line.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
        };
        let (size, scale, growth) = (numbers(), numbers(), numbers());
        let (&[size], &[scale, 0], &[start, step, grow]) = (&size[..], &scale[..], &growth[..]) else {
            return Err("statdefs has no `Physical access time` with a size, a scale and a start".to_owned());
        };
        let mut starts = vec![start];
        for _ in 1..size {
            let last = starts[starts.len() - 1];
            starts.push(last + step + (last as f64 * grow as f64 / 100.0) as i64);
        }
        Ok(Buckets { starts, scale: scale as f64 })
    }

    /// Points of the distribution: milliseconds and the share below them, as precise as DiskSim prints them.
    pub(crate) fn distribution(&self, times: &[Nanos]) -> Vec<(f64, f64)> {
        let mut counts = vec![0u64; self.starts.len()];
        for time in times {
            let whole = (time.0 as f64 / 1e6 * self.scale) as i64;
            let bucket = self.starts.partition_point(|start| *start <= whole).clamp(1, counts.len() - 1);
            counts[bucket] += 1;
        }
        let (mut below, mut points) = (0.0, Vec::new());
        for (start, count) in self.starts.iter().zip(counts) {
            below += count as f64 / times.len() as f64;
            let share = (below * 1e6f64).round() / 1e6;
            points.push((*start as f64 / self.scale, share));
            if share >= 1.0 {
                break;
            }
        }
        points
    }
}

/// The difference of two distributions.
pub(crate) fn rms(a: &[(f64, f64)], b: &[(f64, f64)]) -> f64 {
    let at = |points: &[(f64, f64)], level: f64| {
        let next = points.partition_point(|(_, share)| *share < level).clamp(1, points.len() - 1);
        let ((x0, y0), (x1, y1)) = (points[next - 1], points[next]);
        x0 + (level - y0) / (y1 - y0) * (x1 - x0)
    };
    let squares = (1..=LEVELS).map(|nr| {
        let level = f64::from(nr) / f64::from(LEVELS);
        (at(a, level) - at(b, level)).powi(2)
    });
    (squares.sum::<f64>() / f64::from(LEVELS)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATDEFS: &str = "Seek time\nDistribution size: 10\nScale/Equals: 1/0\n0 1\n\nPhysical access time\n\
        Distribution size: 1750\nScale/Equals: 1000/0\nStart 0  step 1  grow 1\n";

    #[test]
    fn distributions_have_the_buckets_of_statdefs() {
        let buckets = Buckets::read(STATDEFS).expect("buckets");
        // Steps of 1 up to 100, then 1 % more each.
        assert_eq!(buckets.starts[98..104], [98, 99, 100, 102, 104, 106]);
        let points = buckets.distribution(&[Nanos(1_500), Nanos(101_000), Nanos(103_999), Nanos(104_000)]);
        let risen: Vec<(f64, f64)> =
            points.windows(2).filter(|pair| pair[0].1 < pair[1].1).map(|pair| pair[1]).collect();
        assert_eq!(risen, [(0.002, 0.25), (0.102, 0.5), (0.104, 0.75), (0.106, 1.0)]);
        assert!(Buckets::read("Physical access time\n").is_err());
    }

    #[test]
    fn equal_distributions_do_not_differ_and_shifted_ones_by_the_shift() {
        let (a, b) = ([(0.0, 0.0), (10.0, 1.0)], [(2.0, 0.0), (12.0, 1.0)]);
        assert!(rms(&a, &a) < 1e-12);
        assert!((rms(&a, &b) - 2.0).abs() < 1e-9);
        // Twice as long: the mean of u^2 over the levels, 1/3 of 10^2, and half a level.
        let c = [(0.0, 0.0), (20.0, 1.0)];
        assert!((rms(&a, &c) - (100.0f64 / 3.0).sqrt()).abs() < 1e-3);
    }

    #[test]
    fn validations_are_those_of_the_script() {
        let script = "echo \"A_1 (rms should be about 0.378)\"\n${PREFIX}/disksim a.parv a.outv validate a.trace 0\\\n\
            echo \"open (avg. resp. should be about 10.9ms)\"\n${PREFIX}/disksim o.parv o.outv ascii 0 1\n";
        let found = validations(script);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].drive.as_str(), found[0].disksims), ("a", "A_1", 0.378));
    }
}

//! The disk that holds the image of a loop device: others there, who are not on the loop device and still in its way;
//! and what the layers between both take.
//!
//! ```text
//! own        bios on the lower disk by tasks of the kernel (the loop's workers) and of the workload
//! others     bios there by all other tasks; what is issued or done in their sectors is theirs
//! in the way time with something at the loop device and something of others at the lower disk
//! taken      of that, each moment the part of the requests at the lower disk that are others'
//! layers     time with something at the loop device and no data at the lower disk: the loop device itself, its file
//!            system's metadata, commits and flushes
//! ```
//! Limits: of several loop devices on one disk the others' requests go through workers, and are taken for own ones.

use std::collections::{BTreeMap, BTreeSet};

use iowhy_stack::trace::{Dev, Rwbs, Seen, Trace};
use iowhy_stack::units::SECTOR_BYTES;
use iowhy_trace::join::beside::is_other;
use iowhy_trace::settings::Settings;
use iowhy_why::digest::{Digest, Spread};

/// Doings below.
#[derive(Debug, Default)]
pub(super) struct Below {
    /// Time of the layers between both disks, ns.
    layers: u64,
    /// Names and bios, most first.
    others: Vec<(String, u64)>,
    in_the_way: u64,
    taken: f64,
}

/// Of others' bios those on a disk: names and how many, most first.
pub(super) fn on(others: &BTreeMap<(Dev, String), u64>, disk: Dev) -> Vec<(String, u64)> {
    let mut found: Vec<(String, u64)> =
        others.iter().filter(|((dev, _), _)| *dev == disk).map(|((_, name), nr)| (name.clone(), *nr)).collect();
    found.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    found
}

/// Of the disk below the recording's, if that is a loop device.
pub(super) fn of(trace: &Trace, tree: &BTreeSet<u32>, others: &BTreeMap<(Dev, String), u64>) -> Option<Below> {
    let settings = Settings::of(trace);
    let upper = settings.get("recording", "disk")?;
    let lower = settings.get(upper, "loop.disk")?;
    let names = settings.device_names();
    let number = |name: &str| names.iter().find(|(_, known)| known == name).map(|(dev, _)| *dev);
    let (upper, lower) = (number(upper)?, number(lower)?);
    let mut below = Below { others: on(others, lower), ..Below::default() };
    // Bytes that others want, by their begin; what is at the upper disk, and of whom what is at the lower one.
    let mut wanted: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut at_upper, mut at_lower, mut data, mut since) = (0_u64, [0_u64; 2], 0_u64, 0);
    for record in &trace.records {
        let at = record.at.0;
        let Some(extent) = record.seen.extent().filter(|extent| [upper, lower].contains(&extent.dev)) else { continue };
        let change = match record.seen {
            Seen::Queue(_) if extent.dev == lower && is_other(trace, tree, record.pid) => {
                wanted.insert(extent.sector.0, extent.sector.0 + u64::from(extent.bytes) / SECTOR_BYTES);
                continue;
            }
            Seen::Issue(_) => 1,
            Seen::Complete { .. } => -1,
            _ => continue,
        };
        let passed = at.saturating_sub(since);
        since = at;
        let [own, theirs] = at_lower;
        below.layers += if at_upper > 0 && data == 0 { passed } else { 0 };
        if at_upper > 0 && theirs > 0 {
            below.in_the_way += passed;
            below.taken += passed as f64 * theirs as f64 / (theirs + own.max(1)) as f64;
        }
        let count = if extent.dev == upper {
            &mut at_upper
        } else {
            let of_data = extent.bytes > 0 && !extent.rwbs.has(Rwbs::META);
            data = data.saturating_add_signed(if of_data { change } else { 0 });
            let before = wanted.range(..=extent.sector.0).next_back();
            &mut at_lower[usize::from(before.is_some_and(|(_, end)| *end > extent.sector.0))]
        };
        *count = count.saturating_add_signed(change);
    }
    Some(below)
}

impl Below {
    /// Puts others where those on the disk itself are.
    pub(super) fn join(self, digest: &mut Digest, others: Option<&mut Vec<(String, u64)>>) {
        let (foreign, commands) = (&mut digest.foreign, &mut digest.commands);
        commands.in_layers = self.layers;
        if self.in_the_way == 0 || self.others.is_empty() {
            return;
        }
        foreign.in_the_way += self.in_the_way;
        foreign.reads += self.others.iter().map(|(_, bios)| bios).sum::<u64>();
        commands.in_the_way += self.in_the_way;
        commands.taken += self.taken;
        commands.taken_by_size += self.taken;
        // What met nobody on the loop device may have met somebody below it.
        commands.own.values_mut().for_each(|[_, alone]| *alone = Spread::default());
        if let Some(others) = others {
            others.extend(self.others);
        }
    }
}

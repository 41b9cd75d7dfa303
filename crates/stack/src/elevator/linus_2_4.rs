//! The elevator of Linux 2.4 (`elevator_linus`): one sorted list, bounded overtaking.
//!
//! All requests stand in one list, ascending with a wrap. A bio scans the list from its tail: it joins the first
//! request it touches, and remembers as a hint the first place where it would lie between two neighbours. Every
//! request has a credit of passovers (fewer for reads than for writes); each one behind the place of the new request or
//! merge pays one. A request without credit can be joined at its end but not passed: the scan stops there and the new
//! request goes to the tail. The front of the list is dispatched.
//!
//! Source: Linux 2.4.27 standing in for 2.4.22 .. 2.4.25, `drivers/block/elevator.c`, `elevator_linus_merge`.
//! Deviations: one partition only, so the test for equal partitions is left out; flushes, which 2.4 does not have, go
//! to the tail as special requests do.

use super::{Build, Ctx, Elevator, Quirks};
use crate::event::{Dir, MergeKind, RqId};
use crate::origin::{Entry, OptionSpec, Options, Origin};
use crate::request::Bio;
use crate::sorted::{Line, LineEntry, joins};
use crate::units::Hz;

/// The table line.
pub const ENTRY: Entry<Build> = Entry {
    name: "linus",
    summary: "one sorted list with a bounded number of passovers (Linux 2.4)",
    origin: &[Origin {
        kernels: "2.4.22 .. 2.4.27",
        file: "drivers/block/elevator.c",
        function: "elevator_linus_merge",
        notes: "scan, hint, last chance, credits and the wrap rule as in the source; one partition only",
    }],
    options: &[
        OptionSpec::number("read_passovers", 128, (0, 1 << 20), "how often a read may be passed (elvtune -r)"),
        OptionSpec::number("write_passovers", 512, (0, 1 << 20), "how often a write may be passed (elvtune -w)"),
    ],
    conformance: "order tables, passover exhaustion, and every small world against a naive scan; no kernel vectors",
    build,
};

fn build(options: &Options, _hz: Hz) -> Box<dyn Elevator> {
    Box::new(Linus {
        line: Line::default(),
        credits: [options.get("read_passovers"), options.get("write_passovers")],
        place: Place::Tail,
    })
}

/// Where the request for the bio that has just been scanned for is to stand.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Place {
    Tail,
    After(RqId),
    Before(RqId),
}

#[derive(Clone, Debug)]
struct Linus {
    line: Line<i64>,
    credits: [i64; 2],
    place: Place,
}

/// Whether `sector` lies between an entry and the one behind it, the list being ascending except where it wraps.
fn between(sector: u64, entry: &LineEntry<i64>, behind: Option<&LineEntry<i64>>) -> bool {
    match behind {
        None => false,
        Some(next) if next.flush => sector > entry.start,
        Some(next) if next.start > entry.start => entry.start < sector && sector < next.start,
        Some(next) => sector > entry.start || sector < next.start,
    }
}

impl Elevator for Linus {
    fn quirks(&self) -> Quirks {
        Quirks::SORTING
    }

    fn merge(&mut self, ctx: &mut Ctx<'_>, bio: &Bio) -> Option<(RqId, MergeKind)> {
        self.place = Place::Tail;
        if bio.flush {
            return None;
        }
        // The request that the driver works on is not here any more. If the queue runs but the driver has nothing, the
        // front is what it is about to start.
        let first = usize::from(!ctx.plugged && ctx.in_driver == 0);
        let sector = bio.sector.0;
        let entries = self.line.entries_mut();
        let mut hint = None;
        let mut found = None;
        for index in (first..entries.len()).rev() {
            let entry = entries[index];
            let last_chance = entry.own <= 0;
            if !entry.flush {
                if hint.is_none() && !last_chance && between(sector, &entry, entries.get(index + 1)) {
                    hint = Some(index);
                }
                let touches = entry.dir == bio.dir
                    && (entry.end == sector || sector + u64::from(bio.nr_sectors) == entry.start)
                    && entry.end - entry.start + u64::from(bio.nr_sectors) <= u64::from(ctx.max_sectors);
                if touches {
                    match joins(&ctx.requests[entry.rq], bio) {
                        Some(MergeKind::Front) if last_chance => {}
                        Some(kind) => {
                            if kind == MergeKind::Front {
                                entries[index].own -= 1;
                            }
                            hint = Some(index);
                            found = Some((entry.rq, kind));
                            break;
                        }
                        None => {}
                    }
                }
            }
            if last_chance {
                break;
            }
        }
        if let Some(hint) = hint {
            entries[hint + 1..].iter_mut().for_each(|passed| passed.own -= 1);
            // Should the queue refuse a merge, the new request goes next to the one that would have been joined.
            self.place = match found {
                Some((rq, MergeKind::Front)) => Place::Before(rq),
                _ => Place::After(entries[hint].rq),
            };
        }
        found
    }

    fn merged(&mut self, ctx: &mut Ctx<'_>, rq: RqId, _kind: MergeKind) {
        self.place = Place::Tail;
        if let Some(index) = self.line.position(rq) {
            self.line.grown(index, ctx.requests);
        }
    }

    fn neighbour(&self, _ctx: &Ctx<'_>, rq: RqId, side: MergeKind) -> Option<RqId> {
        let index = self.line.position(rq)?;
        let beside = match side {
            MergeKind::Back => index + 1,
            MergeKind::Front => index.checked_sub(1)?,
        };
        self.line.entries().get(beside).filter(|entry| !entry.flush).map(|entry| entry.rq)
    }

    fn merged_requests(&mut self, ctx: &mut Ctx<'_>, kept: RqId, gone: RqId) {
        let Some(index) = self.line.position(gone) else {
            debug_assert!(false, "request {} does not wait here", gone.0);
            return;
        };
        let credit = self.line.remove(index).own;
        if let Some(index) = self.line.position(kept) {
            self.line.grown(index, ctx.requests);
            let own = &mut self.line.entries_mut()[index].own;
            *own = (*own).min(credit);
        }
    }

    fn add(&mut self, ctx: &mut Ctx<'_>, rq: RqId) {
        // The remembered neighbour may have been dispatched while the submitter slept for a request.
        let place = match self.place {
            Place::Tail => None,
            Place::After(neighbour) => self.line.position(neighbour).map(|index| index + 1),
            Place::Before(neighbour) => self.line.position(neighbour),
        };
        self.place = Place::Tail;
        let credit = self.credits[usize::from(ctx.requests[rq].dir == Dir::Write)];
        self.line.insert(place.unwrap_or(self.line.entries().len()), ctx.requests, rq, credit);
    }

    fn next(&mut self, _ctx: &mut Ctx<'_>) -> Option<RqId> {
        self.line.pop_front()
    }

    fn is_empty(&self) -> bool {
        self.line.entries().is_empty()
    }

    fn len(&self) -> usize {
        self.line.entries().len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Driver, permutations};
    use crate::event::Dir::{Read, Write};

    fn driver() -> Driver {
        let mut driver = Driver::new("linus", 100);
        driver.plugged = true;
        driver
    }

    #[test]
    fn the_list_ascends_and_wraps() {
        for (arrivals, order) in [
            // The second element never lies "between", so it goes to the tail and makes the wrap.
            (vec![100, 300, 200], vec![100, 200, 300]),
            (vec![300, 100, 200], vec![300, 100, 200]),
            (vec![300, 100, 400], vec![300, 400, 100]),
            (vec![300, 100, 50], vec![300, 50, 100]),
            (vec![100, 200, 50], vec![100, 200, 50]),
        ] {
            let mut driver = driver();
            arrivals.iter().for_each(|&sector| driver.submit(Read, sector, 8, 0));
            assert_eq!(driver.drain(), order, "arrivals {arrivals:?}");
        }
    }

    #[test]
    fn what_the_driver_is_about_to_start_is_left_alone() {
        for (plugged, requests) in [(true, 1), (false, 2)] {
            let mut driver = driver();
            driver.submit(Read, 100, 8, 0);
            driver.plugged = plugged;
            driver.submit(Read, 108, 8, 0);
            assert_eq!(driver.elevator.len(), requests, "plugged: {plugged}");
        }
    }

    #[test]
    fn a_read_is_passed_128_times_and_no_more() {
        let mut driver = driver();
        driver.submit(Read, 10, 8, 0);
        driver.submit(Read, 1_000_000, 8, 0);
        for i in 0..130 {
            driver.submit(Read, 1_000 + 100 * i, 8, 0);
        }
        let order = driver.drain();
        let place = order.iter().position(|&sector| sector == 1_000_000);
        assert_eq!(place, Some(1 + 128), "the read waits for exactly 128 that came later");
        assert_eq!(order[1 + 128 + 1..], [1_000 + 100 * 128, 1_000 + 100 * 129]);
    }

    #[test]
    fn a_write_is_passed_512_times() {
        let mut driver = driver();
        driver.submit(Read, 10, 8, 0);
        driver.submit(Write, 1_000_000, 8, 0);
        for i in 0..600 {
            driver.submit(Read, 1_000 + 100 * i, 8, 0);
        }
        let order = driver.drain();
        assert_eq!(order.iter().position(|&sector| sector == 1_000_000), Some(1 + 512));
    }

    #[test]
    fn united_requests_keep_the_smaller_credit() {
        // 2016 is passed by 2000 and 100, then joined at its front by 2008 (its third), then swallowed by 2000, which
        // could still be passed.
        let mut driver = Driver::with("linus", 100, &[("read_passovers", 3)]);
        driver.plugged = true;
        for sector in [10, 2016, 2000, 100, 2008, 200] {
            driver.submit(Read, sector, 8, 0);
        }
        assert_eq!(driver.drain(), [10, 100, 2000, 200]);
    }

    #[test]
    fn a_scan_goes_on_past_a_request_that_is_full() {
        let mut driver = driver();
        driver.max_sectors = 16;
        driver.submit(Read, 100, 16, 0);
        driver.submit(Read, 116, 8, 0);
        assert_eq!(driver.drain(), [100, 116]);
    }

    /// The same rules over a plain list of (sector, length, credit), written for reading.
    fn naive(arrivals: &[u64], credit: i64) -> Vec<u64> {
        let mut list: Vec<(u64, u64, i64)> = Vec::new();
        'arrivals: for &new in arrivals {
            let mut hint = None;
            for i in (0..list.len()).rev() {
                let (start, length, left) = list[i];
                let is_between = i + 1 < list.len() && {
                    let next = list[i + 1].0;
                    if start < next { start < new && new < next } else { new > start || new < next }
                };
                if hint.is_none() && is_between && left > 0 {
                    hint = Some(i);
                }
                let front = new + 8 == start;
                if start + length == new || (front && left > 0) {
                    list[i].1 += 8;
                    list[i].0 -= if front { 8 } else { 0 };
                    list[i].2 -= i64::from(front);
                    list[i + 1..].iter_mut().for_each(|later| later.2 -= 1);
                    let neighbour = if front { i.wrapping_sub(1) } else { i + 1 };
                    if neighbour < list.len() {
                        let (low, high) = (i.min(neighbour), i.max(neighbour));
                        if list[low].0 + list[low].1 == list[high].0 {
                            let gone = list.remove(high);
                            list[low].1 += gone.1;
                            list[low].2 = list[low].2.min(gone.2);
                        }
                    }
                    continue 'arrivals;
                }
                if left <= 0 {
                    break;
                }
            }
            match hint {
                Some(i) => {
                    list[i + 1..].iter_mut().for_each(|later| later.2 -= 1);
                    list.insert(i + 1, (new, 8, credit));
                }
                None => list.push((new, 8, credit)),
            }
        }
        list.iter().map(|request| request.0).collect()
    }

    #[test]
    fn every_small_world_agrees_with_a_naive_scan() {
        let mut worlds = 0;
        for credit in [0, 1, 2, 128] {
            for arrivals in permutations(&[8, 16, 32, 48, 56, 80], 5) {
                let mut driver = Driver::with("linus", 100, &[("read_passovers", credit)]);
                driver.plugged = true;
                arrivals.iter().for_each(|&sector| driver.submit(Read, sector, 8, 0));
                assert_eq!(driver.drain(), naive(&arrivals, credit), "credit {credit}, arrivals {arrivals:?}");
                worlds += 1;
            }
        }
        assert_eq!(worlds, 4 * (1 + 6 + 30 + 120 + 360 + 720));
    }
}

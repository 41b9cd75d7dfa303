//! The surfaces of a disk: how long the arm takes over a distance, and where the sectors are in each zone.
//!
//! Numbers only, as a file of the user gives them; `device/drive.rs` has the rules that read them.

/// Tables of a drive that no single option can hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surfaces {
    /// Times of seeks in nanoseconds by distance in cylinders, distances rising from 1.
    pub seek: Vec<(u32, u64)>,
    /// From the outside inwards.
    pub zones: Vec<Zone>,
}

/// Cylinders with the same number of sectors on each track.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    pub first_cylinder: u32,
    pub last_cylinder: u32,
    pub sectors_per_track: u32,
    /// Sectors by which the first track of the zone is turned.
    pub offset_sectors: u32,
    /// Sectors at the start of the zone that hold no data of the host.
    pub reserved_sectors: u64,
    /// Sectors by which a track is turned against the one before it on the same cylinder.
    pub track_skew_sectors: u32,
    /// The same for the first track of a cylinder.
    pub cylinder_skew_sectors: u32,
    /// Spare sectors of each unit of sparing; with `tracks`, spare tracks of the zone.
    pub spares: u32,
    /// Places in the zone that are skipped, rising: sectors, with `tracks` tracks.
    pub slips: Vec<u64>,
}

/// A column of a table, for documents and messages: its key and meaning.
pub type Column = (&'static str, &'static str);

/// Columns of `[[zones]]` in the order of [`Zone::numbers`]; `slips` is a list.
pub const ZONE_COLUMNS: &[Column] = &[
    ("first_cylinder", "First cylinder of the zone"),
    ("last_cylinder", "Last cylinder of the zone; the zones adjoin or leave cylinders unused between them"),
    ("sectors_per_track", "Sectors on each of its tracks"),
    ("offset_sectors", "Sectors by which its first track is turned; 0 if not given"),
    ("reserved_sectors", "Sectors at its start without data of the host; 0 if not given"),
    ("track_skew_sectors", "Sectors by which a track is turned against the one before it; 0 if not given"),
    ("cylinder_skew_sectors", "The same for the first track of a cylinder; 0 if not given"),
    ("spares", "Spare sectors of each unit of `spares_per`; with `tracks`, spare tracks of the zone; 0 if not given"),
    ("slips", "List of the places in the zone that are skipped: sectors, with `tracks` tracks; none if not given"),
];

/// Columns of the table `seek`.
pub const SEEK_COLUMNS: &[Column] = &[
    ("distance", "Cylinders, rising; times between two rows are interpolated, beyond the last extrapolated"),
    ("ns", "Time of a seek over that distance in nanoseconds"),
];

impl Zone {
    /// All but the slips, in the order of [`ZONE_COLUMNS`].
    pub fn numbers(&self) -> [u64; 8] {
        [
            u64::from(self.first_cylinder),
            u64::from(self.last_cylinder),
            u64::from(self.sectors_per_track),
            u64::from(self.offset_sectors),
            self.reserved_sectors,
            u64::from(self.track_skew_sectors),
            u64::from(self.cylinder_skew_sectors),
            u64::from(self.spares),
        ]
    }

    /// The zone of those numbers, each of which must fit (`u32`, reserved sectors `u64`).
    pub fn of_numbers(numbers: [u64; 8], slips: Vec<u64>) -> Option<Zone> {
        let narrow = |nr: usize| u32::try_from(numbers[nr]).ok();
        Some(Zone {
            first_cylinder: narrow(0)?,
            last_cylinder: narrow(1)?,
            sectors_per_track: narrow(2)?,
            offset_sectors: narrow(3)?,
            reserved_sectors: numbers[4],
            track_skew_sectors: narrow(5)?,
            cylinder_skew_sectors: narrow(6)?,
            spares: narrow(7)?,
            slips,
        })
    }
}

/// Most sectors of a track, cylinders and heads that are accepted: products of them stay far below 2^63.
pub const MOST_PER_TRACK: u32 = 100_000;
/// See [`MOST_PER_TRACK`].
pub const MOST_CYLINDERS: u32 = 10_000_000;

/// Spare sectors belong to ... ; the order is that of DiskSim's numbers of its sparing schemes, 0 to 10.
pub const SPARES_PER: &[&str] = &[
    "none",
    "tracks",
    "cylinder",
    "track",
    "cylinder-slip-to-end",
    "cylinder-front",
    "cylinder-front-slip-to-end",
    "zone-end",
    "range",
    "zone",
    "zone-slip-to-end",
];

const TRACKS: usize = 1;

/// The unit that spares belong to, and what is left of it.
#[derive(Clone, Debug)]
struct Unit {
    /// Sectors with the spares.
    all: u64,
    /// Without them.
    usable: u64,
    /// Spares come first.
    front: u64,
    /// Slips of earlier units move the later ones, too.
    slips_to_end: bool,
    /// Slips of earlier units turn the angle back.
    slips_turn: bool,
}

/// A zone with what follows from its numbers.
#[derive(Clone, Debug)]
struct Band {
    zone: Zone,
    start: u64,
    nr_sectors: u64,
    unit: Unit,
}

/// Cylinder and head.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub cylinder: u32,
    pub head: u32,
}

/// A track with the sectors of the host on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    pub place: Place,
    /// Its first and last sector, as the host counts them.
    pub first: u64,
    pub last: u64,
    /// Slots around it.
    pub nr_slots: u64,
    /// Slots by which slot 0 is turned.
    pub turned: u64,
    /// The slots of `first ..= last`, rising.
    slots: Vec<u64>,
}

impl Track {
    /// The slot of a sector of this track.
    pub fn slot(&self, sector: u64) -> u64 {
        self.slots[(sector - self.first) as usize]
    }

    /// The sector in a slot, if it holds one.
    pub fn sector(&self, slot: u64) -> Option<u64> {
        self.slots.binary_search(&slot).ok().map(|nr| self.first + nr as u64)
    }

    /// The slot of its last sector.
    pub fn last_slot(&self) -> u64 {
        self.slots[self.slots.len() - 1]
    }
}

/// Options of a geometry that are not in its tables.
#[derive(Copy, Clone, Debug)]
pub struct Layout {
    /// Surfaces with data.
    pub heads: u32,
    /// Index into [`SPARES_PER`].
    pub spares_per: usize,
    /// Cylinders of a range, for `range`.
    pub range_cylinders: u32,
    /// 0: the heads follow one another from the first on each cylinder; 1: backwards on every second cylinder of a
    /// zone; 2: backwards on every odd cylinder.
    pub head_order: u32,
    pub head_switch: u64,
    /// More for a write that moves the arm or changes the head; it can be negative.
    pub write_settle: i64,
}

/// Surfaces whose sectors can be found.
#[derive(Clone, Debug)]
pub struct Geometry {
    layout: Layout,
    seek: Vec<(u32, u64)>,
    bands: Vec<Band>,
    nr_sectors: u64,
}

impl Geometry {
    /// Mistakes in these tables, each with the number of its zone (or none).
    pub fn mistakes(surfaces: &Surfaces, layout: &Layout) -> Vec<(Option<usize>, String)> {
        let mut mistakes = Vec::new();
        if surfaces.seek.is_empty() {
            mistakes.push((None, "the table of seek times is empty".to_owned()));
        }
        for pair in surfaces.seek.windows(2).filter(|pair| pair[0].0 >= pair[1].0) {
            let (before, after) = (pair[0].0, pair[1].0);
            mistakes.push((None, format!("the distance {after} of a seek follows {before}: distances rise")));
        }
        for &(distance, time) in surfaces.seek.iter().filter(|(distance, time)| *distance == 0 || *time > 1 << 40) {
            mistakes.push((None, format!("a seek over {distance} cylinders in {time} ns: 1 or more, below 1000 s")));
        }
        if surfaces.zones.is_empty() {
            mistakes.push((None, "no zone".to_owned()));
        }
        let mut next = 0;
        for (nr, zone) in surfaces.zones.iter().enumerate() {
            let mut wrong = |message: String| mistakes.push((Some(nr), message));
            let (first, last) = (zone.first_cylinder, zone.last_cylinder);
            if first < next || last < first || last > MOST_CYLINDERS {
                wrong(format!("cylinders {first} to {last} do not follow those of the zone before it (to {next})"));
                continue;
            }
            next = last + 1;
            let per_track = zone.sectors_per_track;
            if per_track == 0 || per_track > MOST_PER_TRACK {
                wrong(format!("`sectors_per_track` must lie between 1 and {MOST_PER_TRACK}, not {per_track}"));
                continue;
            }
            if zone.slips.windows(2).any(|pair| pair[0] >= pair[1]) {
                wrong("`slips` must rise".to_owned());
            }
            let all = u64::from(last - first + 1) * u64::from(layout.heads) * u64::from(per_track);
            let (nr_sectors, unit) = capacity(zone, layout);
            if unit.usable == 0 || nr_sectors == 0 {
                wrong("spares and reserved sectors leave none".to_owned());
            } else if (Band { zone: zone.clone(), start: 0, nr_sectors, unit }).position(nr_sectors - 1) >= all {
                wrong("there are more slips than spares".to_owned());
            }
        }
        mistakes
    }

    /// The geometry of tables without [`Geometry::mistakes`].
    pub fn new(surfaces: &Surfaces, layout: Layout) -> Geometry {
        let mut start = 0;
        let mut bands = Vec::with_capacity(surfaces.zones.len());
        for zone in &surfaces.zones {
            let (nr_sectors, unit) = capacity(zone, &layout);
            bands.push(Band { zone: zone.clone(), start, nr_sectors, unit });
            start += nr_sectors;
        }
        Geometry { layout, seek: surfaces.seek.clone(), bands, nr_sectors: start }
    }

    /// Capacity.
    pub fn nr_sectors(&self) -> u64 {
        self.nr_sectors
    }

    /// Time of a move of the arm, or of a change of the head.
    pub fn seek(&self, from: Place, to: Place, write: bool) -> u64 {
        let distance = from.cylinder.abs_diff(to.cylinder);
        let switch = if from.head == to.head { 0 } else { self.layout.head_switch };
        match self.over(distance).max(switch) {
            0 => 0,
            time if write => time.saturating_add_signed(self.layout.write_settle),
            time => time,
        }
    }

    /// Time over `distance` cylinders.
    fn over(&self, distance: u32) -> u64 {
        if distance == 0 {
            return 0;
        }
        let next = self.seek.partition_point(|(known, _)| *known < distance).min(self.seek.len() - 1);
        let (far, late) = self.seek[next];
        if far == distance || self.seek.len() == 1 {
            return late;
        }
        let (near, early) = if next == 0 { (0, 0) } else { self.seek[next - 1] };
        let (near, far, at) = (i64::from(near), i64::from(far), i64::from(distance));
        let (early, late) = (early as i64, late as i64);
        (early + (at - near) * (late - early) / (far - near)).max(0) as u64
    }

    fn band(&self, sector: u64) -> &Band {
        &self.bands[self.bands.partition_point(|band| band.start <= sector) - 1]
    }

    /// Sectors of the track that `sector` is on.
    pub fn per_track(&self, sector: u64) -> u64 {
        u64::from(self.band(sector).zone.sectors_per_track)
    }

    /// Cylinder and head of a sector.
    pub fn place(&self, sector: u64) -> Place {
        let band = self.band(sector);
        self.place_of(band, band.position(sector) / u64::from(band.zone.sectors_per_track))
    }

    /// Cylinder and head of a track of a zone.
    fn place_of(&self, band: &Band, track: u64) -> Place {
        let heads = u64::from(self.layout.heads);
        let (relative, nr) = ((track / heads) as u32, (track % heads) as u32);
        let cylinder = band.zone.first_cylinder + relative;
        let backwards = match self.layout.head_order {
            1 => relative % 2 == 1,
            2 => cylinder % 2 == 1,
            _ => false,
        };
        Place { cylinder, head: if backwards { self.layout.heads - 1 - nr } else { nr } }
    }

    /// The track of a sector.
    pub fn track(&self, sector: u64) -> Track {
        let band = self.band(sector);
        let per_track = u64::from(band.zone.sectors_per_track);
        let nr = band.position(sector) / per_track;
        let start = nr * per_track;
        let (mut first, mut last) = (sector, sector);
        let mut slots = vec![band.position(sector) - start];
        // Neighbours lie on the same track, some slots apart; most sectors follow without a gap.
        while first > band.start && band.position(first - 1) >= start {
            first -= 1;
            slots.push(band.position(first) - start);
        }
        slots.reverse();
        while last + 1 < band.start + band.nr_sectors && band.position(last + 1) < start + per_track {
            last += 1;
            slots.push(band.position(last) - start);
        }
        let heads = u64::from(self.layout.heads);
        let (cylinder, head) = (nr / heads, nr % heads);
        let zone = &band.zone;
        let switches = head + (heads - 1) * cylinder;
        let mut turned = u64::from(zone.offset_sectors)
            + u64::from(zone.track_skew_sectors) * switches
            + u64::from(zone.cylinder_skew_sectors) * cylinder;
        if band.unit.slips_turn {
            let before = start / band.unit.all * band.unit.all;
            turned += zone.slips.partition_point(|slip| *slip < before) as u64;
        }
        let place = self.place_of(band, nr);
        Track { place, first, last, nr_slots: per_track, turned: turned % per_track, slots }
    }
}

impl Band {
    /// Where in the zone a sector is, counted over all of its sectors.
    fn position(&self, sector: u64) -> u64 {
        let nr = sector - self.start + self.zone.reserved_sectors;
        let per_track = u64::from(self.zone.sectors_per_track);
        let slips = &self.zone.slips;
        // Slip number i is passed if it is not beyond the place moved by the i slips before it.
        let passed = |slips: &[u64], at: u64| {
            let (mut low, mut high) = (0, slips.len());
            while low < high {
                let middle = (low + high) / 2;
                if slips[middle] <= at + middle as u64 {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            low as u64
        };
        if self.unit.all == 0 {
            let track = nr / per_track;
            return (track + passed(slips, track)) * per_track + nr % per_track;
        }
        let base = nr / self.unit.usable * self.unit.all;
        let earlier = slips.partition_point(|slip| *slip < base);
        let moved = if self.unit.slips_to_end { earlier as u64 } else { 0 };
        let at = base + self.unit.front + nr % self.unit.usable + moved;
        at + passed(&slips[earlier..], at)
    }
}

/// Sectors of the host in a zone, and the unit of its spares. A unit of 0 sectors stands for whole tracks.
fn capacity(zone: &Zone, layout: &Layout) -> (u64, Unit) {
    let cylinders = u64::from(zone.last_cylinder - zone.first_cylinder + 1);
    let (heads, per_track) = (u64::from(layout.heads), u64::from(zone.sectors_per_track));
    let (all, spares, nr_slips) = (cylinders * heads * per_track, u64::from(zone.spares), zone.slips.len() as u64);
    let whole = |lost: u64| (all, 0, lost);
    let (unit, per_unit, lost) = match layout.spares_per {
        TRACKS => (0, 0, spares * per_track),
        2 | 5 => (heads * per_track, spares, spares * cylinders),
        4 | 6 => (heads * per_track, spares, spares * cylinders + nr_slips),
        3 => (per_track, spares, spares * cylinders * heads),
        7 => whole(nr_slips),
        8 => {
            let range = u64::from(layout.range_cylinders.max(1));
            (heads * per_track * range, spares, spares * (cylinders / range))
        }
        9 => whole(spares),
        10 => whole(spares + nr_slips),
        _ => whole(0),
    };
    let unit = Unit {
        all: unit,
        usable: if unit == 0 { 1 } else { unit.saturating_sub(per_unit) },
        front: if matches!(layout.spares_per, 5 | 6) { per_unit } else { 0 },
        slips_to_end: matches!(layout.spares_per, 4 | 6),
        slips_turn: matches!(layout.spares_per, 2..=6),
    };
    (all.saturating_sub(lost + zone.reserved_sectors), unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(spares_per: &str) -> Layout {
        let spares_per = SPARES_PER.iter().position(|name| *name == spares_per).expect("a name");
        Layout { heads: 2, spares_per, range_cylinders: 2, head_order: 0, head_switch: 300, write_settle: 0 }
    }

    /// Two heads, four cylinders of ten sectors a track.
    fn zone(spares: u32, slips: &[u64]) -> Surfaces {
        let zone = Zone { last_cylinder: 3, sectors_per_track: 10, spares, slips: slips.to_vec(), ..Zone::default() };
        Surfaces { seek: vec![(1, 100), (3, 200)], zones: vec![zone] }
    }

    /// Positions of all sectors by the words of each scheme: walk over the zone, leaving out spares and slips.
    #[test]
    fn spares_and_slips_are_left_out() {
        for (name, spares, slips, left_out) in [
            ("none", 0, vec![], vec![]),
            ("tracks", 1, vec![2], vec![20..25, 25..30]),
            ("cylinder", 2, vec![5], vec![5..6, 19..20, 38..40, 58..60, 78..80]),
            ("track", 1, vec![], (1..9).map(|track| track * 10 - 1..track * 10).collect::<Vec<_>>()),
            ("cylinder-front", 2, vec![], vec![0..2, 20..22, 40..42, 60..62]),
            ("zone-end", 0, vec![0, 33], vec![0..1, 33..34]),
            ("range", 3, vec![41], vec![37..40, 41..42, 78..80]),
            ("zone", 4, vec![7, 8], vec![7..9, 78..80]),
        ] {
            let surfaces = zone(spares, &slips);
            assert_eq!(Geometry::mistakes(&surfaces, &layout(name)), [], "{name}");
            let geometry = Geometry::new(&surfaces, layout(name));
            let walked: Vec<u64> =
                (0..80).filter(|at| !left_out.iter().any(|range: &std::ops::Range<u64>| range.contains(at))).collect();
            let found: Vec<u64> = (0..geometry.nr_sectors()).map(|nr| geometry.bands[0].position(nr)).collect();
            assert_eq!(found, walked, "{name}");
            for sector in 0..geometry.nr_sectors() {
                let track = geometry.track(sector);
                assert_eq!(track.sector(track.slot(sector)), Some(sector), "{name}");
                assert_eq!(track.place, geometry.place(sector));
                let (first, last) = (geometry.place(track.first), geometry.place(track.last));
                assert!(first == track.place && last == track.place && track.first <= sector && sector <= track.last);
            }
        }
    }

    #[test]
    fn tracks_are_turned_by_their_skew_and_heads_can_run_backwards() {
        let mut surfaces = zone(0, &[]);
        surfaces.zones[0].track_skew_sectors = 3;
        surfaces.zones[0].cylinder_skew_sectors = 4;
        surfaces.zones[0].offset_sectors = 1;
        let turned = |sector| Geometry::new(&surfaces, layout("none")).track(sector).turned;
        assert_eq!([0, 10, 20, 30, 40].map(turned), [1, 4, 8, 1, 5]);
        let backwards = Geometry::new(&surfaces, Layout { head_order: 1, ..layout("none") });
        assert_eq!([0, 10, 20, 30, 40].map(|sector| backwards.place(sector).head), [0, 1, 1, 0, 0]);
        let table = |from, to, write| {
            let place = |cylinder, head| Place { cylinder, head };
            let layout = Layout { write_settle: -50, ..layout("none") };
            Geometry::new(&surfaces, layout).seek(place(0, 0), place(from, to), write)
        };
        // On the table, between its rows, beyond them; the head takes longer; a write settles less.
        assert_eq!(
            [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (1, 1)].map(|(c, h)| table(c, h, false)),
            [0, 100, 150, 200, 250, 300]
        );
        assert_eq!([(0, 0), (3, 0), (0, 1)].map(|(c, h)| table(c, h, true)), [0, 150, 250]);
    }

    #[test]
    fn mistakes_are_found_all_at_once() {
        let mut surfaces = zone(30, &[5, 5]);
        surfaces.seek = vec![(3, 1), (2, 1), (0, 1)];
        let found = Geometry::mistakes(&surfaces, &layout("cylinder"));
        assert_eq!(found.len(), 5, "{found:#?}");
    }
}

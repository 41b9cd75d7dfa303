//! Service times of a device as they were measured: distributions by operation, size and place.
//!
//! Numbers only, as a profile gives them; `device/measured.rs` has the rules that read them.

use crate::rng::Rng;

/// Number of levels of a distribution.
pub const NR_LEVELS: usize = 17;

/// Shares of the draws, per mille, whose times a distribution names: closer together where the tail is.
pub const LEVELS: [u32; NR_LEVELS] = [0, 10, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 950, 980, 990, 998, 1000];

/// A distribution: the time in nanoseconds that each of [`LEVELS`] of the draws does not exceed; rising.
pub type Times = [u64; NR_LEVELS];

/// Kinds of access, in the order of [`Service::rows`]: `_next` continues where a command before it ended.
pub const ACCESSES: [&str; 4] = ["read", "read_next", "write", "write_next"];

/// Times of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub sectors: u32,
    pub ns: Times,
}

/// Tables of a measured device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// By [`ACCESSES`], then by size, rising. An access without rows takes the times of its like.
    pub rows: [Vec<Row>; ACCESSES.len()],
    /// Of a flush of an empty cache.
    pub flush: Option<Times>,
    /// Distance in sectors from the end of the command before, rising, and the median time of a command so far away
    /// in nanoseconds: rotating disks. The rows are times of the last distance.
    pub distance: Vec<(u64, u64)>,
    /// Commands in the device, rising, and the share of its time alone that a command takes then, per mille.
    pub depth: Vec<(u32, u32)>,
}

/// A level as a share of 2^20 for each per mille.
const UNIT: u64 = 1 << 20;

/// The share of [`at`] that a quarter of the draws do not exceed.
pub const QUARTER: u64 = 250 * UNIT;

/// A share drawn for [`at`].
pub fn draw_share(rng: &mut Rng) -> u64 {
    rng.below(1000 * UNIT)
}

/// The time of a distribution at a share of [`draw_share`], in proportion between levels.
pub fn at(times: &Times, share: u64) -> u64 {
    let above = LEVELS.iter().position(|level| u64::from(*level) * UNIT > share).unwrap_or(NR_LEVELS - 1).max(1);
    let [low, high] = [above - 1, above].map(|nr| u64::from(LEVELS[nr]) * UNIT);
    between(share, (low, times[above - 1]), (high, times[above]))
}

/// The value at `x` on the line through two points of rising values, not below 0.
fn between(x: u64, (x0, y0): (u64, u64), (x1, y1): (u64, u64)) -> u64 {
    let (rise, run) = (i128::from(y1) - i128::from(y0), i128::from(x1) - i128::from(x0));
    let value = i128::from(y0) + if run == 0 { 0 } else { rise * (i128::from(x) - i128::from(x0)) / run };
    u64::try_from(value.max(0)).unwrap_or(u64::MAX)
}

/// The value at `x` of points of rising `x`: in proportion between two, that of the end beyond them.
pub fn on_line(points: impl Iterator<Item = (u64, u64)>, x: u64) -> Option<u64> {
    let mut before = None;
    for point in points {
        if x <= point.0 {
            return Some(before.map_or(point.1, |before| between(x, before, point)));
        }
        before = Some(point);
    }
    before.map(|(_, y)| y)
}

impl Service {
    /// Rows of an access, or of the one most like it.
    pub fn rows_of(&self, write: bool, next: bool) -> &[Row] {
        let order = match (write, next) {
            (false, false) => [0, 1, 2, 3],
            (false, true) => [1, 0, 3, 2],
            (true, false) => [2, 3, 0, 1],
            (true, true) => [3, 2, 1, 0],
        };
        order.into_iter().map(|nr| self.rows[nr].as_slice()).find(|rows| !rows.is_empty()).unwrap_or_default()
    }

    /// The time of a command of `sectors` at a share of [`draw_share`].
    ///
    /// Between two sizes in proportion; below the smallest that of the smallest; beyond the largest on the line through
    /// the two largest. Of a single size a quarter of the time is held to grow with the size.
    pub fn time(&self, write: bool, next: bool, sectors: u32, share: u64) -> u64 {
        let rows = self.rows_of(write, next);
        let point = |row: &Row| (u64::from(row.sectors), at(&row.ns, share));
        let x = u64::from(sectors);
        match rows {
            [] => 0,
            [.., last] if sectors <= last.sectors => on_line(rows.iter().map(point), x).unwrap_or(0),
            [only] => {
                let (size, ns) = point(only);
                ns + ns * (x - size) / size.max(1) / 4
            }
            [.., before, last] => {
                let (one, two) = (point(before), point(last));
                // A larger command is not quicker.
                between(x, (one.0, one.1.min(two.1)), two)
            }
        }
    }

    /// Mistakes in the tables.
    pub fn mistakes(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, rows) in ACCESSES.iter().zip(&self.rows) {
            if !rows.is_sorted_by(|a, b| a.sectors < b.sectors) || rows.iter().any(|row| row.sectors == 0) {
                found.push(format!("sizes of `{name}` must rise from 1"));
            }
        }
        let times = self.rows.iter().flatten().map(|row| &row.ns).chain(&self.flush);
        if !times.clone().all(|ns| ns.is_sorted()) {
            found.push("times of a distribution must rise".to_owned());
        }
        if times.flatten().chain(self.distance.iter().map(|(_, ns)| ns)).any(|ns| *ns > LONGEST) {
            found.push(format!("no time may exceed {LONGEST} ns"));
        }
        if !self.distance.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1) {
            found.push("distances and their times must rise".to_owned());
        }
        if !self.depth.is_sorted_by(|a, b| a.0 < b.0) || self.depth.iter().any(|(_, share)| *share > 1_000_000) {
            found.push("depths must rise, with shares of at most 1000000 per mille".to_owned());
        }
        found
    }
}

/// Ten minutes: no command takes longer.
const LONGEST: u64 = 600_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(sectors: u32, ns: u64) -> Row {
        Row { sectors, ns: [ns; NR_LEVELS] }
    }

    #[test]
    fn sizes_are_interpolated_and_beyond_the_largest_extrapolated() {
        let rows = [vec![flat(8, 100), flat(16, 180), flat(32, 300)], vec![flat(8, 40)], vec![], vec![]];
        let service = Service { rows, ..Service::default() };
        for (next, sectors, ns) in [
            (false, 1, 100),
            (false, 8, 100),
            (false, 12, 140),
            (false, 32, 300),
            (false, 48, 420),
            (true, 8, 40),
            (true, 16, 50),
            (true, 2, 40),
        ] {
            assert_eq!(service.time(false, next, sectors, 0), ns, "{next} {sectors}");
        }
        // Writes were not measured: they take the times of reads.
        assert_eq!(service.time(true, false, 12, 0), 140);
        assert_eq!(Service::default().time(true, false, 12, 0), 0);
    }

    #[test]
    fn draws_have_the_distribution_they_are_drawn_from() {
        let mut times = [0; NR_LEVELS];
        times.iter_mut().zip(LEVELS).for_each(|(ns, level)| *ns = u64::from(level * level));
        let mut rng = Rng::stream(1, "draws");
        let mut draws: Vec<u64> = (0..100_000).map(|_| at(&times, draw_share(&mut rng))).collect();
        draws.sort_unstable();
        for level in LEVELS[1..16].iter().copied() {
            let (drawn, wanted) = (draws[level as usize * 100], u64::from(level * level));
            assert!(drawn.abs_diff(wanted) <= wanted / 50 + 60, "{level}: {drawn}, not {wanted}");
        }
        assert_eq!([at(&times, 0), at(&times, 1000 * UNIT - 1)], [0, 999_999]);
    }

    #[test]
    fn mistakes_in_tables_are_found() {
        let falling = {
            let mut row = flat(8, 5);
            row.ns[3] = 9;
            row
        };
        let of = |rows: Vec<Row>| Service { rows: [rows, vec![], vec![], vec![]], ..Service::default() };
        for (service, nr) in [
            (Service::default(), 0),
            (of(vec![flat(8, 1), flat(16, 2)]), 0),
            (of(vec![flat(16, 1), flat(8, 2)]), 1),
            (of(vec![flat(0, 1)]), 1),
            (of(vec![falling]), 1),
            (of(vec![flat(8, u64::MAX)]), 1),
            (Service { distance: vec![(9, 5), (8, 6)], ..Service::default() }, 1),
            (Service { depth: vec![(2, 5), (2, 6)], ..Service::default() }, 1),
        ] {
            assert_eq!(service.mistakes().len(), nr, "{service:?}");
        }
    }
}

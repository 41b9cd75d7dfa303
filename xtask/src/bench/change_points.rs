//! Change points: the energy statistic with random orders and Hunter's windows, ours and Apache Otava's; and as many
//! series as a fleet of machines has. The answer is a digest of the indexes.
//!
//! Both draw their own random orders, so the series of the first has steps that no order can hide. The fleet has no
//! peer: Otava's original would take an hour. It is measured by the clock, since it uses all processors.

use super::peer::Peer;
use super::{Aim, Figure, Measure, Setting, compare, timed};
use iowhy_stack::rng::Rng;
use iowhy_stats::change_points::{ChangePoint, Settings, Windows, e_divisive, end_anchored, windowed};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Instant;

/// `timed` divides by this to have milliseconds.
const MS: usize = 1_000_000;
/// Otava's original takes 17 s a call.
const PAIRS: usize = 3;
const FLEET: usize = 10_000;
const DAYS: usize = 365;
const WINDOW: usize = 50;

pub(super) fn run(setting: &Setting) -> Result<Vec<Figure>, String> {
    let few = Setting {
        pairs: setting.pairs.min(PAIRS),
        divisor: setting.divisor,
        folder: setting.folder.clone(),
        no_crates: setting.no_crates.clone(),
    };
    let script = include_str!("peers/otava_peer.py");
    let peer = Peer::start(setting, "apache-otava==0.8.0", script).map(RefCell::new);
    let mut rng = Rng::stream(1, "bench.change-points");
    let mut figures = Vec::new();

    let n = 1_000 / setting.divisor;
    let steps: Vec<f64> = (0..n).map(|nr| [10.0, 14.0, 9.0, 12.0, 16.0][nr * 5 / n] + normal(&mut rng)).collect();
    let path = write(setting, "steps", &steps)?;
    let settings = Settings::otava(0.05, 1);
    let aim = Aim { unit: "ms", peer_name: "otava original", goal: Some(50.0), limit: None };
    let mut ours = || Ok(timed(MS, || digest(&e_divisive(&steps, &settings).points)));
    let request = json!({ "series": path, "mode": "original", "p": settings.max_p });
    figures.push(pair(&few, format!("change points, e-divisive, {n}"), aim, &mut ours, &peer, &request)?);

    let n = 10_000 / setting.divisor;
    let noisy: Vec<f64> = (0..n).map(|nr| 100.0 + 3.0 * (nr / 170 % 3) as f64 + normal(&mut rng)).collect();
    let path = write(setting, "noisy", &noisy)?;
    let windows = Windows { window: WINDOW, ..Windows::default() };
    let aim = Aim { unit: "ms", peer_name: "otava", goal: Some(20.0), limit: Some(5.0) };
    let mut ours = || Ok(timed(MS, || digest(&windowed(&noisy, &windows))));
    let request = json!({ "series": path, "mode": "windowed", "p": windows.max_p, "window": WINDOW });
    figures.push(pair(setting, format!("change points, windows, {n}"), aim, &mut ours, &peer, &request)?);

    let series = FLEET / setting.divisor;
    // Every fifth series has a step somewhere.
    let fleet: Vec<Vec<f64>> = (0..series)
        .map(|nr| {
            let at = if nr % 5 == 0 { 50 + rng.below(DAYS as u64 - 100) as usize } else { DAYS };
            (0..DAYS).map(|day| if day < at { 100.0 } else { 103.0 } + normal(&mut rng)).collect()
        })
        .collect();
    let settings = Settings { permutations: 199, serial: false, ..Settings::default() };
    let share = fleet.len().div_ceil(std::thread::available_parallelism().map_or(1, usize::from));
    let aim = Aim { unit: "s (wall)", peer_name: "none", goal: None, limit: Some(5.0) };
    let mut ours = || {
        let start = Instant::now();
        let search = &|part: &[Vec<f64>]| -> Vec<u64> {
            part.iter().map(|series| digest(&end_anchored(series, &settings).points)).collect()
        };
        let digests: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = fleet.chunks(share).map(|part| scope.spawn(move || search(part))).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("a search does not panic")).collect()
        });
        let answer = digests.iter().fold(0u64, |all, one| all.wrapping_mul(1_000_003).wrapping_add(*one));
        Ok(super::Sample { ns: start.elapsed().as_secs_f64(), answer })
    };
    let peer = Err("no peer does it in useful time".to_owned());
    figures.push(compare(&few, format!("change points, {series} series of {DAYS}"), aim, &mut ours, peer)?);
    Ok(figures)
}

/// Ours against the peer's answer to `request`.
fn pair(
    setting: &Setting,
    name: String,
    aim: Aim,
    ours: Measure<'_>,
    peer: &Result<RefCell<Peer>, String>,
    request: &Value,
) -> Result<Figure, String> {
    let mut theirs = peer.as_ref().map_err(Clone::clone).map(|peer| move || peer.borrow_mut().measure(request));
    let theirs = theirs.as_mut().map(|measure| measure as Measure<'_>).map_err(|reason| reason.clone());
    compare(setting, name, aim, ours, theirs)
}

fn write(setting: &Setting, name: &str, series: &[f64]) -> Result<PathBuf, String> {
    let path = setting.folder.join(format!("change-points-{name}-{}.json", series.len()));
    std::fs::write(&path, json!(series).to_string()).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

fn digest(points: &[ChangePoint]) -> u64 {
    points.iter().fold(0, |all: u64, point| all.wrapping_mul(1_000_003).wrapping_add(point.index as u64))
}

/// A standard normal value (Box-Muller).
fn normal(rng: &mut Rng) -> f64 {
    let mut uniform = || (rng.below(1 << 53) as f64 + 0.5) / (1u64 << 53) as f64;
    (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()
}

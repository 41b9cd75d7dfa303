//! 2012: read-ahead that sits in the plug its own reader holds. Evidence: sizes of requests and pauses of the device.

use iowhy_stack::event::UnplugCause;
use iowhy_stack::histogram::Histogram;
use iowhy_stack::layers::Layers;
use iowhy_stack::units::PAGE_SECTORS;

use super::{Checks, ClaimResult, percent, ratios};
use crate::incident::file::Claim;
use crate::incident::{IncidentResult, RowResult, extremes, mean};
use iowhy_stats::figure::{self, share};
use iowhy_text as text;

/// Checks of the claims that compare more than two published rows.
pub(in crate::incident) const CHECKS: Checks =
    &[("overlap-only", overlap_only), ("any-scheduler", any_scheduler), ("gaps", gaps)];

/// How far the slow-downs with different schedulers may lie apart.
const SAME: f64 = 0.025;
/// Share of the data from which on the commands "are" of a size: a reader is in step until it is held up for the first
/// time.
const NEARLY_ALL: f64 = 0.95;
/// Mean pause before a command above which the device stands idle in between, ms. The reader copies 256 KiB meanwhile,
/// which takes a laptop of the time more than twice as long.
const PAUSE_MS: f64 = 0.1;
/// Busy share of the device from which on it works without a pause.
const CONTINUOUS: f64 = 0.975;
/// Pages of the read-ahead window, and of two united.
const WINDOW: usize = 32;

/// The device's view of a sequential reader, over all repetitions.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
struct DeviceView {
    /// Share of the data that is read in commands of one window, and of two.
    windows: [f64; 2],
    /// Commands at the device when one is issued, this one included: that of most.
    depth: u64,
    /// Time without a command for each command, ms.
    pause_ms: f64,
    /// Share of the time with a command.
    busy: f64,
}

impl DeviceView {
    fn of<'a>(repetitions: impl Iterator<Item = &'a Layers> + Clone) -> DeviceView {
        let sum = |of: &dyn Fn(&Layers) -> u64| repetitions.clone().map(of).sum::<u64>();
        let sized = |pages: usize| {
            let data = sum(&|layers| layers.reads.by_pages.get(pages).map_or(0, |n| n * pages as u64 * PAGE_SECTORS));
            share(data, sum(&|layers| layers.reads.sectors))
        };
        let (time, busy) = (sum(&|layers| layers.end.0), sum(&|layers| layers.device_busy.0));
        let mut depths = Histogram::default();
        repetitions.clone().for_each(|layers| depths.merge(&layers.depth));
        DeviceView {
            windows: [sized(WINDOW), sized(2 * WINDOW)],
            depth: figure::quantile(&depths, 50),
            pause_ms: share(time.saturating_sub(busy), sum(&|layers| layers.reads.issued)) / 1e6,
            busy: share(busy, time),
        }
    }

    /// Windows reach the device in pairs, and one pair at a time.
    fn has_gaps(self) -> bool {
        self.windows[1] >= NEARLY_ALL && self.depth == 1 && self.pause_ms > PAUSE_MS
    }

    /// Windows reach the device one by one, and in time.
    fn is_continuous(self) -> bool {
        self.windows[0] >= NEARLY_ALL && self.depth > 1 && self.busy >= CONTINUOUS
    }
}

fn seen(row: &RowResult) -> DeviceView {
    let layers: Vec<&Layers> = row.samples().map(|sample| sample.layers()).collect();
    DeviceView::of(layers.into_iter())
}

/// Requests of two windows and pauses in between in the broken rows; of one and no pauses in the others.
fn gaps(result: &IncidentResult, _: &Claim, checked: &mut ClaimResult) {
    const PARTS: [(&str, bool); 5] =
        [("broken", true), ("broken_awake", true), ("before", false), ("before_awake", false), ("fixed", false)];
    checked.held = true;
    for (part, expected) in PARTS {
        let Some(row) = result.part(part) else {
            checked.held = false;
            checked.evidence.push(format!("no row plays the part `{part}`"));
            continue;
        };
        let seen = seen(row);
        checked.held &= if expected { seen.has_gaps() } else { seen.is_continuous() };
        checked.evidence.push(format!(
            "{}: {} of the data in commands of 256 KiB, {} of 128 KiB; mostly {} at the device; {:.2} ms idle for \
             each; busy {}",
            row.id,
            percent(seen.windows[1]),
            percent(seen.windows[0]),
            seen.depth,
            seen.pause_ms,
            percent(seen.busy)
        ));
    }
}

/// The rows that the claim names, on a device that never dozes.
fn overlap_only(result: &IncidentResult, _: &Claim, checked: &mut ClaimResult) {
    let Some([of, to]) = result.parts(["broken_awake", "before_awake"]) else {
        checked.evidence.push("no row plays the part `broken_awake` or `before_awake`".to_owned());
        return;
    };
    let ratio = result.ratio(of, to);
    checked.spread = Some(ratio.spread);
    checked.evidence.push(format!("{} against {}", of.id, to.id));
    checked.judge(ratio.value);
}

/// The compared pairs, one for each scheduler, have one ratio.
fn any_scheduler(result: &IncidentResult, claim: &Claim, checked: &mut ClaimResult) {
    let ratios = ratios(result, claim, checked);
    let (low, high) = extremes(ratios.iter().copied());
    checked.lower = Some(1.0 - SAME);
    // It is that of the ratios, and not of how far they lie apart.
    checked.spread = None;
    // Two schedulers at least, or there is nothing to compare.
    if ratios.len() > 1 && mean(ratios.into_iter()) > 0.0 {
        checked.judge(low / high);
        checked.follows = (low == high).then(|| "the ratio is the same with all, to the last digit".to_owned());
    }
}

/// The cause in words, every number from this run's own layers.
pub(in crate::incident) fn why(result: &IncidentResult) -> String {
    let Some([broken, before, fixed]) = result.parts(["broken", "before", "fixed"]) else {
        return String::new();
    };
    let [broken_seen, before_seen, fixed_seen] = [broken, before, fixed].map(seen);
    let flushed = |cause: UnplugCause| broken.sum(|layers| layers.unplugs[cause as usize]);
    let flushes = broken.sum(|layers| layers.unplugs.iter().sum());
    let mut words = format!(
        "In row {} the task holds a plug around the whole read call. {} of the flushes of that plug come only when the \
         reader goes to sleep over a page whose read is still in it ({} in a run). By then two windows have become one \
         request: {} of the data are read in commands of 256 KiB, mostly {} at a time, and the device is idle for \
         {:.2} ms before each while the reader copies what the last one brought. ",
        broken.id,
        percent(share(flushed(UnplugCause::Schedule), flushes)),
        text::grouped(flushed(UnplugCause::Schedule) / u64::from(result.sequences.max(1))),
        percent(broken_seen.windows[1]),
        broken_seen.depth,
        broken_seen.pause_ms,
    );
    words.push_str(&format!(
        "In row {} {} of the data are read in commands of 128 KiB, mostly {} at the device, which is busy {} of the \
         time; in row {}, without the outer plug, {}, {} and {}. ",
        before.id,
        percent(before_seen.windows[0]),
        before_seen.depth,
        percent(before_seen.busy),
        fixed.id,
        percent(fixed_seen.windows[0]),
        fixed_seen.depth,
        percent(fixed_seen.busy),
    ));
    if let Some(undisturbed) = result.part("undisturbed") {
        words.push_str(&format!(
            "A reader that nothing ever holds up keeps two windows in flight in spite of the plug ({}: {:.0} MB/s). \
             One pause between two calls is enough to end that: from then on windows go in pairs that straddle the end \
             of a call, and no later call puts it right. ",
            undisturbed.id,
            undisturbed.simulated(),
        ));
    }
    let (awake, awake_before) = (result.part("broken_awake"), result.part("before_awake"));
    if let (Some(awake), Some(awake_before)) = (awake, awake_before) {
        words.push_str(&format!(
            "The lost overlap alone leaves {} of the throughput ({} against {}); that the device dozes off in each gap \
             and must wake up (which counts as busy) makes it {}.",
            percent(result.ratio(awake, awake_before).value),
            awake.id,
            awake_before.id,
            percent(result.ratio(broken, before).value),
        ));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::claims::tests::{checked, compare, result};
    use crate::incident::{Entry, How, IncidentError, run_entry};

    #[test]
    fn slow_downs_lie_together_or_apart() {
        let rows: [(&str, &[f64]); 4] = [("new", &[256.0]), ("a", &[50.0]), ("b", &[51.0]), ("c", &[60.0])];
        let mut result = result("read_mb_s", &rows);
        let checks: Checks = &[("c", any_scheduler)];
        compare(&mut result, &[("a", "new"), ("b", "new")]);
        assert!(checked(&result, "kind='bound'", checks).held);
        compare(&mut result, &[("a", "new"), ("c", "new")]);
        assert!(!checked(&result, "kind='bound'", checks).held);
        compare(&mut result, &[("a", "new")]);
        assert!(!checked(&result, "kind='bound'", checks).held);
    }

    #[test]
    fn gaps_and_continuous_work_are_told_apart() {
        let gaps = DeviceView { windows: [0.01, 0.99], depth: 1, pause_ms: 0.39, busy: 0.73 };
        let continuous = DeviceView { windows: [0.99, 0.01], depth: 2, pause_ms: 0.02, busy: 0.98 };
        let neither = [
            DeviceView { windows: [0.06, 0.94], ..gaps },
            DeviceView { depth: 2, ..gaps },
            // A device that wakes up slowly is busy most of the time: its pauses count, not their share.
            DeviceView { pause_ms: 0.02, busy: 0.99, ..gaps },
            DeviceView { windows: [0.94, 0.06], ..continuous },
            DeviceView { busy: 0.97, ..continuous },
            DeviceView { depth: 1, ..continuous },
            DeviceView::default(),
        ];
        assert!(gaps.has_gaps() && !gaps.is_continuous());
        assert!(continuous.is_continuous() && !continuous.has_gaps());
        assert!(DeviceView { busy: 0.95, ..gaps }.has_gaps());
        for seen in neither {
            assert!(!seen.has_gaps() && !seen.is_continuous(), "{seen:?}");
        }
        assert_eq!(DeviceView::of(std::iter::empty()), DeviceView::default());
    }

    const INCIDENT: &str = r#"
id = "a"
title = "t"
date = "d"
[[claim]]
id = "overlap-only"
kind = "bound"
of = "slow"
to = "quick"
min = 0.60
max = 0.82
[[claim]]
id = "gaps"
kind = "mechanism"
"#;

    const SCENARIO: &str = r#"
incident = "a"
rule = "r"
command = "run dd if=/dev/sda bs=1M count=192 pause_us=1000 pause_calls=8"
metric = "read_mb_s"
sequences = 1
unexplained = ""
assumption = []
[why]
broken = "old"
broken_awake = "old"
before = "new"
before_awake = "new"
fixed = "new"
[variants]
old = "linux-2.6.39,machine=laptop-2011"
new = "linux-2.6.39+no-outer-plug,machine=laptop-2011"
[reports.default]
disk = "ssd-sata-2011"
[[run]]
id = "{variant}"
variant = "{variant}"
each = { variant = ["old", "new"] }
"#;

    #[test]
    fn the_plug_is_seen_where_it_is_held_and_only_there() -> Result<(), IncidentError> {
        let held = |scenario: &str| -> Result<(Vec<bool>, String), IncidentError> {
            let entry = Entry { id: "a", file: INCIDENT, scenario: None, checks: CHECKS, why: Some(why) };
            let result = run_entry(&entry, scenario, How { threads: 1, ..How::default() }, &|_, _| {})?;
            Ok((result.claims.iter().map(|claim| claim.held).collect(), result.why))
        };
        let (claims, why) = held(SCENARIO)?;
        assert_eq!(claims, [true, true]);
        for part in ["In row old", "128 KiB", "256 KiB", "(old against new)"] {
            assert!(why.contains(part), "no `{part}` in {why}");
        }
        // Without the plug on either side, with it on both, with small calls, with a reader that is never held up,
        // without a row to look at.
        for (from, to) in [
            ("old = \"linux-2.6.39,", "old = \"linux-2.6.38,"),
            ("2.6.39+no-outer-plug", "2.6.39"),
            ("bs=1M count=192", "bs=128k count=1536"),
            ("pause_us=1000", "pause_us=0"),
            ("broken_awake = \"old\"\n", ""),
        ] {
            assert!(SCENARIO.contains(from), "{from}");
            assert_eq!(held(&SCENARIO.replacen(from, to, 1))?.0, [false, false], "{to}");
        }
        Ok(())
    }
}

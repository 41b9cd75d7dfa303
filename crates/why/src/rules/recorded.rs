//! Circumstances of recordings for rules: settings, counters, other writers.

use crate::Side;
use crate::delta::{Contrast, Delta};

/// Settings of this kind that differ: name, values of the fast and the slow side.
pub(super) fn setting(delta: &Delta<'_>, picks: impl Fn(&str) -> bool) -> Vec<(String, [String; 2])> {
    match (delta.fast.settings.first(), delta.slow.settings.first()) {
        (Some(fast), Some(slow)) => fast.differences(slow).into_iter().filter(|(name, _)| picks(name)).collect(),
        _ => Vec::new(),
    }
}

/// The read-ahead limit of the disk with most requests, KiB.
pub(super) fn limit_of_readahead(side: &Side) -> Option<u64> {
    let of = side.settings.first()?;
    let limits = of.values.iter().filter(|((_, key), _)| key == "read_ahead_kb");
    let disk = of.get("recording", "disk");
    let mut limits = limits.filter(|((name, _), _)| disk.is_none_or(|disk| disk == name));
    limits.next().and_then(|(_, value)| value.parse().ok())
}

/// Both sides are one recording of the same command line.
pub(super) fn typed_alike(delta: &Delta<'_>) -> bool {
    let words = |side: &Side| side.settings.first()?.get("command", "words").map(str::to_owned);
    let each_one = delta.fast.runs.len().max(delta.slow.runs.len()) <= 1;
    each_one && words(delta.fast).is_some() && words(delta.fast) == words(delta.slow)
}

/// A counter of each recording.
pub(super) fn counter(delta: &Delta<'_>, key: &str) -> Contrast {
    let mean = |side: &Side| {
        let all: Vec<f64> = side.settings.iter().map(|of| of.counters.get(key).copied().unwrap_or(0) as f64).collect();
        all.iter().sum::<f64>() / all.len().max(1) as f64
    };
    Contrast::of_means(mean(delta.fast), mean(delta.slow))
}

/// CPUs that tasks outside the workload kept busy.
pub(super) fn busy_cpus(delta: &Delta<'_>) -> Contrast {
    let others = counter(delta, "others_cpu_ns");
    let elapsed = delta.of(|d| d.elapsed.0 as f64);
    let of = |others: f64, elapsed: f64| others / elapsed.max(1.0);
    Contrast::of_means(of(others.fast, elapsed.fast), of(others.slow, elapsed.slow))
}

/// A time for an operation as the headline gives times.
pub(super) fn scaled(delta: &Delta<'_>, of: Contrast) -> Contrast {
    Contrast {
        fast: of.fast * delta.scale(),
        slow: of.slow * delta.scale(),
        error: of.error.map(|e| e * delta.scale()),
        apart: of.apart,
    }
}

#[cfg(test)]
mod tests {
    use super::typed_alike;
    use crate::digest::Digest;
    use crate::{Delta, Side};

    #[test]
    fn single_recordings_of_equal_words_are_typed_alike() {
        for (runs, words, alike) in [
            ([1, 1], ["cat a", "cat a"], true),
            ([1, 1], ["cat a", "cat b"], false),
            ([1, 1], ["", ""], false),
            ([2, 1], ["cat a", "cat a"], false),
            ([1, 2], ["cat a", "cat a"], false),
        ] {
            let side = |nr: usize| {
                let mut side = Side { runs: vec![Digest::default(); runs[nr]], ..Side::default() };
                side.settings.resize_with(runs[nr], Default::default);
                for of in side.settings.iter_mut().filter(|_| !words[nr].is_empty()) {
                    of.values.insert(("command".into(), "words".into()), words[nr].into());
                }
                side
            };
            let (fast, slow) = (side(0), side(1));
            assert_eq!(typed_alike(&Delta::of_roles(&fast, &slow, false)), alike, "{runs:?} of {words:?}");
        }
    }
}

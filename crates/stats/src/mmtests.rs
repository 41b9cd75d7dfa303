//! Statistics of samples, as mmtests defines them.
//!
//! The definitions were checked by running mmtests' own module on constructed data. A statistic that does not exist
//! for some samples is NaN, never a made-up number: a harmonic mean with a value that is not positive, a deviation of
//! one sample, anything of no samples. Only the coefficient of variation is 0 there, as mmtests prints it.

use super::Better;

/// A statistic by its name in mmtests.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// Arithmetic mean.
    Amean,
    /// Harmonic mean.
    Hmean,
    /// Geometric mean.
    Gmean,
    /// The arithmetic mean under the name monitors give it.
    Mean,
    /// Deviation around the arithmetic mean.
    Stddev,
    /// Deviation around the harmonic mean.
    HStddev,
    /// Deviation in percent of the mean.
    CoeffVar,
    /// Smallest.
    Min,
    /// Largest.
    Max,
    /// Arithmetic mean of this best percentage.
    BAmean(u32),
    /// Harmonic mean of this best percentage.
    BHmean(u32),
    /// The sample below which this percentage of the best-first list lies.
    Pctile(u32),
}

/// Every statistic: its name (with a percentage N where it takes one), and what it is.
pub const STATISTICS: &[(&str, &str)] = &[
    ("Amean", "arithmetic mean"),
    ("Hmean", "harmonic mean, for rates"),
    ("Gmean", "geometric mean"),
    ("Mean", "arithmetic mean under the name that monitors give it"),
    ("Stddev", "deviation of a sample around the arithmetic mean"),
    ("HStddev", "deviation around the harmonic mean"),
    ("CoeffVar", "deviation in percent of the mean"),
    ("Min", "smallest"),
    ("Max", "largest"),
    ("BAmean-N", "arithmetic mean of the best N percent"),
    ("BHmean-N", "harmonic mean of the best N percent"),
    ("Pctile-N", "sample below which N percent of the best-first list lie"),
];

impl Statistic {
    /// Reads a name, for example `Amean` or `BAmean-95`.
    pub fn parse(name: &str) -> Option<Statistic> {
        let plain = match name {
            "Amean" => Some(Statistic::Amean),
            "Hmean" => Some(Statistic::Hmean),
            "Gmean" => Some(Statistic::Gmean),
            // A single figure is the mean of itself.
            "Mean" | "total" => Some(Statistic::Mean),
            "Stddev" => Some(Statistic::Stddev),
            "HStddev" => Some(Statistic::HStddev),
            "CoeffVar" => Some(Statistic::CoeffVar),
            "Min" => Some(Statistic::Min),
            "Max" => Some(Statistic::Max),
            _ => None,
        };
        plain.or_else(|| {
            let (kind, percent) = name.split_once(['-', '.'])?;
            let percent = percent.parse().ok().filter(|percent| (1..=100).contains(percent))?;
            match kind {
                "BAmean" => Some(Statistic::BAmean(percent)),
                "BHmean" => Some(Statistic::BHmean(percent)),
                "Pctile" => Some(Statistic::Pctile(percent)),
                _ => None,
            }
        })
    }

    /// Its name in a table.
    pub fn name(self) -> String {
        match self {
            Statistic::Amean => "Amean".to_owned(),
            Statistic::Hmean => "Hmean".to_owned(),
            Statistic::Gmean => "Gmean".to_owned(),
            Statistic::Mean => "Mean".to_owned(),
            Statistic::Stddev => "Stddev".to_owned(),
            Statistic::HStddev => "HStddev".to_owned(),
            Statistic::CoeffVar => "CoeffVar".to_owned(),
            Statistic::Min => "Min".to_owned(),
            Statistic::Max => "Max".to_owned(),
            Statistic::BAmean(percent) => format!("BAmean-{percent}"),
            Statistic::BHmean(percent) => format!("BHmean-{percent}"),
            Statistic::Pctile(percent) => format!("Pctile-{percent}"),
        }
    }

    /// Its value. Which samples are the best ones depends on the direction.
    pub fn of(self, samples: &[f64], better: Better) -> f64 {
        match self {
            Statistic::Amean | Statistic::Mean => amean(samples),
            Statistic::Hmean => hmean(samples),
            Statistic::Gmean => gmean(samples),
            Statistic::Stddev => stddev(samples),
            Statistic::HStddev => hstddev(samples),
            Statistic::CoeffVar => coeff_var(samples),
            Statistic::Min => min(samples),
            Statistic::Max => max(samples),
            Statistic::BAmean(percent) => amean(best(&best_first(samples, better), percent)),
            Statistic::BHmean(percent) => hmean(best(&best_first(samples, better), percent)),
            Statistic::Pctile(percent) => pctile(samples, percent, better),
        }
    }

    /// Which direction of the statistic is better when `better` is the direction of the samples: spread is bad
    /// everywhere.
    pub fn better(self, better: Better) -> Better {
        match self {
            Statistic::Stddev | Statistic::HStddev | Statistic::CoeffVar => Better::Lower,
            _ => better,
        }
    }
}

impl Better {
    /// The mean that suits: arithmetic for times, harmonic for rates.
    pub fn mean(self) -> Statistic {
        match self {
            Better::Lower => Statistic::Amean,
            Better::Higher => Statistic::Hmean,
        }
    }
}

/// Arithmetic mean.
pub fn amean(samples: &[f64]) -> f64 {
    if samples.is_empty() { f64::NAN } else { samples.iter().sum::<f64>() / samples.len() as f64 }
}

/// Harmonic mean; NaN if a sample is not positive.
pub fn hmean(samples: &[f64]) -> f64 {
    if samples.is_empty() || samples.iter().any(|x| !is_positive(*x)) {
        return f64::NAN;
    }
    samples.len() as f64 / samples.iter().map(|x| 1.0 / x).sum::<f64>()
}

/// Geometric mean; NaN if a sample is negative. By logarithms, so that many samples do not overflow the product.
pub fn gmean(samples: &[f64]) -> f64 {
    amean(&samples.iter().map(|x| x.ln()).collect::<Vec<f64>>()).exp()
}

/// Deviation around the arithmetic mean, of a sample (n - 1); NaN of fewer than two.
pub fn stddev(samples: &[f64]) -> f64 {
    if samples.len() < 2 {
        return f64::NAN;
    }
    let mean = amean(samples);
    let squares: f64 = samples.iter().map(|x| (x - mean).powi(2)).sum();
    (squares / (samples.len() - 1) as f64).sqrt()
}

/// Deviation around the harmonic mean; NaN where that mean does not exist.
pub fn hstddev(samples: &[f64]) -> f64 {
    let mean = hmean(samples);
    let squares: f64 = samples.iter().map(|x| (1.0 / x - 1.0 / mean).powi(2)).sum();
    (mean.powi(4) * squares / samples.len() as f64).sqrt()
}

/// Deviation in percent of the mean; 0 where it is not defined.
pub fn coeff_var(samples: &[f64]) -> f64 {
    let percent = 100.0 * stddev(samples) / amean(samples);
    if percent.is_finite() { percent } else { 0.0 }
}

/// Smallest sample.
pub fn min(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(f64::NAN, f64::min)
}

/// Largest sample.
pub fn max(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(f64::NAN, f64::max)
}

/// The sample at a percentile of the best-first list: for rates, high percentiles are the worst samples.
pub fn pctile(samples: &[f64], percent: u32, better: Better) -> f64 {
    best(&best_first(samples, better), percent).last().copied().unwrap_or(f64::NAN)
}

/// How much better the candidate is than the base, in percent of the base.
///
/// Positive is better whatever the direction. Edge values are those of mmtests, which prints a rate that fell to
/// nothing as no change ([`is_total_loss`] detects it).
pub fn gain_pct(base: f64, candidate: f64, better: Better) -> f64 {
    match better {
        _ if base == candidate => 0.0,
        Better::Lower if candidate == 0.0 => 100.0,
        Better::Lower if base == 0.0 => -99.0,
        Better::Lower => 100.0 - 100.0 * candidate / base,
        Better::Higher if base == 0.0 => 100.0,
        Better::Higher if candidate == 0.0 => 0.0,
        Better::Higher => 100.0 * candidate / base - 100.0,
    }
}

/// Whether everything was lost, which [`gain_pct`] gives as 0 like mmtests does.
pub fn is_total_loss(base: f64, candidate: f64, better: Better) -> bool {
    better == Better::Higher && candidate == 0.0 && base != 0.0
}

fn is_positive(value: f64) -> bool {
    value > 0.0
}

fn best_first(samples: &[f64], better: Better) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    if better == Better::Higher {
        sorted.reverse();
    }
    sorted
}

/// The first `percent` of the list, rounded down, but one at least; nothing of nothing.
fn best(sorted: &[f64], percent: u32) -> &[f64] {
    let n = (sorted.len() * percent as usize / 100).max(1).min(sorted.len());
    &sorted[..n]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_statistic_can_be_asked_for() {
        for (name, _) in STATISTICS {
            let name = name.replace("-N", "-95");
            assert_eq!(Statistic::parse(&name).map(Statistic::name).as_deref(), Some(name.as_str()));
        }
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    const SAMPLES: [f64; 5] = [5.1, 5.2, 5.0, 5.4, 9.9];

    #[test]
    fn the_values_that_mmtests_gives() {
        let table = [
            (Statistic::Amean, 6.12),
            (Statistic::Hmean, 5.717_021),
            (Statistic::Gmean, 5.889_989),
            (Statistic::Stddev, 2.118_254),
            (Statistic::CoeffVar, 34.611_993),
            (Statistic::HStddev, 1.218_303),
            (Statistic::Min, 5.0),
            (Statistic::Max, 9.9),
        ];
        for (statistic, expected) in table {
            let value = statistic.of(&SAMPLES, Better::Lower);
            assert!(near(value, expected), "{}: {value}", statistic.name());
        }
    }

    #[test]
    fn the_best_are_counted_from_the_better_end() {
        use Better::{Higher, Lower};
        // int(5 * 95 / 100) = 4 of five samples; of 10 percent there is one at least.
        let table = [
            (Statistic::BAmean(95), Lower, (5.0 + 5.1 + 5.2 + 5.4) / 4.0),
            (Statistic::BAmean(95), Higher, (9.9 + 5.4 + 5.2 + 5.1) / 4.0),
            (Statistic::BAmean(10), Lower, 5.0),
            (Statistic::BAmean(100), Higher, 6.12),
            (Statistic::BHmean(50), Lower, 2.0 / (1.0 / 5.0 + 1.0 / 5.1)),
            (Statistic::Pctile(95), Lower, 5.4),
            (Statistic::Pctile(95), Higher, 5.1),
            (Statistic::Pctile(1), Higher, 9.9),
            (Statistic::Pctile(100), Lower, 9.9),
        ];
        for (statistic, better, expected) in table {
            let value = statistic.of(&SAMPLES, better);
            assert!(near(value, expected), "{} {better:?}: {value}", statistic.name());
        }
    }

    #[test]
    fn what_does_not_exist_is_nan() {
        for (what, value) in [
            ("mean of nothing", amean(&[])),
            ("harmonic mean with a zero", hmean(&[1.0, 0.0])),
            ("harmonic mean with a negative", hmean(&[1.0, -1.0])),
            ("its deviation", hstddev(&[1.0, 0.0])),
            ("geometric mean with a negative", gmean(&[1.0, -1.0])),
            ("deviation of one", stddev(&[1.0])),
            ("least of nothing", min(&[])),
            ("best of nothing", Statistic::BAmean(95).of(&[], Better::Lower)),
            ("percentile of nothing", pctile(&[], 50, Better::Lower)),
        ] {
            assert!(value.is_nan(), "{what}: {value}");
        }
        assert_eq!(coeff_var(&[1.0]), 0.0);
        assert_eq!(coeff_var(&[0.0, 0.0]), 0.0);
        assert_eq!(gmean(&[0.0, 4.0]), 0.0);
    }

    #[test]
    fn positive_percent_is_better_in_either_direction() {
        use Better::{Higher, Lower};
        for (base, new, better, expected) in [
            (6.91, 7.10, Lower, -2.75),
            (3000.54, 2895.28, Higher, -3.51),
            (7.51, 5.54, Lower, 26.23),
            (2.0, 2.0, Lower, 0.0),
            (0.0, 0.0, Higher, 0.0),
            (2.0, 0.0, Lower, 100.0),
            (0.0, 2.0, Lower, -99.0),
            (0.0, 2.0, Higher, 100.0),
            (2.0, 0.0, Higher, 0.0),
        ] {
            let percent = gain_pct(base, new, better);
            assert!((percent - expected).abs() < 0.005, "{base} {new} {better:?}: {percent}");
        }
        assert!(is_total_loss(2.0, 0.0, Higher));
        assert!(!is_total_loss(2.0, 0.0, Lower) && !is_total_loss(0.0, 0.0, Higher));
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for statistic in [Statistic::Amean, Statistic::HStddev, Statistic::BAmean(95), Statistic::Pctile(1)] {
            assert_eq!(Statistic::parse(&statistic.name()), Some(statistic));
        }
        for name in ["", "Median", "Pctile-0", "Pctile-101", "BAmean-x"] {
            assert_eq!(Statistic::parse(name), None, "{name}");
        }
    }
}

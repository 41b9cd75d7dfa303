//! Figures of measured distributions that are numbers even where nothing was measured.

use iowhy_stack::histogram::Histogram;

/// The mean, 0 of nothing.
pub fn mean(histogram: &Histogram) -> f64 {
    if histogram.count() == 0 { 0.0 } else { histogram.sum() as f64 / histogram.count() as f64 }
}

/// The smallest value, 0 of nothing.
pub fn smallest(histogram: &Histogram) -> u64 {
    histogram.min().unwrap_or(0)
}

/// The largest value, 0 of nothing.
pub fn largest(histogram: &Histogram) -> u64 {
    histogram.max().unwrap_or(0)
}

/// The value at a percentile, 0 of nothing.
pub fn quantile(histogram: &Histogram, percentile: u64) -> u64 {
    histogram.quantile(percentile, 100).unwrap_or(0)
}

/// The number if it is finite, else 0: JSON has no other numbers.
pub fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}

/// `part / whole`, 0 if the whole is 0.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A hash as 16 hexadecimal digits: JSON readers that keep numbers as floats would round it.
pub fn hash(value: u64) -> String {
    format!("{value:016x}")
}

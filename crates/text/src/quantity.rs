//! Figures with units.

use crate::shown;

/// Units: as metrics have them, as they are shown, their factor, and their prefixes.
const UNITS: &[(&str, &str, f64, Prefixes)] = &[
    ("ns", "s", 1e-9, Prefixes::Small),
    ("us", "s", 1e-6, Prefixes::Small),
    ("ms", "s", 1e-3, Prefixes::Small),
    ("s", "s", 1.0, Prefixes::Small),
    ("sec", "s", 1.0, Prefixes::Small),
    ("sec/op", "s/op", 1.0, Prefixes::Small),
    ("B/s", "B/s", 1.0, Prefixes::Thousands),
    ("MB/s", "B/s", 1e6, Prefixes::Thousands),
    ("KiB/s", "B/s", 1024.0, Prefixes::Binary),
    ("MiB/s", "B/s", 1_048_576.0, Prefixes::Binary),
    ("1/s", "/s", 1.0, Prefixes::Thousands),
];

#[derive(Copy, Clone)]
enum Prefixes {
    Small,
    Thousands,
    Binary,
}

impl Prefixes {
    fn table(self) -> &'static [(f64, &'static str)] {
        match self {
            Prefixes::Small => &[(1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n")],
            Prefixes::Thousands => &[(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")],
            Prefixes::Binary => {
                &[(1_099_511_627_776.0, "Ti"), (1_073_741_824.0, "Gi"), (1_048_576.0, "Mi"), (1024.0, "Ki"), (1.0, "")]
            }
        }
    }
}

/// A figure with its unit, scaled so that one to four digits stand before the point: `1.9 GB/s`.
pub fn quantity(value: f64, unit: &str, digits: usize) -> String {
    if value.is_nan() {
        return "none".to_owned();
    }
    let Some((_, shown_unit, one, prefixes)) = UNITS.iter().find(|(known, ..)| *known == unit) else {
        // Units come from files, too: blanks in any script are not a unit.
        let unit = shown(unit.trim(), 12);
        return if unit.is_empty() {
            significant(value, digits)
        } else {
            format!("{} {unit}", significant(value, digits))
        };
    };
    let value = value * one;
    let table = prefixes.table();
    let (factor, prefix) = match table.iter().find(|(factor, _)| value.abs() >= *factor) {
        Some(found) => *found,
        // Zero has no prefix; values smaller than all of them take the last.
        None if value == 0.0 => (1.0, ""),
        None => table[table.len() - 1],
    };
    format!("{} {prefix}{shown_unit}", significant(value / factor, digits))
}

/// `digits` significant digits, without exponent as long as that is readable.
fn significant(value: f64, digits: usize) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let magnitude = value.abs().log10().floor();
    if !(-5.0..12.0).contains(&magnitude) {
        return format!("{value:.*e}", digits - 1);
    }
    let behind = (digits as f64 - 1.0 - magnitude).max(0.0) as usize;
    format!("{value:.behind$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_prefixes_and_few_digits() {
        for (value, unit, expected) in [
            (1_234_567.0, "ns", "1.235 ms"),
            (0.5, "ns", "0.5000 ns"),
            (90.0, "s", "90.00 s"),
            (1_900.0, "MB/s", "1.900 GB/s"),
            (1_900.0, "MiB/s", "1.855 GiB/s"),
            (-1_500.0, "1/s", "-1.500 k/s"),
            (0.0, "s", "0 s"),
            (12_345.678, "", "12346"),
            (1e300, "", "1.000e300"),
            (f64::NAN, "s", "none"),
            (1e-7, "s/x", "1.000e-7 s/x"),
        ] {
            assert_eq!(quantity(value, unit, 4), expected);
        }
    }
}

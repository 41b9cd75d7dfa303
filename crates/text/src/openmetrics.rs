//! Figures as text for Prometheus and programs like it.
//!
//! Source: OpenMetrics 1.0 (RFC draft, "Text format"): the metadata of a family, its samples, `# EOF` at the end.

use std::fmt::Write;

/// A family of gauges.
#[derive(Clone, Debug, PartialEq)]
pub struct Gauge {
    /// `iowhy_finding_share_percent`; ends in the unit, if there is one.
    pub name: &'static str,
    /// `percent`, `ratio`, `seconds`, or nothing.
    pub unit: &'static str,
    pub help: &'static str,
    /// Labels and values; no labels twice.
    pub samples: Vec<(Vec<(&'static str, String)>, f64)>,
}

/// The families with samples.
pub fn text(families: &[Gauge]) -> String {
    let mut text = String::new();
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        let Gauge { name, unit, help, samples } = family;
        let _ = writeln!(text, "# TYPE {name} gauge");
        if !unit.is_empty() {
            let _ = writeln!(text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(text, "# HELP {name} {}", escaped(help));
        for (labels, value) in samples {
            let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
            let _ = writeln!(text, "{name}{{{}}} {}", labels.join(","), number(*value));
        }
    }
    text.push_str("# EOF\n");
    text
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn number(value: f64) -> String {
    match value {
        _ if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_metadata_samples_and_an_end() {
        let sample = |label: &str, value| (vec![("a", label.to_owned()), ("b", "x".to_owned())], value);
        let numbers = [1.5, -0.1 - 0.2, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
        let mut samples: Vec<_> = numbers.iter().map(|value| sample(&value.to_string(), *value)).collect();
        samples.push(sample("a\"b\\c\nd", 0.0));
        let some = Gauge { name: "x_percent", unit: "percent", help: "Part of \"it\".", samples };
        let none = Gauge { name: "y", samples: Vec::new(), ..some.clone() };
        let expected = r##"# TYPE x_percent gauge
# UNIT x_percent percent
# HELP x_percent Part of \"it\".
x_percent{a="1.5",b="x"} 1.5
x_percent{a="-0.30000000000000004",b="x"} -0.30000000000000004
x_percent{a="inf",b="x"} +Inf
x_percent{a="-inf",b="x"} -Inf
x_percent{a="NaN",b="x"} NaN
x_percent{a="a\"b\\c\nd",b="x"} 0
# EOF
"##;
        assert_eq!(text(&[none.clone(), some, none]), expected);
        assert_eq!(text(&[]), "# EOF\n");
    }
}

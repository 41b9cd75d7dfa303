//! A profile for people, and as JSON (`iowhy.disk-fit/1`).

use std::fmt::Write;

use serde_json::{Value, json};

use super::{FIELDS, Field, Profile, of_field};

/// A number that JSON has, or none.
fn finite(value: f64) -> Value {
    if value.is_finite() { json!(value) } else { Value::Null }
}

/// Three figures are enough.
fn short(value: f64) -> String {
    match value.abs() {
        size if !size.is_finite() => "?".to_owned(),
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

impl Field {
    fn words(&self) -> String {
        let value = format!("{} {}", short(self.value), self.unit);
        match (self.known, self.low == self.high) {
            (true, true) => value.trim_end().to_owned(),
            (true, false) => format!("{value}  [{}, {}]", short(self.low), short(self.high)),
            (false, _) if self.low == 0.0 && self.high.is_infinite() => "unknown".to_owned(),
            (false, _) => format!("unknown: {} to {}, {value} assumed", short(self.low), short(self.high)),
        }
    }
}

impl Profile {
    /// A table of all fields with their bounds.
    pub fn text(&self, bold: fn(&str) -> String) -> String {
        let mut text = format!("{}\n", bold(&format!("profile of {}", self.name)));
        let rows = self.fields.iter().filter(|(name, _)| of_field(name).is_none());
        let numbers = FIELDS.iter().filter_map(|(name, ..)| self.fields.get_key_value(*name));
        for (name, field) in rows.chain(numbers) {
            let _ = writeln!(text, "  {name:<34} {}", field.words());
        }
        if let Some(held) = &self.held_back {
            let _ = writeln!(
                text,
                "half of it predicts the other: p50 {:.1} % off, p99 {:.1} %, throughput {:.1} %",
                held.p50_error_pct, held.p99_error_pct, held.throughput_error_pct
            );
        }
        text
    }

    /// The same for programs.
    pub fn json(&self) -> Value {
        let field = |field: &Field| {
            let Field { value, low, high, unit, known } = *field;
            json!({"value": finite(value), "low": finite(low), "high": finite(high), "unit": unit, "known": known})
        };
        let fields: serde_json::Map<String, Value> =
            self.fields.iter().map(|(name, of)| (name.clone(), field(of))).collect();
        let held = self.held_back.unwrap_or(super::HeldBack {
            p50_error_pct: f64::NAN,
            p99_error_pct: f64::NAN,
            throughput_error_pct: f64::NAN,
        });
        json!({
            "schema": "iowhy.disk-fit/1",
            "name": self.name,
            "fields": fields,
            "held_back": {
                "p50_error_pct": finite(held.p50_error_pct),
                "p99_error_pct": finite(held.p99_error_pct),
                "throughput_error_pct": finite(held.throughput_error_pct),
            },
        })
    }
}

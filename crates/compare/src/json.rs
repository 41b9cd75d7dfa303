//! A comparison as JSON: `iowhy.compare/1`, and `iowhy.check/1` for a gate.
//!
//! Values that are not finite are `null`: a median without values, an interval's end that the samples do not bound.

use serde_json::{Value, json};

use super::gate::{self, Gate};
use super::options::OptionShift;
use super::warning::Warning;
use super::{Calibration, Comparison, Row, Summary, TailShift};
use iowhy_stats::modes::Mode;

/// The document of a comparison.
pub fn compare(comparison: &Comparison) -> Value {
    json!({
        "schema": "iowhy.compare/1",
        "a": comparison.a,
        "b": comparison.b,
        "verdict": comparison.verdict.word(),
        "alpha": finite(comparison.settings.alpha),
        "margin_pct": finite(comparison.settings.margin_pct),
        "adjust": comparison.settings.adjust.word(),
        "draws": comparison.settings.draws,
        "seed": comparison.settings.seed,
        "metrics": comparison.rows.iter().map(row).collect::<Vec<_>>(),
        "warnings": warnings(&comparison.warnings),
        "job_options": job_options(&comparison.options),
        "latencies": tails(&comparison.latencies),
        "calibration": comparison.calibration.iter().map(calibration).collect::<Vec<_>>(),
    })
}

/// The document of a gate.
pub fn check(comparison: &Comparison, gate: &Gate) -> Value {
    let metrics = comparison.rows.iter().zip(&gate.outcomes).map(|(of, outcome)| {
        let mut value = row(of);
        let (near, far) = gate::worse_pct(of);
        value["outcome"] = json!(outcome.word());
        value["worse_low_pct"] = finite(near);
        value["worse_high_pct"] = finite(far);
        value
    });
    json!({
        "schema": "iowhy.check/1",
        "baseline": comparison.a,
        "candidate": comparison.b,
        "outcome": gate.outcome.word(),
        "verdict": comparison.verdict.word(),
        "max_regression_pct": gate.allowance_pct.map_or(Value::Null, finite),
        "rule": gate::RULE,
        "alpha": finite(comparison.settings.alpha),
        "margin_pct": finite(comparison.settings.margin_pct),
        "adjust": comparison.settings.adjust.word(),
        "draws": comparison.settings.draws,
        "seed": comparison.settings.seed,
        "metrics": metrics.collect::<Vec<_>>(),
        "warnings": warnings(&comparison.warnings),
        "job_options": job_options(&comparison.options),
        "latencies": tails(&comparison.latencies),
        "calibration": comparison.calibration.iter().map(calibration).collect::<Vec<_>>(),
    })
}

fn job_options(shifts: &[OptionShift]) -> Vec<Value> {
    shifts.iter().map(|shift| json!({ "name": shift.name, "a": shift.a, "b": shift.b })).collect()
}

fn finite(value: f64) -> Value {
    if value.is_finite() { json!(value) } else { Value::Null }
}

fn row(row: &Row) -> Value {
    let methods = row.methods.iter().map(|method| json!({ "name": method.name, "reference": method.reference }));
    let effects = row.effects.iter().map(|effect| (effect.name.to_owned(), finite(effect.value)));
    json!({
        "name": row.metric.name,
        "unit": row.metric.unit,
        "better": row.metric.better.word(),
        "a": side(&row.a),
        "b": side(&row.b),
        "change_pct": finite(row.change_pct),
        "ci_low_pct": finite(row.ci_pct.0),
        "ci_high_pct": finite(row.ci_pct.1),
        "p": finite(row.p),
        "p_adjusted": finite(row.p_adjusted),
        "verdict": row.verdict.word(),
        "because": row.because,
        "modes_a": modes(&row.a),
        "modes_b": modes(&row.b),
        "runs_needed": row.runs_needed,
        "detectable_pct": finite(row.detectable_pct),
        "tails": tails(&row.tails),
        "effects": effects.collect::<serde_json::Map<_, _>>(),
        "methods": methods.collect::<Vec<_>>(),
        "warnings": warnings(&row.warnings),
    })
}

fn tails(tails: &[TailShift]) -> Vec<Value> {
    let one = |tail: &TailShift| {
        json!({
            "quantile_pct": finite(tail.quantile_pct),
            "a": finite(tail.a),
            "b": finite(tail.b),
            "change_pct": finite(tail.change_pct),
            "ci_low_pct": finite(tail.ci_pct.0),
            "ci_high_pct": finite(tail.ci_pct.1),
        })
    };
    tails.iter().map(one).collect()
}

fn side(side: &Summary) -> Value {
    json!({
        "n": side.n,
        "median": finite(side.median),
        "median_low": finite(side.median_ci.0),
        "median_high": finite(side.median_ci.1),
        "mean": finite(side.mean),
        "cv": finite(side.cv_pct),
        "min": finite(side.range.0),
        "max": finite(side.range.1),
    })
}

fn modes(side: &Summary) -> Value {
    let mode = |mode: &Mode| {
        json!({
            "centre": finite(mode.centre),
            "mean": finite(mode.mean),
            "min": finite(mode.min),
            "max": finite(mode.max),
            "count": mode.count,
            "share_pct": finite(100.0 * mode.share),
        })
    };
    side.modes.iter().map(mode).collect()
}

fn warnings(list: &[Warning]) -> Value {
    let warning = |warning: &Warning| {
        let kind = warning.kind();
        json!({ "kind": kind.word, "text": warning.text(), "next": kind.next })
    };
    list.iter().map(warning).collect()
}

fn calibration(known: &Calibration) -> Value {
    json!({
        "job": known.job,
        "metric": known.metric,
        "design": known.design.word(),
        "runs": known.runs,
        "per_side": known.per_side,
        "comparisons": known.comparisons,
        "false_alarms": known.false_alarms,
        "false_alarm_low": finite(known.false_alarm_ci.0),
        "false_alarm_high": finite(known.false_alarm_ci.1),
        "detectable_pct": finite(known.detectable_pct),
    })
}

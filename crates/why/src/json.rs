//! An explanation as JSON (`iowhy.explain/1`).

use serde_json::{Value, json};

use super::certainty;
use super::matrix::{Matrix, Part, Row};
use super::{Advice, Basis, Counterfactual, Evidence, Explanation, Finding, LEVEL};
use iowhy_stats::figure::finite;

fn evidence(evidence: &Evidence) -> Value {
    json!({ "what": evidence.what, "a": finite(evidence.a), "b": finite(evidence.b), "unit": evidence.unit.word() })
}

/// An end of an interval; single runs have none.
fn end(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn counterfactual(of: &Counterfactual) -> Value {
    json!({
        "setting": of.setting,
        "side": of.side,
        "change_pct_before": finite(of.change_pct_before),
        "ci_before_low_pct": end(of.ci_before_pct.0),
        "ci_before_high_pct": end(of.ci_before_pct.1),
        "change_pct_after": finite(of.change_pct_after),
        "ci_low_pct": end(of.ci_pct.0),
        "ci_high_pct": end(of.ci_pct.1),
        "gone_pct": finite(of.gone_pct),
        "runs": of.runs,
        "outcome": of.outcome.word(),
        "figures_moved": of.figures_moved,
        "device_only": of.device_only,
    })
}

fn advice(of: &Advice) -> Value {
    json!({
        "set": of.set,
        "predicted_change_pct": finite(of.predicted_pct),
        "measured_change_pct": of.measured_pct.map(finite),
    })
}

fn finding(finding: &Finding, live: bool) -> Value {
    let rule = finding.rule;
    json!({
        "rule": rule.name,
        "layer": rule.layer,
        "claim": finding.claim,
        "confidence": finding.confidence,
        "certainty": certainty::of(finding.confidence).rate(live),
        "evidence": finding.evidence.iter().map(evidence).collect::<Vec<_>>(),
        "share_of_change_pct": finite(finding.share_pct),
        "why": rule.why,
        "change": rule.change,
        "refute": rule.refute,
        "since": rule.since,
        "counterfactual": finding.counterfactual.as_ref().map(counterfactual),
        "advice": finding.advice.as_ref().map(advice),
    })
}

/// Causes by layers.
pub fn matrix(of: &Matrix, basis: Basis) -> Value {
    let ns = |parts: &[Part]| parts.iter().map(|part| finite(part.ns)).collect::<Vec<_>>();
    let half = |parts: &[Part]| parts.iter().map(|part| part.half_ns.map(finite)).collect::<Vec<_>>();
    let row = |row: &Row| {
        json!({
            "name": row.name,
            "origin": row.origin.word(),
            "finding": row.finding,
            "ns": ns(&row.cells),
            "half_ns": half(&row.cells),
            "sum_ns": finite(row.sum.ns),
            "sum_half_ns": row.sum.half_ns.map(finite),
        })
    };
    json!({
        "layers": of.layers,
        "rows": of.rows.iter().map(row).collect::<Vec<_>>(),
        "ns": ns(&of.columns),
        "half_ns": half(&of.columns),
        "total_ns": finite(of.total.ns),
        "total_half_ns": of.total.half_ns.map(finite),
        "level": LEVEL,
        "note": of.note,
        "unit": basis.unit(),
    })
}

/// The object.
pub fn explain(explanation: &Explanation) -> Value {
    let layers: Vec<Value> = explanation
        .layers
        .iter()
        .map(|layer| {
            json!({
                "layer": layer.layer,
                "a": finite(layer.a),
                "b": finite(layer.b),
                "delta": finite(layer.delta()),
                "unit": explanation.basis.unit(),
            })
        })
        .collect();
    json!({
        "schema": "iowhy.explain/1",
        "a": explanation.a,
        "b": explanation.b,
        "runs_a": explanation.runs[0],
        "runs_b": explanation.runs[1],
        "a_ns": finite(explanation.time_ns[0]),
        "b_ns": finite(explanation.time_ns[1]),
        "change_pct": finite(explanation.change_pct),
        "ci_low_pct": end(explanation.ci_pct.0),
        "ci_high_pct": end(explanation.ci_pct.1),
        "ci_level": LEVEL,
        "verdict": explanation.verdict.word(),
        "because": explanation.because,
        "headline": json!({ "basis": explanation.basis.word(), "subject": explanation.basis.subject() }),
        "findings": explanation.findings.iter().map(|of| finding(of, explanation.live)).collect::<Vec<_>>(),
        "unexplained_pct": finite(explanation.unexplained_pct),
        "only_difference": explanation
            .only_difference
            .iter()
            .map(|(what, [a, b])| json!({ "what": what, "a": a, "b": b }))
            .collect::<Vec<_>>(),
        "cannot_ask": explanation
            .cannot_ask
            .iter()
            .map(|(rule, needs)| json!({
                "rule": rule,
                "needs": needs.iter().map(|need| need.name()).collect::<Vec<_>>(),
            }))
            .collect::<Vec<_>>(),
        "commands": explanation.commands.map(|command| command.map(|command| command.json())),
        "layers": layers,
        "comparison": explanation.comparison.as_ref().map(iowhy_compare::json::compare),
        "warnings": explanation.warnings,
    })
}

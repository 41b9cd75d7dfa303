//! An answer as JSON (`iowhy.tune/1`). Infinite ends of intervals are null.

use serde_json::{Value, json};

use super::{Origin, Tuned, shown};
use crate::why::json::agreement;

/// The object.
pub fn tune(tuned: &Tuned) -> Value {
    let origin = |of| match of {
        Origin::Twin => "twin",
        Origin::Guess => "guess",
        Origin::Rule => "rule",
        Origin::Untested => "untested",
    };
    json!({
        "schema": "iowhy.tune/1",
        "target": tuned.target,
        "disk": tuned.disk,
        "sentence": super::text::sentence(tuned),
        "twin": agreement(&tuned.agreement),
        "tried": tuned
            .tried
            .iter()
            .map(|of| json!({
                "setting": shown(&of.settings),
                "origin": origin(of.origin),
                "predicted_pct": of.predicted.map(|of| of.pct),
                "predicted_ci_pct": of.predicted.map(|of| of.ci_pct),
                "obtained_pct": of.obtained.pct,
                "ci_pct": of.obtained.ci_pct,
            }))
            .collect::<Vec<_>>(),
        "best": tuned.best.map(|best| shown(&tuned.tried[best].settings)),
        "undecided": tuned.undecided().map(|of| shown(&of.settings)),
        "keep": tuned
            .keep
            .iter()
            .map(|of| json!({ "what": of.what, "file": of.file, "text": of.text, "note": of.note }))
            .collect::<Vec<_>>(),
        "options": tuned
            .options
            .iter()
            .map(|of| json!({
                "setting": of.setting,
                "predicted_pct": of.predicted.pct,
                "predicted_ci_pct": of.predicted.ci_pct,
                "code": of.code,
            }))
            .collect::<Vec<_>>(),
        "refused": tuned
            .refused
            .iter()
            .map(|(setting, why)| json!({ "setting": setting, "why": why }))
            .collect::<Vec<_>>(),
        "runs": tuned.runs,
    })
}

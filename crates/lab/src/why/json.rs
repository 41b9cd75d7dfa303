//! An answer as JSON (`iowhy.why/1`).

use iowhy_stats::figure::finite;
use iowhy_why::certainty;
use serde_json::{Value, json};

use super::facts::{Device, Doer, Facts};
use super::{Agreement, Answer, Finding};

fn doer(of: &Doer) -> Value {
    json!({
        "name": of.name,
        "pid": of.pid,
        "calls": of.calls,
        "ns": of.ns,
        "read_bytes": of.bytes[0],
        "written_bytes": of.bytes[1],
        "pages": of.pages,
    })
}

fn device(of: &Device) -> Value {
    json!({
        "name": of.name,
        "busy_pct": finite(of.busy_pct),
        "throttled_pct": finite(of.throttled_pct),
        "asleep_pct": of.asleep_pct.map(finite),
        "depth": finite(of.depth),
        "reads": of.requests[0],
        "writes": of.requests[1],
        "read_bytes": of.bytes[0],
        "written_bytes": of.bytes[1],
        "service_ns": finite(of.service_ns),
        "others": of.others.iter().map(|(name, bios)| json!({ "name": name, "bios": bios })).collect::<Vec<_>>(),
    })
}

fn facts(of: &Facts) -> Value {
    let cache = &of.digest.cache;
    json!({
        "calls": of.calls,
        "what": of.what,
        "per_call_ns": finite(of.per_call_ns()),
        "layers": of
            .layers
            .iter()
            .map(|part| json!({ "layer": part.layer, "ns": finite(part.ns), "pct": finite(part.pct) }))
            .collect::<Vec<_>>(),
        "processes": of.processes.iter().map(doer).collect::<Vec<_>>(),
        "files": of.files.iter().map(doer).collect::<Vec<_>>(),
        "devices": of.devices.iter().map(device).collect::<Vec<_>>(),
        "modes": of
            .modes
            .iter()
            .map(|mode| json!({ "centre_ns": finite(mode.centre), "share": finite(mode.share) }))
            .collect::<Vec<_>>(),
        "pressure": of
            .pressure
            .iter()
            .map(|(what, pct)| json!({ "what": what, "pct": finite(*pct) }))
            .collect::<Vec<_>>(),
        "stacks": of
            .digest
            .stacks
            .list
            .iter()
            .map(|stack| {
                let pct = finite(of.digest.stacks.pct(stack));
                json!({ "frames": stack.frames, "ns": stack.ns, "count": stack.count, "pct": pct })
            })
            .collect::<Vec<_>>(),
        "waits_for": of.server.as_ref().map(|of| json!({ "comm": of.name, "pct": finite(of.pct) })),
        "onset_s": of.onset.map(|onset| finite(onset.at_s)),
        "cache": {
            "pages_added": cache.added,
            "pages_reclaimed": cache.reclaimed,
            "pages_dropped": cache.dropped,
            "pages_read_again": cache.again,
        },
    })
}

fn finding(of: &Finding) -> Value {
    json!({
        "rule": of.rule,
        "layer": of.layer,
        "claim": of.claim,
        "confidence": finite(of.confidence),
        "word": certainty::of(of.confidence).word,
        "certainty": certainty::of(of.confidence).rate_alone(),
        "cost_ns_per_call": finite(of.cost_ns_per_call),
        "saves_pct": finite(of.saves_pct),
        "saves_ci_pct": of.saves_ci_pct.map(finite),
        "setting": of.setting,
        "evidence": of
            .evidence
            .iter()
            .map(|(what, value, unit)| json!({ "what": what, "value": finite(*value), "unit": unit }))
            .collect::<Vec<_>>(),
        "refute": of.refute,
        "costs_others": of.costs_others,
        "predicted": of.predicted,
        "tried": of.tried.as_ref().map(|tried| json!({
            "saves_pct": finite(tried.saves_pct),
            "ci_pct": tried.ci_pct.map(finite),
            "blocks": tried.blocks,
        })),
    })
}

/// How well a twin reproduces its recording.
pub(crate) fn agreement(twin: &Agreement) -> Value {
    json!({
        "usable": twin.usable,
        "why_not": twin.why_not,
        "windows_pct": twin.windows_pct.map(finite),
        "pages_pct": twin.pages_pct.map(finite),
        "requests_pct": twin.requests_pct.map(finite),
        "time_pct": twin.time_pct.map(finite),
        "nearest": twin.nearest,
    })
}

/// The object.
pub fn why(answer: &Answer) -> Value {
    json!({
        "schema": "iowhy.why/1",
        "target": answer.target,
        "duration_s": answer.facts.length_ns as f64 / 1e9,
        "events": answer.events,
        "lost_events": answer.lost,
        "price": answer.price.map(|price| json!({
            "throughput_pct": finite(price.throughput_pct),
            "ns_per_event": finite(price.ns_per_event),
        })),
        "facts": facts(&answer.facts),
        "twin": agreement(&answer.agreement),
        "findings": answer.findings.iter().map(finding).collect::<Vec<_>>(),
        "options": answer.options.iter().map(finding).collect::<Vec<_>>(),
        "nothing_faster": answer.healthy(),
        "only_difference": answer
            .only_difference
            .iter()
            .map(|(what, value, usual)| json!({ "what": what, "value": value, "usual": usual }))
            .collect::<Vec<_>>(),
        "cannot_ask": answer
            .cannot_ask
            .iter()
            .map(|(rule, needs)| json!({
                "rule": rule,
                "needs": needs.iter().map(|need| need.name()).collect::<Vec<_>>(),
            }))
            .collect::<Vec<_>>(),
        "command": answer.facts.settings.command.map(|command| command.json()),
    })
}

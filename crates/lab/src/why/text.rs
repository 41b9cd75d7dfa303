//! An answer for people: a sentence, what costs how much and what to change, then where the time goes. 80 columns.

use std::fmt::Write;

use iowhy_compare::text::Style;
use iowhy_text::{count, picture, quantity, shown, wrap};
use iowhy_why::certainty;
use iowhy_why::rules;

use super::facts::{Device, Doer, Facts};
use super::{Answer, Finding};

/// Longest name of a file or target within a line.
const NAME: usize = 36;
/// Columns of a path at most, before it is cut to a name.
const LONGEST: usize = 4096;
/// Characters of a bar.
const BAR: usize = 40;
/// Processes, files and devices that are shown.
const SHOWN: usize = 5;
/// Stacks that are shown, and their innermost frames.
const STACKS: usize = 3;
const FRAMES: usize = 4;

fn time(ns: f64) -> String {
    quantity(ns / 1e9, "s", 3)
}

/// A paragraph in lines that fit, all of them indented.
pub(crate) fn paragraph(text: &mut String, indent: &str, content: &str) {
    for line in wrap(content, iowhy_text::width().saturating_sub(indent.len())) {
        let _ = writeln!(text, "{indent}{line}");
    }
}

/// The recording in a sentence.
pub fn sentence(answer: &Answer) -> String {
    let facts = &answer.facts;
    if facts.calls == 0 {
        return format!("Nothing was seen of {}: neither calls nor requests.", shown(&answer.target, NAME));
    }
    let who = facts.processes.first().map_or(answer.target.as_str(), |process| process.name.as_str());
    let disk = facts.devices.first().map_or("the device", |device| device.name.as_str());
    let calls = match facts.what {
        "read" => count(facts.calls, "read", "reads"),
        "write" => count(facts.calls, "write", "writes"),
        "sync" => count(facts.calls, "sync", "syncs"),
        _ => count(facts.calls, "request", "requests"),
    };
    let most = facts.layers.iter().max_by(|a, b| a.pct.total_cmp(&b.pct));
    let most = most.map_or(String::new(), |part| {
        let place = match part.layer {
            "device" => format!("waiting for {disk}"),
            "elevator" | "plug" => format!("in the queue of {disk} ({})", part.layer),
            "application" => "in the program itself".to_owned(),
            "pauses" => "asleep".to_owned(),
            "CPU" => "in the kernel's code".to_owned(),
            "CPU wait" => "waiting for a CPU".to_owned(),
            layer => format!("in {layer}"),
        };
        format!(", {:.0} % of it {place}", part.pct)
    });
    let whole = if facts.settings.command.is_some() { "took" } else { "waited for" };
    if facts.is_of_lookups() {
        return format!("{} took {}{most}.", shown(&answer.target, NAME), time(facts.whole_ns));
    }
    format!(
        "{calls} of {} {whole} {}: {} each{most}.",
        shown(who, NAME),
        time(facts.whole_ns),
        time(facts.per_call_ns())
    )
}

/// The thing that times are of, and its time, ns.
fn each(facts: &Facts) -> (&'static str, f64) {
    if facts.is_of_lookups() { ("run", facts.whole_ns) } else { (facts.what, facts.per_call_ns()) }
}

/// The answer as text; without the details if it is to be brief.
pub fn text(answer: &Answer, brief: bool, style: Style) -> String {
    let mut text = String::new();
    paragraph(&mut text, "", &sentence(answer));
    if let Some(reason) = answer.healthy() {
        text.push('\n');
        paragraph(&mut text, "", &format!("Nothing here makes it faster: {reason}."));
    } else if answer.findings.is_empty() && answer.facts.calls > 0 {
        text.push('\n');
        let lacks: Vec<&str> = answer.facts.lacks.iter().map(|need| need.name()).collect();
        let reason = match answer.only_difference.first().filter(|_| lacks.is_empty()) {
            Some((what, value, _)) => format!("{what} is {value}, and its cost is not known"),
            None => format!("the recording has no {}", lacks.join(", no ")),
        };
        paragraph(&mut text, "", &format!("Cannot tell why: {reason}."));
    }
    for (nr, finding) in answer.findings.iter().enumerate() {
        text.push('\n');
        one(&mut text, answer, nr, finding, style);
    }
    if !answer.options.is_empty() {
        let _ = writeln!(text, "\n{}", style.bold("Faster than usual, as the twin predicts"));
    }
    for of in answer.options.iter().take(SHOWN) {
        let [low, high] = of.saves_ci_pct;
        let costs = of.costs_others.as_ref().map_or(String::new(), |costs| format!("; costs others: {costs}"));
        let line = format!("{}: {:.0} % less time ({low:.0} to {high:.0} %){costs}", of.setting, of.saves_pct);
        paragraph(&mut text, "  ", &line);
    }
    if !brief {
        details(&mut text, answer, style);
    }
    text
}

fn one(text: &mut String, answer: &Answer, nr: usize, of: &Finding, style: Style) {
    let [low, high] = of.saves_ci_pct;
    let head = format!(
        "{}. {} ({}): costs {:.0} % of the time ({low:.0} to {high:.0} %), {}",
        nr + 1,
        of.rule,
        of.layer,
        of.saves_pct,
        certainty::of(of.confidence).word
    );
    let _ = writeln!(text, "{}", style.bold(&head));
    let (each, whole) = each(&answer.facts);
    let rest = (whole * (1.0 - of.saves_pct / 100.0)).max(0.0);
    let cost = time(whole - rest);
    paragraph(
        text,
        "   ",
        &format!("{cost} of the {} of a {each}, because {}; {} without it.", time(whole), of.claim, time(rest)),
    );
    let basis = if of.predicted { "the twin predicts this" } else { "read off the recording" };
    paragraph(text, "   ", &format!("Change: {} ({basis})", of.setting));
    if let Some(costs) = &of.costs_others {
        paragraph(text, "   ", &format!("Costs others: {costs}"));
    }
    if let Some(tried) = &of.tried {
        let [low, high] = tried.ci_pct;
        let blocks = count(tried.blocks.into(), "block", "blocks");
        let word = if tried.is_decided() { "Tried" } else { "Tried, undecided" };
        let saved = format!("{word}: saves {:.0} % ({low:.0} to {high:.0} %), {blocks}", tried.saves_pct);
        paragraph(text, "   ", &saved);
    }
    for (what, value, unit) in of.evidence.iter().take(SHOWN) {
        let value = match *unit {
            "ns" => time(*value),
            "share" => format!("{:.1} %", 100.0 * value),
            unit => quantity(*value, if unit == "count" || unit == "ratio" { "" } else { unit }, 3),
        };
        let _ = writeln!(text, "   {value:>9}  {what}");
    }
    let since = rules::find(of.rule).map_or("", |rule| rule.why);
    paragraph(text, "   ", &format!("Why: {since}"));
    paragraph(text, "   ", &format!("Refuted if: {}", of.refute));
}

fn details(text: &mut String, answer: &Answer, style: Style) {
    let facts = &answer.facts;
    if facts.calls == 0 {
        return;
    }
    let (what, whole) = each(facts);
    let _ = writeln!(text, "\n{}", style.bold(&format!("Where the time of a {what} goes")));
    for part in facts.layers.iter().filter(|part| part.pct >= 0.5) {
        let bar = picture::bar((0.0, part.pct), 100.0, BAR, '█');
        let ns = time(whole * part.pct / 100.0);
        let _ = writeln!(text, "  {:<18}{ns:>9} {:>4.0} %  {bar}", part.layer, part.pct);
    }
    if let Some(onset) = facts.onset {
        let [before, after] = [onset.before_ns, onset.after_ns].map(time);
        let what = facts.what;
        paragraph(
            text,
            "  ",
            &format!("Slower since {:.1} s: a {what} took {before} before, {after} after.", onset.at_s),
        );
    }
    if facts.modes.len() > 1 {
        let modes = facts.modes.iter().map(|mode| format!("{:.0} % about {}", 100.0 * mode.share, time(mode.centre)));
        paragraph(text, "  ", &format!("Modes: {}.", modes.collect::<Vec<_>>().join(", ")));
    }
    table(text, "Processes", &facts.processes, style);
    table(text, "Files", &facts.files, style);
    if !facts.devices.is_empty() {
        let _ = writeln!(text, "\n{}", style.bold("Devices"));
        facts.devices.iter().take(SHOWN).for_each(|of| device(text, of));
    }
    let waited = facts.pressure.iter().filter(|(_, pct)| *pct >= 0.5).map(|(what, pct)| format!("{what} {pct:.0} %"));
    let waited: Vec<String> = waited.collect();
    if !waited.is_empty() {
        paragraph(text, "  ", &format!("Pressure on the machine (PSI): {}.", waited.join("; ")));
    }
    let cache = &facts.digest.cache;
    if cache.added > 0 {
        let again = format!("{} read again", cache.again);
        let mut gone = format!("{} evicted, {} dropped", cache.reclaimed, cache.dropped);
        if facts.digest.foreign.dropped > 0 {
            let _ = write!(gone, ", {} dropped by others", facts.digest.foreign.dropped);
        }
        paragraph(text, "  ", &format!("Page cache: {} pages in, {again}, {gone}.", cache.added));
    }
    waits(text, facts, style);
    text.push('\n');
    for (what, value, usual) in answer.only_difference.iter().take(2 * SHOWN) {
        paragraph(text, "", &format!("Unusual: {what} is {}, usually {usual}", shown(value, NAME)));
    }
    let twin = &answer.agreement;
    let pct = |of: Option<f64>| of.map_or("-".to_owned(), |pct| format!("{pct:.0} %"));
    let agreement = match (&twin.why_not, twin.usable) {
        (_, true) => format!(
            "Twin: {} of the windows, {} of the pages, {} of the requests, time {}",
            pct(twin.windows_pct),
            pct(twin.pages_pct),
            pct(twin.requests_pct),
            pct(twin.time_pct)
        ),
        (Some(why), false) => format!("Twin: no predictions, {why}"),
        (None, false) => "Twin: no predictions".to_owned(),
    };
    paragraph(text, "", &agreement);
    if let Some(nearest) = &twin.nearest {
        paragraph(text, "", &format!("Model: {nearest}"));
    }
    let mut price = format!("{} events, {} lost", answer.events, answer.lost);
    if let Some(of) = answer.price {
        let _ = write!(
            price,
            "; recording took {:.1} % of the time ({:.0} ns an event)",
            of.throughput_pct, of.ns_per_event
        );
    }
    paragraph(text, "", &price);
    if !answer.cannot_ask.is_empty() {
        let rules: Vec<&str> = answer.cannot_ask.iter().map(|(rule, _)| *rule).collect();
        paragraph(text, "", &format!("Not asked, for want of records: {}", shown(&rules.join(", "), 4 * NAME)));
    }
}

/// The stacks that tasks wait with, as far as they were recorded.
fn waits(text: &mut String, facts: &Facts, style: Style) {
    let stacks = &facts.digest.stacks;
    if stacks.list.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{}", style.bold("Where tasks wait, by what has called them"));
    for of in stacks.list.iter().take(STACKS) {
        let inner = &of.frames[of.frames.len().saturating_sub(FRAMES)..];
        let inner: Vec<String> = inner.iter().map(|frame| shown(frame, NAME)).collect();
        let (pct, ns, times) = (stacks.pct(of), time(of.ns as f64), count(of.count, "wait", "waits"));
        paragraph(text, "  ", &format!("{pct:.0} %, {ns} in {times}: {}", inner.join(" > ")));
    }
}

/// A name in its column: the end tells files apart.
fn ending(name: &str) -> String {
    let whole = shown(name, LONGEST);
    match whole.chars().count().checked_sub(NAME) {
        None | Some(0) => whole,
        Some(over) => std::iter::once('…').chain(whole.chars().skip(over + 1)).collect(),
    }
}

fn table(text: &mut String, head: &str, doers: &[Doer], style: Style) {
    if doers.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{}", style.bold(head));
    for of in doers.iter().take(SHOWN) {
        let name = of.pid.map_or(of.name.clone(), |pid| format!("{} ({pid})", of.name));
        let name = ending(&name);
        let bytes = of.bytes.map(iowhy_text::size);
        let calls = count(of.calls, "call", "calls");
        let ns = time(of.ns as f64);
        let _ = writeln!(text, "  {name:<NAME$} {calls:>13} {ns:>8}  {} in, {} out", bytes[0], bytes[1]);
    }
}

fn device(text: &mut String, of: &Device) {
    let mut line = format!(
        "{}: busy {:.0} %, depth {:.1}, {} reads, {} writes, {} each",
        of.name,
        of.busy_pct,
        of.depth,
        of.requests[0],
        of.requests[1],
        time(of.service_ns)
    );
    if of.throttled_pct > 0.0 {
        let _ = write!(line, "; held back by a limit {:.0} % of the time", of.throttled_pct);
    }
    if let Some(asleep) = of.asleep_pct.filter(|pct| *pct > 0.0) {
        let _ = write!(line, "; asleep {asleep:.0} % of the time");
    }
    if !of.others.is_empty() {
        let names: Vec<String> = of.others.iter().take(3).map(|(name, bios)| format!("{name} ({bios} bios)")).collect();
        let _ = write!(line, "; also used by {}", names.join(", "));
    }
    paragraph(text, "  ", &line);
}

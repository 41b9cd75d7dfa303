//! An explanation for people: the event and its cause in a paragraph, then the figures, then where the time went:
//! layers, latencies, and both sides on a common clock. 80 columns.

use std::fmt::Write;

use iowhy_stack::event::RaKind;

use super::first::First;
use super::glance::{self, CallShape, Column, Glance, Lanes, Latency, Moment};
use super::words::{experiment, figure};
use iowhy_compare::Verdict;
use iowhy_compare::text::Style;
use iowhy_text::picture;
use iowhy_text::{count, wrap};
use iowhy_text::{quantity, shown};
use iowhy_why::certainty;
use iowhy_why::{Advice, Basis, Counterfactual, Evidence, Explanation, Finding, LayerDelta, Outcome, Unit, layers};

/// Longest label within a sentence.
const LABEL: usize = 40;
/// Characters of a bar.
const BAR: usize = 22;
/// Longest name of a file.
const FILE: usize = 30;
/// Differences of circumstances that are shown.
const DIFFERENCES: usize = 8;
/// Most sizes of windows and requests that are listed.
const SIZES: usize = 4;

fn indented(text: &mut String, first: &str, rest: &str, content: &str) {
    let width = iowhy_text::width().saturating_sub(first.chars().count().max(rest.chars().count())).max(20);
    for (nr, line) in wrap(content, width).iter().enumerate() {
        let _ = writeln!(text, "{}{line}", if nr == 0 { first } else { rest });
    }
}

/// The difference in a sentence.
pub fn difference(explanation: &Explanation) -> String {
    let (a, b) = (shown(&explanation.a, LABEL), shown(&explanation.b, LABEL));
    let [before, after] = explanation.time_ns.map(|ns| figure(ns, Unit::Ns));
    let runs = format!("{} and {} runs", explanation.runs[0], explanation.runs[1]);
    let subject = explanation.basis.subject();
    let times = format!("{subject} takes {before} in `{a}` and {after} in `{b}` ({runs})");
    let change = explanation.change_pct;
    match explanation.verdict {
        Verdict::Same if explanation.a == explanation.b => {
            format!("`{a}` has one mode: an operation takes {before} ({} runs).", explanation.runs[0])
        }
        Verdict::Same => format!("No difference to explain: {times}."),
        Verdict::Inconclusive if explanation.basis == Basis::Nothing => {
            format!("Cannot tell whether `{a}` or `{b}` is slower: {}.", explanation.because)
        }
        Verdict::Inconclusive => format!("Cannot tell: {times}; {}.", explanation.because),
        Verdict::Regression => format!("`{b}` is slower: {times}, {change:+.1} %."),
        Verdict::Improvement => format!("`{b}` is faster: {times}, {change:+.1} %."),
    }
}

/// Most lines of the first screen.
pub const SCREEN: usize = 24;
/// Columns of the names of its lines, with the blanks behind.
const NAMES: usize = 17;
/// Fewest layers on it.
const LEAST_LAYERS: usize = 3;

/// The first screen, and with `style.verbose` everything behind it, with pictures if there are any.
pub fn text(explanation: &Explanation, first: &First, pictures: Option<&Glance>, style: Style) -> String {
    let width = iowhy_text::width();
    let mut text = screen(explanation, first, width, style);
    if style.verbose {
        text.push_str(&behind(explanation, pictures, style));
    } else {
        let footer = "--verbose adds findings, latencies, calls, rules that were not asked.";
        let _ = writeln!(text, "\n{}", wrap(footer, width).swap_remove(0));
    }
    text
}

/// The sentence, a line each for cause, proof, assumptions, differences and what to do, and the layers of both sides;
/// [`SCREEN`] lines at most, with the footer.
fn screen(explanation: &Explanation, first: &First, width: usize, style: Style) -> String {
    let settled = matches!(explanation.verdict, Verdict::Regression | Verdict::Improvement);
    let title =
        if settled && !first.title.is_empty() { wrap(&shown(&first.title, 2 * width), width) } else { Vec::new() };
    let mut parts: Vec<(&str, Vec<String>)> = vec![("", wrap(&difference(explanation), width))];
    let room = width.saturating_sub(NAMES).max(20);
    parts.extend(first.lines.iter().map(|line| (line.name, wrap(&shown(&line.text, 600), room))));
    let steps = layers::steps(&explanation.layers, explanation.time_ns);
    // Blanks: before the lines, the layers, the footer; the layers have a head and a sum.
    let fixed = title.len() + 1 + if steps.is_empty() { 0 } else { 3 } + 2;
    let least = steps.len().min(LEAST_LAYERS);
    while fixed + least + parts.iter().map(|(_, lines)| lines.len()).sum::<usize>() > SCREEN {
        let longest = parts.iter_mut().max_by_key(|(_, lines)| lines.len()).filter(|of| of.1.len() > 1);
        let Some((name, longest)) = longest else { break };
        longest.pop();
        let room = if name.is_empty() { width } else { room };
        if let Some(last) = longest.last_mut() {
            *last = shown(&format!("{}…", last.trim_end_matches('…')), room);
        }
    }
    let used = fixed + parts.iter().map(|(_, lines)| lines.len()).sum::<usize>();
    let mut text = String::new();
    title.iter().for_each(|line| {
        let _ = writeln!(text, "{}", style.bold(line));
    });
    for (nr, (name, lines)) in parts.iter().enumerate() {
        for (row, line) in lines.iter().enumerate() {
            let head = match (nr, row) {
                (0, _) => String::new(),
                (_, 0) => format!("{}{}", style.bold(name), " ".repeat(NAMES.saturating_sub(name.len()))),
                _ => " ".repeat(NAMES),
            };
            let _ = writeln!(text, "{}", format!("{head}{line}").trim_end());
        }
        if nr == 0 && parts.len() > 1 {
            text.push('\n');
        }
    }
    if !steps.is_empty() {
        text.push_str(&two_bars(explanation, &steps, (width, SCREEN.saturating_sub(used).max(least)), style));
    }
    text
}

/// Layers of both sides, each as a bar, with the difference; the smallest differences are one row if there are more
/// than `most`.
fn two_bars(explanation: &Explanation, steps: &[layers::Step], (width, most): (usize, usize), style: Style) -> String {
    let mut text = String::new();
    let mut rows: Vec<LayerDelta> = steps.iter().map(|step| step.of).collect();
    if rows.len() > most {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by(|x, y| rows[*y].delta().abs().total_cmp(&rows[*x].delta().abs()));
        let (kept, left) = order.split_at(most.saturating_sub(1));
        let sum = |of: fn(&LayerDelta) -> f64| -> f64 { left.iter().map(|nr| of(&rows[*nr])).sum() };
        let others = LayerDelta { layer: "other layers", a: sum(|row| row.a), b: sum(|row| row.b) };
        rows = (0..rows.len()).filter(|nr| kept.contains(nr)).map(|nr| rows[nr]).chain([others]).collect();
    }
    let [a, b] = explanation.time_ns;
    let figures = width >= 64;
    let (name, number, change) = (18, if figures { 9 } else { 0 }, 11);
    let bar = (width.saturating_sub(name + 2 * number + change + 4) / 2).max(1);
    let largest = rows.iter().flat_map(|row| [row.a, row.b]).fold(0.0, f64::max);
    let drawn = |ns: f64| picture::bar((0.0, ns.max(0.0)), largest, bar, '█');
    let signed = |ns: f64| format!("{}{}", if ns < 0.0 { "-" } else { "+" }, figure(ns.abs(), Unit::Ns));
    let time = |ns: f64| if figures && ns != 0.0 { figure(ns, Unit::Ns) } else { String::new() };
    let line = |name_of: &str, [left, of_a, right, of_b, last]: [&str; 5]| {
        let line = format!("{name_of:<name$} {left:<bar$}{of_a:>number$} {right:<bar$}{of_b:>number$} {last:>change$}");
        line.trim_end().to_owned()
    };
    let head = line("layer", ["A", "", "B", "", "B - A"]);
    let _ = writeln!(text, "\n{}", style.bold(&head));
    for row in &rows {
        let row = line(row.layer, [&drawn(row.a), &time(row.a), &drawn(row.b), &time(row.b), &signed(row.delta())]);
        let _ = writeln!(text, "{row}");
    }
    let _ = writeln!(text, "{}", line("all", ["", &time(a), "", &time(b), &signed(b - a)]));
    text
}

/// Findings with their figures, the waterfall, latencies, both sides on a common clock, circumstances.
fn behind(explanation: &Explanation, pictures: Option<&Glance>, style: Style) -> String {
    let mut text = String::new();
    let paragraph = summary(explanation);
    if !paragraph.is_empty() {
        text.push('\n');
        indented(&mut text, "", "", &paragraph);
    }
    for (nr, finding) in explanation.findings.iter().enumerate() {
        text.push('\n');
        let head = format!(
            "{} ({}): {:.0} % of the difference, {}",
            finding.rule.name,
            finding.rule.layer,
            finding.share_pct,
            if finding.is_refuted() { "refuted" } else { certainty::of(finding.confidence).word }
        );
        for (line, words) in wrap(&head, iowhy_text::width() - 3).iter().enumerate() {
            let number = if line == 0 { format!("{}. ", nr + 1) } else { "   ".to_owned() };
            let _ = writeln!(text, "{}", style.bold(&format!("{number}{words}")));
        }
        one_finding(&mut text, explanation, finding);
    }
    text.push('\n');
    let _ = writeln!(text, "{}", style.bold("Where the time of an operation goes"));
    waterfall(&mut text, explanation);
    if let Some(latency) = pictures.and_then(|pictures| pictures.latency.as_ref()) {
        latencies(&mut text, latency, style);
    }
    match pictures.map(|pictures| &pictures.moment) {
        // There is nothing to look for.
        None => {}
        Some(_) if explanation.verdict == Verdict::Same => {}
        Some(Ok(moment)) => timeline(&mut text, moment, style),
        Some(Err(why)) => {
            text.push('\n');
            indented(&mut text, "", "", &shown(&format!("No timeline: {why}."), 400));
        }
    }
    circumstances(&mut text, explanation, style);
    if !explanation.warnings.is_empty() {
        text.push('\n');
        explanation.warnings.iter().for_each(|warning| indented(&mut text, "! ", "  ", &shown(warning, 400)));
    }
    text
}

/// Differences around the runs, and questions that could not be asked.
fn circumstances(text: &mut String, explanation: &Explanation, style: Style) {
    let differences = &explanation.only_difference;
    if !differences.is_empty() {
        text.push('\n');
        let head = "Differences in their circumstances (candidates, not causes)";
        let _ = writeln!(text, "{}", style.bold(head));
        for (what, [a, b]) in differences.iter().take(DIFFERENCES) {
            let line = format!("{what}: {} in A, {} in B", shown(a, LABEL), shown(b, LABEL));
            indented(text, "   ", "      ", &shown(&line, 400));
        }
        if differences.len() > DIFFERENCES {
            let _ = writeln!(text, "   and {} more (`--json`)", differences.len() - DIFFERENCES);
        }
    }
    if explanation.cannot_ask.is_empty() || explanation.verdict == Verdict::Same {
        return;
    }
    let mut needs: Vec<&str> = explanation.cannot_ask.iter().flat_map(|(_, needs)| needs).map(|n| n.name()).collect();
    needs.sort_unstable();
    needs.dedup();
    text.push('\n');
    let words = format!(
        "{} of the rules could not be asked: they need {}. `iowhy trace record -o OUT.parquet -- COMMAND` \
         records them.",
        explanation.cannot_ask.len(),
        needs.join(", ")
    );
    indented(text, "! ", "  ", &words);
}

/// The paragraph for the operator of the database; empty without a difference worth mentioning.
pub fn summary(explanation: &Explanation) -> String {
    if matches!(explanation.verdict, Verdict::Same | Verdict::Inconclusive) {
        return String::new();
    }
    let (refuted, stand): (Vec<&Finding>, Vec<&Finding>) = explanation.findings.iter().partition(|of| of.is_refuted());
    let mut paragraph = match stand.first() {
        None => {
            let largest = explanation.layers.iter().max_by(|x, y| x.delta().abs().total_cmp(&y.delta().abs()));
            let place = largest.map_or(String::new(), |layer| format!(" Most of it is in the layer {}.", layer.layer));
            format!("None of the rules explains this.{place}")
        }
        Some(first) => {
            let begin = if explanation.change_pct < 0.0 { "Missing:" } else { "Why:" };
            let then = match &first.counterfactual {
                Some(of) => experiment(of, explanation.change_pct),
                None => format!("To do: {}", first.rule.change),
            };
            let share = stand.iter().map(|of| of.share_pct).fold(0.0, f64::max);
            let unowned = if share < explanation.unexplained_pct {
                let pct = explanation.unexplained_pct;
                format!("{pct:.0} % of the difference is unexplained: no rule owns that time. Of the rest: ")
            } else {
                String::new()
            };
            format!("{unowned}{begin} {} {} {then}", first.rule.what, first.rule.why)
        }
    };
    let names = |of: &[&Finding]| of.iter().map(|finding| finding.rule.name).collect::<Vec<&str>>().join(", ");
    if stand.len() > 1 {
        let _ = write!(paragraph, " It is not alone: {} as well.", names(&stand[1..]));
    }
    if !refuted.is_empty() {
        let _ = write!(paragraph, " Refuted by experiment: {}.", names(&refuted));
    }
    paragraph
}

fn one_finding(text: &mut String, explanation: &Explanation, finding: &Finding) {
    indented(text, "   ", "   ", &finding.claim);
    if !finding.evidence.is_empty() {
        text.push('\n');
        let _ = writeln!(text, "   {:<45}{:>14}{:>16}", "", "A", "B");
        finding.evidence.iter().for_each(|of| line(text, of));
        text.push('\n');
    }
    if let Some(of) = &finding.counterfactual {
        indented(text, "   experiment   ", "                ", &details(of, explanation));
    }
    if let Some(of) = &finding.advice {
        indented(text, "   set          ", "                ", &advice(of));
    }
    indented(text, "   change       ", "                ", finding.rule.change);
    indented(text, "   refuted if   ", "                ", finding.rule.refute);
    indented(text, "   since        ", "                ", finding.rule.since);
}

fn line(text: &mut String, evidence: &Evidence) {
    let (a, b) = (figure(evidence.a, evidence.unit), figure(evidence.b, evidence.unit));
    let lines = wrap(&evidence.what, 44);
    for (nr, what) in lines.iter().enumerate() {
        if nr + 1 == lines.len() {
            let _ = writeln!(text, "   {what:<45}{a:>14}{b:>16}");
        } else {
            let _ = writeln!(text, "   {what}");
        }
    }
}

fn advice(of: &Advice) -> String {
    let measured = of.measured_pct.map_or(String::new(), |pct| format!(", measured {pct:+.1} %"));
    format!("{}: time for an operation on the slow side {:+.1} % by prediction{measured}", of.set, of.predicted_pct)
}

/// An experiment with all its figures.
fn details(of: &Counterfactual, explanation: &Explanation) -> String {
    let (a, b) = (shown(&explanation.a, LABEL), shown(&explanation.b, LABEL));
    let interval = |(low, high): (f64, f64)| match (low + high).is_finite() {
        true => format!("interval [{low:+.1}, {high:+.1}] % from {}", count(u64::from(of.runs), "run", "runs")),
        false => "no interval from single runs".to_owned(),
    };
    let title = of.title();
    if of.outcome == Outcome::NotReproduced {
        return format!(
            "{title}: made again, `{b}` differs from `{a}` by {:+.1} %, {}, where {:+.1} % were to be explained; so \
            the effect of {} remains unknown",
            of.change_pct_before,
            interval(of.ci_before_pct),
            explanation.change_pct,
            of.setting,
        );
    }
    let (side, other) = if of.side == explanation.b { (b, a) } else { (a, b) };
    let gone = match of.outcome {
        Outcome::Refuted => "nothing measurable of the difference is gone".to_owned(),
        Outcome::Undecided => "runs spread too much to see whether half of the difference is gone".to_owned(),
        Outcome::Partly if of.gone_pct > 100.0 => {
            format!("{:.0} % of the difference is gone, more than there was", of.gone_pct)
        }
        _ => format!("{:.0} % of the difference is gone", of.gone_pct),
    };
    let but = match of.outcome {
        Outcome::Partly if of.device_only => {
            "; but none of this finding's settings differs: the cause is another one of the device"
        }
        Outcome::Partly if of.figures_moved == Some(false) => {
            "; the setting helps, but the figures above did not move with it: the cause may be another"
        }
        _ => "",
    };
    format!(
        "{title}: `{side}` with {}: {:+.1} % instead of {:+.1} % against `{other}`, {}; {gone}{but}",
        of.setting,
        of.change_pct_after,
        of.change_pct_before,
        interval(of.ci_pct),
    )
}

/// Layers with their part of the difference, as steps from the time of A to that of B.
fn waterfall(text: &mut String, explanation: &Explanation) {
    let [a, b] = explanation.time_ns;
    let steps = layers::steps(&explanation.layers, [a, b]);
    let most = steps.iter().map(|step| step.from.max(step.to)).fold(a.max(b), f64::max);
    let bar = |from: f64, to: f64| picture::bar((from, to), most, BAR, if to < from { '░' } else { '█' });
    let signed = |ns: f64| format!("{}{}", if ns < 0.0 { "-" } else { "+" }, figure(ns.abs(), Unit::Ns));
    let mut row = |name: &str, [a, b, delta]: [&str; 3], bar: &str| {
        let _ = writeln!(text, "{}", format!("   {name:<18}{a:>10}{b:>11}{delta:>12}  {bar}").trim_end());
    };
    row("layer", ["A", "B", "B - A"], &format!("{} A", bar(0.0, a)));
    for step in steps {
        let of_a = if step.of.a == 0.0 { String::new() } else { figure(step.of.a, Unit::Ns) };
        let of_b = figure(step.of.b, Unit::Ns);
        row(step.of.layer, [&of_a, &of_b, &signed(step.of.delta())], &bar(step.from, step.to));
    }
    row("all", [&figure(a, Unit::Ns), &figure(b, Unit::Ns), &signed(b - a)], &format!("{} B", bar(0.0, b)));
    if explanation.unexplained_pct > 0.05 {
        let part = (b - a) * explanation.unexplained_pct / 100.0;
        let name = format!("unexplained {:.0} %", explanation.unexplained_pct);
        row(&name, ["", "", &signed(part)], &picture::bar((b - part, b), most, BAR, '▒'));
    }
}

/// A time with the precision of an eighth.
fn rough(ns: f64) -> String {
    quantity(ns / 1e9, "s", 2)
}

/// Latencies of both sides on a common scale, with their medians and their tails.
fn latencies(text: &mut String, of: &Latency, style: Style) {
    let [a, b] = of.calls;
    let head = format!("Latencies of the {}s: {a} in A, {b} in B", of.op);
    let _ = writeln!(text, "\n{}", style.bold(&head));
    let most = of.share.iter().flatten().copied().fold(0.0, f64::max);
    let mut marks = Vec::new();
    for side in 0..2 {
        let letter = ['A', 'B'][side];
        let [p50, p99] = [of.p50_ns[side], of.p99_ns[side]];
        let figures = match of.calls[side] {
            0 => "none".to_owned(),
            _ => format!("p50 {}  p99 {}", rough(p50), rough(p99)),
        };
        let bars = picture::counts(&of.share[side], most);
        let _ = writeln!(text, "   {letter}  {bars:<bins$}  {figures}", bins = glance::BINS);
        if of.calls[side] > 0 {
            marks.extend([(of.bin(p50), letter.to_ascii_lowercase()), (of.bin(p99), letter)]);
        }
    }
    let line = picture::marks(&marks);
    let several = if line.contains('*') { ", * several" } else { "" };
    let _ = writeln!(text, "      {line:<bins$}  a b p50, A B p99{several}", bins = glance::BINS);
    let _ = writeln!(text, "{}", format!("      {}", picture::axis(&of_latencies(of), glance::BINS)).trim_end());
}

/// Labels at bins of latencies: powers of ten, and between them if there are few.
fn of_latencies(of: &Latency) -> Vec<(usize, String)> {
    let (Some(first), Some(last)) = (of.from_ns.first(), of.from_ns.last()) else { return Vec::new() };
    let decades = (*last as f64 / (*first).max(1) as f64).log10();
    let between: &[u64] = if decades < 2.0 { &[1, 2, 5] } else { &[1] };
    let mut labels = Vec::new();
    for power in 0..19 {
        for step in between {
            let ns = step * 10u64.pow(power);
            if (first..=last).contains(&&ns) {
                labels.push((of.bin(ns as f64), format!("|{}", whole(ns as f64))));
            }
        }
    }
    if labels.is_empty() {
        labels.push((0, format!("|{}", rough(*first as f64))));
    }
    labels
}

/// A round time.
fn whole(ns: f64) -> String {
    let text = quantity(ns / 1e9, "s", 3);
    let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number} {unit}")
}

/// Draws a column in a lane.
type Draw = fn(&Column) -> char;

/// Both sides on a common clock.
fn timeline(text: &mut String, moment: &Moment, style: Style) {
    text.push('\n');
    let call = moment.call.as_ref();
    let (head, what) = match (&moment.differs, call) {
        (Ok(()), Some(call)) => (format!("Where they first differ: {}", asked(call)), String::new()),
        (Err((_, true)), Some(_)) => (
            "How they begin".to_owned(),
            "All calls get equal windows, bios and requests; only their duration differs.".to_owned(),
        ),
        (Err((alike, false)), Some(_)) => (
            "How they begin".to_owned(),
            format!(
                "The first {alike} calls get equal windows, bios and requests; only their duration differs, or a \
                 difference comes later (`iowhy report` looks at all of a run)."
            ),
        ),
        (_, None) => ("How they begin".to_owned(), String::new()),
    };
    for line in wrap(&head, iowhy_text::width()) {
        let _ = writeln!(text, "{}", style.bold(&line));
    }
    indented(text, "   ", "   ", &what);
    if moment.differs.is_ok() {
        for (letter, of) in ["A", "B"].iter().zip(&moment.sides) {
            indented(text, &format!("   {letter}  "), "      ", &served(of));
        }
    }
    let lanes: [(&str, Draw); 5] = [
        ("calls", |of| picture::calls(of.op.and_then(|op| op.chars().next()), of.begun, of.open)),
        ("windows", |of| picture::windows(of.window.map(letter_of), of.windows, of.found)),
        ("plug", |of| picture::load(of.plug)),
        ("elevator", |of| picture::load(of.elevator)),
        ("device", |of| picture::device(of.device, of.stalled)),
    ];
    let drawn: Vec<(&str, [String; 2])> = lanes
        .iter()
        .map(|(name, of)| (*name, [0, 1].map(|side: usize| moment.sides[side].columns.iter().map(of).collect())))
        // What neither side has is left out.
        .filter(|(_, sides): &(&str, [String; 2])| sides.iter().any(|line| !line.trim().is_empty()))
        .collect();
    for (side, letter) in ["A", "B"].iter().enumerate() {
        for (name, lines) in &drawn {
            let _ = writeln!(text, "{}", format!("   {letter}  {name:<9} {}", lines[side]).trim_end());
        }
    }
    let _ = writeln!(text, "{:16}{}", "", picture::axis(&of_time(moment.column_ns), glance::COLUMNS));
    indented(text, "   ", "   ", &legend(moment));
}

/// A call's request.
fn asked(call: &CallShape) -> String {
    let file = call.file.as_ref().map_or(String::new(), |file| format!(" of {}", shown(file, FILE)));
    match call.op {
        "sync" => format!("call {}, a sync{file}", call.number),
        op => format!("call {}, a {op} of {} at {}{file}", call.number, bytes(call.bytes), bytes(call.offset)),
    }
}

/// A size or a place, without digits that say nothing.
fn bytes(of: u64) -> String {
    match of {
        0 => "0".to_owned(),
        of if of.is_multiple_of(1 << 20) => format!("{} MiB", of >> 20),
        of if of < 10 << 20 && of.is_multiple_of(1024) => format!("{} KiB", of >> 10),
        of if of < 1024 => format!("{of} B"),
        of => figure(of as f64, Unit::Bytes),
    }
}

/// The I/O for a call.
fn served(of: &Lanes) -> String {
    let list = |name: &str, sizes: &glance::Sizes| {
        let one = |(size, count): &(u64, usize)| match count {
            1 => bytes(*size),
            count => format!("{count} x {}", bytes(*size)),
        };
        let told = sizes.iter().take(SIZES).map(one).collect::<Vec<_>>().join(", ");
        let more: usize = sizes.iter().skip(SIZES).map(|(_, count)| count).sum();
        match (sizes.is_empty(), more) {
            (true, _) => format!("no {name}"),
            (_, 0) => format!("{name} {told}"),
            _ => format!("{name} {told} and {more} more"),
        }
    };
    let took = of.took_ns.map_or_else(|| "not over".to_owned(), |ns| figure(ns as f64, Unit::Ns));
    format!("{took}: {}; {}", list("windows", &of.windows), list("requests", &of.requests))
}

/// The letter of a window.
fn letter_of(kind: RaKind) -> char {
    match kind {
        RaKind::Sync => 's',
        RaKind::Async => 'a',
        RaKind::Force => 'f',
        RaKind::Single => 'p',
        RaKind::Around | RaKind::Exec | RaKind::Huge => 'm',
    }
}

/// Labels of the clock: as many round times as there is room for.
fn of_time(column_ns: f64) -> Vec<(usize, String)> {
    let whole_ns = column_ns * glance::COLUMNS as f64;
    let power = 10f64.powf((whole_ns / 5.0).max(1.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|of| of * power).into_iter().find(|step| *step * 5.0 >= whole_ns);
    let step = step.unwrap_or(whole_ns.max(1.0));
    let label = |nr: u32| {
        let at = f64::from(nr) * step;
        (((at / column_ns) as usize), if nr == 0 { "|0".to_owned() } else { format!("|{}", whole(at)) })
    };
    (0..6).map(label).collect()
}

/// The legend of the characters in lanes.
fn legend(moment: &Moment) -> String {
    let columns = || moment.sides.iter().flat_map(|side| &side.columns);
    let mut parts = vec![format!("0: {} begins", if moment.call.is_some() { "the call" } else { "the run" })];
    if columns().any(|of| of.begun > 0) {
        let ops = ["read", "write", "sync"].into_iter().filter(|op| columns().any(|of| of.op == Some(op)));
        let ops: Vec<String> = ops.map(|op| format!("{} {op}", &op[..1])).collect();
        let several = if columns().any(|of| of.begun > 1) { " 2-9 that many, + more," } else { "" };
        parts.push(format!("calls: {} begins,{several} = in progress", ops.join(", ")));
    }
    let words = [('s', "sync"), ('a', "ahead"), ('f', "as asked"), ('p', "one page"), ('m', "of a fault")];
    let there = |letter: char| columns().any(|of| of.window.map(letter_of) == Some(letter));
    let mut windows: Vec<String> =
        words.iter().filter(|(letter, _)| there(*letter)).map(|(letter, word)| format!("{letter} {word}")).collect();
    if columns().any(|of| of.windows > 1) {
        windows.push("capital several".to_owned());
    }
    if columns().any(|of| of.found) {
        windows.push(". pages found".to_owned());
    }
    if !windows.is_empty() {
        parts.push(format!("windows: {}", windows.join(", ")));
    }
    if columns().any(|of| of.plug + of.elevator + of.device > 0.0) {
        let stalled = columns().any(|of| picture::device(0.0, of.stalled) != ' ');
        let stalled = if stalled { ", ! idle while requests wait" } else { "" };
        parts.push(format!("requests: {}{stalled}", picture::LOAD));
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::glance::{BINS, COLUMNS};
    use super::*;
    use iowhy_text::columns;

    use super::super::first::Line;

    const PLAIN: Style = Style { colour: false, verbose: false };

    fn explanation(label: &str, verdict: Verdict, time_ns: [f64; 2], parts: &[(f64, f64)]) -> Explanation {
        let names = ["application", "journal/writeback", "device"];
        let layer = |(nr, (a, b)): (usize, &(f64, f64))| LayerDelta { layer: names[nr % 3], a: *a, b: *b };
        Explanation {
            a: label.to_owned(),
            b: format!("{label}'"),
            runs: [1, 2],
            time_ns,
            change_pct: 12.5,
            ci_pct: (11.0, 14.0),
            verdict,
            because: "so".to_owned(),
            comparison: None,
            layers: parts.iter().enumerate().map(layer).collect(),
            findings: Vec::new(),
            unexplained_pct: 40.0,
            basis: super::Basis::Call,
            only_difference: vec![(label.to_owned(), [label.to_owned(), label.to_owned()])],
            cannot_ask: Vec::new(),
            commands: [None; 2],
            live: false,
            warnings: vec![label.to_owned()],
        }
    }

    fn lanes(columns: &[(u32, f64)]) -> Lanes {
        let column = |(begun, load): &(u32, f64)| Column {
            begun: *begun,
            op: (*begun > 0).then_some("read"),
            open: *load,
            windows: *begun,
            window: (*begun > 0).then_some(RaKind::Async),
            found: *load > 1.0,
            plug: *load,
            elevator: 0.0,
            device: load / 2.0,
            stalled: load / 9.0,
        };
        Lanes {
            took_ns: columns.first().map(|(begun, _)| u64::from(*begun) << 30),
            windows: columns.iter().map(|(begun, _)| (u64::from(*begun) << 12, 1)).collect(),
            requests: vec![(u64::MAX, usize::MAX / 2)],
            columns: columns.iter().map(column).collect(),
        }
    }

    fn latency(counts: &[f64], from: u64) -> Latency {
        Latency {
            op: "write",
            calls: [u64::MAX, u64::from(!counts.is_empty())],
            share: [counts.to_vec(), vec![0.0; counts.len()]],
            from_ns: (0..counts.len() as u64).map(|nr| (from + 1) * (nr + 1)).collect(),
            p50_ns: [from as f64, 0.0],
            p99_ns: [from as f64 * 3.0, 0.0],
        }
    }

    fn label() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<String>(),
            "[a-z ]{0,30}",
            (0..300usize).prop_map(|n| "\u{1b}[31m".repeat(n)),
            (0..900usize).prop_map(|n| "x".repeat(n)),
            (0..300usize).prop_map(|n| "名\u{202e}\n".repeat(n)),
        ]
    }

    fn nanoseconds() -> BoxedStrategy<f64> {
        prop_oneof![Just(0.0), 0.0..1e3, 0.0..1e12].boxed()
    }

    fn moment() -> impl Strategy<Value = Result<Moment, String>> {
        let column = (prop_oneof![Just(0u32), any::<u32>()], prop_oneof![Just(0.0), 0.0..20.0]);
        let columns =
            || prop_oneof![Just(vec![(0, 0.0); COLUMNS]), prop::collection::vec(column.clone(), COLUMNS..=COLUMNS),];
        let asked =
            (label(), any::<[u64; 2]>(), 0..3usize, any::<bool>()).prop_map(|(file, [offset, bytes], op, known)| {
                CallShape {
                    number: bytes as usize,
                    op: ["read", "write", "sync"][op],
                    offset,
                    bytes,
                    file: known.then_some(file),
                }
            });
        let differs = prop_oneof![Just(Ok(())), any::<(usize, bool)>().prop_map(Err)];
        let scale = (0..15i32).prop_map(|power| 10f64.powi(power) / 64.0);
        let known = (prop::option::of(asked), differs, scale, [columns(), columns()]).prop_map(
            |(call, differs, column_ns, [a, b])| Ok(Moment { call, differs, column_ns, sides: [lanes(&a), lanes(&b)] }),
        );
        prop_oneof![known, label().prop_map(Err)]
    }

    proptest! {
        /// For any data and any origin of the labels.
        #[test]
        fn lines_fit_and_have_nothing_that_a_terminal_obeys(
            label in label(),
            time_ns in [nanoseconds(), nanoseconds()],
            parts in prop::collection::vec((-1e9..1e12, nanoseconds()), 0..5),
            shares in prop::collection::vec(prop_oneof![Just(0.0), 0.0..1.0], 0..=BINS),
            (from, known, verdict) in (0..1u64 << 40, any::<bool>(), 0..4usize),
            moment in moment(),
        ) {
            let verdict = [Verdict::Same, Verdict::Inconclusive, Verdict::Regression, Verdict::Improvement][verdict];
            let explanation = explanation(&label, verdict, time_ns, &parts);
            let glance = Glance { latency: known.then(|| latency(&shares, from)), moment };
            for pictures in [None, Some(&glance)] {
                let lines = ["Cause", "Only difference"].map(|name| Line { name, text: label.clone() }).to_vec();
                let first = First { title: label.clone(), factor: None, lines };
                let shown = text(&explanation, &first, pictures, PLAIN);
                prop_assert!(shown.lines().count() <= SCREEN, "{} lines:\n{shown}", shown.lines().count());
                // The footer is a blank and a line.
                for width in [40, 64, 80, 133, 200] {
                    let screen = screen(&explanation, &first, width, PLAIN);
                    prop_assert!(screen.lines().count() + 2 <= SCREEN, "{width}:\n{screen}");
                    let wide = screen.lines().map(columns).max().unwrap_or(0);
                    prop_assert!(wide <= width, "{wide} columns of {width}:\n{screen}");
                }
                let verbose = text(&explanation, &first, pictures, Style { verbose: true, ..PLAIN });
                for line in shown.lines().chain(verbose.lines()) {
                    prop_assert!(columns(line) <= iowhy_text::width(), "{} columns: {}", columns(line), line);
                    prop_assert!(!line.chars().any(|c| c.is_control() || c == '\u{202e}'), "{:?}", line);
                    prop_assert!(line.trim_end() == line && !line.contains("NaN"), "{:?}", line);
                }
                // Colours are all that a terminal gets more.
                let coloured = text(&explanation, &first, pictures, Style { colour: true, verbose: true });
                prop_assert_eq!(coloured.replace("\u{1b}[1m", "").replace("\u{1b}[0m", ""), verbose);
            }
        }
    }

    #[test]
    fn a_waterfall_leads_from_a_to_b() {
        let explanation = explanation("x", Verdict::Regression, [11e6, 22e6], &[(1e6, 1e6), (4e6, 2e6), (6e6, 19e6)]);
        let mut shown = String::new();
        waterfall(&mut shown, &explanation);
        let bars: Vec<String> = shown.lines().map(|line| line.chars().skip(56).collect()).collect();
        let [blank, eleven, nine] = [" ", "█", " "].map(|of| move |n: usize| of.repeat(n));
        let expected = [
            format!("{} A", eleven(11)),
            String::new(),
            format!("{}░░", nine(9)),
            format!("{}{}", nine(9), eleven(13)),
            format!("{} B", eleven(22)),
            format!("{}▒▒▒▒", blank(18)),
        ];
        assert_eq!(bars, expected, "{shown}");
    }

    #[test]
    fn latencies_stand_above_their_scale() {
        let mut of = latency(&[0.1, 0.8, 0.1, 0.0], 999_999);
        of.share[1] = vec![0.0, 0.0, 0.5, 0.5];
        of.calls = [10, 2];
        (of.p50_ns, of.p99_ns) = ([2e6, 3e6], [3e6, 4e6]);
        let mut shown = String::new();
        latencies(&mut shown, &of, PLAIN);
        let expected = "
Latencies of the writes: 10 in A, 2 in B
   A  ▁█▁                                           p50 2.0 ms  p99 3.0 ms
   B    ▅▅                                          p50 3.0 ms  p99 4.0 ms
       a*B                                          a b p50, A B p99, * several
      |1 ms
";
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_clock_has_round_times() {
        for (whole_ns, expected) in [
            (64.0, "|0                  |20 ns              |40 ns"),
            (35e6, "|0                |10 ms            |20 ms            |30 ms"),
            (1.2e9, "|0                        |500 ms                    |1 s"),
        ] {
            assert_eq!(picture::axis(&of_time(whole_ns / COLUMNS as f64), COLUMNS), expected);
        }
    }
}

#[cfg(test)]
mod tests_of_experiments {
    use iowhy_stack::units::Nanos;
    use iowhy_why::digest::Digest;
    use iowhy_why::outcome::{Times, recalibrate};
    use iowhy_why::{Side, explain, rules};

    use super::*;

    fn of(switched: &[f64], a_is_slow: bool, explained: Option<f64>) -> Counterfactual {
        let times = Times { fast: &[100.0, 102.0, 98.0], slow: &[400.0, 402.0, 398.0], switched };
        Counterfactual::of(("key=1".to_owned(), "slow"), times, a_is_slow, explained)
    }

    fn explanation(experiments: &[Option<Counterfactual>]) -> Explanation {
        let side = |label: &str, elapsed| {
            let mut run = Digest { elapsed: Nanos(elapsed), ..Digest::default() };
            run.latency[0].add(1);
            Side { label: label.to_owned(), runs: vec![run; 3], ..Side::default() }
        };
        let mut explanation = explain(&side("fast", 100), &side("slow", 400), None);
        let share_pct = 90.0 / experiments.len() as f64;
        let finding = |(nr, of): (usize, &Option<Counterfactual>)| Finding {
            rule: rules::RULES[nr],
            claim: String::new(),
            confidence: 0.8,
            evidence: Vec::new(),
            share_pct,
            counterfactual: of.clone(),
            advice: None,
        };
        explanation.findings = experiments.iter().enumerate().map(finding).collect();
        explanation.unexplained_pct = 10.0;
        explanation
    }

    fn four() -> [Counterfactual; 4] {
        [
            of(&[400.0, 401.0, 399.0], false, None),
            of(&[251.0, 253.0, 249.0], false, None),
            of(&[100.0, 101.0, 99.0], false, Some(20.0)),
            of(&[100.0, 101.0, 99.0], false, None),
        ]
    }

    #[test]
    fn each_outcome_has_its_words() {
        let [refuted, partly, elsewhere, confirmed] = four();
        let elsewhere = Counterfactual { change_pct_before: 2.7, ..elsewhere };
        let still = confirmed.clone().with_story(Some(false), false);
        let device = confirmed.clone().with_story(Some(true), true);
        for (of, head, sentence, line) in [
            (
                &confirmed,
                "90 % of the difference, almost certain",
                "Confirmed: with key=1 the change is +0.0 % instead of +300.0 %.",
                "Confirmed: `slow` with key=1: +0.0 % instead of +300.0 % against `fast`, interval [-4.2, +4.2] % \
                from 3 \
                 runs; 100 % of the difference is gone",
            ),
            (
                &partly,
                "90 % of the difference, likely",
                "Partly confirmed: with key=1 the change is +151.0 % instead of +300.0 %.",
                "Partly confirmed: `slow` with key=1: +151.0 % instead of +300.0 % against `fast`, interval [+146.5, \
                 +155.5] % from 3 runs; 50 % of the difference is gone",
            ),
            (
                &still,
                "90 % of the difference, likely",
                "Partly confirmed: with key=1 the change is +0.0 % instead of +300.0 %, but the figures below did not \
                 move with it.",
                "100 % of the difference is gone; the setting helps, but the figures above did not move with it: the \
                 cause may be another",
            ),
            (
                &device,
                "90 % of the difference, likely",
                "Partly confirmed: with key=1 the change is +0.0 % instead of +300.0 %, but that is another \
                setting of the \
                 device.",
                "100 % of the difference is gone; but none of this finding's settings differs: the cause is \
                 another one of the device",
            ),
            (
                &refuted,
                "0 % of the difference, refuted",
                "None of the rules explains this.",
                "Refuted: `slow` with key=1: +300.0 % instead of +300.0 % against `fast`, interval [+295.8, +304.2] % \
                 from 3 runs; nothing measurable of the difference is gone",
            ),
            (
                &elsewhere,
                "90 % of the difference, possible",
                "Not reproduced: made again, the sides differ by +2.7 % where +300.0 % were to be explained.",
                "Not reproduced: made again, `slow` differs from `fast` by +2.7 %, interval [+295.5, +304.5] % from 3 \
                 runs, where +300.0 % were to be explained; so the effect of key=1 remains unknown",
            ),
        ] {
            let mut explanation = explanation(&[Some(of.clone())]);
            recalibrate(&mut explanation);
            let shown = text(&explanation, &First::default(), None, Style { colour: false, verbose: true });
            let words = shown.split_whitespace().collect::<Vec<&str>>().join(" ");
            for expected in [head, sentence, line] {
                assert!(words.contains(expected), "no `{expected}` in\n{shown}");
            }
            assert!(!words.to_lowercase().contains("prove"), "{shown}");
        }
        // Refuted ones come after the ones that stand.
        let mut explanation = explanation(&[Some(refuted), Some(confirmed)]);
        recalibrate(&mut explanation);
        let name = rules::RULES[0].name;
        assert!(summary(&explanation).ends_with(&format!("+300.0 %. Refuted by experiment: {name}.")));
    }
}

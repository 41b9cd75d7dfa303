//! A flame graph of waiting time (SVG): the task and its outermost function at the bottom, and whatever it has called
//! above it, each as wide as its part of the listed waits. Pointing at a frame shows its name, time and waits.
//!
//! The two sides of `iowhy report` have theirs in the page (`web/src/stacks.tsx`); this is that of one recording.
//! Callees stand in the order of their names, so that two graphs of one program can be laid next to each other.

use std::fmt::Write;

use iowhy_text::{count, quantity};
use iowhy_why::digest::stacks::{Stack, Stacks};

/// Width of the picture, height of a row, and of a character, px.
const WIDTH: f64 = 1200.0;
const ROW: f64 = 19.0;
const LETTER: f64 = 6.7;
/// Height of the title.
const HEAD: f64 = 34.0;
/// Narrower frames have no name, px.
const NARROW: f64 = 28.0;

/// A frame: its name, where it begins and how long it is, ns, its waits, and how many frames are below it.
struct Frame<'a> {
    name: &'a str,
    from: u64,
    ns: u64,
    waits: u64,
    depth: usize,
}

/// Frames with the same callers as one. The stacks are in the order of their frames, and alike up to `depth`.
fn fold<'a>(stacks: &[&'a Stack], depth: usize, mut from: u64, out: &mut Vec<Frame<'a>>) {
    for of in stacks.chunk_by(|a, b| a.frames.get(depth) == b.frames.get(depth)) {
        let Some(name) = of[0].frames.get(depth) else { continue };
        let (ns, waits) = of.iter().fold((0, 0), |(ns, waits), stack| (ns + stack.ns, waits + stack.count));
        out.push(Frame { name, from, ns, waits, depth });
        fold(of, depth + 1, from, out);
        from += ns;
    }
}

/// Text that XML can hold.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// The picture, with a title.
pub fn svg(stacks: &Stacks, title: &str) -> String {
    let mut sorted: Vec<&Stack> = stacks.list.iter().collect();
    sorted.sort_by(|a, b| a.frames.cmp(&b.frames));
    let mut frames = Vec::new();
    fold(&sorted, 0, 0, &mut frames);
    let whole = stacks.list.iter().map(|stack| stack.ns).sum::<u64>().max(1) as f64;
    let rows = frames.iter().map(|frame| frame.depth + 1).max().unwrap_or(0) as f64;
    let (height, time) = (HEAD + rows * ROW + 8.0, |ns: f64| quantity(ns / 1e9, "s", 3));
    let title = escaped(&format!("{title}: {} of waiting", time(stacks.all_ns as f64)));
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"monospace\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"4\" y=\"20\" font-size=\"14\">{title}</text>\n"
    );
    for frame in &frames {
        let (x, width) = (frame.from as f64 / whole * WIDTH, frame.ns as f64 / whole * WIDTH);
        let y = height - 8.0 - (frame.depth + 1) as f64 * ROW;
        let (name, ns, pct) = (escaped(frame.name), time(frame.ns as f64), 100.0 * frame.ns as f64 / whole);
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "<g transform=\"translate({x:.2} {y})\"><title>{name}: {ns}, {pct:.1} %, {}</title>\
             <rect width=\"{width:.2}\" height=\"{}\" fill=\"#e8eef5\" stroke=\"#0072b2\" stroke-width=\"0.5\"/>",
            count(frame.waits, "wait", "waits"),
            ROW - 1.0,
        );
        if width >= NARROW {
            let room = ((width - 8.0) / LETTER) as usize;
            let _ = write!(text, "<text x=\"4\" y=\"13\">{}</text>", escaped(&iowhy_text::shown(frame.name, room)));
        }
        text.push_str("</g>\n");
    }
    text + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_stand_below_what_they_call_and_are_as_wide() {
        let stack = |frames: &str, ns| Stack { frames: frames.split(';').map(str::to_owned).collect(), ns, count: 1 };
        let list = vec![stack("t;main;fsync", 500), stack("t;main;Vec<u8>", 250), stack("t;row", 250)];
        let svg = svg(&Stacks { all_ns: 1000, list }, "dd & co");
        assert!(svg.contains(">dd &amp; co: 1.00 µs of waiting<"), "{svg}");
        for (place, frame) in [
            ("0.00 72", "t: 1.00 µs, 100.0 %, 3 waits"),
            ("0.00 53", "main: 750 ns, 75.0 %, 2 waits"),
            ("900.00 53", "row: 250 ns, 25.0 %, 1 wait"),
            ("0.00 34", "Vec&lt;u8&gt;: 250 ns, 25.0 %, 1 wait"),
            ("300.00 34", "fsync: 500 ns, 50.0 %, 1 wait"),
        ] {
            assert!(svg.contains(&format!("translate({place})\"><title>{frame}<")), "{place} {frame}: {svg}");
        }
        assert_eq!(svg.matches("<g ").count(), 5);
    }
}

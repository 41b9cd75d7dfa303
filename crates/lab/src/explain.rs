//! Both sides of an explanation found, and the experiments that confirm or refute it ([`iowhy_why`] explains).

pub mod advice;
pub mod gathered;
pub mod modes;
pub mod prove;
pub mod prove_live;
pub mod recipe;
pub mod source;
pub mod tally;

use iowhy_compare::{self as compare, Settings};
use iowhy_why::Explanation;

use gathered::Gathered;

/// Why two sides differ, with its advice; with `prove`, the experiments are made, too.
pub fn of_sides(sides: &[Gathered; 2], prove: bool) -> Explanation {
    let [a, b] = sides;
    let comparison = match (&a.group, &b.group) {
        (Some(a), Some(b)) => Some(compare::compare(a, b, &Settings { detail: false, ..Settings::default() })),
        _ => None,
    };
    let mut explanation = iowhy_why::explain(&a.side, &b.side, comparison);
    advice::notes(&mut explanation, sides);
    if prove {
        prove::prove(&mut explanation, sides, &|| {});
        prove_live::prove(&mut explanation, sides);
    }
    advice::advise(&mut explanation, sides);
    explanation
}

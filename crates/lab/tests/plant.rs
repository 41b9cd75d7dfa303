//! Causes are planted and looked for, as `cargo xtask plant` does: what is asked of explanations, on fixed seeds. There
//! are fewer of them here, so that it takes two minutes.

use iowhy_lab::plant::{self, Case};

#[test]
fn planted_causes_are_found_and_none_is_made_up() {
    let score = plant::run(1, 100, &|| {});
    assert!(score.cases.len() >= 97, "only {} cases", score.cases.len());
    let single = score.pct(1, Case::first_right);
    let none = score.pct(0, |case| !case.found.is_empty());
    let double = score.pct(2, Case::all_found);
    let confusions = score.confusions();
    assert!(single >= 95.0, "one cause is named first in {single:.1} %: {confusions:#?}");
    assert!(none <= 1.0, "a cause is made up in {none:.1} %: {confusions:#?}");
    let missed = score.with(2).filter(|case| !case.all_found());
    let missed: Vec<String> =
        missed.map(|case| format!("{}: {:?}, found {:?}", case.base, case.lines, case.found)).collect();
    assert!(double >= 80.0, "of two causes both are found in {double:.1} %: {missed:#?}");
}

#[test]
fn the_same_seed_gives_the_same_cases() {
    let lines =
        |score: &plant::Score| -> Vec<[String; 2]> { score.cases.iter().map(|case| case.lines.clone()).collect() };
    let (a, b) = (plant::run(7, 6, &|| {}), plant::run(7, 6, &|| {}));
    assert_eq!(lines(&a), lines(&b));
    assert_ne!(lines(&a), lines(&plant::run(8, 6, &|| {})));
}

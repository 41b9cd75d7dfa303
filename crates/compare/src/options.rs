//! Options of jobs that differ between the sides of a comparison: 4k against 8k explains more than any statistic.

use std::collections::BTreeSet;

use iowhy_stats::metric::Group;
use iowhy_text::shown;

/// An option that the sides have set to other values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionShift {
    pub name: String,
    /// Values in runs of the base; `None` where it is not set.
    pub a: Vec<Option<String>>,
    /// Values in runs of the candidate.
    pub b: Vec<Option<String>>,
}

/// Options whose values differ. None if the runs of a side have no list of options.
pub fn differing(a: &Group, b: &Group) -> Vec<OptionShift> {
    let lists = |group: &Group| group.runs.iter().any(|run| !run.options.is_empty());
    if !lists(a) || !lists(b) {
        return Vec::new();
    }
    let all = a.runs.iter().chain(&b.runs).flat_map(|run| &run.options);
    let names: BTreeSet<&str> = all.map(|(name, _)| name.as_str()).collect();
    let values = |group: &Group, name: &str| {
        let value = |options: &[(String, String)]| {
            options.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
        };
        group.runs.iter().map(|run| value(&run.options)).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    let shifts =
        names.into_iter().map(|name| OptionShift { name: name.to_owned(), a: values(a, name), b: values(b, name) });
    shifts.filter(|shift| shift.a != shift.b).collect()
}

/// Values longer than this are cut in a sentence.
const VALUE: usize = 40;

/// All of them in a sentence; nothing without any.
pub fn sentence(shifts: &[OptionShift]) -> Option<String> {
    let side = |values: &[Option<String>]| {
        let word = |value: &Option<String>| match value.as_deref() {
            None => "not set".to_owned(),
            Some("") => "set".to_owned(),
            Some(value) => shown(value, VALUE),
        };
        values.iter().map(word).collect::<Vec<_>>().join(" or ")
    };
    let one =
        |shift: &OptionShift| format!("{}: A {}, B {}", shown(&shift.name, VALUE), side(&shift.a), side(&shift.b));
    let all: Vec<String> = shifts.iter().map(one).collect();
    (!all.is_empty()).then(|| format!("Different job options: {}.", all.join("; ")))
}

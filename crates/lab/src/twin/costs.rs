//! Costs of code on the machine of a recording, from the states of its tasks.
//!
//! ```text
//! copying    CPU time of calls that neither add a page nor have a bio: the model's costs of a call and a page, scaled
//! reading    CPU time of the other calls beyond that: the model's costs of an added page and of a bio, scaled
//! waking     time from a wake-up to a processor: its 10th percentile is the switch, the rest the idle processor,
//!            uniform with the mean of all but the tenths at both ends
//! ```
//! A part of which too little was seen has the scale of the other. Means, not medians, so that all CPU time of the
//! recording is that of its twin. Limits: the trace points' own time is in it; a scale does not tell a page from a bio.

use iowhy_stack::kernel::Stack;

use super::calls::{Costs, Work};

/// Calls from which on a cost is taken.
const LEAST: usize = 20;

/// Sets the costs of a stack's machine.
pub(super) fn set(stack: &mut Stack, costs: &Costs) {
    let work = &costs.work;
    let defaults = stack.machine.entry.defaults();
    let of = |key: &str| defaults.unsigned(key) as f64;
    let copy = |it: &Work| of("syscall_ns") + it.pages as f64 * (of("page_lookup_ns") + of("page_copy_ns"));
    let read = |it: &Work| it.added as f64 * of("page_add_ns") + it.bios as f64 * of("bio_ns");
    let (hits, misses): (Vec<&Work>, Vec<&Work>) = work.iter().partition(|it| it.added + it.bios == 0);
    let ran = |list: &[&Work]| list.iter().map(|it| it.spent.ran as f64).sum::<f64>();
    let sum = |list: &[&Work], cost: &dyn Fn(&Work) -> f64| list.iter().map(|it| cost(it)).sum::<f64>();
    let both = ran(&hits) + ran(&misses);
    let all = sum(&hits, &copy) + sum(&misses, &|it| copy(it) + read(it));
    if hits.len() + misses.len() < LEAST || all <= 0.0 {
        return;
    }
    let copying = if hits.len() >= LEAST { ran(&hits) / sum(&hits, &copy).max(1.0) } else { both / all };
    let reading = match sum(&misses, &read) {
        model if misses.len() >= LEAST && model > 0.0 => {
            (ran(&misses) - copying * sum(&misses, &copy)).max(0.0) / model
        }
        _ => copying,
    };
    let options = &mut stack.machine.options;
    let mut put = |key: &str, value: f64| {
        if let Some(spec) = defaults.specs().iter().find(|spec| spec.name == key) {
            options.set(key, (value.round() as i64).clamp(spec.min, spec.max));
        }
    };
    for (key, scale) in [
        ("syscall_ns", copying),
        ("page_lookup_ns", copying),
        ("page_copy_ns", copying),
        ("page_add_ns", reading),
        ("bio_ns", reading),
    ] {
        put(key, of(key) * scale);
    }
    if let Some((least, usual)) = costs.late {
        put("switch_ns", least as f64);
        put("wake_min_us", 0.0);
        put("wake_max_us", (2.0 * usual.saturating_sub(least) as f64 / 1000.0).max(1.0));
    }
}

//! Maps of tags and tokens

use iowhy_stack::kernel::Stack;
use iowhy_stack::rng::Rng;
use iowhy_stack::tag_map::{Limit, TagMap};

use super::{Case, Policy, Step};

pub(super) const TAGS: Policy = Policy {
    name: "tags",
    program: "tags.c",
    files: &["lib/sbitmap.c"],
    headers: &["linux/list.h", "linux/sbitmap.h"],
    cuts: &[],
    draw,
    valid: |_| true,
    model,
    legend: &[
        ('#', "how many tags"),
        ('g', "take one (answer: its number, -1 for none)"),
        ('s', "take one, with this limit"),
        ('f', "give one back: which of those taken"),
        ('z', "change how many there are, at most as many as at first"),
        ('k', "waiters woken at a time if this is the lowest limit in use"),
    ],
    not_decisions: &["."],
};

fn draw(rng: &mut Rng, _stack: &Stack) -> Case {
    let mut between = |low: i64, high: i64| low + rng.below((high - low + 1) as u64) as i64;
    let depth = [between(1, 12), between(1, 300), 32, 62, 64, 128, 256, 1023][between(0, 7) as usize];
    let limit = [1, depth, between(1, depth), (depth * 3 / 4).max(1), between(1, 64)][between(0, 4) as usize];
    let (frees, nr_steps) = (between(1, 60), between(5, 400));
    let steps = (0..nr_steps).map(|_| match between(0, 99) {
        0 => Step::new('z', &[between(1, depth)]),
        1 => Step::new('k', &[between(1, depth)]),
        kind if kind < 2 + frees => Step::new('f', &[between(0, 4095)]),
        kind if kind % 2 == 0 => Step::new('g', &[]),
        _ => Step::new('s', &[if between(0, 9) == 0 { between(1, 80) } else { limit }]),
    });
    let steps = steps.collect();
    Case { settings: vec![Step::new('#', &[depth])], steps }
}

fn model(stack: &Stack, case: &Case) -> Vec<String> {
    // Kyber knows what a limit is a limit of.
    let of_words = stack.kernel.elevator_names.contains(&("kyber", "kyber-6.1"));
    let mut map = TagMap::new(case.settings[0].unsigned(0) as u32);
    let mut taken = Vec::new();
    let mut answer = |step: &Step| -> String {
        let most = step.unsigned(0).max(1) as u32;
        let limit = match step.op {
            'g' => Limit::None,
            _ if of_words => Limit::OfWord(most),
            _ => Limit::OfMap(most),
        };
        match step.op {
            'g' | 's' => {
                let number = map.get(limit);
                taken.extend(number);
                return number.map_or(-1, i64::from).to_string();
            }
            'k' => return map.shape().wake_batch(limit).to_string(),
            'f' if !taken.is_empty() => {
                let which = step.unsigned(0) as usize % taken.len();
                map.free(taken.swap_remove(which));
            }
            'z' => map.resize(most),
            _ => {}
        }
        ".".to_owned()
    };
    case.steps.iter().map(&mut answer).collect()
}

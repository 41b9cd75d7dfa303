//! The program itself computes for longer.

use super::recorded;
use super::{Figure, Match, Rule, grade};
use crate::delta::{Delta, Unit};
use crate::digest::Layer;

pub(super) const RULE: Rule = Rule {
    name: "program-computes-more",
    layer: "application",
    needs: super::STATES,
    owns: super::Owns::Program,
    single: super::Single::OwnTimes,
    what: "The program computes for longer between its calls.",
    why: "Compression, checksums, encryption, parsing and sorting take CPU time in the program; storage waits \
          for it meanwhile.",
    events: "More time on a CPU outside of calls, for as many bytes read and written; the time in calls has not grown \
             by as much.",
    example: "zstd -15 in place of zstd -1; a library built without optimisation; checksums switched on.",
    change: "Profile the program (perf record -g); storage is not where the time goes.",
    refute: "The program's CPU time (`command` in the JSON) is as on the fast side.",
    since: "Every kernel; it is the program.",
    consequences: &[],
    switches: &[super::Switch::OtherJob],
    find,
    cost: None,
};

/// Part of the difference that has to be the program's.
const LEAST_PART: f64 = 0.4;
/// Growth of the program's time: less may come from clock rates and shared caches.
const LONGER: f64 = 1.2;
/// Part of that growth in the kernel's CPU count: half, as both sources miss short runs.
const CONFIRMED: f64 = 0.5;
/// Ratios of the program's times, half sure and sure.
const GRADE: (f64, f64) = (1.1, 1.6);
/// Upper bound: task states show that the program computes, not for what.
const MOST_SURE: f64 = 0.97;

fn find(delta: &Delta<'_>) -> Option<Match> {
    let own = delta.time(|time| time.of(Layer::Application));
    let user = delta.of(|d| d.command.map_or(0.0, |command| command.cpu_ns[0] as f64));
    let known = user.fast.min(user.slow) > 0.0;
    // What the kernel counted for the program has to agree with what its tasks' states say.
    let agrees = !known || user.difference() > CONFIRMED * own.difference() * delta.scale();
    if own.difference() < LEAST_PART * delta.slower_by() || !own.rose(LONGER) || !agrees {
        return None;
    }
    let (own, whole) = (recorded::scaled(delta, own), delta.of(|d| d.elapsed.0 as f64));
    let mut evidence = vec![
        Figure::new("time of the program on a CPU, outside of calls", own, Unit::Ns),
        Figure::new("time by the clock", whole, Unit::Ns),
    ];
    if known {
        evidence.push(Figure::new("CPU time of the program", user, Unit::Ns));
    }
    Some(Match {
        confidence: grade(own.ratio(), GRADE.0, GRADE.1).min(MOST_SURE),
        share_ns: Some(own.difference() / delta.scale()),
        claim: format!("the program computes for {:.1} ms, against {:.1} ms", own.slow / 1e6, own.fast / 1e6),
        evidence,
    })
}

#[cfg(test)]
mod tests {
    use super::super::edges::{Edge, Pair, hold, sure};
    use super::RULE;
    use crate::digest::{KIND_OTHER, Layer};
    use iowhy_trace::settings::Command;

    /// The program computes for 1 ms, then for 1.4 ms.
    fn computes() -> Pair {
        Pair::of(|p| own(p, 1e6, 1.4e6))
    }

    fn own(p: &mut Pair, fast: f64, slow: f64) {
        for (d, ns) in [(&mut p.fast, fast), (&mut p.slow, slow)] {
            d.time.ns[KIND_OTHER][Layer::Application as usize] = ns;
        }
    }

    /// The kernel has counted this CPU time of two commands.
    fn user(p: &mut Pair, fast: f64, slow: f64) {
        for (d, ns) in [(&mut p.fast, fast), (&mut p.slow, slow)] {
            d.command = Some(Command { cpu_ns: [ns as u64, 0], ..Command::default() });
        }
    }

    #[test]
    fn limits() {
        let edges: &[Edge] = &[
            ("LEAST_PART", |p, x| own(p, 1e6, x), 1_400_000.0, 1_399_999.0),
            ("LONGER", |p, x| own(p, 5e6, x), 6_000_001.0, 6_000_000.0),
            ("CONFIRMED", |p, x| user(p, 1e6, x), 1_200_001.0, 1_200_000.0),
            ("CPU time of one side", |p, x| user(p, x, 1e5), 0.0, 1.0),
        ];
        hold(&RULE, computes, 0.8218, edges);
        sure(&RULE, computes, &[("MOST_SURE", |p, x| own(p, 1e6, x), 2e6, 0.97)]);
    }
}

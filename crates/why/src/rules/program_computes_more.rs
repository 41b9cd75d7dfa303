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
};

/// Part of the difference that has to be the program's.
const LEAST_PART: f64 = 0.4;

fn find(delta: &Delta<'_>) -> Option<Match> {
    let own = delta.time(|time| time.of(Layer::Application));
    let user = delta.of(|d| d.command.map_or(0.0, |command| command.cpu_ns[0] as f64));
    let known = user.fast.min(user.slow) > 0.0;
    // What the kernel counted for the program has to agree with what its tasks' states say.
    let agrees = !known || user.difference() > 0.5 * own.difference() * delta.scale();
    if own.difference() < LEAST_PART * delta.slower_by() || !own.rose(1.2) || !agrees {
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
        confidence: grade(own.ratio(), 1.1, 1.6).min(0.97),
        share_ns: Some(own.difference() / delta.scale()),
        claim: format!("the program computes for {:.1} ms, against {:.1} ms", own.slow / 1e6, own.fast / 1e6),
        evidence,
    })
}

//! Pages read ahead that remain unused, or are gone before a use.
//!
//! Counted for each operation: pages read ahead of calls less those that were requested later. Pages that were evicted
//! before their use count only if the cache holds as many pages as on the fast side: in a smaller cache they are the
//! cache's doing. Windows around page faults are left to `mmap-read-around`.

use iowhy_stack::event::RaKind;

use super::{Figure, Match, Rule, grade, reads};
use crate::delta::{Delta, Unit};
use crate::digest::Digest;

pub(super) const RULE: Rule = Rule {
    name: "window-too-large",
    layer: "read-ahead",
    needs: super::WINDOWS,
    owns: super::Owns::Reads,
    single: super::Single::Counts,
    what: "Read-ahead brings more pages than are used: they are never requested, or evicted before that.",
    why: "Each such page costs time at the device, and room in the cache that pages of use would have had.",
    events: "Pages are added ahead of calls and leave the cache, or the run ends, without a hit on them; requests are \
             larger than the calls.",
    example: "read_ahead_kb=4096 under many streams in little memory: windows push each other out unread.",
    change: "Lower read_ahead_kb, or advise random reads (POSIX_FADV_RANDOM, MADV_RANDOM).",
    refute: "With the limit of the fast side the difference stays.",
    since: "Every kernel; 2.4 and 2.6.5 to 2.6.22 read ahead of random reads, too.",
    consequences: &[],
    switches: &[
        super::Switch::Other("read_ahead_kb"),
        super::Switch::Queue("read_ahead_kb"),
        super::Switch::Word("--fadvise_hint=random"),
    ],
    find,
};

const FAULTS: [RaKind; 3] = [RaKind::Around, RaKind::Exec, RaKind::Huge];

/// Least part of the additional pages that remain unused.
const LEAST_OF_ADDED: f64 = 0.5;

fn unused(digest: &Digest) -> f64 {
    digest.windows.ahead.saturating_sub(digest.windows.used + digest.windows.thrashed) as f64
}

fn find(delta: &Delta<'_>) -> Option<Match> {
    let faults = delta.of(|d| reads::share(reads::pages(d, &FAULTS), reads::all_pages(d)));
    if !reads::equal(delta) || faults.fast.max(faults.slow) > 0.3 {
        return None;
    }
    let held = delta.of(|d| d.cache.most as f64);
    let same_cache = !held.fell(1.05);
    let wasted = delta.per_operation(|d| unused(d) + if same_cache { d.windows.thrashed as f64 } else { 0.0 });
    let added = delta.per_operation(|d| d.cache.added as f64);
    let part = if added.fast > 0.0 { wasted.difference() / added.fast } else { 0.0 };
    // Windows that the end of a run leaves unused are a matter of its length.
    if !(wasted.rose(1.3) && part > 0.1 && added.rose(1.1)) {
        return None;
    }
    // Where most of the extra pages are requested, the fast side had them already.
    if wasted.difference() < LEAST_OF_ADDED * added.difference() {
        return None;
    }
    Some(Match {
        confidence: grade(part, 0.1, 0.5).max(0.7),
        share_ns: None,
        claim: format!(
            "{:.2} pages that are read ahead for each call remain unused, against {:.2}",
            wasted.slow, wasted.fast
        ),
        evidence: vec![
            Figure::new("pages read ahead in vain, for each call", wasted, Unit::Pages),
            Figure::new("pages read for each call", added, Unit::Pages),
        ],
    })
}

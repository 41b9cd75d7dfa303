//! A file lies in many pieces.

use super::{Figure, Match, Rule, grade};
use crate::delta::{Delta, Unit};

pub(super) const RULE: Rule = Rule {
    name: "fragmented-file",
    layer: "device",
    needs: super::WINDOWS,
    owns: super::Owns::Reads,
    single: super::Single::Times,
    what: "The file lies in many small pieces, and each needs a request of its own.",
    why: "Pages that are neighbours in the file are not on the device: a window becomes many small requests \
          with a seek between them.",
    events: "As many pages in windows as large, but more requests, which do not go on where the one before ended.",
    example: "A database file that grew next to others; a volume that was nearly full; a file written in random order.",
    change: "Rewrite the file (e4defrag, xfs_fsr), reserve space before writing (fallocate), keep free space.",
    refute: "A fresh copy of the file is read as slowly.",
    since: "Every file system.",
    consequences: &[
        "device-latency",
        "device-bandwidth",
        "lost-locality",
        "merging-off",
        "requests-cut",
        "device-iops-cap",
        "cpu-bound-submission",
    ],
    switches: &[super::Switch::OtherJob],
    find,
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    let pages = delta.per_operation(|d| d.cache.added as f64);
    let direct = delta.of(|d| super::reads::share(d.workload.direct[0], d.workload.calls[0]));
    let windows = delta.of(|d| d.windows.sizes.mean());
    // Pages read one by one have requests of their own wherever the file lies.
    let decisions = delta.per_operation(|d| d.windows.count.iter().sum::<u64>() as f64);
    let requests = delta.per_operation(|d| d.commands.issued[0] as f64);
    // Blocks of a small size have a bio each, and are merged again.
    let joinable =
        delta.of(|d| super::reads::share(d.bios.could_join[0].saturating_sub(d.bios.joined[0]), d.commands.issued[0]));
    let size = delta.of(|d| super::reads::share(d.commands.sectors[0] * 512, d.commands.issued[0]));
    let bytes = delta.of(|d| super::reads::share(d.workload.bytes[0], d.workload.calls[0]));
    let equal = (0.9..1.1).contains(&bytes.ratio())
        && (direct.slow > 0.9 && direct.fast > 0.9
            || (0.8..1.25).contains(&pages.ratio())
                && [windows, decisions].iter().all(|figure| (0.67..1.5).contains(&figure.ratio())));
    let apart = joinable.slow < 0.5;
    if !equal || !apart || !requests.rose(1.5) || !size.fell(1.5) || requests.slow < 0.02 {
        return None;
    }
    Some(Match {
        confidence: grade(requests.ratio(), 1.3, 3.0).min(0.9),
        share_ns: None,
        claim: format!(
            "equal windows become {:.2} requests a call of {:.0} KiB, against {:.2} of {:.0} KiB, and they do not lie \
             side by side",
            requests.slow,
            size.slow / 1024.0,
            requests.fast,
            size.fast / 1024.0
        ),
        evidence: vec![
            Figure::new("read requests for each call", requests, Unit::Ratio),
            Figure::new("mean size of a request", size, Unit::Bytes),
            Figure::new("mean size of a window", windows, Unit::Pages),
        ],
    })
}

//! Reads without any window: by advice, or because the limit is 0. Shared parts of the two rules about it.
//!
//! ```text
//!                       calls of several pages         calls of one page, mappings
//! advice, since 2.6.34  one read as large as the call  one page
//! advice, before        page by page                   one page
//! limit of 0            page by page                   one page
//! ```
//! Where both look alike both are reported, with half the confidence; only an experiment separates them.

use iowhy_stack::event::{RaKind, UnplugCause};

use super::{Figure, Match, reads};
use crate::delta::{Contrast, Delta, Unit};

/// The mechanism behind pages that are read without windows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Alone {
    /// Advice: calls are read as they are.
    Advice,
    /// A limit of 0: every page is read for itself.
    Off,
    /// Either.
    Either,
}

/// The match of the rule for `wanted`: `confidence` if it is sure and if it may as well be the other, its claim, and
/// the addition in the latter case.
pub(super) fn found(
    delta: &Delta<'_>,
    wanted: Alone,
    (sure, either): (f64, f64),
    claim: &str,
    reservation: &str,
) -> Option<Match> {
    let (share, means) = of(delta)?;
    // A recording knows the limit of the disk that is read.
    let limit = super::recorded::limit_of_readahead(delta.slow);
    let means = match (means, limit) {
        // A limit of one page is none.
        (Alone::Either, Some(..=4)) => Alone::Off,
        (Alone::Either | Alone::Off, Some(5..)) => Alone::Advice,
        (Alone::Advice, Some(..=4)) => Alone::Off,
        (means, _) => means,
    };
    let (confidence, reservation) = match means {
        Alone::Either => (either, reservation),
        means if means == wanted => (sure, ""),
        _ => return None,
    };
    let waits = reads::waits(delta);
    Some(Match {
        confidence,
        share_ns: None,
        claim: format!("{claim}: a call waits {:.2} times, against {:.2}{reservation}", waits.slow, waits.fast),
        evidence: vec![
            Figure::new("pages read without a window", share, Unit::Share),
            Figure::new("waits for each call", waits, Unit::Ratio),
        ],
    })
}

const KINDS: [RaKind; 2] = [RaKind::Force, RaKind::Single];

/// The slow side reads without windows, and the fast side does not: the share of pages that come so, and what it means.
fn of(delta: &Delta<'_>) -> Option<(Contrast, Alone)> {
    let alone = delta.of(|d| reads::share(reads::pages(d, &KINDS), reads::all_pages(d)));
    let closes = delta.of(|d| d.windows.closes.iter().sum::<u64>() as f64);
    let waits = reads::waits(delta);
    // A program that is recorded from its start reads its libraries, too.
    let nearly = if delta.slow.live { 0.9 } else { 0.99 };
    let all = alone.slow > nearly && alone.fast < 0.7 && alone.rose_by(0.3);
    // What reads nothing reads nothing without windows, either.
    let compared = delta.of(|d| reads::all_pages(d) as f64).fast >= 16.0;
    if !(reads::equal(delta) && compared && all && closes.slow == 0.0 && waits.rose(1.05)) {
        return None;
    }
    let slow = |figure: &dyn Fn(&crate::digest::Digest) -> f64| delta.of(figure).slow;
    let at_once = slow(&|d| reads::share(reads::pages(d, &KINDS), reads::windows(d, &KINDS)));
    let single = slow(&|d| reads::share(reads::pages(d, &[RaKind::Single]), reads::pages(d, &KINDS)));
    let mapped = slow(&|d| f64::from(u8::from(reads::mapped(d)))) > 0.0;
    let task_plug = slow(&|d| {
        let causes = [UnplugCause::Finish, UnplugCause::Schedule];
        causes.iter().map(|cause| d.plugs.unplugs[*cause as usize]).sum::<u64>() as f64
    });
    let several = slow(&reads::call_pages) > 1.5;
    let means = match () {
        () if mapped => Alone::Either,
        () if at_once > 1.5 => Alone::Advice,
        () if !several && single < 0.5 => Alone::Either,
        // Kernels whose tasks have plugs read calls as they are when advised to.
        () if task_plug > 0.0 => Alone::Off,
        () => Alone::Either,
    };
    Some((alone, means))
}

//! The kernel's letters for a request (`blk_fill_rwbs`).

use iowhy_stack::trace::Rwbs;

/// The kernel's letters: an F first is a flush before, an F behind the operation means that the data must be on the
/// medium.
pub(super) fn rwbs(letters: &[u8]) -> Rwbs {
    let mut all = Rwbs::default();
    let mut operation = false;
    for (nr, letter) in letters.iter().enumerate() {
        let one = match letter {
            b'R' => Rwbs::READ,
            b'W' => Rwbs::WRITE,
            b'D' => Rwbs::DISCARD,
            b'F' if nr == 0 => Rwbs::PREFLUSH,
            // The operation itself is a flush.
            b'F' if !operation => Rwbs::PREFLUSH,
            b'F' => Rwbs::FUA,
            b'A' => Rwbs::AHEAD,
            b'S' => Rwbs::SYNC,
            b'M' => Rwbs::META,
            b'N' => Rwbs::PASSTHROUGH,
            _ => Rwbs::default(),
        };
        operation |= matches!(letter, b'R' | b'W' | b'D' | b'N') || (*letter == b'F' && nr > 0);
        all = all.with(one);
    }
    all
}

//! The event queue.
//!
//! Events come out in the order of (time, order of `push`), so that a run is the same on every machine. The structure
//! is a tournament: every pending event sits in a leaf of a four-way tree, and every group of four passes its earliest
//! entry up. Replacing an entry means replaying the matches on the way from its leaf to the root. Which cells those
//! are is known beforehand, so the loads overlap and only one comparison a level depends on the one before; a heap
//! must finish a level before it knows what to load next.
//!
//! A simulator mostly takes an event out and puts the next one in. [`EventQueue::pop`] therefore leaves the leaf as a
//! hole that the next `push` fills: one replay in place of two. An entry is one 128-bit number, time above sequence
//! number above leaf, so that one comparison settles everything. The 32-bit sequence numbers are dealt again, in order,
//! when they run out.

use crate::units::Nanos;

/// Time, sequence number and leaf of an event in one number whose order is the order of events.
type Key = u128;

/// A leaf without an event. No event has this key, since leaf `u32::MAX` is never given out.
const EMPTY: Key = Key::MAX;

/// Four entries, of which the earliest goes up. One cache line.
#[derive(Copy, Clone, Debug)]
#[repr(align(64))]
struct Group([Key; 4]);

/// A way from a leaf to the root.
struct Climb {
    /// The earliest entry so far.
    winner: Key,
    /// Where it goes in the next level, counted in entries.
    at: usize,
    /// First group of that level.
    level: usize,
    /// Groups in that level; none above the root.
    nr_groups: usize,
}

impl Climb {
    /// Enters the winner into its group and lets it play the other three, which do not depend on the level below: only
    /// the last comparison does.
    #[inline(always)]
    fn play(&mut self, groups: &mut [Group]) {
        let group = &mut groups[self.level + (self.at >> 2)].0;
        let own = self.at & 3;
        group[own] = self.winner;
        self.winner = earlier(self.winner, earliest_other(group, own));
        self.level += self.nr_groups;
        self.nr_groups >>= 2;
        self.at >>= 2;
    }
}

/// Pending events of type `T`, earliest first, first-in first-out among equals.
#[derive(Clone, Debug)]
pub struct EventQueue<T> {
    /// The groups, leaves first, each level a quarter of the one below.
    groups: Vec<Group>,
    /// Groups in the lowest level: a power of four.
    nr_leaf_groups: usize,
    /// The winner, or the one taken out last if there is a hole.
    top: Key,
    /// The leaf of `top` is vacant, and its path to the root is out of date.
    hole: bool,
    /// The event in each leaf.
    values: Vec<T>,
    /// Leaves that are vacant, apart from the hole.
    free: Vec<u32>,
    /// Number of the next event.
    sequence: u32,
    len: usize,
}

fn key(at: Nanos, sequence: u32, leaf: u32) -> Key {
    (Key::from(at.0) << 64) | (Key::from(sequence) << 32) | Key::from(leaf)
}

fn time_of(key: Key) -> Nanos {
    Nanos((key >> 64) as u64)
}

fn leaf_of(key: Key) -> u32 {
    key as u32
}

/// The lesser of two keys, without a branch: which one wins is a coin toss that no predictor learns.
#[inline(always)]
fn earlier(a: Key, b: Key) -> Key {
    std::hint::select_unpredictable(a < b, a, b)
}

/// The earliest entry of `group` apart from place `own`.
#[inline(always)]
fn earliest_other(group: &[Key; 4], own: usize) -> Key {
    earlier(earlier(group[own ^ 1], group[own ^ 2]), group[own ^ 3])
}

impl<T: Copy> Default for EventQueue<T> {
    fn default() -> EventQueue<T> {
        EventQueue {
            groups: vec![Group([EMPTY; 4])],
            nr_leaf_groups: 1,
            top: EMPTY,
            hole: false,
            values: Vec::new(),
            free: Vec::new(),
            sequence: 0,
            len: 0,
        }
    }
}

impl<T: Copy> EventQueue<T> {
    /// Puts in `value`, to come out at `at`.
    ///
    /// # Panics
    /// With 2^32 - 1 events pending.
    #[inline]
    pub fn push(&mut self, at: Nanos, value: T) {
        if self.sequence == u32::MAX {
            self.renumber();
        }
        let sequence = self.sequence;
        self.sequence += 1;
        self.len += 1;
        if self.hole {
            let leaf = leaf_of(self.top);
            self.values[leaf as usize] = value;
            self.hole = false;
            self.top = self.replay(leaf, key(at, sequence, leaf));
        } else {
            let leaf = self.vacant_leaf(value);
            self.enter(key(at, sequence, leaf));
        }
    }

    /// Takes out what comes next.
    #[inline]
    pub fn pop(&mut self) -> Option<(Nanos, T)> {
        if self.hole {
            self.close_hole();
        }
        if self.top == EMPTY {
            return None;
        }
        self.hole = true;
        self.len -= 1;
        Some((time_of(self.top), self.values[leaf_of(self.top) as usize]))
    }

    /// When the next event comes.
    #[inline]
    pub fn next_at(&self) -> Option<Nanos> {
        let first = if self.hole { self.earliest_beside(leaf_of(self.top)) } else { self.top };
        (first != EMPTY).then(|| time_of(first))
    }

    /// Events pending.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes `entry` into `leaf` and plays every match from there to the root. Returns the winner.
    ///
    /// Written out level by level, and not inlined, because the compiler turns conditional moves in an innermost loop
    /// back into branches; measured at 1,000 pending events, the loop took more than twice as long.
    #[inline(never)]
    fn replay(&mut self, leaf: u32, entry: Key) -> Key {
        let mut climb = Climb { winner: entry, at: leaf as usize, level: 0, nr_groups: self.nr_leaf_groups };
        macro_rules! levels {
            ($($level:literal)*) => {
                $(
                    debug_assert!(climb.nr_groups == 0 || climb.nr_groups <= self.nr_leaf_groups >> (2 * $level));
                    if climb.nr_groups == 0 {
                        return climb.winner;
                    }
                    climb.play(&mut self.groups);
                )*
            };
        }
        // Sixteen levels have 2^32 leaves.
        levels!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        climb.winner
    }

    /// The earliest entry of all leaves but `leaf`.
    fn earliest_beside(&self, leaf: u32) -> Key {
        let mut winner = EMPTY;
        let mut at = leaf as usize;
        let mut level = 0;
        let mut nr_groups = self.nr_leaf_groups;
        while nr_groups > 0 {
            let group = &self.groups[level + (at >> 2)].0;
            let own = at & 3;
            winner = earlier(winner, earliest_other(group, own));
            level += nr_groups;
            nr_groups >>= 2;
            at >>= 2;
        }
        winner
    }

    /// Enters an event into a vacant leaf: it goes up only as far as it wins.
    fn enter(&mut self, entry: Key) {
        let mut at = leaf_of(entry) as usize;
        let mut level = 0;
        let mut nr_groups = self.nr_leaf_groups;
        while nr_groups > 0 {
            let group = &mut self.groups[level + (at >> 2)].0;
            let own = at & 3;
            let beaten = earliest_other(group, own) < entry;
            group[own] = entry;
            if beaten {
                return;
            }
            level += nr_groups;
            nr_groups >>= 2;
            at >>= 2;
        }
        self.top = entry;
    }

    /// Gives up the leaf that `pop` vacated, because no `push` came in time.
    fn close_hole(&mut self) {
        let leaf = leaf_of(self.top);
        self.hole = false;
        self.top = self.replay(leaf, EMPTY);
        self.free.push(leaf);
    }

    /// A vacant leaf, which now holds `value`; grows the tree if there is none.
    fn vacant_leaf(&mut self, value: T) -> u32 {
        if let Some(leaf) = self.free.pop() {
            self.values[leaf as usize] = value;
            return leaf;
        }
        let leaf = u32::try_from(self.values.len()).expect("fewer than 2^32 events are pending");
        assert!(leaf < u32::MAX, "the last leaf number marks vacant leaves");
        self.values.push(value);
        if leaf as usize == self.nr_leaf_groups * 4 {
            self.grow();
        }
        leaf
    }

    /// Four times as many leaves: the old tree becomes the first of the root's four subtrees.
    #[cold]
    fn grow(&mut self) {
        let entries: Vec<Key> = self.entries().collect();
        self.rebuild(self.nr_leaf_groups * 4, &entries);
    }

    /// Deals the sequence numbers again, in the order of the events.
    #[cold]
    fn renumber(&mut self) {
        if self.hole {
            self.close_hole();
        }
        let mut entries: Vec<Key> = self.entries().collect();
        entries.sort_unstable();
        for (sequence, entry) in entries.iter_mut().enumerate() {
            *entry = key(time_of(*entry), sequence as u32, leaf_of(*entry));
        }
        self.sequence = entries.len() as u32;
        assert!(self.sequence < u32::MAX, "fewer events are pending than there are numbers");
        self.rebuild(self.nr_leaf_groups, &entries);
    }

    /// Every pending event, in the order of the leaves. It must not have holes.
    fn entries(&self) -> impl Iterator<Item = Key> + '_ {
        debug_assert!(!self.hole, "the vacated leaf still holds the last event");
        self.groups[..self.nr_leaf_groups].iter().flat_map(|group| group.0).filter(|entry| *entry != EMPTY)
    }

    /// A tree of `nr_leaf_groups` groups at the bottom with `entries` in their leaves.
    fn rebuild(&mut self, nr_leaf_groups: usize, entries: &[Key]) {
        let nr_groups = (0..).map(|level| nr_leaf_groups >> (2 * level)).take_while(|nr| *nr > 0).sum();
        self.groups.clear();
        self.groups.resize(nr_groups, Group([EMPTY; 4]));
        self.nr_leaf_groups = nr_leaf_groups;
        self.top = EMPTY;
        for entry in entries {
            self.enter(*entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A sorted vector, which the queue must equal.
    #[derive(Default)]
    struct Oracle {
        pending: Vec<(u64, u64, u64)>,
        sequence: u64,
    }

    impl Oracle {
        fn push(&mut self, at: u64, value: u64) {
            let entry = (at, self.sequence, value);
            self.sequence += 1;
            let place = self.pending.partition_point(|other| *other < entry);
            self.pending.insert(place, entry);
        }

        fn pop(&mut self) -> Option<(Nanos, u64)> {
            (!self.pending.is_empty()).then(|| self.pending.remove(0)).map(|(at, _, value)| (Nanos(at), value))
        }
    }

    fn compare(start: u32, steps: &[(u8, u64)]) -> Result<(), TestCaseError> {
        let mut queue = EventQueue { sequence: start, ..EventQueue::default() };
        let mut oracle = Oracle::default();
        for (nr, (action, at)) in steps.iter().enumerate() {
            if *action == 0 {
                prop_assert_eq!(queue.pop(), oracle.pop());
            } else {
                queue.push(Nanos(*at), nr as u64);
                oracle.push(*at, nr as u64);
            }
            prop_assert_eq!(queue.len(), oracle.pending.len());
            prop_assert_eq!(queue.is_empty(), oracle.pending.is_empty());
            prop_assert_eq!(queue.next_at(), oracle.pending.first().map(|entry| Nanos(entry.0)));
        }
        while let Some(expected) = oracle.pop() {
            prop_assert_eq!(queue.pop(), Some(expected));
        }
        prop_assert_eq!(queue.pop(), None);
        prop_assert_eq!(queue.next_at(), None);
        Ok(())
    }

    /// Times of which many are equal, some are far apart, and some are the last that there is.
    fn time() -> impl Strategy<Value = u64> {
        prop_oneof![4 => 0..4u64, 4 => 0..1000u64, 1 => any::<u64>(), 1 => Just(u64::MAX)]
    }

    proptest! {
        #[test]
        fn events_come_out_as_from_a_sorted_vector(steps in prop::collection::vec((0..3u8, time()), 0..400)) {
            compare(0, &steps)?;
        }

        #[test]
        fn events_keep_their_order_when_sequence_numbers_run_out(
            start in u32::MAX - 300..u32::MAX,
            steps in prop::collection::vec((0..3u8, 0..3u64), 300..600),
        ) {
            compare(start, &steps)?;
        }
    }

    #[test]
    fn equal_times_are_first_in_first_out_across_growth_and_holes() {
        let mut queue = EventQueue::default();
        (0..500u32).for_each(|value| queue.push(Nanos(7), value));
        for expected in 0..250 {
            assert_eq!(queue.pop(), Some((Nanos(7), expected)));
            queue.push(Nanos(7), 500 + expected);
        }
        for expected in 250..750 {
            assert_eq!(queue.pop(), Some((Nanos(7), expected)));
        }
        assert!(queue.is_empty());
    }

    #[test]
    fn numbers_dealt_anew_start_behind_the_pending_events() {
        let mut queue = EventQueue { sequence: u32::MAX - 2, ..EventQueue::default() };
        (0..4u32).for_each(|value| queue.push(Nanos(1), value));
        assert_eq!(queue.sequence, 4, "two were pending when the numbers ran out, and two have come since");
    }
}

//! Indexes over waiting requests, shared by the elevators.
//!
//! [`Sorted`] keeps them by start sector (the kernel's red-black tree), [`Fifo`] by age, [`Line`] in an order of the
//! elevator's own, and [`MergeHints`] finds the request that ends where a bio starts. All of them reuse their memory:
//! once a queue has seen its usual depth nothing is allocated. None iterates in an order that depends on a hash.

use crate::event::{Dir, MergeKind, RqId};
use crate::request::{Bio, Request, Requests};

/// Entries of a block of [`Sorted`]. A queue of usual depth is one block, where a search is six comparisons and an
/// insertion moves half a kilobyte.
const BLOCK: usize = 64;

/// No request, in the links of [`Fifo`] and [`EndHash`].
const NONE: u32 = u32::MAX;

/// The record of `rq` in a vector indexed by request number, which grows as numbers appear.
#[inline]
pub fn slot<T: Clone + Default>(records: &mut Vec<T>, rq: RqId) -> &mut T {
    let index = rq.0 as usize;
    if index >= records.len() {
        make_room(records, index);
    }
    &mut records[index]
}

#[cold]
fn make_room<T: Clone + Default>(records: &mut Vec<T>, index: usize) {
    records.resize(index + 1, T::default());
}

/// Requests in order of their start sector, equal ones in order of insertion.
#[derive(Clone, Debug, Default)]
pub struct Sorted {
    /// Blocks in order, none of them empty unless there is only one.
    blocks: Vec<Vec<(u64, RqId)>>,
    /// Emptied blocks, kept for their memory.
    spare: Vec<Vec<(u64, RqId)>>,
    len: usize,
}

impl Sorted {
    /// Requests in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The one with the lowest start sector.
    #[inline]
    pub fn first(&self) -> Option<RqId> {
        self.blocks.first()?.first().map(|entry| entry.1)
    }

    /// The earliest inserted of those that start at `sector`.
    #[inline]
    pub fn at(&self, sector: u64) -> Option<RqId> {
        let (block, index) = self.lower_bound(sector);
        match self.blocks.get(block) {
            Some(entries) if entries[index].0 == sector => Some(entries[index].1),
            _ => None,
        }
    }

    /// The request after `rq`, which was inserted with `sector`.
    #[inline]
    pub fn after(&self, sector: u64, rq: RqId) -> Option<RqId> {
        let (block, index) = self.find(sector, rq)?;
        match self.blocks[block].get(index + 1) {
            Some(entry) => Some(entry.1),
            None => self.blocks.get(block + 1).map(|next| next[0].1),
        }
    }

    /// The request before `rq`, which was inserted with `sector`.
    #[inline]
    pub fn before(&self, sector: u64, rq: RqId) -> Option<RqId> {
        let (block, index) = self.find(sector, rq)?;
        if index > 0 {
            Some(self.blocks[block][index - 1].1)
        } else if block > 0 {
            self.blocks[block - 1].last().map(|entry| entry.1)
        } else {
            None
        }
    }

    /// The first request that starts at `sector` or behind.
    #[inline]
    pub fn at_or_behind(&self, sector: u64) -> Option<RqId> {
        if let [only] = self.blocks.as_slice() {
            return only.get(only.partition_point(|entry| entry.0 < sector)).map(|entry| entry.1);
        }
        let (block, index) = self.lower_bound(sector);
        self.blocks.get(block).map(|entries| entries[index].1)
    }

    /// The last request that starts before `sector`, and the first that starts at it or behind.
    pub fn around(&self, sector: u64) -> (Option<RqId>, Option<RqId>) {
        let (block, index) = self.lower_bound(sector);
        let behind = self.blocks.get(block).map(|entries| entries[index].1);
        let before = match index.checked_sub(1) {
            Some(index) => Some(self.blocks[block][index].1),
            None => block.checked_sub(1).and_then(|block| self.blocks[block].last()).map(|entry| entry.1),
        };
        (before, behind)
    }

    /// Puts in `rq`, behind those with the same sector.
    #[inline]
    pub fn insert(&mut self, sector: u64, rq: RqId) {
        self.len += 1;
        match self.blocks.as_mut_slice() {
            [only] if only.len() + 1 < BLOCK => insert_into(only, sector, rq),
            _ => self.insert_into_many(sector, rq),
        }
    }

    /// The same without a block yet, or if the only one will be full, or with several.
    #[inline(never)]
    fn insert_into_many(&mut self, sector: u64, rq: RqId) {
        if self.blocks.is_empty() {
            self.blocks.push(Vec::with_capacity(BLOCK));
        }
        let last = self.blocks.len() - 1;
        let block = if last == 0 {
            0
        } else {
            self.blocks.partition_point(|entries| entries[entries.len() - 1].0 <= sector).min(last)
        };
        let entries = &mut self.blocks[block];
        insert_into(entries, sector, rq);
        if entries.len() == BLOCK {
            let mut upper = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(BLOCK));
            upper.extend(entries.drain(BLOCK / 2..));
            self.blocks.insert(block + 1, upper);
        }
    }

    /// Takes out `rq`, which was inserted with `sector`. Says whether it was there.
    #[inline]
    pub fn remove(&mut self, sector: u64, rq: RqId) -> bool {
        let place = self.find(sector, rq);
        if let Some((block, index)) = place {
            self.take_at(block, index);
        }
        place.is_some()
    }

    /// Takes out `rq`, which was inserted with `sector`, and returns the request after it.
    #[inline]
    pub fn take(&mut self, sector: u64, rq: RqId) -> Option<RqId> {
        if let [only] = self.blocks.as_mut_slice() {
            let first = only.partition_point(|entry| entry.0 < sector);
            let behind = only[first..].iter().position(|entry| entry.1 == rq);
            debug_assert!(behind.is_some_and(|behind| only[first + behind].0 == sector), "{rq:?} does not wait here");
            let index = first + behind?;
            self.len -= 1;
            return remove_from(only, index);
        }
        self.take_from_many(sector, rq)
    }

    #[inline(never)]
    fn take_from_many(&mut self, sector: u64, rq: RqId) -> Option<RqId> {
        let place = self.find(sector, rq);
        debug_assert!(place.is_some(), "request {} does not wait here", rq.0);
        let (block, index) = place?;
        self.take_at(block, index)
    }

    /// Takes out the entry at a place and returns the one that moved up.
    fn take_at(&mut self, block: usize, index: usize) -> Option<RqId> {
        self.len -= 1;
        let after = remove_from(&mut self.blocks[block], index);
        if after.is_some() || self.blocks.len() == 1 {
            return after;
        }
        let mut behind = block + 1;
        if self.blocks[block].is_empty() {
            let empty = self.blocks.remove(block);
            self.spare.push(empty);
            behind = block;
        }
        self.blocks.get(behind).map(|next| next[0].1)
    }

    /// Place of the first entry at or above `sector`; a block number past the end if there is none.
    #[inline]
    fn lower_bound(&self, sector: u64) -> (usize, usize) {
        let block = match self.blocks.as_slice() {
            [] => return (0, 0),
            [_] => 0,
            blocks => blocks.partition_point(|entries| entries[entries.len() - 1].0 < sector),
        };
        match self.blocks.get(block) {
            None => (block, 0),
            Some(entries) => {
                let index = entries.partition_point(|entry| entry.0 < sector);
                if index == entries.len() { (block + 1, 0) } else { (block, index) }
            }
        }
    }

    /// Place of `rq` among the entries that start at `sector`.
    #[inline]
    fn find(&self, sector: u64, rq: RqId) -> Option<(usize, usize)> {
        let (mut block, mut index) = self.lower_bound(sector);
        loop {
            let entries = self.blocks.get(block)?;
            match entries.get(index) {
                Some(entry) if entry.0 != sector => return None,
                Some(entry) if entry.1 == rq => return Some((block, index)),
                Some(_) => index += 1,
                None => (block, index) = (block + 1, 0),
            }
        }
    }
}

/// Puts an entry into its place in a block, behind those with the same sector.
#[inline]
fn insert_into(entries: &mut Vec<(u64, RqId)>, sector: u64, rq: RqId) {
    let index = entries.partition_point(|entry| entry.0 <= sector);
    if index == entries.len() {
        entries.push((sector, rq));
    } else {
        entries.insert(index, (sector, rq));
    }
}

/// Takes an entry out of a block and returns the request that moved up, if it was not the last.
#[inline]
fn remove_from(entries: &mut Vec<(u64, RqId)>, index: usize) -> Option<RqId> {
    if index + 1 == entries.len() {
        entries.pop();
        return None;
    }
    entries.remove(index);
    Some(entries[index].1)
}

/// A doubly linked list of requests: anything can be taken out of its middle.
#[derive(Clone, Debug)]
pub struct Fifo {
    /// Previous and next of each request; a request that is in no list points to itself.
    links: Vec<Link>,
    head: u32,
    tail: u32,
}

#[derive(Copy, Clone, Debug, Default)]
struct Link {
    prev: u32,
    next: u32,
}

impl Default for Fifo {
    fn default() -> Fifo {
        Fifo { links: Vec::new(), head: NONE, tail: NONE }
    }
}

impl Fifo {
    /// Whether nothing is in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// The oldest.
    #[inline]
    pub fn first(&self) -> Option<RqId> {
        (self.head != NONE).then_some(RqId(self.head))
    }

    /// Puts `rq` at the end.
    #[inline]
    pub fn push_back(&mut self, rq: RqId) {
        *slot(&mut self.links, rq) = Link { prev: self.tail, next: NONE };
        match self.tail {
            NONE => self.head = rq.0,
            tail => self.links[tail as usize].next = rq.0,
        }
        self.tail = rq.0;
    }

    /// Takes out `rq`, which must be in it.
    #[inline]
    pub fn remove(&mut self, rq: RqId) {
        let Link { prev, next } = self.links[rq.0 as usize];
        match prev {
            NONE => self.head = next,
            prev => self.links[prev as usize].next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => self.links[next as usize].prev = prev,
        }
    }

    /// Moves `rq` to the place just before `place`; both must be in it.
    pub fn move_before(&mut self, rq: RqId, place: RqId) {
        self.remove(rq);
        let prev = self.links[place.0 as usize].prev;
        self.links[rq.0 as usize] = Link { prev, next: place.0 };
        self.links[place.0 as usize].prev = rq.0;
        match prev {
            NONE => self.head = rq.0,
            prev => self.links[prev as usize].next = rq.0,
        }
    }
}

/// Buckets of [`EndHash`], a power of two.
const BUCKETS: usize = 64;

/// Requests by the sector after their last; the newest of equal ones is found first.
#[derive(Clone, Debug)]
pub struct EndHash {
    heads: [u32; BUCKETS],
    nodes: Vec<Node>,
}

#[derive(Copy, Clone, Debug)]
struct Node {
    end: u64,
    prev: u32,
    next: u32,
    present: bool,
}

impl Default for Node {
    fn default() -> Node {
        Node { end: 0, prev: NONE, next: NONE, present: false }
    }
}

impl Default for EndHash {
    fn default() -> EndHash {
        EndHash { heads: [NONE; BUCKETS], nodes: Vec::new() }
    }
}

impl EndHash {
    #[inline]
    fn bucket(end: u64) -> usize {
        (end.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize
    }

    /// Puts in `rq`, which ends before sector `end`.
    #[inline]
    pub fn insert(&mut self, rq: RqId, end: u64) {
        let bucket = EndHash::bucket(end);
        let next = self.heads[bucket];
        debug_assert!(!slot(&mut self.nodes, rq).present, "request {} is hashed twice", rq.0);
        *slot(&mut self.nodes, rq) = Node { end, prev: NONE, next, present: true };
        if next != NONE {
            self.nodes[next as usize].prev = rq.0;
        }
        self.heads[bucket] = rq.0;
    }

    /// Takes out `rq` if it is in.
    #[inline]
    pub fn remove(&mut self, rq: RqId) {
        let Some(&Node { end, prev, next, present: true }) = self.nodes.get(rq.0 as usize) else {
            return;
        };
        self.nodes[rq.0 as usize].present = false;
        match prev {
            NONE => self.heads[EndHash::bucket(end)] = next,
            prev => self.nodes[prev as usize].next = next,
        }
        if next != NONE {
            self.nodes[next as usize].prev = prev;
        }
    }

    /// The newest request that ends before sector `end` and is `wanted`.
    #[inline]
    pub fn find(&self, end: u64, wanted: impl Fn(RqId) -> bool) -> Option<RqId> {
        let mut at = self.heads[EndHash::bucket(end)];
        while at != NONE {
            let node = &self.nodes[at as usize];
            if node.end == end && wanted(RqId(at)) {
                return Some(RqId(at));
            }
            at = node.next;
        }
        None
    }
}

/// Whether requests of this state are joined at all.
#[inline]
pub fn mergeable(request: &Request) -> bool {
    !request.started && !request.flush && !request.no_merge
}

/// At which end `bio` could join `request`, the back tried first.
#[inline]
pub fn joins(request: &Request, bio: &Bio) -> Option<MergeKind> {
    if !mergeable(request) || request.dir != bio.dir || request.class != bio.class || bio.flush {
        None
    } else if request.end() == bio.sector {
        Some(MergeKind::Back)
    } else if bio.sector.plus(u64::from(bio.nr_sectors)) == request.sector {
        Some(MergeKind::Front)
    } else {
        None
    }
}

/// The look-ups that every sorting 2.6 elevator makes before its own: the request that was last merged into, then the
/// hash of end sectors.
#[derive(Clone, Debug, Default)]
pub struct MergeHints {
    hash: EndHash,
    last: Option<RqId>,
}

impl MergeHints {
    /// `rq` has been queued.
    #[inline]
    pub fn added(&mut self, requests: &Requests, rq: RqId) {
        if mergeable(&requests[rq]) {
            self.hash.insert(rq, requests[rq].end().0);
            // One that refused a merge has left the cache at once.
            self.last = self.last.filter(|last| !requests[*last].no_merge).or(Some(rq));
        }
    }

    /// The request that the two look-ups find, in their order.
    #[inline]
    pub fn find(&self, requests: &Requests, bio: &Bio) -> Option<(RqId, MergeKind)> {
        match self.last(requests, bio) {
            Some(found) => Some(found),
            None => self.back(requests, bio).map(|rq| (rq, MergeKind::Back)),
        }
    }

    /// `rq` has grown.
    #[inline]
    pub fn merged(&mut self, requests: &Requests, rq: RqId) {
        self.hash.remove(rq);
        self.hash.insert(rq, requests[rq].end().0);
        self.last = Some(rq);
    }

    /// `rq` has grown at this end. Kernels with one hash for all elevators (2.6.19 on) move it there only if its end
    /// has moved, so that of requests with one end it stays behind those that are newer (`elv_merged_request`).
    #[inline]
    pub fn grown(&mut self, requests: &Requests, rq: RqId, kind: MergeKind) {
        match kind {
            MergeKind::Back => self.merged(requests, rq),
            MergeKind::Front => self.last = Some(rq),
        }
    }

    /// `rq` is waiting no more.
    #[inline]
    pub fn removed(&mut self, rq: RqId) {
        self.hash.remove(rq);
        if self.last == Some(rq) {
            self.last = None;
        }
    }

    /// Nothing queued so far is to be found through the one-hit cache (a flush has been queued).
    pub fn forget_last(&mut self) {
        self.last = None;
    }

    /// The request last merged into.
    pub fn newest(&self) -> Option<RqId> {
        self.last
    }

    /// The newest request that ends before `sector` and may be joined.
    pub fn ending_at(&self, requests: &Requests, sector: u64) -> Option<RqId> {
        self.hash.find(sector, |rq| mergeable(&requests[rq]))
    }

    /// The request last merged into, if `bio` joins it as well.
    #[inline]
    pub fn last(&self, requests: &Requests, bio: &Bio) -> Option<(RqId, MergeKind)> {
        let rq = self.last?;
        joins(&requests[rq], bio).map(|kind| (rq, kind))
    }

    /// The request that ends where `bio` starts. The kernel looks at the newest such request only: if its direction is
    /// another, it does not merge at the back.
    #[inline]
    pub fn back(&self, requests: &Requests, bio: &Bio) -> Option<RqId> {
        let rq = self.ending_at(requests, bio.sector.0)?;
        (joins(&requests[rq], bio) == Some(MergeKind::Back)).then_some(rq)
    }
}

/// One request of a [`Line`]: the fields a scan looks at, close together, and the elevator's own data.
#[derive(Copy, Clone, Debug)]
pub struct LineEntry<T> {
    /// First sector.
    pub start: u64,
    /// Sector after the last.
    pub end: u64,
    /// The request.
    pub rq: RqId,
    /// Its direction.
    pub dir: Dir,
    /// A flush: neither merged nor passed by comparison of sectors.
    pub flush: bool,
    /// The elevator's own.
    pub own: T,
}

/// Requests in an order that the elevator chooses; scanned from end to end, taken from the front.
#[derive(Clone, Debug)]
pub struct Line<T> {
    entries: Vec<LineEntry<T>>,
    head: usize,
}

impl<T> Default for Line<T> {
    fn default() -> Line<T> {
        Line { entries: Vec::new(), head: 0 }
    }
}

impl<T: Copy> Line<T> {
    /// Everything in it, front first.
    #[inline]
    pub fn entries(&self) -> &[LineEntry<T>] {
        &self.entries[self.head..]
    }

    /// The same, to be changed.
    #[inline]
    pub fn entries_mut(&mut self) -> &mut [LineEntry<T>] {
        &mut self.entries[self.head..]
    }

    /// Puts `rq` to place `index`, 0 being the front.
    #[inline]
    pub fn insert(&mut self, index: usize, requests: &Requests, rq: RqId, own: T) {
        let Request { dir, flush, sector, .. } = requests[rq];
        let entry = LineEntry { start: sector.0, end: requests[rq].end().0, rq, dir, flush, own };
        self.entries.insert(self.head + index, entry);
    }

    /// Puts `rq` at the end.
    #[inline]
    pub fn push_back(&mut self, requests: &Requests, rq: RqId, own: T) {
        self.insert(self.entries().len(), requests, rq, own);
    }

    /// Takes the front.
    #[inline]
    pub fn pop_front(&mut self) -> Option<RqId> {
        let rq = self.entries().first()?.rq;
        self.head += 1;
        // The room at the front is reused once it is worth one move of the rest.
        if self.head >= 64 && 2 * self.head >= self.entries.len() {
            self.entries.drain(..self.head);
            self.head = 0;
        }
        Some(rq)
    }

    /// Where `rq` is.
    pub fn position(&self, rq: RqId) -> Option<usize> {
        self.entries().iter().rposition(|entry| entry.rq == rq)
    }

    /// Takes out the entry at `index`.
    pub fn remove(&mut self, index: usize) -> LineEntry<T> {
        self.entries.remove(self.head + index)
    }

    /// The request at `index` has grown.
    pub fn grown(&mut self, index: usize, requests: &Requests) {
        let entry = &mut self.entries[self.head + index];
        entry.start = requests[entry.rq].sector.0;
        entry.end = requests[entry.rq].end().0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, VecDeque};

    proptest! {
        /// Against a tree keyed by (sector, order of insertion), with few sectors so that equal ones are common.
        #[test]
        fn sorted_is_a_tree(
            steps in proptest::collection::vec((0u64..400, any::<bool>()), 1..600),
            spread in prop_oneof![Just(1u64), Just(7), Just(1 << 40)],
        ) {
            let mut sorted = Sorted::default();
            let mut tree: BTreeMap<(u64, u32), RqId> = BTreeMap::new();
            for (turn, (value, removes)) in steps.into_iter().enumerate() {
                let sector = value / 2 * spread;
                if removes && !tree.is_empty() {
                    let at = (value as usize) % tree.len();
                    let (&key, &rq) = tree.iter().nth(at).unwrap();
                    tree.remove(&key);
                    let behind = tree.range(key..).next().map(|(_, &rq)| rq);
                    if value % 2 == 0 {
                        prop_assert_eq!(sorted.take(key.0, rq), behind);
                    } else {
                        prop_assert!(sorted.remove(key.0, rq));
                    }
                    prop_assert!(!sorted.remove(key.0, rq));
                } else {
                    let rq = RqId(turn as u32);
                    tree.insert((sector, turn as u32), rq);
                    sorted.insert(sector, rq);
                }
                prop_assert_eq!(sorted.len(), tree.len());
                prop_assert_eq!(sorted.is_empty(), tree.is_empty());
                prop_assert_eq!(sorted.first(), tree.values().next().copied());
                let equal = tree.range((sector, 0)..=(sector, u32::MAX)).next().map(|(_, &rq)| rq);
                prop_assert_eq!(sorted.at(sector), equal);
                let before = tree.range(..(sector, 0)).next_back().map(|(_, &rq)| rq);
                let behind = tree.range((sector, 0)..).next().map(|(_, &rq)| rq);
                prop_assert_eq!(sorted.around(sector), (before, behind));
                prop_assert_eq!(sorted.at_or_behind(sector), behind);
            }
            let order: Vec<_> = tree.iter().map(|(&(sector, _), &rq)| (sector, rq)).collect();
            for (place, &(sector, rq)) in order.iter().enumerate() {
                prop_assert_eq!(sorted.after(sector, rq), order.get(place + 1).map(|entry| entry.1));
                prop_assert_eq!(sorted.before(sector, rq), place.checked_sub(1).map(|before| order[before].1));
            }
        }

        /// Against a deque.
        #[test]
        fn fifo_is_a_list(steps in proptest::collection::vec((0u8..3, 0usize..1000, 0usize..1000), 1..200)) {
            let mut fifo = Fifo::default();
            let mut list: VecDeque<RqId> = VecDeque::new();
            for (turn, (what, a, b)) in steps.into_iter().enumerate() {
                match what {
                    1 if !list.is_empty() => fifo.remove(list.remove(a % list.len()).unwrap()),
                    2 if list.len() >= 2 && a % list.len() != b % list.len() => {
                        let (moved, place) = (list[a % list.len()], list[b % list.len()]);
                        fifo.move_before(moved, place);
                        list.retain(|&rq| rq != moved);
                        let at = list.iter().position(|&rq| rq == place).unwrap();
                        list.insert(at, moved);
                    }
                    _ => {
                        fifo.push_back(RqId(turn as u32));
                        list.push_back(RqId(turn as u32));
                    }
                }
                prop_assert_eq!(fifo.first(), list.front().copied());
                prop_assert_eq!(fifo.is_empty(), list.is_empty());
            }
            while let Some(rq) = list.pop_front() {
                prop_assert_eq!(fifo.first(), Some(rq));
                fifo.remove(rq);
            }
            prop_assert!(fifo.is_empty());
        }

        /// Against a list searched from its newest end.
        #[test]
        fn the_hash_finds_the_newest(
            steps in proptest::collection::vec((any::<bool>(), 0u64..8, 0usize..1000), 1..200),
        ) {
            let mut hash = EndHash::default();
            let mut list: Vec<(u64, RqId)> = Vec::new();
            for (turn, (removes, end, at)) in steps.into_iter().enumerate() {
                if removes && !list.is_empty() {
                    let (_, rq) = list.remove(at % list.len());
                    hash.remove(rq);
                    hash.remove(rq);
                } else {
                    hash.insert(RqId(turn as u32), end);
                    list.push((end, RqId(turn as u32)));
                }
                for end in 0..8 {
                    let newest = list.iter().rev().find(|entry| entry.0 == end).map(|entry| entry.1);
                    prop_assert_eq!(hash.find(end, |_| true), newest);
                    prop_assert_eq!(hash.find(end, |_| false), None);
                }
            }
        }
    }

    #[test]
    fn thousands_of_requests_stay_in_order() {
        let mut sorted = Sorted::default();
        for i in 0..8192u64 {
            sorted.insert(i * 2_654_435_761 % 8192, RqId(i as u32));
        }
        let mut out = Vec::new();
        while let Some(rq) = sorted.first() {
            let sector = u64::from(rq.0) * 2_654_435_761 % 8192;
            assert!(sorted.remove(sector, rq));
            out.push(sector);
        }
        assert!(out.windows(2).all(|pair| pair[0] < pair[1]), "not in order");
        assert_eq!(out.len(), 8192);
    }
}

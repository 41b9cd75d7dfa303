//! The folios of a control group: their names, and the lists and batches that they are in.
//!
//! A folio is on one of `N` lists, or on none: new, in a batch, or taken off by a scan. A list is a ring through two
//! numbers a folio, closed by an end that also counts the pages; so neither the first nor the last folio is special.
//! Ends come before the folios, and names count from the first folio. The name that became free last is given again
//! first, which keeps the arrays short that drivers index by names.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

/// Names a folio on the lists.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FolioId(pub u32);

/// Folios that a processor will move, in this order.
pub(super) type Batch = VecDeque<FolioId>;

/// A folio with a policy's marks, or the end of a list.
#[derive(Clone, Debug)]
pub(super) struct Node<M> {
    list: Option<u8>,
    /// The neighbour nearer to the head.
    newer: u32,
    /// The neighbour nearer to the tail.
    older: u32,
    /// Of the folio, 0 if the name is free; of the whole list.
    pub(super) nr_pages: u64,
    pub(super) dropbehind: bool,
    pub(super) marks: M,
}

/// All folios, on `N` lists that go by number.
#[derive(Clone, Debug)]
pub(super) struct Chain<M, const N: usize> {
    nodes: Vec<Node<M>>,
    free: Vec<FolioId>,
    /// Entries of a batch.
    batch: usize,
}

impl<M: Default, const N: usize> Chain<M, N> {
    pub(super) fn new(batch: usize) -> Chain<M, N> {
        let end = |at| Node { list: None, newer: at, older: at, nr_pages: 0, dropbehind: false, marks: M::default() };
        Chain { nodes: (0..N as u32).map(end).collect(), free: Vec::new(), batch }
    }

    /// Names a folio, which is on no list yet.
    pub(super) fn add(&mut self, nr_pages: u64, dropbehind: bool, marks: M) -> FolioId {
        assert!(nr_pages > 0, "a folio has pages");
        let node = Node { list: None, newer: 0, older: 0, nr_pages, dropbehind, marks };
        if let Some(folio) = self.free.pop() {
            self[folio] = node;
            return folio;
        }
        self.nodes.push(node);
        FolioId((self.nodes.len() - N) as u32 - 1)
    }

    /// Takes a folio off its list and forgets it; its name may be given again.
    pub(super) fn release(&mut self, folio: FolioId) {
        self.take_off(folio);
        self[folio].nr_pages = 0;
        self.free.push(folio);
    }

    /// Adds a folio to a batch. Returns whether the batch is to be emptied: it is full, or the folio is large.
    pub(super) fn enter(&self, batch: &mut Batch, folio: FolioId) -> bool {
        batch.push_back(folio);
        batch.len() >= self.batch || self[folio].nr_pages > 1
    }

    pub(super) fn is_listed(&self, folio: FolioId) -> bool {
        self[folio].list.is_some()
    }

    /// Pages on a list.
    pub(super) fn nr_pages(&self, list: u8) -> u64 {
        self.nodes[usize::from(list)].nr_pages
    }

    /// The tail of a list.
    pub(super) fn oldest(&self, list: u8) -> Option<FolioId> {
        self.newer_than(&self.nodes[usize::from(list)])
    }

    pub(super) fn oldest_first(&self, list: u8) -> impl Iterator<Item = FolioId> + '_ {
        std::iter::successors(self.oldest(list), |folio| self.newer_than(&self[*folio]))
    }

    fn newer_than(&self, node: &Node<M>) -> Option<FolioId> {
        node.newer.checked_sub(N as u32).map(FolioId)
    }

    /// Puts a folio at the head of a list, wherever it was.
    pub(super) fn put_newest(&mut self, folio: FolioId, list: u8) {
        self.take_off(folio);
        let older = self.nodes[usize::from(list)].older;
        self.put(folio, list, u32::from(list), older);
    }

    /// Puts a folio at the tail of a list, wherever it was.
    pub(super) fn put_oldest(&mut self, folio: FolioId, list: u8) {
        self.take_off(folio);
        let newer = self.nodes[usize::from(list)].newer;
        self.put(folio, list, newer, u32::from(list));
    }

    fn put(&mut self, folio: FolioId, list: u8, newer: u32, older: u32) {
        let node = &mut self[folio];
        (node.list, node.newer, node.older) = (Some(list), newer, older);
        let nr_pages = node.nr_pages;
        self.join(N as u32 + folio.0, older);
        self.join(newer, N as u32 + folio.0);
        self.nodes[usize::from(list)].nr_pages += nr_pages;
    }

    /// Takes a folio off its list, if it is on one.
    pub(super) fn take_off(&mut self, folio: FolioId) {
        let Node { newer, older, nr_pages, ref mut list, .. } = self[folio];
        debug_assert!(nr_pages > 0, "{folio:?} is free");
        if let Some(list) = list.take() {
            self.join(newer, older);
            self.nodes[usize::from(list)].nr_pages -= nr_pages;
        }
    }

    fn join(&mut self, newer: u32, older: u32) {
        self.nodes[newer as usize].older = older;
        self.nodes[older as usize].newer = newer;
    }
}

impl<M, const N: usize> Index<FolioId> for Chain<M, N> {
    type Output = Node<M>;

    fn index(&self, folio: FolioId) -> &Node<M> {
        &self.nodes[N + folio.0 as usize]
    }
}

impl<M, const N: usize> IndexMut<FolioId> for Chain<M, N> {
    fn index_mut(&mut self, folio: FolioId) -> &mut Node<M> {
        &mut self.nodes[N + folio.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lists_are_those_of_plain_vectors(steps in prop::collection::vec((0..5u8, 0..3u8, 0..9usize), 0..200)) {
            let mut chain = Chain::<(), 3>::new(2);
            let (mut lists, mut names) = (vec![VecDeque::new(); 3], Vec::new());
            for (action, list, at) in steps {
                if names.len() <= at {
                    names.push(chain.add(at as u64 + 1, false, ()));
                    continue;
                }
                let folio = names[at];
                lists.iter_mut().for_each(|list| list.retain(|other| *other != folio));
                match action {
                    0 => chain.take_off(folio),
                    1 => {
                        chain.release(folio);
                        prop_assert_eq!(chain.add(at as u64 + 1, false, ()), folio, "it is free last");
                    }
                    2 => {
                        chain.put_oldest(folio, list);
                        lists[usize::from(list)].push_front(folio);
                    }
                    _ => {
                        chain.put_newest(folio, list);
                        lists[usize::from(list)].push_back(folio);
                    }
                }
                prop_assert_eq!(chain.is_listed(folio), action > 1);
                for (list, folios) in (0..).zip(&lists) {
                    prop_assert_eq!(&chain.oldest_first(list).collect::<VecDeque<_>>(), folios);
                    let nr_pages: u64 = folios.iter().map(|folio| chain[*folio].nr_pages).sum();
                    prop_assert_eq!(chain.nr_pages(list), nr_pages);
                }
            }
        }
    }
}

//! Bios in flight on one device, by their sectors.
//!
//! A red-black tree ordered by first sector (Cormen et al., *Introduction to Algorithms*, chapter 13; nodes live in a
//! vector and are reused). btt keeps such a tree and stops looking at the first bio that holds a
//! sector, so where bios in flight overlap its answers depend on the shape of the tree; a tree with the same rules
//! gives the same answers. While nothing overlaps the shape does not matter, and a small table from sectors to nodes
//! finds nearly all bios without going down the tree.

/// No node.
const NIL: u32 = u32::MAX;
/// No time.
pub(super) const NEVER: u64 = u64::MAX;
/// Entries of the table of hints; a power of two.
const HINTS: usize = 256;

/// A bio in flight and when it passed which stage, ns; [`NEVER`] if it did not.
#[derive(Copy, Clone, Debug)]
pub(super) struct Bio {
    /// First sector.
    pub(super) start: u64,
    /// Sector after the last whole one.
    pub(super) end: u64,
    pub(super) queued: u64,
    /// Had to wait for a request.
    pub(super) slept: u64,
    /// Got a request.
    pub(super) allocated: u64,
    /// Joined a request.
    pub(super) merged: u64,
    /// Its request was given to the elevator.
    pub(super) inserted: u64,
    /// Its request was given to the driver.
    pub(super) issued: u64,
}

impl Bio {
    /// A bio that was queued just now.
    pub(super) fn new(start: u64, end: u64, queued: u64) -> Bio {
        Bio { start, end, queued, slept: NEVER, allocated: NEVER, merged: NEVER, inserted: NEVER, issued: NEVER }
    }
}

#[derive(Copy, Clone, Debug)]
struct Node {
    bio: Bio,
    /// Left and right child.
    child: [u32; 2],
    parent: u32,
    red: bool,
}

/// Bios in flight.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    free: Vec<u32>,
    root: u32,
    /// Bios have overlapped since the tree was last empty, so its shape matters.
    overlapped: bool,
    hints: Vec<u32>,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree { nodes: Vec::new(), free: Vec::new(), root: NIL, overlapped: false, hints: vec![NIL; HINTS] }
    }
}

/// Where the hint for a bio that begins at `sector` is kept.
#[inline]
fn slot(sector: u64) -> usize {
    (sector.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - HINTS.trailing_zeros())) as usize
}

impl Tree {
    /// Bios in flight.
    pub(super) fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// The bio of a number that a search gave.
    #[inline]
    pub(super) fn bio(&mut self, index: u32) -> &mut Bio {
        &mut self.nodes[index as usize].bio
    }

    /// Adds a bio. One in flight that begins at the same sector is forgotten.
    pub(super) fn insert(&mut self, bio: Bio) {
        let mut parent = NIL;
        let mut side = 0;
        let mut at = self.root;
        let mut overlaps = bio.start == bio.end;
        while at != NIL {
            let node = &self.nodes[at as usize];
            let (start, end) = (node.bio.start, node.bio.end);
            overlaps |= start != bio.start && start < bio.end && bio.start < end;
            parent = at;
            if bio.start == start {
                // A longer one may reach into the next, which was not looked at.
                self.overlapped |= bio.end > end || overlaps;
                self.nodes[at as usize].bio = bio;
                return;
            }
            side = usize::from(bio.start > start);
            at = node.child[side];
        }
        self.overlapped |= overlaps;
        let node = Node { bio, child: [NIL; 2], parent, red: true };
        let index = match self.free.pop() {
            Some(index) => {
                self.nodes[index as usize] = node;
                index
            }
            None => {
                self.nodes.push(node);
                u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 bios are in flight")
            }
        };
        if parent == NIL {
            self.root = index;
        } else {
            self.nodes[parent as usize].child[side] = index;
        }
        self.hints[slot(bio.start)] = index;
        self.settle_insertion(index);
    }

    /// The bio found first that holds `sector`.
    #[inline]
    pub(super) fn find(&self, sector: u64) -> Option<u32> {
        if !self.overlapped
            && let Some(node) = self.nodes.get(self.hints[slot(sector)] as usize)
            && node.bio.start == sector
        {
            return Some(self.hints[slot(sector)]);
        }
        let mut at = self.root;
        while at != NIL {
            let node = &self.nodes[at as usize];
            at = if sector < node.bio.start {
                node.child[0]
            } else if sector >= node.bio.end {
                node.child[1]
            } else {
                return Some(at);
            };
        }
        None
    }

    /// Appends the bios within `start .. end` to `found`.
    #[inline]
    pub(super) fn within(&self, start: u64, end: u64, found: &mut Vec<u32>) {
        if !self.overlapped {
            let hint = self.hints[slot(start)];
            if let Some(node) = self.nodes.get(hint as usize)
                && node.bio.start == start
                && node.bio.end == end
            {
                found.push(hint);
                return;
            }
        }
        self.walk(self.root, start, end, found);
    }

    fn walk(&self, at: u32, start: u64, end: u64, found: &mut Vec<u32>) {
        if at == NIL {
            return;
        }
        let node = &self.nodes[at as usize];
        if start <= node.bio.start && node.bio.end <= end {
            found.push(at);
        }
        if start < node.bio.start {
            self.walk(node.child[0], start, end, found);
        }
        if node.bio.end < end {
            self.walk(node.child[1], start, end, found);
        }
    }

    /// Takes a bio out.
    pub(super) fn remove(&mut self, index: u32) {
        let Node { bio, child: [left, right], parent, red } = self.nodes[index as usize];
        // `hole` is what moved up (perhaps nothing), below `above`; `lost_black` says whether a black node is missing.
        let (hole, above, lost_red);
        if left == NIL || right == NIL {
            hole = if left == NIL { right } else { left };
            above = parent;
            lost_red = red;
            self.replace(index, hole, parent);
        } else {
            let mut next = right;
            while self.nodes[next as usize].child[0] != NIL {
                next = self.nodes[next as usize].child[0];
            }
            hole = self.nodes[next as usize].child[1];
            lost_red = self.nodes[next as usize].red;
            let next_parent = self.nodes[next as usize].parent;
            if next_parent == index {
                above = next;
            } else {
                above = next_parent;
                self.replace(next, hole, next_parent);
                self.nodes[next as usize].child[1] = right;
                self.nodes[right as usize].parent = next;
            }
            self.replace(index, next, parent);
            self.nodes[next as usize].child[0] = left;
            self.nodes[left as usize].parent = next;
            self.nodes[next as usize].red = red;
        }
        if !lost_red {
            self.settle_removal(hole, above);
        }
        let hint = &mut self.hints[slot(bio.start)];
        if *hint == index {
            *hint = NIL;
        }
        self.free.push(index);
        if self.root == NIL {
            self.overlapped = false;
        }
    }

    /// Puts `new` where `old` hangs below `parent`.
    fn replace(&mut self, old: u32, new: u32, parent: u32) {
        if parent == NIL {
            self.root = new;
        } else {
            let children = &mut self.nodes[parent as usize].child;
            children[usize::from(children[1] == old)] = new;
        }
        if new != NIL {
            self.nodes[new as usize].parent = parent;
        }
    }

    fn is_red(&self, index: u32) -> bool {
        index != NIL && self.nodes[index as usize].red
    }

    /// Turns the tree at `at` so that its child on the other side comes up and `at` goes down to `side`.
    fn rotate(&mut self, at: u32, side: usize) {
        let up = self.nodes[at as usize].child[1 - side];
        let inner = self.nodes[up as usize].child[side];
        let parent = self.nodes[at as usize].parent;
        self.nodes[at as usize].child[1 - side] = inner;
        if inner != NIL {
            self.nodes[inner as usize].parent = at;
        }
        self.replace(at, up, parent);
        self.nodes[up as usize].child[side] = at;
        self.nodes[at as usize].parent = up;
    }

    fn settle_insertion(&mut self, mut at: u32) {
        while self.is_red(self.nodes[at as usize].parent) {
            let mut parent = self.nodes[at as usize].parent;
            let grand = self.nodes[parent as usize].parent;
            let side = usize::from(self.nodes[grand as usize].child[1] == parent);
            let uncle = self.nodes[grand as usize].child[1 - side];
            if self.is_red(uncle) {
                self.nodes[parent as usize].red = false;
                self.nodes[uncle as usize].red = false;
                self.nodes[grand as usize].red = true;
                at = grand;
                continue;
            }
            if self.nodes[parent as usize].child[1 - side] == at {
                self.rotate(parent, side);
                std::mem::swap(&mut parent, &mut at);
            }
            self.nodes[parent as usize].red = false;
            self.nodes[grand as usize].red = true;
            self.rotate(grand, 1 - side);
        }
        let root = self.root as usize;
        self.nodes[root].red = false;
    }

    fn settle_removal(&mut self, mut at: u32, mut parent: u32) {
        while at != self.root && !self.is_red(at) {
            let side = usize::from(self.nodes[parent as usize].child[1] == at);
            let mut sibling = self.nodes[parent as usize].child[1 - side];
            if self.is_red(sibling) {
                self.nodes[sibling as usize].red = false;
                self.nodes[parent as usize].red = true;
                self.rotate(parent, side);
                sibling = self.nodes[parent as usize].child[1 - side];
            }
            let [near, far] = [side, 1 - side].map(|which| self.nodes[sibling as usize].child[which]);
            if !self.is_red(near) && !self.is_red(far) {
                self.nodes[sibling as usize].red = true;
                at = parent;
                parent = self.nodes[at as usize].parent;
                continue;
            }
            if !self.is_red(far) {
                self.nodes[near as usize].red = false;
                self.nodes[sibling as usize].red = true;
                self.rotate(sibling, 1 - side);
                sibling = self.nodes[parent as usize].child[1 - side];
            }
            self.nodes[sibling as usize].red = self.nodes[parent as usize].red;
            self.nodes[parent as usize].red = false;
            let far = self.nodes[sibling as usize].child[1 - side];
            if far != NIL {
                self.nodes[far as usize].red = false;
            }
            self.rotate(parent, side);
            at = self.root;
        }
        if at != NIL {
            self.nodes[at as usize].red = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iowhy_stack::rng::Rng;

    /// Black nodes on every way down from `at`, having checked colours, order and links.
    fn check(tree: &Tree, at: u32, keys: &mut Vec<(u64, u64)>) -> usize {
        if at == NIL {
            return 1;
        }
        let node = tree.nodes[at as usize];
        for child in node.child {
            if child != NIL {
                assert_eq!(tree.nodes[child as usize].parent, at);
                assert!(!(node.red && tree.nodes[child as usize].red), "two red nodes in a row");
            }
        }
        let left = check(tree, node.child[0], keys);
        keys.push((node.bio.start, node.bio.end));
        let right = check(tree, node.child[1], keys);
        assert_eq!(left, right, "unequal black heights");
        left + usize::from(!node.red)
    }

    #[test]
    fn stays_balanced_and_finds_what_a_list_finds() {
        let mut rng = Rng::stream(1, "tree");
        let mut tree = Tree::default();
        let mut list: Vec<(u64, u64)> = Vec::new();
        for step in 0..4000u64 {
            // Multiples of 8 never overlap in part, so there is one right answer.
            let start = rng.below(200) * 8;
            if rng.below(2) == 0 {
                tree.insert(Bio::new(start, start + 8, step));
                if !list.contains(&(start, start + 8)) {
                    list.push((start, start + 8));
                }
            } else if let Some(index) = tree.find(start + rng.below(8)) {
                let bio = *tree.bio(index);
                assert!(bio.start <= start + 7 && start < bio.end);
                tree.remove(index);
                list.retain(|known| known.0 != bio.start);
            } else {
                assert!(!list.iter().any(|known| known.0 == start));
            }
            let mut keys = Vec::new();
            check(&tree, tree.root, &mut keys);
            list.sort_unstable();
            assert_eq!(keys, list);
            assert_eq!(tree.len(), list.len());
            let (low, high) = (rng.below(100) * 8, 800 + rng.below(100) * 8);
            let mut found = Vec::new();
            tree.within(low, high, &mut found);
            let mut found: Vec<_> = found.iter().map(|index| tree.bio(*index).start).collect();
            found.sort_unstable();
            let expected: Vec<u64> =
                list.iter().filter(|(start, end)| low <= *start && *end <= high).map(|bio| bio.0).collect();
            assert_eq!(found, expected);
        }
    }
}

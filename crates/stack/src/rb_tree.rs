//! A red-black tree whose shape is the kernel's: some policies take what their walk through the tree meets first.
//!
//! ```text
//! insert   as a red leaf behind those of an equal key; a red parent is mended by colouring (red uncle) or rotating
//! remove   one with two children changes places with the next one; a missing black is mended from its place upwards
//! ```
//! Source: Linux 2.6.12 to 7.2, `lib/rbtree.c` (the textbook's algorithm). Elements are small numbers, which index a
//! table; none is in the tree twice.

/// No node.
const NONE: usize = usize::MAX;

#[derive(Copy, Clone, Debug)]
struct Node {
    key: u64,
    parent: usize,
    /// Left, right.
    child: [usize; 2],
    red: bool,
    present: bool,
}

const ABSENT: Node = Node { key: 0, parent: NONE, child: [NONE; 2], red: false, present: false };

/// A side of a node.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Side {
    /// Smaller keys.
    Left,
    /// Larger and equal ones.
    Right,
}

/// The tree.
#[derive(Clone, Debug)]
pub struct RbTree {
    root: usize,
    nodes: Vec<Node>,
}

impl Default for RbTree {
    fn default() -> RbTree {
        RbTree { root: NONE, nodes: Vec::new() }
    }
}

fn some(node: usize) -> Option<usize> {
    (node != NONE).then_some(node)
}

impl RbTree {
    /// The node at the top.
    pub fn root(&self) -> Option<usize> {
        some(self.root)
    }

    /// The node below `node` on this side.
    pub fn below(&self, node: usize, side: Side) -> Option<usize> {
        some(self.nodes[node].child[side as usize])
    }

    /// Whether it is in the tree.
    pub fn contains(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|node| node.present)
    }

    /// The key of a node.
    pub fn key(&self, node: usize) -> u64 {
        self.nodes[node].key
    }

    /// Changes a key, though not the node's place.
    pub fn set_key(&mut self, node: usize, key: u64) {
        self.nodes[node].key = key;
    }

    /// The node next to `node` in the order of keys, on this side.
    pub fn neighbour(&self, node: usize, side: Side) -> Option<usize> {
        let (side, other) = (side as usize, 1 - side as usize);
        let mut at = self.nodes[node].child[side];
        if at != NONE {
            while self.nodes[at].child[other] != NONE {
                at = self.nodes[at].child[other];
            }
            return Some(at);
        }
        let (mut child, mut parent) = (node, self.nodes[node].parent);
        while parent != NONE && self.nodes[parent].child[side] == child {
            (child, parent) = (parent, self.nodes[parent].parent);
        }
        some(parent)
    }

    /// Where a search for a key ends: at the node that has it, or at the last one on the way.
    pub fn search(&self, key: u64) -> Option<usize> {
        let (mut at, mut last) = (self.root, NONE);
        while at != NONE {
            last = at;
            let node = &self.nodes[at];
            at = match key.cmp(&node.key) {
                std::cmp::Ordering::Less => node.child[0],
                std::cmp::Ordering::Equal => NONE,
                std::cmp::Ordering::Greater => node.child[1],
            };
        }
        some(last)
    }

    /// Puts in a node that is not there.
    pub fn insert(&mut self, node: usize, key: u64) {
        if node >= self.nodes.len() {
            self.nodes.resize(node + 1, ABSENT);
        }
        debug_assert!(!self.nodes[node].present, "{node} is in the tree twice");
        let (mut parent, mut side, mut at) = (NONE, 0, self.root);
        while at != NONE {
            (parent, side) = (at, usize::from(key >= self.nodes[at].key));
            at = self.nodes[at].child[side];
        }
        self.nodes[node] = Node { key, parent, child: [NONE; 2], red: true, present: true };
        match parent {
            NONE => self.root = node,
            _ => self.nodes[parent].child[side] = node,
        }
        self.mend_red(node);
    }

    fn is_red(&self, node: usize) -> bool {
        node != NONE && self.nodes[node].red
    }

    fn side_of(&self, node: usize) -> usize {
        usize::from(self.nodes[self.nodes[node].parent].child[1] == node)
    }

    /// Puts `new` where `old` is, as far as the node above is concerned.
    fn replace(&mut self, old: usize, new: usize) {
        let parent = self.nodes[old].parent;
        match parent {
            NONE => self.root = new,
            _ => {
                let side = self.side_of(old);
                self.nodes[parent].child[side] = new;
            }
        }
        if new != NONE {
            self.nodes[new].parent = parent;
        }
    }

    /// Turns a node down to `side`; its child of the other side takes its place.
    fn rotate(&mut self, node: usize, side: usize) {
        let up = self.nodes[node].child[1 - side];
        let between = self.nodes[up].child[side];
        self.replace(node, up);
        self.nodes[node].child[1 - side] = between;
        if between != NONE {
            self.nodes[between].parent = node;
        }
        self.nodes[up].child[side] = node;
        self.nodes[node].parent = up;
    }

    fn mend_red(&mut self, mut node: usize) {
        while self.is_red(self.nodes[node].parent) {
            let mut parent = self.nodes[node].parent;
            let grand = self.nodes[parent].parent;
            let side = self.side_of(parent);
            let uncle = self.nodes[grand].child[1 - side];
            if self.is_red(uncle) {
                (self.nodes[parent].red, self.nodes[uncle].red, self.nodes[grand].red) = (false, false, true);
                node = grand;
                continue;
            }
            if self.side_of(node) != side {
                self.rotate(parent, side);
                parent = node;
            }
            (self.nodes[parent].red, self.nodes[grand].red) = (false, true);
            self.rotate(grand, 1 - side);
            break;
        }
        self.nodes[self.root].red = false;
    }

    /// Takes out a node that is there.
    pub fn remove(&mut self, node: usize) {
        let [left, right] = self.nodes[node].child;
        let (child, parent, lost_red);
        if left == NONE || right == NONE {
            child = if left == NONE { right } else { left };
            (parent, lost_red) = (self.nodes[node].parent, self.nodes[node].red);
            self.replace(node, child);
        } else {
            let mut next = right;
            while self.nodes[next].child[0] != NONE {
                next = self.nodes[next].child[0];
            }
            child = self.nodes[next].child[1];
            lost_red = self.nodes[next].red;
            if next == right {
                parent = next;
            } else {
                parent = self.nodes[next].parent;
                self.replace(next, child);
                self.nodes[next].child[1] = right;
                self.nodes[right].parent = next;
            }
            self.replace(node, next);
            self.nodes[next].child[0] = left;
            self.nodes[left].parent = next;
            self.nodes[next].red = self.nodes[node].red;
        }
        self.nodes[node] = ABSENT;
        if !lost_red {
            self.mend_black(child, parent);
        }
    }

    /// Everything below `node`, a child of `parent`, has one black too few above it.
    fn mend_black(&mut self, mut node: usize, mut parent: usize) {
        while node != self.root && !self.is_red(node) {
            let side = usize::from(self.nodes[parent].child[1] == node);
            let mut sibling = self.nodes[parent].child[1 - side];
            if self.is_red(sibling) {
                (self.nodes[sibling].red, self.nodes[parent].red) = (false, true);
                self.rotate(parent, side);
                sibling = self.nodes[parent].child[1 - side];
            }
            let [near, far] = [side, 1 - side].map(|side| self.nodes[sibling].child[side]);
            if !self.is_red(near) && !self.is_red(far) {
                self.nodes[sibling].red = true;
                (node, parent) = (parent, self.nodes[parent].parent);
                continue;
            }
            if !self.is_red(far) {
                (self.nodes[near].red, self.nodes[sibling].red) = (false, true);
                self.rotate(sibling, 1 - side);
                sibling = near;
            }
            self.nodes[sibling].red = self.nodes[parent].red;
            let far = self.nodes[sibling].child[1 - side];
            (self.nodes[parent].red, self.nodes[far].red) = (false, false);
            self.rotate(parent, side);
            node = self.root;
        }
        if node != NONE {
            self.nodes[node].red = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    impl RbTree {
        /// Blacks on each way down from here; asserts order of nodes and the two rules of colours.
        fn check(&self, node: usize) -> u32 {
            if node == NONE {
                return 0;
            }
            let Node { key, child, red, .. } = self.nodes[node];
            for (side, below) in child.into_iter().enumerate().filter(|(_, below)| *below != NONE) {
                assert_eq!(self.nodes[below].parent, node);
                assert!(!(red && self.nodes[below].red), "two reds in a row");
                let ordered = if side == 0 { self.nodes[below].key <= key } else { self.nodes[below].key >= key };
                assert!(ordered);
            }
            let blacks = child.map(|below| self.check(below));
            assert_eq!(blacks[0], blacks[1], "as many blacks on each way");
            blacks[0] + u32::from(!red)
        }
    }

    #[test]
    fn it_keeps_the_rules_of_its_kind_and_the_order_of_a_sorted_list() {
        let mut rng = Rng::stream(3, "tree");
        let (mut tree, mut list) = (RbTree::default(), Vec::<(u64, usize)>::new());
        for _ in 0..5_000 {
            let node = rng.below(60) as usize;
            if tree.contains(node) {
                list.retain(|(_, other)| *other != node);
                tree.remove(node);
            } else {
                let key = rng.below(50);
                list.insert(list.partition_point(|(other, _)| *other <= key), (key, node));
                tree.insert(node, key);
            }
            tree.check(tree.root);
            for pair in list.windows(2) {
                assert_eq!(tree.neighbour(pair[0].1, Side::Right), Some(pair[1].1));
                assert_eq!(tree.neighbour(pair[1].1, Side::Left), Some(pair[0].1));
            }
            if let Some(found) = tree.search(25) {
                let key = |side| tree.neighbour(found, side).map(|node| tree.key(node));
                assert!(key(Side::Left).is_none_or(|key| key <= 25) && key(Side::Right).is_none_or(|key| key >= 25));
            }
        }
    }
}

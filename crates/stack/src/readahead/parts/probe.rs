//! Looking for holes in the page cache as the kernels since 4.20 do it, with the surprise that large folios bring.
//!
//! The page cache is a tree of nodes with 64 slots. The kernel's cursor has a slot and, apart from it, a page index
//! that it reports. Started in the middle of a large folio, the slot snaps to the folio's first one while the index
//! does not, and from then on both move in steps of one: the reported index is off by the distance, until the cursor
//! enters another node and finds its slot from the index again. Source: lib/xarray.c, `xas_next` and `xas_prev`;
//! mm/filemap.c, `page_cache_next_miss` and `page_cache_prev_miss`.

use crate::readahead::Mapping;
use crate::units::PageIndex;

/// Log2 of the slots of a node.
const NODE_SHIFT: u32 = 6;
const NODE_SLOTS: i64 = 1 << NODE_SHIFT;
/// No tree is higher than this.
const TOP_SHIFT: u32 = 60;

/// Direction of a walk.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// The kernel's cursor.
struct Cursor<'a> {
    mapping: &'a dyn Mapping,
    /// The page index it reports.
    index: u64,
    /// Log2 of the pages of a slot of the current node.
    shift: u32,
    /// The node, counted among the nodes of its level.
    node: u64,
    slot: i64,
}

impl<'a> Cursor<'a> {
    /// The cursor at page `index`, and whether there is something there.
    fn start(mapping: &'a dyn Mapping, index: u64) -> (Cursor<'a>, bool) {
        let folio = mapping.folio(PageIndex(index));
        let shift = folio.map_or(0, |folio| level(folio.order));
        let at = folio.map_or(index, |folio| folio.first.0) >> shift;
        let cursor = Cursor { mapping, index, shift, node: at >> NODE_SHIFT, slot: slot_of(at) };
        (cursor, folio.is_some())
    }

    /// One page on; whether there is something there.
    fn step(&mut self, direction: Direction) -> bool {
        let (delta, edge) = match direction {
            Direction::Up => (1, NODE_SLOTS - 1),
            Direction::Down => (-1, 0),
        };
        self.index = self.index.wrapping_add_signed(delta);
        if self.shift == 0 && self.slot != edge {
            self.slot += delta;
            return self.mapping.present(self.page());
        }
        if self.slot != slot_of(self.index >> self.shift) {
            self.slot += delta;
        }
        while !(0..NODE_SLOTS).contains(&self.slot) {
            self.slot = slot_of(self.node) + delta;
            self.node >>= NODE_SHIFT;
            self.shift += NODE_SHIFT;
            if self.shift > TOP_SHIFT {
                return false;
            }
        }
        while self.shift > 0 {
            match self.mapping.folio(self.page()) {
                Some(folio) if level(folio.order) >= self.shift => return true,
                _ => {}
            }
            self.node = (self.node << NODE_SHIFT) + self.slot as u64;
            self.shift -= NODE_SHIFT;
            self.slot = slot_of(self.index >> self.shift);
        }
        self.mapping.present(self.page())
    }

    /// First page of the current slot.
    fn page(&self) -> PageIndex {
        PageIndex(((self.node << NODE_SHIFT) + self.slot as u64) << self.shift)
    }
}

/// Log2 of the pages of a slot in the node where a folio of this order has its slots.
fn level(order: u8) -> u32 {
    u32::from(order) / NODE_SHIFT * NODE_SHIFT
}

fn slot_of(at: u64) -> i64 {
    (at & (NODE_SLOTS as u64 - 1)) as i64
}

/// The first absent page from `page` on, as the kernel finds it in at most `nr_probes` looks; none if all were present.
/// With it comes the last page looked at, which 6.1 takes for an answer.
pub(in crate::readahead) fn first_miss_from(
    mapping: &dyn Mapping,
    page: PageIndex,
    nr_probes: u64,
) -> (Option<u64>, u64) {
    let (mut cursor, mut there) = Cursor::start(mapping, page.0);
    for probe in 0..nr_probes {
        if probe > 0 {
            there = cursor.step(Direction::Up);
        }
        if !there {
            return (Some(cursor.index), cursor.index);
        }
    }
    (None, cursor.index)
}

/// How many cached pages end just before `page`, as the kernel counts them in at most `nr_probes` looks; `page` itself
/// if they reach back to the start of the file. If all looks find a page, the last one counts only if `whole` is set.
pub(in crate::readahead) fn cached_run_before(
    mapping: &dyn Mapping,
    page: PageIndex,
    nr_probes: u64,
    whole: bool,
) -> u64 {
    let before = page.0.wrapping_sub(1);
    let (mut cursor, mut there) = Cursor::start(mapping, before);
    for probe in 0..nr_probes {
        if probe > 0 {
            there = cursor.step(Direction::Down);
        }
        if !there || cursor.index == u64::MAX {
            return before.wrapping_sub(cursor.index);
        }
    }
    before.wrapping_sub(cursor.index) + u64::from(whole)
}

//! The event queue: what happens next.
//!
//! A d-ary heap ordered by (time, sequence number), so that events of equal time come out in the order they were put
//! in, on every machine.

use crate::units::Nanos;

/// Pending events of type `T`, earliest first, first-in first-out among equals.
#[derive(Clone, Debug)]
pub struct EventQueue<T> {
    heap: std::collections::BinaryHeap<Slot<T>>,
    sequence: u64,
}

#[derive(Clone, Debug)]
struct Slot<T> {
    key: std::cmp::Reverse<(u64, u64)>,
    value: T,
}

impl<T> PartialEq for Slot<T> {
    fn eq(&self, other: &Slot<T>) -> bool {
        self.key == other.key
    }
}
impl<T> Eq for Slot<T> {}
impl<T> PartialOrd for Slot<T> {
    fn partial_cmp(&self, other: &Slot<T>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Slot<T> {
    fn cmp(&self, other: &Slot<T>) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl<T: Copy> Default for EventQueue<T> {
    fn default() -> EventQueue<T> {
        EventQueue { heap: std::collections::BinaryHeap::new(), sequence: 0 }
    }
}

impl<T: Copy> EventQueue<T> {
    /// Puts in `value`, to come out at `at`.
    pub fn push(&mut self, at: Nanos, value: T) {
        self.sequence += 1;
        self.heap.push(Slot { key: std::cmp::Reverse((at.0, self.sequence)), value });
    }

    /// Takes out what comes next.
    pub fn pop(&mut self) -> Option<(Nanos, T)> {
        self.heap.pop().map(|slot| (Nanos(slot.key.0.0), slot.value))
    }

    /// When the next event comes.
    pub fn next_at(&self) -> Option<Nanos> {
        self.heap.peek().map(|slot| Nanos(slot.key.0.0))
    }

    /// Events pending.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

//! B-WF2Q+: whose turn it is, by virtual time (`block/bfq-wf2q.c`).
//!
//! ```text
//! time      one clock; a sector served to anybody moves it by 1 / (sum of all weights)
//! entity    one for each queue: it starts where its last service ended, or at the clock if that is later, and
//!           finishes a budget over its weight behind that
//! choice    of those whose start has come, the one with the smallest finish; if nobody's has, the clock jumps
//! idle      an entity that is empty ahead of the clock is remembered, and counts in the sum, until the clock is there
//! back      one that was empty for a moment only goes on from its last finish, which may be behind the clock
//! ```
//! The next one is chosen when something changes, not when it is needed, as in the kernel: one that was chosen for a
//! jump of the clock stays chosen.

use crate::rb_tree::{RbTree, Side};

/// Fixed point of virtual time.
const SHIFT: u32 = 22;
/// Weight of a queue of usual I/O priority, and of the journal's thread, whose is higher by one.
pub(super) const WEIGHT: u64 = 40;
pub(super) const JOURNAL_WEIGHT: u64 = 50;

/// Where an entity is kept.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Nowhere,
    Active,
    Idle,
}

/// A queue's account.
#[derive(Clone, Debug)]
pub(super) struct Entity {
    start: u64,
    finish: u64,
    /// Sectors charged since it was chosen, and how many it may have.
    pub(super) service: i64,
    pub(super) budget: i64,
    /// Weight by priority, weight that is in force, and the factor that is wanted.
    pub(super) base: u64,
    weight: u64,
    pub(super) raise: u64,
    place: Place,
    /// It counts in the sum of weights: active, idle ahead of the clock, or in service.
    pub(super) counted: bool,
    /// The weight under which it is registered: it has something waiting or in the driver, and is not raised.
    registered: Option<u64>,
}

impl Default for Entity {
    fn default() -> Entity {
        Entity {
            start: 0,
            finish: 0,
            service: 0,
            budget: 0,
            base: WEIGHT,
            weight: WEIGHT,
            raise: 1,
            place: Place::Nowhere,
            counted: false,
            registered: None,
        }
    }
}

impl Entity {
    pub(super) fn left(&self) -> i64 {
        self.budget - self.service
    }

    pub(super) fn weight(&self) -> u64 {
        self.weight
    }
}

/// All accounts, by the number of their queue, and the clock.
#[derive(Clone, Debug, Default)]
pub(super) struct Accounts {
    entities: Vec<Entity>,
    clock: u64,
    /// Sum of weights.
    weights: u64,
    /// By finish.
    active: RbTree,
    /// By finish, those that came first first.
    idle: Vec<usize>,
    /// The active ones in the order in which they were put there.
    order: Vec<usize>,
    next: Option<usize>,
    in_service: Option<usize>,
    /// Idle ones that the clock has passed.
    forgotten: Vec<usize>,
    /// Weights of registered queues, in order.
    registered: Vec<u64>,
}

impl std::ops::Index<usize> for Accounts {
    type Output = Entity;
    fn index(&self, queue: usize) -> &Entity {
        &self.entities[queue]
    }
}

impl std::ops::IndexMut<usize> for Accounts {
    fn index_mut(&mut self, queue: usize) -> &mut Entity {
        &mut self.entities[queue]
    }
}

fn in_virtual_time(sectors: i64, weight: u64) -> u64 {
    ((sectors.max(0) as u64) << SHIFT) / weight.max(1)
}

impl Accounts {
    /// Opens the account of a new queue.
    pub(super) fn open(&mut self, queue: usize, base: u64) {
        if queue >= self.entities.len() {
            self.entities.resize(queue + 1, Entity::default());
        }
        self.entities[queue] = Entity { base, weight: base, ..Entity::default() };
    }

    /// A queue that has had that many sectors more than the clock shows.
    pub(super) fn is_ahead(&mut self, queue: usize, sectors: i64) {
        self.finish_after(queue, sectors);
        self.entities[queue].counted = true;
        self.weights += self.entities[queue].weight;
        self.insert(queue, Place::Idle);
    }

    pub(super) fn register(&mut self, queue: usize) {
        let entity = &mut self.entities[queue];
        if entity.raise == 1 && entity.registered.is_none() {
            entity.registered = Some(entity.weight);
            self.registered.push(entity.weight);
            self.registered.sort_unstable();
        }
    }

    pub(super) fn unregister(&mut self, queue: usize) {
        if let Some(weight) = self.entities[queue].registered.take()
            && let Ok(at) = self.registered.binary_search(&weight)
        {
            self.registered.remove(at);
        }
    }

    /// Whether weights differ and this queue's is not the smallest: its share has to be protected.
    pub(super) fn asymmetric(&self, queue: usize) -> bool {
        let (Some(least), Some(most)) = (self.registered.first(), self.registered.last()) else { return false };
        least < most && self.entities[queue].registered != Some(*least)
    }

    /// Sum of the weights that count.
    pub(super) fn weights(&self) -> u64 {
        self.weights
    }

    /// Active queues, the latest activated first.
    pub(super) fn latest_first(&self) -> impl Iterator<Item = usize> {
        self.order.iter().rev().copied()
    }

    fn finish_after(&mut self, queue: usize, sectors: i64) {
        let entity = &mut self.entities[queue];
        entity.finish = entity.start + in_virtual_time(sectors, entity.weight);
    }

    fn insert(&mut self, queue: usize, place: Place) {
        let finish = self.entities[queue].finish;
        if place == Place::Active {
            self.active.insert(queue, finish);
            self.order.push(queue);
        } else {
            let at = self.idle.partition_point(|&other| self.entities[other].finish <= finish);
            self.idle.insert(at, queue);
        }
        self.entities[queue].place = place;
    }

    fn extract(&mut self, queue: usize) {
        match self.entities[queue].place {
            Place::Nowhere => return,
            Place::Active => {
                self.active.remove(queue);
                self.order.retain(|&other| other != queue);
            }
            Place::Idle => self.idle.retain(|&other| other != queue),
        }
        self.entities[queue].place = Place::Nowhere;
    }

    fn forget(&mut self, queue: usize) {
        self.entities[queue].counted = false;
        self.weights -= self.entities[queue].weight;
    }

    /// Forgets one idle entity that the clock has reached, as the kernel does at every move of the clock. With nobody
    /// active the clock is at the last one's finish at once.
    fn forget_idle(&mut self) {
        if self.active.root().is_none()
            && let Some(&last) = self.idle.last()
            && self.entities[last].finish <= self.clock
        {
            self.clock = self.entities[last].finish;
        }
        if let Some(&first) = self.idle.first()
            && self.entities[first].finish <= self.clock
        {
            self.extract(first);
            self.forget(first);
            self.forgotten.push(first);
        }
    }

    /// An idle queue that does not count any more.
    pub(super) fn take_forgotten(&mut self) -> Option<usize> {
        self.forgotten.pop()
    }

    /// Puts the weight in force that a queue should have by now.
    pub(super) fn reweigh(&mut self, queue: usize) {
        let entity = &mut self.entities[queue];
        let weight = entity.base * entity.raise;
        let before = std::mem::replace(&mut entity.weight, weight);
        if entity.counted {
            self.weights = self.weights - before + weight;
        }
        if before != weight {
            self.unregister(queue);
            self.register(queue);
        }
    }

    /// Takes an entity among the active ones by its start and budget.
    fn enqueue(&mut self, queue: usize, back: bool) {
        self.reweigh(queue);
        self.finish_after(queue, self.entities[queue].budget);
        let clock = self.clock;
        let entity = &mut self.entities[queue];
        if back && clock > entity.finish {
            // Not further behind than its weight allows.
            let delta = (clock - entity.finish) / entity.raise;
            entity.start += delta;
            entity.finish += delta;
        }
        self.insert(queue, Place::Active);
    }

    /// A queue that was empty has something. `back`: it was for a moment only.
    pub(super) fn activate(&mut self, queue: usize, back: bool) {
        if self.in_service == Some(queue) || self.entities[queue].place == Place::Active {
            return self.requeue(queue, false);
        }
        let back = back && self.clock > self.entities[queue].finish;
        let from = if back { self.entities[queue].finish } else { self.clock };
        if self.entities[queue].place == Place::Idle {
            self.extract(queue);
            let entity = &mut self.entities[queue];
            entity.start = from.max(entity.finish);
        } else {
            let entity = &mut self.entities[queue];
            entity.start = from;
            entity.counted = true;
            self.weights += entity.weight;
        }
        self.enqueue(queue, back);
        self.choose(Some(queue), false);
    }

    /// An active queue has another budget, or the one in service has had its turn and has more.
    pub(super) fn requeue(&mut self, queue: usize, expires: bool) {
        if self.in_service == Some(queue) {
            self.finish_after(queue, self.entities[queue].service);
            self.entities[queue].start = self.entities[queue].finish;
        }
        self.extract(queue);
        self.enqueue(queue, false);
        self.choose(Some(queue), expires);
    }

    /// A queue has nothing any more.
    pub(super) fn deactivate(&mut self, queue: usize, expires: bool) {
        if !self.entities[queue].counted {
            return;
        }
        self.finish_after(queue, self.entities[queue].service);
        if self.in_service == Some(queue) {
            self.in_service = None;
        } else {
            self.entities[queue].service = 0;
        }
        self.extract(queue);
        if self.entities[queue].finish > self.clock {
            self.insert(queue, Place::Idle);
        } else {
            self.forget(queue);
        }
        if self.next == Some(queue) {
            self.choose(None, expires);
        }
    }

    /// Sectors are charged to a queue.
    pub(super) fn serve(&mut self, queue: usize, sectors: i64) {
        self.entities[queue].service += sectors;
        self.clock += in_virtual_time(sectors, self.weights);
        self.forget_idle();
    }

    /// Chooses the next one after a change, which may have been of `changed`.
    fn choose(&mut self, changed: Option<usize>, expires: bool) {
        if let Some(queue) = changed
            && self.next != Some(queue)
        {
            let new = &self.entities[queue];
            if self.next.is_none_or(|next| new.start <= self.clock && new.finish < self.entities[next].finish) {
                self.next = changed;
                return;
            }
        }
        let Some(root) = self.active.root() else {
            self.next = None;
            return;
        };
        let earliest = self.earliest(root);
        let clock = self.clock.max(earliest);
        if (self.in_service.is_none() || expires) && clock > self.clock {
            self.clock = clock;
            self.forget_idle();
        }
        self.next = self.first(root, clock);
    }

    /// The first start among a node of the tree and those below it.
    fn earliest(&self, node: usize) -> u64 {
        let below = [Side::Left, Side::Right].map(|side| self.active.below(node, side));
        below.into_iter().flatten().map(|node| self.earliest(node)).fold(self.entities[node].start, u64::min)
    }

    /// Of those whose start has come the one with the smallest finish, or one above it in the tree
    /// (`bfq_first_active_entity`: it does not turn to the right below one that will do).
    fn first(&self, mut node: usize, clock: u64) -> Option<usize> {
        let mut found = None;
        loop {
            if self.entities[node].start <= clock {
                found = Some(node);
            }
            let left = self.active.below(node, Side::Left).filter(|left| self.earliest(*left) <= clock);
            match left {
                Some(left) => node = left,
                None if found.is_some() => return found,
                None => node = self.active.below(node, Side::Right)?,
            }
        }
    }

    /// The next queue's turn begins.
    pub(super) fn begin(&mut self) -> Option<usize> {
        let queue = self.next?;
        self.in_service = Some(queue);
        self.extract(queue);
        self.choose(None, false);
        Some(queue)
    }

    /// Its turn has ended.
    pub(super) fn end(&mut self) {
        self.in_service = None;
    }
}

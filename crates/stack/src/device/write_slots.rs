//! A drive's write cache with a budget in commands: slots shared by all streams.
//!
//! Each command taken occupies a slot until the head has written its last sector; commands that continue one another
//! share one only with `coalesce`. Newer data replaces older: entries never overlap, and one that is covered entirely
//! gives its slot back. Data can be written once it has crossed the bus. The head writes a *run*: it begins with one
//! entry and goes on as long as the next sector's entry has arrived when the head comes to it, so that data which
//! arrives meanwhile prolongs the run. The next run is chosen round robin over the disk, by distance or by age; while
//! a flush waits, among the runs that hold data as old as the flush, and a run is left when it has no more of that.
//!
//! Part of `disk.rs`; in no table. Source: docs/studies/incident-2010-2018.md, a study of two reports of 2010, in which
//! one budget of 32 to 64 commands shared by the streams gave the rates of two and of four writers together; inferred,
//! no drive's firmware is known.

/// Data of one command that is not on the medium yet, `start .. end`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Number of the oldest command whose data it has or has replaced.
    pub(super) number: u64,
    /// When the data has arrived in the cache.
    ready: u64,
    /// Whether it occupies a slot, and does not share that of the entry before it.
    owner: bool,
}

/// Which run is written next.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The one that begins nearest to the head.
    Nearest,
    /// The one with the oldest data.
    Arrival,
    /// The next one in order of sectors, and from the end back to the first.
    RoundRobin,
}

/// The cache.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    /// In order of sectors, without overlap.
    entries: Vec<Slot>,
    /// The one under the head: it keeps its slot and answers reads, but is not replaced.
    writing: Option<Slot>,
    nr_sectors: u64,
    nr_slots: usize,
    pub(super) max_sectors: u64,
    max_slots: usize,
    coalesce: bool,
    order: Order,
}

impl Slots {
    /// An empty cache of `max_slots` commands and `max_sectors` sectors.
    pub(super) fn new(max_slots: usize, max_sectors: u64, coalesce: bool, order: Order) -> Slots {
        let entries = Vec::with_capacity(max_slots.min(1024));
        Slots { entries, writing: None, nr_sectors: 0, nr_slots: 0, max_sectors, max_slots, coalesce, order }
    }

    /// The entries that `start .. end` overlaps.
    fn overlapped(&self, start: u64, end: u64) -> std::ops::Range<usize> {
        let first = self.entries.partition_point(|entry| entry.end <= start);
        let behind = self.entries.partition_point(|entry| entry.start < end);
        first..behind.max(first)
    }

    /// The entry that begins with `sector`.
    fn at(&self, sector: u64) -> Option<usize> {
        self.entries.binary_search_by_key(&sector, |entry| entry.start).ok()
    }

    /// Whether a command from `start` on shares the slot of the data before it.
    fn shares(&self, start: u64) -> bool {
        let before = self.entries.partition_point(|entry| entry.start < start).checked_sub(1);
        let touches = before.is_some_and(|i| self.entries[i].end == start);
        self.coalesce && (touches || self.writing.is_some_and(|writing| writing.end == start))
    }

    /// Whether there is room for `start .. end`.
    pub(super) fn admits(&self, start: u64, end: u64) -> bool {
        let (mut nr_sectors, mut nr_slots) = (self.nr_sectors + (end - start), self.nr_slots);
        for i in self.overlapped(start, end) {
            let entry = self.entries[i];
            nr_sectors -= entry.end.min(end) - entry.start.max(start);
            // What it loses to the newer data is given back at once; its slot only if nobody else relies on it.
            let heir =
                self.coalesce && self.entries.get(i + 1).is_some_and(|next| next.start == entry.end && !next.owner);
            nr_slots -= usize::from(entry.owner && start <= entry.start && entry.end <= end && !heir);
        }
        nr_sectors <= self.max_sectors && nr_slots + usize::from(!self.shares(start)) <= self.max_slots
    }

    /// Takes the data of command `number`, which will have arrived at `ready`. There must be room.
    pub(super) fn take(&mut self, start: u64, end: u64, number: u64, ready: u64) {
        let number = self.subtract(start, end).map_or(number, |oldest| oldest.min(number));
        let owner = !self.shares(start);
        let index = self.entries.partition_point(|entry| entry.start < start);
        self.entries.insert(index, Slot { start, end, number, ready, owner });
        self.nr_sectors += end - start;
        self.nr_slots += usize::from(owner);
    }

    /// Forgets `start .. end`, which newer data replaces; the number of the oldest data forgotten.
    pub(super) fn subtract(&mut self, start: u64, end: u64) -> Option<u64> {
        let mut i = self.overlapped(start, end).start;
        let mut oldest: Option<u64> = None;
        while i < self.entries.len() && self.entries[i].start < end {
            let entry = self.entries[i];
            oldest = Some(oldest.map_or(entry.number, |oldest| oldest.min(entry.number)));
            self.nr_sectors -= entry.end.min(end) - entry.start.max(start);
            let left = (entry.start < start).then_some(Slot { end: start, ..entry });
            // One slot for both pieces: the left one has it.
            let right = (entry.end > end).then_some(Slot { start: end, owner: entry.owner && left.is_none(), ..entry });
            self.entries.splice(i..=i, left.into_iter().chain(right));
            let nr_left = usize::from(left.is_some()) + usize::from(right.is_some());
            i += nr_left;
            if nr_left == 0 && entry.owner {
                self.bequeath(entry.end);
            }
        }
        oldest
    }

    /// An entry that occupied a slot is gone: the next one that shared the slot has it now.
    fn bequeath(&mut self, end: u64) {
        match self.at(end) {
            Some(heir) if self.coalesce && !self.entries[heir].owner => self.entries[heir].owner = true,
            _ => self.nr_slots -= 1,
        }
    }

    /// Whether all of `start .. end` is in the cache.
    pub(super) fn holds(&self, start: u64, end: u64) -> bool {
        if self.writing.is_some_and(|writing| writing.start <= start && end <= writing.end) {
            return true;
        }
        let first = self.entries.partition_point(|entry| entry.end <= start);
        let mut reached = start;
        for entry in &self.entries[first..] {
            if entry.start > reached || reached >= end {
                break;
            }
            reached = entry.end;
        }
        reached >= end
    }

    /// Whether data of command `number` or older is not on the medium yet.
    pub(super) fn has_older(&self, number: u64) -> bool {
        self.entries.iter().chain(&self.writing).any(|entry| entry.number <= number)
    }

    /// When there will be data to write, or since when there has been.
    pub(super) fn first_ready(&self) -> Option<u64> {
        self.entries.iter().map(|entry| entry.ready).min()
    }

    /// The first entry of the run to write from `now` on, the head being at `head`.
    pub(super) fn choose(&self, now: u64, head: u64, flush: Option<u64>) -> Option<usize> {
        let (mut best, mut best_old) = (None, None);
        let mut first = 0;
        while first < self.entries.len() {
            let entry = self.entries[first];
            let (mut behind, mut number) = (first + 1, entry.number);
            if entry.ready > now {
                first = behind;
                continue;
            }
            while let Some(next) = self.entries.get(behind)
                && next.start == self.entries[behind - 1].end
                && next.ready <= now
            {
                number = number.min(next.number);
                behind += 1;
            }
            let rank = match self.order {
                Order::Nearest => (0, entry.start.abs_diff(head)),
                Order::Arrival => (0, number),
                Order::RoundRobin => (u64::from(entry.start < head), entry.start),
            };
            let candidate = Some((rank, first));
            if best.is_none() || candidate < best {
                best = candidate;
            }
            if flush.is_some_and(|flush| number <= flush) && (best_old.is_none() || candidate < best_old) {
                best_old = candidate;
            }
            first = behind;
        }
        // Old data may still be on the bus; then the head has time for other data.
        best_old.or(best).map(|(_, index)| index)
    }

    /// The entry with which the run that has come to `head` goes on at `now`.
    pub(super) fn continues(&self, now: u64, head: u64, flush: Option<u64>) -> Option<usize> {
        let first = self.at(head).filter(|&first| self.entries[first].ready <= now)?;
        let Some(flush) = flush else { return Some(first) };
        // Endless new data must not keep the head from what a flush waits for.
        let mut end = head;
        let rest = self.entries[first..].iter();
        let mut run = rest.take_while(|entry| entry.start == std::mem::replace(&mut end, entry.end));
        run.any(|entry| entry.number <= flush).then_some(first)
    }

    /// First sector of an entry.
    pub(super) fn start(&self, index: usize) -> u64 {
        self.entries[index].start
    }

    /// The head writes the entry `index` from now on.
    pub(super) fn begin(&mut self, index: usize) -> Slot {
        debug_assert!(self.writing.is_none(), "there is one head");
        let entry = self.entries.remove(index);
        self.writing = Some(entry);
        entry
    }

    /// The entry under the head is on the medium.
    pub(super) fn written(&mut self) {
        let Some(entry) = self.writing.take() else { unreachable!("the head was writing") };
        self.nr_sectors -= entry.end - entry.start;
        if entry.owner {
            self.bequeath(entry.end);
        }
    }

    /// Numbers of the commands that data is left of.
    #[cfg(test)]
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().chain(&self.writing).map(|entry| entry.number)
    }

    /// Slots occupied, and how many there are.
    #[cfg(test)]
    pub(super) fn occupied(&self) -> (usize, usize) {
        (self.nr_slots, self.max_slots)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sector by sector: the number of the command whose data it holds, and the oldest that data stands for.
    #[derive(Clone)]
    struct Table {
        sectors: [Option<(u64, u64)>; 100],
        writing: Option<(usize, usize)>,
    }

    impl Table {
        /// Commands with data in the table: an upper bound of the slots that may be occupied.
        fn nr_commands(&self) -> usize {
            let mut numbers: Vec<u64> = self.sectors.iter().flatten().map(|&(number, _)| number).collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers.len()
        }

        fn nr_dirty(&self) -> usize {
            let writing = self.writing.map_or(0, |(start, end)| end - start);
            self.sectors.iter().flatten().count() + writing
        }
    }

    fn check(slots: &Slots, table: &Table) -> Result<(), TestCaseError> {
        let mut shown = [false; 100];
        for pair in slots.entries.windows(2) {
            prop_assert!(pair[0].end <= pair[1].start);
        }
        for entry in &slots.entries {
            prop_assert!(entry.start < entry.end);
            for sector in entry.start..entry.end {
                shown[sector as usize] = true;
                let oldest = table.sectors[sector as usize].map(|(_, oldest)| oldest);
                prop_assert!(oldest.is_some_and(|oldest| entry.number <= oldest), "{entry:?} hides {oldest:?}");
            }
        }
        prop_assert_eq!(shown, table.sectors.map(|sector| sector.is_some()));
        prop_assert_eq!(slots.nr_sectors as usize, table.nr_dirty());
        let owners = slots.entries.iter().chain(&slots.writing).filter(|entry| entry.owner).count();
        prop_assert_eq!(slots.nr_slots, owners);
        prop_assert!(slots.nr_slots <= slots.max_slots);
        // Shared slots may be counted twice where a shared run has been cut in pieces.
        prop_assert!(slots.coalesce || slots.nr_slots <= table.nr_commands() + usize::from(slots.writing.is_some()));
        Ok(())
    }

    proptest! {
        /// The cache against a plain table of sectors, under random commands, overwrites and destaging.
        #[test]
        fn slots_agree_with_a_table_of_sectors(
            steps in prop::collection::vec((0usize..90, 1usize..10, 0u8..8), 1..80),
            coalesce in any::<bool>(), order in 0usize..3,
        ) {
            let order = [Order::Nearest, Order::Arrival, Order::RoundRobin][order];
            let mut slots = Slots::new(5, 60, coalesce, order);
            let mut table = Table { sectors: [None; 100], writing: None };
            for (step, (start, len, kind)) in steps.into_iter().enumerate() {
                let (now, number, end) = (step as u64 * 10, step as u64, start + len);
                let held = (start..end).all(|sector| table.sectors[sector].is_some())
                    || table.writing.is_some_and(|(from, to)| from <= start && end <= to);
                prop_assert_eq!(slots.holds(start as u64, end as u64), held);
                match kind {
                    0 => {
                        let oldest = table.sectors[start..end].iter().flatten().map(|&(_, oldest)| oldest).min();
                        let forgotten = slots.subtract(start as u64, end as u64);
                        prop_assert!(forgotten.is_some() == oldest.is_some() && forgotten <= oldest);
                        table.sectors[start..end].fill(None);
                    }
                    1 | 2 if table.writing.is_some() => {
                        slots.written();
                        table.writing = None;
                    }
                    1 | 2 => {
                        let flush = (kind == 2).then_some(number.saturating_sub(6));
                        let chosen = slots.choose(now, start as u64, flush);
                        // Something can be written exactly if something has arrived.
                        prop_assert_eq!(chosen.is_some(), slots.first_ready().is_some_and(|ready| ready <= now));
                        if let Some(index) = chosen {
                            let slot = slots.begin(index);
                            prop_assert!(slot.ready <= now);
                            table.sectors[slot.start as usize..slot.end as usize].fill(None);
                            table.writing = Some((slot.start as usize, slot.end as usize));
                        }
                    }
                    _ => {
                        if slots.admits(start as u64, end as u64) {
                            let oldest = table.sectors[start..end].iter().flatten().map(|&(_, oldest)| oldest).min();
                            let oldest = oldest.map_or(number, |oldest| oldest.min(number));
                            slots.take(start as u64, end as u64, number, now + u64::from(kind) * 3);
                            table.sectors[start..end].fill(Some((number, oldest)));
                        } else {
                            // Refused only for want of room.
                            let nr_new = table.sectors[start..end].iter().filter(|sector| sector.is_none()).count();
                            prop_assert!(slots.nr_slots == 5 || table.nr_dirty() + nr_new > 60);
                        }
                    }
                }
                check(&slots, &table)?;
            }
        }
    }

    #[test]
    fn contiguous_commands_share_a_slot_only_if_they_coalesce() {
        for (coalesce, expected) in [(false, [1, 2, 3, 4]), (true, [1, 1, 1, 2])] {
            let mut slots = Slots::new(8, 1_000, coalesce, Order::RoundRobin);
            let occupied = [0, 8, 16, 800].map(|start| {
                slots.take(start, start + 8, start, 0);
                slots.occupied().0
            });
            assert_eq!(occupied, expected);
            // The shared slot is given back with the last of them, and one that continues the run has it too.
            let mut left = Vec::new();
            for head in [0, 8, 16] {
                let Some(index) = slots.continues(0, head, None) else { panic!("the run stops at {head}") };
                slots.begin(index);
                if head == 8 {
                    slots.take(24, 32, 100, 0);
                }
                slots.written();
                left.push(slots.occupied().0);
            }
            assert_eq!(left, if coalesce { [2, 2, 2] } else { [3, 3, 2] });
        }
    }

    #[test]
    fn runs_are_visited_round_robin_nearest_or_by_age() {
        for (order, expected) in [
            (Order::RoundRobin, [600, 700, 100, 300]),
            (Order::Nearest, [600, 700, 300, 100]),
            (Order::Arrival, [300, 700, 100, 600]),
        ] {
            let mut slots = Slots::new(8, 1_000, false, order);
            for (number, start) in [300, 700, 100, 600].into_iter().enumerate() {
                slots.take(start, start + 8, number as u64, 0);
            }
            let mut head = 500;
            let visited = [(); 4].map(|()| {
                let Some(index) = slots.choose(0, head, None) else { panic!("there is dirty data") };
                let slot = slots.begin(index);
                slots.written();
                head = slot.end;
                slot.start
            });
            assert_eq!(visited, expected, "{order:?}");
        }
    }

    #[test]
    fn a_run_ends_where_data_has_not_arrived_or_a_flush_waits_for_other_data() {
        let mut slots = Slots::new(8, 1_000, false, Order::RoundRobin);
        for (start, number, ready) in [(0, 5, 0), (8, 6, 50), (16, 3, 60), (24, 7, 60), (800, 2, 0)] {
            slots.take(start, start + 8, number, ready);
        }
        assert_eq!((slots.continues(49, 8, None), slots.continues(50, 8, None)), (None, Some(1)));
        // Number 3 is further on in this run, number 2 is not.
        assert_eq!((slots.continues(60, 8, Some(3)), slots.continues(60, 8, Some(2))), (Some(1), None));
        assert_eq!((slots.continues(60, 24, Some(3)), slots.continues(60, 32, None)), (None, None));
        assert_eq!((slots.choose(60, 0, Some(2)), slots.choose(60, 0, Some(3))), (Some(4), Some(0)));
    }
}

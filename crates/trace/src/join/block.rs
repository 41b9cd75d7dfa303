//! Bios and requests of a trace, joined to calls and to one another.

use super::*;

impl Joiner<'_> {
    pub(super) fn queue(&mut self, seq: u64, record: &Record, extent: &Extent) {
        let own = Record { pid: self.held_back(record, extent).unwrap_or(record.pid), ..record.clone() };
        let held_back = own.pid != record.pid;
        let record = &own;
        self.handed_over(seq, record, extent);
        if dir_of(extent) == Dir::Read && !extent.rwbs.has(Rwbs::META) {
            self.end_run(record.pid);
        }
        // What records writes, too, and so does a modelled disk.
        let ours = self.trace.name(record.pid).is_some_and(|name| name.starts_with("iowhy"));
        if dir_of(extent) == Dir::Write && self.out.tree.is_some() && self.of_process(record.pid) && !ours {
            self.out.others_wrote += u64::from(extent.bytes);
        }
        let place = self.call_of(record.pid);
        let call = place.map_or(0, |call| self.out.calls[call].call);
        let number = self.out.bios.len() as u32;
        let mut pages = Vec::new();
        let task = self.tasks.entry(record.pid).or_default();
        task.last_bio = Some(number);
        if dir_of(extent) == Dir::Read && !extent.rwbs.has(Rwbs::META) {
            let mut left = pages_of(extent);
            while left > 0
                && let Some(first) = task.waiting.front_mut()
            {
                let nr_pages = first.nr_pages.min(left);
                pages.push(Pages { nr_pages, ..*first });
                left -= nr_pages;
                first.start += nr_pages;
                first.nr_pages -= nr_pages;
                if first.nr_pages == 0 {
                    task.waiting.pop_front();
                }
            }
        }
        if let Some(call) = place {
            self.out.calls[call].bios.push(number);
            self.out.calls[call].held_back += u32::from(held_back);
            self.belongs(call, number, extent);
        }
        let bio =
            BioRecord { at: record.at, pid: record.pid, call, extent: *extent, pages, request: None, completed: None };
        self.out.bios.push(bio);
        self.bios.entry(extent.sector.0).or_default().push(number);
        let (dir, nr_sectors) = (dir_of(extent), nr_sectors(extent));
        let journal = self.trace.name(record.pid).is_some_and(|name| name.starts_with("jbd2/"));
        let content = if journal { Content::Journal } else { content_of(extent) };
        self.emit(seq, record, What::BioQueue { dir, content, sector: extent.sector, nr_sectors });
    }

    /// A bio is cut: the front is as long as its request may be, and the rest is a bio of its own, as if it had been
    /// queued when it is its turn.
    pub(super) fn split(&mut self, seq: u64, record: &Record, extent: &Extent, rest: u64) {
        let begins = extent.sector.0;
        let fits = |bio: &u32| {
            let known = &self.out.bios[*bio as usize].extent;
            related(known.dev, extent.dev) && end_of(known) > rest
        };
        let found = self.bios.get(&begins).and_then(|list| list.iter().find(|bio| fits(bio)).copied());
        let Some(number) = found.filter(|_| rest > begins) else { return };
        let first = &mut self.out.bios[number as usize];
        let end = end_of(&first.extent);
        let mut left = (rest - begins) * SECTOR_BYTES / PAGE_BYTES;
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for pages in first.pages.drain(..) {
            let here = pages.nr_pages.min(left);
            left -= here;
            if here > 0 {
                own.push(Pages { nr_pages: here, ..pages });
            }
            if here < pages.nr_pages {
                others.push(Pages { start: pages.start + here, nr_pages: pages.nr_pages - here, ..pages });
            }
        }
        first.pages = own;
        first.extent.bytes = ((rest - begins) * SECTOR_BYTES) as u32;
        let mut second = first.clone();
        (second.at, second.pages) = (record.at, others);
        second.extent.sector = Sector(rest);
        second.extent.bytes = ((end - rest) * SECTOR_BYTES) as u32;
        let shorter = nr_sectors(&first.extent);
        if !self.untold.contains(&number) {
            let told = self.events.iter_mut().rev().find_map(|(.., event)| match &mut event.what {
                What::BioQueue { sector, nr_sectors, .. } if sector.0 == begins => Some(nr_sectors),
                _ => None,
            });
            if let Some(nr_sectors) = told {
                *nr_sectors = shorter;
            }
        }
        self.tell(seq, record, number);
        let new = self.out.bios.len() as u32;
        if second.call > 0 {
            self.out.calls[second.call as usize - 1].bios.push(new);
        }
        self.out.bios.push(second);
        self.bios.entry(rest).or_default().push(new);
        self.untold.insert(new);
    }

    /// It is the turn of a bio that is the rest of another.
    fn tell(&mut self, seq: u64, record: &Record, bio: u32) {
        if self.untold.remove(&bio) {
            let bio = &self.out.bios[bio as usize];
            let extent = &bio.extent;
            let (dir, content, nr_sectors) = (dir_of(extent), content_of(extent), nr_sectors(extent));
            let what = What::BioQueue { dir, content, sector: extent.sector, nr_sectors };
            let event = Event { at: record.at, call: CallId(bio.call), what };
            self.events.push((record.at, seq, event));
        }
    }

    /// The queued bio that these sectors are of: the task's own last one rather than another.
    fn bio(&mut self, pid: u32, extent: &Extent) -> Option<u32> {
        let last = self.tasks.get(&pid).and_then(|task| task.last_bio);
        let list = self.bios.get_mut(&extent.sector.0)?;
        let fits = |bio: &u32| related(self.out.bios[*bio as usize].extent.dev, extent.dev);
        let place = list.iter().position(|bio| Some(*bio) == last).or_else(|| list.iter().position(fits))?;
        let bio = list.remove(place);
        if list.is_empty() {
            self.bios.remove(&extent.sector.0);
        }
        Some(bio)
    }

    /// A bio becomes part of a request.
    fn attach(&mut self, bio: u32, request: u32) {
        let record = &mut self.out.bios[bio as usize];
        record.request = Some(request);
        for pages in &record.pages {
            for page in 0..pages.nr_pages {
                self.carriers.insert((pages.file, pages.start + page), request);
            }
        }
        let to = &mut self.out.requests[request as usize];
        to.bios.push(bio);
        to.queued = Some(to.queued.map_or(record.at, |at| at.min(record.at)));
        if !to.pids.contains(&record.pid) {
            to.pids.push(record.pid);
        }
        if record.call > 0 {
            if !to.calls.contains(&record.call) {
                to.calls.push(record.call);
            }
            let call = &mut self.out.calls[record.call as usize - 1];
            if call.requests.last() != Some(&request) && !call.requests.contains(&request) {
                call.requests.push(request);
            }
        }
    }

    /// A new request of these sectors.
    fn new_request(&mut self, extent: &Extent) -> u32 {
        let request = self.out.requests.len() as u32;
        self.out.requests.push(RequestRecord { extent: *extent, ..RequestRecord::default() });
        let slot = self.free.pop().unwrap_or_else(|| {
            self.nr_slots += 1;
            self.nr_slots - 1
        });
        self.slots.push(slot);
        self.waiting.entry(extent.sector.0).or_default().push(request);
        request
    }

    pub(super) fn get_request(&mut self, seq: u64, record: &Record, extent: &Extent) {
        let bio = self.bio(record.pid, extent);
        let request = self.new_request(extent);
        self.out.requests[request as usize].allocated = Some(record.at);
        if let Some(bio) = bio {
            self.tell(seq, record, bio);
            self.attach(bio, request);
        }
        let rq = RqId(self.slots[request as usize]);
        self.emit_for(seq, record, request, What::GetRequest { rq });
    }

    /// The request not yet issued that begins (or ends) at this sector.
    fn beside(&self, dev: Dev, dir: Dir, sector: u64, at_end: bool) -> Option<u32> {
        let fits = |request: &&u32| {
            let extent = &self.out.requests[**request as usize].extent;
            related(extent.dev, dev) && dir_of(extent) == dir && (!at_end || end_of(extent) == sector)
        };
        if !at_end {
            return self.waiting.get(&sector)?.iter().rev().find(fits).copied();
        }
        // Requests are short, so the one that ends here begins close by.
        self.waiting.range(..sector).rev().take(64).find_map(|(_, list)| list.iter().rev().find(fits).copied())
    }

    pub(super) fn merge(&mut self, seq: u64, record: &Record, extent: &Extent, kind: MergeKind) {
        let bio = self.bio(record.pid, extent);
        if let Some(bio) = bio {
            self.tell(seq, record, bio);
        }
        let dir = dir_of(extent);
        let found = match kind {
            MergeKind::Back => self.beside(extent.dev, dir, extent.sector.0, true),
            MergeKind::Front => self.beside(extent.dev, dir, end_of(extent), false),
        };
        let Some(request) = found else {
            self.out.leftovers.merges += 1;
            // The bio waits for the request that is issued with its sectors.
            if let Some(bio) = bio {
                self.bios.entry(extent.sector.0).or_default().push(bio);
            }
            return;
        };
        let to = &mut self.out.requests[request as usize].extent;
        to.bytes = to.bytes.saturating_add(extent.bytes);
        if kind == MergeKind::Front {
            let old = std::mem::replace(&mut to.sector, extent.sector);
            drop_from(&mut self.waiting, old.0, request);
            self.waiting.entry(extent.sector.0).or_default().push(request);
        }
        if let Some(bio) = bio {
            self.attach(bio, request);
        }
        let (rq, nr_sectors) = (RqId(self.slots[request as usize]), nr_sectors(extent));
        // A worker may do it for the task whose bio it is.
        let pid = bio.map_or(record.pid, |bio| self.out.bios[bio as usize].pid);
        self.emit(seq, &Record { pid, ..record.clone() }, What::Merge { rq, kind, nr_sectors });
    }

    pub(super) fn merge_requests(&mut self, seq: u64, record: &Record, extent: &Extent) {
        let dir = dir_of(extent);
        let gone = self.beside(extent.dev, dir, extent.sector.0, false);
        let stays = self.beside(extent.dev, dir, extent.sector.0, true);
        let (Some(gone), Some(stays)) = (gone, stays) else {
            self.out.leftovers.merges += 1;
            return;
        };
        drop_from(&mut self.waiting, extent.sector.0, gone);
        let bytes = self.out.requests[gone as usize].extent.bytes;
        self.out.requests[gone as usize].merged = true;
        let to = &mut self.out.requests[stays as usize].extent;
        to.bytes = to.bytes.saturating_add(bytes);
        for bio in std::mem::take(&mut self.out.requests[gone as usize].bios) {
            self.attach(bio, stays);
        }
        let (rq, gone_rq) = (RqId(self.slots[stays as usize]), RqId(self.slots[gone as usize]));
        self.free.push(gone_rq.0);
        self.emit_for(seq, record, stays, What::MergeRequests { rq, gone: gone_rq });
    }

    /// The request of these sectors that is not yet issued; if its making was not seen, one of the queued bios.
    pub(super) fn gathered(&mut self, record: &Record, extent: &Extent) -> Option<u32> {
        if let Some(known) = self.beside(extent.dev, dir_of(extent), extent.sector.0, false) {
            return Some(known);
        }
        let mut bios = Vec::new();
        let mut sector = extent.sector.0;
        // A flush has no sectors, and no bio of its own that could be recognized.
        while sector < end_of(extent)
            && let Some(bio) = self.bio(record.pid, &Extent { sector: Sector(sector), ..*extent })
        {
            sector = end_of(&self.out.bios[bio as usize].extent).max(sector + 1);
            bios.push(bio);
        }
        let request = self.new_request(extent);
        bios.into_iter().for_each(|bio| self.attach(bio, request));
        Some(request)
    }

    pub(super) fn issue(&mut self, seq: u64, record: &Record, extent: &Extent) {
        let Some(request) = self.gathered(record, extent) else { return };
        drop_from(&mut self.waiting, extent.sector.0, request);
        self.issued.entry(extent.sector.0).or_default().push(request);
        self.in_flight = self.in_flight.saturating_add(1);
        let known = &mut self.out.requests[request as usize];
        // The issued extent counts: a bio may have been split, and merges missed.
        known.extent = *extent;
        known.issued = Some(record.at);
        self.out.leftovers.requests_without_bio += u64::from(known.bios.is_empty() && extent.bytes > 0);
        let what = What::Issue {
            rq: RqId(self.slots[request as usize]),
            dir: dir_of(extent),
            content: content_of(extent),
            sector: extent.sector,
            nr_sectors: nr_sectors(extent),
            in_flight: self.in_flight,
        };
        self.emit_for(seq, record, request, what);
    }

    pub(super) fn complete(&mut self, seq: u64, record: &Record, extent: &Extent, error: i32) {
        // A flush has no place: it is issued at the sector 0, and completed at -1 (6.18).
        let nowhere = extent.bytes == 0 && extent.rwbs.has(Rwbs::PREFLUSH);
        let extent = &Extent { sector: if nowhere { Sector(0) } else { extent.sector }, ..*extent };
        if let Some(request) = take(&mut self.issued, &self.out.requests, extent) {
            let known = &mut self.out.requests[request as usize];
            known.error = error;
            let done = known.completed.is_none() && extent.bytes < known.extent.bytes && extent.bytes > 0;
            if done {
                // A part of it: the rest begins behind that.
                let rest =
                    Extent { sector: Sector(end_of(extent)), bytes: known.extent.bytes - extent.bytes, ..known.extent };
                known.extent.bytes = rest.bytes;
                known.extent.sector = rest.sector;
                self.issued.entry(rest.sector.0).or_default().push(request);
                return;
            }
            known.completed = Some(record.at);
            let bios = known.bios.clone();
            for bio in &bios {
                self.done.insert(self.out.bios[*bio as usize].extent.sector.0, *bio);
            }
            self.in_flight = self.in_flight.saturating_sub(1);
            let rq = RqId(self.slots[request as usize]);
            self.free.push(rq.0);
            let what = What::Complete { rq, dir: dir_of(extent), nr_sectors: nr_sectors(extent) };
            self.emit_for(seq, record, request, what);
            bios.into_iter().for_each(|bio| self.bio_done(seq, record, bio));
            return;
        }
        // A bio's own completion follows that of its request.
        if self.done.remove(&extent.sector.0).is_some() {
            return;
        }
        match self.bio(record.pid, extent) {
            Some(bio) => {
                self.out.bios[bio as usize].completed = Some(record.at);
                self.bio_done(seq, record, bio);
            }
            None => self.out.leftovers.completions += 1,
        }
    }
}

fn drop_from(lists: &mut BTreeMap<u64, Vec<u32>>, sector: u64, request: u32) {
    if let Some(list) = lists.get_mut(&sector) {
        list.retain(|known| *known != request);
        if list.is_empty() {
            lists.remove(&sector);
        }
    }
}

/// Takes the issued request of these sectors out of the lists: of several, the one as long as this.
pub(super) fn take(lists: &mut HashMap<u64, Vec<u32>>, requests: &[RequestRecord], extent: &Extent) -> Option<u32> {
    let list = lists.get_mut(&extent.sector.0)?;
    let same = |request: &u32| requests[*request as usize].extent.dev == extent.dev;
    let fits = |request: &u32| same(request) && requests[*request as usize].extent.bytes == extent.bytes;
    let larger = |request: &u32| same(request) && requests[*request as usize].extent.bytes > extent.bytes;
    let place = list.iter().position(fits).or_else(|| list.iter().position(larger))?;
    let request = list.remove(place);
    if list.is_empty() {
        lists.remove(&extent.sector.0);
    }
    Some(request)
}

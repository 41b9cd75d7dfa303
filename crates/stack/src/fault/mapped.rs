//! One mapping of a file in one process: its parts with their advice, and which pages its page tables hold.

use serde::Serialize;

use std::collections::{BTreeMap, BTreeSet};

use crate::units::{self, PageIndex};

/// Pages that one page table maps (2 MiB).
pub const TABLE_PAGES: u64 = 512;

/// A program's advice on its accesses to a part of a mapping. The last of them counts.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub enum MapAdvice {
    /// `MADV_NORMAL`.
    #[default]
    Normal,
    /// `MADV_RANDOM`.
    Random,
    /// `MADV_SEQUENTIAL`.
    Sequential,
}

/// Permissions of a mapping.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Protection {
    /// `PROT_EXEC`.
    pub exec: bool,
    /// `MAP_SHARED`: stores go to the file. Otherwise a page that is stored to becomes a private copy.
    pub shared: bool,
}

/// A part of a mapping with the same flags throughout (`struct vm_area_struct`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Vma {
    /// First page of the file.
    pub first: PageIndex,
    /// Page after the last.
    pub end: PageIndex,
    /// Expected order of access.
    pub advice: MapAdvice,
    /// `MADV_HUGEPAGE`.
    pub huge: bool,
    /// Executable.
    pub exec: bool,
}

/// An entry of a page table.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Pte {
    /// The processor has used it since this bit was last cleared.
    pub accessed: bool,
    /// It may be written to.
    pub writable: bool,
    /// It points to a private copy, not to the page cache.
    pub copy: bool,
}

/// Entries of pages in tables of [`TABLE_PAGES`], found by the number of the table.
#[derive(Clone, Debug, Default)]
struct Ptes {
    tables: BTreeMap<u64, Box<[Option<Pte>; TABLE_PAGES as usize]>>,
    nr_mapped: u64,
}

impl Ptes {
    fn get(&self, page: u64) -> Option<&Pte> {
        self.tables.get(&(page / TABLE_PAGES))?[(page % TABLE_PAGES) as usize].as_ref()
    }

    fn get_mut(&mut self, page: u64) -> Option<&mut Pte> {
        self.tables.get_mut(&(page / TABLE_PAGES))?[(page % TABLE_PAGES) as usize].as_mut()
    }

    /// Puts an entry in; whether there was none.
    fn insert(&mut self, page: u64, pte: Pte) -> bool {
        let table = self.tables.entry(page / TABLE_PAGES).or_insert_with(|| Box::new([None; TABLE_PAGES as usize]));
        let new = table[(page % TABLE_PAGES) as usize].replace(pte).is_none();
        self.nr_mapped += u64::from(new);
        new
    }

    /// Takes an entry out. Its table stays, as the kernel's does.
    fn remove(&mut self, page: u64) -> Option<Pte> {
        let gone = self.tables.get_mut(&(page / TABLE_PAGES))?[(page % TABLE_PAGES) as usize].take();
        self.nr_mapped -= u64::from(gone.is_some());
        gone
    }

    /// Entries from `first` to before `end`, in order.
    fn range(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, Pte)> + '_ {
        let tables = first / TABLE_PAGES..end.max(first).div_ceil(TABLE_PAGES);
        let tables = tables.start..tables.end.max(tables.start);
        self.tables.range(tables).flat_map(move |(&table, entries)| {
            let pages = (table * TABLE_PAGES..).zip(entries.iter());
            pages.filter_map(move |(page, pte)| Some((page, (*pte)?)).filter(|_| first <= page && page < end))
        })
    }
}

/// A mapping and its page tables.
#[derive(Clone, Debug)]
pub struct MappedFile {
    protection: Protection,
    /// Neighbours with equal flags are one, as the kernel merges them.
    vmas: Vec<Vma>,
    /// First page of the file, and the virtual page where it is mapped.
    origin: (PageIndex, u64),
    ptes: Ptes,
    tables: BTreeSet<u64>,
    /// Tables' worth of address space mapped by one entry.
    huge: BTreeSet<u64>,
}

impl MappedFile {
    /// Maps `nr_pages` of a file from `first` on at the virtual page `at`.
    pub fn new(first: PageIndex, nr_pages: u64, at: u64, protection: Protection) -> MappedFile {
        let vma =
            Vma { first, end: first.plus(nr_pages), advice: MapAdvice::Normal, huge: false, exec: protection.exec };
        MappedFile {
            protection,
            vmas: vec![vma],
            origin: (first, at),
            ptes: Ptes::default(),
            tables: BTreeSet::new(),
            huge: BTreeSet::new(),
        }
    }

    pub fn protection(&self) -> Protection {
        self.protection
    }

    /// Its parts in the order of their addresses.
    pub fn vmas(&self) -> &[Vma] {
        &self.vmas
    }

    /// The part that `page` is in.
    pub fn vma(&self, page: PageIndex) -> Option<Vma> {
        self.vmas.iter().find(|vma| vma.first <= page && page < vma.end).copied()
    }

    /// Parts of the file between `first` and `end` that are mapped, cut where the flags change.
    pub fn parts(&self, first: PageIndex, end: PageIndex) -> Vec<(PageIndex, PageIndex)> {
        let cut = |vma: &Vma| (vma.first.max(first), vma.end.min(end));
        self.vmas.iter().map(cut).filter(|(first, end)| first < end).collect()
    }

    /// `MADV_NORMAL`, `MADV_RANDOM` or `MADV_SEQUENTIAL` for the pages from `first` to before `end`.
    pub fn advise(&mut self, first: PageIndex, end: PageIndex, advice: MapAdvice) {
        self.change(first, end, |vma| vma.advice = advice);
    }

    /// `MADV_HUGEPAGE` or `MADV_NOHUGEPAGE` for the pages from `first` to before `end`.
    pub fn advise_huge(&mut self, first: PageIndex, end: PageIndex, huge: bool) {
        self.change(first, end, |vma| vma.huge = huge);
    }

    /// The pages from `first` to before `end` become executable (`mprotect`, or a part that was mapped so).
    pub fn make_executable(&mut self, first: PageIndex, end: PageIndex) {
        self.change(first, end, |vma| vma.exec = true);
    }

    fn change(&mut self, first: PageIndex, end: PageIndex, change: impl Fn(&mut Vma)) {
        let mut parts: Vec<Vma> = Vec::new();
        for vma in &self.vmas {
            let (from, to) = (first.clamp(vma.first, vma.end), end.clamp(vma.first, vma.end));
            for (first, end, inside) in [(vma.first, from, false), (from, to, true), (to, vma.end, false)] {
                let mut part = Vma { first, end, ..*vma };
                if inside {
                    change(&mut part);
                }
                match parts.last_mut() {
                    _ if first >= end => {}
                    Some(last) if (Vma { first: last.first, end: last.end, ..part }) == *last => last.end = end,
                    _ => parts.push(part),
                }
            }
        }
        let edges: Vec<PageIndex> = parts.iter().map(|part| part.first).collect();
        self.vmas = parts;
        for edge in edges {
            self.split_huge(edge);
        }
    }

    /// The virtual page of a page of the file.
    fn virtual_page(&self, page: PageIndex) -> u64 {
        (self.origin.1 + page.0).wrapping_sub(self.origin.0.0)
    }

    /// The page table (counted in virtual space) that has the entry of `page`.
    pub(super) fn table_of(&self, page: PageIndex) -> u64 {
        self.virtual_page(page) / TABLE_PAGES
    }

    pub(super) fn has_table(&self, table: u64) -> bool {
        self.tables.contains(&table)
    }

    pub(super) fn add_table(&mut self, table: u64) {
        self.tables.insert(table);
    }

    /// The aligned window of `nr_pages` around a page: clipped to the mapping's part and to one page table. First and
    /// last page of the file. Alignment is that of the address.
    pub(super) fn around(&self, vma: &Vma, page: PageIndex, nr_pages: u64) -> (u64, u64) {
        let slot = self.virtual_page(page) % TABLE_PAGES;
        let before = (slot % nr_pages).min(page.0 - vma.first.0);
        let from = slot - before;
        let to = (from + nr_pages).min(TABLE_PAGES).min(slot + (vma.end.0 - page.0));
        (page.0 - before, page.0 + (to - 1 - slot))
    }

    /// Whether the folio of these pages lies in the part and in one page table.
    pub(super) fn fits(&self, vma: &Vma, first: PageIndex, end: u64) -> bool {
        first >= vma.first && end <= vma.end.0 && self.table_of(first) == self.table_of(PageIndex(end - 1))
    }

    /// Maps one folio of 512 pages by one entry if its address allows; whether it did.
    pub(super) fn map_huge(&mut self, vma: &Vma, first: PageIndex) -> bool {
        if !self.virtual_page(first).is_multiple_of(TABLE_PAGES) || !self.fits(vma, first, first.0 + TABLE_PAGES) {
            return false;
        }
        for page in first.0..first.0 + TABLE_PAGES {
            self.ptes.insert(page, Pte { accessed: true, writable: false, copy: false });
        }
        self.huge.insert(self.table_of(first));
        true
    }

    /// Maps a page of the cache; whether it was not mapped before.
    pub(super) fn map(&mut self, page: PageIndex, accessed: bool) -> bool {
        self.ptes.get(page.0).is_none() && self.ptes.insert(page.0, Pte { accessed, writable: false, copy: false })
    }

    /// Maps a private copy of a page.
    pub(super) fn map_copy(&mut self, page: PageIndex) {
        self.ptes.insert(page.0, Pte { accessed: true, writable: true, copy: true });
    }

    /// The processor touches a page. Whether it can: the page is mapped, and a store finds a page it may write to.
    pub fn access(&mut self, page: PageIndex, write: bool) -> bool {
        match self.ptes.get_mut(page.0) {
            Some(pte) if !write || pte.writable || self.protection.shared => {
                pte.accessed = true;
                pte.writable |= write;
                true
            }
            _ => false,
        }
    }

    /// Whether the page is mapped (to the page cache or to a copy).
    pub fn is_mapped(&self, page: PageIndex) -> bool {
        self.ptes.get(page.0).is_some()
    }

    /// The entry that maps this page of the page cache, if there is one.
    pub fn cache_entry(&mut self, page: PageIndex) -> Option<&mut Pte> {
        self.ptes.get_mut(page.0).filter(|pte| !pte.copy)
    }

    /// Removes the entry of a page of the cache, for reclaim, and returns it.
    pub fn remove_entry(&mut self, page: PageIndex) -> Option<Pte> {
        if self.ptes.get(page.0)?.copy {
            return None;
        }
        self.split_huge(page);
        self.ptes.remove(page.0)
    }

    /// Removes the entries from `first` to before `end`, in the order of their addresses (`munmap`, `MADV_DONTNEED`).
    pub fn unmap(&mut self, first: PageIndex, end: PageIndex) -> Vec<(PageIndex, Pte)> {
        for edge in [first, end] {
            self.split_huge(edge);
        }
        let gone: Vec<(PageIndex, Pte)> =
            self.ptes.range(first.0, end.0).map(|(page, pte)| (PageIndex(page), pte)).collect();
        for (page, _) in &gone {
            self.ptes.remove(page.0);
            self.huge.remove(&self.table_of(*page));
        }
        gone
    }

    /// An entry for 512 pages that something cuts at `edge` vanishes; its pages take new faults.
    fn split_huge(&mut self, edge: PageIndex) {
        let table = self.table_of(edge);
        let start = edge.0.wrapping_sub(self.virtual_page(edge) % TABLE_PAGES);
        if start != edge.0 && self.huge.remove(&table) {
            for page in start..start + TABLE_PAGES {
                self.ptes.remove(page);
            }
        }
    }

    /// Pages mapped.
    pub fn nr_mapped(&self) -> u64 {
        self.ptes.nr_mapped
    }

    /// Runs of mapped pages: first page, pages.
    pub fn runs(&self) -> Vec<(u64, u64)> {
        units::runs(self.ptes.range(0, u64::MAX).map(|(page, _)| page))
    }
}

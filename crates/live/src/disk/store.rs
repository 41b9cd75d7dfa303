//! The data of a modelled disk: results of reads, and the remains after a power cut.
//!
//! The [`Image`] is memory that the kernel hands out as it is touched (or a mapped file) and always holds the last
//! written data. [`Undo`] remembers, for every block of 4 KiB that a power cut could still take back, its earlier
//! contents. Records are kept in the order of the writes and carry the number of a layer:
//!
//! ```text
//! volatile cache      a flush that arrives closes a layer; when it is done, that layer and those before it are
//!                     forgotten
//! no volatile cache   every write has a layer, which is forgotten when the write is done
//! ```
//!
//! A drive cannot hold more than its cache, so the oldest records beyond its size are forgotten, too: those blocks have
//! reached the medium. Known limit: which blocks a model destages first is inside the model; here it is the oldest.
//! At a [power cut](Undo::crash) each remembered block is kept, lost or torn (each sector for itself) by a seeded draw.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use iowhy_stack::rng::Rng;
use iowhy_stack::units::SECTOR_BYTES;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::memory::Mapping;

/// Unit of remembering.
const BLOCK: u64 = 4096;

/// The bytes of the disk, mapped. Writers hold the lock of [`Undo`]; reads go on meanwhile, as with a real disk: a read
/// that overlaps a write in flight returns the old, the new, or some of each.
#[derive(Debug)]
pub(super) struct Image(Mapping);

impl Image {
    /// All zeroes in memory, or the contents of a file that is at least as long.
    pub(super) fn new(bytes: u64, backing: Option<&File>) -> io::Result<Image> {
        assert!(bytes > 0 && bytes.is_multiple_of(BLOCK), "a disk has whole blocks");
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let mapping = match backing {
            None => Mapping::anonymous(length, MapFlags::PRIVATE | MapFlags::NORESERVE)?,
            Some(file) => Mapping::shared(file, (0, length), access, MapFlags::empty())?,
        };
        // Zeroing 2 MiB at a first touch would be seen in the times. A kernel without huge pages refuses, rightly.
        mapping.advise(Advice::LinuxNoHugepage);
        mapping.advise(Advice::LinuxDontDump);
        Ok(Image(mapping))
    }

    /// Touches the pages of a range, so that handing it out later does not wait for them.
    pub(super) fn touch(&self, offset: u64, bytes: u32) {
        let mut at = offset;
        while at < offset + u64::from(bytes) {
            self.read(at, &mut [0]);
            at = (at / BLOCK + 1) * BLOCK;
        }
    }

    /// Writes `head` and a range to a file with one call, from where they lie; yields the bytes.
    pub(super) fn write_to(
        &self,
        file: impl AsFd,
        at: Option<u64>,
        head: &[u8],
        (offset, bytes): (u64, usize),
    ) -> io::Result<usize> {
        self.0.write_to(file, at, head, (offset as usize, bytes))
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        self.0.read(offset as usize, into);
    }

    fn write(&self, offset: u64, data: &[u8]) {
        self.0.write(offset as usize, data);
    }
}

/// A block that is not safe yet.
#[derive(Debug)]
struct Record {
    layer: u64,
    block: u64,
    /// Its old contents; `None` for zeroes.
    old: Option<Box<[u8]>>,
}

/// Result of a power cut.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Losses {
    /// Blocks of 4 KiB that were not on the medium, and have reached it nonetheless.
    pub kept: u64,
    /// Those that hold what they held before.
    pub lost: u64,
    /// Those of which some sectors are new and some old.
    pub torn: u64,
}

/// Writes that a power cut could take back.
#[derive(Debug)]
pub(super) struct Undo {
    /// Writes stay in a cache until a flush.
    volatile: bool,
    max_records: usize,
    records: VecDeque<Record>,
    /// The newest layer in which a block is remembered.
    newest: HashMap<u64, u64>,
    layer: u64,
}

impl Undo {
    /// For a drive whose volatile cache has this number of bytes; `None` for one without.
    pub(super) fn new(cache_bytes: Option<u64>) -> Undo {
        let max_records = cache_bytes.map_or(usize::MAX, |bytes| (bytes / BLOCK).max(1) as usize);
        Undo {
            volatile: cache_bytes.is_some(),
            max_records,
            records: VecDeque::new(),
            newest: HashMap::new(),
            layer: 0,
        }
    }

    /// Blocks that are remembered.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Writes data; yields the layer that is to be named when the write is done.
    pub(super) fn write(&mut self, image: &Image, offset: u64, data: &[u8]) -> u64 {
        if !self.volatile {
            self.layer += 1;
        }
        if !data.is_empty() {
            for block in offset / BLOCK..=(offset + data.len() as u64 - 1) / BLOCK {
                if self.newest.insert(block, self.layer) != Some(self.layer) {
                    let mut old = vec![0; BLOCK as usize];
                    image.read(block * BLOCK, &mut old);
                    let old = old.iter().any(|byte| *byte != 0).then(|| old.into_boxed_slice());
                    self.records.push_back(Record { layer: self.layer, block, old });
                }
            }
        }
        image.write(offset, data);
        while self.records.len() > self.max_records {
            self.forget_oldest();
        }
        self.layer
    }

    fn forget_oldest(&mut self) {
        let Some(record) = self.records.pop_front() else { return };
        if self.newest.get(&record.block) == Some(&record.layer) {
            self.newest.remove(&record.block);
        }
    }

    /// A flush has arrived; yields the layer that is to be named when it is done.
    pub(super) fn seal(&mut self) -> u64 {
        self.layer += 1;
        self.layer - 1
    }

    /// A flush is done.
    pub(super) fn flushed(&mut self, layer: u64) {
        while self.records.front().is_some_and(|record| record.layer <= layer) {
            self.forget_oldest();
        }
    }

    /// A write is done.
    pub(super) fn written(&mut self, layer: u64) {
        if self.volatile {
            return;
        }
        for record in self.records.iter().filter(|record| record.layer == layer) {
            if self.newest.get(&record.block) == Some(&layer) {
                self.newest.remove(&record.block);
            }
        }
        self.records.retain(|record| record.layer != layer);
    }

    /// The power goes: data that was not on the medium is kept, lost or torn.
    pub(super) fn crash(&mut self, image: &Image, rng: &mut Rng) -> Losses {
        let mut oldest: BTreeMap<u64, Option<Box<[u8]>>> = BTreeMap::new();
        for record in self.records.drain(..) {
            oldest.entry(record.block).or_insert(record.old);
        }
        self.newest.clear();
        let mut losses = Losses::default();
        for (block, old) in oldest {
            let old = old.unwrap_or_else(|| vec![0; BLOCK as usize].into_boxed_slice());
            match rng.below(3) {
                0 => losses.kept += 1,
                1 => {
                    image.write(block * BLOCK, &old);
                    losses.lost += 1;
                }
                _ => {
                    for (nr, sector) in old.chunks(SECTOR_BYTES as usize).enumerate() {
                        if rng.below(2) == 0 {
                            image.write(block * BLOCK + nr as u64 * SECTOR_BYTES, sector);
                        }
                    }
                    losses.torn += 1;
                }
            }
        }
        losses
    }
}

#[cfg(test)]
mod tests {
    use iowhy_stack::rng::Rng;
    use proptest::prelude::*;

    use super::*;

    const BLOCKS: u64 = 8;

    fn content(image: &Image) -> Vec<u8> {
        let mut all = vec![0; (BLOCKS * BLOCK) as usize];
        image.read(0, &mut all);
        all
    }

    /// The possible contents of each sector after a power cut, kept the plain way: every version since the last one
    /// that is safe.
    struct Oracle {
        volatile: bool,
        versions: Vec<Vec<u8>>,
        sealed: Option<Vec<usize>>,
    }

    impl Oracle {
        fn write(&mut self, first: u64, nr: u64, value: u8) {
            for sector in first..first + nr {
                self.versions[sector as usize].push(value);
                if !self.volatile {
                    self.versions[sector as usize].drain(..1);
                }
            }
        }

        fn seal(&mut self) {
            self.sealed = Some(self.versions.iter().map(|versions| versions.len() - 1).collect());
        }

        fn flushed(&mut self) {
            for (versions, sealed) in self.versions.iter_mut().zip(self.sealed.take().into_iter().flatten()) {
                versions.drain(..sealed);
            }
        }
    }

    proptest! {
        #[test]
        fn reads_see_the_last_write_and_a_power_cut_takes_back_only_what_was_not_flushed(
            volatile in any::<bool>(), seed in any::<u64>(),
            steps in prop::collection::vec((0u8..6, 0u64..60, 1u64..20), 1..60),
        ) {
            let image = Image::new(BLOCKS * BLOCK, None).expect("memory");
            let mut undo = Undo::new(volatile.then_some(1 << 30));
            let nr_sectors = BLOCKS * 8;
            let mut oracle = Oracle { volatile, versions: vec![vec![0]; nr_sectors as usize], sealed: None };
            let mut sealed = None;
            for (value, (kind, first, nr)) in (1u8..).zip(&steps) {
                match kind {
                    0 if sealed.is_none() => {
                        sealed = Some(undo.seal());
                        oracle.seal();
                    }
                    1 => if let Some(layer) = sealed.take() {
                        undo.flushed(layer);
                        oracle.flushed();
                    },
                    _ => {
                        let nr = (*nr).min(nr_sectors - first);
                        let layer = undo.write(&image, first * 512, &vec![value; (nr * 512) as usize]);
                        undo.written(layer);
                        oracle.write(*first, nr, value);
                    }
                }
                for (sector, versions) in content(&image).chunks(512).zip(&oracle.versions) {
                    prop_assert!(sector.iter().all(|byte| Some(byte) == versions.last()));
                }
            }
            let losses = undo.crash(&image, &mut Rng::stream(seed, "crash"));
            prop_assert_eq!(undo.len(), 0);
            for (sector, versions) in content(&image).chunks(512).zip(&oracle.versions) {
                prop_assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is never torn");
                prop_assert!(versions.contains(&sector[0]), "{} of {:?}", sector[0], versions);
            }
            prop_assert!(volatile || losses == Losses::default(), "{losses:?}");
        }
    }

    #[test]
    fn every_fate_comes_about_and_depends_on_the_seed_alone() {
        let fate = |seed| {
            let image = Image::new(64 * BLOCK, None).expect("memory");
            let mut undo = Undo::new(Some(1 << 30));
            undo.write(&image, 0, &vec![7; (64 * BLOCK) as usize]);
            let losses = undo.crash(&image, &mut Rng::stream(seed, "crash"));
            let mut all = vec![0; (64 * BLOCK) as usize];
            image.read(0, &mut all);
            (losses, all)
        };
        let (losses, all) = fate(1);
        assert!(losses.kept > 5 && losses.lost > 5 && losses.torn > 5, "{losses:?}");
        assert_eq!(losses.kept + losses.lost + losses.torn, 64);
        assert_eq!(fate(1), (losses, all.clone()));
        assert_ne!(fate(2).1, all);
    }

    #[test]
    fn no_more_can_be_lost_than_the_cache_holds_and_writes_in_flight_can_always_be() {
        let image = Image::new(64 * BLOCK, None).expect("memory");
        let mut undo = Undo::new(Some(8 * BLOCK));
        undo.write(&image, 0, &vec![7; (64 * BLOCK) as usize]);
        assert_eq!(undo.len(), 8);
        undo.crash(&image, &mut Rng::stream(1, "crash"));
        let mut all = vec![0; (56 * BLOCK) as usize];
        image.read(0, &mut all);
        assert!(all.iter().all(|byte| *byte == 7));

        let mut through = Undo::new(None);
        let layers = [through.write(&image, 0, &[9; 4096]), through.write(&image, 4096, &[9; 4096])];
        through.written(layers[0]);
        let losses = through.crash(&image, &mut Rng::stream(1, "crash"));
        assert_eq!(losses.kept + losses.lost + losses.torn, 1);
    }

    #[test]
    fn a_file_can_hold_the_data() {
        let scratch = crate::testing::Scratch::new();
        std::fs::create_dir_all(scratch.path("")).expect("a folder");
        let path = scratch.path("image");
        let file = File::create_new(&path).expect("a file");
        file.set_len(4 * BLOCK).expect("it can grow");
        drop(file);
        let file = File::options().read(true).write(true).open(&path).expect("the file");
        Undo::new(None).write(&Image::new(4 * BLOCK, Some(&file)).expect("a mapping"), 100, b"data");
        let all = std::fs::read(&path).expect("the file");
        assert_eq!((&all[100..104], all.len()), (&b"data"[..], 4 * BLOCK as usize));
    }
}

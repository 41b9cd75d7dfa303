//! Disks in memory (zram) for costs of the processor alone, and foreign pages of them in the cache.
//!
//! Made when the first side needs one, removed with the last: unmounted, then given back to the kernel. A device that
//! was there before is never touched.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use iowhy_live::ledger::{Guard, Ledger};

const BYTES: u64 = 96 << 20;
/// The file on a disk with a file system.
const FILE: &str = "data";
const FILE_BYTES: u64 = 48 << 20;
/// Foreign pages.
const PAGES: u64 = 25;
const PAGE_BYTES: usize = 4096;

/// A disk in memory.
#[derive(Debug)]
pub(super) struct Memory {
    filesystem: Option<&'static str>,
    node: PathBuf,
    folder: Option<PathBuf>,
    // Dropped from the first to the last: the file system has to go before the device.
    _guards: Vec<Guard>,
    _device: Guard,
}

impl Memory {
    fn make(filesystem: Option<&'static str>) -> Result<Memory, String> {
        let said = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        let (ledger, _) = Ledger::open().map_err(|error| error.to_string())?;
        let (node, device) = ledger.add_zram(BYTES).map_err(|error| error.to_string())?;
        if !node.exists() {
            return Err(format!("{} is not there", node.display()));
        }
        let mut memory = Memory { filesystem, node, folder: None, _guards: Vec::new(), _device: device };
        let Some(name) = filesystem else { return Ok(memory) };
        let program = format!("mkfs.{name}");
        let made = Command::new(&program).args(["-q", "-F"]).arg(&memory.node).stdin(Stdio::null()).output();
        let made = made.map_err(|error| format!("{program}: {error}"))?;
        if !made.status.success() {
            return Err(format!("{program}: {}", String::from_utf8_lossy(&made.stderr).trim()));
        }
        let folder = std::env::temp_dir().join(format!("iowhy-incident-{}", std::process::id()));
        let guard = ledger.create_directory(&folder).map_err(|error| error.to_string())?;
        let mount = ledger.mount(&memory.node, &folder, name, "").map_err(|error| error.to_string())?;
        // The later change is undone first.
        memory._guards.push(guard.and(mount));
        let file = File::create(folder.join(FILE)).map_err(said("a file"))?;
        let zeroes = vec![0; 1 << 20];
        for at in (0..FILE_BYTES).step_by(zeroes.len()) {
            file.write_all_at(&zeroes, at).map_err(said("a file"))?;
        }
        file.sync_all().map_err(said("a file"))?;
        memory.folder = Some(folder);
        Ok(memory)
    }

    /// A job's name for its target.
    pub(super) fn name(&self) -> String {
        if self.folder.is_some() { FILE.to_owned() } else { self.node.display().to_string() }
    }

    /// The folder of the files, if there is one.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The target of writes.
    pub(super) fn target(&self) -> PathBuf {
        self.folder.as_ref().map_or_else(|| self.node.clone(), |folder| folder.join(FILE))
    }

    /// Brings the first pages into the cache; they stay while the descriptor is open.
    pub(super) fn hold(&self) -> io::Result<File> {
        let file = File::open(self.target())?;
        let mut page = [0; PAGE_BYTES];
        for nr in 0..PAGES {
            file.read_exact_at(&mut page, nr * PAGE_BYTES as u64)?;
        }
        Ok(file)
    }
}

/// The disks in memory of an incident.
#[derive(Debug, Default)]
pub(super) struct Grounds(Vec<Memory>);

impl Grounds {
    /// Makes the disk, if it is not there yet.
    pub(super) fn make(&mut self, filesystem: Option<&'static str>) -> Result<(), String> {
        if self.memory(filesystem).is_err() {
            self.0.push(Memory::make(filesystem)?);
        }
        Ok(())
    }

    /// The disk.
    pub(super) fn memory(&self, filesystem: Option<&'static str>) -> Result<&Memory, String> {
        let found = self.0.iter().find(|memory| memory.filesystem == filesystem);
        found.ok_or_else(|| "no disk in memory".to_owned())
    }
}

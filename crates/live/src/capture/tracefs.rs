//! The kernel's own tracing as a source of events: two private instances of tracefs.
//!
//! ```text
//! tasks      an instance for what tasks do themselves: calls, plugs, waits; where processes are named it follows these
//!            and what they start (`set_event_pid`, `event-fork`)
//! devices    an instance for what interrupts and helpers do on their behalf, too: pages, bios, requests, completions;
//!            filtered by device and inode, never by process, or completions would be lost. At the full level so are
//!            pages that leave the page cache: kswapd and others take them away from the tasks
//! ```
//! Source: `Documentation/trace/ftrace.rst`, `events.rst`. Both are in the [`ledger`](crate::ledger) before they are
//! made, so the next run removes what a killed one left. The global buffer is never touched, nor are instances of
//! others. If no tracefs is mounted where it usually is, one is mounted in a folder of its own. Known limits: a file
//! system's own device number (btrfs: one for each subvolume) is not always that of `stat`, so files there may not be
//! found by their inodes; kernels before 5.7 cannot leave out tasks; 6.18 lacks switches from the idle task of all
//! CPUs but the first where processes are named.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::decode::Decoded;
use super::events::{self, EVENTS, LEAVING, Place};
use super::format;
use super::instance::{self, Instance, Lost};
use super::reader::{Page, Pipes, Rings};
use super::shape::Shape;
use super::{Ask, CaptureError, On, Prepared, Source};
use crate::ledger::{Guard, Ledger};
use crate::machine;

/// The name that tracefs of ours is mounted under.
const SOURCE: &str = "iowhy-trace";

/// Where tracefs usually is. Mounts elsewhere may be those of another capture, which goes when that ends.
pub(super) const USUAL: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Finds tracefs, or mounts it for as long as the guard is kept.
///
/// # Errors
///
/// The ledger cannot note the mount, or the kernel refuses it.
pub fn tracefs(ledger: &Ledger) -> Result<(PathBuf, Option<Guard>), CaptureError> {
    let mounts = machine::current_mounts();
    for usual in USUAL {
        if mounts.iter().any(|mount| mount.point == Path::new(usual) && mount.filesystem == "tracefs") {
            return Ok((PathBuf::from(usual), None));
        }
    }
    // A folder that something is mounted on looks like any other: the mount gets one inside of ours.
    let folder = ledger.scratch_path("tracefs");
    let made = ledger.create_scratch_directory(&folder)?;
    let path = folder.join("mount");
    fs::create_dir(&path).map_err(|error| CaptureError::Io { attempt: "make", path: path.clone(), error })?;
    let mount = ledger.mount(Path::new(SOURCE), &path, "tracefs", "").map_err(CaptureError::NoTracefs)?;
    Ok((path, Some(made.and(mount))))
}

/// Whether tracefs is where it usually is, and open to this user.
pub(super) fn is_at_its_place() -> bool {
    USUAL.iter().any(|usual| Path::new(usual).join("events").exists())
}

/// Does something with tracefs at its usual place. If it is not mounted there, a thread with mounts of its own does it:
/// nobody else sees these, and they go with the thread.
pub(super) fn at_its_place<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    if is_at_its_place() {
        return what();
    }
    let elsewhere = || {
        // A user without the right to do so gets what there is without tracefs.
        let _ = mount_for_this_thread();
        what()
    };
    std::thread::scope(|scope| scope.spawn(elsewhere).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Gives this thread mounts of its own, tracefs at its usual place among them.
fn mount_for_this_thread() -> rustix::io::Result<()> {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    // SAFETY: of the mounts, and with them the working directory, this thread has a copy from now on; descriptors
    // stay as they are.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount(SOURCE, USUAL[0], "tracefs", MountFlags::empty(), None)
}

/// Whether this user's group may make instances, as an administrator can allow.
pub(super) fn is_writable() -> bool {
    use rustix::fs::{Access, access};
    USUAL.iter().any(|usual| access(Path::new(usual).join("instances"), Access::WRITE_OK | Access::EXEC_OK).is_ok())
}

/// Instances with their events, filters and sizes.
#[derive(Debug)]
pub(super) struct Instances {
    pub(super) tracefs: PathBuf,
    pub(super) tasks: Instance,
    pub(super) devices: Instance,
}

impl Instances {
    /// Switched off, with a ring of this size for each CPU, for tasks and for devices.
    pub(super) fn make(ask: &Ask, ledger: &Ledger, buffers_kib: [u32; 2]) -> Result<Prepared<Instances>, CaptureError> {
        let (tracefs, mut guard) = tracefs(ledger)?;
        let mut make = |kib| -> Result<Instance, CaptureError> {
            let (path, made) = ledger.create_trace_instance(&tracefs)?;
            guard = Some(match guard.take() {
                Some(before) => before.and(made),
                None => made,
            });
            Instance::new(path, kib)
        };
        let (tasks, devices) = (make(buffers_kib[0])?, make(buffers_kib[1])?);
        let event_ps = tasks.cost_of_an_event()?;
        let mut missing = Vec::new();
        let mut shapes = BTreeMap::new();
        for event in EVENTS.iter().filter(|event| ask.wants(event)) {
            let instance = match event.place {
                Place::Task | Place::State => &tasks,
                Place::Leaving if ask.sees_reclaim() => &devices,
                Place::Page | Place::Leaving if ask.inodes.is_empty() && ask.devices.is_empty() => &tasks,
                Place::Page | Place::Leaving | Place::Block | Place::Remap | Place::Worker => &devices,
            };
            let offered = |name: &&&str| !ask.leaves_out(name) && instance.offers(name);
            let Some(name) = event.names.iter().find(offered) else {
                if !event.gone {
                    missing.push(event.names[0].replacen('/', ":", 1));
                }
                continue;
            };
            let shape = format::parse(&instance.format(name)?)
                .and_then(|format| Shape::of(event, name, format))
                .map_err(|what| CaptureError::Strange { path: instance.event_file(name, "format"), what })?;
            if let Some(filter) = events::filter(event.place, ask)
                && instance.filter(name, &filter).is_err()
            {
                missing.push(format!("the filter of {}", name.replacen('/', ":", 1)));
            }
            instance.enable(name)?;
            shapes.insert(shape.id, shape);
        }
        let source = Instances { tracefs, tasks, devices };
        Ok(Prepared { source, guard, shapes, missing, event_ps })
    }
}

impl Source for Instances {
    fn rings(&mut self) -> Result<Box<dyn Rings>, CaptureError> {
        let mut rings = self.tasks.rings()?;
        rings.extend(self.devices.rings()?);
        let page = vec![0; self.tasks.sub_buffer().max(self.devices.sub_buffer())];
        Ok(Box::new(Pipes { rings, page }))
    }

    fn aim(&mut self, ask: &Ask, own: &[u32]) -> Result<(), CaptureError> {
        if !ask.of_tasks() {
            return self.tasks.ignore(own);
        }
        self.tasks.follow_forks()?;
        // Of nobody's tasks, those of everybody would pass; our own are hidden later.
        if ask.children || ask.pids.is_empty() {
            self.tasks.follow(&own[..1])?;
        }
        if !self.follow(&ask.pids, own.last().copied().unwrap_or(0))? && !ask.named {
            ask.pids.first().map_or(Ok(()), |pid| Err(CaptureError::NoProcess(*pid)))?;
        }
        Ok(())
    }

    fn follow(&mut self, pids: &[u32], reader: u32) -> Result<bool, CaptureError> {
        instance::each_thread(pids, reader, |some| self.tasks.follow(some))
    }

    fn switch(&mut self, on: On) -> Result<(), CaptureError> {
        match on {
            On::All => {
                self.devices.switch(true)?;
                self.tasks.switch(true)
            }
            On::Leaving => {
                self.tasks.switch(false)?;
                self.devices.only(LEAVING)
            }
            On::Nothing => {
                self.tasks.switch(false)?;
                self.devices.switch(false)
            }
        }
    }

    fn decode(&self, decoded: &mut Decoded, page: &Page<'_>, shapes: &BTreeMap<u16, Shape>, start_ns: u64) {
        decoded.page(page, shapes, start_ns);
    }

    fn names(&self) -> BTreeMap<u32, String> {
        instance::saved_names(&self.tracefs)
    }

    fn lost(&self) -> u64 {
        let mut lost = Lost::default();
        [&self.tasks, &self.devices].into_iter().for_each(|instance| lost.add(instance.lost(false)));
        lost.events
    }
}

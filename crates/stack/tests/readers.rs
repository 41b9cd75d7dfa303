//! Several readers of one file: who leaves a hole in a window, who is woken when, and what the disk's counters show.

use iowhy_stack::event::{CallId, Event, EventSink, What};
use iowhy_stack::job::{FileSpec, Job, Place, ThreadJob, ThreadSpec, Workload};
use iowhy_stack::kernel::{Stack, find_kernel};
use iowhy_stack::outcome::{Outcome, Plan};
use iowhy_stack::sim;
use iowhy_stack::units::{Nanos, PAGE_BYTES, PAGE_SECTORS};
use iowhy_stack::workload::{Mix, Stream, Target};

const BYTES: u64 = 24 << 20;
/// Indirect blocks of such a file, the double indirect one included.
const NR_INDIRECT: u64 = 7;

/// `readers` of one file of 24 MiB, page by page.
fn plan(readers: u32, keys: &[(&str, &str)]) -> Plan {
    let mut stack = Stack::new(find_kernel("linux-4.4").expect("a kernel"));
    stack.set_device("sata-2014").expect("a disk");
    for (key, value) in keys {
        stack.set(key, value).expect("a key");
    }
    let thread = |reader| ThreadJob {
        spec: ThreadSpec { tool: Some(Nanos(3_000)), startup_seeks: 4, ..ThreadSpec::new(reader) },
        stream: Stream::sequential(Mix::Read, vec![Target { file: 0, start: 0, len_bytes: BYTES }], PAGE_BYTES as u32),
    };
    let files = vec![FileSpec { bytes: BYTES, place: Place::FileSystem }];
    Plan { stack, job: Job::new(Workload::Threads { files, threads: (0..readers).map(thread).collect() }, 1) }
}

fn run(readers: u32, keys: &[(&str, &str)]) -> Outcome {
    sim::run(&plan(readers, keys)).expect("a run")
}

/// Where one file to a block group would need 2.5 GB.
#[test]
fn files_that_fit_a_disk_one_behind_the_other_fit_it_with_block_groups() {
    let fits = |nr_files| {
        let mut plan = plan(1, &[("filesystem", "ext4"), ("journal_at_mb", "1024")]);
        plan.stack.set_device("fixed").expect("a disk");
        plan.stack.set_device_option("nr_sectors", &(2 << 21).to_string()).expect("a size");
        let Workload::Threads { files, .. } = &mut plan.job.workload else { unreachable!("it has threads") };
        *files = vec![FileSpec { bytes: 65 << 20, place: Place::FileSystem }; nr_files];
        sim::run(&plan).is_ok()
    };
    assert_eq!([1, 20, 32].map(fits), [true, true, false]);
}

#[test]
fn every_page_is_read_once_whoever_finds_the_hole() {
    let data = BYTES / PAGE_BYTES * PAGE_SECTORS;
    for wait in ["all", "one-by-one"] {
        for (filesystem, nr_indirect) in [("ext3-4.3", NR_INDIRECT), ("ext4", 0)] {
            for readers in [1, 3, 8] {
                let keys = [("filesystem", filesystem), ("page_wait", wait), ("machine.wake_max_us", "100")];
                let outcome = run(readers, &keys);
                let name = format!("{filesystem}, {wait}, {readers} readers");
                assert_eq!(outcome.layers.reads.sectors, data + nr_indirect * PAGE_SECTORS, "{name}");
                assert_eq!(outcome.layers.reads.mapping, nr_indirect, "{name}");
                assert_eq!(outcome.layers.pages_added, BYTES / PAGE_BYTES, "{name}");
                assert_eq!(outcome.counts.read_bytes, BYTES * u64::from(readers), "{name}");
            }
        }
    }
}

#[test]
fn a_reader_that_sleeps_for_an_indirect_block_leaves_a_hole_to_another() {
    // The page whose block is looked up is in the cache, what follows is not: another reader begins its window there.
    let small = |readers: u32, filesystem: &str| {
        run(readers, &[("filesystem", filesystem), ("read_ahead_kb", "512")]).layers.reads.small_data
    };
    assert_eq!(small(1, "ext3-4.3"), 0, "nobody else is there");
    let pieces = small(3, "ext3-4.3");
    assert!((NR_INDIRECT / 2..=2 * NR_INDIRECT).contains(&pieces), "{pieces} pages were read alone");
    assert_eq!(small(3, "ext4"), 0, "nothing is looked up");
}

/// When the first read call of each thread ended.
#[derive(Default)]
struct FirstEnds {
    calls: Vec<CallId>,
    ends: Vec<Nanos>,
}

impl EventSink for FirstEnds {
    fn event(&mut self, event: &Event) {
        match event.what {
            What::CallStart { .. } if self.calls.len() < 3 => self.calls.push(event.call),
            What::CallEnd { .. } if self.calls.contains(&event.call) => self.ends.push(event.at),
            _ => {}
        }
    }
}

#[test]
fn a_page_wakes_its_readers_at_once_or_one_after_the_other() {
    // All wait for the first page, and each CPU takes 100 us to wake up.
    for (wait, expected_us) in [("all", 0), ("one-by-one", 100)] {
        let keys = [("page_wait", wait), ("machine.wake_min_us", "100"), ("machine.wake_max_us", "100")];
        let mut seen = FirstEnds::default();
        sim::run_with(&plan(3, &keys), &mut seen).expect("a run");
        let gaps: Vec<u64> = seen.ends.windows(2).map(|pair| (pair[1] - pair[0]).0 / 1_000).collect();
        assert_eq!(gaps.len(), 2, "{wait}");
        assert!(gaps.iter().all(|gap| gap.abs_diff(expected_us) < 20), "{wait}: {gaps:?} us");
    }
}

#[test]
fn a_disk_that_the_elevator_keeps_idle_is_busy_to_iostat() {
    let keys = [("filesystem", "ext3-4.3"), ("machine.wake_min_us", "10"), ("machine.wake_max_us", "190")];
    let layers = run(3, &keys).layers;
    assert!(layers.idles[2] > 0 && layers.idle_time > Nanos::ZERO, "CFQ waits: {:?}", layers.idles);
    // Most of these waits keep a request of another reader in the queue.
    assert!(layers.queue_busy.0 - layers.device_busy.0 > layers.idle_time.0 / 2);
    assert!(layers.queue_busy <= layers.end);
    let busy_ms = layers.iostat().svctm_ms * layers.commands() as f64;
    assert!((busy_ms - layers.queue_busy.as_ms_f64()).abs() < 1e-3);
}

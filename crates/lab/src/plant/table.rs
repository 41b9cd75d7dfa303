//! Jobs to plant causes in, and causes to plant.

/// Kinds of jobs, for causes that need one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Tag {
    /// Reads one place after the next, through the cache.
    Sequential,
    /// The same with calls of several pages.
    SequentialLarge,
    /// Reads at random, through the cache, from several threads.
    RandomMany,
    /// Calls of 256 KiB and more, round the cache.
    LargeDirect,
    /// Streams with pauses, through the cache.
    Thinking,
    /// The same round the cache.
    ThinkingDirect,
    /// Small calls at random, many at once, round the cache.
    SmallDeep,
    /// Small calls at random, one at a time.
    SmallAlone,
    /// Writes that are followed by fsync.
    Fsync,
    /// Buffered writes without fsync, more than may be dirty.
    Dirtying,
    /// Reads that mostly hit.
    Cached,
    /// Reads of mappings at random.
    MappedRandom,
    /// Several tasks write directly, one after the other each.
    DirectWriters,
    /// dd of 1 MiB with pauses.
    Paused,
    /// sysbench with 16 threads on shared descriptors.
    SharedDescriptors,
    /// Small direct calls one behind the other, many at once.
    Mergeable,
    /// Several threads write directly to one file.
    OneFile,
    /// Direct and buffered calls, to files of their own.
    TwoKinds,
    /// A device that another program may read.
    Probed,
    /// Small direct reads one behind the other, one at a time.
    OneByOne,
    /// Buffered reads and writes at random, of less than may be dirty.
    Mixed,
    /// Has options of fio.
    Fio,
}

use Tag::*;

/// A job with the places it may run at.
#[derive(Debug)]
pub struct Base {
    pub name: &'static str,
    /// Words after `iowhy`.
    pub job: &'static str,
    /// Kernels (with keys) and disks.
    pub places: &'static [(&'static str, &'static str)],
    /// Its kinds.
    pub tags: &'static [Tag],
    /// Runs of each side: enough for what varies.
    pub runs: u32,
}

const OLD_AND_NEW: &[(&str, &str)] = &[
    ("linux-2.6.18-164.el5", "sata-2010"),
    ("linux-2.6.38,elevator=deadline", "sata-2010"),
    ("linux-3.3,elevator=deadline", "ssd-sata-2011"),
    ("linux-4.4,elevator=deadline", "sata-2014"),
    ("linux-4.19,elevator=deadline", "ssd-sata-2011"),
    ("linux-6.1", "nvme"),
    ("linux-6.12", "virtio"),
    ("linux-6.18", "sata-2014"),
    ("linux-6.18", "nvme"),
];
const DISKS_ONLY: &[(&str, &str)] = &[
    ("linux-2.6.38,elevator=deadline", "sata-2010"),
    ("linux-4.4,elevator=deadline", "sata-2014"),
    ("linux-4.4,elevator=cfq", "sata-2014"),
    ("linux-4.4,elevator=deadline", "sata-2014,queue_depth=1"),
    ("linux-4.4,elevator=cfq", "sata-2014,queue_depth=1"),
    ("linux-6.1", "sata-2014"),
    ("linux-6.18", "sata-2014,queue_depth=1"),
    ("linux-6.18", "sata-2014"),
];
const FAST: &[(&str, &str)] = &[
    ("linux-3.3,elevator=deadline", "ssd-sata-2011"),
    ("linux-4.19,elevator=deadline", "ssd-sata-2011"),
    ("linux-6.1", "nvme"),
    ("linux-6.12", "virtio"),
    ("linux-6.18", "nvme"),
    ("linux-6.18", "virtio"),
];

/// The device is given commands late enough for bios to join them.
const QUEUES_THAT_MERGE: &[(&str, &str)] = &[
    ("linux-2.6.38,elevator=deadline", "sata-2010"),
    ("linux-3.3,elevator=deadline", "sata-2010,queue_depth=1"),
    ("linux-4.4,elevator=deadline", "sata-2014,queue_depth=1"),
    ("linux-4.4,elevator=noop", "sata-2014,queue_depth=1"),
    ("linux-4.19,elevator=cfq", "sata-2014,queue_depth=1"),
    ("linux-6.1,nr_requests=64", "sata-2014,queue_depth=1"),
    ("linux-6.18,nr_requests=64", "sata-2014,queue_depth=1"),
];

/// Jobs.
pub const BASES: &[Base] = &[
    Base {
        name: "sequential reads of 64 KiB",
        job: "run fio --name=j --randrepeat=0 --rw=read --bs=64k --size=64m",
        places: OLD_AND_NEW,
        tags: &[Sequential, SequentialLarge, Fio],
        runs: 5,
    },
    Base {
        name: "sequential reads of 4 KiB",
        job: "run fio --name=j --randrepeat=0 --rw=read --bs=4k --size=24m",
        places: OLD_AND_NEW,
        tags: &[Sequential, Fio],
        runs: 5,
    },
    Base {
        name: "four streams",
        job: "run fio --name=j --randrepeat=0 --rw=read --bs=16k --size=24m --numjobs=4 --thread",
        places: OLD_AND_NEW,
        tags: &[Sequential, SequentialLarge, Fio],
        runs: 5,
    },
    Base {
        name: "random reads of 4 KiB, one thread",
        job: "run fio --name=j --randrepeat=0 --rw=randread --bs=4k --size=2g --number_ios=500",
        places: OLD_AND_NEW,
        tags: &[SmallAlone, Fio],
        runs: 5,
    },
    Base {
        name: "random reads of 16 KiB, eight threads",
        job: "run fio --name=j --randrepeat=0 --rw=randread --bs=16k --size=50g --numjobs=8 --number_ios=150 --thread",
        places: DISKS_ONLY,
        tags: &[RandomMany, Fio],
        runs: 5,
    },
    Base {
        name: "streams that think",
        job: "run fio --name=j --randrepeat=0 --rw=read --bs=64k --size=8m --numjobs=4 --thinktime=2ms \
              --thinktime_blocks=1",
        places: &[
            ("linux-4.4,elevator=cfq", "sata-2014"),
            ("linux-4.4,elevator=cfq", "sata-2014,queue_depth=1"),
            ("linux-3.3,elevator=cfq", "sata-2010"),
            ("linux-4.19,elevator=cfq", "sata-2014"),
        ],
        tags: &[Thinking, Fio],
        runs: 5,
    },
    Base {
        name: "direct streams that think",
        job: "run fio --name=j --randrepeat=0 --rw=read --bs=16k --direct=1 --size=4m --numjobs=4 --thinktime=3ms",
        places: &[
            ("linux-4.4,elevator=cfq", "sata-2014"),
            ("linux-3.3,elevator=cfq", "sata-2010"),
            ("linux-4.19,elevator=cfq", "sata-2014"),
        ],
        tags: &[ThinkingDirect, Fio],
        runs: 5,
    },
    Base {
        name: "direct random reads, 32 at once",
        job: "run fio --name=j --randrepeat=0 --rw=randread --bs=4k --size=4g --number_ios=2500 --direct=1 \
              --ioengine=libaio --iodepth=32",
        places: FAST,
        tags: &[SmallDeep, Fio],
        runs: 5,
    },
    Base {
        name: "direct reads of 1 MiB",
        job: "run fio --name=j --randrepeat=0 --rw=read --bs=1m --size=256m --direct=1",
        places: OLD_AND_NEW,
        tags: &[LargeDirect, Fio],
        runs: 5,
    },
    Base {
        name: "direct writes of 512 KiB",
        job: "run fio --name=j --randrepeat=0 --rw=write --bs=512k --size=128m --direct=1",
        places: FAST,
        tags: &[LargeDirect, Fio],
        runs: 5,
    },
    Base {
        name: "direct reads of 4 KiB, one behind the other",
        job: "run fio --name=j --randrepeat=0 --rw=read --bs=4k --size=16m --direct=1 --ioengine=libaio --iodepth=32 \
              --iodepth_batch_submit=16 --iodepth_batch_complete=16",
        places: QUEUES_THAT_MERGE,
        tags: &[Mergeable, Fio],
        runs: 5,
    },
    Base {
        name: "direct writes of 8 KiB, one behind the other",
        job: "run fio --name=j --randrepeat=0 --rw=write --bs=8k --size=24m --direct=1 --ioengine=libaio --iodepth=32 \
              --iodepth_batch_submit=16 --iodepth_batch_complete=16",
        places: QUEUES_THAT_MERGE,
        tags: &[Mergeable, Fio],
        runs: 5,
    },
    Base {
        name: "direct reads of 8 KiB, one by one",
        job: "run fio --name=j --randrepeat=0 --rw=read --bs=8k --size=16m --direct=1",
        places: DISKS_ONLY,
        tags: &[OneByOne, Fio],
        runs: 5,
    },
    Base {
        name: "buffered reads and writes",
        job: "run fio --name=j --randrepeat=0 --rw=randrw --bs=16k --size=1g --number_ios=800",
        places: &[
            ("linux-3.3,elevator=deadline", "sata-2010"),
            ("linux-4.4,elevator=deadline", "sata-2014"),
            ("linux-6.1", "sata-2014"),
            ("linux-6.18", "sata-2014"),
        ],
        tags: &[Mixed, Fio],
        runs: 5,
    },
    Base {
        name: "direct writers of one file",
        job: "run fio --name=j --randrepeat=0 --rw=randwrite --bs=4k --size=256m --direct=1 --numjobs=4 --thread \
              --filename=f --number_ios=250",
        places: &[
            ("linux-3.3,elevator=deadline", "ssd-sata-2011"),
            ("linux-4.4,elevator=deadline", "ssd-sata-2011"),
            ("linux-4.19,elevator=noop", "ssd-sata-2011"),
            ("linux-6.1", "nvme"),
            ("linux-6.12", "virtio"),
            ("linux-6.18", "nvme"),
        ],
        tags: &[OneFile],
        runs: 5,
    },
    Base {
        name: "direct reads next to buffered writes",
        job: "run fio --name=d --randrepeat=0 --rw=randread --bs=4k --size=8m --number_ios=800 --direct=1 \
              --filename=f --name=b --rw=randwrite --bs=4k --size=8m --number_ios=800 --thinktime=20us \
              --filename=g --name=c --rw=randwrite --bs=4k --size=8m --number_ios=800 --filename=g",
        places: FAST,
        tags: &[TwoKinds],
        runs: 5,
    },
    Base {
        name: "log writer",
        job: "run fio --name=j --randrepeat=0 --rw=write --bs=4k --size=64m --fsync=1 --number_ios=300",
        places: OLD_AND_NEW,
        tags: &[Fsync, Fio],
        runs: 5,
    },
    Base {
        name: "database",
        job: "run fio --name=j --randrepeat=0 --rw=randrw --rwmixread=60 --bs=16k --size=1g --fsync=20 --numjobs=4 \
              --number_ios=200 --thread",
        places: OLD_AND_NEW,
        tags: &[Fsync, Fio],
        runs: 5,
    },
    Base {
        name: "buffered writes",
        job: "run fio --name=j --randrepeat=0 --rw=write --bs=64k --size=384m",
        places: &[
            ("linux-3.3,elevator=deadline,machine.memory_mb=1024", "sata-2010"),
            ("linux-4.4,elevator=deadline,machine.memory_mb=2048", "sata-2014"),
            ("linux-6.1,machine.memory_mb=2048", "virtio"),
            ("linux-6.18,machine.memory_mb=2048", "sata-2014"),
        ],
        tags: &[Dirtying, Fio],
        runs: 5,
    },
    Base {
        name: "cached reads",
        job: "run fio --name=j --randrepeat=0 --rw=randread --random_distribution=zipf:1.1 --bs=4k --size=192m \
              --number_ios=8000 --iowhy_cache=warm",
        places: OLD_AND_NEW,
        tags: &[Cached, Fio],
        runs: 5,
    },
    Base {
        name: "random touches of a mapping",
        job: "run fio --name=j --randrepeat=0 --rw=randread --bs=4k --size=2g --number_ios=300 --ioengine=mmap \
              --fadvise_hint=0",
        places: OLD_AND_NEW,
        tags: &[MappedRandom, Fio],
        runs: 5,
    },
    Base {
        name: "two direct writers",
        job: "run dd if=/dev/zero of=/dev/sdb bs=4096 count=1500 oflag=direct writers=2 distance=125g jitter=16m",
        places: &[("linux-2.6.18-164.el5", "sata-2010,write_cache_slots=37")],
        tags: &[DirectWriters],
        runs: 40,
    },
    Base {
        name: "dd with pauses",
        job: "run dd if=/dev/sda bs=1M count=256 pause_us=1000 pause_calls=64",
        places: &[(
            "linux-2.6.38,machine=laptop-2011,machine.noise_pct=5",
            "ssd-sata-2011,idle_threshold_us=200,idle_exit_us=6000",
        )],
        tags: &[Paused],
        runs: 5,
    },
    Base {
        name: "sysbench on shared descriptors",
        job: "sysbench fileio --file-num=32 --file-total-size=1G --file-block-size=16384 --file-test-mode=rndrd \
              --num-threads=16 --max-requests=1500 --max-time=0 --cache=cold run",
        places: &[
            ("linux-2.6.6-rc3+private-copy,elevator=deadline", "ide-2004"),
            ("linux-2.6.6-rc3+private-copy,elevator=anticipatory", "ide-2004"),
            ("linux-2.6.6-rc3+private-copy,elevator=noop", "ide-2004"),
        ],
        tags: &[SharedDescriptors],
        runs: 5,
    },
    Base {
        name: "direct writers of a probed device",
        job: "run fio --rw=randwrite --name=j --randrepeat=0 --filename=/dev/mapper/zzz --size=26843545600 \
              --norandommap --direct=1 \
              --iodepth=1024 --iodepth_batch_complete=16 --iodepth_batch_submit=16 --ioengine=libaio --offset=0 \
              --offset_increment=53687091200 --bs=4096 --numjobs=2 --thread --number_ios=20000 --iowhy_actor=blkid \
              --iowhy_probe_delay=5ms-15ms --iowhy_open_stagger=20ms",
        places: &[(
            "linux-3.2.0,direct.slot_ps=1560,machine=xeon-2012,machine.tool_ns=500,machine.bio_ns=1200",
            "zero,nr_sectors=4000000000000",
        )],
        tags: &[Probed],
        runs: 8,
    },
];

/// One way to plant a cause.
#[derive(Debug)]
pub enum Change {
    /// A key of the stack: without the cause, and with it. Nothing for the default.
    Key(&'static str, &'static str, &'static str),
    /// Several of these, which are one setting.
    Keys(&'static [(&'static str, &'static str, &'static str)]),
    /// A key of the disk.
    Disk(&'static str, &'static str, &'static str),
    /// The kernel (up to the comma) is another one.
    Kernel(&'static str),
    /// A word of the job (or the beginning of one) is replaced.
    Word(&'static str, &'static str),
    /// Words are added to the job.
    Add(&'static str),
    /// A foreign job runs at the same time.
    Neighbour(&'static str),
}

/// A cause.
#[derive(Debug)]
pub struct Plant {
    pub name: &'static str,
    /// Its permitted names.
    pub expected: &'static [&'static str],
    /// Of two causes at once, none are of the same group.
    pub group: &'static str,
    /// A job needs one of these.
    pub tags: &'static [Tag],
    /// A disk has to begin with one of these; empty for all.
    pub disks: &'static [&'static str],
    /// A kernel (with its keys) has to contain one of these; empty for all.
    pub kernels: &'static [&'static str],
    /// Ways to plant it.
    pub changes: &'static [Change],
}

/// Calls of another size leave no equal commands, windows or copies to compare, and so hide every cause below.
const HIDES_OTHERS: &str = "size";
/// Groups whose causes leave no equal commands, so that the device cannot be judged next to them: other windows are
/// other requests, and a neighbour's commands, or blocks that map a file, lie between all others.
const HIDE_DEVICE: &[&str] = &["read-ahead", "actor", "requests", "mapping"];

impl Plant {
    /// Whether both can be found when they are planted together.
    pub fn goes_with(&self, other: &Plant) -> bool {
        let hidden = |a: &Plant, b: &Plant| a.group == "device" && HIDE_DEVICE.contains(&b.group);
        self.group != other.group
            && self.group != HIDES_OTHERS
            && other.group != HIDES_OTHERS
            && !hidden(self, other)
            && !hidden(other, self)
    }

    /// Whether it can be planted there.
    pub fn fits(&self, base: &Base, on: &str, disk: &str) -> bool {
        self.tags.iter().any(|tag| base.tags.contains(tag))
            && (self.disks.is_empty() || self.disks.iter().any(|name| disk.starts_with(name)))
            && (self.kernels.is_empty() || self.kernels.iter().any(|name| on.contains(name)))
    }
}

const ROTATING: &[&str] = &["sata", "ide"];

/// Causes.
pub const PLANTS: &[Plant] = &[
    Plant {
        name: "small read-ahead window",
        expected: &["window-too-small"],
        group: "read-ahead",
        tags: &[Sequential],
        disks: &[],
        kernels: &[],
        changes: &[
            Change::Key("read_ahead_kb", "128", "16"),
            Change::Key("read_ahead_kb", "128", "32"),
            Change::Key("read_ahead_kb", "512", "64"),
        ],
    },
    Plant {
        name: "no read-ahead",
        expected: &["readahead-off"],
        group: "read-ahead",
        tags: &[Sequential],
        disks: &[],
        kernels: &[],
        changes: &[Change::Key("read_ahead_kb", "128", "0")],
    },
    Plant {
        name: "large read-ahead window around random touches",
        expected: &["window-too-large", "mmap-read-around"],
        group: "read-ahead",
        tags: &[MappedRandom],
        disks: &[],
        kernels: &[],
        changes: &[Change::Key("read_ahead_kb", "128", "2048"), Change::Key("read_ahead_kb", "128", "4096")],
    },
    Plant {
        name: "advice of random access",
        expected: &["random-advice"],
        group: "read-ahead",
        tags: &[SequentialLarge],
        disks: &[],
        kernels: &["linux-3", "linux-4", "linux-6"],
        changes: &[Change::Add("--fadvise_hint=random")],
    },
    Plant {
        name: "shared read-ahead state",
        expected: &["shared-readahead-state"],
        group: "read-ahead",
        tags: &[SharedDescriptors],
        disks: &[],
        kernels: &[],
        changes: &[Change::Kernel("linux-2.6.6-rc3")],
    },
    Plant {
        name: "plug held around reads",
        expected: &["plug-around-read"],
        group: "plug",
        tags: &[Paused],
        disks: &[],
        kernels: &[],
        changes: &[Change::Key("plug", "queue-2.6.13", "task-2.6.39")],
    },
    Plant {
        name: "small requests",
        expected: &["requests-cut"],
        group: "requests",
        tags: &[LargeDirect],
        disks: &[],
        kernels: &[],
        changes: &[
            Change::Key("max_sectors_kb", "512", "32"),
            Change::Key("max_sectors_kb", "512", "64"),
            Change::Key("max_segments", "128", "4"),
        ],
    },
    Plant {
        name: "merging switched off",
        expected: &["merging-off"],
        group: "requests",
        tags: &[Mergeable],
        disks: &[],
        kernels: &[],
        changes: &[Change::Key("nomerges", "0", "2")],
    },
    Plant {
        name: "a lock for each write",
        expected: &["lock-serialisation"],
        group: "lock",
        tags: &[OneFile],
        disks: &[],
        kernels: &[],
        changes: &[Change::Key("direct.inode_lock", "shared", "exclusive")],
    },
    Plant {
        name: "direct calls over dirty pages",
        expected: &["mixed-direct-and-buffered"],
        group: "lock",
        tags: &[TwoKinds],
        disks: &[],
        kernels: &[],
        changes: &[Change::Word("--filename=g", "--filename=f")],
    },
    Plant {
        name: "streams not kept together",
        // Which of both is slower depends on the disk.
        expected: &["lost-locality", "slice-idling"],
        group: "elevator",
        tags: &[ThinkingDirect],
        disks: &[],
        kernels: &[],
        changes: &[Change::Key("elevator.slice_idle_ms", "8", "0"), Change::Key("elevator", "cfq", "noop")],
    },
    Plant {
        name: "idling of slices",
        expected: &["slice-idling"],
        group: "elevator",
        tags: &[Thinking],
        disks: &[],
        kernels: &[],
        changes: &[Change::Key("elevator.slice_idle_ms", "0", "8"), Change::Key("elevator.slice_idle_ms", "0", "4")],
    },
    Plant {
        name: "queue depth one",
        expected: &["queue-depth-one"],
        group: "depth",
        tags: &[SmallDeep],
        disks: &[],
        kernels: &[],
        changes: &[Change::Disk("queue_depth", "32", "1"), Change::Disk("queue_depth", "32", "2")],
    },
    Plant {
        name: "a queue for each writer",
        expected: &["async-queue-per-task"],
        group: "elevator",
        tags: &[DirectWriters],
        disks: &[],
        kernels: &[],
        changes: &[Change::Key("elevator", "cfq-2.6.18-164", "cfq-2.6.18-186")],
    },
    Plant {
        name: "little memory",
        expected: &["cache-too-small"],
        group: "memory",
        tags: &[Cached],
        disks: &[],
        kernels: &[],
        changes: &[Change::Key("machine.memory_mb", "4096", "700"), Change::Key("machine.memory_mb", "4096", "620")],
    },
    Plant {
        name: "tight limits of dirty pages",
        expected: &["writeback-throttling"],
        group: "writeback",
        tags: &[Dirtying],
        disks: &[],
        kernels: &[],
        changes: &[Change::Key("writeback.dirty_ratio", "80", "5"), Change::Key("writeback.dirty_ratio", "80", "10")],
    },
    Plant {
        name: "writing back at once",
        expected: &["early-writeback"],
        group: "writeback",
        tags: &[Mixed],
        disks: &[],
        kernels: &[],
        changes: &[Change::Keys(&[
            ("writeback.dirty_background_ratio", "10", "0"),
            ("writeback.background_stop_ratio", "10", "0"),
        ])],
    },
    Plant {
        name: "indirect blocks",
        expected: &["metadata-reads"],
        group: "mapping",
        tags: &[Sequential, LargeDirect, RandomMany],
        disks: ROTATING,
        kernels: &["linux-3", "linux-4"],
        changes: &[Change::Key("filesystem", "xfs", "ext3-4.3"), Change::Key("filesystem", "ext4", "ext3-4.3")],
    },
    Plant {
        name: "barriers",
        expected: &["flush-cost"],
        group: "filesystem",
        tags: &[Fsync],
        disks: &[],
        kernels: &["linux-3", "linux-4", "linux-6"],
        changes: &[Change::Key("filesystem.barriers", "off", "on")],
    },
    Plant {
        name: "slower arm",
        expected: &["device-latency"],
        group: "device",
        tags: &[RandomMany, SmallAlone, MappedRandom],
        disks: ROTATING,
        kernels: &[],
        changes: &[Change::Disk("seek_avg_us", "8500", "14000"), Change::Disk("rpm", "7200", "4200")],
    },
    Plant {
        name: "slower flash",
        expected: &["device-latency"],
        group: "device",
        tags: &[SmallAlone, SmallDeep, MappedRandom],
        disks: &["nvme", "virtio"],
        kernels: &[],
        changes: &[Change::Disk("read_us", "80", "240"), Change::Disk("read_us", "100", "400")],
    },
    Plant {
        name: "slower transfer",
        expected: &["device-bandwidth"],
        group: "device",
        tags: &[LargeDirect],
        disks: &["nvme", "ssd"],
        kernels: &[],
        changes: &[
            Change::Disk("link_rate_kb_s", "250000", "100000"),
            Change::Disk("link_rate_kb_s", "400000", "120000"),
        ],
    },
    Plant {
        name: "slower medium",
        expected: &["device-bandwidth"],
        group: "device",
        tags: &[Sequential, LargeDirect],
        disks: &["sata"],
        kernels: &[],
        changes: &[Change::Disk("media_rate_kb_s", "120000", "50000")],
    },
    Plant {
        name: "inner cylinders",
        expected: &["device-bandwidth"],
        group: "device",
        tags: &[Sequential, LargeDirect],
        disks: &["sata-2014"],
        kernels: &[],
        changes: &[
            Change::Key("filesystem.start_mb", "1", "800000"),
            Change::Key("filesystem.start_mb", "1", "600000"),
        ],
    },
    Plant {
        name: "no look-ahead",
        expected: &["device-latency"],
        group: "device",
        tags: &[OneByOne],
        disks: &["sata"],
        kernels: &[],
        changes: &[Change::Disk("lookahead_kb", "4096", "0")],
    },
    Plant {
        name: "limit of bytes",
        // Of commands of one size, a cap on bytes is one on commands, too.
        expected: &["device-bandwidth", "device-iops-cap"],
        group: "device",
        tags: &[LargeDirect, Sequential],
        disks: &["virtio"],
        kernels: &[],
        changes: &[Change::Disk("bw_limit_mb", "0", "60"), Change::Disk("bw_limit_mb", "0", "120")],
    },
    Plant {
        name: "limit of operations",
        expected: &["device-iops-cap"],
        group: "device",
        tags: &[SmallDeep],
        disks: &["virtio"],
        kernels: &[],
        changes: &[Change::Disk("iops_limit", "0", "3000"), Change::Disk("iops_limit", "0", "8000")],
    },
    Plant {
        name: "other size of calls",
        expected: &["changed-job"],
        group: HIDES_OTHERS,
        tags: &[Fio],
        disks: &[],
        kernels: &[],
        changes: &[
            Change::Word("--bs=4k", "--bs=16k"),
            Change::Word("--bs=64k", "--bs=8k"),
            Change::Word("--bs=16k", "--bs=64k"),
        ],
    },
    Plant {
        name: "more threads",
        expected: &["changed-job"],
        group: "job",
        tags: &[SmallAlone, Fsync],
        disks: &[],
        kernels: &[],
        changes: &[Change::Add("--numjobs=3"), Change::Add("--numjobs=6")],
    },
    Plant {
        name: "syncs added",
        expected: &["changed-job"],
        group: "job",
        tags: &[Dirtying],
        disks: &[],
        kernels: &[],
        changes: &[Change::Add("--fsync=8"), Change::Add("--fsync=32")],
    },
    Plant {
        name: "stale pages",
        expected: &["stale-pages-under-direct-io"],
        group: "actor",
        tags: &[Probed],
        disks: &[],
        kernels: &[],
        changes: &[Change::Word("--iowhy_open_stagger=20ms", "--iowhy_open_stagger=0")],
    },
    Plant {
        name: "a neighbour",
        expected: &["noisy-neighbour"],
        group: "actor",
        tags: &[Sequential, SmallAlone, RandomMany],
        disks: ROTATING,
        kernels: &[],
        changes: &[
            Change::Neighbour("--rw=randread --bs=64k --direct=1 --size=2g --time_based --runtime=60"),
            Change::Neighbour("--rw=randread --bs=4k --direct=1 --size=2g --time_based --runtime=60"),
        ],
    },
    Plant {
        name: "a neighbour that writes",
        expected: &["noisy-neighbour"],
        group: "actor",
        tags: &[Sequential, SmallAlone, RandomMany],
        disks: ROTATING,
        kernels: &[],
        changes: &[
            Change::Neighbour("--rw=randwrite --bs=64k --direct=1 --size=2g --time_based --runtime=60"),
            Change::Neighbour("--rw=write --bs=1m --direct=1 --size=2g --time_based --runtime=60"),
            Change::Neighbour("--rw=randwrite --bs=64k --fsync=16 --size=2g --time_based --runtime=60"),
        ],
    },
    Plant {
        name: "pauses of the program",
        expected: &["program-pauses"],
        group: "job",
        // With several threads and a second cause, slower calls hide whose pauses they are.
        tags: &[SmallAlone, Cached, LargeDirect, MappedRandom],
        disks: &[],
        kernels: &[],
        changes: &[Change::Add("--thinktime=1ms"), Change::Add("--thinktime=200us")],
    },
    Plant {
        name: "processors that sleep deeply",
        expected: &["slow-wakeups"],
        group: "cpu",
        tags: &[SmallAlone, Sequential, MappedRandom],
        disks: &["nvme", "virtio", "ssd"],
        kernels: &[],
        changes: &[
            Change::Keys(&[("machine.wake_min_us", "0", "100"), ("machine.wake_max_us", "0", "200")]),
            Change::Keys(&[("machine.wake_min_us", "0", "30"), ("machine.wake_max_us", "0", "60")]),
        ],
    },
    Plant {
        name: "slower code",
        expected: &["cpu-bound-submission"],
        group: "cpu",
        tags: &[Cached],
        disks: &[],
        kernels: &[],
        changes: &[
            Change::Key("machine.syscall_ns", "500", "4000"),
            Change::Key("machine.page_copy_ns", "500", "5000"),
        ],
    },
];

/// A command line in the making.
pub(super) struct Draft {
    job: String,
    kernel: String,
    keys: Vec<(String, String)>,
    disk: String,
    disk_keys: Vec<(String, String)>,
    /// A foreign job is in it.
    pub neighbour: bool,
    beside: String,
}

/// A name with `,key=value` behind it.
fn apart(text: &str) -> (String, Vec<(String, String)>) {
    let mut pieces = text.split(',');
    let name = pieces.next().unwrap_or_default().to_owned();
    let pair = |piece: &str| {
        let (key, value) = piece.split_once('=').unwrap_or((piece, ""));
        (key.to_owned(), value.to_owned())
    };
    (name, pieces.map(pair).collect())
}

fn put(keys: &mut Vec<(String, String)>, key: &str, value: &str) {
    match keys.iter_mut().find(|(known, _)| known == key) {
        Some((_, known)) => value.clone_into(known),
        None => keys.push((key.to_owned(), value.to_owned())),
    }
}

impl Draft {
    /// Of a job at a place.
    pub(super) fn new(base: &Base, on: &str, disk: &str) -> Draft {
        let (kernel, keys) = apart(on);
        let (disk, disk_keys) = apart(disk);
        Draft { job: base.job.to_owned(), kernel, keys, disk, disk_keys, neighbour: false, beside: String::new() }
    }

    /// Puts a change in, with its cause or without.
    pub(super) fn apply(&mut self, change: &Change, on: bool) {
        match change {
            Change::Key(key, without, with) => put(&mut self.keys, key, if on { with } else { without }),
            Change::Keys(keys) => {
                keys.iter().for_each(|(key, without, with)| put(&mut self.keys, key, if on { with } else { without }));
            }
            Change::Disk(key, without, with) => put(&mut self.disk_keys, key, if on { with } else { without }),
            Change::Kernel(name) if on => (*name).clone_into(&mut self.kernel),
            Change::Word(old, new) if on => self.job = self.job.replacen(old, new, 1),
            Change::Add(words) if on => self.job = format!("{} {words}", self.job),
            Change::Neighbour(words) if on => {
                self.neighbour = true;
                self.beside = format!(" --name=beside --filename=beside {words}");
            }
            Change::Kernel(_) | Change::Word(..) | Change::Add(_) | Change::Neighbour(_) => {}
        }
    }

    /// Words after `iowhy`.
    pub(super) fn text(&self) -> String {
        let keys = |keys: &[(String, String)]| -> String {
            keys.iter().map(|(key, value)| format!(",{key}={value}")).collect()
        };
        format!(
            "{}{} --on sim:{}{} --disk {}{}",
            self.job,
            self.beside,
            self.kernel,
            keys(&self.keys),
            self.disk,
            keys(&self.disk_keys)
        )
    }
}

//! Questions to today's kernel about each incident: jobs, the disks they run on, and the figures read off.
//!
//! A side is a job on a disk, as `iowhy run JOB --on live --disk DISK` takes both. A question sets two sides against
//! each other, or holds one against a limit. Sources of the changes: the history of the kernel (release in which a
//! change appeared) and the models of this program, whose origins `iowhy models kernel` lists.
//!
//! Known limits: modelled disks cannot show what the processor pays, so the pages of 2012 are on a disk in memory.
//! Groups of readers of 2018 follow one another in one run, each on files of its own.

use super::{Against, ForeignPages, Live, Question, Reference, Side, Site, Worse};

/// The drive of 2004 with random reads, each of four pages.
const IDE: Site = Site::Model("ide-2004,fs=ext3,size=192m,depth=4,write_cache=off");
const SPLIT_SHARED: &str = "fio --name=j --filename=data --rw=randread --bs=16k --size=96m --numjobs=16 --thread \
                            --number_ios=12 --iowhy_descriptors=shared";
const SPLIT_OWN: &str = "fio --name=j --filename=data --rw=randread --bs=16k --size=96m --numjobs=16 --thread \
                         --number_ios=12 --iowhy_descriptors=own";
const STREAMS_SHARED: &str = "fio --name=j --filename=data --rw=read --bs=16k --size=6m --numjobs=2 --thread \
                              --fadvise_hint=0 --offset_increment=48m --iowhy_descriptors=shared";
const STREAMS_OWN: &str = "fio --name=j --filename=data --rw=read --bs=16k --size=6m --numjobs=2 --thread \
                              --fadvise_hint=0 --offset_increment=48m --iowhy_descriptors=own";

/// Two writers, each with a region, on a rotational disk (bfq waits for no other) whose write cache answers after
/// 600 us.
const WRITERS: &str = "dd of=/dev/iowhy-disk bs=4k oflag=direct count=700 writers=2 distance=64m";

/// Groups of readers of one file, and of as many files. fio's hint would double the window, and dd gives none.
const READERS: &str = "fio --name=s1 --filename=s1 --rw=read --bs=4k --size=6m --numjobs=1 --invalidate=0 \
    --fadvise_hint=0 --group_reporting --new_group --name=s3 --filename=s3 --rw=read --bs=4k --size=6m --numjobs=3 \
    --invalidate=0 --fadvise_hint=0 --group_reporting --new_group --stonewall --name=s5 --filename=s5 --rw=read \
    --bs=4k --size=6m --numjobs=5 --invalidate=0 --fadvise_hint=0 --group_reporting --new_group --stonewall \
    --name=s7 --filename=s7 --rw=read --bs=4k --size=6m --numjobs=7 --invalidate=0 --fadvise_hint=0 \
    --group_reporting --new_group --stonewall --name=s8 --filename=s8 --rw=read --bs=4k --size=6m --numjobs=8 \
    --invalidate=0 --fadvise_hint=0 --group_reporting --new_group --stonewall --name=m3 --rw=read --bs=4k \
    --size=4m --numjobs=3 --invalidate=0 --fadvise_hint=0 --group_reporting --new_group --stonewall --name=m8 \
    --rw=read --bs=4k --size=1536k --numjobs=8 --invalidate=0 --fadvise_hint=0 --group_reporting --new_group \
    --stonewall --cache=cold";

/// Direct writes behind foreign pages in the cache. Zeroes cost such a disk next to nothing.
const WRITES: &str = "fio --name=j --filename={} --rw=randwrite --bs=4k --direct=1 --offset=1m --size=40m --loops=32 \
                      --zero_buffers --invalidate=0";
const WRITES_INVALIDATING: &str = "fio --name=j --filename={} --rw=randwrite --bs=4k --direct=1 --offset=1m \
                                   --size=40m --loops=32 --zero_buffers --invalidate=1";

/// The job of 2023, a third as long, on a volume of 500 operations a second.
const FSYNCS: &str = "fio --name=j --rw=randwrite --ioengine=psync --bs=16k --numjobs=16 --runtime=20 --time_based \
                      --thread --filename=file0 --filesize=1000000 --fsync=1 --group_reporting";
const VOLUME: Site = Site::Model("virtio,iops_limit=500,fs=ext4,size=256m");

/// One reader of a file on the disk of the incident.
const SSD: Site = Site::Model("ssd-sata-2011,idle_threshold_us=200,idle_exit_us=6000,fs=ext4,size=192m");

const fn traced(id: &'static str, job: &'static str, ground: Site) -> Side {
    Side { id, job, ground, trace: true, held: ForeignPages::Nothing, quick: true }
}

const fn plain(id: &'static str, job: &'static str, ground: Site) -> Side {
    Side { id, job, ground, trace: false, held: ForeignPages::Nothing, quick: true }
}

const fn long(side: Side) -> Side {
    Side { quick: false, ..side }
}

const fn holding(side: Side) -> Side {
    Side { held: ForeignPages::Pages, ..side }
}

/// Readers with a window of 128 KB against as many with 512 KB, all of one file (`single`) or each of its own
/// (`multi`), next to rows of a published table if there is one.
macro_rules! windows {
    ($disk:literal, single $nr:literal) => {
        windows!(@ $disk, "single", "s", $nr, Reference::Nothing)
    };
    ($disk:literal, multi $nr:literal) => {
        windows!(@ $disk, "multi", "m", $nr, Reference::Nothing)
    };
    ($disk:literal, single $nr:literal, $table:literal) => {
        windows!(
            @ $disk,
            "single",
            "s",
            $nr,
            Reference::Rows(concat!($table, "/vanilla/", $nr), concat!($table, "/readahead/", $nr))
        )
    };
    (@ $disk:literal, $files:literal, $letter:literal, $nr:literal, $beside:expr) => {
        Question {
            id: concat!($disk, "/", $files, "/", $nr),
            text: "with a window of 128 KB they take longer than with 512 KB",
            of: concat!($disk, "/128"),
            to: Against::Side(concat!($disk, "/512")),
            metric: concat!($letter, $nr, ".elapsed_s"),
            worse: Worse::More,
            least_pct: 5.0,
            beside: $beside,
            since: "a disk that reads ahead by itself hides small windows; without that, the running kernel keeps a \
                    second window on its way (read-ahead on demand, since 2.6.23), and the requests of one stream \
                    follow on",
        }
    };
}

/// Every incident's part.
pub const LIVE: &[Live] = &[
    Live {
        incident: "2004-random-read-split",
        sides: &[
            traced("random-shared", SPLIT_SHARED, IDE),
            traced("random-own", SPLIT_OWN, IDE),
            traced("streams-shared", STREAMS_SHARED, IDE),
            traced("streams-own", STREAMS_OWN, IDE),
        ],
        questions: &[
            Question {
                id: "split",
                text: "random reads of 16 KiB reach the disk as requests of 4 KiB (percent of the reads of data)",
                of: "random-shared",
                to: Against::Limit,
                metric: "data_reads_of_4k_pct",
                worse: Worse::More,
                least_pct: 10.0,
                beside: Reference::SmallReads("rc3-as"),
                since: "since 2.6.7 a read call works on a copy of the read-ahead state that is its own, and since \
                        2.6.23 (read-ahead on demand) a random read is asked for as a whole",
            },
            Question {
                id: "random-shared",
                text: "random reads through shared descriptors take longer than through own ones",
                of: "random-shared",
                to: Against::Side("random-own"),
                metric: "elapsed_s",
                worse: Worse::More,
                least_pct: 10.0,
                beside: Reference::Rows("rc3-as", "2.4.25"),
                since: "since 2.6.7 a read call works on a copy of the read-ahead state that is its own",
            },
            Question {
                id: "streams-shared",
                text: "two sequential streams on one descriptor take longer than on two",
                of: "streams-shared",
                to: Against::Side("streams-own"),
                metric: "elapsed_s",
                worse: Worse::More,
                least_pct: 10.0,
                beside: Reference::Nothing,
                since: "the state of a descriptor still follows one stream only: where this does not show, the disk or \
                        the turns of the threads hide it",
            },
        ],
        not_shown: &[
            "the elevators of 2004 (noop, anticipatory, deadline, cfq): the single-queue block layer left in 5.0",
        ],
    },
    Live {
        incident: "2010-cfq-direct-writers",
        sides: &[
            plain("idle", WRITERS, writers("elevator.slice_idle_us=8000,elevator.low_latency=off")),
            plain("no-idle", WRITERS, writers("elevator.slice_idle_us=0,elevator.low_latency=off")),
            long(plain("idle-low-latency", WRITERS, writers("elevator.slice_idle_us=8000,elevator.low_latency=on"))),
            long(plain(
                "deadline",
                WRITERS,
                Site::Model("sata-2010,tfw_us=600,size=512m,depth=4,scheduler=mq-deadline"),
            )),
        ],
        questions: &[
            Question {
                id: "idling",
                text: "two direct writers are slower with bfq that waits (slice_idle=8, low_latency=0) than with bfq \
                       that does not",
                of: "idle",
                to: Against::Side("no-idle"),
                metric: "write_mb_s",
                worse: Worse::Less,
                least_pct: 3.0,
                beside: Reference::Rows("186r-2", "nopatch-2"),
                since: "cfq left with the single-queue block layer in 5.0",
            },
            Question {
                id: "idling-by-default",
                text: "so they are with bfq as it is by default (slice_idle=8, low_latency=1)",
                of: "idle-low-latency",
                to: Against::Side("no-idle"),
                metric: "write_mb_s",
                worse: Worse::Less,
                least_pct: 3.0,
                beside: Reference::Rows("186r-2", "nopatch-2"),
                since: "cfq left with the single-queue block layer in 5.0; bfq (since 4.12) does not wait for such \
                        writers while low_latency raises their weight",
            },
            Question {
                id: "idling-against-deadline",
                text: "bfq that waits is slower than mq-deadline",
                of: "idle",
                to: Against::Side("deadline"),
                metric: "write_mb_s",
                worse: Worse::Less,
                least_pct: 3.0,
                beside: Reference::Nothing,
                since: "cfq left with the single-queue block layer in 5.0",
            },
        ],
        not_shown: &[
            "the published loss needs cfq of RHEL 5, which no kernel has had since 5.0: only its idea is asked",
        ],
    },
    Live {
        incident: "2012-direct-io-stale-cache",
        sides: &[
            plain("clean", WRITES, Site::Memory { filesystem: None }),
            holding(plain("stale", WRITES, Site::Memory { filesystem: None })),
            holding(long(plain("stale-invalidated", WRITES_INVALIDATING, Site::Memory { filesystem: None }))),
            long(plain("clean-ext4", WRITES, Site::Memory { filesystem: Some("ext4") })),
            holding(long(plain("stale-ext4", WRITES, Site::Memory { filesystem: Some("ext4") }))),
        ],
        questions: &[
            Question {
                id: "stale",
                text: "direct writes are slower while 25 pages of the device are held in the cache",
                of: "stale",
                to: Against::Side("clean"),
                metric: "sum_of_write_mb_s",
                worse: Worse::Less,
                least_pct: 2.0,
                beside: Reference::Claim("slow-mode", "stale-4k", "clean-4k"),
                since: "since 4.20 (xarray) a lookup in a mapping with few pages walks no empty slots",
            },
            Question {
                id: "invalidated",
                text: "so they are if the job drops the pages first",
                of: "stale-invalidated",
                to: Against::Side("clean"),
                metric: "sum_of_write_mb_s",
                worse: Worse::Less,
                least_pct: 2.0,
                beside: Reference::Rows("invalidated", "clean-4k"),
                since: "no pages are left to look for: dropping them is the cure, as published",
            },
            Question {
                id: "stale-ext4",
                text: "so they are on a file of ext4 with 25 pages in the cache",
                of: "stale-ext4",
                to: Against::Side("clean-ext4"),
                metric: "sum_of_write_mb_s",
                worse: Worse::Less,
                least_pct: 2.0,
                beside: Reference::Nothing,
                since: "since 4.20 (xarray) a lookup in a mapping with few pages walks no empty slots",
            },
        ],
        not_shown: &[
            "the race that put the pages there: the pages are put there on purpose, through a descriptor that \
                      stays open",
        ],
    },
    Live {
        incident: "2012-plugged-readahead",
        sides: &[
            traced("16k", "fio --name=j --filename=data --rw=read --bs=16k --size=96m --fadvise_hint=0", SSD),
            traced("128k", "fio --name=j --filename=data --rw=read --bs=128k --size=96m --fadvise_hint=0", SSD),
            traced("1m", "fio --name=j --filename=data --rw=read --bs=1m --size=96m --fadvise_hint=0", SSD),
        ],
        questions: &[
            Question {
                id: "large-reads",
                text: "reads of 1 MB are slower than reads of 128 KB with a window of 128 KB",
                of: "1m",
                to: Against::Side("128k"),
                metric: "read_mb_s",
                worse: Worse::Less,
                least_pct: 10.0,
                beside: Reference::Rows("2.6.39", "2.6.38"),
                since: "since 3.3 no plug is held around a whole read, and since 4.10 a read that is larger than the \
                        window is asked for as a whole",
            },
            Question {
                id: "idle-disk",
                text: "the disk is idle during reads of 1 MB (percent of the time)",
                of: "1m",
                to: Against::Limit,
                metric: "device_idle_pct",
                worse: Worse::More,
                least_pct: 25.0,
                beside: Reference::Nothing,
                since: "since 3.3 no plug is held around a whole read",
            },
            Question {
                id: "small-reads",
                text: "reads of 16 KB are slower than reads of 128 KB",
                of: "16k",
                to: Against::Side("128k"),
                metric: "read_mb_s",
                worse: Worse::Less,
                least_pct: 10.0,
                beside: Reference::Rows("2.6.39-128k", "2.6.38-128k"),
                since: "they never were: the window is the same",
            },
        ],
        not_shown: &[],
    },
    Live {
        incident: "2018-readahead-window",
        sides: &[
            plain("ext3/128", READERS, disk("fs=ext3,lookahead_kb=0,history_kb=0,read_ahead_kb=128")),
            plain("ext3/512", READERS, disk("fs=ext3,lookahead_kb=0,history_kb=0,read_ahead_kb=512")),
            long(plain("xfs/128", READERS, disk("fs=xfs,lookahead_kb=0,history_kb=0,read_ahead_kb=128"))),
            long(plain("xfs/512", READERS, disk("fs=xfs,lookahead_kb=0,history_kb=0,read_ahead_kb=512"))),
            long(plain("ext3/buffer/128", READERS, disk("fs=ext3,read_ahead_kb=128"))),
            long(plain("ext3/buffer/512", READERS, disk("fs=ext3,read_ahead_kb=512"))),
            long(plain("xfs/buffer/128", READERS, disk("fs=xfs,read_ahead_kb=128"))),
            long(plain("xfs/buffer/512", READERS, disk("fs=xfs,read_ahead_kb=512"))),
        ],
        questions: WINDOWS,
        not_shown: &["pgbench and bonnie++ of the report: they take far longer than a minute (`iowhy run pgbench`)"],
    },
    Live {
        incident: "2022-wbt-write-cache",
        sides: &[],
        questions: &[],
        not_shown: &["the flag was set wrongly in 6.1-rc1 only, for drives without a volatile cache"],
    },
    Live {
        incident: "2023-fsyncs-share-less",
        sides: &[plain("shared", FSYNCS, VOLUME)],
        questions: &[Question {
            id: "slower",
            text: "16 threads that write and fsync one file are slower on the second kernel than on the first",
            of: "shared",
            to: Against::FirstKernel,
            metric: "write_mb_s",
            worse: Worse::Less,
            least_pct: 1.0,
            beside: Reference::Rows("after", "before"),
            since: "the commit is in 5.8 and later: kernels on the same side of it do not differ",
        }],
        not_shown: &[
            "on one kernel: the second look cannot be set (--on kernel:A --on kernel:B, before and after 5.8)",
        ],
    },
    Live {
        incident: "2024-deadline-insertion-lists",
        sides: &[],
        questions: &[],
        not_shown: &["the series was dropped: no released kernel has it"],
    },
    Live {
        incident: "2024-deadline-wake-batch",
        sides: &[],
        questions: &[],
        not_shown: &["both sides need a kernel of their own: the batch cannot be set"],
    },
    Live {
        incident: "2024-flush-before-zeroing",
        sides: &[],
        questions: &[],
        not_shown: &["XFS on a modelled disk is made for files that exist; 6.12 and later flush only if they must"],
    },
    Live {
        incident: "2024-journal-past-throttle",
        sides: &[],
        questions: &[],
        not_shown: &["both sides need a kernel of their own: the flags cannot be set"],
    },
    Live {
        incident: "2024-plug-merge-end",
        sides: &[],
        questions: &[],
        not_shown: &["buffers of half a page need a disk of an odd size, which modelled disks do not have"],
    },
    Live {
        incident: "2024-plug-per-bio",
        sides: &[],
        questions: &[],
        not_shown: &["both sides need a kernel of their own: who runs the queue cannot be set"],
    },
    Live {
        incident: "2025-fuse-ring-poll",
        sides: &[],
        questions: &[],
        not_shown: &["both sides need a kernel of their own; --live has no FUSE server that programs read from"],
    },
    Live {
        incident: "2025-uring-nowait",
        sides: &[],
        questions: &[],
        not_shown: &["NFS and tmpfs are on no disk that could be modelled"],
    },
];

const fn writers(settings: &'static str) -> Site {
    Site::Tuned("sata-2010,tfw_us=600,size=512m,depth=4,scheduler=bfq", settings)
}

const fn disk(settings: &'static str) -> Site {
    Site::Tuned("sata-2014,write_cache=off,size=320m,depth=4", settings)
}

/// A question for each number of readers, file system and disk.
const WINDOWS: &[Question] = &[
    windows!("ext3", single 1),
    windows!("ext3", single 3),
    windows!("ext3", single 5),
    windows!("ext3", single 7),
    windows!("ext3", single 8),
    windows!("ext3", multi 3),
    windows!("ext3", multi 8),
    windows!("xfs", single 1),
    windows!("xfs", single 3),
    windows!("xfs", single 5),
    windows!("xfs", single 7),
    windows!("xfs", single 8),
    windows!("xfs", multi 3),
    windows!("xfs", multi 8),
    windows!("ext3/buffer", single 1, "paralleldd-single-ext3-uma"),
    windows!("ext3/buffer", single 3, "paralleldd-single-ext3-uma"),
    windows!("ext3/buffer", single 5, "paralleldd-single-ext3-uma"),
    windows!("ext3/buffer", single 7, "paralleldd-single-ext3-uma"),
    windows!("ext3/buffer", single 8, "paralleldd-single-ext3-uma"),
    windows!("ext3/buffer", multi 3),
    windows!("ext3/buffer", multi 8),
    windows!("xfs/buffer", single 1, "paralleldd-single-xfs-uma-amean"),
    windows!("xfs/buffer", single 3, "paralleldd-single-xfs-uma-amean"),
    windows!("xfs/buffer", single 5, "paralleldd-single-xfs-uma-amean"),
    windows!("xfs/buffer", single 7, "paralleldd-single-xfs-uma-amean"),
    windows!("xfs/buffer", single 8, "paralleldd-single-xfs-uma-amean"),
    windows!("xfs/buffer", multi 3),
    windows!("xfs/buffer", multi 8),
];

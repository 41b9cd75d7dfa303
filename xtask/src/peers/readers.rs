//! Other projects' programs that read fio's and sysbench's output: fio-plot with bench-fio, mmtests, Phoronix Test Suite.
//!
//! fio-plot comes from PyPI into a virtual environment below the target folder; mmtests and Phoronix Test Suite are
//! checkouts (`--mmtests PATH`, `--phoronix PATH`), and are left out without them. Whole runs only.

use std::path::PathBuf;

use super::tools::{Tool, read};
use super::{Ground, Row};

/// Runs as bench-fio, fio-plot's own driver, has them, and two logs.
const PLOTS: &str = "truncate -s 16m iowhy-peers && bench-fio --target iowhy-peers --type file --size 16m \
                     --mode randread --iodepth 1 4 --numjobs 1 2 --runtime 1 --output runs --quiet
                     rm -f /tmp/iowhy-peers-tmpjobfile.fio";

const PLOT: &[Tool] = &[
    Tool { name: "bench-fio", script: "cd runs && find . -type f | sort" },
    Tool {
        name: "fio-plot -l",
        script: "fio-plot -i runs/iowhy-peers/4k -T t -r randread -l -o l.png && test -s l.png",
    },
    Tool {
        name: "fio-plot -L",
        script: "fio-plot -i runs/iowhy-peers/4k -T t -r randread -L -t iops -o L.png && test -s L.png",
    },
    Tool {
        name: "fio-plot -H",
        script: "fio-plot -i runs/iowhy-peers/4k -T t -r randread -H -d 1 -n 1 -o H.png && test -s H.png",
    },
    Tool {
        name: "fio-plot -g",
        script: "fio-plot -i runs/iowhy-peers/4k -T t -r randread -g -t iops lat bw -d 1 4 -n 1 -o g.png && test -s g.png",
    },
    Tool {
        name: "fio-plot -C",
        script: "fio-plot -i runs/iowhy-peers/4k runs/iowhy-peers/4k -T t -r randread -C -d 1 -n 1 -o C.png && test -s C.png",
    },
];

/// What mmtests' fio-bench runs.
const TERSE: &str = "fio --directory=. --name=a-j1 --ioengine=libaio --rw=randrw --size=1m --direct=1 --iodepth=4 --numjobs=2 \
                     --blocksize=4k --group_reporting --output-format=terse --terse-version=5 >fio.log &&
                     mkdir lat && cd lat && fio --directory=. --minimal --write_lat_log=fio --name=b --rw=write --size=64k >fio.log";

const MMTESTS: &[Tool] = &[
    Tool {
        name: "mmtests fio",
        script: "perl -e 'sub open_log { open my $f, q(<), $_[0] or die; $f } require $ARGV[0]; extractReport({}, q(.))' \
                 $1/shellpack_src/src/fio/extract-report.pl | tee report && test -s report",
    },
    Tool {
        name: "mmtests fio --minimal",
        script: "cd lat && perl -e 'sub open_log { open my $f, q(<), $_[0] or die; $f } require $ARGV[0]; \
                 extractReport({}, q(.))' $1/shellpack_src/src/fio/extract-report.pl | tee report && test -s report",
    },
    Tool {
        name: "mmtests fio latency",
        script: "cd lat && perl -e 'sub open_log { open my $f, q(<), $_[0] or die; $f } require $ARGV[0]; \
                 extractReport({}, q(.))' $1/shellpack_src/src/fio/extract-report-latency.pl | sort -u >all && cut -f 1 all \
                 | sort | uniq -c",
    },
];

pub(super) fn run(ground: &Ground) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    if !ground.whole {
        return Ok(rows);
    }
    let tools: Vec<&Tool> = PLOT.iter().collect();
    rows.push(read(ground, "fio-plot and bench-fio", &PathBuf::new(), PLOTS, &tools)?);
    if let Some(path) = ground.checkouts.get("mmtests") {
        let tools: Vec<&Tool> = MMTESTS.iter().collect();
        rows.push(read(ground, "mmtests", path, TERSE, &tools)?);
    }
    Ok(rows)
}

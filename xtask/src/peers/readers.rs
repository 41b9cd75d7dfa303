//! Other projects' programs that read fio's output: fio-plot with bench-fio, mmtests, Phoronix Test Suite.
//!
//! fio-plot comes from PyPI into a virtual environment below the target folder; mmtests and Phoronix Test Suite are
//! checkouts (`--mmtests PATH`, `--phoronix PATH`), and are left out without them. The latter's profile pts/fio-2.2.0
//! is run with shorter times; its parser needs PHP with its XML extensions. Whole runs only.

use std::path::Path;

use super::tools::{Tool, read};
use super::{Ground, Row};

/// Runs as bench-fio, fio-plot's own driver, has them, and two logs.
const PLOTS: &str = "truncate -s 16m iowhy-peers && bench-fio --target iowhy-peers --type file --size 16m \
                     --mode randread --iodepth 1 4 --numjobs 1 2 --runtime 3 --output runs --quiet
                     rm -f /tmp/iowhy-peers-tmpjobfile.fio";

const PLOT: &[Tool] = &[
    Tool { name: "bench-fio", script: "cd runs && find . -type f | sort" },
    Tool { name: "fio-plot -l", script: "fio-plot -i runs/*/4k -T t -r randread -l -o l.png && test -s l.png" },
    Tool { name: "fio-plot -L", script: "fio-plot -i runs/*/4k -T t -r randread -L -t iops -o l.png && test -s l.png" },
    Tool {
        name: "fio-plot -H",
        script: "fio-plot -i runs/*/4k -T t -r randread -H -d 1 -n 1 -o h.png && test -s h.png",
    },
    Tool {
        name: "fio-plot -g",
        script: "fio-plot -i runs/*/4k -T t -r randread -g -t iops lat bw -d 1 4 -n 1 -o g.png && test -s g.png",
    },
    Tool {
        name: "fio-plot -C",
        script: "fio-plot -i runs/*/4k runs/*/4k -T t -r randread -C -d 1 -n 1 -o c.png && test -s c.png",
    },
];

/// What mmtests' fio-bench runs, and a program that calls its parsers as its reports do.
const TERSE: &str = "fio --directory=. --name=a-j1 --ioengine=libaio --rw=randrw --size=4m --time_based --runtime=2 \
                     --direct=1 --iodepth=4 --numjobs=2 --blocksize=4k --group_reporting --output-format=terse \
                     --terse-version=5 >fio.log
                     mkdir lat
                     (cd lat && fio --directory=. --minimal --write_lat_log=fio --name=b --rw=write --size=4m \
                     --rate=2m >fio.log)
                     cat >read.pl <<'END'
sub open_log { open my $file, '<', $_[0] or die $_[0]; $file }
require $ARGV[0];
extractReport({}, $ARGV[1]);
END";

const MMTESTS: &[Tool] = &[
    Tool {
        name: "terse 5",
        script: "perl read.pl $1/shellpack_src/src/fio/extract-report.pl . | tee report && test -s report",
    },
    Tool {
        name: "--minimal",
        script: "perl read.pl $1/shellpack_src/src/fio/extract-report.pl lat | tee report && test -s report",
    },
    Tool {
        name: "latencies",
        script: "perl read.pl $1/shellpack_src/src/fio/extract-report-latency.pl lat | cut -f 1 | sort | uniq -c",
    },
];

/// A job with the options of Phoronix' profile, in both directions, and a program that calls the suite's parser.
const PHORONIX: &str = "for rw in randread write; do
    for option in '[global]' rw=$rw ioengine=libaio iodepth=64 size=8m direct=1 startdelay=1 ramp_time=1 runtime=2 \
    group_reporting=1 numjobs=1 time_based disk_util=0 clat_percentiles=0 disable_lat=1 disable_clat=1 disable_slat=1 \
    filename=fiofile '[test]' name=test bs=4k stonewall; do
        echo $option
    done >test.fio
    fio test.fio >$rw.log
    rm fiofile
done
cat >read.php <<'END'
<?php
define('PTS_MODE', 'CLIENT');
define('PTS_AUTO_LOAD_OBJECTS', true);
define('PTS_TEST_PROFILE_PATH', $argv[1] . '/ob-cache/test-profiles/');
require $argv[1] . '/pts-core/pts-core.php';
pts_define_directories();
$result = new pts_test_result(new pts_test_profile('pts/fio-2.2.0'));
$result->active = new pts_test_result_buffer_active();
if (!pts_test_result_parser::parse_result($result, $argv[2])) {
    exit(1);
}
foreach ($result->generated_result_buffers as $found) {
    echo $found->test_profile->get_result_scale(), ' ', implode(' ', $found->active->results), PHP_EOL;
}
END";

const LINES: &[Tool] = &[
    Tool { name: "lines with `: bw=`", script: "grep -h ': bw=' *.log | tr KMG MMM" },
    Tool { name: "lines with `IOPS=`", script: "grep -h 'IOPS=' *.log | tr KMGk 'MMM '" },
];

const PARSER: &[Tool] = &[
    Tool { name: "randread", script: "php -d display_errors=0 read.php $1 randread.log" },
    Tool { name: "write", script: "php -d display_errors=0 read.php $1 write.log" },
];

pub(super) fn run(ground: &Ground) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    if !ground.whole {
        return Ok(rows);
    }
    rows.push(read(ground, "fio-plot and bench-fio", Path::new(""), PLOTS, PLOT)?);
    let suite = ground.phoronix.as_deref();
    let tools = LINES.iter().chain(suite.iter().flat_map(|_| PARSER));
    rows.push(read(ground, "Phoronix' profile of fio", suite.unwrap_or(Path::new("")), PHORONIX, tools)?);
    if let Some(path) = &ground.mmtests {
        rows.push(read(ground, "mmtests", path, TERSE, MMTESTS)?);
    }
    Ok(rows)
}

//! fio's logs of histograms (`write_hist_log`): each row is a sample of the latencies of a direction.
//!
//! A row has ms, direction, block size and the counts of 1856 buckets, or of as many as `log_hist_coarseness` leaves:
//! 1856, 928, .. 29. 64 buckets of 1 ns, 64 more, then 64 for each further power of two. A percentile lies in its
//! bucket as far as its rank among the bucket's I/Os, the mean takes the middle of each. Rows without I/Os are skipped.
//!
//! Source: fio's documentation of the log; percentiles are those of its `fio-histo-log-pctiles.py` where a row fills an
//! interval of time. Limit: logs of fio 2 (19 groups, in us) are not read.

use iowhy_stack::histogram::range_of;

use super::{Format, Reader, first_lines, lines};

pub const FORMAT: Format = Format {
    name: "fio-hist",
    summary: "fio's logs of histograms (write_hist_log): a sample of latencies from each row",
    detect: |text| first_lines(text).next().is_some_and(|line| row(line).is_some()),
    read,
};

const BUCKETS: usize = 29 * 64;
const DIRECTIONS: [&str; 3] = ["read", "write", "trim"];
const PERCENTILES: [(&str, f64); 4] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)];

/// Direction and counts of a row.
fn row(line: &str) -> Option<(&'static str, Vec<u64>)> {
    let numbers: Vec<u64> = line.split(',').map(|word| word.trim().parse().ok()).collect::<Option<_>>()?;
    let counts = numbers.get(3..)?.to_vec();
    let fits = (0..=6).any(|coarseness| counts.len() == BUCKETS >> coarseness);
    Some((*DIRECTIONS.get(*numbers.get(1)? as usize)?, counts)).filter(|_| fits)
}

fn read(reader: &mut Reader<'_>, text: &str) {
    for (nr, line) in lines(text).filter(|(_, line)| !line.trim().is_empty()) {
        let Some((direction, counts)) = row(line) else {
            let help = "ms, direction, block size and 1856 counts, or 928, 464 .. 29";
            reader.wrong(nr, line, 0..line.len(), "not a row of a log of histograms", help);
            continue;
        };
        let wide = BUCKETS / counts.len();
        let begin = |nr: usize| range_of(nr * wide).0 as f64;
        let all: u64 = counts.iter().sum();
        if all == 0 {
            continue;
        }
        let mut sum = 0.0;
        let mut below = 0;
        let mut wanted = PERCENTILES.iter().peekable();
        for (nr, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (low, high) = (begin(nr), begin(nr + 1));
            sum += *count as f64 * (low + high) / 2.0;
            while let Some((name, share)) = wanted.next_if(|(_, share)| (below + count) as f64 > share * all as f64) {
                let within = (share * all as f64 - below as f64) / *count as f64;
                reader.put(&format!("{direction}_{name}_ns"), low + within * (high - low), None);
            }
            below += count;
        }
        reader.put(&format!("{direction}_mean_ns"), sum / all as f64, None);
    }
}

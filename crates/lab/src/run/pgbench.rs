//! `pgbench`: a profile of its I/O, not the program.
//!
//! ```text
//! client     for each transaction reads `reads` pages of 8 KiB at random from the data files, through the page cache;
//!            then appends `wal` bytes to the log and waits for fdatasync; then computes for `cpu_us`
//! ```
//! Modelled: the reads that miss the page cache, and the commit that waits for the log, which storage can make slower.
//! Not modelled: shared buffers, locks between clients, group commit (each client appends to a part of the log of its
//! own and syncs by itself), checkpoints and writes of tables. `tps` compares kernels with one another; it does not
//! forecast PostgreSQL's result. Size of the data: about 15 MiB for each unit of scale. Source: the manual of pgbench
//! (its default transaction changes three tables and adds a row to a fourth).

use std::path::Path;

use iowhy_stack::job::{FileSpec, Job, Place, ThreadJob, ThreadSpec, Workload};
use iowhy_stack::kernel::Stack;
use iowhy_stack::outcome::JobTotals;
use iowhy_stack::units::Nanos;
use iowhy_stack::workload::{Distribution, Log, Mix, Order, Stream, Target, Think};

use super::options::{Kind, Opt, Values, opt};
use super::program::{Figures, Program};
use super::{Builtin, Figure, Shape};
use iowhy_text::diagnose::{Problem, Problems};

const BYTES_PER_SCALE: u64 = 15 << 20;
const LOG_BYTES: u64 = 16 << 20;

const OPTIONS: &[Opt] = &[
    opt("clients", Kind::Number(1, 10_000), "1", "clients (-c)"),
    opt("scale", Kind::Number(1, 1 << 30), "10", "scale (-s): 15 MiB of data each"),
    opt("size", Kind::Size(1 << 20, 1 << 50), "", "bytes of data, instead of scale"),
    opt("time", Kind::Number(1, 1_000_000), "30", "seconds (-T)"),
    opt("transactions", Kind::Number(1, 1 << 40), "", "transactions of each client (-t), instead of time"),
    opt("reads", Kind::Number(1, 1000), "4", "pages read for a transaction"),
    opt("wal", Kind::Size(512, 1 << 20), "8k", "bytes appended to the log for a transaction"),
    opt("zipf", Kind::Number(0, 5000), "0", "skew of the pages, thousandths of theta; 0: all equally often"),
    opt("cpu_us", Kind::Number(0, 1_000_000), "200", "microseconds of computing for a transaction"),
    opt("db", Kind::Text, "", "live: the database [as for psql: PGDATABASE, or the user's name]"),
    opt("cached", Kind::Switch, "0", "as much of the data as fits is in the page cache at the start"),
];

pub(super) const ENTRY: Builtin = Builtin {
    name: "pgbench",
    summary: "a profile of the I/O of pgbench: random reads of tables, a log with fdatasync",
    notes: "It is not PostgreSQL: no shared buffers, locks, group commit, checkpoints or writes of tables. Its metric \
            tps compares kernels, and says nothing about a server. Live, the installed pgbench is run on a database \
            that `pgbench -i` has made.",
    options: OPTIONS,
    build,
    program: Some(program),
};

/// The real pgbench, on a database that `pgbench -i` has made.
fn program(values: &Values<'_>, _dir: &Path, problems: &mut Problems) -> Option<Program> {
    for name in ["scale", "size", "reads", "wal", "zipf", "cpu_us", "cached"] {
        if values.given(name) {
            let text = format!("`{name}` has no effect on a live run: the database is as it is");
            problems.push(Problem::warning(text).help("pgbench -i -s SCALE makes it"));
        }
    }
    let mut arguments = vec!["-c".to_owned(), values.text("clients").to_owned()];
    if values.given("transactions") {
        arguments.extend(["-t".to_owned(), values.text("transactions").to_owned()]);
    } else {
        arguments.extend(["-T".to_owned(), values.text("time").to_owned()]);
    }
    arguments.extend(Some(values.text("db")).filter(|name| !name.is_empty()).map(str::to_owned));
    Some(Program { name: "pgbench", package: "postgresql", arguments, import })
}

/// pgbench's figures: transactions a second (without the time to connect where it has both) and their latency.
fn import(text: &str) -> Result<Figures, String> {
    let number = |text: &str| text.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
    let after = |begin: &str| text.lines().find_map(|line| number(line.trim().strip_prefix(begin)?));
    let lines = text.lines().filter(|line| line.starts_with("tps = "));
    let tps = lines.min_by_key(|line| line.contains("including")).and_then(|line| number(&line[6..]));
    let mut figures = vec![("tps".to_owned(), tps.ok_or("no line `tps = ..` in it")?)];
    figures.extend(after("latency average = ").map(|ms| ("mean_ns".to_owned(), ms * 1e6)));
    figures.extend(after("latency stddev = ").map(|ms| ("stddev_ns".to_owned(), ms * 1e6)));
    figures.extend(after("number of failed transactions: ").map(|n| ("failed".to_owned(), n)));
    Ok(figures)
}

fn build(values: &Values<'_>, _stack: &mut Stack, _problems: &mut Problems) -> Option<(Job, Shape)> {
    let size = if values.given("size") {
        values.number("size")
    } else {
        values.number("scale").saturating_mul(BYTES_PER_SCALE)
    };
    let clients = values.small("clients");
    let reads = values.small("reads");
    let data = Target { file: 1, start: 0, len_bytes: size };
    let threads = (0..clients)
        .map(|client| {
            let calls = values.number("transactions").saturating_mul(u64::from(reads));
            let mut stream = Stream::random(Mix::Read, data, 8192, calls);
            if !values.given("transactions") {
                stream.max_time = Nanos::from_secs(values.number("time"));
            }
            if values.number("zipf") > 0 {
                let distribution = Distribution::Zipf(values.small("zipf"));
                stream.order = Order::Random { distribution, once: false, run: 1, random_pct: 100 };
            }
            let part = Target { file: 0, start: u64::from(client) * LOG_BYTES, len_bytes: LOG_BYTES };
            stream.log = Some(Log { target: part, calls: reads, len_bytes: values.small("wal") });
            let time = Nanos::from_us(values.number("cpu_us"));
            stream.think =
                (time > Nanos::ZERO).then_some(Think { calls: reads, time, spin: time, io_time: Nanos::ZERO });
            stream.seed = u64::from(client);
            ThreadJob { spec: ThreadSpec::new(client), stream }
        })
        .collect();
    // The data come last, because the cache at the start holds the end of the last files.
    let log = FileSpec { bytes: u64::from(clients) * LOG_BYTES, place: Place::FileSystem };
    let files = vec![log, FileSpec { bytes: size, place: Place::FileSystem }];
    let mut job = Job::new(Workload::Threads { files, threads }, 1);
    if values.on("cached") {
        job.cache = iowhy_stack::job::CacheStart::Tail { bytes: size };
    }
    let tps = |totals: &JobTotals| {
        let seconds = totals.end.saturating_sub(totals.start).as_secs_f64();
        if seconds > 0.0 { totals.counts.syncs as f64 / seconds } else { 0.0 }
    };
    let mut shape = Shape::of(["clients"]);
    shape.figures.push(Figure { name: "tps".to_owned(), line: 0, of: tps });
    Some((job, shape))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_says_is_read() {
        let said = "pgbench (15.18)\ntransaction type: <builtin: TPC-B (sort of)>\nscaling factor: 1\n\
                    number of clients: 1\nnumber of failed transactions: 0 (0.000%)\nlatency average = 1.250 ms\n\
                    initial connection time = 2.310 ms\ntps = 800.125000 (without initial connection time)\n";
        let figures = import(said).expect("figures");
        let expected = [("tps", 800.125), ("mean_ns", 1_250_000.0), ("failed", 0.0)];
        assert_eq!(figures, expected.map(|(name, value)| (name.to_owned(), value)));
        // Until version 13 there were two lines, and the one without connections is the one that means something.
        let old = "tps = 85.1 (including connections establishing)\ntps = 85.9 (excluding connections establishing)\n";
        assert_eq!(import(old), Ok(vec![("tps".to_owned(), 85.9)]));
        assert!(import("no server\n").is_err());
    }
}

//! Simulated measurements as JSON: one shape for every verb that shows them. Every number is finite.

use iowhy_stack::device::DeviceStats;
use iowhy_stack::histogram::Histogram;
use iowhy_stack::layers::{Commands, IostatDir, Layers};
use iowhy_stats::figure;
use iowhy_stats::modes::Mode;
use serde_json::{Map, Value, json};

/// Modes as JSON: none, or the lower and the higher one.
pub fn modes(modes: Option<&[Mode; 2]>) -> Value {
    let one = |mode: &Mode| json!({ "mean": mode.mean, "min": mode.min, "max": mode.max, "runs": mode.count });
    modes.into_iter().flatten().map(one).collect()
}

/// A latency or time histogram in ns: number, smallest, mean, quantiles, largest.
pub fn phase(histogram: &Histogram) -> Value {
    json!({
        "n": histogram.count(),
        "min_ns": figure::smallest(histogram),
        "avg_ns": figure::mean(histogram) as u64,
        "p50_ns": figure::quantile(histogram, 50),
        "p99_ns": figure::quantile(histogram, 99),
        "max_ns": figure::largest(histogram),
    })
}

/// The device's counters: accesses in number, times in seconds.
pub fn device(stats: &DeviceStats) -> Value {
    json!({
        "media_accesses": stats.media_accesses,
        "destages": stats.destages,
        "cache_hits": stats.cache_hits,
        "seek_s": stats.seek.as_secs_f64(),
        "rotation_s": stats.rotation.as_secs_f64(),
        "busy_s": stats.busy.as_secs_f64(),
    })
}

/// Statistics of every layer.
pub fn layers(layers: &Layers) -> Value {
    let [sync, asynchronous, force, single, around, exec, huge] = layers.windows;
    let [interleaved, misses, hits, congestion] = layers.closes;
    let [idle_hit, idle_broken, idle_timeout] = layers.idles;
    let phases = &layers.phases;
    json!({
        "cache": {
            "hits": layers.hits,
            "misses": layers.misses,
            "faults": { "minor": layers.faults[0], "major": layers.faults[1] },
            "pages_added": layers.pages_added,
            "pages_removed": layers.pages_removed,
            "writeback_pages": layers.writeback_pages,
            "throttles": layers.throttles,
            "handed_over": layers.handed_over,
        },
        "readahead": {
            "windows": {
                "sync": sync,
                "async": asynchronous,
                "force": force,
                "single": single,
                "around": around,
                "exec": exec,
                "huge": huge,
            },
            "window_pages": {
                "sync": layers.window_pages[0],
                "async": layers.window_pages[1],
                "force": layers.window_pages[2],
                "single": layers.window_pages[3],
                "around": layers.window_pages[4],
                "exec": layers.window_pages[5],
                "huge": layers.window_pages[6],
            },
            "closes": {
                "interleaved_misses": interleaved,
                "misses": misses,
                "hits": hits,
                "congestion": congestion,
            },
            "reopened": layers.reopens,
            "reads_missed": layers.reads_missed,
            "reads_split": layers.reads_split,
        },
        "requests": {
            "read": commands(&layers.reads),
            "write": commands(&layers.writes),
            "request_merges": layers.request_merges,
            "front_merges": layers.front_merges,
        },
        "unplugs": unplugs(layers),
        "elevator_idles": {
            "hit": idle_hit,
            "broken": idle_broken,
            "timeout": idle_timeout,
            "time_s": layers.idle_time.as_secs_f64(),
        },
        "device": {
            "seeks": layers.seeks,
            "seek_sectors": layers.seek_sectors,
            "depth_avg": figure::finite(figure::mean(&layers.depth)),
            "depth_max": figure::largest(&layers.depth),
            "media_accesses": layers.media_accesses,
            "seek_s_model": layers.seek_us as f64 / 1e6,
            "rotation_s_model": layers.rotation_us as f64 / 1e6,
            "busy_s": layers.device_busy.as_secs_f64(),
        },
        "journal": { "commits": layers.commits, "blocks": layers.journal_blocks },
        "phases": {
            "Q2G": phase(&phases.q2g),
            "G2I": phase(&phases.g2i),
            "I2D": phase(&phases.i2d),
            "D2C": phase(&phases.d2c),
            "Q2C": phase(&phases.q2c),
        },
        "iostat": [iostat(layers)],
    })
}

fn unplugs(layers: &Layers) -> Value {
    const CAUSES: [&str; 7] = ["waiter", "threshold", "timer", "sync_bio", "finish", "schedule", "no_request"];
    Value::Object(CAUSES.iter().zip(layers.unplugs).map(|(cause, n)| ((*cause).to_owned(), n.into())).collect())
}

fn commands(commands: &Commands) -> Value {
    let mut sizes = Map::new();
    for (pages, n) in commands.by_pages.iter().enumerate().filter(|(_, n)| **n > 0) {
        // The last entry holds everything larger; its key says so.
        let last = pages + 1 == commands.by_pages.len();
        let kib = if last { format!(">{}", (pages - 1) * 4) } else { (pages * 4).to_string() };
        sizes.insert(kib, (*n).into());
    }
    json!({
        "issued": commands.issued,
        "completed": commands.completed,
        "sectors": commands.sectors,
        "merges": commands.merges,
        "data": commands.data,
        "data_4k": commands.small_data,
        "mapping": commands.mapping,
        "journal": commands.journal,
        "metadata": commands.metadata,
        "size_kib": sizes,
    })
}

/// One row with the keys of `iostat -x -o JSON`.
fn iostat(layers: &Layers) -> Value {
    let row = layers.iostat();
    let mut object = Map::new();
    let mut put = |key: String, value: f64| {
        object.insert(key, json!(figure::finite(value)));
    };
    for (letter, dir) in [("r", &row.read), ("w", &row.write)] {
        let IostatDir { per_s, kb_per_s, rqm_per_s, rqm_pct, await_ms, areq_sz_kb } = *dir;
        put(format!("{letter}/s"), per_s);
        put(format!("{letter}kB/s"), kb_per_s);
        put(format!("{letter}rqm/s"), rqm_per_s);
        put(format!("{letter}rqm"), rqm_pct);
        put(format!("{letter}_await"), await_ms);
        put(format!("{letter}areq-sz"), areq_sz_kb);
    }
    put("aqu-sz".to_owned(), row.aqu_sz);
    put("util".to_owned(), row.util_pct);
    put("svctm".to_owned(), row.svctm_ms);
    Value::Object(object)
}

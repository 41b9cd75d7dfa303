//! Facts of simulated runs, recorded as a kernel's trace shows them, and both lists of findings as one.

use iowhy_stack::event::Event;
use iowhy_stack::sim;
use iowhy_trace::bridge::trace_of_events;
use iowhy_trace::join::Who;
use iowhy_trace::settings::Settings;
use iowhy_why::rules::cost::{Cost, Found};

use super::*;
use crate::incident::command::plan_of_command;

#[test]
fn parts_of_a_call_add_up_to_it() {
    for job in
        ["dd if=file size=1m", "dd of=/dev/sda bs=4k oflag=direct count=16", "pgbench clients=2 size=1m transactions=4"]
    {
        let words: Vec<String> = format!("run {job} --on sim:linux-6.18").split(' ').map(str::to_owned).collect();
        let plan = plan_of_command(&words).expect("a job");
        let mut events: Vec<Event> = Vec::new();
        sim::run_with(&plan, &mut events).expect("it can be run");
        let facts = Facts::of(&mut trace_of_events(&events), &Who::default());
        let parts: f64 = facts.layers.iter().map(|part| part.ns).sum();
        assert!(facts.calls > 0 && (parts - facts.per_call_ns()).abs() < 1.0, "{job}: {:?}", facts.layers);
        let pct: f64 = facts.layers.iter().map(|part| part.pct).sum();
        assert!((pct - 100.0).abs() < 0.001, "{job}: {pct}");
        assert!(facts.devices.iter().all(|device| (0.0..=100.0).contains(&device.busy_pct)), "{job}");
    }
}

fn prediction(rule: &'static str, saves_pct: f64) -> Prediction {
    Prediction {
        rule,
        layer: "read-ahead",
        claim: "predicted".to_owned(),
        confidence: 0.8,
        cost_ns_per_call: 1.0,
        saves_pct,
        unmeasured: false,
        saves_ci_pct: [saves_pct; 2],
        setting: "read_ahead_kb=512".to_owned(),
        evidence: Vec::new(),
        refute: String::new(),
        costs_others: None,
        safe: true,
    }
}

fn found(rule: &'static str, pct: f64) -> Found {
    let cost = Cost {
        ns: pct,
        bounds: [0.5, 1.5],
        confidence: 0.85,
        claim: "read off".to_owned(),
        setting: "read_ahead_kb=128".to_owned(),
        evidence: vec![("waits", 1.0, iowhy_why::Unit::Ratio)],
    };
    Found { rule: rules::find(rule).expect("a rule"), saves_pct: pct, bounds_pct: [0.5 * pct, 1.5 * pct], cost }
}

#[test]
fn both_lists_become_one() {
    // Costs, predictions, and what is left: rule, saving, figures that speak for it.
    type Case = (&'static [(&'static str, f64)], &'static [(&'static str, f64)], &'static [(&'static str, f64, usize)]);
    let cases: &[Case] = &[
        (&[("window-too-small", 30.0)], &[], &[("window-too-small", 30.0, 1)]),
        // The cost is of what is usual; the twin speaks for it.
        (&[("window-too-small", 30.0)], &[("window-too-small", 50.0)], &[("window-too-small", 30.0, 2)]),
        (
            &[("cpu-quota", 20.0)],
            &[("window-too-small", 50.0)],
            &[("window-too-small", 50.0, 0), ("cpu-quota", 20.0, 1)],
        ),
        // It follows from the first.
        (&[("readahead-off", 20.0)], &[("window-too-small", 50.0)], &[("readahead-off", 20.0, 1)]),
        (&[], &[("window-too-small", 2.9)], &[]),
    ];
    for (costs, predictions, left) in cases {
        let all = joined(
            &costs.iter().map(|(rule, pct)| found(rule, *pct)).collect::<Vec<_>>(),
            predictions.iter().map(|(rule, pct)| prediction(rule, *pct)).collect(),
            10,
        );
        let seen: Vec<_> = all.iter().map(|of| (of.rule, of.saves_pct, of.evidence.len())).collect();
        assert_eq!(seen, *left, "{costs:?} and {predictions:?}");
    }
}

#[test]
fn what_differs_from_the_kernels_defaults_is_listed() {
    for (place, key, value, listed) in [
        ("sda", "read_ahead_kb", "128", None),
        ("sda", "read_ahead_kb", "4", Some("sda read_ahead_kb")),
        ("sda", "scheduler", "none", None),
        ("sda", "scheduler", "bfq", Some("sda scheduler")),
        ("sda", "iosched/writes_starved", "2", None),
        ("sda", "iosched/writes_starved", "400", Some("sda iosched/writes_starved")),
        ("/", "mount_options", "rw,relatime", None),
        ("/", "mount_options", "rw,sync", Some("/ mount_options")),
        ("sysctl", "vm.dirty_bytes", "0", None),
        ("sysctl", "vm.dirty_bytes", "4096", Some("vm.dirty_bytes")),
        ("cgroup", "io.max", "8:0 rbps=1000", Some("cgroup io.max")),
    ] {
        let mut settings = Settings::default();
        settings.values.insert((place.to_owned(), key.to_owned()), value.to_owned());
        let found = facts::unusual(&settings);
        assert_eq!(found.first().map(|(what, ..)| what.as_str()), listed, "{place} {key} {value}");
    }
}

#[test]
fn only_what_is_unusual_is_held_against_anybody() {
    let unusual = |what: &str, value: &str, usual| vec![(what.to_owned(), value.to_owned(), usual)];
    for (setting, rule, unusual, taken) in [
        ("read_ahead_kb=128", "window-too-small", unusual("sda read_ahead_kb", "8", "128"), true),
        ("read_ahead_kb=4096", "window-too-small", unusual("sda read_ahead_kb", "8", "128"), true),
        ("read_ahead_kb=4096", "window-too-small", unusual("sda read_ahead_kb", "1024", "128"), false),
        ("read_ahead_kb=256", "window-too-large", unusual("sda read_ahead_kb", "2560", "128"), true),
        ("read_ahead_kb=0", "window-too-large", unusual("sda read_ahead_kb", "2560", "128"), false),
        ("read_ahead_kb=4096", "window-too-small", unusual("sdb read_ahead_kb", "8", "128"), false),
        ("read_ahead_kb=4096", "window-too-small", Vec::new(), false),
        ("scheduler=none", "lost-locality", unusual("sda scheduler", "bfq", "none or mq-deadline"), true),
        ("scheduler=kyber", "lost-locality", unusual("sda scheduler", "bfq", "none or mq-deadline"), false),
        ("wbt_lat_usec=0", "writeback-throttling", unusual("sda wbt_lat_usec", "1", "2000 or more"), true),
        ("nr_requests=32", "queue-depth-one", unusual("sda nr_requests", "4", "64 or more"), true),
        ("dirty_ratio=20", "writeback-throttling", unusual("vm.dirty_ratio", "1", "20"), true),
        ("256 KiB a call", "changed-job", Vec::new(), false),
        ("leave out the advice", "random-advice", Vec::new(), true),
        ("keep fio off the disk", "noisy-neighbour", Vec::new(), true),
    ] {
        assert_eq!(takes_back(setting, rule, "sda", &unusual), taken, "{setting} {unusual:?}");
    }
}

#[test]
fn limits_and_less_than_usual_restrict() {
    for (what, value, usual, is) in [
        ("sda read_ahead_kb", "8", "128", true),
        ("sda read_ahead_kb", "2560", "128", false),
        ("sda nr_requests", "4", "64 or more", true),
        ("sda scheduler", "bfq", "none or mq-deadline", false),
        ("sda iosched/fifo_batch", "1", "16", false),
        ("cgroup memory.max", "1000", "unset", true),
    ] {
        assert_eq!(restricts(&(what.to_owned(), value.to_owned(), usual)), is, "{what} {value}");
    }
}

#[test]
fn settings_of_a_queue_can_be_tried() {
    for (setting, is) in [("read_ahead_kb=128", true), ("io.max removed", false), ("vm.dirty_ratio=20", false)] {
        assert_eq!(facts::is_of_queue(setting).is_some(), is, "{setting}");
    }
}

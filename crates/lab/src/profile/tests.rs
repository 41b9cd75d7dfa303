use super::*;
use iowhy_stack::device::{Command, DEVICES, Device};
use iowhy_stack::event::Dir;
use iowhy_stack::kernel::find_kernel;
use iowhy_stack::origin::find;
use iowhy_stack::rng::Rng;
use iowhy_stack::units::{Nanos, Sector};

/// A closed loop of reads on a device: `depth` in flight, sizes and places by `next`.
fn load(
    device: &mut dyn Device,
    at: u64,
    depth: usize,
    nr: usize,
    mut next: impl FnMut() -> (u64, u32),
) -> Vec<Sample> {
    let (mut samples, mut given) = (Vec::new(), 0);
    let mut submit = |device: &mut dyn Device, at: u64, samples: &mut Vec<Sample>| {
        let (sector, nr_sectors) = next();
        let tag = samples.len() as u32;
        samples.push(Sample { at, done: 0, sector, sectors: nr_sectors, write: false });
        let command = Command { tag, sector: Sector(sector), nr_sectors, dir: Dir::Read, flush: false, fua: false };
        device.submit(Nanos(at), command);
    };
    while given < depth.min(nr) {
        submit(device, at, &mut samples);
        given += 1;
    }
    while let Some(now) = device.next() {
        if let Some(done) = device.advance(now) {
            samples[done.tag as usize].done = now.0;
            if given < nr {
                // A little of a program between two commands.
                submit(device, now.0 + 2_000, &mut samples);
                given += 1;
            }
        }
    }
    samples
}

/// One of the simulated devices.
fn simulated(name: &str, options: &[(&str, i64)], seed: u64) -> Box<dyn Device> {
    let entry = find(DEVICES, name).expect("a device");
    let mut values = entry.defaults();
    options.iter().for_each(|(name, value)| values.set(name, *value));
    (entry.build)(&values, Rng::stream(seed, "device"))
}

/// Loads of several kinds on one of them.
fn probed(name: &str, options: &[(&str, i64)], seed: u64) -> Vec<Sample> {
    let mut device = simulated(name, options, seed);
    let mut rng = Rng::stream(seed, "places");
    let (mut all, mut at) = (Vec::new(), 1_000_000);
    let space = device.nr_sectors() / 2048 - 1;
    for (depth, sectors, random) in
        [(1, 8, true), (1, 256, true), (1, 2048, false), (8, 8, true), (1, 8, false), (32, 8, true), (1, 256, false)]
    {
        let depth = depth.min(device.queue_depth() as usize);
        let mut place = rng.below(space) * 2048;
        let next = || {
            if random {
                return (rng.below(space) * 2048, sectors);
            }
            place += u64::from(sectors);
            (place, sectors)
        };
        all.extend(load(&mut *device, at, depth, 300, next));
        at = all.iter().map(|of: &Sample| of.done).max().unwrap_or(0) + 5_000_000;
    }
    all
}

fn value(profile: &Profile, name: &str) -> f64 {
    profile.fields.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", profile.fields.keys())).value
}

#[test]
fn the_parameters_of_a_simple_device_are_found() {
    for servers in [1, 4, 16] {
        let profile = fit::fit(&probed("fixed", &[("servers", servers), ("service_us", 500)], 1));
        assert_eq!(value(&profile, "parallel"), servers as f64);
        for name in ["read_4k_us", "read_128k_us", "read_next_1m_us"] {
            let field = profile.fields[name];
            assert!((field.value - 500.0).abs() < 2.0 && field.known && field.low <= field.high, "{name}: {field:?}");
        }
        let beyond = profile.fields["read_beyond_128k_ns_per_kib"];
        assert!(!beyond.known && beyond.low <= beyond.value && beyond.high > 100.0, "{beyond:?}");
    }
}

#[test]
fn a_link_has_a_share_for_commands_and_one_for_bytes() {
    // 20 us for each command, and 200 MB/s.
    let took = |bytes: f64| 20e-6 + bytes / 200e6;
    let peaks = [1e6, 4096.0].map(|bytes| [1.0 / took(bytes), bytes]);
    let links = fit::links([Some([peaks[0][0] * 1e6, 1e6]), Some(peaks[1])]);
    let shown: Vec<_> = links.iter().map(|link| link.map(|of| of.map(f64::round))).collect();
    assert_eq!(shown, [[None, None], [Some(200.0), Some(20.0)], [Some(199.0), None], [None, Some(40.0)]]);
    assert_eq!(fit::links([None, None]), [[None, None]; 3]);
}

#[test]
fn every_load_keeps_its_share_when_commands_are_left_out() {
    let samples = probed("fixed", &[("servers", 4), ("service_us", 500)], 1);
    let kept = fit::thinned(&samples, samples.len() / 10);
    assert_eq!(fit::thinned(&samples, samples.len()), samples);
    let of = |samples: &[Sample], sectors| samples.iter().filter(|of| of.sectors == sectors).count();
    for sectors in [8, 256, 2048] {
        let (all, some) = (of(&samples, sectors), of(&kept, sectors));
        assert!((all / 20..=all / 5).contains(&some), "{some} of {all} of {sectors} sectors");
    }
    // Alone or in company as before, and as long after the commands before.
    assert!(kept.is_sorted_by_key(|of| of.at) && kept.iter().all(|of| of.done - of.at >= 500_000));
    let pause = |nr: usize| kept[nr].at - kept[..nr].iter().map(|of| of.done).max().unwrap_or(0);
    let changes: Vec<usize> = (1..kept.len()).filter(|nr| kept[*nr].sectors != kept[*nr - 1].sectors).collect();
    assert!(changes.len() >= 3 && changes.iter().all(|nr| [2_000, 5_000_000].contains(&pause(*nr))), "{changes:?}");
}

#[test]
fn shipped_devices_are_predicted_by_profiles_of_them() {
    for (name, most) in [("nvme", 12.0), ("virtio", 12.0), ("ssd-sata-2011", 25.0), ("sata-2014", 20.0)] {
        let profile = fit::fit(&probed(name, &[], 1));
        let held = fit::predicted(&profile, &probed(name, &[], 2));
        let worst = held.p50_error_pct.max(held.p99_error_pct).max(held.throughput_error_pct);
        println!("{name}: {held:?} {:?}", profile.fields);
        assert_eq!(value(&profile, "passes") > 0.0, name == "sata-2014", "who orders its commands");
        assert!(worst < most, "{name}: {held:?}");
    }
}

#[test]
fn a_profile_that_is_written_is_read_again() {
    let samples = probed("virtio", &[], 1);
    let mut profile = fit::fit(&samples);
    profile.name = "volume".to_owned();
    profile.held_back = fit::held_back(&samples);
    let text = profile.toml();
    assert!(Profile::is_one(&text) && profile.held_back.is_some());
    assert_eq!(Profile::of_toml(&text).as_ref(), Ok(&profile));
    let wrong = |from: &str, to: &str| Profile::of_toml(&text.replacen(from, to, 1)).expect_err(to);
    assert!(wrong("\"measured\"", "\"drive\"")[0].contains("`kind`"));
    assert!(wrong("unit = \"us\"", "unit = \"weeks\"")[0].contains("weeks"));
    assert!(wrong("name =", "nmae =")[0].contains("nmae"));
    assert!(Profile::of_toml("kind = \"measured\"\nname = \"x\"").expect_err("empty")[0].contains("no times"));
}

#[test]
fn a_stack_takes_device_and_machine() {
    let mut profile = fit::fit(&probed("fixed", &[("servers", 2)], 1));
    let known = |value, known| Field { value, low: value, high: value, unit: "ns", known };
    profile.fields.insert("syscall_ns".to_owned(), known(777.4, true));
    profile.fields.insert("bio_ns".to_owned(), known(9.0, false));
    let mut stack = Stack::new(find_kernel("linux-6.18").expect("a kernel"));
    let before = stack.machine.options.get("bio_ns");
    profile.apply(&mut stack);
    assert_eq!((stack.device.entry.name, stack.device.options.get("servers")), ("measured", 2));
    assert_eq!((stack.machine.options.get("syscall_ns"), stack.machine.options.get("bio_ns")), (777, before));
    assert!(stack.device.options.service().is_some());
}

#[test]
fn a_probe_is_corrected_by_what_a_recording_has_seen() {
    let probe = fit::fit(&probed("fixed", &[("service_us", 500), ("servers", 4)], 1));
    let slower = &probed("fixed", &[("service_us", 800)], 1)[..300];
    let both = probe.corrected(&fit::fit(slower), slower);
    assert_eq!(value(&both, "read_4k_us").round(), 800.0);
    assert_eq!(value(&both, "read_128k_us"), value(&probe, "read_128k_us"));
    assert_eq!(value(&both, "parallel"), 4.0);
    assert_eq!(both.service.rows[0].iter().map(|row| row.sectors).collect::<Vec<_>>(), [8, 256]);
}

/// Two reads of 256 KiB at a time take twice as long as one: by the link, not by what the flash needs for the size.
#[test]
fn a_probe_that_foretells_a_recording_keeps_its_times() {
    let probe = fit::fit(&probed("ssd-sata-2011", &[], 1));
    let mut device = simulated("ssd-sata-2011", &[], 1);
    let mut place = 0;
    let two = load(&mut *device, 1_000_000, 2, 400, || {
        place += 512;
        (place, 512)
    });
    let seen = fit::fit(&two);
    let corrected = probe.corrected(&seen, &two);
    assert!(seen.service.rows[1].iter().any(|row| row.sectors == 512));
    assert!(corrected.service.rows[1].iter().all(|row| row.sectors != 512));
    let rate = value(&corrected, "link_mb_s");
    assert!((rate - 252.0).abs() < 5.0, "{rate}");
    // Half as many of twice the size: no faster.
    let larger: Vec<Sample> = two.iter().map(|of| Sample { sectors: 1024, sector: 2 * of.sector, ..*of }).collect();
    let took = |samples: &[Sample]| {
        let of = corrected.predicted(samples);
        (of.iter().map(|of| of.done).max().unwrap_or(0) - of[0].at) as f64
    };
    let ratio = took(&larger[..200]) / took(&two);
    assert!((ratio - 1.0).abs() < 0.1, "{ratio}");
}

#[test]
fn limits_of_a_control_group_are_found_by_what_they_hold_back() {
    use iowhy_stack::trace::{Dev, Extent, Record, Rwbs, Seen, Trace};
    // 500 reads of 8 to 64 KiB a second, 50 at once: a worker queues forty, ten pass in the task.
    let limited = |worker: &str| {
        let device = Dev::new(7, 0);
        let mut trace = Trace { names: vec![(5, "job".to_owned()), (9, worker.to_owned())], ..Trace::default() };
        for nr in 0..1500u64 {
            let (slice, within) = (nr / 50, nr % 50);
            let bytes = 8192 << (slice % 4);
            let extent = Extent { dev: device, sector: Sector(nr * 128), bytes, rwbs: Rwbs::READ };
            let at = Nanos(slice * 100_000_000 + within * 20_000);
            let pid = if within < 40 { 9 } else { 5 };
            trace.records.push(Record { at, cpu: 0, pid, seen: Seen::Queue(extent) });
        }
        caps::caps(&trace, device)
    };
    let found = limited("kworker/1:0");
    assert!((found["iops_limit"].value - 500.0).abs() < 1.0 && found["slice_ms"].value == 100.0, "{found:?}");
    assert!(found["iops_limit"].known && !found.contains_key("bw_limit_mb_s") && limited("job").is_empty());
}

use crate::{explain_pair, names};

#[test]
fn the_plug_is_told_from_small_windows_and_slow_devices() {
    let job = |on: &str, disk: &str| {
        format!(
            "run dd if=/dev/sda bs=1M count=24 --on sim:{on},machine=laptop-2011 --disk ssd-sata-2011{disk},\
             idle_threshold_us=200,idle_exit_us=6000"
        )
    };
    let found = explain_pair(3, &job("linux-2.6.38", ""), &job("linux-2.6.39", ""));
    assert_eq!(names(&found).first(), Some(&"plug-around-read"), "{found:#?}");
    for on in ["linux-2.6.38", "linux-3.3", "linux-2.6.38,read_ahead_kb=16"] {
        let found = explain_pair(3, &job("linux-2.6.38", ""), &job(on, ""));
        assert!(!names(&found).contains(&"plug-around-read"), "{on}: {found:#?}");
    }
}

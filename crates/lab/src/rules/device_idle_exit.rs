//! A device that saves power takes its time to wake up.

use super::device::{Kind, found};
use super::{Match, Rule, Switch};
use crate::explain::delta::Delta;

pub(super) const RULE: Rule = Rule {
    name: "device-idle-exit",
    layer: "device",
    needs: super::ISSUED,
    owns: super::Owns::Io,
    single: super::Single::Times,
    what: "The device falls asleep between commands, and takes time to wake up.",
    why: "Link power management and idle states of the drive cost their exit time on the first command after a pause; \
          a program that pauses, or a queue that holds requests back, pays it again and again.",
    events: "Commands that find the device idle for 100 us or more take longer than before; equal commands that follow \
             at once do not.",
    example: "An SSD on a laptop with aggressive link power management: one read-ahead window in flight at a time lets \
              it doze in every gap.",
    change: "Keep the device busy (more read-ahead, more depth); max_performance in link_power_management_policy.",
    refute: "With power management off (the old device's idle times) the difference remains.",
    since: "Every kernel; AHCI link power management since 2.6.24, its default since 4.15.",
    consequences: &["device-latency"],
    switches: &[Switch::OtherDevice],
    find,
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    found(delta, Kind::IdleExit, "the device takes time to wake up")
}

#[cfg(test)]
mod tests {
    use crate::rules::tests::{explain_pair, names};

    #[test]
    fn waking_up_is_told_from_a_slower_device() {
        let job = |options: &str, disk: &str| {
            format!("run fio --name=j --size=1g --bs=4k --number_ios=200 {options} --on sim:linux-3.2.0 --disk {disk}")
        };
        let (pausing, busy) = ("--rw=randread --thinktime=1000", "--rw=randread");
        let mixed = "--rw=randread --thinktime=2000 --thinktime_blocks=4";
        let sleepy = "ssd-sata-2011,idle_threshold_us=200,idle_exit_us=3000";
        for options in [pausing, mixed] {
            let found = explain_pair(3, &job(options, "ssd-sata-2011"), &job(options, sleepy));
            assert_eq!(names(&found).first(), Some(&"device-idle-exit"), "{options}: {found:#?}");
        }
        for (options, other) in
            [(busy, sleepy), (busy, "ssd-sata-2011,read_us=200"), (mixed, "ssd-sata-2011,read_us=200")]
        {
            let found = explain_pair(3, &job(options, "ssd-sata-2011"), &job(options, other));
            assert!(!names(&found).contains(&"device-idle-exit"), "{options} {other}: {found:#?}");
        }
    }
}

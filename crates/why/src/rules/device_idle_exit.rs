//! A device that saves power takes its time to wake up.

use super::device::{Kind, found};
use super::{Match, Rule, Switch, paced};
use crate::delta::Delta;

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
    cost: Some(paced::dozing),
};

fn find(delta: &Delta<'_>) -> Option<Match> {
    found(delta, Kind::IdleExit, "the device takes time to wake up")
}

#[cfg(test)]
mod tests {
    use super::super::device::tests::{idle, latency};
    use super::super::edges::hold;
    use super::RULE;

    #[test]
    fn limits() {
        hold(&RULE, idle, 0.732, &[("another kind", |p, x| *p = [idle, latency][x as usize](), 0.0, 1.0)]);
    }
}

//! Purposes of people, and whether this machine allows them.

use super::{Ability, Has, probe};

/// Something that people want to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purpose {
    /// Its name.
    pub name: &'static str,
    /// The command that does it.
    pub command: &'static str,
    /// Whether it can be done here: yes or no.
    pub has: Has,
    /// The command that makes it possible, or its limit; empty without either.
    pub advice: String,
}

/// All of them. Quick: what takes long or writes is not tried.
pub fn purposes() -> Vec<Purpose> {
    let of = |name, command, needs: &[Ability]| {
        let missing = needs.iter().find(|ability| ability.has == Has::No);
        let has = if missing.is_some() { Has::No } else { Has::Yes };
        Purpose { name, command, has, advice: missing.map_or(String::new(), |ability| ability.advice.clone()) }
    };
    let (root, ublk) = (probe::root(), probe::ublk());
    // With ublk neither FUSE nor loop devices are needed.
    let fronts = if ublk.has == Has::Yes { vec![ublk] } else { vec![probe::fuse(), probe::loop_devices()] };
    let disks: Vec<Ability> = [root.clone()].into_iter().chain(fronts).collect();
    let record = if crate::capture::allowed().is_ok() { vec![probe::tracing()] } else { vec![root] };
    let mut boot = of("boot kernels", "iowhy run JOB --on kernel:debian-6.12", &[probe::qemu()]);
    if boot.has == Has::Yes && probe::kvm().has != Has::Yes {
        boot.advice = "emulated: no KVM here".to_owned();
    }
    vec![
        of("record", "iowhy trace record -o before.parquet -- COMMAND", &record),
        of("explain", "iowhy explain before.parquet after.parquet", &[]),
        of("modelled disks", "iowhy disk create --model sata-2014 --size 4G", &disks),
        boot,
        of("simulate", "iowhy run JOB --on sim:linux-6.18 --disk sata-2014", &[]),
    ]
}

use crate::{explain_pair, names};

#[test]
fn a_cap_on_operations_is_told_from_a_slower_backend() {
    let job = |options: &str, disk: &str| format!("run fio --name=j {options} --on sim:linux-6.18 --disk {disk}");
    let random = "--rw=randread --bs=4k --size=2g --number_ios=300";
    let deep = "--rw=randread --bs=4k --size=2g --number_ios=1000 --direct=1 --ioengine=libaio --iodepth=16";
    for (options, limit) in [(random, 500), (deep, 3000)] {
        let capped = format!("virtio,iops_limit={limit}");
        let found = explain_pair(3, &job(options, "virtio"), &job(options, &capped));
        assert_eq!(names(&found).first(), Some(&"device-iops-cap"), "{limit}: {found:#?}");
        for other in ["virtio,read_us=900", "virtio"] {
            let found = explain_pair(3, &job(options, "virtio"), &job(options, other));
            assert!(!names(&found).contains(&"device-iops-cap"), "{other}: {found:#?}");
        }
    }
}

use crate::{explain_pair, names};

#[test]
fn streams_on_one_descriptor_are_told_from_other_causes() {
    let job = |descriptors: &str, on: &str| {
        format!(
            "run fio --name=j --rw=read --size=8m --bs=16k --numjobs=8 --thread --filename=f --offset_increment=4m \
             --iowhy_descriptors={descriptors} --on sim:{on} --disk sata-2010"
        )
    };
    for kernel in ["linux-2.6.6", "linux-2.6.22", "linux-6.18"] {
        let found = explain_pair(5, &job("own", kernel), &job("shared", kernel));
        assert_eq!(names(&found).first(), Some(&"shared-readahead-state"), "{kernel}: {found:#?}");
        for (a, b) in [("own", kernel.to_owned()), ("own", format!("{kernel},read_ahead_kb=0"))] {
            let found = explain_pair(3, &job(a, kernel), &job("own", &b));
            assert!(!names(&found).contains(&"shared-readahead-state"), "{kernel}, {b}: {found:#?}");
        }
    }
}

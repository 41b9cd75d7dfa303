//! Candidates for the word that a person is typing: values of options from the tables of models and from the store. A
//! shell asks, so nothing here complains: without a store, labels are missing.

use iowhy_stack::device::DEVICES;
use iowhy_stack::kernel::{self, KERNELS, PATCHES, Stack, find_kernel};
use iowhy_stack::origin::listed;

use crate::modelled_disk;
use crate::run::metrics;
use crate::store::{self, Filter, Store};

/// Runs of the store that are looked at for labels and metrics: the latest.
const RUNS: u64 = 1000;

/// A word that may stand there, and a line on it.
pub type Candidate = (String, String);

/// Words for an option, or for a place of this name, that begin as `word` does.
pub fn values(option: &str, word: &str) -> Vec<Candidate> {
    let mut all = match option {
        "on" => places(word),
        "disk" => disks(word),
        "label" | "baseline" | "candidate" | "what" => labels(),
        "metric" => names(),
        _ => Vec::new(),
    };
    all.retain(|(value, _)| value.starts_with(word));
    all
}

/// The part before the last separator, and the rest.
fn cut<'a>(word: &'a str, separators: &[char]) -> (&'a str, &'a str) {
    word.split_at(word.rfind(separators).map_or(0, |at| at + 1))
}

/// Words behind `--on`.
fn places(word: &str) -> Vec<Candidate> {
    let Some(kernel) = word.strip_prefix("sim:") else {
        let words = [("live", "the running kernel"), ("kernel:", "a kernel that is booted")].into_iter();
        let words = words.map(|(word, about)| (word.to_owned(), about.to_owned()));
        return words.chain(KERNELS.iter().map(|it| (format!("sim:{}", it.name), it.summary.to_owned()))).collect();
    };
    let name = kernel.split(['+', ',']).next().unwrap_or_default();
    let kernels = || KERNELS.iter().map(|it| (format!("sim:{}", it.name), it.summary.to_owned()));
    let Some(found) = find_kernel(name) else { return kernels().collect() };
    if !kernel.contains(',') {
        let before = word.rfind('+').map_or(word, |at| &word[..at]);
        let patches = PATCHES.iter().filter(|patch| patch.kernels.is_empty() || patch.kernels.contains(&found.name));
        let patches = patches.map(|patch| (format!("{before}+{}", patch.name), patch.summary.to_owned()));
        return kernels().chain(patches).collect();
    }
    let (before, setting) = cut(word, &[',']);
    let mut stack = Stack::new(found);
    // Keys of a policy that is picked further on the left are known by now; mistakes are not ours to report.
    for (key, value) in before.split(',').filter_map(|setting| setting.split_once('=')) {
        let _ = stack.set(key, value);
    }
    match setting.split_once('=') {
        None => stack.keys().iter().map(|key| (format!("{before}{key}="), String::new())).collect(),
        Some((key, _)) => {
            let of = kernel::policies().filter(|kind| kind.key == key).flat_map(|kind| (kind.entries)());
            of.map(|entry| (format!("{before}{key}={}", entry.name), entry.summary.to_owned())).collect()
        }
    }
}

/// Words behind `--disk`.
fn disks(word: &str) -> Vec<Candidate> {
    let (before, _) = cut(word, &[',']);
    let model = word.split(',').next().unwrap_or_default();
    if before.is_empty() {
        let here = ("here".to_owned(), "the disk below this folder, as it was fitted".to_owned());
        let models = listed(DEVICES).into_iter().map(|entry| (entry.name.to_owned(), entry.summary.to_owned()));
        let fitted = crate::profile::names().into_iter().map(|name| (name, "a fitted disk".to_owned()));
        return std::iter::once(here).chain(models).chain(fitted).collect();
    }
    let of_model = DEVICES.iter().find(|entry| entry.name == model).map_or(&[][..], |entry| entry.options);
    let of_model = of_model.iter().map(|spec| (spec.name, spec.help));
    let own = modelled_disk::KEYS.iter().filter(|(key, _)| !key.contains("NAME")).copied();
    of_model.chain(own).map(|(key, about)| (format!("{before}{key}="), about.to_owned())).collect()
}

/// The store of this person, if there is one.
fn runs() -> Vec<store::StoredRun> {
    let directory = store::directory(None, &|name| std::env::var(name).ok());
    let store = directory.and_then(|directory| Store::open_existing(&directory).ok());
    let filter = Filter { last: Some(RUNS), ..Filter::default() };
    store.and_then(|store| store.runs(&filter).ok()).unwrap_or_default()
}

/// Labels of the store, the latest first.
fn labels() -> Vec<Candidate> {
    let mut all: Vec<Candidate> = Vec::new();
    for run in runs().iter().rev() {
        if !run.label.is_empty() && all.iter().all(|(label, _)| *label != run.label) {
            all.push((run.label.clone(), run.job.clone()));
        }
    }
    all
}

/// Metrics of every job, and those of runs in the store.
fn names() -> Vec<Candidate> {
    let mut all = metrics::names();
    for (name, _) in runs().into_iter().flat_map(|run| run.metrics) {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all.into_iter().map(|name| (name, String::new())).collect()
}

#[cfg(test)]
mod tests {
    use super::values;

    #[test]
    fn every_word_that_is_offered_is_accepted() {
        let mut problems = iowhy_text::diagnose::Problems::default();
        let ons = ["sim:", "sim:linux-2.4.25+", "sim:linux-2.6.6-rc3,elevator="];
        let all: Vec<String> = ons.into_iter().flat_map(|word| values("on", word)).map(|(word, _)| word).collect();
        assert!(all.len() > 20, "{all:?}");
        for on in &all {
            crate::place::parse(on, None, &mut problems);
        }
        for (disk, _) in values("disk", "").iter().filter(|(disk, _)| disk != "here") {
            crate::place::check_disk(disk, &mut problems);
        }
        assert!(problems.list.is_empty(), "{}", problems.render());
    }

    #[test]
    fn a_key_is_offered_behind_what_stands_before_it() {
        let offered = |option, word| values(option, word).into_iter().map(|(word, _)| word).collect::<Vec<_>>();
        let keys = offered("on", "sim:linux-6.18,elevator=bfq,elevator.slice");
        assert!(keys.contains(&"sim:linux-6.18,elevator=bfq,elevator.slice_idle_us=".to_owned()), "{keys:?}");
        assert_eq!(offered("disk", "ide-2004,sched"), ["ide-2004,scheduler="]);
        assert!(offered("on", "sim:linux-6.1").contains(&"sim:linux-6.18".to_owned()));
        assert!(offered("metric", "p99").contains(&"p99_ns".to_owned()));
        assert!(offered("on", "sim:nosuch,").is_empty());
    }
}

//! Steps in which kernels differ, in words, as [`Readahead::steps`](crate::readahead::Readahead::steps) names them.

use crate::readahead::StepText;

const fn pick(name: &'static str, first: bool, answers: [&'static str; 2]) -> StepText {
    (name, if first { answers[0] } else { answers[1] })
}

pub(in crate::readahead) const fn one_rule(one: bool) -> StepText {
    pick("misses and markers", one, ["are decided by one rule", "are decided apart"])
}

pub(in crate::readahead) const fn behind_window(goes_on: bool) -> StepText {
    let answers = ["moves the stream on", "is judged like any other miss"];
    pick("a miss right behind the window", goes_on, answers)
}

pub(in crate::readahead) const fn next_window(keeps_size: bool) -> StepText {
    let answers = [
        "two or four times the last, at most the limit, and never less than the last",
        "two or four times the last, at most the limit",
    ];
    pick("the next window of a stream", keeps_size, answers)
}

pub(in crate::readahead) const fn in_vain(answer: &'static str) -> StepText {
    ("a marker with a whole limit of cached pages behind it", answer)
}
pub(in crate::readahead) const ENDS: &str = "ends its stream";
pub(in crate::readahead) const LAST_PROBED: &str = "moves the window to the last page looked at";
pub(in crate::readahead) const AT_MARKER: &str = "moves the window to itself";

pub(in crate::readahead) const fn history(one_less: bool) -> StepText {
    pick("a whole limit of cached pages before a miss", one_less, ["counts one page less", "counts whole"])
}

pub(in crate::readahead) const fn over_limit(to_request: bool) -> StepText {
    let answers = ["may grow to the device's largest request", "reads twice the limit"];
    pick("a request over the limit", to_request, answers)
}

pub(in crate::readahead) const fn marker_from_clipped(clipped: bool) -> StepText {
    let answers = ["counted from the end of the file", "counted from the end of the window"];
    pick("the marker near the end of the file", clipped, answers)
}

pub(in crate::readahead) const fn limit_0(forced: bool) -> StepText {
    pick("a limit of 0", forced, ["makes each page a forced read", "leaves each page to a read of its own"])
}

/// Common to all from 5.10 on.
pub(in crate::readahead) const SINCE_5_10: [StepText; 5] = [
    over_limit(true),
    marker_from_clipped(true),
    limit_0(true),
    ("cached pages before a miss", "show a stream if they are more than the request"),
    ("a cached page in a window", "splits it into two submissions"),
];

pub(in crate::readahead) const fn folios(answer: &'static str) -> StepText {
    ("folios of a window", answer)
}

pub(in crate::readahead) const fn largest_folio(of_mapping: bool) -> StepText {
    pick("the largest folio", of_mapping, ["is the file system's", "has order 9 on any file system with large folios"])
}

pub(in crate::readahead) const fn in_the_way(rest: bool) -> StepText {
    let answers = ["reads the rest of the window", "reads the whole size again and goes past the window"];
    pick("a cached page in the way of folios", rest, answers)
}

pub(in crate::readahead) const fn marks_end(marked: bool) -> StepText {
    pick("a window that ends with the file", marked, ["carries a marker", "carries no marker"])
}

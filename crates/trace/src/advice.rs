//! Advice on files and mappings in a trace.

use iowhy_stack::readahead::Advice;
use iowhy_stack::trace::Seen;

use crate::fields::field;

/// Advice by its number in `posix_fadvise` and `madvise`, which agree in these.
fn advice_of(number: Option<i64>, offset: u64, len_bytes: u64) -> Option<Advice> {
    match number? {
        0 => Some(Advice::Normal),
        1 => Some(Advice::Random),
        2 => Some(Advice::Sequential),
        3 => Some(Advice::WillNeed { offset, len_bytes }),
        _ => None,
    }
}

/// The advice of a record, and its descriptor; -1 for a mapping.
pub fn advised(seen: &Seen) -> Option<(i32, Advice)> {
    let Seen::Other { name, fields } = seen else { return None };
    let number = |key: &str| field(fields, key).and_then(|value| value.parse::<i64>().ok());
    let bytes = |key: &str| number(key).unwrap_or(0).max(0) as u64;
    let (fd, advice) = match name.as_str() {
        "syscalls:sys_enter_fadvise64" => (number("fd"), advice_of(number("advice"), bytes("offset"), bytes("len"))),
        "syscalls:sys_enter_readahead" => (number("fd"), advice_of(Some(3), bytes("offset"), bytes("count"))),
        "syscalls:sys_enter_madvise" => (Some(-1), advice_of(number("behavior").filter(|it| *it < 3), 0, 0)),
        _ => return None,
    };
    Some((fd? as i32, advice?))
}

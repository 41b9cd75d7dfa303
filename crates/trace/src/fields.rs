//! `name=value` in records that are kept as text.

use iowhy_stack::trace::Dev;

/// System calls that wait for descriptors, or for a time.
pub const WAITS_FOR_DESCRIPTORS: [&str; 6] = ["select", "pselect6", "poll", "ppoll", "epoll_wait", "epoll_pwait"];

/// A field of an event that is kept as text.
pub fn field<'a>(fields: &'a str, name: &str) -> Option<&'a str> {
    fields.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
}

/// The device number of an event that is kept as text.
pub fn device(fields: &str) -> Option<Dev> {
    let (major, minor) = field(fields, "dev")?.split_once(',')?;
    Some(Dev::new(major.parse().ok()?, minor.parse().ok()?))
}

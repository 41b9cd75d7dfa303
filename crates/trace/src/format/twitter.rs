//! Traces of Twitter's cache clusters (2020): CSV, a line for each request of a key.
//!
//! ```text
//! timestamp,anonymized key,key size,value size,client id,operation,TTL
//! seconds; text without commas; bytes; bytes; number; get, gets, set, add, replace, cas, append, ..; seconds
//! ```
//! An object has the bytes of its key and its value; the key becomes a number of 64 bits.
//!
//! Source: README of github.com/twitter/cache-trace; Yang, Yue and Rashmi, OSDI 2020. Known limit: the time to live is
//! checked and not kept.

use iowhy_stack::units::Nanos;

use super::Format;
use crate::public::{Access, Epoch, Fields, Layout, Purpose, Seen, Source, Wrong, key_of};

const SOURCE: Source = Source {
    name: "twitter",
    objects: true,
    resolution: Nanos(1_000_000_000),
    epoch: Epoch::Begin,
    layout: Layout::Lines(line),
};

/// The form.
pub const FORMAT: Format = Format::public(&SOURCE, "CSV of Twitter's cache traces", |_, bytes| SOURCE.fits(bytes));

fn line(line: &[u8], _: &mut Seen) -> Result<Option<Access>, Wrong> {
    let mut fields = Fields::of(line);
    let at = fields.number("a time is a number of seconds")?;
    let at = at.checked_mul(1_000_000_000).ok_or((0, "the time is beyond 500 years"))?;
    let key = key_of(fields.word()?);
    let name = fields.short("a key's size is a number of bytes")?;
    let value = fields.short("a value's size is a number of bytes")?;
    let bytes = name.checked_add(value).ok_or((fields.began(), "key and value have more than 4 GiB"))?;
    let pid = fields.short("a client is a number")?;
    let purpose = match fields.word()? {
        b"get" | b"gets" => Purpose::Read,
        b"set" | b"add" | b"replace" | b"cas" | b"append" | b"prepend" | b"incr" | b"decr" => Purpose::Write,
        b"delete" => Purpose::Delete,
        _ => return Err((fields.began(), "an operation is one of memcached's, for example get or set")),
    };
    fields.number("a time to live is a number of seconds")?;
    fields.end()?;
    Ok(Some(Access { at: Nanos(at), took: Nanos::ZERO, key, bytes, volume: 0, pid, purpose }))
}

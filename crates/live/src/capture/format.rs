//! The kernel's descriptions of its events (`events/GROUP/NAME/format`), read at run time: numbers and offsets differ
//! between kernels.

/// A field of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: String,
    /// Its type, in C.
    pub(super) kind: String,
    pub(super) offset: usize,
    pub(super) size: usize,
    pub(super) signed: bool,
    /// It holds its place in the event: the low half is the offset, the high half the length.
    pub(super) located: bool,
    /// Its elements are characters.
    pub(super) text: bool,
}

/// A description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Format {
    pub(super) id: u16,
    /// Without those that all events have.
    pub(super) fields: Vec<Field>,
    /// Where the process is.
    pub(super) pid: Option<Field>,
    /// In which context it happened.
    pub(super) flags: Option<Field>,
}

/// The value of `key:` in a part of a line.
fn value<'a>(part: &'a str, key: &str) -> Option<&'a str> {
    part.trim().strip_prefix(key)?.strip_prefix(':').map(str::trim)
}

/// Reads a line like `field:char rwbs[10]; offset:34; size:10; signed:0;`.
fn field(line: &str) -> Option<Field> {
    let mut parts = line.split(';');
    let declared = value(parts.next()?, "field")?;
    let (mut offset, mut size, mut signed) = (None, None, false);
    for part in parts {
        offset = offset.or_else(|| value(part, "offset")?.parse().ok());
        size = size.or_else(|| value(part, "size")?.parse().ok());
        signed |= value(part, "signed") == Some("1");
    }
    let (located, declared) = match declared.strip_prefix("__data_loc ") {
        Some(rest) => (true, rest),
        None => (false, declared),
    };
    // `char rwbs[10]`, `__data_loc char[] cmd`, `unsigned int fd`.
    let (kind, name) = declared.rsplit_once(' ')?;
    let (name, array) = name.split_once('[').map_or((name, false), |(name, _)| (name, true));
    let array = array || kind.ends_with("[]");
    let text = array && kind.trim_end_matches("[]").trim_start_matches("const ").trim() == "char";
    Some(Field { name: name.to_owned(), kind: kind.to_owned(), offset: offset?, size: size?, signed, located, text })
}

/// Reads a description.
pub(super) fn parse(text: &str) -> Result<Format, String> {
    let mut format = Format::default();
    let mut id = None;
    for line in text.lines().map(str::trim).take_while(|line| !line.starts_with("print fmt")) {
        if let Some(number) = value(line, "ID") {
            id = number.parse().ok();
        } else if line.starts_with("field:") {
            let field = field(line).ok_or_else(|| format!("`{line}` is not a field"))?;
            match field.name.as_str() {
                "common_pid" => format.pid = Some(field),
                "common_flags" => format.flags = Some(field),
                name if name.starts_with("common_") => {}
                _ => format.fields.push(field),
            }
        }
    }
    format.id = id.ok_or("it has no ID")?;
    if format.pid.is_none() {
        return Err("it has no common_pid".to_owned());
    }
    Ok(format)
}

impl Field {
    /// The bytes of it in an event.
    pub(super) fn bytes<'a>(&self, event: &'a [u8]) -> Option<&'a [u8]> {
        let own = event.get(self.offset..self.offset.checked_add(self.size)?)?;
        if !self.located {
            return Some(own);
        }
        let at = u32::from_ne_bytes(own.try_into().ok()?);
        let (start, len) = ((at & 0xffff) as usize, (at >> 16) as usize);
        event.get(start..start + len)
    }

    /// Its value as a number.
    pub(super) fn number(&self, event: &[u8]) -> Option<i64> {
        let bytes = self.bytes(event)?;
        Some(match (bytes.len(), self.signed) {
            (1, false) => i64::from(bytes[0]),
            (1, true) => i64::from(bytes[0] as i8),
            (2, false) => i64::from(u16::from_ne_bytes(bytes.try_into().ok()?)),
            (2, true) => i64::from(i16::from_ne_bytes(bytes.try_into().ok()?)),
            (4, false) => i64::from(u32::from_ne_bytes(bytes.try_into().ok()?)),
            (4, true) => i64::from(i32::from_ne_bytes(bytes.try_into().ok()?)),
            (8, _) => i64::from_ne_bytes(bytes.try_into().ok()?),
            _ => return None,
        })
    }

    /// Its text up to the first zero.
    pub(super) fn text<'a>(&self, event: &'a [u8]) -> Option<&'a [u8]> {
        let bytes = self.bytes(event)?;
        Some(&bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len())])
    }
}

/// The fields of one event.
#[derive(Debug)]
pub(super) struct Values<'a> {
    pub(super) event: &'a [u8],
    pub(super) fields: &'a [Option<Field>],
}

impl<'a> Values<'a> {
    /// The field's value; `None` if this kernel does not have the field.
    pub(super) fn get(&self, nr: usize) -> Option<i64> {
        self.fields.get(nr)?.as_ref()?.number(self.event)
    }

    /// The same; 0 if this kernel does not have the field.
    pub(super) fn or_zero(&self, nr: usize) -> u64 {
        self.get(nr).unwrap_or(0) as u64
    }

    pub(super) fn text(&self, nr: usize) -> Option<&'a [u8]> {
        self.fields.get(nr)?.as_ref()?.text(self.event)
    }
}

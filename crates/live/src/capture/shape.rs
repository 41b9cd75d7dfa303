//! How an event of the table becomes a record on this kernel.

use iowhy_stack::trace::Seen;

use super::events::Event;
use super::format::{Field, Format, Values};

/// How an event of this kernel becomes a record.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) id: u16,
    /// `group:name`.
    pub(super) name: String,
    pub(super) pid: Field,
    /// The context in which it happened, if this kernel records it.
    pub(super) flags: Option<Field>,
    /// A task and its name from now on, where the event has both: the task of the field `pid` (one that is woken, begun
    /// or renamed), without such a field the one on the CPU.
    pub(super) named: Option<(Field, Field)>,
    /// Every field.
    pub(super) all: Vec<Field>,
    /// The fields that the table of events names, in its order.
    pub(super) used: Vec<Option<Field>>,
    /// The table's conversion of them.
    pub(super) show: Option<fn(&Values<'_>) -> Option<Seen>>,
}

impl Shape {
    /// Of an event of the table, called `name` here, from its description.
    pub(super) fn of(event: &Event, name: &str, format: Format) -> Result<Shape, String> {
        let find = |name: &str| format.fields.iter().find(|field| field.name == name).cloned();
        let used: Vec<Option<Field>> = event.fields.iter().map(|name| find(name)).collect();
        let pid = format.pid.clone().ok_or("it has no common_pid")?;
        let comm = find("comm").or_else(|| find("newcomm"));
        let named = comm.map(|comm| (find("pid").unwrap_or_else(|| pid.clone()), comm));
        let name = name.replacen('/', ":", 1);
        let Format { id, fields: all, flags, .. } = format;
        Ok(Shape { id, name, pid, flags, named, used, all, show: event.show })
    }
}

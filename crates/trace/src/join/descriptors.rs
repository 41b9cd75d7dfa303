//! Descriptors of the tasks of a trace: which open file each is, and where that stands.
//!
//! ```text
//! open, openat, creat      a new open file at its begin; `iowhy:opened` behind it has the file
//! iowhy:descriptor         files open before the trace, with their position
//! dup, fcntl(F_DUPFD)      one more descriptor of the same open file, so of the same position
//! close, close_range       the descriptor is gone
//! execve                   those marked to be closed then are gone
//! task_newtask             a thread has the descriptors of who starts it, a process gets copies of the same open files
//! lseek                    a new position
//! ```
//! Known limits: descriptors passed by pipes, sockets and io_uring have no file; flags of `openat2` are in memory that
//! a trace does not show.

use std::collections::HashMap;

use crate::fields::field;

/// Why the file of a call is unknown.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoFile {
    /// Certainly without data: a pipe, a terminal, a device without data.
    NoData,
    /// It was opened in the trace, but without a file.
    Untold,
    /// How the descriptor came to be is not in the trace.
    Unseen,
}

/// An open file: descriptors that were made of one another share it.
#[derive(Copy, Clone, Debug, Default)]
pub struct OpenFile {
    /// Which file, by number.
    pub file: Option<u32>,
    /// The trace itself has it, so pages cannot contradict it.
    pub certain: bool,
    /// Where it stands, as far as anybody knows.
    pub pos: Option<u64>,
    /// It was opened with O_DSYNC or O_SYNC.
    pub synchronous: bool,
    /// It was seen how it was opened.
    opened: bool,
    /// It holds no data.
    no_data: bool,
}

impl OpenFile {
    /// Why its file is not known.
    pub fn reason(&self) -> NoFile {
        match (self.no_data, self.opened) {
            (true, _) => NoFile::NoData,
            (false, true) => NoFile::Untold,
            (false, false) => NoFile::Unseen,
        }
    }
}

/// A descriptor: the open file, and whether it is closed when another program is started.
#[derive(Copy, Clone, Debug)]
struct Entry {
    open: usize,
    cloexec: bool,
}

/// A system call that goes on.
#[derive(Clone, Debug)]
struct Pending {
    call: String,
    fields: String,
}

/// Descriptors of all tasks.
#[derive(Debug, Default)]
pub struct Descriptors {
    open: Vec<OpenFile>,
    tables: Vec<HashMap<i32, Entry>>,
    of_task: HashMap<u32, usize>,
    pending: HashMap<u32, Pending>,
}

fn number(fields: &str, name: &str) -> Option<i64> {
    let text = field(fields, name)?;
    // Registers are unsigned, and their contents need not be.
    text.parse().ok().or_else(|| text.parse::<u64>().ok().map(|number| number as i64))
}

const O_APPEND: i64 = 0o2000;
/// O_SYNC has this bit, too.
const O_DSYNC: i64 = 0o10000;
const O_CLOEXEC: i64 = 0o2_000_000;
const CLONE_FILES: i64 = 0x400;
const CLOSE_RANGE_CLOEXEC: i64 = 4;
const F_DUPFD: i64 = 0;
const F_SETFD: i64 = 2;
const F_DUPFD_CLOEXEC: i64 = 1030;

impl Descriptors {
    fn table(&mut self, task: u32) -> &mut HashMap<i32, Entry> {
        let tables = &mut self.tables;
        let number = *self.of_task.entry(task).or_insert_with(|| {
            tables.push(HashMap::new());
            tables.len() - 1
        });
        &mut tables[number]
    }

    fn insert(&mut self, task: u32, fd: i32, cloexec: bool, file: OpenFile) {
        self.open.push(file);
        let open = self.open.len() - 1;
        self.table(task).insert(fd, Entry { open, cloexec });
    }

    /// The open file of a descriptor, by number; a new one if it is unknown.
    pub fn of(&mut self, task: u32, fd: i32) -> usize {
        if let Some(entry) = self.table(task).get(&fd) {
            return entry.open;
        }
        self.insert(task, fd, false, OpenFile::default());
        self.open.len() - 1
    }

    /// Number of the descriptors that a task has: tasks of a process have the same.
    pub fn shared_by(&mut self, task: u32) -> usize {
        self.table(task);
        self.of_task[&task]
    }

    pub fn open(&mut self, number: usize) -> &mut OpenFile {
        &mut self.open[number]
    }

    /// Sets the file of a descriptor from a certain source.
    pub fn is(&mut self, task: u32, fd: i32, file: Option<u32>) {
        let open = self.of(task, fd);
        let open = &mut self.open[open];
        (open.file, open.certain, open.no_data) = (file, true, file.is_none());
    }

    /// State of a descriptor when the trace began.
    pub fn was(&mut self, task: u32, fd: i32, file: Option<u32>, fields: &str) {
        self.is(task, fd, file);
        let open = self.of(task, fd);
        self.open[open].pos = number(fields, "pos").map(|pos| pos as u64);
        let cloexec = number(fields, "cloexec") == Some(1);
        if let Some(entry) = self.table(task).get_mut(&fd) {
            entry.cloexec = cloexec;
        }
    }

    /// Takes a record of a system call, or of a task that is started.
    pub fn other(&mut self, task: u32, name: &str, fields: &str) {
        if name == "task:task_newtask" {
            if let (Some(new), Some(flags)) = (number(fields, "pid"), number(fields, "clone_flags")) {
                self.start(task, new as u32, flags & CLONE_FILES != 0);
            }
        } else if let Some(call) = name.strip_prefix("syscalls:sys_enter_") {
            match call {
                "close" => {
                    if let Some(fd) = number(fields, "fd") {
                        self.table(task).remove(&(fd as i32));
                    }
                }
                "close_range" => self.close_range(task, fields),
                "open" | "openat" | "openat2" | "creat" | "dup" | "dup2" | "dup3" | "fcntl" | "lseek" => {
                    self.pending.insert(task, Pending { call: call.to_owned(), fields: fields.to_owned() });
                }
                _ => {}
            }
        } else if let Some(call) = name.strip_prefix("syscalls:sys_exit_") {
            let Some(result) = number(fields, "ret").filter(|result| *result >= 0) else { return };
            if call.starts_with("execve") {
                self.exec(task);
            } else if let Some(pending) = self.pending.remove(&task).filter(|pending| pending.call == call) {
                self.end(task, &pending, result);
            }
        }
    }

    fn start(&mut self, task: u32, new: u32, shared: bool) {
        self.table(task);
        let mut number = self.of_task[&task];
        if !shared {
            self.tables.push(self.tables[number].clone());
            number = self.tables.len() - 1;
        }
        self.of_task.insert(new, number);
    }

    fn exec(&mut self, task: u32) {
        // Threads that shared it have ended, a process that shared it goes on with its own.
        let mut table = self.table(task).clone();
        table.retain(|_, entry| !entry.cloexec);
        self.tables.push(table);
        self.of_task.insert(task, self.tables.len() - 1);
    }

    fn close_range(&mut self, task: u32, fields: &str) {
        let of = |name: &str| number(fields, name).unwrap_or(0);
        let (first, last) = (of("fd"), number(fields, "max_fd").unwrap_or(-1) as u32);
        let within = |fd: i32| i64::from(fd) >= first && fd as u32 <= last;
        if of("flags") & CLOSE_RANGE_CLOEXEC == 0 {
            self.table(task).retain(|fd, _| !within(*fd));
        } else {
            let table = self.table(task).iter_mut();
            table.filter(|(fd, _)| within(**fd)).for_each(|(_, entry)| entry.cloexec = true);
        }
    }

    fn end(&mut self, task: u32, Pending { call, fields }: &Pending, result: i64) {
        let of = |name: &str| number(fields, name).unwrap_or(0);
        let new = result as i32;
        let mut copy = |from: &str, cloexec: bool| {
            let open = self.of(task, of(from) as i32);
            self.table(task).insert(new, Entry { open, cloexec });
        };
        match call.as_str() {
            "open" | "openat" | "openat2" | "creat" => {
                let flags = of("flags");
                let pos = (flags & O_APPEND == 0).then_some(0);
                let synchronous = flags & O_DSYNC != 0;
                let file = OpenFile { pos, synchronous, opened: true, ..OpenFile::default() };
                self.insert(task, new, flags & O_CLOEXEC != 0, file);
            }
            "dup" => copy("fildes", false),
            "dup2" | "dup3" if of("oldfd") == of("newfd") => {}
            "dup2" => copy("oldfd", false),
            "dup3" => copy("oldfd", of("flags") & O_CLOEXEC != 0),
            "fcntl" => match of("cmd") {
                F_DUPFD => copy("fd", false),
                F_DUPFD_CLOEXEC => copy("fd", true),
                F_SETFD => {
                    let cloexec = of("arg") & 1 != 0;
                    if let Some(entry) = self.table(task).get_mut(&(of("fd") as i32)) {
                        entry.cloexec = cloexec;
                    }
                }
                _ => {}
            },
            "lseek" => {
                let open = self.of(task, of("fd") as i32);
                self.open[open].pos = Some(result as u64);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_synchronous_file_is_synchronous() {
        for (flags, synchronous) in [(0o1, false), (0o10001, true), (0o4_010_001, true), (0o4_000_001, false)] {
            let text =
                format!("5 enter_openat flags={flags}; 5 exit_openat ret=3; 5 enter_dup fildes=3; 5 exit_dup ret=4");
            let mut descriptors = play(&text);
            let open = descriptors.of(5, 4);
            assert_eq!(descriptors.open(open).synchronous, synchronous, "{flags:o}");
        }
    }

    /// `task name fields; ..`, with the events' groups left out.
    fn play(text: &str) -> Descriptors {
        let mut descriptors = Descriptors::default();
        for line in text.split(';').map(str::trim) {
            let mut words = line.splitn(3, ' ');
            let task: u32 = words.next().and_then(|word| word.parse().ok()).expect("a task");
            let name = words.next().expect("a name");
            let fields = words.next().unwrap_or_default();
            match name {
                // As the trace says it: which file.
                "is" => descriptors.is(
                    task,
                    number(fields, "fd").expect("fd") as i32,
                    number(fields, "file").map(|file| file as u32),
                ),
                "was" => descriptors.was(
                    task,
                    number(fields, "fd").expect("fd") as i32,
                    number(fields, "file").map(|file| file as u32),
                    fields,
                ),
                "new" => descriptors.other(task, "task:task_newtask", fields),
                name => descriptors.other(task, &format!("syscalls:sys_{name}"), fields),
            }
        }
        descriptors
    }

    /// File and position, or why there is none.
    type Found = Result<(u32, Option<u64>), NoFile>;

    fn at(descriptors: &mut Descriptors, task: u32, fd: i32) -> Found {
        let open = descriptors.of(task, fd);
        let open = *descriptors.open(open);
        open.file.map(|file| (file, open.pos)).ok_or(open.reason())
    }

    #[test]
    fn descriptors_follow_the_calls() {
        let opened = "5 enter_openat dfd=-100 flags=0; 5 exit_openat ret=3; 5 is fd=3 file=7";
        let table: [(&str, (u32, i32), Found); 20] = [
            (opened, (5, 3), Ok((7, Some(0)))),
            (opened, (5, 4), Err(NoFile::Unseen)),
            ("5 enter_openat flags=0; 5 exit_openat ret=3", (5, 3), Err(NoFile::Untold)),
            ("5 enter_openat flags=0; 5 exit_openat ret=3; 5 is fd=3", (5, 3), Err(NoFile::NoData)),
            ("5 enter_openat flags=1024; 5 exit_openat ret=3; 5 is fd=3 file=7", (5, 3), Ok((7, None))),
            ("O; 5 enter_close fd=3", (5, 3), Err(NoFile::Unseen)),
            ("O; 5 enter_openat flags=0; 5 exit_openat ret=-2", (5, 3), Ok((7, Some(0)))),
            ("O; 5 enter_dup fildes=3; 5 exit_dup ret=4; 5 enter_close fd=3", (5, 4), Ok((7, Some(0)))),
            // They share the position.
            (
                "O; 5 enter_dup2 oldfd=3 newfd=0; 5 exit_dup2 ret=0; 5 enter_lseek fd=3 offset=9; 5 exit_lseek ret=9",
                (5, 0),
                Ok((7, Some(9))),
            ),
            ("O; 5 enter_fcntl fd=3 cmd=0 arg=10; 5 exit_fcntl ret=10", (5, 10), Ok((7, Some(0)))),
            ("O; 5 enter_fcntl fd=3 cmd=3 arg=0; 5 exit_fcntl ret=10", (5, 10), Err(NoFile::Unseen)),
            // A process has copies, a thread has the same.
            ("O; 5 new pid=6 clone_flags=0; 5 enter_close fd=3", (6, 3), Ok((7, Some(0)))),
            ("O; 5 new pid=6 clone_flags=1024; 5 enter_close fd=3", (6, 3), Err(NoFile::Unseen)),
            ("O; 5 new pid=6 clone_flags=0; 6 enter_lseek fd=3; 6 exit_lseek ret=5", (5, 3), Ok((7, Some(5)))),
            // Marked descriptors are closed when another program is started.
            ("O; 5 exit_execve ret=0", (5, 3), Ok((7, Some(0)))),
            ("O; 5 enter_fcntl fd=3 cmd=2 arg=1; 5 exit_fcntl ret=0; 5 exit_execve ret=0", (5, 3), Err(NoFile::Unseen)),
            ("5 was fd=0 file=2 pos=512 cloexec=0; 5 exit_execve ret=0", (5, 0), Ok((2, Some(512)))),
            ("5 was fd=0 file=2 pos=512 cloexec=1; 5 exit_execve ret=-2", (5, 0), Ok((2, Some(512)))),
            ("5 was fd=0 file=2 pos=512 cloexec=1; 5 exit_execve ret=0", (5, 0), Err(NoFile::Unseen)),
            ("O; 5 enter_close_range fd=3 max_fd=4294967295 flags=0", (5, 3), Err(NoFile::Unseen)),
        ];
        for (text, (task, fd), expected) in table {
            let text = text.replace("O;", &format!("{opened};"));
            assert_eq!(at(&mut play(&text), task, fd), expected, "{text}");
        }
    }
}

//! A guest's console: lines of the kernel and of programs, and marks of ours among them.
//!
//! A mark is a line that begins with `iowhy-guest:` and has a word and more behind it. The kernel may write into the
//! middle of a line of ours, so a mark is looked for anywhere in a line.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Beginning of our marks.
pub(super) const MARK: &str = "iowhy-guest:";

/// Lines that a report ends with.
const TAIL: usize = 40;
/// Lines that are kept: the job's messages among them.
const KEPT: usize = 400;
/// A longer line is cut: there are kernels that write without an end.
const LONGEST: usize = 500;

/// How far a guest has come.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// The kernel has not started our program.
    #[default]
    Booting,
    /// Our program runs, and makes things ready.
    Up,
    /// The job runs.
    Running,
    /// The job has ended, its results are being sent.
    Sending,
    Sent,
}

/// The output so far.
#[derive(Debug)]
pub(super) struct Console {
    begun: Instant,
    lines: VecDeque<String>,
    /// How far it has come.
    pub(super) stage: Stage,
    /// Time of each stage that was reached.
    pub(super) reached: Vec<(Stage, Duration)>,
    /// The kernel's words when it gave up.
    pub(super) panic: Option<String>,
    /// Our program's words when it gave up.
    pub(super) error: Option<String>,
    /// How the job ended.
    pub(super) status: Option<i32>,
    /// The guest's clock when the job began and ended, ns.
    pub(super) clock: [Option<u64>; 2],
    /// The job lays out its files just now, and need not wait for the disk's model.
    pub(super) laying_out: bool,
    /// Output of the job: lines while it ran that the kernel did not write.
    pub(super) messages: Vec<String>,
    /// When the last line came.
    pub(super) heard: Instant,
}

impl Console {
    pub(super) fn new(begun: Instant) -> Console {
        Console {
            begun,
            lines: VecDeque::new(),
            stage: Stage::Booting,
            reached: Vec::new(),
            panic: None,
            error: None,
            status: None,
            clock: [None; 2],
            laying_out: false,
            messages: Vec::new(),
            heard: begun,
        }
    }

    fn reach(&mut self, stage: Stage, at: Instant) {
        self.stage = stage;
        self.reached.push((stage, at.duration_since(self.begun)));
    }

    /// When a stage was reached, since the beginning.
    pub(super) fn when(&self, stage: Stage) -> Option<Duration> {
        self.reached.iter().find(|(known, _)| *known == stage).map(|(_, when)| *when)
    }

    /// Takes a line that came at a moment.
    pub(super) fn line(&mut self, line: &[u8], at: Instant) {
        self.heard = at;
        let line = plain(line);
        if let Some((_, mark)) = line.split_once(MARK) {
            let (word, rest) = mark.trim().split_once(' ').unwrap_or((mark.trim(), ""));
            match word {
                "up" => self.reach(Stage::Up, at),
                "begin" => {
                    self.clock[0] = rest.parse().ok();
                    self.reach(Stage::Running, at);
                }
                "end" => {
                    let (status, clock) = rest.split_once(' ').unwrap_or((rest, ""));
                    self.status = status.parse().ok();
                    self.clock[1] = clock.parse().ok();
                    self.reach(Stage::Sending, at);
                }
                "sent" => self.reach(Stage::Sent, at),
                "files" => self.laying_out = rest == "begin",
                "error" => self.error = Some(rest.to_owned()),
                // Signs of life are for the clock of the waiter.
                "alive" => return,
                _ => {}
            }
        } else if self.stage == Stage::Running && !is_of_the_kernel(&line) && !line.is_empty() {
            self.messages.push(line.clone());
            if self.messages.len() > KEPT {
                self.messages.remove(0);
            }
        }
        if let Some(at) = line.find("Kernel panic") {
            self.panic = Some(line[at..].to_owned());
        }
        if self.lines.len() == KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// The last lines.
    pub(super) fn tail(&self) -> Vec<String> {
        let lines = self.lines.iter().filter(|line| !line.is_empty());
        let lines: Vec<&String> = lines.collect();
        lines[lines.len().saturating_sub(TAIL)..].iter().map(|line| (*line).clone()).collect()
    }

    /// How much faster than the host's the guest's clock went while the job ran: 1 if it is right. A short job gives no
    /// basis.
    pub(super) fn clock_ratio(&self) -> Option<f64> {
        let host = self.when(Stage::Sending)?.checked_sub(self.when(Stage::Running)?)?;
        let guest = self.clock[1]?.checked_sub(self.clock[0]?)?;
        (host >= SHORTEST).then(|| guest as f64 / host.as_nanos() as f64)
    }
}

/// The least time over which clocks are compared: a line may come some milliseconds late.
const SHORTEST: Duration = Duration::from_secs(1);

/// Whether a line begins with a moment in brackets, as the kernel's do.
fn is_of_the_kernel(line: &str) -> bool {
    let moment = line.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(moment, _)| moment.trim());
    moment.is_some_and(|moment| !moment.is_empty() && moment.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
}

/// A line without what moves the cursor of a terminal, and not too long.
fn plain(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let mut out = String::new();
    let mut rest = text.chars().peekable();
    let mut length = 0;
    while let Some(letter) = rest.next() {
        if letter == '\u{1b}' {
            // ESC [ numbers letter, or ESC and one letter.
            if rest.next_if_eq(&'[').is_some() {
                while rest.next_if(|next| next.is_ascii_digit() || matches!(next, ';' | '?' | '=')).is_some() {}
            }
            rest.next();
        } else if length == LONGEST {
            out.push_str(" ..");
            break;
        } else if !letter.is_control() || letter == '\t' {
            out.push(letter);
            length += 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn console(text: &str) -> Console {
        let begun = Instant::now();
        let mut console = Console::new(begun);
        for (nr, line) in text.lines().enumerate() {
            console.line(line.as_bytes(), begun + Duration::from_secs(nr as u64));
        }
        console
    }

    #[test]
    fn marks_say_how_far_a_guest_has_come() {
        let text = "[    0.1] Linux version\n[    0.2] x iowhy-guest: up\niowhy-guest: begin 5000000000\n\
                    warning: slow\n[ 1.0] iowhy-guest: files begin\n\
                    [    2.0] nvme: odd\niowhy-guest: alive\niowhy-guest: end 1 8060000000\niowhy-guest: sent 77\n";
        let console = console(text);
        assert_eq!(
            (console.stage, console.status, &console.panic, &console.error),
            (Stage::Sent, Some(1), &None, &None)
        );
        assert_eq!((console.messages.len(), console.laying_out), (1, true));
        assert_eq!(console.messages, ["warning: slow"]);
        assert_eq!(console.when(Stage::Up), Some(Duration::from_secs(1)));
        // Five seconds here, 3.06 there.
        assert_eq!(console.clock_ratio(), Some(0.612));
        assert_eq!(console.tail().len(), 8, "signs of life say nothing");
    }

    #[test]
    fn the_end_of_the_console_is_told() {
        let mut text: String = (0..500).map(|nr| format!("line {nr}\n\n")).collect();
        text.push_str("\x1b[2J\x1b[1;31m[ 3.5] Kernel panic - not syncing: VFS\x1b[0m\r\n");
        text.push_str(&format!("{}\n", "x".repeat(2000)));
        let console = console(&text);
        let tail = console.tail();
        assert_eq!((tail.len(), tail[0].as_str()), (TAIL, "line 462"));
        assert_eq!(tail[38], "[ 3.5] Kernel panic - not syncing: VFS");
        assert_eq!(tail[39].len(), LONGEST + 3);
        assert_eq!(console.panic.as_deref(), Some("Kernel panic - not syncing: VFS"));
        assert_eq!((console.stage, console.clock_ratio()), (Stage::Booting, None));
    }

    #[test]
    fn any_bytes_are_a_line() {
        let mut console = Console::new(Instant::now());
        for line in [&b"\xff\xfe\x1b"[..], b"\x1b[", b"", b"iowhy-guest:", b"iowhy-guest: end x y", b"[]", b"[1] a"] {
            console.line(line, Instant::now());
        }
        assert_eq!(console.status, None);
    }
}

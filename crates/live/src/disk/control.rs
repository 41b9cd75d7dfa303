//! Messages between the processes of a disk: JSON, one object a line, over sockets of this user alone.
//!
//! ```text
//! command ──Ask──▶ keeper ──Order──▶ server        (`iowhy disk stat NAME`, the keeper, the server)
//!         ◀─State─        ◀─Counters─
//! ```
//! Waits for an answer end after [`PATIENCE`].

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::fault::Fault;
use super::store::Losses;
use super::{Lead, State, queue};

/// The longest that an answer may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(8);

/// A command's request to a keeper.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    /// How it is.
    Stat,
    /// Change something.
    Set(Vec<Change>),
    /// Cut the power.
    Crash {
        /// Seed of the loss.
        seed: u64,
    },
    /// Serve without the model's times, or with them again.
    Hurry(bool),
    /// Take the disk away.
    Remove,
}

/// Something about a disk that can be changed while it is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// One more fault, or none any more.
    Fault(Option<Fault>),
    /// A setting of the queue.
    Queue(String, String),
    /// Most requests that the kernel has in flight.
    Depth(u32),
    Power(bool),
}

/// A keeper's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// It is done, and this is how the disk is now.
    Done(Box<State>),
    /// It is gone.
    Removed,
    /// It cannot be done.
    Refused(String),
}

/// How requests are answered.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Mode {
    /// At the model's time.
    Model,
    /// At once.
    Instant,
    /// When another mode is chosen, or after ten seconds.
    Hold,
    /// After a fixed time, ns.
    After(u64),
}

/// A keeper's message to its server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// How it is.
    Count,
    /// How requests are to be answered.
    Mode(Mode),
    /// Time in the layers above.
    Lead(Lead),
    /// One more fault, or none any more.
    Fault(Option<Fault>),
    /// Lose all data that is not on the medium, and fail everything from now on.
    Crash {
        /// Seed of the loss.
        seed: u64,
    },
    /// Work again, as after power has come back; or fail everything.
    Power(bool),
}

/// Counters of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Reads answered.
    pub reads: u64,
    pub read_bytes: u64,
    /// Writes answered.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Flushes answered.
    pub flushes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Most requests that were here at once since the count was last reset.
    pub most: u64,
    /// Requests here now.
    pub outstanding: u64,
    /// Reads and writes that lay behind the one before them: the quality of the sorting.
    pub forward: u64,
    /// Lateness of answers against the model, ns: median; none if there were none.
    pub late_p50_ns: Option<u64>,
    /// 99 % of them were less late.
    pub late_p99_ns: Option<u64>,
    /// The latest.
    pub late_max_ns: Option<u64>,
    /// Blocks of 4 KiB that a power cut could take back.
    pub unsafe_blocks: u64,
    /// Accesses of the model to its medium for commands.
    pub media_accesses: u64,
    /// Accesses to empty its write cache.
    pub destages: u64,
    /// Reads answered from its cache.
    pub cache_hits: u64,
    /// Time its mechanism worked, ns.
    pub busy_ns: u64,
    /// There is power.
    pub power: bool,
    /// Faults in force.
    pub faults: Vec<Fault>,
    /// Result of the last power cut.
    pub losses: Option<Losses>,
    /// Its threads go before others (SCHED_FIFO).
    pub first: bool,
}

/// One end of a conversation.
#[derive(Debug)]
pub(super) struct Wire {
    write: UnixStream,
    read: BufReader<UnixStream>,
}

impl Wire {
    pub(super) fn new(stream: UnixStream) -> io::Result<Wire> {
        Ok(Wire { write: stream.try_clone()?, read: BufReader::new(stream) })
    }

    pub(super) fn stream(&self) -> &UnixStream {
        &self.write
    }

    pub(super) fn say<T: Serialize>(&mut self, what: &T) -> io::Result<()> {
        let mut line = serde_json::to_string(what)?;
        line.push('\n');
        self.write.write_all(line.as_bytes())
    }

    /// The next line; `None` after the last.
    pub(super) fn hear<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        hear(&mut self.read)
    }
}

/// The longest line that is read: our own are shorter.
const LINE: u64 = 1 << 20;

/// The next line of anything; `None` at the end.
pub(super) fn hear<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = String::new();
    if io::Read::take(from, LINE).read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&line)?))
}

impl Change {
    /// Reads a change as it is typed.
    ///
    /// # Errors
    /// The accepted forms.
    pub fn parse(key: &str, value: &str) -> Result<Change, String> {
        match key {
            "fault" => Fault::parse(value).map(Change::Fault),
            "power" => match value {
                "on" => Ok(Change::Power(true)),
                "off" => Ok(Change::Power(false)),
                _ => Err(format!("`power` takes on or off, not `{value}`")),
            },
            "depth" => match value.parse() {
                Ok(depth) if super::DEPTHS.contains(&depth) => Ok(Change::Depth(depth)),
                _ => Err(format!("`depth` takes a whole number of 4 to 128, not `{value}`")),
            },
            _ => queue::check(key, value).map(|()| Change::Queue(key.to_owned(), value.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let (a, b) = UnixStream::pair().expect("two ends");
        let (mut a, mut b) = (Wire::new(a).expect("a wire"), Wire::new(b).expect("a wire"));
        a.say(&Order::Mode(Mode::After(7))).expect("said");
        a.say(&Order::Fault(Fault::parse("stuck:for=1s").expect("a fault"))).expect("said");
        assert!(matches!(b.hear().expect("heard"), Some(Order::Mode(Mode::After(7)))));
        assert!(matches!(b.hear().expect("heard"), Some(Order::Fault(Some(Fault::Stuck { count: 1, .. })))));
        a.stream().shutdown(std::net::Shutdown::Write).expect("the end");
        assert!(b.hear::<Order>().expect("heard").is_none());
        b.stream().shutdown(std::net::Shutdown::Both).expect("the end");
        drop(b);
        assert!(a.say(&Order::Count).is_err() || a.hear::<Order>().is_ok_and(|said| said.is_none()));
        assert!(hear::<Order>(&mut &b"{}\n"[..]).is_err());
    }

    #[test]
    fn changes_are_read_as_they_are_typed() {
        assert_eq!(Change::parse("power", "off"), Ok(Change::Power(false)));
        assert_eq!(Change::parse("fault", "none"), Ok(Change::Fault(None)));
        assert_eq!(Change::parse("depth", "4"), Ok(Change::Depth(4)));
        let queue = Change::Queue("read_ahead_kb".into(), "512".into());
        assert_eq!(Change::parse("read_ahead_kb", "512"), Ok(queue));
        for (key, value) in [("power", "1"), ("depth", "3"), ("depth", "129"), ("colour", "red"), ("scheduler", "a b")]
        {
            assert!(Change::parse(key, value).is_err(), "{key}={value}");
        }
    }
}

//! Faults of a modelled disk: parsed from words, consulted for every command.
//!
//! ```text
//! slow:factor=8:for=10s[:after=2s]        commands take longer by the factor
//! stuck:for=5s[:count=1]                  the next commands end that much later
//! eio:from=1m:to=2m[:on=read|write|both]  commands that touch these bytes fail
//! none                                    all is well again
//! ```
//! They begin when they are set. Torn and lost writes belong to a power cut, see `store`.

use iowhy_stack::event::Dir;
use iowhy_stack::units::Nanos;

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Fault {
    /// Commands take longer for a while.
    Slow {
        /// The factor, in thousandths.
        factor_milli: u64,
        /// It begins this time after it was set, ns.
        after_ns: u64,
        /// Its duration; `None` for good.
        for_ns: Option<u64>,
    },
    /// The next commands end later.
    Stuck {
        /// The delay, ns.
        for_ns: u64,
        /// Number of commands.
        count: u64,
    },
    /// Commands that touch a range fail.
    Eio {
        /// First byte.
        from: u64,
        /// Behind the last byte.
        to: u64,
        /// Which commands.
        on: Only,
    },
}

/// Which commands.
#[derive(Copy, Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Only {
    Read,
    /// Writes.
    Write,
    /// Reads and writes.
    Both,
}

/// A length of time, `10s`, `250ms` or `40us`, in ns.
pub(super) fn time(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let number: u64 = text[..digits].parse().ok()?;
    let unit = match &text[digits..] {
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" | "" => 1_000_000_000,
        "m" => 60_000_000_000,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// A number of bytes, `4096`, `64k`, `4G` or `1T`; units are powers of 1024.
pub fn bytes(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let number: u64 = text[..digits].parse().ok()?;
    let shift = match text[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// The accepted forms, for a word that is not understood.
const FORMS: &str =
    "none, slow:factor=8:for=10s[:after=2s], stuck:for=5s[:count=1] or eio:from=1m:to=2m[:on=read|write]";

impl Fault {
    /// Reads a fault as it is typed; `None` for `none`.
    ///
    /// # Errors
    /// The accepted forms.
    pub fn parse(text: &str) -> Result<Option<Fault>, String> {
        let wrong = || format!("a fault is {FORMS}, not `{text}`");
        let mut parts = text.split(':');
        let kind = parts.next().unwrap_or_default();
        let mut given: Vec<(&str, &str)> = Vec::new();
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(wrong)?;
            if given.iter().any(|(known, _)| *known == key) {
                return Err(wrong());
            }
            given.push((key, value));
        }
        let mut take = |key: &str| {
            let at = given.iter().position(|(known, _)| *known == key)?;
            Some(given.swap_remove(at).1)
        };
        let read = |value: Option<&str>, how: fn(&str) -> Option<u64>| match value {
            None => Ok(None),
            Some(value) => how(value).map(Some).ok_or_else(wrong),
        };
        let fault = match kind {
            "none" => None,
            "slow" => {
                let factor: f64 = take("factor").and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
                if !(1.0..=1e6).contains(&factor) {
                    return Err(wrong());
                }
                let after_ns = read(take("after"), time)?.unwrap_or(0);
                let for_ns = read(take("for"), time)?;
                Some(Fault::Slow { factor_milli: (factor * 1000.0) as u64, after_ns, for_ns })
            }
            "stuck" => {
                let for_ns = read(take("for"), time)?.ok_or_else(wrong)?;
                let count = read(take("count"), |text| text.parse().ok())?.unwrap_or(1);
                Some(Fault::Stuck { for_ns, count })
            }
            "eio" => {
                let from = read(take("from"), bytes)?.unwrap_or(0);
                let to = read(take("to"), bytes)?.unwrap_or(u64::MAX);
                let on = match take("on") {
                    None | Some("both") => Only::Both,
                    Some("read") => Only::Read,
                    Some("write") => Only::Write,
                    Some(_) => return Err(wrong()),
                };
                if from >= to {
                    return Err(wrong());
                }
                Some(Fault::Eio { from, to, on })
            }
            _ => return Err(wrong()),
        };
        if given.is_empty() { Ok(fault) } else { Err(wrong()) }
    }
}

/// The faults that are in force, with the time each was set.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    list: Vec<(Nanos, Fault)>,
}

impl Faults {
    /// Sets one more, or takes all away.
    pub(super) fn set(&mut self, now: Nanos, fault: Option<Fault>) {
        match fault {
            Some(fault) => self.list.push((now, fault)),
            None => self.list.clear(),
        }
    }

    /// Those that are there.
    pub(super) fn list(&self) -> Vec<Fault> {
        self.list.iter().map(|(_, fault)| fault.clone()).collect()
    }

    /// Whether a command on these bytes fails.
    pub(super) fn fails(&self, dir: Dir, offset: u64, bytes: u64) -> bool {
        self.list.iter().any(|(_, fault)| match fault {
            Fault::Eio { from, to, on } => {
                let concerned =
                    matches!((on, dir), (Only::Both, _) | (Only::Read, Dir::Read) | (Only::Write, Dir::Write));
                concerned && offset < *to && offset.saturating_add(bytes) > *from
            }
            _ => false,
        })
    }

    /// Delay against the model's end of a command that took `service` and ends at `at`.
    pub(super) fn delay(&mut self, at: Nanos, service: Nanos) -> Nanos {
        let mut delay = 0u64;
        for (set, fault) in &mut self.list {
            match fault {
                Fault::Slow { factor_milli, after_ns, for_ns } => {
                    let begins = set.0.saturating_add(*after_ns);
                    let ends = for_ns.map_or(u64::MAX, |length| begins.saturating_add(length));
                    if (begins..ends).contains(&at.0) {
                        let more = u128::from(service.0) * u128::from(*factor_milli - 1000) / 1000;
                        delay = delay.saturating_add(u64::try_from(more).unwrap_or(u64::MAX));
                    }
                }
                Fault::Stuck { for_ns, count } if *count > 0 => {
                    *count -= 1;
                    delay = delay.saturating_add(*for_ns);
                }
                Fault::Stuck { .. } | Fault::Eio { .. } => {}
            }
        }
        self.list.retain(|(_, fault)| !matches!(fault, Fault::Stuck { count: 0, .. }));
        Nanos(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_as_they_are_typed() {
        let slow = |factor_milli, after_ns, for_ns| Ok(Some(Fault::Slow { factor_milli, after_ns, for_ns }));
        assert_eq!(Fault::parse("none"), Ok(None));
        assert_eq!(Fault::parse("slow:factor=8"), slow(8000, 0, None));
        assert_eq!(Fault::parse("slow:for=250ms:factor=1.5:after=2s"), slow(1500, 2_000_000_000, Some(250_000_000)));
        assert_eq!(Fault::parse("stuck:for=40us"), Ok(Some(Fault::Stuck { for_ns: 40_000, count: 1 })));
        let eio = Fault::Eio { from: 1 << 20, to: 2 << 30, on: Only::Read };
        assert_eq!(Fault::parse("eio:from=1M:to=2g:on=read"), Ok(Some(eio)));
        for wrong in [
            "",
            "slow",
            "slow:factor=0.5",
            "slow:factor=x",
            "stuck",
            "stuck:for=5h",
            "stuck:for=1s:for=2s",
            "eio:from=2m:to=1m",
            "eio:on=flush",
            "none:x=1",
            "slow:factor=2:colour=red",
            "stuck:for",
            "stuck:for=99999999999999m",
        ] {
            let message = Fault::parse(wrong).expect_err(wrong);
            assert!(message.starts_with("a fault is none, slow:"), "{message}");
        }
    }

    #[test]
    fn each_fault_strikes_what_it_says_and_when() {
        let mut faults = Faults::default();
        let ms = Nanos::from_ms;
        faults.set(ms(100), Fault::parse("slow:factor=3:after=10ms:for=20ms").expect("a fault"));
        let delays = [109, 110, 129, 130].map(|at| faults.delay(ms(at), ms(5)));
        assert_eq!(delays, [ms(0), ms(10), ms(10), ms(0)]);
        faults.set(ms(100), Fault::parse("stuck:for=7ms:count=2").expect("a fault"));
        assert_eq!([(); 3].map(|()| faults.delay(ms(0), ms(5))), [ms(7), ms(7), ms(0)]);
        assert_eq!(faults.list().len(), 1, "what has struck is gone");
        faults.set(ms(0), Fault::parse("eio:from=4k:to=8k:on=write").expect("a fault"));
        let fails = |dir, offset, bytes| faults.fails(dir, offset, bytes);
        assert!(fails(Dir::Write, 0, 4097) && fails(Dir::Write, 8191, 1) && fails(Dir::Write, 0, 1 << 40));
        assert!(!fails(Dir::Write, 0, 4096) && !fails(Dir::Write, 8192, 1) && !fails(Dir::Read, 4096, 1));
        faults.set(ms(0), None);
        assert_eq!(faults.list(), []);
    }
}

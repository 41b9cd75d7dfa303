//! Triggers of a flight recorder, as they are typed.
//!
//! ```text
//! p99>20ms          a quantile of the times of requests (p50 to p99.99), of the last second, or of as many requests as
//!                   the quantile needs where there are fewer
//! psi io some>30%   pressure (PSI) of io, cpu or memory, some or full, in two seconds; the kernel itself watches it
//! stall 1s          a disk with requests of which none completes for this time, or a named task that does not wake up
//! signal            SIGUSR1, which is always obeyed
//! ```

use std::fmt;
use std::time::Duration;

/// A trigger.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum When {
    /// A quantile of the times of requests exceeds a limit.
    Tail {
        /// 0 to 1.
        quantile: f64,
        limit: Duration,
    },
    /// Tasks wait for this part of two seconds, percent.
    Pressure { of: &'static str, who: &'static str, pct: f64 },
    /// Nothing goes on for this time.
    Stall(Duration),
    /// SIGUSR1.
    Signal,
}

/// The forms, for messages.
const FORMS: &str = "p99>20ms, psi io some>30%, stall 1s, or signal";

/// A time, `5s`, `500ms`, `2m`; seconds without a unit.
///
/// # Errors
/// The mistake, for people.
pub fn duration(word: &str) -> Result<Duration, String> {
    let unit = word.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(word.len());
    let (number, unit) = word.split_at(unit);
    let seconds = match unit {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("a time is a number with ms, s, m or h behind it".to_owned()),
    };
    let number: f64 = number.parse().map_err(|_| "a time begins with a number".to_owned())?;
    let time = Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())?;
    if time.is_zero() { Err("it must be longer than nothing".to_owned()) } else { Ok(time) }
}

/// An amount of memory, `64M`, `1G`, bytes: a whole number of KiB, MiB or GiB; MiB without a unit.
///
/// # Errors
/// The mistake, for people.
pub fn memory(word: &str) -> Result<u64, String> {
    let lower = word.to_ascii_lowercase();
    let word = lower.trim_end_matches('b').trim_end_matches('i');
    let (number, shift) = match word.as_bytes().last() {
        Some(b'k') => (&word[..word.len() - 1], 10),
        Some(b'm') => (&word[..word.len() - 1], 20),
        Some(b'g') => (&word[..word.len() - 1], 30),
        _ => (word, 20),
    };
    let number: u64 = number.parse().map_err(|_| "an amount of memory is a number with K, M or G behind it")?;
    let bytes = number.checked_shl(shift).filter(|bytes| bytes >> shift == number);
    bytes.filter(|bytes| (1 << 20..=1 << 36).contains(bytes)).ok_or_else(|| "1M to 64G".to_owned())
}

/// The time as people type it.
fn typed(time: Duration) -> String {
    let ns = time.as_nanos();
    match ns {
        _ if ns.is_multiple_of(1_000_000_000) => format!("{}s", ns / 1_000_000_000),
        _ if ns.is_multiple_of(1_000_000) => format!("{}ms", ns / 1_000_000),
        _ => format!("{}us", ns / 1000),
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            When::Tail { quantile, limit } => {
                write!(f, "p{}>{}", (quantile * 1e6).round() / 1e4, typed(*limit))
            }
            When::Pressure { of, who, pct } => write!(f, "psi {of} {who}>{pct}%"),
            When::Stall(time) => write!(f, "stall {}", typed(*time)),
            When::Signal => f.write_str("signal"),
        }
    }
}

impl When {
    /// Reads one.
    ///
    /// # Errors
    /// The mistake, for people.
    pub fn parse(text: &str) -> Result<When, String> {
        let spaced = text.replace('>', " > ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        match *words.as_slice() {
            ["signal"] => Ok(When::Signal),
            ["stall", time] => duration(time).map(When::Stall),
            ["stall"] => Err("a stall needs its length: stall 1s".to_owned()),
            ["psi", of, who, ">", pct] => {
                let find = |word: &str, known: [&'static str; 3]| known.into_iter().find(|known| *known == word);
                let of = find(of, ["io", "memory", "cpu"]).ok_or("pressure is of io, memory or cpu")?;
                let who = find(who, ["some", "full", ""]).ok_or("pressure is on some or full tasks")?;
                let pct: Option<f64> = pct.trim_end_matches('%').parse().ok();
                let pct = pct.filter(|pct| (0.1..100.0).contains(pct)).ok_or("pressure is 0.1% to 99.9%")?;
                Ok(When::Pressure { of, who, pct })
            }
            [quantile, ">", limit] if quantile.starts_with('p') && quantile != "psi" => {
                let pct: Option<f64> = quantile[1..].parse().ok();
                let pct = pct.filter(|pct| (50.0..=99.99).contains(pct)).ok_or("a quantile is p50 to p99.99")?;
                Ok(When::Tail { quantile: pct / 100.0, limit: duration(limit)? })
            }
            _ => Err(format!("a trigger is {FORMS}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triggers_are_read_as_they_are_typed() {
        let tail = |quantile, us| When::Tail { quantile, limit: Duration::from_micros(us) };
        for (text, expected, shown) in [
            ("p99>20ms", tail(0.99, 20_000), "p99>20ms"),
            ("p99.9 > 1500us", tail(99.9 / 100.0, 1500), "p99.9>1500us"),
            ("p50>2", tail(0.5, 2_000_000), "p50>2s"),
            ("psi io some>30%", When::Pressure { of: "io", who: "some", pct: 30.0 }, "psi io some>30%"),
            (" psi  memory full > 2.5", When::Pressure { of: "memory", who: "full", pct: 2.5 }, "psi memory full>2.5%"),
            ("stall 1s", When::Stall(Duration::from_secs(1)), "stall 1s"),
            ("stall 250ms", When::Stall(Duration::from_millis(250)), "stall 250ms"),
            ("signal", When::Signal, "signal"),
        ] {
            assert_eq!(When::parse(text), Ok(expected), "{text}");
            assert_eq!(expected.to_string(), shown);
        }
    }

    #[test]
    fn what_is_wrong_with_a_trigger_is_named() {
        for (text, mistake) in [
            ("", FORMS),
            ("p99", FORMS),
            ("p99<20ms", FORMS),
            ("latency>20ms", FORMS),
            ("psi>3", FORMS),
            ("p10>20ms", "p50 to p99.99"),
            ("p100>20ms", "p50 to p99.99"),
            ("pNaN>20ms", "p50 to p99.99"),
            ("p99>20 parsecs", FORMS),
            ("p99>20parsecs", "a time is"),
            ("p99>0ms", "longer than nothing"),
            ("psi net some>3%", "io, memory or cpu"),
            ("psi io any>3%", "some or full"),
            ("psi io some>0%", "0.1% to"),
            ("psi io some>100%", "0.1% to"),
            ("psi io some>NaN%", "0.1% to"),
            ("stall", "needs its length"),
            ("stall soon", "a time"),
            ("signal 9", FORMS),
        ] {
            let found = When::parse(text).expect_err(text);
            assert!(found.contains(mistake), "{text}: {found}");
        }
    }

    #[test]
    fn times_and_amounts_have_units() {
        let cases = [("5s", 5000), ("500ms", 500), ("2m", 120_000), ("1.5", 1500), ("1h", 3_600_000)];
        for (word, ms) in cases {
            assert_eq!(duration(word), Ok(Duration::from_millis(ms)), "{word}");
        }
        for word in ["", "s", "5 parsecs", "0", "-1", "1e99h", "1.2.3s"] {
            assert!(duration(word).is_err(), "{word}");
        }
        for (word, bytes) in [("64M", 64 << 20), ("64", 64 << 20), ("1gib", 1 << 30), ("2048KiB", 2 << 20)] {
            assert_eq!(memory(word), Ok(bytes), "{word}");
        }
        for word in ["", "M", "1.5M", "4K", "65G", "99999999999G", "64T", "-1M"] {
            assert!(memory(word).is_err(), "{word}");
        }
    }
}

//! How sure a finding is, in a word, and how often findings with that word were right.
//!
//! The rates are counts of first findings on planted causes: live ones with one and with three recordings a side
//! (`cargo xtask plant --live`, seeds 43 and 41), simulated ones with five runs (`cargo xtask plant`). Those of one
//! side are of `--one-sided` with seed 33, and of 41 kinds and 26 healthy programs that the authors of the rules had
//! not seen; a finding about a healthy program counts as wrong. A word that was never used on live recordings has no
//! rate there.

/// A word, its lowest confidence, and how often it was used and right: live, simulated.
#[derive(Copy, Clone, Debug)]
pub struct Word {
    /// As it is printed.
    pub word: &'static str,
    /// Confidence from which on it is used.
    pub from: f64,
    /// First findings on live recordings that had it, and those of them that were right.
    pub live: (u32, u32),
    /// The same of simulated runs.
    pub simulated: (u32, u32),
    /// The same about live recordings of one side alone.
    pub alone: (u32, u32),
}

/// The words, the surest first.
pub const WORDS: [Word; 3] = [
    Word { word: "almost certain", from: 0.9, live: (40, 37), simulated: (145, 144), alone: (8, 8) },
    Word { word: "likely", from: 0.75, live: (62, 54), simulated: (12, 11), alone: (73, 62) },
    Word { word: "possible", from: 0.0, live: (0, 0), simulated: (3, 3), alone: (0, 0) },
];

/// The word for a confidence, 0 to 1.
pub fn of(confidence: f64) -> &'static Word {
    WORDS.iter().find(|word| confidence >= word.from).unwrap_or(&WORDS[WORDS.len() - 1])
}

impl Word {
    /// How often a first finding with this word was right, 0 to 1; nothing if it was hardly ever used.
    pub fn rate(&self, live: bool) -> Option<f64> {
        rate(if live { self.live } else { self.simulated })
    }

    /// The same of findings about one side alone.
    pub fn rate_alone(&self) -> Option<f64> {
        rate(self.alone)
    }
}

fn rate((said, right): (u32, u32)) -> Option<f64> {
    const LEAST: u32 = 5;
    (said >= LEAST).then(|| f64::from(right) / f64::from(said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_begin_where_they_say() {
        for (confidence, word) in [
            (1.0, "almost certain"),
            (0.9, "almost certain"),
            (0.8999, "likely"),
            (0.75, "likely"),
            (0.7499, "possible"),
            (0.0, "possible"),
        ] {
            assert_eq!(of(confidence).word, word, "{confidence}");
        }
        assert!(
            WORDS.iter().all(|word| [word.live, word.simulated, word.alone].iter().all(|(said, right)| right <= said))
        );
    }
}

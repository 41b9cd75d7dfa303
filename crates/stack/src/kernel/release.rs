//! Releases of kernels (`uname -r`), and the kernel of the table that is the model of each, or the nearest to it.
//!
//! A stable series is not one behaviour: updates change decisions. A [`Kernel`] says which [`Levels`] of a series it is
//! the model of, and for which series that nobody has read it stands in ([`Near`]).
//!
//! ```text
//! its level is known and a kernel has it      that kernel, exactly
//! all levels of its series decide alike       that kernel, exactly
//! its level is hidden (`5.15.0-91-generic`)   the kernel of the newest levels; the others are named
//! a kernel stands in for its series           that kernel, with the known differences
//! none does                                   the kernel with the smallest distance of versions
//! ```

use super::{KERNELS, Kernel};

/// Levels of a stable series, both ends included.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Levels {
    /// Major and minor number.
    pub series: (u32, u32),
    /// The first.
    pub from: u32,
    /// The last; all ones for those still to come.
    pub to: u32,
}

/// Levels `from` to `to` of a series.
pub const fn levels(major: u32, minor: u32, from: u32, to: u32) -> Levels {
    Levels { series: (major, minor), from, to }
}

/// A whole series.
pub const fn series(major: u32, minor: u32) -> Levels {
    levels(major, minor, 0, u32::MAX)
}

/// Series without a model of their own.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Near {
    /// The first.
    pub from: (u32, u32),
    /// The last.
    pub to: (u32, u32),
    /// The known differences.
    pub differs: &'static str,
}

/// A release in numbers.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// Major and minor number; 2.6.x has its third number as the level.
    pub series: (u32, u32),
    /// Its level; none where the name has none, or where a distribution writes 0 for any.
    pub level: Option<u32>,
}

/// The model of a release.
#[derive(Clone, Debug)]
pub struct Nearest {
    pub kernel: &'static Kernel,
    /// It is the model of this very release.
    pub exact: bool,
    /// Otherwise: the known differences.
    pub differs: String,
}

impl Release {
    /// Reads `6.1.55`, `v6.1`, `linux-6.1.55`, `5.15.0-91-generic`, `6.1.0-18-amd64`.
    pub fn parse(name: &str) -> Option<Release> {
        let name = name.strip_prefix("linux-").or(name.strip_prefix('v')).unwrap_or(name);
        let (version, rest) = name.split_at(name.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(name.len()));
        let mut numbers = version.trim_end_matches('.').split('.').map(str::parse::<u32>);
        let mut number = || numbers.next().map(Result::ok);
        let (major, minor, level) = (number()??, number()??, number());
        let is_build = rest.starts_with('-') && !rest.starts_with("-rc");
        let level = level.map(|level| level.unwrap_or_default()).filter(|level| *level > 0 || !is_build);
        Some(Release { series: (major, minor), level })
    }

    /// The release whose level the build tells: `Ubuntu 5.15.0-91.101-generic 5.15.131` of `/proc/version_signature`,
    /// `#1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 (2024-02-01)` of `uname -v`. As it was if the build tells none of this
    /// series.
    pub fn with_build(self, build: &str) -> Release {
        let told = build.split_whitespace().filter_map(Release::parse);
        let mut told = told.filter(|told| told.series == self.series).filter_map(|told| told.level);
        Release { level: self.level.or(told.next_back()), ..self }
    }

    /// Whether there is, or may soon be, a kernel of this series.
    pub fn exists(&self) -> bool {
        const LAST: [u32; 5] = [6, 19, 20, 19, 19];
        let (major, minor) = self.series;
        match LAST.get((major as usize).wrapping_sub(2)) {
            Some(last) => minor <= *last,
            None => major == 7,
        }
    }

    /// Whether a kernel is the model of some of its series, or stands in for it.
    pub fn is_covered(&self) -> bool {
        let near = |kernel: &Kernel| kernel.near.iter().any(|near| (near.from..=near.to).contains(&self.series));
        self.exists() && KERNELS.iter().any(|kernel| kernel.levels_of(self.series).is_some() || near(kernel))
    }

    /// The kernel that is the model of this very release.
    pub fn exactly(&self) -> Option<&'static Kernel> {
        let mut of_series = KERNELS.iter().filter(|kernel| kernel.levels_of(self.series).is_some());
        match self.level {
            Some(level) => of_series.find(|kernel| {
                kernel.levels_of(self.series).is_some_and(|levels| (levels.from..=levels.to).contains(&level))
            }),
            None => of_series.next().filter(|_| of_series.next().is_none()),
        }
    }

    /// The nearest kernel.
    pub fn nearest(&self) -> Nearest {
        if let Some(kernel) = self.exactly() {
            return Nearest { kernel, exact: true, differs: String::new() };
        }
        let (major, minor) = self.series;
        let of_series: Vec<(&'static Kernel, Levels)> =
            KERNELS.iter().filter_map(|kernel| Some((kernel, kernel.levels_of(self.series)?))).collect();
        // Of a series with models: the newest if the level is hidden, else the nearest.
        let far = |levels: &Levels| match self.level {
            Some(level) => level.abs_diff(level.clamp(levels.from, levels.to)),
            None => u32::MAX - levels.to,
        };
        if let Some((kernel, levels)) = of_series.iter().min_by_key(|(_, levels)| far(levels)) {
            let others = of_series.iter().filter(|(other, _)| other.name != kernel.name);
            let others: Vec<String> = others
                .map(|(other, levels)| format!("{major}.{minor}.{} to .{} are {}", levels.from, levels.to, other.name))
                .collect();
            let differs = match self.level {
                Some(_) => "no model has its level".to_owned(),
                None => format!("its level is hidden and taken for {} or later; {}", levels.from, others.join(", ")),
            };
            return Nearest { kernel, exact: false, differs };
        }
        let near = KERNELS.iter().find_map(|kernel| {
            let near = kernel.near.iter().find(|near| (near.from..=near.to).contains(&self.series))?;
            Some(Nearest { kernel, exact: false, differs: near.differs.to_owned() })
        });
        near.unwrap_or_else(|| {
            let distance = |kernel: &&Kernel| {
                let of = Release::parse(kernel.name).unwrap_or(*self);
                let level = self.level.unwrap_or_default().abs_diff(of.level.unwrap_or_default());
                (of.series.0.abs_diff(major), of.series.1.abs_diff(minor), level)
            };
            let kernel = KERNELS.iter().min_by_key(distance).unwrap_or(&KERNELS[KERNELS.len() - 1]);
            Nearest { kernel, exact: false, differs: "its source was not read".to_owned() }
        })
    }
}

impl std::fmt::Display for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (major, minor) = self.series;
        write!(f, "{major}.{minor}")?;
        self.level.map_or(Ok(()), |level| write!(f, ".{level}"))
    }
}

impl Kernel {
    /// Its levels of a series, if it is the model of some.
    fn levels_of(&self, series: (u32, u32)) -> Option<Levels> {
        self.levels.iter().find(|levels| levels.series == series).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(name: &str) -> Release {
        Release::parse(name).unwrap_or_else(|| panic!("{name} is a release"))
    }

    #[test]
    fn releases_are_read_as_people_and_systems_write_them() {
        for (name, series, level) in [
            ("6.1.55", (6, 1), Some(55)),
            ("linux-6.6", (6, 6), None),
            ("v5.15.0", (5, 15), Some(0)),
            ("5.15.0-91-generic", (5, 15), None),
            ("6.1.0-18-amd64", (6, 1), None),
            ("6.12.9-amd64", (6, 12), Some(9)),
            ("6.14.0-rc3", (6, 14), Some(0)),
            ("6.18.44+", (6, 18), Some(44)),
            ("2.6.32-573.el6.x86_64", (2, 6), Some(32)),
        ] {
            assert_eq!(release(name), Release { series, level }, "{name}");
        }
        for name in ["", "6", "next", "linux-", "6.x", ".1.2", "4294967296.1"] {
            assert_eq!(Release::parse(name), None, "{name}");
        }
    }

    #[test]
    fn a_build_tells_the_level_that_a_distribution_hides() {
        for (name, build, level) in [
            ("5.15.0-91-generic", "Ubuntu 5.15.0-91.101-generic 5.15.131", Some(131)),
            ("6.1.0-18-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 (2024-02-01)", Some(76)),
            ("6.1.0-18-amd64", "#1 SMP Sat Jul 4 12:00:00 UTC 2026", None),
            ("6.1.55", "#1 SMP Debian 6.1.76-1", Some(55)),
        ] {
            assert_eq!(release(name).with_build(build).level, level, "{name} {build}");
        }
    }

    #[test]
    fn each_release_has_a_model_or_the_nearest_with_its_differences() {
        for (name, kernel, exact) in [
            ("5.4.273", "linux-5.4", true),
            ("5.15.0", "linux-5.15.85", true),
            ("5.15.94", "linux-5.15.85", true),
            ("5.15.95", "linux-5.15", true),
            ("5.15.0-91-generic", "linux-5.15", false),
            ("6.1.12", "linux-6.1.12", true),
            ("6.1.13", "linux-6.1.123", true),
            ("6.1.192", "linux-6.1", true),
            ("6.6.57", "linux-6.6.57", true),
            ("6.6.65", "linux-6.6.69", true),
            ("6.6.87", "linux-6.6", true),
            ("6.8.0-45-generic", "linux-6.8", true),
            ("6.11.11", "linux-6.11", true),
            ("6.12.9", "linux-6.12.43", true),
            ("6.12.117", "linux-6.12", true),
            ("6.5.13", "linux-6.1.123", false),
            ("6.7.2", "linux-6.8", false),
            ("6.10.14", "linux-6.10", false),
            ("5.14.0-427.el9.x86_64", "linux-5.15.85", false),
            ("7.2.0", "linux-7.2", true),
            ("3.10.0-1160.el7.x86_64", "linux-3.3", false),
            ("2.6.32-573.el6", "linux-2.6.38", false),
        ] {
            let nearest = release(name).nearest();
            assert_eq!((nearest.kernel.name, nearest.exact), (kernel, exact), "{name}: {}", nearest.differs);
            assert_eq!(nearest.differs.is_empty(), exact, "{name}: {}", nearest.differs);
        }
        let hidden = release("6.1.0-18-amd64").nearest();
        assert!(hidden.differs.contains("6.1.13 to .123 are linux-6.1.123"), "{}", hidden.differs);
    }

    #[test]
    fn no_two_kernels_claim_one_level_and_no_level_of_a_series_is_left_out() {
        let all = || KERNELS.iter().flat_map(|kernel| kernel.levels.iter().map(move |levels| (kernel.name, levels)));
        for (name, levels) in all() {
            let others = all().filter(|(other, of)| *other != name && of.series == levels.series);
            for (other, of) in others {
                assert!(of.to < levels.from || levels.to < of.from, "{name} and {other}");
            }
            let follows = levels.from == 0
                || all().any(|(_, of)| of.series == levels.series && of.to.wrapping_add(1) == levels.from);
            assert!(follows || levels.series == (2, 6), "{name}: nothing before {}", levels.from);
        }
        for kernel in KERNELS {
            for near in kernel.near {
                let modelled = all().any(|(_, levels)| (near.from..=near.to).contains(&levels.series));
                assert!(!modelled && !near.differs.is_empty(), "{}: {near:?}", kernel.name);
            }
        }
    }
}

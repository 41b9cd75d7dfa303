//! Jobs from the sections of a file: options applied in order, checked against one another, given their types.

use std::collections::{BTreeMap, BTreeSet};

use crate::World;
use crate::lex::{RawOption, RawSection};
use crate::options::{self, Engine, Kind, Model, Opt, Value};
use crate::value::{Amount, Distribution, Fault, Mode, PerDirection, Service, Share};
use iowhy_text::diagnose::{Problem, Problems, Severity};

use super::{
    Advice, Blocks, FioJob, LogWindow, Logs, Opening, Ours, Rate, Replay, Reporting, Setting, SyncMode, Think,
};

/// The options that hold for a job so far.
#[derive(Clone, Default)]
struct Settings {
    values: BTreeMap<&'static str, (Value, RawOption)>,
    written: Vec<Setting>,
}

/// The jobs of these sections, and the options of global sections. Mistakes go to `problems`.
pub(crate) fn build(
    sections: &[RawSection],
    world: &World<'_>,
    problems: &mut Problems,
) -> (Vec<FioJob>, Vec<Setting>) {
    let mut builder = Builder { world, problems, warned: BTreeSet::new() };
    let mut globals = Settings::default();
    let mut jobs: Vec<FioJob> = Vec::new();
    let mut group = 0;
    for section in sections {
        if section.global {
            builder.apply(&mut globals, section);
            continue;
        }
        let mut settings = globals.clone();
        // As in fio, the name of a section comes before one that is for all.
        settings.values.remove("name");
        builder.apply(&mut settings, section);
        let mut job = builder.job(&settings, section, &jobs);
        job.stonewall |= section.barrier;
        if (job.stonewall || job.new_group) && !jobs.is_empty() {
            group += 1;
        }
        job.group = group;
        jobs.push(job);
    }
    (jobs, globals.written)
}

struct Builder<'a, 'w> {
    world: &'a World<'w>,
    problems: &'a mut Problems,
    /// Options whose note "not modelled" was given.
    warned: BTreeSet<&'static str>,
}

impl Builder<'_, '_> {
    fn apply(&mut self, settings: &mut Settings, section: &RawSection) {
        let mut order: Vec<(usize, &RawOption)> = section.options.iter().enumerate().collect();
        // The meaning of k must be known before any size is read.
        order.sort_by_key(|(_, raw)| raw.name != "kb_base");
        let mut written: Vec<(usize, Setting)> = Vec::new();
        for (index, raw) in order {
            if let Some(option) = self.option(settings, raw, section.global) {
                written.push((index, option));
            }
        }
        written.sort_by_key(|(index, _)| *index);
        settings.written.extend(written.into_iter().map(|(_, option)| option));
    }

    fn option(&mut self, settings: &mut Settings, raw: &RawOption, global: bool) -> Option<Setting> {
        let Some(option) = options::find(&raw.name) else {
            let problem = if raw.name.is_empty() {
                Problem::error("the name of an option is missing").help("name=value")
            } else {
                Problem::error(format!("unknown option `{}`", raw.name))
                    .near(&raw.name, options::names().filter(|name| options::similar(&raw.name, name)))
            };
            let problem = if problem.nearest.is_empty() && problem.help.is_none() {
                problem.help("`iowhy fio --cmdhelp` lists the options")
            } else {
                problem
            };
            let at = if raw.name.is_empty() { (raw.name_at.0, raw.value_at.1) } else { raw.name_at };
            self.problems.push(raw.line.problem(problem, at));
            return None;
        };
        let (text, expanded) = match &raw.value {
            Some(value) if raw.expand => self.expand(value, option, raw)?,
            Some(value) => (value.clone(), false),
            None if option.kind.alone() => (String::new(), false),
            None => {
                let help = format!("{}{}", raw.name, option.kind.shown());
                let problem = Problem::error(format!("option `{}` needs a value", raw.name)).help(help);
                self.problems.push(raw.line.problem(problem, raw.name_at));
                return None;
            }
        };
        let kb_base = match settings.values.get("kb_base") {
            Some((Value::Word("1000"), _)) => 1000,
            _ => 1024,
        };
        let spoken = if raw.value.is_none() && option.kind == Kind::Flag { "1" } else { text.as_str() };
        let value = match option.kind.parse(spoken, kb_base) {
            Ok(value) => value,
            Err(fault) => {
                self.fault(raw, fault, expanded, &text);
                return None;
            }
        };
        self.notices(option, raw, &value, kb_base);
        let (key, value) = match (option.name, value) {
            ("buffered", Value::Switch(on)) => ("direct", Value::Switch(!on)),
            ("rwmixwrite", Value::Int(percent)) => ("rwmixread", Value::Int(100 - percent)),
            (name, value) => (name, value),
        };
        let value = match settings.values.get(key) {
            Some((below, _)) => value.over(below),
            None => value,
        };
        settings.values.insert(key, (value, raw.clone()));
        let place = raw.line.place(raw.name_at.0);
        Some(Setting { option, name: raw.name.clone(), value: text, place, global })
    }

    /// The value with `${NAME}` and `$pagesize`, `$mb_memory`, `$ncpus` replaced, and whether anything was.
    fn expand(&mut self, value: &str, option: &'static Opt, raw: &RawOption) -> Option<(String, bool)> {
        let mut text = String::new();
        let mut rest = value;
        while let Some(start) = rest.find("${") {
            let Some(end) = rest[start..].find('}') else { break };
            text.push_str(&rest[..start]);
            let name = &rest[start + 2..start + end];
            text.push_str(&(self.world.variable)(name).unwrap_or_default());
            rest = &rest[start + end + 1..];
        }
        text.push_str(rest);
        let mut computed = text.clone();
        let keywords =
            [("$pagesize", self.world.page_bytes), ("$mb_memory", self.world.memory_mib), ("$ncpus", self.world.cpus)];
        for (keyword, number) in keywords {
            computed = computed.replace(keyword, &number.to_string());
        }
        if computed == text {
            let changed = text != value;
            return Some((text, changed));
        }
        match crate::expr::evaluate(&computed, &|_| None) {
            Ok(worth) => Some((worth.value.to_string(), true)),
            // A path with a number in it is not an expression.
            Err(_) if option.kind.is_text() => Some((computed, true)),
            Err(failure) => {
                let problem = Problem::error(format!(
                    "option `{}`: `{computed}` cannot be computed: {}",
                    raw.name, failure.message
                ))
                .help("numbers and + - * / % ^ with parentheses, without units");
                self.problems.push(raw.line.problem(problem, raw.value_at));
                None
            }
        }
    }

    fn fault(&mut self, raw: &RawOption, fault: Fault, expanded: bool, text: &str) {
        let mut message = format!("option `{}`: {}", raw.name, fault.message);
        if expanded {
            message.push_str(&format!(" (the value became `{text}`)"));
        }
        let at = match fault.part {
            Some((start, end)) if !expanded => (raw.value_at.0 + start, raw.value_at.0 + end),
            _ if raw.value.as_deref().is_none_or(str::is_empty) => (raw.name_at.0, raw.value_at.1),
            _ => raw.value_at,
        };
        let mut problem = Problem::error(message);
        problem.nearest = fault.nearest;
        problem.help = fault.help;
        self.problems.push(raw.line.problem(problem, at));
    }

    /// Notes on an option that is right.
    fn notices(&mut self, option: &'static Opt, raw: &RawOption, value: &Value, kb_base: u64) {
        let (done, why) = match option.model {
            _ if self.world.live => ("carried out", crate::carried_out::not_carried_out(option.name)),
            Model::Missing(why) => ("modelled", Some(why)),
            Model::Modelled | Model::Harmless(_) => ("modelled", None),
        };
        if let Some(why) = why
            && option.kind.parse(option.default, kb_base).as_ref() != Ok(value)
            && self.warned.insert(option.name)
        {
            let text = format!("option `{}` is accepted but not {done}: {why}", raw.name);
            let silent = self.world.live && crate::carried_out::changes_nothing(option.name);
            let problem = if silent { Problem::note(text) } else { Problem::warning(text) };
            self.problems.push(raw.line.problem(problem, raw.name_at));
        }
        let blank = raw.line.text.get(..raw.value_at.0).is_some_and(|before| before.ends_with(char::is_whitespace));
        let has_unit = raw.value.as_deref().is_some_and(|text| text.ends_with(|c: char| c.is_ascii_alphabetic()));
        let counts = matches!(option.kind, Kind::Int(..) | Kind::Ints(..) | Kind::Amount(_) | Kind::SizeRange);
        if blank && has_unit && counts {
            let problem = Problem::warning(format!("option `{}`: fio itself loses the unit behind a blank", raw.name))
                .help(format!("{}={}", raw.name, raw.value.as_deref().unwrap_or_default()));
            self.problems.push(raw.line.problem(problem, raw.value_at));
        }
    }

    fn job(&mut self, settings: &Settings, section: &RawSection, before: &[FioJob]) -> FioJob {
        let mut reader = Reader { settings, section, problems: self.problems };
        reader.job(before)
    }
}

/// The value of an option if it is of this kind; else the default, if there is one.
macro_rules! value {
    ($reader:expr, $name:literal, $kind:ident) => {
        match $reader.value($name) {
            Some(Value::$kind(value)) => Some(value),
            _ => None,
        }
    };
    ($reader:expr, $name:literal, $kind:ident, $default:expr) => {
        value!($reader, $name, $kind).unwrap_or($default)
    };
}

/// Reads typed values out of settings; defaults come from the table.
struct Reader<'a> {
    settings: &'a Settings,
    section: &'a RawSection,
    problems: &'a mut Problems,
}

impl Reader<'_> {
    /// The value of an option: given, or the default of the table.
    ///
    /// # Panics
    /// If the table has no such option: names are written out here, and every job reads them all.
    fn value(&self, name: &str) -> Option<Value> {
        let Some(option) = options::find(name) else { unreachable!("`{name}` is in the table of options") };
        if let Some((value, _)) = self.settings.values.get(name) {
            return Some(value.clone());
        }
        // An option has a default exactly if its table line gives one.
        if option.default.is_empty() { None } else { option.kind.parse(option.default, 1024).ok() }
    }

    /// The same as `take` has it out of the type that the table gives the option.
    ///
    /// # Panics
    /// If that is another type.
    fn typed<T>(&self, name: &str, take: fn(Value) -> Option<T>) -> Option<T> {
        let taken = |value| take(value).unwrap_or_else(|| unreachable!("`{name}` has another type"));
        self.value(name).map(taken)
    }

    fn given(&self, name: &str) -> bool {
        self.settings.values.contains_key(name)
    }

    fn switch(&self, name: &str) -> bool {
        self.typed(name, |value| if let Value::Switch(on) = value { Some(on) } else { None }).unwrap_or(false)
    }

    fn int(&self, name: &str) -> i64 {
        self.typed(name, |value| if let Value::Int(value) = value { Some(value) } else { None }).unwrap_or(0)
    }

    fn count(&self, name: &str) -> u64 {
        self.int(name).unsigned_abs()
    }

    fn small(&self, name: &str) -> u32 {
        u32::try_from(self.int(name)).unwrap_or(u32::MAX)
    }

    fn micros(&self, name: &str) -> u64 {
        self.typed(name, |value| if let Value::Micros(value) = value { Some(value) } else { None }).unwrap_or(0)
    }

    fn word(&self, name: &str) -> &'static str {
        self.typed(name, |value| if let Value::Word(word) = value { Some(word) } else { None }).unwrap_or("")
    }

    fn text(&self, name: &str) -> Option<String> {
        self.typed(name, |value| if let Value::Text(text) = value { Some(text) } else { None })
    }

    fn amount(&self, name: &str) -> Option<Amount> {
        self.typed(name, |value| if let Value::Amount(amount) = value { Some(amount) } else { None })
    }

    fn ints(&self, name: &str, default: u64) -> PerDirection<u64> {
        let given = self.typed(name, |value| if let Value::Ints(triple) = value { Some(triple) } else { None });
        given.unwrap_or_default().map(|value| value.map_or(default, i64::unsigned_abs))
    }

    /// Reports something about an option, or about the section if the option was not given.
    fn report(&mut self, name: &str, problem: Problem) {
        let problem = match self.settings.values.get(name) {
            Some((_, raw)) => raw.line.problem(problem, (raw.name_at.0, raw.value_at.1.max(raw.name_at.1))),
            None => {
                let text = &self.section.line.text;
                let start = text.len() - text.trim_start().len();
                self.section.line.problem(problem, (start, text.trim_end().len().max(start)))
            }
        };
        // A mistake of a global section would be found again in every job.
        if !self.problems.list.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn blocks(&self) -> PerDirection<Blocks> {
        let sizes = self.ints("bs", 4096);
        let ranges = self.typed("bsrange", |value| if let Value::Ranges(ranges) = value { Some(ranges) } else { None });
        let splits = self.typed("bssplit", |value| if let Value::Split(splits) = value { Some(splits) } else { None });
        let (ranges, splits) = (ranges.unwrap_or_default(), splits.unwrap_or_default());
        let one = |size: u64, range: Option<(u64, u64)>, split: Option<Vec<Share>>| match (split, range) {
            (Some(split), _) => {
                let sizes = || split.iter().map(|share| share.bytes);
                Blocks { min: sizes().min().unwrap_or(size), max: sizes().max().unwrap_or(size), split }
            }
            (None, Some((min, max))) => Blocks { min, max, split: Vec::new() },
            (None, None) => Blocks { min: size, max: size, split: Vec::new() },
        };
        PerDirection {
            read: one(sizes.read, ranges.read, splits.read),
            write: one(sizes.write, ranges.write, splits.write),
            trim: one(sizes.trim, ranges.trim, splits.trim),
        }
    }

    fn job(&mut self, before: &[FioJob]) -> FioJob {
        let engine = value!(self, "ioengine", Engine, Engine::Psync);
        let mode = value!(
            self,
            "rw",
            Mode,
            Mode { read: true, write: false, trim: false, random: false, suffix: crate::value::ModeSuffix::None }
        );
        let name = self.text("name").unwrap_or_else(|| self.section.name.clone());
        let blocks = self.blocks();
        let align = self.align(&blocks);
        let filenames = names(self.text("filename"));
        let (nr_files, open_files) = self.nr_files(filenames.len());
        let distribution = value!(self, "random_distribution", Distribution, Distribution::Uniform);
        let service = value!(
            self,
            "file_service_type",
            Service,
            Service { kind: crate::value::ServiceKind::RoundRobin, every: 1 }
        );
        let asked_depth = self.small("iodepth").max(1);
        let alone = engine.one_at_a_time() && self.word("io_submit_mode") == "inline";
        let iodepth = if alone { 1 } else { asked_depth };
        // As fio: zero, or more than the depth, becomes the depth.
        let within = |value: u32| if value == 0 || value > iodepth { iodepth } else { value };
        let batch_complete_min = self.small("iodepth_batch_complete_min").min(iodepth);
        let percent = |value: u64| u32::try_from(value).unwrap_or(100);
        let thread = self.switch("thread");
        let pre_read = self.switch("pre_read");
        let runtime_us = self.micros("runtime");
        let job = FioJob {
            section: self.section.name.clone(),
            place: self.section.line.place(0),
            options: self.settings.written.clone(),
            group: 0,
            description: self.text("description"),
            wait_for: self.text("wait_for"),
            stonewall: self.switch("stonewall"),
            new_group: self.switch("new_group"),
            group_reporting: self.switch("group_reporting"),
            exitall: self.switch("exitall"),
            numjobs: self.small("numjobs"),
            thread,
            directories: names(self.text("directory")),
            filename_format: self.text("filename_format").unwrap_or_default(),
            nr_files,
            open_files,
            service,
            rwmix_read: self.small("rwmixread").min(100),
            align,
            unaligned: self.switch("bs_unaligned"),
            size: self.amount("size"),
            io_size: self.amount("io_size"),
            file_size: self.range("filesize"),
            offset: self.amount("offset").unwrap_or(Amount::Bytes(0)),
            offset_align: self.count("offset_align"),
            offset_increment: self.amount("offset_increment").unwrap_or(Amount::Bytes(0)),
            number_ios: self.count("number_ios"),
            loops: self.count("loops").max(1),
            random_map: !self.switch("norandommap") && distribution == Distribution::Uniform,
            rand_repeat: self.switch("randrepeat") || self.switch("allrandrepeat"),
            rand_seed: self.count("randseed"),
            distribution: PerDirection::all(distribution),
            percentage_random: self.ints("percentage_random", 100).map(percent),
            engine,
            iodepth,
            iodepth_batch: within(self.small("iodepth_batch")),
            batch_complete_min,
            batch_complete_max: self.small("iodepth_batch_complete_max").clamp(batch_complete_min, iodepth),
            iodepth_low: within(self.small("iodepth_low")),
            direct: self.switch("direct"),
            sync: self.sync(),
            fsync: self.count("fsync"),
            fdatasync: self.count("fdatasync"),
            end_fsync: self.switch("end_fsync"),
            fsync_on_close: self.switch("fsync_on_close"),
            advice: self.advice(),
            invalidate: self.switch("invalidate") && !pre_read,
            pre_read,
            overwrite: self.switch("overwrite"),
            ioscheduler: self.text("ioscheduler"),
            runtime_us,
            time_based: self.switch("time_based") && runtime_us > 0,
            ramp_us: self.micros("ramp_time"),
            start_delay_us: self.range("startdelay").unwrap_or((0, 0)),
            think: self.think(),
            rate: self.rate(),
            logs: self.logs(),
            write_iolog: self.text("write_iolog"),
            replay: self.replay(),
            reporting: self.reporting(),
            ours: self.ours(thread),
            name,
            filenames,
            mode,
            blocks,
        };
        self.check(&job, asked_depth, before);
        job
    }

    fn reporting(&self) -> Reporting {
        let gtod_reduce = self.switch("gtod_reduce");
        Reporting {
            clat: self.switch("clat_percentiles"),
            lat: self.switch("lat_percentiles"),
            slat: self.switch("slat_percentiles"),
            percentiles: value!(self, "percentile_list", Decimals, Vec::new()),
            digits: self.small("significant_figures"),
            disable_lat: self.switch("disable_lat") || gtod_reduce,
            disable_clat: self.switch("disable_clat") || gtod_reduce,
            disable_slat: self.switch("disable_slat") || gtod_reduce,
            disable_bandwidth: self.switch("disable_bw_measurement") || gtod_reduce,
            unified: match self.word("unified_rw_reporting") {
                "mixed" | "1" => "mixed",
                "both" | "2" => "both",
                _ => "none",
            },
            disk_util: self.switch("disk_util"),
            stats: self.switch("stats"),
            kb_base: if self.word("kb_base") == "1000" { 1000 } else { 1024 },
            unit_base: match self.word("unit_base") {
                "1" => 1,
                "8" => 8,
                _ => 0,
            },
        }
    }

    fn opening(&self) -> Opening {
        Opening {
            probe_delay_us: self.range("iowhy_probe_delay").unwrap_or((0, 0)),
            probe_pages: (self.small("iowhy_probe_first_pages"), self.small("iowhy_probe_last_pages")),
            settle_us: self.micros("iowhy_open_settle"),
            stagger_us: self.micros("iowhy_open_stagger"),
            open_us: self.micros("iowhy_open_time"),
            fix: self.word("iowhy_open_fix"),
            found_delay_us: self.micros("iowhy_found_delay"),
        }
    }

    fn ours(&self, thread: bool) -> Ours {
        Ours {
            startup_seeks: self.count("iowhy_startup_seeks"),
            tool_ns: self.given("iowhy_tool_ns").then(|| self.count("iowhy_tool_ns")),
            own_process: match self.word("iowhy_process") {
                "own" => true,
                "shared" => false,
                _ => !thread,
            },
            cache: value!(self, "iowhy_cache", Cache),
            mapping_cached: self.switch("iowhy_mapping_cached"),
            shared_descriptors: self.word("iowhy_descriptors") == "shared",
            blkid: self.word("iowhy_actor") == "blkid",
            opening: self.opening(),
        }
    }

    fn think(&self) -> Think {
        Think {
            time_us: self.micros("thinktime"),
            spin_us: self.micros("thinktime_spin").min(self.micros("thinktime")),
            blocks: self.count("thinktime_blocks").max(1),
            at_issue: self.word("thinktime_blocks_type") == "issue",
            io_time_us: self.micros("thinktime_iotime"),
        }
    }

    fn rate(&self) -> Rate {
        Rate {
            bytes: self.ints("rate", 0),
            iops: self.ints("rate_iops", 0),
            poisson: self.word("rate_process") == "poisson",
            ignore_think: self.switch("rate_ignore_thinktime"),
        }
    }

    fn align(&self, blocks: &PerDirection<Blocks>) -> PerDirection<u64> {
        let aligns = self.ints("ba", 0);
        let align = |given: u64, blocks: &Blocks| if given == 0 { blocks.min } else { given };
        PerDirection {
            read: align(aligns.read, &blocks.read),
            write: align(aligns.write, &blocks.write),
            trim: align(aligns.trim, &blocks.trim),
        }
    }

    fn sync(&self) -> SyncMode {
        match self.word("sync") {
            "sync" | "1" => SyncMode::Sync,
            "dsync" => SyncMode::Dsync,
            _ => SyncMode::None,
        }
    }

    fn advice(&self) -> Advice {
        match self.word("fadvise_hint") {
            "0" => Advice::None,
            "random" => Advice::Random,
            "sequential" => Advice::Sequential,
            "noreuse" => Advice::Noreuse,
            _ => Advice::Pattern,
        }
    }

    fn range(&self, name: &str) -> Option<(u64, u64)> {
        if let Some(Value::Range(min, max)) = self.value(name) { Some((min, max)) } else { None }
    }

    /// Files of the job, given the number of names, and those open at once.
    fn nr_files(&self, names: usize) -> (u32, u32) {
        let nr_files = match names {
            0 => self.small("nrfiles").max(1),
            count => u32::try_from(count).unwrap_or(u32::MAX),
        };
        let open = self.small("openfiles");
        (nr_files, if open == 0 { nr_files } else { open.min(nr_files) })
    }

    fn logs(&self) -> Logs {
        Logs {
            bandwidth: self.text("write_bw_log"),
            latency: self.text("write_lat_log"),
            iops: self.text("write_iops_log"),
            histogram: self.text("write_hist_log"),
            average_us: self.micros("log_avg_msec"),
            histogram_us: self.micros("log_hist_msec"),
            coarseness: self.small("log_hist_coarseness"),
            window: match self.word("log_max_value") {
                "1" | "max" => LogWindow::Max,
                "both" => LogWindow::Both,
                _ => LogWindow::Average,
            },
            offset: self.switch("log_offset"),
            issue_time: self.switch("log_issue_time"),
            per_job: self.switch("per_job_logs"),
            packed: self.switch("log_store_compressed"),
            bandwidth_sample_us: self.micros("bwavgtime"),
            iops_sample_us: self.micros("iopsavgtime"),
        }
    }

    fn replay(&self) -> Option<Replay> {
        Some(Replay {
            logs: names(Some(self.text("read_iolog")?)),
            no_stall: self.switch("replay_no_stall"),
            redirect: self.text("replay_redirect"),
            scale: self.count("replay_scale").max(1),
            align: self.count("replay_align"),
            time_scale: self.count("replay_time_scale").max(1),
            skip: value!(self, "replay_skip", Words, Vec::new()),
        })
    }

    /// Mistakes in combinations of options.
    fn check(&mut self, job: &FioJob, asked_depth: u32, before: &[FioJob]) {
        let used: Vec<&Blocks> =
            [(job.mode.read, &job.blocks.read), (job.mode.write, &job.blocks.write), (job.mode.trim, &job.blocks.trim)]
                .into_iter()
                .filter_map(|(used, blocks)| used.then_some(blocks))
                .collect();
        let smallest = used.iter().map(|blocks| blocks.min).min().unwrap_or(1);
        let foreign = job.engine.is_foreign();
        let has_size = foreign || job.size.is_some() || job.file_size.is_some() || job.replay.is_some();
        // Without a size a file must exist already; a device does, and so may a file that is named.
        if !has_size && job.filenames.is_empty() && !self.failed_at_section("size") {
            self.report("size", Problem::error(format!("job `{}` has no size", job.name)).help("size=1g"));
        }
        if let Some(Amount::Bytes(size)) = job.size
            && size < smallest
            && job.replay.is_none()
        {
            let problem = Problem::error(format!("a size of {size} is below the smallest block of {smallest} bytes"));
            self.report("size", problem);
        }
        let uneven = |blocks: &&Blocks| {
            let mut sizes = [blocks.min, blocks.max].into_iter().chain(blocks.split.iter().map(|share| share.bytes));
            sizes.any(|bytes| !bytes.is_multiple_of(512))
        };
        if job.direct && job.engine != Engine::Null && job.replay.is_none() && used.iter().any(uneven) {
            let name = ["bssplit", "bsrange", "bs"].into_iter().find(|name| self.given(name)).unwrap_or("direct");
            let problem = Problem::error("direct I/O needs blocks of whole sectors of 512 bytes");
            self.report(name, problem);
        }
        for (name, wins) in [("bs", "bssplit"), ("bs", "bsrange"), ("bsrange", "bssplit")] {
            if self.given(name) && self.given(wins) && job.blocks.read == job.blocks.write {
                let problem = Problem::note(format!("option `{name}` has no effect next to `{wins}`"));
                self.report(name, problem);
            }
        }
        let both = |bytes: u64, iops: u64| bytes > 0 && iops > 0;
        let (bytes, iops) = (job.rate.bytes, job.rate.iops);
        if both(bytes.read, iops.read) || both(bytes.write, iops.write) || both(bytes.trim, iops.trim) {
            self.report(
                "rate_iops",
                Problem::error("`rate` and `rate_iops` exclude each other").help("keep one of them"),
            );
        }
        for (name, rate) in [("rate_min", bytes), ("rate_iops_min", iops)] {
            let least = self.ints(name, 0);
            let above = |least: u64, rate: u64| rate > 0 && least > rate;
            if above(least.read, rate.read) || above(least.write, rate.write) || above(least.trim, rate.trim) {
                self.report(name, Problem::error(format!("`{name}` is above the rate")).help("a smaller one"));
            }
        }
        if self.switch("time_based") && job.runtime_us == 0 {
            let problem = Problem::warning("`time_based` has no effect without a runtime").help("runtime=30");
            self.report("time_based", problem);
        }
        if asked_depth > job.iodepth {
            let name = job.engine.name();
            let problem = Problem::note(format!("the engine `{name}` makes one I/O at a time: the depth is 1"))
                .help("ioengine=libaio or io_uring");
            self.report("iodepth", problem);
        }
        if let Some(wanted) = &job.wait_for
            && !before.iter().any(|known| known.name == *wanted)
        {
            let problem = Problem::error(format!("`wait_for` names `{wanted}`, which is not a job before this one"))
                .near(wanted, before.iter().map(|known| &known.name));
            self.report("wait_for", problem);
        }
        let engine = job.engine.name();
        let foreign: Vec<(&'static str, &'static [&'static str])> = (self.settings.values.keys())
            .filter_map(|name| options::find(name))
            .filter(|option| !foreign && !option.engines.is_empty() && !option.engines.contains(&engine))
            // As fio: those of the engine that a global section names are left behind by a job with another one.
            .filter(|option| self.is_own(option.name) || !self.is_own("ioengine"))
            .map(|option| (option.name, option.engines))
            .collect();
        for (name, engines) in foreign {
            let text = format!("`{name}` is an option of {}, not of {engine}", engines.join(" and "));
            self.report(name, Problem::error(text).help(format!("ioengine={}", engines[0])));
        }
    }

    /// Whether the job's own section has this option.
    fn is_own(&self, name: &str) -> bool {
        let it = |raw: &RawOption| options::find(&raw.name).is_some_and(|option| option.name == name);
        self.section.options.iter().any(it)
    }

    /// Whether this option was given but could not be read, which was reported already.
    fn failed_at_section(&self, name: &str) -> bool {
        // A global size that failed is not in the settings either; any error about it is enough.
        self.is_own(name)
            || self.problems.list.iter().any(|problem| {
                problem.severity == Severity::Error && problem.message.contains(&format!("option `{name}`"))
            })
    }
}

/// Names with a colon between; `\:` is a colon in a name.
fn names(text: Option<String>) -> Vec<String> {
    let Some(text) = text else { return Vec::new() };
    let mut names = vec![String::new()];
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' if characters.peek() == Some(&':') => {
                characters.next();
                if let Some(name) = names.last_mut() {
                    name.push(':');
                }
            }
            ':' => names.push(String::new()),
            _ => {
                if let Some(name) = names.last_mut() {
                    name.push(character);
                }
            }
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

//! Jobs of fio as jobs of ours: those for the simulator and, with [`map`], those for the running kernel.
//!
//! ```text
//! files      one for each name; jobs that name the same file share it; a name under /dev/ is the bare device
//! size       of a clone, shared by its files; a file is as large as the largest region of it that is used
//! clones     threads of one process (thread), or processes; each has descriptors of its own by default
//! groups     a stonewall, or wait_for, begins a group that runs when the groups before have ended
//! report     one line for each clone, or for each group with group_reporting
//! syncs      as fio makes them (`Stream::fio_syncs`); a region ends with its last whole block
//! calls      fio's own, number by number, where their number or kind depends on that (`walks`)
//! ```
//! Source: fio's manual, through docs/studies/compatibility.md. Known deviations: all files exist and have their blocks
//! before the run; in the simulator a wait_for waits for the whole group of the job that it names; a rate limits reads
//! and writes together; the warm-up (`ramp_time`) is the start of the run.
//! The table of options marks options that are not modelled, and the user gets one note.

mod walks;

use std::collections::{BTreeMap, BTreeSet};

use iowhy_stack::event::Op;
use iowhy_stack::job::{
    Advice, CacheStart, Engine, FileSpec, Job, OpenFix, Opening, Place, Probe, ThreadJob, ThreadSpec, Workload,
};
use iowhy_stack::kernel::Stack;
use iowhy_stack::rng::Rng;
use iowhy_stack::units::{Nanos, Sector};
use iowhy_stack::workload::{
    BlockSizes, Call, Checks, Directions, Distribution, MAX_ZONES, Mix, Numbers, Order, READ, Rate, Scripted, Service,
    Sizes, Span, Stream, SyncEvery, TRIM, Target, Think, Trims, Turns, WRITE, Walk, Zones, file_sizes,
};

use crate::iolog::{self, Replayed};
use crate::job::{self, Blocks, SyncMode};
use crate::options::{Engine as FioEngine, Value};
use crate::value::{self, Amount, CacheState, ModeSuffix, ServiceKind};
use crate::{FioFile, FioJob};
use iowhy_text::diagnose::{Problem, Problems};
use walks::{checks, walks};

/// Where the jobs are to run, as far as names of files and their sizes go.
pub trait Ground {
    /// Whether this names a block device.
    fn is_device(&self, name: &str) -> bool;

    /// Size of the existing file under this name; nothing if it is to be created.
    fn bytes(&self, name: &str) -> Option<u64>;

    /// Reads a file with a recorded list of calls.
    fn loader(&self) -> &dyn Fn(&str) -> Result<String, String>;

    /// It is a simulated stack.
    fn simulated(&self) -> bool {
        false
    }
}

/// Result of mapping the jobs of a file.
pub struct Mapped {
    /// The job; its files are in the order of `names`.
    pub job: Job,
    /// Names of the files.
    pub names: Vec<String>,
    /// Lines of the report.
    pub lines: Vec<String>,
    /// Seeds of threads that are the same in every run.
    pub seeds: Vec<Option<u64>>,
    /// Which job each thread is of, and which clone of it.
    pub origins: Vec<(usize, u32)>,
}

/// Maps the jobs of a file on this ground; nothing if there is an error.
pub fn map(file: &FioFile, ground: &dyn Ground, stack: Option<&mut Stack>, problems: &mut Problems) -> Option<Mapped> {
    let before = problems.list.len();
    let mut mapping = Mapping {
        ground,
        problems,
        warned: BTreeSet::new(),
        files: Files::default(),
        lines: Vec::new(),
        line_of_group: BTreeMap::new(),
        threads: Vec::new(),
        seeds: Vec::new(),
        origins: Vec::new(),
        replays: BTreeMap::new(),
        sizes: BTreeMap::new(),
    };
    let groups = mapping.groups(&file.jobs);
    mapping.lay_out(&file.jobs);
    if let Some(stack) = stack {
        file.jobs.iter().for_each(|job| mapping.scheduler(job, stack));
    }
    for (number, job) in (0..).zip(&file.jobs) {
        mapping.notices(job);
        if job.engine.is_foreign() {
            continue;
        }
        if ground.simulated() {
            mapping.not_simulated(job);
        }
        mapping.job(number, job, groups[number as usize]);
    }
    let warmup = mapping.warmup(&file.jobs, &groups);
    let opening = mapping.opening(&file.jobs);
    let (cache, order) = mapping.cache(&file.jobs);
    let Mapping { problems, files, lines, threads, seeds, origins, .. } = mapping;
    if problems.list[before..].iter().any(|problem| problem.severity == iowhy_text::diagnose::Severity::Error) {
        return None;
    }
    let names = order.iter().map(|number| files.list[*number].name.clone()).collect();
    let job = Job {
        opening,
        cache,
        mapping_cached: file.jobs.iter().any(|job| job.ours.mapping_cached),
        warmup,
        ..Job::new(files.workload(threads, &order), 1)
    };
    Some(Mapped { job, names, lines, seeds, origins })
}

/// A file that jobs name.
struct Named {
    name: String,
    bytes: u64,
    device: bool,
    /// Its pages are cached at the start.
    warm: bool,
}

#[derive(Default)]
struct Files {
    list: Vec<Named>,
    by_name: BTreeMap<String, usize>,
}

impl Files {
    fn number(&mut self, name: &str, ground: &dyn Ground) -> usize {
        if let Some(known) = self.by_name.get(name) {
            return *known;
        }
        let device = ground.is_device(name);
        let bytes = ground.bytes(name).filter(|_| device).unwrap_or(0);
        self.list.push(Named { name: name.to_owned(), bytes, device, warm: false });
        self.by_name.insert(name.to_owned(), self.list.len() - 1);
        self.list.len() - 1
    }

    /// The workload with files in another order: `order` lists their numbers.
    fn workload(&self, mut threads: Vec<ThreadJob>, order: &[usize]) -> Workload {
        let mut moved = vec![0; order.len()];
        for (new, old) in order.iter().enumerate() {
            moved[*old] = new as u32;
        }
        for thread in &mut threads {
            thread.stream.targets.iter_mut().for_each(|target| target.file = moved[target.file as usize]);
            thread.stream.script = thread.stream.script.take().map(|script| {
                let place = |step: &Scripted| {
                    let call = Call { file: moved[step.call.file as usize], ..step.call };
                    Scripted { call, ..*step }
                };
                script.iter().map(place).collect()
            });
        }
        let files = order
            .iter()
            .map(|number| {
                let file = &self.list[*number];
                let place = if file.device { Place::Device { start: Sector(0) } } else { Place::FileSystem };
                FileSpec { bytes: file.bytes, place }
            })
            .collect();
        Workload::Threads { files, threads }
    }
}

/// Jobs being turned into threads.
struct Mapping<'a> {
    ground: &'a dyn Ground,
    problems: &'a mut Problems,
    /// Notes given already.
    warned: BTreeSet<String>,
    files: Files,
    lines: Vec<String>,
    line_of_group: BTreeMap<u32, u32>,
    threads: Vec<ThreadJob>,
    seeds: Vec<Option<u64>>,
    origins: Vec<(usize, u32)>,
    /// Calls that clones replay, with the numbers of their files; by number of the job and of the clone.
    replays: BTreeMap<(usize, u32), (Replayed, Vec<u32>)>,
    /// Sizes of the files of jobs that say how large they are; by number of the job, of the clone and of its file.
    sizes: BTreeMap<(usize, u32, u32), u64>,
}

impl Mapping<'_> {
    fn warn(&mut self, message: impl Into<String>) {
        let message = message.into();
        if self.warned.insert(message.clone()) {
            self.problems.push(Problem::warning(message));
        }
    }

    fn error(&mut self, message: impl Into<String>, help: &str) {
        self.problems.push(Problem::error(message).help(help));
    }

    /// The group of each job.
    fn groups(&mut self, jobs: &[FioJob]) -> Vec<u32> {
        let mut groups: Vec<u32> = Vec::new();
        let mut floor = 0;
        for job in jobs {
            if job.stonewall {
                floor = groups.iter().max().map_or(0, |last| last + 1);
            }
            let mut group = floor;
            // On the running kernel a thread waits for others of its group, too (`Terms::after`).
            if let Some(wanted) = job.wait_for.as_ref().filter(|_| self.ground.simulated()) {
                let found = jobs[..groups.len()].iter().rposition(|known| known.name == *wanted);
                if let Some(found) = found {
                    group = group.max(groups[found] + 1);
                    if groups.iter().filter(|other| **other == groups[found]).count() > 1 {
                        self.warn(format!(
                            "`wait_for={wanted}` waits for every job that runs at the same time as `{wanted}` as well"
                        ));
                    }
                }
            }
            groups.push(group);
        }
        groups
    }

    /// How large every file is, as far as jobs say.
    fn lay_out(&mut self, jobs: &[FioJob]) {
        let mut thread = 0;
        for (number, job) in jobs.iter().enumerate().filter(|(_, job)| !job.engine.is_foreign()) {
            for clone in 0..job.numjobs {
                thread += 1;
                if job.replay.is_some() {
                    self.lay_out_replay(number, job, clone);
                    continue;
                }
                let long = job.word("random_generator") == "tausworthe64";
                let (least, most) = job.file_size.unwrap_or_default();
                let mut drawn = file_sizes((job.rand_seed, thread, long), (least, most), smallest_block(job));
                for (nr, name) in (0..).zip(job.file_names(clone)) {
                    let of_job = number;
                    let number = self.files.number(&name, self.ground);
                    if self.files.list[number].device {
                        continue;
                    }
                    let there = self.ground.bytes(&name);
                    let start = offset(job, clone, there.unwrap_or(0), false);
                    let wanted = match (job.file_size, job.size) {
                        // As fio: a file that is there and fits stays.
                        (Some(_), _) if there.is_some_and(|bytes| (least..=most).contains(&bytes)) => there,
                        (Some(_), _) if least == most => Some(least),
                        (Some(_), _) => drawn.next(),
                        // As fio: equal shares, and the remainder is in no file.
                        (None, Some(Amount::Bytes(size))) => Some(start + size / u64::from(job.nr_files)),
                        _ => None,
                    };
                    wanted.iter().for_each(|bytes| _ = self.sizes.insert((of_job, clone, nr), *bytes));
                    let part = wanted.and_then(|bytes| part_of(job, bytes, start));
                    // Without a size, or with a part of one, it is the file that says how large it is.
                    let Some(bytes) = part.map(|part| start + part).or(wanted).or(there) else { continue };
                    let file = &mut self.files.list[number];
                    file.bytes = file.bytes.max(bytes);
                }
            }
        }
        let missing: Vec<String> =
            self.files.list.iter().filter(|file| file.bytes == 0).map(|file| file.name.clone()).collect();
        for name in missing {
            self.error(format!("nothing says how large the file `{name}` is"), "size=1g, or filesize=1g");
        }
    }

    /// The files of a recorded list, as large as its calls need.
    fn lay_out_replay(&mut self, number: usize, job: &FioJob, clone: u32) {
        let Some(options) = &job.replay else { return };
        let Some(replayed) = iolog::load(options, clone, self.ground.loader(), self.problems) else { return };
        let mut numbers = Vec::new();
        for file in &replayed.files {
            let number = self.files.number(&file.name, self.ground);
            let known = &mut self.files.list[number];
            if !known.device {
                known.bytes = known.bytes.max(file.bytes).max(1);
            }
            numbers.push(number as u32);
        }
        self.replays.insert((number, clone), (replayed, numbers));
    }

    fn scheduler(&mut self, job: &FioJob, stack: &mut Stack) {
        let Some(name) = &job.ioscheduler else { return };
        if stack.elevator.entry.name == name {
            return;
        }
        if !self.warned.insert("ioscheduler".to_owned()) {
            self.warn("jobs ask for different elevators: the device has the first one");
            return;
        }
        if let Err(error) = stack.set("elevator", name) {
            let problem = Problem::error(format!("option `ioscheduler`: {}", error.message));
            self.problems.push(problem.near(&error.word, &error.accepted).help("`iowhy models elevator` lists them"));
        }
    }

    /// Notes on options of a job that cannot be carried out anywhere.
    fn notices(&mut self, job: &FioJob) {
        let name = &job.name;
        if let FioEngine::Foreign(engine) = job.engine {
            self.error(
                format!("job `{name}`: the engine `{engine}` is not run here"),
                "`iowhy fio --enghelp` lists those that are",
            );
        }
        if job.word("zonemode") == "zbd" {
            self.error(
                format!("job `{name}`: `zonemode=zbd` is for zoned devices, which are not written here"),
                "zonemode=strided",
            );
        }
        if job.number("zonesize") > 0 && job.given("zonemode").is_none_or(|_| job.word("zonemode") == "none") {
            self.error(format!("job `{name}`: `zonesize` needs a zonemode"), "zonemode=strided");
        }
        if job.mode.trim && self.ground.simulated() {
            self.warn("trims take no time in the simulator");
        }
        if job.engine == FioEngine::Mmap && job.direct {
            self.error(format!("job `{name}` cannot read a mapping past the page cache"), "direct=0");
        }
        if matches!(job.size, Some(Amount::Zones(_))) || matches!(job.io_size, Some(Amount::Zones(_))) {
            self.error(format!("job `{name}` counts in zones, and devices have none"), "size=1g");
        }
        if job.fsync > 0 && job.fdatasync > 0 {
            self.warn("`fsync` and `fdatasync` together: only fsync is called");
        }
    }

    /// Notes on options of a job that cannot be, or are not, simulated.
    fn not_simulated(&mut self, job: &FioJob) {
        if job.engine == FioEngine::Posixaio {
            self.warn("`posixaio` is simulated as libaio, without helper threads");
        }
        let logs = &job.logs;
        if [&logs.bandwidth, &logs.latency, &logs.iops, &logs.histogram, &job.write_iolog].iter().any(|l| l.is_some()) {
            self.warn("logs are not written");
        }
    }

    /// The advice, cache and other things that only the whole file can settle.
    fn warmup(&mut self, jobs: &[FioJob], groups: &[u32]) -> Nanos {
        // It begins when its job does.
        let end = |job: &FioJob| if job.ramp_us > 0 { job.ramp_us + job.start_delay_us.0 } else { 0 };
        let ramps: Vec<(u64, u32)> = jobs.iter().map(end).zip(groups.iter().copied()).collect();
        let longest = ramps.iter().filter(|(_, group)| *group == 0).map(|(ramp, _)| *ramp).max().unwrap_or(0);
        // On the running kernel each thread has its own.
        if !self.ground.simulated() {
            return Nanos::ZERO;
        }
        if ramps.iter().any(|(ramp, group)| *group > 0 && *ramp > 0 || *group == 0 && *ramp != longest) {
            self.warn("`ramp_time` is one time for the whole run, from its start: the longest of the first group");
        }
        Nanos::from_us(longest)
    }

    /// The opening of a device while a device manager watches.
    fn opening(&mut self, jobs: &[FioJob]) -> Option<Opening> {
        let watched = jobs.iter().find(|job| job.ours.blkid)?;
        if !watched.file_names(0).iter().any(|name| self.ground.is_device(name)) {
            self.warn("`iowhy_actor=blkid` has no effect on files: it looks at devices");
            return None;
        }
        if self.files.list.iter().filter(|file| file.device).count() > 1 {
            self.warn("`iowhy_actor=blkid` looks at the first device only");
        }
        let opening = watched.ours.opening;
        let (least, most) = opening.probe_delay_us;
        let (first_pages, last_pages) = opening.probe_pages;
        Some(Opening {
            size_probe: true,
            settle: Nanos::from_us(opening.settle_us),
            stagger: Nanos::from_us(opening.stagger_us),
            open: Nanos::from_us(opening.open_us),
            fix: match opening.fix {
                "serialise" => OpenFix::Serialise,
                "invalidate" => OpenFix::InvalidateWhenFound,
                "wait" => OpenFix::WaitForProbe,
                // Processes have tables of their own: nobody finds a name that another has added, as with a lock.
                _ if !watched.thread => OpenFix::Serialise,
                _ => OpenFix::None,
            },
            found_delay: Nanos::from_us(opening.found_delay_us),
            invalidate: watched.invalidate,
            probe: Some(Probe { delay: (Nanos::from_us(least), Nanos::from_us(most)), first_pages, last_pages }),
        })
    }

    /// Pages cached at the start, and the order of files that makes it so: cached files come last.
    fn cache(&mut self, jobs: &[FioJob]) -> (CacheStart, Vec<usize>) {
        let mut tail = 0;
        for job in jobs {
            let state = match (job.ours.cache, job.pre_read) {
                (Some(state), _) => state,
                (None, true) => CacheState::Warm,
                (None, false) => CacheState::Cold,
            };
            if state == CacheState::Cold {
                continue;
            }
            if let CacheState::Tail(bytes) = state {
                tail = tail.max(bytes);
            }
            for name in (0..job.numjobs).flat_map(|clone| job.file_names(clone)) {
                if let Some(number) = self.files.by_name.get(&name) {
                    self.files.list[*number].warm = true;
                }
            }
        }
        let mut order: Vec<usize> = (0..self.files.list.len()).collect();
        order.sort_by_key(|number| {
            let file = &self.files.list[*number];
            (!file.device, file.warm)
        });
        let warm = self.files.list.iter().filter(|file| file.warm).map(|file| file.bytes).sum();
        let bytes = if tail > 0 { tail } else { warm };
        (if bytes > 0 { CacheStart::Tail { bytes } } else { CacheStart::Cold }, order)
    }

    /// The threads of a job.
    fn job(&mut self, number: u32, job: &FioJob, group: u32) {
        for clone in 0..job.numjobs {
            let stream = match (&job.replay, self.replays.remove(&(number as usize, clone))) {
                (None, _) => self.stream(number as usize, job, clone),
                (Some(_), Some((replayed, numbers))) => replayed.stream(&numbers),
                // It could not be read, which was reported.
                (Some(_), None) => None,
            };
            let Some(mut stream) = stream else { return };
            let line = self.line(job, clone);
            let index = self.threads.len() as u32;
            if job.runtime_us > 0 {
                stream.max_time = Nanos::from_us(job.runtime_us + job.ramp_us);
            }
            stream.seed =
                job.rand_seed ^ (u64::from(number) << 40 | u64::from(clone)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.seeds.push(job.rand_repeat.then_some(stream.seed));
            let (least, most) = job.start_delay_us;
            let delay = least + Rng::stream(stream.seed, "startdelay").below(most.saturating_sub(least) + 1);
            // Process 0 is fio itself; descriptor sets are numbered by the first clone that uses them.
            let process = if job.ours.own_process { index + 1 } else { 0 };
            let spec = ThreadSpec {
                process,
                job: line,
                group,
                start_delay: Nanos::from_us(delay),
                engine: engine(job),
                direct: job.direct,
                descriptors: if job.ours.shared_descriptors { index - clone } else { index },
                tool: job.ours.tool_ns.map(Nanos),
                startup_seeks: job.ours.startup_seeks as u32,
                advice: advice(job),
                invalidate: invalidates(job),
                stranger: false,
            };
            self.threads.push(ThreadJob { spec, stream });
            self.origins.push((number as usize, clone));
        }
    }

    /// Calls of a clone.
    fn stream(&mut self, number: usize, job: &FioJob, clone: u32) -> Option<Stream> {
        let (mut targets, spans) = self.targets(number, job, clone)?;
        let walk = walks(job).then(|| Box::new(self.walk(job, spans)));
        let service = if walk.is_some() { Service::Sequential } else { self.service(job, &mut targets, clone) };
        let mut stream = Stream { service, walk, ..Stream::sequential(mix(job), targets, 4096) };
        self.pattern(job, &mut stream);
        amount(job, &mut stream);
        pace(job, &mut stream);
        syncs(job, &mut stream);
        // fio opens its files anew for each pass, and drops their pages then; a run for some time drops those of
        // buffered files where it begins again, which is nowhere without a map.
        let begins_again = !job.direct && (!job.mode.random || job.random_map);
        stream.drop_between_passes = invalidates(job) && (begins_again || !job.time_based);
        stream.checks = checks(job).map(Box::new);
        if job.on("create_only") {
            stream.script = Some([].into());
        }
        Some(stream)
    }

    /// The regions a clone works on, and the same as fio has them: with the rest behind the last whole block.
    fn targets(&mut self, of_job: usize, job: &FioJob, clone: u32) -> Option<(Vec<Target>, Vec<Span>)> {
        let mut targets = Vec::new();
        let mut spans = Vec::new();
        for (nr, name) in (0..).zip(job.file_names(clone)) {
            let number = self.files.number(&name, self.ground);
            let file = &self.files.list[number];
            let (whole, device) = (file.bytes, file.device);
            let there = self.ground.bytes(&name);
            let start = offset(job, clone, there.unwrap_or(0), device);
            let rest = whole.saturating_sub(start);
            let share = |size: Amount| size.of(whole).map(|bytes| bytes / u64::from(job.nr_files));
            let wanted = match (self.sizes.get(&(of_job, clone, nr)).copied(), device, job.size) {
                (Some(bytes), false, _) => part_of(job, bytes, start).unwrap_or(bytes.saturating_sub(start)).min(rest),
                // A part of each file.
                (None, false, Some(size)) => size.of(whole).unwrap_or(whole).min(rest),
                (None, false, None) => rest,
                (_, true, size) => size.and_then(share).unwrap_or(u64::MAX).min(rest),
            };
            let there = there.filter(|_| job.engine != FioEngine::Null);
            spans.push(Span {
                start,
                len: wanted,
                file: there.unwrap_or(0).max(start + wanted).max(if device { whole } else { 0 }),
            });
            // The rest behind the last whole block is not touched.
            let wanted = match least_block(job) {
                least if wanted > least => wanted / least * least,
                _ => wanted,
            };
            if wanted == 0 {
                self.error(
                    format!("job `{}` begins at byte {start} of `{name}`, which has {whole}", job.name),
                    "a smaller offset=",
                );
                return None;
            }
            targets.push(Target { file: number as u32, start, len_bytes: wanted });
        }
        Some((targets, spans))
    }

    /// Which file is next.
    fn service(&mut self, job: &FioJob, targets: &mut [Target], clone: u32) -> Service {
        let every = u32::try_from(job.service.every).unwrap_or(u32::MAX);
        let smallest = job.blocks.read.min.max(if job.mode.write { job.blocks.write.min } else { 0 });
        // As fio, a file that is done is not picked again. If every file is done with one call, that is a random order.
        let one_call_each = targets.iter().all(|target| target.len_bytes <= smallest);
        match job.service.kind {
            ServiceKind::RoundRobin => Service::RoundRobin(every),
            ServiceKind::Sequential => Service::Sequential,
            ServiceKind::Random if one_call_each => {
                let mut rng = Rng::stream(job.rand_seed ^ u64::from(clone), "files");
                for last in (1..targets.len()).rev() {
                    targets.swap(last, rng.below(last as u64 + 1) as usize);
                }
                Service::Sequential
            }
            ServiceKind::Random => Service::Random,
            ServiceKind::Zipf(_) | ServiceKind::Pareto(_) | ServiceKind::Normal(_) => {
                self.warn("`file_service_type`: every file is picked equally often");
                Service::Random
            }
        }
    }

    fn line(&mut self, job: &FioJob, clone: u32) -> u32 {
        let next = self.lines.len() as u32;
        if job.group_reporting {
            let line = *self.line_of_group.entry(job.group).or_insert(next);
            if line == next {
                self.lines.push(job.name.clone());
            }
            return line;
        }
        self.lines.push(if job.numjobs > 1 { format!("{}.{clone}", job.name) } else { job.name.clone() });
        next
    }

    /// Places and sizes.
    fn pattern(&mut self, job: &FioJob, stream: &mut Stream) {
        let written = if job.mode.trim && !job.mode.write { &job.blocks.trim } else { &job.blocks.write };
        stream.blocks = [blocks(&job.blocks.read), blocks(written)];
        if !job.mode.random {
            let hole_bytes = match job.mode.suffix {
                ModeSuffix::Hole(hole) => u64::try_from(hole).unwrap_or(0),
                ModeSuffix::None | ModeSuffix::PerOffset(_) => 0,
            };
            stream.order = Order::Sequential { hole_bytes };
            return;
        }
        let run = match job.mode.suffix {
            ModeSuffix::PerOffset(calls) => calls.max(1),
            ModeSuffix::None | ModeSuffix::Hole(_) => 1,
        };
        let direction = if job.mode.read { &job.distribution.read } else { &job.distribution.write };
        let random_pct = if job.mode.read { job.percentage_random.read } else { job.percentage_random.write };
        let distribution = self.distribution(direction);
        stream.order = Order::Random { distribution, once: job.random_map && run == 1, run, random_pct };
    }

    fn distribution(&mut self, given: &value::Distribution) -> Distribution {
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let (distribution, center) = match given {
            value::Distribution::Uniform => (Distribution::Uniform, &None),
            value::Distribution::Zipf { theta, center } => (Distribution::Zipf(small(theta / 1000).max(1)), center),
            value::Distribution::Pareto { h, center } => (Distribution::Pareto(small(h / 1000).clamp(1, 999)), center),
            value::Distribution::Normal { deviation, center } => {
                (Distribution::Normal(small(deviation / 100_000).max(1)), center)
            }
            value::Distribution::Zones(given) => {
                let mut zones = [[0; 2]; MAX_ZONES];
                zones.iter_mut().zip(given).for_each(|(zone, given)| *zone = *given);
                (Distribution::Zones(zones), &None)
            }
            value::Distribution::Zoned(_) => {
                self.warn("`random_distribution`: of zones both shares are needed: all places are equally likely");
                (Distribution::Uniform, &None)
            }
        };
        if center.is_some() {
            self.warn("`random_distribution`: the centre is not modelled");
        }
        distribution
    }
}

/// Whether cached pages are dropped: a cache that was asked for is left alone; the watcher of a device drops it.
fn invalidates(job: &FioJob) -> bool {
    job.invalidate && job.ours.cache.is_none() && !job.ours.blkid && job.engine != FioEngine::Null
}

/// Bytes that a file must have for a clone of a job; nothing if the job does not say.
/// The part of a file of this size that `size=50%` means.
fn part_of(job: &FioJob, bytes: u64, start: u64) -> Option<u64> {
    let part = job.size.filter(|size| matches!(size, Amount::Percent(..10_000)))?.of(bytes)?;
    let part = part.min(bytes.saturating_sub(start));
    Some(part - part % smallest_block(job)).filter(|part| *part > 0)
}

/// The smallest block of all directions.
fn smallest_block(job: &FioJob) -> u64 {
    let blocks = &job.blocks;
    blocks.read.min.min(blocks.write.min).min(blocks.trim.min).max(1)
}

/// The smallest block of the directions that a job has.
fn least_block(job: &FioJob) -> u64 {
    match (job.mode.read, job.mode.write) {
        (true, true) => job.blocks.read.min.min(job.blocks.write.min),
        (false, true) => job.blocks.write.min,
        _ => job.blocks.read.min,
    }
    .max(1)
}

/// Where the region of a clone begins in a file that has this size before the run. As fio: only what is a part of the
/// file is aligned.
fn offset(job: &FioJob, clone: u32, there: u64, device: bool) -> u64 {
    if job.on("file_append") && !device {
        return there;
    }
    let start = job.offset.of(there).unwrap_or(0);
    let step = job.offset_increment.of(there).unwrap_or(0);
    let offset = start.saturating_add(step.saturating_mul(u64::from(clone)));
    let align = match job.offset_align {
        _ if !matches!((job.offset, job.offset_increment), (Amount::Percent(_), _) | (_, Amount::Percent(_))) => 1,
        0 => smallest_block(job),
        align => align,
    };
    offset.div_ceil(align).saturating_mul(align)
}

fn mix(job: &FioJob) -> Mix {
    match (job.mode.read, job.mode.write) {
        (true, true) => Mix::Mixed(job.rwmix_read),
        (true, false) => Mix::Read,
        (false, _) => Mix::Write,
    }
}

fn blocks(blocks: &Blocks) -> BlockSizes {
    let size = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    if !blocks.split.is_empty() {
        return BlockSizes::Split(blocks.split.iter().map(|share| (size(share.bytes), share.basis_points)).collect());
    }
    if blocks.min == blocks.max {
        BlockSizes::Fixed(size(blocks.min))
    } else {
        BlockSizes::Range(size(blocks.min), size(blocks.max))
    }
}

/// How much there is to do.
fn amount(job: &FioJob, stream: &mut Stream) {
    let whole = stream.targets.iter().map(|target| target.len_bytes).sum::<u64>();
    stream.passes = if job.time_based || job.io_size.is_some() { 0 } else { job.loops };
    // What lies in holes does not count: fio goes on from the start until it has moved the size.
    if let Order::Sequential { hole_bytes: 1.. } = stream.order
        && stream.passes > 0
    {
        stream.passes = 0;
        stream.limit_bytes = whole.saturating_mul(job.loops);
    }
    // Besides the sizes of the files, the size is the amount moved.
    if let (Some(_), Some(Amount::Bytes(size))) = (job.file_size, job.size)
        && stream.passes > 0
        && size < whole
    {
        stream.passes = 0;
        stream.limit_bytes = size.saturating_mul(job.loops);
    }
    if !job.time_based
        && let Some(io_size) = job.io_size
    {
        stream.limit_bytes = io_size.of(whole).unwrap_or(whole).saturating_mul(job.loops).max(1);
    }
    stream.limit_calls = job.number_ios;
}

/// Pauses and rates.
fn pace(job: &FioJob, stream: &mut Stream) {
    if job.think.time_us > 0 {
        stream.think = Some(Think {
            // As fio: with a time of I/O calls count only if they were asked for.
            calls: if job.think.io_time_us > 0
                && !job.options.iter().any(|given| given.option.name == "thinktime_blocks")
            {
                u32::MAX
            } else {
                u32::try_from(job.think.blocks).unwrap_or(u32::MAX)
            },
            time: Nanos::from_us(job.think.time_us),
            spin: Nanos::from_us(job.think.spin_us),
            io_time: Nanos::from_us(job.think.io_time_us),
        });
    }
    let (rate, blocks) = (&job.rate, &job.blocks);
    // As fio: calls a second are bytes of the smallest block.
    let bytes = |used: bool, bytes: u64, calls: u64, block: u64| match bytes {
        _ if !used => 0,
        0 => calls.saturating_mul(block),
        bytes => bytes,
    };
    let bytes = [
        bytes(job.mode.read, rate.bytes.read, rate.iops.read, blocks.read.min),
        bytes(job.mode.write, rate.bytes.write, rate.iops.write, blocks.write.min),
        bytes(job.mode.trim, rate.bytes.trim, rate.iops.trim, blocks.trim.min),
    ];
    if bytes.iter().any(|bytes| *bytes > 0) {
        let blocks =
            [&blocks.read, &blocks.write, &blocks.trim].map(|blocks| u32::try_from(blocks.min).unwrap_or(u32::MAX));
        stream.rate = Some(Rate { bytes, blocks, poisson: rate.poisson, ignores_pauses: rate.ignore_think });
    }
}

fn syncs(job: &FioJob, stream: &mut Stream) {
    if !job.mode.write {
        return;
    }
    let every = |writes: u64, op| SyncEvery { writes: u32::try_from(writes).unwrap_or(u32::MAX), op };
    stream.sync = match (job.fsync, job.fdatasync) {
        (0, 0) => None,
        (0, writes) => Some(every(writes, Op::Fdatasync)),
        (writes, _) => Some(every(writes, Op::Fsync)),
    };
    stream.synchronous_writes = match job.sync {
        SyncMode::None => None,
        SyncMode::Sync => Some(Op::Fsync),
        SyncMode::Dsync => Some(Op::Fdatasync),
    };
    stream.end_sync = (job.end_fsync || job.fsync_on_close).then_some(Op::Fsync);
    stream.fio_syncs = true;
}

fn engine(job: &FioJob) -> Engine {
    let (depth, batch_complete) = (job.iodepth, job.batch_complete_min.max(1));
    match job.engine {
        FioEngine::IoUring => Engine::Ring { depth, batch_submit: job.iodepth_batch, batch_complete },
        FioEngine::Libaio | FioEngine::Posixaio | FioEngine::Ours(_) => {
            let batch_submit = if job.engine == FioEngine::Posixaio { 1 } else { job.iodepth_batch };
            Engine::Aio { depth, batch_submit, batch_complete }
        }
        FioEngine::Mmap => Engine::Mmap,
        FioEngine::Null => Engine::Null,
        _ => Engine::Sync,
    }
}

fn advice(job: &FioJob) -> Option<Advice> {
    match job.advice {
        job::Advice::None | job::Advice::Noreuse => None,
        job::Advice::Random => Some(Advice::Random),
        job::Advice::Sequential => Some(Advice::Sequential),
        job::Advice::Pattern if job.mode.random => Some(Advice::Random),
        job::Advice::Pattern => Some(Advice::Sequential),
    }
}

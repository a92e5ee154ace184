//! Samples CPU time, memory and context switches of a server's process tree from `/proc`.

mod find;
mod series;

use std::collections::{HashMap, HashSet};
use std::fs::{read_dir, read_to_string};
use std::time::{Duration, Instant};

use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::{Pid, SysconfVar, sysconf};
use serde::Serialize;

pub use find::{listeners, unix_listeners};
use series::Series;

/// What the processes used between two samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sample {
    /// Seconds since the probe began.
    pub at: f64,
    /// CPU time used since the probe began, in seconds. It is exact for processes that run or that
    /// no process has waited for. The kernel tells the time of those that a process has waited for
    /// in hundredths of a second: 20 ms may be missing or too much for each process that waits.
    pub cpu: f64,
    /// Proportional set size of all processes in bytes; `None` if the kernel refuses it. Of merged
    /// samples, the highest, like the number of processes.
    pub pss: Option<u64>,
    /// Context switches since the probe began, voluntary and not.
    pub switches: (u64, u64),
    /// Number of processes.
    pub processes: usize,
}

/// How many times longer than a sample the pause after it is at least. A sample reads the page
/// tables of all processes, so it may take a millisecond of CPU for each, which the server lacks.
const PAUSE: u32 = 100;
/// The same after the first sample, which shows an idle server.
const FIRST_PAUSE: u32 = 20;

/// Seconds of CPU time above what the sum of processes that have ended may lack, so that a quotient
/// makes sense.
pub const LEAST_CPU: f64 = 0.05;

/// What the processes used during a run.
#[derive(Debug, Clone, Serialize)]
pub struct Usage {
    /// The roots of the process tree.
    pub pids: Vec<i32>,
    /// The names of their programs, in the same order.
    pub programs: Vec<String>,
    /// Those roots that ended meanwhile. The CPU time of these and of their descendants is not
    /// counted in full.
    pub ended: Vec<i32>,
    /// The samples, the first at the beginning and the last at the end. In a long run, neighbours
    /// are merged, so that there are about 2,000 at most.
    pub samples: Vec<Sample>,
}

impl Usage {
    /// CPU seconds of the run.
    pub fn cpu(&self) -> f64 {
        self.samples.last().map_or(0.0, |last| last.cpu)
    }

    /// Microseconds of CPU for each of `count`; `None` if there is too little to divide, or if a
    /// root has ended.
    pub fn cpu_per(&self, count: u64) -> Option<f64> {
        let is_enough = self.cpu() >= LEAST_CPU && count > 0 && self.ended.is_empty();
        is_enough.then(|| self.cpu() * 1e6 / count as f64)
    }

    /// The roots with their programs: `nginx (12), php-fpm (34)`.
    pub fn names(&self) -> String {
        self.named(|_| true)
    }

    /// The same of those that have ended.
    pub fn names_of_ended(&self) -> String {
        self.named(|pid| self.ended.contains(&pid))
    }

    fn named(&self, is_wanted: impl Fn(i32) -> bool) -> String {
        let roots = self.pids.iter().zip(&self.programs);
        let wanted = roots.filter(|(pid, _)| is_wanted(**pid));
        let names = wanted.map(|(pid, program)| format!("{program} ({pid})"));
        names.collect::<Vec<_>>().join(", ")
    }

    /// Voluntary and involuntary context switches of the run.
    pub fn switches(&self) -> (u64, u64) {
        self.samples.last().map_or((0, 0), |last| last.switches)
    }

    /// Highest memory of all samples.
    pub fn peak_pss(&self) -> Option<u64> {
        self.samples.iter().filter_map(|sample| sample.pss).max()
    }

    /// Highest number of processes.
    pub fn processes(&self) -> usize {
        let counts = self.samples.iter().map(|sample| sample.processes);
        counts.max().unwrap_or(0)
    }
}

/// Watches processes and all their descendants.
#[derive(Debug)]
pub struct Probe {
    roots: Vec<i32>,
    programs: Vec<String>,
    ended: Vec<i32>,
    tick: Duration,
    began: Instant,
    cpu_before: Duration,
    highest_cpu: Duration,
    switches: Switches,
    samples: Series,
    /// Not before this time is it cheap to take a sample.
    is_cheap_from: Instant,
}

impl Probe {
    /// Begins with a sample. `None` if none of the processes runs.
    pub fn begin(roots: Vec<i32>) -> Option<Probe> {
        let programs: Vec<_> = roots.iter().map(|pid| program(*pid)).collect();
        if !roots.iter().any(|pid| is_running(*pid)) {
            return None;
        }
        let mut probe = Probe {
            roots,
            programs,
            ended: Vec::new(),
            tick: tick(),
            began: Instant::now(),
            cpu_before: Duration::ZERO,
            highest_cpu: Duration::ZERO,
            switches: Switches::default(),
            samples: Series::new(),
            is_cheap_from: Instant::now(),
        };
        let began = Instant::now();
        let tree = tree(&probe.roots);
        probe.cpu_before = cpu_of(&tree, probe.tick);
        probe.highest_cpu = probe.cpu_before;
        probe.switches.begin(&tree);
        probe.take(&tree);
        probe.pause_since(began, FIRST_PAUSE);
        Some(probe)
    }

    /// Takes a sample, unless the one before was so recent that samples would use more than 1 % of
    /// the time.
    pub fn look(&mut self) {
        if Instant::now() >= self.is_cheap_from {
            self.sample();
        }
    }

    /// Takes a sample.
    pub fn sample(&mut self) -> Sample {
        let began = Instant::now();
        let tree = tree(&self.roots);
        let sample = self.take(&tree);
        self.pause_since(began, PAUSE);
        sample
    }

    /// Pauses this many times longer than the sample took that began then.
    fn pause_since(&mut self, began: Instant, times: u32) {
        let now = Instant::now();
        self.is_cheap_from = now + (now - began) * times;
    }

    /// Ends with a sample.
    pub fn end(mut self) -> Usage {
        self.sample();
        Usage {
            pids: self.roots,
            programs: self.programs,
            ended: self.ended,
            samples: self.samples.into_points(),
        }
    }

    fn take(&mut self, tree: &[i32]) -> Sample {
        for root in &self.roots {
            if !self.ended.contains(root) && !is_running(*root) {
                self.ended.push(*root);
            }
        }
        // A child's time moves to its parent when it is reaped. The time of a root that exits is
        // lost, and must not make the sum fall.
        self.highest_cpu = self.highest_cpu.max(cpu_of(tree, self.tick));
        let sizes: Vec<_> = tree.iter().filter_map(|pid| pss(*pid)).collect();
        let sample = Sample {
            at: self.began.elapsed().as_secs_f64(),
            cpu: (self.highest_cpu - self.cpu_before).as_secs_f64(),
            pss: (!sizes.is_empty()).then(|| sizes.iter().sum()),
            switches: self.switches.update(tree),
            processes: tree.len(),
        };
        self.samples.push(sample);
        sample
    }
}

/// Context switches by thread. The kernel forgets those of a thread that has exited.
#[derive(Debug, Default)]
struct Switches {
    before: HashMap<i32, (u64, u64)>,
    last: HashMap<i32, (u64, u64)>,
}

impl Switches {
    fn begin(&mut self, tree: &[i32]) {
        self.before = tree.iter().flat_map(|pid| switches(*pid)).collect();
    }

    fn update(&mut self, tree: &[i32]) -> (u64, u64) {
        self.last.extend(tree.iter().flat_map(|pid| switches(*pid)));
        self.last.iter().fold((0, 0), |sum, (thread, now)| {
            let before = self.before.get(thread).copied().unwrap_or_default();
            let voluntary = now.0.saturating_sub(before.0);
            let involuntary = now.1.saturating_sub(before.1);
            (sum.0 + voluntary, sum.1 + involuntary)
        })
    }
}

/// The processes `roots` and all their descendants.
pub fn tree(roots: &[i32]) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for pid in pids() {
        if let Some(stat) = stat(pid) {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut waiting = roots.to_vec();
    while let Some(pid) = waiting.pop() {
        if seen.insert(pid) {
            found.push(pid);
            waiting.extend(children.get(&pid).into_iter().flatten());
        }
    }
    found
}

/// All processes.
fn pids() -> impl Iterator<Item = i32> {
    numbers("/proc")
}

/// The entries of a directory whose names are numbers.
fn numbers(directory: &str) -> impl Iterator<Item = i32> {
    let entries = read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

struct Stat {
    /// Whether it has exited, and no process has waited for it yet.
    has_exited: bool,
    parent: i32,
    /// Ticks of its own, and of the children that it has waited for.
    own: u32,
    reaped: u32,
}

/// Reads `/proc/PID/stat`; `None` if the process has exited.
fn stat(pid: i32) -> Option<Stat> {
    let text = read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain some itself.
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<_> = rest.split(' ').collect();
    // proc(5) counts the state as field 3. Fields 14 to 17 are the process's own user and system
    // time and those of the children it has reaped.
    let ticks = |place: usize| fields.get(place)?.parse::<u32>().ok();
    Some(Stat {
        // Field 20 is the number of threads. Others may go on after the first one.
        has_exited: matches!(*fields.first()?, "Z" | "X") && matches!(*fields.get(17)?, "0" | "1"),
        parent: fields.get(1)?.parse().ok()?,
        own: ticks(11)?.checked_add(ticks(12)?)?,
        reaped: ticks(13)?.checked_add(ticks(14)?)?,
    })
}

/// Whether a process exists and has not exited.
pub fn is_running(pid: i32) -> bool {
    stat(pid).is_some_and(|stat| !stat.has_exited)
}

/// The name of a process's program. A process may set it to any bytes.
fn program(pid: i32) -> String {
    let name = read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match name.trim() {
        "" => "process".into(),
        name => name.chars().filter(|letter| !letter.is_control()).collect(),
    }
}

/// CPU time that the processes `roots`, their descendants and the children that these have waited
/// for have used since their start.
pub fn cpu_time(roots: &[i32]) -> Duration {
    cpu_of(&tree(roots), tick())
}

/// The unit in which the kernel tells the time of children that were waited for.
fn tick() -> Duration {
    let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten();
    let ticks = ticks.and_then(|ticks| u32::try_from(ticks).ok());
    Duration::from_secs(1) / ticks.unwrap_or(100).max(1)
}

/// CPU time of processes and of the children that they have waited for. Parents come first in
/// `tree`, so that a child that ends meanwhile is not counted twice.
fn cpu_of(tree: &[i32], tick: Duration) -> Duration {
    let of_process = |pid: &i32| {
        let stat = stat(*pid)?;
        // Ticks cut up to 20 ms from each process, which is all of a worker's short run.
        let own = own_cpu(*pid).unwrap_or(tick * stat.own);
        Some(own + tick * stat.reaped)
    };
    tree.iter().filter_map(of_process).sum()
}

/// CPU time of all threads of a process, those that have exited included, in nanoseconds; `None`
/// if the process has been waited for.
fn own_cpu(pid: i32) -> Option<Duration> {
    let clock = clock_getcpuclockid(Pid::from_raw(pid)).ok()?;
    clock_gettime(clock).ok().map(Duration::from)
}

/// Proportional set size in bytes: memory that several processes share is divided among them.
fn pss(pid: i32) -> Option<u64> {
    let text = read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Voluntary and involuntary context switches of each thread of a process.
fn switches(pid: i32) -> Vec<(i32, (u64, u64))> {
    let directory = format!("/proc/{pid}/task");
    let of_thread = |thread: i32| {
        let text = read_to_string(format!("{directory}/{thread}/status")).ok()?;
        let count = |name: &str| -> Option<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim_start_matches(':').trim().parse().ok()
        };
        let both = (
            count("voluntary_ctxt_switches")?,
            count("nonvoluntary_ctxt_switches")?,
        );
        Some((thread, both))
    };
    numbers(&directory).filter_map(of_thread).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_that_is_not_cheap_is_left_out() {
        let own = std::process::id().cast_signed();
        let mut probe = Probe::begin(vec![own]).expect("this process runs");
        probe.is_cheap_from = Instant::now() + Duration::from_secs(600);
        probe.look();
        assert_eq!(probe.samples.points.len(), 1);
        let past = Instant::now();
        probe.is_cheap_from = past;
        probe.look();
        assert_eq!(probe.samples.points.len(), 2);
        assert!(probe.is_cheap_from > past);
        assert_eq!(probe.end().samples.len(), 3);
    }
}

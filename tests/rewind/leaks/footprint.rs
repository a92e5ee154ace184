//! The memory, descriptors and mappings of a server's PHP processes.

use std::fmt;
use std::fs::DirEntry;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::engines::Subject;

/// What the master process holds, and the largest worker: workers start and exit meanwhile.
pub struct Footprint {
    master: Held,
    workers: Held,
    processes: usize,
}

#[derive(Default)]
struct Held {
    /// Private memory in KiB.
    memory: u64,
    /// What each leads to.
    descriptors: Vec<String>,
    mappings: usize,
}

/// Allows for pages of the allocator and for PHP's own caches (regular expressions, real paths). On
/// `rewind`, a worker keeps up to 16 MiB mapped for its next event (docs/reference/rewind.md); a
/// new worker does not have them yet.
const SLACK_KIB: u64 = (16 + 6) << 10;
/// On `rewind`, a worker that has just replaced another has some thirty mappings more, and the
/// master process one pipe more. A leak of one in each case would be hundreds.
const SLACK_MAPPINGS: usize = 48;
const SLACK_DESCRIPTORS: usize = 1;

impl Footprint {
    /// `surus` is the process id of the server.
    pub fn of(surus: u32) -> Footprint {
        // Children of the last cases exit by themselves.
        std::thread::sleep(Duration::from_millis(300));
        let mut masters = children(surus);
        masters.retain(|pid| !crate::common::is_surus(*pid));
        let workers: Vec<_> = masters.iter().flat_map(|pid| children(*pid)).collect();
        Footprint {
            processes: masters.len() + workers.len(),
            master: held(&masters),
            workers: held(&workers),
        }
    }

    /// Panics if the footprint has grown for good: during the replacement of a worker the processes
    /// hold more.
    pub fn assert_kept(&self, surus: u32, subject: Subject) {
        let mut now = Footprint::of(surus);
        for _ in 0..200 {
            if self.is_kept(&now) {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
            now = Footprint::of(surus);
        }
        println!("{}: from {self} to {now}", subject.name);
        assert!(
            self.is_kept(&now),
            "{}: {self} has become {now}\nmaster process: {:?}\nwas: {:?}\nworker: {:?}\nwas: {:?}",
            subject.name,
            now.master.descriptors,
            self.master.descriptors,
            now.workers.descriptors,
            self.workers.descriptors,
        );
    }

    fn is_kept(&self, now: &Footprint) -> bool {
        let holds = |before: &Held, after: &Held| {
            after.memory <= before.memory + SLACK_KIB
                && after.descriptors.len() <= before.descriptors.len() + SLACK_DESCRIPTORS
                && after.mappings <= before.mappings + SLACK_MAPPINGS
        };
        // During the replacement of a worker there may be two.
        holds(&self.master, &now.master)
            && holds(&self.workers, &now.workers)
            && now.processes <= self.processes + 1
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "[{} processes; master process {}; workers at most {}]",
            self.processes, self.master, self.workers
        )
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "{} KiB, {} descriptors, {} mappings",
            self.memory,
            self.descriptors.len(),
            self.mappings
        )
    }
}

fn held(pids: &[u32]) -> Held {
    let mut max = Held::default();
    for pid in pids {
        let dir = PathBuf::from(format!("/proc/{pid}"));
        let status = std::fs::read_to_string(dir.join("status")).unwrap_or_default();
        let memory = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"))
            .and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        let maps = std::fs::read_to_string(dir.join("maps")).unwrap_or_default();
        max.memory = max.memory.max(memory.unwrap_or(0));
        max.mappings = max.mappings.max(maps.lines().count());
        let descriptors = open_descriptors(&dir);
        if descriptors.len() > max.descriptors.len() {
            max.descriptors = descriptors;
        }
    }
    max
}

fn open_descriptors(process: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(process.join("fd")).into_iter().flatten();
    let target = |entry: std::io::Result<DirEntry>| {
        let entry = entry.ok()?;
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        Some(format!(
            "{} {}",
            entry.file_name().display(),
            target.display()
        ))
    };
    entries.filter_map(target).collect()
}

fn children(of: u32) -> Vec<u32> {
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or("");
        if fields.split_whitespace().nth(1) == Some(&of.to_string()) {
            children.push(pid);
        }
    }
    children
}

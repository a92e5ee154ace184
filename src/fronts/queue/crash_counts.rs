//! Counts in a file how often this process crashed while a job was the only suspect, so that poison
//! jobs are found.
//!
//! A job that ran with others when the process was killed may be innocent: it is a suspect, and no
//! two suspects run at once from then on. One that ran alone, or was the only suspect, counts as
//! the cause. The file is written by `write(2)` alone, so it is whole after a kill. A crash of the
//! machine may lose it.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::format;
use super::job::Job;
use super::settings::Queue;

/// Jobs that run at once or are suspects, at most. Others are not remembered.
const ENTRIES: usize = 4096;
/// Bytes of an entry: its key, its crashes, whether it is a suspect, how often it runs.
const BYTES: usize = 20;

/// What is known about running jobs and suspects.
#[derive(Debug, Default)]
pub struct CrashCounts {
    file: Option<File>,
    entries: Mutex<Vec<CrashCount>>,
    /// Set with `entries` locked.
    is_ending: AtomicBool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct CrashCount {
    /// The hash of queue and job.
    key: u64,
    /// How often the process was killed while this job ran alone, or as the only suspect.
    crashes: u32,
    is_suspect: bool,
    /// Jobs may be equal.
    running: u32,
}

/// A job that runs. Dropped when it has ended and this process lives.
#[derive(Debug)]
pub struct RunningJob<'a> {
    counts: &'a CrashCounts,
    at: Option<usize>,
    has_run: bool,
}

impl RunningJob<'_> {
    /// Ends a job that has not run after all. Its crashes and its suspicion stay.
    pub fn skip(mut self) {
        self.has_run = false;
    }
}

impl CrashCounts {
    /// Reads what an earlier process has left. Without a file, nothing outlives the process.
    pub fn read(file: Option<File>) -> CrashCounts {
        let mut bytes = vec![0; ENTRIES * BYTES];
        let length = file
            .as_ref()
            .map_or(0, |file| read_at_most(file, &mut bytes));
        let mut entries: Vec<_> = bytes[..length].chunks_exact(BYTES).map(decode).collect();
        let running: u64 = entries.iter().map(|entry| u64::from(entry.running)).sum();
        let suspects = entries.iter().filter(|entry| entry.is_suspect);
        let suspects: u64 = suspects.map(|entry| u64::from(entry.running)).sum();
        for entry in entries.iter_mut().filter(|entry| entry.running > 0) {
            let is_cause = running == 1 || entry.is_suspect && suspects == 1;
            entry.crashes = entry.crashes.saturating_add(u32::from(is_cause));
            entry.is_suspect = true;
            entry.running = 0;
        }
        let counts = CrashCounts {
            file,
            entries: Mutex::new(entries),
            is_ending: AtomicBool::new(false),
        };
        let len = counts.lock().len();
        (0..len).for_each(|at| counts.write(at, &counts.lock()));
        counts
    }

    /// How often this process has crashed while a suspect ran alone, or as the only one. None if
    /// the job is no suspect.
    pub fn suspicion(&self, queue: &Queue, job: &Job) -> Option<u32> {
        let entries = self.lock();
        // Usually there is none, and jobs need not be read for it.
        if entries.iter().all(|entry| !entry.is_suspect) {
            return None;
        }
        let key = key(queue, job);
        let mut suspects = entries.iter().filter(|entry| entry.is_suspect);
        suspects.find(|it| it.key == key).map(|it| it.crashes)
    }

    /// Records that a job begins. Also returns how often this process has crashed while it ran
    /// alone, or as the only suspect.
    pub fn begin(&self, queue: &Queue, job: &Job) -> (RunningJob<'_>, u32) {
        let key = key(queue, job);
        let mut entries = self.lock();
        let is_free = |entry: &CrashCount| !entry.is_suspect && entry.running == 0;
        let known = entries.iter().position(|it| it.key == key && !is_free(it));
        if self.is_ending.load(Ordering::Relaxed) {
            let crashes = known.map_or(0, |at| entries[at].crashes);
            let running = RunningJob {
                counts: self,
                at: None,
                has_run: true,
            };
            return (running, crashes);
        }
        let at = known.or_else(|| entries.iter().position(is_free));
        let at = at.or_else(|| {
            (entries.len() < ENTRIES).then(|| {
                entries.push(CrashCount::default());
                entries.len() - 1
            })
        });
        // Suspects that were not received since run on another machine, or are deleted.
        let at = at.or_else(|| entries.iter().position(|entry| entry.running == 0));
        let mut crashes = 0;
        if let Some(at) = at {
            let entry = &mut entries[at];
            if known.is_none() {
                *entry = CrashCount {
                    key,
                    ..CrashCount::default()
                };
            }
            entry.running += 1;
            crashes = entry.crashes;
            self.write(at, &entries);
        }
        let running = RunningJob {
            counts: self,
            at,
            has_run: true,
        };
        (running, crashes)
    }

    /// This process was asked to end. If it is killed from now on, because its jobs take longer
    /// than an orchestrator waits, that is not a job's fault.
    pub fn end(&self) {
        let mut entries = self.lock();
        self.is_ending.store(true, Ordering::Relaxed);
        for at in 0..entries.len() {
            if std::mem::take(&mut entries[at].running) > 0 {
                self.write(at, &entries);
            }
        }
    }

    /// Empties the file, unless a later process must know of suspects.
    pub fn close(&self) {
        let entries = self.lock();
        let is_clean = |entry: &CrashCount| !entry.is_suspect && entry.running == 0;
        if let Some(file) = self.file.as_ref().filter(|_| entries.iter().all(is_clean)) {
            let _ = file.set_len(0);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<CrashCount>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A full disk costs no job anything: then nothing is remembered.
    fn write(&self, at: usize, entries: &[CrashCount]) {
        if let Some(file) = &self.file {
            let _ = file.write_all_at(&encode(&entries[at]), (at * BYTES) as u64);
        }
    }
}

impl Drop for RunningJob<'_> {
    fn drop(&mut self) {
        let Some(at) = self.at else { return };
        let mut entries = self.counts.lock();
        let entry = &mut entries[at];
        entry.running = entry.running.saturating_sub(1);
        if self.has_run {
            // The process has survived it.
            entry.is_suspect = false;
            entry.crashes = 0;
        }
        self.counts.write(at, &entries);
    }
}

fn key(queue: &Queue, job: &Job) -> u64 {
    let mut hasher = DefaultHasher::new();
    queue.name.hash(&mut hasher);
    match format::lasting_id(queue, &job.payload) {
        Some(id) => id.hash(&mut hasher),
        None => job.payload.hash(&mut hasher),
    }
    hasher.finish()
}

fn read_at_most(file: &File, bytes: &mut [u8]) -> usize {
    let mut length = 0;
    while let Ok(read @ 1..) = file.read_at(&mut bytes[length..], length as u64) {
        length += read;
    }
    length
}

fn encode(entry: &CrashCount) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(&entry.key.to_le_bytes());
    bytes[8..12].copy_from_slice(&entry.crashes.to_le_bytes());
    bytes[12..16].copy_from_slice(&u32::from(entry.is_suspect).to_le_bytes());
    bytes[16..].copy_from_slice(&entry.running.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> CrashCount {
    let number = |at: usize| {
        let bytes = bytes[at..].first_chunk::<4>();
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    CrashCount {
        key: bytes
            .first_chunk()
            .map_or(0, |key| u64::from_le_bytes(*key)),
        crashes: number(8),
        is_suspect: number(12) > 0,
        running: number(16),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::fronts::queue::job::Lease;

    fn job(payload: &'static str) -> Job {
        Job {
            lease: Lease {
                id: "1".into(),
                token: Bytes::new(),
            },
            payload: Bytes::from_static(payload.as_bytes()),
            unread: None,
            attempts: 1,
        }
    }

    /// A process that is killed while these jobs run. Returns their crashes before.
    fn killed_with(file: &File, jobs: &[&'static str]) -> Vec<u32> {
        let counts = CrashCounts::read(Some(file.try_clone().unwrap()));
        let queue = Queue::default();
        let begun = jobs.iter().map(|payload| {
            let (running, before) = counts.begin(&queue, &job(payload));
            std::mem::forget(running);
            before
        });
        begun.collect()
    }

    #[test]
    fn job_that_ran_alone_is_the_cause_and_one_that_ran_with_others_is_a_suspect() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(killed_with(&file, &["a", "b"]), [0, 0]);
        assert_eq!(killed_with(&file, &["a"]), [0]);
        assert_eq!(killed_with(&file, &["a"]), [1]);
        let counts = CrashCounts::read(Some(file));
        let queue = Queue::default();
        for (payload, crashes) in [("a", Some(2)), ("b", Some(0)), ("c", None)] {
            assert_eq!(counts.suspicion(&queue, &job(payload)), crashes);
        }
        let (running, before) = counts.begin(&queue, &job("a"));
        assert_eq!(before, 2);
        drop(running);
        assert_eq!(counts.suspicion(&queue, &job("a")), None);
        let other = Queue {
            name: "other".into(),
            ..Queue::default()
        };
        assert_eq!(counts.suspicion(&other, &job("b")), None);
    }

    #[test]
    fn only_suspect_that_ran_is_the_cause_although_other_jobs_ran_with_it() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(killed_with(&file, &["a", "b"]), [0, 0]);
        assert_eq!(killed_with(&file, &["a", "c"]), [0, 0]);
        assert_eq!(killed_with(&file, &["d", "a"]), [0, 1]);
        // Two suspects: either may be the cause.
        assert_eq!(killed_with(&file, &["a", "b"]), [2, 0]);
        let counts = CrashCounts::read(Some(file));
        let queue = Queue::default();
        for (payload, crashes) in [("a", 2), ("b", 0), ("c", 0), ("d", 0)] {
            let known = counts.suspicion(&queue, &job(payload));
            assert_eq!(known, Some(crashes), "{payload}");
        }
        assert_eq!(counts.suspicion(&queue, &job("e")), None);
    }

    #[test]
    fn job_that_has_not_run_keeps_its_crashes() {
        let file = tempfile::tempfile().unwrap();
        killed_with(&file, &["a"]);
        let counts = CrashCounts::read(Some(file.try_clone().unwrap()));
        let queue = Queue::default();
        counts.begin(&queue, &job("a")).0.skip();
        counts.begin(&queue, &job("b")).0.skip();
        assert_eq!(counts.suspicion(&queue, &job("a")), Some(1));
        assert_eq!(counts.suspicion(&queue, &job("b")), None);
        // It does not count as running, so another kill is not its fault.
        drop(counts);
        let counts = CrashCounts::read(Some(file));
        assert_eq!(counts.begin(&queue, &job("a")).1, 1);
        assert_eq!(counts.suspicion(&queue, &job("a")), None);
    }

    #[test]
    fn kill_after_a_request_to_end_is_no_fault_of_jobs() {
        let file = tempfile::tempfile().unwrap();
        killed_with(&file, &["a"]);
        let queue = Queue::default();
        for _ in 0..3 {
            let counts = CrashCounts::read(Some(file.try_clone().unwrap()));
            let (before, known) = counts.begin(&queue, &job("a"));
            assert_eq!(known, 1);
            counts.end();
            let (after, known) = counts.begin(&queue, &job("b"));
            assert_eq!(known, 0);
            std::mem::forget((before, after));
        }
        let counts = CrashCounts::read(Some(file.try_clone().unwrap()));
        assert!(counts.suspicion(&queue, &job("a")).is_some());
        assert!(counts.suspicion(&queue, &job("b")).is_none());
        counts.close();
        assert!(file.metadata().unwrap().len() > 0);
        drop(counts.begin(&queue, &job("a")));
        counts.close();
        assert_eq!(file.metadata().unwrap().len(), 0);
    }

    #[test]
    fn entries_are_used_again_and_garbage_harms_nothing() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[0xff; 3 * BYTES + 7], 0).unwrap();
        let counts = CrashCounts::read(Some(file.try_clone().unwrap()));
        let queue = Queue::default();
        for _ in 0..100 {
            drop(counts.begin(&queue, &job("a")));
        }
        assert_eq!(counts.lock().len(), 4);
        let many = CrashCounts::default();
        let running: Vec<_> = (0..ENTRIES + 5)
            .map(|number| {
                let payload = number.to_string().leak();
                many.begin(&queue, &job(payload)).0
            })
            .collect();
        assert_eq!(many.lock().len(), ENTRIES);
        drop(running);
    }
}

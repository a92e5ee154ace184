//! Asks workers for the backtraces of slow requests, without a signal: sets the interrupt flag of
//! PHP in the worker's memory (docs/internals/decisions.md).

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tracing::debug;

/// The most workers that wait for the thread to set their flags. Others give no backtrace.
const MAX_ASKED: usize = 1024;

/// A write that takes longer may take forever.
const LONGEST_WRITE: Duration = Duration::from_secs(1);

/// The memory of a worker.
#[derive(Debug)]
struct WorkerMemory {
    pid: u32,
    /// `/proc/PID/mem`. It stays that of the process, whatever gets its id later.
    memory: File,
    /// The address of PHP's interrupt flag.
    flag: u64,
}

impl WorkerMemory {
    /// Makes PHP's virtual machine call its interrupt handler at the next loop or call. No system
    /// call of the worker is interrupted.
    fn interrupt(&self) {
        if let Err(error) = self.memory.write_all_at(&[1], self.flag) {
            debug!(pid = self.pid, %error, "cannot ask the worker for a backtrace");
        }
    }
}

/// The memory of the workers that have given access to it.
#[derive(Debug, Default)]
pub struct WorkerMemories(Mutex<HashMap<u32, Arc<WorkerMemory>>>);

impl WorkerMemories {
    pub fn add(&self, pid: u32, memory: OwnedFd, flag: u64) {
        let memory = Arc::new(WorkerMemory {
            pid,
            memory: memory.into(),
            flag,
        });
        self.lock().insert(pid, memory);
    }

    /// The process has exited.
    pub fn remove(&self, pid: u32) {
        self.lock().remove(&pid);
    }

    /// Interrupts PHP in this worker. The error says why there is no backtrace.
    pub fn interrupt(&self, pid: u32) -> Result<(), &'static str> {
        let memory = self.lock().get(&pid).cloned();
        let memory = memory.ok_or("the worker's memory cannot be opened (/proc/self/mem)")?;
        let writer = writer().ok_or("the thread for backtraces cannot be started")?;
        let is_asked = writer.write(memory);
        is_asked
            .then_some(())
            .ok_or("writing to the memory of a worker takes too long")
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Arc<WorkerMemory>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that writes to the memory of workers. A script that has taken over its process can let
/// a write wait as long as it likes, so no other work waits for it.
struct Writer {
    asked: SyncSender<Arc<WorkerMemory>>,
    /// Since when the thread has been writing.
    since: Arc<Mutex<Option<Instant>>>,
}

impl Writer {
    /// None if the thread cannot be started.
    fn start(write: impl Fn(&WorkerMemory) + Send + 'static) -> Option<Writer> {
        let (asked, received) = sync_channel::<Arc<WorkerMemory>>(MAX_ASKED);
        let since: Arc<Mutex<Option<Instant>>> = Arc::default();
        let of_thread = since.clone();
        let run = move || {
            let set = |since| *of_thread.lock().unwrap_or_else(PoisonError::into_inner) = since;
            for memory in received {
                set(Some(Instant::now()));
                write(&memory);
                set(None);
            }
        };
        let thread = std::thread::Builder::new().name("backtraces".into());
        drop(thread.spawn(run).ok()?);
        Some(Writer { asked, since })
    }

    /// Asks the thread to write. False if its current write takes longer than [`LONGEST_WRITE`], or
    /// if too many wait.
    fn write(&self, memory: Arc<WorkerMemory>) -> bool {
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let is_held = since.is_some_and(|since| since.elapsed() > LONGEST_WRITE);
        !is_held && self.asked.try_send(memory).is_ok()
    }
}

/// The thread of all workers, from the first slow request on.
fn writer() -> Option<&'static Writer> {
    static WRITER: OnceLock<Option<Writer>> = OnceLock::new();
    let start = || Writer::start(WorkerMemory::interrupt);
    WRITER.get_or_init(start).as_ref()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::*;

    static FLAG: AtomicU8 = AtomicU8::new(0);

    #[test]
    fn interrupt_sets_the_flag_in_the_memory_of_a_known_worker() {
        let memories = WorkerMemories::default();
        let memory = File::options()
            .read(true)
            .write(true)
            .open("/proc/self/mem");
        memories.add(7, memory.unwrap().into(), FLAG.as_ptr() as u64);
        assert!(memories.interrupt(8).is_err());
        assert_eq!(FLAG.load(Ordering::SeqCst), 0);
        assert_eq!(memories.interrupt(7), Ok(()));
        while FLAG.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        memories.remove(7);
        assert!(memories.interrupt(7).is_err());
    }

    #[test]
    fn writer_that_a_script_holds_promises_no_backtrace() {
        let (release, held) = std::sync::mpsc::channel::<()>();
        let writer = Writer::start(move |_| held.recv().unwrap_or_default()).unwrap();
        let memory = Arc::new(WorkerMemory {
            pid: 7,
            memory: File::open("/dev/null").unwrap(),
            flag: 0,
        });
        assert!(writer.write(memory.clone()));
        let until = Instant::now() + 10 * LONGEST_WRITE;
        while writer.write(memory.clone()) {
            assert!(Instant::now() < until);
            std::thread::sleep(LONGEST_WRITE / 4);
        }
        drop(release);
        while !writer.write(memory.clone()) {
            assert!(Instant::now() < until);
            std::thread::sleep(LONGEST_WRITE / 100);
        }
    }
}

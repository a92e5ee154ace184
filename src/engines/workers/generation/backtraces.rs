//! Asks workers for the backtraces of slow requests, without a signal: sets the interrupt flag of
//! PHP in the worker's memory (docs/internals/decisions.md).

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tracing::debug;

/// The most workers that wait for the thread to set their flags. Others give no backtrace.
const MAX_ASKED: usize = 1024;

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

    /// Interrupts PHP in this worker. False if that is not possible.
    pub fn interrupt(&self, pid: u32) -> bool {
        let memory = self.lock().get(&pid).cloned();
        memory
            .zip(writer())
            .is_some_and(|(memory, writer)| writer.try_send(memory).is_ok())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Arc<WorkerMemory>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that writes to the memory of workers, from the first slow request on. A script that
/// has taken over its process can let a write wait as long as it likes, so no other work waits for
/// it. None if the thread cannot be started.
fn writer() -> Option<&'static SyncSender<Arc<WorkerMemory>>> {
    static WRITER: OnceLock<Option<SyncSender<Arc<WorkerMemory>>>> = OnceLock::new();
    let start = || {
        let (sender, asked) = sync_channel::<Arc<WorkerMemory>>(MAX_ASKED);
        let thread = std::thread::Builder::new().name("backtraces".into());
        let started = thread.spawn(move || asked.iter().for_each(|memory| memory.interrupt()));
        started.is_ok().then_some(sender)
    };
    WRITER.get_or_init(start).as_ref()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};
    use std::time::Duration;

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
        assert!(!memories.interrupt(8));
        assert_eq!(FLAG.load(Ordering::SeqCst), 0);
        assert!(memories.interrupt(7));
        while FLAG.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        memories.remove(7);
        assert!(!memories.interrupt(7));
    }
}

//! The rings of a generation, and who waits for what is in them.
//!
//! While all threads of ours are awake, workers wake none: their letters lie in memory until one looks, which they do with each
//! event, and before they sleep. Where one sleeps, a worker rings the doorbell; one does, until that thread or another sleeps again.
//! Where the [runtime](observe_parking) does not say when its threads sleep, each letter rings.

use std::cell::Cell;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwapOption;
use futures_util::task::AtomicWaker;
use surus_sys::eventfd::Doorbell;
use surus_sys::rings::{NeedWakeup, Rings};

/// The rings, and the readers of the outboxes.
pub struct RingPoller {
    pub rings: Rings,
    /// Rung for a letter that nobody would see.
    pub doorbell: Doorbell,
    /// Of each worker's outbox, the one who reads it by now: a process that has ended may have one, too.
    readers: Vec<ArcSwapOption<AtomicWaker>>,
}

impl RingPoller {
    pub fn new(workers: usize) -> io::Result<Arc<RingPoller>> {
        let poller = Arc::new(RingPoller {
            rings: Rings::new(workers)?,
            doorbell: Doorbell::new()?,
            readers: (0..workers).map(|_| ArcSwapOption::empty()).collect(),
        });
        let mut runtime_threads = runtime_threads();
        runtime_threads.each(|_| ());
        runtime_threads.pollers.push(Arc::downgrade(&poller));
        poller.rings.set_need_wakeup(runtime_threads.need_wakeup());
        Ok(poller)
    }

    /// Wakes the readers of the outboxes in which there are new letters. Are there any?
    pub fn poll(&self) -> bool {
        let mut any = false;
        self.rings.posted(|worker| {
            any = true;
            if let Some(reader) = self.readers[worker].load().as_ref() {
                reader.wake();
            }
        });
        any
    }

    /// Wakes the readers of all outboxes in which there is something, whether or not it was said to be new.
    pub fn poll_all(&self) {
        self.poll();
        self.rings.unread(|worker| {
            if let Some(reader) = self.readers[worker].load().as_ref() {
                reader.wake();
            }
        });
    }

    /// As long as what is returned lives, its owner looks for letters all the time, and is not woken for any.
    pub fn suppress_notifications(&self) -> Suppressed<'_> {
        self.rings.set_need_wakeup(NeedWakeup::Never);
        Suppressed(self)
    }

    /// From here on, who registers there is woken for this worker's letters. Those that were there before are not new.
    pub fn reader(&self, worker: usize) -> Arc<AtomicWaker> {
        let reader = Arc::new(AtomicWaker::new());
        if let Some(place) = self.readers.get(worker) {
            place.store(Some(reader.clone()));
        }
        reader
    }
}

/// Somebody looks.
pub struct Suppressed<'a>(&'a RingPoller);

impl Drop for Suppressed<'_> {
    fn drop(&mut self) {
        let need = runtime_threads().need_wakeup();
        if need != NeedWakeup::Never {
            // Before it looks for the last time: what comes later wakes it.
            self.0.rings.set_need_wakeup(need);
            self.0.poll();
        }
    }
}

/// All there is in this process.
struct RuntimeThreads {
    pollers: Vec<Weak<RingPoller>>,
    /// How many threads say when they sleep.
    threads: usize,
    /// Those of them of which it is known that they do not.
    awake: usize,
}

static RUNTIME_THREADS: Mutex<RuntimeThreads> = Mutex::new(RuntimeThreads {
    pollers: Vec::new(),
    threads: 0,
    awake: 0,
});

fn runtime_threads() -> MutexGuard<'static, RuntimeThreads> {
    RUNTIME_THREADS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

impl RuntimeThreads {
    fn need_wakeup(&self) -> NeedWakeup {
        match self.threads {
            0 => NeedWakeup::Always,
            threads if self.awake < threads => NeedWakeup::Needed,
            _ => NeedWakeup::Never,
        }
    }

    fn each(&mut self, visit: impl Fn(&RingPoller)) {
        self.pollers.retain(|poller| {
            let poller = poller.upgrade();
            poller.as_deref().inspect(|poller| visit(poller)).is_some()
        });
    }
}

/// A thread that counts as awake until it sleeps or ends.
struct ThreadParkState(Cell<bool>);

impl ThreadParkState {
    fn unpark(&self) {
        if self.0.replace(true) {
            return;
        }
        let mut runtime_threads = runtime_threads();
        runtime_threads.awake += 1;
        if runtime_threads.need_wakeup() == NeedWakeup::Never {
            runtime_threads.each(|poller| poller.rings.set_need_wakeup(NeedWakeup::Never));
        }
    }

    fn park(&self) {
        let mut runtime_threads = runtime_threads();
        if self.0.replace(false) {
            runtime_threads.awake -= 1;
        }
        runtime_threads.each(|poller| {
            // Before it looks: what comes later wakes it.
            poller.rings.set_need_wakeup(NeedWakeup::Needed);
            poller.poll();
        });
    }
}

impl Drop for ThreadParkState {
    fn drop(&mut self) {
        self.park();
    }
}

thread_local! {
    static PARK_STATE: ThreadParkState = const { ThreadParkState(Cell::new(false)) };
}

/// Has the `threads` of a runtime, the only one in this process, say when they sleep. None may become another's: no
/// `block_in_place`.
pub fn observe_parking(runtime: &mut tokio::runtime::Builder, threads: usize) {
    runtime_threads().threads = threads;
    runtime.on_thread_park(|| PARK_STATE.with(ThreadParkState::park));
    runtime.on_thread_unpark(|| PARK_STATE.with(ThreadParkState::unpark));
}

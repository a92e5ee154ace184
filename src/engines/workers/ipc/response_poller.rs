//! Wakes the tasks that read response rings, with as few notifications as possible.
//!
//! While all runtime threads are unparked, workers notify none of them. Their response frames stay
//! in memory until a thread polls the rings, which it does for each event and before it parks.
//! While a thread is parked, a worker rings the doorbell (an eventfd), and no other worker does so
//! until that thread or another one parks again. If the [runtime](observe_parking) does not report
//! when its threads park, every frame rings the doorbell.

use std::cell::Cell;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwapOption;
use futures_util::task::AtomicWaker;
use surus_sys::eventfd::Doorbell;
use surus_sys::rings::{NeedWakeup, Rings};

/// The rings of a generation, and the tasks that read its response rings.
pub struct ResponsePoller {
    pub rings: Rings,
    /// Rung for a frame that no thread would poll for.
    pub doorbell: Doorbell,
    /// The current reader of each worker's response ring. A process that has exited may still have
    /// one, too.
    readers: Vec<ArcSwapOption<AtomicWaker>>,
}

impl ResponsePoller {
    pub fn new(workers: usize) -> io::Result<Arc<ResponsePoller>> {
        let poller = Arc::new(ResponsePoller {
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

    /// Wakes the readers of all response rings with new frames. Returns whether there were any.
    pub fn poll(&self) -> bool {
        let mut any = false;
        self.rings.written(|worker| {
            any = true;
            if let Some(reader) = self.readers[worker].load().as_ref() {
                reader.wake();
            }
        });
        any
    }

    /// Wakes the readers of all response rings that are not empty, even if no frame was announced.
    pub fn poll_all(&self) {
        self.poll();
        self.rings.unread(|worker| {
            if let Some(reader) = self.readers[worker].load().as_ref() {
                reader.wake();
            }
        });
    }

    /// Until the returned value is dropped, its owner keeps polling, and workers do not notify.
    pub fn suppress_notifications(&self) -> Suppressed<'_> {
        self.rings.set_need_wakeup(NeedWakeup::Suppressed);
        Suppressed(self)
    }

    /// Makes the caller the reader of this worker's response ring: it is woken for frames from now
    /// on, not for those that were there before.
    pub fn reader(&self, worker: usize) -> Arc<AtomicWaker> {
        let reader = Arc::new(AtomicWaker::new());
        if let Some(slot) = self.readers.get(worker) {
            slot.store(Some(reader.clone()));
        }
        reader
    }
}

/// Notifications are suppressed until this is dropped.
pub struct Suppressed<'a>(&'a ResponsePoller);

impl Drop for Suppressed<'_> {
    fn drop(&mut self) {
        let need = runtime_threads().need_wakeup();
        if need != NeedWakeup::Suppressed {
            // Set before the last poll, so that a later frame notifies.
            self.0.rings.set_need_wakeup(need);
            self.0.poll();
        }
    }
}

/// The runtime's threads, and all pollers of this process.
struct RuntimeThreads {
    pollers: Vec<Weak<ResponsePoller>>,
    /// How many threads report when they park.
    threads: usize,
    /// How many of them are unparked, as far as known.
    unparked: usize,
}

static RUNTIME_THREADS: Mutex<RuntimeThreads> = Mutex::new(RuntimeThreads {
    pollers: Vec::new(),
    threads: 0,
    unparked: 0,
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
            threads if self.unparked < threads => NeedWakeup::Needed,
            _ => NeedWakeup::Suppressed,
        }
    }

    fn each(&mut self, visit: impl Fn(&ResponsePoller)) {
        self.pollers.retain(|poller| {
            let poller = poller.upgrade();
            poller.as_deref().inspect(|poller| visit(poller)).is_some()
        });
    }
}

/// Whether this thread is unparked. It counts as unparked until it parks or exits.
struct ThreadParkState(Cell<bool>);

impl ThreadParkState {
    fn unpark(&self) {
        if self.0.replace(true) {
            return;
        }
        let mut runtime_threads = runtime_threads();
        runtime_threads.unparked += 1;
        if runtime_threads.need_wakeup() == NeedWakeup::Suppressed {
            runtime_threads.each(|poller| poller.rings.set_need_wakeup(NeedWakeup::Suppressed));
        }
    }

    fn park(&self) {
        let mut runtime_threads = runtime_threads();
        if self.0.replace(false) {
            runtime_threads.unparked -= 1;
        }
        runtime_threads.each(|poller| {
            // Set before the poll, so that a later frame notifies.
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

/// Makes the `threads` of the process's only runtime report when they park. `block_in_place` must
/// not be used: it would hand a runtime thread's work to another thread.
pub fn observe_parking(runtime: &mut tokio::runtime::Builder, threads: usize) {
    runtime_threads().threads = threads;
    runtime.on_thread_park(|| PARK_STATE.with(ThreadParkState::park));
    runtime.on_thread_unpark(|| PARK_STATE.with(ThreadParkState::unpark));
}

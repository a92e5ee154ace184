//! The rings of a generation, and who waits for what is in them.
//!
//! While all threads of ours are awake, workers wake none: their letters lie in memory until one
//! looks, which they do with each event, and before they sleep. Where one sleeps, a worker rings
//! the bell; one does, until that thread or another sleeps again. Where the
//! [runtime](observe_sleep) does not say when its threads sleep, each letter rings.

use std::cell::Cell;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwapOption;
use futures_util::task::AtomicWaker;
use surus_sys::eventfd::Bell;
use surus_sys::rings::{Rings, Sleep};

/// The rings, and the readers of the outboxes.
pub struct Post {
    pub rings: Rings,
    /// Rung for a letter that nobody would see.
    pub bell: Bell,
    /// Of each worker's outbox, the one who reads it by now: a process that has ended may have one,
    /// too.
    readers: Vec<ArcSwapOption<AtomicWaker>>,
}

impl Post {
    pub fn new(workers: usize) -> io::Result<Arc<Post>> {
        let post = Arc::new(Post {
            rings: Rings::new(workers)?,
            bell: Bell::new()?,
            readers: (0..workers).map(|_| ArcSwapOption::empty()).collect(),
        });
        let mut house = house();
        house.each(|_| ());
        house.posts.push(Arc::downgrade(&post));
        post.rings.set_asleep(house.sleep());
        Ok(post)
    }

    /// Wakes the readers of the outboxes in which there are new letters. Are there any?
    pub fn look(&self) -> bool {
        let mut any = false;
        self.rings.posted(|worker| {
            any = true;
            if let Some(reader) = self.readers[worker].load().as_ref() {
                reader.wake();
            }
        });
        any
    }

    /// Wakes the readers of all outboxes in which there is something, whether or not it was said to
    /// be new.
    pub fn look_at_all(&self) {
        self.look();
        self.rings.unread(|worker| {
            if let Some(reader) = self.readers[worker].load().as_ref() {
                reader.wake();
            }
        });
    }

    /// As long as what is returned lives, its owner looks for letters all the time, and is not
    /// woken for any.
    pub fn attend(&self) -> Attending<'_> {
        self.rings.set_asleep(Sleep::Awake);
        Attending(self)
    }

    /// From here on, who registers there is woken for this worker's letters. Those that were there
    /// before are not new.
    pub fn reader(&self, worker: usize) -> Arc<AtomicWaker> {
        let reader = Arc::new(AtomicWaker::new());
        if let Some(place) = self.readers.get(worker) {
            place.store(Some(reader.clone()));
        }
        reader
    }
}

/// Somebody looks.
pub struct Attending<'a>(&'a Post);

impl Drop for Attending<'_> {
    fn drop(&mut self) {
        let sleep = house().sleep();
        if sleep != Sleep::Awake {
            // Before it looks for the last time: what comes later wakes it.
            self.0.rings.set_asleep(sleep);
            self.0.look();
        }
    }
}

/// All there is in this process.
struct House {
    posts: Vec<Weak<Post>>,
    /// How many threads say when they sleep.
    threads: usize,
    /// Those of them of which it is known that they do not.
    awake: usize,
}

static HOUSE: Mutex<House> = Mutex::new(House {
    posts: Vec::new(),
    threads: 0,
    awake: 0,
});

fn house() -> MutexGuard<'static, House> {
    HOUSE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl House {
    fn sleep(&self) -> Sleep {
        match self.threads {
            0 => Sleep::Unknown,
            threads if self.awake < threads => Sleep::Asleep,
            _ => Sleep::Awake,
        }
    }

    fn each(&mut self, visit: impl Fn(&Post)) {
        self.posts.retain(|post| {
            let post = post.upgrade();
            post.as_deref().inspect(|post| visit(post)).is_some()
        });
    }
}

/// A thread that counts as awake until it sleeps or ends.
struct Awake(Cell<bool>);

impl Awake {
    fn wakes(&self) {
        if self.0.replace(true) {
            return;
        }
        let mut house = house();
        house.awake += 1;
        if house.sleep() == Sleep::Awake {
            house.each(|post| post.rings.set_asleep(Sleep::Awake));
        }
    }

    fn sleeps(&self) {
        let mut house = house();
        if self.0.replace(false) {
            house.awake -= 1;
        }
        house.each(|post| {
            // Before it looks: what comes later wakes it.
            post.rings.set_asleep(Sleep::Asleep);
            post.look();
        });
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.sleeps();
    }
}

thread_local! {
    static AWAKE: Awake = const { Awake(Cell::new(false)) };
}

/// Has the `threads` of a runtime, the only one in this process, say when they sleep. None may
/// become another's: no `block_in_place`.
pub fn observe_sleep(runtime: &mut tokio::runtime::Builder, threads: usize) {
    house().threads = threads;
    runtime.on_thread_park(|| AWAKE.with(Awake::sleeps));
    runtime.on_thread_unpark(|| AWAKE.with(Awake::wakes));
}

//! The rings of a generation, and who waits for what is in them.
//!
//! While a thread of ours is awake, workers do not wake one: their letters lie in memory until it looks, which it does between
//! events, and before it sleeps. Where the [runtime](observe_sleep) does not say when its threads sleep, they count as asleep
//! always, and everything comes by socket.

use std::cell::Cell;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;

use futures_util::task::AtomicWaker;
use surus_sys::rings::Rings;

/// The rings, and the readers of the outboxes.
pub struct Post {
    pub rings: Rings,
    readers: Vec<AtomicWaker>,
}

impl Post {
    pub fn new(workers: usize) -> io::Result<Arc<Post>> {
        let post = Arc::new(Post {
            rings: Rings::new(workers)?,
            readers: (0..workers).map(|_| AtomicWaker::new()).collect(),
        });
        let mut house = house();
        house.posts.push(Arc::downgrade(&post));
        post.rings.set_asleep(house.awake == 0);
        Ok(post)
    }

    /// Wakes the readers of the outboxes in which there are new letters.
    pub fn look(&self) {
        self.rings.posted(|worker| self.readers[worker].wake());
    }

    /// `reader` is woken for a letter of this worker. Letters that were there before are not new.
    pub fn register(&self, worker: usize, reader: &Waker) {
        if let Some(place) = self.readers.get(worker) {
            place.register(reader);
        }
    }
}

/// All there is in this process.
struct House {
    posts: Vec<Weak<Post>>,
    /// Threads of which we know that they are awake, and will say that they sleep.
    awake: usize,
}

static HOUSE: Mutex<House> = Mutex::new(House {
    posts: Vec::new(),
    awake: 0,
});

fn house() -> MutexGuard<'static, House> {
    HOUSE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl House {
    fn each(&mut self, visit: impl Fn(&Post)) {
        self.posts.retain(|post| {
            let post = post.upgrade();
            post.as_deref().inspect(|post| visit(post)).is_some()
        });
    }
}

/// A thread that counts as awake until it sleeps or ends.
struct Awake(Cell<bool>);

impl Drop for Awake {
    fn drop(&mut self) {
        self.sleep();
    }
}

impl Awake {
    fn wake(&self) {
        if self.0.replace(true) {
            return;
        }
        let mut house = house();
        house.awake += 1;
        if house.awake == 1 {
            house.each(|post| post.rings.set_asleep(false));
        }
    }

    fn sleep(&self) {
        let mut house = house();
        let is_last = self.0.replace(false) && {
            house.awake -= 1;
            house.awake == 0
        };
        house.each(|post| {
            if is_last {
                post.rings.set_asleep(true);
            }
            post.look();
        });
    }
}

thread_local! {
    static AWAKE: Awake = const { Awake(Cell::new(false)) };
}

/// Has the threads of a runtime say when they sleep. None of them may become another's: no `block_in_place`.
pub fn observe_sleep(runtime: &mut tokio::runtime::Builder) {
    runtime.on_thread_park(|| AWAKE.with(Awake::sleep));
    runtime.on_thread_unpark(|| AWAKE.with(Awake::wake));
}

//! Finds answers that mix releases while one is deployed under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Surus waits for half a second without a change. If a busy machine stops a test for longer in the
/// middle of a release, nothing is promised.
pub const MOMENT: Duration = Duration::from_millis(300);

/// The pause of a client between two requests, because other tests run beside.
const PAUSE: Duration = Duration::from_millis(2);

/// Clients that look for answers that come from several releases.
pub struct Clients {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<(usize, Vec<String>)>>,
}

impl Clients {
    /// `ask` returns the status and the text of one answer, whose parts name their releases. Only
    /// the first `parts` of them are compared.
    pub fn start(
        parts: usize,
        ask: impl Fn() -> (u16, String) + Clone + Send + 'static,
    ) -> Clients {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |_| {
            let (stop, ask) = (stop.clone(), ask.clone());
            std::thread::spawn(move || {
                let (mut answers, mut mixed) = (0, Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(PAUSE);
                    let (status, text) = ask();
                    // A busy machine may serve it too late.
                    if [503, 504].contains(&status) {
                        continue;
                    }
                    let mut versions: Vec<_> = text.split(' ').take(parts).collect();
                    versions.dedup();
                    if status != 200 || versions.len() > 1 {
                        mixed.push(text);
                    }
                    answers += 1;
                }
                (answers, mixed)
            })
        };
        let threads = (0..3).map(client).collect();
        Clients { stop, threads }
    }

    /// Returns the answers that came from several releases, or had another status.
    pub fn stop(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for thread in self.threads {
            let (answers, mixed) = thread.join().unwrap();
            assert!(answers > 0);
            all.extend(mixed);
        }
        all
    }
}

//! Measures the resident memory of a running `surus`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::tls::metric;

pub const MIB: u64 = 1 << 20;

/// The resident memory of a process in bytes (proc(5), VmRSS).
pub fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.unwrap().split_ascii_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() * 1024
}

/// Samples the resident memory of a process; returns the peak when asked.
pub struct Sampler {
    before: u64,
    is_over: Arc<AtomicBool>,
    peak: JoinHandle<u64>,
}

impl Sampler {
    pub fn start(pid: u32) -> Sampler {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let before = resident(pid);
        let peak = std::thread::spawn(move || {
            let mut peak = before;
            while !over.load(Ordering::Relaxed) {
                peak = peak.max(resident(pid));
                std::thread::sleep(Duration::from_millis(2));
            }
            peak
        });
        Sampler {
            before,
            is_over,
            peak,
        }
    }

    /// The highest growth of the process in bytes.
    pub fn peak(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.peak.join().unwrap() - self.before
    }
}

/// Waits until a process uses at most `bytes`; the bytes that it uses then, or after a minute.
pub fn settles_at(pid: u32, bytes: u64) -> u64 {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let now = resident(pid);
        if now <= bytes || Instant::now() > until {
            return now;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the server of a project counts no more bytes of requests and responses.
pub fn wait_for_release(dir: &Path) {
    let until = Instant::now() + Duration::from_secs(60);
    while counted(dir) > 0 {
        assert!(
            Instant::now() < until,
            "{} bytes stay counted",
            counted(dir)
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The counted bytes of requests and responses of a project's server.
pub fn counted(dir: &Path) -> u64 {
    metric(dir, "surus_buffered_bytes{buffer=\"memory\"} ")
}

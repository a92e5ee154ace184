//! Measures what other processes than the lab's own use of the CPUs.

use std::time::Instant;

use surus_measure::probe;

/// The CPU time in seconds, on all CPUs, of which `/proc/stat` can say what part others have used.
/// It counts in ticks of 10 ms.
const LEAST_CPU_TIME: f64 = 0.5;

/// A span of time from its beginning on.
pub struct Span {
    began: Instant,
    busy: Option<f64>,
    own: f64,
}

impl Span {
    pub fn begin() -> Span {
        Span {
            own: own_seconds(),
            busy: busy_seconds(),
            began: Instant::now(),
        }
    }

    /// The share of all CPUs that others have used, in percent, time that a hypervisor took
    /// included. `None` if the span is too short to tell.
    pub fn others(&self) -> Option<f64> {
        let took = self.began.elapsed().as_secs_f64();
        let busy = busy_seconds()? - self.busy?;
        let others = busy - (own_seconds() - self.own);
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let is_enough = took * cpus >= LEAST_CPU_TIME;
        is_enough.then(|| (others / took / cpus * 100.0).max(0.0))
    }
}

/// CPU time of this process and all that it has started: load generator, contestants, databases.
fn own_seconds() -> f64 {
    probe::cpu_time(&[std::process::id().cast_signed()]).as_secs_f64()
}

/// CPU time that all processes and the kernel have used since the boot, on all CPUs.
fn busy_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let fields = text.lines().next()?.split_whitespace().skip(1);
    // proc(5): user, nice, system, idle, iowait, irq, softirq, steal.
    let ticks: Vec<f64> = fields.map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, _, _, irq, softirq, steal, ..] = ticks[..] else {
        return None;
    };
    // USER_HZ is 100 on every architecture that Surus supports.
    Some((user + nice + system + irq + softirq + steal) / 100.0)
}

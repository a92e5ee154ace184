//! What Surus costs on AWS Lambda: `make bench-lambda`, on a machine that has nothing else to do.
//!
//! Lambda is played by the emulator, in this process. What it costs itself, and what asking it
//! costs, is measured too: a bare echo that does nothing but speak the Runtime API (`echo.rs`).
//! Reported, not asserted; Markdown on stdout, progress on stderr.
#![allow(clippy::unwrap_used)]

mod about;
mod apps;
mod cold;
mod echo;
mod memory;
mod numbers;
mod overhead;
mod php;
mod published;
mod queue;

use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "usage: bench-lambda [--quick] [overhead] [cold] [memory] [queue]";

/// How much of everything.
pub struct Effort {
    pub rounds: usize,
    pub events: usize,
    pub starts: usize,
    /// Events for each function and memory.
    pub warm: usize,
    /// Starts for each.
    pub cold_by_memory: usize,
    /// For each number of workers.
    pub queue: Duration,
}

fn main() -> ExitCode {
    // The one that we start ourselves as a function's runtime.
    if std::env::args().nth(1).as_deref() == Some(echo::ARGUMENT) {
        echo::run();
        return ExitCode::SUCCESS;
    }
    let mut effort = Effort {
        rounds: 10,
        events: 300,
        starts: 12,
        warm: 300,
        cold_by_memory: 5,
        queue: Duration::from_secs(5),
    };
    let mut parts = Vec::new();
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            // What cargo says to every benchmark.
            "--bench" => {}
            "--quick" => {
                effort = Effort {
                    rounds: 3,
                    events: 100,
                    starts: 3,
                    warm: 50,
                    cold_by_memory: 1,
                    queue: Duration::from_secs(1),
                }
            }
            "overhead" | "cold" | "memory" | "queue" => parts.push(argument),
            _ => {
                eprintln!("unknown: {argument}; {USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let is_asked = |part: &str| parts.is_empty() || parts.iter().any(|asked| asked == part);
        let apps = apps::Apps::make();
        about::print();
        let mut goals = Vec::new();
        if is_asked("overhead") {
            goals.extend(overhead::measure(&apps, &effort).await);
        }
        if is_asked("cold") {
            goals.extend(cold::measure(&apps, &effort).await);
        }
        if is_asked("memory") {
            memory::measure(&apps, &effort).await;
        }
        if is_asked("queue") {
            goals.extend(queue::measure(&apps, &effort).await);
        }
        numbers::print(&goals);
    });
    ExitCode::SUCCESS
}

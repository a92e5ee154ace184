//! Shows a run while it goes on: a bar on a terminal, else a line every few seconds.

use std::collections::VecDeque;
use std::io::{IsTerminal, Write, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use surus_load::Stop;
use surus_measure::Second;

/// Seconds between lines, if there is no terminal.
const BETWEEN_LINES: u64 = 5;
/// Seconds in the sparkline.
const SPARKS: usize = 20;

pub struct Progress {
    /// Missing without a terminal.
    bar: Option<ProgressBar>,
    stop: Stop,
    began: Instant,
    ended: Arc<AtomicU64>,
    p99s: VecDeque<u64>,
}

impl Progress {
    pub fn new(stop: Stop, ended: Arc<AtomicU64>) -> Progress {
        let length = match stop {
            Stop::After(length) => millis(length),
            Stop::Requests(count) => count,
        };
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(length);
            if let Ok(style) = ProgressStyle::with_template("{bar:24} {percent:>3} %  {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Progress {
            bar,
            stop,
            began: Instant::now(),
            ended,
            p99s: VecDeque::new(),
        }
    }

    /// Moves the bar.
    pub fn update(&self) {
        let Some(bar) = &self.bar else {
            return;
        };
        bar.set_position(match self.stop {
            Stop::After(length) => millis(self.began.elapsed().min(length)),
            Stop::Requests(_) => self.ended.load(Ordering::Relaxed),
        });
    }

    /// Shows a second that has passed.
    pub fn second(&mut self, second: &Second) {
        self.p99s.push_back(second.p99_us);
        if self.p99s.len() > SPARKS {
            self.p99s.pop_front();
        }
        self.update();
        let mut text = format!(
            "{}/s  p50 {:.2} ms  p99 {:.2} ms",
            second.responses,
            second.p50_us as f64 / 1000.0,
            second.p99_us as f64 / 1000.0
        );
        if second.failures > 0 {
            text.push_str(&format!("  {} failed", second.failures));
        }
        match &self.bar {
            Some(bar) => bar.set_message(format!("{text}  {}", sparkline(&self.p99s))),
            None if (second.at + 1).is_multiple_of(BETWEEN_LINES) => {
                let _ = writeln!(stderr(), "{:>4} s  {text}", second.at + 1);
            }
            None => {}
        }
    }

    pub fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Shows a line between runs.
pub fn line(text: &str) {
    let _ = writeln!(stderr(), "{text}");
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The values as blocks of a height up to the highest.
fn sparkline(values: &VecDeque<u64>) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let highest = values.iter().copied().max().unwrap_or(0).max(1);
    let block = |value: &u64| BLOCKS[usize::try_from(value * 7 / highest).unwrap_or(7)];
    values.iter().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparkline_reaches_from_zero_to_the_highest_value() {
        assert_eq!(sparkline(&VecDeque::from([0, 50, 100])), "▁▄█");
        assert_eq!(sparkline(&VecDeque::from([0, 0])), "▁▁");
    }
}

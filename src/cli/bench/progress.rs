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
/// Seconds in a sparkline.
const SPARKS: usize = 12;

pub struct Progress {
    /// Missing without a terminal.
    bar: Option<ProgressBar>,
    stop: Stop,
    began: Instant,
    ended: Arc<AtomicU64>,
    p50s: VecDeque<Option<u64>>,
    p99s: VecDeque<Option<u64>>,
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
            p50s: VecDeque::new(),
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
        let Progress { p50s, p99s, .. } = self;
        for (values, value) in [(p50s, second.p50_us), (p99s, second.p99_us)] {
            values.push_back(value);
            if values.len() > SPARKS {
                values.pop_front();
            }
        }
        self.update();
        // Lines without a terminal have no sparklines.
        let sparks = self.bar.as_ref().map(|_| [&self.p50s, &self.p99s]);
        let text = describe(second, sparks);
        match &self.bar {
            Some(bar) => bar.set_message(text),
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

/// A second in one line, with the medians and 99th percentiles of the last seconds.
fn describe(second: &Second, sparks: Option<[&VecDeque<Option<u64>>; 2]>) -> String {
    let [p50s, p99s] = match sparks {
        Some(sparks) => sparks.map(|values| format!(" {}", sparkline(values))),
        None => Default::default(),
    };
    let ms = |micros: Option<u64>| {
        micros.map_or("–".into(), |micros| {
            format!("{:.2} ms", micros as f64 / 1000.0)
        })
    };
    let mut text = format!(
        "{}/s  p50 {}{p50s}  p99 {}{p99s}",
        second.responses,
        ms(second.p50_us),
        ms(second.p99_us)
    );
    if second.failures > 0 {
        text.push_str(&format!("  {} failed", second.failures));
    }
    text
}

/// The values as blocks of a height up to the highest. A second without a value is a gap.
fn sparkline(values: &VecDeque<Option<u64>>) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let highest = values.iter().flatten().copied().max().unwrap_or(0).max(1);
    let block = |value: &Option<u64>| match value {
        Some(value) => BLOCKS[usize::try_from(value * 7 / highest).unwrap_or(7)],
        None => ' ',
    };
    values.iter().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparkline_reaches_from_zero_to_the_highest_value() {
        let values = |values: [u64; 3]| values.map(Some).into();
        assert_eq!(sparkline(&values([0, 50, 100])), "▁▄█");
        assert_eq!(sparkline(&values([0, 0, 0])), "▁▁▁");
        let stalled = VecDeque::from([Some(50), None, Some(100)]);
        assert_eq!(sparkline(&stalled), "▄ █");
    }

    fn second(p50_us: Option<u64>, p99_us: Option<u64>) -> Second {
        Second {
            at: 0,
            responses: 9,
            failures: 1,
            bytes: 0,
            p50_us,
            p99_us,
            max_us: p99_us,
        }
    }

    #[test]
    fn live_line_has_a_sparkline_of_each_percentile() {
        let second = second(Some(1000), Some(2000));
        let p50s = VecDeque::from([Some(1), Some(0)]);
        let p99s = VecDeque::from([Some(0), Some(1)]);
        assert_eq!(
            describe(&second, Some([&p50s, &p99s])),
            "9/s  p50 1.00 ms █▁  p99 2.00 ms ▁█  1 failed"
        );
        assert_eq!(
            describe(&second, None),
            "9/s  p50 1.00 ms  p99 2.00 ms  1 failed"
        );
    }

    #[test]
    fn live_line_of_a_stalled_second_has_no_latency() {
        let stalled = second(None, None);
        assert_eq!(describe(&stalled, None), "9/s  p50 –  p99 –  1 failed");
    }
}

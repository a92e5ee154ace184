//! Reads the REPORT lines of an emulated Lambda: how long each event took until the function asked
//! for the next one, which is what AWS bills.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::quantity::{Quantity, Sample};

/// How long the log of a function that has answered may take to become complete.
const LONGEST: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);
const START: &str = "START RequestId: ";
const REPORT: &str = "REPORT RequestId: ";

/// One event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EventReport {
    /// Milliseconds until the function asked for its next event.
    pub duration: f64,
    /// Milliseconds of the initialization ahead of it.
    pub init: f64,
}

/// Waits until each event that began has its REPORT line, and returns all of them. The line of a
/// function that boots again after an event comes long after the response. Empty for a server that
/// is no function.
pub fn read(log: &Path) -> anyhow::Result<Vec<EventReport>> {
    read_within(log, LONGEST)
}

fn read_within(log: &Path, longest: Duration) -> anyhow::Result<Vec<EventReport>> {
    let deadline = Instant::now() + longest;
    loop {
        let text = std::fs::read(log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let begun = text.lines().filter(|line| line.contains(START)).count();
        let reports = parse(&text);
        if reports.len() >= begun {
            return Ok(reports);
        }
        if Instant::now() >= deadline {
            bail!(
                "only {} of {begun} events have a REPORT line",
                reports.len()
            );
        }
        std::thread::sleep(LOOK);
    }
}

fn parse(log: &str) -> Vec<EventReport> {
    let reports = log.lines().filter(|line| line.contains(REPORT));
    let report = |line: &str| {
        Some(EventReport {
            duration: field(line, "\tDuration: ")?,
            init: field(line, "\tInit Duration: ").unwrap_or(0.0),
        })
    };
    reports.filter_map(report).collect()
}

fn field(line: &str, name: &str) -> Option<f64> {
    let (_, value) = line.split_once(name)?;
    value.split(' ').next()?.parse().ok()
}

/// Whether an environment was started for a few of the events, as AWS does for more events at a
/// time. A function that boots for most of its events is meant to.
pub fn has_stray_start(events: &[EventReport]) -> bool {
    let starts = events.iter().filter(|event| event.init > 0.0).count();
    starts > 0 && starts * 2 < events.len()
}

/// Adds what the events of a load were billed for.
pub fn add(sample: &mut Sample, reports: &[EventReport]) {
    let mut durations: Vec<_> = reports.iter().map(|report| report.duration).collect();
    durations.sort_by(f64::total_cmp);
    let (Some(least), Some(last)) = (durations.first(), durations.len().checked_sub(1)) else {
        return;
    };
    let average = durations.iter().sum::<f64>() / durations.len() as f64;
    sample.insert(Quantity::Billed, average);
    sample.insert(Quantity::BilledMin, *least);
    let percentile = |share: f64| durations[(last as f64 * share).round() as usize];
    sample.insert(Quantity::BilledP50, percentile(0.5));
    sample.insert(Quantity::BilledP99, percentile(0.99));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{Seek, SeekFrom, Write};
    use std::time::Duration;

    use super::{EventReport, Sample, add, has_stray_start, parse, read, read_within};
    use crate::quantity::Quantity;

    const LOG: &str = "\
        START RequestId: 1 Version: $LATEST\n\
        START RequestId: 2 Version: $LATEST\n\
        REPORT RequestId: 1\tDuration: 1.23 ms\tBilled Duration: 103 ms\tMemory Size: 128 MB\t\
        Max Memory Used: 30 MB\tInit Duration: 101.01 ms\t\n\
        REPORT RequestId: 2\tDuration: 0.77 ms\tBilled Duration: 1 ms\tMemory Size: 128 MB\t\n";

    #[test]
    fn reports_are_read_with_the_initialization() {
        let first = EventReport {
            duration: 1.23,
            init: 101.01,
        };
        let second = EventReport {
            duration: 0.77,
            init: 0.0,
        };
        assert_eq!(parse(LOG), [first, second]);
    }

    #[test]
    fn billed_average_and_minimum_are_those_of_all_events() {
        let mut sample = Sample::new();
        add(&mut sample, &parse(LOG));
        assert_eq!(sample.get(&Quantity::Billed), Some(&1.0));
        assert_eq!(sample.get(&Quantity::BilledMin), Some(&0.77));
    }

    #[test]
    fn billed_percentiles_are_those_of_all_events() {
        let mut sample = Sample::new();
        let reports: Vec<_> = (1..=101)
            .rev()
            .map(|duration| EventReport {
                duration: f64::from(duration),
                init: 0.0,
            })
            .collect();
        add(&mut sample, &reports);
        assert_eq!(sample.get(&Quantity::BilledP50), Some(&51.0));
        assert_eq!(sample.get(&Quantity::BilledP99), Some(&100.0));
    }

    #[test]
    fn few_starts_are_stray_and_a_start_for_each_event_is_meant() {
        let events = |inits: &[f64]| {
            let event = |init: &f64| EventReport {
                duration: 1.0,
                init: *init,
            };
            inits.iter().map(event).collect::<Vec<_>>()
        };
        assert!(has_stray_start(&events(&[0.0, 20.0, 0.0])));
        assert!(!has_stray_start(&events(&[0.0, 0.0])));
        assert!(!has_stray_start(&events(&[20.0, 20.0, 0.0])));
        assert!(!has_stray_start(&[]));
    }

    #[test]
    fn event_without_a_report_is_waited_for_and_then_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let late = LOG.rfind("REPORT").unwrap();
        std::fs::write(file.path(), &LOG[..late]).unwrap();
        let error = read_within(file.path(), Duration::ZERO).unwrap_err();
        let message = "only 1 of 2 events have a REPORT line";
        assert_eq!(error.to_string(), message);
        let reports = std::thread::scope(|threads| {
            let reading = threads.spawn(|| read(file.path()));
            let mut end = file.as_file();
            end.seek(SeekFrom::End(0)).unwrap();
            end.write_all(&LOG.as_bytes()[late..]).unwrap();
            reading.join().unwrap()
        });
        assert_eq!(reports.unwrap(), parse(LOG));
    }

    #[test]
    fn server_that_is_no_function_adds_nothing() {
        let mut sample = Sample::new();
        add(&mut sample, &parse("a log\n"));
        assert!(sample.is_empty());
    }
}

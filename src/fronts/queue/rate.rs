//! Limits how often jobs of a queue begin: `queue.rate`.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `10/s`, `100/m` or `1000/h`: a number of jobs a second, minute or hour, at even intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobRate {
    jobs: u32,
    period: Duration,
}

const MAX: u32 = 100_000;
const UNITS: [(&str, Duration); 3] = [
    ("s", Duration::from_secs(1)),
    ("m", Duration::from_secs(60)),
    ("h", Duration::from_secs(3600)),
];
/// A queue that is late catches up on the jobs of at most this time: timers have milliseconds.
const CATCH_UP: Duration = Duration::from_millis(100);

impl JobRate {
    pub fn per_second(self) -> f64 {
        f64::from(self.jobs) / self.period.as_secs_f64()
    }

    /// When the next job may begin, if one begins now that might have begun at `due`.
    pub fn next(self, due: Option<Instant>, now: Instant) -> Instant {
        let earliest = now.checked_sub(CATCH_UP).unwrap_or(now);
        due.map_or(now, |due| due.max(earliest)) + self.period / self.jobs
    }
}

impl FromStr for JobRate {
    type Err = String;

    fn from_str(text: &str) -> Result<JobRate, String> {
        let read = || {
            let (jobs, unit) = text.split_once('/')?;
            let jobs = jobs.parse().ok().filter(|jobs| (1..=MAX).contains(jobs))?;
            let (_, period) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
            Some(JobRate { jobs, period })
        };
        read().ok_or_else(|| {
            format!(
                "`{text}` is not a rate (queue.rate); write `10/s`, `100/m` or `1000/h`, with a \
                 number from 1 to {MAX}"
            )
        })
    }
}

impl fmt::Display for JobRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = UNITS.iter().find(|(_, period)| *period == self.period);
        write!(f, "{}/{}", self.jobs, found.map_or("", |(name, _)| *name))
    }
}

impl<'de> Deserialize<'de> for JobRate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<JobRate, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

impl Serialize for JobRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_read_as_it_is_written() {
        for text in ["1/s", "100/m", "1000/h", "100000/s"] {
            let rate: JobRate = text.parse().unwrap();
            assert_eq!(rate.to_string(), text);
        }
        for wrong in [
            "", "1", "0/s", "-1/s", "1/d", "1/", "/s", "100001/s", "1.5/s",
        ] {
            let error = wrong.parse::<JobRate>().unwrap_err();
            assert!(error.contains("queue.rate"), "{error}");
        }
        let rate: JobRate = "120/m".parse().unwrap();
        assert!((rate.per_second() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn queue_catches_up_on_a_late_job_but_not_on_a_long_pause() {
        let rate: JobRate = "100/s".parse().unwrap();
        let interval = Duration::from_millis(10);
        let start = Instant::now();
        let due = rate.next(None, start);
        assert_eq!(due, start + interval);
        let late = due + Duration::from_millis(25);
        assert_eq!(rate.next(Some(due), late), due + interval);
        let later = due + Duration::from_secs(60);
        assert_eq!(rate.next(Some(due), later), later - CATCH_UP + interval);
    }
}

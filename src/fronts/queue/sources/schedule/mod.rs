//! The clock as a broker: the runs of a schedule's entry are the jobs of a queue.

mod laravel;
mod timetable;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub use self::laravel::LaravelSchedule;
pub use self::timetable::Timetable;
use crate::fronts::queue::job::{Depth, Disposition, FailedJob, Failures, Job, Lease};
use crate::fronts::queue::source::{Pending, Source};

/// How often the clock is read, because it may be set.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// An entry of `[[schedule]]`.
pub struct ScheduleEntry {
    name: String,
    state: Mutex<State>,
}

struct State {
    timetable: Timetable,
    is_running: bool,
    /// The run that is tried again, and when.
    again: Option<(Instant, Job)>,
}

impl ScheduleEntry {
    pub fn new(name: &str, timetable: Timetable) -> ScheduleEntry {
        ScheduleEntry {
            name: name.into(),
            state: Mutex::new(State {
                timetable,
                is_running: false,
                again: None,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run that begins now, or how long to wait.
    fn next(&self, now: Timestamp) -> Result<Job, Duration> {
        let mut state = self.state();
        if let Some((_, job)) = state.again.take_if(|(at, _)| *at <= Instant::now()) {
            return Ok(job);
        }
        if let Some(due) = state.timetable.due(now) {
            let due = state.timetable.text(due);
            match state.is_running {
                true => warn!(
                    schedule = self.name,
                    due, "the last run has not ended, so this one is left out"
                ),
                false => {
                    state.is_running = true;
                    return Ok(run(&self.name, &due));
                }
            }
        }
        let again = state.again.as_ref();
        let again = again.map(|(at, _)| at.saturating_duration_since(Instant::now()));
        let wait = state.timetable.wait(now).min(CHECK_INTERVAL);
        Err(again.map_or(wait, |again| again.min(wait)))
    }
}

/// The job that a handler gets.
fn run(name: &str, due: &str) -> Job {
    let payload = json!({ "schedule": name, "due": due }).to_string();
    Job {
        lease: Lease {
            id: due.into(),
            token: Bytes::new(),
        },
        unread: None,
        payload: payload.into(),
        attempts: 1,
    }
}

impl Source for ScheduleEntry {
    fn receive<'a>(&'a self, _most: usize, stop: &'a CancellationToken) -> Pending<'a, Vec<Job>> {
        Box::pin(async move {
            loop {
                let wait = match self.next(Timestamp::now()) {
                    Ok(job) => return Ok(vec![job]),
                    Err(wait) => wait,
                };
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = stop.cancelled() => return Ok(Vec::new()),
                }
            }
        })
    }

    fn extend(&self, _leases: Vec<Lease>) -> Pending<'_, Vec<Lease>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn settle(&self, mut job: Job, disposition: Disposition) -> Pending<'_, ()> {
        let mut state = self.state();
        match disposition {
            Disposition::Release(pause) => {
                job.attempts += 1;
                state.again = Some((Instant::now() + pause, job));
            }
            Disposition::Postpone(pause) => state.again = Some((Instant::now() + pause, job)),
            // The front end logs why it has failed. A run that has not begun, or was interrupted by
            // the shutdown, is left out.
            Disposition::Done
            | Disposition::Bury(_)
            | Disposition::Return
            | Disposition::Interrupt => state.is_running = false,
        }
        Box::pin(async { Ok(()) })
    }

    fn depth(&self) -> Pending<'_, Depth> {
        let state = self.state();
        let depth = Depth {
            delayed: state.again.is_some().into(),
            reserved: (state.is_running && state.again.is_none()).into(),
            ..Depth::default()
        };
        Box::pin(async move { Ok(depth) })
    }

    fn failures(&self, _requested: Failures) -> Pending<'_, Vec<FailedJob>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn run_that_is_due_while_another_runs_is_left_out() {
        let at = |time: &str| format!("2026-11-26T{time}:00Z").parse().unwrap();
        let timetable = Timetable::new("0 * * * *", Some("UTC"), at("05:59")).unwrap();
        let entry = ScheduleEntry::new("hourly", timetable);
        assert!(entry.next(at("05:59")).is_err());
        let job = entry.next(at("06:00")).unwrap();
        assert_eq!(
            job.payload,
            r#"{"due":"2026-11-26T06:00:00+00:00","schedule":"hourly"}"#
        );
        assert!(entry.next(at("07:00")).is_err(), "it still runs");
        drop(entry.settle(job, Disposition::Done));
        assert!(entry.next(at("07:01")).is_err(), "a missed run is skipped");
        let job = entry.next(at("08:00")).unwrap();
        drop(entry.settle(job, Disposition::Release(Duration::ZERO)));
        let again = entry.next(at("08:00")).unwrap();
        assert_eq!(again.attempts, 2);
        drop(entry.settle(again, Disposition::Postpone(Duration::ZERO)));
        let postponed = entry.next(at("08:00")).unwrap();
        assert_eq!(postponed.attempts, 2, "it has not run");
    }
}

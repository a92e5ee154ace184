//! The schedule of a Laravel application. A task asks the booted application each minute for the
//! events that are due; each is a job of its own.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use super::CHECK_INTERVAL;
use crate::fronts::queue::backoff;
use crate::fronts::queue::job::{Depth, Disposition, FailedJob, Failures, Job, Lease};
use crate::fronts::queue::runner::{JobAnswer, Runner};
use crate::fronts::queue::source::{Pending, Source};

/// How long PHP may take to list the events that are due.
const TIMEOUT: Duration = Duration::from_secs(60);
/// If the clock is set by more minutes than this, it was wrong before. The schedule then goes on
/// from the new time and catches up on nothing. Events that wait for longer are left out.
const FAR: u64 = 180;

pub struct LaravelSchedule {
    inner: Arc<Inner>,
    /// The task that asks the application, also while all workers run events. None once closed.
    asking: Mutex<Option<AbortOnDropHandle<()>>>,
}

struct Inner {
    runner: Arc<Runner>,
    state: Mutex<State>,
    /// Wakes the receiver after each answer, and when an event is postponed.
    answered: Notify,
}

struct State {
    /// The last minute since 1970 that the application has been asked about.
    last: u64,
    waiting: VecDeque<(Instant, Event)>,
    /// The names of events that run.
    running: HashSet<String>,
    /// Why the application has not answered the last question, until the receiver has told it.
    error: Option<anyhow::Error>,
}

/// An event that is due, as the adapter tells it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Event {
    /// Its place in the schedule.
    run: usize,
    name: String,
    /// Seconds since 1970.
    due: u64,
    /// Within its minute it runs again after this number of seconds.
    #[serde(skip_serializing)]
    every: Option<u64>,
}

impl State {
    fn new(now: u64) -> State {
        State {
            last: now / 60,
            waiting: VecDeque::new(),
            running: HashSet::new(),
            error: None,
        }
    }

    /// How many minutes are not asked about, because the clock was set far ahead, the machine has
    /// slept, or the application has not answered for long.
    fn left_out(&self, now: u64) -> Option<u64> {
        let passed = (now / 60).checked_sub(self.last)?;
        (passed > FAR).then(|| passed - 1)
    }

    /// The minutes to ask about, from the first to the last.
    fn minutes(&mut self, now: u64) -> Option<(u64, u64)> {
        if let Some(minutes) = self.left_out(now) {
            warn!(
                minutes,
                "events of the application's schedule that were due in these minutes are left out"
            );
        }
        let minute = now / 60;
        if minute.abs_diff(self.last) > FAR {
            self.last = minute.saturating_sub(1);
        }
        if minute <= self.last {
            return None;
        }
        let first = self.last + 1;
        self.last = minute;
        Some((first, minute))
    }

    /// Adds events that are due. One that is due in several minutes runs once.
    fn add(&mut self, events: Vec<Event>, now: u64) {
        self.leave_out_old(now);
        for event in events {
            let left = (event.due + 60).saturating_sub(now);
            let every = event.every.filter(|every| *every > 0);
            let repeats = every.map_or(0, |every| left.saturating_sub(1) / every);
            let is_waiting = |(_, other): &(Instant, Event)| other.name == event.name;
            if !self.waiting.iter().any(is_waiting) {
                for repeat in 0..=repeats {
                    let after = repeat * every.unwrap_or(0);
                    let mut event = event.clone();
                    event.due += after;
                    let at = Instant::now() + Duration::from_secs(after);
                    self.waiting.push_back((at, event));
                }
            }
        }
    }

    /// Removes events that have waited for too long, for a worker or the end of a pause.
    fn leave_out_old(&mut self, now: u64) {
        self.waiting.retain(|(_, event)| {
            let is_old = now.saturating_sub(event.due) > FAR * 60;
            if is_old {
                warn!(
                    schedule_event = event.name,
                    due = event.due,
                    "the event has waited for more than three hours, so it is left out"
                );
            }
            !is_old
        });
    }

    /// The events that begin now, at most `most` of them. `seconds`: since 1970.
    fn due(&mut self, most: usize, seconds: u64) -> Vec<Job> {
        self.leave_out_old(seconds);
        let now = Instant::now();
        let mut jobs = Vec::new();
        let waiting = std::mem::take(&mut self.waiting);
        for (at, event) in waiting {
            if at > now || jobs.len() == most {
                self.waiting.push_back((at, event));
            } else if self.running.insert(event.name.clone()) {
                jobs.extend(job(&event));
            } else {
                warn!(
                    schedule_event = event.name,
                    "the last run has not ended, so this one is left out"
                );
            }
        }
        jobs
    }

    /// Lets an event begin later that no worker could take.
    fn postpone(&mut self, job: &Job, pause: Duration) {
        self.running.remove(&job.lease.id);
        if let Ok(event) = serde_json::from_slice(&job.payload) {
            self.waiting.push_back((Instant::now() + pause, event));
        }
    }

    /// How long until the next of the waiting events.
    fn wait(&self) -> Duration {
        let waiting = self.waiting.iter().map(|(at, _)| *at).min();
        let waiting = waiting.map(|at| at.saturating_duration_since(Instant::now()));
        waiting.unwrap_or(CHECK_INTERVAL).min(CHECK_INTERVAL)
    }
}

/// How long until the clock is read again: at the next minute, or before, because it may be set.
fn until_next_look(now: Duration) -> Duration {
    let minute = Duration::from_secs(60 - now.as_secs() % 60);
    let minute = minute.saturating_sub(Duration::from_nanos(now.subsec_nanos().into()));
    minute.min(CHECK_INTERVAL)
}

fn job(event: &Event) -> Option<Job> {
    Some(Job {
        unread: None,
        payload: serde_json::to_vec(event).ok()?.into(),
        lease: Lease {
            id: event.name.clone(),
            token: Bytes::new(),
        },
        attempts: 1,
    })
}

impl LaravelSchedule {
    /// Asks the application from the next minute on.
    pub fn new(runner: Arc<Runner>) -> LaravelSchedule {
        let inner = Arc::new(Inner {
            runner,
            state: Mutex::new(State::new(epoch().as_secs())),
            answered: Notify::new(),
        });
        let asking = tokio::spawn(ask_each_minute(inner.clone()));
        LaravelSchedule {
            inner,
            asking: Mutex::new(Some(AbortOnDropHandle::new(asking))),
        }
    }
}

/// Asks the application for the events of each minute, and again after a failure.
async fn ask_each_minute(inner: Arc<Inner>) {
    let mut failures = 0;
    loop {
        let now = epoch();
        let minutes = inner.state().minutes(now.as_secs());
        let pause = match minutes {
            None => until_next_look(now),
            Some(minutes) => match inner.ask(minutes).await {
                Ok(events) => {
                    failures = 0;
                    inner.note_events(events);
                    continue;
                }
                Err(error) => {
                    failures += 1;
                    inner.note_failure(minutes, error);
                    backoff::pause(failures)
                }
            },
        };
        tokio::time::sleep(pause).await;
    }
}

impl Inner {
    fn note_events(&self, events: Vec<Event>) {
        let mut state = self.state();
        state.error = None;
        state.add(events, epoch().as_secs());
        drop(state);
        self.answered.notify_one();
    }

    /// These minutes are asked about again.
    fn note_failure(&self, (first, _): (u64, u64), error: anyhow::Error) {
        let mut state = self.state();
        state.last = first - 1;
        state.error = Some(error);
        drop(state);
        self.answered.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the application which events are due in these minutes.
    async fn ask(&self, (first, last): (u64, u64)) -> anyhow::Result<Vec<Event>> {
        let question = serde_json::json!({ "minutes": [first * 60, last * 60] }).to_string();
        let answer = self.runner.ask(question.into(), "schedule", TIMEOUT).await;
        match answer.context("cannot ask the application for its schedule")? {
            JobAnswer::Result(json) => {
                serde_json::from_slice(&json).context("the application's schedule")
            }
            JobAnswer::Error { message, .. } => bail!("the application's schedule: {message}"),
        }
    }
}

impl Source for LaravelSchedule {
    fn receive<'a>(&'a self, most: usize, stop: &'a CancellationToken) -> Pending<'a, Vec<Job>> {
        Box::pin(async move {
            while !stop.is_cancelled() {
                let wait = {
                    let mut state = self.inner.state();
                    let jobs = state.due(most, epoch().as_secs());
                    if !jobs.is_empty() {
                        return Ok(jobs);
                    }
                    if let Some(error) = state.error.take() {
                        return Err(error);
                    }
                    state.wait()
                };
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = self.inner.answered.notified() => {}
                    () = stop.cancelled() => {}
                }
            }
            Ok(Vec::new())
        })
    }

    fn extend(&self, _leases: Vec<Lease>) -> Pending<'_, Vec<Lease>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn settle(&self, job: Job, disposition: Disposition) -> Pending<'_, ()> {
        let mut state = self.inner.state();
        match disposition {
            Disposition::Postpone(pause) => {
                state.postpone(&job, pause);
                // The receiver may sleep for longer.
                self.inner.answered.notify_one();
            }
            _ => {
                state.running.remove(&job.lease.id);
            }
        }
        Box::pin(async { Ok(()) })
    }

    fn depth(&self) -> Pending<'_, Depth> {
        let state = self.inner.state();
        let depth = Depth {
            delayed: state.waiting.len() as u64,
            reserved: state.running.len() as u64,
            ..Depth::default()
        };
        Box::pin(async move { Ok(depth) })
    }

    fn failures(&self, _requested: Failures) -> Pending<'_, Vec<FailedJob>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Asks no more. Afterwards nothing here holds PHP.
    fn close(&self) -> Pending<'_, ()> {
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let asking = asking.take();
        Box::pin(async move {
            if let Some(asking) = asking {
                asking.abort();
                let _ = asking.await;
            }
            Ok(())
        })
    }
}

/// Time since 1970.
fn epoch() -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_790_000_000 / 60;

    fn event(name: &str, every: Option<u64>) -> Event {
        Event {
            run: 0,
            name: name.into(),
            due: START * 60,
            every,
        }
    }

    #[test]
    fn each_minute_is_asked_about_once_whatever_the_clock_does() {
        let mut state = State::new(START * 60 + 30);
        let mut minutes = |minute: u64| state.minutes(minute * 60 + 5);
        assert_eq!(minutes(START), None, "the minute of the start has begun");
        assert_eq!(minutes(START + 1), Some((START + 1, START + 1)));
        assert_eq!(minutes(START + 1), None);
        assert_eq!(minutes(START - 60), None, "set back a little");
        assert_eq!(minutes(START + 2), Some((START + 2, START + 2)));
        assert_eq!(
            minutes(START + 10),
            Some((START + 3, START + 10)),
            "missed minutes are caught up on"
        );
        let far = START + 100_000;
        assert_eq!(minutes(far), Some((far, far)), "set ahead by weeks");
        assert_eq!(minutes(START), Some((START, START)), "and back again");
    }

    #[test]
    fn minutes_that_are_left_out_are_counted() {
        let state = State::new(START * 60);
        let left_out = |minute: u64| state.left_out(minute * 60 + 5);
        assert_eq!(left_out(START + FAR), None, "all of them are asked about");
        assert_eq!(left_out(START + FAR + 1), Some(FAR));
        assert_eq!(left_out(START - 2 * FAR), None, "set back");
    }

    #[test]
    fn event_of_several_minutes_waits_once_and_runs_once_at_a_time() {
        let mut state = State::new(0);
        let now = START * 60 + 1;
        state.add(
            vec![event("a", None), event("b", None), event("a", None)],
            now,
        );
        assert_eq!(state.due(1, now).len(), 1);
        let second = state.due(10, now);
        assert_eq!((second.len(), &*second[0].lease.id), (1, "b"));
        state.add(vec![event("b", None)], now);
        assert!(state.due(10, now).is_empty(), "it still runs");
        state.running.clear();
        assert!(state.due(10, now).is_empty(), "a missed run is skipped");
    }

    #[test]
    fn event_that_no_worker_could_take_begins_later() {
        let mut state = State::new(0);
        let now = START * 60 + 1;
        state.add(vec![event("a", None)], now);
        let job = state.due(1, now).pop().expect("it is due");
        state.postpone(&job, Duration::ZERO);
        let again = state.due(10, now);
        assert_eq!((again.len(), &again[0].payload), (1, &job.payload));
        assert!(state.due(10, now).is_empty(), "it runs");
    }

    #[test]
    fn event_that_has_waited_for_more_than_three_hours_is_left_out() {
        let mut state = State::new(0);
        let late = (START + FAR) * 60;
        state.add(vec![event("a", None), event("b", None)], START * 60 + 1);
        assert_eq!(state.due(1, late).len(), 1, "not yet too late");
        assert!(state.due(10, late + 1).is_empty());
        assert!(state.waiting.is_empty());
        // A later run takes the place of one that has waited for too long.
        state.add(vec![event("b", None)], START * 60 + 1);
        let later = Event {
            due: late + 60,
            ..event("b", None)
        };
        state.add(vec![later], late + 61);
        let begun = state.due(10, late + 61);
        assert_eq!((begun.len(), &*begun[0].lease.id), (1, "b"));
    }

    #[test]
    fn event_of_seconds_is_due_again_within_its_minute() {
        for (second, count) in [(0, 6), (1, 6), (35, 3), (59, 1)] {
            let mut state = State::new(0);
            state.add(vec![event("a", Some(10))], START * 60 + second);
            let due = state.waiting.iter().map(|(_, event)| event.due);
            let due: Vec<_> = due.map(|due| due - START * 60).collect();
            assert_eq!(due, [0, 10, 20, 30, 40, 50][..count], "{second}");
        }
    }
}

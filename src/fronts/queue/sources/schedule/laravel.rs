//! The schedule of a Laravel application. Each minute the booted application is asked for the
//! events that are due; each is a job of its own.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::CHECK_INTERVAL;
use crate::fronts::queue::job::{Depth, Disposition, FailedJob, Failures, Job, Lease};
use crate::fronts::queue::runner::{JobAnswer, Runner};
use crate::fronts::queue::source::{Pending, Source};

/// How long PHP may take to tell what is due.
const TIMEOUT: Duration = Duration::from_secs(60);
/// A clock that is set by more minutes than this was wrong before: nothing is made up for.
const FAR: u64 = 180;

pub struct LaravelSchedule {
    runner: Arc<Runner>,
    state: Mutex<State>,
}

struct State {
    /// The last minute since 1970 that the application has been asked about.
    asked: u64,
    waiting: VecDeque<(Instant, Event)>,
    /// The names of events that run.
    running: HashSet<String>,
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
            asked: now / 60,
            waiting: VecDeque::new(),
            running: HashSet::new(),
        }
    }

    /// The minutes to ask about, from the first to the last.
    fn minutes(&mut self, now: u64) -> Option<(u64, u64)> {
        let minute = now / 60;
        if minute.abs_diff(self.asked) > FAR {
            self.asked = minute.saturating_sub(1);
        }
        if minute <= self.asked {
            return None;
        }
        let first = self.asked + 1;
        self.asked = minute;
        Some((first, minute))
    }

    /// Adds events that are due. One that is due in several minutes runs once.
    fn add(&mut self, events: Vec<Event>, now: u64) {
        for event in events {
            let left = (event.due + 60).saturating_sub(now);
            let every = event.every.filter(|every| *every > 0);
            let repeats = every.map_or(0, |every| left.saturating_sub(1) / every);
            let is_waiting = |(_, other): &(Instant, Event)| other.name == event.name;
            if !self.waiting.iter().any(is_waiting) {
                for repeat in 0..=repeats {
                    let after = Duration::from_secs(repeat * every.unwrap_or(0));
                    self.waiting
                        .push_back((Instant::now() + after, event.clone()));
                }
            }
        }
    }

    /// The events that begin now, at most `most` of them.
    fn due(&mut self, most: usize) -> Vec<Job> {
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

    fn wait(&self, now: Duration) -> Duration {
        let waiting = self.waiting.iter().map(|(at, _)| *at).min();
        let waiting = waiting.map(|at| at.saturating_duration_since(Instant::now()));
        let minute = Duration::from_secs(60 - now.as_secs() % 60);
        let minute = minute.saturating_sub(Duration::from_nanos(now.subsec_nanos().into()));
        waiting
            .unwrap_or(CHECK_INTERVAL)
            .min(minute)
            .min(CHECK_INTERVAL)
    }
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
    pub fn new(runner: Arc<Runner>) -> LaravelSchedule {
        LaravelSchedule {
            runner,
            state: Mutex::new(State::new(epoch().as_secs())),
        }
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
                let minutes = self.state().minutes(epoch().as_secs());
                if let Some(minutes) = minutes {
                    let events = self.ask(minutes).await.inspect_err(|_| {
                        self.state().asked = minutes.0 - 1;
                    })?;
                    self.state().add(events, epoch().as_secs());
                }
                let jobs = self.state().due(most);
                if !jobs.is_empty() {
                    return Ok(jobs);
                }
                let wait = self.state().wait(epoch());
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
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
        let mut state = self.state();
        match disposition {
            Disposition::Postpone(pause) => state.postpone(&job, pause),
            _ => {
                state.running.remove(&job.lease.id);
            }
        }
        Box::pin(async { Ok(()) })
    }

    fn depth(&self) -> Pending<'_, Depth> {
        let state = self.state();
        let depth = Depth {
            delayed: state.waiting.len() as u64,
            reserved: state.running.len() as u64,
            ..Depth::default()
        };
        Box::pin(async move { Ok(depth) })
    }

    fn failures(&self, _asked: Failures) -> Pending<'_, Vec<FailedJob>> {
        Box::pin(async { Ok(Vec::new()) })
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
        let mut asked = |minute: u64| state.minutes(minute * 60 + 5);
        assert_eq!(asked(START), None, "the minute of the start has begun");
        assert_eq!(asked(START + 1), Some((START + 1, START + 1)));
        assert_eq!(asked(START + 1), None);
        assert_eq!(asked(START - 60), None, "set back a little");
        assert_eq!(asked(START + 2), Some((START + 2, START + 2)));
        assert_eq!(
            asked(START + 10),
            Some((START + 3, START + 10)),
            "made up for"
        );
        let far = START + 100_000;
        assert_eq!(asked(far), Some((far, far)), "set ahead by weeks");
        assert_eq!(asked(START), Some((START, START)), "and back again");
    }

    #[test]
    fn event_of_several_minutes_waits_once_and_runs_once_at_a_time() {
        let mut state = State::new(0);
        let now = START * 60 + 1;
        state.add(
            vec![event("a", None), event("b", None), event("a", None)],
            now,
        );
        assert_eq!(state.due(1).len(), 1);
        let second = state.due(10);
        assert_eq!((second.len(), &*second[0].lease.id), (1, "b"));
        state.add(vec![event("b", None)], now);
        assert!(state.due(10).is_empty(), "it still runs");
        state.running.clear();
        assert!(state.due(10).is_empty(), "and is not made up for");
    }

    #[test]
    fn event_that_no_worker_could_take_begins_later() {
        let mut state = State::new(0);
        state.add(vec![event("a", None)], START * 60 + 1);
        let job = state.due(1).pop().expect("it is due");
        state.postpone(&job, Duration::ZERO);
        let again = state.due(10);
        assert_eq!((again.len(), &again[0].payload), (1, &job.payload));
        assert!(state.due(10).is_empty(), "it runs");
    }

    #[test]
    fn event_of_seconds_is_due_again_within_its_minute() {
        for (second, count) in [(0, 6), (1, 6), (35, 3), (59, 1)] {
            let mut state = State::new(0);
            state.add(vec![event("a", Some(10))], START * 60 + second);
            assert_eq!(state.waiting.len(), count, "{second}");
        }
    }
}

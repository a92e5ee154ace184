//! Runs a plan: one task per connection, on one thread.

use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use surus_measure::{Latencies, Recorder, Second};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::connect::Connector;
use crate::outcome::{Failure, Offered, Outcome, Totals, Unexpected};
use crate::pace::{Pace, Pacer, Schedule};
use crate::plan::{Plan, Stop};
use crate::user::{Answer, Error, Retention, User};

/// How long a connection of a closed loop waits after a failure to connect.
const PAUSE: Duration = Duration::from_millis(10);
/// Most bytes of an unexpected body that a report shows.
const EXCERPT: usize = 300;

/// Shows a run while it goes on.
#[derive(Debug)]
pub struct Watch {
    /// Number of requests that have ended.
    pub ended: Arc<AtomicU64>,
    /// Receives each second that has passed.
    pub seconds: Sender<Second>,
}

/// Runs a plan on this thread until it ends or `stop` does.
pub fn run(
    plan: &Plan,
    watch: Option<Watch>,
    stop: impl Future<Output = ()>,
) -> io::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(lead(Arc::new(plan.clone()), watch, stop))
}

async fn lead(
    plan: Arc<Plan>,
    watch: Option<Watch>,
    stop: impl Future<Output = ()>,
) -> io::Result<Outcome> {
    let connector = Arc::new(Connector::new(&plan)?);
    let mut preparing = JoinSet::new();
    for _ in 0..plan.concurrency {
        let mut user = User::new(plan.clone(), connector.clone());
        preparing.spawn(async move {
            user.prepare().await;
            user
        });
    }
    let mut users = Vec::new();
    while let Some(user) = preparing.join_next().await {
        users.push(user.map_err(io::Error::other)?);
    }

    let cpu_before = thread_cpu();
    let run = Arc::new(Run::new(plan, watch)?);
    let mut tasks = JoinSet::new();
    for user in users {
        tasks.spawn(run.clone().drive(user));
    }
    let everyone = async { while tasks.join_next().await.is_some() {} };
    let is_interrupted = tokio::select! {
        () = everyone => false,
        () = stop => true,
        failed = run.pacer.run() => match failed? {},
        never = run.tick() => match never {},
    };
    let own_cpu = thread_cpu().saturating_sub(cpu_before);
    Ok(run.outcome(own_cpu, is_interrupted))
}

/// What all connections share.
struct Run {
    plan: Arc<Plan>,
    started: Instant,
    pacer: Pacer,
    watch: Option<Watch>,
    state: Mutex<State>,
}

struct State {
    /// The number of the next turn.
    next: u64,
    recorder: Recorder,
    /// How late the pacer woke connections.
    lateness: Recorder,
    totals: Totals,
    /// When the last request ended.
    last: Duration,
}

impl State {
    fn new(keeps_intervals: bool) -> State {
        State {
            next: 0,
            recorder: Recorder::new(keeps_intervals),
            lateness: Recorder::new(false),
            totals: Totals::default(),
            last: Duration::ZERO,
        }
    }
}

/// The right to send a request.
struct Turn {
    number: u64,
    /// From when its latency counts.
    due: Instant,
    /// Whether `due` is in the future.
    must_wait: bool,
}

impl Run {
    fn new(plan: Arc<Plan>, watch: Option<Watch>) -> io::Result<Run> {
        Ok(Run {
            started: Instant::now(),
            pacer: Pacer::new()?,
            watch,
            state: Mutex::new(State::new(plan.keeps_intervals)),
            plan,
        })
    }

    /// Sends requests over one connection until the run ends.
    async fn drive(self: Arc<Run>, mut user: User) {
        let waker = Arc::new(Notify::new());
        let mut now = Instant::now();
        let mut opened = 0;
        let expectations = &self.plan.expectations;
        while let Some(turn) = self.turn(now) {
            if turn.must_wait {
                if self.pacer.ask(turn.due, &waker).is_err() {
                    return;
                }
                waker.notified().await;
                now = Instant::now();
                let mut state = self.state();
                state.lateness.response(Duration::ZERO, now - turn.due, 0);
            }
            let request = self.plan.mix.at(turn.number);
            let prepared = &self.plan.mix.requests[request];
            let wanted = Retention {
                keeps_body: expectations.body.is_some(),
                sample_unless: Some(&expectations.status),
            };
            let result = user.ask(prepared, &wanted, now).await;
            now = Instant::now();
            let refused = matches!(&result, Err((error, _)) if error.failure == Failure::Refused);
            {
                let mut state = self.state();
                state.totals.connections += user.opened() - opened;
                opened = user.opened();
                self.record(&mut state, &turn, &prepared.name, result, now);
            }
            if let Some(watch) = &self.watch {
                watch.ended.fetch_add(1, Ordering::Relaxed);
            }
            if refused && self.plan.pace == Pace::Closed {
                tokio::time::sleep(PAUSE).await;
                now = Instant::now();
            }
        }
    }

    /// The next turn; `None` if the run is over.
    fn turn(&self, now: Instant) -> Option<Turn> {
        let mut state = self.state();
        let number = state.next;
        let due = match self.plan.pace {
            Pace::Closed => now,
            Pace::Open(schedule) => self.started + schedule.due(number)?,
        };
        let is_over = match self.plan.stop {
            Stop::After(length) => due >= self.started + length || now >= self.started + length,
            Stop::Requests(count) => number >= count,
        };
        if is_over {
            return None;
        }
        state.next += 1;
        Some(Turn {
            number,
            due,
            must_wait: due > now,
        })
    }

    fn record(
        &self,
        state: &mut State,
        turn: &Turn,
        request: &str,
        result: Result<Answer, (Error, u64)>,
        now: Instant,
    ) {
        let at = now - self.started;
        state.last = at;
        let totals = &mut state.totals;
        totals.requests += 1;
        let (failure, received) = match result {
            Ok(answer) => {
                totals.received += answer.received;
                totals.sent += answer.sent;
                *totals.statuses.entry(answer.status).or_default() += 1;
                let failure = self.judge(&answer);
                if failure.is_some() && totals.unexpected.is_none() {
                    totals.unexpected = Some(Unexpected {
                        request: request.to_string(),
                        status: answer.status,
                        body: excerpt(&answer.body),
                    });
                }
                (failure, answer.received)
            }
            Err((error, received)) => {
                totals.received += received;
                if totals.first_error.is_none() {
                    totals.first_error = error.text;
                }
                (Some(error.failure), received)
            }
        };
        match failure {
            Some(failure) => {
                totals.failures[failure as usize] += 1;
                state.recorder.failure(at, received);
            }
            None => {
                totals.responses += 1;
                if matches!(self.plan.stop, Stop::After(length) if at > length) {
                    totals.late_responses += 1;
                }
                state.recorder.response(at, now - turn.due, received);
            }
        }
    }

    fn judge(&self, answer: &Answer) -> Option<Failure> {
        let expectations = &self.plan.expectations;
        if !expectations.status.has(answer.status) {
            return Some(Failure::Status);
        }
        (!expectations.allows_body(&answer.body)).then_some(Failure::Body)
    }

    /// Closes each second, even if nothing comes.
    async fn tick(&self) -> Infallible {
        let mut sent = 0;
        loop {
            let next = self.started + Duration::from_secs(sent as u64 + 1);
            tokio::time::sleep_until(next.into()).await;
            let mut state = self.state();
            let seconds = state.recorder.roll(self.started.elapsed());
            if let Some(watch) = &self.watch {
                for second in &seconds[sent..] {
                    let _ = watch.seconds.send(second.clone());
                }
            }
            sent = seconds.len();
        }
    }

    fn outcome(&self, own_cpu: Duration, is_interrupted: bool) -> Outcome {
        let now = self.started.elapsed();
        let state = std::mem::replace(&mut *self.state(), State::new(false));
        let elapsed = match self.plan.stop {
            _ if is_interrupted => now,
            Stop::After(length) => length,
            Stop::Requests(_) => state.last,
        };
        let offered = match self.plan.pace {
            Pace::Closed => None,
            Pace::Open(schedule) => {
                let lateness = state.lateness.finish(Duration::ZERO);
                Some(self.offered(schedule, state.next, elapsed, &lateness))
            }
        };
        Outcome {
            elapsed,
            totals: state.totals,
            latencies: state.recorder.finish(now),
            offered,
            own_cpu,
            is_interrupted,
        }
    }

    fn offered(
        &self,
        schedule: Schedule,
        taken: u64,
        elapsed: Duration,
        lateness: &Latencies,
    ) -> Offered {
        // All turns that were taken, and those that were due until the end.
        let mut due = taken;
        let limit = match self.plan.stop {
            Stop::Requests(count) => count,
            Stop::After(_) => u64::MAX,
        };
        while due < limit && schedule.due(due).is_some_and(|at| at < elapsed) {
            due += 1;
        }
        Offered {
            due,
            unsent: due - taken,
            own_lateness: Duration::from_secs_f64(lateness.percentile_ms(99.0) / 1000.0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The beginning of a body, on one line.
fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(EXCERPT)]);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.chars()
        .filter(|character| !character.is_control())
        .collect()
}

/// CPU time of this thread.
fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

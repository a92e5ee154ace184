//! Runs a plan: one task per connection, on one thread.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use surus_measure::{Interval, Latencies, Recorder, Second};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use crate::answer::{Answer, Error, Retention};
use crate::connect::Connector;
use crate::outcome::{Offered, RequestFailure, RunOutcome, Totals, Unexpected};
use crate::pace::{Pace, Pacer, Schedule};
use crate::plan::{Plan, Stop};
use crate::user::User;

/// How long a connection of a closed loop waits after a failure to connect.
const PAUSE: Duration = Duration::from_millis(10);
/// How many connections are opened at a time before the run. Servers limit the handshakes in
/// flight, and a run begins with open connections.
const OPENING: usize = 256;
/// Number of groups in which requests that were never sent are recorded, if there are more.
const UNSENT_GROUPS: u64 = 10_000;
/// Most bytes of an unexpected body that a report shows.
const EXCERPT: usize = 300;

/// Reports the progress of a run.
#[derive(Debug)]
pub struct Watch {
    /// Number of completed requests, failed ones included.
    pub ended: Arc<AtomicU64>,
    /// Receives the measurements of each second.
    pub seconds: Sender<Second>,
    /// Receives the histogram of each second, if they are wanted.
    pub intervals: Option<Sender<Interval>>,
}

/// Runs a plan on this thread. Completing `stop` interrupts it.
pub fn run(
    plan: &Plan,
    watch: Option<Watch>,
    stop: impl Future<Output = ()>,
) -> io::Result<RunOutcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run_plan(Arc::new(plan.clone()), watch, stop))
}

async fn run_plan(
    plan: Arc<Plan>,
    watch: Option<Watch>,
    stop: impl Future<Output = ()>,
) -> io::Result<RunOutcome> {
    let connector = Arc::new(Connector::new(&plan)?);
    let mut preparing = JoinSet::new();
    let opening = Arc::new(Semaphore::new(OPENING));
    let failures = Arc::new(AtomicUsize::new(0));
    for _ in 0..plan.concurrency {
        let mut user = User::new(plan.clone(), connector.clone());
        let (opening, failures) = (opening.clone(), failures.clone());
        preparing.spawn(async move {
            // After so many failures, the others leave it to their first requests: each attempt may
            // take as long as the timeout.
            if let Ok(_permit) = opening.acquire().await
                && !user.prepare().await
                && failures.fetch_add(1, Ordering::Relaxed) + 1 >= OPENING
            {
                opening.close();
            }
            user
        });
    }
    let users = async {
        let mut users = Vec::new();
        while let Some(user) = preparing.join_next().await {
            users.push(user.map_err(io::Error::other)?);
        }
        io::Result::Ok(users)
    };
    let mut stop = pin!(stop);
    let users = tokio::select! {
        users = users => users?,
        () = &mut stop => return Ok(Run::new(plan, watch)?.outcome(true)),
    };
    let run = Arc::new(Run::new(plan, watch)?);
    let mut tasks = JoinSet::new();
    for user in users {
        tasks.spawn(run.clone().drive(user));
    }
    let all_users = async { while tasks.join_next().await.is_some() {} };
    let is_interrupted = tokio::select! {
        () = all_users => false,
        () = stop => true,
        failed = run.pacer.run() => match failed? {},
        never = run.tick() => match never {},
        never = run.end_load() => match never {},
    };
    Ok(run.outcome(is_interrupted))
}

/// What all connections share.
struct Run {
    plan: Arc<Plan>,
    started: Instant,
    /// When an open loop of a given number of requests has had the time for all.
    end: Option<Instant>,
    /// CPU time of this thread at the start.
    cpu_before: Duration,
    pacer: Pacer,
    watch: Option<Watch>,
    state: Mutex<State>,
}

struct State {
    /// The number of the next turn.
    next: u64,
    /// How many turns were taken only after all were due.
    overdue: u64,
    recorder: Recorder,
    /// How late the pacer woke connections.
    lateness: Recorder,
    totals: Totals,
    /// When the last request ended.
    last: Duration,
    /// When the expected responses came after the load.
    late: Vec<Duration>,
    /// CPU time when the load ended, if that was before the last request.
    cpu_in_time: Option<Duration>,
}

impl State {
    fn new(keeps_intervals: bool) -> State {
        State {
            next: 0,
            overdue: 0,
            recorder: Recorder::new(keeps_intervals),
            lateness: Recorder::new(false),
            totals: Totals::default(),
            last: Duration::ZERO,
            late: Vec::new(),
            cpu_in_time: None,
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
        let started = Instant::now();
        let end = match (plan.pace, plan.stop) {
            (Pace::Open(schedule), Stop::Requests(count)) => schedule.due(count),
            _ => None,
        };
        Ok(Run {
            started,
            end: end.and_then(|end| started.checked_add(end)),
            cpu_before: thread_cpu(),
            pacer: Pacer::new()?,
            state: Mutex::new(State::new(
                watch
                    .as_ref()
                    .is_some_and(|watch| watch.intervals.is_some()),
            )),
            watch,
            plan,
        })
    }

    /// Sends requests over one connection until the run ends.
    async fn drive(self: Arc<Run>, mut user: User) {
        let waker = Arc::new(Notify::new());
        let mut now = Instant::now();
        let mut opened = user.opened();
        self.state().totals.connections += opened;
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
            let is_unconnected = matches!(&result, Err((error, _)) if error.is_unconnected);
            let failure = {
                let mut state = self.state();
                state.totals.connections += user.opened() - opened;
                opened = user.opened();
                self.record(&mut state, &turn, &prepared.name, result, now)
            };
            if let Some(watch) = &self.watch {
                watch.ended.fetch_add(1, Ordering::Relaxed);
            }
            if let Some(failure) = failure {
                let is_refused = is_unconnected || failure == RequestFailure::Refused;
                match self.backs_off_until(is_refused, now) {
                    Some(until) => tokio::time::sleep_until(until.into()).await,
                    // connect() may fail at once, every time. Without a pause, no other task
                    // would run, and an interruption would not end the run.
                    None => tokio::task::yield_now().await,
                }
                now = Instant::now();
            }
        }
    }

    /// Until when a connection waits after a failure, at most until the load ends.
    fn backs_off_until(&self, is_refused: bool, now: Instant) -> Option<Instant> {
        let pause = match is_refused {
            true => self.plan.back_off.max(PAUSE),
            false => self.plan.back_off,
        };
        if pause.is_zero() || self.plan.pace != Pace::Closed {
            return None;
        }
        Some(match self.plan.stop {
            Stop::After(length) => (now + pause).min(self.started + length),
            Stop::Requests(_) => now + pause,
        })
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
        if self.end.is_some_and(|end| now > end) {
            state.overdue += 1;
        }
        Some(Turn {
            number,
            due,
            must_wait: due > now,
        })
    }

    /// Records how a request ended. Returns its failure.
    fn record(
        &self,
        state: &mut State,
        turn: &Turn,
        request: &str,
        result: Result<Answer, (Error, u64)>,
        now: Instant,
    ) -> Option<RequestFailure> {
        let at = now - self.started;
        let is_late = matches!(self.plan.stop, Stop::After(length) if at > length);
        state.last = at;
        let totals = &mut state.totals;
        totals.requests += 1;
        let (failure, received) = match result {
            Ok(answer) => {
                totals.received += answer.received;
                totals.sent += answer.sent;
                *totals.statuses.entry(answer.status).or_default() += 1;
                if is_late {
                    *totals.late_statuses.entry(answer.status).or_default() += 1;
                }
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
                if matches!(
                    failure,
                    RequestFailure::Timeout | RequestFailure::Unfinished
                ) {
                    state.recorder.unanswered(now - turn.due, 1);
                }
            }
            None => {
                totals.responses += 1;
                if is_late {
                    state.late.push(at);
                }
                state.recorder.response(at, now - turn.due, received);
            }
        }
        failure
    }

    fn judge(&self, answer: &Answer) -> Option<RequestFailure> {
        let expectations = &self.plan.expectations;
        if !expectations.status.has(answer.status) {
            return Some(RequestFailure::Status);
        }
        (!expectations.allows_body(&answer.body)).then_some(RequestFailure::Body)
    }

    /// Closes each second, even without responses.
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
            self.send_intervals(state.recorder.take_intervals());
        }
    }

    fn send_intervals(&self, intervals: Vec<Interval>) {
        let to = self
            .watch
            .as_ref()
            .and_then(|watch| watch.intervals.as_ref());
        if let Some(to) = to {
            for interval in intervals {
                let _ = to.send(interval);
            }
        }
    }

    /// Notes the CPU time when a load of a given length ends.
    async fn end_load(&self) -> Infallible {
        if let Stop::After(length) = self.plan.stop {
            tokio::time::sleep_until((self.started + length).into()).await;
            self.state().cpu_in_time = Some(self.cpu());
        }
        std::future::pending().await
    }

    /// CPU time of this thread since the start.
    fn cpu(&self) -> Duration {
        thread_cpu().saturating_sub(self.cpu_before)
    }

    fn outcome(&self, is_interrupted: bool) -> RunOutcome {
        let now = self.started.elapsed();
        let own_cpu = self.cpu();
        let mut state = std::mem::replace(&mut *self.state(), State::new(false));
        let elapsed = match self.plan.stop {
            _ if is_interrupted => now,
            Stop::After(length) => length,
            Stop::Requests(_) => state.last,
        };
        let offered = match self.plan.pace {
            Pace::Closed => None,
            Pace::Open(schedule) => {
                let lateness = state.lateness.finish(Duration::ZERO);
                let due = schedule.due_before(elapsed);
                // Connections also take turns that are due later, and wait for them.
                let taken = match is_interrupted {
                    true => state.next.min(due),
                    false => state.next,
                };
                let offered = self.offered(due, taken, state.overdue, &lateness);
                record_unsent(&mut state.recorder, schedule, &offered, elapsed);
                Some(offered)
            }
        };
        let mut latencies = state.recorder.finish(now);
        self.send_intervals(std::mem::take(&mut latencies.intervals));
        RunOutcome {
            elapsed,
            // An interruption is the end of the load.
            late: match is_interrupted {
                true => Vec::new(),
                false => state.late,
            },
            totals: state.totals,
            latencies,
            offered,
            own_cpu,
            own_cpu_in_time: match is_interrupted {
                true => own_cpu,
                false => state.cpu_in_time.unwrap_or(own_cpu),
            },
            is_interrupted,
        }
    }

    fn offered(&self, due: u64, taken: u64, overdue: u64, lateness: &Latencies) -> Offered {
        // All turns that were taken, and those that were due until the end.
        let limit = match self.plan.stop {
            Stop::Requests(count) => count,
            Stop::After(_) => u64::MAX,
        };
        let due = taken.max(due.min(limit));
        Offered {
            due,
            unsent: due - taken,
            overdue,
            own_lateness: Duration::from_secs_f64(lateness.percentile_ms(99.0) / 1000.0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records how long the requests waited that were never sent, each at least: of many, a group
/// counts as its last.
fn record_unsent(recorder: &mut Recorder, schedule: Schedule, offered: &Offered, end: Duration) {
    let group = (offered.unsent / UNSENT_GROUPS).max(1);
    let mut number = offered.due - offered.unsent;
    while number < offered.due {
        let count = group.min(offered.due - number);
        number += count;
        let due = schedule.due(number - 1).unwrap_or(end);
        recorder.unanswered(end.saturating_sub(due), count);
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

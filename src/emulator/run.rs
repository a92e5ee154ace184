//! One event in an environment: from the runtime that has to wake for it to its REPORT.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, HeaderValue};
use surus_sys::signal::{self, Signal};
use tokio::sync::oneshot;

use super::environment::{Environment, InitFailure};
use super::fault::{Drawn, Fault};
use super::identifier;
use super::life::{Life, Reason};
use super::outcome::{FunctionError, Outcome};
use super::report::{Phase, Report, Status, ceiled};
use super::request::Request;
use super::state::{Delivery, Ended, Progress};

/// Enough for the event to have arrived; most are done after a few milliseconds.
const KILL_AFTER: Duration = Duration::from_millis(1);
/// The type of the error of a function that had no memory left.
const OUT_OF_MEMORY: &str = "Runtime.OutOfMemory";
/// Between the pieces of a slow event.
const SLOW_PIECE: Duration = Duration::from_millis(50);

impl Environment {
    /// Has one event done. The caller hears of its outcome before the environment is ready for the next.
    pub async fn run(
        &self,
        request: Request,
        drawn: &Drawn,
        outcome: oneshot::Sender<Outcome>,
    ) -> Report {
        let id = request.id.clone().unwrap_or_else(identifier::uuid);
        let mut run = Run {
            environment: self,
            id: &id,
            init: None,
            restore: None,
            began: Instant::now(),
            outcome: Some(outcome),
        };
        let life = match run.wake().await {
            Ok(life) => life,
            Err((status, error)) => {
                run.answer(Outcome::Error(error));
                return run.end(status, true);
            }
        };
        let deadline = run.began + self.function.timeout;
        let (ended, mut end) = oneshot::channel();
        let has_extensions = life.state().extensions.count() > 0;
        let delivery = self.delivery(&id, request, deadline, drawn, has_extensions);
        if let Some(outcome) = run.outcome.take() {
            life.state()
                .assign(delivery, outcome, ended, drawn.on_answer());
        }
        self.inflict(&life, drawn);
        tokio::select! {
            biased;
            // The sender goes where a life is buried: its process tells why.
            Ok(ended) = &mut end => match ended {
                Ended::Ready(error) => {
                    if drawn.has(Fault::Freeze) {
                        life.signal(Signal::Stop);
                        self.is_frozen.store(true, Ordering::Relaxed);
                    }
                    life.drain();
                    run.end(error.map_or(Status::Success, Status::Error), false)
                }
                Ended::TimedOut => run.time_out(&life).await,
            },
            error = failed(&life), if has_extensions => {
                run.outcome = life.state().lapse(&id);
                life.shut_down(Reason::Failure).await;
                life.drain();
                let status = Status::Error(error.kind.clone());
                run.answer(Outcome::Error(error));
                let report = run.end(status, true);
                self.bury_life(&life);
                report
            }
            (kind, message) = life.ended() => {
                let memory = life.was_out_of_memory();
                run.outcome = life.state().lapse(&id);
                // What it has started may live on; Lambda ends it too.
                life.shut_down(Reason::Failure).await;
                life.drain();
                let body = FunctionError::of_platform(kind, &format!("RequestId: {id} Error: {message}"));
                let kind = if memory { OUT_OF_MEMORY } else { kind };
                let status = Status::Error(kind.to_string());
                self.platform().failure(&id, &Status::Error(body.kind.clone()), &message);
                run.answer(Outcome::Error(body));
                let report = run.end(status, true);
                self.bury_life(&life);
                report
            }
            () = tokio::time::sleep_until(deadline.into()) => run.time_out(&life).await,
        }
    }

    fn delivery(
        &self,
        id: &str,
        request: Request,
        deadline: Instant,
        drawn: &Drawn,
        is_noticed: bool,
    ) -> Arc<Delivery> {
        let nonce = identifier::uuid();
        let left = deadline.saturating_duration_since(Instant::now());
        let deadline_ms = (identifier::since_epoch() + left).as_millis() as u64;
        let trace = request.trace.unwrap_or_else(identifier::trace);
        let mut headers = HeaderMap::with_capacity(12);
        let mut set = |name: &'static str, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        set("lambda-runtime-aws-request-id", id);
        set("lambda-runtime-invocation-id", &nonce);
        set("lambda-runtime-trace-id", &trace);
        set("lambda-runtime-deadline-ms", &deadline_ms.to_string());
        let optional = [
            ("lambda-runtime-client-context", &request.client_context),
            ("lambda-runtime-cognito-identity", &request.cognito_identity),
            ("lambda-runtime-aws-tenant-id", &request.tenant_id),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                set(name, value);
            }
        }
        set("content-type", "application/json");
        let arn = HeaderName::from_static("lambda-runtime-invoked-function-arn");
        headers.insert(arn, self.arn.clone());
        // Seldom is anybody there to hear of it.
        let notice = is_noticed.then(|| {
            serde_json::json!({
                "eventType": "INVOKE",
                "deadlineMs": deadline_ms,
                "requestId": id,
                "invokedFunctionArn": self.arn.to_str().unwrap_or_default(),
                "tracing": {"type": "X-Amzn-Trace-Id", "value": trace},
            })
            .to_string()
            .into()
        });
        Arc::new(Delivery {
            id: id.to_string(),
            nonce,
            headers,
            payload: request.payload,
            pause: drawn.has(Fault::SlowNext).then_some(SLOW_PIECE),
            is_streamed: request.is_streamed,
            notice,
        })
    }

    /// Faults that come while the event runs.
    fn inflict(&self, life: &Arc<Life>, drawn: &Drawn) {
        let (worker, memory) = (drawn.has(Fault::KillWorker), drawn.has(Fault::OutOfMemory));
        if !worker && !memory {
            return;
        }
        let life = life.clone();
        tokio::spawn(async move {
            tokio::time::sleep(KILL_AFTER).await;
            let tree = life.tree();
            let victim = if memory {
                life.set_out_of_memory();
                tree.and_then(|tree| tree.largest())
            } else {
                tree.and_then(|tree| tree.workers().first().copied())
            };
            if let Some(pid) = victim {
                let _ = signal::send(pid, Signal::Kill);
            }
        });
    }
}

/// Returns when an extension has failed.
async fn failed(life: &Life) -> FunctionError {
    let mut progress = life.state().progress();
    loop {
        if let Progress::Failed(error) = &*progress.borrow_and_update() {
            return error.clone();
        }
        if progress.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

/// An event under way.
struct Run<'a> {
    environment: &'a Environment,
    id: &'a str,
    init: Option<Duration>,
    restore: Option<Duration>,
    /// START.
    began: Instant,
    /// Until it is with the runtime.
    outcome: Option<oneshot::Sender<Outcome>>,
}

impl Run<'_> {
    /// A runtime that waits for an event: the one that lives, or a new one.
    async fn wake(&mut self) -> Result<Arc<Life>, (Status, FunctionError)> {
        let environment = self.environment;
        let function = &environment.function;
        let platform = environment.platform();
        if environment.is_frozen.swap(false, Ordering::Relaxed)
            && let Some(life) = environment.life()
        {
            life.signal(Signal::Continue);
        }
        if let Some(life) = environment.ready_life() {
            return self.start(life).await;
        }
        // Several events that come at once to an instance initialize it once.
        let _initializing = environment.initializing.lock().await;
        if let Some(life) = environment.ready_life() {
            return self.start(life).await;
        }
        if let Some(life) = environment.life().filter(|life| life.has_ended()) {
            // The runtime has ended between two events.
            life.shut_down(Reason::Failure).await;
            environment.bury_life(&life);
        }
        if environment.is_fresh.swap(false, Ordering::Relaxed) {
            let began = Instant::now();
            platform.init_start();
            let limit = began + function.init_limit;
            if let Ok(life) = environment.initialize(self.id, Phase::Init, limit).await {
                self.init = Some(life.released().unwrap_or(began).elapsed());
                life.drain();
                return self.start(life).await;
            }
        }
        platform.start(self.id);
        self.began = Instant::now();
        let limit = self.began + function.timeout;
        let initialized = environment.initialize(self.id, Phase::Invoke, limit).await;
        if let Ok(life) = &initialized
            && life.is_snapshot()
        {
            life.state().restore();
        }
        initialized.map_err(|failure| match failure {
            InitFailure::Error(error) => (Status::Error(error.kind.clone()), error),
            InitFailure::TimedOut => {
                let message = timed_out(function.timeout);
                platform.failure(self.id, &Status::Timeout, &message);
                let message = format!("RequestId: {} Error: {message}", self.id);
                let error = FunctionError::of_platform("Sandbox.Timedout", &message);
                (Status::Timeout, error)
            }
        })
    }

    /// START, after the restoration that a snapshot needs.
    async fn start(&mut self, life: Arc<Life>) -> Result<Arc<Life>, (Status, FunctionError)> {
        let environment = self.environment;
        let restored = match life.is_snapshot() {
            true => Some(environment.restore(&life, self.id).await),
            false => None,
        };
        environment.platform().start(self.id);
        self.began = Instant::now();
        match restored {
            None => Ok(life),
            Some(Ok(duration)) => {
                self.restore = Some(duration);
                Ok(life)
            }
            Some(Err(error)) => {
                life.shut_down(Reason::Failure).await;
                environment.bury_life(&life);
                Err((Status::Error(error.kind.clone()), error))
            }
        }
    }

    fn answer(&mut self, outcome: Outcome) {
        if let Some(sender) = self.outcome.take() {
            let _ = sender.send(outcome);
        }
    }

    async fn time_out(&mut self, life: &Arc<Life>) -> Report {
        let environment = self.environment;
        self.outcome = life.state().lapse(self.id);
        let message = timed_out(environment.function.timeout);
        let error = format!("RequestId: {} Error: {message}", self.id);
        self.answer(Outcome::Error(FunctionError::of_platform(
            "Sandbox.Timedout",
            &error,
        )));
        if !environment.function.initialization.is_managed() {
            life.shut_down(Reason::Timeout).await;
        }
        life.drain();
        let platform = environment.platform();
        platform.failure(self.id, &Status::Timeout, &message);
        let report = self.end(Status::Timeout, true);
        if !environment.function.initialization.is_managed() {
            environment.bury_life(life);
        }
        report
    }

    /// END and REPORT.
    fn end(&self, status: Status, is_reset: bool) -> Report {
        let duration = self.began.elapsed();
        let environment = self.environment;
        let max_memory = match &status {
            Status::Error(kind) if kind == OUT_OF_MEMORY => environment.function.memory,
            _ => environment.max_memory(is_reset),
        };
        let report = Report {
            request_id: self.id.to_string(),
            status,
            duration,
            billed: ceiled(duration + self.init.unwrap_or_default()),
            init: self.init,
            restore: self.restore,
            memory_size: environment.function.memory,
            max_memory,
            is_reset,
        };
        environment.platform().end(&report);
        report
    }
}

/// `Task timed out after 3.00 seconds`.
fn timed_out(timeout: Duration) -> String {
    format!("Task timed out after {:.2} seconds", timeout.as_secs_f64())
}

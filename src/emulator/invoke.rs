//! Runs one event in an environment, from waking or starting the runtime to its REPORT.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, HeaderValue};
use surus_sys::signal::{self, Signal};
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use super::environment::{Environment, InitFailure};
use super::fault_injection::{EventFaults, Fault};
use super::identifier;
use super::invoke_request::InvokeRequest;
use super::invoke_response::{FunctionError, InvokeOutcome};
use super::report::{EventStatus, InvocationReport, Phase, ceiled};
use super::sandbox::{Reason, Sandbox};
use super::state::{Delivery, Ended, StartProgress};

/// Long enough for the event to arrive; most events run for a few milliseconds.
const KILL_AFTER: Duration = Duration::from_millis(1);
const KILL_INTERVAL: Duration = Duration::from_millis(50);
/// The error type of a function that ran out of memory.
const OUT_OF_MEMORY: &str = "Runtime.OutOfMemory";
/// The pause between the pieces of a slow event.
const SLOW_PIECE: Duration = Duration::from_millis(50);

impl Environment {
    /// Runs one event. The caller gets the outcome before the environment is ready for the next
    /// event.
    pub async fn run(
        &self,
        request: InvokeRequest,
        drawn: &EventFaults,
        outcome: oneshot::Sender<InvokeOutcome>,
    ) -> InvocationReport {
        let id = request.id.clone().unwrap_or_else(identifier::uuid);
        let mut run = InvokeRun {
            environment: self,
            id: &id,
            init: None,
            restore: None,
            began: Instant::now(),
            outcome: Some(outcome),
        };
        let sandbox = match run.wake().await {
            Ok(sandbox) => sandbox,
            Err((status, error)) => {
                run.answer(InvokeOutcome::Error(error));
                return run.end(status, true);
            }
        };
        let deadline = run.began + self.function.timeout;
        let (ended, mut end) = oneshot::channel();
        let has_extensions = sandbox.state().extensions.count() > 0;
        let delivery = self.delivery(&id, request, deadline, drawn, has_extensions);
        if let Some(outcome) = run.outcome.take() {
            sandbox
                .state()
                .assign(delivery, outcome, ended, drawn.on_answer());
        }
        let _until_the_end = Killing::begin(&sandbox, drawn);
        tokio::select! {
            biased;
            // The sender is dropped with a discarded sandbox; the exit of its process then gives
            // the reason.
            Ok(ended) = &mut end => match ended {
                Ended::Ready(error) => {
                    if drawn.has(Fault::Freeze) {
                        sandbox.signal(Signal::Stop);
                        self.is_frozen.store(true, Ordering::Relaxed);
                    }
                    sandbox.drain();
                    run.end(error.map_or(EventStatus::Success, EventStatus::Error), false)
                }
                Ended::TimedOut => run.time_out(&sandbox).await,
            },
            error = failed(&sandbox), if has_extensions => {
                run.outcome = sandbox.state().lapse(&id);
                sandbox.shut_down(Reason::Failure).await;
                sandbox.drain();
                let status = EventStatus::Error(error.kind.clone());
                run.answer(InvokeOutcome::Error(error));
                let report = run.end(status, true);
                self.discard_sandbox(&sandbox);
                report
            }
            (kind, message) = sandbox.ended() => {
                let memory = sandbox.was_out_of_memory();
                run.outcome = sandbox.state().lapse(&id);
                // Processes that the runtime started may outlive it; Lambda ends them too.
                sandbox.shut_down(Reason::Failure).await;
                sandbox.drain();
                let error = format!("RequestId: {id} Error: {message}");
                let body = FunctionError::from_platform(kind, &error);
                let kind = if memory { OUT_OF_MEMORY } else { kind };
                let status = EventStatus::Error(kind.to_string());
                self.platform().failure(&id, &EventStatus::Error(body.kind.clone()), &message);
                run.answer(InvokeOutcome::Error(body));
                let report = run.end(status, true);
                self.discard_sandbox(&sandbox);
                report
            }
            () = tokio::time::sleep_until(deadline.into()) => run.time_out(&sandbox).await,
        }
    }

    fn delivery(
        &self,
        id: &str,
        request: InvokeRequest,
        deadline: Instant,
        drawn: &EventFaults,
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
        // Most functions have no extensions, so skip the work without them.
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
}

/// Applies the faults that kill a process until it is dropped, which is at the end of the event.
struct Killing {
    is_over: Arc<Mutex<bool>>,
    _task: AbortOnDropHandle<()>,
}

impl Killing {
    fn begin(sandbox: &Arc<Sandbox>, drawn: &EventFaults) -> Option<Killing> {
        let (worker, memory) = (drawn.has(Fault::KillWorker), drawn.has(Fault::OutOfMemory));
        if !worker && !memory {
            return None;
        }
        let (sandbox, is_over) = (sandbox.clone(), Arc::default());
        let may_kill = Arc::clone(&is_over);
        let task = tokio::spawn(async move {
            tokio::time::sleep(KILL_AFTER).await;
            if memory {
                let tree = sandbox.tree();
                sandbox.set_out_of_memory();
                return kill_unless(&may_kill, || tree.and_then(|tree| tree.largest()));
            }
            // A master process has no child for a moment when its workers are killed.
            let spared = sandbox.tree().map(|tree| tree.parents());
            let spared = spared.unwrap_or_default();
            // Again and again: a runtime may not have passed the event on yet, and gives it to
            // another worker then.
            loop {
                kill_unless(&may_kill, || {
                    let tree = sandbox.tree();
                    let found = tree.map(|tree| (tree.processes(), tree.parents()));
                    let (mut workers, parents) = found.unwrap_or_default();
                    workers.retain(|pid| !spared.contains(pid) && !parents.contains(pid));
                    workers
                });
                tokio::time::sleep(KILL_INTERVAL).await;
            }
        });
        Some(Killing {
            is_over,
            _task: AbortOnDropHandle::new(task),
        })
    }
}

impl Drop for Killing {
    /// Waits for kills that have begun, so that none hits a process of the next event.
    fn drop(&mut self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }
}

fn kill_unless<Pids: IntoIterator<Item = u32>>(
    is_over: &Mutex<bool>,
    victims: impl FnOnce() -> Pids,
) {
    let is_over = is_over.lock().unwrap_or_else(PoisonError::into_inner);
    if !*is_over {
        for pid in victims() {
            let _ = signal::send(pid, Signal::Kill);
        }
    }
}

/// Returns the error when an extension has failed.
async fn failed(sandbox: &Sandbox) -> FunctionError {
    let mut progress = sandbox.state().progress();
    loop {
        if let StartProgress::Failed(error) = &*progress.borrow_and_update() {
            return error.clone();
        }
        if progress.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

/// A running event.
struct InvokeRun<'a> {
    environment: &'a Environment,
    id: &'a str,
    init: Option<Duration>,
    restore: Option<Duration>,
    /// The time of START.
    began: Instant,
    /// Present until the event is handed to the runtime.
    outcome: Option<oneshot::Sender<InvokeOutcome>>,
}

impl InvokeRun<'_> {
    /// Returns a runtime that waits for an event: the current one or a new one.
    async fn wake(&mut self) -> Result<Arc<Sandbox>, (EventStatus, FunctionError)> {
        let environment = self.environment;
        let function = &environment.function;
        let platform = environment.platform();
        if environment.is_frozen.swap(false, Ordering::Relaxed)
            && let Some(sandbox) = environment.sandbox()
        {
            sandbox.signal(Signal::Continue);
        }
        if let Some(sandbox) = environment.ready_sandbox() {
            return self.start(sandbox).await;
        }
        // Several events may reach an instance at once; only the first initializes it.
        let _initializing = environment.initializing.lock().await;
        if let Some(sandbox) = environment.ready_sandbox() {
            return self.start(sandbox).await;
        }
        if let Some(sandbox) = environment.sandbox().filter(|sandbox| sandbox.has_ended()) {
            // The runtime exited between two events.
            sandbox.shut_down(Reason::Failure).await;
            environment.discard_sandbox(&sandbox);
        }
        if environment.is_fresh.swap(false, Ordering::Relaxed) {
            let began = Instant::now();
            platform.init_start();
            let limit = began + function.init_limit;
            if let Ok(sandbox) = environment.initialize(self.id, Phase::Init, limit).await {
                self.init = Some(sandbox.released().unwrap_or(began).elapsed());
                sandbox.drain();
                return self.start(sandbox).await;
            }
        }
        platform.start(self.id);
        self.began = Instant::now();
        let limit = self.began + function.timeout;
        let initialized = environment.initialize(self.id, Phase::Invoke, limit).await;
        if let Ok(sandbox) = &initialized
            && sandbox.is_snapshot()
        {
            sandbox.state().restore();
        }
        initialized.map_err(|failure| match failure {
            InitFailure::Error(error) => (EventStatus::Error(error.kind.clone()), error),
            InitFailure::TimedOut => {
                let message = timed_out(function.timeout);
                platform.failure(self.id, &EventStatus::Timeout, &message);
                let message = format!("RequestId: {} Error: {message}", self.id);
                let error = FunctionError::from_platform("Sandbox.Timedout", &message);
                (EventStatus::Timeout, error)
            }
        })
    }

    /// Logs START, after restoring a snapshot if there is one.
    async fn start(
        &mut self,
        sandbox: Arc<Sandbox>,
    ) -> Result<Arc<Sandbox>, (EventStatus, FunctionError)> {
        let environment = self.environment;
        let restored = match sandbox.is_snapshot() {
            true => Some(environment.restore(&sandbox, self.id).await),
            false => None,
        };
        environment.platform().start(self.id);
        self.began = Instant::now();
        match restored {
            None => Ok(sandbox),
            Some(Ok(duration)) => {
                self.restore = Some(duration);
                Ok(sandbox)
            }
            Some(Err(error)) => {
                sandbox.shut_down(Reason::Failure).await;
                environment.discard_sandbox(&sandbox);
                Err((EventStatus::Error(error.kind.clone()), error))
            }
        }
    }

    fn answer(&mut self, outcome: InvokeOutcome) {
        if let Some(sender) = self.outcome.take() {
            let _ = sender.send(outcome);
        }
    }

    async fn time_out(&mut self, sandbox: &Arc<Sandbox>) -> InvocationReport {
        let environment = self.environment;
        self.outcome = sandbox.state().lapse(self.id);
        let message = timed_out(environment.function.timeout);
        let error = format!("RequestId: {} Error: {message}", self.id);
        self.answer(InvokeOutcome::Error(FunctionError::from_platform(
            "Sandbox.Timedout",
            &error,
        )));
        if !environment.function.initialization.is_managed() {
            sandbox.shut_down(Reason::Timeout).await;
        }
        sandbox.drain();
        let platform = environment.platform();
        platform.failure(self.id, &EventStatus::Timeout, &message);
        let report = self.end(EventStatus::Timeout, true);
        if !environment.function.initialization.is_managed() {
            environment.discard_sandbox(sandbox);
        }
        report
    }

    /// Logs END and REPORT.
    fn end(&self, status: EventStatus, is_reset: bool) -> InvocationReport {
        let duration = self.began.elapsed();
        let environment = self.environment;
        let max_memory = match &status {
            EventStatus::Error(kind) if kind == OUT_OF_MEMORY => environment.function.memory,
            _ => environment.max_memory(is_reset),
        };
        let report = InvocationReport {
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

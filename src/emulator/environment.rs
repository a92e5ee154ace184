//! One execution environment: it initializes, has events done one after the other, and is reset when that fails.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, HeaderValue};
use surus_sys::signal::{self, Signal};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::fault::{Drawn, Fault};
use super::function::{Function, Initialization};
use super::identifier;
use super::life::{Life, Reason};
use super::log::Log;
use super::outcome::{FunctionError, Outcome};
use super::report::{Phase, Platform, Report, Status, ceiled};
use super::request::Request;
use super::state::{Delivery, Ended, Progress};

/// Where initializations of all but on-demand functions end.
const LONG_INIT: Duration = Duration::from_secs(15 * 60);
/// What a restored runtime has until it asks for an event.
const RESTORE_LIMIT: Duration = Duration::from_secs(10);
/// A killed worker has begun its event by then.
const KILL_AFTER: Duration = Duration::from_millis(20);
/// Measuring memory takes a millisecond; more often than this it would be felt.
const MEASURE_EVERY: Duration = Duration::from_secs(1);
const SLOW_PIECE: Duration = Duration::from_millis(50);

/// An execution environment.
pub struct Environment {
    pub function: Arc<Function>,
    pub address: SocketAddr,
    pub log: Arc<Log>,
    /// Cancelled when it is dropped: its Runtime API is closed.
    pub closed: CancellationToken,
    arn: HeaderValue,
    life: Mutex<Option<Arc<Life>>>,
    is_frozen: AtomicBool,
    /// It has never been initialized: the next event pays for that.
    is_fresh: AtomicBool,
    initializing: tokio::sync::Mutex<()>,
    measured: Mutex<Measured>,
}

#[derive(Default)]
struct Measured {
    at: Option<Instant>,
    bytes: u64,
}

/// How an initialization failed.
enum InitFailure {
    TimedOut,
    Error(FunctionError),
}

impl Environment {
    /// Opens its Runtime API; nothing is initialized yet, unless somebody who is attached may come at once.
    pub async fn open(function: Arc<Function>, log: Arc<Log>) -> anyhow::Result<Arc<Environment>> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let environment = Arc::new(Environment {
            address: listener.local_addr()?,
            arn: HeaderValue::try_from(function.arn())?,
            function,
            log,
            closed: CancellationToken::new(),
            life: Mutex::new(None),
            is_frozen: AtomicBool::new(false),
            is_fresh: AtomicBool::new(true),
            initializing: tokio::sync::Mutex::new(()),
            measured: Mutex::default(),
        });
        super::api::serve(listener, &environment);
        if matches!(
            environment.function.runtime,
            super::function::Runtime::Attached
        ) {
            environment.live(Life::attached(&environment.function));
        }
        Ok(environment)
    }

    /// The runtime that lives now.
    pub fn life(&self) -> Option<Arc<Life>> {
        self.life
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The runtime, where it waits for an event or for its restoration.
    fn ready_life(&self) -> Option<Arc<Life>> {
        self.life()
            .filter(|life| life.is_ready() && !life.has_ended())
    }

    fn live(&self, life: Arc<Life>) -> Arc<Life> {
        *self.life.lock().unwrap_or_else(PoisonError::into_inner) = Some(life.clone());
        life
    }

    /// The next event begins a new life.
    fn bury(&self) {
        let buried = self
            .life
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(life) = buried {
            life.connections.cancel();
        }
        self.is_frozen.store(false, Ordering::Relaxed);
        if matches!(self.function.runtime, super::function::Runtime::Attached) {
            self.live(Life::attached(&self.function));
        }
    }

    fn platform(&self) -> Platform<'_> {
        Platform {
            function: &self.function,
            log: &self.log,
        }
    }

    /// Initializes before the first event, where the function is so configured.
    pub async fn prepare(&self) -> Result<(), FunctionError> {
        if self.function.initialization == Initialization::OnDemand {
            return Ok(());
        }
        self.is_fresh.store(false, Ordering::Relaxed);
        self.platform().init_start();
        match self
            .initialize("", Phase::Init, Instant::now() + LONG_INIT)
            .await
        {
            Ok(_) => Ok(()),
            Err(InitFailure::Error(error)) => Err(error),
            Err(InitFailure::TimedOut) => Err(FunctionError::of_platform(
                "Sandbox.Timedout",
                "the initialization took more than 15 minutes",
            )),
        }
    }

    /// Starts a runtime and waits until it asks for an event, or for its restoration.
    async fn initialize(
        &self,
        id: &str,
        phase: Phase,
        limit: Instant,
    ) -> Result<Arc<Life>, InitFailure> {
        let began = Instant::now();
        let result = self.try_initialize(id, limit).await;
        let status = match &result {
            Ok(_) => return result,
            Err(InitFailure::TimedOut) => Status::Timeout,
            Err(InitFailure::Error(error)) => Status::Error(error.kind.clone()),
        };
        if let Some(life) = self.life() {
            life.shut_down(Reason::Failure).await;
            life.drain();
            if let Err(InitFailure::Error(error)) = &result
                && error.kind == "Runtime.ExitError"
            {
                let message = error.message().unwrap_or_default();
                let message = message.split_once("Error: ").map_or("", |(_, rest)| rest);
                self.platform().failure(id, &status, message);
            }
        }
        self.bury();
        self.platform().init_report(phase, began.elapsed(), &status);
        result
    }

    async fn try_initialize(&self, id: &str, limit: Instant) -> Result<Arc<Life>, InitFailure> {
        let life = match self.life() {
            Some(life) => life,
            None => {
                let started = Life::start(&self.function, self.address, &self.log, |life| {
                    self.live(life);
                })
                .await;
                started.map_err(|error| {
                    InitFailure::Error(FunctionError::of_platform(
                        "Runtime.InvalidEntrypoint",
                        &format!("RequestId: {id} Error: {error:#}"),
                    ))
                })?
            }
        };
        let mut progress = life.state().progress();
        loop {
            match progress.borrow_and_update().clone() {
                Progress::Ready | Progress::Snapshot => return Ok(life),
                Progress::Failed(error) => return Err(InitFailure::Error(error)),
                Progress::Starting => {}
            }
            tokio::select! {
                // The last word of a process that ends is heard first.
                biased;
                _ = progress.changed() => {}
                (kind, message) = life.ended() => {
                    let message = format!("RequestId: {id} Error: {message}");
                    return Err(InitFailure::Error(FunctionError::of_platform(kind, &message)));
                }
                () = tokio::time::sleep_until(limit.into()) => return Err(InitFailure::TimedOut),
            }
        }
    }

    /// Answers `/restore/next` and waits until the runtime asks for an event.
    async fn restore(&self, life: &Arc<Life>, id: &str) -> Result<Duration, FunctionError> {
        let began = Instant::now();
        self.platform().restore_start();
        let mut progress = {
            let mut state = life.state();
            state.restore();
            state.progress()
        };
        let restored = async {
            loop {
                match progress.borrow_and_update().clone() {
                    Progress::Ready => return Ok(()),
                    Progress::Failed(error) => return Err(error),
                    Progress::Starting | Progress::Snapshot => {}
                }
                tokio::select! {
                    biased;
                    _ = progress.changed() => {}
                    (kind, message) = life.ended() => {
                        let message = format!("RequestId: {id} Error: {message}");
                        return Err(FunctionError::of_platform(kind, &message));
                    }
                }
            }
        };
        let result = match tokio::time::timeout(RESTORE_LIMIT, restored).await {
            Ok(result) => result,
            Err(_) => Err(FunctionError::of_platform(
                "Runtime.RestoreTimeout",
                &format!("RequestId: {id} Error: the restoration took more than 10 seconds"),
            )),
        };
        life.drain();
        let status = match &result {
            Ok(()) => Status::Success,
            Err(error) => Status::Error(error.kind.clone()),
        };
        self.platform().restore_report(began.elapsed(), &status);
        result.map(|()| began.elapsed())
    }

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
            (kind, message) = life.ended() => {
                let memory = life.was_out_of_memory();
                run.outcome = life.state().lapse(&id);
                // What it has started may live on; Lambda ends it too.
                life.shut_down(Reason::Failure).await;
                life.drain();
                let body = FunctionError::of_platform(kind, &format!("RequestId: {id} Error: {message}"));
                let kind = if memory { "Runtime.OutOfMemory" } else { kind };
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

    /// Of several events that fail together, one buries.
    fn bury_life(&self, life: &Arc<Life>) {
        if self.life().is_some_and(|now| Arc::ptr_eq(&now, life)) {
            self.bury();
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

    /// The most memory so far, in MB.
    fn max_memory(&self) -> u64 {
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        // Who reads no log wants no delay.
        let is_due = measured
            .at
            .is_none_or(|at| self.log.is_read() && at.elapsed() > MEASURE_EVERY);
        if is_due && let Some(life) = self.life() {
            measured.bytes = measured.bytes.max(life.peak_memory());
            measured.at = Some(Instant::now());
        }
        measured.bytes.div_ceil(1 << 20).min(self.function.memory)
    }

    /// Ends it as Lambda ends environments that nobody needs any more.
    pub async fn close(&self) {
        if let Some(life) = self.life() {
            life.signal(Signal::Continue);
            life.shut_down(Reason::SpinDown).await;
            life.drain();
        }
        self.bury();
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        self.closed.cancel();
        if let Some(life) = self.life() {
            life.abandon();
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
        let report = Report {
            request_id: self.id.to_string(),
            status,
            duration,
            billed: ceiled(duration + self.init.unwrap_or_default()),
            init: self.init,
            restore: self.restore,
            memory_size: environment.function.memory,
            max_memory: environment.max_memory(),
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

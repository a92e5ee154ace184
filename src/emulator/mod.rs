//! An emulator of AWS Lambda: the Runtime API and the services in front of it, to try, test and
//! measure functions without AWS.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use surus::emulator::{Emulator, Function};
//! let emulator = Emulator::start(Function::command("./bootstrap", [""; 0])).await?;
//! let invocation = emulator.invoke(r#"{"hello":"world"}"#).await;
//! println!("{:?} {}", invocation.result, invocation.report.text());
//! emulator.stop().await;
//! # Ok(())
//! # }
//! ```

mod api;
mod api_error;
pub mod cgroup;
mod environment;
mod extension_api;
mod extensions;
pub mod fault_injection;
mod function;
pub mod http;
pub mod identifier;
mod invoke;
mod invoke_request;
mod invoke_response;
mod log;
mod process;
mod process_tree;
mod read_only_root;
mod reply;
mod report;
mod sandbox;
pub mod schedule;
pub mod sqs;
mod state;
mod variables;

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::anyhow;
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

pub use api_error::MAX_PAYLOAD;
pub use function::{EmulatedFunction, Initialization, LogFormat, Resources, Runtime, Sink};
pub use invoke_request::InvokeRequest;
pub use invoke_response::{AnswerBody, AnswerPiece, FunctionAnswer, FunctionError, InvokeOutcome};
pub use report::{EventStatus, InvocationReport};

use environment::Environment;
use fault_injection::Fault;
use log::Log;

/// How long `stop` waits for running events.
const GRACE: Duration = Duration::from_secs(2);

/// A function that can be invoked.
#[derive(Clone)]
pub struct Emulator(Arc<Inner>);

struct Inner {
    function: Arc<EmulatedFunction>,
    environments: Mutex<Environments>,
    /// One permit per event that may run.
    permits: Arc<Semaphore>,
    max: usize,
}

#[derive(Default)]
struct Environments {
    all: Vec<Arc<Environment>>,
    idle: Vec<Arc<Environment>>,
}

/// The result of an event and its cost.
#[derive(Debug)]
pub struct Invocation {
    pub request_id: String,
    /// The complete answer, or the error that the caller sees.
    pub result: Result<Bytes, FunctionError>,
    pub content_type: Option<String>,
    /// Whether the response had `Lambda-Runtime-Function-Response-Mode: streaming`.
    pub is_streamed: bool,
    /// The log lines of this event, if the function keeps its log. On a managed instance they may
    /// come from all running events.
    pub log: Vec<String>,
    pub report: InvocationReport,
}

/// A running event.
pub struct RunningEvent {
    outcome: oneshot::Receiver<InvokeOutcome>,
    end: oneshot::Receiver<(InvocationReport, Vec<String>)>,
}

impl Emulator {
    /// Opens the Runtime API. Initializes at once unless the function is on demand.
    pub async fn start(function: EmulatedFunction) -> anyhow::Result<Emulator> {
        let concurrency = function.initialization.concurrency();
        let permits = match function.initialization.is_managed() {
            true => concurrency,
            false => function.environments.max(1),
        };
        let emulator = Emulator(Arc::new(Inner {
            function: Arc::new(function),
            environments: Mutex::default(),
            permits: Arc::new(Semaphore::new(permits)),
            max: permits,
        }));
        let first = emulator.open().await?;
        emulator.lock().idle.push(first);
        if matches!(emulator.0.function.runtime, Runtime::Command { .. }) {
            emulator.prepare().await?;
        }
        Ok(emulator)
    }

    /// Initializes the first environment unless it initializes with its first event. An attached
    /// runtime can connect only after `start`, so its owner calls this later.
    pub async fn prepare(&self) -> anyhow::Result<()> {
        let first = self.lock().all.first().cloned();
        let Some(first) = first else { return Ok(()) };
        first.prepare().await.map_err(|error| {
            anyhow!(
                "the initialization failed: {}: {}",
                error.kind,
                String::from_utf8_lossy(&error.body)
            )
        })
    }

    pub fn function(&self) -> &EmulatedFunction {
        &self.0.function
    }

    /// `AWS_LAMBDA_RUNTIME_API` of the first environment, for a runtime that is attached.
    pub fn address(&self) -> Option<SocketAddr> {
        self.lock()
            .all
            .first()
            .map(|environment| environment.address)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Environments> {
        self.0
            .environments
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn open(&self) -> anyhow::Result<Arc<Environment>> {
        let function = &self.0.function;
        let log = Arc::new(Log::new(function.sink.clone(), function.keeps_log));
        let (environment, listener) = Environment::open(function.clone(), log).await?;
        api::serve(listener, &environment);
        self.lock().all.push(environment.clone());
        Ok(environment)
    }

    /// Runs an event and waits until the function is ready for the next one.
    pub async fn invoke(&self, request: impl Into<InvokeRequest>) -> Invocation {
        self.begin(request).await.end().await
    }

    /// Starts an event as soon as an environment is free.
    pub async fn begin(&self, request: impl Into<InvokeRequest>) -> RunningEvent {
        let request = request.into();
        let (outcome_sender, outcome) = oneshot::channel();
        let (end_sender, end) = oneshot::channel();
        let running = RunningEvent { outcome, end };
        let is_managed = self.0.function.initialization.is_managed();
        let permit = match is_managed {
            true => self.0.permits.clone().try_acquire_owned().ok(),
            false => self.0.permits.clone().acquire_owned().await.ok(),
        };
        let Some(permit) = permit else {
            let id = request.id.unwrap_or_else(identifier::uuid);
            let error = FunctionError::from_platform(
                "Runtime.Unavailable",
                "the instance already runs its maximum of concurrent events",
            );
            let report = InvocationReport::rejected(&self.0.function, id, &error);
            let _ = outcome_sender.send(InvokeOutcome::Error(error));
            let _ = end_sender.send((report, Vec::new()));
            return running;
        };
        let emulator = self.clone();
        // In its own task, so that the event ends even if its caller gives up.
        tokio::spawn(async move {
            emulator
                .run(request, permit, outcome_sender, end_sender)
                .await;
        });
        running
    }

    async fn run(
        &self,
        request: InvokeRequest,
        permit: OwnedSemaphorePermit,
        outcome: oneshot::Sender<InvokeOutcome>,
        end: oneshot::Sender<(InvocationReport, Vec<String>)>,
    ) {
        let is_managed = self.0.function.initialization.is_managed();
        let idle = match is_managed {
            true => self.lock().all.first().cloned(),
            false => self.lock().idle.pop(),
        };
        let environment = match idle {
            Some(environment) => environment,
            None => match self.open().await {
                Ok(environment) => environment,
                Err(error) => {
                    let id = request.id.unwrap_or_else(identifier::uuid);
                    let error = FunctionError::from_platform("Sandbox.Failure", &error.to_string());
                    let report = InvocationReport::rejected(&self.0.function, id, &error);
                    let _ = outcome.send(InvokeOutcome::Error(error));
                    let _ = end.send((report, Vec::new()));
                    return;
                }
            },
        };
        let drawn = self.0.function.faults.draw();
        let again = drawn.has(Fault::Duplicate).then(|| request.clone());
        let report = environment.run(request, &drawn, outcome).await;
        let id = report.request_id.clone();
        let log = environment.log.take();
        if let Some(mut again) = again {
            // The answer to the duplicate is discarded; its log lines are kept.
            let (discarded, _) = oneshot::channel();
            again.id = Some(id);
            environment
                .run(again, &fault_injection::EventFaults::default(), discarded)
                .await;
        }
        if !is_managed {
            self.lock().idle.push(environment);
        }
        drop(permit);
        let _ = end.send((report, log));
    }

    /// Starts all environments again from the function's files. Running events end first, and later
    /// ones wait.
    pub async fn renew(&self) -> anyhow::Result<()> {
        let all = u32::try_from(self.0.max).unwrap_or(u32::MAX);
        let _over = self.0.permits.acquire_many(all).await?;
        let all = self.lock().all.clone();
        for environment in all {
            environment.close().await;
            environment.is_fresh.store(true, Ordering::Relaxed);
        }
        self.prepare().await
    }

    /// Shuts down all environments as Lambda does when they are no longer needed. Running events
    /// have two seconds to end.
    pub async fn stop(&self) {
        let all = u32::try_from(self.0.max).unwrap_or(u32::MAX);
        let over = self.0.permits.acquire_many(all);
        let _ = tokio::time::timeout(GRACE, over).await;
        let all = self.lock().all.clone();
        for environment in all {
            environment.close().await;
        }
    }
}

impl RunningEvent {
    /// Waits for the answer or the error. Call it once.
    pub async fn outcome(&mut self) -> InvokeOutcome {
        match (&mut self.outcome).await {
            Ok(outcome) => outcome,
            Err(_) => InvokeOutcome::Error(FunctionError::from_platform(
                "Sandbox.Failure",
                "the emulator has stopped",
            )),
        }
    }

    /// Waits until the function is ready for the next event. Returns the cost and the log of this
    /// one.
    pub async fn report(self) -> Option<(InvocationReport, Vec<String>)> {
        self.end.await.ok()
    }

    /// Waits for the end of the event and returns everything.
    pub async fn end(mut self) -> Invocation {
        let (content_type, is_streamed, result) = match self.outcome().await {
            InvokeOutcome::Answer(answer) => {
                let body = answer.body.collect().await;
                (answer.content_type, answer.is_streamed, body)
            }
            InvokeOutcome::Error(error) => (None, false, Err(error)),
        };
        let (report, log) = self.end.await.unwrap_or_else(|_| {
            let error = FunctionError::from_platform("Sandbox.Failure", "the emulator has stopped");
            (
                InvocationReport::rejected(
                    &EmulatedFunction::new(Runtime::Attached),
                    String::new(),
                    &error,
                ),
                Vec::new(),
            )
        });
        Invocation {
            request_id: report.request_id.clone(),
            result,
            content_type,
            is_streamed,
            log,
            report,
        }
    }
}

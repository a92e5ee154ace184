//! One execution environment: initializes, runs events in order, and resets after a failure.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderValue;
use surus_sys::signal::Signal;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::function::{EmulatedFunction, Initialization};
use super::invoke_response::FunctionError;
use super::log::Log;
use super::report::{EventStatus, Phase, Platform};
use super::sandbox::{Reason, Sandbox};
use super::state::StartProgress;

/// The limit of initializations other than on demand.
const LONG_INIT: Duration = Duration::from_secs(15 * 60);
/// How long a restored runtime may take to ask for an event.
const RESTORE_LIMIT: Duration = Duration::from_secs(10);
/// Measuring memory takes about a millisecond, so it happens at most once per second.
const MEASURE_EVERY: Duration = Duration::from_secs(1);

/// An execution environment.
pub struct Environment {
    pub function: Arc<EmulatedFunction>,
    pub address: SocketAddr,
    pub log: Arc<Log>,
    /// Cancelled on drop, which closes the Runtime API.
    pub closed: CancellationToken,
    pub(super) arn: HeaderValue,
    sandbox: Mutex<Option<Arc<Sandbox>>>,
    pub(super) is_frozen: AtomicBool,
    /// Not initialized yet: the next event waits for the initialization.
    pub(super) is_fresh: AtomicBool,
    pub(super) initializing: tokio::sync::Mutex<()>,
    measured: Mutex<MeasuredMemory>,
}

#[derive(Default)]
struct MeasuredMemory {
    at: Option<Instant>,
    bytes: u64,
}

/// How an initialization failed.
pub enum InitFailure {
    TimedOut,
    Error(FunctionError),
}

impl Environment {
    /// Returns the environment and the listener of its Runtime API. Only an attached runtime may
    /// connect before the environment initializes.
    pub async fn open(
        function: Arc<EmulatedFunction>,
        log: Arc<Log>,
    ) -> anyhow::Result<(Arc<Environment>, TcpListener)> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let environment = Arc::new(Environment {
            address: listener.local_addr()?,
            arn: HeaderValue::try_from(function.arn())?,
            function,
            log,
            closed: CancellationToken::new(),
            sandbox: Mutex::new(None),
            is_frozen: AtomicBool::new(false),
            is_fresh: AtomicBool::new(true),
            initializing: tokio::sync::Mutex::new(()),
            measured: Mutex::default(),
        });
        if matches!(
            environment.function.runtime,
            super::function::Runtime::Attached
        ) {
            environment.set_sandbox(Sandbox::attached(&environment.function));
        }
        Ok((environment, listener))
    }

    /// The current sandbox.
    pub fn sandbox(&self) -> Option<Arc<Sandbox>> {
        self.sandbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The current sandbox if it waits for an event or for its restore.
    pub(super) fn ready_sandbox(&self) -> Option<Arc<Sandbox>> {
        self.sandbox()
            .filter(|sandbox| sandbox.is_ready() && !sandbox.has_ended())
    }

    fn set_sandbox(&self, sandbox: Arc<Sandbox>) -> Arc<Sandbox> {
        *self.sandbox.lock().unwrap_or_else(PoisonError::into_inner) = Some(sandbox.clone());
        sandbox
    }

    /// Discards the sandbox; the next event starts a new one.
    fn discard(&self) {
        let discarded = self
            .sandbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(sandbox) = discarded {
            sandbox.connections.cancel();
        }
        self.is_frozen.store(false, Ordering::Relaxed);
        if matches!(self.function.runtime, super::function::Runtime::Attached) {
            self.set_sandbox(Sandbox::attached(&self.function));
        }
    }

    pub(super) fn platform(&self) -> Platform<'_> {
        Platform {
            function: &self.function,
            log: &self.log,
        }
    }

    /// Initializes before the first event unless the function is on demand.
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
            Err(InitFailure::TimedOut) => Err(FunctionError::from_platform(
                "Sandbox.Timedout",
                "the initialization took more than 15 minutes",
            )),
        }
    }

    /// Starts a runtime and waits until it asks for an event or for its restore.
    pub(super) async fn initialize(
        &self,
        id: &str,
        phase: Phase,
        limit: Instant,
    ) -> Result<Arc<Sandbox>, InitFailure> {
        let began = Instant::now();
        let result = self.try_initialize(id, limit).await;
        let status = match &result {
            Ok(_) => return result,
            Err(InitFailure::TimedOut) => EventStatus::Timeout,
            Err(InitFailure::Error(error)) => EventStatus::Error(error.kind.clone()),
        };
        if let Some(sandbox) = self.sandbox() {
            sandbox.shut_down(Reason::Failure).await;
            sandbox.drain();
            if let Err(InitFailure::Error(error)) = &result
                && error.kind == "Runtime.ExitError"
            {
                let message = error.message().unwrap_or_default();
                let message = message.split_once("Error: ").map_or("", |(_, rest)| rest);
                self.platform().failure(id, &status, message);
            }
        }
        self.discard();
        self.platform().init_report(phase, began.elapsed(), &status);
        result
    }

    async fn try_initialize(&self, id: &str, limit: Instant) -> Result<Arc<Sandbox>, InitFailure> {
        let sandbox = match self.sandbox() {
            Some(sandbox) => sandbox,
            None => {
                let started = Sandbox::start(&self.function, self.address, &self.log, |sandbox| {
                    self.set_sandbox(sandbox);
                })
                .await;
                started.map_err(|error| {
                    InitFailure::Error(FunctionError::from_platform(
                        "Runtime.InvalidEntrypoint",
                        &format!("RequestId: {id} Error: {error:#}"),
                    ))
                })?
            }
        };
        let mut progress = sandbox.state().progress();
        loop {
            match progress.borrow_and_update().clone() {
                StartProgress::Ready | StartProgress::Snapshot => return Ok(sandbox),
                StartProgress::Failed(error) => return Err(InitFailure::Error(error)),
                StartProgress::Starting => {}
            }
            tokio::select! {
                // Biased, so that an error that a process reports just before it exits wins.
                biased;
                _ = progress.changed() => {}
                (kind, message) = sandbox.ended() => {
                    let message = format!("RequestId: {id} Error: {message}");
                    return Err(InitFailure::Error(FunctionError::from_platform(kind, &message)));
                }
                () = tokio::time::sleep_until(limit.into()) => return Err(InitFailure::TimedOut),
            }
        }
    }

    /// Answers `/restore/next` and waits until the runtime asks for an event.
    pub(super) async fn restore(
        &self,
        sandbox: &Arc<Sandbox>,
        id: &str,
    ) -> Result<Duration, FunctionError> {
        let began = Instant::now();
        self.platform().restore_start();
        let mut progress = {
            let mut state = sandbox.state();
            state.restore();
            state.progress()
        };
        let restored = async {
            loop {
                match progress.borrow_and_update().clone() {
                    StartProgress::Ready => return Ok(()),
                    StartProgress::Failed(error) => return Err(error),
                    StartProgress::Starting | StartProgress::Snapshot => {}
                }
                tokio::select! {
                    biased;
                    _ = progress.changed() => {}
                    (kind, message) = sandbox.ended() => {
                        let message = format!("RequestId: {id} Error: {message}");
                        return Err(FunctionError::from_platform(kind, &message));
                    }
                }
            }
        };
        let result = match tokio::time::timeout(RESTORE_LIMIT, restored).await {
            Ok(result) => result,
            Err(_) => Err(FunctionError::from_platform(
                "Runtime.RestoreTimeout",
                &format!("RequestId: {id} Error: the restoration took more than 10 seconds"),
            )),
        };
        sandbox.drain();
        let status = match &result {
            Ok(()) => EventStatus::Success,
            Err(error) => EventStatus::Error(error.kind.clone()),
        };
        self.platform().restore_report(began.elapsed(), &status);
        result.map(|()| began.elapsed())
    }

    /// Discards this sandbox once, even if several of its events fail together.
    pub(super) fn discard_sandbox(&self, sandbox: &Arc<Sandbox>) {
        if self.sandbox().is_some_and(|now| Arc::ptr_eq(&now, sandbox)) {
            self.discard();
        }
    }

    /// The highest memory use so far, in MB. Measured again if the last value is old or the
    /// environment ends.
    pub(super) fn max_memory(&self, is_end: bool) -> u64 {
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a reader of the log, the delay has no use.
        let is_due = measured
            .at
            .is_none_or(|at| self.log.is_read() && at.elapsed() > MEASURE_EVERY);
        if (is_due || is_end)
            && let Some(sandbox) = self.sandbox()
        {
            measured.bytes = measured.bytes.max(sandbox.peak_memory());
            measured.at = Some(Instant::now());
        }
        measured.bytes.div_ceil(1 << 20).min(self.function.memory)
    }

    /// Shuts down as Lambda does with an environment that is no longer needed.
    pub async fn close(&self) {
        if let Some(sandbox) = self.sandbox() {
            sandbox.signal(Signal::Continue);
            sandbox.shut_down(Reason::SpinDown).await;
            sandbox.drain();
        }
        self.discard();
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        self.closed.cancel();
        if let Some(sandbox) = self.sandbox() {
            sandbox.abandon();
        }
    }
}

//! One execution environment: it initializes, has events done one after the other, and is reset when that fails.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderValue;
use surus_sys::signal::Signal;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::function::{Function, Initialization};
use super::life::{Life, Reason};
use super::log::Log;
use super::outcome::FunctionError;
use super::report::{Phase, Platform, Status};
use super::state::Progress;

/// Where initializations of all but on-demand functions end.
const LONG_INIT: Duration = Duration::from_secs(15 * 60);
/// What a restored runtime has until it asks for an event.
const RESTORE_LIMIT: Duration = Duration::from_secs(10);
/// Measuring memory takes a millisecond; more often than this it would be felt.
const MEASURE_EVERY: Duration = Duration::from_secs(1);

/// An execution environment.
pub struct Environment {
    pub function: Arc<Function>,
    pub address: SocketAddr,
    pub log: Arc<Log>,
    /// Cancelled when it is dropped: its Runtime API is closed.
    pub closed: CancellationToken,
    pub(super) arn: HeaderValue,
    life: Mutex<Option<Arc<Life>>>,
    pub(super) is_frozen: AtomicBool,
    /// It has never been initialized: the next event pays for that.
    pub(super) is_fresh: AtomicBool,
    pub(super) initializing: tokio::sync::Mutex<()>,
    measured: Mutex<Measured>,
}

#[derive(Default)]
struct Measured {
    at: Option<Instant>,
    bytes: u64,
}

/// How an initialization failed.
pub enum InitFailure {
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
    pub(super) fn ready_life(&self) -> Option<Arc<Life>> {
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

    pub(super) fn platform(&self) -> Platform<'_> {
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
    pub(super) async fn initialize(
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
    pub(super) async fn restore(
        &self,
        life: &Arc<Life>,
        id: &str,
    ) -> Result<Duration, FunctionError> {
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

    /// Of several events that fail together, one buries.
    pub(super) fn bury_life(&self, life: &Arc<Life>) {
        if self.life().is_some_and(|now| Arc::ptr_eq(&now, life)) {
            self.bury();
        }
    }

    /// The most memory so far, in MB. It is measured anew where that is due, or the environment ends.
    pub(super) fn max_memory(&self, is_end: bool) -> u64 {
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        // Who reads no log wants no delay.
        let is_due = measured
            .at
            .is_none_or(|at| self.log.is_read() && at.elapsed() > MEASURE_EVERY);
        if (is_due || is_end)
            && let Some(life) = self.life()
        {
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

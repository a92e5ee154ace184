//! The state machine of a runtime process and its events, with the state names of AWS's own
//! emulator.
//!
//! An environment usually runs one event at a time, and the process is in the state of that event.
//! On managed instances each event has its own state.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::{oneshot, watch};

use super::api_error::ApiError;
use super::extensions::Extensions;
use super::fault_injection::OnAnswer;
use super::invoke_response::{FunctionError, InvokeOutcome};

/// An event as `/next` delivers it.
#[derive(Debug)]
pub struct Delivery {
    /// `Lambda-Runtime-Aws-Request-Id`.
    pub id: String,
    /// `Lambda-Runtime-Invocation-Id`: identifies this attempt, because a request id may be used
    /// again.
    pub nonce: String,
    pub headers: HeaderMap,
    pub payload: Bytes,
    /// The pause between the pieces of the payload.
    pub pause: Option<Duration>,
    /// Whether the caller accepts a stream.
    pub is_streamed: bool,
    /// The INVOKE event for extensions, if there are any.
    pub notice: Option<Bytes>,
}

/// The start-up progress of a runtime process.
#[derive(Debug, Clone)]
pub enum StartProgress {
    Starting,
    /// Waits in `/restore/next`.
    Snapshot,
    /// The runtime and every extension have asked for their first event.
    Ready,
    Failed(FunctionError),
}

/// How an event ended, for the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It was answered, with this error type or none, and the runtime and extensions asked for the
    /// next event.
    Ready(Option<String>),
    /// A fault simulates a timeout.
    TimedOut,
}

/// The two calls that answer an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerCall {
    Response,
    Error,
}

impl AnswerCall {
    fn state(self) -> &'static str {
        match self {
            AnswerCall::Response => "InvocationResponse",
            AnswerCall::Error => "InvocationErrorResponse",
        }
    }
}

/// The right to answer an event; only one call gets it.
pub struct Ticket {
    pub outcome: oneshot::Sender<InvokeOutcome>,
    pub is_streamed: bool,
}

/// The result of `/next`.
pub enum NextDelivery {
    Now(Arc<Delivery>),
    Wait(oneshot::Receiver<Arc<Delivery>>),
}

enum SandboxPhase {
    Started,
    InitError,
    RestoreReady(oneshot::Sender<()>),
    Restoring,
    RestoreError,
    Serving,
}

enum Stage {
    Running,
    Answering(AnswerCall),
    /// The error type of the response, if any.
    Sent(Option<String>),
    /// A fault makes every further call fail with 500.
    Broken,
}

struct Flight {
    delivery: Arc<Delivery>,
    stage: Stage,
    outcome: Option<oneshot::Sender<InvokeOutcome>>,
    ended: oneshot::Sender<Ended>,
    fault: Option<OnAnswer>,
}

/// How many finished events still get 410 instead of 400 for late responses.
const LAPSED: usize = 1000;

/// The state of one sandbox.
pub struct State {
    phase: SandboxPhase,
    is_managed: bool,
    flights: Vec<Flight>,
    /// Calls of `/next` that wait for an event.
    parked: VecDeque<oneshot::Sender<Arc<Delivery>>>,
    /// Events that wait for a call.
    waiting: VecDeque<Arc<Delivery>>,
    lapsed: VecDeque<String>,
    /// Set when the runtime has finished an event but extensions have not.
    closing: Option<(oneshot::Sender<Ended>, Option<String>)>,
    pub extensions: Extensions,
    progress: watch::Sender<StartProgress>,
}

impl State {
    pub fn new(is_managed: bool, extensions: Extensions) -> State {
        State {
            phase: SandboxPhase::Started,
            is_managed,
            flights: Vec::new(),
            parked: VecDeque::new(),
            waiting: VecDeque::new(),
            lapsed: VecDeque::new(),
            closing: None,
            extensions,
            progress: watch::Sender::new(StartProgress::Starting),
        }
    }

    pub fn progress(&self) -> watch::Receiver<StartProgress> {
        self.progress.subscribe()
    }

    /// The name of the current state.
    fn name(&self) -> &'static str {
        match &self.phase {
            SandboxPhase::Started => "Started",
            SandboxPhase::InitError => "InitError",
            SandboxPhase::RestoreReady(_) => "RestoreReady",
            SandboxPhase::Restoring => "Restoring",
            SandboxPhase::RestoreError => "RuntimeRestoreErrorState",
            SandboxPhase::Serving => match self.flights.first().map(|flight| &flight.stage) {
                None => "Ready",
                Some(Stage::Running) => "Running",
                Some(Stage::Answering(call)) => call.state(),
                Some(Stage::Sent(_) | Stage::Broken) => "RuntimeResponseSentState",
            },
        }
    }

    /// Handles `GET /runtime/invocation/next`.
    pub fn next(&mut self) -> Result<NextDelivery, ApiError> {
        match self.phase {
            SandboxPhase::Started | SandboxPhase::Restoring => {
                self.phase = SandboxPhase::Serving;
                self.extensions.close_registration();
                self.show_readiness();
            }
            SandboxPhase::Serving => {}
            _ => return Err(ApiError::transition(self.name(), "Ready")),
        }
        if !self.is_managed
            && let Some(flight) = self.flights.first()
        {
            match &flight.stage {
                // Like AWS's own emulator, deliver the same event again if the runtime asks again.
                Stage::Running if !self.is_undelivered(&flight.delivery) => {
                    return Ok(NextDelivery::Now(flight.delivery.clone()));
                }
                Stage::Running => {}
                Stage::Answering(_) => return Err(ApiError::transition(self.name(), "Ready")),
                Stage::Sent(error) => {
                    let error = error.clone();
                    let flight = self.flights.remove(0);
                    self.close(flight.ended, error);
                }
                Stage::Broken => return Err(ApiError::internal()),
            }
        }
        if let Some(delivery) = self.waiting.pop_front() {
            return Ok(NextDelivery::Now(delivery));
        }
        let (sender, receiver) = oneshot::channel();
        self.parked.retain(|parked| !parked.is_closed());
        self.parked.push_back(sender);
        Ok(NextDelivery::Wait(receiver))
    }

    fn is_undelivered(&self, delivery: &Arc<Delivery>) -> bool {
        self.waiting
            .iter()
            .any(|waiting| Arc::ptr_eq(waiting, delivery))
    }

    /// Gives an event to the runtime, now or at its next call.
    pub fn assign(
        &mut self,
        delivery: Arc<Delivery>,
        outcome: oneshot::Sender<InvokeOutcome>,
        ended: oneshot::Sender<Ended>,
        fault: Option<OnAnswer>,
    ) {
        // Extensions of managed instances get no INVOKE events.
        if let Some(notice) = delivery.notice.as_ref().filter(|_| !self.is_managed) {
            self.extensions.invoke(notice);
        }
        self.flights.push(Flight {
            delivery: delivery.clone(),
            stage: Stage::Running,
            outcome: Some(outcome),
            ended,
            fault,
        });
        let mut delivery = delivery;
        while let Some(parked) = self.parked.pop_front() {
            match parked.send(delivery) {
                Ok(()) => return,
                // The waiting call was dropped.
                Err(back) => delivery = back,
            }
        }
        self.waiting.push_back(delivery);
    }

    /// Handles the start of `POST /runtime/invocation/{id}/response` or `/error`.
    pub fn answer(
        &mut self,
        call: AnswerCall,
        id: &str,
        nonce: Option<&str>,
    ) -> Result<Ticket, ApiError> {
        let Some(at) = self.flights.iter().position(|f| f.delivery.id == id) else {
            let is_lapsed = self.lapsed.iter().any(|lapsed| lapsed == id);
            return Err(if is_lapsed {
                ApiError::invocation_over()
            } else {
                ApiError::request_id()
            });
        };
        let name = self.name();
        let flight = &mut self.flights[at];
        // Old runtimes do not echo the nonce; Lambda accepts their answers.
        if nonce.is_some_and(|nonce| nonce != flight.delivery.nonce) {
            return Err(ApiError::invocation_over());
        }
        let outcome = match (&flight.stage, flight.outcome.take()) {
            (Stage::Running, Some(outcome)) => outcome,
            (Stage::Broken, kept) => {
                flight.outcome = kept;
                return Err(ApiError::internal());
            }
            (_, kept) => {
                flight.outcome = kept;
                return Err(ApiError::transition(name, call.state()));
            }
        };
        match flight.fault.take() {
            None => {
                flight.stage = Stage::Answering(call);
                Ok(Ticket {
                    outcome,
                    is_streamed: flight.delivery.is_streamed,
                })
            }
            Some(OnAnswer::Gone) => {
                let error = timed_out(id);
                let _ = outcome.send(InvokeOutcome::Error(error));
                self.sent(id, Some("Sandbox.Timedout".into()));
                Err(ApiError::invocation_over())
            }
            Some(OnAnswer::TooLarge) => {
                let error = FunctionError::too_large();
                self.sent(id, Some(error.kind.clone()));
                let _ = outcome.send(InvokeOutcome::Error(error));
                Err(ApiError::too_large())
            }
            Some(OnAnswer::Internal) => {
                flight.stage = Stage::Broken;
                flight.outcome = Some(outcome);
                Err(ApiError::internal())
            }
            Some(OnAnswer::TimeOut) => {
                let mut flight = self.flights.remove(at);
                let (unused, _) = oneshot::channel();
                let ended = std::mem::replace(&mut flight.ended, unused);
                flight.stage = Stage::Broken;
                flight.outcome = Some(outcome);
                self.flights.push(flight);
                let _ = ended.send(Ended::TimedOut);
                Err(ApiError::invocation_over())
            }
        }
    }

    /// Records that the answer, with this error type or none, has arrived completely or was
    /// rejected for good.
    pub fn sent(&mut self, id: &str, error: Option<String>) {
        let Some(at) = self.flights.iter().position(|f| f.delivery.id == id) else {
            return;
        };
        if self.is_managed {
            let flight = self.flights.remove(at);
            let _ = flight.ended.send(Ended::Ready(error));
        } else {
            self.flights[at].stage = Stage::Sent(error);
        }
    }

    /// Ends an event without an answer. Returns the sender if the caller still needs a result.
    pub fn lapse(&mut self, id: &str) -> Option<oneshot::Sender<InvokeOutcome>> {
        let at = self.flights.iter().position(|f| f.delivery.id == id)?;
        let flight = self.flights.remove(at);
        self.waiting
            .retain(|delivery| !Arc::ptr_eq(delivery, &flight.delivery));
        if self.lapsed.len() == LAPSED {
            self.lapsed.pop_front();
        }
        self.lapsed.push_back(flight.delivery.id.clone());
        flight.outcome
    }

    fn close(&mut self, ended: oneshot::Sender<Ended>, error: Option<String>) {
        if self.extensions.are_ready() {
            let _ = ended.send(Ended::Ready(error));
        } else {
            self.closing = Some((ended, error));
        }
    }

    /// Must be called after an extension asks for its next event.
    pub fn extension_is_ready(&mut self) {
        self.show_readiness();
        if self.extensions.are_ready()
            && let Some((ended, error)) = self.closing.take()
        {
            let _ = ended.send(Ended::Ready(error));
        }
    }

    fn show_readiness(&mut self) {
        if matches!(self.phase, SandboxPhase::Serving) && self.extensions.are_ready() {
            self.progress.send_if_modified(|progress| {
                let is_news = matches!(progress, StartProgress::Starting | StartProgress::Snapshot);
                if is_news {
                    *progress = StartProgress::Ready;
                }
                is_news
            });
        }
    }

    /// Records that an extension failed, which makes the sandbox fail.
    pub fn fail(&mut self, error: FunctionError) {
        self.progress.send_replace(StartProgress::Failed(error));
    }

    /// Handles `POST /runtime/init/error`.
    pub fn init_error(&mut self, error: FunctionError) -> Result<(), ApiError> {
        match self.phase {
            SandboxPhase::Started => self.phase = SandboxPhase::InitError,
            // Runtimes without `/restore/error` report here.
            SandboxPhase::Restoring => self.phase = SandboxPhase::RestoreError,
            _ => return Err(ApiError::transition(self.name(), "InitError")),
        }
        self.fail(error);
        Ok(())
    }

    /// Handles `GET /runtime/restore/next`.
    pub fn restore_next(&mut self) -> Result<oneshot::Receiver<()>, ApiError> {
        if !matches!(self.phase, SandboxPhase::Started) {
            return Err(ApiError::transition(self.name(), "Ready"));
        }
        let (sender, receiver) = oneshot::channel();
        self.phase = SandboxPhase::RestoreReady(sender);
        self.extensions.close_registration();
        self.progress.send_replace(StartProgress::Snapshot);
        Ok(receiver)
    }

    /// Restores the snapshot: answers `/restore/next`.
    pub fn restore(&mut self) {
        if let SandboxPhase::RestoreReady(sender) =
            std::mem::replace(&mut self.phase, SandboxPhase::Restoring)
        {
            let _ = sender.send(());
        }
    }

    /// Handles `POST /runtime/restore/error`.
    pub fn restore_error(&mut self, error: FunctionError) -> Result<(), ApiError> {
        if !matches!(self.phase, SandboxPhase::Restoring) {
            return Err(ApiError::transition(
                self.name(),
                "RuntimeRestoreErrorState",
            ));
        }
        self.phase = SandboxPhase::RestoreError;
        self.fail(error);
        Ok(())
    }
}

/// The caller's error for an injected timeout, which has no duration.
fn timed_out(id: &str) -> FunctionError {
    FunctionError::from_platform(
        "Sandbox.Timedout",
        &format!("RequestId: {id} Error: Task timed out"),
    )
}

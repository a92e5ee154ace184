//! What may a runtime call when? The states of a runtime process and of its events, with the names that AWS's own emulator uses.
//!
//! One environment has one event at a time: then the process as a whole is in the state of its event. On managed instances each
//! event has its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::{oneshot, watch};

use super::extensions::Extensions;
use super::fault::OnAnswer;
use super::outcome::{FunctionError, Outcome};
use super::refusal::Refusal;

/// An event as `/next` delivers it.
#[derive(Debug)]
pub struct Delivery {
    /// `Lambda-Runtime-Aws-Request-Id`.
    pub id: String,
    /// `Lambda-Runtime-Invocation-Id`: this attempt, where the request id may come again.
    pub nonce: String,
    pub headers: HeaderMap,
    pub payload: Bytes,
    /// A pause between the pieces of the payload.
    pub pause: Option<Duration>,
    /// The caller takes the answer as it comes.
    pub is_streamed: bool,
    /// What extensions are told of it, where there are any.
    pub notice: Option<Bytes>,
}

/// How far a runtime process has come.
#[derive(Debug, Clone)]
pub enum Progress {
    Starting,
    /// It waits in `/restore/next`.
    Snapshot,
    /// It has asked for its first event, and every extension too.
    Ready,
    Failed(FunctionError),
}

/// How an event ended, for the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It was answered, with this type of error or none, and everybody has asked for the next.
    Ready(Option<String>),
    /// A fault has its time be over.
    TimedOut,
}

/// The two calls that answer an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Post {
    Response,
    Error,
}

impl Post {
    fn state(self) -> &'static str {
        match self {
            Post::Response => "InvocationResponse",
            Post::Error => "InvocationErrorResponse",
        }
    }
}

/// The right to answer an event, which one call has.
pub struct Ticket {
    pub outcome: oneshot::Sender<Outcome>,
    pub is_streamed: bool,
}

/// What `/next` comes to.
pub enum Next {
    Now(Arc<Delivery>),
    Wait(oneshot::Receiver<Arc<Delivery>>),
}

enum Phase {
    Started,
    InitError,
    RestoreReady(oneshot::Sender<()>),
    Restoring,
    RestoreError,
    Serving,
}

enum Stage {
    Running,
    Answering(Post),
    /// With the type of the error that it was.
    Sent(Option<String>),
    /// A fault has broken it: every further call is answered with 500.
    Broken,
}

struct Flight {
    delivery: Arc<Delivery>,
    stage: Stage,
    outcome: Option<oneshot::Sender<Outcome>>,
    ended: oneshot::Sender<Ended>,
    fault: Option<OnAnswer>,
}

/// Events that are over but may still be answered; more than that are forgotten.
const LAPSED: usize = 1000;

/// Of one life of a runtime process.
pub struct State {
    phase: Phase,
    is_managed: bool,
    flights: Vec<Flight>,
    /// Calls of `/next` that wait for an event.
    parked: VecDeque<oneshot::Sender<Arc<Delivery>>>,
    /// Events that wait for a call.
    waiting: VecDeque<Arc<Delivery>>,
    lapsed: VecDeque<String>,
    /// The runtime is done with an event, extensions are not.
    closing: Option<(oneshot::Sender<Ended>, Option<String>)>,
    pub extensions: Extensions,
    progress: watch::Sender<Progress>,
}

impl State {
    pub fn new(is_managed: bool, extensions: Extensions) -> State {
        State {
            phase: Phase::Started,
            is_managed,
            flights: Vec::new(),
            parked: VecDeque::new(),
            waiting: VecDeque::new(),
            lapsed: VecDeque::new(),
            closing: None,
            extensions,
            progress: watch::Sender::new(Progress::Starting),
        }
    }

    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// The name of the state that the process is in.
    fn name(&self) -> &'static str {
        match &self.phase {
            Phase::Started => "Started",
            Phase::InitError => "InitError",
            Phase::RestoreReady(_) => "RestoreReady",
            Phase::Restoring => "Restoring",
            Phase::RestoreError => "RuntimeRestoreErrorState",
            Phase::Serving => match self.flights.first().map(|flight| &flight.stage) {
                None => "Ready",
                Some(Stage::Running) => "Running",
                Some(Stage::Answering(post)) => post.state(),
                Some(Stage::Sent(_) | Stage::Broken) => "RuntimeResponseSentState",
            },
        }
    }

    /// `GET /runtime/invocation/next`.
    pub fn next(&mut self) -> Result<Next, Refusal> {
        match self.phase {
            Phase::Started | Phase::Restoring => {
                self.phase = Phase::Serving;
                self.extensions.close_registration();
                self.show_readiness();
            }
            Phase::Serving => {}
            _ => return Err(Refusal::transition(self.name(), "Ready")),
        }
        if !self.is_managed
            && let Some(flight) = self.flights.first()
        {
            match &flight.stage {
                // As AWS's own emulator does: who asks again gets the same event again.
                Stage::Running if !self.is_undelivered(&flight.delivery) => {
                    return Ok(Next::Now(flight.delivery.clone()));
                }
                Stage::Running => {}
                Stage::Answering(_) => return Err(Refusal::transition(self.name(), "Ready")),
                Stage::Sent(error) => {
                    let error = error.clone();
                    let flight = self.flights.remove(0);
                    self.close(flight.ended, error);
                }
                Stage::Broken => return Err(Refusal::internal()),
            }
        }
        if let Some(delivery) = self.waiting.pop_front() {
            return Ok(Next::Now(delivery));
        }
        let (sender, receiver) = oneshot::channel();
        self.parked.retain(|parked| !parked.is_closed());
        self.parked.push_back(sender);
        Ok(Next::Wait(receiver))
    }

    fn is_undelivered(&self, delivery: &Arc<Delivery>) -> bool {
        self.waiting
            .iter()
            .any(|waiting| Arc::ptr_eq(waiting, delivery))
    }

    /// Gives an event to the runtime, at once or when it asks.
    pub fn assign(
        &mut self,
        delivery: Arc<Delivery>,
        outcome: oneshot::Sender<Outcome>,
        ended: oneshot::Sender<Ended>,
        fault: Option<OnAnswer>,
    ) {
        // Those of an instance are told of no events.
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
                // Who asked has gone.
                Err(back) => delivery = back,
            }
        }
        self.waiting.push_back(delivery);
    }

    /// `POST /runtime/invocation/{id}/response` or `/error` begins.
    pub fn answer(&mut self, post: Post, id: &str, nonce: Option<&str>) -> Result<Ticket, Refusal> {
        let Some(at) = self.flights.iter().position(|f| f.delivery.id == id) else {
            let is_lapsed = self.lapsed.iter().any(|lapsed| lapsed == id);
            return Err(if is_lapsed {
                Refusal::gone()
            } else {
                Refusal::request_id()
            });
        };
        let name = self.name();
        let flight = &mut self.flights[at];
        // Who does not echo the nonce is an old runtime, which Lambda believes.
        if nonce.is_some_and(|nonce| nonce != flight.delivery.nonce) {
            return Err(Refusal::gone());
        }
        let outcome = match (&flight.stage, flight.outcome.take()) {
            (Stage::Running, Some(outcome)) => outcome,
            (Stage::Broken, kept) => {
                flight.outcome = kept;
                return Err(Refusal::internal());
            }
            (_, kept) => {
                flight.outcome = kept;
                return Err(Refusal::transition(name, post.state()));
            }
        };
        match flight.fault.take() {
            None => {
                flight.stage = Stage::Answering(post);
                Ok(Ticket {
                    outcome,
                    is_streamed: flight.delivery.is_streamed,
                })
            }
            Some(OnAnswer::Gone) => {
                let error = timed_out(id);
                let _ = outcome.send(Outcome::Error(error));
                self.sent(id, Some("Sandbox.Timedout".into()));
                Err(Refusal::gone())
            }
            Some(OnAnswer::TooLarge) => {
                let error = FunctionError::too_large();
                self.sent(id, Some(error.kind.clone()));
                let _ = outcome.send(Outcome::Error(error));
                Err(Refusal::too_large())
            }
            Some(OnAnswer::Internal) => {
                flight.stage = Stage::Broken;
                flight.outcome = Some(outcome);
                Err(Refusal::internal())
            }
            Some(OnAnswer::TimeOut) => {
                let mut flight = self.flights.remove(at);
                let (nobody, _) = oneshot::channel();
                let ended = std::mem::replace(&mut flight.ended, nobody);
                flight.stage = Stage::Broken;
                flight.outcome = Some(outcome);
                self.flights.push(flight);
                let _ = ended.send(Ended::TimedOut);
                Err(Refusal::gone())
            }
        }
    }

    /// The answer has arrived completely, or has been refused for good; it was this type of error or none.
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

    /// The event is over without an answer; who has not been answered is told by the caller of this.
    pub fn lapse(&mut self, id: &str) -> Option<oneshot::Sender<Outcome>> {
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

    /// To be called when an extension has asked for its next event.
    pub fn extension_is_ready(&mut self) {
        self.show_readiness();
        if self.extensions.are_ready()
            && let Some((ended, error)) = self.closing.take()
        {
            let _ = ended.send(Ended::Ready(error));
        }
    }

    fn show_readiness(&mut self) {
        if matches!(self.phase, Phase::Serving) && self.extensions.are_ready() {
            self.progress.send_if_modified(|progress| {
                let is_news = matches!(progress, Progress::Starting | Progress::Snapshot);
                if is_news {
                    *progress = Progress::Ready;
                }
                is_news
            });
        }
    }

    /// An extension has failed; nothing works without it.
    pub fn fail(&mut self, error: FunctionError) {
        self.progress.send_replace(Progress::Failed(error));
    }

    /// `POST /runtime/init/error`.
    pub fn init_error(&mut self, error: FunctionError) -> Result<(), Refusal> {
        match self.phase {
            Phase::Started => self.phase = Phase::InitError,
            // Runtimes that know no `/restore/error` report here.
            Phase::Restoring => self.phase = Phase::RestoreError,
            _ => return Err(Refusal::transition(self.name(), "InitError")),
        }
        self.fail(error);
        Ok(())
    }

    /// `GET /runtime/restore/next`.
    pub fn restore_next(&mut self) -> Result<oneshot::Receiver<()>, Refusal> {
        if !matches!(self.phase, Phase::Started) {
            return Err(Refusal::transition(self.name(), "Ready"));
        }
        let (sender, receiver) = oneshot::channel();
        self.phase = Phase::RestoreReady(sender);
        self.extensions.close_registration();
        self.progress.send_replace(Progress::Snapshot);
        Ok(receiver)
    }

    /// The snapshot is restored: `/restore/next` is answered.
    pub fn restore(&mut self) {
        if let Phase::RestoreReady(sender) = std::mem::replace(&mut self.phase, Phase::Restoring) {
            let _ = sender.send(());
        }
    }

    /// `POST /runtime/restore/error`.
    pub fn restore_error(&mut self, error: FunctionError) -> Result<(), Refusal> {
        if !matches!(self.phase, Phase::Restoring) {
            return Err(Refusal::transition(self.name(), "RuntimeRestoreErrorState"));
        }
        self.phase = Phase::RestoreError;
        self.fail(error);
        Ok(())
    }
}

/// What the caller of an event hears whose time was over, where no time is known.
fn timed_out(id: &str) -> FunctionError {
    FunctionError::of_platform(
        "Sandbox.Timedout",
        &format!("RequestId: {id} Error: Task timed out"),
    )
}

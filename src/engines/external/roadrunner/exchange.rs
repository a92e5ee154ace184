//! One event at a RoadRunner worker.

use std::sync::{Arc, Weak};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tokio::time::Instant;
use tracing::{error, warn};

use super::Inner;
use super::form::BodyContent;
use super::frame::{self, Item, Payload};
use super::relay::OutgoingBytes;
use super::request::RoadRunnerRequest;
use super::response;
use super::worker::{ASK_PID, ReceiveError, Surplus, Worker, log_late_error};
use crate::engine::Pending;
use crate::engines::cgi::response::CgiParts;
use crate::engines::external::exchange::{Exchange, ResponsePart};
use crate::engines::external::slots::{self, ProcessSlot};
use crate::event::{Body, EarlyHints, Event, Failure};

/// Which frame's body arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Frame {
    /// A part of the response; says whether more frames follow it.
    Response { has_more: bool },
    /// An informational response.
    Hint { has_more: bool },
    /// A frame for an earlier request.
    Stale,
}

/// How often a request is sent again to a new worker, if the one before has not taken it.
const MAX_RETRIES: u32 = 2;
/// How long a worker may take to read the rest of a request that it has answered.
const REST_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a worker that wants to stop may take to begin a request that was already sent to it.
const TAKE_TIMEOUT: Duration = Duration::from_secs(1);

/// Bodies up to this size are copied behind the request's context, to save a system call.
const SMALL_BODY: usize = 32 * 1024;

pub struct RunningExchange {
    inner: Arc<Inner>,
    slot: ProcessSlot,
    /// `None` while there is no worker that could be used again.
    worker: Option<Worker>,
    request: RoadRunnerRequest,
    outgoing: OutgoingBytes,
    event: u64,
    early_hints: Option<Weak<dyn EarlyHints>>,
    /// The worker has answered the question ahead of this request, so its frames belong to it.
    is_taken: bool,
    has_headers: bool,
    is_streaming: bool,
    frame: Frame,
    retries: u32,
    /// Complete, or failed in a way that leaves the worker usable.
    is_finished: bool,
    /// The worker wants to end, instead of answering.
    wants_to_stop: bool,
    /// The worker wanted to end when this request was on its way. It takes it or ends until then.
    stops_by: Option<Instant>,
    failure: Option<Failure>,
    /// What the worker sends from now on cannot be told from its next response.
    is_spoilt: bool,
}

impl RunningExchange {
    pub fn new(
        inner: Arc<Inner>,
        slot: ProcessSlot,
        worker: Worker,
        request: RoadRunnerRequest,
        event: &Event,
    ) -> Result<RunningExchange, Failure> {
        worker.begin(event.id);
        let mut running = RunningExchange {
            inner,
            slot,
            worker: Some(worker),
            request,
            outgoing: OutgoingBytes::default(),
            event: event.id,
            early_hints: event.early_hints.clone(),
            is_taken: false,
            has_headers: false,
            is_streaming: false,
            frame: Frame::Stale,
            retries: 0,
            is_finished: false,
            wants_to_stop: false,
            stops_by: None,
            failure: None,
            is_spoilt: false,
        };
        running.send()?;
        Ok(running)
    }

    /// Prepares the frames of the request. The question for the process id goes ahead of it: what
    /// the worker says before it answers belongs to an earlier request.
    fn send(&mut self) -> Result<(), Failure> {
        let mut outgoing = OutgoingBytes::default();
        let bytes = outgoing.bytes();
        frame::put_control(bytes, ASK_PID);
        let RoadRunnerRequest { context, body, .. } = &self.request;
        let small = match body {
            Body::Memory(bytes) if bytes.len() <= SMALL_BODY => &bytes[..],
            _ => &[],
        };
        let flags = self.request.flags;
        frame::put_payload(bytes, flags, context, small, body.len())
            .ok_or(Failure::BodyTooLarge("the request exceeds 4 GiB"))?;
        if small.is_empty() && !body.is_empty() {
            outgoing.follow_with(BodyContent::new(body));
        }
        self.outgoing = outgoing;
        Ok(())
    }

    /// Sends the request to a new worker, if the one before cannot have run it.
    async fn retry(&mut self) -> Result<(), Failure> {
        if let Some(mut worker) = self.worker.take() {
            // It would run the request, too, if it has not read it yet.
            let may_have_begun = self.wants_to_stop && !self.is_taken && worker.kill().await;
            self.inner.end_later(worker);
            if may_have_begun {
                let why = "its worker asked to stop and began another request";
                return Err(Failure::WorkerCrashed(why.into()));
            }
        }
        self.stops_by = None;
        let worker = self.inner.start_worker(self.slot.index).await;
        let worker = worker.map_err(|error| Failure::WorkerCrashed(format!("{error:#}")))?;
        worker.begin(self.event);
        self.worker = Some(worker);
        (self.is_taken, self.wants_to_stop, self.frame) = (false, false, Frame::Stale);
        self.send()
    }

    async fn part(&mut self) -> Result<Option<ResponsePart>, Failure> {
        loop {
            if let Some(failure) = &self.failure {
                return Err(failure.clone());
            }
            if self.is_finished {
                return Ok(None);
            }
            if self.wants_to_stop {
                if self.retries == MAX_RETRIES {
                    let why = "its worker asked to stop instead of answering";
                    self.failure = Some(Failure::WorkerCrashed(why.into()));
                    continue;
                }
                // As in RoadRunner, another worker answers.
                self.retries += 1;
                self.retry().await?;
                continue;
            }
            let Some(worker) = &mut self.worker else {
                // The future of an earlier call was dropped while it started a worker.
                self.retries += 1;
                self.retry().await?;
                continue;
            };
            let next = match worker.next() {
                Ok(None) => self.receive().await.map(|()| None),
                next => next,
            };
            match next {
                Ok(Some(item)) => {
                    if let Some(part) = self.item(item) {
                        return Ok(Some(part));
                    }
                }
                Ok(None) => {}
                Err(broken) => self.broke(broken).await,
            }
        }
    }

    /// Sends or receives something.
    async fn receive(&mut self) -> Result<(), ReceiveError> {
        let Some(worker) = &mut self.worker else {
            return Ok(());
        };
        let received = worker.receive(&mut self.outgoing);
        let Some(deadline) = self.stops_by.filter(|_| !self.is_taken) else {
            return received.await;
        };
        let received = tokio::time::timeout_at(deadline, received).await;
        received.unwrap_or_else(|_| {
            self.wants_to_stop = true;
            Ok(())
        })
    }

    async fn broke(&mut self, broken: ReceiveError) {
        let Some(worker) = &self.worker else {
            return;
        };
        let failure = match broken {
            ReceiveError::Ended => Failure::WorkerCrashed(worker.how_it_ended().await),
            ReceiveError::Malformed(wrong) => {
                let (pid, request_id) = (worker.daemon.pid, self.event);
                let reason = wrong.to_string();
                warn!(
                    pid,
                    request_id, reason, "invalid output of a worker; process killed"
                );
                worker.daemon.kill();
                Failure::Malformed(wrong.to_string())
            }
        };
        // A worker that exited without the request, such as an idle one, costs nothing.
        let is_untouched = matches!(failure, Failure::WorkerCrashed(_)) && !self.is_taken;
        if is_untouched && self.retries < MAX_RETRIES {
            self.retries += 1;
            if let Err(failure) = self.retry().await {
                self.failure = Some(failure);
            }
            return;
        }
        self.failure = Some(failure);
        self.worker = None;
    }

    fn item(&mut self, item: Item) -> Option<ResponsePart> {
        match item {
            Item::Noise(_) => {}
            // A worker answers the question once. A second answer would make what follows look like
            // the response to the next request.
            Item::Control(_) if self.is_taken => self.fail("it sent a second process id"),
            Item::Control(_) => self.is_taken = true,
            Item::Error(text) => self.error(&text),
            Item::Payload(payload) => return self.payload(&payload),
            Item::Body(data) => match self.frame {
                Frame::Response { .. } => return Some(ResponsePart::Data(data)),
                Frame::Hint { .. } | Frame::Stale => {}
            },
            Item::End => match self.frame {
                Frame::Response { has_more } => self.is_finished = !has_more,
                Frame::Hint { has_more: false } => {
                    self.fail("the worker ended its response with an informational one");
                }
                Frame::Hint { has_more: true } | Frame::Stale => {}
            },
        }
        None
    }

    /// An error frame, which ends the request and not the worker.
    fn error(&mut self, text: &[u8]) {
        match self.is_taken {
            true => {
                let text = String::from_utf8_lossy(text);
                self.failure = Some(Failure::Thrown(text.into_owned()));
                self.is_finished = true;
            }
            false => {
                let pid = self.worker.as_ref().map(|worker| worker.daemon.pid);
                log_late_error(pid, text);
            }
        }
    }

    fn payload(&mut self, payload: &Payload) -> Option<ResponsePart> {
        // One pending answer is enough.
        if payload.stream & frame::PING != 0 && self.outgoing.is_empty() {
            frame::put_bits(self.outgoing.bytes(), frame::PONG);
        }
        let has_more = payload.stream & frame::STREAM != 0;
        if !self.has_headers && response::is_stop(&payload.context, payload.body_len) {
            match self.is_taken {
                true => self.wants_to_stop = true,
                false => {
                    let deadline = Instant::now() + TAKE_TIMEOUT;
                    self.stops_by.get_or_insert(deadline);
                }
            }
            self.frame = Frame::Stale;
            return None;
        }
        if !self.is_taken {
            let pid = self.worker.as_ref().map(|worker| worker.daemon.pid);
            warn!(pid, "a worker sent a response without a request; discarded");
            self.frame = Frame::Stale;
            return None;
        }
        self.frame = Frame::Response { has_more };
        if self.request.is_job {
            return self.job_headers(has_more);
        }
        self.is_streaming |= has_more;
        if self.has_headers {
            return None;
        }
        self.headers(payload, has_more)
    }

    fn headers(&mut self, payload: &Payload, has_more: bool) -> Option<ResponsePart> {
        let context = match response::parse(payload.flags, &payload.context) {
            Ok(context) => context,
            Err(why) => {
                self.fail(&why);
                return None;
            }
        };
        for header in context.rejected {
            let request_id = self.event;
            warn!(header, request_id, "invalid response header removed");
        }
        let parts = context.parts;
        if parts.status.is_informational() {
            self.frame = Frame::Hint { has_more };
            let hints = self.early_hints.as_ref().and_then(Weak::upgrade);
            if let (Some(hints), StatusCode::EARLY_HINTS) = (hints, parts.status) {
                hints.send(&parts.headers);
            }
            return None;
        }
        self.has_headers = true;
        Some(ResponsePart::Headers(parts))
    }

    /// The answer to a job has no status; its body says how the job has ended.
    fn job_headers(&mut self, has_more: bool) -> Option<ResponsePart> {
        if has_more {
            self.fail("the answer to a job must be one frame");
            return None;
        }
        self.has_headers = true;
        Some(ResponsePart::Headers(CgiParts {
            status: StatusCode::OK,
            reason: None,
            headers: HeaderMap::new(),
        }))
    }

    /// The response is invalid. Its rest cannot be told from the next one, so the worker is
    /// replaced.
    fn fail(&mut self, why: &str) {
        let pid = self.worker.as_ref().map(|worker| worker.daemon.pid);
        warn!(
            pid,
            request_id = self.event,
            reason = why,
            "invalid response of a worker; replaced"
        );
        self.failure = Some(Failure::Malformed(why.to_string()));
        self.is_spoilt = true;
    }

    /// Whether the worker can take another request.
    fn is_usable(&self, worker: &Worker) -> bool {
        let (served, max) = (self.slot.served() + 1, self.inner.max_requests);
        let is_old = max > 0 && served >= max;
        let max = self.inner.max_memory;
        let is_large = || max > 0 && slots::resident(worker.daemon.pid) > max;
        self.is_finished
            && !self.is_spoilt
            && worker.daemon.is_running()
            && !self.wants_to_stop
            && self.stops_by.is_none()
            && !is_old
            && !is_large()
    }
}

impl Exchange for RunningExchange {
    fn next(&mut self) -> Pending<'_, Result<Option<ResponsePart>, Failure>> {
        Box::pin(self.part())
    }

    fn leave(&mut self) {
        if self.is_streaming && !self.is_finished {
            frame::put_bits(self.outgoing.bytes(), frame::STOP);
        }
    }

    fn kill(&mut self) {
        if let Some(worker) = &self.worker {
            worker.daemon.kill();
        }
        // Nothing may be retried.
        self.retries = MAX_RETRIES;
        self.failure = Some(Failure::WorkerCrashed("killed".into()));
    }

    fn over(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            // The rest that no client waits for.
            while self.failure.is_none() && matches!(self.part().await, Ok(Some(_))) {}
            // The answer to a ping may still be unwritten. A worker that has not read its request
            // by the deadline cannot be used again.
            let deadline = Instant::now() + REST_TIMEOUT;
            while let Some(worker) = &mut self.worker
                && self.is_finished
                && !self.outgoing.is_empty()
            {
                let received = worker.receive(&mut self.outgoing);
                let received = tokio::time::timeout_at(deadline, received).await;
                let surplus = worker.surplus();
                self.wants_to_stop |= surplus == Surplus::Stop;
                if !matches!(received, Ok(Ok(()))) || surplus == Surplus::Invalid {
                    self.outgoing = OutgoingBytes::default();
                    self.fail("it did not read its request, or went on after its response");
                }
            }
            if let Some(worker) = &mut self.worker
                && self.is_finished
                && !self.is_spoilt
            {
                match worker.surplus() {
                    Surplus::Nothing => {}
                    Surplus::Stop => self.wants_to_stop = true,
                    Surplus::Invalid => self.fail("it went on after its response"),
                }
            }
            let worker = self.worker.take();
            let index = self.slot.index;
            let mut slot = self.inner.workers[index].lock().await;
            match worker {
                Some(mut worker) if self.is_usable(&worker) => {
                    worker.finish();
                    *slot = Some(worker);
                    return;
                }
                Some(worker) if self.is_finished && !self.is_spoilt => self.inner.end_later(worker),
                Some(worker) => {
                    worker.daemon.kill();
                    worker.daemon.ended().await;
                }
                None => {}
            }
            self.slot.counts = false;
            match self.inner.start_worker(index).await {
                Ok(worker) => *slot = Some(worker),
                // The next event tries again.
                Err(error) => error!(error = format!("{error:#}"), "cannot start a PHP process"),
            }
        })
    }
}

//! Who has events done that are not HTTP: one call for each, or one for each of its records. Where there is no application, requests too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderName, Method, Request};

use super::batch::{self, Batches, PartialBatch, Record};
use super::fault::Fault;
use super::http_event::HttpEvent;
use super::payload::{error_kind, fitting, result, take_result};
use super::task::{Task, origin, request};
use crate::engine::Engine;
use crate::event::{Event, Failure, Response, ResponseBody, Script};
use crate::fronts::http::{check_relayed, fit, plain};

/// The PHP that has events done which are not HTTP.
pub struct Handler {
    pub engine: Arc<dyn Engine>,
    pub script: Script,
    /// Does records one by one; none where the handler gets them all at once.
    pub batches: Option<Batches>,
    /// Does Lambda hear which records have failed, when the answer names them?
    pub partial_batch: PartialBatch,
    /// It wants requests as such, as a handler of PSR-15 does. Known since it was offered one.
    pub takes_requests: AtomicBool,
}

/// The CGI variable that says what an event is, to a handler that may care: `http` for a request that has come as an event and is
/// handed on as one, `request` for one that is a request again; and what is no event of Lambda's at all.
const KIND: &str = "SURUS_EVENT";

/// A URL that we request; a handler that takes no requests has none.
pub const URL: &str = "url";

/// What a handler answers to the former that wants the latter.
static TAKES: HeaderName = HeaderName::from_static("surus-takes");

impl Handler {
    /// Has an event done. `next_event` is for the records that become events of their own.
    pub async fn answer(
        &self,
        payload: &Bytes,
        task: &Task<'_>,
        next_event: &AtomicU64,
    ) -> Result<Bytes, Fault> {
        let Some((batches, batch)) = self
            .batches
            .as_ref()
            .and_then(|batches| Some((batches, batch::read(payload)?)))
        else {
            let event = task.event(request(payload.clone()), self.script.clone(), origin());
            let answered = self.ask(event).await;
            return self.whole(answered.unwrap_or_else(|failure| Err(Fault::of(&failure)))?);
        };
        let handle = |record: Record| async move {
            let id = next_event.fetch_add(1, Ordering::Relaxed);
            task.named.record(id, &record.id);
            let task = Task {
                id,
                deadline: record.deadline,
                said_deadline: record.deadline,
                trace: record.trace.as_deref().or(task.trace),
                ..*task
            };
            let event = task.event(request(record.event), self.script.clone(), origin());
            self.ask(event).await?.map_err(Failure::from)
        };
        // It keeps the reserve itself.
        let done = batches
            .run(&batch, task.id, task.invocation.deadline, handle)
            .await;
        done.map_err(|failure| Fault::of(&failure))
    }

    /// Hands over the event that a request has come as. None when the handler wants the request: nothing has been done then.
    pub async fn offer(&self, payload: &Bytes, task: &Task<'_>) -> Result<Option<Bytes>, Fault> {
        if self.takes_requests.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut event = task.event(request(payload.clone()), self.script.clone(), origin());
        event.variables.push((KIND.into(), "http".into()));
        let response = self.engine.handle(Box::new(event)).await;
        let (head, body) = response
            .map_err(|failure| Fault::of(&failure))?
            .into_parts();
        let body = take_result(&head, body).await?;
        if head.headers.contains_key(&TAKES) {
            self.takes_requests.store(true, Ordering::Relaxed);
            return Ok(None);
        }
        self.whole(fitting(result(&head, body)?)?).map(Some)
    }

    /// Hands over what is no event of Lambda's.
    pub async fn tell(&self, mut event: Event, what: &str) -> Result<Response, Failure> {
        event.variables.push((KIND.into(), what.into()));
        if what == URL {
            event.script.name = "/index.php".into();
        }
        self.engine.handle(Box::new(event)).await
    }

    /// Has a request answered.
    pub async fn request(
        &self,
        http: HttpEvent,
        task: &Task<'_>,
    ) -> Result<(Parts, ResponseBody), Fault> {
        let (head, body) = http.request.into_parts();
        let is_head = head.method == Method::HEAD;
        if let Err(refusal) = check_relayed(&head) {
            return Ok(fit(plain(refusal.status, refusal.why), is_head).into_parts());
        }
        let script = Script {
            // What stands before all of its paths has the name that it mostly has.
            name: "/index.php".into(),
            ..self.script.clone()
        };
        let mut event = task.event(Request::from_parts(head, body), script, http.origin);
        event.variables.push((KIND.into(), "request".into()));
        let context = http.request_context;
        event
            .variables
            .extend(context.map(|json| ("LAMBDA_REQUEST_CONTEXT".into(), json)));
        let response = self.engine.handle(Box::new(event)).await;
        let response = response.map_err(|failure| Fault::of(&failure))?;
        let (head, body) = response.into_parts();
        // A handler that throws has failed, whatever it was asked.
        if let Some(kind) = error_kind(&head) {
            return Err(Fault::told(kind, &take_result(&head, body).await?));
        }
        Ok(fit(http::Response::from_parts(head, body), is_head).into_parts())
    }

    /// An answer that Lambda takes for what it says.
    fn whole(&self, answer: Bytes) -> Result<Bytes, Fault> {
        // Lambda would take what nobody tells it of for done.
        if self.partial_batch == PartialBatch::Off {
            batch::succeeded(&answer).map_err(|failure| Fault::of(&failure))?;
        }
        Ok(answer)
    }

    async fn ask(&self, event: Event) -> Result<Result<Bytes, Fault>, Failure> {
        let (head, body) = self.engine.handle(Box::new(event)).await?.into_parts();
        let body = take_result(&head, body).await;
        Ok(body.and_then(|body| fitting(result(&head, body)?)))
    }
}

//! The PHP handler of events that are not HTTP: one call for each event, or one for each record.
//! Without an application it also answers HTTP requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderName, Method, Request};

use super::batch::{self, Batches, Record, ReportBatchItemFailures};
use super::error::FunctionError;
use super::http_event::HttpEvent;
use super::payload::{error_kind, fitting, result, take_result};
use super::php_request::Task;
use crate::app::fit;
use crate::app::response::plain;
use crate::app::validate::check_relayed;
use crate::engine::Engine;
use crate::event::{Event, Failure, Response, ResponseBody, Script};
use crate::fronts::records::request::{MARK, origin, request};

/// The PHP handler.
pub struct Handler {
    pub engine: Arc<dyn Engine>,
    pub script: Script,
    /// Runs records one by one; None if the handler gets all of an event's records at once.
    pub batches: Option<Batches>,
    /// Whether Lambda is told which records failed, if the result names them.
    pub report_batch_item_failures: ReportBatchItemFailures,
    /// The handler takes requests instead of events, as a PSR-15 handler does. Known after
    /// `offer`.
    pub takes_requests: AtomicBool,
}

/// The CGI variable that tells the handler what an event is. `http`: an HTTP event passed on as the
/// event. `request`: an HTTP event converted to its request. Other values: something that Lambda
/// did not send.
const KIND: &str = "SURUS_EVENT";

/// A URL that Surus itself requests. A handler that takes no requests has no URLs.
pub const URL: &str = "url";

/// The response header by which a handler answers `http` if it wants `request`.
static TAKES: HeaderName = HeaderName::from_static("surus-takes");

impl Handler {
    /// Runs an event. Records that become events of their own take their ids from
    /// `next_event`.
    pub async fn answer(
        &self,
        payload: &Bytes,
        task: &Task<'_>,
        next_event: &AtomicU64,
    ) -> Result<Bytes, FunctionError> {
        let Some((batches, batch)) = self
            .batches
            .as_ref()
            .and_then(|batches| Some((batches, batch::read(payload)?)))
        else {
            let mut event = task.event(request(payload.clone()), self.script.clone(), origin());
            event.variables.push((MARK.into(), "1".into()));
            let answered = self.ask(event).await;
            return self.whole(
                answered.unwrap_or_else(|failure| Err(FunctionError::from_failure(&failure)))?,
            );
        };
        let handle = |record: Record| async move {
            let id = next_event.fetch_add(1, Ordering::Relaxed);
            task.named.record(id, &record.id);
            let task = Task {
                id,
                deadline: record.deadline,
                reported_deadline: record.deadline,
                trace: record.trace.as_deref().or(task.trace),
                ..*task
            };
            let mut event = task.event(request(record.event), self.script.clone(), origin());
            event.variables.push((MARK.into(), "1".into()));
            self.ask(event).await?.map_err(Failure::from)
        };
        // `run` keeps the deadline margin itself.
        let done = batches
            .run(&batch, task.id, task.invocation.deadline, handle)
            .await;
        done.map_err(|failure| FunctionError::from_failure(&failure))
    }

    /// Passes an HTTP event to the handler. None if the handler wants the request instead; nothing
    /// has run then.
    pub async fn offer(
        &self,
        payload: &Bytes,
        task: &Task<'_>,
    ) -> Result<Option<Bytes>, FunctionError> {
        if self.takes_requests.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut event = task.event(request(payload.clone()), self.script.clone(), origin());
        event.variables.push((KIND.into(), "http".into()));
        let response = self.engine.handle(Box::new(event)).await;
        let (parts, body) = response
            .map_err(|failure| FunctionError::from_failure(&failure))?
            .into_parts();
        let body = take_result(&parts, body).await?;
        if parts.headers.contains_key(&TAKES) {
            self.takes_requests.store(true, Ordering::Relaxed);
            return Ok(None);
        }
        self.whole(fitting(result(&parts, body)?)?).map(Some)
    }

    /// Passes an event to the handler that Lambda did not send.
    pub async fn run_own_event(&self, mut event: Event, what: &str) -> Result<Response, Failure> {
        event.variables.push((KIND.into(), what.into()));
        if what == URL {
            event.script.name = "/index.php".into();
        }
        self.engine.handle(Box::new(event)).await
    }

    /// Has the handler answer a request.
    pub async fn request(
        &self,
        http: HttpEvent,
        task: &Task<'_>,
    ) -> Result<(Parts, ResponseBody), FunctionError> {
        let (parts, body) = http.request.into_parts();
        let is_head = parts.method == Method::HEAD;
        if let Err(rejection) = check_relayed(&parts) {
            return Ok(fit(plain(rejection.status, rejection.why), is_head).into_parts());
        }
        let script = Script {
            // A front controller is usually called /index.php.
            name: "/index.php".into(),
            ..self.script.clone()
        };
        let mut event = task.event(Request::from_parts(parts, body), script, http.origin);
        event.variables.push((KIND.into(), "request".into()));
        let context = http.request_context;
        event
            .variables
            .extend(context.map(|json| ("LAMBDA_REQUEST_CONTEXT".into(), json)));
        let response = self.engine.handle(Box::new(event)).await;
        let response = response.map_err(|failure| FunctionError::from_failure(&failure))?;
        let (parts, body) = response.into_parts();
        // A handler that throws has failed, whether it was given an event or a request.
        if let Some(kind) = error_kind(&parts) {
            return Err(FunctionError::reported(
                kind,
                &take_result(&parts, body).await?,
            ));
        }
        Ok(fit(http::Response::from_parts(parts, body), is_head).into_parts())
    }

    /// Makes the event fail if its result names failed records that Lambda would not read.
    fn whole(&self, answer: Bytes) -> Result<Bytes, FunctionError> {
        // Lambda would take records for done that the result names as failed.
        if self.report_batch_item_failures == ReportBatchItemFailures::Off {
            batch::succeeded(&answer).map_err(|failure| FunctionError::from_failure(&failure))?;
        }
        Ok(answer)
    }

    async fn ask(&self, event: Event) -> Result<Result<Bytes, FunctionError>, Failure> {
        let (parts, body) = self.engine.handle(Box::new(event)).await?.into_parts();
        let body = take_result(&parts, body).await;
        Ok(body.and_then(|body| fitting(result(&parts, body)?)))
    }
}

//! Serves one event: chooses the application or the handler, sends the response or the error.

use std::any::Any;
use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use bytes::Bytes;
use futures_util::FutureExt;
use http::header;
use http::{Method, Request, StatusCode};
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use super::error;
use super::error::FunctionError;
use super::handler::{self, Handler};
use super::http_event::{self, HttpEvent, limits};
use super::invocation::Invocation;
use super::payload::{error_kind, fitting, result, take, take_result, unsuccessful};
use super::php_request::{Task, looks_like_event};
use super::runtime_api::RuntimeApi;
use super::streaming::{self, Streaming};
use super::{ResponseMode, Settings, warm};
use crate::app::Application;
use crate::app::response::plain;
use crate::engine::Engine;
use crate::event::{Body, Event, Origin, Response, ResponseBody, Script};
use crate::fronts::records::request::{MARK, origin, request};
use crate::observe::log_context::Names;
use crate::warmer;

/// The PHP code that answers events.
pub struct Function {
    /// Answers HTTP requests, and other events when there is no handler.
    pub application: Option<Application>,
    /// Answers other events, and HTTP requests when there is no application.
    pub handler: Option<Handler>,
    pub settings: Settings,
    /// Lambda's request ids, for log lines.
    pub names: Names,
    pub next_event: AtomicU64,
}

enum InvocationAnswer {
    Whole(Bytes),
    Streaming(Streaming),
}

/// How long a response may be sent after the deadline, or after the event was served if that was
/// later still: on managed instances the process continues.
const LATE: Duration = Duration::from_secs(5);

/// Time limit of a request that Surus itself makes. Lambda's own limits are lower.
const CALL: Duration = Duration::from_secs(600);

impl Function {
    /// The engines in use, each once.
    pub fn engines(&self) -> impl Iterator<Item = &Arc<dyn Engine>> {
        let handler = self.handler.as_ref().map(|handler| &handler.engine);
        let application = self.application.iter();
        let others = application.flat_map(|application| application.engines.values());
        let shared = move |engine: &&Arc<dyn Engine>| {
            handler.is_none_or(|handler| !Arc::ptr_eq(handler, engine))
        };
        others.filter(shared).chain(handler)
    }

    /// Answers an event and returns when PHP has finished with it, including its shutdown
    /// functions. An error means that the environment must end; failures of PHP are not errors
    /// here.
    pub async fn serve(
        &self,
        api: &mut RuntimeApi,
        invocation: &Invocation,
        thawed: Option<Duration>,
    ) -> anyhow::Result<()> {
        let now = Instant::now();
        let margin = invocation.deadline_margin(self.settings.deadline_margin.0, now);
        let workers = TaskTracker::new();
        workers.close();
        let id = self.next_event.fetch_add(1, Ordering::Relaxed);
        let named = self.names.name(id, invocation.id());
        let task = Task {
            invocation,
            id,
            deadline: now.max(invocation.deadline - margin),
            reported_deadline: invocation.deadline,
            trace: invocation.trace(),
            thawed,
            named: &named,
            workers: &workers,
        };
        // The engine keeps the deadline, but reading a file from an unreachable network file system
        // may not.
        let latest = task.deadline + margin / 4 * 3;
        let answer = AssertUnwindSafe(self.answer(&task)).catch_unwind();
        let answer = tokio::time::timeout_at(latest.into(), answer).await;
        let answer = unwound(answer.unwrap_or_else(|_| Ok(Err(overdue()))));
        let sent = send(api, invocation, answer);
        let latest_sent = invocation.deadline.max(Instant::now()) + LATE;
        match tokio::time::timeout_at(latest_sent.into(), sent).await {
            Ok(sent) => sent?,
            Err(_) => warn!(
                request_id = id,
                "Lambda did not accept the response in time"
            ),
        }
        // Lambda freezes this process once it asks for the next event. The engine kills workers
        // that are not done by then.
        let last = invocation.deadline.max(latest) - margin / 8;
        if tokio::time::timeout_at(last.into(), workers.wait())
            .await
            .is_err()
        {
            warn!(
                request_id = id,
                "PHP was still busy with the event at its deadline"
            );
        }
        Ok(())
    }

    /// Requests a URL on behalf of Surus and returns when PHP has finished with it.
    pub async fn call(&self, url: &str) -> anyhow::Result<StatusCode> {
        let mut request = Request::get(url).body(())?;
        let host = request.uri().authority();
        let host = host.map_or("localhost", |host| host.as_str()).parse()?;
        request.headers_mut().insert(header::HOST, host);
        let (parts, ()) = request.into_parts();
        let workers = TaskTracker::new();
        let event = |parts, script| {
            let request = Request::from_parts(parts, Body::Empty);
            self.event(request, script, &workers)
        };
        let response = match (&self.application, &self.handler) {
            (Some(application), _) => application.answer(parts, origin(), event).await?,
            (None, Some(handler)) => {
                let event = event(parts, handler.script.clone());
                handler.run_own_event(event, handler::URL).await?
            }
            (None, None) => bail!("there is neither an application nor a handler (lambda.handler)"),
        };
        ended(response, &workers).await
    }

    /// Runs the callbacks that the handler has registered for a life-cycle moment.
    pub async fn run_callbacks(&self, moment: &'static str) -> anyhow::Result<()> {
        let Some(handler) = &self.handler else {
            return Ok(());
        };
        let workers = TaskTracker::new();
        let request = request(Bytes::from_static(b"null"));
        let event = self.event(request, handler.script.clone(), &workers);
        let response = handler.run_own_event(event, moment).await?;
        let status = ended(response, &workers).await?;
        if !status.is_success() {
            bail!("{status}; see the log for the cause");
        }
        Ok(())
    }

    /// An event that Surus itself creates.
    fn event(&self, request: Request<Body>, script: Script, workers: &TaskTracker) -> Event {
        Event {
            id: self.next_event.fetch_add(1, Ordering::Relaxed),
            request,
            script,
            origin: origin(),
            variables: Vec::new(),
            deadline: Instant::now() + CALL,
            idle_timeout: None,
            spool: None,
            completion_token: Some(workers.token()),
            early_hints: None,
        }
    }

    async fn answer(&self, task: &Task<'_>) -> Result<InvocationAnswer, FunctionError> {
        let payload = &task.invocation.payload;
        if warmer::is_warmer(payload) {
            return Ok(InvocationAnswer::Whole(Bytes::from_static(
                warm::ANSWER.as_bytes(),
            )));
        }
        let answered = match (&self.application, &self.handler) {
            (Some(application), handler) => match (self.read(payload), handler) {
                (Ok(Some(request)), None) if self.is_forged(&request) => {
                    return self.forbid(request, task).await;
                }
                (Ok(Some(request)), _) => {
                    return self.answer_request(application, request, task).await;
                }
                (Ok(None), Some(handler)) => self.handle(handler, task).await,
                (Ok(None), None) => answer_other(application, payload.clone(), task).await,
                (Err(malformed), _) => Err(FunctionError::new(
                    error::MALFORMED_EVENT,
                    format!("malformed event: {malformed}"),
                )),
            },
            (None, Some(handler)) => match self.read(payload) {
                Ok(Some(request)) => return self.handle_request(handler, request, task).await,
                // Any other event is the handler's.
                _ => self.handle(handler, task).await,
            },
            (None, None) => Err(FunctionError::new(
                error::NO_HANDLER,
                "there is neither an application nor a handler (lambda.handler)",
            )),
        };
        let answered = answered.or_else(|error| {
            if error.kind != error::NO_HANDLER {
                return Err(error);
            }
            if warm::is_schedule_without_input(payload) {
                let request_id = task.id;
                info!(
                    request_id,
                    "a schedule without input kept the function warm"
                );
            } else if !warmer::has_warmer_field(payload) {
                return Err(error);
            }
            Ok(Bytes::from_static(warm::ANSWER.as_bytes()))
        });
        answered.map(InvocationAnswer::Whole)
    }

    /// Converts an HTTP event to its request. None for other events.
    fn read(&self, payload: &[u8]) -> Result<Option<HttpEvent>, http_event::Malformed> {
        let mut read = http_event::read(payload, &self.settings)?;
        if let Some(event) = &mut read
            && !event.decodes_base64
        {
            // A compressed body would be sent as base64. Without this header neither Surus nor PHP
            // compresses.
            event.request.headers_mut().remove(header::ACCEPT_ENCODING);
        }
        Ok(read)
    }

    async fn handle(&self, handler: &Handler, task: &Task<'_>) -> Result<Bytes, FunctionError> {
        let payload = &task.invocation.payload;
        let answer = handler.answer(payload, task, &self.next_event);
        answer.await
    }

    /// Lets the handler answer an HTTP event, as a request or as the event itself.
    async fn handle_request(
        &self,
        handler: &Handler,
        request: HttpEvent,
        task: &Task<'_>,
    ) -> Result<InvocationAnswer, FunctionError> {
        if let Some(answer) = handler.offer(&task.invocation.payload, task).await? {
            let size = limits::size(request.format, answer.len());
            size.map_err(|too_much| FunctionError::rejected(&request.format, too_much))?;
            return Ok(InvocationAnswer::Whole(answer));
        }
        if self.is_forged(&request) {
            return self.forbid(request, task).await;
        }
        let (format, decodes_base64) = (request.format, request.decodes_base64);
        let (parts, body) = handler.request(request, task).await?;
        self.answered(&format, decodes_base64, parts, body, task)
            .await
    }

    /// Whether PHP would mistake a client's request for an event of Lambda.
    fn is_forged(&self, request: &HttpEvent) -> bool {
        !self.settings.events_over_http && looks_like_event(&request.request)
    }

    async fn forbid(
        &self,
        request: HttpEvent,
        task: &Task<'_>,
    ) -> Result<InvocationAnswer, FunctionError> {
        let why = "this path is reserved for events that are not HTTP";
        warn!(
            request_id = task.id,
            "rejected with 403: PHP could take a client's request of /events for an event that is \
             not HTTP (lambda.events_over_http)"
        );
        let (parts, body) = plain(StatusCode::FORBIDDEN, why).into_parts();
        let (format, decodes) = (request.format, request.decodes_base64);
        self.answered(&format, decodes, parts, body, task).await
    }

    async fn answer_request(
        &self,
        application: &Application,
        request: HttpEvent,
        task: &Task<'_>,
    ) -> Result<InvocationAnswer, FunctionError> {
        let HttpEvent {
            request,
            origin,
            format,
            decodes_base64,
            request_context,
        } = request;
        let is_head = request.method() == Method::HEAD;
        let context = request_context.map(|json| ("LAMBDA_REQUEST_CONTEXT".into(), json));
        let (parts, body) = ask(application, request, origin, context, task).await?;
        let body = match is_head {
            true => ResponseBody::empty(),
            false => body,
        };
        self.answered(&format, decodes_base64, parts, body, task)
            .await
    }

    /// Converts a response to the format that the request's service expects.
    async fn answered(
        &self,
        format: &http_event::EventFormat,
        decodes_base64: bool,
        parts: http::response::Parts,
        body: ResponseBody,
        task: &Task<'_>,
    ) -> Result<InvocationAnswer, FunctionError> {
        if self
            .settings
            .error_statuses
            .iter()
            .any(|it| it.have(parts.status))
        {
            return Err(unsuccessful(parts.status, &take(body).await?));
        }
        let rejected = |too_much| FunctionError::rejected(format, too_much);
        limits::headers(*format, &parts.headers).map_err(rejected)?;
        if self.settings.mode == ResponseMode::Stream {
            let prelude = http_event::prelude(format, &parts);
            let request = task.invocation.id();
            let streaming = Streaming::new(request, prelude, body, streaming::MAX);
            return Ok(InvocationAnswer::Streaming(streaming));
        }
        let body = take(body).await?;
        let written = http_event::write(format, &parts, &body);
        if written.is_base64 && !decodes_base64 {
            warn_of_base64();
        }
        let answer = fitting(written.json.into())?;
        limits::size(*format, answer.len()).map_err(rejected)?;
        Ok(InvocationAnswer::Whole(answer))
    }
}

/// Warns once that a REST API passes a binary response on as base64.
fn warn_of_base64() {
    static REPORTED: Once = Once::new();
    REPORTED.call_once(|| {
        warn!(
            "a response is binary, and the REST API passes it on as base64 unless its \
             binaryMediaTypes match; set them to */* and lambda.binary_media_types to [\"*/*\"]"
        );
    });
}

/// Waits until PHP has finished with a request of Surus itself, and returns the status.
async fn ended(response: Response, workers: &TaskTracker) -> anyhow::Result<StatusCode> {
    let (parts, body) = response.into_parts();
    let body = take(body).await.map_err(|error| anyhow!(error.message))?;
    workers.close();
    workers.wait().await;
    match error_kind(&parts) {
        Some(kind) => Err(anyhow!(FunctionError::reported(kind, &body).message)),
        None => Ok(parts.status),
    }
}

/// Has the application answer an event that is not HTTP.
async fn answer_other(
    application: &Application,
    payload: Bytes,
    task: &Task<'_>,
) -> Result<Bytes, FunctionError> {
    let mark = Some((MARK.into(), "1".into()));
    let answer = ask(application, request(payload), origin(), mark, task);
    let (parts, body) = answer.await?;
    let body = take_result(&parts, body).await?;
    fitting(result(&parts, body)?)
}

async fn ask(
    application: &Application,
    request: Request<Body>,
    origin: Origin,
    variable: Option<(Cow<'static, str>, String)>,
    task: &Task<'_>,
) -> Result<(http::response::Parts, ResponseBody), FunctionError> {
    let (parts, body) = request.into_parts();
    let asks = origin.clone();
    let event = |parts, script| {
        let mut event = task.event(Request::from_parts(parts, body), script, origin);
        event.variables.extend(variable);
        event
    };
    match application.answer(parts, asks, event).await {
        Ok(response) => Ok(response.into_parts()),
        Err(failure) => Err(FunctionError::from_failure(&failure)),
    }
}

async fn send(
    api: &mut RuntimeApi,
    to: &Invocation,
    answer: Result<InvocationAnswer, FunctionError>,
) -> anyhow::Result<()> {
    match answer {
        Ok(InvocationAnswer::Whole(payload)) => api.respond(to, payload).await,
        Ok(InvocationAnswer::Streaming(body)) => {
            let body = Box::pin(body);
            api.respond_streaming(to, streaming::CONTENT_TYPE, body)
                .await
        }
        Err(error) => api.fail(to, &error).await,
    }
}

/// Turns a panic into an error of the event that caused it, as a crash of PHP is.
fn unwound<T>(
    result: Result<Result<T, FunctionError>, Box<dyn Any + Send>>,
) -> Result<T, FunctionError> {
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_default();
        Err(FunctionError::new(
            error::BUG,
            format!("this event triggered a bug in surus: {text}"),
        ))
    })
}

fn overdue() -> FunctionError {
    FunctionError::new(
        error::TIMED_OUT,
        "no response in time, although PHP was not the cause",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_is_an_error_of_its_event() {
        let answer = async { panic!("index {} out of range", 7) };
        let caught = AssertUnwindSafe(answer).catch_unwind().await;
        let error = unwound::<()>(caught).err();
        let error = error.expect("a panic is an error");
        assert_eq!(error.kind, error::BUG);
        assert!(error.message.contains("index 7 out of range"));
    }
}

//! Client of Lambda's Runtime API: fetches events, sends responses and errors.

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tracing::{debug, error, info, warn};

use super::connection::{ApiRequest, BodyStream, RuntimeConnection};
use super::error::{FunctionError, shortened};
use super::invocation::Invocation;
use crate::observe::log;

/// A client of the Runtime API. All its errors are fatal for this environment.
pub struct RuntimeApi {
    connection: RuntimeConnection,
    next: ApiRequest,
    /// The application's directory, for X-Ray.
    directory: String,
}

/// How long `next` retries without success before it gives up.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// Pauses between retries grow from `SHORTEST` to `LONGEST`.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(1);

static NONCE: HeaderName = HeaderName::from_static("lambda-runtime-invocation-id");
static KIND: HeaderName = HeaderName::from_static("lambda-runtime-function-error-type");
static CAUSE: HeaderName = HeaderName::from_static("lambda-runtime-function-xray-error-cause");
static MODE: HeaderName = HeaderName::from_static("lambda-runtime-function-response-mode");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

impl RuntimeApi {
    /// `directory` is the application's directory.
    pub fn new(connection: RuntimeConnection, directory: String) -> RuntimeApi {
        let next = Uri::from_static("/2018-06-01/runtime/invocation/next");
        RuntimeApi {
            connection,
            next: ApiRequest::get(next),
            directory,
        }
    }

    /// Another client with a connection of its own.
    pub fn another(&self) -> RuntimeApi {
        RuntimeApi::new(self.connection.another(), self.directory.clone())
    }

    /// Waits for the next event without a time limit.
    pub async fn next(&mut self) -> anyhow::Result<Invocation> {
        let mut failing = None;
        let mut pause = SHORTEST;
        loop {
            // Lambda may freeze this process from here on, so pending log lines are written first.
            log::written().await;
            let began = Instant::now();
            let why = match self.connection.ask(&self.next).await {
                Ok(response) => match invocation(response).await? {
                    Ok(invocation) => return Ok(invocation),
                    Err(why) => why,
                },
                Err(unreachable) => unreachable.to_string(),
            };
            // A failure after a long wait starts a new series of retries.
            if began.elapsed() > GIVE_UP_AFTER {
                (failing, pause) = (None, SHORTEST);
            }
            if failing.get_or_insert_with(Instant::now).elapsed() > GIVE_UP_AFTER {
                bail!("cannot get the next event: {why}");
            }
            warn!(error = %why, "cannot get the next event, retrying");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST);
        }
    }

    /// Sends the response to an event.
    pub async fn respond(&mut self, to: &Invocation, payload: Bytes) -> anyhow::Result<()> {
        let mut ask = ApiRequest::post(path(to, "response")?, payload);
        ask.headers.insert(header::CONTENT_TYPE, JSON);
        echo(&mut ask.headers, to);
        let sent = self.connection.ask(&ask).await;
        settle("the response", to.id(), sent).await
    }

    /// Streams the response to an event.
    pub async fn respond_streaming(
        &mut self,
        to: &Invocation,
        content_type: HeaderValue,
        body: BodyStream,
    ) -> anyhow::Result<()> {
        let mut ask = ApiRequest::post(path(to, "response")?, Bytes::new());
        let headers = &mut ask.headers;
        headers.insert(header::CONTENT_TYPE, content_type);
        headers.insert(MODE.clone(), HeaderValue::from_static("streaming"));
        headers.insert(
            header::TRAILER,
            HeaderValue::from_static(
                "Lambda-Runtime-Function-Error-Type, Lambda-Runtime-Function-Error-Body",
            ),
        );
        echo(headers, to);
        let sent = self.connection.stream(&ask, body).await;
        settle("the streamed response", to.id(), sent).await
    }

    /// Reports that an event failed.
    pub async fn fail(&mut self, to: &Invocation, error: &FunctionError) -> anyhow::Result<()> {
        let (request_id, message) = (to.id(), &error.message[..]);
        error!(request_id, kind = %error.kind, error = message, "the event failed");
        let mut ask = self.failure(path(to, "error")?, error);
        echo(&mut ask.headers, to);
        let sent = self.connection.ask(&ask).await;
        settle("the error", to.id(), sent).await
    }

    /// Reports that the function could not start.
    pub async fn fail_init(&mut self, error: &FunctionError) -> anyhow::Result<()> {
        let uri = Uri::from_static("/2018-06-01/runtime/init/error");
        log::written().await;
        let ask = self.failure(uri, error);
        let sent = self.connection.ask(&ask).await;
        settle("the start-up error", "", sent).await
    }

    /// SnapStart: returns when the process continues, here or in a restored copy. Lambda takes the
    /// snapshot meanwhile.
    pub async fn restored(&mut self) -> anyhow::Result<()> {
        let uri = Uri::from_static("/2018-06-01/runtime/restore/next");
        log::written().await;
        // A new connection: an old one does not survive the snapshot, and this request must not be
        // repeated.
        let response = self.connection.another().ask(&ApiRequest::get(uri)).await?;
        let status = response.status();
        if status != StatusCode::OK {
            let body = response.into_body().collect().await?.to_bytes();
            bail!("restore/next: {status}: {}", shortened(&body));
        }
        self.connection = self.connection.another();
        Ok(())
    }

    /// SnapStart: reports that the restored process cannot serve events.
    pub async fn fail_restore(&mut self, error: &FunctionError) -> anyhow::Result<()> {
        let uri = Uri::from_static("/2018-06-01/runtime/restore/error");
        log::written().await;
        let ask = self.failure(uri, error);
        let sent = self.connection.ask(&ask).await;
        settle("the restore error", "", sent).await
    }

    fn failure(&self, uri: Uri, error: &FunctionError) -> ApiRequest {
        let mut ask = ApiRequest::post(uri, error.body());
        ask.headers.insert(header::CONTENT_TYPE, JSON);
        let kind = HeaderValue::from_str(&error.kind);
        ask.headers
            .extend(kind.ok().map(|kind| (KIND.clone(), kind)));
        let cause = error.cause(&self.directory);
        let cause = cause.and_then(|cause| HeaderValue::try_from(cause).ok());
        ask.headers
            .extend(cause.map(|cause| (CAUSE.clone(), cause)));
        ask
    }
}

fn path(of: &Invocation, what: &str) -> anyhow::Result<Uri> {
    let path = format!("/2018-06-01/runtime/invocation/{}/{what}", of.id());
    path.parse()
        .with_context(|| format!("invalid request id {:?}", of.id))
}

/// Echoes the invocation id, by which Lambda matches a response to the invocation it waits for.
fn echo(headers: &mut HeaderMap, to: &Invocation) {
    if let Some(nonce) = &to.nonce {
        headers.insert(NONCE.clone(), nonce.clone());
    }
}

/// Reads the event from a response to `/next`, or why it has none.
async fn invocation(
    response: http::Response<Incoming>,
) -> anyhow::Result<Result<Invocation, String>> {
    let (parts, body) = response.into_parts();
    let payload = match body.collect().await {
        Ok(payload) => payload.to_bytes(),
        Err(error) => return Ok(Err(format!("cannot read the event: {error}"))),
    };
    match parts.status {
        StatusCode::OK => {
            let now = (Instant::now(), SystemTime::now());
            let invocation = Invocation::new(parts.headers, payload, now.0, now.1);
            Ok(invocation.ok_or_else(|| "the event has no valid request id".to_string()))
        }
        StatusCode::INTERNAL_SERVER_ERROR => bail!(environment_ended(&payload)),
        status => Ok(Err(format!("{status}: {}", shortened(&payload)))),
    }
}

fn environment_ended(body: &[u8]) -> String {
    format!(
        "Lambda reports that this environment cannot continue: {}",
        shortened(body)
    )
}

/// Handles Lambda's reply to a response. Only a 500 is an error, since it ends the environment; all
/// other failures concern one event that is over.
async fn settle(
    what: &str,
    request_id: &str,
    sent: Result<http::Response<Incoming>, super::connection::Unreachable>,
) -> anyhow::Result<()> {
    let response = match sent {
        Ok(response) => response,
        Err(unreachable) => {
            error!(request_id, what, error = %unreachable, "cannot send to Lambda");
            return Ok(());
        }
    };
    let status = response.status();
    // Reading to the end keeps the connection usable.
    let body = match response.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            debug!(request_id, what, %error, "cannot read Lambda's response");
            return Ok(());
        }
    };
    match status {
        status if status.is_success() => {}
        StatusCode::INTERNAL_SERVER_ERROR => bail!(environment_ended(&body)),
        StatusCode::GONE => info!(
            request_id,
            what, "sent too late; Lambda has already ended the event"
        ),
        StatusCode::PAYLOAD_TOO_LARGE => {
            error!(
                request_id,
                what,
                reply = %shortened(&body),
                "response too large for Lambda"
            );
        }
        status => {
            let reply = shortened(&body);
            warn!(request_id, what, %status, %reply, "Lambda rejected a message");
        }
    }
    Ok(())
}

//! Lambda's Runtime API: where events come from and answers go.

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tracing::{debug, error, info, warn};

use super::connection::{Ask, Connection, Stream};
use super::fault::{Fault, shortened};
use super::invocation::Invocation;
use crate::observe::log;

/// One of the places that ask for events. All of its errors mean that nothing can be done any more.
pub struct RuntimeApi {
    connection: Connection,
    next: Ask,
    /// Where the application is, for X-Ray.
    directory: String,
}

/// The largest answer that Lambda takes.
pub const LARGEST: usize = 6 * 1024 * 1024 + 100;

/// How long to ask in vain for an event.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two questions in vain.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(1);

static NONCE: HeaderName = HeaderName::from_static("lambda-runtime-invocation-id");
static KIND: HeaderName = HeaderName::from_static("lambda-runtime-function-error-type");
static CAUSE: HeaderName = HeaderName::from_static("lambda-runtime-function-xray-error-cause");
static MODE: HeaderName = HeaderName::from_static("lambda-runtime-function-response-mode");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

impl RuntimeApi {
    /// `directory` is the application's.
    pub fn new(connection: Connection, directory: String) -> RuntimeApi {
        let next = Uri::from_static("/2018-06-01/runtime/invocation/next");
        RuntimeApi {
            connection,
            next: Ask::get(next),
            directory,
        }
    }

    /// One more, with a connection of its own.
    pub fn another(&self) -> RuntimeApi {
        RuntimeApi::new(self.connection.another(), self.directory.clone())
    }

    /// Waits for the next event, however long there is none.
    pub async fn next(&mut self) -> anyhow::Result<Invocation> {
        let mut failing = None;
        let mut pause = SHORTEST;
        loop {
            // Lambda may freeze this process from here on, and what it has yet to write with it.
            log::written().await;
            let asked = Instant::now();
            let why = match self.connection.ask(&self.next).await {
                Ok(response) => match invocation(response).await? {
                    Ok(invocation) => return Ok(invocation),
                    Err(why) => why,
                },
                Err(unreachable) => unreachable.to_string(),
            };
            // What breaks off after a long wait was not in vain.
            if asked.elapsed() > PATIENCE {
                (failing, pause) = (None, SHORTEST);
            }
            if failing.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                bail!("no event can be had: {why}");
            }
            warn!("no event: {why}; asked again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST);
        }
    }

    /// Sends the answer to an event.
    pub async fn respond(&mut self, to: &Invocation, payload: Bytes) -> anyhow::Result<()> {
        let mut ask = Ask::post(path(to, "response")?, payload);
        ask.headers.insert(header::CONTENT_TYPE, JSON);
        echo(&mut ask.headers, to);
        let sent = self.connection.ask(&ask).await;
        settle("the answer", to.id(), sent).await
    }

    /// Sends the answer to an event piece by piece.
    pub async fn respond_streaming(
        &mut self,
        to: &Invocation,
        content_type: HeaderValue,
        body: Stream,
    ) -> anyhow::Result<()> {
        let mut ask = Ask::post(path(to, "response")?, Bytes::new());
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
        settle("the streamed answer", to.id(), sent).await
    }

    /// Says that an event has no answer.
    pub async fn fail(&mut self, to: &Invocation, fault: &Fault) -> anyhow::Result<()> {
        error!(request_id = to.id(), kind = %fault.kind, "the event failed: {}", fault.message);
        let mut ask = self.failure(path(to, "error")?, fault);
        echo(&mut ask.headers, to);
        let sent = self.connection.ask(&ask).await;
        settle("the error", to.id(), sent).await
    }

    /// Says that there will never be an answer to anything.
    pub async fn fail_init(&mut self, fault: &Fault) -> anyhow::Result<()> {
        let uri = Uri::from_static("/2018-06-01/runtime/init/error");
        log::written().await;
        let ask = self.failure(uri, fault);
        let sent = self.connection.ask(&ask).await;
        settle("the error of the start", "", sent).await
    }

    /// SnapStart: returns when the process goes on, here or in a copy of it. The snapshot is taken meanwhile.
    pub async fn restored(&mut self) -> anyhow::Result<()> {
        let uri = Uri::from_static("/2018-06-01/runtime/restore/next");
        log::written().await;
        // The connection does not survive the snapshot, and what would be asked again is already being done.
        let response = self.connection.another().ask(&Ask::get(uri)).await?;
        let status = response.status();
        if status != StatusCode::OK {
            let body = response.into_body().collect().await?.to_bytes();
            bail!("restore/next: {status}: {}", shortened(&body));
        }
        self.connection = self.connection.another();
        Ok(())
    }

    /// SnapStart: says that what was restored cannot answer anything.
    pub async fn fail_restore(&mut self, fault: &Fault) -> anyhow::Result<()> {
        let uri = Uri::from_static("/2018-06-01/runtime/restore/error");
        log::written().await;
        let ask = self.failure(uri, fault);
        let sent = self.connection.ask(&ask).await;
        settle("the error of the restore", "", sent).await
    }

    fn failure(&self, uri: Uri, fault: &Fault) -> Ask {
        let mut ask = Ask::post(uri, fault.body());
        ask.headers.insert(header::CONTENT_TYPE, JSON);
        let kind = HeaderValue::from_str(&fault.kind);
        ask.headers
            .extend(kind.ok().map(|kind| (KIND.clone(), kind)));
        let cause = fault.cause(&self.directory);
        let cause = cause.and_then(|cause| HeaderValue::try_from(cause).ok());
        ask.headers
            .extend(cause.map(|cause| (CAUSE.clone(), cause)));
        ask
    }
}

fn path(of: &Invocation, what: &str) -> anyhow::Result<Uri> {
    let path = format!("/2018-06-01/runtime/invocation/{}/{what}", of.id());
    path.parse()
        .with_context(|| format!("the request id {:?}", of.id))
}

/// Lambda tells by it whether an answer is to what it believes to wait for.
fn echo(headers: &mut HeaderMap, to: &Invocation) {
    if let Some(nonce) = &to.nonce {
        headers.insert(NONCE.clone(), nonce.clone());
    }
}

/// The event of an answer to `/next`, or why there is none in it.
async fn invocation(
    response: http::Response<Incoming>,
) -> anyhow::Result<Result<Invocation, String>> {
    let (head, body) = response.into_parts();
    let payload = match body.collect().await {
        Ok(payload) => payload.to_bytes(),
        Err(error) => return Ok(Err(format!("the event broke off: {error}"))),
    };
    match head.status {
        StatusCode::OK => {
            let now = (Instant::now(), SystemTime::now());
            let invocation = Invocation::new(head.headers, payload, now.0, now.1);
            Ok(invocation
                .ok_or_else(|| "an event without a request id that can be one".to_string()))
        }
        StatusCode::INTERNAL_SERVER_ERROR => bail!(gone(&payload)),
        status => Ok(Err(format!("{status}: {}", shortened(&payload)))),
    }
}

fn gone(body: &[u8]) -> String {
    format!(
        "Lambda says that this environment cannot go on: {}",
        shortened(body)
    )
}

/// What Lambda says to an answer. Only the end of the environment is an error: all else concerns one event that is over.
async fn settle(
    what: &str,
    request_id: &str,
    sent: Result<http::Response<Incoming>, super::connection::Unreachable>,
) -> anyhow::Result<()> {
    let response = match sent {
        Ok(response) => response,
        Err(unreachable) => {
            error!(request_id, "{what} is lost: {unreachable}");
            return Ok(());
        }
    };
    let status = response.status();
    // Read to its end, so that the connection can be kept.
    let body = match response.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            debug!(request_id, %error, "Lambda's word on {what} broke off");
            return Ok(());
        }
    };
    match status {
        status if status.is_success() => {}
        StatusCode::INTERNAL_SERVER_ERROR => bail!(gone(&body)),
        StatusCode::GONE => info!(
            request_id,
            "{what} came too late; Lambda has given the event up"
        ),
        StatusCode::PAYLOAD_TOO_LARGE => {
            error!(
                request_id,
                "{what} is larger than Lambda takes: {}",
                shortened(&body)
            );
        }
        status => warn!(request_id, %status, "Lambda refuses {what}: {}", shortened(&body)),
    }
    Ok(())
}

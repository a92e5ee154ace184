//! The Runtime API over HTTP: routes each call and writes its response.

use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::Either;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::api_error::{ApiError, MAX_PAYLOAD};
use super::environment::Environment;
use super::extension_api;
use super::function::{EmulatedFunction, Initialization};
use super::identifier::{rfc3339, since_epoch};
use super::invoke_response::{
    AnswerBody, AnswerPiece, FunctionAnswer, FunctionError, InvokeOutcome, error_kind,
};
use super::reply::{
    ReadBodyError, RuntimeReply, RuntimeReplyBody, accepted, collect, json, reply, text,
};
use super::sandbox::Sandbox;
use super::state::{AnswerCall, Delivery, NextDelivery, Ticket};
use super::variables::CREDENTIALS;

/// The limit of streamed responses since July 2025.
const MAX_STREAM: usize = 200 * 1024 * 1024;

const ERROR_TYPE: &str = "lambda-runtime-function-error-type";
const ERROR_BODY: &str = "lambda-runtime-function-error-body";

/// Serves the Runtime API until the environment is dropped.
pub fn serve(listener: TcpListener, environment: &Arc<Environment>) {
    let closed = environment.closed.clone();
    let environment = Arc::downgrade(environment);
    tokio::spawn(closed.run_until_cancelled_owned(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(connection(stream, environment.clone()));
        }
    }));
}

async fn connection(stream: TcpStream, environment: Weak<Environment>) {
    let _ = stream.set_nodelay(true);
    let Some(sandbox) = environment.upgrade().and_then(|e| e.sandbox()) else {
        return;
    };
    let over = sandbox.connections.clone();
    let service = service_fn(move |request| {
        let (environment, sandbox) = (environment.clone(), sandbox.clone());
        async move {
            let is_stale = sandbox.connections.is_cancelled();
            // A waiting call must not keep the environment alive.
            let now = environment.upgrade().filter(|_| !is_stale);
            let now = now.and_then(|e| Some((e.sandbox()?, e.function.clone())));
            Ok::<_, Infallible>(match now {
                Some((sandbox, function)) => route(&function, sandbox, request)
                    .await
                    .unwrap_or_else(|rejection| reject(&rejection)),
                None => reject(&ApiError::internal()),
            })
        }
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        _ = serving => {}
        () = over.cancelled() => {}
    }
}

async fn route(
    function: &EmulatedFunction,
    sandbox: Arc<Sandbox>,
    request: Request<Incoming>,
) -> Result<RuntimeReply, ApiError> {
    let path = request.uri().path();
    let is_get = request.method() == Method::GET;
    let is_post = request.method() == Method::POST;
    if let Some(call) = path.strip_prefix("/2018-06-01/runtime/") {
        return match call {
            "invocation/next" if is_get => next(&sandbox).await,
            "init/error" if is_post => init_error(&sandbox, request).await,
            "restore/next" if is_get && has_snapshots(function) => restore_next(&sandbox).await,
            "restore/error" if is_post && has_snapshots(function) => {
                restore_error(&sandbox, request).await
            }
            _ => {
                let answered = call.strip_prefix("invocation/").filter(|_| is_post);
                let answered = answered.and_then(|rest| rest.split_once('/'));
                match answered {
                    Some((id, "response")) => {
                        let id = id.to_string();
                        response(&sandbox, &id, request).await
                    }
                    Some((id, "error")) => {
                        let id = id.to_string();
                        error(&sandbox, &id, request).await
                    }
                    _ => Err(ApiError::unknown()),
                }
            }
        };
    }
    match path {
        "/2018-06-01/ping" | "/ping" if is_get => Ok(reply(StatusCode::OK, "pong".into())),
        "/2020-01-01/extension/register" if is_post => {
            extension_api::register(function, &sandbox, request).await
        }
        "/2020-01-01/extension/event/next" if is_get => {
            extension_api::next(&sandbox, &request).await
        }
        "/2020-01-01/extension/init/error" if is_post => {
            extension_api::error(&sandbox, &request, true)
        }
        "/2020-01-01/extension/exit/error" if is_post => {
            extension_api::error(&sandbox, &request, false)
        }
        // AWS's own emulator gives this answer, so that a runtime that subscribes does not fail.
        "/2020-08-15/logs" if request.method() == Method::PUT => Ok(unsupported("Logs")),
        "/2022-07-01/telemetry" if request.method() == Method::PUT => Ok(unsupported("Telemetry")),
        CREDENTIALS if is_get => credentials(&sandbox, &request),
        _ => Err(ApiError::unknown()),
    }
}

fn unsupported(what: &str) -> RuntimeReply {
    let body = serde_json::json!({
        "errorMessage": format!("{what} API is not supported"),
        "errorType": format!("{what}.NotSupported"),
    });
    json(StatusCode::ACCEPTED, body.to_string())
}

fn has_snapshots(function: &EmulatedFunction) -> bool {
    function.initialization == Initialization::SnapStart
}

async fn next(sandbox: &Sandbox) -> Result<RuntimeReply, ApiError> {
    let next = sandbox.state().next()?;
    let delivery = match next {
        NextDelivery::Now(delivery) => delivery,
        // The sender is dropped together with the connection when the sandbox ends.
        NextDelivery::Wait(waiting) => waiting.await.map_err(|_| ApiError::internal())?,
    };
    Ok(deliver(&delivery))
}

fn deliver(delivery: &Delivery) -> RuntimeReply {
    let body = match delivery.pause {
        None => Either::Left(Full::new(delivery.payload.clone())),
        Some(pause) => Either::Right(in_pieces(delivery.payload.clone(), pause)),
    };
    let mut reply = Response::new(match body {
        Either::Left(full) => RuntimeReplyBody::Left(full),
        Either::Right(slow) => RuntimeReplyBody::Right(slow),
    });
    *reply.headers_mut() = delivery.headers.clone();
    reply
}

/// Sends the payload in four pieces with a pause before each.
fn in_pieces(payload: Bytes, pause: Duration) -> UnsyncBoxBody<Bytes, Infallible> {
    let size = payload.len().div_ceil(4).max(1);
    let pieces = futures_util::stream::unfold(payload, move |mut left| async move {
        if left.is_empty() {
            return None;
        }
        tokio::time::sleep(pause).await;
        let piece = left.split_to(size.min(left.len()));
        Some((Ok(Frame::data(piece)), left))
    });
    StreamBody::new(pieces).boxed_unsync()
}

async fn response(
    sandbox: &Sandbox,
    id: &str,
    request: Request<Incoming>,
) -> Result<RuntimeReply, ApiError> {
    let (parts, body) = request.into_parts();
    let ticket = sandbox
        .state()
        .answer(AnswerCall::Response, id, nonce(&parts.headers))?;
    let content_type = text(&parts.headers, header::CONTENT_TYPE.as_str());
    let is_streamed = match text(&parts.headers, "lambda-runtime-function-response-mode").as_deref()
    {
        None | Some("") => false,
        Some("streaming") => true,
        Some(_) => {
            let error = FunctionError::from_platform("Runtime.InvalidResponseModeHeader", "");
            return Err(failed(
                sandbox,
                id,
                ticket,
                error,
                ApiError::response_mode(),
            ));
        }
    };
    let answer = |body| {
        InvokeOutcome::Answer(FunctionAnswer {
            content_type: content_type.clone(),
            is_streamed,
            body,
        })
    };
    if is_streamed && ticket.is_streamed {
        let (pieces, stream) = mpsc::channel(16);
        let _ = ticket.outcome.send(answer(AnswerBody::Stream(stream)));
        let result = forward(body, &pieces).await;
        let (error, rejection) = match result {
            Ok(error) => (error, None),
            Err((error, rejection)) => (Some(error), Some(rejection)),
        };
        let kind = error.as_ref().map(|error| error.kind.clone());
        // The state changes first: the caller must not see the end before the runtime may ask for
        // the next event.
        sandbox.state().sent(id, kind);
        let last = error.map_or(AnswerPiece::End, AnswerPiece::Failed);
        let _ = pieces.send(last).await;
        return rejection.map_or_else(|| Ok(accepted()), Err);
    }
    match collect(body, MAX_PAYLOAD).await {
        Ok((bytes, trailers)) => {
            let error = trailers.and_then(|trailers| trailer_error(&trailers));
            sandbox
                .state()
                .sent(id, error.as_ref().map(|error| error.kind.clone()));
            let _ = ticket.outcome.send(match error {
                Some(error) => InvokeOutcome::Error(error),
                None => answer(AnswerBody::Full(bytes)),
            });
            Ok(accepted())
        }
        Err(ReadBodyError::TooLarge) => Err(failed(
            sandbox,
            id,
            ticket,
            FunctionError::too_large(),
            ApiError::too_large(),
        )),
        Err(ReadBodyError::Truncated) => Err(failed(
            sandbox,
            id,
            ticket,
            FunctionError::truncated(),
            ApiError::truncated(),
        )),
    }
}

/// Ends the event with this error, whatever the runtime was about to report.
fn failed(
    sandbox: &Sandbox,
    id: &str,
    ticket: Ticket,
    error: FunctionError,
    rejection: ApiError,
) -> ApiError {
    sandbox.state().sent(id, Some(error.kind.clone()));
    let _ = ticket.outcome.send(InvokeOutcome::Error(error));
    rejection
}

/// Forwards a streamed response piece by piece. Returns the error in its trailers, or why the
/// stream is invalid.
async fn forward(
    mut body: Incoming,
    pieces: &mpsc::Sender<AnswerPiece>,
) -> Result<Option<FunctionError>, (FunctionError, ApiError)> {
    let mut total = 0;
    let mut error = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| (FunctionError::truncated(), ApiError::truncated()))?;
        match frame.into_data() {
            Ok(data) => {
                total += data.len();
                if total > MAX_STREAM {
                    return Err((FunctionError::too_large(), ApiError::too_large()));
                }
                // A caller that has disconnected does not end the function; the rest is discarded.
                let _ = pieces.send(AnswerPiece::Data(data)).await;
            }
            Err(frame) => {
                error = frame.into_trailers().ok().and_then(|t| trailer_error(&t));
            }
        }
    }
    Ok(error)
}

/// Reads an error that the trailers of a stream report; its body is base64 of JSON.
fn trailer_error(trailers: &HeaderMap) -> Option<FunctionError> {
    use base64::Engine as _;
    let kind = text(trailers, ERROR_TYPE).filter(|kind| !kind.is_empty())?;
    let body = text(trailers, ERROR_BODY).unwrap_or_default();
    let decoded = base64::engine::general_purpose::STANDARD.decode(body.as_bytes());
    Some(FunctionError {
        kind: error_kind(Some(&kind)),
        body: decoded.map_or_else(|_| body.into(), Bytes::from),
    })
}

async fn error(
    sandbox: &Sandbox,
    id: &str,
    request: Request<Incoming>,
) -> Result<RuntimeReply, ApiError> {
    let (parts, body) = request.into_parts();
    let ticket = sandbox
        .state()
        .answer(AnswerCall::Error, id, nonce(&parts.headers))?;
    let error = match collect(body, MAX_PAYLOAD).await {
        Ok((bytes, _)) => reported_error(&parts.headers, bytes),
        Err(ReadBodyError::Truncated) => FunctionError::truncated(),
        Err(ReadBodyError::TooLarge) => {
            let error = FunctionError::too_large();
            return Err(failed(sandbox, id, ticket, error, ApiError::too_large()));
        }
    };
    sandbox.state().sent(id, Some(error.kind.clone()));
    let _ = ticket.outcome.send(InvokeOutcome::Error(error));
    Ok(accepted())
}

/// Reads an error as the runtime reports it. A body with a cause for X-Ray reaches the caller
/// without that cause.
fn reported_error(headers: &HeaderMap, body: Bytes) -> FunctionError {
    let kind = error_kind(text(headers, ERROR_TYPE).as_deref());
    let has_cause = text(headers, header::CONTENT_TYPE.as_str()).as_deref()
        == Some("application/vnd.aws.lambda.error.cause+json");
    if !has_cause {
        return FunctionError { kind, body };
    }
    let body = match serde_json::from_slice::<serde_json::Value>(&body) {
        Ok(serde_json::Value::Object(mut object)) => {
            object.retain(|key, _| {
                ["errorMessage", "errorType", "stackTrace"].contains(&key.as_str())
            });
            serde_json::Value::Object(object).to_string()
        }
        _ => "\"Invalid error body\"".to_string(),
    };
    FunctionError {
        kind,
        body: body.into(),
    }
}

async fn init_error(
    sandbox: &Sandbox,
    request: Request<Incoming>,
) -> Result<RuntimeReply, ApiError> {
    let error = reported(request).await?;
    sandbox.state().init_error(error)?;
    Ok(accepted())
}

async fn restore_error(
    sandbox: &Sandbox,
    request: Request<Incoming>,
) -> Result<RuntimeReply, ApiError> {
    let error = reported(request).await?;
    sandbox.state().restore_error(error)?;
    Ok(accepted())
}

async fn reported(request: Request<Incoming>) -> Result<FunctionError, ApiError> {
    let (parts, body) = request.into_parts();
    match collect(body, MAX_PAYLOAD).await {
        Ok((bytes, _)) => Ok(reported_error(&parts.headers, bytes)),
        Err(ReadBodyError::TooLarge) => Err(ApiError::too_large()),
        Err(ReadBodyError::Truncated) => Err(ApiError::truncated()),
    }
}

async fn restore_next(sandbox: &Sandbox) -> Result<RuntimeReply, ApiError> {
    let restored = sandbox.state().restore_next()?;
    restored.await.map_err(|_| ApiError::internal())?;
    Ok(reply(StatusCode::OK, Bytes::new()))
}

fn credentials(sandbox: &Sandbox, request: &Request<Incoming>) -> Result<RuntimeReply, ApiError> {
    let token = text(request.headers(), header::AUTHORIZATION.as_str());
    if token.as_deref() != Some(sandbox.token.as_str()) {
        return Err(ApiError::unknown());
    }
    let body = serde_json::json!({
        "AccessKeyId": "emulator",
        "SecretAccessKey": "emulator",
        "Token": "emulator",
        "Expiration": rfc3339(since_epoch() + Duration::from_secs(12 * 3600)),
    });
    Ok(json(StatusCode::OK, body.to_string()))
}

fn nonce(headers: &HeaderMap) -> Option<&str> {
    let nonce = headers.get("lambda-runtime-invocation-id")?.to_str().ok()?;
    (!nonce.is_empty()).then_some(nonce)
}

fn reject(rejection: &ApiError) -> RuntimeReply {
    json(rejection.status, rejection.body())
}

//! Lambda's `Invoke` API for SDKs, with the behaviour of AWS's own emulator.

use std::convert::Infallible;
use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::{HttpReply, MAX_EVENT, full};
use crate::emulator::{Emulator, identifier, invoke_request};

/// Lambda's limit for asynchronous events.
const MAX_ASYNCHRONOUS: usize = 1024 * 1024;
/// How much of the log `X-Amz-Log-Result` contains.
const LOG_TAIL: usize = 4096;

/// Serves `POST /2015-03-31/functions/{name}/invocations` until dropped; every name means this
/// function.
pub async fn serve(listener: TcpListener, emulator: Emulator) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let emulator = emulator.clone();
        let service = service_fn(move |request| {
            let emulator = emulator.clone();
            async move { Ok::<_, Infallible>(answer(&emulator, request).await) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .header_read_timeout(None)
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection);
    }
}

/// The value for `AWS_ENDPOINT_URL_LAMBDA`.
pub fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

async fn answer(emulator: &Emulator, request: Request<Incoming>) -> HttpReply {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let name = path
        .strip_prefix("/2015-03-31/functions/")
        .and_then(|rest| rest.strip_suffix("/invocations"));
    if name.is_none() || parts.method != Method::POST {
        return error(
            StatusCode::NOT_FOUND,
            "UnknownOperationException",
            "only POST /2015-03-31/functions/NAME/invocations is supported",
        );
    }
    let kind = text(&parts.headers, "x-amz-invocation-type").unwrap_or_default();
    let is_asynchronous = match kind.as_str() {
        "" | "RequestResponse" => false,
        "Event" => true,
        "DryRun" => return status(StatusCode::NO_CONTENT),
        _ => {
            return error(
                StatusCode::BAD_REQUEST,
                "InvalidParameterValueException",
                "X-Amz-Invocation-Type must be RequestResponse, Event or DryRun",
            );
        }
    };
    let max = if is_asynchronous {
        MAX_ASYNCHRONOUS
    } else {
        MAX_EVENT
    };
    let Ok(body) = Limited::new(body, max).collect().await else {
        let message =
            format!("Request must be smaller than {max} bytes for the InvokeFunction operation");
        return error(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestTooLargeException",
            &message,
        );
    };
    let body = body.to_bytes();
    let payload = if body.is_empty() {
        Bytes::from_static(b"{}")
    } else {
        body
    };
    let checked: Result<serde::de::IgnoredAny, _> = serde_json::from_slice(&payload);
    if let Err(wrong) = checked {
        let message = format!("Could not parse request body into json: {wrong}");
        return error(
            StatusCode::BAD_REQUEST,
            "InvalidRequestContentException",
            &message,
        );
    }
    let context = text(&parts.headers, "x-amz-client-context");
    let context = context.and_then(|context| STANDARD.decode(context).ok());
    let request = invoke_request::InvokeRequest {
        id: Some(identifier::uuid()),
        trace: text(&parts.headers, "x-amzn-trace-id"),
        client_context: context.map(|context| String::from_utf8_lossy(&context).into_owned()),
        tenant_id: text(&parts.headers, "x-amz-tenant-id"),
        ..invoke_request::InvokeRequest::from(payload)
    };
    if is_asynchronous {
        let emulator = emulator.clone();
        tokio::spawn(async move { emulator.invoke(request).await });
        return status(StatusCode::ACCEPTED);
    }
    let wants_log = text(&parts.headers, "x-amz-log-type").as_deref() == Some("Tail");
    let mut running = emulator.begin(request).await;
    let outcome = running.outcome().await.collect().await;
    let log = match wants_log {
        true => running.report().await.map(|(_, log)| log.join("\n")),
        false => None,
    };
    let (payload, is_error) = match outcome {
        Ok(payload) => (payload, false),
        Err(error) => (error.body, true),
    };
    let mut reply = Response::new(full(payload));
    let headers = reply.headers_mut();
    let mut set = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    set("content-type", "application/json");
    set("x-amz-executed-version", &emulator.function().version);
    if is_error {
        set("x-amz-function-error", "Unhandled");
    }
    if let Some(log) = log {
        let mut from = log.len().saturating_sub(LOG_TAIL);
        while !log.is_char_boundary(from) {
            from += 1;
        }
        set("x-amz-log-result", &STANDARD.encode(&log[from..]));
    }
    reply
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name)?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

fn status(status: StatusCode) -> HttpReply {
    let mut reply = Response::new(full(Bytes::new()));
    *reply.status_mut() = status;
    reply
}

/// An error as SDKs read it: the type in a header, the message in the body.
fn error(status: StatusCode, kind: &'static str, message: &str) -> HttpReply {
    let body = serde_json::json!({"Type": "User", "Message": message}).to_string();
    let mut reply = Response::new(full(body.into()));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers.insert("x-amzn-errortype", HeaderValue::from_static(kind));
    reply
}

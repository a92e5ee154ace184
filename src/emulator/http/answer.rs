//! Converts a function's answer to an HTTP response, as each service does.

use std::io;

use base64::Engine as _;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::Value;
use tokio::sync::mpsc;

use super::{HttpReply, HttpReplyBody, HttpService, full, length, message};
use crate::emulator::invoke_response::{AnswerBody, AnswerPiece, FunctionAnswer};

/// The content type of a streamed response with a prelude.
const PRELUDE: &str = "application/vnd.awslambda.http-integration-response";
const SEPARATOR: [u8; 8] = [0; 8];
/// A prelude contains only headers, so a longer one is invalid.
const MAX_PRELUDE: usize = 1 << 20;

/// The response for a failed function.
pub fn failed(service: HttpService) -> HttpReply {
    match service {
        HttpService::Url => text(StatusCode::BAD_GATEWAY, "Internal Server Error"),
        HttpService::Http => message(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error"),
        HttpService::Rest => message(StatusCode::BAD_GATEWAY, "Internal server error"),
        HttpService::Alb | HttpService::AlbMulti => {
            text(StatusCode::BAD_GATEWAY, "502 Bad Gateway")
        }
    }
}

/// The response for a request above the size limit of the service or of Lambda.
pub fn too_long(service: HttpService) -> HttpReply {
    match service {
        HttpService::Alb | HttpService::AlbMulti => text(
            StatusCode::PAYLOAD_TOO_LARGE,
            "413 Request Entity Too Large",
        ),
        _ => message(StatusCode::PAYLOAD_TOO_LARGE, "Request Too Long"),
    }
}

/// The response after the service's own timeout.
pub fn timed_out(service: HttpService) -> HttpReply {
    match service {
        HttpService::Http => message(StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable"),
        _ => message(StatusCode::GATEWAY_TIMEOUT, "Endpoint request timed out"),
    }
}

fn text(status: StatusCode, body: &'static str) -> HttpReply {
    let mut reply = Response::new(full(Bytes::from_static(body.as_bytes())));
    *reply.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain");
    reply.headers_mut().insert(header::CONTENT_TYPE, kind);
    reply
}

/// Converts the function's answer to a response. `decodes` turns base64 into bytes; a REST API does
/// so only for its binary media types.
pub async fn reply(
    service: HttpService,
    is_streamed: bool,
    decodes: bool,
    answer: FunctionAnswer,
) -> HttpReply {
    // Whether the service accepts that many header bytes.
    let fits = |reply: &HttpReply| length(reply.headers()) <= service.max_headers();
    if is_streamed {
        let reply = streamed(answer).await.filter(fits);
        return reply.unwrap_or_else(|| failed(service));
    }
    let Ok(payload) = answer.body.collect().await else {
        return failed(service);
    };
    if service.max_answer().is_some_and(|max| payload.len() > max) {
        return failed(service);
    }
    let response = match serde_json::from_slice::<Value>(&payload) {
        Ok(value) if value.get("statusCode").is_some() => structured(service, decodes, &value),
        // Function URLs and HTTP APIs treat a payload without a status as the response body.
        Ok(_) if matches!(service, HttpService::Url | HttpService::Http) => Some(inferred(payload)),
        _ => None,
    };
    response.filter(fits).unwrap_or_else(|| failed(service))
}

fn inferred(payload: Bytes) -> HttpReply {
    let mut reply = Response::new(full(payload));
    let kind = HeaderValue::from_static("application/json");
    reply.headers_mut().insert(header::CONTENT_TYPE, kind);
    reply
}

/// Reads `{"statusCode": …, "headers": …, "body": …}`; None if the payload is not such an object.
fn structured(service: HttpService, decodes: bool, value: &Value) -> Option<HttpReply> {
    let body = match value.get("body") {
        None | Some(Value::Null) => Bytes::new(),
        Some(Value::String(body)) if decodes && value["isBase64Encoded"] == true => {
            let engine = base64::engine::general_purpose::STANDARD;
            engine.decode(body).ok()?.into()
        }
        Some(Value::String(body)) => Bytes::from(body.clone()),
        // The function has not encoded a body that is an object. Function URLs and HTTP APIs encode
        // it.
        Some(other) if matches!(service, HttpService::Url | HttpService::Http) => {
            other.to_string().into()
        }
        Some(_) => return None,
    };
    let mut reply = without_body(service, value)?;
    if !reply.headers().contains_key(header::CONTENT_TYPE)
        && matches!(
            service,
            HttpService::Url | HttpService::Http | HttpService::Rest
        )
    {
        let kind = HeaderValue::from_static("application/json");
        reply.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    *reply.body_mut() = full(body);
    Some(reply)
}

/// Status, headers and cookies.
fn without_body(service: HttpService, value: &Value) -> Option<HttpReply> {
    let status = match value.get("statusCode") {
        None => 200,
        Some(Value::Number(number)) => number.as_u64()?,
        Some(Value::String(text)) => text.parse().ok()?,
        Some(_) => return None,
    };
    let mut reply = Response::new(full(Bytes::new()));
    *reply.status_mut() = StatusCode::from_u16(u16::try_from(status).ok()?).ok()?;
    let (has_single, has_multi) = match service {
        HttpService::Url | HttpService::Http | HttpService::Alb => (true, false),
        HttpService::Rest => (true, true),
        HttpService::AlbMulti => (false, true),
    };
    let headers = reply.headers_mut();
    let mut add = |name: &str, value: &Value| -> Option<()> {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            _ => return None,
        };
        let name = HeaderName::try_from(name).ok()?;
        // The service controls the connection and the length of the body.
        let is_of_connection = [
            header::CONNECTION,
            header::TRANSFER_ENCODING,
            header::CONTENT_LENGTH,
        ]
        .contains(&name);
        if !is_of_connection {
            headers.append(name, HeaderValue::from_str(&text).ok()?);
        }
        Some(())
    };
    let mut repeated: Vec<String> = Vec::new();
    if has_multi && let Some(Value::Object(multi)) = value.get("multiValueHeaders") {
        for (name, values) in multi {
            repeated.push(name.to_ascii_lowercase());
            for value in values.as_array()? {
                add(name, value)?;
            }
        }
    }
    if has_single && let Some(Value::Object(single)) = value.get("headers") {
        for (name, value) in single {
            if !repeated.contains(&name.to_ascii_lowercase()) {
                add(name, value)?;
            }
        }
    }
    if matches!(service, HttpService::Url | HttpService::Http)
        && let Some(Value::Array(cookies)) = value.get("cookies")
    {
        for cookie in cookies {
            add("set-cookie", cookie)?;
        }
    }
    Some(reply)
}

/// Reads a streamed answer: the prelude, if there is one, then the body.
async fn streamed(answer: FunctionAnswer) -> Option<HttpReply> {
    let has_prelude = answer.content_type.as_deref() == Some(PRELUDE);
    let (first, rest) = match answer.body {
        AnswerBody::Full(bytes) => (bytes, None),
        AnswerBody::Stream(pieces) => (Bytes::new(), Some(pieces)),
    };
    if !has_prelude {
        let mut reply = Response::new(body(first, rest));
        let kind = answer.content_type.and_then(|kind| kind.parse().ok());
        let kind = kind.unwrap_or(HeaderValue::from_static("application/octet-stream"));
        reply.headers_mut().insert(header::CONTENT_TYPE, kind);
        return Some(reply);
    }
    let mut gathered = BytesMut::from(&first[..]);
    let mut rest = rest;
    let end = loop {
        if let Some(at) = memchr::memmem::find(&gathered, &SEPARATOR) {
            break at;
        }
        if gathered.len() > MAX_PRELUDE {
            return None;
        }
        match rest.as_mut()?.recv().await? {
            AnswerPiece::Data(data) => gathered.extend_from_slice(&data),
            AnswerPiece::End | AnswerPiece::Failed(_) => return None,
        }
    };
    let gathered = gathered.freeze();
    let value: Value = serde_json::from_slice(&gathered[..end]).ok()?;
    // In a prelude, cookies have their own list for every service.
    let mut reply = without_body(HttpService::Url, &value)?;
    *reply.body_mut() = body(gathered.slice(end + SEPARATOR.len()..), rest);
    Some(reply)
}

/// Joins the data that has arrived with the rest. A stream that fails aborts the response.
fn body(first: Bytes, rest: Option<mpsc::Receiver<AnswerPiece>>) -> HttpReplyBody {
    let Some(rest) = rest else { return full(first) };
    let frames = stream::unfold(Some((first, rest)), |state| async move {
        let (first, mut rest) = state?;
        if !first.is_empty() {
            return Some((Ok(Frame::data(first)), Some((Bytes::new(), rest))));
        }
        match rest.recv().await {
            Some(AnswerPiece::Data(data)) => {
                Some((Ok(Frame::data(data)), Some((Bytes::new(), rest))))
            }
            Some(AnswerPiece::End) => None,
            Some(AnswerPiece::Failed(error)) => Some((Err(io::Error::other(error.kind)), None)),
            None => Some((Err(io::Error::from(io::ErrorKind::UnexpectedEof)), None)),
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    async fn response(service: HttpService, payload: &str) -> (u16, Vec<(String, String)>, String) {
        let answer = FunctionAnswer {
            content_type: None,
            is_streamed: false,
            body: AnswerBody::Full(payload.to_string().into()),
        };
        let (parts, body) = reply(service, false, true, answer).await.into_parts();
        let headers = parts.headers.iter();
        let headers = headers
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_string()))
            .collect();
        let body = body.collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        (parts.status.as_u16(), headers, body)
    }

    fn values<'a>(headers: &'a [(String, String)], name: &str) -> Vec<&'a str> {
        let found = headers.iter().filter(|(there, _)| there == name);
        found.map(|(_, value)| value.as_str()).collect()
    }

    #[tokio::test]
    async fn front_end_reads_the_header_fields_that_it_supports() {
        let payload = r#"{"statusCode":201,"headers":{"x-one":"1","X-Both":"single"},
            "multiValueHeaders":{"x-both":["a","b"],"set-cookie":["m=1","n=2"]},
            "cookies":["c=1","d=2"],"body":"aGVsbG8=","isBase64Encoded":true}"#;
        for (service, one, both, cookies) in [
            (
                HttpService::Url,
                vec!["1"],
                vec!["single"],
                vec!["c=1", "d=2"],
            ),
            (
                HttpService::Http,
                vec!["1"],
                vec!["single"],
                vec!["c=1", "d=2"],
            ),
            (
                HttpService::Rest,
                vec!["1"],
                vec!["a", "b"],
                vec!["m=1", "n=2"],
            ),
            (HttpService::Alb, vec!["1"], vec!["single"], vec![]),
            (
                HttpService::AlbMulti,
                vec![],
                vec!["a", "b"],
                vec!["m=1", "n=2"],
            ),
        ] {
            let (status, headers, body) = response(service, payload).await;
            assert_eq!((status, body.as_str()), (201, "hello"), "{service:?}");
            assert_eq!(values(&headers, "x-one"), one, "{service:?}");
            assert_eq!(values(&headers, "x-both"), both, "{service:?}");
            assert_eq!(values(&headers, "set-cookie"), cookies, "{service:?}");
        }
    }

    #[tokio::test]
    async fn payload_without_status_is_an_error_or_a_body() {
        let (status, headers, body) = response(HttpService::Url, r#"{"a":1}"#).await;
        assert_eq!((status, body.as_str()), (200, r#"{"a":1}"#));
        assert_eq!(values(&headers, "content-type"), ["application/json"]);
        for service in [HttpService::Rest, HttpService::Alb, HttpService::AlbMulti] {
            assert_eq!(response(service, r#"{"a":1}"#).await.0, 502, "{service:?}");
        }
        assert_eq!(response(HttpService::Http, "no JSON").await.0, 500);
        for wrong in [
            r#"{"statusCode":"twohundred"}"#,
            r#"{"statusCode":200,"headers":{"a":["list"]}}"#,
            r#"{"statusCode":200,"headers":{"a":"line\nbreak"}}"#,
            r#"{"statusCode":200,"body":"%","isBase64Encoded":true}"#,
        ] {
            assert_eq!(response(HttpService::Url, wrong).await.0, 502, "{wrong}");
        }
    }
}

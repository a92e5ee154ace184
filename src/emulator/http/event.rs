//! Builds the event of an HTTP request. Services differ in what they decode, join or encode; each
//! field follows AWS.

use std::borrow::Cow;
use std::net::SocketAddr;

use base64::Engine as _;
use bytes::Bytes;
use http::{HeaderMap, header};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::{Value, json};

use super::{BinaryMediaTypes, HttpService};
use crate::emulator::function::EmulatedFunction;
use crate::emulator::identifier::{clf, since_epoch};

/// A received request.
pub struct ReceivedRequest {
    pub parts: http::request::Parts,
    pub body: Bytes,
    pub peer: SocketAddr,
    /// The local port.
    pub port: u16,
    pub id: String,
    pub trace: String,
}

/// The event's JSON.
pub fn from_request(
    service: HttpService,
    function: &EmulatedFunction,
    types: &BinaryMediaTypes,
    received: &ReceivedRequest,
) -> String {
    let event = match service {
        HttpService::Url | HttpService::Http => {
            serde_json::to_string(&format_2(service, function, received))
        }
        HttpService::Rest => serde_json::to_string(&format_1(function, types, received)),
        HttpService::Alb => serde_json::to_string(&balancer(function, received, false)),
        HttpService::AlbMulti => serde_json::to_string(&balancer(function, received, true)),
    };
    event.unwrap_or_default()
}

/// A JSON object that keeps the order of its members.
struct Members<T>(Vec<(String, T)>);

impl<T: Serialize> Serialize for Members<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<T> Members<T> {
    /// Applies `add` to the member of this name, or creates it with `make`.
    fn merge(&mut self, name: &str, make: impl FnOnce() -> T, add: impl FnOnce(&mut T)) {
        match self.0.iter_mut().find(|(there, _)| there == name) {
            Some((_, there)) => add(there),
            None => self.0.push((name.to_string(), make())),
        }
    }
}

type Single = Members<String>;
type Multi = Members<Vec<String>>;

/// Keeps each name once. Later values are appended after the separator, or replace the earlier one
/// if there is none.
fn single(pairs: &[(String, String)], separator: Option<&str>) -> Single {
    let mut members = Members(Vec::new());
    for (name, value) in pairs {
        members.merge(
            name,
            || value.clone(),
            |there| match separator {
                Some(separator) => {
                    there.push_str(separator);
                    there.push_str(value);
                }
                None => there.clone_from(value),
            },
        );
    }
    members
}

fn multi(pairs: &[(String, String)]) -> Multi {
    let mut members = Members(Vec::new());
    for (name, value) in pairs {
        members.merge(
            name,
            || vec![value.clone()],
            |there| there.push(value.clone()),
        );
    }
    members
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Format2 {
    version: &'static str,
    route_key: &'static str,
    raw_path: String,
    raw_query_string: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cookies: Vec<String>,
    headers: Single,
    #[serde(skip_serializing_if = "Option::is_none")]
    query_string_parameters: Option<Single>,
    request_context: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    is_base64_encoded: bool,
}

fn format_2(
    service: HttpService,
    function: &EmulatedFunction,
    received: &ReceivedRequest,
) -> Format2 {
    let (path, query) = target(received);
    // An HTTP API decodes the path; a decoded question mark ends it.
    let raw_path = match service {
        HttpService::Url => path.to_string(),
        _ => {
            let decoded = percent_decode_str(path).decode_utf8_lossy();
            let end = decoded.find('?').unwrap_or(decoded.len());
            decoded[..end].to_string()
        }
    };
    let (account, domain, id) = match service {
        HttpService::Url => {
            let domain = format!("emulated.lambda-url.{}.on.aws", function.region);
            ("anonymous", domain, "emulated")
        }
        _ => {
            let domain = format!("emulated.execute-api.{}.amazonaws.com", function.region);
            (function.account.as_str(), domain, "emulated")
        }
    };
    let now = since_epoch();
    let request_context = json!({
        "accountId": account,
        "apiId": id,
        "domainName": domain,
        "domainPrefix": id,
        "http": {
            "method": received.parts.method.as_str(),
            "path": raw_path,
            "protocol": protocol(received),
            "sourceIp": received.peer.ip().to_string(),
            "userAgent": header_text(received, header::USER_AGENT.as_str()).unwrap_or_default(),
        },
        "requestId": received.id,
        "routeKey": "$default",
        "stage": "$default",
        "time": clf(now),
        "timeEpoch": now.as_millis() as u64,
    });
    let pairs = query_pairs(query, true);
    let cookies = received.parts.headers.get_all(header::COOKIE).iter();
    let cookies = cookies
        .flat_map(|value| {
            let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
            let parts: Vec<String> = text
                .split(';')
                .map(|part| part.trim().to_string())
                .collect();
            parts
        })
        .filter(|cookie| !cookie.is_empty())
        .collect();
    let mut headers = headers(received);
    headers.retain(|(name, _)| name != "cookie");
    let (body, is_base64_encoded) = body(received);
    Format2 {
        version: "2.0",
        route_key: "$default",
        raw_path,
        raw_query_string: query.to_string(),
        cookies,
        headers: single(&headers, Some(",")),
        query_string_parameters: (!pairs.is_empty()).then(|| single(&pairs, Some(","))),
        request_context,
        body: (!received.body.is_empty()).then_some(body),
        is_base64_encoded,
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Format1 {
    resource: &'static str,
    path: String,
    http_method: String,
    headers: Single,
    multi_value_headers: Multi,
    query_string_parameters: Option<Single>,
    multi_value_query_string_parameters: Option<Multi>,
    path_parameters: Value,
    stage_variables: Value,
    request_context: Value,
    body: Option<String>,
    is_base64_encoded: bool,
}

fn format_1(
    function: &EmulatedFunction,
    types: &BinaryMediaTypes,
    received: &ReceivedRequest,
) -> Format1 {
    let (path, query) = target(received);
    let pairs = query_pairs(query, true);
    let mut headers = headers(received);
    for (name, _) in &mut headers {
        *name = in_title_case(name);
    }
    let resource = if path == "/" { "/" } else { "/{proxy+}" };
    let now = since_epoch();
    let request_context = json!({
        "accountId": function.account,
        "apiId": "emulated",
        "domainName": format!("emulated.execute-api.{}.amazonaws.com", function.region),
        "domainPrefix": "emulated",
        "extendedRequestId": received.id,
        "httpMethod": received.parts.method.as_str(),
        "identity": {
            "accessKey": null,
            "accountId": null,
            "caller": null,
            "cognitoAuthenticationProvider": null,
            "cognitoAuthenticationType": null,
            "cognitoIdentityId": null,
            "cognitoIdentityPoolId": null,
            "principalOrgId": null,
            "sourceIp": received.peer.ip().to_string(),
            "user": null,
            "userAgent": header_text(received, header::USER_AGENT.as_str()),
            "userArn": null,
        },
        "path": format!("/Prod{path}"),
        "protocol": protocol(received),
        "requestId": received.id,
        "requestTime": clf(now),
        "requestTimeEpoch": now.as_millis() as u64,
        "resourceId": "emulated",
        "resourcePath": resource,
        "stage": "Prod",
    });
    let (body, is_base64_encoded) = rest_body(types, received);
    Format1 {
        resource,
        path: path.to_string(),
        http_method: received.parts.method.to_string(),
        headers: single(&headers, None),
        multi_value_headers: multi(&headers),
        query_string_parameters: (!pairs.is_empty()).then(|| single(&pairs, None)),
        multi_value_query_string_parameters: (!pairs.is_empty()).then(|| multi(&pairs)),
        path_parameters: match resource {
            "/" => Value::Null,
            _ => json!({"proxy": path.trim_start_matches('/')}),
        },
        stage_variables: Value::Null,
        request_context,
        body: (!received.body.is_empty()).then_some(body),
        is_base64_encoded,
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Balancer {
    request_context: Value,
    http_method: String,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    query_string_parameters: Option<Single>,
    #[serde(skip_serializing_if = "Option::is_none")]
    multi_value_query_string_parameters: Option<Multi>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Single>,
    #[serde(skip_serializing_if = "Option::is_none")]
    multi_value_headers: Option<Multi>,
    body: String,
    is_base64_encoded: bool,
}

fn balancer(function: &EmulatedFunction, received: &ReceivedRequest, is_multi: bool) -> Balancer {
    let (path, query) = target(received);
    // A load balancer passes on what was sent and decodes nothing.
    let pairs = query_pairs(query, false);
    let headers = headers(received);
    let arn = format!(
        "arn:aws:elasticloadbalancing:{}:{}:targetgroup/emulated/0123456789abcdef",
        function.region, function.account
    );
    let (body, is_base64_encoded) = body(received);
    Balancer {
        request_context: json!({"elb": {"targetGroupArn": arn}}),
        http_method: received.parts.method.to_string(),
        path: path.to_string(),
        query_string_parameters: (!is_multi).then(|| single(&pairs, None)),
        multi_value_query_string_parameters: is_multi.then(|| multi(&pairs)),
        headers: (!is_multi).then(|| single(&headers, None)),
        multi_value_headers: is_multi.then(|| multi(&headers)),
        body,
        is_base64_encoded,
    }
}

/// Path and query as they were sent.
fn target(received: &ReceivedRequest) -> (&str, &str) {
    (
        received.parts.uri.path(),
        received.parts.uri.query().unwrap_or_default(),
    )
}

fn protocol(received: &ReceivedRequest) -> &'static str {
    match received.parts.version {
        http::Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    }
}

fn header_text(received: &ReceivedRequest, name: &str) -> Option<String> {
    let value = received.parts.headers.get(name)?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

fn query_pairs(query: &str, is_decoded: bool) -> Vec<(String, String)> {
    let decoded = |text: &str| -> String {
        if !is_decoded {
            return text.to_string();
        }
        let spaced: Cow<'_, str> = match text.contains('+') {
            true => text.replace('+', " ").into(),
            false => text.into(),
        };
        percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        })
        .collect()
}

/// The request's headers without those of the connection, plus those the service adds, with
/// lower-case names.
fn headers(received: &ReceivedRequest) -> Vec<(String, String)> {
    const OF_THE_CONNECTION: [&str; 6] = [
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "transfer-encoding",
        "upgrade",
    ];
    let sent: &HeaderMap = &received.parts.headers;
    let mut headers: Vec<(String, String)> = sent
        .iter()
        .filter(|(name, _)| !OF_THE_CONNECTION.contains(&name.as_str()))
        .filter(|(name, _)| !name.as_str().starts_with("x-forwarded-"))
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.to_string(), value)
        })
        .collect();
    let client = received.peer.ip().to_string();
    let forwarded = match header_text(received, "x-forwarded-for") {
        Some(before) => format!("{before}, {client}"),
        None => client,
    };
    headers.push(("x-forwarded-for".into(), forwarded));
    headers.push(("x-forwarded-port".into(), received.port.to_string()));
    headers.push(("x-forwarded-proto".into(), "http".into()));
    if !headers.iter().any(|(name, _)| name == "x-amzn-trace-id") {
        headers.push(("x-amzn-trace-id".into(), received.trace.clone()));
    }
    headers
}

/// `content-type` → `Content-Type`.
fn in_title_case(name: &str) -> String {
    let words = name.split('-').map(|word| {
        let mut letters = word.chars();
        let first = letters.next().map(|c| c.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    });
    words.collect::<Vec<_>>().join("-")
}

/// The body as text, or as base64 if its media type is not a text type.
fn body(received: &ReceivedRequest) -> (String, bool) {
    let kind = header_text(received, header::CONTENT_TYPE.as_str()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    const TEXT: [&str; 3] = [
        "application/json",
        "application/javascript",
        "application/xml",
    ];
    let is_text = kind.starts_with("text/") || TEXT.contains(&kind.as_str());
    let is_encoded = received
        .parts
        .headers
        .contains_key(header::CONTENT_ENCODING);
    match std::str::from_utf8(&received.body) {
        Ok(text) if (is_text && !is_encoded) || text.is_empty() => (text.to_string(), false),
        _ => {
            let engine = base64::engine::general_purpose::STANDARD;
            (engine.encode(&received.body), true)
        }
    }
}

/// The body as a REST API passes it on. Bytes that are not valid text are lost unless the API
/// treats the media type as binary.
fn rest_body(types: &BinaryMediaTypes, received: &ReceivedRequest) -> (String, bool) {
    match types.encode(&received.parts.headers) {
        true => {
            let engine = base64::engine::general_purpose::STANDARD;
            (engine.encode(&received.body), true)
        }
        false => (String::from_utf8_lossy(&received.body).into_owned(), false),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

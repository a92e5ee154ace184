//! Model of AWS's services: requests to events, and responses to what a client gets. From AWS's
//! documentation and captured events.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use serde_json::Value;
use surus::fronts::lambda::http_event::EventFormat;

/// A request as a client sends it.
#[derive(Debug, Clone)]
pub struct Sent {
    pub method: String,
    pub path: String,
    /// Raw names and values; equal names follow one another.
    pub query: Vec<(String, String)>,
    /// Names in lower case; equal names follow one another.
    pub headers: Vec<(String, String)>,
    pub cookies: Vec<String>,
    pub body: Vec<u8>,
    pub client: std::net::IpAddr,
    pub https: bool,
}

impl Sent {
    pub fn raw_query(&self) -> String {
        let pairs = self
            .query
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        pairs.collect::<Vec<_>>().join("&")
    }

    pub fn target(&self) -> String {
        match self.query.is_empty() {
            true => self.path.clone(),
            false => format!("{}?{}", self.path, self.raw_query()),
        }
    }
}

/// The service's event for a request.
pub fn event(format: EventFormat, sent: &Sent) -> String {
    let mut lines = sent.headers.clone();
    lines.push(("host".into(), "app.example".into()));
    lines.push((
        "x-forwarded-for".into(),
        format!("203.0.113.99, {}", sent.client),
    ));
    let proto = if sent.https { "https" } else { "http" };
    lines.push(("x-forwarded-proto".into(), proto.into()));
    let cookie = sent.cookies.join("; ");
    if !sent.cookies.is_empty() && format != EventFormat::HttpApiV2 {
        lines.push(("cookie".into(), cookie));
    }
    let method = quoted(&sent.method);
    let client = quoted(&sent.client.to_string());
    let decoded: Vec<_> = sent
        .query
        .iter()
        .map(|(name, value)| (decode_query(name), decode_query(value)))
        .collect();
    let (is_base64, body) = match std::str::from_utf8(&sent.body) {
        Ok(text) if !sent.body.contains(&0) => (false, quoted(text)),
        _ => (true, quoted(&STANDARD.encode(&sent.body))),
    };
    let body = if sent.body.is_empty() {
        "null".into()
    } else {
        body
    };
    let content = format!(r#""body":{body},"isBase64Encoded":{is_base64}"#);
    let path = quoted(&sent.path);
    match format {
        EventFormat::Rest | EventFormat::HttpApiV1 => {
            let (version, path) = match format {
                EventFormat::Rest => ("", path),
                _ => (r#""version":"1.0","#, quoted(&decode(&sent.path))),
            };
            format!(
                r#"{{
                    {version}
                    "resource": "/{{proxy+}}",
                    "path": {path},
                    "httpMethod": {method},
                    "headers": {},
                    "multiValueHeaders": {},
                    "queryStringParameters": {},
                    "multiValueQueryStringParameters": {},
                    "requestContext": {{
                        "stage": "$default",
                        "protocol": "HTTP/1.1",
                        "identity": {{"sourceIp": {client}}}
                    }},
                    {content}
                }}"#,
                last_of_each(&lines),
                lists(&lines),
                last_of_each(&decoded),
                lists(&decoded),
            )
        }
        EventFormat::HttpApiV2 | EventFormat::FunctionUrl => {
            let (domain, raw_path) = match format {
                EventFormat::FunctionUrl => ("abc.lambda-url.eu-west-1.on.aws", path),
                _ => (
                    "abc.execute-api.eu-west-1.amazonaws.com",
                    quoted(&decode(&sent.path)),
                ),
            };
            let cookies: Vec<_> = sent.cookies.iter().map(|cookie| quoted(cookie)).collect();
            format!(
                r#"{{
                    "version": "2.0",
                    "routeKey": "$default",
                    "rawPath": {raw_path},
                    "rawQueryString": {},
                    "cookies": [{}],
                    "headers": {},
                    "requestContext": {{
                        "domainName": "{domain}",
                        "stage": "$default",
                        "http": {{
                            "method": {method},
                            "path": {raw_path},
                            "protocol": "HTTP/1.1",
                            "sourceIp": {client}
                        }}
                    }},
                    {content}
                }}"#,
                quoted(&sent.raw_query()),
                cookies.join(","),
                joined(&lines),
            )
        }
        EventFormat::Alb { multi_value } => {
            let (headers, query) = match multi_value {
                true => (
                    format!(r#""multiValueHeaders":{}"#, lists(&lines)),
                    format!(
                        r#""multiValueQueryStringParameters":{}"#,
                        lists(&sent.query)
                    ),
                ),
                false => (
                    format!(r#""headers":{}"#, last_of_each(&lines)),
                    format!(r#""queryStringParameters":{}"#, last_of_each(&sent.query)),
                ),
            };
            format!(
                r#"{{
                    "requestContext": {{
                        "elb": {{"targetGroupArn": "arn:aws:elasticloadbalancing:x"}}
                    }},
                    "httpMethod": {method},
                    "path": {path},
                    {query},
                    {headers},
                    {content}
                }}"#
            )
        }
        EventFormat::LatticeV1 => format!(
            r#"{{
                "raw_path": {path},
                "method": {method},
                "headers": {},
                "query_string_parameters": {},
                "body": {body},
                "is_base64_encoded": {is_base64}
            }}"#,
            last_of_each(&lines),
            last_of_each(&sent.query),
        ),
        EventFormat::LatticeV2 => format!(
            r#"{{
                "version": "2.0",
                "path": {path},
                "method": {method},
                "headers": {},
                "queryStringParameters": {},
                "requestContext": {{
                    "serviceNetworkArn": "arn:aws:vpc-lattice:x",
                    "identity": {{"type": "AWS_IAM"}}
                }},
                {content}
            }}"#,
            lists(&lines),
            lists(&sent.query),
        ),
        EventFormat::WebSocket => format!(
            r#"{{
                "headers": {},
                "multiValueHeaders": {},
                "multiValueQueryStringParameters": {},
                "requestContext": {{
                    "routeKey": "$connect",
                    "eventType": "CONNECT",
                    "connectionId": "Zm9v=",
                    "identity": {{"sourceIp": {client}}}
                }},
                {content}
            }}"#,
            last_of_each(&lines),
            lists(&lines),
            lists(&decoded),
        ),
    }
}

/// A response as a client gets it.
#[derive(Debug, PartialEq, Eq)]
pub struct Got {
    pub status: u16,
    /// Ordered by name, without cookies.
    pub headers: Vec<(String, String)>,
    pub cookies: Vec<String>,
    pub body: Vec<u8>,
}

/// The service's response. Panics where the service would respond with 502.
pub fn response(answer: &[u8]) -> Got {
    let answer: Value = serde_json::from_slice(answer).unwrap();
    let body = answer["body"].as_str().unwrap();
    let body = match answer["isBase64Encoded"].as_bool().unwrap() {
        true => STANDARD.decode(body).unwrap(),
        false => body.into(),
    };
    head(&answer, body)
}

/// The response of a stream with a prelude.
pub fn streamed(stream: &[u8]) -> Got {
    let end = stream.windows(8).position(|bytes| bytes == [0; 8]).unwrap();
    let answer: Value = serde_json::from_slice(&stream[..end]).unwrap();
    head(&answer, stream[end + 8..].to_vec())
}

fn head(answer: &Value, body: Vec<u8>) -> Got {
    const KNOWN: [&str; 7] = [
        "statusCode",
        "statusDescription",
        "headers",
        "multiValueHeaders",
        "cookies",
        "body",
        "isBase64Encoded",
    ];
    let keys: Vec<_> = answer.as_object().unwrap().keys().collect();
    assert!(
        keys.iter().all(|key| KNOWN.contains(&key.as_str())),
        "{keys:?}"
    );
    let mut headers = Vec::new();
    for (name, value) in answer["headers"].as_object().into_iter().flatten() {
        headers.push((name.to_lowercase(), value.as_str().unwrap().to_string()));
    }
    for (name, values) in answer["multiValueHeaders"]
        .as_object()
        .into_iter()
        .flatten()
    {
        for value in values.as_array().unwrap() {
            headers.push((name.to_lowercase(), value.as_str().unwrap().to_string()));
        }
    }
    let (cookies, mut headers): (Vec<_>, Vec<_>) = headers
        .into_iter()
        .partition(|(name, _)| name == "set-cookie");
    headers.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut cookies: Vec<_> = cookies.into_iter().map(|(_, cookie)| cookie).collect();
    for cookie in answer["cookies"].as_array().into_iter().flatten() {
        cookies.push(cookie.as_str().unwrap().to_string());
    }
    Got {
        status: answer["statusCode"].as_u64().unwrap().try_into().unwrap(),
        headers,
        cookies,
        body,
    }
}

/// `{"name":"the last value"}`
fn last_of_each(pairs: &[(String, String)]) -> String {
    each(pairs, |values| quoted(values.last().unwrap()))
}

/// `{"name":["each value"]}`
fn lists(pairs: &[(String, String)]) -> String {
    each(pairs, |values| {
        let values: Vec<_> = values.iter().map(|value| quoted(value)).collect();
        format!("[{}]", values.join(","))
    })
}

/// `{"name":"each,value"}`
fn joined(pairs: &[(String, String)]) -> String {
    each(pairs, |values| quoted(&values.join(",")))
}

fn each(pairs: &[(String, String)], value: impl Fn(&[&str]) -> String) -> String {
    let mut json = String::new();
    for group in pairs.chunk_by(|(a, _), (b, _)| a == b) {
        let values: Vec<_> = group.iter().map(|(_, value)| value.as_str()).collect();
        let comma = if json.is_empty() { "" } else { "," };
        write!(json, "{comma}{}:{}", quoted(&group[0].0), value(&values)).unwrap();
    }
    format!("{{{json}}}")
}

pub fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

pub fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8().unwrap().into_owned()
}

/// As API Gateway and PHP decode queries.
pub fn decode_query(text: &str) -> String {
    decode(&text.replace('+', " "))
}

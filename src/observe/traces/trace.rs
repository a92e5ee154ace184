//! The trace of one request, from its arrival to the end of its response.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use http::{StatusCode, Version};

use super::Tracer;
use super::context::Context;
use super::otlp::{self, KeyValue, Span, Status, attribute};

/// The longest text of an attribute.
const MAX_TEXT: usize = 1024;

/// Parameters of URLs whose values are secrets, in lower case: those that OpenTelemetry's
/// conventions name, and what applications call theirs.
const SECRETS: [&str; 19] = [
    "_hash",
    "access_token",
    "api_key",
    "apikey",
    "awsaccesskeyid",
    "client_secret",
    "code",
    "id_token",
    "password",
    "refresh_token",
    "secret",
    "sig",
    "signature",
    "token",
    "x-amz-credential",
    "x-amz-security-token",
    "x-amz-signature",
    "x-goog-credential",
    "x-goog-signature",
];

/// A request as it is known when it arrives.
pub struct TracedRequest {
    pub began: Instant,
    pub method: String,
    pub path: String,
    pub query: Option<String>,
    pub is_https: bool,
    /// The host that the client has requested, with its port.
    pub host: Option<String>,
    pub client: Option<IpAddr>,
    pub version: Version,
    pub user_agent: Option<String>,
}

/// The times and the outcome, which become known later.
#[derive(Default)]
struct Later {
    /// The path of the rule, or of the script.
    route: Option<Arc<str>>,
    /// When the request began to wait for a worker, and for how long.
    queue: Option<(Instant, Duration)>,
    php_ended: Option<Instant>,
    responded: Option<Instant>,
    end: Option<(Instant, StatusCode, u64, &'static str)>,
}

/// A sampled request. It is exported when its last reference is dropped, because a worker may still
/// have work for it after its response.
pub struct Trace {
    tracer: Arc<Tracer>,
    began_at: SystemTime,
    trace: [u8; 16],
    parent: Option<[u8; 8]>,
    state: Option<String>,
    /// The ids of the spans of the request, the queue and the sending.
    spans: [[u8; 8]; 3],
    php: [u8; 8],
    request: Option<TracedRequest>,
    later: Mutex<Later>,
}

impl Trace {
    pub(super) fn begin(
        tracer: Arc<Tracer>,
        php: &Context,
        parent: Option<[u8; 8]>,
        state: Option<String>,
        spans: [[u8; 8]; 3],
        request: TracedRequest,
    ) -> Trace {
        Trace {
            tracer,
            began_at: SystemTime::now(),
            trace: php.trace,
            parent,
            state,
            spans,
            php: php.span,
            request: Some(request),
            later: Mutex::default(),
        }
    }

    fn later(&self) -> std::sync::MutexGuard<'_, Later> {
        self.later.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is known what answers the request.
    pub fn routed(&self, route: Arc<str>) {
        self.later().route = Some(route);
    }

    /// A worker has taken the request, which has waited from `since` on.
    pub fn waited(&self, since: Instant, waited: Duration) {
        self.later().queue = Some((since, waited));
    }

    /// The worker has finished with the request.
    pub fn php_ended(&self) {
        self.later().php_ended = Some(Instant::now());
    }

    /// The response begins.
    pub fn responded(&self) {
        self.later().responded = Some(Instant::now());
    }

    /// The response has ended.
    pub fn ended(&self, status: StatusCode, bytes: u64, engine: &'static str) {
        self.later().end = Some((Instant::now(), status, bytes, engine));
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let later = std::mem::take(&mut *self.later());
        let Some(request) = self.request.take() else {
            return;
        };
        self.tracer.clone().send(EndedTrace {
            began_at: self.began_at,
            trace: self.trace,
            parent: self.parent,
            state: self.state.take().unwrap_or_default(),
            spans: self.spans,
            php: self.php,
            request,
            later,
        });
    }
}

/// A trace that waits for its export.
pub struct EndedTrace {
    began_at: SystemTime,
    trace: [u8; 16],
    parent: Option<[u8; 8]>,
    state: String,
    spans: [[u8; 8]; 3],
    php: [u8; 8],
    request: TracedRequest,
    later: Later,
}

impl EndedTrace {
    /// How many spans it has.
    pub fn spans(&self) -> u64 {
        let Later {
            queue, responded, ..
        } = &self.later;
        1 + 2 * u64::from(queue.is_some()) + u64::from(responded.is_some())
    }

    /// Its spans, the request's first.
    pub fn to_spans(&self) -> Vec<Span> {
        let [own, queue, send] = self.spans;
        let (ended, status, bytes, engine) =
            self.later
                .end
                .unwrap_or((Instant::now(), StatusCode::INTERNAL_SERVER_ERROR, 0, ""));
        let mut all = vec![Span {
            parent_span_id: self.parent.map_or(Vec::new(), |parent| parent.to_vec()),
            name: self.name(),
            kind: otlp::SERVER,
            attributes: self.attributes(status, bytes, engine),
            status: status.is_server_error().then(|| Status {
                message: String::new(),
                code: otlp::ERROR,
            }),
            flags: 0x101 | u32::from(self.parent.is_some()) << 9,
            ..self.span(own, self.request.began, ended)
        }];
        let mut child = |id, name: &str, from, to| {
            all.push(Span {
                parent_span_id: own.to_vec(),
                name: name.into(),
                kind: otlp::INTERNAL,
                flags: 0x101,
                ..self.span(id, from, to)
            });
        };
        let responded = self.later.responded;
        if let Some((since, waited)) = self.later.queue {
            let taken = since + waited;
            child(queue, "queue", since, taken);
            let php_ended = self.later.php_ended.or(responded).unwrap_or(ended);
            child(self.php, "php", taken, php_ended);
        }
        if let Some(responded) = responded {
            child(send, "send", responded, ended);
        }
        all
    }

    /// Method and route, as in the conventions.
    fn name(&self) -> String {
        let method = match known(&self.request.method) {
            true => &self.request.method,
            false => "HTTP",
        };
        match &self.later.route {
            Some(route) => format!("{method} {}", cut(route)),
            None => method.into(),
        }
    }

    fn span(&self, id: [u8; 8], from: Instant, to: Instant) -> Span {
        let start = self.nanos(from);
        Span {
            trace_id: self.trace.to_vec(),
            span_id: id.to_vec(),
            trace_state: self.state.clone(),
            start_time_unix_nano: start,
            end_time_unix_nano: self.nanos(to).max(start),
            ..Span::default()
        }
    }

    /// The time since 1970 by a clock that does not jump within the request.
    fn nanos(&self, at: Instant) -> u64 {
        let began = self.began_at.duration_since(SystemTime::UNIX_EPOCH);
        let passed = at.saturating_duration_since(self.request.began);
        (began.unwrap_or_default() + passed).as_nanos() as u64
    }

    /// The stable conventions for HTTP servers.
    fn attributes(&self, status: StatusCode, bytes: u64, engine: &'static str) -> Vec<KeyValue> {
        let request = &self.request;
        let mut all = Vec::with_capacity(15);
        match known(&request.method) {
            true => all.push(attribute("http.request.method", request.method.as_str())),
            false => {
                all.push(attribute("http.request.method", "_OTHER"));
                let method = request.method.as_str();
                all.push(attribute("http.request.method_original", method));
            }
        }
        if let Some(route) = &self.later.route {
            all.push(attribute("http.route", cut(route)));
        }
        all.push(attribute("url.path", cut(&request.path)));
        if let Some(query) = &request.query {
            all.push(attribute("url.query", cut(&without_secrets(query))));
        }
        let scheme = if request.is_https { "https" } else { "http" };
        all.push(attribute("url.scheme", scheme));
        if let Some(host) = &request.host {
            let (name, port) = split(host);
            all.push(attribute("server.address", cut(name)));
            if let Some(port) = port {
                all.push(attribute("server.port", i64::from(port)));
            }
        }
        if let Some(client) = request.client {
            all.push(attribute("client.address", client.to_string()));
        }
        if let Some(agent) = &request.user_agent {
            all.push(attribute("user_agent.original", cut(agent)));
        }
        let version = match request.version {
            Version::HTTP_10 => "1.0",
            Version::HTTP_2 => "2",
            Version::HTTP_3 => "3",
            _ => "1.1",
        };
        all.push(attribute("network.protocol.version", version));
        let code = status.as_u16();
        all.push(attribute("http.response.status_code", i64::from(code)));
        all.push(attribute("http.response.body.size", bytes as i64));
        if status.is_server_error() {
            all.push(attribute("error.type", code.to_string()));
        }
        all.push(attribute("surus.engine", engine));
        all
    }
}

fn known(method: &str) -> bool {
    let names = [
        "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE",
    ];
    names.contains(&method)
}

/// The beginning of a text, so that long ones do not fill the memory while they wait.
pub fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn split(host: &str) -> (&str, Option<u16>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port.parse().ok()),
        _ => (host, None),
    }
}

fn is_secret(name: &str) -> bool {
    SECRETS
        .iter()
        .any(|secret| name.eq_ignore_ascii_case(secret))
}

fn without_secrets(query: &str) -> String {
    let hide = |pair: &str| match pair.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}=REDACTED"),
        _ => pair.to_string(),
    };
    query.split('&').map(hide).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_urls_are_left_out_and_hosts_are_split() {
        assert_eq!(
            without_secrets("a=1&sig=x&Signature=y&design=z&token&TOKEN=t"),
            "a=1&sig=REDACTED&Signature=REDACTED&design=z&token&TOKEN=REDACTED"
        );
        assert_eq!(split("a.test:81"), ("a.test", Some(81)));
        assert_eq!(split("[::1]"), ("[::1]", None));
        assert_eq!(split("[::1]:8"), ("[::1]", Some(8)));
        assert!(cut(&"ä".repeat(1000)).len() <= MAX_TEXT);
    }
}

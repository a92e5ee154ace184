//! The life of one request.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode, Version};
use http_body::{Frame, SizeHint};
use http_body_util::StreamBody;
use hyper::body::Incoming;
use tracing::{debug, error, warn};

use super::access::{AccessLog, Entry};
use super::body::{self, Refused};
use super::files::FileRange;
use super::io::Shared;
use super::placeholder::Placeholders;
use super::send_file::{self, SendFile};
use super::{Settings, compress, files, forwarded};
use crate::engine::Engine;
use crate::event::{EarlyHints, Event, Failure, Response, ResponseBody, Script};
use crate::fronts::site::route::{Action, Routes};
use crate::fronts::site::{Resolution, Site, normalise};
use crate::observe::metrics::Metrics;

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    pub client: Option<SocketAddr>,
    pub server: Option<SocketAddr>,
    /// It has said, in a way that we believe, that the client's own connection is encrypted.
    pub https: bool,
}

/// Answers requests.
pub struct Service {
    pub settings: Settings,
    pub compress: compress::Settings,
    /// Changes when a reload finds the project elsewhere.
    pub place: arc_swap::ArcSwap<Place>,
    pub routes: Routes,
    /// By name; routes choose among them.
    pub engines: BTreeMap<&'static str, Arc<dyn Engine>>,
    /// The one for requests that no route sends elsewhere.
    pub engine: &'static str,
    pub access_log: Option<AccessLog>,
    pub metrics: Arc<Metrics>,
    pub next_event: AtomicU64,
}

/// Where the application's files are.
pub struct Place {
    pub site: Arc<Site>,
    pub send_file: SendFile,
}

/// What answers a request without PHP, and why.
struct Refusal {
    status: StatusCode,
    why: &'static str,
}

const fn refuse(status: StatusCode, why: &'static str) -> Refusal {
    Refusal { status, why }
}

impl Service {
    /// Answers one request of a connection.
    pub async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: Peer,
        connection: Arc<Shared>,
    ) -> Result<http::Response<Outgoing>, Infallible> {
        connection.activity.request_begins(request.version());
        let mut end = End::new(self.clone(), connection.clone(), &request, peer);
        let version = request.version();
        let is_head = request.method() == Method::HEAD;
        // Nothing that follows on this connection is to be taken for a request.
        let mut is_last = false;
        let (engine, result) = self
            .respond(request, peer, &connection, end.event, &mut is_last)
            .await;
        end.engine = engine;
        let outcome;
        let mut response = match result {
            Ok(response) => {
                outcome = class(response.status());
                response
            }
            Err(Problem::Refused(refusal)) => {
                debug!(
                    event = end.event,
                    status = refusal.status.as_u16(),
                    why = refusal.why,
                    "refused"
                );
                outcome = class(refusal.status);
                is_last |= ends_connection(refusal.status);
                plain(refusal.status, refusal.why)
            }
            Err(Problem::Failed(failure)) => {
                outcome = failure_name(&failure);
                failed(&failure, end.event)
            }
        };
        strip_connection_headers(response.headers_mut());
        if !is_head {
            response = fit_length(response);
        }
        if version <= Version::HTTP_11
            && let Some(file) = response.extensions_mut().remove::<FileRange>()
        {
            *response.body_mut() = ResponseBody::stream(Placeholders::new(file, connection));
        }
        if is_last && version <= Version::HTTP_11 {
            response
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        self.metrics.answered(engine, outcome, end.began.elapsed());
        end.status = response.status();
        let (head, body) = response.into_parts();
        Ok(http::Response::from_parts(
            head,
            Outgoing {
                body,
                failure: None,
                end,
            },
        ))
    }

    /// Finds who answers and has it answered. The name says who did: an engine, or `static`.
    async fn respond(
        &self,
        request: Request<Incoming>,
        peer: Peer,
        connection: &Arc<Shared>,
        id: u64,
        is_last: &mut bool,
    ) -> (&'static str, Result<Response, Problem>) {
        let (mut head, incoming) = request.into_parts();
        let trusted = forwarded::is_trusted(peer, &self.settings.trusted_proxies);
        if let Err(refusal) = check(&mut head, &self.settings, trusted) {
            return (STATIC, Err(refusal.into()));
        }
        if head.method == Method::OPTIONS && head.uri.path() == "*" {
            return (STATIC, Ok(no_content()));
        }
        let (engine, script) = match self.find(&head) {
            Ok(Found::Script(engine, script)) => (engine, script),
            Ok(Found::Answer(response)) => return (STATIC, Ok(response)),
            Err(refusal) => return (STATIC, Err(refusal.into())),
        };
        let forwarded = forwarded::origin(peer, &head.headers, &self.settings.trusted_proxies);
        // Only a proxy may promise these, and it is us; applications take our word (Symfony's X-Sendfile support).
        for name in ["x-sendfile-type", "x-accel-mapping"] {
            head.headers.remove(name);
        }
        // RFC 9112, 3.2.2: an absolute target overrules Host.
        let named = head
            .uri
            .authority()
            .filter(|_| head.version == Version::HTTP_11);
        let named = named.and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
        if let Some(host) = forwarded.host.or(named) {
            head.headers.insert(header::HOST, host);
        }
        let limits = body::Limits {
            max: self.settings.max_body.0,
            idle: self.settings.body_timeout.0,
            spool: self.settings.spool.as_deref(),
        };
        let collected = match body::collect(incoming, limits).await {
            Ok(collected) => collected,
            Err(refused) => return (STATIC, Err(body_refused(refused).into())),
        };
        // hyper takes a bare LF where trailers end for a part of them, and then the next request for more of them.
        *is_last |= collected.trailers;
        // The time for PHP begins when PHP can begin.
        let deadline = Instant::now() + self.settings.timeout.0;
        let early_hints: Option<Arc<dyn EarlyHints>> = match head.version {
            Version::HTTP_11 => Some(connection.clone()),
            _ => None,
        };
        let method = head.method.clone();
        let asked = asked(&head.headers);
        let event = Event {
            id,
            request: Request::from_parts(head, collected.body),
            script,
            origin: forwarded.origin,
            deadline,
            early_hints,
        };
        let result = match self.engines.get(engine) {
            Some(engine) => engine.handle(event).await.map_err(Problem::Failed),
            None => Err(refuse(StatusCode::INTERNAL_SERVER_ERROR, "no such engine").into()),
        };
        let Ok(response) = result else {
            return (engine, result);
        };
        if send_file::is_asked(&response) {
            // As files go: what they are compressed to, lies beside them.
            let place = self.place.load();
            return (
                engine,
                Ok(place.send_file.replace(&method, &asked, response)),
            );
        }
        (
            engine,
            Ok(compress::compress(&self.compress, &method, &asked, response).await),
        )
    }

    /// Who answers this request?
    fn find(&self, head: &http::request::Parts) -> Result<Found, Refusal> {
        let path =
            normalise(head.uri.path()).map_err(|why| refuse(StatusCode::BAD_REQUEST, why))?;
        let mut engine = self.engine;
        let place = self.place.load();
        let mut site: &Site = &place.site;
        match self
            .routes
            .choose(&head.method, path.path(), &head.headers, head.uri.query())
        {
            Some(Action::Deny) => return Err(refuse(StatusCode::FORBIDDEN, "denied by a route")),
            Some(Action::Files(files)) => site = files,
            Some(Action::Engine(name)) => {
                engine = self
                    .engines
                    .keys()
                    .find(|key| *key == name)
                    .copied()
                    .unwrap_or(self.engine);
            }
            None => {}
        }
        match site.find(&path) {
            Resolution::Script(script) => Ok(Found::Script(engine, script)),
            Resolution::File(file) => {
                let name = file.path.clone();
                let sibling = |suffix: &str| site.sibling(&name, suffix);
                Ok(Found::Answer(files::answer(
                    file,
                    &head.method,
                    &head.headers,
                    sibling,
                )))
            }
            Resolution::Redirect(to) => Ok(Found::Answer(redirect(&to, head.uri.query()))),
            Resolution::NotFound => Err(refuse(StatusCode::NOT_FOUND, "no such file")),
            Resolution::Denied(why) => {
                warn!(path = path.path(), why, "not served");
                Err(refuse(StatusCode::FORBIDDEN, "not served"))
            }
            Resolution::Malformed(why) => Err(refuse(StatusCode::BAD_REQUEST, why)),
        }
    }
}

enum Found {
    Script(&'static str, Script),
    Answer(Response),
}

enum Problem {
    Refused(Refusal),
    Failed(Failure),
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        Problem::Refused(refusal)
    }
}

/// Who answers when no engine does.
const STATIC: &str = "static";

/// No registered method is half as long.
const MAX_METHOD: usize = 64;

/// Rules of RFC 9110, 9112 and 9113 that hyper leaves to us. Afterwards `Host` is who the request is for, whichever way that
/// was said.
fn check(
    head: &mut http::request::Parts,
    settings: &Settings,
    trusted: bool,
) -> Result<(), Refusal> {
    let bad = |why| Err(refuse(StatusCode::BAD_REQUEST, why));
    let target = head
        .uri
        .path_and_query()
        .map_or("", |target| target.as_str());
    if target.len() as u64 > settings.max_uri.0 {
        return Err(refuse(
            StatusCode::URI_TOO_LONG,
            "the request target is too long",
        ));
    }
    if head.method.as_str().len() > MAX_METHOD {
        return Err(refuse(StatusCode::NOT_IMPLEMENTED, "no such method"));
    }
    if head.method == Method::CONNECT {
        return Err(refuse(
            StatusCode::METHOD_NOT_ALLOWED,
            "this is not a proxy",
        ));
    }
    let is_server_wide = head.method == Method::OPTIONS && target == "*";
    if !target.starts_with('/') && !is_server_wide {
        return bad("the request target is not a path");
    }
    check_transfer_encoding(&head.headers)?;
    let mut hosts = head.headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return bad("more than one Host");
    }
    if host.is_some_and(|host| !is_host(host.as_bytes())) {
        return bad("an invalid Host");
    }
    match head.uri.authority() {
        Some(authority) => {
            if host.is_none() && head.version == Version::HTTP_11 {
                return bad("no Host");
            }
            if !is_host(authority.as_str().as_bytes()) {
                return bad("an invalid authority");
            }
            if head.version == Version::HTTP_2
                && host.is_some_and(|host| {
                    !host
                        .as_bytes()
                        .eq_ignore_ascii_case(authority.as_str().as_bytes())
                })
            {
                return bad("Host is not :authority");
            }
            match head.uri.scheme_str() {
                Some("http") => {}
                // RFC 9110, 7.4: only a gateway may say that an unencrypted request was once encrypted.
                Some("https") if trusted => {}
                Some("https") => {
                    return Err(refuse(
                        StatusCode::MISDIRECTED_REQUEST,
                        "this connection is not encrypted",
                    ));
                }
                _ => return bad("the request target is no http URI"),
            }
            // RFC 9112, 3.2.2: Host is ignored then.
            if let Ok(host) = HeaderValue::from_str(authority.as_str()) {
                head.headers.insert(header::HOST, host);
            }
        }
        None if host.is_none() && head.version != Version::HTTP_10 => return bad("no Host"),
        None => {}
    }
    Ok(())
}

/// hyper takes everything whose last word is `chunked` for chunked alone.
fn check_transfer_encoding(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut codings = headers
        .get_all(header::TRANSFER_ENCODING)
        .iter()
        .flat_map(|value| value.as_bytes().split(|c| *c == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|coding| !coding.is_empty());
    let mut chunked = 0;
    if !codings.all(|coding| {
        chunked += 1;
        coding.eq_ignore_ascii_case(b"chunked")
    }) {
        return Err(refuse(
            StatusCode::NOT_IMPLEMENTED,
            "the only known transfer coding is chunked",
        ));
    }
    match chunked {
        0 | 1 => Ok(()),
        _ => Err(refuse(StatusCode::BAD_REQUEST, "chunked more than once")),
    }
}

/// RFC 9110, 7.2: `uri-host [ ":" port ]`, and an empty one for targets without authority.
pub fn is_host(host: &[u8]) -> bool {
    let end = match host.first() {
        Some(b'[') => host.iter().position(|c| *c == b']').map_or(0, |at| at + 1),
        _ => memchr::memchr(b':', host).unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(end);
    let port_is_valid = match port.split_first() {
        None => true,
        Some((b':', [])) => true,
        Some((b':', digits)) => std::str::from_utf8(digits)
            .is_ok_and(|port| !port.starts_with('+') && port.parse::<u16>().is_ok()),
        Some(_) => false,
    };
    port_is_valid
        && match name {
            [b'[', address @ .., b']'] => std::str::from_utf8(address)
                .is_ok_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok()),
            name => is_reg_name(name),
        }
}

/// RFC 3986, 3.2.2.
fn is_reg_name(mut name: &[u8]) -> bool {
    loop {
        name = match name {
            [] => return true,
            [b'%', a, b, rest @ ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => rest,
            [c, rest @ ..] if c.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(c) => rest,
            _ => return false,
        }
    }
}

/// Was the request refused because we do not understand it, or do not want the rest of it? Then nobody knows where the next
/// one would begin.
fn ends_connection(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::REQUEST_TIMEOUT
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::URI_TOO_LONG
            | StatusCode::NOT_IMPLEMENTED
            | StatusCode::INSUFFICIENT_STORAGE
    )
}

fn no_content() -> Response {
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// The headers that decide how a response is sent, once the request itself is gone.
fn asked(headers: &HeaderMap) -> HeaderMap {
    const ASKED: [HeaderName; 7] = [
        header::ACCEPT_ENCODING,
        header::RANGE,
        header::IF_RANGE,
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        header::IF_MODIFIED_SINCE,
        header::IF_UNMODIFIED_SINCE,
    ];
    let mut asked = HeaderMap::new();
    for name in ASKED {
        for value in headers.get_all(&name) {
            asked.append(name.clone(), value.clone());
        }
    }
    asked
}

fn body_refused(refused: Refused) -> Refusal {
    match refused {
        Refused::TooLarge => refuse(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the body is larger than http.max_body",
        ),
        Refused::TooSlow => refuse(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time",
        ),
        Refused::Broken(error) => {
            debug!(error, "a request's body broke off");
            refuse(
                StatusCode::BAD_REQUEST,
                "the body is malformed or incomplete",
            )
        }
        Refused::NoRoom(error) => {
            error!(%error, "cannot keep a request's body (http.spool)");
            refuse(StatusCode::INSUFFICIENT_STORAGE, "no room for the body")
        }
    }
}

fn redirect(to: &str, query: Option<&str>) -> Response {
    let location = match query {
        Some(query) => format!("{to}?{query}"),
        None => to.to_string(),
    };
    let mut response = plain(StatusCode::MOVED_PERMANENTLY, "");
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// A short text for people; what went wrong in detail is in the log.
fn plain(status: StatusCode, why: &str) -> Response {
    let reason = status.canonical_reason().unwrap_or("Error");
    let text = match why {
        "" => format!("{} {reason}\n", status.as_u16()),
        why => format!("{} {reason}: {why}\n", status.as_u16()),
    };
    let mut response = Response::new(ResponseBody::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

fn failed(failure: &Failure, event: u64) -> Response {
    let status = match failure {
        Failure::Thrown(_) => StatusCode::INTERNAL_SERVER_ERROR,
        Failure::Died(_) | Failure::Malformed(_) => StatusCode::BAD_GATEWAY,
        Failure::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        Failure::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    warn!(event, status = status.as_u16(), %failure, "not answered");
    let mut response = plain(status, "");
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn failure_name(failure: &Failure) -> &'static str {
    match failure {
        Failure::Thrown(_) => "thrown",
        Failure::Died(_) => "died",
        Failure::TimedOut => "timed_out",
        Failure::Busy(_) => "busy",
        Failure::Malformed(_) => "malformed",
    }
}

fn class(status: StatusCode) -> &'static str {
    match status.as_u16() / 100 {
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    }
}

/// The connection is ours: what PHP says of it would contradict what we do.
fn strip_connection_headers(headers: &mut HeaderMap) {
    const OURS: [HeaderName; 4] = [
        header::CONNECTION,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        HeaderName::from_static("keep-alive"),
    ];
    for name in OURS {
        headers.remove(name);
    }
}

/// A body that is here as a whole and the Content-Length that PHP gave it may disagree. As behind nginx, the client gets no
/// more than was promised, and sees that an answer is not complete by the connection's end.
fn fit_length(mut response: Response) -> Response {
    if response.status() == StatusCode::NO_CONTENT {
        // RFC 9110, 8.6.
        response.headers_mut().remove(header::CONTENT_LENGTH);
        return response;
    }
    let ResponseBody::Full(body) = response.body_mut() else {
        return response;
    };
    let body = std::mem::take(body);
    let promised = response.headers().get(header::CONTENT_LENGTH);
    let promised = promised.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let length = body.len() as u64;
    let is_not_modified = response.status() == StatusCode::NOT_MODIFIED;
    *response.body_mut() = match promised {
        Some(promised) if promised < length => ResponseBody::Full(body.slice(..promised as usize)),
        Some(promised) if promised > length && !is_not_modified => {
            let failure = Failure::Malformed(format!(
                "{length} bytes instead of the {promised} of Content-Length"
            ));
            let frames = [Ok(Frame::data(body)), Err(failure)];
            ResponseBody::stream(StreamBody::new(futures_util::stream::iter(frames)))
        }
        Some(_) => ResponseBody::Full(body),
        None => {
            response.headers_mut().remove(header::CONTENT_LENGTH);
            ResponseBody::Full(body)
        }
    };
    response
}

/// A response's body on its way out, with what is to be done when it has ended.
pub struct Outgoing {
    body: ResponseBody,
    /// Why the body breaks off here.
    failure: Option<Failure>,
    end: End,
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        if let Some(failure) = self.failure.take() {
            return Poll::Ready(Some(Err(failure)));
        }
        match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => {
                self.end.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(failure)) => {
                warn!(event = self.end.event, %failure, "a response broke off");
                // hyper drops what it has not sent yet together with the connection. Asked again, it has sent it.
                self.failure = Some(failure);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.failure.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The end of a request, however it comes: dropped when hyper drops the response's body.
struct End {
    service: Arc<Service>,
    connection: Arc<Shared>,
    event: u64,
    began: Instant,
    engine: &'static str,
    status: StatusCode,
    bytes: u64,
    /// What the access log needs; none when it is off.
    line: Option<Box<Line>>,
}

struct Line {
    client: Option<SocketAddr>,
    method: Method,
    uri: http::Uri,
    version: Version,
    referer: Option<String>,
    user_agent: Option<String>,
}

impl End {
    fn new(
        service: Arc<Service>,
        connection: Arc<Shared>,
        request: &Request<Incoming>,
        peer: Peer,
    ) -> End {
        let text = |name| {
            request
                .headers()
                .get(name)
                .map(|value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let line = service.access_log.is_some().then(|| {
            let origin =
                forwarded::origin(peer, request.headers(), &service.settings.trusted_proxies)
                    .origin;
            Box::new(Line {
                client: origin.client,
                method: request.method().clone(),
                uri: request.uri().clone(),
                version: request.version(),
                referer: text(header::REFERER),
                user_agent: text(header::USER_AGENT),
            })
        });
        let event = service.next_event.fetch_add(1, Ordering::Relaxed);
        End {
            service,
            connection,
            event,
            began: Instant::now(),
            engine: STATIC,
            // 499 as nginx has it: the client left before there was a status.
            status: StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST),
            bytes: 0,
            line,
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.connection.activity.request_ends();
        if let (Some(log), Some(line)) = (&self.service.access_log, self.line.take()) {
            log.log(Entry {
                event: self.event,
                client: line.client.map(|client| client.ip()),
                method: line.method,
                uri: line.uri,
                version: line.version,
                status: self.status,
                bytes: self.bytes,
                took: self.began.elapsed(),
                engine: self.engine,
                referer: line.referer,
                user_agent: line.user_agent,
            });
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_and_perhaps_a_port() {
        for valid in [
            "",
            "a",
            "a:80",
            "a:",
            "192.0.2.1:80",
            "[::1]",
            "[::1]:80",
            "a_b.c",
            "a%2eb",
            "a,b",
        ] {
            assert!(is_host(valid.as_bytes()), "{valid}");
        }
        for invalid in [
            "a b", "a/b", "u@a", "a:b", "a:80:80", "a:+80", "a:99999", "[::1", "[::1]x", "[a]",
            "::1", "a%zz", "a%2", "a?b", "a#b", "a\\b", "\u{e9}", "[]",
        ] {
            assert!(!is_host(invalid.as_bytes()), "{invalid}");
        }
    }

    #[test]
    fn only_chunked_and_only_once() {
        let check = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::TRANSFER_ENCODING, value.parse().unwrap());
            }
            check_transfer_encoding(&headers)
                .map_err(|refusal| refusal.status.as_u16())
                .err()
        };
        assert_eq!(check(&[]), None);
        assert_eq!(check(&["Chunked"]), None);
        assert_eq!(check(&["gzip, chunked"]), Some(501));
        assert_eq!(check(&["identity", "chunked"]), Some(501));
        assert_eq!(check(&[", chunked"]), None);
        assert_eq!(check(&["chunked, chunked"]), Some(400));
        assert_eq!(check(&["chunked", "chunked"]), Some(400));
    }
}

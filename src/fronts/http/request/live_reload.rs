//! Live reload for `surus serve --watch`: adds a script to HTML pages, and tells it by
//! server-sent events when to load the page again.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::StreamBody;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tracing::info;

use crate::app::response::{OwnPage, plain};
use crate::app::static_files::FileRange;
use crate::event::{Failure, Response, ResponseBody};

/// Pages that listen at a time.
const MAX_LISTENERS: usize = 64;

/// How often a silent stream gets a comment, so that no proxy closes it as idle.
const HEARTBEAT: Duration = Duration::from_secs(15);

const EVENTS: &str = "/-/watch";
const SCRIPT: &str = "/-/watch.js";

/// Extends the policy of a page of Surus for the script.
const OWN_SOURCES: &str = "; script-src 'self'; connect-src 'self'";

/// What pages must know.
#[derive(Debug, Clone, Default)]
struct State {
    /// How often pages had to be loaded again.
    version: u64,
    /// The last boot has failed.
    has_failed: bool,
    /// Streams end.
    is_closed: bool,
}

/// The pages that listen, and the version that they should show.
pub struct LiveReload {
    /// Versions of another process differ.
    process: u128,
    state: watch::Sender<State>,
    places: Arc<Semaphore>,
    /// The log has the reason why a page has no script.
    is_reported: AtomicBool,
}

impl Default for LiveReload {
    fn default() -> LiveReload {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        LiveReload {
            process: now.unwrap_or_default().as_millis(),
            state: watch::Sender::default(),
            places: Arc::new(Semaphore::new(MAX_LISTENERS)),
            is_reported: AtomicBool::new(false),
        }
    }
}

impl LiveReload {
    /// Pages load again.
    pub fn changed(&self) {
        self.state.send_modify(|state| {
            state.version += 1;
            state.has_failed = false;
        });
    }

    /// The changed application cannot be booted; the consoles of browsers say so.
    fn failed(&self) {
        self.state.send_modify(|state| state.has_failed = true);
    }

    /// The application has booted again, or could not.
    pub fn tell(&self, has_booted: bool) {
        match has_booted {
            true => self.changed(),
            false => self.failed(),
        }
    }

    /// Ends all streams, for a shutdown.
    pub fn close(&self) {
        self.state.send_modify(|state| state.is_closed = true);
    }

    /// The answer to a request of the script or of a page.
    pub fn answer(&self, parts: &Parts) -> Option<Response> {
        let is_get = parts.method == Method::GET;
        match parts.uri.path() {
            EVENTS if is_get => Some(self.stream()),
            SCRIPT if is_get => {
                let script = Bytes::from_static(include_bytes!("live_reload.js"));
                Some(typed(script.into(), "text/javascript; charset=utf-8"))
            }
            _ => None,
        }
    }

    /// Whether a browser asks for a page. Then the response must be whole and not compressed, so
    /// that the script can be added.
    pub fn prepare(&self, parts: &mut Parts) -> bool {
        let is_page = parts.method == Method::GET && is_navigation(&parts.headers);
        if is_page {
            for name in CONDITIONS {
                parts.headers.remove(name);
            }
        }
        is_page
    }

    /// Adds the script to a page.
    pub fn extend(&self, mut response: Response) -> Response {
        if !is_html(&response) {
            return response;
        }
        let is_own = response.extensions_mut().remove::<OwnPage>().is_some();
        let headers = response.headers_mut();
        if is_own && let Some(policy) = headers.get_mut(header::CONTENT_SECURITY_POLICY) {
            let extended = [policy.as_bytes(), OWN_SOURCES.as_bytes()].concat();
            *policy = HeaderValue::from_bytes(&extended).unwrap_or_else(|_| policy.clone());
        }
        if let Some(why) = forbids(response.headers()) {
            if !self.is_reported.swap(true, Ordering::Relaxed) {
                info!(
                    reason = why,
                    "pages do not load again by themselves: their Content-Security-Policy \
                     forbids the script of --watch"
                );
            }
            return response;
        }
        let version = self.version(&self.state.borrow());
        let script = format!("\n<script src=\"{SCRIPT}\" data-version=\"{version}\"></script>\n");
        response.extensions_mut().remove::<FileRange>();
        let headers = response.headers_mut();
        for name in VALIDATORS {
            headers.remove(name);
        }
        if let Some(length) = headers.get(header::CONTENT_LENGTH) {
            let length = length
                .to_str()
                .ok()
                .and_then(|text| text.parse::<u64>().ok());
            match length {
                Some(length) => {
                    let length = length.saturating_add(script.len() as u64);
                    headers.insert(header::CONTENT_LENGTH, length.into());
                }
                None => {
                    headers.remove(header::CONTENT_LENGTH);
                }
            }
        }
        response.map(|body| match body {
            ResponseBody::Full(body) => ResponseBody::from([&body[..], script.as_bytes()].concat()),
            body => ResponseBody::stream(Extended {
                body,
                end: Some(script.into()),
            }),
        })
    }

    fn version(&self, state: &State) -> String {
        format!("{}-{}", self.process, state.version)
    }

    fn stream(&self) -> Response {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            let why = "too many pages listen for changes already; close some";
            return plain(StatusCode::SERVICE_UNAVAILABLE, why);
        };
        let mut state = self.state.subscribe();
        // The first event is the version of now.
        state.mark_changed();
        let listener = ReloadListener {
            process: self.process,
            state,
            _place: place,
        };
        let events = stream::unfold(listener, |mut listener| async {
            let event = listener.next().await?;
            Some((Ok(Frame::data(event)), listener))
        });
        typed(
            ResponseBody::stream(StreamBody::new(events)),
            "text/event-stream",
        )
    }
}

/// One open stream.
struct ReloadListener {
    process: u128,
    state: watch::Receiver<State>,
    _place: OwnedSemaphorePermit,
}

impl ReloadListener {
    async fn next(&mut self) -> Option<Bytes> {
        let Ok(changed) = tokio::time::timeout(HEARTBEAT, self.state.changed()).await else {
            return Some(Bytes::from_static(b":\n\n"));
        };
        changed.ok()?;
        let state = self.state.borrow_and_update().clone();
        let kind = match state {
            State {
                is_closed: true, ..
            } => return None,
            State {
                has_failed: true, ..
            } => "event: failed\n",
            _ => "retry: 1000\n",
        };
        Some(format!("{kind}data: {}-{}\n\n", self.process, state.version).into())
    }
}

fn typed(body: ResponseBody, kind: &'static str) -> Response {
    let mut response = Response::new(body);
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // nginx buffers a stream otherwise.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Request headers for which a response would not be whole, or compressed.
const CONDITIONS: [HeaderName; 8] = [
    header::ACCEPT_ENCODING,
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::IF_UNMODIFIED_SINCE,
    header::RANGE,
    HeaderName::from_static("available-dictionary"),
];

/// Response headers that are true of the page without the script alone.
const VALIDATORS: [HeaderName; 7] = [
    header::ACCEPT_RANGES,
    header::ETAG,
    header::LAST_MODIFIED,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("repr-digest"),
];

/// Whether a browser will show the response. Scripts that ask for parts of pages do not want more
/// than the part.
fn is_navigation(headers: &HeaderMap) -> bool {
    if let Some(destination) = headers.get("sec-fetch-dest") {
        return [&b"document"[..], b"iframe", b"frame"].contains(&destination.as_bytes());
    }
    let accepts = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok());
    accepts.is_some_and(|accept| accept.contains("text/html"))
        && !headers.contains_key("x-requested-with")
        && !headers.contains_key("hx-request")
        && !headers.contains_key("turbo-frame")
}

fn is_html(response: &Response) -> bool {
    let headers = response.headers();
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_html = kind.is_some_and(|kind| {
        let essence = kind.split(|byte| *byte == b';').next().unwrap_or_default();
        essence.trim_ascii().eq_ignore_ascii_case(b"text/html")
    });
    let status = response.status();
    is_html
        && !status.is_informational()
        && ![
            StatusCode::NO_CONTENT,
            StatusCode::NOT_MODIFIED,
            StatusCode::PARTIAL_CONTENT,
        ]
        .contains(&status)
        && !headers.contains_key(header::CONTENT_ENCODING)
        && !headers.contains_key(header::CONTENT_RANGE)
        && !headers.contains_key(header::CONTENT_DISPOSITION)
}

/// What a page's policy forbids, if it does not surely allow the script and its connection.
fn forbids(headers: &HeaderMap) -> Option<&'static str> {
    let values = headers.get_all(header::CONTENT_SECURITY_POLICY);
    for value in values {
        let Ok(value) = value.to_str() else {
            return Some("it is not text");
        };
        for policy in value.split(',') {
            let directives: Vec<Vec<String>> = policy
                .split(';')
                .map(|directive| {
                    let words = directive.split_ascii_whitespace();
                    words.map(str::to_ascii_lowercase).collect()
                })
                .collect();
            let sources = |names: &[&str]| {
                let named = |name: &&str| {
                    let mut found = directives.iter();
                    found.find(|words| words.first().is_some_and(|word| word == name))
                };
                names.iter().find_map(named)
            };
            let allows = |names: &[&str]| {
                sources(names).is_none_or(|words| {
                    let has = |source: &str| words.iter().any(|word| word == source);
                    (has("'self'") || has("*")) && !has("'strict-dynamic'")
                })
            };
            if !allows(&["script-src-elem", "script-src", "default-src"]) {
                return Some("script-src needs 'self'");
            }
            if !allows(&["connect-src", "default-src"]) {
                return Some("connect-src needs 'self'");
            }
            let sandbox = sources(&["sandbox"]);
            if sandbox.is_some_and(|words| !words.iter().any(|word| word == "allow-scripts")) {
                return Some("sandbox needs allow-scripts");
            }
        }
    }
    None
}

/// A body with something at its end. Nothing waits: each piece goes on as it comes.
struct Extended {
    body: ResponseBody,
    end: Option<Bytes>,
}

impl Body for Extended {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        if self.end.is_none() {
            return Poll::Ready(None);
        }
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(None) => Poll::Ready(self.end.take().map(|end| Ok(Frame::data(end)))),
            Poll::Ready(Some(Err(failure))) => {
                self.end = None;
                Poll::Ready(Some(Err(failure)))
            }
            other => other,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.end.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let more = self.end.as_ref().map_or(0, Bytes::len) as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + more);
        }
        hint.set_lower(hint.lower() + more);
        hint
    }
}

#[cfg(test)]
#[path = "live_reload/tests.rs"]
mod tests;

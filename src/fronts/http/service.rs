//! The life of one request.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode, Version};
use hyper::body::Incoming;
use tracing::{debug, error, warn};

use super::access::AccessLog;
use super::body::{self, Refused};
use super::check::{Refusal, check, ends_connection, refuse};
use super::files::FileRange;
use super::io::Shared;
use super::outgoing::{End, Outgoing};
use super::placeholder::Placeholders;
use super::reply::{
    class, failed, failure_name, fit_length, no_content, plain, redirect, strip_connection_headers,
};
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
            .respond(
                request,
                peer,
                &connection,
                end.event,
                end.began,
                &mut is_last,
            )
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
        Ok(http::Response::from_parts(head, Outgoing::new(body, end)))
    }

    /// Finds who answers and has it answered. The name says who did: an engine, or `static`.
    async fn respond(
        &self,
        request: Request<Incoming>,
        peer: Peer,
        connection: &Arc<Shared>,
        id: u64,
        began: Instant,
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
        let (engine, script) = match self.find(&head, began) {
            Ok(Found::Script(engine, script)) => (engine, script),
            Ok(Found::Answer(response)) => return (STATIC, Ok(response)),
            Err(refusal) => return (STATIC, Err(refusal.into())),
        };
        let forwarded = forwarded::origin(peer, &head.headers, &self.settings.trusted_proxies);
        if head.headers.keys().any(|name| PROMISES.contains(name)) {
            for name in &PROMISES {
                head.headers.remove(name);
            }
        }
        if let Some(host) = forwarded.host {
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
    fn find(&self, head: &http::request::Parts, now: Instant) -> Result<Found, Refusal> {
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
        match site.find(&path, now) {
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
pub const STATIC: &str = "static";

/// Promises of a proxy to send files for the application. Only we may make them (Symfony's X-Sendfile support).
static PROMISES: [HeaderName; 2] = [
    HeaderName::from_static("x-sendfile-type"),
    HeaderName::from_static("x-accel-mapping"),
];

/// The headers that decide how a response is sent, once the request itself is gone.
fn asked(headers: &HeaderMap) -> HeaderMap {
    static ASKED: [HeaderName; 7] = [
        header::ACCEPT_ENCODING,
        header::RANGE,
        header::IF_RANGE,
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        header::IF_MODIFIED_SINCE,
        header::IF_UNMODIFIED_SINCE,
    ];
    let mut asked = HeaderMap::new();
    for (name, value) in headers {
        if ASKED.contains(name) {
            asked.append(name, value.clone());
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

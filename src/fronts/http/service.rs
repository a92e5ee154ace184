//! The life of one request.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
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
use crate::engine::{Engine, Pending};
use crate::event::{Address, Body, EarlyHints, Event, Failure, Response, ResponseBody, Script};
use crate::fronts::site::route::{Action, Routes};
use crate::fronts::site::{Resolution, Site, normalise};
use crate::observe::metrics::Metrics;

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    pub client: Option<Address>,
    pub server: Option<Address>,
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
    pub fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: &Peer,
        connection: Arc<Shared>,
    ) -> impl Future<Output = Result<http::Response<Outgoing>, Infallible>> + use<> {
        connection.activity.request_begins(request.version());
        let mut end = End::new(self.clone(), connection.clone(), &request, peer);
        let version = request.version();
        let is_head = request.method() == Method::HEAD;
        // What needs no waiting is done before there is a future that it would make larger.
        let begun = self.begin(request, peer, &connection, &end);
        async move {
            // Nothing that follows on this connection is to be taken for a request.
            let mut is_last = false;
            let mut answered_by = STATIC;
            let result = match begun {
                Begun::Answer(response) => Ok(response),
                Begun::Refusal(refusal) => Err(refusal.into()),
                Begun::Event {
                    engine,
                    asked,
                    mut event,
                    body,
                } => {
                    let arrived = match body {
                        Some(body) => self.take_in(body, &mut event, &mut is_last).await,
                        None => Ok(()),
                    };
                    match arrived.and_then(|()| self.hand_over(engine, event)) {
                        Ok(pending) => {
                            answered_by = engine;
                            match pending.await {
                                Ok(response) => Ok(self.shape(&asked, response).await),
                                Err(failure) => Err(Problem::Failed(failure)),
                            }
                        }
                        Err(refusal) => Err(refusal.into()),
                    }
                }
            };
            end.engine = answered_by;
            let (outcome, mut response) = match result {
                Ok(response) => (class(response.status()), response),
                Err(problem) => problem.answer(end.event, &mut is_last),
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
            self.metrics
                .answered(answered_by, outcome, end.began.elapsed());
            end.status = response.status();
            Ok(response.map(|body| Outgoing::new(body, end)))
        }
    }

    /// Finds out who answers, and whether that can begin.
    fn begin(
        self: &Arc<Self>,
        request: Request<Incoming>,
        peer: &Peer,
        connection: &Arc<Shared>,
        end: &End,
    ) -> Begun {
        let (mut head, incoming) = request.into_parts();
        let trusted = forwarded::is_trusted(peer, &self.settings.trusted_proxies);
        if let Err(refusal) = check(&mut head, &self.settings, trusted) {
            return Begun::Refusal(refusal);
        }
        if head.method == Method::OPTIONS && head.uri.path() == "*" {
            return Begun::Answer(no_content());
        }
        let (engine, script) = match self.find(&head, end.began) {
            Ok(Found::Script(engine, script)) => (engine, script),
            Ok(Found::Answer(response)) => return Begun::Answer(response),
            Err(refusal) => return Begun::Refusal(refusal),
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
        let early_hints: Option<Arc<dyn EarlyHints>> = match head.version {
            Version::HTTP_11 => Some(connection.clone()),
            _ => None,
        };
        let asked = Asked {
            method: head.method.clone(),
            headers: asked(&head.headers),
        };
        let event = Event {
            id: end.event,
            request: Request::from_parts(head, Body::Empty),
            script,
            origin: forwarded.origin,
            variables: Vec::new(),
            deadline: end.began + self.settings.timeout.0,
            patience: Some(self.settings.timeout.0),
            hold: None,
            early_hints,
        };
        Begun::Event {
            engine,
            asked,
            event: Box::new(event),
            body: (!incoming.is_end_stream()).then_some(incoming),
        }
    }

    /// Takes the event's body in.
    async fn take_in(
        &self,
        body: Incoming,
        event: &mut Event,
        is_last: &mut bool,
    ) -> Result<(), Refusal> {
        let limits = body::Limits {
            max: self.settings.max_body.0,
            idle: self.settings.body_timeout.0,
            spool: self.settings.spool.as_deref(),
        };
        // Boxed, because it is large and most requests have no body.
        let collected = Box::pin(body::collect(body, limits))
            .await
            .map_err(body_refused)?;
        // hyper takes a bare LF where trailers end for a part of them, and then the next request for more of them.
        *is_last |= collected.trailers;
        *event.request.body_mut() = collected.body;
        // The time for PHP begins when PHP can begin.
        event.deadline = Instant::now() + self.settings.timeout.0;
        Ok(())
    }

    fn hand_over(
        &self,
        engine: &'static str,
        event: Box<Event>,
    ) -> Result<Pending<'_, Result<Response, Failure>>, Refusal> {
        match self.engines.get(engine) {
            Some(engine) => Ok(engine.handle(event)),
            None => Err(refuse(StatusCode::INTERNAL_SERVER_ERROR, "no such engine")),
        }
    }

    /// Makes of an engine's response what the client has asked for.
    async fn shape(&self, asked: &Asked, response: Response) -> Response {
        if send_file::is_asked(&response) {
            // As files go: what they are compressed to, lies beside them.
            let place = self.place.load();
            return place
                .send_file
                .replace(&asked.method, &asked.headers, response);
        }
        if compress::is_wanted(&self.compress, &asked.method, &response) {
            // Boxed, because it is large.
            return Box::pin(compress::compress(&asked.headers, response)).await;
        }
        response
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

impl Problem {
    /// How metrics name it, and what the client hears of it.
    fn answer(&self, event: u64, is_last: &mut bool) -> (&'static str, Response) {
        match self {
            Problem::Refused(refusal) => {
                debug!(
                    event,
                    status = refusal.status.as_u16(),
                    why = refusal.why,
                    "refused"
                );
                *is_last |= ends_connection(refusal.status);
                (class(refusal.status), plain(refusal.status, refusal.why))
            }
            Problem::Failed(failure) => (failure_name(failure), failed(failure, event)),
        }
    }
}

/// What has become of a request before anything has to be waited for.
enum Begun {
    Event {
        engine: &'static str,
        asked: Asked,
        event: Box<Event>,
        /// What has yet to arrive; none for most requests.
        body: Option<Incoming>,
    },
    Answer(Response),
    Refusal(Refusal),
}

/// What of a request decides how its response is sent, once the request itself is gone.
struct Asked {
    method: Method,
    headers: HeaderMap,
}

/// Who answers when no engine does.
pub const STATIC: &str = "static";

/// Promises of a proxy to send files for the application. Only we may make them (Symfony's X-Sendfile support).
static PROMISES: [HeaderName; 2] = [
    HeaderName::from_static("x-sendfile-type"),
    HeaderName::from_static("x-accel-mapping"),
];

/// The headers that [`Asked`] keeps.
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

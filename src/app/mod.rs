//! Answers requests for every front end: with a file, a script's response, or a rejection.

pub mod compression;
pub mod detect;
mod entity_tag;
pub mod forwarded;
pub(crate) mod response;
pub mod site;
pub mod static_files;
pub(crate) mod validate;
pub mod x_sendfile;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use http::header::{self, HeaderMap, HeaderName};
use http::{Method, StatusCode, Version};
use tracing::{debug, warn};

use self::response::{fit_length, plain, redirect, redirect_to, strip_connection_headers};
use self::site::routes::{Action, Routes};
use self::site::{Facts, Resolution, Site, normalize};
use self::validate::{RequestRejection, check_relayed, reject};
use self::x_sendfile::SendFile;
use crate::engine::{Engine, Pending};
use crate::event::{Event, Failure, Origin, Response, Script};
use crate::observe::metrics::Metrics;

/// An application: its files, and the engines that run its scripts.
pub struct Application {
    pub compress: compression::Settings,
    /// Replaced by a reload if the project's path leads elsewhere.
    pub tree: arc_swap::ArcSwap<DocumentTree>,
    /// By name; routes select among them.
    pub engines: BTreeMap<&'static str, Arc<dyn Engine>>,
    /// The engine for requests for which no route names another.
    pub engine: &'static str,
    pub metrics: Arc<Metrics>,
}

/// Where the application's files are.
pub struct DocumentTree {
    pub site: Arc<Site>,
    /// The same directory with another front controller, for pools that name one.
    pub fronts: BTreeMap<String, Arc<Site>>,
    pub send_file: SendFile,
    pub routes: Routes,
}

/// How a request is answered, as far as that is known without waiting.
pub enum Dispatch {
    Event {
        engine: &'static str,
        preferences: ResponsePreferences,
        event: Box<Event>,
    },
    Answer(Response),
    Rejected(RequestRejection),
}

impl Application {
    /// Answers a request that has been received as a whole. `event` makes an event of its head and
    /// script, as for [`begin`](Self::begin).
    pub async fn answer(
        &self,
        head: http::request::Parts,
        origin: Origin,
        event: impl FnOnce(http::request::Parts, Script) -> Event,
    ) -> Result<Response, Failure> {
        let is_head = head.method == Method::HEAD;
        let dispatch = match check_relayed(&head) {
            Ok(()) => self.begin(head, Instant::now(), |_| origin.clone(), event),
            Err(rejection) => Dispatch::Rejected(rejection),
        };
        let answer = match dispatch {
            Dispatch::Answer(response) => Ok(response),
            Dispatch::Rejected(rejection) => Err(rejection),
            Dispatch::Event {
                engine,
                preferences,
                event,
            } => match self.dispatch(engine, event) {
                Ok(pending) => Ok(self.finalize(&preferences, pending.await?).await),
                Err(rejection) => Err(rejection),
            },
        };
        let response = answer.unwrap_or_else(|rejection| {
            let status = rejection.status.as_u16();
            debug!(status, why = rejection.why, "rejected");
            plain(rejection.status, rejection.why)
        });
        Ok(fit(response, is_head))
    }

    /// Determines what answers, and whether that can begin. `event` makes an event of the request's
    /// head and the script; `origin` determines the client for rules that need it.
    pub fn begin(
        &self,
        mut head: http::request::Parts,
        now: Instant,
        origin: impl Fn(&HeaderMap) -> Origin,
        event: impl FnOnce(http::request::Parts, Script) -> Event,
    ) -> Dispatch {
        let (engine, script, compress) = match self.find(&head, now, &|| origin(&head.headers)) {
            Ok(Found::Script(engine, script, compress)) => (engine, script, compress),
            Ok(Found::Answer(response)) => return Dispatch::Answer(response),
            Err(rejection) => return Dispatch::Rejected(rejection),
        };
        if head
            .headers
            .keys()
            .any(|name| SPOOFABLE_HEADERS.contains(name))
        {
            for name in &SPOOFABLE_HEADERS {
                head.headers.remove(name);
            }
        }
        let preferences = ResponsePreferences {
            method: head.method.clone(),
            headers: preferences(&head.headers),
            compress,
        };
        entity_tag::unmark(&mut head.headers);
        Dispatch::Event {
            engine,
            preferences,
            event: Box::new(event(head, script)),
        }
    }

    pub fn dispatch(
        &self,
        engine: &'static str,
        event: Box<Event>,
    ) -> Result<Pending<'_, Result<Response, Failure>>, RequestRejection> {
        match self.engines.get(engine) {
            Some(engine) => Ok(engine.handle(event)),
            None => Err(reject(StatusCode::INTERNAL_SERVER_ERROR, "no such engine")),
        }
    }

    /// Adapts an engine's response to what the client has asked for.
    pub async fn finalize(
        &self,
        preferences: &ResponsePreferences,
        mut response: Response,
    ) -> Response {
        entity_tag::mark_as_asked(&preferences.headers, &mut response);
        if x_sendfile::is_asked(&response) {
            // Like static files, which are compressed only if a compressed sibling exists.
            let tree = self.tree.load();
            return tree
                .send_file
                .replace(&preferences.method, &preferences.headers, response);
        }
        if preferences.compress
            && compression::is_wanted(&self.compress, &preferences.method, &response)
        {
            // Boxed, because it is large.
            return Box::pin(compression::compress(&preferences.headers, response)).await;
        }
        response
    }

    /// Determines what answers this request.
    fn find(
        &self,
        head: &http::request::Parts,
        now: Instant,
        origin: &dyn Fn() -> Origin,
    ) -> Result<Found, RequestRejection> {
        let path =
            normalize(head.uri.path()).map_err(|why| reject(StatusCode::BAD_REQUEST, why))?;
        let mut engine = self.engine;
        let tree = self.tree.load();
        let mut site: &Site = &tree.site;
        let choice = tree
            .routes
            .choose(&head.method, path.path(), &head.headers, head.uri.query());
        let compress = choice.compress.unwrap_or(self.compress.enabled);
        match choice.action {
            Some(Action::Deny) => return Err(reject(StatusCode::FORBIDDEN, "denied by a route")),
            Some(Action::Files(files)) => site = files,
            Some(Action::Engine(name)) => {
                site = tree.fronts.get(name).map_or(site, |own| own);
                engine = self
                    .engines
                    .keys()
                    .find(|key| *key == name)
                    .copied()
                    .unwrap_or(self.engine);
            }
            None => {}
        }
        // HTTP/2 names the host in every request, which is no part of the line that rules see.
        let is_absolute = head.uri.scheme().is_some() && head.version < Version::HTTP_2;
        let whole = is_absolute.then(|| head.uri.to_string());
        let target = head.uri.path_and_query();
        let facts = Facts {
            method: &head.method,
            target: whole
                .as_deref()
                .unwrap_or_else(|| target.map_or("/", |target| target.as_str())),
            query: head.uri.query(),
            version: head.version,
            headers: &head.headers,
            origin,
        };
        match site.find_for(&facts, &path, now) {
            Resolution::Script(script) => Ok(Found::Script(engine, script, compress)),
            Resolution::File(file) if tree.site.is_secret(&file) => {
                Err(reject(StatusCode::NOT_FOUND, "no such file"))
            }
            Resolution::File(file) => {
                let name = file.path.clone();
                let sibling = |suffix: &str| site.sibling(&name, suffix);
                Ok(Found::Answer(static_files::answer(
                    file,
                    &head.method,
                    &head.headers,
                    sibling,
                )))
            }
            Resolution::Redirect(to) => Ok(Found::Answer(redirect(&to, head.uri.query()))),
            Resolution::RedirectTo(status, to) => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::FOUND);
                Ok(Found::Answer(redirect_to(status, &to)))
            }
            Resolution::Status(status, why) => {
                let status = StatusCode::from_u16(status);
                let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                debug!(path = path.path(), %status, why, "answered by an .htaccess file");
                Err(reject(status, ""))
            }
            Resolution::NotFound => Err(reject(StatusCode::NOT_FOUND, "no such file")),
            Resolution::Denied(denial) => {
                warn!(path = path.path(), why = denial.why(), "not served");
                Err(reject(StatusCode::FORBIDDEN, "not served"))
            }
            Resolution::Malformed(why) => Err(reject(StatusCode::BAD_REQUEST, why)),
            Resolution::Failed(trouble) => Err(trouble.into()),
        }
    }
}

/// Makes a response valid, whatever PHP has set for its connection and length.
pub fn fit(mut response: Response, is_head: bool) -> Response {
    strip_connection_headers(response.headers_mut());
    match is_head {
        true => response,
        false => fit_length(response),
    }
}

enum Found {
    /// The engine, the script, and whether to compress the script's responses.
    Script(&'static str, Script, bool),
    Answer(Response),
}

/// What is kept of a request to decide how its response is sent.
pub struct ResponsePreferences {
    method: Method,
    headers: HeaderMap,
    /// Whether the configuration allows compression.
    compress: bool,
}

/// The engine's name in metrics and logs for responses without PHP.
pub const STATIC: &str = "static";

/// Headers with which a proxy announces that it sends files for the application. Only Surus may set
/// them (Symfony's X-Sendfile support).
static SPOOFABLE_HEADERS: [HeaderName; 2] = [
    HeaderName::from_static("x-sendfile-type"),
    HeaderName::from_static("x-accel-mapping"),
];

/// The headers that [`ResponsePreferences`] keeps.
fn preferences(headers: &HeaderMap) -> HeaderMap {
    static PREFERENCES: [HeaderName; 7] = [
        header::ACCEPT_ENCODING,
        header::RANGE,
        header::IF_RANGE,
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        header::IF_MODIFIED_SINCE,
        header::IF_UNMODIFIED_SINCE,
    ];
    let mut preferences = HeaderMap::new();
    for (name, value) in headers {
        if PREFERENCES.contains(name) {
            preferences.append(name, value.clone());
        }
    }
    preferences
}

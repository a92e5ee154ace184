//! Answers requests for every front end: with a file, a script's response, or a rejection.

pub mod by_host;
pub mod compression;
pub mod detect;
mod entity_tag;
pub mod error_pages;
pub mod forwarded;
pub mod host;
pub(crate) mod response;
pub(crate) mod retry_after;
pub mod site;
pub mod slow_request;
pub mod static_files;
pub(crate) mod validate;
pub mod watch;
pub mod x_sendfile;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use http::header::{self, HeaderMap, HeaderName};
use http::{Method, StatusCode, Uri, Version};
use tracing::{debug, warn};

use self::compression::dav_scripts::DavScripts;
use self::error_pages::{ErrorPages, ErrorView};
use self::forwarded::Peer;
use self::response::{fit_length, plain, redirect, redirect_to, strip_headers};
use self::site::routes::{Action, Choice, HeaderChanges, RequestFacts, Routes};
use self::site::{Later, NormalizedPath, Pace, Resolution, Site, normalize};
use self::slow_request::{Look, SlowRequest, look_up};
use self::validate::{RequestRejection, check_relayed, reject};
use self::x_sendfile::SendFile;
use crate::engine::{Engine, Pending};
use crate::event::{Event, Failure, Origin, Response, Script};
use crate::observe::metrics::Metrics;

/// An application: its files, and the engines that run its scripts.
pub struct Application {
    pub compress: compression::Settings,
    pub dav_scripts: DavScripts,
    /// Replaced by a reload if the project's path leads elsewhere.
    pub tree: arc_swap::ArcSwap<DocumentTree>,
    /// By name; routes select among them.
    pub engines: BTreeMap<&'static str, Arc<dyn Engine>>,
    /// The engine for requests for which no route names another.
    pub engine: &'static str,
    /// The engine for other scripts than the front controller, if `engine` runs only that.
    pub others: Option<&'static str>,
    /// What the names of the engines begin with before the names in routes: a site's name and a
    /// slash, or nothing.
    pub prefix: &'static str,
    pub metrics: Arc<Metrics>,
}

/// Where the application's files are.
pub struct DocumentTree {
    pub site: Arc<Site>,
    /// The same directory with another front controller, for pools that name one.
    pub pool_sites: BTreeMap<String, Arc<Site>>,
    pub send_file: SendFile,
    pub routes: Routes,
    /// The directory of error pages, if one is configured.
    pub error_site: Option<Site>,
    /// None until they are read.
    pub error_pages: ErrorPages,
}

impl DocumentTree {
    /// Reads the error pages.
    pub fn read_error_pages(
        &mut self,
        settings: &error_pages::Settings,
        displays_errors: bool,
        reads_source: bool,
    ) {
        let directory = self.error_site.as_ref();
        self.error_pages = ErrorPages::read(
            settings,
            &self.site,
            directory,
            displays_errors,
            reads_source,
        );
    }
}

/// How a request is answered, as far as that is known without waiting.
pub struct Routed {
    pub dispatch: Dispatch,
    /// What rules do to the response, whatever it is.
    pub headers: HeaderChanges,
    /// The path of the rule that decides, or the URL path of the script.
    pub route: Option<Arc<str>>,
}

impl From<Dispatch> for Routed {
    fn from(dispatch: Dispatch) -> Routed {
        Routed {
            dispatch,
            headers: HeaderChanges::default(),
            route: None,
        }
    }
}

pub enum Dispatch {
    Event {
        engine: &'static str,
        preferences: ResponsePreferences,
        event: Box<Event>,
        /// Whether PHP begins before the body has arrived; none if no rule says so.
        streams_body: Option<bool>,
    },
    Answer(Response),
    Rejected(RequestRejection),
}

impl Application {
    /// Answers a request that has been received as a whole. `event` makes an event of its parts and
    /// script, as for [`begin`](Self::begin).
    pub async fn answer(
        &self,
        parts: http::request::Parts,
        origin: Origin,
        event: impl FnOnce(http::request::Parts, Script) -> Event,
    ) -> Result<Response, Failure> {
        let is_head = parts.method == Method::HEAD;
        let view = self.view(&parts.uri, &parts.headers, &origin.clone().into());
        let Routed {
            dispatch, headers, ..
        } = match check_relayed(&parts) {
            Ok(()) => self.begin_in_turn(parts, |_| origin.clone(), event).await,
            Err(rejection) => Dispatch::Rejected(rejection).into(),
        };
        let answer = match dispatch {
            Dispatch::Answer(response) => Ok(response),
            Dispatch::Rejected(rejection) => Err(rejection),
            Dispatch::Event {
                engine,
                preferences,
                event,
                streams_body: _,
            } => match self.dispatch(engine, event) {
                Ok(pending) => Ok(self.finalize(&preferences, view, pending.await?).await),
                Err(rejection) => Err(rejection),
            },
        };
        let mut response = answer.unwrap_or_else(|rejection| {
            let status = rejection.status.as_u16();
            debug!(status, reason = rejection.why, "rejected");
            plain(rejection.status, rejection.why)
        });
        response = self.apply_error_page(view, response);
        headers.apply(response.headers_mut());
        Ok(fit(response, is_head))
    }

    /// What the client of a request sees if it fails.
    pub fn view(&self, target: &Uri, headers: &HeaderMap, peer: &Peer) -> ErrorView {
        self.tree.load().error_pages.view(target, headers, peer)
    }

    /// Gives a failed request the page that its client sees.
    pub fn apply_error_page(&self, view: ErrorView, response: Response) -> Response {
        match view {
            ErrorView::Text => response,
            view => self.tree.load().error_pages.apply(view, response),
        }
    }

    /// Like [`begin`](Self::begin), but waits for a look-up that takes long.
    async fn begin_in_turn(
        &self,
        mut parts: http::request::Parts,
        origin: impl Fn(&HeaderMap) -> Origin,
        mut event: impl FnOnce(http::request::Parts, Script) -> Event,
    ) -> Routed {
        let mut found = None;
        loop {
            let now = Instant::now();
            let slow = match self.begin(parts, Look { now, found }, &origin, event) {
                Ok(routed) => return routed,
                Err((slow, again)) => {
                    event = again;
                    slow.find().await
                }
            };
            (parts, found) = match slow {
                Ok((parts, slowly)) => (parts, Some(slowly)),
                Err(rejection) => return Dispatch::Rejected(rejection).into(),
            };
        }
    }

    /// Determines what answers, and whether that can begin. `event` makes an event of the request's
    /// parts and the script; `origin` determines the client for rules that need it. `Host` is the
    /// one that the client has requested. The error is for a look-up that takes long.
    pub fn begin<E>(
        &self,
        parts: http::request::Parts,
        look: Look,
        origin: impl Fn(&HeaderMap) -> Origin,
        event: E,
    ) -> Result<Routed, (Box<SlowRequest>, E)>
    where
        E: FnOnce(http::request::Parts, Script) -> Event,
    {
        let path = match normalize(parts.uri.path()) {
            Ok(path) => path,
            Err(why) => return Ok(Dispatch::Rejected(reject(StatusCode::BAD_REQUEST, why)).into()),
        };
        let tree = self.tree.load();
        let mut choice = tree.routes.choose(&RequestFacts {
            method: &parts.method,
            path: path.path(),
            headers: &parts.headers,
            query: parts.uri.query(),
        });
        let headers = std::mem::take(&mut choice.headers);
        let mut route = choice.path.cloned();
        let found = self.find(&tree, choice, &parts, &path, look, &|| {
            origin(&parts.headers)
        });
        let dispatch = match found {
            Ok(RoutedRequest::Script(engine, script, wishes)) => {
                route = route.or_else(|| Some(script.name.clone()));
                self.event(parts, engine, script, wishes, event)
            }
            Ok(RoutedRequest::Answer(response)) => Dispatch::Answer(response),
            Ok(RoutedRequest::Later(site, later)) => {
                let origin = origin(&parts.headers);
                let slow = SlowRequest {
                    parts,
                    site,
                    origin,
                    later,
                };
                return Err((Box::new(slow), event));
            }
            Err(rejection) => Dispatch::Rejected(rejection),
        };
        Ok(Routed {
            dispatch,
            headers,
            route,
        })
    }

    /// Prepares what the engine gets.
    fn event(
        &self,
        mut parts: http::request::Parts,
        engine: &'static str,
        script: Script,
        wishes: Wishes,
        event: impl FnOnce(http::request::Parts, Script) -> Event,
    ) -> Dispatch {
        if parts
            .headers
            .keys()
            .any(|name| SPOOFABLE_HEADERS.contains(name))
        {
            for name in &SPOOFABLE_HEADERS {
                parts.headers.remove(name);
            }
        }
        let preferences = ResponsePreferences {
            method: parts.method.clone(),
            version: parts.version,
            headers: preferences(&parts.headers),
            compress: wishes.compress,
            script: script.name.clone(),
        };
        entity_tag::unmark(&mut parts.headers);
        Dispatch::Event {
            engine,
            preferences,
            event: Box::new(event(parts, script)),
            streams_body: wishes.streams_body,
        }
    }

    /// Whether an engine takes bodies that are still arriving.
    pub fn takes_streamed_bodies(&self, engine: &str) -> bool {
        let engine = self.engines.get(engine);
        engine.is_some_and(|engine| engine.takes_streamed_bodies())
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
        view: ErrorView,
        mut response: Response,
    ) -> Response {
        if view != ErrorView::Text {
            let tree = self.tree.load_full();
            let (pages, version) = (&tree.error_pages, preferences.version);
            response = pages.apply_to_php(view, version, response).await;
        }
        entity_tag::mark_as_requested(&preferences.headers, &mut response);
        if x_sendfile::is_asked(&response) {
            // Like static files, which are compressed only if a compressed sibling exists.
            let tree = self.tree.load();
            return tree
                .send_file
                .replace(&preferences.method, &preferences.headers, response);
        }
        if !preferences.compress {
            return response;
        }
        let script = &preferences.script;
        self.dav_scripts.learn(script, &response);
        if self.dav_scripts.keeps_tag(script, response.headers()) {
            return response;
        }
        let (settings, method) = (&self.compress, &preferences.method);
        if compression::is_wanted(settings, method, &response) {
            // Boxed, because it is large.
            return Box::pin(compression::compress(&preferences.headers, response)).await;
        }
        if compression::stands_for_varying(settings, method, &response) {
            compression::mark_varying(&mut response);
        }
        response
    }

    /// Determines what answers this request.
    fn find(
        &self,
        tree: &DocumentTree,
        choice: Choice<'_>,
        parts: &http::request::Parts,
        path: &NormalizedPath<'_>,
        look: Look,
        origin: &dyn Fn() -> Origin,
    ) -> Result<RoutedRequest, RequestRejection> {
        let mut engine = self.engine;
        let mut site = &tree.site;
        let wishes = Wishes {
            compress: choice.compress.unwrap_or(self.compress.enabled),
            streams_body: choice.stream_body,
        };
        match choice.action {
            Some(Action::Deny) => return Err(reject(StatusCode::FORBIDDEN, "denied by a route")),
            Some(Action::Redirect(redirect)) => {
                let location = redirect.location(&parts.uri, path.path());
                return Ok(RoutedRequest::Answer(redirect_to(
                    redirect.status,
                    &location,
                )));
            }
            Some(Action::Files(files)) => site = files,
            Some(Action::Engine(name)) => {
                site = tree.pool_sites.get(name).unwrap_or(site);
                engine = self
                    .engines
                    .keys()
                    .find(|key| key.strip_prefix(self.prefix) == Some(name))
                    .copied()
                    .unwrap_or(self.engine);
            }
            None => {}
        }
        let found = match look.found {
            // A reload may have replaced the site.
            Some(slowly) if Arc::ptr_eq(&slowly.site, site) => slowly.resolution,
            _ => look_up(site, parts, path, look.now, origin, Pace::Prompt),
        };
        match found {
            Resolution::Script(script) => {
                if let Some(others) = self.others
                    && choice.action.is_none()
                    && !site.is_front(&script)
                {
                    engine = others;
                }
                Ok(RoutedRequest::Script(engine, script, wishes))
            }
            Resolution::File(file) if tree.site.is_secret(&file) => {
                Err(reject(StatusCode::NOT_FOUND, "no such file"))
            }
            Resolution::File(file) => {
                let name = file.path.clone();
                let sibling = |suffix: &str| site.sibling(&name, suffix);
                Ok(RoutedRequest::Answer(static_files::answer(
                    file,
                    &parts.method,
                    &parts.headers,
                    sibling,
                )))
            }
            Resolution::Redirect(to) => Ok(RoutedRequest::Answer(redirect(&to, parts.uri.query()))),
            Resolution::RedirectTo(status, to) => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::FOUND);
                Ok(RoutedRequest::Answer(redirect_to(status, &to)))
            }
            Resolution::Status(status, why) => {
                let status = StatusCode::from_u16(status);
                let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                debug!(path = path.path(), %status, reason = why, "answered by an .htaccess file");
                Err(reject(status, ""))
            }
            Resolution::NotFound => Err(reject(StatusCode::NOT_FOUND, "no such file")),
            Resolution::Denied(denial) => {
                warn!(
                    path = path.path(),
                    reason = denial.why(),
                    "access to a file denied"
                );
                Err(reject(StatusCode::FORBIDDEN, "access denied"))
            }
            Resolution::Malformed(why) => Err(reject(StatusCode::BAD_REQUEST, why)),
            Resolution::Failed(error) => Err(error.into()),
            Resolution::Later(later) => Ok(RoutedRequest::Later(site.clone(), later)),
        }
    }
}

/// Makes a response valid, whatever PHP has set for its connection and length.
pub fn fit(mut response: Response, is_head: bool) -> Response {
    strip_headers(response.headers_mut());
    match is_head {
        true => response,
        false => fit_length(response),
    }
}

enum RoutedRequest {
    /// The engine, and the script.
    Script(&'static str, Script, Wishes),
    Answer(Response),
    /// The look-up in this site takes long.
    Later(Arc<Site>, Later),
}

/// What the configuration says about a script's request.
struct Wishes {
    compress: bool,
    streams_body: Option<bool>,
}

/// What is kept of a request to decide how its response is sent.
pub struct ResponsePreferences {
    method: Method,
    version: Version,
    headers: HeaderMap,
    /// Whether the configuration allows compression.
    compress: bool,
    /// `SCRIPT_NAME`.
    script: Arc<str>,
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

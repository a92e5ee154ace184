//! What an application answers, whichever front asks: a file, what a script makes, or a refusal.

pub mod compression;
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
use http::{Method, StatusCode};
use tracing::{debug, warn};

use self::response::{fit_length, plain, redirect, redirect_to, strip_connection_headers};
use self::site::routes::{Action, Routes};
use self::site::{Facts, Resolution, Site, normalize};
use self::validate::{Refusal, check_relayed, refuse};
use self::x_sendfile::SendFile;
use crate::engine::{Engine, Pending};
use crate::event::{Event, Failure, Origin, Response, Script};
use crate::observe::metrics::Metrics;

/// An application: its files, and the engines that run its scripts.
pub struct Application {
    pub compress: compression::Settings,
    /// Changes when a reload finds the project elsewhere.
    pub place: arc_swap::ArcSwap<Place>,
    /// By name; routes choose among them.
    pub engines: BTreeMap<&'static str, Arc<dyn Engine>>,
    /// The one for requests that no route sends elsewhere.
    pub engine: &'static str,
    pub metrics: Arc<Metrics>,
}

/// Where the application's files are.
pub struct Place {
    pub site: Arc<Site>,
    /// The same directory with another front controller, for pools that name one.
    pub fronts: BTreeMap<String, Arc<Site>>,
    pub send_file: SendFile,
    pub routes: Routes,
}

/// What has become of a request before anything has to be waited for.
pub enum Begun {
    Event {
        engine: &'static str,
        asked: Asked,
        event: Box<Event>,
    },
    Answer(Response),
    Refusal(Refusal),
}

impl Application {
    /// Answers a request that somebody else has taken in, as a whole. `event` makes of it what the
    /// engine is asked, as for [`begin`](Self::begin).
    pub async fn answer(
        &self,
        head: http::request::Parts,
        origin: Origin,
        event: impl FnOnce(http::request::Parts, Script) -> Event,
    ) -> Result<Response, Failure> {
        let is_head = head.method == Method::HEAD;
        let begun = match check_relayed(&head) {
            Ok(()) => self.begin(head, Instant::now(), |_| origin.clone(), event),
            Err(refusal) => Begun::Refusal(refusal),
        };
        let answer = match begun {
            Begun::Answer(response) => Ok(response),
            Begun::Refusal(refusal) => Err(refusal),
            Begun::Event {
                engine,
                asked,
                event,
            } => match self.hand_over(engine, event) {
                Ok(pending) => Ok(self.shape(&asked, pending.await?).await),
                Err(refusal) => Err(refusal),
            },
        };
        let response = answer.unwrap_or_else(|refusal| {
            let status = refusal.status.as_u16();
            debug!(status, why = refusal.why, "refused");
            plain(refusal.status, refusal.why)
        });
        Ok(fit(response, is_head))
    }

    /// Finds out who answers, and whether that can begin. `event` makes an event of the request's
    /// head and the script; `origin` says who asks, for rules that want to know.
    pub fn begin(
        &self,
        mut head: http::request::Parts,
        now: Instant,
        origin: impl Fn(&HeaderMap) -> Origin,
        event: impl FnOnce(http::request::Parts, Script) -> Event,
    ) -> Begun {
        let (engine, script, compress) = match self.find(&head, now, &|| origin(&head.headers)) {
            Ok(Found::Script(engine, script, compress)) => (engine, script, compress),
            Ok(Found::Answer(response)) => return Begun::Answer(response),
            Err(refusal) => return Begun::Refusal(refusal),
        };
        if head.headers.keys().any(|name| PROMISES.contains(name)) {
            for name in &PROMISES {
                head.headers.remove(name);
            }
        }
        let asked = Asked {
            method: head.method.clone(),
            headers: asked(&head.headers),
            compress,
        };
        entity_tag::unmark(&mut head.headers);
        Begun::Event {
            engine,
            asked,
            event: Box::new(event(head, script)),
        }
    }

    pub fn hand_over(
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
    pub async fn shape(&self, asked: &Asked, mut response: Response) -> Response {
        entity_tag::mark_as_asked(&asked.headers, &mut response);
        if x_sendfile::is_asked(&response) {
            // As files go: what they are compressed to, lies beside them.
            let place = self.place.load();
            return place
                .send_file
                .replace(&asked.method, &asked.headers, response);
        }
        if asked.compress && compression::is_wanted(&self.compress, &asked.method, &response) {
            // Boxed, because it is large.
            return Box::pin(compression::compress(&asked.headers, response)).await;
        }
        response
    }

    /// Who answers this request?
    fn find(
        &self,
        head: &http::request::Parts,
        now: Instant,
        origin: &dyn Fn() -> Origin,
    ) -> Result<Found, Refusal> {
        let path =
            normalize(head.uri.path()).map_err(|why| refuse(StatusCode::BAD_REQUEST, why))?;
        let mut engine = self.engine;
        let place = self.place.load();
        let mut site: &Site = &place.site;
        let choice =
            place
                .routes
                .choose(&head.method, path.path(), &head.headers, head.uri.query());
        let compress = choice.compress.unwrap_or(self.compress.enabled);
        match choice.action {
            Some(Action::Deny) => return Err(refuse(StatusCode::FORBIDDEN, "denied by a route")),
            Some(Action::Files(files)) => site = files,
            Some(Action::Engine(name)) => {
                site = place.fronts.get(name).map_or(site, |own| own);
                engine = self
                    .engines
                    .keys()
                    .find(|key| *key == name)
                    .copied()
                    .unwrap_or(self.engine);
            }
            None => {}
        }
        let facts = Facts {
            method: &head.method,
            target: head
                .uri
                .path_and_query()
                .map_or("/", |target| target.as_str()),
            query: head.uri.query(),
            version: head.version,
            headers: &head.headers,
            origin,
        };
        match site.find_for(&facts, &path, now) {
            Resolution::Script(script) => Ok(Found::Script(engine, script, compress)),
            Resolution::File(file) if place.site.is_secret(&file) => {
                Err(refuse(StatusCode::NOT_FOUND, "no such file"))
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
                Err(refuse(status, ""))
            }
            Resolution::NotFound => Err(refuse(StatusCode::NOT_FOUND, "no such file")),
            Resolution::Denied(denial) => {
                warn!(path = path.path(), why = denial.why(), "not served");
                Err(refuse(StatusCode::FORBIDDEN, "not served"))
            }
            Resolution::Malformed(why) => Err(refuse(StatusCode::BAD_REQUEST, why)),
            Resolution::Failed(trouble) => Err(trouble.into()),
        }
    }
}

/// Makes a response fit to go out, whatever PHP has said of its connection and length.
pub fn fit(mut response: Response, is_head: bool) -> Response {
    strip_connection_headers(response.headers_mut());
    match is_head {
        true => response,
        false => fit_length(response),
    }
}

enum Found {
    /// The engine, the script, and whether what it says is compressed.
    Script(&'static str, Script, bool),
    Answer(Response),
}

/// What of a request decides how its response is sent, once the request itself is gone.
pub struct Asked {
    method: Method,
    headers: HeaderMap,
    /// The client's own wishes aside.
    compress: bool,
}

/// Who answers when no engine does.
pub const STATIC: &str = "static";

/// Promises of a proxy to send files for the application. Only we may make them (Symfony's
/// X-Sendfile support).
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

//! The life of one request.

pub mod access_log;
mod body;
pub(crate) mod busy_poll;
pub(crate) mod response_body;
pub(crate) mod response_memory;
mod validate;

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::Instant;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, StatusCode, Version};
use http_body::Body as _;
use tracing::{debug, error};

use self::access_log::AccessLog;
use self::body::Refused;
use self::busy_poll::Lookout;
use self::response_body::{End, Outgoing};
use self::validate::{check, ends_connection};
use super::Settings;
use super::transport::io::Shared;
use super::transport::sendfile_body::Placeholders;
use crate::app::forwarded::{self, Peer};
use crate::app::response::{RETRY_AFTER, class, failed, failure_name, no_content, plain};
use crate::app::static_files::FileRange;
use crate::app::validate::{Refusal, refuse};
use crate::app::{Application, Begun, fit};
use crate::event::{Body, EarlyHints, Event, Failure, Response, ResponseBody};
use crate::spool::Spool;

/// Answers requests.
pub struct Service {
    pub application: Application,
    pub settings: Settings,
    /// Where responses wait for their clients.
    pub spool: Option<Arc<Spool>>,
    pub access_log: Option<AccessLog>,
    pub next_event: AtomicU64,
    pub lookout: Lookout,
}

impl Service {
    /// Answers one request of a connection.
    pub fn answer<B>(
        self: Arc<Self>,
        request: Request<B>,
        peer: &Peer,
        connection: Arc<Shared>,
        early_hints: Option<Weak<dyn EarlyHints>>,
    ) -> impl Future<Output = Result<http::Response<Outgoing>, Infallible>> + use<B>
    where
        B: http_body::Body<Data = Bytes, Error: Display>,
    {
        connection.activity.request_begins();
        connection.begun.begins(length(request.body()));
        let mut end = End::new(self.clone(), connection.clone(), &request, peer);
        let version = request.version();
        let is_head = request.method() == Method::HEAD;
        // What needs no waiting is done before there is a future that it would make larger.
        let (head, incoming) = request.into_parts();
        let begun = self.begin(head, peer, early_hints, &end);
        // What has yet to arrive; nothing with most requests.
        let awaits = matches!(begun, Begun::Event { .. }) && !incoming.is_end_stream();
        let body = awaits.then_some(incoming);
        async move {
            // Nothing that follows on this connection is to be taken for a request.
            let mut is_last = false;
            let result = match begun {
                Begun::Answer(response) => Ok(response),
                Begun::Refusal(refusal) => Err(refusal.into()),
                Begun::Event {
                    engine,
                    asked,
                    mut event,
                } => {
                    let arrived = match body {
                        Some(body) => {
                            let taken_in = self.take_in(body, &mut event, &mut is_last).await;
                            if taken_in.is_ok() && !is_last {
                                connection.begun.is_taken_in();
                            }
                            taken_in
                        }
                        None => Ok(()),
                    };
                    match arrived.and_then(|()| self.application.hand_over(engine, event)) {
                        Ok(pending) => {
                            end.engine = engine;
                            match pending.await {
                                Ok(response) => Ok(self.application.shape(&asked, response).await),
                                Err(failure) => Err(Problem::Failed(failure)),
                            }
                        }
                        Err(refusal) => Err(refusal.into()),
                    }
                }
            };
            let (outcome, mut response) = match result {
                Ok(response) => (class(response.status()), response),
                Err(problem) => {
                    // One of many on its connection: the others are not to wait for it.
                    if problem.is_overload() && version <= Version::HTTP_11 {
                        connection.activity.pause(RETRY_AFTER);
                    }
                    problem.answer(end.event, &mut is_last)
                }
            };
            is_last |= connection.activity.is_draining();
            response = fit(response, is_head);
            if !is_head && let Err(body) = response_memory::hold(&mut response) {
                // Boxed, because it is large and rare.
                let directory = self.settings.spool.as_deref();
                response = Box::pin(response_memory::spool(response, body, directory)).await;
            }
            // Nothing but its end could say where a body of unknown length ends: HTTP/1.0 has no
            // chunks.
            is_last |= version == Version::HTTP_10 && !is_head && !has_length(&response);
            if version <= Version::HTTP_11
                && let Some(file) = response.extensions_mut().remove::<FileRange>()
            {
                *response.body_mut() = ResponseBody::stream(Placeholders::new(file, connection));
            }
            if is_last && version <= Version::HTTP_11 {
                response
                    .headers_mut()
                    .insert(header::CONNECTION, HeaderValue::from_static("close"));
                if version == Version::HTTP_10 {
                    // Or hyper would say beside it that it keeps the connection.
                    *response.version_mut() = Version::HTTP_10;
                }
            }
            self.application
                .metrics
                .answered(end.engine, outcome, end.began.elapsed());
            end.status = Some(response.status());
            Ok(response.map(|body| Outgoing::new(body, end)))
        }
    }

    /// Finds out who answers, and whether that can begin.
    fn begin(
        &self,
        mut head: http::request::Parts,
        peer: &Peer,
        early_hints: Option<Weak<dyn EarlyHints>>,
        end: &End,
    ) -> Begun {
        let proxies = &self.settings.trusted_proxies;
        let trusted = forwarded::is_trusted(peer, proxies);
        if let Err(refusal) = check(&mut head, &self.settings, trusted) {
            return Begun::Refusal(refusal);
        }
        if head.method == Method::OPTIONS && head.uri.path() == "*" {
            return Begun::Answer(no_content());
        }
        let timeout = self.settings.timeout.0;
        let origin = |headers: &HeaderMap| forwarded::origin(peer, headers, proxies).origin;
        self.application
            .begin(head, end.began, origin, |mut head, script| {
                let forwarded = forwarded::origin(peer, &head.headers, proxies);
                if let Some(host) = forwarded.host {
                    head.headers.insert(header::HOST, host);
                }
                Event {
                    id: end.event,
                    request: Request::from_parts(head, Body::Empty),
                    script,
                    origin: forwarded.origin,
                    variables: Vec::new(),
                    deadline: end.began + timeout,
                    patience: Some(timeout),
                    spool: self.spool.clone(),
                    hold: None,
                    early_hints,
                }
            })
    }

    /// Takes the event's body in.
    async fn take_in<B>(
        &self,
        body: B,
        event: &mut Event,
        is_last: &mut bool,
    ) -> Result<(), Refusal>
    where
        B: http_body::Body<Data = Bytes, Error: Display>,
    {
        let limits = body::Limits {
            max: self.settings.max_body.0,
            idle: self.settings.body_timeout.0,
            spool: self.settings.spool.as_deref(),
        };
        // Boxed, because it is large and most requests have no body.
        let collected = Box::pin(body::collect(body, limits))
            .await
            .map_err(body_refused)?;
        // hyper takes a bare LF where trailers end for a part of them, and then the next request
        // for more of them.
        *is_last |= collected.trailers;
        *event.request.body_mut() = collected.body;
        // The time for PHP begins when PHP can begin.
        event.deadline = Instant::now() + self.settings.timeout.0;
        Ok(())
    }
}

/// Is the length of its body known?
fn has_length(response: &Response) -> bool {
    response.headers().contains_key(header::CONTENT_LENGTH)
        || response.body().size_hint().exact().is_some()
}

/// How long a body is, where that is known before it has come.
fn length(body: &impl http_body::Body) -> Option<u64> {
    match body.is_end_stream() {
        true => Some(0),
        false => body.size_hint().exact(),
    }
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
    fn is_overload(&self) -> bool {
        matches!(self, Problem::Failed(Failure::Busy(_)))
    }

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

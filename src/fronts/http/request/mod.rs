//! Answers one request: validates it, receives its body, dispatches it, and sends the response.

pub mod access_log;
mod accounting;
mod body;
pub mod hosted;
pub mod https;
pub mod live_reload;
pub(crate) mod response_body;
pub(crate) mod response_memory;
mod routing;
mod traced;
mod upload;
mod validate;

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::{Arc, Weak};
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::Either;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, StatusCode, Version};
use http_body::Body as _;
use tracing::{debug, error};

use self::access_log::kept::BegunRequest;
pub use self::accounting::Accounting;
use self::body::BodyError;
use self::hosted::Hosted;
use self::https::Https;
use self::live_reload::LiveReload;
use self::response_body::{RequestGuard, TrackedBody};
use self::routing::RequestSource;
use self::upload::Upload;
use self::validate::ends_connection;
use super::Settings;
use super::transport::context::ConnectionContext;
use super::transport::sendfile_body::SendfileBody;
use crate::app::error_pages::ErrorView;
use crate::app::forwarded::{self, Peer};
use crate::app::response::{class, failed, failure_name, plain};
use crate::app::retry_after::retry_after;
use crate::app::static_files::FileRange;
use crate::app::validate::{RequestRejection, reject};
use crate::app::{Dispatch, Routed, fit};
use crate::event::{EarlyHints, Event, Failure, Response, ResponseBody};
use crate::observe::traces::Tracer;

/// What answers new requests. A reload with a changed configuration exchanges it.
pub type CurrentService = arc_swap::ArcSwap<Service>;

/// Answers requests. Each one keeps its service until its response begins.
pub struct Service {
    pub sites: Hosted,
    pub settings: Settings,
    pub https: Https,
    pub accounting: Arc<Accounting>,
    /// None if no collector is configured.
    pub tracer: Option<Arc<Tracer>>,
    /// For `--watch`.
    pub live_reload: Option<Arc<LiveReload>>,
}

impl Service {
    /// Answers one request of a connection, once the first boot of its site is over.
    pub fn answer<B>(
        self: Arc<Self>,
        request: Request<B>,
        peer: &Peer,
        connection: Arc<ConnectionContext>,
        early_hints: Option<Weak<dyn EarlyHints>>,
    ) -> impl Future<Output = Result<http::Response<TrackedBody>, Infallible>> + use<B>
    where
        B: http_body::Body<Data = Bytes, Error: Display> + Send + 'static,
    {
        connection.timers.request_begins();
        let has_body = !request.body().is_end_stream();
        connection.body_framing.begins(has_body);
        let proxies = &self.settings.trusted_proxies;
        let site = self.sites.find(&request, peer, proxies);
        let booting = site
            .and_then(|number| self.sites.get(number))
            .filter(|site| site.is_booting() && !self.https.validates(request.uri().path()));
        let Some(booting) = booting.cloned() else {
            return Either::Left(self.answer_of(site, request, peer, connection, early_hints));
        };
        let peer = peer.clone();
        // Boxed, because it is rare.
        Either::Right(Box::pin(async move {
            booting.booted().await;
            self.answer_of(site, request, &peer, connection, early_hints)
                .await
        }))
    }

    /// Answers a request to the site with this number.
    fn answer_of<B>(
        self: Arc<Self>,
        site: Option<usize>,
        request: Request<B>,
        peer: &Peer,
        connection: Arc<ConnectionContext>,
        early_hints: Option<Weak<dyn EarlyHints>>,
    ) -> impl Future<Output = Result<http::Response<TrackedBody>, Infallible>> + use<B>
    where
        B: http_body::Body<Data = Bytes, Error: Display> + Send + 'static,
    {
        let proxies = &self.settings.trusted_proxies;
        let hosted = site.and_then(|number| self.sites.get(number));
        let begun = || {
            let origin = forwarded::origin(peer, request.headers(), proxies);
            BegunRequest {
                peer,
                client: origin.client.map(|client| client.ip()),
                https: origin.https,
                site: hosted.map_or("", |site| site.name),
                encryption: connection.encryption.get(),
            }
        };
        let accounting = self.accounting.clone();
        let log = match hosted {
            Some(site) => site.access_log.as_ref(),
            None => accounting.access_log.as_ref(),
        };
        let log = log.cloned();
        let mut guard = RequestGuard::new(accounting, log, connection.clone(), &request, begun);
        if let Some(site) = hosted {
            guard.engine = site.static_label;
        }
        let version = request.version();
        // The other requests of such a connection must not wait because one was rejected.
        let is_shared = version > Version::HTTP_11 || forwarded::is_trusted(peer, proxies);
        let is_head = request.method() == Method::HEAD;
        // Everything that need not wait happens here, because it would make the future larger.
        let (mut parts, incoming) = request.into_parts();
        if let Some(tracer) = &self.tracer {
            let client = |headers: &HeaderMap| {
                let origin = forwarded::origin(peer, headers, &self.settings.trusted_proxies);
                (origin.client.map(|client| client.ip()), origin.https)
            };
            guard.trace = traced::begin(tracer, &mut parts, guard.began, client);
        }
        let is_page = (self.live_reload.as_ref()).is_some_and(|live| live.prepare(&mut parts));
        let is_https = || forwarded::origin(peer, &parts.headers, proxies).https;
        let view = hosted
            .filter(|site| self.https.shows_pages(&site.settings, is_https))
            .map_or(ErrorView::Text, |site| {
                site.view(&parts.uri, &parts.headers, peer)
            });
        let server = peer.server.clone();
        let source = RequestSource {
            site,
            peer,
            connection: &connection,
            request_id: guard.request_id,
            began: guard.began,
        };
        let routed = self.route(parts, source, early_hints);
        let respond = move |routed: Routed| {
            let Routed {
                dispatch,
                headers,
                route,
            } = routed;
            if let (Some(trace), Some(route)) = (&guard.trace, route) {
                trace.routed(route);
            }
            // Most requests have no body.
            let awaits = matches!(dispatch, Dispatch::Event { .. }) && !incoming.is_end_stream();
            let body = awaits.then_some(incoming);
            async move {
                // The connection ends after this response, because what follows cannot be parsed
                // safely.
                let mut is_last = false;
                let result = match (dispatch, self.sites.application(site)) {
                    (Dispatch::Answer(response), _) => Ok(response),
                    (Dispatch::Rejected(rejection), _) => Err(rejection.into()),
                    (Dispatch::Event { .. }, Err(rejection)) => Err(rejection.into()),
                    (
                        Dispatch::Event {
                            engine,
                            preferences,
                            mut event,
                            streams_body,
                        },
                        Ok((site, application)),
                    ) => {
                        let settings = &site.settings;
                        let mut upload = None;
                        let arrived = match body {
                            Some(body)
                                if streams_body.unwrap_or(settings.stream_body)
                                    && Upload::is_worth(&body)
                                    && application.takes_streamed_bodies(engine) =>
                            {
                                let begun = Upload::begin(body, self.body_limits(settings));
                                let begun = begun.map_err(body_rejection);
                                begun.map(|(body, begun)| {
                                    *event.request.body_mut() = body;
                                    upload = Some(begun);
                                })
                            }
                            Some(body) => {
                                let taken_in = self
                                    .receive_body(body, settings, &mut event, &mut is_last)
                                    .await;
                                if taken_in.is_ok() && !is_last {
                                    connection.body_framing.is_received();
                                }
                                taken_in
                            }
                            None => Ok(()),
                        };
                        if arrived.is_ok() {
                            guard.receives(event.request.body().len());
                        }
                        match arrived.and_then(|()| application.dispatch(engine, event)) {
                            Ok(pending) => {
                                guard.runs(engine);
                                let answered = upload::unless_cut(&mut upload, pending).await;
                                if let Some(upload) = &upload {
                                    match upload.has_arrived() {
                                        true => connection.body_framing.is_received(),
                                        false => is_last = true,
                                    }
                                }
                                match answered {
                                    Ok(Ok(response)) => {
                                        let response = upload::bind(upload, response);
                                        Ok(application.finalize(&preferences, view, response).await)
                                    }
                                    Ok(Err(failure)) => Err(Problem::Failed(failure)),
                                    Err(error) => Err(body_rejection(error).into()),
                                }
                            }
                            Err(rejection) => Err(rejection.into()),
                        }
                    }
                };
                let (mut outcome, mut response) = match result {
                    Ok(response) => (class(response.status()), response),
                    Err(problem) => {
                        if problem.is_overload() && !is_shared {
                            connection.timers.pause(retry_after());
                        }
                        problem.answer(guard.request_id, &mut is_last)
                    }
                };
                is_last |= connection.timers.is_draining();
                let hosted = site.and_then(|number| self.sites.get(number));
                if let Some(hosted) = hosted {
                    response = hosted.apply_error_page(view, response);
                }
                let is_encrypted = connection.encryption.get().is_some();
                if is_encrypted {
                    if let Some(hosted) = hosted {
                        hosted.require_tls(response.headers_mut());
                    }
                    if version <= Version::HTTP_2 {
                        self.https
                            .offer_http_3(server.as_ref(), response.headers_mut());
                    }
                }
                // After all others, because a rule can remove any header.
                headers.apply(response.headers_mut());
                let status = response.status();
                let (response, taken) = response_memory::headers(response);
                let mut response = fit(response, is_head);
                if is_page && let Some(live) = &self.live_reload {
                    response = live.extend(response);
                }
                if let Err(body) = response_memory::count(&mut response, is_head, version) {
                    // Boxed, because it is large and rare.
                    let directory = self.settings.temp_dir.as_deref();
                    response = Box::pin(response_memory::spool(response, body, directory)).await;
                }
                // Only the end of the connection can end a body of unknown length: HTTP/1.0 has no
                // chunks.
                is_last |= version == Version::HTTP_10 && !is_head && !has_length(&response);
                // The kernel does not encrypt.
                if version <= Version::HTTP_11
                    && !is_encrypted
                    && let Some(file) = response.extensions_mut().remove::<FileRange>()
                {
                    *response.body_mut() =
                        ResponseBody::stream(SendfileBody::new(file, connection));
                }
                if is_last && version <= Version::HTTP_11 {
                    response
                        .headers_mut()
                        .insert(header::CONNECTION, HeaderValue::from_static("close"));
                    if version == Version::HTTP_10 {
                        // Otherwise hyper would add that it keeps the connection open.
                        *response.version_mut() = Version::HTTP_10;
                    }
                }
                if response.status() != status {
                    outcome = class(response.status());
                }
                let took = guard.began.elapsed();
                self.accounting
                    .metrics
                    .answered(guard.engine, outcome, took);
                guard.responds(&response, took);
                Ok(response.map(|body| TrackedBody::new(taken, body, guard)))
            }
        };
        match routed {
            Ok(routed) => Either::Left(respond(routed)),
            // Boxed, because it is rare.
            Err(waits) => Either::Right(Box::pin(async move { respond(waits.await).await })),
        }
    }

    fn body_limits(&self, settings: &Settings) -> body::BodyLimits<'_> {
        body::BodyLimits {
            max: settings.max_body_size.0,
            idle: settings.body_timeout.0,
            spool: self.settings.temp_dir.as_deref(),
        }
    }

    /// Receives the event's body, within the limits of its site.
    async fn receive_body<B>(
        &self,
        body: B,
        settings: &Settings,
        event: &mut Event,
        is_last: &mut bool,
    ) -> Result<(), RequestRejection>
    where
        B: http_body::Body<Data = Bytes, Error: Display>,
    {
        // Boxed, because it is large and most requests have no body.
        let collected = Box::pin(body::collect(body, self.body_limits(settings)))
            .await
            .map_err(body_rejection)?;
        // At the end of trailers hyper takes a bare LF for a part of them, and then the next
        // request for more trailers.
        *is_last |= collected.trailers;
        *event.request.body_mut() = collected.body;
        // PHP's time limit begins now.
        event.deadline = Instant::now() + settings.request_timeout.0;
        Ok(())
    }
}

/// Whether the length of the body is known.
fn has_length(response: &Response) -> bool {
    response.headers().contains_key(header::CONTENT_LENGTH)
        || response.body().size_hint().exact().is_some()
}

enum Problem {
    Rejected(RequestRejection),
    Failed(Failure),
}

impl From<RequestRejection> for Problem {
    fn from(rejection: RequestRejection) -> Problem {
        Problem::Rejected(rejection)
    }
}

impl Problem {
    fn is_overload(&self) -> bool {
        matches!(self, Problem::Failed(failure) if failure.is_busy())
    }

    /// The outcome in metrics, and the response.
    fn answer(&self, request_id: u64, is_last: &mut bool) -> (&'static str, Response) {
        match self {
            Problem::Rejected(rejection) => {
                debug!(
                    request_id,
                    status = rejection.status.as_u16(),
                    reason = rejection.why,
                    "rejected"
                );
                *is_last |= ends_connection(rejection.status);
                (
                    class(rejection.status),
                    plain(rejection.status, rejection.why),
                )
            }
            Problem::Failed(failure) => (failure_name(failure), failed(failure, request_id)),
        }
    }
}

fn body_rejection(error: BodyError) -> RequestRejection {
    match error {
        BodyError::TooLarge => reject(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the body is larger than http.max_body_size",
        ),
        BodyError::TooSlow => reject(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time",
        ),
        BodyError::Broken(error) => {
            debug!(error, "request body truncated");
            reject(
                StatusCode::BAD_REQUEST,
                "the body is malformed or incomplete",
            )
        }
        BodyError::NoRoom(error) => {
            error!(%error, "cannot store a request body (http.temp_dir)");
            reject(StatusCode::INSUFFICIENT_STORAGE, "no room for the body")
        }
    }
}

//! Determines what answers a request, and waits if that takes long.

use std::sync::{Arc, Weak};
use std::time::Instant;

use futures_util::future::BoxFuture;
use http::header::{self, HeaderMap};
use http::request::Parts;
use http::{Method, Request};

use super::validate::check;
use super::{Service, traced};
use crate::app::forwarded::{self, Peer};
use crate::app::response::no_content;
use crate::app::slow_request::{Look, SlowRequest};
use crate::app::{Dispatch, Routed};
use crate::event::{Body, EarlyHints, Event};
use crate::fronts::http::transport::context::ConnectionContext;

/// A request besides its parts.
#[derive(Clone, Copy)]
pub(super) struct RequestSource<'a> {
    /// The number of the site.
    pub site: Option<usize>,
    pub peer: &'a Peer,
    pub connection: &'a Arc<ConnectionContext>,
    pub request_id: u64,
    pub began: Instant,
}

impl Service {
    /// Determines what answers, and whether that can begin. The error is for the rare request that
    /// must wait for it.
    pub(super) fn route(
        self: &Arc<Self>,
        parts: Parts,
        source: RequestSource<'_>,
        mut early_hints: Option<Weak<dyn EarlyHints>>,
    ) -> Result<Routed, BoxFuture<'static, Routed>> {
        self.begin(parts, source, &mut early_hints).map_err(|slow| {
            let service = self.clone();
            let (peer, connection) = (source.peer.clone(), source.connection.clone());
            let (site, request_id, began) = (source.site, source.request_id, source.began);
            let routed = async move {
                let source = RequestSource {
                    site,
                    peer: &peer,
                    connection: &connection,
                    request_id,
                    began,
                };
                service.begin_in_turn(slow, source, early_hints).await
            };
            Box::pin(routed) as BoxFuture<'static, Routed>
        })
    }

    async fn begin_in_turn(
        &self,
        mut slow: Box<SlowRequest>,
        source: RequestSource<'_>,
        mut early_hints: Option<Weak<dyn EarlyHints>>,
    ) -> Routed {
        loop {
            let (parts, found) = match slow.find().await {
                Ok(found) => found,
                Err(rejection) => return Dispatch::Rejected(rejection).into(),
            };
            let look = Look {
                now: Instant::now(),
                found: Some(found),
            };
            match self.begin_found(parts, look, source, &mut early_hints) {
                Ok(routed) => return routed,
                Err(again) => slow = again,
            }
        }
    }

    fn begin(
        &self,
        mut parts: Parts,
        source: RequestSource<'_>,
        early_hints: &mut Option<Weak<dyn EarlyHints>>,
    ) -> Result<Routed, Box<SlowRequest>> {
        let peer = source.peer;
        let proxies = &self.settings.trusted_proxies;
        let trusted = forwarded::is_trusted(peer, proxies);
        if let Err(rejection) = check(&mut parts, &self.settings, trusted || peer.https) {
            return Ok(Dispatch::Rejected(rejection).into());
        }
        if parts.method == Method::OPTIONS && parts.uri.path() == "*" {
            return Ok(Dispatch::Answer(no_content()).into());
        }
        if let Some(response) = self.https.validation(&parts) {
            return Ok(Dispatch::Answer(response).into());
        }
        // From here on, `Host` is the one that the client has requested.
        if let Some(host) = forwarded::host(peer, &parts.headers, proxies) {
            parts.headers.insert(header::HOST, host);
        }
        // Also while the site has not booted.
        let site = source.site.and_then(|number| self.sites.get(number));
        let is_https = || forwarded::origin(peer, &parts.headers, proxies).https;
        match site.and_then(|site| self.https.redirect(&site.settings, &parts, is_https)) {
            None => {}
            Some(Ok(response)) => return Ok(Dispatch::Answer(response).into()),
            Some(Err(rejection)) => return Ok(Dispatch::Rejected(rejection).into()),
        }
        if let Err(rejection) = self.sites.application(source.site) {
            return Ok(Dispatch::Rejected(rejection).into());
        }
        let live = self.live_reload.as_ref();
        if let Some(response) = live.and_then(|live| live.answer(&parts)) {
            return Ok(Dispatch::Answer(response).into());
        }
        if self.tracer.is_some() {
            traced::hand_on(&mut parts);
        }
        let look = Look {
            now: source.began,
            found: None,
        };
        self.begin_found(parts, look, source, early_hints)
    }

    /// Begins a request that the site's application answers.
    fn begin_found(
        &self,
        parts: Parts,
        look: Look,
        source: RequestSource<'_>,
        early_hints: &mut Option<Weak<dyn EarlyHints>>,
    ) -> Result<Routed, Box<SlowRequest>> {
        let (site, application) = match self.sites.application(source.site) {
            Ok(selected) => selected,
            Err(rejection) => return Ok(Dispatch::Rejected(rejection).into()),
        };
        let proxies = &self.settings.trusted_proxies;
        let origin = |headers: &HeaderMap| forwarded::origin(source.peer, headers, proxies);
        let timeout = site.settings.request_timeout.0;
        let deadline = look.now + timeout;
        let begun = application.begin(parts, look, origin, |parts, script| {
            let origin = origin(&parts.headers);
            let mut variables = match source.connection.encryption.get() {
                Some(variables) => variables.to_vec(),
                None => Vec::new(),
            };
            if self.tracer.is_some() {
                traced::variables(&parts.headers, &mut variables);
            }
            Event {
                id: source.request_id,
                request: Request::from_parts(parts, Body::Empty),
                script,
                origin,
                variables,
                deadline,
                idle_timeout: Some(timeout),
                spool: site.spool.clone(),
                completion_token: None,
                early_hints: early_hints.take(),
            }
        });
        begun.map_err(|(slow, _)| slow)
    }
}

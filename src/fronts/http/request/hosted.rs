//! The site that a request is for, selected by its host.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::{HOST, HeaderMap, HeaderValue, STRICT_TRANSPORT_SECURITY};
use http::{Request, StatusCode, Uri};
use tokio::sync::{Semaphore, watch};

use crate::app::Application;
use crate::app::by_host::ByHost;
use crate::app::error_pages::{ErrorPages, ErrorView};
use crate::app::forwarded::{self, Peer, Proxy};
use crate::app::validate::{RequestRejection, reject};
use crate::event::Response;
use crate::fronts::http::Settings;
use crate::fronts::http::request::access_log::AccessLog;
use crate::spool::Spool;

/// A site among those that the front end serves.
pub struct HostedSite {
    /// Empty without `[[site]]`.
    pub name: &'static str,
    /// Empty until the site's application has booted for the first time.
    pub application: OnceLock<Arc<Application>>,
    /// The error pages until then, as the last attempt to boot has found them.
    pub unbooted_pages: ArcSwap<ErrorPages>,
    /// The front end's settings, with the site's own limits of requests.
    pub settings: Settings,
    /// The spool of its responses to slow clients.
    pub spool: Option<Arc<Spool>>,
    /// The `Strict-Transport-Security` of its responses over TLS.
    pub hsts: Option<HeaderValue>,
    /// None if it is off.
    pub access_log: Option<Arc<AccessLog>>,
    /// The engine's name in metrics and logs for the site's responses without PHP.
    pub static_label: &'static str,
    pub first_boot: FirstBoot,
}

/// Requests of one site that wait for its first boot; each has a header section in memory.
const MAX_HELD: usize = 1024;

/// The first attempt to boot a site, for which its requests wait.
#[derive(Debug)]
pub struct FirstBoot {
    is_over: watch::Sender<bool>,
    held: Semaphore,
}

impl Default for FirstBoot {
    fn default() -> FirstBoot {
        FirstBoot {
            is_over: watch::Sender::new(false),
            held: Semaphore::new(MAX_HELD),
        }
    }
}

impl FirstBoot {
    /// The attempt has ended, whether the site is served or not.
    pub fn end(&self) {
        self.is_over.send_replace(true);
    }

    pub fn is_over(&self) -> bool {
        *self.is_over.borrow()
    }

    /// Returns when the attempt has ended, after `limit`, or at once if many requests wait.
    async fn wait(&self, limit: Duration) {
        let Ok(_held) = self.held.try_acquire() else {
            return;
        };
        let mut is_over = self.is_over.subscribe();
        let ended = is_over.wait_for(|is_over| *is_over);
        let _ = tokio::time::timeout(limit, ended).await;
    }
}

impl HostedSite {
    /// Whether requests have to [wait](HostedSite::booted).
    pub fn is_booting(&self) -> bool {
        self.application.get().is_none() && !self.first_boot.is_over()
    }

    /// Determines which page the client of a request sees if it fails.
    pub fn view(&self, target: &Uri, headers: &HeaderMap, peer: &Peer) -> ErrorView {
        match self.application.get() {
            Some(application) => application.view(target, headers, peer),
            None => self.unbooted_pages.load().view(target, headers, peer),
        }
    }

    /// Gives a failed request the page that its client sees.
    pub fn apply_error_page(&self, view: ErrorView, response: Response) -> Response {
        match self.application.get() {
            Some(application) => application.apply_error_page(view, response),
            None => self.unbooted_pages.load().apply(view, response),
        }
    }

    /// Tells browsers to use TLS (RFC 6797), unless PHP has done so. For a response over TLS.
    pub fn require_tls(&self, headers: &mut HeaderMap) {
        if let Some(hsts) = &self.hsts {
            headers
                .entry(STRICT_TRANSPORT_SECURITY)
                .or_insert_with(|| hsts.clone());
        }
    }

    /// Waits for the first boot, for as long as a response may take.
    pub async fn booted(&self) {
        self.first_boot.wait(self.settings.request_timeout.0).await;
    }
}

/// All sites.
pub type Hosted = ByHost<Arc<HostedSite>>;

impl Hosted {
    /// The number of the site that a request is for. If the request is valid, `Host` has the same
    /// host once it is checked.
    pub fn find<B>(&self, request: &Request<B>, peer: &Peer, proxies: &[Proxy]) -> Option<usize> {
        if self.is_for_all() {
            return self.select(None);
        }
        let forwarded = forwarded::host(peer, request.headers(), proxies);
        let host = match &forwarded {
            Some(host) => host.to_str().ok().map(Cow::Borrowed),
            None => requested(request),
        };
        self.select(host.as_deref())
    }

    /// The site's application, or how a request is rejected without one.
    pub fn application(
        &self,
        site: Option<usize>,
    ) -> Result<(&HostedSite, &Application), RequestRejection> {
        let Some(site) = site.and_then(|number| self.get(number)) else {
            let why = "no site of this server has this host";
            return Err(reject(StatusCode::MISDIRECTED_REQUEST, why));
        };
        match site.application.get() {
            Some(application) => Ok((site, application)),
            None => {
                let why = "this site cannot be served at the moment";
                Err(reject(StatusCode::SERVICE_UNAVAILABLE, why))
            }
        }
    }
}

/// The host of the target, or else of `Host`.
fn requested<B>(request: &Request<B>) -> Option<Cow<'_, str>> {
    match request.uri().authority() {
        Some(authority) => Some(authority.as_str().into()),
        None => header(request.headers()),
    }
}

fn header(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    headers.get(HOST)?.to_str().ok().map(Cow::Borrowed)
}

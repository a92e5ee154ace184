//! Redirects requests without TLS to HTTPS, and offers HTTP/3. Answers authorities that validate a
//! domain by HTTP.

use std::sync::Arc;

use http::header::{self, ALT_SVC, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode};

use crate::app::host::without_port;
use crate::app::response::redirect_to;
use crate::app::validate::{RequestRejection, reject};
use crate::event::{Address, Response, ResponseBody};
use crate::fronts::http::tls::acme::answers::ChallengeAnswers;
use crate::fronts::http::{Settings, tls};

/// How many seconds clients may remember the offer of HTTP/3: a day.
const OFFERED_FOR: u32 = 86_400;

/// The settings that decide it.
#[derive(Debug, Clone, Default)]
pub struct Https {
    /// The port of HTTPS, as clients reach it.
    port: u16,
    /// The port at which HTTP/3 is offered. None: the one that Surus listens on.
    public_port: Option<u16>,
    /// A request without TLS must get no page, also before there is a certificate of the server.
    requires_client_certificate: bool,
    /// The ports of HTTP/3, each with the `Alt-Svc` that offers it.
    http_3: Vec<(String, HeaderValue)>,
    answers: Arc<ChallengeAnswers>,
}

impl Https {
    pub fn new(tls: &tls::Settings, answers: Arc<ChallengeAnswers>) -> Https {
        Https {
            port: tls.port(),
            public_port: tls.public_port,
            requires_client_certificate: tls.requires_client_certificate(),
            http_3: Vec::new(),
            answers,
        }
    }

    /// Makes responses of these ports offer HTTP/3, at the public port if there is one.
    pub fn with_http_3(mut self, ports: impl Iterator<Item = u16>) -> Https {
        let public_port = self.public_port;
        let offer = |port: u16| {
            let public = public_port.unwrap_or(port);
            let offer = format!("h3=\":{public}\"; ma={OFFERED_FOR}");
            Some((port.to_string(), offer.parse().ok()?))
        };
        self.http_3 = ports.filter_map(offer).collect();
        self
    }

    /// Whether a path is that of an authority's validation.
    pub fn validates(&self, path: &str) -> bool {
        self.answers.text(path).is_some()
    }

    /// The answer to an authority's validation (HTTP-01).
    pub fn validation(&self, parts: &Parts) -> Option<Response> {
        let text = self.answers.text(parts.uri.path())?;
        Some(Response::new(ResponseBody::from(text)))
    }

    /// Whether errors of a site have its own pages. Requests that must be sent over TLS with a
    /// certificate get short texts.
    pub fn shows_pages(&self, settings: &Settings, is_https: impl FnOnce() -> bool) -> bool {
        !self.requires_client_certificate || settings.redirect_to_https != Some(true) || is_https()
    }

    /// The answer to a request that the client must send over TLS, by the settings of its site.
    pub fn redirect(
        &self,
        settings: &Settings,
        parts: &Parts,
        is_https: impl FnOnce() -> bool,
    ) -> Option<Result<Response, RequestRejection>> {
        if settings.redirect_to_https != Some(true) || is_https() {
            return None;
        }
        let host = parts.headers.get(header::HOST);
        let Some(host) = host.and_then(|host| host.to_str().ok()) else {
            let why = "the redirect to HTTPS needs a Host";
            return Some(Err(reject(StatusCode::BAD_REQUEST, why)));
        };
        if !self.requires_client_certificate && self.answers.is_pending(without_port(host)) {
            return None;
        }
        let target = parts
            .uri
            .path_and_query()
            .map_or("/", |target| target.as_str());
        // Others would become a GET.
        let status = match parts.method {
            Method::GET | Method::HEAD => StatusCode::MOVED_PERMANENTLY,
            _ => StatusCode::PERMANENT_REDIRECT,
        };
        Some(Ok(redirect_to(status, &self.location(host, target))))
    }

    fn location(&self, host: &str, target: &str) -> String {
        let name = without_port(host);
        match self.port {
            443 => format!("https://{name}{target}"),
            port => format!("https://{name}:{port}{target}"),
        }
    }

    /// Adds `Alt-Svc` (RFC 7838) to a response over TLS, unless PHP has done so.
    pub fn offer_http_3(&self, server: Option<&Address>, headers: &mut HeaderMap) {
        let is_here = |port: &str| server.is_some_and(|server| server.port_text() == port);
        if let Some((_, offer)) = self.http_3.iter().find(|(port, _)| is_here(port)) {
            headers.entry(ALT_SVC).or_insert_with(|| offer.clone());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn location_has_the_port_of_https() {
        for (port, host, expected) in [
            (443, "example.org", "https://example.org/?a"),
            (443, "example.org:8080", "https://example.org/?a"),
            (443, "[::1]", "https://[::1]/?a"),
            (8443, "[::1]:8080", "https://[::1]:8443/?a"),
            (8443, "example.org", "https://example.org:8443/?a"),
        ] {
            let https = Https {
                port,
                ..Https::default()
            };
            assert_eq!(https.location(host, "/?a"), expected);
        }
    }

    #[test]
    fn host_without_certificate_is_redirected_and_shows_no_pages_if_clients_need_one() {
        let answers: Arc<ChallengeAnswers> = Arc::default();
        answers.set_pending(["a.example".to_owned()].into());
        let settings = Settings {
            redirect_to_https: Some(true),
            ..Settings::default()
        };
        let request = http::Request::get("/").header(header::HOST, "a.example");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        for (client_ca, kind, is_redirected) in [
            (None, tls::ClientCertificate::Require, false),
            (Some("ca.pem"), tls::ClientCertificate::Optional, false),
            (Some("ca.pem"), tls::ClientCertificate::Require, true),
        ] {
            let tls = tls::Settings {
                client_ca: client_ca.map(Into::into),
                client_certificate: kind,
                ..tls::Settings::default()
            };
            let https = Https::new(&tls, answers.clone());
            let answer = https.redirect(&settings, &parts, || false);
            assert_eq!(answer.is_some(), is_redirected, "{client_ca:?} {kind:?}");
            assert_eq!(https.shows_pages(&settings, || false), !is_redirected);
            assert!(https.shows_pages(&settings, || true));
            assert!(https.shows_pages(&Settings::default(), || false));
        }
    }

    #[test]
    fn http_3_is_offered_at_the_public_port() {
        let server = Address::from(std::net::SocketAddr::from(([127, 0, 0, 1], 8443)));
        for (public_port, offer) in [(None, "8443"), (Some(443), "443")] {
            let settings = tls::Settings {
                public_port,
                ..tls::Settings::default()
            };
            let https = Https::new(&settings, Arc::default()).with_http_3([8443].into_iter());
            let mut headers = HeaderMap::new();
            https.offer_http_3(Some(&server), &mut headers);
            let offer = format!("h3=\":{offer}\"; ma={OFFERED_FOR}");
            assert_eq!(headers[ALT_SVC], offer);
        }
    }
}

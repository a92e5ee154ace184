//! Redirects requests without TLS to HTTPS, and tells browsers to use it (RFC 6797).

use http::header::{self, HeaderMap, HeaderValue, STRICT_TRANSPORT_SECURITY};
use http::request::Parts;
use http::{Method, StatusCode};

use crate::app::forwarded::Forwarded;
use crate::app::response::redirect_to;
use crate::app::validate::{RequestRejection, reject};
use crate::event::Response;
use crate::fronts::http::{Settings, tls};

/// The settings that decide it.
#[derive(Debug, Clone, Default)]
pub struct Https {
    redirects: bool,
    /// The port of HTTPS.
    port: u16,
    hsts: Option<HeaderValue>,
}

impl Https {
    pub fn new(http: &Settings, tls: &tls::Settings) -> Https {
        Https {
            redirects: http.redirect_to_https,
            port: tls.port(),
            // Checked when the settings were read.
            hsts: tls.hsts.as_ref().and_then(|hsts| hsts.parse().ok()),
        }
    }

    /// The answer to a request that the client must send over TLS.
    pub fn redirect(
        &self,
        head: &Parts,
        forwarded: impl FnOnce() -> Forwarded,
    ) -> Option<Result<Response, RequestRejection>> {
        if !self.redirects {
            return None;
        }
        let forwarded = forwarded();
        if forwarded.origin.https {
            return None;
        }
        let host = forwarded
            .host
            .as_ref()
            .or_else(|| head.headers.get(header::HOST));
        let Some(host) = host.and_then(|host| host.to_str().ok()) else {
            let why = "the redirect to HTTPS needs a Host";
            return Some(Err(reject(StatusCode::BAD_REQUEST, why)));
        };
        let target = head
            .uri
            .path_and_query()
            .map_or("/", |target| target.as_str());
        // Others would become a GET.
        let status = match head.method {
            Method::GET | Method::HEAD => StatusCode::MOVED_PERMANENTLY,
            _ => StatusCode::PERMANENT_REDIRECT,
        };
        Some(Ok(redirect_to(status, &self.location(host, target))))
    }

    fn location(&self, host: &str, target: &str) -> String {
        // Only an IPv6 address in brackets has other colons.
        let name = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => name,
            _ => host,
        };
        match self.port {
            443 => format!("https://{name}{target}"),
            port => format!("https://{name}:{port}{target}"),
        }
    }

    /// Adds `Strict-Transport-Security` to a response over TLS, unless PHP has done so.
    pub fn extend(&self, headers: &mut HeaderMap) {
        if let Some(hsts) = &self.hsts {
            headers
                .entry(STRICT_TRANSPORT_SECURITY)
                .or_insert_with(|| hsts.clone());
        }
    }
}

#[cfg(test)]
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
}

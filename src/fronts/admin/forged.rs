//! Rejects requests to the admin listener that a browser sends for a page of another site.

use std::io;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::uri::Authority;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;

use super::text;

/// Where a client of the listener may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// At a unix socket, which browsers cannot open.
    Socket,
    /// At a TCP address of this machine alone.
    Machine,
    /// At another TCP address, which may be published at one of this machine.
    Network,
}

impl Reach {
    /// For a connection to this address.
    pub(super) fn of(address: io::Result<SocketAddr>) -> Reach {
        match address.map(|address| address.ip().to_canonical()) {
            Ok(ip) if !ip.is_loopback() => Reach::Network,
            _ => Reach::Machine,
        }
    }
}

/// What probes and Prometheus ask for. They may know the listener by a name.
const PROBES: [&str; 4] = ["/-/health", "/-/ready", "/-/metrics", "/metrics"];

/// Rejects a command that a page sends, and a request under a host name. A foreign name may lead to
/// the listener (DNS rebinding), and its page could then read the answer.
pub(super) fn forged<B>(request: &Request<B>, reach: Reach) -> Option<Response<Full<Bytes>>> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_read && request.headers().contains_key(header::ORIGIN) {
        let why = "commands are not taken from browsers; use curl or surus\n";
        return Some(text(StatusCode::FORBIDDEN, why));
    }
    let needs_own_host = match reach {
        Reach::Socket => false,
        Reach::Machine => true,
        Reach::Network => !is_read || !PROBES.contains(&request.uri().path()),
    };
    let host = request.headers().get(header::HOST);
    if needs_own_host && !host.is_none_or(is_own_host) {
        let why = "the admin listener has no host name: write its IP address, or localhost\n";
        return Some(text(StatusCode::FORBIDDEN, why));
    }
    None
}

/// An IP address, `localhost`, or the name that Surus's own commands send: no foreign name server
/// resolves them.
fn is_own_host(host: &HeaderValue) -> bool {
    let Some(host) = host
        .to_str()
        .ok()
        .and_then(|host| host.parse::<Authority>().ok())
    else {
        return false;
    };
    let name = host.host().trim_start_matches('[').trim_end_matches(']');
    name.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost") || name == "surus"
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn foreign_host_name_is_rejected_except_for_probes_over_the_network() {
        let rejects = |address: &str, method: Method, path: &str, host: &str| {
            let reach = Reach::of(Ok(address.parse().unwrap()));
            let request = Request::builder().method(method).uri(path);
            let request = request.header(header::HOST, host).body(()).unwrap();
            forged(&request, reach).is_some()
        };
        let published = "172.17.0.2:9180";
        let hosts = ["127.0.0.1:9180", "[::1]", "10.0.0.7", "localhost", "surus"];
        for address in [published, "127.0.0.1:9180", "[::ffff:127.0.0.1]:1"] {
            for path in ["/-/status", "/-/dashboard", "/-/events", "/-/failed"] {
                assert!(rejects(address, Method::GET, path, "evil.example"));
                assert!(rejects(address, Method::GET, path, "127.0.0.1.nip.io:9180"));
                for host in hosts {
                    assert!(!rejects(address, Method::GET, path, host), "{path} {host}");
                }
            }
            assert!(rejects(address, Method::POST, "/-/reload", "app.internal"));
            assert!(rejects(address, Method::POST, "/-/metrics", "app.internal"));
            assert!(!rejects(address, Method::POST, "/-/reload", "10.0.0.7"));
        }
        for path in PROBES {
            assert!(!rejects(published, Method::GET, path, "app.internal"));
            assert!(rejects("127.0.0.1:1", Method::GET, path, "evil.example"));
        }
        let nowhere = Reach::of(Err(io::ErrorKind::NotConnected.into()));
        assert_eq!(nowhere, Reach::Machine);
    }
}

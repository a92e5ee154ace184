//! The HTTP front end of `surus serve`: its settings, and the life of its connections.

mod connection;
pub mod listener;
pub(crate) mod request;
pub mod tls;
pub mod transport;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::info;

pub use listener::quic::QuicListener;
pub use listener::{Admission, Bound, Listener, SocketFile, SocketMode, udp_error};
pub use request::access_log::AccessLog;
pub use request::https::Https;
pub use request::{Accounting, CurrentService, Service};
pub use tls::Tls;

use crate::app::forwarded::Proxy;
use crate::budget;
use crate::fronts::address::Address;
use crate::spool::Spool;
use crate::units::{self, Size, Time};
use listener::connection_limit::ConnectionLimiter;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where to listen: `127.0.0.1:8080`, `[::]:80`, `unix:/run/app.sock`.
    #[serde(deserialize_with = "units::one_or_more")]
    pub listen: Vec<Address>,
    /// Requests without TLS are redirected to HTTPS: by default if `acme.domains` names hosts.
    pub redirect_to_https: Option<bool>,
    /// The permissions of unix sockets. By default `0660` for root, otherwise what the umask
    /// leaves.
    pub socket_mode: Option<SocketMode>,
    /// The user of the front end if Surus is started as root: `surus` if it exists, otherwise
    /// `www-data`, or `nobody` if PHP runs as `www-data`.
    pub user: Option<String>,
    /// Limits the files that the front end can open to those it needs (Landlock), if Surus is
    /// started as root.
    pub landlock: bool,
    /// Limits the front end's system calls to those that a server needs (seccomp), if Surus is
    /// started as root.
    pub seccomp: bool,
    /// The time limit until the first byte of a response, and then between two pieces: 504. PHP's
    /// work after the response has no limit.
    #[serde(deserialize_with = "timeout")]
    pub request_timeout: Time,
    /// The backtrace of a request that PHP runs for longer is logged; the request goes on. 0 for
    /// none. For engines of surus-php.
    pub slow_request: Time,
    /// Larger request bodies: 413.
    pub max_body_size: Size,
    /// Starts PHP before the body of a request has arrived, and gives it to PHP as it arrives. For
    /// engines of surus-php, and bodies of known length above 64 KiB.
    pub stream_body: bool,
    /// Larger header sections: 431.
    #[serde(deserialize_with = "max_header_size")]
    pub max_header_size: Size,
    /// More header lines: 431.
    #[serde(deserialize_with = "max_headers")]
    pub max_headers: usize,
    /// Longer request targets: 414.
    #[serde(deserialize_with = "max_uri")]
    pub max_uri: Size,
    /// The time limit from a header section's first byte to its last.
    #[serde(deserialize_with = "header_timeout")]
    pub header_timeout: Time,
    /// How long a request body may send nothing: 408.
    #[serde(deserialize_with = "body_timeout")]
    pub body_timeout: Time,
    /// How long a client may take no byte of the response.
    #[serde(deserialize_with = "send_timeout")]
    pub send_timeout: Time,
    /// How long an idle connection stays open.
    pub keep_alive_timeout: Time,
    /// A further connection replaces the one that has been idle longest. If none is idle, it waits
    /// briefly and is then closed.
    #[serde(deserialize_with = "max_connections")]
    pub max_connections: usize,
    /// Serves HTTP/3 as well, at the ports of `tls.listen` (UDP), and offers it by `Alt-Svc`.
    pub h3: bool,
    /// Proxies whose `X-Forwarded-For`, `-Proto` and `-Host` are trusted.
    #[serde(deserialize_with = "units::one_or_more")]
    pub trusted_proxies: Vec<Proxy>,
    /// Every connection begins with a PROXY header (version 1 or 2). Only `trusted_proxies` may
    /// connect then, because the header can name any client.
    pub proxy_protocol: bool,
    /// The directory for request bodies above 64 KiB, and for responses to slow clients; by default
    /// the system's directory for temporary files.
    pub temp_dir: Option<PathBuf>,
    /// How much of one response is kept for a slow client. Beyond that PHP waits. 0 for none.
    pub max_response_buffer: Size,
    /// Bytes of all requests and responses that wait in memory. Beyond that they wait in files.
    pub buffer_memory: Size,
    /// Bytes of all such files. Beyond that PHP waits for its clients, and request bodies are
    /// rejected: 507.
    pub max_temp_size: Size,
    /// How long requests in flight may take after SIGTERM.
    pub shutdown_timeout: Time,
    /// How long everything but readiness continues after SIGTERM.
    pub shutdown_delay: Time,
}

impl Settings {
    /// Leaves a quarter of the files that Surus may open to PHP and to what is sent.
    pub fn fit_connections(&mut self, open_files: u64) {
        let most = usize::try_from(open_files / 4 * 3).unwrap_or(usize::MAX);
        self.max_connections = self.max_connections.min(most.max(1));
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: vec![Address::Tcp(([127, 0, 0, 1], 8080).into())],
            redirect_to_https: None,
            socket_mode: None,
            user: None,
            landlock: true,
            seccomp: true,
            request_timeout: Time::seconds(60),
            slow_request: Time::seconds(0),
            max_body_size: Size(64 << 20),
            stream_body: false,
            max_header_size: Size(32 << 10),
            max_headers: 100,
            max_uri: Size(8 << 10),
            header_timeout: Time::seconds(10),
            body_timeout: Time::seconds(30),
            send_timeout: Time::seconds(60),
            keep_alive_timeout: Time::seconds(75),
            max_connections: 32_768,
            h3: false,
            trusted_proxies: Vec::new(),
            proxy_protocol: false,
            temp_dir: None,
            max_response_buffer: Size(1 << 30),
            buffer_memory: Size(budget::DEFAULT_MEMORY),
            max_temp_size: Size(budget::DEFAULT_SPOOL),
            shutdown_timeout: Time::seconds(60),
            shutdown_delay: Time::seconds(0),
        }
    }
}

impl Settings {
    /// Sets the budgets of all requests together, once per process.
    pub fn set_budgets(&self) {
        budget::MEMORY.set_limit(self.buffer_memory.0);
        budget::SPOOL.set_limit(self.max_temp_size.0);
    }

    /// The spool of responses to slow clients.
    pub fn response_spool(&self) -> Option<Arc<Spool>> {
        let spool = || {
            Arc::new(Spool {
                directory: self.temp_dir.clone(),
                max: self.max_response_buffer.0,
            })
        };
        (self.max_response_buffer.0 > 0).then(spool)
    }
}

fn timeout<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    units::wait("http.request_timeout", from)
}

fn header_timeout<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    units::wait("http.header_timeout", from)
}

fn body_timeout<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    units::wait("http.body_timeout", from)
}

fn send_timeout<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    units::wait("http.send_timeout", from)
}

/// hyper reads at least 8 KiB.
fn max_header_size<'de, D: Deserializer<'de>>(from: D) -> Result<Size, D::Error> {
    units::size("http.max_header_size", Size(8 << 10)..=Size(16 << 20), from)
}

/// hyper allocates space for all of them in every request, and a `HeaderMap` takes at most 24,576.
fn max_headers<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    units::number("http.max_headers", 1..=10_000, from)
}

fn max_uri<'de, D: Deserializer<'de>>(from: D) -> Result<Size, D::Error> {
    units::size("http.max_uri", Size(1)..=Size(16 << 20), from)
}

fn max_connections<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    units::number("http.max_connections", 1..=10_000_000, from)
}

/// Serves until `shutdown` resolves. Then accepts no connections, lets requests in flight finish
/// within the grace period, and returns. A listener with `Tls` is for HTTPS.
pub async fn run(
    listeners: Vec<(Listener, Option<Arc<Tls>>)>,
    quic: Vec<QuicListener>,
    service: Arc<CurrentService>,
    shutdown: impl Future<Output = ()>,
) {
    if listeners.iter().any(|(_, tls)| tls.is_some()) {
        let reasons = &connection::handshake::REASONS;
        let service = service.load();
        service.accounting.metrics.expect_no_tls_failure(reasons);
    }
    let draining = CancellationToken::new();
    let connections = TaskTracker::new();
    let max = service.load().settings.max_connections;
    let limiter = Arc::new(ConnectionLimiter::new(max, "http.max_connections"));
    let quic: Vec<_> = quic.into_iter().map(Arc::new).collect();
    let mut accepting: Vec<_> = listeners
        .into_iter()
        .map(|(listener, tls)| {
            tokio::spawn(listener::accept::accept(
                listener,
                tls,
                service.clone(),
                connections.clone(),
                limiter.clone(),
                draining.clone(),
            ))
        })
        .collect();
    accepting.extend(quic.iter().map(|listener| {
        tokio::spawn(listener.clone().accept(
            service.clone(),
            connections.clone(),
            limiter.clone(),
            draining.clone(),
        ))
    }));
    shutdown.await;
    draining.cancel();
    for task in accepting {
        let _ = task.await;
    }
    connections.close();
    if !connections.is_empty() {
        info!(connections = connections.len(), "draining");
    }
    // A reload may have changed it.
    let limit = service.load().settings.shutdown_timeout.0;
    let _ = tokio::time::timeout(limit, connections.wait()).await;
    for listener in &quic {
        listener.end().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_to_php() {
        let mut settings = Settings::default();
        settings.fit_connections(1 << 20);
        assert_eq!(settings.max_connections, 32_768);
        settings.fit_connections(20_000);
        assert_eq!(settings.max_connections, 15_000);
    }
}

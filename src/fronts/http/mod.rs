//! HTTP: `surus serve`.

mod connection;
pub mod listener;
pub(crate) mod request;
pub mod transport;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::info;

pub use listener::{Address, Admission, Bound, Listener, Mode};
pub use request::Service;
pub use request::access_log::AccessLog;
pub use request::busy_poll::Lookout;

use crate::app::forwarded::Proxy;
use crate::budget;
use crate::spool::Spool;
use crate::units::{self, Size, Time};
use listener::connection_limit::Room;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where to listen: `127.0.0.1:8080`, `[::]:80`, `unix:/run/app.sock`.
    #[serde(deserialize_with = "listen_at")]
    pub listen: Vec<Address>,
    /// Who may connect to the unix sockets among them; when not set, `0660` for root, and else what
    /// the umask leaves.
    pub socket_mode: Option<Mode>,
    /// The user that reads requests when Surus is started as root: `surus` if there is one, else
    /// `www-data`, or `nobody` where PHP is `www-data`.
    pub user: Option<String>,
    /// The process that reads requests may open only the files that it needs (Landlock), when Surus
    /// is started as root.
    pub landlock: bool,
    /// It may not make system calls that a server has no use for (seccomp), when Surus is started
    /// as root.
    pub seccomp: bool,
    /// From a request's arrival to the first byte of its answer, and then from piece to piece: 504.
    /// What PHP does when its answer is complete has no limit.
    #[serde(deserialize_with = "timeout")]
    pub timeout: Time,
    /// Larger request bodies: 413.
    pub max_body: Size,
    /// Larger request heads: 431.
    #[serde(deserialize_with = "max_head")]
    pub max_head: Size,
    /// More header lines: 431.
    #[serde(deserialize_with = "max_headers")]
    pub max_headers: usize,
    /// Longer request targets: 414.
    #[serde(deserialize_with = "max_uri")]
    pub max_uri: Size,
    /// From the first byte of a request's head to its last.
    #[serde(deserialize_with = "head_timeout")]
    pub head_timeout: Time,
    /// Without a byte of the request's body: 408.
    #[serde(deserialize_with = "body_timeout")]
    pub body_timeout: Time,
    /// Without the client taking a byte of the response.
    #[serde(deserialize_with = "write_timeout")]
    pub write_timeout: Time,
    /// A connection between two requests.
    pub keep_alive: Time,
    /// One more takes the place of the connection that has been idle longest; where none is, it is
    /// closed at once.
    #[serde(deserialize_with = "max_connections")]
    pub max_connections: usize,
    /// Proxies whose `X-Forwarded-For`, `-Proto` and `-Host` are believed.
    #[serde(deserialize_with = "units::one_or_more")]
    pub trusted_proxies: Vec<Proxy>,
    /// Every connection begins with a PROXY header (version 1 or 2). Only `trusted_proxies` may
    /// connect then: a stranger could call itself anybody, and without the header there is nobody
    /// to call it by.
    pub proxy_protocol: bool,
    /// Where request bodies above 64 KiB are kept, and what clients do not take yet of their
    /// responses; the system's directory for temporary files when not set.
    pub spool: Option<PathBuf>,
    /// So much of a response is kept for a client that takes it more slowly than PHP makes it;
    /// beyond that PHP waits. 0 for none.
    pub max_response_spool: Size,
    /// Bytes of all requests and responses together that wait in memory. Beyond that they wait in
    /// files.
    pub buffer_memory: Size,
    /// Bytes of all such files. Beyond that PHP waits for its clients, and bodies of requests are
    /// refused: 507.
    pub max_spool: Size,
    /// What is in flight may take so long after SIGTERM.
    pub grace: Time,
    /// For so long after SIGTERM everything goes on but readiness.
    pub drain_delay: Time,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: vec![Address::Tcp(([127, 0, 0, 1], 8080).into())],
            socket_mode: None,
            user: None,
            landlock: true,
            seccomp: true,
            timeout: Time::seconds(60),
            max_body: Size(64 << 20),
            max_head: Size(32 << 10),
            max_headers: 100,
            max_uri: Size(8 << 10),
            head_timeout: Time::seconds(10),
            body_timeout: Time::seconds(30),
            write_timeout: Time::seconds(60),
            keep_alive: Time::seconds(75),
            max_connections: 10_000,
            trusted_proxies: Vec::new(),
            proxy_protocol: false,
            spool: None,
            max_response_spool: Size(1 << 30),
            buffer_memory: Size(budget::DEFAULT_MEMORY),
            max_spool: Size(budget::DEFAULT_SPOOL),
            grace: Time::seconds(60),
            drain_delay: Time::seconds(0),
        }
    }
}

impl Settings {
    /// Sets what all requests together may use, once per process.
    pub fn set_budgets(&self) {
        budget::MEMORY.set_limit(self.buffer_memory.0);
        budget::SPOOL.set_limit(self.max_spool.0);
    }

    /// Where responses wait for their clients.
    pub fn response_spool(&self) -> Option<Arc<Spool>> {
        let spool = || {
            Arc::new(Spool {
                directory: self.spool.clone(),
                max: self.max_response_spool.0,
            })
        };
        (self.max_response_spool.0 > 0).then(spool)
    }
}

fn listen_at<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Address>, D::Error> {
    let addresses = units::one_or_more(from)?;
    if addresses.is_empty() {
        let text = "http.listen is empty; nobody could reach the application";
        return Err(serde::de::Error::custom(text));
    }
    Ok(addresses)
}

fn timeout<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    units::wait("http.timeout", from)
}

fn head_timeout<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    units::wait("http.head_timeout", from)
}

fn body_timeout<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    units::wait("http.body_timeout", from)
}

fn write_timeout<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    units::wait("http.write_timeout", from)
}

/// hyper reads into 8 KiB at least.
fn max_head<'de, D: Deserializer<'de>>(from: D) -> Result<Size, D::Error> {
    units::size("http.max_head", Size(8 << 10)..=Size(16 << 20), from)
}

/// hyper has room for all of them in every request, and a `HeaderMap` takes no more than 24,576.
fn max_headers<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    units::number("http.max_headers", 1..=10_000, from)
}

fn max_uri<'de, D: Deserializer<'de>>(from: D) -> Result<Size, D::Error> {
    units::size("http.max_uri", Size(1)..=Size(16 << 20), from)
}

fn max_connections<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    units::number("http.max_connections", 1..=10_000_000, from)
}

/// Serves until `shutdown` resolves; then takes no new connections, lets what is in flight finish
/// within the grace period, and returns.
pub async fn run(
    listeners: Vec<Listener>,
    service: Arc<Service>,
    shutdown: impl Future<Output = ()>,
) {
    let draining = CancellationToken::new();
    let connections = TaskTracker::new();
    let room = Arc::new(Room::new(service.settings.max_connections));
    let grace = service.settings.grace.0;
    let accepting: Vec<_> = listeners
        .into_iter()
        .map(|listener| {
            tokio::spawn(connection::accept(
                listener,
                service.clone(),
                connections.clone(),
                room.clone(),
                draining.clone(),
            ))
        })
        .collect();
    let lookout = {
        let service = service.clone();
        tokio::spawn(async move { service.lookout.run().await })
    };
    shutdown.await;
    draining.cancel();
    for task in accepting {
        let _ = task.await;
    }
    connections.close();
    if !connections.is_empty() {
        info!(connections = connections.len(), "draining");
    }
    let _ = tokio::time::timeout(grace, connections.wait()).await;
    lookout.abort();
}

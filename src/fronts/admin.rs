//! For operators: health, readiness, metrics, status, reload. On a listener of its own, by default a unix socket that only
//! the user who started Surus can open.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::{debug, warn};

use super::http::{Address, Listener};
use crate::engine::{Engine, Pending};
use crate::observe::metrics::Metrics;
use crate::observe::status::EngineStatus;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where to listen; a unix socket named after the project when not set.
    pub listen: Option<Address>,
}

impl Settings {
    /// The address of a project's admin listener.
    pub fn address(&self, project: &Path) -> Address {
        self.listen
            .clone()
            .unwrap_or_else(|| Address::Unix(default_socket(project)))
    }
}

/// `/run/surus/srv-app.sock` for root, else below `$XDG_RUNTIME_DIR`, else below the directory for temporary files.
fn default_socket(project: &Path) -> PathBuf {
    let directory = if surus_sys::process::is_root() {
        PathBuf::from("/run/surus")
    } else {
        match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(runtime) => PathBuf::from(runtime).join("surus"),
            None => std::env::temp_dir().join(format!("surus-{}", surus_sys::process::uid())),
        }
    };
    let name = project
        .to_string_lossy()
        .trim_matches('/')
        .replace('/', "-");
    // A socket's path may have 107 bytes; the end of a long name says more than its beginning.
    let from = name.len().saturating_sub(60);
    let name = name.get(from..).unwrap_or("project");
    directory.join(format!(
        "{}.sock",
        if name.is_empty() { "root" } else { name }
    ))
}

/// What operators can ask for.
pub struct Admin {
    pub engines: Vec<Arc<dyn Engine>>,
    pub metrics: Arc<Metrics>,
    /// Set when the end has begun: not ready any more.
    pub draining: AtomicBool,
    /// Boots the application anew.
    pub reload: Box<dyn Fn() -> Pending<'static, anyhow::Result<()>> + Send + Sync>,
}

/// Binds the listener; a unix socket and its directory are for their owner only.
pub fn bind(address: &Address) -> anyhow::Result<Listener> {
    if let Address::Unix(path) = address {
        if let Some(directory) = path.parent().filter(|directory| !directory.exists()) {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)
                .with_context(|| {
                    format!("cannot make {} for the admin socket", directory.display())
                })?;
        }
        let listener = Listener::bind(address)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
            .with_context(|| format!("cannot protect {}", path.display()))?;
        return Ok(listener);
    }
    Listener::bind(address)
}

/// Serves until it is cancelled.
pub async fn run(listener: Listener, admin: Arc<Admin>) {
    loop {
        let accepted = match &listener {
            Listener::Tcp(listener) => listener
                .accept()
                .await
                .map(|(stream, _)| spawn(stream, admin.clone())),
            Listener::Unix(listener, _) => listener
                .accept()
                .await
                .map(|(stream, _)| spawn(stream, admin.clone())),
        };
        if let Err(error) = accepted {
            warn!(%error, "cannot accept an admin connection");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn spawn(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, admin: Arc<Admin>) {
    tokio::spawn(async move {
        let answer = service_fn(|request| {
            let admin = admin.clone();
            async move { Ok::<_, Infallible>(admin.answer(&request).await) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(Duration::from_secs(30))
            .serve_connection(TokioIo::new(stream), answer);
        if let Err(error) = connection.await {
            debug!(%error, "admin connection ended");
        }
    });
}

impl Admin {
    fn status(&self) -> Vec<EngineStatus> {
        self.engines.iter().map(|engine| engine.status()).collect()
    }

    fn ready(&self) -> Result<(), String> {
        if self.draining.load(Ordering::Acquire) {
            return Err("draining".into());
        }
        self.engines.iter().try_for_each(|engine| engine.ready())
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        match (is_read, request.uri().path()) {
            (true, "/-/health") => text(StatusCode::OK, "ok\n"),
            (true, "/-/ready") => match self.ready() {
                Ok(()) => text(StatusCode::OK, "ready\n"),
                Err(why) => text(
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!("not ready: {why}\n"),
                ),
            },
            (true, "/-/metrics" | "/metrics") => {
                let mut response = text(StatusCode::OK, self.metrics.text(&self.status()));
                let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                response
                    .headers_mut()
                    .insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
                response
            }
            (true, "/-/status") => match serde_json::to_string(&self.status()) {
                Ok(json) => text(StatusCode::OK, json),
                Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            },
            (false, "/-/reload") => match (self.reload)().await {
                Ok(()) => text(StatusCode::OK, "reloaded\n"),
                Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}\n")),
            },
            (_, "/-/reload") => text(StatusCode::METHOD_NOT_ALLOWED, "POST it\n"),
            _ => {
                let mut paths = String::from("not found; there are");
                for path in [
                    "/-/health",
                    "/-/ready",
                    "/-/metrics",
                    "/-/status",
                    "POST /-/reload",
                ] {
                    let _ = write!(paths, " {path}");
                }
                text(StatusCode::NOT_FOUND, paths + "\n")
            }
        }
    }
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response
}

/// Asks a running Surus; for `surus status` and `surus reload`.
pub async fn ask(
    address: &Address,
    method: Method,
    path: &str,
) -> anyhow::Result<(StatusCode, String)> {
    match address {
        Address::Unix(socket) => {
            let stream = tokio::net::UnixStream::connect(socket)
                .await
                .with_context(|| nobody(address))?;
            exchange(stream, method, path).await
        }
        Address::Tcp(address_) => {
            let stream = tokio::net::TcpStream::connect(address_)
                .await
                .with_context(|| nobody(address))?;
            exchange(stream, method, path).await
        }
    }
}

fn nobody(address: &Address) -> String {
    format!(
        "no running surus answers at {address}; is it started for this directory, and by this user?"
    )
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    method: Method,
    path: &str,
) -> anyhow::Result<(StatusCode, String)> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "surus")
        .body(Full::new(Bytes::new()))?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

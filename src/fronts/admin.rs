//! The admin endpoints for operators: health, readiness, metrics, status, dashboard and reload.
//!
//! They have a separate listener, by default a unix socket that only the user who started Surus can
//! open.

mod client;
mod dashboard;
mod forged;
mod sites;

use std::convert::Infallible;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use percent_encoding::percent_decode;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{debug, warn};

pub use self::client::{ask, open};
use self::dashboard::{Dashboard, DashboardBody};
use self::forged::{Reach, forged};
pub use self::sites::SiteEngines;
use super::address::Address;
use super::http::{Admission, Bound, Listener, SocketMode};
use super::queue::failed_jobs;
use super::queue::front::Front;
use super::queue::job::Failures;
use super::queue::operation::QueueStatus;
use crate::engine::Pending;
use crate::observe::metrics::Metrics;
use crate::observe::snapshot::Snapshot;
use crate::observe::status::{EngineStatus, SiteStatus};

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

    /// Binds the listener. Only the owner can access a unix socket and a directory created for it.
    pub fn bind(&self, project: &Path) -> anyhow::Result<Bound> {
        let address = self.address(project);
        let Address::Unix(path) = &address else {
            return Bound::bind(&address, "admin.listen", Admission::default())
                .context("the admin listener, for `surus status` and `surus reload`");
        };
        if let Some(directory) = path.parent() {
            surus_sys::trusted_path::directory(directory, Some(0o700)).with_context(|| {
                format!(
                    "cannot create {} for the admin socket; set another address in \
                         admin.listen, such as \
                         \"unix:/var/lib/app/admin.sock\" or \"127.0.0.1:9000\"",
                    directory.display()
                )
            })?;
            // An explicit directory is not checked.
            if self.listen.is_none() {
                check_directory(directory)?;
            }
        }
        let owner = Admission {
            mode: Some(SocketMode(0o600)),
            group: None,
        };
        Bound::bind(&address, "admin.listen", owner).with_context(|| {
            match std::os::unix::net::UnixStream::connect(path) {
                Ok(_) if self.listen.is_none() => {
                    "surus serves this project already: `surus status` shows it, `surus reload` \
                        reloads it"
                }
                _ => "the admin listener, for `surus status` and `surus reload`",
            }
        })
    }
}

/// The path of a file next to a project's default socket, where other users cannot write.
pub fn private_file(project: &Path, extension: &str) -> anyhow::Result<PathBuf> {
    let path = default_socket(project).with_extension(extension);
    let directory = path.parent().unwrap_or(Path::new("/"));
    surus_sys::trusted_path::directory(directory, Some(0o700))
        .with_context(|| format!("cannot create {}", directory.display()))?;
    check_directory(directory)?;
    Ok(path)
}

/// Rejects a directory that other users can write to: they could replace the socket by their own.
/// All users can write to the directory for temporary files, so another user may have made this
/// one.
fn check_directory(directory: &Path) -> anyhow::Result<()> {
    let found = std::fs::symlink_metadata(directory)
        .with_context(|| format!("cannot inspect {}", directory.display()))?;
    let why = if !found.is_dir() {
        "is not a directory".to_string()
    } else if found.uid() != surus_sys::process::uid() {
        format!("belongs to another user ({})", found.uid())
    } else if found.mode() & 0o022 != 0 {
        format!(
            "is writable by other users (mode {:o})",
            found.mode() & 0o777
        )
    } else {
        return Ok(());
    };
    bail!(
        "cannot use {} for the admin socket: it {why}; remove it, or set another socket in \
         admin.listen (SURUS_ADMIN_LISTEN)",
        directory.display()
    )
}

/// `/run/surus/srv-app-1b2c3d4e.sock` for root, else below `$XDG_RUNTIME_DIR`, else below the
/// directory for temporary files.
fn default_socket(project: &Path) -> PathBuf {
    let directory = if surus_sys::process::is_root() {
        PathBuf::from("/run/surus")
    } else {
        match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(runtime) => PathBuf::from(runtime).join("surus"),
            None => std::env::temp_dir().join(format!("surus-{}", surus_sys::process::uid())),
        }
    };
    let project = project.components().as_path();
    let name = project
        .to_string_lossy()
        .trim_matches('/')
        .replace('/', "-");
    // A socket path may have at most 107 bytes. The end of a long name is more specific than its
    // beginning.
    let mut ends = (name.len().saturating_sub(51)..).filter(|at| name.is_char_boundary(*at));
    let name = &name[ends.next().unwrap_or_default()..];
    let name = if name.is_empty() { "root" } else { name };
    directory.join(format!("{name}-{:08x}.sock", fingerprint(project)))
}

/// Distinguishes projects whose paths become the same file name (FNV-1a, stable across versions).
fn fingerprint(path: &Path) -> u32 {
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.iter().fold(0x811c9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

/// The operations of the admin listener.
pub struct Admin {
    /// The served project's directory.
    pub project: PathBuf,
    /// What is served now, by site.
    pub sites: Arc<dyn Fn() -> Vec<SiteEngines> + Send + Sync>,
    /// The queues that run now in `surus work`.
    pub queues: Arc<dyn Fn() -> Vec<Arc<Front>> + Send + Sync>,
    pub metrics: Arc<Metrics>,
    /// Set when a shutdown has begun: no longer ready.
    pub draining: AtomicBool,
    pub dashboard: Arc<Dashboard>,
    /// Boots the application again.
    pub reload: Box<dyn Fn() -> Pending<'static, anyhow::Result<()>> + Send + Sync>,
}

/// Connections at a time; further ones wait in the kernel. The site needs the descriptors.
const MAX_CONNECTIONS: usize = 64;

/// Serves until it is cancelled.
pub async fn run(listener: Listener, admin: Arc<Admin>) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else {
            return;
        };
        let accepted = match &listener {
            Listener::Tcp(listener) => listener.accept().await.map(|(stream, _)| {
                let reach = Reach::of(stream.local_addr());
                spawn(stream, admin.clone(), reach, slot);
            }),
            Listener::Unix(listener, _) => listener
                .accept()
                .await
                .map(|(stream, _)| spawn(stream, admin.clone(), Reach::Socket, slot)),
        };
        if let Err(error) = accepted {
            warn!(%error, "cannot accept an admin connection");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn spawn(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    admin: Arc<Admin>,
    reach: Reach,
    slot: OwnedSemaphorePermit,
) {
    tokio::spawn(async move {
        let _slot = slot;
        let answer = service_fn(|request| {
            let admin = admin.clone();
            async move {
                let response = match forged(&request, reach) {
                    Some(rejected) => rejected.map(BodyExt::boxed_unsync),
                    None => admin.respond(&request).await,
                };
                Ok::<_, Infallible>(response)
            }
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
        sites::engines(&(self.sites)())
    }

    fn sites(&self) -> Vec<SiteStatus> {
        sites::reported((self.sites)())
    }

    async fn queues(&self) -> Vec<QueueStatus> {
        let mut queues = Vec::new();
        for front in (self.queues)() {
            queues.extend(front.status().await);
        }
        queues
    }

    /// Pauses queues or lets them go on: `queue=NAME`, or all.
    fn pause(&self, query: Option<&str>, is_paused: bool) -> Response<Full<Bytes>> {
        let named = query.and_then(|query| query.strip_prefix("queue="));
        let named = named.map(|name| percent_decode(name.as_bytes()).decode_utf8_lossy());
        let found: Vec<String> = (self.queues)()
            .iter()
            .flat_map(|front| front.pause(named.as_deref(), is_paused))
            .collect();
        if found.is_empty() {
            let named = named.unwrap_or_default();
            let why = format!("this surus does not work on a queue {named:?}\n");
            return text(StatusCode::NOT_FOUND, why);
        }
        json(&found)
    }

    /// Retries or forgets a failed job.
    async fn change(&self, requested: Failures) -> Response<Full<Bytes>> {
        match failed_jobs::change(&(self.queues)(), &requested).await {
            Ok(found) => json(&found),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}\n")),
        }
    }

    fn ready(&self) -> Result<(), String> {
        if self.draining.load(Ordering::Acquire) {
            return Err("draining".into());
        }
        sites::ready(&(self.sites)())
    }

    /// Whether `project` is the served project, possibly under another path.
    fn serves(&self, project: &Path) -> bool {
        let real = |path: &Path| path.canonicalize().ok();
        project == self.project || real(project).is_some_and(|it| real(&self.project) == Some(it))
    }

    async fn respond(&self, request: &Request<Incoming>) -> Response<DashboardBody> {
        let is_get = *request.method() == Method::GET;
        if let Some(misdirected) = self.misdirected(request) {
            return misdirected.map(BodyExt::boxed_unsync);
        }
        let answer = match (is_get, request.uri().path()) {
            (true, "/-/dashboard") => return dashboard::page(),
            (true, "/-/events") => {
                let (sites, metrics) = (self.sites.clone(), self.metrics.clone());
                return self.dashboard.stream(move |observer| {
                    let sites = sites();
                    let sampled = observer.sample(&metrics, sites::engines(&sites));
                    Snapshot {
                        sites: sites::troubled(sites),
                        ..sampled
                    }
                });
            }
            _ => self.answer(request).await,
        };
        answer.map(BodyExt::boxed_unsync)
    }

    /// The answer to a request for another project.
    fn misdirected(&self, request: &Request<Incoming>) -> Option<Response<Full<Bytes>>> {
        if let Some(encoded) = request.headers().get(&PROJECT) {
            let bytes = percent_decode(encoded.as_bytes()).collect();
            let project = PathBuf::from(OsString::from_vec(bytes));
            if !self.serves(&project) {
                let (ours, theirs) = (self.project.display(), project.display());
                let why = format!("this surus serves {ours}, not {theirs}\n");
                return Some(text(StatusCode::MISDIRECTED_REQUEST, why));
            }
        }
        None
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
                // Counts their jobs.
                self.queues().await;
                let mut response = text(StatusCode::OK, self.metrics.text(&self.status()));
                let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                response
                    .headers_mut()
                    .insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
                response
            }
            (true, "/-/status") => json(&self.status()),
            (true, "/-/sites") => json(&self.sites()),
            (true, "/-/certificates") => json(&self.metrics.certificates()),
            (true, "/-/acme") => json(&self.metrics.acme.last()),
            (true, "/-/queues") => json(&self.queues().await),
            (true, "/-/failed") => json(&failed_jobs::list(&(self.queues)()).await),
            (false, "/-/retry") => self.change(Failures::Retry(id(request))).await,
            (false, "/-/forget") => self.change(Failures::Forget(id(request))).await,
            (false, "/-/pause") => self.pause(request.uri().query(), true),
            (false, "/-/resume") => self.pause(request.uri().query(), false),
            (false, "/-/reload") => match (self.reload)().await {
                Ok(()) => text(StatusCode::OK, "reloaded\n"),
                Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}\n")),
            },
            (_, "/-/reload" | "/-/pause" | "/-/resume" | "/-/retry" | "/-/forget") => {
                text(StatusCode::METHOD_NOT_ALLOWED, "POST it\n")
            }
            _ => {
                let mut paths = String::from("not found; there are");
                for path in [
                    "/-/health",
                    "/-/ready",
                    "/-/metrics",
                    "/-/status",
                    "/-/sites",
                    "/-/certificates",
                    "/-/acme",
                    "/-/dashboard",
                    "/-/events",
                    "/-/queues",
                    "/-/failed",
                    "POST /-/reload",
                    "POST /-/pause",
                    "POST /-/resume",
                    "POST /-/retry",
                    "POST /-/forget",
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

/// The id of a failed job: `id=ID` or `id=QUEUE/ID`.
fn id(request: &Request<Incoming>) -> String {
    let query = request.uri().query().unwrap_or_default();
    let id = query.strip_prefix("id=").unwrap_or_default();
    percent_decode(id.as_bytes()).decode_utf8_lossy().into()
}

fn json(value: &impl Serialize) -> Response<Full<Bytes>> {
    match serde_json::to_string(value) {
        Ok(json) => text(StatusCode::OK, json),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// The project that a request is for, percent-encoded. Without it, any project answers.
static PROJECT: HeaderName = HeaderName::from_static("surus-project");

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn default_socket_differs_for_every_project() {
        let name = |project: &str| {
            let socket = default_socket(Path::new(project));
            socket.file_name().unwrap().to_str().unwrap().to_string()
        };
        let long = "x".repeat(60);
        let different = [
            "/",
            "/root",
            "/col/a/b",
            "/col/a-b",
            "/col-a/b",
            &format!("/one/{long}"),
            &format!("/two/{long}"),
            &format!("/{}", "\u{e4}".repeat(60)),
        ];
        let names: std::collections::BTreeSet<_> = different.into_iter().map(name).collect();
        assert_eq!(names.len(), different.len(), "{names:?}");
        assert!(name("/srv/app").starts_with("srv-app-"));
        assert_eq!(name("/srv/app"), name("/srv/app/"));
        assert!(names.iter().all(|name| name.len() <= 65), "{names:?}");
    }

    #[test]
    fn socket_directory_writable_by_others_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        let check = |mode| {
            std::fs::set_permissions(place, PermissionsExt::from_mode(mode)).unwrap();
            check_directory(place).map_err(|error| error.to_string())
        };
        assert_eq!(check(0o700), Ok(()));
        assert_eq!(check(0o755), Ok(()));
        for mode in [0o770, 0o777, 0o702] {
            let why = check(mode).unwrap_err();
            assert!(why.contains("writable by other users") && why.contains("admin.listen"));
        }
        check(0o700).unwrap();
        let link = place.join("link");
        std::os::unix::fs::symlink(place, &link).unwrap();
        assert!(check_directory(&link).is_err());
    }
}

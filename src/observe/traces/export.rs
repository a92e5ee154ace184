//! Sends traces to a collector (OTLP over HTTP, binary protobuf), in batches and apart from
//! requests.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};
use tracing::{info, warn};

use super::otlp::{
    ExportRequest, ExportResponse, Resource, ResourceSpans, Scope, ScopeSpans, attribute,
};
use super::settings::{ExporterLimits, Settings, address};
use super::trace::EndedTrace;
use crate::connect;
use crate::observe::metrics::Metrics;
use crate::observe::rate_limit::RateLimit;

/// How often a batch is sent before it is dropped.
const TRIES: u32 = 4;

/// The longest pause that a collector may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The largest response that is read.
const MAX_RESPONSE: usize = 64 << 10;

/// The running exporter.
pub struct Handle {
    flush: mpsc::Sender<oneshot::Sender<()>>,
}

impl Handle {
    pub async fn flush(&self, limit: Duration) {
        let (done, wait) = oneshot::channel();
        let flush = async {
            if self.flush.send(done).await.is_ok() {
                let _ = wait.await;
            }
        };
        if tokio::time::timeout(limit, flush).await.is_err() {
            warn!("the last traces could not be sent in time (telemetry.endpoint)");
        }
    }
}

pub fn start(
    settings: &Settings,
    uri: Uri,
    ended: mpsc::Receiver<Box<EndedTrace>>,
    metrics: Arc<Metrics>,
) -> Handle {
    let (flush, flushes) = mpsc::channel(1);
    let mut resource = vec![
        attribute(
            "service.name",
            settings.service_name.as_deref().unwrap_or("surus"),
        ),
        attribute("telemetry.sdk.name", "surus"),
        attribute("telemetry.sdk.language", "rust"),
        attribute("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
    ];
    let more = settings.resource.iter();
    resource.extend(more.map(|(name, value)| attribute(name, value.as_str())));
    let exporter = Exporter {
        uri,
        headers: settings.headers.clone(),
        addresses: settings.addresses.clone(),
        resource: Resource {
            attributes: resource,
        },
        limits: settings.limits,
        metrics,
        connection: Mutex::new(None),
    };
    info!(endpoint = %exporter.uri, "requests are traced");
    tokio::spawn(exporter.run(ended, flushes));
    Handle { flush }
}

struct Exporter {
    uri: Uri,
    headers: BTreeMap<String, String>,
    addresses: Vec<SocketAddr>,
    resource: Resource,
    limits: ExporterLimits,
    metrics: Arc<Metrics>,
    connection: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

/// Why a batch was not accepted.
enum BatchRejection {
    /// It may be later, after this pause if the collector has named one.
    Later(anyhow::Error, Option<Duration>),
    Final(anyhow::Error),
}

impl Exporter {
    async fn run(
        self,
        mut ended: mpsc::Receiver<Box<EndedTrace>>,
        mut flushes: mpsc::Receiver<oneshot::Sender<()>>,
    ) {
        let limit = self.limits.batch;
        loop {
            let mut batch = Vec::new();
            let mut flushed = None;
            // The first trace, and those that end soon after it.
            tokio::select! {
                first = ended.recv() => match first {
                    Some(first) => batch.push(first),
                    None => return,
                },
                done = flushes.recv() => flushed = done,
            }
            if flushed.is_none() {
                let delay = tokio::time::sleep(self.limits.delay);
                tokio::pin!(delay);
                while batch.len() < limit && flushed.is_none() {
                    let room = limit - batch.len();
                    tokio::select! {
                        count = ended.recv_many(&mut batch, room) => if count == 0 {
                            break;
                        },
                        done = flushes.recv() => flushed = done,
                        () = &mut delay => break,
                    }
                }
            }
            loop {
                if flushed.is_some() {
                    while batch.len() < limit
                        && let Ok(next) = ended.try_recv()
                    {
                        batch.push(next);
                    }
                }
                if batch.is_empty() {
                    break;
                }
                let is_last = flushed.is_some();
                tokio::select! {
                    () = self.export(&batch, is_last) => batch.clear(),
                    // A shutdown does not wait for pauses between tries.
                    done = flushes.recv(), if !is_last => flushed = done,
                }
                if flushed.is_none() {
                    break;
                }
            }
            if let Some(done) = flushed {
                let _ = done.send(());
            }
        }
    }

    /// Sends a batch, more than once if that may help.
    async fn export(&self, batch: &[Box<EndedTrace>], is_last: bool) {
        let spans: Vec<_> = batch.iter().flat_map(|ended| ended.to_spans()).collect();
        let count = spans.len() as u64;
        let request = ExportRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(self.resource.clone()),
                scope_spans: vec![ScopeSpans {
                    scope: Some(Scope {
                        name: "surus".into(),
                        version: env!("CARGO_PKG_VERSION").into(),
                    }),
                    spans,
                }],
            }],
        };
        let body = Bytes::from(request.encode_to_vec());
        let tries = if is_last { 1 } else { TRIES };
        for number in 1..=tries {
            let sent = tokio::time::timeout(self.limits.timeout, self.send(body.clone())).await;
            let sent = sent.unwrap_or_else(|_| {
                Err(BatchRejection::Later(
                    anyhow!("no response from the collector in time"),
                    None,
                ))
            });
            let (error, pause) = match sent {
                Ok(rejected) => {
                    let rejected = rejected.min(count);
                    self.metrics.traces.count("exported", count - rejected);
                    if rejected > 0 {
                        self.metrics.traces.count("rejected", rejected);
                    }
                    return;
                }
                Err(BatchRejection::Later(error, pause)) if number < tries => (error, pause),
                Err(BatchRejection::Later(error, _) | BatchRejection::Final(error)) => {
                    self.metrics.traces.count("failed", count);
                    return tell(&error);
                }
            };
            tell(&error);
            let usual = Duration::from_secs(1 << (number - 1));
            tokio::time::sleep(pause.unwrap_or(usual).min(LONGEST_PAUSE)).await;
        }
    }

    /// Sends a batch once. Returns how many spans the collector has rejected.
    async fn send(&self, body: Bytes) -> Result<u64, BatchRejection> {
        let later = |error| BatchRejection::Later(error, None);
        let kept = self.lock().take();
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.connect().await.map_err(later)?,
        };
        if connection.ready().await.is_err() {
            connection = self.connect().await.map_err(later)?;
        }
        let request = self.request(body).map_err(BatchRejection::Final)?;
        let response = connection.send_request(request).await;
        let response = response.map_err(|error| later(error.into()))?;
        let status = response.status();
        let pause = response.headers().get(header::RETRY_AFTER);
        let pause = pause.and_then(|pause| pause.to_str().ok()?.parse().ok());
        let body = Limited::new(response.into_body(), MAX_RESPONSE)
            .collect()
            .await;
        let body = body.map_err(|error| later(anyhow!(error)))?.to_bytes();
        *self.lock() = Some(connection);
        if status.is_success() {
            let answer = ExportResponse::decode(body).unwrap_or_default();
            let rejected = answer
                .partial_success
                .map_or(0, |partial| partial.rejected_spans);
            return Ok(u64::try_from(rejected).unwrap_or(0));
        }
        let error = anyhow!("the collector answered {status}");
        match status {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => {
                Err(BatchRejection::Later(error, pause.map(Duration::from_secs)))
            }
            _ => Err(BatchRejection::Final(error)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<SendRequest<Full<Bytes>>>> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn request(&self, body: Bytes) -> anyhow::Result<Request<Full<Bytes>>> {
        let host = self.uri.authority().context("the endpoint has no host")?;
        let target = self
            .uri
            .path_and_query()
            .map_or("/", |target| target.as_str());
        let mut request = Request::post(target)
            .header(header::HOST, host.as_str())
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .header(
                header::USER_AGENT,
                concat!("surus/", env!("CARGO_PKG_VERSION")),
            );
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        Ok(request.body(Full::new(body))?)
    }

    async fn connect(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let (host, port) = address(&self.uri);
        let stream = match self.addresses.is_empty() {
            true => connect::to_host(&host, port).await,
            false => connect::to_any(&self.addresses).await,
        };
        let stream = stream.with_context(|| format!("cannot connect to {host}:{port}"))?;
        stream.set_nodelay(true)?;
        if self.uri.scheme_str() != Some("https") {
            return start_http(stream).await;
        }
        let name = ServerName::try_from(host)?;
        start_http(tls()?.connect(name, stream).await?).await
    }
}

async fn start_http(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> anyhow::Result<SendRequest<Full<Bytes>>> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with its sender.
    tokio::spawn(connection);
    if sender.is_closed() {
        bail!("the collector closed the connection");
    }
    Ok(sender)
}

fn tls() -> anyhow::Result<TlsConnector> {
    let roots = RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Logs rarely, because a collector may be away for long.
fn tell(error: &anyhow::Error) {
    static REPORTED: RateLimit = RateLimit::new();
    if REPORTED.is_time(std::time::Instant::now()) {
        warn!(
            error = format!("{error:#}"),
            "cannot send traces (telemetry.endpoint); requests go on"
        );
    }
}

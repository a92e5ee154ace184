//! TLS for the HTTP front end: its settings, and the certificates that it serves at the moment.

pub mod certificates;
pub mod files;
pub mod variables;
pub mod watch;
mod x509;

use std::sync::Arc;

use anyhow::{Context, bail};
use arc_swap::ArcSwap;
use rustls::crypto::ring;
use rustls::server::{ProducesTickets, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};
use tracing::{info, warn};

pub use settings::{ClientCertificate, MinVersion, Settings};

use self::certificates::{ByName, Served};
use self::files::Files;
use crate::engine::Pending;
use crate::fronts::http::listener::connection_limit::ConnectionLimiter;
use crate::observe::metrics::Metrics;

mod settings;

/// Reads the files, or has the keeper read them.
pub type Source = Box<dyn Fn() -> Pending<'static, anyhow::Result<Files>> + Send + Sync>;

/// What all TLS connections share.
pub struct Tls {
    pub settings: Settings,
    /// The handshakes in flight.
    pub handshakes: Arc<ConnectionLimiter>,
    source: Source,
    current: ArcSwap<Loaded>,
    metrics: Arc<Metrics>,
}

/// Certificates and keys, ready to be served.
pub struct Loaded {
    files: Files,
    config: Arc<ServerConfig>,
    certificates: Vec<Served>,
    ticketer: Arc<dyn ProducesTickets>,
}

impl Tls {
    /// Reads the certificates. An error says why they cannot be served.
    pub async fn start(
        settings: Settings,
        source: Source,
        metrics: Arc<Metrics>,
    ) -> anyhow::Result<Arc<Tls>> {
        let loaded = Loaded::new(&settings, source().await?, None)?;
        loaded.report(&metrics);
        let limiter = ConnectionLimiter::new(settings.max_handshakes, "tls.max_handshakes");
        Ok(Arc::new(Tls {
            settings,
            handshakes: Arc::new(limiter),
            source,
            current: ArcSwap::from_pointee(loaded),
            metrics,
        }))
    }

    /// The configuration for a new connection.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.current.load().config.clone()
    }

    /// Reads the files again. None if they are as they were.
    pub async fn read(&self) -> anyhow::Result<Option<Files>> {
        let files = (self.source)().await?;
        Ok((files != self.current.load().files).then_some(files))
    }

    /// Checks what was read. The current certificates stay until
    /// [`change_over`](Self::change_over).
    pub fn prepare(&self, files: Files) -> anyhow::Result<Loaded> {
        Loaded::new(&self.settings, files, Some(&self.current.load()))
    }

    /// New connections get these certificates. Open connections keep theirs.
    pub fn change_over(&self, loaded: Loaded) {
        loaded.report(&self.metrics);
        self.current.store(Arc::new(loaded));
    }

    /// Warns of certificates that have ended or end soon.
    fn warn_of_ends(&self) {
        self.current.load().warn();
    }
}

impl Loaded {
    pub fn new(
        settings: &Settings,
        files: Files,
        before: Option<&Loaded>,
    ) -> anyhow::Result<Loaded> {
        if files.pairs.is_empty() {
            bail!(
                "tls.listen needs a certificate; name its PEM file in tls.certificate and its \
                 key's in tls.key"
            );
        }
        let provider = Arc::new(ring::default_provider());
        let served = files.pairs.iter().map(|pair| Served::read(pair, &provider));
        let certificates: Vec<Served> = served.collect::<anyhow::Result<_>>()?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions(settings.min_version))?;
        let builder = match &files.client_ca {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let roots = Arc::new(certificates::authorities(file)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match settings.client_certificate {
                    ClientCertificate::Require => verifier,
                    ClientCertificate::Optional => verifier.allow_unauthenticated(),
                };
                builder.with_client_cert_verifier(verifier.build().context("tls.client_ca")?)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(ByName::new(&certificates)));
        config.alpn_protocols = [&b"h2"[..], b"http/1.1", b"http/1.0"]
            .map(Vec::from)
            .to_vec();
        // The order of the suites is then that of the server, as scanners ask for.
        config.ignore_client_order = true;
        // A resumed session does not present its client certificate again, so tickets must not
        // outlive the authorities that it was checked against.
        let kept = before.filter(|before| before.files.client_ca == files.client_ca);
        let ticketer = match kept {
            Some(before) => before.ticketer.clone(),
            None => ring::Ticketer::new().context("cannot make a key for session tickets")?,
        };
        config.ticketer = ticketer.clone();
        Ok(Loaded {
            files,
            config: Arc::new(config),
            certificates,
            ticketer,
        })
    }

    /// Logs the certificates and sets their metrics.
    fn report(&self, metrics: &Metrics) {
        for served in &self.certificates {
            info!(
                certificate = %served.path.display(),
                names = ?served.about.names,
                ends = %httpdate::fmt_http_date(served.ends()),
                "certificate read"
            );
        }
        self.warn();
        let ends = |served: &Served| (served.path.display().to_string(), served.about.not_after);
        metrics.set_certificates(self.certificates.iter().map(ends));
    }

    fn warn(&self) {
        for trouble in self.troubles() {
            warn!("{trouble}");
        }
    }

    /// What is wrong with the files, though they can be served.
    pub fn troubles(&self) -> impl Iterator<Item = String> {
        let keys = self.files.pairs.iter().map(|pair| &pair.key);
        let public = keys.filter(|key| key.is_public).map(|key| {
            format!(
                "{} (tls.key): every user of this machine may read the key; remove that \
                 permission (chmod o-r)",
                key.path.display()
            )
        });
        self.certificates
            .iter()
            .filter_map(Served::warning)
            .chain(public)
    }

    /// The certificates, as `surus check` lists them.
    pub fn certificates(&self) -> &[Served] {
        &self.certificates
    }
}

fn versions(least: MinVersion) -> &'static [&'static SupportedProtocolVersion] {
    static ALL: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
    match least {
        MinVersion::Tls12 => &ALL,
        MinVersion::Tls13 => &ALL[..1],
    }
}

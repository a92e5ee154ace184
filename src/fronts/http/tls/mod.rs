//! TLS for the HTTP front end: its settings, and the certificates that it serves at the moment.

pub mod acme;
pub mod certificates;
pub mod clock;
pub mod files;
pub mod variables;
pub mod watch;
mod x509;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use anyhow::{Context, bail};
use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ProducesTickets, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};
use tokio::sync::Notify;
use tracing::{error, info, warn};

pub use settings::{ClientCertificate, MinVersion, Settings};

use self::acme::answers::{self, ChallengeAnswers};
use self::acme::settings::Domain;
use self::certificates::{BySite, Served};
use self::files::{Acquired, TlsFiles};
use crate::app::by_host::ByHost;
use crate::engine::Pending;
use crate::fronts::http::listener::connection_limit::ConnectionLimiter;
use crate::observe::activity::Activity;
use crate::observe::metrics::Metrics;

mod settings;

/// Reads the files, in this process or through the keeper.
pub type TlsFileSource = Box<dyn Fn() -> Pending<'static, anyhow::Result<TlsFiles>> + Send + Sync>;

/// Where certificates come from, and which sites they are for.
pub struct CertificateSource {
    /// The names of the sites by host.
    pub hosts: Arc<ByHost<String>>,
    pub read: TlsFileSource,
}

/// What all TLS connections share.
pub struct Tls {
    /// Those of the start. A reload changes only what `source` reads.
    pub settings: Settings,
    /// The handshakes in flight.
    pub handshakes: Arc<ConnectionLimiter>,
    /// Each handshake that begins, for the task of `watch.rs`.
    connecting: Activity,
    /// What authorities are answered when they validate a domain.
    pub answers: Arc<ChallengeAnswers>,
    /// The clock of this machine was set, so that certificates may be due.
    pub clock_moved: Notify,
    /// Locked while it is decided which certificates are served.
    source: Mutex<Arc<CertificateSource>>,
    /// Locked by `watch::reload`, so that a slow reading replaces no later one.
    reloading: tokio::sync::Mutex<()>,
    current: ArcSwap<Loaded>,
    metrics: Arc<Metrics>,
}

/// Files that have changed, and the source that has read them.
pub struct ChangedFiles {
    source: Arc<CertificateSource>,
    files: TlsFiles,
}

/// The same, ready to be served while no other source has taken over.
pub struct PreparedFiles {
    source: Arc<CertificateSource>,
    loaded: Loaded,
}

/// Certificates and keys, ready to be served.
pub struct Loaded {
    files: TlsFiles,
    config: Arc<ServerConfig>,
    /// For HTTP/3.
    quic: Arc<ServerConfig>,
    certificates: Vec<Served>,
    /// Those of the domains of `[acme]`.
    acquired: BTreeMap<String, Served>,
    /// The sites whose files cannot be used, and why. If they could be used before, what they had
    /// then is served.
    unusable: BTreeMap<String, String>,
    /// The domains of `[acme]` without a certificate of an authority, or with an expired one.
    pending: BTreeSet<String>,
    /// Those of them that no certificate is for. An expired one counts: the clock of this machine
    /// may be wrong.
    uncovered: BTreeSet<String>,
    ticketer: Arc<dyn ProducesTickets>,
}

impl Tls {
    /// Reads the certificates. An error says why they cannot be served.
    pub async fn start(
        settings: Settings,
        source: CertificateSource,
        answers: Arc<ChallengeAnswers>,
        metrics: Arc<Metrics>,
    ) -> anyhow::Result<Arc<Tls>> {
        let files = (source.read)().await?;
        let loaded = Loaded::new(&settings, &source.hosts, files, None, &answers)?;
        loaded.report(&metrics);
        for (site, error) in &loaded.unusable {
            error!(site, error, "the certificates of a site cannot be used");
        }
        answers.set_pending(loaded.uncovered.clone());
        let limiter = ConnectionLimiter::new(settings.max_handshakes, "tls.max_handshakes");
        Ok(Arc::new(Tls {
            settings,
            handshakes: Arc::new(limiter),
            connecting: Activity::new(),
            answers,
            clock_moved: Notify::new(),
            source: Mutex::new(Arc::new(source)),
            reloading: tokio::sync::Mutex::default(),
            current: ArcSwap::from_pointee(loaded),
            metrics,
        }))
    }

    /// The configuration for a new connection.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.connecting.record();
        self.current.load().config.clone()
    }

    /// The same for a new connection of HTTP/3.
    pub fn quic_config(&self) -> Arc<ServerConfig> {
        self.connecting.record();
        self.current.load().quic.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Arc<CertificateSource>> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the files again. None if they are as they were.
    pub async fn read(&self) -> anyhow::Result<Option<ChangedFiles>> {
        let source = self.lock().clone();
        let files = (source.read)().await?;
        let has_changed = files != self.current.load().files;
        Ok(has_changed.then_some(ChangedFiles { source, files }))
    }

    /// Checks what was read. The current certificates stay until
    /// [`change_over`](Self::change_over).
    pub fn prepare(&self, changed: ChangedFiles) -> anyhow::Result<PreparedFiles> {
        let ChangedFiles { source, files } = changed;
        let loaded = self.prepare_for(&source, files)?;
        Ok(PreparedFiles { source, loaded })
    }

    /// The same for certificates of another source.
    pub async fn prepare_from(&self, source: &CertificateSource) -> anyhow::Result<Loaded> {
        let files = (source.read)().await?;
        self.prepare_for(source, files)
    }

    fn prepare_for(&self, source: &CertificateSource, files: TlsFiles) -> anyhow::Result<Loaded> {
        let before = self.current.load();
        let (settings, hosts) = (&self.settings, &source.hosts);
        Loaded::new(settings, hosts, files, Some(&before), &self.answers)
    }

    /// Serves certificates of another source.
    pub fn exchange(&self, source: CertificateSource, loaded: Loaded) {
        let mut current = self.lock();
        *current = Arc::new(source);
        self.serve(loaded);
    }

    /// New connections get these certificates, unless another source has taken over since they were
    /// read. Open connections keep theirs.
    pub fn change_over(&self, PreparedFiles { source, loaded }: PreparedFiles) {
        let current = self.lock();
        if Arc::ptr_eq(&current, &source) {
            self.serve(loaded);
        }
    }

    fn serve(&self, loaded: Loaded) {
        loaded.report(&self.metrics);
        self.answers.set_pending(loaded.uncovered.clone());
        self.current.store(Arc::new(loaded));
    }

    /// Why the certificates of this site cannot be used, as they were read last.
    pub fn site_error(&self, site: &str) -> Option<String> {
        self.current.load().unusable.get(site).cloned()
    }

    /// Why the certificate of this domain of `[acme]` is not stored, though it is served.
    pub fn unstored(&self, domain: &str) -> Option<String> {
        let loaded = self.current.load();
        let mut acquired = loaded.files.acquired.iter();
        acquired
            .find(|acquired| acquired.domain == domain)
            .and_then(|acquired| acquired.unstored.clone())
    }

    /// Whether one of the certificates is for this host.
    pub fn is_covered(&self, host: &str) -> bool {
        let loaded = self.current.load();
        loaded.certificates.iter().any(|served| served.is_for(host))
    }

    /// An error if those of any site cannot be used.
    pub fn check_sites(&self) -> anyhow::Result<()> {
        let loaded = self.current.load();
        let errors = loaded.unusable.iter();
        let errors: Vec<_> = errors
            .map(|(site, error)| format!("{site}: {error}"))
            .collect();
        match errors.is_empty() {
            true => Ok(()),
            false => bail!(
                "certificates of sites cannot be used and stay as they were: {}",
                errors.join("; ")
            ),
        }
    }

    /// Warns of certificates that have ended or end soon.
    fn warn_of_ends(&self) {
        self.current.load().warn();
    }
}

impl Loaded {
    pub fn new(
        settings: &Settings,
        hosts: &Arc<ByHost<String>>,
        files: TlsFiles,
        before: Option<&Loaded>,
        answers: &Arc<ChallengeAnswers>,
    ) -> anyhow::Result<Loaded> {
        if files.pairs.is_empty() && files.acquired.is_empty() && files.sites.is_empty() {
            bail!(
                "tls.listen needs a certificate; name its PEM file in tls.certificate and its \
                 key's in tls.key, or the hosts to get certificates for in acme.domains"
            );
        }
        let provider = Arc::new(ring::default_provider());
        let served = files.pairs.iter().map(|pair| Served::read(pair, &provider));
        let mut certificates: Vec<Served> = served.collect::<anyhow::Result<_>>()?;
        let now = SystemTime::now();
        let mut pending = BTreeSet::new();
        let (mut missing, mut all_acquired) = (Vec::new(), BTreeMap::new());
        for acquired in &files.acquired {
            let domain = &acquired.domain;
            let usable = usable(acquired, &provider);
            // Neither damage nor a failed renewal takes a certificate from clients.
            let may_lack = usable.len() < acquired.files.len() || files.unrenewed.is_some();
            let before = before.filter(|_| may_lack);
            let before = before.and_then(|before| before.acquired.get(domain).cloned());
            let Some(served) = usable.into_iter().chain(before).max_by_key(Served::ends) else {
                pending.insert(domain.clone());
                missing.push(domain.clone());
                continue;
            };
            if served.ends() <= now {
                pending.insert(domain.clone());
            }
            certificates.push(served.clone());
            all_acquired.insert(domain.clone(), served);
        }
        let is_local = |domain: &String| domain.parse::<Domain>().is_ok_and(|it| it.is_local());
        if let Some(why) = &files.unrenewed
            && missing.iter().any(is_local)
        {
            bail!("{why}");
        }
        let mut unusable = BTreeMap::new();
        for own in &files.sites {
            match Served::of_site(own, &provider) {
                Ok(served) => certificates.extend(served),
                Err(error) => {
                    unusable.insert(own.site.clone(), format!("{error:#}"));
                    let before = before.into_iter().flat_map(|before| &before.certificates);
                    certificates.extend(before.filter(|it| it.site == own.site).cloned());
                }
            }
        }
        let is_covered = |domain: &String| certificates.iter().any(|it| it.is_for(domain));
        let uncovered = missing.iter().filter(|domain| !is_covered(domain));
        let uncovered: BTreeSet<String> = uncovered.cloned().collect();
        let placeholder = match uncovered.is_empty() {
            true => None,
            false => {
                let hosts: Vec<String> = uncovered.iter().cloned().collect();
                let key = answers::placeholder(&hosts, &provider);
                Served::placeholder(hosts, key.context("cannot make a certificate")?)
            }
        };
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions(settings.min_version))?;
        let builder = match &files.client_ca {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let roots = Arc::new(certificates::authorities(file, "tls.client_ca")?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match settings.client_certificate {
                    ClientCertificate::Require => verifier,
                    ClientCertificate::Optional => verifier.allow_unauthenticated(),
                };
                builder.with_client_cert_verifier(verifier.build().context("tls.client_ca")?)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(Resolver {
            by_site: BySite::new(hosts, &certificates, placeholder.as_ref()),
            answers: answers.clone(),
        }));
        let validation = (!files.acquired.is_empty()).then_some(answers::PROTOCOL);
        let protocols = [&b"h2"[..], b"http/1.1", b"http/1.0"];
        let protocols = protocols.into_iter().chain(validation);
        config.alpn_protocols = protocols.map(Vec::from).collect();
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
        // Without early data (0-RTT), as over TCP: an attacker can repeat it.
        let mut quic = config.clone();
        quic.alpn_protocols = vec![b"h3".to_vec()];
        Ok(Loaded {
            files,
            config: Arc::new(config),
            quic: Arc::new(quic),
            certificates,
            acquired: all_acquired,
            unusable,
            pending,
            uncovered,
            ticketer,
        })
    }

    /// Logs the certificates and sets their metrics.
    fn report(&self, metrics: &Metrics) {
        for served in &self.certificates {
            let site = (!served.site.is_empty()).then_some(&*served.site);
            info!(
                site,
                certificate = %served.path.display(),
                names = ?served.about.names,
                ends = %httpdate::fmt_http_date(served.ends()),
                "certificate read"
            );
        }
        self.warn();
        metrics.set_certificates(self.certificates.iter().map(Served::status).collect());
        metrics.acme.set_pending(self.pending.clone());
    }

    fn warn(&self) {
        for problem in self.problems() {
            warn!(reason = problem, "a certificate or its key needs attention");
        }
    }

    /// What is wrong with the files, though they can be served.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        let keys = self.files.all_pairs().map(|pair| &pair.key);
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
            .chain(self.files.unrenewed.clone())
    }

    /// The domains that Surus has yet to get a certificate for.
    pub fn pending(&self) -> impl Iterator<Item = &str> {
        self.pending.iter().map(String::as_str)
    }

    /// The sites whose files cannot be used, and why.
    pub fn unusable(&self) -> &BTreeMap<String, String> {
        &self.unusable
    }

    /// The certificates, as `surus check` lists them.
    pub fn certificates(&self) -> &[Served] {
        &self.certificates
    }
}

/// The certificates of a domain. A damaged file must not stop the others.
fn usable(acquired: &Acquired, provider: &CryptoProvider) -> Vec<Served> {
    let domain = &acquired.domain;
    let served = acquired.files.iter().filter_map(|file| {
        let file = file.as_ref().map_err(|why| anyhow::anyhow!("{why}"));
        let served = file.and_then(|file| Served::acquired(file, domain, provider));
        served
            .inspect_err(|error| {
                let error = format!("{error:#}");
                warn!(%domain, error, "cannot use a certificate (acme.directory)");
            })
            .ok()
    });
    served.collect()
}

/// Selects certificates, also for validations of authorities (TLS-ALPN-01).
#[derive(Debug)]
struct Resolver {
    by_site: BySite,
    answers: Arc<ChallengeAnswers>,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let mut protocols = hello.alpn().into_iter().flatten().peekable();
        // An authority offers no other protocol (RFC 8737, 3).
        if protocols.peek().is_some() && protocols.all(|protocol| protocol == answers::PROTOCOL) {
            return self.answers.certificate(hello.server_name()?);
        }
        self.by_site.resolve(hello)
    }
}

fn versions(least: MinVersion) -> &'static [&'static SupportedProtocolVersion] {
    static ALL: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
    match least {
        MinVersion::Tls12 => &ALL,
        MinVersion::Tls13 => &ALL[..1],
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

//! Loads the certificates of `surus serve`: through the keeper if there is one, because the front
//! end's user may not read the keys.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use surus_sys::fork;
use tracing::{info, warn};

use super::findings::Findings;
use crate::config::Config;
use crate::config::sites::{self, SiteConfig};
use crate::fronts::http::Tls;
use crate::fronts::http::tls::acme::answers::ChallengeAnswers;
use crate::fronts::http::tls::acme::local::LocalAuthority;
use crate::fronts::http::tls::acme::settings::Domain;
use crate::fronts::http::tls::acme::store::Store;
use crate::fronts::http::tls::acme::unstored::Unstored;
use crate::fronts::http::tls::certificates::Served;
use crate::fronts::http::tls::files::{SitePairs, TlsFiles};
use crate::fronts::http::tls::{CertificateSource, Loaded, PreparedFiles, TlsFileSource, watch};
use crate::keeper::Client;
use crate::observe::metrics::Metrics;

/// Reads the certificates, and again whenever their files change. None without `tls.listen`.
pub(super) async fn start(
    project: &Path,
    config: &Config,
    reader: CertificateReader,
    answers: &Arc<ChallengeAnswers>,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Option<Arc<Tls>>> {
    if config.tls.listen.is_empty() {
        return Ok(None);
    }
    let source = source(project, config, reader);
    let (settings, answers) = (config.tls.clone(), answers.clone());
    let tls = Tls::start(settings, source, answers, metrics.clone()).await?;
    if config.acme.domains.iter().any(Domain::is_local) {
        info!(
            "localhost and names of test have certificates of this machine; `surus trust` makes \
             its browsers accept them"
        );
    }
    warn_of_hosts(&tls, config);
    tokio::spawn(watch::run(tls.clone()));
    Ok(Some(tls))
}

/// Warns of hosts that are redirected to HTTPS and have no certificate there.
pub(super) fn warn_of_hosts(tls: &Tls, config: &Config) {
    for site in &config.sites {
        if site.config.http.redirect_to_https == Some(true) {
            for host in uncovered_hosts(site, |host| tls.is_covered(host)) {
                let site = &site.name;
                warn!(
                    site,
                    host,
                    "no certificate is for a host that is redirected to HTTPS; browsers reject \
                     the one that they get (tls.certificate)"
                );
            }
        }
    }
}

/// The process that reads the certificates of a configuration.
pub(super) enum CertificateReader {
    /// The keeper, with the number that the configuration's first site has there.
    Keeper(Arc<Client>, u32),
    /// This process, with the files that it could not store.
    Own(Arc<Unstored>),
}

impl CertificateReader {
    /// The keeper, if there is one.
    pub fn find(
        keeper: Option<Arc<Client>>,
        first_site: u32,
        unstored: &Arc<Unstored>,
    ) -> CertificateReader {
        match keeper {
            Some(keeper) => CertificateReader::Keeper(keeper, first_site),
            None => CertificateReader::Own(unstored.clone()),
        }
    }
}

/// The certificates of a configuration.
pub(super) fn source(
    project: &Path,
    config: &Config,
    reader: CertificateReader,
) -> CertificateSource {
    let read: TlsFileSource = match reader {
        CertificateReader::Keeper(keeper, first_site) => Box::new(move || {
            let keeper = keeper.clone();
            Box::pin(async move {
                let files = keeper.certificates(first_site).await?;
                Ok(serde_json::from_slice(&files)?)
            })
        }),
        CertificateReader::Own(unstored) => {
            let own = Arc::new((project.to_path_buf(), config.clone(), unstored));
            Box::new(move || {
                let own = own.clone();
                // It waits for the disk, and for other processes that renew local certificates.
                let read = move || {
                    let (project, config, unstored) = &*own;
                    read_renewed(project, config, unstored)
                };
                Box::pin(async move { tokio::task::spawn_blocking(read).await? })
            })
        }
    };
    CertificateSource {
        hosts: Arc::new(sites::by_host(&config.sites)),
        read,
    }
}

/// Reads the certificates of another configuration. An error if those of a site cannot be used that
/// has usable ones at the moment, or is new.
pub(super) async fn prepare_from(tls: &Tls, source: &CertificateSource) -> anyhow::Result<Loaded> {
    let loaded = tls.prepare_from(source).await?;
    let mut unusable = loaded.unusable().iter();
    match unusable.find(|(site, _)| tls.site_error(site).is_none()) {
        Some((site, error)) => bail!("the certificates of site {site} cannot be used: {error}"),
        None => Ok(loaded),
    }
}

/// Reads the certificates of `[tls]`, and reports them to `surus check`.
pub(super) fn report(project: &Path, config: &Config, findings: &mut Findings) {
    for pages in open_pages(config) {
        let remedy = match config.tls.listen.is_empty() {
            true => "tls.listen",
            false => "http.redirect_to_https = true",
        };
        findings.note(format_args!(
            "http.listen gives {pages} to clients without the certificate that tls.client_ca \
             requires; set {remedy}, or http.listen = []"
        ));
    }
    if config.tls.listen.is_empty() {
        return;
    }
    let (hosts, answers) = (Arc::new(sites::by_host(&config.sites)), Arc::default());
    let load = |files| Loaded::new(&config.tls, &hosts, files, None, &answers);
    let loaded = match read(project, config, &Arc::default()).and_then(load) {
        Ok(loaded) => loaded,
        Err(error) => return findings.stop(&error),
    };
    for (site, error) in loaded.unusable() {
        findings.site.clone_from(site);
        findings.stop(&anyhow!("{error}"));
    }
    findings.site.clear();
    for site in &config.sites {
        report_hosts(site, loaded.certificates(), findings);
    }
    for served in loaded.certificates() {
        let names = served.about.names.join(", ");
        let ends = httpdate::fmt_http_date(served.ends());
        findings.fine("certificate", format_args!("{names}, until {ends}"));
    }
    for domain in loaded.pending() {
        let authorities = &config.acme.authorities;
        let local = config.acme.domains.iter().find(|it| it.as_str() == domain);
        match local.is_some_and(Domain::is_local) {
            true => findings.fine(
                "certificate",
                format_args!("{domain}, to come from this machine (surus trust)"),
            ),
            false => findings.fine(
                "certificate",
                format_args!("{domain}, to come from {authorities:?}"),
            ),
        }
    }
    for warning in loaded.problems() {
        findings.note(warning);
    }
}

/// Reports the hosts that no certificate is for, of a site that has certificates of its own or
/// redirects to HTTPS.
fn report_hosts(site: &SiteConfig, all: &[Served], findings: &Findings) {
    let has_own = all.iter().any(|served| served.site == site.name);
    if !has_own && site.config.http.redirect_to_https != Some(true) {
        return;
    }
    for host in uncovered_hosts(site, |host| all.iter().any(|served| served.is_for(host))) {
        findings.note(format_args!(
            "no certificate is for {host}, a host of site {}; browsers reject the one that they \
             get (tls.certificate)",
            site.name
        ));
    }
}

/// The hosts of a site that have no certificate and get none.
fn uncovered_hosts(site: &SiteConfig, is_covered: impl Fn(&str) -> bool) -> Vec<String> {
    let domains = &site.config.acme.domains;
    let is_acquired = |host: &str| domains.iter().any(|domain| domain.as_str() == host);
    let hosts = site.hosts.iter().map(ToString::to_string);
    hosts
        .filter(|host| !is_acquired(host) && !is_covered(host))
        .collect()
}

/// Which pages a request without TLS gets, although clients need a certificate.
fn open_pages(config: &Config) -> Vec<String> {
    if !config.tls.requires_client_certificate() || config.http.listen.is_empty() {
        return Vec::new();
    }
    let is_open = |config: &Config| config.http.redirect_to_https != Some(true);
    let sites = config.sites.iter().filter(|site| is_open(&site.config));
    let named = sites.map(|site| format!("pages of site {}", site.name));
    match config.sites.is_empty() && is_open(config) {
        true => vec!["pages".into()],
        false => named.collect(),
    }
}

/// Reads the configured files, and what authorities have issued.
fn read(project: &Path, config: &Config, unstored: &Arc<Unstored>) -> anyhow::Result<TlsFiles> {
    let acme = &config.acme;
    let acquired = match acme.domains.is_empty() {
        true => Vec::new(),
        false => Store::with_unstored(acme, project, unstored)?.certificates(acme)?,
    };
    let of_site =
        |site: &SiteConfig| SitePairs::read(&site.name, &site.config.tls, site.directory(project));
    let sites = config.sites.iter().filter_map(of_site).collect();
    TlsFiles::read(&config.tls, project, sites, acquired)
}

/// The same, once local domains have the certificates that they lack. Those that cannot be renewed
/// stay: they are renewed long before their end.
fn read_renewed(
    project: &Path,
    config: &Config,
    unstored: &Arc<Unstored>,
) -> anyhow::Result<TlsFiles> {
    let mut unrenewed = None;
    if config.acme.domains.iter().any(Domain::is_local) {
        let store = Store::new(&config.acme, project)?;
        let renewed = LocalAuthority::new(&store).renew(&config.acme);
        unrenewed = renewed.err().map(|error| format!("{error:#}"));
    }
    let files = read(project, config, unstored)?;
    Ok(TlsFiles { unrenewed, ..files })
}

/// In the keeper: reads them for the front end, in a process of their own. The keeper's memory must
/// never hold a key, also not where it has been freed: an opener is forked from it.
pub(super) fn read_apart(
    project: &Path,
    config: &Config,
    unstored: &Arc<Unstored>,
) -> anyhow::Result<OwnedFd> {
    let read = |mut output: &File| {
        let files = read_renewed(project, config, unstored);
        let written = match &files {
            Ok(files) => serde_json::to_writer(output, files).map_err(anyhow::Error::from),
            Err(error) => write!(output, "{error:#}").map_err(anyhow::Error::from),
        };
        i32::from(files.is_err() || written.is_err())
    };
    let contents = unstored.contents();
    let keep: Vec<BorrowedFd<'_>> = contents.iter().map(AsFd::as_fd).collect();
    let (status, mut output) =
        fork::ask(&keep, read).context("cannot fork a process that reads keys")?;
    if status == Some(0) {
        return Ok(output.into());
    }
    let mut why = String::new();
    output.read_to_string(&mut why)?;
    bail!(why)
}

/// An error if the certificates of a site cannot be used.
pub(super) fn check_sites(tls: &Option<Arc<Tls>>) -> anyhow::Result<()> {
    tls.as_ref().map_or(Ok(()), |tls| tls.check_sites())
}

/// Reads the certificates, and checks them before [`change_over`].
pub(super) async fn prepare(tls: &Option<Arc<Tls>>) -> anyhow::Result<Option<PreparedFiles>> {
    match tls {
        Some(tls) => {
            let changed = tls.read().await?;
            changed.map(|changed| tls.prepare(changed)).transpose()
        }
        None => Ok(None),
    }
}

/// Serves the certificates that were prepared, if they are new.
pub(super) fn change_over(tls: &Option<Arc<Tls>>, prepared: Option<PreparedFiles>) {
    if let (Some(tls), Some(prepared)) = (tls, prepared) {
        tls.change_over(prepared);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::DirBuilderExt;

    use super::*;

    #[test]
    fn local_certificate_that_cannot_be_stored_is_reported_and_stops_no_other() {
        let dir = tempfile::tempdir().unwrap();
        // Not even root can replace a directory by a file.
        let obstacle = dir.path().join("state/local/a.test.pem/obstacle");
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&obstacle).unwrap();
        let text = "acme.domains = ['a.test', 'b.test']\nacme.directory = 'state'";
        let config: Config = toml::from_str(text).unwrap();
        let files = read_renewed(dir.path(), &config, &Arc::default()).unwrap();
        let why = files.unrenewed.unwrap();
        assert!(why.contains("a.test.pem (acme.directory)"), "{why}");
        assert!(files.acquired[1].files[0].is_ok());
        std::fs::remove_dir_all(obstacle.parent().unwrap()).unwrap();
        let files = read_renewed(dir.path(), &config, &Arc::default()).unwrap();
        assert!(files.unrenewed.is_none());
        assert!(files.acquired[0].files[0].is_ok());
    }

    #[test]
    fn pages_of_sites_without_redirect_are_open_to_clients_without_certificate() {
        let sites = "[[site]]\nhost = 'a.test'\nhttp.redirect_to_https = false\n\
                     [[site]]\nhost = 'b.test'\nhttp.redirect_to_https = true\n\
                     [[site]]\nhost = 'c.test'\n";
        let dir = tempfile::tempdir().unwrap();
        for (text, expected) in [
            ("", &["pages"][..]),
            ("http.redirect_to_https = true", &[]),
            ("http.listen = []", &[]),
            ("tls.client_certificate = 'optional'", &[]),
            (sites, &["pages of site a.test", "pages of site c.test"]),
        ] {
            let text = format!("tls.client_ca = 'ca.pem'\n{text}");
            std::fs::write(dir.path().join("surus.toml"), &text).unwrap();
            let loaded = crate::config::load(dir.path(), None, std::iter::empty(), None);
            assert_eq!(open_pages(&loaded.unwrap().config), expected, "{text}");
        }
    }

    #[test]
    fn hosts_that_no_certificate_is_for_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let text = "[[site]]\nhost = ['a.test', 'b.test', '*.b.test']\nacme.domains = 'a.test'";
        std::fs::write(dir.path().join("surus.toml"), text).unwrap();
        let loaded = crate::config::load(dir.path(), None, std::iter::empty(), None);
        let site = &loaded.unwrap().config.sites[0];
        let uncovered = uncovered_hosts(site, |host| host == "b.test");
        assert_eq!(uncovered, ["*.b.test"]);
    }
}

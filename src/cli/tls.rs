//! Loads the certificates of `surus serve`: through the keeper if there is one, because the front
//! end's user may not read the keys.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use surus_sys::fork;
use tracing::info;

use super::findings::Findings;
use crate::config::Config;
use crate::config::sites::{self, SiteConfig};
use crate::fronts::http::Tls;
use crate::fronts::http::tls::acme::answers::ChallengeAnswers;
use crate::fronts::http::tls::acme::local::LocalAuthority;
use crate::fronts::http::tls::acme::settings::Domain;
use crate::fronts::http::tls::acme::store::Store;
use crate::fronts::http::tls::certificates::Served;
use crate::fronts::http::tls::files::{SitePairs, TlsFiles};
use crate::fronts::http::tls::{CertificateSource, Loaded, PreparedFiles, TlsFileSource, watch};
use crate::keeper::Client;
use crate::observe::metrics::Metrics;

/// Reads the certificates, and again whenever their files change. None without `tls.listen`.
pub(super) async fn start(
    project: &Path,
    config: &Config,
    keeper: CertificateKeeper,
    answers: &Arc<ChallengeAnswers>,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Option<Arc<Tls>>> {
    if config.tls.listen.is_empty() {
        return Ok(None);
    }
    let source = source(project, config, keeper);
    if config.acme.domains.iter().any(Domain::is_local) {
        info!(
            "localhost and names of test have certificates of this machine; `surus trust` makes \
             its browsers accept them"
        );
    }
    let (settings, answers) = (config.tls.clone(), answers.clone());
    let tls = Tls::start(settings, source, answers, metrics.clone()).await?;
    tokio::spawn(watch::run(tls.clone()));
    Ok(Some(tls))
}

/// The keeper, if there is one, and the number that the configuration's first site has there.
pub(super) type CertificateKeeper = Option<(Arc<Client>, u32)>;

/// The certificates of a configuration.
pub(super) fn source(
    project: &Path,
    config: &Config,
    keeper: CertificateKeeper,
) -> CertificateSource {
    let read: TlsFileSource = match keeper {
        Some((keeper, first_site)) => Box::new(move || {
            let keeper = keeper.clone();
            Box::pin(async move {
                let files = keeper.certificates(first_site).await?;
                Ok(serde_json::from_slice(&files)?)
            })
        }),
        None => {
            let (config, project) = (config.clone(), project.to_path_buf());
            Box::new(move || {
                let files = read_renewed(&project, &config);
                Box::pin(async move { files })
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
    if config.tls.listen.is_empty() {
        return;
    }
    let (hosts, answers) = (Arc::new(sites::by_host(&config.sites)), Arc::default());
    let load = |files| Loaded::new(&config.tls, &hosts, files, None, &answers);
    let loaded = match read(project, config).and_then(load) {
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

/// Reports the hosts of a site with certificates of its own that no certificate is for.
fn report_hosts(site: &SiteConfig, all: &[Served], findings: &Findings) {
    if !all.iter().any(|served| served.site == site.name) {
        return;
    }
    let domains = &site.config.acme.domains;
    for host in &site.hosts {
        let host = host.to_string();
        let is_acquired = domains.iter().any(|domain| domain.as_str() == host);
        if !is_acquired && !all.iter().any(|served| served.is_for(&host)) {
            findings.note(format_args!(
                "no certificate is for {host}, a host of site {}; browsers reject the one that \
                 they get (tls.certificate)",
                site.name
            ));
        }
    }
}

/// Reads the configured files, and what authorities have issued.
pub(super) fn read(project: &Path, config: &Config) -> anyhow::Result<TlsFiles> {
    let acquired = match config.acme.domains.is_empty() {
        true => Vec::new(),
        false => Store::new(&config.acme, project)?.certificates(&config.acme)?,
    };
    let of_site =
        |site: &SiteConfig| SitePairs::read(&site.name, &site.config.tls, site.directory(project));
    let sites = config.sites.iter().filter_map(of_site).collect();
    TlsFiles::read(&config.tls, project, sites, acquired)
}

/// The same, once local domains have the certificates that they lack.
fn read_renewed(project: &Path, config: &Config) -> anyhow::Result<TlsFiles> {
    if config.acme.domains.iter().any(Domain::is_local) {
        let store = Store::new(&config.acme, project)?;
        LocalAuthority::new(&store).renew(&config.acme)?;
    }
    read(project, config)
}

/// In the keeper: reads them for the front end, in a process of their own. The keeper's memory must
/// never hold a key, also not where it has been freed: an opener is forked from it.
pub(super) fn read_apart(project: &Path, config: &Config) -> anyhow::Result<OwnedFd> {
    let read = |mut output: &File| {
        let files = read_renewed(project, config);
        let written = match &files {
            Ok(files) => serde_json::to_writer(output, files).map_err(anyhow::Error::from),
            Err(error) => write!(output, "{error:#}").map_err(anyhow::Error::from),
        };
        i32::from(files.is_err() || written.is_err())
    };
    let (status, mut output) = fork::ask(read).context("cannot fork a process that reads keys")?;
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

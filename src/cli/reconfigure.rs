//! Applies a changed configuration to a running server: boots the sites of the new one beside those
//! of the old one, and exchanges them if that succeeds.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use futures_util::future::join_all;
use tracing::{info, warn};

use super::access_logs::AccessLogs;
use super::acme::Renewals;
use super::next_configuration::{NextConfiguration, plan};
use super::options::ServeArgs;
use super::served::{Served, ServedSite};
use super::serving::Serving;
use super::{planned_text, tls};
use crate::config::Config;
use crate::config::reread::{ConfigOrigin, KEPT};
use crate::fronts::http::{Service, Tls};
use crate::keeper::Client;
use crate::observe::metrics::Metrics;
use crate::observe::reopen::SiteLogs;
use crate::observe::status::EngineStatus;

/// Applies changed configurations.
pub(super) struct Reconfiguration {
    pub project: PathBuf,
    pub source: ConfigSource,
    pub serving: Arc<Serving>,
    pub tls: Option<Arc<Tls>>,
    pub renewals: Arc<Renewals>,
    pub metrics: Arc<Metrics>,
    pub site_logs: SiteLogs,
    /// Locked during a reload that an operator has asked for.
    pub reloading: Arc<tokio::sync::Mutex<()>>,
}

/// Where changed configurations come from.
pub(super) enum ConfigSource {
    /// The process that has the rights to read it.
    Keeper(Arc<Client>),
    Own(Arc<OwnSource>),
}

/// The files and the command line of this process.
pub(super) struct OwnSource {
    pub project: PathBuf,
    pub args: Arc<ServeArgs>,
    /// The configuration in use, and how it was read.
    pub current: Mutex<(Config, ConfigOrigin)>,
    /// `--watch` starts Surus again instead.
    pub is_watched: bool,
}

impl ConfigSource {
    /// The configuration, if it has changed since the one in use.
    async fn next(&self) -> anyhow::Result<Option<NextConfiguration>> {
        match self {
            ConfigSource::Keeper(keeper) => match keeper.configuration().await? {
                Some(text) => Ok(Some(planned_text::read(&text)?)),
                None => Ok(None),
            },
            ConfigSource::Own(source) => {
                let source = source.clone();
                tokio::task::spawn_blocking(move || source.next()).await?
            }
        }
    }

    /// Makes the configuration the one in use.
    async fn applied(&self, next: NextConfiguration) -> anyhow::Result<()> {
        match (self, next.origin) {
            (ConfigSource::Keeper(keeper), _) => {
                keeper.configured(next.plans.first_site).await?;
            }
            (ConfigSource::Own(source), Some(origin)) => {
                let current = source.current.lock();
                *current.unwrap_or_else(PoisonError::into_inner) = (next.config, origin);
            }
            (ConfigSource::Own(_), None) => {}
        }
        Ok(())
    }
}

impl OwnSource {
    fn next(&self) -> anyhow::Result<Option<NextConfiguration>> {
        let (config, origin) = {
            let current = self.current.lock();
            current.unwrap_or_else(PoisonError::into_inner).clone()
        };
        let Some((read, changes)) = origin.read_changed()? else {
            return Ok(None);
        };
        if self.is_watched {
            bail!("{KEPT}: with --watch, Surus starts again by itself when it has changed");
        }
        let loaded = self.args.load_again(read, &config).context(KEPT)?;
        let changed = changes.to_string();
        plan(&self.project, &config, loaded, changed, None).map(Some)
    }
}

impl Reconfiguration {
    /// Applies the configuration if it has changed. Returns whether it has.
    pub async fn run(&self) -> anyhow::Result<bool> {
        match self.source.next().await? {
            Some(next) => self.apply(next).await.map(|()| true),
            None => Ok(false),
        }
    }

    async fn apply(&self, next: NextConfiguration) -> anyhow::Result<()> {
        let old = self.serving.served();
        // The old sites do not boot meanwhile.
        let booting = join_all(old.sites.iter().map(|site| site.booting.lock())).await;
        let logs = AccessLogs::start(&next.config, &self.site_logs).context(KEPT)?;
        let keeper = match &self.source {
            ConfigSource::Keeper(keeper) => Some(keeper.clone()),
            ConfigSource::Own(_) => None,
        };
        let served = Arc::new(Served::new(&next.plans, &keeper, &self.metrics, logs));
        let exchanged = match boot(&served, &old).await {
            Ok(()) => self.exchange(&next, &served, keeper).await,
            Err(error) => Err(error),
        };
        drop(booting);
        let (current, other) = match &exchanged {
            Ok(()) => (&served, &old),
            Err(_) => (&old, &served),
        };
        for site in &other.sites {
            self.metrics.sites.remove(site.plan().name);
        }
        current.report();
        if let Err(error) = exchanged {
            served.end_tasks();
            return Err(error.context(KEPT));
        }
        let changed = next.changed.clone();
        let acme_config = next.is_acme_changed.then(|| next.config.clone());
        // The new configuration is served by now, so that the reload has succeeded.
        if let Err(error) = self.source.applied(next).await {
            let error = format!("{error:#}");
            warn!(
                error,
                "a front end that replaces this one would have the old configuration; reload again"
            );
        }
        if let Some(config) = acme_config {
            self.renewals.start(&config);
        }
        info!(changed, "reloaded with the changed configuration");
        if let Err(error) = tls::check_sites(&self.tls) {
            let error = format!("{error:#}");
            warn!(error, "certificates need attention after the reload");
        }
        Ok(())
    }

    /// Serves these sites, with their certificates.
    async fn exchange(
        &self,
        next: &NextConfiguration,
        served: &Arc<Served>,
        keeper: Option<Arc<Client>>,
    ) -> anyhow::Result<()> {
        let config = &next.config;
        let certificates = match &self.tls {
            Some(tls) => {
                let (number, unstored) = (next.plans.first_site, &self.renewals.unstored);
                let reader = tls::CertificateReader::find(keeper, number, unstored);
                let source = tls::source(&self.project, config, reader);
                let loaded = tls::prepare_from(tls, &source).await?;
                Some((tls, source, loaded))
            }
            None => None,
        };
        let service = {
            let before = self.serving.service.load();
            let log = served.logs.common.clone();
            Service {
                sites: served.hosted(),
                accounting: Arc::new(before.accounting.with_access_log(log)),
                https: before.https.clone(),
                settings: config.http.clone(),
                tracer: before.tracer.clone(),
                live_reload: before.live_reload.clone(),
            }
        };
        self.serving.exchange(service, served.clone())?;
        if let Some((tls, source, loaded)) = certificates {
            tls.exchange(source, loaded);
            tls::warn_of_hosts(tls, config);
        }
        Ok(())
    }
}

/// Boots all sites. An error if one cannot be booted, unless the old one of the same name is not
/// served either.
async fn boot(served: &Served, old: &Served) -> anyhow::Result<()> {
    let sizes = old.pool_sizes();
    let boots = served.sites.iter();
    let boots = boots.map(|site| site.clone().boot_beside(&sizes));
    let (mut failed, mut later) = (Vec::new(), Vec::new());
    for (site, booted) in served.sites.iter().zip(join_all(boots).await) {
        let name = site.plan().name;
        let old = old.sites.iter().find(|old| old.plan().name == name);
        let booted = booted.and_then(|()| match old {
            Some(old) => check_boots(site, old),
            None => Ok(()),
        });
        let Err(error) = booted else { continue };
        match old {
            _ if name.is_empty() => return Err(error),
            Some(old) if !old.is_served() => later.push((site, error)),
            _ => failed.push(format!("{name}: {error:#}")),
        }
    }
    if !failed.is_empty() {
        bail!("sites cannot be booted: {}", failed.join("; "));
    }
    for (site, error) in later {
        site.boot_later(&error);
    }
    Ok(())
}

/// Rejects a site of which another engine serves a pool instead, if the pool has booted before.
fn check_boots(site: &ServedSite, old: &ServedSite) -> anyhow::Result<()> {
    let old: Vec<_> = old.engines().iter().map(|it| it.status()).collect();
    for status in site.engines().iter().map(|engine| engine.status()) {
        let has_booted = |old: &EngineStatus| old.engine == status.engine && old.instead.is_none();
        if let Some(instead) = &status.instead
            && old.iter().any(has_booted)
        {
            bail!(
                "engine `{}` cannot boot the application any more, and `{instead}` would serve it; \
                 the warning before says why",
                status.engine
            );
        }
    }
    Ok(())
}

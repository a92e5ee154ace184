//! Plans the sites of a configuration that has changed since the server has read it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};

use super::addresses;
use super::site_plans::Plans;
use crate::config::reread::{ConfigOrigin, KEPT};
use crate::config::{Config, Loaded};

/// A changed configuration, and what it asks for.
pub struct NextConfiguration {
    pub config: Config,
    pub plans: Arc<Plans>,
    /// The settings that have changed.
    pub changed: String,
    /// Whether the settings of certificates have changed. A front end cannot compare them, because
    /// the keeper keeps the keys of accounts.
    pub is_acme_changed: bool,
    /// How it was read. None if the keeper has read it.
    pub origin: Option<ConfigOrigin>,
}

/// Plans the sites of a changed configuration, after `before` if its numbers are a keeper's.
pub fn plan(
    project: &Path,
    used: &Config,
    loaded: Loaded,
    changed: String,
    before: Option<&Plans>,
) -> anyhow::Result<NextConfiguration> {
    let (mut config, origin) = (loaded.config, Some(loaded.origin));
    if used.tls.listen.is_empty() && !config.tls.listen.is_empty() {
        // `acme.domains` makes Surus listen for HTTPS.
        bail!("{KEPT}: only a restart of Surus opens a listener for HTTPS (acme.domains)");
    }
    // The start has found them out, such as the addresses of the service manager's sockets.
    config.http.listen.clone_from(&used.http.listen);
    config.tls.listen.clone_from(&used.tls.listen);
    config.http.max_connections = used.http.max_connections;
    config.telemetry.clone_from(&used.telemetry);
    let plans = addresses::check(&config).and_then(|()| match before {
        Some(before) => Plans::after(before, project, &config),
        None => Plans::new(project, &config),
    });
    let plans = plans.context(KEPT)?;
    plans.prepare();
    let is_acme_changed = config.acme != used.acme;
    Ok(NextConfiguration {
        config,
        plans: Arc::new(plans),
        changed,
        is_acme_changed,
        origin,
    })
}

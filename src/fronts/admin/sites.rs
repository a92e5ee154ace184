//! Reports the sites of a server at the admin listener.

use std::sync::Arc;

use crate::engine::Engine;
use crate::observe::status::{EngineStatus, SiteStatus};

/// A site and its engines, of which there are none before it has booted.
pub struct SiteEngines {
    pub status: SiteStatus,
    pub engines: Vec<Arc<dyn Engine>>,
}

pub fn engines(sites: &[SiteEngines]) -> Vec<EngineStatus> {
    let engines = sites.iter().flat_map(|site| &site.engines);
    engines.map(|engine| engine.status()).collect()
}

/// The sites of `[[site]]`, and queues whose jobs do not run.
pub fn reported(sites: Vec<SiteEngines>) -> Vec<SiteStatus> {
    let sites = sites.into_iter().map(|site| site.status);
    let is_reported = |site: &SiteStatus| match site.is_queues {
        true => site.error.is_some(),
        false => !site.site.is_empty(),
    };
    sites.filter(is_reported).collect()
}

/// The sites of [`reported`] that are not as configured.
pub fn troubled(sites: Vec<SiteEngines>) -> Vec<SiteStatus> {
    let is_troubled = |site: &SiteStatus| site.error.is_some() || site.certificate_error.is_some();
    let mut troubled = reported(sites);
    troubled.retain(is_troubled);
    troubled
}

/// Whether all engines of a site can serve. One bad site must not take the others out of a load
/// balancer.
pub fn ready(sites: &[SiteEngines]) -> Result<(), String> {
    let mut first = Ok(());
    for site in sites {
        let ready = match &site.status.error {
            Some(error) => Err(error.clone()),
            None => site.engines.iter().try_for_each(|engine| engine.ready()),
        };
        match ready {
            Ok(()) => return Ok(()),
            Err(_) => first = first.and(ready),
        }
    }
    first
}

//! Loads the certificates of `surus serve`: through the keeper if there is one, because the front
//! end's user may not read the keys.

use std::path::Path;
use std::sync::Arc;

use crate::config::Config;
use crate::fronts::http::Tls;
use crate::fronts::http::tls::files::Files;
use crate::fronts::http::tls::{Loaded, Source, watch};
use crate::keeper::Client;
use crate::observe::metrics::Metrics;

/// Reads the certificates, and again whenever their files change. None without `tls.listen`.
pub(super) async fn start(
    project: &Path,
    config: &Config,
    keeper: Option<Arc<Client>>,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Option<Arc<Tls>>> {
    if config.tls.listen.is_empty() {
        return Ok(None);
    }
    let source: Source = match keeper {
        Some(keeper) => Box::new(move || {
            let keeper = keeper.clone();
            Box::pin(async move { Ok(serde_json::from_slice(&keeper.certificates().await?)?) })
        }),
        None => {
            let (settings, project) = (config.tls.clone(), project.to_path_buf());
            Box::new(move || {
                let files = Files::read(&settings, &project);
                Box::pin(async move { files })
            })
        }
    };
    let tls = Tls::start(config.tls.clone(), source, metrics.clone()).await?;
    tokio::spawn(watch::run(tls.clone()));
    Ok(Some(tls))
}

/// In the keeper: reads the files for the front end.
pub(super) fn read(project: &Path, config: &Config) -> anyhow::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&Files::read(&config.tls, project)?)?)
}

/// Reads the certificates, and checks them before [`change_over`].
pub(super) async fn prepare(tls: &Option<Arc<Tls>>) -> anyhow::Result<Option<Loaded>> {
    match tls {
        Some(tls) => {
            let files = tls.read().await?;
            files.map(|files| tls.prepare(files)).transpose()
        }
        None => Ok(None),
    }
}

/// Serves the certificates that were prepared, if they are new.
pub(super) fn change_over(tls: &Option<Arc<Tls>>, loaded: Option<Loaded>) {
    if let (Some(tls), Some(loaded)) = (tls, loaded) {
        tls.change_over(loaded);
    }
}

//! The reload of `surus serve`: boots the application again and switches, with new certificates.

use std::sync::Arc;

use anyhow::anyhow;
use futures_util::future::join_all;
use tokio::sync::Notify;

use super::reconfigure::Reconfiguration;
use super::served::{ReloadHook, ServedSite};
use super::serving::Serving;
use super::tls;
use crate::engine::Pending;
use crate::fronts::http::Tls;
use crate::fronts::http::request::live_reload::LiveReload;

/// What a reload needs.
#[derive(Clone)]
pub struct Reload {
    pub serving: Arc<Serving>,
    pub tls: Option<Arc<Tls>>,
    /// The pages that are told, with `--watch`.
    pub pages: Option<Arc<LiveReload>>,
}

impl Reload {
    /// Starts a reload now; the future returns its result.
    pub fn start(self) -> Pending<'static, anyhow::Result<()>> {
        let pages = self.pages.clone();
        // A task: the pages are told also if its caller was dropped.
        let reload = tokio::spawn(async move {
            let result = self.run().await;
            if let Some(pages) = pages {
                pages.tell(result.is_ok());
            }
            result
        });
        Box::pin(async move { reload.await? })
    }

    async fn run(self) -> anyhow::Result<()> {
        let certificates = tls::prepare(&self.tls).await?;
        let served = self.serving.served();
        let reloaded = served.reload().await;
        // Of several sites, those that can be reloaded are.
        if reloaded.is_ok() || served.sites.len() > 1 {
            tls::change_over(&self.tls, certificates);
        }
        match (reloaded, tls::check_sites(&self.tls)) {
            (Err(sites), Err(certificates)) => Err(anyhow!("{sites:#}; {certificates:#}")),
            (reloaded, checked) => reloaded.and(checked),
        }
    }
}

/// Boots some of several sites again, and tells the pages.
pub fn of_sites(
    sites: Vec<Arc<ServedSite>>,
    pages: Arc<LiveReload>,
) -> Pending<'static, anyhow::Result<()>> {
    // A task: the pages are told also if its caller was dropped.
    let reload = tokio::spawn(async move {
        let reloads = sites.into_iter().map(ServedSite::reload);
        let result: anyhow::Result<()> = join_all(reloads).await.into_iter().collect();
        pages.tell(result.is_ok());
        result
    });
    Box::pin(async move { reload.await? })
}

/// A reload that an operator requests.
#[derive(Clone)]
pub struct RequestedReload {
    pub reload: ReloadHook,
    pub reconfiguration: Arc<Reconfiguration>,
    /// Orders certificates without the pauses that failures have caused.
    pub renew: Arc<Notify>,
}

impl RequestedReload {
    /// Starts the reload, with the configuration as it is now. The future returns its result.
    pub fn start(self) -> Pending<'static, anyhow::Result<()>> {
        // A task: the reload goes on also if its caller was dropped.
        let reload = tokio::spawn(async move {
            let _one_at_a_time = self.reconfiguration.reloading.lock().await;
            let reloaded = match self.reconfiguration.run().await? {
                true => Ok(()),
                false => (self.reload)().await,
            };
            // Also if one of several sites cannot be reloaded.
            self.renew.notify_one();
            reloaded
        });
        Box::pin(async move { reload.await? })
    }
}

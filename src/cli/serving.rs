//! The sites that `surus serve` serves now, and the service that answers requests for them. A
//! reload with a changed configuration exchanges both.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::bail;
use tokio_util::task::TaskTracker;
use tracing::warn;

use super::served::Served;
use super::stop_signals::ENDING;
use crate::fronts::http::{CurrentService, Service};

/// How often a replaced service is looked at, until its last request has a response.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Serving {
    /// What answers new requests.
    pub service: Arc<CurrentService>,
    current: Mutex<CurrentSites>,
    /// The tasks that end replaced sites.
    replaced: TaskTracker,
}

struct CurrentSites {
    served: Arc<Served>,
    is_ending: bool,
}

impl Serving {
    pub fn new(service: Service, served: Arc<Served>) -> Serving {
        Serving {
            service: Arc::new(CurrentService::from_pointee(service)),
            current: Mutex::new(CurrentSites {
                served,
                is_ending: false,
            }),
            replaced: TaskTracker::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, CurrentSites> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn served(&self) -> Arc<Served> {
        self.lock().served.clone()
    }

    /// Sends new requests to these sites. The old ones finish the requests that they hold. Fails if
    /// the server is shutting down.
    pub fn exchange(&self, service: Service, served: Arc<Served>) -> anyhow::Result<()> {
        let mut current = self.lock();
        if current.is_ending {
            bail!(ENDING);
        }
        let sites = std::mem::replace(&mut current.served, served);
        // From here on, every request that has the old service is counted by its `Arc`.
        let service = self.service.swap(Arc::new(service));
        self.replaced.spawn(end(service, sites));
        Ok(())
    }

    /// Ends all tasks of the sites. They are not exchanged any more.
    pub fn begin_to_end(&self) {
        let mut current = self.lock();
        current.is_ending = true;
        current.served.end_tasks();
    }

    /// Waits until all requests have been answered, also those of replaced sites, and ends the
    /// engines.
    pub async fn drain(&self) {
        self.served().drain().await;
        self.replaced.close();
        self.replaced.wait().await;
    }
}

/// Ends sites whose successors have taken over.
async fn end(service: Arc<Service>, sites: Arc<Served>) {
    sites.end_tasks();
    // Each request has the service until its response begins. An engine that drains would reject
    // one that has not reached it.
    let released = async {
        while Arc::strong_count(&service) > 1 {
            tokio::time::sleep(PAUSE).await;
        }
    };
    // One slow upload must not keep all of what was replaced.
    let limit = service.settings.shutdown_timeout.0;
    if tokio::time::timeout(limit, released).await.is_err() {
        warn!(
            seconds = limit.as_secs(),
            "requests of the replaced configuration have no response yet; its workers take no \
             more of them (http.shutdown_timeout)"
        );
    }
    sites.retire().await;
    let ended = tokio::task::spawn_blocking(move || sites.logs.end()).await;
    drop((ended, service));
}

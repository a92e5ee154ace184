//! Records requests: assigns ids, and owns the metrics and the access log of requests for no site.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::access_log::AccessLog;
use crate::observe::metrics::Metrics;

/// Where requests are recorded.
pub struct Accounting {
    pub metrics: Arc<Metrics>,
    /// Of requests that are for no site.
    pub access_log: Option<Arc<AccessLog>>,
    /// Shared by all services, so that no two requests have the same id.
    next_id: Arc<AtomicU64>,
}

impl Accounting {
    pub fn new(metrics: Arc<Metrics>, access_log: Option<Arc<AccessLog>>) -> Accounting {
        Accounting {
            metrics,
            access_log,
            next_id: Arc::new(AtomicU64::new(1)),
        }
    }

    /// The same with another access log.
    pub fn with_access_log(&self, access_log: Option<Arc<AccessLog>>) -> Accounting {
        Accounting {
            metrics: self.metrics.clone(),
            access_log,
            next_id: self.next_id.clone(),
        }
    }

    /// The id of the next request.
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}

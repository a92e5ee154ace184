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
    next_id: AtomicU64,
}

impl Accounting {
    pub fn new(metrics: Arc<Metrics>, access_log: Option<Arc<AccessLog>>) -> Accounting {
        Accounting {
            metrics,
            access_log,
            next_id: AtomicU64::new(1),
        }
    }

    /// The id of the next request.
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}

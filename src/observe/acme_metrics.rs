//! Attempts to get certificates: their counter, and what the last one of each domain has said.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::status::AcmeStatus;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AcmeAttempt {
    domain: String,
    result: &'static str,
}

#[derive(Default)]
pub struct AcmeMetrics {
    attempts: Family<AcmeAttempt, Counter>,
    /// By domain.
    last: RwLock<BTreeMap<String, AcmeStatus>>,
}

impl AcmeMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "acme_attempts",
            "Attempts to get a certificate, by domain and result",
            self.attempts.clone(),
        );
    }

    /// Registers the domain with 0, so that its first attempt is an increase.
    pub fn expect(&self, domain: &str) {
        for result in ["issued", "failed"] {
            drop(self.counter(domain, result));
        }
    }

    pub fn attempted(&self, domain: &str, is_issued: bool) {
        let result = if is_issued { "issued" } else { "failed" };
        self.counter(domain, result).inc();
    }

    /// Sets what the last attempt for its domain has said.
    pub fn set_last(&self, status: AcmeStatus) {
        let mut last = self.last.write().unwrap_or_else(PoisonError::into_inner);
        last.insert(status.domain.clone(), status);
    }

    /// The last attempt of each domain.
    pub fn last(&self) -> Vec<AcmeStatus> {
        let last = self.last.read().unwrap_or_else(PoisonError::into_inner);
        last.values().cloned().collect()
    }

    fn counter(&self, domain: &str, result: &'static str) -> Counter {
        let domain = domain.to_owned();
        self.attempts
            .get_or_create_owned(&AcmeAttempt { domain, result })
    }
}

//! Attempts to get certificates: their counter, what the last one of each domain has said, and the
//! domains that lack a certificate.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{PoisonError, RwLock};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::status::{AcmeStatus, DomainStatus};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AcmeAttempt {
    domain: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AcmeDomain {
    domain: String,
}

#[derive(Default)]
pub struct AcmeMetrics {
    attempts: Family<AcmeAttempt, Counter>,
    store_failures: Family<AcmeDomain, Counter>,
    /// By domain.
    last: RwLock<BTreeMap<String, AcmeStatus>>,
    /// The domains without a valid certificate.
    pending: RwLock<BTreeSet<String>>,
}

impl AcmeMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "acme_attempts",
            "Attempts to get a certificate, by domain and result",
            self.attempts.clone(),
        );
        registry.register(
            "acme_store_failures",
            "Failures to store a certificate, by domain",
            self.store_failures.clone(),
        );
    }

    /// Registers the domain with 0, so that its first attempt is an increase.
    pub fn expect(&self, domain: &str) {
        for result in ["issued", "failed"] {
            drop(self.counter(domain, result));
        }
        drop(self.store_counter(domain));
    }

    pub fn attempted(&self, domain: &str, is_issued: bool) {
        let result = if is_issued { "issued" } else { "failed" };
        self.counter(domain, result).inc();
    }

    /// The domain's certificate could not be stored, and is served from memory.
    pub fn store_failed(&self, domain: &str) {
        self.store_counter(domain).inc();
    }

    /// Forgets what attempts for other domains have said.
    pub fn retain(&self, domains: &BTreeSet<String>) {
        let mut last = self.last.write().unwrap_or_else(PoisonError::into_inner);
        last.retain(|domain, _| domains.contains(domain));
    }

    /// Sets what the last attempt for its domain has said.
    pub fn set_last(&self, status: AcmeStatus) {
        let mut last = self.last.write().unwrap_or_else(PoisonError::into_inner);
        last.insert(status.domain.clone(), status);
    }

    /// Sets when the next attempt is, if none was made. A domain still lacks its certificate for
    /// the reason of the last one.
    pub fn set_next(&self, mut status: AcmeStatus) {
        let mut last = self.last.write().unwrap_or_else(PoisonError::into_inner);
        let earlier = last.get(&status.domain).filter(|last| !last.is_unstored);
        if let (Some(_), Some(earlier)) = (&status.reason, earlier) {
            let earlier = earlier.reason.clone();
            status.reason = earlier.or(status.reason);
        }
        last.insert(status.domain.clone(), status);
    }

    /// The last attempt of each domain.
    pub fn last(&self) -> Vec<AcmeStatus> {
        let last = self.last.read().unwrap_or_else(PoisonError::into_inner);
        last.values().cloned().collect()
    }

    /// Sets the domains without a valid certificate.
    pub fn set_pending(&self, domains: BTreeSet<String>) {
        *self.pending.write().unwrap_or_else(PoisonError::into_inner) = domains;
    }

    /// The domains that lack a valid certificate, a new one, or one that a restart keeps.
    pub fn lacking(&self) -> Vec<DomainStatus> {
        let pending = self.pending.read().unwrap_or_else(PoisonError::into_inner);
        let last = self.last.read().unwrap_or_else(PoisonError::into_inner);
        let failed = last.values().filter(|attempt| attempt.reason.is_some());
        let failed = failed.map(|attempt| &attempt.domain);
        let domains: BTreeSet<&String> = pending.iter().chain(failed).collect();
        let status = |domain: &String| {
            let attempt = last.get(domain);
            DomainStatus {
                domain: domain.clone(),
                is_pending: pending.contains(domain),
                next: attempt.map(|attempt| attempt.next),
                reason: attempt.and_then(|attempt| attempt.reason.clone()),
                is_unstored: attempt.is_some_and(|attempt| attempt.is_unstored),
            }
        };
        domains.into_iter().map(status).collect()
    }

    fn counter(&self, domain: &str, result: &'static str) -> Counter {
        let domain = domain.to_owned();
        self.attempts
            .get_or_create_owned(&AcmeAttempt { domain, result })
    }

    fn store_counter(&self, domain: &str) -> Counter {
        let domain = domain.to_owned();
        self.store_failures
            .get_or_create_owned(&AcmeDomain { domain })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_of_the_last_attempt_stays_while_none_is_made() {
        let acme = AcmeMetrics::default();
        let status = |next, reason: Option<&str>, is_unstored| AcmeStatus {
            domain: "a.example".into(),
            next,
            reason: reason.map(String::from),
            is_unstored,
        };
        let seen = |next, reason| assert_eq!(acme.last(), [status(next, reason, false)]);
        acme.set_next(status(1, Some("too early"), false));
        seen(1, Some("too early"));
        acme.set_last(status(2, Some("no connection"), false));
        acme.set_next(status(3, Some("too early"), false));
        seen(3, Some("no connection"));
        acme.set_next(status(4, None, false));
        seen(4, None);
        acme.set_last(status(5, Some("the disk is full"), true));
        acme.set_next(status(6, Some("too early"), false));
        seen(6, Some("too early"));
    }

    #[test]
    fn domains_without_a_certificate_a_new_one_or_a_stored_one_are_listed() {
        let acme = AcmeMetrics::default();
        assert!(acme.lacking().is_empty());
        acme.set_pending(["new.example", "refused.example"].map(String::from).into());
        for (domain, reason) in [
            ("refused.example", Some("no such domain")),
            ("renewed.example", None),
            ("stale.example", Some("the authority is away")),
            ("unstored.example", Some("the disk is full")),
        ] {
            acme.set_last(AcmeStatus {
                domain: domain.into(),
                next: 7,
                reason: reason.map(String::from),
                is_unstored: domain == "unstored.example",
            });
        }
        let status = |domain: &str, is_pending, next, reason: Option<&str>| DomainStatus {
            domain: domain.into(),
            is_pending,
            next,
            reason: reason.map(String::from),
            is_unstored: domain == "unstored.example",
        };
        let expected = [
            status("new.example", true, None, None),
            status("refused.example", true, Some(7), Some("no such domain")),
            status(
                "stale.example",
                false,
                Some(7),
                Some("the authority is away"),
            ),
            status("unstored.example", false, Some(7), Some("the disk is full")),
        ];
        assert_eq!(acme.lacking(), expected);
        acme.retain(&["refused.example".to_owned()].into());
        assert_eq!(acme.lacking(), &expected[..2]);
        assert_eq!(acme.last().len(), 1);
    }
}

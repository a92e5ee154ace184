//! Metrics of the sites of `[[site]]`.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Site {
    site: &'static str,
}

#[derive(Default)]
pub struct SiteMetrics {
    up: Family<Site, Gauge>,
}

impl SiteMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "site_up",
            "Whether a site of [[site]] is served: 1, or 0 before and if it cannot be booted",
            self.up.clone(),
        );
    }

    /// Forgets a site that is no longer configured.
    pub fn remove(&self, site: &'static str) {
        self.up.remove(&Site { site });
    }

    /// Whether the site is served.
    pub fn set(&self, site: &'static str, is_served: bool) {
        self.up.get_or_create(&Site { site }).set(is_served.into());
    }
}

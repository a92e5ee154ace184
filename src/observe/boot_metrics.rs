//! Metrics of booted applications: what warms up their boots, and what is left for requests to
//! load.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::engine_label::EngineLabel;
use super::status::{EngineStatus, LeftOutReason};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Used {
    #[prometheus(flatten)]
    engine: EngineLabel,
    source: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Unused {
    #[prometheus(flatten)]
    engine: EngineLabel,
    reason: &'static str,
}

#[derive(Default)]
pub struct BootMetrics {
    unbooted: Family<EngineLabel, Gauge>,
    pages: Family<Used, Gauge>,
    left_out: Family<Unused, Gauge>,
    requests: Family<EngineLabel, Counter>,
    includes: Family<EngineLabel, Counter>,
}

impl BootMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "unbooted",
            "1 while classic serves the application because it cannot be booted",
            self.unbooted.clone(),
        );
        registry.register(
            "warm_up_pages",
            "Pages that warm up the boot, by who has chosen them",
            self.pages.clone(),
        );
        registry.register(
            "warm_up_pages_left_out",
            "Such pages that do not warm up the boot, by reason",
            self.left_out.clone(),
        );
        registry.register(
            "booted_requests",
            "Requests of booted applications whose included files are counted",
            self.requests.clone(),
        );
        registry.register(
            "request_includes",
            "Files that these requests have included and the boot had not",
            self.includes.clone(),
        );
    }

    /// The counters of requests and of the files that they include.
    pub fn includes(&self, engine: &'static str) -> (Counter, Counter) {
        let engine = engine.into();
        let requests = self.requests.get_or_create_owned(&engine);
        (requests, self.includes.get_or_create_owned(&engine))
    }

    /// Forgets the boots of all engines.
    pub(super) fn clear(&self) {
        self.unbooted.clear();
        self.pages.clear();
        self.left_out.clear();
    }

    pub(super) fn set(&self, engine: &EngineLabel, status: &EngineStatus) {
        let unbooted = self.unbooted.get_or_create(engine);
        unbooted.set(status.instead.is_some().into());
        for (source, pages) in [("learned", &status.learned), ("named", &status.named)] {
            let engine = engine.clone();
            let used = self.pages.get_or_create_owned(&Used { engine, source });
            used.set(pages.len() as i64);
        }
        for reason in LeftOutReason::ALL {
            let pages = status.left_out.iter().filter(|it| it.reason == reason);
            let unused = Unused {
                engine: engine.clone(),
                reason: reason.name(),
            };
            let unused = self.left_out.get_or_create_owned(&unused);
            unused.set(pages.count() as i64);
        }
    }
}

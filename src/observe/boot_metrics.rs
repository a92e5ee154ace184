//! Metrics of booted applications: what warms up their boots, and what is left for requests to
//! load.

use std::sync::atomic::AtomicU64;

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

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CreatedKind {
    #[prometheus(flatten)]
    engine: EngineLabel,
    kind: &'static str,
}

#[derive(Default)]
pub struct BootMetrics {
    unbooted: Family<EngineLabel, Gauge>,
    pages: Family<Used, Gauge>,
    left_out: Family<Unused, Gauge>,
    created: Family<CreatedKind, Gauge>,
    created_seconds: Family<EngineLabel, Gauge<f64, AtomicU64>>,
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
            "created_ahead",
            "Objects that the boot has created ahead of requests, by kind",
            self.created.clone(),
        );
        registry.register(
            "created_ahead_seconds",
            "How long the boot took to create these objects",
            self.created_seconds.clone(),
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
        self.created.clear();
        self.created_seconds.clear();
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
        let Some(created) = CreatedAhead::read(&status.created) else {
            return;
        };
        for (kind, number) in created.numbers {
            let engine = engine.clone();
            let gauge = self
                .created
                .get_or_create_owned(&CreatedKind { engine, kind });
            gauge.set(number.into());
        }
        let seconds = self.created_seconds.get_or_create_owned(engine);
        seconds.set(created.seconds);
    }
}

/// What a boot script has created ahead.
#[derive(Debug, PartialEq)]
struct CreatedAhead {
    numbers: Vec<(&'static str, u32)>,
    seconds: f64,
}

/// The kinds of objects that boot scripts report.
const KINDS: [&str; 2] = ["services", "models"];

impl CreatedAhead {
    /// Reads the report of the boot script, as `9 services and 2 models created ahead in 5 ms`.
    fn read(report: &str) -> Option<CreatedAhead> {
        let (numbers, rest) = report.split_once(" created ahead in ")?;
        let milliseconds: u32 = rest.split_once(" ms")?.0.parse().ok()?;
        let number = |text: &str| {
            let (number, kind) = text.split_once(' ')?;
            let kind = KINDS.into_iter().find(|known| *known == kind)?;
            Some((kind, number.parse().ok()?))
        };
        Some(CreatedAhead {
            numbers: numbers.split(" and ").map(number).collect::<Option<_>>()?,
            seconds: f64::from(milliseconds) / 1000.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::CreatedAhead;

    #[test]
    fn sentences_of_both_boot_scripts_are_read() {
        for (script, sentence) in [
            (
                include_str!("../../php/src/Laravel/Priming.php"),
                "%d services and %d models created ahead in %d ms",
            ),
            (
                include_str!("../../php/src/Symfony/Priming.php"),
                "%d services created ahead in %d ms",
            ),
        ] {
            assert!(script.contains(&format!("'{sentence}'")), "{sentence}");
            let report = sentence.replace("%d", "2");
            assert!(CreatedAhead::read(&report).is_some(), "{report}");
        }
    }

    #[test]
    fn reports_of_boot_scripts_have_numbers_by_kind_and_a_duration() {
        let created = |numbers: &[(&'static str, u32)], seconds| {
            let numbers = numbers.to_vec();
            Some(CreatedAhead { numbers, seconds })
        };
        for (report, expected) in [
            (
                "94 services created ahead in 61 ms. the service a is created by each request: b",
                created(&[("services", 94)], 0.061),
            ),
            (
                "9 services and 0 models created ahead in 1500 ms",
                created(&[("services", 9), ("models", 0)], 1.5),
            ),
            ("", None),
            ("x services created ahead in 1 ms", None),
            ("1 elephants created ahead in 1 ms", None),
            ("1 services created ahead in -1 ms", None),
            ("1 services created ahead in 1", None),
        ] {
            assert_eq!(CreatedAhead::read(report), expected, "{report}");
        }
    }
}

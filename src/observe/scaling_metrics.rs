//! Metrics of pools whose number of workers adapts to the load.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::engine_label::EngineLabel;
use super::status::ScalingStatus;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Limit {
    #[prometheus(flatten)]
    engine: EngineLabel,
    limit: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Scaled {
    #[prometheus(flatten)]
    engine: EngineLabel,
    direction: &'static str,
}

/// How the number of workers changes.
#[derive(Debug, Clone, Copy)]
pub enum Direction {
    Up,
    Down,
    /// Up by less than the load needs, because memory is short, or down because it has run out.
    Limited,
}

impl Direction {
    fn label(self) -> &'static str {
        match self {
            Direction::Up => "up",
            Direction::Down => "down",
            Direction::Limited => "limited",
        }
    }
}

#[derive(Default)]
pub struct ScalingMetrics {
    limits: Family<Limit, Gauge>,
    changes: Family<Scaled, Counter>,
}

impl ScalingMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "worker_limits",
            "The least and the most workers, and how many there should be now",
            self.limits.clone(),
        );
        registry.register(
            "worker_scalings",
            "Changes of the number of workers by load",
            self.changes.clone(),
        );
    }

    /// Registers the pool with 0.
    pub fn expect(&self, engine: &'static str) {
        for direction in [Direction::Up, Direction::Down, Direction::Limited] {
            let direction = direction.label();
            let engine = engine.into();
            drop(self.changes.get_or_create(&Scaled { engine, direction }));
        }
    }

    pub fn scaled(&self, engine: &'static str, direction: Direction) {
        let (engine, direction) = (engine.into(), direction.label());
        let scaled = Scaled { engine, direction };
        self.changes.get_or_create(&scaled).inc();
    }

    /// Forgets the limits of all engines.
    pub(super) fn clear(&self) {
        self.limits.clear();
    }

    pub(super) fn set(&self, engine: &EngineLabel, scaling: &ScalingStatus) {
        for (limit, workers) in [
            ("min", scaling.min),
            ("target", scaling.target),
            ("max", scaling.max),
        ] {
            let engine = engine.clone();
            let limit = Limit { engine, limit };
            self.limits.get_or_create(&limit).set(workers as i64);
        }
    }
}

//! The counter of exported traces.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Result {
    result: &'static str,
}

/// Spans of traces, by result.
#[derive(Default)]
pub struct TraceMetrics {
    spans: Family<Result, Counter>,
}

impl TraceMetrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "trace_spans",
            "Spans of traces, by result",
            self.spans.clone(),
        );
    }

    /// Counts spans that were `exported`, `rejected` by the collector, `dropped` because the queue
    /// was full, or `failed` to be sent.
    pub fn count(&self, result: &'static str, spans: u64) {
        self.spans.get_or_create(&Result { result }).inc_by(spans);
    }
}

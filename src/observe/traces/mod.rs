//! Traces of requests in OpenTelemetry's form: one span for each sampled request, with spans below
//! it for the wait in the queue, PHP and the sending of the response.

pub mod context;
mod export;
pub mod otlp;
pub mod settings;
pub mod trace;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;

pub use self::settings::Settings;
pub use self::trace::{Trace, TracedRequest, cut};

use self::context::Context;
use self::settings::Sampler;
use super::metrics::Metrics;

/// Begins traces, and exports those that have ended.
pub struct Tracer {
    sampler: Sampler,
    ratio: f64,
    ids: (RandomState, AtomicU64),
    queue: mpsc::Sender<Box<trace::EndedTrace>>,
    metrics: Arc<Metrics>,
    exporter: export::Handle,
}

impl Tracer {
    /// Starts the exporter. None without a collector.
    pub fn start(
        settings: &Settings,
        metrics: &Arc<Metrics>,
    ) -> anyhow::Result<Option<Arc<Tracer>>> {
        let Some(endpoint) = &settings.endpoint else {
            return Ok(None);
        };
        let (queue, ended) = mpsc::channel(settings.limits.queue);
        let exporter = export::start(settings, settings::url(endpoint)?, ended, metrics.clone());
        Ok(Some(Arc::new(Tracer {
            sampler: settings.sampler.unwrap_or(Sampler::ParentOrRatio),
            ratio: settings.sample_ratio.unwrap_or(1.0),
            ids: (RandomState::new(), AtomicU64::new(0)),
            queue,
            metrics: metrics.clone(),
            exporter,
        })))
    }

    /// Begins the trace of a request. Returns its context for PHP, and the trace if it is sampled.
    pub fn begin(
        self: &Arc<Self>,
        caller: Option<(Context, Option<String>)>,
        request: impl FnOnce() -> TracedRequest,
    ) -> (Context, Option<String>, Option<Arc<Trace>>) {
        let (parent, state) = match caller {
            Some((parent, state)) => (Some(parent), state),
            None => (None, None),
        };
        let trace = match &parent {
            Some(parent) => parent.trace,
            None => {
                let (high, low) = (self.id(), self.id());
                (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
            }
        };
        let decided = parent.as_ref().map(|parent| parent.is_sampled);
        let is_sampled = self.sampler.samples(decided, trace, self.ratio);
        let php = Context {
            trace,
            span: self.id().to_be_bytes(),
            is_sampled,
        };
        let sampled = is_sampled.then(|| {
            let spans = [self.id(), self.id(), self.id()].map(u64::to_be_bytes);
            let parent = parent.map(|parent| parent.span);
            let begun = Trace::begin(self.clone(), &php, parent, state.clone(), spans, request());
            Arc::new(begun)
        });
        (php, state, sampled)
    }

    /// A random number other than 0.
    fn id(&self) -> u64 {
        let (random, counter) = &self.ids;
        loop {
            let id = random.hash_one(counter.fetch_add(1, Ordering::Relaxed));
            if id != 0 {
                return id;
            }
        }
    }

    /// Never waits.
    fn send(&self, ended: trace::EndedTrace) {
        let spans = ended.spans();
        if self.queue.try_send(Box::new(ended)).is_err() {
            self.metrics.traces.count("dropped", spans);
        }
    }

    /// Exports what has ended, for at most this time.
    pub async fn flush(&self, limit: Duration) {
        self.exporter.flush(limit).await;
    }
}

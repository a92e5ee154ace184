//! Writes the metrics in Prometheus' text format, with what is known only at that moment.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::{Buffer, Metrics, Workers};
use crate::budget;
use crate::observe::engine_label::EngineLabel;
use crate::observe::message;
use crate::observe::status::{EngineStatus, WorkerState};

impl Metrics {
    /// The text for Prometheus, with the current workers.
    pub fn text(&self, engines: &[EngineStatus]) -> String {
        // Another caller must not find gauges that are about to be set again.
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // A reload may have removed engines, and with them a range of workers.
        self.workers.clear();
        self.queue_lengths.clear();
        self.scaling.clear();
        self.boots.clear();
        for status in engines {
            let engine = EngineLabel::from(&status.engine);
            for (state, name) in [
                (WorkerState::Starting, "starting"),
                (WorkerState::Idle, "idle"),
                (WorkerState::Busy, "busy"),
                (WorkerState::Finishing, "finishing"),
            ] {
                let count = status
                    .workers
                    .iter()
                    .filter(|worker| worker.state == state)
                    .count();
                self.workers
                    .get_or_create(&Workers {
                        engine: engine.clone(),
                        state: name,
                    })
                    .set(count as i64);
            }
            let waiting = self.queue_lengths.get_or_create(&engine);
            waiting.set(status.queued as i64);
            if let Some(scaling) = &status.scaling {
                self.scaling.set(&engine, scaling);
            }
            self.boots.set(&engine, status);
        }
        for budget in budget::ALL {
            let label = Buffer {
                buffer: budget.name,
            };
            let set = |family: &Family<Buffer, Gauge>, bytes: u64| {
                family.get_or_create(&label).set(bytes as i64);
            };
            set(&self.buffered, budget.used());
            set(&self.buffer_limits, budget.limit());
            let refusals = self.buffer_refusals.get_or_create(&label);
            refusals.inner().store(budget.refused(), Relaxed);
        }
        let cut = self.log_messages_cut.inner();
        cut.store(message::cut_messages(), Relaxed);
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

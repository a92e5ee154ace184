//! Counts the files that requests of a boot include. A warmer boot would have loaded most of them.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::counter::Counter;
use tracing::info;

use super::master::Spec;
use crate::observe::metrics::Metrics;
use crate::observe::status::IncludesStatus;

/// After how many requests the log says what they include.
const REPORTED: u64 = 300;

/// More files than a request includes. Workers may send any number.
const MOST: u32 = 100_000;

#[derive(Debug)]
pub struct Includes {
    engine: &'static str,
    generation: u64,
    /// Of this boot.
    requests: AtomicU64,
    files: AtomicU64,
    /// Of all boots, for the metrics.
    all_requests: Counter,
    all_files: Counter,
}

impl Includes {
    /// None for an engine that boots no application.
    pub fn new(spec: &Spec, generation: u64, metrics: &Metrics) -> Option<Includes> {
        if !spec.boots_in_master() && !spec.boots_in_workers() {
            return None;
        }
        let (all_requests, all_files) = metrics.boots.includes(spec.name);
        Some(Includes {
            engine: spec.name,
            generation,
            requests: AtomicU64::new(0),
            files: AtomicU64::new(0),
            all_requests,
            all_files,
        })
    }

    /// Counts a request that has included this many files, as its worker says.
    pub fn count(&self, files: u32) {
        let files = files.min(MOST).into();
        self.all_requests.inc();
        self.all_files.inc_by(files);
        self.files.fetch_add(files, Ordering::Relaxed);
        if self.requests.fetch_add(1, Ordering::Relaxed) + 1 == REPORTED
            && let Some(status) = self.status()
        {
            info!(
                engine = self.engine,
                generation = self.generation,
                requests = status.requests,
                files_per_request = format!("{:.1}", status.files_per_request()),
                "files that requests include, because the boot has not loaded them"
            );
        }
    }

    /// None before the first request.
    pub fn status(&self) -> Option<IncludesStatus> {
        let requests = self.requests.load(Ordering::Relaxed);
        let files = self.files.load(Ordering::Relaxed);
        (requests > 0).then_some(IncludesStatus { requests, files })
    }
}

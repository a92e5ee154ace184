//! Metrics of `surus work`: jobs and their queues.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::bounded::bounded;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    queue: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct JobOutcome {
    queue: String,
    class: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct JobClass {
    queue: String,
    class: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueState {
    queue: String,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueOperation {
    queue: String,
    operation: &'static str,
}

/// Every class of a job has some twenty time series, and an application may make up names.
const MAX_CLASSES: usize = 100;
const OTHER: &str = "other";

pub struct JobMetrics {
    runs: Family<JobOutcome, Counter>,
    durations: Family<JobClass, Histogram>,
    /// The classes that have labels of their own.
    classes: Mutex<HashSet<JobClass>>,
    running: Family<QueueLabels, Gauge>,
    errors: Family<QueueOperation, Counter>,
    depths: Family<QueueState, Gauge>,
    ages: Family<QueueLabels, Gauge>,
}

impl Default for JobMetrics {
    fn default() -> Self {
        // 0.1 ms to 52 s.
        let histogram = || Histogram::new(exponential_buckets(0.0001, 2.0, 20));
        JobMetrics {
            runs: Family::default(),
            durations: Family::new_with_constructor(histogram),
            classes: Mutex::default(),
            running: Family::default(),
            errors: Family::default(),
            depths: Family::default(),
            ages: Family::default(),
        }
    }
}

impl JobMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "jobs",
            "Runs of jobs by queue, class and outcome",
            self.runs.clone(),
        );
        registry.register_with_unit(
            "job_duration",
            "From a job's start until PHP has finished with it",
            Unit::Seconds,
            self.durations.clone(),
        );
        registry.register(
            "jobs_running",
            "Jobs that workers run now",
            self.running.clone(),
        );
        registry.register(
            "broker_errors",
            "Operations that a broker has failed, by queue and operation",
            self.errors.clone(),
        );
        registry.register(
            "broker_jobs",
            "Jobs at their broker by queue and state",
            self.depths.clone(),
        );
        registry.register_with_unit(
            "broker_oldest_job",
            "For how long the oldest waiting job has been due",
            Unit::Seconds,
            self.ages.clone(),
        );
    }

    /// Counts a run of a job. The number of classes with labels of their own is limited.
    pub fn ended(&self, queue: &str, class: &str, outcome: &'static str, took: Duration) {
        let mut label = JobClass {
            queue: queue.to_string(),
            class: bounded(class).into_owned(),
        };
        let mut known = self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < MAX_CLASSES {
            known.insert(label.clone());
        } else if !known.contains(&label) {
            label.class = OTHER.into();
        }
        drop(known);
        let duration = self.durations.get_or_create_owned(&label);
        duration.observe(took.as_secs_f64());
        let JobClass { queue, class } = label;
        let label = JobOutcome {
            queue,
            class,
            outcome,
        };
        self.runs.get_or_create(&label).inc();
    }

    /// How many jobs of a queue run now.
    pub fn running(&self, queue: &str) -> u64 {
        let queue = queue.to_string();
        let running = self.running.get_or_create(&QueueLabels { queue }).get();
        running.try_into().unwrap_or_default()
    }

    /// Sets how many jobs of a queue wait, are delayed and are reserved; None while its broker does
    /// not say it.
    pub fn set_depth(&self, queue: &str, jobs: Option<[u64; 3]>, oldest: Option<u64>) {
        for (number, state) in ["waiting", "delayed", "reserved"].into_iter().enumerate() {
            let queue = queue.to_string();
            let label = QueueState { queue, state };
            if let Some(jobs) = jobs {
                let gauge = self.depths.get_or_create_owned(&label);
                gauge.set(jobs[number] as i64);
            } else {
                self.depths.remove(&label);
            }
        }
        let queue = queue.to_string();
        let label = QueueLabels { queue };
        let none_waits = jobs.is_some_and(|[waiting, _, _]| waiting == 0);
        if let Some(oldest) = oldest.or(none_waits.then_some(0)) {
            let gauge = self.ages.get_or_create_owned(&label);
            gauge.set(oldest as i64);
        } else {
            self.ages.remove(&label);
        }
    }

    /// Counts a job that begins (1) or has ended (-1).
    pub fn started_or_ended(&self, queue: &str, change: i64) {
        let queue = queue.to_string();
        self.running
            .get_or_create(&QueueLabels { queue })
            .inc_by(change);
    }

    /// Counts an operation that a broker has failed.
    pub fn broker_failed(&self, queue: &str, operation: &'static str) {
        let queue = queue.to_string();
        self.errors
            .get_or_create(&QueueOperation { queue, operation })
            .inc();
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn text(metrics: &JobMetrics) -> String {
        let (mut registry, mut text) = (Registry::with_prefix("surus"), String::new());
        metrics.register(&mut registry);
        assert!(encode(&mut text, &registry).is_ok());
        text
    }

    #[test]
    fn classes_of_jobs_beyond_the_limit_share_a_label() {
        let metrics = JobMetrics::default();
        for number in 0..300 {
            metrics.ended("default", &format!("Job{number}"), "done", Duration::ZERO);
        }
        metrics.ended("default", "Job0", "done", Duration::ZERO);
        let text = text(&metrics);
        let counted = |class: &str| {
            let label = format!("class=\"{class}\"");
            let mut lines = text
                .lines()
                .filter(|line| line.starts_with("surus_jobs_total"));
            lines
                .find(|line| line.contains(&label))
                .and_then(|line| line.split(' ').nth(1))
        };
        assert_eq!((counted("Job0"), counted("Job250")), (Some("2"), None));
        assert_eq!(counted("other"), Some("200"));
    }

    #[test]
    fn class_of_any_length_is_a_short_label() {
        let metrics = JobMetrics::default();
        let class = "Long".repeat(1 << 18);
        metrics.ended("default", &class, "done", Duration::ZERO);
        assert!(text(&metrics).len() < 16 << 10);
    }

    #[test]
    fn depth_of_an_unreachable_broker_is_left_out() {
        let metrics = JobMetrics::default();
        metrics.set_depth("default", Some([1, 0, 0]), Some(7));
        assert!(text(&metrics).contains("surus_broker_oldest_job_seconds{queue=\"default\"} 7"));
        metrics.set_depth("default", None, None);
        assert!(!text(&metrics).contains("{queue=\"default\""));
    }
}

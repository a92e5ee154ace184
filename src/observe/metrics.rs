//! Counters and histograms for Prometheus. Durations are seconds, sizes bytes.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::message;
use super::status::{EngineStatus, WorkerState};
use crate::budget;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    engine: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Engine {
    engine: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    engine: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pool {
    engine: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Workers {
    engine: String,
    state: &'static str,
}

/// The TLS version, and whether an earlier session was resumed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Handshake {
    version: &'static str,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandshakeFailure {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Certificate {
    certificate: String,
}

/// A byte budget.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Buffer {
    buffer: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Queue {
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

/// The responses of one engine with one outcome.
struct Answers {
    label: Outcome,
    requests: Counter,
    durations: Histogram,
}

/// All metrics.
pub struct Metrics {
    registry: Registry,
    requests: Family<Outcome, Counter>,
    durations: Family<Engine, Histogram>,
    /// The members of both families that have been used. A family's own look-up hashes its labels,
    /// which takes longer.
    answers: RwLock<Vec<Answers>>,
    queue_durations: Family<Engine, Histogram>,
    worker_exits: Family<Reason, Counter>,
    opcache_blocked: Family<Reason, Counter>,
    repairs: Family<Reason, Counter>,
    workers: Family<Workers, Gauge>,
    queue_lengths: Family<Pool, Gauge>,
    pub connections: Gauge,
    pub connections_refused: Counter<u64, AtomicU64>,
    pub early_hints_dropped: Counter<u64, AtomicU64>,
    tls_handshakes: Family<Handshake, Counter>,
    tls_failures: Family<HandshakeFailure, Counter>,
    certificate_ends: Family<Certificate, Gauge>,
    log_messages_cut: Counter<u64, AtomicU64>,
    buffered: Family<Buffer, Gauge>,
    buffer_limits: Family<Buffer, Gauge>,
    buffer_refusals: Family<Buffer, Counter<u64, AtomicU64>>,
    jobs: Family<JobOutcome, Counter>,
    job_durations: Family<JobClass, Histogram>,
    /// The classes that have labels of their own.
    job_classes: Mutex<HashSet<JobClass>>,
    jobs_running: Family<Queue, Gauge>,
    queue_errors: Family<QueueOperation, Counter>,
    queue_jobs: Family<QueueState, Gauge>,
    queue_ages: Family<Queue, Gauge>,
}

/// Every class of a job has some twenty time series, and an application may make up names.
const MOST_CLASSES: usize = 100;
const OTHER: &str = "other";

impl Default for Metrics {
    fn default() -> Self {
        // 0.1 ms to 52 s.
        let histogram = || Histogram::new(exponential_buckets(0.0001, 2.0, 20));
        let mut metrics = Metrics {
            registry: Registry::with_prefix("surus"),
            requests: Family::default(),
            durations: Family::new_with_constructor(histogram),
            answers: RwLock::default(),
            queue_durations: Family::new_with_constructor(histogram),
            worker_exits: Family::default(),
            opcache_blocked: Family::default(),
            repairs: Family::default(),
            workers: Family::default(),
            queue_lengths: Family::default(),
            connections: Gauge::default(),
            connections_refused: Counter::default(),
            early_hints_dropped: Counter::default(),
            tls_handshakes: Family::default(),
            tls_failures: Family::default(),
            certificate_ends: Family::default(),
            log_messages_cut: Counter::default(),
            buffered: Family::default(),
            buffer_limits: Family::default(),
            buffer_refusals: Family::default(),
            jobs: Family::default(),
            job_durations: Family::new_with_constructor(histogram),
            job_classes: Mutex::default(),
            jobs_running: Family::default(),
            queue_errors: Family::default(),
            queue_jobs: Family::default(),
            queue_ages: Family::default(),
        };
        let registry = &mut metrics.registry;
        registry.register(
            "requests",
            "Requests by engine and outcome",
            metrics.requests.clone(),
        );
        registry.register_with_unit(
            "request_duration",
            "From a request's arrival to the header of its response",
            Unit::Seconds,
            metrics.durations.clone(),
        );
        registry.register_with_unit(
            "queue_duration",
            "From a request's arrival at its engine until a worker takes it or it is given up",
            Unit::Seconds,
            metrics.queue_durations.clone(),
        );
        registry.register(
            "worker_exits",
            "Worker processes that exited, by reason",
            metrics.worker_exits.clone(),
        );
        registry.register(
            "opcache_blocked",
            "Boots whose OPcache takes no new files until a reload, by reason",
            metrics.opcache_blocked.clone(),
        );
        registry.register(
            "shared_state_repairs",
            "Repairs of shared memory that a script has damaged, by what was damaged",
            metrics.repairs.clone(),
        );
        registry.register(
            "workers",
            "Worker processes by state",
            metrics.workers.clone(),
        );
        registry.register(
            "queue_length",
            "Requests that wait for a worker",
            metrics.queue_lengths.clone(),
        );
        registry.register(
            "connections",
            "Open client connections",
            metrics.connections.clone(),
        );
        registry.register(
            "connections_refused",
            "Connections closed because http.max_connections were open and none became idle in \
                time",
            metrics.connections_refused.clone(),
        );
        registry.register(
            "early_hints_dropped",
            "Early hints dropped because their request had sent too many",
            metrics.early_hints_dropped.clone(),
        );
        registry.register(
            "tls_handshakes",
            "TLS handshakes by version, and by whether a session was resumed",
            metrics.tls_handshakes.clone(),
        );
        registry.register(
            "tls_handshake_failures",
            "TLS handshakes that failed, by reason",
            metrics.tls_failures.clone(),
        );
        registry.register_with_unit(
            "tls_certificate_not_after",
            "When a certificate ends, since 1970",
            Unit::Seconds,
            metrics.certificate_ends.clone(),
        );
        registry.register(
            "log_messages_cut",
            "Log messages of PHP that were longer than log.max_message",
            metrics.log_messages_cut.clone(),
        );
        registry.register_with_unit(
            "buffered",
            "Bytes in the buffers of Surus, by buffer",
            Unit::Bytes,
            metrics.buffered.clone(),
        );
        registry.register_with_unit(
            "buffer_limit",
            "Bytes that a buffer may hold",
            Unit::Bytes,
            metrics.buffer_limits.clone(),
        );
        registry.register(
            "buffer_refusals",
            "How often data did not fit within a buffer's limit",
            metrics.buffer_refusals.clone(),
        );
        registry.register(
            "jobs",
            "Runs of jobs by queue, class and outcome",
            metrics.jobs.clone(),
        );
        registry.register_with_unit(
            "job_duration",
            "From a job's start until PHP has finished with it",
            Unit::Seconds,
            metrics.job_durations.clone(),
        );
        registry.register(
            "jobs_running",
            "Jobs that workers run now",
            metrics.jobs_running.clone(),
        );
        registry.register(
            "queue_errors",
            "Operations that a broker has failed, by queue and operation",
            metrics.queue_errors.clone(),
        );
        registry.register(
            "queue_jobs",
            "Jobs at their broker by queue and state",
            metrics.queue_jobs.clone(),
        );
        registry.register_with_unit(
            "queue_oldest_job",
            "For how long the oldest waiting job has been due",
            Unit::Seconds,
            metrics.queue_ages.clone(),
        );
        metrics
    }
}

impl Answers {
    fn count(&self, took: Duration) {
        self.requests.inc();
        self.durations.observe(took.as_secs_f64());
    }
}

impl Metrics {
    /// Counts a response. `engine` is `static` for files; `outcome` is `2xx` to `5xx`, or the
    /// failure's name.
    pub fn answered(&self, engine: &'static str, outcome: &'static str, took: Duration) {
        let label = Outcome { engine, outcome };
        let used = self.answers.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(answers) = used.iter().find(|answers| answers.label == label) {
            return answers.count(took);
        }
        drop(used);
        let answers = Answers {
            requests: self.requests.get_or_create_owned(&label),
            durations: self.durations.get_or_create_owned(&Engine { engine }),
            label,
        };
        answers.count(took);
        let mut used = self.answers.write().unwrap_or_else(PoisonError::into_inner);
        if !used.iter().any(|used| used.label == answers.label) {
            used.push(answers);
        }
    }

    /// How long requests wait in the engine's queue, in seconds.
    pub fn queue_duration(&self, engine: &'static str) -> Histogram {
        self.queue_durations
            .get_or_create(&Engine { engine })
            .clone()
    }

    /// Registers these reasons with 0, because Prometheus sees no increase in a counter that begins
    /// with 1.
    pub fn expect_no_exit(&self, engine: &'static str, reasons: &[&'static str]) {
        for reason in reasons {
            drop(self.worker_exits.get_or_create(&Reason { engine, reason }));
        }
    }

    pub fn worker_exited(&self, engine: &'static str, reason: &'static str) {
        self.worker_exits
            .get_or_create(&Reason { engine, reason })
            .inc();
    }

    pub fn opcache_blocked(&self, engine: &'static str, reason: &'static str) {
        self.opcache_blocked
            .get_or_create(&Reason { engine, reason })
            .inc();
    }

    /// Counts a repair of memory that a script has damaged and its worker shares with Surus or
    /// other workers.
    pub fn repaired(&self, engine: &'static str, reason: &'static str) {
        self.repairs.get_or_create(&Reason { engine, reason }).inc();
    }

    /// Registers these reasons with 0, as [`expect_no_exit`](Self::expect_no_exit) does.
    pub fn expect_no_tls_failure(&self, reasons: &[&'static str]) {
        for reason in reasons {
            drop(
                self.tls_failures
                    .get_or_create(&HandshakeFailure { reason }),
            );
        }
    }

    pub fn tls_failed(&self, reason: &'static str) {
        self.tls_failures
            .get_or_create(&HandshakeFailure { reason })
            .inc();
    }

    pub fn tls_succeeded(&self, version: &'static str, is_resumed: bool) {
        let kind = if is_resumed { "resumed" } else { "full" };
        self.tls_handshakes
            .get_or_create(&Handshake { version, kind })
            .inc();
    }

    /// Sets the served certificates: paths, and ends in seconds since 1970.
    pub fn set_certificates(&self, ends: impl Iterator<Item = (String, i64)>) {
        self.certificate_ends.clear();
        for (certificate, end) in ends {
            self.certificate_ends
                .get_or_create(&Certificate { certificate })
                .set(end);
        }
    }

    /// Counts a run of a job. Only so many classes have labels of their own.
    pub fn job_ended(&self, queue: &str, class: &str, outcome: &'static str, took: Duration) {
        let mut label = JobClass {
            queue: queue.to_string(),
            class: class.to_string(),
        };
        let mut known = self
            .job_classes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if known.len() < MOST_CLASSES {
            known.insert(label.clone());
        } else if !known.contains(&label) {
            label.class = OTHER.into();
        }
        drop(known);
        let duration = self.job_durations.get_or_create_owned(&label);
        duration.observe(took.as_secs_f64());
        let JobClass { queue, class } = label;
        let label = JobOutcome {
            queue,
            class,
            outcome,
        };
        self.jobs.get_or_create(&label).inc();
    }

    /// How many jobs of a queue run now.
    pub fn running(&self, queue: &str) -> u64 {
        let queue = queue.to_string();
        let running = self.jobs_running.get_or_create(&Queue { queue }).get();
        running.try_into().unwrap_or_default()
    }

    /// Sets how many jobs of a queue wait, are delayed and are reserved; None while its broker does
    /// not say it.
    pub fn queue_depth(&self, queue: &str, jobs: Option<[u64; 3]>, oldest: Option<u64>) {
        for (number, state) in ["waiting", "delayed", "reserved"].into_iter().enumerate() {
            let queue = queue.to_string();
            let label = QueueState { queue, state };
            if let Some(jobs) = jobs {
                let gauge = self.queue_jobs.get_or_create_owned(&label);
                gauge.set(jobs[number] as i64);
            } else {
                self.queue_jobs.remove(&label);
            }
        }
        let queue = queue.to_string();
        let label = Queue { queue };
        let none_waits = jobs.is_some_and(|[waiting, _, _]| waiting == 0);
        if let Some(oldest) = oldest.or(none_waits.then_some(0)) {
            let gauge = self.queue_ages.get_or_create_owned(&label);
            gauge.set(oldest as i64);
        } else {
            self.queue_ages.remove(&label);
        }
    }

    /// Counts a job that begins (1) or has ended (-1).
    pub fn jobs_running(&self, queue: &str, change: i64) {
        let queue = queue.to_string();
        self.jobs_running
            .get_or_create(&Queue { queue })
            .inc_by(change);
    }

    /// Counts an operation that a broker has failed.
    pub fn queue_failed(&self, queue: &str, operation: &'static str) {
        let queue = queue.to_string();
        self.queue_errors
            .get_or_create(&QueueOperation { queue, operation })
            .inc();
    }

    /// The text for Prometheus, with the current workers.
    pub fn text(&self, engines: &[EngineStatus]) -> String {
        for status in engines {
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
                        engine: status.engine.clone(),
                        state: name,
                    })
                    .set(count as i64);
            }
            self.queue_lengths
                .get_or_create(&Pool {
                    engine: status.engine.clone(),
                })
                .set(status.queued as i64);
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{EngineStatus, Metrics};

    #[test]
    fn classes_of_jobs_beyond_the_limit_share_a_label() {
        let metrics = Metrics::default();
        for number in 0..300 {
            metrics.job_ended("default", &format!("Job{number}"), "done", Duration::ZERO);
        }
        metrics.job_ended("default", "Job0", "done", Duration::ZERO);
        let text = metrics.text(&[]);
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
    fn depth_of_a_broker_that_does_not_answer_is_not_told() {
        let metrics = Metrics::default();
        metrics.queue_depth("default", Some([1, 0, 0]), Some(7));
        assert!(
            metrics
                .text(&[])
                .contains("surus_queue_oldest_job_seconds{queue=\"default\"} 7")
        );
        metrics.queue_depth("default", None, None);
        assert!(!metrics.text(&[]).contains("{queue=\"default\""));
    }

    #[test]
    fn every_metric_is_documented() {
        let documented = include_str!("../../docs/reference/metrics.md");
        let metrics = Metrics::default();
        // Metrics that were never counted are not printed.
        metrics.answered("classic", "2xx", Duration::ZERO);
        metrics.queue_duration("classic").observe(0.0);
        metrics.worker_exited("classic", "single_use");
        metrics.opcache_blocked("classic", "full");
        metrics.repaired("classic", "ring");
        metrics.tls_succeeded("TLSv1.3", false);
        metrics.tls_failed("timeout");
        metrics.set_certificates([("a.pem".to_string(), 1)].into_iter());
        metrics.job_ended("default", "App\\Work", "done", Duration::ZERO);
        metrics.queue_depth("default", Some([1, 2, 3]), Some(4));
        metrics.jobs_running("default", 1);
        metrics.queue_failed("default", "receive");
        let text = metrics.text(&[EngineStatus {
            engine: "classic".into(),
            php: "8.2.0".into(),
            generation: 1,
            queued: 0,
            workers: Vec::new(),
        }]);
        let names: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next())
            .collect();
        assert_eq!(names.len(), 24, "{text}");
        for name in names {
            let mut written = ["", "_total"]
                .map(|end| format!("| `{name}{end}`"))
                .into_iter();
            assert!(written.any(|name| documented.contains(&name)), "{name}");
        }
    }
}

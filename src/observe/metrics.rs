//! Counters and histograms for Prometheus. Durations are seconds, sizes bytes.

mod exposition;

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::acme_metrics::AcmeMetrics;
use super::boot_metrics::BootMetrics;
use super::engine_label::EngineLabel;
use super::job_metrics::JobMetrics;
use super::latencies::Latencies;
use super::scaling_metrics::ScalingMetrics;
use super::site_metrics::SiteMetrics;
use super::slowest::Slowest;
use super::status::{CertificateStatus, ExitCount, OutcomeCount};
use super::trace_metrics::TraceMetrics;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestOutcome {
    #[prometheus(flatten)]
    engine: EngineLabel,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    #[prometheus(flatten)]
    engine: EngineLabel,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Workers {
    #[prometheus(flatten)]
    engine: EngineLabel,
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

/// The responses of one engine with one outcome.
struct Answers {
    label: RequestOutcome,
    requests: Counter,
    durations: Histogram,
}

/// All metrics.
pub struct Metrics {
    registry: Registry,
    /// Locked while the text is written.
    writing: Mutex<()>,
    requests: Family<RequestOutcome, Counter>,
    durations: Family<EngineLabel, Histogram>,
    /// The members of both families that have been used. A family's own look-up hashes its labels,
    /// which takes longer.
    answers: RwLock<Vec<Answers>>,
    queue_durations: Family<EngineLabel, Histogram>,
    worker_exits: Family<Reason, Counter>,
    /// Its members that are not 0: a family cannot list its own.
    exits: RwLock<Vec<(Reason, Counter)>>,
    opcache_blocked: Family<Reason, Counter>,
    repairs: Family<Reason, Counter>,
    slow_requests: Family<EngineLabel, Counter>,
    workers: Family<Workers, Gauge>,
    queue_lengths: Family<EngineLabel, Gauge>,
    pub connections: Gauge,
    pub connections_refused: Counter<u64, AtomicU64>,
    pub early_hints_dropped: Counter<u64, AtomicU64>,
    tls_handshakes: Family<Handshake, Counter>,
    tls_failures: Family<HandshakeFailure, Counter>,
    certificate_ends: Family<Certificate, Gauge>,
    certificates: RwLock<Vec<CertificateStatus>>,
    log_messages_cut: Counter<u64, AtomicU64>,
    buffered: Family<Buffer, Gauge>,
    buffer_limits: Family<Buffer, Gauge>,
    buffer_refusals: Family<Buffer, Counter<u64, AtomicU64>>,
    pub acme: AcmeMetrics,
    pub boots: BootMetrics,
    pub jobs: JobMetrics,
    pub scaling: ScalingMetrics,
    pub sites: SiteMetrics,
    pub traces: TraceMetrics,
    /// Not for Prometheus.
    pub latencies: Latencies,
    pub slowest: Slowest,
}

impl Default for Metrics {
    fn default() -> Self {
        // 0.1 ms to 52 s.
        let histogram = || Histogram::new(exponential_buckets(0.0001, 2.0, 20));
        let mut metrics = Metrics {
            registry: Registry::with_prefix("surus"),
            writing: Mutex::default(),
            requests: Family::default(),
            durations: Family::new_with_constructor(histogram),
            answers: RwLock::default(),
            queue_durations: Family::new_with_constructor(histogram),
            worker_exits: Family::default(),
            exits: RwLock::default(),
            opcache_blocked: Family::default(),
            repairs: Family::default(),
            slow_requests: Family::default(),
            workers: Family::default(),
            queue_lengths: Family::default(),
            connections: Gauge::default(),
            connections_refused: Counter::default(),
            early_hints_dropped: Counter::default(),
            tls_handshakes: Family::default(),
            tls_failures: Family::default(),
            certificate_ends: Family::default(),
            certificates: RwLock::default(),
            acme: AcmeMetrics::default(),
            boots: BootMetrics::default(),
            log_messages_cut: Counter::default(),
            buffered: Family::default(),
            buffer_limits: Family::default(),
            buffer_refusals: Family::default(),
            jobs: JobMetrics::default(),
            scaling: ScalingMetrics::default(),
            sites: SiteMetrics::default(),
            traces: TraceMetrics::default(),
            latencies: Latencies::default(),
            slowest: Slowest::default(),
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
            "Repairs after a script has damaged shared memory or stopped processes, by reason",
            metrics.repairs.clone(),
        );
        registry.register(
            "slow_requests",
            "Requests that PHP ran for longer than http.slow_request",
            metrics.slow_requests.clone(),
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
        metrics.boots.register(registry);
        registry.register(
            "connections",
            "Open client connections",
            metrics.connections.clone(),
        );
        registry.register(
            "connections_refused",
            "Connections closed because http.max_connections were open, or tls.max_handshakes in \
                flight, and none became idle in time",
            metrics.connections_refused.clone(),
        );
        registry.register(
            "early_hints_dropped",
            "Early hints dropped because too many waited for their client, or came too late",
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
        metrics.acme.register(registry);
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
        metrics.jobs.register(registry);
        metrics.scaling.register(registry);
        metrics.sites.register(registry);
        metrics.traces.register(registry);
        metrics
    }
}

impl Reason {
    fn new(engine: &'static str, reason: &'static str) -> Reason {
        let engine = engine.into();
        Reason { engine, reason }
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
        self.latencies.observe(took);
        let label = RequestOutcome {
            engine: engine.into(),
            outcome,
        };
        let used = self.answers.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(answers) = used.iter().find(|answers| answers.label == label) {
            return answers.count(took);
        }
        drop(used);
        let answers = Answers {
            requests: self.requests.get_or_create_owned(&label),
            durations: self.durations.get_or_create_owned(&label.engine),
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
        self.queue_durations.get_or_create(&engine.into()).clone()
    }

    /// Registers these reasons with 0, because Prometheus sees no increase in a counter that begins
    /// with 1.
    pub fn expect_no_exit(&self, engine: &'static str, reasons: &[&'static str]) {
        for reason in reasons {
            drop(
                self.worker_exits
                    .get_or_create(&Reason::new(engine, reason)),
            );
        }
    }

    pub fn worker_exited(&self, engine: &'static str, reason: &'static str) {
        let reason = Reason::new(engine, reason);
        let counter = self.worker_exits.get_or_create_owned(&reason);
        counter.inc();
        let mut exits = self.exits.write().unwrap_or_else(PoisonError::into_inner);
        if !exits.iter().any(|(known, _)| *known == reason) {
            exits.push((reason, counter));
        }
    }

    /// How many workers have exited, by reason.
    pub fn exits(&self) -> Vec<ExitCount> {
        let exits = self.exits.read().unwrap_or_else(PoisonError::into_inner);
        let count = |(label, counter): &(Reason, Counter)| ExitCount {
            engine: label.engine.0.to_string(),
            reason: label.reason.into(),
            total: counter.get(),
        };
        exits.iter().map(count).collect()
    }

    /// How many requests there were, by outcome.
    pub fn outcomes(&self) -> Vec<OutcomeCount> {
        let answers = self.answers.read().unwrap_or_else(PoisonError::into_inner);
        let count = |answers: &Answers| OutcomeCount {
            engine: answers.label.engine.0.to_string(),
            outcome: answers.label.outcome.into(),
            total: answers.requests.get(),
            per_second: None,
        };
        answers.iter().map(count).collect()
    }

    pub fn opcache_blocked(&self, engine: &'static str, reason: &'static str) {
        self.opcache_blocked
            .get_or_create(&Reason::new(engine, reason))
            .inc();
    }

    /// Counts a repair of memory that a script has damaged and its worker shares with Surus or
    /// other workers.
    pub fn repaired(&self, engine: &'static str, reason: &'static str) {
        self.repairs
            .get_or_create(&Reason::new(engine, reason))
            .inc();
    }

    /// Requests that ran for longer than `http.slow_request`.
    pub fn slow_requests(&self, engine: &'static str) -> Counter {
        self.slow_requests.get_or_create_owned(&engine.into())
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

    pub fn tls_succeeded(&self, version: &'static str, kind: &'static str) {
        self.tls_handshakes
            .get_or_create(&Handshake { version, kind })
            .inc();
    }

    /// Sets the served certificates.
    pub fn set_certificates(&self, served: Vec<CertificateStatus>) {
        self.certificate_ends.clear();
        for status in &served {
            let certificate = status.certificate.clone();
            let gauge = self
                .certificate_ends
                .get_or_create_owned(&Certificate { certificate });
            gauge.set(status.not_after);
        }
        *self
            .certificates
            .write()
            .unwrap_or_else(PoisonError::into_inner) = served;
    }

    /// The served certificates.
    pub fn certificates(&self) -> Vec<CertificateStatus> {
        let served = self
            .certificates
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        served.clone()
    }
}

#[cfg(test)]
mod tests;

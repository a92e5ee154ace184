//! A server's state at one instant, for the dashboard and `surus top`.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use super::latencies::Counts;
use super::metrics::Metrics;
use super::status::{
    CertificateStatus, DomainStatus, EngineStatus, ExitCount, OutcomeCount, ScalingStatus,
    SiteStatus, WorkerState, WorkerStatus,
};
use crate::budget;

/// Percentiles are of the requests of this many samples.
const WINDOW: usize = 10;

/// Workers that are listed for each pool, and characters of their requests.
const MAX_WORKERS: usize = 200;
const MAX_REQUEST: usize = 200;

/// One instant. Rates are per second since the sample before, None at the first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Snapshot {
    pub version: String,
    /// Seconds since 1970.
    pub time: u64,
    pub requests_per_second: Option<f64>,
    /// None without requests.
    pub latency: Option<Percentiles>,
    pub connections: i64,
    pub pools: Vec<PoolSnapshot>,
    pub outcomes: Vec<OutcomeCount>,
    pub exits: Vec<ExitCount>,
    pub buffers: Vec<BufferUse>,
    pub certificates: Vec<CertificateStatus>,
    /// The domains that lack a certificate.
    #[serde(default)]
    pub domains: Vec<DomainStatus>,
    /// The sites that are not served, or whose certificates cannot be used, and queues whose jobs
    /// do not run. [`Observer`] does not know them.
    #[serde(default)]
    pub sites: Vec<SiteStatus>,
    pub slowest: Vec<SlowRequest>,
}

/// In milliseconds.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Percentiles {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
}

/// A pool of workers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PoolSnapshot {
    pub engine: String,
    pub instead: Option<String>,
    pub php: String,
    pub generation: u64,
    /// Requests that wait for a worker.
    pub queued: usize,
    /// How many workers there are in each state, listed or not.
    pub states: BTreeMap<WorkerState, usize>,
    /// Bytes of all workers.
    pub memory: u64,
    /// Those with requests first, the oldest before the others.
    pub workers: Vec<WorkerStatus>,
    /// None if the number of workers is fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<ScalingStatus>,
}

/// A buffer of Surus.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct BufferUse {
    pub name: String,
    pub bytes: u64,
    pub limit: u64,
    pub refusals: u64,
}

/// One of the slowest requests.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SlowRequest {
    /// Distinguishes it from the others.
    #[serde(default)]
    pub id: u64,
    pub method: String,
    pub target: String,
    pub status: u16,
    pub engine: String,
    pub ms: f64,
    pub seconds_ago: u64,
    /// PHP's, if it was slow or was stopped at its deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backtrace: Option<String>,
}

/// Samples a server periodically, and computes rates from earlier samples.
#[derive(Debug, Default)]
pub struct Observer {
    before: VecDeque<KeptSample>,
}

/// What is kept of a sample.
#[derive(Debug)]
struct KeptSample {
    at: Instant,
    outcomes: Vec<OutcomeCount>,
    latencies: Counts,
}

impl Observer {
    pub fn sample(&mut self, metrics: &Metrics, engines: Vec<EngineStatus>) -> Snapshot {
        let now = Instant::now();
        let counts = metrics.latencies.counts();
        let mut outcomes = metrics.outcomes();
        let last = self.before.back();
        if let Some(last) = last {
            let seconds = now.duration_since(last.at).as_secs_f64().max(0.001);
            for outcome in &mut outcomes {
                let before = last.outcomes.iter().find(|before| {
                    before.engine == outcome.engine && before.outcome == outcome.outcome
                });
                let new = outcome.total - before.map_or(0, |before| before.total);
                outcome.per_second = Some(new as f64 / seconds);
            }
        }
        let rates = outcomes.iter().filter_map(|outcome| outcome.per_second);
        // Not `sum()`, which is -0 without any.
        let requests_per_second = last.map(|_| rates.fold(0.0, |sum, rate| sum + rate));
        let oldest = self.before.front();
        let latency = oldest.and_then(|oldest| percentiles(&counts.since(&oldest.latencies)));
        self.before.push_back(KeptSample {
            at: now,
            outcomes: outcomes.clone(),
            latencies: counts,
        });
        if self.before.len() > WINDOW {
            self.before.pop_front();
        }
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Snapshot {
            version: env!("CARGO_PKG_VERSION").into(),
            time: time.map_or(0, |time| time.as_secs()),
            requests_per_second,
            latency,
            connections: metrics.connections.get(),
            pools: engines.into_iter().map(pool).collect(),
            outcomes,
            exits: metrics.exits(),
            buffers: budget::ALL.iter().map(|budget| buffer(budget)).collect(),
            certificates: metrics.certificates(),
            domains: metrics.acme.lacking(),
            sites: Vec::new(),
            slowest: slow_requests(metrics, now),
        }
    }
}

fn percentiles(counts: &Counts) -> Option<Percentiles> {
    let ms = |share| Some(milliseconds(counts.percentile(share)?));
    Some(Percentiles {
        p50: ms(0.5)?,
        p90: ms(0.9)?,
        p99: ms(0.99)?,
    })
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn buffer(budget: &budget::Budget) -> BufferUse {
    BufferUse {
        name: budget.name.into(),
        bytes: budget.used(),
        limit: budget.limit(),
        refusals: budget.refused(),
    }
}

fn pool(status: EngineStatus) -> PoolSnapshot {
    let mut workers = status.workers;
    let mut states = BTreeMap::new();
    for worker in &workers {
        *states.entry(worker.state).or_default() += 1;
    }
    let memory = workers.iter().map(|worker| worker.memory).sum();
    let is_idle = |worker: &WorkerStatus| worker.request.is_none();
    workers.sort_by_key(|worker| (is_idle(worker), std::cmp::Reverse(worker.for_ms)));
    workers.truncate(MAX_WORKERS);
    for worker in &mut workers {
        if let Some(request) = &mut worker.request
            && let Some((end, _)) = request.char_indices().nth(MAX_REQUEST)
        {
            request.truncate(end);
            request.push('…');
        }
    }
    PoolSnapshot {
        engine: status.engine,
        instead: status.instead,
        php: status.php,
        generation: status.generation,
        queued: status.queued,
        states,
        memory,
        workers,
        scaling: status.scaling,
    }
}

fn slow_requests(metrics: &Metrics, now: Instant) -> Vec<SlowRequest> {
    let all = metrics.slowest.list(now);
    let slow = all.into_iter().map(|slow| SlowRequest {
        id: slow.request_id,
        backtrace: slow.backtrace.get(),
        method: slow.method,
        target: slow.target,
        status: slow.status,
        engine: slow.engine.into(),
        ms: milliseconds(slow.took),
        seconds_ago: now.saturating_duration_since(slow.ended).as_secs(),
    });
    slow.collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn engine(workers: usize) -> EngineStatus {
        let worker = |pid: usize| WorkerStatus {
            pid: pid as u32,
            state: if pid == 7 {
                WorkerState::Busy
            } else {
                WorkerState::Idle
            },
            for_ms: pid as u64,
            served: 1,
            memory: 10,
            request: (pid == 7).then(|| format!("GET /{}", "x".repeat(8000))),
            backtrace: None,
        };
        EngineStatus {
            engine: "classic".into(),
            workers: (0..workers).map(worker).collect(),
            ..EngineStatus::default()
        }
    }

    #[test]
    fn rates_and_percentiles_cover_the_time_since_earlier_samples() {
        let metrics = Metrics::default();
        let mut observer = Observer::default();
        metrics.answered("classic", "2xx", Duration::from_secs(9));
        let first = observer.sample(&metrics, Vec::new());
        assert!(first.requests_per_second.is_none() && first.latency.is_none());
        assert_eq!(first.outcomes[0].total, 1);
        metrics.answered("classic", "2xx", Duration::from_millis(10));
        metrics.answered("static", "4xx", Duration::from_millis(10));
        let second = observer.sample(&metrics, Vec::new());
        assert!(second.requests_per_second.unwrap() > 0.0);
        let p99 = second.latency.unwrap().p99;
        assert!((8.0..12.0).contains(&p99), "{p99}");
        let totals: Vec<_> = second.outcomes.iter().map(|count| count.total).collect();
        assert_eq!(totals, [2, 1]);
        for _ in 0..2 * WINDOW {
            observer.sample(&metrics, Vec::new());
        }
        assert_eq!(observer.before.len(), WINDOW);
        assert!(observer.sample(&metrics, Vec::new()).latency.is_none());
    }

    #[test]
    fn workers_with_requests_come_first_and_the_list_is_bounded() {
        let snapshot = Observer::default().sample(&Metrics::default(), vec![engine(4096)]);
        let pool = &snapshot.pools[0];
        assert_eq!(pool.workers.len(), MAX_WORKERS);
        assert_eq!(pool.workers[0].pid, 7);
        let request = pool.workers[0].request.as_ref().unwrap();
        assert_eq!(request.chars().count(), MAX_REQUEST + 1);
        assert_eq!(
            (pool.states[&WorkerState::Idle], pool.memory),
            (4095, 40960)
        );
        let json = serde_json::to_string(&snapshot).unwrap();
        assert!(json.len() < 64 << 10 && !json.contains('\n'));
        serde_json::from_str::<Snapshot>(&json).unwrap();
    }
}

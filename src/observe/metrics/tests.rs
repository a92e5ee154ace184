//! Tests that metrics and their documentation agree.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{CertificateStatus, Metrics};
use crate::observe::status::{EngineStatus, ScalingStatus};

#[test]
fn metrics_and_their_documentation_are_the_same() {
    let documented = include_str!("../../../docs/reference/metrics.md");
    let metrics = Metrics::default();
    // A metric with labels is printed only once it has been counted.
    metrics.answered("classic", "2xx", Duration::ZERO);
    metrics.queue_duration("classic").observe(0.0);
    metrics.worker_exited("classic", "single_use");
    metrics.opcache_blocked("classic", "full");
    metrics.repaired("classic", "ring");
    metrics.tls_succeeded("TLSv1.3", "full");
    metrics.tls_failed("timeout");
    metrics.expect_no_acme_attempt("example.org");
    metrics.set_certificates(vec![CertificateStatus {
        certificate: "a.pem".into(),
        names: Vec::new(),
        not_after: 1,
    }]);
    metrics
        .jobs
        .ended("default", "App\\Work", "done", Duration::ZERO);
    metrics.jobs.set_depth("default", Some([1, 2, 3]), Some(4));
    metrics.jobs.started_or_ended("default", 1);
    metrics.jobs.broker_failed("default", "receive");
    metrics.scaling.expect("classic");
    metrics.sites.set("shop.example", true);
    metrics.traces.count("exported", 1);
    let text = metrics.text(&[EngineStatus {
        engine: "classic".into(),
        instead: None,
        php: "8.2.0".into(),
        generation: 1,
        learned: Vec::new(),
        left_out: Vec::new(),
        created: String::new(),
        queued: 0,
        workers: Vec::new(),
        scaling: Some(ScalingStatus {
            target: 2,
            min: 1,
            max: 4,
            is_limited: false,
        }),
    }]);
    assert!(text.contains("surus_worker_limits{engine=\"classic\",limit=\"target\"} 2"));
    // A counter's samples have a suffix that its name has not.
    let counters: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let exposed: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next())
        .map(|name| match counters.contains(name) {
            true => format!("{name}_total"),
            false => name.to_string(),
        })
        .collect();
    let documented: BTreeSet<_> = documented
        .lines()
        .filter_map(|line| line.strip_prefix("| `surus_")?.split('`').next())
        .map(|name| format!("surus_{name}"))
        .collect();
    assert_eq!(exposed, documented);
    let sources = [
        include_str!("../metrics.rs"),
        include_str!("../job_metrics.rs"),
        include_str!("../scaling_metrics.rs"),
        include_str!("../site_metrics.rs"),
        include_str!("../trace_metrics.rs"),
    ];
    let registered = sources.map(|text| text.matches(concat!("registry", ".register")).count());
    assert_eq!(
        registered.iter().sum::<usize>(),
        exposed.len(),
        "one was not counted above"
    );
}

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
    metrics.slow_requests("classic").inc();
    metrics.tls_succeeded("TLSv1.3", "full");
    metrics.tls_failed("timeout");
    metrics.acme.expect("example.org");
    metrics.boots.includes("classic").0.inc();
    metrics.set_certificates(vec![CertificateStatus {
        certificate: "a.pem".into(),
        names: Vec::new(),
        not_after: 1,
        ends_soon_at: 0,
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
        named: Vec::new(),
        left_out: Vec::new(),
        created: "9 services and 2 models created ahead in 500 ms".into(),
        includes: None,
        queued: 0,
        workers: Vec::new(),
        scaling: Some(ScalingStatus {
            target: 2,
            min: 1,
            max: 4,
            is_limited: false,
        }),
    }]);
    for line in [
        "surus_worker_limits{engine=\"classic\",limit=\"target\"} 2\n",
        "surus_created_ahead{engine=\"classic\",kind=\"services\"} 9\n",
        "surus_created_ahead{engine=\"classic\",kind=\"models\"} 2\n",
        "surus_created_ahead_seconds{engine=\"classic\"} 0.5\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
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
        include_str!("../acme_metrics.rs"),
        include_str!("../boot_metrics.rs"),
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

#[test]
fn engine_that_a_reload_removes_has_no_gauges() {
    let metrics = Metrics::default();
    let status = |engine: &str, scaling| EngineStatus {
        engine: engine.into(),
        scaling,
        created: "9 services created ahead in 5 ms".into(),
        ..EngineStatus::default()
    };
    let scaling = ScalingStatus {
        target: 2,
        min: 1,
        max: 4,
        is_limited: false,
    };
    let before = metrics.text(&[status("old", None), status("kept", Some(scaling))]);
    assert!(before.contains("surus_workers{engine=\"old\",state=\"idle\"} 0\n"));
    assert!(before.contains("surus_unbooted{engine=\"old\"} 0\n"));
    assert!(before.contains("surus_created_ahead_seconds{engine=\"old\"} 0.005\n"));
    assert!(before.contains("surus_worker_limits{engine=\"kept\",limit=\"max\"} 4\n"));
    metrics.answered("old", "2xx", Duration::ZERO);
    let after = metrics.text(&[status("kept", None)]);
    // Counters stay: Prometheus would take their return for a restart.
    let mut of_old = after.lines().filter(|line| line.contains("\"old\""));
    assert!(of_old.all(|line| line.contains("request")), "{after}");
    assert!(!after.contains("surus_worker_limits{"), "{after}");
    assert!(after.contains("surus_queue_length{engine=\"kept\"} 0\n"));
}

#[test]
fn engine_of_a_site_has_both_labels() {
    let metrics = Metrics::default();
    metrics.answered("shop/rewind", "2xx", Duration::ZERO);
    metrics.answered("static", "4xx", Duration::ZERO);
    metrics.scaling.expect("shop/rewind");
    let text = metrics.text(&[EngineStatus {
        engine: "shop/rewind".into(),
        queued: 3,
        ..EngineStatus::default()
    }]);
    for line in [
        "surus_requests_total{site=\"shop\",engine=\"rewind\",outcome=\"2xx\"} 1",
        "surus_requests_total{engine=\"static\",outcome=\"4xx\"} 1",
        "surus_request_duration_seconds_count{site=\"shop\",engine=\"rewind\"} 1",
        "surus_worker_scalings_total{site=\"shop\",engine=\"rewind\",direction=\"up\"} 0",
        "surus_queue_length{site=\"shop\",engine=\"rewind\"} 3",
        "surus_workers{site=\"shop\",engine=\"rewind\",state=\"idle\"} 0",
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
    }
    // `surus top` and the dashboard have one name for both.
    assert!(
        metrics
            .outcomes()
            .iter()
            .any(|it| it.engine == "shop/rewind")
    );
}

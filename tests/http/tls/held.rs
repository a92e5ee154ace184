//! Many kept connections of TLS, under load while certificates are replaced and Surus reloads.
//! `make test-tls-load` holds ten thousand for a minute.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::reload::reload;
use super::{Secure, metric, serve};
use crate::common::certificates::Authority;
use crate::limits::memory::{MIB, Sampler, resident, settles_at};
use crate::wire::site;

/// A page of several records of TLS.
const PAGE: &str = "<?php
echo str_repeat('a line of a long page' . PHP_EOL, 2000);
echo 'HTTPS is ', $_SERVER['HTTPS'], ' at the end of ', $_SERVER['SERVER_PROTOCOL'];
";

/// How often each connection is used.
const USES: u64 = 6;

/// The options of `surus bench` and the end of the page for a version of HTTP.
const VERSIONS: [(&[&str], &str); 2] = [
    (&[], "HTTPS is on at the end of HTTP/1.1"),
    (&["--http2"], "HTTPS is on at the end of HTTP/2.0"),
];

/// More than a busy machine takes for one request, or to open all connections.
const PATIENCE: Duration = Duration::from_secs(600);

/// Load of one version, at a rate with which it takes `seconds`.
struct Load {
    connections: u64,
    seconds: u64,
}

impl Load {
    fn start(&self, secure: &Secure, (options, end): (&[&str], &str)) -> Child {
        let port = secure.address.rsplit(':').next().unwrap();
        let requests = USES * self.connections;
        let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
        command
            .arg("bench")
            .arg(format!("https://localhost:{port}/page.php"))
            .arg("--insecure")
            .args(["--concurrency", &self.connections.to_string()])
            .args(["--requests", &requests.to_string()])
            .args(["--rps", &(requests / self.seconds).to_string()])
            .args(["--timeout", &PATIENCE.as_secs().to_string()])
            .args(["--expect-status", "200", "--expect-body", end, "--json"])
            .args(options);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Fails unless each request was answered, over the connections that were opened first.
    fn check(&self, child: Child) {
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let count = |name: &str| report["throughput"][name]["value"].as_f64().unwrap() as u64;
        println!(
            "{} responses over {} connections in {} s",
            count("responses"),
            count("connections"),
            count("elapsed")
        );
        assert_eq!(count("responses"), USES * self.connections, "{report:#}");
        assert_eq!(count("connections"), self.connections, "{report:#}");
    }
}

/// A number that `make test-tls-load` sets.
fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// Replaces the certificate by that of another authority, and boots the application again.
fn renew(secure: &Secure, dir: &Path) {
    let next = Authority::new("Next");
    next.issue(&["localhost"]).write(dir, "server");
    reload(dir).unwrap();
    assert!(secure.has("localhost", &next));
}

#[test]
fn kept_connections_lose_nothing_at_renewals_and_reloads() {
    let connections = number("TLS_CONNECTIONS", 200);
    let seconds = number("TLS_SECONDS", 3);
    let dir = site();
    std::fs::write(dir.path().join("page.php"), PAGE).unwrap();
    // A busy machine may be slower than the rate.
    let env = [
        ("SURUS_ACCESS_LOG_FORMAT", "off"),
        ("SURUS_ENGINE_QUEUE_TARGET", "10m"),
        ("SURUS_ENGINE_QUEUE_TIMEOUT", "10m"),
        ("SURUS_ENGINE_WORKERS", "2"),
    ];
    let mut secure = serve(dir.path(), &env);
    let pid = secure.surus.front();
    let load = |connections, seconds| {
        let load = Load {
            connections,
            seconds,
        };
        let children = VERSIONS.map(|version| load.start(&secure, version));
        (load, children)
    };
    // Memory that the first connections take once.
    let (few, children) = load(10, 1);
    children.into_iter().for_each(|child| few.check(child));
    let before = resident(pid);
    let sampler = Sampler::start(pid);
    let (load, mut children) = load(connections / 2, seconds);
    let began = Instant::now();
    while metric(dir.path(), "surus_connections ") < connections {
        let exited = children
            .iter_mut()
            .any(|it| it.try_wait().unwrap().is_some());
        assert!(
            !exited && began.elapsed() < PATIENCE,
            "{}",
            secure.surus.log()
        );
        sleep(Duration::from_millis(20));
    }
    println!("{connections} connections open after {:?}", began.elapsed());
    let mut renewals = 0;
    while children
        .iter_mut()
        .any(|it| it.try_wait().unwrap().is_none())
    {
        renew(&secure, dir.path());
        renewals += 1;
        sleep(Duration::from_secs(seconds) / 3);
    }
    children.into_iter().for_each(|child| load.check(child));
    let peak = sampler.peak();
    // Below that growth, Surus returns nothing (`src/cli/memory_trim.rs`).
    let limit = before + 24 * MIB;
    let after = settles_at(pid, limit);
    println!(
        "{renewals} renewals and reloads; {} MiB before, {} MiB at the peak, {} MiB after",
        before / MIB,
        (before + peak) / MIB,
        after / MIB
    );
    assert!(after <= limit, "{after} bytes after {before}");
    assert!(renewals > 0);
    secure.surus.signal("TERM");
    assert!(secure.surus.wait().success(), "{}", secure.surus.log());
    let log = secure.surus.log();
    // Tests run as root, without a user for the front end.
    let is_expected = |line: &str| line.contains("set http.user to a user of its own");
    let is_bad = |line: &str| line.contains(" WARN ") || line.contains(" ERROR ");
    let bad: Vec<_> = log
        .lines()
        .filter(|it| is_bad(it) && !is_expected(it))
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

//! Tests that each of many workers runs all warm-ups.

use super::client::Client;
use super::site::Site;

#[test]
fn every_worker_runs_all_warm_ups_and_no_other() {
    let script = "<?php
        $seen = [];
        surus_serve(function () use (&$seen) {
            usleep(3000);
            $seen[] = $_GET['n'] ?? '';
            // With a token: without, a warm-up that changes its page is left out.
            echo implode(',', $seen), ',', bin2hex(random_bytes(16));
        });";
    let site = Site::new().write("index.php", script);
    let warmup = (1..=9).map(|n| format!("/?n={n}")).collect::<Vec<_>>();
    let warmup = ("SURUS_ENGINE_WARMUP", &*warmup.join(","));
    for engine in ["worker", "standby"] {
        let surus = site.serve_with(&["--engine", engine, "--workers", "16"], &[warmup]);
        for _ in 0..4 {
            let seen = Client::new(&surus.url).get("/").ok().text();
            assert!(seen.starts_with("1,2,3,4,5,6,7,8,9,"), "{engine}: {seen}");
        }
        let log = surus.log();
        assert!(!log.contains("malformed"), "{log}");
    }
}

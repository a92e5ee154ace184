//! Tests that the number of workers follows the load, and that no request is lost meanwhile.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::Surus;

const SCRIPT: &str = r#"<?php
function answer() {
    usleep((int) ($_GET['sleep'] ?? 0) * 1000);
    if (isset($_GET['crash'])) {
        posix_kill(getmypid(), 9);
    }
    echo 'pid ', getmypid();
}
if (function_exists('surus_serve') && getenv('SURUS_ENGINE') !== 'classic') {
    surus_serve('answer');
} else {
    answer();
}
"#;

struct Scaled {
    surus: Surus,
    _site: tempfile::TempDir,
}

impl Scaled {
    fn start(engine: &str) -> Scaled {
        let site = tempfile::tempdir().unwrap();
        std::fs::set_permissions(site.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let configuration = format!(
            "[engine]\nname = '{engine}'\nscript = 'index.php'\nmin_workers = 1\nmax_workers = 6\n\
             spare_workers = 0\nqueue_timeout = '60s'\n"
        );
        std::fs::write(site.path().join("surus.toml"), configuration).unwrap();
        std::fs::write(site.path().join("index.php"), SCRIPT).unwrap();
        Scaled {
            surus: Surus::serve(site.path(), &[]),
            _site: site,
        }
    }

    /// Sends requests at once. Returns their answers.
    fn get(&self, count: usize, query: &str) -> Vec<String> {
        let url = format!("{}/index.php?{query}", self.surus.url);
        let requests: Vec<_> = (0..count)
            .map(|_| {
                Command::new("curl")
                    .args(["-s", "--max-time", "120", &url])
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        requests
            .into_iter()
            .map(|request| String::from_utf8(request.wait_with_output().unwrap().stdout).unwrap())
            .collect()
    }

    fn status(&self) -> serde_json::Value {
        let output = Command::new(env!("CARGO_BIN_EXE_surus"))
            .args(["status", "--json"])
            .arg(self._site.path())
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// Waits until there are that many workers.
    fn wait_for(&self, is_met: impl Fn(u64) -> bool) {
        let began = Instant::now();
        loop {
            let status = self.status().to_string();
            let count = status.matches("\"pid\":").count() as u64;
            if is_met(count) {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(200), "{status}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn pool_grows_under_load_and_shrinks_at_rest_without_a_lost_request() {
    for engine in ["classic", "rewind", "worker", "fork"] {
        let pool = Scaled::start(engine);
        pool.wait_for(|count| count == 1);
        for round in 0..2 {
            let answers = pool.get(24, "sleep=300");
            let lost = answers
                .iter()
                .filter(|answer| !answer.starts_with("pid "))
                .count();
            assert_eq!(lost, 0, "{engine}, round {round}: {answers:?}");
        }
        pool.wait_for(|count| count == 6);
        // A worker that is killed is replaced, and a reload keeps the size.
        pool.get(1, "crash=1");
        pool.wait_for(|count| count == 6);
        pool.surus.signal("HUP");
        pool.surus.wait_for_log(|log| log.contains("reloaded"));
        let answers = pool.get(12, "sleep=100");
        assert!(
            answers.iter().all(|answer| answer.starts_with("pid ")),
            "{engine}"
        );
    }
}

#[test]
fn resting_pool_returns_its_workers_and_grows_again() {
    let pool = Scaled::start("rewind");
    pool.get(24, "sleep=300");
    pool.wait_for(|count| count == 6);
    pool.wait_for(|count| count == 1);
    let answers = pool.get(24, "sleep=300");
    assert!(
        answers.iter().all(|answer| answer.starts_with("pid ")),
        "{answers:?}"
    );
    pool.wait_for(|count| count == 6);
}

//! Tests that the number of workers follows the load, and that no request is lost meanwhile.

use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::Surus;

const SCRIPT: &str = r#"<?php
function answer() {
    usleep((int) ($_GET['sleep'] ?? 0) * 1000);
    while (isset($_GET['gate']) && !file_exists($_GET['gate'])) {
        usleep(5000);
    }
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

/// The most workers of the pool.
const MAX: usize = 6;
/// How long a pool may take for what the tests wait for.
const PATIENCE: Duration = Duration::from_secs(200);

struct Scaled {
    surus: Surus,
    site: tempfile::TempDir,
}

impl Scaled {
    fn start(engine: &str) -> Scaled {
        let site = tempfile::tempdir().unwrap();
        std::fs::set_permissions(site.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let configuration = format!(
            "[engine]\nname = '{engine}'\nscript = 'index.php'\nmin_workers = 1\n\
             max_workers = {MAX}\nspare_workers = 0\nqueue_timeout = '10m'\n\
             queue_interval = '10m'\n"
        );
        std::fs::write(site.path().join("surus.toml"), configuration).unwrap();
        std::fs::write(site.path().join("index.php"), SCRIPT).unwrap();
        Scaled {
            surus: Surus::serve(site.path(), &[]),
            site,
        }
    }

    /// Sends requests at once.
    fn send(&self, count: usize, query: &str) -> Vec<Child> {
        let url = format!("{}/index.php?{query}", self.surus.url);
        let send = |_| {
            Command::new("curl")
                .args(["-s", "--max-time", "120", &url])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        };
        (0..count).map(send).collect()
    }

    /// Sends requests at once and waits for their answers, which must all come from the script.
    fn get(&self, count: usize, query: &str) {
        assert_answered(self.send(count, query));
    }

    /// Loads the pool until it has all its workers. A pool at rest soon has fewer.
    fn fill(&self) {
        let began = Instant::now();
        let mut is_full = false;
        while !is_full {
            let requests = self.send(24, "sleep=300");
            let status = self.status();
            assert_answered(requests);
            is_full = count(&status) == MAX;
            assert!(is_full || began.elapsed() < PATIENCE, "{status}");
        }
    }

    /// Reloads the full pool while each worker of both generations has a request.
    fn reload(&self) {
        let gate = self.site.path().join("gate");
        let requests = self.send(2 * MAX, &format!("gate={}", gate.display()));
        self.wait_for(MAX);
        self.surus.signal("HUP");
        self.surus.wait_for_log(|log| log.contains("reloaded"));
        let status = self.status();
        assert_eq!(count(&status), MAX, "{status}");
        std::fs::write(gate, "").unwrap();
        assert_answered(requests);
    }

    fn status(&self) -> serde_json::Value {
        let output = Command::new(env!("CARGO_BIN_EXE_surus"))
            .args(["status", "--json"])
            .arg(self.site.path())
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// Waits until there are that many workers.
    fn wait_for(&self, workers: usize) {
        let began = Instant::now();
        loop {
            let status = self.status();
            if count(&status) == workers {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{status}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// How many workers a status names.
fn count(status: &serde_json::Value) -> usize {
    status.to_string().matches("\"pid\":").count()
}

fn assert_answered(requests: Vec<Child>) {
    for request in requests {
        let output = request.wait_with_output().unwrap();
        let answer = String::from_utf8_lossy(&output.stdout);
        assert!(answer.starts_with("pid "), "{answer}");
    }
}

#[test]
fn grown_pool_loses_no_request_by_a_crash_or_reload_and_keeps_its_size() {
    for engine in ["classic", "rewind", "worker", "fork"] {
        println!("{engine}");
        let pool = Scaled::start(engine);
        pool.wait_for(1);
        pool.fill();
        pool.send(1, "crash=1").remove(0).wait().unwrap();
        pool.fill();
        pool.reload();
        pool.get(12, "sleep=100");
    }
}

#[test]
fn resting_pool_returns_its_workers_and_grows_again() {
    let pool = Scaled::start("rewind");
    pool.fill();
    pool.wait_for(1);
    pool.fill();
}

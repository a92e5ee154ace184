//! The function under test in the emulator behind a queue, and the thread that kills its workers.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use surus::emulator::sqs::{Mapping, Poller};
use surus::emulator::{EmulatedFunction, Emulator, Initialization};
use tokio::task::AbortHandle;

use crate::common::tree;

/// A message says how it fails the first times: it throws (`fails`), kills its process before it is
/// done (`crashes`), or after it has noted that it is (`late`). Files count the times, since they
/// survive a process.
const HANDLER: &str = r#"<?php
return static function (array $event, Surus\Lambda\Context $context): void {
    $note = static fn (string $line) => file_put_contents(__DIR__.'/notes', "$line\n", FILE_APPEND);
    if (isset($event['meet'])) {
        // So that every environment has started.
        $note('meet');
        while (substr_count(file_get_contents(__DIR__.'/notes'), 'meet') < $event['meet']) {
            usleep(5000);
        }
        return;
    }
    [$record] = $event['Records'];
    $message = json_decode($record['body'], true);
    $about = implode(' ', [
        $message['group'],
        $message['number'],
        getmypid(),
        $context->awsRequestId,
        $record['receiptHandle'],
    ]);
    $times = static function (string $what) use ($message): int {
        $file = __DIR__."/times/$message[group]-$message[number]-$what";
        file_put_contents($file, 'x', FILE_APPEND);
        clearstatcache();
        return filesize($file);
    };
    $note("begins $about");
    usleep(random_int(0, 1000));
    if ($message['fails'] && $times('fails') <= $message['fails']) {
        $note("failed $about");
        throw new RuntimeException('as told');
    }
    if ($message['crashes'] && $times('crashes') <= $message['crashes']) {
        $note("killed $about");
        posix_kill(getmypid(), SIGKILL);
    }
    $note("done $about");
    if ($message['late'] && $times('late') <= $message['late']) {
        $note("killed $about");
        posix_kill(getmypid(), SIGKILL);
    }
};
"#;

/// Concurrent batches, each in its own environment.
const ENVIRONMENTS: usize = 2;
const WORKERS: usize = 4;
/// Timeout of one event. Longer than anything here takes, even on a slow machine.
pub const TIMEOUT: Duration = Duration::from_secs(60);

pub struct Consumer {
    emulator: Emulator,
    dir: tempfile::TempDir,
    polling: AbortHandle,
    complaints: Arc<Mutex<Vec<String>>>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Consumer {
    /// Starts to consume the queue.
    pub async fn start(queue: &str, reports_failures: bool) -> Consumer {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_path_buf();
        install(&path, reports_failures);
        let log = Arc::new(Mutex::new(Vec::new()));
        let kept = log.clone();
        let arguments = ["lambda", path.to_str().unwrap()];
        let mut function = EmulatedFunction::command(env!("CARGO_BIN_EXE_surus"), arguments);
        function.timeout = TIMEOUT;
        function.memory = 1769;
        function.environments = ENVIRONMENTS;
        function.initialization = Initialization::Provisioned;
        function.keeps_log = false;
        function.sink = Some(Arc::new(move |line: &str| {
            kept.lock().unwrap().push(line.to_string());
        }));
        if let Ok(php) = std::env::var("SURUS_ENGINE_SURUS_PHP") {
            function
                .variables
                .insert("SURUS_ENGINE_SURUS_PHP".into(), php);
        }
        let emulator = Emulator::start(function).await.unwrap();
        let meet = || emulator.invoke(format!(r#"{{"meet":{ENVIRONMENTS}}}"#));
        let (one, other) = tokio::join!(meet(), meet());
        assert!(one.result.is_ok() && other.result.is_ok(), "{one:?}");
        let mapping = Mapping {
            queue: queue.into(),
            batch: 10,
            window: Duration::ZERO,
            reports_failures,
            pollers: ENVIRONMENTS,
        };
        let complaints = Arc::new(Mutex::new(Vec::new()));
        let heard = complaints.clone();
        let tell = Arc::new(move |line: &str| heard.lock().unwrap().push(line.to_string()));
        let poller = Poller::new(emulator.clone(), mapping, tell).await.unwrap();
        let polling = tokio::spawn(poller.run()).abort_handle();
        Consumer {
            emulator,
            dir,
            polling,
            complaints,
            log,
        }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().to_path_buf()
    }

    /// Stops it. Returns the handlers' notes and the poller's complaints.
    pub async fn end(self) -> (String, Vec<String>) {
        self.polling.abort();
        self.emulator.stop().await;
        if std::env::var_os("SHOW").is_some() {
            eprintln!("{}", self.log.lock().unwrap().join("\n"));
        }
        let notes = std::fs::read_to_string(self.dir.path().join("notes")).unwrap();
        let complaints = self.complaints.lock().unwrap().clone();
        (notes, complaints)
    }
}

fn install(dir: &Path, reports_failures: bool) {
    open_to_all(dir);
    tree::copy_library(&dir.join("vendor/surus/surus"));
    std::fs::create_dir(dir.join("times")).unwrap();
    open_to_all(&dir.join("times"));
    std::fs::write(dir.join("notes"), "").unwrap();
    std::fs::set_permissions(dir.join("notes"), PermissionsExt::from_mode(0o666)).unwrap();
    std::fs::write(dir.join("handler.php"), HANDLER).unwrap();
    let partial_batch = if reports_failures { "on" } else { "off" };
    let settings = format!(
        "[engine]
workers = {WORKERS}
[lambda]
handler = 'handler.php'
batch = 'record'
report_batch_item_failures = '{partial_batch}'
"
    );
    std::fs::write(dir.join("surus.toml"), settings).unwrap();
}

fn open_to_all(dir: &Path) {
    std::fs::set_permissions(dir, PermissionsExt::from_mode(0o777)).unwrap();
}

/// Kills random workers of a function at random moments.
pub struct Killer {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Vec<u32>>,
}

impl Killer {
    pub fn start(function: PathBuf, max: usize) -> Killer {
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut killed = Vec::new();
            let mut random = std::process::id() as usize;
            while !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(50));
                if killed.len() >= max {
                    continue;
                }
                let workers = workers(&function);
                random = random
                    .wrapping_mul(0x5851_f42d_4c95_7f2d)
                    .wrapping_add(0x1405_7b7e);
                if let Some(pid) = workers.get((random >> 33) % workers.len().max(1)) {
                    let kill = Command::new("kill")
                        .args(["-KILL", &pid.to_string()])
                        .output();
                    if kill.is_ok_and(|kill| kill.status.success()) {
                        killed.push(*pid);
                    }
                }
            }
            killed
        });
        Killer { stop, thread }
    }

    /// Returns the pids it has killed.
    pub fn end(self) -> Vec<u32> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// This process has started the runtimes, those the prototype processes, and those the workers.
fn workers(function: &Path) -> Vec<u32> {
    let name = function.to_str().unwrap();
    let runtimes = children(std::process::id()).into_iter().filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(name)
    });
    runtimes.flat_map(children).flat_map(children).collect()
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let mut all = Vec::new();
    for task in tasks.into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        all.extend(
            text.split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    all
}

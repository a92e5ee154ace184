//! Starts and stops `surus work`.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::site::Site;

/// A running `surus work`. Dropping it kills it.
pub struct Work {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Work {
    /// Works on the queues of a site, and returns once PHP has booted.
    #[track_caller]
    pub fn start(site: &Site, args: &[&str], env: &[(&str, &str)]) -> Work {
        let work = Work::spawn(site, args, env);
        work.wait_for_log(|log| log.contains("working on queue"));
        work
    }

    pub fn spawn(site: &Site, args: &[&str], env: &[(&str, &str)]) -> Work {
        site.stored();
        Work::spawn_in(&site.www(), args, env)
    }

    /// The same in a directory that stays the user's that runs the test.
    pub fn spawn_in(project: &Path, args: &[&str], env: &[(&str, &str)]) -> Work {
        let mut child = Command::new(env!("CARGO_BIN_EXE_surus"))
            .arg("work")
            .arg(project)
            .args(args)
            .env("SURUS_WORK_ADMIN_LISTEN", "127.0.0.1:0")
            .env("SURUS_ENGINE_VERIFY_RESTORE", "true")
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        follow(child.stdout.take().unwrap(), log.clone());
        follow(child.stderr.take().unwrap(), log.clone());
        Work { child, log }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until `condition` holds for the log.
    #[track_caller]
    pub fn wait_for_log(&self, condition: impl Fn(&str) -> bool) {
        self.wait_until(|| condition(&self.log.lock().unwrap()));
    }

    /// Waits until `condition` holds; panics with the log after a minute or more.
    #[track_caller]
    pub fn wait_until(&self, condition: impl Fn() -> bool) {
        self.wait_for_minutes(1, condition);
    }

    #[track_caller]
    pub fn wait_for_minutes(&self, minutes: usize, condition: impl Fn() -> bool) {
        for _ in 0..6000 * minutes {
            if condition() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it has not come true; the log:\n{}", self.log());
    }

    /// Waits until nothing is left, as long as less is left every minute.
    #[track_caller]
    pub fn wait_until_none(&self, left: impl Fn() -> usize) {
        let mut least = left();
        while least > 0 {
            self.wait_until(|| left() < least);
            least = left().min(least - 1);
        }
    }

    /// How often a job has reached its timeout.
    pub fn timeouts(&self) -> usize {
        let is_one = |line: &&str| {
            line.contains("job failed") && line.contains("no response before the deadline")
        };
        self.log().lines().filter(is_one).count()
    }

    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Shuts down, so that the broker knows what has happened to all jobs.
    #[track_caller]
    #[cfg_attr(not(feature = "amqp"), allow(dead_code))]
    pub fn end(mut self) {
        self.signal("TERM");
        assert!(self.wait().success(), "{}", self.log());
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if !std::thread::panicking() {
            let log = self.log();
            assert!(!log.contains("restored state differs"), "{log}");
        }
    }
}

/// Runs a test with a short time, and with longer ones until it says that the time was right. On a
/// busy machine, what needs hardly any time needs some.
#[track_caller]
pub fn with_longer_times(is_right: impl FnMut(&str) -> bool) {
    assert!(["1s", "5s", "20s"].into_iter().any(is_right));
}

pub fn signal(pid: u32, name: &str) {
    // It may have exited meanwhile.
    let _ = Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .stderr(Stdio::null())
        .status();
}

/// The descendants of a process, without itself.
pub fn descendants(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let children = tasks
        .map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default())
        .collect::<String>();
    let mut all = Vec::new();
    for child in children.split_whitespace() {
        let child = child.parse().unwrap();
        all.push(child);
        all.extend(descendants(child));
    }
    all
}

fn follow(from: impl Read + Send + 'static, log: Arc<Mutex<String>>) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            let Ok(line) = line else { return };
            let mut log = log.lock().unwrap();
            log.push_str(&line);
            log.push('\n');
        }
    });
}

/// The lines that jobs have noted.
pub fn notes(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_string).collect()
}

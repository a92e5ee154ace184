//! Starts and stops the `surus` under test.
#![allow(dead_code, clippy::unwrap_used)]

pub mod certificates;
pub mod empty_root;
pub mod engines;
pub mod executable;
pub mod function_url;
pub mod gate;
pub mod order;
pub mod php;
pub mod ports;
pub mod preload;
pub mod releases;
pub mod threads;
pub mod tree;
pub mod user;
pub mod web_servers;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A running `surus serve`. Dropping it drains it and waits.
pub struct Surus {
    child: Child,
    /// `http://127.0.0.1:PORT`, without a trailing slash.
    pub url: String,
    /// `127.0.0.1:PORT`.
    pub address: String,
    log: Arc<Mutex<String>>,
}

/// Where tests leave what Surus keeps for its next start.
fn state_directory() -> PathBuf {
    std::env::temp_dir().join(format!("surus-tests-state-{}", surus_sys::process::uid()))
}

/// Runs a command with bytes in its standard input, which is a pipe. It need not read all of them.
pub fn run_with_input(command: &mut Command, input: &[u8]) -> Output {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.stderr(Stdio::piped()).spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

impl Surus {
    /// Serves `dir` on a free port. `args` are added to the command line.
    pub fn serve(dir: &Path, args: &[&str]) -> Surus {
        Self::spawn(dir, args, &[]).unwrap_or_else(|log| panic!("surus did not start:\n{log}"))
    }

    /// Like `serve`, with environment variables; the error is everything that was printed.
    pub fn spawn(dir: &Path, args: &[&str], env: &[(&str, &str)]) -> Result<Surus, String> {
        Self::spawn_by(Command::new(env!("CARGO_BIN_EXE_surus")), dir, args, env)
    }

    /// Like `spawn`, through a command that becomes `surus`.
    pub fn spawn_by(
        mut surus: Command,
        dir: &Path,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Result<Surus, String> {
        surus.arg("serve").arg(dir);
        Self::start(surus, args, env)
    }

    /// Like `spawn_by`, for a command that names the application.
    pub fn start(
        mut server: Command,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Result<Surus, String> {
        // One pipe, so that the log has what was printed before the line that ends the start.
        let (output, both) = std::io::pipe().unwrap();
        let mut child = server
            .args(["--listen", "127.0.0.1:0"])
            .args(args)
            .envs(few_extensions())
            .env("STATE_DIRECTORY", state_directory())
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(both.try_clone().unwrap())
            .stderr(both)
            .spawn()
            .unwrap();
        // It has the pipe open.
        drop(server);
        let log = Arc::new(Mutex::new(String::new()));
        let (said, listening) = mpsc::channel();
        follow(output, log.clone(), said);
        match listening.recv_timeout(Duration::from_secs(120)) {
            Ok(url) => {
                let address = url.trim_start_matches("http://").to_string();
                Ok(Surus {
                    child,
                    url,
                    address,
                    log,
                })
            }
            Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                std::thread::sleep(Duration::from_millis(50));
                Err(log.lock().unwrap().clone())
            }
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The front-end process: the child of the process that was started as root, or that process
    /// itself.
    pub fn front(&self) -> u32 {
        front(self.pid())
    }

    /// Everything printed so far on both streams.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until `condition` holds for the log; panics with the log after a minute.
    pub fn wait_for_log(&self, condition: impl Fn(&str) -> bool) {
        self.wait_for_log_within(60, condition);
    }

    /// The same, after this many seconds.
    pub fn wait_for_log_within(&self, seconds: u32, condition: impl Fn(&str) -> bool) {
        for _ in 0..seconds * 100 {
            if condition(&self.log.lock().unwrap()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("not in the log:\n{}", self.log());
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-s", name, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Waits for its exit and returns the status.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Surus {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.signal("TERM");
            for _ in 0..500 {
                if !matches!(self.child.try_wait(), Ok(None)) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if !std::thread::panicking() {
            // Fails on a difference that engine.verify_restore reports, for every test.
            let log = self.log();
            assert!(!log.contains("restored state differs"), "{log}");
        }
    }
}

/// The variable that makes PHP start fast. Applications need more extensions, and the leak corpus
/// has a case for nearly each.
fn few_extensions() -> Option<(&'static str, &'static str)> {
    let needs_all =
        ["apps", "applications", "lambda", "rewind"].contains(&env!("CARGO_CRATE_NAME"));
    (!needs_all).then(|| ("PHP_INI_SCAN_DIR", php::few_extensions()))
}

/// The front-end process of the server with this pid.
pub fn front(surus: u32) -> u32 {
    let tasks = std::fs::read_dir(format!("/proc/{surus}/task")).unwrap();
    let children = tasks
        .flatten()
        .map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
    let children = children.collect::<String>();
    let mut children = children.split_whitespace().map(|pid| pid.parse().unwrap());
    let front = children.find(|pid| name(*pid) == "surus front end");
    front.unwrap_or(surus)
}

/// A directory in which every user may create files.
pub fn spool() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let spool = tempfile::tempdir().unwrap();
    std::fs::set_permissions(spool.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
    spool
}

/// The user and the group of a process.
pub fn user_of(pid: u32) -> (u32, u32) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let id = |name: &str| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    (id("Uid:"), id("Gid:"))
}

/// Whether this is a process of Surus itself, such as keeper or opener, and not of PHP.
pub fn is_surus(pid: u32) -> bool {
    ["surus front end", "surus opener"].contains(&name(pid).as_str())
}

fn name(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_string()
}

/// Copies a stream into `log` and reports the address from the line that announces a TCP listener.
fn follow(stream: impl Read + Send + 'static, log: Arc<Mutex<String>>, said: mpsc::Sender<String>) {
    std::thread::spawn(move || {
        let mut lines = BufReader::new(stream);
        let mut line = Vec::new();
        while matches!(lines.read_until(b'\n', &mut line), Ok(n) if n > 0) {
            let text = String::from_utf8_lossy(&line).into_owned();
            log.lock().unwrap().push_str(&text);
            if let Some(at) = text.find("listening on http://") {
                let url = text[at + "listening on ".len()..]
                    .split_whitespace()
                    .next()
                    .unwrap();
                let _ = said.send(url.to_string());
            }
            line.clear();
        }
    });
}

/// A PHP_INI_SCAN_DIR that loads php-fpm's extensions, and those of `names` that Debian has not
/// enabled. Writes below `dir`.
pub fn extension_files(dir: &Path, names: &str) -> String {
    let minor = php::minor();
    let installed = format!("/etc/php/{minor}/fpm/conf.d");
    let enabled: Vec<String> = std::fs::read_dir(&installed)
        .unwrap()
        .map(|file| file.unwrap().file_name().to_str().unwrap().to_string())
        .collect();
    let added = dir.join("ini");
    std::fs::create_dir(&added).unwrap();
    let lines: String = names
        .split_whitespace()
        .filter(|name| !php::lacks(name))
        .filter(|name| {
            !enabled
                .iter()
                .any(|file| file.ends_with(&format!("-{name}.ini")))
        })
        .map(|name| format!("extension={name}\n"))
        .collect();
    std::fs::write(added.join("90-added.ini"), lines).unwrap();
    format!("{installed}:{}", added.display())
}

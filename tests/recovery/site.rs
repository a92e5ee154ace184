//! A running `surus` with an application of PHP files, its processes, and a client without a
//! library.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::Surus;
use crate::common::gate::until_there;

pub struct Site {
    pub surus: Surus,
    pub dir: tempfile::TempDir,
}

const FILES: &[(&str, &str)] = &[
    ("hello.php", "echo 'hello';"),
    ("pid.php", "echo getmypid();"),
    (
        "nap.php",
        "touch($_GET['began'] ?? '/dev/null'); usleep((int) $_GET['ms'] * 1000); echo 'rested';",
    ),
    (
        "loop.php",
        "touch($_GET['began'] ?? '/dev/null'); while (true) {}",
    ),
    (
        "segfault.php",
        "posix_kill(posix_getpid(), 11); while (true) {}",
    ),
    ("die.php", "posix_kill(posix_getpid(), 9); while (true) {}"),
    ("sleep.php", "sleep(60);"),
    (
        "limit.php",
        "ini_set('display_errors', 0); ini_set('memory_limit', '8M'); $x = str_repeat('x', 64 << \
            20);",
    ),
    (
        "eat.php",
        "ini_set('memory_limit', -1); $x = []; while (true) $x[] = str_repeat('x', 1 << 20);",
    ),
    (
        "echo.php",
        "if (isset($_GET['us'])) usleep((int) $_GET['us']); echo $_GET['n'], str_repeat('.', (int) \
            ($_GET['more'] ?? 0));",
    ),
    (
        "count.php",
        "echo strlen(file_get_contents('php://input'));",
    ),
    (
        "stream.php",
        "touch($_GET['began'] ?? '/dev/null');
        for ($i = 0; $i < 60000; $i++) {
            echo str_repeat('x', 4096);
            flush();
            usleep(1000);
        }",
    ),
    (
        "log.php",
        "error_log('<'.str_repeat('l', 1 << 20).'>'); file_put_contents('php://stderr', \"to \
            stderr\\n\"); $o = fopen('php://stdout', 'w'); fwrite($o, \"to stdout\\n\"); echo \
            'logged';",
    ),
    (
        "who.php",
        "echo json_encode([posix_getpwuid(posix_geteuid())['name'], posix_getuid() === \
            posix_geteuid(), getenv('SECRET'), getenv('SURUS_ENV_SECRET'), getenv('CARGO'), \
            array_keys(getenv())]);",
    ),
];

/// A busy machine rejects no request, except where a test wants that.
pub const PATIENT: [(&str, &str); 2] = [
    ("SURUS_ENGINE_QUEUE_TIMEOUT", "10m"),
    ("SURUS_ENGINE_QUEUE_INTERVAL", "10m"),
];

/// How long a client waits for bytes of a response.
pub const READ_TIMEOUT: Duration = Duration::from_secs(120);

/// The file that the script `gate.php` waits for.
const GATE: &str = "gate";

/// A directory with the files above, readable by the workers' user, and a writable directory in it.
pub fn app() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    for (name, code) in FILES {
        std::fs::write(dir.path().join(name), format!("<?php {code}")).unwrap();
    }
    let gate = format!(
        "<?php touch($_GET['began'] ?? '/dev/null'); {} echo 'rested';",
        until_there(&dir.path().join(GATE))
    );
    std::fs::write(dir.path().join("gate.php"), gate).unwrap();
    let writable = dir.path().join("writable");
    std::fs::create_dir(&writable).unwrap();
    std::fs::set_permissions(&writable, std::fs::Permissions::from_mode(0o777)).unwrap();
    dir
}

impl Site {
    pub fn start(args: &[&str], env: &[(&str, &str)]) -> Site {
        let dir = app();
        let env = [&PATIENT, env].concat();
        let surus = Surus::spawn(dir.path(), args, &env)
            .unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
        Site { surus, dir }
    }

    pub fn get(&self, path: &str) -> Answer {
        self.ask(&request("GET", path, "")).expect("an answer")
    }

    /// Like `get`, where a short timeout ends other requests: on a busy machine, this one may miss
    /// it, too. Then it is sent again.
    pub fn get_in_time(&self, path: &str) -> Answer {
        let began = Instant::now();
        loop {
            let answer = self.get(path);
            let is_late = [503, 504].contains(&answer.status);
            if !is_late || began.elapsed() > Duration::from_secs(60) {
                return answer;
            }
        }
    }

    /// Lets all requests for `gate.php` end.
    pub fn open_gate(&self) {
        std::fs::write(self.dir.path().join(GATE), "").unwrap();
    }

    pub fn ask(&self, request: &str) -> std::io::Result<Answer> {
        ask(&self.surus.address, request.as_bytes())
    }

    /// Starts a GET in parallel to the test.
    pub fn begin(&self, path: &str) -> std::thread::JoinHandle<std::io::Result<Answer>> {
        let (address, request) = (self.surus.address.clone(), request("GET", path, ""));
        std::thread::spawn(move || ask(&address, request.as_bytes()))
    }

    /// The same, for a script that touches `began`; returns when it has.
    pub fn begun(&self, path: &str) -> std::thread::JoinHandle<std::io::Result<Answer>> {
        self.try_begun(path).unwrap_or_else(|answer| {
            panic!("{path} did not begin: {answer:?}\n{}", self.surus.log())
        })
    }

    /// The same; the error is the answer to a script that was not begun by its deadline, None if
    /// there is no answer for a minute.
    pub fn try_begun(
        &self,
        path: &str,
    ) -> Result<std::thread::JoinHandle<std::io::Result<Answer>>, Option<Answer>> {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let name = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        let began = self.dir.path().join("writable").join(name);
        let separator = if path.contains('?') { '&' } else { '?' };
        let task = self.begin(&format!("{path}{separator}began={}", began.display()));
        for _ in 0..12_000 {
            let is_answered = task.is_finished();
            if began.exists() {
                return Ok(task);
            }
            if is_answered {
                return Err(task.join().unwrap().ok());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(None)
    }

    pub fn master(&self) -> u32 {
        master_of(&self.surus)
    }

    pub fn workers(&self) -> Vec<u32> {
        children(self.master())
    }

    /// Sends requests from `threads` threads until the load is stopped.
    pub fn load(&self, threads: usize, path: &str) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicUsize::new(0));
        let threads = (0..threads)
            .map(|n| {
                let (stop, answered) = (stop.clone(), answered.clone());
                let address = self.surus.address.clone();
                let request = request(if n % 2 == 0 { "GET" } else { "POST" }, path, "");
                std::thread::spawn(move || {
                    let mut answers = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        match ask(&address, request.as_bytes()) {
                            Ok(answer) => {
                                answers.push(Some(answer.status));
                                answered.fetch_add(1, Ordering::Relaxed);
                            }
                            // It was not accepted.
                            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                                std::thread::sleep(Duration::from_millis(2));
                            }
                            Err(_) => answers.push(None),
                        }
                    }
                    answers
                })
            })
            .collect();
        Load {
            stop,
            answered,
            threads,
        }
    }
}

pub struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    threads: Vec<std::thread::JoinHandle<Vec<Option<u16>>>>,
}

impl Load {
    /// Waits until so many requests have been answered.
    pub fn wait_for(&self, answers: usize) {
        until("requests are answered", || {
            self.answered.load(Ordering::Relaxed) >= answers
        });
    }

    /// The statuses of all responses; None for a connection that ended without one.
    pub fn stop(mut self) -> Vec<Option<u16>> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads
            .drain(..)
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

pub fn request(method: &str, path: &str, body: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: \
            {}\r\n\r\n{body}",
        body.len()
    )
}

/// Sends `request`, which must ask for the connection to be closed, on a new connection.
pub fn ask(address: &str, request: &[u8]) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    // A rejection may come before everything is sent.
    let sent = stream.write_all(request);
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let parsed = text.split_once("\r\n\r\n").and_then(|(head, body)| {
        Some(Answer {
            status: head.split(' ').nth(1)?.parse().ok()?,
            body: body.to_string(),
        })
    });
    match parsed {
        Some(answer) => Ok(answer),
        None => {
            sent?;
            read?;
            Err(std::io::ErrorKind::UnexpectedEof.into())
        }
    }
}

/// The admin socket's response.
pub fn metrics(admin: &Path) -> String {
    let output = Command::new("curl")
        .args(["-s", "--unix-socket"])
        .arg(admin)
        .arg("http://admin/metrics")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..24_000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("two minutes have passed without: {what}");
}

/// The master process of a server with one pool.
pub fn master_of(surus: &Surus) -> u32 {
    let mut found = None;
    until("there is one master process", || {
        // A keeper has a front end and an opener, too.
        let is_php = |pid: &u32| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
            name.is_ok_and(|name| name.starts_with("surus-php"))
        };
        found = children(surus.pid()).into_iter().find(is_php);
        found.is_some()
    });
    found.unwrap()
}

/// The process has stopped when this returns: a sleeping process that has not run since still
/// receives a message that arrives meanwhile.
pub fn kill(pid: u32, signal: &str) {
    let _ = Command::new("kill")
        .args(["-s", signal, &pid.to_string()])
        .stderr(Stdio::null())
        .status();
    if signal == "STOP" {
        until("it has stopped", || {
            !state(pid).is_some_and(|state| state != "T" && state != "Z")
        });
    }
}

/// Whether the process exists and is not a zombie.
pub fn lives(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != "Z")
}

fn state(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit(')').next()?.split_whitespace().next()?.into())
}

/// The PHP processes that it has started, zombies included.
pub fn children(pid: u32) -> Vec<u32> {
    let mut children = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        children.extend(
            text.split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    children.retain(|pid| !crate::common::is_surus(*pid));
    children.sort_unstable();
    children
}

pub fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count()
}

pub fn is_root() -> bool {
    std::fs::metadata("/proc/self")
        .is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0)
}

/// A file system of `size` bytes; unmounted when dropped.
pub struct Tmpfs(PathBuf);

impl Tmpfs {
    /// None without the permission to mount.
    pub fn mount(at: &Path, size: u32) -> Option<Tmpfs> {
        std::fs::create_dir(at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(at)
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then(|| Tmpfs(at.into()))
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        let df = Command::new("df")
            .args(["--output=used", "-B1"])
            .arg(&self.0)
            .output()
            .unwrap();
        String::from_utf8_lossy(&df.stdout)
            .lines()
            .nth(1)
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

//! A `surus serve` of the user's application on a free port, which never outlives this process.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use surus_measure::probe;
use surus_sys::process::{self, Orphan};
use tempfile::TempDir;

use crate::cli::bench::interrupt;

/// The interval at which a waiting loop polls.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long a server may take to end before it is killed with all its processes. It aborts requests
/// after a second.
const TO_END: Duration = Duration::from_secs(5);
/// Lines of its log that are kept.
const KEPT_LINES: usize = 40;
/// The most characters of a reason.
const REASON: usize = 300;

/// What follows the message of a process that has ended before it served.
const ENDS: [&str; 2] = [
    ": a worker exited during start-up: ",
    ": PHP did not start: ",
];

/// Whole sections of the configuration that would reach what the user's own server has:
/// certificates, log files, queues and schedules, the collector of traces. A server announces its
/// address on stdout because its access log has no file.
const SECTIONS: [(&str, &str); 6] = [
    ("SURUS_ACCESS_LOG", "{ format = 'off' }"),
    ("SURUS_ACME", "{}"),
    ("SURUS_LOG", "{ format = 'text', level = 'warn' }"),
    ("SURUS_TELEMETRY", "{}"),
    ("SURUS_TLS", "{}"),
    ("SURUS_WORK", "{}"),
];
/// Settings with which a server runs on the requested engine, is reachable without TLS and proxies,
/// and ends soon.
const SETTINGS: [(&str, &str); 6] = [
    ("SURUS_ENGINE_MUST_BOOT", "true"),
    ("SURUS_HTTP_H3", "false"),
    ("SURUS_HTTP_PROXY_PROTOCOL", "false"),
    ("SURUS_HTTP_REDIRECT_TO_HTTPS", "false"),
    ("SURUS_HTTP_SHUTDOWN_DELAY", "0s"),
    ("SURUS_HTTP_SHUTDOWN_TIMEOUT", "1s"),
];
/// The standard variable with which Surus sends no traces, even if a setting names a collector.
const NO_TRACES: (&str, &str) = ("OTEL_TRACES_EXPORTER", "none");

/// How the application is started on each engine.
#[derive(Debug)]
pub struct Launch {
    /// Its directory.
    pub project: PathBuf,
    /// Its configuration file, if one was named.
    pub config: Option<PathBuf>,
    /// PHP processes.
    pub workers: usize,
    /// Whether boots would learn pages and store them for the next start (`engine.warmup`).
    pub learns: bool,
    /// How long a server may take until it listens.
    pub listens_within: Duration,
}

/// Why a server has not started.
#[derive(Debug)]
pub enum StartFailure {
    /// The engine cannot run the application.
    Engine(String),
    /// This command cannot go on.
    Command(anyhow::Error),
}

impl From<anyhow::Error> for StartFailure {
    fn from(error: anyhow::Error) -> StartFailure {
        StartFailure::Command(error)
    }
}

#[derive(Debug)]
pub struct Server {
    child: Child,
    pub port: u16,
    /// When it was started.
    pub began: Instant,
    log: Log,
    /// Disconnected once its log has been read to the end.
    logging: Receiver<()>,
    /// Holds its admin socket, which no other user can reach.
    _private: TempDir,
}

impl Server {
    /// Starts the application and waits until it listens. To be called from the main thread: the
    /// server ends with the thread that starts it.
    pub fn start(
        launch: &Launch,
        engine: &str,
        script: Option<&PathBuf>,
        warmup: &[String],
    ) -> Result<Server, StartFailure> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("surus").arg("serve").arg(&launch.project);
        command.args(["--engine", engine, "--listen", "127.0.0.1:0"]);
        command.args(["--workers", &launch.workers.to_string()]);
        if let Some(config) = &launch.config {
            command.arg("--config").arg(config);
        }
        if let Some(script) = script {
            command.arg("--script").arg(script);
        }
        for (name, _) in std::env::vars_os() {
            if is_of_a_section(&name.to_string_lossy()) {
                command.env_remove(name);
            }
        }
        // The service manager of the command knows of no server.
        command.env_remove("NOTIFY_SOCKET");
        command.envs(SECTIONS).envs(SETTINGS).envs([NO_TRACES]);
        let private = tempfile::Builder::new().prefix("surus-bench-").tempdir();
        let private = private.context("cannot create a directory for a server's admin socket")?;
        let mut admin = OsString::from("unix:");
        admin.push(private.path().join("admin.sock"));
        command.env("SURUS_ADMIN_LISTEN", admin);
        if let Some(setting) = warmup_setting(warmup, launch.learns) {
            command.env("SURUS_ENGINE_WARMUP", setting);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        process::child(&mut command, None, Orphan::Terminated, Vec::new())
            .context("cannot prepare a server")?;
        let began = Instant::now();
        let child = command.spawn().context("cannot start a server")?;
        let (until_end, logging) = channel::<()>();
        // From here on, it is stopped whatever happens.
        let mut server = Server {
            child,
            port: 0,
            began,
            log: Log::default(),
            logging,
            _private: private,
        };
        let (addresses, listening) = channel();
        if let Some(stdout) = server.child.stdout.take() {
            follow(stdout, move |line| {
                if let Some((_, port)) = line.rsplit_once("listening on http://127.0.0.1:") {
                    let _ = addresses.send(port.trim().parse::<u16>());
                }
            })?;
        }
        if let Some(stderr) = server.child.stderr.take() {
            let log = server.log.clone();
            follow(stderr, move |line| {
                let _until_end = &until_end;
                log.add(line);
            })?;
        }
        server.port = server.wait(&listening, launch.listens_within)?;
        Ok(server)
    }

    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Ends it. Returns what it has logged last, as the reason of a failure.
    pub fn end(mut self) -> Option<String> {
        self.stop();
        self.reason()
    }

    fn reason(&self) -> Option<String> {
        // Its last lines may still be on their way.
        let _ = self.logging.recv_timeout(Duration::from_secs(2));
        self.log.reason()
    }

    /// Waits for its port. A server that works boots in this time or exits.
    fn wait(
        &mut self,
        listening: &Receiver<Result<u16, std::num::ParseIntError>>,
        within: Duration,
    ) -> Result<u16, StartFailure> {
        let deadline = Instant::now() + within;
        loop {
            interrupt::check()?;
            if let Ok(port) = listening.recv_timeout(POLL_INTERVAL) {
                return Ok(port.context("the server announced no port")?);
            }
            if let Some(status) = self.child.try_wait().context("cannot wait for a server")? {
                return Err(StartFailure::Engine(self.reason().unwrap_or_else(|| {
                    format!("surus serve ended without a message: {status}")
                })));
            }
            if Instant::now() >= deadline {
                let last = self.log.reason();
                let last =
                    last.map_or_else(String::new, |last| format!("; its last message: {last}"));
                return Err(StartFailure::Engine(format!(
                    "surus serve did not listen within {} s{last}",
                    within.as_secs_f64()
                )));
            }
        }
    }

    fn stop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let _ = process::terminate(self.child.id());
        let deadline = Instant::now() + TO_END;
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        for pid in probe::tree(&[self.pid()]) {
            let _ = process::kill(pid.cast_unsigned());
        }
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The last lines that a server wrote to stderr.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<VecDeque<String>>>);

impl Log {
    fn add(&self, line: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == KEPT_LINES {
            lines.pop_front();
        }
        lines.push_back(line.to_string());
    }

    /// The failure with which `surus serve` ended, or its last message. In one line.
    fn reason(&self) -> Option<String> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Further lines of a message are indented.
        let is_first = |line: &String| !line.starts_with(char::is_whitespace);
        let from = lines.iter().rposition(|line| line.starts_with("surus: "));
        let from = from.or_else(|| lines.iter().rposition(is_first))?;
        let text = lines.range(from..).map(|line| line.trim());
        let text = text.collect::<Vec<_>>().join(" ");
        let mut text = text.trim_start_matches("surus: ");
        for level in [" ERROR ", " WARN "] {
            text = text.split_once(level).map_or(text, |(_, message)| message);
        }
        // The process and the request are no part of the message.
        text = text
            .rsplit_once(" pid=")
            .map_or(text, |(message, _)| message);
        // "engine `worker`: " repeats the name of the row.
        let named = text.strip_prefix("engine `");
        text = named
            .and_then(|it| it.split_once("`: "))
            .map_or(text, |(_, why)| why);
        // The output of a script that boots has no line of its own. The message of surus-php is
        // followed by which process it has ended.
        if let Some((_, why)) = text.rsplit_once("surus-php: ") {
            let ends = ENDS.into_iter().filter_map(|end| why.find(end));
            text = &why[..ends.min().unwrap_or(why.len())];
        }
        let mut short: String = text.chars().take(REASON).collect();
        if short.len() < text.len() {
            short.push('…');
        }
        (!short.is_empty()).then_some(short)
    }
}

/// Whether a variable is a setting of one of [`SECTIONS`], which would be added to it. The names of
/// settings may have small letters.
fn is_of_a_section(variable: &str) -> bool {
    let variable = variable.to_ascii_uppercase();
    let setting = |(section, _): &(&str, &str)| {
        let rest = variable.strip_prefix(section);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    SECTIONS.iter().any(setting)
}

/// The value of `engine.warmup`; `None` leaves that of the configuration. A boot that learns would
/// store pages of the benchmark for the next start of the user's server.
fn warmup_setting(urls: &[String], learns: bool) -> Option<String> {
    let list = || toml::Value::from(urls.iter().map(String::as_str).collect::<Vec<_>>());
    match urls {
        [] => learns.then(|| "auto".to_string()),
        _ => Some(list().to_string()),
    }
}

/// Reads lines on a thread until the stream ends.
fn follow(
    stream: impl Read + Send + 'static,
    mut each: impl FnMut(&str) + Send + 'static,
) -> anyhow::Result<()> {
    let read = move || {
        let mut lines = BufReader::new(stream);
        let mut line = Vec::new();
        while matches!(lines.read_until(b'\n', &mut line), Ok(1..)) {
            each(String::from_utf8_lossy(&line).trim_end());
            line.clear();
        }
    };
    let thread = std::thread::Builder::new().name("log".into());
    thread.spawn(read).context("cannot start a thread")?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A server that starts and says nothing.
    fn silent() -> Server {
        Server {
            child: Command::new("sleep").arg("600").spawn().unwrap(),
            port: 0,
            began: Instant::now(),
            log: Log::default(),
            logging: channel().1,
            _private: tempfile::tempdir().unwrap(),
        }
    }

    #[test]
    fn no_server_learns_pages() {
        let urls = ["/".to_string(), "/a\"b".to_string()];
        for (urls, learns, expected) in [
            (&[][..], false, None),
            (&[], true, Some("auto")),
            (&urls, true, Some(r#"["/", '/a"b']"#)),
        ] {
            assert_eq!(warmup_setting(urls, learns).as_deref(), expected);
        }
    }

    #[test]
    fn reason_has_no_output_of_the_script() {
        let log = Log::default();
        let line = "hellosurus-php: /srv/a.php has ended";
        for end in ["a worker exited during start-up", "PHP did not start"] {
            let end = format!("{end}: exit status 105");
            log.add(&format!("surus: engine `worker`: {line} {line}: {end}"));
            assert_eq!(log.reason().as_deref(), Some("/srv/a.php has ended"));
        }
    }

    #[test]
    fn server_that_announces_no_port_fails_at_its_deadline() {
        let (_addresses, listening) = channel();
        let mut server = silent();
        server.log.add("surus: waiting for Godot");
        let failed = server.wait(&listening, Duration::from_millis(50));
        let Err(StartFailure::Engine(why)) = failed else {
            panic!("{failed:?}");
        };
        assert!(why.contains("did not listen within 0.05 s"), "{why}");
        assert!(why.contains("waiting for Godot"), "{why}");
    }
}

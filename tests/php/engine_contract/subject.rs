//! An engine under test: boots it and sends requests to it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt;
use surus::engine::Engine;
use surus::engines::external::ProgramKind;
use surus::engines::{self, Boot, EngineEntry, PhpProgram, Settings};
use surus::event::{Body, EarlyHints, Event, Failure, Origin, Response, Script};
use surus::observe::metrics::Metrics;
use surus::spool::Spool;
use surus::units::Time;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::common::php::few_extensions;

/// An engine of the catalogue, running or not booted yet.
pub struct Subject {
    pub entry: &'static EngineEntry,
    pub settings: Settings,
    pub ini: Vec<(String, String)>,
    pub env: BTreeMap<String, String>,
    /// Contains the PHP files; readable by the workers' user.
    pub dir: Arc<tempfile::TempDir>,
    /// The script that is booted.
    boot: &'static str,
    pool: tokio::sync::OnceCell<Arc<dyn Engine>>,
}

static NEXT_EVENT: AtomicU64 = AtomicU64::new(1);
static NEXT_FILE: AtomicU64 = AtomicU64::new(1);

/// The script of booting engines: each request runs the file that it names, as on `classic`.
const BOOT: &str = r#"<?php
surus_serve(function () {
    $file = $_SERVER['SCRIPT_FILENAME'];
    if (!is_readable($file)) {
        http_response_code(file_exists($file) ? 403 : 404);
        echo file_exists($file) ? "Access denied.\n" : "File not found.\n";
        return;
    }
    chdir(dirname($file));
    (static fn () => require $_SERVER['SCRIPT_FILENAME'])();
});
"#;

/// The setup of each engine.
pub fn subject(entry: &'static EngineEntry) -> Subject {
    let settings = Settings {
        workers: Some(2),
        spare_workers: 0,
        // A busy machine rejects no request, except where a test wants that.
        queue_timeout: time(600_000),
        queue_interval: time(600_000),
        // As for the program: the one built with the sanitizers.
        surus_php: std::env::var_os("SURUS_ENGINE_SURUS_PHP").map(Into::into),
        ..Settings::default()
    };
    Subject::new(entry, settings)
}

impl Subject {
    fn new(entry: &'static EngineEntry, settings: Settings) -> Subject {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        Subject {
            entry,
            settings,
            ini: vec![
                ("log_errors".into(), "1".into()),
                ("output_buffering".into(), "0".into()),
            ],
            env: BTreeMap::from([("PHP_INI_SCAN_DIR".into(), few_extensions().into())]),
            dir: Arc::new(dir),
            boot: match entry.runs_scripts() {
                true => BOOT,
                false => include_str!("../roadrunner/contract.php"),
            },
            pool: tokio::sync::OnceCell::new(),
        }
    }

    /// The same engine with other settings, not booted yet.
    pub fn with(mut self, change: impl FnOnce(&mut Settings)) -> Subject {
        change(&mut self.settings);
        self
    }

    /// The same engine with another script to boot.
    pub fn boots(mut self, script: &'static str) -> Subject {
        self.boot = script;
        self
    }

    pub fn workers(self, count: usize) -> Subject {
        self.with(|settings| settings.workers = Some(count))
    }

    pub fn ini(mut self, name: &str, value: &str) -> Subject {
        self.ini.push((name.into(), value.into()));
        self
    }

    pub async fn try_boot(&self) -> anyhow::Result<Arc<dyn Engine>> {
        let boot = self.write("boot/script.php", self.boot);
        if !self.entry.runs_scripts() {
            self.write("boot/frames.php", include_str!("../roadrunner/frames.php"));
        }
        let document_root = self.dir.path().to_str().unwrap().to_string();
        engines::boot(
            self.entry.name,
            self.entry,
            &self.settings,
            Arc::new(move || {
                Ok(Boot {
                    script: boot.clone(),
                    document_root: document_root.clone(),
                    project: None,
                    code: None,
                    leaves_others: false,
                    warmup: Vec::new(),
                    left_to_others: Vec::new(),
                })
            }),
            self.ini.clone(),
            self.env.clone(),
            Arc::new(Metrics::default()),
        )
        .await
    }

    pub async fn pool(&self) -> Arc<dyn Engine> {
        self.pool
            .get_or_init(|| async { self.try_boot().await.expect("the engine boots") })
            .await
            .clone()
    }

    /// Whether it boots, where a short timeout may prevent that on a busy machine.
    pub async fn is_booted(&self) -> bool {
        self.pool.get_or_try_init(|| self.try_boot()).await.is_ok()
    }

    /// Drops the engine.
    pub fn forget(&mut self) {
        self.pool.take();
    }

    /// Writes a PHP file; `code` follows `<?php`.
    pub fn file(&self, code: &str) -> PathBuf {
        let name = format!("{}.php", NEXT_FILE.fetch_add(1, Ordering::Relaxed));
        self.write(&name, &format!("<?php {code}"))
    }

    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        let directory = path.parent().unwrap();
        std::fs::create_dir_all(directory).unwrap();
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)).unwrap();
        let fresh = path.with_extension("new");
        std::fs::write(&fresh, content).unwrap();
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::rename(&fresh, &path).unwrap();
        path
    }

    /// A directory that workers may write to as any user.
    pub fn writable(&self) -> PathBuf {
        let path = self.dir.path().join("writable");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        path
    }

    /// A GET request for `code`.
    pub fn php(&self, code: &str) -> Ask {
        self.ask(&self.file(code))
    }

    /// A GET request for a file.
    pub fn ask(&self, file: &Path) -> Ask {
        let name = format!("/{}", file.file_name().unwrap().to_str().unwrap());
        Ask {
            early_hints: None,
            spool: None,
            request: http::Request::builder()
                .uri(&name)
                .header("host", "example.test")
                .body(Body::Empty)
                .unwrap(),
            script: Script {
                root: self.dir.path().to_str().unwrap().into(),
                filename: file.into(),
                name: name.into(),
                path_info: std::ffi::OsString::new(),
                query: None,
                rewritten: None,
            },
            timeout: Duration::from_secs(120),
            idle_timeout: true,
            completion_token: None,
        }
    }

    pub async fn send(&self, ask: Ask) -> Result<Response, Failure> {
        self.pool().await.handle(Box::new(ask.event())).await
    }

    /// Sends it and receives the whole response.
    pub async fn answer(&self, ask: Ask) -> Result<Answer, Failure> {
        let response = self.send(ask).await?;
        let (head, body) = response.into_parts();
        Ok(Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body: body.collect().await?.to_bytes(),
        })
    }

    /// The response text of `code`.
    pub async fn text(&self, code: &str) -> String {
        self.answer(self.php(code)).await.expect("an answer").text()
    }

    /// The response to a request that runs in parallel to the test.
    pub async fn start(&self, ask: Ask) -> tokio::task::JoinHandle<Result<Answer, Failure>> {
        let pool = self.pool().await;
        tokio::spawn(async move {
            let response = pool.handle(Box::new(ask.event())).await?;
            let (head, body) = response.into_parts();
            Ok(Answer {
                status: head.status.as_u16(),
                headers: head.headers,
                body: body.collect().await?.to_bytes(),
            })
        })
    }

    /// Occupies `count` workers with `code`; returns when all have begun and the status shows them.
    pub async fn occupy(
        &self,
        count: usize,
        code: &str,
    ) -> Vec<tokio::task::JoinHandle<Result<Answer, Failure>>> {
        let mut running = Vec::new();
        for _ in 0..count {
            let began = self
                .writable()
                .join(NEXT_FILE.fetch_add(1, Ordering::Relaxed).to_string());
            let code = format!("touch('{}'); {code}", began.display());
            running.push(self.begin(self.php(&code), &began).await);
        }
        let pool = self.pool().await;
        // A script may begin before the process that started it has reported its PID.
        let busy = || {
            pool.status()
                .workers
                .iter()
                .filter(|it| it.request.is_some())
                .count()
        };
        until("the status shows the requests", || busy() >= count).await;
        running
    }

    /// Starts a request whose script creates `began`. On a busy machine, a short queue timeout may
    /// end it before: then it is started again.
    async fn begin(
        &self,
        ask: Ask,
        began: &Path,
    ) -> tokio::task::JoinHandle<Result<Answer, Failure>> {
        let give_up = Instant::now() + Duration::from_secs(60);
        loop {
            let task = self.start(ask.clone()).await;
            until("the script begins", || task.is_finished() || began.exists()).await;
            if began.exists() {
                return task;
            }
            match task.await.unwrap() {
                Err(Failure::QueueTimeout(_)) if Instant::now() < give_up => {}
                other => panic!("the script does not begin: {other:?}"),
            }
        }
    }

    /// Whether the process of a request serves the next one, even if the request missed its
    /// deadline.
    pub fn process_goes_on(&self) -> bool {
        self.entry.isolates && !self.entry.serves_one && self.runs_surus_php()
    }

    /// Whether it runs surus-php, which has features that no other PHP has.
    pub fn runs_surus_php(&self) -> bool {
        self.entry.runs == PhpProgram::SurusPhp
    }

    /// Whether its PHP has `fastcgi_finish_request()`.
    pub fn finishes(&self) -> bool {
        [PhpProgram::SurusPhp, PhpProgram::External(ProgramKind::Fpm)].contains(&self.entry.runs)
    }

    /// Whether its processes wait for requests instead of being started for each.
    pub fn is_standing(&self) -> bool {
        self.entry.is_standing()
    }

    /// Whether these words say how a process ended, also if php-fpm had started it.
    pub fn says_how(&self, how: &str, signal: &str) -> bool {
        how.contains(signal)
            || self.entry.runs == PhpProgram::External(ProgramKind::Fpm) && how.contains("php-fpm")
    }

    /// The parent of its processes, if that is not the test.
    pub fn starter(&self, pids: &[u32]) -> Option<u32> {
        let starter = parent(*pids.first()?);
        (starter != std::process::id()).then_some(starter)
    }

    /// The pids of the workers, as the status page shows them. Waits for the first one if the
    /// engine has workers without a request.
    pub async fn pids(&self) -> Vec<u32> {
        let pool = self.pool().await;
        for _ in 0..500 {
            let workers = pool.status().workers;
            let mut pids: Vec<_> = workers.iter().map(|worker| worker.pid).collect();
            if !pids.is_empty() || !self.is_standing() {
                pids.sort_unstable();
                return pids;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no worker");
    }
}

/// A request about to be sent.
#[derive(Clone)]
pub struct Ask {
    pub request: http::Request<Body>,
    pub script: Script,
    pub timeout: Duration,
    pub idle_timeout: bool,
    pub spool: Option<Arc<Spool>>,
    pub completion_token: Option<TaskTrackerToken>,
    pub early_hints: Option<Weak<dyn EarlyHints>>,
}

impl Ask {
    pub fn query(mut self, query: &str) -> Ask {
        *self.request.uri_mut() = format!("{}?{query}", self.script.name).parse().unwrap();
        self
    }

    pub fn header(mut self, name: &'static str, value: impl AsRef<[u8]>) -> Ask {
        let value = http::HeaderValue::from_bytes(value.as_ref()).unwrap();
        self.request.headers_mut().append(name, value);
        self
    }

    pub fn post(self, kind: &str, body: impl Into<Bytes>) -> Ask {
        let body = body.into();
        self.post_body(kind, Body::Memory(body))
    }

    pub fn post_body(mut self, kind: &str, body: Body) -> Ask {
        *self.request.method_mut() = http::Method::POST;
        self = self
            .header("content-type", kind)
            .header("content-length", body.len().to_string());
        *self.request.body_mut() = body;
        self
    }

    /// The whole response is due at the deadline.
    pub fn impatient(mut self) -> Ask {
        self.idle_timeout = false;
        self
    }

    /// Bytes that may wait in a file until the client reads them.
    pub fn spooled(mut self, max: u64) -> Ask {
        self.spool = Some(Arc::new(Spool {
            directory: None,
            max,
        }));
        self
    }

    /// With the token of a closed tracker, so that its wait ends with the request.
    pub fn held(mut self) -> (Ask, TaskTracker) {
        let tracker = TaskTracker::new();
        tracker.close();
        self.completion_token = Some(tracker.token());
        (self, tracker)
    }

    pub fn timeout(mut self, timeout: Duration) -> Ask {
        self.timeout = timeout;
        self
    }

    fn event(self) -> Event {
        Event {
            id: NEXT_EVENT.fetch_add(1, Ordering::Relaxed),
            request: self.request,
            script: self.script,
            origin: Origin {
                client: Some(SocketAddr::from(([127, 0, 0, 1], 50000)).into()),
                server: Some(SocketAddr::from(([127, 0, 0, 1], 80)).into()),
                https: false,
            },
            variables: Vec::new(),
            deadline: Instant::now() + self.timeout,
            idle_timeout: self.idle_timeout.then_some(self.timeout),
            spool: self.spool,
            completion_token: self.completion_token,
            early_hints: self.early_hints,
        }
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Polls until `condition` holds.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..12_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("a minute has passed without: {what}");
}

/// Whether the process exists and is not a zombie.
pub fn lives(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").starts_with(" Z"))
}

/// The parent of the process.
pub fn parent(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let mut fields = stat.rsplit(')').next().unwrap().split_whitespace();
    fields.nth(1).unwrap().parse().unwrap()
}

pub fn kill(pid: u32, signal: &str) {
    let _ = std::process::Command::new("kill")
        .args(["-s", signal, &pid.to_string()])
        .status();
}

/// `n` bytes with a long period, so that a lost, doubled or moved part is detected.
pub fn bytes(n: usize) -> Bytes {
    let mut state = 0x2545_f491_u32;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect::<Vec<u8>>()
        .into()
}

pub fn time(ms: u64) -> Time {
    Time(Duration::from_millis(ms))
}

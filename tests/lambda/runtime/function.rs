//! A function for tests: PHP files, and the `surus lambda` that runs them.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::api::{Api, Call, Event};
use crate::common::threads::all_sleep;
use crate::common::tree;

/// How often to look for something, every 5 ms: longer than any test needs on a busy machine.
const LOOKS: u32 = 60_000;

pub struct Function {
    pub api: Api,
    child: Child,
    log: Arc<Mutex<String>>,
    pub dir: Arc<Dir>,
}

/// The application's files, which workers of any user may read and write.
pub struct Dir(tempfile::TempDir);

impl Dir {
    pub fn new(files: &[(&str, &str)]) -> Arc<Dir> {
        let dir = tempfile::tempdir().unwrap();
        open_to_all(dir.path());
        let dir = Dir(dir);
        for (name, text) in files {
            dir.write(name, text);
        }
        Arc::new(dir)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        let parent = path.parent().unwrap();
        std::fs::create_dir_all(parent).unwrap();
        open_to_all(parent);
        // Atomically, because a boot may read it.
        let begun = path.with_extension("begun");
        std::fs::write(&begun, text).unwrap();
        std::fs::rename(&begun, &path).unwrap();
    }

    /// Installs the Composer package where Composer would.
    pub fn install_package(&self) {
        tree::copy_library(&self.path("vendor/surus/surus"));
    }

    /// Waits for a file that a script writes and returns its content.
    pub fn read(&self, name: &str) -> String {
        for _ in 0..LOOKS {
            match std::fs::read_to_string(self.path(name)) {
                Ok(text) if !text.is_empty() => return text,
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        panic!("there is no {name}");
    }
}

fn open_to_all(dir: &Path) {
    std::fs::set_permissions(dir, PermissionsExt::from_mode(0o777)).unwrap();
}

impl Function {
    /// Starts the function and waits until it asks for an event.
    pub fn start(files: &[(&str, &str)], env: &[(&str, &str)]) -> Function {
        let function = Function::begin(Api::start(), Dir::new(files), env);
        function.api.until_waiting(1);
        function
    }

    /// Starts the function without waiting.
    pub fn begin(api: Api, dir: Arc<Dir>, env: &[(&str, &str)]) -> Function {
        Self::begin_by(Command::new(env!("CARGO_BIN_EXE_surus")), api, dir, env)
    }

    /// Like `begin`, through a command that becomes `surus`.
    pub fn begin_by(mut surus: Command, api: Api, dir: Arc<Dir>, env: &[(&str, &str)]) -> Function {
        let mut child = surus
            .arg("lambda")
            .env("AWS_LAMBDA_RUNTIME_API", &api.address)
            .env("LAMBDA_TASK_ROOT", dir.path(""))
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        follow(child.stdout.take().unwrap(), log.clone());
        follow(child.stderr.take().unwrap(), log.clone());
        Function {
            api,
            child,
            log,
            dir,
        }
    }

    /// Sends an event and waits for the response.
    pub fn ask(&self, event: Event) -> Call {
        let id = event.id.clone();
        self.api.send(event);
        let call = self.api.answer(&id);
        if std::env::var_os("SHOW").is_some() {
            eprintln!("{}", self.log());
        }
        call
    }

    /// The answer to an event with a deadline that something must reach, while the rest must be
    /// done by then. On a busy machine, it is sent again with a later one until `is` holds.
    pub fn ask_in_time(&self, event: impl Fn(&str) -> Event, is: impl Fn(&Call) -> bool) -> Call {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let mut last = None;
        for seconds in [2, 10, 60] {
            let event = event(&format!("until-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
            let call = self.ask(event.within(Duration::from_secs(seconds)));
            if is(&call) {
                return call;
            }
            last = Some(call);
        }
        panic!("{last:?}\n{}", self.log())
    }

    /// The response to GET.
    pub fn get(&self, id: &str, url: &str) -> Call {
        self.ask(Event::new(id, &get(url)))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    }

    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Whether the log soon has the text more than `times` times.
    pub fn soon_logs(&self, text: &str, times: usize) -> bool {
        (0..600).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            self.log().matches(text).count() > times
        })
    }

    pub fn wait_for_log(&self, text: &str) {
        for _ in 0..LOOKS {
            if self.log().contains(text) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{text:?} is not in the log:\n{}", self.log());
    }

    /// Waits until it exits.
    pub fn end(&mut self) -> ExitStatus {
        for _ in 0..LOOKS {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the function does not exit:\n{}", self.log());
    }

    /// Whether all its processes wait for something other than a CPU.
    pub fn sleeps(&self) -> bool {
        all_sleep(self.pid()) && self.descendants().into_iter().all(all_sleep)
    }

    /// All its descendant processes.
    pub fn descendants(&self) -> Vec<u32> {
        let mut found = Vec::new();
        let mut waiting = vec![self.pid()];
        while let Some(pid) = waiting.pop() {
            let path = format!("/proc/{pid}/task/{pid}/children");
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let children: Vec<u32> = text.split_whitespace().flat_map(str::parse).collect();
            waiting.extend(&children);
            found.extend(children);
        }
        found
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

fn follow(stream: impl Read + Send + 'static, log: Arc<Mutex<String>>) {
    std::thread::spawn(move || {
        let mut lines = BufReader::new(stream);
        let mut line = Vec::new();
        while matches!(lines.read_until(b'\n', &mut line), Ok(n) if n > 0) {
            log.lock()
                .unwrap()
                .push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    });
}

/// A GET request as a function URL sends it.
pub fn get(url: &str) -> Value {
    request("GET", url, "", &[])
}

/// A request as a function URL sends it.
pub fn request(method: &str, url: &str, body: &str, headers: &[(&str, &str)]) -> Value {
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let mut all = json!({
        "host": "f.lambda-url.eu-central-1.on.aws",
        "x-forwarded-proto": "https",
        "x-forwarded-port": "443",
    });
    for (name, value) in headers {
        all[*name] = (*value).into();
    }
    json!({
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": all,
        "requestContext": {
            "accountId": "anonymous",
            "domainName": "f.lambda-url.eu-central-1.on.aws",
            "stage": "$default",
            "http": {
                "method": method,
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": "192.0.2.7",
                "userAgent": "test"
            }
        },
        "body": body,
        "isBase64Encoded": false
    })
}

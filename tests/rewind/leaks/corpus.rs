//! The cases and a server with one worker that runs them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde::Deserialize;

use crate::common::Surus;
use crate::common::engines::{Subject, TestDir};
use crate::common::extension_files;

/// A kind of state, as `play.php` lists it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Whether the next request sees it on a worker that does not isolate.
    leaks: bool,
    /// Why it does not.
    why: Option<String>,
    /// Why every engine must show it: the state is outside the process.
    pub survives: Option<String>,
    /// Missing extensions.
    pub missing: Vec<String>,
    /// The request that sets it ends without a response of its own.
    ends: bool,
    pub slow: bool,
    /// The expected value, whenever it is read.
    pub is: Option<String>,
    /// Whether the case must be cleaned up at the end.
    #[serde(rename = "clean")]
    pub cleans: bool,
    send: Send,
}

impl Case {
    /// Whether a plain GET request sets it, for that request alone and with an answer.
    pub fn is_page(&self) -> bool {
        self.missing.is_empty()
            && self.survives.is_none()
            && !self.ends
            && !self.slow
            && !self.cleans
            && self.send.is_plain()
    }
}

/// How the request that sets it differs from a plain GET.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct Send {
    method: Option<String>,
    query: String,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Send {
    fn is_plain(&self) -> bool {
        self.method.is_none()
            && self.query.is_empty()
            && self.headers.is_empty()
            && self.body.is_empty()
    }
}

/// One server with one worker.
pub struct Corpus {
    pub cases: BTreeMap<String, Case>,
    isolates: bool,
    surus: Surus,
    agent: ureq::Agent,
    workers: RefCell<BTreeSet<u32>>,
    /// The process id of the last response.
    worker: Cell<u32>,
}

impl Corpus {
    pub fn start(home: &TestDir, subject: Subject) -> Corpus {
        Self::start_in(home, subject, &[])
    }

    /// Starts the server with additional environment variables.
    pub fn start_in(home: &TestDir, subject: Subject, env: &[(&str, &str)]) -> Corpus {
        // A killed worker leaves PHP's temporary files behind.
        let temporary = format!("sys_temp_dir={}", home.state.display());
        let args = [
            "-d",
            "ffi.enable=1",
            "-d",
            "apc.enabled=1",
            "-d",
            &temporary,
        ];
        let scan_dir = extension_files(&home.state, "apcu bcmath");
        let env = [env, &[("PHP_INI_SCAN_DIR", &scan_dir[..])]].concat();
        let surus = home.serve_in(subject, "worker.php", "front.php", 1, &args, &env);
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .build()
            .new_agent();
        let url = format!("{}/list", surus.url);
        let list = agent.get(url).call().unwrap().body_mut().read_to_string();
        let list = list.unwrap();
        let mut cases: BTreeMap<String, Case> = serde_json::from_str(&list)
            .unwrap_or_else(|error| panic!("{error} in:\n{list}\n{}", surus.log()));
        if let Ok(word) = std::env::var("LEAK_CASE") {
            cases.retain(|name, _| name.contains(&word));
        }
        for (name, case) in &cases {
            assert!(
                case.leaks || case.why.is_some(),
                "{name} does not say why it does not leak"
            );
        }
        Corpus {
            cases,
            isolates: subject.isolates,
            surus,
            agent,
            workers: RefCell::default(),
            worker: Cell::new(0),
        }
    }

    /// Whether the second result must differ from the first.
    pub fn expects_difference(&self, case: &Case) -> bool {
        case.survives.is_some() || (!self.isolates && case.leaks)
    }

    /// What a request sees: status, header lines and body.
    pub fn see(&self, name: &str, case: &Case) -> Result<String, String> {
        let text = self.step(name, case, "see")?;
        match text.starts_with("200") {
            true => Ok(text),
            false => Err(format!("cannot see: {text:?}\n{}", self.last_lines())),
        }
    }

    pub fn step(&self, name: &str, case: &Case, step: &str) -> Result<String, String> {
        let plain = Send::default();
        let send = if step == "set" { &case.send } else { &plain };
        let url = format!(
            "{}/leak?case={name}&step={step}&{}",
            self.surus.url, send.query
        );
        let mut request = ureq::http::Request::builder()
            .uri(url)
            .method(send.method.as_deref().unwrap_or("GET"));
        for (name, value) in &send.headers {
            request = request.header(name, value);
        }
        let request = request.body(send.body.clone()).unwrap();
        // The client keeps no cookies; each case sends its own.
        self.agent.cookie_jar_lock().clear();
        let answer = self.agent.run(request);
        let mut answer = match answer {
            Ok(answer) => answer,
            Err(_) if case.ends && step == "set" => return Ok(String::new()),
            Err(error) => return Err(format!("no answer to {step}: {error}")),
        };
        let mut text = format!("{}\n", answer.status().as_u16());
        for (name, value) in answer.headers() {
            match name.as_str() {
                "date" | "content-length" | "server" => {}
                "x-worker" => {
                    let pid = value.to_str().unwrap().parse().unwrap();
                    self.workers.borrow_mut().insert(pid);
                    self.worker.set(pid);
                }
                _ => text += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())),
            }
        }
        let body = answer.body_mut().read_to_vec();
        match body {
            Ok(body) => text += &format!("\n{}", String::from_utf8_lossy(&body)),
            Err(_) if case.ends && step == "set" => return Ok(String::new()),
            Err(error) => return Err(format!("half an answer to {step}: {error}")),
        }
        if ["502", "503", "504"]
            .iter()
            .any(|code| text.starts_with(code))
        {
            return Err(format!(
                "no worker survives: {text:?}\n{}",
                self.last_lines()
            ));
        }
        if step == "set" && !case.ends && !text.ends_with("set") {
            return Err(format!("cannot set: {text:?}\n{}", self.last_lines()));
        }
        Ok(text)
    }

    /// Ends the worker; the next request gets a new one.
    pub fn replace_worker(&self) {
        for pid in std::mem::take(&mut *self.workers.borrow_mut()) {
            let _ = Command::new("kill")
                .args(["-s", "KILL", &pid.to_string()])
                .status();
        }
    }

    /// How many processes have responded.
    pub fn workers_seen(&self) -> usize {
        self.workers.borrow().len()
    }

    /// The process id of the last response.
    pub fn worker(&self) -> u32 {
        self.worker.get()
    }

    pub fn pid(&self) -> u32 {
        self.surus.pid()
    }

    fn last_lines(&self) -> String {
        let log = self.surus.log();
        let lines: Vec<_> = log.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

/// Cases that fail on an engine for a reason, from `exceptions.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exceptions {
    exception: Vec<Exception>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    engine: String,
    case: String,
    /// Whether the case passes on its own.
    #[serde(default)]
    only_in_rounds: bool,
    reason: String,
}

impl Exceptions {
    pub fn load() -> Exceptions {
        let exceptions: Exceptions = toml::from_str(include_str!("exceptions.toml"))
            .unwrap_or_else(|error| panic!("exceptions.toml: {error}"));
        for exception in &exceptions.exception {
            assert!(exception.reason.len() > 20, "{}", exception.case);
        }
        exceptions
    }

    /// The reason why the case fails among others.
    pub fn in_rounds(&self, engine: &str, case: &str) -> Option<&str> {
        self.exception
            .iter()
            .find(|exception| exception.engine == engine && exception.case == case)
            .map(|exception| exception.reason.as_str())
    }

    /// The reason why the case fails on its own.
    pub fn alone(&self, engine: &str, case: &str) -> Option<&str> {
        self.exception
            .iter()
            .find(|exception| exception.engine == engine && exception.case == case)
            .filter(|exception| !exception.only_in_rounds)
            .map(|exception| exception.reason.as_str())
    }
}

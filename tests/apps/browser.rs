//! A headless Chromium, driven through chromedriver's W3C WebDriver interface.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::site::installed;

/// The longest time a page may take on a busy machine to show what is expected.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The key under which WebDriver names an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser window with a fresh profile. Dropping it ends the browser.
pub struct Browser {
    agent: ureq::Agent,
    driver: Child,
    session: String,
    _profile: TempDir,
}

impl Browser {
    pub fn open() -> Browser {
        let binary = installed("/usr/bin/chromium", "chromium");
        let profile = TempDir::with_prefix("surus-chromium-").unwrap();
        let (driver, port) = start_driver(profile.path());
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(TIMEOUT * 5))
            .build()
            .into();
        let mut browser = Browser {
            agent,
            driver,
            session: format!("http://127.0.0.1:{port}/session"),
            _profile: profile,
        };
        let profile = format!("--user-data-dir={}", browser._profile.path().display());
        let opened = browser.ask(
            "POST",
            "",
            json!({ "capabilities": { "alwaysMatch": {
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "binary": binary, "args": [
                "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--disable-dev-shm-usage", "--disable-crash-reporter", "--hide-scrollbars",
                "--window-size=1280,900", profile,
                // Hosts other than this machine do not resolve.
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            ] },
        } } }),
        );
        browser.session = format!(
            "{}/{}",
            browser.session,
            opened["sessionId"].as_str().unwrap()
        );
        browser
    }

    pub fn go(&self, url: &str) {
        self.ask("POST", "/url", json!({ "url": url }));
    }

    /// Replaces the value of a form field.
    #[track_caller]
    pub fn fill(&self, css: &str, text: &str) {
        self.until(css, |element| {
            self.try_ask("POST", &format!("/element/{element}/clear"), json!({}))?;
            self.try_ask(
                "POST",
                &format!("/element/{element}/value"),
                json!({ "text": text }),
            )
        });
    }

    /// Chooses a file in a form.
    #[track_caller]
    pub fn choose(&self, css: &str, file: &Path) {
        self.until(css, |element| {
            self.try_ask(
                "POST",
                &format!("/element/{element}/value"),
                json!({ "text": file }),
            )
        });
    }

    /// Clicks once nothing covers the element.
    #[track_caller]
    pub fn click(&self, css: &str) {
        self.until(css, |element| {
            self.try_ask("POST", &format!("/element/{element}/click"), json!({}))
        });
    }

    /// Waits until `css` exists and shows `text`.
    #[track_caller]
    pub fn sees(&self, css: &str, text: &str) {
        self.until(css, |element| {
            let shown = self.try_ask("GET", &format!("/element/{element}/text"), Value::Null)?;
            if shown.as_str().unwrap().contains(text) {
                Ok(shown)
            } else {
                Err(json!(format!("{shown}, not {text:?}")))
            }
        });
    }

    pub fn script(&self, body: &str) -> Value {
        self.ask(
            "POST",
            "/execute/sync",
            json!({ "script": body, "args": [] }),
        )
    }

    /// Errors of loading and of scripts since the last call.
    pub fn errors(&self) -> Vec<String> {
        let log = self.ask("POST", "/se/log", json!({ "type": "browser" }));
        let errors = log
            .as_array()
            .unwrap()
            .iter()
            .filter(|entry| entry["level"] == "SEVERE");
        let errors = errors.map(|entry| entry["message"].as_str().unwrap().to_string());
        // The browser requests it, not the page.
        errors
            .filter(|error| !error.contains("/favicon.ico "))
            .collect()
    }

    /// Takes a screenshot of a completely loaded page, for people to look at.
    #[track_caller]
    pub fn screenshot(&self, name: &str) {
        let resize = |height: u64| {
            self.ask(
                "POST",
                "/window/rect",
                json!({ "width": 1280, "height": height }),
            )
        };
        resize(800);
        resize(
            self.script("return document.documentElement.scrollHeight")
                .as_u64()
                .unwrap()
                .clamp(800, 2400)
                + 150,
        );
        const MISSING: &str = "
            if (document.readyState !== 'complete') return ['the page is loading'];
            const images = [...document.images];
            const styles = [...document.querySelectorAll('link[rel=stylesheet]')];
            return [
                ...images.filter(it => !it.complete || !it.naturalWidth).map(it => it.src),
                ...styles.filter(it => !it.sheet).map(it => it.href),
            ]";
        let started = Instant::now();
        while self.script(MISSING) != json!([]) {
            assert!(
                started.elapsed() < TIMEOUT,
                "not loaded: {}",
                self.script(MISSING)
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        let errors = self.errors();
        assert!(errors.is_empty(), "errors in the browser: {errors:#?}");

        self.picture(name);
    }

    /// Shows all of the page, up to some height, as a phone or a desktop of this width does, in a
    /// light or dark colour scheme.
    pub fn emulate(&self, width: u64, scheme: &str) {
        let command = |name: &str, params: Value| {
            let command = json!({ "cmd": name, "params": params });
            self.ask("POST", "/goog/cdp/execute", command)
        };
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        command(
            "Emulation.setEmulatedMedia",
            json!({ "features": [feature] }),
        );
        let resize = |height: u64| {
            let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1,
                "mobile": width < 600 });
            command("Emulation.setDeviceMetricsOverride", size);
        };
        resize(900);
        let height = self.script("return document.documentElement.scrollHeight");
        resize(height.as_u64().unwrap().clamp(900, 6000));
    }

    /// Takes a picture of the window, for people: none in CI.
    pub fn picture(&self, name: &str) {
        if std::env::var_os("CI").is_some() {
            return;
        }
        let picture = self.ask("GET", "/screenshot", Value::Null);
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .parent()
            .unwrap()
            .join("screenshots");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(
            directory.join(format!("{name}.png")),
            base64(picture.as_str().unwrap()),
        )
        .unwrap();
    }

    #[track_caller]
    fn until(&self, css: &str, attempt: impl Fn(&str) -> Result<Value, Value>) {
        let started = Instant::now();
        loop {
            let element = self.try_ask(
                "POST",
                "/element",
                json!({ "using": "css selector", "value": css }),
            );
            let Err(error) =
                element.and_then(|element| attempt(element[ELEMENT].as_str().unwrap()))
            else {
                return;
            };
            if started.elapsed() > TIMEOUT {
                panic!(
                    "{css}: {error}\n{}",
                    self.script(
                        "return location.href + '\\n' + document.body.innerText.slice(0, 3000)"
                    )
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    fn ask(&self, method: &str, path: &str, body: Value) -> Value {
        self.try_ask(method, path, body)
            .unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// The value of the response, or WebDriver's error.
    fn try_ask(&self, method: &str, path: &str, body: Value) -> Result<Value, Value> {
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.session))
            .body(body)
            .unwrap();
        let mut answer = self
            .agent
            .run(request)
            .unwrap_or_else(|error| panic!("chromedriver: {error}"));
        let limit = 64 << 20;
        let value = answer
            .body_mut()
            .with_config()
            .limit(limit)
            .read_json::<Value>()
            .unwrap()["value"]
            .take();
        if answer.status().is_success() {
            Ok(value)
        } else {
            Err(value["message"].clone())
        }
    }
}

/// Starts chromedriver, and returns its address.
fn start_driver(home: &Path) -> (Child, String) {
    let program = installed("/usr/bin/chromedriver", "chromium-driver");
    let mut said = Vec::new();
    // On a busy machine chromedriver sometimes exits before it listens, and starts at the next
    // attempt.
    for _ in 0..20 {
        let mut driver = Command::new(&program)
            .arg("--port=0")
            .env("HOME", home)
            .env("TMPDIR", home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Chromium outlives a driver that crashes, so the process group is killed.
            .process_group(0)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        for line in lines.by_ref().map_while(Result::ok) {
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                std::thread::spawn(move || lines.for_each(drop));
                return (driver, port.trim_end_matches('.').to_string());
            }
            said.push(line);
        }
        let _ = driver.kill();
        let _ = driver.wait();
    }
    panic!("chromedriver does not start:\n{}", said.join("\n"));
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.agent.delete(&self.session).call();
        let group = format!("-{}", self.driver.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.driver.wait();
    }
}

fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let sixes: Vec<u32> = text
        .bytes()
        .filter_map(|byte| ALPHABET.iter().position(|letter| *letter == byte))
        .map(|six| six as u32)
        .collect();
    sixes
        .chunks(4)
        .flat_map(|four| {
            let bits = four.iter().fold(0, |bits, six| bits << 6 | six) << (6 * (4 - four.len()));
            bits.to_be_bytes()[1..four.len()].to_vec()
        })
        .collect()
}

//! The format of case files: scripts, requests, and expectations of the reference's answer.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::Deserialize;

use super::answer::Answer;
use super::request::Request;
use super::watch::Watch;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topic {
    /// php.ini directives for all cases of the topic, for settings that PHP applies before it reads
    /// `.user.ini`.
    #[serde(default)]
    pub ini: String,
    /// Whether cases need more extensions than other tests.
    #[serde(default)]
    pub all_extensions: bool,
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
}

/// One case. It has its own directory below the document root, `{dir}` in requests; `{php}` is
/// `{dir}/index.php`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub name: String,
    /// Becomes `{dir}/index.php`.
    php: Option<String>,
    /// Becomes `{dir}/.user.ini`.
    ini: Option<String>,
    /// Further files of `{dir}`, by relative path.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// The requests in order. A case without steps is a GET of its script.
    #[serde(default)]
    step: Vec<Step>,
    /// How often to repeat the steps: more often than there are workers if state could survive in
    /// one.
    #[serde(default = "once")]
    pub times: usize,
    /// Regular expressions; matching text may differ between oracles.
    #[serde(default)]
    pub mask: Vec<String>,
    /// Whether the script prints a JSON object with the server's own keys, which exceptions.toml
    /// lists.
    #[serde(default)]
    pub server_variables: bool,
    /// Text that every oracle must log. Without it, the log must contain nothing of PHP's.
    pub log: Option<String>,
    /// The first PHP version that logs it; all if absent.
    pub log_since: Option<String>,
    /// Below the document root; set during loading.
    #[serde(skip)]
    dir: String,
}

fn once() -> usize {
    1
}

/// One request with expectations of the reference's answer, so that a case cannot pass by failing
/// everywhere.
#[derive(Deserialize, Default, Clone)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Short for `send = ["GET … HTTP/1.1"]`.
    get: Option<String>,
    /// The request line and the header lines.
    send: Option<Vec<String>>,
    body: Option<String>,
    /// Whether the body has CRLF line ends, as multipart requires.
    #[serde(default)]
    crlf: bool,
    /// The body as hexadecimal digits; spaces are ignored.
    hex: Option<String>,
    /// The size of a generated body that contains every byte value, the same in every run.
    bytes: Option<usize>,
    /// How often the body is repeated.
    repeat: Option<usize>,
    /// The reference's expected status; 200 by default.
    pub status: Option<u16>,
    /// Text expected in the reference's headers or body.
    #[serde(default)]
    pub has: Vec<String>,
    /// Repeat the request until the body is this, because something continues after the answer.
    pub until: Option<String>,
    /// A file of the state directory to create after the answer. A script that waits for it proves
    /// that it still runs.
    touch: Option<String>,
    /// Create the file when this text has arrived instead. A script that waits for it proves that
    /// its output is not buffered.
    touch_at: Option<String>,
    /// Disconnect then. Nothing is compared; a later step checks what happened to the script.
    #[serde(default)]
    leave: bool,
}

/// When a step creates its file.
pub enum Touch {
    Nothing,
    Afterwards(PathBuf),
    During(Watch),
}

/// Parses a topic's cases; writes no files.
pub fn load(topic: &str, text: &str) -> Topic {
    let mut read: Topic =
        toml::from_str(text).unwrap_or_else(|error| panic!("cases/{topic}.toml: {error}"));
    for (number, case) in read.cases.iter_mut().enumerate() {
        case.dir = format!("/{topic}/{number}");
    }
    read
}

/// Writes the scripts that cases share.
pub fn write_scripts(to: &Path) {
    std::fs::create_dir(to).unwrap();
    for file in std::fs::read_dir(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/php/oracle/scripts"
    ))
    .unwrap()
    {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

impl Case {
    pub fn has_user_ini(&self) -> bool {
        let is_one = |path: &String| path.rsplit('/').next() == Some(".user.ini");
        self.ini.is_some() || self.files.keys().any(is_one)
    }

    /// Writes the case's files below `root`. In them, `{root}` is the document root and `{state}` a
    /// directory that scripts may write to.
    pub fn write(&self, root: &Path, state: &Path) {
        let dir = root.join(&self.dir[1..]);
        std::fs::create_dir_all(&dir).unwrap();
        let php = self.php.iter().map(|text| ("index.php", text));
        let ini = self.ini.iter().map(|text| (".user.ini", text));
        let files = self.files.iter().map(|(name, text)| (name.as_str(), text));
        for (name, text) in php.chain(ini).chain(files) {
            let text = text
                .replace("{root}", root.to_str().unwrap())
                .replace("{state}", state.to_str().unwrap());
            let path = dir.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut file = std::fs::File::create(path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            // OPcache ignores files younger than two seconds (opcache.file_update_protection).
            let hour = Duration::from_secs(3600);
            file.set_modified(SystemTime::now() - hour).unwrap();
        }
    }

    pub fn steps(&self) -> Vec<Step> {
        if self.step.is_empty() {
            vec![Step::default()]
        } else {
            self.step.clone()
        }
    }

    /// The request of `step`. `token` replaces `{who}`, so that oracles do not share sessions and
    /// files. `{long}` is 6,000 bytes, `{huge}` is 256 times as much, and `{vars}` is a query with
    /// 1,100 variables, more than max_input_vars.
    pub fn request(&self, step: &Step, token: &str) -> Request {
        let fill = |text: &str| {
            let vars: Vec<String> = (0..1100).map(|number| format!("v{number}")).collect();
            text.replace("{php}", "{dir}/index.php")
                .replace("{dir}", &self.dir)
                .replace("{who}", token)
                .replace("{huge}", &"{long}".repeat(256))
                .replace("{long}", &"long5".repeat(1200))
                .replace("{vars}", &vars.join("&"))
        };
        let lines = match (&step.send, &step.get) {
            (Some(lines), None) => lines.iter().map(|line| fill(line)).collect(),
            (None, Some(target)) => vec![fill(&format!("GET {target} HTTP/1.1"))],
            (None, None) => vec![fill("GET {php} HTTP/1.1")],
            (Some(_), Some(_)) => panic!("{}: `send` and `get` are two requests", self.name),
        };
        Request::new(&lines, step.body(fill))
    }
}

impl Step {
    /// The case's expectations that the reference's answer does not meet.
    pub fn unexpected(&self, reference: &Answer) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut text = String::new();
        for (name, value) in &reference.headers {
            text += &format!("{name}: {}\n", String::from_utf8_lossy(value));
        }
        text += &String::from_utf8_lossy(&reference.body);
        let shown: String = text.chars().take(3000).collect();
        let status = self.status.unwrap_or(200);
        if reference.status != status {
            wrong.push(format!(
                "the case is about status {status}, and this is {}:\n{shown}",
                reference.status
            ));
        }
        for needle in &self.has {
            if !text.contains(needle.as_str()) {
                wrong.push(format!(
                    "the case is about {needle:?}, which is not in:\n{shown}"
                ));
            }
        }
        wrong
    }

    /// The file to create in `state` for `token`, if any, and when.
    pub fn touch(&self, state: &Path, token: &str) -> Touch {
        let file = self
            .touch
            .as_ref()
            .map(|name| state.join(name.replace("{who}", token)));
        match (file, self.touch_at.clone()) {
            (None, _) => Touch::Nothing,
            (Some(file), None) => Touch::Afterwards(file),
            (Some(file), Some(text)) => Touch::During(Watch {
                text,
                file,
                leaves: self.leave,
            }),
        }
    }

    fn body(&self, fill: impl Fn(&str) -> String) -> Option<Vec<u8>> {
        let body = match (&self.body, &self.hex, self.bytes) {
            (Some(text), None, None) if self.crlf => fill(text).replace('\n', "\r\n").into_bytes(),
            (Some(text), None, None) => fill(text).into_bytes(),
            (None, Some(hex), None) => {
                let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
                let byte = |pair: &[u8]| {
                    u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()
                };
                digits.chunks(2).map(byte).collect()
            }
            (None, None, Some(length)) => noise(length),
            (None, None, None) => return None,
            _ => panic!("`body`, `hex` and `bytes` are three bodies"),
        };
        Some(body.repeat(self.repeat.unwrap_or(1)))
    }
}

/// Bytes without a pattern, from Knuth's linear congruential generator.
fn noise(length: usize) -> Vec<u8> {
    let mut state: u64 = 1;
    let mut next = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

//! Runs one test on one engine: starts a server with the test's settings, sends its request, reads
//! the answer.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::expectation;
use super::request;
use super::sections::Phpt;
use crate::common::Surus;
use crate::common::engines::Subject;
use crate::common::php::{all_extensions, few_extensions, is_few};
use crate::oracle::http;

pub enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

/// The settings of PHP's own test runner.
const INI: [&str; 30] = [
    "output_handler=",
    "open_basedir=",
    "disable_functions=",
    "output_buffering=Off",
    "error_reporting=32767",
    "display_errors=1",
    "display_startup_errors=1",
    "log_errors=0",
    "html_errors=0",
    "report_memleaks=1",
    "docref_root=",
    "docref_ext=.html",
    "error_prepend_string=",
    "error_append_string=",
    "auto_prepend_file=",
    "auto_append_file=",
    "ignore_repeated_errors=0",
    "precision=14",
    "serialize_precision=-1",
    "memory_limit=128M",
    "opcache.file_update_protection=0",
    "opcache.revalidate_freq=0",
    "zend.assertions=1",
    "zend.exception_ignore_args=0",
    "zend.exception_string_param_max_len=15",
    "short_open_tag=0",
    // Set by php.ini-production, Debian's default, but not by PHP itself.
    "variables_order=EGPCS",
    "request_order=GPC",
    "register_argc_argv=1",
    "session.gc_probability=1",
];

/// A writable copy of the directories with web tests.
pub struct Bench {
    root: PathBuf,
    sessions: PathBuf,
    subject: Subject,
    extensions: BTreeSet<String>,
    // Last, so that it is deleted after everything that uses it.
    _dir: tempfile::TempDir,
}

impl Bench {
    pub fn new(source: &Path, subject: Subject, tests: &[&Phpt]) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        open(&root);
        for name in tests.iter().map(|test| test.dir()).collect::<BTreeSet<_>>() {
            copy(&source.join(name), &root.join(name));
        }
        let sessions = root.join("sessions");
        std::fs::create_dir(&sessions).unwrap();
        open(&sessions);
        let worker = root.join("worker.php");
        std::fs::write(&worker, include_str!("worker.php")).unwrap();
        let said = Command::new("php").arg("-m").output().unwrap().stdout;
        let extensions = String::from_utf8_lossy(&said)
            .lines()
            .map(|line| line.trim().to_ascii_lowercase())
            .collect();
        Bench {
            root,
            sessions,
            subject,
            extensions,
            _dir: dir,
        }
    }

    pub fn run(&self, test: &Phpt) -> Outcome {
        match self.answer(test) {
            Ok(outcome) => outcome,
            Err(reason) => Outcome::Skipped(reason),
        }
    }

    /// An error says why the test cannot run.
    fn answer(&self, test: &Phpt) -> Result<Outcome, String> {
        if test.path.starts_with("sapi/") {
            return Err("tests another SAPI".into());
        }
        for section in ["REDIRECTTEST", "STDIN", "ARGS", "XFAIL", "CAPTURE_STDIO"] {
            if test.get(section).is_some() {
                return Err(format!("has a section {section}"));
            }
        }
        for name in test.text("EXTENSIONS").unwrap_or_default().lines() {
            let name = name.trim().to_ascii_lowercase();
            if !name.is_empty() && name != "opcache" && !self.extensions.contains(&name) {
                return Err(format!("needs the extension {name}"));
            }
        }
        let dir = self.root.join(test.dir());
        let script = match (test.get("FILE"), test.text("FILE_EXTERNAL")) {
            (Some(text), _) => text.to_vec(),
            (None, Some(name)) => {
                std::fs::read(dir.join(&name)).map_err(|_| format!("there is no {name}"))?
            }
            (None, None) => return Err("has no script".into()),
        };
        let request = request::request(test)?;
        let mut ini: Vec<String> = INI.map(String::from).into();
        // PHP deletes old sessions by chance, and warns where it may not read Debian's directory.
        ini.push(format!("session.save_path={}", self.sessions.display()));
        for line in test.text("INI").unwrap_or_default().lines() {
            let line = line
                .replace("{PWD}", dir.to_str().unwrap())
                .replace("{TMP}", "/tmp");
            if let Some((name, value)) = line.split_once('=') {
                ini.push(format!("{}={}", name.trim(), value.trim()));
            }
        }
        let scan_dir = self.scan_dir(test, &dir, &ini)?;
        let file = dir.join(test.script());
        std::fs::write(&file, script).unwrap();
        let outcome = self.ask(&dir, &file, &ini, &request, scan_dir, test);
        if let Some(code) = test.get("CLEAN") {
            let name = test.script().replace(".php", ".clean.php");
            self.php(&dir, &name, code, &ini, scan_dir);
        }
        let _ = std::fs::remove_file(&file);
        outcome
    }

    /// The directory with the extensions that the test needs. An error says why it is skipped.
    fn scan_dir(&self, test: &Phpt, dir: &Path, ini: &[String]) -> Result<&str, String> {
        let needed = test.text("EXTENSIONS").unwrap_or_default();
        let few = needed.lines().all(|name| is_few(name.trim()));
        let mut reason = String::new();
        for scan_dir in [few_extensions(), all_extensions().1][usize::from(!few)..]
            .iter()
            .copied()
        {
            let Some(code) = test.get("SKIPIF") else {
                return Ok(scan_dir);
            };
            let name = test.script().replace(".php", ".skip.php");
            let said = self.php(dir, &name, code, ini, scan_dir);
            if !said.to_ascii_lowercase().starts_with("skip") {
                return Ok(scan_dir);
            }
            reason = said.lines().next().unwrap_or_default().to_string();
        }
        Err(reason
            .trim_start_matches(['s', 'k', 'i', 'p', ':', ' ', '-'])
            .into())
    }

    fn ask(
        &self,
        dir: &Path,
        file: &Path,
        ini: &[String],
        (bytes, method): &(Vec<u8>, String),
        scan_dir: &str,
        test: &Phpt,
    ) -> Result<Outcome, String> {
        let mut args = vec!["--engine", self.subject.name, "--workers", "1"];
        let worker = self.root.join("worker.php");
        if self.subject.boots {
            args.extend(["--script", worker.to_str().unwrap()]);
        }
        for entry in ini {
            args.extend(["-d", entry]);
        }
        // Surus derives its socket's name from the directory, and several servers share a
        // directory.
        let admin = format!("unix:{}.admin", file.display());
        let env = [
            ("PHP_INI_SCAN_DIR", scan_dir),
            ("SURUS_ADMIN_LISTEN", admin.as_str()),
            ("SURUS_ACCESS_LOG_FORMAT", "off"),
            ("SURUS_COMPRESS_ENABLED", "false"),
            ("SURUS_ENV_PHPT_FILE", file.to_str().unwrap()),
        ];
        let env = if self.subject.boots {
            &env[..]
        } else {
            &env[..4]
        };
        let surus = match Surus::spawn(dir, &args, env) {
            Ok(surus) => surus,
            Err(log) => return Ok(Outcome::Failed(format!("surus does not start:\n{log}"))),
        };
        let mut answer = match http::ask(&surus.address, bytes, method, None) {
            Ok(answer) => answer,
            Err(error) => return Ok(Outcome::Failed(error)),
        };
        if self.subject.boots {
            answer.body = without_worker(&answer.body);
        }
        match expectation::check(test, &answer) {
            Ok(()) => Ok(Outcome::Passed),
            Err(difference) => Ok(Outcome::Failed(format!("{difference}\n{}", surus.log()))),
        }
    }

    /// The output of the test's own helper script.
    fn php(&self, dir: &Path, name: &str, code: &[u8], ini: &[String], scan_dir: &str) -> String {
        let file = dir.join(name);
        std::fs::write(&file, code).unwrap();
        let mut command = Command::new("php-cgi");
        command.args(["-q", "-d", "cgi.force_redirect=0"]);
        for entry in ini {
            command.args(["-d", entry]);
        }
        let output = command
            .arg(&file)
            .current_dir(dir)
            .env("PHP_INI_SCAN_DIR", scan_dir)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let _ = std::fs::remove_file(&file);
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    }
}

/// Ends a stack trace at the test's own script instead of the booted one that required it.
fn without_worker(body: &[u8]) -> Vec<u8> {
    let frames =
        r"#(\d+) [^\n]*/worker\.php\(\d+\): require\([^\n]*\n(?:#\d+ [^\n]*\n)*?#\d+ \{main\}";
    let frames = regex::bytes::Regex::new(frames).unwrap();
    frames.replace_all(body, &b"#$1 {main}"[..]).into_owned()
}

#[test]
fn stack_trace_ends_at_the_tests_own_script() {
    let trace = b"#0 /x/a.php(1): f()
#1 /x/worker.php(6): require('/x/a.php')
#2 /x/worker.php(7): {closure}()
#3 {main}
";
    assert_eq!(without_worker(trace), b"#0 /x/a.php(1): f()\n#1 {main}\n");
}

fn open(dir: &Path) {
    std::fs::set_permissions(dir, PermissionsExt::from_mode(0o777)).unwrap();
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    open(to);
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => copy(&entry.path(), &target),
            kind if kind.is_file() => drop(std::fs::copy(entry.path(), target).unwrap()),
            _ => {}
        }
    }
}

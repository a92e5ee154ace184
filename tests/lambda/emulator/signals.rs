//! `surus lambda dev` and the signals that other servers know.

use std::fs::File;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::fake::LONG;
use crate::common::executable::write_executable;

/// A running `surus lambda dev`; its function's variable `MINE` is in the bootstrap.
struct Dev {
    project: tempfile::TempDir,
    child: Child,
    /// Where the function is invoked.
    url: String,
    _lines: Lines<BufReader<ChildStdout>>,
}

impl Dev {
    fn start() -> Dev {
        let project = tempfile::tempdir().unwrap();
        write_bootstrap(project.path(), "one");
        let mut child = Command::new(env!("CARGO_BIN_EXE_surus"))
            .args(["lambda", "dev", "--bootstrap", "bootstrap", "--unlimited"])
            .args(["--listen", "127.0.0.1:0", "--api", "127.0.0.1:0"])
            .current_dir(project.path())
            .stdout(Stdio::piped())
            .stderr(File::create(project.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut next = || lines.next().unwrap().unwrap();
        let api = next().strip_prefix("invoke by ").unwrap().to_string();
        assert!(next().starts_with("listening on "));
        Dev {
            project,
            child,
            url: format!("{api}/2015-03-31/functions/function/invocations"),
            _lines: lines,
        }
    }

    /// The function's variable.
    fn mine(&self) -> String {
        let mut answer = ureq::post(&self.url)
            .send(r#"{"variable":"MINE"}"#)
            .unwrap();
        answer.body_mut().read_to_string().unwrap()
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.project.path().join(name)).unwrap_or_default()
    }

    fn end(&mut self) -> ExitStatus {
        let mut status = None;
        until("it ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.signal("TERM");
            let _ = self.child.wait();
        }
    }
}

fn write_bootstrap(project: &Path, mine: &str) {
    let program = std::env::current_exe().unwrap();
    let script = format!(
        "#!/bin/sh\nMINE={mine} EMULATED_RUNTIME=echo exec '{}' --exact \
         emulator::runtimes::program_acts_as_a_runtime_if_the_variable_is_set --nocapture\n",
        program.display()
    );
    write_executable(&project.join("bootstrap"), &script);
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < LONG, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn stop_signals_end_the_function_and_dev() {
    for name in ["TERM", "INT", "QUIT", "HUP"] {
        let mut dev = Dev::start();
        assert_eq!(dev.mine(), "\"one\"", "{name}");
        dev.signal(name);
        assert_eq!(dev.end().code(), Some(0), "{name}");
    }
}

#[test]
fn usr1_reopens_the_log() {
    let dev = Dev::start();
    assert_eq!(dev.mine(), "\"one\"");
    let path = |name: &str| dev.project.path().join(name);
    until("the event is logged", || {
        dev.log("log").contains("REPORT RequestId: ")
    });
    std::fs::rename(path("log"), path("log.1")).unwrap();
    dev.signal("USR1");
    until("a line is in the new file", || {
        assert_eq!(dev.mine(), "\"one\"");
        dev.log("log").contains("REPORT RequestId: ")
    });
}

#[test]
fn usr2_starts_the_function_again_from_its_files() {
    let dev = Dev::start();
    assert_eq!(dev.mine(), "\"one\"");
    write_bootstrap(dev.project.path(), "two");
    assert_eq!(dev.mine(), "\"one\"", "it still runs");
    dev.signal("USR2");
    until("it has started again", || dev.mine() == "\"two\"");
    let log = dev.log("log");
    assert!(!log.contains("Status: error"), "{log}");
}

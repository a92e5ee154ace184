//! `surus lambda invoke` and `surus lambda dev` on the command line.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::common::executable::write_executable;
use crate::common::run_with_input;

/// A project with a runtime executable of these tests and an event file.
fn project(event: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let script = format!(
        "#!/bin/sh\nEMULATED_RUNTIME=echo exec '{}' --exact \
         emulator::runtimes::program_acts_as_a_runtime_if_the_variable_is_set --nocapture\n",
        program.display()
    );
    let bootstrap = directory.path().join("bootstrap");
    write_executable(&bootstrap, &script);
    std::fs::write(directory.path().join("event.json"), event).unwrap();
    directory
}

fn surus(project: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    command.arg("lambda").args(arguments).current_dir(project);
    command.args(["--bootstrap", "bootstrap", "--unlimited"]);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn invoke(event: &str) -> Output {
    let project = project(event);
    surus(project.path(), &["invoke", "event.json"])
        .output()
        .unwrap()
}

#[test]
fn invoke_prints_answer_on_stdout_and_log_on_stderr() {
    let output = invoke(r#"{"print":"from the function","x":1}"#);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    let answer: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(answer["payload"]["x"], 1);
    for part in [
        "START RequestId: ",
        "from the function",
        "END RequestId: ",
        "Memory Size: 1024 MB",
    ] {
        assert!(stderr.contains(part), "no {part} in {stderr}");
    }
}

#[test]
fn failed_function_makes_invoke_fail() {
    for (event, part) in [
        (r#"{"fail":"it must"}"#, "it must"),
        (r#"{"exit":1}"#, "Runtime exited with error: exit status 1"),
    ] {
        let output = invoke(event);
        assert_eq!(output.status.code(), Some(1));
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let message = answer["errorMessage"].as_str().unwrap();
        assert!(message.contains(part), "{message}");
        assert!(text(&output.stderr).contains("surus: the function failed: "));
    }
}

#[test]
fn invoke_reads_the_event_from_stdin() {
    let project = project("");
    let mut invoke = surus(
        project.path(),
        &["invoke", "-", "--env", "MINE=yes", "--fault", "slow-next"],
    );
    let output = run_with_input(&mut invoke, br#"{"variable":"MINE"}"#);
    assert_eq!(
        text(&output.stdout),
        "\"yes\"\n",
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn invalid_arguments_are_reported_before_the_start() {
    let output = invoke("no JSON");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("event.json is not JSON"), "{stderr}");
    assert!(!stderr.contains("START"), "{stderr}");
    let project = project("{}");
    for (arguments, status, part) in [
        (vec!["invoke", "none.json"], 1, "cannot read none.json"),
        (
            vec!["invoke", "event.json", "none"],
            1,
            "none is not a directory",
        ),
        (
            vec!["invoke", "event.json", "--memory", "1"],
            1,
            "128 to 10240 MB",
        ),
        (
            vec!["invoke", "event.json", "--timeout", "20m"],
            1,
            "1s to 15m",
        ),
        (
            vec!["invoke", "event.json", "--fault", "x"],
            2,
            "unknown fault `x`; known faults: freeze",
        ),
        (
            vec!["dev", "--service", "x"],
            2,
            "`x` is not one of url, http",
        ),
        (vec!["dev", "--every", "x"], 2, "1m=event.json"),
        (
            vec!["dev", "--service", "rest", "--binary-media-types", "png"],
            2,
            "`png` is not a media type",
        ),
        (
            vec!["dev", "--binary-media-types", "*/*"],
            1,
            "add --service rest",
        ),
    ] {
        let output = surus(project.path(), &arguments).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{arguments:?}: {stderr}"
        );
        assert!(stderr.contains(part), "{arguments:?}: {stderr}");
    }
}

/// `surus lambda dev`, and the URL at which it answers.
struct Dev(Child, String);

impl Dev {
    fn start(mut surus: Command) -> Dev {
        let mut child = surus
            .args(["--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let listening = lines.next().unwrap().unwrap();
        let url = listening.strip_prefix("listening on ").unwrap().to_string();
        Dev(child, url)
    }

    /// Ends it, and returns what it has written to stderr.
    fn end(self) -> String {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").arg(&pid).status().unwrap().success());
        let output = self.0.wait_with_output().unwrap();
        let log = text(&output.stderr);
        assert!(output.status.success(), "{log}");
        log
    }
}

#[test]
fn dev_answers_requests_until_sigterm() {
    let project = project("{}");
    let dev = Dev::start(surus(project.path(), &["dev", "--service", "http"]));
    let url = &dev.1;
    for number in 0..3 {
        let mut said = ureq::get(&format!("{url}/path?n={number}")).call().unwrap();
        let answer: serde_json::Value = said.body_mut().read_json().unwrap();
        assert_eq!(answer["payload"]["rawPath"], "/path");
        assert_eq!(answer["payload"]["rawQueryString"], format!("n={number}"));
    }
    assert_eq!(dev.end().matches("REPORT RequestId: ").count(), 3);
}

#[test]
fn dev_of_a_rest_api_passes_bodies_on_as_text_without_binary_media_types() {
    let project = tempfile::tempdir().unwrap();
    // PHP may run as another user.
    std::fs::set_permissions(project.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = r"<?php
        header('Content-Type: image/png');
        header('X-Received: '.bin2hex(file_get_contents('php://input')));
        echo hex2bin('ff00');";
    std::fs::write(project.path().join("index.php"), script).unwrap();
    let all = ["--binary-media-types", "*/*"];
    for (types, received, answered) in [
        (&[][..], "efbfbd41", &b"/wA="[..]),
        (&all, "ff41", b"\xff\0"),
    ] {
        let mut surus = Command::new(env!("CARGO_BIN_EXE_surus"));
        surus.args(["lambda", "dev", "--service", "rest", "--unlimited"]);
        surus.args(types).current_dir(project.path());
        let dev = Dev::start(surus);
        let mut said = ureq::post(&dev.1).send(&b"\xffA"[..]).unwrap();
        assert_eq!(said.headers()["x-received"], received, "{types:?}");
        assert_eq!(
            said.body_mut().read_to_vec().unwrap(),
            answered,
            "{types:?}"
        );
        let log = dev.end();
        assert!(log.contains("the REST API passes it on as base64"), "{log}");
    }
}

#[test]
fn project_without_bootstrap_runs_surus_with_the_application() {
    let project = tempfile::tempdir().unwrap();
    // PHP may run as another user.
    std::fs::set_permissions(project.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = "<?php
        error_log('from PHP');
        echo $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['REQUEST_URI'];";
    std::fs::write(project.path().join("index.php"), script).unwrap();
    let event = serde_json::json!({
        "version": "2.0",
        "rawPath": "/a%20b",
        "rawQueryString": "x=1",
        "headers": {"host": "app.example"},
        "requestContext": {
            "http": {
                "method": "GET",
                "path": "/a%20b",
                "protocol": "HTTP/1.1",
                "sourceIp": "203.0.113.7",
            },
        },
        "isBase64Encoded": false,
    });
    std::fs::write(project.path().join("event.json"), event.to_string()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_surus"))
        .args(["lambda", "invoke", "event.json", "--unlimited"])
        .current_dir(project.path())
        .output()
        .unwrap();
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["statusCode"], 200);
    assert_eq!(answer["body"], "GET /a%20b?x=1");
    let at = |part: &str| {
        stderr
            .find(part)
            .unwrap_or_else(|| panic!("no {part} in {stderr}"))
    };
    assert!(at("START RequestId: ") < at("from PHP"), "{stderr}");
    assert!(at("from PHP") < at("END RequestId: "), "{stderr}");
}

#[test]
fn queue_example_behaves_as_its_readme_says() {
    let queue = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/queue");
    // The user that may read the project.
    let id = Command::new("id").arg("-un").output().unwrap();
    let user = format!("SURUS_ENGINE_USER={}", text(&id.stdout).trim());
    let output = Command::new(env!("CARGO_BIN_EXE_surus"))
        .args(["lambda", "invoke"])
        .arg(queue.join("event.json"))
        .arg(&queue)
        .args(["--unlimited", "--env", &user])
        .output()
        .unwrap();
    let (answer, log) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{answer}{log}");
    assert_eq!(answer.matches("itemIdentifier").count(), 1, "{answer}");
    assert!(log.contains("Hello, Hannibal!"), "{log}");
}

//! `surus serve --engine roadrunner` in a RoadRunner project, and what it logs.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::common::Surus;

const YAML: &str = r#"
version: "3"
rpc:
  listen: tcp://127.0.0.1:6001
server:
  command: "php -d precision=5 bin/worker.php --some argument"
  env:
    FROM_YAML: ${NOWHERE:-default}
http:
  address: 127.0.0.1:1
  pool:
    num_workers: 1
logs:
  level: debug
"#;

const WORKER: &str = r#"<?php
namespace Surus\Tests\RoadRunner;
require __DIR__.'/frames.php';
$worker = new Worker();
while ($request = $worker->next()) {
    $worker->respond(200, json_encode([
        $request['uri'], $argv, getcwd(), ini_get('precision'), getenv('FROM_YAML'),
        getenv('RR_MODE'), getenv('FROM_SHELL'), posix_getuid(),
    ]));
}
"#;

fn project(files: &[(&str, &str)]) -> tempfile::TempDir {
    let project = tempfile::tempdir().unwrap();
    for dir in [project.path(), &project.path().join("bin")] {
        std::fs::create_dir_all(dir).unwrap();
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let frames = ("bin/frames.php", include_str!("frames.php"));
    for (name, text) in files.iter().chain([&frames]) {
        std::fs::write(project.path().join(name), text).unwrap();
    }
    project
}

fn curl(surus: &Surus, path: &str) -> String {
    let url = format!("{}{path}", surus.url);
    let output = Command::new("curl")
        .args(["-s", "--max-time", "20", &url])
        .output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

#[test]
fn project_of_roadrunner_is_served_without_configuration() {
    let project = project(&[
        (".rr.yaml", YAML),
        ("bin/worker.php", WORKER),
        ("config.txt", "not to be sent"),
    ]);
    let env = [("FROM_SHELL", "yes")];
    let surus = Surus::spawn(project.path(), &["--engine", "roadrunner"], &env).unwrap();
    for path in ["/", "/config.txt", "/bin/worker.php?a=1"] {
        let seen: serde_json::Value = serde_json::from_str(&curl(&surus, path)).unwrap();
        assert_eq!(seen[0], format!("{}{path}", surus.url));
        let arguments = seen[1].as_array().unwrap();
        assert_eq!(arguments[1..], ["--some", "argument"]);
        let directory = project.path().canonicalize().unwrap();
        assert_eq!(seen[2], directory.to_str().unwrap());
        assert_eq!(seen[3], "5");
        assert_eq!((&seen[4], &seen[5]), (&"default".into(), &"http".into()));
        assert_eq!(seen[6], "yes");
        assert!(seen[7] != 0, "PHP runs as root");
    }
    surus.wait_for_log(|log| log.contains("ignored") && log.contains("logs, rpc"));
    assert!(!surus.log().contains("without OPcache"), "{}", surus.log());
}

#[test]
fn output_of_workers_is_logged_with_the_reason_of_a_failure() {
    let scenes = include_str!("scenes.php");
    let project = project(&[("bin/worker.php", scenes)]);
    let script = project.path().join("bin/worker.php");
    let args = ["--engine", "roadrunner", "--workers", "1", "--script"];
    let args = [&args[..], &[script.to_str().unwrap()]].concat();
    let pipes = [("SURUS_ENGINE_RELAY", "pipes")];
    let surus = Surus::spawn(project.path(), &args, &pipes).unwrap();
    assert_eq!(curl(&surus, "/noise"), "noisy");
    // Output of a worker after its response is read with the next one.
    assert_eq!(curl(&surus, "/hello?n=1"), "hello 1");
    surus.wait_for_log(|log| {
        ["noise before", "on stderr", "noise without an end"]
            .iter()
            .all(|line| log.contains(line))
    });
    for (path, reason) in [
        ("/checksum", "a frame header has a wrong checksum"),
        ("/half", "in the middle of a frame"),
        ("/context", "1000 of them are its context"),
        ("/no-status", "invalid status 42"),
        ("/kill", "SIGKILL"),
        ("/error", "the application failed"),
        ("/late-error", "terminate failed"),
        // The second response may arrive before the next request or after it.
        (
            "/twice",
            "it went on after its response|a response without a request",
        ),
    ] {
        curl(&surus, path);
        assert_eq!(curl(&surus, "/hello?n=1"), "hello 1");
        surus.wait_for_log(|log| reason.split('|').any(|reason| log.contains(reason)));
    }
}

#[test]
fn firewall_of_user_ini_that_no_worker_runs_is_named() {
    let project = project(&[
        (".rr.yaml", YAML),
        ("bin/worker.php", WORKER),
        (".user.ini", "auto_prepend_file = 'waf.php'\n"),
    ]);
    let surus = Surus::spawn(project.path(), &["--engine", "roadrunner"], &[]).unwrap();
    surus.wait_for_log(|log| log.contains(".user.ini") && log.contains("waf.php"));
    let mut check = Command::new(env!("CARGO_BIN_EXE_surus"));
    let said = check.arg("check").arg(project.path());
    let said = said.args(["--engine", "roadrunner", "--listen", "127.0.0.1:0"]);
    let said = String::from_utf8(said.output().unwrap().stdout).unwrap();
    assert!(
        said.contains("! auto_prepend_file (waf.php) in a .user.ini does not run"),
        "{said}"
    );
}

//! Tests servers of a root that has only some of its capabilities, as in containers and under
//! systemd.

use std::path::Path;
use std::process::Command;

use crate::common::Surus;
use crate::server::{app, assert_serves, children, get, hello, is_root, lives, until};

/// `setpriv` with these capabilities as root's.
fn setpriv(capabilities: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.arg(format!("--bounding-set={capabilities}"));
    command.arg(env!("CARGO_BIN_EXE_surus"));
    command
}

fn spawn(capabilities: &str, dir: &Path, args: &[&str], env: &[(&str, &str)]) -> Surus {
    Surus::spawn_by(setpriv(capabilities), dir, args, env)
        .unwrap_or_else(|log| panic!("surus did not start: {log}"))
}

pub fn root_without_a_needed_capability_is_rejected_with_its_name() {
    if !is_root() {
        return;
    }
    let dir = hello();
    for (capabilities, missing) in [
        ("-kill", "CAP_KILL"),
        ("-all,+setuid,+setgid", "CAP_KILL"),
        ("-setgid", "CAP_SETGID"),
    ] {
        let log = Surus::spawn_by(setpriv(capabilities), dir.path(), &[], &[]);
        let log = log.err().unwrap();
        assert!(log.contains(missing), "{capabilities}: {log}");
        let mut check = setpriv(capabilities);
        let checked = check.arg("check").arg(dir.path()).output().unwrap();
        let said = [checked.stdout, checked.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(
            !checked.status.success() && said.contains(missing),
            "{said}"
        );
    }
}

pub fn root_with_the_needed_capabilities_ends_its_processes() {
    if !is_root() {
        return;
    }
    let dir = app(&[
        ("index.php", "<?php echo 'hello';"),
        ("a.txt", "static"),
        ("loop.php", "<?php set_time_limit(0); while (true) {}"),
    ]);
    let env = [
        ("SURUS_HTTP_REQUEST_TIMEOUT", "1s"),
        ("SURUS_ENGINE_KILL_TIMEOUT", "200ms"),
    ];
    let args = ["--workers", "1"];
    let mut surus = spawn("-all,+setuid,+setgid,+kill", dir.path(), &args, &env);
    assert_serves(&surus);
    assert_eq!(get(&surus, "/loop.php").unwrap().0, 504);
    assert_serves(&surus);
    let all = children(surus.pid());
    surus.signal("TERM");
    assert!(surus.wait().success());
    for pid in all {
        until("it has ended", || !lives(pid));
    }
}

const WORKER: &str = r#"<?php
namespace Surus\Tests\RoadRunner;
require __DIR__.'/frames.php';
$worker = new Worker();
while ($request = $worker->next()) {
    $file = $request['uploads']['f']['tmpName'] ?? null;
    $worker->respond(200, $file ? file_get_contents($file) : 'hello');
}
"#;

pub fn every_engine_serves_with_the_capabilities_of_the_systemd_unit() {
    if !is_root() {
        return;
    }
    let unit = include_str!("../../packaging/systemd/surus.service");
    let names = unit
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names = names.unwrap().to_lowercase().replace("cap_", "+");
    let capabilities = format!("-all,{}", names.replace(' ', ","));
    let frames = include_str!("../php/roadrunner/frames.php");
    let dir = app(&[
        ("index.php", "<?php echo 'hello';"),
        ("a.txt", "static"),
        ("worker.php", WORKER),
        ("frames.php", frames),
    ]);
    for engine in ["classic", "cgi", "cli", "fpm", "builtin"] {
        let args = ["--engine", engine, "--workers", "1"];
        let surus = spawn(&capabilities, dir.path(), &args, &[]);
        assert_serves(&surus);
    }
    let script = dir.path().join("worker.php");
    let args = [
        "--engine",
        "roadrunner",
        "--workers",
        "1",
        "--script",
        script.to_str().unwrap(),
    ];
    let surus = spawn(&capabilities, dir.path(), &args, &[]);
    assert_eq!(get(&surus, "/"), Some((200, "hello".into())));
    let body = "--b\r\n\
        Content-Disposition: form-data; name=\"f\"; filename=\"x\"\r\n\r\n\
        uploaded\r\n--b--\r\n";
    let sent = ureq::post(format!("{}/", surus.url))
        .header("Content-Type", "multipart/form-data; boundary=b")
        .send(body);
    let answer = sent.unwrap().body_mut().read_to_string().unwrap();
    assert_eq!(answer, "uploaded", "{}", surus.log());
}

//! Tests that routes select pools with their own settings.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::common::Surus;

const CONFIGURATION: &str = r#"
[engine]
script = "worker.php"
workers = 1

[pool.debug]
engine = "classic"
workers = 1
php = { precision = 5, "assert.exception" = false }
env = { DEBUGGED = "yes" }

[[route]]
prefix = "/"
cookie = "XDEBUG_SESSION"
engine = "debug"

[[route]]
prefix = "/"
query = "XDEBUG_TRIGGER"
engine = "debug"
"#;

const INDEX: &str = r#"<?php
require_once __DIR__ . '/tell.php';
tell();
"#;

const WORKER: &str = r#"<?php
require_once __DIR__ . '/tell.php';
surus_serve('tell');
"#;

const TELL: &str = r#"<?php
function tell() {
    echo getenv('SURUS_ENGINE'), ' ', ini_get('precision'), ' ';
    var_export(getenv('DEBUGGED'));
}
"#;

#[test]
fn debugger_request_goes_to_the_pool_with_the_debugger() {
    let site = tempfile::tempdir().unwrap();
    std::fs::set_permissions(site.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    for (name, text) in [
        ("surus.toml", CONFIGURATION),
        ("index.php", INDEX),
        ("worker.php", WORKER),
        ("tell.php", TELL),
    ] {
        std::fs::write(site.path().join(name), text).unwrap();
    }
    let surus = Surus::serve(site.path(), &[]);
    let get = |arguments: &[&str], path: &str| {
        let output = Command::new("curl")
            .args(["-s", "--max-time", "10"])
            .args(arguments)
            .arg(format!("{}{path}", surus.url))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    for _ in 0..3 {
        assert_eq!(get(&[], "/"), "rewind 14 false");
        assert_eq!(
            get(&["-b", "XDEBUG_SESSION=1"], "/a/b"),
            "classic 5 'yes'",
            "by cookie"
        );
        assert_eq!(
            get(&[], "/?XDEBUG_TRIGGER=1"),
            "classic 5 'yes'",
            "by query"
        );
    }
}

#[test]
fn pool_that_boots_nothing_has_its_script_as_front_controller() {
    let site = tempfile::tempdir().unwrap();
    std::fs::set_permissions(site.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let configuration = r#"
        [[route]]
        prefix = "/api/"
        engine = "api"
        [pool.api]
        engine = "classic"
        workers = 1
        script = "other.php"
    "#;
    let tell = |who: &str| format!("<?php echo '{who} ', $_SERVER['SCRIPT_NAME'];");
    for (name, text) in [
        ("surus.toml", configuration.to_string()),
        ("index.php", tell("main")),
        ("other.php", tell("other")),
        ("api/own.php", tell("own")),
        ("api/a.txt", "file".to_string()),
    ] {
        let path = site.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let readable = Command::new("chmod")
        .args(["-R", "a+rX"])
        .arg(site.path())
        .status();
    assert!(readable.unwrap().success());
    let surus = Surus::serve(site.path(), &["--workers", "1"]);
    let get = |path: &str| {
        let output = Command::new("curl")
            .args(["-sS", &format!("{}{path}", surus.url)])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(get("/api/users"), "other /other.php");
    assert_eq!(get("/api/own.php"), "own /api/own.php");
    assert_eq!(get("/api/a.txt"), "file");
    assert_eq!(get("/users"), "main /index.php");
}

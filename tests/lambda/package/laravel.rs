//! Tests that a Laravel application runs from its package as `laravel new` creates it.

use serde_json::{Value, json};

use super::run::{Function, get, unpack};
use super::{Project, text};
use crate::apps::laravel_installed;
use crate::common::empty_root::{can_chroot, static_surus};

#[test]
fn laravel_runs_unchanged_from_its_package() {
    let Some(bootstrap) = static_surus() else {
        return;
    };
    if !can_chroot() {
        return;
    }
    let (dir, zips) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    laravel_installed::write(dir.path());
    let project = Project(dir);
    let zip = zips.path().join("function.zip");
    let made = project.package(&zip, &["--bootstrap", bootstrap.to_str().unwrap()]);
    assert!(made.status.success(), "{}", text(&made));
    let printed = text(&made);
    let drivers = "SESSION_DRIVER=cookie, CACHE_STORE=array";
    assert!(printed.contains(drivers), "{printed}");
    let root = unpack(&zip);
    assert!(!root.path().join("var/task/app/storage").exists());
    for (environment, driver, visit) in [
        ("", "cookie", "visit 2"),
        ("SURUS_ENGINE_NAME=rewind", "cookie", "visit 2"),
        // A variable of the function counts more than a default.
        ("SESSION_DRIVER=array", "array", "visit 1"),
    ] {
        let function = Function::start(root.path(), environment);
        let ask = |id: &str, event: &Value| {
            let answer = function.ask(id, event).json();
            assert_eq!(answer["statusCode"], 200, "{environment} {id}: {answer}");
            answer
        };
        let body = |answer: &Value| answer["body"].as_str().unwrap().to_owned();
        assert_eq!(body(&ask("view", &get("/"))), "Hello, &lt;Gisgo&gt;!");
        assert_eq!(body(&ask("cache", &get("/cache"))), "cached");
        assert_eq!(body(&ask("log", &get("/log"))), "logged");
        let paths: Value = serde_json::from_str(&body(&ask("paths", &get("/paths")))).unwrap();
        let expected = json!([
            "/var/task/app/bootstrap/cache/packages.php",
            "/tmp/surus-laravel-services.php",
            true,
            "/tmp/surus-laravel-views",
            "stderr",
            "array",
            driver,
        ]);
        assert_eq!(paths, expected, "{environment}");
        let first = ask("first", &get("/visits"));
        assert_eq!(body(&first), "visit 1");
        let cookies = first["cookies"].as_array().unwrap().iter();
        let pairs = cookies.map(|cookie| cookie.as_str().unwrap().split(';').next().unwrap());
        let mut next = get("/visits");
        next["cookies"] = pairs.collect();
        assert_eq!(body(&ask("next", &next)), visit, "{environment}");
    }
}

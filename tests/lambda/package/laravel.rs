//! Tests that a Laravel application runs from its package as `laravel new` creates it.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::run::{Function, get, unpack};
use super::{Project, text};
use crate::apps::site::{example, framework};
use crate::common::empty_root::{can_chroot, static_surus};
use crate::common::php::cli;
use crate::common::tree;

const FILES: [(&str, &str); 8] = [
    (
        "composer.json",
        r#"{"require": {"laravel/framework": "^13.0"}, "extra": {"debian": ["Illuminate"]}}"#,
    ),
    (
        ".env",
        "APP_NAME=Laravel
APP_ENV=production
APP_KEY=\"an example keeps nothing secret!\"
APP_DEBUG=false
LOG_CHANNEL=stack
LOG_STACK=single
DB_CONNECTION=sqlite
SESSION_DRIVER=database
CACHE_STORE=database
",
    ),
    (
        "public/index.php",
        "<?php
use Illuminate\\Http\\Request;
require __DIR__.'/../vendor/autoload.php';
$app = require_once __DIR__.'/../bootstrap/app.php';
$app->handleRequest(Request::capture());
",
    ),
    (
        "bootstrap/app.php",
        "<?php
use Illuminate\\Foundation\\Application;
use Illuminate\\Foundation\\Configuration\\Exceptions;
use Illuminate\\Foundation\\Configuration\\Middleware;
return Application::configure(basePath: dirname(__DIR__))
    ->withRouting(web: __DIR__.'/../routes/web.php')
    ->withMiddleware(function (Middleware $middleware): void {})
    ->withExceptions(function (Exceptions $exceptions): void {})
    ->create();
",
    ),
    // As `artisan package:discover` writes it.
    ("bootstrap/cache/packages.php", "<?php return [];"),
    ("storage/framework/views/.gitignore", "*\n!.gitignore\n"),
    ("resources/views/page.blade.php", "Hello, {{ $name }}!"),
    (
        "routes/web.php",
        "<?php
use Illuminate\\Support\\Facades\\Cache;
use Illuminate\\Support\\Facades\\Log;
use Illuminate\\Support\\Facades\\Route;
Route::get('/', static fn () => view('page', ['name' => '<Gisgo>']));
Route::get('/cache', static fn () => Cache::remember('a', 60, static fn () => 'cached'));
Route::get('/log', static function () {
    Log::error('logged by a test');
    return 'logged';
});
Route::get('/visits', static function () {
    session(['visits' => $visits = session('visits', 0) + 1]);
    return \"visit $visits\";
});
Route::get('/paths', static fn () => [
    app()->getCachedPackagesPath(),
    app()->getCachedServicesPath(),
    is_file(app()->getCachedServicesPath()),
    config('view.compiled'),
    config('logging.default'),
    config('cache.default'),
    config('session.driver'),
]);
",
    ),
];

/// An application with Laravel 13 and its libraries, as Composer installs them.
fn laravel() -> Project {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in FILES {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let (libraries, vendor) = (framework("laravel13"), dir.path().join("vendor"));
    let vendored = vendor.join("debian");
    tree::copy(&libraries, &vendored);
    // Laravel looks for its own configuration above the directories of its classes.
    tree::copy(&libraries.join("Illuminate/config"), &vendor.join("config"));
    let made = Command::new(cli())
        .arg(example("vendor.php"))
        .args([dir.path(), &*vendored])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", text(&made));
    // Composer's loader has no absolute paths either.
    let loader = vendor.join("autoload.php");
    let absolute = format!("'{}/", vendored.canonicalize().unwrap().display());
    let code = fs::read_to_string(&loader).unwrap();
    fs::write(loader, code.replace(&absolute, "__DIR__.'/debian/")).unwrap();
    Project(dir)
}

#[test]
fn laravel_runs_unchanged_from_its_package() {
    let Some(bootstrap) = static_surus() else {
        return;
    };
    if !can_chroot() {
        return;
    }
    let (project, zips) = (laravel(), tempfile::tempdir().unwrap());
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

//! Interleaves two users and an anonymous visitor in one Laravel application: none sees another's
//! data.

mod left_behind;

use std::process::Command;

use super::client::{Client, PROXY};
use super::examples::laravel_without_libraries;
use super::learned::teach;
use super::site::{BOOTING, Site, extension, fixture, framework};
use super::visitors::Step::{Get, Post};
use super::visitors::{Step, overlay, same, sound, talk};
use crate::common::Surus;

const ADA: usize = 0;
const BOB: usize = 1;
const GUEST: usize = 2;

/// The form with a token, and the token's field.
pub const TOKEN: (&str, &str) = ("/page", "_token");

pub const CONVERSATION: &[Step] = &[
    Get(ADA, "/who?q=ada-1"),
    Get(BOB, "/who?q=bob-1"),
    Get(GUEST, "/guarded"),
    Post(ADA, "/login", &[("name", "ada"), ("password", "ada's")]),
    Get(BOB, "/page"),
    Get(ADA, "/page"),
    Get(GUEST, "/who?q=guest-1&page=3"),
    Get(ADA, "/who?q=ada-2"),
    Get(BOB, "/who?q=bob-2&page=2"),
    Get(GUEST, "/guarded"),
    Get(ADA, "/guarded"),
    // Errors and old input are flashed, and shown once.
    Post(BOB, "/login", &[("name", "bo"), ("password", "")]),
    Get(ADA, "/page"),
    Get(GUEST, "/page"),
    Get(BOB, "/page"),
    Post(BOB, "/login", &[("name", "bob"), ("password", "ada's")]),
    Post(GUEST, "/login", &[("name", "x"), ("password", "y")]),
    Post(BOB, "/login", &[("name", "bob"), ("password", "bob's")]),
    Get(ADA, "/notes/1?page=1&q=a"),
    Get(BOB, "/notes/2?page=2&q=b"),
    Get(GUEST, "/notes/3?page=1&q=c"),
    Get(ADA, "/who?q=ada-3"),
    Get(BOB, "/who?q=bob-3"),
    // Ada's request changes all state that it can.
    Get(ADA, "/change"),
    Get(BOB, "/who?q=bob-4"),
    Get(BOB, "/page"),
    Get(GUEST, "/who?q=guest-4"),
    Get(GUEST, "/page"),
    Get(BOB, "/change"),
    Get(ADA, "/who?q=ada-5&page=2"),
    Get(ADA, "/notes/5?page=2"),
    Get(GUEST, "/terminated"),
    Get(GUEST, "/terminated"),
    Get(ADA, "/transaction"),
    Get(BOB, "/log"),
    Get(ADA, "/log"),
    // Requests that end in other ways.
    Get(ADA, "/dies"),
    Get(BOB, "/who?q=bob-6"),
    Get(ADA, "/throws"),
    Get(BOB, "/who?q=bob-7"),
    Get(ADA, "/no/such/page"),
    Get(GUEST, "/api/json?q=1"),
    Get(BOB, "/api/redirects"),
    Post(ADA, "/logout", &[]),
    Get(ADA, "/page"),
    Get(BOB, "/page"),
    Get(ADA, "/who?q=ada-8"),
    Get(BOB, "/who?q=bob-8"),
];

/// The warm-ups: pages, JSON, a redirect and a page that does not exist.
const WARMUP: &str =
    "/page,/api/json?q=warm,/who?q=warm,/guarded,/notes/9,/change,/dies,/transaction";

fn site(libraries: &str) -> Site {
    of_parts(overlay(laravel_without_libraries(), "laravel"), libraries)
}

/// The same application without anything of Surus.
pub fn unmodified(libraries: &str) -> Site {
    of_parts(without_libraries(), libraries)
}

/// The same, to which classes can be added.
pub fn without_libraries() -> Site {
    let library = ",\n        \"surus/surus\": \"@dev\"";
    overlay(laravel_without_libraries(), "laravel")
        .remove("surus.toml")
        .remove("worker.php")
        .replace("composer.json", library, "")
}

/// Adds the libraries, and a database of SQLite.
pub fn of_parts(site: Site, libraries: &str) -> Site {
    extension("pdo_sqlite", "php-sqlite3");
    let site = match libraries {
        "laravel8" => site.vendor(),
        newer => site.vendor_from(&framework(newer)),
    };
    let database = "
        mkdir('storage'); $db = new PDO('sqlite:storage/main.sqlite');
        $db->exec('CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, password TEXT)');
        $db->exec('CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT, owner TEXT)');
        foreach (['ada', 'bob'] as $name) {
            $hash = password_hash(\"$name's\", PASSWORD_BCRYPT, ['cost' => 4]);
            $db->exec(\"INSERT INTO users (name, password) VALUES ('$name', '$hash')\");
            foreach ([1, 2] as $n) {
                $db->exec(\"INSERT INTO notes (text, owner) VALUES ('$name-$n', '$name')\");
            }
        }";
    let made = Command::new(crate::common::php::cli())
        .args(["-r", database])
        .current_dir(site.www())
        .status()
        .unwrap();
    assert!(made.success());
    site
}

fn serve(site: &Site, engine: &str, workers: &str, warmup: &str) -> Surus {
    serve_with(site, engine, workers, &[("SURUS_ENGINE_WARMUP", warmup)])
}

fn serve_with(site: &Site, engine: &str, workers: &str, env: &[(&str, &str)]) -> Surus {
    let _ = std::fs::remove_file(site.www().join("storage/terminated"));
    let script = site.www().join("worker.php");
    let script = script.to_str().unwrap();
    let mut args = vec!["--engine", engine, "--workers", workers];
    if engine != "classic" {
        args.extend(["--script", script]);
    }
    site.serve_with(&args, env)
}

fn every_engine_answers_as_classic(libraries: &str) {
    let site = site(libraries);
    let classic = talk(&serve(&site, "classic", "2", ""), CONVERSATION, TOKEN);
    sound(
        &classic,
        &[
            "welcome ada",
            "welcome bob",
            r#"["ada-3","ada-3","ada","ada","ada"]"#,
        ],
    );
    for (engine, workers, warmup) in [
        ("worker", "1", ""),
        ("worker", "3", ""),
        ("worker", "1", WARMUP),
        ("rewind", "1", ""),
        ("rewind", "2", WARMUP),
        ("fork", "2", WARMUP),
        ("standby", "2", WARMUP),
    ] {
        let surus = serve(&site, engine, workers, warmup);
        let booted = talk(&surus, CONVERSATION, TOKEN);
        let what = format!("{libraries} on {engine}, {workers} workers, warm-ups: {warmup}");
        same(&classic, &booted, &what);
        let log = surus.log();
        assert!(
            !log.contains("surus: "),
            "{what}: unexpected finding: {log}"
        );
    }
}

#[test]
#[ignore = "make test-learned"]
fn laravel_visitors_get_answers_of_classic_from_a_learned_boot() {
    let site = unmodified("laravel10");
    let learn = [("SURUS_ENGINE_WARMUP", "learn"), PROXY];
    let serve = |engine| site.serve_with(&["--engine", engine, "--workers", "2"], &learn);
    let terminated = || {
        let _ = std::fs::remove_file(site.www().join("storage/terminated"));
    };
    let classic = talk(&serve("classic"), CONVERSATION, TOKEN);
    for engine in ["rewind", "fork"] {
        let surus = serve(engine);
        teach(&surus, &["/page", "/api/json", "/who", "/notes/1"]);
        terminated();
        same(&classic, &talk(&surus, CONVERSATION, TOKEN), engine);
    }
}

#[test]
fn unmodified_laravel_is_booted_by_one_word() {
    let site = unmodified("laravel10");
    let serve = |engine| site.serve_with(&["--engine", engine, "--workers", "2"], &[]);
    let terminated = || {
        let _ = std::fs::remove_file(site.www().join("storage/terminated"));
    };
    let classic = talk(&serve("classic"), CONVERSATION, TOKEN);
    for engine in BOOTING {
        terminated();
        let surus = serve(engine);
        is_booted(&surus, engine);
        same(&classic, &talk(&surus, CONVERSATION, TOKEN), engine);
    }
}

/// Waits until Surus's script has booted the application, and has warmed it up on engines that
/// isolate.
#[track_caller]
pub fn is_booted(surus: &Surus, engine: &str) {
    surus.wait_for_log(|log| log.contains("script=\"surus://boot/laravel.php\""));
    if engine != "worker" {
        surus.wait_for_log(|log| log.contains("models created ahead in"));
    }
}

/// A directory of the application may have the name of Laravel's.
#[test]
fn laravel_model_below_a_directory_named_illuminate_is_left_to_requests() {
    let model = "<?php

namespace App\\Illuminate;

final class Elephant extends \\Illuminate\\Database\\Eloquent\\Model
{
    protected static function booted(): void
    {
        error_log('an elephant is booted');
    }
}
";
    let register = "public function register(): void\n    {";
    let loads = format!("{register}\n        class_exists(\\App\\Illuminate\\Elephant::class);");
    let site = without_libraries()
        .write("app/Illuminate/Elephant.php", model)
        .replace("app/Services/Provider.php", register, &loads);
    let site = of_parts(site, "laravel10");
    let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
    Client::new(&surus.url).get("/page").ok();
    let log = surus.log();
    assert!(log.contains("models created ahead in"), "{log}");
    assert!(!log.contains("an elephant is booted"), "{log}");
    assert!(
        log.contains("Elephant (code of the application or of a package boots it"),
        "{log}"
    );
}

/// Laravel 8 takes a class and not an object where it finds accessors.
#[test]
fn laravel_8_model_without_code_of_its_own_is_created_ahead() {
    let model = "<?php

namespace App;

final class Elephant extends \\Illuminate\\Database\\Eloquent\\Model
{
}
";
    let register = "public function register(): void\n    {";
    let loads = format!("{register}\n        class_exists(\\App\\Elephant::class);");
    let site = without_libraries()
        .write("app/Elephant.php", model)
        .replace("app/Services/Provider.php", register, &loads);
    let site = of_parts(site, "laravel8");
    let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
    is_booted(&surus, "rewind");
    Client::new(&surus.url).get("/page").ok();
    surus.wait_for_log(|log| log.contains(" models created ahead"));
    let log = surus.log();
    for sign in [" and 0 models created ahead", "Elephant (", "TypeError"] {
        assert!(!log.contains(sign), "{log}");
    }
}

/// Laravel shows Symfony's page, which asks for all files of the stack trace.
#[test]
fn laravel_debug_page_of_a_boot_names_the_exception_and_no_other() {
    let site = unmodified("laravel10");
    let debug = [
        ("SURUS_ENV_APP_DEBUG", "1"),
        ("SURUS_ENGINE_WARMUP", "auto"),
    ];
    for engine in ["classic", "rewind", "worker"] {
        let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &debug);
        let visitor = Client::new(&surus.url);
        for (page, status) in [("/throws", 500), ("/no/such/page", 404)] {
            let answer = visitor.get_as(page, &[("accept", "text/html")]);
            assert_eq!(answer.status, status, "{engine}: {}", answer.text());
            assert!(!answer.text().contains("Unable to find"), "{engine} {page}");
            let names = page != "/throws" || answer.text().contains("thrown");
            assert!(names, "{engine}: {}", answer.text());
        }
        let log = surus.log();
        for sign in ["Unable to find", "cannot be booted"] {
            assert!(!log.contains(sign), "{engine}: {log}");
        }
    }
}

/// The front controller of Laravel 10.
pub const FRONT: &str = r#"<?php

use Illuminate\Contracts\Http\Kernel;
use Illuminate\Http\Request;

define('LARAVEL_START', microtime(true));

// If the application is in maintenance mode via the "down" command …
if (file_exists($maintenance = __DIR__.'/../storage/framework/maintenance.php')) {
    require $maintenance;
}

require __DIR__.'/../vendor/autoload.php';

$app = require_once __DIR__.'/../bootstrap/app.php';

$kernel = $app->make(Kernel::class);

$response = $kernel->handle(
    $request = Request::capture()
)->send();

$kernel->terminate($request, $response);
"#;

/// What the front controller does before it creates the request belongs to each request.
#[test]
fn laravel_front_controller_start_runs_for_each_request() {
    let start = "<?php Illuminate\\Support\\Facades\\Route::get('/start', fn () => \
        [LARAVEL_START - $_SERVER['REQUEST_TIME_FLOAT']]);";
    let site = unmodified("laravel10")
        .write("public/index.php", FRONT)
        .write("routes/api.php", start);
    let maintenance = site.www().join("storage/framework/maintenance.php");
    let down = "<?php http_response_code(503); echo 'down'; exit;";
    for engine in ["rewind", "worker"] {
        std::fs::create_dir_all(maintenance.parent().unwrap()).unwrap();
        // It boots in maintenance mode, too.
        std::fs::write(&maintenance, down).unwrap();
        let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &[]);
        surus.wait_for_log(|log| log.contains("script=\"surus://boot/laravel.php\""));
        let visitor = Client::new(&surus.url);
        visitor.get("/api/start").status(503).says("down");
        std::fs::remove_file(&maintenance).unwrap();
        for _ in 0..2 {
            let late = visitor.get("/api/start").ok().json()[0].as_f64().unwrap();
            assert_eq!(late, 0.0, "{engine}");
        }
        std::fs::write(&maintenance, down).unwrap();
        visitor.get("/api/start").status(503).says("down");
    }
}

#[test]
fn laravel_8_visitors_on_booted_engines_get_answers_of_classic() {
    every_engine_answers_as_classic("laravel8");
}

#[test]
fn laravel_10_visitors_on_booted_engines_get_answers_of_classic() {
    every_engine_answers_as_classic("laravel10");
}

/// A short form of the class that Laravel has since version 11.
const ONCE: &str = r#"<?php

namespace Illuminate\Support;

class Once
{
    protected static ?self $instance = null;

    protected function __construct(protected \WeakMap $values)
    {
    }

    public static function instance()
    {
        return static::$instance ??= new static(new \WeakMap());
    }

    public static function flush()
    {
        static::$instance = null;
    }

    public function value(?object $object, \Closure $make)
    {
        return $this->values[$object ?: $this] ??= $make();
    }
}
"#;

/// Values are kept by `Once`, whose object the boot has created.
#[test]
fn value_of_once_reaches_no_other_visitor() {
    let boot = "public function boot(): void\n    {";
    let asks = "\n        require_once __DIR__.'/once.php';\n        \
        \\Illuminate\\Support\\Once::instance()->value($this->app, static fn () => 'booted');";
    let route = "Route::get('/once', static fn () => [\\Illuminate\\Support\\Once::instance()\
        ->value(null, static fn () => request()->query('q'))]);\n";
    let site = site("laravel10")
        .write("app/Services/once.php", ONCE)
        .replace("app/Services/Provider.php", boot, &format!("{boot}{asks}"));
    let routes = std::fs::read_to_string(site.www().join("routes/api.php")).unwrap();
    let site = site.write("routes/api.php", &(routes + route));
    let warmup = "/api/once?q=warm";
    for (engine, warmup) in [
        ("worker", ""),
        ("worker", warmup),
        ("rewind", ""),
        ("rewind", warmup),
        ("fork", warmup),
        ("standby", warmup),
    ] {
        let surus = serve(&site, engine, "1", warmup);
        for q in ["ada", "bob"] {
            let seen = Client::new(&surus.url).get(&format!("/api/once?q={q}"));
            assert_eq!(seen.ok().json()[0], q, "{engine}, warm-up: {warmup}");
        }
    }
}

/// If Octane is installed its worker serves, but only on the engine that keeps its processes.
#[test]
fn laravel_with_octane_is_served_by_its_worker_on_worker() {
    let provider = r"        App\Services\Provider::class,";
    let octane = r"        Laravel\Octane\OctaneServiceProvider::class,";
    let site = site("laravel10")
        .copy(&fixture("octane.php"), "octane.php")
        .replace("config/app.php", provider, &format!("{octane}\n{provider}"))
        .replace(
            "worker.php",
            "autoload.php';",
            "autoload.php'; require __DIR__.'/octane.php';",
        );
    for (engine, served) in [("worker", true), ("rewind", false)] {
        let surus = serve(&site, engine, "1", "");
        let [ada, bob] = [Client::new(&surus.url), Client::new(&surus.url)];
        for (visitor, name) in [(&ada, "ada"), (&bob, "bob")] {
            let token = visitor.get("/page").ok().input("_token");
            let password = format!("{name}'s");
            visitor
                .post(
                    "/login",
                    &[("_token", &token), ("name", name), ("password", &password)],
                )
                .shows(&format!("welcome {name}"));
        }
        for n in 0..3 {
            for (visitor, name) in [(&ada, "ada"), (&bob, "bob")] {
                let q = format!("{name}-{n}");
                let who = visitor.get(&format!("/who?q={q}")).ok();
                assert_eq!(who.headers.contains_key("x-served-by"), served, "{engine}");
                let who = who.json();
                assert_eq!(
                    who["injected"],
                    serde_json::json!([q, q, name, name, name]),
                    "{engine}"
                );
                assert_eq!(who["config"][0], "Surus");
                visitor.get("/change").ok();
            }
        }
        let log = surus.log();
        assert!(!log.contains("surus: "), "{engine}: {log}");
        if served {
            ada.get("/page?fail=terminates");
            surus.wait_for_log(|log| log.contains("thrown behind the kernel"));
            bob.get("/page").shows("bob, bob");
        }
    }
}

//! Tests of work after the response: it runs before the next event.

use std::path::Path;
use std::time::Duration;

use surus::emulator::fault_injection::Faults;
use surus::emulator::http::HttpService;

use super::behind::Behind;
use crate::apps::client::Client;
use crate::apps::examples::{laravel, symfony};
use crate::apps::site::Site;

/// Late work waits for the file `gate`. Visits without `late`, such as a warm-up, do none.
const LATE: &str = "
function note(string $what): void {
    file_put_contents(__DIR__.'/notes', $what.' ', FILE_APPEND);
}
function wait(): void {
    for ($n = 0; $n < 2000 && !file_exists(__DIR__.'/gate'); $n++) {
        usleep(5000);
        clearstatcache();
    }
    note(file_exists(__DIR__.'/gate') ? 'terminated' : 'waited-in-vain');
}
";

fn visit(site: &Site, env: &[(&str, &str)]) {
    let [sessions, temporary] = site.stored();
    let value = |entry: &str| entry.split_once('=').unwrap().1.to_string();
    let (sessions, temporary) = (value(&sessions), value(&temporary));
    let stored = [
        ("SURUS_PHP_SESSION__SAVE_PATH", sessions.as_str()),
        ("SURUS_PHP_SYS_TEMP_DIR", temporary.as_str()),
    ];
    let www = site.www();
    let notes = || read(&www.join("notes"));
    let function = Behind::start(&www, &[&stored[..], env].concat());
    let url = format!("http://{}", function.service(HttpService::Url));
    let visitor = Client::new(&url);
    let first = visitor.get("/api/hello?late=1");
    assert_eq!(first.status, 200, "{}", function.log());
    assert_eq!(notes(), "answered ", "{}", function.log());
    std::thread::scope(|scope| {
        let second = scope.spawn(|| Client::new(&url).get("/api/hello?late=2").ok());
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(notes(), "answered ");
        std::fs::write(www.join("gate"), "").unwrap();
        second.join().unwrap();
    });
    let seen = notes();
    assert!(seen.starts_with("answered terminated answered "), "{seen}");
}

#[test]
fn frameworks_thaw_hook_runs_before_the_first_event() {
    let hook = r"Surus\Lambda\Hook::onThaw(function (int $seconds): void {
    file_put_contents(__DIR__.'/thawed', 'x', FILE_APPEND);
});
";
    let symfony = symfony().replace(
        "public/index.php",
        "return static",
        &format!("{hook}return static"),
    );
    let laravel = laravel().replace(
        "bootstrap/app.php",
        "return $app;",
        &format!("{hook}return $app;"),
    );
    let boots_symfony = [("SURUS_ENV_APP_RUNTIME", r"Surus\Symfony\Runtime")];
    let boots_laravel = [
        ("SURUS_ENGINE_NAME", "rewind"),
        ("SURUS_ENGINE_SCRIPT", "worker.php"),
    ];
    let sites = [
        (symfony, &boots_symfony[..], "public/thawed"),
        (laravel, &boots_laravel, "bootstrap/thawed"),
    ];
    for (site, env, file) in sites {
        site.stored();
        let cache = site.tmp().join("cache");
        let own = [("SURUS_ENV_APP_CACHE_DIR", cache.to_str().unwrap())];
        let function = Behind::start_as(&site.www(), &[env, &own].concat(), |function| {
            function.faults = Faults::new(vec!["freeze".parse().unwrap()]);
        });
        let visitor = Client::new(&format!("http://{}", function.service(HttpService::Url)));
        let thawed = || read(&site.www().join(file));
        // On a busy machine, the function may stand still for as long as in a freeze.
        let is_not_frozen = (0..20).any(|_| {
            let before = thawed();
            assert_eq!(visitor.get("/api/hello").status, 200, "{}", function.log());
            thawed() == before
        });
        assert!(is_not_frozen, "{file}");
        let before = thawed();
        std::thread::sleep(Duration::from_millis(3500));
        visitor.get("/api/hello").ok();
        assert_eq!(thawed(), before + "x", "{file}");
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn symfony_terminate_runs_between_response_and_next_event() {
    let listener = r"<?php
namespace App;
use Symfony\Component\HttpKernel\Event\ResponseEvent;
use Symfony\Component\HttpKernel\Event\TerminateEvent;
require_once __DIR__.'/../late.php';
final class Late {
    public function answered(ResponseEvent $event): void {
        $event->getRequest()->query->has('late') && \note('answered');
    }
    public function terminated(TerminateEvent $event): void {
        $event->getRequest()->query->has('late') && \wait();
    }
}
";
    let service = r"$response = ['event' => 'kernel.response', 'method' => 'answered'];
        $terminate = ['event' => 'kernel.terminate', 'method' => 'terminated'];
        $services->set(Late::class)
            ->tag('kernel.event_listener', $response)
            ->tag('kernel.event_listener', $terminate);
        $services->load('App\\Form\\'";
    for runtime in [
        None,
        Some(("SURUS_ENV_APP_RUNTIME", r"Surus\Symfony\Runtime")),
    ] {
        let site = symfony()
            .write("late.php", &format!("<?php{LATE}"))
            .write("src/Late.php", listener)
            .replace("src/Kernel.php", r"$services->load('App\\Form\\'", service)
            // The autoloader has a list of all classes.
            .vendor();
        let cache = site.tmp().join("cache");
        let mut env = vec![("SURUS_ENV_APP_CACHE_DIR", cache.to_str().unwrap())];
        env.extend(runtime);
        visit(&site, &env);
    }
}

#[test]
fn laravel_terminating_callback_runs_between_response_and_next_event() {
    let callbacks = "require_once __DIR__.'/../late.php';
$app->terminating(function () use ($app) {
    $app['request']->query->has('late') && wait();
});
$handled = Illuminate\\Foundation\\Http\\Events\\RequestHandled::class;
$app['events']->listen($handled, function ($event) {
    $event->request->query->has('late') && note('answered');
});
return $app;";
    let boots = [
        ("SURUS_ENGINE_NAME", "rewind"),
        ("SURUS_ENGINE_SCRIPT", "worker.php"),
    ];
    for env in [&[][..], &boots] {
        let site = laravel()
            .write("late.php", &format!("<?php{LATE}"))
            .replace("bootstrap/app.php", "return $app;", callbacks);
        visit(&site, env);
    }
}

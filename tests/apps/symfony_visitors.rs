//! Interleaves two users and an anonymous visitor in one Symfony application: none sees another's
//! data.

mod cached;
mod hardened;
mod kept;
mod left_behind;
mod proxies;
mod silent;
mod unbootable;

use super::client::{Client, PROXY};
use super::learned::teach;
use super::site::{BOOTING, Site, framework};
use super::visitors::Step::{Get, Post};
use super::visitors::{Step, overlay, same, sound, talk};
use crate::common::Surus;

const ADA: usize = 0;
const BOB: usize = 1;
const GUEST: usize = 2;

/// The form with a token, and the token's field.
pub const TOKEN: (&str, &str) = ("/page", "_token");

pub const CONVERSATION: &[Step] = &[
    Get(ADA, "/json?q=ada-0"),
    Get(ADA, "/who?q=ada-1"),
    Get(BOB, "/who?q=bob-1"),
    Get(GUEST, "/guarded"),
    Post(ADA, "/login", &[("name", "ada"), ("password", "ada's")]),
    Get(BOB, "/page"),
    Get(ADA, "/page"),
    Get(GUEST, "/who?q=guest-1"),
    Get(ADA, "/who?q=ada-2"),
    Get(BOB, "/who?q=bob-2"),
    Get(GUEST, "/guarded"),
    Get(ADA, "/guarded"),
    // A failed log-in is remembered for one client, and shown once.
    Post(BOB, "/login", &[("name", "bob"), ("password", "ada's")]),
    Get(ADA, "/page"),
    Get(GUEST, "/page"),
    Get(BOB, "/page"),
    Post(BOB, "/login", &[("name", "bob"), ("password", "bob's")]),
    Get(ADA, "/who?q=ada-3"),
    Get(BOB, "/who?q=bob-3"),
    Post(ADA, "/form", &[("name", "A")]),
    Get(BOB, "/form"),
    Post(BOB, "/form", &[("name", "Bobby")]),
    Post(ADA, "/form", &[("name", "")]),
    Get(ADA, "/flash?q=ada-4"),
    Get(GUEST, "/flash?q=guest-4"),
    Get(BOB, "/page"),
    // A locale for one request.
    Get(ADA, "/de/page"),
    Get(BOB, "/page"),
    Get(GUEST, "/who?q=guest-5"),
    // Requests that end in other ways.
    Get(ADA, "/dies?q=ada-6"),
    Get(BOB, "/who?q=bob-6"),
    Get(GUEST, "/who?q=guest-6"),
    Get(GUEST, "/who?q=guest-7"),
    Get(ADA, "/throws"),
    Get(BOB, "/who?q=bob-7"),
    Get(ADA, "/no/such/page"),
    Get(ADA, "/logout"),
    Get(ADA, "/page"),
    Get(BOB, "/page"),
    Get(ADA, "/who?q=ada-8"),
    Get(BOB, "/who?q=bob-8"),
];

/// State that Symfony does not reset stays on `worker`.
const CHANGES: &[Step] = &[
    Get(ADA, "/keeps?q=ada-1"),
    Get(BOB, "/keeps?q=bob-1"),
    Get(ADA, "/change"),
    Get(BOB, "/page"),
    Get(BOB, "/who?q=bob-2"),
    Get(GUEST, "/keeps?q=guest-2"),
];

/// The warm-ups: pages, JSON, a redirect, one that changes what it can, and one that ends by
/// exit().
const WARMUP: &str =
    "/page,/json?q=warm,/who?q=warm,/flash?q=warm,/keeps?q=warm,/dies?q=warm,/de/page,/change";

fn site(libraries: &str) -> Site {
    overlay(Site::new(), "symfony").vendor_from(&framework(libraries))
}

/// The same application without anything of Surus.
pub fn unmodified(libraries: &str) -> Site {
    without_libraries().vendor_from(&framework(libraries))
}

/// The same, to which classes can be added.
pub fn without_libraries() -> Site {
    let library = r#", "surus/surus": "@dev""#;
    overlay(Site::new(), "symfony")
        .remove("surus.toml")
        .replace("composer.json", library, "")
}

/// A front controller from before the Runtime component.
const WITHOUT_RUNTIME: &str = "<?php

use App\\Kernel;
use Symfony\\Component\\HttpFoundation\\Request;

require dirname(__DIR__).'/vendor/autoload.php';

$kernel = new Kernel($_SERVER['APP_ENV'], (bool) $_SERVER['APP_DEBUG']);
$request = Request::createFromGlobals();
$response = $kernel->handle($request);
$response->send();
$kernel->terminate($request, $response);
";

fn serve(site: &Site, engine: &str, workers: &str, warmup: &str) -> Surus {
    site.serve_with(
        &["--engine", engine, "--workers", workers],
        &[("SURUS_ENGINE_WARMUP", warmup)],
    )
}

fn every_engine_answers_as_classic(libraries: &str) {
    let site = site(libraries);
    let all = [CONVERSATION, CHANGES];
    let surus = serve(&site, "classic", "2", "");
    let classic = all.map(|steps| talk(&surus, steps, TOKEN));
    drop(surus);
    sound(
        &classic[0],
        &[
            "Surus ada ada en Hello",
            "signed by Bobby",
            r#"["ada-3","ada-3","ada-3"]"#,
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
        let what = format!("{libraries} on {engine}, {workers} workers, warm-ups: {warmup}");
        let asked = if engine == "worker" { 1 } else { 2 };
        for (steps, classic) in all.iter().zip(&classic).take(asked) {
            same(classic, &talk(&surus, steps, TOKEN), &what);
        }
        let log = surus.log();
        assert!(
            !log.contains("surus: "),
            "{what}: unexpected finding: {log}"
        );
    }
}

/// What a conversation consists of: steps of visitors, and then changes.
const ALL: [&[Step]; 2] = [CONVERSATION, CHANGES];

fn serve_production(site: &Site, engine: &str) -> Surus {
    serve_warm(site, engine, "auto")
}

fn serve_warm(site: &Site, engine: &str, warmup: &str) -> Surus {
    let environment = [
        ("SURUS_ENV_APP_ENV", "prod"),
        ("SURUS_ENV_APP_DEBUG", "0"),
        ("SURUS_ENGINE_WARMUP", warmup),
        PROXY,
    ];
    site.serve_with(&["--engine", engine, "--workers", "2"], &environment)
}

fn classic_answers(site: &Site) -> [Vec<String>; 2] {
    let surus = serve_production(site, "classic");
    ALL.map(|steps| talk(&surus, steps, TOKEN))
}

/// Compares engines that boot an unmodified application with `classic`.
fn one_word_boots(site: &Site, script: &str) {
    let classic = classic_answers(site);
    for engine in BOOTING {
        let surus = serve_production(site, engine);
        surus.wait_for_log(|log| log.contains(&format!("script=\"surus://boot/{script}\"")));
        let isolates = engine != "worker";
        if isolates {
            surus.wait_for_log(|log| log.contains("services created ahead in"));
        }
        let asked = if isolates { 2 } else { 1 };
        for (steps, classic) in ALL.iter().zip(&classic).take(asked) {
            same(classic, &talk(&surus, steps, TOKEN), engine);
        }
    }
}

#[test]
#[ignore = "make test-learned"]
fn symfony_visitors_get_answers_of_classic_from_a_learned_boot() {
    let site = unmodified("symfony7");
    let classic = classic_answers(&site);
    for engine in ["rewind", "fork"] {
        let surus = serve_warm(&site, engine, "learn");
        teach(&surus, &["/page", "/json", "/who", "/de/page", "/flash"]);
        for (steps, classic) in ALL.iter().zip(&classic) {
            same(classic, &talk(&surus, steps, TOKEN), engine);
        }
    }
}

/// The default warm-up creates services ahead, but none that a request would find different.
#[test]
fn symfony_service_whose_constructor_looks_at_the_visitor_is_left_to_requests() {
    let site = unmodified("symfony7");
    for warmup in ["auto", "/born,/page,/who"] {
        let surus = site.serve_with(
            &["--engine", "rewind", "--workers", "1"],
            &[
                ("SURUS_ENV_APP_ENV", "prod"),
                ("SURUS_ENV_APP_DEBUG", "0"),
                ("SURUS_ENGINE_WARMUP", warmup),
            ],
        );
        // Seconds later, a time from the boot would show.
        std::thread::sleep(std::time::Duration::from_secs(2));
        let mut cast = std::collections::BTreeSet::new();
        for agent in ["one", "two", "three"] {
            let visitor = Client::new(&surus.url);
            let born = visitor
                .get_as("/born", &[("user-agent", agent)])
                .ok()
                .json();
            assert_eq!(born[0], agent, "{warmup}");
            assert!(cast.insert(born[1].as_u64().unwrap()), "{warmup}: {cast:?}");
            assert!(born[2].as_i64().unwrap() >= 0, "{warmup}: {born}");
        }
        let log = surus.log();
        assert!(log.contains("services created ahead"), "{log}");
        let listener = r"App\Service\Listener is created by each request";
        assert!(log.replace(r"\\", r"\").contains(listener), "{log}");
        if warmup != "auto" {
            // The container makes them inside of the controller.
            let controller = r"App\Controller\Visitor is created by each request";
            assert!(log.replace(r"\\", r"\").contains(controller), "{log}");
        }
    }
}

const SUBSCRIBER: &str = "<?php

namespace App\\Service;

use Symfony\\Component\\EventDispatcher\\EventSubscriberInterface;

final class Subscriber implements EventSubscriberInterface
{
    public function __construct()
    {
        error_log('a subscriber is created');
    }

    public static function getSubscribedEvents(): array
    {
        return ['kernel.request' => 'note'];
    }

    public function note(): void
    {
        error_log('a subscriber is called');
    }
}
";

/// Also where the project has a boot script of its own. A container creates most listeners inside
/// of its dispatcher, and has no method for them.
#[test]
fn symfony_listeners_that_a_warm_up_has_called_are_created_ahead() {
    for libraries in ["symfony5", "symfony7"] {
        let site = overlay(Site::new(), "symfony")
            .write("src/Service/Subscriber.php", SUBSCRIBER)
            .vendor_from(&framework(libraries));
        let surus = serve(&site, "rewind", "1", "/page");
        let count = |log: &str, text: &str| log.matches(text).count();
        let called = count(&surus.log(), "a subscriber is called");
        for _ in 0..3 {
            Client::new(&surus.url).get("/page").ok();
        }
        surus.wait_for_log(|log| count(log, "a subscriber is called") == called + 3);
        let log = surus.log();
        let (_, served) = log.split_once("PHP is ready").unwrap();
        assert!(
            !served.contains("a subscriber is created"),
            "{libraries}: {log}"
        );
    }
}

/// A boot must not leave a connection open.
#[test]
fn symfony_service_that_connects_to_a_server_is_left_to_requests() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // A listener of every request needs it, so the warm-up does, too.
    let connect = format!(
        "public mixed $connection;\n    public function __construct()\n    {{\n        \
         $this->connection = stream_socket_client('tcp://{}');",
        server.local_addr().unwrap()
    );
    let agent = "src/Service/Agent.php";
    let site = unmodified("symfony7")
        .replace(agent, "public function __construct()\n    {", &connect)
        .replace(
            "src/Service/Listener.php",
            "public function __construct(",
            "public function __construct(public Agent $agent, ",
        );
    let env = [("SURUS_ENV_APP_ENV", "prod"), ("SURUS_ENV_APP_DEBUG", "0")];
    let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &env);
    surus.wait_for_log(|log| log.contains("PHP is ready engine=\"rewind\""));
    assert!(!surus.log().contains("cannot be booted"), "{}", surus.log());
    Client::new(&surus.url).get("/born").ok();
}

#[test]
fn unmodified_symfony_is_booted_by_one_word() {
    for libraries in ["symfony6", "symfony7"] {
        one_word_boots(&unmodified(libraries), "symfony-runtime.php");
    }
}

/// The lowest files of its stack trace are Surus's boot script and classes, which are no files.
#[test]
fn symfony_debug_page_of_a_boot_names_the_exception_and_no_other() {
    let site = unmodified("symfony7");
    let debug = [
        ("SURUS_ENV_APP_ENV", "dev"),
        ("SURUS_ENV_APP_DEBUG", "1"),
        // Its answer is a page for developers, too.
        ("SURUS_ENGINE_WARMUP", "auto"),
    ];
    for engine in ["classic", "rewind", "worker"] {
        let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &debug);
        let visitor = Client::new(&surus.url);
        for (page, status, says) in [("/throws", 500, "thrown"), ("/no", 404, "No route found")] {
            let answer = visitor.get_as(page, &[("accept", "text/html")]);
            assert_eq!(answer.status, status, "{engine}: {}", answer.text());
            assert!(answer.text().contains(says), "{engine}: {}", answer.text());
            assert!(!answer.text().contains("Unable to find"), "{engine} {page}");
        }
        let log = surus.log();
        for sign in ["Unable to find", "cannot warm up", "cannot be booted"] {
            assert!(!log.contains(sign), "{engine}: {log}");
        }
    }
}

#[test]
fn unmodified_symfony_without_runtime_is_booted_by_one_word() {
    let site = unmodified("symfony5").write("public/index.php", WITHOUT_RUNTIME);
    one_word_boots(&site, "symfony.php");
}

/// The runner of Symfony's own Runtime component, by which FrankenPHP serves since 7.4. It needs no
/// other setting than the script.
#[test]
fn symfony_7_runner_for_frankenphp_answers_as_classic() {
    let runner = "Runner/FrankenPhpWorkerRunner.php";
    let component = framework("symfony7").join("Symfony/Component/Runtime");
    // Where Composer installs it.
    let installed = format!("vendor/symfony/runtime/{runner}");
    let site = unmodified("symfony7").copy(&component.join(runner), &installed);
    let classic = classic_answers(&site);
    let front = site.www().join("public/index.php");
    let env = [("SURUS_ENV_APP_ENV", "prod"), ("SURUS_ENV_APP_DEBUG", "0")];
    let surus = site.serve_with(&["--script", front.to_str().unwrap()], &env);
    surus.wait_for_log(|log| log.contains("PHP is ready engine=\"rewind\""));
    let said = "Symfony's Runtime serves engine.script in a loop, so `rewind` boots it";
    assert!(surus.log().contains(said), "{}", surus.log());
    for (steps, classic) in ALL.iter().zip(&classic) {
        same(classic, &talk(&surus, steps, TOKEN), "FrankenPHP's runner");
    }
    assert!(!surus.log().contains("surus://boot"), "{}", surus.log());
}

/// Symfony's handler of exceptions would print a page, without the place.
#[test]
fn symfony_exception_that_ends_the_boot_is_named_with_its_place() {
    let boots = "use MicroKernelTrait;

    public function boot(): void
    {
        throw new \\RuntimeException('no key', 1, new \\LogicException('no vault'));
    }";
    let site = unmodified("symfony7").replace("src/Kernel.php", "use MicroKernelTrait;", boots);
    let surus = serve_production(&site, "rewind");
    surus.wait_for_log(|log| log.contains("cannot be booted"));
    let log = surus.log();
    for text in [
        "the application failed to boot: RuntimeException: no key in ",
        "src/Kernel.php:",
        "caused by LogicException: no vault",
    ] {
        assert!(log.contains(text), "{text}: {log}");
    }
    assert!(!log.contains("DOCTYPE"), "{log}");
}

#[test]
fn symfony_5_visitors_on_booted_engines_get_answers_of_classic() {
    every_engine_answers_as_classic("symfony5");
}

#[test]
fn symfony_7_visitors_on_booted_engines_get_answers_of_classic() {
    every_engine_answers_as_classic("symfony7");
}

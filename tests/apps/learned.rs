//! Tests that Surus learns by which pages to warm up the boot, and that no answer changes by it.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::client::{Client, PROXY};
use super::site::{Site, framework};
use super::visitors::overlay;
use crate::common::Surus;

const PRODUCTION: [(&str, &str); 2] = [("SURUS_ENV_APP_ENV", "prod"), ("SURUS_ENV_APP_DEBUG", "0")];

/// `/change` changes what `/shown` shows, inside of an object of the boot that belongs to an
/// extension, which nothing restores.
const STATICS: &str = "<?php

namespace App\\Controller;

use Symfony\\Component\\HttpFoundation\\Response;

final class Statics
{
    private static mixed $pipe = null;

    public function change(): Response
    {
        \\App\\Memory::$time->setDate(2001, 1, 1);

        return new Response('changed');
    }

    public function open(): Response
    {
        self::$pipe ??= popen('true', 'r');

        return new Response('opened');
    }

    public function shown(): Response
    {
        $compares = '192.0.2.1' === $_SERVER['REMOTE_ADDR'] && !isset($_SERVER['SURUS_WARMUP']);
        if ($compares && is_file(sys_get_temp_dir().'/slow')) {
            error_log('a slow page is compared');
            sleep(5);
        }

        return new Response('year: '.\\App\\Memory::$time->format('Y'));
    }
}
";

/// `/memory/store` keeps its visitor wherever `/memory/show` looks for one.
const MEMORY_ROUTES: &str = "foreach (['store', 'show', 'constant', 'hidden'] as $name) {
            $routes->add(\"memory_$name\", \"/memory/$name\")
                ->controller([\\App\\Memory::class, $name]);
        }
        ";

const BOOT: &str = "use MicroKernelTrait;

    public function __construct(string $environment, bool $debug)
    {
        parent::__construct($environment, $debug);
        Memory::boot();
    }";

fn site() -> Site {
    let routes = "$routes->add('login', '/login');";
    let statics = "foreach (['change', 'open', 'shown'] as $name) {
            $routes->add(\"statics_$name\", \"/statics/$name\")
                ->controller(['App\\Controller\\Statics', $name]);
        }
        ";
    overlay(Site::new(), "symfony")
        .remove("surus.toml")
        .replace("composer.json", r#", "surus/surus": "@dev""#, "")
        .write("src/Controller/Statics.php", STATICS)
        .write("src/Memory.php", include_str!("learned/Memory.php"))
        .write("src/Late.php", include_str!("learned/Late.php"))
        .replace("src/Kernel.php", "use MicroKernelTrait;", BOOT)
        .replace(
            "src/Kernel.php",
            routes,
            &format!("{statics}{MEMORY_ROUTES}{routes}"),
        )
        .vendor_from(&framework("symfony7"))
}

fn serve(site: &Site, state: &Path, engine: &str) -> Surus {
    // A unit of systemd may have several.
    let directories = format!("{}:/nowhere/else", state.display());
    let state = [
        ("STATE_DIRECTORY", &*directories),
        ("SURUS_ENGINE_WARMUP", "learn"),
        PROXY,
    ];
    site.serve_with(
        &["--engine", engine, "--workers", "2"],
        &[&PRODUCTION[..], &state].concat(),
    )
}

/// Asks for the pages in turn, as clients without cookies.
pub fn visit(surus: &Surus, pages: &[&str], times: usize) {
    for (number, page) in pages.iter().cycle().take(times).enumerate() {
        let client = Client::new(&surus.url);
        client.get_from(page, number / pages.len()).ok();
    }
}

pub fn status(site: &Site) -> String {
    let mut surus = Command::new(env!("CARGO_BIN_EXE_surus"));
    let output = surus.arg("status").arg(site.www()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Asks for the pages until the boot is warmed up by them.
pub fn teach(surus: &Surus, pages: &[&str]) {
    // Some may be redirects, which are not counted.
    visit(surus, pages, 280);
    surus.wait_for_log(|log| log.contains(LEARNED));
}

pub const LATER: &str =
    "learned pages are compared later: the application boots for another reason";

pub const LEARNED: &str = "the boot is warmed up by the pages that clients ask for most";

#[test]
fn learned_pages_that_cannot_be_stored_are_used_and_reported() {
    // No one can make a directory there.
    let state = Path::new("/proc/surus-tests");
    let site = site();
    let surus = serve(&site, state, "rewind");
    teach(&surus, &["/page", "/who"]);
    surus.wait_for_log(|log| {
        log.contains("the next start will not be warm") && log.contains("/proc/surus-tests")
    });
}

#[test]
fn pages_asked_for_often_warm_up_the_boot_and_the_next_start() {
    let site = site();
    let state = tempfile::tempdir().unwrap();
    for engine in ["rewind", "fork"] {
        let surus = serve(&site, state.path(), engine);
        teach(&surus, &["/page", "/who"]);
        let text = Client::new(&surus.url).get("/page").ok().text();
        assert!(text.contains("Hello"), "{text}");
        let status = status(&site);
        for page in ["/page\n", "/who\n"] {
            assert!(status.contains(page), "{status}");
        }
        let log = surus.log();
        assert!(!log.contains("left out"), "{log}");
        has_booted_for_its_pages_only(&surus);
        drop(surus);
        let surus = serve(&site, state.path(), engine);
        let text = Client::new(&surus.url).get("/page").ok().text();
        assert!(text.contains("Hello"), "{text}");
        surus.wait_for_log(|log| log.contains(LEARNED));
        let status = self::status(&site);
        for line in ["warmed up by http://", "/page\n", "/who\n"] {
            assert!(status.contains(line), "{status}");
        }
        has_booted_for_its_pages_only(&surus);
        let text = Client::new(&surus.url).get("/page").ok().text();
        assert!(text.contains("Hello"), "{text}");
    }
}

/// While it served, PHP has not restarted, and the application has not changed. Before that, an
/// application without a cache may change while it boots: it writes its cache.
#[track_caller]
pub fn has_booted_for_its_pages_only(surus: &Surus) {
    let log = surus.log();
    let (_, log) = log.split_once("listening on").expect(&log);
    for sign in ["boots again", "PHP restart"] {
        assert!(!log.contains(sign), "{sign}: {log}");
    }
}

/// A page that changed no answer when it was learned.
const HARMLESS: (&str, &str) = ("\\App\\Memory::$time->setDate(2001, 1, 1);", "// as before");

fn harmless() -> Site {
    site().replace("src/Controller/Statics.php", HARMLESS.0, HARMLESS.1)
}

fn harm(site: &Site) {
    let statics = site.www().join("src/Controller/Statics.php");
    let text = fs::read_to_string(&statics).unwrap();
    fs::write(statics, text.replace(HARMLESS.1, HARMLESS.0)).unwrap();
}

#[test]
#[ignore = "make test-learned"]
fn learned_page_that_changes_an_answer_since_is_left_out_by_the_next_start() {
    let site = harmless();
    let state = tempfile::tempdir().unwrap();
    let surus = serve(&site, state.path(), "rewind");
    teach(&surus, &["/statics/change", "/statics/shown", "/page"]);
    drop(surus);
    harm(&site);
    let shown = |surus: &Surus| Client::new(&surus.url).get("/statics/shown").ok().text();
    let surus = serve(&site, state.path(), "rewind");
    assert_eq!(shown(&surus), "year: 2000");
    // The boot says so before Surus has compared the other pages.
    surus.wait_for_log(|log| log.contains("clients often ask for is left out of the warm-up"));
    assert_eq!(shown(&surus), "year: 2000");
    let status = status(&site);
    assert!(status.contains("/statics/change: "), "{status}");
    for line in status
        .lines()
        .filter(|line| line.starts_with("warmed up by"))
    {
        assert!(!line.ends_with("/statics/change"), "{status}");
    }
}

#[test]
#[ignore = "make test-learned"]
fn learned_page_that_changes_an_answer_since_is_left_out_by_a_reload() {
    let site = harmless();
    let state = tempfile::tempdir().unwrap();
    let surus = serve(&site, state.path(), "rewind");
    teach(&surus, &["/statics/change", "/statics/shown", "/page"]);
    harm(&site);
    let mut reload = Command::new(env!("CARGO_BIN_EXE_surus"));
    let output = reload.arg("reload").arg(site.www()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let shown = || Client::new(&surus.url).get("/statics/shown").ok().text();
    assert_eq!(shown(), "year: 2000");
    surus.wait_for_log(|log| log.contains("is left out of the warm-up"));
    assert_eq!(shown(), "year: 2000");
}

#[test]
#[ignore = "make test-learned"]
fn learned_pages_warm_up_the_boot_again_after_a_reload_and_after_one_that_fails() {
    let site = site();
    let state = tempfile::tempdir().unwrap();
    let surus = serve(&site, state.path(), "rewind");
    teach(&surus, &["/page"]);
    let reload = || {
        let mut reload = Command::new(env!("CARGO_BIN_EXE_surus"));
        reload
            .arg("reload")
            .arg(site.www())
            .output()
            .unwrap()
            .status
            .success()
    };
    assert!(reload(), "{}", surus.log());
    surus.wait_for_log(|log| log.matches(LEARNED).count() == 2);
    assert!(status(&site).contains("warmed up by http://"));

    let kernel = site.www().join("src/Kernel.php");
    let text = fs::read_to_string(&kernel).unwrap();
    fs::write(&kernel, "<?php throw new Error('unfinished');").unwrap();
    assert!(!reload(), "{}", surus.log());
    let status = status(&site);
    assert!(status.contains("warmed up by http://"), "{status}");
    fs::write(&kernel, text).unwrap();
    assert!(reload(), "{}", surus.log());
    surus.wait_for_log(|log| log.matches(LEARNED).count() >= 3);
}

/// All answers of the comparison take two minutes.
#[test]
#[ignore = "make test-learned"]
fn reload_ends_a_comparison_of_answers_that_is_made_again_later() {
    let site = harmless();
    let state = tempfile::tempdir().unwrap();
    let slow = site.tmp().join("slow");
    fs::write(&slow, "").unwrap();
    let surus = serve(&site, state.path(), "rewind");
    visit(&surus, &["/statics/shown"], 210);
    surus.wait_for_log(|log| log.contains("a slow page is compared"));
    let mut reload = Command::new(env!("CARGO_BIN_EXE_surus"));
    let output = reload.arg("reload").arg(site.www()).output().unwrap();
    let log = surus.log();
    assert!(output.status.success(), "{output:?}\n{log}");
    assert!(log.contains(LATER), "{log}");
    for ended in [LEARNED, "left out"] {
        assert!(!log.contains(ended), "{log}");
    }
    fs::remove_file(slow).unwrap();
    surus.wait_for_log(|log| log.contains(LEARNED));
    let status = status(&site);
    assert!(status.contains("/statics/shown\n"), "{status}");
}

/// The boot with learned pages has the new version, and the serving one does not.
#[test]
#[ignore = "make test-learned"]
fn page_that_a_deploy_changes_before_the_comparison_is_not_blamed() {
    let site = harmless();
    let state = tempfile::tempdir().unwrap();
    let surus = serve(&site, state.path(), "rewind");
    visit(&surus, &["/statics/shown", "/page"], 199);
    let statics = site.www().join("src/Controller/Statics.php");
    let text = fs::read_to_string(&statics).unwrap();
    fs::write(&statics, text.replace("'year: '", "'in the year '")).unwrap();
    visit(&surus, &["/statics/shown", "/page"], 10);
    surus.wait_for_log(|log| log.contains(LEARNED));
    let log = surus.log();
    assert!(!log.contains("is left out"), "{log}");
    let text = Client::new(&surus.url).get("/statics/shown").ok().text();
    assert_eq!(text, "in the year 2000");
    let status = status(&site);
    for page in ["/statics/shown\n", "/page\n"] {
        assert!(status.contains(page), "{status}");
    }
}

#[test]
fn damaged_file_of_learned_pages_is_ignored_with_a_warning() {
    let site = site();
    let state = tempfile::tempdir().unwrap();
    let surus = serve(&site, state.path(), "rewind");
    teach(&surus, &["/page"]);
    drop(surus);
    for file in fs::read_dir(state.path().join("pages")).unwrap() {
        fs::write(file.unwrap().path(), "surus pages 1\nfile:///etc/passwd\n").unwrap();
    }
    let surus = serve(&site, state.path(), "rewind");
    surus.wait_for_log(|log| log.contains("the learned pages are ignored"));
    Client::new(&surus.url).get("/page").ok();
}

#[test]
#[ignore = "make test-learned"]
fn learned_page_that_changes_an_answer_is_left_out_and_named() {
    let site = site();
    let state = tempfile::tempdir().unwrap();
    let surus = serve(&site, state.path(), "rewind");
    teach(&surus, &["/statics/change", "/statics/shown", "/page"]);
    surus.wait_for_log(|log| log.contains("is left out of the warm-up"));
    let text = Client::new(&surus.url).get("/statics/shown").ok().text();
    assert_eq!(text, "year: 2000");
    let status = status(&site);
    let left_out = "/statics/change: ";
    assert!(status.contains(left_out), "{status}\n{}", surus.log());
    assert!(status.contains("/statics/shown\n"), "{status}");
}

/// A boot that leaves a pipe open would fail.
#[test]
#[ignore = "make test-learned"]
fn learned_page_that_leaves_a_pipe_open_is_left_out_and_forgotten() {
    let site = site();
    let state = tempfile::tempdir().unwrap();
    let surus = serve(&site, state.path(), "rewind");
    teach(&surus, &["/statics/open", "/page"]);
    // The pages before the last one are not restored alone.
    let left_out = "page=\"http://localhost/statics/open\" reason=\"the boot fails";
    surus.wait_for_log(|log| log.contains(left_out));
    let text = Client::new(&surus.url).get("/statics/open").ok().text();
    assert_eq!(text, "opened");
    let status = status(&site);
    assert!(status.contains("/statics/open: the boot fails"), "{status}");
    let mut used = status
        .lines()
        .filter(|line| line.starts_with("warmed up by"));
    assert!(!used.any(|line| line.contains("/statics/open")), "{status}");
    drop(surus);
    let surus = serve(&site, state.path(), "rewind");
    surus.wait_for_log(|log| log.contains(LEARNED));
    assert!(!surus.log().contains("/statics/open"), "{}", surus.log());
}

/// What clients say of themselves, and what applications keep for them, teaches nothing.
#[test]
fn pages_with_a_query_or_a_cookie_are_not_learned() {
    let site = site();
    let state = tempfile::tempdir().unwrap();
    let surus = serve(&site, state.path(), "rewind");
    for number in 0..210 {
        let client = Client::new(&surus.url);
        client.get_from(&format!("/who?q={number}"), number).ok();
        let address = format!("198.51.100.{}", number % 5);
        let cookie = ("cookie", "PHPSESSID=aaaaaaaaaaaaaaaaaaaaaaaaaa");
        let headers = [cookie, ("x-forwarded-for", &*address)];
        Client::new(&surus.url).get_as("/who", &headers).ok();
    }
    let (log, status) = (surus.log(), status(&site));
    for sign in [LEARNED, "is left out"] {
        assert!(!log.contains(sign), "{log}");
    }
    assert!(!status.contains("warmed up by"), "{status}{log}");
    has_booted_for_its_pages_only(&surus);
}

/// The page that stores is asked for as a warm-up, the one that shows is not.
#[test]
fn learned_page_leaves_nothing_in_statics_objects_and_globals() {
    let site = site();
    let state = tempfile::tempdir().unwrap();
    let shown = |surus: &Surus| Client::new(&surus.url).get("/memory/show").ok().text();
    for engine in ["rewind", "fork"] {
        let surus = serve(&site, state.path(), engine);
        let classic = shown(&surus);
        assert!(!classic.contains("visitor"), "{classic}");
        teach(&surus, &["/memory/store", "/page"]);
        assert!(status(&site).contains("/memory/store\n"), "{}", surus.log());
        for _ in 0..4 {
            assert_eq!(shown(&surus), classic, "{engine}");
            Client::new(&surus.url).get("/memory/store").ok();
        }
    }
}

/// What PHP cannot take back, or keeps in objects of its own, is named.
#[test]
#[ignore = "make test-learned"]
fn learned_page_that_leaves_unrestorable_state_is_left_out() {
    let site = site();
    let state = tempfile::tempdir().unwrap();
    let surus = serve(&site, state.path(), "rewind");
    teach(&surus, &["/memory/constant", "/memory/hidden", "/page"]);
    for left in ["the constant VISITOR", "class ArrayObject"] {
        surus.wait_for_log(|log| log.contains(left));
    }
    let status = status(&site);
    assert!(status.contains("warmed up by http://localhost/page\n"));
    for page in ["/memory/constant: ", "/memory/hidden: "] {
        assert!(status.contains(page), "{status}");
    }
}

/// Clients choose the host that they send, and not the one of warm-ups.
#[test]
fn learned_page_is_asked_for_at_a_host_of_the_configuration() {
    let site = site();
    let state = tempfile::tempdir().unwrap();
    let surus = serve(&site, state.path(), "fork");
    for number in 0..220 {
        let client = Client::new(&surus.url);
        let address = format!("198.51.100.{}", number % 5);
        let headers = [("host", "client.test"), ("x-forwarded-for", &*address)];
        client.get_as("/page", &headers).ok();
    }
    surus.wait_for_log(|log| log.contains(LEARNED));
    let status = status(&site);
    assert!(
        status.contains("warmed up by http://localhost/page\n"),
        "{status}"
    );
    assert!(
        !surus.log().contains("client.test/page\"]"),
        "{}",
        surus.log()
    );
}

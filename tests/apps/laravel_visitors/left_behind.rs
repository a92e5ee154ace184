//! Tests of state that requests and boots of Laravel leave behind: it is restored, or named.

use super::super::client::Client;
use super::{serve, serve_with, site};

#[test]
fn request_kept_by_laravel_function_is_named_once_on_worker() {
    let site = site("laravel8");
    let surus = serve(&site, "worker", "1", "");
    let visitor = Client::new(&surus.url);
    for n in 1..=4 {
        // It keeps the first client's request for all clients.
        let kept = visitor.get(&format!("/keeps?q={n}")).ok().json();
        assert_eq!(kept, "1");
    }
    surus.wait_for_log(|log| log.contains("surus: "));
    visitor.get("/page").ok();
    let log = surus.log();
    let named: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("surus: "))
        .collect();
    assert_eq!(named.len(), 1, "{log}");
    for part in [
        concat!(
            r"App\Http\Controllers\Pages::keeps() (static variable $kept) ",
            r"keeps the Illuminate\Http\Request",
        ),
        "use the engine",
    ] {
        let plain = named[0].replace(r"\\", r"\");
        assert!(plain.contains(part), "{plain}");
    }
}

/// Two static variables hold the same request, and another one an array with sessions.
#[test]
fn each_static_variable_of_laravel_that_keeps_a_visitors_object_is_named_on_worker() {
    let site = site("laravel10").replace(
        "app/Http/Controllers/Pages.php",
        "$kept ??= $request;",
        "$kept ??= $request;
        static $sessions = [];
        $sessions[] = ['of' => $request->session()];
        remembered($request);",
    );
    let routes = std::fs::read_to_string(site.www().join("routes/web.php")).unwrap();
    let function = "
function remembered(Request $request): Request
{
    static $first;

    return $first ??= $request;
}
";
    let site = site.write("routes/web.php", &(routes + function));
    let surus = serve(&site, "worker", "1", "");
    let visitor = Client::new(&surus.url);
    for n in 1..=3 {
        let kept = visitor.get(&format!("/keeps?q={n}")).ok().json();
        assert_eq!(kept, "1");
    }
    for named in [
        r"\Pages::keeps() (static variable $kept) keeps the Illuminate\Http\Request",
        r"\Pages::keeps() (static variable $sessions) keeps the Illuminate\Session\Store",
        r"remembered() (static variable $first) keeps the Illuminate\Http\Request",
    ] {
        surus.wait_for_log(|log| log.replace(r"\\", r"\").contains(named));
    }
    let log = surus.log();
    assert_eq!(log.matches("surus: ").count(), 3, "{log}");
}

/// PHP cannot make them uninitialized again, so another worker serves the next visitor.
#[test]
fn property_that_a_request_initializes_for_good_costs_its_worker_and_is_named() {
    let site = site("laravel10");
    let surus = serve(&site, "worker", "1", "");
    let visitor = Client::new(&surus.url);
    for (path, named) in [
        ("/leaves/static", r"App\Services\Tenants::$name"),
        ("/leaves/readonly", r"App\Services\Tenants->host"),
        ("/leaves/exits", r"App\Services\Leaves::$name"),
    ] {
        for n in 1..=3 {
            let seen = visitor.get(&format!("{path}?q={n}")).ok().text();
            assert_eq!(seen, n.to_string(), "{path}");
        }
        surus.wait_for_log(|log| log.replace(r"\\", r"\").contains(named));
    }
}

#[test]
fn property_that_a_warm_up_initializes_for_good_is_restored_or_named() {
    let site = site("laravel10");
    for engine in ["rewind", "fork", "standby"] {
        let surus = serve(&site, engine, "1", "/leaves/static?q=warm,/page");
        let visitor = Client::new(&surus.url);
        for n in 1..=2 {
            let seen = visitor.get(&format!("/leaves/static?q={n}")).ok().text();
            assert_eq!(seen, n.to_string(), "{engine}");
        }
        let log = surus.log();
        for trouble in ["is left out", "takes this one's place"] {
            assert!(!log.contains(trouble), "{engine}: {log}");
        }
    }
    // Its workers boot each for itself, so that all would be replaced for ever.
    let surus = serve(&site, "worker", "1", "/leaves/static?q=warm,/page");
    Client::new(&surus.url).get("/page").ok();
    surus.wait_for_log(|log| log.replace(r"\\", r"\").contains(r"Tenants::$name"));
    let log = surus.log();
    assert!(!log.contains("takes this one's place"), "{log}");
}

#[test]
fn routes_and_connections_that_a_request_changes_are_restored_on_worker() {
    let site = site("laravel10");
    for warmup in ["", "/leaves/routes?q=warm"] {
        let surus = serve(&site, "worker", "1", warmup);
        let visitor = Client::new(&surus.url);
        let expect = |path: &str, expected: &str| {
            assert_eq!(visitor.get(path).ok().text(), expected, "{path}");
        };
        expect("/leaves/built?q=1", "1");
        expect("/leaves/routes?q=2", "done");
        expect("/leaves/built?q=3", "3");
        expect("/leaves/rows", "4");
        expect("/leaves/transaction", "5");
        expect("/leaves/rows", "4");
        expect("/leaves/pdo", "0");
        expect("/leaves/rows", "4");
        expect("/leaves/reconnects", "0");
        expect("/leaves/rows", "4");
    }
}

/// A provider makes this service during the boot, and it contains the boot's request.
#[test]
fn service_with_request_of_the_boot_is_named_on_every_booted_engine() {
    let site = site("laravel8");
    for engine in ["worker", "rewind", "fork"] {
        let surus = serve_with(&site, engine, "1", &[("SURUS_ENV_DEEP", "1")]);
        Client::new(&surus.url).get("/page").ok();
        surus
            .wait_for_log(|log| log.contains("Inner->request keeps the empty request of the boot"));
    }
}

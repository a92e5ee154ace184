//! Tests that code of a Laravel application that reads the request in the boot is named.

use super::client::Client;
use super::laravel_skeleton;
use super::laravel_visitors::{is_booted, unmodified};
use super::site::Site;

const WARNING: &str = "the boot has no visitor, but code reads the request there: ";

const PROVIDER: &str = "app/Services/Provider.php";
const BOOT: &str = "public function boot(): void\n    {";

/// As packages that choose the language by the URL do it.
const ROUTES: &str = "<?php

use Illuminate\\Support\\Facades\\Route;

Route::group(['prefix' => request()->segment(1)], static function (): void {
    Route::get('/hello', static fn () => [request()->getHost()]);
});
";

/// The place of the code in a file, as the warning names it.
fn place(site: &Site, file: &str, code: &str) -> String {
    let text = std::fs::read_to_string(site.www().join(file)).unwrap();
    let line = text.lines().position(|line| line.contains(code)).unwrap();
    format!("{file}:{}", line + 1)
}

#[test]
fn laravel_provider_and_routes_that_read_the_request_in_the_boot_are_named_once() {
    for libraries in ["laravel8", "laravel10"] {
        let reads = "
        if (request()->secure()) {
            \\Illuminate\\Support\\Facades\\URL::forceScheme('https');
        }";
        let site = unmodified(libraries)
            .replace(PROVIDER, BOOT, &format!("{BOOT}{reads}"))
            .write("routes/api.php", ROUTES);
        let provider = place(&site, PROVIDER, "secure()");
        let routes = place(&site, "routes/api.php", "segment(1)");
        for engine in ["rewind", "worker"] {
            let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &[]);
            is_booted(&surus, engine);
            for _ in 0..2 {
                Client::new(&surus.url).get("/api/hello").ok();
            }
            let log = surus.log();
            let named = format!("{WARNING}{provider}, {routes}; ");
            assert_eq!(log.matches(&named).count(), 1, "{engine}: {log}");
            assert_eq!(log.matches(WARNING).count(), 1, "{engine}: {log}");
        }
    }
}

/// The header for the language, and what only a URL that is made of the request shows.
#[test]
fn laravel_headers_and_urls_that_the_boot_reads_are_named() {
    for code in [
        "app()->setLocale(request()->getPreferredLanguage(['en', 'de']));",
        "config(['app.home' => url('/')]);",
        "config(['app.tenant' => request('tenant')]);",
        "config(['app.theme' => request()->cookie('theme')]);",
        "config(['app.lang' => request()->get('lang')]);",
        "config(['app.query' => request()->getQueryString()]);",
        "config(['app.body' => request()->getContent()]);",
    ] {
        let site = laravel_skeleton::unmodified().replace(
            PROVIDER,
            BOOT,
            &format!("{BOOT}\n        {code}"),
        );
        let named = format!("{WARNING}{}; ", place(&site, PROVIDER, code));
        let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
        surus.wait_for_log(|log| log.contains(&named));
    }
}

/// The text of an object shows all that it leads to.
#[test]
fn laravel_clone_of_the_request_of_the_boot_does_not_keep_the_application() {
    let routes = "<?php

use Illuminate\\Support\\Facades\\Route;

app()->instance('kept', clone request());
Route::get('/kept', static fn () => preg_match_all(
    '/(Request|Application)(@anonymous\\S*)? Object/',
    print_r(app('kept'), true),
    $found
) ? implode(', ', array_unique($found[1])) : 'nothing');
";
    let site = unmodified("laravel10").write("routes/api.php", routes);
    let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
    is_booted(&surus, "rewind");
    let text = Client::new(&surus.url).get("/api/kept").ok().text();
    assert_eq!(text, "Request");
}

#[test]
fn laravel_that_reads_the_request_in_requests_gets_no_warning() {
    for site in [unmodified("laravel8"), laravel_skeleton::unmodified()] {
        let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
        is_booted(&surus, "rewind");
        let visitor = Client::new(&surus.url);
        visitor.get("/api/json?q=1").ok();
        visitor.get("/page").ok();
        let log = surus.log();
        assert!(!log.contains(WARNING), "{log}");
    }
}

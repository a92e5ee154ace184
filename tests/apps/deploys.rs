//! Tests that no answer of a framework's application comes from two releases while one is deployed
//! under load.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use super::client::Client;
use super::examples::{laravel, symfony};
use super::revalidation::{LOOKS, eventually};
use super::site::Site;
use crate::common::Surus;
use crate::common::releases::{Clients, MOMENT};

/// A page that names its release four times: in the configuration that the boot reads, in a route,
/// in a class and in a view. In each file, VERSION stands for the release.
const LARAVEL: [(&str, &str); 4] = [
    (
        "config/release.php",
        "<?php return ['version' => 'VERSION'];",
    ),
    (
        "routes/release.php",
        "<?php
use Illuminate\\Support\\Facades\\Route;
Route::get('/view', static fn () => view('release')->render());
Route::get('/release', static fn () => implode(' ', [
    config('release.version'), 'VERSION', App\\Release::NAME, trim(view('release')->render()),
]));",
    ),
    (
        "app/Release.php",
        "<?php namespace App; final class Release { public const NAME = 'VERSION'; }",
    ),
    ("resources/views/release.blade.php", "VERSION"),
];

/// The first parts of the page, which a boot that has run it as a warm-up keeps.
const OF_THE_BOOT: usize = 3;

fn laravel_release(version: &str) -> Site {
    let site = laravel().remove("worker.php");
    let routes = site.www().join("routes/web.php");
    let routes = std::fs::read_to_string(routes).unwrap() + "require __DIR__.'/release.php';\n";
    LARAVEL
        .iter()
        .fold(
            site.write("routes/web.php", &routes),
            |site, (file, text)| site.write(file, &text.replace("VERSION", version)),
        )
        // The class map must have the new class.
        .vendor()
}

fn symfony_release(version: &str) -> Site {
    let controller = "<?php

namespace App\\Controller;

use Symfony\\Component\\HttpFoundation\\Response;
use Twig\\Environment;

final class Release
{
    public function show(Environment $twig, string $release): Response
    {
        $parts = [$release, 'VERSION', trim($twig->render('release.twig'))];

        return new Response(implode(' ', $parts));
    }
}
";
    let routes = "$routes->add('home', '/')";
    let route = "$routes->add('release', '/release')
            ->controller([\\App\\Controller\\Release::class, 'show'])
            ->defaults(['release' => 'VERSION']);
        ";
    symfony()
        .remove("worker.php")
        .write(
            "src/Controller/Release.php",
            &controller.replace("VERSION", version),
        )
        .write("templates/release.twig", version)
        .replace(
            "src/Kernel.php",
            routes,
            &format!("{}{routes}", route.replace("VERSION", version)),
        )
        .vendor()
}

/// Asks for the page that names its release.
fn clients(surus: &Surus, parts: usize) -> Clients {
    let url = surus.url.clone();
    Clients::start(parts, move || {
        let answer = Client::new(&url).get("/release");
        (answer.status, answer.text())
    })
}

/// The page has `parts` parts. Of each engine, the first ones are compared, as many as named.
fn exchanged_link_mixes_no_releases(
    releases: &[Site; 3],
    parts: usize,
    engines: &[(&str, usize)],
    env: &[(&str, &str)],
) {
    let names = |version: usize| vec![version.to_string(); parts].join(" ");
    // PHP's user owns the files, and gets one place for sessions and uploads.
    let stored = releases.each_ref().map(Site::stored);
    let stored = stored[0].each_ref().map(|text| ["-d", text.as_str()]);
    for &(engine, compared) in engines {
        let place = tempfile::tempdir().unwrap();
        std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let current = place.path().join("current");
        let deploy = |version: usize| {
            let new = place.path().join("new");
            symlink(releases[version - 1].www(), &new).unwrap();
            std::fs::rename(new, &current).unwrap();
        };
        deploy(1);
        let args = ["--engine", engine, "--workers", "2", "-d", LOOKS];
        let args = [stored.as_flattened(), &args].concat();
        let surus = Surus::spawn(&current, &args, env).unwrap_or_else(|log| panic!("{log}"));
        surus.wait_for_log(|log| log.contains("script=\"surus://boot/"));
        eventually(&surus, "/release", |answer| answer.text() == names(1));
        let clients = clients(&surus, compared);
        for version in [2, 3, 1] {
            deploy(version);
            eventually(&surus, "/release", |answer| answer.text() == names(version));
        }
        let none: [String; 0] = [];
        assert_eq!(clients.stop(), none, "{engine}: {}", surus.log());
    }
}

#[test]
fn exchanged_link_to_laravel_under_load_mixes_no_releases() {
    let releases = ["1", "2", "3"].map(laravel_release);
    // If two requests compiled the view at once, Laravel would let one see an empty file.
    let env = [("SURUS_ENGINE_WARMUP", "/view")];
    // The processes of the others boot at the same time, and each compiles the view.
    let engines = [
        ("rewind", 4),
        ("fork", 4),
        ("standby", OF_THE_BOOT),
        ("worker", OF_THE_BOOT),
    ];
    exchanged_link_mixes_no_releases(&releases, 4, &engines, &env);
}

#[test]
fn exchanged_link_to_symfony_under_load_mixes_no_releases() {
    let releases = ["1", "2", "3"].map(symfony_release);
    let env = [("SURUS_ENV_APP_ENV", "prod"), ("SURUS_ENV_APP_DEBUG", "0")];
    let engines = [("rewind", 3), ("fork", 3)];
    exchanged_link_mixes_no_releases(&releases, 3, &engines, &env);
}

/// Replaces one file after the other, and returns how long that took.
fn replace(root: &Path, version: &str) -> Duration {
    let new = |file: &str| root.join(format!("{file}.new"));
    for (file, text) in LARAVEL {
        std::fs::write(new(file), text.replace("VERSION", version)).unwrap();
    }
    let began = Instant::now();
    for (file, _) in LARAVEL {
        std::fs::rename(new(file), root.join(file)).unwrap();
    }
    let took = began.elapsed();
    // Laravel compiles a view again that is newer than its compiled form, which a request may have
    // written since.
    let view = std::fs::File::options()
        .write(true)
        .open(root.join(LARAVEL[3].0));
    let view = view.unwrap();
    view.set_modified(SystemTime::now()).unwrap();
    took
}

#[test]
fn replaced_files_of_laravel_under_load_mix_no_releases_in_the_boot() {
    let site = laravel_release("1");
    for engine in ["rewind", "fork"] {
        replace(&site.www(), "1");
        let args = ["--engine", engine, "--workers", "2", "-d", LOOKS];
        let surus = site.serve_with(&args, &[("SURUS_ENGINE_WARMUP", "/release")]);
        eventually(&surus, "/release", |answer| answer.text() == "1 1 1 1");
        let clients = clients(&surus, OF_THE_BOOT);
        let mut slowest = Duration::ZERO;
        for version in ["2", "3", "4"] {
            slowest = slowest.max(replace(&site.www(), version));
            let all = [version; 4].join(" ");
            eventually(&surus, "/release", |answer| answer.text() == all);
        }
        let mixed = clients.stop();
        let is_delayed = slowest > MOMENT;
        assert!(
            mixed.is_empty() || is_delayed,
            "{engine}: {mixed:?}\n{}",
            surus.log()
        );
    }
}

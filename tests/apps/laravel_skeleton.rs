//! An application as Laravel 11 and newer create it: `bootstrap/app.php` configures it, and there
//! is no kernel of its own.

use std::os::unix::fs::symlink;

use super::client::Client;
use super::laravel_visitors::{self, CONVERSATION, TOKEN, is_booted};
use super::site::{BOOTING, Site};
use super::visitors::{same, sound, talk};

// The lab measures the same application.
const FRONT: &str = include_str!("../../lab/applications/laravel/public/index.php");
const BOOTSTRAP: &str = include_str!("../../lab/applications/laravel/bootstrap/app.php");

/// Laravel 13 without anything of Surus.
pub fn unmodified() -> Site {
    configured(laravel_visitors::unmodified("laravel13"))
}

/// Turns an application with a kernel into one that `bootstrap/app.php` configures.
pub fn configured(site: Site) -> Site {
    let site = site
        .write("public/index.php", FRONT)
        .write("bootstrap/app.php", BOOTSTRAP)
        .replace("config/app.php", "        App\\Routes::class,\n", "");
    [
        "framework/views",
        "framework/sessions",
        "framework/cache",
        "logs",
    ]
    .iter()
    .fold(site, |site, path| {
        site.directory(&format!("storage/{path}"))
    })
}

#[test]
fn unmodified_laravel_13_is_booted_by_one_word() {
    let site = unmodified();
    let serve = |engine| {
        let _ = std::fs::remove_file(site.www().join("storage/terminated"));
        site.serve_with(&["--engine", engine, "--workers", "2"], &[])
    };
    let classic = talk(&serve("classic"), CONVERSATION, TOKEN);
    sound(&classic, &["welcome ada", "welcome bob"]);
    for engine in BOOTING {
        let surus = serve(engine);
        is_booted(&surus, engine);
        same(&classic, &talk(&surus, CONVERSATION, TOKEN), engine);
    }
}

#[test]
fn warm_up_that_another_script_answers_is_left_out_and_named() {
    let tools = "<?php echo 'tools by ', getenv('SURUS_ENGINE');";
    let site = unmodified().write("public/tools/index.php", tools);
    let pages = r#"["/page", "/tools/", "/tools/index.php"]"#;
    let warmup = [("SURUS_ENGINE_WARMUP", pages)];
    let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &warmup);
    Client::new(&surus.url)
        .get("/tools/")
        .ok()
        .says("tools by classic");
    surus.wait_for_log(|log| log.contains("script=\"surus://boot/laravel.php\""));
    let log = surus.log();
    let is_named = |line: &str| {
        line.contains("left out of the warm-ups, because another script than the booted front")
            && line.contains("page=\"/tools/\"")
    };
    assert!(log.lines().any(is_named), "{log}");
    assert!(!log.contains("the warm-up /tools/ has status"), "{log}");
    let run = |command: &str| {
        let mut surus = std::process::Command::new(env!("CARGO_BIN_EXE_surus"));
        surus.arg(command).arg(site.www());
        let output = surus
            .envs(warmup)
            .env("SURUS_ENGINE_NAME", "rewind")
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let status = run("status");
    assert!(status.contains("warmed up by /page\n"), "{status}");
    for page in ["/tools/", "/tools/index.php"] {
        let line = format!("not warmed up by {page}: another script than the booted");
        assert!(status.contains(&line), "{status}");
    }
    let tools = site.www().join("public/tools");
    std::fs::remove_dir_all(&tools).unwrap();
    run("reload");
    let status = run("status");
    assert!(!status.contains("another script"), "{status}");
    std::fs::create_dir(&tools).unwrap();
    std::fs::write(tools.join("index.php"), "<?php").unwrap();
    run("reload");
    let status = run("status");
    assert!(status.contains("warmed up by /page\n"), "{status}");
    assert!(
        status.contains("not warmed up by /tools/: another"),
        "{status}"
    );
    let check = run("check");
    assert!(check.contains("/tools/index.php"), "{check}");
    assert!(!check.contains("no effect"), "{check}");
}

#[test]
fn php_that_visitors_of_laravel_have_uploaded_does_not_run() {
    let site = unmodified()
        .write("storage/app/public/up/evil.php", "<?php echo 'ran';")
        .write("storage/app/public/up/a.txt", "a text");
    // As `artisan storage:link` does.
    symlink("../storage/app/public", site.www().join("public/storage")).unwrap();
    for engine in ["classic", "rewind"] {
        let arguments = ["--engine", engine, "--workers", "1"];
        let surus = site.serve_with(&arguments, &[]);
        let client = Client::new(&surus.url);
        assert_eq!(client.get("/storage/up/evil.php").status, 403, "{engine}");
        client.get("/storage/up/a.txt").ok().says("a text");
        drop(surus);
        let surus = site.serve_with(&arguments, &[("SURUS_SITE_NO_PHP", "[]")]);
        let client = Client::new(&surus.url);
        client.get("/storage/up/evil.php").ok().says("ran");
    }
    let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_surus"));
    let output = check.arg("check").arg(site.www()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let expected = "no PHP           below /storage (site.no_php)";
    assert!(said.contains(expected), "{said}");
}

/// Boots create services of Laravel ahead, but run no code of the application for that.
#[test]
fn laravel_service_that_the_application_changes_is_left_to_requests() {
    let register = "public function register(): void\n    {";
    let extends = "
        $this->app->extend('cookie', static function ($jar, $app) {
            $app->instance('made for', $app['request']->query('q'));

            return $jar;
        });";
    let route = "Route::get('/made', static fn () => [app('cookie') ? app('made for') : null]);\n";
    let provider = "app/Services/Provider.php";
    let site = unmodified().replace(provider, register, &format!("{register}{extends}"));
    let routes = std::fs::read_to_string(site.www().join("routes/api.php")).unwrap();
    let site = site.write("routes/api.php", &(routes + route));
    for engine in ["rewind", "fork"] {
        let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &[]);
        for q in ["1", "2"] {
            let made = Client::new(&surus.url).get(&format!("/api/made?q={q}"));
            assert_eq!(made.ok().json()[0], q, "{engine}");
        }
        let log = surus.log();
        assert!(log.contains("models created ahead in"), "{log}");
        let left = "left to each request: service cookie (the application or a package changes it)";
        assert!(log.contains(left), "{log}");
        let mut status = std::process::Command::new(env!("CARGO_BIN_EXE_surus"));
        let status = status.arg("status").arg(site.www()).output().unwrap();
        let status = String::from_utf8(status.stdout).unwrap();
        for shown in ["models created ahead in", left] {
            assert!(status.contains(shown), "{status}");
        }
    }
}

#[test]
fn value_of_once_in_laravel_13_reaches_no_other_visitor() {
    let route = "final class Asked\n{\n    public static function q(): ?string\n    {\n        \
        return once(static fn () => request()->query('q'));\n    }\n}\n\
        Route::get('/once', static fn () => [Asked::q()]);\n";
    let boot = "public function boot(): void\n    {";
    // The boot creates the object that keeps the values.
    let asks = "\n        once(static fn () => 'booted');";
    let provider = "app/Services/Provider.php";
    let site = unmodified().replace(provider, boot, &format!("{boot}{asks}"));
    let routes = std::fs::read_to_string(site.www().join("routes/api.php")).unwrap();
    let site = site.write("routes/api.php", &(routes + route));
    for (engine, warmup) in [
        ("worker", ""),
        ("rewind", "/api/once?q=warm"),
        ("fork", "/api/once?q=warm"),
    ] {
        let warmup = [("SURUS_ENGINE_WARMUP", warmup)];
        let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &warmup);
        for q in ["ada", "bob"] {
            let seen = Client::new(&surus.url).get(&format!("/api/once?q={q}"));
            assert_eq!(seen.ok().json()[0], q, "{engine}");
        }
    }
}

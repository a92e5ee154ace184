//! Tests that changed applications boot again by themselves: routes, `.env`, maintenance mode,
//! compiled containers, plugins.

use std::fs;
use std::time::{Duration, Instant};

use super::blog::{database, install, run, site};
use super::client::{Answer, Client};
use super::examples::{laravel, symfony};
use crate::common::Surus;
use crate::common::ports::free_address;

pub const LOOKS: &str = "opcache.revalidate_freq=1";

/// Asks until the answer is as wanted.
pub fn eventually(surus: &Surus, url: &str, is_wanted: impl Fn(&Answer) -> bool) {
    let began = Instant::now();
    loop {
        let answer = Client::new(&surus.url).get(url);
        if is_wanted(&answer) {
            return;
        }
        if began.elapsed() > Duration::from_secs(120) {
            let (status, text) = (answer.status, answer.text());
            panic!("{url}: {status} {text}\n{}", surus.log());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn changed_laravel_routes_settings_and_maintenance_mode_are_seen() {
    let site = laravel()
        .remove("worker.php")
        .write(".env", "APP_NAME=one\n")
        .replace("config/app.php", "'Surus'", "env('APP_NAME')")
        .replace(
            "routes/web.php",
            "Route::redirect",
            "Route::get('/name', fn () => config('app.name'));\nRoute::redirect",
        )
        .replace(
            "app/Http/Kernel.php",
            "[ValidatePostSize::class]",
            "[\\Illuminate\\Foundation\\Http\\Middleware\\PreventRequestsDuringMaintenance::class]",
        );
    let surus = site.serve_with(&["--engine", "rewind", "-d", LOOKS], &[]);
    surus.wait_for_log(|log| log.contains("script=\"surus://boot/laravel.php\""));
    let www = site.www();
    eventually(&surus, "/name", |answer| answer.text() == "one");
    fs::write(www.join(".env"), "APP_NAME=second\n").unwrap();
    eventually(&surus, "/name", |answer| answer.text() == "second");
    let routes = fs::read_to_string(www.join("routes/web.php")).unwrap();
    let added = "\nRoute::get('/added', fn () => 'added');\n";
    fs::write(www.join("routes/web.php"), routes + added).unwrap();
    eventually(&surus, "/added", |answer| answer.text() == "added");
    let down = www.join("storage/framework/down");
    fs::write(&down, "{}").unwrap();
    eventually(&surus, "/added", |answer| answer.status == 503);
    fs::remove_file(down).unwrap();
    eventually(&surus, "/added", |answer| answer.status == 200);
}

#[test]
fn symfony_with_another_container_is_seen() {
    let site = symfony().remove("worker.php");
    let cache = site.tmp().join("cache");
    let env = [("SURUS_ENV_APP_CACHE_DIR", cache.to_str().unwrap())];
    let surus = site.serve_with(&["--engine", "rewind", "-d", LOOKS], &env);
    eventually(&surus, "/hello/x", |answer| answer.status == 200);
    let kernel = site.www().join("src/Kernel.php");
    let code = fs::read_to_string(&kernel).unwrap();
    fs::write(kernel, code.replace("/hello/{name}", "/hi/{name}")).unwrap();
    fs::remove_dir_all(&cache).unwrap();
    eventually(&surus, "/hi/x", |answer| answer.status == 200);
    eventually(&surus, "/hello/x", |answer| answer.status == 404);
}

/// A theme with code that the boot runs.
const THEME: [(&str, &str); 3] = [
    ("style.css", "/* Theme Name: Pyrenees */"),
    ("index.php", "<?php wp_head(); wp_footer();"),
    (
        "functions.php",
        "<?php add_action('wp_head', fn () => print '<meta name=\"theme\">');",
    ),
];

#[test]
fn switched_wordpress_theme_is_seen() {
    let database = database();
    let site = THEME
        .iter()
        .fold(site(&database, "", ""), |site, (file, text)| {
            site.write(&format!("wp-content/themes/pyrenees/{file}"), text)
        });
    let host = free_address();
    install(&site.www(), &host);
    for engine in ["rewind", "fork", "standby"] {
        let args = ["--engine", engine, "--listen", &host, "-d", LOOKS];
        let surus = site.serve_with(&args, &[]);
        surus.wait_for_log(|log| log.contains("script=\"surus://boot/wordpress.php\""));
        for (theme, shown, hidden) in [
            ("alps", "<h1>", "name=\"theme\""),
            ("pyrenees", "name=\"theme\"", "<h1>"),
            ("alps", "<h1>", "name=\"theme\""),
        ] {
            run(&site.www(), &format!("switch_theme('{theme}');"));
            eventually(&surus, "/", |answer| {
                let text = answer.text();
                text.contains(shown) && !text.contains(hidden)
            });
        }
        let log = surus.log();
        // Each process of `standby` boots for itself, and the next one may be in time.
        let is_named = log
            .lines()
            .any(|line| line.contains("changed=\"option ") && line.contains("stylesheet"));
        assert!(is_named || engine == "standby", "{engine}: {log}");
    }
}

const PLUGIN: &str = "<?php
/* Plugin Name: Elephants */
$elephants = get_option('elephants', '37');
add_action('wp_head', fn () => print \"<meta name='elephants' content='$elephants'>\");";

#[test]
fn activated_wordpress_plugin_and_its_option_are_seen() {
    let database = database();
    let site = site(&database, "", "").write("wp-content/plugins/elephants.php", PLUGIN);
    let host = free_address();
    install(&site.www(), &host);
    for engine in ["rewind", "fork", "standby"] {
        let args = ["--engine", engine, "--listen", &host, "-d", LOOKS];
        let surus = site.serve_with(&args, &[]);
        surus.wait_for_log(|log| log.contains("script=\"surus://boot/wordpress.php\""));
        let shows = |wanted: &str| {
            let is_wanted = |answer: &Answer| {
                let text = answer.text();
                text.contains("The Alps") && text.contains(wanted)
            };
            eventually(&surus, "/", is_wanted);
        };
        let lacks = || {
            let lacks = |answer: &Answer| !answer.text().contains("name='elephants'");
            eventually(&surus, "/", lacks);
        };
        lacks();
        run(
            &site.www(),
            "update_option('active_plugins', ['elephants.php']);",
        );
        shows("content='37'");
        run(&site.www(), "update_option('elephants', '38');");
        shows("content='38'");
        run(
            &site.www(),
            "update_option('active_plugins', []); delete_option('elephants');",
        );
        lacks();
        let log = surus.log();
        // Each process of `standby` boots for itself, and the next one may be in time.
        for option in ["active_plugins", "elephants"] {
            let named = log.contains(&format!("changed=\"option {option}\""));
            assert!(named || engine == "standby", "{engine}: {option}\n{log}");
        }
    }
}

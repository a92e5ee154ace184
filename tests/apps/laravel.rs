//! Tests `examples/laravel`: JSON, Blade, validation, a session.

use super::client::Client;
use super::database::Database;
use super::examples::{laravel, on_every_engine, speaks_json};
use super::site::{BOOTING, extension};
use crate::common::Surus;

#[test]
fn laravel_application_runs_on_every_engine() {
    let site = laravel();
    on_every_engine(&site, visit, &[]);
}

/// With the standard public/index.php and no other setting.
#[test]
fn laravel_runs_booted_with_one_environment_variable() {
    let site = laravel().remove("worker.php");
    let runtime = ("SURUS_ENV_APP_RUNTIME", r"Surus\Laravel\Runtime");
    let surus = site.serve(&[runtime]);
    surus.wait_for_log(|log| log.contains("PHP is ready engine=\"rewind\""));
    visit(&surus);
    drop(surus);
    for engine in BOOTING.into_iter().chain(["classic"]) {
        visit(&site.serve_with(&["--engine", engine], &[runtime]));
    }
}

fn visit(surus: &Surus) {
    let visitor = Client::new(&surus.url);
    speaks_json(&visitor);
    let page = visitor.get("/").shows("<h1>Hello, Hannibal!</h1>");
    assert_eq!(page.url, format!("{}/hello/Hannibal", surus.url));
    visitor.get("/hello/a%20%26%20b").shows("a &amp; b");

    visitor.get("/visits").shows("Your first visit");
    // More requests than workers, so that state kept by one would show.
    for number in 2..=6 {
        visitor
            .get("/visits")
            .shows(&format!("Visit number {number}<"));
    }
    visitor.post("/visits", &[("name", "Gisgo")]).status(419);
    let token = visitor.get("/visits").ok().input("_token");
    visitor
        .post("/visits", &[("_token", &token), ("name", "G")])
        .ok();
    visitor
        .post("/visits", &[("_token", &token), ("name", "Gisgo & Söhne")])
        .shows(", Gisgo &amp; Söhne</h1>");
    for _ in 0..5 {
        let stranger = Client::new(&surus.url);
        stranger
            .get("/visits")
            .shows("Your first visit</h1>")
            .lacks("Gisgo");
        assert_ne!(stranger.get("/visits").ok().input("_token"), token);
    }
}

/// `config/database.php` for a user that it creates.
pub fn mariadb(database: &Database) -> String {
    database.run("CREATE USER laravel@localhost IDENTIFIED BY 'alps-218'");
    format!(
        "<?php
return [
    'default' => 'mysql',
    'connections' => [
        'mysql' => [
            'driver' => 'mysql',
            'unix_socket' => '{}',
            'database' => 'information_schema',
            'username' => 'laravel',
            'password' => 'alps-218',
            'charset' => 'utf8mb4',
            'collation' => 'utf8mb4_unicode_ci',
            'prefix' => '',
        ],
    ],
];",
        database.socket().display()
    )
}

/// A connection that a warm-up leaves open would be shared by all workers.
#[test]
fn laravel_warm_up_may_use_a_database() {
    extension("pdo_mysql", "php-mysql");
    let database = Database::start();
    let connection = mariadb(&database);
    let routes = r"<?php
use Illuminate\Support\Facades\Route;
Route::get('/one', fn () => app('db')->select('SELECT CONNECTION_ID() AS id'));";
    let provider = "Illuminate\\Bus\\BusServiceProvider::class,";
    let site = laravel()
        .write("config/database.php", &connection)
        .write("routes/api.php", routes)
        .replace(
            "config/app.php",
            provider,
            &format!("{provider} Illuminate\\Database\\DatabaseServiceProvider::class,"),
        );
    let warmup = ("SURUS_ENGINE_WARMUP", "/api/one");
    let script = site.www().join("worker.php");
    for engine in BOOTING {
        let args = ["--engine", engine, "--script", script.to_str().unwrap()];
        let surus = site.serve_with(&args, &[warmup]);
        let visitor = Client::new(&surus.url);
        let id = || {
            visitor.get("/api/one").ok().json()[0]["id"]
                .as_u64()
                .unwrap()
        };
        let ids = std::collections::BTreeSet::from([id(), id(), id(), id(), id(), id()]);
        if engine != "worker" {
            assert_eq!(
                ids.len(),
                6,
                "{engine}: each request has its own connection"
            );
        }
    }
}

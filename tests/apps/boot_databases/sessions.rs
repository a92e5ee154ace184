//! Tests that requests have the session that a boot has configured behind its framework.

use super::{PRODUCTION, laravel, mariadb, symfony};
use crate::client::Client;
use crate::database::Database;
use crate::laravel_skeleton;
use crate::laravel_visitors::is_booted;
use crate::site::{Site, extension, framework};
use crate::symfony_visitors;

/// The answer to a query of a request.
const ROUTES: &str = r"<?php
use Illuminate\Support\Facades\Route;
Route::get('/asks', static fn () => app('db')->select(request('q')));";

const SETS_TIME_ZONE: &str = "getPdo()->exec(\"SET time_zone = '+05:00'\");";

#[test]
fn laravel_boot_is_rejected_if_a_new_connection_to_a_server_has_another_session() {
    extension("pdo_mysql", "php-mysql");
    let database = Database::start();
    let configuration = mariadb(&database);
    database.run("CREATE DATABASE surus; GRANT ALL ON surus.* TO laravel@localhost");
    let rejected = format!(
        "the boot leaves a connection to unix:{} open",
        database.socket().display()
    );
    for (boots, differs) in [
        (SETS_TIME_ZONE, "its Com_set_option is not that of"),
        (
            "getPdo()->exec('CREATE TEMPORARY TABLE surus.kept (n INT)');",
            "its Com_create_temporary_table is not that of",
        ),
        (
            "getPdo()->setAttribute(\\PDO::ATTR_STRINGIFY_FETCHES, true);",
            "its ATTR_STRINGIFY_FETCHES is not that of",
        ),
        (
            "getPdo()->beginTransaction();",
            "its transaction is not that of",
        ),
    ] {
        let site = laravel("laravel10", &format!("app('db')->{boots}"))
            .write("config/database.php", &configuration);
        let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
        surus.wait_for_log(|log| log.contains("cannot be booted"));
        let log = surus.log();
        assert!(log.contains(&rejected), "{boots}: {log}");
        let reason = format!("database connection mysql stays open: {differs}");
        surus.wait_for_log(|log| log.contains(&reason));
        assert!(!surus.log().contains("+05:00"), "{log}");
    }
}

/// Laravel 13 tells listeners also if a connection connects again, Laravel 10 does not.
#[test]
fn laravel_request_has_the_session_that_a_listener_configures() {
    extension("pdo_mysql", "php-mysql");
    let database = Database::start();
    let configuration = mariadb(&database);
    let boots = format!(
        "$this->app['events']->listen(
            \\Illuminate\\Database\\Events\\ConnectionEstablished::class,
            static fn ($event) => $event->connection->{}
        );
        app('db')->select('SELECT 1');",
        SETS_TIME_ZONE.trim_end_matches(';')
    );
    for (libraries, is_closed) in [("laravel10", false), ("laravel13", true)] {
        let site = laravel(libraries, &boots);
        let site = if is_closed {
            laravel_skeleton::configured(site)
        } else {
            site
        };
        let site = site
            .write("config/database.php", &configuration)
            .write("routes/api.php", ROUTES);
        let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
        if is_closed {
            is_booted(&surus, "rewind");
        } else {
            surus.wait_for_log(|log| log.contains("cannot be booted"));
        }
        let zone = Client::new(&surus.url).get("/api/asks?q=SELECT+@@time_zone+AS+zone");
        assert_eq!(zone.ok().json()[0]["zone"], "+05:00", "{libraries}");
        let log = surus.log();
        assert_eq!(log.contains("stays open"), !is_closed, "{log}");
    }
}

/// A connection to SQLite may stay open.
#[test]
fn laravel_request_has_the_session_of_sqlite_that_a_provider_configures() {
    for (configures, query, differs) in [
        (
            "exec('PRAGMA foreign_keys = ON')",
            "PRAGMA+foreign_keys",
            "foreign_keys",
        ),
        (
            "sqliteCreateFunction('surus_twice', static fn (int $n) => 2 * $n)",
            "SELECT+surus_twice(4)",
            "function_list",
        ),
        (
            "setAttribute(\\PDO::ATTR_STRINGIFY_FETCHES, true)",
            "SELECT+4",
            "ATTR_STRINGIFY_FETCHES",
        ),
    ] {
        let boots = format!("app('db')->select('SELECT 1'); app('db')->getPdo()->{configures};");
        let site = laravel("laravel10", &boots).write("routes/api.php", ROUTES);
        let answers = |engine| {
            let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &[]);
            if engine != "classic" {
                is_booted(&surus, engine);
                let reason = format!("stays open: its {differs} is not");
                surus.wait_for_log(|log| log.contains(&reason));
            }
            let ask = || Client::new(&surus.url).get(&format!("/api/asks?q={query}"));
            [ask(), ask()].map(|answer| answer.ok().json())
        };
        let classic = answers("classic");
        for engine in ["rewind", "fork"] {
            assert_eq!(answers(engine), classic, "{engine}: {configures}");
        }
    }
}

const SERVICES: &str = r"<?php
use Doctrine\DBAL\DriverManager;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;

return static function (ContainerConfigurator $container): void {
    $container->parameters()->set('doctrine.connections', ['default' => 'database']);
    $container->services()->set('database', Doctrine\DBAL\Connection::class)
        ->public()
        ->factory([DriverManager::class, 'getConnection'])
        ->args([['driver' => 'pdo_sqlite', 'path' => '%kernel.project_dir%/main.sqlite']]);
    $container->services()->alias(Doctrine\DBAL\Connection::class, 'database');
};
";

const ADDED_ROUTES: &str = r"<?php
use App\Controller\Asks;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

return static function (RoutingConfigurator $routes): void {
    $routes->add('asks', '/asks')->controller(Asks::class);
};
";

const CONTROLLER: &str = r"<?php

namespace App\Controller;

use Doctrine\DBAL\Connection;
use Symfony\Component\HttpFoundation\JsonResponse;

final class Asks
{
    public function __construct(private Connection $connection)
    {
    }

    public function __invoke(): JsonResponse
    {
        return new JsonResponse([$this->connection->fetchOne('PRAGMA foreign_keys')]);
    }
}
";

/// An application with Doctrine DBAL, whose bundle does this with the connection.
fn doctrine(libraries: &str, boots: &str) -> Site {
    extension("pdo_sqlite", "php-sqlite3");
    let current = "self::$current = $this->container;";
    let uses = format!("{current}\n        $this->container->get('database')->{boots};");
    symfony_visitors::without_libraries()
        .replace(
            "composer.json",
            "\"Symfony/Bundle/FrameworkBundle\"",
            "\"Doctrine/DBAL\", \"Symfony/Bundle/FrameworkBundle\"",
        )
        .write("config/services.php", SERVICES)
        .write("config/routes.php", ADDED_ROUTES)
        .write("src/Controller/Asks.php", CONTROLLER)
        .replace("src/Bundle.php", current, &uses)
        .vendor_from(&framework(libraries))
}

/// Also after the warm-ups, when the kernel boots again.
#[test]
fn symfony_request_has_the_session_of_sqlite_that_a_bundle_configures() {
    for libraries in ["symfony5", "symfony7"] {
        for (boots, foreign_keys) in [
            ("executeStatement('PRAGMA foreign_keys = ON')", 1),
            ("fetchOne('SELECT 1')", 0),
        ] {
            let site = doctrine(libraries, boots);
            for engine in ["classic", "rewind", "fork"] {
                let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &PRODUCTION);
                let is_copied = engine != "classic";
                if is_copied {
                    surus.wait_for_log(|log| log.contains("created ahead"));
                }
                for _ in 0..2 {
                    let answer = Client::new(&surus.url).get("/asks").ok().json();
                    assert_eq!(answer[0], foreign_keys, "{libraries} {engine}");
                }
                let log = surus.log();
                let stays = "connection default stays open: its foreign_keys is not that of";
                let is_kept = is_copied && foreign_keys == 1;
                assert_eq!(log.contains(stays), is_kept, "{libraries} {engine}: {log}");
                // Of a request that has closed it.
                let remedy = "leave open in the handler what the boot has opened";
                assert!(!log.contains(remedy), "{libraries} {engine}: {log}");
            }
        }
    }
}

#[test]
fn laravel_connection_to_sqlite_is_closed_after_reading_its_schema() {
    let asks = "app('db')->select('SELECT name FROM pragma_table_xinfo(\"users\")');
        app('db')->select('SELECT name FROM sqlite_temp_master');";
    let site = laravel("laravel10", asks);
    let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
    is_booted(&surus, "rewind");
    let log = surus.log();
    assert!(!log.contains("stays open"), "{log}");
}

/// Some drivers of Doctrine have no object of PHP, and some middlewares do not tell it.
#[test]
fn symfony_connection_that_cannot_be_compared_stays_open() {
    for (native, reason) in [
        (
            "throw new \\LogicException('there is none')",
            "there is none",
        ),
        (
            "return fopen('php://memory', 'r')",
            "must be of type object",
        ),
    ] {
        let connection = format!(
            "<?php

namespace App;

final class Database
{{
    public function ask(): void
    {{
    }}

    public function getDriver(): object
    {{
        return $this;
    }}

    public function isConnected(): bool
    {{
        return true;
    }}

    public function isAutoCommit(): bool
    {{
        return true;
    }}

    public function getTransactionNestingLevel(): int
    {{
        return 0;
    }}

    public function getNativeConnection(): mixed
    {{
        {native};
    }}

    public function close(): void
    {{
    }}
}}
"
        );
        let site = symfony(&connection);
        let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &PRODUCTION);
        surus.wait_for_log(|log| log.contains("services created ahead in"));
        Client::new(&surus.url).get("/json?q=asked").ok();
        let kept = "connection default stays open: it cannot be compared with a new one: ";
        surus.wait_for_log(|log| {
            let line = log.lines().find(|line| line.contains(kept));
            line.is_some_and(|line| line.contains(reason))
        });
        let log = surus.log();
        assert!(!log.contains("cannot be booted"), "{log}");
    }
}

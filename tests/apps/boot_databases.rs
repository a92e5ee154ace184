//! Tests that an application may query its database while it boots.

mod sessions;

use std::net::TcpListener;

use super::client::{Client, PROXY};
use super::database::Database;
use super::laravel::mariadb;
use super::laravel_skeleton;
use super::laravel_visitors::{self, is_booted};
use super::learned::teach;
use super::site::{Site, extension, framework};
use super::symfony_visitors;

const PROVIDER: &str = "app/Services/Provider.php";
const BOOT: &str = "public function boot(): void\n    {";

/// The connection of the boot, and that of the request.
const ROUTES: &str = r"<?php
use Illuminate\Support\Facades\Route;
Route::get('/one', static fn () => [
    app('view')->shared('booted'),
    app('db')->selectOne('SELECT CONNECTION_ID() AS id')->id,
]);";

fn laravel(libraries: &str, boots: &str) -> Site {
    laravel_visitors::unmodified(libraries).replace(PROVIDER, BOOT, &format!("{BOOT}\n{boots}\n"))
}

#[test]
fn laravel_provider_may_query_while_the_application_boots() {
    extension("pdo_mysql", "php-mysql");
    let database = Database::start();
    let configuration = mariadb(&database);
    let asks = "View::share('booted', app('db')->selectOne('SELECT CONNECTION_ID() AS id')->id);";
    for libraries in ["laravel8", "laravel10"] {
        let site = laravel(libraries, asks)
            .write("config/database.php", &configuration)
            .write("routes/api.php", ROUTES);
        for engine in ["rewind", "fork"] {
            let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &[]);
            is_booted(&surus, engine);
            let ask = || Client::new(&surus.url).get("/api/one").ok().json();
            let (first, second) = (ask(), ask());
            assert_eq!(first[0], second[0], "{libraries} {engine}: one boot");
            for [one, other] in [[&first[0], &first[1]], [&first[1], &second[1]]] {
                assert_ne!(one, other, "{libraries} {engine}: {first} {second}");
            }
            let log = surus.log();
            assert!(!log.contains("cannot be booted"), "{log}");
        }
    }
}

/// A session of a new connection would not be the same.
#[test]
fn laravel_connection_that_a_provider_may_have_configured_is_not_closed() {
    extension("pdo_mysql", "php-mysql");
    let database = Database::start();
    let configuration = mariadb(&database);
    let left = format!(
        "the boot leaves a connection to unix:{} open",
        database.socket().display()
    );
    for (asks, reason) in [
        (
            "statement(\"SET\\n@surus = 'secret'\")",
            "it may depend on SET @surus =",
        ),
        (
            "statement('/* for all */ SET @surus = 1')",
            "it may depend on /* for all */ SET @surus = 1",
        ),
        (
            "select('SELECT @surus := 1')",
            "it may depend on SELECT @surus := 1",
        ),
        (
            "statement('SELECT 1 INTO @surus')",
            "it may depend on SELECT 1 INTO @surus",
        ),
        (
            "select('SELECT GET_LOCK(?, 0)', ['surus'])",
            "it may depend on SELECT GET_LOCK(?, 0)",
        ),
        ("beginTransaction()", "it has an open transaction"),
    ] {
        let site = laravel("laravel10", &format!("app('db')->{asks};"))
            .write("config/database.php", &configuration);
        let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
        surus.wait_for_log(|log| log.contains("cannot be booted"));
        let log = surus.log();
        assert!(log.contains(&left), "{asks}: {log}");
        let reason = format!("database connection mysql stays open: {reason}");
        surus.wait_for_log(|log| log.contains(&reason));
        for unwanted in ["cannot warm up the application", "secret"] {
            assert!(!surus.log().contains(unwanted), "{asks}: {log}");
        }
    }
}

/// Functions of PostgreSQL and SQLite.
#[test]
fn laravel_connection_stays_open_after_functions_that_configure_it() {
    let defines = "$pdo = app('db')->getPdo();
        $pdo->sqliteCreateFunction('set_limit', static fn () => 1);
        $pdo->sqliteCreateFunction('load_extension', static fn () => 1);";
    for asks in ["SELECT set_limit(0.3)", "SELECT load_extension(1)"] {
        let site = laravel(
            "laravel10",
            &format!("{defines} app('db')->statement('{asks}');"),
        );
        let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
        let reason = format!("database connection main stays open: it may depend on {asks}");
        surus.wait_for_log(|log| log.contains(&reason));
    }
}

/// Words of other statements in names and literals, and an entry that Laravel changes.
#[test]
fn laravel_connection_is_closed_after_plain_queries() {
    extension("pdo_mysql", "php-mysql");
    let database = Database::start();
    let prefix = "'prefix' => '',";
    let entry = "'url' => 'mysql://localhost/information_schema', 'read' => [],
        'write' => [['sticky' => true], ['sticky' => false]],";
    let configuration = mariadb(&database).replace(prefix, &format!("{prefix} {entry}"));
    let asks = r#"foreach ([
        'SELECT 0 AS is_locked HAVING is_locked = 0',
        'SELECT COUNT(*) FROM information_schema.TABLES AS cache_locks',
        'SELECT 1 AS session HAVING session = 1',
        '(SELECT 1) UNION (SELECT 2)',
    ] as $query) {
        app('db')->select($query);
    }"#;
    let site = laravel("laravel10", asks).write("config/database.php", &configuration);
    let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
    is_booted(&surus, "rewind");
    let log = surus.log();
    assert!(!log.contains("stays open"), "{log}");
    assert!(!log.contains("cannot be booted"), "{log}");
}

/// Laravel would connect to the database of the configuration again.
#[test]
fn laravel_connection_that_the_configuration_does_not_describe_is_not_closed() {
    let asks = "copy(storage_path('main.sqlite'), $tenant = storage_path('tenant.sqlite'));
        $entry = array_merge(config('database.connections.main'), ['database' => $tenant]);
        app('db')->connectUsing('main', $entry, true)->select('SELECT 1');";
    let routes = r"<?php
use Illuminate\Support\Facades\Route;
Route::get('/file', static fn () => [
    basename(app('db')->selectOne('PRAGMA database_list')->file),
]);";
    let site = laravel("laravel10", asks).write("routes/api.php", routes);
    let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
    is_booted(&surus, "rewind");
    let file = Client::new(&surus.url).get("/api/file").ok().json();
    assert_eq!(file[0], "tenant.sqlite");
    surus.wait_for_log(|log| {
        log.contains("database connection main stays open: the configuration has another or none")
    });
}

/// The request writes first, and keeps the locks and variables of that connection.
#[test]
fn laravel_request_writes_to_one_connection_if_the_boot_has_read() {
    extension("pdo_mysql", "php-mysql");
    let database = Database::start();
    let prefix = "'prefix' => '',";
    let configuration =
        mariadb(&database).replace(prefix, &format!("{prefix} 'read' => [], 'write' => [],"));
    let routes = r"<?php
use Illuminate\Support\Facades\Route;
Route::get('/ids', static fn () => array_map(
    static fn (string $ask) => app('db')->$ask('SELECT CONNECTION_ID() AS id')[0]->id,
    ['selectFromWriteConnection', 'select', 'selectFromWriteConnection'],
));";
    for libraries in ["laravel8", "laravel10"] {
        let site = laravel(libraries, "app('db')->select('SELECT 1');")
            .write("config/database.php", &configuration)
            .write("routes/api.php", routes);
        let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
        is_booted(&surus, "rewind");
        let ids = Client::new(&surus.url).get("/api/ids").ok().json();
        assert_eq!(ids[0], ids[2], "{libraries}: {ids}");
        assert_ne!(ids[0], ids[1], "{libraries}: {ids}");
    }
}

/// Laravel does not see the statement.
#[test]
fn laravel_database_in_memory_keeps_what_the_boot_has_created() {
    let routes = r"<?php
use Illuminate\Support\Facades\Route;
Route::get('/kept', static fn () => [app('db')->table('kept')->count()]);";
    let creates = "app('db')->getPdo()->exec('CREATE TABLE kept (n)');";
    // Laravel 10 takes other names than `:memory:` for files.
    for (site, name) in [
        (laravel("laravel10", creates), ":memory:"),
        (
            laravel_skeleton::configured(laravel("laravel13", creates)),
            "file:surus?mode=memory&cache=shared",
        ),
    ] {
        let entry = format!("['driver' => 'sqlite', 'database' => '{name}', 'prefix' => '']");
        let configuration = format!(
            "<?php
return ['default' => 'memory', 'connections' => ['memory' => {entry}]];"
        );
        let site = site
            .write("config/database.php", &configuration)
            .write("routes/api.php", routes);
        let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
        is_booted(&surus, "rewind");
        let client = Client::new(&surus.url);
        for _ in 0..2 {
            assert_eq!(client.get("/api/kept").ok().json()[0], 0, "{name}");
        }
    }
}

/// PHP does not show what is in an open connection, so a boot that has one learns no page.
#[test]
#[ignore = "make test-learned"]
fn laravel_pages_are_learned_if_a_provider_queries_sqlite() {
    let asks = "View::share('booted', app('db')->table('users')->count());";
    let site = laravel("laravel10", asks);
    let learn = [("SURUS_ENGINE_WARMUP", "learn"), PROXY];
    let surus = site.serve_with(&["--engine", "rewind", "--workers", "2"], &learn);
    teach(&surus, &["/page", "/who", "/notes/1"]);
}

/// Surus knows Doctrine's connections by this parameter.
const SERVICES: &str = r"<?php
use App\Database;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;

return static function (ContainerConfigurator $container): void {
    $container->parameters()->set('doctrine.connections', ['default' => Database::class]);
    $container->services()->set(Database::class)->public();
};
";

/// An application that uses this connection while it boots.
fn symfony(connection: &str) -> Site {
    let boots = "self::$current = $this->container;";
    let asks = format!("{boots}\n        $this->container->get(Database::class)->ask();");
    symfony_visitors::without_libraries()
        .write("config/services.php", SERVICES)
        .write("src/Database.php", connection)
        .replace("src/Bundle.php", boots, &asks)
        .vendor_from(&framework("symfony7"))
}

const PRODUCTION: [(&str, &str); 2] = [("SURUS_ENV_APP_ENV", "prod"), ("SURUS_ENV_APP_DEBUG", "0")];

#[test]
fn symfony_bundle_may_query_while_the_application_boots() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let connection = format!(
        "<?php

namespace App;

final class Database
{{
    private mixed $connection = null;

    public function ask(): void
    {{
        $this->connection ??= stream_socket_client('tcp://{}');
    }}

    public function close(): void
    {{
        $this->connection = null;
    }}
}}
",
        server.local_addr().unwrap()
    );
    let site = symfony(&connection);
    for engine in ["rewind", "fork"] {
        let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &PRODUCTION);
        surus.wait_for_log(|log| log.contains("services created ahead in"));
        let answer = Client::new(&surus.url).get("/json?q=asked").ok().json();
        assert_eq!(answer[0], "asked", "{engine}");
        let log = surus.log();
        assert!(!log.contains("cannot be booted"), "{engine}: {log}");
    }
}

#[test]
fn symfony_database_in_memory_is_not_closed() {
    for parameters in ["'path' => ':memory:'", "'memory' => true"] {
        let connection = format!(
            "<?php

namespace App;

final class Database
{{
    public function ask(): void
    {{
    }}

    public function getParams(): array
    {{
        return [{parameters}];
    }}

    public function close(): void
    {{
        error_log('the database is closed');
    }}
}}
"
        );
        let args = ["--engine", "rewind", "--workers", "1"];
        let site = symfony(&connection);
        let surus = site.serve_with(&args, &PRODUCTION);
        surus.wait_for_log(|log| log.contains("services created ahead in"));
        Client::new(&surus.url).get("/json?q=asked").ok();
        let log = surus.log();
        assert!(!log.contains("the database is closed"), "{log}");
    }
}

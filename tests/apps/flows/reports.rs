//! Adds reports to the applications of both frameworks: Doctrine or Eloquent on SQLite or MariaDB,
//! templates with layouts, a serializer, and mail that is kept. The additions are in `reports/`.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::common::php::cli;
use crate::database::Database;
use crate::site::{Site, extension, fixture, framework};
use crate::{laravel_skeleton, laravel_visitors, symfony_visitors};

/// What visitors do with reports.
pub const SCRIPT: &str = include_str!("reports.toml");

/// On SQLite if there is no database.
pub fn symfony(libraries: &str, database: Option<&Database>) -> Site {
    extension("intl", "php-intl");
    let mut site = with(symfony_visitors::without_libraries(), "symfony");
    if libraries == "symfony7" {
        // Doctrine of sid needs PHP 8.4; that of Debian 13 runs with Symfony 7, too.
        let app = r#""App\\": "src/""#;
        site = site
            .copy(&framework("symfony6").join("Doctrine"), "doctrine")
            .replace(
                "composer.json",
                app,
                &format!(r#"{app}, "Doctrine\\": "doctrine/""#),
            );
    }
    on(site.vendor_from(&framework(libraries)), database, "mysql")
}

/// On SQLite.
pub fn laravel_10() -> Site {
    on(laravel_visitors::of_parts(laravel(), "laravel10"), None, "")
}

/// On MariaDB.
pub fn laravel_13(database: &Database) -> Site {
    let site = laravel_visitors::of_parts(laravel(), "laravel13");
    let driver = "mariadb";
    on(laravel_skeleton::configured(site), Some(database), driver)
}

fn laravel() -> Site {
    let provider = "App\\Services\\Provider::class,";
    let mail = "Illuminate\\Mail\\MailServiceProvider::class,";
    let site = with(laravel_visitors::without_libraries(), "laravel").replace(
        "config/app.php",
        provider,
        &format!("{mail} {provider}"),
    );
    let routes = std::fs::read_to_string(site.www().join("routes/web.php")).unwrap();
    site.write(
        "routes/web.php",
        &(routes + "require __DIR__.'/reports.php';\n"),
    )
}

fn with(site: Site, framework: &str) -> Site {
    site.copy(&fixture("flows/reports").join(framework), ".")
        .copy(&fixture("flows/sendmail"), "bin/sendmail")
}

/// Fills the database, and names it in `.env`. `driver` is the framework's name for MariaDB.
fn on(site: Site, database: Option<&Database>, driver: &str) -> Site {
    let (driver, name, socket) = match database {
        Some(database) => {
            extension("pdo_mysql", "php-mysql");
            database.run(
                "CREATE DATABASE reports CHARACTER SET utf8mb4;
                 CREATE USER reports@localhost IDENTIFIED BY 'alps-218';
                 GRANT ALL ON reports.* TO reports@localhost",
            );
            let socket = database.socket().display().to_string();
            (driver, "reports".to_string(), socket)
        }
        None => {
            extension("pdo_sqlite", "php-sqlite3");
            let file = site.tmp().join("reports.sqlite");
            ("sqlite", file.display().to_string(), String::new())
        }
    };
    let pdo = match database {
        Some(_) => format!("mysql:unix_socket={socket};dbname={name};charset=utf8mb4"),
        None => format!("sqlite:{name}"),
    };
    let key = if database.is_some() {
        "AUTO_INCREMENT"
    } else {
        ""
    };
    let filled = Command::new(cli())
        .args(["-r", FILL, &pdo, key])
        .status()
        .unwrap();
    assert!(filled.success());
    let sendmail = site.www().join("bin/sendmail");
    let variables = format!(
        "DB_DRIVER={driver}\nDB_DATABASE={name}\nDB_SOCKET={socket}\n\
         DB_USERNAME=reports\nDB_PASSWORD=alps-218\n\
         MAILER_DSN=\"sendmail://default?command={}%20-t\"\n",
        sendmail.display()
    );
    site.write(".env", &variables)
}

/// If a warm-up left a connection open, all workers would share it. If a request left one open, it
/// would be cut off.
#[test]
fn symfony_disconnects_doctrine_after_warm_ups_and_requests() {
    for libraries in ["symfony5", "symfony6", "symfony7"] {
        let database = Database::start();
        let site = symfony(libraries, Some(&database));
        let env = [
            ("SURUS_ENV_APP_ENV", "prod"),
            ("SURUS_ENV_APP_DEBUG", "0"),
            // The application of the first one is discarded after the second one.
            ("SURUS_ENGINE_WARMUP", "/archive,/de/archive"),
        ];
        let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &env);
        for _ in 0..2 {
            Client::new(&surus.url)
                .get("/archive")
                .shows("37 elephants");
        }
        let log = surus.log();
        assert!(log.contains("services created ahead in"), "{log}");
        for sign in ["leaves a connection", "cannot be booted", "left out"] {
            assert!(!log.contains(sign), "{libraries}: {log}");
        }
        assert_eq!(cut_off(&database), "0", "{libraries}");
    }
}

/// Counts the connections that were cut off, once none is open.
fn cut_off(database: &Database) -> String {
    let open = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'reports'";
    let began = Instant::now();
    while database.ask(open) != "0" {
        assert!(began.elapsed() < Duration::from_secs(60), "still open");
        std::thread::sleep(Duration::from_millis(50));
    }
    database.ask(
        "SELECT variable_value FROM information_schema.global_status
         WHERE variable_name = 'aborted_clients'",
    )
}

const FILL: &str = r#"
$db = new PDO($argv[1], 'reports', 'alps-218');
foreach (['users (name VARCHAR(40), password VARCHAR(80)',
          'notes (text VARCHAR(80), owner VARCHAR(40)',
          'reports (text VARCHAR(80), sender_id INTEGER REFERENCES users (id)'] as $table) {
    $db->exec("CREATE TABLE $table, id INTEGER PRIMARY KEY $argv[2])");
}
foreach (['ada', 'bob', 'hannibal'] as $name) {
    $hash = password_hash("$name's", PASSWORD_BCRYPT, ['cost' => 4]);
    $db->exec("INSERT INTO users (name, password) VALUES ('$name', '$hash')");
    foreach ($name === 'hannibal' ? [] : [1, 2] as $n) {
        $db->exec("INSERT INTO notes (text, owner) VALUES ('$name-$n', '$name')");
    }
}
foreach (['Schnee & Eis', '37 elephants'] as $text) {
    $db->exec("INSERT INTO reports (text, sender_id) VALUES ('$text', 3)");
}
"#;

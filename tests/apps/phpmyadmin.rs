//! Tests phpMyAdmin on MariaDB.

use super::browser::Browser;
use super::client::{Answer, Client, Upload};
use super::database::Database;
use super::site::{Site, extension, installed};

fn site(database: &Database) -> Site {
    let site = Site::new();
    let temporary = site.tmp();
    let config = format!(
        r#"<?php
$cfg['blowfish_secret'] = 'thirty-two bytes for a cookie...';
$cfg['TempDir'] = '{temporary}';
$cfg['SendErrorReports'] = 'never';
$cfg['Servers'][1] = [
    'auth_type' => 'cookie',
    'host' => 'localhost',
    'socket' => '{socket}',
    'AllowNoPassword' => false,
];
"#,
        temporary = temporary.display(),
        socket = database.socket().display(),
    );
    site.copy(&installed("/usr/share/phpmyadmin", "phpmyadmin"), "")
        .write("config.inc.php", &config)
        .replace(
            "libraries/vendor_config.php",
            "'/etc/phpmyadmin/config.inc.php'",
            "ROOT_PATH . 'config.inc.php'",
        )
        .replace(
            "libraries/vendor_config.php",
            "'/var/lib/phpmyadmin/tmp/'",
            &format!("'{}/'", temporary.display()),
        )
}

fn log_in(visitor: &Client, password: &str) -> Answer {
    let form = visitor.get("/").shows("Welcome to").ok();
    let token = form.input("token");
    let session = form.input("set_session");
    let fields = [
        ("set_session", &*session),
        ("pma_username", "hannibal"),
        ("pma_password", password),
        ("server", "1"),
        ("route", "/"),
        ("lang", "en"),
        ("token", &token),
    ];
    visitor.post("/index.php?route=/", &fields)
}

#[test]
fn phpmyadmin_administers_databases() {
    extension("mysqli", "php-mysql");
    extension("mbstring", "php-mbstring");
    let database = Database::start();
    database.run(
        "CREATE DATABASE alps; CREATE TABLE alps.passes (name VARCHAR(40) PRIMARY KEY, metres INT);
         INSERT INTO alps.passes VALUES ('Col de Clapier', 2491), ('Col de la Traversette', 2947);
         CREATE USER hannibal@localhost IDENTIFIED BY 'alps-218';
         GRANT ALL ON *.* TO hannibal@localhost",
    );
    let site = site(&database);
    let surus = site.serve(&[]);
    let visitor = Client::new(&surus.url);

    log_in(&visitor, "rome")
        .says("Access denied for user")
        .lacks("Server version");
    log_in(&visitor, "alps-218")
        .shows("Server version")
        .shows("hannibal@localhost")
        .shows("MariaDB");
    let databases = visitor
        .get("/index.php?route=/server/databases&server=1")
        .shows(">alps")
        .shows("information_schema");
    visitor
        .get("/index.php?route=/database/structure&db=alps")
        .shows("passes");
    visitor
        .get("/index.php?route=/sql&db=alps&table=passes")
        .shows("Col de Clapier")
        .shows("2947");

    let token = databases.input("token");
    let export = [
        ("token", &*token),
        ("db", "alps"),
        ("export_type", "database"),
        ("export_method", "quick"),
        ("quick_or_custom", "quick"),
        ("what", "sql"),
        ("structure_or_data_forced", "0"),
        ("table_select[]", "passes"),
        ("table_structure[]", "passes"),
        ("table_data[]", "passes"),
        ("sql_structure_or_data", "structure_and_data"),
        ("sql_create_table", "something"),
        ("sql_insert_syntax", "both"),
        ("sql_backquotes", "something"),
        ("output_format", "sendit"),
        ("asfile", "sendit"),
        ("charset", "utf-8"),
        ("compression", "none"),
        ("filename_template", "@DATABASE@"),
    ];
    let dump = visitor
        .post("/index.php?route=/export", &export)
        .shows("INSERT INTO `passes`")
        .shows("('Col de Clapier', 2491)");
    assert!(
        dump.header("content-disposition").contains("alps.sql"),
        "{:?}",
        dump.headers
    );

    let sql = Upload {
        field: "import_file",
        name: "more.sql",
        mime: "application/sql",
        bytes: "INSERT INTO passes VALUES ('Großer St. Bernhard', 2469);".as_bytes(),
    };
    let import = [
        ("token", &*token),
        ("import_type", "database"),
        ("db", "alps"),
        ("format", "sql"),
        ("charset_of_file", "utf-8"),
        ("skip_queries", "0"),
        ("fk_checks", "0"),
        ("sql_compatibility", "NONE"),
    ];
    visitor
        .upload("/index.php?route=/import", &import, &sql)
        .shows("Import has been successfully finished");
    visitor
        .get("/index.php?route=/sql&db=alps&table=passes")
        .shows("Großer St. Bernhard");

    let browser = Browser::open();
    browser.go(&surus.url);
    browser.fill("#input_username", "hannibal");
    browser.fill("#input_password", "alps-218");
    browser.click("#input_go");
    browser.sees("body", "User: hannibal@localhost");
    browser.click("#topmenu a[href*='server/databases']");
    browser.sees("#dbStatsForm", "alps");
    browser.screenshot("phpmyadmin");
    browser.click("#dbStatsForm a[href*='db=alps']");
    browser.sees("#tablesForm", "passes");
}

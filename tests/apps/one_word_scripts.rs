//! Tests which scripts of a document root run while a boot script of Surus serves the front
//! controller.

use std::process::Command;

use super::client::Client;
use super::one_word::slim;
use super::site::{BOOTING, Site};

const SAYS: &str = "<?php echo basename(__DIR__), '/', basename(__FILE__),
    $_SERVER['PATH_INFO'] ?? '', ' ', getenv('SURUS_ENGINE');";

/// Slim, which names the engine first, and two other scripts.
fn application() -> Site {
    slim()
        .replace("public/index.php", " echo ' end';", "")
        .replace(
            "vendor/autoload.php",
            "echo $_GET",
            "echo getenv('SURUS_ENGINE'), ' ', $_GET",
        )
        .write("public/other.php", SAYS)
        .write("public/sub/index.php", SAYS)
}

#[test]
fn other_scripts_run_on_classic_and_the_front_controller_on_the_engine_that_boots() {
    for engine in BOOTING {
        let site = application();
        let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &[]);
        surus.wait_for_log(|log| log.contains("script=\"surus://boot/slim.php\""));
        let client = Client::new(&surus.url);
        let said = |path: &str| client.get(path).ok().text();
        for path in ["/?q=a", "/none?q=a", "/index.php/x?q=a", "/sub/none?q=a"] {
            let said = said(path);
            assert!(said.starts_with(&format!("{engine} a ")), "{path}: {said}");
        }
        for (path, expected) in [
            ("/other.php", "public/other.php classic"),
            ("/other.php/a/b", "public/other.php/a/b classic"),
            ("/sub/", "sub/index.php classic"),
            ("/sub", "sub/index.php classic"),
            ("/sub/index.php/c", "sub/index.php/c classic"),
        ] {
            assert_eq!(said(path), expected, "{engine} {path}");
        }
        // The pool is there already.
        let site = site.write("public/later.php", SAYS);
        assert_eq!(said("/later.php"), "public/later.php classic", "{engine}");
        drop(site);
    }
}

#[test]
fn script_to_which_a_rewrite_rule_leads_runs_on_classic() {
    let rules = "RewriteEngine on\nRewriteRule ^nice$ other.php [L]\n";
    let site = application().write("public/.htaccess", rules);
    let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
    let client = Client::new(&surus.url);
    let said = |path: &str| client.get(path).ok().text();
    assert_eq!(said("/nice"), "public/other.php classic");
    assert!(said("/?q=a").starts_with("rewind a "));
}

#[test]
fn rule_of_the_user_decides_about_other_scripts() {
    let rule = "[[route]]\nprefix = '/sub/'\nengine = 'rewind'\n";
    let settings = format!("engine.name = 'rewind'\nengine.workers = 1\n{rule}");
    let site = application().write("surus.toml", &settings);
    let surus = site.serve_with(&[], &[]);
    let client = Client::new(&surus.url);
    let said = |path: &str| client.get(path).ok().text();
    assert!(said("/sub/?q=a").starts_with("rewind a "));
    assert_eq!(said("/other.php"), "public/other.php classic");
}

#[test]
fn check_names_other_scripts_and_what_runs_them() {
    let site = application();
    let mut check = Command::new(env!("CARGO_BIN_EXE_surus"));
    check.arg("check").arg(site.www());
    let output = check.args(["--engine", "rewind"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let named = "other scripts    /other.php, /sub/index.php: `classic`";
    assert!(said.contains(named), "{said}");
}

//! Tests which scripts of a document root run while a boot script of Surus serves the front
//! controller.

use std::process::Command;

use super::client::Client;
use super::one_word::{slim, warnings};
use super::site::{BOOTING, Site};
use crate::common::Surus;

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
fn script_that_appears_after_the_start_is_named_at_the_reload() {
    let site = slim();
    let serving = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
    serving.wait_for_log(|log| log.contains("script=\"surus://boot/slim.php\""));
    let reload = || {
        let (said, has_reloaded) = surus("reload", &site, &[]);
        assert!(has_reloaded, "{said}");
    };
    std::fs::write(site.www().join("public/new.php"), SAYS).unwrap();
    reload();
    serving.wait_for_log(|log| {
        let mut lines = log.lines();
        lines.any(|line| line.contains("were added since") && line.contains("path=/new.php"))
    });
}

#[test]
fn check_names_other_scripts_and_what_runs_them() {
    let said = check(&application(), &["--engine", "rewind"]);
    let named = "other scripts    /other.php, /sub/index.php: `classic`";
    assert!(said.contains(named), "{said}");
}

fn check(site: &Site, arguments: &[&str]) -> String {
    surus("check", site, arguments).0
}

/// The output of a command, and whether it has succeeded.
fn surus(command: &str, site: &Site, arguments: &[&str]) -> (String, bool) {
    let mut surus = Command::new(env!("CARGO_BIN_EXE_surus"));
    surus.arg(command).arg(site.www()).args(arguments);
    let output = surus.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (String::from_utf8(said).unwrap(), output.status.success())
}

const WAF: &str = "<?php if (isset($_GET['attack'])) { http_response_code(403); exit; }";
const PREPENDS: &str = "auto_prepend_file = waf.php\n";

#[test]
fn user_ini_of_other_scripts_applies_on_classic_and_stops_no_boot() {
    let site = application().write("public/sub/waf.php", WAF);
    let arguments = ["--engine", "rewind", "--workers", "1"];
    let is_served = |serving: &Surus| {
        let client = Client::new(&serving.url);
        let front = client.get("/?q=a").ok().text();
        assert!(front.starts_with("rewind a "), "{front}");
        assert_eq!(client.get("/sub/?attack=1").status, 403);
        let other = client.get("/sub/").ok().text();
        assert_eq!(other, "sub/index.php classic");
    };
    let serving = site.serve_with(&arguments, &[]);
    assert_eq!(Client::new(&serving.url).get("/sub/?attack=1").status, 200);
    let site = site.write("public/sub/.user.ini", PREPENDS);
    let (said, has_reloaded) = surus("reload", &site, &[]);
    assert!(has_reloaded, "{said}");
    is_served(&serving);
    drop(serving);
    let serving = site.serve_with(&arguments, &[]);
    is_served(&serving);
    let log = serving.log();
    assert!(warnings(&log).is_empty(), "{log}");
    let said = check(&site, &arguments[..2]);
    let is_named = ["is not read", "would not run"].map(|text| said.contains(text));
    assert_eq!(is_named, [false, false], "{said}");
}

#[test]
fn user_ini_of_scripts_that_a_rule_sends_to_the_booted_engine_stops_the_boot() {
    let rule = "[[route]]\nprefix = '/sub/'\nengine = 'rewind'\n";
    let mut site = application()
        .write("public/sub/waf.php", WAF)
        .write("public/sub/.user.ini", PREPENDS);
    let why = "sub/.user.ini sets auto_prepend_file (waf.php), which would not run";
    for conditions in ["host = 'b.test'", "prefix = '/sub/admin'"] {
        let api = format!(
            "engine.name = 'rewind'\npool.api.engine = 'rewind'\n[[route]]\n{conditions}\n\
             engine = 'api'\n"
        );
        site = site.write("surus.toml", &api);
        let said = check(&site, &[]);
        assert!(said.contains(why), "{conditions}: {said}");
    }
    let site = site.write("surus.toml", &format!("engine.name = 'rewind'\n{rule}"));
    let said = check(&site, &[]);
    assert!(said.contains(why), "{said}");
    let serving = site.serve_with(&["--workers", "1"], &[]);
    serving.wait_for_log(|log| warnings(log).iter().any(|line| line.contains(why)));
    assert_eq!(Client::new(&serving.url).get("/sub/?attack=1").status, 403);
}

#[test]
fn section_of_php_ini_for_other_scripts_applies_on_classic_and_stops_no_boot() {
    let site = application().write("public/sub/waf.php", WAF);
    let sub = site.www().join("public/sub");
    let sub = sub.display();
    let section = format!("[PATH={sub}]\nauto_prepend_file = {sub}/waf.php\n");
    // Root reads no php.ini that PHP's user may change.
    let of_root = Site::new().write("php.ini", &section);
    let file = of_root.www().join("php.ini").display().to_string();
    let ini = [("SURUS_ENGINE_INI_FILE", file.as_str())];
    let serving = site.serve_with(&["--engine", "rewind", "--workers", "1"], &ini);
    let client = Client::new(&serving.url);
    let front = client.get("/?q=a").ok().text();
    assert!(front.starts_with("rewind a "), "{front}");
    assert_eq!(client.get("/sub/?attack=1").status, 403);
    let rule = "[[route]]\nprefix = '/sub/'\nengine = 'rewind'\n";
    let site = site.write("surus.toml", &format!("engine.name = 'rewind'\n{rule}"));
    drop(serving);
    let serving = site.serve_with(&["--workers", "1"], &ini);
    serving.wait_for_log(|log| !warnings(log).is_empty() && log.contains("[PATH="));
    assert_eq!(Client::new(&serving.url).get("/sub/?attack=1").status, 403);
}

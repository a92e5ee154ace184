//! Tests `examples/symfony`: kernel, routes, Twig, a form, a session.

use super::browser::Browser;
use super::client::Client;
use super::examples::{on_every_engine, symfony};
use super::site::{BOOTING, Site};
use crate::common::Surus;

pub fn serve(site: &Site, args: &[&str], env: &[(&str, &str)]) -> Surus {
    let cache = site.tmp().join("cache");
    let cache = ("SURUS_ENV_APP_CACHE_DIR", cache.to_str().unwrap());
    site.serve_with(args, &[&[cache], env].concat())
}

#[test]
fn symfony_application_runs_on_every_engine() {
    let site = symfony();
    let surus = serve(&site, &[], &[]);
    visit(&surus);
    assert!(
        site.tmp().join("cache/prod").is_dir(),
        "the container was not compiled into APP_CACHE_DIR"
    );
    look(&surus);
}

/// With the standard public/index.php and no other setting.
#[test]
fn symfony_runs_booted_with_one_environment_variable() {
    let site = symfony();
    let runtime = ("SURUS_ENV_APP_RUNTIME", r"Surus\Symfony\Runtime");
    assert_eq!(engine(&serve(&site, &[], &[runtime])), "rewind");
    for engine in BOOTING.into_iter().chain(["classic"]) {
        visit(&serve(&site, &["--engine", engine], &[runtime]));
    }
}

#[test]
fn symfony_worker_script_runs_on_every_booted_engine() {
    let site = symfony();
    let script = site.www().join("worker.php");
    let script = script.to_str().unwrap();
    assert_eq!(engine(&serve(&site, &["--script", script], &[])), "rewind");
    let cache = site.tmp().join("cache");
    let cache = ("SURUS_ENV_APP_CACHE_DIR", cache.to_str().unwrap());
    on_every_engine(&site, visit, &[cache]);
}

/// Code compiled by the JIT and preloaded classes must survive a restore.
#[test]
fn symfony_runs_booted_with_jit_and_preloading() {
    let site = symfony();
    let runtime = ("SURUS_ENV_APP_RUNTIME", r"Surus\Symfony\Runtime");
    let list = site.tmp().join("preload.php");
    let autoloader = site.www().join("vendor/autoload.php");
    let code = format!(
        r"<?php
require '{}';
foreach ([
    'Symfony\Component\HttpKernel\HttpKernel',
    'Symfony\Component\HttpFoundation\Request',
    'Twig\Environment',
    'App\Kernel',
] as $class) {{
    class_exists($class) || throw new Error($class);
}}
",
        autoloader.display(),
    );
    std::fs::write(&list, code).unwrap();
    let preload = format!("opcache.preload={}", list.display());
    for (jit, preload) in [
        ("tracing", None),
        ("function", Some(&preload)),
        ("tracing", Some(&preload)),
    ] {
        let jit = format!("opcache.jit={jit}");
        let mut args = vec!["-d", &jit, "-d", "opcache.jit_buffer_size=32M"];
        if let Some(preload) = preload {
            args.extend(["-d", preload, "-d", "opcache.preload_user=www-data"]);
        }
        let surus = serve(&site, &args, &[runtime]);
        assert_eq!(engine(&surus), "rewind");
        for _ in 0..5 {
            visit(&surus);
        }
    }
}

/// The engine that the log names.
pub fn engine(surus: &Surus) -> String {
    surus.wait_for_log(|log| log.contains("PHP is ready"));
    let log = surus.log();
    let (_, engine) = log.split_once("engine=").unwrap();
    engine.split('"').nth(1).unwrap().to_string()
}

/// Requests every page, without a browser.
pub fn visit(surus: &Surus) {
    let visitor = Client::new(&surus.url);
    let hello = visitor.get("/api/hello").ok();
    assert_eq!(
        (hello.header("content-type"), hello.text().as_str()),
        ("application/json", r#"{"hello":"world"}"#)
    );
    visitor
        .get("/")
        .shows("Symfony, carried by an elephant")
        .shows(r#"<a href="/guestbook">"#);
    visitor
        .get("/hello/J%C3%BCrgen%20%26%20Co")
        .shows("<h1>Hello, Jürgen &amp; Co!</h1>");
    visitor.get("/style.css").shows("--clay");
    visitor
        .get("/no/such/page")
        .status(404)
        .says("The elephant went another way.");
    let wrong = visitor.post("/api/hello", &[]).status(405);
    assert_eq!(wrong.header("allow"), "GET");

    let json = [("content-type", "application/json")];
    let echo = visitor
        .post_as(
            "/api/echo?a[]=1&a[]=2",
            &json,
            br#"{"deep":{"er":[1,2,"\u00fc"]}}"#.to_vec(),
        )
        .ok();
    assert_eq!(
        echo.json(),
        serde_json::json!({
            "method": "POST",
            "query": { "a": ["1", "2"] },
            "body": { "deep": { "er": [1, 2, "ü"] } },
        })
    );
    visitor
        .post_as("/api/echo", &json, b"{".to_vec())
        .status(400);
    let rows = visitor.get("/api/rows/20000").ok();
    assert_eq!(rows.text().lines().count(), 20000);
    assert!(rows.text().ends_with("{\"row\":20000}\n"));

    visitor.get("/visits").shows("Your first visit");
    visitor.get("/visits").shows("Visit number 2");
    Client::new(&surus.url)
        .get("/visits")
        .shows("Your first visit");

    visitor
        .get("/guestbook")
        .shows("No one has signed yet.")
        .shows(r#"name="entry[name]""#);
    let refused = visitor
        .post(
            "/guestbook",
            &[
                ("entry[name]", "H"),
                ("entry[message]", ""),
                ("entry[send]", ""),
            ],
        )
        .status(422);
    refused
        .says("A name has 2 to 40 letters.")
        .says("Say something.")
        .says(r#"value="H""#);
    let signed = visitor.post(
        "/guestbook",
        &[
            ("entry[name]", "Hanno"),
            ("entry[message]", "<b>Ave</b>\nRoma"),
            ("entry[send]", ""),
        ],
    );
    let signed = signed
        .shows("Thank you, Hanno.")
        .shows("&lt;b&gt;Ave&lt;/b&gt;<br />\nRoma");
    assert_eq!(signed.url, format!("{}/guestbook", surus.url));
    visitor
        .get("/guestbook")
        .shows("Roma")
        .lacks("Thank you, Hanno.");
}

/// Uses the form in a browser.
fn look(surus: &Surus) {
    let browser = Browser::open();
    browser.go(&surus.url);
    browser.click("nav a[href='/guestbook']");
    browser.fill("#entry_name", "H");
    browser.click("#entry_send");
    browser.sees("form", "A name has 2 to 40 letters.");
    assert!(matches!(&browser.errors()[..], [refused] if refused.contains("status of 422")));
    browser.fill("#entry_name", "Hannibal");
    browser.fill("#entry_message", "Elephants travel well.");
    browser.click("#entry_send");
    browser.sees(".notice", "Thank you, Hannibal.");
    browser.sees("blockquote", "Elephants travel well.");
    browser.screenshot("symfony");
}

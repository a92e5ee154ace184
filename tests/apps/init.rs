//! Tests `surus init` with frameworks: what it writes, and that `surus check --boot`
//! and `surus serve` use it.

use std::process::Command;

use super::blog::{database, install, site_of};
use super::client::Client;
use super::site::{Site, framework};
use super::{laravel_skeleton, symfony_visitors};
use crate::common::Surus;
use crate::common::ports::free_address;

const SYMFONY: [(&str, &str); 2] = [("SURUS_ENV_APP_ENV", "prod"), ("SURUS_ENV_APP_DEBUG", "0")];

/// The output of a command that succeeds. PHP's files are kept as those of [`Site::serve`].
#[track_caller]
fn surus(site: &Site, args: &[&str], env: &[(&str, &str)]) -> String {
    let stored = site.stored();
    let stored = stored.iter().map(|entry| {
        let (name, value) = entry.split_once('=').unwrap();
        let name = name.replace('.', "__").to_uppercase();
        (format!("SURUS_PHP_{name}"), value)
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    command.args(args).arg(site.www());
    let output = command.envs(stored).envs(env.iter().copied()).output();
    let output = output.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}{errors}");
    said
}

/// Writes the configuration with the host and the path of a page, and checks it.
fn configure(site: &Site, host: &str, path: &str, env: &[(&str, &str)]) -> String {
    let host = format!("Host: {host}");
    let workers = [("SURUS_ENGINE_WORKERS", "1")];
    let path = ["init", "--header", &host, "--path", path, "--"];
    surus(site, &path, &[&workers[..], env].concat());
    // Which engine it writes depends on CPU times, and so on what else this machine does.
    let rewind = [
        "check",
        "--listen",
        "127.0.0.1:0",
        "--boot",
        "--engine",
        "rewind",
    ];
    let said = surus(site, &rewind, env);
    assert!(said.contains("/surus.toml\n"), "{said}");
    let file = site.www().join("surus.toml");
    let text = std::fs::read_to_string(file).unwrap();
    assert!(!said.contains("answers cannot be compared"), "{said}");
    format!("{text}\n{said}")
}

#[track_caller]
fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

/// With the written configuration on `rewind`.
fn serve(site: &Site, env: &[(&str, &str)]) -> Surus {
    site.serve_with(&["--workers", "1", "--engine", "rewind"], env)
}

/// Whatever engine the configuration names, it has a warm-up only if that engine boots.
#[track_caller]
fn names_an_engine(text: &str) {
    let is_booted =
        ["rewind", "fork"].map(|name| format!("\nname = \"{name}\"\nwarmup = [\"/page\"]\n"));
    let is_classic = text.contains("\nname = \"classic\"\n") && !text.contains("\nwarmup = ");
    assert!(
        is_classic || is_booted.iter().any(|lines| text.contains(lines)),
        "{text}"
    );
}

#[test]
fn init_for_laravel_writes_what_rewind_boots() {
    let site = laravel_skeleton::unmodified();
    let said = configure(&site, "localhost", "/page", &[]);
    names_an_engine(&said);
    says(
        &said,
        &[
            "# For Laravel",
            "surus://boot/laravel.php, for Laravel",
            ": no other answer\n",
        ],
    );
    let surus = serve(&site, &[]);
    surus.wait_for_log(|log| log.contains("models created ahead in"));
    Client::new(&surus.url).get("/page").ok();
}

#[test]
fn init_for_symfony_writes_what_rewind_boots() {
    let site = symfony_visitors::unmodified("symfony7");
    let said = configure(&site, "localhost", "/page", &SYMFONY);
    names_an_engine(&said);
    says(
        &said,
        &[
            "# For Symfony",
            "surus://boot/symfony-runtime.php, for Symfony",
            ": no other answer\n",
        ],
    );
    let surus = serve(&site, &SYMFONY);
    surus.wait_for_log(|log| log.contains("services created ahead in"));
    Client::new(&surus.url).get("/page").ok();
}

/// Its boot has no warm-ups, and PHP's own work is most of a page.
#[test]
fn init_for_wordpress_writes_an_engine_without_a_warm_up() {
    let database = database();
    let files = framework("wordpress7").with_file_name("wordpress");
    let site = site_of(&files, &database, "", "");
    let host = free_address();
    install(&site.www(), &host);
    let said = configure(&site, &host, "/", &[]);
    says(&said, &["# For WordPress 7.1", "\nname = \""]);
    assert!(!said.contains("\nwarmup = "), "{said}");
    let surus = site.serve_with(&["--listen", &host, "--workers", "1"], &[]);
    surus.wait_for_log(|log| log.contains("PHP is ready"));
    Client::new(&format!("http://{host}"))
        .get("/")
        .shows("The Alps");
}

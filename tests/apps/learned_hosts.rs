//! Tests what Surus learns from clients of a host that it knows or does not, and from too few
//! clients.

use std::process::Command;

use super::client::{Client, PROXY};
use super::learned::LEARNED;
use super::site::Site;
use super::symfony_visitors::unmodified;
use crate::common::Surus;

/// An application that answers at one host. The name of the runtime lets Surus learn pages.
const ONE_HOST: &str = "<?php
surus_save_boot();
surus_serve(static function () {
    if (isset($_SERVER['SURUS_WARMUP'])) {
        register_shutdown_function(static fn () => surus_restore_boot());
    }
    if ('shop.test' !== $_SERVER['HTTP_HOST']) {
        http_response_code(400);
        echo 'unknown host';
    } else {
        echo 'page';
    }
});";

const OTHER_STATUS: &str =
    "status 400 at localhost; name the host that visitors use in [[route]] or [[site]]";

/// A server that learns, and its state.
fn serve(site: &Site, env: &[(&str, &str)]) -> (Surus, tempfile::TempDir) {
    let state = tempfile::tempdir().unwrap();
    let learn = [
        ("STATE_DIRECTORY", state.path().to_str().unwrap()),
        ("SURUS_ENGINE_WARMUP", "learn"),
        PROXY,
    ];
    let args = ["--engine", "rewind", "--workers", "1"];
    let surus = site.serve_with(&args, &[&learn[..], env].concat());
    (surus, state)
}

/// Asks for the page at the application's host, from this many addresses in turn.
fn visit(surus: &Surus, addresses: usize) {
    for number in 0..210 {
        let address = format!("198.51.100.{}", number % addresses + 1);
        let headers = [("host", "shop.test"), ("x-forwarded-for", &*address)];
        Client::new(&surus.url).get_as("/page", &headers).ok();
    }
}

fn status(site: &Site) -> String {
    let mut surus = Command::new(env!("CARGO_BIN_EXE_surus"));
    let output = surus.arg("status").arg(site.www()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

const RUNTIME: (&str, &str) = ("SURUS_ENV_APP_RUNTIME", r"Surus\Symfony\Runtime");

#[track_caller]
fn leaves_out(site: &Site, surus: &Surus) {
    surus.wait_for_log(|log| log.contains(OTHER_STATUS));
    let status = status(site);
    let left_out = format!("not warmed up by http://localhost/page: {OTHER_STATUS}\n");
    assert!(status.contains(&left_out), "{status}");
    let log = surus.log();
    assert!(!log.contains(LEARNED), "{log}");
}

#[test]
fn learned_page_without_status_200_at_the_host_of_warm_ups_is_left_out_and_named() {
    let site = Site::new().write("index.php", ONE_HOST);
    let (surus, _state) = serve(&site, &[RUNTIME]);
    visit(&surus, 5);
    leaves_out(&site, &surus);
}

#[test]
fn learned_page_is_asked_for_at_the_host_of_a_site_or_a_route() {
    for config in [
        "[[site]]\nhost = 'shop.test'\n",
        "[[route]]\nhost = 'shop.test'\nengine = 'rewind'\n",
    ] {
        let site = Site::new()
            .write("index.php", ONE_HOST)
            .write("surus.toml", config);
        let (surus, _state) = serve(&site, &[RUNTIME]);
        visit(&surus, 5);
        surus.wait_for_log(|log| log.contains(LEARNED));
        let status = status(&site);
        let used = "\nwarmed up by http://shop.test/page\n";
        assert!(status.contains(used), "{config}: {status}");
        let log = surus.log();
        assert!(!log.contains("left out"), "{config}: {log}");
    }
}

#[test]
fn learning_from_clients_with_one_address_is_reported_once() {
    let site = Site::new().write("index.php", ONE_HOST);
    let (surus, _state) = serve(&site, &[RUNTIME]);
    visit(&surus, 1);
    let report = "learning has found no page to warm up the boot by";
    surus.wait_for_log(|log| log.contains(report));
    let log = surus.log();
    let remedy = "remedy=\"behind a proxy, name it in http.trusted_proxies; otherwise name pages";
    assert!(log.contains(remedy), "{log}");
    assert_eq!(log.matches(report).count(), 1, "{log}");
}

/// Symfony rejects other hosts with status 400.
#[test]
#[ignore = "make test-learned"]
fn learned_page_of_symfony_with_trusted_hosts_needs_a_named_host() {
    let secret = "'secret' => 'nothing here is signed',";
    let trusted = format!("{secret} 'trusted_hosts' => ['^shop\\.test$'],");
    let site = unmodified("symfony7").replace("src/Kernel.php", secret, &trusted);
    let env = [("SURUS_ENV_APP_ENV", "prod"), ("SURUS_ENV_APP_DEBUG", "0")];
    let (surus, _state) = serve(&site, &env);
    visit(&surus, 5);
    leaves_out(&site, &surus);
    drop(surus);
    let site = site.write("surus.toml", "[[site]]\nhost = 'shop.test'\n");
    let (surus, _state) = serve(&site, &env);
    visit(&surus, 5);
    surus.wait_for_log(|log| log.contains(LEARNED));
    let status = status(&site);
    let used = "\nwarmed up by http://shop.test/page\n";
    assert!(status.contains(used), "{status}");
}

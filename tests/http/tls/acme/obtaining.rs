//! Tests how certificates are obtained, at the start and after failures.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::pebble::{Behaviour, Pebble};
use super::{OBTAINED, Place, file_name, wait_for_attempt};
use crate::common::Surus;
use crate::common::certificates::Authority;
use crate::common::ports::free_address;

#[test]
fn domain_is_served_without_tls_until_it_has_a_certificate() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    // The authority cannot validate yet.
    assert_eq!(acme.get("a.example"), (200, None));
    let roots = pebble.roots();
    assert!(!acme.is_trusted("a.example", &roots));
    acme.open(&pebble);
    acme.wait_for(1, OBTAINED);
    acme.wait_for(1, "certificate read");
    assert!(
        acme.is_trusted("a.example", &roots),
        "{}",
        acme.surus().log()
    );
    wait_for_attempt(&acme, &place, "issued");
    let (status, location) = acme.get("a.example");
    let location = location.unwrap();
    assert_eq!(status, 301);
    assert!(location.starts_with("https://a.example"), "{location}");
    for directory in ["accounts", "certificates"] {
        let directory = place.directory().join(directory);
        assert_eq!(directory.metadata().unwrap().mode() & 0o777, 0o700);
    }
    let authority = file_name(&pebble.url);
    let files = [
        place.files("accounts"),
        place.files(&format!("certificates/{authority}")),
    ];
    assert_eq!(files.each_ref().map(Vec::len), [1, 1]);
    for file in files.iter().flatten() {
        let found = file.metadata().unwrap();
        assert_eq!(found.mode() & 0o777, 0o600, "{}", file.display());
        assert_eq!(found.uid(), surus_sys::process::uid());
    }
    // A restart serves what is there.
    drop(acme);
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    assert!(acme.is_trusted("a.example", &roots));
    assert!(!acme.surus().log().contains(OBTAINED));
}

#[test]
fn domain_that_needs_client_certificates_is_never_served_without_tls() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let clients = Authority::new("Clients");
    std::fs::write(place.site.path().join("clients.pem"), &clients.pem).unwrap();
    let env = [("SURUS_TLS_CLIENT_CA", "clients.pem")];
    let acme = place.serve(&pebble, &["--domain", "a.example"], &env);
    assert_eq!(acme.get("a.example").0, 301);
    // The authority validates without TLS.
    acme.open(&pebble);
    acme.wait_for(1, OBTAINED);
    assert_eq!(acme.get("a.example").0, 301);
}

#[test]
fn certificate_comes_by_tls_if_http_has_failed() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let failures = place.leave("failures/a.example", "1");
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    let file = std::fs::File::options()
        .write(true)
        .open(&failures)
        .unwrap();
    file.set_modified(long_ago).unwrap();
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    pebble.tls.open(&acme.0.address);
    acme.wait_for(1, OBTAINED);
    acme.wait_for(1, "certificate read");
    assert!(acme.is_trusted("a.example", &pebble.roots()));
    acme.surus().wait_for_log(|_| !failures.exists());
}

#[test]
fn faults_of_the_authority_are_overcome_for_every_domain() {
    let behaviour = Behaviour {
        env: &[
            ("PEBBLE_WFE_NONCEREJECT", "15"),
            ("PEBBLE_AUTHZREUSE", "100"),
        ],
        ..Behaviour::default()
    };
    let (pebble, place) = (Pebble::start(&behaviour), Place::new());
    let domains = [
        "--domain",
        "blocked.example",
        "--domain",
        "a.example",
        "--domain",
        "b.example",
    ];
    let acme = place.serve(&pebble, &domains, &[]);
    acme.open(&pebble);
    acme.wait_for(2, OBTAINED);
    let roots = pebble.roots();
    acme.surus()
        .wait_for_log(|_| acme.is_trusted("b.example", &roots));
    assert!(acme.is_trusted("a.example", &roots));
    assert!(!acme.is_trusted("blocked.example", &roots));
    let log = acme.surus().log();
    assert!(log.contains("blocked.example"), "{log}");
    assert_eq!(place.files("failures").len(), 1);
    // It is not redirected to a certificate that clients reject.
    assert_eq!(acme.get("blocked.example"), (200, None));
    assert_eq!(acme.get("b.example").0, 301);
}

#[test]
fn failed_validation_is_reported_with_the_reason_and_not_repeated_at_once() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    // No server listens there: the listener is dropped.
    pebble.http.open(&free_address());
    acme.wait_for(1, "next_attempt_in_minutes");
    let log = acme.surus().log();
    assert!(
        log.contains("the validation by HTTP-01 has failed"),
        "{log}"
    );
    wait_for_attempt(&acme, &place, "failed");
    let top = Command::new(env!("CARGO_BIN_EXE_surus"))
        .args(["top", "--once"])
        .arg(place.site.path())
        .output()
        .unwrap();
    let top = String::from_utf8_lossy(&top.stdout);
    let shown = "no certificate: a.example, next attempt in ";
    assert!(top.contains(shown), "{top}");
    drop(acme);
    let failures = place.directory().join("failures/a.example");
    assert_eq!(std::fs::read_to_string(&failures).unwrap(), "1");
    // A restart does not try again before its time.
    let acme = place.serve(
        &pebble,
        &["--domain", "a.example"],
        &[("SURUS_LOG_LEVEL", "debug")],
    );
    acme.wait_for(1, "because earlier ones have failed");
    assert_eq!(std::fs::read_to_string(&failures).unwrap(), "1");
}

/// PHP decides when the application has changed.
#[test]
fn reload_of_a_changed_application_asks_no_authority() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let index = "<?php surus_serve(function () {
        surus_boot_outdated('everything', uniqid());
        echo 'served';
    });";
    std::fs::write(place.site.path().join("index.php"), index).unwrap();
    let args = ["--domain", "a.example", "--engine", "worker"];
    let args = [&args[..], &["-d", "opcache.revalidate_freq=1"]].concat();
    let acme = place.serve(&pebble, &args, &[]);
    pebble.http.open(&free_address());
    acme.wait_for(1, "next_attempt_in_minutes");
    acme.surus().wait_for_log(|log| {
        assert_eq!(acme.get("a.example").0, 200);
        log.contains("reloaded")
    });
    const TOO_EARLY: &str = "because earlier ones have failed";
    for times in 1..=2 {
        let reload = Command::new(env!("CARGO_BIN_EXE_surus"))
            .arg("reload")
            .arg(place.site.path())
            .status();
        assert!(reload.unwrap().success());
        acme.wait_for(times, TOO_EARLY);
    }
    let log = acme.surus().log();
    assert_eq!(log.matches(TOO_EARLY).count(), 2, "{log}");
}

#[test]
fn next_authority_issues_if_the_first_one_is_down() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let down = format!("https://{}/dir", free_address());
    let both = format!("{down},{}", pebble.url);
    let env = [("SURUS_ACME_AUTHORITIES", &*both)];
    let acme = place.serve(&pebble, &["--domain", "a.example"], &env);
    acme.open(&pebble);
    acme.wait_for(1, OBTAINED);
    acme.wait_for(1, "certificate read");
    assert!(acme.is_trusted("a.example", &pebble.roots()));
    let log = acme.surus().log();
    assert!(log.contains("cannot reach 127.0.0.1"), "{log}");
}

#[test]
fn wildcard_and_address_are_rejected_on_the_command_line() {
    for (domain, why) in [("*.a.example", "wildcard"), ("127.0.0.1", "name a host")] {
        let refused = Surus::spawn(Path::new("/tmp"), &["--domain", domain], &[]);
        let said = refused.err().unwrap();
        assert!(said.contains(why), "{said}");
    }
}

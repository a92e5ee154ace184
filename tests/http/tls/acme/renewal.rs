//! Tests when certificates are renewed, and that no request is lost by it.

use std::process::Command;
use std::sync::Arc;

use super::pebble::{Behaviour, Pebble};
use super::{OBTAINED, Place};
use crate::common::certificates::Authority;
use crate::tls::load::Load;
use crate::wire::Wire;

#[test]
fn expired_certificate_is_renewed_without_a_lost_request() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let expired = Authority::new("Old").issue_until(&["a.example"], 2001);
    place.leave_certificate(&pebble.url, "a.example", &expired);
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    let roots = pebble.roots();
    assert!(!acme.is_trusted("a.example", &roots));
    let address = acme.surus().address.clone();
    let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let until = is_over.clone();
    let load = std::thread::spawn(move || {
        let mut answered = 0;
        while !until.load(std::sync::atomic::Ordering::Relaxed) {
            let mut wire = Wire::to(&address);
            for _ in 0..5 {
                let get = "GET /index.php HTTP/1.1\r\nHost: a.example\r\n\r\n";
                // Only clients know whether their clock is that of the machine.
                assert_eq!(wire.ask(get).unwrap().status, 301);
                answered += 1;
            }
        }
        answered
    });
    acme.open(&pebble);
    acme.wait_for(1, OBTAINED);
    acme.surus()
        .wait_for_log(|_| acme.is_trusted("a.example", &roots));
    is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(load.join().unwrap() > 0);
}

/// Makes the authority want the stored certificate renewed at once.
fn want_renewal(pebble: &Pebble, stored: &str) {
    let window =
        r#"{"suggestedWindow": {"start": "2020-01-01T00:00:00Z", "end": "2020-01-02T00:00:00Z"}}"#;
    let certificate = stored
        .split_inclusive("-----END PRIVATE KEY-----")
        .nth(1)
        .unwrap();
    let leaf = certificate
        .split_inclusive("-----END CERTIFICATE-----")
        .next()
        .unwrap();
    let body = serde_json::json!({"certificate": leaf.trim(), "ARIResponse": window});
    pebble.manage("/set-renewal-info/", Some(&body.to_string()));
}

fn reload(place: &Place) {
    let reload = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("reload")
        .arg(place.site.path())
        .status();
    assert!(reload.unwrap().success());
}

#[test]
fn authority_decides_when_a_certificate_is_renewed() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    acme.open(&pebble);
    acme.wait_for(1, OBTAINED);
    acme.wait_for(1, "certificate read");
    let before = acme.stored(&place, &pebble, "a.example");
    want_renewal(&pebble, &before);
    reload(&place);
    acme.wait_for(2, OBTAINED);
    let stored = || acme.stored(&place, &pebble, "a.example");
    acme.surus().wait_for_log(|_| stored() != before);
}

#[test]
fn renewal_loses_no_request_of_tls_clients() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    acme.open(&pebble);
    acme.wait_for(1, OBTAINED);
    let roots = pebble.roots();
    acme.surus()
        .wait_for_log(|_| acme.is_trusted("a.example", &roots));
    let mut config = acme.0.config(rustls::DEFAULT_VERSIONS);
    let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(
        roots,
        Arc::new(rustls::crypto::ring::default_provider()),
    );
    let verifier = verifier.build().unwrap();
    config.dangerous().set_certificate_verifier(verifier);
    let load = Load::start(&acme.0.address, "a.example", &config);
    let count = |log: &str| log.matches("certificate read").count();
    for renewal in 2..=4 {
        let known = count(&acme.surus().log());
        let before = acme.stored(&place, &pebble, "a.example");
        want_renewal(&pebble, &before);
        reload(&place);
        acme.wait_for(renewal, OBTAINED);
        acme.surus().wait_for_log(|log| count(log) > known);
        load.proceed();
    }
    load.stop();
}

#[test]
fn certificate_that_would_be_renewed_at_once_is_served_and_counts_as_a_failure() {
    let behaviour = Behaviour {
        seconds: 1,
        ..Behaviour::default()
    };
    let (pebble, place) = (Pebble::start(&behaviour), Place::new());
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    acme.open(&pebble);
    acme.wait_for(1, "check the clock of this machine");
    acme.wait_for(1, "certificate read");
    let failures = place.directory().join("failures/a.example");
    acme.surus()
        .wait_for_log(|_| std::fs::read_to_string(&failures).is_ok_and(|text| text == "1"));
}

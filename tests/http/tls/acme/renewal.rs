//! Tests when certificates are renewed, and that no request is lost by it.

use std::process::Command;
use std::sync::Arc;

use super::pebble::{Behaviour, Pebble};
use super::{OBTAINED, Place};
use crate::common::certificates::Authority;
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
                // The redirect begins when there is a certificate.
                let get = "GET /index.php HTTP/1.1\r\nHost: a.example\r\n\r\n";
                let status = wire.ask(get).unwrap().status;
                assert!([200, 301].contains(&status), "{status}");
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

#[test]
fn authority_decides_when_a_certificate_is_renewed() {
    let (pebble, place) = (Pebble::start(&Behaviour::default()), Place::new());
    let acme = place.serve(&pebble, &["--domain", "a.example"], &[]);
    acme.open(&pebble);
    acme.wait_for(1, OBTAINED);
    acme.wait_for(1, "certificate read");
    let before = acme.stored(&place, &pebble, "a.example");
    let window =
        r#"{"suggestedWindow": {"start": "2020-01-01T00:00:00Z", "end": "2020-01-02T00:00:00Z"}}"#;
    let certificate = before
        .split_inclusive("-----END PRIVATE KEY-----")
        .nth(1)
        .unwrap();
    let leaf = certificate
        .split_inclusive("-----END CERTIFICATE-----")
        .next()
        .unwrap();
    let body = serde_json::json!({"certificate": leaf.trim(), "ARIResponse": window});
    pebble.manage("/set-renewal-info/", Some(&body.to_string()));
    let reload = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("reload")
        .arg(place.site.path())
        .status();
    assert!(reload.unwrap().success());
    acme.wait_for(2, OBTAINED);
    let stored = || acme.stored(&place, &pebble, "a.example");
    acme.surus().wait_for_log(|_| stored() != before);
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

//! Tests certificates of clients.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{Secure, serve_with};
use crate::common::certificates::{Authority, Issued};
use crate::wire::{Wire, site};

const GET: &str = "GET /index.php HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn connect(secure: &Secure, certificate: &Issued) -> Wire {
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).unwrap();
    let chain = CertificateDer::from_pem_slice(certificate.certificate.as_bytes()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(secure.authority.roots())
        .with_client_auth_cert(vec![chain], key)
        .unwrap();
    secure.connect_by(secure.client_for("localhost", config))
}

fn serve(dir: &std::path::Path, kind: &str) -> (Secure, Authority) {
    let clients = Authority::new("Clients");
    std::fs::write(dir.join("clients.pem"), &clients.pem).unwrap();
    let authority = Authority::new("Test");
    let issued = authority.issue(&["localhost"]);
    let env = [
        ("SURUS_TLS_CLIENT_CA", "clients.pem"),
        ("SURUS_TLS_CLIENT_CERTIFICATE", kind),
    ];
    (serve_with(dir, authority, &issued, &env), clients)
}

/// The client may learn of its refusal while it writes or while it reads.
fn is_refused(mut wire: Wire) -> bool {
    let ask = move || wire.ask(GET).is_none();
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask)).unwrap_or(true)
}

#[test]
fn required_certificate_is_seen_by_php() {
    let dir = site();
    let (secure, clients) = serve(dir.path(), "require");
    let alice = clients.issue(&["alice"]);
    let mut wire = connect(&secure, &alice);
    for _ in 0..2 {
        let answer = wire.ask(GET).unwrap();
        assert_eq!(answer.seen("SSL_CLIENT_VERIFY"), "SUCCESS");
        assert_eq!(answer.seen("SSL_CLIENT_S_DN"), "CN=alice");
        assert_eq!(answer.seen("SSL_CLIENT_I_DN"), "CN=Clients");
        assert_eq!(answer.seen("SSL_CLIENT_V_END"), "Jan  1 00:00:00 4000 GMT");
        let seen = answer.seen("SSL_CLIENT_CERT");
        assert_eq!(seen, alice.certificate.replace("\r\n", "\n"));
    }
    assert!(is_refused(secure.connect()));
    assert!(is_refused(connect(
        &secure,
        &Authority::new("Clients").issue(&["alice"])
    )));
    assert!(is_refused(connect(
        &secure,
        &clients.issue_until(&["alice"], 2001)
    )));
    let name = "surus_tls_handshake_failures_total{reason=\"client_certificate\"} ";
    assert_eq!(secure.metric(dir.path(), name), 3);
}

#[test]
fn invalid_request_without_tls_gets_no_page_of_the_site() {
    let dir = site();
    std::fs::create_dir(dir.path().join("errors")).unwrap();
    std::fs::write(dir.path().join("errors/400.html"), "own page").unwrap();
    let (secure, clients) = serve(dir.path(), "require");
    let with_certificate = connect(&secure, &clients.issue(&["alice"]));
    let without_tls = Wire::connect(&secure.surus);
    for (mut wire, is_page) in [(with_certificate, true), (without_tls, false)] {
        let answer = wire.ask("GET / HTTP/1.1\r\nHost: a b\r\n\r\n").unwrap();
        assert_eq!(answer.status, 400);
        let body = String::from_utf8_lossy(&answer.body);
        assert_eq!(body == "own page", is_page, "{body}");
    }
}

#[test]
fn optional_certificate_may_be_missing_but_not_wrong() {
    let dir = site();
    let (secure, clients) = serve(dir.path(), "optional");
    let answer = secure.connect().ask(GET).unwrap();
    assert_eq!(answer.seen("SSL_CLIENT_VERIFY"), "NONE");
    assert_eq!(answer.seen("SSL_CLIENT_S_DN"), "null");
    let answer = connect(&secure, &clients.issue(&["bob"])).ask(GET).unwrap();
    assert_eq!(answer.seen("SSL_CLIENT_S_DN"), "CN=bob");
    assert!(is_refused(connect(
        &secure,
        &Authority::new("Clients").issue(&["bob"])
    )));
}

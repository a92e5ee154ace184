//! Certificates over HTTP/3: reload, and those of clients.

use std::process::Command;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::TLS13;

use super::client::{Client, serve_h3};
use crate::common::certificates::Authority;
use crate::wire::site;

#[tokio::test]
async fn reload_takes_new_certificates_and_keeps_connections() {
    let dir = site();
    let secure = serve_h3(dir.path(), &[]);
    let mut open = Client::connect(&secure).await;
    assert_eq!(open.get("/index.php").await.status(), 200);
    let next = Authority::new("Next");
    next.issue(&["localhost"]).write(dir.path(), "server");
    let reloaded = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("reload")
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(reloaded.status.success());
    assert_eq!(open.get("/index.php").await.status(), 200);
    let before = secure.config(&[&TLS13]);
    assert!(Client::connect_by(&secure, before).await.is_err());
    let secure = crate::tls::Secure {
        authority: next,
        ..secure
    };
    let mut client = Client::connect(&secure).await;
    assert_eq!(client.get("/index.php").await.status(), 200);
}

#[tokio::test]
async fn client_without_a_certificate_is_rejected_if_one_is_required() {
    let dir = site();
    let clients = Authority::new("Clients");
    std::fs::write(dir.path().join("clients.pem"), &clients.pem).unwrap();
    let secure = serve_h3(dir.path(), &[("SURUS_TLS_CLIENT_CA", "clients.pem")]);
    let failed = match Client::connect_by(&secure, secure.config(&[&TLS13])).await {
        Err(_) => true,
        // The client learns it after its own end of the handshake.
        Ok(mut client) => client.ask(super::get("/index.php"), b"").await.is_err(),
    };
    assert!(failed);
    let issued = clients.issue(&["someone"]);
    let chain = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
    let config = rustls::ClientConfig::builder_with_provider(std::sync::Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_protocol_versions(&[&TLS13])
    .unwrap()
    .with_root_certificates(secure.authority.roots())
    .with_client_auth_cert(vec![chain], key)
    .unwrap();
    let mut client = Client::connect_by(&secure, config).await.unwrap();
    let seen = client.get("/index.php").await;
    assert_eq!(seen.seen("SSL_CLIENT_VERIFY"), "SUCCESS");
    assert_eq!(seen.seen("SSL_CLIENT_S_DN"), "CN=someone");
    let failures = "surus_tls_handshake_failures_total{reason=\"client_certificate\"} ";
    assert_eq!(secure.metric(dir.path(), failures), 1);
}

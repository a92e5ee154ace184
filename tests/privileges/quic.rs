//! Tests that HTTP/3 works as root, where the keeper binds the ports of UDP and the front end that
//! receives from them is confined.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Buf;
use quinn::crypto::rustls::QuicClientConfig;

use crate::common::certificates::Authority;
use crate::server::{app, is_root, start};

/// The body of a response over HTTP/3.
async fn get(address: SocketAddr, authority: &Authority) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(authority.roots())
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h3".to_vec()];
    let crypto = Arc::new(QuicClientConfig::try_from(config).unwrap());
    let endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
    let connecting = endpoint.connect_with(quinn::ClientConfig::new(crypto), address, "localhost");
    let connection = h3_quinn::Connection::new(connecting.unwrap().await.unwrap());
    let (_driver, mut requests) = h3::client::new(connection).await.unwrap();
    let request = http::Request::get("https://localhost/index.php");
    let mut stream = requests
        .send_request(request.body(()).unwrap())
        .await
        .unwrap();
    stream.finish().await.unwrap();
    assert_eq!(stream.recv_response().await.unwrap().status(), 200);
    let mut body = Vec::new();
    while let Some(mut piece) = stream.recv_data().await.unwrap() {
        body.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
    }
    body
}

pub fn confined_front_end_speaks_http_3() {
    if !is_root() {
        return;
    }
    let dir = app(&[(
        "index.php",
        "<?php echo $_SERVER['SERVER_PROTOCOL'], str_repeat('x', 3000000);",
    )]);
    let authority = Authority::new("Test");
    let keys = tempfile::tempdir().unwrap();
    let (certificate, key) = authority.issue(&["localhost"]).write(keys.path(), "server");
    let env = [
        ("SURUS_HTTP_H3", "true"),
        ("SURUS_TLS_LISTEN", "127.0.0.1:0"),
        ("SURUS_TLS_CERTIFICATE", certificate.to_str().unwrap()),
        ("SURUS_TLS_KEY", key.to_str().unwrap()),
    ];
    let surus = start(dir.path(), &[], &env);
    const LINE: &str = "listening on https://";
    surus.wait_for_log(|log| {
        let rest = log.split(LINE).nth(1);
        rest.is_some_and(|rest| rest.contains('\n'))
    });
    let log = surus.log();
    let address = log.split(LINE).nth(1).and_then(|rest| rest.lines().next());
    let address = address.unwrap().trim().parse().unwrap();
    assert_ne!(crate::common::user_of(surus.front()).0, 0);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // The keeper has the socket for the next front end, too.
    for fronts in 1..=2 {
        let body = runtime.block_on(async {
            let limit = std::time::Duration::from_secs(60);
            tokio::time::timeout(limit, get(address, &authority)).await
        });
        let body = body.unwrap();
        assert!(body.starts_with(b"HTTP/3.0x"));
        assert_eq!(body.len(), 3_000_008);
        let before = surus.front();
        surus_sys::process::kill(before).unwrap();
        surus.wait_for_log(|log| log.matches(LINE).count() == fronts + 1);
    }
}

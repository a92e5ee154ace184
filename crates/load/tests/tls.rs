//! TLS against a scripted server whose certificate it has signed itself.
#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use common::{plan_of, response, run, serve};
use surus_load::{Failure, Plan, Request, Url};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, Stream};

/// Makes a certificate for 127.0.0.1 that its own key has signed.
fn self_signed() -> ServerConfig {
    let directory = tempfile::tempdir().unwrap();
    let openssl = |arguments: &str| {
        let mut command = Command::new("openssl");
        command.args(arguments.split(' ')).current_dir(&directory);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    openssl(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test \
         -addext subjectAltName=IP:127.0.0.1 -outform DER -out cert.der -keyout key.pem",
    );
    openssl("pkcs8 -topk8 -nocrypt -in key.pem -outform DER -out key.der");
    let read = |name: &str| std::fs::read(Path::new(directory.path()).join(name)).unwrap();
    let certificate = CertificateDer::from(read("cert.der"));
    let key = PrivateKeyDer::try_from(read("key.der")).unwrap();
    ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap()
}

/// Answers requests without bodies until the client closes or refuses the certificate.
fn answer_over_tls() -> SocketAddr {
    let config = Arc::new(self_signed());
    serve(move |mut tcp| {
        let mut connection = ServerConnection::new(config.clone()).unwrap();
        let mut stream = Stream::new(&mut connection, &mut tcp);
        let mut received = Vec::new();
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            received.extend_from_slice(&bytes[..count]);
            if received.ends_with(b"\r\n\r\n") {
                received.clear();
                if stream.write_all(&response(200, "", "hello")).is_err() {
                    break;
                }
            }
        }
    })
}

fn plan(address: SocketAddr, accepts_any_certificate: bool) -> Plan {
    let url = Url::parse(&format!("https://{address}/")).unwrap();
    Plan {
        accepts_any_certificate,
        ..plan_of(&[Request::get(url)], 20)
    }
}

#[test]
fn self_signed_certificate_is_accepted_if_any_is() {
    let outcome = run(&plan(answer_over_tls(), true));
    assert_eq!(outcome.totals.responses, 20, "{:?}", outcome.totals);
    assert!(outcome.totals.connections <= 4, "TLS connections are kept");
}

#[test]
fn self_signed_certificate_fails_each_request_and_says_why() {
    let totals = run(&plan(answer_over_tls(), false)).totals;
    assert_eq!(totals.responses, 0);
    assert_eq!(totals.failures_of(Failure::Other), 20, "{totals:?}");
    let error = totals.first_error.unwrap();
    assert!(error.contains("certificate"), "{error}");
}

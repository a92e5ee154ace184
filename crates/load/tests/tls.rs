//! TLS against a scripted server whose certificate it has signed itself.
#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{http2, plan_of, response, run, serve};
use surus_load::{Mix, Plan, Protocol, Request, RequestFailure, Stop, Url};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{HandshakeKind, ServerConfig, ServerConnection, Stream};

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
    observed_over_tls(|_| ())
}

/// The same, with a function that gets the kind of handshake before each response.
fn observed_over_tls(before: impl Fn(Option<HandshakeKind>) + Send + Sync + 'static) -> SocketAddr {
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
                before(stream.conn.handshake_kind());
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
    assert_eq!(totals.failures_of(RequestFailure::Other), 20, "{totals:?}");
    let error = totals.first_error.unwrap();
    assert!(error.contains("certificate"), "{error}");
}

#[test]
fn connections_are_opened_before_the_run_a_few_hundred_at_a_time() {
    let config = Arc::new(self_signed());
    let (opening, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = most.clone();
    let address = serve(move |mut tcp| {
        let now = opening.fetch_add(1, Ordering::SeqCst) + 1;
        most.fetch_max(now, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(50));
        opening.fetch_sub(1, Ordering::SeqCst);
        let mut connection = ServerConnection::new(config.clone()).unwrap();
        let mut stream = Stream::new(&mut connection, &mut tcp);
        let mut bytes = [0; 4096];
        while let Ok(1..) = stream.read(&mut bytes) {
            let _ = stream.write_all(&response(200, "", "hello"));
        }
    });
    let totals = run(&Plan {
        concurrency: 600,
        stop: Stop::Requests(600),
        ..plan(address, true)
    })
    .totals;
    assert_eq!(
        (totals.responses, totals.connections),
        (600, 600),
        "{totals:?}"
    );
    let most = seen.load(Ordering::SeqCst);
    assert!(most <= 256, "{most}");
}

/// Answers one request, and announces the end of the connection with the response.
fn answer_once_over_tls() -> SocketAddr {
    let config = Arc::new(self_signed());
    serve(move |mut tcp| {
        let mut connection = ServerConnection::new(config.clone()).unwrap();
        let mut received = Vec::new();
        let mut bytes = [0; 4096];
        while !received.ends_with(b"\r\n\r\n") {
            match Stream::new(&mut connection, &mut tcp).read(&mut bytes) {
                Ok(count @ 1..) => received.extend_from_slice(&bytes[..count]),
                _ => return,
            }
        }
        let response = response(200, "", "hello");
        connection.writer().write_all(&response).unwrap();
        connection.send_close_notify();
        // Both in one segment.
        let mut records = Vec::new();
        while connection.wants_write() {
            connection.write_tls(&mut records).unwrap();
        }
        let _ = tcp.write_all(&records);
        // Closing with unread bytes would reset the connection.
        let _ = tcp.shutdown(std::net::Shutdown::Write);
        while matches!(tcp.read(&mut bytes), Ok(1..)) {}
    })
}

#[test]
fn idle_tls_connection_that_the_server_has_closed_is_replaced() {
    let totals = run(&plan(answer_once_over_tls(), true)).totals;
    assert_eq!((totals.responses, totals.failed()), (20, 0), "{totals:?}");
    assert_eq!(totals.connections, 20);
}

/// Without keep-alive, each connection is that of a new client. The server offers resumption.
#[test]
fn tls_connection_without_keep_alive_has_a_full_handshake() {
    let kinds = Arc::new(Mutex::new(Vec::new()));
    let seen = kinds.clone();
    let address = observed_over_tls(move |kind| seen.lock().unwrap().push(kind));
    let mut plan = plan(address, true);
    plan.keeps_alive = false;
    let url = Url::parse(&format!("https://{address}/")).unwrap();
    plan.mix = Arc::new(Mix::new(&[Request::get(url)], false).unwrap());
    let totals = run(&plan).totals;
    assert_eq!((totals.responses, totals.connections), (20, 20));
    assert_eq!(*kinds.lock().unwrap(), [Some(HandshakeKind::Full); 20]);
}

/// As with curl: a proxy that chooses its site by the name in TLS sees the same one.
#[test]
fn name_in_tls_is_the_host_of_the_url_also_with_another_host_header() {
    let config = Arc::new(self_signed());
    let names = Arc::new(Mutex::new(Vec::new()));
    let seen = names.clone();
    let address = serve(move |mut tcp| {
        let mut connection = ServerConnection::new(config.clone()).unwrap();
        let _ = Stream::new(&mut connection, &mut tcp).read(&mut [0]);
        let name = connection.server_name().map(String::from);
        seen.lock().unwrap().push(name);
    });
    let url = Url::parse(&format!("https://localhost:{}/", address.port())).unwrap();
    let mut request = Request::get(url);
    request.headers = vec![("Host".into(), "example.org".into())];
    let plan = Plan {
        accepts_any_certificate: true,
        ..plan_of(&[request], 1)
    };
    assert_eq!(run(&plan).totals.requests, 1);
    let names = names.lock().unwrap();
    assert_eq!(names.first(), Some(&Some("localhost".to_string())));
}

#[test]
fn refused_certificate_names_the_option_that_accepts_it() {
    let error = run(&plan(answer_over_tls(), false)).totals.first_error;
    let error = error.unwrap();
    assert!(error.contains("--insecure"), "{error}");
}

#[test]
fn http2_over_tls_is_negotiated_and_responses_are_counted() {
    let mut config = self_signed();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let address = http2(move |tcp| {
        let acceptor = acceptor.clone();
        async move {
            let stream = acceptor.accept(tcp).await.unwrap();
            let protocol = stream.get_ref().1.alpn_protocol();
            assert_eq!(protocol, Some(&b"h2"[..]), "the client must ask for it");
            stream
        }
    });
    let mut plan = plan(address, true);
    plan.protocol = Protocol::Http2;
    let totals = run(&plan).totals;
    assert_eq!((totals.responses, totals.failed()), (20, 0), "{totals:?}");
    assert_eq!(totals.connections, 4, "streams share connections");
    assert!(totals.received >= 20 * 100_000, "{totals:?}");
}

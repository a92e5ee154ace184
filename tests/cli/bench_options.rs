//! Tests of `surus bench`: what its options send, and over which protocol.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;

use super::bench::{bench, printed, text};
use super::common::certificates::Authority;
use super::common::run_with_input;

/// A request as it arrived.
#[derive(Debug, Clone)]
struct Recorded {
    /// Such as `GET /path HTTP/2.0`.
    line: String,
    headers: http::HeaderMap,
    body: Bytes,
    connection: usize,
    at: Instant,
}

impl Recorded {
    fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }
}

/// Where a server listens.
enum At<'a> {
    Tcp,
    Tls,
    Unix(&'a Path),
}

/// A server that records requests until it is dropped.
struct Recorder {
    url: String,
    received: Receiver<Recorded>,
    _runtime: tokio::runtime::Runtime,
}

impl Recorder {
    /// A server that speaks HTTP/2 if `is_http2`, and otherwise HTTP/1.1. It sets a cookie with the
    /// number of the connection.
    fn start(at: &At<'_>, is_http2: bool) -> Recorder {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (sender, received) = channel();
        let _inside = runtime.enter();
        let url = match at {
            At::Tcp | At::Tls => {
                let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                listener.set_nonblocking(true).unwrap();
                let listener = TcpListener::from_std(listener).unwrap();
                let address = listener.local_addr().unwrap();
                let tls = matches!(at, At::Tls).then(|| acceptor(is_http2));
                let scheme = if tls.is_some() { "https" } else { "http" };
                runtime.spawn(async move {
                    for number in 0.. {
                        let (stream, _) = listener.accept().await.unwrap();
                        let (sender, tls) = (sender.clone(), tls.clone());
                        tokio::spawn(async move {
                            let Some(tls) = tls else {
                                return answer(stream, is_http2, number, sender).await;
                            };
                            // A client may refuse the certificate.
                            if let Ok(stream) = tls.accept(stream).await {
                                answer(stream, is_http2, number, sender).await;
                            }
                        });
                    }
                });
                format!("{scheme}://{address}")
            }
            At::Unix(path) => {
                let listener = UnixListener::bind(path).unwrap();
                runtime.spawn(async move {
                    for number in 0.. {
                        let (stream, _) = listener.accept().await.unwrap();
                        tokio::spawn(answer(stream, is_http2, number, sender.clone()));
                    }
                });
                "http://app.example".into()
            }
        };
        drop(_inside);
        Recorder {
            url,
            received,
            _runtime: runtime,
        }
    }

    fn plain() -> Recorder {
        Recorder::start(&At::Tcp, false)
    }

    /// What has arrived until now.
    fn requests(&self) -> Vec<Recorded> {
        self.received.try_iter().collect()
    }

    /// The only request.
    #[track_caller]
    fn only(&self) -> Recorded {
        let requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests[0].clone()
    }
}

async fn answer<S>(stream: S, is_http2: bool, connection: usize, sender: Sender<Recorded>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: http::Request<Incoming>| {
        let sender = sender.clone();
        async move {
            let (head, body) = request.into_parts();
            let line = format!("{} {} {:?}", head.method, head.uri, head.version);
            let body = body.collect().await?.to_bytes();
            let _ = sender.send(Recorded {
                line,
                headers: head.headers,
                body,
                connection,
                at: Instant::now(),
            });
            let cookie = format!("user={connection}");
            let response = http::Response::builder().header("set-cookie", cookie);
            Ok::<_, hyper::Error>(response.body(Full::new(Bytes::from("hello"))).unwrap())
        }
    });
    let stream = TokioIo::new(stream);
    // A client that closes a connection may do so at any time.
    let _ = match is_http2 {
        true => {
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            builder.serve_connection(stream, service).await
        }
        false => {
            let builder = hyper::server::conn::http1::Builder::new();
            builder.serve_connection(stream, service).await
        }
    };
}

/// TLS with a certificate that no client trusts, for one protocol.
fn acceptor(is_http2: bool) -> TlsAcceptor {
    let issued = Authority::new("nobody trusts it").issue(&["127.0.0.1"]);
    let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let protocol: &[u8] = if is_http2 { b"h2" } else { b"http/1.1" };
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

#[test]
fn method_headers_and_body_arrive_as_named() {
    let server = Recorder::plain();
    let url = format!("{}/put?a=1", server.url);
    let headers = ["-H", "X-One: 1", "-H", "Content-Type:text/plain"];
    let body = ["--method", "PUT", "--body", "some text", "-n1", "-c1"];
    printed(&[&[url.as_str()], &headers[..], &body[..]].concat());
    let request = server.only();
    assert_eq!(request.line, "PUT /put?a=1 HTTP/1.1");
    assert_eq!(request.body, "some text");
    for (name, value) in [("x-one", "1"), ("content-type", "text/plain")] {
        assert_eq!(request.header(name), value, "{request:?}");
    }
}

#[test]
fn request_without_a_method_is_a_get_and_with_a_body_a_post() {
    let server = Recorder::plain();
    printed(&[&server.url, "-n1", "-c1"]);
    assert_eq!(server.only().line, "GET / HTTP/1.1");
    printed(&[&server.url, "-n1", "-c1", "--body", "a"]);
    let request = server.only();
    assert_eq!(
        (request.line.as_str(), &request.body[..]),
        ("POST / HTTP/1.1", &b"a"[..])
    );
    let form = "application/x-www-form-urlencoded";
    assert_eq!(request.header("content-type"), form);
}

/// Runs `surus bench` with bytes in its standard input, a pipe.
fn with_input(args: &[&str], input: &[u8]) -> (bool, String) {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_surus"));
    let output = run_with_input(bench.arg("bench").args(args), input);
    (output.status.success(), text(&output.stderr))
}

#[test]
fn body_from_a_pipe_is_sent_to_every_url() {
    let server = Recorder::plain();
    let urls = ["/a", "/b"].map(|path| format!("{}{path}", server.url));
    let [first, second] = urls.each_ref().map(String::as_str);
    let body = ["--body-file", "/dev/stdin", "-c1"];
    for command in [
        [&[first, second, "-n4"][..], &body].concat(),
        [
            &[
                "compare",
                first,
                second,
                "--rounds",
                "2",
                "-n2",
                "--warm-up",
                "1ms",
            ][..],
            &body,
        ]
        .concat(),
    ] {
        let (succeeded, said) = with_input(&command, b"from a pipe");
        assert!(succeeded, "{said}");
        let requests = server.requests();
        for path in ["POST /a ", "POST /b "] {
            let mut of_path = requests.iter().filter(|it| it.line.starts_with(path));
            assert!(of_path.clone().count() >= 2, "{path}: {requests:?}");
            assert!(of_path.all(|it| it.body == "from a pipe"), "{requests:?}");
        }
    }
}

#[test]
fn body_that_is_too_large_is_an_error() {
    let server = Recorder::plain();
    let args = [&server.url, "--body-file", "/dev/zero", "-n1"];
    let output = bench(&args);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    let error = "cannot read /dev/zero (--body-file): it is larger than 64 MiB";
    assert!(said.contains(error), "{said}");
    assert!(server.requests().is_empty());
}

#[test]
fn body_of_a_file_arrives_byte_by_byte() {
    let server = Recorder::plain();
    let file = tempfile::NamedTempFile::new().unwrap();
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    std::fs::write(file.path(), &bytes).unwrap();
    let file = file.path().to_str().unwrap();
    printed(&[&server.url, "--body-file", file, "-n1", "-c1"]);
    assert_eq!(server.only().body, bytes);
}

#[test]
fn http2_is_spoken_with_and_without_tls() {
    for at in [At::Tcp, At::Tls] {
        let server = Recorder::start(&at, true);
        let url = format!("{}/two", server.url);
        let out = printed(&[&url, "--http2", "--insecure", "--body", "b", "-n3", "-c1"]);
        assert!(out.contains("HTTP/2"), "{out}");
        let requests = server.requests();
        assert_eq!(requests.len(), 3);
        for request in requests {
            assert!(request.line.starts_with("POST ") && request.line.ends_with("/two HTTP/2.0"));
            assert_eq!((&request.body[..], request.connection), (&b"b"[..], 0));
        }
    }
}

#[test]
fn headers_of_connections_are_not_sent_over_http2() {
    let server = Recorder::start(&At::Tcp, true);
    let mut args = vec![
        server.url.as_str(),
        "--http2",
        "-n1",
        "-c1",
        "-H",
        "X-One: 1",
    ];
    for header in [
        "Upgrade: websocket",
        "Proxy-Connection: keep-alive",
        "Keep-Alive: 5",
    ] {
        args.extend(["-H", header]);
    }
    printed(&args);
    let request = server.only();
    assert_eq!(request.header("x-one"), "1");
    for name in ["upgrade", "proxy-connection", "keep-alive"] {
        assert!(!request.headers.contains_key(name), "{request:?}");
    }
}

#[test]
fn certificate_that_no_one_trusts_needs_insecure() {
    let server = Recorder::start(&At::Tls, false);
    let output = bench(&[&server.url, "-n1", "-c1"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&[output.stdout, output.stderr].concat());
    assert!(said.contains("certificate"), "{said}");
    assert!(server.requests().is_empty());
    printed(&[&server.url, "-n1", "-c1", "--insecure"]);
    assert_eq!(server.only().line, "GET / HTTP/1.1");
}

#[test]
fn unix_socket_gets_the_host_and_the_path_of_the_url() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("app.sock");
    let server = Recorder::start(&At::Unix(&socket), false);
    let url = format!("{}/there", server.url);
    printed(&[&url, "--unix", socket.to_str().unwrap(), "-n1", "-c1"]);
    let request = server.only();
    assert_eq!(request.line, "GET /there HTTP/1.1");
    assert_eq!(request.header("host"), "app.example");
}

#[test]
fn cookies_are_kept_by_connection_only_on_demand() {
    for is_http2 in [false, true] {
        let server = Recorder::start(&At::Tcp, is_http2);
        let mut args = vec![server.url.as_str(), "-n8", "-c2"];
        args.extend(is_http2.then_some("--http2"));
        printed(&args);
        assert!(
            server
                .requests()
                .iter()
                .all(|it| it.header("cookie").is_empty())
        );
        args.push("--cookies");
        printed(&args);
        let mut seen = Vec::new();
        for request in server.requests() {
            let own = format!("user={}", request.connection);
            let is_first = !seen.contains(&request.connection);
            let expected = if is_first { "" } else { own.as_str() };
            assert_eq!(request.header("cookie"), expected, "{request:?}");
            seen.push(request.connection);
        }
        assert_eq!(seen.len(), 8);
    }
}

#[test]
fn file_of_requests_is_sent_in_turn() {
    let server = Recorder::plain();
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut lines = String::new();
    let _ = writeln!(
        lines,
        "{{\"url\": \"/json\", \"method\": \"PATCH\", \"body\": \"x\"}}"
    );
    let _ = writeln!(lines, "-X DELETE -H 'X-Two: 2' /line");
    std::fs::write(file.path(), lines).unwrap();
    let file = file.path().to_str().unwrap();
    printed(&[&server.url, "--file", file, "-H", "X-All: 1", "-n2", "-c1"]);
    let requests = server.requests();
    let lines: Vec<_> = requests.iter().map(|it| it.line.as_str()).collect();
    assert_eq!(lines, ["PATCH /json HTTP/1.1", "DELETE /line HTTP/1.1"]);
    assert_eq!(requests[0].body, "x");
    assert_eq!(requests[1].header("x-two"), "2");
    assert!(
        requests.iter().all(|it| it.header("x-all") == "1"),
        "{requests:?}"
    );
}

#[test]
fn weights_of_urls_are_the_shares_of_requests() {
    let server = Recorder::plain();
    let (often, seldom) = (
        format!("{}/often@3", server.url),
        format!("{}/seldom", server.url),
    );
    printed(&[&often, &seldom, "-n8", "-c1"]);
    let requests = server.requests();
    let of = |path: &str| requests.iter().filter(|it| it.line.contains(path)).count();
    assert_eq!((of(" /often "), of(" /seldom ")), (6, 2), "{requests:?}");
}

#[test]
fn warm_up_longer_than_a_ramp_keeps_its_first_rate() {
    let server = Recorder::plain();
    let load = ["--rps", "20..200", "-d", "1s", "--warm-up", "2s", "-c", "4"];
    printed(&[&[server.url.as_str()][..], &load].concat());
    // 40 are due in the warm-up, and 110 in the second after it.
    let count = server.requests().len();
    assert!(count <= 150, "{count} requests");
}

#[test]
fn rate_that_rises_has_more_requests_due_in_its_second_half() {
    let server = Recorder::plain();
    let began = Instant::now();
    let args = [
        &server.url,
        "--rps",
        "10..190",
        "-d",
        "2s",
        "-c",
        "4",
        "--json",
    ];
    let out = printed(&args);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let due = &report["throughput"]["due"]["value"];
    assert!(
        (195.0..=205.0).contains(&due.as_f64().unwrap_or_default()),
        "{report}"
    );
    let requests = server.requests();
    // No request comes before it is due: 55 are due in the first second.
    let in_first = |it: &&Recorded| it.at.duration_since(began) < Duration::from_secs(1);
    assert!(
        requests.iter().filter(in_first).count() <= 60,
        "{requests:?}"
    );
}

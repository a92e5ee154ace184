//! Clients that keep connecting and asking over TLS while a test replaces certificates.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::Resumption;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::PATIENCE;
use crate::wire::Wire;

/// The requests on one connection: few on most, so that handshakes are frequent.
const KINDS: [Kind; 5] = [
    Kind::new(1, false, false),
    Kind::new(3, false, false),
    Kind::new(3, true, false),
    Kind::new(usize::MAX, false, false),
    Kind::new(3, false, true),
];

#[derive(Clone, Copy)]
struct Kind {
    requests: usize,
    resumes: bool,
    is_http2: bool,
}

impl Kind {
    const fn new(requests: usize, resumes: bool, is_http2: bool) -> Kind {
        Kind {
            requests,
            resumes,
            is_http2,
        }
    }
}

/// A client that fails ends with a panic, which [`Load::stop`] passes on.
pub struct Load {
    is_over: Arc<AtomicBool>,
    clients: Vec<(Arc<AtomicUsize>, JoinHandle<()>)>,
}

impl Load {
    /// Clients with this configuration, which trust the certificates of before and after.
    pub fn start(address: &str, host: &'static str, config: &ClientConfig) -> Load {
        let is_over = Arc::new(AtomicBool::new(false));
        let clients = KINDS.map(|kind| {
            let mut config = config.clone();
            if !kind.resumes {
                config.resumption = Resumption::disabled();
            }
            if kind.is_http2 {
                config.alpn_protocols = vec![b"h2".to_vec()];
            }
            let (address, config) = (address.to_owned(), Arc::new(config));
            let (answered, is_over) = (Arc::new(AtomicUsize::new(0)), is_over.clone());
            let counted = answered.clone();
            let client = thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    match kind.is_http2 {
                        true => connect_by_http2(&address, host, &config, kind.requests, &counted),
                        false => {
                            connect(&address, host, &config, kind.requests, &counted, &is_over);
                        }
                    }
                }
            });
            (answered, client)
        });
        let load = Load {
            is_over,
            clients: clients.into(),
        };
        load.proceed();
        load
    }

    /// Returns when each client has had five more answers, or has failed.
    pub fn proceed(&self) {
        let began = Instant::now();
        for (answered, client) in &self.clients {
            let before = answered.load(Ordering::Relaxed);
            while answered.load(Ordering::Relaxed) < before + 5 && !client.is_finished() {
                assert!(began.elapsed() < 3 * PATIENCE, "a client is not answered");
                thread::sleep(Duration::from_millis(5));
            }
        }
    }

    /// Fails if any client was not answered.
    pub fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for (answered, client) in self.clients {
            client.join().unwrap();
            assert!(answered.load(Ordering::Relaxed) > 0);
        }
    }
}

/// Makes requests on one connection. A server may close it after an answer that says so.
fn connect(
    address: &str,
    host: &'static str,
    config: &Arc<ClientConfig>,
    requests: usize,
    answered: &AtomicUsize,
    is_over: &AtomicBool,
) {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_nodelay(true).unwrap();
    let client = ClientConnection::new(config.clone(), host.try_into().unwrap()).unwrap();
    let mut wire = Wire::over(StreamOwned::new(client, socket));
    for number in 0..requests {
        let get = format!("GET /index.php?number={number} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = wire.ask(&get);
        let answer = answer.unwrap_or_else(|| panic!("request {number} of a connection is lost"));
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.seen("HTTPS"), "on");
        answered.fetch_add(1, Ordering::Relaxed);
        if is_over.load(Ordering::Relaxed) || answer.header("connection") == Some("close") {
            return;
        }
    }
}

/// Makes requests on one connection of HTTP/2.
fn connect_by_http2(
    address: &str,
    host: &'static str,
    config: &Arc<ClientConfig>,
    requests: usize,
    answered: &AtomicUsize,
) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let asked = async {
        let socket = tokio::net::TcpStream::connect(address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(config.clone());
        let stream = connector.connect(host.try_into().unwrap(), socket).await;
        let stream = TokioIo::new(stream.unwrap());
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream)
            .await
            .unwrap();
        tokio::spawn(connection);
        for number in 0..requests {
            let url = format!("https://{host}/index.php?number={number}");
            let get = http::Request::get(url).body(Empty::<Bytes>::new()).unwrap();
            let answer = sender.send_request(get).await.unwrap();
            assert_eq!(answer.status(), 200);
            answer.into_body().collect().await.unwrap();
            answered.fetch_add(1, Ordering::Relaxed);
        }
    };
    runtime
        .block_on(async { tokio::time::timeout(PATIENCE, asked).await })
        .unwrap();
}

//! Limits of HTTP/3: headers, slow clients, idle connections.

use std::sync::{Arc, Mutex};

use rustls::NamedGroup;
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::pki_types::ServerName;

use super::client::{Client, PATIENCE, get, quic, quic_at, request, serve_h3};
use crate::wire::{Wire, site};

#[tokio::test]
async fn oversized_headers_are_rejected() {
    let dir = site();
    let secure = serve_h3(dir.path(), &[("SURUS_HTTP_MAX_HEADER_SIZE", "8K")]);
    let mut client = Client::connect(&secure).await;
    let large = request("GET", "/index.php").header("x", "y".repeat(9000));
    // The client does not send more than the server says that it takes, once it knows.
    match client.ask(large.body(()).unwrap(), b"").await {
        Ok(answer) => assert_eq!(answer.status(), 431),
        Err(error) => assert!(matches!(error, h3::error::StreamError::HeaderTooBig { .. })),
    }
    let mut many = request("GET", "/index.php");
    for number in 0..101 {
        many = many.header("x", number);
    }
    let many = client.ask(many.body(()).unwrap(), b"").await.unwrap();
    assert_eq!(many.status(), 431);
    assert_eq!(client.get("/index.php").await.status(), 200);
}

#[tokio::test]
async fn endless_header_section_is_not_kept() {
    let dir = site();
    let secure = serve_h3(dir.path(), &[]);
    let config = secure.config(&[&rustls::version::TLS13]);
    let (_endpoint, connection) = quic(&secure, config).await.unwrap();
    // A frame of headers, and one of an unknown type, each of a gigabyte.
    for kind in [0x01, 0x21] {
        let (mut send, _receive) = connection.open_bi().await.unwrap();
        send.write_all(&[kind, 0xc0, 0, 0, 0, 0x40, 0, 0, 0])
            .await
            .unwrap();
        let piece = [0; 10_000];
        let stopped = async {
            // 100 MB: the rest of the gigabyte would only take longer.
            for _ in 0..10_000 {
                if send.write_all(&piece).await.is_err() {
                    return true;
                }
            }
            false
        };
        let stopped = tokio::time::timeout(PATIENCE, stopped).await.unwrap();
        assert!(stopped, "{kind}");
    }
    let mut client = Client::connect(&secure).await;
    assert_eq!(client.get("/index.php").await.status(), 200);
}

#[tokio::test]
async fn incomplete_header_sections_of_a_connection_are_bounded_together() {
    let dir = site();
    let secure = serve_h3(dir.path(), &[]);
    let config = secure.config(&[&rustls::version::TLS13]);
    let (_endpoint, connection) = quic(&secure, config).await.unwrap();
    let mut sends = Vec::new();
    // Each is far below what one request may keep.
    for _ in 0..30 {
        let (mut send, receive) = connection.open_bi().await.unwrap();
        send.write_all(&[1, 0x80, 1, 0, 0]).await.unwrap();
        send.write_all(&[0; 25_000]).await.unwrap();
        sends.push((send, receive));
    }
    let stopped = sends
        .iter_mut()
        .map(|(send, _)| Box::pin(async move { send.stopped().await }));
    let any = futures_util::future::select_all(stopped);
    let (code, ..) = tokio::time::timeout(PATIENCE, any).await.unwrap();
    let excessive_load = h3::error::Code::H3_EXCESSIVE_LOAD.value();
    assert_eq!(
        code.unwrap().map(|code| code.into_inner()),
        Some(excessive_load)
    );
    let mut client = Client::connect(&secure).await;
    assert_eq!(client.get("/index.php").await.status(), 200);
}

#[tokio::test]
async fn incomplete_header_section_is_reset_after_the_timeout() {
    let dir = site();
    let secure = serve_h3(dir.path(), &[("SURUS_HTTP_HEADER_TIMEOUT", "300ms")]);
    let config = secure.config(&[&rustls::version::TLS13]);
    let (_endpoint, connection) = quic(&secure, config).await.unwrap();
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    send.write_all(&[1, 100, 0]).await.unwrap();
    let answer = tokio::time::timeout(PATIENCE, receive.read_to_end(100)).await;
    assert!(answer.unwrap().is_err());
}

#[tokio::test]
async fn stalled_client_releases_its_worker() {
    let dir = site();
    let env = [
        ("SURUS_HTTP_SEND_TIMEOUT", "500ms"),
        ("SURUS_HTTP_MAX_RESPONSE_BUFFER", "0"),
    ];
    let mut secure = serve_h3(dir.path(), &env);
    for is_after_a_rest in [false, true] {
        let mut client = Client::connect(&secure).await;
        if is_after_a_rest {
            assert_eq!(client.get("/index.php").await.status(), 200);
            // Now the connection is checked only when it has been idle for too long.
            tokio::time::sleep(std::time::Duration::from_millis(900)).await;
        }
        let mut stalled = client.send(get("/?mib=100"), b"").await.unwrap();
        assert_eq!(stalled.recv_response().await.unwrap().status(), 200);
        // There is one worker: when this is answered, the stalled request has been aborted.
        let (returned, status) = tokio::task::spawn_blocking(move || {
            let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
            let answer = Wire::connect(&secure.surus).ask(get).unwrap();
            (secure, answer.status)
        })
        .await
        .unwrap();
        secure = returned;
        assert_eq!(status, 200, "{}", secure.surus.log());
        let rest = async { while stalled.recv_data().await.is_ok_and(|data| data.is_some()) {} };
        tokio::time::timeout(PATIENCE, rest).await.unwrap();
    }
}

#[tokio::test]
async fn slow_script_does_not_time_out_its_connection() {
    let dir = site();
    let secure = serve_h3(dir.path(), &[("SURUS_HTTP_SEND_TIMEOUT", "200ms")]);
    let mut client = Client::connect(&secure).await;
    assert_eq!(client.get("/?drip=5").await.body, b"drip".repeat(5));
}

#[tokio::test]
async fn idle_connection_is_closed_without_an_error() {
    let dir = site();
    let secure = serve_h3(dir.path(), &[("SURUS_HTTP_KEEP_ALIVE_TIMEOUT", "300ms")]);
    let mut client = Client::connect(&secure).await;
    // It may be idle for so long before its request arrives.
    let _ = client.ask(get("/index.php"), b"").await;
    let closed = tokio::time::timeout(PATIENCE, client.quic.closed());
    let closed = closed.await.unwrap();
    let quinn::ConnectionError::ApplicationClosed(close) = closed else {
        panic!("{closed}");
    };
    assert_eq!(close.error_code.into_inner(), 0x100);
}

#[tokio::test]
async fn more_connections_than_the_limit_replace_idle_ones() {
    let dir = site();
    let secure = serve_h3(dir.path(), &[("SURUS_HTTP_MAX_CONNECTIONS", "2")]);
    let mut clients = Vec::new();
    for _ in 0..4 {
        // Idle connections are replaced once they have been idle for a while.
        let config = || secure.config(&[&rustls::version::TLS13]);
        let began = std::time::Instant::now();
        let mut client = loop {
            match Client::connect_by(&secure, config()).await {
                Ok(client) => break client,
                Err(error) if began.elapsed() > PATIENCE => panic!("{error:?}"),
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            }
        };
        assert_eq!(client.get("/index.php").await.status(), 200);
        clients.push(client);
    }
    let first = tokio::time::timeout(PATIENCE, clients[0].quic.closed()).await;
    assert!(first.is_ok());
}

#[tokio::test]
async fn addresses_are_validated_when_many_handshakes_are_open() {
    let dir = site();
    let env = [
        ("SURUS_TLS_MAX_HANDSHAKES", "4"),
        ("SURUS_LOG_LEVEL", "debug"),
    ];
    let secure = serve_h3(dir.path(), &env);
    let retried = |log: &str| log.contains("its address is not forged");
    let mut client = Client::connect(&secure).await;
    assert_eq!(client.get("/index.php").await.status(), 200);
    assert!(!retried(&secure.surus.log()));
    // A client that begins a handshake and gets no answer: a quarter of the limit.
    let relay = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let config = secure.config(&[&rustls::version::TLS13]);
    let begun = tokio::spawn(quic_at(relay.local_addr().unwrap(), config));
    let mut packet = [0; 2000];
    let size = relay.recv(&mut packet).await.unwrap();
    relay
        .send_to(&packet[..size], &secure.address)
        .await
        .unwrap();
    let open = "surus_connections ";
    while secure.metric(dir.path(), open) < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let mut client = Client::connect(&secure).await;
    assert_eq!(client.get("/index.php").await.status(), 200);
    secure.surus.wait_for_log(retried);
    begun.abort();
}

#[tokio::test]
async fn forged_address_does_not_close_an_idle_connection() {
    let dir = site();
    let env = [
        ("SURUS_HTTP_MAX_CONNECTIONS", "2"),
        ("SURUS_LOG_LEVEL", "debug"),
    ];
    let secure = serve_h3(dir.path(), &env);
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(&secure).await;
        assert_eq!(client.get("/index.php").await.status(), 200);
        clients.push(client);
    }
    // Idle for so long that a new connection could replace one.
    tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    // A first packet whose sender never gets the answer.
    let relay = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let config = secure.config(&[&rustls::version::TLS13]);
    let begun = tokio::spawn(quic_at(relay.local_addr().unwrap(), config));
    let mut packet = [0; 2000];
    let size = relay.recv(&mut packet).await.unwrap();
    relay
        .send_to(&packet[..size], &secure.address)
        .await
        .unwrap();
    secure
        .surus
        .wait_for_log(|log| log.contains("its address is not forged"));
    for client in &mut clients {
        assert_eq!(client.get("/index.php").await.status(), 200);
    }
    begun.abort();
}

/// How much early data (0-RTT) each session ticket permits.
#[derive(Debug, Default)]
struct Tickets(Mutex<Vec<u32>>);

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}
    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }
    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}
    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }
    fn remove_tls12_session(&self, _: &ServerName<'static>) {}
    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut tickets = self.0.lock().unwrap();
        tickets.push(ticket.max_early_data_size());
    }
    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        None
    }
}

/// An attacker could send it again.
#[tokio::test]
async fn early_data_is_not_permitted() {
    let dir = site();
    let secure = serve_h3(dir.path(), &[]);
    let tickets = Arc::new(Tickets::default());
    let mut config = secure.config(&[&rustls::version::TLS13]);
    config.enable_early_data = true;
    config.resumption = Resumption::store(tickets.clone());
    let mut client = Client::connect_by(&secure, config).await.unwrap();
    assert_eq!(client.get("/index.php").await.status(), 200);
    let began = std::time::Instant::now();
    let permitted = loop {
        let tickets = tickets.0.lock().unwrap().clone();
        if !tickets.is_empty() {
            break tickets;
        }
        assert!(began.elapsed() < PATIENCE, "no ticket has come");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    assert!(permitted.iter().all(|size| *size == 0), "{permitted:?}");
}

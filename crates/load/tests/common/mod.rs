//! Scripted servers: each connection is a thread that runs a closure.
#![allow(dead_code, clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use surus_load::{Mix, Plan, Request, RunOutcome, Stop, Url};

/// Serves connections until the test process ends.
pub fn serve(script: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let script = Arc::new(script);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let script = script.clone();
            std::thread::spawn(move || script(stream.unwrap()));
        }
    });
    address
}

/// Serves requests without bodies: `answer` gets each header section, and returns bytes to send;
/// `None` closes the connection.
pub fn answer(answer: impl Fn(&str) -> Option<Vec<u8>> + Send + Sync + 'static) -> SocketAddr {
    serve(move |mut stream| {
        stream.set_nodelay(true).unwrap();
        while let Some(request) = header_section(&mut stream) {
            match answer(&request) {
                Some(bytes) if stream.write_all(&bytes).is_ok() => {}
                _ => break,
            }
        }
    })
}

/// Reads a header section; `None` at the end of the connection.
pub fn header_section(stream: &mut TcpStream) -> Option<String> {
    let mut section = Vec::new();
    let mut byte = [0];
    while !section.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        section.push(byte[0]);
    }
    Some(String::from_utf8_lossy(&section).into_owned())
}

pub fn response(status: u16, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let section = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n{headers}\r\n");
    [section.as_bytes(), body.as_bytes()].concat()
}

pub fn ok(_: &str) -> Option<Vec<u8>> {
    Some(response(200, "", "hello"))
}

/// A plan of `count` requests over few connections.
pub fn plan(address: SocketAddr, count: u64) -> Plan {
    let url = Url::parse(&format!("http://{address}/")).unwrap();
    plan_of(&[Request::get(url)], count)
}

pub fn plan_of(requests: &[Request], count: u64) -> Plan {
    Plan {
        concurrency: 4,
        stop: Stop::Requests(count),
        timeout: Duration::from_secs(60),
        ..Plan::new(Mix::new(requests, true).unwrap())
    }
}

pub fn run(plan: &Plan) -> RunOutcome {
    surus_load::run(plan, None, std::future::pending()).unwrap()
}

/// An HTTP/2 server. `/reset` resets its stream, `/silent` never answers, others get 100 kB. After
/// `/leave`, it ends the connection by a GOAWAY without an error. `/cookie` sets a cookie in
/// Latin-1, and is 401 without it.
/// `secure` makes a connection's stream of its socket.
pub fn http2<S, F>(secure: impl Fn(tokio::net::TcpStream) -> F + Send + 'static) -> SocketAddr
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = S> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                let stream = secure(tcp);
                tokio::spawn(async move { answer_http2(stream.await).await });
            }
        });
    });
    address
}

async fn answer_http2(stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    let mut silent = Vec::new();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        match request.uri().path() {
            "/reset" => respond.send_reset(h2::Reason::INTERNAL_ERROR),
            "/silent" => silent.push(respond),
            "/cookie" => {
                let cookie = http::HeaderValue::from_bytes(b"name=Jos\xe9").unwrap();
                let has_it = request.headers().get("cookie") == Some(&cookie);
                let response = http::Response::builder().header("set-cookie", cookie);
                let response = response
                    .status(if has_it { 200 } else { 401 })
                    .body(())
                    .unwrap();
                respond.send_response(response, true).unwrap();
            }
            path => {
                if path == "/leave" {
                    connection.graceful_shutdown();
                }
                let response = http::Response::new(());
                let mut body = respond.send_response(response, false).unwrap();
                let _ = body.send_data(vec![b'x'; 100_000].into(), true);
            }
        }
    }
}

/// An HTTP/2 server that ends each connection after one response: at once, or only when the next
/// request has come.
pub fn http2_ending(crosses: bool) -> SocketAddr {
    serve(move |stream| answer_once_over_http2(stream, crosses))
}

/// Answers the first request with 200 and a GOAWAY, as nginx does after `keepalive_requests`, and
/// none after it. If the GOAWAY crosses a request, it is sent once that has come.
fn answer_once_over_http2(mut stream: TcpStream, crosses: bool) {
    const HEADERS: u8 = 1;
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).unwrap();
    let until_request = |mut stream: &TcpStream| {
        let mut frame = [0; 9];
        while frame[3] != HEADERS {
            stream.read_exact(&mut frame)?;
            let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]);
            stream.read_exact(&mut vec![0; length as usize])?;
        }
        std::io::Result::Ok(())
    };
    until_request(&stream).unwrap();
    let answer = [
        // SETTINGS, and the acknowledgement of the client's.
        &[0, 0, 0, 4, 0, 0, 0, 0, 0][..],
        &[0, 0, 0, 4, 1, 0, 0, 0, 0],
        // HEADERS of stream 1, which they end: `:status: 200`.
        &[0, 0, 1, HEADERS, 5, 0, 0, 0, 1, 0x88],
    ];
    stream.write_all(&answer.concat()).unwrap();
    // The run may have ended.
    if crosses && until_request(&stream).is_err() {
        return;
    }
    // GOAWAY with the last stream 1 and NO_ERROR.
    let leave = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    stream.write_all(&leave).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
}

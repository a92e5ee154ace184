//! A client that sends exactly the given bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};

use crate::common::Surus;

/// Prints the request as JSON; `?status=`, `?mib=` and `?drip=` choose the response. `?until=`
/// names a file that it waits for.
const INDEX: &str = r#"<?php
$query = $_GET;
http_response_code((int) ($query['status'] ?? 200));
if (isset($query['mib'])) {
    $piece = str_repeat('x', 1 << 20);
    for ($i = 0; $i < $query['mib']; $i++) {
        echo $piece;
        flush();
    }
    exit;
}
if (isset($query['drip'])) {
    for ($i = 0; $i < $query['drip']; $i++) {
        usleep(300000);
        echo 'drip';
        flush();
    }
    exit;
}
if (isset($query['until'])) {
    error_log('begun');
    while (!file_exists(__DIR__.'/'.$query['until'])) {
        usleep(1000);
        clearstatcache();
    }
}
if (isset($query['sleep'])) {
    error_log('begun');
    usleep($query['sleep'] * 1000);
    error_log('slept');
}
header('Content-Type: application/json');
$flags = JSON_UNESCAPED_SLASHES | JSON_INVALID_UTF8_SUBSTITUTE;
echo json_encode(['body' => file_get_contents('php://input')] + $_SERVER, $flags);
"#;

/// A directory with one script that answers everything, and a static file.
pub fn site() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("index.php"), INDEX).unwrap();
    std::fs::write(dir.path().join("static.txt"), "static").unwrap();
    dir
}

/// Serves the site with `settings` of `[http]` and one worker.
pub fn serve(dir: &Path, settings: &[(&str, &str)]) -> Surus {
    let names: Vec<String> = settings
        .iter()
        .map(|(name, _)| format!("SURUS_HTTP_{}", name.to_ascii_uppercase()))
        .collect();
    let mut env: Vec<(&str, &str)> = names
        .iter()
        .zip(settings)
        .map(|(name, (_, value))| (name.as_str(), *value))
        .collect();
    env.push(("SURUS_ENGINE_WORKERS", "1"));
    Surus::spawn(dir, &[], &env).unwrap_or_else(|log| panic!("surus did not start:\n{log}"))
}

pub struct Wire {
    stream: Box<dyn Stream>,
    read: Vec<u8>,
}

/// A socket, or TLS over it.
pub trait Stream: Read + Write {
    fn socket(&self) -> &TcpStream;
}

impl Stream for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Stream for StreamOwned<ClientConnection, TcpStream> {
    fn socket(&self) -> &TcpStream {
        &self.sock
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// What PHP saw of the request.
    pub fn seen(&self, name: &str) -> String {
        let seen: serde_json::Value =
            serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        match &seen[name] {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

/// Far more than anything should take.
const PATIENCE: Duration = Duration::from_secs(60);

impl Wire {
    pub fn connect(surus: &Surus) -> Wire {
        Wire::to(&surus.address)
    }

    pub fn to(address: &str) -> Wire {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Wire::over(stream)
    }

    /// A connection that has had one response, to GET. A server whose `keep_alive_timeout` is short
    /// may close a connection before its first request arrives, so others are tried.
    pub fn answered(surus: &Surus) -> Wire {
        let answered = (0..100).find_map(|_| {
            let mut wire = Wire::connect(surus);
            let answer = wire.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n")?;
            assert_eq!(answer.status, 200);
            Some(wire)
        });
        answered.expect("a response")
    }

    pub fn over(stream: impl Stream + 'static) -> Wire {
        Wire {
            stream: Box::new(stream),
            read: Vec::new(),
        }
    }

    /// The other end may have closed already; only its response counts.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    pub fn close_sending(&mut self) {
        self.stream.socket().shutdown(Shutdown::Write).unwrap();
    }

    /// The next response, 1xx included. None if the connection has ended.
    pub fn answer(&mut self) -> Option<Answer> {
        self.answer_to("GET")
    }

    pub fn answer_to(&mut self, method: &str) -> Option<Answer> {
        let end = loop {
            if let Some(at) = find(&self.read, b"\r\n\r\n") {
                break at + 4;
            }
            if self.more() == 0 {
                assert!(self.read.is_empty(), "cut off: {:?}", text(&self.read));
                return None;
            }
        };
        let head = text(&self.read.drain(..end).collect::<Vec<_>>());
        let status = head[9..12]
            .parse()
            .unwrap_or_else(|_| panic!("no status: {head:?}"));
        let mut answer = Answer {
            status,
            head,
            body: Vec::new(),
        };
        let has_body = method != "HEAD" && status >= 200 && status != 204 && status != 304;
        if !has_body {
            return Some(answer);
        }
        if let Some(len) = answer.header("content-length") {
            let len = len.parse().unwrap();
            answer.body = self.take(len);
        } else if answer.header("transfer-encoding").is_some() {
            loop {
                let line = self.line();
                let len = usize::from_str_radix(&line, 16).unwrap();
                answer.body.extend(self.take(len));
                assert_eq!(self.line(), "");
                if len == 0 {
                    break;
                }
            }
        } else {
            while self.more() > 0 {}
            answer.body = std::mem::take(&mut self.read);
        }
        Some(answer)
    }

    /// Sends a request and returns the response.
    pub fn ask(&mut self, request: &str) -> Option<Answer> {
        self.send(request);
        self.answer()
    }

    /// Waits for the first bytes of a response without reading them.
    pub fn begins(&mut self) {
        assert!(self.more() > 0);
    }

    /// Whether bytes of the other end, or its end, can be read at once. Not for TLS.
    pub fn can_read(&self) -> bool {
        let socket = self.stream.socket();
        socket.set_nonblocking(true).unwrap();
        let found = socket.peek(&mut [0]);
        socket.set_nonblocking(false).unwrap();
        !matches!(found, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Everything until the other end closes; panics if it does not.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.more() > 0 {}
        std::mem::take(&mut self.read)
    }

    fn take(&mut self, len: usize) -> Vec<u8> {
        while self.read.len() < len {
            assert!(self.more() > 0, "cut off: {:?}", text(&self.read));
        }
        self.read.drain(..len).collect()
    }

    fn line(&mut self) -> String {
        let end = loop {
            if let Some(at) = find(&self.read, b"\r\n") {
                break at;
            }
            assert!(self.more() > 0, "cut off: {:?}", text(&self.read));
        };
        let line = text(&self.read[..end]);
        self.read.drain(..end + 2);
        line
    }

    /// Reads once; 0 at the end or after a reset.
    fn more(&mut self) -> usize {
        let mut piece = [0; 64 * 1024];
        match self.stream.read(&mut piece) {
            Ok(n) => {
                self.read.extend_from_slice(&piece[..n]);
                n
            }
            // TLS also writes while it reads.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => 0,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            // The end comes during a TLS handshake; later ones have a text of rustls.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof && error.get_ref().is_none() => {
                0
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => self.more(),
            Err(error) => {
                let end = &self.read[self.read.len().saturating_sub(200)..];
                panic!("{error}; last read: {:?}", text(end))
            }
        }
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(haystack, needle)
}

#[test]
fn unencoded_request_target_reaches_php_encoded() {
    let dir = site();
    let surus = serve(dir.path(), &[]);
    let mut wire = Wire::connect(&surus);
    // On one connection, with and without bodies in between.
    for (sent, seen) in [
        (&b"{\"a\":1}"[..], "{%22a%22:1}"),
        (b"<>`^|\\", "%3C%3E%60^|\\"),
        (b"\xe9", "%E9"),
        (b"\xc3\xa9", "%C3%A9"),
        (b"a#b\"", "a"),
    ] {
        for rest in [
            "\r\n",
            "Content-Length: 6\r\n\r\n/\" \r\n\n",
            "Transfer-Encoding: chunked\r\n\r\n1\r\n\"\r\n0\r\n\r\n",
        ] {
            let method = if rest.len() == 2 { "GET" } else { "POST" };
            wire.send(format!("{method} /?q="));
            wire.send(sent);
            wire.send(format!(" HTTP/1.1\r\nHost: a\r\n{rest}"));
            let answer = wire.answer().unwrap();
            assert_eq!(answer.status, 200, "{seen} {rest}");
            assert_eq!(answer.seen("QUERY_STRING"), format!("q={seen}"));
            assert_eq!(answer.seen("REQUEST_URI"), format!("/?q={seen}"));
        }
    }
    for refused in [
        "GET /\0 HTTP/1.1",
        "GET /?a\x7f HTTP/1.1",
        "GET /a b HTTP/1.1",
        "GET /\t HTTP/1.1",
    ] {
        let answer = Wire::connect(&surus).ask(&format!("{refused}\r\nHost: a\r\n\r\n"));
        assert_eq!(answer.unwrap().status, 400, "{refused:?}");
    }
}

//! A listener that records the random parts of a client's first bytes and disconnects.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Heard = Arc<Mutex<Vec<(String, String)>>>;

pub struct Listener {
    name: &'static str,
    port: u16,
    heard: Heard,
}

impl Listener {
    /// Runs until the end of the test. `name` identifies the client.
    pub fn start(name: &'static str) -> Listener {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let heard = Heard::default();
        let notes = heard.clone();
        std::thread::spawn(move || {
            for stream in socket.incoming() {
                let values = listen(&stream.unwrap(), name);
                notes.lock().unwrap().extend(values);
            }
        });
        Listener { name, port, heard }
    }

    /// The query parameter that tells the script where to connect.
    pub fn query(&self) -> String {
        format!("{}={}", self.name, self.port)
    }

    pub fn heard(&self) -> Vec<(String, String)> {
        self.heard.lock().unwrap().clone()
    }
}

fn listen(mut stream: &TcpStream, name: &str) -> Vec<(String, String)> {
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let mut start = [0; 5];
    if stream.read_exact(&mut start).is_err() {
        return Vec::new();
    }
    // A TLS record of type handshake.
    if start[0] == 22 {
        let mut record = vec![0; usize::from(u16::from_be_bytes([start[3], start[4]]))];
        if stream.read_exact(&mut record).is_err() {
            return Vec::new();
        }
        return client_hello(&record, name);
    }
    let mut text = start.to_vec();
    let mut piece = [0; 4096];
    while !text.ends_with(b"--\r\n") {
        match stream.read(&mut piece) {
            Ok(n) if n > 0 => text.extend(&piece[..n]),
            _ => break,
        }
    }
    let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    let text = String::from_utf8_lossy(&text).into_owned();
    let boundary = text
        .split("boundary=")
        .nth(1)
        .and_then(|rest| rest.lines().next());
    let source = format!("form boundary ({name})");
    boundary
        .map(|value| (source, value.trim_start_matches('-').to_string()))
        .into_iter()
        .collect()
}

/// RFC 8446, 4.1.2: a type and a four-byte length, a two-byte version, the random and the session
/// id.
fn client_hello(record: &[u8], name: &str) -> Vec<(String, String)> {
    assert_eq!(
        record[0], 1,
        "the first message of a TLS client is its hello"
    );
    let mut at = 6;
    let mut take = |length: usize| {
        at += length;
        &record[at - length..at]
    };
    let mut values = vec![(format!("TLS random ({name})"), hex(take(32)))];
    let length = take(1)[0];
    let session = take(length.into());
    if !session.is_empty() {
        values.push((format!("TLS session id ({name})"), hex(session)));
    }
    let ciphers = u16::from_be_bytes(take(2).try_into().unwrap());
    take(ciphers.into());
    let compressions = take(1)[0];
    take(compressions.into());
    take(2);
    while at < record.len() {
        let head = &record[at..at + 4];
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let content = &record[at + 4..at + 4 + length];
        at += 4 + length;
        // key_share: the public half of a key for this connection.
        if head[..2] == [0, 51] {
            values.push((format!("TLS key share ({name})"), hex(content)));
        }
    }
    values
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

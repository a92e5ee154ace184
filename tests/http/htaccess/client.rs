//! Sends requests and keeps the comparable parts of the responses.

use std::fmt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The comparable parts of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// The location of a redirect, without this server's own address.
    pub location: String,
    /// The body of a successful response.
    pub body: String,
    /// The `Content-Type` of a successful response, without its parameters.
    pub media_type: String,
}

impl Answer {
    pub fn is_run(&self) -> bool {
        self.body.starts_with("RUN ")
    }

    /// It contains PHP source code.
    pub fn is_source(&self) -> bool {
        self.body.contains("<?php")
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = format!("{} {}{}", self.status, self.location, self.body);
        f.write_str(said.trim_end())?;
        match self.media_type.as_str() {
            "" => Ok(()),
            media_type => write!(f, " as {media_type}"),
        }
    }
}

/// Sends `METHOD /path | Header: value`; `GET` is the default.
pub fn ask(address: &str, host: &str, request: &str) -> Answer {
    let mut parts = request.split(" | ");
    let line = parts.next().unwrap();
    let (method, path) = match line.split_once(' ') {
        Some((method, path)) => (method, path),
        None => ("GET", line),
    };
    let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    let mut host = host;
    for header in parts {
        if let Some(named) = header.strip_prefix("Host: ") {
            host = named;
            continue;
        }
        text.push_str(&format!("{header}\r\n"));
    }
    text.push_str(&format!("Host: {host}\r\n"));
    if !matches!(method, "GET" | "HEAD") {
        text.push_str("Content-Length: 0\r\n");
    }
    text.push_str("\r\n");
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    // 0: the server closed the connection.
    let status = status.unwrap_or("0");
    let headers: Vec<(String, &str)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect();
    let header = |name: &str| {
        let found = headers.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value)
    };
    let status = status.parse().unwrap();
    let body = match header("transfer-encoding") {
        "chunked" => dechunk(body),
        _ => body.to_owned(),
    };
    let location = header("location");
    let own = format!("http://{host}");
    Answer {
        status,
        location: match (300..400).contains(&status) {
            true => same_digits(location.strip_prefix(&own).unwrap_or(location)),
            false => String::new(),
        },
        body: match status {
            200 => body.trim_end().to_owned(),
            _ => String::new(),
        },
        // RFC 9110, 8.3: what a client may assume without the header.
        media_type: match (status, header("content-type").split(';').next()) {
            (200, Some("") | None) => "application/octet-stream".to_owned(),
            (200, Some(media_type)) => media_type.to_ascii_lowercase(),
            _ => String::new(),
        },
    }
}

/// Percent-encodings in upper case: Apache writes lower case.
fn same_digits(url: &str) -> String {
    let mut parts = url.split('%');
    let mut same = parts.next().unwrap().to_owned();
    for part in parts {
        let end = part.len().min(2);
        same.push('%');
        match part.is_char_boundary(end) {
            true => same.push_str(&(part[..end].to_ascii_uppercase() + &part[end..])),
            false => same.push_str(part),
        }
    }
    same
}

fn dechunk(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        whole.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}

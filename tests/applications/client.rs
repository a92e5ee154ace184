//! A client with cookies that shows each response as it is, redirects included.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use regex::Regex;

use super::case::Case;

/// The host that all servers are asked for, so that their pages have the same URLs.
const HOST: &str = "app.test";

pub struct Client {
    address: String,
    cookies: BTreeMap<String, String>,
    page: String,
}

pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Client {
    pub fn new(address: &str) -> Client {
        Client {
            address: address.to_string(),
            cookies: BTreeMap::new(),
            page: String::new(),
        }
    }

    /// Sends `METHOD /path` or `POST /path form`.
    pub fn ask(&mut self, request: &str) -> Answer {
        let mut words = request.splitn(3, ' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let form = words.next().map(|form| self.filled(form));
        let cookies: Vec<_> = self
            .cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n");
        if !cookies.is_empty() {
            write!(head, "Cookie: {}\r\n", cookies.join("; ")).unwrap();
        }
        if let Some(form) = &form {
            let length = form.len();
            write!(
                head,
                "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n"
            )
            .unwrap();
        }
        let answer = send(
            &self.address,
            &format!("{head}\r\n{}", form.unwrap_or_default()),
            method,
        );
        for (_, cookie) in answer
            .headers
            .iter()
            .filter(|(name, _)| name == "set-cookie")
        {
            let pair = cookie.split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match value {
                "" | "deleted" => self.cookies.remove(name),
                value => self.cookies.insert(name.to_string(), value.to_string()),
            };
        }
        self.page = String::from_utf8_lossy(&answer.body).into_owned();
        answer
    }

    /// The form with the values that the last page's inputs have.
    fn filled(&self, form: &str) -> String {
        let named = Regex::new(r"\{([^}]+)\}").unwrap();
        let filled = named.replace_all(form, |found: &regex::Captures| {
            let name = regex::escape(&found[1]);
            let inputs = Regex::new(r"<input\b[^>]*>").unwrap();
            let is_it = Regex::new(&format!(r#"\sname=["']?{name}["'\s]"#)).unwrap();
            let value = Regex::new(r#"\svalue=["']([^"']*)["']"#).unwrap();
            let input = inputs
                .find_iter(&self.page)
                .find(|input| is_it.is_match(input.as_str()));
            let input = input.unwrap_or_else(|| panic!("no input {} in\n{}", &found[1], self.page));
            let value = value
                .captures(input.as_str())
                .map_or("", |value| value.get(1).unwrap().as_str());
            percent(&value.replace("&amp;", "&"))
        });
        filled.into_owned()
    }
}

fn percent(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte.is_ascii_alphanumeric() {
            true => out.push(byte.into()),
            false => write!(out, "%{byte:02X}").unwrap(),
        }
        out
    })
}

fn send(address: &str, request: &str, method: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(120)))
        .unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no answer to {request}"));
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let status = lines
        .next()
        .unwrap()
        .split(' ')
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_string()))
        .collect();
    let chunked = ("transfer-encoding".to_string(), "chunked".to_string());
    let body = &bytes[end + 4..];
    let body = match headers.contains(&chunked) && method != "HEAD" {
        true => dechunk(body),
        false => body.to_vec(),
    };
    Answer {
        status,
        headers,
        body,
    }
}

fn dechunk(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|two| two == b"\r\n") {
        let size =
            usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap().trim(), 16).unwrap();
        if size == 0 {
            break;
        }
        whole.extend_from_slice(&body[end + 2..end + 2 + size]);
        body = &body[end + 4 + size..];
    }
    whole
}

/// Headers of the server, of the connection or of a file's state.
const NOT_COMPARED: [&str; 11] = [
    "accept-ranges",
    "connection",
    "content-length",
    "date",
    "etag",
    "keep-alive",
    "last-modified",
    "server",
    "transfer-encoding",
    "vary",
    "x-powered-by",
];

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value)
    }

    /// What is left of an error page that the server has made and not PHP: the status, of which the
    /// servers choose differently between 403 and 404.
    fn own_error(&self) -> Option<String> {
        let start = String::from_utf8_lossy(&self.body[..self.body.len().min(300)]).into_owned();
        let status = self.status;
        let is_own = start.contains(&format!("<title>{status} "))
            || start.starts_with(&format!("{status} "));
        match self.status {
            403 | 404 if is_own => Some("refused\n".to_string()),
            400.. if is_own => Some(format!("{status}\n")),
            _ => None,
        }
    }

    /// Everything that two servers of one application must have in common.
    pub fn summary(&self, case: &Case) -> String {
        let text = String::from_utf8_lossy(&self.body);
        if let Some(own) = self.own_error() {
            return own;
        }
        let mut all = format!("{}\n", self.status);
        let mut headers: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (name, value) in &self.headers {
            let value = match name.as_str() {
                name if NOT_COMPARED.contains(&name) => continue,
                "set-cookie" => cookie(value),
                "content-type" => media_type(value).to_string(),
                _ => masked(value),
            };
            headers.entry(name).or_default().push(value);
        }
        for (name, values) in headers {
            // Several lines mean the same as one (RFC 9110, 5.3).
            writeln!(all, "{name}: {}", values.join(", ")).unwrap();
        }
        if !text.contains('<') {
            return all;
        }
        let title = Regex::new(r"(?s)<title>(.*?)</title>").unwrap();
        let title = title
            .captures(&text)
            .map_or("", |title| title.get(1).unwrap().as_str());
        writeln!(all, "title: {}", masked(title.trim())).unwrap();
        let links = Regex::new(r#"\b(?:href|src|action)=["']([^"'#]+)["']"#).unwrap();
        let links: BTreeSet<String> = links
            .captures_iter(&text)
            .map(|link| masked(&link[1]))
            .collect();
        for link in links {
            writeln!(all, "  {link}").unwrap();
        }
        if text.contains("<?php") || text.contains(&case.root) {
            all.push_str("SHOWS SOURCE OR PATHS\n");
        }
        all
    }
}

/// A type without its charset. Some have two names (RFC 9239, RFC 7303).
pub fn media_type(value: &str) -> &str {
    match value.split(';').next().unwrap().trim() {
        "application/javascript" => "text/javascript",
        "application/xml" => "text/xml",
        other => other,
    }
}

/// A cookie without its value and dates.
fn cookie(value: &str) -> String {
    let mut parts = value.split(';').map(str::trim);
    let name = parts.next().unwrap().split('=').next().unwrap();
    let mut attributes: Vec<String> = parts
        .map(str::to_ascii_lowercase)
        .filter(|part| !part.starts_with("expires="))
        .collect();
    attributes.sort();
    format!(
        "set-cookie: {}; {}",
        masked(name),
        masked(&attributes.join("; "))
    )
}

/// Text without dates, tokens, numbers and ports.
fn masked(text: &str) -> String {
    let date = r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} [\d:]{8} [+A-Z0-9]+";
    let varies = format!(
        r"{date}|(?:{HOST}|127\.0\.0\.1):\d+|[0-9A-Za-z_%+-]{{16,}}|[0-9a-f]{{8,}}|\d{{4,}}"
    );
    let text = Regex::new(&varies)
        .unwrap()
        .replace_all(text, "*")
        .into_owned();
    text.replace(HOST, "*")
}

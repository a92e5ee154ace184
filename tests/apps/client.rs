//! An HTTP client that behaves like a browser: cookies, forms, uploads, redirects.

use std::fmt::Write;
use std::time::Duration;

use regex::Regex;
use serde_json::Value;
use ureq::ResponseExt;
use ureq::http::{HeaderMap, Request};

/// One client with its cookies. Follows redirects.
pub struct Client {
    agent: ureq::Agent,
    base: String,
}

/// A file in a form.
pub struct Upload<'a> {
    pub field: &'a str,
    pub name: &'a str,
    pub mime: &'a str,
    pub bytes: &'a [u8],
}

pub struct Answer {
    pub status: u16,
    /// The URL after all redirects.
    pub url: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// Makes Surus take the addresses of clients from [`Client::get_from`].
pub const PROXY: (&str, &str) = ("SURUS_HTTP_TRUSTED_PROXIES", "127.0.0.1");

impl Client {
    /// GET as one of a few clients of a trusted proxy; learned pages need three.
    pub fn get_from(&self, path: &str, number: usize) -> Answer {
        let address = format!("198.51.100.{}", number % 5 + 1);
        self.get_as(path, &[("x-forwarded-for", &address)])
    }

    pub fn new(base: &str) -> Client {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(180)))
            .build()
            .into();
        Client {
            agent,
            base: base.to_string(),
        }
    }

    /// `path` begins with `/`, or is a whole URL.
    pub fn get(&self, path: &str) -> Answer {
        self.get_as(path, &[])
    }

    pub fn get_as(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(self.request("GET", path, headers), Vec::new())
    }

    pub fn post(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.post_as(
            path,
            &[("content-type", "application/x-www-form-urlencoded")],
            urlencoded(fields).into_bytes(),
        )
    }

    pub fn send_as(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Answer {
        self.send(self.request(method, path, headers), body)
    }

    pub fn post_as(&self, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Answer {
        self.send(self.request("POST", path, headers), body)
    }

    /// `multipart/form-data`, with the file last.
    pub fn upload(&self, path: &str, fields: &[(&str, &str)], file: &Upload) -> Answer {
        const BOUNDARY: &str = "----surus-4f1c2a9e7b";
        let mut head = String::new();
        for (name, value) in fields {
            write!(
                head,
                "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
            )
            .unwrap();
        }
        write!(
            head,
            "--{BOUNDARY}\r\n\
             Content-Disposition: form-data; name=\"{}\"; filename=\"{}\"\r\n\
             Content-Type: {}\r\n\r\n",
            file.field, file.name, file.mime
        )
        .unwrap();
        let body = [
            head.as_bytes(),
            file.bytes,
            format!("\r\n--{BOUNDARY}--\r\n").as_bytes(),
        ]
        .concat();
        self.post_as(
            path,
            &[(
                "content-type",
                &format!("multipart/form-data; boundary={BOUNDARY}"),
            )],
            body,
        )
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> ureq::http::request::Builder {
        let url = if path.starts_with("http") {
            path.to_string()
        } else {
            format!("{}{path}", self.base)
        };
        headers.iter().fold(
            Request::builder().method(method).uri(url),
            |request, (name, value)| request.header(*name, *value),
        )
    }

    fn send(&self, request: ureq::http::request::Builder, body: Vec<u8>) -> Answer {
        let request = request.body(body).unwrap();
        let what = format!("{} {}", request.method(), request.uri());
        let mut response = self
            .agent
            .run(request)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        Answer {
            status: response.status().as_u16(),
            url: response.get_uri().to_string(),
            headers: response.headers().clone(),
            body: response
                .body_mut()
                .with_config()
                .limit(64 << 20)
                .read_to_vec()
                .unwrap_or_else(|error| panic!("{what}: {error}")),
        }
    }
}

impl Answer {
    /// Panics with the page if the status differs.
    #[track_caller]
    pub fn status(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "{}:\n{}", self.url, self.excerpt());
        self
    }

    #[track_caller]
    pub fn ok(self) -> Answer {
        self.status(200)
    }

    /// Panics with the page if it does not contain `text`.
    #[track_caller]
    pub fn says(self, text: &str) -> Answer {
        assert!(
            self.text().contains(text),
            "{text:?} is not in {}:\n{}",
            self.url,
            self.excerpt()
        );
        self
    }

    /// Like `says`, and the status must be 200.
    #[track_caller]
    pub fn shows(self, text: &str) -> Answer {
        self.ok().says(text)
    }

    #[track_caller]
    pub fn lacks(self, text: &str) -> Answer {
        assert!(
            !self.text().contains(text),
            "{text:?} is in {}:\n{}",
            self.url,
            self.excerpt()
        );
        self
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The part of the page that helps to understand a failure.
    fn excerpt(&self) -> String {
        let noise =
            Regex::new(r"(?s)<(style|script|svg)\b.*?</(style|script|svg)>|\s*\n\s*\n").unwrap();
        noise
            .replace_all(&self.text(), "\n")
            .chars()
            .take(6000)
            .collect()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{}: {error}:\n{}", self.url, self.excerpt()))
    }

    #[track_caller]
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .unwrap_or_else(|| panic!("{} has no {name}", self.url))
            .to_str()
            .unwrap()
    }

    /// The first group of the first match.
    #[track_caller]
    pub fn find(&self, pattern: &str) -> String {
        let text = self.text();
        let found = Regex::new(pattern).unwrap().captures(&text);
        unescape(
            &found.unwrap_or_else(|| {
                panic!(
                    "nothing like {pattern} in {}:\n{}",
                    self.url,
                    self.excerpt()
                )
            })[1],
        )
    }

    /// The value of the first `<input>` of this name, such as a form's token.
    #[track_caller]
    pub fn input(&self, name: &str) -> String {
        let text = self.text();
        let named = Regex::new(&format!(r#"\sname=["']{}["']"#, regex::escape(name))).unwrap();
        let value = Regex::new(r#"\svalue=(?:"([^"]*)"|'([^']*)')"#).unwrap();
        let inputs = Regex::new(r"<input\b[^>]*>").unwrap();
        let input = inputs
            .find_iter(&text)
            .map(|input| input.as_str())
            .find(|input| named.is_match(input));
        let input = input
            .unwrap_or_else(|| panic!("no input {name:?} in {}:\n{}", self.url, self.excerpt()));
        let value = value
            .captures(input)
            .unwrap_or_else(|| panic!("no value in {input}"));
        unescape(value.get(1).or(value.get(2)).unwrap().as_str())
    }
}

pub fn urlencoded(fields: &[(&str, &str)]) -> String {
    let pairs = fields
        .iter()
        .map(|(name, value)| format!("{}={}", percent(name), percent(value)));
    pairs.collect::<Vec<_>>().join("&")
}

fn percent(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => out.push(byte as char),
            _ => write!(out, "%{byte:02X}").unwrap(),
        }
        out
    })
}

fn unescape(html: &str) -> String {
    let named = [
        ("&quot;", "\""),
        ("&#039;", "'"),
        ("&#038;", "&"),
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&amp;", "&"),
    ];
    named
        .iter()
        .fold(html.to_string(), |text, (entity, meant)| {
            text.replace(entity, meant)
        })
}

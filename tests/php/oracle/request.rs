//! One request of the corpus: its bytes on the wire and what a server parses from them.

/// A request, built from a case's lines.
#[derive(Clone)]
pub struct Request {
    pub method: String,
    /// As sent, with its query string.
    pub target: String,
    /// `HTTP/1.1` or `HTTP/1.0`.
    pub protocol: String,
    /// In the order sent.
    pub headers: Vec<(String, String)>,
    /// After chunked decoding.
    pub body: Vec<u8>,
}

impl Request {
    /// `lines` are the request line and the header lines. Adds `Host`, which HTTP/1.1 requires, and
    /// `Content-Length`, which a body requires, if they are missing.
    pub fn new(lines: &[String], body: Option<Vec<u8>>) -> Request {
        let mut words = lines[0].split(' ');
        let (method, target, protocol) =
            match (words.next(), words.next(), words.next(), words.next()) {
                (Some(method), Some(target), Some(protocol), None) => (method, target, protocol),
                _ => panic!("not a request line: {:?}", lines[0]),
            };
        let mut headers: Vec<(String, String)> = lines[1..]
            .iter()
            .map(|line| {
                let (name, value) = line
                    .split_once(':')
                    .unwrap_or_else(|| panic!("not a header line: {line:?}"));
                (name.to_string(), value.trim().to_string())
            })
            .collect();
        let has = |name: &str| headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        let host = protocol == "HTTP/1.1" && !has("host");
        let length = body.is_some() && !has("content-length") && !has("transfer-encoding");
        if host {
            headers.insert(0, ("Host".into(), "oracle.test".into()));
        }
        let body = body.unwrap_or_default();
        if length {
            headers.push(("Content-Length".into(), body.len().to_string()));
        }
        Request {
            method: method.into(),
            target: target.into(),
            protocol: protocol.into(),
            headers,
            body,
        }
    }

    /// The values sent under `name`, ignoring case.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers
            .iter()
            .filter(move |(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    fn chunked(&self) -> bool {
        self.all("transfer-encoding")
            .any(|coding| coding.eq_ignore_ascii_case("chunked"))
    }

    /// The length of the body; None without a body.
    pub fn content_length(&self) -> Option<String> {
        match self.all("content-length").next() {
            Some(length) => Some(length.to_string()),
            None => self.chunked().then(|| self.body.len().to_string()),
        }
    }

    /// The request line and the headers, without the blank line.
    pub fn head(&self) -> String {
        let mut head = format!("{} {} {}\r\n", self.method, self.target, self.protocol);
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head
    }

    /// The bytes to send to an HTTP server.
    pub fn wire(&self) -> Vec<u8> {
        let mut wire = self.head().into_bytes();
        wire.extend_from_slice(b"\r\n");
        if !self.chunked() {
            wire.extend_from_slice(&self.body);
            return wire;
        }
        // Small and odd, so that values in the body are split.
        for chunk in self.body.chunks(7) {
            wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            wire.extend_from_slice(chunk);
            wire.extend_from_slice(b"\r\n");
        }
        wire.extend_from_slice(b"0\r\n\r\n");
        wire
    }

    /// A readable form for failure messages.
    pub fn shown(&self) -> String {
        let body = &self.body[..self.body.len().min(200)];
        let head: String = self
            .head()
            .trim_end()
            .lines()
            .map(|line| format!("      > {line:.300}\n"))
            .collect();
        match self.body.len() {
            0 => head,
            length => format!("{head}      > ({length} bytes) {}\n", body.escape_ascii()),
        }
    }
}

//! Encodes requests as constant bytes, and decides the order in which several of them are sent.

mod file;

use bytes::Bytes;

use crate::target::{Origin, Url};

pub use file::parse as parse_file;

/// A request to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Where it is sent to.
    pub url: Url,
    /// Its method.
    pub method: String,
    /// Its headers. `Host`, `Content-Length` and `Connection` are added where they are missing.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Bytes,
    /// How often it is sent, relative to others; at least 1.
    pub weight: u32,
}

impl Request {
    /// A GET.
    pub fn get(url: Url) -> Request {
        Request {
            url,
            method: "GET".into(),
            headers: Vec::new(),
            body: Bytes::new(),
            weight: 1,
        }
    }

    /// Sets the type of the body, unless it is named already.
    pub fn declare(&mut self, content_type: &str) {
        if !self.has("content-type") {
            let header = ("Content-Type".into(), content_type.into());
            self.headers.push(header);
        }
    }

    fn has(&self, name: &str) -> bool {
        self.headers
            .iter()
            .any(|(other, _)| other.eq_ignore_ascii_case(name))
    }
}

/// Splits a weight from a URL: `http://host/path@3` is the URL and 3. The error says why the weight
/// is invalid.
pub fn weighted(text: &str) -> Result<(&str, u32), String> {
    let is_number = |end: &str| !end.is_empty() && end.bytes().all(|byte| byte.is_ascii_digit());
    let split = text.rsplit_once('@').filter(|(_, end)| is_number(end));
    let Some((url, weight)) = split else {
        return Ok((text, 1));
    };
    match weight.parse() {
        Ok(weight @ 1..) => Ok((url, weight)),
        _ => Err(format!(
            "{text}: the weight {weight} is not between 1 and {}; write %40 for an @ of the path",
            u32::MAX
        )),
    }
}

/// A request as it is written to a connection.
#[derive(Debug)]
pub struct Prepared {
    /// Its method and URL, for reports.
    pub name: String,
    /// Which of the origins it is sent to.
    pub origin: usize,
    /// Everything up to the end of the headers, without the empty line.
    pub header: Vec<u8>,
    /// The empty line and the body.
    pub tail: Vec<u8>,
    /// Both together.
    pub whole: Vec<u8>,
    /// Whether the method is HEAD.
    pub is_head: bool,
    /// The same for HTTP/2.
    pub http2: http::Request<()>,
    /// The body for HTTP/2.
    pub body: Bytes,
}

/// Most entries of the table of turns if weights differ: each takes a look at all requests.
const MAX_TURNS: u32 = 10_000;

/// Requests with their weights.
#[derive(Debug)]
pub struct Mix {
    /// Where they are sent to, each once.
    pub origins: Vec<Origin>,
    pub(crate) requests: Vec<Prepared>,
    /// Which request is sent in which turn.
    turns: Vec<u32>,
}

impl Mix {
    /// Prepares requests. The error says what is wrong with one of them.
    pub fn new(requests: &[Request], keeps_alive: bool) -> Result<Mix, String> {
        if requests.is_empty() {
            return Err("there is no request to send".into());
        }
        let mut origins: Vec<Origin> = Vec::new();
        let mut prepared = Vec::new();
        for request in requests {
            let origin = &request.url.origin;
            let known = origins.iter().position(|other| other == origin);
            let index = known.unwrap_or_else(|| {
                origins.push(origin.clone());
                origins.len() - 1
            });
            prepared.push(prepare(request, index, keeps_alive)?);
        }
        let weights: Vec<_> = requests
            .iter()
            .map(|request| request.weight.max(1))
            .collect();
        Ok(Mix {
            origins,
            requests: prepared,
            turns: turns(&weights)?,
        })
    }

    /// The request of a turn.
    pub(crate) fn at(&self, turn: u64) -> usize {
        self.turns[(turn % self.turns.len() as u64) as usize] as usize
    }
}

/// Spreads requests evenly by weight (smooth weighted round robin): 3 and 1 become A A B A.
fn turns(weights: &[u32]) -> Result<Vec<u32>, String> {
    if weights.windows(2).all(|pair| pair[0] == pair[1]) {
        return Ok((0..weights.len() as u32).collect());
    }
    let divisor = weights.iter().copied().fold(0, gcd);
    let weights: Vec<_> = weights
        .iter()
        .map(|weight| i64::from(weight / divisor))
        .collect();
    let total: i64 = weights.iter().sum();
    if total > i64::from(MAX_TURNS) {
        return Err(format!(
            "the weights of {} requests add up to {total}; at most {MAX_TURNS} are allowed unless \
             all weights are the same",
            weights.len()
        ));
    }
    let mut current = vec![0; weights.len()];
    let mut turns = Vec::new();
    for _ in 0..total {
        for (current, weight) in current.iter_mut().zip(&weights) {
            *current += weight;
        }
        // The first of the highest.
        let best = (0..current.len())
            .rev()
            .max_by_key(|index| current[*index])
            .unwrap_or(0);
        current[best] -= total;
        turns.push(best as u32);
    }
    Ok(turns)
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn prepare(request: &Request, origin: usize, keeps_alive: bool) -> Result<Prepared, String> {
    let http2 = http2(request).map_err(|error| format!("{}: {error}", request.url))?;
    let mut header = format!("{} {} HTTP/1.1\r\n", request.method, request.url.path).into_bytes();
    let mut add = |name: &str, value: &str| {
        header.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    };
    if !request.has("host") {
        add("Host", &request.url.origin.authority());
    }
    if !request.has("user-agent") {
        add("User-Agent", AGENT);
    }
    if !keeps_alive && !request.has("connection") {
        add("Connection", "close");
    }
    let needs_length = !request.body.is_empty() || matches!(&*request.method, "POST" | "PUT");
    if needs_length && !request.has("content-length") && !request.has("transfer-encoding") {
        add("Content-Length", &request.body.len().to_string());
    }
    for (name, value) in &request.headers {
        add(name, value);
    }
    let mut tail = b"\r\n".to_vec();
    tail.extend_from_slice(&request.body);
    Ok(Prepared {
        name: format!("{} {}", request.method, request.url),
        origin,
        whole: [header.as_slice(), &tail].concat(),
        header,
        tail,
        is_head: request.method == "HEAD",
        http2,
        body: request.body.clone(),
    })
}

const AGENT: &str = concat!("surus-bench/", env!("CARGO_PKG_VERSION"));

/// Checks method and headers as well, so that no line break gets into an HTTP/1.1 header section.
fn http2(request: &Request) -> Result<http::Request<()>, http::Error> {
    let url = &request.url;
    let origin = &url.origin;
    let host = request
        .headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let authority = host.map_or_else(|| origin.authority(), |(_, value)| value.clone());
    let mut http2 = http::Request::builder()
        .method(request.method.as_str())
        .uri(format!("{}://{authority}{}", origin.scheme(), url.path));
    if !request.has("user-agent") {
        http2 = http2.header("user-agent", AGENT);
    }
    for (name, value) in &request.headers {
        // HTTP/2 has no headers about connections, and TE with one value only (RFC 9113, section
        // 8.2.2).
        let names = [
            "host",
            "connection",
            "transfer-encoding",
            "keep-alive",
            "proxy-connection",
            "te",
            "upgrade",
        ];
        if name.eq_ignore_ascii_case("te") && value.eq_ignore_ascii_case("trailers") {
            http2 = http2.header("te", "trailers");
        } else if !names.iter().any(|other| name.eq_ignore_ascii_case(other)) {
            http2 = http2.header(name, value);
        } else {
            http::HeaderValue::from_str(value)?;
        }
    }
    http2.body(())
}

//! The access log: one line per request, written when its response has ended.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use http::header::{self, HeaderName};
use http::{Method, Request, StatusCode, Version};
use serde::{Deserialize, Serialize};
use tracing::error;

use crate::budget;
use crate::observe::log_writer::Writer;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// `off`, `text` (as Apache's combined format) or `json`; to stdout.
    pub format: AccessLogFormat,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessLogFormat {
    Off,
    #[default]
    Text,
    Json,
}

/// What the log says about a request.
#[derive(Debug)]
pub struct AccessLogEntry {
    pub request_id: u64,
    pub client: Option<IpAddr>,
    /// None if the request could not be parsed.
    pub head: Option<LoggedHead>,
    pub status: StatusCode,
    /// Bytes of the response's body.
    pub bytes: u64,
    pub took: Duration,
    pub engine: &'static str,
}

/// What is kept of a request's headers. Everything is copied, because a slice would keep the whole
/// read buffer of the connection in memory, which no budget counts.
#[derive(Debug)]
pub struct LoggedHead {
    pub method: Method,
    pub target: Box<str>,
    version: Version,
    referer: Option<String>,
    user_agent: Option<String>,
}

impl LoggedHead {
    pub fn new<B>(request: &Request<B>) -> LoggedHead {
        let text = |name: HeaderName| {
            let value = request.headers().get(name)?;
            Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let target = request.uri().path_and_query();
        LoggedHead {
            method: request.method().clone(),
            target: target.map_or("*", |target| target.as_str()).into(),
            version: request.version(),
            referer: text(header::REFERER),
            user_agent: text(header::USER_AGENT),
        }
    }

    /// The memory that it takes besides its own size.
    fn size(&self) -> usize {
        let words = [&self.referer, &self.user_agent].into_iter().flatten();
        let words: usize = words.map(String::capacity).sum();
        self.method.as_str().len() + self.target.len() + words
    }
}

/// Writes entries on another thread; requests do not wait for the reader of the log.
pub struct AccessLog(Writer<AccessLogEntry>);

impl AccessLog {
    /// None if the format is `off`.
    pub fn start(format: AccessLogFormat) -> io::Result<Option<AccessLog>> {
        if format == AccessLogFormat::Off {
            return Ok(None);
        }
        let mut clock = Clock::default();
        let line = move |entry: AccessLogEntry, to: &mut Vec<u8>| match format {
            AccessLogFormat::Json => json(to, &entry, clock.now()),
            AccessLogFormat::Text | AccessLogFormat::Off => text(to, &entry, &common(clock.now())),
        };
        let tell = |lost| error!(lost, "lines of the access log lost: stdout was not read");
        let writer = Writer::start("access-log", &budget::ACCESS_LOG, io::stdout(), line, tell)?;
        Ok(Some(AccessLog(writer)))
    }

    pub fn log(&self, entry: AccessLogEntry) {
        let size = entry.size();
        self.0.send(entry, size);
    }

    /// Waits until all entries are written, but not indefinitely.
    pub fn end(&self) {
        self.0.wait_until_written(Duration::from_secs(2));
    }
}

impl AccessLogEntry {
    /// Its approximate memory.
    fn size(&self) -> usize {
        size_of::<AccessLogEntry>() + self.head.as_ref().map_or(0, LoggedHead::size)
    }
}

fn text(to: &mut Vec<u8>, entry: &AccessLogEntry, time: &str) {
    let client = entry.client.map_or_else(|| "-".into(), |ip| ip.to_string());
    let _ = write!(to, "{client} - - [{time}] \"");
    let head = entry.head.as_ref();
    let _ = match head {
        Some(head) => {
            let target = Escaped(&head.target);
            write!(to, "{} {target} {:?}", head.method, head.version)
        }
        None => write!(to, "-"),
    };
    let _ = writeln!(
        to,
        "\" {} {} \"{}\" \"{}\" {:.3}ms {}",
        entry.status.as_u16(),
        entry.bytes,
        Escaped(head.and_then(|head| head.referer.as_deref()).unwrap_or("-")),
        Escaped(
            head.and_then(|head| head.user_agent.as_deref())
                .unwrap_or("-")
        ),
        entry.took.as_secs_f64() * 1000.0,
        entry.engine,
    );
}

/// Converts `Sun, 06 Nov 1994 08:49:37 GMT` to the form of NCSA's logs: `06/Nov/1994:08:49:37
/// +0000`.
fn common(time: &str) -> String {
    let part = |range| time.get(range).unwrap_or_default();
    let (day, month, year, clock) = (part(5..7), part(8..11), part(12..16), part(17..25));
    format!("{day}/{month}/{year}:{clock} +0000")
}

/// A client's text between double quotes: it cannot end the quotes or the line.
struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c.is_control() => write!(f, "\\x{:02x}", c as u32)?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

fn json(to: &mut Vec<u8>, entry: &AccessLogEntry, time: &str) {
    let head = entry.head.as_ref();
    let line = serde_json::json!({
        "time": time,
        "request_id": entry.request_id,
        "client": entry.client,
        "method": head.map(|head| head.method.as_str()),
        "uri": head.map(|head| &*head.target),
        "protocol": head.map(|head| format!("{:?}", head.version)),
        "status": entry.status.as_u16(),
        "bytes": entry.bytes,
        "ms": (entry.took.as_secs_f64() * 1e6).round() / 1e3,
        "engine": entry.engine,
        "referer": head.and_then(|head| head.referer.as_deref()),
        "user_agent": head.and_then(|head| head.user_agent.as_deref()),
    });
    let _ = writeln!(to, "{line}");
}

/// The time as text, formatted once per second.
#[derive(Default)]
struct Clock {
    second: u64,
    text: String,
}

impl Clock {
    fn now(&mut self) -> &str {
        let now = SystemTime::now();
        let second = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        if second != self.second || self.text.is_empty() {
            self.second = second;
            self.text = httpdate::fmt_http_date(now);
        }
        &self.text
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderValue, Uri};

    use super::*;

    fn entry() -> AccessLogEntry {
        AccessLogEntry {
            request_id: 7,
            client: Some("192.0.2.1".parse().unwrap()),
            head: Some(LoggedHead {
                method: Method::GET,
                target: "/a\"?b=c".into(),
                version: Version::HTTP_11,
                referer: None,
                user_agent: Some("a\"b\nc".into()),
            }),
            status: StatusCode::OK,
            bytes: 12,
            took: Duration::from_micros(1234),
            engine: "classic",
        }
    }

    #[test]
    fn waiting_entry_keeps_no_read_buffer_and_counts_its_bytes() {
        let buffer = Bytes::from([b"/a?b Mozilla".as_slice(), &[b'c'; 28 << 10]].concat());
        let value = HeaderValue::from_maybe_shared(buffer.slice(5..12)).unwrap();
        let request = Request::builder()
            .method(Method::from_bytes(&[b'M'; 100]).unwrap())
            .uri(Uri::from_maybe_shared(buffer.slice(..4)).unwrap())
            .header(header::REFERER, value.clone())
            .header(header::USER_AGENT, value);
        let head = LoggedHead::new(&request.body(()).unwrap());
        assert!(buffer.is_unique(), "{head:?}");
        assert_eq!(head.size(), 100 + 4 + 7 + 7);
    }

    #[test]
    fn client_text_cannot_break_a_line() {
        let mut line = Vec::new();
        text(&mut line, &entry(), "now");
        assert_eq!(
            String::from_utf8(line).unwrap(),
            "192.0.2.1 - - [now] \"GET /a\\\"?b=c HTTP/1.1\" 200 12 \"-\" \"a\\\"b\\x0ac\" \
             1.234ms classic\n"
        );
    }

    #[test]
    fn time_has_the_format_of_ncsa_logs() {
        assert_eq!(
            common("Sun, 06 Nov 1994 08:49:37 GMT"),
            "06/Nov/1994:08:49:37 +0000"
        );
    }

    #[test]
    fn json_line_is_valid_json() {
        let mut line = Vec::new();
        json(&mut line, &entry(), "now");
        let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(value["ms"], 1.234);
        assert_eq!(value["user_agent"], "a\"b\nc");
    }
}

//! The access log: one line per request, written when its response has ended.

mod escape;
pub mod kept;
mod parse;
mod template;
#[cfg(test)]
mod tests;
pub mod wire_bytes;

use std::fmt;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::{self, HeaderMap, HeaderName};
use http::{Method, Request, StatusCode, Version};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tracing::error;

use self::kept::{BegunRequest, Field, Kept};
use self::template::{Clock, LineTemplate, common};
use crate::budget;
use crate::observe::log_writer::Writer;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// `off`, `text` (as Apache's combined format), `json`, `common`, `combined`, or a format of
    /// nginx or Apache.
    pub format: AccessLogFormat,
    /// The file that is written in place of stdout, relative to the project.
    pub file: Option<PathBuf>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AccessLogFormat {
    Off,
    #[default]
    Text,
    Json,
    /// As it is written, and what it means.
    Template(String, Arc<LineTemplate>),
}

impl FromStr for AccessLogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<AccessLogFormat, String> {
        Ok(match text {
            "off" => AccessLogFormat::Off,
            "text" => AccessLogFormat::Text,
            "json" => AccessLogFormat::Json,
            format => AccessLogFormat::Template(format.into(), Arc::new(parse::template(format)?)),
        })
    }
}

impl fmt::Display for AccessLogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AccessLogFormat::Off => "off",
            AccessLogFormat::Text => "text",
            AccessLogFormat::Json => "json",
            AccessLogFormat::Template(text, _) => text,
        })
    }
}

impl<'de> Deserialize<'de> for AccessLogFormat {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<AccessLogFormat, D::Error> {
        let format = String::deserialize(from)?.parse();
        format.map_err(|error: String| {
            serde::de::Error::custom(format_args!("access_log.format: {error}"))
        })
    }
}

impl Serialize for AccessLogFormat {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl AccessLogFormat {
    /// Whether readers expect nothing but JSON.
    pub fn is_json(&self) -> bool {
        match self {
            AccessLogFormat::Json => true,
            AccessLogFormat::Template(_, template) => template.escape == escape::Escape::Json,
            AccessLogFormat::Off | AccessLogFormat::Text => false,
        }
    }
}

/// What the log says about a request.
#[derive(Debug)]
pub struct AccessLogEntry {
    pub request_id: u64,
    pub client: Option<IpAddr>,
    /// None if the request could not be parsed.
    pub request: Option<LoggedRequest>,
    pub status: StatusCode,
    /// Bytes of the response's body.
    pub bytes: u64,
    /// Bytes of the request and of the response with their headers, if the format asks for them.
    pub received: u64,
    pub sent: u64,
    pub took: Duration,
    /// The time until PHP's response began; None if PHP has not answered.
    pub answered: Option<Duration>,
    pub engine: &'static str,
}

/// What is kept of a request. Everything is copied, because a slice would keep the whole
/// read buffer of the connection in memory, which no budget counts.
#[derive(Debug)]
pub struct LoggedRequest {
    pub method: Method,
    pub target: Box<str>,
    pub version: Version,
    referer: Option<String>,
    user_agent: Option<String>,
    /// What the log's format needs besides.
    kept: Kept,
}

impl LoggedRequest {
    /// What `log` needs of a request that begins.
    pub fn new<B>(
        log: &AccessLog,
        request: &Request<B>,
        begun: &BegunRequest<'_>,
    ) -> LoggedRequest {
        let text = |name: HeaderName| {
            let value = request.headers().get(name)?;
            Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let target = request.uri().path_and_query();
        LoggedRequest {
            method: request.method().clone(),
            target: target.map_or("*", |target| target.as_str()).into(),
            version: request.version(),
            referer: text(header::REFERER),
            user_agent: text(header::USER_AGENT),
            kept: Field::keep(log.fields(), request, begun),
        }
    }

    /// Adds what `log` needs of the response.
    pub fn add_response(&mut self, log: &AccessLog, headers: &HeaderMap) {
        Field::keep_sent(log.fields(), headers, &mut self.kept);
    }

    /// The memory that it takes besides its own size.
    fn size(&self) -> usize {
        let words = [&self.referer, &self.user_agent].into_iter().flatten();
        let words: usize = words.map(String::capacity).sum();
        let kept: usize = self.kept.iter().flatten().map(|value| value.len()).sum();
        let kept = kept + size_of_val(&*self.kept);
        self.method.as_str().len() + self.target.len() + words + kept
    }
}

/// Writes entries on another thread; requests do not wait for the reader of the log.
pub struct AccessLog {
    writer: Writer<AccessLogEntry>,
    format: AccessLogFormat,
    /// Whether the format asks for the bytes of requests and responses with their headers.
    pub counts_bytes: bool,
}

impl AccessLog {
    /// None if the format is `off`.
    pub fn start(
        format: &AccessLogFormat,
        to: impl io::Write + Send + 'static,
    ) -> io::Result<Option<AccessLog>> {
        if *format == AccessLogFormat::Off {
            return Ok(None);
        }
        let mut clock = Clock::default();
        let writes = format.clone();
        let line = move |entry: AccessLogEntry, to: &mut Vec<u8>| {
            let now = SystemTime::now();
            match &writes {
                AccessLogFormat::Json => json(to, &entry, clock.text(now)),
                AccessLogFormat::Template(_, template) => {
                    template.write(to, &entry, now, &mut clock)
                }
                AccessLogFormat::Text | AccessLogFormat::Off => {
                    text(to, &entry, &common(clock.text(now)))
                }
            }
        };
        let tell = |lost| {
            error!(
                lost,
                "lines of the access log lost: it is full or was not read"
            )
        };
        let writer = Writer::start("access-log", &budget::ACCESS_LOG, to, line, tell)?;
        let counts_bytes = match format {
            AccessLogFormat::Template(_, template) => template.counts_bytes(),
            AccessLogFormat::Off | AccessLogFormat::Text | AccessLogFormat::Json => false,
        };
        Ok(Some(AccessLog {
            writer,
            format: format.clone(),
            counts_bytes,
        }))
    }

    /// What requests keep for the format.
    fn fields(&self) -> &[Field] {
        match &self.format {
            AccessLogFormat::Template(_, template) => &template.fields,
            AccessLogFormat::Off | AccessLogFormat::Text | AccessLogFormat::Json => &[],
        }
    }

    pub fn log(&self, entry: AccessLogEntry) {
        let size = entry.size();
        self.writer.send(entry, size);
    }

    /// Waits until all entries are written, but not indefinitely.
    pub fn end(&self) {
        self.writer.wait_until_written(Duration::from_secs(2));
    }
}

impl AccessLogEntry {
    /// Its approximate memory.
    fn size(&self) -> usize {
        size_of::<AccessLogEntry>() + self.request.as_ref().map_or(0, LoggedRequest::size)
    }
}

fn text(to: &mut Vec<u8>, entry: &AccessLogEntry, time: &str) {
    let client = entry.client.map_or_else(|| "-".into(), |ip| ip.to_string());
    let _ = write!(to, "{client} - - [{time}] \"");
    let request = entry.request.as_ref();
    let _ = match request {
        Some(request) => {
            let target = Escaped(&request.target);
            write!(to, "{} {target} {:?}", request.method, request.version)
        }
        None => write!(to, "-"),
    };
    let _ = writeln!(
        to,
        "\" {} {} \"{}\" \"{}\" {:.3}ms {}",
        entry.status.as_u16(),
        entry.bytes,
        Escaped(
            request
                .and_then(|request| request.referer.as_deref())
                .unwrap_or("-")
        ),
        Escaped(
            request
                .and_then(|request| request.user_agent.as_deref())
                .unwrap_or("-")
        ),
        entry.took.as_secs_f64() * 1000.0,
        entry.engine,
    );
}

/// A client's text between double quotes: it cannot end the quotes or the line.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
    let request = entry.request.as_ref();
    let line = serde_json::json!({
        "time": time,
        "request_id": entry.request_id,
        "client": entry.client,
        "method": request.map(|request| request.method.as_str()),
        "uri": request.map(|request| &*request.target),
        "protocol": request.map(|request| format!("{:?}", request.version)),
        "status": entry.status.as_u16(),
        "bytes": entry.bytes,
        "ms": (entry.took.as_secs_f64() * 1e6).round() / 1e3,
        "engine": entry.engine,
        "referer": request.and_then(|request| request.referer.as_deref()),
        "user_agent": request.and_then(|request| request.user_agent.as_deref()),
    });
    let _ = writeln!(to, "{line}");
}

//! The access log: one line per request, written when its response has ended.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use http::{Method, StatusCode, Uri, Version};
use serde::{Deserialize, Serialize};
use tracing::error;

use crate::budget;
use crate::observe::log_writer::Writer;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// `off`, `text` (as Apache's combined format) or `json`; to stdout.
    pub format: Format,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    Off,
    #[default]
    Text,
    Json,
}

/// What is written of a request.
#[derive(Debug)]
pub struct Entry {
    pub event: u64,
    pub client: Option<IpAddr>,
    /// None when it could not be read.
    pub line: Option<(Method, Uri, Version)>,
    pub status: StatusCode,
    /// Bytes of the response's body.
    pub bytes: u64,
    pub took: Duration,
    pub engine: &'static str,
    pub referer: Option<String>,
    pub user_agent: Option<String>,
}

/// Where entries go. Nobody waits for whoever reads them.
pub struct AccessLog(Writer<Entry>);

impl AccessLog {
    /// None when the format is `off`.
    pub fn start(format: Format) -> io::Result<Option<AccessLog>> {
        if format == Format::Off {
            return Ok(None);
        }
        let mut clock = Clock::default();
        let line = move |entry: Entry, to: &mut Vec<u8>| match format {
            Format::Json => json(to, &entry, clock.now()),
            Format::Text | Format::Off => text(to, &entry, &common(clock.now())),
        };
        let tell = |lost| error!("{lost} lines of the access log lost: nobody read stdout");
        let writer = Writer::start("access-log", &budget::ACCESS_LOG, io::stdout(), line, tell)?;
        Ok(Some(AccessLog(writer)))
    }

    pub fn log(&self, entry: Entry) {
        let size = entry.size();
        self.0.send(entry, size);
    }

    /// Waits until all entries are written, but not for ever.
    pub fn end(&self) {
        self.0.wait_until_written(Duration::from_secs(2));
    }
}

impl Entry {
    /// The memory that it takes, about.
    fn size(&self) -> usize {
        let line = self
            .line
            .as_ref()
            .map_or(0, |(_, uri, _)| target(uri).len());
        let words = [&self.referer, &self.user_agent].into_iter().flatten();
        size_of::<Entry>() + line + words.map(String::len).sum::<usize>()
    }
}

fn text(to: &mut Vec<u8>, entry: &Entry, time: &str) {
    let client = entry.client.map_or_else(|| "-".into(), |ip| ip.to_string());
    let _ = write!(to, "{client} - - [{time}] \"");
    let _ = match &entry.line {
        Some((method, uri, version)) => {
            write!(to, "{method} {} {version:?}", Escaped(target(uri)))
        }
        None => write!(to, "-"),
    };
    let _ = writeln!(
        to,
        "\" {} {} \"{}\" \"{}\" {:.3}ms {}",
        entry.status.as_u16(),
        entry.bytes,
        Escaped(entry.referer.as_deref().unwrap_or("-")),
        Escaped(entry.user_agent.as_deref().unwrap_or("-")),
        entry.took.as_secs_f64() * 1000.0,
        entry.engine,
    );
}

fn target(uri: &Uri) -> &str {
    uri.path_and_query().map_or("*", |target| target.as_str())
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` as logs have it since NCSA's: `06/Nov/1994:08:49:37 +0000`.
fn common(time: &str) -> String {
    let part = |range| time.get(range).unwrap_or_default();
    let (day, month, year, clock) = (part(5..7), part(8..11), part(12..16), part(17..25));
    format!("{day}/{month}/{year}:{clock} +0000")
}

/// A client's words between double quotes: nothing in them ends the quotes or the line.
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

fn json(to: &mut Vec<u8>, entry: &Entry, time: &str) {
    let line = entry.line.as_ref();
    let line = serde_json::json!({
        "time": time,
        "event": entry.event,
        "client": entry.client,
        "method": line.map(|(method, ..)| method.as_str()),
        "uri": line.map(|(_, uri, _)| target(uri)),
        "protocol": line.map(|(.., version)| format!("{version:?}")),
        "status": entry.status.as_u16(),
        "bytes": entry.bytes,
        "ms": (entry.took.as_secs_f64() * 1e6).round() / 1e3,
        "engine": entry.engine,
        "referer": entry.referer,
        "user_agent": entry.user_agent,
    });
    let _ = writeln!(to, "{line}");
}

/// The time as text, made anew once a second.
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
    use super::*;

    fn entry() -> Entry {
        Entry {
            event: 7,
            client: Some("192.0.2.1".parse().unwrap()),
            line: Some((Method::GET, "/a\"?b=c".parse().unwrap(), Version::HTTP_11)),
            status: StatusCode::OK,
            bytes: 12,
            took: Duration::from_micros(1234),
            engine: "classic",
            referer: None,
            user_agent: Some("a\"b\nc".into()),
        }
    }

    #[test]
    fn a_clients_words_cannot_break_a_line() {
        let mut line = Vec::new();
        text(&mut line, &entry(), "now");
        assert_eq!(
            String::from_utf8(line).unwrap(),
            "192.0.2.1 - - [now] \"GET /a\\\"?b=c HTTP/1.1\" 200 12 \"-\" \"a\\\"b\\x0ac\" 1.234ms classic\n"
        );
    }

    #[test]
    fn the_time_is_as_other_servers_write_it() {
        assert_eq!(
            common("Sun, 06 Nov 1994 08:49:37 GMT"),
            "06/Nov/1994:08:49:37 +0000"
        );
    }

    #[test]
    fn json_lines_are_json() {
        let mut line = Vec::new();
        json(&mut line, &entry(), "now");
        let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(value["ms"], 1.234);
        assert_eq!(value["user_agent"], "a\"b\nc");
    }
}

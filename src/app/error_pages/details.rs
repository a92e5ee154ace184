//! The page of PHP's fatal error for developers: message, file, line, source and stack trace.

use std::fmt::{self, Write as _};
use std::path::Path;

use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderValue};
use http_body_util::{BodyExt, Limited};
use percent_encoding::percent_decode_str;
use surus_sys::regular_file;

use crate::app::response::{FATAL, OwnPage};
use crate::event::{Response, ResponseBody};

/// Bytes of PHP's output that are kept.
const MAX_OUTPUT: usize = 256 << 10;

/// Bytes of source that are read to find the line.
const MAX_SOURCE: u64 = 4 << 20;

/// Lines shown before and after the error's, and characters of each.
const AROUND: usize = 6;
const MAX_LINE: usize = 240;

/// `E_PARSE`.
const PARSE: u32 = 4;

/// PHP's fatal error.
#[derive(Debug, PartialEq, Eq)]
pub struct Fatal {
    pub kind: u32,
    pub line: usize,
    pub file: String,
    pub message: String,
}

impl Fatal {
    /// Parses the value of [`FATAL`].
    pub fn parse(value: &str) -> Option<Fatal> {
        let mut parts = value.split(' ');
        let decoded = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
        Some(Fatal {
            kind: parts.next()?.parse().ok()?,
            line: parts.next()?.parse().ok()?,
            file: decoded(parts.next()?),
            message: decoded(parts.next()?),
        })
    }

    fn title(&self) -> &'static str {
        match self.kind {
            PARSE => "Parse error",
            _ => "Fatal error",
        }
    }

    /// Whether PHP itself has shown this error at the end of its output. Otherwise the application
    /// has a page of its own.
    pub fn ends(&self, output: &[u8]) -> bool {
        let line = self.line;
        let ends = [
            format!("on line <b>{line}</b><br />"),
            format!("on line {line}"),
        ];
        let output = output.trim_ascii_end();
        ends.iter().any(|end| output.ends_with(end.as_bytes()))
    }
}

pub fn is_fatal(response: &Response) -> bool {
    response.headers().contains_key(&FATAL)
}

/// Replaces PHP's own display of the error by a page. `reads_source` allows reading the file.
pub async fn show(response: Response, reads_source: bool) -> Response {
    let (mut parts, body) = response.into_parts();
    let value = parts.headers.remove(&FATAL);
    let fatal = value.and_then(|value| Fatal::parse(value.to_str().ok()?));
    let Some(fatal) = fatal else {
        return Response::from_parts(parts, body);
    };
    let output = match body {
        ResponseBody::Full(output) => output,
        // The script has ended, so its output does.
        body => match Limited::new(body, MAX_OUTPUT).collect().await {
            Ok(output) => output.to_bytes(),
            Err(_) => Bytes::new(),
        },
    };
    if !output.is_empty() && !fatal.ends(&output) {
        return Response::from_parts(parts, ResponseBody::Full(output));
    }
    let source = match reads_source {
        true => excerpt(&fatal),
        false => Vec::new(),
    };
    let page = page(&fatal, &source, &output);
    parts.status = StatusCode::INTERNAL_SERVER_ERROR;
    let mut response = super::replace(Response::from_parts(parts, ResponseBody::empty()), page);
    response.extensions_mut().insert(OwnPage);
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'"),
    );
    response
}

/// The lines around the error, with their numbers.
fn excerpt(fatal: &Fatal) -> Vec<(usize, String)> {
    let source = regular_file::read(Path::new(&fatal.file), MAX_SOURCE).unwrap_or_default();
    let source = String::from_utf8_lossy(&source);
    let first = fatal.line.saturating_sub(AROUND).max(1);
    let lines = (1..).zip(source.lines()).skip(first - 1);
    lines
        .take_while(|(number, _)| *number <= fatal.line + AROUND)
        .map(|(number, line)| (number, line.chars().take(MAX_LINE).collect()))
        .collect()
}

fn page(fatal: &Fatal, source: &[(usize, String)], output: &[u8]) -> Bytes {
    let (message, trace) = match fatal.message.split_once("\nStack trace:\n") {
        Some((message, trace)) => (message, trace.trim_end_matches("\n  thrown")),
        None => (fatal.message.as_str(), ""),
    };
    let mut page = String::from(include_str!("details.html"));
    let mut lines = String::new();
    for (number, line) in source {
        let mark = match *number == fatal.line {
            true => " class=\"here\"",
            false => "",
        };
        // Writing into a String cannot fail.
        let _ = writeln!(
            lines,
            "<span{mark}><i>{number:>5}</i>  {}</span>",
            Escaped(line)
        );
    }
    let output = String::from_utf8_lossy(output);
    // Without PHP's own display of the error.
    let before = output
        .rfind(fatal.title())
        .map_or(&*output, |at| &output[..at]);
    let before = before
        .trim_end_matches("<b>")
        .trim_end()
        .trim_end_matches("<br />")
        .trim();
    for (name, value) in [
        ("title", Escaped(fatal.title()).to_string()),
        ("message", Escaped(message).to_string()),
        ("place", format!("{}:{}", Escaped(&fatal.file), fatal.line)),
        ("source", section("", "source", &lines)),
        (
            "trace",
            section("Stack trace", "", &Escaped(trace).to_string()),
        ),
        (
            "output",
            section("Output", "", &Escaped(before).to_string()),
        ),
    ] {
        // No value contains a place: its `<` would be escaped.
        page = insert(page, name, &value);
    }
    page.into()
}

/// Puts a value at its place, which is a line of its own.
fn insert(page: String, name: &str, value: &str) -> String {
    match page.split_once(&format!("\n<!--{name}-->\n")) {
        Some((before, after)) => format!("{before}{value}\n{after}"),
        None => page,
    }
}

/// A part of the page, or nothing.
fn section(title: &str, class: &str, html: &str) -> String {
    let heading = match title {
        "" => String::new(),
        title => format!("<h2>{title}</h2>\n"),
    };
    match html {
        "" => String::new(),
        html => format!("{heading}<pre class=\"{class}\">{html}</pre>"),
    }
}

/// Text within HTML.
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

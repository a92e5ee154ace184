//! Compresses responses without delaying them.

pub mod dav_scripts;
mod encoder;

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use http_body::{Body, Frame, SizeHint};
use serde::{Deserialize, Serialize};

use self::encoder::{Encoder, zstd_at_once};
use super::entity_tag::marked;
use crate::budget::{self, MEMORY, Reservation};
use crate::event::{Failure, Response, ResponseBody};
use crate::units::Size;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Compress text that is not compressed yet, for clients that accept it.
    pub enabled: bool,
    /// Responses known to be shorter than this many bytes stay uncompressed.
    pub min_size: Size,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: true,
            min_size: Size(1 << 10),
        }
    }
}

/// A content coding, by its name in `Accept-Encoding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Brotli,
    Zstd,
    Gzip,
}

impl Coding {
    pub(super) fn name(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
            Coding::Gzip => "gzip",
        }
    }

    /// The memory of a stream's encoder, measured with 4 MiB of text, plus a little.
    fn memory(self) -> u64 {
        match self {
            Coding::Brotli => 2560 << 10,
            Coding::Zstd => 1792 << 10,
            Coding::Gzip => 512 << 10,
        }
    }
}

/// The codings that a client accepts, in its order of preference and then in the order of `ours`.
/// Empty if it prefers none.
pub(super) fn accepted(headers: &HeaderMap, ours: &[Coding]) -> Vec<Coding> {
    let values = headers.get_all(header::ACCEPT_ENCODING);
    let mut named: Vec<(&str, u16)> = Vec::new();
    for value in values.iter().filter_map(|value| value.to_str().ok()) {
        named.extend(value.split(',').filter_map(weighted));
    }
    let weight = |name: &str| {
        let exact = named.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        exact.map(|(_, q)| *q)
    };
    let any = weight("*").unwrap_or(0);
    let none = weight("identity").unwrap_or(0);
    let of = |coding: Coding| match coding {
        // RFC 9110, 8.4.1.3: `x-gzip` is an alias.
        Coding::Gzip => weight("gzip").or_else(|| weight("x-gzip")).unwrap_or(any),
        other => weight(other.name()).unwrap_or(any),
    };
    let mut accepted: Vec<_> = ours.iter().map(|coding| (*coding, of(*coding))).collect();
    accepted.retain(|(_, q)| *q > 0 && *q >= none);
    accepted.sort_by_key(|(_, q)| std::cmp::Reverse(*q));
    accepted.into_iter().map(|(coding, _)| coding).collect()
}

/// `gzip;q=0.8` as its name and its weight in thousandths. An invalid weight counts as none.
fn weighted(element: &str) -> Option<(&str, u16)> {
    let mut parts = element.split(';').map(str::trim);
    let name = parts.next().filter(|name| !name.is_empty())?;
    let q = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    let q = match q {
        Some(q) => q
            .parse::<f32>()
            .ok()
            .filter(|q| (0.0..=1.0).contains(q))
            .unwrap_or(0.0),
        None => 1.0,
    };
    // Between 0 and 1000.
    Some((name, (q * 1000.0) as u16))
}

/// Whether compression pays. Images, archives and videos are compressed already.
pub(super) fn is_compressible(content_type: &str) -> bool {
    let essence = content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    essence.starts_with("text/")
        || essence.ends_with("+json")
        || essence.ends_with("+xml")
        || essence.ends_with("+text")
        || matches!(
            essence.as_str(),
            "application/javascript"
                | "application/x-javascript"
                | "application/json"
                | "application/x-ndjson"
                | "application/xml"
                | "application/wasm"
                | "application/graphql"
                | "application/rtf"
                | "application/vnd.ms-fontobject"
                | "application/x-httpd-php-source"
                | "font/otf"
                | "font/ttf"
                | "font/sfnt"
                | "image/bmp"
                | "image/x-icon"
                | "image/vnd.microsoft.icon"
        )
}

/// Adds a name to `Vary`.
pub(super) fn vary(headers: &mut HeaderMap, name: HeaderName) {
    let values = headers.get_all(header::VARY).iter();
    let mut names = values
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','));
    if !names.any(|n| n.trim() == "*" || n.trim().eq_ignore_ascii_case(name.as_str())) {
        headers.append(header::VARY, name.into());
    }
}

/// In order of speed among those that compress well.
const DYNAMIC: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];

/// Compressing a larger body at once would delay the thread's other requests.
const INLINE: usize = 32 << 10;

/// Whether the response to `method` should be compressed for clients that accept it.
pub fn is_wanted(settings: &Settings, method: &Method, response: &Response) -> bool {
    *method != Method::HEAD && is_eligible(response, settings)
}

/// Compresses a response that [should be](is_wanted), if the client's `headers` accept it.
///
/// A stream stays as fast: everything that PHP has flushed can be decoded before PHP's next byte
/// arrives.
pub async fn compress(headers: &HeaderMap, mut response: Response) -> Response {
    // Also for clients that get it uncompressed, because a cache must not give that to all.
    vary(response.headers_mut(), header::ACCEPT_ENCODING);
    let Some(coding) = accepted(headers, &DYNAMIC).first().copied() else {
        return response;
    };
    let (mut parts, body) = response.into_parts();
    let body = match body {
        ResponseBody::Full(bytes) => match at_once(coding, bytes).await {
            Ok(compressed) => {
                parts
                    .headers
                    .insert(header::CONTENT_LENGTH, compressed.len().into());
                ResponseBody::Full(compressed)
            }
            Err(plain) => return Response::from_parts(parts, ResponseBody::Full(plain)),
        },
        ResponseBody::Stream(body) => {
            let Some(memory) = MEMORY.try_take(coding.memory()) else {
                return Response::from_parts(parts, ResponseBody::Stream(body));
            };
            parts.headers.remove(header::CONTENT_LENGTH);
            ResponseBody::stream(Compressed::new(body, coding, memory))
        }
    };
    parts.headers.remove(header::ACCEPT_RANGES);
    parts.headers.insert(
        header::CONTENT_ENCODING,
        HeaderValue::from_static(coding.name()),
    );
    if let Some(marked) = parts.headers.get(header::ETAG).and_then(marked) {
        parts.headers.insert(header::ETAG, marked);
    }
    Response::from_parts(parts, body)
}

/// Whether a response without a body stands for one that depends on `Accept-Encoding`, as far as
/// its header section tells: a response to HEAD, or a 304 (RFC 9110, 15.4.5).
pub fn stands_for_varying(settings: &Settings, method: &Method, response: &Response) -> bool {
    let is_known_small = declared_length(response).is_some_and(|len| len < settings.min_size.0);
    match response.status() {
        StatusCode::NOT_MODIFIED => {
            let of_type = response.headers().contains_key(header::CONTENT_TYPE);
            !is_known_small && is_unprotected(response) && (!of_type || is_suited_type(response))
        }
        _ => {
            *method == Method::HEAD
                && !is_known_small
                && is_suited_status(response.status())
                && is_unprotected(response)
                && is_suited_type(response)
        }
    }
}

/// Says that a response depends on `Accept-Encoding`.
pub fn mark_varying(response: &mut Response) {
    vary(response.headers_mut(), header::ACCEPT_ENCODING);
}

fn is_eligible(response: &Response, settings: &Settings) -> bool {
    // The cheapest check, which also decides most often.
    if length(response).is_some_and(|length| length < settings.min_size.0) {
        return false;
    }
    is_suited_status(response.status()) && is_unprotected(response) && is_suited_type(response)
}

fn is_suited_status(status: StatusCode) -> bool {
    !status.is_informational()
        && !matches!(
            status,
            StatusCode::NO_CONTENT
                | StatusCode::PARTIAL_CONTENT
                | StatusCode::MULTI_STATUS
                | StatusCode::NOT_MODIFIED
        )
}

/// Whether no header forbids to change the bytes.
fn is_unprotected(response: &Response) -> bool {
    // A digest or signature covers the original bytes.
    const FIXED: [HeaderName; 8] = [
        header::CONTENT_ENCODING,
        header::CONTENT_RANGE,
        HeaderName::from_static("content-digest"),
        HeaderName::from_static("content-md5"),
        HeaderName::from_static("digest"),
        HeaderName::from_static("repr-digest"),
        // WebDAV clients compare tags with those of a PROPFIND, character by character. sabre/dav
        // names itself in all responses, and the protocol only in those to OPTIONS and PROPFIND.
        HeaderName::from_static("dav"),
        HeaderName::from_static("x-sabre-version"),
    ];
    let headers = response.headers();
    if FIXED.iter().any(|name| headers.contains_key(name)) {
        return false;
    }
    let mut cache_control = headers.get_all(header::CACHE_CONTROL).iter();
    !cache_control.any(|value| {
        let value = value.to_str().unwrap_or_default();
        value
            .split(',')
            .any(|d| d.trim().eq_ignore_ascii_case("no-transform"))
    })
}

fn is_suited_type(response: &Response) -> bool {
    let content_type = response.headers().get(header::CONTENT_TYPE);
    content_type
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| is_compressible(value) && !is_of_groupware(value))
}

/// Calendars and address books: CalDAV and CardDAV clients compare tags character by character.
fn is_of_groupware(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    [
        "text/calendar",
        "text/x-vcalendar",
        "text/vcard",
        "text/x-vcard",
        "text/directory",
        "application/calendar+json",
        "application/calendar+xml",
        "application/vcard+json",
        "application/vcard+xml",
    ]
    .iter()
    .any(|of| essence.eq_ignore_ascii_case(of))
}

fn length(response: &Response) -> Option<u64> {
    let exact = response.body().size_hint().exact();
    exact.or_else(|| declared_length(response))
}

fn declared_length(response: &Response) -> Option<u64> {
    let length = response.headers().get(header::CONTENT_LENGTH);
    length.and_then(|length| length.to_str().ok()?.parse().ok())
}

/// Returns the original body if it cannot be compressed.
async fn at_once(coding: Coding, plain: Bytes) -> Result<Bytes, Bytes> {
    let whole = {
        let plain = plain.clone();
        move || match coding {
            Coding::Zstd => zstd_at_once(&plain),
            _ => {
                let mut encoder = Encoder::new(coding);
                encoder.write(&plain)?;
                encoder.finish()
            }
        }
    };
    let compressed = if plain.len() <= INLINE {
        whole()
    } else {
        tokio::task::spawn_blocking(whole)
            .await
            .unwrap_or_else(|error| Err(error.into()))
    };
    compressed.map_err(|error| {
        tracing::error!(%error, coding = coding.name(), "response not compressed");
        plain
    })
}

/// A body that compresses another body.
struct Compressed {
    body: Pin<Box<dyn Body<Data = Bytes, Error = Failure> + Send>>,
    encoder: Encoder,
    /// Bytes in the encoder since the last flush.
    held: usize,
    /// Frames to be sent before the inner body is polled again.
    ready: VecDeque<Result<Frame<Bytes>, Failure>>,
    ended: bool,
    _memory: Reservation,
}

/// How many bytes are compressed before the client gets some of them and the thread may run other
/// tasks.
const COMPRESSED_PER_POLL: usize = 64 << 10;

impl Compressed {
    fn new(
        body: Pin<Box<dyn Body<Data = Bytes, Error = Failure> + Send>>,
        coding: Coding,
        memory: Reservation,
    ) -> Self {
        Self {
            body,
            encoder: Encoder::new(coding),
            held: 0,
            ready: VecDeque::new(),
            ended: false,
            _memory: memory,
        }
    }

    fn pass_on(&mut self, compressed: io::Result<Bytes>) {
        self.held = 0;
        match compressed {
            Ok(bytes) if bytes.is_empty() => {}
            Ok(bytes) => {
                let bytes = budget::charge_anyway(bytes);
                self.ready.push_back(Ok(Frame::data(bytes)));
            }
            Err(error) => self.fail(Failure::Malformed(format!("not compressible: {error}"))),
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.ended = true;
        self.ready.push_back(Err(failure));
    }

    fn take(&mut self, frame: Option<Result<Frame<Bytes>, Failure>>) {
        match frame.map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(data))) => {
                self.held += data.remaining();
                if let Err(error) = self.encoder.write(&data) {
                    self.pass_on(Err(error));
                }
            }
            Some(Ok(Err(trailers))) => {
                let rest = self.encoder.finish();
                self.ended = true;
                self.pass_on(rest);
                self.ready.push_back(Ok(trailers));
            }
            Some(Err(failure)) => {
                // The client gets what came before the failure.
                let rest = self.encoder.flush();
                self.pass_on(rest);
                self.fail(failure);
            }
            None => {
                let rest = self.encoder.finish();
                self.ended = true;
                self.pass_on(rest);
            }
        }
    }
}

impl Body for Compressed {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        let this = &mut *self;
        loop {
            if let Some(frame) = this.ready.pop_front() {
                return Poll::Ready(Some(frame));
            }
            if this.ended {
                return Poll::Ready(None);
            }
            let frame = if this.held == 0 {
                Poll::Ready(ready!(this.body.as_mut().poll_frame(cx)))
            } else if this.held < COMPRESSED_PER_POLL {
                this.body.as_mut().poll_frame(cx)
            } else {
                Poll::Pending
            };
            match frame {
                Poll::Ready(frame) => this.take(frame),
                // Nothing more for now, so flush. The client's next poll polls the body again.
                Poll::Pending => {
                    let flushed = this.encoder.flush();
                    this.pass_on(flushed);
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended && self.ready.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

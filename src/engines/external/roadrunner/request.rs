//! Writes an event as the request that RoadRunner's http or jobs plugin sends to a worker: a
//! context, as JSON or protobuf (http.v1), and a body.

use std::borrow::Cow;
use std::io;

use http::Version;
use http::header::{self, HeaderMap, HeaderName};
use serde::{Deserialize, Serialize};

use super::form::{self, Form, Uploads};
use super::frame;
use super::protobuf::{put_bool, put_bytes, put_values};
use super::tree::unescape;
use crate::engines::cgi::{fastcgi, params};
use crate::event::{Body, Event, Failure, JobContext};

/// How the context of requests is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Payloads {
    /// All versions of the packages to 2025 read it.
    #[default]
    Json,
    /// Since roadrunner-http 3.5.
    Protobuf,
}

impl Payloads {
    /// The flags of a frame with such a context.
    pub fn flags(self) -> u8 {
        match self {
            Payloads::Json => frame::JSON,
            Payloads::Protobuf => frame::PROTOBUF,
        }
    }
}

/// A request as the worker gets it.
pub struct RoadRunnerRequest {
    /// The flags of its frame.
    pub flags: u8,
    /// Its answer is one frame without a status.
    pub is_job: bool,
    pub context: Vec<u8>,
    pub body: Body,
    /// Deletes the uploaded files when dropped.
    pub _uploads: Uploads,
}

impl RoadRunnerRequest {
    /// Uploaded files become files of `directory`. Without one, forms are not parsed.
    pub async fn from_event(
        event: &Event,
        payloads: Payloads,
        directory: Option<&form::Directory>,
    ) -> Result<RoadRunnerRequest, Failure> {
        if let Some(JobContext(context)) = event.request.extensions().get() {
            return Ok(RoadRunnerRequest {
                // As RoadRunner's jobs plugin marks it.
                flags: frame::RAW,
                is_job: true,
                context: context.to_vec(),
                body: event.request.body().clone(),
                _uploads: Uploads::default(),
            });
        }
        check_size(event)?;
        let form = match directory {
            Some(directory) => form::parse(event.request.headers(), event, directory).await,
            None => Ok(None),
        };
        let form = form.map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => Failure::BodyTooLarge(
                "the form is too large: it can have 1,000 parts with 8 KiB of headers each, and \
                 fields of 10 MiB whose names have 100,000 levels",
            ),
            io::ErrorKind::OutOfMemory => {
                Failure::Busy("buffers have reached their limit (http.buffer_memory)")
            }
            _ => Failure::WorkerCrashed(format!("cannot store the uploaded files: {error}")),
        })?;
        let context = context(event, payloads, form.as_ref());
        let (flags, is_job) = (payloads.flags(), false);
        Ok(match form {
            None => RoadRunnerRequest {
                flags,
                is_job,
                context,
                body: match form::has_body(event.request.method()) {
                    true => event.request.body().clone(),
                    false => Body::Empty,
                },
                _uploads: Uploads::default(),
            },
            Some(form) => RoadRunnerRequest {
                flags,
                is_job,
                context,
                body: Body::Memory(form.fields.into()),
                _uploads: form.uploads,
            },
        })
    }
}

/// All engines have the limits of surus-php, so that they accept the same requests.
fn check_size(event: &Event) -> Result<(), Failure> {
    let headers = event.request.headers();
    let (mut total, mut longest) = (0, 0);
    for (name, value) in headers {
        let len = name.as_str().len() + value.len() + "HTTP_".len() + 8;
        total += len;
        longest = longest.max(len);
    }
    let is_too_large = longest > fastcgi::MAX_CONTENT
        || headers.len() > params::MAX_COUNT
        || total > params::MAX_TOTAL;
    match is_too_large {
        true => Err(params::too_large()),
        false => Ok(()),
    }
}

fn context(event: &Event, payloads: Payloads, form: Option<&Form>) -> Vec<u8> {
    let mut context = Vec::with_capacity(1024);
    match payloads {
        Payloads::Json => json(&mut context, event, form),
        Payloads::Protobuf => protobuf(&mut context, event, form),
    }
    context
}

fn json(into: &mut Vec<u8>, event: &Event, form: Option<&Form>) {
    let request = &event.request;
    into.extend_from_slice(b"{\"remoteAddr\":");
    put_json(into, remote_address(event).as_bytes());
    into.extend_from_slice(b",\"protocol\":");
    put_json(into, protocol(request.version()).as_bytes());
    into.extend_from_slice(b",\"method\":");
    put_json(into, request.method().as_str().as_bytes());
    into.extend_from_slice(b",\"uri\":");
    put_json(into, uri(event).as_bytes());
    into.extend_from_slice(b",\"headers\":");
    let headers = names(request.headers()).map(|name| {
        (canonical(name), move |into: &mut Vec<u8>| {
            let values = request.headers().get_all(name);
            put_list(into, b"[]", values.iter(), |into, value| {
                put_json(into, value.as_bytes());
            });
        })
    });
    put_map(into, headers);
    into.extend_from_slice(b",\"cookies\":");
    let cookies = cookies(request.headers());
    let cookies = cookies.iter().map(|(name, value)| {
        (name.clone(), move |into: &mut Vec<u8>| {
            put_json(into, value.as_bytes());
        })
    });
    put_map(into, cookies);
    into.extend_from_slice(b",\"rawQuery\":");
    put_json(into, request.uri().query().unwrap_or_default().as_bytes());
    into.extend_from_slice(b",\"parsed\":");
    into.extend_from_slice(if form.is_some() { b"true" } else { b"false" });
    into.extend_from_slice(b",\"uploads\":");
    match form.and_then(|form| form.files.as_ref()) {
        Some(files) => into.extend_from_slice(files),
        None => into.extend_from_slice(b"null"),
    }
    into.extend_from_slice(b",\"attributes\":");
    let attributes = event.variables.iter().map(|(name, value)| {
        (name.to_string(), move |into: &mut Vec<u8>| {
            put_json(into, value.as_bytes());
        })
    });
    put_map(into, attributes);
    into.push(b'}');
}

fn protobuf(into: &mut Vec<u8>, event: &Event, form: Option<&Form>) {
    let request = &event.request;
    put_bytes(into, 1, remote_address(event).as_bytes());
    put_bytes(into, 2, protocol(request.version()).as_bytes());
    put_bytes(into, 3, request.method().as_str().as_bytes());
    put_bytes(into, 4, uri(event).as_bytes());
    for name in names(request.headers()) {
        let values = request.headers().get_all(name);
        let values = values.iter().map(|value| value.as_bytes());
        put_values(into, 5, &canonical(name), values);
    }
    for (name, value) in cookies(request.headers()) {
        put_values(into, 6, &name, std::iter::once(value.as_bytes()));
    }
    put_bytes(
        into,
        7,
        request.uri().query().unwrap_or_default().as_bytes(),
    );
    put_bool(into, 8, form.is_some());
    if let Some(files) = form.and_then(|form| form.files.as_ref()) {
        put_bytes(into, 9, files);
    }
    for (name, value) in &event.variables {
        put_values(into, 10, name, std::iter::once(value.as_bytes()));
    }
}

/// The names of the headers, each once. Go's server, and so RoadRunner, removes `Host`.
fn names(headers: &HeaderMap) -> impl Iterator<Item = &HeaderName> {
    headers.keys().filter(|name| *name != header::HOST)
}

/// `content-type` as Go writes it: `Content-Type`.
fn canonical(name: &HeaderName) -> String {
    let mut is_first = true;
    let written = |byte: u8| {
        let written = if is_first {
            byte.to_ascii_uppercase()
        } else {
            byte
        };
        is_first = byte == b'-';
        char::from(written)
    };
    name.as_str().bytes().map(written).collect()
}

fn remote_address(event: &Event) -> &str {
    let client = event.origin.client.as_ref();
    client.map_or("127.0.0.1", |client| client.ip_text())
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}

/// The whole URL.
fn uri(event: &Event) -> Cow<'_, str> {
    let uri = event.request.uri();
    let scheme = if event.origin.https { "https" } else { "http" };
    let host = event.request.headers().get(header::HOST);
    let host = host.map(|host| String::from_utf8_lossy(host.as_bytes()));
    let authority = uri.authority().map(|authority| authority.as_str().into());
    let host = host.or(authority).unwrap_or_default();
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    format!("{scheme}://{host}{path}").into()
}

/// The cookies with their decoded values; the first of a name counts, as in PHP.
fn cookies(headers: &HeaderMap) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for line in headers.get_all(header::COOKIE) {
        for pair in line.as_bytes().split(|byte| *byte == b';') {
            let pair = pair.trim_ascii();
            let Some(equals) = memchr::memchr(b'=', pair) else {
                continue;
            };
            let (name, value) = (&pair[..equals], unquoted(&pair[equals + 1..]));
            let Ok(name) = std::str::from_utf8(name) else {
                continue;
            };
            if !name.is_empty() && all.iter().all(|(before, _)| before != name) {
                all.push((name.to_string(), unescape(value)));
            }
        }
    }
    all
}

/// The value of a cookie without quotes around it, which Go's server removes.
fn unquoted(value: &[u8]) -> &[u8] {
    let inner = value.strip_prefix(b"\"");
    let inner = inner.and_then(|value| value.strip_suffix(b"\""));
    inner.unwrap_or(value)
}

/// Appends a JSON string. Bytes that are not UTF-8 become U+FFFD, as in RoadRunner.
pub fn put_json(into: &mut Vec<u8>, text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    // Writing to a vector does not fail.
    let _ = serde_json::to_writer(into, &text);
}

fn put_map<F: FnOnce(&mut Vec<u8>)>(
    into: &mut Vec<u8>,
    entries: impl Iterator<Item = (String, F)>,
) {
    put_list(into, b"{}", entries, |into, (name, value)| {
        put_json(into, name.as_bytes());
        into.push(b':');
        value(into);
    });
}

fn put_list<T>(
    into: &mut Vec<u8>,
    [open, close]: &[u8; 2],
    items: impl Iterator<Item = T>,
    put: impl Fn(&mut Vec<u8>, T),
) {
    into.push(*open);
    for (n, item) in items.enumerate() {
        if n > 0 {
            into.push(b',');
        }
        put(into, item);
    }
    into.push(*close);
}

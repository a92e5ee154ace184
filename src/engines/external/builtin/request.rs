//! The HTTP request that `php -S` gets for an event.

use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::Request;
use http::header::{self, HeaderName, HeaderValue};
use http_body::Frame;
use http_body_util::{Either, Full, StreamBody};

use super::Inner;
use crate::engines::external::file_names;
use crate::engines::external::variables::Pairs;
use crate::event::{Body, Event, Failure};
use crate::spool::TempFile;

/// The header that proves to the router that the request comes from Surus.
const KEY: HeaderName = HeaderName::from_static("surus-key");
/// The header with the slot number. It names the file with `$_SERVER`, because PHP accepts at most
/// 80 KiB of headers.
const VARIABLES: HeaderName = HeaderName::from_static("surus-variables");

/// Characters that a URL query must encode.
const UNSAFE: &percent_encoding::AsciiSet = &percent_encoding::CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

impl Inner {
    /// Builds the request from the client's, without hop-by-hop headers. The path is `/`, because
    /// the router finds the script in the variables.
    pub(super) fn request(
        &self,
        event: &Event,
        variables: Pairs,
        index: usize,
    ) -> Result<Request<Outbound>, Failure> {
        let mut text = Vec::new();
        for (name, value) in variables {
            text.extend_from_slice(&[&name[..], b"=", &value, b"\0"].concat());
        }
        let filled = self.runtime_dir.fill(&file_names::variables(index), text);
        filled.map_err(|error| Failure::WorkerCrashed(format!("{error:#}")))?;
        let query = match &event.script.query {
            // A rewrite rule may have added characters that a URL must encode.
            Some(query) => percent_encoding::utf8_percent_encode(query, UNSAFE).to_string(),
            None => event.request.uri().query().unwrap_or_default().to_owned(),
        };
        let body = match event.request.body() {
            // The engine has rejected what is still arriving.
            Body::Empty | Body::Streamed { .. } => Either::Left(Full::default()),
            Body::Memory(bytes) => Either::Left(Full::new(bytes.clone())),
            Body::Spooled { file, len } => Either::Right(spooled(file.clone(), *len)),
        };
        let mut request = Request::builder()
            .method(event.request.method())
            .uri(format!("/?{query}"))
            .body(body)
            .map_err(|error| Failure::Malformed(error.to_string()))?;
        let headers = request.headers_mut();
        let size = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len();
        let is_large = event.request.headers().iter().map(size).sum::<usize>() > MAX;
        for (name, value) in event.request.headers() {
            let is_needed = [header::CONTENT_TYPE, header::AUTHORIZATION].contains(name);
            let passes = is_needed || !is_large && !HOP_BY_HOP.contains(name);
            if passes && name != header::COOKIE && !is_reserved(name) {
                headers.append(name, value.clone());
            }
        }
        // Join several Cookie headers with a semicolon; php -S would use a comma.
        let cookies = event.request.headers().get_all(header::COOKIE);
        let cookies: Vec<_> = cookies.iter().map(HeaderValue::as_bytes).collect();
        if !cookies.is_empty()
            && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
        {
            headers.insert(header::COOKIE, joined);
        }
        headers.insert(header::CONTENT_LENGTH, event.request.body().len().into());
        headers.insert(KEY, self.key.clone());
        headers.insert(VARIABLES, index.into());
        Ok(request)
    }
}

/// PHP treats `_` in a header name like `-`.
fn is_reserved(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.starts_with("surus-") || !name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
}

/// The limit in bytes for client headers that are passed on only for `getallheaders()`.
const MAX: usize = 48 * 1024;

const HOP_BY_HOP: [HeaderName; 5] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::TE,
    header::UPGRADE,
    header::EXPECT,
];

pub(super) type Outbound = Either<Full<Bytes>, StreamBody<Pieces>>;
type Pieces = Pin<Box<dyn futures_util::Stream<Item = io::Result<Frame<Bytes>>> + Send>>;

fn spooled(file: Arc<TempFile>, len: u64) -> StreamBody<Pieces> {
    StreamBody::new(Box::pin(stream::try_unfold(0, move |at| {
        let file = file.clone();
        async move {
            let mut buffer = vec![0; PIECE.min(usize::try_from(len - at).unwrap_or(PIECE))];
            if buffer.is_empty() {
                return Ok(None);
            }
            file.read_exact_at(&mut buffer, at)?;
            let next = at + buffer.len() as u64;
            Ok(Some((Frame::data(buffer.into()), next)))
        }
    })))
}

/// How much of a body is read at once, in bytes.
const PIECE: usize = 64 * 1024;

//! Counts the memory of responses until clients have taken them, and moves bodies to files if
//! memory is short.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, Version};
use http_body::Frame;
use http_body_util::StreamBody;
use tracing::warn;

use crate::app::response::plain;
use crate::budget::{self, HeldMemory, MEMORY, Reservation, SMALL};
use crate::event::{Failure, Response, ResponseBody};
use crate::observe::rate_limit::RateLimit;
use crate::spool::TempFile;

/// How much of the file is read at a time.
const CHUNK: u64 = 16 << 10;

/// Counts a complete body. Returns the body, and what it holds meanwhile, if there is no memory for
/// it. A short one counts only where a connection has many responses at a time. It is not refused,
/// because a stream may keep more of a body that waits in a file.
pub fn count(
    response: &mut Response,
    is_head: bool,
    version: Version,
) -> Result<(), (Bytes, Option<HeldMemory>)> {
    let held = response.extensions_mut().remove::<HeldMemory>();
    let status = response.status();
    let has_no_body = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status);
    let ResponseBody::Full(body) = response.body_mut() else {
        return Ok(());
    };
    let is_multiplexed = version >= Version::HTTP_2;
    if has_no_body || is_head || body.len() < SMALL && !is_multiplexed {
        return Ok(());
    }
    let whole = std::mem::take(body);
    *body = match held {
        None if whole.len() < SMALL => budget::charge_anyway(whole),
        Some(held) => held
            .charge(whole)
            .map_err(|(body, held)| (body, Some(held)))?,
        None => budget::try_charge(whole).map_err(|body| (body, None))?,
    };
    Ok(())
}

/// Moves a body to a file.
pub async fn spool(
    mut response: Response,
    (body, held): (Bytes, Option<HeldMemory>),
    directory: Option<&Path>,
) -> Response {
    let length = body.len() as u64;
    let directory = directory.map(Path::to_path_buf);
    let written = tokio::task::spawn_blocking(move || -> io::Result<TempFile> {
        let file = TempFile::create(directory.as_deref())?;
        file.reserve(length)?;
        file.write_all_at(&body, 0)?;
        drop((body, held));
        Ok(file)
    });
    match written.await.unwrap_or_else(|error| Err(error.into())) {
        Ok(file) => {
            // HTTP does not derive it from a stream.
            let headers = response.headers_mut();
            headers
                .entry(header::CONTENT_LENGTH)
                .or_insert(length.into());
            *response.body_mut() = file_body(Arc::new(file), length);
            response
        }
        Err(error) => {
            static REPORTED: RateLimit = RateLimit::new();
            if REPORTED.is_time(std::time::Instant::now()) {
                warn!(%error, "no memory or disk space for a response (http.buffer_memory, \
                    http.temp_dir): 503");
            }
            no_room()
        }
    }
}

fn file_body(file: Arc<TempFile>, length: u64) -> ResponseBody {
    let pieces = stream::try_unfold(0, move |at| {
        let file = file.clone();
        async move {
            let size = CHUNK.min(length - at);
            if size == 0 {
                return Ok(None);
            }
            let read = tokio::task::spawn_blocking(move || -> io::Result<Bytes> {
                let mut buffer = vec![0; size as usize];
                file.read_exact_at(&mut buffer, at)?;
                Ok(budget::charge_anyway(buffer.into()))
            });
            match read.await.unwrap_or_else(|error| Err(error.into())) {
                Ok(piece) => Ok(Some((Frame::data(piece), at + size))),
                Err(error) => Err(Failure::Malformed(format!(
                    "what was kept of a response cannot be read: {error}"
                ))),
            }
        }
    });
    ResponseBody::stream(StreamBody::new(pieces))
}

/// What a header costs besides its bytes: its entry, and the allocations of name and value.
const PER_HEADER: usize = 160;

/// A header section of this size is not refused: pages have such ones, and a stream may keep twice
/// as much of a body.
const SHORT: usize = 8 << 10;

/// Counts a response's header section. One that is long, and for which there is no memory, becomes
/// a 503.
pub fn headers(response: Response) -> (Response, Reservation) {
    let size = size(response.headers());
    if size <= SHORT {
        return (response, MEMORY.take(size as u64));
    }
    if let Some(taken) = MEMORY.try_take(size as u64) {
        return (response, taken);
    }
    static REPORTED: RateLimit = RateLimit::new();
    if REPORTED.is_time(std::time::Instant::now()) {
        warn!("no memory for the headers of a response (http.buffer_memory): 503");
    }
    let response = no_room();
    let taken = MEMORY.take(self::size(response.headers()) as u64);
    (response, taken)
}

fn size(headers: &HeaderMap) -> usize {
    let length =
        |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + PER_HEADER;
    headers.iter().map(length).sum()
}

fn no_room() -> Response {
    plain(
        StatusCode::SERVICE_UNAVAILABLE,
        "no room for the response; too many responses wait for their clients",
    )
}

//! Answers with a file.

mod body;
mod conditional;
mod multipart;
mod ranges;
#[cfg(test)]
mod tests;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};

pub use body::FileRange;

use super::compression::{Coding, accepted, is_compressible, vary};
use crate::app::site::FoundFile;
use crate::event::{Response, ResponseBody};
use body::body;
use conditional::{if_range, precondition};
use multipart::Parts;
use ranges::{Ranges, content_range, ranges};

/// In order of size, since the files are compressed already.
const PRECOMPRESSED: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

/// Answers with a file: all of it, a part of it, or that the client has it already (RFC 9110, 13
/// and 14).
///
/// `siblings` finds the file with a suffix added to its name. `.br`, `.zst` and `.gz` files are
/// sent instead if the client accepts them and they are not older. It is not called if no
/// negotiation is needed.
pub fn answer(
    found: FoundFile,
    method: &Method,
    headers: &HeaderMap,
    siblings: impl Fn(&str) -> Option<FoundFile>,
) -> Response {
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
        response
            .headers_mut()
            .insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let named = found.media_type.as_deref().map(named_type);
    let is_named = named.is_some();
    let content_type = named.unwrap_or_else(|| content_type(&found.path));
    let negotiable = content_type.to_str().is_ok_and(is_compressible);
    let modified = modified(&found);
    let (found, coding) = match negotiable {
        true => negotiate(found, headers, siblings),
        false => (found, None),
    };
    let etag = etag(&found, coding);

    let mut response = empty(StatusCode::OK);
    let out = response.headers_mut();
    if negotiable {
        vary(out, header::ACCEPT_ENCODING);
    }
    set(out, header::ETAG, &etag);
    if is_named {
        // A browser that guesses another type might run what the application only sends.
        let nosniff = HeaderValue::from_static("nosniff");
        out.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    }
    if let Some(modified) = modified {
        set(
            out,
            header::LAST_MODIFIED,
            &httpdate::fmt_http_date(modified),
        );
    }
    if let Some(status) = precondition(headers, &etag, modified) {
        *response.status_mut() = status;
        return response;
    }
    out.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(coding) = coding {
        out.insert(
            header::CONTENT_ENCODING,
            HeaderValue::from_static(coding.name()),
        );
    }

    let length = found.metadata.len();
    let ranges = match *method == Method::GET && if_range(headers, &etag, modified) {
        true => ranges(headers, length),
        false => Ranges::Whole,
    };
    let file = Arc::new(found.file);
    let (length, body) = match ranges {
        Ranges::Whole if *method == Method::HEAD => (length, ResponseBody::empty()),
        Ranges::Whole => (length, body(&mut response, file, 0..length)),
        Ranges::One(range) => {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            let content_range = content_range(&range, length);
            set(
                response.headers_mut(),
                header::CONTENT_RANGE,
                &content_range,
            );
            (range.end - range.start, body(&mut response, file, range))
        }
        Ranges::Many(ranges) => {
            let parts = Parts::new(file, ranges, length, &content_type);
            let out = response.headers_mut();
            set(
                out,
                header::CONTENT_TYPE,
                &format!("multipart/byteranges; boundary={}", parts.boundary),
            );
            out.insert(header::CONTENT_LENGTH, parts.left.into());
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            *response.body_mut() = ResponseBody::stream(parts);
            return response;
        }
        Ranges::Unsatisfiable => {
            *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
            let out = response.headers_mut();
            out.remove(header::CONTENT_ENCODING);
            set(out, header::CONTENT_RANGE, &format!("bytes */{length}"));
            out.insert(header::CONTENT_LENGTH, 0.into());
            return response;
        }
    };
    let out = response.headers_mut();
    out.insert(header::CONTENT_TYPE, content_type);
    out.insert(header::CONTENT_LENGTH, length.into());
    *response.body_mut() = body;
    response
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = status;
    response
}

fn set(headers: &mut HeaderMap, name: header::HeaderName, value: &str) {
    // All of these consist of visible ASCII.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// The type for the file's name. Text is declared as UTF-8, except XML, which declares its own
/// charset.
pub(super) fn content_type(path: &Path) -> HeaderValue {
    let extension = path.extension().map(|name| name.to_ascii_lowercase());
    let guess = match extension.as_deref().and_then(|name| name.to_str()) {
        // mime_guess has other names for these than the standards and other servers.
        Some("m3u8") => "application/vnd.apple.mpegurl",
        Some("m4a") => "audio/mp4",
        Some("rpm") => "application/x-redhat-package-manager",
        Some("ts") => "video/mp2t",
        Some("woff") => "font/woff",
        _ => mime_guess::from_path(path)
            .first_raw()
            .unwrap_or("application/octet-stream"),
    };
    match guess {
        "text/html" => HeaderValue::from_static("text/html; charset=utf-8"),
        "text/css" => HeaderValue::from_static("text/css; charset=utf-8"),
        // RFC 9239: the other name is obsolete.
        "text/javascript" | "application/javascript" => {
            HeaderValue::from_static("text/javascript; charset=utf-8")
        }
        "text/xml" => HeaderValue::from_static("text/xml"),
        text if text.starts_with("text/") => {
            HeaderValue::from_str(&format!("{text}; charset=utf-8"))
                .unwrap_or(HeaderValue::from_static(text))
        }
        other => HeaderValue::from_static(other),
    }
}

/// A type that an `.htaccess` file names. Text is declared as UTF-8 here, too.
fn named_type(name: &str) -> HeaderValue {
    let lower = name.to_ascii_lowercase();
    let lacks_charset = lower.starts_with("text/") && lower != "text/xml" && !lower.contains(';');
    let whole = match lacks_charset {
        true => format!("{name}; charset=utf-8"),
        false => name.to_owned(),
    };
    HeaderValue::from_str(&whole).unwrap_or(HeaderValue::from_static("application/octet-stream"))
}

fn negotiate(
    found: FoundFile,
    headers: &HeaderMap,
    siblings: impl Fn(&str) -> Option<FoundFile>,
) -> (FoundFile, Option<Coding>) {
    for coding in accepted(headers, &PRECOMPRESSED) {
        let suffix = match coding {
            Coding::Brotli => ".br",
            Coding::Zstd => ".zst",
            Coding::Gzip => ".gz",
        };
        // An older sibling was made from another version. Compared in whole seconds, because
        // archives keep no more.
        let sibling = siblings(suffix).filter(|s| s.metadata.mtime() >= found.metadata.mtime());
        if let Some(sibling) = sibling {
            return (sibling, Some(coding));
        }
    }
    (found, None)
}

/// When the file was last modified, if its date is plausible. Archives and reproducible builds date
/// everything to 1970 or to the beginning of 1980, and no newer version could ever exceed a date in
/// the future.
fn modified(found: &FoundFile) -> Option<SystemTime> {
    let seconds = u64::try_from(found.metadata.mtime()).ok()?;
    let modified = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?;
    (is_dated(found) && modified <= SystemTime::now()).then_some(modified)
}

fn is_dated(found: &FoundFile) -> bool {
    const SECOND_OF_JANUARY_1980: i64 = 315_619_200;
    found.metadata.mtime() > SECOND_OF_JANUARY_1980
}

/// A strong tag. It leaves out the inode, so that all replicas of a service have the same tag. If
/// the modification date says nothing, it must include what changes with each copy of the file.
fn etag(found: &FoundFile, coding: Option<Coding>) -> String {
    let m = &found.metadata;
    let (seconds, nanoseconds, inode) = match is_dated(found) {
        true => (m.mtime(), m.mtime_nsec(), 0),
        false => (m.ctime(), m.ctime_nsec(), m.ino()),
    };
    let length = m.len();
    let coding = coding.map(Coding::name).unwrap_or_default();
    match inode {
        0 => format!("\"{seconds:x}.{nanoseconds:x}-{length:x}{coding}\""),
        _ => format!("\"{seconds:x}.{nanoseconds:x}-{length:x}-{inode:x}{coding}\""),
    }
}

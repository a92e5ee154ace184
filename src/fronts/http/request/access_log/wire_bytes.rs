//! Counts the bytes of a request and its response with their header sections, as HTTP/1.1 writes
//! them.

use http::header;
use http::{Method, Request, StatusCode, Version};
use http_body::Body as _;

use crate::event::Response;

/// The lines that hyper adds to the header section of a response.
const CHUNKED: &str = "transfer-encoding: chunked\r\n";
const CLOSE: &str = "connection: close\r\n";
const DATE: &str = "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
const KEEP_ALIVE: &str = "connection: keep-alive\r\n";

/// Between the name of a header and its value, and after the value.
const AROUND: &str = ": \r\n";

/// The end of a body in chunks.
const LAST_CHUNK: &str = "0\r\n\r\n";

/// The bytes of a request, and those of its response so far.
#[derive(Debug, Default)]
pub struct WireBytes {
    pub received: u64,
    pub sent: u64,
    /// The line by which hyper answers the request's `Connection`.
    connection: usize,
    /// hyper sends the body in chunks, and the last one is not counted yet.
    is_chunked: bool,
}

impl WireBytes {
    /// Counts a request without its body.
    pub fn of_request<B>(request: &Request<B>) -> WireBytes {
        let (uri, headers) = (request.uri(), request.headers());
        let target = uri.path_and_query().map_or(0, |it| it.as_str().len());
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let host = match uri.scheme_str() {
            _ if authority.is_empty() => 0,
            // HTTP/1.1 has it in `Host`.
            _ if request.version() >= Version::HTTP_2 => match headers.contains_key(header::HOST) {
                true => 0,
                false => "host".len() + AROUND.len() + authority.len(),
            },
            Some(scheme) => scheme.len() + "://".len() + authority.len(),
            None => authority.len(),
        };
        let line = request.method().as_str().len() + target + "  HTTP/1.1\r\n".len();
        let lines = headers.iter();
        let lines = lines.map(|(name, value)| line_of(name, value.len()));
        let says = |word: &str| {
            let values = headers.get_all(header::CONNECTION).iter();
            let mut words = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
            words.any(|said| said.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
        };
        let connection = match request.version() {
            Version::HTTP_11 if says("close") => CLOSE.len(),
            Version::HTTP_10 if says("keep-alive") => KEEP_ALIVE.len(),
            _ => 0,
        };
        WireBytes {
            received: (line + host + lines.sum::<usize>() + "\r\n".len()) as u64,
            sent: 0,
            connection,
            is_chunked: false,
        }
    }

    /// The response begins.
    pub fn begins(&mut self, response: &Response, method: &Method, version: Version) {
        let (status, headers, body) = (response.status(), response.headers(), response.body());
        let (is_head, is_empty) = (*method == Method::HEAD, body.is_end_stream());
        // hyper replaces the length that a response without its body announces.
        let replaces_length = is_empty && !is_head;
        let mut sent = status_line(status) + "\r\n".len();
        for (name, value) in headers {
            if *name != header::CONTENT_LENGTH || !replaces_length {
                sent += line_of(name, value.len());
            }
        }
        if !headers.contains_key(header::DATE) {
            sent += DATE.len();
        }
        if !headers.contains_key(header::CONNECTION) {
            sent += self.connection;
        }
        let has_none = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status);
        let has_length = headers.contains_key(header::CONTENT_LENGTH) && !replaces_length;
        if !has_none && !has_length {
            let length = match is_empty {
                true => Some(0),
                false => body.size_hint().exact(),
            };
            self.is_chunked = length.is_none() && !is_head && version == Version::HTTP_11;
            sent += match length {
                Some(0) if is_head => 0,
                Some(length) => content_length(length),
                None if self.is_chunked => CHUNKED.len(),
                None => 0,
            };
        }
        self.sent = sent as u64;
    }

    /// A piece of the response's body follows.
    pub fn sends(&mut self, length: u64, is_last: bool) {
        self.sent += length;
        if self.is_chunked && length > 0 {
            let digits = length.ilog2() / 4 + 1;
            self.sent += u64::from(digits) + "\r\n\r\n".len() as u64;
        }
        if is_last {
            self.ends();
        }
    }

    /// The response's body is complete.
    pub fn ends(&mut self) {
        if std::mem::take(&mut self.is_chunked) {
            self.sent += LAST_CHUNK.len() as u64;
        }
    }
}

/// The bytes of hyper's response to a request that it cannot parse.
pub fn of_rejection(status: StatusCode) -> u64 {
    let lines = CLOSE.len() + content_length(0) + DATE.len();
    (status_line(status) + lines + "\r\n".len()) as u64
}

fn status_line(status: StatusCode) -> usize {
    // As hyper calls a status without a reason.
    let reason = status.canonical_reason().unwrap_or("<none>");
    "HTTP/1.1 200 \r\n".len() + reason.len()
}

fn line_of(name: &header::HeaderName, value: usize) -> usize {
    name.as_str().len() + AROUND.len() + value
}

fn content_length(length: u64) -> usize {
    let digits = length.checked_ilog10().map_or(1, |log| log as usize + 1);
    line_of(&header::CONTENT_LENGTH, digits)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use bytes::Bytes;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;
    use crate::event::{Failure, ResponseBody};

    #[test]
    fn request_has_its_length_in_http_1_1_whatever_its_version() {
        let text = "GET /a?b=c HTTP/1.1\r\nhost: a.example\r\nx-two: 1\r\nx-two: 22\r\n\r\n";
        let request = |uri: &str, version| {
            let request = Request::get(uri).version(version);
            request.header("x-two", "1").header("x-two", "22")
        };
        let http_1 = request("/a?b=c", Version::HTTP_11).header("host", "a.example");
        let http_2 = request("https://a.example/a?b=c", Version::HTTP_2);
        for request in [http_1, http_2] {
            let counted = WireBytes::of_request(&request.body(()).unwrap());
            assert_eq!(counted.received, text.len() as u64, "{counted:?}");
        }
        let text = "OPTIONS * HTTP/1.1\r\n\r\n";
        let request = Request::options("*").body(()).unwrap();
        assert_eq!(WireBytes::of_request(&request).received, text.len() as u64);
    }

    #[test]
    fn body_in_chunks_has_them_over_http_1_1_only() {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\
                    date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n";
        let chunks = "5\r\nabcde\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n";
        for (version, expected) in [
            (Version::HTTP_11, head.len() + chunks.len()),
            (Version::HTTP_2, head.len() - CHUNKED.len() + 21),
        ] {
            let pieces = futures_util::stream::pending::<Result<Frame<Bytes>, Failure>>();
            let body = ResponseBody::stream(StreamBody::new(pieces));
            let mut counted = WireBytes::default();
            counted.begins(&Response::new(body), &Method::GET, version);
            counted.sends(5, false);
            counted.sends(0, false);
            counted.sends(16, true);
            counted.ends();
            assert_eq!(counted.sent, expected as u64, "{version:?}");
        }
    }
}

//! Reads HTTP/1.1 responses from bytes: status, end of the body, and nothing else unless asked.

mod chunks;

use std::mem::MaybeUninit;

use chunks::Chunks;

/// Most bytes of a header section, and of the trailers after a chunked body.
const MAX_HEADER_SECTION: usize = 64 << 10;
const MAX_HEADERS: usize = 128;
/// Most bytes of a body that are kept.
const MAX_KEPT: usize = 1 << 20;

/// What the response line and the headers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderSection {
    /// The status code.
    pub status: u16,
    /// Whether the connection can carry another request.
    pub keeps_alive: bool,
}

/// How far the reader has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadProgress {
    /// All bytes are read, and the response goes on.
    More,
    /// The header section is complete. The rest of the bytes belongs to the body.
    Header(HeaderSection),
    /// The response is complete.
    Done,
}

/// The bytes are not a response that HTTP/1.1 allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid response: {0}")]
pub struct Malformed(pub &'static str);

#[derive(Debug)]
enum State {
    Header,
    Length(u64),
    Chunked(Chunks),
    UntilEnd,
    Done,
}

/// Reads one response after another, from bytes in pieces of any size.
#[derive(Debug)]
pub struct Reader {
    state: State,
    /// The beginning of a header section that came in several pieces.
    partial: Vec<u8>,
    answers_head: bool,
    keeps_cookies: bool,
    /// Whether the body is kept. It can be set when the header section is complete.
    pub keeps_body: bool,
    /// The body, up to 1 MiB, if it is kept.
    pub body: Vec<u8>,
    /// Values of `Set-Cookie`, if they are kept.
    pub cookies: Vec<Vec<u8>>,
}

impl Reader {
    /// A reader for the responses of one connection.
    pub fn new(keeps_cookies: bool) -> Reader {
        Reader {
            state: State::Header,
            partial: Vec::new(),
            answers_head: false,
            keeps_cookies,
            keeps_body: false,
            body: Vec::new(),
            cookies: Vec::new(),
        }
    }

    /// Begins the next response. One to `HEAD` has no body.
    pub fn begin(&mut self, answers_head: bool, keeps_body: bool) {
        self.state = State::Header;
        self.partial.clear();
        self.answers_head = answers_head;
        self.keeps_body = keeps_body;
        self.body.clear();
        self.cookies.clear();
    }

    /// Whether the response is complete. One without a body is so after its header section.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Whether the header section is incomplete.
    pub fn awaits_header_section(&self) -> bool {
        matches!(self.state, State::Header)
    }

    /// Reads on. Returns how many bytes belong to this response.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(usize, ReadProgress), Malformed> {
        match &mut self.state {
            State::Header if self.partial.is_empty() => self.header(bytes),
            State::Header => {
                let before = self.partial.len();
                let mut partial = std::mem::take(&mut self.partial);
                // A header section that the limit cuts off is refused below.
                partial.extend_from_slice(&bytes[..bytes.len().min(MAX_HEADER_SECTION + 1)]);
                let (used, progress) = self.header(&partial)?;
                match progress {
                    ReadProgress::More => Ok((bytes.len(), ReadProgress::More)),
                    progress => Ok((used - before, progress)),
                }
            }
            State::Length(rest) => {
                let here = (*rest).min(bytes.len() as u64) as usize;
                *rest -= here as u64;
                let is_done = *rest == 0;
                self.keep(&bytes[..here]);
                Ok((here, self.done_if(is_done)))
            }
            State::Chunked(chunks) => {
                let mut used = 0;
                let (mut chunks, keeps) = (*chunks, self.keeps_body);
                let is_done = loop {
                    let step = chunks.read(&bytes[used..])?;
                    if keeps {
                        self.keep(&bytes[used..][step.data]);
                    }
                    used += step.used;
                    if step.is_last || used == bytes.len() {
                        break step.is_last;
                    }
                };
                self.state = State::Chunked(chunks);
                Ok((used, self.done_if(is_done)))
            }
            State::UntilEnd => {
                self.keep(bytes);
                Ok((bytes.len(), ReadProgress::More))
            }
            State::Done => Ok((0, ReadProgress::Done)),
        }
    }

    /// The connection has ended. Whether that completes the response.
    pub fn end(&mut self) -> bool {
        let completes = matches!(self.state, State::UntilEnd | State::Done);
        if completes {
            self.state = State::Done;
        }
        completes
    }

    /// Reads a header section from its first byte. Informational responses (1xx) precede it.
    fn header(&mut self, bytes: &[u8]) -> Result<(usize, ReadProgress), Malformed> {
        let mut begin = 0;
        loop {
            let (used, progress) = self.header_section(&bytes[begin..])?;
            begin += used;
            match progress {
                None if begin < bytes.len() => {}
                None => return Ok((begin, ReadProgress::More)),
                Some(progress) => return Ok((begin, progress)),
            }
        }
    }

    /// Reads one header section. Without progress, it was an informational one.
    fn header_section(&mut self, bytes: &[u8]) -> Result<(usize, Option<ReadProgress>), Malformed> {
        let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut []);
        let parsed = httparse::ParserConfig::default()
            .parse_response_with_uninit_headers(&mut response, bytes, &mut headers)
            .map_err(|error| match error {
                httparse::Error::TooManyHeaders => {
                    Malformed("the response has more than 128 headers")
                }
                _ => Malformed("not an HTTP/1.1 response"),
            })?;
        let httparse::Status::Complete(used) = parsed else {
            if bytes.len() > MAX_HEADER_SECTION {
                return Err(Malformed("the headers exceed 64 KiB"));
            }
            self.partial = bytes.to_vec();
            return Ok((bytes.len(), Some(ReadProgress::More)));
        };
        self.partial.clear();
        let status = response.code.unwrap_or(0);
        match status {
            101 => return Err(Malformed("the server switched protocols")),
            100..200 => return Ok((used, None)),
            200..=999 => {}
            _ => return Err(Malformed("not a status code")),
        }
        let mut length = None;
        let mut is_chunked = false;
        let mut keeps_alive = response.version == Some(1);
        for header in response.headers.iter() {
            match header.name.len() {
                14 if is(header.name, "content-length") => {
                    let value = number(header.value).ok_or(Malformed("content-length"))?;
                    if length.is_some_and(|length| length != value) {
                        return Err(Malformed("two content-lengths"));
                    }
                    length = Some(value);
                }
                17 if is(header.name, "transfer-encoding") => {
                    is_chunked = last_coding_is_chunked(header.value)?;
                }
                10 if is(header.name, "connection") => {
                    if has_token(header.value, "close") {
                        keeps_alive = false;
                    } else if has_token(header.value, "keep-alive") {
                        keeps_alive = true;
                    }
                }
                10 if self.keeps_cookies && is(header.name, "set-cookie") => {
                    self.cookies.push(header.value.to_vec());
                }
                _ => {}
            }
        }
        self.state = match (length, is_chunked) {
            _ if self.answers_head || matches!(status, 204 | 304) => State::Done,
            (_, true) => State::Chunked(Chunks::default()),
            (Some(0), false) => State::Done,
            (Some(length), false) => State::Length(length),
            (None, false) => {
                keeps_alive = false;
                State::UntilEnd
            }
        };
        Ok((
            used,
            Some(ReadProgress::Header(HeaderSection {
                status,
                keeps_alive,
            })),
        ))
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.keeps_body {
            let room = MAX_KEPT.saturating_sub(self.body.len());
            self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    fn done_if(&mut self, is_done: bool) -> ReadProgress {
        if is_done {
            self.state = State::Done;
            return ReadProgress::Done;
        }
        ReadProgress::More
    }
}

fn is(name: &str, other: &str) -> bool {
    name.eq_ignore_ascii_case(other)
}

fn number(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?.trim();
    // `parse` would take a sign.
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

fn has_token(value: &[u8], token: &str) -> bool {
    let mut tokens = value.split(|byte| *byte == b',');
    tokens.any(|other| other.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

fn last_coding_is_chunked(value: &[u8]) -> Result<bool, Malformed> {
    let last = value
        .rsplit(|byte| *byte == b',')
        .next()
        .unwrap_or_default();
    if last.trim_ascii().eq_ignore_ascii_case(b"chunked") {
        return Ok(true);
    }
    Err(Malformed("an unknown transfer-encoding"))
}

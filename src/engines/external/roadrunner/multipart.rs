//! Parses `multipart/form-data` bodies (RFC 7578) piece by piece.

use std::io::{self, Read};

/// A part's header section.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
pub struct PartHeaders {
    pub name: String,
    /// Only files have one.
    pub file_name: Option<String>,
    /// The part's own `Content-Type`, or nothing.
    pub media_type: String,
}

/// Receives the parts of a body. A part whose end is missing is discarded.
pub trait Parts {
    fn begin(&mut self, headers: PartHeaders) -> io::Result<()>;
    fn data(&mut self, piece: &[u8]) -> io::Result<()>;
    fn end(&mut self) -> io::Result<()>;
}

/// The longest header section of a part.
const MAX_HEADERS: usize = 8 * 1024;

/// The most parts, like Go's limit.
const MAX_PARTS: usize = 1000;

/// How much is read at once.
const ROOM: usize = 64 * 1024;

/// The boundary in a `Content-Type`, if it is valid.
pub fn boundary(content_type: &str) -> Option<&str> {
    let mut parameters = content_type.split(';').skip(1).map(str::trim);
    let boundary = parameters.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case("boundary")
            .then_some(value.trim())
    })?;
    let boundary = boundary.trim_matches('"');
    (1..=70).contains(&boundary.len()).then_some(boundary)
}

/// Parses a body. Like PHP, it takes what is valid at the beginning of an invalid body. A body with
/// too many parts or too long headers is `FileTooLarge`.
pub fn parse(body: impl Read, boundary: &str, parts: &mut impl Parts) -> io::Result<()> {
    let mut input = Input {
        body,
        // The first delimiter may be at the very beginning, without a line break before it.
        buffer: b"\r\n".to_vec(),
        is_ended: false,
        delimiter: format!("\r\n--{boundary}").into_bytes(),
    };
    // A preamble is ignored.
    if !input.until_delimiter(|_| Ok(()))? {
        return Ok(());
    }
    let mut parts_left = MAX_PARTS;
    while let Some(headers) = input.headers()? {
        if parts_left == 0 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        parts_left -= 1;
        let Some(headers) = headers else {
            if !input.until_delimiter(|_| Ok(()))? {
                return Ok(());
            }
            continue;
        };
        parts.begin(headers)?;
        if !input.until_delimiter(|piece| parts.data(piece))? {
            return Ok(());
        }
        parts.end()?;
    }
    Ok(())
}

struct Input<R> {
    body: R,
    buffer: Vec<u8>,
    is_ended: bool,
    delimiter: Vec<u8>,
}

impl<R: Read> Input<R> {
    /// Reads more. Returns false at the end of the body.
    fn fill(&mut self) -> io::Result<bool> {
        if self.is_ended {
            return Ok(false);
        }
        let before = self.buffer.len();
        self.buffer.resize(before + ROOM, 0);
        let read = loop {
            match self.body.read(&mut self.buffer[before..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.buffer.truncate(before + *read.as_ref().unwrap_or(&0));
        self.is_ended = read? == 0;
        Ok(!self.is_ended)
    }

    /// Passes on all bytes up to the next delimiter and skips it. Returns false if there is none.
    fn until_delimiter(
        &mut self,
        mut with: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<bool> {
        loop {
            if let Some(at) = memchr::memmem::find(&self.buffer, &self.delimiter) {
                with(&self.buffer[..at])?;
                self.buffer.drain(..at + self.delimiter.len());
                return Ok(true);
            }
            // The delimiter may have begun at the end.
            let certain = self.buffer.len().saturating_sub(self.delimiter.len() - 1);
            with(&self.buffer[..certain])?;
            self.buffer.drain(..certain);
            if !self.fill()? {
                return Ok(false);
            }
        }
    }

    /// The header section after a delimiter: `None` after the last delimiter or an invalid one;
    /// `Some(None)` if the part is not a field of a form.
    fn headers(&mut self) -> io::Result<Option<Option<PartHeaders>>> {
        let end = loop {
            if self.buffer.starts_with(b"--") {
                return Ok(None);
            }
            let end = memchr::memmem::find(&self.buffer, b"\r\n\r\n");
            // The headers of several parts are in the buffer at once.
            if end.unwrap_or(self.buffer.len()) > MAX_HEADERS {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            if let Some(end) = end {
                break end;
            }
            if !self.fill()? {
                return Ok(None);
            }
        };
        let headers = parse_headers(&self.buffer[..end]);
        self.buffer.drain(..end + 4);
        Ok(Some(headers))
    }
}

fn parse_headers(section: &[u8]) -> Option<PartHeaders> {
    let text = String::from_utf8_lossy(section);
    let mut headers = None;
    let mut media_type = String::new();
    for line in text.split("\r\n") {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        if name.trim().eq_ignore_ascii_case("content-disposition") {
            headers = disposition(value);
        } else if name.trim().eq_ignore_ascii_case("content-type") {
            media_type = value.trim().to_string();
        }
    }
    headers.map(|headers| PartHeaders {
        media_type,
        ..headers
    })
}

fn disposition(value: &str) -> Option<PartHeaders> {
    let (kind, mut rest) = value.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("form-data") {
        return None;
    }
    let mut headers = PartHeaders::default();
    let mut has_name = false;
    while let Some((name, after)) = rest.split_once('=') {
        let (value, after) = parameter(after);
        match name
            .trim_matches([' ', '\t', ';'])
            .to_ascii_lowercase()
            .as_str()
        {
            "name" => {
                has_name = true;
                headers.name = value;
            }
            // Some browsers once sent the whole path.
            "filename" => {
                headers.file_name =
                    Some(value.rsplit(['/', '\\']).next().unwrap_or("").to_string());
            }
            _ => {}
        }
        rest = after;
    }
    (has_name && !headers.name.is_empty()).then_some(headers)
}

/// The value of a parameter, in quotes or not, and what follows it.
fn parameter(text: &str) -> (String, &str) {
    let text = text.trim_start();
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        return (text[..end].trim().to_string(), &text[end..]);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &quoted[at + 1..]),
            // Browsers escape quotes as %22; a backslash before another character is itself.
            '\\' if quoted[at + 1..].starts_with(['"', '\\']) => {
                value.extend(chars.next().map(|(_, c)| c));
            }
            c => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Name, file name, media type and content of each complete part.
    type Seen = Vec<(String, Option<String>, String, Vec<u8>)>;

    #[derive(Default)]
    struct Collected {
        open: Option<(PartHeaders, Vec<u8>)>,
        whole: Seen,
    }

    impl Parts for Collected {
        fn begin(&mut self, headers: PartHeaders) -> io::Result<()> {
            self.open = Some((headers, Vec::new()));
            Ok(())
        }

        fn data(&mut self, piece: &[u8]) -> io::Result<()> {
            self.open.as_mut().unwrap().1.extend_from_slice(piece);
            Ok(())
        }

        fn end(&mut self) -> io::Result<()> {
            let (headers, data) = self.open.take().unwrap();
            self.whole
                .push((headers.name, headers.file_name, headers.media_type, data));
            Ok(())
        }
    }

    /// Hands out a few bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let len = self.1.clamp(1, into.len()).min(self.0.len());
            into[..len].copy_from_slice(&self.0[..len]);
            self.0 = &self.0[len..];
            Ok(len)
        }
    }

    fn read(body: &[u8], at_once: usize) -> Seen {
        let mut collected = Collected::default();
        parse(Slow(body, at_once), "b", &mut collected).unwrap();
        collected.whole
    }

    fn part(headers: &str, data: &[u8]) -> Vec<u8> {
        [b"--b\r\n", headers.as_bytes(), b"\r\n\r\n", data, b"\r\n"].concat()
    }

    #[test]
    fn boundary_is_read_with_and_without_quotes() {
        let of = |text| boundary(text);
        assert_eq!(of("multipart/form-data; boundary=abc"), Some("abc"));
        assert_eq!(
            of("multipart/form-data; charset=x; Boundary=\"a b\""),
            Some("a b")
        );
        assert_eq!(of("multipart/form-data"), None);
        assert_eq!(of("multipart/form-data; boundary="), None);
    }

    #[test]
    fn fields_and_files_are_distinguished() {
        let body = [
            b"preamble\r\n".to_vec(),
            part("Content-Disposition: form-data; name=\"a[]\"", b"1\r\n--bb"),
            part(
                "content-disposition: form-data; name=f; filename=\"C:\\dir\\x \\\"y\\\".txt\"\r\n\
                 Content-Type: text/plain",
                b"content",
            ),
            part("Content-Disposition: attachment; name=no", b"no"),
            part(
                "Content-Disposition: form-data; name=\"e\"; filename=\"\"",
                b"",
            ),
            b"--b--\r\n--b\r\nContent-Disposition: form-data; name=late\r\n\r\n\r\n--b".to_vec(),
        ]
        .concat();
        // `--bb` in the first part is a delimiter too (RFC 2046 forbids it in content).
        let seen = read(&body, 7);
        let names: Vec<_> = seen.iter().map(|part| part.0.as_str()).collect();
        assert_eq!(names, ["a[]", "f", "e"]);
        let file = (
            "f".to_string(),
            Some("x \"y\".txt".to_string()),
            "text/plain".to_string(),
            b"content".to_vec(),
        );
        assert_eq!(seen[1], file);
        assert_eq!(seen[2].1.as_deref(), Some(""));
    }

    #[test]
    fn long_header_section_is_rejected_whatever_the_pieces() {
        for at_once in [10, 5000, ROOM] {
            let parsed = |len: usize| {
                let headers = "Content-Disposition: form-data; name=";
                let name = "n".repeat(len - headers.len());
                let body = part(&format!("{headers}{name}"), b"1");
                parse(Slow(&body, at_once), "b", &mut Collected::default())
            };
            assert!(parsed(MAX_HEADERS - 2).is_ok(), "{at_once}");
            let error = parsed(MAX_HEADERS + 1).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge, "{at_once}");
        }
    }

    #[test]
    fn parts_beyond_the_limit_reject_the_body() {
        let body = |count: usize| {
            let part = part("Content-Disposition: form-data; name=a", b"1");
            [part.repeat(count), b"--b--\r\n".to_vec()].concat()
        };
        assert_eq!(read(&body(MAX_PARTS), ROOM).len(), MAX_PARTS);
        let long = body(MAX_PARTS + 1);
        let error = parse(Slow(&long, ROOM), "b", &mut Collected::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn truncated_part_is_discarded() {
        let mut body = part("Content-Disposition: form-data; name=a", b"1");
        body.extend(b"--b\r\nContent-Disposition: form-data; name=b\r\n\r\nhalf");
        assert_eq!(read(&body, 100).len(), 1);
    }

    proptest! {
        #[test]
        fn parts_arrive_whole_whatever_the_pieces(
            parts in prop::collection::vec(prop::collection::vec(
                prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'-'), any::<u8>()], 0..60), 0..5),
            at_once in 1..40_usize,
        ) {
            let mut body = Vec::new();
            let is_free = |data: &Vec<u8>| memchr::memmem::find(data, b"--b").is_none();
            let parts: Vec<_> = parts.into_iter().filter(is_free).collect();
            for data in &parts {
                body.extend(part("Content-Disposition: form-data; name=\"n\"", data));
            }
            body.extend(b"--b--\r\n");
            let seen: Vec<_> = read(&body, at_once).into_iter().map(|part| part.3).collect();
            prop_assert_eq!(seen, parts);
        }

        #[test]
        fn arbitrary_body_ends(body: Vec<u8>, at_once in 1..40_usize) {
            read(&body, at_once);
        }
    }
}

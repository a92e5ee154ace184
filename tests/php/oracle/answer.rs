//! An oracle's answer, and the HTTP form of a CGI answer.

/// A complete answer as an HTTP client sees it.
#[derive(Clone)]
pub struct Answer {
    pub status: u16,
    pub reason: String,
    /// In the order sent.
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
    /// Whether the body has the announced length.
    pub complete: bool,
}

/// Headers of the connection between the web server and its client, which nginx removes from PHP's
/// response.
pub const CONNECTION_HEADERS: [&str; 5] = [
    "connection",
    "keep-alive",
    "transfer-encoding",
    "date",
    "server",
];

impl Answer {
    /// The answer for a client that disconnected before it had one.
    pub fn unread() -> Answer {
        Answer {
            status: 200,
            reason: String::new(),
            headers: Vec::new(),
            body: Vec::new(),
            complete: false,
        }
    }

    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_slice())
    }

    /// Parses a CGI answer (RFC 3875, 6) and converts it as nginx would.
    pub fn from_cgi(output: &[u8], method: &str) -> Result<Answer, String> {
        let (mut headers, body) = split_head(output)?;
        let mut status = None;
        if let Some(at) = headers
            .iter()
            .position(|(name, _)| name.eq_ignore_ascii_case("status"))
        {
            let (_, line) = headers.remove(at);
            let line = String::from_utf8_lossy(&line).into_owned();
            let (code, reason) = line.split_once(' ').unwrap_or((&line, ""));
            let code = code
                .parse::<u16>()
                .map_err(|_| format!("not a status: {line:?}"))?;
            status = Some((code, reason.to_string()));
        }
        let (status, reason) = status.unwrap_or((200, "OK".into()));
        headers
            .retain(|(name, _)| !CONNECTION_HEADERS.contains(&name.to_ascii_lowercase().as_str()));
        let mut answer = Answer {
            status,
            reason,
            headers,
            body,
            complete: true,
        };
        if status == 204 {
            // RFC 9110, 8.6: never in a 204.
            answer
                .headers
                .retain(|(name, _)| !name.eq_ignore_ascii_case("content-length"));
        }
        if method == "HEAD" || status == 204 || status == 304 {
            answer.body.clear();
        } else if let Some(length) = answer.header("content-length") {
            let length = String::from_utf8_lossy(length)
                .trim()
                .parse()
                .map_err(|_| "Content-Length is no number")?;
            answer.complete = answer.body.len() >= length;
            answer.body.truncate(length);
        }
        Ok(answer)
    }
}

type Head = Vec<(String, Vec<u8>)>;

/// Splits the header lines from the body.
pub fn split_head(output: &[u8]) -> Result<(Head, Vec<u8>), String> {
    let mut headers = Vec::new();
    let mut rest = output;
    loop {
        let end = rest.iter().position(|&byte| byte == b'\n');
        let end = end.ok_or_else(|| {
            format!(
                "no end of the header: {:?}",
                String::from_utf8_lossy(output)
            )
        })?;
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        rest = &rest[end + 1..];
        if line.is_empty() {
            return Ok((headers, rest.to_vec()));
        }
        let colon = line.iter().position(|&byte| byte == b':');
        let colon =
            colon.ok_or_else(|| format!("not a header: {:?}", String::from_utf8_lossy(line)))?;
        let name = String::from_utf8_lossy(&line[..colon]).into_owned();
        headers.push((name, line[colon + 1..].trim_ascii().to_vec()));
    }
}

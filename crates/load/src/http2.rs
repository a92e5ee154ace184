//! One HTTP/2 connection with one request at a time.

use bytes::Bytes;
use h2::client::SendRequest;

use crate::answer::{Answer, Error, Retention};
use crate::connect::Stream;
use crate::outcome::RequestFailure;
use crate::requests::Prepared;

/// Flow-control windows, so large that the server never waits for the generator.
const WINDOW: u32 = 16 << 20;

pub struct Http2Connection {
    sender: SendRequest<Bytes>,
    driver: tokio::task::JoinHandle<()>,
    keeps_cookies: bool,
    awaits_header_section: bool,
    /// Bytes of headers and bodies received in the current exchange, without HTTP/2's own frames.
    pub received: u64,
}

impl Http2Connection {
    pub async fn open(stream: Stream, keeps_cookies: bool) -> Result<Http2Connection, Error> {
        let (sender, connection) = h2::client::Builder::new()
            .enable_push(false)
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .handshake(stream)
            .await?;
        let driver = tokio::spawn(async {
            // Streams report the error as well.
            let _ = connection.await;
        });
        Ok(Http2Connection {
            sender,
            driver,
            keeps_cookies,
            awaits_header_section: true,
            received: 0,
        })
    }

    pub fn awaits_header_section(&self) -> bool {
        self.awaits_header_section
    }

    pub fn has_ended(&self) -> bool {
        self.driver.is_finished()
    }

    pub async fn exchange(
        &mut self,
        request: &Prepared,
        cookies: Option<&[u8]>,
        wanted: &Retention<'_>,
    ) -> Result<Answer, Error> {
        self.received = 0;
        self.awaits_header_section = true;
        let mut parts = request.http2.clone();
        if let Some(cookies) = cookies {
            let value = http::HeaderValue::from_bytes(cookies)
                .map_err(|_| Error::malformed("a cookie that it has set cannot be sent back"))?;
            // A header of the request stays.
            parts.headers_mut().append("cookie", value);
        }
        let sent = length(&parts) + request.body.len();
        let mut sender = self.sender.clone().ready().await?;
        let (response, mut stream) = sender.send_request(parts, request.body.is_empty())?;
        if !request.body.is_empty() {
            stream.send_data(request.body.clone(), true)?;
        }
        let (parts, mut body) = response.await?.into_parts();
        self.awaits_header_section = false;
        let status = parts.status.as_u16();
        let mut answer = Answer {
            status,
            received: 0,
            sent: sent as u64,
            body: Vec::new(),
            cookies: Vec::new(),
        };
        for (name, value) in &parts.headers {
            self.received += (name.as_str().len() + value.len()) as u64;
            if self.keeps_cookies && name == "set-cookie" {
                answer.cookies.push(value.as_bytes().to_vec());
            }
        }
        let keeps_body = wanted.keeps_body || wanted.is_sample(status);
        while let Some(data) = body.data().await {
            let data = data?;
            self.received += data.len() as u64;
            body.flow_control().release_capacity(data.len())?;
            if keeps_body && answer.body.len() < 1 << 20 {
                answer.body.extend_from_slice(&data);
            }
        }
        body.trailers().await?;
        answer.received = self.received;
        Ok(answer)
    }
}

/// Bytes of the names and values of a request's fields.
fn length(parts: &http::Request<()>) -> usize {
    let uri = parts.uri();
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let pseudo = [
        (":method", parts.method().as_str()),
        (":scheme", uri.scheme_str().unwrap_or_default()),
        (":authority", authority),
        (":path", path),
    ];
    let pseudo = pseudo.map(|(name, value)| name.len() + value.len());
    let fields = parts.headers().iter();
    let fields = fields.map(|(name, value)| name.as_str().len() + value.len());
    pseudo.into_iter().chain(fields).sum()
}

impl Drop for Http2Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl From<h2::Error> for Error {
    fn from(error: h2::Error) -> Error {
        let failure = match error.get_io() {
            Some(error) => RequestFailure::from_io(error),
            None if error.is_reset() || error.is_go_away() => match error.reason() {
                Some(h2::Reason::REFUSED_STREAM) => RequestFailure::Refused,
                _ if error.is_remote() => RequestFailure::Reset,
                // The generator itself has found a mistake in what the server sent.
                _ => RequestFailure::Malformed,
            },
            None => RequestFailure::Closed,
        };
        // RFC 9113, section 6.8: h2 fails only the streams above the last one that GOAWAY names.
        let is_unprocessed =
            error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR);
        Error {
            is_unprocessed,
            ..Error::new(failure, Some(error.to_string()))
        }
    }
}

//! One HTTP/1.1 connection: writes constant bytes, and reads no more of a response than it needs.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::answer::{Answer, Error, Retention};
use crate::connect::Stream;
use crate::requests::Prepared;
use crate::response::{HeaderSection, ReadProgress, Reader};

/// Bytes that one read takes. Pages that small responses do not reach are never touched.
const BUFFER: usize = 32 << 10;

/// A request that is being sent. A server may answer before it has read a large body, and its
/// answer counts even if it reads no further.
struct Upload<'a> {
    rest: &'a [u8],
    is_flushed: bool,
    error: Option<std::io::Error>,
}

impl Upload<'_> {
    /// Sends as much as the connection takes.
    fn go_on(&mut self, stream: &mut Stream, context: &mut Context<'_>) {
        while !self.is_flushed && self.error.is_none() {
            let stream = Pin::new(&mut *stream);
            let sent = match self.rest {
                [] => stream.poll_flush(context).map_ok(|()| None),
                rest => stream.poll_write(context, rest).map_ok(Some),
            };
            match sent {
                Poll::Pending => return,
                Poll::Ready(Ok(None)) => self.is_flushed = true,
                Poll::Ready(Ok(Some(0))) => {
                    self.error = Some(std::io::ErrorKind::WriteZero.into());
                }
                Poll::Ready(Ok(Some(count))) => self.rest = &self.rest[count..],
                Poll::Ready(Err(error)) => self.error = Some(error),
            }
        }
    }
}

#[derive(Debug)]
pub struct Http1Connection {
    stream: Stream,
    reader: Reader,
    buffer: Box<[u8]>,
    keeps_alive: bool,
    /// Bytes received in the current exchange.
    pub received: u64,
}

impl Http1Connection {
    pub fn new(stream: Stream, keeps_cookies: bool) -> Http1Connection {
        Http1Connection {
            stream,
            reader: Reader::new(keeps_cookies),
            buffer: vec![0; BUFFER].into_boxed_slice(),
            keeps_alive: true,
            received: 0,
        }
    }

    /// Whether another request may be sent.
    pub fn is_reusable(&self) -> bool {
        self.keeps_alive
    }

    /// Whether the header section of the current response is incomplete.
    pub fn awaits_header_section(&self) -> bool {
        self.reader.awaits_header_section()
    }

    /// Whether the server has closed the idle connection, or sent bytes without a request.
    pub fn has_ended(&mut self) -> bool {
        let mut byte = [0];
        let read = match &mut self.stream {
            Stream::Tcp(stream) => stream.try_read(&mut byte),
            Stream::Unix(stream) => stream.try_read(&mut byte),
            // TLS's own records, such as session tickets, are no bytes of a response.
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => {
                let mut context = Context::from_waker(std::task::Waker::noop());
                let mut byte = ReadBuf::new(&mut byte);
                return Pin::new(stream)
                    .poll_read(&mut context, &mut byte)
                    .is_ready();
            }
        };
        !matches!(read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Sends a request and reads its response.
    pub async fn exchange(
        &mut self,
        request: &Prepared,
        cookies: Option<&[u8]>,
        wanted: &Retention<'_>,
    ) -> Result<Answer, Error> {
        self.received = 0;
        self.reader.begin(request.is_head, wanted.keeps_body);
        let with_cookies = cookies.map(|cookies| {
            [
                &*request.header,
                b"Cookie: ",
                cookies,
                b"\r\n",
                &request.tail,
            ]
            .concat()
        });
        let bytes = with_cookies.as_deref().unwrap_or(&request.whole);
        let mut upload = Upload {
            rest: bytes,
            is_flushed: false,
            error: None,
        };
        let header = match self.receive(&mut upload, wanted).await {
            Ok(header) => header,
            // Why the request could not be sent says more than that there is no response.
            Err(error) => return Err(upload.error.map_or(error, Error::from)),
        };
        self.keeps_alive = header.keeps_alive && upload.rest.is_empty();
        Ok(Answer {
            status: header.status,
            received: self.received,
            sent: (bytes.len() - upload.rest.len()) as u64,
            body: std::mem::take(&mut self.reader.body),
            cookies: std::mem::take(&mut self.reader.cookies),
        })
    }

    /// Reads the response, and meanwhile sends what is left of the request.
    async fn receive(
        &mut self,
        upload: &mut Upload<'_>,
        wanted: &Retention<'_>,
    ) -> Result<HeaderSection, Error> {
        let mut header = None;
        loop {
            let (stream, buffer) = (&mut self.stream, &mut self.buffer);
            let count = poll_fn(|context| {
                upload.go_on(stream, context);
                let mut buffer = ReadBuf::new(buffer);
                ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer))?;
                Poll::Ready(std::io::Result::Ok(buffer.filled().len()))
            })
            .await?;
            if count == 0 {
                return match header {
                    Some(header) if self.reader.end() => Ok(header),
                    _ => Err(Error::closed()),
                };
            }
            self.received += count as u64;
            let mut begin = 0;
            while begin < count {
                let (used, progress) = self.reader.read(&self.buffer[begin..count])?;
                begin += used;
                match (progress, header) {
                    (ReadProgress::Header(new), _) => {
                        header = Some(new);
                        if wanted.is_sample(new.status) {
                            self.reader.keeps_body = true;
                        }
                        if !self.reader.is_done() {
                            continue;
                        }
                    }
                    (ReadProgress::More, _) => continue,
                    (ReadProgress::Done, _) => {}
                }
                if begin < count {
                    return Err(Error::malformed("more bytes than the response has"));
                }
                return header.ok_or_else(|| Error::malformed("a body without a header section"));
            }
        }
    }
}

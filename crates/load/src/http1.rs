//! One HTTP/1.1 connection: writes constant bytes, and reads no more of a response than it needs.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::connect::Stream;
use crate::requests::Prepared;
use crate::response::{Head, Progress, Reader};
use crate::user::{Answer, Error, Retention};

/// Bytes that one read takes. Pages that small responses do not reach are never touched.
const BUFFER: usize = 32 << 10;

#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    reader: Reader,
    buffer: Box<[u8]>,
    keeps_alive: bool,
    /// Bytes received in the current exchange.
    pub received: u64,
}

impl Connection {
    pub fn new(stream: Stream, keeps_cookies: bool) -> Connection {
        Connection {
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

    /// Whether the head of the current response is incomplete.
    pub fn awaits_head(&self) -> bool {
        self.reader.awaits_head()
    }

    /// Whether the server has closed the idle connection, or sent bytes without a request.
    pub fn has_ended(&self) -> bool {
        let mut byte = [0];
        let read = match &self.stream {
            Stream::Tcp(stream) => stream.try_read(&mut byte),
            Stream::Unix(stream) => stream.try_read(&mut byte),
            #[cfg(feature = "tls")]
            Stream::Tls(_) => return false,
        };
        !matches!(read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Sends a request and reads its response.
    pub async fn exchange(
        &mut self,
        request: &Prepared,
        cookies: Option<&str>,
        wanted: &Retention<'_>,
    ) -> Result<Answer, Error> {
        self.received = 0;
        self.reader.begin(request.is_head, wanted.keeps_body);
        let with_cookies = cookies.map(|cookies| {
            let line = format!("Cookie: {cookies}\r\n");
            [&request.head, line.as_bytes(), &request.tail].concat()
        });
        let bytes = with_cookies.as_deref().unwrap_or(&request.whole);
        // A server may answer and close before it has read a large body; its answer counts.
        let written = self.send(bytes).await;
        let head = match (self.receive(wanted).await, written) {
            (Ok(head), _) => head,
            (Err(_), Err(error)) => return Err(Error::from(error)),
            (Err(error), Ok(())) => return Err(error),
        };
        self.keeps_alive = head.keeps_alive;
        Ok(Answer {
            status: head.status,
            received: self.received,
            sent: bytes.len() as u64,
            body: std::mem::take(&mut self.reader.body),
            cookies: std::mem::take(&mut self.reader.cookies),
        })
    }

    async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    async fn receive(&mut self, wanted: &Retention<'_>) -> Result<Head, Error> {
        let mut head = None;
        loop {
            let count = self.stream.read(&mut self.buffer).await?;
            if count == 0 {
                return match head {
                    Some(head) if self.reader.end() => Ok(head),
                    _ => Err(Error::closed()),
                };
            }
            self.received += count as u64;
            let mut begin = 0;
            while begin < count {
                let (used, progress) = self.reader.read(&self.buffer[begin..count])?;
                begin += used;
                match (progress, head) {
                    (Progress::Head(new), _) => {
                        head = Some(new);
                        if wanted.is_sample(new.status) {
                            self.reader.keeps_body = true;
                        }
                        if !self.reader.is_done() {
                            continue;
                        }
                    }
                    (Progress::More, _) => continue,
                    (Progress::Done, _) => {}
                }
                if begin < count {
                    return Err(Error::malformed("more bytes than the response has"));
                }
                return head.ok_or_else(|| Error::malformed("a body without a head"));
            }
        }
    }
}

//! Receives a request's whole body before a worker gets it, because the client may be slow and the
//! worker must not wait.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::io::AsyncWriteExt;

use crate::budget::{self, MEMORY, Reservation};
use crate::event::Body;
use crate::spool::TempFile;

/// A body above this many bytes goes to a file.
pub const IN_MEMORY: u64 = 64 * 1024;

/// Limits of a request body.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits<'a> {
    pub max: u64,
    /// The longest pause between two pieces.
    pub idle: Duration,
    /// The directory of the file.
    pub spool: Option<&'a Path>,
}

/// Why a body was not received.
#[derive(Debug)]
pub enum BodyError {
    /// 413.
    TooLarge,
    /// 408.
    TooSlow,
    /// 400, or the client has disconnected.
    Broken(String),
    /// 507: the disk is full, or the directory is not writable.
    NoRoom(io::Error),
}

/// A body, and whether trailers came with it.
#[derive(Debug)]
pub struct CollectedBody {
    pub body: Body,
    /// Trailers are dropped, because CGI cannot pass them on.
    pub trailers: bool,
}

/// Collects the body. A client that expects `100 Continue` gets it when the first piece is polled.
pub async fn collect<B>(body: B, limits: BodyLimits<'_>) -> Result<CollectedBody, BodyError>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let mut trailers = false;
    let body = collect_into(body, limits, &mut trailers).await?;
    Ok(CollectedBody { body, trailers })
}

async fn collect_into<B>(
    body: B,
    limits: BodyLimits<'_>,
    trailers: &mut bool,
) -> Result<Body, BodyError>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    if body.is_end_stream() {
        return Ok(Body::Empty);
    }
    let announced = body.size_hint().exact();
    if announced.is_some_and(|len| len > limits.max) {
        return Err(BodyError::TooLarge);
    }
    let mut body = pin!(body);
    let max = announced.map_or(IN_MEMORY, |len| len.min(IN_MEMORY));
    let mut taken = MEMORY.try_take(max);
    let in_memory = if taken.is_some() { IN_MEMORY } else { 0 };
    let mut memory =
        BytesMut::with_capacity(announced.map_or(0, |len| len.min(in_memory) as usize));
    let mut spooled: Option<Writing> = None;
    let mut len = 0;
    while let Some(piece) = within(limits.idle, next(body.as_mut(), trailers)).await? {
        len += piece.len() as u64;
        if len > limits.max {
            return Err(BodyError::TooLarge);
        }
        if spooled.is_none() && len > in_memory {
            let mut file = Writing::to(limits.spool).map_err(BodyError::NoRoom)?;
            file.append(&memory).await.map_err(BodyError::NoRoom)?;
            memory = BytesMut::new();
            taken = None;
            spooled = Some(file);
        }
        match &mut spooled {
            Some(file) => file.append(&piece).await.map_err(BodyError::NoRoom)?,
            // A single piece needs no copy, unless it keeps a longer buffer.
            None if announced == Some(len) && memory.is_empty() => {
                return Ok(Body::Memory(held(budget::apart(piece), taken)));
            }
            None => memory.extend_from_slice(&piece),
        }
    }
    match spooled {
        Some(file) => {
            let file = file.end().await.map_err(BodyError::NoRoom)?;
            Ok(Body::Spooled { file, len })
        }
        None if len == 0 => Ok(Body::Empty),
        None => Ok(Body::Memory(held(memory.freeze(), taken))),
    }
}

fn held(bytes: Bytes, taken: Option<Reservation>) -> Bytes {
    match taken {
        Some(mut taken) => {
            // Of the memory for what was announced, keep what arrived.
            taken.shrink_to(bytes.len() as u64);
            budget::charge(bytes, taken)
        }
        None => bytes,
    }
}

/// A temporary file that is being written.
struct Writing {
    file: Arc<TempFile>,
    writer: tokio::fs::File,
}

impl Writing {
    fn to(directory: Option<&Path>) -> io::Result<Writing> {
        let file = TempFile::create(directory)?;
        Ok(Writing {
            writer: tokio::fs::File::from_std(file.try_clone()?),
            file: Arc::new(file),
        })
    }

    async fn append(&mut self, piece: &[u8]) -> io::Result<()> {
        self.file.reserve(piece.len() as u64)?;
        self.writer.write_all(piece).await
    }

    async fn end(mut self) -> io::Result<Arc<TempFile>> {
        self.writer.flush().await?;
        Ok(self.file)
    }
}

pub async fn next<B>(
    mut body: std::pin::Pin<&mut B>,
    trailers: &mut bool,
) -> Result<Option<Bytes>, BodyError>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(error)) => return Err(BodyError::Broken(error.to_string())),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(piece) => return Ok(Some(piece)),
                Err(_) => *trailers = true,
            },
        }
    }
}

pub async fn within<T>(
    idle: Duration,
    next: impl Future<Output = Result<T, BodyError>>,
) -> Result<T, BodyError> {
    tokio::time::timeout(idle, next)
        .await
        .unwrap_or(Err(BodyError::TooSlow))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};
    use std::convert::Infallible;
    use std::io::{Read, Seek};

    const LIMITS: BodyLimits = BodyLimits {
        max: 1 << 20,
        idle: Duration::from_secs(30),
        spool: None,
    };

    fn pieces(pieces: Vec<Bytes>) -> impl http_body::Body<Data = Bytes, Error = Infallible> {
        StreamBody::new(futures_util::stream::iter(
            pieces.into_iter().map(|piece| Ok(Frame::data(piece))),
        ))
    }

    #[tokio::test]
    async fn small_body_stays_in_memory_and_a_large_one_goes_to_a_file() {
        let body = collect(Full::new(Bytes::from_static(b"abc")), LIMITS)
            .await
            .unwrap()
            .body;
        assert!(matches!(body, Body::Memory(bytes) if &bytes[..] == b"abc"));
        assert!(matches!(
            collect(pieces(vec![]), LIMITS).await.unwrap().body,
            Body::Empty
        ));

        let piece = Bytes::from(vec![b'x'; 40_000]);
        let body = collect(pieces(vec![piece.clone(), piece.clone(), piece]), LIMITS)
            .await
            .unwrap()
            .body;
        let Body::Spooled { file, len } = body else {
            panic!("{body:?}")
        };
        assert_eq!(len, 120_000);
        let mut text = String::new();
        (&**file).rewind().unwrap();
        (&**file).read_to_string(&mut text).unwrap();
        assert_eq!(text, "x".repeat(120_000));
    }

    #[tokio::test]
    async fn body_of_any_size_counts_and_keeps_no_longer_buffer() {
        for len in [1, 3000, 20_000] {
            let block = Bytes::from(vec![b'x'; 1 << 20]);
            let body = Full::new(block.slice(..len));
            let Body::Memory(body) = collect(body, LIMITS).await.unwrap().body else {
                panic!()
            };
            // Other tests count, too, but never less.
            assert!(MEMORY.used() >= len as u64);
            assert_eq!(body.len(), len);
            assert_eq!(block.is_unique(), len < 16_384);
        }
    }

    #[tokio::test]
    async fn trailers_are_dropped_and_reported() {
        let frames = [
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"abc"))),
            Ok(Frame::trailers(http::HeaderMap::new())),
        ];
        let body = StreamBody::new(futures_util::stream::iter(frames));
        let collected = collect(body, LIMITS).await.unwrap();
        assert!(collected.trailers);
        assert_eq!(collected.body.len(), 3);
    }

    #[tokio::test]
    async fn too_large_body_is_rejected_before_or_while_reading() {
        let large = Bytes::from(vec![0; 2 << 20]);
        assert!(matches!(
            collect(Full::new(large.clone()), LIMITS).await,
            Err(BodyError::TooLarge)
        ));
        assert!(matches!(
            collect(pieces(vec![large]), LIMITS).await,
            Err(BodyError::TooLarge)
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_client_is_too_slow() {
        let stalled = StreamBody::new(futures_util::stream::pending::<
            Result<Frame<Bytes>, Infallible>,
        >());
        assert!(matches!(
            collect(stalled, LIMITS).await,
            Err(BodyError::TooSlow)
        ));
    }

    #[tokio::test]
    async fn unwritable_directory_is_reported() {
        let limits = BodyLimits {
            spool: Some(Path::new("/nonexistent")),
            ..LIMITS
        };
        let piece = Bytes::from(vec![b'x'; 70_000]);
        assert!(matches!(
            collect(pieces(vec![piece]), limits).await,
            Err(BodyError::NoRoom(_))
        ));
    }
}

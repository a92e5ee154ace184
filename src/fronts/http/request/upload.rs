//! Streams a request's body to PHP while it arrives (`http.stream_body`).
//!
//! The worker reads it from a pipe. It waits for a slow client then, at most until the request's
//! deadline. If the body is cut off, the pipe ends early, and PHP ends the request.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;

use super::body::{self, BodyError, BodyLimits, IN_MEMORY};
use crate::event::{Body, Failure, Response, ResponseBody};

/// A body that arrives while PHP runs. Dropping it ends the pipe.
pub struct Upload {
    /// None once it has ended.
    task: Option<JoinHandle<Result<(), BodyError>>>,
    is_cut: bool,
}

impl Upload {
    /// Whether streaming a body pays: it has a length, as PHP demands, and exceeds the part that is
    /// collected in memory in any case.
    pub fn is_worth(body: &impl http_body::Body) -> bool {
        let len = body.size_hint().exact();
        len.is_some_and(|len| len > IN_MEMORY)
    }

    /// Begins to send a body of known length. Returns what PHP reads.
    pub fn begin<B>(incoming: B, limits: BodyLimits<'_>) -> Result<(Body, Upload), BodyError>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: std::fmt::Display,
    {
        let len = incoming.size_hint().exact().unwrap_or(0);
        if len > limits.max {
            return Err(BodyError::TooLarge);
        }
        let (writer, reader) = pipe::pipe().map_err(BodyError::NoRoom)?;
        let reader = reader.into_blocking_fd().map_err(BodyError::NoRoom)?;
        let task = tokio::spawn(send(incoming, limits.idle, writer));
        let body = Body::Streamed {
            reader: Arc::new(reader),
            len,
        };
        let upload = Upload {
            task: Some(task),
            is_cut: false,
        };
        Ok((body, upload))
    }

    /// Whether all of the body has arrived. Known only once the pipe has it.
    pub fn has_arrived(&self) -> bool {
        self.task.as_ref().is_none_or(JoinHandle::is_finished) && !self.is_cut
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        let Some(task) = &mut self.task else {
            return Poll::Ready(Ok(()));
        };
        let ended = ready!(Pin::new(task).poll(context));
        self.task = None;
        // A task that panicked has not sent all.
        let ended = ended.unwrap_or_else(|error| Err(BodyError::Broken(error.to_string())));
        self.is_cut = ended.is_err();
        Poll::Ready(ended)
    }
}

/// Waits for PHP's answer. The error says why the body was cut off before.
pub async fn unless_cut<T>(
    upload: &mut Option<Upload>,
    answer: impl Future<Output = T>,
) -> Result<T, BodyError> {
    let Some(upload) = upload else {
        return Ok(answer.await);
    };
    let cut = async {
        match std::future::poll_fn(|context| upload.poll(context)).await {
            Err(error) => error,
            Ok(()) => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        error = cut => Err(error),
        answer = answer => Ok(answer),
    }
}

/// If the response begins before the request's body has arrived, makes it fail when that fails.
pub fn bind(upload: Option<Upload>, response: Response) -> Response {
    let Some(upload) = upload else {
        return response;
    };
    response.map(|body| match body {
        // PHP has ended.
        ResponseBody::Full(_) => body,
        body => ResponseBody::stream(Bound { body, upload }),
    })
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

async fn send<B>(incoming: B, idle: Duration, mut writer: pipe::Sender) -> Result<(), BodyError>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let mut incoming = std::pin::pin!(incoming);
    // Trailers of a body with a length are ignored.
    let mut trailers = false;
    while let Some(piece) = body::within(idle, body::next(incoming.as_mut(), &mut trailers)).await?
    {
        match writer.write_all(&piece).await {
            Ok(()) => {}
            // PHP has closed the pipe, so the rest is not read.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return std::future::pending().await;
            }
            Err(error) => return Err(BodyError::NoRoom(error)),
        }
    }
    Ok(())
}

/// A response that fails if its request's body is cut off.
struct Bound {
    body: ResponseBody,
    upload: Upload,
}

impl http_body::Body for Bound {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        let this = self.get_mut();
        if let Poll::Ready(Err(_)) = this.upload.poll(context) {
            let why = "the request's body was cut off".into();
            return Poll::Ready(Some(Err(Failure::Malformed(why))));
        }
        Pin::new(&mut this.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

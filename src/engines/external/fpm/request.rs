//! One request on a connection to php-fpm.

use std::io;
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use surus_sys::process;

use super::super::connection::PhpStream;
use super::super::daemon::Daemon;
use super::super::exchange::{CgiOutput, Exchange, ResponsePart};
use super::super::slots::ProcessSlot;
use super::{Inner, POLL_INTERVAL};
use crate::engine::Pending;
use crate::engines::cgi::params::Params;
use crate::engines::cgi::{fastcgi, server_vars};
use crate::event::{Body, Event, Failure};
use crate::observe::message::Message;
use crate::observe::php_log;

/// How long a killed process may take to be replaced before it is killed again.
const AGAIN: Duration = Duration::from_secs(1);

/// How often to check that the event's process still runs; a process that it started may keep the
/// connection open.
const ALIVE: Duration = Duration::from_secs(1);

/// An event in progress at a php-fpm process.
pub(super) struct FastCgi {
    pub(super) fpm: Arc<Inner>,
    pub(super) slot: ProcessSlot,
    pub(super) pid: u32,
    pub(super) event: u64,
    /// None if the connection failed or the client has closed the request.
    pub(super) stream: Option<Arc<PhpStream>>,
    /// Whether PHP keeps the connection open after the event.
    pub(super) keeps: bool,
    /// Sends the event; holds the connection until then.
    pub(super) feeding: tokio::task::JoinHandle<()>,
    pub(super) input: BytesMut,
    pub(super) reply: CgiOutput,
    /// An incomplete log message.
    pub(super) message: Message,
    /// Whether END_REQUEST has arrived. PHP may still be running (`fastcgi_finish_request`).
    pub(super) is_complete: bool,
    pub(super) is_killed: bool,
}

impl FastCgi {
    /// Decodes the received records.
    fn take(&mut self) -> Result<Option<ResponsePart>, Failure> {
        loop {
            if let Some(part) = self.reply.next()? {
                return Ok(Some(part));
            }
            let wrong = |error: fastcgi::WrongVersion| Failure::Malformed(error.to_string());
            let Some(record) = fastcgi::decode(&mut self.input).map_err(wrong)? else {
                return Ok(None);
            };
            match record.kind {
                fastcgi::STDOUT => self.reply.buffer().extend_from_slice(&record.content),
                fastcgi::STDERR => self.log(&record.content),
                fastcgi::END_REQUEST if record.content.get(4) == Some(&fastcgi::OVERLOADED) => {
                    return Err(Failure::Busy("php-fpm is overloaded"));
                }
                fastcgi::END_REQUEST => {
                    self.log(b"\n");
                    self.is_complete = true;
                    return Ok(None);
                }
                _ => {}
            }
        }
    }

    /// A log message of PHP ends with a line break and may span several records.
    fn log(&mut self, piece: &[u8]) {
        self.message.add(piece);
        if piece.ends_with(b"\n") {
            let message = std::mem::take(&mut self.message);
            if message.kept() != b"\n" {
                php_log::message(message, self.pid, Some(self.event));
            }
        }
    }

    /// Waits until the process is idle: it answers this request only then.
    async fn is_free(stream: &PhpStream) -> io::Result<()> {
        stream
            .write_all(&fastcgi::header(fastcgi::GET_VALUES, 0, 0))
            .await?;
        let mut input = BytesMut::new();
        while stream.read(&mut input).await? > 0 {
            // Fail on data that is not FastCGI: otherwise the buffer would grow without limit.
            while let Some(record) = fastcgi::decode(&mut input).map_err(io::Error::other)? {
                if record.kind == fastcgi::GET_VALUES_RESULT {
                    return Ok(());
                }
            }
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    /// Waits until the slot's process is idle and returns a connection to it; None if php-fpm has
    /// exited.
    async fn free(&self, daemon: &Daemon) -> Option<PhpStream> {
        let address = &self.fpm.pools[self.slot.index].address;
        let mut connected = pin!(async {
            loop {
                // A busy process accepts later; a killed one leaves the connection to its
                // successor.
                if let Ok(stream) = PhpStream::connect(address).await
                    && Self::is_free(&stream).await.is_ok()
                {
                    return stream;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        });
        loop {
            tokio::select! {
                stream = &mut connected => {
                    self.fpm.count_children();
                    return Some(stream);
                }
                _ = daemon.ended() => return None,
                // The previous kill may have hit an older process that was already being replaced.
                () = tokio::time::sleep(AGAIN), if self.is_killed => {
                    self.fpm.kill_child(&self.slot);
                }
            }
        }
    }

    /// Whether the event's process has exited. php-fpm reaps it only while it is not stopped.
    fn has_process_exited(&self) -> bool {
        let is_known = self.fpm.daemon.is_some() && self.pid != 0;
        is_known && matches!(process::state(self.pid), None | Some('Z' | 'X'))
    }
}

impl Exchange for FastCgi {
    fn next(&mut self) -> Pending<'_, Result<Option<ResponsePart>, Failure>> {
        Box::pin(async {
            let mut had_exited = false;
            loop {
                match self.take()? {
                    Some(part) => return Ok(Some(part)),
                    None if !self.is_complete => {}
                    None if self.reply.has_headers() => return Ok(None),
                    None => return Err(Failure::Malformed("php-fpm sent no header block".into())),
                }
                let Some(stream) = &self.stream else {
                    return Err(Failure::WorkerCrashed(
                        "the connection to php-fpm is closed".into(),
                    ));
                };
                let read = tokio::select! {
                    biased;
                    read = stream.read(&mut self.input) => read,
                    // Read once more: data may have arrived before the exit.
                    () = tokio::time::sleep(ALIVE) => {
                        match std::mem::replace(&mut had_exited, self.has_process_exited()) {
                            true => Ok(0),
                            false => continue,
                        }
                    }
                };
                if !matches!(read, Ok(1..)) {
                    self.stream = None;
                    return Err(Failure::WorkerCrashed(
                        "php-fpm closed the connection before the end of the response".into(),
                    ));
                }
            }
        })
    }

    fn leave(&mut self) {
        if let Some(stream) = self.stream.take()
            && !stream.refuse_more()
        {
            self.feeding.abort();
        }
        // Otherwise PHP gets the rest of the body; it would treat a truncated body as complete.
    }

    fn kill(&mut self) {
        self.is_killed = true;
        self.fpm.kill_child(&self.slot);
        self.feeding.abort();
        self.stream = None;
    }

    fn over(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            let fpm = self.fpm.clone();
            let idle = match self.stream.take() {
                Some(stream) if self.is_complete && self.keeps => {
                    let _ = (&mut self.feeding).await;
                    // The end of the connection also shows that the process is idle again.
                    match Self::is_free(&stream).await {
                        Ok(()) => Arc::into_inner(stream),
                        Err(_) => return,
                    }
                }
                whole => {
                    if whole.is_some() {
                        // PHP waits for the end of an unread body.
                        self.feeding.abort();
                    }
                    drop(whole);
                    match &fpm.daemon {
                        Some(daemon) => self.free(daemon).await,
                        // A php-fpm that Surus did not start: the process is unknown.
                        None => {
                            let _ = (&mut self.feeding).await;
                            None
                        }
                    }
                }
            };
            if fpm.daemon.is_some() {
                let kept = &fpm.pools[self.slot.index].kept;
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = idle;
            }
        })
    }
}

impl Drop for FastCgi {
    fn drop(&mut self) {
        self.feeding.abort();
    }
}

/// Encodes BEGIN_REQUEST for a responder and the CGI variables.
pub(super) fn encode(event: &Event, keeps: bool) -> Result<Vec<u8>, Failure> {
    let flags = if keeps { fastcgi::KEEP_CONN } else { 0 };
    let mut records = Vec::with_capacity(1024);
    records.extend_from_slice(&fastcgi::header(fastcgi::BEGIN_REQUEST, REQUEST, 8));
    records.extend_from_slice(&[0, fastcgi::RESPONDER, flags, 0, 0, 0, 0, 0]);
    let mut params = Params::new(records, REQUEST);
    server_vars::each(event, &mut params);
    let mut records = params.end()?;
    records.extend_from_slice(&fastcgi::header(fastcgi::PARAMS, REQUEST, 0));
    Ok(records)
}

/// A connection carries one request at a time.
const REQUEST: u16 = 1;

/// Sends the body. Fails only if the body cannot be read, not if PHP stops reading it.
pub(super) async fn feed(to: &PhpStream, body: &Body) -> io::Result<()> {
    let mut buffer = Vec::new();
    let mut at = 0;
    while at < body.len() {
        let piece = match body {
            // The engine has rejected what is still arriving.
            Body::Empty | Body::Streamed { .. } => &[],
            Body::Memory(bytes) => {
                let rest = &bytes[at as usize..];
                &rest[..rest.len().min(fastcgi::MAX_CONTENT)]
            }
            Body::Spooled { file, .. } => {
                buffer.resize(fastcgi::MAX_CONTENT, 0);
                let n = file.read_at(&mut buffer, at)?;
                &buffer[..n]
            }
        };
        if piece.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let record = fastcgi::header(fastcgi::STDIN, REQUEST, piece.len());
        if to.write_all(&[&record, piece].concat()).await.is_err() {
            return Ok(());
        }
        at += piece.len() as u64;
    }
    let _ = to
        .write_all(&fastcgi::header(fastcgi::STDIN, REQUEST, 0))
        .await;
    Ok(())
}

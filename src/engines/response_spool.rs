//! The response buffer between PHP and a slow client. It keeps a few pieces in memory and the rest
//! in a temporary file, so that a slow client does not block a worker.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;
use tracing::warn;

use crate::budget::{self, MEMORY};
use crate::event::Failure;
use crate::observe::rate_limit::RateLimit;
use crate::spool::{Spool, TempFile};

/// How many pieces may wait in memory: about 0.5 MiB with 64 KiB records.
const PIECES: usize = 8;

/// How long PHP waits for a client before the file is used, ...
const GRACE: Duration = Duration::from_millis(20);

/// ... plus this time per byte sent: a client that takes 100 MB/s is as fast as a disk.
const NANOS_PER_BYTE: u64 = 10;

/// How much of the file is read at once.
const CHUNK: u64 = 64 * 1024;

/// How much is read at once when memory is short.
const SMALL_CHUNK: u64 = 16 * 1024;

/// The memory that a piece may need.
const PIECE: u64 = 64 * 1024;

/// How often to check whether PHP is done while the client takes nothing.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Creates the two ends of a response. Without a spool there is no file, and PHP waits for its
/// client.
pub fn pair(spool: Option<Arc<Spool>>) -> (SpoolWriter, SpoolReader) {
    let channel = Arc::new(Channel::default());
    let writer = SpoolWriter {
        channel: channel.clone(),
        spool,
        file: None,
        written: 0,
        is_full: false,
        sent: 0,
        waited: Duration::ZERO,
    };
    let reader = SpoolReader {
        channel,
        reading: None,
    };
    (writer, reader)
}

#[derive(Default)]
struct Channel {
    state: Mutex<State>,
    /// Notified when the client has taken a piece or disconnected.
    taken: Notify,
}

#[derive(Default)]
struct State {
    parts: VecDeque<SpoolPart>,
    /// Created by the writer, once.
    file: Option<Arc<TempFile>>,
    end: Option<Result<(), Failure>>,
    reader: Option<Waker>,
    is_client_closed: bool,
}

enum SpoolPart {
    Memory(Bytes),
    /// A range of the file. It stays here until it has been read.
    Spooled(Range<u64>),
}

impl Channel {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn in_memory(&self) -> usize {
        let is_memory = |part: &&SpoolPart| matches!(part, SpoolPart::Memory(_));
        self.parts.iter().filter(is_memory).count()
    }

    fn is_spooled(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|part| matches!(part, SpoolPart::Spooled(_)))
    }

    fn ends_in_file(&self) -> bool {
        matches!(self.parts.back(), Some(SpoolPart::Spooled(_)))
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// The client has disconnected.
#[derive(Debug)]
pub struct ClientClosed;

/// Why a piece was not accepted.
pub enum WriteError {
    ClientClosed,
    /// There is no room at the moment.
    Full(Bytes),
}

/// PHP's end. The response is truncated if it is dropped without [end](SpoolWriter::end).
pub struct SpoolWriter {
    channel: Arc<Channel>,
    spool: Option<Arc<Spool>>,
    file: Option<Arc<TempFile>>,
    /// The end of the data in the file.
    written: u64,
    /// The disk or the limit is full until the client has taken everything in the file.
    is_full: bool,
    /// How many bytes were sent, and how long the client was waited for.
    sent: u64,
    waited: Duration,
}

impl SpoolWriter {
    /// Accepts a piece without waiting and without the file.
    pub fn try_write(&mut self, piece: Bytes) -> Result<(), WriteError> {
        let mut state = self.channel.lock();
        if state.is_client_closed {
            return Err(WriteError::ClientClosed);
        }
        let spools = state.ends_in_file() && !self.is_full;
        if spools || state.in_memory() >= PIECES {
            return Err(WriteError::Full(piece));
        }
        let len = piece.len() as u64;
        let piece = match budget::try_charge(piece) {
            Ok(piece) => piece,
            // Without a file, every response may hold one piece. Otherwise the waiting responses
            // would block all others.
            Err(piece) if state.parts.is_empty() && !self.can_spool() => {
                budget::charge_anyway(piece)
            }
            Err(piece) => return Err(WriteError::Full(piece)),
        };
        self.sent += len;
        state.parts.push_back(SpoolPart::Memory(piece));
        state.wake();
        Ok(())
    }

    /// Waits for room and accepts the piece. Once PHP `is_done`, the rest is at most one socket
    /// buffer; it stays in memory, so that the worker's next event need not wait.
    pub async fn write_waiting(
        &mut self,
        mut piece: Bytes,
        is_done: impl Fn() -> bool,
    ) -> Result<(), ClientClosed> {
        loop {
            piece = match self.try_write(piece) {
                Ok(()) => return Ok(()),
                Err(WriteError::ClientClosed) => return Err(ClientClosed),
                Err(WriteError::Full(piece)) => piece,
            };
            if is_done() {
                return self.write_last(piece).await;
            }
            if self.client_may_be_quick().await {
                continue;
            }
            piece = match self.put_into_file(piece).await {
                Ok(()) => return Ok(()),
                Err(piece) => piece,
            };
            // Try again in both cases.
            let _ = timeout(POLL_INTERVAL, self.room()).await;
        }
    }

    /// Accepts a piece after PHP is done. The worker's next event must not wait for this client, so
    /// the response is truncated if neither memory nor the file has room.
    async fn write_last(&mut self, piece: Bytes) -> Result<(), ClientClosed> {
        let piece = match budget::try_charge(piece) {
            Ok(piece) => {
                let mut state = self.channel.lock();
                state.parts.push_back(SpoolPart::Memory(piece));
                state.wake();
                return Ok(());
            }
            Err(piece) => piece,
        };
        if self.put_into_file(piece).await.is_ok() {
            return Ok(());
        }
        let why = "no memory or disk space for the rest of a response (http.buffer_memory, \
        http.max_temp_size)";
        self.channel.lock().end = Some(Err(Failure::Busy(why)));
        Err(ClientClosed)
    }

    fn can_spool(&self) -> bool {
        self.spool.is_some() && !self.is_full
    }

    /// Marks the response as complete, or gives the reason for its end.
    pub fn end(self, how: Result<(), Failure>) {
        self.channel.lock().end = Some(how);
    }

    /// Waits until the client has disconnected.
    pub async fn client_closed(&self) {
        self.wait_until(|state| state.is_client_closed).await;
    }

    /// Waits until memory has room for a piece, the buffer is empty, or the client has
    /// disconnected.
    async fn room(&self) {
        self.wait_until(|state| {
            let has_room = state.in_memory() < PIECES && MEMORY.has_room(PIECE);
            state.is_client_closed || state.parts.is_empty() || has_room
        })
        .await;
    }

    async fn wait_until(&self, is: impl Fn(&State) -> bool) {
        loop {
            let taken = self.channel.taken.notified();
            if is(&self.channel.lock()) {
                return;
            }
            taken.await;
        }
    }

    /// Waits briefly for the client. The total waiting time distinguishes a slow client, which
    /// needs the file, from one that keeps up.
    async fn client_may_be_quick(&mut self) -> bool {
        if !self.can_spool() || !MEMORY.has_room(PIECE) || self.channel.lock().ends_in_file() {
            return false;
        }
        let of_bytes = Duration::from_nanos(self.sent.saturating_mul(NANOS_PER_BYTE));
        let left = (GRACE + of_bytes).saturating_sub(self.waited);
        let began = Instant::now();
        let has_room = timeout(left.min(POLL_INTERVAL), self.room()).await.is_ok();
        self.waited += began.elapsed();
        has_room || left > POLL_INTERVAL
    }

    /// Moves the pieces in memory and the new piece into the file. Returns the new piece if the
    /// file is full.
    async fn put_into_file(&mut self, piece: Bytes) -> Result<(), Bytes> {
        let Some(spool) = self.spool.clone() else {
            return Err(piece);
        };
        let mut pieces = Vec::new();
        {
            let mut state = self.channel.lock();
            if self.is_full && state.in_memory() > PIECES {
                // The client has not taken these pieces yet; adding one for each piece it takes
                // would let memory grow.
                return Err(piece);
            }
            if !state.is_spooled() {
                (self.written, self.is_full) = (0, false);
                pieces.extend(state.parts.drain(..).filter_map(|part| match part {
                    SpoolPart::Memory(piece) => Some(piece),
                    SpoolPart::Spooled(_) => None,
                }));
            } else if self.is_full || !state.ends_in_file() {
                return Err(piece);
            }
        }
        self.sent += piece.len() as u64;
        pieces.push(budget::charge_anyway(piece));
        let (file, from) = (self.file.take(), self.written);
        // Write on another thread, because the disk may be slow. Only this task appends; a reading
        // client finds nothing and waits.
        let writing = spawn_blocking(move || write(file, &spool, from, pieces));
        let Ok(written) = writing.await else {
            // Only while the runtime shuts down.
            return Ok(());
        };
        self.file = written.file;
        self.written = written.to;
        self.is_full = !written.left.is_empty();
        if let Some(error) = written.error {
            static REPORTED: RateLimit = RateLimit::new();
            if REPORTED.is_time(Instant::now()) {
                warn!(%error, "cannot buffer a response on disk (http.temp_dir); PHP waits for the \
                client");
            }
        }
        let mut state = self.channel.lock();
        if state.is_client_closed {
            return Ok(());
        }
        state.file.clone_from(&self.file);
        match state.parts.back_mut() {
            Some(SpoolPart::Spooled(range)) => range.end = self.written,
            _ if self.written > from => state
                .parts
                .push_back(SpoolPart::Spooled(from..self.written)),
            _ => {}
        }
        state
            .parts
            .extend(written.left.into_iter().map(SpoolPart::Memory));
        state.wake();
        Ok(())
    }
}

impl Drop for SpoolWriter {
    fn drop(&mut self) {
        close(self.file.take());
        let mut state = self.channel.lock();
        let broken = || Err(Failure::WorkerCrashed("the response was truncated".into()));
        state.end.get_or_insert_with(broken);
        state.wake();
    }
}

struct Written {
    file: Option<Arc<TempFile>>,
    to: u64,
    /// The pieces that did not fit.
    left: Vec<Bytes>,
    error: Option<io::Error>,
}

/// Writes as much as the limit and the disk allow. Starting at 0 discards the file's old content.
fn write(file: Option<Arc<TempFile>>, spool: &Spool, from: u64, pieces: Vec<Bytes>) -> Written {
    let mut written = Written {
        file,
        to: from,
        left: Vec::new(),
        error: None,
    };
    let mut pieces = pieces.into_iter();
    for mut piece in pieces.by_ref() {
        if let Err(error) = written.append(&mut piece, spool) {
            written.error = Some(error);
        }
        if !piece.is_empty() {
            written.left.push(piece);
            break;
        }
    }
    written.left.extend(pieces);
    written
}

impl Written {
    /// Removes the written bytes from the piece.
    fn append(&mut self, piece: &mut Bytes, spool: &Spool) -> io::Result<()> {
        let file = match &self.file {
            Some(file) => {
                if self.to == 0 {
                    file.clear()?;
                }
                file
            }
            None => {
                let file = TempFile::create(spool.directory.as_deref())?;
                self.file.insert(Arc::new(file))
            }
        };
        if self.to + piece.len() as u64 > spool.max {
            return Ok(());
        }
        file.reserve(piece.len() as u64)?;
        while !piece.is_empty() {
            match file.write_at(piece, self.to) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    self.to += n as u64;
                    let _ = piece.split_to(n);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Closes the file on another thread: freeing a gigabyte takes the kernel a while and must not
/// block the front end.
fn close(file: Option<Arc<TempFile>>) {
    if let (Some(file), Ok(runtime)) = (file, Handle::try_current()) {
        runtime.spawn_blocking(move || drop(file));
    }
}

/// The client's end.
pub struct SpoolReader {
    channel: Arc<Channel>,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl SpoolReader {
    /// The next piece; None at the end.
    pub fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        let mut state = self.channel.lock();
        let Some(part) = state.parts.front_mut() else {
            return match &state.end {
                Some(Ok(())) => Poll::Ready(None),
                Some(Err(failure)) => Poll::Ready(Some(Err(failure.clone()))),
                None => {
                    state.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
            };
        };
        let chunk = match MEMORY.has_room(CHUNK) {
            true => CHUNK,
            false => SMALL_CHUNK,
        };
        let range = match part {
            SpoolPart::Memory(piece) => {
                let piece = std::mem::take(piece);
                state.parts.pop_front();
                drop(state);
                self.channel.taken.notify_one();
                return Poll::Ready(Some(Ok(piece)));
            }
            SpoolPart::Spooled(range) => range.start..range.end.min(range.start + chunk),
        };
        let file = state.file.clone();
        drop(state);
        let reading = self
            .reading
            .get_or_insert_with(|| spawn_blocking(move || read(file, range)));
        let read = std::task::ready!(Pin::new(reading).poll(cx));
        self.reading = None;
        let piece = match read.unwrap_or_else(|error| Err(error.into())) {
            Ok(piece) => piece,
            Err(error) => {
                let why = format!("cannot read the buffered response: {error}");
                return Poll::Ready(Some(Err(Failure::Malformed(why))));
            }
        };
        let mut state = self.channel.lock();
        if let Some(SpoolPart::Spooled(range)) = state.parts.front_mut() {
            range.start += piece.len() as u64;
            if range.is_empty() {
                state.parts.pop_front();
            }
        }
        drop(state);
        self.channel.taken.notify_one();
        Poll::Ready(Some(Ok(piece)))
    }
}

fn read(file: Option<Arc<TempFile>>, range: Range<u64>) -> io::Result<Bytes> {
    let file = file.ok_or(io::ErrorKind::NotFound)?;
    // At most one chunk.
    let mut buffer = vec![0; (range.end - range.start) as usize];
    file.read_exact_at(&mut buffer, range.start)?;
    Ok(budget::charge_anyway(buffer.into()))
}

impl Drop for SpoolReader {
    fn drop(&mut self) {
        let mut state = self.channel.lock();
        state.is_client_closed = true;
        state.parts.clear();
        let file = state.file.take();
        drop(state);
        close(file);
        self.channel.taken.notify_one();
    }
}

#[cfg(test)]
mod tests;

//! Sends events to the workers. One message is one whole request; `sapi/ipc/inbox.c` reads it. If
//! no worker must be woken, the message goes into the request ring in memory; otherwise through a
//! socket, which wakes one.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::LazyLock;
use std::time::Instant;

use surus_sys::rings::Rings;
use surus_sys::scoreboard::now_micros;
use surus_sys::seqpacket::{AsyncSeqpacket, Seqpacket};
use tracing::warn;

use super::doorbell::RingPoller;
use crate::engines::cgi::params;
use crate::engines::cgi::params::Params;
use crate::engines::cgi::{fastcgi, server_vars};
use crate::engines::workers::generation::in_flight::{Key, SentVia};
use crate::event::{Body, Event, Failure};

/// A body of at most this many bytes travels in the message, a larger one as a descriptor.
pub const INLINE_BODY: usize = 64 * 1024;
/// The most that a worker can receive at once (`SURUS_MESSAGE_MAX`).
const MAX_MESSAGE: usize = 256 * 1024;
const _: () = assert!(
    fastcgi::HEADER_LEN + EVENT_LEN + params::MAX_TOTAL + INLINE_BODY + 2 * fastcgi::HEADER_LEN
        <= MAX_MESSAGE,
    "EVENT, PARAMS and STDIN records fit into a message"
);

/// The length of an EVENT record: deadline and body length, then three fields that are filled in
/// when the message is sent.
const EVENT_LEN: usize = 25;
/// The offset of the worker that the message is to wake.
const WAKES: usize = fastcgi::HEADER_LEN + 16;
/// The offset of the flag that tells whether several events are in flight.
const ONE_OF_MANY: usize = WAKES + 4;
/// The offset of the ticket's public half.
const TAG: usize = ONE_OF_MANY + 1;

/// The sending end of the request ring and its socket. Dropping it lets the workers empty both and
/// exit.
pub struct Inbox {
    socket: AsyncSeqpacket,
    poller: Arc<RingPoller>,
}

/// Why an event could not be sent.
pub enum SendError {
    /// No process has the other end open any more.
    Closed,
    /// It can never be sent.
    Unsendable(Failure),
}

impl Inbox {
    pub fn new(socket: Seqpacket, poller: Arc<RingPoller>) -> io::Result<Inbox> {
        Ok(Inbox {
            socket: AsyncSeqpacket::new(socket)?,
            poller,
        })
    }

    /// Wakes an idle worker if the ring is not empty.
    pub fn wake_if_needed(&self) {
        let rings = &self.poller.rings;
        if rings.has_event()
            && let Some(idle) = IdleWorker::claim(rings)
        {
            self.kick(Some(idle));
        }
    }

    /// Wakes any worker for the ring, even if none is known to be idle.
    pub fn kick_any(&self) {
        self.kick(None);
    }

    /// Whether a script has shut down the socket, which all workers share.
    pub fn is_shut_down(&self) -> bool {
        let probe = self.socket.try_send(&[IoSlice::new(&Rings::wakes(None))]);
        matches!(probe, Err(error) if is_closed(&error))
    }

    /// Whether the workers have received everything sent by the socket.
    pub fn is_socket_empty(&self) -> bool {
        // If the kernel cannot tell, no message counts as lost.
        self.socket.unreceived().is_ok_and(|bytes| bytes == 0)
    }

    /// Sends a message that tells a worker to look at the ring. If the socket is full, its messages
    /// wake enough workers.
    fn kick(&self, idle: Option<IdleWorker<'_>>) {
        let message = IdleWorker::encoded(&idle);
        if self.socket.try_send(&[IoSlice::new(&message)]).is_ok() {
            self.sent(idle);
        }
    }

    fn sent(&self, idle: Option<IdleWorker<'_>>) {
        match idle {
            Some(idle) => std::mem::forget(idle),
            None => self.poller.rings.sent_by_socket(),
        }
    }

    /// Sends the event. Cancelling before it returns sends nothing. `is_one_of_many`: other
    /// events are in flight.
    pub async fn send(
        &self,
        event: &Event,
        Key { request, ticket }: Key,
        is_one_of_many: bool,
    ) -> Result<SentVia, SendError> {
        let mut head = encode_head(event, request).map_err(SendError::Unsendable)?;
        let inline = match event.request.body() {
            Body::Memory(bytes) if bytes.len() <= INLINE_BODY => &bytes[..],
            _ => &[],
        };
        let beside = match event.request.body() {
            Body::Memory(bytes) if bytes.len() > INLINE_BODY => {
                Some(surus_sys::process::memory_file(bytes).map_err(|error| {
                    SendError::Unsendable(Failure::Busy(if error.raw_os_error() == Some(24) {
                        "too many open files"
                    } else {
                        "no memory for the request's body"
                    }))
                })?)
            }
            _ => None,
        };
        let fd = match event.request.body() {
            Body::Spooled { file, .. } => Some(file.as_fd()),
            _ => beside.as_ref().map(OwnedFd::as_fd),
        };
        let rings = &self.poller.rings;
        let idle = match fd.is_none() && rings.has_polling() {
            true => None,
            false => IdleWorker::claim(rings),
        };
        head[WAKES..WAKES + 4].copy_from_slice(&IdleWorker::encoded(&idle));
        head[ONE_OF_MANY] = u8::from(is_one_of_many);
        head[TAG..TAG + 4].copy_from_slice(&ticket.tag().to_be_bytes());
        // At most two records: the inline limit exceeds a record's by one byte.
        let (first, second) = inline.split_at(inline.len().min(fastcgi::MAX_CONTENT));
        let first_header = fastcgi::header(fastcgi::STDIN, request, first.len());
        let second_header = fastcgi::header(fastcgi::STDIN, request, second.len());
        let parts = [
            IoSlice::new(&head),
            IoSlice::new(&first_header),
            IoSlice::new(first),
            IoSlice::new(&second_header),
            IoSlice::new(second),
        ];
        let parts = match (first.is_empty(), second.is_empty()) {
            (true, _) => &parts[..1],
            (false, true) => &parts[..3],
            (false, false) => &parts[..],
        };
        if idle.is_none()
            && fd.is_none()
            && let Some(position) = rings.put(parts)
        {
            // A worker may have polled just before the event was there.
            if !rings.claim_polling() {
                self.wake_if_needed();
            }
            return Ok(SentVia::Ring(position));
        }
        match self.socket.send(parts, fd).await {
            Ok(()) => {
                self.sent(idle);
                Ok(SentVia::Socket)
            }
            Err(error) if error.raw_os_error() == Some(EMSGSIZE) => {
                Err(SendError::Unsendable(Failure::Malformed(
                    "the request is larger than a socket message may be (sysctl net.core.wmem_max)"
                        .into(),
                )))
            }
            Err(error) if is_closed(&error) => Err(SendError::Closed),
            Err(error) => {
                warn!(%error, "cannot send a request to the workers");
                Err(SendError::Unsendable(Failure::Busy(
                    "the request cannot be sent to the workers",
                )))
            }
        }
    }
}

/// An idle worker that a message is about to wake.
struct IdleWorker<'a> {
    rings: &'a Rings,
    worker: usize,
}

impl IdleWorker<'_> {
    fn claim(rings: &Rings) -> Option<IdleWorker<'_>> {
        let worker = rings.claim_sleeping()?;
        Some(IdleWorker { rings, worker })
    }

    /// The message's field that names the worker.
    fn encoded(idle: &Option<IdleWorker<'_>>) -> [u8; 4] {
        Rings::wakes(idle.as_ref().map(|idle| idle.worker))
    }
}

impl Drop for IdleWorker<'_> {
    fn drop(&mut self) {
        self.rings.give_back(self.worker);
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EPIPE | ECONNRESET | ENOTCONN))
}

const EPIPE: i32 = 32;
const EMSGSIZE: i32 = 90;
const ECONNRESET: i32 = 104;
const ENOTCONN: i32 = 107;

/// Encodes the EVENT record and the PARAMS records.
pub fn encode_head(event: &Event, request: u16) -> Result<Vec<u8>, Failure> {
    let mut head = Vec::with_capacity(HEAD);
    head.extend_from_slice(&fastcgi::header(fastcgi::EVENT, request, EVENT_LEN));
    head.extend_from_slice(&micros(event.deadline).to_be_bytes());
    head.extend_from_slice(&event.request.body().len().to_be_bytes());
    head.extend_from_slice(&[0; EVENT_LEN - 16]);
    let mut params = Params::new(head, request);
    server_vars::each(event, &mut params);
    params.end()
}

/// Enough for most header sections, and quick to allocate: glibc caches no larger pieces.
const HEAD: usize = 1024;

/// Converts to the workers' clock. `Instant` uses the same clock but hides its numbers, so both are
/// read side by side once.
pub fn micros(instant: Instant) -> u64 {
    static READ: LazyLock<(Instant, u64)> = LazyLock::new(|| (Instant::now(), now_micros()));
    let (then, micros) = *READ;
    let later = instant.saturating_duration_since(then).as_micros();
    micros.saturating_add(u64::try_from(later).unwrap_or(u64::MAX))
}

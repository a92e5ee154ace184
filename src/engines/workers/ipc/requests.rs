//! Sends events to the workers through the request ring, or through the request socket if a message
//! is too long or has a descriptor. `sapi/ipc/inbox.c` reads both.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use surus_sys::rings::MAX_EVENT;
use surus_sys::scoreboard::now_micros;
use surus_sys::seqpacket::Seqpacket;
use tracing::warn;

use super::response_poller::ResponsePoller;
use crate::engines::cgi::params;
use crate::engines::cgi::params::Params;
use crate::engines::cgi::{fastcgi, server_vars};
use crate::engines::workers::generation::in_flight::{Key, Sent};
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

/// The length of an EVENT record: deadline and body length, then two fields that are filled in
/// when the message is sent.
const EVENT_LEN: usize = 21;
/// The offset of the flag that tells whether events arrive together.
const BATCHES: usize = fastcgi::HEADER_LEN + 16;
/// The offset of the ticket's public half.
const TAG: usize = BATCHES + 1;

/// How long to wait while the ring or the socket is full: all workers are busy then.
const FULL: Duration = Duration::from_millis(1);

/// The sending end of the request ring and its socket. Dropping it lets the workers empty both and
/// exit.
pub struct Inbox {
    socket: Seqpacket,
    // Dropped after the socket.
    workers: Workers,
}

/// The workers that wait for events. Wakes all of them when dropped.
struct Workers(Arc<ResponsePoller>);

impl Drop for Workers {
    fn drop(&mut self) {
        self.0.rings.wake_all();
    }
}

/// Why an event could not be sent.
pub enum SendError {
    /// No process has the other end open any more.
    Closed,
    /// It can never be sent.
    Unsendable(Failure),
}

impl Inbox {
    pub fn new(socket: Seqpacket, poller: Arc<ResponsePoller>) -> Inbox {
        Inbox {
            socket,
            workers: Workers(poller),
        }
    }

    /// Whether a script has shut down the socket, which all workers share.
    pub fn is_shut_down(&self) -> bool {
        // Shorter than a record, so workers ignore it.
        let probe = self.socket.send(&[IoSlice::new(&[0])], None);
        matches!(probe, Err(error) if is_closed(&error))
    }

    /// Sends the event. Cancelling before it returns sends nothing. `batches`: events arrive
    /// together.
    pub async fn send(
        &self,
        event: &Event,
        Key { slot, ticket }: Key,
        batches: bool,
    ) -> Result<Sent, SendError> {
        let mut records = encode_records(event, slot).map_err(SendError::Unsendable)?;
        records[BATCHES] = u8::from(batches);
        records[TAG..TAG + 4].copy_from_slice(&ticket.tag().to_be_bytes());
        let inline = match event.request.body() {
            Body::Memory(bytes) if bytes.len() <= INLINE_BODY => &bytes[..],
            _ => &[],
        };
        let body_file = match event.request.body() {
            Body::Memory(bytes) if bytes.len() > INLINE_BODY => {
                Some(surus_sys::process::memory_file(bytes).map_err(|error| {
                    SendError::Unsendable(Failure::Busy(if error.raw_os_error() == Some(24) {
                        "too many open files"
                    } else {
                        "cannot allocate a file for the request's body"
                    }))
                })?)
            }
            _ => None,
        };
        let fd = match event.request.body() {
            Body::Spooled { file, .. } => Some(file.as_fd()),
            Body::Streamed { reader, .. } => Some(reader.as_fd()),
            _ => body_file.as_ref().map(OwnedFd::as_fd),
        };
        // At most two records: the inline limit exceeds a record's by one byte.
        let (first, second) = inline.split_at(inline.len().min(fastcgi::MAX_CONTENT));
        let first_header = fastcgi::header(fastcgi::STDIN, slot, first.len());
        let second_header = fastcgi::header(fastcgi::STDIN, slot, second.len());
        let parts = [
            IoSlice::new(&records),
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
        let by_socket =
            fd.is_some() || records.len() + inline.len() > MAX_EVENT - 2 * fastcgi::HEADER_LEN;
        let rings = &self.workers.0.rings;
        let position = loop {
            let put = match by_socket {
                true => rings.announce(|| self.socket.send(parts, fd)),
                false => rings.put(parts),
            };
            match put {
                Ok(position) => break position,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(FULL).await;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        };
        Ok(Sent {
            at: Instant::now(),
            position,
            by_socket,
            to_polling_worker: rings.notify_one(),
        })
    }
}

fn failed(error: io::Error) -> SendError {
    if is_closed(&error) {
        return SendError::Closed;
    }
    SendError::Unsendable(match error.raw_os_error() {
        Some(EMSGSIZE) => Failure::Malformed(
            "the request is larger than a socket message may be (sysctl net.core.wmem_max)".into(),
        ),
        _ => {
            warn!(%error, "cannot send a request to the workers");
            Failure::Busy("the request cannot be sent to the workers")
        }
    })
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EPIPE | ECONNRESET | ENOTCONN))
}

const EPIPE: i32 = 32;
const EMSGSIZE: i32 = 90;
const ECONNRESET: i32 = 104;
const ENOTCONN: i32 = 107;

/// Encodes the EVENT record and the PARAMS records.
pub fn encode_records(event: &Event, slot: u16) -> Result<Vec<u8>, Failure> {
    let mut records = Vec::with_capacity(USUAL);
    records.extend_from_slice(&fastcgi::header(fastcgi::EVENT, slot, EVENT_LEN));
    records.extend_from_slice(&micros(event.deadline).to_be_bytes());
    records.extend_from_slice(&event.request.body().len().to_be_bytes());
    records.extend_from_slice(&[0; EVENT_LEN - 16]);
    let mut params = Params::new(records, slot);
    server_vars::each(event, &mut params);
    params.end()
}

/// Enough for most header sections, and quick to allocate: glibc caches no larger pieces.
const USUAL: usize = 1024;

/// Converts to the workers' clock. `Instant` uses the same clock but hides its numbers, so both are
/// read side by side once.
pub fn micros(instant: Instant) -> u64 {
    static READ: LazyLock<(Instant, u64)> = LazyLock::new(|| (Instant::now(), now_micros()));
    let (then, micros) = *READ;
    let later = instant.saturating_duration_since(then).as_micros();
    micros.saturating_add(u64::try_from(later).unwrap_or(u64::MAX))
}

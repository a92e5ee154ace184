//! Hands events to the workers: one message is one whole request (`sapi/ipc/inbox.c` reads it).
//! While all of them are awake, it goes into a ring in memory, where the next one that is free
//! finds it; else through a socket, which wakes one.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::LazyLock;
use std::time::Instant;

use surus_sys::rings::Rings;
use surus_sys::scoreboard::now_micros;
use surus_sys::seqpacket::{AsyncSeqpacket, Seqpacket};
use tracing::warn;

use super::doorbell::Post;
use crate::engines::cgi::params;
use crate::engines::cgi::params::Params;
use crate::engines::cgi::{fastcgi, server_vars};
use crate::engines::workers::generation::in_flight::{Key, Way};
use crate::event::{Body, Event, Failure};

/// A body up to this many bytes travels in the message, a larger one as a descriptor beside it.
pub const INLINE_BODY: usize = 64 * 1024;
/// What a worker can receive at once (`SURUS_MESSAGE_MAX`).
const MAX_MESSAGE: usize = 256 * 1024;
const _: () = assert!(
    fastcgi::HEADER_LEN + EVENT_LEN + params::MAX_TOTAL + INLINE_BODY + 2 * fastcgi::HEADER_LEN
        <= MAX_MESSAGE,
    "EVENT, PARAMS and STDIN records fit into a message"
);

/// The content of an EVENT record: deadline and length of the body, then what is only known when it
/// is sent.
const EVENT_LEN: usize = 25;
/// Where in a message is what it is to wake.
const WAKES: usize = fastcgi::HEADER_LEN + 16;
/// Where it says whether it is one of many.
const ONE_OF_MANY: usize = WAKES + 4;
/// Where it has the half of its ticket that is not secret.
const TAG: usize = ONE_OF_MANY + 1;

/// The sending end, shared by all who have events. Dropping it lets the workers empty the inbox and
/// end.
pub struct Inbox {
    socket: AsyncSeqpacket,
    post: Arc<Post>,
}

/// Why an event did not get into the inbox.
pub enum SendError {
    /// No process holds the other end any more.
    Closed,
    /// It never will.
    Unsendable(Failure),
}

impl Inbox {
    pub fn new(socket: Seqpacket, post: Arc<Post>) -> io::Result<Inbox> {
        Ok(Inbox {
            socket: AsyncSeqpacket::new(socket)?,
            post,
        })
    }

    /// Wakes a worker that sleeps although there is something in the ring.
    pub fn wake_if_needed(&self) {
        let rings = &self.post.rings;
        if rings.has_event()
            && let Some(sleeper) = Sleeper::claim(rings)
        {
            self.knock(Some(sleeper));
        }
    }

    /// Wakes a worker for what is in the ring, whoever is known to sleep.
    pub fn knock_anyone(&self) {
        self.knock(None);
    }

    /// Has a script shut the socket down, which all workers share? It would be for all of them.
    pub fn is_shut_down(&self) -> bool {
        let probe = self.socket.try_send(&[IoSlice::new(&Rings::wakes(None))]);
        matches!(probe, Err(error) if is_closed(&error))
    }

    /// Has everything been received that was sent by the socket?
    pub fn is_socket_empty(&self) -> bool {
        // A kernel that cannot say it: then nothing is taken for lost.
        self.socket.unreceived().is_ok_and(|bytes| bytes == 0)
    }

    /// Sends a message that says that there is something in the ring. With a socket that is full
    /// there is enough to wake up for.
    fn knock(&self, sleeper: Option<Sleeper<'_>>) {
        let message = Sleeper::said(&sleeper);
        if self.socket.try_send(&[IoSlice::new(&message)]).is_ok() {
            self.sent(sleeper);
        }
    }

    fn sent(&self, sleeper: Option<Sleeper<'_>>) {
        match sleeper {
            Some(sleeper) => std::mem::forget(sleeper),
            None => self.post.rings.sent_by_socket(),
        }
    }

    /// Sends the event. Cancelling before it returns sends nothing.
    /// It may be one of many that the workers have to do with.
    pub async fn send(
        &self,
        event: &Event,
        Key { request, ticket }: Key,
        is_one_of_many: bool,
    ) -> Result<Way, SendError> {
        let mut head = encode_head(event, request).map_err(SendError::Unsendable)?;
        let inline = match event.request.body() {
            Body::Memory(bytes) if bytes.len() <= INLINE_BODY => &bytes[..],
            _ => &[],
        };
        let beside = match event.request.body() {
            Body::Memory(bytes) if bytes.len() > INLINE_BODY => {
                Some(surus_sys::process::memory_file(bytes).map_err(|error| {
                    SendError::Unsendable(Failure::Busy(if error.raw_os_error() == Some(24) {
                        "no descriptors left"
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
        let rings = &self.post.rings;
        let sleeper = match fd.is_none() && rings.has_spinner() {
            true => None,
            false => Sleeper::claim(rings),
        };
        head[WAKES..WAKES + 4].copy_from_slice(&Sleeper::said(&sleeper));
        head[ONE_OF_MANY] = u8::from(is_one_of_many);
        head[TAG..TAG + 4].copy_from_slice(&ticket.tag().to_be_bytes());
        // At most two records: the inline limit is one byte more than a record can carry.
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
        if sleeper.is_none()
            && fd.is_none()
            && let Some(position) = rings.put(parts)
        {
            // One may have looked before the event was there.
            if !rings.claim_spinner() {
                self.wake_if_needed();
            }
            return Ok(Way::Ring(position));
        }
        match self.socket.send(parts, fd).await {
            Ok(()) => {
                self.sent(sleeper);
                Ok(Way::Socket)
            }
            Err(error) if error.raw_os_error() == Some(EMSGSIZE) => {
                Err(SendError::Unsendable(Failure::Malformed(
                    "the request is larger than a socket message may be (sysctl net.core.wmem_max)"
                        .into(),
                )))
            }
            Err(error) if is_closed(&error) => Err(SendError::Closed),
            Err(error) => {
                warn!(%error, "an event cannot be handed to the workers");
                Err(SendError::Unsendable(Failure::Busy(
                    "the event cannot be handed to the workers",
                )))
            }
        }
    }
}

/// A worker that is to be woken, until the message is sent that does.
struct Sleeper<'a> {
    rings: &'a Rings,
    worker: usize,
}

impl Sleeper<'_> {
    fn claim(rings: &Rings) -> Option<Sleeper<'_>> {
        let worker = rings.claim_sleeper()?;
        Some(Sleeper { rings, worker })
    }

    /// What the message says of it.
    fn said(sleeper: &Option<Sleeper<'_>>) -> [u8; 4] {
        Rings::wakes(sleeper.as_ref().map(|sleeper| sleeper.worker))
    }
}

impl Drop for Sleeper<'_> {
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

/// The EVENT record and the PARAMS records.
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

/// Bytes that most heads need, and that the allocator has at hand: glibc keeps no larger pieces for
/// quick use.
const HEAD: usize = 1024;

/// `Instant` is the same clock as the workers', but its numbers are hidden; so they are read side
/// by side, once.
pub fn micros(instant: Instant) -> u64 {
    static READ: LazyLock<(Instant, u64)> = LazyLock::new(|| (Instant::now(), now_micros()));
    let (then, micros) = *READ;
    let later = instant.saturating_duration_since(then).as_micros();
    micros.saturating_add(u64::try_from(later).unwrap_or(u64::MAX))
}

//! Hands events to the workers: one message is one whole request (`sapi/event.c` reads it). While all of them are awake, it goes
//! into a ring in memory, where the next one that is free finds it; else through a socket, which wakes one.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::LazyLock;
use std::time::Instant;

use surus_sys::rings::Rings;
use surus_sys::scoreboard::now_micros;
use surus_sys::seqpacket::{AsyncSeqpacket, Seqpacket};

use super::post::Post;
use crate::engines::params::{self, Params};
use crate::engines::{fastcgi, server_vars};
use crate::event::{Body, Event, Failure};

/// A body up to this many bytes travels in the message, a larger one as a descriptor beside it.
pub const INLINE_BODY: usize = 64 * 1024;
/// What a worker can receive at once (`SURUS_MESSAGE_MAX`).
const MAX_MESSAGE: usize = 256 * 1024;
const _: () = assert!(
    24 + params::MAX_TOTAL + INLINE_BODY + 2 * fastcgi::HEADER_LEN <= MAX_MESSAGE,
    "EVENT, PARAMS and STDIN records fit into a message"
);

/// The sending end, shared by all who have events. Dropping it lets the workers empty the inbox and end.
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

    /// Wakes a worker for what is in the ring, if there is something: for when it is not certain that those who sleep are all known.
    pub fn knock_if_needed(&self) {
        if self.post.rings.has_event() {
            self.knock(None);
        }
    }

    /// Sends a message that says that there is something in the ring. With a socket that is full there is enough to wake up for.
    fn knock(&self, wakes: Option<Wakes<'_>>) {
        let message = [u8::from(wakes.is_some()) * WAKES];
        let sent = self.socket.try_send(&[IoSlice::new(&message)]);
        if let (Ok(()), Some(wakes)) = (sent, wakes) {
            wakes.sent();
        }
    }

    /// Sends the event under the request id `request`. Cancelling before it returns sends nothing.
    /// It may be one of many that the workers have to do with.
    pub async fn send(
        &self,
        event: &Event,
        request: u16,
        is_one_of_many: bool,
    ) -> Result<(), SendError> {
        let rings = &self.post.rings;
        let wakes = Wakes::one(rings);
        let mut head = encode_head(event, request).map_err(SendError::Unsendable)?;
        let says = |flag, is_so| if is_so { flag } else { 0 };
        head[fastcgi::HEADER_LEN - 1] =
            says(WAKES, wakes.is_some()) | says(ONE_OF_MANY, is_one_of_many);
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
        if wakes.is_none() && fd.is_none() && rings.put(parts) {
            // One may have looked before the event was there.
            if let Some(wakes) = Wakes::one(rings) {
                self.knock(Some(wakes));
            }
            return Ok(());
        }
        match self.socket.send(parts, fd).await {
            Ok(()) => {
                match wakes {
                    Some(wakes) => wakes.sent(),
                    None => rings.sent_by_socket(),
                }
                Ok(())
            }
            Err(error) if error.raw_os_error() == Some(EMSGSIZE) => {
                Err(SendError::Unsendable(Failure::Malformed(
                    "the request is larger than a socket message may be (sysctl net.core.wmem_max)"
                        .into(),
                )))
            }
            Err(_) => Err(SendError::Closed),
        }
    }
}

// What the last byte of an event's first header says, which FastCGI has reserved.
const WAKES: u8 = 1;
const ONE_OF_MANY: u8 = 2;

/// A worker that is to be woken, until the message is sent that does.
struct Wakes<'a>(&'a Rings);

impl Wakes<'_> {
    fn one(rings: &Rings) -> Option<Wakes<'_>> {
        rings.is_to_wake().then(|| Wakes(rings))
    }

    fn sent(self) {
        std::mem::forget(self);
    }
}

impl Drop for Wakes<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

const EMSGSIZE: i32 = 90;

/// The EVENT record and the PARAMS records.
pub fn encode_head(event: &Event, request: u16) -> Result<Vec<u8>, Failure> {
    let mut head = Vec::with_capacity(HEAD);
    head.extend_from_slice(&fastcgi::header(fastcgi::EVENT, request, 16));
    head.extend_from_slice(&micros(event.deadline).to_be_bytes());
    head.extend_from_slice(&event.request.body().len().to_be_bytes());
    let mut params = Params::new(head, request);
    server_vars::each(event, &mut params);
    params.end()
}

/// Bytes that most heads need, and that the allocator has at hand: glibc keeps no larger pieces for quick use.
const HEAD: usize = 1024;

/// `Instant` is the same clock as the workers', but its numbers are hidden; so they are read side by side, once.
pub fn micros(instant: Instant) -> u64 {
    static READ: LazyLock<(Instant, u64)> = LazyLock::new(|| (Instant::now(), now_micros()));
    let (then, micros) = *READ;
    let later = instant.saturating_duration_since(then).as_micros();
    micros.saturating_add(u64::try_from(later).unwrap_or(u64::MAX))
}

//! In which order what a worker says is read: it comes by a socket, and as letters through the
//! ring.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use surus_sys::rings::{Damaged, First};
use tokio_util::io::poll_read_buf;

use super::responses::{Outbox, SMALL};
use crate::engines::cgi::fastcgi;

/// Somebody else's letter may be in the way for so long, until its reader has had its turn.
const BLOCKED_FOR: Duration = Duration::from_secs(1);

/// And is looked at so often meanwhile: where the machine does not let us run, nothing else was
/// read either.
const LOOKS: u32 = 15;

impl Outbox {
    /// Waits for more from the socket, which gets into `buffer`, or for a letter (none).
    pub(super) async fn more(&mut self, buffer: &mut BytesMut) -> io::Result<Option<usize>> {
        poll_fn(|cx| {
            if let Poll::Ready(read) = poll_read_buf(Pin::new(&mut self.stream), cx, buffer) {
                return Poll::Ready(read.map(Some));
            }
            self.reader.register(cx.waker());
            match self.first_letter() {
                Ok(First::None) => {
                    self.blocked = None;
                    Poll::Pending
                }
                // The watch wakes us again.
                Ok(First::Other(writer)) if !self.is_blocked_by(writer) => Poll::Pending,
                // What is wrong is said when it is read.
                Ok(_) | Err(Damaged) => Poll::Ready(Ok(None)),
            }
        })
        .await
    }

    /// Takes the records that came by the socket. Of which event they are, is known when what there
    /// is about the ones before it has been read: that may be in letters.
    pub(super) async fn take_records(
        &mut self,
        buffer: &mut BytesMut,
        letter: &mut BytesMut,
    ) -> Result<(), String> {
        loop {
            self.take_letters(letter).await?;
            match fastcgi::decode(buffer) {
                Ok(Some(record)) => self.take(record, false).await?,
                Ok(None) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    fn first_letter(&self) -> Result<First, Damaged> {
        let rings = &self.shared.post.rings;
        rings.first_letter(self.index, self.pid.get(), self.turn.number())
    }

    /// Is there a letter that nobody is going to read? It is about an event before or after the
    /// next one, and no record comes by the socket that would explain it; or of a process that
    /// never had this place. Its writer has not written it so.
    fn is_blocked_by(&mut self, writer: u32) -> bool {
        if writer != self.pid.get() && self.shared.is_heard(self.index, writer) {
            // Of one that has had this place before and whose last letters wait for a client.
            self.blocked = None;
            return false;
        }
        let (since, looks) = self.blocked.unwrap_or_else(|| (Instant::now(), 0));
        self.blocked = Some((since, looks.saturating_add(1)));
        self.is_blocked()
    }

    /// Does nobody read what is first in the ring?
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
            .is_some_and(|(since, looks)| looks > LOOKS && since.elapsed() > BLOCKED_FOR)
    }

    /// Takes the letters about the next events: whole records, mostly all that there is to say of
    /// one.
    pub(super) async fn take_letters(&mut self, letter: &mut BytesMut) -> Result<(), String> {
        loop {
            // Others have something to do, too.
            tokio::task::consume_budget().await;
            let (shared, pid, number) = (&self.shared, self.pid.get(), self.turn.number());
            if self.is_blocked() && matches!(self.first_letter(), Ok(First::Other(_))) {
                return Err("a letter that is nobody's is in the way of its own".into());
            }
            let is_there = shared
                .post
                .rings
                .take_letter(self.index, pid, number, |len| {
                    letter.clear();
                    if letter.capacity() < len {
                        letter.reserve(SMALL);
                    }
                    letter.resize(len, 0);
                    letter
                });
            match is_there {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(Damaged) => return Err("a letter that is cut off".into()),
            }
            self.blocked = None;
            let mut is_empty = true;
            while let Some(record) = fastcgi::decode(letter).map_err(|error| error.to_string())? {
                self.take(record, true).await?;
                is_empty = false;
            }
            if is_empty || !letter.is_empty() {
                return Err("a letter without whole records".into());
            }
        }
    }
}

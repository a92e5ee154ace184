//! In which order what a worker says is read: it comes by a socket, and as letters through the ring.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;

use bytes::BytesMut;
use surus_sys::rings::Damaged;
use tokio_util::io::poll_read_buf;

use super::{Outbox, SMALL};
use crate::engines::fastcgi;

impl Outbox {
    /// Waits for more from the socket, which gets into `buffer`, or for a letter (none).
    pub(super) async fn more(&mut self, buffer: &mut BytesMut) -> io::Result<Option<usize>> {
        poll_fn(|cx| {
            if let Poll::Ready(read) = poll_read_buf(Pin::new(&mut self.stream), cx, buffer) {
                return Poll::Ready(read.map(Some));
            }
            self.reader.register(cx.waker());
            match self.has_letter() {
                Ok(false) => Poll::Pending,
                // What is wrong is said when it is read.
                Ok(true) | Err(Damaged) => Poll::Ready(Ok(None)),
            }
        })
        .await
    }

    /// Takes the records that came by the socket. Of which event they are, is known when what there is about the ones before it has
    /// been read: that may be in letters.
    pub(super) async fn take_records(
        &mut self,
        buffer: &mut BytesMut,
        letter: &mut BytesMut,
    ) -> Result<(), String> {
        loop {
            self.take_letters(letter).await?;
            match fastcgi::decode(buffer) {
                Ok(Some(record)) => self.take(record).await?,
                Ok(None) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    fn has_letter(&self) -> Result<bool, Damaged> {
        let rings = &self.shared.post.rings;
        rings.has_letter(self.index, self.pid.get(), self.turn.number())
    }

    /// Takes the letters about the next events: whole records, mostly all that there is to say of one.
    pub(super) async fn take_letters(&mut self, letter: &mut BytesMut) -> Result<(), String> {
        loop {
            // Others have something to do, too.
            tokio::task::consume_budget().await;
            let (shared, pid, number) = (&self.shared, self.pid.get(), self.turn.number());
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
            let mut is_empty = true;
            while let Some(record) = fastcgi::decode(letter).map_err(|error| error.to_string())? {
                self.take(record).await?;
                is_empty = false;
            }
            if is_empty || !letter.is_empty() {
                return Err("a letter without whole records".into());
            }
        }
    }
}

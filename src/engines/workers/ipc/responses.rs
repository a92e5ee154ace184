//! Reads what one worker sends: responses, log lines, and the ends of events.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::task::AtomicWaker;
use surus_sys::process;
use surus_sys::scoreboard::Ticket;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::oneshot;
use tracing::{debug, error, warn};

use super::requests;
use super::response_order::ResponseSequence;
use super::worker_exit;
use crate::engines::cgi::fastcgi;
use crate::engines::cgi::fastcgi::Record;
use crate::engines::cgi::response::{Block, CgiParts};
use crate::engines::response_spool::SpoolWriter;
use crate::engines::workers::exit_reason::Killed;
use crate::engines::workers::generation::in_flight::{Key, RequestProgress};
use crate::engines::workers::generation::state::{Exit, GenerationState};
use crate::event::Failure;
use crate::launcher::Pid;
use crate::observe::message::Message;
use crate::observe::php_log;
use crate::observe::php_log::ProcessLog;
use crate::observe::rate_limit::RateLimit;

/// The reader of one worker's response ring and socket.
pub struct Outbox {
    pub(crate) shared: Arc<GenerationState>,
    pub(crate) stream: OwnedReadHalf,
    /// The worker's index in the scoreboard.
    pub(crate) index: usize,
    /// Woken for the worker's frames.
    pub(crate) reader: Arc<AtomicWaker>,
    pub(crate) pid: Arc<Pid>,
    pub(crate) sequence: ResponseSequence,
    /// How the process exited, once that is known.
    exit: Option<Exit>,
    exited: oneshot::Receiver<Exit>,
    /// Set while the ring's first frame is one that the worker cannot have written next: since
    /// when, and how often that was seen.
    pub(crate) blocked: Option<(Instant, u32)>,
    pub(super) reply: ArrivingResponse,
    /// A log message that is not complete.
    message: Message,
    /// Bytes of early hints of the current event.
    pub(super) hinted: usize,
    /// The reader of the worker's stdout and stderr.
    written: ProcessLog,
}

/// How much of the response to the current event has arrived.
pub(super) enum ArrivingResponse {
    /// No response has begun.
    None,
    /// The header block is not complete.
    Headers { key: Key, block: Block },
    /// The headers are complete. The caller has not been answered yet, because the rest of the body
    /// may arrive in a moment.
    Ready {
        key: Key,
        parts: CgiParts,
        /// Usually all of the body.
        first: Bytes,
        more: Vec<Bytes>,
    },
    /// The body streams to the client.
    Streaming { key: Key, spool: SpoolWriter },
    /// The caller has the response, or the client has disconnected; the rest is discarded.
    Done,
}

impl Outbox {
    pub fn new(
        shared: Arc<GenerationState>,
        stream: OwnedReadHalf,
        index: usize,
        pid: Arc<Pid>,
        exited: oneshot::Receiver<Exit>,
        written: ProcessLog,
    ) -> Outbox {
        Outbox {
            reader: shared.poller.reader(index),
            shared,
            stream,
            index,
            pid,
            sequence: ResponseSequence::default(),
            exit: None,
            exited,
            blocked: None,
            reply: ArrivingResponse::None,
            message: Message::default(),
            hinted: 0,
            written,
        }
    }

    pub fn pid(&self) -> u32 {
        self.pid.get()
    }

    /// Returns after the worker has exited.
    pub async fn run(&mut self) {
        if let Some(wrong) = self.read().await {
            self.end(&wrong).await;
        }
        let exit = self.exit().await;
        self.fail_held(exit).await;
    }

    /// Reads until the worker exits. Returns a description of invalid input.
    async fn read(&mut self) -> Option<String> {
        let (mut buffer, mut frame) = (BytesMut::new(), BytesMut::new());
        let mut block = SMALL;
        loop {
            // Short responses share a block; a piece that fills its block is one of many.
            if buffer.capacity() - buffer.len() < block / 4 {
                buffer.reserve(block);
            }
            let room = buffer.capacity() - buffer.len();
            match self.more(&mut buffer).await {
                Ok(None) => {
                    if let Err(wrong) = self.take_frames(&mut frame).await {
                        return Some(wrong);
                    }
                    continue;
                }
                Ok(Some(0)) => return self.take_frames(&mut frame).await.err(),
                Ok(Some(n)) => block = if n >= room { LARGE } else { SMALL },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Some(error.to_string()),
            }
            if let Err(wrong) = self.take_records(&mut buffer, &mut frame).await {
                return Some(wrong);
            }
            // Everything that has arrived has been read; an incomplete response is streamed.
            self.begin_stream().await;
        }
    }

    /// Processes one record. A frame can only end an event that was begun through the socket: other
    /// workers can write to the ring, but not to the socket.
    pub(crate) async fn take(&mut self, record: Record, by_frame: bool) -> Result<(), String> {
        if record.kind == fastcgi::TICKET {
            return self.begin(&record);
        }
        let Some(key) = self.sequence.at(record.request)? else {
            return self.discard(record);
        };
        match record.kind {
            fastcgi::STDOUT if record.content.is_empty() => {
                // Noted before the client has the response, because it may send its next request at
                // once.
                self.shared.polling.request_ended(Instant::now());
                self.end_response().await;
                // From here on there is no time limit, as under php-fpm; on Lambda the deadline
                // stays.
                self.shared.in_flight.with(key, |slot| {
                    if slot.idle_timeout.is_some() {
                        slot.deadline = None;
                    }
                });
            }
            fastcgi::STDOUT => self.output(key, record.content).await,
            fastcgi::STDERR if record.content.is_empty() => {
                let event = self.shared.in_flight.with(key, |slot| slot.event);
                let message = std::mem::take(&mut self.message);
                php_log::message(message, self.pid.get(), event);
            }
            fastcgi::STDERR => self.message.add(&record.content),
            fastcgi::EARLY_HINTS => self.hints(key, &record.content),
            fastcgi::END_REQUEST => {
                self.end_response().await;
                let is_overloaded = record.content.get(4) == Some(&fastcgi::OVERLOADED);
                if is_overloaded && by_frame {
                    return Err("a frame about a request that was not begun".into());
                }
                if let (Some(includes), Some(files), false) = (
                    &self.shared.includes,
                    record.content.first_chunk(),
                    is_overloaded,
                ) {
                    includes.count(u32::from_be_bytes(*files));
                }
                let is_held = self.shared.in_flight.with(key, |slot| {
                    if let [.., high, middle, low] = *record.content {
                        let waited = waited(slot.entered, [high, middle, low]);
                        self.shared.queue_wait.observe(waited.as_secs_f64());
                        if let Some(trace) = &slot.trace {
                            trace.waited(slot.entered, waited);
                            trace.php_ended();
                        }
                        if slot.sent.is_some_and(|sent| sent.to_polling_worker) {
                            self.shared.polling.record_preemption(waited);
                        }
                    }
                    if slot.answer.is_none() {
                        // The usual case: the caller has the response.
                    } else if is_overloaded && slot.is_late() {
                        // The deadline passed before the event began.
                        slot.fail(Failure::TimedOut, RequestProgress::Received);
                    } else if is_overloaded {
                        // The worker could not take the event, and exits.
                        let why = "no worker could open the request's body: too many open \
                            files"
                            .into();
                        slot.fail(Failure::WorkerCrashed(why), RequestProgress::Declined);
                    } else {
                        let why = "the script ended without a response".into();
                        slot.fail(Failure::Malformed(why), RequestProgress::Started);
                    }
                    slot.completion_token.is_some()
                }) == Some(true);
                self.reply = ArrivingResponse::None;
                self.hinted = 0;
                if !self.message.is_empty() {
                    // The message's end is missing. It must not become the beginning of the next
                    // event's message.
                    let event = self.shared.in_flight.with(key, |slot| slot.event);
                    php_log::message(std::mem::take(&mut self.message), self.pid.get(), event);
                }
                self.sequence.end();
                self.finished();
                if is_held {
                    self.written.catch_up().await;
                }
                self.shared.in_flight.close(key);
            }
            kind => return Err(format!("a record of type {kind}")),
        }
        Ok(())
    }

    /// The worker begins to answer an event; checks that it has claimed it.
    fn begin(&mut self, record: &Record) -> Result<(), String> {
        let ticket = record.content[..].try_into();
        let ticket = ticket.map_err(|_| "a ticket of the wrong length".to_owned())?;
        let ticket = Ticket::from_bytes(ticket);
        let event = self
            .shared
            .claimed(record.request, ticket, self.index, &self.pid);
        static REPORTED: RateLimit = RateLimit::new();
        // Possible if Surus gave the event up because it seemed lost.
        if event.is_none() && REPORTED.is_time(Instant::now()) {
            warn!(
                pid = self.pid.get(),
                slot = record.request,
                "a worker answered a request that it does not hold; response discarded"
            );
        }
        self.sequence.begin(record.request, event)
    }

    /// Processes a record for an event that this worker does not hold, or no longer. Its log lines
    /// count nevertheless.
    fn discard(&mut self, record: Record) -> Result<(), String> {
        match record.kind {
            fastcgi::STDERR if record.content.is_empty() => {
                php_log::message(std::mem::take(&mut self.message), self.pid.get(), None);
            }
            fastcgi::STDERR => self.message.add(&record.content),
            fastcgi::STDOUT | fastcgi::EARLY_HINTS => {}
            fastcgi::END_REQUEST => self.sequence.end(),
            kind => return Err(format!("a record of type {kind}")),
        }
        Ok(())
    }

    /// Waits until it is known how the worker exited.
    async fn exit(&mut self) -> Exit {
        if let Some(exit) = self.exit {
            return exit;
        }
        let reported = worker_exit::reported(&self.shared, self.pid.get(), &mut self.exited).await;
        let exit = reported.unwrap_or_else(|| {
            let line = self.shared.board.line(self.index);
            Exit {
                wait_status: None,
                state: line.state,
                held: line.held().filter(|_| line.pid == self.pid.get()),
            }
        });
        *self.exit.insert(exit)
    }

    /// Kills a worker that sent invalid input.
    async fn end(&mut self, wrong: &str) {
        error!(
            pid = self.pid.get(),
            reason = wrong,
            "worker sent an invalid record; killed"
        );
        self.shared
            .kill(self.index, &self.pid, Killed::ProtocolError);
    }

    /// The worker is done with its event. A short response ends together with it.
    fn finished(&mut self) {
        self.shared.polling.request_ended(Instant::now());
    }

    /// The worker has exited: the event that it held gets no complete response.
    async fn fail_held(&mut self, exit: Exit) {
        let rings = &self.shared.poller.rings;
        // A successor writes nothing while its predecessor's frames are unread.
        if self.is_blocked() {
            rings.empty(self.index);
        } else {
            rings.discard(self.index, self.pid.get());
            rings.repair(self.index);
        }
        self.finished();
        // The last content of the worker's scoreboard line. It may be forged, but only about an
        // event whose ticket it names correctly.
        let named = exit.held.filter(|_| exit.state.holds_event());
        let named = named.and_then(|held| {
            let pid = self.pid.clone();
            self.shared.record_holder(held, self.index, pid)
        });
        // A worker may have exited while recording its claim, or after answering more than could be
        // read; the sweep finds those cases.
        for key in self.shared.held_by(&self.pid) {
            let is_current = self.sequence.is_at(key);
            if !is_current && self.shared.is_named_by_another(&self.pid, key) {
                // One of the two lines is a copy.
                self.shared.in_flight.with(key, |slot| {
                    (slot.holder, slot.stopping) = (None, None);
                });
                continue;
            }
            let progress = match named {
                Some(named) if named == key && !is_current => RequestProgress::with(exit.state),
                _ => RequestProgress::Started,
            };
            self.lose(key, exit, progress).await;
        }
    }

    /// Fails an event that the worker held when it exited.
    async fn lose(&mut self, key: Key, exit: Exit, progress: RequestProgress) {
        let stopped = self
            .shared
            .in_flight
            .with(key, |slot| slot.stopping.is_some());
        let failure = if stopped == Some(true) {
            Failure::TimedOut
        } else {
            Failure::WorkerCrashed(exit.wait_status.map_or_else(
                || "the master process has exited".into(),
                process::describe_exit,
            ))
        };
        let is_streaming = matches!(
            &self.reply,
            ArrivingResponse::Streaming { key: streamed, .. } if *streamed == key
        );
        match std::mem::replace(&mut self.reply, ArrivingResponse::Done) {
            ArrivingResponse::Streaming { spool, .. } if is_streaming => spool.end(Err(failure)),
            reply => {
                // The response is for another event.
                self.reply = reply;
                debug!(
                    pid = self.pid.get(),
                    slot = key.slot,
                    ?progress,
                    "a worker crashed with a request"
                );
                self.shared.fail(key, failure, progress);
            }
        }
        let is_held = self
            .shared
            .in_flight
            .with(key, |slot| slot.completion_token.is_some());
        if is_held == Some(true) {
            // With a line that the worker has begun.
            self.written.end().await;
        }
        self.shared.in_flight.close(key);
    }
}

/// Bytes to read into, of which at least a quarter is read at once: enough for most pages, more if
/// a response turns out to be long.
pub(crate) const SMALL: usize = 64 * 1024;
const LARGE: usize = 256 * 1024;

/// The time from the event's arrival to the worker's claim, which END_REQUEST reports in units of
/// 64 µs without the upper digits.
fn waited(entered: Instant, taken: [u8; 3]) -> Duration {
    let [high, middle, low] = taken;
    let taken = u64::from_be_bytes([0, 0, 0, 0, 0, high, middle, low]);
    let units = taken.wrapping_sub(requests::micros(entered) >> 6) & 0xff_ffff;
    // Rounding can make it negative.
    let units = if units > 0x80_0000 { 0 } else { units };
    Duration::from_micros(units << 6)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::net::UnixStream;
    use tokio::net::unix::pipe;

    use super::*;

    fn outbox(shared: Arc<GenerationState>) -> Outbox {
        let (stream, _) = UnixStream::pair().unwrap();
        let (_, output) = pipe::pipe().unwrap();
        let pid = std::process::id();
        let written = php_log::follow_worker(output, pid, || None);
        let pid = Arc::new(Pid::new(pid, None, None));
        Outbox::new(
            shared,
            stream.into_split().0,
            0,
            pid,
            oneshot::channel().1,
            written,
        )
    }

    /// A short response has no end of its own: the record that ends the event ends both.
    #[tokio::test]
    async fn short_response_ends_the_request_for_the_polling_policy() {
        let longest = Duration::from_millis(1);
        let shared = GenerationState::without_processes(longest);
        let mut outbox = outbox(shared.clone());
        let key = Key {
            slot: 1,
            ticket: Ticket::new(1, 2),
        };
        // A policy that misses the ends believes that the pool has been idle since its start.
        std::thread::sleep(longest * 20);
        let mut polls = None;
        for _ in 0..100 {
            // Before the end of this request: the wait for the next one is zero on any machine.
            let next_request = Instant::now();
            outbox.sequence.begin(key.slot, Some(key)).unwrap();
            for (kind, content) in [
                (
                    fastcgi::STDOUT,
                    &b"Content-Type: text/plain\r\n\r\nHello"[..],
                ),
                (fastcgi::END_REQUEST, &[0; 8]),
            ] {
                let record = Record {
                    kind,
                    request: key.slot,
                    content: Bytes::from_static(content),
                };
                outbox.take(record, true).await.unwrap();
            }
            polls = Some(shared.polling.request(next_request, false).for_next_request);
        }
        assert_eq!(polls, Some(longest));
    }
}

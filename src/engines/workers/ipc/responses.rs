//! What one worker says: responses, log lines, the end of events.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::task::AtomicWaker;
use surus_sys::process;
use surus_sys::scoreboard::Ticket;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tracing::{debug, error, warn};

use super::requests;
use super::response_order::Turn;
use crate::engines::cgi::fastcgi;
use crate::engines::cgi::fastcgi::Record;
use crate::engines::cgi::response;
use crate::engines::cgi::response::{Block, Head, Split, TooLarge};
use crate::engines::response_spool::{Giver, Gone, Refused, backlog};
use crate::engines::workers::exit_reason::Killed;
use crate::engines::workers::generation::in_flight::{Key, Reached, Slot};
use crate::engines::workers::generation::state::{Exit, Shared};
use crate::engines::workers::response_stream::Stream;
use crate::event::{Failure, Response, ResponseBody};
use crate::launcher::Pid;
use crate::observe::message::Message;
use crate::observe::php_log;
use crate::observe::php_log::Written;
use crate::observe::rate_limit::Rarely;

/// Reads one worker's outbox.
pub struct Outbox {
    pub(crate) shared: Arc<Shared>,
    pub(crate) stream: UnixStream,
    /// Its line in the scoreboard.
    pub(crate) index: usize,
    /// Woken for its letters.
    pub(crate) reader: Arc<AtomicWaker>,
    pub(crate) pid: Arc<Pid>,
    pub(crate) turn: Turn,
    /// How it has ended, when that is known.
    exit: Option<Exit>,
    exited: oneshot::Receiver<Exit>,
    /// Since when the ring's first letter is none that it could have written next, and how often it
    /// was looked at.
    pub(crate) blocked: Option<(Instant, u32)>,
    /// When it had answered an event that has not ended.
    answered: Option<Instant>,
    reply: Reply,
    /// A log message that has not ended yet.
    message: Message,
    /// Bytes of early hints of the current event.
    hinted: usize,
    /// What it writes to stdout and stderr.
    written: Written,
}

/// How far the answer to the current event is.
enum Reply {
    /// No event is being answered.
    None,
    /// The header block is not complete.
    Head { key: Key, block: Block },
    /// The head is known; who waits has not been told, because the whole body may be at hand in a
    /// moment.
    Ready {
        key: Key,
        head: Head,
        /// Mostly all of the body.
        first: Bytes,
        more: Vec<Bytes>,
    },
    /// The body streams to the client.
    Streaming { key: Key, backlog: Giver },
    /// The client has its answer or has gone; what still comes is thrown away.
    Done,
}

impl Outbox {
    pub fn new(
        shared: Arc<Shared>,
        stream: UnixStream,
        index: usize,
        pid: Arc<Pid>,
        exited: oneshot::Receiver<Exit>,
        written: Written,
    ) -> Outbox {
        Outbox {
            reader: shared.post.reader(index),
            shared,
            stream,
            index,
            pid,
            turn: Turn::default(),
            exit: None,
            exited,
            blocked: None,
            answered: None,
            reply: Reply::None,
            message: Message::default(),
            hinted: 0,
            written,
        }
    }

    pub fn pid(&self) -> u32 {
        self.pid.get()
    }

    /// Until the worker has ended.
    pub async fn run(&mut self) {
        if let Some(wrong) = self.read().await {
            self.end(&wrong).await;
        }
        let exit = self.exit().await;
        self.worker_ended(exit).await;
    }

    /// Reads until the worker ends. What is returned is something that no worker of ours says.
    async fn read(&mut self) -> Option<String> {
        let (mut buffer, mut letter) = (BytesMut::new(), BytesMut::new());
        let mut block = SMALL;
        loop {
            // Short answers share a block; a piece that is as long as all of its room is one of
            // many.
            if buffer.capacity() - buffer.len() < block / 4 {
                buffer.reserve(block);
            }
            let room = buffer.capacity() - buffer.len();
            match self.more(&mut buffer).await {
                Ok(None) => {
                    if let Err(wrong) = self.take_letters(&mut letter).await {
                        return Some(wrong);
                    }
                    continue;
                }
                Ok(Some(0)) => return self.take_letters(&mut letter).await.err(),
                Ok(Some(n)) => block = if n >= room { LARGE } else { SMALL },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Some(error.to_string()),
            }
            if let Err(wrong) = self.take_records(&mut buffer, &mut letter).await {
                return Some(wrong);
            }
            // All that has arrived has been seen; what is not complete by now streams.
            self.begin_stream().await;
        }
    }

    /// Takes what the worker says. By a letter can only come what ends an event that was begun:
    /// other workers can write to the ring, to the socket they cannot.
    pub(crate) async fn take(&mut self, record: Record, by_letter: bool) -> Result<(), String> {
        if record.kind == fastcgi::TICKET {
            return self.begin(&record);
        }
        let Some(key) = self.turn.at(record.request)? else {
            return self.take_of_nobody(record);
        };
        match record.kind {
            fastcgi::STDOUT if record.content.is_empty() => {
                // Before anybody has the answer, who may ask again at once.
                if self.answered.is_none() {
                    self.shared.finishing.begin();
                    self.answered = Some(Instant::now());
                }
                self.end_response().await;
                // What follows takes the time that it takes, as under php-fpm; Lambda's time goes
                // on.
                self.shared.slots.with(key, |slot| {
                    if slot.patience.is_some() {
                        slot.deadline = None;
                    }
                });
            }
            fastcgi::STDOUT => self.output(key, record.content).await,
            fastcgi::STDERR if record.content.is_empty() => {
                let event = self.shared.slots.with(key, |slot| slot.event);
                let message = std::mem::take(&mut self.message);
                php_log::message(message, self.pid.get(), event);
            }
            fastcgi::STDERR => self.message.add(&record.content),
            fastcgi::EARLY_HINTS => self.hints(key, &record.content),
            fastcgi::END_REQUEST => {
                self.end_response().await;
                let is_overloaded = record.content.get(4) == Some(&fastcgi::OVERLOADED);
                if is_overloaded && by_letter {
                    return Err("a letter about a request that was not begun".into());
                }
                let is_held = self.shared.slots.with(key, |slot| {
                    if let [.., high, middle, low] = *record.content {
                        let waited = waited(slot.entered, [high, middle, low]);
                        self.shared.queue_wait.observe(waited.as_secs_f64());
                    }
                    if slot.answer.is_none() {
                        // As nearly always: it has its answer.
                    } else if is_overloaded && slot.is_late() {
                        // The deadline was over before its turn came.
                        slot.refuse(Failure::TimedOut, Reached::Worker);
                    } else if is_overloaded {
                        // The worker could not take it, and ends.
                        let why = "no worker had a descriptor for its body".into();
                        slot.refuse(Failure::Died(why), Reached::Declined);
                    } else {
                        let why = "the script ended without an answer".into();
                        slot.refuse(Failure::Malformed(why), Reached::Php);
                    }
                    slot.hold.is_some()
                }) == Some(true);
                self.reply = Reply::None;
                self.hinted = 0;
                if !self.message.is_empty() {
                    // Its end never came. It must not become the beginning of the next event's.
                    let event = self.shared.slots.with(key, |slot| slot.event);
                    php_log::message(std::mem::take(&mut self.message), self.pid.get(), event);
                }
                self.turn.end();
                self.finished();
                if is_held {
                    self.written.catch_up().await;
                }
                self.shared.slots.close(key);
            }
            kind => return Err(format!("a record of type {kind}")),
        }
        Ok(())
    }

    /// It says the first of an event: one that it has claimed?
    fn begin(&mut self, record: &Record) -> Result<(), String> {
        let ticket = record.content[..].try_into();
        let ticket = ticket.map_err(|_| "a ticket of another length".to_owned())?;
        let ticket = Ticket::from_bytes(ticket);
        let event = self
            .shared
            .claimed(record.request, ticket, self.index, &self.pid);
        static SAID: Rarely = Rarely::new();
        // As when it was given up because it seemed to be lost.
        if event.is_none() && SAID.is_time(Instant::now()) {
            warn!(
                pid = self.pid.get(),
                request = record.request,
                "a worker answers a request that is not its own (any more); the answer is thrown away"
            );
        }
        self.turn.begin(record.request, event)
    }

    /// Takes what is said of an event that is not, or no more, this worker's. Its log lines are
    /// true all the same.
    fn take_of_nobody(&mut self, record: Record) -> Result<(), String> {
        match record.kind {
            fastcgi::STDERR if record.content.is_empty() => {
                php_log::message(std::mem::take(&mut self.message), self.pid.get(), None);
            }
            fastcgi::STDERR => self.message.add(&record.content),
            fastcgi::STDOUT | fastcgi::EARLY_HINTS => {}
            fastcgi::END_REQUEST => self.turn.end(),
            kind => return Err(format!("a record of type {kind}")),
        }
        Ok(())
    }

    /// Waits until it is known how the worker has ended.
    async fn exit(&mut self) -> Exit {
        if let Some(exit) = self.exit {
            return exit;
        }
        let exit = (&mut self.exited).await.unwrap_or_else(|_| {
            let line = self.shared.board.line(self.index);
            Exit {
                wait_status: None,
                state: line.state,
                held: line.held().filter(|_| line.pid == self.pid.get()),
            }
        });
        *self.exit.insert(exit)
    }

    /// Ends a worker that says what no worker of ours does, with the events that it has.
    async fn end(&mut self, wrong: &str) {
        error!(
            pid = self.pid.get(),
            wrong, "a worker cannot be understood; killed"
        );
        self.shared.kill(self.index, &self.pid, Killed::Broken);
    }

    async fn output(&mut self, key: Key, content: Bytes) {
        if let Reply::None = self.reply {
            self.reply = Reply::Head {
                key,
                block: Block::default(),
            };
        }
        match &mut self.reply {
            Reply::Head { block, .. } => match block.add(content) {
                Ok(Some(Split { block, rest })) => self.head_complete(key, &block, rest),
                Ok(None) => {}
                Err(TooLarge) => {
                    self.refuse(
                        key,
                        Failure::Malformed("the response's headers are too large".into()),
                    );
                }
            },
            Reply::Ready { first, .. } if first.is_empty() => *first = content,
            Reply::Ready { more, .. } => {
                more.push(content);
                // A worker that posts all the time would never let us see the end.
                if more.len() >= AT_ONCE {
                    self.begin_stream().await;
                }
            }
            Reply::Streaming { .. } => self.pass_on(content).await,
            Reply::None | Reply::Done => {}
        }
    }

    fn head_complete(&mut self, key: Key, block: &Bytes, first: Bytes) {
        match response::parse(block) {
            Ok((head, refused)) => {
                for line in refused {
                    warn!(
                        pid = self.pid.get(),
                        line, "a response header that HTTP cannot carry was left out"
                    );
                }
                self.reply = Reply::Ready {
                    key,
                    head,
                    first,
                    more: Vec::new(),
                };
            }
            Err(wrong) => self.refuse(key, Failure::Malformed(wrong)),
        }
    }

    fn refuse(&mut self, key: Key, failure: Failure) {
        self.shared.refuse(key, failure, Reached::Php);
        self.reply = Reply::Done;
    }

    /// It does nothing any more for the event that it has answered.
    fn finished(&mut self) {
        if let Some(answered) = self.answered.take() {
            self.shared.finishing.end(answered.elapsed());
        }
    }

    /// The response is complete.
    async fn end_response(&mut self) {
        match std::mem::replace(&mut self.reply, Reply::Done) {
            Reply::Ready {
                key,
                head,
                first,
                mut more,
            } => {
                let body = if more.is_empty() {
                    first
                } else {
                    more.insert(0, first);
                    more.concat().into()
                };
                self.shared
                    .answer(key, response(head, ResponseBody::Full(body)));
            }
            Reply::Streaming { key, backlog } => {
                let stopped = self.shared.slots.with(key, |slot| slot.stopping.is_some());
                // What was cut off must not look complete.
                backlog.end(match stopped {
                    Some(true) => Err(Failure::TimedOut),
                    _ => Ok(()),
                });
            }
            Reply::Head { key, .. } => {
                self.refuse(
                    key,
                    Failure::Malformed("the response's headers have no end".into()),
                );
            }
            Reply::None | Reply::Done => {}
        }
    }

    /// Tells who waits that the body will follow.
    async fn begin_stream(&mut self) {
        if !matches!(self.reply, Reply::Ready { .. }) {
            return;
        }
        let Reply::Ready {
            key,
            head,
            first,
            more,
        } = std::mem::replace(&mut self.reply, Reply::Done)
        else {
            return;
        };
        let spool = |slot: &mut Slot| slot.spool.clone();
        let Some(spool) = self.shared.slots.with(key, spool) else {
            return;
        };
        let (giver, taker) = backlog(spool);
        let stream = Stream::new(taker, self.shared.clone(), key);
        if !self
            .shared
            .answer(key, response(head, ResponseBody::stream(stream)))
        {
            return;
        }
        self.reply = Reply::Streaming {
            key,
            backlog: giver,
        };
        let pieces = std::iter::once(first).chain(more);
        for piece in pieces.filter(|piece| !piece.is_empty()) {
            self.pass_on(piece).await;
        }
    }

    /// Waits until there is room for a piece; the worker waits with us, and its deadline does not
    /// count meanwhile: neither its client nor the disk is its fault.
    async fn pass_on(&mut self, piece: Bytes) {
        let Reply::Streaming { key, backlog } = &mut self.reply else {
            return;
        };
        let key = *key;
        let given = match backlog.try_give(piece) {
            Ok(()) => Ok(()),
            Err(Refused::Gone) => Err(Gone),
            Err(Refused::Full(piece)) => {
                self.shared.slots.with(key, |slot| {
                    if slot.patience.is_some() {
                        slot.deadline = None;
                    }
                    slot.waits_for_client = true;
                });
                let (shared, index, pid) = (&self.shared, self.index, &self.pid);
                let is_done = || !shared.is_named(index, pid, key);
                let given = backlog.give(piece, is_done).await;
                self.shared
                    .slots
                    .with(key, |slot| slot.waits_for_client = false);
                given
            }
        };
        if given.is_err() {
            // Stream's drop has told the worker.
            self.reply = Reply::Done;
        }
        self.shared.slots.with(key, |slot| {
            if let Some(patience) = slot.patience {
                slot.deadline = Some(Instant::now() + patience);
            }
        });
    }

    fn hints(&mut self, key: Key, block: &Bytes) {
        // A client that reads nothing keeps them all waiting. Each takes some memory of its own.
        self.hinted = self.hinted.saturating_add(block.len() + 256);
        if self.hinted > MAX_HINTS {
            self.shared.metrics.early_hints_dropped.inc();
            return;
        }
        let hints = self
            .shared
            .slots
            .with(key, |slot| slot.hints.as_ref()?.upgrade())
            .flatten();
        if let (Some(hints), Ok((head, _))) = (hints, response::parse(block)) {
            hints.send(&head.headers);
        }
    }

    /// The worker is gone: the event that it held will not be answered, or not completely.
    async fn worker_ended(&mut self, exit: Exit) {
        let rings = &self.shared.post.rings;
        // A successor has written nothing while there was anything.
        if self.is_blocked() {
            rings.empty(self.index);
        } else {
            rings.discard(self.index, self.pid.get());
            rings.repair(self.index);
        }
        self.finished();
        // What its line has said last. That may be a lie, but of an event that it names right.
        let named = exit.held.filter(|_| exit.state.holds_event());
        let named = named.and_then(|held| {
            let pid = self.pid.clone();
            self.shared.note_holder(held, self.index, pid)
        });
        // It may have been about to write down what it has claimed, or have answered more than
        // could be read: the watch misses that.
        for key in self.shared.held_by(&self.pid) {
            let is_spoken_of = self.turn.is_at(key);
            if !is_spoken_of && self.shared.is_named_by_another(&self.pid, key) {
                // One of the two lines is a copy.
                self.shared.slots.with(key, |slot| {
                    (slot.holder, slot.stopping) = (None, None);
                });
                continue;
            }
            let reached = match named {
                Some(named) if named == key && !is_spoken_of => Reached::with(exit.state),
                _ => Reached::Php,
            };
            self.lose(key, exit, reached).await;
        }
    }

    /// An event that this worker held when it ended.
    async fn lose(&mut self, key: Key, exit: Exit, reached: Reached) {
        let stopped = self.shared.slots.with(key, |slot| slot.stopping.is_some());
        let failure = if stopped == Some(true) {
            Failure::TimedOut
        } else {
            Failure::Died(
                exit.wait_status
                    .map_or_else(|| "its template is gone".into(), process::describe_exit),
            )
        };
        let is_streaming =
            matches!(&self.reply, Reply::Streaming { key: streamed, .. } if *streamed == key);
        match std::mem::replace(&mut self.reply, Reply::Done) {
            Reply::Streaming { backlog, .. } if is_streaming => backlog.end(Err(failure)),
            reply => {
                // Another's.
                self.reply = reply;
                debug!(
                    pid = self.pid.get(),
                    request = key.request,
                    ?reached,
                    "a worker died with an event"
                );
                self.shared.refuse(key, failure, reached);
            }
        }
        let is_held = self.shared.slots.with(key, |slot| slot.hold.is_some());
        if is_held == Some(true) {
            self.written.catch_up().await;
        }
        self.shared.slots.close(key);
    }
}

/// Pieces of an answer that are waited for only if they are there already.
const AT_ONCE: usize = 16;

/// Bytes of early hints that an event may have sent.
const MAX_HINTS: usize = 64 * 1024;

/// Memory to read into, at least a quarter of it at once: enough for the usual page, more once a
/// response turns out to be long.
pub(crate) const SMALL: usize = 64 * 1024;
const LARGE: usize = 256 * 1024;

/// From its arrival to when a worker took it, which END_REQUEST says in units of 64 us, without the
/// upper digits.
fn waited(entered: Instant, taken: [u8; 3]) -> Duration {
    let [high, middle, low] = taken;
    let taken = u64::from_be_bytes([0, 0, 0, 0, 0, high, middle, low]);
    let units = taken.wrapping_sub(requests::micros(entered) >> 6) & 0xff_ffff;
    // Less than nothing, by what was rounded off.
    let units = if units > 0x80_0000 { 0 } else { units };
    Duration::from_micros(units << 6)
}

fn response(head: Head, body: ResponseBody) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    if let Some(reason) = head.reason {
        response.extensions_mut().insert(reason);
    }
    response
}

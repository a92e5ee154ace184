//! One boot of the application: a template, its workers, and the events that they hold.

mod attention;
mod control;
mod deadlines;
mod health;
pub(crate) mod in_flight;
mod losses;
pub(crate) mod master;
pub(crate) mod state;
mod stopped;
mod stuck;
mod suspects;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use surus_sys::scoreboard::{Scoreboard, State};
use surus_sys::seqpacket::AsyncSeqpacket;
use tokio::sync::oneshot;

use self::in_flight::{Answer, Key, Reached, Refusal, Slot};
use self::master::{Spec, Template};
use self::state::Shared;
use super::ipc::doorbell::Post;
use super::ipc::requests::{Inbox, SendError};
use super::start_advice::advice;
use crate::engines::queue::Place;
use crate::event::{Event, Failure};
use crate::observe::metrics::Metrics;
use crate::observe::php_log;

/// Limits that the watch enforces.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub queue_wait: Duration,
    /// From asking PHP to end an event to killing its process.
    pub kill_after: Duration,
    pub boot: Duration,
    /// Events that the workers and the inbox hold together.
    pub capacity: usize,
}

/// A running generation. Dropping it lets the workers finish what they hold and what is in the
/// inbox; unless it was [retired](Generation::retire) before, they are killed instead.
pub struct Generation {
    inbox: Arc<Inbox>,
    pub shared: Arc<Shared>,
}

impl Generation {
    /// Starts PHP and waits until every worker waits for events. An error carries what PHP said.
    pub async fn boot(
        spec: &Spec,
        number: u64,
        limits: Limits,
        metrics: Arc<Metrics>,
    ) -> anyhow::Result<Generation> {
        let requests = requests(limits.capacity);
        let board = Scoreboard::new(spec.workers, requests.into())
            .context("no memory for the scoreboard")?;
        let post = Post::new(spec.workers).context("no memory for the rings")?;
        let Template {
            child,
            control,
            inbox,
            waiting,
            output,
        } = master::start(spec, &board, requests, &post).await?;
        let shared = Arc::new(Shared::new(
            number,
            spec,
            board,
            post.clone(),
            requests,
            metrics,
        ));
        let words = php_log::FirstLines::default();
        let mut streams = Vec::new();
        for stream in output {
            streams.push(tokio::spawn(php_log::follow_template(
                stream,
                words.clone(),
            )));
        }
        tokio::spawn(shared.clone().listen(control, child));
        let inbox = Arc::new(Inbox::new(inbox, post)?);
        tokio::spawn(deadlines::run(
            shared.clone(),
            Arc::downgrade(&inbox),
            limits,
        ));
        let generation = Generation { inbox, shared };

        if let Err(failure) = generation.booted(waiting, spec, limits.boot).await {
            // Its last words may still be in the pipe.
            for stream in streams {
                let _ = tokio::time::timeout(Duration::from_millis(200), stream).await;
            }
            let said = words.text();
            return Err(match said.is_empty() {
                false => match advice(&said) {
                    Some(advice) => failure.context(said).context(advice),
                    None => failure.context(said),
                },
                true if generation.shared.is_template_gone() => anyhow!(
                    "{failure:#}, without a word: it may not be the surus-php of this surus (engine.php), or an extension that \
                     php.ini loads has ended it"
                ),
                true => failure,
            });
        }
        Ok(generation)
    }

    /// Returns when all workers wait for events, of which each says on `waiting` that it does.
    async fn booted(
        &self,
        waiting: AsyncSeqpacket,
        spec: &Spec,
        limit: Duration,
    ) -> anyhow::Result<()> {
        let limited = tokio::time::sleep(limit);
        let mut limited = std::pin::pin!(limited);
        let (mut listening, mut word) = (true, [0]);
        loop {
            if self.shared.is_template_gone() {
                let how = self.shared.end.get().map_or("", String::as_str);
                bail!("PHP did not start: {} ended: {how}", spec.program.display());
            }
            if let Some(how) = self.shared.stillborn() {
                bail!("a worker ended before it could take an event: {how}");
            }
            if let Some(report) = self.shared.reported() {
                if report.get("opcache") == "failed" {
                    bail!(
                        "OPcache is enabled in {} and does not work; see PHP's error log, or set opcache.enable=0",
                        report.get("ini_file")
                    );
                }
                let waiting = |i| !matches!(self.shared.board.line(i).state, State::Starting);
                // A worker may be quicker than the template's word of it.
                let known = self.shared.are_all_known();
                if known && (0..spec.workers).all(waiting) {
                    self.shared.note_waiting();
                    return Ok(());
                }
            }
            tokio::select! {
                () = self.shared.news.notified() => {}
                // Once nobody is left who could say it, how they ended is about to be news.
                said = waiting.receive(&mut word), if listening => {
                    listening = said.is_ok_and(|said| said.len > 0);
                }
                () = &mut limited => bail!(
                    "PHP was not ready within {} seconds (engine.boot_timeout)",
                    limit.as_secs()
                ),
            }
        }
    }

    /// Gives the event to the workers and waits for the head of the answer.
    /// It has waited for its place since `began`, if it had to.
    /// It may be one of many in hand, those that take long not counted.
    pub async fn dispatch(
        &self,
        event: &Event,
        place: Place,
        began: Option<Instant>,
        is_one_of_many: bool,
    ) -> Answer {
        let (answer, wait) = oneshot::channel();
        let now = Instant::now();
        let slot = |ticket| Slot {
            event: event.id,
            ticket,
            is_claimed: false,
            sent: None,
            holder: None,
            answer: Some(answer),
            hints: event.early_hints.clone(),
            entered: began.unwrap_or(now),
            hidden: None,
            looks: 0,
            waits_for_client: false,
            deadline: Some(event.deadline),
            patience: event.patience,
            spool: event.spool.clone(),
            stopping: None,
            method: event.request.method().clone(),
            uri: event.request.uri().clone(),
            place: Some(place),
            hold: event.hold.clone(),
        };
        let Some(key) = self.shared.slots.open(&self.shared.board, slot) else {
            return Err(Refusal {
                failure: Failure::Busy("no request id is free"),
                reached: Reached::Nobody,
            });
        };
        self.shared.attention.call();
        let mut waiting = Waiting {
            shared: &self.shared,
            key,
            sent: false,
        };
        let mut wait = wait;
        let sent = tokio::select! {
            biased;
            sent = self.inbox.send(event, key, is_one_of_many) => sent,
            // Given up before there was room for it.
            answer = &mut wait => return answered(answer.ok()),
        };
        match sent {
            Ok(way) => {
                waiting.sent = true;
                let sent = Some((Instant::now(), way));
                self.shared.slots.with(key, |slot| slot.sent = sent);
                // A socket tells when nobody is left, a ring does not.
                self.shared.lose_orphans();
                self.shared.post.look();
            }
            Err(SendError::Closed) => {
                // The template holds the other end as long as it lives, unless a script has shut
                // the socket down. Whoever decides what to do next has to know.
                self.shared.inbox_was_closed();
                return Err(Refusal {
                    failure: Failure::Died("no PHP process is left".into()),
                    reached: Reached::Nobody,
                });
            }
            Err(SendError::Unsendable(failure)) => {
                return Err(Refusal {
                    failure,
                    reached: Reached::Nobody,
                });
            }
        }
        let answer = match is_one_of_many {
            true => wait.await.ok(),
            false => {
                // A worker that looked for the event when it was sent may have been stopped since.
                let in_vain = || self.inbox.wake_if_needed();
                let spin = &self.shared.spin;
                super::ipc::await_response::wait(spin, &self.shared.post, now, wait, in_vain).await
            }
        };
        std::mem::forget(waiting);
        answered(answer)
    }

    /// Lets the workers end when they have emptied the inbox. Returns what to wait at
    /// ([`Shared::ended`]).
    pub fn retire(&self) -> Arc<Shared> {
        self.shared.retire();
        if self.shared.is_inbox_closed() {
            // Its workers end as soon as they have nothing to do.
            self.shared.send_elsewhere();
        }
        self.shared.clone()
    }
}

fn answered(answer: Option<Answer>) -> Answer {
    answer.unwrap_or_else(|| {
        Err(Refusal {
            failure: Failure::Died("the engine has ended".into()),
            reached: Reached::Php,
        })
    })
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.shared.end_unless_retiring();
    }
}

/// Gives up on an event when the future that waits for it is dropped.
struct Waiting<'a> {
    shared: &'a Shared,
    key: Key,
    sent: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.sent {
            self.shared.abandon(self.key);
        } else {
            self.shared.slots.close(self.key);
        }
    }
}

/// How many request ids a generation needs; 0 is never used.
pub fn requests(capacity: usize) -> u16 {
    u16::try_from(capacity + 1).unwrap_or(u16::MAX)
}

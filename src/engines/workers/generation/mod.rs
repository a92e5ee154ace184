//! One boot of the application: a master process, its workers, and the events that they hold.

mod adapt;
mod backtraces;
mod control;
pub(crate) mod deadlines;
mod health;
pub(crate) mod in_flight;
mod includes;
mod losses;
pub(crate) mod master;
mod parking;
mod revalidation;
pub(super) mod scale;
mod slow_requests;
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

use self::in_flight::{DispatchError, InFlightRequest, Key, RequestProgress, WorkerAnswer};
use self::master::{Spec, StartedMaster};
use self::scale::Scale;
use self::state::GenerationState;
use self::stopped::Stopped;
use super::ipc::await_response;
use super::ipc::requests::{Inbox, SendError};
use super::ipc::response_poller::ResponsePoller;
use super::start_advice::advice;
use crate::engines::queue::Permit;
use crate::event::{Event, Failure};
use crate::observe::first_lines::FirstLines;
use crate::observe::metrics::Metrics;
use crate::observe::php_log;

/// Limits that the sweeper enforces.
#[derive(Debug, Clone, Copy)]
pub struct RequestLimits {
    pub queue_wait: Duration,
    /// From asking PHP to end an event to killing its process.
    pub kill_timeout: Duration,
    /// From when a worker claims an event until its backtrace is logged.
    pub slow_request: Option<Duration>,
    pub boot: Duration,
    /// Events that the workers and the inbox hold together.
    pub capacity: usize,
}

/// A running generation. Dropping it lets the workers finish what they hold and what is in the
/// inbox if it was [drained](Generation::drain) before; otherwise they are killed.
pub struct Generation {
    inbox: Arc<Inbox>,
    pub shared: Arc<GenerationState>,
}

impl Generation {
    /// Starts PHP and returns when every worker waits for events. The error contains PHP's
    /// messages.
    pub async fn boot(
        spec: &Spec,
        number: u64,
        limits: RequestLimits,
        scale: Option<Arc<Scale>>,
        metrics: Arc<Metrics>,
    ) -> anyhow::Result<Generation> {
        if spec.traces_slow {
            // Registers it with 0.
            drop(metrics.slow_requests(spec.name));
        }
        let slots = slots(limits.capacity);
        let board = Scoreboard::new(spec.workers, slots.into())
            .context("cannot allocate the scoreboard")?;
        let poller =
            ResponsePoller::new(spec.workers).context("cannot allocate the shared rings")?;
        if let Some(scale) = &scale {
            poller.rings.set_target(scale.target());
        }
        let StartedMaster {
            child,
            control,
            inbox,
            waiting,
            output,
        } = master::start(spec, &board, slots, &poller).await?;
        let shared = Arc::new(GenerationState::new(
            number,
            spec,
            board,
            poller.clone(),
            slots,
            scale,
            metrics,
        ));
        // Reasons of Surus come after the output of the script, whichever is read first.
        let words = [FirstLines::default(), FirstLines::default()];
        for (stream, words) in output.into_iter().zip(&words) {
            shared.add_log(php_log::follow_surus_php(stream, words.clone()));
        }
        tokio::spawn(shared.clone().listen(control, child));
        let inbox = Arc::new(Inbox::new(inbox, poller));
        tokio::spawn(deadlines::run(
            shared.clone(),
            Arc::downgrade(&inbox),
            limits,
        ));
        let generation = Generation { inbox, shared };

        if let Err(failure) = generation.booted(waiting, spec, limits.boot).await {
            generation.shared.end_logs().await;
            let messages = FirstLines::text_of(&words);
            return Err(match messages.is_empty() {
                false => match advice(&messages) {
                    Some(advice) => failure.context(messages).context(advice),
                    None => failure.context(messages),
                },
                true if generation.shared.has_master_exited() => anyhow!(
                    "{failure:#}, without a word: it may not be the surus-php of this surus \
                     (engine.surus_php), or an extension that php.ini loads has ended it"
                ),
                true => failure,
            });
        }
        Ok(generation)
    }

    /// Returns when all workers wait for events, which each announces on `waiting`.
    async fn booted(
        &self,
        waiting: AsyncSeqpacket,
        spec: &Spec,
        limit: Duration,
    ) -> anyhow::Result<()> {
        let limited = tokio::time::sleep(limit);
        let mut limited = std::pin::pin!(limited);
        let mut checks = tokio::time::interval(stopped::PAUSE);
        let mut stopped = Stopped::default();
        let (mut listening, mut word) = (true, [0]);
        loop {
            if self.shared.has_master_exited() {
                let how = self.shared.end.get().map_or("", String::as_str);
                bail!("PHP did not start: {}: {how}", spec.program.display());
            }
            if let Some(how) = self.shared.failed_before_ready() {
                bail!("a worker exited during start-up: {how}");
            }
            if let Some(report) = self.shared.reported() {
                if report.get("opcache") == "failed" {
                    bail!(
                        "OPcache is enabled in {} and does not work; see PHP's error log, or set \
                        opcache.enable=0",
                        report.get("ini_file")
                    );
                }
                let waiting = |i| !matches!(self.shared.board.line(i).state, State::Starting);
                // A worker may be faster than the master process's message about it.
                let known = self.shared.are_all_known();
                if known && (0..self.shared.target()).all(waiting) {
                    self.shared.record_waiting();
                    return Ok(());
                }
            }
            tokio::select! {
                () = self.shared.changed.notified() => {}
                _ = checks.tick() => {
                    stopped.check_boot(&self.shared);
                    stopped.check_booting_workers(&self.shared);
                }
                // If no process can announce itself any more, the master process is about to report
                // their exits.
                received = waiting.receive(&mut word), if listening => {
                    listening = received.is_ok_and(|received| received.len > 0);
                }
                () = &mut limited => bail!(
                    "PHP was not ready within {} seconds (engine.boot_timeout)",
                    limit.as_secs()
                ),
            }
        }
    }

    /// Sends the event to the workers and waits for the response's headers. `began` is when it
    /// began to wait for its permit, if it had to. `is_one_of_many`: other events are in
    /// flight.
    pub async fn dispatch(
        &self,
        event: &Event,
        permit: Permit,
        began: Option<Instant>,
        is_one_of_many: bool,
    ) -> WorkerAnswer {
        let (answer, wait) = oneshot::channel();
        let now = Instant::now();
        let slot = |ticket| InFlightRequest {
            event: event.id,
            ticket,
            is_claimed: false,
            sent: None,
            holder: None,
            answer: Some(answer),
            hints: event.early_hints.clone(),
            entered: began.unwrap_or(now),
            holder_unknown_since: None,
            sweeps: 0,
            waits_for_client: false,
            deadline: Some(event.deadline),
            idle_timeout: event.idle_timeout,
            spool: event.spool.clone(),
            stopping: None,
            claimed_since: None,
            is_slow: false,
            method: event.request.method().clone(),
            uri: event.request.uri().clone(),
            _permit: Some(permit),
            completion_token: event.completion_token.clone(),
            trace: event.request.extensions().get().cloned(),
        };
        let Some(key) = self.shared.in_flight.open(&self.shared.board, slot) else {
            return Err(DispatchError {
                failure: Failure::Busy("all slots for requests are in use"),
                progress: RequestProgress::Queued,
            });
        };
        self.shared.parking.notify();
        self.shared.revalidation.request(now);
        let polls = self.shared.polling.request(now, is_one_of_many);
        let rings = &self.shared.poller.rings;
        rings.set_poll_budget(polls.for_next_request);
        let mut waiting = WaitGuard {
            shared: &self.shared,
            key,
            sent: false,
        };
        let mut wait = wait;
        let sent = tokio::select! {
            biased;
            sent = self.inbox.send(event, key, polls.batches) => sent,
            // Given up before it was sent.
            answer = &mut wait => return answered(answer.ok()),
        };
        match sent {
            Ok(sent) => {
                waiting.sent = true;
                self.shared
                    .in_flight
                    .with(key, |slot| slot.sent = Some(sent));
                // The socket reports when no process is left; the ring does not.
                self.shared.lose_orphans();
                self.shared.poller.poll();
            }
            Err(SendError::Closed) => {
                // The master process holds the other end open while it lives, unless a script has
                // shut the socket down. The generation must be replaced then.
                self.shared.inbox_was_closed();
                return Err(DispatchError {
                    failure: Failure::WorkerCrashed("no PHP process is running".into()),
                    progress: RequestProgress::Queued,
                });
            }
            Err(SendError::Unsendable(failure)) => {
                return Err(DispatchError {
                    failure,
                    progress: RequestProgress::Queued,
                });
            }
        }
        let answer = match is_one_of_many {
            true => wait.await.ok(),
            false => {
                let (polling, poller) = (&self.shared.polling, &self.shared.poller);
                await_response::wait(polling, polls.for_response, poller, now, wait).await
            }
        };
        std::mem::forget(waiting);
        answered(answer)
    }

    /// Lets the workers exit once the inbox is empty. The caller can wait for
    /// [`GenerationState::ended`].
    pub fn drain(&self) -> Arc<GenerationState> {
        self.shared.drain();
        if self.shared.is_inbox_closed() || self.shared.hands_over() {
            // The workers exit when they have nothing to do, or take nothing.
            self.shared.send_to_next_generation();
        }
        if self.shared.hands_over() && self.shared.in_flight.is_empty() {
            self.shared.dropped.cancel();
        }
        self.shared.clone()
    }
}

fn answered(answer: Option<WorkerAnswer>) -> WorkerAnswer {
    answer.unwrap_or_else(|| {
        Err(DispatchError {
            failure: Failure::WorkerCrashed("the engine has stopped".into()),
            progress: RequestProgress::Started,
        })
    })
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.shared.end_unless_draining();
    }
}

/// Gives up an event when the future that waits for it is dropped.
struct WaitGuard<'a> {
    shared: &'a GenerationState,
    key: Key,
    sent: bool,
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        if self.sent {
            self.shared.abandon(self.key);
        } else {
            self.shared.in_flight.close(self.key);
        }
    }
}

/// How many slots for requests a generation needs; 0 is never used.
pub fn slots(capacity: usize) -> u16 {
    u16::try_from(capacity + 1).unwrap_or(u16::MAX)
}

//! The engines that run PHP in surus-php: a pool of workers that a master process forks.

mod exit_reason;
pub(super) mod generation;
pub mod ipc;
mod pool_memory;
mod response_stream;
mod scaling;
mod start_advice;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use arc_swap::ArcSwapOption;
use tokio::sync::{OwnedMutexGuard, watch as watch_channel};
use tracing::{error, info};

pub use generation::RequestLimits;
pub use generation::master::{Boot, Code, FindScript, Linked, Spec};
pub use ipc::response_poller::observe_parking;

use crate::engine::{Change, Engine, Pending, Prepared, Report};
use crate::engines::queue::{Bounds, Permit, RequestQueue};
use crate::event::{Body, Event, Failure, Response};
use crate::observe::metrics::Metrics;
use crate::observe::status::{EngineStatus, LeftOut};
use generation::Generation;
use generation::in_flight::RequestProgress;
use generation::scale::Scale;

/// Events per worker that may wait in the inbox, which is cheaper than the queue in the front end.
/// This many keep workers from ever waiting for the front end. An event in the inbox is given up at
/// its deadline or when its client disconnects, like one in the queue.
const INBOX_DEPTH: usize = 16;

/// How often an application boots that changes while it boots.
const BOOTS: usize = 3;

/// Events that the workers and the inbox hold together if `max_waiting` may wait. Numbers of
/// slots have 16 bits.
pub fn capacity(workers: usize, max_waiting: usize) -> usize {
    (workers + max_waiting.min(workers * INBOX_DEPTH)).min(60_000)
}

/// A pool of workers.
pub struct Pool(Arc<Inner>);

struct Inner {
    spec: Spec,
    limits: RequestLimits,
    /// None if the number of workers is fixed.
    scale: Option<Arc<Scale>>,
    queue: RequestQueue,
    /// None after the drain.
    current: ArcSwapOption<Generation>,
    /// Changes with every new generation.
    generations: watch_channel::Sender<u64>,
    next_number: AtomicU64,
    /// Locked while a generation boots, so that a reload and a recovery do not boot at the same
    /// time.
    booting: Arc<tokio::sync::Mutex<()>>,
    /// Locked before `booting` by a recovery, which the learner can hold off.
    recovering: Arc<tokio::sync::Mutex<()>>,
    metrics: Arc<Metrics>,
}

impl Pool {
    /// Boots the first generation.
    pub async fn boot(
        spec: Spec,
        limits: RequestLimits,
        mut bounds: Bounds,
        metrics: Arc<Metrics>,
    ) -> anyhow::Result<Pool> {
        let range = spec.min_workers..=spec.workers;
        let scale = Scale::new(spec.name, range, spec.first_workers, &metrics);
        let in_inbox = limits.capacity - spec.workers;
        bounds.max_waiting = bounds.max_waiting.saturating_sub(in_inbox);
        let queue = RequestQueue::new(limits.capacity, bounds);
        let inner = Arc::new(Inner {
            spec,
            limits,
            scale,
            queue,
            current: ArcSwapOption::empty(),
            generations: watch_channel::Sender::default(),
            next_number: AtomicU64::new(1),
            booting: Arc::default(),
            recovering: Arc::default(),
            metrics,
        });
        let first = Arc::new(inner.boot_generation().await?);
        inner.clone().install(first);
        Ok(Pool(inner))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.0.current.store(None);
    }
}

impl Inner {
    /// Makes `generation` the current one. The previous one finishes the events that it holds.
    fn install(self: Arc<Self>, generation: Arc<Generation>) {
        let shared = generation.shared.clone();
        let number = shared.number;
        if let Some(old) = self.current.swap(Some(generation)) {
            old.drain();
        }
        shared.begin_scaling();
        self.generations.send_replace(number);
        // Recovers if this generation's master process exits. Weak, so that dropping the pool ends
        // everything.
        let pool = Arc::downgrade(&self);
        tokio::spawn(async move {
            tokio::select! {
                () = shared.ended.cancelled() => {}
                () = shared.replace.cancelled() => {}
            }
            let mut pause = Duration::from_millis(100);
            loop {
                let Some(pool) = pool.upgrade() else { return };
                let is_current = pool
                    .current
                    .load()
                    .as_ref()
                    .is_some_and(|current| current.shared.number == number);
                if !is_current {
                    return;
                }
                match pool.boot_next().await {
                    Ok(()) => {
                        info!("PHP restarted");
                        return;
                    }
                    Err(error) => error!(error = format!("{error:#}"), "cannot restart PHP"),
                }
                drop(pool);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(5));
            }
        });
    }

    async fn boot_next(self: &Arc<Self>) -> anyhow::Result<()> {
        let _recovering = self.recovering.lock().await;
        let _booting = self.booting.lock().await;
        self.change_over(Arc::new(self.boot_generation().await?))?;
        if let Some(learned) = &self.spec.learned {
            learned.prove_again();
        }
        Ok(())
    }

    /// Boots an application that does not change meanwhile, so that no boot has files of two
    /// versions.
    async fn boot_generation(&self) -> anyhow::Result<Generation> {
        let mut tries = 1..=BOOTS;
        loop {
            let number = self.next_number.fetch_add(1, Ordering::Relaxed);
            let (spec, metrics) = (&self.spec, self.metrics.clone());
            let scale = self.scale.clone();
            let booted = Generation::boot(spec, number, self.limits, scale, metrics).await?;
            tries.next();
            let revalidation = &booted.shared.revalidation;
            // Without checks, a deploy ends before the reload.
            let change = match revalidation.is_on() {
                true => revalidation.check().await,
                false => None,
            };
            match change {
                Some(change) if !tries.is_empty() => info!(
                    changed = change.what,
                    "the application has changed while it booted; it boots again"
                ),
                _ => return Ok(booted),
            }
        }
    }

    /// Waits for a change of what the current generation has booted.
    async fn outdated(&self, known: Option<u64>) -> Change {
        let mut generations = self.generations.subscribe();
        loop {
            generations.borrow_and_update();
            let shared = self.current.load().as_ref().map(|it| it.shared.clone());
            let Some(shared) = shared else {
                return std::future::pending().await;
            };
            tokio::select! {
                change = shared.revalidation.outdated(known) => return change,
                _ = generations.changed() => {}
            }
        }
    }

    fn change_over(self: &Arc<Self>, next: Arc<Generation>) -> anyhow::Result<()> {
        self.clone().install(next);
        if self.queue.is_draining() {
            // The drain may already have drained the previous generation, and would miss this one.
            self.current.store(None);
            bail!("shutting down");
        }
        Ok(())
    }

    async fn handle(&self, event: &Event) -> Result<Response, Failure> {
        let (mut retried, mut declined) = (false, false);
        loop {
            let (permit, began) = match self.queue.try_enter()? {
                Some(permit) => (permit, None),
                // Boxed, because it is large and rare.
                None => Box::pin(self.wait(event)).await?,
            };
            let current = self.current.load_full();
            let Some(generation) = current else {
                return Err(Failure::Busy("shutting down"));
            };
            if generation.shared.is_inbox_closed() {
                drop(permit);
                self.next_generation(generation, event.deadline).await?;
                continue;
            }
            let is_one_of_many = self.queue.taken() > 1;
            let error = match generation
                .dispatch(event, permit, began, is_one_of_many)
                .await
            {
                Ok(response) => {
                    if let Some(learned) = &self.spec.learned
                        && learned.is_counting()
                    {
                        learned.answered(event, &response);
                    }
                    return Ok(response);
                }
                Err(error) => error,
            };
            let is_idempotent = event.request.method().is_idempotent();
            let is_streamed = matches!(event.request.body(), Body::Streamed { .. });
            let again = matches!(error.failure, Failure::WorkerCrashed(_))
                && match error.progress {
                    // Certain: the ticket was revoked, or the event was never sent. With reloads
                    // this can happen more than once.
                    RequestProgress::Queued => true,
                    // Only the worker says so. Other workers may lack descriptors, too. An event
                    // with side effects is repeated at most once on a worker's word.
                    RequestProgress::Declined => !declined || is_idempotent,
                    RequestProgress::Received => !retried && is_idempotent && !is_streamed,
                    RequestProgress::Started => false,
                };
            if !again {
                return Err(error.failure);
            }
            retried |= error.progress == RequestProgress::Received;
            declined |= error.progress == RequestProgress::Declined;
            if generation.shared.has_master_exited() || generation.shared.is_inbox_closed() {
                self.next_generation(generation, event.deadline).await?;
            }
        }
    }

    /// Returns when there is a generation after this one, which receives no more events.
    async fn next_generation(
        &self,
        generation: Arc<Generation>,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let mut generations = self.generations.subscribe();
        if *generations.borrow_and_update() != generation.shared.number {
            return Ok(());
        }
        // The last owner's drop ends it.
        drop(generation);
        let limit = self
            .queue
            .max_wait()
            .min(deadline.saturating_duration_since(Instant::now()));
        // Boxed, because it is large and rare.
        let changed = Box::pin(tokio::time::timeout(limit, generations.changed())).await;
        changed
            .map(|_| ())
            .map_err(|_| Failure::Busy("PHP is restarting"))
    }

    /// Waits for a permit. Also returns when the wait began.
    async fn wait(&self, event: &Event) -> Result<(Permit, Option<Instant>), Failure> {
        let began = Instant::now();
        let permit = self.queue.enter(event).await;
        if permit.is_err() {
            let waited = self.metrics.queue_duration(self.spec.name);
            waited.observe(began.elapsed().as_secs_f64());
        }
        Ok((permit?, Some(began)))
    }

    /// Ends the current generation. Its workers exit when they hold no event.
    async fn end(&self) {
        let Some(last) = self.current.swap(None) else {
            return;
        };
        let shared = last.drain();
        drop(last);
        shared.ended.cancelled().await;
    }
}

/// A generation that does not serve yet.
struct Booted {
    generation: Arc<Generation>,
    queue: RequestQueue,
}

impl Booted {
    async fn ask(&self, event: &Event) -> Result<Response, Failure> {
        let permit = self.queue.enter(event).await?;
        let answer = self.generation.dispatch(event, permit, None, true).await;
        answer.map_err(|error| error.failure)
    }
}

impl Engine for Pool {
    fn handle(&self, event: Box<Event>) -> Pending<'_, Result<Response, Failure>> {
        Box::pin(async move { self.0.handle(&event).await })
    }

    fn takes_streamed_bodies(&self) -> bool {
        true
    }

    fn prepare(&self) -> Pending<'_, anyhow::Result<Prepared>> {
        let pool = self.0.clone();
        Box::pin(async move {
            // Not until the change-over, which may come minutes later: a recovery must not wait.
            let booting = pool.booting.clone().lock_owned().await;
            let next = pool
                .boot_generation()
                .await
                .context("the reload failed; the old version keeps running")?;
            drop(booting);
            let next = Arc::new(next);
            let booted = Arc::new(Booted {
                generation: next.clone(),
                queue: RequestQueue::new(pool.limits.capacity, Bounds::default()),
            });
            let report = next.shared.report();
            let prepared = Prepared::new(move || pool.change_over(next)).with_report(report);
            Ok(prepared.with_ask(move |event| {
                let booted = booted.clone();
                Box::pin(async move { booted.ask(&event).await })
            }))
        })
    }

    fn hold_recovery(&self) -> Pending<'_, Option<OwnedMutexGuard<()>>> {
        let recovering = self.0.recovering.clone();
        Box::pin(async move { Some(recovering.lock_owned().await) })
    }

    fn outdated(&self, known: Option<u64>) -> Pending<'_, Change> {
        Box::pin(self.0.outdated(known))
    }

    fn boots(&self) -> Option<watch_channel::Receiver<u64>> {
        Some(self.0.generations.subscribe())
    }

    fn is_outdated(&self) -> Pending<'_, bool> {
        Box::pin(async {
            match self.0.current.load_full() {
                Some(current) => current.shared.revalidation.check().await.is_some(),
                None => false,
            }
        })
    }

    fn restart_workers(&self) -> Pending<'_, anyhow::Result<()>> {
        if !self.0.spec.boots_in_master() {
            // Each worker booted the application itself and drew random numbers for it.
            return self.reload();
        }
        Box::pin(async {
            // One refresh at a time, and not during a change of generations.
            let _alone = self.0.booting.lock().await;
            let current = self.0.current.load_full();
            let generation = current.context("shutting down")?;
            generation.shared.restart_workers().await
        })
    }

    fn drain(&self) -> Pending<'_, ()> {
        Box::pin(async {
            self.0.queue.emptied().await;
            self.0.end().await;
        })
    }

    fn retire(&self) -> Pending<'_, ()> {
        Box::pin(async {
            self.0.queue.closed().await;
            self.0.end().await;
        })
    }

    fn ready(&self) -> Result<(), String> {
        match self.0.current.load().as_ref() {
            None => Err("shutting down".into()),
            Some(generation) => generation.shared.usable().map_err(str::to_owned),
        }
    }

    fn report(&self) -> Report {
        self.0
            .current
            .load()
            .as_ref()
            .map(|generation| generation.shared.report())
            .unwrap_or_default()
    }

    fn capacity(&self) -> Option<watch_channel::Receiver<usize>> {
        self.0.scale.as_ref().map(|scale| scale.capacity())
    }

    fn status(&self) -> EngineStatus {
        let current = self.0.current.load();
        let shared = current.as_ref().map(|generation| &generation.shared);
        let warm_ups = shared.map(|shared| shared.warm_ups()).unwrap_or_default();
        let known = self.0.spec.learned.as_ref();
        let mut left_out = known.map(|known| known.left_out()).unwrap_or_default();
        for (page, reason) in warm_ups.left_out {
            // Another reason of an earlier try is out of date.
            left_out.retain(|it| it.page != page || it.reason == reason);
            if left_out.iter().all(|it| it.page != page) {
                let why = reason.in_the_boot().into();
                left_out.push(LeftOut { page, reason, why });
            }
        }
        EngineStatus {
            engine: self.0.spec.name.into(),
            instead: None,
            php: shared
                .map(|shared| shared.report().get("php").to_string())
                .unwrap_or_default(),
            generation: shared.map_or(0, |shared| shared.number),
            learned: warm_ups.learned,
            named: warm_ups.named,
            left_out,
            created: shared
                .map(|shared| shared.report().get("created").to_string())
                .unwrap_or_default(),
            includes: shared.and_then(|shared| shared.includes.as_ref()?.status()),
            queued: self.0.queue.waiting() + shared.map_or(0, |shared| shared.waiting()),
            workers: shared.map(|shared| shared.status()).unwrap_or_default(),
            scaling: self.0.scale.as_ref().map(|scale| scale.status()),
        }
    }
}

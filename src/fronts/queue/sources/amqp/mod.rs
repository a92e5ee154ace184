//! Queues in RabbitMQ, classic and quorum queues.
//!
//! The server pushes messages; as many as the prefetch count allows are unacknowledged at a time. A
//! reservation lasts as long as its channel: once that is closed, the server delivers the message
//! again. So leases need no extension, and what a closed channel has delivered is not settled.

mod buried;
pub mod guard;
mod message;
mod server;
mod session;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use tokio_util::sync::CancellationToken;

use self::guard::bodies::Body;
pub use self::server::AmqpServer;
use self::session::Session;
use crate::fronts::queue::Format;
use crate::fronts::queue::job::{Depth, Disposition, FailedJob, Failures, Job, Lease};
use crate::fronts::queue::source::{Pending, Source};

/// How long returned messages are collected: quorum queues have them in the order of their return.
const COLLECT: Duration = Duration::from_millis(10);

/// What a source consumes, apart from its server.
pub struct AmqpNames {
    /// The queue's name in the configuration.
    pub name: String,
    /// The queues of the server: one, or those of a transport of Messenger.
    pub queues: Vec<String>,
    pub format: Format,
    /// How many messages may be unacknowledged.
    pub prefetch: u16,
    /// Whether that becomes more while jobs are so short that workers would wait for the server.
    /// Another consumer begins then, so the server may turn to another process meanwhile.
    pub grows: bool,
    /// The longest job that is read, in bytes.
    pub max_payload: u64,
}

/// One queue, or the queues of one transport of Messenger.
pub struct AmqpQueue {
    server: Arc<AmqpServer>,
    names: AmqpNames,
    /// The connection that consumes.
    session: tokio::sync::Mutex<Option<Session>>,
    /// Unacknowledged messages by their tokens, which begin with the number of their session.
    held: Mutex<HashMap<Bytes, Arc<Held>>>,
    /// Messages that are about to be returned.
    returning: Mutex<Vec<(u64, Arc<Held>)>>,
    flushing: tokio::sync::Mutex<()>,
    /// One list of buried messages at a time, because it reserves them.
    listing: tokio::sync::Mutex<()>,
    next_session: AtomicU64,
    /// Makes the ids of messages without one unique.
    random: u64,
}

/// An unacknowledged message.
struct Held {
    delivery: Delivery,
    /// Its body, if that is longer than `max_payload`; `delivery` has a token in its place.
    body: Option<Arc<Body>>,
    /// The queue that it is from.
    queue: String,
}

/// The longest name of a queue: with `surus.delay.` and milliseconds it has at most 255 bytes.
const MAX_NAME: usize = 230;

impl AmqpQueue {
    /// Checks that the queues exist.
    pub async fn open(server: Arc<AmqpServer>, names: AmqpNames) -> anyhow::Result<AmqpQueue> {
        ensure!(!names.queues.is_empty(), "the transport has no queues");
        for queue in &names.queues {
            ensure!(
                queue.len() <= MAX_NAME,
                "the name of the queue {queue} is longer than {MAX_NAME} bytes: Surus needs the \
                 rest of AMQP's 255 for its queues of jobs that wait"
            );
            if server.count(queue).await?.is_none() {
                bail!(
                    "the server {} has no queue {queue}; declare it (`rabbitmqadmin declare queue \
                     name={queue} durable=true`, or by its producer), or correct queue.name",
                    server.name()
                );
            }
        }
        Ok(AmqpQueue {
            server,
            names,
            session: tokio::sync::Mutex::default(),
            held: Mutex::default(),
            returning: Mutex::default(),
            flushing: tokio::sync::Mutex::default(),
            listing: tokio::sync::Mutex::default(),
            next_session: AtomicU64::new(0),
            random: RandomState::new().hash_one("surus"),
        })
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<Bytes, Arc<Held>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the channel that has delivered a message is open.
    fn has(&self, lease: &Lease) -> bool {
        let held = self.held();
        let found = held.get(&lease.token);
        found.is_some_and(|it| !it.delivery.acker.poisoned())
    }

    /// How many messages may be unacknowledged if `most` jobs are wanted.
    fn prefetch(&self, most: usize) -> u16 {
        let AmqpNames {
            prefetch, grows, ..
        } = self.names;
        match grows {
            true => most.try_into().unwrap_or(u16::MAX).max(prefetch),
            false => prefetch,
        }
    }

    async fn connect(&self) -> anyhow::Result<Session> {
        let number = self.next_session.fetch_add(1, Ordering::Relaxed);
        // The server delivers again what earlier channels had.
        self.held().clear();
        Session::open(&self.server, number).await
    }

    /// Waits for messages. Once `stop` is cancelled, returns those that the server has already
    /// pushed and no others.
    async fn take(&self, most: usize, stop: &CancellationToken) -> anyhow::Result<Vec<Job>> {
        let mut open = self.session.lock().await;
        if open.is_none() {
            if stop.is_cancelled() {
                return Ok(Vec::new());
            }
            *open = Some(self.connect().await?);
        }
        let Some(session) = &mut *open else {
            return Ok(Vec::new());
        };
        let taken = async {
            if stop.is_cancelled() {
                return session.cancel().await;
            }
            session.consume(&self.names, self.prefetch(most)).await?;
            tokio::select! {
                taken = session.next(most) => taken,
                () = stop.cancelled() => session.cancel().await,
            }
        };
        match taken.await {
            Ok(taken) => {
                let number = session.number;
                let jobs = taken.into_iter();
                Ok(jobs
                    .map(|(queue, it)| self.job(number, queue, it))
                    .collect())
            }
            Err(error) => {
                *open = None;
                Err(error)
            }
        }
    }

    fn job(&self, session: u64, queue: String, delivery: Delivery) -> Job {
        let AmqpNames {
            format,
            max_payload,
            ..
        } = self.names;
        let tag = delivery.delivery_tag;
        let own = format!("{:x}-{session:x}-{tag:x}", self.random);
        let id = delivery.properties.message_id().as_ref();
        let id = id.map_or(own, |id| id.as_str().to_string());
        let attempts = message::attempts(&delivery.properties, format).saturating_add(1);
        let bodies = &self.server.bodies;
        let body = bodies.claim(&delivery.data);
        let unread = message::unread(&delivery.properties);
        let payload = match unread.is_some() || bodies.is_token(&delivery.data) {
            true => Bytes::new(),
            false => message::payload(&delivery, &queue, format, max_payload),
        };
        let token = Bytes::from(format!("{session}:{tag}"));
        let held = Held {
            delivery,
            body,
            queue,
        };
        self.held().insert(token.clone(), Arc::new(held));
        Job {
            lease: Lease { id, token },
            payload,
            unread,
            attempts,
        }
    }

    /// Requeues a message. The server puts it back where it was, except in a quorum queue without a
    /// delivery limit. Messages that return together keep their order.
    async fn requeue(&self, held: Arc<Held>) -> anyhow::Result<()> {
        let lock = || {
            self.returning
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        lock().push((held.delivery.delivery_tag, held));
        tokio::time::sleep(COLLECT).await;
        let _one_at_a_time = self.flushing.lock().await;
        let mut all = std::mem::take(&mut *lock());
        all.sort_by_key(|(tag, _)| *tag);
        let options = BasicNackOptions {
            requeue: true,
            ..BasicNackOptions::default()
        };
        for (_, held) in all {
            // It fails if the channel is closed: then the server has returned the message itself.
            let _ = held.delivery.acker.nack(options).await;
        }
        Ok(())
    }

    async fn settle_held(
        &self,
        job: &Job,
        held: &Arc<Held>,
        disposition: Disposition,
    ) -> anyhow::Result<()> {
        let Held {
            delivery, queue, ..
        } = &**held;
        let id = &job.lease.id;
        // A worker of RoadRunner may have changed the message.
        let body = match self.names.format {
            Format::RoadRunner if !job.payload.is_empty() => &job.payload[..],
            _ => &delivery.data[..],
        };
        let tried = |attempts| {
            let format = self.names.format;
            message::tried(&delivery.properties, id, format, attempts)
        };
        match disposition {
            Disposition::Done => {}
            // Messenger counts tries itself.
            Disposition::Return => return self.requeue(held.clone()).await,
            Disposition::Interrupt if self.names.format == Format::Messenger => {
                return self.requeue(held.clone()).await;
            }
            Disposition::Interrupt | Disposition::Release(Duration::ZERO) => {
                let tried = tried(job.attempts);
                self.server.publish(queue, tried, body).await?;
            }
            Disposition::Release(pause) => {
                let tried = tried(job.attempts);
                let later = self.server.publish_later(queue, tried, body, pause);
                later.await?;
            }
            Disposition::Postpone(pause) => {
                let tried = tried(job.attempts.saturating_sub(1));
                let later = self.server.publish_later(queue, tried, body, pause);
                later.await?;
            }
            Disposition::Bury(why) => self.bury(job, held, &why).await?,
        }
        // It fails if the channel is closed: then the server delivers the message again.
        let _ = delivery.acker.ack(BasicAckOptions::default()).await;
        Ok(())
    }
}

impl Source for AmqpQueue {
    fn receive<'a>(&'a self, most: usize, stop: &'a CancellationToken) -> Pending<'a, Vec<Job>> {
        Box::pin(self.take(most, stop))
    }

    fn extend(&self, leases: Vec<Lease>) -> Pending<'_, Vec<Lease>> {
        Box::pin(async move {
            let lost = leases.into_iter().filter(|lease| !self.has(lease));
            Ok(lost.collect())
        })
    }

    fn is_held(&self, lease: &Lease) -> bool {
        self.has(lease)
    }

    fn settle(&self, job: Job, disposition: Disposition) -> Pending<'_, ()> {
        Box::pin(async move {
            let held = self.held().get(&job.lease.token).cloned();
            let held = held.filter(|held| held.delivery.acker.usable());
            if let Some(held) = held {
                self.settle_held(&job, &held, disposition).await?;
            }
            self.held().remove(&job.lease.token);
            Ok(())
        })
    }

    fn depth(&self) -> Pending<'_, Depth> {
        Box::pin(async move {
            let mut waiting = 0;
            for queue in &self.names.queues {
                let count = self.server.count(queue).await?;
                waiting += count.with_context(|| format!("the queue {queue} does not exist"))?;
            }
            Ok(Depth {
                waiting,
                delayed: 0,
                reserved: self.held().len() as u64,
                oldest: None,
            })
        })
    }

    fn failures(&self, requested: Failures) -> Pending<'_, Vec<FailedJob>> {
        Box::pin(async move { self.buried(&requested).await })
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            if let Some(session) = self.session.lock().await.take() {
                session.close().await;
            }
            self.server.close().await;
            Ok(())
        })
    }
}

//! The connection that consumes, until it fails.

use std::collections::VecDeque;
use std::pin::Pin;

use anyhow::{Context, bail};
use futures_util::stream::{SelectAll, select_all};
use futures_util::{FutureExt, Stream, StreamExt, TryStreamExt};
use lapin::message::Delivery;
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Connection};

use super::AmqpNames;
use super::server::{self, AmqpServer, answer, message};

/// A message, or the error of its channel, with the queue that it is from.
type Pushed = (String, Result<Delivery, lapin::Error>);
type Consumer = Pin<Box<dyn Stream<Item = Pushed> + Send>>;

pub struct Session {
    /// Distinguishes it from others of the source.
    pub number: u64,
    connection: Connection,
    channel: Channel,
    /// The names of its consumers, by which they are cancelled.
    tags: Vec<ShortString>,
    /// How many messages of each consumer may be unacknowledged.
    prefetch: u16,
    /// What earlier consumers have got.
    early: VecDeque<(String, Delivery)>,
    pushed: SelectAll<Consumer>,
    /// An error that has followed messages.
    error: Option<lapin::Error>,
}

impl Session {
    pub async fn open(server: &AmqpServer, number: u64) -> anyhow::Result<Session> {
        let connection = server.connect().await?;
        let channel = answer(connection.create_channel()).await?;
        Ok(Session {
            number,
            connection,
            channel,
            tags: Vec::new(),
            prefetch: 0,
            early: VecDeque::new(),
            pushed: SelectAll::new(),
            error: None,
        })
    }

    /// Asks the server to push messages, unless it does already with about this prefetch count. A
    /// consumer keeps its count, so another one replaces it.
    pub async fn consume(&mut self, names: &AmqpNames, prefetch: u16) -> anyhow::Result<()> {
        let is_near = prefetch / 2 <= self.prefetch && self.prefetch / 4 <= prefetch;
        if !self.tags.is_empty() && is_near {
            return Ok(());
        }
        self.early = self.end_consumers(true).await?.into();
        self.prefetch = prefetch;
        let qos = BasicQosOptions::default();
        answer(self.channel.basic_qos(prefetch, qos)).await?;
        let mut consumers: Vec<Consumer> = Vec::new();
        for queue in &names.queues {
            let (options, none) = (BasicConsumeOptions::default(), FieldTable::default());
            let name = server::name(queue)?;
            let consuming = self.channel.basic_consume(name, "".into(), options, none);
            let consumer = answer(consuming).await;
            let consumer = consumer.with_context(|| format!("cannot consume the queue {queue}"))?;
            self.tags.push(consumer.tag());
            let queue = queue.clone();
            consumers.push(Box::pin(consumer.map(move |it| (queue.clone(), it))));
        }
        self.pushed = select_all(consumers);
        Ok(())
    }

    /// Waits for a message. Returns up to `most` that are there then. Dropping the future loses
    /// none.
    pub async fn next(&mut self, most: usize) -> anyhow::Result<Vec<(String, Delivery)>> {
        if !self.early.is_empty() {
            let most = most.min(self.early.len());
            return Ok(self.early.drain(..most).collect());
        }
        if let Some(error) = self.error.take() {
            return Err(error.into());
        }
        let Some(first) = self.pushed.next().await else {
            bail!("the server has ended the consumer; its queue may have been deleted");
        };
        let mut taken = vec![(first.0, first.1?)];
        while taken.len() < most
            && let Some(Some((queue, more))) = self.pushed.next().now_or_never()
        {
            match more {
                Ok(more) => taken.push((queue, more)),
                Err(error) => {
                    self.error = Some(error);
                    break;
                }
            }
        }
        Ok(taken)
    }

    /// Has the server push no more messages. Returns those that it has pushed already.
    pub async fn cancel(&mut self) -> anyhow::Result<Vec<(String, Delivery)>> {
        self.end_consumers(false).await
    }

    /// `is_patient`: a long message may arrive first.
    async fn end_consumers(&mut self, is_patient: bool) -> anyhow::Result<Vec<(String, Delivery)>> {
        for tag in std::mem::take(&mut self.tags) {
            let cancelled = self
                .channel
                .basic_cancel(tag, BasicCancelOptions::default());
            match is_patient {
                true => message(cancelled).await?,
                false => answer(cancelled).await?,
            }
        }
        // They end once they are cancelled.
        let pushed = std::mem::take(&mut self.pushed);
        let pushed = pushed.map(|(queue, it)| it.map(|it| (queue, it)));
        let pushed: Vec<_> = match is_patient {
            true => message(pushed.try_collect()).await?,
            false => answer(pushed.try_collect()).await?,
        };
        Ok(self.early.drain(..).chain(pushed).collect())
    }

    /// Ends the connection after all that it still has to send. The server returns what is not
    /// acknowledged.
    pub async fn close(self) {
        server::close(&self.connection).await;
    }
}

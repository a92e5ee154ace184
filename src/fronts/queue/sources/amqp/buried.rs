//! Buried messages, which Surus keeps in the queue `NAME.failed` with their reasons in a header.

use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use lapin::options::{BasicAckOptions, BasicGetOptions};
use lapin::types::FieldTable;

use super::{AmqpQueue, Held, message, server};
use crate::fronts::queue::Format;
use crate::fronts::queue::job::{FailedJob, Failures, Job};

/// How many buried messages of a queue are looked through.
const MAX_SHOWN: usize = 1000;

fn failed(queue: &str) -> String {
    format!("{queue}.failed")
}

impl AmqpQueue {
    /// Publishes a message to the queue of buried ones. An operator may have declared it with
    /// arguments of its own.
    pub(super) async fn bury(&self, job: &Job, held: &Held, why: &str) -> anyhow::Result<()> {
        let failed = failed(&held.queue);
        if let Some(body) = &held.body {
            body.is_kept().map_err(|why| anyhow!("{why}"))?;
        }
        if self.server.count(&failed).await?.is_none() {
            self.server.declare(&failed, FieldTable::default()).await?;
        }
        let (from, id) = (&held.delivery.properties, &job.lease.id);
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let properties = message::buried(from, id, why, now.as_secs());
        let body = &held.delivery.data;
        self.server.publish(&failed, properties, body).await
    }

    /// Lists the buried messages, or retries or forgets one. Returns those concerned.
    pub(super) async fn buried(&self, requested: &Failures) -> anyhow::Result<Vec<FailedJob>> {
        let _one_at_a_time = self.listing.lock().await;
        let mut found = Vec::new();
        for queue in &self.names.queues {
            if self.server.count(&failed(queue)).await?.is_some() {
                found.extend(self.buried_of(queue, requested).await?);
            }
        }
        Ok(found)
    }

    async fn buried_of(&self, queue: &str, requested: &Failures) -> anyhow::Result<Vec<FailedJob>> {
        let name = failed(queue);
        let channel = self.server.channel().await?;
        let mut found = Vec::new();
        for _ in 0..MAX_SHOWN {
            let get = channel.basic_get(server::name(&name)?, BasicGetOptions::default());
            let message = match server::message(get).await {
                // An operator has deleted it since it was counted.
                Err(error) if server::is_missing(&error) => None,
                message => message?,
            };
            let Some(message) = message else {
                break;
            };
            // Forgets a body that is longer than work.max_payload after this turn.
            let _body = self.server.bodies.claim(&message.data);
            let id = message.properties.message_id().as_ref();
            let id = id.map_or("", |id| id.as_str());
            if requested.id().is_some_and(|requested| requested != id) {
                continue;
            }
            if let Failures::Retry(_) = requested {
                let fresh = message::fresh(&message.properties, id);
                self.server.publish(queue, fresh, &message.data).await?;
            }
            if requested.is_change() {
                message.acker.ack(BasicAckOptions::default()).await?;
            }
            let (why, at) = message::burial(&message.properties);
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(at.min(1 << 37));
            let payload = match self.names.format {
                Format::Laravel => &message.data[..],
                _ => b"",
            };
            found.push(FailedJob::new(
                id.into(),
                &self.names.name,
                payload,
                why.as_deref().unwrap_or("another program has put it here"),
                httpdate::fmt_http_date(at),
            ));
            if requested.id().is_some() {
                break;
            }
        }
        // The others go back to where they were.
        let _ = channel.close(200, "done".into()).await;
        Ok(found)
    }
}

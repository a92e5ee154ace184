//! Who has events done that are not HTTP: one call for each, or one for each of its records.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::batch::{self, Batches, PartialBatch, Record};
use super::fault::Fault;
use super::payload::{fitting, result, take};
use super::task::{Task, origin, request};
use crate::engine::Engine;
use crate::event::{Event, Failure, Script};

/// The PHP that has events done which are not HTTP.
pub struct Handler {
    pub engine: Arc<dyn Engine>,
    pub script: Script,
    /// Does records one by one; none where the handler gets them all at once.
    pub batches: Option<Batches>,
    /// Does Lambda hear which records have failed, when the answer names them?
    pub partial_batch: PartialBatch,
}

impl Handler {
    /// Has an event done. `next_event` is for the records that become events of their own.
    pub async fn answer(
        &self,
        payload: &Bytes,
        task: &Task<'_>,
        next_event: &AtomicU64,
    ) -> Result<Bytes, Fault> {
        let Some((batches, batch)) = self
            .batches
            .as_ref()
            .and_then(|batches| Some((batches, batch::read(payload)?)))
        else {
            let event = task.event(request(payload.clone()), self.script.clone(), origin());
            let answered = self.ask(event).await;
            let answer = answered.unwrap_or_else(|failure| Err(Fault::of(&failure)))?;
            // Lambda would take what nobody tells it of for done.
            if self.partial_batch == PartialBatch::Off {
                batch::succeeded(&answer).map_err(|failure| Fault::of(&failure))?;
            }
            return Ok(answer);
        };
        let handle = |record: Record| async move {
            let id = next_event.fetch_add(1, Ordering::Relaxed);
            task.named.also(id);
            let task = Task {
                id,
                deadline: record.deadline,
                said_deadline: record.deadline,
                trace: record.trace.as_deref().or(task.trace),
                ..*task
            };
            let event = task.event(request(record.event), self.script.clone(), origin());
            self.ask(event).await?.map_err(Failure::from)
        };
        // It keeps the reserve itself.
        let done = batches.run(&batch, task.invocation.deadline, handle).await;
        done.map_err(|failure| Fault::of(&failure))
    }

    async fn ask(&self, event: Event) -> Result<Result<Bytes, Fault>, Failure> {
        let (head, body) = self.engine.handle(Box::new(event)).await?.into_parts();
        let body = take(body).await;
        Ok(body.and_then(|body| fitting(result(&head, body)?)))
    }
}

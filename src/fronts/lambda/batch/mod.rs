//! The records of one event, each had done by a worker of its own.
//!
//! Lambda hands the records of a queue or stream over as one event. [`read`] finds them, [`Batches::run`] has a worker do each of them,
//! as an event with this one record, and answers which of them have to come again (`batchItemFailures`). Whatever happens to a record
//! happens to it alone; only those that must stay behind it, in the order of their source, wait for it and share its end.

mod read;
mod report;
mod schedule;
mod suspects;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::{Deserialize, Serialize};
use tracing::{error, warn};

pub use read::{Batch, read};
pub use report::succeeded;

use super::Settings;
use crate::event::Failure;
use schedule::{Rule, Schedule};
use suspects::Suspects;

/// How the records of an event reach the handler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// All in one call, as Lambda sends them. The default, because the other tells Lambda what has failed and is heard only where the
    /// event source mapping has `ReportBatchItemFailures`: elsewhere what failed would be deleted.
    #[default]
    Whole,
    /// Each in a call of its own, on as many workers as there are.
    Record,
}

/// What a message of a FIFO queue that fails takes with it, unrun.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FifoFailure {
    /// The later ones of its group.
    #[default]
    Group,
    /// None: the later ones of its group go on before it has succeeded.
    Message,
    /// All that have not begun.
    Batch,
}

/// Does Lambda hear which records have failed?
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartialBatch {
    /// In `batchItemFailures`.
    #[default]
    On,
    /// If one has failed, the event fails, and all records come again.
    Off,
}

/// One record on its way to a worker.
#[derive(Debug)]
pub struct Record {
    /// The event as Lambda sent it, with this record only.
    pub event: Bytes,
    /// The source's name for it, for log lines.
    pub id: String,
    /// The X-Ray trace that its sender has begun.
    pub trace: Option<String>,
    /// After this instant nobody waits for the answer.
    pub deadline: Instant,
}

/// Has batches done. One for as long as the process lives, as it remembers which records have cost workers.
#[derive(Debug)]
pub struct Batches {
    workers: usize,
    record_timeout: Option<Duration>,
    reserve: Duration,
    fifo_failure: FifoFailure,
    partial_batch: PartialBatch,
    suspects: Suspects,
}

impl Batches {
    pub fn new(settings: &Settings, workers: usize) -> Batches {
        Batches {
            workers: workers.max(1),
            record_timeout: settings.record_timeout.map(|time| time.0),
            reserve: settings.reserve.0,
            fifo_failure: settings.fifo_failure,
            partial_batch: settings.partial_batch,
            suspects: Suspects::default(),
        }
    }

    /// Has `handler` do every record and returns the answer for Lambda, before the deadline.
    ///
    /// `handler` has one record done; [`Failure::Died`] says that its worker did not survive it. It keeps to the record's deadline, and is
    /// dropped when it does not. The answer is an error only where Lambda is not to hear of single records. `event` is our id of the event
    /// that the records came as: others may be in flight, and the log says of which one it tells.
    pub async fn run<F, Done>(
        &self,
        batch: &Batch,
        event: u64,
        deadline: Instant,
        handler: F,
    ) -> Result<Bytes, Failure>
    where
        F: Fn(Record) -> Done,
        Done: Future<Output = Result<Bytes, Failure>>,
    {
        // What is left after the cut ends the workers that are late, and sends the answer.
        let cut = deadline.checked_sub(self.reserve).unwrap_or(deadline);
        let began = now();
        let mut schedule = Schedule::new(
            batch.records.iter().map(|record| record.partition),
            self.rule(batch),
            self.workers,
            batch.start(),
            |index| self.suspects.is_suspect(batch.id(index)),
        );
        let mut running = FuturesUnordered::new();
        let mut first_failure = None;
        let mut is_cut = false;
        loop {
            loop {
                let now = now();
                if now >= cut {
                    is_cut = true;
                    schedule.cut();
                }
                let Some(index) = schedule.next() else { break };
                let own = self.record_timeout.and_then(|own| now.checked_add(own));
                let until = own.map_or(cut, |own| own.min(cut));
                // One that began late and was cut has been unlucky.
                let has_time = until < cut || (until - now) * 2 >= cut - began;
                let dropped = until + self.reserve / 2;
                let work = handler(batch.record(index, until));
                running.push(async move {
                    let done = tokio::time::timeout_at(dropped.into(), work).await;
                    (index, has_time, done.unwrap_or(Err(Failure::TimedOut)))
                });
            }
            let Some((index, has_time, result)) = running.next().await else {
                break;
            };
            let id = batch.id(index);
            match result.and_then(|answer| succeeded(&answer)) {
                Ok(()) => {
                    self.suspects.forget(id);
                    schedule.ended(index, true);
                }
                Err(failure) => {
                    let source = batch.source.name();
                    let costs_worker = match &failure {
                        Failure::Died(_) => true,
                        Failure::TimedOut => has_time,
                        _ => false,
                    };
                    let how = match &failure {
                        Failure::Died(how) => Some(&how[..]),
                        _ => None,
                    };
                    if costs_worker {
                        let workers = self.suspects.note(id);
                        error!(
                            event,
                            record = id,
                            source,
                            workers,
                            how,
                            "a record failed: {failure}"
                        );
                    } else {
                        warn!(event, record = id, source, "a record failed: {failure}");
                    }
                    first_failure.get_or_insert((index, failure));
                    schedule.ended(index, false);
                }
            }
        }
        let failed = schedule.not_done();
        let unrun = schedule.not_begun();
        if unrun > 0 {
            let why = match &first_failure {
                Some((index, _)) if !is_cut => format!("{} failed", batch.id(*index)),
                _ => "no time was left".into(),
            };
            warn!(
                event,
                source = batch.source.name(),
                unrun,
                "records have not been begun, and come again: {why}"
            );
        }
        if self.partial_batch == PartialBatch::Off && !failed.is_empty() {
            let why = match first_failure {
                Some((index, failure)) => format!("the first, {}: {failure}", batch.id(index)),
                None => "there was no time for them".into(),
            };
            let (failed, all) = (failed.len(), batch.len());
            return Err(Failure::Thrown(format!(
                "{failed} of {all} records have not been done; {why}"
            )));
        }
        Ok(report::answer(batch, &failed))
    }

    fn rule(&self, batch: &Batch) -> Rule {
        match batch.source {
            read::Source::Sqs { fifo: false } => Rule::Alone,
            read::Source::Sqs { fifo: true } => match self.fifo_failure {
                FifoFailure::Group => Rule::Partition,
                FifoFailure::Message => Rule::Alone,
                FifoFailure::Batch => Rule::All,
            },
            read::Source::Kafka => Rule::Partition,
            read::Source::Kinesis | read::Source::DynamoDb => Rule::Checkpoint,
        }
    }
}

/// By the runtime's clock, which tests can stop.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

//! Distributes the records of one event to several workers.
//!
//! Lambda delivers the records of a queue or stream as one event. [`read`] finds them.
//! [`Batches::run`] gives each record to a worker, as an event with this record only, and reports
//! which must be delivered again (`batchItemFailures`). A record's failure affects only the records
//! that its source orders after it.

mod read;
mod report;
mod schedule;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::{Deserialize, Serialize};
use tracing::{error, warn};

pub use read::{RecordBatch, read};
pub use report::succeeded;

use super::Settings;
use crate::event::Failure;
use crate::fronts::records::now;
use crate::fronts::records::suspects::Suspects;
use schedule::{BatchSchedule, Rule};

/// How the records of an event reach the handler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BatchMode {
    /// All in one call, as Lambda sends them. The default, because `record` reports failures in
    /// `batchItemFailures`. Lambda reads those only if the event source mapping has
    /// `ReportBatchItemFailures`; otherwise it would delete failed records.
    #[default]
    Whole,
    /// Each in a call of its own, on all workers.
    Record,
}

/// Which messages a failed message of a FIFO queue stops from running.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FifoFailure {
    /// The later ones of its group.
    #[default]
    Group,
    /// None: later messages of its group run before it has succeeded.
    Message,
    /// All that have not begun.
    Batch,
}

/// Whether Lambda is told which records failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReportBatchItemFailures {
    /// Yes, in `batchItemFailures`.
    #[default]
    On,
    /// No: if one fails, the event fails and all records are delivered again.
    Off,
}

/// One record for a worker.
#[derive(Debug)]
pub struct Record {
    /// The event as Lambda sent it, with this record only.
    pub event: Bytes,
    /// The source's id of the record, for log lines.
    pub id: String,
    /// The X-Ray trace that the sender began.
    pub trace: Option<String>,
    /// When the result is no longer awaited.
    pub deadline: Instant,
}

/// Runs batches. It lives as long as the process, because it remembers which records have killed or
/// blocked workers.
#[derive(Debug)]
pub struct Batches {
    workers: usize,
    record_timeout: Option<Duration>,
    deadline_margin: Duration,
    fifo_failure: FifoFailure,
    report_batch_item_failures: ReportBatchItemFailures,
    suspects: Suspects,
}

impl Batches {
    pub fn new(settings: &Settings, workers: usize) -> Batches {
        Batches {
            workers: workers.max(1),
            record_timeout: settings.record_timeout.map(|time| time.0),
            deadline_margin: settings.deadline_margin.0,
            fifo_failure: settings.fifo_failure,
            report_batch_item_failures: settings.report_batch_item_failures,
            suspects: Suspects::default(),
        }
    }

    /// Has `handler` run every record and returns the response for Lambda, before the deadline.
    ///
    /// `handler` runs one record; [`Failure::WorkerCrashed`] means that the record crashed its
    /// worker. It keeps the record's deadline and is dropped otherwise. The result is an error only
    /// if Lambda is not told about single records. `event` is Surus's id of the whole event, for
    /// log lines.
    pub async fn run<F, Done>(
        &self,
        batch: &RecordBatch,
        event: u64,
        deadline: Instant,
        handler: F,
    ) -> Result<Bytes, Failure>
    where
        F: Fn(Record) -> Done,
        Done: Future<Output = Result<Bytes, Failure>>,
    {
        // The time after the cut serves to end late workers and to send the response.
        let cut = deadline
            .checked_sub(self.deadline_margin)
            .unwrap_or(deadline);
        let began = now();
        let mut schedule = BatchSchedule::new(
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
                // A record that began late and was cut is not to blame.
                let has_time = until < cut || (until - now) * 2 >= cut - began;
                let dropped = until + self.deadline_margin / 2;
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
                    let exit = match &failure {
                        Failure::WorkerCrashed(exit) => Some(&exit[..]),
                        _ => None,
                    };
                    if let Some(workers) = self.suspects.judge(id, &failure, has_time) {
                        error!(
                            request_id = event,
                            record = id,
                            source,
                            workers,
                            exit,
                            error = %failure,
                            "record failed"
                        );
                    } else {
                        warn!(
                            request_id = event,
                            record = id,
                            source,
                            error = %failure,
                            "record failed"
                        );
                    }
                    first_failure.get_or_insert((index, failure));
                    schedule.ended(index, false);
                }
            }
        }
        let failed = schedule.not_done();
        let unrun = schedule.not_begun();
        if unrun > 0 {
            let reason = match &first_failure {
                Some((index, _)) if !is_cut => format!("{} failed", batch.id(*index)),
                _ => "no time left".into(),
            };
            warn!(
                request_id = event,
                source = batch.source.name(),
                unrun,
                reason,
                "records not started; Lambda sends them again"
            );
        }
        if self.report_batch_item_failures == ReportBatchItemFailures::Off && !failed.is_empty() {
            let why = match first_failure {
                Some((index, failure)) => format!("the first, {}: {failure}", batch.id(index)),
                None => "no time left".into(),
            };
            let (failed, all) = (failed.len(), batch.len());
            return Err(Failure::Thrown(format!(
                "{failed} of {all} records failed or did not run; {why}"
            )));
        }
        Ok(report::answer(batch, &failed))
    }

    fn rule(&self, batch: &RecordBatch) -> Rule {
        match batch.source {
            read::RecordSource::Sqs { fifo: false } => Rule::Alone,
            read::RecordSource::Sqs { fifo: true } => match self.fifo_failure {
                FifoFailure::Group => Rule::Partition,
                FifoFailure::Message => Rule::Alone,
                FifoFailure::Batch => Rule::All,
            },
            read::RecordSource::Kafka => Rule::Partition,
            read::RecordSource::Kinesis | read::RecordSource::DynamoDb => Rule::Checkpoint,
        }
    }
}

//! Writes jobs as requests for PHP, and reads from PHP's responses how to settle them.

mod decision;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use self::decision::Decision;
use super::backoff;
use super::command::Program;
use super::job::{Disposition, Job};
use super::messenger;
use super::roadrunner::{self, TaskAnswer, TaskMessage};
use super::runner::{JobAnswer, JobProgram, Runner};
use super::settings::{Format, Queue};
use crate::event::Failure;
use crate::fronts::records::now;
use crate::fronts::records::suspects::Suspects;
use crate::observe::bounded::bounded;
use crate::units::Time;

/// How a run has ended.
#[derive(Debug, PartialEq)]
pub struct Verdict {
    pub disposition: Disposition,
    pub outcome: Outcome,
}

#[derive(Debug, PartialEq)]
pub enum Outcome {
    Done,
    /// The job has asked to run again.
    Released,
    /// It has failed and runs again.
    Retried(String),
    /// It has failed and does not run again.
    Failed(String),
    /// No worker could take it.
    Busy(String),
    /// It has not run: its application runs no jobs, or none of this queue, at present.
    /// Messenger's rate limiters do so, too, and say for how long.
    Refused(Option<Duration>),
}

impl Outcome {
    /// Its name in metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Released => "released",
            Outcome::Retried(_) => "retried",
            Outcome::Failed(_) => "failed",
            Outcome::Busy(_) => "busy",
            Outcome::Refused(_) => "refused",
        }
    }
}

/// Runs the jobs of one queue.
pub struct Jobs<'a> {
    pub runs: &'a JobProgram,
    pub queue: &'a Queue,
    /// The name of Laravel's connection.
    pub connection: &'a str,
    pub suspects: &'a Suspects,
    pub max_losses: usize,
    /// How often the process of the queues has crashed while the job was the only suspect.
    pub crashes: u32,
}

/// How long PHP may take to record the outcome of a job that has lost its worker.
const RECORD: Duration = Duration::from_secs(30);
/// The time limit of jobs that have none, for Laravel a timeout of 0.
const NO_LIMIT: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long a job rests that no worker could take.
const BUSY: Duration = Duration::from_secs(1);
/// How many bytes of a reason are kept with a buried job. Columns may hold 64 KiB.
const LONGEST_REASON: usize = 16 << 10;

impl Jobs<'_> {
    /// Runs a job. A worker of RoadRunner may change the message of one that runs again.
    pub async fn run(&self, job: &mut Job) -> Verdict {
        let is_unread = job.payload.is_empty() && !matches!(self.runs, JobProgram::Command(_));
        if is_unread {
            let why = "it is empty, or longer than work.max_payload, and was not read";
            return Verdict::buried(job.unread.clone().unwrap_or_else(|| why.into()));
        }
        // Frameworks record why a job has failed, unless even that kills the process.
        let is_framework = self.queue.format().is_frameworks();
        if let Some(why) = self.poison_by_crashes()
            && !(is_framework && self.crashes as usize == self.max_losses)
        {
            return Verdict::buried(why);
        }
        match (self.runs, self.queue.format()) {
            (JobProgram::Command(program), _) => self.command(job, program).await,
            (JobProgram::Php(runner), Format::Plain) => self.plain(job, runner).await,
            (JobProgram::Php(runner), Format::Laravel | Format::Messenger) => {
                self.application(job, runner).await
            }
            (JobProgram::Php(runner), Format::RoadRunner) => self.roadrunner(job, runner).await,
        }
    }

    async fn roadrunner(&self, job: &mut Job, runner: &Runner) -> Verdict {
        let payload = job.payload.clone();
        let message = TaskMessage::read(&payload);
        let context = message.context(self.queue, &job.lease.id);
        let timeout = self.queue.timeout.0;
        match runner.ask_worker(context, message.body(), timeout).await {
            Ok(answer) => match TaskAnswer::read(&answer) {
                Ok(answer) => {
                    self.suspects.forget(&self.name(job));
                    answered(job, &message, answer)
                }
                Err(why) => self.failed(job, why),
            },
            Err(failure) => self.failed_by(job, &failure),
        }
    }

    async fn command(&self, job: &Job, program: &Program) -> Verdict {
        let timeout = self.queue.timeout.0;
        match program.run(&self.queue.name, timeout).await {
            Ok(()) => Verdict::done(),
            Err(why) => self.failed(job, why),
        }
    }

    async fn plain(&self, job: &Job, runner: &Runner) -> Verdict {
        let id = &job.lease.id;
        let timeout = self.queue.timeout.0;
        match runner.run_job(job.payload.clone(), id, timeout).await {
            Ok(JobAnswer::Result(_)) => {
                self.suspects.forget(&self.name(job));
                Verdict::done()
            }
            Ok(JobAnswer::Error { kind, message }) => {
                let losses = self.ended_php(job, &kind);
                self.failed_with_losses(job, message, losses)
            }
            Err(failure) => self.failed_by(job, &failure),
        }
    }

    fn failed_by(&self, job: &Job, failure: &Failure) -> Verdict {
        match failure.is_busy() {
            true => Verdict::busy(failure),
            false => {
                let why = reason(failure, self.queue.timeout.0);
                self.failed_with_losses(job, why, self.losses(job, failure))
            }
        }
    }

    fn failed_with_losses(&self, job: &Job, why: String, losses: Option<u32>) -> Verdict {
        match self.poison_by_losses(losses, &why) {
            Some(why) => Verdict::buried(why),
            None => self.failed(job, why),
        }
    }

    /// How a job without a framework is settled that has failed.
    fn failed(&self, job: &Job, why: String) -> Verdict {
        let tries = self.queue.tries.unwrap_or(3);
        if tries > 0 && job.attempts >= tries {
            return Verdict::buried(format!("try {} of {tries} failed: {why}", job.attempts));
        }
        let own = self.queue.backoff.map(|pause| pause.0);
        let pause = own.unwrap_or_else(|| backoff::before_try(job.attempts));
        Verdict::released(why, pause)
    }

    /// Runs a job in the application, which decides how to settle it.
    async fn application(&self, job: &Job, runner: &Runner) -> Verdict {
        let Ok(payload) = std::str::from_utf8(&job.payload) else {
            return Verdict::buried("the payload is not UTF-8".into());
        };
        let options = PayloadOptions::read(payload);
        let timeout = match options.timeout() {
            None => self.queue.timeout.0,
            Some(0) => NO_LIMIT,
            Some(seconds) => Duration::from_secs(seconds).min(NO_LIMIT),
        };
        if let Some(why) = self.poison_by_crashes() {
            return self
                .lost(job, runner, payload, &why, Some(why.clone()), None)
                .await;
        }
        let is_laravel = self.queue.format() == Format::Laravel;
        let (queue, began) = (&self.queue.name, now());
        let unpaused = is_laravel && runner.is_unpaused(queue);
        let envelope = Envelope {
            unpaused,
            ..self.envelope(job, payload, timeout)
        };
        let (why, losses, timed_out) = match pass(runner, &envelope, timeout).await {
            Ok(Ok(decision)) => {
                if !decision.refused {
                    self.suspects.forget(&self.name(job));
                    if is_laravel && !unpaused {
                        runner.note_unpaused(queue, began);
                    }
                }
                return decision.verdict(None);
            }
            // Frameworks catch exceptions: only a call of exit() or a fatal error ends here.
            Ok(Err(message)) => (message, Some(self.suspects.note(&self.name(job))), None),
            Err(failure) if failure.is_busy() => return Verdict::busy(&failure),
            Err(failure) => {
                let losses = self.losses(job, &failure);
                let timed_out = matches!(failure, Failure::TimedOut).then_some(timeout);
                (reason(&failure, timeout), losses, timed_out)
            }
        };
        let poison = self.poison_by_losses(losses, &why);
        self.lost(job, runner, payload, &why, poison, timed_out)
            .await
    }

    /// Lets the framework decide about a job whose process has ended. `poison`: why it must fail.
    async fn lost(
        &self,
        job: &Job,
        runner: &Runner,
        payload: &str,
        why: &str,
        poison: Option<String>,
        timed_out: Option<Duration>,
    ) -> Verdict {
        let lost = Lost {
            why: poison.as_deref().unwrap_or(why),
            timed_out: timed_out.map(|timeout| timeout.as_secs().max(1)),
            fail: poison.is_some(),
        };
        let envelope = Envelope {
            lost: Some(lost),
            ..self.envelope(job, payload, RECORD)
        };
        match pass(runner, &envelope, RECORD).await {
            Ok(Ok(decision)) => decision.verdict(Some(poison.unwrap_or_else(|| why.into()))),
            // Even that has failed: its class may crash PHP when it is unserialized.
            _ => match poison {
                Some(why) => Verdict::buried(why),
                None => Verdict::released(why.into(), backoff::before_try(job.attempts)),
            },
        }
    }

    /// Why a job must not run any more, if the process of the queues has crashed too often with it.
    fn poison_by_crashes(&self) -> Option<String> {
        let is_poison = self.crashes as usize >= self.max_losses;
        is_poison.then(|| {
            format!(
                "it was the only suspect {} times when the process of the queues was killed \
                 (work.max_losses)",
                self.crashes
            )
        })
    }

    fn envelope<'a>(&'a self, job: &'a Job, payload: &'a str, timeout: Duration) -> Envelope<'a> {
        Envelope {
            connection: self.connection,
            queue: &self.queue.name,
            id: &job.lease.id,
            attempts: job.attempts,
            payload,
            tries: self.queue.tries,
            backoff: self.queue.backoff.map(|pause| pause.0.as_secs()),
            timeout: timeout.as_secs(),
            unpaused: false,
            lost: None,
        }
    }

    fn losses(&self, job: &Job, failure: &Failure) -> Option<u32> {
        self.suspects.judge(&self.name(job), failure, true)
    }

    /// `exit()` and fatal errors end a PHP process elsewhere, so they count as a crash.
    fn ended_php(&self, job: &Job, kind: &str) -> Option<u32> {
        let has_ended = ["Exit", "FatalError"].contains(&kind);
        has_ended.then(|| self.suspects.note(&self.name(job)))
    }

    /// Why a job must not run any more, if it has crashed too many workers.
    fn poison_by_losses(&self, losses: Option<u32>, why: &str) -> Option<String> {
        let losses = losses? as usize;
        let is_poison = losses >= self.max_losses;
        is_poison.then(|| format!("it crashed {losses} workers (work.max_losses): {why}"))
    }

    fn name(&self, job: &Job) -> String {
        name(self.queue, job)
    }
}

/// Why a run has no result. `limit` is its time limit.
fn reason(failure: &Failure, limit: Duration) -> String {
    match failure {
        Failure::TimedOut => format!("{failure}: its time limit is {}", Time(limit)),
        _ => failure.to_string(),
    }
}

/// Passes a job to the framework's adapter. The inner error is the message of a PHP that has ended.
async fn pass(
    runner: &Runner,
    envelope: &Envelope<'_>,
    timeout: Duration,
) -> Result<Result<Decision, String>, Failure> {
    let json = serde_json::to_vec(envelope).unwrap_or_default();
    Ok(match runner.ask(json.into(), envelope.id, timeout).await? {
        JobAnswer::Error { message, .. } => Err(message),
        JobAnswer::Result(json) => serde_json::from_slice(&json)
            .map_err(|error| format!("cannot parse the adapter's result: {error}")),
    })
}

/// How a job is settled that a worker of RoadRunner has answered. Its message changes if the worker
/// has changed headers.
fn answered(job: &mut Job, message: &TaskMessage<'_>, answer: TaskAnswer) -> Verdict {
    match answer {
        TaskAnswer::Done => Verdict::done(),
        TaskAnswer::Failed(why) => Verdict::buried(why),
        TaskAnswer::Requeue {
            why,
            pause,
            headers,
        } => {
            if let Some(changed) = message.with_headers(headers, &job.lease.id) {
                job.payload = changed;
            }
            Verdict::released(why, pause)
        }
    }
}

/// The name by which lost workers are counted. A job keeps it when it is released, although
/// frameworks write released jobs as new ones.
pub fn name(queue: &Queue, job: &Job) -> String {
    let id = lasting_id(queue, &job.payload);
    format!("{}/{}", queue.name, id.as_deref().unwrap_or(&job.lease.id))
}

/// The id that a framework's job keeps whatever broker and process have it.
pub fn lasting_id(queue: &Queue, payload: &[u8]) -> Option<String> {
    match queue.format() {
        Format::Messenger => Some(messenger::fingerprint(payload)),
        Format::RoadRunner => roadrunner::id(payload),
        Format::Laravel | Format::Plain => {
            let options = std::str::from_utf8(payload).map(PayloadOptions::read);
            options.ok()?.uuid.as_str().map(String::from)
        }
    }
}

/// What Laravel's payload says to queues. Its values have the types of the job's properties.
struct PayloadOptions {
    timeout: Value,
    uuid: Value,
    class: Value,
}

impl PayloadOptions {
    /// As PHP does: the last one of equal keys counts, and numbers may be too large for `f64`.
    fn read(payload: &str) -> PayloadOptions {
        let fields: HashMap<String, &RawValue> = serde_json::from_str(payload).unwrap_or_default();
        let value = |name: &str| {
            let raw = fields.get(name)?;
            serde_json::from_str::<Value>(raw.get()).ok()
        };
        PayloadOptions {
            timeout: value("timeout").unwrap_or_default(),
            uuid: value("uuid").unwrap_or_default(),
            class: value("displayName").unwrap_or_default(),
        }
    }

    /// The job's time limit in seconds: 0 for none.
    fn timeout(&self) -> Option<u64> {
        let seconds = match &self.timeout {
            Value::String(text) => text.trim().parse().ok(),
            number => number.as_f64(),
        };
        // Negative ones become 0.
        seconds
            .filter(|it: &f64| it.is_finite())
            .map(|it| it.ceil() as u64)
    }
}

/// A job for an adapter, `Surus\Laravel\Jobs` or `Surus\Symfony\Messages`.
#[derive(Serialize)]
struct Envelope<'a> {
    connection: &'a str,
    queue: &'a str,
    id: &'a str,
    attempts: u32,
    payload: &'a str,
    tries: Option<u32>,
    backoff: Option<u64>,
    timeout: u64,
    /// Laravel has just been asked whether the queue is paused.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unpaused: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<Lost<'a>>,
}

/// The job has lost its worker: it does not run, and the framework only decides how to settle it.
#[derive(Serialize)]
struct Lost<'a> {
    why: &'a str,
    /// Its time limit in seconds, if it has reached it.
    timed_out: Option<u64>,
    /// It must fail now.
    fail: bool,
}

impl Verdict {
    fn done() -> Verdict {
        Verdict {
            disposition: Disposition::Done,
            outcome: Outcome::Done,
        }
    }

    fn buried(mut why: String) -> Verdict {
        let mut end = why.len().min(LONGEST_REASON);
        while !why.is_char_boundary(end) {
            end -= 1;
        }
        why.truncate(end);
        Verdict {
            disposition: Disposition::Bury(why.clone()),
            outcome: Outcome::Failed(why),
        }
    }

    fn released(why: String, pause: Duration) -> Verdict {
        Verdict {
            disposition: Disposition::Release(pause),
            outcome: Outcome::Retried(why),
        }
    }

    fn busy(failure: &Failure) -> Verdict {
        Verdict {
            disposition: Disposition::Postpone(BUSY),
            outcome: Outcome::Busy(failure.to_string()),
        }
    }
}

/// The class of a framework's job or the name of RoadRunner's, for metrics; empty for `plain` jobs.
pub fn class(queue: &Queue, payload: &Bytes) -> String {
    let options = match queue.format() {
        Format::Laravel => std::str::from_utf8(payload).map(PayloadOptions::read).ok(),
        Format::Messenger => return messenger::class(payload),
        Format::RoadRunner => return roadrunner::name(payload),
        Format::Plain => None,
    };
    options
        .and_then(|options| options.class.as_str().map(String::from))
        .unwrap_or_default()
}

/// The group of a `plain` job: the value of the configured key.
pub fn group(queue: &Queue, payload: &Bytes) -> Option<String> {
    let key = queue.group.as_ref()?;
    let json: serde_json::Map<String, Value> = serde_json::from_slice(payload).ok()?;
    let value = json.get(key)?;
    let group = value.as_str().map_or_else(|| value.to_string(), Into::into);
    Some(bounded(&group).into_owned())
}

//! Sends a job to a worker and waits until no worker has work left for it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio_util::task::TaskTracker;

use super::command::Program;
use crate::engine::Engine;
use crate::event::{Body, Event, Failure, JobContext, Script};
use crate::fronts::records::now;
use crate::fronts::records::request::{ERROR_KIND, origin, request};
use crate::fronts::records::response::collect;
use crate::observe::activity;

/// What runs the jobs of a queue.
pub enum JobProgram {
    Php(Arc<Runner>),
    Command(Program),
}

/// The workers of one format.
pub struct Runner {
    pub engine: Arc<dyn Engine>,
    /// The Composer package's script that passes events to a handler.
    pub script: Script,
    next_event: AtomicU64,
    /// By queue, when Laravel was asked last whether it is paused, and it was not.
    unpaused: Mutex<HashMap<String, Instant>>,
}

/// What PHP responded.
#[derive(Debug)]
pub enum JobAnswer {
    /// The handler's result as JSON.
    Result(Bytes),
    /// The handler has thrown, called `exit()`, or ended with a fatal error.
    Error { kind: String, message: String },
}

/// Results above this size are not results of jobs.
const MAX: usize = 8 << 20;
/// How long after its deadline an engine may take to end a job.
const LATE: Duration = Duration::from_secs(30);
/// How long Laravel's answer counts that a queue is not paused. For each, it reads its cache, which
/// may be a database that it must connect to.
const UNPAUSED: Duration = Duration::from_millis(100);

impl Runner {
    pub fn new(engine: Arc<dyn Engine>, script: Script) -> Runner {
        Runner {
            engine,
            script,
            next_event: AtomicU64::new(1),
            unpaused: Mutex::default(),
        }
    }

    /// Whether Laravel has just been asked, and a queue is not paused.
    pub fn is_unpaused(&self, queue: &str) -> bool {
        let asked = self.unpaused().get(queue).copied();
        asked.is_some_and(|asked| now().saturating_duration_since(asked) < UNPAUSED)
    }

    /// Notes when Laravel was asked whether a queue is paused, and it was not.
    pub fn note_unpaused(&self, queue: &str, asked: Instant) {
        self.unpaused().insert(queue.to_string(), asked);
    }

    fn unpaused(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.unpaused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes `payload` to the handler. `id` is the job's, for PHP's context.
    pub async fn ask(
        &self,
        payload: Bytes,
        id: &str,
        timeout: Duration,
    ) -> Result<JobAnswer, Failure> {
        let variables = vec![("LAMBDA_INVOCATION_CONTEXT".into(), context(id, timeout))];
        self.run(request(payload), variables, timeout).await
    }

    /// Passes a job to a handler whose result means nothing: it may be no JSON.
    pub async fn run_job(
        &self,
        payload: Bytes,
        id: &str,
        timeout: Duration,
    ) -> Result<JobAnswer, Failure> {
        let variables = vec![
            ("LAMBDA_INVOCATION_CONTEXT".into(), context(id, timeout)),
            ("SURUS_EVENT".into(), "job".into()),
        ];
        self.run(request(payload), variables, timeout).await
    }

    /// Passes a job to a worker of RoadRunner, and returns its answer.
    pub async fn ask_worker(
        &self,
        context: JobContext,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, Failure> {
        let mut request = request(body);
        request.extensions_mut().insert(context);
        match self.run(request, Vec::new(), timeout).await? {
            JobAnswer::Result(answer) => Ok(answer),
            JobAnswer::Error { message, .. } => Err(Failure::Malformed(message)),
        }
    }

    async fn run(
        &self,
        request: http::Request<Body>,
        variables: Vec<(Cow<'static, str>, String)>,
        timeout: Duration,
    ) -> Result<JobAnswer, Failure> {
        let workers = TaskTracker::new();
        workers.close();
        let deadline = now() + timeout;
        let event = Event {
            id: self.next_event.fetch_add(1, Ordering::Relaxed),
            request,
            script: self.script.clone(),
            origin: origin(),
            variables,
            deadline,
            idle_timeout: None,
            spool: None,
            completion_token: Some(workers.token()),
            early_hints: None,
        };
        let latest = deadline + LATE;
        let answer = tokio::time::timeout_at(latest.into(), self.answer(event)).await;
        // PHP may still run shutdown functions, or be about to be killed.
        let _ = tokio::time::timeout_at(latest.into(), workers.wait()).await;
        activity::ENDS.record();
        answer.unwrap_or(Err(Failure::TimedOut))
    }

    async fn answer(&self, event: Event) -> Result<JobAnswer, Failure> {
        let (parts, body) = self.engine.handle(Box::new(event)).await?.into_parts();
        let body = collect(body, MAX).await?.map_err(|size| {
            Failure::Malformed(format!("the result has {size} bytes, at most {MAX} fit"))
        })?;
        let kind = parts
            .headers
            .get(ERROR_KIND)
            .and_then(|kind| kind.to_str().ok());
        Ok(match kind {
            Some(kind) => JobAnswer::error(kind, &body),
            None if parts.status.is_success() => JobAnswer::Result(body),
            None => JobAnswer::Error {
                kind: "Status".into(),
                message: format!(
                    "PHP responded with status {}: {}",
                    parts.status,
                    start(&body)
                ),
            },
        })
    }
}

impl JobAnswer {
    fn error(kind: &str, body: &[u8]) -> JobAnswer {
        #[derive(Deserialize, Default)]
        #[serde(default, rename_all = "camelCase")]
        struct Reported {
            error_type: String,
            error_message: String,
        }
        let reported: Reported = serde_json::from_slice(body).unwrap_or_default();
        let kind = kind.trim_start_matches("Function.");
        JobAnswer::Error {
            kind: kind.into(),
            message: match (reported.error_type.as_str(), body) {
                // Other output, or none, has taken the place of the error.
                ("", []) => format!("{kind}: see the log for the cause"),
                ("", other) => format!("{kind}: {}", start(other)),
                (name, _) => format!("{name}: {}", reported.error_message),
            },
        }
    }
}

/// The start of what PHP has sent, for people.
fn start(body: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&body[..body.len().min(200)])
}

/// The context as the front end for Lambda passes it.
fn context(id: &str, timeout: Duration) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Context<'a> {
        aws_request_id: &'a str,
        deadline_ms: u64,
        invoked_function_arn: &'static str,
        trace_id: &'static str,
    }
    let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let deadline = epoch.unwrap_or_default() + timeout;
    let context = Context {
        aws_request_id: id,
        deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
        invoked_function_arn: "",
        trace_id: "",
    };
    // Strings and numbers always serialize.
    serde_json::to_string(&context).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_has_a_reason_also_if_php_has_sent_something_else() {
        for (body, reason) in [
            (
                r#"{"errorType":"App\\Odd","errorMessage":"no"}"#,
                r"App\Odd: no",
            ),
            ("", "OutputSent: see the log for the cause"),
            ("<html>", "OutputSent: <html>"),
        ] {
            let JobAnswer::Error { kind, message } =
                JobAnswer::error("Function.OutputSent", body.as_bytes())
            else {
                panic!("it is an error");
            };
            assert_eq!((&*kind, &*message), ("OutputSent", reason));
        }
    }
}

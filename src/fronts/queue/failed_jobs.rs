//! Lists, retries and forgets failed jobs, wherever queues and their application keep them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;

use super::front::{Consumer, Front};
use super::job::{FailedJob, FailedJobs, Failures};
use super::runner::{JobAnswer, JobProgram, Runner};
use super::settings::Format;
use crate::event::Failure;

/// How long PHP may take at least to answer. One worker is kept for that, but it may have to handle
/// a message that is retried.
const PHP: Duration = Duration::from_secs(30);

/// Retries or forgets one job. Returns those concerned. An id that several queues have changes a
/// job only as `QUEUE/ID`. Queues that cannot be asked are ignored if another one has the job.
pub async fn change(fronts: &[Arc<Front>], requested: &Failures) -> anyhow::Result<Vec<FailedJob>> {
    let id = requested.id().unwrap_or_default();
    let mut unreachable = Unreachable::default();
    let kept = keepers(fronts, id, &mut unreachable).await;
    if kept.is_empty() {
        let found = of_applications(fronts, requested, id, &mut unreachable).await?;
        if found.is_empty() && !unreachable.0.is_empty() {
            let unreachable = unreachable.0.join("; ");
            bail!("no queue that can be asked has this failed job; {unreachable}");
        }
        return Ok(found);
    }
    let references = kept.iter().map(|(it, own)| reference(&it.queue.name, own));
    let mut references: BTreeSet<_> = references.collect();
    for front in fronts {
        let same = front.application_jobs(id).await.unwrap_or_default();
        let same = same.jobs.iter();
        references.extend(same.map(|job| reference(&job.queue, &job.id)));
    }
    if references.len() > 1 {
        let references: Vec<_> = references.into_iter().collect();
        bail!(
            "several queues have a failed job with the id {id}; write {}",
            references.join(" or ")
        );
    }
    let mut found = Vec::new();
    for (consumer, own) in kept {
        found.extend(consumer.failures(requested.with_id(own)).await?);
    }
    Ok(found)
}

/// Why queues or applications cannot be asked, each once.
#[derive(Default)]
struct Unreachable(Vec<String>);

impl Unreachable {
    fn note(&mut self, why: String) {
        if !self.0.contains(&why) {
            self.0.push(why);
        }
    }

    /// The jobs that are found, or none and the reason is noted.
    fn or_none(&mut self, jobs: anyhow::Result<Vec<FailedJob>>) -> Vec<FailedJob> {
        jobs.unwrap_or_else(|error| {
            self.note(format!("{error:#}"));
            Vec::new()
        })
    }

    /// The jobs that an application has found, and notes why others are missing.
    fn or_none_of(&mut self, found: anyhow::Result<FailedJobs>) -> FailedJobs {
        let mut found = found.unwrap_or_else(|error| FailedJobs {
            unreachable: vec![format!("{error:#}")],
            ..FailedJobs::default()
        });
        for why in found.unreachable.drain(..) {
            self.note(why);
        }
        found
    }
}

/// A job's id with its queue.
fn reference(queue: &str, id: &str) -> String {
    format!("{queue}/{id}")
}

/// Whether an id is a job's, with its queue or without.
fn is_meant(job: &FailedJob, id: &str) -> bool {
    job.id == id || reference(&job.queue, &job.id) == id
}

/// Lists all failed jobs. An id that several queues have is listed as `QUEUE/ID`.
pub async fn list(fronts: &[Arc<Front>]) -> FailedJobs {
    let mut found: Vec<(String, FailedJob)> = Vec::new();
    let mut unreachable = Unreachable::default();
    let (mut unlisted, mut unnamed, mut notes) = (Vec::new(), 0, Vec::new());
    for front in fronts {
        let listed = front.application_failures(&Failures::List).await;
        let listed = unreachable.or_none_of(listed);
        let jobs = listed.jobs.into_iter();
        found.extend(jobs.map(|job| (job.queue.clone(), job)));
        unlisted.extend(listed.unlisted);
        unnamed += listed.unnamed;
        notes.extend(listed.notes);
        for consumer in &front.consumers {
            let jobs = unreachable.or_none(consumer.failures(Failures::List).await);
            let queue = &consumer.queue.name;
            found.extend(jobs.into_iter().map(|job| (queue.clone(), job)));
        }
    }
    let mut queues: HashMap<String, BTreeSet<String>> = HashMap::new();
    for (queue, job) in &found {
        let queues = queues.entry(job.id.clone()).or_default();
        queues.insert(queue.clone());
    }
    let listed = found.into_iter().map(|(queue, mut job)| {
        if queues.get(&job.id).is_some_and(|queues| queues.len() > 1) {
            job.id = reference(&queue, &job.id);
        }
        job
    });
    FailedJobs {
        jobs: listed.collect(),
        unlisted,
        unnamed,
        notes,
        unreachable: unreachable.0,
    }
}

/// A queue, and the id of a job there.
type Place<'a> = (&'a Consumer, &'a str);

/// The queues that keep a job with this id, which may follow the queue's name.
async fn keepers<'a>(
    fronts: &'a [Arc<Front>],
    id: &'a str,
    unreachable: &mut Unreachable,
) -> Vec<Place<'a>> {
    for places in places(fronts, id) {
        let mut kept = Vec::new();
        for (consumer, id) in places {
            let found = consumer.failures(Failures::Find(id.into())).await;
            if !unreachable.or_none(found).is_empty() {
                kept.push((consumer, id));
            }
        }
        if !kept.is_empty() {
            return kept;
        }
    }
    Vec::new()
}

/// The queue that an id names, to be asked first; then all queues.
fn places<'a>(fronts: &'a [Arc<Front>], id: &'a str) -> [Vec<Place<'a>>; 2] {
    let (mut named, mut all) = (Vec::new(), Vec::new());
    for consumer in fronts.iter().flat_map(|front| &front.consumers) {
        let rest = id.strip_prefix(consumer.queue.name.as_str());
        let own = rest.and_then(|rest| rest.strip_prefix('/'));
        named.extend(own.map(|own| (consumer, own)));
        all.push((consumer, id));
    }
    [named, all]
}

/// The ids by which an application may know a job whose id may follow its queue's name.
fn own_ids(format: Format, id: &str) -> Vec<&str> {
    match format {
        // Its ids begin with the name of their transport.
        Format::Messenger => {
            let all = std::iter::successors(Some(id), |id| Some(id.split_once('/')?.1));
            all.filter(|id| id.contains('/')).collect()
        }
        // Databases may refuse an id that is no number or UUID.
        _ => id.rsplit('/').take(1).collect(),
    }
}

/// Retries or forgets a job that an application keeps.
async fn of_applications(
    fronts: &[Arc<Front>],
    requested: &Failures,
    id: &str,
    unreachable: &mut Unreachable,
) -> anyhow::Result<Vec<FailedJob>> {
    for front in fronts {
        let kept = unreachable.or_none_of(front.application_jobs(id).await);
        if let Some(job) = kept.jobs.first() {
            let requested = requested.with_id(&job.id);
            return Ok(front.application_failures(&requested).await?.jobs);
        }
    }
    Ok(Vec::new())
}

impl Consumer {
    async fn failures(&self, requested: Failures) -> anyhow::Result<Vec<FailedJob>> {
        let failures = self.source.failures(requested).await;
        failures.with_context(|| format!("queue {}", self.queue.name))
    }
}

impl Front {
    /// Asks the application of its queues, if a framework keeps failed jobs of its own. They are
    /// all of the application, whatever their queue.
    async fn application_failures(&self, requested: &Failures) -> anyhow::Result<FailedJobs> {
        match self.application() {
            Some((runner, _)) => {
                let limit = self.limit_of(requested);
                failures_of_application(runner, requested, limit).await
            }
            None => Ok(FailedJobs::default()),
        }
    }

    /// The failed jobs that an application keeps with an id, which may follow the queue's name.
    async fn application_jobs(&self, id: &str) -> anyhow::Result<FailedJobs> {
        let mut found = FailedJobs::default();
        let Some((_, format)) = self.application() else {
            return Ok(found);
        };
        for own in own_ids(format, id) {
            let requested = Failures::Find(own.into());
            found = self.application_failures(&requested).await?;
            found.jobs.retain(|job| is_meant(job, id));
            if !found.jobs.is_empty() {
                break;
            }
        }
        Ok(found)
    }

    /// The workers of its application, and what its jobs are, if it has a framework.
    fn application(&self) -> Option<(&Runner, Format)> {
        self.consumers.iter().find_map(|consumer| {
            let format = consumer.queue.format();
            match &consumer.runs {
                JobProgram::Php(runner) if format.is_frameworks() => Some((&**runner, format)),
                _ => None,
            }
        })
    }

    /// How long PHP may take. Messenger handles a message at once that is retried.
    fn limit_of(&self, requested: &Failures) -> Duration {
        let is_messenger = |it: &&Consumer| it.queue.format() == Format::Messenger;
        let handled = self.consumers.iter().filter(is_messenger);
        let longest = handled.map(|consumer| consumer.queue.timeout.0).max();
        match requested {
            Failures::Retry(_) => longest.unwrap_or_default().max(PHP),
            Failures::List | Failures::Find(_) | Failures::Forget(_) => PHP,
        }
    }
}

async fn failures_of_application(
    runner: &Runner,
    requested: &Failures,
    limit: Duration,
) -> anyhow::Result<FailedJobs> {
    #[derive(Serialize)]
    struct Question<'a> {
        failures: &'a Failures,
    }
    let question = serde_json::to_vec(&Question {
        failures: requested,
    })?;
    let answer = runner.ask(question.into(), "", limit).await;
    match answered(requested, limit, answer)? {
        JobAnswer::Result(json) => {
            serde_json::from_slice(&json).context("the application's failed jobs")
        }
        JobAnswer::Error { message, .. } => bail!("the application's failed jobs: {message}"),
    }
}

/// What PHP has answered, or why it has not.
fn answered(
    requested: &Failures,
    limit: Duration,
    answer: Result<JobAnswer, Failure>,
) -> anyhow::Result<JobAnswer> {
    match (requested, answer) {
        (Failures::Retry(_), Err(Failure::TimedOut)) => bail!(
            "the retry has not ended within {} s (queue.timeout), or all workers are busy; \
             `surus work failed` shows whether the job is still there",
            limit.as_secs()
        ),
        (Failures::Forget(_), Err(Failure::TimedOut)) => bail!(
            "the application has not answered within {} s, perhaps because no worker is free; \
             `surus work failed` shows whether the job is still there, and messenger:failed:remove \
             or queue:forget forget it",
            limit.as_secs()
        ),
        (_, Err(Failure::TimedOut)) => bail!(
            "the application has not answered within {} s, perhaps because no worker is free: all \
             run jobs, or one handles a message that is retried; try again, or use \
             messenger:failed:show or queue:failed",
            limit.as_secs()
        ),
        (_, answer) => answer.context("cannot ask the application; try again"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Mutex;

    use tokio::sync::watch;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::fronts::queue::command::Program;
    use crate::fronts::queue::job::{Depth, Disposition, Job, Lease};
    use crate::fronts::queue::source::{Pending, Source};
    use crate::fronts::queue::{Queue, Settings};
    use crate::fronts::records::suspects::Suspects;

    /// An id of a broker that cannot be reached.
    const UNREACHABLE: &str = "unreachable";

    /// Keeps failed jobs with these ids.
    struct Kept(Mutex<Vec<&'static str>>);

    impl Source for Kept {
        fn receive<'a>(&'a self, _: usize, _: &'a CancellationToken) -> Pending<'a, Vec<Job>> {
            Box::pin(std::future::pending())
        }

        fn extend(&self, _: Vec<Lease>) -> Pending<'_, Vec<Lease>> {
            Box::pin(async { Ok(Vec::new()) })
        }

        fn settle(&self, _: Job, _: Disposition) -> Pending<'_, ()> {
            Box::pin(async { Ok(()) })
        }

        fn depth(&self) -> Pending<'_, Depth> {
            Box::pin(async { Ok(Depth::default()) })
        }

        fn failures(&self, requested: Failures) -> Pending<'_, Vec<FailedJob>> {
            let mut kept = self.0.lock().unwrap();
            if kept.contains(&UNREACHABLE) {
                return Box::pin(async { Err(anyhow::anyhow!("cannot reach the broker")) });
            }
            let is_meant = |id: &str| requested.id().is_none_or(|requested| requested == id);
            let found = kept.iter().filter(|id| is_meant(id));
            let job = |id: &&str| FailedJob::new(id.to_string(), "", b"", "", String::new());
            let found: Vec<_> = found.map(job).collect();
            if requested.is_change() {
                kept.retain(|id| !is_meant(id));
            }
            Box::pin(async move { Ok(found) })
        }
    }

    fn front(queues: &[(&str, &[&'static str])]) -> Arc<Front> {
        let consumers = queues.iter().map(|(name, ids)| Consumer {
            queue: Queue {
                name: name.to_string(),
                ..Queue::default()
            },
            connection: String::new(),
            source: Arc::new(Kept(Mutex::new(ids.to_vec()))),
            lease: Duration::from_secs(90),
            runs: JobProgram::Command(Program {
                words: Vec::new(),
                directory: "/".into(),
            }),
        });
        Arc::new(Front {
            workers: 0,
            consumers: consumers.collect(),
            settings: Settings::default(),
            metrics: Arc::default(),
            suspects: Suspects::default(),
            crash_counts: Arc::default(),
            unsettled: Vec::new(),
            paused: watch::Sender::new(Vec::new()),
            resting: Vec::new(),
        })
    }

    async fn listed(fronts: &[Arc<Front>]) -> Vec<String> {
        let listed = list(fronts).await;
        listed.jobs.into_iter().map(|job| job.id).collect()
    }

    #[test]
    fn application_is_asked_for_an_id_without_the_name_of_its_queue() {
        assert_eq!(own_ids(Format::Laravel, "7"), ["7"]);
        assert_eq!(own_ids(Format::Laravel, "a/b/7"), ["7"]);
        assert_eq!(own_ids(Format::Messenger, "failed/7"), ["failed/7"]);
        let listed = own_ids(Format::Messenger, "async/failed/7");
        assert_eq!(listed, ["async/failed/7", "failed/7"]);
    }

    #[test]
    fn application_that_does_not_answer_is_reported_with_the_way_out() {
        let (forget, retry) = (Failures::Forget("1".into()), Failures::Retry("1".into()));
        let busy = Failure::Busy("PHP is restarting");
        for (requested, failure, expected) in [
            (Failures::List, Failure::TimedOut, "within 30 s, perhaps"),
            (forget, Failure::TimedOut, "queue:forget"),
            (retry, Failure::TimedOut, "`surus work failed` shows"),
            (Failures::List, busy, "PHP is restarting"),
        ] {
            let error = answered(&requested, PHP, Err(failure)).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
    }

    #[tokio::test]
    async fn id_of_several_queues_is_refused_without_the_name_of_one() {
        let one = front(&[("mail", &["1", "2"]), ("news", &["1"])]);
        let fronts = [one, front(&[("a/b", &["1", "mail/9"])])];
        let all = ["mail/1", "2", "news/1", "a/b/1", "mail/9"];
        assert_eq!(listed(&fronts).await, all);
        for requested in [Failures::Retry("1".into()), Failures::Forget("1".into())] {
            let refused = change(&fronts, &requested).await.unwrap_err().to_string();
            assert!(refused.contains("a/b/1 or mail/1 or news/1"), "{refused}");
        }
        assert_eq!(listed(&fronts).await, all);
        for (id, left) in [
            ("a/b/1", vec!["mail/1", "2", "news/1", "mail/9"]),
            ("mail/1", vec!["2", "1", "mail/9"]),
            ("2", vec!["1", "mail/9"]),
            ("1", vec!["mail/9"]),
            ("mail/9", vec![]),
        ] {
            let done = change(&fronts, &Failures::Retry(id.into())).await;
            assert_eq!(done.unwrap().len(), 1, "{id}");
            assert_eq!(listed(&fronts).await, left, "{id}");
        }
        let missing = change(&fronts, &Failures::Forget("1".into())).await;
        assert!(missing.unwrap().is_empty());
    }

    #[tokio::test]
    async fn unreachable_broker_is_reported_only_if_no_other_keeps_the_job() {
        let fronts = [front(&[
            ("gone", &[UNREACHABLE]),
            ("mail", &["1", "2"]),
            ("news", &["1"]),
        ])];
        for id in ["mail/1", "2", "1"] {
            let done = change(&fronts, &Failures::Retry(id.into())).await;
            assert_eq!(done.unwrap().len(), 1, "{id}");
        }
        for id in ["1", "gone/1"] {
            let error = change(&fronts, &Failures::Forget(id.into())).await;
            assert!(error.unwrap_err().to_string().contains("gone"), "{id}");
        }
    }

    #[tokio::test]
    async fn unreachable_broker_does_not_keep_the_others_from_the_list() {
        let one = front(&[("mail", &["1"]), ("gone", &[UNREACHABLE]), ("news", &["2"])]);
        let listed = list(&[one, front(&[("away", &[UNREACHABLE])])]).await;
        let ids: Vec<_> = listed.jobs.iter().map(|job| &*job.id).collect();
        assert_eq!(ids, ["1", "2"]);
        let why = |queue: &str| format!("queue {queue}: cannot reach the broker");
        assert_eq!(listed.unreachable, ["gone", "away"].map(why));
    }
}

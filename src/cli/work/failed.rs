//! `surus work failed`, `retry` and `forget`: shows failed jobs, runs them again, deletes them.

use anyhow::ensure;
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::cli::options::Project;
use crate::cli::running::{ask_work as ask, try_work};
use crate::cli::stdout::{self, say};
use crate::fronts::queue::job::{FailedJob, FailedJobs};

/// Selects failed jobs.
#[derive(Debug, clap::Args)]
pub struct Chosen {
    #[command(flatten)]
    project: Project,
    /// Id of a failed job, from `surus work failed`, or QUEUE/ID; may be repeated
    #[arg(long = "id", value_name = "ID", required_unless_present = "all")]
    ids: Vec<String>,
    /// All failed jobs
    #[arg(long, conflicts_with = "ids")]
    all: bool,
}

pub fn show(project: &Project, is_json: bool) -> anyhow::Result<()> {
    let (jobs, problems) = find(project)?;
    match is_json {
        true => say!("{}", serde_json::to_string(&jobs)?),
        false if jobs.is_empty() && !problems.is_empty() => {}
        false => stdout::print(list(&jobs)),
    }
    fail(&problems)
}

/// The failed jobs of all queues, and why some of them cannot be listed.
fn find(project: &Project) -> anyhow::Result<(Vec<FailedJob>, Vec<String>)> {
    let found: FailedJobs = serde_json::from_str(&ask(project, Method::GET, "/-/failed")?)?;
    let problems = found.unreachable.iter();
    let problems = problems.map(|why| format!("cannot list failed jobs: {why}"));
    Ok((found.jobs, problems.collect()))
}

/// Retries or forgets jobs, one by one. A job that cannot be reached does not stop the others.
pub fn change(args: &Chosen, verb: &str, done: &str) -> anyhow::Result<()> {
    let mut ids = args.ids.clone();
    let mut problems = Vec::new();
    if args.all {
        let jobs;
        (jobs, problems) = find(&args.project)?;
        ids = jobs.into_iter().map(|job| job.id).collect();
    }
    let (count, mut failed) = (ids.len(), 0);
    let mut missing = Vec::new();
    for id in ids {
        let path = format!(
            "/-/{verb}?id={}",
            utf8_percent_encode(&id, NON_ALPHANUMERIC)
        );
        let json = match try_work(&args.project, Method::POST, &path)? {
            Ok(json) => json,
            Err(why) => {
                problems.push(format!("{id}: {why}"));
                continue;
            }
        };
        let jobs: Vec<FailedJob> = serde_json::from_str(&json)?;
        let error = jobs.iter().find_map(|job| job.error.as_ref());
        match error {
            _ if jobs.is_empty() => missing.push(id),
            None => say!("{done} {id}"),
            Some(error) => {
                say!("failed again {id}: {error}");
                failed += 1;
            }
        }
    }
    if !missing.is_empty() {
        problems.push(format!(
            "no failed job has the id {}; `surus work failed` lists them",
            missing.join(", ")
        ));
    }
    if failed > 0 {
        problems.push(format!("{failed} of {count} jobs failed again"));
    }
    fail(&problems)
}

/// Fails if there are problems, and names each on a line of its own.
fn fail(problems: &[String]) -> anyhow::Result<()> {
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// One job in two lines: ids are long, and reasons longer.
fn list(jobs: &[FailedJob]) -> String {
    let one = |job: &FailedJob| {
        let class = match job.class.as_str() {
            "" => String::new(),
            class => format!(" {class}"),
        };
        format!(
            "{}  {}{class}, {}\n    {}\n",
            job.id, job.queue, job.failed_at, job.why
        )
    };
    match jobs {
        [] => "no job has failed\n".into(),
        jobs => jobs.iter().map(one).collect(),
    }
}

//! `surus work failed`, `retry` and `forget`: shows failed jobs, runs them again, deletes them.

use anyhow::bail;
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::cli::options::Project;
use crate::cli::running::ask_work as ask;
use crate::cli::stdout::{self, say};
use crate::fronts::queue::job::FailedJob;

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
    let json = ask(project, Method::GET, "/-/failed")?;
    if is_json {
        say!("{json}");
        return Ok(());
    }
    let jobs: Vec<FailedJob> = serde_json::from_str(&json)?;
    stdout::print(list(&jobs));
    Ok(())
}

pub fn change(args: &Chosen, verb: &str, done: &str) -> anyhow::Result<()> {
    let mut ids = args.ids.clone();
    if args.all {
        let json = ask(&args.project, Method::GET, "/-/failed")?;
        let jobs: Vec<FailedJob> = serde_json::from_str(&json)?;
        ids = jobs.into_iter().map(|job| job.id).collect();
    }
    let (count, mut failed) = (ids.len(), 0);
    let mut missing = Vec::new();
    for id in ids {
        let path = format!(
            "/-/{verb}?id={}",
            utf8_percent_encode(&id, NON_ALPHANUMERIC)
        );
        let json = ask(&args.project, Method::POST, &path)?;
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
        bail!(
            "no failed job has the id {}; `surus work failed` lists them",
            missing.join(", ")
        );
    }
    if failed > 0 {
        bail!("{failed} of {count} jobs failed again");
    }
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

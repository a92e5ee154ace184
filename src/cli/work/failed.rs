//! `surus work failed`, `retry` and `forget`: shows failed jobs, runs them again, deletes them.

use std::collections::BTreeSet;

use anyhow::ensure;
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use crate::cli::options::Project;
use crate::cli::running::{ask_work as ask, try_work};
use crate::cli::stdout::{self, say};
use crate::fronts::queue::job::{FailedJob, FailedJobs};
use crate::observe::log;
use crate::observe::printable::printable;

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
    let (found, problems) = find(project)?;
    match is_json {
        true => {
            say!("{}", as_json(&found)?);
            note(&more(&found, false));
        }
        false if found.jobs.is_empty() && !(problems.is_empty() && found.notes.is_empty()) => {}
        false => stdout::print(list(&found)),
    }
    for why in &found.notes {
        note(&format!("{why}\n"));
    }
    fail(&problems)
}

/// Writes to stderr what is no failure.
fn note(text: &str) {
    if !text.is_empty() {
        log::print(format_args!("surus: {}", printable(text)));
    }
}

/// All jobs. Those that are not shown have only an id.
fn as_json(found: &FailedJobs) -> anyhow::Result<String> {
    let shown = found.jobs.iter().map(serde_json::to_value);
    let mut all = shown.collect::<Result<Vec<_>, _>>()?;
    all.extend(found.unlisted.iter().map(|id| json!({ "id": id })));
    Ok(serde_json::to_string(&all)?)
}

/// The failed jobs of all queues, and why some of them cannot be listed.
fn find(project: &Project) -> anyhow::Result<(FailedJobs, Vec<String>)> {
    let found: FailedJobs = serde_json::from_str(&ask(project, Method::GET, "/-/failed")?)?;
    let problems = found.unreachable.iter();
    let problems = problems.map(|why| format!("cannot list failed jobs: {why}"));
    let problems = problems.collect();
    Ok((found, problems))
}

/// Retries or forgets jobs, one by one. A job that cannot be reached does not stop the others.
pub fn change(args: &Chosen, verb: &str, done: &str) -> anyhow::Result<()> {
    let mut ids = args.ids.clone();
    let mut problems = Vec::new();
    if args.all {
        let found;
        (found, problems) = find(&args.project)?;
        let all = found.jobs.into_iter();
        let (unknown, jobs): (Vec<_>, Vec<_>) = all.partition(|job| job.has_unknown_queue);
        problems.extend(left(&unknown));
        ids = jobs.into_iter().map(|job| job.id).collect();
        ids.extend(found.unlisted);
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

/// Why jobs of unknown queues are left, each once although several queues list it.
fn left(jobs: &[FailedJob]) -> Vec<String> {
    let mut told = BTreeSet::new();
    let own = |job: &FailedJob| {
        let own = job.id.strip_prefix(job.queue.as_str());
        let own = own.and_then(|rest| rest.strip_prefix('/'));
        own.unwrap_or(&job.id).to_string()
    };
    let first = jobs.iter().filter(|&job| told.insert(own(job)));
    let why = first.map(|FailedJob { id, .. }| {
        format!("{id}: its queue is unknown, so --all leaves it; name it by --id {id}")
    });
    why.collect()
}

/// Fails if there are problems, and names each on a line of its own.
fn fail(problems: &[String]) -> anyhow::Result<()> {
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// One job in two lines: ids are long, and reasons longer.
fn list(found: &FailedJobs) -> String {
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
    match &found.jobs[..] {
        [] => "no job has failed\n".into(),
        jobs => jobs.iter().map(one).chain([more(found, true)]).collect(),
    }
}

/// How many jobs have failed beyond those that are listed, which may include the ids of others.
fn more(found: &FailedJobs, lists_no_ids: bool) -> String {
    let (named, unnamed) = (found.unlisted.len(), found.unnamed);
    match (lists_no_ids, named, unnamed) {
        (true, 0, 0) | (false, _, 0) => String::new(),
        (true, named, 0) => format!("{named} more jobs have failed; `--all` includes them\n"),
        (true, named, unnamed) => {
            let all = named + unnamed;
            format!("{all} more jobs have failed; `--all` includes {named} of them\n")
        }
        (false, _, unnamed) => format!("{unnamed} more jobs have failed, which are not listed\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: &str, queue: &str) -> FailedJob {
        FailedJob::new(id.into(), queue, b"", "", String::new())
    }

    fn found(unlisted: &[&str], unnamed: usize) -> FailedJobs {
        FailedJobs {
            jobs: vec![job("1", "mails")],
            unlisted: unlisted.iter().map(|id| String::from(*id)).collect(),
            unnamed,
            ..FailedJobs::default()
        }
    }

    #[test]
    fn jobs_that_are_not_shown_are_counted_and_have_ids_in_json() {
        for (found, text, with_ids) in [
            (found(&[], 0), "", ""),
            (
                found(&["2", "3"], 0),
                "2 more jobs have failed; `--all` includes them\n",
                "",
            ),
            (
                found(&["2", "3"], 5),
                "7 more jobs have failed; `--all` includes 2 of them\n",
                "5 more jobs have failed, which are not listed\n",
            ),
        ] {
            assert_eq!(more(&found, true), text);
            assert_eq!(more(&found, false), with_ids);
            let json = as_json(&found).expect("it serializes");
            let jobs: Vec<serde_json::Value> = serde_json::from_str(&json).expect("it is JSON");
            let ids: Vec<_> = jobs.iter().filter_map(|job| job["id"].as_str()).collect();
            let unlisted = found.unlisted.iter().map(String::as_str);
            assert_eq!(ids, ["1"].into_iter().chain(unlisted).collect::<Vec<_>>());
        }
    }

    #[test]
    fn job_of_an_unknown_queue_that_several_queues_list_is_told_once() {
        let listed = [
            job("a/b/1", "a/b"),
            job("mails/1", "mails"),
            job("2", "mails"),
        ];
        let told = left(&listed);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].ends_with("--id a/b/1") && told[1].ends_with("--id 2"),
            "{told:?}"
        );
    }
}

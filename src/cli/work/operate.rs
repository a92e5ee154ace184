//! The subcommands of `surus work`, which show and control a running one.

use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::failed::{self, Chosen};
use crate::cli::options::Project;
use crate::cli::running::ask_work as ask;
use crate::cli::status;
use crate::cli::stdout::{self, say};
use crate::fronts::queue::operation::QueueStatus;
use crate::observe::status::{EngineStatus, SiteStatus};

#[derive(Debug, clap::Subcommand)]
pub enum Operation {
    /// Show the queues and workers of a running `surus work`
    #[command(after_help = "\
Examples:
  surus work status /srv/app
  surus work status --json /srv/app")]
    Status(Status),
    /// Stop taking jobs; running jobs finish, and the others go back to their broker
    #[command(after_help = "\
Examples:
  surus work pause /srv/app
  surus work pause /srv/app --queue mail")]
    Pause(Named),
    /// Take jobs again after `surus work pause`
    #[command(after_help = "\
Examples:
  surus work resume /srv/app")]
    Resume(Named),
    /// List the jobs that have failed for good
    #[command(after_help = "\
Examples:
  surus work failed /srv/app")]
    Failed(Status),
    /// Put failed jobs back into their queue; Messenger handles its own at once
    #[command(after_help = "\
Examples:
  surus work retry /srv/app --id a23b7174-df35-432b-a9f6-582cbe45116f
  surus work retry /srv/app --all")]
    Retry(Chosen),
    /// Delete failed jobs
    #[command(after_help = "\
Examples:
  surus work forget /srv/app --id a23b7174-df35-432b-a9f6-582cbe45116f
  surus work forget /srv/app --all")]
    Forget(Chosen),
}

#[derive(Debug, clap::Args)]
pub struct Status {
    #[command(flatten)]
    project: Project,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub struct Named {
    #[command(flatten)]
    project: Project,
    /// Queue to pause or resume [default: all]
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
}

pub fn run(operation: &Operation) -> anyhow::Result<()> {
    match operation {
        Operation::Status(args) => show(args),
        Operation::Pause(args) => pause(args, "pause", "paused"),
        Operation::Resume(args) => pause(args, "resume", "resumed"),
        Operation::Failed(args) => failed::show(&args.project, args.json),
        Operation::Retry(args) => failed::change(args, "retry", "retried"),
        Operation::Forget(args) => failed::change(args, "forget", "forgot"),
    }
}

fn show(args: &Status) -> anyhow::Result<()> {
    let queues = ask(&args.project, Method::GET, "/-/queues")?;
    let engines = ask(&args.project, Method::GET, "/-/status")?;
    let problems: Vec<SiteStatus> =
        serde_json::from_str(&ask(&args.project, Method::GET, "/-/sites")?)?;
    if args.json {
        let error = problems.first().and_then(|problem| problem.error.as_ref());
        let error = serde_json::to_string(&error)?;
        say!("{{\"queues\":{queues},\"engines\":{engines},\"error\":{error}}}");
        return Ok(());
    }
    for problem in &problems {
        say!("{}", status::site_line(problem));
    }
    let queues: Vec<QueueStatus> = serde_json::from_str(&queues)?;
    stdout::print(table(&queues));
    let engines: Vec<EngineStatus> = serde_json::from_str(&engines)?;
    for engine in engines {
        stdout::print(status::table(&engine));
    }
    Ok(())
}

fn pause(args: &Named, verb: &str, done: &str) -> anyhow::Result<()> {
    let query = args.queue.as_ref().map(|queue| {
        let queue = utf8_percent_encode(queue, NON_ALPHANUMERIC);
        format!("?queue={queue}")
    });
    let path = format!("/-/{verb}{}", query.unwrap_or_default());
    let names: Vec<String> = serde_json::from_str(&ask(&args.project, Method::POST, &path)?)?;
    for name in names {
        say!("{done} {name}");
    }
    Ok(())
}

fn table(queues: &[QueueStatus]) -> String {
    let longest = queues.iter().map(|it| it.queue.chars().count()).max();
    let width = longest.unwrap_or_default().max(5);
    let mut text = format!(
        "{:<width$}{:>8}  {:<8}{:>8}{:>9}{:>9}{:>10}{:>8}\n",
        "QUEUE", "WEIGHT", "STATE", "RUNNING", "WAITING", "DELAYED", "RESERVED", "OLDEST"
    );
    for queue in queues {
        let state = match queue {
            QueueStatus { depth: None, .. } => "broken",
            queue if queue.is_paused => "paused",
            queue if queue.is_resting => "resting",
            _ => "active",
        };
        let number = |of: Option<u64>| of.map_or("-".to_string(), |number| number.to_string());
        let oldest = queue.depth.and_then(|it| it.oldest);
        let oldest = oldest.map_or("-".into(), |seconds| {
            status::duration(seconds.saturating_mul(1000))
        });
        text.push_str(&format!(
            "{:<width$}{:>8}  {:<8}{:>8}{:>9}{:>9}{:>10}{:>8}\n",
            queue.queue,
            queue.weight,
            state,
            queue.running,
            number(queue.depth.map(|it| it.waiting)),
            number(queue.depth.map(|it| it.delayed)),
            number(queue.depth.map(|it| it.reserved)),
            oldest,
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fronts::queue::job::Depth;

    #[test]
    fn table_columns_are_aligned() {
        let queue = |name: &str, depth| QueueStatus {
            queue: name.into(),
            weight: 3,
            is_paused: name == "mail",
            is_resting: name == "images",
            running: 2,
            depth,
        };
        let depth = Depth {
            waiting: 1200,
            delayed: 0,
            reserved: 4,
            oldest: Some(90),
        };
        let queues = [
            queue("mail", Some(depth)),
            queue("images", Some(depth)),
            queue("reports", None),
        ];
        assert_eq!(
            table(&queues),
            "QUEUE    WEIGHT  STATE    RUNNING  WAITING  DELAYED  RESERVED  OLDEST\n\
             mail          3  paused         2     1200        0         4   1m30s\n\
             images        3  resting        2     1200        0         4   1m30s\n\
             reports       3  broken         2        -        -         -       -\n"
        );
    }
}

//! `surus bench`: measures how a server answers under load.

mod app;
mod compare;
mod find_max;
mod interrupt;
mod measuring;
mod notes;
mod options;
mod outputs;
mod progress;
mod tables;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use surus_load::RunOutcome;

pub use app::{Tried, try_engines};
use options::Load;
use outputs::{Output, Series};

/// Arguments of `surus bench`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Bench {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: Run,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Compare two URLs in rounds that take turns
    #[command(after_help = "\
Examples:
  surus bench compare http://127.0.0.1:8080/ http://127.0.0.1:8081/
  surus bench compare http://127.0.0.1:8080/a http://127.0.0.1:8080/b --rounds 20 -d 5s")]
    Compare(Box<compare::Compare>),
    /// Run an application on every engine, and recommend one
    #[command(after_help = "\
Examples:
  surus bench app
  surus bench app /srv/app --path / --path /login --html report.html
  surus bench app /srv/app --engines classic,worker,rewind --quick
  surus bench app /srv/app -H 'Host: example.org'")]
    App(Box<app::App>),
}

#[derive(clap::Args)]
pub struct Run {
    /// URL to request; URL@3 requests it three times as often as others
    #[arg(value_name = "URL")]
    urls: Vec<String>,
    /// URL to request, like the argument; may be repeated
    #[arg(long = "url", value_name = "URL")]
    more_urls: Vec<String>,
    /// File of requests, one per line: JSON, curl's options, or a URL
    #[arg(long, value_name = "FILE", conflicts_with_all = ["method", "body", "body_file"])]
    file: Option<PathBuf>,
    /// How long to send requests: 10s, 500ms, 2m; a bare number means seconds [default: 10s, or
    /// 5s per rate with --find-max]
    #[arg(short = 'd', long, value_name = "TIME", value_parser = options::parse_time)]
    duration: Option<Duration>,
    #[command(flatten)]
    load: Load,
    /// Search the highest rate whose 99th percentile stays within --p99
    #[arg(long, requires = "p99", conflicts_with_all = ["rps", "requests", "back_off"])]
    find_max: bool,
    /// Highest latency that 99 % of the requests may have
    #[arg(long, value_name = "TIME", requires = "find_max", value_parser = options::parse_time)]
    p99: Option<Duration>,
    /// Process of the server; may be repeated [default: those that listen on the URL's port]
    #[arg(long = "pid", value_name = "PID")]
    pids: Vec<i32>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    series: Series,
}

pub fn run(bench: Bench) -> anyhow::Result<()> {
    match bench.command {
        Some(Command::Compare(compare)) => compare::run(&compare),
        Some(Command::App(app)) => app::run(&app),
        None => run_one(&bench.run),
    }
}

fn run_one(args: &Run) -> anyhow::Result<()> {
    let urls = [args.urls.clone(), args.more_urls.clone()].concat();
    if urls.is_empty() && args.file.is_none() {
        bail!(
            "name a URL, as in `surus bench http://127.0.0.1:8080/`, or a file of requests (--file)"
        );
    }
    measuring::ensure_running(&args.pids, "--pid")?;
    if let Some(p99) = args.p99 {
        return find_max::run(args, &urls, p99);
    }
    let duration = args.duration.unwrap_or(Duration::from_secs(10));
    let plan = args.load.plan(&urls, args.file.as_ref(), duration)?;
    let title = title(&urls, args.file.as_ref());
    interrupt::remember()?;
    let page = args.output.open()?;
    measuring::warm_up(&plan, args.load.warm_up)?;
    let result = args
        .series
        .with_log(|log| measuring::measure_with(&plan, &args.pids, true, log))?;
    let report = tables::report(title, args.load.describe(&plan), &plan, &result);
    args.output
        .print_run(&report, &result, &args.series, page)?;
    let outcome = &result.outcome;
    if !outcome.is_interrupted {
        return fail_if_unexpected(outcome);
    }
    let seconds = outcome.elapsed.as_secs_f64();
    let mut message =
        format!("interrupted after {seconds:.1} s; the report is of what was measured until then");
    if outcome.totals.failed() > 0
        && let Err(error) = fail_if_unexpected(outcome)
    {
        message.push_str(&format!("; {error}"));
    }
    bail!(message)
}

fn title(urls: &[String], file: Option<&PathBuf>) -> String {
    match (file, urls) {
        (Some(file), _) => format!("surus bench --file {}", file.display()),
        (None, urls) => format!("surus bench {}", urls.join(" ")),
    }
}

/// Returns an error if the run has failed ([`failure`]).
fn fail_if_unexpected(outcome: &RunOutcome) -> anyhow::Result<()> {
    match failure(outcome) {
        Some(what) => bail!(what),
        None => Ok(()),
    }
}

/// A run with failures is a failed run. Says what came instead.
fn failure(outcome: &RunOutcome) -> Option<String> {
    let totals = &outcome.totals;
    if totals.requests == 0 {
        return Some("no request ended; see --timeout and --duration".into());
    }
    if totals.failed() == 0 {
        return None;
    }
    let kinds = surus_load::RequestFailure::ALL
        .into_iter()
        .filter_map(|kind| {
            let count = totals.failures_of(kind);
            (count > 0).then(|| format!("{count} × {}", kind.label()))
        });
    let mut text = format!(
        "{} of {} requests failed: {}",
        totals.failed(),
        totals.requests,
        kinds.collect::<Vec<_>>().join(", ")
    );
    if let Some(error) = &totals.first_error {
        text.push_str(&format!("; the first error: {error}"));
    }
    if let Some(first) = &totals.unexpected {
        text.push_str(&format!(
            "; first: {} returned {}",
            first.request, first.status
        ));
        if !first.body.is_empty() {
            text.push_str(&format!(" with `{}`", first.body));
        }
    }
    Some(text)
}

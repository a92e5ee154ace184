//! `surus bench app`: runs an application on every engine, compares answers and costs, and
//! recommends an engine.

mod advice;
mod answers;
mod contest;
mod contestant;
mod equal;
mod load;
mod progress;
mod server;
mod table;
mod targets;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use surus_measure::Advice;

use super::interrupt;
use super::options;
use super::outputs::Output;
use crate::cli::entry_script;
use crate::cli::options::Project;
use crate::config::Config;
use crate::engines::{self, CATALOGUE, EngineEntry, PhpProgram, Warmup};
use answers::Requests;
use contest::Contest;
use contestant::Contestant;
use equal::join_equal;
use server::Launch;

#[derive(Debug, clap::Args)]
pub struct App {
    #[command(flatten)]
    project: Project,
    /// Path to request; several may follow, and all are requested equally often
    #[arg(long = "path", value_name = "PATH", num_args = 1.., default_value = "/")]
    paths: Vec<String>,
    /// Engines to run, with commas between them [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',', num_args = 1..)]
    engines: Vec<String>,
    /// Header to send; may be repeated [default: 'Host: localhost']
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// PHP file to boot, relative to the current directory, as in `surus serve`
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Number of PHP processes of each engine [default: as in `surus serve`]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Number of connections [default: one per PHP process]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: Option<u32>,
    /// Number of rounds; each measures every engine once, in rotating order [default: 5, or 3
    /// if the application starts slowly]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// How long to measure an engine in each round [default: so that all takes about a minute]
    #[arg(short = 'd', long, value_name = "TIME", value_parser = options::parse_time)]
    duration: Option<Duration>,
    /// Measure only for moments: for a first impression
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: Output,
}

/// The application, the requests and the measurements of a contest.
#[derive(Debug)]
pub struct Plan {
    launch: Launch,
    requests: Requests,
    concurrency: usize,
    /// At least, and at most.
    rounds: (usize, usize),
    /// Not set: what is left of a minute.
    duration: Option<Duration>,
    warm_up: Duration,
    /// The configuration file, if there is one.
    file: Option<PathBuf>,
    /// What a reader must know of the paths.
    notes: Vec<String>,
}

pub fn run(args: &App) -> anyhow::Result<()> {
    interrupt::remember()?;
    let page = args.output.open()?;
    let contest = hold(args)?;
    args.output.print(&table::report(&contest), page)?;
    match (contest.cut_short, contest.failure()) {
        (Some((round, all)), _) => bail!(
            "interrupted in round {round} of {all}; the report is of what was measured until then"
        ),
        (None, Some(what)) => bail!(what),
        (None, None) => Ok(()),
    }
}

/// What the engines have shown to `surus init`.
pub struct Tried {
    /// Missing if none served everything as the reference did.
    pub advice: Option<Advice>,
    /// The CPU time and answers of each, or why it has none. Those with the same reason are in one
    /// line.
    pub engines: Vec<String>,
    /// What was requested.
    pub requests: String,
}

/// Compares and measures Surus's own engines, for moments.
pub fn try_engines(
    project: Project,
    paths: Vec<String>,
    headers: Vec<String>,
) -> anyhow::Result<Tried> {
    interrupt::remember()?;
    let own = CATALOGUE
        .iter()
        .filter(|it| it.runs == PhpProgram::SurusPhp);
    let contest = hold(&App {
        project,
        paths,
        engines: own.map(|it| it.name.to_string()).collect(),
        headers,
        script: None,
        workers: None,
        concurrency: None,
        rounds: None,
        duration: None,
        quick: true,
        output: Output::default(),
    })?;
    interrupt::check()?;
    if let Some(what) = contest.failure() {
        bail!(what);
    }
    let engines = contest.contestants.iter();
    let engines = join_equal(engines.map(|it| (it.entry.name, table::in_words(it, &contest))));
    let engines = engines.into_iter();
    Ok(Tried {
        advice: advice::advice(&contest),
        engines: engines
            .map(|(names, shown)| format!("{}: {shown}", names.join(", ")))
            .collect(),
        requests: table::report(&contest).subtitle,
    })
}

fn hold(args: &App) -> anyhow::Result<Contest> {
    let project = args.project.directory()?;
    let loaded = args.project.load()?;
    let mut config = loaded.config;
    let script = args.script.as_ref().map(std::path::absolute).transpose();
    let script = script.context("--script")?;
    config.engine.script = script.clone().or(config.engine.script);
    let configured = engines::worker_count(&config.engine);
    let workers = args.workers.map_or(configured, Ok)?;
    // All engines are compared with the same number of workers.
    config.engine.fix_workers(workers);
    let concurrency = args.concurrency.map_or(workers, |count| count as usize);
    let mut requests = requests(args)?;
    let entries = entries(&args.engines, entry_script::needs_boot(&project, &config))?;
    let configurations = entries.iter().map(|entry| {
        let config = contestant::configuration(entry, &project, &config);
        (entry.name, config)
    });
    let configurations: Vec<_> = configurations.collect();
    // Which of several sites answers is decided by its hosts.
    let notes = match config.sites.is_empty() {
        true => targets::leave_out_others(&mut requests, &project, &configurations)?,
        false => Vec::new(),
    };
    let contestants = entries
        .into_iter()
        .map(|entry| {
            let script = script.as_ref();
            Contestant::new(entry, &project, &config, script, &requests, concurrency)
        })
        .collect::<anyhow::Result<_>>()?;
    let plan = Plan {
        launch: Launch {
            project,
            config: args.project.configuration().map(Path::to_path_buf),
            workers,
            learns: config.engine.warmup == Warmup::Learn,
            listens_within: longest_start(&config),
        },
        requests,
        concurrency,
        rounds: match args.rounds {
            Some(rounds) => (rounds as usize, rounds as usize),
            None if args.quick => (2, 2),
            None => (3, 5),
        },
        duration: args
            .duration
            .or(args.quick.then_some(Duration::from_millis(400))),
        warm_up: Duration::from_millis(if args.quick { 100 } else { 300 }),
        file: loaded.file,
        notes,
    };
    options::ensure_open_files(plan.concurrency, 1)?;
    contest::run(plan, contestants)
}

/// Longer than a server takes until it listens or exits: each pool boots within
/// `engine.boot_timeout`, and an external engine within twice as long.
fn longest_start(config: &Config) -> Duration {
    let pools = 1 + config.pool.len() as u32;
    config.engine.boot_timeout.0.saturating_mul(2 * pools) + Duration::from_secs(60)
}

fn requests(args: &App) -> anyhow::Result<Requests> {
    for path in &args.paths {
        let is_target = path.bytes().all(|byte| byte.is_ascii_graphic()) && !path.contains('#');
        if !path.starts_with('/') || !is_target {
            bail!(
                "--path {path}: expected a path such as / or /search?q=a; write spaces and other \
                 characters as %XX"
            );
        }
        // `--path / DIR` takes the directory for another path.
        if path != "/" && args.project.named() == Path::new(".") && Path::new(path).is_dir() {
            super::progress::line(&format!(
                "--path {path}: taken for a path to request, and is a directory here; if it is the \
                 application's, write it first: `surus bench app {path} --path /`"
            ));
        }
    }
    let mut headers = options::parse_headers(&args.headers)?;
    if !headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("host"))
    {
        headers.push(("Host".into(), "localhost".into()));
    }
    let mut paths = args.paths.clone();
    let mut seen = HashSet::new();
    paths.retain(|path| seen.insert(path.clone()));
    Ok(Requests { paths, headers })
}

/// The engines of these names, or all. `classic`, whose answers are the reference, is the first;
/// `rewind` stands in for it if the application needs an engine that boots.
fn entries(names: &[String], needs_boot: bool) -> anyhow::Result<Vec<&'static EngineEntry>> {
    let mut entries: Vec<&EngineEntry> = vec![engines::find("classic")?];
    if needs_boot {
        entries.push(engines::find("rewind")?);
    }
    for name in names {
        entries.push(engines::find(name).context("--engines")?);
    }
    if names.is_empty() {
        entries.extend(CATALOGUE);
    }
    let mut seen = HashSet::new();
    entries.retain(|entry| seen.insert(entry.name));
    Ok(entries)
}

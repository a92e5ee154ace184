//! The command line of `lab`.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::{Args, Parser, Subcommand};

use crate::application::Application;
use crate::batch::Batch;
use crate::contestant::Manifest;
use crate::experiment::{Entry, Experiment};
use crate::files::Places;
use crate::length::Size;
use crate::published::Table;
use crate::results::Results;
use crate::small_form::SmallForm;
use crate::words::Words;
use crate::{document, documents, history, interrupt, render, rounds, starting};

/// Measure Surus and others in rounds that take turns, and publish the numbers
#[derive(Debug, Parser)]
#[command(name = "lab")]
pub struct Lab {
    #[command(subcommand)]
    command: Command,
    /// Directory of experiments, contestants, applications and published numbers
    #[arg(long, global = true, value_name = "DIR", default_value = "lab")]
    lab: PathBuf,
    /// Directory for builds and unfinished runs
    #[arg(long, global = true, value_name = "DIR", default_value = "target/lab")]
    work: PathBuf,
    /// The surus to measure
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        default_value = "target/release/surus"
    )]
    surus: PathBuf,
    /// Directory for results; for the small form, the default is `results` in --work
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        default_value = "docs/results"
    )]
    results: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List experiments
    List,
    /// Check every file of the lab without measuring
    Check,
    /// Run experiments, or continue interrupted ones
    Run(LabRun),
    /// Start one contestant as a run does, print its commands, and serve until Ctrl-C
    Start(Start),
    /// Write the pages of results again, and what documents quote of them
    Render(Names),
}

#[derive(Debug, Args)]
struct Names {
    /// Experiments; all if none is named
    #[arg(value_name = "EXPERIMENT")]
    names: Vec<String>,
}

#[derive(Debug, Args)]
struct Start {
    /// Experiment
    #[arg(value_name = "EXPERIMENT")]
    experiment: String,
    /// Contestant, as it is named in the experiment's file
    #[arg(value_name = "CONTESTANT")]
    contestant: String,
    /// Load whose application is served; the first if it is left out
    #[arg(value_name = "LOAD")]
    load: Option<String>,
}

#[derive(Debug, Args)]
struct LabRun {
    #[command(flatten)]
    names: Names,
    /// Run the full form, as the published tables' rules ask; it can take hours
    #[arg(long)]
    full: bool,
    /// Publish the small form, too, in --results
    #[arg(long)]
    publish: bool,
    /// Begin again instead of continuing an interrupted run
    #[arg(long)]
    fresh: bool,
}

pub fn run(lab: &Lab) -> anyhow::Result<()> {
    let absolute = |path: &Path| {
        let path = std::path::absolute(path);
        path.context("cannot read the working directory")
    };
    let places = Places {
        lab: absolute(&lab.lab)?,
        work: absolute(&lab.work)?,
        repository: absolute(Path::new("."))?,
        surus: absolute(&lab.surus)?,
    };
    match &lab.command {
        Command::List => list(&places),
        Command::Check => {
            check(&places)?;
            let results = absolute(&lab.results)?;
            history::check(&places, &results)?;
            documents::check(&places, &all(&places)?, &results)
        }
        Command::Start(start) => {
            let experiment = Experiment::read(&places, &start.experiment)?;
            ensure_surus(&places)?;
            interrupt::remember()?;
            let load = start.load.as_deref();
            starting::run(&places, &experiment, &start.contestant, load)
        }
        Command::Run(run) => run_all(&places, run, &lab.results),
        Command::Render(names) => {
            let experiments = experiments(&places, names)?;
            for experiment in &experiments {
                write_pages(&places, experiment, &lab.results)?;
            }
            write_documents(&places, &lab.results)
        }
    }
}

fn experiments(places: &Places, names: &Names) -> anyhow::Result<Vec<Experiment>> {
    let names = match names.names.is_empty() {
        true => places.names("experiments")?,
        false => names.names.clone(),
    };
    ensure!(
        !names.is_empty(),
        "there is no experiment in {} (--lab)",
        places.lab.display()
    );
    names
        .iter()
        .map(|name| Experiment::read(places, name))
        .collect()
}

fn all(places: &Places) -> anyhow::Result<Vec<Experiment>> {
    experiments(places, &Names { names: Vec::new() })
}

fn list(places: &Places) -> anyhow::Result<()> {
    for experiment in all(places)? {
        let minutes = [Size::Small, Size::Full].map(|size| *experiment.minutes.at(size));
        println!(
            "{:<16} {:>4} min, full {:>4} min  {}",
            experiment.name, minutes[0], minutes[1], experiment.title
        );
    }
    Ok(())
}

/// Reads every file, those included that no experiment uses.
fn check(places: &Places) -> anyhow::Result<()> {
    for experiment in all(places)? {
        Table::read(places, &experiment)?;
        for load in &experiment.loads {
            let application = experiment.application(load);
            if !application.is_empty() {
                Application::read(places, application)?.check_words(&Words::for_run())?;
            }
        }
        for entry in &experiment.contestants {
            check_entry(places, entry).with_context(|| {
                let file = places.lab.join("experiments").join(&experiment.name);
                file.with_extension("toml").display().to_string()
            })?;
        }
    }
    for name in places.names("contestants")? {
        Manifest::read(places, &name)?;
    }
    for name in places.names("applications")? {
        Application::read(places, &name)?;
    }
    Ok(())
}

fn check_entry(places: &Places, entry: &Entry) -> anyhow::Result<()> {
    let manifest = Manifest::read(places, &entry.uses)?;
    manifest.check_words(&manifest.words(entry, &Words::for_run())?)
}

fn run_all(places: &Places, run: &LabRun, results: &Path) -> anyhow::Result<()> {
    let experiments = experiments(places, &run.names)?;
    check(places)?;
    ensure_surus(places)?;
    interrupt::remember()?;
    // A load may have thousands of connections. Servers inherit the limit.
    let _ = surus_sys::process::raise_open_files();
    let size = if run.full { Size::Full } else { Size::Small };
    let to = match run.full || run.publish {
        true => results.to_path_buf(),
        false => places.work.join("results"),
    };
    let mut batch = Batch::begin(places, &experiments, size, run.fresh)?;
    for (index, experiment) in experiments.iter().enumerate() {
        if batch.has(experiment) {
            eprintln!("{}: finished before the interruption", experiment.name);
            continue;
        }
        eprintln!("{} ({size}): {}", experiment.name, experiment.title);
        let rest = experiments[index..].iter().filter(|one| !batch.has(one));
        let all: f64 = rest.map(|one| one.minutes.at(size)).sum();
        let minutes = experiment.minutes.at(size);
        eprintln!("  about {minutes} min of {all:.1} for everything that is left");
        let state = rounds::state_file(places, experiment, size);
        let results = rounds::run(places, experiment, size, run.fresh)?;
        publish(places, experiment, &results, &to)?;
        let seconds = results.seconds.unwrap_or(0.0);
        batch.add(experiment, seconds)?;
        std::fs::remove_file(&state)
            .with_context(|| format!("cannot remove {}", state.display()))?;
        eprintln!("  took {:.1} min", seconds / 60.0);
    }
    let seconds = batch.end();
    if size == Size::Small && run.names.names.is_empty() {
        let small = SmallForm::new(rounds::today(), rounds::revision(places), seconds);
        small.write(&to)?;
    }
    write_documents(places, &to)
}

/// Writes the pages of the newest results of an experiment. Without any, says how to run it.
fn write_pages(places: &Places, experiment: &Experiment, directory: &Path) -> anyhow::Result<()> {
    let pages = render::newest(places, experiment, directory)?;
    if pages.is_empty() {
        let command = experiment.command(Size::Full);
        eprintln!("  {}: not run yet; `{command}` runs it", experiment.name);
    }
    document::write(pages)
}

fn write_documents(places: &Places, directory: &Path) -> anyhow::Result<()> {
    document::write(documents::quoting(places, &all(places)?, directory)?)
}

fn ensure_surus(places: &Places) -> anyhow::Result<()> {
    ensure!(
        places.surus.is_file(),
        "there is no {}; run `make build`, or name the program with --surus",
        places.surus.display()
    );
    Ok(())
}

fn publish(
    places: &Places,
    experiment: &Experiment,
    results: &Results,
    to: &Path,
) -> anyhow::Result<()> {
    let name = format!("{}-{}.json", results.date, results.size);
    let file = to.join(&experiment.name).join(name);
    results.write(&file)?;
    write_pages(places, experiment, to)
}

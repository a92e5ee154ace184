//! Runs an experiment: prepares its contestants, then lets them take turns, round by round. Each
//! finished round is kept, so that an interrupted run continues.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};
use surus_load::Plan;
use surus_measure::{Machine, Rounds};

use crate::build;
use crate::captions::Captions;
use crate::disturbance::DisturbedTurn;
use crate::experiment::{Experiment, Load};
use crate::files::Places;
use crate::fingerprint;
use crate::interrupt;
use crate::lambda_reports::{self, EventReport};
use crate::length::Size;
use crate::measuring::{LONGEST_WORK, Meanwhile, measure, settle, until_idle, warm_up};
use crate::others::Span;
use crate::preparing::{Ready, applications, prepare};
use crate::progress::RunProgress;
use crate::quantity::{Quantity, Sample};
use crate::repeating;
use crate::resting;
use crate::results::{Facts, Results, Round, Turn};
use crate::server::Server;
use crate::words::Words;

/// The home page of contestants that are Surus.
const OWN_HOME: &str = "this repository";

/// How often a load is measured at most, until no environment of a function starts meanwhile.
const MAX_ATTEMPTS: usize = 4;

/// Runs an experiment to its end, from the last finished round on unless `is_fresh`.
pub fn run(
    places: &Places,
    experiment: &Experiment,
    size: Size,
    is_fresh: bool,
) -> anyhow::Result<Results> {
    let began = Instant::now();
    // PHP changes its user, who must be able to read what it runs.
    let scratch = tempfile::Builder::new().prefix("surus-lab-").tempdir()?;
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o755))?;
    let mut services = Vec::new();
    let loads = &experiment.loads;
    let applications = applications(places, experiment, loads, scratch.path(), &mut services)?;
    let mut facts = BTreeMap::new();
    let mut ready = Vec::new();
    for entry in &experiment.contestants {
        interrupt::check()?;
        let (fact, contestant) = prepare(places, entry, &applications)?;
        if let Some(reason) = &fact.absent {
            eprintln!("  {}: not measured: {reason}", entry.name);
        }
        facts.insert(entry.name.clone(), fact);
        ready.extend(contestant);
    }
    let state = state_file(places, experiment, size);
    let mut results = begin(places, experiment, size, facts, &state, is_fresh)?;
    let mut progress = RunProgress::new(&results, ready.len());
    let before = results.seconds.unwrap_or(0.0);
    let measuring = Measuring {
        experiment,
        size,
        scratch: scratch.path(),
    };
    loop {
        let again = |results: &Results, disturbed: &DisturbedTurn| {
            measuring.again(&ready, results, disturbed, &mut progress)
        };
        repeating::repeat(&mut results, again, |results| results.write(&state))?;
        results.seconds = Some(before + began.elapsed().as_secs_f64());
        if results.rounds.len() >= results.wanted {
            break;
        }
        let (round, commands) = measuring.one_round(&ready, &results, &mut progress)?;
        for (name, commands) in commands {
            if let Some(facts) = results.contestants.get_mut(name)
                && facts.commands.is_empty()
            {
                facts.commands = commands;
            }
        }
        ensure_own_are_measured(&ready, &round)?;
        results.rounds.push(round);
        results.seconds = Some(before + began.elapsed().as_secs_f64());
        say_given_up(experiment, &results, &progress);
        results.write(&state)?;
    }
    Ok(results)
}

/// Fails if no contestant of this repository could be measured: the rest of the run would be of
/// others only.
fn ensure_own_are_measured(ready: &[Ready<'_>], round: &Round) -> anyhow::Result<()> {
    let is_own = |turn: &&Turn| {
        let contestant = ready.iter().find(|it| it.entry.name == turn.contestant);
        contestant.is_some_and(|contestant| contestant.manifest.home == OWN_HOME)
    };
    let mut reason = None;
    for turn in round.turns.iter().filter(is_own) {
        if !turn.samples.is_empty() {
            return Ok(());
        }
        reason = reason.or_else(|| turn.failures.values().next());
    }
    match reason {
        Some(reason) => bail!("no contestant of {OWN_HOME} could be measured: {reason}"),
        None => Ok(()),
    }
}

/// Tells which contestants the last round was the last try of.
fn say_given_up(experiment: &Experiment, results: &Results, progress: &RunProgress) {
    let Some(round) = results.rounds.last() else {
        return;
    };
    if results.rounds.len() == results.wanted {
        return;
    }
    for turn in &round.turns {
        for load in turn.failures.keys() {
            if results.is_given_up(&turn.contestant, load) {
                let rounds = results.failures(&turn.contestant, load);
                let title = experiment.loads.iter().find(|it| it.name == *load);
                let title = title.map_or(load.as_str(), |load| &load.title);
                progress.print(
                    &turn.contestant,
                    &format!("{title}: failed in {rounds} rounds, not tried again"),
                );
            }
        }
    }
}

/// Where an unfinished run is kept.
pub fn state_file(places: &Places, experiment: &Experiment, size: Size) -> PathBuf {
    places.work.join(format!("{}-{size}.json", experiment.name))
}

/// The state of an interrupted run of the same kind, or a new one.
fn begin(
    places: &Places,
    experiment: &Experiment,
    size: Size,
    contestants: BTreeMap<String, Facts>,
    state: &Path,
    is_fresh: bool,
) -> anyhow::Result<Results> {
    let fingerprint = fingerprint::of(places, experiment, &contestants)?;
    let machine = Machine::this();
    if state.exists() && !is_fresh {
        let found = Results::read(state)
            .with_context(|| format!("remove {} or use --fresh", state.display()))?;
        if found.fingerprint == fingerprint && found.machine == machine {
            eprintln!(
                "  continuing after round {} of {}",
                found.rounds.len(),
                found.wanted
            );
            return Ok(found);
        }
        let old = state.with_extension("old.json");
        std::fs::rename(state, &old)?;
        let what = match found.machine == machine {
            true => "the experiment, a contestant or surus has changed".into(),
            false => format!(
                "the earlier rounds are of another machine: {}",
                found.machine
            ),
        };
        eprintln!(
            "  beginning again: {what}; the earlier rounds are in {}",
            old.display()
        );
    }
    Ok(Results {
        experiment: experiment.name.clone(),
        size,
        date: today(),
        command: experiment.command(size),
        revision: revision(places),
        machine,
        captions: Some(Captions::of(experiment, size)),
        contestants,
        fingerprint,
        seconds: None,
        wanted: *experiment.rounds.at(size),
        rounds: Vec::new(),
    })
}

pub fn today() -> String {
    build::first_line(&["date".into(), "-u".into(), "+%F".into()])
}

/// The commit, and `-dirty` if a file differs from it that the lab has not written itself, or is
/// in no commit.
pub fn revision(places: &Places) -> String {
    let own = [":!docs/results", ":!README.md", ":!docs/performance*.md"];
    let changed = Command::new("git")
        .current_dir(&places.repository)
        .args(["status", "--porcelain", "--", "."])
        .args(own)
        .output();
    let repository = places.repository.display().to_string();
    let describe = ["git", "-C", &repository, "describe", "--always"];
    let commit = build::first_line(&describe.map(String::from));
    match changed {
        Ok(changed) if changed.status.success() && changed.stdout.is_empty() => commit,
        _ => format!("{commit}-dirty"),
    }
}

/// What is the same in all rounds of a run.
struct Measuring<'a> {
    experiment: &'a Experiment,
    size: Size,
    /// Where servers have their files.
    scratch: &'a Path,
}

impl Measuring<'_> {
    /// Measures each contestant. Returns also with which commands each was started.
    fn one_round<'a>(
        &self,
        ready: &[Ready<'a>],
        results: &Results,
        progress: &mut RunProgress,
    ) -> anyhow::Result<(Round, BTreeMap<&'a str, Vec<String>>)> {
        let mut round = Round {
            load_average: load_average(),
            turns: Vec::new(),
            repeated: Vec::new(),
        };
        let mut started = BTreeMap::<_, Vec<String>>::new();
        for index in Rounds::order(ready.len(), results.rounds.len()) {
            let contestant = &ready[index];
            let (turn, commands) = self.one_turn(contestant, results, progress)?;
            let name = contestant.entry.name.as_str();
            started.entry(name).or_default().extend(commands);
            progress.turn_ended();
            round.turns.push(turn);
        }
        progress.round_ended();
        Ok((round, started))
    }

    /// Repeats a turn that others have disturbed.
    fn again(
        &self,
        ready: &[Ready<'_>],
        results: &Results,
        disturbed: &DisturbedTurn,
        progress: &mut RunProgress,
    ) -> anyhow::Result<Turn> {
        let name = &disturbed.contestant;
        // One that was there in an earlier round may be missing after an interruption.
        let contestant = ready.iter().find(|it| it.entry.name == *name);
        let contestant = contestant.with_context(|| format!("{name} can no longer be measured"))?;
        progress.repeat(disturbed.round);
        let (others, loads) = (disturbed.others, disturbed.loads.join(", "));
        let why = format!("{loads}: other processes used {others:.0} % of the CPUs; repeated");
        progress.print(name, &why);
        let turn = self.one_turn(contestant, results, progress);
        progress.repeated();
        Ok(turn?.0)
    }

    /// Measures a contestant. Returns also with which commands it was started.
    fn one_turn(
        &self,
        contestant: &Ready<'_>,
        results: &Results,
        progress: &RunProgress,
    ) -> anyhow::Result<(Turn, Vec<String>)> {
        let (experiment, number) = (self.experiment, results.rounds.len());
        let name = contestant.entry.name.as_str();
        let mut turn = Turn::new(name);
        let mut commands = Vec::new();
        for (application, words) in &contestant.words {
            // A load that has failed twice and was never measured is not tried again.
            let loads = experiment.loads.iter().filter(|load| {
                experiment.application(load) == *application
                    && load.is_for(name)
                    && !load.skips.contains_key(name)
                    && !results.is_given_up(name, &load.name)
            });
            let loads: Vec<_> = loads.collect();
            let directory = self.scratch.join(format!("{name}-{application}-{number}"));
            let words = words.as_ref().map_err(|reason| anyhow::anyhow!("{reason}"));
            let done = words.and_then(|words| {
                let size = self.size;
                let server = one_start(
                    contestant, words, &loads, size, &directory, &mut turn, progress,
                )?;
                commands.extend(server);
                Ok(())
            });
            interrupt::check()?;
            if let Err(error) = done {
                let reason = format!("{error:#}");
                progress.print(name, &format!("not measured: {reason}"));
                for load in &loads {
                    turn.failures.insert(load.name.clone(), reason.clone());
                }
            }
            // A server's files are of no use after its turn.
            let _ = std::fs::remove_dir_all(&directory);
        }
        Ok((turn, commands))
    }
}

/// Starts a contestant, measures it under each load, and stops it: it is alone on the machine.
/// Returns the commands that started it.
fn one_start(
    contestant: &Ready,
    words: &Words,
    loads: &[&Load],
    size: Size,
    directory: &Path,
    turn: &mut Turn,
    progress: &RunProgress,
) -> anyhow::Result<Vec<String>> {
    let Some(first) = loads.first() else {
        return Ok(Vec::new());
    };
    let span = Span::begin();
    let server = Server::start(&contestant.manifest, words, directory, first)?;
    settle(&server.pids()).context("after its start")?;
    let mut is_settled = true;
    for load in loads {
        let name = &contestant.entry.name;
        match one_load(&server, load, size, &mut is_settled) {
            Ok(sample) => {
                progress.print(name, &describe_sample(&load.name, &sample));
                turn.samples.insert(load.name.clone(), sample);
            }
            Err(error) => {
                interrupt::check()?;
                let reason = format!("{error:#}; it said: {}", server.output());
                progress.print(name, &format!("{}: not measured: {reason}", load.name));
                turn.failures.insert(load.name.clone(), reason);
            }
        }
    }
    // Loads that are too short to tell are judged by the whole start.
    if let Some(others) = span.others() {
        for load in loads {
            if let Some(sample) = turn.samples.get_mut(&load.name) {
                sample.entry(Quantity::Others).or_insert(others);
            }
        }
    }
    Ok(server.commands.clone())
}

/// Measures a load. `is_settled` says whether the server has done with the requests of the load
/// before, and then whether it has done with those of this one.
fn one_load(
    server: &Server,
    load: &Load,
    size: Size,
    is_settled: &mut bool,
) -> anyhow::Result<Sample> {
    if !std::mem::replace(is_settled, false) {
        until_idle(&server.pids(), LONGEST_WORK).context("after the load before")?;
    }
    if let (true, Some(length)) = (load.rests, load.length.at(size).time()) {
        let sample = resting::measure(load, server.port, server.pids(), length)?;
        *is_settled = true;
        return Ok(sample);
    }
    let plan = load.plan(server.port, size)?;
    let mut first = plan.clone();
    first.stop = load.warm_up.at(size).stop();
    let meanwhile = load
        .meanwhile(server.port)?
        .map(Meanwhile::start)
        .transpose()?;
    warm_up(&first, load, &server.pids()).context("warm-up")?;
    let first_event = lambda_reports::read(server.log())?.first().copied();
    let (mut sample, events) = measured_warm(server, &plan, load, is_settled)?;
    drop(meanwhile);
    sample.insert(Quantity::Start, server.start.as_secs_f64() * 1000.0);
    // The first event was the one that tells whether the server is ready.
    if let Some(first) = first_event {
        sample.insert(Quantity::Cold, first.init + first.duration);
        lambda_reports::add(&mut sample, &events);
    }
    Ok(sample)
}

/// Measures a load, and once more if a function has started an environment meanwhile: an event came
/// before another environment had asked for its next one. Returns also the events.
fn measured_warm(
    server: &Server,
    plan: &Plan,
    load: &Load,
    is_settled: &mut bool,
) -> anyhow::Result<(Sample, Vec<EventReport>)> {
    let mut attempt = 1;
    loop {
        let before = lambda_reports::read(server.log())?.len();
        let (sample, has_work_left) = measure(plan, load, server.pids())?;
        *is_settled = !has_work_left;
        let events = lambda_reports::read(server.log())?.split_off(before);
        if attempt == MAX_ATTEMPTS || !lambda_reports::has_stray_start(&events) {
            return Ok((sample, events));
        }
        attempt += 1;
    }
}

fn describe_sample(load: &str, sample: &Sample) -> String {
    let text = |quantity: Quantity| {
        let value = sample.get(&quantity);
        value.map_or("?".into(), |value| quantity.unit().write(*value))
    };
    let (rate, p99) = (text(Quantity::Rate), text(Quantity::P99));
    format!("{load}: {rate}, p99 {p99}, CPU {}", text(Quantity::Cpu))
}

fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text
        .split(' ')
        .next()
        .and_then(|number| number.parse().ok());
    first.unwrap_or(0.0)
}

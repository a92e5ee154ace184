//! Runs an experiment: prepares its contestants, then lets them take turns, round by round. Each
//! finished round is kept, so that an interrupted run continues.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use surus_measure::{Machine, Rounds};

use crate::application::Application;
use crate::build;
use crate::contestant::Manifest;
use crate::experiment::{Entry, Experiment};
use crate::files::Places;
use crate::interrupt;
use crate::length::Size;
use crate::measuring::measure;
use crate::quantity::Quantity;
use crate::results::{Facts, Results, Round, Turn};
use crate::server::Server;
use crate::words::Words;

/// A contestant that can be measured.
struct Ready<'a> {
    entry: &'a Entry,
    manifest: Manifest,
    words: Words,
}

/// Runs an experiment to its end, from the last finished round on unless `is_fresh`.
pub fn run(
    places: &Places,
    experiment: &Experiment,
    size: Size,
    is_fresh: bool,
) -> anyhow::Result<Results> {
    // PHP changes its user, who must be able to read what it runs.
    let scratch = tempfile::Builder::new().prefix("surus-lab-").tempdir()?;
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o755))?;
    let mut words = words(places);
    let application = application(places, experiment, scratch.path(), &mut words)?;
    let mut facts = BTreeMap::new();
    let mut ready = Vec::new();
    for entry in &experiment.contestants {
        interrupt::check()?;
        let manifest = Manifest::read(places, &entry.uses)?;
        let to = places.work.join("contestants").join(&entry.uses);
        words.set("build", to.display());
        let words = manifest.words(entry, &words)?;
        let absent = match &application {
            Err(reason) => Some(reason.clone()),
            Ok(()) => absent(&manifest, &words, &to)?,
        };
        if let Some(reason) = &absent {
            eprintln!("  {}: not measured: {reason}", entry.name);
        }
        facts.insert(
            entry.name.clone(),
            describe(entry, &manifest, &words, absent.clone())?,
        );
        if absent.is_none() {
            ready.push(Ready {
                entry,
                manifest,
                words,
            });
        }
    }
    let state = state_file(places, experiment, size);
    let mut results = begin(places, experiment, size, facts, &state, is_fresh)?;
    let mut progress = Progress::new(&results, ready.len());
    while results.rounds.len() < results.wanted {
        let round = one_round(
            experiment,
            size,
            &ready,
            &results,
            scratch.path(),
            &mut progress,
        )?;
        results.rounds.push(round);
        results.write(&state)?;
    }
    Ok(results)
}

/// Where an unfinished run is kept.
pub fn state_file(places: &Places, experiment: &Experiment, size: Size) -> PathBuf {
    places.work.join(format!("{}-{size}.json", experiment.name))
}

fn words(places: &Places) -> Words {
    let mut words = Words::default();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    words.set("surus", places.surus.display());
    words.set("repository", places.repository.display());
    words.set("cpus", cpus);
    words.set("php", php_version());
    words
}

/// The version of the PHP that Surus was built for, such as 8.2: Debian's programs have it in their
/// names.
fn php_version() -> String {
    let config = std::env::var("PHP_CONFIG").unwrap_or_else(|_| "php-config".into());
    let version = build::first_line(&[config, "--version".into()]);
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}

/// Makes the application; the inner error says what it lacks.
fn application(
    places: &Places,
    experiment: &Experiment,
    scratch: &Path,
    words: &mut Words,
) -> anyhow::Result<Result<(), String>> {
    let Some(name) = &experiment.application else {
        return Ok(Ok(()));
    };
    let application = Application::read(places, name)?;
    if let Some(reason) = build::missing(&application.needs, words)? {
        return Ok(Err(reason));
    }
    application.make(places, &scratch.join("app"), words)?;
    Ok(Ok(()))
}

/// Why a contestant cannot be measured; `None` once it is built.
fn absent(manifest: &Manifest, words: &Words, to: &Path) -> anyhow::Result<Option<String>> {
    if let Some(reason) = build::missing(&manifest.needs, words)? {
        return Ok(Some(reason));
    }
    let built = build::build(manifest, words, to);
    interrupt::check()?;
    Ok(built
        .err()
        .map(|error| format!("cannot be built: {error:#}")))
}

fn describe(
    entry: &Entry,
    manifest: &Manifest,
    words: &Words,
    absent: Option<String>,
) -> anyhow::Result<Facts> {
    let version = |command: &Vec<String>| Ok(build::first_line(&words.command(command)?));
    let versions = match &absent {
        None => manifest
            .version
            .iter()
            .map(version)
            .collect::<anyhow::Result<_>>()?,
        Some(_) => Vec::new(),
    };
    // Paths of this machine say nothing; values of the experiment do.
    let mut values = Words::default();
    for (word, value) in manifest.values.iter().chain(&entry.values) {
        values.set(word, value);
    }
    let commands = manifest.start.iter();
    Ok(Facts {
        title: entry.title.clone(),
        licence: manifest.licence.clone(),
        home: manifest.home.clone(),
        versions,
        commands: commands
            .map(|command| values.fill_file(&command.join(" ")))
            .collect(),
        absent,
    })
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
    let fingerprint = fingerprint(places, experiment, &contestants)?;
    if state.exists() && !is_fresh {
        let found = Results::read(state)
            .with_context(|| format!("remove {} or use --fresh", state.display()))?;
        if found.fingerprint == fingerprint {
            eprintln!(
                "  continuing after round {} of {}",
                found.rounds.len(),
                found.wanted
            );
            return Ok(found);
        }
        let old = state.with_extension("old.json");
        std::fs::rename(state, &old)?;
        eprintln!(
            "  beginning again: the experiment, a contestant or surus has changed; the earlier \
             rounds are in {}",
            old.display()
        );
    }
    let full = if size == Size::Full { " FULL=1" } else { "" };
    Ok(Results {
        experiment: experiment.name.clone(),
        size,
        date: build::first_line(&["date".into(), "-u".into(), "+%F".into()]),
        command: format!("make lab EXPERIMENT={}{full}", experiment.name),
        revision: revision(places),
        machine: Machine::this(),
        contestants,
        fingerprint,
        wanted: *experiment.rounds.of(size),
        rounds: Vec::new(),
    })
}

fn revision(places: &Places) -> String {
    let repository = places.repository.display().to_string();
    let command = ["git", "-C", &repository, "describe", "--always", "--dirty"];
    build::first_line(&command.map(String::from))
}

/// A hash of everything that the numbers depend on.
fn fingerprint(
    places: &Places,
    experiment: &Experiment,
    contestants: &BTreeMap<String, Facts>,
) -> anyhow::Result<String> {
    let mut paths = vec![places.find("experiments", &experiment.name, ".toml")?];
    if let Some(name) = &experiment.application {
        paths.push(places.lab.join("applications").join(name));
    }
    for entry in &experiment.contestants {
        paths.push(places.lab.join("contestants").join(&entry.uses));
    }
    if places.surus.is_file() {
        paths.push(places.surus.clone());
    }
    let paths: Vec<_> = paths.iter().map(PathBuf::as_path).collect();
    Ok(format!(
        "{} {}",
        build::hash(&paths)?,
        serde_json::to_string(contestants)?.len()
    ))
}

fn one_round(
    experiment: &Experiment,
    size: Size,
    ready: &[Ready],
    results: &Results,
    scratch: &Path,
    progress: &mut Progress,
) -> anyhow::Result<Round> {
    let number = results.rounds.len();
    let mut round = Round {
        load_average: load_average(),
        turns: Vec::new(),
    };
    for index in Rounds::order(ready.len(), number) {
        let contestant = &ready[index];
        let name = &contestant.entry.name;
        // One that has never been measured is not tried again.
        let has_failed = number > 0 && results.turns(name).all(|turn| turn.samples.is_empty());
        let mut turn = Turn {
            contestant: name.clone(),
            samples: BTreeMap::new(),
            failure: None,
        };
        if !has_failed {
            let directory = scratch.join(format!("{name}-{number}"));
            let done = one_turn(
                experiment, size, contestant, &directory, &mut turn, progress,
            );
            interrupt::check()?;
            turn.failure = done.err().map(|error| format!("{error:#}"));
            if let Some(failure) = &turn.failure {
                progress.say(name, &format!("not measured: {failure}"));
            }
            // What a server writes is of no use after its turn.
            let _ = std::fs::remove_dir_all(&directory);
        }
        progress.turn_ended();
        round.turns.push(turn);
    }
    progress.round_ended();
    Ok(round)
}

/// Starts a contestant, measures it under each load, and stops it: it is alone on the machine.
fn one_turn(
    experiment: &Experiment,
    size: Size,
    contestant: &Ready,
    directory: &Path,
    turn: &mut Turn,
    progress: &Progress,
) -> anyhow::Result<()> {
    let first = experiment.loads.first().map_or("/", |load| &load.path);
    let server = Server::start(&contestant.manifest, &contestant.words, directory, first)?;
    for load in &experiment.loads {
        let plan = load.plan(server.port, size)?;
        let mut warm_up = plan.clone();
        warm_up.stop = load.warm_up.of(size).stop();
        let said = || format!("{}; it said: {}", load.name, server.said());
        measure(&warm_up, server.pids()).with_context(said)?;
        let mut sample = measure(&plan, server.pids()).with_context(said)?;
        sample.insert(Quantity::Start, server.start.as_secs_f64() * 1000.0);
        let text = |quantity: Quantity| {
            let value = sample.get(&quantity);
            value.map_or("?".into(), |value| quantity.unit().write(*value))
        };
        let (rate, p99) = (text(Quantity::Rate), text(Quantity::P99));
        let line = format!(
            "{}: {rate}, p99 {p99}, CPU {}",
            load.name,
            text(Quantity::Cpu)
        );
        progress.say(&contestant.entry.name, &line);
        turn.samples.insert(load.name.clone(), sample);
    }
    Ok(())
}

fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text
        .split(' ')
        .next()
        .and_then(|number| number.parse().ok());
    first.unwrap_or(0.0)
}

/// Says on stderr what has been measured and how much is left.
struct Progress {
    round: usize,
    wanted: usize,
    turns: usize,
    /// Turns of this process, which says how long one takes.
    ended: usize,
    turn: usize,
    began: Instant,
}

impl Progress {
    fn new(results: &Results, turns: usize) -> Progress {
        let (round, wanted) = (results.rounds.len(), results.wanted);
        Progress {
            round,
            wanted,
            turns,
            ended: 0,
            turn: 0,
            began: Instant::now(),
        }
    }

    fn say(&self, contestant: &str, line: &str) {
        let (round, turn) = (self.round + 1, self.turn + 1);
        let left = self.left().map_or(String::new(), |left| {
            format!(
                "  [{}:{:02} left]",
                left.as_secs() / 60,
                left.as_secs() % 60
            )
        });
        let (wanted, turns) = (self.wanted, self.turns);
        eprintln!("  round {round}/{wanted}  {turn}/{turns} {contestant}  {line}{left}");
    }

    fn left(&self) -> Option<Duration> {
        let all = self.wanted.saturating_sub(self.round) * self.turns;
        let each = self
            .began
            .elapsed()
            .checked_div(u32::try_from(self.ended).ok()?)?;
        Some(each * u32::try_from(all.saturating_sub(self.turn)).ok()?)
    }

    fn turn_ended(&mut self) {
        self.turn += 1;
        self.ended += 1;
    }

    fn round_ended(&mut self) {
        self.round += 1;
        self.turn = 0;
    }
}

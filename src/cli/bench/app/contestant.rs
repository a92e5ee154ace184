//! An engine in `surus bench app`: how it is started, its state and its measurements.

use std::path::{Path, PathBuf};
use std::time::Duration;

use surus_load::RunOutcome;
use surus_measure::{Latencies, Usage, rounds};

use super::answers::{AnswerDifference, Answers, Requests};
use super::server::{Launch, Server, StartFailure};
use crate::cli::boot_script;
use crate::cli::engine_setup;
use crate::cli::entry_script;
use crate::cli::warm_ups;
use crate::config::Config;
use crate::engines::{self, EngineEntry, PhpProgram};

#[derive(Debug)]
pub struct Contestant {
    pub entry: &'static EngineEntry,
    /// The PHP file to run, if it is not that of the configuration.
    pub script: Option<PathBuf>,
    /// Whether the application needs an engine that boots its script, and this one does not.
    pub lacks_boot: bool,
    /// URLs to request once after the boot. Empty if the engine boots no script, if the
    /// application can have no warm-ups, if the configuration has some, or for the reason of
    /// `cold_because`.
    pub warmup: Vec<String>,
    /// Why there is no warm-up although the engine could have one.
    pub cold_because: Option<&'static str>,
    pub answers: Answers,
    /// How long its start and its end take.
    pub overhead: Duration,
    pub state: State,
    /// A request that failed under load.
    pub failure: Option<String>,
    pub samples: Samples,
    /// Latencies of the last round.
    pub latencies: Option<Latencies>,
    /// Whether the generator was the limit of a round.
    pub was_generator_limited: bool,
    /// Whether Surus does not start its PHP processes, so that CPU time and memory are not known.
    pub runs_elsewhere: bool,
    /// The most PHP processes that it has: the workers, and the spare ones of an engine whose
    /// processes serve one request each.
    pub processes: usize,
}

/// Whether an engine runs the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Its answers are those of the reference, as far as is known.
    Same,
    /// It answers, and this is the first difference.
    Differs(AnswerDifference),
    /// It does not run the application, for this reason.
    Fails(String),
}

/// A sample per round, if there is one.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    /// Requests per second.
    pub rate: Vec<f64>,
    /// Microseconds of CPU per request. A round with too little CPU time has none.
    pub cpu: Vec<f64>,
    /// Milliseconds. A round without an expected response has none.
    pub p99: Vec<f64>,
    /// Bytes per PHP process.
    pub memory: Vec<f64>,
    /// Seconds from the start of the server to the end of its first answer.
    pub cold_start: Vec<f64>,
}

impl Contestant {
    pub fn new(
        entry: &'static EngineEntry,
        project: &Path,
        config: &Config,
        named: Option<&PathBuf>,
        requests: &Requests,
        concurrency: usize,
    ) -> anyhow::Result<Contestant> {
        let mut config = config.clone();
        config.engine.name = Some(entry.name.into());
        let script = script(entry, project, &config);
        let needs_boot = script.is_none() && entry_script::needs_boot(project, &config);
        let application = configuration(entry, project, &config).application;
        let can_warm_up = entry.boots_script()
            && !boot_script::find(&application).is_some_and(boot_script::is_checkpoint);
        let warmup = match can_warm_up && config.engine.warmup.urls().is_empty() {
            true => warmup(project, &config, requests),
            false => Vec::new(),
        };
        Ok(Contestant {
            entry,
            script: script.or(named.cloned()),
            lacks_boot: needs_boot && !entry.boots_script(),
            warmup,
            cold_because: None,
            answers: Answers::default(),
            overhead: Duration::ZERO,
            state: State::Same,
            failure: None,
            samples: Samples::default(),
            latencies: None,
            was_generator_limited: false,
            runs_elsewhere: entry.name == "fpm" && config.engine.php_fpm_address.is_some(),
            processes: processes(entry, &config, concurrency)?,
        })
    }

    pub fn runs(&self) -> bool {
        !matches!(self.state, State::Fails(_))
    }

    /// Whether it runs the application and no request failed under load. Failed requests are cheap,
    /// so without this its rate and CPU time say nothing.
    pub fn serves(&self) -> bool {
        self.runs() && self.failure.is_none()
    }

    /// Starts the application on this engine.
    pub fn start(&self, launch: &Launch) -> Result<Server, StartFailure> {
        Server::start(launch, self.entry.name, self.script.as_ref(), &self.warmup)
    }

    /// Starts it without a warm-up, which is a request and may leave something behind.
    pub fn start_cold(&self, launch: &Launch) -> Result<Server, StartFailure> {
        Server::start(launch, self.entry.name, self.script.as_ref(), &[])
    }

    /// Adds what a round has shown.
    pub fn record(&mut self, outcome: &RunOutcome, usage: Option<&Usage>) {
        let requests = outcome.totals.requests;
        self.samples.rate.push(outcome.rate());
        if outcome.totals.responses > 0 {
            self.samples.p99.push(outcome.latencies.percentile_ms(99.0));
        }
        self.was_generator_limited |= outcome.is_generator_limited();
        let Some(usage) = usage.filter(|_| !self.runs_elsewhere) else {
            return;
        };
        self.samples.cpu.extend(usage.cpu_per(requests));
        if let Some(bytes) = usage.peak_pss() {
            self.samples
                .memory
                .push(bytes as f64 / self.processes as f64);
        }
    }

    /// What the rounds so far have shown.
    pub fn measured(&self) -> (Samples, Option<Latencies>) {
        (self.samples.clone(), self.latencies.clone())
    }

    /// Median microseconds of CPU per request, if each round has a sample and no request failed.
    pub fn cpu(&self) -> Option<f64> {
        let is_complete = self.samples.cpu.len() == self.samples.rate.len();
        rounds::median(&self.samples.cpu).filter(|_| is_complete && self.serves())
    }

    /// Whether this engine needs less CPU per request than another in each round, and at most
    /// `share` of it in the median. Without samples, it does not.
    pub fn needs_less_than(&self, other: &Contestant, share: f64) -> bool {
        let (Some(own), Some(others)) = (self.cpu(), other.cpu()) else {
            return false;
        };
        let mut rounds = self.samples.cpu.iter().zip(&other.samples.cpu);
        own <= others * share && rounds.all(|(own, other)| own < other)
    }
}

/// The PHP file that an engine runs, if it is not that of the configuration.
fn script(entry: &EngineEntry, project: &Path, config: &Config) -> Option<PathBuf> {
    match entry.boots_script() {
        true if entry.runs_scripts() => entry_script::unconfigured_worker(project, config),
        true => None,
        false => entry_script::script_without_boot(project, config),
    }
}

/// The most PHP processes that an engine has at this number of connections.
fn processes(entry: &EngineEntry, config: &Config, concurrency: usize) -> anyhow::Result<usize> {
    let most = *engines::process_range(entry, &config.engine)?.end();
    let starts_per_request = entry.serves_one && entry.runs != PhpProgram::SurusPhp;
    Ok(match starts_per_request {
        true => most.min(concurrency),
        false => most,
    })
}

/// The configuration with which an engine's server looks for what answers a path.
pub fn configuration(entry: &EngineEntry, project: &Path, config: &Config) -> Config {
    let mut config = config.clone();
    config.engine.name = Some(entry.name.into());
    config.engine.must_boot = true;
    config.engine.script = script(entry, project, &config).or(config.engine.script);
    engine_setup::look_at_application(project, &mut config);
    config
}

/// The paths that PHP answers, with the host that clients name.
fn warmup(project: &Path, config: &Config, requests: &Requests) -> Vec<String> {
    // If the site cannot be opened, the server reports it.
    let Ok(site) = engine_setup::open_site(project, config) else {
        return Vec::new();
    };
    let url = |path: &String| match requests.host() {
        "localhost" => path.clone(),
        host => format!("http://{host}{path}"),
    };
    let urls = requests.paths.iter().map(url);
    urls.filter(|url| warm_ups::get(url, &site).is_ok())
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn spare_processes_count_where_they_exist() {
        let mut config = Config::default();
        config.engine.fix_workers(4);
        let of = |name, concurrency| {
            let entry = engines::find(name).unwrap();
            processes(entry, &config, concurrency).unwrap()
        };
        for (name, expected) in [("classic", 4), ("fpm", 4), ("fork", 6), ("standby", 6)] {
            assert_eq!(of(name, 4), expected, "{name}");
        }
        // Their processes exist only while there is a request.
        assert_eq!((of("cgi", 4), of("cli", 10)), (4, 6));
    }
}

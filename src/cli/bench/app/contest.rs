//! Runs the engines: first their answers are compared, then they are measured in rounds.

use std::time::{Duration, Instant};

use anyhow::bail;
use surus_load::{RunOutcome, Stop};
use surus_measure::{Rounds, Unit};

use super::Plan;
use super::answers::Answers;
use super::contestant::{Contestant, State};
use super::equal::join_equal;
use super::load;
use super::progress::Steps;
use super::server::{Server, StartFailure};
use crate::cli::bench::{self, interrupt, measuring};

/// Answers of the reference to each path, before and after those of the others.
const REFERENCES: usize = 4;
/// Answers of another engine to each path: at least, and at most.
const ANSWERS: (usize, usize) = (3, 17);
/// After this time, an engine is not asked more often than it must be.
const ASKING: Duration = Duration::from_secs(1);
/// A time with seconds differs between two answers with this distance.
const SECOND: Duration = Duration::from_millis(1100);
/// How long the last answers of a round take, roughly.
const ASKED: Duration = Duration::from_millis(50);
/// How long everything may take, roughly.
const BUDGET: Duration = Duration::from_secs(60);
/// Shortest and longest time of a measurement that is not set.
const LENGTHS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(3));

/// The answers and measurements of all engines. The first is `classic`.
pub struct Contest {
    pub plan: Plan,
    pub contestants: Vec<Contestant>,
    /// The place of the engine with whose answers all others are compared.
    pub reference: usize,
    /// Its answers.
    references: Answers,
    pub rounds: usize,
    /// The round that a signal has cut short, and how many were planned. `rounds` are those before.
    pub cut_short: Option<(usize, usize)>,
    /// Why the answers after load were not compared, although all rounds are finished.
    pub uncompared: Option<String>,
    /// How long each engine was measured in each round.
    pub length: Duration,
    /// Where the first path leads to, if all are redirected.
    pub redirection: Option<String>,
}

pub fn run(plan: Plan, contestants: Vec<Contestant>) -> anyhow::Result<Contest> {
    let began = Instant::now();
    let mut contest = Contest {
        plan,
        contestants,
        reference: 0,
        references: Answers::default(),
        rounds: 0,
        cut_short: None,
        uncompared: None,
        length: LENGTHS.0,
        redirection: None,
    };
    contest.compare()?;
    let running = contest.running();
    let left = BUDGET.saturating_sub(began.elapsed());
    contest.plan_rounds(left, &running);
    let rounds = contest.rounds;
    let steps = Steps::new(rounds * running.len());
    steps.line(&format!(
        "measuring in {rounds} rounds of about {} ms per engine",
        contest.length.as_millis()
    ));
    'rounds: for round in 0..rounds {
        let finished: Vec<_> = contest
            .contestants
            .iter()
            .map(Contestant::measured)
            .collect();
        for place in Rounds::order(running.len(), round) {
            let index = running[place];
            let name = contest.contestants[index].entry.name;
            steps.doing(&format!("round {}/{rounds}  {name}", round + 1));
            if contest.contestants[index].runs() {
                match contest.measure(index, round, &steps) {
                    Err(_) if round > 0 && interrupt::has_come() => {
                        contest.cut_short = Some((round + 1, rounds));
                        contest.rounds = round;
                        // Engines are compared over the same rounds.
                        for (it, measured) in contest.contestants.iter_mut().zip(finished) {
                            (it.samples, it.latencies) = measured;
                        }
                        break 'rounds;
                    }
                    measured => measured?,
                }
            }
            steps.done();
        }
    }
    drop(steps);
    if contest.cut_short.is_some() {
        return Ok(contest);
    }
    // All answers must be framed by those of the reference, because of their dates.
    match contest.ask_reference() {
        Ok(()) => contest.judge(),
        Err(_) if interrupt::has_come() => contest.uncompared = Some("interrupted".into()),
        Err(error) => contest.uncompared = Some(format!("{error:#}")),
    }
    Ok(contest)
}

impl Contest {
    /// Whether the answers after load were compared as well.
    pub fn is_compared_after_load(&self) -> bool {
        self.cut_short.is_none() && self.uncompared.is_none()
    }

    /// Why the report is not whole although all rounds are finished.
    pub fn failure(&self) -> Option<String> {
        let why = self.uncompared.as_ref()?;
        Some(format!("answers after load were not compared: {why}"))
    }

    /// Places of the engines that run the application.
    fn running(&self) -> Vec<usize> {
        let places = 0..self.contestants.len();
        places
            .filter(|index| self.contestants[*index].runs())
            .collect()
    }

    /// Chooses the number of rounds and the length of a measurement, so that all together take the
    /// time that is left.
    fn plan_rounds(&mut self, left: Duration, running: &[usize]) {
        let plan = &self.plan;
        // Besides its measurement, a server is started, warmed up, asked and stopped.
        let rest = |index: &usize| self.contestants[*index].overhead + plan.warm_up + ASKED;
        let round: Duration = running.iter().map(rest).sum();
        let engines = running.len().max(1) as u32;
        let least = round + plan.duration.unwrap_or(LENGTHS.0) * engines;
        let fitting = left.as_secs_f64() / least.as_secs_f64();
        self.rounds = (fitting as usize).clamp(plan.rounds.0, plan.rounds.1);
        self.length = plan.duration.unwrap_or_else(|| {
            let each = (left / self.rounds as u32).saturating_sub(round) / engines;
            each.clamp(LENGTHS.0, LENGTHS.1)
        });
    }

    /// Compares the answers of all engines with those of the reference.
    fn compare(&mut self) -> anyhow::Result<()> {
        let steps = Steps::new(self.contestants.len());
        let began = Instant::now();
        self.choose_reference(&steps)?;
        for index in 0..self.contestants.len() {
            let contestant = &self.contestants[index];
            steps.doing(contestant.entry.name);
            if contestant.runs() {
                let is_warmed_up = !contestant.warmup.is_empty();
                self.ask(index)?;
                if is_warmed_up && !self.contestants[index].runs() {
                    self.ask_without_warmup(index, "it does not boot with one")?;
                }
            }
            steps.done();
        }
        std::thread::sleep(SECOND.saturating_sub(began.elapsed()));
        self.ask_reference()?;
        self.judge();
        for index in 0..self.contestants.len() {
            let contestant = &self.contestants[index];
            if matches!(contestant.state, State::Differs(_)) && !contestant.warmup.is_empty() {
                steps.doing(contestant.entry.name);
                self.ask_without_warmup(index, "its answers differ after one")?;
            }
        }
        let reference = self.contestants[self.reference].entry.name;
        for contestant in &self.contestants {
            let name = contestant.entry.name;
            match &contestant.state {
                State::Same if name == reference => {}
                State::Same => steps.line(&format!("{name:<8} same answers as {reference}")),
                State::Differs(how) => steps.line(&format!("{name:<8} other answers: {how}")),
                State::Fails(_) => {}
            }
        }
        for (names, why) in join_equal(self.failing()) {
            let names = names.join(", ");
            steps.line(&format!("{names:<8} cannot run it: {why}"));
        }
        Ok(())
    }

    /// Chooses `classic`, or the first isolating engine if the application needs to be booted.
    fn choose_reference(&mut self, steps: &Steps) -> anyhow::Result<()> {
        let needs_boot = self.contestants[0].lacks_boot;
        for name in ["classic", "rewind", "fork", "standby", "worker"] {
            let mut all = self.contestants.iter();
            let Some(index) = all.position(|it| it.entry.name == name) else {
                continue;
            };
            steps.doing(name);
            self.reference = index;
            let Some(why) = self.try_reference(steps)? else {
                return Ok(());
            };
            if !needs_boot {
                bail!(
                    "`{name}`, with whose answers all others are compared: {why}; see `surus check \
                     {}`",
                    self.plan.launch.project.display()
                );
            }
            self.contestants[index].state = State::Fails(why);
        }
        let reasons = join_equal(self.failing()).into_iter();
        let reasons = reasons.map(|(names, why)| format!("`{}`: {why}", names.join("`, `")));
        bail!(
            "no engine answers all paths with 2xx or 3xx: {}",
            reasons.collect::<Vec<_>>().join("; ")
        )
    }

    /// The engines that cannot run the application, with the reason.
    fn failing(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.contestants.iter().filter_map(|it| match &it.state {
            State::Fails(why) => Some((it.entry.name, why.clone())),
            _ => None,
        })
    }

    /// Asks the reference for all paths. Returns why it cannot be one.
    fn try_reference(&mut self, steps: &Steps) -> anyhow::Result<Option<String>> {
        let plan = &self.plan;
        let contestant = &self.contestants[self.reference];
        let name = contestant.entry.name;
        let server = match contestant.start_cold(&plan.launch) {
            Ok(server) => server,
            Err(StartFailure::Command(error)) => return Err(error),
            Err(StartFailure::Engine(why)) => {
                return Ok(Some(why));
            }
        };
        let mut answers = Answers::default();
        let mut redirections = Vec::new();
        for (place, path) in plan.requests.paths.iter().enumerate() {
            let answer = plan.requests.ask(server.port, path)?;
            if !answer.is_expected() {
                let reason = server.end();
                let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
                let remedy = match answer.remedy() {
                    "" => {
                        "; name paths that return 2xx or 3xx (--path), and the host if the \
                         application checks it (-H 'Host: …')"
                    }
                    remedy => remedy,
                };
                return Ok(Some(format!(
                    "GET {path} returned {}{reason}{remedy}",
                    answer.status
                )));
            }
            steps.line(&format!(
                "{name:<8} GET {path}: {}, {}",
                answer.status,
                Unit::Bytes.write(answer.length as f64)
            ));
            redirections.push(answer.location.clone());
            answers.add(place, answer);
        }
        self.references = answers;
        if redirections.iter().all(Option::is_some) {
            self.redirection = redirections.swap_remove(0);
        }
        drop(server);
        self.ask_reference()?;
        Ok(None)
    }

    /// Asks the reference again, so that what has changed meanwhile counts as varying. It is
    /// started for each series, so that what it counts since its start is not.
    fn ask_reference(&mut self) -> anyhow::Result<()> {
        let plan = &self.plan;
        let contestant = &self.contestants[self.reference];
        let name = contestant.entry.name;
        let server = match contestant.start_cold(&plan.launch) {
            Ok(server) => server,
            Err(StartFailure::Command(error)) => return Err(error),
            Err(StartFailure::Engine(why)) => bail!("`{name}` did not start again: {why}"),
        };
        for _ in 0..REFERENCES {
            for (place, path) in plan.requests.paths.iter().enumerate() {
                let answer = plan.requests.ask(server.port, path)?;
                if !answer.is_expected() {
                    bail!(
                        "`{name}` returned {} to GET {path} when asked again{}",
                        answer.status,
                        answer.remedy()
                    );
                }
                self.references.add(place, answer);
            }
        }
        Ok(())
    }

    /// Asks an engine again without a warm-up, and leaves it out if that helps.
    fn ask_without_warmup(&mut self, index: usize, why: &'static str) -> anyhow::Result<()> {
        let contestant = &mut self.contestants[index];
        let warmup = std::mem::take(&mut contestant.warmup);
        let answers = std::mem::take(&mut contestant.answers);
        let state = std::mem::replace(&mut contestant.state, State::Same);
        self.ask(index)?;
        if self.contestants[index].runs() {
            self.ask_reference()?;
            self.judge();
        }
        let contestant = &mut self.contestants[index];
        match contestant.state {
            State::Fails(_) | State::Differs(_) => {
                contestant.warmup = warmup;
                contestant.answers = answers;
                contestant.state = state;
            }
            State::Same => contestant.cold_because = Some(why),
        }
        Ok(())
    }

    /// Starts an engine and asks it for all paths.
    fn ask(&mut self, index: usize) -> anyhow::Result<()> {
        let Contest {
            plan, contestants, ..
        } = self;
        let contestant = &mut contestants[index];
        let starting = Instant::now();
        let server = match contestant.start(&plan.launch) {
            Ok(server) => server,
            Err(StartFailure::Command(error)) => return Err(error),
            Err(StartFailure::Engine(why)) => {
                contestant.state = State::Fails(why);
                return Ok(());
            }
        };
        let start = starting.elapsed();
        // So often that a worker process is likely to have served twice.
        let max = (2 * plan.launch.workers + 1).clamp(ANSWERS.0, ANSWERS.1);
        let began = Instant::now();
        for turn in 0..max {
            if turn >= ANSWERS.0 && began.elapsed() > ASKING {
                break;
            }
            if let Err((why, remedy)) = ask_once(plan, contestant, &server)? {
                let reason = server.end();
                let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
                contestant.state = State::Fails(format!("{why}{reason}{remedy}"));
                return Ok(());
            }
        }
        let stopping = Instant::now();
        drop(server);
        contestant.overhead = start + stopping.elapsed();
        Ok(())
    }

    /// Compares all answers so far.
    fn judge(&mut self) {
        let paths = &self.plan.requests.paths;
        for contestant in self.contestants.iter_mut().filter(|it| it.runs()) {
            contestant.state = match contestant.answers.difference(&self.references, paths) {
                None => State::Same,
                Some(how) => State::Differs(how),
            };
        }
    }

    /// Measures an engine once, from its start.
    fn measure(&mut self, index: usize, round: usize, steps: &Steps) -> anyhow::Result<()> {
        let Contest {
            plan,
            contestants,
            rounds,
            length,
            ..
        } = self;
        let contestant = &mut contestants[index];
        let server = match contestant.start(&plan.launch) {
            Ok(server) => server,
            Err(StartFailure::Command(error)) => return Err(error),
            Err(StartFailure::Engine(why)) => {
                // A terminal sends its signals to the server, too.
                interrupt::check()?;
                contestant.state = State::Fails(format!("in round {}: {why}", round + 1));
                return Ok(());
            }
        };
        if let Err(error) = plan.requests.ask(server.port, &plan.requests.paths[0]) {
            interrupt::check()?;
            contestant.state = State::Fails(format!("in round {}: {error:#}", round + 1));
            return Ok(());
        }
        let time = server.began.elapsed().as_secs_f64();
        contestant.samples.cold_start.push(time);
        let mut load = load::plan(plan, server.port)?;
        load.stop = Stop::After(plan.warm_up);
        let warming_up = Instant::now();
        let warmed_up = measuring::measure(&load, &[server.pid()], false)?.outcome;
        interrupt::check()?;
        let (requests, took) = (warmed_up.totals.requests, warming_up.elapsed());
        let count = load::requests_within(*length, requests, took, plan.concurrency);
        load.stop = Stop::Requests(count);
        let result = measuring::measure(&load, &[server.pid()], false)?;
        interrupt::check()?;
        contestant.record(&result.outcome, result.usage.as_ref());
        if contestant.failure.is_none()
            && let Err(error) = bench::fail_if_unexpected(&result.outcome)
        {
            contestant.failure = Some(format!("{error:#}"));
        }
        describe(contestant, &result.outcome, round, *rounds, steps);
        contestant.latencies = Some(result.outcome.latencies);
        // Load shows what a few requests do not.
        if let Err((why, remedy)) = ask_once(plan, contestant, &server)? {
            contestant
                .failure
                .get_or_insert(format!("after load, {why}{remedy}"));
        }
        Ok(())
    }
}

/// Asks for each path once. The inner error says why an answer cannot be compared, and continues
/// with a remedy, which may be empty.
fn ask_once(
    plan: &Plan,
    contestant: &mut Contestant,
    server: &Server,
) -> anyhow::Result<Result<(), (String, &'static str)>> {
    for (place, path) in plan.requests.paths.iter().enumerate() {
        let answer = match plan.requests.ask(server.port, path) {
            Ok(answer) => answer,
            Err(error) => {
                interrupt::check()?;
                return Ok(Err((format!("{error:#}"), "")));
            }
        };
        if !answer.is_expected() {
            let why = format!("GET {path} returned {}", answer.status);
            return Ok(Err((why, answer.remedy())));
        }
        contestant.answers.add(place, answer);
    }
    Ok(Ok(()))
}

fn describe(
    contestant: &Contestant,
    outcome: &RunOutcome,
    round: usize,
    rounds: usize,
    steps: &Steps,
) {
    let samples = &contestant.samples;
    let has_cpu = samples.cpu.len() == samples.rate.len();
    let cpu = samples.cpu.last().filter(|_| has_cpu);
    let cpu = cpu.map_or_else(String::new, |cpu| {
        format!("  {} of CPU per request", Unit::Us.write(*cpu))
    });
    steps.line(&format!(
        "round {}/{rounds}  {:<8} {:>10}{cpu}",
        round + 1,
        contestant.entry.name,
        Unit::PerSecond.write(outcome.rate()),
    ));
}

//! How much longer an event takes than with the echo: what the caller waits for, and what is
//! billed, which includes what PHP does after its answer; and how much of that is PHP's own CPU
//! time: its request startup, script and shutdown.

use std::time::{Duration, Instant};

use surus::emulator::{Emulator, Function, Initialization, Outcome};

use surus::engines::{self, CATALOGUE, Runs};

use super::apps::{App, Apps, PLAIN, SYMFONY, get};
use super::numbers::{self, Goal, Measured, micros, row};
use super::php::Workers;
use super::{Effort, echo, published};

struct Contestant {
    name: String,
    /// None for the echo.
    runs: Option<(App, &'static str)>,
    emulator: Emulator,
    payload: String,
    caller: Vec<Duration>,
    billed: Vec<Duration>,
    php: Duration,
    events: usize,
}

impl Contestant {
    async fn start(
        name: String,
        runs: Option<(App, &'static str)>,
        function: Function,
        payload: String,
    ) -> Contestant {
        eprintln!("starting {name}");
        Contestant {
            emulator: Emulator::start(function).await.unwrap(),
            name,
            runs,
            payload,
            caller: Vec::new(),
            billed: Vec::new(),
            php: Duration::ZERO,
            events: 0,
        }
    }

    async fn take(&mut self, events: usize) {
        let workers = Workers::of(self.emulator.address().unwrap());
        let before = workers.cpu();
        // A process for each takes its time.
        let events = if self.is_standing() {
            events
        } else {
            events.div_ceil(10)
        };
        for number in 0..events {
            let began = Instant::now();
            let mut running = self.emulator.begin(self.payload.clone()).await;
            let outcome = running.outcome().await;
            let caller = began.elapsed();
            let Outcome::Answer(answer) = outcome else {
                panic!("{}: {outcome:?}", self.name);
            };
            let body = answer.body.collect().await.unwrap();
            assert!(
                body.starts_with(b"{}") || body.starts_with(b"{\"statusCode\":200"),
                "{}: {body:?}",
                self.name
            );
            let (report, _) = running.report().await.unwrap();
            // The first ones find caches that another's turn has emptied.
            if number >= events / 10 {
                self.caller.push(caller);
                self.billed.push(report.duration);
            }
        }
        self.php += workers.cpu().saturating_sub(before);
        self.events += events;
    }

    fn is_standing(&self) -> bool {
        let engine = self.runs.map(|(_, engine)| engines::find(engine).unwrap());
        engine.is_none_or(|engine| engine.is_standing())
    }

    fn forget(&mut self) {
        self.caller.clear();
        self.billed.clear();
        self.php = Duration::ZERO;
        self.events = 0;
    }

    /// PHP's own CPU time for an event. None where its processes end with the event, and their time
    /// with them.
    fn php(&self) -> Option<Duration> {
        let (_, engine) = self.runs?;
        let ends = engines::find(engine).unwrap().serves_one;
        (!ends).then(|| self.php / self.events as u32)
    }
}

pub async fn measure(apps: &Apps, effort: &Effort) -> Vec<Goal> {
    let mut floor = echo::function();
    floor.initialization = Initialization::Provisioned;
    floor.keeps_log = false;
    let mut all = vec![Contestant::start("bare echo".into(), None, floor, get(PLAIN.path)).await];
    for app in [PLAIN, SYMFONY] {
        for engine in CATALOGUE.iter().filter(|engine| engine.runs_scripts()) {
            let name = format!("{}, `{}`", app.name, engine.name);
            let (engine, function) = (engine.name, apps.function(app, engine));
            all.push(Contestant::start(name, Some((app, engine)), function, get(app.path)).await);
        }
    }
    // `rewind` renews its workers when they have learnt from the first events.
    for one in &mut all {
        one.take(effort.events.min(100)).await;
        one.forget();
    }
    for round in 0..effort.rounds {
        eprintln!("round {} of {}", round + 1, effort.rounds);
        let first = round % all.len();
        for offset in 0..all.len() {
            let index = (first + offset) % all.len();
            all[index].take(effort.events).await;
        }
    }
    println!("\n## What an event costs above a bare echo\n");
    println!(
        "µs, medians of {} events each in {} interleaved rounds. PHP's own time is the CPU time of \
            its process, for one event: request startup, \
         script, shutdown; where its processes end with the event it is not known. What remains is \
         Surus, and what it talks to PHP through. \
         Engines that start a process for each event have a tenth of the events.\n",
        effort.rounds * effort.events * 9 / 10,
        effort.rounds
    );
    println!(
        "| | the caller waits | above the echo | PHP's own | what remains | billed | above the \
            echo |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    let floor = (of(&all[0].caller), of(&all[0].billed));
    let mut goals = Vec::new();
    for one in &all {
        let (caller, billed) = (of(&one.caller), of(&one.billed));
        let above = caller.median.saturating_sub(floor.0.median);
        let remains = one.php().map(|php| above.saturating_sub(php));
        row([
            one.name.clone(),
            micros(caller.median),
            micros(above),
            one.php().map_or_else(String::new, micros),
            remains.map_or_else(String::new, micros),
            micros(billed.median),
            micros(billed.median.saturating_sub(floor.1.median)),
        ]);
        if let (Some((_, engine)), Some(remains)) = (one.runs, remains)
            && engines::find(engine).unwrap().runs == Runs::SurusPhp
        {
            let most = Duration::from_micros(if engine == "classic" { 100 } else { 50 });
            goals.push(Goal {
                what: format!("{}: above the echo and PHP's own time", one.name),
                is: format!("{} µs", micros(remains)),
                goal: format!("at most {} µs", micros(most)),
                is_met: remains <= most,
            });
        }
    }
    let measured = all
        .iter()
        .filter_map(|one| Some((one.runs?, one.billed.as_slice())));
    published::print(&measured.collect::<Vec<_>>());
    for one in all {
        one.emulator.stop().await;
    }
    goals
}

fn of(values: &[Duration]) -> Measured {
    numbers::of(values.to_vec())
}

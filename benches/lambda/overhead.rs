//! How much longer an event takes than with the echo: what the caller waits for, and what is billed, which includes what PHP does after
//! its answer.

use std::time::{Duration, Instant};

use surus::emulator::{Emulator, Function, Initialization, Outcome};

use super::apps::{Apps, ENGINES, PLAIN, SYMFONY, get};
use super::numbers::{self, Measured, micros, row};
use super::{Effort, echo};

struct Contestant {
    name: String,
    emulator: Emulator,
    payload: String,
    caller: Vec<Duration>,
    billed: Vec<Duration>,
}

impl Contestant {
    async fn start(name: String, function: Function, payload: String) -> Contestant {
        eprintln!("starting {name}");
        Contestant {
            emulator: Emulator::start(function).await.unwrap(),
            name,
            payload,
            caller: Vec::new(),
            billed: Vec::new(),
        }
    }

    async fn take(&mut self, events: usize) {
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
    }
}

pub async fn measure(apps: &Apps, effort: &Effort) {
    let mut floor = echo::function();
    floor.initialization = Initialization::Provisioned;
    floor.keeps_log = false;
    let mut all = vec![Contestant::start("echo".into(), floor, get(PLAIN.path)).await];
    for app in [PLAIN, SYMFONY] {
        for engine in ENGINES {
            let name = format!("{}, `{engine}`", app.name);
            all.push(Contestant::start(name, apps.function(app, engine), get(app.path)).await);
        }
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
        "µs, medians of {} events each in {} interleaved rounds; PHP's own time is part of it.\n",
        effort.rounds * effort.events * 9 / 10,
        effort.rounds
    );
    println!(
        "| | the caller waits | above the echo | billed | above the echo |\n|---|---:|---:|---:|---:|"
    );
    let floor = (of(&all[0].caller), of(&all[0].billed));
    for one in &all {
        let (caller, billed) = (of(&one.caller), of(&one.billed));
        row([
            one.name.clone(),
            micros(caller.median),
            micros(caller.median.saturating_sub(floor.0.median)),
            micros(billed.median),
            micros(billed.median.saturating_sub(floor.1.median)),
        ]);
    }
    for one in all {
        one.emulator.stop().await;
    }
}

fn of(values: &[Duration]) -> Measured {
    numbers::of(values.to_vec())
}

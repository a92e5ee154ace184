//! Measures a function with the CPU share of its memory size, warm and cold, compared with
//! published numbers.

use std::time::{Duration, Instant};

use anyhow::Context;
use surus::emulator::{Emulator, Function, Initialization, Outcome, Resources};
use surus::engines;

use super::Effort;
use super::apps::{App, Apps, PLAIN, SYMFONY, get};
use super::numbers::{self, row};

const MEMORY: [u64; 4] = [128, 512, 1024, 2048];

/// brefphp/bref-benchmark, November 2020, on AWS Lambda: average execution time in ms of 900 warm
/// events, and cold starts, by memory.
struct Published {
    warm: [u32; 4],
    cold: [u32; 4],
}

const FUNCTION: Published = Published {
    warm: [140, 33, 16, 15],
    cold: [420, 250, 230, 220],
};
const HTTP: Published = Published {
    warm: [1, 1, 1, 1],
    cold: [370, 310, 300, 300],
};
const IN_SYMFONY: Published = Published {
    warm: [32, 5, 4, 4],
    cold: [5800, 1600, 920, 650],
};

pub async fn measure(apps: &Apps, effort: &Effort) {
    println!("\n## By memory\n");
    println!(
        "ms. Warm: the average of {} events, after as many for warming up; cold: the \
            initialization and the first event, medians of {} \
         starts. In brackets what others have published of AWS Lambda in November 2020 \
         (brefphp/bref-benchmark): other machines, other \
         versions. Memory brings a share of a CPU here, too.\n",
        effort.warm, effort.cold_by_memory
    );
    println!("| | | 128 MB | 512 MB | 1024 MB | 2048 MB |\n|---|---|---:|---:|---:|---:|");
    let function = || {
        let mut function = apps.surus("queue");
        function
            .variables
            .insert("SURUS_LAMBDA_HANDLER".into(), "hello.php".into());
        function.variables.insert(
            "SURUS_LAMBDA_SCRIPT".into(),
            concat!(env!("CARGO_MANIFEST_DIR"), "/php/lambda/events.php").into(),
        );
        function
    };
    let page = |app: App, engine: &str| {
        let entry = engines::find(engine).unwrap();
        move || apps.function(app, entry)
    };
    of("PHP function", "{}".into(), &function, &FUNCTION, effort).await;
    for (app, published) in [(PLAIN, &HTTP), (SYMFONY, &IN_SYMFONY)] {
        for engine in ["classic", "rewind"] {
            let name = format!("{}, `{engine}`", app.name);
            of(&name, get(app.path), &page(app, engine), published, effort).await;
        }
    }
}

async fn of(
    name: &str,
    payload: String,
    function: &dyn Fn() -> Function,
    published: &Published,
    effort: &Effort,
) {
    let (mut warm, mut cold) = (Vec::new(), Vec::new());
    for (memory, (theirs_warm, theirs_cold)) in MEMORY
        .into_iter()
        .zip(published.warm.into_iter().zip(published.cold))
    {
        eprintln!("{name}, {memory} MB");
        let function = || {
            let mut function = function();
            function.memory = memory;
            function.resources = Resources::Limited;
            function.keeps_log = false;
            function
        };
        let beside = |ours: anyhow::Result<Duration>, theirs: u32| match ours {
            Ok(ours) => format!("{:.1} ({theirs})", ours.as_secs_f64() * 1e3),
            Err(error) => {
                eprintln!("not measured: {error:#}");
                format!("not measured ({theirs})")
            }
        };
        warm.push(beside(
            warm_of(function(), &payload, effort).await,
            theirs_warm,
        ));
        cold.push(beside(
            cold_of(&function, &payload, effort).await,
            theirs_cold,
        ));
    }
    row([vec![name.into(), "warm".into()], warm].concat());
    row([vec![String::new(), "cold".into()], cold].concat());
}

async fn warm_of(
    mut function: Function,
    payload: &str,
    effort: &Effort,
) -> anyhow::Result<Duration> {
    function.initialization = Initialization::Provisioned;
    let emulator = Emulator::start(function).await?;
    let mut total = Duration::ZERO;
    for number in 0..2 * effort.warm {
        let mut running = emulator.begin(payload.to_string()).await;
        let outcome = running.outcome().await;
        assert!(matches!(outcome, Outcome::Answer(_)), "{outcome:?}");
        if let Outcome::Answer(answer) = outcome {
            let body = answer.body.collect().await;
            assert!(body.is_ok(), "{body:?}");
        }
        let report = running.report().await;
        let (report, _) = report.context("the environment is gone")?;
        if number >= effort.warm {
            total += report.duration;
        }
    }
    emulator.stop().await;
    Ok(total / effort.warm as u32)
}

async fn cold_of(
    function: &dyn Fn() -> Function,
    payload: &str,
    effort: &Effort,
) -> anyhow::Result<Duration> {
    let mut all = Vec::new();
    for _ in 0..effort.cold_by_memory {
        let mut function = function();
        function.initialization = Initialization::OnDemand;
        let emulator = Emulator::start(function).await?;
        let began = Instant::now();
        let invocation = emulator.invoke(payload.to_string()).await;
        all.push(began.elapsed());
        assert!(invocation.result.is_ok(), "{invocation:?}");
        emulator.stop().await;
    }
    Ok(numbers::of(all).median)
}

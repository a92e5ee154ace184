//! Measures the first event of a new environment, compared with the start of PHP alone.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use surus::emulator::{Emulator, Function, Initialization, Report};
use surus::engines::{CATALOGUE, Runs};

use super::apps::{Apps, PLAIN, SYMFONY, get};
use super::numbers::{self, Goal, millis, row};
use super::{Effort, echo};

pub async fn measure(apps: &Apps, effort: &Effort) -> Vec<Goal> {
    let contestants: Vec<_> = [PLAIN, SYMFONY]
        .into_iter()
        .flat_map(|app| {
            let engines = CATALOGUE.iter().filter(|engine| engine.runs_scripts());
            engines.map(move |engine| (app, engine))
        })
        .collect();
    let (mut php, mut floor) = (Vec::new(), Vec::new());
    let mut first: Vec<Vec<Duration>> = vec![Vec::new(); contestants.len()];
    let mut init = first.clone();
    for start in 0..effort.starts {
        eprintln!("start {} of {}", start + 1, effort.starts);
        php.push(stock_php(apps));
        let (took, _) = start_one(echo::function(), "{}".into()).await;
        floor.push(took);
        for (index, (app, engine)) in contestants.iter().enumerate() {
            let (took, report) = start_one(apps.function(*app, engine), get(app.path)).await;
            first[index].push(took);
            init[index].push(report.init.unwrap_or_default());
        }
    }
    println!("\n## Cold start\n");
    println!(
        "ms, medians of {} starts; files are in the page cache.\n",
        effort.starts
    );
    println!("| | initialization | until the first event is over | least |\n|---|---:|---:|---:|");
    let (php, floor) = (numbers::of(php), numbers::of(floor));
    row([
        "`php hello.php`, stock PHP".into(),
        String::new(),
        millis(php.median),
        millis(php.least),
    ]);
    row([
        "bare echo: the emulator's own share".into(),
        String::new(),
        millis(floor.median),
        millis(floor.least),
    ]);
    let mut goals = Vec::new();
    for (index, (app, engine)) in contestants.iter().enumerate() {
        let (init, first) = (
            numbers::of(init[index].clone()),
            numbers::of(first[index].clone()),
        );
        row([
            format!("{}, `{}`", app.name, engine.name),
            millis(init.median),
            millis(first.median),
            millis(first.least),
        ]);
        if *app == PLAIN && engine.runs == Runs::SurusPhp {
            // Starting processes and speaking HTTP with them is the emulator's.
            let own = first.median.saturating_sub(floor.median);
            let most = php.median + Duration::from_millis(5);
            goals.push(Goal {
                what: format!(
                    "cold start, {}, `{}`, without the emulator's own share",
                    app.name, engine.name
                ),
                is: format!("{} ms", millis(own)),
                goal: format!("at most {} ms, stock PHP's start-up and 5", millis(most)),
                is_met: own <= most,
            });
        }
    }
    goals
}

/// A new environment and its first event.
async fn start_one(mut function: Function, payload: String) -> (Duration, Report) {
    function.initialization = Initialization::OnDemand;
    function.keeps_log = false;
    let emulator = Emulator::start(function).await.unwrap();
    let began = Instant::now();
    let invocation = emulator.invoke(payload).await;
    let took = began.elapsed();
    assert!(invocation.result.is_ok(), "{invocation:?}");
    emulator.stop().await;
    (took, invocation.report)
}

/// Debian's PHP with the extensions that it has for the command line.
fn stock_php(apps: &Apps) -> Duration {
    let began = Instant::now();
    let script = apps.directory("plain").join("hello.php");
    let status = Command::new("php8.2")
        .arg(script)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    began.elapsed()
}

//! The engines that a test of the contract applies to, and how a test runs on each.

use std::pin::pin;
use std::time::Duration;

use surus::engines::{self, EngineEntry, PhpProgram};

use super::exceptions::is_exempt;
use super::subject::{Subject, subject};

/// Runs one case on every engine of the catalogue, except those exempt from it.
pub fn on_every_engine<F: Future<Output = ()>>(name: &str, case: impl Fn(Subject) -> F) {
    on(|entry| !is_exempt(entry, name), case);
}

/// The engines that isolate requests.
pub fn on_isolating_engines<F: Future<Output = ()>>(name: &str, case: impl Fn(Subject) -> F) {
    on(|entry| entry.isolates && !is_exempt(entry, name), case);
}

/// The engines that run surus-php.
pub fn on_surus_php_engines<F: Future<Output = ()>>(name: &str, case: impl Fn(Subject) -> F) {
    on(
        |entry| entry.runs == PhpProgram::SurusPhp && !is_exempt(entry, name),
        case,
    );
}

/// The engines whose processes wait for requests.
pub fn on_standing_engines<F: Future<Output = ()>>(name: &str, case: impl Fn(Subject) -> F) {
    on(|entry| entry.is_standing() && !is_exempt(entry, name), case);
}

/// The engine with that name.
pub fn on_engine<F: Future<Output = ()>>(name: &str, case: impl Fn(Subject) -> F) {
    on(|entry| entry.name == name, case);
}

fn on<F: Future<Output = ()>>(chosen: impl Fn(&EngineEntry) -> bool, case: impl Fn(Subject) -> F) {
    // ENGINES=fork,rewind: only these.
    let only = std::env::var("ENGINES").ok();
    let named = |entry: &&EngineEntry| {
        only.as_ref()
            .is_none_or(|only| only.split(',').any(|name| name == entry.name))
    };
    for entry in engines::CATALOGUE
        .iter()
        .filter(|entry| chosen(entry))
        .filter(named)
    {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        eprintln!("on {}", entry.name);
        runtime.block_on(async {
            let case = pin!(case(subject(entry)));
            tokio::time::timeout(LIMIT, case)
                .await
                .expect("the case ends in time");
        });
    }
}

/// The limit for hanging tests; a machine may be slow.
const LIMIT: Duration = Duration::from_secs(240);

//! Runs PHP's own web tests under Surus: each sends its request to its own server.
//!
//! `PHPT_DIR` is a PHP source tree; the default is the one from `scripts/php-source`. Without
//! either, the test prints a note and tests nothing. `PHPT=word` runs only tests with the word in
//! their paths, `ENGINES=worker` only that engine; the default is `classic` and `rewind`.
//! `PHPT_SHARE=2` gives each engine another half of the tests.

mod expectation;
mod request;
mod run;
mod sections;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::engines::{Subject, subjects};
use run::{Bench, Outcome};
use sections::Phpt;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exceptions {
    exception: Vec<Exception>,
}

/// A test that is known to fail.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    test: String,
    /// The engines it fails on; all if empty.
    #[serde(default)]
    engines: Vec<String>,
    reason: String,
}

#[test]
fn php_passes_its_own_web_tests() {
    let Some(source) = source() else {
        println!("there is no PHP source tree: run scripts/php-source, or set PHPT_DIR");
        return;
    };
    let tests = Phpt::web_tests(&source);
    assert!(
        tests.len() > 100,
        "{} web tests in {}",
        tests.len(),
        source.display()
    );
    let word = std::env::var("PHPT").unwrap_or_default();
    let tests: Vec<_> = tests
        .into_iter()
        .filter(|test| test.path.contains(&word))
        .collect();
    let exceptions: Exceptions = toml::from_str(include_str!("phpt/exceptions.toml")).unwrap();
    // The other engines share the code of these two; ENGINES selects them.
    let by_default =
        |name: &str| std::env::var_os("ENGINES").is_some() || matches!(name, "classic" | "rewind");
    let subjects = subjects().into_iter();
    let chosen = subjects.filter(|it| by_default(it.name)).enumerate();
    let chosen: Vec<_> = chosen.collect();
    let share = std::env::var("PHPT_SHARE").map_or(1, |share| share.parse().unwrap());
    let failures = std::thread::scope(|threads| {
        let run = |index: usize, subject| {
            let share = tests.iter().skip(index % share).step_by(share);
            let tests: Vec<_> = share.collect();
            report(subject, &run_all(&source, subject, &tests), &exceptions)
        };
        let running = chosen
            .into_iter()
            .map(|(index, subject)| threads.spawn(move || run(index, subject)));
        let running: Vec<_> = running.collect();
        let failed = running.into_iter().flat_map(|it| it.join().unwrap());
        failed.collect::<Vec<_>>()
    });
    assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
}

/// The directory of PHP's source.
fn source() -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os("PHPT_DIR") {
        let dir = PathBuf::from(dir);
        assert!(
            dir.join("run-tests.php").exists(),
            "PHPT_DIR={} is no PHP source tree",
            dir.display()
        );
        return Some(dir);
    }
    // target/debug/surus
    let target = Path::new(env!("CARGO_BIN_EXE_surus")).ancestors().nth(2)?;
    let dir = target.join("php-source/php");
    dir.join("run-tests.php").exists().then_some(dir)
}

/// Two at a time, because a test mostly waits for a server to start and stop.
fn run_all<'a>(source: &Path, subject: Subject, tests: &[&'a Phpt]) -> BTreeMap<&'a str, Outcome> {
    let bench = Bench::new(source, subject, tests);
    let outcomes = Mutex::new(BTreeMap::new());
    let next = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while let Some(test) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = bench.run(test);
                    outcomes.lock().unwrap().insert(test.path.as_str(), outcome);
                }
            });
        }
    });
    outcomes.into_inner().unwrap()
}

/// Prints the results; returns the unexpected ones.
fn report(
    subject: Subject,
    outcomes: &BTreeMap<&str, Outcome>,
    exceptions: &Exceptions,
) -> Vec<String> {
    let (mut passed, mut failed) = (0, Vec::new());
    let mut skipped: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut expected = 0;
    for (path, outcome) in outcomes {
        let exception = exceptions.exception.iter().find(|exception| {
            let engines = &exception.engines;
            exception.test == *path
                && (engines.is_empty() || engines.iter().any(|name| name == subject.name))
        });
        match (outcome, exception) {
            (Outcome::Skipped(reason), _) => skipped.entry(reason).or_default().push(path),
            (Outcome::Passed, None) => passed += 1,
            (Outcome::Failed(_), Some(_)) => expected += 1,
            (Outcome::Failed(why), None) => failed.push(format!("{}: {path}: {why}", subject.name)),
            (Outcome::Passed, Some(exception)) => failed.push(format!(
                "{}: {path} passes, though exceptions.toml says: {}",
                subject.name, exception.reason
            )),
        }
    }
    println!(
        "{}: {passed} passed, {} failed, {expected} failed as exceptions.toml says, {} skipped:",
        subject.name,
        failed.len(),
        skipped.values().map(Vec::len).sum::<usize>()
    );
    for (reason, tests) in &skipped {
        println!("  {}: {reason} ({}, …)", tests.len(), tests[0]);
    }
    failed
}

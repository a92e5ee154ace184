//! Tests that a request leaves nothing for the next one on isolating engines, in any order, for
//! thousands of rounds.
//!
//! A case in `leaks/cases` is a kind of state: `set` leaves it behind, `see` reports what is
//! visible. `ENGINES=rewind` selects one engine, `LEAK_CASE=word` the cases with the word in their
//! names. `LEAK_ROUNDS=100` runs longer, and `LEAK_SEED` repeats the order of an earlier run.
//! `make test-leaks` runs for long.

mod corpus;
mod footprint;
mod learned;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::common::engines::{Subject, TestDir, subjects};
use crate::common::order::Order;
use crate::common::php::lacks;
use corpus::{Case, Corpus, Exceptions};
use footprint::Footprint;

#[test]
fn corpus_has_at_least_a_hundred_kinds_of_state() {
    let home = TestDir::of("rewind/leaks");
    let Some(subject) = subjects().into_iter().next() else {
        return;
    };
    let corpus = Corpus::start(&home, subject);
    let kinds = corpus
        .cases
        .values()
        .filter(|case| case.missing.is_empty())
        .count();
    assert!(
        std::env::var("LEAK_CASE").is_ok() || kinds >= 100,
        "{kinds}"
    );
}

#[test]
fn request_state_is_invisible_to_the_next_request() {
    isolates(|subject| subject.isolates, &[]);
}

#[test]
fn request_state_is_invisible_with_jit() {
    let jit = [
        ("SURUS_PHP_OPCACHE__JIT", "tracing"),
        ("SURUS_PHP_OPCACHE__JIT_BUFFER_SIZE", "16M"),
        ("SURUS_PHP_OPCACHE__JIT_HOT_FUNC", "2"),
        ("SURUS_PHP_OPCACHE__JIT_HOT_LOOP", "2"),
    ];
    isolates(|subject| subject.name == "rewind", &jit);
}

fn isolates(asks: impl Fn(&Subject) -> bool, settings: &[(&str, &str)]) {
    let mut failures = Vec::new();
    for subject in subjects().into_iter().filter(asks) {
        let home = TestDir::of("rewind/leaks");
        // If the engine restores memory, compare it byte by byte as well.
        let verify_restore = ("SURUS_ENGINE_VERIFY_RESTORE", "true");
        let settings = [&[verify_restore], settings].concat();
        let corpus = Corpus::start_in(&home, subject, &settings);
        let replaced = RefCell::new(Vec::new());
        let exceptions = Exceptions::load();
        failures.extend(judge(&corpus, subject, |name, case| {
            let before = corpus.worker();
            let outcome = one_after_the_other(&corpus, name, case);
            if corpus.worker() != before {
                replaced.borrow_mut().push(name.to_string());
            }
            if exceptions.alone(subject.name, name).is_some() {
                // The traces of this case must not be taken for another case's.
                corpus.replace_worker();
            }
            outcome
        }));
        let replaced = replaced.into_inner();
        println!("{}: {} cases asked", subject.name, corpus.cases.len());
        // State that cannot be restored costs a worker; this is not a failure, but worth reporting.
        if subject.keeps_workers {
            println!("{}: another worker after {replaced:?}", subject.name);
        }
        for (name, case) in corpus.cases.iter().filter(|(_, case)| case.cleans) {
            corpus.step(name, case, "clean").unwrap();
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn non_isolating_worker_leaks_as_the_corpus_expects() {
    let mut failures = Vec::new();
    for subject in subjects().into_iter().filter(|subject| !subject.isolates) {
        let home = TestDir::of("rewind/leaks");
        let corpus = Corpus::start(&home, subject);
        failures.extend(judge(&corpus, subject, |name, case| {
            // State of the previous cases must not be visible.
            corpus.replace_worker();
            one_after_the_other(&corpus, name, case)
        }));
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn rounds_in_random_order_leave_no_state_and_no_growth() {
    let rounds = number("LEAK_ROUNDS").unwrap_or(5);
    for subject in subjects().into_iter().filter(|subject| subject.isolates) {
        let home = TestDir::of("rewind/leaks");
        let corpus = Corpus::start(&home, subject);
        let exceptions = Exceptions::load();
        let cases: BTreeMap<_, _> = corpus
            .cases
            .iter()
            .filter(|(name, case)| {
                case.missing.is_empty()
                    && case.survives.is_none()
                    && exceptions.in_rounds(subject.name, name).is_none()
            })
            .collect();
        let first: BTreeMap<_, _> = cases
            .iter()
            .map(|(name, case)| (*name, corpus.see(name, case).unwrap()))
            .collect();
        let mut order = Order::new(number("LEAK_SEED"));
        println!("{}: LEAK_SEED={}", subject.name, order.seed);
        let mut failures: BTreeMap<&str, (u64, String)> = BTreeMap::new();
        let mut footprint = None;
        // How often a case had replaced the worker in the first two rounds.
        let mut replaced: BTreeMap<&str, u64> = BTreeMap::new();
        let mut born = 0;
        let mut said = Instant::now();
        for round in 0..rounds + 3 {
            // Memory must be flat after every case has run once, and once more on a worker that is
            // no longer replaced.
            if round == 3 {
                footprint = Some(Footprint::of(corpus.pid()));
            }
            if said.elapsed() > Duration::from_secs(60) {
                let held = Footprint::of(corpus.pid());
                let left = rounds + 3 - round;
                println!(
                    "{}: round {round}, {left} left, {} cases failed: {held}",
                    subject.name,
                    failures.len()
                );
                said = Instant::now();
            }
            let mut names: Vec<_> = cases.keys().copied().collect();
            order.shuffle(&mut names);
            for name in names {
                let case = cases[name];
                // Some cases take longer than all others together.
                if case.slow && round % 100 != 0 {
                    continue;
                }
                // A replaced worker cannot show growth, so the second half replaces none.
                let replaces = round > 1 && replaced.get(name.as_str()) == Some(&2);
                let second_half = subject.keeps_workers && round > rounds / 2;
                if replaces && (second_half || round % 10 != 0) {
                    continue;
                }
                let worker = corpus.worker();
                let seen = corpus
                    .step(name, case, "set")
                    .and_then(|_| corpus.see(name, case));
                if corpus.worker() != worker {
                    born = round;
                    if round < 2 {
                        *replaced.entry(name).or_default() += 1;
                    }
                }
                if seen.as_ref() != Ok(&first[name]) {
                    let failure = failures.entry(name).or_insert_with(|| {
                        let text = format!("round {round}: {:?} became {seen:?}", first[name]);
                        (0, text)
                    });
                    failure.0 += 1;
                }
            }
        }
        let text: Vec<_> = failures
            .iter()
            .map(|(name, (times, text))| format!("{name}, {times} times: {text}"))
            .collect();
        println!(
            "{}: {rounds} rounds of {} cases, {} workers, the last since round {born}",
            subject.name,
            cases.len(),
            corpus.workers_seen()
        );
        assert!(text.is_empty(), "{}:\n{}", subject.name, text.join("\n"));
        footprint.unwrap().assert_kept(corpus.pid(), subject);
    }
}

/// see → set → see; returns what is wrong with the two results.
fn one_after_the_other(corpus: &Corpus, name: &str, case: &Case) -> Result<bool, String> {
    let first = corpus.see(name, case)?;
    corpus.step(name, case, "set")?;
    let second = corpus.see(name, case)?;
    if let Some(is) = &case.is
        && !first.ends_with(is)
    {
        return Err(format!("is not {is:?}: {first:?}"));
    }
    let differs = first != second;
    let texts = format!("{first:?} became {second:?}");
    match (differs, corpus.expects_difference(case)) {
        (true, false) => Err(texts),
        (false, true) => Err(format!("should have changed: {first:?}")),
        _ => Ok(differs),
    }
}

/// Runs every case; returns unexpected failures, and exceptions that did not fail.
fn judge(
    corpus: &Corpus,
    subject: Subject,
    run: impl Fn(&str, &Case) -> Result<bool, String>,
) -> Vec<String> {
    let exceptions = Exceptions::load();
    let mut failures = Vec::new();
    for (name, case) in &corpus.cases {
        if !case.missing.is_empty() {
            // Also an extension of Debian's that the test has not loaded by mistake.
            let unknown = case.missing.iter().filter(|missing| !lacks(missing));
            failures.extend(unknown.map(|missing| format!("{name} needs {missing}")));
            println!("{}: {name} needs {}", subject.name, case.missing.join(", "));
            continue;
        }
        let outcome = run(name, case);
        match (outcome, exceptions.alone(subject.name, name)) {
            (Ok(_), None) => {}
            (Err(_), Some(_)) => {}
            (Err(text), None) => failures.push(format!("{}: {name}: {text}", subject.name)),
            (Ok(_), Some(reason)) => failures.push(format!(
                "{}: {name} passes, though exceptions.toml says: {reason}",
                subject.name
            )),
        }
    }
    failures
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is no number")),
    )
}

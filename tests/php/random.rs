//! Tests that no source of random numbers repeats: draws from all of them in many requests and
//! compares.
//!
//! `RANDOM_REQUESTS` sets the number of requests; `ENGINES=rewind` selects one engine.

mod hello;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::common::engines::{Subject, TestDir, subjects};
use crate::common::extension_files;
use crate::common::php::lacks;
use hello::Listener;
use serde::Deserialize;

#[derive(Deserialize)]
struct Answer {
    worker: u32,
    draws: BTreeMap<String, String>,
}

/// Every value of every source, with its number of occurrences.
#[derive(Default)]
struct Drawn(HashMap<String, HashMap<String, u32>>);

impl Drawn {
    fn add(&mut self, source: &str, value: &str) {
        let values = self.0.entry(source.to_string()).or_default();
        *values.entry(value.to_string()).or_default() += 1;
    }

    /// Sources with repeated values, and how often.
    fn repeated(&self) -> Vec<(String, String)> {
        let mut repeated = Vec::new();
        for (source, values) in &self.0 {
            let all: u32 = values.values().sum();
            if let Some((value, times)) = values.iter().max_by_key(|(_, times)| **times)
                && *times > 1
            {
                let text = format!(
                    "{all} draws, {} values; {value} came {times} times",
                    values.len()
                );
                repeated.push((source.clone(), text));
            }
        }
        repeated.sort();
        repeated
    }
}

/// Sources that are known to repeat on an engine.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exceptions {
    #[serde(default)]
    exception: Vec<Exception>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    engines: Vec<String>,
    sources: Vec<String>,
    reason: String,
}

impl Exceptions {
    /// Unexpected repetitions, and exceptions without a repetition.
    fn judge(&self, engine: &str, repeated: &[(String, String)]) -> Vec<String> {
        let mut excepted = BTreeMap::new();
        for exception in &self.exception {
            if exception.engines.iter().any(|name| name == engine) {
                for source in &exception.sources {
                    excepted.insert(source, &exception.reason);
                }
            }
        }
        let mut failures = Vec::new();
        for (source, text) in repeated {
            if excepted.remove(source).is_none() {
                failures.push(format!("{engine}: {source}: {text}"));
            }
        }
        for (source, reason) in excepted {
            failures.push(format!(
                "{engine}: {source} does not repeat itself, though exceptions.toml says: {reason}"
            ));
        }
        failures
    }
}

#[test]
fn random_value_never_repeats_across_workers() {
    let exceptions: Exceptions = toml::from_str(include_str!("random/exceptions.toml")).unwrap();
    let exceptions = &exceptions;
    let failures = std::thread::scope(|threads| {
        let drawing: Vec<_> = subjects()
            .into_iter()
            .map(|subject| threads.spawn(move || repetitions(subject, exceptions)))
            .collect();
        let drawn = drawing.into_iter().flat_map(|drawn| drawn.join().unwrap());
        drawn.collect::<Vec<_>>()
    });
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Draws on one engine; returns what repeats unexpectedly.
fn repetitions(subject: Subject, exceptions: &Exceptions) -> Vec<String> {
    let asked = std::env::var("RANDOM_REQUESTS").map(|text| text.parse().unwrap());
    // Processes that share a booted state could also share its random numbers.
    let shares = matches!(subject.name, "fork" | "rewind");
    let requests: usize = asked.unwrap_or(if shares { 400 } else { 200 });
    let home = TestDir::of("php/random");
    let args = ["-d", "ffi.enable=1", "-d", "opcache.enable=1"];
    let scan_dir = extension_files(home.root.parent().unwrap(), "gd gmp imagick ldap uuid xsl");
    // Without the OpenSSL configuration that names all certificates, because reading them
    // dominates the run time.
    let env = [
        ("PHP_INI_SCAN_DIR", scan_dir.as_str()),
        ("SURUS_ENV_LDAPNOINIT", "1"),
    ];
    let surus = home.serve_in(subject, "worker.php", "front.php", 2, &args, &env);
    let listeners = ["stream", "curl", "ldap", "form"].map(Listener::start);
    let query: Vec<_> = listeners.iter().map(Listener::query).collect();
    let url = format!("{}/draw?{}", surus.url, query.join("&"));
    let drawn = Mutex::new(Drawn::default());
    let workers = Mutex::new(BTreeSet::new());

    let draw = |times: usize| {
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    let agent = ureq::agent();
                    for _ in 0..times / 2 {
                        let mut answer = agent.get(&url).call().unwrap_or_else(|error| {
                            panic!("{}: {error}\n{}", subject.name, surus.log())
                        });
                        let text = answer.body_mut().read_to_string().unwrap();
                        let answer: Answer = serde_json::from_str(&text).expect(&text);
                        workers.lock().unwrap().insert(answer.worker);
                        let mut drawn = drawn.lock().unwrap();
                        for (source, value) in &answer.draws {
                            drawn.add(source, value);
                        }
                    }
                });
            }
        });
    };
    draw(requests);
    let before = workers.lock().unwrap().clone();
    assert!(before.len() >= 2, "{}: {before:?}", subject.name);
    if subject.keeps_workers {
        // If workers were replaced after each request, nothing would repeat, and the test would
        // show nothing.
        assert_eq!(before.len(), 2, "{}\n{}", subject.name, surus.log());
        for pid in &before {
            let pid = pid.to_string();
            let _ = Command::new("kill").args(["-s", "KILL", &pid]).status();
        }
        // The first replacement worker may answer many requests before the second exists.
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            draw(requests / 10);
            let after = workers.lock().unwrap().len();
            if after >= before.len() + 2 {
                break;
            }
            assert!(Instant::now() < until, "{}: {after}", subject.name);
        }
    }

    let mut drawn = drawn.into_inner().unwrap();
    for listener in &listeners {
        for (source, value) in listener.heard() {
            drawn.add(&source, &value);
        }
    }
    assert_complete(&drawn, requests);
    let sources = drawn.0.len();
    println!("{}: {sources} sources, {requests} requests", subject.name);
    exceptions.judge(subject.name, &drawn.repeated())
}

/// PHP 8.2 seeds it with the microsecond and the process id. A worker that seeded it in each
/// request would repeat a value within some thousand requests.
#[test]
fn combined_lcg_does_not_repeat_when_seeded_in_each_request() {
    for subject in subjects().into_iter().filter(|it| it.name == "rewind") {
        let home = TestDir::of("php/random");
        let surus = home.serve(subject, "lcg.php", "front.php", 2, &[]);
        let mut drawn = Drawn::default();
        let draw = || -> Vec<String> {
            let agent = ureq::agent();
            let ask = |_| agent.get(&surus.url).call().unwrap();
            let read =
                |answer: ureq::http::Response<ureq::Body>| answer.into_body().read_to_string();
            (0..10_000).map(|n| read(ask(n)).unwrap()).collect()
        };
        let values = std::thread::scope(|threads| {
            let drawing = [threads.spawn(draw), threads.spawn(draw)];
            drawing.map(|drawn| drawn.join().unwrap()).concat()
        });
        for value in &values {
            drawn.add("lcg_value", value);
        }
        assert_eq!(drawn.repeated(), [], "{}", subject.name);
    }
}

/// UUIDs of the same moment differ by a value that each process draws once; the process that forks
/// all workers must not draw it.
#[test]
fn time_uuids_of_workers_have_different_clock_sequences() {
    for subject in subjects() {
        if !matches!(subject.name, "fork" | "rewind") || lacks("uuid") {
            continue;
        }
        let home = TestDir::of("php/random");
        let scan_dir = extension_files(home.root.parent().unwrap(), "uuid");
        let env = [("PHP_INI_SCAN_DIR", scan_dir.as_str())];
        let surus = home.serve_in(subject, "uuid.php", "front.php", 2, &[], &env);
        let sequence = |uuid: &str| uuid.split('-').nth(3).unwrap().to_string();
        let mut drawn = BTreeSet::new();
        for _ in 0..10 {
            let mut answer = ureq::get(&surus.url).call().unwrap();
            let text = answer.body_mut().read_to_string().unwrap();
            let words: Vec<_> = text.split(' ').collect();
            assert_eq!(words[0], "1", "{text}");
            assert_ne!(words[1], words[2], "{text}");
            drawn.extend([sequence(words[1]), sequence(words[2])]);
        }
        // Of 16,384 values.
        assert!(drawn.len() > 5, "{}: {drawn:?}", subject.name);
    }
}

/// Asserts that every source was drawn from, with values long enough to rule out chance
/// repetitions.
fn assert_complete(drawn: &Drawn, requests: usize) {
    for source in [
        "mt_rand",
        "random_bytes",
        "TLS random (stream)",
        "TLS random (curl)",
        // Through GnuTLS, which Debian's libldap uses; needs php8.2-ldap.
        "TLS random (ldap)",
        "TLS key share (ldap)",
        "form boundary (form)",
    ] {
        assert!(drawn.0.contains_key(source), "nothing drawn from {source}");
    }
    for (source, values) in &drawn.0 {
        let all: u32 = values.values().sum();
        assert!(all as usize >= requests, "{source}: {all} draws");
        let shortest = values.keys().map(String::len).min().unwrap();
        assert!(shortest >= 16, "{source}: {values:?}");
    }
}

#[test]
fn repeated_value_is_reported() {
    let mut drawn = Drawn::default();
    for value in ["a", "b", "a"] {
        drawn.add("source", value);
    }
    assert_eq!(
        drawn.repeated(),
        [(
            "source".to_string(),
            "3 draws, 2 values; a came 2 times".to_string()
        )]
    );
}

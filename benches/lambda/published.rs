//! Compares published measurements with this machine's.

use std::time::Duration;

use surus::engines::CATALOGUE;

use super::apps::{App, PLAIN, SYMFONY};
use super::numbers::{millis, row};

/// mnapoli/bref-bootstrap-benchmarks, February 2019: description, label, the engine that does the
/// same here, and the execution time on AWS Lambda with 1024 MB: average and minimum in ms, for
/// plain PHP and Symfony. `–`: its author has no number.
const PUBLISHED: [(&str, &str, &str, &str, &str); 9] = [
    (
        "bootstrap starts php per event",
        "Bref 0.2",
        "cli",
        "21 (15)",
        "42 (22)",
    ),
    (
        "PHP code in the bootstrap process, in a loop",
        "A",
        "worker",
        "4 (1)",
        "6 (2)",
    ),
    ("sub-process per event", "B", "cli", "–", "–"),
    (
        "sub-process boots, then waits for the event",
        "C",
        "standby",
        "dropped",
        "dropped; 81 (65) before",
    ),
    (
        "fork of the booted bootstrap per event",
        "D",
        "fork",
        "11 (6)",
        "20 (12)",
    ),
    (
        "php-fpm with one worker over FastCGI",
        "E",
        "fpm",
        "5 (1)",
        "18 (11)",
    ),
    (
        "`php -S`, bootstrap forwards HTTP",
        "F",
        "builtin",
        "4 (1)",
        "17 (8)",
    ),
    (
        "own SAPI in C, memory reset per loop",
        "G",
        "classic",
        "5 (2)",
        "8 (5)",
    ),
    ("php-cgi per event", "H", "cgi", "18 (10)", "33 (18)"),
];

/// Of billed times, by application and engine.
pub fn print(measured: &[((App, &str), &[Duration])]) {
    println!("\n## As others have published it\n");
    println!(
        "ms: average (minimum). What is published is the execution time that others have measured \
            on AWS Lambda in February 2019 \
         (mnapoli/bref-bootstrap-benchmarks): other machines, other versions; to compare the \
         order. Measured is the billed time here, \
         the emulator's own share included.\n"
    );
    println!(
        "| published as | what it is | engine | plain, published | plain, measured | Symfony, \
            published | Symfony, measured |"
    );
    println!("|---|---|---|---:|---:|---:|---:|");
    let of = |app: App, engine: &str| {
        let found = measured.iter().find(|(runs, _)| *runs == (app, engine));
        found.map_or_else(String::new, |(_, times)| {
            let average = times.iter().sum::<Duration>() / times.len().max(1) as u32;
            let least = times.iter().min().copied().unwrap_or_default();
            format!("{} ({})", exact(average), exact(least))
        })
    };
    let print_row = |letter: &str, what: &str, engine: &str, plain: &str, symfony: &str| {
        row([
            letter.into(),
            what.into(),
            format!("`{engine}`"),
            plain.into(),
            of(PLAIN, engine),
            symfony.into(),
            of(SYMFONY, engine),
        ]);
    };
    for (what, letter, engine, plain, symfony) in PUBLISHED {
        print_row(letter, what, engine, plain, symfony);
    }
    let is_published = |name: &str| PUBLISHED.iter().any(|(_, _, engine, ..)| *engine == name);
    for entry in CATALOGUE.iter().filter(|entry| !is_published(entry.name)) {
        print_row("–", entry.what_happens, entry.name, "", "");
    }
}

/// Most of it is far below a millisecond.
fn exact(duration: Duration) -> String {
    match duration < Duration::from_millis(10) {
        true => format!("{:.2}", duration.as_secs_f64() * 1e3),
        false => millis(duration),
    }
}

//! Benchmark of reading an event and writing its response.
//!
//! `CARGO_PROFILE_TEST_OPT_LEVEL=3 cargo test --test lambda -- --ignored --nocapture events::speed`

use std::hint::black_box;
use std::time::Instant;

use surus::fronts::lambda::Settings;
use surus::fronts::lambda::http_event::{self, EventFormat};

use super::samples::directory;
use super::subject::head;

const SAMPLES: [&str; 5] = [
    "lambda_function_url_request",
    "apigw-v2-request-no-authorizer",
    "apigw-request",
    "alb-lambda-target-request-headers-only",
    "vpc-lattice-v2-request",
];

#[test]
#[ignore = "prints numbers and asserts nothing"]
fn nanoseconds_for_each_event() {
    let settings = Settings::default();
    for (name, event) in directory("samples") {
        if SAMPLES.contains(&&*name) {
            // Compact, as services send it.
            let event: serde_json::Value = serde_json::from_str(&event).unwrap();
            let event = event.to_string();
            let read = fastest(|| http_event::read(black_box(event.as_bytes()), &settings));
            println!("{read:6} ns  read {name}, {} bytes", event.len());
        }
    }
    let head = head(
        200,
        &[
            ("content-type", b"text/html; charset=utf-8"),
            ("cache-control", b"no-cache, private"),
            (
                "set-cookie",
                b"session=abcdefghijklmnopqrstuvwxyz; path=/; httponly",
            ),
        ],
    );
    let page = "<p class=\"a\">An elephant's page.</p>\n".repeat(400);
    let image: Vec<u8> = (0..15_000_u32).map(|at| (at * 7 % 256) as u8).collect();
    let url = EventFormat::FunctionUrl;
    for (what, body) in [
        ("nothing", &b""[..]),
        ("JSON", br#"{"message":"hello"}"#),
        ("page", page.as_bytes()),
        ("image", &image),
    ] {
        let write = fastest(|| http_event::write(&url, black_box(&head), black_box(body)));
        println!("{write:6} ns  write {what}, {} bytes", body.len());
    }
    let prelude = fastest(|| http_event::prelude(&url, black_box(&head)));
    println!("{prelude:6} ns  prelude");
}

/// The mean of the fastest of a hundred runs, which other programs have disturbed least.
fn fastest<T>(mut one: impl FnMut() -> T) -> u128 {
    const EACH: u32 = 1000;
    let run = |_| {
        let began = Instant::now();
        for _ in 0..EACH {
            black_box(one());
        }
        began.elapsed().as_nanos() / u128::from(EACH)
    };
    (0..100).map(run).min().unwrap()
}

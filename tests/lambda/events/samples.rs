//! Tests that PHP sees AWS's own samples as their clients sent them.
//!
//! `expected/NAME.txt` has the expectation for `samples/NAME.json`: `$_SERVER`, the body, and the
//! response. With `BLESS` in the environment the tests rewrite it for review.

use std::path::{Path, PathBuf};

use surus::fronts::lambda::Settings;
use surus::fronts::lambda::http_event::{self, EventFormat};

use super::subject::{head, read, show};

#[test]
fn sample_matches_its_expectation() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    for (name, event) in directory("samples") {
        let event = read(&event);
        let shown = format!("{}\n{}\n", show_context(&event), answer(&event.format));
        let shown = show(event) + &shown;
        let path = root().join("expected").join(format!("{name}.txt"));
        if bless {
            std::fs::write(&path, &shown).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        if shown != expected {
            wrong.push(format!("--- {name}\n{shown}+++ expected\n{expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn expectation_without_a_sample_is_found() {
    let samples: Vec<_> = directory("samples")
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let expected: Vec<_> = directory("expected")
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(samples, expected);
}

#[test]
fn sample_of_another_service_is_not_http() {
    for (name, event) in directory("others") {
        let read = http_event::read(event.as_bytes(), &Settings::default());
        assert!(matches!(read, Ok(None)), "{name}: {read:?}");
    }
}

/// Whether it is passed on unchanged.
fn show_context(event: &http_event::HttpEvent) -> &'static str {
    match &event.request_context {
        None => "no context",
        Some(context) => {
            assert!(context.starts_with('{') && context.ends_with('}'));
            let _: serde_json::Value = serde_json::from_str(context).unwrap();
            "a context"
        }
    }
}

fn answer(format: &EventFormat) -> String {
    let headers: [(&str, &[u8]); 6] = [
        ("content-type", b"text/plain; charset=utf-8"),
        ("set-cookie", b"a=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT"),
        ("vary", b"Accept"),
        ("set-cookie", b"b=2"),
        ("vary", b"Cookie"),
        ("connection", b"close"),
    ];
    let answer =
        http_event::write(format, &head(201, &headers), "Grüße, \"AWS\"\n".as_bytes()).json;
    String::from_utf8(answer).unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lambda/events")
}

/// Names without extension, and contents, ordered by name.
pub fn directory(name: &str) -> Vec<(String, String)> {
    let mut files: Vec<_> = std::fs::read_dir(root().join(name))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_string();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    files.sort();
    assert!(!files.is_empty(), "nothing in {name}");
    files
}

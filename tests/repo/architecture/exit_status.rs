//! Tests that C and Rust agree on the exit statuses of workers.

use std::collections::BTreeMap;

use regex::Regex;

const HEADER: &str = include_str!("../../../sapi/base/exit_status.h");
const REASONS: &str = include_str!("../../../src/engines/workers/exit_reason.rs");

#[test]
fn exit_statuses_of_the_header_are_those_of_rust() {
    let c = found(r"SURUS_EXIT_(?<name>\w+) = (?<number>\d+)", HEADER);
    let code = REASONS.split("#[cfg(test)]").next().unwrap();
    let mut rust = found(r#"Some\((?<number>\d+)\) => \("(?<name>\w+)""#, code);
    rust.extend(found(r#"\(\s*(?<number>\d+),\s*"(?<name>\w+)""#, code));
    assert!(c.len() > 20, "{c:?}");
    assert_eq!(c, rust);
}

fn found(pattern: &str, text: &str) -> BTreeMap<u8, String> {
    let pattern = Regex::new(pattern).unwrap();
    let all = pattern.captures_iter(text);
    all.map(|found| {
        (
            found["number"].parse().unwrap(),
            found["name"].to_lowercase(),
        )
    })
    .collect()
}

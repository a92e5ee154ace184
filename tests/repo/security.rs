//! Tests that the security page says what is promised, to whom, and what is not, and that CI
//! attacks the shared memory for long enough.

use regex::Regex;

use super::markdown::root;

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The text below a heading, up to the next of its level.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, below) = page.split_once(&format!("\n{heading}\n")).unwrap();
    let level = heading.split(' ').next().unwrap();
    let (text, _) = below
        .split_once(&format!("\n{level} "))
        .unwrap_or((below, ""));
    text
}

#[test]
fn security_page_says_what_is_promised_to_whom_and_what_is_not() {
    let page = read("SECURITY.md");
    let parties = section(&page, "## What each part is trusted with");
    for party in ["a client", "PHP", "the front end", "the keeper", "admin"] {
        let mut rows = parties.lines().filter(|line| line.starts_with('|'));
        assert!(rows.any(|row| row.contains(party)), "{party}");
    }
    for heading in ["## What is promised", "## What is not promised"] {
        let items = section(&page, heading).lines();
        assert!(items.filter(|line| line.starts_with("- ")).count() >= 5);
    }
}

/// What a table row promises without exceptions is not taken back below.
#[test]
fn longer_stops_of_workers_are_exceptions_of_their_promise() {
    let page = read("SECURITY.md");
    let parties = section(&page, "## What each part is trusted with");
    let exceptions = section(&page, "## What is not promised");
    assert!(exceptions.contains("last longer than a second"));
    assert!(parties.contains("a second (with exceptions [below](#what-is-not-promised))"));
}

#[test]
fn attack_on_compression_is_described_with_the_setting_of_a_route() {
    let page = read("docs/reference/configuration.md");
    let about = section(&page, "### Compression and secrets (BREACH)");
    assert!(
        about.contains("[[route]]") && about.contains("compress = false"),
        "{about}"
    );
    assert!(section(&read("SECURITY.md"), "## What is not promised").contains("BREACH"));
}

#[test]
fn ci_writes_random_bytes_to_shared_memory_for_half_a_minute() {
    let ci = read(".ci/run");
    let each = Regex::new(r"(?m)^export SHARED_MEMORY_SECONDS=(\d+)$").unwrap();
    let each: usize = each.captures(&ci).unwrap()[1].parse().unwrap();
    assert!(each >= 30, "{each} s on each engine");
    let tests = read("tests/recovery/random_writes.rs");
    for engine in ["classic", "fork", "rewind"] {
        assert!(
            tests.contains(&format!("survives(\"{engine}\")")),
            "{engine}"
        );
    }
    assert!(ci.contains("make test") && !ci.contains("skip random_writes"));
}

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
        let mut rows = parties.lines().filter_map(|line| line.strip_prefix('|'));
        let is_of = |row: &str| {
            row.split('|')
                .next()
                .is_some_and(|cell| cell.contains(party))
        };
        assert!(rows.any(is_of), "{party}");
    }
    for heading in ["## What is promised", "## What is not promised"] {
        let items = section(&page, heading).lines();
        assert!(items.filter(|line| line.starts_with("- ")).count() >= 5);
    }
}

/// Blank issues are off, so everyone who opens an issue sees the link.
#[test]
fn issue_chooser_leads_holes_where_the_security_page_does() {
    let button = "\"Report a vulnerability\" on the";
    let page = read("SECURITY.md");
    let page = section(&page, "## Report a vulnerability").replace('\n', " ");
    assert!(page.contains(button) && page.contains("Security tab"));
    let chooser = read(".github/ISSUE_TEMPLATE/config.yml");
    assert!(chooser.contains("\nblank_issues_enabled: false\n"));
    let (_, links) = chooser.split_once("\ncontact_links:\n").unwrap();
    // GitHub shows a link only with all three, and with an absolute address.
    let link = Regex::new(r"  - name: .+\n    url: https://(\S+)\n    about: (?s:(.+))").unwrap();
    let link = link.captures(links).unwrap();
    let private = [
        "privately-reporting-a-security-vulnerability",
        "/security/advisories/new",
    ];
    assert!(
        private.iter().any(|end| link[1].ends_with(end)),
        "{}",
        &link[1]
    );
    assert!(
        link[2].contains(button) && link[2].contains("Security tab"),
        "{}",
        &link[2]
    );
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
fn ci_writes_random_bytes_to_shared_memory_for_a_minute_and_a_half() {
    let ci = read(".ci/run");
    let each = Regex::new(r"(?m)^export SHARED_MEMORY_SECONDS=(\d+)$").unwrap();
    let each: usize = each.captures(&ci).unwrap()[1].parse().unwrap();
    let tests = read("tests/recovery/random_writes.rs");
    // `worker` shares what `classic` does not: the files of the boot.
    let engines = ["classic", "worker", "fork", "rewind"];
    assert!(each * engines.len() >= 90, "{each} s on each engine");
    for engine in engines {
        assert!(
            tests.contains(&format!("survives(\"{engine}\")")),
            "{engine}"
        );
    }
    assert!(ci.contains("make test") && !ci.contains("skip random_writes"));
}

//! Tests that docs/reference/http.md has the statuses with which Surus itself answers.

use std::collections::BTreeSet;

use http::StatusCode;
use regex::Regex;

use super::markdown::root;

/// Statuses of PHP's responses and of files, which are no error, and those of interim responses.
const NOT_LISTED: [u16; 7] = [100, 103, 200, 204, 206, 207, 304];

#[test]
fn statuses_of_the_http_page_are_those_of_the_code() {
    let page = std::fs::read_to_string(root().join("docs/reference/http.md")).unwrap();
    let row = Regex::new(r"(?m)^\| ((?:\d{3}, )*\d{3}) \|").unwrap();
    let documented: BTreeSet<u16> = row
        .captures_iter(&page)
        .flat_map(|found| {
            found[1]
                .split(", ")
                .map(|status| status.parse().unwrap())
                .collect::<Vec<_>>()
        })
        .collect();

    let named = Regex::new(r"StatusCode::([A-Z_]{2,})").unwrap();
    // No constant of the crate has this number.
    let mut actual = BTreeSet::from([499]);
    let mut sources = super::architecture::sources(&["src/app", "src/fronts/http"]);
    sources.retain(|(file, _)| !file.contains("/tests"));
    for (_, text) in sources {
        let code = text.split("mod tests {").next().unwrap();
        actual.extend(named.captures_iter(code).map(|found| number(&found[1])));
    }
    actual.retain(|status| !NOT_LISTED.contains(status));
    assert_eq!(documented, actual);
}

/// `NOT_FOUND` → 404.
fn number(name: &str) -> u16 {
    let is_named = |status: &u16| {
        let reason = StatusCode::from_u16(*status).unwrap().canonical_reason();
        reason.is_some_and(|reason| reason.to_uppercase().replace([' ', '-'], "_") == name)
    };
    (100..600)
        .find(is_named)
        .unwrap_or_else(|| panic!("no status {name}"))
}

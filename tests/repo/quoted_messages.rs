//! Tests that messages that guides quote in tables of problems are those of the code.

use std::collections::BTreeSet;

use regex::Regex;

use super::architecture::files;
use super::markdown::documents;

/// What the system and other programs say.
const OF_OTHERS: [&str; 5] = [
    "Address already in use",
    "Connection refused",
    "Permission denied",
    "Timeout",
    "unable to get local issuer certificate",
];

#[test]
fn messages_that_guides_quote_are_those_of_the_code() {
    let is_code = |end: &str| ["c", "h", "rs"].contains(&end);
    let code = files(&["crates", "sapi", "src"], |path| {
        path.extension()
            .and_then(|end| end.to_str())
            .is_some_and(is_code)
    });
    // Literals go over several lines, by `\` in Rust and by a second literal in C.
    let line_end = Regex::new("\\\\\n\\s*|\"\\s*\n\\s*\"").unwrap();
    let code = code.iter().map(|(_, text)| line_end.replace_all(text, ""));
    let code: Vec<_> = code.collect();

    let quoted = Regex::new("`([^`]+)`").unwrap();
    let (mut unknown, mut checked) = (Vec::new(), 0);
    let mut others = BTreeSet::from(OF_OTHERS);
    let guides = documents();
    for page in guides
        .iter()
        .filter(|page| page.name.starts_with("docs/guides/"))
    {
        let mut is_of_problems = false;
        for (line, text) in page.prose() {
            let heading = text.starts_with("| message |") || text.starts_with("| symptom |");
            is_of_problems = heading || is_of_problems && text.starts_with('|');
            let Some(cell) = text.split('|').nth(1).filter(|_| is_of_problems) else {
                continue;
            };
            for found in quoted.captures_iter(cell) {
                // `…` and an error in brackets stand for what changes.
                for piece in found[1].split(['…', '(', ')']) {
                    let piece = piece.trim_matches([' ', ':', ';']);
                    if others.remove(piece) || OF_OTHERS.contains(&piece) || piece.is_empty() {
                        continue;
                    }
                    checked += 1;
                    if !code.iter().any(|text| text.contains(piece)) {
                        unknown.push(format!("{}:{line}: {piece}", page.name));
                    }
                }
            }
        }
    }
    assert!(unknown.is_empty(), "the code has no {unknown:#?}");
    assert!(others.is_empty(), "no page quotes {others:?}");
    assert!(checked > 10, "only {checked} messages");
}

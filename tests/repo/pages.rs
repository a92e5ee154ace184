//! Tests that pages are reachable, say whom they are for, and name only what exists.

use std::collections::BTreeSet;

use regex::Regex;

use super::markdown::{documents, pages, root};

#[test]
fn relative_links_and_anchors_exist() {
    let pages = pages();
    let mut wrong = Vec::new();
    for page in &pages {
        for (line, target) in page.links() {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = match file {
                "" => root().join(&page.name),
                file => page.directory().join(file),
            };
            let Ok(path) = path.canonicalize() else {
                wrong.push(format!("{}:{line}: no {target}", page.name));
                continue;
            };
            if anchor.is_empty() {
                continue;
            }
            let name = path.strip_prefix(root().canonicalize().unwrap()).unwrap();
            let linked = pages
                .iter()
                .find(|page| page.name == name.display().to_string());
            let exists = linked.is_some_and(|page| page.anchors().contains(&anchor.to_string()));
            if !exists {
                wrong.push(format!("{}:{line}: no heading for {target}", page.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_document_is_in_the_index() {
    let pages = documents();
    // Results of the lab are in the list that the lab writes.
    let indexes = ["docs/README.md", "docs/performance.md"];
    let indexes = pages.iter().filter(|page| indexes.contains(&&*page.name));
    let links = indexes.flat_map(|page| page.links());
    let listed: BTreeSet<_> = links.map(|(_, target)| target).collect();
    for page in &pages {
        let name = page.name.strip_prefix("docs/").unwrap();
        assert!(
            name == "README.md" || listed.contains(name),
            "docs/README.md lacks {name} (a page of docs/results: `make lab-docs`)"
        );
    }
}

#[test]
fn every_page_begins_with_whom_it_is_for() {
    let audience = Regex::new(
        "^For (contributors|developers|everyone|maintainers|operators|readers|teams|users)\\b",
    )
    .unwrap();
    let mut pages = pages();
    let others = ["README.md", "CHANGELOG.md", ".github/", "tests/"];
    pages.retain(|page| !others.iter().any(|other| page.name.starts_with(other)));
    for page in pages {
        let mut lines = page.text.lines();
        let title = lines.next().unwrap_or_default();
        assert!(title.starts_with("# "), "{}: no title", page.name);
        let first = lines.find(|line| !line.is_empty() && !line.starts_with("<!--"));
        let first = first.unwrap_or_default();
        assert!(
            audience.is_match(first),
            "{}: the first sentence says whom the page is for, as in `For operators …`, not: \
                {first}",
            page.name
        );
    }
}

/// In the changelog, files have their names of then, and below tests/ those of other projects.
#[test]
fn paths_that_pages_name_exist() {
    let path = Regex::new(concat!(
        r"`((?:\.github|crates|docs|examples|lab|packaging|php|sapi|scripts|src|tests)",
        r"/[\w./-]*)",
    ))
    .unwrap();
    let mut wrong = Vec::new();
    let pages = pages();
    let is_ours = |name: &str| name != "CHANGELOG.md" && !name.starts_with("tests/");
    for page in pages.iter().filter(|page| is_ours(&page.name)) {
        for (line, text) in page.prose() {
            for found in path.captures_iter(text) {
                if !root().join(&found[1]).exists() {
                    wrong.push(format!("{}:{line}: {}", page.name, &found[1]));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// As in: `failed` in `src/app/response.rs`.
#[test]
fn functions_that_pages_name_are_in_the_files_they_name() {
    let named =
        Regex::new(r"`(\w+)` (?:in|of) `((?:crates|sapi|src)/[\w./-]+\.(?:rs|c|h))`").unwrap();
    let mut checked = 0;
    for page in pages().iter().filter(|page| page.name != "CHANGELOG.md") {
        for (line, text) in page.prose() {
            for found in named.captures_iter(text) {
                let code = std::fs::read_to_string(root().join(&found[2])).unwrap_or_default();
                let (name, place) = (&found[1], format!("{}:{line}", page.name));
                assert!(code.contains(name), "{place}: no {name} in {}", &found[2]);
                checked += 1;
            }
        }
    }
    assert!(checked > 3, "only {checked} functions");
}

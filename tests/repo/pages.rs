//! Tests that pages are reachable, say whom they are for, and name only what exists.

use std::collections::BTreeSet;

use regex::Regex;

use super::architecture::files;
use super::markdown::{Page, documents, pages, root};

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

#[test]
fn paths_that_pages_name_exist() {
    let path = Regex::new(concat!(
        r"`((?:\.github|crates|docs|examples|lab|packaging|php|sapi|scripts|src|tests)",
        r"/[\w./-]*)",
    ))
    .unwrap();
    let mut wrong = Vec::new();
    for page in pages_of_code() {
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

/// As in: `failed` in `src/app/response.rs`, or `run` and `live` in `exchange.rs`.
#[test]
fn functions_that_pages_name_are_in_the_files_they_name() {
    let list = r"((?:(?:`\w+`, )*`\w+` and )?`\w+`) (?:in|of) `([\w./-]+\.(?:rs|c|h))`";
    let list = Regex::new(list).unwrap();
    let code = files_of_code();
    let mut wrong = Vec::new();
    let mut checked = 0;
    for page in pages_of_code() {
        for (line, text) in paragraphs(&page) {
            for found in list.captures_iter(&text) {
                let place = format!("{}:{line}", page.name);
                let (names, file) = (found[1].split(", "), &found[2]);
                let [(path, text)] = named(file, &code)[..] else {
                    wrong.push(format!("{place}: {file} does not name one file"));
                    continue;
                };
                for name in names.flat_map(|names| names.split(" and ")) {
                    checked += 1;
                    if !is_defined(name.trim_matches('`'), text) {
                        wrong.push(format!("{place}: {path} does not define {name}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(checked > 40, "only {checked} functions");
}

/// As in: `deadlines.rs` or `generation/control.rs`, where the text says the directory.
#[test]
fn files_that_pages_name_without_their_directory_exist() {
    let name = Regex::new(r"`([\w./-]+\.(?:rs|c|h))(?::\w+)?`").unwrap();
    let code = files_of_code();
    let mut wrong = Vec::new();
    for page in pages_of_code() {
        for (line, text) in paragraphs(&page) {
            for found in name.captures_iter(&text) {
                // Many directories have one, so the text must say which.
                let is_vague = &found[1] == "mod.rs" && !text.contains("`src/");
                if is_vague || named(&found[1], &code).is_empty() {
                    wrong.push(format!("{}:{line}: {}", page.name, &found[1]));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn names_that_occur_in_other_names_are_not_defined() {
    let rust = "    /// lose\n    pub(super) fn close() {}\n    HolderMissing,\n    x.lose();\n";
    let c = "static void end_request(int a)\n{\n\tbegin_request();\n}\nstruct line {\n";
    for (name, code) in [("lose", rust), ("Holder", rust), ("begin_request", c)] {
        assert!(!is_defined(name, code), "{name}");
    }
    for (name, code) in [
        ("close", rust),
        ("HolderMissing", rust),
        ("end_request", c),
        ("line", c),
    ] {
        assert!(is_defined(name, code), "{name}");
    }
}

/// In Rust or C: a function, a type, a constant or a variant of an enum.
fn is_defined(name: &str, code: &str) -> bool {
    let kinds = "fn|struct|enum|const|static|trait|type|mod|#define";
    let item = format!(r"(?:^|\s)(?:{kinds}) +{name}\b");
    let function = format!(r"^[a-zA-Z_][^;=\n]*\b{name}\(");
    let variant = format!(r"^ +{name}\b[^;:=.]*[,{{]$");
    let definition = Regex::new(&format!("(?m){item}|{function}|{variant}")).unwrap();
    definition.is_match(code)
}

/// The file of this path, else those whose paths end with it.
fn named<'a>(name: &str, files: &'a [(String, String)]) -> Vec<&'a (String, String)> {
    let below = format!("/{name}");
    match files.iter().find(|(path, _)| path == name) {
        Some(file) => vec![file],
        None => files
            .iter()
            .filter(|(path, _)| path.ends_with(&below))
            .collect(),
    }
}

fn files_of_code() -> Vec<(String, String)> {
    let directories = ["crates", "fuzz", "lab", "sapi", "src", "tests"];
    files(&directories, |path| {
        let end = path.extension();
        end.is_some_and(|end| ["rs", "c", "h"].iter().any(|ours| end == *ours))
    })
}

/// Each with its first line.
fn paragraphs(page: &Page) -> Vec<(usize, String)> {
    let mut paragraphs: Vec<(usize, String)> = Vec::new();
    let mut last = 0;
    for (number, line) in page.prose() {
        let line = line.trim();
        match paragraphs.last_mut() {
            Some((_, text)) if last + 1 == number && !line.is_empty() => {
                text.push(' ');
                text.push_str(line);
            }
            _ => paragraphs.push((number, line.to_string())),
        }
        last = number;
    }
    paragraphs
}

/// In the changelog, files have their names of then, and below tests/ those of other projects.
fn pages_of_code() -> Vec<Page> {
    let mut pages = pages();
    pages.retain(|page| page.name != "CHANGELOG.md" && !page.name.starts_with("tests/"));
    pages
}

#[test]
fn changelog_has_each_change_once() {
    let pages = pages();
    let changelog = pages.iter().find(|page| page.name == "CHANGELOG.md");
    let mut seen = BTreeSet::new();
    for line in changelog.unwrap().text.lines() {
        assert!(
            !line.starts_with("- ") || seen.insert(line),
            "twice: {line}"
        );
    }
}

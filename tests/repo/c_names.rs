//! Tests that names of C code in comments and in docs/internals exist in the code.

use std::collections::BTreeSet;
use std::path::Path;

use regex::Regex;

use super::alerts::documented;
use super::architecture::files;

#[test]
fn names_in_comments_and_internals_exist_in_the_code() {
    let name = Regex::new(r"\bsurus_\w+").unwrap();
    let names = |text: &str| -> Vec<String> {
        let found = name.find_iter(text).map(|found| found.as_str().to_string());
        found.collect()
    };
    // Metrics begin in the same way.
    let mut known = documented();
    let mut used = Vec::new();
    let is_code = |path: &Path| {
        let end = path.extension().and_then(|end| end.to_str());
        end.is_some_and(|end| ["c", "h", "php", "rs"].contains(&end))
    };
    for (file, text) in files(&["crates", "php", "sapi", "src"], is_code) {
        let (code, comments) = divided(&text, file.ends_with(".rs"));
        known.extend(names(&code));
        if file.starts_with("src/") || file.starts_with("sapi/") {
            used.extend(
                names(&comments)
                    .into_iter()
                    .map(|name| (file.clone(), name)),
            );
        }
    }
    let is_page = |path: &Path| path.extension().is_some_and(|end| end == "md");
    for (page, text) in files(&["docs/internals"], is_page) {
        used.extend(names(&text).into_iter().map(|name| (page.clone(), name)));
    }
    assert!(used.len() > 40, "only {} names", used.len());
    let unknown: BTreeSet<_> = used
        .into_iter()
        .filter(|(_, name)| !known.contains(name))
        .map(|(file, name)| format!("{file}: {name}"))
        .collect();
    assert!(unknown.is_empty(), "no code has these:\n{unknown:#?}");
}

#[test]
fn comments_are_divided_from_code() {
    let (code, comments) = divided("a();/* b,\n * c */d();\n// e\n", false);
    assert_eq!(code, "a(); d();\n \n");
    assert_eq!(comments, "/* b,\n * c */ // e ");
    let (code, comments) = divided("a(\"/*\");// b\n", true);
    assert_eq!(code, "a(\"/*\"); \n");
    assert_eq!(comments, "// b ");
}

/// The code and the comments of a file. In Rust, a literal may contain `/*`.
fn divided(text: &str, is_rust: bool) -> (String, String) {
    let pattern = match is_rust {
        true => r"//[^\n]*",
        false => r"(?s)//[^\n]*|/\*.*?\*/",
    };
    let comment = Regex::new(pattern).unwrap();
    let comments = comment.find_iter(text).map(|found| found.as_str());
    let comments = comments.flat_map(|comment| [comment, " "]).collect();
    (comment.replace_all(text, " ").into_owned(), comments)
}

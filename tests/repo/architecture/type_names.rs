//! Tests that a search for the name of a type finds few types.

use std::collections::BTreeMap;

use regex::Regex;

use super::sources;

/// Names that idiomatic Rust gives to a type of each module. Readers know them by their module, as
/// in `log::Settings`, or they are private to one file. docs/internals/decisions.md says more.
const CONVENTIONAL: [&str; 5] = ["Args", "Command", "Inner", "Settings", "State"];

/// How many types outside of `CONVENTIONAL` may share a name.
const MOST: usize = 2;

#[test]
fn names_of_types_are_shared_by_two_types_at_most() {
    let tests = r"(?s)#\[cfg\(test\)\]\n(?:#\[[^\n]*\n)*(?:pub[^ ]* )?mod \w+ \{\n.*?\n\}\n";
    let tests = Regex::new(tests).unwrap();
    // Types inside of functions and associated types are indented.
    let type_name = r"(?m)^(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait|type|union) (\w+)";
    let type_name = Regex::new(type_name).unwrap();
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, text) in sources(&["src", "crates", "lab"]) {
        if file.contains("/tests/") || file.ends_with("/tests.rs") {
            continue;
        }
        for found in type_name.captures_iter(&tests.replace_all(&text, "")) {
            files.entry(found[1].into()).or_default().push(file.clone());
        }
    }
    for name in CONVENTIONAL {
        assert!(
            files.get(name).is_some_and(|files| files.len() > MOST),
            "CONVENTIONAL allows `{name}` to be shared, which it is not"
        );
    }
    files.retain(|name, files| files.len() > MOST && !CONVENTIONAL.contains(&name.as_str()));
    assert!(
        files.is_empty(),
        "these names are shared by too many types; say in the name what it is of, as in `FpmPool`: \
         {files:#?}"
    );
}

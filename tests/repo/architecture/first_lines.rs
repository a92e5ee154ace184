//! Tests that the first line of a file says what the file is responsible for.

use super::{files, sources};

#[test]
fn every_file_has_a_doc_comment() {
    let all = sources(&["src", "crates", "tests", "fuzz", "lab"]);
    let wrong: Vec<_> = all
        .iter()
        .filter(|(_, text)| {
            let said = text.strip_prefix("//! ");
            said.is_none_or(|said| QUESTIONS.contains(&said.split([' ', '\n']).next().unwrap()))
        })
        .map(|(file, _)| file.as_str())
        .collect();
    assert!(
        wrong.is_empty(),
        "the first line must begin with `//! `, and say what the file is responsible for, not what \
         it answers (`What …`, `Where …`):\n{}\n",
        wrong.join("\n")
    );
}

/// The first words of a riddle.
const QUESTIONS: [&str; 9] = [
    "How", "What", "When", "Where", "Whether", "Which", "Who", "Whose", "Why",
];

/// Files of other languages need no first line, but if they have one, it is no riddle either.
#[test]
fn first_comments_of_other_languages_are_no_questions() {
    let directories = [
        ".ci",
        "crates",
        "examples",
        "fuzz/fuzz_targets",
        "lab",
        "packaging",
        "php",
        "sapi",
        "scripts",
        "tests",
    ];
    let endings = [
        "", "c", "conf", "h", "js", "php", "py", "sh", "sql", "toml", "yml",
    ];
    let all = files(&directories, |path| {
        let ending = path.extension().unwrap_or_default();
        path.is_file() && endings.iter().any(|one| ending == *one)
    });
    assert!(all.iter().any(|(file, _)| file == ".ci/run"));
    let wrong: Vec<_> = all
        .iter()
        .filter(|(_, text)| {
            let said = first_comment(text).and_then(|said| said.split_whitespace().next());
            said.is_some_and(|word| QUESTIONS.contains(&word))
        })
        .map(|(file, _)| file.as_str())
        .collect();
    assert!(
        wrong.is_empty(),
        "what these files are responsible for:\n{}\n",
        wrong.join("\n")
    );
}

#[test]
fn first_comment_of_each_language_is_found() {
    for (text, said) in [
        ("#!/bin/sh\n# Where it is.\n", Some("Where it is.")),
        (
            "<?php\n\ndeclare(strict_types=1);\n\n/**\n * What it does. */",
            Some("What it does. */"),
        ),
        ("/* Whether. */", Some("Whether. */")),
        ("\"\"\"How.\"\"\"", Some("How.\"\"\"")),
        ("[engine]\n# Why.\n", None),
        ("", None),
    ] {
        assert_eq!(first_comment(text), said, "{text}");
    }
}

/// If a file begins with a comment.
fn first_comment(text: &str) -> Option<&str> {
    let before = ["", "<?php", "declare(strict_types=1);", "/*", "/**"];
    let mut lines = text.lines().map(str::trim);
    let first = lines.find(|line| !line.starts_with("#!") && !before.contains(line))?;
    let markers = ["//", "/**", "/*", "*", "#", "--", "\"\"\""];
    let said = markers.iter().find_map(|marker| first.strip_prefix(marker));
    said.map(str::trim)
}

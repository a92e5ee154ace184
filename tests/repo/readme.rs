//! Tests that the README's table of engines matches the program.

use surus::engines::CATALOGUE;

#[test]
fn readme_lists_the_engines_of_the_catalogue() {
    let readme = include_str!("../../README.md");
    let (_, rest) = readme.split_once("<!-- engines -->\n").unwrap();
    let (table, _) = rest.split_once("<!-- /engines -->").unwrap();
    let mut expected = String::from(
        "| engine | what happens | application boots | survives between requests |\n|---|---|---|---|\n",
    );
    for entry in CATALOGUE {
        expected += &format!(
            "| `{}` | {} | {} | {} |\n",
            entry.name, entry.what_happens, entry.boots, entry.survives
        );
    }
    assert_eq!(table, expected, "put this into README.md:\n\n{expected}");
}

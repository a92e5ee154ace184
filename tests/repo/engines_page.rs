//! Tests that the documented table of engines matches the program.

use surus::engines::CATALOGUE;

#[test]
fn engines_page_lists_the_engines_of_the_catalogue() {
    let page = include_str!("../../docs/reference/engines.md");
    let (_, rest) = page.split_once("<!-- engines -->\n").unwrap();
    let (table, _) = rest.split_once("<!-- /engines -->").unwrap();
    let mut expected = String::from(
        "| engine | what happens | application boots | survives between requests |\n\
         |---|---|---|---|\n",
    );
    for entry in CATALOGUE {
        expected += &format!(
            "| `{}` | {} | {} | {} |\n",
            entry.name, entry.what_happens, entry.boots, entry.survives
        );
    }
    assert_eq!(
        table, expected,
        "put this into docs/reference/engines.md:\n\n{expected}"
    );
}

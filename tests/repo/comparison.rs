//! Tests that the README's table of servers agrees with the one of `docs/comparison.md`.

use super::markdown::root;

/// A cell of the page may say more after the words of the README's cell.
#[test]
fn comparison_page_agrees_with_the_readme() {
    let (short, long) = (table("README.md"), table("docs/comparison.md"));
    assert!(short.len() > 8, "README.md: {short:?}");
    let mut wrong = Vec::new();
    for row in &short {
        let Some(other) = long.iter().find(|other| other[0] == row[0]) else {
            wrong.push(format!("docs/comparison.md has no row `{}`", row[0]));
            continue;
        };
        let is_same = row.len() == other.len()
            && row
                .iter()
                .zip(other)
                .all(|(a, b)| b.starts_with(a.as_str()));
        if !is_same {
            wrong.push(format!(
                "{row:?} in README.md, {other:?} in docs/comparison.md"
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The rows of the table whose first column is Surus, with its head.
fn table(page: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let lines = text
        .lines()
        .skip_while(|line| !line.starts_with("| | Surus |"));
    let rows = lines.take_while(|line| line.starts_with('|'));
    let rows = rows.filter(|line| !line.starts_with("|---"));
    let cells = |row: &str| {
        row.trim_matches('|')
            .split('|')
            .map(|it| it.trim().into())
            .collect()
    };
    rows.map(cells).collect()
}

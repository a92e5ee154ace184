//! Explains the marks of numbers in documents that show some of an experiment's numbers.

use surus_measure::{DISTURBED_MARK, MARK};

const MEANINGS: [(&str, &str); 2] = [
    (
        MARK,
        "the load generator was the limit; the server can do more.",
    ),
    (
        DISTURBED_MARK,
        "other processes on the machine took much of the CPUs in some rounds; the number may be \
         too low.",
    ),
];

/// A line for each mark in a table.
pub fn of(table: &str) -> Vec<String> {
    let shown = MEANINGS.iter().filter(|(mark, _)| table.contains(mark));
    shown
        .map(|(mark, meaning)| format!("{mark}: {meaning}"))
        .collect()
}

/// The same, each a paragraph below the table.
pub fn paragraphs(table: &str) -> String {
    of(table).iter().map(|line| format!("\n{line}\n")).collect()
}

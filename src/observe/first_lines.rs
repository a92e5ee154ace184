//! Keeps the first lines that a starting PHP writes, which say why it did not start.

use std::sync::{Arc, Mutex};

/// The first lines of a starting PHP, which say why it did not start.
#[derive(Debug, Clone, Default)]
pub struct FirstLines(Arc<Mutex<Vec<String>>>);

/// Bytes kept of each line.
const FIRST_LINE: usize = 4096;

impl FirstLines {
    pub fn add(&self, line: &str) {
        let mut end = line.len().min(FIRST_LINE);
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        let line = &line[..end];
        let mut lines = self
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        // Every worker writes the same lines.
        if lines.len() < 20 && !lines.iter().any(|other| other == line) {
            lines.push(line.to_string());
        }
    }

    /// The lines, joined by line breaks.
    pub fn text(&self) -> String {
        self.0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .join("\n")
    }
}
